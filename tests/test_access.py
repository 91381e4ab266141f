"""The access rules against an independent oracle, and the SQL that is made of them against the rules."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, get_args

import apsw
import pytest

from memstore import Scope, access
from memstore.access import (
    All,
    Condition,
    In,
    Is,
    Not,
    Operation,
    Principal,
    Rule,
    Some,
    decide,
    holds,
    narrowed,
    readable,
    rules,
)
from memstore.errors import InvalidInput
from memstore.storage.sqlite.filters import condition_sql

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
STATES = ("live", "superseded", "expired", "quarantined", "deleted")
VISIBILITIES = ("private", "team", "restricted", "public", None)


def actor(
    team: str, user: str, *, member: bool = True, admin: bool = False, agent: str | None = None
) -> Principal:
    return Principal(Scope(team, user, agent), is_member=member, is_admin=admin)


ACTORS = {
    "owner": actor("acme", "olga"),
    "owner, an admin": actor("acme", "olga", admin=True),
    "owner's agent": actor("acme", "olga", agent="helper"),
    "owner who left": actor("acme", "olga", member=False),
    "teammate": actor("acme", "ben"),
    "teammate's agent": actor("acme", "ben", agent="helper"),
    "team admin": actor("acme", "ana", admin=True),
    "ex-member": actor("acme", "eve", member=False),
    "ex-admin": actor("acme", "ana", member=False, admin=True),
    "other team's user": actor("rival", "rex"),
    "other team's admin": actor("rival", "rex", admin=True),
    "owner's namesake in another team": actor("rival", "olga", admin=True),
}
ROWS = [
    {"team_id": team, "user_id": user, "visibility": visibility, "state": state}
    for team, user, visibility, state in product(("acme", None), ("olga", "", None), VISIBILITIES, STATES)
]
MATRIX = [
    (who, operation, row, history)
    for who, operation, row, history in product(ACTORS, OPERATIONS, ROWS, (False, True))
]


# --- the oracle, written from the decision order in words; it imports nothing of the rules --------------------


def oracle(asker: Principal, operation: str, row: Mapping[str, Any], *, history: bool) -> str:
    scope = asker.scope
    if row["team_id"] != scope.team_id or not asker.is_member:
        return "not_found"  # another team's row, or a team the asker is not in, is as if it did not exist
    if not row["user_id"]:
        return "deny"  # a row of nobody is nobody's
    if row["visibility"] not in {"private", "team", "restricted"}:
        return "deny"
    mine = row["user_id"] == scope.user_id
    match row["state"]:
        case "deleted":
            if not (mine and operation == "history"):
                return "not_found"  # the owner's history only
        case "quarantined":
            if operation in {"recall", "search"}:
                return "deny"  # never recalled, not even for its owner
            if not mine:
                return "not_found"
        case "superseded" | "expired":
            if not (history or operation == "history"):
                return "not_found"
    if mine:
        return "allow"  # never deniable
    if row["visibility"] in {"private", "restricted"}:
        return "deny"  # no role passes; and there are no grants yet
    reading = {"get", "list", "recall", "search", "explain", "export", "count", "history"}
    managing = {"update_metadata", "delete", "quarantine", "roll_back"}
    if operation in reading or (operation in managing and asker.is_admin):
        return "allow"
    return "deny"  # writing, sharing and giving away are the owner's


def test_every_decision_of_the_matrix_is_the_oracles():
    assert len(MATRIX) == 12 * 15 * 150 * 2
    wrong = [
        (who, operation, row, history)
        for who, operation, row, history in MATRIX
        if decide(ACTORS[who], operation, row, history=history).outcome
        != oracle(ACTORS[who], operation, row, history=history)
    ]
    assert wrong == []


def test_the_matrix_allows_and_denies_in_earnest():
    outcomes = [
        oracle(ACTORS[who], operation, row, history=history) for who, operation, row, history in MATRIX
    ]
    assert {outcome: outcomes.count(outcome) > 500 for outcome in ("allow", "deny", "not_found")} == {
        "allow": True,
        "deny": True,
        "not_found": True,
    }


def test_a_missing_row_reads_like_another_teams():
    foreign = {"team_id": "acme", "user_id": "olga", "visibility": "team", "state": "live"}
    for operation in OPERATIONS:
        missing = decide(ACTORS["other team's admin"], operation, None)
        assert (
            missing.outcome == decide(ACTORS["other team's admin"], operation, foreign).outcome == "not_found"
        )
        assert not missing.allowed


def test_a_decision_names_its_rule():
    row = {"team_id": "acme", "user_id": "olga", "visibility": "team", "state": "live"}
    assert decide(ACTORS["owner"], "get", row).rule == "the asker owns it"
    assert decide(ACTORS["teammate"], "get", row).rule == "shared with the team"
    assert decide(ACTORS["teammate"], "get", row | {"visibility": "private"}).rule == "private to its owner"
    names = [rule.name for rule in rules(ACTORS["teammate"], "get")]
    assert len(names) == len(set(names))


# --- mutations ------------------------------------------------------------------------------------------------

RulesOf = Callable[..., tuple[Rule, ...]]


def mismatches(made: RulesOf) -> Iterator[tuple]:
    """Where rules differ from the oracle in the whole matrix: the first one that holds decides."""
    for asker, operation, history in product(ACTORS.values(), OPERATIONS, (False, True)):
        listed = made(asker, operation, history=history)
        for row in ROWS:
            outcome = next((rule.then for rule in listed if holds(rule.when, row)), "no rule")
            if outcome != oracle(asker, operation, row, history=history):
                yield asker, operation, row, history


def without(name: str) -> RulesOf:
    return lambda *a, **k: tuple(rule for rule in rules(*a, **k) if rule.name != name)


def negated(name: str) -> RulesOf:
    return lambda *a, **k: tuple(
        Rule(r.name, Not(r.when), r.then) if r.name == name else r for r in rules(*a, **k)
    )


def turned(name: str, then: str) -> RulesOf:
    return lambda *a, **k: tuple(Rule(r.name, r.when, then) if r.name == name else r for r in rules(*a, **k))


def swapped(first: str, second: str) -> RulesOf:
    """The two rules in each other's place."""

    def made(*a, **k) -> tuple[Rule, ...]:
        found = list(rules(*a, **k))
        places = {rule.name: number for number, rule in enumerate(found)}
        if first in places and second in places:
            i, j = places[first], places[second]
            found[i], found[j] = found[j], found[i]
        return tuple(found)

    return made


