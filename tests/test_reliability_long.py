"""What runs long: readers that stay open, servers with thousands of short threads, stops under load, many tasks."""

# ruff: noqa: S311 - seeded chance

import asyncio
import gc
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memstore.config import Settings
from memstore.errors import InvalidInput, NotFound, NotPermitted, StoreClosed
from memstore.files import SystemFiles
from memstore.storage.sqlite import POOL_SIZE
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder
from memstore.types import Message, Scope
from reliability_support import (
    SCOPE,
    assert_sound,
    dump,
    message_lines,
    open_store,
    report_of,
    run_threads,
    say,
    texts,
)

MEGABYTE = 2**20
JOURNAL_SIZE_LIMIT = 64 * MEGABYTE


def wal_size(path: Path) -> int:
    wal = Path(f"{path}-wal")
    return wal.stat().st_size if wal.exists() else 0


# --- long readers and the write-ahead log -------------------------------------------------------------------

WAL_MEGABYTES = int(os.environ.get("MEMSTORE_TEST_WAL", "10"))  # N, short form; the full form is 200


def attach(store: MemoryStore, number: int, size: int) -> None:
    """A message whose bulk is an attachment: much to write, little to segment."""
    image = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + f"{number:08}" * (size // 8)},
    }
    store.record(SCOPE, [Message("user", [{"type": "text", "text": f"picture {number}"}, image])], "pictures")


