"""The daily JSONL fallback: lines, torn and short writes, days, and whose files they are."""

# ruff: noqa: S311 - seeded chance

import fcntl
import json
import os
import random
import resource
import zlib
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import FallbackError, InvalidText
from memstore.fallback import Fallback, Line, day_files, decode, encode, folder_of, holds_lines, read_lines
from memstore.files import SystemFiles
from memstore.storage.rows import MessageRow
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import (
    SCOPE,
    START,
    assert_comes_back,
    assert_sound,
    die_behind_the_append,
    dump,
    file_hashes,
    findings,
    finish_child,
    lines_of,
    message_lines,
    open_store,
    report_of,
    say,
    start_child,
    texts,
)

DELETE = {"op": "delete", "team_id": "t", "ids": ["x"], "at": 1}


def a_fallback(folder: Path, *, durable: bool = False, header: dict | None = None) -> Fallback:
    return Fallback(folder / "store.db", ZoneInfo("UTC"), durable=durable, header=header)


def delete(name: str) -> dict:
    return {**DELETE, "ids": [name]}


def names(found: list[Line]) -> list[str]:
    return [line.operation["ids"][0] for line in found if line.operation is not None]


# --- lines ------------------------------------------------------------------------------------------------


def test_a_line_is_one_json_object_whose_checksum_is_of_the_rest():
    line = encode({"op": "delete", "team_id": "队", "ids": ["a\nb"], "at": 1})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    value = json.loads(line)
    assert list(value)[:3] == ["crc", "v", "op"]
    assert value["crc"] == f"{zlib.crc32(line[18:-1]):08x}"
    assert "队".encode() in line, "text stays readable"
    assert decode(line[:-1]) == {"op": "delete", "team_id": "队", "ids": ["a\nb"], "at": 1}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcdefg"), JSON))
def test_what_is_encoded_is_decoded(values):
    operation = {**DELETE, **values}
    line = encode(operation)
    assert line.find(b"\n") == len(line) - 1
    assert decode(line[:-1]) == operation


@given(st.data())
def test_a_changed_line_is_noticed(data):
    line = bytearray(encode({**DELETE, "ids": ["银行卡", "x"]})[:-1])
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((ValueError, KeyError)):
        decode(bytes(line))


@given(st.binary(max_size=60))
def test_other_bytes_are_no_line(junk):
    with pytest.raises(ValueError, match="checksum"):
        decode(junk)


@pytest.mark.parametrize(
    "text", ["\u2028", "\u2029", "\x85", "\r", "\r\n", "\n", "\x0b\x0c\x1c\x1d\x1e", "\x00", "\ufeff"]
)
def test_separators_inside_text_do_not_cut_lines(tmp_path, text):
    fallback = a_fallback(tmp_path)
    fallback.append("2026-01-01", [delete(f"a{text}b"), delete("second")])
    assert names(list(fallback.read("2026-01-01"))) == [f"a{text}b", "second"]


def test_a_lone_surrogate_is_refused_before_anything_is_written(tmp_path):
    fallback = a_fallback(tmp_path)
    with pytest.raises(InvalidText, match="U\\+D800"):
        fallback.append("2026-01-01", [delete("fine"), delete("\ud800")])
    assert not fallback.folder.exists()


@pytest.mark.parametrize(("change", "fault"), [
    ({"op": "something"}, "newer memstore"),
    ({"op": "delete", "v": 2}, "newer memstore"),
    ({"op": "delete"}, "lacks team_id, ids, at"),
    ({"op": "message", "team_id": "t"}, "lacks user_id, session"),
    ({"op": "live", "change": "fork", "team_id": "t", "user_id": "u", "session": "s"}, "lacks fork, from_pos"),
])  # fmt: skip
def test_a_sound_line_that_cannot_be_used_says_why(change, fault):
    with pytest.raises(ValueError, match=fault):
        decode(encode(change)[:-1])


def test_offsets_are_those_of_the_file(tmp_path):
    fallback = a_fallback(tmp_path)
    ends = [fallback.append("2026-01-01", [delete(f"n{n}")]) for n in range(20)]
    assert [where.start for where in ends] == [0, *(where.end for where in ends[:-1])]
    lines = list(fallback.read("2026-01-01"))
    assert [(line.number, line.end) for line in lines] == [(n + 1, end) for n, (_, end, _) in enumerate(ends)]
    for n, (start, _, _) in enumerate(ends):
        assert names(list(fallback.read("2026-01-01", start))) == [f"n{m}" for m in range(n, 20)]
    assert fallback.size("2026-01-01") == ends[-1][1]


