"""The changes of memories, read from their versions: nothing is written for them."""

from typing import Any

from memstore.storage.base import ChangeKey, Interval, RowFilter
from memstore.storage.sqlite.filters import filter_sql
from memstore.storage.sqlite.keys import SlotRange
from memstore.types import ChangeKind

Found = tuple[int, int, str, int, int, int, int | None]
"""Time, arrival, id, step, version, slot, and the slot of the version before where there is one to show."""

_RECORDED, _EXPIRED, _SUPERSEDED, _DELETED = range(4)
"""Steps: in this order where the changes of one version fall on one instant."""

_KINDS: dict[int, ChangeKind] = {_EXPIRED: "expired", _SUPERSEDED: "superseded", _DELETED: "deleted"}

# A version that its own memory's next one superseded is the "before" of that one's change, and no change itself.
# Deleting sets superseded_at and names no successor; of the versions it marks, only the last had none before.
# A version expires that was current until then; what had expired is not updated any more, only deleted.
_STEPS = f"""
  SELECT m.arrival, m.id, c.step, m.version, m.slot, m.team_id,
         CASE c.step WHEN {_RECORDED} THEN m.recorded_at WHEN {_EXPIRED} THEN m.expires_at ELSE m.superseded_at END AS at
    FROM memory_versions m CROSS JOIN (SELECT column1 AS step FROM (VALUES (0), (1), (2), (3))) c
   WHERE m.slot BETWEEN ? AND ? AND {{predicate}} AND CASE c.step
         WHEN {_RECORDED} THEN 1
         WHEN {_EXPIRED} THEN m.expires_at > m.recorded_at AND m.expires_at <= ?
              AND (m.superseded_at IS NULL OR m.superseded_at >= m.expires_at)
         WHEN {_SUPERSEDED} THEN m.superseded_by <> m.id
         ELSE m.state = 'deleted' AND m.superseded_by IS NULL AND m.superseded_at IS NOT NULL END"""


def statement(
    where: RowFilter, slots: SlotRange, interval: Interval, limit: int, after: ChangeKey | None
) -> tuple[str, list[Any]]:
    """Selects the first changes of one owner's rows, as :data:`Found`.

    The version before is looked up for those that are returned, and must be readable by the same rules.
    """
    predicate, bindings = filter_sql(where, "memories", "m")
    predicate_before, bindings_before = filter_sql(where, "memories", "b")
    until = "" if interval.until is None else " AND at < ?"
    beyond = "" if after is None else " AND (at, arrival, id, step) > (?, ?, ?, ?)"
    text = (
        "SELECT f.at, f.arrival, f.id, f.step, f.version, f.slot,"
        f" (SELECT b.slot FROM memory_versions b WHERE f.step = {_RECORDED} AND b.team_id = f.team_id"
        f" AND b.id = f.id AND b.version = f.version - 1 AND {predicate_before})"
        f" FROM (SELECT * FROM ({_STEPS.format(predicate=predicate)})"
        f" WHERE at >= ?{until}{beyond} ORDER BY at, arrival, id, step LIMIT ?) f"
        " ORDER BY f.at, f.arrival, f.id, f.step"
    )
    ends = [] if interval.until is None else [interval.until]
    return text, [
        *bindings_before, *slots, *bindings, interval.now, interval.since, *ends, *(after or ()), limit,
    ]  # fmt: skip


def key(found: Found) -> ChangeKey:
    """Where the change stands among all."""
    return found[:4]


def kind(step: int, version: int) -> ChangeKind:
    """What a step of that version is called."""
    if step == _RECORDED:
        return "added" if version == 1 else "updated"
    return _KINDS[step]
