"""Asking one leg alone, and the two fused, each through the store's own code.

Text alone is a store that was opened without an embedder. Vector alone has no public form, because weight 0 keeps a
leg's rows in the list; it is read here below the facade, with the same row filter and candidates.
"""

from memstore import MemoryStore, Scope
from memstore.asking import principal, row_filter
from memstore.embedding import Embedder, check_query
from memstore.times import to_micros
from memstore.types import Layer

LEGS = ("text", "vector", "fused")


def store_ids(store: MemoryStore, scope: Scope, layer: Layer, query: str, top: int) -> list[str]:
    """Ids by the store's own answer: the text leg where it has no embedder, else both fused.

    :raises RuntimeError: when a leg did not take part, which would be measured as a bad result.
    """
    ask = store.search_messages if layer == "messages" else store.recall
    answer = ask(scope, query, top, timeout_s=60.0)
    if answer.degraded:
        raise RuntimeError(f"the {answer.degraded[0].leg} leg did not answer: {answer.degraded[0].reason}")
    return [hit.id for hit in answer]


def vector_ids(
    store: MemoryStore, embedder: Embedder, scope: Scope, layer: Layer, query: str, top: int
) -> list[str]:
    """Ids by the vector leg alone.

    :raises RuntimeError: when the store has no vectors.
    """
    vector = check_query(embedder.embed_query(query), embedder.identity.dim)
    now = to_micros(store._clock.now())  # noqa: SLF001
    with store._storage.read() as reader:  # noqa: SLF001
        generation = reader.generation("active")
        if generation is None:
            raise RuntimeError("the store has no vectors yet")
        operation = "search" if layer == "messages" else "recall"
        where = row_filter(principal(reader, scope), operation, layer, now=now)
        refs = [found.ref for found in reader.vector_search(layer, generation.number, vector, where, top)]
        rows = reader.message_rows(refs) if layer == "messages" else reader.memory_rows(refs)
        return [rows[ref].id for ref in refs]
