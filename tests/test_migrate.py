"""Schema steps: all of one or nothing, whoever is killed when, and by however many at once."""

import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import StoreError, StoreTooNew
from memstore.storage import migrate as migrations
from memstore.storage.migrate import (
    Migration,
    edited_steps,
    load_migrations,
    migrate,
    newest_version,
    statements,
)
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.connection import open_connection
from reliability_support import (
    ROOT,
    assert_sound,
    finish_child,
    in_fork,
    open_store,
    say,
    start_child,
    texts,
)


def an_empty_schema(path: Path) -> Path:
    """A store's file without any step applied."""
    path.touch(0o600)
    open_connection(path, busy_timeout_s=1, flags=apsw.SQLITE_OPEN_READWRITE, create=True).close()
    return path


def opened(path: Path) -> apsw.Connection:
    return open_connection(path, busy_timeout_s=30, flags=apsw.SQLITE_OPEN_READWRITE)


def schema_of(path: Path) -> tuple[int, list, list]:
    connection = opened(path)
    try:
        return (
            connection.pragma("user_version"),
            connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
            ).fetchall(),
            [row[:3] for row in applied_steps(connection)],
        )
    finally:
        connection.close()


def applied_steps(connection: apsw.Connection) -> list:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'").fetchall():
        return []
    return connection.execute(
        "SELECT version, name, checksum FROM schema_migrations ORDER BY version"
    ).fetchall()


@pytest.fixture
def fresh(tmp_path):
    SqliteStorage.create(tmp_path / "fresh.db")
    return schema_of(tmp_path / "fresh.db")


def statement_count() -> int:
    return sum(1 + len(list(statements(step.sql))) for step in load_migrations())


def step_of(number: int) -> int:
    """The step whose transaction the n-th call of the hook belongs to."""
    for step in load_migrations():
        calls = 1 + len(list(statements(step.sql)))
        if number < calls:
            return step.version
        number -= calls
    raise AssertionError(number)


def whole_steps(path: Path) -> list[tuple]:
    """The schema before the first step, and after each."""
    an_empty_schema(path)
    found = [schema_of(path)]
    for step in load_migrations()[:-1]:
        connection = opened(path)
        with pytest.raises(KeyboardInterrupt):
            migrate(connection, path, stop_in(step.version + 1))
        connection.close()
        found.append(schema_of(path))
    return found


def stop_in(version: int):
    """A hook that ends a migration when a step begins."""

    def stop(at: int, _statement: str) -> None:
        if at == version:
            raise KeyboardInterrupt

    return stop


def next_step() -> int:
    return newest_version() + 1


@pytest.fixture
def steps_in(tmp_path, monkeypatch):
    """A folder of steps that the program takes for its own, a copy of the real one to begin with."""
    folder = tmp_path / "steps"
    shutil.copytree(migrations.migrations_folder() / "sqlite", folder / "sqlite")
    monkeypatch.setattr(migrations, "migrations_folder", lambda: folder)
    load_migrations.cache_clear()
    yield folder / "sqlite"
    load_migrations.cache_clear()


# --- cut short --------------------------------------------------------------------------------------------


def test_an_exception_before_each_statement_leaves_the_version_before(tmp_path, fresh):
    """N: every statement of every step."""
    count = statement_count()
    assert count > 25
    whole = whole_steps(tmp_path / "whole.db")
    for number in range(count):
        path = an_empty_schema(tmp_path / f"{number}.db")
        calls = []

        def stop(version: int, statement: str, at: int = number, seen: list = calls) -> None:
            if len(seen) == at:
                raise KeyboardInterrupt
            seen.append((version, statement))

        connection = opened(path)
        with pytest.raises(KeyboardInterrupt):
            migrate(connection, path, stop)
        assert not connection.in_transaction
        connection.close()
        assert schema_of(path) == whole[step_of(number) - 1]
        with open_store(path, durability="process") as store:  # opening completes it
            say(store, "works")
            assert_sound(store)
        assert_same_schema(path, fresh)


def assert_same_schema(path: Path, fresh: tuple) -> None:
    """Apart from the text indexes, which are made at a layer's first row."""
    version, objects, steps = schema_of(path)
    objects = [row for row in objects if not row[2].startswith("text_messages_")]
    assert (version, objects, steps) == fresh


