"""Cursors of pages: where a listing goes on, as text that means nothing to anyone else."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from memstore.errors import InvalidInput


def write_cursor(place: Sequence[int | str] | None) -> str | None:
    """None after the last page."""
    return None if place is None else base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def read_cursor(cursor: str) -> list[Any]:
    """What :func:`write_cursor` was given; whether it is a place of this listing the caller has to look at.

    :raises InvalidInput: for what it never wrote.
    """
    try:
        place = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, TypeError, AttributeError, RecursionError):
        place = None
    if not isinstance(place, list):
        raise not_ours(cursor)
    return place


def not_ours(cursor: object) -> InvalidInput:
    """The error for a cursor of something else."""
    return InvalidInput(f"cursor {cursor!r:.60} is none that a page gave; start without one")
