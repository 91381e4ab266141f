"""Day files go only where a backup that is there, and is what was verified, holds them whole."""

# ruff: noqa: S311 - seeded chance

import os
import random
import re
import shutil
from pathlib import Path

import pytest

from backup_support import FAST, in_moments, opened, start
from cli_support import Cli
from memstore import MemoryStore, Settings
from memstore.errors import InvalidInput, StoreMissing
from memstore.fallback import day_files, folder_of
from memstore.retention import BEYOND, CHANGED_BACKUP, NO_BACKUP
from memstore.testing import ManualClock
from reliability_support import (
    DAY,
    SCOPE,
    START,
    assert_sound,
    die_behind_the_append,
    dump,
    dump_of,
    remove_database,
    say,
    texts,
)

KILLS = os.environ.get("MEMSTORE_TEST_PRUNE_KILLS") or "15"  # N; the long form is "all" moments of a prune


def days_of(path: Path) -> list[str]:
    return [file.stem for file in day_files(folder_of(path))]


def kept(report) -> list[tuple[str, str]]:
    return [(day.day, day.reason) for day in report.kept]


def marks_of(store: MemoryStore) -> list[str]:
    with store._storage.read() as reader:
        return sorted(reader.fallback_marks())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def four_days(tmp_path, clock) -> Path:
    """A store with messages on four days, the last one today."""
    path = tmp_path / "memory.db"
    with opened(path, clock) as store:
        for number in range(4):
            if number:
                clock.advance(DAY)
            say(store, f"day {number} first", f"day {number} second")
            store.set_session(SCOPE, "agent:chat:one", title=f"title {number}")
    return path


DAYS = ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]


def test_without_a_backup_every_day_stays(four_days, clock):
    with opened(four_days, clock) as store:
        report = store.prune_fallback(0)
        assert (report.removed, report.freed_bytes) == ((), 0)
        assert kept(report) == [(day, NO_BACKUP) for day in DAYS[:3]]
    assert days_of(four_days) == DAYS


def test_with_one_the_old_days_go_and_today_stays(four_days, clock):
    with opened(four_days, clock) as store:
        store.backup()
        sizes = {day.day: day.bytes for day in store.fallback_days()}
        report = store.prune_fallback(1)
        assert report.removed == tuple(DAYS[:2])
        assert report.freed_bytes == sizes[DAYS[0]] + sizes[DAYS[1]]
        assert report.kept == ()
        assert days_of(four_days) == DAYS[2:]
        assert store.prune_fallback(0).removed == (DAYS[2],)
        assert store.prune_fallback(0).removed == ()
        assert days_of(four_days) == DAYS[3:]
        assert store.doctor().ok
        say(store, "goes on")
        everything = dump(store)
    with opened(four_days, clock) as store:
        assert store.adopted == 0
        assert dump(store) == everything
        assert [f.message for f in store.doctor().findings if f.severity != "info"] == []


def test_the_listing_says_what_is_held(four_days, clock):
    with opened(four_days, clock) as store:
        backup = store.backup().path
        say(store, "later today")
        found = store.fallback_days()
        assert [day.day for day in found] == DAYS
        assert [day.lines for day in found] == [4, 4, 4, 5]
        assert [day.bytes for day in found] == [
            file.stat().st_size for file in day_files(folder_of(four_days))
        ]
        assert [day.backup for day in found] == [backup] * 3 + [None]
        assert all(day.contained for day in found)
    die_behind_the_append(four_days, "never committed", clock)
    with opened(four_days, clock) as store:
        assert all(day.contained for day in store.fallback_days())  # adopted at opening


def test_recover_lacks_pruned_days_and_restore_brings_everything(four_days, clock, tmp_path):
    with opened(four_days, clock) as store:
        store.add(SCOPE, "a memory")
        backup = store.backup().path
        assert len(store.prune_fallback(0).removed) == 3
        say(store, "after the backup")
        everything = dump(store)
    remove_database(four_days)
    MemoryStore.recover(four_days, tmp_path / "recovered.db", settings=Settings(timezone="UTC"))
    with opened(tmp_path / "recovered.db", clock) as store:
        assert texts(store) == ["day 3 first", "day 3 second", "after the backup"]
    with pytest.raises(StoreMissing, match="memstore restore"):
        opened(four_days, clock)
    restored = MemoryStore.restore(backup, four_days, settings=FAST)
    assert (restored.adopted, restored.lost_lines) == (1, 0)
    with opened(four_days, clock) as store:
        assert dump(store) == everything
        assert [m.content for m in store.get_all(SCOPE)] == ["a memory"]
        assert [f.message for f in store.doctor().findings if f.severity != "info"] == []
        say(store, "goes on")
        assert len(texts(store)) == 10


