"""How files beside the database are written: one small seam, so that tests can let each operation fail and can
drop what was never synced. The database itself goes through SQLite's own file layer (a VFS).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from memstore.errors import StoreBusy


class Files(Protocol):
    """What the fallback needs of the operating system to write. Every method may raise OSError."""

    def write(self, descriptor: int, data: bytes) -> int:
        """One write at the end of the file; returns how many bytes were taken, which may be fewer."""
        ...

    def truncate(self, descriptor: int, size: int) -> None: ...

    def sync_data(self, descriptor: int) -> None:
        """What was written to the file, and its size, survive power loss afterwards."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """New, renamed and removed names in the folder survive power loss afterwards."""
        ...


class SystemFiles:
    """The operating system's own."""

    _sync_data = staticmethod(getattr(os, "fdatasync", os.fsync))  # macOS has no fdatasync

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync_data(self, descriptor: int) -> None:
        self._sync_data(descriptor)

    def sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


SYSTEM_FILES = SystemFiles()


@contextmanager
def alone_in(folder: Path, what: str) -> Iterator[None]:
    """One such work at a time in a folder; the lock ends with its process, however that ends.

    :raises StoreBusy: while another one runs.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreBusy(f"another {what} is running in {folder}; wait for it to end") from error
        yield
    finally:
        os.close(descriptor)
