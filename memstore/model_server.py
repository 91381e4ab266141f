"""The HTTP side of a model behind a server: one address, one key, connections that are kept open, tries and waits.

For the adapters of servers that speak OpenAI's API; what they ask and how they read the answer is theirs.

Nothing the server sends is taken on trust, and nothing but the base URL decides who is talked to: redirects are
not followed, and neither proxies nor a ``.netrc`` are taken from the environment, since a proxy set for the
shell would otherwise read every memory and a ``.netrc`` entry would replace the key.
"""

from __future__ import annotations

import json
import math
import os
import re
import weakref
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from memstore.config import ENVIRONMENT
from memstore.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from memstore.clock import Clock
    from memstore.errors import MemstoreError

BACKOFF_S = 0.5
MAX_BACKOFF_S = 8.0
MAX_RETRY_AFTER_S = 60.0
ERROR_BYTES = 1 << 16
MESSAGE_CHARS = 300

_OK = range(200, 300)
_REDIRECTS = range(300, 400)
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_TOO_LARGE = 413
_LATER = "look at the server, then try again"

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


@dataclass(frozen=True, slots=True)
class Service:
    """What differs from one kind of model to another: where it is asked, what its errors are and advise.

    :param name: such as ``the embedding server``.
    :param path: what is added to the base URL.
    :param option: the settings ``<option>_url`` and ``<option>_key`` of the environment are its own.
    :param unavailable: raised when no answer could be had; ``rejected`` when the answer is longer than its cap.
    :param refuses: whether an error's status and text mean that something else might be taken.
    :param request_hint: what to do about 400 and 422; ``slow_hint`` about an answer that takes too long;
        ``size`` follows "more than the N bytes that".
    """

    name: str
    path: str
    option: str
    unavailable: type[MemstoreError]
    rejected: type[MemstoreError]
    refuses: Callable[[int, str], bool]
    request_hint: str
    slow_hint: str
    size: str

    @property
    def url_argument(self) -> str:
        return f"base_url, {ENVIRONMENT[f'{self.option}_url']}"

    @property
    def key_argument(self) -> str:
        return f"api_key, {ENVIRONMENT[f'{self.option}_key']}"

    def hint(self, status: int) -> str:
        """What to do about an answer of this status."""
        key = f"check the API key ({self.key_argument})"
        hints = {
            400: self.request_hint,
            401: key,
            403: key,
            404: f"check the base URL ({self.url_argument}) and the model's name",
            422: self.request_hint,
            429: "the server's rate limit or quota is used up",
        }
        return hints.get(status, _LATER)


class Patience(NamedTuple):
    """How long one request may be tried."""

    retries: int
    deadline: float  # of the clock's monotonic()


class Refused(Exception):
    """The server would take something else; the text is fit to be shown, ``said`` is whole but for the key."""

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class _Transient(Exception):
    """What another try may mend."""

    def __init__(self, message: str, retry_after_s: float = 0.0, hint: str = _LATER) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.hint = hint


class _Key(NamedTuple):
    """The API key, kept out of every repr."""

    value: str

    def __repr__(self) -> str:
        return "[key]"


