"""Row filters as SQL. The only place where conditions, times and metadata become predicates."""

import sys
from collections.abc import Iterator
from typing import Any, assert_never

from memstore.access import All, Condition, In, Is, Not, Some
from memstore.canonical import canonical_json, check_encodable
from memstore.errors import InvalidInput
from memstore.storage.base import RowFilter
from memstore.types import Layer

Sql = tuple[str, list[Any]]

_COLUMNS = frozenset(("team_id", "user_id", "agent_id", "task_id", "visibility", "state"))


def condition_sql(condition: Condition, alias: str) -> Sql:
    """A condition of the access rules. ``IS`` and not ``=``: NULL equals nothing, and its negation is true."""
    match condition:
        case Is(column, value):
            return f"{alias}.{_checked(column)} IS ?", [value]
        case In(column, values):
            marks = ", ".join("?" * len(values))
            return f"coalesce({alias}.{_checked(column)} IN ({marks}), 0)", list(values)
        case Not(of):
            sql, bindings = condition_sql(of, alias)
            return f"NOT ({sql})", bindings
        case All(of):
            return _joined(of, alias, " AND ", "1")
        case Some(of):
            return _joined(of, alias, " OR ", "0")
    assert_never(condition)


def _checked(column: str) -> str:
    if column not in _COLUMNS:
        raise InvalidInput(f"no such column in access rules: {column!r}")
    return column


def _joined(parts: tuple[Condition, ...], alias: str, word: str, empty: str) -> Sql:
    compiled = [condition_sql(part, alias) for part in parts]
    if not compiled:
        return empty, []
    return "(" + word.join(sql for sql, _ in compiled) + ")", [
        b for _, bindings in compiled for b in bindings
    ]


Named = tuple[str, Sql]
"""A condition with the name that :meth:`Reader.failed_filters` and ``why_not`` call it by."""


def filter_sql(where: RowFilter, layer: Layer, alias: str) -> Sql:
    """Everything a read may return, as one predicate over a row of the layer's table."""
    clauses = named_clauses(where, layer, alias)
    return " AND ".join(sql for _, (sql, _) in clauses), [b for _, (_, bindings) in clauses for b in bindings]


def named_clauses(where: RowFilter, layer: Layer, alias: str) -> list[Named]:
    """The conditions of a read, one by one."""
    own = _message_clauses(where, alias) if layer == "messages" else _memory_clauses(where, alias)
    clauses: list[Named] = [
        # "+": not by an index over teams. Callers name the slots or the session they read; a team holds far more.
        ("team", (f"+{alias}.team_id = ?", [where.team_id])),
        ("visible", condition_sql(where.visible, alias)),
        ("agent or task", condition_sql(where.narrowed, alias)),
        *own,
        *_each("known_at", _recorded_by(where, alias)),
    ]
    if where.session is not None:
        clauses.append(("session", (f"{alias}.session = ?", [where.session])))
    column = f"{alias}.{'meta' if layer == 'messages' else 'metadata'}"
    clauses.extend(("metadata", _metadata_sql(column, key, value)) for key, value in where.metadata.items())
    return clauses


def _each(name: str, clauses: Iterator[Sql]) -> Iterator[Named]:
    return ((name, clause) for clause in clauses)


def _message_clauses(where: RowFilter, alias: str) -> Iterator[Named]:
    yield "hidden", (f"{alias}.hidden = 0", [])
    if where.searched:
        yield "quarantined", (f"{alias}.quarantined_at IS NULL", [])
    if where.live_only:
        yield "live_only", (f"{alias}.live = 1", [])
    yield from _each("since", _range(f"{alias}.created_at", where.since, None))
    yield from _each("until", _range(f"{alias}.created_at", None, where.until))
    yield from _each("roles", _one_of(f"{alias}.role", where.roles))


def _memory_clauses(where: RowFilter, alias: str) -> Iterator[Named]:
    yield from _each("since", _range(f"{alias}.recorded_at", where.since, None))
    yield from _each("until", _range(f"{alias}.recorded_at", None, where.until))
    yield from _each("kinds", _one_of(f"{alias}.kind", where.kinds))
    yield from _each("as_of", _begun(where, alias))
    yield from _each("superseded", _not_superseded(where, alias))
    yield from _each("valid_to", _not_ended(where, alias))
    yield from _each("expires_at", _not_expired(where, alias))


