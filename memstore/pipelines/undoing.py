"""Taking a verdict back: what it made leaves recall, and what it replaced, or kept out, comes in."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from memstore.asking import principal
from memstore.canonical import checksum
from memstore.errors import InvalidInput, NotFound
from memstore.ids import is_id, new_id
from memstore.pipelines.applying import link, queue_after
from memstore.pipelines.chains import settle_chains
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
            _take_back(tx, row, scope.user_id, to_micros(now))
        tx.mark_verdict_undone(row.team_id, row.id, scope.user_id, to_micros(now))
        of = Owner(row.team_id, row.user_id)
        if row.action != "skip":  # a release may have put what came back behind the one that is gone now
            settle_chains(tx, of, json.loads(row.target_ids))
        if row.agent_id is not None:
            settings = pipelines.agent_settings(tx, of, row.agent_id)
            queue_after(tx, of, row.agent_id, row.session, settings, to_micros(now))
        undone = replace(row, undone_at=to_micros(now), undone_by=scope.user_id, memory_id=made)
        return verdict_records(tx, [undone])[0]


def own_verdict(reader: Reader, scope: Scope, verdict_id: str) -> VerdictRow:
    """:raises NotFound: for what is missing, another user's, another agent's or another task's alike."""
    row = reader.verdict(scope.team_id, verdict_id) if is_id(verdict_id) else None
    if row is None or not _is_seen(row, scope) or not principal(reader, scope).is_member:
        raise NotFound(f"no verdict {verdict_id!r:.60} for this asker (memstore verdicts lists them)")
    return row


def _is_seen(row: VerdictRow, scope: Scope) -> bool:
    of_agent = scope.agent_id in (None, row.agent_id)
    of_task = scope.task_id is None or row.task_id in (None, scope.task_id)
    return of_agent and of_task and row.user_id == scope.user_id


def _is_undone(reader: Reader, scope: Scope, verdict_id: str) -> bool:
    row = reader.verdict(scope.team_id, verdict_id)
    return row is not None and row.undone_at is not None


def _take_back(tx: Writer, row: VerdictRow, by: str, now: int) -> None:
    made = _unchanged(tx, row)
    replaced = _replaced(tx, row, made)
    tx.delete_memory(row.team_id, made.id, now, by)
    for target in replaced:
        tx.revive_memory(row.team_id, target.id)


def _replaced(reader: Reader, row: VerdictRow, made: MemoryRow) -> list[MemoryRow]:
    """What comes back; what a person deleted since stays deleted.

    :raises InvalidInput: when something of it is withheld from recall.
    """
    found = []
    for target_id in json.loads(row.target_ids):
        target = reader.memory(row.team_id, target_id)
        if target is None or target.superseded_by != made.id:
            continue
        if target.state == "quarantined":
            raise InvalidInput(
                f"verdict {row.id} cannot be undone: the memory that it replaced ({target.id}) is under quarantine; "
                "release it first"
            )
        if target.state == "superseded":
            sources = reader.sources_of(row.team_id, "memory", target.id, target.version)
            _check_sources(reader, row, [one for kind, one in sources if kind == "message"])
            found.append(target)
    return found


def _check_sources(reader: Reader, row: VerdictRow, message_ids: Sequence[str]) -> None:
    """:raises InvalidInput: when a message is withheld that a memory which would come into recall was made from."""
    quarantined = frozenset(reader.quarantined_messages(row.team_id, message_ids))
    for one in message_ids:
        message = reader.message(row.team_id, one)
        why = ""
        if message is None or message.state == "deleted" or message.hidden:
            why = "was deleted since, by itself or with its session; add by hand what is still to be known"
        elif one in quarantined:
            why = "is under quarantine; release it first"
        if why:
            raise InvalidInput(
                f"verdict {row.id} cannot be undone: message {one}, from which a memory would come into recall, {why}"
            )


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
    _check_sources(tx, row, proposal["source_ids"])
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