def test_a_kill_before_each_statement_leaves_the_version_before(tmp_path, fresh):
    """N: every statement of every step, each in a child that ends there."""
    whole = whole_steps(tmp_path / "whole.db")
    for number in range(statement_count()):
        path = an_empty_schema(tmp_path / f"{number}.db")

        def work(at: int = number, of: Path = path) -> None:
            left = [at]

            def stop(_version: int, _statement: str) -> None:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1

            migrate(opened(of), of, stop)

        assert in_fork(work) == 9
        assert schema_of(path) == whole[step_of(number) - 1]
        open_store(path, durability="process").close()
        assert schema_of(path) == fresh


def test_a_second_step_that_is_cut_short_keeps_the_first_and_its_rows(tmp_path, steps_in):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "kept")
    before = schema_of(path)
    added = next_step()
    (steps_in / f"{added:04}_more.sql").write_text(
        "CREATE TABLE more (id INTEGER PRIMARY KEY);\nALTER TABLE messages ADD COLUMN extra TEXT;\nINSERT INTO more VALUES (1);\n"
    )
    load_migrations.cache_clear()
    assert newest_version() == added
    for number in range(4):
        seen = []

        def stop(version: int, statement: str, at: int = number, calls: list = seen) -> None:
            if len(calls) == at:
                raise MemoryError
            calls.append((version, statement))

        connection = opened(path)
        with pytest.raises(MemoryError):
            migrate(connection, path, stop)
        connection.close()
        assert all(version == added for version, _ in seen)
        assert schema_of(path) == before
    with open_store(path) as store:
        assert texts(store) == ["kept"]
        say(store, "more")
        assert_sound(store)
    version, _, steps = schema_of(path)
    assert (version, [name for _, name, _ in steps][:: added - 1]) == (added, ["first_light", "more"])


def test_a_step_that_fails_changes_nothing(tmp_path, steps_in):
    path = tmp_path / "store.db"
    open_store(path).close()
    before = schema_of(path)
    (steps_in / f"{next_step():04}_wrong.sql").write_text(
        "CREATE TABLE more (id);\nCREATE TABLE more (id);\n"
    )
    load_migrations.cache_clear()
    with pytest.raises((StoreError, apsw.Error)):
        open_store(path)
    assert schema_of(path) == before


def test_making_a_store_that_is_killed_leaves_nothing_at_its_path(tmp_path):
    """N: 5 places of the making."""
    path = tmp_path / "store.db"
    for number in (0, 1, 10, 20, 25):

        def work(at: int = number) -> None:
            left = [at]

            def stop(_version: int, _statement: str) -> None:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1

            run = migrations.migrate
            import memstore.storage.sqlite as backend

            backend.migrate = lambda connection, where: run(connection, where, stop)
            open_store(path)

        assert in_fork(work) == 9
        assert not path.exists()
    with open_store(path) as store:
        say(store, "works")
        assert_sound(store)


# --- several at once --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", range(2))
def test_two_processes_migrate_one_file_once(tmp_path, fresh, attempt):
    path = an_empty_schema(tmp_path / "store.db")
    children = [start_child("child_migrate", path) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    applied = sorted(finish_child(child) for child in children)
    versions = [step.version for step in load_migrations()]
    assert sorted(version for line in applied for version in json.loads(line)) == versions
    assert schema_of(path) == fresh
    with open_store(path) as store:
        assert_sound(store)


def test_threads_migrate_one_file_once(tmp_path, fresh):
    path = an_empty_schema(tmp_path / "store.db")
    applied, barrier = [], threading.Barrier(4)

    def work() -> None:
        connection = opened(path)
        barrier.wait()
        applied.append(migrate(connection, path))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(version for part in applied for version in part) == [s.version for s in load_migrations()]
    assert schema_of(path) == fresh


# --- which steps ------------------------------------------------------------------------------------------


def test_an_edited_step_is_noticed(tmp_path, steps_in):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "x")
        assert_sound(store)
    step = steps_in / "0001_first_light.sql"
    step.write_text(step.read_text(encoding="utf-8") + "-- one comment more\n", encoding="utf-8")
    load_migrations.cache_clear()
    connection = opened(path)
    assert edited_steps(connection) == ["first_light"]
    connection.close()
    with open_store(path) as store:
        found = [f for f in store.doctor().findings if f.check == "migrations"]
        assert len(found) == 1
        assert "first_light" in found[0].message
        assert texts(store) == ["x"]


@pytest.mark.parametrize(("names", "fault"), [
    (["0002_second.sql"], "without gaps"), (["0001_a.sql", "0003_c.sql"], "without gaps"),
    (["0001_a.sql", "0001_b.sql"], "without gaps"), (["0000_zero.sql"], "without gaps"),
    (["0001_a.sql", "two.sql"], "two.sql is no migration name"), (["0001_A.sql"], "no migration name"),
    (["1_a.sql"], "no migration name"),
])  # fmt: skip
def test_gaps_and_other_names_are_refused(steps_in, names, fault):
    for step in steps_in.iterdir():
        step.unlink()
    for name in names:
        (steps_in / name).write_text("SELECT 1;\n")
    load_migrations.cache_clear()
    with pytest.raises(StoreError, match=fault):
        load_migrations()


