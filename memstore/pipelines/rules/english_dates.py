"""English date and time expressions, and dates in digits."""

import re
from collections.abc import Callable, Iterator
from datetime import date

from memstore.pipelines.rules.date_pieces import (
    NOON,
    PARTS,
    Base,
    Clock,
    Piece,
    Reader,
    coming_weekday,
    following_day_of_month,
    last_of_month,
    made,
    month_after,
    month_of,
    moved_instant,
    moved_months,
    nearest_date,
    nearest_day_of_month,
    nearest_month,
    nearest_weekday,
    one,
    piece_of,
    pieces,
    recurring,
    shifted,
    stretch,
    weekday_in_week,
    year_of,
)

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sept sep", "october oct", "november nov", "december dec"), 1
    )
    for name in names.split()
}  # fmt: skip
_SHORT_WEEKDAYS = ("mon", "tues?", "wed", "thu(?:rs?)?", "fri", "sat", "sun")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = {
    word: number
    for number, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
        1,
    )
} | {"a": 1, "an": 1}
_N = f"[0-9]{{1,6}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}"
_MONTH = rf"(?:(?i:{'|'.join(sorted((m for m in _MONTHS if m not in ('may', 'march', 'mar')), key=len, reverse=True))})|May|March|Mar)\b\.?"
_FULL_WEEKDAY = "|".join(_WEEKDAYS)
_WEEKDAY = rf"(?:{_FULL_WEEKDAY}|{'|'.join(_SHORT_WEEKDAYS)})"
_DAY = "3[01]|[12][0-9]|0?[1-9]"
_SHIFT = {"last": -1, "past": -1, "this": 0, "coming": 0, "next": 1}
_SATURDAY, _FRIDAY = 5, 4
_TO = "on|by|until|till|before|after|from|since|due|for"
_UNIT = "minute|hour|day|week|month|year"
_PART = "morning|afternoon|evening|night"

