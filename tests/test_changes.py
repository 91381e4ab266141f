"""What became of memories between two times."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import contents, fresh_store, leave_team
from memstore import InvalidInput, InvalidScope, InvalidTime, Scope
from memstore.times import to_micros
from test_counters import scans
from time_support import ANA, BEN, DAY, GRID, HOUR, MOMENT, START, STEP, History, supersede_by_another

EVER = "0001-01-02"


def told(page) -> list[tuple[str, str | None, str | None]]:
    """What, old text, new text."""
    return [
        (c.what, None if c.before is None else c.before.content, None if c.after is None else c.after.content)
        for c in page
    ]


@pytest.fixture
def life(store, ana, clock):
    """One memory's life, a step a day; its id."""
    clock.set(START)
    made = store.add(ana, "tea at four")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="tea at five", expires_at=START + 2.5 * DAY)
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, priority=80)
    clock.advance(DAY.total_seconds())
    store.delete(ana, made.id)
    return made.id


ADDED = ("added", None, "tea at four")
UPDATED = ("updated", "tea at four", "tea at five")
PRIORITY = ("updated", "tea at five", "tea at five")
EXPIRED = ("expired", "tea at five", None)
DELETED = ("deleted", "tea at five", None)


def test_a_life_is_told_oldest_first(store, ana, life):
    page = store.changes(ana, START)
    assert told(page) == [ADDED, UPDATED, PRIORITY, EXPIRED, DELETED]
    assert [c.at for c in page] == [START + days * DAY for days in (0, 1, 2, 2.5, 3)]
    assert [c.version for c in page] == [1, 2, 3, 3, 3]
    assert {c.id for c in page} == {life}
    assert page.next_cursor is None
    assert (page[2].before.priority, page[2].after.priority) == (50, 80)


def test_the_interval_is_half_open(store, ana, life):
    assert told(store.changes(ana, START, START)) == []
    assert told(store.changes(ana, START, START + MOMENT)) == [ADDED]
    assert told(store.changes(ana, START + MOMENT, START + DAY)) == []
    assert told(store.changes(ana, START + DAY, START + 2.5 * DAY)) == [UPDATED, PRIORITY]
    assert told(store.changes(ana, START + 2.5 * DAY, START + 3 * DAY)) == [EXPIRED]
    assert told(store.changes(ana, START + 3 * DAY)) == [DELETED]  # made at this very moment
    assert told(store.changes(ana, START + 3 * DAY + MOMENT)) == []
    assert told(store.changes(ana, START + 9 * DAY, START)) == []
    assert told(store.changes(ana, "2026-01-12", "2026-01-13")) == [PRIORITY]
    assert told(store.changes(ana, "2026-01-13", "2026-01-14")) == [
        EXPIRED,
        DELETED,
    ]  # it expired at midnight


def test_before_is_shown_though_it_changed_earlier_than_the_interval(store, ana, life):
    [change] = store.changes(ana, START + DAY, START + DAY + MOMENT)
    assert (change.before.version, change.after.version) == (1, 2)


def test_an_expiry_counts_only_once_it_came_and_where_the_version_was_current(store, ana, clock):
    clock.set(START)
    store.add(ana, "expires tomorrow", expires_at=START + DAY)
    replaced = store.add(ana, "replaced first", expires_at=START + 2 * DAY)
    gone = store.add(ana, "deleted first", expires_at=START + 2 * DAY)
    store.add(ana, "expired before it came", expires_at=START - DAY)
    store.add(ana, "ends", valid_to=START + DAY)
    expired = lambda until=None: [
        c.before.content for c in store.changes(ana, EVER, until) if c.what == "expired"
    ]
    assert expired() == expired(START + 99 * DAY) == []  # in the future yet
    clock.set(START + DAY)
    assert expired() == ["expires tomorrow"]
    store.update(ana, replaced.id, content="replaced", expires_at=START + 9 * DAY)
    store.delete(ana, gone.id)
    clock.set(START + 5 * DAY)
    assert expired() == ["expires tomorrow"]
    clock.set(START + 9 * DAY)
    assert expired() == ["expires tomorrow", "replaced"]


def test_an_update_just_before_the_expiry_prevents_it(store, ana, clock):
    clock.set(START)
    made = store.add(ana, "tea", expires_at=START + DAY)
    clock.set(START + DAY - MOMENT)
    store.update(ana, made.id, content="more tea", expires_at=START + 2 * DAY)
    clock.set(START + DAY)
    assert [c.what for c in store.changes(ana, EVER)] == ["added", "updated"]


def test_what_is_deleted_at_the_moment_of_its_expiry_had_expired(store, ana, clock):
    clock.set(START)
    made = store.add(ana, "tea", expires_at=START + DAY)
    clock.set(START + DAY)
    store.delete(ana, made.id)
    assert [c.what for c in store.changes(ana, EVER)] == ["added", "expired", "deleted"]


