"""The pieces that date expressions are put together from, and the arithmetic of calendars.

A *piece* is a day (昨天, next Friday), a clock time (下午三点, at 3pm), both (今晚, tonight), an instant (两小时前), or a
repetition (每周三, on Mondays), which names no date and takes its clock time with it.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

Precision = Literal["day", "range", "month", "year"]
Number = Callable[[str], int | None]

MINUTES_A_DAY = 24 * 60
FIRST_YEAR, LAST_YEAR = 2, 9998
"""Nearer to the ends of the calendar some zones have no date for an instant."""
NOON = 12 * 60
PARTS: Mapping[str, tuple[int, int]] = {
    "night": (0, 6 * 60),
    "morning": (6 * 60, NOON),
    "noon": (NOON, NOON + 60),
    "afternoon": (NOON, 18 * 60),
    "evening": (18 * 60, MINUTES_A_DAY),
}
"""Minutes of the day from which to which a part of it goes."""


@dataclass(frozen=True, slots=True)
class Days:
    """A day, or the days from ``start`` to before ``end``."""

    start: date
    end: date | None = None
    precision: Precision = "day"

    @property
    def single(self) -> bool:
        return self.end is None


@dataclass(frozen=True, slots=True)
class Clock:
    """Minutes since the midnight of a day. ``exact`` is False for a part of the day."""

    start: int
    end: int | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """What one pattern matched.

    :param weak: counts only beside a day (``at 3``, 两点).
    :param weekday: the day was named by its weekday alone; a date beside it wins.
    :param following: the day as seen from another one, for the end of a stretch (周一到周五, 3月18日到20日).
    :param full: the text names year, month and day itself.
    """

    start: int
    end: int
    days: Days | None = None
    clock: Clock | None = None
    instant: datetime | None = None
    recurring: bool = False
    weak: bool = False
    weekday: bool = False
    full: bool = False
    following: Callable[[date], date | None] | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What an expression is seen from: the day and instant of the message, and whether its clause tells of the past,
    which is looked at where it matters."""

    at: datetime
    told_past: Callable[[], bool]

    @property
    def past(self) -> bool:
        return self.told_past()

    @property
    def day(self) -> date:
        return self.at.date()


def shifted(day: date, days: int) -> date | None:
    """None where the calendar does not reach."""
    try:
        moved = day + timedelta(days=days)
    except OverflowError:
        return None
    return moved if FIRST_YEAR <= moved.year <= LAST_YEAR else None


def made(year: int, month: int, day: int) -> date | None:
    """None where there is no such day, as 31 April."""
    if not FIRST_YEAR <= year <= LAST_YEAR or not 1 <= month <= 12 or day < 1:  # noqa: PLR2004 - months of a year
        return None
    return date(year, month, day) if day <= monthrange(year, month)[1] else None


def month_after(year: int, month: int, count: int) -> tuple[int, int]:
    index = year * 12 + month - 1 + count
    return index // 12, index % 12 + 1


def month_of(year: int, month: int) -> Days | None:
    first = made(year, month, 1)
    behind = made(*month_after(year, month, 1), 1)
    return Days(first, behind, "month") if first and behind else None


def year_of(year: int) -> Days | None:
    first, behind = made(year, 1, 1), made(year + 1, 1, 1)
    return Days(first, behind, "year") if first and behind else None


def last_of_month(year: int, month: int) -> Days | None:
    return one(made(year, month, monthrange(year, month)[1])) if FIRST_YEAR <= year <= LAST_YEAR else None


def one(day: date | None) -> Days | None:
    return None if day is None else Days(day)


def stretch(start: date | None, days: int) -> Days | None:
    end = None if start is None else shifted(start, days)
    return Days(start, end, "range") if start and end else None


def monday(day: date, weeks: int) -> date | None:
    """Of the calendar week so many weeks after that of the day."""
    return shifted(day, 7 * weeks - day.weekday())


def weekday_in_week(base: date, weeks: int, weekday: int) -> date | None:
    first = monday(base, weeks)
    return None if first is None else shifted(first, weekday)


def nearest_weekday(base: Base, weekday: int) -> date | None:
    """The coming one, today included; of a past clause the last one before today."""
    if base.past:
        return shifted(base.day, -((base.day.weekday() - weekday - 1) % 7 + 1))
    return coming_weekday(base.day, weekday)


def coming_weekday(day: date, weekday: int) -> date | None:
    return shifted(day, (weekday - day.weekday()) % 7)


def nearest_month(base: Base, month: int) -> Days | None:
    """The month of a year that is not named: the coming one, the present one included; of the past the last."""
    year = base.day.year
    if base.past:
        return month_of(year - (month > base.day.month), month)
    return month_of(year + (month < base.day.month), month)


def nearest_date(base: Base, month: int, day: int) -> date | None:
    """A day of a month without its year. A leap day is looked for in the years around."""
    years = range(base.day.year, base.day.year + (-9 if base.past else 9), -1 if base.past else 1)
    for year in years:
        found = made(year, month, day)
        if found and (found <= base.day if base.past else found >= base.day):
            return found
    return None


def nearest_day_of_month(base: Base, day: int) -> date | None:
    """Such a day of this month or the next (of the past: the last) that has it."""
    return _day_of_month(base.day, day, forward=not base.past)


def following_day_of_month(day: int) -> Callable[[date], date | None]:
    return lambda start: _day_of_month(start, day, forward=True)


