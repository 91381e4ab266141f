"""R17: the wall clock jumps, and nothing is lost or changes its place: order is by position and arrival, never by time."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from memstore import MemoryStore
from memstore.fallback import day_files, folder_of
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import (
    SCOPE,
    START,
    History,
    assert_comes_back,
    assert_sound,
    die_behind_the_append,
    digest,
    dump,
    finish_child,
    open_store,
    remove_database,
    say,
    start_child,
    texts,
)

# ruff: noqa: S311 - seeded chance

SESSION = "agent:chat:one"
ONE_DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


JUMPS = {
    "a day on": ("UTC", [START, START + ONE_DAY, START + ONE_DAY]),
    "a day back": ("UTC", [START, START - ONE_DAY, START - ONE_DAY, START]),
    "on and back over a day's end": (
        "Asia/Shanghai",
        [at(f"2026-03-0{day}T{hour}:00Z") for day, hour in ((1, "15:59"), (1, "16:01"), (1, "15:58"), (1, "16:02"))],
    ),
    "summer begins": ("Europe/Berlin", [at("2026-03-29T00:59:59Z"), at("2026-03-29T01:00:00Z"), at("2026-03-28T22:59:59Z")]),
    "summer ends": ("Europe/Berlin", [at("2026-10-25T00:30:00Z"), at("2026-10-25T01:30:00Z"), at("2026-10-25T00:45:00Z")]),
    "a day without midnight": ("America/Santiago", [at("2026-09-06T03:59:59Z"), at("2026-09-06T04:00:00Z"), START]),
    "the end of 32 bits": ("UTC", [at("2038-01-19T03:14:07Z"), at("2038-01-19T03:14:08Z"), at("2106-02-07T06:28:16Z"), START]),
    "a battery that is empty": ("America/New_York", [START, at("1970-01-01T00:00:00Z"), at("1970-01-01T00:00:01Z"), START]),
    "before 1970": ("UTC", [at("1969-12-31T23:59:59.999999Z"), at("1901-12-13T20:45:51Z"), START]),
    "the last day there is": ("UTC", [START, at("9999-12-31T23:59:59.999999Z"), START]),
}  # fmt: skip


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_loses_nothing_and_moves_nothing(tmp_path, name):
    """Recorded, forked by a transcript, opened anew, and rebuilt from day files that are in another order than time."""
    zone, instants = JUMPS[name]
    path = tmp_path / "store.db"
    clock = ManualClock(instants[0])
    spoken = []
    with open_store(path, clock, timezone=zone) as store:
        for number, instant in enumerate(instants):
            clock.set(instant)
            spoken.append(f"word {number}")
            say(store, spoken[-1])
            memory = store.add(SCOPE, f"memory {number}")
            assert store.update(SCOPE, memory.id, content=f"memory {number} anew").version == 2
        before = dump(store)
        assert texts(store) == spoken
        assert [row["arrival"] for row in before["messages"]] == list(range(1, 3 * len(instants), 3))
        assert [m.content for m in store.get_all(SCOPE, limit=50)] == [
            f"memory {number} anew" for number in reversed(range(len(instants)))
        ]
        assert {hit.content for hit in store.search_messages(SCOPE, "word", limit=50)} == set(spoken)
        assert_sound(store)
    days = {file.stem for file in day_files(folder_of(path))}
    assert days == {f"{instant.astimezone(store.timezone):%Y-%m-%d}".rjust(10, "0") for instant in instants}
    with open_store(path, ManualClock(START), timezone=zone) as store:
        assert store.adopted == 0
        assert dump(store) == before
    remove_database(path)
    report = MemoryStore.recover(path)
    assert (report.files, report.messages, report.skipped) == (len(days), len(instants), ())
    with open_store(path, ManualClock(START), timezone=zone) as store:
        assert dump(store) == before
        assert_sound(store)


def test_an_instant_that_the_stores_zone_has_no_day_for_still_has_a_place(tmp_path):
    """The last hours of year 9999 in UTC are year 10000 in Shanghai: a clock that is wrong, not a message to lose."""
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock, timezone="Asia/Shanghai") as store:
        say(store, "before")
        clock.set(at("9999-12-31T20:00:00Z"))
        say(store, "while the clock is wrong")
        clock.set(START)
        say(store, "after")
        assert texts(store) == ["before", "while the clock is wrong", "after"]
        assert_sound(store)


class Erratic(ManualClock):
    """Every look at it gives another time, up to a day off on either side; what is monotonic stays so."""

    def __init__(self, seed: int) -> None:
        super().__init__(START)
        self._rng = random.Random(seed)

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._rng.randint(-86_400, 86_400))


@pytest.mark.parametrize("seed", range(4))
def test_a_clock_that_jumps_within_calls(tmp_path, seed):
    """N: 4 histories of 120 operations of all kinds. Day, row and line of one call each see another time."""
    path = tmp_path / "store.db"
    clock = Erratic(seed)
    with open_store(path, clock, durability="process") as store:
        history = History(store, clock, seed)
        for _ in range(120):
            history.step()
        before = dump(store)
        assert_sound(store)
    assert len(day_files(folder_of(path))) >= 3
    with open_store(path, clock, durability="process") as store:
        assert store.adopted == 0
        assert dump(store) == before
        assert_sound(store)
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, clock, durability="process") as store:
        assert dump(store) == before
        assert_sound(store)


@pytest.mark.parametrize("hours", [-24, -1, 0, 1, 24, 24 * 365 * 12])
def test_a_line_that_was_left_behind_before_the_jump_is_adopted_once(tmp_path, hours):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
        clock.set(START + timedelta(hours=5))
        finish_child(start_child("child_die_at", path, "left behind", clock.now().isoformat()))
        clock.set(START + timedelta(hours=5 + hours))
        say(store, "next")
        assert texts(store) == ["first", "left behind", "next"]
        assert_sound(store)
        rows = dump(store)
    with open_store(path, clock) as store:
        assert store.adopted == 0
        assert dump(store) == rows
    assert_comes_back(path, rows, clock)


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_line_that_was_left_behind_on_the_other_day_is_adopted_at_opening(tmp_path, hours):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
    clock.set(START + timedelta(hours=hours))
    die_behind_the_append(path, "left behind", clock)
    with open_store(path, ManualClock(START)) as store:
        assert store.adopted == 1
        assert texts(store) == ["first", "left behind"]
        assert_sound(store)


@pytest.mark.parametrize("hours", [(0, -24), (0, 24), (0, -24, 24, -24)])
def test_calls_that_wait_while_the_clock_jumps_are_taken_up_in_the_order_of_saying(tmp_path, hours):
    """Accepted by the fallback alone, on days that are not in the order of saying."""
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    waiting = [f"waits {number}" for number in range(len(hours))]
    with open_store(path, clock, busy_timeout_s=0.05) as store, open_store(path, ManualClock(START)) as other:
        say(store, "first")
        with other._storage.write():
            for text, jump in zip(waiting, hours, strict=True):
                clock.set(START + timedelta(hours=jump))
                assert store.record(SCOPE, [Message("user", text)], SESSION).stored == "fallback"
        say(store, "next")
        assert texts(store) == ["first", *waiting, "next"]
        assert_sound(store)
        rows = dump(store)
    with open_store(path, clock) as store:
        assert store.adopted == 0
        assert dump(store) == rows
    assert_comes_back(path, rows, clock)


def test_a_transcript_is_aligned_by_what_was_said_whatever_the_clock_says(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    whole = [Message("user", f"turn {number}") for number in range(8)]
    with open_store(path, clock) as store:
        for number in range(1, 9):
            clock.set(START + timedelta(hours=random.Random(number).randint(-100, 100)))
            receipt = store.record(SCOPE, whole[:number], SESSION, transcript=True)
            assert receipt.new == 1
        assert texts(store) == [message.content for message in whole]
        changed = [*whole[:3], Message("user", "said otherwise")]
        clock.set(START - timedelta(days=400))
        store.record(SCOPE, changed, SESSION, transcript=True)
        assert [m.text for m in store.messages(SCOPE, SESSION, live_only=True)] == [
            m.content for m in changed
        ]
        before = digest(store)
        assert_sound(store)
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, clock) as store:
        assert digest(store) == before


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)])
def test_a_deadline_is_not_moved_by_the_wall_clock(tmp_path, jump):
    """The jump comes while the query is embedded: the answer is neither late nor waited for without end."""
    from memstore.testing import HashEmbedder

    clock = ManualClock(START)

    class Jumping(HashEmbedder):
        def embed_query(self, text: str):
            clock.set(clock.now() + jump)
            return super().embed_query(text)

    with MemoryStore(tmp_path / "store.db", Jumping(dim=16), clock=clock) as store:
        store.add(SCOPE, "the lighthouse is white")
        store.index()
        found = store.recall(SCOPE, "lighthouse")
        assert [hit.content for hit in found] == ["the lighthouse is white"]
        assert found.degraded == ()


def test_utc_is_what_is_stored(tmp_path):
    """An instant given in another zone is that instant, on the day that the store's zone says."""
    path = tmp_path / "store.db"
    clock = ManualClock(at("2026-03-01T23:30:00+08:00"))
    with open_store(path, clock, timezone="UTC") as store:
        say(store, "x")
        [row] = dump(store)["messages"]
        assert datetime.fromtimestamp(row["recorded_at"] / 1e6, UTC) == at("2026-03-01T15:30:00Z")
    assert [file.stem for file in day_files(folder_of(path))] == ["2026-03-01"]