def test_a_reader_that_stays_open_bounds_the_log_by_what_is_written(tmp_path):
    """N: 10 MB written under a reader that stays open; 200 MB, beyond the log's limit, by MEMSTORE_TEST_WAL."""
    path = tmp_path / "store.db"
    with open_store(path, durability="process", busy_timeout_s=0.05, idle_checkpoint_s=None) as store:
        say(store, "before")
        store.checkpoint()
        size, written = path.stat().st_size, 0
        with store._storage.read() as reader:
            before = [row.id for row in reader.dump_messages()]
            for number in range(4 * WAL_MEGABYTES):
                attach(store, number, MEGABYTE // 4)
                written += MEGABYTE // 4
            assert not store.checkpoint().emptied, "the reader needs what stands in the log"
            assert written < wal_size(path) <= 2 * written
            assert [row.id for row in reader.dump_messages()] == before
        done = store.checkpoint()
        assert (done.emptied, done.wal_bytes, wal_size(path)) == (True, 0, 0)
        assert path.stat().st_size > size + written
    assert not Path(f"{path}-wal").exists()


def test_the_log_is_cut_back_by_writes_alone_once_the_reader_ended(tmp_path):
    """Without a call of checkpoint(): SQLite's own checkpoints, which a reader held up, go on behind it."""
    path = tmp_path / "store.db"
    with open_store(path, durability="process", idle_checkpoint_s=None) as store:
        say(store, "before")
        with store._storage.read() as reader:
            held = list(reader.dump_messages())
            for number in range(4 * WAL_MEGABYTES):
                attach(store, number, MEGABYTE // 4)
            grown = wal_size(path)
            assert held
        for number in range(40):  # the log is begun anew, and what it had grown to is overwritten or cut off
            attach(store, number, MEGABYTE // 4)
        assert wal_size(path) <= min(grown + MEGABYTE, JOURNAL_SIZE_LIMIT)


READS: dict[str, Callable[[MemoryStore], object]] = {
    "first page of memories": lambda s: s.get_all(SCOPE, limit=2),
    "iterator of a page": lambda s: next(iter(s.get_all(SCOPE, limit=5))),
    "last messages": lambda s: s.messages(SCOPE, "agent:chat:one", last=1),
    "sessions": lambda s: s.sessions(SCOPE),
    "recall": lambda s: s.recall(SCOPE, "word", limit=1, explain=True, trace=True),
    "search": lambda s: s.search_messages(SCOPE, "message", limit=1),
    "iterator of a recall": lambda s: next(iter(s.search_messages(SCOPE, "message", limit=5))),
    "why not": lambda s: s.why_not(SCOPE, texts_and_ids(s)[0], "message"),
    "traces": lambda s: s.traces(SCOPE, limit=1),
    "changes": lambda s: s.changes(SCOPE, "2020-01-01", "2099-01-01"),
    "history": lambda s: s.history(SCOPE, texts_and_ids(s)[0]),
    "count": lambda s: s.count(SCOPE),
    "words": lambda s: s.words(SCOPE),
    "generations": lambda s: s.generations(),
    "doctor": lambda s: s.doctor(),
    "a reindex that its caller stops": lambda s: stopped(s.reindex),
    "an index run that its caller stops": lambda s: stopped(s.index),
}


def texts_and_ids(store: MemoryStore) -> list[str]:
    return [message.id for message in store.messages(SCOPE, "agent:chat:one")]


class Stopped(Exception):
    pass


def stopped(verb: Callable[..., object]) -> str:
    def progress(*_: object) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        verb(progress)
    return "stopped"


def test_no_call_leaves_a_cursor_open(tmp_path):
    """Each answer is held while the log is emptied: what still read would keep it from that."""
    path = tmp_path / "store.db"
    settings = Settings(timezone="UTC", durability="process", busy_timeout_s=0.05, reserve_bytes=0)
    with MemoryStore(path, HashEmbedder(dim=16), settings=settings) as store:
        say(store, *(f"message {number}" for number in range(30)))
        for number in range(10):
            store.add(SCOPE, f"word {number}")
        gc.disable()  # nothing may depend on when garbage is collected
        try:
            for name, read in READS.items():
                say(store, f"written before {name}")
                answer = read(store)
                say(store, f"written behind {name}")
                done = store.checkpoint()
                assert (done.emptied, wal_size(path)) == (True, 0), name
                assert answer is not None
        finally:
            gc.enable()


# --- stops under load ---------------------------------------------------------------------------------------

STOPS = int(os.environ.get("MEMSTORE_TEST_STOPS", "20"))  # N, short form; the full form is 100
LOAD = Scope("others", "load", "agent")
QUESTIONS = ("coffee in Berlin", "明天开会", "rocket", "cats may board")


def answers(store: MemoryStore) -> list[tuple]:
    """What recall says to one user, ids and scores: nothing that another team writes may change it."""
    return [
        (hit.id, hit.score)
        for question in QUESTIONS
        for found in (store.search_messages(SCOPE, question, limit=10, timeout_s=60),
                      store.recall(SCOPE, question, limit=10, timeout_s=60))
        for hit in found
    ]  # fmt: skip


def with_embedder(path: Path) -> MemoryStore:
    return MemoryStore(
        path, HashEmbedder(dim=16), settings=Settings(timezone="UTC", durability="process", reserve_bytes=0)
    )


def fill(path: Path) -> list[tuple]:
    with with_embedder(path) as store:
        for number in range(40):
            say(store, f"coffee number {number} in Berlin", f"rocket {number}", "明天开会，宠物可以上车")
            store.add(SCOPE, f"cats may board train {number}")
        store.index()
        return answers(store)


def write_until_closed(store: MemoryStore, name: str, acked: Callable[[str, str], object]) -> None:
    """Record until the store is closed, which is the one error that may come."""
    number = 0
    try:
        while True:
            number += 1
            text = f"{name} {number} coffee in Berlin"
            (message_id,) = store.record(LOAD, [Message("user", text)], f"load-{name}").ids
            acked(message_id, text)
    except StoreClosed:
        return


class Load:
    """Four threads that write to a store until it is closed, and what was acknowledged to them."""

    def __init__(self, store: MemoryStore, name: str, enough: int) -> None:
        self.store = store
        self.name = name
        self.acked: dict[str, str] = {}
        self.enough = threading.Event()
        self._enough = enough

    def acknowledge(self, message_id: str, text: str) -> None:
        self.acked[message_id] = text
        if len(self.acked) >= self._enough:
            self.enough.set()

    def threads(self) -> list[Callable[[], None]]:
        return [
            lambda n=n: write_until_closed(self.store, f"{self.name}-{n}", self.acknowledge) for n in range(4)
        ]

    def stored(self, store: MemoryStore) -> dict[str, str]:
        return {m.id: m.text for n in range(4) for m in store.messages(LOAD, f"load-{self.name}-{n}")}

    def close(self) -> None:
        self.enough.wait(60)
        self.store.close()
        self.store.close()


def test_stops_under_load_lose_nothing_and_change_no_answer(tmp_path):
    """N: 20 times close(), twice, from one thread while four others write; the full form of 100 by MEMSTORE_TEST_STOPS."""
    path = tmp_path / "store.db"
    wanted = fill(path)
    assert len(wanted) > 40
    loads: list[Load] = []
    rng = random.Random(3)
    for stop in range(STOPS):
        load = Load(with_embedder(path), str(stop), rng.randint(4, 12))
        loads.append(load)
        assert load.store.adopted == 0, "a clean stop leaves nothing to take up"
        assert answers(load.store) == wanted
        run_threads([load.close, *load.threads()])
        assert load.enough.is_set()
        with pytest.raises(StoreClosed):
            say(load.store, "too late")
    with with_embedder(path) as store:
        assert (store.adopted, answers(store)) == (0, wanted)
        for load in loads:
            assert load.acked.items() <= load.stored(store).items()
        after = [(hit.id, hit.score) for hit in store.search_messages(LOAD, "coffee", limit=50, timeout_s=60)]
        assert_sound(store)
    with with_embedder(path) as store:
        again = store.search_messages(LOAD, "coffee", limit=50, timeout_s=60)
        assert [(hit.id, hit.score) for hit in again] == after


def write_until_terminated(path: Path, name: str, report: Callable[[object], None]) -> None:
    """What a server does: SIGTERM sets a flag, on which the store is closed while its threads write."""
    load = Load(with_embedder(path), name, 12)
    signal.signal(signal.SIGTERM, lambda *_: load.enough.set())

    def acknowledge(message_id: str, text: str) -> None:
        report([message_id, text])
        load.acked[message_id] = text
        if len(load.acked) == 12:
            os.kill(os.getpid(), signal.SIGTERM)

    load.acknowledge = acknowledge
    writers = threading.Thread(target=run_threads, args=(load.threads(),))
    writers.start()
    load.close()
    writers.join()


def test_a_process_that_is_told_to_end_while_it_writes(tmp_path):
    """N: 5 times SIGTERM to a process whose four threads write; it closes its store."""
    path = tmp_path / "store.db"
    wanted = fill(path)
    for stop in range(5):
        code, said = report_of(lambda report, name=str(stop): write_until_terminated(path, name, report))
        assert code == 0
        assert len(said) >= 12
        assert not Path(f"{path}-wal").exists(), "the last one out empties the log"
        with with_embedder(path) as store:
            assert dict(said).items() <= Load(store, str(stop), 0).stored(store).items()
            assert (store.adopted, answers(store)) == (0, wanted)


# --- many tasks, some of which fail -------------------------------------------------------------------------

TASKS, ROUNDS = 50, 4
LEFT = Scope("team", "left", "agent")


class CountedFiles(SystemFiles):
    """The operating system's, with a count of the syncs."""

    syncs = 0

    def sync_data(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync_data(descriptor)


def leave(store: MemoryStore) -> None:
    """A user of the team who is a member no more; there is no verb for it yet."""
    say(store, "before leaving", scope=LEFT, session="agent:chat:left")
    with store._storage.write() as tx:
        tx._run("UPDATE members SET left_at = 1 WHERE user_id = ?", (LEFT.user_id,))


def said_by(task: int, number: int) -> list[Message]:
    return [Message("user", f"task {task} round {number} part {part}") for part in range(3)]


class Tasks:
    """Calls of 50 tasks on one store: every second one must be refused."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.acked: dict[str, str] = {}
        self.memories: dict[str, str] = {}
        self.refused: Counter[str] = Counter()

    async def task(self, number: int) -> None:
        for turn in range(ROUNDS):
            await self.record(number, turn)
            await self.fail(number, turn)

    async def record(self, number: int, turn: int) -> None:
        said = said_by(number, turn)
        if number % 5 == 4:
            memory = await asyncio.to_thread(self.store.add, SCOPE, f"memory {number} {turn}")
            memory = await asyncio.to_thread(
                self.store.update, SCOPE, memory.id, content=f"memory {number} {turn} b"
            )
            self.memories[memory.id] = memory.content
        else:
            receipt = await asyncio.to_thread(self.store.record, SCOPE, said, f"chat {number % 3}")
            assert receipt.stored == "both"
            self.acked.update(zip(receipt.ids, (m.content for m in said), strict=True))

    async def fail(self, number: int, turn: int) -> None:
        said, missing = [Message("user", "never"), Message("user", "stored")], "01JZZZZZZZZZZZZZZZZZZZZZZZ"
        error, call = [
            (NotPermitted, lambda: self.store.record(LEFT, said, "chat 0")),
            (InvalidInput, lambda: self.store.record(SCOPE, [*said, Message("nobody", "x")], "chat 1")),
            (NotFound, lambda: self.store.clear_session(SCOPE, f"no such {number}")),
            (NotFound, lambda: self.store.delete(SCOPE, missing)),
        ][(number + turn) % 4]
        with pytest.raises(error):
            await asyncio.to_thread(call)
        self.refused[error.__name__] += 1


def test_fifty_tasks_with_failing_calls_between_them(tmp_path):
    """N: 50 tasks, 200 calls that must be stored and 200 that must fail, on one store through threads."""
    path = tmp_path / "store.db"
    files = CountedFiles()
    with MemoryStore(path, settings=Settings(timezone="UTC", reserve_bytes=0), files=files) as store:
        leave(store)
        tasks, at_first = Tasks(store), files.syncs

        async def all_of_them() -> None:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(TASKS))
            await asyncio.gather(*(tasks.task(number) for number in range(TASKS)))

        asyncio.run(all_of_them())
        recorded = TASKS * ROUNDS * 4 // 5
        assert len(tasks.acked) == 3 * recorded
        assert sum(tasks.refused.values()) == TASKS * ROUNDS
        assert files.syncs - at_first <= recorded, "never more than one sync a call"
        rows = [row for row in dump(store)["messages"] if row["user_id"] != LEFT.user_id]
        assert {row["id"] for row in rows} == set(tasks.acked), "what was acknowledged, and nothing else"
        for session in ("chat 0", "chat 1", "chat 2"):
            found = texts(store, session)
            calls = [found[start : start + 3] for start in range(0, len(found), 3)]
            assert all([text[-1] for text in call] == ["0", "1", "2"] for call in calls)
            assert all(len({text[:-1] for text in call}) == 1 for call in calls), "calls never mix"
        versions = {m.id: (m.content, m.version) for m in store.get_all(SCOPE, limit=1000)}
        assert versions == {one: (content, 2) for one, content in tasks.memories.items()}
        assert_sound(store)
    with open_store(path) as store:
        assert store.adopted == 0
        assert {line["id"] for line in message_lines(path)} >= set(tasks.acked)


class HeldFiles(CountedFiles):
    """The first append of a call waits until it may go on."""

    def __init__(self) -> None:
        self.appending, self.may_go_on = threading.Event(), threading.Event()

    def write(self, descriptor: int, data: bytes) -> int:
        if b"task 0 " in data:
            self.appending.set()
            self.may_go_on.wait(60)
        return super().write(descriptor, data)


def test_a_caller_that_fails_takes_no_other_of_its_group_down(tmp_path):
    """N: 15 callers that wait while a first one writes, and then share one transaction; every third of them is refused."""
    path = tmp_path / "store.db"
    files = HeldFiles()
    with MemoryStore(path, settings=Settings(timezone="UTC", reserve_bytes=0), files=files) as store:
        leave(store)
        outcomes: dict[int, object] = {}

        def call(number: int) -> None:
            scope = LEFT if number % 3 == 2 else SCOPE
            try:
                outcomes[number] = store.record(scope, said_by(number, 0), f"chat {number}").stored
            except NotPermitted:
                outcomes[number] = "refused"

        def release() -> None:
            waiting = store._journal._grouping
            while len(waiting._waiting) < 15:
                os.sched_yield()
            files.may_go_on.set()

        def follow(number: int) -> None:
            files.appending.wait(60)
            call(number)

        at_first = files.syncs
        run_threads([lambda: call(0), release, *(lambda n=n: follow(n) for n in range(1, 16))])
        assert outcomes == {number: "refused" if number % 3 == 2 else "both" for number in range(16)}
        assert files.syncs - at_first == 2, "one for the first caller, one for all others"
        for number in range(16):
            wanted = [] if number % 3 == 2 else [message.content for message in said_by(number, 0)]
            assert texts(store, f"chat {number}") == wanted
        assert_sound(store)


# --- a long-running server ----------------------------------------------------------------------------------

REQUESTS = int(os.environ.get("MEMSTORE_TEST_REQUESTS", "400"))  # N, short form; the full form is 2,000
MAINTENANCE = REQUESTS // 4
ROOM_BYTES = 24 * MEGABYTE


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server:
    """Requests from short threads, and maintenance between them."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    def request(self, number: int) -> None:
        if number % 8 == 0:
            say(self.store, f"request {number}", session=f"agent:chat:{number % 5}")
        assert self.store.search_messages(SCOPE, f"request {number}", timeout_s=60) is not None
        assert self.store.recall(SCOPE, "word", timeout_s=60) is not None

    def maintain(self, number: int) -> None:
        self.store.index()
        if number % 10 == 0:
            self.store.checkpoint()
        if number % 25 == 0:
            assert self.store.doctor().ok
        if number % 50 == 0:
            self.store.reindex()

    def serve(self, requests: range, maintenance: range) -> None:
        """Ten threads at a time, each for one request."""
        for start in range(requests.start, requests.stop, 10):
            numbers = range(start, min(start + 10, requests.stop))
            run_threads([lambda n=n: self.request(n) for n in numbers])
            done = (start - requests.start) * len(maintenance) // len(requests)
            upto = (numbers.stop - requests.start) * len(maintenance) // len(requests)
            for number in maintenance[done:upto]:
                self.maintain(number)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_descriptors_and_memory_stay_flat(tmp_path):
    """N: 400 requests from as many short threads and 100 maintenance runs, compared with the state after a tenth of
    them; the full form of 2,000 and 500 by MEMSTORE_TEST_REQUESTS."""

    def work(report: Callable[[object], None]) -> None:
        before = descriptors()
        with with_embedder(tmp_path / "store.db") as store:
            for number in range(20):
                store.add(SCOPE, f"word {number}")
            server = Server(store)
            early, late = REQUESTS // 10, MAINTENANCE // 10
            server.serve(range(early), range(late))
            gc.collect()
            report([descriptors() - before, resident_bytes()])
            server.serve(range(early, REQUESTS), range(late, MAINTENANCE))
            gc.collect()
            report([descriptors() - before, resident_bytes()])
            closer = threading.Thread(target=store.close)
            closer.start()
            closer.join()
            store.close()
        report(descriptors() - before)

    code, (early, late, left) = report_of(work)
    assert code == 0
    # a reading connection has two, the file and the log, and no more than the pool stay open
    assert late[0] <= early[0] + 2 * POOL_SIZE
    assert late[1] <= early[1] + ROOM_BYTES
    assert left <= 1, "all is closed, but for what the platform keeps for itself"