ALL_NAMES = sorted(
    {r.name for who, operation, history in product(ACTORS.values(), OPERATIONS, (False, True))
     for r in rules(who, operation, history=history)}
)  # fmt: skip
LAST = "nothing allows it"

MUTANTS: dict[str, RulesOf] = {
    **{f"without: {name}": without(name) for name in ALL_NAMES},
    **{f"negated: {name}": negated(name) for name in ALL_NAMES if name != LAST},
    "the last rule allows": turned(LAST, "allow"),
    "private rows are shared": turned("private to its owner", "allow"),
    "restricted rows are shared": turned("restricted without a grant", "allow"),
    "the owner is denied": turned("the asker owns it", "deny"),
    "deleted rows are denied, not hidden": turned("deleted", "deny"),
    "another team is denied, not hidden": turned("another team", "deny"),
    "the owner before the state": swapped("the asker owns it", "deleted"),
    "the owner before quarantine": swapped("the asker owns it", "quarantined rows are never recalled"),
    "private before the owner": swapped("private to its owner", "the asker owns it"),
    "sharing before the visibility check": swapped("unknown visibility", "the asker owns it"),
    "the owner before the team": swapped("another team", "the asker owns it"),
    "admins see private rows": lambda asker, operation, **k: (
        *((Rule("admin", Is("team_id", asker.scope.team_id), "allow"),) if asker.is_admin else ()),
        *rules(asker, operation, **k),
    ),
    "everyone is an admin": lambda asker, operation, **k: rules(
        Principal(asker.scope, asker.is_member, is_admin=True), operation, **k
    ),
    "everyone is a member": lambda asker, operation, **k: rules(
        Principal(asker.scope, is_member=True, is_admin=asker.is_admin), operation, **k
    ),
    "history is always asked for": lambda asker, operation, **k: rules(asker, operation, history=True),
    "history is never asked for": lambda asker, operation, **k: rules(asker, operation, history=False),
    "get instead of every operation": lambda asker, operation, **k: rules(asker, "get", **k),
    "delete instead of every operation": lambda asker, operation, **k: rules(asker, "delete", **k),
}


def test_the_unmutated_rules_pass_through_the_same_sieve():
    assert list(mismatches(rules)) == []


MASKED = {"without: private to its owner", "without: restricted without a grant"}
"""Without them the last rule says the same, under a name that explains less. Once there are grants they matter."""


@pytest.mark.parametrize("mutant", sorted(MASKED))
def test_a_masked_mutation_changes_nothing_but_the_explanation(mutant):
    assert list(mismatches(MUTANTS[mutant])) == []


@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - MASKED))
def test_every_mutation_of_the_rules_is_noticed(mutant):
    assert next(mismatches(MUTANTS[mutant]), None) is not None


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= 40


