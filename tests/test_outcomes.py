"""Where a message is when one of its two places cannot be written: ``Receipt.stored`` tells the truth, and each
message comes into the database exactly once (SPEC S7)."""

import fcntl
import json
import os
import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest

from conftest import said
from memstore.config import Settings
from memstore.errors import NotPermitted, StoreBusy, StoreExists, StoreFull, StoreIO, StoreUnsound
from memstore.fallback import day_files, folder_of
from memstore.files import SystemFiles
from memstore.journal import JournalCall
from memstore.storage.sqlite import SqliteStorage
from memstore.store import MemoryStore
from memstore.testing import FaultPlan, FaultyFiles, ManualClock
from memstore.types import Message, Scope
from reliability_support import (
    DAY,
    SCOPE,
    START,
    assert_comes_back,
    assert_sound,
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

ONE = "agent:chat:one"


def operations(path, op: str) -> list[dict]:
    return [line.operation for line in lines_of(path) if line.operation and line.operation["op"] == op]


@contextmanager
def locked(path):
    """The database's write lock, held by another connection of the same library."""
    storage = SqliteStorage(path, busy_timeout_s=5, durability="process")
    try:
        with storage.write():
            yield
    finally:
        storage.close()


def open_impatient(path, clock=None, **settings):
    return open_store(path, clock, busy_timeout_s=0.01, durability="process", **settings)


def ids_in_order(store, session=ONE) -> list[str]:
    return [m.id for m in store.messages(SCOPE, session)]


# --- the database is locked --------------------------------------------------------------------------------


def test_a_locked_database_leaves_the_message_in_the_fallback_and_the_next_write_brings_it_in(
    tmp_path, caplog
):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "before")
        with locked(path):
            receipt = store.record(SCOPE, said("while locked", "and this"), ONE)
        assert (receipt.stored, receipt.new, len(receipt.ids)) == ("fallback", 2, 2)
        assert "2 messages wait in the fallback" in caplog.text
        assert texts(store) == ["before"], "reads do not see it yet"
        after = say(store, "after")
        assert texts(store) == ["before", "while locked", "and this", "after"]
        assert ids_in_order(store)[1:] == [*receipt.ids, *after]
        assert [(m.position, m.arrival) for m in store.messages(SCOPE, ONE)] == [(n, n) for n in range(1, 5)]
        assert [hit.content for hit in store.search_messages(SCOPE, "locked")][:1] == ["while locked"]
        assert_sound(store)
        rows = dump(store)
    with open_store(path) as store:
        assert store.adopted == 0
    assert len(message_lines(path)) == 4
    assert [op["id"] for op in operations(path, "settled")] == [
        op["id"] for op in operations(path, "pending")
    ]
    assert not (folder_of(path) / "pending").exists()
    assert_comes_back(path, rows)


