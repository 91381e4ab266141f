"""Quarantine: what came from a source leaves recall, with all that was derived from it, in one transaction (SPEC W11).

The rows that meet the criteria are the *roots*. What was derived from them, over any number of steps, leaves with them:
whole memories (a later version of one builds on the earlier), and of scenes and profiles the versions from the first
derived one on, up to one that a person wrote. What a quarantined memory had replaced, and the newest version of a scene
or profile that is free of it, come back; the pipelines write the rest anew.

Each quarantine keeps which rows it holds, what they were before, and which memories came back for it. A row that two
quarantines hold comes back when both let go.
"""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memstore.access import holds, narrowed
from memstore.asking import Instant, principal, row_facts
from memstore.canonical import canonical_json, check_encodable
from memstore.clock import Clock
from memstore.errors import InvalidInput, NotFound, NotPermitted
from memstore.fallback import Operation
from memstore.ids import new_id
from memstore.journal import Journal
from memstore.operations import quarantine_operations
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
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import to_micros
from memstore.tokenizers import Tokenizers
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
    came back because what had replaced them left, with what they were. ``unread``: how far the sessions had been read
    whose messages left before all of them were."""

    row: QuarantineRow
    rows: dict[RowName, str]
    memories: frozenset[str]
    revived: tuple[dict[str, Any], ...]
    unread: dict[str, int]
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
        revived, unread = tuple(values.pop("revived", ())), values.pop("unread", {})
        kept.append(_Kept(row, rows, memories, revived, unread, values))
    return kept


def _asked(scope: Scope, criteria: Criteria) -> dict[str, Any]:
    """What a quarantine was asked for: the criteria, and the agent and task within which."""
    within = {"agent": scope.agent_id, "task": scope.task_id}
    return criteria.as_values() | {name: value for name, value in within.items() if value is not None}


def _written(
    criteria: dict[str, Any],
    memories: Iterable[str],
    revived: Sequence[dict[str, Any]],
    unread: dict[str, int],
) -> str:
    values = {**criteria, "memories": sorted(memories), "revived": list(revived), "unread": unread}
    return canonical_json({name: value for name, value in values.items() if value})


class Quarantine:
    """Puts an asker's own rows under quarantine, and releases them."""

    def __init__(self, journal: Journal, tokenizers: Tokenizers, clock: Clock) -> None:
        self._journal = journal
        self._tokenizers = tokenizers
        self._clock = clock

    def put(self, scope: Scope, criteria: Criteria) -> int:
        """See :meth:`memstore.store.MemoryStore.quarantine`."""
        return self._journal.change(partial(self._put, scope, criteria))

    def release(self, scope: Scope, criteria: Criteria) -> int:
        """See :meth:`memstore.store.MemoryStore.release`."""
        return self._journal.change(partial(self._release, scope, criteria))

    def _put(self, scope: Scope, criteria: Criteria, tx: Writer, lines: list[Operation]) -> int:
        roots = self._roots(tx, scope, criteria)
        if not roots:
            return 0
        change = _Change(tx, scope, self._tokenizers, to_micros(self._clock.now()), lines)
        held = derived_rows(tx, change.of, roots)
        known = {name: prior for kept in _read(tx, change.of) for name, prior in kept.rows.items()}
        leaving = {name: state for name, state in held.states.items() if state != "quarantined"}
        before = {name: leaving.get(name) or known.get(name, "live") for name in held.states}
        unread = change.unread(held.ids("message"))
        change.leave(held, leaving)
        revived = change.revive_replaced(held)
        memories = {row_id for kind, row_id in roots if kind == "memory"}
        written = _written(_asked(scope, criteria), memories, revived, unread)
        row = QuarantineRow(
            scope.team_id, new_id(self._clock.now()), scope.user_id, written, scope.user_id, change.now
        )
        tx.put_quarantine(row, list(before.items()))
        lost = spoken_for(tx, change.of, held, held.ids("memory") - memories)
        change.work_anew(held, unread=lost, back={one["id"] for one in revived})
        return len(leaving)

    def _release(self, scope: Scope, criteria: Criteria, tx: Writer, lines: list[Operation]) -> int:
        change = _Change(tx, scope, self._tokenizers, to_micros(self._clock.now()), lines)
        all_kept = _read(tx, change.of)
        asked = _asked(scope, criteria)
        whole = {kept.row.id for kept in all_kept if kept.criteria == asked}
        roots = self._roots(tx, scope, criteria, known=bool(whole))
        freed: dict[RowName, str] = {}
        staying: set[RowName] = set()
        revived: list[dict[str, Any]] = []
        read_up_to: dict[str, int] = {}
        for kept in all_kept:
            left = set() if kept.row.id in whole else kept.roots - roots
            if left and left == kept.roots:
                staying |= kept.rows.keys()
                continue
            rest = self._rest(change, kept, left)
            staying |= rest.keys()
            freed |= {name: prior for name, prior in kept.rows.items() if name not in rest}
            revived += kept.revived
            read_up_to |= kept.unread
        unknown: set[str] = set()
        messages = [row_id for kind, row_id in roots if kind == "message"]
        # A store that was recovered from its fallback knows no more of it than the messages themselves.
        for one in tx.quarantined_messages(scope.team_id, messages):
            if RowName("message", one, 1) not in freed:
                freed[RowName("message", one, 1)] = "live"
                unknown.add(one)
        freed = {name: prior for name, prior in freed.items() if name not in staying}
        returned = change.come_back(freed, revived)
        if returned:
            held = Held(dict.fromkeys(returned, "live"))
            unread = unknown & held.ids("message") | change.behind(held.ids("message"), read_up_to)
            change.work_anew(held, unread=unread, back=held.ids("memory"))
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
            criteria=_written(kept.criteria, memories, revived, kept.unread),
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


