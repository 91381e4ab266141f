"""Rebuilding messages and sessions from the daily fallback: the same rows, whatever became of the lines."""

# ruff: noqa: S311 - seeded chance

import os
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memstore.config import Settings
from memstore.errors import StoreExists, StoreMissing
from memstore.fallback import day_files, encode, folder_of
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import (
    CHATS,
    DAY,
    SCOPE,
    SCOPES,
    START,
    History,
    assert_sound,
    die_behind_the_append,
    digest,
    dump,
    file_hashes,
    findings,
    in_fork,
    open_store,
    play,
    remove_database,
    say,
    texts,
)


def recovered(path: Path, **options: object):
    """Recover beside, and what is in the result."""
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    options.setdefault("settings", Settings(timezone="UTC"))  # where the line that names it is spoiled
    report = MemoryStore.recover(path, out=folder / "new.db", **options)
    with open_store(folder / "new.db", ManualClock(START)) as store:
        assert store.adopted == 0
        found = dump(store)
        assert [f for f in store.doctor().findings if f.severity == "error"] == []
    return found, report


def difference(one: dict, two: dict) -> list:
    """The rows that differ, for a readable failure."""
    return [
        (left, right)
        for kind in one
        for left, right in zip(one[kind], two[kind], strict=False)
        if left != right
    ] + [(kind, len(one[kind]), len(two[kind])) for kind in one if len(one[kind]) != len(two[kind])]


def assert_same(found: dict, wanted: dict) -> None:
    assert difference(found, wanted) == []


# --- the same rows ----------------------------------------------------------------------------------------


def test_five_thousand_rows_come_back_identical(tmp_path):
    """N: about 5,000 messages of four scopes over three days, with forks, clears, deletes, renames and hidden
    sessions. The database is deleted; then it goes on, and is lost again."""
    path = tmp_path / "store.db"
    wanted = play(path, seed=1, steps=3_700)
    assert len(wanted["messages"]) > 5_000
    assert len(day_files(folder_of(path))) > 3
    for column, values in {"branch": 20, "hidden": 2, "live": 2, "state": 2, "zone": 2}.items():
        assert len({row[column] for row in wanted["messages"]}) >= values, column
    assert {row["titled_by"] for row in wanted["sessions"]} >= {"caller", "first_message"}
    lines = sum(file.read_bytes().count(b"\n") for file in day_files(folder_of(path)))
    remove_database(path)
    report = MemoryStore.recover(path)
    assert (report.messages, report.sessions, report.files, report.lines) == (
        len(wanted["messages"]), len(wanted["sessions"]), len(day_files(folder_of(path))), lines,
    )  # fmt: skip
    assert (report.duplicates, report.skipped, report.path) == (0, (), str(path))
    clock = ManualClock(START)
    clock.advance(5 * DAY)
    with open_store(path, clock, durability="process") as store:
        assert store.adopted == 0
        assert_same(dump(store), wanted)
        assert_sound(store)
        history = History(store, clock, seed=2)
        for _ in range(150):
            history.step()
        wanted = dump(store)
        assert_sound(store)
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, clock) as store:
        assert_same(dump(store), wanted)
        assert_sound(store)


@pytest.mark.parametrize("seed", range(12))
def test_random_histories_come_back_identical(tmp_path, seed):
    """N: 12 seeds of 120 operations."""
    wanted = play(tmp_path / "store.db", seed=100 + seed, steps=120)
    found, report = recovered(tmp_path / "store.db")
    assert_same(found, wanted)
    assert report.skipped == ()


def test_running_twice_gives_the_same_and_never_writes_over_a_file(tmp_path):
    path = tmp_path / "store.db"
    wanted = play(path, seed=3, steps=60)
    before = file_hashes(tmp_path)
    with pytest.raises(StoreExists, match="never written over"):
        MemoryStore.recover(path)
    assert file_hashes(tmp_path) == before
    for out in ("one.db", "two.db"):
        MemoryStore.recover(path, out=tmp_path / out)
        with open_store(tmp_path / out) as store:
            assert_same(dump(store), wanted)
            assert_sound(store)
        with pytest.raises(StoreExists):
            MemoryStore.recover(path, out=tmp_path / out)
    assert {name: value for name, value in file_hashes(tmp_path).items() if name in before} == before


