"""Chat models behind an HTTP server that speaks OpenAI's API: ``POST {base_url}/chat/completions``.

OpenAI itself, and the many that copied it: vLLM, llama.cpp, Ollama, LM Studio, DeepSeek, DashScope. They differ
most in which parameters they refuse; how they are reached, and what is believed of them, is
:mod:`memstore.model_server`'s, and how an answer is read :mod:`memstore.llms.completions`'.
"""

from __future__ import annotations

import json
import logging
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from memstore.clock import Clock, SystemClock
from memstore.errors import InvalidInput, LLMError, LLMRejected, LLMUnavailable
from memstore.llm import LLMReply, Usage
from memstore.llms.completions import read_completion
from memstore.model_server import (
    ModelServer,
    Patience,
    Refused,
    Service,
    about_input,
    check_encodable,
    checked_count,
    checked_seconds,
)
from memstore.prompts import prompt
from memstore.replies import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memstore.llm import LLMRequest

logger = logging.getLogger("memstore")

Structured = Literal["json_schema", "json_object", "plain"]

TIMEOUT_S = 60.0
MAX_RETRIES = 3
TOKEN_BYTES = 64  # a token is rarely longer than 16 characters, and an escaped one takes 6 bytes a character
REPLY_BYTES = 1 << 19  # what a reply may hold besides its text: a model's reasoning, above all

_LADDER: tuple[Structured, ...] = ("json_schema", "json_object", "plain")
_ADAPTABLE = frozenset({400, 422, 500, 501})  # forks of llama.cpp answer 500

# Quoted from the servers: "This response_format type is unavailable now" (DeepSeek), "'response_format.type' must be
# 'json_schema'" (LM Studio), "Invalid schema for response_format" (OpenAI), "Unknown name … at
# 'generation_config.response_schema'" (Gemini).
_ABOUT_FORMAT = re.compile(
    r"response.?(?:format|schema)|json.?(?:schema|object|mode)|structured.?output|guided|grammar|\bschema\b",
    re.IGNORECASE,
)
# "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead" (OpenAI).
_ABOUT_TOKENS = re.compile(
    r"max_completion_tokens|(?:unsupported|unknown|unrecognized|unexpected)[^.]*max_tokens"
    r"|max_tokens[^.]*(?:unsupported|not (?:supported|permitted|allowed))",
    re.IGNORECASE,
)
# "Unsupported value: 'temperature' does not support 0 with this model" (OpenAI), "invalid temperature: only 1 is
# allowed for this model" (Moonshot).
_ABOUT_TEMPERATURE = re.compile(r"\btemperature\b", re.IGNORECASE)