_PATTERN = re.compile(
    rf"(?P<recurring>\b(?i:every|each)\s(?:(?i:other|second|single)\s)?(?:(?i:(?:{_N})\s)?(?i:{_WEEKDAY}|{_UNIT}|weekday|{_PART}|weekend)s?\b)"
    rf"(?:\s(?i:{_PART}))?(?:(?:,\s?|\s)(?:and\s|or\s)?(?i:{_FULL_WEEKDAY})s?\b)*|\b(?i:(?:on\s)?(?:{_FULL_WEEKDAY}|weekend|weekday|evening|morning)s)\b)"
    r"|(?P<iso>(?<![0-9.-])(?P<iy>[12][0-9]{3})[-/](?P<im>0?[1-9]|1[0-2])(?:[-/](?P<id>3[01]|[12][0-9]|0?[1-9]))"
    r"(?:[T ](?P<ih>[01][0-9]|2[0-3]):(?P<imin>[0-5][0-9])(?::[0-9]{2})?)?(?![0-9-]))"
    rf"|(?P<monthday>\b(?P<mdm>{_MONTH})\s(?:the\s)?(?P<mdd>{_DAY})(?:st|nd|rd|th)?\b(?![:%.][0-9])(?:,?\s?(?P<mdy>(?:19|20)[0-9]{{2}})\b)?)"
    rf"|(?P<daymonth>\b(?:the\s)?(?P<dmd>{_DAY})(?:st|nd|rd|th)?\s(?:of\s)?(?P<dmm>{_MONTH})(?:,?\s?(?P<dmy>(?:19|20)[0-9]{{2}})\b)?)"
    rf"|(?P<monthyear>\b(?P<mym>{_MONTH}),?\s(?P<myy>(?:19|20)[0-9]{{2}})\b)"
    rf"|(?P<inmonth>\b(?i:in|since|until|by|during|early|mid|late|this|next|last)\s(?P<inm>{_MONTH})(?!\s[0-9]))"
    rf"|(?P<inyear>\b(?i:in|since|until|by)\s(?P<iny>(?:19|20)[0-9]{{2}})\b(?![-/.:][0-9]|\s(?i:{_UNIT})s?\b))"
    rf"|(?P<endof>\b(?i:(?:the\s)?(?P<what>end|beginning|start)\sof\s(?:the\s|(?P<eowhich>this\s|next\s|last\s))?(?P<eounit>week|month|year)))\b"
    rf"|(?P<dom>\b(?i:(?:{_TO})\sthe\s)(?P<d>{_DAY})(?:st|nd|rd|th)\b"
    r"(?:\s(?i:of\s(?P<domwhich>this|next|last)\smonth)|(?!\s(?!(?i:at|of|and|to|if|we|i|in|from|because|it|for|with)\b)[A-Za-z])))"
    rf"|(?P<domof>\b(?i:the\s(?P<d2>{_DAY})(?:st|nd|rd|th)\sof\s(?P<which2>this|next|last)\smonth)\b)"
    rf"|(?P<slash>(?<![0-9/.-])(?P<s1>{_DAY})/(?P<s2>{_DAY})(?:/(?P<sy>(?:19|20)[0-9]{{2}}))?(?![0-9/.%]))"
    rf"|(?P<weekday>\b(?:(?P<wwhich>(?i:this\scoming|this\spast|this|next|last|coming|past))\s(?P<wshown>(?i:{_WEEKDAY}))"
    rf"|(?i:{_TO})\s(?P<wto>(?i:{_FULL_WEEKDAY})|Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)|(?P<wfull>(?i:{_FULL_WEEKDAY})))\b)"
    r"|(?P<period>\b(?P<pwhich>(?i:this|next|last))\s(?P<punit>(?i:week(?:end)?|month|year))\b)"
    r"|(?P<thisweekend>\b(?i:(?:at|on|over)\sthe\sweekend)\b)"
    r"|(?P<word>\b(?i:the\sday\safter\stomorrow|day\safter\stomorrow|the\sday\sbefore\syesterday|tomorrow|today|yesterday|tonight|last\snight)\b)"
    rf"|(?P<thispart>\b(?i:this\s(?P<tp>morning|afternoon|evening))\b)"
    rf"|(?P<in>\b(?i:in|within)\s(?P<inabout>(?i:about\s|exactly\s)?)(?:(?P<inn>(?i:{_N}))\s(?P<inu>(?i:{_UNIT})s?)|(?P<inhalf>(?i:half\san\shour)))\b(?!\s(?i:of\b|time\b|or\b|row\b)))"
    rf"|(?P<ago>\b(?:(?P<an>(?i:{_N}))\s(?P<au>(?i:{_UNIT})s?)|(?P<ahalf>(?i:half\san\shour)))\s(?P<away>(?i:ago|from\snow|from\stoday))\b)"
    r"|(?P<span>\b(?i:from\s|between\s)?(?P<h1>1[0-2]|0?[1-9])(?::(?P<m1>[0-5][0-9]))?\s?(?P<p1>(?i:[ap]\.?m\b\.?))?\s?(?:-|–|(?i:to|and|until)\b)\s?"
    r"(?P<h2>1[0-2]|0?[1-9])(?::(?P<m2>[0-5][0-9]))?\s?(?P<p2>(?i:[ap]\.?m\b\.?)))"
    r"|(?P<ampm>\b(?:(?i:at|around|about|by|@)\s?)?(?P<ah>1[0-2]|0?[1-9])(?:[:.](?P<am>[0-5][0-9]))?\s?(?P<ap>(?i:a\.?m\b|p\.?m\b)\.?))"
    r"|(?P<colon>(?P<cat>\b(?i:at|around|by|from|until)\s)?(?<![0-9:./])(?P<ch>2[0-3]|[01]?[0-9]):(?P<cm>[0-5][0-9])(?![0-9:]))"
    rf"|(?P<spoken>\b(?i:(?:at\s)?(?P<how>half\spast|quarter\spast|quarter\sto)\s(?P<sh>{_N}))\b(?:\s(?P<sp>(?i:[ap]\.?m\b)))?)"
    rf"|(?P<oclock>\b(?i:(?:at\s)?(?P<oh>{_N})\so['’]?clock)\b)"
    r"|(?P<noon>\b(?i:at\snoon|noon|midday)\b)"
    rf"|(?P<bare>\b(?i:at)\s(?P<bh>1[0-2]|[1-9])\b(?![:.%/0-9]|\s?[a-z]*%))"
    rf"|(?P<part>\b(?:(?i:in\sthe|in)\s)?(?P<pp>(?i:{_PART}))\b)"
)  # fmt: skip


def english_pieces(text: str, base: Callable[[int, int], Base]) -> Iterator[Piece]:
    """In the order of the text, none overlapping another. ``base`` is asked with the span of each."""
    return pieces(_PATTERN, _READERS, text, base)


