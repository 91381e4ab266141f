"""Asking the text leg, the vector leg, and both fused, each through the store's own code.

One explained answer gives all three: its hits are the fused list, and every candidate says which rank each leg gave
it. A leg's ranks are those that it gives alone; only its weight in fusion depends on the other.
"""

from memstore import MemoryStore, Scope
from memstore.golden import leg_ids
from memstore.types import Layer, Recall

LEGS = ("text", "vector", "fused")
TIMEOUT_S = 60.0


def answer(
    store: MemoryStore, scope: Scope, layer: Layer, query: str, limit: int, *, explain: bool = False
) -> Recall:
    """The store's answer.

    :raises RuntimeError: when a leg did not take part, which would be measured as a bad result.
    """
    ask = store.search_messages if layer == "messages" else store.recall
    found = ask(scope, query, limit, explain=explain, timeout_s=TIMEOUT_S)
    if found.degraded:
        raise RuntimeError(f"the {found.degraded[0].leg} leg did not answer: {found.degraded[0].reason}")
    return found


def ids(store: MemoryStore, scope: Scope, layer: Layer, query: str, limit: int) -> list[str]:
    """The store's answer alone: the text leg where it has no embedder, else both fused."""
    return [hit.id for hit in answer(store, scope, layer, query, limit)]


def ids_by_leg(
    store: MemoryStore, scope: Scope, layer: Layer, query: str, limit: int
) -> dict[str, list[str]]:
    """What each leg answers alone, and both fused, at most ``limit`` rows each."""
    found = answer(store, scope, layer, query, limit, explain=True)
    return {
        "text": leg_ids(found, "text")[:limit],
        "vector": leg_ids(found, "vector")[:limit],
        "fused": [hit.id for hit in found],
    }
