"""The reserve: room beside the database that lets deletes run when the disk is full."""

import errno
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cli_support import Cli
from faults_support import doubles
from memstore import reserve as module
from memstore.config import RESERVE_BYTES, Settings
from memstore.errors import ConfigError, FallbackError, NotFound, StoreBusy, StoreFull
from memstore.reserve import Reserve, delete_with_room, means_full, with_room
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import Message
from reliability_support import SCOPE, START, assert_sound, say

SIZE = 256 * 1024
HELD = Settings(timezone="UTC", durability="process", reserve_bytes=SIZE)


def held_by(path: Path) -> int:
    """What the file system really gave."""
    file = Path(f"{path}.reserve")
    return min(file.stat().st_blocks * 512, file.stat().st_size) if file.exists() else 0


def test_a_store_comes_with_a_reserve_that_is_really_allocated_and_the_owners_alone(tmp_path):
    path = tmp_path / "store.db"
    old = os.umask(0)
    try:
        with MemoryStore(path) as store:
            assert store.settings.reserve_bytes == RESERVE_BYTES
    finally:
        os.umask(old)
    assert held_by(path) == RESERVE_BYTES >= 2**20
    assert Path(f"{path}.reserve").stat().st_mode & 0o777 == 0o600
    before = Path(f"{path}.reserve").stat()
    MemoryStore(path).close()
    after = Path(f"{path}.reserve").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), (
        "an opening makes it once"
    )


def test_none_is_made_where_none_is_wanted(tmp_path):
    path = tmp_path / "store.db"
    with MemoryStore(path, settings=Settings(reserve_bytes=0)) as store:
        assert store.make_reserve() == store.release_reserve() == 0
        assert not [f for f in store.doctor().findings if f.check == "reserve"]
    assert not Path(f"{path}.reserve").exists()


@pytest.mark.parametrize("size", [-1, 1.5, True, "1 MB", None])
def test_the_setting_is_checked(size):
    with pytest.raises(ConfigError, match="reserve_bytes"):
        Settings(reserve_bytes=size)


def test_a_full_disk_at_opening_is_no_error_and_leaves_no_half_reserve(tmp_path, monkeypatch):
    path = tmp_path / "store.db"

    def full(descriptor: int, _offset: int, _size: int) -> None:
        os.ftruncate(descriptor, 4096)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with MemoryStore(path, settings=HELD) as store:
        say(store, "all the same")
        assert held_by(path) == 0
        assert not Path(f"{path}.reserve").exists()
        [found] = [f for f in store.doctor().findings if f.check == "reserve"]
        assert (found.severity, found.repair) == ("info", "memstore reserve")
        assert store.doctor().place["reserve_bytes"] == 0
    monkeypatch.undo()
    with MemoryStore(path, settings=HELD) as store:
        assert held_by(path) == SIZE
        assert not [f for f in store.doctor().findings if f.check == "reserve"]


