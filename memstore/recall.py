"""Recall: two independent legs, fused by reciprocal rank, explained (SPEC section 3)."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from memstore.access import Operation, Principal, decide
from memstore.asking import Instant, principal, row_filter
from memstore.clock import Clock
from memstore.config import MAX_LIMIT, Settings
from memstore.embedding import Embedder, EmbedderIdentity, check_query, embeddable
from memstore.errors import EmbedderMismatch, EmbeddingError, InvalidInput
from memstore.ranking import fuse_ranks, keep_within
from memstore.storage.base import Candidate, MemoryRow, MessageRow, Reader, Ref, RowFilter, Storage
from memstore.text import QueryTokens, Tokenizer, squeezed
from memstore.times import from_micros, to_micros
from memstore.types import Degraded, Explanation, Hit, Layer, Leg, LegReport, Recall, Scope, check_limit
from memstore.views import memory, stored_message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("memstore")

MAX_TIMEOUT_S = 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller asked for, as it was passed. See :meth:`memstore.store.MemoryStore.recall`."""

    query: str
    layer: Layer
    limit: int = 5
    kinds: Sequence[str] | None = None
    roles: Sequence[str] | None = None
    since: object = None
    until: object = None
    as_of: object = None
    session: str | None = None
    metadata: Mapping[str, Any] | None = None
    include_history: bool = False
    live_only: bool = False
    explain: bool = False
    timeout_s: float = 5.0


@dataclass(slots=True)
class _Legs:
    """What the legs brought: ranks from 1, scores, and what is known for certain."""

    ranks: dict[Leg, dict[Ref, int]] = field(default_factory=dict)
    scores: dict[Leg, dict[Ref, float]] = field(default_factory=dict)
    ties: dict[Ref, tuple[Any, ...]] = field(default_factory=dict)
    literal: dict[Ref, int] = field(default_factory=dict)
    pending: set[Ref] = field(default_factory=set)
    degraded: list[Degraded] = field(default_factory=list)

    def add(self, leg: Leg, candidates: Sequence[Candidate]) -> None:
        self.ranks[leg] = {c.ref: rank for rank, c in enumerate(candidates, 1)}
        self.scores[leg] = {c.ref: c.score for c in candidates}
        for candidate in candidates:
            self.ties.setdefault(candidate.ref, candidate.tie)


class _Call:
    """One embedding of a query: what was asked, and what came of it."""

    def __init__(self, text: str, identity: EmbedderIdentity) -> None:
        self.text = text
        self.identity = identity
        self.done = threading.Event()
        self.vector: NDArray[np.float32] | None = None
        self.error: EmbeddingError | None = None

    def run(self, embedder: Embedder) -> None:
        try:
            _check_identity(embedder.identity, self.identity)
            self.vector = check_query(embedder.embed_query(self.text), self.identity.dim)
        except EmbeddingError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - a user's model may raise anything, SystemExit too
            self.error = EmbeddingError(f"the embedder failed: {type(error).__name__}: {error}")
        finally:
            self.done.set()


class QueryEmbedding:
    """The embedder for queries, called in one daemon thread. A hung model cannot be stopped from Python: once a
    call has missed its deadline, later recalls do without the model at once until that call has come back."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: _Call | None = None
        self._lock = threading.Lock()

    def start(self, text: str, identity: EmbedderIdentity) -> _Call:
        """Begin to embed. Loading the model and asking for its identity happen in the thread too: they may take
        longer than any deadline.

        :raises TimeoutError: while an earlier call is overdue.
        """
        with self._lock:
            if self._late is not None and not self._late.done.is_set():
                raise TimeoutError("an earlier call of the embedder has not come back yet")
            self._late = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="memstore-embed-query", daemon=True)
                self._thread.start()
            call = _Call(text, identity)
            self._calls.put(call)
            return call

    def wait(self, call: _Call, seconds: float) -> "NDArray[np.float32]":
        """The vector of a call.

        :raises TimeoutError: when it takes longer. :raises EmbeddingError: another identity than the store's, or
            the model failed.
        """
        if not call.done.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX)):
            self._late = call
            raise TimeoutError("the embedder did not answer before the deadline")
        if call.vector is None:
            raise call.error or EmbeddingError("the embedder gave no vector")
        return call.vector

    def close(self) -> None:
        """Let the thread end once it has nothing left to do."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run(self._embedder)


def _check_identity(found: EmbedderIdentity, wanted: EmbedderIdentity) -> None:
    if found != wanted:
        raise EmbedderMismatch(
            f"the store's vectors are of {wanted.model} ({wanted.revision}, {wanted.dim} dimensions), the embedder "
            f"is {found.model} ({found.revision}, {found.dim}); run reindex() to change over"
        )


