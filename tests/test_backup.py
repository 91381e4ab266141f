"""Backups: taken while others write, whole or not there, and what comes back from them.

``MEMSTORE_TEST_BACKUPS=50`` takes so many backups under load, ``MEMSTORE_TEST_BACKUP_KILLS=all`` dies at every moment
of one.
"""

# ruff: noqa: S311 - seeded chance

import gzip
import json
import os
import random
import re
import shutil
import signal
import stat
import tarfile
import tracemalloc
import zlib
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from backup_support import FAST, add_megabytes, answers_of, contents_of, filled, in_moments, opened, start
from faults_support import doubles
from memstore import MemoryStore, Message, Scope, Settings
from memstore.backup import folder_of_backups
from memstore.errors import (
    BackupUnsound,
    InvalidInput,
    StoreBusy,
    StoreError,
    StoreExists,
    StoreFull,
    StoreIO,
    StoreMissing,
    StoreTooNew,
)
from memstore.fallback import day_files, folder_of
from memstore.files import SystemFiles
from memstore.storage.migrate import newest_version
from memstore.storage.sqlite import copying
from memstore.testing import HashEmbedder, ManualClock
from reliability_support import (
    DAY,
    SCOPE,
    START,
    TESTS,
    assert_sound,
    die_behind_the_append,
    dump,
    dump_of,
    file_hashes,
    finish_child,
    in_fork,
    remove_database,
    say,
    start_child,
    texts,
)

BACKUPS = int(os.environ.get("MEMSTORE_TEST_BACKUPS") or 4)  # N of a run under load; the long form is 50
KILLS = os.environ.get("MEMSTORE_TEST_BACKUP_KILLS") or "30"  # N; the long form is "all" moments of a backup


def backup_files(path: Path) -> list[Path]:
    folder = folder_of_backups(path)
    return sorted(folder.iterdir()) if folder.is_dir() else []


# --- what is in it ------------------------------------------------------------------------------------------


def test_everything_comes_back(tmp_path):
    path, other = tmp_path / "memory.db", tmp_path / "other.db"
    with filled(path) as store:
        store.delete(Scope("team", "user1"), store.get_all(Scope("team", "user1"))[0].id)
        store.delete_session(Scope("team", "user2", "agent"), "chat")
        report = store.backup()
        before = contents_of(path)
    with apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE) as connection:
        messages = connection.execute("SELECT count(*) FROM messages").fetchall()[0][0]
        memories = connection.execute("SELECT count(*) FROM memory_versions").fetchall()[0][0]
    connection.close()
    restored = MemoryStore.restore(report.path, other, settings=FAST)
    assert (
        (report.messages, report.memories) == (restored.messages, restored.memories) == (messages, memories)
    )
    assert (restored.adopted, restored.lost_lines, restored.schema_version) == (0, 0, newest_version())
    assert contents_of(other) == before
    assert {
        "dictionary_words",
        "recall_traces",
        "vectors_1_messages",
        "text_memories_1_data",
    } <= before.keys()
    assert all(before[name] for name in ("dictionary_words", "recall_traces", "vectors_1_memories"))
    assert answers_of(other) == answers_of(path)
    with opened(other) as store:
        assert_sound(store)
        assert store.fallback_days() == []


def test_a_backup_says_what_it_is_and_is_recorded(tmp_path):
    clock = ManualClock(START)
    with opened(tmp_path / "memory.db", clock) as store:
        say(store, "one", "two")
        seen = []
        report = store.backup(progress=lambda done, total: seen.append((done, total)))
        with store._storage.read() as reader:
            store_id = reader.meta("store_id")
        assert Path(report.path).parent == tmp_path / "memory.db.backups"
        assert (
            Path(report.path).name == f"memory.db.20260301T120000.000000Z.v{newest_version()}.{store_id}.gz"
        )
        assert (report.taken_at, report.bytes) == (START, Path(report.path).stat().st_size)
        assert report.database_bytes % 8192 == 0
        (record,) = store.backups()
        assert (record.path, record.sha256, record.bytes, record.present) == (
            report.path, report.sha256, report.bytes, True,
        )  # fmt: skip
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1]
        assert store.fallback_days()[0].backup == report.path
        Path(report.path).unlink()
        assert [record.present for record in store.backups()] == [False]
        assert store.fallback_days()[0].backup is None


