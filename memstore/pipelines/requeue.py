"""Work that is to be done anew, because rows that it was done with came or went."""

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

from memstore.agent_settings import AgentSettings
from memstore.pipelines.derived import Held
from memstore.pipelines.profiles import queue_profiles
from memstore.pipelines.scenes import queue_scenes
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import Cursor, Owner, RowName, VerdictRow, job_key
from memstore.storage.rows import MemoryRow, MessageRow

logger = logging.getLogger("memstore")

VERDICTS_AT_ONCE = 1_000
MOST_RUNNING = 10_000
STAGES = ("extract", "scenes", "agent_profile", "user_profile")
"""Kinds of jobs that read rows in order to write others."""


def stop_running(tx: Writer, of: Owner, now: int) -> None:
    """Take the lease away from whoever works for this owner: what it read before must not be applied any more. Its job
    is queued again."""
    for job in tx.jobs("running", None, of, MOST_RUNNING):
        if job.kind in STAGES:
            tx.postpone(job, now, now)


def rebuild(
    tx: Writer, of: Owner, held: Held, now: int, *, unread: Collection[str], back: Collection[str]
) -> None:
    """Let the pipelines write anew what these rows took part in.

    :param unread: messages that are to be read again, though an extraction covered them. :param back: memories that came back.
    """
    work = _Rebuilding(tx, of, held, back, now)
    work.read_again(unread)
    work.forget_situations()
    agents = work.agents()
    for agent_id, session in agents.items():
        work.write_scenes_again(agent_id)
        settings = AgentSettings(**tx.agent_settings(of, agent_id))
        queue_scenes(tx, of, agent_id, session, settings, now)
        tx.set_cursor(of, replace(tx.cursor(of, "agent_profile", agent_id), arrival=0, ran_at=None))
        queue_profiles(tx, of, agent_id, settings, now)
    if agents:
        tx.set_cursor(of, replace(tx.cursor(of, "user_profile", ""), arrival=0, ran_at=None))


def spoken_for(reader: Reader, of: Owner, held: Held, memory_ids: Collection[str]) -> set[str]:
    """Messages that stay and whose facts leave with these memories: those that such a memory was also made from, and
    those whose own proposal it was said to cover."""
    wanted = frozenset(memory_ids)
    found: set[str] = set()
    for name in held.states:
        if name.kind == "memory" and name.id in wanted:
            sources = reader.sources_of(of.team_id, "memory", name.id, name.version)
            found.update(one for kind, one in sources if kind == "message")
    for verdict in _verdicts(reader, of) if wanted else ():
        covered = verdict.action == "skip" and verdict.undone_at is None
        if covered and not wanted.isdisjoint(json.loads(verdict.target_ids)):
            found.update(json.loads(verdict.proposal).get("source_ids", ()))
    return found - held.ids("message")


def _verdicts(reader: Reader, of: Owner) -> Iterator[VerdictRow]:
    before: int | None = None
    while page := reader.verdicts(of, None, None, VERDICTS_AT_ONCE, before):
        yield from (row for _, row in page)
        before = page[-1][0]


