"""Reading JSONL that others wrote: bytes in, numbered records or the reason why there is none out.

Read as a stream: memory holds one chunk and one line. UTF-8, also with a byte order mark, and UTF-16 with one;
lines end with LF, CRLF or a lone CR, and with nothing else (U+2028 is text).
"""

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from memstore.canonical import ordered_json
from memstore.errors import InvalidInput

CHUNK_BYTES = 64 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is reported: it is no message, and it would have to be held whole."""
MAX_DEPTH = 100
"""Deeper records are refused, well before the interpreter's own recursion limit is near."""

_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BLANKS = re.compile(r"[ \t]*")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Line:
    """A record of a file, or the fault of a line that holds none.

    :param number: counted from 1; two records that share a line share its number.
    :param offset: bytes of the file that were read by then.
    :param size: bytes of the line.
    """

    number: int
    offset: int
    size: int
    record: dict[str, Any] | None
    fault: str | None = None


def read_lines(stream: BinaryIO) -> Iterator[Line]:
    """The records of a file in their order; blank lines are passed over. Never raises for what the file holds."""
    for number, (raw, offset) in enumerate(_split(_utf8_chunks(stream)), 1):
        if isinstance(raw, str):
            yield Line(number, offset, 0, None, raw)
            continue
        for found in _records(raw):
            record, fault = (None, found) if isinstance(found, str) else (found, None)
            yield Line(number, offset, len(raw), record, fault)


def strict_object(text: str) -> dict[str, Any]:
    """The one JSON object that a text is.

    :raises InvalidInput: saying why it is none.
    """
    record, end = _object_at(text, _after_blanks_and_breaks(text, 0))
    if _after_blanks_and_breaks(text, end) != len(text):
        raise InvalidInput("text stands behind the JSON object")
    return record


def _utf8_chunks(stream: BinaryIO) -> Iterator[tuple[bytes | str, int]]:
    """The file as UTF-8 with the offset behind each chunk; as text, what kept it from being read on."""
    decoder: codecs.IncrementalDecoder | None = None
    offset = 0
    while True:
        try:
            chunk = stream.read(CHUNK_BYTES)
        except OSError as error:
            yield f"the file cannot be read on from here: {error}", offset
            return
        if offset == 0 and chunk.startswith(_UTF16_BOMS):
            # Halves of pairs are let through, so that the line they stand in fails as UTF-8, and only that one.
            decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
        offset += len(chunk)
        if not chunk:
            return  # half a character that the decoder still holds belongs to no whole record
        yield chunk if decoder is None else decoder.decode(chunk).encode("utf-8", "surrogatepass"), offset


def _split(chunks: Iterator[tuple[bytes | str, int]]) -> Iterator[tuple[bytes | str, int]]:
    """Lines without their ends; as text, why a line is none."""
    parts: list[bytes] = []
    size = offset = 0
    after_cr = False
    for chunk, offset in chunks:
        if isinstance(chunk, str):
            yield chunk, offset
            return
        if after_cr and chunk[:1] == b"\n":  # a CRLF that the chunk border cut
            chunk = chunk[1:]  # noqa: PLW2901
            after_cr = False
        if not chunk:
            continue
        after_cr = chunk.endswith(b"\r")
        for piece in chunk.splitlines(keepends=True):  # of bytes: LF, CRLF and CR alone
            text = piece.rstrip(b"\r\n")
            size += len(text)
            parts.append(text)
            if size > MAX_LINE_BYTES:
                parts.clear()
            if len(text) != len(piece):
                yield _whole(parts, size), offset
                parts, size = [], 0
    if size:
        yield _whole(parts, size), offset


def _whole(parts: list[bytes], size: int) -> bytes | str:
    if size > MAX_LINE_BYTES:
        return f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB"
    return b"".join(parts)


def _records(raw: bytes) -> Iterator[dict[str, Any] | str]:
    """The records of a line; as text, what is wrong with it. Writers that died without an end of line leave the
    next record on the same line, and file systems leave NUL bytes."""
    data = raw.strip(b"\0 \t")
    data = data.removeprefix(codecs.BOM_UTF8)  # of any line: files were joined
    if not data:
        if b"\0" in raw:
            yield "the line holds NUL bytes only"
        return
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield f"the line is not valid Unicode (byte {error.start + 1}: {error.reason})"
        return
    at = _after_blanks(text, 0)
    while at < len(text):
        try:
            record, end = _object_at(text, at)
        except InvalidInput as error:
            yield str(error)
            return
        yield record
        at = _after_blanks(text, end)


def _object_at(text: str, at: int) -> tuple[dict[str, Any], int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"not JSON: {error.msg} (character {error.pos + 1})") from error
    except RecursionError as error:
        raise InvalidInput(f"the JSON is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:  # a number of more digits than the interpreter reads, NaN and Infinity
        raise InvalidInput(f"not JSON that can be kept: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"a JSON object was expected, not {_JSON_NAMES[type(value)]}")
    if text.count("[", at, end) + text.count("{", at, end) > MAX_DEPTH and _is_deep(value):
        raise InvalidInput(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    if _SURROGATE_ESCAPE.search(text, at, end):
        ordered_json(value, "the line")
    return value, end


_JSON_NAMES = {
    list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", type(None): "null",
}  # fmt: skip


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _is_deep(value: Any) -> bool:
    """Whether containers are nested more than ``MAX_DEPTH`` levels; without recursion, which is the point."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _after_blanks_and_breaks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
