"""``memstore import``: bringing other stores' conversations in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from memstore.cli.failures import FAILED
from memstore.cli.options import Target, with_target
from memstore.cli.output import show, to_json
from memstore.cli.progress import progress
from memstore.errors import ImportStopped
from memstore.types import ImportReport, Progress, SkippedLine

STOPPED = "What was read is stored; run the same command again to go on, nothing is stored twice."


Skipped = Callable[[SkippedLine], None] | None

report_option: Callable[..., Any] = click.option(
    "--report",
    metavar="NEW",
    help="Write every line that could not be used to this file, as JSON lines; the answer names the first 1,000.",
)


@click.group("import")
def import_group() -> None:
    """Bring conversations in from files. Running an import again stores nothing twice."""


@import_group.command("jsonl")
@click.argument("file", type=click.Path(exists=True))
@click.option("--session", metavar="KEY", help="The session of all lines, whatever they say.")
@report_option
@with_target
def import_jsonl(target: Target, *, file: str, session: str | None, report: str | None) -> None:
    """Import messages from a file of JSON lines, or all *.jsonl files below a folder.

    Lines go where they say: to their team, user, agent and session. The options stand for lines that do not say.

    \b
    Examples:
      memstore import jsonl chats.jsonl --user lin --session reviewer:wecom:lin
      memstore import jsonl all-users.jsonl --db memory.db --report skipped.jsonl
    """
    from memstore.importers import jsonl

    with target.open(create=True) as store:
        _run(
            target,
            file,
            report,
            lambda told, skipped: jsonl.import_jsonl(
                store,
                file,
                team_id=target.team,
                user_id=target.user,
                agent_id=target.agent,
                task_id=target.task,
                session=session,
                progress=told,
                skipped=skipped,
            ),
        )


@import_group.command("agenthub")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@report_option
@with_target
def import_agenthub(target: Target, *, folder: str, report: str | None) -> None:
    """Import the sessions of an AgentHub folder, with their titles and pins, and its profiles.

    Each chat id becomes a user of its own; with --user all sessions are that user's. MEMORY.md becomes the profile of
    its agent and USER.md the user's, unless a person or memstore work wrote that since.

    \b
    Example:
      memstore import agenthub ~/agenthub/data --user lin
    """
    from memstore.importers import agenthub

    with target.open(create=True) as store:
        _run(
            target,
            folder,
            report,
            lambda told, skipped: agenthub.import_agenthub(
                store,
                folder,
                team_id=target.need_team(),
                user_id=target.user,
                progress=told,
                skipped=skipped,
            ),
        )


def _run(
    target: Target, source: str, report: str | None, work: Callable[[Progress, Skipped], ImportReport]
) -> None:
    """Import, print the report, and fail when there was nothing to read: an empty success would hide that."""
    stopped: ImportStopped | None = None
    with _skipped_lines(target, report) as skipped:
        try:
            with progress(f"importing {source}", when_stopped=STOPPED) as told:
                result = work(told, skipped)
        except ImportStopped as error:  # what was skipped until then is told all the same
            stopped, result = error, error.report
    show(target, "record", result)
    for file in result.empty_files:
        click.echo(f"memstore: {file} holds no messages", err=True)
    if stopped is not None:
        raise stopped
    if not result.stored + result.known + result.profiles + result.profiles_known:
        click.echo(f"memstore: nothing could be read from {source}; the report says why", err=True)
        click.get_current_context().exit(FAILED)


@contextmanager
def _skipped_lines(target: Target, report: str | None) -> Iterator[Skipped]:
    """What writes skipped lines to the file that was asked for; None where none was."""
    if report is None:
        yield None
        return
    from memstore.cli.exporting import check_target, private_file

    check_target(Path(report), target.path, force=False)
    with private_file(Path(report), force=False) as file:

        def write(line: SkippedLine) -> None:
            file.write(to_json(line) + "\n")

        yield write


COMMANDS = (import_group,)