def test_an_update_that_changes_nothing_is_no_change(store, ana):
    made = store.add(ana, "tea")
    store.update(ana, made.id, content="tea")
    assert [c.what for c in store.changes(ana, EVER)] == ["added"]


def test_a_memory_that_another_replaced(store, ana, clock):
    clock.set(START)
    old = store.add(ana, "tea at four")
    clock.advance(DAY.total_seconds())
    new = store.add(ana, "tea at five")
    supersede_by_another(store, old, new)
    page = store.changes(ana, START + DAY)
    assert sorted(told(page)) == [("added", None, "tea at five"), ("superseded", "tea at four", None)]
    [replaced] = [c for c in page if c.what == "superseded"]
    assert (replaced.id, replaced.at, replaced.before.superseded_by) == (old.id, START + DAY, new.id)


def test_pages_hold_every_change_once(store, ana, clock):
    clock.set(START)
    for number in range(4):  # all at one moment
        made = store.add(ana, f"tea {number}")
        store.update(ana, made.id, content=f"coffee {number}")
        if number % 2:
            store.delete(ana, made.id)
    shared = store.add(BEN, "shared tea", visibility="team")
    store.update(BEN, shared.id, content="shared coffee")
    whole = list(store.changes(ana, EVER, limit=100))
    assert len(whole) == 12
    for size in (1, 2, 5, 11, 12, 13):
        pages, cursor = [], None
        while True:
            page = store.changes(ana, EVER, None, size, cursor)
            assert len(page) <= size
            pages += page
            cursor = page.next_cursor
            if cursor is None:
                break
        assert pages == whole


def test_paging_goes_on_while_changes_are_made(store, ana, clock):
    clock.set(START)
    made = [store.add(ana, f"tea {number}") for number in range(4)]
    first = store.changes(ana, EVER, limit=2)
    clock.advance(1)
    store.update(ana, made[0].id, content="coffee")
    rest = store.changes(ana, EVER, limit=10, cursor=first.next_cursor)
    assert told([*first, *rest]) == [
        *(("added", None, f"tea {n}") for n in range(4)),
        ("updated", "tea 0", "coffee"),
    ]


def test_limits_and_cursors_are_checked(store, ana, life):
    assert list(store.changes(ana, EVER, limit=0)) == []
    with pytest.raises(InvalidInput, match="limit"):
        store.changes(ana, EVER, limit=-1)
    other = store.get_all(ana, 1, include_history=True).next_cursor
    forged = ["", "x", "WzFd", "W10=", "bnVsbA==", 5, other or "eyJ9", "W251bGwsIDEsICIiLCAwXQ==", "\ud800"]
    for cursor in forged:
        with pytest.raises(InvalidInput, match="cursor"):
            store.changes(ana, EVER, cursor=cursor)


def test_wrong_arguments_are_named(store, ana):
    with pytest.raises(InvalidInput, match="since is missing"):
        store.changes(ana, None)
    with pytest.raises(InvalidTime, match="yesterday"):
        store.changes(ana, "yesterday")
    with pytest.raises(InvalidInput, match="unknown kind 'fact'"):
        store.changes(ana, EVER, kinds=["fact"])
    with pytest.raises(InvalidScope):
        store.changes("ana", EVER)


def test_kinds_agents_and_tasks_narrow(store):
    store.add(ANA, "tea person", kind="persona")
    store.add(ANA, "drank tea")
    store.add(Scope("acme", "ana", "coder"), "wrote tea")
    store.add(Scope("acme", "ana", "helper", "t1"), "planned tea")
    texts = lambda scope, **more: sorted(c.after.content for c in store.changes(scope, EVER, **more))
    assert texts(ANA, kinds=["persona"]) == ["tea person"]
    assert texts(ANA) == ["drank tea", "planned tea", "tea person"]
    assert texts(Scope("acme", "ana")) == ["drank tea", "planned tea", "tea person", "wrote tea"]
    assert texts(Scope("acme", "ana", "helper", "t2")) == ["drank tea", "tea person"]
    assert texts(ANA, kinds=[]) == []


def test_others_see_what_is_shared_and_nothing_of_what_was_deleted(store, clock):
    clock.set(START)
    store.add(ANA, "private tea")
    store.add(ANA, "restricted tea", visibility="restricted")
    shared = store.add(ANA, "shared tea", visibility="team")
    store.update(ANA, shared.id, content="shared coffee")
    assert told(store.changes(BEN, EVER)) == [
        ("added", None, "shared tea"),
        ("updated", "shared tea", "shared coffee"),
    ]
    store.delete(ANA, shared.id)
    assert told(store.changes(BEN, EVER)) == []
    assert [c.what for c in store.changes(ANA, EVER) if c.id == shared.id] == ["added", "updated", "deleted"]
    assert list(store.changes(Scope("other", "ana", "helper"), EVER)) == []
    assert list(store.changes(Scope("nowhere", "ana"), EVER)) == []


