"""Answers for people. Everything shown comes from stored text, so what could steer a terminal is escaped."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import click

from memstore.times import render
from memstore.types import DoctorReport, Hit, Memory, Recall, SessionRecord, StoredMessage

PREVIEW_CHARS = 200
UNBOUNDED_WIDTH = 1_000
"""Columns of a table that goes to a file or a pipe: nothing is wrapped there."""

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Text that cannot move the cursor, change colours or reverse its direction."""
    return _STEERING.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return render(value.replace(microsecond=0))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, Mapping | list | tuple):
        from memstore.cli.output import to_json

        return safe(to_json(value))
    return safe(str(value))


def _preview(value: object) -> str:
    line = " ".join(_shown(value).split())
    return line if len(line) <= PREVIEW_CHARS else line[: PREVIEW_CHARS - 1] + "…"


def _lines(text: str, indent: str = "   ") -> None:
    for line in text.split("\n"):
        click.echo(f"{indent}{safe(line)}")


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(Text(safe(head)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_preview(cell)) for cell in row))
    console.print(table)


def recall(answer: Recall) -> None:
    """Hits, best first, each with its explanation where one was asked for."""
    for hit in answer.hits:
        click.echo(
            f"{hit.rank}. {hit.score:.4f}  {_shown(hit.role or hit.kind)}  {_shown(hit.created_at)}  {hit.id}"
        )
        _lines(hit.content)
        _explanation(hit)
    if not answer.hits:
        click.echo("no hits")
    for part in answer.degraded:
        click.echo(f"without the {part.leg} leg: {safe(part.reason)}")


def _explanation(hit: Hit) -> None:
    if hit.explanation is None:
        return
    for leg, report in hit.explanation.legs.items():
        note = f"; {report.note}" if report.note else ""
        score = "" if report.score is None else f", score {report.score:.4f}"
        _lines(f"{leg}: rank {report.rank}{score}, adds {report.term:.4f}{note}")
    if hit.explanation.tokens:
        _lines(f"matched: {', '.join(hit.explanation.tokens)}")
    _lines(f"visible: {hit.explanation.visible_by}")


def memories(document: Mapping[str, Any]) -> None:
    """A page of memories, and how to go on."""
    found: list[Memory] = document["memories"]
    if found:
        rows = [(m.id, m.kind, m.priority, m.agent_id, m.recorded_at, m.content) for m in found]
        _table(("id", "kind", "priority", "agent", "recorded", "content"), rows)
    else:
        click.echo("no memories")
    if document["next_cursor"]:
        click.echo(f"there are more: --cursor {document['next_cursor']} (or --all)")


def versions(document: Mapping[str, Any]) -> None:
    """The versions of a memory, oldest first; of a message, the message."""
    rows = [
        (v.version, v.state, v.recorded_at, v.actor, v.superseded_by, v.content)
        if isinstance(v, Memory)
        else (1, "deleted" if v.deleted_at else "live", v.recorded_at, v.role, None, v.text)
        for v in document["versions"]
    ]
    _table(("version", "state", "recorded", "by", "superseded by", "content"), rows)


def sessions(document: Mapping[str, Any]) -> None:
    """Sessions, pinned first."""
    found: list[SessionRecord] = document["sessions"]
    if not found:
        click.echo("no sessions")
        return
    rows = [(s.session, s.messages, s.pinned, s.updated_at, s.title) for s in found]
    _table(("session", "messages", "pinned", "updated", "title"), rows)


def messages(document: Mapping[str, Any]) -> None:
    """A session's messages as a conversation."""
    found: list[StoredMessage] = document["messages"]
    for message in found:
        aside = "" if message.live else "  (not in the live window)"
        who = f"{message.role} {_shown(message.name)}".strip()
        click.echo(f"{who}  {_shown(message.created_at)}  {message.id}{aside}")
        _lines(message.text)
    if not found:
        click.echo("no messages")


def record(document: Any) -> None:
    """The fields of one value, one a line; lists of values indented below their name."""
    if is_dataclass(document) and not isinstance(document, type):
        pairs = [(f.name, getattr(document, f.name)) for f in fields(document)]
    else:
        pairs = list(document.items())
    for name, value in pairs:
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            click.echo(f"{name}:")
            for item in value:
                _lines(", ".join(_shown(getattr(item, f.name)) for f in fields(item)))
        elif isinstance(value, str) and "\n" in value:
            click.echo(f"{name}:")
            _lines(value)
        elif value not in (None, (), [], {}):
            click.echo(f"{name}: {_shown(value)}")


def doctor(report: DoctorReport) -> None:
    """What was found, and the commands that mend it."""
    for finding in report.findings:
        click.echo(f"{finding.severity}: {finding.check}: {safe(finding.message)}")
        if finding.repair:
            click.echo(f"   to mend it: {finding.repair}")
    click.echo("sound" if report.ok else "not sound")
    click.echo(
        ", ".join(f"{name} {_shown(value)}" for name, value in (report.counts | report.versions).items())
    )


def rows(document: Mapping[str, Any]) -> None:
    """The rows of a statement; each block of equal columns is a table."""
    block: list[dict[str, object]] = []
    for row in document["rows"]:
        if block and row.keys() != block[0].keys():
            _block(block)
            block = []
        block.append(row)
    _block(block)


def _block(block: Sequence[Mapping[str, object]]) -> None:
    if block:
        _table(tuple(block[0]), [tuple(row.values()) for row in block])


VIEWS: Mapping[str, Callable[[Any], None]] = {
    "recall": recall,
    "memories": memories,
    "versions": versions,
    "sessions": sessions,
    "messages": messages,
    "record": record,
    "doctor": doctor,
    "rows": rows,
}
