"""A file layer of SQLite that fails by a plan, and that tells a simulated disk what was written and synced.

It stands on the system's own file layer, so locks, shared memory and real files are as always. A fault reaches SQLite
as the result code that the system's layer would give. One difference remains: apsw raises the error also where SQLite
would pass over it in silence (a checkpoint that a commit started by itself).
"""

import itertools
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import apsw

from memstore.faults import FaultPlan, Operation
from memstore.power_loss import SimulatedDisk

_LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_CODES: dict[Operation, int] = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_numbers = itertools.count(1)


class FaultVFS(apsw.VFS):
    """A file layer under a name of its own, for ``MemoryStore(path, vfs=faults.name)``.

    Unless ``real_syncs``, nothing is truly synced: the plan counts it and the disk believes it. With ``default`` it also
    takes whatever in this process names no file layer. Close every store on it before :meth:`close`, which takes the
    name back.
    """

    def __init__(
        self,
        plan: FaultPlan | None = None,
        disk: SimulatedDisk | None = None,
        *,
        real_syncs: bool = False,
        default: bool = False,
    ) -> None:
        self.plan = plan or FaultPlan()
        self.disk = disk
        self.real_syncs = real_syncs
        self.name = f"memstore-faults-{next(_numbers)}"
        self.base: str = apsw.vfs_names()[0]
        super().__init__(self.name, self.base, makedefault=default)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if name is None:  # a temporary file, which no one else sees
            return apsw.VFSFile(self.base, name, flags)
        return _FaultFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        path = Path(filename)
        self.meet("delete", path)
        if self.disk is not None and path.exists():
            self.disk.forget(path)
        super().xDelete(filename, syncdir and self.real_syncs)
        if self.disk is not None:
            self.disk.deleted(path, with_folder=syncdir)

    def meet(self, operation: Operation, path: Path) -> str | None:
        """Count an operation; raise the fault that it meets, or return the kind that its file acts out."""
        fault = self.plan.meet(operation, path)
        if fault == "error":
            raise _error(_CODES[operation], operation, path)
        return fault

    def close(self) -> None:
        """Take the name back."""
        self.unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self.close()
        return False


class _FaultFile(apsw.VFSFile):
    """An open file of the database, its log or its journal."""

    def __init__(self, layer: FaultVFS, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._layer = layer
        self._path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        self._syncs_folder = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _LOGS)
        layer.meet("open", self._path)
        super().__init__(layer.base, name, flags)
        if layer.disk is not None:
            layer.disk.opened(self._path, self._content)

    def _content(self) -> bytes:
        return super().xRead(super().xFileSize(), 0)  # not by open(): closing that would drop SQLite's locks

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        fault = self._layer.meet("read", self._path)
        data = super().xRead(amount, offset)
        return data[: len(data) // 2] if fault == "short" else data

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        whole = bytes(data)
        fault = self._layer.meet("write", self._path)
        fits = self._layer.plan.room(self._path, offset, len(whole))
        taken = whole[: len(whole) // 2] if fault is not None else whole[:fits]
        if taken:
            super().xWrite(taken, offset)
            if self._layer.disk is not None:
                self._layer.disk.wrote(self._path, offset, taken)
        if fault == "torn":
            raise _error(apsw.SQLITE_IOERR_WRITE, "write", self._path)
        if len(taken) < len(whole):
            raise _error(apsw.SQLITE_FULL, "write", self._path)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._layer.meet("truncate", self._path)
        super().xTruncate(newsize)
        if self._layer.disk is not None:
            self._layer.disk.truncated(self._path, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._layer.meet("sync", self._path)
        if self._layer.real_syncs:
            super().xSync(flags)
        if self._layer.disk is not None:
            self._layer.disk.synced(self._path, with_folder=self._syncs_folder)
        self._syncs_folder = False


def _error(code: int, operation: Operation, path: Path) -> Exception:
    error = apsw.exception_for(code)
    error.args = (f"{operation} of {path.name} fails on purpose",)
    return error