def test_it_is_brought_in_at_opening_and_only_once(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store, locked(path):
        ids = store.record(SCOPE, said("waits"), ONE).ids
    with open_store(path) as store:
        assert store.adopted == 1
        assert ids_in_order(store) == list(ids)
    with open_store(path) as store:
        assert store.adopted == 0
        assert texts(store) == ["waits"]
        assert_sound(store)


def test_another_process_that_opens_the_store_brings_it_in(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        with locked(path):
            store.record(SCOPE, said("from here"), ONE)
        finish_child(start_child("child_open_close", path))
        assert texts(store) == ["from here"]
        say(store, "and on")
        assert texts(store) == ["from here", "and on"]


def test_a_store_that_is_open_meanwhile_takes_up_what_another_day_holds(tmp_path):
    """The mark beside the day files tells of it, whatever day the other process believed it was."""
    path = tmp_path / "store.db"
    late, early = ManualClock(START + timedelta(days=1)), ManualClock(START)
    with open_impatient(path, late) as store, open_impatient(path, early) as other:
        say(store, "tuesday")
        say(store, "looked through")
        with locked(path):
            assert other.record(SCOPE, said("monday, late"), ONE).stored == "fallback"
        assert (folder_of(path) / "pending").stat().st_mode & 0o777 == 0o600
        say(store, "tuesday again")
        assert texts(store) == ["tuesday", "looked through", "monday, late", "tuesday again"]
        assert not (folder_of(path) / "pending").exists()


def test_a_client_id_that_waits_is_known(tmp_path):
    path = tmp_path / "store.db"
    message = Message("user", "did you get this?", id="c1")
    with open_impatient(path) as store:
        with locked(path):
            first = store.record(SCOPE, [message], ONE)
            again = store.record(SCOPE, [message, Message("user", "and this", id="c2")], ONE)
            changed = store.record(SCOPE, [Message("user", "other words", id="c1")], ONE)
        assert again.ids[0] == first.ids[0]
        assert (again.new, changed.new, changed.conflicts, changed.ids) == (1, 0, ("c1",), first.ids)
        assert store.record(SCOPE, [message], ONE).ids == first.ids
        assert ids_in_order(store) == list(again.ids)
        assert len(operations(path, "pending")) == 2


def test_a_transcript_that_grows_while_locked_is_one_conversation(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        history = [Message("user", "one"), Message("assistant", "two")]
        store.record(SCOPE, history, ONE, transcript=True)
        receipts = []
        with locked(path):
            for text in ("three", "four"):
                history.append(Message("user", text))
                receipts.append(store.record(SCOPE, history, ONE, transcript=True))
            forked = [Message("user", "one"), Message("assistant", "changed")]
            receipts.append(store.record(SCOPE, [*forked, Message("user", "end")], ONE, transcript=True))
        assert [r.stored for r in receipts] == ["fallback"] * 3
        assert [r.new for r in receipts] == [1, 1, 2]
        say(store, "after")
        held = {m.id: m.text for m in store.messages(SCOPE, ONE)}
        for receipt in receipts:
            assert set(receipt.ids) <= set(held), "no receipt names a message that is not there"
        assert [held[one] for one in receipts[1].ids] == ["one", "two", "three", "four"]
        live = [m.text for m in store.messages(SCOPE, ONE, live_only=True)]
        assert live == ["one", "changed", "end", "after"]
        assert_sound(store)
        rows = dump(store)
    assert_comes_back(path, rows)


def test_a_repeated_transcript_that_brings_nothing_new_adds_no_line(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        history = [Message("user", "one"), Message("assistant", "two")]
        first = store.record(SCOPE, history, ONE, transcript=True)
        with locked(path):
            again = store.record(SCOPE, history, ONE, transcript=True)
        assert (again.ids, again.new) == (first.ids, 0)
        assert operations(path, "pending") == []


def test_a_deleted_session_begins_anew_with_what_waited(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "old")
        store.delete_session(SCOPE, ONE)
        with locked(path):
            store.record(SCOPE, said("new"), ONE)
        say(store, "newer")
        assert texts(store) == ["new", "newer"]
        assert [record.title for record in store.sessions(SCOPE)] == ["new"]


def test_who_is_no_member_is_refused_also_while_locked(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "the team is there")
        with store._storage.write() as tx:
            tx._run("UPDATE teams SET auto_join = 0")
        with locked(path), pytest.raises(NotPermitted):
            store.record(Scope("team", "stranger", "agent"), said("hello"), ONE)
        assert operations(path, "pending") == []


def test_a_member_who_left_meanwhile_brings_nothing_in_and_it_is_said(tmp_path, caplog):
    path = tmp_path / "store.db"
    bob = Scope("team", "bob", "agent")
    with open_impatient(path) as store:
        say(store, "admin")
        say(store, "bob", scope=bob)
        with locked(path):
            store.record(bob, said("too late"), ONE)
        with store._storage.write() as tx:
            tx._run("UPDATE members SET left_at = 1 WHERE user_id = 'bob'")
        say(store, "next")
        assert "not a member" in caplog.text
        assert "refused" in operations(path, "settled")[0]
        say(store, "one more")
        assert len(operations(path, "settled")) == 1


def test_other_verbs_fail_while_locked_and_change_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        ids = say(store, "one")
        memory = store.add(SCOPE, "a memory")
        before, lines = dump(store), len(lines_of(path))
        calls = [
            lambda: store.add(SCOPE, "another"),
            lambda: store.update(SCOPE, memory.id, content="changed"),
            lambda: store.delete(SCOPE, memory.id),
            lambda: store.delete(SCOPE, ids[0]),
            lambda: store.clear_session(SCOPE, ONE),
            lambda: store.delete_session(SCOPE, ONE),
            lambda: store.set_session(SCOPE, ONE, pinned=True),
        ]
        with locked(path):
            for call in calls:
                with pytest.raises(StoreBusy, match="try again"):
                    call()
        assert dump(store) == before
        assert store.get(SCOPE, memory.id).content == "a memory"
        assert len(lines_of(path)) == lines


def test_neither_place_can_be_written_the_call_fails_and_names_both(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        folder_of(path).write_text("in the way")
        with locked(path), pytest.raises(StoreBusy, match=r"was not stored.*could not be written"):
            store.record(SCOPE, said("lost?"), ONE)
        folder_of(path).unlink()
        assert texts(store) == []
        say(store, "kept")
        assert texts(store) == ["kept"]


def test_recovery_brings_in_what_only_waited(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "one")
        with locked(path):
            ids = store.record(SCOPE, said("two", "three"), ONE).ids
    remove_database(path)
    report = MemoryStore.recover(path, out=tmp_path / "new.db")
    assert report.messages == 3
    with open_store(tmp_path / "new.db") as store:
        assert store.adopted == 0
        assert texts(store) == ["one", "two", "three"]
        assert ids_in_order(store)[1:] == list(ids)
        assert_sound(store)


# --- lines that come between --------------------------------------------------------------------------------


def test_a_line_that_another_process_leaves_before_ours_is_not_passed_over(tmp_path):
    """It comes after this write looked and before it appends: without the lock, at any moment."""
    path = tmp_path / "store.db"
    with open_impatient(path) as store, open_impatient(path) as other:
        say(store, "first")
        append, left = store._fallback.append, []

        def append_behind_another(*what, **options):
            if not left:
                left.append(other.record(SCOPE, said("left meanwhile"), ONE))
            return append(*what, **options)

        store._fallback.append = append_behind_another
        ours = say(store, "ours")
        del store._fallback.append
        assert left[0].stored == "fallback"
        assert texts(store) == ["first", "ours", "left meanwhile"]
        assert ids_in_order(store)[1:] == [*ours, *left[0].ids]
        assert_sound(store)
        rows = dump(store)
    with open_store(path) as store:
        assert store.adopted == 0
    assert_comes_back(path, rows)


def test_a_call_whose_write_was_cut_short_counts_as_a_whole_or_not_at_all(tmp_path):
    """N: every 29th length of the last call's lines, and the last two."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "before")
    file = day_files(folder_of(path))[0]
    whole = len(file.read_bytes())

    def work() -> None:
        store = open_store(path)
        append = store._fallback.append
        store._fallback.append = lambda *what, **options: (append(*what, **options), os._exit(9))
        say(store, "one", "two", "three")

    assert in_fork(work) == 9
    content = file.read_bytes()
    seen = set()
    for length in [*range(whole, len(content), 29), len(content) - 1, len(content)]:
        victim = tmp_path / str(length) / "store.db"
        folder_of(victim).mkdir(parents=True)
        (folder_of(victim) / file.name).write_bytes(content[:length])
        report = MemoryStore.recover(victim)
        with open_store(victim) as store:
            found = texts(store)
            assert found in (["before"], ["before", "one", "two", "three"])
            assert report.messages == len(found)
            seen.add(len(found))
            say(store, "after")
            assert texts(store) == [*found, "after"]
    assert seen == {1, 4}


def test_a_torn_call_is_left_out_by_the_next_write_and_by_every_recovery(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "before")

    def work() -> None:
        store = open_store(path)
        append = store._fallback.append
        store._fallback.append = lambda *what, **options: (append(*what, **options), os._exit(9))
        say(store, "one", "two", "three")

    assert in_fork(work) == 9
    file = day_files(folder_of(path))[0]
    content = file.read_bytes()
    file.write_bytes(content[: content.rindex(b"three")])  # two whole lines and half of the third
    with open_store(path) as store:
        assert (store.adopted, texts(store)) == (0, ["before"])
        say(store, "after")
        assert texts(store) == ["before", "after"]
        assert store.doctor().ok  # with a warning of the torn line
        rows = dump(store)
    assert len(operations(path, "void")) == 1
    assert_comes_back(path, rows)


# --- day files that others touch, and files that are in the way ------------------------------------------------


@pytest.mark.parametrize("how", ["removed", "truncated"])
def test_what_waits_in_a_file_that_took_anothers_place_is_taken_up(tmp_path, how):
    """The new file grows past the old mark: what stood before the mark tells the two apart."""
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "first")
        file = day_files(folder_of(path))[0]
        file.unlink() if how == "removed" else os.truncate(file, 0)
        with locked(path):
            texts_waiting = [f"waits {number} " + "x" * 500 for number in range(4)]
            for text in texts_waiting:
                assert store.record(SCOPE, said(text), ONE).stored == "fallback"
        say(store, "after")
        assert texts(store) == ["first", *texts_waiting, "after"]
    with open_store(path) as store:
        assert store.adopted == 0


def test_what_waits_in_a_file_that_is_shorter_than_the_one_before_is_taken_up_at_opening(tmp_path):
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "first " + "x" * 5_000)
        day_files(folder_of(path))[0].unlink()
        with locked(path):
            assert store.record(SCOPE, said("waits"), ONE).stored == "fallback"
    with open_store(path) as store:
        assert store.adopted == 1
        assert texts(store)[1:] == ["waits"]


def test_nothing_is_written_into_another_stores_file(tmp_path):
    path, foreign = tmp_path / "store.db", tmp_path / "foreign.db"
    with open_impatient(foreign) as other:
        say(other, "theirs")
    with open_impatient(path) as store:
        say(store, "first")
        theirs = day_files(folder_of(foreign))[0].read_bytes()
        file = day_files(folder_of(path))[0]
        file.unlink()
        file.write_bytes(theirs)
        assert store.record(SCOPE, said("kept by the database"), ONE).stored == "database"
        with locked(path), pytest.raises(StoreBusy, match="another store's"):
            store.record(SCOPE, said("neither"), ONE)
        assert file.read_bytes() == theirs
        file.unlink()
        say(store, "after")
        assert texts(store) == ["first", "kept by the database", "after"]
        assert {json.loads(op["content"]) for op in operations(path, "message")} == {
            "kept by the database",
            "after",
        }


def test_a_file_whose_lock_is_kept_makes_no_one_wait_for_ever(tmp_path):
    """A process that was stopped, or hangs in a sync, while it holds the lock of a day file."""
    path = tmp_path / "store.db"
    with open_impatient(path) as store:
        say(store, "first")
        file = day_files(folder_of(path))[0]
        with file.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert store.record(SCOPE, said("second"), ONE).stored == "database"
            with locked(path), pytest.raises(StoreBusy, match="keeps it locked"):
                store.record(SCOPE, said("neither"), ONE)
        assert store.record(SCOPE, said("third"), ONE).stored == "both"
        assert texts(store) == ["first", "second", "third"]
        assert len(message_lines(path)) == 3


@pytest.mark.parametrize("name", ["pending", "2026-03-01.jsonl"])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for_and_is_named(tmp_path, name, kind):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    folder_of(path).mkdir()
    (os.mkfifo if kind == "pipe" else os.mkdir)(folder_of(path) / name)
    with open_impatient(path, clock) as store:
        assert store.record(SCOPE, said("kept"), ONE).stored == "database"
        with locked(path), pytest.raises(StoreBusy, match="was not stored"):
            store.record(SCOPE, said("neither"), ONE)
        found = [f for f in store.doctor().findings if f.check == "fallback"]
        assert [(f.severity, f.repair.split()[0]) for f in found] == [("error", "mv")]
        (folder_of(path) / name).rename(tmp_path / "moved")
        say(store, "again")
        assert texts(store) == ["kept", "again"]
        assert [f for f in findings(store) if f[0] == "fallback"] == []


def test_a_pipe_in_the_place_of_the_database_is_refused(tmp_path):
    os.mkfifo(tmp_path / "store.db")
    with pytest.raises(StoreUnsound, match="pipe"):
        open_store(tmp_path / "store.db")


def test_a_line_that_can_neither_be_synced_nor_taken_back_is_no_clear_no(tmp_path):
    path = tmp_path / "store.db"
    plan = FaultPlan()
    settings = Settings(timezone="UTC", busy_timeout_s=0.01)
    with MemoryStore(path, settings=settings, files=FaultyFiles(plan)) as store:
        say(store, "first")
        plan.fail("error", operations=["sync", "truncate"], file=("*.jsonl",), sticky=True)
        with locked(path), pytest.raises(StoreBusy, match="look before you say it again"):
            store.record(SCOPE, said("pay 100"), ONE)
        plan.lift()
        say(store, "after")
        assert texts(store) == ["first", "pay 100", "after"]


def test_the_name_of_a_file_made_anew_is_synced_though_its_inode_is_an_old_one(tmp_path):
    path = tmp_path / "store.db"

    class Counting(SystemFiles):
        folders = 0

        def sync_folder(self, folder) -> None:
            self.folders += 1
            super().sync_folder(folder)

    files = Counting()
    with MemoryStore(path, settings=Settings(timezone="UTC"), files=files) as store:
        say(store, "first")
        before = files.folders
        say(store, "second")
        assert files.folders == before
        day_files(folder_of(path))[0].unlink()
        say(store, "third")
        assert files.folders > before


def test_a_recovery_writes_over_no_other_stores_lines(tmp_path):
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    for path in (one, two):
        with open_store(path, ManualClock(START)) as store:
            say(store, f"of {path.stem}")
    before = day_files(folder_of(two))[0].read_bytes()
    remove_database(two)
    with pytest.raises(StoreExists, match="another store"):
        MemoryStore.recover(one, out=two)
    assert day_files(folder_of(two))[0].read_bytes() == before


def test_an_interrupt_behind_the_commit_of_a_group_stores_no_ones_message_twice(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
        journal, covered = store._journal, store._journal._covered
        calls = [store._recorder.prepare(SCOPE, said(f"n{n}"), ONE) for n in range(3)]
        group = [JournalCall(store._recorder._work(call)) for call in calls]

        def interrupted(asked):
            covered(asked)
            journal._covered = covered
            raise KeyboardInterrupt

        journal._covered = interrupted
        journal._grouping._waiting.extend(group[1:])
        with pytest.raises(KeyboardInterrupt):
            journal._grouping.submit(group[:1])
        say(store, "last")  # whoever comes next carries out what waits
        assert all(call.error is None for call in group[1:])
        assert sorted(texts(store)) == ["first", "last", "n0", "n1", "n2"]
        assert_sound(store)


def test_a_machine_that_gives_no_thread_still_acknowledges(tmp_path, monkeypatch):
    path = tmp_path / "store.db"

    def refuse(_thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with open_store(path) as store:
        say(store, "one")
        say(store, "two")
    monkeypatch.undo()
    with open_store(path) as store:
        assert texts(store) == ["one", "two"]


# --- a commit whose outcome is open --------------------------------------------------------------------------


class FailedCommit:
    """Makes the next COMMIT of a store's writing connection fail, before or after it took place; or all of them."""

    def __init__(self, store: MemoryStore, *, took_place: bool, for_good: bool = False) -> None:
        self.store = store
        self.took_place = took_place
        self.for_good = for_good

    def __enter__(self) -> None:
        import apsw

        storage = self.store._storage
        real = storage._writer_connection

        class Connection:
            def __init__(self, connection) -> None:
                self._connection = connection

            def __getattr__(self, name):
                return getattr(self._connection, name)

            def execute(inner, statement, *bindings):  # noqa: N805
                if statement == "COMMIT":
                    if not self.for_good:
                        storage._writer_connection = real
                    if self.took_place:
                        inner._connection.execute("COMMIT").fetchall()
                    raise apsw.IOError("a fault at the commit")
                return inner._connection.execute(statement, *bindings)

        storage._writer_connection = lambda: Connection(real())

    def __exit__(self, *_: object) -> None:
        assert "_writer_connection" in vars(self.store._storage), "the fault was met"
        del self.store._storage._writer_connection


@pytest.mark.parametrize("took_place", [True, False])
@pytest.mark.parametrize("durability", ["disk", "process"])
def test_a_commit_that_failed_is_settled_by_what_is_there(tmp_path, took_place, durability):
    path = tmp_path / "store.db"
    with open_store(path, durability=durability) as store:
        say(store, "first")
        with FailedCommit(store, took_place=took_place):
            receipt = store.record(SCOPE, said("second"), ONE)
        assert receipt.stored == "both", "the fault has passed by: nothing is left open"
        assert texts(store) == ["first", "second"]
        assert ids_in_order(store)[1:] == list(receipt.ids)
        assert_sound(store)
    with open_store(path) as store:
        assert store.adopted == 0
        assert texts(store) == ["first", "second"]


def test_lines_of_a_failed_commit_on_a_far_day_are_taken_up_by_the_next_write(tmp_path):
    """The clock jumped and came back. Its numbers are not those of later lines: nothing is torn apart by them."""
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
        store.backup(tmp_path / "early.gz")
        clock.advance(5 * DAY)
        with FailedCommit(store, took_place=False, for_good=True):
            assert store.record(SCOPE, said("on a day to come", "and on"), ONE).stored == "fallback"
        clock.set(START + timedelta(minutes=1))
        say(store, "back", "and forth", "again")
        assert texts(store) == ["first", "on a day to come", "and on", "back", "and forth", "again"]
        assert_sound(store)
        rows = dump(store)
    remove_database(path)
    MemoryStore.restore(tmp_path / "early.gz", path)
    with open_store(path, clock) as store:
        assert texts(store) == ["first", "on a day to come", "and on", "back", "and forth", "again"]
    assert_comes_back(path, rows, clock)


def test_strange_lines_with_the_numbers_of_a_call_in_another_days_file_tear_nothing_apart(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_store(path, clock) as store:
        say(store, "first")
        store.backup(tmp_path / "early.gz")
    later = (START + timedelta(days=5)).isoformat()
    with open_store(path, clock) as store:
        say(store, "open before")
        finish_child(start_child("child_die_at", path, "never acknowledged", later))
        say(store, "one", "two", "three")
        assert [m.text for m in store.messages(SCOPE, ONE)][-3:] == ["one", "two", "three"]
    remove_database(path)
    MemoryStore.restore(tmp_path / "early.gz", path)
    with open_store(path, clock) as store:
        found = texts(store)
        assert [text for text in found if text != "never acknowledged"] == [
            "first",
            "open before",
            "one",
            "two",
            "three",
        ]


@pytest.mark.parametrize("verb", ["add", "update", "delete", "delete_all"])
def test_a_memory_whose_commit_failed_is_told_by_what_is_there(tmp_path, verb):
    path = tmp_path / "store.db"
    calls = {
        "add": lambda store, _: store.add(SCOPE, "new"),
        "update": lambda store, memory: store.update(SCOPE, memory.id, content="changed"),
        "delete": lambda store, memory: store.delete(SCOPE, memory.id),
        "delete_all": lambda store, _: store.delete_all(SCOPE),
    }
    with open_store(path) as store:
        memory = store.add(SCOPE, "old")
        before = [(m.content, m.version, m.state) for m in store.history(SCOPE, memory.id)]
        with FailedCommit(store, took_place=False), pytest.raises(StoreIO):
            calls[verb](store, memory)
        assert [(m.content, m.version, m.state) for m in store.history(SCOPE, memory.id)] == before
        assert store.count(SCOPE)["memories"] == 1
        with FailedCommit(store, took_place=True):
            calls[verb](store, memory)
        now = [(m.content, m.state) for m in store.get_all(SCOPE)]
        assert (
            now
            == {
                "add": [("new", "live"), ("old", "live")],
                "update": [("changed", "live")],
                "delete": [],
                "delete_all": [],
            }[verb]
        )
        assert_sound(store)


def test_what_an_unwritable_fallback_is_owed_survives_a_failed_commit(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        folder_of(path).write_text("in the way")
        with FailedCommit(store, took_place=True):
            assert store.record(SCOPE, said("kept"), ONE).stored == "database"
        folder_of(path).unlink()
        say(store, "next")
        assert texts(store) == ["kept", "next"]
        assert [json.loads(op["content"]) for op in operations(path, "message")] == ["kept", "next"]


# --- many callers, one transaction ---------------------------------------------------------------------------


def test_callers_that_wait_share_a_transaction_and_each_hears_of_its_own(tmp_path):
    path = tmp_path / "store.db"
    commits: list[str] = []
    settings = Settings(timezone="UTC")
    hook = lambda s: commits.append(s) if s == "COMMIT" else None
    with MemoryStore(path, settings=settings, statement_hook=hook) as store:
        say(store, "the team")
        with store._storage.write() as tx:
            tx._run("UPDATE teams SET auto_join = 0")
        outcomes: dict[int, object] = {}

        def call(number: int) -> None:
            user = "user" if number % 3 else f"stranger{number}"
            try:
                outcomes[number] = store.record(
                    Scope("team", user, "agent"), said(f"n{number}"), f"s{number % 2}"
                )
            except NotPermitted as error:
                outcomes[number] = error

        threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
        with store._journal._grouping.leading:  # all come while one leads
            for thread in threads:
                thread.start()
            while len(store._journal._grouping._waiting) < len(threads):
                pass
            commits.clear()
        for thread in threads:
            thread.join()
        assert len(commits) == 1
        refused = {number for number, outcome in outcomes.items() if isinstance(outcome, NotPermitted)}
        assert refused == {0, 3, 6, 9}
        stored = {m.text for key in ("s0", "s1") for m in store.messages(SCOPE, key)}
        assert stored == {f"n{number}" for number in range(12) if number % 3}
        assert_sound(store)
        rows = dump(store)
    assert_comes_back(path, rows)


def test_a_fault_in_one_callers_work_is_not_the_others(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "first")
        journal = store._journal

        def broken(_tx, _operations):
            raise ZeroDivisionError

        calls = journal.write(
            [
                lambda tx, lines: store._memories._delete_messages(SCOPE, ids_in_order(store), tx, lines),
                broken,
                lambda _tx, _lines: "fine",
            ]
        )
        assert [type(call.error) for call in calls] == [type(None), ZeroDivisionError, type(None)]
        assert (calls[0].value, calls[2].value) == (1, "fine")
        assert texts(store) == []


def test_a_locked_database_makes_a_whole_group_wait_once(tmp_path):
    path = tmp_path / "store.db"
    begins: list[str] = []
    hook = lambda s: begins.append(s) if s.startswith("BEGIN IMMEDIATE") else None
    settings = Settings(busy_timeout_s=0.01, timezone="UTC")
    with MemoryStore(path, settings=settings, statement_hook=hook) as store, locked(path):
        calls = [store._recorder.prepare(SCOPE, said(f"n{n}"), ONE) for n in range(5)]
        begins.clear()
        outcomes = store._recorder.record(calls)
        assert len(begins) == 1
        assert [outcome.stored for outcome in outcomes] == ["fallback"] * 5


# --- a full disk ---------------------------------------------------------------------------------------------


def test_a_database_that_is_full_keeps_messages_in_the_fallback_until_there_is_room(tmp_path):
    path = tmp_path / "store.db"

    def work(report) -> None:
        import resource

        store = open_store(path)
        say(store, "first")
        limit = max(p.stat().st_size for p in tmp_path.iterdir() if p.is_file())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        stored = []
        while stored.count("fallback") < 3:
            text = f"number {len(stored):03} " + "x" * 9000
            stored.append(store.record(SCOPE, said(text), ONE).stored)
        number = len(stored)
        report(number)
        try:
            store.add(SCOPE, "x" * 90_000)
        except (StoreFull, StoreIO) as error:
            report(type(error).__name__)
        report(len(texts(store)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        say(store, "room again")
        report([text[:10] for text in texts(store)])
        store.close()

    code, (number, error, before, after) = report_of(work)
    assert code == 0
    assert error in ("StoreFull", "StoreIO")
    assert before == number - 2
    assert after == ["first", *(f"number {n:03}" for n in range(number)), "room again"]
    with open_store(path) as store:
        assert store.adopted == 0
        assert_sound(store)


def test_days_are_read_in_their_order(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with open_impatient(path, clock) as store:
        say(store, "first")
        with locked(path):
            store.record(SCOPE, said("monday"), ONE)
            clock.advance(DAY)
            store.record(SCOPE, said("tuesday"), ONE)
    with open_store(path, clock) as store:
        assert store.adopted == 2
        assert texts(store) == ["first", "monday", "tuesday"]
