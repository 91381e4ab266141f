"""Playing the story on a store, step by step; whoever was killed goes on with the step that was not acknowledged."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memstore import MemoryStore, Message, Scope, Settings
from memstore.testing import ManualClock
from scripts.pipeline_story.plot import ROUNDS, UNDONE, Model

LIN = Scope("acme", "lin", "helper")
SESSION = "helper:web:story"
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
BETWEEN_ROUNDS = timedelta(minutes=15)
OUTAGE = range(10, 14)
"""Rounds in which the model cannot be reached."""
SETTINGS = Settings(timezone="Asia/Shanghai", durability="process", reserve_bytes=0, nightly_backup_hour=None)
TAKEN_OVER_AFTER = timedelta(seconds=SETTINGS.lease_s + 1)
"""The lease of whoever was killed has run out by then."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens at a time of the story."""

    number: int
    name: str
    at: datetime
    round: int | None = None


def steps() -> list[Step]:
    """All of it, in order: each round is said and worked on, then time passes, and a verdict is undone."""
    found: list[tuple[str, datetime, int | None]] = []
    for number in range(len(ROUNDS)):
        at = START + number * BETWEEN_ROUNDS
        found += [("say", at, number), ("work", at, number)]
    last = START + len(ROUNDS) * BETWEEN_ROUNDS
    found += [("work", last + timedelta(hours=hours), None) for hours in (1, 3, 6)]
    found += [("undo", last + timedelta(hours=7), None)]
    found += [("work", last + timedelta(hours=hours), None) for hours in (8, 11, 14)]
    return [Step(number, *one) for number, one in enumerate(found)]


class Acknowledged:
    """Which steps are done: a file of its own, beside the store and independent of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def count(self) -> int:
        return int(self._path.read_text()) if self._path.exists() else 0

    def write(self, count: int) -> None:
        beside = self._path.with_suffix(".new")
        beside.write_text(str(count))
        beside.replace(self._path)


Hook = Callable[[], None]


def play(
    folder: Path,
    *,
    late: timedelta = timedelta(),
    before_statement: Hook | None = None,
    model: Model | None = None,
    only: Step | None = None,
) -> None:
    """Play what is left of the story, or one step of it.

    :param late: how much later everything happens: after a kill, when the lease of the dead has run out.
    """
    model = model or Model()
    acknowledged = Acknowledged(folder / "acknowledged")
    clock = ManualClock(START)
    hook = None if before_statement is None else lambda *_: before_statement()
    store = MemoryStore(folder / "memory.db", clock=clock, settings=SETTINGS, llm=model, statement_hook=hook)
    with closing(store):
        for step in [only] if only is not None else steps()[acknowledged.count() :]:
            clock.set(step.at + late)
            model.reachable = step.round not in OUTAGE
            take(store, step)
            acknowledged.write(step.number + 1)


def take(store: MemoryStore, step: Step) -> None:
    """Take one step; taking it again changes nothing."""
    if step.name == "say":
        assert step.round is not None  # noqa: S101 - those steps have one
        user, assistant = ROUNDS[step.round]
        store.record(
            LIN,
            [
                Message("user", user, id=f"u{step.round}", created_at=step.at),
                Message("assistant", assistant, id=f"a{step.round}", created_at=step.at),
            ],
            SESSION,
        )
    elif step.name == "work":
        store.work(once=True)
    else:
        for verdict in store.verdicts(LIN):
            if verdict.content == UNDONE and verdict.undone_at is None:
                store.undo(LIN, verdict.id)


def killed_at(number: int) -> Hook:
    """Kills this process in front of its n-th statement, as the operating system would."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


SETTLED_AFTER = (timedelta(hours=1), timedelta(hours=4), timedelta(hours=8))
"""So long after a step everything that follows from it is done."""


def settle(folder: Path, step: Step) -> None:
    """Let time pass behind a step until nothing is left to be done."""
    clock = ManualClock(step.at)
    with MemoryStore(folder / "memory.db", clock=clock, settings=SETTINGS, llm=Model()) as store:
        for later in SETTLED_AFTER:
            clock.set(step.at + later)
            store.work(once=True)


# What a process of its own does:


