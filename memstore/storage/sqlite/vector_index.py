"""The vector leg: canonical float32 rows, one table a generation and layer, clustered by slot.

A user is one rowid range, and sqlite-vec's ``vec_distance_cosine`` reads it exactly. Against a vec0 table this
keeps one copy of each vector instead of two, has no largest k, frees space with its rows, and can be filtered by
any column. What a user's range costs is in ``benchmarks/results/speed.json``.
"""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import apsw

from memstore.storage.base import Candidate, Ref
from memstore.storage.sqlite.filters import Sql
from memstore.storage.sqlite.keys import SlotRange
from memstore.storage.sqlite.text_index import ROW_TABLE
from memstore.types import Layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYERS: tuple[Layer, ...] = ("messages", "memories")
SCORE_DIGITS = 7
"""float32 cosine carries no more; nearer scores are equal and the tie rule decides."""


def table_name(generation: int, layer: Layer) -> str:
    return f"vectors_{generation}_{layer}"


def create(connection: apsw.Connection, generation: int) -> None:
    """The tables of a new generation."""
    for layer in LAYERS:
        connection.execute(
            f"CREATE TABLE {table_name(generation, layer)}"
            " (slot INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL) STRICT"
        ).fetchall()


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
        [(ref, blob, zlib.crc32(blob)) for ref, blob in blobs],
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
    """The k nearest rows of one slot range, exactly.

    The inner query orders the whole range by distance; ``LIMIT -1`` keeps SQLite from flattening it, so that the
    filter is asked row by row, nearest first, until k have passed.
    """
    sql, bindings = where
    cursor = connection.execute(
        "SELECT v.slot, v.distance, m.recorded_at, m.arrival, m.id"
        f" FROM (SELECT slot, vec_distance_cosine(vector, ?) AS distance FROM {table_name(generation, layer)}"
        "        WHERE slot BETWEEN ? AND ? ORDER BY distance LIMIT -1) v"
        f" CROSS JOIN {ROW_TABLE[layer]} m ON m.slot = v.slot WHERE {sql}",
        (query.tobytes(), slots.first, slots.last, *bindings),
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


def damaged(connection: apsw.Connection, generation: int, layer: Layer, dim: int) -> list[int]:
    """Slots whose vector does not fit its checksum or width."""
    return [
        slot
        for slot, vector, checksum in connection.execute(
            f"SELECT slot, vector, checksum FROM {table_name(generation, layer)}"
        )
        if len(vector) != 4 * dim or zlib.crc32(vector) != checksum
    ]
