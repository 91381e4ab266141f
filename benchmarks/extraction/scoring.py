"""What the memories that were found are worth against those that were to be found.

- *precision*: of the memories that were stored, the part that is an expected one (of its kind); those that match an
  optional one count neither way. *recall*: of the expected memories, the part that was found. *F1*: their harmonic mean.
- *kind*: of the expected memories whose content was found, the part with the right kind.
- *sources*, *time*: of those found, the part that names all messages it comes from; that has the expected times.
- *verdict*: of the expected verdicts, the part that was given, with exactly the expected targets. A memory that was to be
  skipped and was not proposed counts as right.
- *forbidden*: memories of a kind that the case forbids.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.extraction.cases import Case, Expected, same_time


@dataclass(frozen=True, slots=True)
class Found:
    """A memory that was proposed, and what was decided about it."""

    content: str
    kind: str
    action: str
    targets: frozenset[str]
    sources: frozenset[str]
    start: str | None
    end: str | None

    @property
    def stored(self) -> bool:
        return self.action != "skip"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case with what was found in it. ``failures``: answers of a model that could not be used."""

    case: Case
    found: tuple[Found, ...]
    by: str
    failures: tuple[str, ...] = ()

    def matching(self, expected: Expected, *, any_kind: bool = False) -> list[Found]:
        return [
            one
            for one in self.found
            if expected.says(one.content) and (any_kind or one.kind == expected.kind)
        ]

    @property
    def required(self) -> list[Expected]:
        """Those that have to be stored; one that is to be skipped has not."""
        return [one for one in self.case.expect if not one.optional and one.verdicts != ("skip",)]

    @property
    def missed(self) -> list[Expected]:
        return [one for one in self.required if not any(found.stored for found in self.matching(one))]

    @property
    def surplus(self) -> list[Found]:
        """Stored, and nothing that was expected."""
        return [one for one in self.found if one.stored and not self._fits(one, self.case.expect)]

    @property
    def right(self) -> list[Found]:
        needed = [one for one in self.case.expect if not one.optional]
        return [one for one in self.found if one.stored and self._fits(one, needed)]

    @property
    def forbidden(self) -> list[Found]:
        return [one for one in self.surplus if one.kind in self.case.forbidden]

    def _fits(self, found: Found, expected: Sequence[Expected]) -> bool:
        return any(one.says(found.content) and one.kind == found.kind for one in expected)

    def verdicts(self) -> Iterator[tuple[Expected, bool]]:
        """Each expected verdict, and whether it was given."""
        for expected in self.case.expect:
            if expected.optional or not expected.verdicts:
                continue
            given = self.matching(expected)
            if not given:
                yield expected, "skip" in expected.verdicts
                continue
            yield expected, any(self._as_wanted(one, expected) for one in given)

    @staticmethod
    def _as_wanted(found: Found, expected: Expected) -> bool:
        right = found.action in expected.verdicts
        return right and (found.action == "store" or found.targets == expected.targets)

    @property
    def wrong(self) -> bool:
        return bool(
            self.failures or self.missed or self.surplus or not all(right for _, right in self.verdicts())
        )

    def shown(self) -> dict[str, Any]:
        """What was wrong, for the JSON."""
        return {
            "id": self.case.id,
            "part": self.case.part,
            "category": self.case.category,
            "missed": [[one.kind, list(map(list, one.any_of))] for one in self.missed],
            "surplus": [[one.kind, one.content] for one in self.surplus],
            "verdicts": [
                [list(expected.verdicts), sorted({one.action for one in self.matching(expected)})]
                for expected, right in self.verdicts()
                if not right
            ],
            "failures": list(self.failures),
        }


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All figures, over all and by language and category."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[f"language {outcome.case.language}"].append(outcome)
        groups[f"category {outcome.case.category}"].append(outcome)
    return {
        **_figures(outcomes),
        "groups": {name: _figures(groups[name]) for name in sorted(groups)},
    }


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    right = sum(len(one.right) for one in outcomes)
    surplus = sum(len(one.surplus) for one in outcomes)
    required = sum(len(one.required) for one in outcomes)
    found = required - sum(len(one.missed) for one in outcomes)
    precision, recall = _part(right, right + surplus), _part(found, required)
    said = [
        (outcome, expected)
        for outcome in outcomes
        for expected in outcome.required
        if outcome.matching(expected, any_kind=True)
    ]
    matched = [(outcome, expected) for outcome, expected in said if outcome.matching(expected)]
    timed = [(outcome, expected) for outcome, expected in matched if expected.start or expected.end]
    verdicts = [right for outcome in outcomes for _, right in outcome.verdicts()]
    return {
        "cases": len(outcomes),
        "expected": required,
        "stored": right + surplus,
        "precision": precision,
        "recall": recall,
        "f1": None
        if not precision or not recall
        else round(2 * precision * recall / (precision + recall), 4),
        "kind": _part(len(matched), len(said)),
        "sources": _part(
            sum(any(e.sources <= f.sources for f in o.matching(e)) for o, e in matched), len(matched)
        ),
        "time": _part(sum(_timed_right(o, e) for o, e in timed), len(timed)),
        "verdict": _part(sum(verdicts), len(verdicts)),
        "verdicts": len(verdicts),
        "forbidden": dict(Counter(one.kind for outcome in outcomes for one in outcome.forbidden)),
        "failures": sum(len(outcome.failures) for outcome in outcomes),
    }


def _timed_right(outcome: Outcome, expected: Expected) -> bool:
    zone = outcome.case.zone
    return any(
        (expected.start is None or same_time(expected.start, one.start, zone))
        and (expected.end is None or same_time(expected.end, one.end, zone))
        for one in outcome.matching(expected)
    )


def _part(count: int, of: int) -> float | None:
    return round(count / of, 4) if of else None


_COLUMNS = ("cases", "expected", "stored", "precision", "recall", "f1", "kind", "sources", "time", "verdict")


def table(figures: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"judge: {figures['judge']}",
        f"{'':28}" + "".join(f"{name:>10}" for name in _COLUMNS) + "  forbidden",
    ]
    for name, part in figures["results"].items():
        lines.append(_row(name, part))
    lines += [_row(f"  {name}", part) for name, part in figures["results"]["all"]["groups"].items()]
    return "\n".join(lines)


def _row(name: str, part: dict[str, Any]) -> str:
    cells = "".join(f"{'-' if part[column] is None else part[column]:>10}" for column in _COLUMNS)
    return f"{name:28}{cells}  {sum(part['forbidden'].values())}"
