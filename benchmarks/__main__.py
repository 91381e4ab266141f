"""``python -m benchmarks quality|speed --out FILE.json``; see the README beside this file."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import quality, report, speed
from benchmarks.cache import default_folder
from benchmarks.corpus import DataMissing
from memstore import MemstoreError, Settings
from memstore.embedding import Embedder, resolve
from memstore.testing import HashEmbedder

DATA_VARIABLE = "MEMSTORE_BENCH_DATA"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; 0 when it was measured, 2 when it could not be."""
    options = _parser().parse_args(arguments)
    try:
        figures = _quality(options) if options.benchmark == "quality" else _speed(options)
    except (DataMissing, MemstoreError) as error:
        print(f"memstore benchmarks: {error}", file=sys.stderr)
        return 2
    report.write(figures, options.out)
    print(report.quality_table(figures) if options.benchmark == "quality" else report.speed_table(figures))
    drawn = None if options.no_plot else report.plot(figures, options.out)
    print(f"\nwritten: {options.out}{f', {drawn}' if drawn else ''}")
    return 0


def _quality(options: argparse.Namespace) -> dict[str, object]:
    folder = options.data or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise DataMissing(f"name the folder of the data sets: --data DIR or {DATA_VARIABLE}")
    settings = Settings(
        timezone="UTC",
        durability="process",
        candidate_factor=options.candidate_factor,
        rrf_k=options.rrf_k,
        leg_weights=options.leg_weights,
    )
    return quality.run(
        quality.Options(
            data=Path(folder),
            limit=options.limit,
            sets=options.sets or tuple(quality.SETS),
            top=options.top,
            one_team=options.one_team,
            settings=settings,
            ablations=dict(options.set),
            cache=options.cache,
        ),
        _embedder(options.embedder),
    )


def _speed(options: argparse.Namespace) -> dict[str, object]:
    return speed.run(speed.Options(rows=options.rows, queries=options.queries, folder=options.folder))


def _embedder(name: str) -> Embedder:
    if name == "hash":
        return HashEmbedder(dim=256)
    embedder = resolve(name)
    assert embedder is not None  # noqa: S101 - only None resolves to None
    return embedder


def _parser() -> argparse.ArgumentParser:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parts = parser.add_subparsers(dest="benchmark", required=True)

    part = parts.add_parser("quality", help="recall and rank of the documents that answer public questions")
    part.add_argument("--data", type=Path, help=f"folder of the data sets (default: ${DATA_VARIABLE})")
    part.add_argument("--limit", type=_positive, help="about this many questions of each set (default: all)")
    part.add_argument(
        "--sets", type=_names, help=f"comma-separated, of {', '.join(quality.SETS)} (default: all)"
    )
    part.add_argument("--top", type=_positive, default=20, help="results a question asks for (default: 20)")
    part.add_argument(
        "--embedder", default="local", help="local, hash (no meaning, for tests) or st:<name or folder>"
    )
    part.add_argument("--cache", type=Path, default=default_folder(), help="folder of computed embeddings")
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
        help=f"ablation: another value of {' or '.join(quality.ABLATIONS)}; may be given again",
    )
    _common(part)

    part = parts.add_parser("speed", help="rows a second, milliseconds and bytes, on made-up rows")
    part.add_argument("--rows", type=_sizes, default=(10_000, 100_000), help="default: 10000,100000")
    part.add_argument("--queries", type=_positive, default=200, help="timed questions (default: 200)")
    part.add_argument("--folder", type=Path, help="where the stores are built (default: a temporary folder)")
    _common(part)
    return parser


def _common(part: argparse.ArgumentParser) -> None:
    part.add_argument("--out", type=Path, required=True, help="the JSON to write; the plot goes beside it")
    part.add_argument("--no-plot", action="store_true")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_positive(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in quality.SETS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown set {unknown[0]!r}; known are {', '.join(quality.SETS)}")
    return names


def _assignment(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals or name not in quality.ABLATIONS:
        raise argparse.ArgumentTypeError(f"not NAME=VALUE with a NAME of {', '.join(quality.ABLATIONS)}")
    return name, float(value)


def _weights(text: str) -> dict[str, float]:
    pairs = [part.partition("=") for part in text.split(",")]
    return {name: float(value) for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
