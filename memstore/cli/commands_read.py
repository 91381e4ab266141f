"""Commands that only read: recall, search-messages, list, show, history, sessions, export."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from memstore.cli.exporting import Exported, all_memories, check_target, export_rows, private_file
from memstore.cli.inputs import metadata_of
from memstore.cli.options import FreeText, Function, Target, limit_option, metadata_option, with_target
from memstore.cli.output import show, to_json
from memstore.errors import NotFound
from memstore.types import KINDS, ROLES, Page

COLD_TIMEOUT_S = 30.0
"""More than the library's default: a command is a new process, which loads dictionary and model first."""


def _search_options(what: str) -> Callable[[Function], Function]:
    options: tuple[Callable[[Function], Function], ...] = (
        limit_option(default=5),
        click.option("--since", metavar="TIME", help=f"{what} then or later."),
        click.option("--until", metavar="TIME", help=f"{what} before."),
        click.option(
            "--session", metavar="KEY", help="Of one session: agent:channel:chat_id, or a bare chat id."
        ),
        metadata_option(),
        click.option("--explain", is_flag=True, help="Say why each hit is there."),
        click.option(
            "--timeout",
            "timeout_s",
            type=float,
            default=COLD_TIMEOUT_S,
            show_default=True,
            help="Seconds to wait.",
        ),
    )

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@click.command(cls=FreeText)
@click.argument("query")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@click.option("--as-of", metavar="TIME", help="What was true then.")
@click.option("--include-history", is_flag=True, help="Superseded versions too.")
@_search_options("Recorded")
@with_target
def recall(
    target: Target,
    *,
    query: str,
    limit: int,
    kinds: tuple[Any, ...],
    session: str | None,
    metadata: tuple[str, ...],
    **options: Any,
) -> None:
    """Find the memories that answer QUERY best. Any text is a query, also one like -hook.

    \b
    Examples:
      memstore recall "when is the launch?" --user lin
      memstore recall "会议" --user lin --since 2026-03-01 --explain --format text
      memstore recall "budget" --user lin --metadata project=apollo
    """
    scope = target.asker()
    options |= {"kinds": kinds or None, "metadata": metadata_of(metadata), "session": target.session(session)}
    with target.open() as store:
        show(target, "recall", store.recall(scope, query, limit, **options))


@click.command("search-messages", cls=FreeText)
@click.argument("query")
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, help="Only this role. Repeatable.")
@click.option("--live-only", is_flag=True, help="Only what a model would be shown.")
@_search_options("Said")
@with_target
def search_messages(
    target: Target,
    *,
    query: str,
    limit: int,
    roles: tuple[Any, ...],
    session: str | None,
    metadata: tuple[str, ...],
    **options: Any,
) -> None:
    """Search the conversations themselves.

    \b
    Examples:
      memstore search-messages "launch date" --user lin --role user
      memstore search-messages "周四" --user lin --session reviewer:wecom:lin
    """
    scope = target.asker()
    options |= {"roles": roles or None, "metadata": metadata_of(metadata), "session": target.session(session)}
    with target.open() as store:
        show(target, "recall", store.search_messages(scope, query, limit, **options))


@click.command("list")
@limit_option(default=50)
@click.option("--cursor", help="Go on where a page ended: its next_cursor.")
@click.option("--all", "everything", is_flag=True, help="Every page in one answer.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@metadata_option()
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
    filters = {"kinds": kinds or None, "metadata": metadata_of(metadata), "include_history": include_history}
    with target.open() as store:
        if everything:
            page = Page(list(all_memories(store, scope, **filters)), None)
        else:
            page = store.get_all(scope, limit, cursor, **filters)  # type: ignore[arg-type] # clicked choices
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


COMMANDS = (recall, search_messages, list_memories, show_row, history, sessions, export)
