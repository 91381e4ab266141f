"""Models behind an HTTP server that speaks OpenAI's embeddings API: ``POST {base_url}/embeddings``.

OpenAI itself, and the many that copied it: vLLM, llama.cpp, Ollama, Text Embeddings Inference, LM Studio,
DashScope. They differ most in what they refuse and how they say it; how they are reached, and what is believed of
them, is :mod:`memstore.model_server`'s.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from memstore.clock import Clock, SystemClock
from memstore.embedding import MAX_DIM, EmbedderIdentity, embeddable
from memstore.errors import EmbedderUnavailable, EmbeddingRejected
from memstore.model_server import (
    ModelServer,
    Patience,
    Refused,
    Service,
    about_input,
    check_encodable,
    checked_count,
    checked_seconds,
    error_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("memstore")

TIMEOUT_S = 60.0  # a full batch of long texts on a CPU
BUDGET_S = 180.0
WAITING_BUDGET_S = 10.0  # somebody waits for a query, and for the width before it
WAITING_RETRIES = 1
MAX_RETRIES = 4
BATCH_SIZE = 32  # the default ceiling of Text Embeddings Inference; OpenAI's own is 2,048
BATCH_CHARS = 100_000  # a Chinese character may be more than one token, and OpenAI takes 300,000 a request
NUMBER_BYTES = 64  # the longest float takes 24; the rest is room for indentation
REPLY_BYTES = 1 << 20  # what a reply may hold besides its numbers

_PROBE = "width"
_REQUEST_HINT = "check the model's name and the dimensions"
_SERVICE = Service(
    name="the embedding server",
    path="/embeddings",
    option="embeddings",
    unavailable=EmbedderUnavailable,
    rejected=EmbeddingRejected,
    refuses=about_input,
    request_hint=_REQUEST_HINT,
    slow_hint="a smaller batch_size",
    size="so many vectors can take; check the base URL and the model's width",
)


class OpenAIEmbedder:
    """A model behind an OpenAI-compatible embeddings server; needs ``memstore[openai]``.

    The constructor checks its arguments and does no more; the server is asked at the first use. Safe with
    threads, which do not wait for each other, and after a fork. A server that cannot be used raises
    :class:`~memstore.errors.EmbedderUnavailable`, an answer that is no set of vectors of the right width
    :class:`~memstore.errors.EmbeddingRejected`; the next use asks again. A text that the server refuses by itself
    (too long, moderated) gets a row of zeros and a warning in the log, so that it cannot hold up the others.

    The identity's revision is the server's host, port and path: the same name elsewhere may be other weights. A
    server that changes its weights under an unchanged name cannot be noticed, unless the width changes.

    :param base_url: http or https, up to and without ``/embeddings``, such as ``https://api.openai.com/v1``.
    :param api_key: sent as a bearer token; appears in no repr, error or log.
    :param dimensions: the width to ask for; not every server takes it. None takes the model's own, learned by
        one short request and remembered.
    :param query_prefix: put before a query, for models that were trained with one, such as ``"query: "``.
    :param timeout_s: seconds for a connection, and for any silence of the server.
    :param budget_s: seconds for a batch with all its retries and waits; 10 at most for a query.
    :param batch_size: texts a request. A server that takes fewer is given fewer, at the cost of a request.
    :param max_retries: further tries after 429, 500, 502, 503, 504, a lost connection or a timeout, 0.5 s, 1 s, 2 s
        … apart, or as far as ``Retry-After`` says (a minute at most); 1 at most for a query.
    :param clock: for time budgets and for a ``Retry-After`` that is a date. :param sleep: waits between tries.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        dimensions: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        timeout_s: float = TIMEOUT_S,
        budget_s: float = BUDGET_S,
        batch_size: int = BATCH_SIZE,
        max_retries: int = MAX_RETRIES,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock or SystemClock()
        self._server = ModelServer(_SERVICE, base_url, api_key, timeout_s, self._clock, sleep)
        fields = {"model": model, "query_prefix": query_prefix, "document_prefix": document_prefix}
        for name, value in fields.items():
            check_encodable(name, value)
        self._space = EmbedderIdentity(
            model, self._server.place, 1 if dimensions is None else dimensions, query_prefix, document_prefix
        )
        self._dimensions = dimensions
        self._width = dimensions
        self._budget_s = checked_seconds("budget_s", budget_s)
        self._batch_size = checked_count("batch_size", batch_size, 1)
        self._max_retries = checked_count("max_retries", max_retries, 0)
        # A lock a process: a thread of the parent may hold the parent's at the fork.
        self._probing: dict[int, threading.Lock] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._space.model!r}, {self._server.url!r})"

    @property
    def identity(self) -> EmbedderIdentity:
        """Without ``dimensions`` the first look asks the server, which alone knows the width."""
        space = self._space
        return EmbedderIdentity(
            space.model, space.revision, self._dim(), space.query_prefix, space.document_prefix
        )

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The server's rows, shape ``(len(texts), dim)``; a blank or refused text gets zeros."""
        import numpy as np

        out = np.zeros((len(texts), self._dim()), dtype=np.float32)
        prefix = self._space.document_prefix
        clean = [(row, prefix + text) for row, text in enumerate(map(embeddable, texts)) if text is not None]
        refusals: list[str] = []
        for batch in self._batches(clean):
            patience = Patience(self._max_retries, self._clock.monotonic() + self._budget_s)
            parts = [batch]
            while parts:
                part = parts.pop()
                try:
                    out[[row for row, _ in part]] = self._vectors([text for _, text in part], patience)
                except Refused as refusal:
                    half = len(part) // 2
                    if half:
                        parts += [part[half:], part[:half]]
                    else:
                        # What reads like a refused text may be a quota that is used up, and a store full of
                        # zero rows would be the result. So the server has to show that it still embeds.
                        self._probe()
                        refusals.append(str(refusal))
        if refusals:
            logger.warning(
                "%s refused %d of %d texts, which get no vector: %s",
                self._server.name,
                len(refusals),
                len(clean),
                refusals[0],
            )
        return out

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """A vector of shape ``(dim,)``; a blank or refused text raises :class:`~memstore.errors.EmbeddingRejected`."""
        clean = embeddable(text)
        if clean is None:
            raise EmbeddingRejected("a blank query has no vector")
        try:
            rows = self._vectors([self._space.query_prefix + clean], self._waited_for())
        except Refused as refusal:
            raise EmbeddingRejected(f"{self._server.name} refused the query: {refusal}") from refusal
        row: NDArray[np.float32] = rows[0]
        return row

    def close(self) -> None:
        """Give the connections back. A later use opens new ones; an object that is let go closes its own."""
        self._server.close()

    def _waited_for(self) -> Patience:
        budget = min(self._budget_s, WAITING_BUDGET_S)
        return Patience(min(self._max_retries, WAITING_RETRIES), self._clock.monotonic() + budget)

    def _dim(self) -> int:
        if self._width is None:
            with self._probing.setdefault(os.getpid(), threading.Lock()):
                if self._width is None:
                    self._width = self._probe().shape[1]
        return self._width

    def _probe(self) -> NDArray[np.float32]:
        """One row for a harmless text, which shows the width and that the server embeds at all."""
        try:
            return self._vectors([_PROBE], self._waited_for())
        except Refused as refusal:
            message = f"{self._server.name} refuses every text, the word {_PROBE!r} too: {refusal}"
            raise EmbedderUnavailable(f"{message}; {_REQUEST_HINT}") from refusal

    def _batches(self, texts: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
        """``texts`` in order, cut by count and by characters; one text alone may have more."""
        batch: list[tuple[int, str]] = []
        chars = 0
        for row, text in texts:
            if batch and (len(batch) >= self._batch_size or chars + len(text) > BATCH_CHARS):
                yield batch
                batch, chars = [], 0
            batch.append((row, text))
            chars += len(text)
        if batch:
            yield batch

    def _vectors(self, texts: list[str], patience: Patience) -> NDArray[np.float32]:
        """Row ``i`` for ``texts[i]``, of the known width if it is known; values may be anything.

        :raises Refused: the server would take other texts or fewer.
        """
        import numpy as np

        body: dict[str, Any] = {"model": self._space.model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        cap = len(texts) * (self._width or MAX_DIM) * NUMBER_BYTES + REPLY_BYTES
        raw = self._server.post(json.dumps(body, ensure_ascii=False).encode("utf-8"), cap, patience)
        try:
            rows = _rows(_data(raw), len(texts), self._width)
        except ValueError as error:
            message = self._server.printable(f"{self._server.name} {error}")
            # Not chained: the cause quotes the server as it is, and the server may quote the key.
            raise EmbeddingRejected(message) from None
        # What overflows becomes infinite, and the port refuses that row as "not finite".
        with np.errstate(over="ignore", invalid="ignore"):
            return rows.astype(np.float32)


# --- what the server says --------------------------------------------------------------------------------------


def _data(raw: bytes) -> list[Any]:
    """The items of an answer. All its numbers are floats, so that one of a thousand digits is only infinite; the
    literals NaN and Infinity, which JSON does not have and some servers send, are read.

    :raises ValueError: with what follows "the server" in an error's text.
    """
    try:
        answer = json.loads(raw, parse_int=float)
    except (ValueError, RecursionError) as error:
        start = raw[:40].decode("utf-8", "replace")
        raise ValueError(f"sent no complete JSON, but {start!r}; check the base URL") from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if isinstance(data, list):
        return data
    if isinstance(answer, dict) and answer.get("error"):
        raise ValueError(f"answered with an error: {error_text(raw)}")
    raise ValueError("sent JSON without a list 'data'; check the base URL")


def _rows(data: list[Any], n: int, dim: int | None) -> NDArray[np.float64]:
    """The vectors of ``data`` by their ``index``, shape ``(n, dim)``; any width from 1 to 8192 without ``dim``.

    :raises ValueError: as :func:`_data`.
    """
    import numpy as np

    if len(data) != n:
        raise ValueError(f"sent {len(data)} vectors for {n} texts")
    rows: dict[int, NDArray[np.float64]] = {}
    for item in data:
        if not isinstance(item, dict):
            raise ValueError(f"sent an item of 'data' that is a {type(item).__name__}, not an object")  # noqa: TRY004
        index = item.get("index")
        if not isinstance(index, float) or not index.is_integer() or not 0 <= index < n:
            raise ValueError(f"sent a vector with the index {index!r} for {n} texts")
        if int(index) in rows:
            raise ValueError(f"sent two vectors with the index {index:.0f}")
        rows[int(index)] = _row(item.get("embedding"))
    widths = sorted({len(row) for row in rows.values()})
    if len(widths) > 1:
        raise ValueError(f"sent vectors of different widths: {', '.join(map(str, widths))}")
    if dim is not None and widths != [dim]:
        raise ValueError(
            f"sent vectors of width {widths[0]}, not {dim}: it runs another model or ignores 'dimensions'; "
            "set that right, or open the store anew without dimensions and reindex"
        )
    if not 1 <= widths[0] <= MAX_DIM:
        raise ValueError(f"sent vectors of width {widths[0]}; a width is from 1 to {MAX_DIM}")
    return np.stack([rows[i] for i in range(n)])


def _row(embedding: object) -> NDArray[np.float64]:
    """One vector: a list of numbers, or base64 of little-endian float32, as OpenAI's ``encoding_format`` has it."""
    import numpy as np

    if isinstance(embedding, str):
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float64)
        except (ValueError, binascii.Error) as error:
            raise ValueError("sent a vector as text that is no base64 of float32") from error
    if not isinstance(embedding, list):
        raise ValueError(f"sent a vector that is a {type(embedding).__name__}, not a list of numbers")  # noqa: TRY004
    # null is how JavaScript writes NaN; numpy reads None as NaN.
    strange = {type(value) for value in embedding} - {float, type(None)}
    if strange:
        raise ValueError(f"sent a vector with a {strange.pop().__name__} among its numbers")
    return np.array(embedding, dtype=np.float64)
