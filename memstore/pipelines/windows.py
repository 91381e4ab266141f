"""What of a session one extraction looks at: rows as they are kept become a window of messages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from memstore.agent_settings import AgentSettings
from memstore.pipelines.model_quoting import left_out, without_files
from memstore.pipelines.trusted import said_by_principal, trust_of
from memstore.pipelines.values import MAX_SAID_CHARS, Language, Said, Window
from memstore.pipelines.written_text import language_of
from memstore.sessions import message_text
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Backlog, Cursor, Owner
from memstore.storage.rows import MessageRow
from memstore.times import from_micros
from memstore.types import Scope

_LEFT_OUT = ("system", "developer")
"""Prompts of the surrounding program: they are nobody's words."""
_LEAST_CHARS = 4_000
"""So much of a message is read at least, however small a window was set."""
_MARK_CHARS = 60
_SENTENCE_END = re.compile("[.!?]\\s|[\u3002\uff01\uff1f\n]")
_SEARCHED_CHARS = 400
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A window with the rows that it covers: all up to its last one, those left out of it included."""

    window: Window
    covered: tuple[MessageRow, ...]


def excerpt(
    reader: Reader, backlog: Backlog, cursor: Cursor, settings: AgentSettings, zone: ZoneInfo
) -> Excerpt:
    """The next window of a session, of what no extraction covered. ``covered`` is empty where nothing is there to be
    read.

    A window ends where the messages of a task do: what is made of them is that task's. Of earlier messages it holds
    those that everybody sees who sees the task's.
    """
    of = Owner(backlog.team_id, backlog.user_id)
    unread = reader.unread_messages(of, backlog.session, settings.window_messages)
    covered, new = _taken(unread, settings.window_chars, zone)
    before = (
        reader.messages_up_to(of, backlog.session, covered[0].pos - 1, settings.background_messages)
        if new and settings.background_messages
        else []
    )
    task_id = _task_of(covered)
    background = tuple(
        said(row, zone) for row in before if _is_readable(row) and row.task_id in (None, task_id)
    )
    language = language_of(one.text for one in _of_users(new) or [*background, *new])
    most = min(max(settings.window_chars, _LEAST_CHARS), MAX_SAID_CHARS)
    shown = [_shown(message, most, language) for message in new]
    window = Window(
        scope=Scope(backlog.team_id, backlog.user_id, backlog.agent_id, task_id),
        session=backlog.session,
        background=background,
        new=tuple(message for message, _ in shown),
        scene=cursor.note if all(row.task_id in (None, task_id) for row in before) else None,
        language=language,
        unread=tuple(
            f"message {message.id}: {unread} characters in its middle were not read"
            for message, unread in shown
            if unread
        ),
    )
    return Excerpt(window, tuple(covered))


def _taken(
    rows: Sequence[MessageRow], most_chars: int, zone: ZoneInfo
) -> tuple[list[MessageRow], list[Said]]:
    """The rows that fit, at least one message, and those of them that something may be extracted from."""
    covered: list[MessageRow] = []
    new: list[Said] = []
    chars = 0
    for row in rows:
        if _is_readable(row):
            message = said(row, zone)
            chars += len(message.text)
            if new and (chars > most_chars or row.task_id != _task_of(covered)):
                break
            new.append(message)
        covered.append(row)
    return covered, new


def _task_of(covered: Sequence[MessageRow]) -> str | None:
    """The task of the messages of a window, which are all of one."""
    return next((row.task_id for row in covered if _is_readable(row)), None)


def _shown(message: Said, most: int, language: Language) -> tuple[Said, int]:
    """A message as judges read it, and how many characters of it they do not: of a long one its head and its tail, cut
    between sentences. What tools returned is clipped where it is shown; whole it tells what was taken from it."""
    text = message.text if len(message.text) <= most else without_files(message.text, language)
    if message.role == "tool" or len(text) <= most:
        return replace(message, text=text), 0
    room = most - _MARK_CHARS
    head, tail = text[: room * 3 // 4], text[-(room // 4) :]
    ends = [found.end() for found in _SENTENCE_END.finditer(head, len(head) - _SEARCHED_CHARS)]
    begins = _SENTENCE_END.search(tail, 0, _SEARCHED_CHARS)
    head = head[: ends[-1]] if ends else head
    tail = tail[begins.end() :] if begins is not None else tail
    unread = len(text) - len(head) - len(tail)
    return replace(message, text=f"{head}\n{left_out(unread, language)}\n{tail}"), unread


def _is_readable(row: MessageRow) -> bool:
    """An answer that was cut off, or has no text, says nothing that could be relied on."""
    return row.role not in _LEFT_OUT and bool(row.complete) and bool(message_text(row).strip())


def said(row: MessageRow, zone: ZoneInfo) -> Said:
    """A message as it was said; ``zone`` is the store's, for those that name none."""
    return Said(
        id=row.id,
        role=row.role,  # type: ignore[arg-type] # a CHECK constraint holds it
        text=message_text(row),
        at=_local(from_micros(row.created_at), _zone(row.zone, zone)),
        name=row.name,
        source_kind=row.source_kind,  # type: ignore[arg-type]
        trust=trust_of(row),
        by_principal=said_by_principal(row),
    )


def _local(instant: datetime, zone: tzinfo) -> datetime:
    """In UTC where the zone's date lies beyond the calendar."""
    try:
        return instant.astimezone(zone)
    except OverflowError:
        return instant


def _zone(named: str | None, otherwise: ZoneInfo) -> tzinfo:
    """The speaker's zone: an IANA name or an offset, as ``record`` keeps it."""
    if named is None:
        return otherwise
    offset = _OFFSET.fullmatch(named)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes)) if minutes else UTC
    try:
        return ZoneInfo(named)
    except (KeyError, ValueError, OSError):  # a name that this machine does not know
        return otherwise


def _of_users(messages: Sequence[Said]) -> list[Said]:
    return [message for message in messages if message.role == "user"]
