"""A small OpenAI-compatible chat server on the loopback, which errs on order: one scripted reply a request."""

import threading
from collections.abc import Callable
from typing import Any

from openai_stub import DIM, Reply, Step, Stub

TEXT = '{"answer": "tea"}'
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def completion(message: Any, finish_reason: Any = "stop", usage: Any = USAGE, **more: Any) -> Reply:
    """A whole answer with one choice."""
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, **more}
    return Reply(body={"id": "c-1", "object": "chat.completion", "choices": [choice], "usage": usage})


def text(content: Any, finish_reason: Any = "stop", usage: Any = USAGE, **message: Any) -> Reply:
    """An answer of the assistant; ``message`` adds to its message."""
    return completion({"role": "assistant", "content": content, **message}, finish_reason, usage)


def stream(*events: str, cut: int | None = None) -> Reply:
    """Server-sent events, ended properly unless ``cut``."""
    lines = "".join(f"data: {event}\n\n" for event in events)
    return Reply(200, lines, {"Content-Type": "text/event-stream"}, cut)


def gated(gate: threading.Event, reply: Reply) -> Callable[[dict[str, Any]], Reply]:
    """A reply that is held back until the gate opens."""

    def step(request: dict[str, Any]) -> Reply:
        assert gate.wait(timeout=60)
        return reply

    return step


class ChatStub(Stub):
    """Answers ``TEXT`` unless the script, ``then`` or ``judge`` say otherwise; see there."""

    def __init__(self, *script: Step) -> None:
        super().__init__(DIM)
        self.script.extend(script)

    def sound(self, request: dict[str, Any]) -> Reply:
        refusal = self.judge(request) if self.judge else None
        return refusal or text(TEXT)

    @property
    def formats(self) -> list[str | None]:
        """The structured output that each request asked for."""
        return [request.get("response_format", {}).get("type") for request in self.requests]
