"""Recording in batches: fewer transactions, the same rows, and nothing acknowledged before it is written."""

import threading

import pytest

from conftest import said
from memstore.config import Settings
from memstore.errors import ConfigError, InvalidInput, NotPermitted, StoreClosed
from memstore.storage.sqlite import SqliteStorage
from memstore.store import MemoryStore
from memstore.types import Message, Scope
from reliability_support import SCOPE, assert_sound, in_fork, message_lines, open_store, texts

FOREVER = 3600.0
ONE = "agent:chat:one"


def counting(path, commits: list[str]) -> MemoryStore:
    hook = lambda statement: commits.append(statement) if statement == "COMMIT" else None
    return MemoryStore(path, settings=Settings(timezone="UTC", durability="process"), statement_hook=hook)


def test_so_many_messages_are_one_transaction(tmp_path):
    commits: list[str] = []
    with (
        counting(tmp_path / "store.db", commits) as store,
        store.buffered(messages=10, seconds=FOREVER) as buffer,
    ):
        commits.clear()
        futures = [buffer.record(SCOPE, said(f"n{number}"), f"s{number % 2}") for number in range(9)]
        assert commits == []
        assert not any(future.done() for future in futures)
        futures.append(buffer.record(SCOPE, said("n9"), "s1"))
        assert all(future.done() for future in futures)
        assert len([c for c in commits if c == "COMMIT"]) == 1
        assert {future.result().stored for future in futures} == {"both"}
        assert texts(store, "s0") == ["n0", "n2", "n4", "n6", "n8"]
        assert [future.result().ids[0] for future in futures[1::2]] == [
            m.id for m in store.messages(SCOPE, "s1")
        ]
        assert_sound(store)


def test_what_waits_is_written_after_a_while_without_being_asked(tmp_path):
    with open_store(tmp_path / "store.db") as store, store.buffered(messages=1000, seconds=0.01) as buffer:
        receipt = buffer.record(SCOPE, said("in time"), ONE).result(timeout=60)
        assert (receipt.stored, receipt.new) == ("both", 1)
        again = buffer.record(SCOPE, said("and again"), ONE).result(timeout=60)
        assert again.new == 1
        assert texts(store) == ["in time", "and again"]


def test_leaving_the_block_and_closing_the_store_write_what_waits(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        with store.buffered(messages=1000, seconds=FOREVER) as buffer:
            first = buffer.record(SCOPE, said("left"), ONE)
        assert first.result(timeout=0).new == 1
        other = store.buffered(messages=1000, seconds=FOREVER)
        second = other.record(SCOPE, said("closed"), ONE)
    assert second.result(timeout=0).new == 1
    for late in (buffer, other):
        with pytest.raises(StoreClosed, match="closed"):
            late.record(SCOPE, said("late"), ONE)
        late.close()
    with open_store(path) as store:
        assert texts(store) == ["left", "closed"]
    assert len(message_lines(path)) == 2


def test_each_call_hears_of_its_own_fault(tmp_path):
    with open_store(tmp_path / "store.db") as store, store.buffered(messages=1000, seconds=FOREVER) as buffer:
        store.record(SCOPE, said("first"), ONE)
        with store._storage.write() as tx:
            tx._run("UPDATE teams SET auto_join = 0")
        with pytest.raises(InvalidInput, match="role"):
            buffer.record(SCOPE, [Message("nobody", "x")], ONE)
        good = buffer.record(SCOPE, said("good"), ONE)
        refused = buffer.record(Scope("team", "stranger", "agent"), said("refused"), ONE)
        nothing = buffer.record(SCOPE, [], ONE)
        also = buffer.record(SCOPE, Message("user", "one message, no list"), ONE)
        buffer.flush()
        assert (good.result(0).new, nothing.result(0).new, also.result(0).new) == (1, 0, 1)
        with pytest.raises(NotPermitted):
            refused.result(0)
        assert texts(store) == ["first", "good", "one message, no list"]


def test_order_inside_a_session_is_that_of_the_calls(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store, store.buffered(messages=7, seconds=FOREVER) as buffer:
        futures: dict[int, list] = {number: [] for number in range(4)}

        def write(number: int) -> None:
            for call in range(30):
                futures[number].append(buffer.record(SCOPE, said(f"{call:02}"), f"own{number}"))

        threads = [threading.Thread(target=write, args=(number,)) for number in futures]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        buffer.flush()
        for number, made in futures.items():
            assert texts(store, f"own{number}") == [f"{call:02}" for call in range(30)]
            assert [f.result(0).ids[0] for f in made] == [m.id for m in store.messages(SCOPE, f"own{number}")]
        assert_sound(store)


def test_while_the_database_is_locked_the_whole_batch_waits_in_the_fallback(tmp_path):
    path = tmp_path / "store.db"
    settings = Settings(timezone="UTC", durability="process", busy_timeout_s=0.01)
    with (
        MemoryStore(path, settings=settings) as store,
        store.buffered(messages=1000, seconds=FOREVER) as buffer,
    ):
        other = SqliteStorage(path, busy_timeout_s=5, durability="process")
        with other.write():
            futures = [buffer.record(SCOPE, said(f"n{number}"), ONE) for number in range(3)]
            buffer.flush()
        other.close()
        assert [future.result(0).stored for future in futures] == ["fallback"] * 3
        store.record(SCOPE, said("after"), ONE)
        assert texts(store) == ["n0", "n1", "n2", "after"]


def test_a_forked_child_is_told_instead_of_waiting(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store, store.buffered(seconds=FOREVER) as buffer:

        def work() -> None:
            with pytest.raises(StoreClosed, match="parent"):
                buffer.record(SCOPE, said("from the child"), ONE)

        assert in_fork(work) == 0


def test_a_fault_of_one_flush_ends_neither_the_thread_nor_the_others(tmp_path):
    with open_store(tmp_path / "store.db") as store, store.buffered(messages=1000, seconds=0.01) as buffer:
        work, broken = store._recorder._work, []

        def failing(call):
            if call.rows[0].content == '"broken"' and not broken:
                broken.append(call)
                return lambda _tx, _operations: 1 / 0
            return work(call)

        store._recorder._work = failing
        bad = buffer.record(SCOPE, said("broken"), ONE)
        with pytest.raises(ZeroDivisionError):
            bad.result(timeout=60)
        assert buffer.record(SCOPE, said("fine"), ONE).result(timeout=60).new == 1


def test_a_future_cannot_be_called_back(tmp_path):
    with open_store(tmp_path / "store.db") as store, store.buffered(seconds=FOREVER) as buffer:
        future = buffer.record(SCOPE, said("kept"), ONE)
        assert not future.cancel()
        buffer.flush()
        assert texts(store) == ["kept"]


@pytest.mark.parametrize(
    "options",
    [
        {"messages": 0},
        {"messages": True},
        {"messages": 1.5},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": "1"},
    ],
)
def test_settings_that_make_no_sense_are_named(tmp_path, options):
    with open_store(tmp_path / "store.db") as store, pytest.raises(ConfigError, match=next(iter(options))):
        store.buffered(**options)
