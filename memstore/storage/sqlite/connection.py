"""Connections: how a memstore file is opened, and what driver errors mean.

The file is opened by apsw's SQLite alone. Another SQLite library in this process (the standard ``sqlite3``, or a
plain ``open()`` of the file) would drop the POSIX locks of every connection here, and committed rows could be
lost without a sign.
"""

import errno
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from memstore.errors import (
    EngineTooOld,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreIO,
    StoreReadOnly,
    StoreUnsound,
)
from memstore.paths import quoted
from memstore.storage.sqlite.forks import check_not_inherited, remember_open

APPLICATION_ID = 0x6D656D73
"""``mems``, in the header of every store."""
PAGE_SIZE = 8192
"""Five 384-dimensional vectors fit a page (14 % waste); a 4,096-byte page holds two (29 %)."""
SQLITE_FLOOR = (3, 53, 2)
"""3.51.3 mends a WAL reset that could corrupt, 3.53.2 an FTS5 heap overflow (CVE-2026-11824)."""
SQLITE_VEC_FLOOR = (0, 1, 9)
"""0.1.9 mends deletion from vec0."""

StatementHook = Callable[[str], None]

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_LEAST_PAGE_SIZE = 512

_TO_REOPEN = (apsw.IOError, apsw.FullError, apsw.CorruptError, apsw.NoMemError, apsw.NotADBError)


def check_versions(sqlite: str, sqlite_vec: str) -> None:
    """Refuse engines below the floor.

    :raises EngineTooOld: naming what is there and what is needed.
    """
    for name, version, floor, package in (
        ("SQLite", sqlite, SQLITE_FLOOR, "apsw"),
        ("sqlite-vec", sqlite_vec, SQLITE_VEC_FLOOR, "sqlite-vec"),
    ):
        found = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
        if found < floor:
            needed = ".".join(map(str, floor))
            raise EngineTooOld(
                f"{name} {version} is older than {needed}, below which data can be lost; "
                f"run: pip install --upgrade {package}"
            )


def vector_extension() -> str:
    """Path of sqlite-vec's library, found without importing its package (which would import numpy)."""
    spec = importlib.util.find_spec("sqlite_vec")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    for folder in folders:
        library = Path(folder) / f"vec0{suffix}"
        if library.is_file():
            return str(library)
    raise EngineTooOld("the extension sqlite-vec is not installed; run: pip install 'sqlite-vec>=0.1.9'")


def open_connection(
    path: Path,
    *,
    busy_timeout_s: float,
    flags: int,
    create: bool = False,
    hook: StatementHook | None = None,
    vfs: str | None = None,
) -> apsw.Connection:
    """A connection with every setting this store relies on. See the comments for each one's reason.

    :raises StoreClosed: in a forked child whose parent had the file open.
    """
    check_not_inherited(path)
    with driver_errors(path):
        connection = apsw.Connection(
            str(path), flags=flags | (apsw.SQLITE_OPEN_CREATE if create else 0), vfs=vfs
        )
        try:
            _configure(connection, busy_timeout_s, create=create)
        except BaseException:
            connection.close()
            raise
    remember_open(connection, path)
    if hook is not None:
        _attach_hook(connection, hook)
    return connection


def _configure(connection: apsw.Connection, busy_timeout_s: float, *, create: bool) -> None:
    connection.set_busy_timeout(int(busy_timeout_s * 1000))  # first: the statements below may meet a lock
    if create:
        _run(connection, f"PRAGMA page_size = {PAGE_SIZE}")  # only before WAL mode
        _run(connection, f"PRAGMA application_id = {APPLICATION_ID}")
    if not connection.readonly("main"):  # a copy that another program made may have lost the mode
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreIO(
                f"this file system does not support WAL mode (got {mode!r}); put the store on a local disk"
            )
    connection.pragma("synchronous", "NORMAL")  # a writer raises it to FULL where the fallback does not cover
    connection.pragma("foreign_keys", True)
    connection.pragma("secure_delete", True)  # deleted text is overwritten with zeros
    connection.pragma("trusted_schema", False)  # functions named in a foreign schema may not do harm
    connection.pragma("cell_size_check", True)  # a damaged page is met as an error, not as wrong rows
    connection.pragma("mmap_size", 0)  # an I/O error then is an error code and not a signal
    connection.pragma("journal_size_limit", 64 * 2**20)  # the WAL is cut back after a long reader
    connection.pragma("cache_size", -16_384)
    connection.pragma("temp_store", 2)  # sorts of private rows stay in memory
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)  # a mistyped column is an error, not a text
    connection.enable_load_extension(True)
    try:
        connection.load_extension(vector_extension())
    except apsw.ExtensionLoadingError as error:
        raise EngineTooOld(
            f"sqlite-vec cannot be loaded ({error}); run: pip install --force-reinstall sqlite-vec"
        ) from error
    finally:
        connection.enable_load_extension(False)
    check_versions(apsw.sqlite_lib_version(), str(scalar(connection, "SELECT vec_version()")))


