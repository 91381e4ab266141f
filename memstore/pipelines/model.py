"""The judge that asks a chat model."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from memstore.errors import LLMRejected, LLMUnavailable, MemstoreError
from memstore.llm import LLM, NOT_FINISHED, LLMReply, LLMRequest, Usage
from memstore.pipelines.model_quoting import comparison_slots, profile_slots, scene_slots, window_slots
from memstore.pipelines.model_reading import (
    MAX_PROPOSALS,
    read_changes,
    read_extraction,
    read_profile,
    read_verdicts,
)
from memstore.pipelines.values import (
    ACTIONS,
    MAX_MEMORY_CHARS,
    Comparison,
    Extraction,
    Judgement,
    Language,
    ProfileTask,
    SceneChange,
    SceneTask,
    Verdict,
    Window,
)
from memstore.prompts import prompt
from memstore.types import KINDS, MAX_PRIORITY

DEFAULT_MAX_TOKENS = 4_000
DEFAULT_TIMEOUT_S = 60.0

logger = logging.getLogger("memstore")

T = TypeVar("T")
_Task = Literal["extract", "verdict", "scenes", "profile"]


class ModelJudge:
    """Decides by asking ``llm``, with the prompts of :mod:`memstore.prompts`.

    What a task needs is in its one request; nothing is kept between calls, and several threads may ask at once.

    :param max_tokens: of each reply.
    :param model: another model than the one that ``llm`` stands for, at the same server.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        model: str | None = None,
    ) -> None:
        self._llm = llm
        self._model = model
        self._max_tokens = max_tokens
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        return self._model or str(getattr(self._llm, "name", None) or type(self._llm).__name__)

    def extract(self, window: Window) -> Judgement[Extraction]:
        return self._judged(
            "extract",
            window.language,
            window_slots(window),
            _EXTRACT,
            lambda text: read_extraction(text, window),
        )

    def verdicts(self, comparison: Comparison) -> Judgement[Sequence[Verdict]]:
        def read(text: str) -> Sequence[Verdict]:
            return read_verdicts(text, comparison)

        schema = _verdict_schema(len(comparison.items))
        return self._judged("verdict", comparison.language, comparison_slots(comparison), schema, read)

    def scenes(self, task: SceneTask) -> Judgement[Sequence[SceneChange]]:
        def read(text: str) -> Sequence[SceneChange]:
            return read_changes(text, task)

        return self._judged("scenes", task.language, scene_slots(task), _scenes_schema(task), read)

    def profile(self, task: ProfileTask) -> Judgement[str]:
        schema = _object(profile={"type": "string", "maxLength": task.max_chars})
        return self._judged(
            "profile",
            task.language,
            profile_slots(task),
            schema,
            lambda text: read_profile(text, task.max_chars),
        )

    def _judged(
        self,
        task: _Task,
        language: Language,
        slots: Mapping[str, str],
        schema: Mapping[str, Any],
        read: Callable[[str], T],
    ) -> Judgement[T]:
        asked = prompt(task, language)
        messages = asked.filled(slots)
        reply = self._answer(
            LLMRequest(task, messages, schema, self._max_tokens, self._timeout_s, asked.id, self._model)
        )
        return Judgement(read(reply.text), self.name, asked.id, reply.text, Usage.of(reply.usage))

    def _answer(self, request: LLMRequest) -> LLMReply:
        try:
            reply = self._llm.complete(request)
        except MemstoreError:
            raise
        except Exception as error:  # whatever a user's client raises, the work is only put off
            # Clients put requests and their headers into errors, and errors are kept and shown: the text goes no further.
            logger.debug("the model %s failed at %s", self.name, request.task, exc_info=error)
            raise LLMUnavailable(
                f"the model {self.name} failed at {request.task} with {type(error).__name__}; the debug log has its text"
            ) from None
        if not isinstance(reply, LLMReply) or not isinstance(reply.text, str):
            raise LLMRejected(
                f"the model {self.name} answered {_kind_of(reply)}, not an LLMReply with text: mend its complete()"
            )
        if reply.finish_reason in NOT_FINISHED:
            raise LLMRejected(
                f"the reply of {self.name} to {request.task} was cut off ({reply.finish_reason} after at most"
                f" {request.max_tokens} tokens); what it was asked for stays pending"
            )
        return reply


def _kind_of(reply: object) -> str:
    if isinstance(reply, LLMReply):
        return f"an LLMReply whose text is {type(reply.text).__name__}"
    return type(reply).__name__


def _object(**properties: Any) -> Mapping[str, Any]:
    """All of it required and nothing beside, as servers with strict schemas want it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any, most: int) -> Mapping[str, Any]:
    return {"type": "array", "items": items, "maxItems": most}


_ID = {"type": "string", "maxLength": 256}
_MOMENT = {"type": ["string", "null"], "maxLength": 40}
_TEXT = {"type": "string", "maxLength": MAX_MEMORY_CHARS}
_PRIORITY = {"type": "integer", "minimum": 0, "maximum": MAX_PRIORITY}
_EXTRACT = _object(
    scene={"type": "string", "maxLength": 300},
    scene_changed={"type": "boolean"},
    memories=_list(
        _object(
            content=_TEXT,
            kind={"type": "string", "enum": list(KINDS)},
            priority=_PRIORITY,
            source_ids=_list(_ID, 50),
            time_start=_MOMENT,
            time_end=_MOMENT,
        ),
        MAX_PROPOSALS,
    ),
)


def _verdict_schema(items: int) -> Mapping[str, Any]:
    verdict = _object(
        item={"type": "integer", "minimum": 0, "maximum": max(0, items - 1)},
        action={"type": "string", "enum": list(ACTIONS)},
        target_ids=_list(_ID, 10),
        target_items=_list({"type": "integer", "minimum": 0, "maximum": max(0, items - 1)}, 10),
        content={**_TEXT, "type": ["string", "null"]},
        kind={"type": ["string", "null"], "enum": [*KINDS, None]},
        priority={**_PRIORITY, "type": ["integer", "null"]},
    )
    return _object(verdicts=_list(verdict, items))


def _scenes_schema(task: SceneTask) -> Mapping[str, Any]:
    change = _object(
        scene_id={**_ID, "type": ["string", "null"]},
        name={"type": "string", "maxLength": 60},
        content={"type": "string", "maxLength": task.max_chars},
        memory_ids=_list(_ID, 100),
        merged_ids=_list(_ID, task.most),
    )
    return _object(changes=_list(change, len(task.scenes) + task.most))
