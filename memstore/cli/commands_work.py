"""The operator's commands for work in the background: work, jobs."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from memstore.cli.failures import FAILED
from memstore.cli.options import Target, limit_option, llm_option, with_target
from memstore.cli.output import show

if TYPE_CHECKING:
    from memstore.types import JobRecord, WorkReport

LIST = "list"
SHOW = "show"
RETRY = "retry"
LOOK_S = 1.0
"""Between two looks at whether the work still goes on."""
STATES = ("queued", "running", "done", "dead")


@click.command()
@click.option("--once", is_flag=True, help="Do what is due, then end.")
@click.option("--now", is_flag=True, help="Do all that is queued first, whether its time has come or not.")
@llm_option
@with_target
def work(target: Target, *, once: bool, now: bool) -> None:
    """Work in the background: make memories, scenes and profiles of what was said, index, and back up every night.

    It goes on until it is ended by Ctrl-C or SIGTERM; then it ends the transaction that it is in and exits with 0. Any
    number of them may work on one store. A line on stderr tells what became of each job. With --once it exits with 1
    when a job gave up, without it when the work ended by itself. With MEMSTORE_DAILY_TOKENS a team's conversations wait for the next day once its
    models used so many tokens.

    \b
    Examples:
      memstore work --db memory.db
      memstore work --once --db memory.db --llm openai:qwen3@http://localhost:8000/v1
      memstore work --once --now --db memory.db --format text
    """
    report, well = _once(target, now=now) if once else _on_and_on(target, now=now)
    show(target, "record", report)
    if not well:
        click.get_current_context().exit(FAILED)


def _once(target: Target, *, now: bool) -> "tuple[WorkReport, bool]":
    with target.open() as store:
        report = store.work(force=now, on_job=_tell)
        return report, not report.dead


def _on_and_on(target: Target, *, now: bool) -> "tuple[WorkReport, bool]":
    with _ending_signals() as ending, target.open() as store:
        thread = store.start_worker(force=now, on_job=_tell)
        while thread.running and not ending.wait(LOOK_S):
            pass
        asked = ending.is_set()
        thread.stop()
    if not asked:
        said = "the work ended by itself, which it should not; start 'memstore work' again, and look at 'memstore doctor'"
        click.echo(f"memstore: {said}", err=True)
    return thread.report, asked


@contextmanager
def _ending_signals() -> Iterator[threading.Event]:
    """Set by SIGTERM or the first Ctrl-C. The second Ctrl-C does what it always does: not every model can be waited for.
    (SIGTERM may come twice at once, to the process and to its group.)"""
    ending = threading.Event()
    before: dict[signal.Signals, object] = {}

    def end(number: int, _frame: FrameType | None) -> None:
        ending.set()
        if number == signal.SIGINT:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, end)
    try:
        yield ending
    finally:
        restore()


def _tell(job: "JobRecord", outcome: str) -> None:
    if outcome == "postponed":  # it was looked at, and its time has not come: that is the ordinary case
        return
    from memstore.cli.text import safe

    about = f" ({safe(job.subject)})" if job.subject else ""
    click.echo(f"memstore: job {job.job_no} {job.kind}{about}: {outcome}", err=True)


@click.command()
@click.argument("action", type=click.Choice([LIST, SHOW, RETRY]), default=LIST)
@click.argument("number", type=click.IntRange(min=1), required=False)
@click.option("--state", type=click.Choice(STATES), help="Only those; 'dead' ones gave up.")
@click.option("--kind", metavar="KIND", help="Only those, such as extract, scenes, index or backup.")
@click.option("--all", "every", is_flag=True, help="With retry: all that gave up, or those of --kind.")
@limit_option(default=50)
@with_target
def jobs(
    target: Target,
    *,
    action: str,
    number: int | None,
    state: str | None,
    kind: str | None,
    every: bool,
    limit: int,
) -> None:
    """List the jobs of the store, show one, or queue one that gave up, or all of them, once more.

    Jobs that are done can be looked at for a week. The operator sees every user's.

    \b
    Examples:
      memstore jobs --db memory.db --format text
      memstore jobs list --state dead --db memory.db
      memstore jobs show 12 --db memory.db
      memstore jobs retry 12 --db memory.db
      memstore jobs retry --all --kind extract --db memory.db
    """
    if every:
        _retry_all(target, action, number, state, kind)
        return
    if action == LIST and number is not None:
        raise click.UsageError(f"list takes no NUMBER; did you mean 'memstore jobs show {number}'?")
    if action != LIST and number is None:
        more = "; --all means every one that gave up" if action == RETRY else ""
        raise click.UsageError(f"which job? 'memstore jobs' lists their numbers{more}")
    if action != LIST and (state is not None or kind is not None):
        raise click.UsageError(f"{action} takes no --state and no --kind: NUMBER names one job")
    with target.open() as store:
        if number is None:
            show(target, "jobs", {"jobs": store.jobs(state, kind, limit)})  # type: ignore[arg-type]
        else:
            show(target, "record", store.job(number) if action == SHOW else store.retry_job(number))


def _retry_all(target: Target, action: str, number: int | None, state: str | None, kind: str | None) -> None:
    if action != RETRY or number is not None or state is not None:
        raise click.UsageError("--all goes with 'memstore jobs retry' and at most --kind")
    with target.open() as store:
        show(target, "record", {"queued": store.retry_jobs(kind)})


COMMANDS = (work, jobs)
