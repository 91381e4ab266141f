"""Opening: what is refused stays untouched, what is opened is set up right, and nothing leaks."""

# ruff: noqa: PT012 - faults raised inside a block

import ast
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import apsw
import numpy as np
import pytest

from memstore.config import Settings
from memstore.errors import (
    ConfigError,
    EngineTooOld,
    NotFound,
    StoreClosed,
    StoreError,
    StoreIO,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
    StoreUnsound,
)
from memstore.fallback import folder_of
from memstore.storage.migrate import newest_version
from memstore.storage.sqlite import POOL_SIZE, SqliteStorage
from memstore.storage.sqlite.connection import APPLICATION_ID, check_versions, probe, vector_extension
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import Message, Scope
from reliability_support import (
    ROOT,
    SCOPE,
    START,
    assert_sound,
    become_nobody,
    dump,
    file_hashes,
    finish_child,
    give_to_nobody,
    in_fork,
    open_store,
    remove_database,
    report_of,
    say,
    set_modes,
    start_child,
    texts,
)


def made_by_sqlite3(path: Path, *statements: str) -> None:
    """A database as the ``sqlite3`` shell would make it, in another process."""
    script = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n[c.execute(s) for s in sys.argv[2:]]\nc.commit()"
    subprocess.run([sys.executable, "-c", script, str(path), *statements], check=True)


def a_store(path: Path, *said: str) -> None:
    with open_store(path) as store:
        say(store, *(said or ("hello",)))


# --- refused, untouched -----------------------------------------------------------------------------------


def zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def a_text(path: Path) -> None:
    path.write_text("dear diary\n" * 200)


def a_short_text(path: Path) -> None:
    path.write_text("{}")


def a_page_short(path: Path) -> None:
    a_store(path, *(f"message {n} " * 20 for n in range(50)))
    os.truncate(path, path.stat().st_size - 8192)


def half_a_page_short(path: Path) -> None:
    a_store(path)
    os.truncate(path, path.stat().st_size - 4000)


def a_foreign_database(path: Path) -> None:
    made_by_sqlite3(path, "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('mine')")


def a_foreign_wal_database(path: Path) -> None:
    made_by_sqlite3(
        path, "PRAGMA journal_mode = wal", "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('mine')"
    )


def another_application(path: Path) -> None:
    made_by_sqlite3(
        path, "CREATE TABLE messages (id)", "PRAGMA application_id = 4711", "PRAGMA user_version = 1"
    )


def without_application(path: Path) -> None:
    a_store(path)
    made_by_sqlite3(path, "PRAGMA application_id = 0")


def from_the_future(path: Path) -> None:
    a_store(path)
    made_by_sqlite3(path, "PRAGMA user_version = 9999")


def a_header_alone(path: Path) -> None:
    a_store(path)
    os.truncate(path, 100)


def zeroed_header(path: Path) -> None:
    a_store(path)
    with path.open("r+b") as file:
        file.write(bytes(100))


REFUSED = {
    zero_bytes: StoreUnsound, a_text: StoreUnsound, a_short_text: StoreUnsound, a_page_short: StoreUnsound,
    half_a_page_short: StoreUnsound, a_foreign_database: StoreUnsound, a_foreign_wal_database: StoreUnsound,
    another_application: StoreUnsound, without_application: StoreUnsound, from_the_future: StoreTooNew,
    a_header_alone: StoreUnsound, zeroed_header: StoreUnsound,
}  # fmt: skip


