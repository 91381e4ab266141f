"""Taking a verdict back: what it made leaves recall, and what it replaced, or kept out, comes in."""

import json
from dataclasses import replace
from datetime import datetime

from memstore.asking import principal
from memstore.canonical import checksum
from memstore.errors import InvalidInput, NotFound
from memstore.ids import is_id, new_id
from memstore.pipelines.applying import link, queue_after
from memstore.pipelines.records import verdict_records
from memstore.pipelines.work import Pipelines
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import Owner, VerdictRow
from memstore.storage.rows import MemoryRow
from memstore.times import from_micros, render, to_micros
from memstore.types import Scope, VerdictRecord


def undo_verdict(pipelines: Pipelines, scope: Scope, verdict_id: str) -> VerdictRecord:
    """See :meth:`memstore.store.MemoryStore.undo`."""
    now = pipelines.clock.now()
    with pipelines.storage.write(stands=lambda reader: _is_undone(reader, scope, verdict_id)) as tx:
        row = own_verdict(tx, scope, verdict_id)
        if row.undone_at is not None:
            when = render(from_micros(row.undone_at))
            raise InvalidInput(f"verdict {row.id} was undone already, at {when} by {row.undone_by}")
        made = row.memory_id
        if row.action == "skip":
            made = _store_after_all(tx, pipelines, row, now)
        else:
            _take_back(tx, pipelines, row, scope.user_id, to_micros(now))
        tx.mark_verdict_undone(row.team_id, row.id, scope.user_id, to_micros(now))
        of = Owner(row.team_id, row.user_id)
        if row.agent_id is not None:
            settings = pipelines.agent_settings(tx, of, row.agent_id)
            queue_after(tx, of, row.agent_id, row.session, settings, to_micros(now))
        undone = replace(row, undone_at=to_micros(now), undone_by=scope.user_id, memory_id=made)
        return verdict_records(tx, [undone])[0]


def own_verdict(reader: Reader, scope: Scope, verdict_id: str) -> VerdictRow:
    """:raises NotFound: for what is missing, another user's or another agent's alike."""
    row = reader.verdict(scope.team_id, verdict_id) if is_id(verdict_id) else None
    of_agent = row is not None and scope.agent_id in (None, row.agent_id)
    if row is None or not of_agent or row.user_id != scope.user_id or not principal(reader, scope).is_member:
        raise NotFound(f"no verdict {verdict_id!r:.60} for this asker (memstore verdicts lists them)")
    return row


def _is_undone(reader: Reader, scope: Scope, verdict_id: str) -> bool:
    row = reader.verdict(scope.team_id, verdict_id)
    return row is not None and row.undone_at is not None


def _take_back(tx: Writer, pipelines: Pipelines, row: VerdictRow, by: str, now: int) -> None:
    made = _unchanged(tx, row)
    tx.delete_memory(row.team_id, made.id, now, by)
    tokenizer = pipelines.tokenizers.of(tx, row.team_id)
    for target_id in json.loads(row.target_ids):
        target = tx.memory(row.team_id, target_id)
        # one that a person deleted since stays deleted
        if target is not None and target.state == "superseded" and target.superseded_by == made.id:
            tx.revive_memory(row.team_id, target.id, tokenizer.index(target.content))


def _unchanged(tx: Writer, row: VerdictRow) -> MemoryRow:
    """The memory that a verdict made, as it made it.

    :raises InvalidInput: naming what became of it since.
    """
    made = tx.memory(row.team_id, row.memory_id or "")
    if made is None or made.state == "deleted":
        raise InvalidInput(
            f"verdict {row.id} cannot be undone: the memory it made ({row.memory_id}) was deleted since"
        )
    if made.version > 1:
        raise InvalidInput(
            f"verdict {row.id} cannot be undone: the memory it made ({made.id}) was changed since, to version "
            f"{made.version} by {made.actor!r}; delete it, or update it by hand"
        )
    if made.state == "superseded":
        heir = tx.memory(row.team_id, made.superseded_by or "")
        by = (
            f"verdict {heir.verdict_id}"
            if heir is not None and heir.verdict_id
            else f"memory {made.superseded_by}"
        )
        raise InvalidInput(
            f"verdict {row.id} cannot be undone: the memory it made ({made.id}) was replaced since by {by}; "
            "undo that first"
        )
    if made.state == "quarantined":
        raise InvalidInput(
            f"verdict {row.id} cannot be undone: the memory it made ({made.id}) is under quarantine; release it first"
        )
    return made


def _store_after_all(tx: Writer, pipelines: Pipelines, row: VerdictRow, now: datetime) -> str:
    """The proposal of a ``skip`` as a memory of its own."""
    proposal = json.loads(row.proposal)
    persona = proposal["kind"] == "persona"
    made = MemoryRow(
        id=new_id(now),
        version=1,
        team_id=row.team_id,
        user_id=row.user_id,
        kind=proposal["kind"],
        priority=proposal["priority"],
        content=proposal["content"],
        checksum=checksum(proposal["kind"], proposal["content"]),
        source_kind=proposal["source_kind"],
        trust=proposal["trust"],
        recorded_at=to_micros(now),
        actor=proposal["actor"],
        created_at=to_micros(now),
        agent_id=None if persona else row.agent_id,
        task_id=None if persona else row.task_id,
        metadata=proposal["metadata"],
        session=row.session,
        produced_by_agent=row.agent_id,
        valid_from=proposal["valid_from"],
        verdict_id=row.id,
    )
    made = tx.insert_memory(made, pipelines.tokenizers.of(tx, row.team_id).index(made.content))
    link(tx, made, [("message", source) for source in proposal["source_ids"]])
    return made.id
