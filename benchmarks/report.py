"""What a run leaves behind: JSON with raw figures, a table on stdout, and a plot beside the JSON."""

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

import memstore
from benchmarks.corpus import PARTS
from memstore import Settings
from memstore.embedding import Embedder

_LEG_COLOURS = {"text": "#4c8bd0", "vector": "#dd8452", "fused": "#55a868"}
_INK = "#808890"
"""Readable on white and on black: the background of a plot is transparent."""


def circumstances(embedder: Embedder | None) -> dict[str, Any]:
    """Date, versions and machine: what a figure is worth nothing without."""
    identity = embedder.identity if embedder is not None else None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            **{name: importlib.metadata.version(name) for name in ("apsw", "sqlite-vec", "jieba", "numpy")},
            "memstore": memstore.__version__,
            "embedder": None
            if identity is None
            else {
                "model": identity.model,
                "revision": identity.revision,
                "dim": identity.dim,
                "digest": identity.digest(),
            },
        },
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS") or "default",
        },
    }


def recall_settings(settings: Settings) -> dict[str, Any]:
    """What of a store's settings changes its answers."""
    others = (
        "timezone", "durability", "busy_timeout_s", "idle_checkpoint_s", "reserve_bytes", "network_file_system",
        "lease_s", "nightly_backup_hour", "backup_keep", "daily_tokens",
    )  # fmt: skip
    return {
        field.name: dict(value) if isinstance(value := getattr(settings, field.name), Mapping) else value
        for field in fields(settings)
        if field.name not in others
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def say(what: str) -> None:
    """How far a run is, on stderr."""
    print(what, file=sys.stderr, flush=True)


def write(figures: Mapping[str, Any], out: Path) -> None:
    """Write the JSON: members a line each, lists of raw figures an item a line, so that two runs can be diffed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(_json(figures) + "\n", encoding="utf-8")


def _json(value: Any, margin: str = "") -> str:
    inner = margin + " "
    if isinstance(value, Mapping) and value:
        members = [f"{inner}{json.dumps(str(key))}: {_json(member, inner)}" for key, member in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{margin}}}"
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        items = [inner + json.dumps(item, ensure_ascii=False) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{margin}]"
    return json.dumps(value, ensure_ascii=False)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns parted by two blanks; the first one left, the others right."""
    cells = [list(head), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table of Markdown; the first column left, the others right."""
    lines = [
        list(head),
        ["---", *["---:"] * (len(head) - 1)],
        *[[_cell(value) for value in row] for row in rows],
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_MEASURES = (
    *(f"{name}@{k}" for name in ("recall", "any", "all") for k in (5, 10, 20)),
    "hit@10",
    "mrr@10",
    "ndcg@10",
)


def quality_table(figures: Mapping[str, Any]) -> str:
    """Scores a leg and part of each set, and of all sets of a language; then recall@10 by group."""
    blocks = []
    for name, result in figures["results"].items():
        head = f"{name}: {result['questions']:,} questions, {result['documents']:,} documents"
        for reason, count in result["excluded"].items():
            head += f"; {count:,} left out ({reason})"
        blocks.append(f"{head}\n{_scores_table(result['legs'])}\n\n{_group_table(result['legs'])}")
        if "session_legs" in result:
            blocks.append(f"{name}, sessions instead of turns\n{_scores_table(result['session_legs'])}")
    blocks += [
        f"all sets in {language}\n{_scores_table(by_leg)}"
        for language, by_leg in figures["languages"].items()
    ]
    return "\n\n".join(blocks)


def _scores_table(by_leg: Mapping[str, Any]) -> str:
    rows = [
        [f"{leg}, {part}", scores[part]["questions"], *(scores[part][measure] for measure in _MEASURES)]
        for part in ("all", *PARTS)
        for leg, scores in by_leg.items()
    ]
    return table(["leg, part", "N", *_MEASURES], rows)


def _group_table(by_leg: Mapping[str, Any]) -> str:
    groups = list(by_leg["fused"]["by_group"])
    rows = [
        [f"{leg}, {part}", *(scores["by_group"][group][part]["recall@10"] for group in groups)]
        for part in ("all", *PARTS)
        for leg, scores in by_leg.items()
    ]
    return table(["recall@10", *(f"[{group}]" for group in groups)], rows)


def speed_table(figures: Mapping[str, Any]) -> str:
    """A column a store size. Times are p50 / p95 in milliseconds."""
    results = list(figures["results"].values())

    def times(*keys: str) -> list[str]:
        found = []
        for result in results:
            value: Any = result
            for key in keys:
                value = value[key]
            found.append(f"{value['p50_ms']:.2f} / {value['p95_ms']:.2f}")
        return found

    rows: list[list[Any]] = [
        ["bulk record, rows/s", *(result["bulk_record"]["rows_per_s"] for result in results)],
        ["index, rows/s", *(result["index"]["rows_per_s"] for result in results)],
        ["record, disk, ms", *times("single_record", "disk")],
        ["record, process, ms", *times("single_record", "process")],
        *([f"recall, {leg}, ms", *times("recall", leg)] for leg in _LEG_COLOURS),
        ["recall, text, after singles, ms", *times("recall_after_single_records", "text")],
        ["recall, fused / N50", *(result["recall"]["fused"]["per_n50"] for result in results)],
        ["database, bytes/row", *(result["size"]["database_bytes_per_row"] for result in results)],
        ["fallback, bytes/row", *(result["size"]["fallback_bytes_per_row"] for result in results)],
        ["database / raw", *(result["size"]["database_to_raw"] for result in results)],
        ["statements a record", *(result["statements"]["record"] for result in results)],
        ["statements a recall", *(result["statements"]["recall"] for result in results)],
    ]
    yardstick = f"\n\nN50 {figures['n50_ms']:.2f} ms"
    growth = figures["largest_to_smallest"]
    if growth is not None:
        ratios = ", ".join(f"{leg} {ratio:.2f}" for leg, ratio in growth.items())
        yardstick += f"; recall p50, largest store to smallest: {ratios}"
    return table(["", *(f"{result['rows']:,} rows" for result in results)], rows) + yardstick


def plot(figures: Mapping[str, Any], out: Path) -> Path | None:
    """A PNG beside the JSON; None, with a note on stderr, where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        print("no plot: matplotlib is not installed (pip install 'memstore[bench]')", file=sys.stderr)
        return None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    draw = {"quality": _quality_bars, "speed": _speed_bars, "ablation": _ablation_dots}[figures["benchmark"]]
    with plt.rc_context(dict.fromkeys(colours, _INK)):
        figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
        draw(axes, figures)
        axes.spines[["top", "right"]].set_visible(False)
        target = out.with_suffix(".png")
        figure.savefig(target, dpi=130, transparent=True)
        plt.close(figure)
    return target


def _quality_bars(axes: Any, figures: Mapping[str, Any]) -> None:
    results = figures["results"]
    groups = {
        leg: [result["legs"][leg]["all"]["recall@10"] for result in results.values()] for leg in _LEG_COLOURS
    }
    labels = [f"{name}\n({result['questions']} questions)" for name, result in results.items()]
    if len(labels) > 4:
        axes.tick_params(axis="x", labelsize=8)
    _grouped(axes, labels, groups, "{:.2f}")
    axes.set_ylim(0, 1)
    axes.set_ylabel("recall@10")
    axes.set_title("Gold documents among the first ten results")


def _speed_bars(axes: Any, figures: Mapping[str, Any]) -> None:
    results = figures["results"]
    groups = {leg: [result["recall"][leg]["p50_ms"] for result in results.values()] for leg in _LEG_COLOURS}
    labels = [
        f"{result['rows']:,} rows\n(of the asker: {result['asker_rows']:,})" for result in results.values()
    ]
    _grouped(axes, labels, groups, "{:.1f}")
    axes.set_ylabel("milliseconds, median")
    axes.set_title("Recall of one user (model time left out)")


_SET_COLOURS = ("#4c8bd0", "#dd8452", "#55a868", "#c060a0", "#a08040")


def _ablation_dots(axes: Any, figures: Mapping[str, Any]) -> None:
    """A line a variant, a dot a set: what fused recall@10 gains or loses."""
    variants = list(dict.fromkeys(row["variant"] for row in figures["rows"]))
    axes.figure.set_size_inches(8, 1.6 + 0.24 * len(variants))
    for (name, result), colour in zip(figures["results"].items(), _SET_COLOURS, strict=False):
        rows = [row for row in figures["rows"] if row["set"] == name and row["difference"] is not None]
        axes.plot(
            [row["difference"] for row in rows],
            [variants.index(row["variant"]) for row in rows],
            "o",
            color=colour,
            markersize=5,
            alpha=0.85,
            label=f"{name} ({result['questions']['choose']})",
        )
    axes.axvline(0, color=_INK, linewidth=0.8)
    axes.set_yticks(range(len(variants)), variants, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", color=_INK, alpha=0.25)
    axes.set_xlabel("difference of fused recall@10 to the defaults (questions that choose)")
    axes.legend(
        frameon=False,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.4, 1.0 + 1.6 / len(variants)),
        ncols=4,
    )


def _grouped(axes: Any, labels: Sequence[str], groups: Mapping[str, Sequence[float]], form: str) -> None:
    width = 0.8 / len(groups)
    for place, (leg, heights) in enumerate(groups.items()):
        where = [x + (place - (len(groups) - 1) / 2) * width for x in range(len(heights))]
        bars = axes.bar(where, heights, width * 0.94, label=leg, color=_LEG_COLOURS[leg])
        axes.bar_label(bars, labels=[form.format(height) for height in heights], fontsize=8, padding=2)
    axes.set_xticks(range(len(labels)), labels)
    axes.legend(frameon=False, ncols=len(groups), loc="upper left", bbox_to_anchor=(0, -0.12))