@pytest.mark.parametrize(("make", "error"), REFUSED.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_what_is_no_sound_store_is_refused_and_left_as_it_is(tmp_path, make, error):
    path = tmp_path / "store.db"
    make(path)
    before, modes = file_hashes(tmp_path), {p: p.stat().st_mode for p in tmp_path.rglob("*")}
    for _ in range(2):
        with pytest.raises(error) as raised:
            MemoryStore(path)
        assert str(path) in str(raised.value)
    assert file_hashes(tmp_path) == before
    assert {p: p.stat().st_mode for p in tmp_path.rglob("*")} == modes


def test_a_newer_store_is_refused_naming_both_versions(tmp_path):
    path = tmp_path / "store.db"
    from_the_future(path)
    with pytest.raises(StoreTooNew, match=rf"9999.*{newest_version()}"):
        MemoryStore(path)


def test_a_newer_version_that_is_still_in_the_wal_is_refused(tmp_path):
    path = tmp_path / "store.db"

    def work() -> None:
        storage = SqliteStorage.create(path) or SqliteStorage(path, busy_timeout_s=1, durability="process")
        with storage.exclusive_connection() as connection:
            connection.pragma("user_version", 9999)
        os._exit(9)

    assert in_fork(work) == 9
    assert Path(f"{path}-wal").stat().st_size > 0
    with pytest.raises(StoreTooNew):
        MemoryStore(path)
    assert probe(path) in ((APPLICATION_ID, newest_version()), (APPLICATION_ID, 9999))


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreUnsound, match="folder"):
        MemoryStore(tmp_path / "store.db")
    assert list(tmp_path.rglob("*")) == [tmp_path / "store.db"]


def test_a_missing_parent_folder_is_named(tmp_path):
    with pytest.raises(StoreIO, match=r"no/such.*does not exist"):
        MemoryStore(tmp_path / "no" / "such" / "store.db")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_with_fallback_lines_names_recover(tmp_path):
    path = tmp_path / "store.db"
    a_store(path)
    remove_database(path)
    before = file_hashes(tmp_path)
    with pytest.raises(StoreMissing, match="memstore recover"):
        MemoryStore(path)
    assert file_hashes(tmp_path) == before


def test_a_missing_file_with_an_empty_fallback_is_made(tmp_path):
    path = tmp_path / "store.db"
    folder_of(path).mkdir()
    (folder_of(path) / "2026-01-01.jsonl").touch()
    a_store(path)
    with open_store(path) as store:
        assert texts(store) == ["hello"]


def test_a_wal_without_its_database_is_never_played_into_a_new_one(tmp_path):
    path = tmp_path / "store.db"

    def work() -> None:
        store = open_store(path, durability="process")
        say(store, *(f"message {n}" for n in range(30)))
        os._exit(9)

    assert in_fork(work) == 9
    path.unlink()
    lost_log = Path(f"{path}-wal").read_bytes()
    fallback = {file.name: file.read_bytes() for file in folder_of(path).iterdir()}
    shutil.rmtree(folder_of(path))
    before = file_hashes(tmp_path)
    with pytest.raises(StoreUnsound, match=r"store\.db-wal"):
        MemoryStore(path)
    assert file_hashes(tmp_path) == before
    folder_of(path).mkdir(mode=0o700)
    for name, lines in fallback.items():
        (folder_of(path) / name).write_bytes(lines)
        (folder_of(path) / name).chmod(0o600)
    MemoryStore.recover(path)
    with open_store(path) as store:
        assert len(texts(store)) == 30
        assert_sound(store)
    [aside] = tmp_path.glob("store.db-wal.lost-*")
    assert aside.read_bytes() == lost_log


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_an_empty_log_that_a_reader_left_stops_neither_opening_nor_recovering(tmp_path, suffix):
    path = tmp_path / "store.db"
    a_store(path, "still there")
    path.unlink()
    Path(f"{path}{suffix}").touch()
    MemoryStore.recover(path)
    with open_store(path) as store:
        assert texts(store) == ["still there"]
    new = tmp_path / "new.db"
    Path(f"{new}{suffix}").touch()
    open_store(new).close()


@pytest.mark.parametrize(
    "name", ["a b.db", "50%25.db", "what?.db", "#1.db", "会话.db", "file:x?mode=memory.db", "-x.db"]
)
def test_names_that_mean_something_elsewhere_are_plain_names_here(tmp_path, name):
    path = tmp_path / name
    a_store(path, "in a file with a name")
    with open_store(path) as store:
        assert texts(store) == ["in a file with a name"]
        assert_sound(store)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, f"{name}.fallback"])