class Recaller:
    """Answers questions over one layer."""

    def __init__(
        self,
        storage: Storage,
        tokenizer: Tokenizer,
        embedding: QueryEmbedding | None,
        settings: Settings,
        clock: Clock,
        instant: Instant,
    ) -> None:
        self._storage = storage
        self._tokenizer = tokenizer
        self._embedding = embedding
        self._settings = settings
        self._clock = clock
        self._instant = instant
        self._warned: set[str] = set()

    def recall(self, scope: Scope, question: Question) -> Recall:
        """Ask both legs, fuse, and read the rows that are returned."""
        started = self._clock.monotonic()
        _check(question)
        limit = check_limit(question.limit, MAX_LIMIT)
        if limit == 0:
            return Recall((), (), 0.0)
        deadline = started + question.timeout_s
        with self._storage.read() as reader:
            asker = principal(reader, scope)
            where = self._filter(asker, question)
            legs = self._ask(reader, question, where, limit, deadline)
            refs, scores = self._fused(legs, limit)
            hits = self._hits(reader, asker, question, legs, refs, scores)
        took_ms = (self._clock.monotonic() - started) * 1000
        return Recall(tuple(hits), tuple(legs.degraded), round(took_ms, 3))

    def _filter(self, asker: Principal, question: Question) -> RowFilter:
        return row_filter(
            asker,
            "search" if question.layer == "messages" else "recall",
            question.layer,
            now=to_micros(self._clock.now()),
            kinds=question.kinds,
            roles=question.roles,
            session=question.session,
            since=self._instant(question.since),
            until=self._instant(question.until),
            as_of=self._instant(question.as_of),
            metadata=question.metadata,
            include_history=question.include_history,
            live_only=question.live_only,
        )

    # --- legs ----------------------------------------------------------------------------------------------

    def _ask(
        self, reader: Reader, question: Question, where: RowFilter, limit: int, deadline: float
    ) -> _Legs:
        legs = _Legs()
        depth = min(limit * self._settings.candidate_factor, MAX_LIMIT)
        waiting = self._start_embedding(reader, question, legs)
        late = lambda: self._clock.monotonic() > deadline  # noqa: E731 - asked from inside SQLite
        try:
            with reader.interruptible(late):
                self._text_leg(reader, question, where, limit, depth, legs)
        except TimeoutError as error:
            legs.degraded.append(self._degraded("text", error))
        if waiting is not None:
            generation, wait = waiting
            try:
                vector = wait(deadline - self._clock.monotonic())
                with reader.interruptible(late):
                    candidates = reader.vector_search(question.layer, generation, vector, where, depth)
                    self._vector_leg(reader, question.layer, generation, candidates, legs)
            except (EmbeddingError, TimeoutError) as error:
                legs.degraded.append(self._degraded("vector", error))
        return legs

    def _start_embedding(
        self, reader: Reader, question: Question, legs: _Legs
    ) -> "tuple[int, Callable[[float], NDArray[np.float32]]] | None":
        """Begin with the slow part, if the store has vectors of the embedder's own space."""
        text = embeddable(question.query)  # bounded, as documents are: a model may take minutes for a book
        if self._embedding is None or text is None:
            return None
        generation = reader.generation("active")
        if generation is None:
            legs.degraded.append(Degraded("vector", "the store has no vectors yet; run index()"))
            return None
        try:
            call = self._embedding.start(text, generation.identity)
            return generation.number, partial(self._embedding.wait, call)
        except TimeoutError as error:
            legs.degraded.append(self._degraded("vector", error))
            return None

    def _degraded(self, leg: Leg, error: Exception) -> Degraded:
        """Say once in the log, and in every answer, that a leg is missing."""
        if str(error) not in self._warned:
            self._warned.add(str(error))
            logger.warning("recall without the %s leg: %s", leg, error)
        return Degraded(leg, str(error))

    def _text_leg(
        self, reader: Reader, question: Question, where: RowFilter, limit: int, depth: int, legs: _Legs
    ) -> None:
        tokens = self._tokenizer.query(question.query)
        if not tokens:
            return
        candidates = reader.text_search(question.layer, tokens, where, depth)
        legs.add("text", candidates)  # stands if the deadline comes before the literal check is through
        found = self._literal_rows(reader, question, tokens, where, limit)
        if len(found) > limit:  # too many to be certain of each: they only fill up what ranking left free
            ranked = {c.ref for c in candidates}
            filling = [Candidate(ref, 0.0, 0, 0, "") for ref in found if ref not in ranked]
            legs.add("text", [*candidates, *filling][:depth])
            return
        legs.literal = found
        first = [c for c in candidates if c.ref in legs.literal]
        first.sort(key=lambda c: (-c.score, *c.tie))
        ranked = {c.ref for c in first}
        missing = [Candidate(ref, 0.0, 0, 0, "") for ref in legs.literal if ref not in ranked]
        rest = [c for c in candidates if c.ref not in legs.literal]
        legs.add("text", [*first, *missing, *rest])

    def _literal_rows(
        self, reader: Reader, question: Question, tokens: QueryTokens, where: RowFilter, limit: int
    ) -> dict[Ref, int]:
        """Rows that hold the whole query literally, newest first; one more than fit into the answer at most."""
        wanted = squeezed(question.query)
        found: dict[Ref, int] = {}
        for ref, text in reader.phrase_rows(question.layer, tokens, where):
            if wanted in squeezed(text):
                found[ref] = len(found)
                if len(found) > limit:
                    break
        return found

    def _vector_leg(
        self, reader: Reader, layer: Layer, generation: int, candidates: Sequence[Candidate], legs: _Legs
    ) -> None:
        legs.add("vector", candidates)
        text_ranks = legs.ranks.get("text", {})
        if text_ranks:
            legs.pending = reader.without_vector(layer, generation, list(text_ranks))
            for ref in legs.pending:  # no vector yet: its text rank stands for it
                legs.ranks["vector"][ref] = text_ranks[ref]

    # --- fusion and answer ---------------------------------------------------------------------------------

    def _fused(self, legs: _Legs, limit: int) -> tuple[list[Ref], dict[Ref, float]]:
        order: tuple[Leg, ...] = ("text", "vector")
        fused = fuse_ranks(
            [legs.ranks.get(leg, {}) for leg in order],
            self._settings.rrf_k,
            weights=[self._settings.leg_weight(leg) for leg in order],
            tie_break=lambda ref: legs.ties.get(ref, ()),
        )
        return keep_within([ref for ref, _ in fused], legs.literal, limit), dict(fused)

    def _hits(
        self,
        reader: Reader,
        asker: Principal,
        question: Question,
        legs: _Legs,
        refs: Sequence[Ref],
        scores: Mapping[Ref, float],
    ) -> list[Hit]:
        rows: Mapping[Ref, MessageRow | MemoryRow] = (
            reader.message_rows(refs) if question.layer == "messages" else reader.memory_rows(refs)
        )
        tokens = self._tokenizer.query(question.query) if question.explain else None
        hits: list[Hit] = []
        for ref in refs:
            row = rows[ref]
            rule = self._rule(asker, question, row)
            if rule is None:
                continue
            explanation = None
            if tokens is not None:
                own = row.user_id == asker.scope.user_id
                explanation = self._explanation(reader, asker, question, legs, ref, tokens, rule, own=own)
            hits.append(_hit(row, question.layer, scores[ref], len(hits) + 1, explanation))
        return hits

    def _rule(self, asker: Principal, question: Question, row: MessageRow | MemoryRow) -> str | None:
        """The rule that lets the asker see the row. The filter has decided already: a denial here is an alarm."""
        facts = {
            "team_id": row.team_id,
            "user_id": row.user_id,
            "visibility": row.visibility if isinstance(row, MemoryRow) else "private",
            "state": row.state,
        }
        history = question.include_history or question.as_of is not None
        operation: Operation = "search" if question.layer == "messages" else "recall"
        decision = decide(asker, operation, facts, history=history)
        if decision.allowed:
            return decision.rule
        logger.error("a leg returned row %s that the rules deny (%s); it was dropped", row.id, decision.rule)
        return None

    def _explanation(
        self,
        reader: Reader,
        asker: Principal,
        question: Question,
        legs: _Legs,
        ref: Ref,
        tokens: QueryTokens,
        rule: str,
        *,
        own: bool,
    ) -> Explanation:
        """``own``: the asker owns the row. Raw scores are shown for no others: they carry statistics of rows that
        the asker may not see."""
        reports: dict[str, LegReport] = {}
        for leg, ranks in legs.ranks.items():
            if ref not in ranks:
                continue
            note = None
            if leg == "vector" and ref in legs.pending:
                note = "its vector is not computed yet; the text rank stands for it"
            elif leg == "text" and ref in legs.literal:
                note = "holds the query literally"
            reports[leg] = LegReport(
                rank=ranks[ref],
                score=legs.scores[leg].get(ref, 0.0) if own else None,
                term=self._settings.leg_weight(leg) / (self._settings.rrf_k + ranks[ref]),
                note=note,
            )
        matched = reader.matched_tokens(question.layer, asker.scope.team_id, ref, tokens)
        return Explanation(reports, matched, rule, ref in legs.literal)


def _check(question: Question) -> None:
    if not isinstance(question.query, str):
        raise InvalidInput(f"a query is text, not {type(question.query).__name__}")
    if isinstance(question.timeout_s, bool) or not isinstance(question.timeout_s, int | float):
        raise InvalidInput(f"timeout_s must be a number of seconds, not {question.timeout_s!r}")
    if not 0 < question.timeout_s <= MAX_TIMEOUT_S:
        raise InvalidInput(f"timeout_s must be more than 0 and at most {MAX_TIMEOUT_S} seconds")


def _hit(
    row: MessageRow | MemoryRow, layer: Layer, score: float, rank: int, explanation: Explanation | None
) -> Hit:
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
            explanation=explanation,
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
        explanation=explanation,
    )
