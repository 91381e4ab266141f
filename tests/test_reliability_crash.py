"""Death at every moment: kill -9, an end between two writes, a commit that fails, a database tail that vanished."""

# ruff: noqa: S311 - seeded chance; faults raised inside a block

import json
import os
import random
import resource
import shutil
import signal
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from memstore.config import Settings
from memstore.errors import StoreError, StoreIO
from memstore.fallback import folder_of
from memstore.files import SystemFiles
from memstore.storage.sqlite import SqliteStorage
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import (
    DAY,
    SCOPE,
    START,
    History,
    assert_sound,
    copy_database,
    die_behind_the_append,
    digest,
    dump,
    findings,
    finish_child,
    in_fork,
    lines_of,
    message_lines,
    open_store,
    remove_database,
    report_of,
    say,
    start_child,
    texts,
)


def ids_in(store: MemoryStore) -> list[str]:
    return [row["id"] for row in dump(store)["messages"]]


def operations(path: Path, op: str) -> list[dict]:
    return [line.operation for line in lines_of(path) if line.operation and line.operation["op"] == op]


# --- kill -9 ----------------------------------------------------------------------------------------------

KILLS = 8  # N; many more, of every kind of call, by test_crash_harness.py and scripts/crash


def record_for_ever(path: Path, writing: int, durability: str) -> None:
    with open_store(path, durability=durability) as store:
        number = 0
        while True:
            number += 1
            said = [Message("user", f"{os.getpid()} {number} {part} word") for part in range(number % 3 + 1)]
            ids = store.record(SCOPE, said, f"s{number % 4}").ids
            if number % 7 == 0:
                store.clear_session(SCOPE, f"s{number % 4}")
            os.write(writing, (" ".join(ids) + "\n").encode())


def start_recording(path: Path, durability: str) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            record_for_ever(path, writing, durability)
        finally:
            os._exit(1)
    os.close(writing)
    return pid, reading


def kill_after(pid: int, reading: int, calls: int, delay: int) -> list[str]:
    """Kill -9 once that many calls were acknowledged and a while after; what was acknowledged until its end."""
    seen = b""
    while seen.count(b"\n") < calls:
        part = os.read(reading, 65_536)
        assert part, "the child ended by itself"
        seen += part
    for _ in range(delay):
        pass
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    while part := os.read(reading, 65_536):
        seen += part
    os.close(reading)
    return seen.decode().split()


