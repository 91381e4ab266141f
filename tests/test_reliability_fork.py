"""Forks and other children of a process that has a store open: told by name, or on their own; the parent keeps all."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from cli_support import Cli
from memstore import MemoryStore, Settings
from memstore.errors import StoreError
from memstore.fallback import folder_of
from memstore.storage.sqlite.connection import open_connection
from memstore.types import Message
from reliability_support import (
    SCOPE,
    assert_sound,
    dump,
    finish_child,
    open_store,
    report_of,
    say,
    start_child,
    texts,
)

FORKS = int(os.environ.get("MEMSTORE_TEST_FORKS") or 20)
"""Forks while threads write."""


def outcome(work) -> str:
    try:
        work()
    except StoreError as error:
        return f"{type(error).__name__}: {error}"
    return "went through"


def ids_in(store: MemoryStore) -> list[str]:
    return [row["id"] for row in dump(store)["messages"]]


# --- a file that was open at the fork ---------------------------------------------------------------------


def test_a_forked_child_may_not_open_what_its_parent_had_open(tmp_path):
    """By whatever name. Nothing is written, and the parent's rows are there."""
    path = tmp_path / "store.db"
    link, other = tmp_path / "link.db", tmp_path / "hard.db"
    with open_store(path) as store:
        say(store, "the parent's")
        link.symlink_to(path)
        os.link(path, other)

        def work(report) -> None:
            report([outcome(lambda p=p: open_store(p)) for p in (path, link, other)])
            report(outcome(lambda: MemoryStore.recover(path, out=tmp_path / "new.db")))

        code, [named, recovered] = report_of(work)
        assert code == 0
        for message in named:
            assert message.startswith("StoreClosed: ")
            assert "Close the store before the fork" in message
            assert "'spawn'" in message
        assert recovered == "went through"  # reads day files, writes another file
        assert texts(store) == ["the parent's"]
        assert_sound(store)


def test_what_the_child_of_an_open_store_would_lose(tmp_path):
    """Why it is refused: without that, the parent's close takes the log away under the child, memories and all."""
    path = tmp_path / "store.db"
    store = open_store(path, durability="process")
    told, telling = os.pipe()
    waiting, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        from memstore.storage.sqlite import forks

        try:
            refused = outcome(lambda: open_store(path)).startswith("StoreClosed")
            forks._inherited.clear()
            own = open_store(path, durability="process")
            os.write(telling, b"1" if refused else b"0")
            os.read(waiting, 1)
            own.add(SCOPE, "acknowledged")
            assert own.count(SCOPE)["memories"] == 1
        finally:
            os._exit(9)
    assert os.read(told, 1) == b"1"
    store.close()
    os.write(go, b"x")
    os.waitpid(pid, 0)
    for end in (told, telling, waiting, go):
        os.close(end)
    with open_store(path) as store:
        assert store.count(SCOPE)["memories"] == 0


def test_it_stays_refused_when_the_parent_has_closed_it(tmp_path):
    """The child's memory of locks is as wrong as before; so is its own child's."""
    path = tmp_path / "store.db"
    store = open_store(path)
    say(store, "the parent's")
    reading, writing = os.pipe()
    waiting, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(waiting, 1)
        found = [outcome(lambda: open_store(path)).partition(":")[0]]
        code, [below] = report_of(lambda report: report(outcome(lambda: open_store(path)).partition(":")[0]))
        os.write(writing, f"{[*found, below]}".encode())
        os._exit(code)
    store.close()
    os.write(go, b"x")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "['StoreClosed', 'StoreClosed']"
    assert os.waitpid(pid, 0)[1] == 0
    os.close(waiting)
    os.close(go)
    with open_store(path) as store:
        assert texts(store) == ["the parent's"]