def _attach_hook(connection: apsw.Connection, hook: StatementHook) -> None:
    def traced(_cursor: apsw.Cursor, statement: str, _bindings: Any) -> bool:
        hook(statement)
        return True

    connection.exec_trace = traced


def probe(path: Path, *, vfs: str | None = None) -> tuple[int, int]:
    """(application id, schema version) of a file, read without locking, writing or making any file.

    Only the header is looked at: a checkpoint of another process may be under way, and the pages behind it are in
    the middle of changing then. It is read through SQLite's own file layer, which keeps the locks of this process.

    :raises StoreUnsound: when the file is no SQLite database.
    :raises StoreClosed: in a forked child whose parent had the file open.
    """
    check_not_inherited(path)
    if path.is_dir():
        raise StoreUnsound(f"{path} is a folder, not a database file")
    if path.exists() and not path.is_file():
        raise StoreUnsound(f"{path} is no file, but a pipe or a device")
    with driver_errors(path):
        file = apsw.VFSFile(vfs or "", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            header = file.xRead(_HEADER_BYTES, 0) if file.xFileSize() >= _HEADER_BYTES else b""
        finally:
            file.xClose()
    page_size = int.from_bytes(header[16:18]) if header[16:18] != b"\x00\x01" else 65_536
    if not header.startswith(_MAGIC) or page_size < _LEAST_PAGE_SIZE:
        raise StoreUnsound(
            f"{path} is no SQLite database. It is left untouched; move it away, then run: "
            f"memstore recover --db {quoted(path)}"
        )
    pages = int.from_bytes(header[28:32]) if header[24:28] == header[92:96] else 0
    # In this order: while there is a WAL, a checkpoint may have written the header and not yet the last page.
    wal_size = _size(Path(f"{path}-wal"))
    size = _size(path)
    if not wal_size and size < pages * page_size:
        raise StoreUnsound(
            f"{path} is cut short: {size} of {pages * page_size} bytes. It is left untouched; restore a backup, "
            f"or run: memstore recover --db {quoted(path)} --out NEW.db"
        )
    return int.from_bytes(header[68:72]), int.from_bytes(header[60:64])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _run(connection: apsw.Connection, statement: str) -> None:
    for _row in connection.execute(statement):
        pass  # an undrained cursor would pin the WAL


def scalar(connection: apsw.Connection, statement: str, bindings: tuple[Any, ...] = ()) -> Any:
    """The first column of the first row, None without a row. Always drains the cursor."""
    rows = all_rows(connection, statement, bindings)
    return rows[0][0] if rows else None


def all_rows(connection: apsw.Connection, statement: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """Every row, read at once: no cursor stays open."""
    rows: list[Any] = connection.execute(statement, bindings).fetchall()
    return rows


@contextmanager
def driver_errors(path: Path | str) -> Iterator[None]:
    """Turn apsw's errors into ours. The only place that knows them."""
    try:
        yield
    except apsw.BusyError as error:
        raise StoreBusy(
            f"{path} is locked by another process; nothing was written, try again ({error})"
        ) from error
    except apsw.FullError as error:
        raise StoreFull(f"no space left for {path}; free some, then try again") from error
    except apsw.ReadOnlyError as error:
        raise StoreReadOnly(
            f"{path} cannot be written: check the owner and mode of the file and its folder"
        ) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StoreUnsound(
            f"{path} is damaged or no SQLite database ({error}). It is left as it is; run: memstore doctor --db {quoted(Path(path))}"
        ) from error
    except apsw.CantOpenError as error:
        raise StoreIO(
            f"{path} cannot be opened: check that its folder exists and may be read and written"
        ) from error
    except apsw.InterruptError as error:
        raise TimeoutError("interrupted at its deadline") from error
    except UnicodeDecodeError as error:
        raise StoreUnsound(
            f"{path} holds text that is no UTF-8, so it is damaged. It is left as it is; run: memstore doctor --db {quoted(Path(path))}"
        ) from error
    except (apsw.IOError, apsw.NoMemError) as error:
        raise _io_error(error, path) from error
    except (apsw.ForkingViolationError, apsw.ThreadingViolationError) as error:
        raise StoreError(f"a connection of {path} was used where it must not be: {error}") from error


def _io_error(error: apsw.Error, path: Path | str) -> StoreError:
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:  # the index of the log found no room
        return StoreFull(f"no space left for {path}; free some, then try again")
    return StoreIO(f"reading or writing {path} failed: {error}")


def must_reopen(error: BaseException | None) -> bool:
    """After such an error a connection's caches cannot be trusted: FTS5 was seen to corrupt its totals."""
    while error is not None:
        if isinstance(error, _TO_REOPEN):
            return True
        error = error.__cause__
    return False


def from_os_error(error: OSError, path: Path) -> StoreError:
    """The error of ours for what the operating system said about a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space left for {path}; free some, then try again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"{path} cannot be written: check the owner and mode of its folder")
    return StoreIO(f"reading or writing {path} failed: {error}")
