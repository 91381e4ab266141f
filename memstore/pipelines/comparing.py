"""Which current memories a proposed one is compared with: the nearest of those that it could stand beside."""

from collections.abc import Sequence
from dataclasses import dataclass

from memstore.pipelines.checking import Checked
from memstore.pipelines.closeness import contained
from memstore.pipelines.trusted import is_own_words, said_by_principal
from memstore.pipelines.values import Compared, Comparison, Known, Language
from memstore.pipelines.work import Pipelines
from memstore.recall import QueryVectors, Question
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
    """For each item the memories that it is compared with, best first, and the one that says it already, word for word.

    :param own: ids of those of them that rest on the user's own words, if only in part; looked up where an item is
        somebody else's.
    """

    rows: tuple[tuple[MemoryRow, ...], ...]
    equals: tuple[MemoryRow | None, ...]
    own: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        return not any(self.rows)


def neighbourhood(pipelines: Pipelines, scope: Scope, items: Sequence[Checked], count: int) -> Neighbourhood:
    """Compare with the user's own private rows alone, of this agent or none and this task or none.

    All is embedded before anything is read: while a snapshot is open the write-ahead log cannot be emptied.
    """
    of = Owner(scope.team_id, scope.user_id)
    now = pipelines.now()
    asked = [
        Question(item.proposal.content, "memories", count * DEPTH, timeout_s=PATIENCE_S, own_only=True)
        for item in items
    ]
    vectors = _vectors(pipelines, scope, asked)
    found: list[tuple[MemoryRow, ...]] = []
    with pipelines.recaller.snapshot() as reader:
        newest = reader.neighbours_by_age(of, scope.agent_id, scope.task_id, NEWEST)
        newest = [row for row in newest if _fits(row, scope, now)]
        for question, embed in zip(asked, vectors, strict=True):
            recalled = _recalled(pipelines, reader, scope, question, embed)
            near = [row for row in recalled if _fits(row, scope, now)]
            found.append(tuple(_filled(near, newest, question.query)))
        equals = tuple(_equal(item, rows, scope) for item, rows in zip(items, found, strict=True))
        shown = tuple(_first(equal, rows)[:count] for equal, rows in zip(equals, found, strict=True))
        strange = {
            row.id: row for item, rows in zip(items, shown, strict=True) if not item.own for row in rows
        }
        own = frozenset(row.id for row in strange.values() if _rests_on_own_words(reader, row))
    return Neighbourhood(shown, equals, own)


def _vectors(pipelines: Pipelines, scope: Scope, asked: Sequence[Question]) -> list[QueryVectors | None]:
    """Of each text; a slow or failing embedder costs one wait, and then is done without."""
    found: list[QueryVectors | None] = []
    for question in asked:
        found.append(None if None in found else pipelines.recaller.embedded(scope, question))
    return found


def _recalled(
    pipelines: Pipelines, reader: Reader, scope: Scope, question: Question, embed: QueryVectors | None
) -> list[MemoryRow]:
    """What recall brings for a text."""
    legs: Sequence[Leg] = ("text",) if embed is None else LEGS
    recall = pipelines.recaller.answer(reader, scope, question, legs=legs, embed=embed).recall
    rows = (reader.memory(scope.team_id, hit.id) for hit in recall)
    return [row for row in rows if row is not None]


def _rests_on_own_words(reader: Reader, row: MemoryRow) -> bool:
    """Whether the user said it, or something of it."""
    if is_own_words(row.source_kind, row.trust):
        return True
    sources = reader.sources_of(row.team_id, "memory", row.id, row.version)
    messages = (reader.message(row.team_id, one) for kind, one in sources if kind == "message")
    return any(message is not None and said_by_principal(message) for message in messages)


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
    """Of several the one that is trusted most."""
    proposal = item.proposal
    persona = proposal.kind == "persona"
    of = (None, None) if persona else (scope.agent_id, scope.task_id)
    text = same_text(proposal.content)
    equal = (
        row
        for row in rows
        if row.kind == proposal.kind and (row.agent_id, row.task_id) == of and same_text(row.content) == text
    )
    return max(equal, key=lambda row: row.trust, default=None)


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
