"""Memories that replaced one another: which of them is current while some are under quarantine or were taken back.

Verdicts say what replaced what. Of memories that hang together by them the newest is live, and the others are superseded.
One under quarantine counts only as the link between what it had replaced and what replaced it; one that its owner deleted
is still the end of what it had replaced, and one whose verdict was undone is nothing.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import Owner
from memstore.storage.rows import MemoryRow

_AWAY = "quarantined"


@dataclass(slots=True)
class _Chain:
    """Memories that hang together, with the order in which they were made. ``replaced``: by what, as the verdicts say."""

    rows: dict[str, MemoryRow] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, list[str]] = field(default_factory=dict)

    def settle(self) -> dict[str, str | None]:
        """Of each memory what it is to be superseded by; None: it is to be live."""
        ends = [one for one in self.rows if self.rows[one].state != _AWAY]
        end = max(ends, key=self.made.__getitem__)
        return {one: self._heir(one, end) for one in self.rows if self.rows[one].state != "deleted"}

    def _heir(self, one: str, end: str) -> str | None:
        if one == end:
            return None
        by = [heir for heir in self.replaced[one] if heir in self.rows]
        if by:
            return min(by, key=self.made.__getitem__)
        held = self.rows[one].superseded_by
        return held if held in self.rows else end


def settle_chains(
    tx: Writer,
    of: Owner,
    memory_ids: Iterable[str],
    ended: Mapping[tuple[str, str], int] | None = None,
) -> list[MemoryRow]:
    """Leave one live memory of each chain that these belong to; returns those that became live, as they were.

    :param ended: when a memory (its id first) was replaced by another, where that is known better than by the other's time.
    """
    revived = []
    for chain in _chains(tx, of, memory_ids):
        for one, heir in sorted(chain.settle().items()):
            row = chain.rows[one]
            if heir is None:
                if row.state != "live":
                    revived.append(row)
                if row.state != "live" or row.superseded_by is not None:
                    tx.revive_memory(row.team_id, row.id)
            elif row.state == "live" or row.superseded_by != heir:
                by = chain.rows[heir]
                tx.revive_memory(row.team_id, row.id)
                begin = by.valid_from if by.valid_from is not None else by.recorded_at
                tx.supersede_memory(
                    row.team_id, one, heir, begin, (ended or {}).get((one, heir), by.recorded_at)
                )
                if row.state == _AWAY:  # the link alone
                    tx.set_memory_state(row.team_id, one, row.version, _AWAY)
    return revived


def _chains(reader: Reader, of: Owner, memory_ids: Iterable[str]) -> list[_Chain]:
    every, heirs = _joined(reader, of, memory_ids)
    kept = _linking(every, heirs)
    beside: dict[str, set[str]] = {one: heirs[one] & kept for one in kept}
    for one in kept:
        for heir in heirs[one] & kept:
            beside[heir].add(one)
    chains = []
    waiting = set(kept)
    while waiting:
        chain = _Chain(replaced=every.replaced)
        ids = _hanging_together(min(waiting), beside)
        waiting -= ids
        for one in ids:
            chain.rows[one], chain.made[one] = every.rows[one], every.made[one]
        chains.append(chain)
    return chains


def _joined(reader: Reader, of: Owner, memory_ids: Iterable[str]) -> tuple[_Chain, dict[str, set[str]]]:
    """All that verdicts and rows join to these; also of each what took its place."""
    found, targets = _Chain(), dict[str, list[str]]()
    waiting = sorted(memory_ids)
    while waiting:
        one = waiting.pop()
        versions = reader.memory_history(of.team_id, one) if one not in found.rows else []
        if not versions or versions[-1].user_id != of.user_id:
            continue
        found.rows[one], found.made[one] = versions[-1], versions[0].arrival
        targets[one] = _targets(reader, of, one)
        heir = versions[-1].superseded_by
        waiting += targets[one] if heir is None else [*targets[one], heir]
    found.replaced = {one: [] for one in found.rows}
    heirs: dict[str, set[str]] = {one: set() for one in found.rows}
    for one, row in found.rows.items():
        for target in targets[one] if row.state != "deleted" else ():
            # one that a person changed since is not what was replaced
            if target in found.rows and found.rows[target].arrival < found.made[one]:
                found.replaced[target].append(one)
                heirs[target].add(one)
        by = found.rows.get(row.superseded_by or "")
        if by is not None and (by.state != "deleted" or targets[by.id]):
            heirs[one].add(by.id)
    return found, heirs


def _targets(reader: Reader, of: Owner, memory_id: str) -> list[str]:
    """What a memory replaced, unless that was undone."""
    return [
        target
        for verdict in reader.verdicts_of_memory(of.team_id, memory_id)
        if verdict.memory_id == memory_id and verdict.action in ("update", "merge")
        for target in json.loads(verdict.target_ids)
    ]


def _linking(every: _Chain, heirs: Mapping[str, Collection[str]]) -> set[str]:
    """Without those under quarantine that nothing took the place of."""
    kept = set(every.rows)
    while True:
        ends = {one for one in kept if every.rows[one].state == _AWAY and not kept.intersection(heirs[one])}
        if not ends:
            return kept
        kept -= ends


def _hanging_together(first: str, beside: Mapping[str, Collection[str]]) -> set[str]:
    found, waiting = set[str](), [first]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += beside[one]
    return found
