"""``python -m benchmarks quality|ablation|literal|speed|upkeep|extraction|background --out FILE.json``; see the README beside this file."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ablation, background, extraction, gate, literal, quality, report, speed, upkeep
from benchmarks.cache import default_folder
from benchmarks.corpus import DataMissing
from benchmarks.extraction import cases as extraction_cases
from benchmarks.sets import SETS
from memstore import MemstoreError, Settings
from memstore.embedding import Embedder, resolve
from memstore.testing import HashEmbedder

DATA_VARIABLE = "MEMSTORE_BENCH_DATA"
WORSE = 1
NOT_MEASURED = 2
TOLERANCE = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark: 0 when it was measured and all is as it must be, 1 when it is worse than that, 2 when it
    could not be measured or compared."""
    options = _parser().parse_args(arguments)
    try:
        # Read first: the run may write to the same file.
        baseline = gate.load(options.gate) if getattr(options, "gate", None) else None
        figures, shown = _RUNS[options.benchmark](options)
        report.write(figures, options.out)
        print(shown)
        drawn = None if options.no_plot else report.plot(figures, options.out)
        print(f"\nwritten: {options.out}{f', {drawn}' if drawn else ''}")
        if baseline is not None:
            return _gated(gate.compare(baseline, figures), options.tolerance)
    except (DataMissing, MemstoreError, gate.NotComparable) as error:
        print(f"memstore benchmarks: {error}", file=sys.stderr)
        return NOT_MEASURED
    return WORSE if figures.get("failed") else 0


def _gated(differences: list[gate.Difference], tolerance: float) -> int:
    fallen = gate.fallen(differences, tolerance)
    for difference in fallen:
        print(f"fell: {difference}")
    if fallen:
        print(f"gate: {len(fallen)} of {len(differences)} figures fell by more than {tolerance}")
        return WORSE
    lowest = min(differences, key=lambda found: found.change, default=None)
    print(
        f"gate: none of {len(differences)} figures fell by more than {tolerance}; the lowest change: {lowest}"
    )
    return 0


