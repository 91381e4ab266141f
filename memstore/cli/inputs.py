"""Reading what people write on the command line or in files into what the library takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from memstore.errors import InvalidInput
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
