"""What the reliability tests share: children that can be killed, ordered dumps, and random histories."""

# ruff: noqa: S311, T201 - seeded chance, and children that answer on a pipe

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from memstore.config import Settings
from memstore.errors import StoreError
from memstore.fallback import Line, day_files, folder_of, read_lines
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import Message, Scope

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SCOPE = Scope("team", "user", "agent")
DAY = 86_400
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NOBODY = 65534
COMPANIONS = ("", "-wal", "-shm")


def open_store(path: Path, clock: ManualClock | None = None, **settings: object) -> MemoryStore:
    return MemoryStore(
        path, clock=clock, settings=Settings(**{"timezone": "UTC", "reserve_bytes": 0, **settings})
    )


def say(store: MemoryStore, *texts: str, session: str = "agent:chat:one", scope: Scope = SCOPE) -> list[str]:
    return list(store.record(scope, [Message("user", text) for text in texts], session).ids)


# --- what is in a store -----------------------------------------------------------------------------------


def dump(store: MemoryStore) -> dict[str, list[dict]]:
    """Every message and session, ordered, without internal keys."""
    with store._storage.read() as reader:
        return {
            "messages": [asdict(row) for row in reader.dump_messages()],
            "sessions": [asdict(row) for row in reader.dump_sessions()],
        }


def digest(store: MemoryStore) -> str:
    return hashlib.sha256(json.dumps(dump(store), sort_keys=True).encode()).hexdigest()


def dump_of(path: Path, **settings: object) -> dict[str, list[dict]]:
    with open_store(path, **settings) as store:
        return dump(store)


def texts(store: MemoryStore, session: str = "agent:chat:one", scope: Scope = SCOPE) -> list[str]:
    return [m.text for m in store.messages(scope, session)]


def lines_of(database: Path) -> list[Line]:
    return [line for path in day_files(folder_of(database)) for line in read_lines(path)]


def message_lines(database: Path) -> list[dict]:
    """The ``message`` operations of the fallback; fails on any line that is not sound."""
    lines = lines_of(database)
    assert [line.fault for line in lines if line.operation is None] == []
    return [line.operation for line in lines if line.operation["op"] == "message"]


def findings(store: MemoryStore) -> list[tuple[str, str, str]]:
    """What doctor says, without the notes on rows that wait for a vector."""
    return [(f.check, f.severity, f.message) for f in store.doctor().findings if f.severity != "info"]


def assert_sound(store: MemoryStore) -> None:
    assert findings(store) == []
    assert store.doctor().ok


# --- files ------------------------------------------------------------------------------------------------


def remove_database(path: Path) -> None:
    for companion in COMPANIONS:
        Path(f"{path}{companion}").unlink(missing_ok=True)


def assert_comes_back(path: Path, wanted: dict[str, list[dict]], clock: ManualClock | None = None) -> None:
    """The store made once more from its fallback alone has the very same messages and sessions."""
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, clock) as store:
        assert dump(store) == wanted


def become_nobody() -> None:
    """In a child: another user than root, whom a read-only folder stops."""
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)


def give_to_nobody(folder: Path, read_only: Path) -> None:
    """Everything in a folder becomes the other user's; the folder and one file in it can only be read."""
    for each in [folder, *folder.rglob("*")]:
        os.chown(each, NOBODY, NOBODY)
    read_only.chmod(0o444)
    folder.chmod(0o555)


def copy_database(path: Path, to: Path) -> None:
    """Copy file and WAL from another process: here, opening and closing them would drop SQLite's locks."""
    for companion in ("", "-wal"):
        if Path(f"{path}{companion}").exists():
            subprocess.run(["cp", f"{path}{companion}", f"{to}{companion}"], check=True)


def file_hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def set_modes(path: Path) -> dict[str, int]:
    """Permission bits of a store's files and folders that are there."""
    known = [*(Path(f"{path}{c}") for c in COMPANIONS), folder_of(path), *day_files(folder_of(path))]
    return {p.name: p.stat().st_mode & 0o777 for p in known if p.exists()}


# --- children ---------------------------------------------------------------------------------------------


