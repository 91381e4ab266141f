"""The doubles themselves: faults come where they were asked for, and the model of power loss can lose."""

import errno
import os
from pathlib import Path

import apsw
import pytest

from faults_support import database, doubles, numbers, run
from memstore.testing import FaultPlan, FaultVFS, FaultyFiles, SimulatedDisk
from test_imports import loaded_after


@pytest.fixture
def made(tmp_path):
    with doubles() as found:
        yield found


def insert(connection, n, filler=0):
    run(connection, "INSERT INTO numbers VALUES (?, zeroblob(?))", n, filler)


# --- faults in the database's files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "fault", "code"),
    [
        ("write", "error", apsw.SQLITE_IOERR_WRITE),
        ("write", "torn", apsw.SQLITE_IOERR_WRITE),
        ("write", "full", apsw.SQLITE_FULL),
        ("sync", "error", apsw.SQLITE_IOERR_FSYNC),
    ],
)
def test_a_fault_of_a_commit_comes_once_at_the_nth_operation(tmp_path, made, operation, fault, code):
    path = tmp_path / "raw.db"
    with database(path, made.vfs.name) as connection:
        made.plan.reset()
        insert(connection, 1)
        of_one = made.plan.count(operation)
        assert of_one > 0
        made.plan.fail(fault, of_one + 1, operations=[operation])
        insert(connection, 2)
        assert made.plan.met == []
        with pytest.raises(apsw.Error) as caught:
            insert(connection, 3)
        assert caught.value.extendedresult == code
        assert [(m.fault, m.operation, m.file) for m in made.plan.met] == [(fault, operation, "raw.db-wal")]
        insert(connection, 4)
    assert {1, 2, 4} <= set(numbers(path))


def test_a_sticky_fault_stays_until_it_is_lifted(tmp_path, made):
    path = tmp_path / "raw.db"
    with database(path, made.vfs.name) as connection:
        made.plan.fail("full", sticky=True)
        for n in range(3):
            with pytest.raises(apsw.FullError):
                insert(connection, n)
        assert len(made.plan.met) == 3
        made.plan.lift()
        insert(connection, 7)
    assert numbers(path) == [7]


def test_reading_truncating_opening_and_deleting_fail(tmp_path, made):
    path = tmp_path / "raw.db"
    with database(path, made.vfs.name) as connection:
        insert(connection, 1, 30_000)
        made.plan.fail("error", operations=["open"])
        with pytest.raises(apsw.CantOpenError):
            apsw.Connection(str(path), vfs=made.vfs.name)
        made.plan.fail("error", operations=["truncate"], file="*-wal")
        with pytest.raises(apsw.IOError) as caught:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert caught.value.extendedresult == apsw.SQLITE_IOERR_TRUNCATE
    made.plan.reset()
    for fault, error in (("error", apsw.IOError), ("short", apsw.Error)):
        connection = apsw.Connection(str(path), vfs=made.vfs.name)
        made.plan.fail(fault, sticky=True, operations=["read"], file="raw.db")
        with pytest.raises(error):
            run(connection, "SELECT sum(length(filler)) FROM numbers")
        made.plan.lift()
        connection.close()
    connection = apsw.Connection(str(path), vfs=made.vfs.name)
    insert(connection, 2)
    made.plan.fail("error", operations=["delete"])
    with pytest.raises(apsw.IOError):
        connection.close()
    assert [m.operation for m in made.plan.met[-1:]] == ["delete"]
    assert numbers(path) == [1, 2]


def test_half_of_a_torn_write_is_in_the_file(tmp_path, made):
    path = tmp_path / "raw.db"
    with database(path, made.vfs.name) as connection:
        insert(connection, 1)
        before = Path(f"{path}-wal").stat().st_size
        made.plan.fail("torn", 2, file="*-wal")  # the second write of a frame is its page
        with pytest.raises(apsw.IOError):
            insert(connection, 2)
        assert before < Path(f"{path}-wal").stat().st_size < before + 4096
        insert(connection, 3)
    assert numbers(path) == [1, 3]


def test_a_plan_refuses_what_no_operation_can_meet():
    plan = FaultPlan()
    for wrong in ({"nth": 0}, {"operations": ["read"]}, {"operations": []}):
        with pytest.raises(ValueError, match="full"):
            plan.fail("full", **wrong)


def test_every_file_layer_has_a_name_of_its_own_and_gives_it_back():
    first, second = FaultVFS(), FaultVFS()
    assert len({first.name, second.name} & set(apsw.vfs_names())) == 2
    second.close()
    with first:
        assert first.name in apsw.vfs_names()
    assert not {first.name, second.name} & set(apsw.vfs_names())


