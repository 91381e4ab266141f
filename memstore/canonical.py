"""JSON as it is kept, and the checksums taken of it."""

import hashlib
import json
import re
from typing import Any

from memstore.errors import InvalidInput, InvalidText

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical_json(value: Any, what: str = "this value") -> str:
    """JSON with sorted keys and no blanks, equal for equal values.

    :raises InvalidInput: for what JSON cannot hold, NaN and Infinity included.
    """
    return _dumped(value, what, sort_keys=True)


def ordered_json(value: Any, what: str = "this value") -> str:
    """JSON with keys in their own order: for content that is given back as it came.

    :raises InvalidInput: for what JSON cannot hold, NaN and Infinity included.
    """
    return _dumped(value, what, sort_keys=False)


def _dumped(value: Any, what: str, *, sort_keys: bool) -> str:
    try:
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False
        )
    except TypeError as error:
        raise InvalidInput(f"{what} holds what JSON has not (keys must be text): {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be kept as JSON: {error}") from error
    check_encodable(text, what)
    return text


def check_encodable(text: str, what: str) -> None:
    """:raises InvalidText: for lone surrogates, which no UTF-8 file can hold."""
    found = _SURROGATE.search(text)
    if found:
        raise InvalidText(
            f"{what} holds the lone surrogate U+{ord(found.group()):04X} at character {found.start()}; "
            "it is no Unicode text: decode it with errors='replace' first"
        )


def checksum(*parts: Any) -> str:
    """32 hexadecimal digits of SHA-256 over the canonical JSON of the parts."""
    return hashlib.sha256(canonical_json(list(parts)).encode()).hexdigest()[:32]
