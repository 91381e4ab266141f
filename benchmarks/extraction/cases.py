"""The labelled conversations."""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from memstore import Message

FOLDER = Path(__file__).parent / "cases"
PARTS = ("choose", "report")
"""Rules may be mended by what they get wrong in ``choose``; what they are worth is said by ``report``."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A memory that is to be found; see the README beside the cases."""

    kind: str
    any_of: tuple[tuple[str, ...], ...]
    without: tuple[str, ...]
    sources: frozenset[str]
    start: str | None
    end: str | None
    verdicts: tuple[str, ...]
    targets: frozenset[str]
    optional: bool

    def says(self, content: str) -> bool:
        """Whether a memory with this content is the one."""
        low = content.lower()
        found = all(any(word.lower() in low for word in group) for group in self.any_of)
        return found and not any(word.lower() in low for word in self.without)


@dataclass(frozen=True, slots=True)
class Case:
    """One conversation."""

    id: str
    category: str
    language: str
    zone: ZoneInfo
    background: tuple[Message, ...]
    messages: tuple[Message, ...]
    existing: tuple[tuple[str, str, str], ...]
    expect: tuple[Expected, ...]
    forbidden: frozenset[str]

    @property
    def part(self) -> str:
        return PARTS[zlib.crc32(self.id.encode()) % 2]


def load(folder: Path = FOLDER) -> list[Case]:
    """All cases, by id.

    :raises ValueError: naming the case that is none.
    """
    return sorted(
        (case for path in folder.glob("*.jsonl") for case in _cases(path)), key=lambda case: case.id
    )


def _cases(path: Path) -> Iterator[Case]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            raw = json.loads(line)
            try:
                yield _case(raw)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, case {raw.get('id')}: {error!r}") from error


def _case(raw: Mapping[str, Any]) -> Case:
    zone = ZoneInfo(raw["zone"])
    return Case(
        id=raw["id"],
        category=raw["category"],
        language=raw["language"],
        zone=zone,
        background=tuple(_message(one, zone) for one in raw.get("background", ())),
        messages=tuple(_message(one, zone) for one in raw["messages"]),
        existing=tuple((one["id"], one["kind"], one["content"]) for one in raw.get("existing", ())),
        expect=tuple(_expected(one) for one in raw["expect"]),
        forbidden=frozenset(raw.get("forbid_kinds", ())),
    )


def _message(raw: Mapping[str, Any], zone: ZoneInfo) -> Message:
    tool = {"tool_call_id": raw["id"]} if raw["role"] == "tool" else {}
    said_at = datetime.fromisoformat(raw["at"]).astimezone(zone)
    return Message(raw["role"], raw["text"], id=raw["id"], name=raw.get("name"), created_at=said_at, **tool)


def _expected(raw: Mapping[str, Any]) -> Expected:
    verdict = raw.get("verdict", ())
    time = raw.get("time") or {}
    return Expected(
        kind=raw["kind"],
        any_of=tuple(tuple(group) for group in raw["any_of"]),
        without=tuple(raw.get("not", ())),
        sources=frozenset(raw["sources"]),
        start=time.get("start"),
        end=time.get("end"),
        verdicts=(verdict,) if isinstance(verdict, str) else tuple(verdict),
        targets=frozenset(raw.get("targets", ())),
        optional=bool(raw.get("optional", False)),
    )


def same_time(wanted: str, found: str | None, zone: ZoneInfo) -> bool:
    """A date asks for the day in the zone, a date and time for the instant."""
    if found is None:
        return False
    instant = datetime.fromisoformat(found)
    if "T" not in wanted:
        return instant.astimezone(zone).date() == date.fromisoformat(wanted)
    asked = datetime.fromisoformat(wanted)
    return instant == (asked if asked.tzinfo else asked.replace(tzinfo=zone))
