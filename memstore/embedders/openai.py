"""Models behind an HTTP server that speaks OpenAI's embeddings API: ``POST {base_url}/embeddings``.

OpenAI itself, and the many that copied it: vLLM, llama.cpp, Ollama, Text Embeddings Inference, LM Studio,
DashScope. They differ most in what they refuse and how they say it, hence the reading of messages below.

Nothing the server sends is taken on trust, and nothing but the base URL decides who is talked to: redirects are
not followed, and neither proxies nor a ``.netrc`` are taken from the environment, since a proxy set for the
shell would otherwise read every memory and a ``.netrc`` entry would replace the key.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import math
import os
import re
import threading
import time
import weakref
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from memstore.clock import Clock, SystemClock
from memstore.config import ENVIRONMENT
from memstore.embedding import MAX_DIM, EmbedderIdentity, embeddable
from memstore.errors import EmbedderUnavailable, EmbeddingRejected, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import httpx2
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
BACKOFF_S = 0.5
MAX_BACKOFF_S = 8.0
MAX_RETRY_AFTER_S = 60.0
NUMBER_BYTES = 64  # the longest float takes 24; the rest is room for indentation
REPLY_BYTES = 1 << 20  # what a reply may hold besides its numbers
ERROR_BYTES = 1 << 16
MESSAGE_CHARS = 300

_PROBE = "width"
_OK = range(200, 300)
_REDIRECTS = range(300, 400)
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_TOO_LARGE = 413

# Quoted from the servers: "batch size is invalid, it should not be larger than 10" (DashScope), "maximum context
# length is 512 tokens" (vLLM, OpenAI), "Inputs must have less than 512 tokens" (TEI), "array too long" (OpenAI),
# "the input length exceeds the context length" (Ollama), "data_inspection_failed" and "content management
# policy" (the moderation of DashScope and Azure).
_OBJECT = re.compile(
    r"\b(?:inputs?|prompt|tokens?|batch(?:es|_size)?|texts?(?!-)|sequence|array|strings?|documents?)\b",
    re.IGNORECASE,
)
_EXCESS = re.compile(
    r"too (?:many|long|large|big)|exceed|maximum|(?:larger|longer|greater|less|more) than|at most|context length",
    re.IGNORECASE,
)
_MODERATED = re.compile(
    r"data_inspection_failed|content_filter|content management policy|inappropriate content", re.IGNORECASE
)
# llama.cpp and Ollama report a long text as their own failure; other 500s are.
_LONG_AS_500 = re.compile(r"too large to process|exceeds? (?:the |maximum )+context length", re.IGNORECASE)

_KEY_HINT = f"check the API key (api_key, {ENVIRONMENT['embeddings_key']})"
_REQUEST_HINT = "check the model's name and the dimensions"
_HINTS = {
    400: _REQUEST_HINT,
    401: _KEY_HINT,
    403: _KEY_HINT,
    404: f"check the base URL (base_url, {ENVIRONMENT['embeddings_url']}) and the model's name",
    422: _REQUEST_HINT,
    429: "the server's rate limit or quota is used up",
}
_LATER = "look at the server, then try again"


class _Refused(Exception):
    """The server refuses what it was given to embed, and would take something smaller or other."""


class _Transient(Exception):
    """What another try may mend."""

    def __init__(self, message: str, retry_after_s: float = 0.0, hint: str = _LATER) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.hint = hint


class _Patience(NamedTuple):
    """How long one batch may be tried."""

    retries: int
    deadline: float  # of the clock's monotonic()


class _Key(NamedTuple):
    """The API key, kept out of every repr."""

    value: str

    def __repr__(self) -> str:
        return "[key]"


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
        url, place = _checked_url(base_url)
        fields = {"model": model, "query_prefix": query_prefix, "document_prefix": document_prefix}
        for name, value in fields.items():
            _check_encodable(name, value)
        self._space = EmbedderIdentity(
            model, place, 1 if dimensions is None else dimensions, query_prefix, document_prefix
        )
        self._dimensions = dimensions
        self._width = dimensions
        self._budget_s = _checked_seconds("budget_s", budget_s)
        self._batch_size = _checked_count("batch_size", batch_size, 1)
        self._max_retries = _checked_count("max_retries", max_retries, 0)
        self._clock = clock or SystemClock()
        timeout_s = _checked_seconds("timeout_s", timeout_s)
        self._server = _Server(url, place, _checked_key(api_key), timeout_s, self._clock, sleep)
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
            patience = _Patience(self._max_retries, self._clock.monotonic() + self._budget_s)
            parts = [batch]
            while parts:
                part = parts.pop()
                try:
                    out[[row for row, _ in part]] = self._vectors([text for _, text in part], patience)
                except _Refused as refusal:
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
        except _Refused as refusal:
            raise EmbeddingRejected(f"{self._server.name} refused the query: {refusal}") from refusal
        row: NDArray[np.float32] = rows[0]
        return row

    def close(self) -> None:
        """Give the connections back. A later use opens new ones; an object that is let go closes its own."""
        self._server.close()

    def _waited_for(self) -> _Patience:
        budget = min(self._budget_s, WAITING_BUDGET_S)
        return _Patience(min(self._max_retries, WAITING_RETRIES), self._clock.monotonic() + budget)

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
        except _Refused as refusal:
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

    def _vectors(self, texts: list[str], patience: _Patience) -> NDArray[np.float32]:
        """Row ``i`` for ``texts[i]``, of the known width if it is known; values may be anything.

        :raises _Refused: the server would take other texts or fewer.
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


