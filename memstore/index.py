"""Indexing: embed what is stale. Reads, model calls and writes apart, in small transactions: it can be stopped
anywhere and resumes where it was."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memstore.clock import Clock
from memstore.embedding import (
    Embedder,
    EmbedderIdentity,
    check_documents,
    check_same,
    embeddable,
    identity_of,
)
from memstore.errors import EmbedderMismatch, EmbedderUnavailable, EmbeddingError
from memstore.storage.base import NO_GENERATION, Generation, Reader, Ref, Storage, TextRow, Writer
from memstore.storage.pipeline_rows import Job
from memstore.times import to_micros
from memstore.types import LAYERS, IndexReport, Layer, Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("memstore")

BATCH_ROWS = 64
LEASE_S = 900
RETRY_BASE_S = 30
MAX_ATTEMPTS = 8
FAILURES_OF_A_BROKEN_MODEL = 3
"""So many texts that fail one after another: then it is not the texts."""
PATIENT_PASSES = 8
"""After so many passes a change over no longer waits for a moment in which nothing was recorded."""


@dataclass(frozen=True, slots=True)
class _Embedded:
    """A batch after the model: rows with a usable vector, and why the others have none."""

    refs: list[Ref]
    vectors: "NDArray[np.float32] | None"
    reasons: dict[Ref, str]


@dataclass(slots=True)
class _Tally:
    """What a run has done so far, over all its passes, and whom it tells."""

    progress: Progress | None
    embedded: int = 0
    refused: int = 0
    done: int = 0
    total: int = 0

    def begin(self, waiting: int) -> None:
        self.total = self.done + waiting

    def add(self, rows: int, embedded: int, refused: int) -> None:
        self.done += rows
        self.embedded += embedded
        self.refused += refused
        self.total = max(self.total, self.done)
        if self.progress is not None:
            self.progress(self.done, self.total)


class Indexer:
    """Fills the vectors of one embedding generation."""

    def __init__(self, storage: Storage, embedder: Embedder | None, clock: Clock) -> None:
        self._storage = storage
        self._embedder = embedder
        self._clock = clock

    def _now(self) -> int:
        return to_micros(self._clock.now())

    # --- index ---------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> IndexReport:
        """Embed every row that waits for a vector of the active generation. Without an embedder nothing is done,
        and the report says how many rows wait.

        :raises EmbedderMismatch: when the store's vectors are another model's.
        :raises EmbeddingError: when the model fails; what was embedded before stays.
        """
        if self._embedder is None:
            return self._without_embedder()
        tally = _Tally(progress)
        with (
            self._jobs()
        ):  # asking for the identity may fail as well: an unreachable server is a failed attempt
            target = self._active_generation(self._embedder) or self._begun(
                identity_of(self._embedder), tally
            )
            if target is not None:
                self._fill(target, tally)
        return self._report(target, tally)

    def _without_embedder(self) -> IndexReport:
        with self._storage.read() as reader:
            active = reader.generation("active")
            pending = reader.pending_count(active.number if active else NO_GENERATION)
        if pending:
            logger.warning("%d rows wait for vectors; open the store with an embedder to index them", pending)
        return IndexReport(0, 0, pending, active.number if active else None)

    def _active_generation(self, embedder: Embedder) -> Generation | None:
        """The generation that answers searches, None before there is one.

        :raises EmbedderMismatch: when it is another model's.
        """
        with self._storage.read() as reader:
            active = reader.generation("active")
        identity = identity_of(embedder)
        if active is not None:
            check_same(active.identity, identity)
        return active

    def _begun(self, identity: EmbedderIdentity, tally: _Tally) -> Generation | None:
        """The first generation of a store, None where there is nothing to embed. It is made with the first vectors,
        so that a model that cannot embed leaves nothing behind."""
        with self._storage.read() as reader:
            batch = _first_batch(reader, NO_GENERATION)
        if batch is None:
            return None
        layer, rows = batch
        embedded = self._embedded(rows, identity)
        with self._storage.write() as tx:
            generation = tx.generation("active") or tx.new_generation(identity, "active", self._now())
            check_same(
                generation.identity, identity
            )  # another process may have begun with another model meanwhile
            stored = self._keep(tx, generation.number, layer, embedded)
        tally.add(len(rows), stored, len(embedded.reasons))
        return generation

    # --- reindex -------------------------------------------------------------------------------------------

    def change_over(self, progress: Progress | None = None) -> IndexReport:
        """Bring the store to this embedder: build its generation beside the active one, then switch in one step.

        Searches go on with the old vectors until then. A build that was stopped is resumed, and a retired
        generation of the very same identity is taken up again: only rows without a sound vector are embedded. A
        build for yet another model is given up. With the active generation's own embedder, or with none, the
        vectors are mended.

        :raises EmbedderMismatch: when another process gave this generation up meanwhile.
        :raises EmbeddingError: when the model fails. Before its first vectors nothing is changed; later what was
            embedded stays, and calling again goes on from there.
        """
        if self._embedder is None:
            return self._mended()
        tally = _Tally(progress)
        with self._jobs():
            target = self._target(identity_of(self._embedder), tally)
            if target is None:
                return self._report(None, tally)
            self._fill(target, tally)
            passes = 1
            while target.state == "building" and not self._switched(target, patient=passes < PATIENT_PASSES):
                self._fill(target, tally)
                passes += 1
            if passes >= PATIENT_PASSES:
                self._fill(target, tally)  # what was recorded during the last pass
        return self._report(target, tally)

    def _mended(self) -> IndexReport:
        """Without a model: what is unsound leaves, and waits for a model."""
        with self._storage.write(maintenance=True) as tx:
            active = tx.generation("active")
            tx.requeue(active.number if active else NO_GENERATION)
        return self._without_embedder()

    def _target(self, identity: EmbedderIdentity, tally: _Tally) -> Generation | None:
        """The generation to fill, ready to be filled; None where there is nothing to embed.

        The model is asked for the first vectors before anything is written.
        """
        with self._storage.read() as reader:
            fresh = reader.generation("active") is None
            known = reader.generation_of(identity)
            number = NO_GENERATION if known is None else known.number
            batch = None if fresh else _first_batch(reader, number)
        if fresh:
            return self._begun(identity, tally)
        layer, rows = batch or ("messages", [])
        embedded = self._embedded(rows, identity)
        with self._storage.write(maintenance=True) as tx:
            target = self._taken_up(tx, identity)
            tx.requeue(target.number)
            stored = self._keep(tx, target.number, layer, embedded)
        if rows:
            tally.add(len(rows), stored, len(embedded.reasons))
        return target

    def _taken_up(self, tx: Writer, identity: EmbedderIdentity) -> Generation:
        known = tx.generation_of(identity)
        if known is not None and known.state != "retired":
            return known
        building = tx.generation("building")
        if building is not None:
            logger.warning("the unfinished change over to %s is given up", building.identity.model)
            tx.retire(building.number)
        if known is None:
            return tx.new_generation(identity, "building", self._now())
        tx.take_up(known.number)
        return replace(known, state="building")

    def _switched(self, target: Generation, *, patient: bool) -> bool:
        """Switch to a generation in which nothing waits. While others record without a pause there may be no such
        moment: in the end a few rows may wait, as every new row does."""
        with self._storage.write() as tx:
            found = _check_open(tx, target)
            if found.state == "active":  # another process was faster
                return True
            waiting = tx.pending_count(target.number)
            if waiting > (0 if patient else BATCH_ROWS):
                tx.requeue(target.number)  # takes out what waits without a row
                return False
            tx.activate(target.number, self._now())
            return True

    # --- filling -------------------------------------------------------------------------------------------

    def _fill(self, generation: Generation, tally: _Tally) -> None:
        """Embed what waits in one generation, batch by batch."""
        with self._storage.read() as reader:
            waiting = reader.pending_count(generation.number)
        tally.begin(waiting)
        for layer, rows in self._batches(generation.number):
            embedded = self._embedded(rows, generation.identity)
            with self._storage.write() as tx:
                _check_open(tx, generation)
                stored = self._keep(tx, generation.number, layer, embedded)
            tally.add(len(rows), stored, len(embedded.reasons))
            waiting -= len(rows)
            if waiting <= 0 and generation.state == "building":
                break  # running after a writer who does not pause would put the switch off for ever
        with self._storage.read() as reader:
            _check_open(reader, generation)

    def _report(self, generation: Generation | None, tally: _Tally) -> IndexReport:
        number = NO_GENERATION if generation is None else generation.number
        with self._storage.read() as reader:
            pending = reader.pending_count(number)
        return IndexReport(tally.embedded, tally.refused, pending, number or None)

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

    def _embedded(self, rows: list[TextRow], identity: EmbedderIdentity) -> "_Embedded":
        assert self._embedder is not None  # noqa: S101 - callers have checked
        found = [(row.ref, embeddable(row.spoken.with_name)) for row in rows]
        reasons = {ref: "no text to embed" for ref, text in found if text is None}
        texts = [(ref, text) for ref, text in found if text is not None]
        if not texts:
            return _Embedded([], None, reasons)
        raw, refused = _called(self._embedder, [text for _, text in texts])
        reasons |= {texts[place][0]: reason for place, reason in refused.items()}
        texts = [row for place, row in enumerate(texts) if place not in refused]
        vectors, faults = check_documents(raw, len(texts), identity.dim)
        reasons |= {ref: fault for (ref, _), fault in zip(texts, faults, strict=True) if fault}
        good = [i for i, fault in enumerate(faults) if not fault]
        return _Embedded([texts[i][0] for i in good], vectors[good], reasons)

    def _keep(self, tx: Writer, generation: int, layer: Layer, embedded: "_Embedded") -> int:
        tx.refuse_vectors(generation, layer, embedded.reasons)
        if embedded.vectors is None:
            return 0
        return tx.put_vectors(generation, layer, embedded.refs, embedded.vectors)

    # --- jobs ----------------------------------------------------------------------------------------------

    @contextmanager
    def _jobs(self) -> Iterator[None]:
        """Work that settles every due index job. When the model fails they wait longer each time, and in the end
        give up; asking by hand works all the same."""
        jobs = list(self._claimed_jobs())
        try:
            yield
        except EmbeddingError as error:
            self._give_up(jobs, error)
            raise
        with self._storage.write() as tx:
            for job in jobs:
                tx.finish(job)
            tx.drop_dead("index")

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
        now = self._now()
        tx.fail(job, str(error), now + delay, dead=job.attempts >= MAX_ATTEMPTS, now=now)


def _check_open(reader: Reader, generation: Generation) -> Generation:
    """The generation as it is now.

    :raises EmbedderMismatch: when it takes no more vectors.
    """
    found = reader.numbered_generation(generation.number)
    if found is None or found.state == "retired":
        end = "dropped" if found is None else "retired"
        raise EmbedderMismatch(
            f"generation {generation.number} ({generation.identity.model}) was {end} by another process while it was "
            "being filled; its model and the store's are no longer the same. memstore generations shows which one "
            "is active; run reindex() (memstore reindex) to change over to this one again"
        )
    return found


def _first_batch(reader: Reader, generation: int) -> tuple[Layer, list[TextRow]] | None:
    """Some rows without a vector, None when there are none."""
    for layer in LAYERS:
        rows = reader.without_vectors(generation, layer, BATCH_ROWS)
        if rows:
            return layer, rows
    return None


def _called(embedder: Embedder, texts: list[str]) -> tuple[object, dict[int, str]]:
    """The vectors of a batch, and the texts, by their place in it, on which the model fails.

    A batch that fails is tried again text by text, so that one text does not hold up all others for ever. Where
    several in a row fail too it is the model that is broken.

    :raises EmbeddingError: when the model fails, whatever it is given.
    """
    try:
        return _embed(embedder, texts), {}
    except EmbedderUnavailable:
        raise
    except EmbeddingError as error:
        if len(texts) == 1:
            raise
        logger.warning("a batch of %d texts failed (%s); trying them one by one", len(texts), error)
    rows: list[object] = []
    refused: dict[int, str] = {}
    for place, text in enumerate(texts):
        try:
            rows.extend(_embed(embedder, [text]))
        except EmbedderUnavailable:
            raise
        except EmbeddingError as error:
            refused[place] = str(error)
            if all(last in refused for last in range(place, place - FAILURES_OF_A_BROKEN_MODEL, -1)):
                raise
    if not rows:
        raise EmbeddingError(f"the embedder failed on each of {len(texts)} texts: {refused[0]}")
    return rows, refused


def _embed(embedder: Embedder, texts: list[str]) -> "NDArray[np.float32]":
    try:
        return embedder.embed_documents(texts)
    except EmbeddingError:
        raise
    except Exception as error:
        raise EmbeddingError(f"the embedder failed: {type(error).__name__}: {error}") from error
