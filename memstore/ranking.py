"""Fusion of ranked lists."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item", bound=Hashable)

RRF_K = 60
"""Cormack, Clarke, Büttcher: Reciprocal Rank Fusion outperforms Condorcet (SIGIR 2009) use 60."""


def reciprocal_rank_fusion(
    rankings: Iterable[Sequence[Item]],
    k: int = RRF_K,
    *,
    weights: Sequence[float] | None = None,
    tie_break: Callable[[Item], Any] | None = None,
) -> list[tuple[Item, float]]:
    """Fuse ranked lists: an item scores ``sum(weight / (k + rank))`` over the lists that hold it, rank from 1.

    An item counts once per list, at its best rank; a repeat takes no rank from those behind it. Ties are broken
    by the better rank in the first list, then the second and so on, then by ``tie_break(item)`` ascending, else
    by first appearance.

    :returns: ``(item, score)``, best first.
    """
    ranks = [{item: rank for rank, item in enumerate(dict.fromkeys(ranking), 1)} for ranking in rankings]
    return fuse_ranks(ranks, k, weights=weights, tie_break=tie_break)


def fuse_ranks(
    ranks: Sequence[Mapping[Item, int]],
    k: int = RRF_K,
    *,
    weights: Sequence[float] | None = None,
    tie_break: Callable[[Item], Any] | None = None,
) -> list[tuple[Item, float]]:
    """:func:`reciprocal_rank_fusion` of ranks that are known already (several items may share one)."""
    factors = list(weights) if weights is not None else [1.0] * len(ranks)
    if len(factors) != len(ranks):
        raise ValueError(f"{len(factors)} weights for {len(ranks)} rankings")
    if k < 0:
        raise ValueError("k must not be negative")
    scores: dict[Item, float] = {}
    for places, factor in zip(ranks, factors, strict=True):
        for item, rank in places.items():
            scores[item] = scores.get(item, 0.0) + factor / (k + rank)
    worst = max((rank for places in ranks for rank in places.values()), default=0) + 1
    first_seen = {item: number for number, item in enumerate(scores)}

    def order(item: Item) -> tuple[Any, ...]:
        by_rank = tuple(places.get(item, worst) for places in ranks)
        return (-round(scores[item], 12), *by_rank, tie_break(item) if tie_break else first_seen[item])

    return [(item, scores[item]) for item in sorted(scores, key=order)]


def keep_within(ordered: Sequence[Item], certain: Mapping[Item, Any], limit: int) -> list[Item]:
    """Cut an ordered list to ``limit`` without losing the items in ``certain``.

    Certain items beyond the limit displace the last uncertain ones; the order of what is kept is not changed.
    """
    kept = list(ordered[:limit])
    beyond = [item for item in ordered[limit:] if item in certain]
    for position in range(len(kept) - 1, -1, -1):
        if not beyond:
            break
        if kept[position] not in certain:
            del kept[position]
            kept.append(beyond.pop(0))
    return kept