class _Server:
    """The HTTP side: one address, one key, connections that are kept open, tries and waits."""

    def __init__(
        self,
        url: str,
        place: str,
        key: _Key | None,
        timeout_s: float,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self.url = url
        self.name = f"the embedding server at {place}"
        self._key = key
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep
        # A client a process: a forked child that used its parent's connections would read the parent's answers.
        self._clients: dict[int, httpx2.Client] = {}
        weakref.finalize(self, _close, self._clients)

    def close(self) -> None:
        _close(self._clients)

    def post(self, body: bytes, cap: int, patience: _Patience) -> bytes:
        """The body of a 2xx answer, of at most ``cap`` bytes.

        :raises _Refused: see there. :raises EmbedderUnavailable: no such answer could be had.
        :raises EmbeddingRejected: the answer is longer.
        """
        for tried in range(patience.retries + 1):
            try:
                return self._once(body, cap, patience.deadline)
            except _Transient as error:
                message = f"{self.name} {error}"
                if tried == patience.retries:
                    raise EmbedderUnavailable(f"{message} (tried {tried + 1} times); {error.hint}") from error
                wait = max(min(BACKOFF_S * 2**tried, MAX_BACKOFF_S), error.retry_after_s)
                if self._clock.monotonic() + wait >= patience.deadline:
                    late = f"the next try, {wait:.3g} s later, would be past the time allowed"
                    raise EmbedderUnavailable(f"{message}; {late}; {error.hint}") from error
                self._sleep(wait)
        raise AssertionError  # the last round returns or raises

    def _once(self, body: bytes, cap: int, deadline: float) -> bytes:
        client = self._client()
        import httpx2

        left = max(deadline - self._clock.monotonic(), 0.001)
        try:
            with client.stream(
                "POST", f"{self.url}/embeddings", content=body, timeout=min(self._timeout_s, left)
            ) as response:
                if response.status_code not in _OK:
                    raise self._fault(response, self._start_of(response, deadline))
                return self._whole(response, cap, deadline)
        except httpx2.TimeoutException as error:
            hint = "look at the server, or try a smaller batch_size or a longer timeout_s"
            raise _Transient(f"did not answer in time ({type(error).__name__})", hint=hint) from error
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            raise _Transient(
                f"cannot be reached or hung up ({self.printable(str(error) or type(error).__name__)})"
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EmbedderUnavailable(
                f"{self.name} cannot be called: {self.printable(str(error))}"
            ) from error

    def _client(self) -> httpx2.Client:
        client = self._clients.get(os.getpid())
        if client is None:
            made = self._made()
            client = self._clients.setdefault(os.getpid(), made)
            if client is not made:  # another thread was faster
                made.close()
        return client

    def _made(self) -> httpx2.Client:
        try:
            import httpx2
        except ImportError as error:
            raise EmbedderUnavailable(
                f"httpx2 cannot be imported ({error}): pip install 'memstore[openai]'"
            ) from error
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            # Unpacking a few kilobytes may give gigabytes in one step, before any cap could be looked at.
            "accept-encoding": "identity",
            "user-agent": "memstore",
        }
        if self._key is not None:
            headers["authorization"] = f"Bearer {self._key.value}"
        return httpx2.Client(headers=headers, follow_redirects=False, trust_env=False)

    def _whole(self, response: httpx2.Response, cap: int, deadline: float) -> bytes:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise EmbedderUnavailable(
                f"{self.name} compressed its answer though asked not to; turn that off there"
            )
        whole = bytearray()
        for chunk in response.iter_raw():
            whole += chunk
            if len(whole) > cap:
                raise EmbeddingRejected(
                    f"{self.name} sent more than the {cap:,} bytes that so many vectors can take; "
                    "check the base URL and the model's width"
                )
            # A server that sends a byte now and then never trips the timeout, which is about silence.
            if self._clock.monotonic() > deadline:
                raise EmbedderUnavailable(
                    f"{self.name} was still sending when the time was up; try a smaller batch_size"
                )
        return bytes(whole)

    def _start_of(self, response: httpx2.Response, deadline: float) -> bytes:
        """Enough of an error's body for its message, and no more."""
        start = bytearray()
        for chunk in response.iter_raw():
            start += chunk
            if len(start) >= ERROR_BYTES or self._clock.monotonic() > deadline:
                break
        return bytes(start[:ERROR_BYTES])

    def _fault(self, response: httpx2.Response, raw: bytes) -> Exception:
        """What an answer other than 2xx means."""
        status = response.status_code
        said = _said(raw)
        if status in _REDIRECTS:
            target = _place_of(response.headers.get("location", ""))
            return EmbedderUnavailable(
                f"{self.name} redirects to {self.printable(target) or 'nowhere'}, which is not followed; "
                "if that is right, make it the base URL"
            )
        if _about_input(status, said):
            return _Refused(self.printable(f"{status} {said}"))
        message = f"answered {status} {_phrase(status)}".rstrip()
        if said:
            message += f": {self.printable(said)}"
        hint = _HINTS.get(status, _LATER)
        if status in _TRANSIENT:
            wait = _retry_after(response.headers.get("retry-after", ""), self._clock)
            return _Transient(message, wait, hint)
        return EmbedderUnavailable(f"{self.name} {message}; {hint}")

    def printable(self, text: str) -> str:
        """Foreign text in one bounded line without the key, which goes first: half a key would not be recognised."""
        if self._key is not None:
            text = text.replace(self._key.value, "[key]")
        text = text[: 10 * MESSAGE_CHARS]
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"


def _close(clients: dict[int, httpx2.Client]) -> None:
    # Only this process' own: the parent goes on with the others.
    client = clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


# --- what the server says --------------------------------------------------------------------------------------


def _said(raw: bytes) -> str:
    """The message in an error's body: OpenAI's ``{"error": {"message", "code"}}``, its relatives, or plain text."""
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")
    error = (answer.get("error") or answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return error if isinstance(error, str) else json.dumps(error)
    message = next((error[name] for name in ("message", "detail", "error") if error.get(name)), error)
    text = message if isinstance(message, str) else json.dumps(message)
    code = error.get("code")
    return f"{text} ({code})" if isinstance(code, str) else text


def _about_input(status: int, said: str) -> bool:
    """Whether an error is clearly about the texts that were sent: too many, too long, or not allowed."""
    if status == _TOO_LARGE:
        return True
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
        return bool(_MODERATED.search(said) or (_OBJECT.search(said) and _EXCESS.search(said)))
    return status == HTTPStatus.INTERNAL_SERVER_ERROR and _LONG_AS_500.search(said) is not None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # proxies make up their own numbers
        return ""


def _retry_after(header: str, clock: Clock) -> float:
    """Seconds to wait by a ``Retry-After``, RFC 9110 section 10.2.3; 0 where it says nothing usable."""
    header = header.strip()
    if re.fullmatch(r"[0-9]{1,9}", header):
        seconds = float(header)
    else:
        try:
            instant = parsedate_to_datetime(header)
            if instant.tzinfo is None:  # "-0000" means UTC from a sender that does not know its zone
                instant = instant.replace(tzinfo=UTC)
            seconds = (instant - clock.now()).total_seconds()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


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
        raise ValueError(f"answered with an error: {_said(raw)}")
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


# --- what the caller says --------------------------------------------------------------------------------------


def _checked_url(base_url: str) -> tuple[str, str]:
    """The URL without a slash at its end, and its host, port and path, which name the server everywhere.

    Errors do not repeat the URL: it may hold a password.
    """
    hint = f"base_url ({ENVIRONMENT['embeddings_url']})"
    if not isinstance(base_url, str) or not base_url.isprintable() or " " in base_url:
        raise InvalidInput(f"{hint} must be a str without blanks, such as https://api.openai.com/v1")
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as the resolver does: refuses labels that are empty or too long
    except ValueError as error:
        raise InvalidInput(f"{hint} cannot be read as a URL: {type(error).__name__}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{hint} must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise InvalidInput(f"{hint} must hold no user or password; pass the key as api_key")
    if parts.query or parts.fragment or base_url.endswith(("?", "#")):
        raise InvalidInput(f"{hint} must have neither a query nor a fragment")
    path = parts.path.rstrip("/")
    if path.endswith("/embeddings"):
        raise InvalidInput(f"{hint} must end before /embeddings, which is added")
    return f"{parts.scheme}://{parts.netloc}{path}", _place_of(base_url)


def _place_of(url: str) -> str:
    """Host, port (unless the scheme's own) and path of a URL, "" for what is none: what may be shown of it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if ":" in host:
        host = f"[{host}]"
    own = {"http": 80, "https": 443}.get(parts.scheme)
    return host + (f":{port}" if port is not None and port != own else "") + parts.path.rstrip("/")


def _checked_key(api_key: str | None) -> _Key | None:
    if api_key is None:
        return None
    if not isinstance(api_key, str) or not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise InvalidInput(
            f"api_key ({ENVIRONMENT['embeddings_key']}) must be printable ASCII without blanks; "
            "is there a line break at its end?"
        )
    return _Key(api_key)


def _check_encodable(name: str, text: str) -> None:
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} holds half a character (a lone surrogate) and cannot be sent") from error


def _checked_seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidInput(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)


def _checked_count(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} must be a whole number from {least}, not {value!r}")
    return value
