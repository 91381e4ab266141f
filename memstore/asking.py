"""Turning a caller's scope and options into the filter that every read path uses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from memstore.access import Operation, Principal, narrowed, readable
from memstore.errors import InvalidInput, InvalidScope
from memstore.storage.base import Reader, RowFilter
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.types import KINDS, ROLES, Layer, Scope

MAX_METADATA_KEYS = 100
"""Of one filter: each is a term of one SQL expression, whose depth is bounded."""

Instant = Callable[[object], int | None]
"""Reads a caller's time into microseconds, None for none; see ``MemoryStore``."""


def check_scope(scope: object) -> Scope:
    """:raises InvalidScope: when something else was passed as the scope."""
    if not isinstance(scope, Scope):
        raise InvalidScope(f"the first argument is the asker's Scope, not {type(scope).__name__}")
    return scope


def principal(reader: Reader, scope: Scope) -> Principal:
    """The asker as the access rules see it, with its membership of this moment."""
    membership = reader.membership(scope.team_id, scope.user_id)
    return Principal(scope, membership.is_member, membership.is_admin)


def row_facts(row: MessageRow | MemoryRow) -> dict[str, Any]:
    """The columns of a row that the access rules look at."""
    facts = asdict(row)
    facts.setdefault("visibility", "private")  # messages are always private (SPEC G1)
    return facts


def row_filter(
    asker: Principal,
    operation: Operation,
    layer: Layer,
    *,
    now: int,
    kinds: Sequence[str] | None = None,
    roles: Sequence[str] | None = None,
    session: str | None = None,
    since: int | None = None,
    until: int | None = None,
    as_of: int | None = None,
    known_at: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    include_history: bool = False,
    live_only: bool = False,
) -> RowFilter:
    """The one filter of recall, get, list, search, count and history.

    :raises InvalidInput: for kinds or roles that do not exist.
    """
    any_version = include_history or as_of is not None
    # What was current then may be superseded since, so that known_at too asks for rows of the history.
    history = any_version or known_at is not None
    return RowFilter(
        team_id=asker.scope.team_id,
        user_id=asker.scope.user_id,
        visible=readable(asker, operation, history=history),
        narrowed=narrowed(asker.scope),
        shared=layer != "messages",
        kinds=_checked("kind", kinds, KINDS),
        roles=_checked("role", roles, ROLES),
        session=session,
        since=since,
        until=until,
        as_of=as_of,
        known_at=known_at,
        current_at=None if any_version else (now if known_at is None else known_at),
        live_only=live_only,
        searched=operation in ("recall", "search"),
        metadata=_checked_metadata(metadata),
    )


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping, not {type(metadata).__name__}")
    if len(metadata) > MAX_METADATA_KEYS:
        raise InvalidInput(f"metadata asks for {len(metadata)} keys; {MAX_METADATA_KEYS} is the most")
    return dict(metadata)


def _checked(what: str, values: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...] | None:
    if values is None:
        return None
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Iterable):
        raise InvalidInput(f"{what}s must be a list, not {type(values).__name__}")
    values = list(values)
    unknown = [value for value in values if value not in known]
    if unknown:
        raise InvalidInput(f"unknown {what} {unknown[0]!r:.60}; known are {', '.join(known)}")
    return tuple(dict.fromkeys(values))
