"""The LLM port: what memstore asks of a chat model, and what comes back.

A pipeline never sees a server. It hands an :class:`LLMRequest` to an object with ``complete`` and believes nothing of
the answer: every reply is read by :mod:`memstore.replies` and checked by the stage that asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

LLMTask = Literal["extract", "verdict", "scenes", "profile", "summary", "title", "welcome", "state"]

NOT_FINISHED = ("length", "max_tokens", "content_filter")


@dataclass(frozen=True, slots=True)
class LLMRequest:
    """One question to a model.

    :param messages: of ``{"role": "system" | "user" | "assistant", "content": text}``.
    :param schema: the JSON schema that the reply has to follow; None where plain text is wanted.
    :param max_tokens: of the reply.
    :param timeout_s: within which the reply has to be there, retries included.
    :param prompt: name and version of the prompt that the messages were made from, such as ``extract.zh@1``.
    :param model: another model than the one the object stands for, at the same server, where it can give one.
    """

    task: LLMTask
    messages: tuple[Mapping[str, str], ...]
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 2_000
    timeout_s: float = 60.0
    prompt: str = ""
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a reply cost; None where the model did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def of(cls, reported: object) -> "Usage":
        """What a model reported, as far as it makes sense: a number of tokens that is none is not known."""
        given = reported if isinstance(reported, Usage) else cls()
        return cls(token_count(given.input_tokens), token_count(given.output_tokens))


MAX_TOKENS = 1 << 31
"""Of one call; a larger count is none."""


def token_count(value: object) -> int | None:
    """A count as a model reported it; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_TOKENS:
        return None
    return value


@dataclass(frozen=True, slots=True)
class LLMReply:
    """What a model answered. A ``finish_reason`` of :data:`NOT_FINISHED` means that it was cut off, which always counts as
    a failure.

    :param calls: that it took: one that had to be repaired took two. ``usage`` is that of all of them.
    """

    text: str
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    calls: int = 1


@runtime_checkable
class LLM(Protocol):
    """A chat model.

    Called from several threads at once, never inside a transaction. ``name``, where it has one, is kept with
    everything that was made by it; without one the name of the class is.
    """

    def complete(self, request: LLMRequest) -> LLMReply:
        """Answer within ``request.timeout_s``.

        :raises memstore.errors.LLMUnavailable: when no answer could be had. Any other exception counts the same; of one
            that is not memstore's nothing but its type is kept. What a failure cost may be said by its ``usage``.
        """
        ...
