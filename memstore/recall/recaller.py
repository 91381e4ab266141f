"""Recall: two independent legs, fused by reciprocal rank, explained (SPEC section 3)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from memstore.access import Principal, decide
from memstore.asking import Instant, principal, row_facts, row_filter
from memstore.clock import Clock
from memstore.config import MAX_LIMIT, Settings
from memstore.embedding import embeddable
from memstore.errors import EmbeddingError
from memstore.ranking import fuse_ranks, keep_within
from memstore.recall import floors, late
from memstore.recall.explaining import Explainer
from memstore.recall.legs import Search
from memstore.recall.query_embedding import QueryEmbedding, QueryVectors
from memstore.recall.question import Question
from memstore.recall.sentences import Sentence, sentences
from memstore.storage.base import Generation, Reader, Ref, RowFilter, Storage
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import from_micros, to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import LEGS, Degraded, Hit, Layer, Leg, Recall, RecallExplanation, Scope, check_limit
from memstore.views import memory, stored_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

logger = logging.getLogger("memstore")

DEEPER = 8
"""Where one source filled what the legs brought, they are asked again for so many times as much."""

Rows = Mapping[Ref, MessageRow | MemoryRow]


@dataclass(slots=True)
class Order:
    """The candidates after fusion, best first, and what became of them.

    ``crowded``: one source may have kept the rows of others from being candidates.
    """

    refs: list[Ref]
    scores: dict[Ref, float]
    factors: dict[Ref, dict[str, float]] = field(default_factory=dict)
    twins: dict[Ref, Ref] = field(default_factory=dict)
    capped: set[Ref] = field(default_factory=set)
    crowded: bool = False
    returned: list[Ref] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """A recall with all that it went through, on the snapshot on which it was found."""

    recall: Recall
    search: Search
    order: Order
    asker: Principal
    where: RowFilter
    now: int


class Recaller:
    """Answers questions over one layer."""

    def __init__(
        self,
        storage: Storage,
        tokenizers: Tokenizers,
        embedding: QueryEmbedding | None,
        settings: Settings,
        clock: Clock,
        instant: Instant,
    ) -> None:
        self._storage = storage
        self._tokenizers = tokenizers
        self._embedding = embedding
        self.settings = settings
        self._clock = clock
        self._instant = instant
        self._warned: set[str] = set()

    def recall(self, scope: Scope, question: Question) -> Recall:
        """Ask both legs, fuse, and read the rows that are returned."""
        question.check()
        if check_limit(question.limit, MAX_LIMIT) == 0:
            return Recall((), (), 0.0)
        with self.snapshot() as reader:
            return self.answer(reader, scope, question).recall

    @contextmanager
    def snapshot(self) -> "Iterator[Reader]":
        """One consistent view of the store, for a recall and what looks into it."""
        with self._storage.read() as reader:
            yield reader

    def embedded(self, scope: Scope, question: Question) -> QueryVectors | None:
        """Embed a question with no snapshot open, for :meth:`answer`: while one is, the write-ahead log cannot be emptied.
        None where there is nothing to embed or to compare with, and where the embedder fails or is late."""
        if self._embedding is None:
            return None
        deadline = self._clock.monotonic() + question.timeout_s
        with self.snapshot() as reader:
            generation = reader.generation("active")
            tokenizer = self._tokenizers.of(reader, scope.team_id)
        settings = self.settings
        parts, _ = sentences(question.query, tokenizer, settings.sentences, stop_words=settings.stop_words)
        texts = _embedded_texts(question, parts)
        if generation is None or not texts:
            return None
        try:
            call = self._embedding.start(texts, generation.identity)
            vectors = self._embedding.wait(call, deadline - self._clock.monotonic())
        except (EmbeddingError, TimeoutError) as error:
            self._degraded("vector", error)
            return None
        return QueryVectors(generation.number, vectors)

    def answer(
        self,
        reader: Reader,
        scope: Scope,
        question: Question,
        *,
        now: int | None = None,
        settings: Settings | None = None,
        legs: Sequence[Leg] = LEGS,
        embed: "Callable[[Generation], Vectors] | None" = None,
    ) -> Answer:
        """Answer on this snapshot.

        :param now: the instant at which current rows are judged, and ages (microseconds).
        :param legs: those that take part.
        :param embed: gives the query's vectors in a generation's space, in place of the store's embedder.
            It may raise EmbeddingError or TimeoutError.
        """
        started = self._clock.monotonic()
        deadline = started + question.timeout_s
        settings = settings or self.settings
        now = to_micros(self._clock.now()) if now is None else now
        limit = check_limit(question.limit, MAX_LIMIT)
        asker = principal(reader, scope)
        where = self._filter(asker, question, now)
        search = Search(
            reader,
            self._tokenizers.of(reader, scope.team_id),
            settings,
            question,
            where,
            limit,
            floors.of(reader, settings),
        )
        self._ask(search, deadline, legs, embed)
        order = self._ordered(search, settings, limit, now)
        while order.crowded and search.depth < MAX_LIMIT:
            deeper = search.deeper(DEEPER)
            self._ask(deeper, deadline, legs, _asked_before(search) or embed)
            if len(deeper.legs.degraded) > len(search.legs.degraded):
                break  # no time for it: what was found stands
            search, order = deeper, self._ordered(deeper, settings, limit, now)
        rows = _rows(reader, question.layer, order.refs if question.explain else order.returned)
        whole = Explainer(search, settings, asker, rows).whole(order) if question.explain else None
        hits = self._hits(asker, question, order, rows, whole)
        recall = Recall(
            tuple(hits),
            tuple(search.legs.degraded),
            round((self._clock.monotonic() - started) * 1000, 3),
            whole,
        )
        return Answer(recall, search, order, asker, where, now)

    def deadline(self, seconds: float) -> Callable[[], bool]:
        """Tells from then on whether so many seconds have passed."""
        end = self._clock.monotonic() + seconds
        return lambda: self._clock.monotonic() > end

    def _filter(self, asker: Principal, question: Question, now: int) -> RowFilter:
        where = row_filter(
            asker,
            question.operation,
            question.layer,
            now=now,
            kinds=question.kinds,
            roles=question.roles,
            session=question.session,
            since=self._instant(question.since),
            until=self._instant(question.until),
            as_of=self._instant(question.as_of),
            known_at=self._instant(question.known_at),
            metadata=question.metadata,
            include_history=question.include_history,
            live_only=question.live_only,
        )
        return replace(where, shared=False) if question.own_only else where

    # --- legs ----------------------------------------------------------------------------------------------

    def _ask(
        self,
        search: Search,
        deadline: float,
        legs: Sequence[Leg],
        embed: "Callable[[Generation], Vectors] | None",
    ) -> None:
        reader, degraded = search.reader, search.legs.degraded
        late_by = lambda: self._clock.monotonic() > deadline  # noqa: E731 - asked from inside SQLite
        waiting = self._begun(search, deadline, embed) if "vector" in legs else None
        try:
            with reader.interruptible(late_by):
                search.text()
        except TimeoutError as error:
            degraded.append(self._degraded("text", error))
        if waiting is None:
            return
        generation, vector = waiting
        try:
            query = vector()
            with reader.interruptible(late_by):
                search.vector(generation, query)
        except (EmbeddingError, TimeoutError) as error:
            degraded.append(self._degraded("vector", error))

    def _begun(
        self, search: Search, deadline: float, embed: "Callable[[Generation], Vectors] | None"
    ) -> "tuple[Generation, Callable[[], Vectors]] | None":
        """Begin with the slow part, if the store has vectors of the embedder's own space."""
        texts = _embedded_texts(search.question, search.sentences)
        if not texts or (embed is None and self._embedding is None):
            return None
        generation = search.reader.generation("active")
        if generation is None:
            search.legs.degraded.append(
                Degraded("vector", "the store has no vectors yet; run index() (memstore index)")
            )
            return None
        if embed is not None:
            return generation, partial(embed, generation)
        assert self._embedding is not None  # noqa: S101 - asked above
        try:
            call = self._embedding.start(texts, generation.identity)
        except TimeoutError as error:
            search.legs.degraded.append(self._degraded("vector", error))
            return None
        embedding = self._embedding
        return generation, lambda: embedding.wait(call, deadline - self._clock.monotonic())

    def _degraded(self, leg: Leg, error: Exception) -> Degraded:
        """Say once in the log, and in every answer, that a leg is missing."""
        if str(error) not in self._warned:
            self._warned.add(str(error))
            logger.warning("recall without the %s leg: %s", leg, error)
        return Degraded(leg, str(error))

    # --- fusion and answer ---------------------------------------------------------------------------------

    def _ordered(self, search: Search, settings: Settings, limit: int, now: int) -> Order:
        legs = search.legs
        fused = fuse_ranks(
            [legs.ranks.get(leg, {}) for leg in LEGS],
            settings.rrf_k,
            weights=[search.weight(leg) for leg in LEGS],
            tie_break=lambda ref: legs.ties.get(ref, ()),
        )
        order = Order([ref for ref, _ in fused], dict(fused))
        rows: Rows = {}
        if late.wanted(settings) and order.refs:
            rows = _rows(search.reader, search.question.layer, order.refs)
            self._apply_late(order, rows, search, settings, now)
        certain = {ref: place for ref, place in legs.literal.items() if ref not in order.twins}
        distinct = [ref for ref in order.refs if ref not in order.twins]
        if settings.source_share is not None:
            sources = {ref: _source(rows[ref]) for ref in distinct}
            certain_first = sorted(distinct, key=lambda ref: ref not in certain)
            order.capped = late.beyond_share(certain_first, sources, limit, settings.source_share)
            distinct = [ref for ref in distinct if ref not in order.capped]
            certain = {ref: place for ref, place in certain.items() if ref not in order.capped}
            order.crowded = search.exhausted and (len(distinct) < limit or len(set(sources.values())) == 1)
        order.returned = keep_within(distinct, certain, limit)
        return order

    def _apply_late(self, order: Order, rows: Rows, search: Search, settings: Settings, now: int) -> None:
        if search.widened:
            sources = {ref: _source(row) for ref, row in rows.items()}
            order.refs = late.first_of_each(order.refs, sources, search.usual_depth, 4 * search.usual_depth)
        for ref in order.refs:
            order.factors[ref] = found = late.factors(_facts(rows[ref], now), settings)
            for factor in found.values():
                order.scores[ref] *= factor
        # Stable: ties stay as fusion left them. Twelve digits that count, not decimals: old rows score very little.
        order.refs.sort(key=lambda ref: -float(f"{order.scores[ref]:.12g}"))
        if settings.collapse_similarity is not None:
            words = {ref: search.tokenizer.index(_text(rows[ref])).words.split() for ref in order.refs}
            twins = late.duplicates(order.refs, words, settings.collapse_similarity)
            certain = search.legs.literal  # is not hidden behind a row that is not
            order.twins = {ref: of for ref, of in twins.items() if ref not in certain or of in certain}

    def _hits(
        self,
        asker: Principal,
        question: Question,
        order: Order,
        rows: Rows,
        whole: RecallExplanation | None,
    ) -> list[Hit]:
        candidates = () if whole is None else whole.candidates
        explained = {ref: found.explanation for ref, found in zip(order.refs, candidates, strict=False)}
        hits: list[Hit] = []
        for ref in order.returned:
            if _allowed(asker, question, rows[ref]):
                hit = _hit(rows[ref], question.layer, order.scores[ref], len(hits) + 1)
                hits.append(replace(hit, explanation=explained.get(ref)))
        return hits


