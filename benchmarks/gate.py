"""Comparing a quality run with an earlier one: what fell, and by how much."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import legs

MEASURE = "recall@10"
PARTS = ("all", "report")
_ROUNDING = 1e-9


class NotComparable(Exception):
    """Two runs whose figures say nothing about each other; the message says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure then and now."""

    where: str
    part: str
    leg: str
    before: float
    now: float

    @property
    def change(self) -> float:
        return self.now - self.before

    def __str__(self) -> str:
        return (
            f"{self.where}, {self.part}, {self.leg}: {self.before:.4f} → {self.now:.4f} ({self.change:+.4f})"
        )


def load(path: Path) -> dict[str, Any]:
    """A baseline's figures.

    :raises NotComparable: when there is none, or it is no result of ``quality``.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotComparable(f"the baseline {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NotComparable(f"the baseline {path} is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("benchmark") != "quality":
        raise NotComparable(f"the baseline {path} is no result of 'quality'")
    if "languages" not in found:
        raise NotComparable(
            f"the baseline {path} is of an older form without parts; write it anew by 'quality --out'"
        )
    return found


def compare(baseline: Mapping[str, Any], figures: Mapping[str, Any]) -> list[Difference]:
    """Every figure that the gate looks at: recall@10 of each leg and of both fused, by set and by language, of all
    questions and of those that report.

    :raises NotComparable: naming everything that differs between the two runs besides the store.
    """
    reasons = list(_obstacles(baseline, figures))
    if reasons:
        raise NotComparable("; ".join(reasons))
    return [*_differences(baseline, figures)]


def fallen(differences: list[Difference], tolerance: float) -> list[Difference]:
    """What fell more than is tolerated, the worst first."""
    return sorted(
        (found for found in differences if found.change < -tolerance - _ROUNDING),
        key=lambda found: found.change,
    )


def _obstacles(baseline: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[str]:
    before, now = (run["versions"]["embedder"] for run in (baseline, figures))
    if before["digest"] != now["digest"]:
        yield (
            f"another embedder: the baseline's is {before['model']} ({before['revision']}), "
            f"this run's {now['model']} ({now['revision']})"
        )
    for name in ("one_team", "limits", "constants"):
        old, new = (run["settings"].get(name) for run in (baseline, figures))
        if old != new:
            yield f"another setting {name}: {old} in the baseline, {new} here"
    old_sets, new_sets = baseline["results"], figures["results"]
    if set(old_sets) != set(new_sets):
        yield f"other sets: the baseline has {', '.join(old_sets)}, this run {', '.join(new_sets)}"
    for name in old_sets.keys() & new_sets.keys():
        for counted in ("questions", "documents"):
            old, new = old_sets[name][counted], new_sets[name][counted]
            if old != new:
                yield f"{name} has {new:,} {counted} here, {old:,} in the baseline"


def _differences(baseline: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[Difference]:
    scored = [
        *(
            (name, baseline["results"][name]["legs"], result["legs"])
            for name, result in figures["results"].items()
        ),
        *(
            (f"all {name}", baseline["languages"][name], by_leg)
            for name, by_leg in figures["languages"].items()
        ),
    ]
    for where, before, now in scored:
        for leg in legs.LEGS:
            for part in PARTS:
                old, new = before[leg][part][MEASURE], now[leg][part][MEASURE]
                if old is not None and new is not None:
                    yield Difference(where, part, leg, old, new)
