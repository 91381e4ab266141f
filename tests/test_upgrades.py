"""Stores of every released schema, opened by the program of now: whole, with a copy kept of what was before."""

import fcntl
import json
import logging
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import apsw
import pytest

from memstore import Scope, Settings
from memstore.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly, StoreUnsound
from memstore.fallback import folder_of
from memstore.storage import migrate as migrations
from memstore.storage import upgrade_copy
from memstore.storage.migrate import load_migrations, newest_version
from memstore.storage.sqlite.faults import FaultVFS
from memstore.storage.upgrade_copy import kept_copies
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder
from memstore.types import Message
from reliability_support import (
    TESTS,
    assert_sound,
    dump,
    file_hashes,
    in_fork,
    open_store,
    remove_database,
    report_of,
    start_child,
)

FIXTURES = TESTS / "fixtures"
FAST = Settings(timezone="UTC", durability="process")
LINE_EVERY = int(os.environ.get("MEMSTORE_TEST_UPGRADE_LINES") or 47)
FAULT_EVERY = int(os.environ.get("MEMSTORE_TEST_UPGRADE_FAULTS") or 19)
"""Which places of an upgrade are tried; 1 is the long form."""
OLDER = range(1, newest_version())
ANA, BO, ZHANG = (
    Scope("acme", "ana", "helper"),
    Scope("acme", "bo", "helper", "task 7"),
    Scope("北方", "张三", "reviewer"),
)
FRUITS = ("apple", "banana", "cherry", "damson", "elderberry", "fig", "grape", "hazelnut", "imbe", "jujube")
CHANGED = {"store_meta", "text_indexes"}
"""Settings and indexes, not rows of people: what became of them is asserted by name."""


