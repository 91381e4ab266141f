"""The write-ahead log before anybody plays it in.

SQLite plays a log in up to its first frame that does not hold, and says nothing of what stands behind it: after a
power cut that is what was never acknowledged, after damage it may be anything. Once the store is open and written to,
the rest is gone. The format is described at https://www.sqlite.org/fileformat2.html#walformat
"""

import struct
from pathlib import Path

import apsw

from memstore.storage.sqlite.connection import driver_errors
from memstore.types import Finding

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC = 0x377F0682
"""Its last bit says in which order of bytes the checksums are taken."""
_WORD = 0xFFFFFFFF


def check_log(path: Path, *, vfs: str | None = None) -> list[Finding]:
    """Whether a log that a dead process left holds to its end. Call it before the store is opened; the file is only
    read. What another process writes meanwhile is not taken for damage."""
    log = Path(f"{path}-wal")
    found = _held(log, vfs)
    if found is None or found[0] == found[1] or found != _held(log, vfs):
        return []
    held, written = found
    message = (
        f"{log.name}: {written - held} of {written} frames of the log do not hold, as after a power cut or damage. What "
        "was committed in them is lost where the fallback does not hold it: compare with the last backup"
    )
    return [Finding("log", "warning", message)]


def _held(log: Path, vfs: str | None) -> tuple[int, int] | None:
    """(frames that hold, frames written since the log last began), None without a log."""
    if not log.exists() or log.stat().st_size <= _HEADER_BYTES:
        return None
    with driver_errors(log):
        file = apsw.VFSFile(vfs or "", str(log), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
        try:
            return _frames(file)
        finally:
            file.xClose()


def _frames(file: apsw.VFSFile) -> tuple[int, int]:
    header = file.xRead(_HEADER_BYTES, 0)
    magic, _, page_size, _ = struct.unpack(">4I", header[:16])
    salts = header[16:24]
    order = ">" if magic & 1 else "<"
    total = (file.xFileSize() - _HEADER_BYTES) // (_FRAME_HEADER_BYTES + page_size) if page_size else 1
    sums = _summed((0, 0), header[:24], order)
    if magic | 1 != _MAGIC | 1 or struct.pack(">2I", *sums) != header[24:]:
        return 0, max(1, total)
    held = written = 0
    for number in range(total):
        at = _HEADER_BYTES + number * (_FRAME_HEADER_BYTES + page_size)
        frame = file.xRead(_FRAME_HEADER_BYTES, at)
        if held == number and frame[8:16] == salts:
            page = file.xRead(page_size, at + _FRAME_HEADER_BYTES)
            sums = _summed(_summed(sums, frame[:8], order), page, order)
            held += struct.pack(">2I", *sums) == frame[16:]
        if frame[8:16] == salts:
            written = number + 1
    return held, max(held, written)


def _summed(sums: tuple[int, int], data: bytes, order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & _WORD
        second = (second + words[place + 1] + first) & _WORD
    return first, second
