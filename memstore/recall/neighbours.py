"""A message in its conversation: the turns beside it lend it some of their score.

"Yes, on Thursday" answers a question that stands in the turn before. Nothing is stored for this: both legs look at
their best rows once more together with the turns beside them, so that a turn which is deleted, hidden or filtered
out lends nothing from that moment on. Only a turn of another speaker counts, said within
``Settings.neighbour_gap_s``: in a row of statements by one speaker each stands for itself (measured: the ablation in
``benchmarks/results/README.md``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from memstore.storage.base import Candidate, Ref, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SCORE_DIGITS = 7
"""As the vector leg's own scores: float32 carries no more."""

Weights = tuple[float, float]
"""What the turn before and the turn after count, beside 1 for the message itself."""


@dataclass(frozen=True, slots=True)
class Beside:
    """The turns next to a message, where they count."""

    before: Ref | None = None
    after: Ref | None = None

    def __iter__(self) -> Iterator[Ref]:
        return iter([ref for ref in (self.before, self.after) if ref is not None])


ALONE = Beside()


def beside(turns: Sequence[Turn], gap_s: float) -> dict[Ref, Beside]:
    """For each turn its neighbours among the turns given, which stand in the order of session and position."""
    before: dict[Ref, Ref] = {}
    after: dict[Ref, Ref] = {}
    for earlier, later in pairwise(turns):
        if _belong_together(earlier, later, gap_s):
            before[later.ref] = earlier.ref
            after[earlier.ref] = later.ref
    return {turn.ref: Beside(before.get(turn.ref), after.get(turn.ref)) for turn in turns}


def _belong_together(earlier: Turn, later: Turn, gap_s: float) -> bool:
    return (
        (earlier.session, earlier.branch, earlier.pos + 1) == (later.session, later.branch, later.pos)
        and (earlier.role, earlier.name) != (later.role, later.name)
        and 0 <= later.said_at - earlier.said_at <= gap_s * 1_000_000
    )


def near(pool: Iterable[Ref], neighbours: Mapping[Ref, Beside]) -> list[Ref]:
    """The rows of a pool and the turns beside them, each once."""
    found: dict[Ref, None] = {}
    for ref in pool:
        found[ref] = None
        found.update(dict.fromkeys(neighbours.get(ref, ALONE)))
    return list(found)


def sums(
    refs: Iterable[Ref], own: Mapping[Ref, float], neighbours: Mapping[Ref, Beside], weights: Weights
) -> dict[Ref, float]:
    """BM25 scores add up: a row's own and, weighted, those of the turns beside it."""
    return {
        ref: sum(share * own.get(of, 0.0) for of, share in _shares(ref, neighbours, weights)) for ref in refs
    }


def cosines(
    refs: Sequence[Ref],
    query: "NDArray[np.float32]",
    vectors: "Mapping[Ref, NDArray[np.float32]]",
    neighbours: Mapping[Ref, Beside],
    weights: Weights,
) -> dict[Ref, float]:
    """The cosine of the query and a row's vector plus, weighted, those of the turns beside it.

    :param query: one vector or several, as in :meth:`Reader.vector_search`.

    Rows without a vector are left out. Summed without BLAS, whose order of additions depends on the machine's threads.
    """
    import numpy as np

    kept = [ref for ref in refs if ref in vectors]
    if not kept:
        return {}
    mixed = np.stack(
        [
            sum(
                share * vectors[of].astype(np.float64)
                for of, share in _shares(ref, neighbours, weights)
                if of in vectors
            )
            for ref in kept
        ]
    )
    length = np.sqrt(np.einsum("ij,ij->i", mixed, mixed))
    length[length == 0.0] = 1.0  # a vector and its opposite: no direction, and a cosine of 0
    each = np.einsum("ij,kj->ik", mixed, np.atleast_2d(query).astype(np.float64)) / length[:, None]
    found = each[:, 0] if each.shape[1] == 1 else (each[:, 0] + each[:, 1:].max(axis=1)) / 2
    return {ref: round(float(score), SCORE_DIGITS) for ref, score in zip(kept, found, strict=True)}


def _shares(ref: Ref, neighbours: Mapping[Ref, Beside], weights: Weights) -> list[tuple[Ref, float]]:
    of = neighbours.get(ref, ALONE)
    shares = [(ref, 1.0)]
    if of.before is not None:
        shares.append((of.before, weights[0]))
    if of.after is not None:
        shares.append((of.after, weights[1]))
    return shares


def ranked(
    scores: Mapping[Ref, float], known: Mapping[Ref, Candidate], turns: Mapping[Ref, Turn], k: int
) -> list[Candidate]:
    """The k best as candidates; ``score`` is the one with the neighbours."""
    found = []
    for ref, score in scores.items():
        of = known[ref] if ref in known else turns[ref].candidate
        found.append(Candidate(ref, score, of.recorded_at, of.arrival, of.id))
    found.sort(key=lambda candidate: (-candidate.score, *candidate.tie))
    return found[:k]
