"""Indexing: embed what is stale. Reads, model calls and writes apart, in small transactions: it can be stopped
anywhere and resumes where it was."""

import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memstore.clock import Clock
from memstore.embedding import Embedder, EmbedderIdentity, check_documents, embeddable
from memstore.errors import EmbedderMismatch, EmbeddingError
from memstore.storage.base import NO_GENERATION, Generation, Job, Ref, Storage, TextRow, Writer
from memstore.times import to_micros
from memstore.types import IndexReport, Layer, Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("memstore")

BATCH_ROWS = 64
LEASE_S = 900
RETRY_BASE_S = 30
MAX_ATTEMPTS = 8
LAYERS: tuple[Layer, ...] = ("messages", "memories")


@dataclass(frozen=True, slots=True)
class _Embedded:
    """A batch after the model: rows with a usable vector, and why the others have none."""

    refs: list[Ref]
    vectors: "NDArray[np.float32] | None"
    reasons: dict[Ref, str]


class Indexer:
    """Fills the vectors of one embedding generation."""

    def __init__(self, storage: Storage, embedder: Embedder | None, clock: Clock) -> None:
        self._storage = storage
        self._embedder = embedder
        self._clock = clock

    def _now(self) -> int:
        return to_micros(self._clock.now())

    def run(self, progress: Progress | None = None) -> IndexReport:
        """Embed every row that waits for a vector of the active generation. Without an embedder nothing is done,
        and the report says how many rows wait.

        :raises EmbedderMismatch: when the store's vectors are another model's.
        :raises EmbeddingError: when the model fails; what was embedded before stays.
        """
        if self._embedder is None:
            return self._without_embedder()
        active = self._active_generation(self._embedder)
        jobs = list(self._claimed_jobs())
        try:
            report = self._begun(progress) if active is None else self.fill(active, progress)
        except EmbeddingError as error:
            self._give_up(jobs, error)
            raise
        with self._storage.write() as tx:
            for job in jobs:
                tx.finish(job)
            tx.drop_dead("index")
        return report

    def change_over(self, progress: Progress | None = None) -> IndexReport:
        """Bring the store to this embedder: build its generation beside the active one, then switch in one step.

        Searches go on with the old vectors until then. Resumes a build that was stopped; a build for yet another
        model is given up.
        """
        if self._embedder is None:
            return self._without_embedder()
        identity = self._embedder.identity
        with self._storage.read() as reader:
            if reader.generation("active") is None:
                return self._begun(progress)
        with self._storage.write() as tx:
            active = tx.generation("active")
            if active is None or active.identity == identity:
                target = active or tx.new_generation(identity, "active", self._now())
            else:
                building = tx.generation("building")
                if building is not None and building.identity != identity:
                    tx.retire(building.number)
                    building = None
                target = building or tx.new_generation(identity, "building", self._now())
            tx.requeue(target.number)
        while True:
            report = self.fill(target, progress)
            if target.state == "active":
                return report
            with self._storage.write() as tx:
                if report.embedded + report.refused == 0:
                    tx.requeue(target.number)  # takes out what waits without a row
                if tx.pending_count(target.number) == 0:  # nothing came in between
                    tx.activate(target.number, self._now())
                    return report

    def fill(self, generation: Generation, progress: Progress | None) -> IndexReport:
        """Embed what waits in one generation, batch by batch."""
        embedded = refused = done = 0
        with self._storage.read() as reader:
            total = reader.pending_count(generation.number)
        for layer, rows in self._batches(generation.number):
            stored, unusable = self._embed(generation, layer, rows)
            embedded += stored
            refused += unusable
            done += len(rows)
            if progress is not None:
                progress(done, max(total, done))
        with self._storage.read() as reader:
            pending = reader.pending_count(generation.number)
        return IndexReport(embedded, refused, pending, generation.number)

    def _without_embedder(self) -> IndexReport:
        with self._storage.read() as reader:
            active = reader.generation("active")
            pending = reader.pending_count(active.number if active else 0)
        if pending:
            logger.warning("%d rows wait for vectors; open the store with an embedder to index them", pending)
        return IndexReport(0, 0, pending, active.number if active else None)

    def _active_generation(self, embedder: Embedder) -> Generation | None:
        """The generation that answers searches, None before there is one.

        :raises EmbedderMismatch: when it is another model's.
        """
        with self._storage.read() as reader:
            active = reader.generation("active")
        identity = embedder.identity
        if active is not None:
            _check_same(active, identity)
        return active

    def _begun(self, progress: Progress | None) -> IndexReport:
        """Index a store without vectors. Its first generation is made with the first vectors, so that a model that
        cannot embed leaves nothing behind."""
        assert self._embedder is not None  # noqa: S101 - callers have checked
        identity = self._embedder.identity
        for layer, rows in self._batches(NO_GENERATION):
            embedded = self._embedded(rows, identity)
            with self._storage.write() as tx:
                generation = tx.generation("active") or tx.new_generation(identity, "active", self._now())
                _check_same(
                    generation, identity
                )  # another process may have begun with another model meanwhile
                stored = self._keep(tx, generation.number, layer, embedded)
            rest = self.fill(generation, progress)
            return replace(
                rest, embedded=rest.embedded + stored, refused=rest.refused + len(embedded.reasons)
            )
        return IndexReport(0, 0, 0, None)

    def _batches(self, generation: int) -> Iterator[tuple[Layer, list[TextRow]]]:
        for layer in LAYERS:
            after = Ref(0)
            while True:
                with self._storage.read() as reader:
                    rows = reader.pending(generation, layer, after, BATCH_ROWS)
                if not rows:
                    break
                after = rows[-1].ref
                yield layer, rows

    def _embed(self, generation: Generation, layer: Layer, rows: list[TextRow]) -> tuple[int, int]:
        """Embed one batch outside any transaction, then store it in one; returns (stored, refused)."""
        embedded = self._embedded(rows, generation.identity)
        with self._storage.write() as tx:
            return self._keep(tx, generation.number, layer, embedded), len(embedded.reasons)

    def _embedded(self, rows: list[TextRow], identity: EmbedderIdentity) -> "_Embedded":
        assert self._embedder is not None  # noqa: S101 - callers have checked
        found = [(row.ref, embeddable(row.text)) for row in rows]
        reasons = {ref: "no text to embed" for ref, text in found if text is None}
        texts = [(ref, text) for ref, text in found if text is not None]
        if not texts:
            return _Embedded([], None, reasons)
        raw = _called(self._embedder, [text for _, text in texts])
        vectors, faults = check_documents(raw, len(texts), identity.dim)
        reasons |= {ref: fault for (ref, _), fault in zip(texts, faults, strict=True) if fault}
        good = [i for i, fault in enumerate(faults) if not fault]
        return _Embedded([texts[i][0] for i in good], vectors[good], reasons)

    def _keep(self, tx: Writer, generation: int, layer: Layer, embedded: "_Embedded") -> int:
        tx.refuse_vectors(generation, layer, embedded.reasons)
        if embedded.vectors is None:
            return 0
        return tx.put_vectors(generation, layer, embedded.refs, embedded.vectors)

    def _claimed_jobs(self) -> Iterator[Job]:
        token = secrets.token_hex(8)
        while True:
            with self._storage.write() as tx:
                job = tx.claim("index", token, self._now(), self._now() + LEASE_S * 1_000_000)
            if job is None:
                return
            yield job

    def _give_up(self, jobs: list[Job], error: EmbeddingError) -> None:
        with self._storage.write() as tx:
            for job in jobs:
                self._fail(tx, job, error)

    def _fail(self, tx: Writer, job: Job, error: EmbeddingError) -> None:
        delay = RETRY_BASE_S * 2 ** (job.attempts - 1) * 1_000_000
        tx.fail(job, str(error), self._now() + delay, dead=job.attempts >= MAX_ATTEMPTS)


def _check_same(active: Generation, identity: EmbedderIdentity) -> None:
    if active.identity != identity:
        raise EmbedderMismatch(
            f"the store's vectors are of {active.identity.model} ({active.identity.revision}, "
            f"{active.identity.dim} dimensions), the embedder is {identity.model} ({identity.revision}, "
            f"{identity.dim}); nothing was changed. Run reindex() (memstore reindex) to change over"
        )


def _called(embedder: Embedder, texts: list[str]) -> object:
    try:
        return embedder.embed_documents(texts)
    except EmbeddingError:
        raise
    except Exception as error:
        raise EmbeddingError(f"the embedder failed: {type(error).__name__}: {error}") from error
