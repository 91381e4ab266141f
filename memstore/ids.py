"""Public ids: sortable by time, not guessable (48 bits of milliseconds, 80 random bits, Crockford base 32: ULID)."""

import os
import re
from datetime import datetime

from memstore.times import to_micros

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SHAPE = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}\Z")


def new_id(now: datetime) -> str:
    """A fresh id. Its time part only helps people to read it; nothing orders by it but ties."""
    milliseconds = max(0, to_micros(now) // 1000) & (2**48 - 1)
    value = milliseconds << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


def is_id(text: object) -> bool:
    """Whether the text could be an id of ours; anything else is simply not found."""
    return isinstance(text, str) and _SHAPE.match(text) is not None