@pytest.mark.parametrize("taken", ["folder", "text", "link"])
def test_no_kind_of_target_is_written_over(tmp_path, taken):
    path, out = tmp_path / "store.db", tmp_path / "out.db"
    play(path, seed=3, steps=10)
    remove_database(path)
    if taken == "folder":
        out.mkdir()
    elif taken == "text":
        out.write_text("mine")
    else:
        (tmp_path / "real.db").write_text("mine")
        out.symlink_to(tmp_path / "real.db")
    before = file_hashes(tmp_path)
    with pytest.raises(StoreExists):
        MemoryStore.recover(path, out=out)
    assert file_hashes(tmp_path) == before


def test_nothing_to_recover_from_is_named(tmp_path):
    with pytest.raises(StoreMissing, match="no day files"):
        MemoryStore.recover(tmp_path / "store.db")
    folder_of(tmp_path / "store.db").mkdir()
    with pytest.raises(StoreMissing):
        MemoryStore.recover(tmp_path / "store.db")
    assert [p.name for p in tmp_path.iterdir()] == ["store.db.fallback"]


def test_zone_and_store_are_the_old_ones(tmp_path):
    path = tmp_path / "store.db"
    with (
        MemoryStore(path, settings=Settings(timezone="Asia/Shanghai")) as store,
        store._storage.read() as reader,
    ):
        store_id = reader.meta("store_id")
        say(store, "x")
    remove_database(path)
    MemoryStore.recover(path)
    with MemoryStore(path) as store, store._storage.read() as reader:
        assert reader.meta("store_id") == store_id
        assert str(store.timezone) == "Asia/Shanghai"


def test_searches_answer_as_before(tmp_path):
    path = tmp_path / "store.db"
    wanted = play(path, seed=4, steps=150)
    queries = ("coffee Berlin", "宠物", "build-x7", "café", "quoted OR *")

    def answers(store: MemoryStore) -> list:
        return [
            [(hit.id, hit.score) for hit in store.search_messages(scope, q, 20)]
            for scope in SCOPES
            for q in queries
        ]

    with open_store(path, ManualClock(START)) as store:
        store.reindex()
        before = answers(store)
        assert sum(map(len, before)) > 20
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, ManualClock(START)) as store:
        assert_same(dump(store), wanted)
        assert answers(store) == before


# --- what a session's record says -------------------------------------------------------------------------


def lost_and_recovered(path: Path, *work) -> tuple[dict, dict]:
    """(as it was, as it came back)."""
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        for step in work:
            clock.advance(10)
            step(store)
        wanted = dump(store)
    found, _ = recovered(path)
    return wanted, found


def user(text: str, chat: str = "one"):
    return lambda s: s.record(SCOPE, [Message("user", text)], chat)


def assistant(text: str, chat: str = "one"):
    return lambda s: s.record(SCOPE, [Message("assistant", text)], chat)


def pin(chat: str = "one"):
    return lambda s: s.set_session(SCOPE, chat, pinned=True)


def rename(title: str, chat: str = "one"):
    return lambda s: s.set_session(SCOPE, chat, title=title)


def forget(chat: str = "one"):
    return lambda s: s.delete_session(SCOPE, chat)


def clear(chat: str = "one"):
    return lambda s: s.clear_session(SCOPE, chat)


