"""Telling what was said from a record, in the shapes that transcripts come in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memstore.canonical import checksum
from memstore.errors import InvalidInput
from memstore.types import ROLES

_TIME_KEYS = ("created_at", "timestamp", "ts", "time", "date")
_ID_KEYS = ("id", "uuid", "message_id")
_SESSION_KEYS = ("session", "session_key", "session_id", "sessionId", "conversation_id")
_SIDE_CHAIN_KEYS = ("isSidechain", "sidechain")
_SPEAKERS: Mapping[str, str] = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as a record tells it, unchecked where the store checks. ``time`` is the raw value."""

    role: str
    content: Any
    time: Any = None
    id: str | None = None
    session: str | None = None
    name: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    tool_call_id: str | None = None
    usage: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    team_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    task_id: str | None = None

    def digest(self, *context: str) -> str:
        """32 hexadecimal digits of what makes two lines the same line."""
        return checksum(
            *context, self.role, self.content, self.time, self.name, list(self.tool_calls), self.tool_call_id
        )


def read_turn(record: Mapping[str, Any]) -> Turn:
    """Read a record of one of these shapes: ``role`` and ``content`` at its top or in its ``message``; the role
    also from a plain ``type`` or ``sender``. Of an envelope and its message, the envelope's time and id count:
    one model answer that was written as several records has one message id, but each record its own.

    :raises InvalidInput: saying why the record is no turn of the talk.
    """
    message = record.get("message")
    inner: Mapping[str, Any] = message if isinstance(message, dict) else record
    outside, inside = (record, inner), (inner, record)
    if any(part.get(key) is True for part in outside for key in _SIDE_CHAIN_KEYS):
        raise InvalidInput("side chain: not part of the talk")
    content_in = next((part for part in inside if "content" in part), None)
    role = _role(inside, outside)
    if role is None or content_in is None:
        kind = record.get("type")
        shown = f" (type {kind!r:.40})" if isinstance(kind, str) else ""
        missing = (
            "role and content"
            if role is None and content_in is None
            else "role"
            if role is None
            else "content"
        )
        raise InvalidInput(f"not a message: it has no {missing}{shown}")
    return Turn(
        role=role,
        content=_content(content_in["content"]),
        time=_first(outside, _TIME_KEYS),
        id=_text(outside, _ID_KEYS),
        session=_text(outside, _SESSION_KEYS),
        name=_text(inside, ("name",)),
        tool_calls=_tool_calls(inside),
        tool_call_id=_text(inside, ("tool_call_id",)),
        usage=_object(inside, "usage"),
        meta=_object(inside, "meta") or {},
        team_id=_text(outside, ("team_id",)),
        user_id=_text(outside, ("user_id",)),
        agent_id=_text(outside, ("agent_id",)),
        task_id=_text(outside, ("task_id",)),
    )


Parts = tuple[Mapping[str, Any], ...]


def _first(parts: Parts, keys: Sequence[str]) -> Any:
    """The first value that is there; null counts as absent."""
    return next((part[key] for part in parts for key in keys if part.get(key) is not None), None)


def _role(inside: Parts, outside: Parts) -> str | None:
    role = _first(inside, ("role",))
    if role is not None:
        known = _SPEAKERS.get(role, role) if isinstance(role, str) else None
        if known not in ROLES:
            raise InvalidInput(f"role {role!r:.40} is none of {', '.join(ROLES)}")
        return known
    named = [part.get(key) for part in outside for key in ("type", "sender")]
    return next((_SPEAKERS[name] for name in named if isinstance(name, str) and name in _SPEAKERS), None)


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]


def _text(parts: Parts, keys: Sequence[str]) -> str | None:
    """A name or id; numbers are taken as their digits, empty text as absent."""
    value = _first(parts, keys)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{keys[0]} must be text, not {type(value).__name__}")
    return value or None


def _object(parts: Parts, key: str) -> Mapping[str, Any] | None:
    value = _first(parts, (key,))
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(f"{key} must be an object, not {type(value).__name__}")
    return value


def _tool_calls(parts: Parts) -> list[dict[str, Any]]:
    value = _first(parts, ("tool_calls",))
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(call, dict) for call in value):
        raise InvalidInput("tool_calls must be a list of objects")
    return value