# What the store knew at an instant K: the rows recorded by then. A row is as it was stated but for two things that
# later versions write into it, the end of its validity and that it is superseded; both are read here from the versions
# that were recorded by K. Versions are compared by number and never by clock: after a clock was set back, a version may
# bear an earlier stamp than the one before it.


def _recorded_by(where: RowFilter, alias: str) -> Iterator[Sql]:
    if where.known_at is not None:
        yield f"{alias}.recorded_at <= ?", [where.known_at]


def _begun(where: RowFilter, alias: str) -> Iterator[Sql]:
    if where.as_of is not None:
        yield f"({alias}.valid_from IS NULL OR {alias}.valid_from <= ?)", [where.as_of]


def _not_superseded(where: RowFilter, alias: str) -> Iterator[Sql]:
    """Of a memory only the last version known then was current. (Without ``known_at`` the row's state says it.)"""
    if where.known_at is not None and where.current_at is not None:
        yield f"NOT EXISTS (SELECT 1 {_later_versions(alias)})", [where.known_at]
        by_another = f"{alias}.superseded_by IS NOT NULL AND {alias}.superseded_by <> {alias}.id"
        yield f"NOT ({by_another} AND {alias}.superseded_at <= ?)", [where.known_at]


def _not_ended(where: RowFilter, alias: str) -> Iterator[Sql]:
    for instant in (where.as_of, where.current_at):
        if instant is None:
            continue
        if where.known_at is None:
            yield f"({alias}.valid_to IS NULL OR {alias}.valid_to > ?)", [instant]
            continue
        yield f"({alias}.stated_valid_to IS NULL OR {alias}.stated_valid_to > ?)", [instant]
        yield (
            f"NOT EXISTS (SELECT 1 {_later_versions(alias)} AND coalesce(n.valid_from, n.recorded_at) <= ?)",
            [where.known_at, instant],
        )


def _not_expired(where: RowFilter, alias: str) -> Iterator[Sql]:
    for instant in (where.as_of, where.current_at):
        if instant is not None:
            yield f"({alias}.expires_at IS NULL OR {alias}.expires_at > ?)", [instant]


def _later_versions(alias: str) -> str:
    """Versions after the row's that were known at an instant."""
    return (
        f"FROM memory_versions n WHERE n.team_id = {alias}.team_id AND n.id = {alias}.id"
        f" AND n.version > {alias}.version AND n.recorded_at <= ?"
    )


def _range(column: str, since: int | None, until: int | None) -> Iterator[Sql]:
    if since is not None:
        yield f"{column} >= ?", [since]
    if until is not None:
        yield f"{column} < ?", [until]


def _one_of(column: str, values: tuple[str, ...] | None) -> Iterator[Sql]:
    if values is not None:
        yield f"{column} IN ({', '.join('?' * len(values))})", list(values)


def _metadata_sql(column: str, key: str, value: Any) -> Sql:
    """Equality of one top-level key, which is matched literally: no paths, no operators.

    Lists and objects are equal when their canonical JSON is (keys sorted, as metadata is stored).
    """
    if not isinstance(key, str):
        raise InvalidInput(f"metadata keys are text, not {type(key).__name__}")
    check_encodable(key, "a metadata key")
    test: str
    values: list[Any]
    if value is None:
        test, values = "j.type = 'null'", []
    elif isinstance(value, bool):
        test, values = "j.type = ?", ["true" if value else "false"]
    elif isinstance(value, int | float):
        if not abs(value) <= sys.float_info.max:
            raise InvalidInput(
                f"metadata {key!r} cannot be compared with NaN, infinity or more than a double holds"
            )
        test, values = (
            "j.type IN ('integer', 'real') AND j.value = ?",
            [value if abs(value) < 2**63 else float(value)],
        )
    elif isinstance(value, str):
        check_encodable(value, f"metadata {key!r}")
        test, values = "j.type = 'text' AND j.value = ?", [value]
    elif isinstance(value, list | tuple | dict):
        test, values = (
            "j.type = ? AND j.value = ?",
            ["object" if isinstance(value, dict) else "array", canonical_json(value)],
        )
    else:
        raise InvalidInput(
            f"metadata {key!r} cannot be compared with a {type(value).__name__}; use JSON values"
        )
    return f"EXISTS (SELECT 1 FROM json_each({column}) j WHERE j.key = ? AND {test})", [key, *values]
