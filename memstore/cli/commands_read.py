"""Commands that read without searching: list, show, history, changes, sessions, export."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from memstore.cli.exporting import Exported, all_memories, check_target, export_rows, private_file
from memstore.cli.inputs import check_times, metadata_of, times_of
from memstore.cli.options import (
    TIME_FORMS,
    Target,
    limit_option,
    metadata_option,
    time_options,
    with_target,
)
from memstore.cli.output import show, to_json
from memstore.errors import NotFound
from memstore.types import KINDS, Page


@click.command("list", epilog=TIME_FORMS)
@limit_option(default=50)
@click.option("--cursor", help="Go on where a page ended: its next_cursor.")
@click.option("--all", "everything", is_flag=True, help="Every page in one answer.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@metadata_option()
@time_options("as-of", "known-at")
@click.option("--include-history", is_flag=True, help="Superseded and expired versions too.")
@with_target
def list_memories(
    target: Target,
    *,
    limit: int,
    cursor: str | None,
    everything: bool,
    kinds: tuple[Any, ...],
    metadata: tuple[str, ...],
    as_of: str | None,
    known_at: str | None,
    include_history: bool,
) -> None:
    """List memories, newest first, a page at a time.

    \b
    Example:
      memstore list --user lin --kind persona --format text
    """
    if everything and cursor is not None:
        raise click.UsageError("--all begins at the beginning; leave --cursor out")
    scope = target.asker()
    filters: dict[str, Any] = {"kinds": kinds or None, "metadata": metadata_of(metadata)}
    filters["include_history"] = include_history
    with target.open() as store:
        filters |= times_of({"as_of": as_of, "known_at": known_at}, store.timezone)
        if everything:
            page = Page(list(all_memories(store, scope, **filters)), None)
        else:
            page = store.get_all(scope, limit, cursor, **filters)
    show(target, "memories", {"memories": list(page), "next_cursor": page.next_cursor})


@click.command("show")
@click.argument("row_id", metavar="ID")
@with_target
def show_row(target: Target, *, row_id: str) -> None:
    """Show a memory or a message.

    \b
    Example:
      memstore show 01JZ… --user lin --format text
    """
    scope = target.asker()
    with target.open() as store:
        row = store.get(scope, row_id)
    if row is None:
        raise NotFound(f"no memory or message {row_id!r:.60} for this asker (deleted ones: memstore history)")
    show(target, "record", row)


@click.command()
@click.argument("row_id", metavar="ID")
@with_target
def history(target: Target, *, row_id: str) -> None:
    """Show every version of a memory, oldest first, deleted ones included.

    \b
    Example:
      memstore history 01JZ… --user lin --format text
    """
    scope = target.asker()
    with target.open() as store:
        show(target, "versions", {"versions": store.history(scope, row_id)})


@click.command(epilog=TIME_FORMS)
@time_options("since", "until", "last", what="Changed")
@limit_option(default=50)
@click.option("--cursor", help="Go on where a page ended: its next_cursor.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@with_target
def changes(
    target: Target,
    *,
    since: str | None,
    until: str | None,
    last: str | None,
    limit: int,
    cursor: str | None,
    kinds: tuple[Any, ...],
) -> None:
    """Show what became of the memories between two times, oldest first.

    \b
    Examples:
      memstore changes --last 7d --user lin --format text
      memstore changes --since 2026-03 --until 2026-04 --user lin --kind persona
    """
    times = {"since": since, "until": until, "last": last}
    check_times(times)
    if since is None and last is None:
        raise click.UsageError("changes since when? Give --since, like yesterday, or --last, like 7d")
    scope = target.asker()
    with target.open() as store:
        found = times_of(times, store.timezone)
        page = store.changes(scope, found["since"], found.get("until"), limit, cursor, kinds=kinds or None)
    show(target, "changes", {"changes": list(page), "next_cursor": page.next_cursor})


@click.command()
@click.argument("key", required=False)
@click.option("--last", type=int, help="With KEY: only so many messages, from the end.")
@with_target
def sessions(target: Target, *, key: str | None, last: int | None) -> None:
    """List the user's sessions; with a KEY, show the messages of that session.

    \b
    Examples:
      memstore sessions --user lin
      memstore sessions reviewer:wecom:lin --last 20 --user lin --format text
    """
    if key is None and last is not None:
        raise click.UsageError("--last belongs to a session: give its KEY")
    scope = target.asker()
    session = target.session(key)
    with target.open() as store:
        if session is None:
            show(target, "sessions", {"sessions": store.sessions(scope)})
        else:
            show(target, "messages", {"session": session, "messages": store.messages(scope, session, last)})


@click.command()
@click.option("--out", metavar="FILE", help="Write here (readable by its owner only) and not to stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--include-history", is_flag=True, help="Superseded versions of memories too.")
@with_target
def export(target: Target, *, out: str | None, force: bool, include_history: bool) -> None:
    """Export everything of the user as JSON lines: sessions with their messages, and memories.

    \b
    Example:
      memstore export --user lin --out lin.jsonl
    """
    scope = target.asker()
    target.check_there()
    if out is not None:
        check_target(Path(out), target.path, force=force)
    with target.open() as store:
        found = export_rows(store, scope, include_history=include_history)
        if out is None:
            for line, _ in _lines(found):
                click.echo(line)
        else:
            _export_to(target, Path(out), found, force=force)


def _lines(found: Iterator[Exported]) -> Iterator[tuple[str, str]]:
    for kind, row in found:
        values = {name: getattr(row, name) for name in row.__dataclass_fields__}
        yield to_json({"type": kind, **values}), kind


def _export_to(target: Target, out: Path, found: Iterator[Exported], *, force: bool) -> None:
    counted: Counter[str] = Counter()
    with private_file(out, force=force) as file:
        for line, kind in _lines(found):
            file.write(line + "\n")
            counted[kind] += 1
    show(
        target,
        "record",
        {
            "path": str(out),
            "sessions": counted["session"],
            "messages": counted["message"],
            "memories": counted["memory"],
        },
    )


COMMANDS = (list_memories, show_row, history, changes, sessions, export)