def test_a_link_to_the_database_leads_to_the_same_store(tmp_path):
    path = tmp_path / "store.db"
    a_store(path, "by its name")
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with open_store(link) as by_link, open_store(path) as by_name:
        say(by_link, "by the link")
        say(by_name, "by its name again")
        assert texts(by_link) == texts(by_name) == ["by its name", "by the link", "by its name again"]
        assert_sound(by_link)
        assert_sound(by_name)
    assert not folder_of(link).exists()


# --- several at once --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(2))
def test_eight_processes_make_one_new_store(tmp_path, attempt):
    path = tmp_path / "store.db"
    children = [start_child("child_open_new", path) for _ in range(8)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert len({finish_child(child) for child in children}) == 1
    with open_store(path) as store:
        assert len(texts(store)) == 8
        assert_sound(store)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.db", "store.db.fallback"]


def test_threads_make_one_new_store(tmp_path):
    path = tmp_path / "store.db"
    ids, errors = [], []
    barrier = threading.Barrier(6)

    def work() -> None:
        try:
            barrier.wait()
            with open_store(path) as store, store._storage.read() as reader:
                ids.append(reader.meta("store_id"))
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(ids) == 6
    assert len(set(ids)) == 1


def test_a_zone_is_fixed_by_the_first_and_a_conflict_named(tmp_path):
    path = tmp_path / "store.db"
    MemoryStore(path, settings=Settings(timezone="Asia/Shanghai")).close()
    with pytest.raises(ConfigError, match=r"Asia/Shanghai.*Europe/Berlin"):
        MemoryStore(path, settings=Settings(timezone="Europe/Berlin"))
    with MemoryStore(path) as store:
        assert str(store.timezone) == "Asia/Shanghai"
    with pytest.raises(ConfigError, match="Mars"):
        MemoryStore(tmp_path / "other.db", settings=Settings(timezone="Mars/Base"))
    assert not (tmp_path / "other.db").exists()


# --- fork and close ---------------------------------------------------------------------------------------


def outcome(call) -> str:
    try:
        call()
    except StoreError as error:
        return type(error).__name__
    return "went through"


VERBS = {
    "record": lambda s: say(s, "x"),
    "add": lambda s: s.add(SCOPE, "x"),
    "recall": lambda s: s.recall(SCOPE, "x"),
    "search": lambda s: s.search_messages(SCOPE, "x"),
    "messages": lambda s: s.messages(SCOPE, "agent:chat:one"),
    "get_all": lambda s: s.get_all(SCOPE),
    "sessions": lambda s: s.sessions(SCOPE),
    "count": lambda s: s.count(SCOPE),
    "doctor": lambda s: s.doctor(),
    "index": lambda s: s.index(),
    "reindex": lambda s: s.reindex(),
}


def test_a_forked_child_is_told_and_the_parent_works_on(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, durability="process") as store:
        acked = say(store, "before the fork")
        store.recall(SCOPE, "x")

        def in_child(report) -> None:
            report({name: outcome(lambda v=verb: v(store)) for name, verb in VERBS.items()})
            store.close()

        code, [found] = report_of(in_child)
        assert code == 0
        assert set(found.values()) == {"StoreClosed"}
        acked += say(store, "after the fork")
        assert texts(store) == ["before the fork", "after the fork"]
        assert_sound(store)
    with open_store(path) as store:
        assert [row["id"] for row in dump(store)["messages"]] == acked


def test_a_child_forked_while_another_thread_writes_is_told_too(tmp_path):
    """Its copy of the lock is held for ever: it must not wait for it."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with store._storage.write():
                inside.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, outcome(lambda: say(store, "x")).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            found = pipe.read()  # a child that waits for ever would hang here
        os.waitpid(pid, 0)
        leave.set()
        thread.join()
        assert found == "StoreClosed"


def test_close_twice_from_another_thread_and_use_afterwards(tmp_path):
    store = open_store(tmp_path / "store.db")
    say(store, "x")
    thread = threading.Thread(target=store.close)
    thread.start()
    thread.join()
    store.close()
    for name, verb in VERBS.items():
        with pytest.raises(StoreClosed):
            pytest.fail(f"{name} gave {verb(store)!r}")
    store.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.db", "store.db.fallback"]


def test_close_while_another_thread_reads(tmp_path):
    path = tmp_path / "store.db"
    store = open_store(path)
    say(store, "one", "two")
    with store._storage.read() as reader:
        rows = reader.dump_messages()
        next(rows)
        thread = threading.Thread(target=store.close)
        thread.start()
        thread.join()
        assert len(list(rows)) == 1
        rows.close()
    with open_store(path) as again:
        assert texts(again) == ["one", "two"]


def test_an_error_in_a_read_or_write_leaves_the_store_usable(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        say(store, "kept")
        for _ in range(20):
            with pytest.raises(ZeroDivisionError), store._storage.read() as reader:
                list(reader.dump_messages())
                raise ZeroDivisionError
            with pytest.raises(ZeroDivisionError), store._storage.write() as tx:
                tx.set_meta("x", "y")
                raise ZeroDivisionError
            with pytest.raises(NotFound):
                store.clear_session(SCOPE, "no-such")
        with store._storage.read() as reader:
            assert reader.meta("x") is None
        assert texts(store) == ["kept"]
        assert_sound(store)


def test_a_read_that_was_left_half_way_pins_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, durability="process") as store:
        say(store, *(f"message {n}" for n in range(200)))
        with store._storage.read() as reader:
            next(reader.dump_messages())
        say(store, "later")
        with store._storage.exclusive_connection() as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        assert busy == 0
        assert Path(f"{path}-wal").stat().st_size == 0


# --- descriptors, modes, read-only ------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc here")
def test_short_threads_leave_no_descriptor(tmp_path):
    """N: 300 threads, each of one record and one recall, and 40 openings."""
    path = tmp_path / "store.db"
    embedder = HashEmbedder()
    store = MemoryStore(path, embedder, settings=Settings(timezone="UTC", durability="process"))
    say(store, "first")
    at_first = open_descriptors()
    errors = []

    def work(number: int) -> None:
        try:
            say(store, f"from thread {number}")
            store.recall(SCOPE, "thread", timeout_s=60)
            store.search_messages(SCOPE, "thread", timeout_s=60)
        except BaseException as error:  # noqa: BLE001 - shown below
            errors.append(error)

    def run(numbers: range) -> None:
        threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
        for start in range(0, len(threads), 10):
            for thread in threads[start : start + 10]:
                thread.start()
            for thread in threads[start : start + 10]:
                thread.join()

    run(range(300))
    assert errors == []
    # a reading connection has two, the file and the WAL, and no more than the pool stay open
    assert open_descriptors() <= at_first + 2 * POOL_SIZE
    store.close()
    closed = open_descriptors()
    for _ in range(40):
        with open_store(path) as one:
            one.recall(SCOPE, "thread")
        with pytest.raises(StoreUnsound):
            MemoryStore(tmp_path)
    assert open_descriptors() <= closed


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_the_owners_alone_whatever_the_umask(tmp_path, umask):
    path = tmp_path / "store.db"

    def work(report) -> None:
        os.umask(umask)
        store = open_store(path, ManualClock(START))
        say(store, "private")
        store.add(SCOPE, "private")
        report(set_modes(path))
        store.close()
        report(set_modes(path))
        MemoryStore.recover(path, out=tmp_path / "copy.db")
        with open_store(tmp_path / "copy.db", ManualClock(START)) as copy:
            say(copy, "private too")
            report(set_modes(tmp_path / "copy.db"))

    code, (opened, closed, copied) = report_of(work)
    assert code == 0
    assert opened == {
        "store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600,
        "store.db.fallback": 0o700, "2026-03-01.jsonl": 0o600,
    }  # fmt: skip
    assert closed == {name: mode for name, mode in opened.items() if not name.endswith(("-wal", "-shm"))}
    assert copied == {name.replace("store.db", "copy.db"): mode for name, mode in opened.items()}


def test_a_read_only_folder_gives_a_named_error_and_no_file():
    """As another user than root, which a read-only folder does not stop."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        path = folder / "store.db"
        a_store(path, "readable")
        give_to_nobody(folder, read_only=path)

        def work(report) -> None:
            become_nobody()
            before = sorted(folder.iterdir())
            for attempt in (lambda: open_store(path), lambda: open_store(folder / "new.db")):
                try:
                    with attempt() as store:
                        report(["opened", texts(store)])
                        say(store, "not possible")
                        report(["wrote"])
                except StoreError as error:
                    report([type(error).__name__, str(error)])
            report([before == sorted(folder.iterdir())])

        code, (existing, new, unchanged) = report_of(work)
        assert code == 0
        for kind, message in (existing, new):
            assert kind in ("StoreReadOnly", "StoreIO")
            assert "folder" in message
        assert unchanged == [True]
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_write_protected_file_is_named():
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "store.db"
        a_store(path, "readable")
        for each in [folder, *folder.rglob("*")]:
            os.chown(each, 65534, 65534)
        path.chmod(0o444)

        def work(report) -> None:
            become_nobody()
            try:
                with open_store(path) as store:
                    say(store, "not possible")
            except StoreReadOnly as error:
                report(str(error))

        code, values = report_of(work)
        assert code == 0
        assert len(values) == 1
        assert "cannot be written" in values[0]
    finally:
        shutil.rmtree(folder)


# --- how connections are set up ---------------------------------------------------------------------------

WANTED = {
    "journal_mode": "wal", "secure_delete": 1, "foreign_keys": 1, "trusted_schema": 0, "cell_size_check": 1,
    "mmap_size": 0, "journal_size_limit": 64 * 2**20, "page_size": 8192, "wal_autocheckpoint": 1000,
    "application_id": APPLICATION_ID, "temp_store": 2,
}  # fmt: skip


def settings_of(connection: apsw.Connection) -> dict[str, object]:
    found = {name: connection.pragma(name) for name in WANTED}
    if found["mmap_size"] is None:
        found["mmap_size"] = 0
    return found


def assert_no_extensions(connection: apsw.Connection) -> None:
    with pytest.raises(apsw.SQLError, match="not authorized"):
        connection.execute("SELECT load_extension(?)", (vector_extension(),)).fetchall()


def connections_of(store: MemoryStore):
    with store._storage.read() as one, store._storage.read() as two:
        yield "reader", one._connection
        yield "second reader", two._connection
    with store._storage.write() as tx:
        yield "writer", tx._connection
    with store._storage.exclusive_connection() as connection:
        yield "exclusive", connection


@pytest.mark.parametrize("fresh", [True, False])
def test_every_connection_has_every_setting(tmp_path, fresh):
    path = tmp_path / "store.db"
    if not fresh:
        a_store(path)
    kinds = []
    with open_store(path) as store:
        for kind, connection in connections_of(store):
            assert settings_of(connection) == WANTED, kind
            timeout = connection.pragma("busy_timeout")
            assert timeout == (30_000 if kind == "exclusive" else 5_000), kind
            assert_no_extensions(connection)
            assert connection.execute("SELECT vec_version()").fetchall()
            kinds.append(kind)
        with store._storage.write() as tx:  # the longer wait of maintenance does not stay
            assert tx._connection.pragma("busy_timeout") == 5_000
        with store._storage.write(maintenance=True) as tx:
            assert tx._connection.pragma("busy_timeout") == 30_000
    assert kinds == ["reader", "second reader", "writer", "exclusive"]


def test_a_busy_timeout_of_ones_own(tmp_path):
    with open_store(tmp_path / "store.db", busy_timeout_s=0.25) as store:
        for kind, connection in connections_of(store):
            if kind != "exclusive":
                assert connection.pragma("busy_timeout") == 250


@pytest.mark.parametrize(("durability", "covered", "wanted"), [
    ("disk", False, 2), ("disk", True, 1), ("process", False, 1), ("process", True, 1),
])  # fmt: skip
def test_a_commit_is_synced_unless_the_fallback_was(tmp_path, durability, covered, wanted):
    with open_store(tmp_path / "store.db", durability=durability) as store:
        for _ in range(2):
            with store._storage.write(covered=not covered):
                pass
            with store._storage.write(covered=covered) as tx:
                assert tx._connection.pragma("synchronous") == wanted


def test_a_store_that_lost_wal_mode_gets_it_back(tmp_path):
    path = tmp_path / "store.db"
    a_store(path)
    made_by_sqlite3(path, "PRAGMA journal_mode = delete")
    with open_store(path) as store:
        for kind, connection in connections_of(store):
            assert connection.pragma("journal_mode") == "wal", kind


def test_a_connection_that_met_an_io_error_is_not_used_again(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        say(store, "x")
        for error in (apsw.IOError, apsw.FullError, apsw.CorruptError, apsw.NoMemError):
            seen = []
            with pytest.raises(StoreError), store._storage.read() as reader:
                seen.append(reader._connection)
                raise error("a fault")
            with store._storage.read() as reader:
                assert reader._connection is not seen[0]
            with pytest.raises(StoreError), store._storage.write() as tx:
                seen.append(tx._connection)
                raise error("a fault")
            with store._storage.write() as tx:
                assert tx._connection is not seen[1]
            for connection in seen:
                with pytest.raises(apsw.ConnectionClosedError):
                    connection.pragma("user_version")
        assert texts(store) == ["x"]
        assert_sound(store)


def test_every_writer_takes_the_lock_at_its_begin(tmp_path):
    """A deferred BEGIN that reads and then writes fails at once with BUSY_SNAPSHOT, whatever the timeout."""
    seen: list[str] = []
    store = MemoryStore(tmp_path / "store.db", HashEmbedder(), statement_hook=seen.append)
    with store:
        first, _ = say(store, "one", "two")
        store.add(SCOPE, "m")
        store.index()
        store.delete(SCOPE, first)
        store.set_session(SCOPE, "agent:chat:one", title="t")
        store.clear_session(SCOPE, "agent:chat:one")
        store.reindex()
        store.delete_all(SCOPE)
    writing = None
    for statement in seen:
        word = statement.split()[0].upper()
        if word == "BEGIN":
            writing = "IMMEDIATE" in statement.upper()
        elif word in ("INSERT", "UPDATE", "DELETE", "CREATE", "DROP") and not statement.lstrip().startswith(
            "-- "
        ):
            assert writing is True, statement
        elif word in ("COMMIT", "ROLLBACK"):
            writing = None


# --- floors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sqlite", "vec", "named"), [
    ("3.53.1", "v0.1.9", "apsw"), ("3.40.1", "v0.1.9", "apsw"), ("3.9.0", "v0.1.9", "apsw"), ("2.8.17", "v0.1.9", "apsw"),
    ("3.53.2", "v0.1.8", "sqlite-vec"), ("3.54.1", "v0.0.9", "sqlite-vec"), ("3.53.2", "v0.1.7-alpha.2", "sqlite-vec"),
])  # fmt: skip
def test_older_engines_are_refused_naming_the_package(sqlite, vec, named):
    with pytest.raises(EngineTooOld, match=f"pip install --upgrade {named}$"):
        check_versions(sqlite, vec)