def _embedded_texts(question: Question, parts: Sequence[Sentence]) -> list[str]:
    """The query as a whole and by its sentences; bounded, as documents are: a model may take minutes for a book."""
    texts = (question.query, *(part.text for part in parts))
    return [text for text in map(embeddable, texts) if text is not None]


def _asked_before(search: Search) -> "Callable[[Generation], Vectors] | None":
    """The query's vectors as they were asked with; None where no vector was."""
    vectors = search.legs.query_vector
    return None if vectors is None else lambda _generation: vectors


def _source(row: MessageRow | MemoryRow) -> tuple[str, str]:
    """Whose row it is where one source must not take all places: of memories a session's, or whoever made it; of
    messages the speaker's."""
    if isinstance(row, MemoryRow):
        return row.user_id, f"session {row.session}" if row.session is not None else f"actor {row.actor}"
    return row.user_id, f"name {row.name}" if row.name is not None else f"role {row.role}"


def _allowed(asker: Principal, question: Question, row: MessageRow | MemoryRow) -> bool:
    """Whether the asker may see the row. The filter has decided already: a denial here is an alarm."""
    decision = decide(asker, question.operation, row_facts(row), history=question.history)
    if not decision.allowed:
        logger.error("a leg returned row %s that the rules deny (%s); it was dropped", row.id, decision.rule)
    return decision.allowed


