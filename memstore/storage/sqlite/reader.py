"""Reads on one snapshot of the SQLite file."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import apsw

from memstore.canonical import canonical_json
from memstore.embedding import EmbedderIdentity
from memstore.storage.base import (
    BackupRow,
    Candidate,
    ChangeKey,
    ChangeRow,
    Generation,
    Interval,
    Membership,
    Ref,
    RowFilter,
    Segmentation,
    TextIndex,
    TextRow,
    Turn,
    WordRow,
)
from memstore.storage.rows import MemoryRow, MessageRow, SessionRow, TraceRow
from memstore.storage.sqlite import changes, keys, text_index, vector_index
from memstore.storage.sqlite.filters import filter_sql, named_clauses
from memstore.storage.sqlite.pipeline_reads import PipelineReads
from memstore.storage.sqlite.statements import (
    MEMORIES,
    MEMORY_COLUMNS,
    MEMORY_FROM,
    MESSAGES,
    SESSIONS,
    TRACES,
)
from memstore.storage.sqlite.text_index import TextTable
from memstore.text import QueryTokens
from memstore.times import from_micros
from memstore.types import GenerationRecord, GenerationState, Layer, SessionRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROGRESS_STEPS = 2_000
"""Virtual-machine steps between two looks at the deadline: well under a millisecond."""

_NEWEST = 2**40
"""Above every arrival and slot number that a page can begin at."""

FOLDING = "SELECT value FROM store_meta WHERE key = 'fold_variants'"


def slot_list(refs: Sequence[int]) -> str:
    """Integers as a JSON array, for ``json_each(?)``: one binding however many there are."""
    return f"[{','.join(map(str, refs))}]"


class SqliteReader(PipelineReads):
    """See :class:`memstore.storage.base.Reader`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._text_tables: dict[tuple[Layer, str], dict[str, TextTable]] = {}  # of this snapshot
        self._segmentations: dict[str, Segmentation] = {}  # likewise

    # --- settings, teams, ranges ---------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        value: str | None = self._value("SELECT value FROM store_meta WHERE key = ?", (key,))
        return value

    def membership(self, team_id: str, user_id: str) -> Membership:
        rows = self._rows(
            f"SELECT t.auto_join, m.role, m.left_at, t.dictionary_digest, ({FOLDING}) FROM teams t"
            " LEFT JOIN members m ON m.team_id = t.team_id AND m.user_id = ? WHERE t.team_id = ?",
            (user_id, team_id),
        )
        if not rows:
            return Membership(is_member=False, is_admin=False)
        auto_join, role, left_at, digest, folding = rows[0]
        self._segmentations[team_id] = Segmentation(digest, folding == "1")
        is_member = bool(auto_join) if role is None else left_at is None
        return Membership(is_member, is_member and role == "admin")

    def team_ids(self) -> list[str]:
        return [team for (team,) in self._rows("SELECT team_id FROM teams ORDER BY team_no")]

    def segmentation(self, team_id: str) -> Segmentation:
        if team_id not in self._segmentations:
            folding, digest = self._rows(
                f"SELECT ({FOLDING}), (SELECT dictionary_digest FROM teams WHERE team_id = ?)", (team_id,)
            )[0]
            self._segmentations[team_id] = Segmentation(digest or "", folding == "1")
        return self._segmentations[team_id]

    def dictionary(self, team_id: str) -> dict[str, int]:
        return dict(self._rows("SELECT word, frequency FROM dictionary_words WHERE team_id = ?", (team_id,)))

    def words(self, team_id: str) -> list[WordRow]:
        rows = self._rows(
            "SELECT word, frequency, added_by, added_at FROM dictionary_words WHERE team_id = ? ORDER BY word",
            (team_id,),
        )
        return [WordRow(*row) for row in rows]

    def _owner_nos(self, team_id: str, user_id: str, *, shared: bool) -> list[int]:
        rows = self._rows(
            "SELECT owner_no FROM owners WHERE team_id = ? AND user_id = ?"
            " UNION ALL SELECT owner_no FROM owners WHERE ? AND team_id = ? AND user_id IS NULL",
            (team_id, user_id, shared, team_id),
        )
        return [owner for (owner,) in rows]

    def _text_table(self, layer: Layer, team_id: str) -> str | None:
        table = self._tables(layer, team_id).get("active")
        return None if table is None else table.name

    def _tables(self, layer: Layer, team_id: str) -> dict[str, TextTable]:
        if not self._text_tables.get((layer, team_id)):
            self._text_tables[layer, team_id] = text_index.tables(self._connection, layer, team_id)
        return self._text_tables[layer, team_id]

    def text_index(
        self, layer: Layer, team_id: str, state: Literal["active", "building"]
    ) -> TextIndex | None:
        table = self._tables(layer, team_id).get(state)
        return None if table is None else TextIndex(table.tokenizer, Ref(table.filled_to))

    # --- the legs ------------------------------------------------------------------------------------------

    @contextmanager
    def interruptible(self, interrupt: Callable[[], bool]) -> Iterator[None]:
        self._connection.set_progress_handler(interrupt, PROGRESS_STEPS)
        try:
            yield
        except apsw.InterruptError as error:
            raise TimeoutError("interrupted at the deadline") from error
        finally:
            self._connection.set_progress_handler(None)

    def text_search(self, layer: Layer, tokens: QueryTokens, where: RowFilter, k: int) -> list[Candidate]:
        name = self._text_table(layer, where.team_id)
        if name is None or not tokens or k == 0:
            return []
        predicate = filter_sql(where, layer, "m")
        found = [
            text_index.search(self._connection, layer, name, tokens, keys.owner_range(owner), predicate, k)
            for owner in self._owner_nos(where.team_id, where.user_id, shared=where.shared)
        ]
        return _best(found, k)

    def phrase_rows(self, layer: Layer, tokens: QueryTokens, where: RowFilter) -> Iterator[tuple[Ref, str]]:
        name = self._text_table(layer, where.team_id)
        if name is None or not tokens.phrases:
            return
        predicate = filter_sql(where, layer, "m")
        for owner in self._owner_nos(where.team_id, where.user_id, shared=where.shared):
            yield from text_index.phrase_rows(
                self._connection, layer, name, tokens, keys.owner_range(owner), predicate
            )

    def vector_search(
        self, layer: Layer, generation: int, query: "NDArray[np.float32]", where: RowFilter, k: int
    ) -> list[Candidate]:
        if k == 0:
            return []
        predicate = filter_sql(where, layer, "m")
        found = [
            vector_index.search(
                self._connection, layer, generation, query, keys.owner_range(owner), predicate, k
            )
            for owner in self._owner_nos(where.team_id, where.user_id, shared=where.shared)
        ]
        return _best(found, k)

    def without_vector(self, layer: Layer, generation: int, refs: Sequence[Ref]) -> set[Ref]:
        rows = self._rows(
            f"SELECT j.value FROM json_each(?) j LEFT JOIN {vector_index.table_name(generation, layer)} v"
            " ON v.slot = j.value WHERE v.slot IS NULL",
            (slot_list(refs),),
        )
        return {Ref(slot) for (slot,) in rows}

    def vectors(self, layer: Layer, generation: int, refs: Sequence[Ref]) -> "dict[Ref, NDArray[np.float32]]":
        return vector_index.vectors(self._connection, generation, layer, refs)

    def turns_around(self, refs: Sequence[Ref], where: RowFilter) -> list[Turn]:
        predicate, bindings = filter_sql(where, "messages", "m")
        rows = self._rows(
            "WITH seeds AS (SELECT s.session, s.pos FROM json_each(?) j CROSS JOIN messages s ON s.slot = j.value),"
            " places AS (SELECT DISTINCT s.session, s.pos + o.value AS pos"
            "   FROM seeds s CROSS JOIN json_each('[-2,-1,0,1,2]') o)"
            " SELECT m.slot, m.recorded_at, m.arrival, m.id, m.session, m.pos, m.branch, m.role, m.name, m.created_at"
            " FROM places p CROSS JOIN messages m"
            " ON m.team_id = ? AND m.user_id = ? AND m.session = p.session AND m.pos = p.pos"
            f" WHERE {predicate} ORDER BY m.session, m.pos",
            (slot_list(refs), where.team_id, where.user_id, *bindings),
        )
        return [
            Turn(Candidate(Ref(slot), 0.0, recorded_at, arrival, row_id), *of)
            for slot, recorded_at, arrival, row_id, *of in rows
        ]

    def held_tokens(
        self, layer: Layer, team_id: str, refs: Sequence[Ref], tokens: QueryTokens
    ) -> dict[Ref, tuple[str, ...]]:
        name = self._text_table(layer, team_id)
        if name is None:
            return {}
        held = text_index.held_tokens(self._connection, name, refs, tokens)
        return {Ref(slot): found for slot, found in held.items()}

    def failed_filters(
        self, layer: Layer, refs: Sequence[Ref], where: RowFilter
    ) -> dict[Ref, tuple[str, ...]]:
        clauses = named_clauses(where, layer, "m")
        columns = ", ".join(f"coalesce({sql}, 0)" for _, (sql, _) in clauses)
        rows = self._rows(
            f"SELECT m.slot, {columns} FROM json_each(?) j CROSS JOIN {text_index.ROW_TABLE[layer]} m"
            " ON m.slot = j.value",
            (*(b for _, (_, bindings) in clauses for b in bindings), slot_list(refs)),
        )
        return {
            Ref(slot): tuple(
                dict.fromkeys(name for (name, _), holds in zip(clauses, outcomes, strict=True) if not holds)
            )
            for slot, *outcomes in rows
        }

    def refs_of(self, layer: Layer, team_id: str, row_id: str) -> list[Ref]:
        order = "ORDER BY version DESC" if layer == "memories" else ""
        rows = self._rows(
            f"SELECT slot FROM {text_index.ROW_TABLE[layer]} WHERE team_id = ? AND id = ? {order}",
            (team_id, row_id),
        )
        return [Ref(slot) for (slot,) in rows]

    def vector_state(self, layer: Layer, generation: int, ref: Ref) -> str | None:
        if ref not in self.without_vector(layer, generation, [ref]):
            return None
        refused = self._value(
            "SELECT refused FROM pending_vectors WHERE generation = ? AND layer = ? AND slot = ?",
            (generation, layer, ref),
        )
        return str(refused) if refused is not None else "pending"

    def source_ids(self, team_id: str, derived_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        rows = self._rows(
            "SELECT DISTINCT s.derived_id, s.source_id FROM json_each(?) j CROSS JOIN sources s"
            " ON s.team_id = ? AND s.derived_kind = 'memory' AND s.derived_id = j.value AND s.source_kind = 'message'"
            " ORDER BY s.derived_id, s.source_id",
            (canonical_json(list(derived_ids)), team_id),
        )
        found: dict[str, list[str]] = {}
        for derived, source in rows:
            found.setdefault(derived, []).append(source)
        return {derived: tuple(ids) for derived, ids in found.items()}

    def trace(self, team_id: str, user_id: str, trace_id: str) -> TraceRow | None:
        rows = self._rows(
            f"SELECT {TRACES} FROM recall_traces WHERE team_id = ? AND user_id = ? AND id = ?",
            (team_id, user_id, trace_id),
        )
        return TraceRow(*rows[0]) if rows else None

    def traces(
        self, team_id: str, user_id: str, agent_id: str | None, task_id: str | None, limit: int
    ) -> list[TraceRow]:
        rows = self._rows(
            f"SELECT {TRACES} FROM recall_traces WHERE team_id = ? AND user_id = ?"
            " AND (? IS NULL OR agent_id = ?) AND (? IS NULL OR task_id = ?)"
            " ORDER BY asked_at DESC, id DESC LIMIT ?",
            (team_id, user_id, agent_id, agent_id, task_id, task_id, limit),
        )
        return [TraceRow(*row) for row in rows]

    # --- rows ----------------------------------------------------------------------------------------------

    def message_rows(self, refs: Sequence[Ref]) -> dict[Ref, MessageRow]:
        rows = self._rows(
            f"SELECT m.slot, {MESSAGES} FROM json_each(?) j JOIN messages m ON m.slot = j.value",
            (slot_list(refs),),
        )
        return {Ref(slot): MessageRow(*row) for slot, *row in rows}

    def memory_rows(self, refs: Sequence[Ref]) -> dict[Ref, MemoryRow]:
        rows = self._rows(
            f"SELECT m.slot, {MEMORIES} FROM json_each(?) j CROSS JOIN {MEMORY_FROM} WHERE m.slot = j.value",
            (slot_list(refs),),
        )
        return {Ref(slot): MemoryRow(*row) for slot, *row in rows}

    def message(self, team_id: str, message_id: str) -> MessageRow | None:
        return self._message("m.team_id = ? AND m.id = ?", (team_id, message_id))

    def _message(self, predicate: str, bindings: Sequence[Any]) -> MessageRow | None:
        rows = self._rows(f"SELECT {MESSAGES} FROM messages m WHERE {predicate}", bindings)
        return MessageRow(*rows[0]) if rows else None

    def memory(self, team_id: str, memory_id: str) -> MemoryRow | None:
        return self._memory("m.team_id = ? AND m.id = ? AND m.version = h.version", (team_id, memory_id))

    def memory_by_idempotency_key(self, team_id: str, user_id: str, key: str) -> MemoryRow | None:
        return self._memory(
            "h.team_id = ? AND h.user_id = ? AND h.idempotency_key = ? AND m.version = h.version",
            (team_id, user_id, key),
        )

    def _memory(self, predicate: str, bindings: Sequence[Any]) -> MemoryRow | None:
        rows = self._rows(f"SELECT {MEMORIES} FROM {MEMORY_FROM} WHERE {predicate}", bindings)
        return MemoryRow(*rows[0]) if rows else None

    def memory_history(self, team_id: str, memory_id: str) -> list[MemoryRow]:
        rows = self._rows(
            f"SELECT {MEMORIES} FROM {MEMORY_FROM} WHERE m.team_id = ? AND m.id = ? ORDER BY m.version",
            (team_id, memory_id),
        )
        return [MemoryRow(*row) for row in rows]

    def memory_page(
        self, where: RowFilter, limit: int, after: tuple[int, int] | None
    ) -> tuple[list[MemoryRow], tuple[int, int] | None]:
        predicate, bindings = filter_sql(where, "memories", "m")
        last_own, last_shared = after or (_NEWEST, _NEWEST)
        own = self._rows(
            f"SELECT m.arrival, {MEMORIES} FROM {MEMORY_FROM} WHERE m.team_id = ? AND m.user_id = ?"
            f" AND m.arrival < ? AND {predicate} ORDER BY m.arrival DESC LIMIT ?",
            (where.team_id, where.user_id, last_own, *bindings, limit + 1),
        )
        shared: list[Any] = []
        for owner in self._shared_owner_nos(where):
            slots = keys.owner_range(owner)
            shared += self._rows(
                f"SELECT m.slot & ?, {MEMORIES} FROM {MEMORY_FROM} WHERE m.slot BETWEEN ? AND ?"
                f" AND m.user_id <> ? AND {predicate} ORDER BY m.slot DESC LIMIT ?",
                (
                    keys.MAX_NUMBER,
                    slots.first,
                    min(slots.last, slots.first + last_shared - 1),
                    where.user_id,
                    *bindings,
                    limit + 1,
                ),
            )
        page: list[MemoryRow] = []
        recorded_at = MEMORY_COLUMNS.index("recorded_at") + 1
        while (own or shared) and len(page) < limit:
            if own and (not shared or own[0][recorded_at] >= shared[0][recorded_at]):
                last_own, *row = own.pop(0)
            else:
                last_shared, *row = shared.pop(0)
            page.append(MemoryRow(*row))
        return page, (last_own, last_shared) if own or shared else None

    def memory_changes(
        self, where: RowFilter, interval: Interval, limit: int, after: ChangeKey | None
    ) -> tuple[list[ChangeRow], ChangeKey | None]:
        found: list[changes.Found] = []
        for owner in self._owner_nos(where.team_id, where.user_id, shared=where.shared):
            slots = keys.owner_range(owner)
            found += self._rows(*changes.statement(where, slots, interval, limit + 1, after))
        found.sort(key=changes.key)
        more, found = len(found) > limit, found[:limit]
        pairs = [(slot, before) for *_, slot, before in found]
        rows = self.memory_rows([Ref(slot) for pair in pairs for slot in pair if slot is not None])
        page = [
            ChangeRow(at, changes.kind(step, version), rows[Ref(slot)], rows[Ref(before)] if before else None)
            for at, _, _, step, version, slot, before in found
        ]
        return page, changes.key(found[-1]) if more else None

    def _shared_owner_nos(self, where: RowFilter) -> list[int]:
        if not where.shared:
            return []
        rows = self._rows(
            "SELECT owner_no FROM owners WHERE team_id = ? AND user_id IS NULL", (where.team_id,)
        )
        return [owner for (owner,) in rows]

    def owned_ids(
        self, team_id: str, user_id: str, agent_id: str | None, task_id: str | None
    ) -> tuple[list[str], list[str]]:
        owned = "team_id = ? AND user_id = ? AND state <> 'deleted' AND (? IS NULL OR agent_id = ?) AND (? IS NULL OR task_id = ?)"
        bindings = (team_id, user_id, agent_id, agent_id, task_id, task_id)
        messages = self._rows(f"SELECT id FROM messages WHERE {owned} ORDER BY arrival", bindings)
        versions = self._rows(f"SELECT id FROM memory_versions WHERE {owned} ORDER BY arrival", bindings)
        return [row_id for (row_id,) in messages], list(dict.fromkeys(row_id for (row_id,) in versions))

    def count(self, layer: Layer, where: RowFilter) -> int:
        predicate, bindings = filter_sql(where, layer, "m")
        total = 0
        for owner in self._owner_nos(where.team_id, where.user_id, shared=where.shared):
            slots = keys.owner_range(owner)
            total += self._value(
                f"SELECT count(*) FROM {text_index.ROW_TABLE[layer]} m WHERE m.slot BETWEEN ? AND ? AND {predicate}",
                (slots.first, slots.last, *bindings),
            )
        return total

    # --- sessions ------------------------------------------------------------------------------------------

    def session(self, team_id: str, user_id: str, session: str) -> SessionRow | None:
        rows = self._rows(
            f"SELECT {SESSIONS} FROM sessions s WHERE s.team_id = ? AND s.user_id = ? AND s.session = ?",
            (team_id, user_id, session),
        )
        return SessionRow(*rows[0]) if rows else None

    def sessions(self, team_id: str, user_id: str, agent_id: str | None) -> list[SessionRecord]:
        rows = self._rows(
            "SELECT s.session, s.agent_id, s.title, s.pinned, s.hidden, s.created_at, s.updated_at,"
            " (SELECT count(*) FROM messages m WHERE m.team_id = s.team_id AND m.user_id = s.user_id"
            "   AND m.session = s.session AND m.state = 'live' AND m.hidden = 0)"
            " FROM sessions s WHERE s.team_id = ? AND s.user_id = ? AND s.hidden = 0 AND (? IS NULL OR s.agent_id = ?)"
            " ORDER BY s.pinned DESC, s.updated_at DESC, s.session",
            (team_id, user_id, agent_id, agent_id),
        )
        return [
            SessionRecord(
                session,
                agent,
                title,
                bool(pinned),
                bool(hidden),
                from_micros(created),
                from_micros(updated),
                messages,
            )
            for session, agent, title, pinned, hidden, created, updated, messages in rows
        ]

    def session_messages(self, session: str, where: RowFilter, last: int | None) -> list[MessageRow]:
        predicate, bindings = filter_sql(where, "messages", "m")
        rows = self._rows(
            f"SELECT {MESSAGES} FROM messages m WHERE m.team_id = ? AND m.user_id = ? AND m.session = ?"
            f" AND {predicate} ORDER BY m.pos DESC LIMIT ?",
            (where.team_id, where.user_id, session, *bindings, -1 if last is None else last),
        )
        return [MessageRow(*row) for row in reversed(rows)]

    def branch(self, team_id: str, user_id: str, session: str) -> list[tuple[int, str, str | None, str, str]]:
        return self._rows(
            "SELECT pos, checksum, client_id, id, role FROM messages"
            " WHERE team_id = ? AND user_id = ? AND session = ? AND branch = 0 AND hidden = 0 ORDER BY pos",
            (team_id, user_id, session),
        )

    def known_client_ids(
        self, team_id: str, user_id: str, session: str, client_ids: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        rows = self._rows(
            "SELECT m.client_id, m.id, m.checksum FROM json_each(?) j CROSS JOIN messages m"
            " WHERE m.team_id = ? AND m.user_id = ? AND m.session = ? AND m.client_id = j.value",
            (canonical_json(list(client_ids)), team_id, user_id, session),
        )
        return {client_id: (row_id, checksum) for client_id, row_id, checksum in rows}

    # --- embedding -----------------------------------------------------------------------------------------

    def generation(self, state: Literal["active", "building"]) -> Generation | None:
        return self._generation("state = ?", (state,))

    def numbered_generation(self, number: int) -> Generation | None:
        return self._generation("generation = ?", (number,))

    def generation_of(self, identity: EmbedderIdentity) -> Generation | None:
        return self._generation(
            "(model, revision, dim, query_prefix, document_prefix) = (?, ?, ?, ?, ?)"
            " ORDER BY state, generation DESC LIMIT 1",  # active, building, retired
            (
                identity.model,
                identity.revision,
                identity.dim,
                identity.query_prefix,
                identity.document_prefix,
            ),
        )

    def generation_before(self) -> Generation | None:
        return self._generation(
            "state <> 'active' AND activated_at IS NOT NULL ORDER BY activated_at DESC LIMIT 1"
        )

    def _generation(self, predicate: str, bindings: Sequence[Any] = ()) -> Generation | None:
        rows = self._rows(
            "SELECT generation, state, activated_at IS NOT NULL, model, revision, dim, query_prefix, document_prefix"
            f" FROM embedding_generations WHERE {predicate}",
            bindings,
        )
        if not rows:
            return None
        number, state, was_active, *identity = rows[0]
        return Generation(number, EmbedderIdentity(*identity), state, bool(was_active))

    def generation_records(self) -> list[GenerationRecord]:
        rows = self._rows(
            "SELECT g.generation, g.state, g.created_at, g.activated_at,"
            " (SELECT count(*) FROM pending_vectors p WHERE p.generation = g.generation AND p.refused IS NULL),"
            " (SELECT count(*) FROM pending_vectors p WHERE p.generation = g.generation AND p.refused IS NOT NULL),"
            " g.model, g.revision, g.dim, g.query_prefix, g.document_prefix"
            " FROM embedding_generations g ORDER BY g.generation"
        )
        return [self._generation_record(*row) for row in rows]

    def _generation_record(
        self,
        number: int,
        state: GenerationState,
        created_at: int,
        activated_at: int | None,
        pending: int,
        refused: int,
        *identity: Any,
    ) -> GenerationRecord:
        found = EmbedderIdentity(*identity)
        vectors = vector_index.count(self._connection, number)
        return GenerationRecord(
            number=number,
            model=found.model,
            revision=found.revision,
            dim=found.dim,
            digest=found.digest(),
            state=state,
            vectors=vectors,
            pending=pending,
            refused=refused,
            bytes=vectors * found.dim * vector_index.NUMBER_BYTES,
            created_at=from_micros(created_at),
            activated_at=None if activated_at is None else from_micros(activated_at),
        )

    def without_vectors(self, generation: int, layer: Layer, limit: int) -> list[TextRow]:
        found: list[TextRow] = []
        for (table,) in self._rows(
            "SELECT table_name FROM text_indexes WHERE layer = ? AND state = 'active' ORDER BY team_no",
            (layer,),
        ):
            rows = self._rows(
                f"SELECT m.slot, {text_index.TEXT_COLUMNS[layer]} FROM {table} f"
                f" CROSS JOIN {text_index.ROW_TABLE[layer]} m ON m.slot = f.rowid"
                f" WHERE m.state <> 'deleted' {self._vector_missing(generation, layer)} LIMIT ?",
                (limit - len(found),),
            )
            found += [TextRow(Ref(slot), text_index.spoken(*columns)) for slot, *columns in rows]
            if len(found) >= limit:
                break
        return found

    def _vector_missing(self, generation: int, layer: Layer) -> str:
        """Narrows the rows of a text index ``f``. No generation, or one whose table was lost: none has a vector."""
        vectors = vector_index.table_name(generation, layer)
        if not self._connection.table_exists("main", vectors):
            return ""
        return f"AND NOT EXISTS (SELECT 1 FROM {vectors} v WHERE v.slot = f.rowid)"

    def pending(self, generation: int, layer: Layer, after: Ref, limit: int) -> list[TextRow]:
        rows = self._rows(
            f"SELECT p.slot, {text_index.TEXT_COLUMNS[layer]} FROM pending_vectors p"
            f" JOIN {text_index.ROW_TABLE[layer]} m ON m.slot = p.slot"
            " WHERE p.generation = ? AND p.layer = ? AND p.slot > ? AND p.refused IS NULL ORDER BY p.slot LIMIT ?",
            (generation, layer, after, limit),
        )
        return [TextRow(Ref(slot), text_index.spoken(*columns)) for slot, *columns in rows]

    def pending_count(self, generation: int) -> int:
        return int(
            self._value(
                "SELECT count(*) FROM pending_vectors WHERE generation = ? AND refused IS NULL", (generation,)
            )
        )

    # --- fallback, dumps, rebuilds -------------------------------------------------------------------------

    def fallback_mark(self, day: str) -> int:
        return int(self._value("SELECT applied_bytes FROM fallback_days WHERE day = ?", (day,)) or 0)

    def fallback_marks(self) -> dict[str, int]:
        return dict(self._rows("SELECT day, applied_bytes FROM fallback_days"))

    def backups(self) -> list[BackupRow]:
        rows = self._rows(
            "SELECT path, taken_at, bytes, sha256, verified_at, backup_no FROM backups ORDER BY backup_no"
        )
        return [BackupRow(*row) for row in rows]

    def backup_days(self, number: int) -> dict[str, int]:
        return dict(self._rows("SELECT day, covered_bytes FROM backup_days WHERE backup_no = ?", (number,)))

    def fallback_tail(self, day: str) -> int | None:
        tail: int | None = self._value("SELECT tail FROM fallback_days WHERE day = ?", (day,))
        return tail

    def unwritten_lines(self, limit: int | None) -> list[tuple[int, dict[str, Any]]]:
        rows = self._rows(
            "SELECT number, operation FROM unwritten_lines ORDER BY number LIMIT ?",
            (-1 if limit is None else limit,),
        )
        return [(number, json.loads(operation)) for number, operation in rows]

    def dump_messages(self) -> Iterator[MessageRow]:
        for row in self._connection.execute(
            f"SELECT {MESSAGES} FROM messages m ORDER BY m.team_id, m.user_id, m.session, m.pos"
        ):
            yield MessageRow(*row)

    def dump_sessions(self) -> Iterator[SessionRow]:
        for row in self._connection.execute(
            f"SELECT {SESSIONS} FROM sessions s ORDER BY s.team_id, s.user_id, s.session"
        ):
            yield SessionRow(*row)

    def text_rows(self, layer: Layer, team_id: str, after: Ref, limit: int) -> list[TextRow]:
        team_no = self._value("SELECT team_no FROM teams WHERE team_id = ?", (team_id,))
        if team_no is None:
            return []
        slots = keys.team_range(team_no)
        rows = self._rows(
            f"SELECT m.slot, {text_index.TEXT_COLUMNS[layer]} FROM {text_index.ROW_TABLE[layer]} m"
            " WHERE m.slot > ? AND m.slot BETWEEN ? AND ? AND m.state <> 'deleted' ORDER BY m.slot LIMIT ?",
            (after, slots.first, slots.last, limit),
        )
        return [TextRow(Ref(slot), text_index.spoken(*columns)) for slot, *columns in rows]

    def rows_with_phrase(self, layer: Layer, team_id: str, tokens: QueryTokens) -> list[TextRow]:
        name = self._text_table(layer, team_id)
        if name is None:
            return []
        rows = self._rows(
            f"SELECT m.slot, {text_index.TEXT_COLUMNS[layer]} FROM {name}"
            f" CROSS JOIN {text_index.ROW_TABLE[layer]} m ON m.slot = {name}.rowid"
            f" WHERE {name} MATCH ? AND m.state <> 'deleted' ORDER BY m.slot",
            (text_index.phrase_expression(tokens),),
        )
        return [TextRow(Ref(slot), text_index.spoken(*columns)) for slot, *columns in rows]


def _best(found: Sequence[Sequence[Candidate]], k: int) -> list[Candidate]:
    merged = [candidate for part in found for candidate in part]
    merged.sort(key=lambda c: (-c.score, *c.tie))
    return merged[:k]
