"""What the tests of backups, space and retention share: whole contents of stores, and children that write or are killed."""

# ruff: noqa: S311, T201 - seeded chance, and children that answer on a pipe

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import apsw

from memstore.config import Settings
from memstore.store import MemoryStore
from memstore.testing import FaultPlan, FaultVFS, FaultyFiles, HashEmbedder, ManualClock
from memstore.types import Message, Scope
from reliability_support import ROOT, SCOPE, START, TESTS

FAST = Settings(durability="process", timezone="UTC", reserve_bytes=0, busy_timeout_s=0.2)
OF_THE_COPY = {"backups", "backup_days", "fallback_days", "sqlite_sequence"}
"""Tables that say something of the file itself."""


def opened(path: Path, clock: ManualClock | None = None, **options: object) -> MemoryStore:
    options = {"settings": FAST, **options}
    return MemoryStore(path, clock=clock or ManualClock(START), **options)


def filled(path: Path, clock: ManualClock | None = None, rows: int = 12) -> MemoryStore:
    """A store with some of everything, vectors included, that is left open."""
    store = opened(path, clock, embedder=HashEmbedder(16))
    for number in range(rows):
        scope = Scope("team", f"user{number % 3}", "agent")
        store.record(scope, [Message("user", f"message {number} 银行卡 build-x{number}")], "chat")
        memory = store.add(scope, f"memory {number}")
        if number % 4 == 0:
            store.update(scope, memory.id, content=f"memory {number}, corrected")
    store.add_words(Scope("team", "user0", "agent"), ["量子纠缠态"])
    store.index()
    store.recall(Scope("team", "user0", "agent"), "memory 3", trace=True)
    return store


def add_megabytes(store: MemoryStore, count: int) -> None:
    """Stored recalls of two megabytes each, which compression does not make small; an index may hold them once more."""
    scope = Scope("team", "user0", "agent")
    first = store.recall(scope, "memory", trace=True).trace_id
    with store._storage.write() as tx:
        for number in range(count // 2):
            answer = random.Random(number).randbytes(10**6).hex()
            tx._run(
                "INSERT INTO recall_traces (team_id, user_id, id, layer, asked_at, question, settings, answer)"
                " SELECT team_id, user_id, id || ?, layer, asked_at, question, settings, ? FROM recall_traces WHERE id = ?",
                (str(number), answer, first),
            )


def contents_of(path: Path, *, apart: set[str] = OF_THE_COPY) -> dict[str, list]:
    """Every row of every ordinary table, the text indexes' own included."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name"
        ).fetchall()
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
            for (name,) in names
            if name not in apart
        }
    finally:
        connection.close()


def answers_of(path: Path) -> list:
    with opened(path, embedder=HashEmbedder(16)) as store:
        found = []
        for number in range(3):
            scope = Scope("team", f"user{number}", "agent")
            for recall in (
                store.recall(scope, "memory 4 银行", 5),
                store.search_messages(scope, "build-x7", 5),
            ):
                assert not recall.degraded
                found.append([(hit.id, hit.score) for hit in recall])
        return found


# --- dying at a chosen moment -------------------------------------------------------------------------------------


class Moments:
    """Counts what this process does to files, and kills it before the chosen one. 0: never."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self.last = last

    def pass_one(self, *_: object) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def in_moments(path: Path, last: int, work: Callable[[MemoryStore, Moments], object]) -> int:
    """Do work on a store in a forked child that dies at a moment: in front of an operation on the database, its log, a
    backup or a day file, or at a statement of progress. Returns how many moments there were, 0 if it died."""
    gc.collect()  # a store that was closed is let go only with its objects, and its file's number may be another's now
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            moments = Moments(0)
            plan = FaultPlan(before_each=moments.pass_one)
            layer = FaultVFS(plan, default=True)  # also for files that the work makes
            store = opened(path, vfs=layer.name, files=FaultyFiles(plan))
            moments.count, moments.last = 0, last  # what counts is the work
            work(store, moments)
            os.write(writing, str(moments.count).encode())
            code = 0
        except BaseException as error:  # noqa: BLE001 - a child must never come back into pytest
            os.write(2, f"child: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return int(said) if code == 0 else 0


# --- children ---------------------------------------------------------------------------------------------------------


def start(function: str, *args: object) -> subprocess.Popen:
    """A fresh interpreter that calls a function of this module; its standard input and output are pipes."""
    code = f"import json, sys, backup_support as m; m.{function}(*json.loads(sys.argv[1]))"
    said = json.dumps([str(a) if isinstance(a, Path) else a for a in args])
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, said],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])},
    )


def child_write(path: str, writer: int, journal: str) -> None:
    """Write until standard input ends. Each call says three things; what was acknowledged goes to the journal."""
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
    scope = Scope("team", f"writer{writer}", "agent")
    with MemoryStore(path, settings=replace(FAST, busy_timeout_s=30)) as store, open(journal, "a") as acked:  # noqa: PTH123
        call = 0
        while not told.is_set():
            receipt = store.record(
                scope, [Message("user", f"{call} part {part}") for part in range(3)], "chat"
            )
            memory = store.add(scope, f"memory {call}")
            acked.write(json.dumps([*receipt.ids, memory.id]) + "\n")
            acked.flush()
            call += 1
            if call == 1:
                print("writing", flush=True)


def child_die_behind_the_append(path: str, text: str, at: str) -> None:
    """Record, and end after the line is in the fallback and before the commit."""
    store = opened(Path(path), ManualClock(datetime.fromisoformat(at)))
    append = store._fallback.append

    def append_and_end(*what: object, **options: object) -> None:
        append(*what, **options)
        os._exit(9)

    store._fallback.append = append_and_end
    store.record(SCOPE, [Message("user", text)], "agent:chat:one")


def child_hold_snapshot(path: str) -> None:
    """Read, and keep the snapshot until standard input ends."""
    with opened(Path(path)) as store, store._storage.read() as reader:
        print(len(list(reader.dump_messages())), flush=True)
        sys.stdin.read()