def test_a_fork_between_opening_and_closing_is_free_to_open(tmp_path):
    """What was closed before the fork, another file, and a file that the child makes itself."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    with open_store(path) as store:
        acked = say(store, "before")
    with open_store(other) as held:
        say(held, "held open")

        def work(report) -> None:
            with open_store(path) as own:
                report(say(own, "the child's"))
            with open_store(tmp_path / "new.db") as new:
                report(say(new, "in a new one"))

        code, [own, new] = report_of(work)
        assert code == 0
        assert_sound(held)
    with open_store(path) as store:
        assert ids_in(store) == [*acked, *own]
        assert_sound(store)
    with open_store(tmp_path / "new.db") as store:
        assert ids_in(store) == new


def test_a_connection_that_is_gone_is_not_remembered(tmp_path):
    """Only what is open at the fork counts, readers of a pool and maintenance included."""
    path = tmp_path / "store.db"
    open_store(path).close()
    connection = open_connection(path, busy_timeout_s=1, flags=0x2)
    code, [with_it] = report_of(lambda report: report(outcome(lambda: open_store(path))))
    connection.close()  # the object lives on
    code_2, [without] = report_of(lambda report: report(outcome(lambda: open_store(path).close())))
    assert (code, code_2) == (0, 0)
    assert with_it.startswith("StoreClosed: ")
    assert without == "went through"


# --- threads ----------------------------------------------------------------------------------------------


def test_forks_in_the_middle_of_writes_of_other_threads(tmp_path):
    """N: 20 forks while four threads record. Each child is told by name at every verb, and at once: were
    SQLite asked, a child could wait there for ever."""
    path = tmp_path / "store.db"
    acked: list[list[str]] = [[] for _ in range(4)]
    stop = threading.Event()
    with open_store(path, durability="process") as store:

        def write(number: int) -> None:
            while not stop.is_set():
                acked[number] += say(store, f"thread {number}", session=f"agent:chat:{number}")

        def work(report) -> None:
            verbs = (
                lambda: say(store, "x"),
                lambda: store.add(SCOPE, "x"),
                lambda: store.recall(SCOPE, "x"),
                lambda: store.messages(SCOPE, "agent:chat:0"),
                store.doctor,
                lambda: open_store(path),
            )
            report([outcome(verb).partition(":")[0] for verb in verbs])
            store.close()

        with ThreadPoolExecutor(4) as pool:
            writing = [pool.submit(write, number) for number in range(4)]
            try:
                for _ in range(FORKS):
                    code, [found] = report_of(work)
                    assert code == 0
                    assert found == ["StoreClosed"] * 6
            finally:
                stop.set()
            for one in writing:
                one.result()
        assert_sound(store)
    with open_store(path) as store:
        assert sorted(ids_in(store)) == sorted(chain(*acked))
        assert sum(map(len, acked)) > FORKS
        assert_sound(store)


def test_the_parents_open_transaction_is_not_ended_by_a_child(tmp_path):
    """A child that exits the ordinary way runs its finalisers: they must leave the parent's file alone."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        acked = say(store, "before")
        with store._storage.write() as tx:
            tx.set_meta("inside", "yes")
            pid = os.fork()
            if pid == 0:
                del tx
                store.close()
                import gc

                gc.collect()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        with store._storage.read() as reader:
            assert reader.meta("inside") == "yes"
        acked += say(store, "after")
        assert ids_in(store) == acked
        assert_sound(store)


# --- multiprocessing --------------------------------------------------------------------------------------


def record_in_child(path: str, text: str) -> list[str]:
    with MemoryStore(path, settings=Settings(timezone="UTC", durability="process")) as store:
        return list(store.record(SCOPE, [Message("user", text)], "agent:chat:one").ids)


def outcome_in_child(path: str) -> str:
    return outcome(lambda: record_in_child(path, "x")).partition(":")[0]


