"""Commands for what conversations became: extract, pending, verdicts, undo."""

import click

from memstore.cli.options import Target, limit_option, llm_option, with_target
from memstore.cli.output import show


@click.command()
@llm_option
@click.option("--session", required=True, metavar="KEY", help="agent:channel:chat_id, or a bare chat id.")
@with_target
def extract(target: Target, *, session: str) -> None:
    """Make memories of what is pending of a session, now, whether it is due or not.

    \b
    Example:
      memstore extract --session chat-1 --user lin --format text
    """
    scope = target.asker()
    key = target.session(session) or session
    with target.open() as store:
        show(target, "extracted", store.extract(scope, key))


@click.command()
@with_target
def pending(target: Target) -> None:
    """Count the messages that no memories were made of yet: memstore work does it when it is due.

    \b
    Example:
      memstore pending --user lin
    """
    scope = target.asker()
    with target.open() as store:
        show(target, "record", {"pending": store.pending(scope)})


@click.command()
@click.option("--session", metavar="KEY", help="Of this session alone.")
@limit_option(default=50)
@click.option("--cursor", help="Go on where a page ended: its next_cursor.")
@with_target
def verdicts(target: Target, *, session: str | None, limit: int, cursor: str | None) -> None:
    """Show what was decided about each proposed memory, by whom and from which messages, the newest first.

    \b
    Examples:
      memstore verdicts --user lin --format text
      memstore verdicts --session chat-1 --limit 5 --user lin
    """
    scope = target.asker()
    with target.open() as store:
        page = store.verdicts(scope, target.session(session), limit, cursor)
    show(target, "verdicts", {"verdicts": list(page), "next_cursor": page.next_cursor})


@click.command()
@click.argument("verdict", metavar="VERDICT")
@with_target
def undo(target: Target, *, verdict: str) -> None:
    """Take a verdict back, or, by its id, a run that wrote scenes.

    What it stored leaves recall, what it replaced comes back, and what it skipped is stored after all.

    \b
    Example:
      memstore undo 01JZ… --user lin --format text
    """
    scope = target.asker()
    with target.open() as store:
        record = store.undo(scope, verdict)
    if record is None:
        show(target, "record", {"undone": verdict})
    else:
        show(target, "verdicts", {"verdicts": [record], "next_cursor": None})


COMMANDS = (extract, pending, verdicts, undo)