def played(folder: Path, count: Any) -> None:
    """Play all of it; ``count`` (shared memory) tells the statements."""

    def counted() -> None:
        count.value += 1

    play(folder, before_statement=counted)


def killed(folder: Path, moment: int) -> None:
    """Play it until the n-th statement."""
    play(folder, before_statement=killed_at(moment))


def gone_on(folder: Path) -> None:
    """Play the rest, once the lease of the dead has run out."""
    play(folder, late=TAKEN_OVER_AFTER)


def recorded(folder: Path, copies: Path, results: Any) -> None:
    """Play all of it, and keep the store as it was in front of each step but those that only say something; ``results``
    is given, for each of these, the number of the step, what models were asked in it, how many statements it took, and
    what the store comes to hold when it is settled right behind it."""
    for step in steps():
        before = copies / str(step.number)
        if step.name != "say":
            shutil.copytree(folder, before)
        model, statements = Model(), 0

        def counted() -> None:
            nonlocal statements
            statements += 1

        play(folder, model=model, only=step, before_statement=counted)
        if step.name != "say":
            after = copies / f"{step.number}-after"
            shutil.copytree(folder, after)
            settle(after, step)
            results.put((step.number, model.asked, statements, outcome(after)))
    results.put(None)


def killed_in(folder: Path, number: int, moment: int) -> None:
    """Take one step until its n-th statement."""
    play(folder, only=steps()[number], before_statement=killed_at(moment))


def settled(folder: Path, number: int, results: Any) -> None:
    """Take one step again, once the lease of the dead has run out, and what follows from it; give what came of it."""
    play(folder, only=steps()[number], late=TAKEN_OVER_AFTER)
    settle(folder, steps()[number])
    results.put(outcome(folder))


def outcome(folder: Path) -> dict[str, Any]:
    """What the store holds in the end, by what it says: without ids, times and attempts."""
    with MemoryStore(folder / "memory.db", settings=SETTINGS, clock=ManualClock(START)) as store:
        said = {message.id: message.client_id for message in store.messages(LIN, SESSION)}
        memories = store.get_all(LIN, limit=1000, include_history=True)
        contents = {memory.id: memory.content for memory in memories}
        verdicts = store.verdicts(LIN, limit=1000)
        for verdict in verdicts:
            if verdict.memory_id is not None:
                contents.setdefault(verdict.memory_id, verdict.content)
        return {
            "memories": sorted(
                [
                    memory.content,
                    memory.kind,
                    memory.priority,
                    memory.state,
                    memory.trust,
                    contents.get(memory.superseded_by or ""),
                ]
                for memory in memories
            ),
            "verdicts": sorted(
                [
                    verdict.content,
                    verdict.action,
                    sorted(said[source] or "" for source in verdict.source_ids),
                    [contents[target] for target in verdict.target_ids],
                    verdict.undone_at is not None,
                ]
                for verdict in verdicts
            ),
            "scenes": [[scene.name, scene.content, scene.version] for scene in store.scenes(LIN)],
            "profiles": [
                [profile.content, profile.version]
                for which in ("agent", "user")
                if (profile := store.profile(LIN, which)) is not None
            ],
            "pending": store.pending(LIN),
            "jobs": sorted([job.kind, job.state] for job in store.jobs(limit=1000) if job.state != "done"),
        }


def shown(found: dict[str, Any]) -> str:
    """For people: the current memories, scenes and profiles."""
    lines = ["memories:"]
    for content, kind, priority, state, _, by in found["memories"]:
        note = f"  [{state}{f', now: {by}' if by else ''}]" if state != "live" else ""
        lines.append(f"  {kind:<11} {priority:>3}  {content}{note}")
    lines.append("scenes:")
    lines += [f"  {name} (version {version})" for name, _, version in found["scenes"]]
    lines.append("profiles:")
    lines += [
        f"  version {version}: {len(content.splitlines())} lines" for content, version in found["profiles"]
    ]
    lines.append(f"verdicts: {len(found['verdicts'])}, undone: {sum(one[-1] for one in found['verdicts'])}")
    lines.append(f"messages that wait: {found['pending']}; jobs: {json.dumps(found['jobs'])}")
    return "\n".join(lines)
