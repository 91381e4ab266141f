"""What a path stands on: the kind of its file system, and how much room is left there.

WAL mode needs locks and shared memory that every process sees alike. Network file systems do not give that, nor do
some that programs provide (FUSE); there committed rows can be lost without a sign.
"""

import os
import re
from pathlib import Path

from memstore.errors import StoreIO

UNSAFE = frozenset({
    "nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afpfs", "webdav", "davfs", "9p", "afs", "coda", "ncpfs", "ceph",
    "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "vboxsf", "vmhgfs", "prl_fs", "grpcfuse", "osxfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.rclone", "fuse.goofys",
    "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2", "fuse.davfs", "fuse.curlftpfs", "fuse.gvfsd-fuse",
    "fuse.vmhgfs-fuse", "fuse.juicefs", "fuse.seaweedfs", "fuse.moosefs", "fuse.mfs", "fuse.mount-s3",
    "fuse.grpcfuse", "fuse.osxfs", "fuse.smbnetfs", "fuse.afp", "fuse.hdfs", "fuse.lizardfs",
})  # fmt: skip
"""Kinds on which locks or shared memory of several processes are known not to hold."""
_DOUBTFUL = re.compile(r"fuse(?:\..+)?\Z")
"""Other file systems of programs: some hold, some do not. ``fuseblk`` is a local disk."""

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def kind_of(path: Path) -> str | None:
    """The kind of file system that a path stands on, as the kernel names it; None where the system does not say."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no Linux
        return None
    return kind_by_mounts(mounts, path.resolve())


def kind_by_mounts(mounts: str, real_path: Path) -> str | None:
    """The same by the text of ``/proc/self/mountinfo``: of the mount points above the path the deepest counts, and of
    two mounts on one point the later, which hides the other."""
    best, kind = -1, None
    for line in mounts.split("\n"):
        before, separator, after = line.partition(" - ")
        columns = before.split(" ")
        if not separator or len(columns) < len(("id", "parent", "device", "root", "point")):
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), columns[4]))
        if len(point.parts) >= best and real_path.is_relative_to(point):
            best, kind = len(point.parts), after.split(" ", 1)[0]
    return kind


def is_unsafe(kind: str | None) -> bool:
    return kind in UNSAFE


def is_doubtful(kind: str | None) -> bool:
    return kind is not None and not is_unsafe(kind) and _DOUBTFUL.match(kind) is not None


def check_local(path: Path, kind: str | None, *, forced: bool) -> None:
    """:raises StoreIO: when the file system is one on which a store can lose what it acknowledged."""
    if is_unsafe(kind) and not forced:
        raise StoreIO(
            f"{path} is on a file system of the kind {kind}, on which locks and shared memory of several processes do "
            "not hold: rows could be lost without a sign. Nothing was opened or made. Put the store on a local disk; "
            "or, if one process alone ever opens it, allow it by Settings(network_file_system=True), "
            "--network-file-system or MEMSTORE_NETWORK_FILE_SYSTEM=1"
        )


def free_bytes(path: Path) -> int | None:
    """What an ordinary user may still write beside a file, None where the system does not say."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
