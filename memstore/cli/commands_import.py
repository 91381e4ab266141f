"""``memstore import``: bringing other stores' conversations in."""

from collections.abc import Callable

import click

from memstore.cli.failures import FAILED
from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress
from memstore.types import ImportReport, Progress

STOPPED = "What was read is stored; run the same command again to go on, nothing is stored twice."


@click.group("import")
def import_group() -> None:
    """Bring conversations in from files. Running an import again stores nothing twice."""


@import_group.command("jsonl")
@click.argument("file", type=click.Path(exists=True))
@click.option("--session", metavar="KEY", help="The session of all lines, whatever they say.")
@with_target
def import_jsonl(target: Target, *, file: str, session: str | None) -> None:
    """Import messages from a file of JSON lines, or all *.jsonl files below a folder.

    Lines go where they say: to their team, user, agent and session. The options stand for lines that do not say.

    \b
    Examples:
      memstore import jsonl chats.jsonl --user lin --session reviewer:wecom:lin
      memstore import jsonl all-users.jsonl --db memory.db
    """
    from memstore.importers import jsonl

    with target.open(create=True) as store:
        _run(
            target,
            file,
            lambda report: jsonl.import_jsonl(
                store,
                file,
                team_id=target.team,
                user_id=target.user,
                agent_id=target.agent,
                task_id=target.task,
                session=session,
                progress=report,
            ),
        )


@import_group.command("agenthub")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@with_target
def import_agenthub(target: Target, *, folder: str) -> None:
    """Import the sessions of an AgentHub folder, with their titles and pins.

    Each chat id becomes a user of its own; with --user all sessions are that user's.

    \b
    Example:
      memstore import agenthub ~/agenthub/data --user lin
    """
    from memstore.importers import agenthub

    with target.open(create=True) as store:
        _run(
            target,
            folder,
            lambda report: agenthub.import_agenthub(
                store, folder, team_id=target.need_team(), user_id=target.user, progress=report
            ),
        )


def _run(target: Target, source: str, work: Callable[[Progress], ImportReport]) -> None:
    """Import, print the report, and fail when there was nothing to read: an empty success would hide that."""
    with progress(f"importing {source}", when_stopped=STOPPED) as report:
        result = work(report)
    show(target, "record", result)
    for file in result.empty_files:
        click.echo(f"memstore: {file} holds no messages", err=True)
    if not result.stored + result.known:
        click.echo(f"memstore: nothing could be read from {source}; the report says why", err=True)
        click.get_current_context().exit(FAILED)


COMMANDS = (import_group,)
