"""What tests of the pipelines share: replies of a scripted model, and stores that ask it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memstore import MemoryStore, Message, Scope
from memstore.llm import LLMReply, LLMRequest
from memstore.pipelines.extraction import ExtractRunner
from memstore.testing import ScriptedLLM
from memstore.types import WorkReport
from memstore.worker import Worker

Reply = str | LLMReply | Exception
Answer = Reply | Callable[[LLMRequest], Reply]


def proposed(content: str, *source_ids: str, kind: str = "persona", **more: Any) -> dict[str, Any]:
    """A memory of an extract reply; without sources it cites nothing."""
    return {"content": content, "kind": kind, "priority": 60, "source_ids": list(source_ids), **more}


def extraction(*memories: Mapping[str, Any], scene: str = "talk") -> str:
    """An extract reply."""
    reply = {"scene": scene, "scene_changed": False, "memories": list(memories)}
    return json.dumps(reply, ensure_ascii=False)


def verdict(item: int, action: str, *target_ids: str, **more: Any) -> dict[str, Any]:
    """One of a verdict reply."""
    return {"item": item, "action": action, "target_ids": list(target_ids), **more}


def verdicts(*decided: Mapping[str, Any]) -> str:
    """A verdict reply."""
    return json.dumps({"verdicts": list(decided)}, ensure_ascii=False)


def by_task(**answers: Answer | Sequence[Answer]) -> ScriptedLLM:
    """A model with replies for each task: one that it always gives, or a list of them, in turn."""
    turns = {task: iter(given) for task, given in answers.items() if isinstance(given, list)}

    def reply(request: LLMRequest) -> Reply:
        given = answers.get(request.task, "[]")
        told = next(turns[request.task]) if request.task in turns else given
        found = told(request) if callable(told) else told
        assert isinstance(found, str | LLMReply | Exception)
        return found

    return ScriptedLLM(reply)


def asked(request: LLMRequest) -> str:
    """All that a request says."""
    return "\n".join(message["content"] for message in request.messages)


_ID = re.compile(r'"id": "([0-9A-Z]{26})"')


def cited_ids(request: LLMRequest) -> list[str]:
    """Ids that a request shows: of new messages, or of neighbours."""
    return list(dict.fromkeys(_ID.findall(asked(request))))


def say(store: MemoryStore, scope: Scope, session: str, *texts: str | Message) -> list[str]:
    """Record messages, user messages where they are bare texts; returns their ids."""
    messages = [Message("user", text) if isinstance(text, str) else text for text in texts]
    return list(store.record(scope, messages, session).ids)


def extract_due(store: MemoryStore) -> WorkReport:
    """Have a worker extract what is due, and nothing else be done."""
    return Worker(store._pipelines, [ExtractRunner(store._pipelines)]).run_due()


class Repeating:
    """A model that proposes what it is told before each extraction.

    ``memories`` are proposed once; ``decided`` is the verdict reply, else everything is stored.
    """

    def __init__(self) -> None:
        self.memories: list[Mapping[str, Any]] = []
        self.decided: list[Mapping[str, Any]] = []
        self.llm = ScriptedLLM(self._reply)

    def _reply(self, request: LLMRequest) -> str:
        if request.task == "extract":
            memories, self.memories = self.memories, []
            return extraction(*memories)
        if request.task == "verdict":
            decided, self.decided = self.decided, []
            return verdicts(*decided)
        return "[]"

    def asked_for(self, task: str) -> list[LLMRequest]:
        return [request for request in self.llm.requests if request.task == task]


def learn(
    store: MemoryStore,
    model: Repeating,
    scope: Scope,
    content: str,
    *decided: Mapping[str, Any],
    session: str = "chat",
    **more: Any,
) -> str | None:
    """Have a user say something and the model make a memory of it; returns the memory's id."""
    ids = say(store, scope, session, content)
    model.memories, model.decided = [proposed(content, *ids, **more)], list(decided)
    report = store.extract(scope, session)
    assert len(report.verdicts) == 1, report
    return report.verdicts[0].memory_id
