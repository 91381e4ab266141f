"""The command that measures recall on questions of one's own: bench."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memstore.cli.commands_recall import COLD_TIMEOUT_S
from memstore.cli.options import Target, with_target
from memstore.cli.output import show
from memstore.cli.progress import progress
from memstore.config import MAX_LIMIT, Settings
from memstore.errors import MemstoreError

if TYPE_CHECKING:
    from memstore.golden import Asked, GoldenQuestion
    from memstore.store import MemoryStore
    from memstore.types import Scope

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

    questions = golden.read(Path(file).read_bytes(), file)
    run = _Run(target, scope, questions, limits, file, timeout_s)
    document = (
        run.calibrated((DEFAULT_LOSS if loss is None else loss) / 100, apply=apply)
        if calibrate
        else run.measured()
    )
    show(target, "bench", {"file": file, "k": list(limits), **document})


class _Run:
    """The questions, put to the store under the floors that a step needs."""

    def __init__(
        self,
        target: Target,
        scope: "Scope",
        questions: "Sequence[GoldenQuestion]",
        limits: tuple[int, ...],
        file: str,
        timeout_s: float,
    ) -> None:
        from memstore.embedding import resolve

        self._target = target
        self._embedder = resolve(target.embedder)  # a model is loaded once, though the store is opened twice
        self._scope = scope
        self._questions = questions
        self._limits = limits
        self._file = file
        self._timeout_s = timeout_s

    def measured(self) -> dict[str, Any]:
        """The store as it is, with the floors that it has."""
        from memstore import golden

        with self._open(None) as store:
            return golden.report(self._ask(store), self._limits)

    def calibrated(self, loss: float, *, apply: bool) -> dict[str, Any]:
        """Without floors, for the scores of right rows; then with those that follow from them."""
        from memstore import golden

        with self._open({}) as store:
            found = golden.calibrate(self._ask(store), loss)
        if apply and not found["floors"]:
            raise MemstoreError(
                f"no leg scored {golden.FEWEST_TO_CALIBRATE} right rows, so there is no floor to store; those that the "
                "store has stay. Without --apply the report says what was found"
            )
        with self._open(found["floors"]) as store:
            document = golden.report(self._ask(store), self._limits)
            if apply:
                store.set_floors(found["floors"])
        return {**document, "calibration": {**found, "applied": apply}}

    def _open(self, floors: Mapping[str, float] | None) -> "MemoryStore":
        from memstore.store import MemoryStore

        settings: Settings = replace(self._target.settings(), floors=floors)
        return MemoryStore(self._target.path, self._embedder, settings=settings)

    def _ask(self, store: "MemoryStore") -> "list[Asked]":
        from memstore import golden

        with progress("asking", when_stopped="Nothing was stored.") as report:
            return golden.ask(
                store,
                self._scope,
                self._questions,
                self._limits,
                file=self._file,
                timeout_s=self._timeout_s,
                progress=report,
            )


COMMANDS = (bench,)