# --- the compiled filter ----------------------------------------------------------------------------------------

SCOPED_ROWS = [
    *(row | {"agent_id": "helper", "task_id": None} for row in ROWS),
    *(
        row | {"user_id": "ben", "agent_id": None, "task_id": None}
        for row in ROWS
        if row["user_id"] == "olga"
    ),
    *(
        ROWS[0] | {"state": state, "agent_id": agent, "task_id": task}
        for state, agent, task in product(STATES, ("helper", "critic", "", None), ("launch", "", None))
    ),
]


@pytest.fixture(scope="module")
def table():
    """Every combination of columns as a real row, numbered in the order of SCOPED_ROWS."""
    connection = apsw.Connection(":memory:")
    columns = ("team_id", "user_id", "visibility", "state", "agent_id", "task_id")
    connection.execute(f"CREATE TABLE r (number INTEGER PRIMARY KEY, {', '.join(columns)})")
    connection.executemany(
        "INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(number, *(row[c] for c in columns)) for number, row in enumerate(SCOPED_ROWS)],
    )
    yield connection
    connection.close()


def selected(connection: apsw.Connection, condition: Condition) -> set[int]:
    sql, bindings = condition_sql(condition, "r")
    return {n for (n,) in connection.execute(f"SELECT number FROM r WHERE {sql}", bindings)}


READING = [operation for operation in OPERATIONS if operation in access.READS or operation == "history"]


@pytest.mark.parametrize("who", ACTORS)
def test_the_sql_of_the_rules_selects_what_they_allow(table, who):
    for operation, history in product(OPERATIONS, (False, True)):
        condition = readable(ACTORS[who], operation, history=history)
        expected = {
            number
            for number, row in enumerate(SCOPED_ROWS)
            if decide(ACTORS[who], operation, row, history=history).allowed
        }
        assert selected(table, condition) == expected, (operation, history)
        assert {n for n, row in enumerate(SCOPED_ROWS) if holds(condition, row)} == expected


def test_somebody_reads_something_and_somebody_nothing(table):
    assert selected(table, readable(ACTORS["owner"], "recall"))
    assert selected(table, readable(ACTORS["teammate"], "recall"))
    for who in ("ex-member", "owner who left", "other team's admin"):
        for operation in OPERATIONS:
            assert selected(table, readable(ACTORS[who], operation, history=True)) == set()


@pytest.mark.parametrize("agent", [None, "helper", "critic", "nobody"])
@pytest.mark.parametrize("task", [None, "launch", "nothing"])
def test_narrowing_keeps_the_agents_rows_and_those_of_none(table, agent, task):
    condition = narrowed(Scope("acme", "olga", agent, task))
    expected = {
        number
        for number, row in enumerate(SCOPED_ROWS)
        if (agent is None or row["agent_id"] in (agent, None))
        and (task is None or row["task_id"] in (task, None))
    }
    assert selected(table, condition) == expected
    assert {n for n, row in enumerate(SCOPED_ROWS) if holds(condition, row)} == expected


CONDITIONS: list[Condition] = [
    All(),
    Some(),
    Not(All()),
    Is("agent_id", None),
    Not(Is("agent_id", None)),
    Not(Is("agent_id", "helper")),
    In("visibility", ("private", "team")),
    Not(In("visibility", ("private", "team"))),
    In("visibility", ()),
    Not(In("visibility", ())),
    Not(Some((Is("user_id", ""), Is("user_id", None)))),
    All((Not(Is("task_id", None)), Not(Not(In("state", ("live",)))))),
    Some(
        (
            All((Is("team_id", None), Is("user_id", "olga"))),
            Not(Some((Is("state", "live"), In("state", ("deleted",))))),
        )
    ),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=repr)
def test_conditions_mean_the_same_in_python_and_in_sql(table, condition):
    """NULL equals nothing, and the negation of that is true: not unknown."""
    assert selected(table, condition) == {n for n, row in enumerate(SCOPED_ROWS) if holds(condition, row)}


def test_conditions_are_over_known_columns_only():
    for column in ("content", "1=1 OR team_id", "team_id --", ""):
        with pytest.raises(InvalidInput, match="column"):
            condition_sql(Is(column, "x"), "r")


@pytest.mark.parametrize("value", ["' OR 1=1 --", "%", "_", "NULL", '"', "acme\x00", ""])
def test_values_are_bound_not_spliced(table, value):
    assert selected(table, Is("team_id", value)) == {
        n for n, row in enumerate(SCOPED_ROWS) if row["team_id"] == value
    }
