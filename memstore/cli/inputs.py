"""Reading what people write on the command line or in files into what the library takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from memstore.clock import SystemClock
from memstore.errors import InvalidInput, InvalidTime
from memstore.times import parse_typed, span_before
from memstore.types import Message

_FIELDS = tuple(field.name for field in fields(Message))
_OBJECTS = ("usage", "meta")


def parse_json(text: str) -> Any:
    """JSON without the words NaN and Infinity, which are no JSON.

    :raises ValueError: for anything else, too deep and too large included.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def metadata_of(pairs: Sequence[str]) -> dict[str, Any] | None:
    """The mapping of repeated ``--metadata`` options, None without any.

    Each is ``KEY=VALUE``, cut at the first ``=``, or a JSON object, which can hold any key.

    :raises click.BadParameter: for what is neither.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        whole = _json_object(pair)
        if whole is not None:
            found.update(whole)
            continue
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(
                f"{pair!r} is neither KEY=VALUE nor a JSON object", param_hint="--metadata"
            )
        found[key] = _value(value)
    return found or None if pairs else None


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def check_times(given: Mapping[str, Any]) -> None:
    """:raises click.UsageError: for a beginning that is given twice."""
    if given.get("last") is not None and given.get("since") is not None:
        raise click.UsageError("--last and --since both say where to begin; leave one out")


def times_of(given: Mapping[str, str | None], zone: ZoneInfo) -> dict[str, datetime | None]:
    """The instants of time options, by the store's zone and the clock of this moment; ``last`` becomes ``since``.

    :raises click.BadParameter: naming the option, with examples.
    """
    now = SystemClock().now()
    found: dict[str, datetime | None] = {}
    for name, text in given.items():
        read, kept = (span_before, "since") if name == "last" else (parse_typed, name)
        try:
            if text is not None:
                found[kept] = read(text, zone, now)
        except InvalidTime as error:
            raise click.BadParameter(str(error), param_hint=f"--{name.replace('_', '-')}") from error
    return found


def messages_from(data: bytes, file: str) -> list[Message]:
    """The messages of JSON lines ``{"role": …, "content": …}``.

    Lines end at ``\\n`` alone: text may hold other separators. All lines are read before any is stored.

    :raises InvalidInput: naming file, line and fault.
    """
    messages = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if raw.strip():
            try:
                messages.append(_message(parse_json(raw.decode("utf-8"))))
            except ValueError as error:
                raise InvalidInput(f"{file} line {number}: {error}; nothing was stored") from error
    return messages


def _message(value: object) -> Message:
    if not isinstance(value, Mapping):
        raise InvalidInput('a message is a JSON object like {"role": "user", "content": "…"}')
    given = {name: item for name, item in value.items() if item is not None}
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    if "role" not in given:
        raise InvalidInput("the field 'role' is missing")
    if "content" not in value and "tool_calls" not in given:
        raise InvalidInput("the field 'content' is missing")
    for name in _OBJECTS:
        if not isinstance(given.get(name, {}), Mapping):
            raise InvalidInput(f"the field {name!r} must be an object")
    calls = given.get("tool_calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, Mapping) for call in calls):
        raise InvalidInput("the field 'tool_calls' must be a list of objects")
    if not isinstance(given.get("complete", True), bool):
        raise InvalidInput("the field 'complete' must be true or false")
    return Message(**{"content": None, **given})
