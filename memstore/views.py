"""From rows as they are kept to the values that callers get."""

import json

from memstore.sessions import message_text
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import from_micros, optional_instant
from memstore.types import Memory, StoredMessage


def stored_message(row: MessageRow) -> StoredMessage:
    """The message as its caller gave it, with what the store adds."""
    return StoredMessage(
        id=row.id,
        client_id=row.client_id,
        team_id=row.team_id,
        user_id=row.user_id,
        agent_id=row.agent_id,
        task_id=row.task_id,
        session=row.session,
        position=row.pos,
        arrival=row.arrival,
        role=row.role,  # type: ignore[arg-type] # a CHECK constraint holds it
        name=row.name,
        content=json.loads(row.content),
        text=message_text(row),
        tool_calls=tuple(json.loads(row.tool_calls)) if row.tool_calls else (),
        tool_call_id=row.tool_call_id,
        usage=json.loads(row.usage) if row.usage else None,
        meta=json.loads(row.meta) if row.meta else {},
        complete=bool(row.complete),
        live=bool(row.live),
        branch=row.branch,
        source_kind=row.source_kind,  # type: ignore[arg-type]
        trust=row.trust,
        created_at=from_micros(row.created_at),
        recorded_at=from_micros(row.recorded_at),
        zone=row.zone,
        deleted_at=optional_instant(row.deleted_at),
    )


def memory(row: MemoryRow) -> Memory:
    """A memory version as a value."""
    return Memory(
        id=row.id,
        version=row.version,
        team_id=row.team_id,
        user_id=row.user_id,
        agent_id=row.agent_id,
        task_id=row.task_id,
        content=row.content,
        kind=row.kind,  # type: ignore[arg-type] # a CHECK constraint holds it
        priority=row.priority,
        metadata=json.loads(row.metadata),
        visibility=row.visibility,  # type: ignore[arg-type]
        state=row.state,  # type: ignore[arg-type]
        session=row.session,
        produced_by_agent=row.produced_by_agent,
        source_kind=row.source_kind,  # type: ignore[arg-type]
        trust=row.trust,
        valid_from=optional_instant(row.valid_from),
        valid_to=optional_instant(row.valid_to),
        expires_at=optional_instant(row.expires_at),
        created_at=from_micros(row.created_at),
        recorded_at=from_micros(row.recorded_at),
        superseded_at=optional_instant(row.superseded_at),
        superseded_by=row.superseded_by,
        actor=row.actor,
        arrival=row.arrival,
    )
