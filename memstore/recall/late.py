"""Late factors: what may change the order after fusion, off by default (SPEC R8)."""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memstore.config import Settings

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the factors look at: how old a row is (never less than 0), and its priority, None for a message."""

    age_s: float
    priority: int | None


def wanted(settings: Settings) -> bool:
    """Whether any factor is on."""
    return bool(settings.recency_half_life_s or settings.priority_weight) or (
        settings.collapse_similarity is not None or settings.source_share is not None
    )


def factors(facts: Facts, settings: Settings) -> dict[str, float]:
    """What a fused score is multiplied by. Absolute instructions (priority -1) count as priority 0: they are
    injected, not ranked."""
    found = {}
    if settings.recency_half_life_s:
        found["recency"] = 0.5 ** (facts.age_s / settings.recency_half_life_s)
    if settings.priority_weight and facts.priority is not None:
        found["priority"] = 1.0 + settings.priority_weight * max(0, facts.priority) / 100
    return found


def duplicates(
    ordered: Sequence[Item], words: Mapping[Item, Iterable[str]], similarity: float
) -> dict[Item, Item]:
    """Of rows in their order, each near-duplicate of a better one, and that one. Rows are compared by the Jaccard
    index of their words; a row without words is no duplicate of anything."""
    kept: list[tuple[Item, frozenset[str]]] = []
    found: dict[Item, Item] = {}
    for item in ordered:
        own = frozenset(words.get(item, ()))
        twin = next((other for other, theirs in kept if _jaccard(own, theirs) >= similarity), None)
        if own and twin is not None:
            found[item] = twin
        else:
            kept.append((item, own))
    return found


def beyond_share(
    ordered: Sequence[Item], sources: Mapping[Item, Hashable], limit: int, share: float
) -> set[Item]:
    """Of rows in their order, those that are more than their source's share of the limit; one always is within it.
    Where all are of one source, none is: there is nobody whose place they take."""
    if len({sources[item] for item in ordered}) < 2:  # noqa: PLR2004 - it takes two
        return set()
    most = max(1, math.floor(share * limit))
    taken: Counter[Hashable] = Counter()
    beyond: set[Item] = set()
    for item in ordered:
        taken[sources[item]] += 1
        if taken[sources[item]] > most:
            beyond.add(item)
    return beyond


def first_of_each(
    ordered: Sequence[Item], sources: Mapping[Item, Hashable], each: int, most: int
) -> list[Item]:
    """The first rows, so many of a source at most."""
    taken: Counter[Hashable] = Counter()
    kept = []
    for item in ordered:
        taken[sources[item]] += 1
        if taken[sources[item]] <= each:
            kept.append(item)
        if len(kept) == most:
            break
    return kept


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
