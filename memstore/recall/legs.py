"""The two legs of a recall, each to its own ranked list (SPEC R1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memstore.config import MAX_LIMIT, Settings
from memstore.recall.neighbours import ALONE, Beside, Weights, beside, cosines, near, ranked, sums
from memstore.recall.question import Question
from memstore.recall.sentences import sentences
from memstore.stopwords import without_stop_words
from memstore.storage.base import Candidate, Generation, Reader, Ref, RowFilter, Turn
from memstore.text import QueryTokens, Tokenizer
from memstore.types import Degraded, Leg

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TEXT_DIGITS = 9
"""As the text leg's own scores."""


@dataclass(slots=True)
class Legs:
    """What the legs brought: ranks from 1, scores, and what is known for certain.

    ``scores`` are the rows' own; ``lifted`` what ranked them, where neighbours took part.
    """

    ranks: dict[Leg, dict[Ref, int]] = field(default_factory=dict)
    scores: dict[Leg, dict[Ref, float]] = field(default_factory=dict)
    lifted: dict[Leg, dict[Ref, float]] = field(default_factory=dict)
    ties: dict[Ref, tuple[int, int, str]] = field(default_factory=dict)
    literal: dict[Ref, int] = field(default_factory=dict)
    pending: set[Ref] = field(default_factory=set)
    degraded: list[Degraded] = field(default_factory=list)
    coverage: float | None = None
    generation: Generation | None = None
    query_vector: "NDArray[np.float32] | None" = None

    def add(self, leg: Leg, candidates: Sequence[Candidate]) -> None:
        """The ranked list of a leg. A second call replaces it."""
        self.ranks[leg] = {c.ref: rank for rank, c in enumerate(candidates, 1)}
        for candidate in candidates:
            self.ties.setdefault(candidate.ref, candidate.tie)


