"""Giving space back to the file system: free pages of the database, and what its indexes keep of deleted rows."""

from dataclasses import replace
from pathlib import Path

from memstore.storage.sqlite import SqliteStorage, copying
from memstore.types import Progress, SpaceReport


def vacuum(storage: SqliteStorage, path: Path, wait_s: float) -> SpaceReport:
    """See :meth:`memstore.store.MemoryStore.vacuum`.

    :param wait_s: how long to wait for readers of the state before.
    """
    with storage.exclusive_connection() as connection:
        before = copying.bytes_of(connection), _bytes(_log_of(path))
        copying.vacuum(connection, path)
        retired = copying.retired_generations(connection)
    emptied = storage.checkpoint(wait_s=wait_s)
    return SpaceReport(
        bytes_before=before[0],
        bytes_after=_bytes(path),
        log_bytes_before=before[1],
        log_bytes_after=_bytes(_log_of(path)),
        pending=emptied is None or not emptied.emptied,
        retired=tuple(retired),
    )


def compact(
    storage: SqliteStorage, path: Path, wait_s: float, progress: Progress | None = None
) -> SpaceReport:
    """See :meth:`memstore.store.MemoryStore.compact`. Each step is a transaction: killed anywhere, the store is whole,
    and the next run goes on."""
    with storage.exclusive_connection() as connection:
        before = copying.bytes_of(connection), _bytes(_log_of(path))
        strays = copying.remove_strays(connection)
        names = copying.text_tables(connection)
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names) + 1)
        _merge(storage, name)
    if progress is not None:
        progress(len(names), len(names) + 1)
    report = vacuum(storage, path, wait_s)
    return replace(report, bytes_before=before[0], log_bytes_before=before[1], strays=strays)


def _merge(storage: SqliteStorage, name: str) -> None:
    """Others get their turn between the steps; a table that one of them put away meanwhile needs none."""
    begin = more = True
    while more:
        with storage.exclusive_connection() as connection:
            more = name in copying.text_tables(connection) and copying.merge_text(
                connection, name, begin=begin
            )
        begin = False


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