def test_steps_are_recorded_with_their_checksums(tmp_path):
    SqliteStorage.create(tmp_path / "store.db")
    version, _, steps = schema_of(tmp_path / "store.db")
    assert version == newest_version()
    assert steps == [(step.version, step.name, step.checksum) for step in load_migrations()]
    assert [step.version for step in load_migrations()] == list(range(1, version + 1))


def test_a_newer_schema_is_refused(tmp_path, steps_in):
    path = tmp_path / "store.db"
    added = next_step()
    step = steps_in / f"{added:04}_more.sql"
    step.write_text("CREATE TABLE more (id);\n")
    load_migrations.cache_clear()
    open_store(path).close()
    step.unlink()
    load_migrations.cache_clear()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match=rf"version {added}.*knows {added - 1}"):
        open_store(path)
    assert path.read_bytes() == before


def test_migrating_twice_does_nothing(tmp_path):
    SqliteStorage.create(tmp_path / "store.db")
    connection = opened(tmp_path / "store.db")
    called = []
    assert migrate(connection, tmp_path / "store.db", lambda *what: called.append(what)) == []
    assert called == []
    connection.close()


# --- statements -------------------------------------------------------------------------------------------


def test_statements_of_the_steps_are_whole():
    for step in load_migrations():
        split = list(statements(step.sql))
        assert "".join(split).strip() == step.sql.strip(), "nothing is left out"
        assert all(apsw.complete(statement) for statement in split)


@given(st.lists(st.sampled_from([
    "CREATE TABLE t (a TEXT DEFAULT ';');\n", "-- a comment; with a semicolon\n", "INSERT INTO t VALUES ('a;\nb');\n",
    "CREATE TRIGGER r AFTER INSERT ON t BEGIN\n  DELETE FROM t;\n  DELETE FROM t;\nEND;\n", "/* ; */ SELECT 1;\n", "\n",
])))  # fmt: skip
def test_statements_are_cut_where_they_end(parts):
    sql = "".join(parts)
    split = list(statements(sql))
    assert "".join(split).strip() == sql.strip()
    assert sum(apsw.complete(statement) for statement in split) == sum(
        part.rstrip().endswith(";") for part in parts
    )


def test_a_step_without_its_last_semicolon_is_not_cut_short(tmp_path, steps_in):
    """What stands behind the last complete statement must not be dropped without a word."""
    (steps_in / f"{next_step():04}_more.sql").write_text("CREATE TABLE one (id);\nCREATE TABLE two (id)")
    load_migrations.cache_clear()
    path = tmp_path / "store.db"
    try:
        open_store(path).close()
    except StoreError:
        return
    assert {"one", "two"} <= {row[1] for row in schema_of(path)[1]}


def test_the_checksum_is_of_the_text():
    assert Migration(1, "a", "SELECT 1;").checksum == Migration(2, "b", "SELECT 1;").checksum
    assert Migration(1, "a", "SELECT 1;").checksum != Migration(1, "a", "SELECT 2;").checksum


# --- in a wheel -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("memstore", "migrations"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=source, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_steps_are_found_in_an_installed_wheel(tmp_path, wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.endswith(".sql")}
        archive.extractall(tmp_path / "site")
    own = {
        f"memstore/_migrations/sqlite/{path.name}" for path in (ROOT / "migrations" / "sqlite").glob("*.sql")
    }
    assert inside >= own
    script = (
        "import sys, memstore\nfrom memstore import MemoryStore\nfrom memstore.storage.migrate import load_migrations, migrations_folder\n"
        "print(memstore.__file__)\nprint(migrations_folder())\nprint([(s.name, s.checksum) for s in load_migrations()])\n"
        "MemoryStore(sys.argv[1]).close()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", script, str(tmp_path / "store.db")],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    module, folder, steps = done.stdout.splitlines()
    assert module == str(tmp_path / "site" / "memstore" / "__init__.py")
    assert folder == str(tmp_path / "site" / "memstore" / "_migrations")
    assert steps == str([(step.name, step.checksum) for step in load_migrations()])


def test_in_a_checkout_the_steps_are_the_folder_beside_the_package():
    assert migrations.migrations_folder() == ROOT / "migrations"