def start_child(function: str, *args: object) -> subprocess.Popen:
    """A fresh interpreter that calls a function of this module with JSON arguments; its standard input and output are pipes."""
    code = f"import json, sys, reliability_support as m; m.{function}(*json.loads(sys.argv[1]))"
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            code,
            json.dumps([str(a) if isinstance(a, Path) else a for a in args]),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])},
    )


def finish_child(child: subprocess.Popen, send: str = "") -> str:
    out, err = child.communicate(send, timeout=120)
    assert child.returncode == 0, err
    return out


def in_fork(work: Callable[[], object]) -> int:
    """Run work in a forked child, which holds none of this process' stores; returns its exit code.

    The child ends by ``os._exit``: 0, 1 after an exception, or whatever the work exits with.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001 - a child must never come back into pytest
            os.write(2, f"child: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def report_of(work: Callable[[Callable[[object], None]], object]) -> tuple[int, list]:
    """Run work in a forked child that reports JSON values by the function it is given: (exit code, values)."""
    reading, writing = os.pipe()

    def child() -> None:
        os.close(reading)
        work(lambda value: os.write(writing, (json.dumps(value) + "\n").encode()))

    code = in_fork(child)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        return code, [json.loads(line) for line in pipe]


# --- histories --------------------------------------------------------------------------------------------

WORDS = (
    "coffee", "Berlin", "rocket", "cats may board", "宠物可以上车", "银行卡 build-x7", "\u2028line", "nul\0byte", "emoji 👩‍🚀",
    "café", "cafe\u0301", "\ufeffbom", "\U0010ffff", "rtl \u202eabc", '"quoted" OR *', "tab\tnew\nline",
)  # fmt: skip
SCOPES = (
    Scope("team", "user", "agent"),
    Scope("team", "user", "other"),
    Scope("team", "bob", "agent", "task"),
    Scope("队", "用户", "агент"),
)
CHATS = ("one", "two/three", "会话一")


def content_of(rng: random.Random) -> object:
    text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4))) + f" {rng.randint(0, 999)}"
    kind = rng.randint(0, 9)
    if kind == 0:
        return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    return None if kind == 1 else text


def message_of(rng: random.Random) -> Message:
    role = rng.choice(("user", "user", "assistant", "tool", "system"))
    return Message(
        role,
        content_of(rng),
        id=f"c{rng.randint(0, 10**9)}" if rng.random() < 0.4 else None,
        name=rng.choice((None, "张三", "bob")),
        created_at=rng.choice((None, None, "2026-02-28T23:59:59+08:00", 1_700_000_000.25)),
        tool_calls=({"id": "x", "function": {"name": "f", "arguments": "{}"}},)
        if role == "assistant"
        else (),
        tool_call_id="x" if role == "tool" else None,
        usage={"tokens": 3} if rng.random() < 0.2 else None,
        meta={"b": 1, "a": ["ä", None]} if rng.random() < 0.2 else {},
        complete=rng.random() > 0.1,
    )


class History:
    """Random operations on a store, reproducible from a seed. ``step()`` does one."""

    def __init__(self, store: MemoryStore, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.rng = random.Random(seed)
        self.ids: dict[Scope, list[str]] = {scope: [] for scope in SCOPES}
        self.said: dict[tuple[Scope, str], list[Message]] = {}

    def step(self, kind: str | None = None) -> None:
        kinds = (
            ("record",) * 8
            + ("transcript",) * 3
            + ("delete", "clear", "rename", "pin", "forget", "add", "created")
        )
        kind = kind or self.rng.choice(kinds)
        scope = self.rng.choice(SCOPES)
        chat = self.rng.choice(CHATS)
        self.clock.advance(self.rng.choice((0, 1, 60)))
        if kind == "record":
            self._keep(scope, chat, [message_of(self.rng) for _ in range(self.rng.randint(1, 4))])
        elif kind == "transcript":
            self._transcript(scope, chat)
        elif kind == "delete" and self.ids[scope]:
            ids = self.ids[scope]
            target = ids.pop(self.rng.randrange(len(ids)))
            if self.store.get(scope, target) is not None:
                self.store.delete(scope, target)
        elif kind == "add":
            self.store.add(scope, f"memory {self.rng.random()}")
        elif kind in ("clear", "rename", "pin", "forget", "created"):
            self._session(kind, scope, chat)

    def _keep(self, scope: Scope, chat: str, messages: list[Message], **options: object) -> None:
        receipt = self.store.record(scope, messages, chat, **options)
        self.ids[scope].extend(receipt.ids)
        self.said.setdefault((scope, chat), []).extend(messages)

    def _transcript(self, scope: Scope, chat: str) -> None:
        """The client's list again: gone on, cut at its beginning, contradicted, or taken back to an earlier one."""
        known = self.said.get((scope, chat), [])[-8:]
        cut = self.rng.randint(0, len(known))
        how = self.rng.randint(0, 3)
        kept = {
            0: known,
            1: known[cut:],
            2: known[:cut],
            3: [*known[:cut], message_of(self.rng), *known[cut + 1 :]],
        }[how]
        self._keep(scope, chat, [*kept, message_of(self.rng)], transcript=True)

    def _session(self, kind: str, scope: Scope, chat: str) -> None:
        keys = [record.session for record in self.store.sessions(scope)]
        key = f"{scope.agent_id}:default:{chat}"
        if key not in keys:
            return
        if kind == "clear":
            self.store.clear_session(scope, chat)
        elif kind == "rename":
            self.store.set_session(scope, chat, title=f"title {self.rng.randint(0, 99)} 标题")
        elif kind == "pin":
            self.store.set_session(scope, chat, pinned=self.rng.random() < 0.6)
        elif kind == "created":
            self.store.set_session(scope, chat, created_at=1_600_000_000 + self.rng.randint(0, 9))
        else:
            self.store.delete_session(scope, chat)
            self.said.pop((scope, chat), None)


