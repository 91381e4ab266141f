"""What a recovery makes of lines as they are found: late, torn, foreign, waiting, too many; and what it holds in memory."""

# ruff: noqa: S311 - seeded chance

import gc
import json
import os
import random
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memstore.collecting import collect, files_of
from memstore.config import Settings
from memstore.fallback import FORMAT_VERSION, day_files, encode, folder_of, read_lines
from memstore.operations import message_operation
from memstore.record import draft
from memstore.session_key import parse_session_key
from memstore.skipped import LISTED
from memstore.storage.sqlite.staging import Staging
from memstore.store import MemoryStore
from memstore.testing import FaultPlan, FaultyFiles, ManualClock
from memstore.times import zone
from memstore.types import Message, Scope
from reliability_support import (
    DAY,
    SCOPE,
    START,
    digest,
    dump,
    findings,
    open_store,
    play,
    remove_database,
    say,
    texts,
)

ROWS = int(os.environ.get("MEMSTORE_TEST_RECOVER_ROWS", "4000"))


@contextmanager
def recovered(path: Path, name: str = "new.db", allowed: tuple[str, ...] = ()):
    """(store, report) of a recovery beside; ``allowed`` are checks of doctor that may find something."""
    out = path.parent / name
    report = MemoryStore.recover(path, out=out, settings=Settings(timezone="UTC"))
    with open_store(out, ManualClock(START)) as store:
        assert store.adopted == 0
        errors = [f for f in store.doctor().findings if f.severity == "error" and f.check not in allowed]
        assert errors == []
        yield store, report


def lines_of(path: Path) -> list[bytes]:
    return [
        line for file in day_files(folder_of(path)) for line in file.read_bytes().splitlines(keepends=True)
    ]


# --- lines that came late ----------------------------------------------------------------------------------


@pytest.mark.parametrize("days_later", [0, 1, 3])
def test_lines_that_the_fallback_was_owed_come_back_in_their_place(tmp_path, days_later):
    """They stand behind lines with higher numbers, perhaps in a later day's file: the number decides."""
    path, clock, plan = tmp_path / "store.db", ManualClock(START), FaultPlan()
    with MemoryStore(path, clock=clock, settings=Settings(timezone="UTC"), files=FaultyFiles(plan)) as store:
        say(store, "one")
        plan.fail("error", operations=["write"], file="*.jsonl", sticky=True)
        for text in ("two", "three"):
            assert store.record(SCOPE, [Message("user", text)], "agent:chat:one").stored == "database"
        store.set_session(SCOPE, "agent:chat:one", title="while it could not be written")
        store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[1].id)
        plan.lift()
        clock.advance(days_later * DAY)
        say(store, "four")
        wanted = dump(store)
    numbers = [line.operation.get("n", 0) for file in day_files(folder_of(path)) for line in read_lines(file)]
    assert len(numbers) > 6
    with recovered(path) as (store, report):
        assert dump(store) == wanted
        assert report.skipped == ()
    files = day_files(folder_of(path))
    shuffled = lines_of(path)
    random.Random(1).shuffle(shuffled)
    files[0].write_bytes(b"".join(shuffled))
    for file in files[1:]:
        file.unlink()
    with recovered(path, "again.db") as (store, _):
        assert dump(store) == wanted


# --- calls that wait ---------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path):
    """Another connection holds the write lock."""
    with open_store(path) as holder, holder._storage.write():
        yield


def accept(path: Path, clock: ManualClock, *texts_: str, **options: object) -> list[str]:
    """Say something while the database is locked."""
    with open_store(path, clock, busy_timeout_s=0.05) as store, locked(path):
        ids = []
        for text in texts_:
            receipt = store.record(SCOPE, [Message("user", text)], "agent:chat:one", **options)
            assert receipt.stored == "fallback"
            ids += receipt.ids
        return ids


def test_calls_that_waited_when_the_database_was_lost_come_last(tmp_path):
    path, clock = tmp_path / "store.db", ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "one")
    ids = accept(path, clock, "two", "three")
    remove_database(path)
    report = MemoryStore.recover(path)
    assert report.messages == 3
    with open_store(path, clock) as store:
        assert store.adopted == 0
        assert texts(store) == ["one", "two", "three"]
        assert [m.id for m in store.messages(SCOPE, "agent:chat:one")][1:] == ids
        assert findings(store) == []
        say(store, "four")
        wanted = dump(store)
    with recovered(path) as (store, report):  # by now they have lines of their own
        assert dump(store) == wanted
        assert report.messages == 4


