"""Each operation of a public call fails once, or from there on for good: R4 of the reliability goals.

For every call, kind of fault and position: the process goes on, the error is one of ours, what was acknowledged is
there once, doctor finds nothing, and the next call works on the same store. ``MEMSTORE_TEST_FAULTS=all`` goes through
all positions, n = 1, 2, … until a run meets no fault; a number takes so many of them.
"""

import itertools
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from faults_support import (
    ONE,
    SETTINGS,
    TWO,
    Doubles,
    doubles,
    errors_in,
    facts,
    merged_lines,
    open_on,
    said,
    without,
)
from memstore.errors import FallbackError, InvalidInput, NotFound, StoreError, StoreExists
from memstore.fallback import folder_of
from memstore.store import MemoryStore
from memstore.testing import FaultPlan
from memstore.types import Message
from reliability_support import ROOT, SCOPE, dump, lines_of, remove_database

WANTED = os.environ.get("MEMSTORE_TEST_FAULTS", "320")  # N of the short form, never below 300

FAULTS = (
    ("full", "write", ""), ("error", "write", ""), ("torn", "write", ""), ("error", "sync", ""), ("error", "read", ""),
    ("error", "truncate", ""), ("error", "open", ""), ("error", "delete", ""),
    ("torn", "write", "truncate"), ("error", "sync", "truncate"),
)  # fmt: skip
"""Kind, operation, and what fails besides: a line that was written in part, or not synced, cannot be taken back then."""
FILES = {
    "all files": "*",
    "the fallback": ("*.jsonl", "*.fallback", "pending"),
    "the database": ("store.db", "store.db-*", ".store.db.*"),
}
TROUBLE, NEXT = "during the trouble", "the next call"
SPOKEN = [Message("user", "coffee in Berlin", id="c1"), Message("assistant", "noted", id="c2"),
          Message("user", "and tea", id="c3"), Message("assistant", "noted as well", id="c4")]  # fmt: skip
NEW = [
    Message("user", "a rocket", id="n1"),
    Message("assistant", "to the moon", id="n2"),
    Message("user", "soon", id="n3"),
]
FORKING = [*SPOKEN[:2], Message("user", "no, cocoa", id="f3"), Message("assistant", "cocoa then", id="f4")]


@dataclass
class Life:
    """A store for one run: a copy of the template, on doubles of its own."""

    made: Doubles
    path: Path
    ids: dict[str, str]
    store: MemoryStore | None = None

    def open(self) -> MemoryStore:
        self.store = open_on(self.made, self.path)
        return self.store

    def close(self) -> None:
        if self.store is not None:
            store, self.store = self.store, None
            store.close()


@dataclass(frozen=True)
class Call:
    """A public call. ``template``: which store it begins with. ``opens``: it opens the store by itself."""

    act: Callable[[Life], object]
    template: str = "plain"
    opens: bool = False


def on_store(act: Callable[[MemoryStore, dict[str, str]], object], template: str = "plain") -> Call:
    return Call(lambda life: act(life.store, life.ids), template)


def buffered(store: MemoryStore, _: object) -> None:
    with store.buffered(messages=100, seconds=3600) as buffer:
        receipts = [buffer.record(SCOPE, [message], ONE) for message in NEW]
    for receipt in receipts:
        receipt.result()


def restored(life: Life) -> object:
    return MemoryStore.restore(next(life.path.parent.glob("*.gz")), life.path, settings=SETTINGS)