def play(path: Path, seed: int, steps: int, days: int = 3, **settings: object) -> dict[str, list[dict]]:
    """A random history over several days in a new store; returns its dump."""
    clock = ManualClock(START)
    with open_store(path, clock, **{"durability": "process", **settings}) as store:
        history = History(store, clock, seed)
        for number in range(steps):
            if number and number % max(1, steps // days) == 0:
                clock.advance(DAY)
            history.step()
        return dump(store)


# --- what children do --------------------------------------------------------------------------------------

PROCESSES, THREADS, USERS = 8, 2, 3
CALLS = int(os.environ.get("MEMSTORE_TEST_CALLS", "30"))  # of each thread, short form; the full form is 200
SHARED = "agent:chat:shared"


def child_open_new(path: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    with open_store(Path(path), durability="process") as store:
        say(store, f"from {os.getpid()}")
        with store._storage.read() as reader:
            print(reader.meta("store_id"))


def user_of(writer: int) -> str:
    return f"u{writer % USERS}"


def write_all(store: MemoryStore, writer: int, journal: Path) -> None:
    """One writer's calls. What was acknowledged goes to the writer's own file: [session, ids, texts] a line."""
    scope = Scope("team", user_of(writer), "agent")
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for call in range(CALLS):
        session = SHARED if call % 5 == 0 else f"agent:chat:w{writer}"
        said = [f"writer{writer} call{call} part{part}" for part in range(3 if call % 10 == 5 else 1)]
        receipt = store.record(scope, [Message("user", text) for text in said], session)
        assert (receipt.stored, receipt.new) == ("both", len(said))
        os.write(descriptor, (json.dumps([session, list(receipt.ids), said]) + "\n").encode())
    os.close(descriptor)


def run_threads(work: list) -> None:
    """Call each in a thread of its own; the first exception of any is raised here."""
    errors: list[BaseException] = []

    def guarded(one: object) -> None:
        try:
            one()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def child_write(path: str, process: int, folder: str) -> None:
    # patient: what is counted is whether waiting for the lock ends well, not how fast this machine is
    with open_store(Path(path), durability="disk", busy_timeout_s=60) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        writers = [process * THREADS + thread for thread in range(THREADS)]
        run_threads([lambda w=w: write_all(store, w, Path(folder) / f"{w}.acked") for w in writers])


def child_read(path: str) -> None:
    """Holds one snapshot, which must not move, and searches on others until it is told to stop."""
    scope = Scope("team", "u0", "agent")
    stop = threading.Event()
    with open_store(Path(path)) as store, store._storage.read() as held:
        before = [row.id for row in held.dump_messages()]
        print("ready", flush=True)
        threading.Thread(
            target=lambda: (sys.stdin.readline(), sys.stdin.readline(), stop.set()), daemon=True
        ).start()
        searches = most = 0
        while not stop.is_set():
            found = store.search_messages(scope, "writer0 call", limit=50)
            assert not found.degraded
            assert all(hit.user_id == "u0" for hit in found)
            seen = len(store.messages(scope, SHARED))
            assert seen >= most
            most = seen
            searches += 1
            assert [row.id for row in held.dump_messages()] == before
        print(json.dumps([searches, most]), flush=True)


def child_maintain(path: str) -> None:
    """Rebuilds the text indexes, embeds and looks for damage, again and again, until it is told to stop."""
    stop = threading.Event()
    embedder = HashEmbedder(dim=16)
    settings = Settings(timezone="UTC", reserve_bytes=0, busy_timeout_s=60)
    with MemoryStore(path, embedder, settings=settings) as store:
        print("ready", flush=True)
        threading.Thread(
            target=lambda: (sys.stdin.readline(), sys.stdin.readline(), stop.set()), daemon=True
        ).start()
        runs = 0
        while not stop.is_set() or runs == 0:
            store.reindex()
            report = store.doctor()
            assert report.ok, report.findings
            store.index()
            runs += 1
        print(runs, flush=True)


def child_open_and_close(path: str, times: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    scope = Scope("team", "storm", "agent")
    for number in range(times):
        with open_store(Path(path), durability="process") as store:
            assert store.adopted == 0
            store.record(scope, [Message("user", f"storm {os.getpid()} {number}")], "storm")
    print(times)


def child_open_close(path: str) -> None:
    with open_store(Path(path)) as store:
        store.search_messages(SCOPE, "word")


def die_behind_the_append(path: Path, text: str, clock: ManualClock | None = None) -> None:
    """Record in a child that ends after its line is in the fallback and before the commit."""

    def work() -> None:
        store = open_store(path, clock)
        append = store._fallback.append

        def append_and_end(*what, **options):
            append(*what, **options)
            os._exit(9)

        store._fallback.append = append_and_end
        say(store, text)

    assert in_fork(work) == 9


def child_die(path: str, text: str, at_the_start: bool = False) -> None:
    die_behind_the_append(Path(path), text, ManualClock(START) if at_the_start else None)


def child_die_at(path: str, text: str, instant: str) -> None:
    die_behind_the_append(Path(path), text, ManualClock(datetime.fromisoformat(instant)))


def child_try_to_write(path: str) -> None:
    try:
        with open_store(Path(path), busy_timeout_s=0.05, durability="process") as store:
            store.add(SCOPE, "other")
    except StoreError as error:
        print(type(error).__name__)
    else:
        print("wrote")


def child_append(folder: str, number: int) -> None:
    from zoneinfo import ZoneInfo

    from memstore.fallback import Fallback

    fallback = Fallback(Path(folder) / "store.db", ZoneInfo("UTC"), durable=False)
    rng = random.Random(number)
    print("ready", flush=True)
    sys.stdin.readline()
    for call in range(300):
        filler = "x" * rng.choice((1, 200, 20_000))
        fallback.append(
            "2026-01-01", [{"op": "delete", "team_id": "t", "ids": [f"{number} {call} {filler}"], "at": 1}]
        )


def child_migrate(path: str) -> None:
    import apsw

    from memstore.storage.migrate import migrate
    from memstore.storage.sqlite.connection import open_connection

    connection = open_connection(Path(path), busy_timeout_s=30, flags=apsw.SQLITE_OPEN_READWRITE)
    print("ready", flush=True)
    sys.stdin.readline()
    print(migrate(connection, Path(path)))
    connection.close()