class ModelServer:
    """One server. Safe with threads, which do not wait for each other, and after a fork. Needs ``memstore[openai]``.

    :param timeout_s: seconds for a connection, and for any silence of the server.
    :raises InvalidInput: a URL, key or timeout that cannot be one. What was passed is not repeated: it may be secret.
    """

    def __init__(
        self,
        service: Service,
        base_url: str,
        api_key: str | None,
        timeout_s: float,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self.url = _checked_url(base_url, service)
        self.place = place_of(base_url)
        """Host, port and path: what is shown of the server everywhere."""
        self.name = f"{service.name} at {self.place}"
        self._service = service
        self._key = _checked_key(api_key, service)
        self._timeout_s = checked_seconds("timeout_s", timeout_s)
        self._clock = clock
        self._sleep = sleep
        # A client a process: a forked child that used its parent's connections would read the parent's answers.
        self._clients: dict[int, httpx2.Client] = {}
        weakref.finalize(self, _close, self._clients)

    def close(self) -> None:
        """Give this process' connections back. A later use opens new ones."""
        _close(self._clients)

    def post(self, body: bytes, cap: int, patience: Patience) -> bytes:
        """The body of a 2xx answer, of at most ``cap`` bytes.

        Tried again after 429, 500, 502, 503, 504, a lost connection or a timeout.

        :raises Refused: see there; besides what the service's ``unavailable`` and ``rejected`` say.
        """
        unavailable = self._service.unavailable
        for tried in range(patience.retries + 1):
            try:
                return self._once(body, cap, patience.deadline)
            except _Transient as error:
                message = f"{self.name} {error}"
                if tried == patience.retries:
                    raise unavailable(f"{message} (tried {tried + 1} times); {error.hint}") from error
                wait = max(min(BACKOFF_S * 2**tried, MAX_BACKOFF_S), error.retry_after_s)
                if self._clock.monotonic() + wait >= patience.deadline:
                    late = f"the next try, {wait:.3g} s later, would be past the time allowed"
                    raise unavailable(f"{message}; {late}; {error.hint}") from error
                self._sleep(wait)
        raise AssertionError  # the last round returns or raises

    def printable(self, text: str) -> str:
        """Foreign text in one bounded line without the key, which goes first: half a key would not be recognised."""
        text = self._without_key(text)[: 10 * MESSAGE_CHARS]
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 1] + "…"

    def answered(self, status: int, said: str) -> str:
        """An error of the server in words, without what to do about it."""
        message = f"answered {status} {_phrase(status)}".rstrip()
        return f"{message}: {self.printable(said)}" if said else message

    def _without_key(self, text: str) -> str:
        return text if self._key is None else text.replace(self._key.value, "[key]")

    def _once(self, body: bytes, cap: int, deadline: float) -> bytes:
        client = self._client()
        import httpx2

        left = max(deadline - self._clock.monotonic(), 0.001)
        url, timeout_s = f"{self.url}{self._service.path}", min(self._timeout_s, left)
        try:
            with client.stream("POST", url, content=body, timeout=timeout_s) as response:
                if response.status_code not in _OK:
                    raise self._fault(response, self._start_of(response, deadline))
                return self._whole(response, cap, deadline)
        except httpx2.TimeoutException as error:
            hint = f"look at the server, or try {self._service.slow_hint} or a longer timeout_s"
            raise _Transient(f"did not answer in time ({type(error).__name__})", hint=hint) from error
        except (httpx2.NetworkError, httpx2.RemoteProtocolError) as error:
            raise _Transient(
                f"cannot be reached or hung up ({self.printable(str(error) or type(error).__name__)})"
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._service.unavailable(
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
            raise self._service.unavailable(
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
            raise self._service.unavailable(
                f"{self.name} compressed its answer though asked not to; turn that off there"
            )
        whole = bytearray()
        for chunk in response.iter_raw():
            whole += chunk
            if len(whole) > cap:
                raise self._service.rejected(
                    f"{self.name} sent more than the {cap:,} bytes that {self._service.size}"
                )
            # A server that sends a byte now and then never trips the timeout, which is about silence.
            if self._clock.monotonic() > deadline:
                raise self._service.unavailable(
                    f"{self.name} was still sending when the time was up; try {self._service.slow_hint}"
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
        said = error_text(raw)
        if status in _REDIRECTS:
            target = place_of(response.headers.get("location", ""))
            return self._service.unavailable(
                f"{self.name} redirects to {self.printable(target) or 'nowhere'}, which is not followed; "
                "if that is right, make it the base URL"
            )
        if self._service.refuses(status, said):
            return Refused(self.printable(f"{status} {said}"), status, self._without_key(said))
        message, hint = self.answered(status, said), self._service.hint(status)
        if status in _TRANSIENT:
            wait = _retry_after(response.headers.get("retry-after", ""), self._clock)
            return _Transient(message, wait, hint)
        return self._service.unavailable(f"{self.name} {message}; {hint}")


def _close(clients: dict[int, httpx2.Client]) -> None:
    # Only this process' own: the parent goes on with the others.
    client = clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


# --- what the server says --------------------------------------------------------------------------------------


def error_text(raw: bytes) -> str:
    """The message in an error's body: OpenAI's ``{"error": {"message", "code"}}``, its relatives, or plain text."""
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")
    error = (answer.get("error") or answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return error if isinstance(error, str) else json.dumps(error)
    message = next((error[name] for name in ("message", "detail", "error") if error.get(name)), error)
    text = message if isinstance(message, str) else json.dumps(_without_input(message))
    code = error.get("code")
    return f"{text} ({code})" if isinstance(code, str) else text


def _without_input(message: object) -> object:
    """Without what was sent: servers made with FastAPI repeat it, and errors are kept beyond a text's deletion."""
    if not isinstance(message, list):
        return message
    return [
        {name: value for name, value in item.items() if name not in ("input", "ctx")}
        if isinstance(item, dict)
        else item
        for item in message
    ]


def about_input(status: int, said: str) -> bool:
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


# --- what the caller says --------------------------------------------------------------------------------------


def _checked_url(base_url: str, service: Service) -> str:
    """The URL without a slash at its end. Errors do not repeat it: it may hold a password."""
    hint = f"base_url ({ENVIRONMENT[f'{service.option}_url']})"
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
    if path.endswith(service.path):
        raise InvalidInput(f"{hint} must end before {service.path}, which is added")
    return f"{parts.scheme}://{parts.netloc}{path}"


def place_of(url: str) -> str:
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


def _checked_key(api_key: str | None, service: Service) -> _Key | None:
    if api_key is None:
        return None
    if not isinstance(api_key, str) or not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise InvalidInput(
            f"api_key ({ENVIRONMENT[f'{service.option}_key']}) must be printable ASCII without blanks; "
            "is there a line break at its end?"
        )
    return _Key(api_key)


def check_encodable(name: str, text: str) -> None:
    """:raises InvalidInput: when the text cannot be sent."""
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} holds half a character (a lone surrogate) and cannot be sent") from error


def checked_seconds(name: str, value: float) -> float:
    """:raises InvalidInput: for what is no positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidInput(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)


def checked_count(name: str, value: int, least: int) -> int:
    """:raises InvalidInput: for what is no whole number from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} must be a whole number from {least}, not {value!r}")
    return value
