"""Reads what a model answered. Chat models wrap their JSON in talk, fences and thoughts, leave commas behind, or are
cut off; what can be read without guessing is read, everything else is refused and asked again.

No message of an error here holds text of the reply: errors are kept with jobs, beyond the deletion of what a user said.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn

from memstore.apologies import is_apology
from memstore.errors import LLMRejected

__all__ = ["MAX_DEPTH", "MAX_REPLY_CHARS", "is_apology", "read_json", "read_text"]

MAX_REPLY_CHARS = 1 << 20
MAX_DEPTH = 64
"""Of brackets within brackets; the replies that memstore asks for have four."""
_MAX_VALUES = 1_000
_MAX_BROKEN = 8

_THOUGHTS = "think|thinking|thought|reasoning|reflection|scratchpad|analysis"
_MARK = re.compile(
    rf"(?P<fence>`{{3,}}|~~~+)(?P<label>[\w+-]*)|(?P<thought><(?P<end>/?)(?:{_THOUGHTS})>)|(?P<open>[\[{{])",
    re.IGNORECASE,
)
_THOUGHT_ENDS = re.compile(rf"</(?:{_THOUGHTS})>", re.IGNORECASE)
_ANSWER = re.compile(r"^[ \t]*+(?:`{3,}|~~~+)json", re.IGNORECASE | re.MULTILINE)
# What tells a value from a bracket in prose, such as "[note]", "{name}", "[1 of 2" or the empty box of a to-do list.
_OPENS_JSON = re.compile(
    r"""
      ^ \[\x20\] $
    | \[ (?! \x20\] ) \s*+ (?: [\[{"\]] | (?: -?\d[\d.eE+-]*+ | true | false | null | NaN | -?Infinity ) \s*+ [,\]] )
    | \{ \s*+ ["}]
    | [\[{] \s*+ \Z                        # cut off right there
    """,
    re.VERBOSE | re.MULTILINE,
)
_PART = re.compile(
    r"""
      (?P<string> " [^"\\]*+ (?: \\. [^"\\]*+ )*+ " )
    | (?P<stray> " )                       # opens a string that never ends
    | (?P<open> [\[{] ) (?P<void> \s*+ , )?
    | (?P<close> [\]}] )
    | (?P<comma> , ) (?= \s*+ [\]}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ALL_FENCED = re.compile(r"(?:`{3,}|~~~+)[\w+-]*[ \t]*\n(?P<inside>.*?)\n?(?:`{3,}|~~~+)", re.DOTALL)
# What cannot follow a value, but a part of one that was taken apart by a bracket too many or too few.
_LEFT_OVER = re.compile(r"[\s,]*+[\]}:] | ,?\" | (?<=\})\s*+,\s*+\Z", re.VERBOSE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BETWEEN = re.compile(r"[\s,]*+")


def read_json(text: str, shape: Callable[[Any], bool]) -> Any:
    """The array or object that a reply holds; ``shape`` says whether a value is of the kind that was asked for.

    Of several that fit, the last one in a fence marked ``json`` counts, else the last one; values that follow each
    other without a word between are read as one array. What is empty only counts at the end of the reply, or where
    nothing else fits: talk mentions ``[]``.

    A value that is cut off or broken is never read in parts, because what is missing would be lost unseen: behind
    one, only a new fence marked ``json`` counts. Lone surrogates become U+FFFD; apart from that texts come back
    unchanged.

    :raises LLMRejected: where there is no such value, or it is cut off.
    """
    if len(text) > MAX_REPLY_CHARS:
        _refuse(f"it has {len(text):,} characters, more than {MAX_REPLY_CHARS:,}")
    clean = _without_surrogates(text).removeprefix("\ufeff").strip()
    if not clean:
        _refuse("it is empty")
    found = _joined(clean, _values(clean))
    sound_from = max((value.end for value in found if value.broken), default=None)
    fitting = [value for value in found if not value.broken and shape(value.content)]
    if sound_from is not None:
        fitting = [value for value in fitting if value.answers is not None and value.answers >= sound_from]
    if not fitting:
        _refuse(
            "it holds no JSON of the kind that was asked for"
            if sound_from is None
            else "the JSON in it is broken"
        )
    return _chosen(clean, fitting).content


def read_text(text: str) -> str:
    """A reply that was to be plain text: without thoughts before it and without a fence around it.

    :raises LLMRejected: where nothing is left, or it is JSON after all.
    """
    if len(text) > MAX_REPLY_CHARS:
        _refuse(f"it has {len(text):,} characters, more than {MAX_REPLY_CHARS:,}")
    clean = _after_thoughts(_without_surrogates(text).removeprefix("\ufeff").strip())
    if fenced := _ALL_FENCED.fullmatch(clean):
        clean = fenced["inside"].strip()
    if not clean:
        _refuse("it is empty")
    if _OPENS_JSON.match(clean):
        _refuse("it is JSON of another kind, or cut off, where text was asked for")
    return clean


def _after_thoughts(text: str) -> str:
    while (mark := _MARK.match(text)) and mark["thought"]:
        ends = mark if mark["end"] else _THOUGHT_ENDS.search(text)
        text = text[ends.end() :].lstrip() if ends else ""
    return text


def _refuse(why: str) -> NoReturn:
    raise LLMRejected(f"the model's reply cannot be used: {why}; what it was asked for stays pending")


@dataclass(frozen=True, slots=True)
class _Value:
    """``answers``: where the fence marked ``json`` opens that the value stands in."""

    start: int
    end: int
    answers: int | None
    content: Any = None
    broken: bool = False


def _chosen(text: str, fitting: list[_Value]) -> _Value:
    labelled = [value for value in fitting if value.answers is not None]
    if labelled:
        return labelled[-1]
    last = fitting[-1]
    if last.content or not text[last.end :].strip("`~ \t\r\n"):
        return last
    return next((value for value in reversed(fitting) if value.content), last)


def _joined(text: str, values: list[_Value]) -> list[_Value]:
    """Objects that follow each other without a word between (one a line, say), as one array."""
    numbers: list[int] = []
    for value, before in zip(values, [None, *values], strict=False):
        apart = before is None or value.broken or before.broken or not _adjacent(text, before, value)
        numbers.append((numbers[-1] if numbers else 0) + apart)
    runs = groupby(zip(numbers, values, strict=True), key=lambda pair: pair[0])
    return [_one([value for _, value in run]) for _, run in runs]


def _adjacent(text: str, before: _Value, value: _Value) -> bool:
    between = _BETWEEN.match(text, before.end)
    objects = isinstance(before.content, dict) and isinstance(value.content, dict)
    return objects and between is not None and between.end() == value.start


def _one(run: list[_Value]) -> _Value:
    if len(run) == 1:
        return run[0]
    return _Value(run[0].start, run[-1].end, run[0].answers, [value.content for value in run])


def _values(text: str) -> list[_Value]:
    """Every outermost value, in one pass: what was walked over is not looked at again, save a few times."""
    found: list[_Value] = []
    at, broken, fence = 0, 0, None
    answers: int | None = None
    while mark := _MARK.search(text, at):
        at = mark.end()
        if mark["fence"]:
            # A label opens a fence in any case: models forget to close the one before.
            fence = mark["label"].lower() if mark["label"] or fence is None else None
            answers = mark.start() if fence is not None and fence.startswith("json") else None
        elif mark["end"]:
            found.clear()  # thoughts whose opening mark stands in the prompt
        elif mark["thought"]:
            ends = _THOUGHT_ENDS.search(text, at)
            if ends is None:
                break  # cut off while thinking
            at = ends.end()
        elif _OPENS_JSON.match(text, mark.start()):
            value = _value(text, mark.start(), answers)
            found.append(value)
            at, broken = value.end, broken + value.broken
            if len(found) > _MAX_VALUES or broken > _MAX_BROKEN:
                _refuse("it holds too many separate or broken values")
    return found


def _value(text: str, start: int, answers: int | None) -> _Value:
    end, source = _walk(text, start)
    if source is not None:
        try:
            return _Value(
                start, end, answers, _decoded(source), broken=_LEFT_OVER.match(text, end) is not None
            )
        except ValueError:  # not JSON after all, or a number of thousands of digits
            pass
    if answers is None and (answer := _ANSWER.search(text, start, end)):
        end = answer.start()  # a scratch that ran on into the answer, its quotes being out of step
    elif source is None and end == len(text):
        _refuse("it is cut off")
    return _Value(start, end, answers, broken=True)


def _walk(text: str, start: int) -> tuple[int, str | None]:
    """Where the value that opens at ``start`` ends, and its text without trailing commas; None: it does not end, or
    is void."""
    pieces, kept, depth, void = [], start, 0, False
    for part in _PART.finditer(text, start):
        kind = part.lastgroup
        if kind == "stray":
            break
        if kind == "comma":
            pieces.append(text[kept : part.start()])
            kept = part.end()
        elif kind == "close":
            depth -= 1
            if depth == 0:
                pieces.append(text[kept : part.end()])
                return part.end(), None if void else "".join(pieces)
        elif kind != "string":
            depth += 1
            void = void or kind == "void"
            if depth > MAX_DEPTH:
                _refuse(f"its JSON is nested deeper than {MAX_DEPTH} levels")
    return len(text), None


def _decoded(source: str) -> Any:
    value = json.loads(source, strict=False, parse_constant=_no_constant, parse_float=_finite)
    return _mended(value) if "\\u" in source else value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _mended(value: Any) -> Any:
    """Without the lone surrogates that escapes such as ``\\ud800`` leave; nothing could store them."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


def _without_surrogates(text: str) -> str:
    if not _SURROGATE.search(text):
        return text
    # Halves that belong together become the one character that they are.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
