"""Rows as operations of the fallback and back, and what applying an operation does to a database."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from memstore.fallback import Operation
from memstore.storage.base import Writer
from memstore.storage.rows import MessageRow, SessionRow

_DEFAULTS: dict[str, Any] = {
    f.name: f.default
    for f in fields(MessageRow)
    if f.name in ("branch", "live", "state", "hidden", "complete")
}
_COLUMNS = tuple(f.name for f in fields(MessageRow))
_MISSING = object()
_GIVEN_WHEN_PLACED = ("pos", "arrival")
IDS_A_LINE = 500


def message_operation(row: MessageRow) -> Operation:
    """A message row as a fallback line: absent members are null or a column's default."""
    return {"op": "message", **_members(row)}


def _members(row: MessageRow) -> Operation:
    members: Operation = {}
    for name in _COLUMNS:
        value = getattr(row, name)
        if value is not None and _DEFAULTS.get(name, _MISSING) != value:
            members[name] = value
    return members


def message_row(operation: Mapping[str, Any]) -> MessageRow:
    """The row of a message line."""
    return MessageRow(**{name: operation[name] for name in _COLUMNS if name in operation})


def placed_operation(row: MessageRow) -> Operation:
    """Where a message went that another line had told of before."""
    return {"op": "placed", "team_id": row.team_id, "id": row.id, "pos": row.pos, "arrival": row.arrival}


def pending_operation(call_id: str, rows: Sequence[MessageRow], at: int, *, transcript: bool) -> Operation:
    """A record call as it was made, for later: its messages have no place yet."""
    first = rows[0]
    messages = [
        {name: value for name, value in _members(row).items() if name not in _GIVEN_WHEN_PLACED}
        for row in rows
    ]
    return {
        "op": "pending",
        "id": call_id,
        "team_id": first.team_id,
        "user_id": first.user_id,
        "session": first.session,
        "transcript": transcript,
        "at": at,
        "messages": messages,
    }


def pending_rows(operation: Operation) -> list[MessageRow]:
    """The messages of a pending call, without a place."""
    return [message_row({**members, "pos": 0, "arrival": 0}) for members in operation["messages"]]


def settled_operation(pending: Operation, refused: str | None = None) -> Operation:
    """A pending call was reconciled, or could not be and why."""
    operation = {"op": "settled", "team_id": pending["team_id"], "id": pending["id"]}
    return operation if refused is None else {**operation, "refused": refused}


def line_number(operation: Operation) -> int:
    """Where a line stands in the order of commits; 0 for one without a number."""
    number: int = operation.get("n", 0)
    return number


def units(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Lines of one file that belong together; most are a unit of their own."""
    for _, unit in groupby(operations, key=_unit):
        yield list(unit)


def _unit(operation: Operation) -> object:
    return tuple(operation["unit"]) if "unit" in operation else object()


def is_torn(unit: Sequence[Operation]) -> bool:
    """Whether a crash cut the unit's one write short: its last line is missing. Where a line in the middle is, the file
    was damaged later, and what is sound counts."""
    if "unit" not in unit[-1]:
        return False
    first, count = unit[-1]["unit"]
    return bool(line_number(unit[-1]) != first + count - 1)


def void_operation(unit: Sequence[Operation]) -> Operation:
    """Says that lines of these numbers, which stand before, do not count."""
    return {"op": "void", "first": line_number(unit[0]), "last": line_number(unit[-1])}


def live_operation(of: tuple[str, str, str], change: str, **values: Any) -> Operation:
    """A change of a session's live window; ``of`` is (team, user, session)."""
    team_id, user_id, session = of
    return {
        "op": "live",
        "change": change,
        "team_id": team_id,
        "user_id": user_id,
        "session": session,
        **values,
    }


def quarantine_operations(
    team_id: str,
    user_id: str,
    ids: Sequence[str],
    at: int,
    *,
    released: bool,
    memories: Sequence[str],
    asked: Mapping[str, Any],
) -> Iterator[Operation]:
    """Messages of a user put under quarantine, or released; many take several lines.

    :param memories: those that are meant themselves, not for what they were derived from. :param asked: what for. A store
        that lost its memories has no use for either.
    """
    for start in range(0, len(ids), IDS_A_LINE):
        yield {
            "op": "quarantine",
            "team_id": team_id,
            "user_id": user_id,
            "ids": list(ids[start : start + IDS_A_LINE]),
            "at": at,
            "released": released,
            "memories": [] if start else list(memories),
            "asked": dict(asked),
        }


def session_operation(row: SessionRow) -> Operation:
    """A session's record as a fallback line."""
    names = ("team_id", "user_id", "session", "title", "titled_by", "pinned", "hidden", "created_at")
    return {"op": "session", **{name: getattr(row, name) for name in names}, "to_pos": row.last_pos}


def apply_operation(tx: Writer, operation: Operation) -> None:
    """Apply an operation that places no message; applying one twice changes nothing."""
    match operation:
        case {"op": "live", "change": "fork"}:
            tx.fork_session(
                *session_of(operation), operation["fork"], operation["from_pos"], operation["to_pos"]
            )
        case {"op": "live", "change": "restore"}:
            tx.restore_messages(*session_of(operation), operation["ids"])
        case {"op": "live", "change": "clear"}:
            tx.clear_session(*session_of(operation), operation["to_pos"])
        case {"op": "session"}:
            _apply_session(tx, operation)
        case {"op": "delete"}:
            tx.delete_messages(operation["team_id"], operation["ids"], operation["at"])
        case {"op": "quarantine"}:
            at = None if operation["released"] else operation["at"]
            tx.set_messages_quarantined(operation["team_id"], operation["ids"], at)


def session_of(operation: Operation) -> tuple[str, str, str]:
    """(team, user, session) of an operation."""
    return operation["team_id"], operation["user_id"], operation["session"]


def _apply_session(tx: Writer, operation: Operation) -> None:
    row = tx.session(*session_of(operation))
    if row is None:
        return
    if operation["hidden"]:
        tx.hide_session(*session_of(operation), operation["to_pos"])
    tx.put_session(
        replace(
            row,
            title=operation["title"],
            titled_by=operation["titled_by"],
            pinned=operation["pinned"],
            created_at=operation["created_at"],
            hidden=int(operation["hidden"] and row.last_pos <= operation["to_pos"]),
        )
    )