@pytest.mark.parametrize("what", ["gone", "cut", "flipped", "another"])
def test_a_backup_that_is_not_what_was_verified_does_not_count(four_days, clock, what):
    with opened(four_days, clock) as store:
        file = Path(store.backup().path)
        data = file.read_bytes()
        if what == "gone":
            file.unlink()
        elif what == "cut":
            file.write_bytes(data[:-1])
        elif what == "flipped":
            file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        else:
            file.write_bytes(random.Random(1).randbytes(len(data)))
        assert kept(store.prune_fallback(0)) == [(day, CHANGED_BACKUP) for day in DAYS[:3]]
        assert days_of(four_days) == DAYS
        file.write_bytes(data)
        assert store.prune_fallback(0).removed == tuple(DAYS[:3])


def test_an_older_sound_backup_counts_where_it_holds_the_day(four_days, clock):
    with opened(four_days, clock) as store:
        store.backup()
        clock.advance(DAY)
        say(store, "the fifth day")
        clock.advance(DAY)
        Path(store.backup().path).write_bytes(b"damaged")
        report = store.prune_fallback(0)
        assert report.removed == tuple(DAYS)
        assert kept(report) == [("2026-03-05", CHANGED_BACKUP)]


def test_a_day_that_grew_behind_the_backup_stays(four_days, clock):
    with opened(four_days, clock) as store:
        store.backup()
        say(store, "later that day")
        clock.advance(DAY)
        report = store.prune_fallback(0)
        assert report.removed == tuple(DAYS[:3])
        assert kept(report) == [(DAYS[3], NO_BACKUP)]


def test_a_day_with_lines_that_are_not_in_the_database_stays(four_days, clock):
    with opened(four_days, clock) as store:
        clock.advance(DAY)
        said = "tomorrow's, never committed"
        child = start("child_die_behind_the_append", four_days, said, clock.now().isoformat())
        child.communicate(timeout=60)
        assert child.returncode == 9
        store.backup()
        clock.advance(DAY)
        with store._storage.write() as tx:  # a backup that claims more than there is does not help
            (row,) = tx.backups()
            tx.put_backup(row, {**tx.backup_days(row.number), "2026-03-05": 10**9})
        report = store.prune_fallback(0)
        assert report.removed == tuple(DAYS)
        assert kept(report) == [("2026-03-05", BEYOND)]
        say(store, "this one adopts it")
        assert texts(store)[-2:] == ["tomorrow's, never committed", "this one adopts it"]


def test_a_new_file_of_a_pruned_day_begins_from_nothing(four_days, clock):
    """A clock set back: what is said then belongs to a day whose file is gone. Its lines are as safe as any."""
    with opened(four_days, clock) as store:
        store.backup()
        assert store.prune_fallback(0).removed == tuple(DAYS[:3])
    clock.set(START)
    die_behind_the_append(four_days, "said on a day that was pruned", clock)
    with opened(four_days, clock) as store:
        assert store.adopted == 1
        assert texts(store)[-1] == "said on a day that was pruned"
        clock.advance(10 * DAY)
        assert (DAYS[0], NO_BACKUP) in kept(
            store.prune_fallback(0)
        )  # the old backup held another file of that day
        assert DAYS[0] in days_of(four_days)
        store.backup()
        assert DAYS[0] in store.prune_fallback(0).removed


def test_a_file_that_somebody_removed_is_forgotten(four_days, clock):
    with opened(four_days, clock) as store:
        day_files(folder_of(four_days))[0].unlink()
        store.prune_fallback(0)
        assert marks_of(store) == DAYS[1:]


def test_a_prune_killed_at_any_moment_loses_and_doubles_nothing(four_days, clock, tmp_path):
    with opened(four_days, clock) as store:
        backup = store.backup().path
        everything = dump(store)
    saved = tmp_path / "saved"
    shutil.copytree(folder_of(four_days), saved)

    def work(store, moments) -> None:
        store._clock.set(clock.now())
        store.prune_fallback(0)

    def again() -> None:
        """The day files and the database of before."""
        remove_database(four_days)
        shutil.rmtree(folder_of(four_days))
        shutil.copytree(saved, folder_of(four_days))
        MemoryStore.restore(backup, four_days, settings=FAST)

    again()
    total = in_moments(four_days, 0, work)
    assert total > 5
    every = range(1, total + 1)
    chosen = every if KILLS == "all" else sorted(random.Random(4).sample(every, min(int(KILLS), total)))
    for moment in chosen:
        again()
        in_moments(four_days, moment, work)
        with opened(four_days, clock) as store:
            assert store.adopted == 0
            assert dump(store) == everything
            store.prune_fallback(0)
            assert days_of(four_days) == DAYS[3:]
            assert dump(store) == everything
            assert [f.message for f in store.doctor().findings if f.severity != "info"] == []
            assert marks_of(store) == DAYS[3:]