def test_calls_that_were_settled_are_not_taken_up_twice(tmp_path):
    path, clock = tmp_path / "store.db", ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "one")
    accept(path, clock, "two")
    with open_store(path, clock) as store:
        assert store.adopted == 1
        say(store, "three")
        wanted = dump(store)
    operations = Counter(line.operation["op"] for f in day_files(folder_of(path)) for line in read_lines(f))
    assert (operations["pending"], operations["settled"]) == (1, 1)
    with recovered(path) as (store, _):
        assert dump(store) == wanted
    kept = [line for line in lines_of(path) if b'"op":"settled"' not in line]
    day_files(folder_of(path))[0].write_bytes(b"".join(kept))
    with recovered(path, "again.db") as (
        store,
        _,
    ):  # its rows are there, whatever became of the line that says so
        assert dump(store) == wanted


# --- calls that were cut short -----------------------------------------------------------------------------


def three_calls(path: Path) -> tuple[Path, list[bytes]]:
    """A store whose calls have one, four and one message: (day file, its lines); the database is removed."""
    with open_store(path, ManualClock(START)) as store:
        say(store, "first")
        say(store, "a", "b", "c", "d")
        say(store, "last")
    remove_database(path)
    file = day_files(folder_of(path))[0]
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 7
    return file, lines


@pytest.mark.parametrize("kept", [3, 4, 5])
def test_of_a_call_that_a_crash_cut_short_nothing_comes_back(tmp_path, kept):
    file, lines = three_calls(tmp_path / "store.db")
    file.write_bytes(b"".join(lines[:kept]) + lines[kept][:40])
    with recovered(tmp_path / "store.db") as (store, report):
        assert texts(store) == ["first"]
        say(store, "later")
        wanted = dump(store)
    torn = [s.line for s in report.skipped if "cut short" in s.reason]
    assert torn == list(range(3, kept + 1))
    assert report.skipped_lines == len(torn) + 1
    with recovered(tmp_path / "new.db", "again.db") as (store, _):  # lines behind it do not make it whole
        assert dump(store) == wanted


def test_a_void_line_says_so_too(tmp_path):
    path = tmp_path / "store.db"
    file, lines = three_calls(path)
    MemoryStore.recover(path)
    with open_store(path, ManualClock(START)) as store, store._storage.write() as tx:  # it contains "first"
        tx.set_fallback_mark(file.stem, len(b"".join(lines[:2])), None)
        tx._run("DELETE FROM messages WHERE pos > 1")
        tx._run("UPDATE sessions SET last_pos = 1")
        tx._run("UPDATE owners SET last_arrival = 1 WHERE user_id IS NOT NULL")
        tx.set_meta("fallback_lines", "1")
    file.write_bytes(b"".join(lines[:5]))
    with open_store(path, ManualClock(START)) as store:
        say(store, "later")
        assert texts(store) == ["first", "later"]
        wanted = dump(store)
    assert any(b'"op":"void"' in line for line in lines_of(path))
    with recovered(path) as (store, _):
        assert dump(store) == wanted


@pytest.mark.parametrize("spoiled", range(2, 6))
def test_damage_in_the_middle_costs_the_lines_that_it_hit(tmp_path, spoiled):
    """The last line of a call included: lines behind it say that the call was complete."""
    file, lines = three_calls(tmp_path / "store.db")
    lines[spoiled] = lines[spoiled].replace(b'"', b"'", 1)
    file.write_bytes(b"".join(lines))
    with recovered(tmp_path / "store.db") as (store, report):
        assert texts(store) == [
            t for n, t in enumerate(("first", "a", "b", "c", "d", "last"), 1) if n != spoiled
        ]
    assert [s.line for s in report.skipped] == [spoiled + 1]


