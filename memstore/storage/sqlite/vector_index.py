"""The vector leg: canonical float32 rows, one table a generation and layer, clustered by slot.

A user is one rowid range, and sqlite-vec's ``vec_distance_cosine`` reads it exactly. Against a vec0 table this
keeps one copy of each vector instead of two, has no largest k, frees space with its rows, and can be filtered by
any column. What a user's range costs is in ``benchmarks/results/speed.json``.
"""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw

from memstore.storage.base import Candidate, Ref
from memstore.storage.sqlite.connection import scalar
from memstore.storage.sqlite.filters import Sql
from memstore.storage.sqlite.keys import SlotRange
from memstore.storage.sqlite.text_index import ROW_TABLE
from memstore.types import LAYERS, Layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMBER_BYTES = 4
"""Of a float32."""
SCORE_DIGITS = 7
"""float32 cosine carries no more; nearer scores are equal and the tie rule decides."""


def table_name(generation: int, layer: Layer) -> str:
    return f"vectors_{generation}_{layer}"


def create(connection: apsw.Connection, generation: int) -> None:
    """The tables of a generation, where they are missing."""
    for layer in LAYERS:
        create_table(connection, table_name(generation, layer))


def create_table(connection: apsw.Connection, name: str) -> None:
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {name}"
        " (slot INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT"
    ).fetchall()


def drop(connection: apsw.Connection, generation: int) -> None:
    """Remove the tables of a generation."""
    for layer in LAYERS:
        connection.execute(f"DROP TABLE IF EXISTS {table_name(generation, layer)}").fetchall()


def _there(connection: apsw.Connection, generation: int) -> list[str]:
    """Those of a generation's tables that exist."""
    names = [table_name(generation, layer) for layer in LAYERS]
    return [name for name in names if connection.table_exists("main", name)]


def count(connection: apsw.Connection, generation: int) -> int:
    """How many vectors a generation has. A table that was lost has none."""
    names = _there(connection, generation)
    return sum(int(scalar(connection, f"SELECT count(*) FROM {name}")) for name in names)


def shrink(connection: apsw.Connection, generation: int, rows: int) -> int:
    """Delete up to that many vectors; returns how many it was."""
    gone = 0
    for name in _there(connection, generation):
        connection.execute(
            f"DELETE FROM {name} WHERE slot IN (SELECT slot FROM {name} LIMIT ?)", (rows - gone,)
        ).fetchall()
        gone += connection.changes()
    return gone


def sealed(generation: int, layer: Layer, slot: int, vector: bytes) -> int:
    """The checksum of a vector at its place: another row's vector, or another model's, does not fit there.

    A slot's text never changes, so that the place stands for the text.
    """
    return zlib.crc32(f"{generation}/{layer}/{slot}".encode("ascii"), zlib.crc32(vector))


def put(
    connection: apsw.Connection,
    generation: int,
    layer: Layer,
    refs: Sequence[Ref],
    vectors: "NDArray[np.float32]",
) -> int:
    """Store the vectors of rows that still wait for one; returns how many.

    A row deleted since it was read waits no longer: its vector is dropped, not stored.
    """
    waiting = {
        slot
        for (slot,) in connection.execute(
            "SELECT p.slot FROM json_each(?) j CROSS JOIN pending_vectors p ON p.slot = j.value"
            " WHERE p.generation = ? AND p.layer = ?",
            (f"[{','.join(map(str, refs))}]", generation, layer),
        ).fetchall()
    }
    blobs = [(ref, vector.tobytes()) for ref, vector in zip(refs, vectors, strict=True) if ref in waiting]
    connection.executemany(
        f"INSERT INTO {table_name(generation, layer)} (slot, vector, checksum) VALUES (?, ?, ?)"
        " ON CONFLICT (slot) DO UPDATE SET vector = excluded.vector, checksum = excluded.checksum",
        [(ref, blob, sealed(generation, layer, ref, blob)) for ref, blob in blobs],
    ).fetchall()
    connection.executemany(
        "DELETE FROM pending_vectors WHERE generation = ? AND layer = ? AND slot = ?",
        [(generation, layer, ref) for ref, _ in blobs],
    ).fetchall()
    return len(blobs)


def search(
    connection: apsw.Connection,
    layer: Layer,
    generation: int,
    query: "NDArray[np.float32]",
    slots: SlotRange,
    where: Sql,
    k: int,
) -> list[Candidate]:
    """The k nearest rows of one slot range, exactly. See :meth:`memstore.storage.base.Reader.vector_search`.

    The inner query orders the whole range by distance; ``LIMIT -1`` keeps SQLite from flattening it, so that the
    filter is asked row by row, nearest first, until k have passed.
    """
    sql, bindings = where
    queries = [row.tobytes() for row in query.reshape(-1, query.shape[-1])]
    cursor = connection.execute(
        "SELECT v.slot, v.distance, m.recorded_at, m.arrival, m.id"
        f" FROM (SELECT slot, {_distance(len(queries))} AS distance FROM {table_name(generation, layer)}"
        "        WHERE slot BETWEEN ? AND ? ORDER BY distance LIMIT -1) v"
        f" CROSS JOIN {ROW_TABLE[layer]} m ON m.slot = v.slot WHERE {sql}",
        (*queries, slots.first, slots.last, *bindings),
    )
    found: list[Candidate] = []
    try:
        for slot, distance, recorded_at, arrival, row_id in cursor:
            candidate = Candidate(
                Ref(slot), round(1.0 - distance, SCORE_DIGITS), recorded_at, arrival, row_id
            )
            if len(found) >= k and candidate.score < found[k - 1].score:
                break
            found.append(candidate)
    finally:
        cursor.close()
    found.sort(key=lambda c: (-c.score, *c.tie))
    return found[:k]


def _distance(queries: int) -> str:
    """The distance to a query as a whole, or the mean of it and of the distance to the nearest of its sentences."""
    of_one = "vec_distance_cosine(vector, ?)"
    if queries == 1:
        return of_one
    parts = ", ".join([of_one] * (queries - 1))
    return f"({of_one} + {f'min({parts})' if queries > len(('whole', 'sentence')) else parts}) / 2"


def vectors(
    connection: apsw.Connection, generation: int, layer: Layer, refs: Sequence[Ref]
) -> "dict[Ref, NDArray[np.float32]]":
    """The vectors of those rows that have one."""
    import numpy as np

    rows: list[Any] = connection.execute(
        f"SELECT v.slot, v.vector FROM json_each(?) j CROSS JOIN {table_name(generation, layer)} v"
        " ON v.slot = j.value",
        (f"[{','.join(map(str, refs))}]",),
    ).fetchall()
    return {Ref(slot): np.frombuffer(vector, dtype=np.float32) for slot, vector in rows}


def damaged(connection: apsw.Connection, generation: int, layer: Layer, dim: int) -> list[int]:
    """Slots whose vector does not fit its checksum or width."""
    return [
        slot
        for slot, vector, checksum in connection.execute(
            f"SELECT slot, vector, checksum FROM {table_name(generation, layer)}"
        )
        if not fits(generation, layer, slot, vector, checksum, dim)
    ]


def fits(generation: int, layer: Layer, slot: int, vector: object, checksum: object, dim: int) -> bool:
    """Whether a vector is the one that was stored at this place. A damaged page may hold anything, texts included.

    A plain checksum of the vector's bytes is what stores of before the seal hold: they stay sound.
    """
    if not isinstance(vector, bytes) or len(vector) != NUMBER_BYTES * dim:
        return False
    return checksum in (sealed(generation, layer, slot, vector), zlib.crc32(vector))