@dataclass(slots=True)
class _Change:
    """Rows on their way out of recall or back, in one transaction."""

    tx: Writer
    scope: Scope
    tokenizers: Tokenizers
    now: int
    lines: list[Operation] = field(default_factory=list)

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
            self.lines += quarantine_operations(
                self.of.team_id, self.of.user_id, ids, self.now, released=at is None
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
        revived: list[dict[str, Any]] = []
        gone = held.ids("memory")
        for memory_id in sorted(gone):
            if self._replaced_by_one_that_stays(memory_id, gone):
                continue
            for target in self._targets(memory_id):
                row = self.tx.memory(self.of.team_id, target)
                if row is None or row.state != "superseded" or row.superseded_by != memory_id:
                    continue
                revived.append(
                    {"id": row.id, "version": row.version, "by": memory_id, "at": row.superseded_at}
                )
                self._revive(row)
        return revived

    def _replaced_by_one_that_stays(self, memory_id: str, gone: set[str]) -> bool:
        seen = {memory_id}
        row = self.tx.memory(self.of.team_id, memory_id)
        while row is not None and row.superseded_by is not None and row.superseded_by not in seen:
            seen.add(row.superseded_by)
            row = self.tx.memory(self.of.team_id, row.superseded_by)
            if row is not None and row.id not in gone and row.state in ("live", "superseded"):
                return True
        return False

    def _targets(self, memory_id: str) -> list[str]:
        return [
            target
            for verdict in self.tx.verdicts_of_memory(self.of.team_id, memory_id)
            if verdict.memory_id == memory_id and verdict.action in ("update", "merge")
            for target in json.loads(verdict.target_ids)
        ]

    def _revive(self, row: MemoryRow) -> None:
        tokens = self.tokenizers.of(self.tx, row.team_id).index(row.content)
        self.tx.revive_memory(row.team_id, row.id, tokens)

    # --- back into recall --------------------------------------------------------------------------------------

    def come_back(self, freed: dict[RowName, str], revived: Sequence[dict[str, Any]]) -> list[RowName]:
        """Each row as it was; returns those that are."""
        returned = [name for name, prior in freed.items() if self._returns(name, prior)]
        self._set_messages([name.id for name in returned if name.kind == "message"], None)
        back = {name.id for name in returned if name.kind == "memory"}
        for one in revived:
            if one["by"] in back:
                self._replace_again(one)
        for scene_id in sorted({name.id for name in returned if name.kind == "scene"}):
            self._one_live(self.tx.scene_history(self.of.team_id, scene_id), freed)
        profiles = {name.id for name in returned if name.kind == "profile"}
        for versions in profile_histories(self.tx, self.of) if profiles else ():
            self._one_live(versions, freed)
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

    def _replace_again(self, one: dict[str, Any]) -> None:
        """What had come back while the memory that replaced it was away."""
        row, by = self.tx.memory(self.of.team_id, one["id"]), self.tx.memory(self.of.team_id, one["by"])
        if row is None or by is None or row.version != one["version"] or row.state != "live":
            logger.warning(
                "memory %s was changed since %s was put under quarantine; it is left", one["id"], one["by"]
            )
            return
        begin = by.valid_from if by.valid_from is not None else by.recorded_at
        at = one["at"] if one["at"] is not None else by.recorded_at
        self.tx.supersede_memory(row.team_id, row.id, by.id, begin, at)

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

    def unread(self, message_ids: Iterable[str]) -> dict[str, int]:
        """How far the sessions of these messages were read in which some were not: they are passed over from now on."""
        found: dict[str, int] = {}
        for row in self._messages(message_ids):
            read = self.tx.cursor(self.of, "extract", row.session).pos
            if row.pos > read:
                found[row.session] = read
        return found

    def behind(self, message_ids: Iterable[str], read_up_to: Mapping[str, int]) -> set[str]:
        """Those of the messages that were passed over."""
        return {
            row.id
            for row in self._messages(message_ids)
            if row.session in read_up_to and row.pos > read_up_to[row.session]
        }

    def _messages(self, message_ids: Iterable[str]) -> Iterator[MessageRow]:
        for one in sorted(message_ids):
            row = self.tx.message(self.of.team_id, one)
            if row is not None:
                yield row

    def work_anew(self, held: Held, *, unread: Collection[str], back: Collection[str]) -> None:
        """What was read before counts no more: runs under way come to nothing, and what is missing is made anew."""
        stop_running(self.tx, self.of, self.now)
        rebuild(self.tx, self.of, held, self.now, unread=unread, back=back)