def test_a_file_cut_at_each_of_its_last_two_thousand_offsets(tmp_path):
    """N: 2,000 offsets, read and sorted out; 8 of them rebuilt. Each costs the cut line alone."""
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START), durability="process") as store:
        for number in range(8):
            say(store, f"message {number} 消息")
        wanted = [row["id"] for row in dump(store)["messages"]]
    file = day_files(folder_of(path))[0]
    whole = file.read_bytes()
    ends = [n for n, byte in enumerate(whole) if byte == ord("\n")]
    offsets = range(len(whole) - 2_000, len(whole))
    assert offsets.start > 0
    for offset in offsets:
        file.write_bytes(whole[:offset])
        complete = sum(end <= offset for end in ends)  # only the end of line lost: the line is whole
        with Staging() as staging, files_of(folder_of(path)) as files:
            found = collect(staging, files)
            (owner,) = staging.owners()
            ids = [found.operation(event)["id"] for event in staging.events(owner)]
        assert ids == wanted[: complete - 1]
        assert found.skipped.count == int(offset not in ends and offset - 1 not in ends)
        if offset % 250 == 0:
            with recovered(path, f"{offset}.db") as (store, report):
                assert [row["id"] for row in dump(store)["messages"]] == ids
                assert report.messages == len(ids)


# --- lines of others ---------------------------------------------------------------------------------------


def test_a_day_file_of_another_store_is_left_out(tmp_path):
    """Also where it comes first, and where its lines were added to one of ours."""
    path, other = tmp_path / "store.db", tmp_path / "other.db"
    wanted = play(path, seed=21, steps=60)
    play(other, seed=22, steps=30, days=1)
    theirs = day_files(folder_of(other))[0].read_bytes()
    ours = day_files(folder_of(path))
    (folder_of(path) / "2020-01-01.jsonl").write_bytes(theirs)
    with ours[1].open("ab") as file:
        file.write(theirs)
    with recovered(path) as (store, report):
        assert dump(store) == wanted
    foreign = theirs.count(b"\n")
    assert report.skipped_lines == 2 * foreign
    assert all("another store" in s.reason for s in report.skipped)
    assert {Path(s.file).name for s in report.skipped} == {"2020-01-01.jsonl", ours[1].name}


@pytest.mark.parametrize(
    "members", [{"pos": "1"}, {"arrival": None}, {"created_at": 1.5}, {"recorded_at": [1]}, {"trust": True}]
)
def test_a_sound_line_with_a_member_of_the_wrong_kind_is_named(tmp_path, members):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        say(store, "kept")
    file = day_files(folder_of(path))[0]
    with file.open("ab") as stream:
        line = list(read_lines(file))[-1].operation
        stream.write(encode({**line, "id": "01K00000000000000000000000", "n": 9, **members}))
    with recovered(path, allowed=("fallback",)) as (store, report):
        assert texts(store) == ["kept"]
    (name,) = members
    assert [(s.line, name in s.reason) for s in report.skipped] == [(3, True)]


