"""Which current memories a proposed one is compared with: the nearest of those that it could stand beside."""

from collections.abc import Sequence
from dataclasses import dataclass

from memstore.pipelines.checking import Checked
from memstore.pipelines.closeness import contained
from memstore.pipelines.values import Compared, Comparison, Known, Language
from memstore.pipelines.work import Pipelines
from memstore.recall import Question
from memstore.storage.base import Reader
from memstore.storage.pipeline_rows import Owner
from memstore.storage.rows import MemoryRow
from memstore.text import normalise
from memstore.times import from_micros
from memstore.types import LEGS, Leg, Scope

NEWEST = 50
"""Memories that fill up what recall did not find, so that in a small store a judge sees everything."""
DEPTH = 4
"""Times as many rows are recalled as are needed: some are of another task."""
PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """For each item the memories that it is compared with, best first, and the one that says it already, word for word."""

    rows: tuple[tuple[MemoryRow, ...], ...]
    equals: tuple[MemoryRow | None, ...]

    @property
    def empty(self) -> bool:
        return not any(self.rows)


def neighbourhood(pipelines: Pipelines, scope: Scope, items: Sequence[Checked], count: int) -> Neighbourhood:
    """Compare with the user's own private rows alone, of this agent or none and this task or none.

    A slow or failing embedder costs one wait and then is done without.
    """
    of = Owner(scope.team_id, scope.user_id)
    now = pipelines.now()
    found: list[tuple[MemoryRow, ...]] = []
    legs: Sequence[Leg] = LEGS
    with pipelines.recaller.snapshot() as reader:
        newest = reader.neighbours_by_age(of, scope.agent_id, scope.task_id, NEWEST)
        newest = [row for row in newest if _fits(row, scope, now)]
        for item in items:
            recalled, legs = _recalled(pipelines, reader, scope, item.proposal.content, count, legs)
            near = [row for row in recalled if _fits(row, scope, now)]
            found.append(tuple(_filled(near, newest, item.proposal.content)))
    equals = tuple(_equal(item, rows, scope) for item, rows in zip(items, found, strict=True))
    shown = (_first(equal, rows)[:count] for equal, rows in zip(equals, found, strict=True))
    return Neighbourhood(tuple(shown), equals)


def _recalled(
    pipelines: Pipelines, reader: Reader, scope: Scope, content: str, count: int, legs: Sequence[Leg]
) -> tuple[list[MemoryRow], Sequence[Leg]]:
    """What recall brings for a text, and the legs to ask for the next one."""
    question = Question(content, "memories", count * DEPTH, timeout_s=PATIENCE_S, own_only=True)
    recall = pipelines.recaller.answer(reader, scope, question, legs=legs).recall
    lost = {part.leg for part in recall.degraded}
    rows = (reader.memory(scope.team_id, hit.id) for hit in recall)
    left: Sequence[Leg] = ("text",) if "vector" in lost else legs
    return [row for row in rows if row is not None], left


def _fits(row: MemoryRow, scope: Scope, now: int) -> bool:
    """Current, the user's alone, and of this scope or a wider one."""
    ended = any(end is not None and end <= now for end in (row.valid_to, row.expires_at))
    return (
        row.state == "live"
        and not ended
        and row.visibility == "private"
        and row.user_id == scope.user_id
        and row.agent_id in (None, scope.agent_id)
        and row.task_id in (None, scope.task_id)
    )


def _filled(near: Sequence[MemoryRow], newest: Sequence[MemoryRow], content: str) -> list[MemoryRow]:
    """Behind what was recalled the newest rows, those that share most words with the text first."""
    known = {row.id for row in near}
    others = [row for row in newest if row.id not in known]
    others.sort(key=lambda row: -contained(content, [row.content]))  # stable: the newest first among equals
    return [*near, *others]


def _first(row: MemoryRow | None, rows: tuple[MemoryRow, ...]) -> tuple[MemoryRow, ...]:
    """The rows, that one at the head."""
    return rows if row is None else (row, *(one for one in rows if one.id != row.id))


def _equal(item: Checked, rows: Sequence[MemoryRow], scope: Scope) -> MemoryRow | None:
    proposal = item.proposal
    persona = proposal.kind == "persona"
    of = (None, None) if persona else (scope.agent_id, scope.task_id)
    text = same_text(proposal.content)
    for row in rows:
        if row.kind == proposal.kind and (row.agent_id, row.task_id) == of and same_text(row.content) == text:
            return row
    return None


def same_text(content: str) -> str:
    """What two texts share that say the same in the same words."""
    whole = " ".join(normalise(content).split())
    return whole.rstrip("。.!！ ") or whole


def comparison(
    scope: Scope, language: Language, items: Sequence[Checked], near: Neighbourhood, now: int
) -> Comparison:
    """What the judge is asked."""
    compared = tuple(
        Compared(item.proposal, tuple(_known(row) for row in rows))
        for item, rows in zip(items, near.rows, strict=True)
    )
    return Comparison(scope, language, compared, from_micros(now))


def _known(row: MemoryRow) -> Known:
    return Known(
        row.id,
        row.kind,  # type: ignore[arg-type] # a CHECK constraint holds it
        row.content,
        row.priority,
        from_micros(row.recorded_at),
    )
