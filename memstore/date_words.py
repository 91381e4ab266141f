"""The date of a message as words of the text index, and the dates that a query names.

The words are spelled so that no text holds them by chance: a message said on 8 May 2023 is indexed under
``onyear2023 onmonth05 onday0508``, and a query that names a year, a month or a day of a month, in English, in Chinese
or as ISO 8601, looks for the like.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENGLISH = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_CHINESE = ("一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二")
_MONTHS = {
    **{name[:3]: number for number, name in enumerate(_ENGLISH, 1)},
    **{name: number for number, name in enumerate(_ENGLISH, 1)},
    "sept": 9,
    **{name: number for number, name in enumerate(_CHINESE, 1)},
}
_NAME = "|".join(
    sorted((name for name in _MONTHS if name.isascii() and name != "may"), key=len, reverse=True)
)
_DAY = r"(?P<{}>[12]?[0-9]|3[01])(?:st|nd|rd|th)?"
_PATTERNS = (
    re.compile(rf"\b{_DAY.format('day')}\s+(?:of\s+)?(?P<month>{_NAME}|may)\b"),
    re.compile(rf"\b(?P<month>{_NAME}|may)\.?\s+{_DAY.format('day')}\b(?!\d)"),
    re.compile(rf"\b(?P<month>{_NAME})\b"),
    # "may" alone is mostly the verb
    re.compile(r"\b(?:in|of|since|until|till|last|this|next|during|before|after|late|early|mid)\s+(?P<month>may)\b"),
    re.compile(r"\b(?P<month>may),?\s+(?=(?:19|20)\d\d\b)"),
    re.compile(
        rf"(?<!\d)(?P<month>1[0-2]|0?[1-9]|{'|'.join(reversed(_CHINESE))})\s*月(?:份)?(?:\s*(?P<day>[12]?[0-9]|3[01]|0[1-9])\s*[日号])?"
    ),
    re.compile(r"(?<!\d)(?:19|20)\d\d[-/.](?P<month>1[0-2]|0[1-9])(?:[-/.](?P<day>[12][0-9]|3[01]|0[1-9]))?(?!\d)"),
)  # fmt: skip
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


def date_words(said_at: int, zone: tzinfo) -> list[str]:
    """The words of an instant's date in a zone; none within a day of the years 1 and 9999, where some zones have no
    date for it."""
    try:
        day = (_EPOCH + timedelta(microseconds=said_at)).astimezone(zone)
    except OverflowError:
        return []
    return [f"onyear{day.year:04d}", f"onmonth{day.month:02d}", f"onday{day.month:02d}{day.day:02d}"]


def dates_named(normal: str) -> list[str]:
    """The words for the dates that a normalised text names."""
    return list(dict.fromkeys(_named(normal)))


def _named(normal: str) -> Iterator[str]:
    for year in _YEAR.findall(normal):
        yield f"onyear{year}"
    for pattern in _PATTERNS:
        for found in pattern.finditer(normal):
            month = _number(found["month"])
            yield f"onmonth{month:02d}"
            day = found.groupdict().get("day")
            if day is not None:
                yield f"onday{month:02d}{int(day):02d}"


def _number(month: str) -> int:
    return int(month) if month.isdecimal() else _MONTHS[month]
