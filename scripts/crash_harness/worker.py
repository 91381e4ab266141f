"""A worker process: one store, several writers. And the children that prepare a round and look at its end."""

# ruff: noqa: S311 - seeded chance

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acknowledgements import Client
from board import Board, WatchedFiles, watched_statements
from known import Place
from writer import LEFT, ROOT, TEAMS, Writer, step

from memstore import MemoryStore, Message, Scope, Settings
from memstore.testing import HashEmbedder

BUSY_TIMEOUT_S = 60.0
"""Writers wait for each other, vacuums included: an error because of a lock is a failure here."""

UNFINISHED = ("is being built, or was left unfinished", "was left half-way by a worker that ended")
"""What doctor rightly says when a reindex or an index run was killed. Nothing is wrong, and the next run goes on."""


@dataclass(frozen=True)
class Run:
    """What holds for all rounds of a run."""

    seed: str
    processes: int
    threads: int
    durability: str
    lie: bool
    address: Path
    board: Board

    def open(self, place: Place) -> MemoryStore:
        return MemoryStore(
            place.database,
            HashEmbedder(dim=16),
            clock=self.board,
            settings=Settings(
                timezone="UTC", durability=self.durability, busy_timeout_s=BUSY_TIMEOUT_S, reserve_bytes=0
            ),
            statement_hook=watched_statements(self.board),
            files=WatchedFiles(self.board),
        )


def forked(work: Callable[[], object]) -> int:
    """Run in a forked child; returns its process id. It ends with 0, or with 3 and a traceback on stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - a child must not come back into the harness
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def work(run: Run, place: Place, worker: int, incarnation: int) -> None:
    """Open the store and call it from several threads until SIGTERM comes."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    lines = [worker * run.threads + thread for thread in range(run.threads)]
    run.board.sit(lines[0])
    journal = Client(run.address)
    run.board.call("open")
    opening = f"w{worker}.open.i{incarnation}"
    journal.say(e="begin", call=opening, op="open")
    store = run.open(place)
    journal.say(e="done", call=opening, adopted=store.adopted)
    threads = [
        threading.Thread(target=_guarded, args=(_write, run, place, line, incarnation, store, stop))
        for line in lines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.board.call("close")
    journal.say(e="begin", call=f"{opening}.close", op="close")
    store.close()
    journal.say(e="done", call=f"{opening}.close")


def _guarded(target: Callable[..., None], *args: Any) -> None:
    """A writer that fails ends its process: the harness sees that it did."""
    try:
        target(*args)
    except BaseException:  # noqa: BLE001 - shown, and told by the exit code
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(3)


def _write(
    run: Run, place: Place, line: int, incarnation: int, store: MemoryStore, stop: threading.Event
) -> None:
    run.board.sit(line)
    name = f"w{line // run.threads}.t{line % run.threads}"
    writer = Writer(name, incarnation, place, run.seed, Client(run.address).say, run.board)
    writer.lies = run.lie
    writer.inherit()
    rng = random.Random(f"{run.seed}/{name}/{incarnation}/steps")
    while not stop.is_set():
        step(writer, store, lambda: run.open(place), rng)


def prepare(run: Run, folder: Path) -> dict[str, str]:
    """Make the store of a round: two teams, each with its admin, a memory that all change, and one user who left."""
    place = Place(folder, {})
    shared: dict[str, str] = {}
    run.board.sit(0)
    with run.open(place) as store:
        for team in TEAMS:
            shared[team] = store.add(Scope(team, ROOT, "admin"), f"changed by all of {team}").id
            store.record(Scope(team, LEFT, "left"), [Message("user", "before leaving")], "chat")
    end = f"UPDATE members SET left_at = 1 WHERE user_id = '{LEFT}'"  # no verb for it yet; by stock SQLite elsewhere
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
    subprocess.run([sys.executable, "-c", script, str(place.database), end], check=True)
    return shared


def look(run: Run, place: Place) -> dict[str, Any]:
    """Open the store as its user would after the crash, and ask its own doctor."""
    run.board.sit(0)
    begun = time.monotonic()
    with run.open(place) as store:
        opened = time.monotonic()
        report = store.doctor(full=True)
        return {
            "adopted": store.adopted,
            "opening_ms": round(1000 * (opened - begun), 1),
            "messages": report.counts.get("messages", 0),
            "findings": [
                f"{finding.check}: {finding.message}"
                for finding in report.findings
                if finding.severity != "info" and not any(words in finding.message for words in UNFINISHED)
            ],
        }


def rebuild(place: Place) -> None:
    """The store once more, from its fallback alone."""
    MemoryStore.recover(place.database, out=place.folder / "rebuilt.db", settings=Settings(timezone="UTC"))


def warm_up() -> None:
    """Load the dictionary once: children that are forked find it there."""
    from memstore.text import general_jieba

    general_jieba().lcut("明天开会")


def rehearse(folder: str, seed: str, steps: int) -> None:
    """A round that nobody kills: what the oracle sees then is sound, and whatever is done to it must be found. Without
    ``delete_all``, after which there would be little left to spoil."""
    round_folder = Path(folder)
    run = Run(seed, 1, 1, "process", lie=False, address=round_folder, board=Board(1))
    place = Place(round_folder, prepare(run, round_folder))
    with place.journal.open("a", encoding="utf-8") as journal:

        def say(**line: object) -> None:
            journal.write(json.dumps(line, ensure_ascii=False) + "\n")

        writer, rng = Writer("w0.t0", 1, place, seed, say, run.board), random.Random(seed)
        with run.open(place) as store:
            for _ in range(steps):
                step(writer, store, lambda: run.open(place), rng, without="delete_all")
            store.index()