def _rows(reader: Reader, layer: Layer, refs: Sequence[Ref]) -> Rows:
    return reader.message_rows(refs) if layer == "messages" else reader.memory_rows(refs)


def _text(row: MessageRow | MemoryRow) -> str:
    return row.content if isinstance(row, MemoryRow) else stored_message(row).text


def _facts(row: MessageRow | MemoryRow, now: int) -> late.Facts:
    said = row.recorded_at if isinstance(row, MemoryRow) else row.created_at
    priority = row.priority if isinstance(row, MemoryRow) else None
    return late.Facts(max(0, now - said) / 1_000_000, priority)


def _hit(row: MessageRow | MemoryRow, layer: Layer, score: float, rank: int) -> Hit:
    if isinstance(row, MessageRow):
        message = stored_message(row)
        return Hit(
            id=row.id,
            content=message.text,
            kind="message",
            score=score,
            rank=rank,
            layer=layer,
            user_id=row.user_id,
            agent_id=row.agent_id,
            task_id=row.task_id,
            session=row.session,
            created_at=from_micros(row.created_at),
            metadata=message.meta,
            role=row.role,
            name=row.name,
            position=row.pos,
        )
    value = memory(row)
    return Hit(
        id=row.id,
        content=row.content,
        kind=row.kind,
        score=score,
        rank=rank,
        layer=layer,
        user_id=row.user_id,
        agent_id=row.agent_id,
        task_id=row.task_id,
        session=row.session,
        created_at=value.recorded_at,
        visibility=value.visibility,
        state=value.state,
        version=row.version,
        priority=row.priority,
        metadata=value.metadata,
    )
