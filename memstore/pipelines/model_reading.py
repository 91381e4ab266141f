"""What a model answered, as values of the pipelines.

Nothing in a reply is believed. Whatever a model writes into a field, the value that comes out is a legal one; fields
that were not asked for (visibility, trust, ids, owners) are not looked at. Whether the ids that are cited exist, and
may be, is for the stage to check.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, tzinfo
from typing import Any, cast

from memstore.errors import LLMRejected
from memstore.pipelines.values import (
    ACTIONS,
    DEFAULT_PRIORITY,
    MAX_MEMORY_CHARS,
    Comparison,
    Extraction,
    Proposal,
    SceneChange,
    SceneTask,
    Verdict,
    Window,
)
from memstore.pipelines.written_text import DELETED
from memstore.replies import is_apology, read_json, read_text
from memstore.types import KINDS, MAX_PRIORITY, Kind

MAX_PROPOSALS = 50
MAX_IDS = 100
MAX_SCENE_SENTENCE = 300
MAX_SCENE_NAME = 60

_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_END_OF_DAY = time(23, 59, 59)
_KEPT_CONTROLS = "\n\t"


# --- L1 ----------------------------------------------------------------------------------------------------------


def read_extraction(text: str, window: Window) -> Extraction:
    """:raises LLMRejected: where the reply is no extraction; ``[]`` is one, ``{}`` is none."""
    reply = read_json(text, lambda value: _listed(value, "memories", "content") is not None)
    items = _listed(reply, "memories", "content") or []
    around = reply if isinstance(reply, dict) and "memories" in reply else {}
    zone = window.new[-1].at.tzinfo or UTC if window.new else UTC
    proposals, refused = [], []
    for number, item in enumerate(items[:MAX_PROPOSALS], 1):
        read = _proposal(item, zone)
        if isinstance(read, str):
            refused.append(f"memory {number} of the reply {read}")
        else:
            proposals.append(read)
    if len(items) > MAX_PROPOSALS:
        refused.append(
            f"the reply has {len(items)} memories; those after the first {MAX_PROPOSALS} were not read"
        )
    scene = _clean(around.get("scene"), MAX_SCENE_SENTENCE) or window.scene or ""
    return Extraction(scene, around.get("scene_changed") is True, tuple(proposals), tuple(refused))


def _proposal(item: Any, zone: tzinfo) -> Proposal | str:
    """The proposal, or what is wrong with it."""
    if not isinstance(item, dict):
        return "is no object"
    if not isinstance(item.get("content"), str):
        return "has no text as its content"
    content = _clean(item["content"], MAX_MEMORY_CHARS)
    if not content:
        return "has a blank content"
    start = _instant(item.get("time_start"), zone, time())
    end = _instant(item.get("time_end"), zone, _END_OF_DAY)
    if end is not None and start is not None and end < start:
        end = None
    priority = _priority(item.get("priority"))
    return Proposal(
        content,
        _kind(item.get("kind")) or "episodic",
        DEFAULT_PRIORITY if priority is None else priority,
        _ids(item.get("source_ids")),
        start,
        end,
    )


# --- verdicts ----------------------------------------------------------------------------------------------------


def read_verdicts(text: str, comparison: Comparison) -> tuple[Verdict, ...]:
    """At most one for each item, the first that can be used.

    :raises LLMRejected: where the reply holds no verdicts.
    """
    reply = read_json(text, lambda value: _listed(value, "verdicts", "action") is not None)
    read: dict[int, Verdict] = {}
    for item in _listed(reply, "verdicts", "action") or []:
        verdict = _verdict(item, len(comparison.items))
        if verdict is not None:
            read.setdefault(verdict.item, verdict)
    return tuple(read[number] for number in sorted(read))


def _verdict(item: Any, items: int) -> Verdict | None:
    if not isinstance(item, dict):
        return None
    number, action = item.get("item"), item.get("action")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < items:
        return None
    action = action.strip().lower() if isinstance(action, str) else None
    if action not in ACTIONS:
        return None
    return Verdict(
        number,
        action,
        _ids(item.get("target_ids")),
        _clean(item.get("content"), MAX_MEMORY_CHARS) or None,
        _kind(item.get("kind")),
        _priority(item.get("priority")),
        _clean(item.get("reason"), MAX_SCENE_SENTENCE),
        _earlier(item.get("target_items"), number),
    )


def _earlier(value: Any, item: int) -> tuple[int, ...]:
    """Items before ``item``, each once; what else stands there is left out."""
    given = value if isinstance(value, list) else []
    told = (one for one in given if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < item)
    return tuple(dict.fromkeys(told))


# --- L2, L3 ------------------------------------------------------------------------------------------------------


def read_changes(text: str, task: SceneTask) -> tuple[SceneChange, ...]:
    """:raises LLMRejected: where the reply holds no changes; ``[]`` is legal."""
    reply = read_json(text, lambda value: _listed(value, "changes", "content") is not None)
    names = {scene.id: scene.name for scene in task.scenes}
    read = (_change(item, names, task.max_chars) for item in _listed(reply, "changes", "content") or [])
    return tuple(change for change in read if change is not None)


def _change(item: Any, names: Mapping[str, str], max_chars: int) -> SceneChange | None:
    if not isinstance(item, dict):
        return None
    scene_id = item.get("scene_id")
    if scene_id is not None and (not isinstance(scene_id, str) or not scene_id.strip()):
        return None
    scene_id = scene_id.strip() if scene_id else None
    content = _clean(item.get("content"), max_chars)
    if not content:
        return None
    if content.upper() == DELETED:
        content = DELETED  # with text around it the mark is refused by the plan, which says so
    name = (
        _clean(item.get("name"), MAX_SCENE_NAME, lines=False)
        or names.get(scene_id or "")
        or _first_words(content)
    )
    merged = tuple(one for one in _ids(item.get("merged_ids")) if one != scene_id)
    return SceneChange(scene_id, name, content, _ids(item.get("memory_ids")), merged)


def _first_words(content: str) -> str:
    lines = (one.strip("# \t") for one in content.splitlines())
    return _cut(next((one for one in lines if one), content), MAX_SCENE_NAME)


def read_profile(text: str, max_chars: int) -> str:
    """The text of a profile, in JSON or as it is.

    :raises LLMRejected: where it is empty, an apology, or JSON that was cut off.
    """
    try:
        profile = read_json(
            text, lambda value: isinstance(value, dict) and isinstance(value.get("profile"), str)
        )
        told = profile["profile"]
    except LLMRejected:
        if '"profile"' in text:
            raise  # it was to be JSON
        told = read_text(text)
    clean = _clean(told, max_chars)
    if not clean:
        raise LLMRejected(
            "the model's profile is empty; the profile stays as it was, and what is new stays pending"
        )
    if is_apology(clean):
        raise LLMRejected("the model apologised instead of writing a profile; the profile stays as it was")
    return clean


# --- fields ------------------------------------------------------------------------------------------------------


def _listed(reply: Any, key: str, needed: str) -> list[Any] | None:
    """The items of a reply: under its key, a bare list, or one bare item. None: the reply is of another kind.

    A list is of the kind when it is empty or one of its items is: others in it are refused one by one.
    """
    items = reply
    if isinstance(reply, dict):
        items = reply.get(key, [reply])
        items = [items] if isinstance(items, dict) else items
    if not isinstance(items, list):
        return None
    fits = not items or any(isinstance(item, dict) and needed in item for item in items)
    return items if fits else None


def _clean(value: Any, most: int, *, lines: bool = True) -> str:
    """Text without control characters and lone surrogates, cut to ``most``; empty where nothing is left to see."""
    if not isinstance(value, str):
        return ""
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(
        one for one in text if one in _KEPT_CONTROLS or unicodedata.category(one) not in ("Cc", "Cs")
    )
    if all(unicodedata.category(one)[0] in "CZ" for one in text):
        return ""
    return _cut((text if lines else " ".join(text.split())).strip(), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _kind(value: Any) -> Kind | None:
    kind = value.strip().lower() if isinstance(value, str) else None
    return cast("Kind", kind) if kind in KINDS else None


def _priority(value: Any) -> int | None:
    """Between 0 and 100; None for what is no number. A model never reaches the absolute -1."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return round(min(max(value, 0), MAX_PRIORITY))


def _ids(value: Any) -> tuple[str, ...]:
    """Each text once, in order; a single one stands for a list of one."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    told = (one.strip() for one in given if isinstance(one, str))
    return tuple(dict.fromkeys(one for one in told if one))[:MAX_IDS]


def _instant(value: Any, zone: tzinfo, of_day: time) -> datetime | None:
    """ISO 8601 with or without an offset; of a date alone, ``of_day``. None for anything else."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    try:
        if _DATE.fullmatch(text):
            instant = datetime.combine(date.fromisoformat(text), of_day)
        else:
            instant = datetime.fromisoformat(text)
        instant = instant if instant.tzinfo else instant.replace(tzinfo=zone)
        instant.astimezone(UTC)  # the years 1 and 9999 have hours that UTC has not
    except (ValueError, OverflowError):
        return None
    return instant
