"""Which files a forked child must not open: those that its parent had open.

SQLite remembers, once a process and file, which POSIX locks it holds. A forked child inherits that memory and none of
the locks. A connection of its own to such a file would take for granted what it does not have: the parent's close
then removed the write-ahead log under a child, and memories that the child had acknowledged were gone.
"""

import os
from pathlib import Path
from weakref import WeakKeyDictionary

import apsw

from memstore.errors import StoreClosed

_FileId = tuple[int, int]

_open: WeakKeyDictionary[apsw.Connection, _FileId] = WeakKeyDictionary()
_inherited: set[_FileId] = set()


def remember_open(connection: apsw.Connection, path: Path) -> None:
    """Note that this process has a file open for as long as the connection lives."""
    _open[connection] = _file_id(path)


def check_not_inherited(path: Path) -> None:
    """To be asked before SQLite is: a child that was forked while another thread was inside of SQLite would wait there
    for ever, for a lock that no one releases.

    :raises StoreClosed: when the file was open in the process that this one was forked from.
    """
    if _inherited and path.exists() and _file_id(path) in _inherited:
        raise StoreClosed(
            f"{path} was open in the process that this one was forked from, and cannot be opened here: SQLite would "
            "take the parent's locks for its own, and rows could be lost. Close the store before the fork and open it "
            "behind it, or start this process otherwise (multiprocessing: 'spawn' or 'forkserver')"
        )


def _file_id(path: Path) -> _FileId:
    found = path.stat()
    return found.st_dev, found.st_ino


def _in_child() -> None:
    _inherited.update(file for connection, file in _open.items() if _is_open(connection))


def _is_open(connection: apsw.Connection) -> bool:
    """An object may outlive its close. What another thread was using at the fork is open."""
    try:
        return bool(connection.filename)
    except apsw.ConnectionClosedError:
        return False
    except apsw.Error:
        return True


os.register_at_fork(after_in_child=_in_child)