_SERVICE = Service(
    name="the chat server",
    path="/chat/completions",
    option="llm",
    unavailable=LLMUnavailable,
    rejected=LLMRejected,
    refuses=lambda status, said: (
        status in (400, 422) or about_input(status, said) or _about_parameters(status, said)
    ),
    request_hint="check the model's name, and structured if it is set",
    slow_hint="a smaller or faster model",
    size="a reply of the tokens asked for can take; check the base URL",
)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What one server takes."""

    structured: Structured
    fixed: bool = False
    max_tokens: str = "max_tokens"
    temperature: bool = True

    def without(self, status: int, said: str, *, schema: bool) -> _Dialect | None:
        """The dialect without what an error names; None where it names nothing that can be left out.

        Each is poorer than the one before, so that asking again comes to an end.
        """
        if not _about_parameters(status, said):
            return None
        if self.max_tokens == "max_tokens" and _ABOUT_TOKENS.search(said):
            return replace(self, max_tokens="max_completion_tokens")
        if self.temperature and _ABOUT_TEMPERATURE.search(said):
            return replace(self, temperature=False)
        return self.poorer() if schema and _ABOUT_FORMAT.search(said) else None

    def poorer(self) -> _Dialect | None:
        """With the next form of structured output; None where that is fixed, or there is none."""
        if self.fixed or self.structured == _LADDER[-1]:
            return None
        return replace(self, structured=_LADDER[_LADDER.index(self.structured) + 1])


def _about_parameters(status: int, said: str) -> bool:
    patterns = (_ABOUT_FORMAT, _ABOUT_TOKENS, _ABOUT_TEMPERATURE)
    return status in _ADAPTABLE and any(pattern.search(said) for pattern in patterns)


class OpenAIChat:
    """A chat model behind an OpenAI-compatible server; needs ``memstore[openai]``.

    The constructor checks its arguments and does no more; the server is asked at the first use. Safe with threads,
    which do not wait for each other, and after a fork. A server that cannot be used raises
    :class:`~memstore.errors.LLMUnavailable`; an answer that cannot be, :class:`~memstore.errors.LLMRejected`.
    No error or log holds text of an answer.

    A request with a schema is sent with OpenAI's ``json_schema`` output. A server that refuses that is asked with
    ``json_object`` and the schema in the system message, and one that refuses that too with the message alone. What
    it takes is remembered for each model, as are ``max_completion_tokens`` for ``max_tokens``, and that it refuses a
    ``temperature`` (0 is sent otherwise). A reply that cannot be read as JSON is sent back once, to be repaired; the
    usage and calls are those of both, also of an error. If that cannot be read either, it is given back as it is, for
    its reader to refuse.

    :param model: asked where a request names no other of the same server.
    :param base_url: http or https, up to and without ``/chat/completions``, such as ``https://api.openai.com/v1``.
    :param api_key: sent as a bearer token; appears in no repr, error or log.
    :param timeout_s: seconds for a connection, and for any silence of the server, which is silent until its answer
        is complete; ``LLMRequest.timeout_s`` is for a request with all its tries and waits.
    :param max_retries: further tries after 429, 500, 502, 503, 504, a lost connection or a timeout, 0.5 s, 1 s, 2 s
        … apart, or as far as ``Retry-After`` says (a minute at most).
    :param clock: for time budgets and for a ``Retry-After`` that is a date. :param sleep: waits between tries.
    :param structured: ``auto``, or one of ``json_schema``, ``json_object`` and ``plain``, which is then kept to.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
        structured: Structured | Literal["auto"] = "auto",
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise InvalidInput("model must be the name of a chat model")
        check_encodable("model", model)
        if structured != "auto" and structured not in _LADDER:
            raise InvalidInput(f"structured must be 'auto' or one of {', '.join(map(repr, _LADDER))}")
        self._model = model
        self._max_retries = checked_count("max_retries", max_retries, 0)
        self._clock = clock or SystemClock()
        self._server = ModelServer(_SERVICE, base_url, api_key, timeout_s, self._clock, sleep)
        self._richest = _Dialect("json_schema") if structured == "auto" else _Dialect(structured, fixed=True)
        # By model: one server may have several, which differ. Each is replaced as a whole, so that threads need no
        # lock: one that overwrites another's lesson learns it again.
        self._dialects: dict[str, _Dialect] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, {self._server.url!r})"

    @property
    def name(self) -> str:
        """The name of the model that is asked where a request names no other."""
        return self._model

    def complete(self, request: LLMRequest) -> LLMReply:
        """The model's answer. Cut off (``finish_reason`` ``length``) it is neither refused nor repaired.

        :raises LLMUnavailable: when no answer could be had within ``request.timeout_s``.
        :raises LLMRejected: a refusal, or no answer to what was asked; also a request that is too long or moderated.
        """
        deadline = self._clock.monotonic() + checked_seconds("timeout_s", request.timeout_s)
        first = self._answer(request, request.messages, deadline)
        if request.schema is None or first.finish_reason == "length" or _readable(first.text, request.schema):
            return first
        if self._clock.monotonic() >= deadline:
            return first
        model = self._asked(request)
        dialect = self._dialect(model)
        poorer = dialect.poorer()
        if dialect.structured == "json_schema" and poorer is not None:
            self._learn(
                model, poorer
            )  # the server takes the schema and does not keep to it: the model is to see it
        messages = (
            *request.messages,
            {"role": "assistant", "content": first.text},
            _asked_form(request.schema)[1],
        )
        try:
            second = self._answer(request, messages, deadline)
        except LLMError as error:
            error.usage = first.usage if error.usage is None else _sum(first.usage, error.usage)
            error.calls += first.calls
            raise
        return replace(second, usage=_sum(first.usage, second.usage), calls=first.calls + second.calls)

    def close(self) -> None:
        """Give the connections back. A later use opens new ones; an object that is let go closes its own."""
        self._server.close()

    def _asked(self, request: LLMRequest) -> str:
        return request.model or self._model

    def _dialect(self, model: str) -> _Dialect:
        return self._dialects.get(model, self._richest)

    def _answer(
        self, request: LLMRequest, messages: Sequence[Mapping[str, str]], deadline: float
    ) -> LLMReply:
        """One answer, in the richest dialect that the model's server takes."""
        model = self._asked(request)
        dialect = started = self._dialect(model)
        cap = request.max_tokens * TOKEN_BYTES + REPLY_BYTES
        while True:
            body = _body(model, request, messages, dialect)
            try:
                raw = self._server.post(body, cap, Patience(self._max_retries, deadline))
            except Refused as refusal:
                other = dialect.without(refusal.status, refusal.said, schema=request.schema is not None)
                if other is None:
                    raise self._final(refusal) from None
                dialect = other
            else:
                # Not before: an error may name what is not at fault.
                if dialect != started:
                    self._learn(model, dialect)
                return read_completion(raw, self._server)

    def _learn(self, model: str, dialect: _Dialect) -> None:
        self._dialects[model] = dialect
        logger.info(
            "%s at %s is asked with %s, %s and %s temperature from now on",
            model,
            self._server.place,
            {"plain": "the schema in the message"}.get(dialect.structured, dialect.structured),
            dialect.max_tokens,
            "a" if dialect.temperature else "no",
        )

    def _final(self, refusal: Refused) -> LLMRejected | LLMUnavailable:
        """What a refusal means that no other dialect helps against."""
        told = f"{self._server.name} {self._server.answered(refusal.status, refusal.said)}"
        if about_input(refusal.status, refusal.said):
            return LLMRejected(
                f"{told}; it does not take this text: make it shorter, ask for fewer tokens, or use another model"
            )
        return LLMUnavailable(f"{told}; {_SERVICE.hint(refusal.status)}")