def _iso(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    clock = None if found["ih"] is None else Clock(int(found["ih"]) * 60 + int(found["imin"]))
    return piece_of(
        found, one(made(int(found["iy"]), int(found["im"]), int(found["id"]))), clock=clock, full=True
    )


def _month_day(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return _dated(found, base, found["mdy"], found["mdm"], found["mdd"])


def _day_month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return _dated(found, base, found["dmy"], found["dmm"], found["dmd"])


def _dated(found: re.Match[str], base: Base, year: str | None, month: str, day: str) -> Piece | None:
    if year:
        return piece_of(found, one(made(int(year), _month(month), int(day))), full=True)
    return piece_of(found, one(nearest_date(base, _month(month), int(day))))


def _month_year(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return piece_of(found, month_of(int(found["myy"]), _month(found["mym"])), full=True)


def _in_month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    days = nearest_month(base, _month(found["inm"]))
    which = found[0].split()[0].lower()
    if days is None:
        return None
    if which == "last" and days.start.replace(day=1) >= base.day.replace(day=1):
        days = month_of(days.start.year - 1, days.start.month)
    return piece_of(found, days)


def _in_year(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return piece_of(found, year_of(int(found["iny"])), full=True)


def _end_of(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    shift = _SHIFT[(found["eowhich"] or "this").strip().lower()]
    at_end = found["what"].lower() == "end"
    unit = found["eounit"].lower()
    if unit == "week":
        return piece_of(found, one(weekday_in_week(base.day, shift, 6 if at_end else 0)))
    if unit == "year":
        year = base.day.year + shift
        return piece_of(found, last_of_month(year, 12) if at_end else month_of(year, 1))
    year, month = month_after(base.day.year, base.day.month, shift)
    return piece_of(found, last_of_month(year, month) if at_end else stretch(made(year, month, 1), 10))


def _day_of_month(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    day = int(found["d"] or found["d2"])
    which = found["domwhich"] or found["which2"]
    if which:
        year, month = month_after(base.day.year, base.day.month, _SHIFT[which.lower()])
        return piece_of(found, one(made(year, month, day)))
    return piece_of(found, one(nearest_day_of_month(base, day)), following=following_day_of_month(day))


def _slash(found: re.Match[str], base: Base, text: str) -> Piece | None:
    """Month and day, where only one order is possible; without a year only where a date is expected."""
    first, second = int(found["s1"]), int(found["s2"])
    month, day = (first, second) if second > 12 else (second, first)  # noqa: PLR2004 - months of a year
    if (first > 12) == (second > 12) or month > 12:  # noqa: PLR2004
        return None
    if found["sy"]:
        return piece_of(found, one(made(int(found["sy"]), month, day)), full=True)
    before = text[max(0, found.start() - 8) : found.start()]
    if not re.search(rf"(?:\b(?:{_TO})\s|[在于到])$", before, re.IGNORECASE):
        return None
    return piece_of(found, one(nearest_date(base, month, day)))


def _weekday(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    shown = (found["wshown"] or found["wto"] or found["wfull"]).lower()
    weekday = next(n for n, name in enumerate(_WEEKDAYS) if name.startswith(shown[:3]))
    which = (found["wwhich"] or "").lower()
    if which in ("", "coming") or "coming" in which:
        ahead = base if not which else Base(base.at, lambda: False)
        return piece_of(
            found, one(nearest_weekday(ahead, weekday)), weekday=not which,
            following=lambda start: coming_weekday(start, weekday),
        )  # fmt: skip
    if "past" in which:
        return piece_of(found, one(nearest_weekday(Base(base.at, lambda: True), weekday)))
    return piece_of(found, one(weekday_in_week(base.day, _SHIFT[which], weekday)))


def _period(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    shift, unit = _SHIFT[found["pwhich"].lower()], found["punit"].lower()
    if unit == "week":
        return piece_of(found, stretch(weekday_in_week(base.day, shift, 0), 7))
    if unit == "weekend":
        return piece_of(found, stretch(weekday_in_week(base.day, shift, _SATURDAY), 2))
    if unit == "year":
        return piece_of(found, year_of(base.day.year + shift))
    return piece_of(found, month_of(*month_after(base.day.year, base.day.month, shift)))


def _weekend(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return piece_of(found, stretch(nearest_weekday(base, _SATURDAY), 2))


def _word(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    word = " ".join(found["word"].lower().split())
    days = 2 if "after" in word else -2 if "before" in word else {"tomorrow": 1, "yesterday": -1}.get(word, 0)
    clock = None
    if word in ("tonight", "last night"):
        clock = Clock(*PARTS["evening"], exact=False)
        days = -1 if word == "last night" else 0
    return piece_of(found, one(shifted(base.day, days)), clock=clock)


def _this_part(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return piece_of(found, one(base.day), clock=Clock(*PARTS[found["tp"].lower()], exact=False))


def _in(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    if base.past or found[0].lower().startswith("within"):
        return None  # "I did it in three days" is a length
    return _offset(found, base.at, base.day, found["inn"], found["inu"], 1)


def _ago(found: re.Match[str], base: Base, _text: str) -> Piece | None:
    return _offset(
        found, base.at, base.day, found["an"], found["au"], -1 if found["away"].lower() == "ago" else 1
    )


def _offset(
    found: re.Match[str], at: object, day: date, number: str | None, unit: str | None, sign: int
) -> Piece | None:
    count = _number(number or "a")
    name = (unit or "hour").lower().rstrip("s")
    if name in ("minute", "hour"):
        minutes = sign * (30 if number is None else count * (60 if name == "hour" else 1))
        instant = moved_instant(at, minutes=minutes)  # type: ignore[arg-type]
        return Piece(*found.span(), instant=instant) if instant else None
    if name == "month":
        return piece_of(found, one(moved_months(day, sign * count)))
    if name == "year":
        return piece_of(found, year_of(day.year + sign * count))
    return piece_of(found, one(shifted(day, sign * count * (7 if name == "week" else 1))))


def _span(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    end = _twelve(int(found["h2"]), found["p2"]) + int(found["m2"] or 0)
    start = _twelve(int(found["h1"]), found["p1"] or found["p2"]) + int(found["m1"] or 0)
    if start >= end and not found["p1"]:
        start -= NOON  # from 11 to 1pm
    return Piece(*found.span(), clock=Clock(start, end)) if 0 <= start < end else None


def _am_pm(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return Piece(*found.span(), clock=Clock(_twelve(int(found["ah"]), found["ap"]) + int(found["am"] or 0)))


def _colon(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    weak = found["cat"] is None and len(found["ch"]) == 1
    return Piece(*found.span(), clock=Clock(int(found["ch"]) * 60 + int(found["cm"])), weak=weak)


def _spoken(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    hour = _number(found["sh"])
    if not 1 <= hour <= 12:  # noqa: PLR2004 - hours of a clock
        return None
    minutes = {"half past": 30, "quarter past": 15, "quarter to": -15}[" ".join(found["how"].lower().split())]
    return Piece(*found.span(), clock=Clock(_likely(hour, found["sp"]) + minutes))


def _oclock(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    hour = _number(found["oh"])
    return Piece(*found.span(), clock=Clock(_likely(hour, None))) if 1 <= hour <= 12 else None  # noqa: PLR2004


def _noon(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return Piece(*found.span(), clock=Clock(NOON))


def _bare(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    return Piece(*found.span(), clock=Clock(_likely(int(found["bh"]), None)), weak=True)


def _part(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    name = found["pp"].lower()
    return Piece(
        *found.span(), clock=Clock(*PARTS["evening" if name == "night" else name], exact=False), weak=True
    )


def _likely(hour: int, half: str | None) -> int:
    """Without am or pm nobody means one to six in the night."""
    return _twelve(hour, half or ("pm" if hour <= 6 or hour == 12 else "am"))  # noqa: PLR2004


def _twelve(hour: int, half: str) -> int:
    return (hour % 12 + (12 if half[0] in "pP" else 0)) * 60


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else _NUMBERS[word.lower()]


def _month(name: str) -> int:
    return _MONTHS[name.rstrip(".").lower()]


_READERS: dict[str, Reader] = {
    "recurring": recurring,
    "iso": _iso,
    "monthday": _month_day,
    "daymonth": _day_month,
    "monthyear": _month_year,
    "inmonth": _in_month,
    "inyear": _in_year,
    "endof": _end_of,
    "dom": _day_of_month,
    "domof": _day_of_month,
    "slash": _slash,
    "weekday": _weekday,
    "period": _period,
    "thisweekend": _weekend,
    "word": _word,
    "thispart": _this_part,
    "in": _in,
    "ago": _ago,
    "span": _span,
    "ampm": _am_pm,
    "colon": _colon,
    "spoken": _spoken,
    "oclock": _oclock,
    "noon": _noon,
    "bare": _bare,
    "part": _part,
}
