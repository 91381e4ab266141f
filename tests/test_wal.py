"""The write-ahead log stays small: emptied when asked, when idle, when too long, and at the end."""

import os
from pathlib import Path

import pytest

from conftest import said
from memstore.config import Settings
from memstore.errors import ConfigError, StoreBusy, StoreClosed
from memstore.storage.sqlite import wal
from memstore.store import MemoryStore
from reliability_support import SCOPE, assert_sound, open_store, say, texts


def size(path: Path) -> int:
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def test_a_checkpoint_that_is_asked_for_empties_the_log(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, idle_checkpoint_s=None) as store:
        say(store, "one", "two")
        before = size(path)
        done = store.checkpoint()
        assert (done.wal_bytes_before, done.wal_bytes, done.emptied) == (before, 0, True)
        assert before > 0
        assert size(path) == 0
        assert store.checkpoint().emptied, "nothing to do is no fault"
        say(store, "three")
        assert texts(store) == ["one", "two", "three"]
        assert_sound(store)


def test_a_reader_keeps_it_and_that_is_said(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, idle_checkpoint_s=None, busy_timeout_s=0.05) as store:
        say(store, "one")
        with store._storage.read() as reader:
            reader.team_ids()
            say(store, "two")
            done = store.checkpoint()
            assert not done.emptied
            assert done.wal_bytes > 0
        assert store.checkpoint().emptied
        assert size(path) == 0


def test_an_idle_store_empties_its_log_by_itself(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, idle_checkpoint_s=0.01) as store:
        watch = store._storage._wal
        for number in range(3):
            say(store, f"number {number}")
            while watch._emptied_behind != watch._writes:
                os.sched_yield()
            assert size(path) == 0
        assert texts(store) == ["number 0", "number 1", "number 2"]
    assert not watch._thread.is_alive()


def test_an_idle_store_waits_for_a_reader_to_end(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, idle_checkpoint_s=0.01) as store:
        watch = store._storage._wal
        with store._storage.read() as reader:
            reader.team_ids()
            say(store, "while someone reads")
            tried = []
            empty = watch._empty
            watch._empty = lambda **options: tried.append(empty(**options)) or tried[-1]
            while len(tried) < 3:
                os.sched_yield()
            assert not any(tried)
            assert size(path) > 0
        while watch._emptied_behind != watch._writes:
            os.sched_yield()
        assert size(path) == 0


def test_a_log_that_grew_too_long_is_emptied_by_the_writer(tmp_path, monkeypatch):
    """A reader that stays costs a look now and then, not one at each write."""
    monkeypatch.setattr(wal, "LIMIT_BYTES", 200_000)
    monkeypatch.setattr(wal, "WAIT_FOR_READERS_S", 0.001)
    path = tmp_path / "store.db"
    tried: list[float] = []
    with open_store(path, idle_checkpoint_s=None) as store:
        checkpoint = store._storage._wal._checkpoint
        store._storage._wal._checkpoint = lambda **how: tried.append(how["wait_s"]) or checkpoint(**how)
        with store._storage.read() as reader:
            reader.team_ids()
            for _ in range(60):
                say(store, "word " * 20)
            assert size(path) > 1_000_000
            assert len(tried) == 2
        for _ in range(wal.WRITES_BETWEEN_TRIES):
            say(store, "word")
        assert size(path) <= 400_000, "one more write may stand behind it"
        assert_sound(store)


def test_a_checkpoint_inside_a_write_is_refused(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        with store._storage.write(), pytest.raises(StoreBusy, match="this thread"):
            store.checkpoint()
        store.close()
        with pytest.raises(StoreClosed):
            store.checkpoint()


def test_a_clean_end_leaves_no_log(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "one")
        assert size(path) > 0
    assert not Path(f"{path}-wal").exists()


def test_a_file_that_is_gone_stops_no_idle_checkpoint_and_no_close(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path, idle_checkpoint_s=0.01) as store:
        watch = store._storage._wal
        tried = []
        empty = watch._empty
        watch._empty = lambda **options: tried.append(empty(**options)) or tried[-1]
        say(store, "one")
        path.rename(tmp_path / "moved.db")
        seen = len(tried)
        while len(tried) < seen + 2:
            os.sched_yield()
            if watch._emptied_behind == watch._writes:
                break
        assert watch._thread.is_alive()


@pytest.mark.parametrize("seconds", [0, -1, True, "5", float("nan"), 1e300])
def test_a_setting_that_makes_no_sense_is_named(seconds):
    with pytest.raises(ConfigError, match="idle_checkpoint_s"):
        Settings(idle_checkpoint_s=seconds)


def test_many_stores_leave_no_thread(tmp_path):
    import threading

    before = threading.active_count()
    for number in range(5):
        with MemoryStore(
            tmp_path / f"{number}.db", settings=Settings(timezone="UTC", durability="process")
        ) as store:
            store.record(SCOPE, said("word"), "chat")
            store.buffered().record(SCOPE, said("word"), "chat")
    assert threading.active_count() == before
