"""Which file system a path stands on, and that a store is not opened where locks do not hold (R25)."""

from pathlib import Path

import pytest

from cli_support import Cli
from memstore import MemoryStore, Scope, Settings, file_system
from memstore.config import ENVIRONMENT, network_file_system_allowed
from memstore.errors import ConfigError, StoreIO
from memstore.file_system import (
    UNSAFE,
    check_local,
    free_bytes,
    is_doubtful,
    is_unsafe,
    kind_by_mounts,
    kind_of,
)

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:27 / /srv rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2
31 30 0:28 / /srv/share/local rw - xfs /dev/vdb rw
32 27 0:29 / /mnt/with\040blank rw shared:2 master:1 propagate_from:3 - cifs //server/share rw
33 27 0:30 / /mnt/back\134slash rw - 9p share rw
34 27 0:31 /deep/inside /bound rw - btrfs /dev/vdc rw,subvol=/deep
35 27 0:32 / /layers rw - overlay overlay rw,lowerdir=/a,upperdir=/b
36 27 0:33 / /over rw - nfs server:/old rw
37 36 0:34 / /over rw - tmpfs tmpfs rw
38 27 0:35 / /under rw - tmpfs tmpfs rw
39 38 0:36 / /under rw - fuse.sshfs me@there: rw
40 27 0:37 / /mnt rw - ext4 /dev/vdd rw
41 27 0:38 / /中文 rw - fuse.rclone remote: rw
torn line
42 27 0:39 / /last rw - zfs pool/last rw"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/store.db", "ext4"),
        ("/var/lib/store.db", "ext4"),
        ("/srv/store.db", "nfs4"),
        ("/srv/share/store.db", "nfs4"),
        ("/srv/share/local/deep/store.db", "xfs"),
        ("/srv/share/localnot/store.db", "nfs4"),
        ("/srvice/store.db", "ext4"),
        ("/mnt/with blank/store.db", "cifs"),
        ("/mnt/with/store.db", "ext4"),
        ("/mnt/back\\slash/store.db", "9p"),
        ("/bound/store.db", "btrfs"),
        ("/layers/store.db", "overlay"),
        ("/over/store.db", "tmpfs"),
        ("/under/store.db", "fuse.sshfs"),
        ("/中文/store.db", "fuse.rclone"),
        ("/last/store.db", "zfs"),
        ("/last", "zfs"),
    ],
)
def test_the_deepest_mount_point_counts_and_of_two_the_later(path, kind):
    assert kind_by_mounts(MOUNTS, Path(path)) == kind


@pytest.mark.parametrize(
    "mounts", ["", "nonsense", "1 2 3\n - ext4", "\n\n", "1 2 0:1 / /elsewhere rw - nfs x rw"]
)
def test_a_table_that_says_nothing_of_the_path_leaves_it_unknown(mounts):
    assert kind_by_mounts(mounts, Path("/store.db")) is None


@pytest.mark.parametrize(
    "kind", ["ext4", "ext3", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "apfs", "hfs", "ntfs3", "fuseblk", "bcachefs", "virtiofs", None]
)  # fmt: skip
def test_local_file_systems_pass(kind):
    check_local(Path("/store.db"), kind, forced=False)
    assert not is_doubtful(kind)


@pytest.mark.parametrize("kind", sorted(UNSAFE))
def test_others_are_refused_unless_forced(kind):
    with pytest.raises(StoreIO, match=rf"/store\.db .*{kind}.*local disk.*MEMSTORE_NETWORK_FILE_SYSTEM"):
        check_local(Path("/store.db"), kind, forced=False)
    check_local(Path("/store.db"), kind, forced=True)
    assert is_unsafe(kind)


@pytest.mark.parametrize("kind", ["fuse", "fuse.encfs", "fuse.unheard-of"])
def test_unknown_programs_file_systems_pass_with_a_word_of_doubt(kind):
    check_local(Path("/store.db"), kind, forced=False)
    assert is_doubtful(kind)


def test_the_kind_of_a_real_path_and_what_is_free_there(tmp_path):
    assert kind_of(tmp_path / "not there yet" / "store.db") == kind_of(tmp_path)
    assert free_bytes(tmp_path / "store.db") > 0
    assert free_bytes(tmp_path / "no folder" / "store.db") is None
    link = tmp_path / "link"
    link.symlink_to("/proc")
    if kind_of(tmp_path) is not None:
        assert kind_of(link / "self") == "proc"


@pytest.fixture
def on_nfs(tmp_path, monkeypatch) -> Path:
    """The test's folder, said to be a network's."""
    table = tmp_path / "mountinfo"
    folder = tmp_path / "share"
    folder.mkdir()
    table.write_text(f"1 1 0:1 / / rw - ext4 d rw\n2 1 0:2 / {folder} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(file_system, "_MOUNTS", table)
    return folder


def test_a_store_on_a_network_file_system_is_neither_made_nor_opened(on_nfs):
    path = on_nfs / "store.db"
    allowed = Settings(network_file_system=True, timezone="UTC")
    for attempt in (
        lambda: MemoryStore(path),
        lambda: MemoryStore.recover(on_nfs.parent / "lost.db", path),
    ):
        with pytest.raises(StoreIO, match="nfs4"):
            attempt()
        assert list(on_nfs.iterdir()) == []
    with MemoryStore(path, settings=allowed) as store:
        store.add(Scope("t", "u", "a"), "kept")
        report = store.doctor()
        assert report.ok
        assert report.place["file_system"] == "nfs4"
        assert [(f.severity, f.repair) for f in report.findings if f.check == "file system"] == [
            ("warning", None)
        ]
    before = path.read_bytes()
    with pytest.raises(StoreIO, match="Nothing was opened"):
        MemoryStore(path)
    report = MemoryStore.examine(path)
    assert not report.ok
    assert (report.findings[0].check, report.place["file_system"]) == ("open", "nfs4")
    assert path.read_bytes() == before


def test_the_command_line_refuses_and_is_forced_by_option_or_environment(on_nfs):
    cli = Cli(on_nfs / "store.db")
    refused = cli("add", "rain")
    assert refused.exit_code == 1
    assert "nfs4" in refused.stderr
    assert list(on_nfs.iterdir()) == []
    cli.answer("add", "rain", "--network-file-system")
    assert cli("sql", "SELECT 1").exit_code == 1
    assert cli("recall", "rain").exit_code == 1
    forced = {"MEMSTORE_NETWORK_FILE_SYSTEM": "1"}
    assert cli.answer("recall", "rain", **forced)["hits"]
    assert cli.answer("sql", "SELECT 1 AS one", **forced) == {"rows": [{"one": 1}]}
    wrong = cli("recall", "rain", MEMSTORE_NETWORK_FILE_SYSTEM="maybe")
    assert wrong.exit_code != 0
    assert "MEMSTORE_NETWORK_FILE_SYSTEM must be 1 or 0" in wrong.stderr


@pytest.mark.parametrize(
    ("value", "allowed"), [("1", True), ("TRUE", True), ("no", False), ("0", False), (None, False)]
)
def test_what_the_environment_may_say(monkeypatch, value, allowed):
    name = ENVIRONMENT["network_file_system"]
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    assert network_file_system_allowed() is allowed


def test_the_setting_is_checked():
    with pytest.raises(ConfigError, match="network_file_system"):
        Settings(network_file_system="yes")


def test_doctor_says_what_it_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setattr(file_system, "_MOUNTS", tmp_path / "no such table")
    with MemoryStore(tmp_path / "store.db") as store:
        report = store.doctor()
    assert report.ok
    assert report.place["file_system"] is None
