"""Embeddings kept on disk, so that a rerun costs no model time."""

import hashlib
import sqlite3
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memstore.embedding import Embedder, EmbedderIdentity, embeddable

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS vectors (kind TEXT, sha256 BLOB, vector BLOB, PRIMARY KEY (kind, sha256))"
)


def default_folder() -> Path:
    return Path(tempfile.gettempdir()) / "memstore-bench"


class CachedEmbedder:
    """An embedder that asks another one only for texts it has not seen.

    Its identity is the other's, so a store cannot tell them apart. Vectors lie in ``<folder>/<identity digest>.db``
    by kind (query or document) and by the SHA-256 of the text as a model is handed it.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{self.identity.digest()}.db"
        self._file = sqlite3.connect(self.path, check_same_thread=False)
        with self._file:
            self._file.execute(_SCHEMA)
        rows = self._file.execute("SELECT kind, sha256, vector FROM vectors")
        self._known = {(kind, sha): np.frombuffer(blob, "<f4") for kind, sha, blob in rows}
        self.computed = 0

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the other embedder's."""
        with self._lock:
            missing = {_key("document", text): text for text in texts}
            missing = {key: text for key, text in missing.items() if key not in self._known}
            if missing:
                vectors = self._embedder.embed_documents(list(missing.values()))
                self._keep(list(missing), vectors)
        if not texts:
            return np.zeros((0, self.identity.dim), dtype=np.float32)
        return np.stack([self._known[_key("document", text)] for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As the other embedder's."""
        key = _key("query", text)
        with self._lock:
            if key not in self._known:
                self._keep([key], self._embedder.embed_query(text)[None, :])
        return self._known[key]

    def close(self) -> None:
        self._file.close()

    def _keep(self, keys: Sequence[tuple[str, bytes]], vectors: NDArray[np.float32]) -> None:
        self.computed += len(keys)
        rows = np.asarray(vectors, dtype="<f4")
        with self._file:
            self._file.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                [(*key, row.tobytes()) for key, row in zip(keys, rows, strict=True)],
            )
        self._known.update(zip(keys, rows, strict=True))


def _key(kind: str, text: str) -> tuple[str, bytes]:
    return kind, hashlib.sha256((embeddable(text) or "").encode()).digest()