def test_multiprocessing_by_spawn_works_beside_an_open_store(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        acked = say(store, "the parent's")
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            made = pool.starmap(record_in_child, [(str(path), f"child {n}") for n in range(4)])
        acked += say(store, "the parent's again")
        assert sorted(ids_in(store)) == sorted([*acked, *chain(*made)])
        assert_sound(store)


def test_multiprocessing_by_fork_is_told_and_works_where_nothing_is_open(tmp_path):
    path = tmp_path / "store.db"
    context = multiprocessing.get_context("fork")
    with open_store(path) as store:
        acked = say(store, "the parent's")
        with context.Pool(2) as pool:
            assert pool.map(outcome_in_child, [str(path)] * 2) == ["StoreClosed"] * 2
        assert ids_in(store) == acked
    with context.Pool(2) as pool:
        acked += chain(*pool.starmap(record_in_child, [(str(path), f"child {n}") for n in range(4)]))
    with open_store(path) as store:
        assert sorted(ids_in(store)) == sorted(acked)
        assert_sound(store)


# --- other programs ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc here")
def test_no_descriptor_reaches_another_program(tmp_path):
    """Not of the database, its log, its index, nor of a day file, however the program is started."""
    path = tmp_path / "store.db"
    show = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')])"
    with open_store(path) as store:
        say(store, "x")
        store.search_messages(SCOPE, "x")
        own = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
        assert any(name.startswith(str(path)) for name in own)  # or nothing would be seen below
        with store._storage.write() as tx:  # in the middle of a write, the day file's lock included
            tx.set_meta("a", "b")
            for options in ({}, {"close_fds": False}):
                done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, **options)
                assert done.returncode == 0, done.stderr
                assert str(tmp_path) not in done.stdout
        code, [seen] = report_of(lambda report: report(_by_exec(show)))
        assert code == 0
        assert str(tmp_path) not in seen


def _by_exec(show: str) -> str:
    """What a program sees that this process becomes by exec, which closes nothing but what is marked so."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.execv(sys.executable, [sys.executable, "-c", show])  # noqa: S606
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


IN_THIS_PROCESS = {
    "import": ("import", "jsonl", "in.jsonl"),
    "export": ("export", "--out", "out.jsonl"),
    "doctor": ("doctor", "--full"),
    "stats": ("list",),
    "sql": ("sql", "SELECT count(*) FROM v_messages"),
    "sql that writes": ("sql", "--write", "UPDATE sessions SET pinned = 1"),
    "reindex": ("reindex",),
    "backup": ("backup",),
    "vacuum": ("vacuum",),
    "compact": ("compact",),
    "recover": ("recover", "--out", "new.db"),
    "open again": (),
}


@pytest.mark.parametrize("doing", IN_THIS_PROCESS)
def test_nothing_that_this_process_does_beside_an_open_store_drops_its_locks(tmp_path, monkeypatch, doing):
    """R6. Without its locks another process' clean close would take the log away under this one: what it acknowledges
    later would go with it, unseen. N: 12 doings, 20 messages and 5 memories each, then kill -9."""
    path = tmp_path / "store.db"
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"role": "user", "content": "imported"}\n', encoding="utf-8")

    def work(report) -> None:
        store = open_store(path, durability="process")
        say(store, "first")
        if IN_THIS_PROCESS[doing]:
            done = Cli(path)(*IN_THIS_PROCESS[doing], MEMSTORE_DURABILITY="process")
            assert done.exit_code == 0, done.output
        else:
            open_store(path, durability="process").close()
        finish_child(start_child("child_open_close", path))
        for number in range(20):
            report(say(store, f"word {number}"))
        for number in range(5):
            report([store.add(SCOPE, f"memory {number}").id])
        os._exit(9)

    code, acked = report_of(work)
    assert code == 9
    shutil.rmtree(folder_of(path))  # the database alone must hold them
    with open_store(path) as store:
        stored = {*ids_in(store), *(m.id for m in store.get_all(SCOPE, limit=100))}
        assert {one for (one,) in acked} <= stored
        assert len(acked) == 25
        assert store.adopted == 0
        assert [f for f in store.doctor().findings if f.severity == "error"] == []


def test_a_restored_copy_beside_an_open_store_drops_none_of_its_locks(tmp_path):
    path = tmp_path / "store.db"

    def work(report) -> None:
        store = open_store(path, durability="process")
        say(store, "first")
        made = store.backup()
        MemoryStore.restore(made.path, tmp_path / "restored.db")
        assert outcome(lambda: MemoryStore.restore(made.path, path)).startswith("StoreExists")
        finish_child(start_child("child_open_close", path))
        for number in range(20):
            report([store.add(SCOPE, f"memory {number}").id])
        os._exit(9)

    code, acked = report_of(work)
    assert code == 9
    with open_store(path) as store:
        assert {one for (one,) in acked} == {m.id for m in store.get_all(SCOPE, limit=100)}
        assert_sound(store)
