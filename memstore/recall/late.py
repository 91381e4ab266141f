"""Late factors: what may change the order after fusion, off by default (SPEC R8)."""

from collections.abc import Iterable, Mapping, Sequence
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
        settings.collapse_similarity is not None
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


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
