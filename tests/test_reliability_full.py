"""A full disk, end to end: R5 of the reliability goals.

What can still be read is read, what was accepted is never lost, errors say what to do, deleting frees room by the
reserve, and once there is space again everything accepted is in the database, once. The disk is a model by default;
``MEMSTORE_TEST_TMPFS=1`` also mounts real ones of 8 MB, which takes root.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faults_support import ONE, doubles, errors_in, merged_lines
from memstore.config import Settings
from memstore.errors import FallbackError, StoreError, StoreFull
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import SCOPE, START, dump, lines_of

MIB = 2**20
TMPFS = 8 * MIB
ROOM = 4 * MIB
"""For a store on a small disk: an empty one takes most of a megabyte, and as much again in its log."""
FILLER = " ".join(f"word{n % 50} and so on" for n in range(600))
SIZES = (len(FILLER), 1_000, 0)
"""Of the texts, the largest first: a disk that has no room for one may have it for a smaller one."""


@dataclass
class Place:
    """A folder on a disk that fills up, and how to make room on it again."""

    root: Path
    options: dict[str, object]
    give_space: Callable[[], object]
    reserve_bytes: int

    @property
    def path(self) -> Path:
        return self.root / "store.db"

    @contextmanager
    def open(self) -> Iterator[MemoryStore]:
        """Closing empties the log, which a full disk may have no room for: the log stays then, and nothing is lost."""
        settings = Settings(
            timezone="UTC",
            durability="disk",
            busy_timeout_s=0.05,
            idle_checkpoint_s=None,
            reserve_bytes=self.reserve_bytes,
        )
        store = MemoryStore(self.path, clock=ManualClock(START), settings=settings, **self.options)
        try:
            yield store
        finally:
            with suppress(StoreFull):
                store.close()


def model_place(stack: ExitStack, root: Path, *, full: str) -> Place:
    made = stack.enter_context(doubles())
    (root / "store.db.fallback").mkdir(mode=0o700)
    if full != "fallback":
        made.plan.limit(root, ROOM)
    if full != "both":  # a disk of its own
        made.plan.limit(root / "store.db.fallback", MIB // 8 if full == "fallback" else 100 * MIB)
    return Place(root, made.options, made.plan.lift, MIB)


def tmpfs_place(stack: ExitStack, root: Path, *, full: str) -> Place:
    folder = root / "store.db.fallback"
    if full != "fallback":
        mount(stack, root)
    folder.mkdir(mode=0o700)
    if full != "both":
        mount(stack, folder, TMPFS if full == "fallback" else 64 * MIB)
    filler = (folder if full == "fallback" else root) / "filler"
    filler.write_bytes(bytes(TMPFS - ROOM))
    return Place(root, {}, filler.unlink, MIB)


def mount(stack: ExitStack, folder: Path, size: int = TMPFS) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder], check=True)
    stack.callback(subprocess.run, ["umount", folder], check=True)


TMPFS_REASON = "real file systems are mounted by MEMSTORE_TEST_TMPFS=1, which takes root"


@pytest.fixture(
    params=[
        "model",
        pytest.param(
            "tmpfs", marks=pytest.mark.skipif("MEMSTORE_TEST_TMPFS" not in os.environ, reason=TMPFS_REASON)
        ),
    ]
)
def place_on(request, tmp_path) -> Iterator[Callable[..., Place]]:
    """Makes the disk. ``full``: which of ``database``, ``fallback`` or ``both`` fills up."""
    with ExitStack() as stack:
        make = model_place if request.param == "model" else tmpfs_place

        def made(full: str) -> Place:
            root = tmp_path / "disk"
            root.mkdir()
            return make(stack, root, full=full)

        yield made


@dataclass
class Filled:
    """What was accepted while the disk filled up: id → text, and how it was; and the refusals."""

    accepted: dict[str, str] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    refused: list[Exception] = field(default_factory=list)


def fill(store: MemoryStore, until: Callable[[Filled], bool]) -> Filled:
    """Record ever smaller messages until nothing is accepted any more, or ``until`` says that it is enough."""
    filled, number = Filled(), 0
    for size in SIZES:
        refused = 0
        while refused < 3 and not until(filled):
            number += 1
            text = f"number{number} {FILLER[:size]}"
            try:
                receipt = store.record(SCOPE, [Message("user", text)], ONE)
            except (StoreError, FallbackError) as error:
                filled.refused.append(error)
                refused += 1
            else:
                assert receipt.new == 1
                filled.accepted[receipt.ids[0]] = text
                filled.stored.append(receipt.stored)
    return filled


def check_readable(store: MemoryStore, filled: Filled) -> None:
    """Reading and recall go on."""
    held = {message.id: message.text for message in store.messages(SCOPE, ONE)}
    there = [number for number, stored in enumerate(filled.stored, 1) if stored != "fallback"]
    assert {text for text in filled.accepted.values() if text in held.values()} == {
        text
        for text, stored in zip(filled.accepted.values(), filled.stored, strict=True)
        if stored != "fallback"
    }
    assert (
        store.search_messages(SCOPE, f"number{there[0]}")[0].content
        == filled.accepted[next(iter(filled.accepted))]
    )
    assert store.recall(SCOPE, "memory")[0].content == "a memory from before"
    assert store.doctor().place is not None


def check_complete(place: Place, filled: Filled, *, deleted: frozenset[str] = frozenset()) -> None:
    """With space again: everything accepted is in the database once, in the fallback too, and a recovery agrees."""
    with place.open() as store:
        receipt = store.record(SCOPE, [Message("user", "there is space again")], ONE)
        assert receipt.stored == "both"
        rows = dump(store)["messages"]
        ids = [row["id"] for row in rows]
        assert len(ids) == len(set(ids))
        texts = {message.id: message.text for message in store.messages(SCOPE, ONE)}
        assert {i: texts.get(i) for i in filled.accepted if i not in deleted} == {
            i: text for i, text in filled.accepted.items() if i not in deleted
        }
        assert not deleted & set(texts)
        assert store.recall(SCOPE, "memory")[0].content == "a memory from before"
        assert errors_in(store) == []
        store.add(SCOPE, "a memory from after")
        held = dump(store)
    assert merged_lines(place.path) == []
    written = {o["id"] for line in lines_of(place.path) if (o := line.operation) and o["op"] == "message"}
    assert set(ids) <= written
    out = place.root.parent / "recovered.db"
    MemoryStore.recover(place.path, out=out, settings=Settings(timezone="UTC"))
    with MemoryStore(out, settings=Settings(timezone="UTC")) as recovered:
        assert dump(recovered) == held


def check_errors(errors: list[Exception]) -> None:
    for error in errors:
        assert isinstance(error, (StoreError, FallbackError)), repr(error)
        assert "store.db" in str(error)
        assert "space" in str(error) or "full" in str(error), str(error)


def test_database_and_fallback_on_one_full_disk(place_on):
    place = place_on("both")
    with place.open() as store:
        store.add(SCOPE, "a memory from before")
        filled = fill(store, lambda _: False)
        assert len(filled.accepted) > 5
        assert len(filled.refused) > 5
        check_errors(filled.refused)
        check_readable(store, filled)
        assert merged_lines(place.path) == []
        deleted = frozenset(list(filled.accepted)[1:4])
        for one in deleted:
            store.delete(SCOPE, one)  # by the reserve
        assert store._reserve.held() == 0
        assert store.checkpoint() is not None
        place.give_space()
    check_complete(place, filled, deleted=deleted)


def test_a_store_on_a_full_disk_is_opened_and_read(place_on):
    place = place_on("both")
    with place.open() as store:
        store.add(SCOPE, "a memory from before")
        filled = fill(store, lambda _: False)
    with place.open() as store:
        check_errors_of_writing(store)
        assert store.recall(SCOPE, "memory")[0].content == "a memory from before"
        found = {message.text for message in store.messages(SCOPE, ONE)}
        assert {
            t for t, s in zip(filled.accepted.values(), filled.stored, strict=True) if s != "fallback"
        } <= found
    place.give_space()
    check_complete(place, filled)


def check_errors_of_writing(store: MemoryStore) -> None:
    with pytest.raises(StoreFull, match=r"space|full") as caught:
        store.add(SCOPE, FILLER * 20)
    check_errors([caught.value])


def test_only_the_disk_of_the_database_is_full(place_on):
    place = place_on("database")
    with place.open() as store:
        store.add(SCOPE, "a memory from before")
        filled = fill(store, lambda so_far: so_far.stored[-6:].count("fallback") == 6)
        assert filled.refused == []
        assert set(filled.stored) == {"both", "fallback"}
        check_readable(store, filled)
        check_errors_of_writing(store)
        place.give_space()
        assert store.record(SCOPE, [Message("user", "space")], ONE).stored == "both"
        assert set(filled.accepted) <= {message.id for message in store.messages(SCOPE, ONE)}
    check_complete(place, filled)


def test_only_the_disk_of_the_fallback_is_full(place_on, caplog):
    place = place_on("fallback")
    with place.open() as store:
        store.add(SCOPE, "a memory from before")
        filled = fill(store, lambda so_far: so_far.stored[-6:].count("database") == 6)
        assert filled.refused == []
        assert set(filled.stored) == {"both", "database"}
        assert any("full" in record.message or "space" in record.message for record in caplog.records)
        check_readable(store, filled)
        assert merged_lines(place.path) == []
        place.give_space()
    check_complete(place, filled)