def test_each_day_file_begins_with_the_store_it_belongs_to(tmp_path):
    header = {"op": "store", "store_id": "id", "timezone": "UTC"}
    fallback = a_fallback(tmp_path, header=header)
    for day in ("2026-01-01", "2026-01-02"):
        fallback.append(day, [delete("a")])
        fallback.append(day, [delete("b")])
        assert [line.operation["op"] for line in fallback.read(day)] == ["store", "delete", "delete"]
    assert fallback.days() == ["2026-01-01", "2026-01-02"]


def test_only_days_are_day_files(tmp_path):
    fallback = a_fallback(tmp_path)
    assert day_files(fallback.folder) == []
    fallback.append("2026-01-01", [delete("a")])
    for name in (
        "notes.jsonl",
        "2026-01-01.jsonl.bak",
        "2026-01-01.bak.jsonl",
        "x2026-01-01.jsonl",
        "2026-1-1.jsonl",
    ):
        (fallback.folder / name).write_text("x")
    (fallback.folder / "2026-01-02.jsonl").mkdir()
    assert fallback.days() == ["2026-01-01"]


def test_empty_day_files_hold_no_lines(tmp_path):
    fallback = a_fallback(tmp_path)
    assert not holds_lines(tmp_path / "store.db")
    fallback.folder.mkdir()
    (fallback.folder / "2026-01-01.jsonl").touch()
    assert not holds_lines(tmp_path / "store.db")
    fallback.append("2026-01-01", [delete("a")])
    assert holds_lines(tmp_path / "store.db")


# --- torn tails -------------------------------------------------------------------------------------------


def test_a_file_cut_at_every_offset_loses_the_cut_line_alone(tmp_path):
    """N: every byte offset of the last four lines, more than 300."""
    fallback = a_fallback(tmp_path)
    ends = [fallback.append("2026-01-01", [delete(f"记录 {n} \u2028 x")])[1] for n in range(8)]
    whole = fallback.path("2026-01-01").read_bytes()
    offsets = range(ends[3], len(whole) + 1)
    assert len(offsets) > 300
    for offset in offsets:
        fallback.path("2026-01-01").write_bytes(whole[:offset])
        complete = sum(end - 1 <= offset for end in ends)  # only the end of line lost: the line is whole
        expected = [f"记录 {n} \u2028 x" for n in range(complete)]
        lines = list(fallback.read("2026-01-01"))
        assert names(lines) == expected
        torn = offset not in ends and offset + 1 not in ends
        assert sum(line.operation is None for line in lines) == torn
        start, end, _ = fallback.append("2026-01-01", [delete("later")])
        assert start == offset
        lines = list(fallback.read("2026-01-01"))
        assert names(lines) == [*expected, "later"], "a later line is not merged with the torn one"
        assert sum(line.operation is None for line in lines) == torn
        assert names(list(fallback.read("2026-01-01", start))) == ["later"]
        assert end == fallback.size("2026-01-01")


def test_a_store_whose_last_lines_were_cut_at_every_offset(tmp_path):
    """N: 300 offsets and more. The rows are in the database: none is lost, none doubled, and what is written
    afterwards is found by a recovery."""
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock, durability="process") as store:
        for n in range(4):
            say(store, f"message {n}")
    file = day_files(folder_of(path))[0]
    whole = file.read_bytes()
    last_two = whole[:-1].rfind(b"\n", 0, whole[:-1].rfind(b"\n")) + 1
    offsets = range(last_two, len(whole))
    assert len(offsets) > 300
    with open_store(path, clock, durability="process") as store:
        expected = [f"message {n}" for n in range(4)]
        for offset in offsets:
            file.write_bytes(whole[:offset])
            say(store, f"after {offset}")
            expected.append(f"after {offset}")
            last = list(read_lines(file))[-1]
            assert last.operation is not None
            assert json.loads(last.operation["content"]) == f"after {offset}"
        assert texts(store) == expected
        assert all(check == "fallback" for check, _, _ in findings(store))
        assert store.doctor().ok, "the fallback lacks lines, which is a warning"