@pytest.mark.parametrize(("sqlite", "vec"), [
    ("3.53.2", "v0.1.9"), ("3.53.10", "v0.1.10"), ("3.54.0", "v0.2.0"), ("4.0.0", "v1.0.0"), ("3.53.2.1", "0.1.9"),
])  # fmt: skip
def test_engines_from_the_floor_on_pass(sqlite, vec):
    check_versions(sqlite, vec)


def test_an_extension_that_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    broken = tmp_path / "vec0.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr("memstore.storage.sqlite.connection.vector_extension", lambda: str(broken))
    with pytest.raises(EngineTooOld, match="sqlite-vec"):
        MemoryStore(tmp_path / "store.db")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["vec0.so"]


# --- vectors that must not get in -------------------------------------------------------------------------


def test_bad_vectors_never_reach_the_table(tmp_path):
    """A tiny norm would be the nearest to every query, NaN and zero rank anyhow."""
    bad = {
        "nan": lambda v: v * np.float32("nan"),
        "infinite": lambda v: v * np.float32("inf"),
        "zero": lambda v: v * 0,
        "tiny": lambda v: v * np.float32(1e-38),
        "partly": lambda v: np.where(np.arange(len(v)) == 3, np.float32("nan"), v),
    }

    class Poisoned(HashEmbedder):
        def embed_documents(self, given):
            rows = super().embed_documents(given).copy()
            for row, text in zip(rows, given, strict=True):
                for word, spoil in bad.items():
                    if word in text:
                        row[:] = spoil(row)
            return rows

    with MemoryStore(tmp_path / "store.db", Poisoned(16)) as store, np.errstate(all="ignore"):
        for word in [*bad, "sound"]:
            store.add(SCOPE, f"a {word} vector")
            say(store, f"a {word} vector")
        report = store.index()
        assert (report.embedded, report.refused, report.pending) == (2, 2 * len(bad), 0)
        with store._storage.read() as reader:
            for layer in ("messages", "memories"):
                stored = reader._rows(f"SELECT vector FROM vectors_1_{layer}")
                assert len(stored) == 1
                vector = np.frombuffer(stored[0][0], dtype=np.float32)
                assert np.isfinite(vector).all()
                assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
        for word in bad:
            assert any(word in hit.content for hit in store.recall(SCOPE, f"{word}", limit=10)), (
                "found by text"
            )
        assert store.recall(SCOPE, "sound vector")[0].content == "a sound vector"


