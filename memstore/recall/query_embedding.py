"""The embedder for queries: one daemon thread, which may hang without taking a recall with it (SPEC R4)."""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memstore.embedding import Embedder, EmbedderIdentity, check_query, check_same
from memstore.errors import EmbeddingError
from memstore.storage.base import Generation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Call:
    """One embedding of a query, as a whole and by its sentences: what was asked, and what came of it."""

    def __init__(self, texts: Sequence[str], identity: EmbedderIdentity) -> None:
        self.texts = texts
        self.identity = identity
        self.done = threading.Event()
        self.vectors: NDArray[np.float32] | None = None
        self.error: EmbeddingError | None = None

    def run(self, embedder: Embedder) -> None:
        try:
            check_same(self.identity, embedder.identity)
            self.vectors = _stacked(
                [check_query(embedder.embed_query(text), self.identity.dim) for text in self.texts]
            )
        except EmbeddingError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - a user's model may raise anything, SystemExit too
            self.error = EmbeddingError(f"the embedder failed: {type(error).__name__}: {error}")
        finally:
            self.done.set()


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """The vectors of a query that was embedded before the snapshot was opened on which it is answered."""

    generation: int
    vectors: "NDArray[np.float32]"

    def __call__(self, generation: Generation) -> "NDArray[np.float32]":
        """:raises EmbeddingError: when the store went over to another model meanwhile."""
        if generation.number != self.generation:
            raise EmbeddingError(
                "the store went over to another embedding model while the query was embedded"
            )
        return self.vectors


class QueryEmbedding:
    """The embedder for queries, called in one daemon thread. A hung model cannot be stopped from Python: once a
    call has missed its deadline, later recalls do without the model at once until that call has come back."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: Call | None = None
        self._lock = threading.Lock()

    def start(self, texts: Sequence[str], identity: EmbedderIdentity) -> Call:
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
            call = Call(texts, identity)
            self._calls.put(call)
            return call

    def wait(self, call: Call, seconds: float) -> "NDArray[np.float32]":
        """The vectors of a call, a row each.

        :raises TimeoutError: when it takes longer. :raises EmbeddingError: another identity than the store's, or
            the model failed.
        """
        if not call.done.wait(min(max(0.0, seconds), threading.TIMEOUT_MAX)):
            self._late = call
            raise TimeoutError("the embedder did not answer before the deadline")
        if call.vectors is None:
            raise call.error or EmbeddingError("the embedder gave no vector")
        return call.vectors

    def close(self) -> None:
        """Let the thread end once it has nothing left to do."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call.run(self._embedder)


def _stacked(vectors: "list[NDArray[np.float32]]") -> "NDArray[np.float32]":
    import numpy as np

    return np.stack(vectors)
