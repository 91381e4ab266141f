"""The write-ahead log kept small: emptied when nothing was written for a while, and when it grew too long."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from memstore.errors import StoreError
from memstore.types import Checkpoint

logger = logging.getLogger("memstore")

LIMIT_BYTES = 64 * 2**20
"""Beyond it a write tries to empty the log; SQLite itself cuts it back to this length (``journal_size_limit``)."""
WRITES_BETWEEN_TRIES = 50
"""With a reader that stays, not every write waits for it."""
WAIT_FOR_READERS_S = 0.1
"""So long a write that found the log too long waits for readers: each ends soon, but they may overlap for ever."""


class WriteAheadLog:
    """Watches one store's log. SQLite's own checkpoints write pages back and keep the file as long as it ever was.

    :param checkpoint: as :meth:`memstore.storage.sqlite.SqliteStorage.checkpoint`.
    :param idle_s: None: the log is never emptied for idleness.
    """

    def __init__(
        self, database: Path, checkpoint: Callable[..., Checkpoint | None], idle_s: float | None
    ) -> None:
        self._path = Path(f"{database}-wal")
        self._checkpoint = checkpoint
        self._idle_s = idle_s
        self._next_try = 0
        self._changed = threading.Condition()
        self._writes = self._emptied_behind = 0
        self._stopped = self._asleep = False
        self._thread: threading.Thread | None = None

    def size(self) -> int:
        """Bytes of the file, 0 where there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def written(self) -> None:
        """A transaction was committed: called behind it, without any lock."""
        if self.size() <= LIMIT_BYTES:
            self._next_try = 0
        elif self._writes >= self._next_try:
            self._next_try = self._writes + WRITES_BETWEEN_TRIES
            self._empty(wait_s=WAIT_FOR_READERS_S)
        self._writes += 1  # any change is noticed, whichever thread's count wins
        if self._idle_s is not None and (self._thread is None or self._asleep):
            self._wake()

    def _wake(self) -> None:
        with self._changed:
            if self._thread is None and not self._stopped:
                thread = threading.Thread(target=self._watch, name="memstore-wal", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    # No more threads: what was committed is, and the log just stays longer.
                    logger.debug("the write-ahead log is not watched: %s", error)
                    return
                self._thread = thread
            self._changed.notify()

    def stop(self) -> None:
        """End the watch; safe to call twice, and from any thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self) -> None:
        """Sleeps while the log is empty; else looks whether a whole period went by without a write."""
        with self._changed:
            while not self._stopped:
                self._asleep = True  # before the look: a write behind it finds someone to wake
                if self._writes == self._emptied_behind:
                    self._changed.wait()
                self._asleep = False
                seen = self._writes
                if not self._stopped:
                    self._changed.wait(self._idle_s)
                if not self._stopped and seen == self._writes != self._emptied_behind and self._empty():
                    self._emptied_behind = seen

    def _empty(self, wait_s: float = 0.0) -> bool:
        try:
            done = self._checkpoint(wait_s=wait_s, only_if_free=True)
        except StoreError as error:  # a full disk, a file that is gone: whoever writes next is told
            logger.debug("the write-ahead log could not be emptied: %s", error)
            return False
        return done is not None and done.emptied