def test_on_a_small_disk_it_takes_a_quarter_of_what_is_free_and_of_little_none(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    large = replace(HELD, reserve_bytes=16 * SIZE)
    for free, held in ((4 * SIZE - 1, 0), (4 * SIZE, SIZE), (40 * SIZE, 10 * SIZE), (400 * SIZE, 16 * SIZE)):
        monkeypatch.setattr(module, "free_bytes", lambda _path, free=free: free - held_by(path))
        MemoryStore(path, settings=large).close()
        assert held_by(path) == held


def test_a_disk_so_full_that_reading_finds_no_room_gets_the_reserve(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    with MemoryStore(path, settings=HELD) as store:
        ids = say(store, "one", "two")
    opened, refused = MemoryStore._opened, []

    def full_once(self, hook):
        if not refused:
            refused.append(held_by(path))
            raise StoreFull("no space left")
        return opened(self, hook)

    monkeypatch.setattr(MemoryStore, "_opened", full_once)
    monkeypatch.setattr(module, "free_bytes", lambda _path: 0)
    with MemoryStore(path, settings=HELD) as store:
        assert (refused, held_by(path)) == ([SIZE], 0)
        assert [m.id for m in store.messages(SCOPE, "agent:chat:one")] == ids


def test_a_file_of_somebodys_is_neither_filled_nor_removed(tmp_path, caplog):
    path = tmp_path / "store.db"
    mine = tmp_path / "store.db.reserve"
    mine.write_text("my notes")
    with MemoryStore(path, settings=HELD) as store:
        assert "is no reserve" in caplog.text
        assert (store.make_reserve(), store.release_reserve()) == (0, 0)
    assert mine.read_text() == "my notes"


def test_where_the_system_cannot_allocate_it_is_written(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "store.db"
    size = 2 * 2**20 + 4096
    reserve = Reserve(path, size)
    assert reserve.make()
    assert reserve.held() == held_by(path) == size


def test_one_that_is_short_or_hollow_is_made_whole(tmp_path):
    path = tmp_path / "store.db"
    reserve = Reserve(path, SIZE)
    reserve.path.touch(mode=0o644)
    os.truncate(reserve.path, SIZE)  # a size, and no blocks
    assert reserve.held() == 0
    assert reserve.make()
    assert reserve.held() == SIZE
    assert reserve.path.stat().st_mode & 0o777 == 0o600
    os.truncate(reserve.path, 4096)
    assert reserve.held() == 4096
    assert reserve.make()
    assert reserve.held() == SIZE
    assert reserve.release() == SIZE
    assert reserve.release() == 0
    assert reserve.held() == 0


def test_a_link_in_its_place_is_not_followed(tmp_path):
    path, elsewhere = tmp_path / "store.db", tmp_path / "precious"
    elsewhere.write_text("kept")
    Path(f"{path}.reserve").symlink_to(elsewhere)
    reserve = Reserve(path, SIZE)
    assert not reserve.make()
    assert reserve.held() == 0
    assert elsewhere.read_text() == "kept"


# --- when the disk is full ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (StoreFull("x"), True), (StoreBusy("x"), False), (FallbackError("x"), False), (OSError(errno.ENOSPC, "x"), True),
        (OSError(errno.EDQUOT, "x"), True), (OSError(errno.EIO, "x"), False), (OSError("x"), False),
    ],
)  # fmt: skip
def test_which_errors_mean_a_full_disk(error, full):
    assert means_full(error) is full
    outer = FallbackError("around it")
    outer.__cause__ = error
    assert means_full(outer) is full


def test_work_is_done_once_more_and_only_where_the_reserve_was_freed(tmp_path):
    reserve = Reserve(tmp_path / "store.db", SIZE)
    calls = []

    def work() -> str:
        calls.append(reserve.held())
        if reserve.held():
            raise StoreFull("no room")
        return "done"

    assert reserve.make()
    assert with_room(reserve, work) == "done"
    assert calls == [SIZE, 0]

    def hopeless() -> None:
        calls.append(reserve.held())
        raise StoreFull("no room")

    calls.clear()
    assert reserve.make()
    with pytest.raises(StoreFull):
        with_room(reserve, hopeless)
    assert calls == [SIZE, 0], "twice, not for ever"
    calls.clear()
    with pytest.raises(StoreFull):
        with_room(reserve, hopeless)
    assert calls == [0], "without a reserve there is nothing to try"

    def busy() -> None:
        raise StoreBusy("locked")

    assert reserve.make()
    with pytest.raises(StoreBusy):
        with_room(reserve, busy)
    assert reserve.held() == SIZE, "another error frees nothing"


def test_a_delete_that_turns_out_to_be_done_is_done(tmp_path):
    reserve = Reserve(tmp_path / "store.db", SIZE)
    assert reserve.make()

    def delete() -> None:
        if reserve.held():
            raise StoreFull("no room")
        raise NotFound("gone already")

    delete_with_room(reserve, delete)
    with pytest.raises(NotFound):
        delete_with_room(reserve, delete)


@contextmanager
def filled(path: Path):
    """A store on a disk that is full now, the reserve included, and what it holds."""
    with (
        doubles() as made,
        MemoryStore(path, HashEmbedder(8), ManualClock(START), HELD, **made.options) as store,
    ):
        ids = {"message": say(store, *(f"message {n} 银行卡" for n in range(40)))[3]}
        ids["memory"] = [store.add(SCOPE, f"memory {n}").id for n in range(10)][4]
        store.recall(SCOPE, "memory", trace=True)
        store.index()
        store.checkpoint()
        assert held_by(path) == SIZE
        made.plan.limit(path.parent, sum(f.stat().st_size for f in path.parent.rglob("*") if f.is_file()))
        yield store, made, ids


WAYS = {
    "delete a message": lambda store, ids: store.delete(SCOPE, ids["message"]),
    "delete a memory": lambda store, ids: store.delete(SCOPE, ids["memory"]),
    "delete all": lambda store, ids: store.delete_all(SCOPE),
    "delete a trace": lambda store, ids: store.delete_trace(SCOPE, store.traces(SCOPE)[0].id),
    "clear a session": lambda store, ids: store.clear_session(SCOPE, "agent:chat:one"),
    "delete a session": lambda store, ids: store.delete_session(SCOPE, "agent:chat:one"),
}


@pytest.mark.parametrize("way", WAYS)
def test_on_a_full_disk_things_can_be_deleted_and_the_log_emptied(tmp_path, way):
    path = tmp_path / "store.db"
    with filled(path) as (store, made, ids):
        before = (
            store.count(SCOPE),
            len(store.traces(SCOPE)),
            len(store.messages(SCOPE, "agent:chat:one", live_only=True)),
        )
        assert len(store.search_messages(SCOPE, "message 7")) > 0, "reads need no room"
        WAYS[way](store, ids)
        assert held_by(path) == 0
        after = store.count(SCOPE), len(store.traces(SCOPE)), 0
        if way != "delete a session":
            after = *after[:2], len(store.messages(SCOPE, "agent:chat:one", live_only=True))
        assert after != before
        assert store.checkpoint().emptied
        assert store.make_reserve() == SIZE, "there is room on the real disk"
        made.plan.lift()
        say(store, "goes on", session="agent:chat:two")
        assert_sound(store)


def test_new_rows_never_get_the_reserve(tmp_path):
    path = tmp_path / "store.db"
    with filled(path) as (store, made, ids):
        for attempt in (
            lambda: store.add(SCOPE, "a memory more"),
            lambda: store.update(SCOPE, ids["memory"], content="changed"),
            lambda: store.record(SCOPE, [Message("user", "x" * 50_000)], "agent:chat:one"),
            lambda: store.add_words(SCOPE, ["量子纠缠态"]),
        ):
            with pytest.raises(StoreFull):
                attempt()
            assert held_by(path) == SIZE
        made.plan.lift()
        assert store.count(SCOPE) == {"messages": 40, "memories": 10}
        assert_sound(store)


def test_it_is_freed_and_made_by_hand(tmp_path):
    path = tmp_path / "store.db"
    with MemoryStore(path, settings=HELD) as store:
        assert store.release_reserve() == SIZE
        assert held_by(path) == 0
        assert store.release_reserve() == 0
        assert store.make_reserve() == SIZE
        assert held_by(path) == SIZE


def test_the_command_makes_it_and_gives_it_up(tmp_path):
    cli = Cli(tmp_path / "store.db")
    cli.answer("add", "rain")
    made = {"held_bytes": RESERVE_BYTES, "freed_bytes": 0, "wanted_bytes": RESERVE_BYTES}
    assert cli.answer("reserve") == made
    assert cli.answer("reserve", "--release") == {**made, "held_bytes": 0, "freed_bytes": RESERVE_BYTES}
    assert held_by(cli.db) == 0
    assert cli.answer("reserve") == made
    assert held_by(cli.db) == RESERVE_BYTES


def test_the_command_fails_where_there_is_no_room(tmp_path, monkeypatch):
    cli = Cli(tmp_path / "store.db")
    cli.answer("add", "rain")
    cli.answer("reserve", "--release")
    monkeypatch.setattr(module, "free_bytes", lambda _path: 4096)
    failed = cli("reserve")
    assert failed.exit_code == 1
    assert '"held_bytes": 0' in failed.stdout