def _quality(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    settings = Settings(
        timezone="UTC",
        durability="process",
        candidate_factor=options.candidate_factor,
        rrf_k=options.rrf_k,
        leg_weights=options.leg_weights,
    )
    wanted = quality.Options(
        data=_data(options),
        limit=options.limit,
        sets=options.sets or tuple(SETS),
        one_team=options.one_team,
        settings=settings,
        constants=dict(options.set),
        cache=options.cache,
    )
    figures = quality.run(wanted, _embedder(options.embedder))
    return figures, report.quality_table(figures)


def _ablation(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    wanted = ablation.Options(
        data=_data(options),
        limit=options.limit,
        sets=options.sets or tuple(SETS),
        cache=options.cache,
        jobs=options.jobs,
    )
    figures = ablation.run(wanted, _embedder(options.embedder))
    return figures, ablation.table(figures)


def _literal(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    figures = literal.run(literal.Options(data=_data(options), draws=options.draws))
    return figures, literal.table(figures)


def _speed(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    figures = speed.run(speed.Options(rows=options.rows, queries=options.queries, folder=options.folder))
    return figures, report.speed_table(figures)


def _upkeep(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    figures = upkeep.run(upkeep.Options(rows=options.rows, folder=options.folder))
    return figures, upkeep.table(figures)


def _extraction(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    figures = extraction.run(extraction.Options(llm=options.llm, part=options.part, limit=options.limit))
    return figures, extraction.table(figures)


def _background(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    wanted = background.Options(
        calls=options.calls, blocks=options.blocks, backlog=options.backlog, folder=options.folder
    )
    figures = background.run(wanted)
    return figures, background.table(figures)


_RUNS = {
    "quality": _quality,
    "ablation": _ablation,
    "literal": _literal,
    "speed": _speed,
    "upkeep": _upkeep,
    "extraction": _extraction,
    "background": _background,
}


def _data(options: argparse.Namespace) -> Path:
    folder = options.data or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise DataMissing(f"name the folder of the data sets: --data DIR or {DATA_VARIABLE}")
    return Path(folder)


def _embedder(name: str) -> Embedder:
    if name == "hash":
        return HashEmbedder(dim=256)
    embedder = resolve(name)
    assert embedder is not None  # noqa: S101 - only None resolves to None
    return embedder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parts = parser.add_subparsers(dest="benchmark", required=True)
    _quality_options(
        parts.add_parser("quality", help="recall and rank of the documents that answer public questions")
    )

    part = parts.add_parser(
        "ablation", help="what each default of recall is worth: one setting changed at a time"
    )
    _set_options(part)
    part.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, help="processes that ask (default: one a core)"
    )
    _common(part)

    part = parts.add_parser("literal", help="whether literal substrings of Chinese rows are found")
    _data_option(part)
    part.add_argument(
        "--draws", type=_positive, default=2_000, help="pieces that are asked for (default: 2000)"
    )
    _common(part, plot=False)

    part = parts.add_parser("speed", help="rows a second, milliseconds and bytes, on made-up rows")
    part.add_argument("--rows", type=_sizes, default=(10_000, 100_000), help="default: 10000,100000")
    part.add_argument("--queries", type=_positive, default=200, help="timed questions (default: 200)")
    part.add_argument("--folder", type=Path, help="where the stores are built (default: a temporary folder)")
    _common(part)

    part = parts.add_parser("upkeep", help="importing and recovering many rows: rows a second and memory")
    part.add_argument("--rows", type=_sizes, default=(10_000, 100_000), help="default: 10000,100000")
    part.add_argument("--folder", type=Path, help="where the stores are built (default: a temporary folder)")
    _common(part, plot=False)

    part = parts.add_parser("extraction", help="memories and verdicts made from labelled conversations")
    part.add_argument("--llm", help="openai:<model>@<base url> (default: the rules, without a model)")
    part.add_argument("--part", choices=extraction_cases.PARTS, help="half of the cases (default: both)")
    part.add_argument("--limit", type=_positive, help="about this many cases (default: all)")
    _common(part, plot=False)
    part = parts.add_parser("background", help="what a worker costs those who record")
    part.add_argument("--calls", type=_positive, default=500, help="timed calls of a block (default: 500)")
    part.add_argument("--blocks", type=_positive, default=4, help="of each arrangement (default: 4)")
    part.add_argument("--backlog", type=_positive, default=8_000, help="messages that wait (default: 8000)")
    part.add_argument("--folder", type=Path, help="where the store is built (default: a temporary folder)")
    _common(part, plot=False)
    return parser


def _quality_options(part: argparse.ArgumentParser) -> None:
    defaults = Settings()
    _set_options(part)
    part.add_argument("--one-team", action="store_true", help="all people of a set in one team")
    part.add_argument("--candidate-factor", type=_positive, default=defaults.candidate_factor)
    part.add_argument("--rrf-k", type=int, default=defaults.rrf_k)
    part.add_argument("--leg-weights", type=_weights, default=defaults.leg_weights, metavar="text=1,vector=1")
    part.add_argument(
        "--set",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"another value of {' or '.join(quality.CONSTANTS)}; may be given again",
    )
    part.add_argument(
        "--gate",
        type=Path,
        metavar="BASELINE.json",
        help="exit 1 when recall@10 is lower than in this earlier result",
    )
    part.add_argument(
        "--tolerance", type=_part, default=TOLERANCE, help=f"how much lower it may be (default: {TOLERANCE})"
    )
    _common(part)


def _set_options(part: argparse.ArgumentParser) -> None:
    _data_option(part)
    part.add_argument("--limit", type=_positive, help="about this many questions of each set (default: all)")
    part.add_argument("--sets", type=_names, help=f"comma-separated, of {', '.join(SETS)} (default: all)")
    part.add_argument(
        "--embedder", default="local", help="local, hash (no meaning, for tests) or st:<name or folder>"
    )
    part.add_argument("--cache", type=Path, default=default_folder(), help="folder of computed embeddings")


def _data_option(part: argparse.ArgumentParser) -> None:
    part.add_argument("--data", type=Path, help=f"folder of the data sets (default: ${DATA_VARIABLE})")


def _common(part: argparse.ArgumentParser, *, plot: bool = True) -> None:
    beside = "; the plot goes beside it" if plot else ""
    part.add_argument("--out", type=Path, required=True, help=f"the JSON to write{beside}")
    if plot:
        part.add_argument("--no-plot", action="store_true")
    else:
        part.set_defaults(no_plot=True)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _part(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be from 0 to 1")
    return value


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown set {unknown[0]!r}; known are {', '.join(SETS)}")
    return names


def _assignment(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in quality.CONSTANTS:
        raise argparse.ArgumentTypeError(f"not NAME=VALUE with a NAME of {', '.join(quality.CONSTANTS)}")
    return name, float(value)


def _weights(text: str) -> dict[str, float]:
    pairs = [part.partition("=") for part in text.split(",")]
    return {name: float(value) for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