def _body(model: str, request: LLMRequest, messages: Sequence[Mapping[str, str]], dialect: _Dialect) -> bytes:
    body: dict[str, Any] = {"model": model, "stream": False, dialect.max_tokens: request.max_tokens}
    if dialect.temperature:
        body["temperature"] = 0
    schema = request.schema
    if schema is not None and dialect.structured != "json_schema":
        messages = _with_schema(messages, schema)
    body["messages"] = [dict(message) for message in messages]
    if schema is not None and dialect.structured == "json_schema":
        form = {"name": request.task, "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    elif schema is not None and dialect.structured == "json_object":
        body["response_format"] = {"type": "json_object"}
    # A lone surrogate, which no message should hold, becomes a question mark rather than an error.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _asked_form(schema: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
    """What a server that takes no schema is told beside the question, and what a reply in another form is answered."""
    return prompt("form", "any").filled({"schema": json.dumps(schema, ensure_ascii=False)})


def _with_schema(messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The schema at the end of the system message, of which many servers take only one."""
    told = _asked_form(schema)[0]["content"]
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{told}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]


def _readable(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a reply holds JSON that its reader may be able to use; what is in it, the reader checks."""
    names = schema.get("properties", {})

    def fits(value: Any) -> bool:
        if isinstance(value, dict):
            return not names or any(name in value for name in names)
        return all(isinstance(item, dict) for item in value)

    try:
        read_json(text, fits)
    except LLMRejected:
        return False
    return True


def _sum(first: Usage, second: Usage) -> Usage:
    """Of two calls; what one of them did not say is not known of both."""
    return Usage(
        _added(first.input_tokens, second.input_tokens), _added(first.output_tokens, second.output_tokens)
    )


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