@pytest.mark.parametrize("durability", ["disk", "process"])
def test_kill_9_while_recording(tmp_path, durability):
    path = tmp_path / "store.db"
    rng = random.Random(7)
    acked: list[str] = []
    for _ in range(KILLS // 2):
        pid, reading = start_recording(path, durability)
        acked += kill_after(pid, reading, rng.randint(1, 25), rng.randrange(60_000))
        with open_store(path) as store:
            stored = ids_in(store)
            assert len(stored) == len(set(stored))
            assert set(acked) <= set(stored), "an acknowledged message is lost"
            assert_sound(store)
    with open_store(path) as store:
        assert store.adopted == 0
        assert Counter(row["id"] for row in message_lines(path)) == Counter(ids_in(store))
        numbers = sorted(row["arrival"] for row in dump(store)["messages"])
        assert numbers == list(range(1, len(numbers) + 1))


def test_kill_9_of_one_of_two_processes_while_this_one_stays_open(tmp_path):
    path = tmp_path / "store.db"
    rng = random.Random(11)
    acked: list[str] = []
    with open_store(path, durability="process") as store:
        acked += say(store, "here from the start")
    for _ in range(6):  # N: 6 kills
        one, two = start_recording(path, "process"), start_recording(path, "process")
        acked += kill_after(*one, rng.randint(1, 15), rng.randrange(60_000))
        acked += kill_after(*two, rng.randint(1, 30), rng.randrange(60_000))
        with open_store(path) as store:
            acked += say(store, "between the kills")
    with open_store(path) as store:
        stored = ids_in(store)
        assert len(stored) == len(set(stored))
        assert set(acked) <= set(stored)
        assert_sound(store)


def test_nothing_in_this_process_drops_the_locks_of_an_open_store(tmp_path):
    """With the locks gone, a clean close elsewhere would remove the WAL under this process: its rows would go, unseen."""
    path = tmp_path / "store.db"

    def work(report) -> None:
        store = open_store(path, durability="process")
        say(store, "first")
        store.doctor()
        with open_store(path) as again:  # the header is read and a second store opened and closed
            say(again, "second")
            again.doctor()
        MemoryStore.recover(path, out=tmp_path / "other.db")
        with pytest.raises(StoreError):
            MemoryStore.recover(path)
        finish_child(start_child("child_open_close", path))
        for number in range(50):
            report(say(store, f"word {number}"))
        os._exit(9)

    code, acked = report_of(work)
    assert code == 9
    shutil.rmtree(folder_of(path))  # the database alone must hold them
    with open_store(path) as store:
        stored = ids_in(store)
        assert len(stored) == 52
        assert {one for (one,) in acked} <= set(stored)
        assert [f for f in store.doctor().findings if f.severity == "error"] == []


# --- an end at every statement ----------------------------------------------------------------------------

ACTIONS = {
    "record": lambda s: s.record(
        SCOPE, [Message("user", "new one", id="n1"), Message("assistant", "new two")], "fresh"
    ),
    "transcript fork": lambda s: s.record(
        SCOPE,
        [Message("user", "one"), Message("user", "changed"), Message("user", "two")],
        "old",
        transcript=True,
    ),
    "clear": lambda s: s.clear_session(SCOPE, "old"),
    "rename": lambda s: s.set_session(SCOPE, "old", title="renamed", pinned=True),
    "forget": lambda s: s.delete_session(SCOPE, "old"),
    "delete": lambda s: s.delete(SCOPE, s.messages(SCOPE, "old")[0].id),
    "delete all": lambda s: s.delete_all(SCOPE),
    "add": lambda s: s.add(SCOPE, "a memory", idempotency_key="k"),
}


def memories(store: MemoryStore) -> list[tuple]:
    return [(m.content, m.version, m.state) for m in store.get_all(SCOPE, include_history=True)]


def state_of(store: MemoryStore) -> dict:
    """What a store says, without what differs from run to run: made ids and times."""
    drop = ("id", "created_at", "recorded_at", "updated_at", "deleted_at")
    rows = {
        kind: [{k: v for k, v in row.items() if k not in drop} for row in found]
        for kind, found in dump(store).items()
    }
    return {**rows, "memories": memories(store), "count": store.count(SCOPE)}


def prepared(path: Path) -> None:
    with open_store(path, ManualClock(START), durability="process") as store:
        say(store, "one", "two", "three", session="old")
        store.add(SCOPE, "an older memory")


def copied(path: Path, folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(path, folder / path.name)
    shutil.copytree(folder_of(path), folder_of(folder / path.name))
    return folder / path.name


def statements_of(path: Path, action) -> tuple[dict, int]:
    """The state after the action, and how many statements it takes."""
    counted = [0]

    def hook(_statement: str) -> None:
        counted[0] += 1

    with MemoryStore(path, clock=ManualClock(START), statement_hook=hook) as store:
        counted[0] = 0
        action(store)
        needed = counted[0]
        return state_of(store), needed


@pytest.mark.parametrize("name", ACTIONS)
def test_an_end_before_each_statement_of_an_action(tmp_path, name):
    """N: every statement of 8 actions, about 200 positions. All of the action or nothing is there afterwards."""
    action = ACTIONS[name]
    path = tmp_path / "store.db"
    prepared(path)
    with open_store(copied(path, tmp_path / "before"), ManualClock(START)) as store:
        before = state_of(store)
    after, needed = statements_of(copied(path, tmp_path / "after"), action)
    assert before != after
    assert needed > 5
    seen = Counter()
    allowed = [before, after]
    if name == "delete all":  # two transactions, memories first
        halfway = {**before, "memories": [], "count": {**before["count"], "memories": 0}}
        allowed.append(halfway)
    for number in range(needed):
        victim = copied(path, tmp_path / str(number))

        def work(at: int = number, of: Path = victim) -> None:
            left = [10**9]

            def hook(_statement: str) -> None:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1

            store = MemoryStore(of, clock=ManualClock(START), statement_hook=hook)
            left[0] = at
            action(store)

        assert in_fork(work) == 9
        with open_store(victim, ManualClock(START)) as store:
            found = state_of(store)
            assert found in allowed
            seen[found == after] += 1
            assert_sound(store)
        with open_store(victim, ManualClock(START)) as store:
            assert store.adopted == 0, "adopted once"
            assert state_of(store) == found
    assert seen[False] > 0


# --- between the line and the commit ----------------------------------------------------------------------


def test_a_line_without_its_commit_is_adopted_once_at_opening(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
    die_behind_the_append(path, "second")
    with open_store(path) as store:
        assert store.adopted == 1
        assert texts(store) == ["first", "second"]
        assert_sound(store)
        assert [hit.content for hit in store.search_messages(SCOPE, "second")] == ["second"]
        say(store, "third")
    with open_store(path) as store:
        assert store.adopted == 0
        assert [(m.text, m.position, m.arrival) for m in store.messages(SCOPE, "agent:chat:one")] == [
            ("first", 1, 1), ("second", 2, 2), ("third", 3, 3),
        ]  # fmt: skip
    assert len(message_lines(path)) == 3
    assert len(operations(path, "placed")) == 1


def test_a_process_that_is_open_adopts_before_its_own_write(tmp_path):
    path = tmp_path / "store.db"

    def die_elsewhere(text: str) -> None:
        finish_child(start_child("child_die", path, text))

    with open_store(path) as store:
        say(store, "first")
        die_elsewhere("second")
        assert texts(store) == ["first"]
        say(store, "third")
        assert texts(store) == ["first", "second", "third"]
        die_elsewhere("fourth")
        store.add(SCOPE, "a memory is no message: it adopts nothing")
        die_elsewhere("fifth")
        say(store, "elsewhere", session="agent:chat:two")
        assert texts(store) == ["first", "second", "third", "fourth", "fifth"]
        assert_sound(store)
    with open_store(path) as store:
        assert store.adopted == 0


def test_a_line_left_on_another_day_is_adopted_before_the_next_write(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "monday")
        finish_child(start_child("child_die", path, "left on monday", True))
        clock.advance(DAY)
        say(store, "tuesday")
        assert texts(store) == ["monday", "left on monday", "tuesday"]
        before = dump(store)
        assert_sound(store)
    with open_store(path, clock) as store:
        assert store.adopted == 0
        assert dump(store) == before


def test_a_client_that_sends_again_what_was_left_behind_has_it_once(tmp_path):
    path = tmp_path / "store.db"
    message = Message("user", "did you get this?", id="client-1")

    def work() -> None:
        store = open_store(path)
        append = store._fallback.append
        store._fallback.append = lambda *what, **options: (append(*what, **options), os._exit(9))
        store.record(SCOPE, [message], "chat")

    open_store(path).close()
    assert in_fork(work) == 9
    with open_store(path) as store:
        receipt = store.record(SCOPE, [message], "chat")
        assert receipt.new == 0
        assert [m.id for m in store.messages(SCOPE, "chat")] == list(receipt.ids)
        assert_sound(store)


def test_an_end_before_the_append_leaves_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
    size = next(folder_of(path).iterdir()).stat().st_size

    def work() -> None:
        store = open_store(path)
        store._fallback.append = lambda *_, **__: os._exit(9)
        say(store, "second")

    assert in_fork(work) == 9
    assert next(folder_of(path).iterdir()).stat().st_size == size
    with open_store(path) as store:
        assert (store.adopted, texts(store)) == (0, ["first"])
        assert_sound(store)


def test_an_end_after_the_commit_and_before_the_answer(tmp_path):
    path = tmp_path / "store.db"
    open_store(path).close()

    def work() -> None:
        store = open_store(path)
        say(store, "said")
        os._exit(9)  # committed, never acknowledged

    assert in_fork(work) == 9
    with open_store(path) as store:
        assert (store.adopted, texts(store)) == (0, ["said"])


@pytest.mark.parametrize("error", [StoreIO("a fault"), KeyboardInterrupt(), MemoryError()])
def test_an_exception_between_append_and_commit_takes_the_lines_back(tmp_path, error):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
        file = next(folder_of(path).iterdir())
        before = file.read_bytes()
        writer = store._storage.write

        def failing(**options):
            context = writer(**options)
            enter = context.__enter__

            class Guard:
                def __enter__(self):
                    tx = enter()

                    def fail(*_: object) -> None:
                        raise error

                    tx.set_fallback_mark = fail
                    return tx

                def __exit__(self, *details):
                    return context.__exit__(*details)

            return Guard()

        store._storage.write = failing
        said = ["first", "third"]
        if isinstance(error, StoreIO):  # a fault of the database: the message waits in the fallback alone
            said.insert(1, "second")
            assert store.record(SCOPE, [Message("user", "second")], "agent:chat:one").stored == "fallback"
            assert [op["pos"] for op in operations(path, "message")] == [1]
            assert len(operations(path, "pending")) == 1
        else:
            with pytest.raises(type(error)):
                say(store, "second")
            assert file.read_bytes() == before
        del store._storage.write
        assert texts(store) == ["first"]
        say(store, "third")
        assert texts(store) == said
        assert_sound(store)
    with open_store(path) as store:
        assert store.adopted == 0
        assert texts(store) == said


def test_lines_are_taken_back_before_another_process_can_adopt_them(tmp_path):
    """While they are withdrawn the write lock is still held: no one may see lines that their writer gave up."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
        withdraw = store._fallback.withdraw
        elsewhere: list[str] = []

        def withdraw_as_another_writes(*where):
            out = finish_child(start_child("child_try_to_write", path))
            elsewhere.append(out.strip())
            withdraw(*where)

        store._fallback.withdraw = withdraw_as_another_writes

        def refused(tx, lines) -> None:
            lines.append({"op": "delete", "team_id": "team", "ids": ids_in(store), "at": 1})
            tx.set_fallback_mark = raise_io

        with pytest.raises(StoreIO):
            store._journal.change(refused)
        del store._fallback.withdraw
        assert elsewhere == ["StoreBusy"]
        assert texts(store) == ["first"]
        say(store, "second")
        assert texts(store) == ["first", "second"]
        assert_sound(store)


def raise_io(*_: object) -> None:
    raise StoreIO("a fault")


# --- a commit that fails ----------------------------------------------------------------------------------


def test_a_commit_that_meets_a_full_file_has_an_open_outcome_that_settles(tmp_path):
    """A limit on file sizes lets the line through and stops the WAL: the client is told, and what became of it
    is settled once: by the next write."""
    path = tmp_path / "store.db"
    open_store(path).close()

    def work(report) -> None:
        store = open_store(path)
        say(store, "first")
        limit = Path(f"{path}-wal").stat().st_size
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        receipt = store.record(SCOPE, [Message("user", "second")], "agent:chat:one")
        report([receipt.stored, list(receipt.ids)])
        report(texts(store))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        say(store, "third")
        report(texts(store))
        store.close()

    code, ((stored, ids), during, after) = report_of(work)
    assert code == 0
    assert stored == "fallback"
    assert during == ["first"]
    assert after == ["first", "second", "third"]
    with open_store(path) as store:
        assert store.adopted == 0
        assert texts(store) == after
        assert [m.id for m in store.messages(SCOPE, "agent:chat:one")][1:2] == ids
        assert_sound(store)


def test_a_line_that_cannot_be_synced_is_kept_by_the_database(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")

        def failing(_descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(SystemFiles, "_sync_data", staticmethod(failing))
        assert store.record(SCOPE, [Message("user", "second")], "agent:chat:one").stored == "database"
        assert [op["pos"] for op in operations(path, "message")] == [1]
        monkeypatch.undo()
        assert texts(store) == ["first", "second"]
        say(store, "third")
        assert [op["pos"] for op in operations(path, "message")] == [1, 2, 3]
        assert_sound(store)


# --- power loss: the database's tail is gone, the fallback was synced --------------------------------------


def history_in_child(path: Path, seed: int, steps: int, snapshot_at: int, older: Path) -> str:
    """A history whose database is copied half-way and whose process ends without closing; the final digest."""

    def work(report) -> None:
        clock = ManualClock(START)
        store = open_store(path, clock)
        history = History(store, clock, seed)
        for number in range(steps):
            if number == snapshot_at:
                copy_database(path, older)
            if number in (steps // 3, 2 * steps // 3):
                clock.advance(DAY)
            history.step()
        report(digest(store))
        os._exit(9)

    code, values = report_of(work)
    assert code == 9
    return values[0]


@pytest.mark.parametrize("seed", range(6))  # N: 6 histories of 90 operations, cut at 6 places
def test_an_older_database_beside_the_whole_fallback_heals_to_the_same_rows(tmp_path, seed):
    path, older = tmp_path / "store.db", tmp_path / "older.db"
    wanted = history_in_child(path, seed, 90, snapshot_at=10 + 13 * seed, older=older)
    remove_database(path)
    copy_database(older, path)
    with open_store(path, ManualClock(START)) as store:
        assert store.adopted > 0
        assert digest(store) == wanted
        assert_sound(store)
    with open_store(path, ManualClock(START)) as store:
        assert store.adopted == 0
        assert digest(store) == wanted


def test_an_older_database_heals_although_the_clock_went_back(tmp_path):
    """Lines stand in files of other days than their order says: they are adopted in the order of commits."""
    path, older = tmp_path / "store.db", tmp_path / "older.db"

    def work(report) -> None:
        clock = ManualClock(START)
        rng = random.Random(17)
        store = open_store(path, clock)
        history = History(store, clock, 17)
        for number in range(80):
            if number == 10:
                copy_database(path, older)
            clock.set(START.replace(day=rng.randint(1, 4)))
            history.step()
        report(digest(store))
        os._exit(9)

    _, (wanted,) = report_of(work)
    remove_database(path)
    copy_database(older, path)
    with open_store(path, ManualClock(START)) as store:
        assert store.adopted > 0
        assert digest(store) == wanted
        assert_sound(store)
    MemoryStore.recover(path, out=tmp_path / "new.db")
    with open_store(tmp_path / "new.db", ManualClock(START)) as store:
        assert digest(store) == wanted


def test_a_wal_cut_anywhere_heals_to_the_same_rows(tmp_path):
    """N: 40 lengths of the WAL, of which only a beginning reached the disk."""
    path = tmp_path / "store.db"
    wanted = history_in_child(path, 99, 60, snapshot_at=1, older=tmp_path / "older.db")
    wal = Path(f"{path}-wal")
    length = wal.stat().st_size
    assert length > 100_000
    rng = random.Random(5)
    healed = Counter()
    for number in range(40):
        victim = tmp_path / str(number) / path.name
        victim.parent.mkdir()
        copy_database(path, victim)
        shutil.copytree(folder_of(path), folder_of(victim))
        os.truncate(f"{victim}-wal", rng.randrange(length + 1) if number else 0)
        with open_store(victim, ManualClock(START)) as store:
            assert digest(store) == wanted
            healed[store.adopted > 0] += 1
            assert_sound(store)
        shutil.rmtree(victim.parent)
    assert healed[True] > 20


def test_healed_messages_are_queued_for_their_vectors(tmp_path):
    path = tmp_path / "store.db"
    open_store(path).close()
    die_behind_the_append(path, "left behind")
    with open_store(path) as store:
        assert store.adopted == 1
        report = store.doctor()
        assert report.counts["pending_vectors"] == 1
        assert report.counts["queued_jobs"] == 1


def test_lines_are_json_that_other_programs_read(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "text")
    assert [json.loads(line)["op"] for line in next(folder_of(path).iterdir()).read_bytes().splitlines()] == [
        "store",
        "message",
    ]


# --- between the two writes, on both sides -------------------------------------------------------------------

BETWEEN = int(os.environ.get("MEMSTORE_TEST_BETWEEN", "70"))  # N, short form; the full form is 500


FAST = Settings(timezone="UTC", reserve_bytes=0)


class EndingFiles(SystemFiles):
    """Ends the process at a point of its next append; ``cut`` is the part of the lines that is written before."""

    point, cut = "", 1.0

    def write(self, descriptor: int, data: bytes) -> int:
        if self.point == "in the append":
            os.write(descriptor, data[: int(len(data) * self.cut)])
            os._exit(9)
        return super().write(descriptor, data)

    def sync_data(self, descriptor: int) -> None:
        if self.point == "before the sync":
            os._exit(9)
        super().sync_data(descriptor)
        if self.point == "behind the sync":
            os._exit(9)


BETWEEN_POINTS = ("in the append", "before the sync", "behind the sync", "at the commit", "behind the commit")


def record_and_end(path: Path, call: int, count: int, point: str, cut: float) -> None:
    """One call of several messages in a child that ends at a point between its two writes."""

    def work() -> None:
        files = EndingFiles()

        def hook(statement: str) -> None:
            if files.point == "at the commit" and statement.startswith("COMMIT"):
                os._exit(9)

        store = MemoryStore(path, settings=FAST, statement_hook=hook, files=files)
        files.point, files.cut = point, cut
        store.record(SCOPE, [Message("user", f"call {call} part {part}") for part in range(count)], "chat")
        os._exit(9)

    assert in_fork(work) == 9


def rows_of(path: Path) -> list[dict]:
    """Messages of a database as it lies there: opening the storage alone heals nothing."""
    storage = SqliteStorage(path, busy_timeout_s=5, durability="disk")
    try:
        with storage.read() as reader:
            return [asdict(row) for row in reader.dump_messages()]
    finally:
        storage.close()


def test_an_end_between_the_two_writes_leaves_all_of_a_call_or_nothing(tmp_path, caplog):
    """N: 70 calls that ended between their lines and the answer; 500 by MEMSTORE_TEST_BETWEEN. What is in the database
    is in the fallback, always; an opening takes up what is whole and says how much it was."""
    path = tmp_path / "store.db"
    open_store(path).close()
    rng = random.Random(23)
    whole: list[str] = []
    seen = Counter()
    for call in range(BETWEEN):
        point, count, cut = BETWEEN_POINTS[call % len(BETWEEN_POINTS)], rng.choice((1, 2, 3, 5)), rng.random()
        record_and_end(path, call, count, point, cut)
        before = [row["id"] for row in rows_of(path)]
        written = {
            line.operation["id"] for line in lines_of(path) if line.operation and "content" in line.operation
        }
        assert set(before) <= written, "the database never holds what the fallback does not"
        caplog.clear()
        with caplog.at_level("WARNING", logger="memstore"), open_store(path) as store:
            found = [text for text in texts(store, "chat", SCOPE) if text.startswith(f"call {call} ")]
            assert len(found) in (0, count), "all of a call, or nothing"
            if point != "in the append":
                assert len(found) == count, "its lines stand"
            assert store.adopted == (0 if point == "behind the commit" else len(found))
            assert len(dump(store)["messages"]) == len(before) + store.adopted
            told = [r.getMessage() for r in caplog.records if r.getMessage().startswith("adopted ")]
            assert [words.split()[1] for words in told] == ([str(store.adopted)] if store.adopted else [])
        whole += found
        seen[point, bool(found)] += 1
    assert seen["in the append", False] > BETWEEN // 8
    with open_store(path) as store:
        assert store.adopted == 0
        assert texts(store, "chat", SCOPE) == whole
        assert_sound_but_for_torn_lines(store)
        wanted = digest(store)
    MemoryStore.recover(path, out=tmp_path / "rebuilt.db")
    with open_store(tmp_path / "rebuilt.db") as store:
        assert digest(store) == wanted


def assert_sound_but_for_torn_lines(store: MemoryStore) -> None:
    assert [found for found in findings(store) if "jsonl line" not in found[2]] == []