def test_any_gzip_program_unpacks_it_to_a_file_that_stock_sqlite_opens(tmp_path):
    import subprocess
    import sys

    with opened(tmp_path / "memory.db") as store:
        say(store, "hello fox")
        report = store.backup()
    plain = tmp_path / "plain.db"
    plain.write_bytes(gzip.decompress(Path(report.path).read_bytes()))
    script = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n"
        "print(c.execute(\"SELECT count(*) FROM text_messages_1 WHERE text_messages_1 MATCH 'fox'\").fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(plain)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[(1,)]\n"


def test_deleted_rows_are_in_it_too(tmp_path):
    """What plain delete does not do: older backups still hold what was deleted, and newer ones the owner's history."""
    assert "backups still hold it" in " ".join(MemoryStore.delete.__doc__.split()).replace(
        "and backups", "backups"
    )
    with opened(tmp_path / "memory.db") as store:
        memory = store.add(SCOPE, "the canary sings")
        store.delete(SCOPE, memory.id)
        report = store.backup()
    MemoryStore.restore(report.path, tmp_path / "other.db", settings=FAST)
    with opened(tmp_path / "other.db") as store:
        assert list(store.recall(SCOPE, "canary")) == []
        assert [m.content for m in store.history(SCOPE, memory.id)] == ["the canary sings"]


# --- while others write ---------------------------------------------------------------------------------------


def acknowledged(journals: list[Path]) -> list[list[str]]:
    """Calls by writer, whole lines alone: the last one may be in the middle of being written."""
    return [
        [json.loads(line) for line in journal.read_text().split("\n")[:-1]] if journal.exists() else []
        for journal in journals
    ]


def test_backups_under_load_are_consistent_and_hold_all_that_was_acknowledged_before(tmp_path):
    path = tmp_path / "memory.db"
    opened(path).close()
    journals = [tmp_path / f"{number}.acked" for number in range(2)]
    writers = [start("child_write", path, number, journals[number]) for number in range(2)]
    taken = []
    try:
        for writer in writers:
            assert writer.stdout.readline() == "writing\n"
        with opened(path) as store:
            for _ in range(BACKUPS):
                before = acknowledged(journals)
                taken.append((before, store.backup(keep=BACKUPS).path))
    finally:
        for writer in writers:
            writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]
    after = acknowledged(journals)
    assert len({tuple(map(len, before)) for before, _ in taken}) > 1  # they did write meanwhile
    for number, (before, file) in enumerate(taken):
        restored = tmp_path / f"restored{number}.db"
        MemoryStore.restore(file, restored, settings=FAST)
        with opened(restored) as store:
            report = store.doctor(full=True)
            assert report.ok, report.findings
            for writer in range(2):
                assert_prefix(store, writer, before[writer], after[writer])


def assert_prefix(store: MemoryStore, writer: int, before: list, after: list) -> None:
    """Of one writer: all that was acknowledged before, and of what came later a beginning, call by call."""
    scope = Scope("team", f"writer{writer}", "agent")
    messages = [message.id for message in store.messages(scope, "chat")]
    memories, cursor = set(), None
    while True:
        page = store.get_all(scope, 500, cursor)
        memories |= {memory.id for memory in page}
        cursor = page.next_cursor
        if cursor is None:
            break
    ids = [one for call in after for one in call[:3]]
    assert len(messages) % 3 == 0
    assert messages == ids[: len(messages)]
    assert len(messages) >= 3 * len(before)
    made = [call[3] for call in after[: len(memories)]]
    assert memories == set(made)
    assert len(memories) >= len(before)
    assert len(messages) // 3 - len(memories) in (0, 1)  # the message of a call comes before its memory


