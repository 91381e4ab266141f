"""Quarantine: what came from a source leaves recall, with all that was derived from it, in one transaction (SPEC W11).

The rows that meet the criteria are the *roots*. What was derived from them, over any number of steps, leaves with them:
whole memories (a later version of one builds on the earlier), and of scenes and profiles the versions from the first
derived one on, up to one that a person wrote. What a quarantined memory had replaced, and the newest version of a scene
or profile that is free of it, come back; the pipelines write the rest anew. Scenes that were written meanwhile keep their
places: of those that are released no more are live again than the agent may have, and their memories are told anew.

Each quarantine keeps which rows it holds, what they were before, and which memories came back for it. A row that two
quarantines hold comes back when both let go.
"""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from memstore.access import holds, narrowed
from memstore.agent_settings import AgentSettings
from memstore.asking import Instant, principal, row_facts
from memstore.canonical import canonical_json, check_encodable
from memstore.clock import Clock
from memstore.errors import InvalidInput, NotFound, NotPermitted
from memstore.fallback import Operation
from memstore.ids import new_id
from memstore.journal import Journal
from memstore.operations import quarantine_operations
from memstore.pipelines.chains import settle_chains
from memstore.pipelines.derived import Held, Root, derived_rows, name_of, profile_histories
from memstore.pipelines.requeue import rebuild, spoken_for, stop_running
from memstore.session_key import parse_session_key
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import (
    Owner,
    ProfileRow,
    QuarantineRow,
    RowName,
    SceneRow,
)
from memstore.times import to_micros
from memstore.types import Scope

logger = logging.getLogger("memstore")


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which rows are meant: those that meet all of it. Times are those of recording, in microseconds."""

    ids: tuple[str, ...] | None = None
    session: str | None = None
    author: str | None = None
    since: int | None = None
    until: int | None = None

    def as_values(self) -> dict[str, Any]:
        values = {
            "ids": None if self.ids is None else list(self.ids),
            "session": self.session,
            "author": self.author,
            "since": self.since,
            "until": self.until,
        }
        return {name: value for name, value in values.items() if value is not None}

    def roots(self, reader: Reader, scope: Scope) -> set[Root]:
        """The asker's own rows that meet it, within the agent and task of the scope."""
        of = Owner(scope.team_id, scope.user_id)
        values = self.as_values()
        found: set[Root] = {("message", one) for one in reader.messages_matching(of, **values)}
        found |= {("memory", one) for one in reader.memories_matching(of, **values)}
        if scope.agent_id is None and scope.task_id is None:
            return found
        within = narrowed(scope)
        return {root for root in found if holds(within, _facts(reader, scope.team_id, root))}


def _facts(reader: Reader, team_id: str, root: Root) -> dict[str, Any]:
    kind, row_id = root
    row = reader.message(team_id, row_id) if kind == "message" else reader.memory(team_id, row_id)
    assert row is not None  # noqa: S101 - it was found in this transaction
    return row_facts(row)


def criteria_of(
    scope: Scope,
    instant: Instant,
    *,
    source: str | Sequence[str] | None,
    session: str | None,
    author: str | None,
    since: object,
    until: object,
) -> Criteria:
    """:raises InvalidInput: without any criterion, or for one that cannot be one."""
    if all(value is None for value in (source, session, author, since, until)):
        raise InvalidInput("say what is meant: by source, session, author, since or until")
    ids = None if source is None else _ids(source)
    if author is not None:
        if not isinstance(author, str) or not author.strip():
            raise InvalidInput(f"author is a speaker's name or a user's id, not {author!r:.60}")
        check_encodable(author, "author")
    key = None if session is None else str(parse_session_key(session, scope.agent_id))
    return Criteria(ids, key, author, instant(since), instant(until))