STORIES = {
    "pinned before anyone spoke": [assistant("hello"), pin(), user("my first words")],
    "pinned, then forgotten, then again": [
        assistant("hello"),
        pin(),
        forget(),
        assistant("back"),
        user("second life"),
    ],
    "forgotten before a title": [assistant("a"), forget(), assistant("b"), pin(), user("c")],
    "forgotten twice": [user("a"), forget(), user("b"), forget(), user("c"), pin()],
    "renamed, forgotten, again": [user("a"), rename("mine"), pin(), forget(), user("b")],
    "again without words": [user("a"), forget(), assistant("b"), user("c")],
    "cleared, then more": [user("a"), clear(), user("b"), clear(), user("c")],
    "forgotten for good": [user("a"), pin(), forget()],
    "renamed twice": [user("a"), rename("one"), rename("two"), rename("one")],
    "unpinned": [user("a"), pin(), lambda s: s.set_session(SCOPE, "one", pinned=False)],
    "begun earlier": [
        user("a"),
        lambda s: s.set_session(SCOPE, "one", created_at="2020-01-01T00:00:00Z"),
        user("b"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_the_record_of_a_session_comes_back(tmp_path, story):
    wanted, found = lost_and_recovered(tmp_path / "store.db", *STORIES[story])
    assert_same(found, wanted)


# --- lines lost, doubled, moved, spoiled ------------------------------------------------------------------


def rewrite(path: Path, change) -> None:
    """Change the lines of every day file."""
    for file in day_files(folder_of(path)):
        lines = file.read_bytes().splitlines(keepends=True)  # bytes: cut at \n alone, as JSON escapes \r
        file.write_bytes(b"".join(change(lines)))


def test_a_lost_tail_of_the_last_day_costs_that_tail_alone(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        for number in range(40):
            say(store, f"message {number}")
        wanted = dump(store)["messages"]
    file = day_files(folder_of(path))[-1]
    lines = file.read_bytes().splitlines(keepends=True)
    for kept in (1, 2, 20, 40):
        file.write_bytes(b"".join(lines[:kept]))
        found, report = recovered(path)
        assert found["messages"] == wanted[: kept - 1]
        assert report.lines == kept


def test_doubled_lines_count_once(tmp_path):
    path = tmp_path / "store.db"
    wanted = play(path, seed=5, steps=100)
    rewrite(path, lambda lines: [line for line in lines for _ in range(2)])
    found, report = recovered(path)
    assert_same(found, wanted)
    assert report.duplicates == len(wanted["messages"])


def only_messages(path: Path) -> dict:
    clock = ManualClock(START)
    with open_store(path, clock, durability="process") as store:
        history = History(store, clock, 6)
        for number in range(150):
            if number % 50 == 0:
                clock.advance(DAY)
            history.step("record")
        return dump(store)


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_lines_of_messages_give_the_same_rows(tmp_path, seed):
    path = tmp_path / "store.db"
    wanted = only_messages(path)
    rng = random.Random(seed)

    def shuffled(lines: list[bytes]) -> list[bytes]:
        rng.shuffle(lines)
        return lines

    rewrite(path, shuffled)
    found, report = recovered(path)
    assert_same(found, wanted)
    assert (report.duplicates, report.skipped) == (0, ())


@pytest.mark.parametrize("seed", range(4))
def test_shuffled_lines_of_every_kind_give_the_same_rows(tmp_path, seed):
    path = tmp_path / "store.db"
    wanted = play(path, seed=7 + seed, steps=120)
    rng = random.Random(seed)

    def shuffled(lines: list[bytes]) -> list[bytes]:
        rng.shuffle(lines)
        return lines

    rewrite(path, shuffled)
    found, _ = recovered(path)
    assert_same(found, wanted)


def test_old_lines_doubled_at_the_end_do_not_turn_back_time(tmp_path):
    path = tmp_path / "store.db"
    wanted = play(path, seed=8, steps=120)
    rewrite(path, lambda lines: [*lines, *lines[: len(lines) // 2]])
    found, _ = recovered(path)
    assert_same(found, wanted)


def test_spoiled_lines_are_counted_named_and_skipped(tmp_path):
    path = tmp_path / "store.db"
    wanted = play(path, seed=9, steps=60, days=1)
    spoiled = [
        b"\n", b"garbage\n", b"{}\n", b"\xff\xfe\x00\n", b'{"crc":"00000000","v":1,"op":"message"}\n', b"null\n",
        b"[" * 5_000 + b"\n", b'{"crc":"12345678"}\n', "日记\u2028\n".encode(),
    ]  # fmt: skip
    files = day_files(folder_of(path))
    lines = files[0].read_bytes().splitlines(keepends=True)
    step = max(1, len(lines) // len(spoiled))
    mixed, places = [], []
    for number, line in enumerate(lines):
        if number % step == 0 and spoiled:
            mixed.append(spoiled.pop(0))
            places.append(len(mixed))
        mixed.append(line)
    assert not spoiled
    files[0].write_bytes(b"".join(mixed))
    found, report = recovered(path)
    assert_same(found, wanted)
    assert [(Path(s.file), s.line) for s in report.skipped] == [
        (files[0], place) for place in places if mixed[place - 1] != b"\n"
    ]
    assert all(s.reason for s in report.skipped)


@pytest.mark.parametrize("operation", [
    {"op": "message", "id": "x"},
    {"op": "message"},
    {"op": "delete"},
    {"op": "live", "change": "clear"},
    {"op": "session", "team_id": "team"},
    {"op": "placed", "id": "x"},
    {"op": "live", "change": "something new", "team_id": "team", "user_id": "user", "session": "agent:chat:one"},
    {"op": "something new"},
    {"op": "message", "v": 2},
])  # fmt: skip
def test_a_line_with_a_right_checksum_and_missing_members_stops_nothing(tmp_path, operation):
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        say(store, "kept")
        wanted = dump(store)
        with day_files(folder_of(path))[0].open("ab") as file:
            file.write(encode(operation))
        say(store, "kept too")  # the next write looks at the line
        assert texts(store) == ["kept", "kept too"]
    found, report = recovered(path)
    assert found["messages"][:1] == wanted["messages"]
    assert len(found["messages"]) == 2
    assert len(report.skipped) <= 1


def test_damaged_bytes_cost_the_lines_they_are_in(tmp_path):
    """N: 60 files with one changed byte each."""
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START), durability="process") as store:
        for number in range(30):
            say(store, f"message {number} 消息")
        wanted = dump(store)["messages"]
    file = day_files(folder_of(path))[0]
    whole = file.read_bytes()
    rng = random.Random(10)
    for _ in range(60):
        at = rng.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :])
        found, report = recovered(path)
        lost = [row for row in wanted if row not in found["messages"]]
        assert [row for row in found["messages"] if row not in wanted] == []
        assert len(lost) <= 2, "a changed byte spoils its line; a changed end of line, two"
        assert len(report.skipped) >= 1


def test_a_message_left_without_a_commit_keeps_its_later_place(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
    die_behind_the_append(path, "left behind")
    with open_store(path) as store:
        say(store, "second")
        wanted = dump(store)
    found, _ = recovered(path)
    assert_same(found, wanted)


def test_a_line_that_was_never_adopted_is_recovered_too(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
    die_behind_the_append(path, "left behind")
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path) as store:
        assert texts(store) == ["first", "left behind"]
        assert_sound(store)


def test_copies_under_other_names_are_no_day_files(tmp_path):
    """Someone's copy of an older state must not bring it back: not at opening, not in a recovery."""
    path = tmp_path / "store.db"
    with open_store(path, ManualClock(START)) as store:
        user("a")(store)
        rename("old title")(store)
        file = day_files(folder_of(path))[0]
        for name in (
            "copy of 2026-03-01.jsonl",
            "2026-03-01.bak.jsonl",
            "2026-03-01.jsonl.bak",
            "notes.jsonl",
        ):
            shutil.copy(file, file.parent / name)
        rename("new title")(store)
        wanted = dump(store)
    with open_store(path, ManualClock(START)) as store:
        assert store.adopted == 0
        assert_same(dump(store), wanted)
        assert findings(store) == []
    found, report = recovered(path)
    assert_same(found, wanted)
    assert report.files == 1


# --- recover itself cut short -----------------------------------------------------------------------------


def test_a_recovery_that_is_killed_leaves_nothing_at_the_target_and_the_next_one_works(tmp_path, monkeypatch):
    monkeypatch.setattr("memstore.recovery.BATCH_ROWS", 300)
    path = tmp_path / "store.db"
    wanted = play(path, seed=11, steps=1_000)
    remove_database(path)
    for killed_at in (1, 2):  # N: 2 kills, after the first and the second batch

        def work(at: int = killed_at) -> None:
            calls = Counter()

            def progress(_done: int, _total: int) -> None:
                calls["n"] += 1
                if calls["n"] == at:
                    os._exit(9)

            MemoryStore.recover(path, progress=progress)

        assert in_fork(work) == 9
        assert not path.exists()
        with pytest.raises(StoreMissing):
            open_store(path)
    MemoryStore.recover(path)
    with open_store(path) as store:
        assert_same(dump(store), wanted)
        assert_sound(store)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.db", "store.db.fallback"]


# --- any history ------------------------------------------------------------------------------------------

CHOICES = st.lists(
    st.tuples(
        st.sampled_from(
            ["record", "record", "transcript", "delete", "clear", "rename", "pin", "forget", "created"]
        ),
        st.integers(0, 2**32),
    ),
    min_size=1,
    max_size=25,
)


@given(CHOICES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_comes_back(choices):
    """N: 60 histories of up to 25 operations in one scope, two sessions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        clock = ManualClock(START)
        with open_store(path, clock, durability="process") as store:
            history = OneScope(store, clock, 0)
            for kind, seed in choices:
                history.rng = random.Random(seed)
                history.step(kind)
            wanted = dump(store)
        remove_database(path)
        if not folder_of(path).exists():
            return
        MemoryStore.recover(path)
        with open_store(path, clock) as store:
            assert_same(dump(store), wanted)
            assert digest(store) == digest(store)
            assert findings(store) == []


class OneScope(History):
    """A history whose operations meet: one scope and two chats."""

    def step(self, kind: str | None = None) -> None:
        choice = self.rng.choice
        self.rng.choice = lambda options: (
            SCOPES[0] if options is SCOPES else choice(CHATS[:2]) if options is CHATS else choice(options)
        )
        super().step(kind)