def test_a_writer_that_never_rests_does_not_keep_a_backup_from_ending(tmp_path, monkeypatch):
    """Each step of the copy is followed by a commit: without one snapshot it would begin again each time."""
    monkeypatch.setattr(copying, "STEP_PAGES", 4)
    with filled(tmp_path / "memory.db", rows=60) as store:
        copied = []

        def interfere(done: int, total: int) -> None:
            copied.append(done)
            if len(copied) < 40:
                say(store, "again " * 50)

        report = store.backup(progress=interfere)
        assert copied == sorted(copied)
        assert report.messages < 60 + len(copied)
        assert len(texts(store)) == min(39, len(copied))


def test_one_backup_at_a_time_in_a_folder(tmp_path):
    with opened(tmp_path / "memory.db") as store, opened(tmp_path / "memory.db") as second:
        say(store, "hello")
        refused = []

        def another(_done: int, _total: int) -> None:
            if not refused:
                with pytest.raises(StoreBusy, match="another backup is running"):
                    second.backup()
                refused.append(True)

        store.backup(progress=another)
        assert refused
        second.backup()
        assert len(backup_files(store.path)) == 2


def test_memory_stays_flat(tmp_path):
    with filled(tmp_path / "memory.db") as store:
        add_megabytes(store, 12)
        tracemalloc.start()
        try:
            report = store.backup()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert report.database_bytes > 20 * 2**20
    assert peak < 8 * 2**20


def test_backup_and_restore_drop_no_lock_of_this_process(tmp_path):
    """Opening the database by anything but SQLite would: the next process to close it then removes the log under us."""
    path = tmp_path / "memory.db"

    def work() -> None:
        store = opened(path)
        say(store, *(f"before {n}" for n in range(20)))
        report = store.backup()
        MemoryStore.restore(report.path, tmp_path / "other.db", settings=FAST)
        store.fallback_days()
        store.prune_fallback(0)
        say(store, *(f"after {n}" for n in range(20)))
        finish_child(start_child("child_open_close", path))
        say(store, *(f"last {n}" for n in range(20)))
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_fork(work) == -signal.SIGKILL
    shutil.rmtree(folder_of(path))  # it would bring them back
    with opened(path) as store:
        assert store.adopted == 0
        assert len(texts(store)) == 60


# --- places, names, how many are kept -----------------------------------------------------------------------------


def test_older_backups_of_this_store_go_and_nothing_else(tmp_path):
    clock = ManualClock(START)
    path = tmp_path / "memory.db"
    with opened(path, clock) as store:
        say(store, "hello")
        folder = folder_of_backups(path)
        made = []
        for _ in range(3):
            made.append(Path(store.backup(keep=9).path))
            clock.advance(DAY)
        others = {
            made[0].name.replace(
                made[0].name.split(".")[-2], "01ZZZZZZZZZZZZZZZZZZZZZZZZ"
            ): "of another store",
            made[0].name.replace("memory.db", "other.db"): "of another database",
            made[0].name.replace("T120000", "T1200"): "no name of ours",
            made[0].name + ".old": "a copy",
            "notes.txt": "mine",
        }
        for name, text in others.items():
            (folder / name).write_text(text)
        report = store.backup(keep=2)
        assert set(report.removed) == {str(path) for path in made[:2]}
        left = {file.name for file in folder.iterdir()}
        assert left == {*others, made[2].name, Path(report.path).name}
        assert [record.path for record in store.backups()] == [str(made[2]), report.path]
        assert {name: (folder / name).read_text() for name in others} == others


def test_the_one_just_made_stays_whatever_the_clock_did(tmp_path):
    clock = ManualClock(START)
    with opened(tmp_path / "memory.db", clock) as store:
        say(store, "hello")
        late = store.backup().path
        clock.set(START - timedelta(days=400))
        early = store.backup(keep=1)
        assert early.removed == (late,)
        assert [str(file) for file in backup_files(store.path)] == [early.path]


