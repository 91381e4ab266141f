"""Storage that fails on purpose: one plan of faults for the database's file layer and the fallback's files.

Both count their operations in the plan, in the order in which they happen, so that "the seventh write fails" means
the seventh of a whole call, whichever file it goes to. The file layer for the database is
:class:`memstore.storage.sqlite.faults.FaultVFS`; what a disk holds after power loss is in :mod:`memstore.power_loss`.
"""

import errno
import fcntl
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, get_args

from memstore.files import SYSTEM_FILES, Files
from memstore.power_loss import SimulatedDisk

Operation = Literal["open", "read", "write", "truncate", "sync", "delete"]
"""What is counted. ``sync`` is of a file or a folder; opening and deleting are seen for the database's files alone."""
Fault = Literal["error", "full", "torn", "short"]
"""``error``: the operation fails and nothing of it happened. ``full``: half is written, then the disk is full (the
fallback is told how much, as the system does). ``torn``: half is written, then an input/output error. ``short``: a
read ends halfway as if the file ended there, which a sound system never does."""

_OF_FAULT: dict[Fault, frozenset[Operation]] = {
    "error": frozenset(get_args(Operation)),
    "full": frozenset({"write"}),
    "torn": frozenset({"write"}),
    "short": frozenset({"read"}),
}


@dataclass(frozen=True, slots=True)
class Met:
    """A fault that was met: which operation, on which file, and its number among all operations."""

    fault: Fault
    operation: Operation
    file: str
    number: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    fault: Fault
    operations: frozenset[Operation]
    files: tuple[str, ...]
    nth: int
    sticky: bool


class FaultPlan:
    """Which operations fail. One plan may serve several stores and threads.

    ``total`` and ``counts`` (by operation and file name) say what happened since the last :meth:`reset`, ``met`` which
    faults came into effect. ``before_each`` is called with the number of every operation before it happens.
    """

    def __init__(self, before_each: Callable[[int], None] | None = None) -> None:
        self.before_each = before_each
        self.counts: Counter[tuple[Operation, str]] = Counter()
        self.total = 0
        self.met: list[Met] = []
        self._wanted: list[_Wanted] = []
        self._seen: list[int] = []
        self._limits: dict[Path, int] = {}
        self._lock = threading.RLock()

    def fail(
        self,
        fault: Fault,
        nth: int = 1,
        *,
        operations: Collection[Operation] | None = None,
        file: str | tuple[str, ...] = "*",
        sticky: bool = False,
    ) -> None:
        """Let the ``nth`` operation from now on fail, once, or from there on for good.

        :param operations: None: every kind that the fault can be of.
        :param file: a pattern of file names, such as ``*-wal`` or ``*.jsonl``, or several.
        """
        possible = _OF_FAULT[fault]
        wanted = possible if operations is None else frozenset(operations)
        if nth < 1 or not wanted or not wanted <= possible:
            raise ValueError(
                f"no {fault!r} at operation {nth} of {sorted(wanted)}: it can be of {sorted(possible)}"
            )
        with self._lock:
            self._wanted.append(_Wanted(fault, wanted, _patterns(file), nth, sticky))
            self._seen.append(0)

    def limit(self, folder: Path, size_bytes: int | None) -> None:
        """A full disk: all files in the folder together stay within so many bytes, None for no limit. A folder with a
        limit of its own below it is another disk."""
        with self._lock:
            if size_bytes is None:
                self._limits.pop(folder.resolve(), None)
            else:
                self._limits[folder.resolve()] = size_bytes

    def lift(self) -> None:
        """No more faults and limits; what was counted stays."""
        with self._lock:
            self._wanted.clear()
            self._seen.clear()
            self._limits.clear()

    def reset(self) -> None:
        """No more faults and limits, and counted from zero."""
        with self._lock:
            self.lift()
            self.counts.clear()
            self.met.clear()
            self.total = 0

    def count(self, operation: Operation | None = None, file: str | tuple[str, ...] = "*") -> int:
        """How many operations there were, of one kind and by patterns of file names."""
        with self._lock:
            return sum(
                number
                for (kind, name), number in self.counts.items()
                if operation in (None, kind) and _is_one_of(name, _patterns(file))
            )

    def meet(self, operation: Operation, path: Path) -> Fault | None:
        """Count an operation that is about to happen; the fault that it meets."""
        with self._lock:
            self.total += 1
            self.counts[operation, path.name] += 1
            number, fault = self.total, None
            for index, wanted in enumerate(self._wanted):
                if operation not in wanted.operations or not _is_one_of(path.name, wanted.files):
                    continue
                self._seen[index] += 1
                if self._seen[index] == wanted.nth or (wanted.sticky and self._seen[index] > wanted.nth):
                    fault = fault or wanted.fault
            if fault is not None:
                self.met.append(Met(fault, operation, path.name, number))
        if self.before_each is not None:
            self.before_each(number)
        return fault

    def room(self, path: Path, offset: int, size: int) -> int:
        """How many of ``size`` bytes can be written at an offset before the limit is reached."""
        with self._lock:
            if not self._limits:
                return size
            disk = self._disk_of(path)
            if disk is None:
                return size
            now = path.stat().st_size if path.exists() else 0
            free = max(0, self._limits[disk] - self._used(disk))
            fits = min(size, max(0, now - offset) + free)
            if fits < size:
                self.met.append(Met("full", "write", path.name, self.total))
            return fits

    def _disk_of(self, path: Path) -> Path | None:
        return next((folder for folder in path.parents if folder in self._limits), None)

    def _used(self, disk: Path) -> int:
        sizes: dict[tuple[int, int], int] = {}
        for path in disk.rglob("*"):
            if self._disk_of(path) == disk and path.is_file():
                with suppress(FileNotFoundError):  # removed meanwhile
                    found = path.stat()
                    sizes[found.st_dev, found.st_ino] = found.st_size
        return sum(sizes.values())