def test_a_file_layer_can_take_what_names_none(tmp_path):
    before = apsw.vfs_names()
    with FaultVFS(default=True) as layer:
        connection = apsw.Connection(str(tmp_path / "raw.db"))
        run(connection, "CREATE TABLE numbers (n)")
        assert layer.plan.count("write", "raw.db") > 0
        connection.close()
    assert apsw.vfs_names() == before
    assert numbers(tmp_path / "raw.db") == []


# --- faults in the fallback's files -----------------------------------------------------------------------


@pytest.fixture
def day(tmp_path):
    descriptor = os.open(tmp_path / "day.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    yield descriptor
    os.close(descriptor)


def test_faults_of_plain_files(tmp_path, made, day):
    files, plan, path = made.files, made.plan, tmp_path / "day.jsonl"
    assert files.write(day, b"whole\n") == 6
    plan.fail("full")
    assert files.write(day, b"12345678") == 4  # as the system says it: fewer bytes than asked
    plan.fail("torn")
    with pytest.raises(OSError, match=r"day\.jsonl"):
        files.write(day, b"abcdefgh")
    plan.fail("error", operations=["write"])
    with pytest.raises(OSError, match=r"day\.jsonl") as caught:
        files.write(day, b"nothing")
    assert caught.value.errno == errno.EIO
    assert path.read_bytes() == b"whole\n1234abcd"
    for operation, call in (
        ("truncate", lambda: files.truncate(day, 6)),
        ("sync", lambda: files.sync_data(day)),
        ("sync", lambda: files.sync_folder(tmp_path)),
    ):
        plan.fail("error", operations=[operation])
        with pytest.raises(OSError, match="error"):
            call()
        call()
    assert path.read_bytes() == b"whole\n"
    assert [m.operation for m in plan.met] == ["write", "write", "write", "truncate", "sync", "sync"]


def test_a_plan_counts_through_database_and_files_in_their_order(tmp_path, made, day):
    with database(tmp_path / "raw.db", made.vfs.name) as connection:
        made.plan.reset()
        seen = []
        made.plan.before_each = seen.append
        made.files.write(day, b"line\n")
        insert(connection, 1)
        assert seen == list(range(1, made.plan.total + 1))
        assert made.plan.count("write") == made.plan.count("write", "*-wal") + 1
        assert made.plan.count("write", ("*-wal", "*.jsonl")) == made.plan.count("write")
        made.plan.fail("error", 2, operations=["write"])
        made.files.write(day, b"line\n")
        with pytest.raises(apsw.IOError):
            insert(connection, 2)
        made.plan.fail("error", 1, file=("no", "*.jsonl"))
        insert(connection, 3)
        with pytest.raises(OSError, match=r"day\.jsonl"):
            made.files.write(day, b"line\n")


def test_database_and_files_share_a_full_disk(tmp_path, made, day):
    path = tmp_path / "raw.db"
    with database(path, made.vfs.name) as connection:
        used = sum(file.stat().st_size for file in tmp_path.iterdir() if not file.name.endswith("-shm"))
        shm = Path(f"{path}-shm").stat().st_size
        made.plan.limit(tmp_path, used + shm + 10)
        assert made.files.write(day, b"123456789012") == 10
        with pytest.raises(OSError) as caught:
            made.files.write(day, b"x")
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(apsw.FullError):
            insert(connection, 1, 10_000)
        made.files.truncate(day, 0)
        assert made.files.write(day, b"x") == 1
        made.plan.limit(tmp_path, None)
        insert(connection, 2, 10_000)
        assert {m.fault for m in made.plan.met} == {"full"}
    assert numbers(path) == [2]


def test_a_folder_with_a_limit_of_its_own_is_another_disk(tmp_path, made):
    inner = tmp_path / "inner"
    inner.mkdir()
    made.plan.limit(tmp_path, 10)
    made.plan.limit(inner, 5)
    for folder, fits in ((tmp_path, 10), (inner, 5)):
        descriptor = os.open(folder / "day.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        assert made.files.write(descriptor, b"x" * 20) == fits
        os.close(descriptor)


# --- power loss: plain files ------------------------------------------------------------------------------

SEEDS = 150


def after_losses(disk, tmp_path, name="day.jsonl"):
    """What the file is after each of many losses; None where it is not there."""
    left = []
    for seed in range(SEEDS):
        target = tmp_path.parent / f"{tmp_path.name}-lost-{seed}"
        disk.lose(seed, target)
        left.append((target / name).read_bytes() if (target / name).exists() else None)
    return left


def test_synced_bytes_stay_and_the_rest_may_go_tear_or_become_zeros(tmp_path, day):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    files.write(day, b"synced\n")
    files.sync_data(day)
    files.write(day, b"first-line\n")
    files.write(day, b"second-line\n")
    left = after_losses(disk, tmp_path)
    assert {found[:7] for found in left} == {b"synced\n"}
    tails = {found[7:] for found in left}
    assert {b"", b"first-line\nsecond-line\n", b"first-line\n", b"\0" * 11 + b"second-line\n"} <= tails
    assert any(b"\0" in tail and len(tail) == 23 for tail in tails)
    assert any(0 < len(tail) < 11 and b"\0" not in tail for tail in tails)


def test_a_truncation_may_be_undone_until_it_is_synced(tmp_path, day):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    files.write(day, b"12345678")
    files.sync_data(day)
    files.truncate(day, 4)
    assert set(after_losses(disk, tmp_path)) == {b"12345678", b"1234"}
    files.sync_data(day)
    disk.root.with_name("nothing").mkdir()
    target = tmp_path / "again"
    disk.lose(1, target)
    assert (target / "day.jsonl").read_bytes() == b"1234"


@pytest.mark.parametrize("synced", [True, False])
def test_a_new_name_is_certain_once_its_folder_was_synced(tmp_path, synced):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    descriptor = os.open(tmp_path / "new.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    files.write(descriptor, b"line\n")
    files.sync_data(descriptor)
    if synced:
        files.sync_folder(tmp_path)
    os.close(descriptor)
    assert set(after_losses(disk, tmp_path, "new.jsonl")) == ({b"line\n"} if synced else {b"line\n", None})


def test_a_rename_may_be_undone_until_its_folder_was_synced(tmp_path, day):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    files.write(day, b"line\n")
    files.sync_data(day)
    (tmp_path / "day.jsonl").rename(tmp_path / "moved.jsonl")
    assert set(after_losses(disk, tmp_path)) == {b"line\n", None}


def test_a_folder_that_was_never_synced_may_vanish_with_all_that_is_in_it(tmp_path):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    inner = tmp_path / "inner"
    inner.mkdir()
    descriptor = os.open(inner / "day.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    files.write(descriptor, b"line\n")
    files.sync_data(descriptor)
    files.sync_folder(inner)
    assert set(after_losses(disk, tmp_path, "inner/day.jsonl")) == {b"line\n", None}
    files.sync_folder(tmp_path)
    os.close(descriptor)
    other = tmp_path.parent / "other"
    for seed in range(SEEDS):
        disk.lose(seed, other)
        assert (other / "inner/day.jsonl").read_bytes() == b"line\n"


def test_the_same_seed_loses_the_same(tmp_path, day):
    disk = SimulatedDisk(tmp_path)
    files = FaultyFiles(FaultPlan(), disk)
    for number in range(20):
        files.write(day, b"%d\n" % number * 100)
    first = after_losses(disk, tmp_path)
    assert after_losses(disk, tmp_path) == first
    assert len(set(first)) > SEEDS // 2


# --- power loss: raw SQLite -------------------------------------------------------------------------------


def losses_of(tmp_path, synchronous):
    """(rows acknowledged, rows found or None for a damaged file) at losses before every operation of a short life."""
    root = tmp_path / synchronous
    root.mkdir()
    found = []
    with doubles() as start, database(root / "raw.db", start.vfs.name):
        pass
    with doubles(root) as made:
        acked = []

        def lose(number):
            target = tmp_path / f"{synchronous}-{number}"
            made.disk.lose(number, target)
            found.append((list(acked), target))

        with database(root / "raw.db", made.vfs.name, synchronous) as connection:
            connection.wal_autocheckpoint(12)
            made.plan.before_each = lose
            for n in range(20):
                insert(connection, n, 3_000)
                acked.append(n)
        made.plan.before_each = None
    return [(acked, numbers_or_none(target / "raw.db")) for acked, target in found]


def numbers_or_none(path):
    try:
        return numbers(path)
    except (apsw.CorruptError, apsw.NotADBError):
        return None


def test_full_never_loses_a_row_and_is_never_damaged(tmp_path):
    losses = losses_of(tmp_path, "FULL")
    assert len(losses) > 150
    for acked, found in losses:
        assert found in (acked, [*acked, len(acked)])


def test_normal_loses_rows_at_the_end_alone_and_is_never_damaged(tmp_path):
    losses = losses_of(tmp_path, "NORMAL")
    for acked, found in losses:
        assert found == list(range(len(found)))
        assert len(found) <= len(acked) + 1
    assert any(len(found) < len(acked) for acked, found in losses)


def test_without_syncs_the_model_damages_the_database(tmp_path):
    """What shows that the model can fail: the same life at ``synchronous=OFF``."""
    losses = losses_of(tmp_path, "OFF")
    assert any(found is None or not set(acked) <= set(found) for acked, found in losses)
    assert any(found is None for _, found in losses)


# --- what is public ---------------------------------------------------------------------------------------


def test_the_doubles_are_public_and_the_engine_is_loaded_with_the_file_layer_alone():
    assert loaded_after("import memstore.testing", "apsw", "numpy") == set()
    assert loaded_after("from memstore.testing import FaultVFS", "apsw", "numpy") == {"apsw"}