def test_a_folder_or_a_file_may_be_named(tmp_path):
    with opened(tmp_path / "memory.db") as store:
        say(store, "hello")
        assert Path(store.backup(tmp_path / "elsewhere").path).parent == tmp_path / "elsewhere"
        file = tmp_path / "before the trip.gz"
        assert store.backup(file, keep=1).path == str(file)
        assert [Path(record.path).parent.name for record in store.backups()] == ["elsewhere", tmp_path.name]
        with pytest.raises(StoreExists, match="never written over"):
            store.backup(file)
        with pytest.raises(StoreIO, match="does not exist"):
            store.backup(tmp_path / "no" / "such")
        (tmp_path / "a file").touch()
        with pytest.raises(StoreExists, match="no folder"):
            store.backup(tmp_path / "a file")
        for keep in (0, -1, True, 2.5, None):
            with pytest.raises(InvalidInput, match="keep"):
                store.backup(keep=keep)
    MemoryStore.restore(file, tmp_path / "other.db", settings=FAST)
    assert dump_of(tmp_path / "other.db") == dump_of(tmp_path / "memory.db")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_read_them(tmp_path, umask):
    path = tmp_path / "memory.db"

    def work() -> None:
        os.umask(umask)
        with filled(path, rows=3) as store:
            modes = set()
            folder = folder_of_backups(path)

            def look(_done: int, _total: int) -> None:
                modes.update(stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir())

            report = store.backup(progress=look)
            assert modes == {0o600}
            MemoryStore.restore(report.path, tmp_path / "other.db", settings=FAST)

    assert in_fork(work) == 0
    folder = folder_of_backups(path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (*folder.iterdir(), tmp_path / "other.db")} == {
        0o600
    }


# --- faults -------------------------------------------------------------------------------------------------------


def test_killed_at_any_moment_it_is_whole_or_not_there(tmp_path):
    path = tmp_path / "memory.db"
    filled(path).close()
    rows = contents_of(path)

    def work(store, moments) -> None:
        store.backup(progress=moments.pass_one)

    total = in_moments(path, 0, work)
    assert total > 100
    shutil.rmtree(folder_of_backups(path))
    every = range(1, total + 1)
    chosen = (
        every if KILLS == "all" else sorted(random.Random(20261130).sample(every, min(int(KILLS), total)))
    )
    unfinished = whole = 0
    for number, moment in enumerate(chosen):
        assert in_moments(path, moment, work) == 0
        files = backup_files(path)
        unfinished += any(file.name.startswith(".") for file in files)
        named = [file for file in files if not file.name.startswith(".")]
        for file in named:
            MemoryStore.restore(file, tmp_path / f"{number}.db", settings=FAST)
            assert contents_of(tmp_path / f"{number}.db") == rows
            whole += 1
        with opened(path) as store:
            assert_sound(store)
            kept = store.backup(keep=1)
            assert [str(file) for file in backup_files(path)] == [kept.path]  # what was left behind is gone
            assert [record.path for record in store.backups()] == [kept.path]
        shutil.rmtree(folder_of_backups(path))
    assert unfinished
    assert contents_of(path) == rows


def test_each_failing_operation_leaves_no_half_file(tmp_path):
    """Every operation of a backup fails once, N as long as a fault is met; the store is sound and the next one works."""
    path = tmp_path / "memory.db"
    filled(path, rows=3).close()
    folder_of_backups(path).mkdir(mode=0o700)
    failed = made = 0
    with doubles(default=True) as made_of:
        for nth in range(1, 2_000):
            with opened(path, **made_of.options) as store:
                made_of.plan.reset()
                made_of.plan.fail("error", nth)
                try:
                    report = store.backup(keep=1)
                except StoreError:
                    failed += 1
                else:
                    made += 1
                    assert gzip.decompress(Path(report.path).read_bytes())
                met = len(made_of.plan.met)
                made_of.plan.reset()
                left = [file for file in backup_files(path) if file.name.startswith(".")]
                assert left == []
            if not met:
                break
    assert not met
    assert failed > 20
    with opened(path) as store:
        assert_sound(store)
        store.backup(keep=1)
        assert len(backup_files(path)) == 1