def test_who_left_the_team_sees_nothing(store):
    store.add(ANA, "tea")
    store.add(BEN, "shared tea", visibility="team")
    leave_team(store, BEN)
    assert list(store.changes(BEN, EVER)) == []
    assert len(store.changes(ANA, EVER)) == 2


def test_a_version_that_was_private_is_not_shown_as_before(store, ana):
    """Sharing will be a version too: what was written while the memory was private stays its owner's."""
    made = store.add(ana, "private wording", visibility="team")
    store.update(ana, made.id, content="public wording")
    with store._storage.write() as tx:
        tx._run("UPDATE memory_versions SET visibility = 'private' WHERE id = ? AND version = 1", (made.id,))
    assert told(store.changes(BEN, EVER)) == [("updated", None, "public wording")]
    assert told(store.changes(ana, EVER))[1] == ("updated", "private wording", "public wording")


def test_the_order_is_that_of_the_stamps_when_a_clock_was_set_back(store, ana, clock):
    """Case 35: nothing is lost or told twice; within one stamp, the order of arrival."""
    clock.set(START)
    made = store.add(ana, "tea 1", expires_at=START + DAY)
    clock.set(START - HOUR)
    store.update(ana, made.id, content="tea 2")
    store.delete(ana, store.add(ana, "coffee").id)
    clock.set(START + 2 * DAY)
    assert told(store.changes(ana, EVER)) == [
        ("updated", "tea 1", "tea 2"),
        ("added", None, "coffee"),
        ("deleted", "coffee", None),
        ("added", None, "tea 1"),
        ("expired", "tea 2", None),
    ]


def test_a_scoped_store_has_changes(store, ana):
    scoped = store.scoped(ana)
    scoped.add("tea")
    assert told(scoped.changes(EVER)) == [("added", None, "tea")]


def test_changes_are_one_snapshot_and_reads_of_the_past_walk_no_table(open_store, ana):
    seen: list[str] = []
    store = open_store(statement_hook=seen.append)
    for number in range(3):
        store.update(ana, store.add(ana, f"tea {number}").id, content="coffee")
    seen.clear()
    store.recall(ana, "tea", known_at=0)
    store.recall(ana, "tea", as_of=0, known_at=0)
    store.get_all(ana, as_of=0, known_at=0)
    asked = list(seen)
    seen.clear()
    assert len(store.changes(ana, EVER, datetime(2999, 1, 1, tzinfo=UTC), 2, None)) == 2
    assert sum(statement.startswith("BEGIN") for statement in seen) == 1
    with store._storage.exclusive_connection() as connection:
        for statement in asked + seen:
            if statement.startswith("SELECT"):
                assert scans(connection, statement) == []


@settings(max_examples=25)
@given(st.lists(STEP, min_size=3, max_size=14), GRID, st.integers(1, 4))
def test_the_changes_of_a_random_history(steps, until, size):
    """Against a model: what each call did, and which current versions expired; and in pages of any size."""
    with fresh_store() as store:
        history = History(store)
        for step in [*steps, ("pass", 3)]:
            history.apply(step)
        wanted = []
        for row_id in history.ids:
            versions = store.history(ANA, row_id)
            for number, version in enumerate(versions):
                wanted.append(
                    (version.recorded_at, "updated" if number else "added", row_id, version.version)
                )
                ended = version.superseded_at or datetime.max.replace(tzinfo=UTC)
                expiry = version.expires_at
                if expiry and version.recorded_at < expiry <= ended and expiry <= history.clock.now():
                    wanted.append((expiry, "expired", row_id, version.version))
            if versions[-1].state == "deleted":
                wanted.append((versions[-1].superseded_at, "deleted", row_id, versions[-1].version))
        end = None if until is None else START + until * HOUR
        since = START - HOUR
        wanted = [change for change in wanted if since <= change[0] and (end is None or change[0] < end)]
        found, cursor = [], None
        while True:
            page = store.changes(ANA, since, end, size, cursor)
            found += page
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sorted((c.at, c.what, c.id, c.version) for c in found) == sorted(wanted)
        assert [c.at for c in found] == sorted(c.at for c in found)
        for change in found:
            if change.what == "updated":
                assert (change.before.version, change.after.version) == (change.version - 1, change.version)


def test_times_of_the_far_past_and_future_are_legal(store, ana, clock):
    store.add(ana, "tea")
    assert to_micros(clock.now()) > 0
    for since in (0, -1, "0001-01-01T00:00:00Z", -(10**9)):
        assert len(store.changes(ana, since, "9999-12-31T23:59:59Z")) == 1
    assert contents([c.after for c in store.changes(ana, 0, None)]) == ["tea"]
    assert list(store.changes(ana, clock.now() + timedelta(days=1))) == []
