"""Instants: what is accepted from outside, and the one form that is stored.

Stored: integer microseconds since 1970 in UTC (``*_at`` columns). Python keeps aware datetimes in UTC.
"""

import math
import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memstore.errors import ConfigError, InvalidTime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN_CHARS = 60
_UNITS = ((1e11, 1), (1e14, 10**3), (1e17, 10**6))
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?\Z", re.ASCII)
_BASIC_DATE = re.compile(r"(19|20)\d{6}\Z", re.ASCII)  # as a number of seconds it would be in 1970
_DATE_ONLY = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)


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
    * a date alone, with or without hyphens: midnight in ``default_zone``;
    * a number, or text that is one: seconds, milliseconds, microseconds or nanoseconds since 1970, told apart
      by magnitude (below 1e11, 1e14, 1e17; 1e11 seconds is the year 5138).

    :returns: the instant in UTC, and the speaker's zone or offset where the value named one.
    :raises InvalidTime: for anything else.
    """
    if isinstance(value, bool):
        raise InvalidTime(f"{value!r} is not a time")
    if isinstance(value, datetime):
        return _from_datetime(value, default_zone)
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