# --- teams ------------------------------------------------------------------------------------------------


def test_another_teams_words_are_in_no_table_of_mine(tmp_path):
    path = tmp_path / "store.db"
    mine, theirs = Scope("mine", "u", "a"), Scope("theirs", "u", "a")
    with open_store(path) as store:
        store.record(mine, [Message("user", "alpha zebra")], "s")
        store.add(mine, "alpha zebra memory")
        before = store.recall(mine, "alpha", explain=True)
        for number in range(30):
            store.record(theirs, [Message("user", f"alpha falcon secretword {number}")], "s")
            store.add(theirs, f"alpha falcon secretword {number}")
        after = store.recall(mine, "alpha", explain=True)
        assert [(h.id, h.score, h.explanation) for h in before] == [
            (h.id, h.score, h.explanation) for h in after
        ]
        with store._storage.exclusive_connection() as connection:
            tables = connection.execute("SELECT team_id, layer, table_name FROM v_text_indexes").fetchall()
            words = {}
            for team, layer, table in tables:
                connection.execute(
                    f"CREATE VIRTUAL TABLE temp.words_of USING fts5vocab('main', {table}, 'row')"
                ).fetchall()
                words[team, layer] = {
                    word for (word,) in connection.execute("SELECT term FROM temp.words_of")
                }
                connection.execute("DROP TABLE temp.words_of").fetchall()
    assert set(words) == {(team, layer) for team in ("mine", "theirs") for layer in ("messages", "memories")}
    for layer in ("messages", "memories"):
        assert "zebra" in words["mine", layer]
        assert not {"falcon", "secretword"} & words["mine", layer]
        assert {"falcon", "secretword"} <= words["theirs", layer]
        assert "zebra" not in words["theirs", layer]