def a_store_of(version: int, folder: Path) -> Path:
    with tarfile.open(FIXTURES / f"schema-{version}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    folder_of(folder / "memory.db").chmod(0o700)  # the filter opens folders to others
    return folder / "memory.db"


def expected_of(folder: Path) -> dict[str, dict]:
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def rows_of(path: Path, tables: dict[str, dict]) -> dict[str, list]:
    """The rows of an older version's tables, by its columns."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found = {}
        for name, table in tables.items():
            rows = connection.execute(f"SELECT {', '.join(table['columns'])} FROM {name}").fetchall()
            found[name] = [[v.hex() if isinstance(v, bytes) else v for v in row] for row in rows]
        return found
    finally:
        connection.close()


def assert_rows(path: Path, tables: dict[str, dict], *, apart: set[str] = frozenset()) -> None:
    found = rows_of(path, tables)
    for name, table in tables.items():
        if name == "schema_migrations":
            assert [row for row in found[name] if row[0] <= len(table["rows"])] == table["rows"]
        elif name not in apart:
            assert sorted(found[name], key=repr) == sorted(table["rows"], key=repr), name


def version_of(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.pragma("user_version")
    finally:
        connection.close()


def assert_copy(copy: Path, tables: dict[str, dict], version: int) -> None:
    """One file, the owner's alone, sound by SQLite's word, and row by row what was before."""
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not [p for p in copy.parent.iterdir() if p.name.startswith(copy.name) and p != copy]
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.pragma("user_version") == version
        assert connection.pragma("journal_mode") == "delete"
    finally:
        connection.close()
    assert_rows(copy, tables)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def with_embedder(path: Path) -> MemoryStore:
    return MemoryStore(path, HashEmbedder(dim=16), settings=FAST)


# --- from every released version ---------------------------------------------------------------------------


def test_every_released_schema_has_its_fixture():
    """See tests/fixtures/README.md for how one is made."""
    there = {int(p.name.split("-")[1].split(".")[0]) for p in FIXTURES.glob("schema-*.tar.gz")}
    assert there >= set(OLDER)
    assert there <= set(OLDER) | {newest_version()}


@pytest.mark.parametrize("version", OLDER)
def test_a_store_of_an_older_release_is_whole(tmp_path, version, caplog):
    path = a_store_of(version, tmp_path)
    tables = expected_of(tmp_path)
    assert version_of(path) == version
    with caplog.at_level(logging.WARNING, "memstore"):
        open_store(path, durability="process").close()
    assert version_of(path) == newest_version()
    assert_rows(path, tables, apart=CHANGED)
    [copy] = kept_copies(path)
    assert copy.name == f"memory.db.before-v{version + 1}"
    assert_copy(copy, tables, version)
    [line] = [record.getMessage() for record in caplog.records]
    assert str(copy) in line
    assert f"from schema version {version} to {newest_version()}" in line
    assert leftovers(tmp_path) == []
    meta, before = dict(rows_of(path, tables)["store_meta"]), dict(tables["store_meta"]["rows"])
    assert {key: meta.get(key) for key in before if key != "tokenizer"} == {
        key: value for key, value in before.items() if key != "tokenizer"
    }
    caplog.clear()
    open_store(path, durability="process").close()  # once is enough
    assert caplog.records == []
    assert kept_copies(path) == [copy]


def test_what_the_second_step_carries_over(tmp_path):
    """Each text index names the tokenizer that the store named, and the ends of validity that were stated stay so."""
    path = a_store_of(1, tmp_path)
    tables = expected_of(tmp_path)
    tokenizer = dict(tables["store_meta"]["rows"])["tokenizer"]
    open_store(path, durability="process").close()
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        indexes = connection.execute(
            "SELECT table_name, state, tokenizer, filled_to FROM text_indexes"
        ).fetchall()
        ends = connection.execute(
            "SELECT superseded_at, valid_to, stated_valid_to FROM memory_versions"
        ).fetchall()
        kept = connection.execute("SELECT value FROM store_meta WHERE key = 'tokenizer'").fetchall()
    finally:
        connection.close()
    assert indexes == [(row[0], "active", tokenizer, 0) for row in tables["text_indexes"]["rows"]]
    assert kept == []
    assert {stated for superseded, _, stated in ends if superseded} == {None}
    assert all(valid_to == stated for superseded, valid_to, stated in ends if not superseded)
    assert any(valid_to is not None for superseded, valid_to, _ in ends if not superseded)


@pytest.mark.parametrize("version", OLDER)
def test_a_store_of_an_older_release_works_on(tmp_path, version):
    path = a_store_of(version, tmp_path)
    with with_embedder(path) as store:
        assert [h.content for h in store.search_messages(ZHANG, "周四下午", limit=2)] == [
            "好的，已改到周四下午",
            "会议改到周四下午三点",
        ]
        assert store.recall(ANA, "peanuts")[0].content == "is allergic to peanuts and hazelnuts"
        said = store.messages(ANA, "trip")
        assert [m.text for m in said] == [
            "my flight is on Friday",
            "no, on Saturday",
            "the hotel is booked",
            "and back on Sunday",
        ]
        assert [m.live for m in said] == [True, False, False, True]  # a fork
        assert [m.live for m in store.messages(ANA, "cleared")] == [False, True]
        assert [s.session.rpartition(":")[2] for s in store.sessions(ANA)].count("gone") == 0
        memory = store.recall(ZHANG, "上线")[0]
        assert [v.content for v in store.history(ZHANG, memory.id)] == ["上线定在周三", "上线改到周五"]
        if version >= 2:
            assert [w.word for w in store.words(ZHANG)] == ["量子纠缠态"]
            [trace] = store.traces(ZHANG)
            assert trace.query == "什么时候上线"
        store.record(BO, [Message("user", "written by the program of now")], "charts")
        store.index()
        errors = {f.check for f in store.doctor().findings if f.severity == "error"}
        assert errors <= {"tokenizer"}  # named with its remedy, which is:
        store.reindex()
        assert_sound(store)
        assert store.search_messages(BO, "program of now")[0].content == "written by the program of now"


@pytest.mark.parametrize("version", OLDER)
def test_the_pipelines_take_up_what_an_older_release_recorded(tmp_path, version):
    """Its messages have no jobs: what is pending is read off the rows."""
    with MemoryStore(a_store_of(version, tmp_path), settings=FAST) as store:
        waiting = store.pending(ZHANG)
        assert waiting > 0
        report = store.work(once=True, force=True)
        assert (report.failed, report.dead) == (0, 0)
        assert store.pending(ZHANG) == 0
        assert store.verdicts(ZHANG)
        assert store.work(once=True, force=True).done == 0


@pytest.mark.parametrize("version", OLDER)
def test_the_fallback_of_an_older_release_rebuilds_the_same_messages(tmp_path, version):
    path = a_store_of(version, tmp_path)
    with open_store(path, durability="process") as store:
        before = dump(store)
    remove_database(path)
    MemoryStore.recover(path)
    with open_store(path, durability="process") as store:
        assert dump(store) == before
        assert_sound(store)


@pytest.mark.parametrize("version", OLDER)
def test_row_8_and_only_row_8(tmp_path, version):
    """Of ten rows, of which five were deleted before the upgrade, and after a VACUUM behind it."""
    path = a_store_of(version, tmp_path)
    with open_store(path, durability="process") as store:
        if version == 1:
            store.reindex()
        assert [h.content for h in store.search_messages(ANA, FRUITS[7])] == ["hazelnut is in this row"]
        with store._storage.exclusive_connection() as connection:
            connection.execute("VACUUM").fetchall()
        for number, fruit in enumerate(FRUITS, 1):
            found = [h.content for h in store.search_messages(ANA, fruit, limit=50)]
            assert found == ([f"{fruit} is in this row"] if number > 5 else [])


@pytest.mark.parametrize("version", OLDER)
def test_a_copy_that_is_put_back_is_the_old_store(tmp_path, version):
    path = a_store_of(version, tmp_path)
    tables = expected_of(tmp_path)
    with open_store(path, durability="process") as store:
        store.record(BO, [Message("user", "said after the upgrade")], "charts")
        after = dump(store)
    [copy] = kept_copies(path)
    remove_database(path)
    copy.rename(path)
    assert_rows(path, tables)
    with open_store(
        path, durability="process"
    ) as store:  # upgraded again; what came since is in the fallback
        assert store.adopted == 1
        assert dump(store) == after
        store.reindex()
        assert_sound(store)


# --- which copy -------------------------------------------------------------------------------------------


def test_new_and_empty_stores_are_not_copied(tmp_path, steps_of_one_more):
    path = tmp_path / "store.db"
    with steps_of_one_more(False):
        open_store(path).close()
        assert version_of(path) == newest_version()
    with steps_of_one_more(True):
        open_store(path).close()
        assert version_of(path) == newest_version()
    assert kept_copies(path) == []


@pytest.fixture
def steps_of_one_more(tmp_path, monkeypatch):
    """A switch between the program of now, and one that knows a step more."""
    from contextlib import contextmanager

    folder = tmp_path / "steps"
    shutil.copytree(migrations.migrations_folder() / "sqlite", folder / "sqlite")
    extra = folder / "sqlite" / f"{newest_version() + 1:04}_more.sql"
    monkeypatch.setattr(migrations, "migrations_folder", lambda: folder)

    @contextmanager
    def switched(more: bool):
        if more:
            extra.write_text("CREATE TABLE more (id INTEGER PRIMARY KEY);\nINSERT INTO more VALUES (1);\n")
        load_migrations.cache_clear()
        yield
        extra.unlink(missing_ok=True)
        load_migrations.cache_clear()

    yield switched
    load_migrations.cache_clear()


def test_what_is_in_the_log_of_a_killed_process_is_in_the_copy(tmp_path):
    path = a_store_of(OLDER[-1], tmp_path)

    def work() -> None:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.execute("INSERT INTO store_meta VALUES ('in the log', 'yes')").fetchall()
        os._exit(9)

    assert in_fork(work) == 9
    assert Path(f"{path}-wal").stat().st_size > 0
    open_store(path, durability="process").close()
    [copy] = kept_copies(path)
    assert ["in the log", "yes"] in rows_of(copy, expected_of(tmp_path))["store_meta"]


def stopped_behind_the_copy(path: Path) -> None:
    """An upgrade that is killed when its copy is complete and nothing else happened."""

    def work() -> None:
        migrations._apply = lambda *_: os._exit(9)
        open_store(path)

    assert in_fork(work) == 9


def test_the_copy_of_an_upgrade_that_was_cut_short_serves_again(tmp_path):
    path = a_store_of(OLDER[-1], tmp_path)
    stopped_behind_the_copy(path)
    [copy] = kept_copies(path)
    inode = copy.stat().st_ino
    open_store(path, durability="process").close()
    assert [c.stat().st_ino for c in kept_copies(path)] == [inode]
    assert_copy(copy, expected_of(tmp_path), OLDER[-1])


def test_a_copy_of_other_rows_is_kept_beside_the_new_one(tmp_path):
    """The old program went on with the store before it was upgraded after all."""
    path = a_store_of(OLDER[-1], tmp_path)
    stopped_behind_the_copy(path)
    [old] = kept_copies(path)
    before = file_hashes(tmp_path)[old.name]
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("INSERT INTO store_meta VALUES ('later', 'yes')").fetchall()
    connection.close()
    open_store(path, durability="process").close()
    assert [c.name for c in kept_copies(path)] == [old.name, f"{old.name}.2"]
    assert file_hashes(tmp_path)[old.name] == before
    assert ["later", "yes"] in rows_of(kept_copies(path)[1], expected_of(tmp_path))["store_meta"]


@pytest.mark.parametrize("content", [b"", b"notes of somebody", b"SQLite format 3\0" + bytes(8176)])
def test_what_else_has_the_name_is_left_alone(tmp_path, content):
    path = a_store_of(OLDER[-1], tmp_path)
    taken = Path(f"{path}.before-v{newest_version()}")
    taken.write_bytes(content)
    open_store(path, durability="process").close()
    assert taken.read_bytes() == content
    assert_copy(Path(f"{taken}.2"), expected_of(tmp_path), OLDER[-1])


def test_a_link_to_nowhere_is_not_written_through(tmp_path):
    path = a_store_of(OLDER[-1], tmp_path)
    taken = Path(f"{path}.before-v{newest_version()}")
    taken.symlink_to(tmp_path / "elsewhere")
    open_store(path, durability="process").close()
    assert not (tmp_path / "elsewhere").exists()
    assert_copy(Path(f"{taken}.2"), expected_of(tmp_path), OLDER[-1])


def test_kept_copies_are_listed_oldest_first_and_nothing_else(tmp_path):
    path = tmp_path / "store.db"
    names = ["store.db.before-v2", "store.db.before-v9", "store.db.before-v9.2", "store.db.before-v10"]
    for name in (
        *names,
        "store.db",
        "other.db.before-v2",
        "store.db.before-v",
        "store.db.before-v2.gz",
        "before-v2",
    ):
        (tmp_path / name).touch()
    (tmp_path / "store.db.before-v3").mkdir()
    assert [copy.name for copy in kept_copies(path)] == names


# --- cut short --------------------------------------------------------------------------------------------


def upgrade_in_child(path: Path, end_at: int) -> tuple[int, list]:
    """Open in a child that ends like one killed before the n-th line of the upgrade's code; reports the lines seen."""
    watched = {migrations.__file__, upgrade_copy.__file__}
    seen = [0]

    def on_line(_frame, event: str, _argument) -> object:
        if event == "line":
            if seen[0] == end_at:
                os._exit(9)
            seen[0] += 1
        return on_line

    def work(report) -> None:
        load_migrations()
        sys.settrace(lambda frame, *_: on_line if frame.f_code.co_filename in watched else None)
        open_store(path, durability="process")
        sys.settrace(None)
        report(seen[0])

    return report_of(work)


@pytest.mark.parametrize("version", OLDER)
def test_an_end_before_each_line_of_an_upgrade_leaves_a_whole_store(tmp_path, version):
    """N: every 23rd line and the last of the code that copies and migrates, as often as it runs; in the long form all,
    and with them every statement of a step."""
    (tmp_path / "whole").mkdir()
    code, [lines] = upgrade_in_child(a_store_of(version, tmp_path / "whole"), -1)
    assert code == 0
    assert lines > 100
    found = set()
    for number in (*range(version % LINE_EVERY, lines, LINE_EVERY), lines - 1):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        path = a_store_of(version, folder)
        tables = expected_of(folder)
        assert upgrade_in_child(path, number)[0] == 9
        found.add(version_of(path))
        assert_rows(path, tables, apart=set() if version_of(path) == version else CHANGED)
        open_store(path, durability="process").close()
        assert version_of(path) == newest_version()
        assert_rows(path, tables, apart=CHANGED)
        assert leftovers(folder) == []
        copies = kept_copies(path)
        assert copies[0].name == f"memory.db.before-v{version + 1}"
        assert_copy(copies[0], tables, version)
        assert len(copies) <= newest_version() - version  # a further one only from between two steps
        shutil.rmtree(folder)
    assert found == set(range(version, newest_version() + 1))


@pytest.mark.parametrize("attempt", range(3))
def test_two_processes_upgrade_an_old_store_once(tmp_path, attempt):
    """Both of them work afterwards, and one copy was made."""
    version = OLDER[attempt % len(OLDER)]
    path = a_store_of(version, tmp_path)
    children = [start_child("child_open_new", path) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said_by = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], said_by
    assert {out for out, _ in said_by} == {
        f"{dict(expected_of(tmp_path)['store_meta']['rows'])['store_id']}\n"
    }
    assert sum("upgrading" in err for _, err in said_by) == 1
    assert [copy.name for copy in kept_copies(path)] == [f"memory.db.before-v{version + 1}"]
    assert_copy(kept_copies(path)[0], expected_of(tmp_path), version)
    with open_store(path, durability="process") as store:
        assert [len(store.messages(Scope("team", "user", "agent"), "agent:chat:one"))] == [2]
        assert {f.check for f in store.doctor().findings if f.severity != "info"} <= {"tokenizer"}


def test_an_upgrade_waits_while_another_goes_on_in_the_folder(tmp_path, monkeypatch):
    """Over all steps: one that came in between two of them would copy once more."""
    path = a_store_of(OLDER[0], tmp_path)
    monkeypatch.setattr(migrations, "MAINTENANCE_BUSY_TIMEOUT_S", 0)
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(StoreBusy, match="being upgraded by another process"):
        open_store(path)
    assert version_of(path) == OLDER[0]
    assert kept_copies(path) == []
    os.close(other)
    open_store(path, durability="process").close()
    assert version_of(path) == newest_version()


# --- refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [1, 2, 10, 40])
def test_without_room_for_the_copy_nothing_is_touched(tmp_path, writes):
    path = a_store_of(OLDER[-1], tmp_path)
    before = file_hashes(tmp_path)
    with FaultVFS() as layer:
        layer.plan.fail("full", writes, file="*.copying", sticky=True)
        with pytest.raises(
            StoreFull, match=r"not upgraded, and is as it was.*free as much as the store takes"
        ):
            MemoryStore(path, settings=FAST, vfs=layer.name)
        assert {k: v for k, v in file_hashes(tmp_path).items() if not k.endswith(("-wal", "-shm"))} == before
        layer.plan.lift()
        MemoryStore(path, settings=FAST, vfs=layer.name).close()
    assert_rows(path, expected_of(tmp_path), apart=CHANGED)
    assert_copy(kept_copies(path)[0], expected_of(tmp_path), OLDER[-1])


def test_the_copy_is_synced_before_it_has_its_name_and_before_the_first_statement(tmp_path):
    path = a_store_of(OLDER[-1], tmp_path)
    seen = []
    with FaultVFS() as layer:
        layer.plan.before_each = lambda _: seen.append(
            (
                layer.plan.count("sync", "*.copying"),
                len(kept_copies(path)),
                layer.plan.count("write", "*-wal"),
            )
        )
        MemoryStore(path, settings=FAST, vfs=layer.name).close()
    assert max(syncs for syncs, _, _ in seen) >= 1
    assert all(syncs for syncs, copies, _ in seen if copies)
    assert all(copies for _, copies, written in seen if written)


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("fault", ["full", "torn", "error"])
def test_a_fault_at_any_operation_of_an_upgrade(tmp_path, version, fault):
    """N: every eleventh operation of the file layer, from there on for good, until an upgrade meets none: the disk is
    full, a write is torn, or whatever it is fails. The error is typed, and the next opening completes it."""
    (tmp_path / "as it was").mkdir()
    a_store_of(version, tmp_path / "as it was")
    tables = expected_of(tmp_path / "as it was")
    met, named = 0, []
    for position in range(1 + version, 10_000, FAULT_EVERY):
        folder = tmp_path / f"{position}"
        shutil.copytree(tmp_path / "as it was", folder)
        path = folder / "memory.db"
        with FaultVFS() as layer:
            layer.plan.fail(fault, position, sticky=True)
            try:
                MemoryStore(path, settings=FAST, vfs=layer.name).close()
            except StoreError as error:
                named.append((type(error), str(folder) in str(error)))
                faults = list(layer.plan.met)
                layer.plan.lift()  # before what the error holds of the store is gone
            else:
                faults = list(layer.plan.met)
                layer.plan.lift()
            met += bool(faults)
            MemoryStore(path, settings=FAST, vfs=layer.name).close()
        assert version_of(path) == newest_version()
        assert_rows(path, tables, apart=CHANGED)
        assert leftovers(folder) == []
        assert_copy(kept_copies(path)[0], tables, version)
        assert len(kept_copies(path)) <= newest_version() - version
        shutil.rmtree(folder)
        if not faults:
            break
    assert not faults
    assert met >= 3
    assert len(named) > met // 2
    assert all(kind is not StoreUnsound and named_it for kind, named_it in named)


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_an_older_store_that_cannot_be_written_is_refused_by_name(closed):
    """As another user than root, which a mode does not stop."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        path = a_store_of(OLDER[-1], folder)
        for each in [folder, *folder.rglob("*")]:
            os.chown(each, 65534, 65534)
        (path if closed == "file" else folder).chmod(0o444 if closed == "file" else 0o555)
        before = file_hashes(folder)

        def work(report) -> None:
            os.setgroups([])
            os.setegid(65534)
            os.seteuid(65534)
            try:
                open_store(path)
            except StoreReadOnly as error:
                report(["StoreReadOnly", str(error)])
            except Exception as error:  # noqa: BLE001 - told to the test
                report([type(error).__name__, str(error)])

        code, [[kind, message]] = report_of(work)
        assert code == 0
        if closed == "file":
            assert kind == "StoreReadOnly"
            assert f"has schema version {OLDER[-1]} and is to be brought to {newest_version()}" in message
        else:
            assert kind in ("StoreReadOnly", "StoreIO")
            assert "folder" in message
        assert {k: v for k, v in file_hashes(folder).items() if not k.endswith(("-wal", "-shm"))} == before
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
