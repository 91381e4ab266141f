"""SQLite through apsw: one file, one writing connection a process, a small pool of reading ones."""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import apsw

from memstore.config import MAINTENANCE_BUSY_TIMEOUT_S, Durability
from memstore.errors import StoreClosed, StoreExists, StoreIO, StoreMissing, StoreUnsound
from memstore.files import SYSTEM_FILES, Files
from memstore.paths import quoted
from memstore.storage.migrate import check_not_newer, migrate, newest_version
from memstore.storage.sqlite import connection as opening
from memstore.storage.sqlite.connection import APPLICATION_ID, StatementHook, driver_errors, must_reopen
from memstore.storage.sqlite.reader import SqliteReader
from memstore.storage.sqlite.wal import WriteAheadLog
from memstore.storage.sqlite.writer import SqliteWriter
from memstore.types import Checkpoint

logger = logging.getLogger("memstore")

POOL_SIZE = 8
"""Reading connections at most; a further reader waits for one."""


class SqliteStorage:
    """See :class:`memstore.storage.base.Storage`.

    One connection writes, under a lock that threads of this process wait on; other processes wait in SQLite for
    the busy timeout. After an error that may have left a connection's caches wrong it is closed, and the next
    use opens a fresh one.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float,
        durability: Durability,
        idle_checkpoint_s: float | None = None,
        hook: StatementHook | None = None,
        vfs: str | None = None,
    ) -> None:
        self.path = path
        self._vfs = vfs
        self._busy_timeout_s = busy_timeout_s
        self._durability = durability
        self._hook = hook
        self._pid = os.getpid()
        self._closed = False
        self._file = (0, 0)
        self._write_lock = threading.RLock()
        self._writer: apsw.Connection | None = None
        self._writing = False
        self._synced_fully: bool | None = None  # of the writing connection; None: not known
        self._idle: list[apsw.Connection] = []
        self._idle_lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(POOL_SIZE)
        self._wal = WriteAheadLog(path, self.checkpoint, idle_checkpoint_s)
        self._check()

    # --- files ---------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: Path,
        meta: Mapping[str, str] | None = None,
        *,
        vfs: str | None = None,
        files: Files = SYSTEM_FILES,
    ) -> None:
        """Make a new, empty store with its own settings. The file appears at its path complete or not at all: even
        the loss of every later write leaves the store that it is.

        :raises StoreExists: when something is there.
        """
        folder = path.parent
        if not folder.is_dir():
            raise StoreIO(f"the folder {folder} does not exist; make it first")
        wal = Path(f"{path}-wal")
        if (
            not path.exists() and wal.exists() and wal.stat().st_size
        ):  # asked in this order: another process may be making both
            raise StoreUnsound(
                f"{path} is missing, but its write-ahead log {wal} is there and may hold what was written last; "
                f"put the database back beside it, or move {wal} and {path}-shm away"
            )
        fresh = folder / f".{path.name}.new-{os.getpid()}-{threading.get_ident()}"
        leftovers = (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-shm"))
        try:
            with driver_errors(path):
                for leftover in leftovers:  # of a killed process with the same numbers
                    leftover.unlink(missing_ok=True)
                os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                made = opening.open_connection(
                    fresh, busy_timeout_s=1, flags=apsw.SQLITE_OPEN_READWRITE, create=True, vfs=vfs
                )
                try:
                    migrate(made, fresh)
                    made.executemany(
                        "INSERT INTO store_meta (key, value) VALUES (?, ?)", (meta or {}).items()
                    ).fetchall()
                finally:
                    made.close()
            cls.publish(fresh, path, files)
        except OSError as error:
            raise opening.from_os_error(error, path) from error
        finally:
            for leftover in leftovers:
                leftover.unlink(missing_ok=True)

    @staticmethod
    def publish(built: Path, path: Path, files: Files = SYSTEM_FILES) -> None:
        """Give a closed, complete file its name. A link, unlike a rename, never replaces what stands there.

        :raises StoreExists: when something does.
        """
        try:
            os.link(built, path)
            files.sync_folder(path.parent)
        except FileExistsError as error:
            raise StoreExists(f"{path} exists already") from error

    def _check(self) -> None:
        application_id, version = opening.probe(self.path, vfs=self._vfs)
        if application_id != APPLICATION_ID:
            raise StoreUnsound(f"{self.path} is a database, but not a memstore store; it is left untouched")
        check_not_newer(self.path, version)
        with self._write_lock:
            try:
                with driver_errors(self.path):
                    connection = self._writer_connection()
                    opened = self.path.stat()
                    self._file = (opened.st_dev, opened.st_ino)
                    if int(connection.pragma("user_version")) < newest_version():
                        migrate(connection, self.path)
                    check_not_newer(self.path, int(connection.pragma("user_version")))
            except BaseException:
                if self._writer is not None:
                    _discard(self._writer)
                raise

    # --- units of work -------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[SqliteReader]:
        """A reader on one snapshot, taken at its first statement."""
        self._alive()  # before any lock: a forked child may have inherited one that no one will release
        with self._slots:
            connection = self._borrow()
            try:
                with driver_errors(self.path):
                    connection.execute("BEGIN").fetchall()
                    try:
                        yield SqliteReader(connection)
                    finally:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK").fetchall()
            except BaseException as error:
                if must_reopen(error):
                    _discard(connection)
                else:
                    self._give_back(connection)
                raise
            self._give_back(connection)

    @contextmanager
    def write(
        self,
        *,
        covered: bool = False,
        maintenance: bool = False,
        stands: Callable[[SqliteReader], bool] | None = None,
    ) -> Iterator[SqliteWriter]:
        """A writer inside ``BEGIN IMMEDIATE … COMMIT``.

        At durability ``disk`` the commit is synced (FULL) unless ``covered``: then the fallback was synced
        before, and the commit may follow it lazily (NORMAL).
        """
        self._alive()
        with self._write_lock:
            self._alive()
            if self._writing:
                raise RuntimeError("a write transaction is already open in this thread")
            self._writing = True
            full = self._durability == "disk" and not covered
            try:
                self._check_in_place()
                with driver_errors(self.path):
                    connection = self._writer_connection()
                    self._set_synchronous(connection, full=full)
                    timeout = MAINTENANCE_BUSY_TIMEOUT_S if maintenance else self._busy_timeout_s
                    connection.set_busy_timeout(int(timeout * 1000))
                    connection.execute("BEGIN IMMEDIATE").fetchall()
                    # A newer program may have changed the schema under this one while it was open.
                    check_not_newer(self.path, int(connection.pragma("user_version")))
                    yield SqliteWriter(connection)
                    self._commit(connection, stands, full=full)
            except BaseException as error:
                self._abandon(error)
                raise
            finally:
                self._writing = False
        self._wal.written()

    def _commit(
        self, connection: apsw.Connection, stands: Callable[[SqliteReader], bool] | None, *, full: bool
    ) -> None:
        """A commit that fails may hold all the same: frames were written, and only then something went wrong. It is
        settled on a fresh connection, which trusts nothing of what this one remembers."""
        try:
            connection.execute("COMMIT").fetchall()
        except apsw.Error as error:
            if stands is None or not must_reopen(error):
                raise
            self._abandon(error)
            fresh = self._writer_connection()
            self._set_synchronous(fresh, full=full)
            fresh.execute("BEGIN IMMEDIATE").fetchall()
            there = stands(SqliteReader(fresh))
            if there and full:  # visible is not yet durable: a synced commit behind it makes it so
                fresh.pragma("user_version", int(fresh.pragma("user_version")))
            fresh.execute("COMMIT" if there else "ROLLBACK").fetchall()
            if not there:
                raise

    def _check_in_place(self) -> None:
        """What is written to a file that was removed or replaced would be gone with it.

        :raises StoreMissing: when the name leads elsewhere than to the file that is open.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise StoreMissing(
                f"{self.path} was removed or replaced while it was open here; nothing was written. Close this store, "
                f"then put the file back, or run: memstore restore BACKUP --db {quoted(self.path)} (without a backup: memstore recover)"
            )

    def _set_synchronous(self, connection: apsw.Connection, *, full: bool) -> None:
        if self._synced_fully is not full:
            connection.pragma("synchronous", 2 if full else 1)
            self._synced_fully = full

    def _abandon(self, error: BaseException) -> None:
        connection = self._writer
        if connection is None:
            return
        if must_reopen(error):
            self._writer = None
            _discard(connection)
        elif connection.in_transaction:
            with driver_errors(self.path):
                connection.execute("ROLLBACK").fetchall()

    @contextmanager
    def exclusive_connection(self) -> Iterator[apsw.Connection]:
        """The writing connection outside a transaction, for maintenance (integrity checks, vacuum, SQL shell)."""
        self._alive()
        with self._write_lock, driver_errors(self.path):
            self._alive()
            self._check_in_place()
            try:
                connection = self._writer_connection()
                connection.set_busy_timeout(int(MAINTENANCE_BUSY_TIMEOUT_S * 1000))
                yield connection
            except BaseException as error:
                self._abandon(error)
                raise

    def checkpoint(self, *, wait_s: float = 0.0, only_if_free: bool = False) -> Checkpoint | None:
        """Bring the write-ahead log into the file and empty it, as far as readers let it.

        :param wait_s: how long to wait for readers.
        :param only_if_free: do nothing, and return None, while another thread writes.
        """
        self._alive()
        if not self._write_lock.acquire(blocking=not only_if_free):
            return None
        try:
            self._alive()
            if self._writing:
                return None
            self._check_in_place()
            with driver_errors(self.path):
                connection = self._writer_connection()
                connection.set_busy_timeout(int(wait_s * 1000))
                before = self._wal.size()
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                return Checkpoint(before, self._wal.size(), emptied=not busy)
        except BaseException as error:
            self._abandon(error)
            raise
        finally:
            self._write_lock.release()

    # --- connections ---------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """:raises StoreClosed: when it was closed, or belongs to the parent of this forked process."""
        self._alive()

    def _alive(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store {self.path} was closed")
        if os.getpid() != self._pid:
            raise StoreClosed(
                f"the store {self.path} belongs to the parent process. Open one in a process whose parent had it closed "
                "at the fork, or start the process by 'spawn' or 'forkserver'"
            )

    def _writer_connection(self) -> apsw.Connection:
        if self._writer is None:
            self._writer = self._open()
            self._synced_fully = None
        return self._writer

    def _open(self) -> apsw.Connection:
        return opening.open_connection(
            self.path,
            busy_timeout_s=self._busy_timeout_s,
            flags=apsw.SQLITE_OPEN_READWRITE,
            hook=self._hook,
            vfs=self._vfs,
        )

    def _borrow(self) -> apsw.Connection:
        self._alive()
        with self._idle_lock:
            if self._idle:
                return self._idle.pop()
        self._check_in_place()
        return self._open()

    def _give_back(self, connection: apsw.Connection) -> None:
        with self._idle_lock:
            if not self._closed:
                self._idle.append(connection)
                return
        _discard(connection)

    def close(self) -> None:
        """Close every connection; safe to call twice and from any thread. The last one out empties the WAL.

        :raises StoreError: when that failed; everything is closed all the same, and the WAL keeps what it holds.
        """
        if os.getpid() != self._pid:
            return
        self._wal.stop()
        with self._write_lock:
            self._closed = True
            with self._idle_lock:
                connections, self._idle = self._idle, []
            if self._writer is not None:
                connections.append(self._writer)
                self._writer = None
            with ExitStack() as closing:  # each one, whatever became of the one before
                for connection in connections:
                    closing.enter_context(driver_errors(self.path))
                    closing.callback(connection.close)


def _discard(connection: apsw.Connection) -> None:
    """Close a connection that met an error: what closing it meets again is not the error to report."""
    try:
        connection.close()
    except apsw.Error as error:
        logger.debug("closing a connection after an error met another one: %s", error)
