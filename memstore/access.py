"""Who may do what to which row: one pure decision, and the one filter compiled from the same rules (SPEC G2).

A rule is a condition over a row's columns with an outcome; the first rule whose condition holds decides. The
conditions are data, so that :func:`decide` evaluates them on one row while :func:`readable` turns the whole
table of rules into a single condition that storage compiles into the statements of both legs, listings, counts
and histories. Grants will be further rules in the same table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from memstore.types import Scope

Operation = Literal[
    "get", "list", "recall", "search", "explain", "export", "count",
    "history",
    "add_version", "delete", "change_visibility", "change_owner",
    "update_metadata", "quarantine", "roll_back",
]  # fmt: skip
Outcome = Literal["allow", "deny", "not_found"]

READS = frozenset(("get", "list", "recall", "search", "explain", "export", "count"))
MANAGES = frozenset(("update_metadata", "delete", "quarantine", "roll_back"))


@dataclass(frozen=True, slots=True)
class Principal:
    """The asker: the scope of the call, and what the store knows of it in the team now."""

    scope: Scope
    is_member: bool
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class Is:
    """``column = value`` (``value`` None: ``column IS NULL``)."""

    column: str
    value: str | int | None


@dataclass(frozen=True, slots=True)
class In:
    """``column IN values``."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Not:
    of: "Condition"


@dataclass(frozen=True, slots=True)
class All:
    """Every one holds; of none: true."""

    of: tuple["Condition", ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """At least one holds; of none: false."""

    of: tuple["Condition", ...] = ()


Condition = Is | In | Not | All | Some
TRUE = All()


@dataclass(frozen=True, slots=True)
class Rule:
    """``name`` is what explanations and denials show."""

    name: str
    when: Condition
    then: Outcome


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    rule: str

    @property
    def allowed(self) -> bool:
        return self.outcome == "allow"


@lru_cache(maxsize=4096)
def rules(principal: Principal, operation: Operation, *, history: bool = False) -> tuple[Rule, ...]:
    """The rules for this asker and operation, in the order in which they decide.

    ``history``: superseded and expired rows were asked for.
    """
    scope = principal.scope
    owner = Is("user_id", scope.user_id)
    rows_for_history = operation == "history" or history
    return (
        Rule("another team", Not(Is("team_id", scope.team_id)), "not_found"),
        *([] if principal.is_member else [Rule("not a member of the team", TRUE, "not_found")]),
        Rule("no owner", Some((Is("user_id", ""), Is("user_id", None))), "deny"),
        Rule("unknown visibility", Not(In("visibility", ("private", "team", "restricted"))), "deny"),
        *_state_rules(operation, owner, rows_for_history),
        Rule("the asker owns it", owner, "allow"),
        Rule("private to its owner", Is("visibility", "private"), "deny"),
        Rule("restricted without a grant", Is("visibility", "restricted"), "deny"),
        *_team_rules(principal, operation),
        Rule("nothing allows it", TRUE, "deny"),
    )


def _state_rules(operation: Operation, owner: Condition, history: bool) -> list[Rule]:
    deleted, quarantined = Is("state", "deleted"), Is("state", "quarantined")
    out: list[Rule] = []
    if operation == "history":
        out.append(Rule("deleted; only its owner reads the history", All((deleted, Not(owner))), "not_found"))
    else:
        out.append(Rule("deleted", deleted, "not_found"))
    if operation in ("recall", "search"):
        out.append(Rule("quarantined rows are never recalled", quarantined, "deny"))
    else:
        out.append(Rule("quarantined", All((quarantined, Not(owner))), "not_found"))
    if not history:
        out.append(Rule("no longer current", In("state", ("superseded", "expired")), "not_found"))
    return out


def _team_rules(principal: Principal, operation: Operation) -> list[Rule]:
    shared = Is("visibility", "team")
    if operation in READS or operation == "history":
        return [Rule("shared with the team", shared, "allow")]
    if operation in MANAGES and principal.is_admin:
        return [Rule("shared with the team, managed by its admins", shared, "allow")]
    return []


def decide(
    principal: Principal, operation: Operation, row: Mapping[str, Any] | None, *, history: bool = False
) -> Decision:
    """Whether the asker may do this to the row (``team_id, user_id, visibility, state``; None: no such row)."""
    if row is None:
        return Decision("not_found", "no such row")
    for rule in rules(principal, operation, history=history):
        if holds(rule.when, row):
            return Decision(rule.then, rule.name)
    raise AssertionError("the last rule always holds")  # pragma: no cover


@lru_cache(maxsize=4096)
def readable(principal: Principal, operation: Operation, *, history: bool = False) -> Condition:
    """The condition that holds for exactly the rows on which :func:`decide` allows the operation."""
    alternatives: list[Condition] = []
    before: list[Condition] = []
    for rule in rules(principal, operation, history=history):
        if rule.then == "allow":
            alternatives.append(All((*before, rule.when)))
        before.append(Not(rule.when))
        if rule.when == TRUE:
            break
    return Some(tuple(alternatives))


def narrowed(scope: Scope) -> Condition:
    """What agent and task of the asking scope leave over: theirs, and rows that belong to none."""
    parts: list[Condition] = []
    if scope.agent_id is not None:
        parts.append(Some((Is("agent_id", scope.agent_id), Is("agent_id", None))))
    if scope.task_id is not None:
        parts.append(Some((Is("task_id", scope.task_id), Is("task_id", None))))
    return All(tuple(parts))


def holds(condition: Condition, row: Mapping[str, Any]) -> bool:
    """Evaluate a condition on one row, as SQL would with NULL never equal to a value."""
    match condition:
        case Is(column, None):
            return row[column] is None
        case Is(column, value):
            return bool(row[column] == value)
        case In(column, values):
            return row[column] in values
        case Not(of):
            return not holds(of, row)
        case All(of):
            return all(holds(part, row) for part in of)
        case Some(of):
            return any(holds(part, row) for part in of)
