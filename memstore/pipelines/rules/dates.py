"""Date and time expressions of Chinese and English, made absolute against the message's time and zone.

What is ambiguous is left alone. Weeks begin on Monday: 下周三 and "next Wednesday" are those of the next calendar week,
上周五 and "last Friday" those of the last one; a weekday alone is the coming one, today included, and in a clause that
tells of the past the one before today. An hour from one to six without a part of the day is one of the afternoon.
Wall times are those of the speaker's zone, across changes of the clocks too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from memstore.pipelines.rules.chinese_dates import chinese_pieces
from memstore.pipelines.rules.date_pieces import Base, Clock, Days, Piece, shifted, tells_of_past, wall
from memstore.pipelines.rules.english_dates import english_pieces

_BETWEEN = re.compile(r"\s{0,2}[,，的]?\s{0,2}(?:at|on|in the|around|about|from|@)?\s{0,2}\Z", re.IGNORECASE)
_TO = re.compile(r"\s{0,2}(?:到|至|-|–|—|~|～|to|until|till|through)\s{0,2}\Z", re.IGNORECASE)
_BRACKET = re.compile(r"\s?[（(](?:[0-9]{4}|周|星期)")
_HAN = re.compile("[\u3400-\u9fff]")
_SENTENCE_END = re.compile(r"[。！？!?；;\n]|\.\s")
_CHANGED = re.compile(
    r"改|提前|推迟|不对|不是|挪|\b(?:moved|instead|not|wait|rather|from|earlier|changed)\b", re.IGNORECASE
)
_RESCHEDULED = re.compile(
    r"(?:改|推迟|延期|提前|挪|调整)[^，。]{0,4}$|从$|\b(?:moved|pushed|changed|postponed|rescheduled|delayed|brought)\b[^.!?\n]*$",
    re.IGNORECASE,
)
_NOON = 12 * 60
SENTENCE_CHARS = 40
"""So near are two days of one journey told."""


@dataclass(frozen=True, slots=True)
class Found:
    """A date expression.

    :param span: where it stands in the text; ``text`` is what stands there.
    :param start: in the zone of the message; of whole days the midnight they begin with.
    :param end: None for one day or one moment; else the moment behind a stretch (a week, a month, a part of a day).
    :param all_day: no time of the day is named.
    :param written: the absolute form, as for a bracket behind the expression.
    :param full: the text names the year itself, so that no bracket is needed.
    """

    span: tuple[int, int]
    start: datetime
    end: datetime | None
    all_day: bool
    text: str
    written: str
    full: bool = False


def resolve(text: str, at: datetime) -> list[Found]:
    """The date expressions of a text that was said at an aware instant, in their order. Time: linear in the text."""
    return [found for piece in joined_pieces(text, at) if (found := _found(text, piece, at)) is not None]


def with_dates(text: str, at: datetime) -> str:
    """The text with absolute dates in brackets behind the relative ones; applied twice it is the same."""
    parts, last = [], 0
    for found in resolve(text, at):
        end = found.span[1]
        if found.full or _BRACKET.match(text, end):
            continue
        bracket = f"（{found.written}）" if _HAN.search(found.text) else f" ({found.written})"
        parts += [text[last:end], bracket]
        last = end
    return "".join([*parts, text[last:]])


def repetitions(text: str, at: datetime) -> list[tuple[int, int]]:
    """Where a text names what happens again and again: 每周三, every Monday."""
    return [(piece.start, piece.end) for piece in joined_pieces(text, at) if piece.recurring]


def raw_pieces(text: str, at: datetime) -> list[Piece]:
    """The pieces as they stand in the text, longest first where two overlap."""

    def base(start: int, end: int) -> Base:
        return Base(at, lambda: tells_of_past(text, start, end))

    pieces = sorted(
        [*chinese_pieces(text, base), *english_pieces(text, base)],
        key=lambda piece: (piece.start, -piece.end),
    )
    kept: list[Piece] = []
    for piece in pieces:
        if not kept or piece.start >= kept[-1].end:
            kept.append(_after(text, kept[-1], piece, at) if kept else piece)
    return kept


def _after(text: str, first: Piece, second: Piece, at: datetime) -> Piece:
    """下周三去，周五回来: a weekday alone, told after a day to come in the same sentence, is the one that follows it."""
    between = text[first.end : second.start]
    if not second.weekday or second.following is None or first.days is None or not first.days.single:
        return second
    if first.days.start <= at.date() or len(between) > SENTENCE_CHARS or _SENTENCE_END.search(between):
        return second
    day = second.following(first.days.start)
    return second if day is None or _CHANGED.search(between) else replace(second, days=Days(day))


def joined_pieces(text: str, at: datetime) -> list[Piece]:
    """Days with their times, and stretches with both their ends."""
    return _with_ends(text, list(_with_times(text, raw_pieces(text, at))))


def _with_times(text: str, pieces: Sequence[Piece]) -> Iterator[Piece]:
    current: Piece | None = None
    for piece in pieces:
        both = None if current is None else _together(text, current, piece)
        if both is None and current is not None:
            yield current
        current = both or piece
    if current is not None:
        yield current


def _together(text: str, first: Piece, second: Piece) -> Piece | None:
    """Two pieces that are one expression: a day and its time, 周四 and its date."""
    if not _BETWEEN.match(text[first.end : second.start]) or first.instant or second.instant:
        return None
    joined = replace(first, end=second.end)
    if first.recurring:
        return joined if second.days is None and not second.recurring else None
    if second.recurring:
        return replace(joined, recurring=True) if first.days is None else None
    if first.days is None:
        if second.days is None or not second.days.single or second.clock is not None:
            return _of_part(first, second, joined)
        return replace(joined, days=second.days, weak=False, full=second.full, following=second.following)
    if second.days is not None:
        return _weekday_and_date(first, second, joined)
    if second.clock is None or not first.days.single:
        return None
    if first.clock is None:
        return replace(joined, clock=second.clock)
    return _of_part(first, second, joined)


def _of_part(first: Piece, second: Piece, joined: Piece) -> Piece | None:
    """今晚 8点, tomorrow morning at 9: the hour within its part of the day."""
    part, hour = first.clock, second.clock
    if part is None or hour is None or part.exact or second.days is not None:
        return None
    if hour.exact:
        start = hour.start
        if part.start >= _NOON > start:
            start += _NOON
        elif part.end is not None and start >= part.end and start - _NOON >= part.start:
            start -= _NOON
        clock = Clock(start, hour.end)
    else:
        clock = hour
    return replace(joined, clock=clock, weak=first.weak and second.weak and first.days is None)


def _weekday_and_date(first: Piece, second: Piece, joined: Piece) -> Piece | None:
    if first.clock is not None:
        return None
    if first.weekday:
        return replace(second, start=first.start)
    if second.weekday and first.days is not None and first.days.single:
        return replace(joined, clock=second.clock)
    return None


def _with_ends(text: str, pieces: Sequence[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        both = None
        if joined and _TO.match(text[joined[-1].end : piece.start]) and not _moved(text, joined[-1].start):
            both = _from_to(joined[-1], piece)
        if both is not None:
            joined[-1] = both
        else:
            joined.append(piece)
    return joined


def _moved(text: str, start: int) -> bool:
    """Moved from a day to another: no stretch of days."""
    return bool(_RESCHEDULED.search(text[max(0, start - SENTENCE_CHARS) : start]))


def _from_to(first: Piece, second: Piece) -> Piece | None:
    if first.recurring or second.recurring or first.instant or second.instant:
        return None
    if first.clock is not None and second.clock is not None and second.days is None:
        if not first.clock.exact or first.clock.end is not None or not second.clock.exact:
            return None
        end = second.clock.start
        if end <= first.clock.start < end + _NOON:
            end += _NOON
        return (
            replace(first, end=second.end, clock=Clock(first.clock.start, end))
            if end > first.clock.start
            else None
        )
    if first.days is None or second.days is None or first.clock or second.clock or not first.days.single:
        return None
    last = second.following(first.days.start) if second.following else second.days.start
    behind = None if last is None or last < first.days.start else shifted(last, 1)
    if behind is None:
        return None
    return replace(
        first, end=second.end, days=Days(first.days.start, behind, "range"), weekday=False, full=False
    )


def _found(text: str, piece: Piece, at: datetime) -> Found | None:
    if piece.recurring or (piece.weak and piece.days is None):
        return None
    span, shown = (piece.start, piece.end), text[piece.start : piece.end]
    if piece.instant is not None:
        written = f"{_day(piece.instant)} {piece.instant:%H:%M}"
        return Found(span, piece.instant, None, all_day=False, text=shown, written=written)
    days = piece.days or Days(at.date())
    clock = piece.clock if days.single else None
    start = wall(days.start, clock.start if clock else 0, at)
    if start is None:
        return None
    end = None
    if clock is not None and clock.end is not None:
        end = wall(days.start, clock.end, at)
    elif days.end is not None:
        end = wall(days.end, 0, at)
    return Found(span, start, end, clock is None, shown, _written(days, clock, start, end), piece.full)


def _written(days: Days, clock: Clock | None, start: datetime, end: datetime | None) -> str:
    if days.precision == "year":
        return f"{days.start.year:04d}"
    if days.precision == "month":
        return f"{days.start.year:04d}-{days.start.month:02d}"
    if days.end is not None:
        return f"{_day(days.start)} ~ {_day(shifted(days.end, -1) or days.start)}"
    if clock is None or not clock.exact:
        return _day(days.start)
    return f"{_day(start)} {start:%H:%M}" + (f"–{end:%H:%M}" if end is not None else "")


def _day(day: date) -> str:
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}"