def test_a_writer_that_waits_for_the_file_begins_a_new_one(four_days, clock):
    """The lock of a day file is on the file, not on its name."""
    with opened(four_days, clock) as store, opened(four_days, ManualClock(START)) as behind:
        store.backup()
        assert store.prune_fallback(0).removed == tuple(DAYS[:3])
        say(behind, "from a clock that is behind")
        assert days_of(four_days) == [DAYS[0], DAYS[3]]
        assert_sound(store)


@pytest.mark.parametrize("days", [-1, 1.5, True, "90", None, 10**9])
def test_what_is_no_number_of_days_is_refused(four_days, clock, days):
    with opened(four_days, clock) as store, pytest.raises(InvalidInput, match="older_than_days"):
        store.prune_fallback(days)


def test_many_days_reach_back_before_all_there_are(four_days, clock):
    with opened(four_days, clock) as store:
        store.backup()
        assert store.prune_fallback(365_000).removed == ()


def test_the_day_is_that_of_the_stores_zone(tmp_path):
    clock = ManualClock(START.replace(hour=20))  # the second of March in Shanghai
    settings = Settings(timezone="Asia/Shanghai", durability="process", reserve_bytes=0)
    with opened(tmp_path / "memory.db", clock, settings=settings) as store:
        say(store, "in the night")
        store.backup()
        clock.advance(6 * 3600)
        assert store.prune_fallback(0).removed == ()
        clock.advance(15 * 3600)
        assert store.prune_fallback(0).removed == ("2026-03-02",)


# --- on the command line -------------------------------------------------------------------------------------------


def test_the_commands_go_together(tmp_path):
    memstore = Cli(tmp_path / "memory.db")
    memstore.answer("init", "--timezone", "UTC")
    assert "no backups yet" in memstore.shown("backups")
    memstore.answer("record", "会议改到周四下午", "--session", "chat")
    memstore.answer("add", "likes rain")
    made = memstore.answer("backup", "--keep", "2")
    assert (made["messages"], made["memories"], made["removed"]) == (1, 1, [])
    (listed,) = memstore.answer("backups")["backups"]
    assert (listed["path"], listed["present"]) == (made["path"], True)
    assert Path(made["path"]).name in memstore.shown("backups")
    (day,) = memstore.answer("fallback")["days"]
    assert (day["contained"], day["backup"]) == (True, made["path"])
    assert day["day"] in memstore.shown("fallback", "list")
    assert memstore.answer("fallback", "prune", "--older-than", "90d") == {
        "removed": [], "freed_bytes": 0, "kept": [],
    }  # fmt: skip
    assert "removed 0 day files" in memstore.shown("fallback", "prune", "--older-than", "1w")
    assert memstore.answer("vacuum")["pending"] is False
    assert "MB now" in memstore.shown("compact")
    remove_database(tmp_path / "memory.db")
    missing = memstore("recall", "rain")
    assert missing.exit_code == 1
    assert f"memstore restore {made['path']} --db" in missing.stderr
    restored = memstore.answer("restore", made["path"])
    assert (restored["messages"], restored["memories"], restored["adopted"]) == (1, 1, 0)
    assert memstore.answer("recall", "rain")["hits"][0]["content"] == "likes rain"
    assert memstore("doctor").exit_code == 0
    again = memstore("restore", made["path"])
    assert again.exit_code == 1
    assert "never written over" in again.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("fallback", "prune"), "--older-than"),
        (("fallback", "list", "--older-than", "3d"), "list takes no"),
        (("fallback", "prune", "--older-than", "soon"), "90d or 12w"),
        (("fallback", "prune", "--older-than", "-3d"), "90d or 12w"),
        (("backup", "--keep", "0"), "--keep"),
        (("restore",), "BACKUP"),
    ],
)
def test_wrong_use_is_named(tmp_path, args, said):
    memstore = Cli(tmp_path / "memory.db")
    memstore.answer("init")
    result = memstore(*args)
    assert result.exit_code == 2
    assert re.search(re.escape(said), result.stderr)


def test_a_damaged_backup_on_the_command_line(tmp_path):
    memstore = Cli(tmp_path / "other.db")
    (tmp_path / "bad.gz").write_bytes(b"no gzip")
    result = memstore("restore", str(tmp_path / "bad.gz"))
    assert result.exit_code == 1
    assert "bad.gz is no backup" in result.stderr
    assert not (tmp_path / "other.db").exists()


def test_dumps_agree_after_everything(four_days, clock, tmp_path):
    with opened(four_days, clock) as store:
        report = store.backup(tmp_path / "one.gz")
        store.prune_fallback(0)
        store.compact()
    MemoryStore.restore(report.path, tmp_path / "other.db", settings=FAST)
    assert dump_of(tmp_path / "other.db") == dump_of(four_days)