@pytest.mark.parametrize(("part", "more"), [(0, 1_000), (0.5, 0), (1, -1), (1, 2_000)])
def test_a_full_disk_says_so_and_leaves_nothing_half(tmp_path, part, more):
    """So much of the copy fits; the last one has room for it, and not for the compressed file beside it."""
    path, folder = tmp_path / "memory.db", tmp_path / "disk"
    folder.mkdir(mode=0o700)
    with doubles(default=True) as made_of, opened(path, **made_of.options) as store:
        say(store, "hello " * 100)
        size = store.backup().database_bytes
        made_of.plan.limit(folder, int(part * size) + more)
        with pytest.raises(StoreFull):
            store.backup(folder)
        assert list(folder.iterdir()) == []
        assert len(store.backups()) == 1
        say(store, "still writing")
        made_of.plan.lift()
        store.backup(folder)


def test_room_is_looked_for_first(tmp_path, monkeypatch):
    with opened(tmp_path / "memory.db") as store:
        say(store, "hello")
        real = os.statvfs

        def nearly_full(place):
            found = list(real(place))
            found[4] = 3  # f_bavail
            return os.statvfs_result(found)

        monkeypatch.setattr(os, "statvfs", nearly_full)
        with pytest.raises(StoreFull, match=r"takes up to [\d,]+ bytes.*are free"):
            store.backup()
        assert backup_files(store.path) == []


def test_what_does_not_read_back_is_not_kept(tmp_path):
    class Flipping(SystemFiles):
        """A disk that keeps other bytes than it was given, once they are synced."""

        def sync_data(self, descriptor: int) -> None:
            super().sync_data(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.suffix == ".part":
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)

    with opened(tmp_path / "memory.db", files=Flipping()) as store:
        say(store, "hello")
        with pytest.raises(BackupUnsound):
            store.backup()
        assert backup_files(store.path) == []
        assert store.backups() == []


