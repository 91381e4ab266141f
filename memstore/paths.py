"""Paths of stores as callers give them."""

import shlex
from os import PathLike, fspath
from pathlib import Path

from memstore.errors import InvalidInput


def checked_path(path: str | PathLike[str]) -> Path:
    """The real path of a database file: one fallback folder whatever name the file is opened by.

    :raises InvalidInput: for what names no file.
    """
    if not isinstance(path, str | PathLike):
        raise InvalidInput(f"the path of a store is text or a path, not {type(path).__name__}")
    name = fspath(path)
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidInput(f"{name!r:.60} names no file")
    if name == ":memory:" or name.startswith("file:"):
        raise InvalidInput(
            f"{name!r:.60} is no path: a store is a file on disk; in tests use a temporary folder"
        )
    try:
        name.encode()
        path = Path(name).resolve()
        path.exists()  # a name too long for its file system
    except PermissionError:
        return Path(name).absolute()  # opening it will say what may not be done
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        raise InvalidInput(f"{name!r:.60} names no file: {error}") from error
    return path


def quoted(path: Path) -> str:
    """A path as it stands in a command that a person may copy into a shell."""
    return shlex.quote(str(path))
