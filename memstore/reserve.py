"""The reserve: a file beside the database that holds nothing but room.

On a full disk even a delete needs room, for its pages in the write-ahead log. Where there is none, giving the
reserve up lets deletes, checkpoints and compaction run, which then free more. New rows never get it.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from memstore.errors import FallbackError, NotFound, StoreFull
from memstore.file_system import free_bytes
from memstore.files import SYSTEM_FILES, Files

logger = logging.getLogger("memstore")

CHUNK_BYTES = 2**20
SHARE = 4
"""On a small disk the reserve takes this part of what is free and no more."""
LEAST_BYTES = 256 * 1024
BLOCK_BYTES = 512
"""The unit of ``st_blocks``, whatever the blocks of the file system."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Reserve:
    """The reserve of one database. Several processes may make and free the same one.

    :param size: how much it is to hold; 0: there is to be none.
    :param afterwards: is called when it was given up for something: there is never more room to bring the write-ahead
        log into the file, which frees the log's.
    """

    database: Path
    size: int
    files: Files = SYSTEM_FILES
    afterwards: Callable[[], object] = lambda: None

    @property
    def path(self) -> Path:
        return Path(f"{self.database}.reserve")

    def held(self) -> int:
        """Bytes that giving it up would free, 0 without one. What was never allocated does not count."""
        try:
            found = self.path.stat(follow_symlinks=False)
        except OSError:
            return 0
        if not stat.S_ISREG(found.st_mode) or not self._is_ours():
            return 0
        return min(found.st_size, found.st_blocks * BLOCK_BYTES)

    def _is_ours(self) -> bool:
        """It holds nothing: a file of that name with something in it is somebody's."""
        try:
            with self.path.open("rb") as file:
                return not file.read(BLOCK_BYTES).strip(b"\0")
        except OSError:
            return False

    def due(self) -> int:
        """How large it is to be here: its size, on a small disk a quarter of what is free, 0 where that is next to
        nothing."""
        room = free_bytes(self.path)
        size = self.size if room is None else min(self.size, (room + self.held()) // SHARE)
        return size if size >= min(self.size, LEAST_BYTES) else 0

    def make(self) -> bool:
        """Bring the reserve to the size that is :meth:`due`; returns whether there is one.

        A disk that is full, or a folder that cannot be written, is no error here: ``doctor`` says what is missing.
        """
        if not self.size or self.held() >= self.size:
            return True
        if self.path.exists() and not self._is_ours():
            logger.warning(
                "%s is no reserve: it holds something, and is left alone; there is no room for deletes on a full disk",
                self.path,
            )
            return False
        size = self.due()
        if self.held() >= size:
            return self.held() > 0
        try:
            self._allocate(size)
        except OSError as error:
            logger.debug("no reserve %s: %s", self.path, error)
            if error.errno in _FULL:
                self.path.unlink(missing_ok=True)  # half of one would keep others from what room there is
            return False
        return True

    def _allocate(self, size: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            allocate = getattr(os, "posix_fallocate", None)
            if allocate is None:  # macOS
                _fill(descriptor, size)
            else:
                allocate(descriptor, 0, size)
        finally:
            os.close(descriptor)

    def release(self) -> int:
        """Give the room to whoever needs it; returns how many bytes that were."""
        held = self.held()
        if self.path.exists() and not self._is_ours():
            return 0
        try:
            self.path.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            logger.warning("the reserve %s could not be freed: %s", self.path, error)
            return 0
        return held

    def give_up_for(self, error: BaseException) -> bool:
        """Release it if an error says that there is no room; returns whether that gave any."""
        freed = self.release() if means_full(error) else 0
        if freed:
            logger.warning("the disk is full; the reserve of %d bytes was freed for what frees more", freed)
            self.afterwards()
        return bool(freed)


def _fill(descriptor: int, size: int) -> None:
    for start in range(0, size, CHUNK_BYTES):
        chunk = bytes(min(CHUNK_BYTES, size - start))
        if os.pwrite(descriptor, chunk, start) != len(chunk):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def means_full(error: BaseException) -> bool:
    """Whether an error of a write says that the disk, or a quota, has no room left."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StoreFull) or (isinstance(cause, OSError) and cause.errno in _FULL):
            return True
        cause = cause.__cause__
    return False


def with_room(reserve: Reserve, work: Callable[[], Result]) -> Result:
    """Do work that frees room, or keeps the store in order. Where the disk is full, give the reserve up and do it once
    more.

    :raises StoreFull: when that was not enough.
    """
    try:
        return work()
    except (StoreFull, FallbackError) as error:
        if not reserve.give_up_for(error):
            raise
    return work()


def delete_with_room(reserve: Reserve, delete: Callable[[], None]) -> None:
    """The same for a deletion. One that the second attempt does not find any more was made by the first, whose commit
    failed in a way that left that open.

    :raises StoreFull: when that was not enough.
    """
    try:
        delete()
    except (StoreFull, FallbackError) as error:
        if not reserve.give_up_for(error):
            raise
    else:
        return
    with suppress(NotFound):
        delete()