# --- the one library on the file --------------------------------------------------------------------------


def modules() -> list[Path]:
    return sorted((ROOT / "memstore").rglob("*.py"))


def test_no_module_uses_another_sqlite_library_or_opens_the_database_by_itself():
    """Closing any descriptor of the file drops SQLite's POSIX locks: committed rows could be lost without a sign."""
    readers = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
    openers = {
        "os.open",
        "shutil.copy",
        "shutil.copy2",
        "shutil.copyfile",
        "shutil.copytree",
        "tarfile.open",
        "mmap.mmap",
    }
    allowed = {  # what each of these opens is no database: checked by eye once, and again when this test fails
        "fallback.py": {
            "path.open",
            "os.open",
            "self.path(day).open",
            "mark.read_bytes",
        },  # day files, their mark
        "files.py": {"os.open"},  # folders, to be synced or locked
        "file_system.py": {"_MOUNTS.read_text"},  # the kernel's table of mounts
        "reserve.py": {"os.open", "self.path.open"},  # the reserve
        "collecting.py": {"path.open", "self.paths[file].open"},  # day files
        "recovery.py": {"shutil.copyfile", "path.open", "of.open"},  # day files
        "text.py": {"_jieba_dictionary().open", "_jieba_dictionary().read_bytes"},
        "storage/migrate.py": {"path.read_text", "os.open"},  # the steps, the lock on a folder
        "storage/upgrade_copy.py": {"os.open"},  # a new file before SQLite sees it
        "config.py": {"timezone_file.read_text"},
        "power_loss.py": {"path.read_bytes", "copy.write_bytes"},  # in tests: no store's files, and copies
        # Copies that have no name of a store yet and that SQLite has closed, and compressed files; the lock on a folder.
        "backup.py": {"os.open", "source.open", "packed.open", "target.open", "path.open"},
        "restore.py": {"source.open", "path.open"},  # the compressed file, day files
        "storage/sqlite/__init__.py": {"os.open"},  # a new file before SQLite sees it, folders
        "pipelines/model_reading.py": {"read_text"},  # a reply's text
        "prompts/__init__.py": {"path.read_text"},  # the prompts
    }
    for path in modules():
        name = str(path.relative_to(ROOT / "memstore"))
        if name.startswith(("cli/", "importers/", "embedders/")):
            continue  # they never get a database's path to read; see the imports below
        found = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in openers or called.split(".")[-1] in readers:
                    found.add(called)
        assert found <= allowed.get(name, set()), f"{name}: a call that may open the database"


