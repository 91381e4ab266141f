"""Changes inside one transaction of the SQLite file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from memstore.canonical import canonical_json, ordered_json
from memstore.embedding import EmbedderIdentity
from memstore.storage.base import NO_GENERATION, BackupRow, Generation, Membership, Ref, Segmentation
from memstore.storage.rows import MemoryRow, MessageRow, SessionRow, TraceRow
from memstore.storage.sqlite import keys, text_index, vector_index
from memstore.storage.sqlite.pipeline_writes import PipelineWrites
from memstore.storage.sqlite.reader import FOLDING, SqliteReader, slot_list
from memstore.storage.sqlite.statements import MESSAGE_COLUMNS, SESSION_COLUMNS, TRACE_COLUMNS, insert_sql
from memstore.text import IndexTokens, dictionary_digest
from memstore.types import LAYERS, Layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_VERSION_COLUMNS = (
    "arrival", "id", "version", "team_id", "user_id", "agent_id", "task_id", "visibility", "state", "kind",
    "priority", "content", "metadata", "session", "produced_by_agent", "source_kind", "trust", "valid_from",
    "valid_to", "expires_at", "recorded_at", "superseded_at", "superseded_by", "actor", "verdict_id", "checksum",
)  # fmt: skip

_LAST_DROPPED = "last_dropped_generation"


class SqliteWriter(PipelineWrites, SqliteReader):
    """See :class:`memstore.storage.base.Writer`."""

    @contextmanager
    def part(self) -> Iterator[None]:
        self._run("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk may have ended all of it
                self._run("ROLLBACK TO part")
                self._run("RELEASE part")
            self._text_tables.clear()
            self._segmentations.clear()
            raise
        self._run("RELEASE part")

    # --- settings, teams, ranges ---------------------------------------------------------------------------

    def set_meta(self, key: str, value: str) -> None:
        self._run(
            "INSERT INTO store_meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value),
        )
        self._segmentations.clear()

    def set_words(self, team_id: str, words: Mapping[str, int], actor: str, now: int) -> None:
        held = self.dictionary(team_id)
        gone = [word for word in held if words.get(word) != held[word]]
        self._run(
            "DELETE FROM dictionary_words WHERE team_id = ? AND word IN (SELECT value FROM json_each(?))",
            (team_id, canonical_json(gone)),
        )
        self._connection.executemany(
            insert_sql("dictionary_words", ("team_id", "word", "frequency", "added_by", "added_at")),
            [(team_id, word, n, actor, now) for word, n in words.items() if held.get(word) != n],
        ).fetchall()
        self._run(
            "UPDATE teams SET dictionary_digest = ? WHERE team_id = ?", (dictionary_digest(words), team_id)
        )
        self._segmentations.clear()

    def join(self, team_id: str, user_id: str, now: int) -> Membership:
        known = self._rows(
            f"SELECT m.role, m.left_at, t.dictionary_digest, ({FOLDING}) FROM members m"
            " JOIN owners o ON o.team_id = m.team_id AND o.user_id = m.user_id"
            " JOIN teams t ON t.team_id = m.team_id"
            " WHERE m.team_id = ? AND m.user_id = ?",
            (team_id, user_id),
        )
        if known:
            role, left_at, digest, folding = known[0]
            self._segmentations[team_id] = Segmentation(digest, folding == "1")
            return Membership(left_at is None, left_at is None and role == "admin")
        team = self._rows("SELECT team_no, auto_join FROM teams WHERE team_id = ?", (team_id,))
        if team:
            team_no, auto_join = team[0]
            if not auto_join:
                return Membership(is_member=False, is_admin=False)
        else:
            team_no = self._new_team(team_id, now)
        first = self._value("SELECT 1 FROM members WHERE team_id = ? LIMIT 1", (team_id,)) is None
        self._run(
            "INSERT INTO members (team_id, user_id, role, joined_at) VALUES (?, ?, ?, ?)",
            (team_id, user_id, "admin" if first else "member", now),
        )
        user_no = self._value(
            "SELECT coalesce(max(owner_no) & ?, 0) + 1 FROM owners WHERE owner_no BETWEEN ? AND ?",
            (keys.MAX_USER_NO, team_no << keys.USER_BITS, (team_no + 1 << keys.USER_BITS) - 1),
        )
        self._run(
            "INSERT INTO owners (owner_no, team_id, user_id) VALUES (?, ?, ?)",
            (keys.owner_no(team_no, user_no), team_id, user_id),
        )
        return Membership(is_member=True, is_admin=first)

    def _new_team(self, team_id: str, now: int) -> int:
        team_no = int(self._value("SELECT coalesce(max(team_no), 0) + 1 FROM teams"))
        shared = keys.owner_no(team_no, keys.SHARED_USER_NO)
        self._run(
            "INSERT INTO teams (team_no, team_id, created_at) VALUES (?, ?, ?)", (team_no, team_id, now)
        )
        self._run("INSERT INTO owners (owner_no, team_id, user_id) VALUES (?, ?, NULL)", (shared, team_id))
        return team_no

    def use_arrival(self, team_id: str, user_id: str, arrival: int) -> None:
        self._run(
            "UPDATE owners SET last_arrival = max(last_arrival, ?) WHERE team_id = ? AND user_id = ?",
            (arrival, team_id, user_id),
        )

    def next_arrivals(self, team_id: str, user_id: str, count: int) -> int:
        last = self._value(
            "UPDATE owners SET last_arrival = last_arrival + ? WHERE team_id = ? AND user_id = ?"
            " RETURNING last_arrival",
            (count, team_id, user_id),
        )
        return int(last) - count + 1

    def _next_slots(self, team_id: str, user_id: str | None, count: int) -> list[int]:
        owner, last = self._rows(
            "UPDATE owners SET last_number = last_number + ? WHERE team_id = ? AND user_id IS ?"
            " RETURNING owner_no, last_number",
            (count, team_id, user_id),
        )[0]
        return [keys.slot(owner, number) for number in range(last - count + 1, last + 1)]

    def _team_no(self, team_id: str) -> int:
        return int(self._value("SELECT team_no FROM teams WHERE team_id = ?", (team_id,)))

    def _put_tokens(self, layer: Layer, team_id: str, rows: Sequence[tuple[int, IndexTokens]]) -> None:
        """Into the active index, which is made where there is none, and in step into one that is being built."""
        if "active" not in self._tables(layer, team_id):
            team_no = self._team_no(team_id)
            text_index.create(self._connection, layer, team_no, rows[0][1].tokenizer)
            self._text_tables.pop((layer, team_id))
        tables = self._tables(layer, team_id)
        text_index.insert(self._connection, tables["active"].name, rows)
        building = tables.get("building")
        reached = [(slot, tokens) for slot, tokens in rows if building and slot <= building.filled_to]
        if building is None or not reached:
            return
        if all(tokens.tokenizer == building.tokenizer for _, tokens in reached):
            text_index.insert(self._connection, building.name, reached)
        else:  # these are another tokenizer's tokens: whoever builds the index comes by here again
            self._set_filled_to(layer, team_id, building.name, min(slot for slot, _ in reached) - 1)

    def _set_filled_to(self, layer: Layer, team_id: str, name: str, slot: int) -> None:
        self._run("UPDATE text_indexes SET filled_to = ? WHERE table_name = ?", (slot, name))
        self._text_tables.pop((layer, team_id))

    def _drop_tokens(self, layer: Layer, team_id: str, slots: Sequence[int]) -> None:
        for table in self._tables(layer, team_id).values():
            text_index.delete(self._connection, table.name, slots)

    # --- messages and sessions -----------------------------------------------------------------------------

    def put_session(self, row: SessionRow) -> None:
        updated = ", ".join(
            f"{c} = excluded.{c}" for c in SESSION_COLUMNS if c not in ("team_id", "user_id", "session")
        )
        self._run(
            insert_sql("sessions", SESSION_COLUMNS)
            + f" ON CONFLICT (team_id, user_id, session) DO UPDATE SET {updated}",
            [getattr(row, column) for column in SESSION_COLUMNS],
        )

    def insert_messages(self, rows: Sequence[tuple[MessageRow, IndexTokens]]) -> None:
        if not rows:
            return
        team_id, user_id = rows[0][0].team_id, rows[0][0].user_id
        slots = self._next_slots(team_id, user_id, len(rows))
        self._connection.executemany(
            insert_sql("messages", ("slot", *MESSAGE_COLUMNS)),
            [
                (slot, *(getattr(row, c) for c in MESSAGE_COLUMNS))
                for slot, (row, _) in zip(slots, rows, strict=True)
            ],
        ).fetchall()
        indexed = [
            (slot, tokens)
            for slot, (row, tokens) in zip(slots, rows, strict=True)
            if row.state != "deleted" and (tokens.words or tokens.literal)
        ]
        self._index("messages", team_id, indexed)

    def _index(self, layer: Layer, team_id: str, indexed: Sequence[tuple[int, IndexTokens]]) -> None:
        if not indexed:
            return
        self._put_tokens(layer, team_id, indexed)
        self._queue_vectors(layer, [slot for slot, _ in indexed])

    def _queue_vectors(self, layer: Layer, slots: Sequence[int]) -> None:
        generations = [
            number
            for (number,) in self._rows(
                "SELECT generation FROM embedding_generations WHERE state IN ('active', 'building')"
            )
        ] or [NO_GENERATION]
        self._connection.executemany(
            "INSERT OR IGNORE INTO pending_vectors (generation, layer, slot) VALUES (?, ?, ?)",
            [(generation, layer, slot) for generation in generations for slot in slots],
        ).fetchall()

    def fork_session(
        self, team_id: str, user_id: str, session: str, fork: int, from_pos: int, to_pos: int
    ) -> None:
        self._run(
            "UPDATE messages SET branch = ?, live = 0"
            " WHERE team_id = ? AND user_id = ? AND session = ? AND pos BETWEEN ? AND ? AND branch = 0",
            (fork, team_id, user_id, session, from_pos, to_pos),
        )
        self._run(
            "UPDATE sessions SET last_fork = max(last_fork, ?) WHERE team_id = ? AND user_id = ? AND session = ?",
            (fork, team_id, user_id, session),
        )

    def restore_messages(self, team_id: str, user_id: str, session: str, ids: Sequence[str]) -> int:
        return self._run(
            "UPDATE messages SET branch = 0, live = 1 WHERE team_id = ? AND user_id = ? AND session = ?"
            " AND state = 'live' AND hidden = 0 AND branch <> 0 AND id IN (SELECT value FROM json_each(?))",
            (team_id, user_id, session, canonical_json(list(ids))),
        )

    def clear_session(self, team_id: str, user_id: str, session: str, up_to_pos: int) -> None:
        self._run(
            "UPDATE messages SET live = 0 WHERE team_id = ? AND user_id = ? AND session = ? AND pos <= ? AND live = 1",
            (team_id, user_id, session, up_to_pos),
        )

    def hide_session(self, team_id: str, user_id: str, session: str, up_to_pos: int) -> None:
        self._run(
            "UPDATE messages SET hidden = 1, live = 0"
            " WHERE team_id = ? AND user_id = ? AND session = ? AND pos <= ? AND hidden = 0",
            (team_id, user_id, session, up_to_pos),
        )

    def delete_messages(self, team_id: str, ids: Sequence[str], now: int) -> int:
        slots = [
            slot
            for (slot,) in self._rows(
                "SELECT m.slot FROM json_each(?) j CROSS JOIN messages m"
                " WHERE m.team_id = ? AND m.id = j.value AND m.state <> 'deleted'",
                (canonical_json(list(ids)), team_id),
            )
        ]
        if slots:
            self._run(
                "UPDATE messages SET state = 'deleted', deleted_at = ?, live = 0"
                " WHERE slot IN (SELECT value FROM json_each(?))",
                (now, slot_list(slots)),
            )
            self._unindex("messages", team_id, slots)
        return len(slots)

    def _unindex(self, layer: Layer, team_id: str, slots: Sequence[int]) -> None:
        listed = (slot_list(slots),)
        self._drop_tokens(layer, team_id, slots)
        for (generation,) in self._rows("SELECT generation FROM embedding_generations"):
            self._run(
                f"DELETE FROM {vector_index.table_name(generation, layer)}"
                " WHERE slot IN (SELECT value FROM json_each(?))",
                listed,
            )
        self._run(
            "DELETE FROM pending_vectors WHERE layer = ? AND slot IN (SELECT value FROM json_each(?))"
            " AND generation IN (SELECT generation FROM embedding_generations UNION ALL SELECT ?)",
            (layer, *listed, NO_GENERATION),
        )

    # --- memories ------------------------------------------------------------------------------------------

    def insert_memory(
        self, row: MemoryRow, tokens: IndexTokens, idempotency_key: str | None = None
    ) -> MemoryRow:
        row = replace(row, arrival=self.next_arrivals(row.team_id, row.user_id, 1))
        if row.version == 1:
            self._run(
                insert_sql(
                    "memories", ("team_id", "id", "user_id", "version", "created_at", "idempotency_key")
                ),
                (row.team_id, row.id, row.user_id, 1, row.created_at, idempotency_key),
            )
        else:
            self._supersede(row)
        owner = row.user_id if row.visibility == "private" else None
        slot = self._next_slots(row.team_id, owner, 1)[0]
        self._run(  # the end as stated now: valid_to itself is cut short by later versions
            insert_sql("memory_versions", ("slot", "stated_valid_to", *_VERSION_COLUMNS)),
            (slot, row.valid_to, *(getattr(row, column) for column in _VERSION_COLUMNS)),
        )
        if tokens.words or tokens.literal:
            self._index("memories", row.team_id, [(slot, tokens)])
        return row

    def _supersede(self, row: MemoryRow) -> None:
        """The version before ends where the new one begins; it stays, for history and ``as_of``."""
        self._run(
            "UPDATE memory_versions SET state = 'superseded', superseded_at = ?, superseded_by = ?"
            " WHERE team_id = ? AND id = ? AND version = ?",
            (row.recorded_at, row.id, row.team_id, row.id, row.version - 1),
        )
        begin = row.valid_from if row.valid_from is not None else row.recorded_at
        self._run(  # all of them: with a clock set back an older one may reach further than the last
            "UPDATE memory_versions SET valid_to = min(coalesce(valid_to, ?), ?)"
            " WHERE team_id = ? AND id = ? AND version < ?",
            (begin, begin, row.team_id, row.id, row.version),
        )
        self._run(
            "UPDATE memories SET version = ? WHERE team_id = ? AND id = ?", (row.version, row.team_id, row.id)
        )

    def supersede_memory(self, team_id: str, memory_id: str, by: str, begin: int, now: int) -> None:
        self._run(
            "UPDATE memory_versions SET state = 'superseded', superseded_at = ?, superseded_by = ?,"
            " valid_to = min(coalesce(valid_to, ?), ?)"
            " WHERE team_id = ? AND id = ? AND state = 'live'",
            (now, by, begin, begin, team_id, memory_id),
        )

    def revive_memory(self, team_id: str, memory_id: str) -> None:
        self._run(  # what is not deleted never left the indexes
            "UPDATE memory_versions SET state = 'live', superseded_at = NULL, superseded_by = NULL,"
            " valid_to = stated_valid_to WHERE team_id = ? AND id = ? AND state <> 'deleted'"
            " AND version = (SELECT version FROM memories WHERE team_id = ? AND id = ?)",
            (team_id, memory_id, team_id, memory_id),
        )

    def delete_memory(self, team_id: str, memory_id: str, now: int, actor: str) -> None:
        slots = [
            slot
            for (slot,) in self._rows(
                "SELECT slot FROM memory_versions WHERE team_id = ? AND id = ? AND state <> 'deleted'",
                (team_id, memory_id),
            )
        ]
        self._run(
            "UPDATE memory_versions SET actor = ? WHERE team_id = ? AND id = ? AND state = 'live'",
            (actor, team_id, memory_id),
        )
        self._run(
            "UPDATE memory_versions SET state = 'deleted', superseded_at = coalesce(superseded_at, ?)"
            " WHERE team_id = ? AND id = ?",
            (now, team_id, memory_id),
        )
        self._run(  # the same key may be used again: what it named is gone
            "UPDATE memories SET idempotency_key = NULL WHERE team_id = ? AND id = ?", (team_id, memory_id)
        )
        if slots:
            self._unindex("memories", team_id, slots)

    # --- embedding -----------------------------------------------------------------------------------------

    def new_generation(
        self, identity: EmbedderIdentity, state: Literal["active", "building"], now: int
    ) -> Generation:
        number = 1 + max(
            int(self._value("SELECT coalesce(max(generation), 0) FROM embedding_generations")),
            int(self.meta(_LAST_DROPPED) or 0),
        )
        self._run(
            "INSERT INTO embedding_generations (generation, model, revision, dim, query_prefix, document_prefix,"
            " state, created_at, activated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                identity.model,
                identity.revision,
                identity.dim,
                identity.query_prefix,
                identity.document_prefix,
                state,
                now,
                now if state == "active" else None,
            ),
        )
        vector_index.create(self._connection, number)
        for table, layer in self._rows("SELECT table_name, layer FROM text_indexes WHERE state = 'active'"):
            self._run(
                f"INSERT INTO pending_vectors (generation, layer, slot) SELECT ?, ?, rowid FROM {table}",
                (number, layer),
            )
        self._run("DELETE FROM pending_vectors WHERE generation = ?", (NO_GENERATION,))
        return Generation(number, identity, state)

    def activate(self, generation: int, now: int) -> None:
        self._run("UPDATE embedding_generations SET state = 'retired' WHERE state = 'active'")
        self._run(  # in order whatever the clock does: it tells which one answered before
            "UPDATE embedding_generations SET state = 'active', activated_at ="
            " (SELECT max(?, 1 + coalesce(max(activated_at), 0)) FROM embedding_generations) WHERE generation = ?",
            (now, generation),
        )
        self._run(
            "DELETE FROM pending_vectors WHERE generation IN"
            " (SELECT generation FROM embedding_generations WHERE state = 'retired')"
        )

    def retire(self, generation: int) -> None:
        self._run("UPDATE embedding_generations SET state = 'retired' WHERE generation = ?", (generation,))
        self._run("DELETE FROM pending_vectors WHERE generation = ?", (generation,))

    def take_up(self, generation: int) -> None:
        self._run("UPDATE embedding_generations SET state = 'building' WHERE generation = ?", (generation,))

    def requeue(self, generation: int) -> None:
        if generation != NO_GENERATION:
            self._drop_unsound(generation)
        for layer in LAYERS:
            self._run(
                "DELETE FROM pending_vectors WHERE generation = ? AND layer = ? AND slot NOT IN"
                f" (SELECT slot FROM {text_index.ROW_TABLE[layer]} WHERE state <> 'deleted')",
                (generation, layer),
            )
            self._run(
                "UPDATE pending_vectors SET refused = NULL WHERE generation = ? AND layer = ?",
                (generation, layer),
            )
        self.queue_missing(generation)

    def _drop_unsound(self, generation: int) -> None:
        dim = int(self._value("SELECT dim FROM embedding_generations WHERE generation = ?", (generation,)))
        vector_index.create(self._connection, generation)  # where a table was lost
        for layer in LAYERS:
            vectors = vector_index.table_name(generation, layer)
            unsound = vector_index.damaged(self._connection, generation, layer, dim)
            self._run(
                f"DELETE FROM {vectors} WHERE slot IN (SELECT value FROM json_each(?))", (slot_list(unsound),)
            )
            self._run(
                f"DELETE FROM {vectors} WHERE slot NOT IN"
                f" (SELECT slot FROM {text_index.ROW_TABLE[layer]} WHERE state <> 'deleted')"
            )
            self._run(
                "DELETE FROM pending_vectors WHERE generation = ? AND layer = ?"
                f" AND slot IN (SELECT slot FROM {vectors})",
                (generation, layer),
            )

    def queue_missing(self, generation: int) -> None:
        for table, layer in self._rows("SELECT table_name, layer FROM text_indexes WHERE state = 'active'"):
            rows = text_index.ROW_TABLE[layer]
            self._run(
                "INSERT OR IGNORE INTO pending_vectors (generation, layer, slot) SELECT ?, ?, f.rowid"
                f" FROM {table} f CROSS JOIN {rows} m ON m.slot = f.rowid WHERE m.state <> 'deleted'"
                f" {self._vector_missing(generation, layer)}",
                (generation, layer),
            )

    def shrink_generation(self, generation: int, rows: int) -> int:
        return vector_index.shrink(self._connection, generation, rows)

    def drop_generation(self, generation: int) -> None:
        vector_index.drop(self._connection, generation)
        self._run("DELETE FROM pending_vectors WHERE generation = ?", (generation,))
        self._run("DELETE FROM embedding_generations WHERE generation = ?", (generation,))
        # A number given out twice would let a slow indexer of the dropped model write into another's space.
        self.set_meta(_LAST_DROPPED, str(max(generation, int(self.meta(_LAST_DROPPED) or 0))))

    def put_vectors(
        self, generation: int, layer: Layer, refs: Sequence[Ref], vectors: "NDArray[np.float32]"
    ) -> int:
        return vector_index.put(self._connection, generation, layer, refs, vectors)

    def refuse_vectors(self, generation: int, layer: Layer, reasons: Mapping[Ref, str]) -> None:
        self._connection.executemany(
            "UPDATE pending_vectors SET refused = ? WHERE generation = ? AND layer = ? AND slot = ?",
            [(reason, generation, layer, ref) for ref, reason in reasons.items()],
        ).fetchall()

    # --- fallback, rebuilds --------------------------------------------------------------------------------

    def put_trace(self, row: TraceRow) -> None:
        self._run(
            insert_sql("recall_traces", TRACE_COLUMNS), [getattr(row, column) for column in TRACE_COLUMNS]
        )

    def drop_trace(self, team_id: str, user_id: str, trace_id: str) -> bool:
        dropped = self._run(
            "DELETE FROM recall_traces WHERE team_id = ? AND user_id = ? AND id = ?",
            (team_id, user_id, trace_id),
        )
        return dropped > 0

    def set_fallback_mark(self, day: str, applied_bytes: int, tail: int | None) -> None:
        self._run(
            "INSERT INTO fallback_days (day, applied_bytes, tail) VALUES (?, ?, ?) ON CONFLICT (day)"
            " DO UPDATE SET applied_bytes = excluded.applied_bytes, tail = excluded.tail",
            (day, applied_bytes, tail),
        )

    def forget_day(self, day: str) -> None:
        self._run("DELETE FROM fallback_days WHERE day = ?", (day,))
        self._run("DELETE FROM backup_days WHERE day = ?", (day,))

    def put_backup(self, row: BackupRow, days: Mapping[str, int]) -> int:
        self._run("DELETE FROM backups WHERE path = ?", (row.path,))
        self._run(
            "INSERT INTO backups (path, taken_at, bytes, sha256, verified_at) VALUES (?, ?, ?, ?, ?)",
            (row.path, row.taken_at, row.bytes, row.sha256, row.verified_at),
        )
        number = self._connection.last_insert_rowid()
        self._connection.executemany(
            "INSERT INTO backup_days (backup_no, day, covered_bytes) VALUES (?, ?, ?)",
            [(number, day, covered) for day, covered in days.items()],
        ).fetchall()
        return number

    def drop_backup(self, number: int) -> None:
        self._run("DELETE FROM backups WHERE backup_no = ?", (number,))

    def keep_unwritten_lines(self, lines: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self._connection.executemany(
            "INSERT INTO unwritten_lines (number, operation) VALUES (?, ?)",
            [(number, ordered_json(operation)) for number, operation in lines],
        ).fetchall()

    def forget_unwritten_lines(self, numbers: Sequence[int]) -> None:
        self._run(
            "DELETE FROM unwritten_lines WHERE number IN (SELECT value FROM json_each(?))",
            (slot_list(numbers),),
        )

    def put_text(self, layer: Layer, team_id: str, rows: Sequence[tuple[Ref, IndexTokens]]) -> None:
        self._drop_tokens(layer, team_id, [ref for ref, _ in rows])
        kept = [(ref, tokens) for ref, tokens in rows if tokens]
        if kept:
            self._put_tokens(layer, team_id, kept)

    def begin_text_index(self, layer: Layer, team_id: str, tokenizer: str) -> bool:
        team_no = self._team_no(team_id)
        building = self._tables(layer, team_id).get("building")
        rows = self.text_rows(layer, team_id, Ref(0), 1)
        if (
            rows
            and building is not None
            and building.tokenizer == tokenizer
            and text_index.integrity_fault(self._connection, building.name) is None
        ):
            return True
        self._text_tables.pop((layer, team_id))
        text_index.drop(self._connection, text_index.table_name(layer, team_no, "building"))
        if rows:
            text_index.create(self._connection, layer, team_no, tokenizer, "building")
        else:  # what the active one holds is left over
            text_index.drop(self._connection, text_index.table_name(layer, team_no))
        return bool(rows)

    def fill_text_index(
        self, layer: Layer, team_id: str, after: Ref, rows: Sequence[tuple[Ref, IndexTokens]]
    ) -> None:
        building = self._tables(layer, team_id).get("building")
        if building is None or building.filled_to != after or not rows:
            return
        cut = {int(ref): tokens for ref, tokens in rows if tokens.tokenizer == building.tokenizer}
        low, up_to = max(after, keys.team_range(self._team_no(team_id)).first - 1), int(rows[-1][0])
        present = self._rows(
            f"SELECT slot FROM {text_index.ROW_TABLE[layer]}"
            " WHERE slot > ? AND slot <= ? AND state <> 'deleted' ORDER BY slot",
            (low, up_to),
        )
        unknown = next((slot for (slot,) in present if slot not in cut), None)
        if unknown is not None:  # came in after the rows were read
            up_to = unknown - 1
        self._run(f"DELETE FROM {building.name} WHERE rowid > ? AND rowid <= ?", (low, up_to))
        found = [(slot, cut[slot]) for (slot,) in present if slot <= up_to and cut[slot]]
        text_index.insert(self._connection, building.name, found)
        self._set_filled_to(layer, team_id, building.name, up_to)

    def switch_text_index(self, layer: Layer, team_id: str) -> None:
        text_index.switch(self._connection, layer, self._team_no(team_id))
        self._text_tables.pop((layer, team_id), None)

    def relabel_text_index(self, layer: Layer, team_id: str, old: str, new: str) -> None:
        self._run(
            "UPDATE text_indexes SET tokenizer = ? WHERE team_no = ? AND layer = ? AND state = 'active'"
            " AND tokenizer = ?",
            (new, self._team_no(team_id), layer, old),
        )
        self._text_tables.pop((layer, team_id), None)