def test_a_last_line_without_its_end_is_not_merged_with_the_next(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first", "second")
        file = day_files(folder_of(path))[0]
        os.truncate(file, file.stat().st_size - 1)
        say(store, "third")
        assert b"}{" not in file.read_bytes()
        # the line is whole but for its end, which the next write gave it
        assert [row["content"] for row in message_lines(path)] == ['"first"', '"second"', '"third"']
        assert_sound(store)


def test_a_left_line_that_lost_its_end_of_line_alone_is_adopted(tmp_path):
    """Otherwise the next write would give it its end, and it would be a line without a row."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
    die_behind_the_append(path, "left")
    file = day_files(folder_of(path))[0]
    os.truncate(file, file.stat().st_size - 1)
    with open_store(path) as store:
        assert store.adopted == 1
        say(store, "second")
        assert texts(store) == ["first", "left", "second"]
        assert_sound(store)


def test_garbage_at_the_end_is_looked_at_once(tmp_path, caplog):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
    file = day_files(folder_of(path))[0]
    with file.open("ab") as out:
        out.write(b"garbage\n\n\nand a torn en")
    for _ in range(2):
        with open_store(path, clock) as store:
            assert store.adopted == 0
            assert texts(store) == ["first"]
    assert sum("skipped" in record.message for record in caplog.records) == 2, "two bad lines, once"
    with open_store(path, clock) as store:
        say(store, "second")
        assert texts(store) == ["first", "second"]
        assert [f for f in findings(store) if f[0] != "fallback"] == []
        assert sum("line" in message for _, _, message in findings(store)) == 2


# --- short writes -----------------------------------------------------------------------------------------


def with_file_limit(limit: int):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("room", [0, 1, 100, 300])
def test_a_short_write_leaves_nothing_and_the_database_keeps_the_line(tmp_path, room):
    """A limit on file sizes cuts the write as a full disk would; SIGXFSZ is ignored by Python."""
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
    file = day_files(folder_of(path))[0]
    with file.open("ab") as out:  # larger than database and WAL, so that the limit meets this file alone
        out.write((b"x" * 1023 + b"\n") * 4096)
    before = file.stat().st_size

    def work(report) -> None:
        with open_store(path, clock) as store:
            lift = with_file_limit(before + room)
            for number in range(3):
                receipt = store.record(SCOPE, [Message("user", f"kept {number}")], "agent:chat:one")
                report([receipt.stored, file.stat().st_size - before])
            lift()
            report(store.record(SCOPE, [Message("user", "last")], "agent:chat:one").stored)
            report(texts(store))

    code, (*during, stored, after) = report_of(work)
    assert code == 0
    assert during == [["database", 0]] * 3, "nothing of a cut line stays"
    assert stored == "both"
    assert after == ["first", "kept 0", "kept 1", "kept 2", "last"]
    with open_store(path, clock) as store:
        assert store.adopted == 0
        assert texts(store) == after
        rows = dump(store)
        told = [line.operation["op"] for line in lines_of(path) if line.operation]
        assert told == ["store", "message", *["message", "placed"] * 3, "message"], (
            "told later, in their order"
        )
    assert_comes_back(path, rows, clock)


def test_while_the_fallback_cannot_be_written_the_database_keeps_its_lines(tmp_path, caplog):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        folder_of(path).write_text("a file where the folder should be")
        assert store.record(SCOPE, [Message("user", "one")], "chat").stored == "database"
        history = [Message("user", "one"), Message("assistant", "two")]
        assert store.record(SCOPE, history, "chat", transcript=True).stored == "database"
        store.clear_session(SCOPE, "chat")
        assert "the database keeps what the fallback could not take" in caplog.text
        assert texts(store, "chat") == ["one", "two"]
    with open_store(path) as store:  # opening does not need it either
        assert store.record(SCOPE, [Message("user", "three")], "chat").stored == "database"
        folder_of(path).unlink()
        assert store.record(SCOPE, [Message("user", "four")], "chat").stored == "both"
        assert texts(store, "chat") == ["one", "two", "three", "four"]
        assert_sound(store)
        rows = dump(store)
    assert_comes_back(path, rows)


def test_what_the_fallback_is_owed_is_appended_at_opening(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        folder_of(path).write_text("a file where the folder should be")
        ids = say(store, "one", "two")
    folder_of(path).unlink()
    with open_store(path) as store:
        assert [line["id"] for line in message_lines(path)] == ids
        assert_sound(store)


def test_a_sync_that_fails_on_a_new_file_leaves_it_empty(tmp_path, monkeypatch):
    fallback = a_fallback(tmp_path, durable=True, header={"op": "store", "store_id": "x", "timezone": "UTC"})

    def failing(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SystemFiles, "_sync_data", staticmethod(failing))
    with pytest.raises(FallbackError, match="Input/output error"):
        fallback.append("2026-01-01", [delete("a")])
    assert fallback.size("2026-01-01") == 0
    monkeypatch.undo()
    fallback.append("2026-01-01", [delete("b")])
    assert [line.operation["op"] for line in fallback.read("2026-01-01")] == ["store", "delete"]


def test_withdrawing_takes_back_exactly_what_was_appended(tmp_path):
    fallback = a_fallback(tmp_path)
    fallback.append("2026-01-01", [delete("a")])
    before = fallback.path("2026-01-01").read_bytes()
    where = fallback.append("2026-01-01", [delete("b"), delete("c")])
    fallback.withdraw("2026-01-01", where.start, where.end)
    assert fallback.path("2026-01-01").read_bytes() == before
    where = fallback.append("2026-01-01", [delete("b")])
    fallback.append("2026-01-01", [delete("c")])
    fallback.withdraw("2026-01-01", where.start, where.end)
    assert names(list(fallback.read("2026-01-01"))) == ["a", "b", "c"], "something stands behind it"


# --- several processes ------------------------------------------------------------------------------------


def test_two_processes_append_whole_lines(tmp_path):
    """N: 4 processes of 300 appends, lines of 20 to 20,000 bytes."""
    children = [start_child("child_append", tmp_path, number) for number in range(4)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        finish_child(child)
    fallback = a_fallback(tmp_path)
    lines = list(fallback.read("2026-01-01"))
    assert [line.fault for line in lines if line.fault] == []
    found = names(lines)
    assert len(found) == len(set(found)) == 1200
    for number in range(4):
        own = [int(name.split()[1]) for name in found if name.startswith(f"{number} ")]
        assert own == list(range(300))


def test_a_file_renamed_away_while_an_append_waits_is_not_written(tmp_path, monkeypatch):
    """An erasure renames a rewritten file in: the append belongs into that one."""
    fallback = a_fallback(tmp_path)
    fallback.append("2026-01-01", [delete("old"), delete("kept")])
    path = fallback.path("2026-01-01")
    flock = fcntl.flock
    rewritten = []

    def rename_first(descriptor: int, how: int) -> None:
        if not rewritten:
            rewritten.append(path.with_suffix(".new"))
            rewritten[0].write_bytes(encode(delete("kept")))
            path.rename(path.with_suffix(".away"))
            rewritten[0].rename(path)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", rename_first)
    fallback.append("2026-01-01", [delete("new")])
    assert names(list(fallback.read("2026-01-01"))) == ["kept", "new"]
    assert names(list(read_lines(path.with_suffix(".away")))) == ["old", "kept"]


def test_a_file_that_vanished_while_an_append_waits_is_made_anew(tmp_path, monkeypatch):
    fallback = a_fallback(tmp_path, header={"op": "store", "store_id": "x", "timezone": "UTC"})
    fallback.append("2026-01-01", [delete("old")])
    flock = fcntl.flock
    calls = []

    def remove_first(descriptor: int, how: int) -> None:
        if not calls:
            fallback.path("2026-01-01").unlink()
        calls.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    fallback.append("2026-01-01", [delete("new")])
    assert [line.operation["op"] for line in fallback.read("2026-01-01")] == ["store", "delete"]
    assert len(calls) == 2


# --- days -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("zone", "days"), [
    ("Asia/Shanghai", ["2026-03-01", "2026-03-02"]), ("UTC", ["2026-03-01"]), ("America/New_York", ["2026-03-01"]),
])  # fmt: skip
def test_the_day_is_the_stores_own(tmp_path, zone, days):
    """23:59 and 00:01 in Shanghai are 15:59 and 16:01 in UTC."""
    path = tmp_path / "store.db"
    clock = ManualClock(datetime(2026, 3, 1, 15, 59, tzinfo=UTC))
    with open_store(path, clock, timezone=zone) as store:
        say(store, "before")
        clock.set(datetime(2026, 3, 1, 16, 1, tzinfo=UTC))
        say(store, "after")
        assert [file.stem for file in day_files(folder_of(path))] == days
        assert_sound(store)
    assert [row["content"] for row in message_lines(path)] == ['"before"', '"after"']


@pytest.mark.parametrize(("instant", "day"), [
    ("2026-03-29T00:59:59+00:00", "2026-03-29"), ("2026-03-28T22:59:59+00:00", "2026-03-28"),
    ("2026-03-28T23:00:00+00:00", "2026-03-29"), ("2026-10-25T22:59:59+00:00", "2026-10-25"),
    ("2026-10-25T23:00:00+00:00", "2026-10-26"), ("2038-01-19T03:14:08+00:00", "2038-01-19"),
    ("1969-12-31T22:59:59+00:00", "1969-12-31"),
])  # fmt: skip
def test_days_around_a_change_of_clocks(tmp_path, instant, day):
    fallback = Fallback(tmp_path / "store.db", ZoneInfo("Europe/Berlin"), durable=False)
    assert fallback.day(datetime.fromisoformat(instant)) == day


def test_a_clock_that_goes_back_writes_into_the_earlier_file_and_loses_nothing(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    rng = random.Random(3)
    with open_store(path, clock) as store:
        for number in range(30):
            clock.set(START.replace(day=rng.randint(1, 5)))
            say(store, f"message {number}")
        expected = dump(store)
        assert texts(store) == [f"message {n}" for n in range(30)]
        assert len(day_files(folder_of(path))) == 5
        assert_sound(store)
    MemoryStore.recover(path, out=tmp_path / "new.db")
    with open_store(tmp_path / "new.db", clock) as store:
        assert dump(store) == expected
        assert_sound(store)


# --- whose files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_folder_and_files_are_the_owners_alone(tmp_path, umask):
    old = os.umask(umask)
    try:
        fallback = a_fallback(tmp_path)
        fallback.append("2026-01-01", [delete("a")])
    finally:
        os.umask(old)
    assert fallback.folder.stat().st_mode & 0o7777 == 0o700
    assert fallback.path("2026-01-01").stat().st_mode & 0o7777 == 0o600


def test_a_folder_that_is_a_link_is_refused_and_nothing_goes_there(tmp_path):
    path = tmp_path / "store.db"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder_of(path).symlink_to(elsewhere)
    with open_store(path) as store:
        with pytest.raises(FallbackError, match="symbolic link"):
            store._fallback.append("2026-01-01", [delete("a")])
        assert store.record(SCOPE, [Message("user", "not there")], "chat").stored == "database"
    assert list(elsewhere.iterdir()) == []


def test_a_day_file_that_is_a_link_is_refused_and_not_written_through(tmp_path):
    path = tmp_path / "store.db"
    target = tmp_path / "target"
    target.write_text("mine\n")
    with open_store(path, ManualClock(START)) as store:
        folder_of(path).mkdir()
        (folder_of(path) / "2026-03-01.jsonl").symlink_to(target)
        before = file_hashes(tmp_path)["target"]
        assert store.record(SCOPE, [Message("user", "not there")], "chat").stored == "database"
    assert file_hashes(tmp_path)["target"] == before


# --- what a line holds ------------------------------------------------------------------------------------


def test_a_message_line_rebuilds_its_row_and_leaves_out_what_is_usual(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        store.record(
            SCOPE,
            [
                Message(
                    "assistant",
                    [{"type": "text", "text": "字\u2028"}],
                    id="c",
                    name="n",
                    usage={"z": 1, "a": 2.5},
                    complete=False,
                )
            ],
            "one",
        )
        say(store, "plain", session="one")
        rows = dump(store)["messages"]
    lines = message_lines(path)
    columns = MessageRow.__dataclass_fields__
    for row, line in zip(rows, lines, strict=True):
        values = {name: value for name, value in line.items() if name in columns}
        assert MessageRow(**values) == MessageRow(**row)
    assert set(lines[1]) == {
        "op", "n", "id", "team_id", "user_id", "agent_id", "session", "pos", "arrival", "role", "content", "checksum",
        "source_kind", "trust", "created_at", "recorded_at", "zone",
    }  # fmt: skip


def test_lines_are_numbered_in_the_order_of_commits(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        ids = say(store, "a", "b")
        store.set_session(SCOPE, "agent:chat:one", title="t")
        clock.advance(86_400)
        store.delete(SCOPE, ids[0])
        store.clear_session(SCOPE, "agent:chat:one")
        store.delete_session(SCOPE, "agent:chat:one")
        say(store, "c")
    numbers = [line.operation["n"] for line in lines_of(path) if line.operation["op"] != "store"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_memories_have_no_line(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.add(SCOPE, "not in the fallback")
    assert not folder_of(path).exists()
