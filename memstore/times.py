"""Instants: what is accepted from outside, and the one form that is stored.

Stored: integer microseconds since 1970 in UTC (``*_at`` columns). Python keeps aware datetimes in UTC.
"""

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memstore.errors import ConfigError, InvalidTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN_CHARS = 60
_UNITS = ((1e11, 1), (1e14, 10**3), (1e17, 10**6))
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?\Z", re.ASCII)
_BASIC_DATE = re.compile(r"(19|20)\d{6}\Z", re.ASCII)  # as a number of seconds it would be in 1970
_YEAR = re.compile(r"((?:19|20)\d\d)(0[1-9]|1[0-2])?", re.ASCII)
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_MONTH = re.compile(r"(\d{4})-(\d{2})\Z", re.ASCII)
_UNIT_WORDS = {
    "seconds": ("s", "second", "seconds", "秒"),
    "minutes": ("m", "minute", "minutes", "分钟"),
    "hours": ("h", "hour", "hours", "小时", "个小时"),
    "days": ("d", "day", "days", "天"),
    "weeks": ("w", "week", "weeks", "周"),
}
_UNIT_OF = {word: unit for unit, words in _UNIT_WORDS.items() for word in words}
_CALENDAR_UNITS = ("days", "weeks")
_SPAN = re.compile(rf"(\d+) ?({'|'.join(sorted(_UNIT_OF, key=len, reverse=True))})", re.ASCII | re.IGNORECASE)
_AGO = re.compile(rf"({_SPAN.pattern}) ?(?:ago|前)\Z", re.ASCII | re.IGNORECASE)
_DAY_WORDS = {"today": 0, "今天": 0, "yesterday": 1, "昨天": 1}
_NOW_WORDS = ("now", "现在")
_TYPED_FORMS = (
    "2026-03-01, 2026-03-01T08:00, 2026-03, today, yesterday, now, '3d ago' (今天, 昨天, 现在, 3天前)"
)


def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name.

    :raises ConfigError: when there is none; the message says what a name looks like.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            f"timezone {name!r} is not an IANA zone known here; use a name like 'Asia/Shanghai' or 'UTC'"
        ) from error


def parse_instant(value: object, default_zone: ZoneInfo) -> tuple[datetime, str | None]:
    """Read an instant from what clients and transcripts hold.

    * aware datetime, or ISO 8601 text with ``Z`` or an offset: that instant;
    * naive datetime, or text without an offset: wall time in ``default_zone``;
    * a date alone, with or without hyphens, or as a ``date``: midnight in ``default_zone``;
    * a number, or text that is one: seconds, milliseconds, microseconds or nanoseconds since 1970, told apart
      by magnitude (below 1e11, 1e14, 1e17; 1e11 seconds is the year 5138).

    :returns: the instant in UTC, and the speaker's zone or offset where the value named one.
    :raises InvalidTime: for anything else.
    """
    if isinstance(value, bool):
        raise InvalidTime(f"{value!r} is not a time")
    if isinstance(value, datetime):
        return _from_datetime(value, default_zone)
    if isinstance(value, date):
        return _from_datetime(datetime.combine(value, time()), default_zone)
    if isinstance(value, int | float):
        return _from_number(value), None
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.match(text) and not _BASIC_DATE.match(text):
            return _from_number(float(text) if "." in text else int(text[:32])), None
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError as error:
            raise InvalidTime(
                f"{_shown(value)} is not a time; write ISO 8601 like 2026-03-01T08:00:00+08:00"
            ) from error
        if _DATE_ONLY.match(text) or _BASIC_DATE.match(text):
            parsed = datetime.combine(parsed.date(), time())
        return _from_datetime(parsed, default_zone)
    raise InvalidTime(
        f"a time cannot be read from {type(value).__name__}; use a datetime, ISO 8601 text or seconds"
    )


