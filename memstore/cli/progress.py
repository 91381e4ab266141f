"""Progress of long work on stderr: a bar for people, now and then a line for logs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from memstore.types import Progress

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(what: str, *, when_stopped: str) -> Iterator[Progress]:
    """What to hand to the library as ``progress``; ``when_stopped`` tells what Ctrl-C leaves behind."""
    try:
        if sys.stderr.isatty():
            with _bar(what) as report:
                yield report
        else:
            yield _lines(what)
    except KeyboardInterrupt:
        click.echo(f"memstore: stopped. {when_stopped}", err=True)
        raise


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def _lines(what: str) -> Progress:
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            click.echo(f"{what}: {done} of {total}", err=True)

    return report
