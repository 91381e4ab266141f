"""Retrieval metrics over the ranks of a question's gold documents. Ranks count from 1; None: not returned."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from statistics import fmean

Ranks = Sequence[int | None]


def gold_ranks(returned: Sequence[Hashable], gold: Collection[Hashable]) -> list[int | None]:
    """The rank of each gold document in what was returned: found ones by rank, then None for the others."""
    found = [rank for rank, item in enumerate(returned, 1) if item in gold]
    return [*found, *[None] * (len(gold) - len(found))]


def recall_at(ranks: Ranks, k: int) -> float:
    """|gold among the first k| / |gold|."""
    return sum(rank is not None and rank <= k for rank in ranks) / len(ranks)


def hit_at(ranks: Ranks, k: int) -> float:
    """1 when any gold document is among the first k, else 0."""
    return float(any(rank is not None and rank <= k for rank in ranks))


def reciprocal_rank_at(ranks: Ranks, k: int) -> float:
    """1 / rank of the first gold document, 0 when it is not among the first k."""
    best = min((rank for rank in ranks if rank is not None), default=None)
    return 1 / best if best is not None and best <= k else 0.0


def summary(questions: Sequence[Ranks]) -> dict[str, float]:
    """Means over questions, each question counting once."""
    measures: Mapping[str, list[float]] = {
        "recall@5": [recall_at(ranks, 5) for ranks in questions],
        "recall@10": [recall_at(ranks, 10) for ranks in questions],
        "recall@20": [recall_at(ranks, 20) for ranks in questions],
        "hit@10": [hit_at(ranks, 10) for ranks in questions],
        "mrr@10": [reciprocal_rank_at(ranks, 10) for ranks in questions],
    }
    return {name: round(fmean(values), 4) if values else 0.0 for name, values in measures.items()}