def parse_typed(text: str, default_zone: ZoneInfo, now: datetime) -> datetime:
    """Read a time as a person types it: what :func:`parse_instant` reads, and

    * ``now``, ``today``, ``yesterday`` (``现在``, ``今天``, ``昨天``): a day means its midnight in the zone;
    * a month, ``2026-03`` or ``202603``, or a year, ``2026``: its beginning;
    * a span before now, ``3d ago`` or ``3天前``; see :func:`span_before`.

    :returns: the instant in UTC.
    :raises InvalidTime: for anything else; the message shows what can be written.
    """
    words = text.strip().lower()
    if words in _NOW_WORDS:
        return now.astimezone(UTC)
    try:
        if words in _DAY_WORDS:
            day = now.astimezone(default_zone).date() - timedelta(days=_DAY_WORDS[words])
            return parse_instant(day, default_zone)[0]
        if year := _YEAR.fullmatch(words):  # as a number of seconds it would be in 1970
            return parse_instant(date(int(year[1]), int(year[2] or 1), 1), default_zone)[0]
        if month := _MONTH.match(words):
            return parse_instant(date(int(month[1]), int(month[2]), 1), default_zone)[0]
        if ago := _AGO.match(words):
            return span_before(ago[1], default_zone, now)
        return parse_instant(text, default_zone)[0]
    except (ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, InvalidTime) else f"{_shown(text)} is not a time: {error}"
        raise InvalidTime(f"{reason}. What can be written: {_TYPED_FORMS}") from error


def span_before(text: str, default_zone: ZoneInfo, now: datetime) -> datetime:
    """The instant that lies a span like ``7d`` or ``3 小时`` before now.

    Seconds, minutes and hours are exact. Days and weeks go by the calendar of the zone: the same wall time on an
    earlier day, also across a change to or from daylight-saving time.

    :raises InvalidTime: for what is no span; the message shows what one looks like.
    """
    span = _SPAN.fullmatch(text.strip())
    if span is None:
        raise InvalidTime(
            f"{_shown(text)} is not a span of time; write a number and s, m, h, d or w, like 30m, 12h, 7d or 2w "
            "(秒, 分钟, 小时, 天, 周)"
        )
    unit = _UNIT_OF[span[2].lower()]
    in_zone = default_zone if unit in _CALENDAR_UNITS else UTC
    try:  # arithmetic inside one zone is that of its wall clock
        return (now.astimezone(in_zone) - timedelta(**{unit: int(span[1])})).astimezone(UTC)
    except (OverflowError, ValueError) as error:
        raise InvalidTime(f"{_shown(text)} before now lies outside the years 1 to 9999") from error


def _from_datetime(value: datetime, default_zone: ZoneInfo) -> tuple[datetime, str | None]:
    named: str | None = None
    if value.tzinfo is None:
        value = value.replace(tzinfo=default_zone)
    else:
        named = getattr(value.tzinfo, "key", None) or _offset(value)
    try:
        return value.astimezone(UTC), named
    except (OverflowError, ValueError) as error:
        raise InvalidTime(f"{value!r} lies outside the years 1 to 9999 in UTC") from error


def _offset(value: datetime) -> str:
    minutes = round((value.utcoffset() or timedelta()).total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _from_number(value: float) -> datetime:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidTime(f"{value!r} is not a time")
    size = abs(value)
    per_second = next((unit for bound, unit in _UNITS if size < bound), 10**9)
    try:
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value * 1_000_000 // per_second)
        return _EPOCH + timedelta(microseconds=round(value * (1_000_000 / per_second)))
    except OverflowError as error:
        raise InvalidTime(f"{_shown(value)} lies outside the years 1 to 9999") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"


def to_micros(instant: datetime) -> int:
    """Microseconds since 1970, exactly (no float on the way)."""
    return (instant - _EPOCH) // _MICROSECOND


def optional_instant(micros: int | None) -> datetime | None:
    """The instant of stored microseconds, None for none."""
    return None if micros is None else from_micros(micros)


def from_micros(micros: int) -> datetime:
    """The aware UTC datetime of a stored instant."""
    return _EPOCH + timedelta(microseconds=micros)


def render(instant: datetime) -> str:
    """The canonical text of an instant: UTC, microseconds only where there are any."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