def _ids(source: object) -> tuple[str, ...]:
    listed = [source] if isinstance(source, str) else source
    if not isinstance(listed, Iterable) or isinstance(listed, bytes):
        listed = []
    ids = list(listed)
    if not ids or not all(isinstance(one, str) and one for one in ids):
        raise InvalidInput("source is the id of a message or memory, or a list of ids that is not empty")
    for one in ids:
        check_encodable(one, "source")
    return tuple(dict.fromkeys(ids))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A quarantine as it was read. ``memories``: those that met the criteria themselves; ``revived``: memories that
    came back because what had replaced them left, with what they were."""

    row: QuarantineRow
    rows: dict[RowName, str]
    memories: frozenset[str]
    revived: tuple[dict[str, Any], ...]
    criteria: dict[str, Any]

    @property
    def roots(self) -> set[Root]:
        found: set[Root] = {("message", name.id) for name in self.rows if name.kind == "message"}
        return found | {("memory", one) for one in self.memories}


def _read(reader: Reader, of: Owner) -> list[_Kept]:
    kept = []
    for row in reader.quarantines(of):
        values = json.loads(row.criteria)
        rows = dict(reader.quarantined(of.team_id, row.id))
        memories = frozenset(values.pop("memories", ()))
        revived = tuple(values.pop("revived", ()))
        kept.append(_Kept(row, rows, memories, revived, values))
    return kept


def _asked(scope: Scope, criteria: Criteria) -> dict[str, Any]:
    """What a quarantine was asked for: the criteria, and the agent and task within which."""
    within = {"agent": scope.agent_id, "task": scope.task_id}
    return criteria.as_values() | {name: value for name, value in within.items() if value is not None}


def _written(criteria: dict[str, Any], memories: Iterable[str], revived: Sequence[dict[str, Any]]) -> str:
    values = {**criteria, "memories": sorted(memories), "revived": list(revived)}
    return canonical_json({name: value for name, value in values.items() if value})


class Quarantine:
    """Puts an asker's own rows under quarantine, and releases them."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    def put(self, scope: Scope, criteria: Criteria) -> int:
        """See :meth:`memstore.store.MemoryStore.quarantine`."""
        return self._journal.change(partial(self._put, scope, criteria))

    def release(self, scope: Scope, criteria: Criteria) -> int:
        """See :meth:`memstore.store.MemoryStore.release`."""
        return self._journal.change(partial(self._release, scope, criteria))

    def take_up(self, tx: Writer, operation: Operation) -> None:
        """Carry out a line of the fallback whose transaction did not commit: the whole of it, as it was asked for."""
        team_id, user_id = operation["team_id"], operation["user_id"]
        change = _Change(tx, Scope(team_id, user_id), operation["at"])
        there = {"message": operation["ids"], "memory": operation["memories"]}
        criteria = [("message", tx.messages_matching), ("memory", tx.memories_matching)]
        roots: set[Root] = {
            (kind, one)  # type: ignore[misc] # a literal, though in a list
            for kind, matching in criteria
            for one in matching(change.of, ids=there[kind])
        }
        lines: list[Operation] = []  # it stands there already
        if operation["released"]:
            self._let_go(change, roots, operation["asked"], lines)
        elif roots:
            self._hold(change, roots, operation["asked"], lines)

    def _put(self, scope: Scope, criteria: Criteria, tx: Writer, lines: list[Operation]) -> int:
        roots = self._roots(tx, scope, criteria)
        if not roots:
            return 0
        change = _Change(tx, scope, to_micros(self._clock.now()))
        return self._hold(change, roots, _asked(scope, criteria), lines)

    def _hold(
        self, change: "_Change", roots: set[Root], asked: dict[str, Any], lines: list[Operation]
    ) -> int:
        tx = change.tx
        held = derived_rows(tx, change.of, roots)
        known = {name: prior for kept in _read(tx, change.of) for name, prior in kept.rows.items()}
        leaving = {name: state for name, state in held.states.items() if state != "quarantined"}
        before = {name: leaving.get(name) or known.get(name, "live") for name in held.states}
        change.leave(held, leaving)
        lines += change.told(leaving, roots, asked, released=False)
        revived = change.revive_replaced(held)
        memories = {row_id for kind, row_id in roots if kind == "memory"}
        written = _written(asked, memories, revived)
        of = change.of
        row = QuarantineRow(
            of.team_id, new_id(self._clock.now()), of.user_id, written, of.user_id, change.now
        )
        tx.put_quarantine(row, list(before.items()))
        lost = spoken_for(tx, of, held, held.ids("memory") - memories)
        change.work_anew(held, unread=lost, back={one["id"] for one in revived})
        return len(leaving)

    def _release(self, scope: Scope, criteria: Criteria, tx: Writer, lines: list[Operation]) -> int:
        change = _Change(tx, scope, to_micros(self._clock.now()))
        asked = _asked(scope, criteria)
        known = any(kept.criteria == asked for kept in _read(tx, change.of))
        return self._let_go(change, self._roots(tx, scope, criteria, known=known), asked, lines)

    def _let_go(
        self, change: "_Change", roots: set[Root], asked: dict[str, Any], lines: list[Operation]
    ) -> int:
        freed: dict[RowName, str] = {}
        staying: set[RowName] = set()
        revived: list[dict[str, Any]] = []
        for kept in _read(change.tx, change.of):
            left = set() if kept.criteria == asked else kept.roots - roots
            if left and left == kept.roots:
                staying |= kept.rows.keys()
                continue
            rest = self._rest(change, kept, left)
            staying |= rest.keys()
            freed |= {name: prior for name, prior in kept.rows.items() if name not in rest}
            revived += kept.revived
        messages = [row_id for kind, row_id in roots if kind == "message"]
        # A store that was recovered from its fallback knows no more of it than the messages themselves.
        for one in change.tx.quarantined_messages(change.of.team_id, messages):
            freed.setdefault(RowName("message", one, 1), "live")
        freed = {name: prior for name, prior in freed.items() if name not in staying}
        returned = change.come_back(freed, revived)
        lines += change.told(returned, roots, asked, released=True)
        if returned:
            held = Held(dict.fromkeys(returned, "live"))
            change.work_anew(held, unread=(), back=held.ids("memory"))
        return len(returned)

    def _rest(self, change: "_Change", kept: _Kept, left: set[Root]) -> dict[RowName, str]:
        """End a quarantine; what other roots of it hold goes on as one of its own."""
        tx, of = change.tx, change.of
        tx.release_quarantine(of.team_id, kept.row.id, change.now)
        if not left:
            return {}
        still = derived_rows(tx, of, left).states
        rest = {name: prior for name, prior in kept.rows.items() if name in still}
        ids = {name.id for name in rest}
        revived = [one for one in kept.revived if one["by"] in ids]
        memories = [one for one in kept.memories if ("memory", one) in left]
        row = replace(
            kept.row,
            id=new_id(self._clock.now()),
            criteria=_written(kept.criteria, memories, revived),
        )
        tx.put_quarantine(row, list(rest.items()))
        return rest

    @staticmethod
    def _roots(tx: Writer, scope: Scope, criteria: Criteria, *, known: bool = False) -> set[Root]:
        """:param known: a quarantine asked for exactly this; what it named may have been deleted since.

        :raises NotFound: when a source is not there for this asker.
        """
        if not principal(tx, scope).is_member:
            raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
        if criteria.ids is not None and not known:
            there = {row_id for _, row_id in Criteria(criteria.ids).roots(tx, scope)}
            missing = next((one for one in criteria.ids if one not in there), None)
            if missing is not None:
                raise NotFound(f"no memory or message {missing!r:.60} of this asker's own")
        return criteria.roots(tx, scope)


