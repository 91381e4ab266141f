"""Session records: how a session's row follows from its messages (SPEC N4)."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from memstore.session_key import parse_session_key
from memstore.storage.rows import MessageRow, SessionRow
from memstore.text import Spoken, searchable_text

DEFAULT_TITLE = "新会话"
TITLE_CHARS = 40
_META_PREFIX = re.compile(r"\A(\s*\[[A-Za-z_]+:[^\]\n]{0,80}\])+\s*")


def message_text(row: MessageRow) -> str:
    """The searchable text of a row."""
    return row.search_text if row.search_text is not None else searchable_text(json.loads(row.content))


def spoken(row: MessageRow) -> Spoken:
    """What a row gives to the indexes."""
    return Spoken(message_text(row), row.name, row.created_at)


def title_from(text: str) -> str:
    """The first characters of a first user message, without prefixes like ``[channel: wecom]``."""
    return " ".join(_META_PREFIX.sub("", text).split())[:TITLE_CHARS].strip()


def new_session(first: MessageRow) -> SessionRow:
    """The record of a session that begins with this message."""
    key = parse_session_key(first.session, first.agent_id)
    return SessionRow(
        team_id=first.team_id,
        user_id=first.user_id,
        agent_id=first.agent_id,
        task_id=first.task_id,
        session=first.session,
        channel=key.channel,
        chat_id=key.chat_id,
        title=DEFAULT_TITLE,
        titled_by="default",
        created_at=first.created_at,
        updated_at=first.created_at,
    )


def after_messages(session: SessionRow, rows: Sequence[MessageRow]) -> SessionRow:
    """The record once these rows were added. Deterministic, so that a rebuild gives the same."""
    title, titled_by = session.title, session.titled_by
    for row in rows:
        if titled_by == "default" and row.role == "user":
            found = title_from(message_text(row))
            if found:
                title, titled_by = found, "first_message"
    return replace(
        session,
        title=title,
        titled_by=titled_by,
        hidden=0,
        last_pos=max([session.last_pos, *(row.pos for row in rows)]),
        updated_at=max([session.updated_at, *(row.created_at for row in rows)]),
    )