class _Rebuilding:
    def __init__(self, tx: Writer, of: Owner, held: Held, back: Collection[str], now: int) -> None:
        self._tx = tx
        self._of = of
        self._held = held
        self._back = frozenset(back)
        self._now = now
        messages = (tx.message(of.team_id, one) for one in sorted(held.ids("message")))
        self._messages = [row for row in messages if row is not None]
        memories = (tx.memory(of.team_id, one) for one in sorted({*held.ids("memory"), *back}))
        self._memories = [row for row in memories if row is not None]
        self._scenes = [row for one in sorted(held.ids("scene")) for row in tx.scene_history(of.team_id, one)]

    def agents(self) -> dict[str, str]:
        """Those whose rows they are, each with a session of its."""
        found: dict[str, str] = {}
        for memory in self._memories:
            agent_id = memory.agent_id or memory.produced_by_agent
            if agent_id is not None:
                found[agent_id] = found.get(agent_id) or memory.session or ""
        for message in self._messages:
            found[message.agent_id] = found.get(message.agent_id) or message.session
        for row in self._scenes:
            found.setdefault(row.agent_id, "")
        return found

    # --- memories ----------------------------------------------------------------------------------------------

    def forget_situations(self) -> None:
        """The situation of a session, as it was last judged, may have been judged by what left."""
        for session in sorted({row.session for row in self._messages}):
            cursor = self._tx.cursor(self._of, "extract", session)
            if cursor.note is not None:
                self._tx.set_cursor(self._of, replace(cursor, note=None))

    def read_again(self, message_ids: Collection[str]) -> None:
        """These, although an extraction covered them; and what came back and was never read."""
        by_session: dict[str, list[str]] = defaultdict(list)
        for message_id in sorted(message_ids):
            row = self._tx.message(self._of.team_id, message_id)
            if row is not None and not self._was_taken_back(row):
                by_session[row.session].append(row.id)
        for session, ids in by_session.items():
            self._tx.read_again(self._of, session, ids)
            self._tx.set_cursor(self._of, replace(self._tx.cursor(self._of, "extract", session), note=None))
        for session in sorted({*by_session, *(row.session for row in self._messages)}):
            self._queue_extraction(session)

    def _queue_extraction(self, session: str) -> None:
        left = self._tx.backlog(self._of, session)
        if left is None or not left.messages:
            return
        of = {"team_id": left.team_id, "user_id": left.user_id, "agent_id": left.agent_id, "session": session}
        self._tx.enqueue("extract", job_key("extract", left.team_id, left.user_id, session), of, self._now)

    def _was_taken_back(self, message: MessageRow) -> bool:
        """Whether somebody gave up a memory made from a message."""
        names = self._tx.derived_from(self._of.team_id, [("message", message.id)])
        held = self._held.ids("memory")
        for memory_id in sorted({name.id for name in names if name.kind == "memory"} - held):
            row = self._tx.memory(self._of.team_id, memory_id)
            if row is not None and row.state in ("deleted", "quarantined"):
                logger.warning(
                    "message %s is not read again, though a memory made from it left: memory %s, made from it too, "
                    "was deleted or put under quarantine by itself, and would come back",
                    message.id,
                    memory_id,
                )
                return True
        return False

    # --- scenes ------------------------------------------------------------------------------------------------

    def write_scenes_again(self, agent_id: str) -> None:
        """Memories that only scenes which left told of are shown to the judge again."""
        placed = {
            one
            for row in self._tx.scenes(self._of, agent_id)
            for kind, one in self._tx.sources_of(self._of.team_id, "scene", row.id, row.version)
            if kind == "memory"
        }
        lost = [row for row in self._told_of(agent_id) if row.state == "live" and row.id not in placed]
        cursor = self._tx.cursor(self._of, "scenes", agent_id)
        if lost:
            arrival = min(cursor.arrival, min(row.arrival for row in lost) - 1)
            self._tx.set_cursor(self._of, replace(cursor, arrival=arrival))
        for session in sorted({row.session for row in [*lost, *self._of_agent(agent_id)] if row.session}):
            covered = self._tx.cursor(self._of, "session_scenes", session)
            self._tx.set_cursor(self._of, Cursor("session_scenes", session, runs=covered.runs))

    def _of_agent(self, agent_id: str) -> list[MemoryRow]:
        return [row for row in self._memories if agent_id in (row.agent_id, row.produced_by_agent)]

    def _told_of(self, agent_id: str) -> list[MemoryRow]:
        """The memories of scenes that left, and those that came back for others."""
        ids = {
            one
            for row in self._scenes
            if row.agent_id == agent_id and RowName("scene", row.id, row.version) in self._held.states
            for kind, one in self._tx.sources_of(self._of.team_id, "scene", row.id, row.version)
            if kind == "memory"
        }
        found = [self._tx.memory(self._of.team_id, one) for one in sorted(ids)]
        returned = [row for row in self._of_agent(agent_id) if row.id in self._back]
        return [*returned, *(row for row in found if row is not None)]