def _day_of_month(start: date, day: int, *, forward: bool) -> date | None:
    for count in range(3):
        found = made(*month_after(start.year, start.month, count if forward else -count), day)
        if found and (found >= start if forward else found <= start):
            return found
    return None


def moved_months(day: date, months: int) -> date | None:
    """The same day so many months on, or the month's last one where it has no such day."""
    year, month = month_after(day.year, day.month, months)
    if not FIRST_YEAR <= year <= LAST_YEAR:
        return None
    return made(year, month, min(day.day, monthrange(year, month)[1]))


def moved_instant(at: datetime, **amount: float) -> datetime | None:
    """Exact hours and minutes, across changes of the clocks too."""
    try:
        moved = (at.astimezone(UTC) + timedelta(**amount)).astimezone(at.tzinfo)
    except OverflowError:
        return None
    return moved if FIRST_YEAR <= moved.year <= LAST_YEAR else None


def wall(day: date, minutes: int, like: datetime) -> datetime | None:
    """The wall time of a day in the zone of ``like``; minute 1440 is the next midnight."""
    moved = shifted(day, minutes // MINUTES_A_DAY)
    if moved is None:
        return None
    return datetime.combine(moved, time(minutes // 60 % 24, minutes % 60), like.tzinfo)


_CHINESE_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}


def chinese_number(text: str) -> int | None:
    """Of digits of any width, or of Chinese numerals below a hundred; None for what is none."""
    if text.isdecimal():
        return int(text) if len(text) <= 6 else None  # noqa: PLR2004 - larger counts reach out of the calendar
    if "十" in text:
        tens, _, ones = text.partition("十")
        ten = _CHINESE_DIGITS.get(tens, 1 if not tens else None)
        rest = _CHINESE_DIGITS.get(ones, 0 if not ones else None)
        return None if ten is None or rest is None else ten * 10 + rest
    return _CHINESE_DIGITS.get(text)


_PAST_CHINESE = re.compile("昨|前天|上周|上个?星期|上个?礼拜|上个?月|去年|了|刚|已经|过(?=[，。,.！!]|$)")
_PAST_ENGLISH = re.compile(
    r"\b(?:was|were|had|went|did|got|bought|met|saw|took|made|came|left|gave|told|said|sold|lost|won|ate|ran|flew|"
    r"drove|spoke|began|broke|chose|found|held|paid|sent|spent|wrote|last|ago|yesterday|already|[a-z]{2,}ed)\b",
    re.IGNORECASE,
)
_AHEAD = re.compile(
    "(?<![重主])要|将|改约|取消|泡汤|作废|不去|不办|改期|推迟了|延期了|打算|计划|准备|改到|改成|改在|推到|推迟|延期|延到|提前到|挪到|定在|定于|定到|约了|约在|约好|订了|定了|安排|截止|"
    "到期|之前|以前|前(?:提?交|完成|给)|报名了|预约了|"
    r"\b(?:will|going to|gonna|not going|after all|have got|got an? (?:\w+ )?(?:interview|appointment|meeting|exam|flight|call)|cancel+ed|called off|scrapped|have to|has to|need|needs|must|rescheduled|postponed|scheduled|booked|signed up|registered|due|planned|by|"
    r"until|deadline|appointment|decided to|agreed to|starts?|is|are|am)\b|['’](?:ll|re|m|ve got)\b|['’]s\s\w+ing\b|"
    r"\b(?:moved|pushed|changed|brought forward|postponed|rescheduled|delayed)\b[^\0]{0,48}\b(?:to|from) \0",
    re.IGNORECASE,
)
_CLAUSE_ENDS = re.compile(r"[。！？!?；;\n，,]|\.\s")
CONTEXT_CHARS = 60


def tells_of_past(text: str, start: int, end: int) -> bool:
    """Whether the clause around a span tells of the past; only so much of it is looked at."""
    before = text[max(0, start - CONTEXT_CHARS) : start]
    after = text[end : end + CONTEXT_CHARS]
    cuts = [found.end() for found in _CLAUSE_ENDS.finditer(before)]
    cut = _CLAUSE_ENDS.search(after)
    clause = before[cuts[-1] if cuts else 0 :] + "\0" + (after[: cut.start()] if cut else after)
    if _AHEAD.search(clause):
        return False
    return bool(_PAST_CHINESE.search(clause) or _PAST_ENGLISH.search(clause))


Reader = Callable[[re.Match[str], Base, str], Piece | None]
"""Reads what was found at a place in a text."""


def pieces(
    pattern: re.Pattern[str], readers: Mapping[str, Reader], text: str, base: Callable[[int, int], Base]
) -> Iterator[Piece]:
    """What a language's pattern finds, each read by the reader of the group that it was found as: in the order of the
    text, none overlapping another."""
    for found in pattern.finditer(text):
        kind = next(name for name in readers if found[name] is not None)
        piece = readers[kind](found, base(*found.span()), text)
        if piece is not None:
            yield piece


def piece_of(found: re.Match[str], days: Days | None, **more: object) -> Piece | None:
    """The days at the place where they were found; None where there are none such."""
    return None if days is None else Piece(*found.span(), days=days, **more)  # type: ignore[arg-type]


def recurring(found: re.Match[str], _base: Base, _text: str) -> Piece | None:
    """What comes again and again: no date."""
    return Piece(*found.span(), recurring=True)
