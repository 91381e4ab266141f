"""Searching and asking why: recall, search-messages, why-not, trace."""

from collections.abc import Callable
from typing import Any

import click

from memstore.cli.failures import FAILED
from memstore.cli.inputs import check_times, metadata_of, times_of
from memstore.cli.options import (
    TIME_FORMS,
    FreeText,
    Function,
    Target,
    language_option,
    limit_option,
    metadata_option,
    time_options,
    with_target,
)
from memstore.cli.output import show
from memstore.types import KINDS, ROLES

LIST, REPLAY, DELETE = "list", "replay", "delete"

COLD_TIMEOUT_S = 30.0
"""More than the library's default: a command is a new process, which loads dictionary and model first."""


def _search_options(what: str) -> Callable[[Function], Function]:
    options: tuple[Callable[[Function], Function], ...] = (
        limit_option(default=5),
        time_options("since", "until", "last", "known-at", what=what),
        click.option(
            "--session", metavar="KEY", help="Of one session: agent:channel:chat_id, or a bare chat id."
        ),
        metadata_option(),
        click.option(
            "--explain", is_flag=True, help="Say why each hit is there, and what else was looked at."
        ),
        click.option("--trace", is_flag=True, help="Keep question and answer, for 'memstore trace replay'."),
        language_option,
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


@click.command(cls=FreeText, epilog=TIME_FORMS)
@click.argument("query")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind. Repeatable.")
@time_options("as-of")
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
    since: str | None,
    until: str | None,
    last: str | None,
    as_of: str | None,
    known_at: str | None,
    language: str,
    **options: Any,
) -> None:
    """Find the memories that answer QUERY best. Any text is a query, also one like -hook.

    \b
    Examples:
      memstore recall "when is the launch?" --user lin
      memstore recall "会议" --user lin --last 7d --explain --format text
      memstore recall "budget" --user lin --metadata project=apollo
    """
    scope = target.asker()
    options |= {"kinds": kinds or None, "metadata": metadata_of(metadata), "session": target.session(session)}
    times = {"since": since, "until": until, "last": last, "as_of": as_of, "known_at": known_at}
    check_times(times)
    with target.open() as store:
        options |= times_of(times, store.timezone)
        show(target, "recall", store.recall(scope, query, limit, **options), language)


@click.command("search-messages", cls=FreeText, epilog=TIME_FORMS)
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
    since: str | None,
    until: str | None,
    last: str | None,
    known_at: str | None,
    language: str,
    **options: Any,
) -> None:
    """Search the conversations themselves.

    \b
    Examples:
      memstore search-messages "launch date" --user lin --role user
      memstore search-messages "周四" --user lin --session reviewer:wecom:lin --last 2w
    """
    scope = target.asker()
    options |= {"roles": roles or None, "metadata": metadata_of(metadata), "session": target.session(session)}
    times = {"since": since, "until": until, "last": last, "known_at": known_at}
    check_times(times)
    with target.open() as store:
        options |= times_of(times, store.timezone)
        show(target, "recall", store.search_messages(scope, query, limit, **options), language)


@click.command("why-not", cls=FreeText, epilog=TIME_FORMS)
@click.argument("row_id", metavar="ID")
@click.argument("query")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="As the recall asked.")
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, help="As the search asked.")
@time_options("as-of", "since", "until", "last", "known-at", what="Recorded or said")
@click.option("--include-history", is_flag=True, help="As the recall asked.")
@click.option("--live-only", is_flag=True, help="As the search asked.")
@limit_option(default=5)
@click.option("--session", metavar="KEY", help="As the recall or search asked.")
@metadata_option()
@click.option(
    "--timeout", "timeout_s", type=float, default=COLD_TIMEOUT_S, show_default=True, help="Seconds to wait."
)
@language_option
@with_target
def why_not(
    target: Target,
    *,
    row_id: str,
    query: str,
    kinds: tuple[Any, ...],
    roles: tuple[Any, ...],
    session: str | None,
    metadata: tuple[str, ...],
    since: str | None,
    until: str | None,
    last: str | None,
    as_of: str | None,
    known_at: str | None,
    language: str,
    **options: Any,
) -> None:
    """Say why the memory or message ID does not come back for QUERY. Give the options of the search it is missing
    from.

    \b
    Examples:
      memstore why-not 01JZ… "when is the launch?" --user lin --format text
      memstore why-not 01JZ… "会议改到什么时候" --user lin --limit 10 --format text --language zh
    """
    scope = target.asker()
    options |= {
        "kinds": kinds or None,
        "roles": roles or None,
        "metadata": metadata_of(metadata),
        "session": target.session(session),
    }
    times = {"since": since, "until": until, "last": last, "as_of": as_of, "known_at": known_at}
    check_times(times)
    with target.open() as store:
        options |= times_of(times, store.timezone)
        show(target, "why_not", store.why_not(scope, row_id, query, **options), language)


@click.command()
@click.argument("action", type=click.Choice([LIST, REPLAY, DELETE]), default=LIST)
@click.argument("trace_id", metavar="[ID]", required=False)
@limit_option(default=50)
@language_option
@with_target
def trace(target: Target, *, action: str, trace_id: str | None, limit: int, language: str) -> None:
    """List the recalls that were kept by --trace, ask one again (replay), or forget one (delete).

    A replay asks at the recall's own time, with its own settings: while the store is unchanged the answer is the
    same, else the differences are shown and the exit code is 1.

    \b
    Examples:
      memstore recall "when is the launch?" --user lin --trace
      memstore trace --user lin --format text
      memstore trace replay 01JZ… --user lin --format text
    """
    scope = target.asker()
    if action == LIST and trace_id is not None:
        raise click.UsageError("list takes no ID: it shows every stored recall")
    if action != LIST and trace_id is None:
        raise click.UsageError("which one? 'memstore trace' lists the ids of stored recalls")
    with target.open() as store:
        if trace_id is None:
            show(target, "traces", {"traces": store.traces(scope, limit)})
        elif action == DELETE:
            store.delete_trace(scope, trace_id)
            show(target, "record", {"deleted": trace_id})
        else:
            found = store.replay(scope, trace_id)
            show(target, "replay", found, language)
            if not found.same:
                click.get_current_context().exit(FAILED)


COMMANDS = (recall, search_messages, why_not, trace)