class Search:
    """One question put to the legs, on one snapshot."""

    def __init__(
        self,
        reader: Reader,
        tokenizer: Tokenizer,
        settings: Settings,
        question: Question,
        where: RowFilter,
        limit: int,
        floors: Mapping[str, float],
    ) -> None:
        self.reader = reader
        self.tokenizer = tokenizer
        self.settings = settings
        self.question = question
        self.where = where
        self.limit = limit
        self.floors = floors
        self.usual_depth = self.depth = min(limit * settings.candidate_factor, MAX_LIMIT)
        self.tokens = tokenizer.query(question.query)
        self.looked_for = self.tokens
        self.left_out: tuple[str, ...] = ()
        if settings.stop_words:
            self.looked_for, self.left_out = without_stop_words(self.tokens)
        self.sentences, more = sentences(
            question.query, tokenizer, settings.sentences, stop_words=settings.stop_words
        )
        # what the text leg is asked, one after another: sentences that are not asked alone are so in the whole query
        self.parts = [sentence.looked_for for sentence in self.sentences]
        if more or not self.parts:
            self.parts.append(self.looked_for)
        self.legs = Legs()
        self._turns: dict[Ref, Turn] = {}
        self._beside: dict[Ref, Beside] = {}
        self._met: set[Ref] = set()

    def deeper(self, times: int) -> "Search":
        """The same question, for more candidates."""
        search = Search(
            self.reader, self.tokenizer, self.settings, self.question, self.where, self.limit, self.floors
        )
        search.depth = min(self.depth * times, MAX_LIMIT)
        return search

    @property
    def widened(self) -> bool:
        return self.depth > self.usual_depth

    @property
    def exhausted(self) -> bool:
        """Whether a leg brought all that it was asked for, so that there may be more."""
        return any(len(ranks) >= self.depth for ranks in self.legs.ranks.values())

    def neighbour_weights(self, leg: Leg) -> Weights | None:
        """Memories stand alone; messages stand in a conversation."""
        weights = self.settings.neighbour_weights.get(leg, (0.0, 0.0))
        return weights if self.question.layer == "messages" and any(weights) else None

    def _pool(self, leg: Leg) -> int:
        if self.neighbour_weights(leg) is None:
            return self.depth
        return min(self.depth * self.settings.pool_factor, MAX_LIMIT)

    def _above_floor(self, leg: Leg, candidates: Sequence[Candidate]) -> list[Candidate]:
        floor = self.floors.get(leg)
        return [c for c in candidates if floor is None or c.score >= floor]

    # --- text ----------------------------------------------------------------------------------------------

    def text(self) -> None:
        """BM25 over the words that mean something; rows that hold the whole query literally go first."""
        if not self.tokens:
            return
        candidates = self._lifted_by_text(
            self._by_sentences() if self.sentences else self._by_words(self.looked_for)
        )
        self.legs.add("text", candidates)  # stands if the deadline comes before the literal check is through
        self._literal_first(candidates)

    def _by_words(self, looked_for: QueryTokens) -> list[Candidate]:
        found = self.reader.text_search(self.question.layer, looked_for, self.where, self._pool("text"))
        return self._above_floor("text", found)

    def _by_sentences(self) -> list[Candidate]:
        """Each row by the sentence that it answers best: its part of the best score of that sentence. (Scores of two
        sentences are not comparable: one may hold a word that nobody else uses.)"""
        found: dict[Ref, Candidate] = {}
        for looked_for in self.parts:
            candidates = self._by_words(looked_for)
            for candidate in candidates:
                share = (
                    round(candidate.score / candidates[0].score, TEXT_DIGITS) if candidates[0].score else 0.0
                )
                if candidate.ref not in found or found[candidate.ref].score < share:
                    found[candidate.ref] = replace(candidate, score=share)
        best = sorted(found.values(), key=lambda candidate: (-candidate.score, *candidate.tie))
        return best[: self._pool("text")]

    def _lifted_by_text(self, pool: list[Candidate]) -> list[Candidate]:
        own = {candidate.ref: candidate.score for candidate in pool}
        self.legs.scores["text"] = own
        weights = self.neighbour_weights("text")
        if weights is None or not pool:
            return pool[: self.depth]
        self._meet(own)
        lifted = sums(near(own, self._beside), own, self._beside, weights)
        lifted = {ref: round(score, TEXT_DIGITS) for ref, score in lifted.items()}
        # a turn that lends nothing (weight 0) brings no row in either
        self.legs.lifted["text"] = lifted = {ref: s for ref, s in lifted.items() if s > 0 or ref in own}
        return ranked(lifted, {c.ref: c for c in pool}, self._turns, self.depth)

    def _literal_first(self, candidates: list[Candidate]) -> None:
        found = self._literal_rows()
        by_ref = {candidate.ref: candidate for candidate in candidates}
        missing = [Candidate(ref, 0.0, 0, 0, "") for ref in found if ref not in by_ref]
        if len(found) > self.limit:  # too many to be certain of: they fill up what ranking left free
            self.legs.add("text", [*candidates, *missing][: self.depth])
            return
        self.legs.literal = found
        first = [candidate for candidate in candidates if candidate.ref in found]
        rest = [candidate for candidate in candidates if candidate.ref not in found]
        self.legs.add("text", [*first, *missing, *rest])

    def _literal_rows(self) -> dict[Ref, int]:
        """Rows that hold the whole query literally, newest first; one more than fit into the answer at most."""
        wanted = self.tokenizer.squeezed(self.question.query)
        found: dict[Ref, int] = {}
        for ref, text in self.reader.phrase_rows(self.question.layer, self.tokens, self.where):
            if wanted in self.tokenizer.squeezed(text):
                found[ref] = len(found)
                if len(found) > self.limit:
                    break
        return found

    # --- vector --------------------------------------------------------------------------------------------

    def vector(self, generation: Generation, query: "NDArray[np.float32]") -> None:
        """Cosine to the query, of which each sentence may have a vector too (see :meth:`Reader.vector_search`). A row
        whose vector is still to come takes its text rank."""
        self.legs.generation, self.legs.query_vector = generation, query
        layer = self.question.layer
        found = self.reader.vector_search(layer, generation.number, query, self.where, self._pool("vector"))
        pool = self._above_floor("vector", found)
        self.legs.add("vector", self._lifted_by_vectors(generation, query, pool))
        text_ranks = self.legs.ranks.get("text", {})
        if text_ranks:
            self.legs.pending = self.reader.without_vector(layer, generation.number, list(text_ranks))
            for ref in self.legs.pending:
                self.legs.ranks["vector"][ref] = text_ranks[ref]
            self.legs.coverage = self._coverage(next(iter(text_ranks)))

    def _lifted_by_vectors(
        self, generation: Generation, query: "NDArray[np.float32]", pool: list[Candidate]
    ) -> list[Candidate]:
        own = {candidate.ref: candidate.score for candidate in pool}
        self.legs.scores["vector"] = own
        weights = self.neighbour_weights("vector")
        if weights is None or not pool:
            return pool[: self.depth]
        self._meet(own)
        refs = near(own, self._beside)
        vectors = self.reader.vectors(self.question.layer, generation.number, near(refs, self._beside))
        lifted = cosines(refs, query, vectors, self._beside, weights)
        self.legs.lifted["vector"] = lifted
        return ranked(lifted, {c.ref: c for c in pool}, self._turns, self.depth)

    # --- neighbours and coverage ---------------------------------------------------------------------------

    def _meet(self, pool: Iterable[Ref]) -> None:
        """Get to know the turns beside the rows of a pool, and those beside these."""
        unknown = [ref for ref in pool if ref not in self._met]
        turns = self.reader.turns_around(unknown, self.where) if unknown else []
        self._met.update(unknown)
        self._turns |= {turn.ref: turn for turn in turns}
        everyone = sorted(self._turns.values(), key=lambda turn: (turn.session, turn.pos))
        self._beside = beside(everyone, self.settings.neighbour_gap_s)

    def together(self, ref: Ref) -> Iterator[Ref]:
        """A row and the turns beside it."""
        yield ref
        yield from self._beside.get(ref, ALONE)

    def _coverage(self, best: Ref) -> float:
        """The part of the query's words that the best text row holds, with the turns beside it."""
        words = set(self.looked_for.words)
        if best in self.legs.literal or not words or not self.settings.full_coverage:
            return 1.0
        held = self.reader.held_tokens(
            self.question.layer, self.where.team_id, list(self.together(best)), self.looked_for
        )
        return len(words & set().union(*held.values())) / len(words)

    def weight(self, leg: Leg) -> float:
        """What a leg counts in fusion. Of a query that its best row hardly covers (a long story, a vague hint) word
        matches say little: the text leg then counts less."""
        weight = self.settings.leg_weight(leg)
        full = self.settings.full_coverage
        if leg == "vector" or self.legs.coverage is None or not full:
            return weight
        return weight * min(1.0, self.legs.coverage / full)
