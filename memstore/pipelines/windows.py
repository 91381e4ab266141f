"""What of a session one extraction looks at: rows as they are kept become a window of messages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from memstore.agent_settings import AgentSettings
from memstore.pipelines.trusted import said_by_principal
from memstore.pipelines.values import Language, Said, Window
from memstore.sessions import message_text
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Backlog, Cursor, Owner
from memstore.storage.rows import MessageRow
from memstore.times import from_micros
from memstore.types import Scope

_LEFT_OUT = ("system", "developer")
"""Prompts of the surrounding program: they are nobody's words."""
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_WORD = re.compile("[A-Za-z\u00c0-\u024f]+")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A window with the rows that it covers: all up to its last one, those left out of it included."""

    window: Window
    covered: tuple[MessageRow, ...]


def excerpt(
    reader: Reader, backlog: Backlog, cursor: Cursor, settings: AgentSettings, zone: ZoneInfo
) -> Excerpt:
    """The next window of a session, behind the cursor. ``covered`` is empty where nothing is there to be read."""
    of = Owner(backlog.team_id, backlog.user_id)
    behind = reader.messages_after(of, backlog.session, cursor.pos, settings.window_messages)
    covered, new = _taken(behind, settings.window_chars, zone)
    before = (
        reader.messages_up_to(of, backlog.session, cursor.pos, settings.background_messages)
        if new and settings.background_messages
        else []
    )
    background = tuple(said(row, zone) for row in before if _is_readable(row))
    window = Window(
        scope=Scope(backlog.team_id, backlog.user_id, backlog.agent_id, backlog.task_id),
        session=backlog.session,
        background=background,
        new=tuple(new),
        scene=cursor.note,
        language=language_of(_of_users(new) or [*background, *new]),
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
            if new and chars > most_chars:
                break
            new.append(message)
        covered.append(row)
    return covered, new


def _is_readable(row: MessageRow) -> bool:
    """An answer that was cut off, or has no text, says nothing that could be relied on."""
    return row.role not in _LEFT_OUT and bool(row.complete) and bool(message_text(row).strip())


def said(row: MessageRow, zone: ZoneInfo) -> Said:
    """A message as judges see it; ``zone`` is the store's, for those that name none."""
    return Said(
        id=row.id,
        role=row.role,  # type: ignore[arg-type] # a CHECK constraint holds it
        text=message_text(row),
        at=from_micros(row.created_at).astimezone(_zone(row.zone, zone)),
        name=row.name,
        source_kind=row.source_kind,  # type: ignore[arg-type]
        trust=row.trust,
        by_principal=said_by_principal(row),
    )


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


def language_of(messages: Sequence[Said]) -> Language:
    """Of a conversation: a Han character stands for about a word."""
    han = sum(len(_HAN.findall(message.text)) for message in messages)
    words = sum(len(_WORD.findall(message.text)) for message in messages)
    return "zh" if han and han >= words else "en"
