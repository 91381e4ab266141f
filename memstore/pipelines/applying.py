"""Carrying out the plan of one extraction, in one transaction: memories, what they replace, where they come from, what was
decided, and how far the session is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from memstore.agent_settings import AgentSettings
from memstore.errors import StoreUnsound
from memstore.pipelines.checking import Checked, encodable
from memstore.pipelines.comparing import Neighbourhood
from memstore.pipelines.profiles import queue_profiles
from memstore.pipelines.scenes import queue_scenes
from memstore.pipelines.settling import Settled
from memstore.pipelines.values import Extraction, Judgement, Said, Verdict, Window
from memstore.pipelines.work import as_json
from memstore.storage.base import Writer
from memstore.storage.pipeline_rows import Cursor, Owner, RunRow, SourceLink, VerdictRow, sealed
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.text import IndexTokens, Tokenizer


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one window came to, ready to be applied.

    :param compared: the comparison that decided; None where nothing was asked.
    """

    window: Window
    covered: tuple[MessageRow, ...]
    extraction: Judgement[Extraction]
    refused: tuple[str, ...]
    near: Neighbourhood
    compared: Judgement[Sequence[Verdict]] | None
    settled: tuple[Settled, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """What was written: verdicts with the run that each was decided in."""

    messages: int
    scene: str
    decided_by: str
    refused: tuple[str, ...]
    verdicts: tuple[tuple[VerdictRow, RunRow], ...]


@dataclass(frozen=True, slots=True)
class Applying:
    """One transaction's work."""

    tx: Writer
    outcome: Outcome
    settings: AgentSettings
    tokenizer: Tokenizer
    cut: dict[str, IndexTokens]
    make_id: Callable[[], str]
    now: int

    @property
    def of(self) -> Owner:
        return Owner(self.outcome.window.scope.team_id, self.outcome.window.scope.user_id)

    def apply(self, cursor: Cursor) -> Applied:
        """Write it all; ``cursor`` is the one that was read."""
        outcome, window = self.outcome, self.outcome.window
        extracted = self._extract_run()
        compared = self._verdict_run()
        self.tx.put_run(extracted)
        if compared is not None:
            self.tx.put_run(compared)
        verdicts = []
        made: set[str] = set()
        for place, planned in enumerate(outcome.settled):
            settled = self._still_right(planned, made)
            verdict = self._verdict(place, settled, extracted, compared)
            if settled.row is not None:
                made.add(settled.row.id)
                keep(self.tx, settled, verdict.id, self._tokens(settled.row.content), self.now)
            self.tx.put_verdict(verdict)
            verdicts.append((verdict, compared or extracted))
        moved = covering(cursor, outcome.covered)
        self.tx.cover(
            self.of,
            replace(moved, runs=cursor.runs + 1, ran_at=self.now, note=outcome.extraction.value.scene),
            [row.pos for row in outcome.covered],
        )
        if made:
            queue_after(self.tx, self.of, _agent(window), window.session, self.settings, self.now)
        scene, by = outcome.extraction.value.scene, outcome.extraction.by
        return Applied(len(outcome.covered), scene, by, outcome.refused, tuple(verdicts))

    def _still_right(self, settled: Settled, made: set[str]) -> Settled:
        """The plan for an item, unless somebody changed what it rests on since it was read."""
        for target in settled.targets:
            if target.id in made:
                continue
            held = self.tx.memory(target.team_id, target.id)
            if held is None or held.state != "live" or held.version != target.version:
                return settled.stored(
                    f"to {settled.action}, but memory {target.id} was changed while it was decided"
                )
        return settled

    def _tokens(self, content: str) -> IndexTokens:
        return self.tokenizer.renewed(self.cut.get(content), content)

    # --- what was decided ------------------------------------------------------------------------------------

    def _extract_run(self) -> RunRow:
        outcome, found = self.outcome, self.outcome.extraction
        inputs = {
            "messages": [message.id for message in outcome.window.new],
            "background": [message.id for message in outcome.window.background],
            "scene": outcome.window.scene,
            "language": outcome.window.language,
        }
        result = {
            "scene": found.value.scene,
            "scene_changed": found.value.scene_changed,
            "memories": [_proposed(settled.item) for settled in outcome.settled],
            "refused": list(outcome.refused),
        }
        return self._run("extract", inputs, result, found)

    def _verdict_run(self) -> RunRow | None:
        outcome = self.outcome
        if outcome.compared is None:
            return None
        inputs = {
            "items": [
                {"content": settled.item.proposal.content, "neighbours": [row.id for row in rows]}
                for settled, rows in zip(outcome.settled, outcome.near.rows, strict=True)
            ]
        }
        result = {"verdicts": [asdict(verdict) for verdict in outcome.compared.value]}
        return self._run("verdict", inputs, result, outcome.compared)

    def _run(self, stage: Any, inputs: Any, result: Any, judgement: Judgement[Any]) -> RunRow:
        window = self.outcome.window
        return sealed(
            RunRow(
                team_id=self.of.team_id,
                id=self.make_id(),
                user_id=self.of.user_id,
                agent_id=window.scope.agent_id,
                stage=stage,
                subject=window.session,
                inputs=_kept_json(inputs),
                result=_kept_json(result),
                decided_by=judgement.by,
                finished_at=self.now,
                prompt=judgement.prompt,
                reply=None if judgement.reply is None else encodable(judgement.reply),
                input_tokens=judgement.usage.input_tokens,
                output_tokens=judgement.usage.output_tokens,
            )
        )

    def _verdict(
        self, place: int, settled: Settled, extracted: RunRow, compared: RunRow | None
    ) -> VerdictRow:
        window = self.outcome.window
        plain = settled.plain
        proposal = {
            **_proposed(settled.item),
            "metadata": plain.metadata,
            "valid_from": plain.valid_from,
            "source_kind": plain.source_kind,
            "trust": plain.trust,
            "actor": plain.actor,
        }
        candidates = [{"id": row.id, "content": row.content} for row in self.outcome.near.rows[place]]
        return sealed(
            VerdictRow(
                team_id=self.of.team_id,
                id=self.make_id(),
                user_id=self.of.user_id,
                agent_id=window.scope.agent_id,
                task_id=window.scope.task_id,
                session=window.session,
                run_id=extracted.id,
                item=place,
                action=settled.action,
                proposal=as_json(proposal),
                candidates=as_json(candidates),
                target_ids=as_json([row.id for row in settled.targets]),
                reason=settled.reason,
                decided_by=(compared or extracted).decided_by,
                decided_at=self.now,
                verdict_run_id=None if compared is None else compared.id,
                memory_id=None if settled.row is None else settled.row.id,
            )
        )


def keep(tx: Writer, settled: Settled, verdict_id: str, tokens: IndexTokens, now: int) -> None:
    """Store what came of an item, with its sources, and take what it replaces out of recall."""
    if settled.row is None:
        return
    row = tx.insert_memory(replace(settled.row, verdict_id=verdict_id), tokens)
    begin = row.valid_from if row.valid_from is not None else now
    inherited: list[tuple[Any, str]] = []
    for target in settled.targets:
        tx.supersede_memory(target.team_id, target.id, row.id, begin, now)
        if settled.inherits:
            inherited.append(("memory", target.id))
            inherited += tx.sources_of(target.team_id, "memory", target.id, target.version)
    link(tx, row, [*(("message", source.id) for source in settled.item.sources), *inherited])


def link(tx: Writer, row: MemoryRow, sources: Iterable[tuple[Any, str]]) -> None:
    """Say what a memory was made from.

    :raises StoreUnsound: where it is from nothing: such a memory could neither be explained nor withdrawn.
    """
    links = [SourceLink("memory", row.id, row.version, kind, source) for kind, source in sources]
    if not links:
        raise StoreUnsound(
            f"a memory without sources was to be stored ({row.id}): this is a fault of memstore"
        )
    tx.add_sources(row.team_id, links)


def queue_after(
    tx: Writer, of: Owner, agent_id: str, session: str, settings: AgentSettings, now: int
) -> None:
    """Queue what follows from changed memories: their vectors, scenes and profiles."""
    owner = {"team_id": of.team_id, "user_id": of.user_id}
    tx.enqueue("index", f"index:{of.team_id}:{of.user_id}", owner, now)
    queue_scenes(tx, of, agent_id, session, settings, now)
    queue_profiles(tx, of, agent_id, settings, now)


def covering(cursor: Cursor, covered: Sequence[MessageRow]) -> Cursor:
    """The cursor behind the last message that was covered."""
    if not covered:
        return cursor
    return replace(
        cursor,
        pos=max(cursor.pos, *(row.pos for row in covered)),
        arrival=max(cursor.arrival, *(row.arrival for row in covered)),
    )


def _agent(window: Window) -> str:
    if window.scope.agent_id is None:
        raise StoreUnsound(f"session {window.session!r:.60} belongs to no agent: this is a fault of memstore")
    return window.scope.agent_id


def _proposed(item: Checked) -> dict[str, Any]:
    proposal = item.proposal
    return {
        "content": proposal.content,
        "kind": proposal.kind,
        "priority": proposal.priority,
        "source_ids": [source.id for source in item.sources],
        "sources": [_provenance(source) for source in item.sources],
        "time_start": _moment(proposal.time_start),
        "time_end": _moment(proposal.time_end),
    }


def _provenance(source: Said) -> dict[str, Any]:
    return {"id": source.id, "role": source.role, "name": source.name, "source_kind": source.source_kind}


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _kept_json(value: Any) -> str:
    return encodable(as_json(value))