def test_only_the_sqlite_backend_knows_apsw_and_no_module_knows_sqlite3():
    allowed = ("storage/",)
    for path in modules():
        name = str(path.relative_to(ROOT / "memstore"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            imported = []
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            roots = {one.split(".")[0] for one in imported}
            assert not roots & {"sqlite3", "pysqlite3", "aiosqlite", "sqlalchemy"}, name
            assert "apsw" not in roots or name.startswith(allowed), name


def test_the_package_loads_no_other_sqlite_library():
    script = (
        "import sys\nfrom memstore import MemoryStore, Scope, Message\n"
        "s = MemoryStore(sys.argv[1])\nc = Scope('t', 'u', 'a')\ns.record(c, [Message('user', 'x 你好')], 's')\n"
        "s.recall(c, 'x'); s.doctor(); s.close()\nprint('sqlite3' in sys.modules or '_sqlite3' in sys.modules)"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, f"{folder}/store.db"],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert done.stdout == "False\n"


def test_a_stock_sqlite_shell_reads_and_matches(tmp_path):
    """From another process, as SPEC S8 promises: plain tables, and FTS5 of any SQLite of the last years."""
    path = tmp_path / "store.db"
    a_store(path, "the quick brown fox")
    script = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n"
        "name, = c.execute(\"SELECT table_name FROM v_text_indexes WHERE layer = 'messages'\").fetchone()\n"
        "print(c.execute(f\"SELECT m.text FROM {name} f JOIN v_messages m ON m.text_rowid = f.rowid WHERE {name} MATCH 'fox'\").fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[('the quick brown fox',)]\n"


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_to_a_file_that_was_removed_or_replaced(tmp_path, replaced):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "before")
        path.rename(tmp_path / "elsewhere.db")
        if replaced:
            path.write_bytes((tmp_path / "elsewhere.db").read_bytes())
        lines = [file.read_bytes() for file in folder_of(path).iterdir()]
        with pytest.raises(StoreMissing, match="removed or replaced"):
            say(store, "into nowhere")
        with pytest.raises(StoreMissing, match="removed or replaced"):
            store.doctor()
        assert [file.read_bytes() for file in folder_of(path).iterdir()] == lines
