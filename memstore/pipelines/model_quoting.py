"""What was said and what is known, as data in a prompt.

Each thing is one line of JSON, between marks. A quote or a line break in a text is escaped by JSON and ``<`` is spelled
out, so that no text can close its line or its mark and pass for something that memstore says.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from memstore.pipelines.values import (
    MAX_SAID_CHARS,
    Comparison,
    Known,
    Language,
    ProfileTask,
    Said,
    Scene,
    SceneTask,
    Window,
)

MAX_BACKGROUND_CHARS = 4_000
"""Of a message that is shown to make others understood; nothing is extracted from it."""
MAX_TOOL_CHARS = 1_000
"""Of what a tool returned: enough to know what the talk is about."""
MAX_LISTED_CHARS = 200
"""Of a message where a profile is made from messages alone."""

_WEEKDAYS: Mapping[Language, tuple[str, ...]] = {
    "zh": ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
    "en": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
}
_LEFT_OUT: Mapping[Language, str] = {
    "zh": "……[此处略去 {} 个字符]……",
    "en": " …[{} characters left out here]… ",
}
_ENCODED = re.compile(r"(?:data:[\w.+/-]{1,80};base64,)?+[A-Za-z0-9+/_-]{256,}+={0,2}")
# Line ends that JSON leaves as they are, and marks that change the direction of writing.
_HIDDEN = re.compile("[<\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def window_slots(window: Window) -> Mapping[str, str]:
    """Background comes without ids: what has none cannot be cited."""
    language = window.language
    return {
        "scene": line(window.scene),
        "background": _lines(_said(one, language, MAX_BACKGROUND_CHARS) for one in window.background),
        "new_messages": _lines({"id": one.id, **_said(one, language, MAX_SAID_CHARS)} for one in window.new),
    }


def comparison_slots(comparison: Comparison) -> Mapping[str, str]:
    items = (
        {
            "item": number,
            "kind": item.proposal.kind,
            "priority": item.proposal.priority,
            "content": item.proposal.content,
            "time_start": _moment(item.proposal.time_start),
            "time_end": _moment(item.proposal.time_end),
            "neighbours": [_known(known) for known in item.neighbours],
        }
        for number, item in enumerate(comparison.items)
    )
    return {"now": _moment(comparison.now) or "", "items": _lines(items)}


def scene_slots(task: SceneTask) -> Mapping[str, str]:
    gone = frozenset(known.id for known in task.gone)
    scenes = (
        {**_scene(scene), "from_gone": [source for source in scene.source_ids if source in gone]}
        for scene in task.scenes
    )
    return {
        "now": _moment(task.now) or "",
        "most": str(task.most),
        "near": str(max(1, task.most - 2)),
        "count": str(len(task.scenes)),
        "max_chars": str(task.max_chars),
        "scenes": _lines(scenes),
        "memories": _lines(_known(known) for known in task.memories),
        "gone": _lines(_known(known) for known in task.gone),
    }


def profile_slots(task: ProfileTask) -> Mapping[str, str]:
    return {
        "now": _moment(task.now) or "",
        "kind": task.profile,
        "max_chars": str(task.max_chars),
        "current": line(task.current),
        "scenes": _lines(_scene(scene) for scene in task.scenes),
        "memories": _lines(_known(known) for known in task.memories),
        "messages": _lines(_said(one, task.language, MAX_LISTED_CHARS) for one in task.messages),
    }


def line(value: Any) -> str:
    """One line of JSON that cannot end the mark it stands in."""
    text = json.dumps(value, ensure_ascii=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clipped(text: str, most: int, language: Language) -> str:
    """A text without embedded files; of a long one its head and its tail, with a mark that says what is missing."""
    text = without_files(text, language)
    if len(text) <= most:
        return text
    head = most * 3 // 4
    tail = most - head
    return text[:head] + left_out(len(text) - most, language) + text[-tail:]


def without_files(text: str, language: Language) -> str:
    return _ENCODED.sub(lambda found: left_out(len(found[0]), language), text)


def left_out(chars: int, language: Language) -> str:
    """The mark that stands for what is missing."""
    return _LEFT_OUT[language].format(chars)


def _lines(values: Iterable[Any]) -> str:
    return "\n".join(line(value) for value in values)


def _said(said: Said, language: Language, most: int) -> dict[str, Any]:
    if said.role == "tool" or said.source_kind == "tool":
        speaker, most = "tool", min(most, MAX_TOOL_CHARS)
    elif said.role == "user":
        speaker = "principal" if said.by_principal else "other"
    else:
        speaker = "assistant" if said.role == "assistant" else "system"
    return {
        "speaker": speaker,
        **({"name": said.name} if said.name else {}),
        "at": said.at.isoformat(timespec="minutes"),
        "weekday": _WEEKDAYS[language][said.at.weekday()],
        "text": clipped(said.text, most, language),
    }


def _known(known: Known) -> dict[str, Any]:
    return {
        "id": known.id,
        "kind": known.kind,
        "priority": known.priority,
        "recorded": _moment(known.recorded_at),
        "content": known.content,
    }


def _scene(scene: Scene) -> dict[str, Any]:
    return {
        "scene_id": scene.id,
        "name": scene.name,
        "updated": _moment(scene.updated_at),
        "content": scene.content,
    }


def _moment(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="minutes")