def test_another_sound_copy_does_not_pass_for_it(tmp_path):
    """A disk that gives back what stood there before."""
    earlier: list[bytes] = []

    class Stale(SystemFiles):
        def sync_data(self, descriptor: int) -> None:
            super().sync_data(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.suffix == ".part" and earlier:
                path.write_bytes(earlier[0])

    with opened(tmp_path / "memory.db", files=Stale()) as store:
        say(store, "one")
        earlier.append(Path(store.backup().path).read_bytes())
        say(store, "two")
        with pytest.raises(BackupUnsound, match="did not read back"):
            store.backup()
        assert len(backup_files(store.path)) == 1


def test_a_damaged_store_gets_no_backup_that_counts(tmp_path):
    path = tmp_path / "memory.db"
    filled(path, rows=40).close()
    connection = apsw.Connection(str(path))
    page = connection.execute(
        "SELECT pageno FROM dbstat WHERE name = 'memory_versions' AND pagetype = 'leaf' ORDER BY 1"
    ).fetchall()[0][0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 8192)
        file.write(random.Random(1).randbytes(4096))
    with opened(path) as store:
        with pytest.raises(StoreError):
            store.backup()
        assert backup_files(path) == []


def test_a_damaged_text_index_is_no_reason_to_go_without_backup(tmp_path, caplog):
    path = tmp_path / "memory.db"
    filled(path, rows=5).close()
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM text_messages_1_docsize")
    connection.close()
    with opened(path) as store:
        report = store.backup()
    assert "text index" in caplog.text
    MemoryStore.restore(report.path, tmp_path / "other.db", settings=FAST)
    with opened(tmp_path / "other.db") as store:
        assert not store.doctor().ok
        store.reindex()
        assert store.doctor().ok


def test_a_database_that_was_replaced_gets_no_backup(tmp_path):
    path = tmp_path / "memory.db"
    with opened(path) as store:
        say(store, "hello")
        opened(tmp_path / "other.db").close()
        (tmp_path / "other.db").rename(path)
        with pytest.raises(StoreError):
            store.backup()
        assert backup_files(path) == []


# --- restoring -------------------------------------------------------------------------------------------------------


def backed_up(path: Path, *said: str) -> Path:
    with opened(path) as store:
        say(store, *(said or ("hello",)))
        return Path(store.backup().path)


def zipped(data: bytes, to: Path) -> Path:
    to.write_bytes(gzip.compress(data))
    return to


def unzipped(data: bytes) -> bytes | None:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


def test_damaged_and_cut_backups_are_refused_and_write_nothing(tmp_path):
    good = backed_up(tmp_path / "memory.db", *(f"message {n}" for n in range(20)))
    data = good.read_bytes()
    target = tmp_path / "there" / "other.db"
    target.parent.mkdir()
    rng = random.Random(7)
    bad = tmp_path / "bad.gz"
    cuts = [0, 1, 3, 10, 18, len(data) - 8, len(data) - 4, len(data) - 1, *rng.sample(range(len(data)), 20)]
    for cut in cuts:
        bad.write_bytes(data[:cut])
        with pytest.raises(BackupUnsound, match=r"bad\.gz"):
            MemoryStore.restore(bad, target)
    refused = 0
    for place in rng.sample(range(len(data)), 80):
        flipped = data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
        if unzipped(flipped) == unzipped(data):
            continue  # gzip has several ways to write the same content
        bad.write_bytes(flipped)
        with pytest.raises(BackupUnsound, match=r"bad\.gz"):
            MemoryStore.restore(bad, target)
        refused += 1
    assert refused > 60
    bad.write_bytes(data + b"more")
    with pytest.raises(BackupUnsound):
        MemoryStore.restore(bad, target)
    assert list(target.parent.iterdir()) == []


def test_what_is_no_backup_is_refused_and_writes_nothing(tmp_path):
    good = backed_up(tmp_path / "memory.db")
    plain = bytearray(gzip.decompress(good.read_bytes()))
    foreign = apsw.Connection(str(tmp_path / "foreign.db"))
    foreign.execute("CREATE TABLE notes (text)")
    foreign.close()
    newer = plain.copy()
    newer[60:64] = (9999).to_bytes(4)
    holed = plain.copy()
    holed[8192 * 10 : 8192 * 12] = bytes(8192 * 2)
    target = tmp_path / "there" / "other.db"
    target.parent.mkdir()
    bad = tmp_path / "bad.gz"
    for make, error in (
        (lambda: bad.write_text("dear diary"), BackupUnsound),
        (lambda: bad.write_bytes(bytes(plain)), BackupUnsound),  # not compressed
        (lambda: zipped(b"", bad), BackupUnsound),
        (lambda: zipped(b"dear diary" * 100, bad), BackupUnsound),
        (lambda: zipped((tmp_path / "foreign.db").read_bytes(), bad), BackupUnsound),
        (lambda: zipped(bytes(plain[: len(plain) // 2]), bad), BackupUnsound),
        (lambda: zipped(bytes(holed), bad), BackupUnsound),
        (lambda: zipped(bytes(newer), bad), StoreTooNew),
    ):
        make()
        with pytest.raises(error, match=re.escape(str(bad))):
            MemoryStore.restore(bad, target)
        assert list(target.parent.iterdir()) == []
    with pytest.raises(StoreMissing, match="no backup"):
        MemoryStore.restore(tmp_path / "nothing.gz", target)
    with pytest.raises(StoreMissing, match="no backup"):
        MemoryStore.restore(tmp_path, target)
    with pytest.raises(StoreIO, match="does not exist"):
        MemoryStore.restore(good, tmp_path / "no" / "such.db")


def test_nothing_is_ever_written_over(tmp_path):
    good = backed_up(tmp_path / "memory.db")
    (tmp_path / "text").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    before = file_hashes(tmp_path)
    for target in (tmp_path / "memory.db", tmp_path / "text", tmp_path):
        with pytest.raises(StoreExists, match="restore to another place"):
            MemoryStore.restore(good, target)
    assert file_hashes(tmp_path) == before


def test_a_fallback_of_another_store_is_not_taken_for_its_own(tmp_path):
    good = backed_up(tmp_path / "memory.db")
    with opened(tmp_path / "other.db") as store:
        say(store, "another's")
    remove_database(tmp_path / "other.db")
    before = file_hashes(tmp_path)
    with pytest.raises(StoreExists, match="of another store"):
        MemoryStore.restore(good, tmp_path / "other.db")
    assert file_hashes(tmp_path) == before


def test_the_lost_database_comes_back_with_what_the_fallback_holds_beyond_the_backup(tmp_path):
    clock = ManualClock(START)
    path = tmp_path / "memory.db"
    with opened(path, clock) as store:
        say(store, "before")
        memory = store.add(SCOPE, "a memory of before")
        clock.advance(DAY)
        report = store.backup()
        say(store, "after, the same day")
        store.set_session(SCOPE, "agent:chat:one", title="renamed after")
        clock.advance(DAY)
        say(store, "a day later", session="agent:chat:two")
        store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[1].id)
        store.add(SCOPE, "a memory of after")
        everything = dump(store)
    remove_database(path)
    with pytest.raises(StoreMissing, match=r"memstore restore .*memory\.db\.2026.* --db"):
        opened(path)
    restored = MemoryStore.restore(report.path, path, settings=FAST)
    assert (restored.messages, restored.adopted, restored.lost_lines) == (1, 2, 0)
    with opened(path, clock) as store:
        assert store.adopted == 0
        assert dump(store) == everything
        assert [m.content for m in store.get_all(SCOPE)] == [memory.content]  # the later one was in no backup
        assert_sound(store)
        assert [record.path for record in store.backups()] == [report.path]
        say(store, "goes on")


def test_a_line_that_was_never_committed_comes_back_too(tmp_path):
    path = tmp_path / "memory.db"
    good = backed_up(path, "one")
    die_behind_the_append(path, "accepted last", ManualClock(START))
    remove_database(path)
    assert MemoryStore.restore(good, path, settings=FAST).adopted == 1
    with opened(path) as store:
        assert texts(store) == ["one", "accepted last"]
        assert_sound(store)


def test_the_log_of_the_lost_database_is_set_aside(tmp_path):
    path = tmp_path / "memory.db"
    good = backed_up(path, "one")

    def work() -> None:
        store = opened(path)
        say(store, "in the log")
        os._exit(9)

    assert in_fork(work) == 9
    log = Path(f"{path}-wal").read_bytes()
    assert log
    path.unlink()
    assert MemoryStore.restore(good, path, settings=FAST).adopted == 1
    (aside,) = tmp_path.glob("memory.db-wal.lost-*")
    assert aside.read_bytes() == log
    with opened(path) as store:
        assert texts(store) == ["one", "in the log"]


@pytest.mark.parametrize("how", ["gone", "cut", "cut and grown", "written anew"])
def test_a_day_file_that_is_not_what_the_backup_knew_breaks_nothing(tmp_path, how):
    """``written anew`` is what an erasure leaves: some of the old lines, then new ones, past the old length."""
    clock = ManualClock(START)
    path = tmp_path / "memory.db"
    with opened(path, clock) as store:
        say(store, *(f"before {n}" for n in range(6)))
        store.set_session(SCOPE, "agent:chat:one", title="first title")
        store.set_session(SCOPE, "agent:chat:one", title="second title")
        report = store.backup()
        (file,) = day_files(folder_of(path))
        known = file.read_bytes()
        later = [f"after {n}" for n in range(8)]
        for text in later:
            say(store, text)
        grown = file.read_bytes()[len(known) :]
    remove_database(path)
    lines = known.splitlines(keepends=True)
    if how == "gone":
        file.unlink()
        expected = []
    elif how == "cut":
        file.write_bytes(b"".join(lines[:3]))
        expected = []
    elif how == "cut and grown":
        file.write_bytes(b"".join(lines[:2]) + b"".join(grown.splitlines(keepends=True)[:1]))
        expected = later[:1]
    else:
        file.write_bytes(b"".join([lines[0], *lines[-2:-1]]) + grown)
        assert file.stat().st_size > len(known)
        expected = later
    restored = MemoryStore.restore(report.path, path, settings=FAST)
    with opened(path, clock) as store:
        say(store, "the next write")
        assert texts(store) == [*(f"before {n}" for n in range(6)), *expected, "the next write"]
        assert [s.title for s in store.sessions(SCOPE)] == ["second title"]
        assert store.doctor().ok
    assert (restored.messages, restored.lost_lines) == (6, 0)
    with opened(path, clock) as store:
        assert store.adopted == 0
        assert_sound(store)


def test_lines_that_only_a_later_backup_holds_are_counted(tmp_path):
    clock = ManualClock(START)
    path = tmp_path / "memory.db"
    with opened(path, clock) as store:
        say(store, "one")
        early = store.backup().path
        clock.advance(DAY)
        say(store, "two")
        say(store, "three")
        clock.advance(DAY)
        say(store, "four")
    remove_database(path)
    day_files(folder_of(path))[1].unlink()
    restored = MemoryStore.restore(early, path, settings=FAST)
    assert (restored.adopted, restored.lost_lines) == (1, 2)
    with opened(path, clock) as store:
        assert texts(store) == ["one", "four"]


def test_a_backup_of_an_older_schema_is_brought_up_to_date(tmp_path):
    for version in range(1, newest_version()):
        archive = TESTS / "fixtures" / f"schema-{version}.tar.gz"
        if not archive.exists():
            assert version > 2  # not released yet
            continue
        folder = tmp_path / str(version)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        old = zipped((folder / "memory.db").read_bytes(), tmp_path / f"{version}.gz")
        expected = dump_upgraded(folder)
        restored = MemoryStore.restore(old, tmp_path / f"restored{version}.db", settings=FAST_OF_ANY_ZONE)
        assert restored.schema_version == version
        with MemoryStore(tmp_path / f"restored{version}.db", settings=FAST_OF_ANY_ZONE) as store:
            assert dump(store) == expected
            assert store.backups()[0].path == str(old)
            store.reindex()  # the tokenizer went on since
            assert store.doctor().ok


FAST_OF_ANY_ZONE = Settings(durability="process", reserve_bytes=0)


def dump_upgraded(folder: Path) -> dict:
    with MemoryStore(folder / "memory.db", settings=FAST_OF_ANY_ZONE) as store:
        return dump(store)


def test_a_lost_database_with_backups_is_not_made_anew(tmp_path):
    """Also where no line is left beside it: an empty store would hide that there is something to bring back."""
    path = tmp_path / "memory.db"
    with filled(path, rows=3) as store:
        report = store.backup()
    everything = contents_of(path)
    remove_database(path)
    shutil.rmtree(folder_of(path))
    before = file_hashes(tmp_path)
    with pytest.raises(StoreMissing, match="memstore restore"):
        opened(path)
    assert file_hashes(tmp_path) == before
    MemoryStore.restore(report.path, path, settings=FAST)
    assert contents_of(path) == everything


def test_a_restored_store_reads_and_finds_as_before(tmp_path):
    with filled(tmp_path / "memory.db") as store:
        report = store.backup()
    before = answers_of(tmp_path / "memory.db")
    remove_database(tmp_path / "memory.db")
    MemoryStore.restore(report.path, tmp_path / "memory.db", settings=FAST)
    assert answers_of(tmp_path / "memory.db") == before
    with opened(tmp_path / "memory.db", embedder=HashEmbedder(16)) as store:
        store.record(SCOPE, [Message("user", "and on it goes")], "chat")
        assert store.index().embedded == 1
        assert store.doctor().ok


def test_killed_at_any_moment_a_restore_is_whole_or_not_there(tmp_path):
    path = tmp_path / "memory.db"
    with filled(path, rows=4) as store:
        good = store.backup().path
    rows = contents_of(path)
    remove_database(path)
    whole = absent = 0
    for moment in range(1, 60):
        pid = os.fork()
        if pid == 0:
            seen = 0

            def die(_done: int, _total: int, last: int = moment) -> None:
                nonlocal seen
                seen += 1
                if seen == last:
                    os.kill(os.getpid(), 9)

            real = os.link, os.unlink

            def counted(function):
                def call(*args, **options):
                    die(0, 0)
                    done = function(*args, **options)
                    die(0, 0)
                    return done

                return call

            os.link, os.unlink = map(counted, real)
            try:
                MemoryStore.restore(good, path, settings=FAST, progress=die)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if path.exists():
            whole += 1
            assert contents_of(path) == rows
            remove_database(path)
        else:
            absent += 1
        if code == 0:
            break
    assert code == 0
    assert absent
    assert whole
    MemoryStore.restore(good, path, settings=FAST)
    assert not list(tmp_path.glob(".*"))
