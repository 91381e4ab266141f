"""Doubles for tests of programs that use memstore. They are public: what memstore's own tests use is here."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from memstore.embedding import EmbedderIdentity, embeddable
from memstore.errors import LLMUnavailable
from memstore.faults import FaultPlan, FaultyFiles
from memstore.llm import LLMReply, LLMRequest, Usage
from memstore.power_loss import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memstore.storage.sqlite.faults import FaultVFS

__all__ = [
    "FaultPlan",
    "FaultVFS",
    "FaultyFiles",
    "HashEmbedder",
    "ManualClock",
    "ScriptedLLM",
    "SimulatedDisk",
]


def __getattr__(name: str) -> object:
    if name == "FaultVFS":  # the engine is loaded with it
        from memstore.storage.sqlite.faults import FaultVFS

        return FaultVFS
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS = re.compile(rf"(?P<han>[{_HAN}]+)|(?P<word>[^\W_{_HAN}]+)")


class HashEmbedder:
    """A deterministic embedder without a model: signed feature hashing of words, Han characters and trigrams.

    Texts that share words or Han characters are nearer than texts that do not; meaning plays no part. The
    vectors are the same in every process and on every machine. Another ``model`` or ``revision`` gives an
    unrelated space, so that a test notices when two are mixed.

    ``document_calls``, ``document_texts`` and ``query_calls`` count what was asked of it, across threads.
    """

    def __init__(
        self,
        dim: int = 64,
        model: str = "hash",
        revision: str = "1",
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> None:
        self.identity = EmbedderIdentity(model, revision, dim, query_prefix, document_prefix)
        self.document_calls = 0
        self.document_texts = 0
        self.query_calls = 0
        self._lock = threading.Lock()
        self._key = EmbedderIdentity(model, revision, dim).digest().encode("ascii")

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows of shape ``(len(texts), dim)``; a blank text gets zeros."""
        import numpy as np

        with self._lock:
            self.document_calls += 1
            self.document_texts += len(texts)
        out = np.zeros((len(texts), self.identity.dim), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            self._fill(row, self.identity.document_prefix, text)
        return out

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """A unit vector of shape ``(dim,)``; zeros for a blank text."""
        import numpy as np

        with self._lock:
            self.query_calls += 1
        out = np.zeros(self.identity.dim, dtype=np.float32)
        self._fill(out, self.identity.query_prefix, text)
        return out

    def _fill(self, row: NDArray[np.float32], prefix: str, text: str) -> None:
        clean = embeddable(text)
        if clean is None:
            return
        whole = (prefix + clean).lower()
        for feature, count in Counter(_features(whole)).items():
            slot, sign = self._slot(feature)
            row[slot] += sign * count
        if not row.any():
            # Only signs and emoji, or features that cancelled out: the text itself is the one feature.
            slot, sign = self._slot(f"t:{whole}")
            row[slot] = sign
        row /= float((row.astype("f8") ** 2).sum()) ** 0.5

    def _slot(self, feature: str) -> tuple[int, float]:
        raw = hashlib.blake2b(feature.encode("utf-8"), digest_size=8, key=self._key).digest()
        number = int.from_bytes(raw, "little")
        return (number >> 1) % self.identity.dim, 1.0 if number & 1 else -1.0


def _features(text: str) -> Iterator[str]:
    """Han characters and their bigrams; other words and the trigrams of their letters."""
    for run in _RUNS.finditer(text):
        han = run["han"]
        if han is None:
            word = f"<{run['word']}>"
            yield f"w:{word}"
            yield from (f"3:{word[i : i + 3]}" for i in range(len(word) - 2))
        else:
            yield from (f"1:{char}" for char in han)
            yield from (f"2:{han[i : i + 2]}" for i in range(len(han) - 1))


Scripted: TypeAlias = str | LLMReply | Exception
"""What one question to a :class:`ScriptedLLM` gives: text, a whole reply, or an error to raise."""


class ScriptedLLM:
    """A chat model that answers what it was told to, without a server.

    :param replies: one for each question, in turn: a text, an :class:`~memstore.llm.LLMReply`, an exception to raise,
        or a callable that is given the request and returns one of these. When they are used up, it is unavailable.
        A callable instead of a list is asked every time.

    ``requests`` keeps what was asked, in order, across threads. A text counts as one token for each four characters
    begun, and so does what was asked, so that token counters have something to count.
    """

    name = "scripted"

    def __init__(
        self,
        replies: Sequence[Scripted | Callable[[LLMRequest], Scripted]] | Callable[[LLMRequest], Scripted],
    ) -> None:
        if isinstance(replies, str):
            raise TypeError("ScriptedLLM takes a list of replies: wrap the one text in a list")
        self.requests: list[LLMRequest] = []
        self._replies = replies if callable(replies) else tuple(replies)
        self._lock = threading.Lock()

    def complete(self, request: LLMRequest) -> LLMReply:
        with self._lock:  # a callable is asked outside of it: it may wait for another thread's question
            number = len(self.requests)
            self.requests.append(request)
        if callable(self._replies):
            reply = self._replies(request)
        elif number < len(self._replies):
            told = self._replies[number]
            reply = told(request) if callable(told) else told
        else:
            raise LLMUnavailable(
                f"the {len(self._replies)} scripted replies are used up; give ScriptedLLM more of them"
            )
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            asked = sum(len(message["content"]) for message in request.messages)
            return LLMReply(reply, usage=Usage(_tokens(asked), _tokens(len(reply))))
        return reply


def _tokens(chars: int) -> int:
    return -(-chars // 4)


class ManualClock:
    """A clock that stands still until it is told. ``monotonic()`` follows ``advance`` alone, never ``set``."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = _aware(start)
        self._monotonic = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def set(self, instant: datetime) -> None:
        """Set the wall time, back too."""
        with self._lock:
            self._now = _aware(instant)

    def advance(self, seconds: float) -> None:
        """Let time pass; it does not go back."""
        if seconds < 0:
            raise ValueError("time passes forward; use set() to set the wall clock back")
        with self._lock:
            self._now += timedelta(seconds=seconds)
            self._monotonic += seconds


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("ManualClock needs an aware datetime: pass tzinfo")
    return instant
