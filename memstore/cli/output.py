"""Answers on stdout: one JSON document with the library's field names, or text for people."""

import json
import sys
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click

from memstore.cli.options import Target
from memstore.times import render
from memstore.wording import check_language


def to_json(document: Any, *, indent: int | None = None) -> str:
    """A document of dataclasses, mappings and plain values as JSON text; instants in UTC with ``Z``."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, default=_encoded, indent=indent)


def _encoded(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, datetime):
        return render(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def show(target: Target, view: str, document: Any, language: str | None = None) -> None:
    """Print a document as the asker wants it; ``view`` names the function that sets it as text, ``language`` the one
    of its sentences where it has any."""
    if target.as_text:
        from memstore.cli import text

        if language is None:
            text.VIEWS[view](document)
        else:
            text.SPOKEN_VIEWS[view](document, check_language(language))
    else:
        click.echo(to_json(document, indent=2 if sys.stdout.isatty() else None))
