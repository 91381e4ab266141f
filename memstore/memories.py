"""Memories and messages by id: add, get, list, update, delete, history. No model takes part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from memstore.access import Operation, Principal, decide, holds, narrowed
from memstore.asking import Instant, principal, row_facts, row_filter
from memstore.canonical import canonical_json, check_encodable, checksum
from memstore.clock import Clock
from memstore.cursor import not_ours, read_cursor, write_cursor
from memstore.errors import InvalidInput, NotFound, NotPermitted
from memstore.fallback import Operation as Line
from memstore.ids import is_id, new_id
from memstore.journal import Journal
from memstore.session_key import parse_session_key
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import (
    ABSOLUTE_PRIORITY,
    KINDS,
    MAX_PRIORITY,
    TRUST,
    VISIBILITIES,
    Memory,
    Page,
    Scope,
    StoredMessage,
)
from memstore.views import memory, stored_message

MAX_CURSOR_NUMBER = 2**41
DELETE_CHUNK = 500
"""Ids named by one ``delete`` line of the fallback."""


class Memories:
    """Rows by id, under the access rules."""

    def __init__(
        self, storage: Storage, journal: Journal, tokenizers: Tokenizers, clock: Clock, instant: Instant
    ) -> None:
        self._storage = storage
        self._journal = journal
        self._tokenizers = tokenizers
        self._clock = clock
        self._instant = instant

    def _now(self) -> int:
        return to_micros(self._clock.now())

    # --- writing -------------------------------------------------------------------------------------------

    def add(
        self,
        scope: Scope,
        content: str,
        *,
        kind: str,
        priority: int,
        metadata: Mapping[str, Any] | None,
        visibility: str,
        valid_from: object,
        valid_to: object,
        expires_at: object,
        session: str | None,
        idempotency_key: str | None,
    ) -> Memory:
        """See :meth:`memstore.store.MemoryStore.add`."""
        row = self._new_row(scope, content, kind, priority, metadata, visibility, session)
        row = self._with_times(row, valid_from, valid_to, expires_at)
        if idempotency_key is not None:
            _check_text("idempotency_key", idempotency_key)
        tokens = self._tokenizers.likely(scope.team_id).index(content)
        with self._storage.write(stands=_stands(row)) as tx:
            if not tx.join(scope.team_id, scope.user_id, row.recorded_at).is_member:
                raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
            if idempotency_key is not None:
                known = tx.memory_by_idempotency_key(scope.team_id, scope.user_id, idempotency_key)
                if known is not None:
                    return memory(known)
            tokens = self._tokenizers.of(tx, scope.team_id).renewed(tokens, content)
            row = tx.insert_memory(row, tokens, idempotency_key)
            _enqueue_index(tx, row)
        return memory(row)

    def _new_row(
        self,
        scope: Scope,
        content: str,
        kind: str,
        priority: int,
        metadata: Mapping[str, Any] | None,
        visibility: str,
        session: str | None,
    ) -> MemoryRow:
        _check_content(content)
        _check_one_of("kind", kind, KINDS)
        _check_one_of("visibility", visibility, VISIBILITIES)
        _check_priority(priority, kind)
        if kind != "persona" and scope.agent_id is None:
            raise InvalidInput(
                f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} memory belongs to an agent: set Scope.agent_id "
                "(only persona memories belong to the user alone)"
            )
        persona = kind == "persona"
        now = self._clock.now()
        return MemoryRow(
            id=new_id(now),
            version=1,
            team_id=scope.team_id,
            user_id=scope.user_id,
            agent_id=None if persona else scope.agent_id,
            task_id=None if persona else scope.task_id,
            kind=kind,
            priority=priority,
            content=content,
            metadata=_metadata_json(metadata),
            visibility=visibility,
            session=None if session is None else str(parse_session_key(session, scope.agent_id)),
            produced_by_agent=scope.agent_id,
            checksum=checksum(kind, content),
            source_kind="user",
            trust=TRUST["user"],
            recorded_at=to_micros(now),
            created_at=to_micros(now),
            actor=scope.user_id,
        )

    def _with_times(
        self, row: MemoryRow, valid_from: object, valid_to: object, expires_at: object
    ) -> MemoryRow:
        """A memory holds from when it was recorded, unless told otherwise or already over by then."""
        begin, end, expiry = self._instant(valid_from), self._instant(valid_to), self._instant(expires_at)
        if begin is None and (end is None or end > row.recorded_at):
            begin = row.recorded_at
        if begin is not None and end is not None and end <= begin:
            raise InvalidInput("valid_to must be later than valid_from")
        return replace(row, valid_from=begin, valid_to=end, expires_at=expiry)

    def update(
        self,
        scope: Scope,
        memory_id: str,
        *,
        content: str | None,
        kind: str | None,
        priority: int | None,
        metadata: Mapping[str, Any] | None,
        valid_from: object,
        valid_to: object,
        expires_at: object,
        expected_version: int | None,
    ) -> Memory:
        """See :meth:`memstore.store.MemoryStore.update`."""
        if content is not None:
            _check_content(content)
        tokens = self._tokenizers.likely(scope.team_id).index(content) if content is not None else None
        made: list[MemoryRow] = []
        with self._storage.write(stands=lambda reader: _all_stand(reader, made)) as tx:
            old = self._memory_for(tx, scope, memory_id, "add_version")
            if expected_version is not None and expected_version != old.version:
                raise InvalidInput(
                    f"memory {memory_id} has version {old.version}, not {expected_version}: read it again"
                )
            begin, end, expiry = self._instant(valid_from), self._instant(valid_to), self._instant(expires_at)
            changed = replace(
                self._changed(old, content, kind, priority, metadata),
                valid_from=old.valid_from if begin is None else begin,
                valid_to=old.valid_to if end is None else end,
                expires_at=old.expires_at if expiry is None else expiry,
            )
            if changed == old:
                return memory(old)
            now = self._now()
            row = replace(changed, version=old.version + 1, recorded_at=now, actor=scope.user_id)
            row = _holding_from(row, old, now, begin, end)
            tokens = self._tokenizers.of(tx, scope.team_id).renewed(tokens, row.content)
            row = tx.insert_memory(row, tokens)
            made.append(row)
            _enqueue_index(tx, row)
        return memory(row)

    def _changed(
        self,
        old: MemoryRow,
        content: str | None,
        kind: str | None,
        priority: int | None,
        metadata: Mapping[str, Any] | None,
    ) -> MemoryRow:
        if kind is not None and kind != old.kind:
            raise InvalidInput(
                f"memory {old.id} is {old.kind}: its kind does not change; add a new memory instead"
            )
        if priority is not None:
            _check_priority(priority, old.kind)
        text = old.content if content is None else content
        return replace(
            old,
            content=text,
            checksum=checksum(old.kind, text),
            priority=old.priority if priority is None else priority,
            metadata=old.metadata if metadata is None else _metadata_json(metadata),
        )

    def delete(self, scope: Scope, row_id: str) -> None:
        """See :meth:`memstore.store.MemoryStore.delete`."""
        with self._storage.read() as reader:
            is_message = isinstance(self._find(reader, scope, row_id), MessageRow)
        if is_message:
            self._journal.change(partial(self._delete_message, scope, row_id), frees=True)
            return
        with self._storage.write(stands=_deleted(scope, [row_id])) as tx:
            self._memory_for(tx, scope, row_id, "delete")
            tx.delete_memory(scope.team_id, row_id, self._now(), scope.user_id)

    def _delete_message(self, scope: Scope, row_id: str, tx: Writer, lines: list[Line]) -> None:
        self._message_for(tx, scope, row_id, "delete")
        self._delete_messages(scope, [row_id], tx, lines)

    def _delete_messages(self, scope: Scope, ids: list[str], tx: Writer, lines: list[Line]) -> int:
        now = self._now()
        lines.append({"op": "delete", "team_id": scope.team_id, "ids": ids, "at": now})
        return tx.delete_messages(scope.team_id, ids, now)

    def delete_all(self, scope: Scope) -> int:
        """See :meth:`memstore.store.MemoryStore.delete_all`."""
        with self._storage.read() as reader:
            if not principal(reader, scope).is_member:
                return 0
            message_ids, memory_ids = reader.owned_ids(
                scope.team_id, scope.user_id, scope.agent_id, scope.task_id
            )
        deleted = 0
        if memory_ids:
            with self._storage.write(stands=_deleted(scope, memory_ids)) as tx:
                for memory_id in memory_ids:
                    tx.delete_memory(scope.team_id, memory_id, self._now(), scope.user_id)
            deleted += len(memory_ids)
        for start in range(0, len(message_ids), DELETE_CHUNK):
            chunk = message_ids[start : start + DELETE_CHUNK]
            delete = partial(self._delete_messages, scope, chunk)
            deleted += self._journal.change(delete, frees=True)
        return deleted

    # --- reading -------------------------------------------------------------------------------------------

    def get(self, scope: Scope, row_id: str) -> Memory | StoredMessage | None:
        """See :meth:`memstore.store.MemoryStore.get`."""
        with self._storage.read() as reader:
            found = self._find(reader, scope, row_id)
        if found is None:
            return None
        return stored_message(found) if isinstance(found, MessageRow) else memory(found)

    def history(self, scope: Scope, row_id: str) -> list[Memory | StoredMessage]:
        """See :meth:`memstore.store.MemoryStore.history`."""
        with self._storage.read() as reader:
            asker = principal(reader, scope)
            versions = reader.memory_history(scope.team_id, row_id) if is_id(row_id) else []
            allowed = [row for row in versions if self._allowed(asker, "history", row)]
            if allowed:
                return [memory(row) for row in allowed]
            message = reader.message(scope.team_id, row_id) if is_id(row_id) else None
        if message is None or not self._allowed(asker, "history", message):
            raise NotFound(f"no memory or message {row_id!r:.60} for this asker")
        return [stored_message(message)]

    def page(
        self,
        scope: Scope,
        *,
        limit: int,
        cursor: str | None,
        kinds: Sequence[str] | None,
        as_of: object,
        known_at: object,
        include_history: bool,
        metadata: Mapping[str, Any] | None,
    ) -> Page[Memory]:
        """See :meth:`memstore.store.MemoryStore.get_all`."""
        after = _read_cursor(cursor) if cursor is not None else None
        if limit == 0:
            return Page([], None)
        with self._storage.read() as reader:
            where = row_filter(
                principal(reader, scope),
                "list",
                "memories",
                now=self._now(),
                kinds=kinds,
                as_of=self._instant(as_of),
                known_at=self._instant(known_at),
                include_history=include_history,
                metadata=metadata,
            )
            rows, following = reader.memory_page(where, limit, after)
        return Page([memory(row) for row in rows], write_cursor(following))

    def _find(self, reader: Reader, scope: Scope, row_id: str) -> MemoryRow | MessageRow | None:
        if not is_id(row_id):
            return None
        asker = principal(reader, scope)
        row = reader.memory(scope.team_id, row_id) or reader.message(scope.team_id, row_id)
        return row if row is not None and self._allowed(asker, "get", row) else None

    def _allowed(
        self, asker: Principal, operation: Operation, row: MemoryRow | MessageRow, *, history: bool = False
    ) -> bool:
        if isinstance(row, MessageRow) and row.hidden:
            return False
        facts = self._facts(row)
        return decide(asker, operation, facts, history=history).allowed and holds(
            narrowed(asker.scope), facts
        )

    def _facts(self, row: MemoryRow | MessageRow) -> dict[str, Any]:
        """The columns that the access rules look at; a row past its expiry is expired whatever its state says."""
        facts = row_facts(row)
        if isinstance(row, MemoryRow) and row.expires_at is not None and row.expires_at <= self._now():
            facts["state"] = "expired" if row.state == "live" else row.state
        return facts

    def _memory_for(self, tx: Writer, scope: Scope, memory_id: str, operation: Operation) -> MemoryRow:
        """The memory, if the asker may do this to it.

        :raises NotFound: when it is not there for this asker. :raises NotPermitted: when it may only be read.
        """
        asker = principal(tx, scope)
        row = tx.memory(scope.team_id, memory_id) if is_id(memory_id) else None
        if row is None or not self._allowed(asker, "get", row, history=operation == "delete"):
            if isinstance(self._find(tx, scope, memory_id), MessageRow):
                raise InvalidInput(
                    f"{memory_id} is a message: messages are kept as they were said and not updated"
                )
            raise NotFound(f"no memory {memory_id!r:.60} for this asker")
        decision = decide(asker, operation, self._facts(row), history=operation == "delete")
        if not decision.allowed:
            raise NotPermitted(
                f"memory {memory_id} may be read but not changed by {scope.user_id!r}: {decision.rule}"
            )
        return row

    def _message_for(self, tx: Writer, scope: Scope, message_id: str, operation: Operation) -> MessageRow:
        asker = principal(tx, scope)
        row = tx.message(scope.team_id, message_id)
        if row is None or not self._allowed(asker, operation, row):
            raise NotFound(f"no message {message_id!r:.60} for this asker")
        return row


def _stands(row: MemoryRow) -> Callable[[Reader], bool]:
    """Whether a version is stored: settles a commit whose outcome was left open."""
    return lambda reader: _all_stand(reader, [row])


def _all_stand(reader: Reader, rows: Sequence[MemoryRow]) -> bool:
    return all(
        any(
            (held.version, held.checksum, held.recorded_at) == (row.version, row.checksum, row.recorded_at)
            for held in reader.memory_history(row.team_id, row.id)
        )
        for row in rows
    )


def _deleted(scope: Scope, ids: Sequence[str]) -> Callable[[Reader], bool]:
    return lambda reader: all(
        held.state == "deleted" for one in ids for held in reader.memory_history(scope.team_id, one)
    )


def _holding_from(row: MemoryRow, old: MemoryRow, now: int, begin: int | None, end: int | None) -> MemoryRow:
    """A new version holds from now on, unless it is told when, or that it is over: then from when it did before."""
    if end is None and row.valid_to is not None and row.valid_to <= now:
        row = replace(row, valid_to=None)
    still_to_come = old.valid_from is not None and old.valid_from > max(now, old.recorded_at)
    if begin is None and not still_to_come and (end is None or end > now):
        row = replace(row, valid_from=now)
    if row.valid_from is not None and row.valid_to is not None and row.valid_to <= row.valid_from:
        raise InvalidInput("valid_to must be later than valid_from")
    return row


def _enqueue_index(tx: Writer, row: MemoryRow) -> None:
    payload = {"team_id": row.team_id, "user_id": row.user_id}
    tx.enqueue("index", f"index:{row.team_id}:{row.user_id}", payload, row.recorded_at)


def _check_content(content: object) -> None:
    if not isinstance(content, str):
        raise InvalidInput(f"a memory's content is text, not {type(content).__name__}")
    if not content.strip():
        raise InvalidInput("a memory's content must not be empty")
    check_encodable(content, "content")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be text that is not empty, not {value!r:.60}")
    check_encodable(value, name)


def _check_one_of(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidInput(f"{name} {value!r:.60} is none of {', '.join(known)}")


def _check_priority(priority: object, kind: str) -> None:
    if (
        isinstance(priority, bool)
        or not isinstance(priority, int)
        or not ABSOLUTE_PRIORITY <= priority <= MAX_PRIORITY
    ):
        raise InvalidInput(f"priority must be a whole number from 0 to 100, not {priority!r:.60}")
    if priority == ABSOLUTE_PRIORITY and kind != "instruction":
        raise InvalidInput("priority -1 (always injected) is for instructions only")


def _metadata_json(metadata: Mapping[str, Any] | None) -> str:
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise InvalidInput("metadata must be a mapping with text keys")
    return canonical_json(dict(metadata), "metadata")


def _read_cursor(cursor: str) -> tuple[int, int]:
    match read_cursor(cursor):
        case [int(own), int(shared)] if 0 <= own < MAX_CURSOR_NUMBER and 0 <= shared < MAX_CURSOR_NUMBER:
            return own, shared
    raise not_ours(cursor)