CALLS: dict[str, Call] = {
    "record": on_store(lambda s, _: s.record(SCOPE, NEW, ONE)),
    "record in a new session": on_store(lambda s, _: s.record(SCOPE, NEW, "agent:chat:three")),
    "transcript that forks": on_store(lambda s, _: s.record(SCOPE, FORKING, ONE, transcript=True)),
    "add": on_store(lambda s, _: s.add(SCOPE, "a new memory", idempotency_key="key")),
    "update": on_store(lambda s, ids: s.update(SCOPE, ids["updated"], content="better", expected_version=1)),
    "delete a memory": on_store(lambda s, ids: s.delete(SCOPE, ids["deleted"])),
    "delete a message": on_store(lambda s, ids: s.delete(SCOPE, ids["message"])),
    "delete_all": on_store(lambda s, _: s.delete_all(SCOPE)),
    "clear_session": on_store(lambda s, _: s.clear_session(SCOPE, ONE)),
    "set_session": on_store(lambda s, _: s.set_session(SCOPE, ONE, title="a title", pinned=True)),
    "delete_session": on_store(lambda s, _: s.delete_session(SCOPE, TWO)),
    "set_floors": on_store(lambda s, _: s.set_floors({"text": 1.5})),
    "index": on_store(lambda s, _: s.index()),
    "reindex": on_store(lambda s, _: s.reindex()),
    "recall with a trace": on_store(lambda s, _: s.recall(SCOPE, "coffee", trace=True)),
    "close": Call(lambda life: life.close()),
    "open": Call(lambda life: life.open(), opens=True),
    "open behind its fallback": Call(lambda life: life.open(), "behind", opens=True),
    "create": Call(lambda life: life.open(), "nothing", opens=True),
    "recover": Call(lambda life: MemoryStore.recover(life.path, settings=SETTINGS), "lost", opens=True),
    "buffered": on_store(buffered),
    "checkpoint": on_store(lambda s, _: s.checkpoint()),
    "vacuum": on_store(lambda s, _: s.vacuum()),
    "compact": on_store(lambda s, _: s.compact()),
    "backup": on_store(lambda s, _: s.backup(s.path.parent / "backups")),
    "restore": Call(restored, "backed up", opens=True),
    "open an old version": Call(lambda life: life.open(), "old", opens=True),
}
RECORDS = ("record", "record in a new session", "transcript that forks", "buffered")


