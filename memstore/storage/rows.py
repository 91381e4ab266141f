"""Rows as they are kept: JSON as text, times in microseconds since 1970 in UTC."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from memstore.types import Layer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as it is kept: JSON as text, times in microseconds. Also the body of a fallback line."""

    id: str
    team_id: str
    user_id: str
    agent_id: str
    session: str
    pos: int
    arrival: int
    role: str
    content: str
    checksum: str
    source_kind: str
    trust: int
    created_at: int
    recorded_at: int
    client_id: str | None = None
    task_id: str | None = None
    name: str | None = None
    search_text: str | None = None
    tool_calls: str | None = None
    tool_call_id: str | None = None
    usage: str | None = None
    meta: str | None = None
    zone: str | None = None
    complete: int = 1
    branch: int = 0
    live: int = 1
    state: str = "live"
    hidden: int = 0
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One version of a memory as it is kept."""

    id: str
    version: int
    team_id: str
    user_id: str
    kind: str
    priority: int
    content: str
    checksum: str
    source_kind: str
    trust: int
    recorded_at: int
    actor: str
    created_at: int
    arrival: int = 0
    agent_id: str | None = None
    task_id: str | None = None
    visibility: str = "private"
    state: str = "live"
    metadata: str = "{}"
    session: str | None = None
    produced_by_agent: str | None = None
    valid_from: int | None = None
    valid_to: int | None = None
    expires_at: int | None = None
    superseded_at: int | None = None
    superseded_by: str | None = None
    verdict_id: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is kept; a backend numbers sessions by itself."""

    team_id: str
    user_id: str
    agent_id: str
    session: str
    channel: str
    chat_id: str
    title: str
    titled_by: str
    created_at: int
    updated_at: int
    task_id: str | None = None
    pinned: int = 0
    hidden: int = 0
    last_pos: int = 0
    last_fork: int = 0


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A stored recall as it is kept: JSON as text, time in microseconds."""

    team_id: str
    user_id: str
    id: str
    agent_id: str | None
    task_id: str | None
    layer: Layer
    asked_at: int
    question: str
    settings: str
    generation: int | None
    query_vector: bytes | None
    answer: str


def column_names(row_type: "type[DataclassInstance]") -> tuple[str, ...]:
    """The columns of a row type, in order."""
    return tuple(f.name for f in fields(row_type))
