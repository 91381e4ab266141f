"""Why rows came back, and in which order: a recall's way as data (SPEC R5)."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from memstore.access import Principal, decide
from memstore.asking import row_facts
from memstore.canonical import canonical_json
from memstore.config import Settings
from memstore.recall.legs import Search
from memstore.recall.question import Question
from memstore.storage.base import Ref
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import render
from memstore.types import (
    CandidateReport,
    Explanation,
    Leg,
    LegReport,
    LegSummary,
    RecallExplanation,
)
from memstore.views import stored_message

if TYPE_CHECKING:
    from memstore.recall.recaller import Order

EXCERPT_CHARS = 80
PENDING = "its vector is not computed yet; the text rank stands for it"
LITERAL = "holds the query literally"
BESIDE = "found by the turns beside it"
BY_SENTENCE = "its part of the best score of the sentence that it answers best"


class Explainer:
    """Reports on the candidates of one answered question."""

    def __init__(
        self,
        search: Search,
        settings: Settings,
        asker: Principal,
        rows: Mapping[Ref, MessageRow | MemoryRow],
    ) -> None:
        self._search = search
        self._settings = settings
        self._asker = asker
        self._rows = rows
        reader, question = search.reader, search.question
        refs = list(rows)
        self._held = reader.held_tokens(question.layer, asker.scope.team_id, refs, search.looked_for)
        self._sources = (
            reader.source_ids(asker.scope.team_id, [row.id for row in rows.values()])
            if question.layer == "memories"
            else {}
        )

    def _of(self, ref: Ref, rule: str, factors: Mapping[str, float]) -> Explanation:
        """Why one row is a candidate."""
        legs = self._search.legs
        reports: dict[str, LegReport] = {
            leg: self._leg(leg, ref) for leg, ranks in legs.ranks.items() if ref in ranks
        }
        return Explanation(
            reports,
            self._held.get(ref, ()),
            rule,
            ref in legs.literal,
            self._sources.get(self._rows[ref].id, ()),
            dict(factors),
        )

    def _leg(self, leg: Leg, ref: Ref) -> LegReport:
        """Raw scores are shown for no other's rows: they carry statistics of rows that the asker may not see."""
        legs = self._search.legs
        own = self._rows[ref].user_id == self._asker.scope.user_id
        rank = legs.ranks[leg][ref]
        note = None
        if leg == "vector" and ref in legs.pending:
            note = PENDING
        elif leg == "text" and ref in legs.literal:
            note = LITERAL
        elif ref not in legs.scores.get(leg, {}) and ref in legs.lifted.get(leg, {}):
            note = BESIDE
        elif leg == "text" and self._search.sentences:
            note = BY_SENTENCE
        lifted = legs.lifted.get(leg, {}).get(ref)
        return LegReport(
            rank=rank,
            score=legs.scores.get(leg, {}).get(ref, 0.0) if own else None,
            term=self._search.weight(leg) / (self._settings.rrf_k + rank),
            note=note,
            with_neighbours=lifted if own else None,
        )

    def whole(self, order: "Order") -> RecallExplanation:
        """The recall as a whole: every candidate and what became of it."""
        search, question = self._search, self._search.question
        legs = search.legs
        model = legs.generation.identity.model if legs.generation is not None else None
        returned = frozenset(order.returned)
        return RecallExplanation(
            query=question.query,
            words=search.looked_for.words or search.looked_for.literal,
            left_out=search.left_out,
            filters=_filters(self._asker, question),
            legs={
                leg: LegSummary(
                    asked=search.depth,
                    brought=len(ranks),
                    weight=search.weight(leg),
                    floor=search.floors.get(leg),
                    model=model if leg == "vector" else None,
                )
                for leg, ranks in legs.ranks.items()
            },
            coverage=legs.coverage,
            sentences=tuple(sentence.text for sentence in search.sentences),
            candidates=tuple(
                self._candidate(order, returned, place, ref) for place, ref in enumerate(order.refs, 1)
            ),
        )

    def _candidate(self, order: "Order", returned: frozenset[Ref], place: int, ref: Ref) -> CandidateReport:
        row = self._rows[ref]
        question = self._search.question
        decision = decide(self._asker, question.operation, row_facts(row), history=question.history)
        twin = order.twins.get(ref)
        text = row.content if isinstance(row, MemoryRow) else stored_message(row).text
        return CandidateReport(
            id=row.id if decision.allowed else "",
            place=place,
            score=order.scores[ref],
            outcome="rules"
            if not decision.allowed
            else "returned"
            if ref in returned
            else "duplicate"
            if twin is not None
            else "source cap"
            if ref in order.capped
            else "limit",
            explanation=self._of(ref, decision.rule, order.factors.get(ref, {})),
            excerpt=" ".join(text.split())[:EXCERPT_CHARS] if decision.allowed else "",
            duplicate_of=self._rows[twin].id if twin is not None else None,
        )


def _filters(asker: Principal, question: Question) -> tuple[tuple[str, str], ...]:
    """What was asked for beside the query, as names and values."""
    scope = asker.scope
    values: dict[str, object] = {
        "team": scope.team_id,
        "user": scope.user_id,
        "agent": scope.agent_id,
        "task": scope.task_id,
        "layer": question.layer,
        "limit": question.limit,
        "kinds": list(question.kinds) if question.kinds is not None else None,
        "roles": list(question.roles) if question.roles is not None else None,
        "session": question.session,
        "since": question.since,
        "until": question.until,
        "as_of": question.as_of,
        "known_at": question.known_at,
        "metadata": dict(question.metadata) if question.metadata else None,
        "include_history": question.include_history or None,
        "live_only": question.live_only or None,
    }
    return tuple(
        (name, value if isinstance(value, str) else shown_value(value))
        for name, value in values.items()
        if value is not None
    )


def shown_value(value: object) -> str:
    """What was asked for, or what a row has, as text: instants in UTC, structures as JSON."""
    if isinstance(value, datetime):
        return render(value)
    return canonical_json(value) if isinstance(value, Mapping | list | tuple | bool) else str(value)
