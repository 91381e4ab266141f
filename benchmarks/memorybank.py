"""MemoryBank (Zhong et al., MemoryBank-SiliconFriend; MIT): ten days of chat with 15 people, Chinese and English.

It says not which message answers which question, so nothing is scored on it; it is read for demonstrations and for
answers that are judged otherwise.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from benchmarks.corpus import existing

NAME = "memorybank"
Language = Literal["zh", "en"]
_SUFFIX: dict[Language, str] = {"zh": "cn", "en": "en"}
_HOUR = 9
"""The data gives days only: a day's chat is laid from nine in the morning, a message a minute."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; ``at`` is ISO 8601 wall time."""

    role: Literal["user", "assistant"]
    text: str
    at: str


@dataclass(frozen=True, slots=True)
class Person:
    """One user with what was said, oldest first, and the questions that probe the memory of it."""

    name: str
    language: Language
    messages: tuple[ChatMessage, ...]
    questions: tuple[str, ...]


def read(folder: Path, language: Language) -> list[Person]:
    """The people of one language.

    :raises DataMissing: when a file is not there.
    """
    suffix = _SUFFIX[language]
    bank, probing = existing(folder, f"memory_bank_{suffix}.json", f"probing_questions_{suffix}.jsonl")
    questions: dict[str, list[str]] = {}
    for line in probing.read_text(encoding="utf-8").splitlines():
        if line.strip():
            questions.update({name.strip(): asked for name, asked in json.loads(line).items()})
    people: dict[str, dict[str, Any]] = json.loads(bank.read_text(encoding="utf-8"))
    return [
        Person(
            name.strip(),
            language,
            tuple(_messages(person["history"])),
            tuple(questions.get(name.strip(), ())),
        )
        for name, person in people.items()
    ]


def _messages(history: dict[str, list[dict[str, str]]]) -> Iterator[ChatMessage]:
    for day in sorted(history):
        at = datetime.fromisoformat(day) + timedelta(hours=_HOUR)
        for exchange in history[day]:
            for role, member in (("user", "query"), ("assistant", "response")):
                text = exchange.get(member, "").strip()
                if text:
                    yield ChatMessage(role, text, at.isoformat())  # type: ignore[arg-type]
                at += timedelta(minutes=1)
