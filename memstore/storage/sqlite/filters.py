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


def filter_sql(where: RowFilter, layer: Layer, alias: str) -> Sql:
    """Everything a read may return, as one predicate over a row of the layer's table."""
    own = _message_clauses(where, alias) if layer == "messages" else _memory_clauses(where, alias)
    clauses: list[Sql] = [
        # "+": not by an index over teams. Callers name the slots or the session they read; a team holds far more.
        (f"+{alias}.team_id = ?", [where.team_id]),
        condition_sql(where.visible, alias),
        condition_sql(where.narrowed, alias),
        *own,
    ]
    if where.session is not None:
        clauses.append((f"{alias}.session = ?", [where.session]))
    column = f"{alias}.{'meta' if layer == 'messages' else 'metadata'}"
    clauses.extend(_metadata_sql(column, key, value) for key, value in where.metadata.items())
    return " AND ".join(sql for sql, _ in clauses), [b for _, bindings in clauses for b in bindings]


def _message_clauses(where: RowFilter, alias: str) -> Iterator[Sql]:
    yield f"{alias}.hidden = 0", []
    if where.live_only:
        yield f"{alias}.live = 1", []
    yield from _range(f"{alias}.created_at", where.since, where.until)
    yield from _one_of(f"{alias}.role", where.roles)


def _memory_clauses(where: RowFilter, alias: str) -> Iterator[Sql]:
    yield from _range(f"{alias}.recorded_at", where.since, where.until)
    yield from _one_of(f"{alias}.kind", where.kinds)
    if where.as_of is not None:
        yield f"({alias}.valid_from IS NULL OR {alias}.valid_from <= ?)", [where.as_of]
    for instant in (where.as_of, where.current_at):
        if instant is not None:
            yield f"({alias}.valid_to IS NULL OR {alias}.valid_to > ?)", [instant]
            yield f"({alias}.expires_at IS NULL OR {alias}.expires_at > ?)", [instant]


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
