"""Retrieval metrics over the ranks of a question's right rows. Ranks count from 1; None: not returned.

Recall, mean reciprocal rank: Voorhees, "The TREC-8 Question Answering Track Report" (1999); Manning, Raghavan and
Schütze, "Introduction to Information Retrieval" (2008), chapter 8. nDCG: Järvelin and Kekäläinen, "Cumulated
gain-based evaluation of IR techniques" (2002), with gains of 0 and 1 and the discount 1 / log2(rank + 1).
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

Ranks = Sequence[int | None]
"""Of one question: the ranks of its right rows that were returned, best first, and a None for each other one."""

DIGITS = 4
"""Means are rounded to so many: one question of 10,000 still shows."""


def gold_ranks(returned: Sequence[Hashable], gold: Collection[Hashable]) -> list[int | None]:
    """The ranks of the right rows in what was returned."""
    found = [rank for rank, item in enumerate(returned, 1) if item in gold]
    return [*found, *[None] * (len(gold) - len(found))]


def unit_ranks(returned: Sequence[Hashable], units: Iterable[Collection[Hashable]]) -> list[int | None]:
    """The ranks where a right answer is a unit that any one of several rows gives.

    A unit has the rank of its first row. Units that come with one and the same row count as one: there is nothing
    more to find.
    """
    best = [next((rank for rank, item in enumerate(returned, 1) if item in unit), None) for unit in units]
    found = sorted({rank for rank in best if rank is not None})
    return [*found, *[None] * best.count(None)]


def recall_at(ranks: Ranks, k: int) -> float:
    """The part of the right rows that is among the first k."""
    return _found(ranks, k) / len(ranks)


def any_at(ranks: Ranks, k: int) -> float:
    """1 when at least one right row is among the first k, else 0. Published figures also call it hit@k."""
    return float(_found(ranks, k) > 0)


def all_at(ranks: Ranks, k: int) -> float:
    """1 when every right row is among the first k, else 0; 0 where there are more of them than k."""
    return float(_found(ranks, k) == len(ranks))


def reciprocal_rank_at(ranks: Ranks, k: int) -> float:
    """1 / rank of the first right row, 0 when none is among the first k."""
    best = min((rank for rank in ranks if rank is not None), default=None)
    return 1 / best if best is not None and best <= k else 0.0


def ndcg_at(ranks: Ranks, k: int) -> float:
    """Discounted gain of the right rows among the first k, over that of the best order there could be."""
    gained = sum(_discount(rank) for rank in ranks if rank is not None and rank <= k)
    return gained / sum(_discount(rank) for rank in range(1, min(len(ranks), k) + 1))


def _found(ranks: Ranks, k: int) -> int:
    return sum(rank is not None and rank <= k for rank in ranks)


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def summary(by_limit: Mapping[int, Sequence[Ranks]], ranked_at: int) -> dict[str, float | None]:
    """Means over questions, each question counting once; None where there is no question.

    :param by_limit: for each k the ranks of every question in an answer of at most k rows. They come from an answer
        of that limit: a leg looks deeper for a larger one, so a short answer need not be the head of a long one.
    :param ranked_at: the k of MRR, nDCG and hit, one of ``by_limit``.
    """
    means: dict[str, float | None] = {}
    for name, measure in (("recall", recall_at), ("any", any_at), ("all", all_at)):
        for k, questions in sorted(by_limit.items()):
            means[f"{name}@{k}"] = mean(measure(ranks, k) for ranks in questions)
    for name, measure in (("hit", any_at), ("mrr", reciprocal_rank_at), ("ndcg", ndcg_at)):
        means[f"{name}@{ranked_at}"] = mean(measure(ranks, ranked_at) for ranks in by_limit[ranked_at])
    return means


def mean(values: Iterable[float]) -> float | None:
    """The rounded mean, None of nothing."""
    listed = list(values)
    return round(math.fsum(listed) / len(listed), DIGITS) if listed else None