def test_of_very_many_unusable_lines_all_are_counted_and_the_first_named(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        say(store, "kept")
    with day_files(folder_of(path))[0].open("ab") as file:
        file.write(b"garbage\n" * (3 * LISTED))
    with recovered(path) as (store, report):
        assert texts(store) == ["kept"]
    assert report.skipped_lines == 3 * LISTED
    assert [s.line for s in report.skipped] == list(range(3, 3 + LISTED))


# --- many rows ---------------------------------------------------------------------------------------------


def write_fallback(path: Path, rows: int, seed: int = 1) -> dict[str, list]:
    """Day files as rows that came one by one from 40 users over four days leave them, without the database; returns
    the rows' ids by session."""
    rng, clock, utc = random.Random(seed), ManualClock(START), zone("UTC")
    folder_of(path).mkdir(exist_ok=True)
    pos, arrival, ids = Counter(), Counter(), {}
    for number in range(1, rows + 1):
        if number % max(1, rows // 4) == 1:
            clock.advance(DAY)
            day = folder_of(path) / f"{clock.now():%Y-%m-%d}.jsonl"
            first = {"op": "store", "store_id": "01K00000000000000000000000", "timezone": "UTC"}
            day.write_bytes(encode(first))
            stream = day.open("ab")
        user, chat = f"user {rng.randrange(40)}", rng.randrange(3)
        scope, key = Scope("team", user, "agent"), parse_session_key(f"agent:chat:{chat}", "agent")
        row = draft(Message(rng.choice(("user", "assistant")), f"row {number % 50}"), scope, key, clock, utc)
        row = getattr(row, "row", row)
        pos[user, chat] += 1
        arrival[user] += 1
        row = replace(row, pos=pos[user, chat], arrival=arrival[user])
        stream.write(encode({"n": number, **message_operation(row)}))
        if number % max(1, rows // 4) == 0 or number == rows:
            stream.close()
        ids.setdefault(f"{user} {row.session}", []).append(row.id)
    return ids


def test_many_rows_of_users_in_turns_come_back_twice_the_same(tmp_path):
    """N: 4,000 rows, 100,000 by MEMSTORE_TEST_RECOVER_ROWS=100000; with lines doubled, moved and spoiled."""
    path = tmp_path / "store.db"
    wanted = write_fallback(path, ROWS)
    rng = random.Random(3)
    spoiled = 0
    for file in day_files(folder_of(path)):
        lines = file.read_bytes().splitlines(keepends=True)
        lines += rng.sample(lines[1:], len(lines) // 10)
        rng.shuffle(lines)
        for _ in range(7):
            lines.insert(rng.randrange(len(lines)), b'{"crc":"00000000","v":1}\n')
            spoiled += 1
        file.write_bytes(b"".join(lines))
    told = []
    report = MemoryStore.recover(path, out=tmp_path / "one.db", progress=lambda *step: told.append(step))
    assert (report.messages, report.skipped_lines) == (ROWS, spoiled)
    assert report.duplicates >= ROWS // 10 - 4
    assert told == sorted(told)
    assert told[-1] == (ROWS, ROWS)
    assert len(told) >= ROWS // 2_500
    with open_store(tmp_path / "one.db", ManualClock(START)) as store:
        found: dict[str, list] = {}
        for row in dump(store)["messages"]:
            found.setdefault(f"{row['user_id']} {row['session']}", []).append(row["id"])
        assert found == wanted
        one = digest(store)
        slots = rows_by_slot(store)
    assert slots == sorted(slots)  # as a user's rows came: what is asked for newest first relies on it
    MemoryStore.recover(path, out=tmp_path / "two.db")
    with open_store(tmp_path / "two.db", ManualClock(START)) as store:
        assert digest(store) == one


def rows_by_slot(store: MemoryStore) -> list[tuple]:
    with store._storage.read() as reader:
        rows = reader._rows("SELECT slot >> 32, arrival FROM messages ORDER BY slot")
    return [tuple(row) for row in rows]


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    """Python's own; SQLite's caches have limits. N: 600 and 2,400 rows in transactions of 200."""
    monkeypatch.setattr("memstore.recovery.BATCH_ROWS", 200)

    def peak(rows: int) -> int:
        path = tmp_path / f"{rows}.db"
        write_fallback(path, rows)
        tracemalloc.start()
        try:
            report = MemoryStore.recover(path, progress=lambda *_: gc.collect())
            assert report.messages == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # what is loaded once
    small, large = peak(600), peak(2_400)
    assert large - small < 200_000  # of 1,800 rows more, which were 3 MB when all were held


def test_words_are_cut_once_and_not_for_what_is_deleted(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START), durability="process") as store:
        for number in range(5):
            say(store, *(f"row {number} {n}" for n in range(40)))
        say(store, "of another", scope=Scope("team", "bob", "agent"))
        store.delete_all(SCOPE)
        wanted = dump(store)
    cut = []
    monkeypatch.setattr("memstore.recovery.spoken", lambda row: cut.append(row.id) or spoken_of(row))
    with recovered(path) as (store, _):
        assert dump(store) == wanted
    assert cut == [row["id"] for row in wanted["messages"] if row["state"] == "live"]
    assert len(cut) == 1


def spoken_of(row):
    from memstore.sessions import spoken

    return spoken(row)


def test_the_format_is_the_one_that_these_tests_write():
    assert FORMAT_VERSION == 1
    assert json.loads(encode({"op": "settled", "team_id": "t", "id": "x"}))["v"] == FORMAT_VERSION
