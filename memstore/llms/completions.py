"""Reads a chat completion: the text, why it ended, and what it cost, of an answer that may be anything.

No error here holds text of the answer: errors are kept with jobs, beyond the deletion of what a user said.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memstore.errors import LLMError, LLMRejected, LLMUnavailable
from memstore.llm import LLMReply, Usage
from memstore.model_server import error_text

if TYPE_CHECKING:
    from memstore.model_server import ModelServer

LENGTH = "length"
MAX_TOKENS = 1 << 31  # of one call; a larger count is none

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_WITHHELD = frozenset({"content_filter", "safety", "sensitive", "recitation"})
# DeepSeek's "insufficient_system_resource", Zhipu's "network_error", vLLM's "abort", OpenRouter's "error".
_BROKEN_OFF = frozenset({"insufficient_system_resource", "network_error", "abort", "error"})


def read_completion(raw: bytes, server: ModelServer) -> LLMReply:
    """The first choice of an answer's body. ``finish_reason`` is in small letters, ``stop`` where there is none, and
    ``length`` however the server says that the text was cut off; such a text may be empty, another is not. An answer
    that cannot be used is paid for as well: the errors carry its usage.

    :raises LLMUnavailable: the server reports that it failed. :raises LLMRejected: no usable answer.
    """
    answer = _object(raw, server)
    usage = _usage(answer.get("usage"))
    try:
        text, finish = _said(answer, raw, server)
    except LLMError as error:
        error.usage = None if usage == Usage() else usage
        raise
    return LLMReply(text, finish, usage)


def _said(answer: dict[str, Any], raw: bytes, server: ModelServer) -> tuple[str, str]:
    """The text, and why it ended."""
    choice = _choice(answer, raw, server)
    finish = _finish_reason(choice, server)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise LLMRejected(f"{server.name} sent a choice without a message; check the base URL")
    text, refused = _text(message.get("content"))
    if refused or message.get("refusal"):
        raise LLMRejected(f"{server.name}: the model refused to answer; use another model, if it goes on")
    if finish != LENGTH and not text.strip():
        raise LLMRejected(f"{server.name} {_emptiness(message)}")
    return text, finish


def _object(raw: bytes, server: ModelServer) -> dict[str, Any]:
    try:
        answer = json.loads(raw)
    except (ValueError, RecursionError):
        # Not chained: the cause holds the answer.
        raise LLMRejected(f"{server.name} {_no_json(raw)}") from None
    if not isinstance(answer, dict):
        raise LLMRejected(f"{server.name} sent JSON that is no object; check the base URL")
    return answer


def _no_json(raw: bytes) -> str:
    start = raw[:64].lstrip().lower()
    if start.startswith(b"<"):
        return "sent a page instead of JSON; check the base URL"
    if start.startswith((b"data:", b"event:", b":")):
        return "sent a stream though asked not to; turn that off there"
    return f"sent no complete JSON in {len(raw):,} bytes; check the base URL, and look at the server"


def _choice(answer: dict[str, Any], raw: bytes, server: ModelServer) -> dict[str, Any]:
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choice: dict[str, Any] = choices[0]
        if not choice.get("error"):
            return choice
        raise _failure(json.dumps(choice).encode("utf-8"), server)
    if answer.get("error"):
        raise _failure(raw, server)
    what = "an empty list 'choices'" if choices == [] else "no list of objects 'choices'"
    raise LLMRejected(f"{server.name} sent {what}; check the base URL, and look at the server")


def _failure(raw: bytes, server: ModelServer) -> LLMUnavailable:
    said = server.printable(error_text(raw))
    return LLMUnavailable(f"{server.name} answered with an error: {said}; look at the server, then try again")


def _finish_reason(choice: dict[str, Any], server: ModelServer) -> str:
    reason = choice.get("finish_reason")
    if not isinstance(reason, str) or not reason:
        return "stop"
    reason = server.printable(reason[:40]).lower()
    if reason in _WITHHELD:
        raise LLMRejected(
            f"{server.name} withheld its answer ({reason}): its moderation does not take this text"
        )
    if reason in _BROKEN_OFF:
        raise LLMUnavailable(
            f"{server.name} broke off its answer ({reason}); look at the server, then try again"
        )
    return LENGTH if reason in _CUT_OFF else reason


def _text(content: object) -> tuple[str, bool]:
    """The text of a content, which may be a list of parts, and whether a part of it is a refusal."""
    if isinstance(content, str):
        return _whole_characters(content), False
    parts = content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else _part(part) for part in parts]
    refused = any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts)
    return _whole_characters("".join(texts)), refused


def _part(part: object) -> str:
    """Thoughts are parts of another type."""
    if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text"):
        text = part.get("text")
        return text if isinstance(text, str) else ""
    return ""


def _whole_characters(text: str) -> str:
    """Halves of a character that belong together joined, others as U+FFFD: nothing could store them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _emptiness(message: dict[str, Any]) -> str:
    if message.get("tool_calls") or message.get("function_call"):
        return "sent a call of a tool instead of text, though none was offered; use another model"
    if message.get("reasoning_content") or message.get("reasoning"):
        return "sent thoughts and no text; turn thinking off there, or use another model"
    return "sent an answer without text; look at the server, or use another model"


def _usage(usage: object) -> Usage:
    if not isinstance(usage, dict):
        return Usage()
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))


def _count(value: object) -> int | None:
    """Some servers send counts as floats, or null."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_TOKENS:
        return None
    return int(value)