class FaultyFiles:
    """Writes the fallback's files by a plan. ``disk`` notes what of it would survive power loss; then, and unless
    ``real_syncs``, nothing is truly synced, which is much faster."""

    def __init__(
        self,
        plan: FaultPlan,
        disk: SimulatedDisk | None = None,
        *,
        real_syncs: bool = False,
        files: Files = SYSTEM_FILES,
    ) -> None:
        self.plan = plan
        self.disk = disk
        self._real_syncs = real_syncs
        self._files = files

    def write(self, descriptor: int, data: bytes) -> int:
        path, offset = path_of(descriptor), os.fstat(descriptor).st_size
        fault = self.plan.meet("write", path)
        fits = self.plan.room(path, offset, len(data))
        if fault == "error":
            raise _os_error(path)
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        taken = data[: len(data) // 2] if fault is not None else data[:fits]
        if self.disk is not None:
            self.disk.opened(path, path.read_bytes)
        written = self._files.write(descriptor, taken)
        if self.disk is not None:
            self.disk.wrote(path, offset, taken[:written])
        if fault == "torn":
            raise _os_error(path)
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        path = self._allowed("truncate", path_of(descriptor))
        if self.disk is not None:
            self.disk.opened(path, path.read_bytes)
        self._files.truncate(descriptor, size)
        if self.disk is not None:
            self.disk.truncated(path, size)

    def sync_data(self, descriptor: int) -> None:
        path = self._allowed("sync", path_of(descriptor))
        if self._real_syncs:
            self._files.sync_data(descriptor)
        if self.disk is not None:
            self.disk.opened(path, path.read_bytes)
            self.disk.synced(path)

    def sync_folder(self, folder: Path) -> None:
        self._allowed("sync", folder)
        if self._real_syncs:
            self._files.sync_folder(folder)
        if self.disk is not None:
            self.disk.folder_synced(folder)

    def _allowed(self, operation: Operation, path: Path) -> Path:
        if self.plan.meet(operation, path) is not None:
            raise _os_error(path)
        return path


def _patterns(file: str | tuple[str, ...]) -> tuple[str, ...]:
    return (file,) if isinstance(file, str) else file


def _is_one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def path_of(descriptor: int) -> Path:
    """The path that an open file has now."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, b"\0" * 1024).rstrip(b"\0")))
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _os_error(path: Path) -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO), str(path))
