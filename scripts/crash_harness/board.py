"""Memory that the harness shares with its workers: where each thread is at this moment, and what time it is.

It outlives a worker that is killed, so that the harness can tell where the kill fell.
"""

import mmap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memstore.files import SystemFiles

WIDTH = 64
NUMBER_BYTES = 8
BETWEEN = "between calls"
POINTS = (
    ("BEGIN IMMEDIATE", "writing"), ("BEGIN", "reading"), ("COMMIT", "committing"), ("ROLLBACK", "read"),
    ("VACUUM", "vacuuming"), ("SAVEPOINT", "writing in a group"), ("PRAGMA wal_checkpoint", "checkpoint"),
)  # fmt: skip
"""What the beginning of a statement says of how far a call is."""
START = datetime(2026, 3, 1, 20, 0, tzinfo=UTC)


class Board:
    """A line of text for each thread of each worker, and how much time it let pass."""

    def __init__(self, lines: int) -> None:
        self._memory = mmap.mmap(-1, lines * (WIDTH + NUMBER_BYTES))
        self._passed = memoryview(self._memory)[lines * WIDTH :].cast("q")
        self._mine = threading.local()

    def sit(self, line: int) -> None:
        """The line that the calling thread writes to from now on."""
        self._mine.line = line
        self.call(BETWEEN)

    def call(self, name: str) -> None:
        """What the thread does from now on."""
        self._mine.call = name
        self.at("begun" if name != BETWEEN else "")

    def at(self, point: str) -> None:
        """Where in its call the thread is. A thread without a line (one that the store started) is not told of."""
        line = getattr(self._mine, "line", None)
        if line is not None:
            text = f"{self._mine.call}: {point}".removesuffix(": ").encode()[:WIDTH]
            self._memory[line * WIDTH : (line + 1) * WIDTH] = text.ljust(WIDTH)

    def read(self, line: int) -> str:
        return self._memory[line * WIDTH : (line + 1) * WIDTH].decode(errors="replace").strip("\0 ")

    def wipe(self, line: int) -> None:
        self._memory[line * WIDTH : (line + 1) * WIDTH] = bytes(WIDTH)

    # The wall clock of all processes. Each thread adds to a number of its own: so it never goes back.

    def now(self) -> datetime:
        return START + timedelta(microseconds=sum(self._passed))

    def monotonic(self) -> float:
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        self._passed[self._mine.line] += int(seconds * 1_000_000)


class WatchedFiles(SystemFiles):
    """Writes to the fallback, noted on the board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def write(self, descriptor: int, data: bytes) -> int:
        self._board.at("appending lines")
        return super().write(descriptor, data)

    def sync_data(self, descriptor: int) -> None:
        self._board.at("syncing lines")
        super().sync_data(descriptor)
        self._board.at("lines synced")

    def sync_folder(self, folder: Path) -> None:
        self._board.at("syncing a new day")
        super().sync_folder(folder)


def watched_statements(board: Board) -> Callable[[str], None]:
    """A statement hook that notes on the board how far a transaction is."""

    def hook(statement: str) -> None:
        for words, point in POINTS:
            if statement.startswith(words):
                board.at(point)
                return

    return hook
