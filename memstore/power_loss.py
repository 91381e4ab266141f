"""What a disk may hold after power loss: a model for tests.

What the program wrote is in the system's page cache, and read back from there. On the disk is what was synced, and of
the rest anything: each write whole, not at all, or torn; in any order; a longer file with zeros in it. A name (a new
file, a renamed or removed one) is there for certain once its folder was synced. A file that SQLite makes as a log is
an exception: SQLite's own file layer syncs the folder with the log's first sync, and so does the model.

The model watches the real files of one folder and below. It sees what goes through the doubles of
:mod:`memstore.faults` and the file layer of tests; of a file that they never touched it takes the real content, and
the name's fate decides whether it is there. ``-shm`` files do not survive: SQLite makes them anew.
"""

import random
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR_BYTES = 512
"""A disk writes a sector whole or not at all."""

_Range = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int


@dataclass(slots=True)
class _File:
    """A file's synced content, and what was done to it since."""

    durable: bytearray
    size: int
    pending: list[_Write | _Truncate] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()


_Names = dict[str, "_File | None"]
"""The names in a folder; None for folders and for files that never went through the model."""


class SimulatedDisk:
    """The disk under one folder. What is there at the beginning counts as synced.

    Nothing outside the model may write to a file that it has seen.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._files: dict[tuple[int, int], _File] = {}
        self._names: dict[Path, _Names] = {}
        self._lock = threading.RLock()
        for folder in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            self.folder_synced(folder)

    # --- what the doubles tell ------------------------------------------------------------------------------

    def opened(self, path: Path, read: Callable[[], bytes]) -> None:
        """A file is about to be used. ``read`` gives the content of one that was there before the model."""
        with self._lock:
            found = path.stat()
            known = self._files.get((found.st_dev, found.st_ino))
            if known is not None and known.size == found.st_size:
                return
            content = read()
            if known is None and self._names.get(path.parent, {}).get(path.name, found) is None:
                made = _File(bytearray(content), len(content))
                self._names[path.parent][path.name] = made
            else:  # a new file, maybe one that took over the number of a removed one
                made = _File(bytearray(), len(content), [_Write(0, content)] if content else [])
            self._files[found.st_dev, found.st_ino] = made

    def wrote(self, path: Path, offset: int, data: bytes) -> None:
        with self._lock:
            file = self._of(path)
            file.pending.append(_Write(offset, bytes(data)))
            file.size = max(file.size, offset + len(data))

    def truncated(self, path: Path, size: int) -> None:
        with self._lock:
            file = self._of(path)
            file.pending.append(_Truncate(size))
            file.size = size

    def synced(self, path: Path, *, with_folder: bool = False) -> None:
        with self._lock:
            self._of(path).sync()
            if with_folder:
                self.folder_synced(path.parent)

    def folder_synced(self, folder: Path) -> None:
        """The names that the folder holds now are on the disk."""
        if folder != self.root and self.root not in folder.parents:
            return
        with self._lock:
            self._names[folder] = {path.name: self._found(path) for path in folder.iterdir()}

    def deleted(self, path: Path, *, with_folder: bool) -> None:
        """A file was removed; its name may come back until the folder is synced."""
        with self._lock:
            if with_folder:
                self.folder_synced(path.parent)

    def forget(self, path: Path) -> None:
        """A file is about to be removed: another may take over its number."""
        with self._lock:
            found = path.stat()
            if found.st_nlink == 1:
                self._files.pop((found.st_dev, found.st_ino), None)

    def _of(self, path: Path) -> _File:
        found = path.stat()
        return self._files[found.st_dev, found.st_ino]

    def _found(self, path: Path) -> "_File | None":
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):  # a folder may have got the number of a file that is gone
            return None
        return self._files.get((found.st_dev, found.st_ino))

    # --- the loss -------------------------------------------------------------------------------------------

    def lose(self, seed: int, target: Path) -> None:
        """Write into an empty folder what the disk might hold if the power went now; the same seed, the same loss.

        The program under test may go on: nothing of it is changed.
        """
        rng = random.Random(seed)  # noqa: S311 - chance that can be repeated
        with self._lock:
            self._lose_folder(self.root, target, rng, _MOODS[rng.choice(tuple(_MOODS))])

    def _lose_folder(self, folder: Path, target: Path, rng: random.Random, mood: "_Mood") -> None:
        target.mkdir(exist_ok=True)
        synced = self._names.get(folder, {})
        now = {path.name: self._found(path) for path in folder.iterdir()}
        for name in sorted({*synced, *now}):
            if name.endswith("-shm"):
                continue
            unsure = name not in synced or name not in now or synced[name] is not now[name]
            names = rng.choice((synced, now)) if unsure else now
            if name not in names:
                continue
            file, path = names[name], folder / name
            if file is not None:
                _put(target / name, _left(file, rng, mood), path if name in now else None)
            elif path.is_dir() and not path.is_symlink():
                self._lose_folder(path, target / name, rng, mood)
            elif path.is_file():
                _put(target / name, path.read_bytes(), path)


def _put(copy: Path, data: bytes, original: Path | None) -> None:
    copy.write_bytes(data)
    copy.chmod(stat.S_IMODE(original.stat().st_mode) if original is not None else 0o600)


# --- what is left of a file --------------------------------------------------------------------------------

_Mood = Callable[[int, random.Random], Iterator[str]]
"""The fates of so many changes of a file, in their order."""


def _any_order(count: int, rng: random.Random) -> Iterator[str]:
    """Each change for itself: later ones may be there without earlier ones."""
    return (rng.choice(("kept", "kept", "dropped", "torn", "zeros")) for _ in range(count))


def _in_order(count: int, rng: random.Random) -> Iterator[str]:
    """Up to some point, which may lie inside a write."""
    end = rng.randint(0, count)
    return (
        "kept" if n < end else rng.choice(("torn", "dropped")) if n == end else "dropped"
        for n in range(count)
    )


_MOODS: dict[str, _Mood] = {
    "all dropped": lambda count, _: ("dropped" for _ in range(count)),
    "all kept": lambda count, _: ("kept" for _ in range(count)),
    "in order": _in_order,
    "any order": _any_order,
    "any order again": _any_order,  # the hardest, and so twice as often
}


def _left(file: _File, rng: random.Random, mood: _Mood) -> bytes:
    image = bytearray(file.durable)
    for change, fate in zip(file.pending, mood(len(file.pending), rng), strict=True):
        if fate == "dropped":
            continue
        if isinstance(change, _Truncate) or fate == "kept":
            _apply(image, change)
        elif fate == "zeros":  # the size reached the disk, the data did not
            _grow(image, change.offset + len(change.data))
        else:
            for offset, part in _torn(change, rng):
                _apply(image, _Write(offset, part))
    return bytes(image)


def _torn(write: _Write, rng: random.Random) -> Iterator[_Range]:
    """A beginning of it, or any of its sectors."""
    if rng.random() < 0.5:  # noqa: PLR2004 - one of two
        yield write.offset, write.data[: rng.randrange(len(write.data) + 1)]
        return
    start = 0
    while start < len(write.data):
        end = min(
            len(write.data),
            (write.offset + start) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - write.offset,
        )
        if rng.random() < 0.5:  # noqa: PLR2004 - one of two
            yield write.offset + start, write.data[start:end]
        start = end


def _apply(image: bytearray, change: _Write | _Truncate) -> None:
    if isinstance(change, _Truncate):
        del image[change.size :]
        _grow(image, change.size)
    else:
        _grow(image, change.offset)
        image[change.offset : change.offset + len(change.data)] = change.data


def _grow(image: bytearray, size: int) -> None:
    image.extend(bytes(max(0, size - len(image))))
