"""What a writer knows: where its round takes place, and which rows are its own."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass
class Known:
    """What a writer knows of its own rows: from its calls, or from the lines of the one before it."""

    messages: list[tuple[str, str]] = field(default_factory=list)  # (id, session), of plain sessions
    sessions: list[str] = field(default_factory=list)
    talks: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)  # session → its branch
    memories: list[str] = field(default_factory=list)
    to_repeat: list[Line] = field(default_factory=list)  # calls that name each message, or carry a key
    to_finish: list[Line] = field(default_factory=list)  # imports and migrations that were killed

    def learn(self, begin: Line, done: Line | None) -> None:
        """Take in a call. Without a last line it was killed: nobody knows whether it was carried out."""
        self._learn_messages(begin, done)
        if "memory" in begin:
            memory_id = begin["memory"].get("id") or (done or {}).get("id")
            if memory_id and begin["memory"].get("mine", True) and memory_id not in self.memories:
                self.memories.append(memory_id)
            if done is None and begin["memory"].get("key"):
                self.to_repeat.append(begin)
        if "deletes" in begin:
            gone = begin["deletes"]
            self.memories = [m for m in self.memories if gone not in (m, "all")]
            self.messages = [(m, s) for m, s in self.messages if gone not in (m, "all")]
            if gone == "all":
                self.talks.clear()
                self.to_repeat.clear()
        if begin["op"] in ("import", "migrate") and done is None:
            self.to_finish.append(begin)

    def _learn_messages(self, begin: Line, done: Line | None) -> None:
        if "branch" in begin:
            self.talks.pop(begin["session"], None)
            if done is not None:
                ids = begin["branch"] + done["ids"][-len(begin["said"]) :]
                contents = begin["kept"] + begin["said"]
                self.talks[begin["session"]] = list(zip(ids, contents, strict=True))
        elif begin.get("mine"):
            if begin["session"] not in self.sessions:
                self.sessions.append(begin["session"])
            held = {m for m, _ in self.messages}
            self.messages += [(m, begin["session"]) for m in (done or {}).get("ids", ()) if m not in held]
            if begin["clients"] and "again" not in begin:
                self.to_repeat.append(begin)


@dataclass(frozen=True)
class Place:
    """Where a round takes place."""

    folder: Path
    shared: dict[str, str]
    """The memory of each team that all writers change."""
    fixtures: tuple[Path, ...] = ()

    @property
    def database(self) -> Path:
        return self.folder / "store.db"

    @property
    def journal(self) -> Path:
        return self.folder / "acknowledged.jsonl"