# --- templates ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Closed stores to copy: plain, behind its fallback, lost but for its fallback or a backup, of an old version, and
    nothing at all."""
    root = tmp_path_factory.mktemp("templates")
    for name in ("plain", "behind", "lost", "backed up", "nothing", "old"):
        (root / name).mkdir()
    path = root / "plain" / "store.db"
    with open_on(None, path) as store:
        ids = {"message": store.record(SCOPE, SPOKEN, ONE).ids[1]}
        store.record(SCOPE, [Message("user", "another session")], TWO)
        for name in ("kept", "updated", "deleted"):
            ids[name] = store.add(SCOPE, f"memory that is {name}").id
        store.index()
    with open_on(None, path) as store:
        store.add(SCOPE, "persona memory", kind="persona")
    shutil.copytree(root / "plain", root / "behind", dirs_exist_ok=True)
    shutil.copytree(root / "plain", root / "lost", dirs_exist_ok=True)
    remove_database(root / "lost" / "store.db")
    newer = root / "newer"
    shutil.copytree(root / "plain", newer)
    with open_on(None, newer / "store.db") as store:
        store.record(SCOPE, NEW, ONE)
        store.backup(root / "backed up" / "store.gz")
    lines = folder_of(newer / "store.db")
    shutil.copytree(lines, folder_of(root / "behind" / "store.db"), dirs_exist_ok=True)
    shutil.copytree(lines, folder_of(root / "backed up" / "store.db"))
    with tarfile.open(ROOT / "tests" / "fixtures" / "schema-1.tar.gz") as archive:
        archive.extractall(root / "old", filter="data")
    (root / "old" / "memory.db").rename(root / "old" / "store.db")
    (root / "old" / "memory.db.fallback").rename(root / "old" / "store.db.fallback")
    return root, ids


class Lives:
    """Runs one call after another on fresh copies of its template."""

    def __init__(self, templates: tuple[Path, dict[str, str]], folder: Path) -> None:
        self.root, self.ids = templates
        self.folder = folder
        self.number = 0

    def begin(self, call: Call, made: Doubles) -> Life:
        self.number += 1
        copy = self.folder / str(self.number)
        shutil.copytree(self.root / call.template, copy)
        life = Life(made, copy / "store.db", self.ids)
        if not call.opens:
            life.open()
        return life

    def end(self, life: Life) -> None:
        life.close()
        shutil.rmtree(life.path.parent)


@dataclass
class Undisturbed:
    """The same call without faults: facts before and after it, what doctor then says, and how many operations of each
    kind it takes."""

    before: dict[str, list]
    after: dict[str, list]
    errors: list[str]
    counts: dict[tuple[str, str], int]


def undisturbed(lives: Lives, call: Call) -> Undisturbed:
    with doubles(default=True) as made:
        life = lives.begin(call, made)
        before = facts(life.store) if life.store is not None else None
        life.close()
        if not call.opens:
            life.open()
        made.plan.reset()
        call.act(life)
        counts = {(kind, file): made.plan.count(kind, FILES[file]) for _, kind, _ in FAULTS for file in FILES}
        store = life.store or life.open()
        after, errors = facts(store), errors_in(store)
        lives.end(life)
    return Undisturbed(before or after, after, errors, counts)


# --- one position -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    fault: str
    operation: str
    besides: str
    file: str
    sticky: bool
    nth: int

    def __str__(self) -> str:
        besides = f" and at every {self.besides}" if self.besides else ""
        often = " for good" if self.sticky else ""
        return f"{self.fault} at {self.operation} {self.nth}{besides} of {self.file}{often}"

    def plan(self, plan: FaultPlan) -> None:
        file = FILES[self.file]
        plan.fail(self.fault, self.nth, operations=[self.operation], file=file, sticky=self.sticky)
        if self.besides:
            plan.fail("error", operations=[self.besides], file=file, sticky=True)


def attempt(lives: Lives, name: str, position: Position, expected: Undisturbed) -> bool:
    """Let a call meet a fault, and check everything that must hold then. False when it met none."""
    call = CALLS[name]
    with doubles(default=True) as made:
        life = lives.begin(call, made)
        try:
            made.plan.reset()
            position.plan(made.plan)
            error = raised(lambda: call.act(life))
            met = bool(made.plan.met)
            if met:
                check_error(name, position, error)
                during = trouble(life, position) if position.sticky else range(1)
                made.plan.lift()
                check_after(life, name, error, during, expected)
        finally:
            made.plan.lift()
            lives.end(life)
        return met


def raised(act: Callable[[], object]) -> Exception | None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - which one it may be is checked
        return error
    return None


def check_error(name: str, position: Position, error: Exception | None) -> None:
    if isinstance(error, SystemError) and "apsw.Backup" in str(error):
        return  # the double's own: apsw's backup does not expect an exception of Python's in a file layer
    assert error is None or isinstance(error, (StoreError, FallbackError)), f"{type(error).__name__}: {error}"
    if name in RECORDS and (not position.sticky or position.file != "all files"):
        assert error is None, f"one of the two could take it: {type(error).__name__}: {error}"
    if error is not None:
        assert len(str(error)) > 20, f"an error that says nothing: {error!r}"


def trouble(life: Life, position: Position) -> range:
    """Another call while the trouble lasts: how often its message may be there afterwards. Reading goes on, unless
    reading is the trouble."""
    if life.store is None:
        return range(1)
    if position.operation not in ("read", "open"):
        assert life.store.get_all(SCOPE) is not None
        assert not any(part.leg == "text" for part in life.store.recall(SCOPE, "memory kept").degraded)
    error = raised(lambda: life.store.record(SCOPE, [Message("user", TROUBLE)], ONE))
    assert error is None or isinstance(error, (StoreError, FallbackError)), f"{type(error).__name__}: {error}"
    return range(1, 2) if error is None else range(2)


def check_after(life: Life, name: str, error: Exception | None, during: range, expected: Undisturbed) -> None:
    """After the trouble: the same store works on, and holds what was acknowledged, once."""
    call = CALLS[name]
    if life.store is None:
        retry(call, life)
        error = None
        if life.store is None:
            life.open()
    store = life.store
    receipt = store.record(SCOPE, [Message("user", NEXT)], ONE)
    assert (receipt.stored, receipt.new) == ("both", 1)
    found = facts(store)
    check_facts(found, during, [expected.after] if error is None else stages(name, expected))
    if error is not None:
        retry(call, life)
        check_facts(facts(store), during, [expected.after])
    if name in ("index", "reindex"):
        assert store.index().pending == 0
    if name == "backup":
        check_backup(store, life.path.parent)
    assert errors_in(store) == expected.errors
    found = facts(store)
    life.close()
    with open_on(None, life.path) as again:
        assert again.adopted == 0
        assert facts(again) == found
        assert errors_in(again) == expected.errors
    check_lines(life.path, recovers=WANTED == "all" or int(life.path.parent.name) % 3 == 0)


def check_backup(store: MemoryStore, folder: Path) -> None:
    """The backup that was made, by the call or its repetition, is one."""
    MemoryStore.restore(store.backups()[-1].path, folder / "restored.db", settings=SETTINGS)
    with open_on(None, folder / "restored.db") as copy:
        assert set(facts(copy)["messages"]) >= set(without(facts(store), TROUBLE, NEXT)["messages"])


def stages(name: str, expected: Undisturbed) -> list[dict[str, list]]:
    """What a failed call may have left: all of it or nothing. ``delete_all`` goes in steps."""
    found = [expected.before, expected.after]
    if name == "delete_all":
        found.append({**expected.before, "memories": expected.after["memories"]})
    return found


def retry(call: Call, life: Life) -> None:
    """The caller tries again, as it would; that may find that it is done already."""
    with suppress(NotFound, InvalidInput, StoreExists):
        call.act(life)


def check_facts(found: dict[str, list], during: range, allowed: list[dict[str, list]]) -> None:
    assert said(found, NEXT) == 1
    assert said(found, TROUBLE) in during, f"{said(found, TROUBLE)} times {TROUBLE!r}, expected {during}"
    rest = without(found, NEXT, TROUBLE)
    if rest not in allowed:
        raise AssertionError(f"other content than before or after the call:\n{differences(rest, allowed)}")


def differences(found: dict[str, list], allowed: list[dict[str, list]]) -> str:
    return "\n".join(
        f"    {kind}: lacks {[row for row in one[kind] if row not in found[kind]]}, "
        f"has {[row for row in found[kind] if row not in one[kind]]}"
        for one in allowed
        for kind in found
        if found[kind] != one[kind]
    )


def check_lines(path: Path, *, recovers: bool) -> None:
    """Every row has its line, none is merged with another, and a recovery gives the same messages."""
    assert merged_lines(path) == []
    operations = [line.operation for line in lines_of(path) if line.operation is not None]
    lines = {operation["id"] for operation in operations if operation["op"] == "message"}
    with open_on(None, path) as store:
        held = dump(store)
    assert {row["id"] for row in held["messages"]} <= lines
    if not recovers:
        return
    out = path.parent / "recovered.db"
    MemoryStore.recover(path, out=out)
    with open_on(None, out) as store:
        assert json.dumps(dump(store), sort_keys=True) == json.dumps(held, sort_keys=True)


# --- the sweep ----------------------------------------------------------------------------------------------


def first_positions(expected: Undisturbed) -> list[Position]:
    """The first position of every kind that a call has, by the operations that it takes undisturbed."""
    return [
        Position(fault, operation, besides, file, sticky, 1)
        for fault, operation, besides in FAULTS
        for file in FILES
        for sticky in (False, True)
        if (sticky or file == "all files") and expected.counts[operation, file]
    ]


def every_position(first: Position, expected: Undisturbed) -> Iterator[Position]:
    """From the first on. Whoever takes them stops where a run met no fault."""
    for nth in itertools.count(1):
        yield replace(first, nth=nth)
        if nth > 2 * expected.counts[first.operation, first.file] + 10:
            raise AssertionError(f"{first}: there is no end to it")


def some_positions(firsts: list[Position], expected: Undisturbed, turn: int) -> list[Position]:
    """As many as are wanted, another kind each time, in each call other ones."""
    chosen = []
    for number in range(-(-int(WANTED) // len(CALLS))):
        first = firsts[(turn * 5 + number) % len(firsts)]
        nth = (turn * 7 + number * 13) % expected.counts[first.operation, first.file] + 1
        chosen.append(replace(first, nth=nth))
    return list(dict.fromkeys(chosen))


@pytest.mark.parametrize(("turn", "name"), list(enumerate(CALLS)), ids=list(CALLS))
def test_a_call_meets_a_fault_at_each_of_its_operations(templates, tmp_path, turn, name):
    lives = Lives(templates, tmp_path)
    expected = undisturbed(lives, CALLS[name])
    firsts = first_positions(expected)
    wrong: list[str] = []

    def meets(position: Position) -> bool:
        try:
            return attempt(lives, name, position, expected)
        except Exception as error:  # noqa: BLE001 - collected, and raised together
            wrong.append(f"{position}: {type(error).__name__}: {str(error)[:400]}")
            return True

    if WANTED == "all":
        met = sum(len(list(itertools.takewhile(meets, every_position(one, expected)))) for one in firsts)
        assert met >= sum(expected.counts[one.operation, one.file] for one in firsts) // 2
    else:
        chosen = some_positions(firsts, expected, turn)
        assert [position for position in chosen if not meets(position)] == []
    assert not wrong, f"{len(wrong)} positions:\n" + "\n".join(wrong)


def test_a_torn_call_that_could_not_be_taken_back_does_not_take_its_whole_copy_along(tmp_path):
    """The fallback keeps half of a call's lines; the database has it whole, and so has the fallback later."""
    path = tmp_path / "store.db"
    with doubles() as made, open_on(made, path) as store:
        store.record(SCOPE, SPOKEN, ONE)
        made.plan.fail("torn", operations=["write"], file=FILES["the fallback"], sticky=True)
        made.plan.fail("error", operations=["truncate"], file=FILES["the fallback"], sticky=True)
        assert store.record(SCOPE, NEW, "agent:chat:three").stored == "database"
        assert store.record(SCOPE, [Message("user", TROUBLE)], ONE).stored == "database"
        made.plan.lift()
        assert store.record(SCOPE, [Message("user", NEXT)], ONE).stored == "both"
        assert errors_in(store) == []
    check_lines(path, recovers=True)
