"""The command that measures recall on questions of one's own: bench."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memstore.cli.commands_recall import COLD_TIMEOUT_S
from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress
from memstore.config import MAX_LIMIT

if TYPE_CHECKING:
    from memstore.store import MemoryStore

DEFAULT_LOSS = 2.0


def _limits(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MAX_LIMIT:
        raise click.BadParameter(f"whole numbers from 1 to {MAX_LIMIT}, like 5,10, not {text!r}")
    return tuple(found)


@click.command()
@click.option("--queries", "file", metavar="FILE", required=True, help="Questions as JSON lines; see below.")
@click.option(
    "--k",
    "limits",
    metavar="K,…",
    default="5,10",
    show_default=True,
    callback=_limits,
    help="Lengths of answers.",
)
@click.option(
    "--calibrate", is_flag=True, help="Find for each leg the score below which right rows are rare."
)
@click.option(
    "--loss",
    type=click.FloatRange(0, 100, max_open=True),
    help=f"With --calibrate: percent of the right rows' scores that a floor may cost.  [default: {DEFAULT_LOSS:g}]",
)
@click.option("--apply", is_flag=True, help="With --calibrate: store the floors for the store's model.")
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=COLD_TIMEOUT_S,
    show_default=True,
    help="Seconds an answer may take.",
)
@with_target
def bench(
    target: Target,
    *,
    file: str,
    limits: tuple[int, ...],
    calibrate: bool,
    loss: float | None,
    apply: bool,
    timeout_s: float,
) -> None:
    """Measure how well recall answers questions whose right rows you know.

    FILE holds a question a line: the query, and the ids of the right rows, or texts that the right rows hold, or
    "none": true where nothing should be found. Further fields: layer (memories or messages), user, kinds.

    \b
      {"query": "when is the launch?", "ids": ["01JZ…"]}
      {"query": "什么时候上线", "contains": ["改到周五"], "layer": "messages"}
      {"query": "how tall is the tower?", "none": true}

    --calibrate finds floors: rows that score less than a leg's floor are left out, so that recall can come back empty
    where nothing answers. --apply stores them; they count until the store's model changes.

    \b
    Examples:
      memstore bench --queries golden.jsonl --user lin --format text
      memstore bench --queries golden.jsonl --user lin --calibrate --apply
    """
    if apply and not calibrate:
        raise click.UsageError("--apply stores what --calibrate finds; give both")
    if loss is not None and not calibrate:
        raise click.UsageError("--loss is about what --calibrate finds; give both")
    if loss is not None and math.isnan(loss):
        raise click.UsageError("--loss must be a number of percent, not nan")
    scope = target.asker()
    target.check_there()
    from memstore import golden
    from memstore.embedding import resolve
    from memstore.store import MemoryStore

    questions = golden.read(Path(file).read_bytes(), file)
    embedder = resolve(target.embedder)  # a model is loaded once, though the store may be opened twice

    def opened(floors: Mapping[str, float] | None) -> "MemoryStore":
        return MemoryStore(target.path, embedder, settings=replace(target.settings(), floors=floors))

    with progress("asking", when_stopped="Nothing was stored.") as report:
        run = golden.Run(opened, scope, questions, limits, file=file, timeout_s=timeout_s, progress=report)
        if calibrate:
            document = run.calibrated((DEFAULT_LOSS if loss is None else loss) / 100, apply=apply)
        else:
            document = run.measured()
    show(target, "bench", {"file": file, "k": list(limits), **document})


COMMANDS = (bench,)