def _superseded(freed: dict[RowName, str]) -> dict[RowName, str]:
    return {name: "superseded" if prior == "live" else prior for name, prior in freed.items()}


@dataclass(slots=True)
class _Change:
    """Rows on their way out of recall or back, in one transaction."""

    tx: Writer
    scope: Scope
    now: int

    @property
    def of(self) -> Owner:
        return Owner(self.scope.team_id, self.scope.user_id)

    # --- out of recall -----------------------------------------------------------------------------------------

    def leave(self, held: Held, leaving: dict[RowName, str]) -> None:
        self._set_messages([name.id for name in leaving if name.kind == "message"], self.now)
        for name in leaving:
            if name.kind == "memory":
                self.tx.set_memory_state(self.of.team_id, name.id, name.version, "quarantined")
        for scenes in held.scenes:
            self._leave_versions(scenes, leaving)
        for profiles in held.profiles:
            self._leave_versions(profiles, leaving)

    def _set_messages(self, ids: list[str], at: int | None) -> None:
        if ids:
            self.tx.set_messages_quarantined(self.of.team_id, ids, at)

    def told(
        self, names: Iterable[RowName], roots: set[Root], asked: dict[str, Any], *, released: bool
    ) -> Iterator[Operation]:
        """What the fallback is told, which keeps messages alone: lines only where some of them went or came."""
        messages = [name.id for name in names if name.kind == "message"]
        memories = sorted(row_id for kind, row_id in roots if kind == "memory")
        return quarantine_operations(
            self.of.team_id,
            self.of.user_id,
            messages,
            self.now,
            released=released,
            memories=memories,
            asked=asked,
        )

    def _leave_versions(
        self, versions: Sequence[SceneRow] | Sequence[ProfileRow], leaving: dict[RowName, str]
    ) -> None:
        """Of one scene or profile; where the live version leaves, the newest that stays is live again."""
        for row in versions:
            if name_of(row) in leaving:
                ended = row.superseded_at if row.superseded_at is not None else self.now
                self._set_state(row, "quarantined", ended)
        if any(leaving.get(name_of(row)) == "live" for row in versions):
            clean = [row for row in versions if row.state == "superseded" and name_of(row) not in leaving]
            if clean:
                self._set_state(clean[-1], "live", None)

    def _set_state(self, row: SceneRow | ProfileRow, state: str, at: int | None) -> None:
        if isinstance(row, SceneRow):
            self.tx.set_scene_state(row.team_id, row.id, row.version, state, at)
        else:
            self.tx.set_profile_state(row.team_id, row.id, state, at)

    def revive_replaced(self, held: Held) -> list[dict[str, Any]]:
        """Bring back what a memory that left had replaced, unless another that stays replaced that in turn."""
        revived = settle_chains(self.tx, self.of, held.ids("memory"))
        return [
            {"id": row.id, "version": row.version, "by": row.superseded_by, "at": row.superseded_at}
            for row in revived
        ]

    # --- back into recall --------------------------------------------------------------------------------------

    def come_back(self, freed: dict[RowName, str], revived: Sequence[dict[str, Any]]) -> list[RowName]:
        """Each row as it was; returns those that are."""
        returned = [name for name, prior in freed.items() if self._returns(name, prior)]
        self._set_messages([name.id for name in returned if name.kind == "message"], None)
        back = {name.id for name in returned if name.kind == "memory"}
        self._replace_again(back, revived)
        for scene_id in sorted({name.id for name in returned if name.kind == "scene"}):
            versions = self.tx.scene_history(self.of.team_id, scene_id)
            self._one_live(versions, freed if self._has_room(versions, freed) else _superseded(freed))
        profiles = {name.id for name in returned if name.kind == "profile"}
        for history in profile_histories(self.tx, self.of) if profiles else ():
            self._one_live(history, freed)
        return returned

    def _returns(self, name: RowName, prior: str) -> bool:
        """Put a row back where it stands as the quarantine left it."""
        tx, team_id = self.tx, self.of.team_id
        if name.kind == "message":
            row = tx.message(team_id, name.id)
            standing = row is not None and row.state == "live"
        elif name.kind == "memory":
            versions = tx.memory_history(team_id, name.id)
            standing = any(row.version == name.version and row.state == "quarantined" for row in versions)
            if standing and prior == "live" and versions[-1].version != name.version:
                prior = "superseded"  # a later version was written meanwhile
            if standing:
                tx.set_memory_state(team_id, name.id, name.version, prior)
        else:  # put back with its other versions, of which one at most is live
            standing = True
        if not standing:
            logger.warning(
                "%s %s was changed since it was put under quarantine; it is left", name.kind, name.id
            )
        return standing

    def _replace_again(self, back: set[str], revived: Sequence[dict[str, Any]]) -> None:
        """What had come back while the memory that replaced it was away; and what took the place of that one meanwhile
        takes it again."""
        for one in revived:
            row = self.tx.memory(self.of.team_id, one["id"])
            if one["by"] in back and (row is None or row.version != one["version"] or row.state == "deleted"):
                logger.warning(
                    "memory %s was changed since %s was put under quarantine; it is left",
                    one["id"],
                    one["by"],
                )
        ended = {(one["id"], one["by"]): one["at"] for one in revived if one["at"] is not None}
        settle_chains(self.tx, self.of, back, ended)

    def _has_room(self, versions: Sequence[SceneRow], freed: dict[RowName, str]) -> bool:
        """Whether the agent may have one more scene, should this one be live again."""
        if any(row.state == "live" for row in versions):
            return True
        if not any(row.state == "quarantined" and freed.get(name_of(row)) == "live" for row in versions):
            return True
        scene = versions[-1]
        most = AgentSettings(**self.tx.agent_settings(self.of, scene.agent_id)).scenes
        if len(self.tx.scenes(self.of, scene.agent_id)) < most:
            return True
        logger.warning(
            "scene %s is released and stays superseded: agent %s has %d scenes by now, as many as it may",
            scene.id,
            scene.agent_id,
            most,
        )
        return False

    def _one_live(
        self, versions: Sequence[SceneRow] | Sequence[ProfileRow], freed: dict[RowName, str]
    ) -> None:
        """Put versions of one scene or profile back. The newest of those that were live and those that are stays so."""
        back = {
            name_of(row): freed[name_of(row)]
            for row in versions
            if row.state == "quarantined" and name_of(row) in freed
        }
        live = [row for row in versions if row.state == "live" or back.get(name_of(row)) == "live"]
        for row in live[:-1]:  # first: there is never more than one
            following = next(later for later in versions if later.version > row.version)
            self._set_state(row, "superseded", following.recorded_at)
        for row in versions:
            prior = back.get(name_of(row))
            if prior == "live" and row is not live[-1]:
                continue
            if prior is not None:
                self._set_state(row, prior, None if prior == "live" else row.superseded_at)

    # --- and the pipelines -------------------------------------------------------------------------------------

    def work_anew(self, held: Held, *, unread: Collection[str], back: Collection[str]) -> None:
        """What was read before counts no more: runs under way come to nothing, and what is missing is made anew."""
        stop_running(self.tx, self.of, self.now)
        rebuild(self.tx, self.of, held, self.now, unread=unread, back=back)
