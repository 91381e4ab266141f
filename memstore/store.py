"""The facade: :class:`MemoryStore` puts the parts together and is what callers hold."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

from memstore import doctor as checks
from memstore.asking import check_scope, principal, row_filter
from memstore.backup import Backups, missing_but_not_lost, newest_file
from memstore.buffer import Buffer
from memstore.canonical import check_encodable
from memstore.changes import changes_between
from memstore.clock import Clock, SystemClock
from memstore.config import MAX_LIMIT, Settings, machine_zone_name
from memstore.dictionary import Dictionaries
from memstore.distilling import Distilling
from memstore.embedding import Embedder, resolve
from memstore.errors import (
    ConfigError,
    FallbackError,
    InvalidInput,
    NotFound,
    StoreBusy,
    StoreError,
    StoreExists,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreUnsound,
)
from memstore.fallback import Fallback, Operation
from memstore.file_system import check_local, kind_of
from memstore.files import SYSTEM_FILES, Files
from memstore.ids import new_id
from memstore.journal import Journal
from memstore.llm import LLM
from memstore.llms import resolve_llm
from memstore.memories import Memories
from memstore.operations import live_operation, session_operation
from memstore.paths import checked_path, quoted
from memstore.pipelines.cost import judges
from memstore.pipelines.work import Pipelines
from memstore.recall import QueryEmbedding, Question, Recaller, Traces, floors, why_not
from memstore.record import Recorder
from memstore.recovery import header, new_meta, recover
from memstore.reserve import Reserve, delete_with_room, with_room
from memstore.restore import restore
from memstore.retention import Retention
from memstore.session_key import parse_session_key
from memstore.storage.base import Writer
from memstore.storage.rows import SessionRow
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.checks import examine_rows
from memstore.storage.sqlite.connection import StatementHook
from memstore.storage.sqlite.log_check import check_log
from memstore.text import variant_table
from memstore.times import parse_instant, to_micros, zone
from memstore.tokenizers import Tokenizers
from memstore.types import (
    Change,
    DictionaryReport,
    DictionaryWord,
    DoctorReport,
    Kind,
    Memory,
    Message,
    Page,
    Progress,
    Recall,
    RecallTrace,
    Receipt,
    RecoverReport,
    Replay,
    RestoreReport,
    Role,
    Scope,
    SessionRecord,
    SourceKind,
    StoredMessage,
    Visibility,
    WhyNot,
    check_limit,
)
from memstore.upkeep import Upkeep
from memstore.views import stored_message

logger = logging.getLogger("memstore")

When = date | str | float | None
"""A time as callers give it: aware datetime, date (its midnight in the store's zone), ISO 8601 text (without an offset:
the store's zone) or seconds."""


class MemoryStore(Distilling, Upkeep):
    """A memory store in one SQLite file, with a daily JSONL fallback beside it.

    Safe to share between threads; several processes may hold the same file. A forked child can use neither this object
    nor the file it has open: open stores behind the fork, or start processes by ``spawn`` or ``forkserver``.

    :param path: the database file; made when it is missing.
    :param embedder: None (text search only), an :class:`Embedder`, ``"local"`` for the packaged multilingual
        model, or ``"st:<name or folder>"`` for a sentence-transformers model. Nothing is loaded before it is used.
    :param clock: the source of time, for tests.
    :param settings: see :class:`Settings`.
    :param llm: who judges conversations in the background: an :class:`memstore.llm.LLM`, such as
        :class:`memstore.llms.openai.OpenAIChat`, or ``"openai:<model>@<base url>"``. None: rules, without any model.
    :param vfs: name of the SQLite file layer that the database goes through, and ``files`` what the fallback is
        written by: for tests that let them fail, see :mod:`memstore.testing`.
    :raises StoreMissing: when the file is missing while its fallback holds messages, or backups of it are there.
    :raises StoreUnsound: when the file is no sound memstore database; it is left untouched.
    :raises StoreTooNew: when it was written by a newer memstore; it is left untouched.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        embedder: Embedder | str | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        *,
        llm: LLM | str | None = None,
        statement_hook: StatementHook | None = None,
        vfs: str | None = None,
        files: Files | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._clock: Clock = clock or SystemClock()
        self._embedder = resolve(embedder)
        self._llm = resolve_llm(llm)
        self.path = checked_path(path)
        self._tokenizers = Tokenizers()
        self._buffers: WeakSet[Buffer] = WeakSet()
        self._vfs, self._files = vfs, files or SYSTEM_FILES
        self._reserve = Reserve(self.path, self.settings.reserve_bytes, self._files)
        check_local(self.path, kind_of(self.path), forced=self.settings.network_file_system)
        if not self.path.exists():
            found = missing_but_not_lost(self.path, self._clock.now())
            if found is not None:
                raise StoreMissing(found)
            self._create(self.path)
        try:
            self._storage = self._opened(statement_hook)
        except StoreFull as error:  # even reading needs room for the index of the log
            if not self._reserve.give_up_for(error):
                raise
            self._storage = self._opened(statement_hook)
        self._reserve = replace(self._reserve, afterwards=self._bring_log_in)
        try:
            self._assemble()
            self.adopted = self._reconcile()
        except BaseException:
            self._storage.close()
            raise
        self._reserve.make()

    def _bring_log_in(self) -> None:
        """Empty the write-ahead log if that can be done: on a small disk it may hold most of the space."""
        try:
            self._storage.checkpoint()
        except StoreError as error:
            logger.debug("the write-ahead log could not be emptied: %s", error)

    def _opened(self, hook: StatementHook | None) -> SqliteStorage:
        return SqliteStorage(
            self.path,
            busy_timeout_s=self.settings.busy_timeout_s,
            durability=self.settings.durability,
            idle_checkpoint_s=self.settings.idle_checkpoint_s,
            hook=hook,
            vfs=self._vfs,
        )

    def _reconcile(self) -> int:
        """Adopt what the fallback holds and the database does not; returns how many messages. Where nothing can be
        written now, reading goes on without them, and the next write tries again."""
        try:
            return self._journal.reconcile()
        except (FallbackError, StoreFull, StoreReadOnly, StoreBusy) as error:
            logger.warning(
                "database and fallback could not be brought together yet, the next write tries again: %s",
                error,
            )
            return 0

    def _create(self, path: Path) -> None:
        zone_name = self.settings.timezone or machine_zone_name()
        zone(zone_name)
        try:
            meta = new_meta(new_id(self._clock.now()), zone_name, self.settings)
            SqliteStorage.create(path, meta, vfs=self._vfs, files=self._files)
        except StoreExists:
            return  # another process was faster, and its store serves as well

    def _assemble(self) -> None:
        self.store_id, zone_name = self._identity()
        self._check_folding()
        self.timezone = zone(zone_name)
        durable = self.settings.durability == "disk"
        self._fallback = Fallback(
            self.path,
            self.timezone,
            durable=durable,
            header=self._header(self.store_id),
            files=self._files,
            timeout_s=self.settings.busy_timeout_s,
        )
        self._tokenizers.zone = self.timezone
        self._journal = Journal(
            self._storage,
            self._fallback,
            self._tokenizers,
            self._clock,
            self._reserve.give_up_for,
            self._take_up_quarantine,
        )
        self._recorder = Recorder(self._storage, self._journal, self._tokenizers, self._clock, self.timezone)
        self._memories = Memories(self._storage, self._journal, self._tokenizers, self._clock, self._instant)
        self._dictionaries = Dictionaries(self._storage, self._tokenizers, self._clock)
        self._embedding = QueryEmbedding(self._embedder) if self._embedder is not None else None
        self._recaller = Recaller(
            self._storage, self._tokenizers, self._embedding, self.settings, self._clock, self._instant
        )
        self._traces = Traces(self._storage, self._recaller)
        self._pipelines = Pipelines(
            self._storage,
            self._tokenizers,
            self._clock,
            self.timezone,
            self.settings,
            self._recaller,
            judges(self._storage, self._llm, self._clock, self.timezone, self.settings),
        )
        self._backups = Backups(self._storage, self.path, self.store_id, self._clock, self._vfs, self._files)
        self._retention = Retention(self._storage, self._fallback, self._clock, self.timezone, self._files)

    def _identity(self) -> tuple[str, str]:
        """The store's id and zone, which were fixed when it was made.

        :raises ConfigError: when the settings name another zone than the store's.
        """
        with self._storage.read() as reader:
            store_id, zone_name = reader.meta("store_id"), reader.meta("timezone")
            if (store_id is None or zone_name is None) and reader.team_ids():
                raise StoreUnsound(
                    f"{self.path} holds rows, but not its own id and zone: it is damaged, and left as it is. "
                    f"Run: memstore doctor --db {quoted(self.path)}"
                )
        if store_id is None or zone_name is None:  # an empty file that only now got its tables
            zone_name = self.settings.timezone or machine_zone_name()
            meta = new_meta(new_id(self._clock.now()), zone_name, self.settings)
            with self._storage.write() as tx:
                if tx.meta("store_id") is None:
                    for key, value in meta.items():
                        tx.set_meta(key, value)
                store_id = tx.meta("store_id") or meta["store_id"]
                zone_name = tx.meta("timezone") or zone_name
        if self.settings.timezone is not None and self.settings.timezone != zone_name:
            raise ConfigError(
                f"the store's time zone is {zone_name} and does not change; the settings say {self.settings.timezone}"
            )
        return store_id, zone_name

    def _header(self, store_id: str) -> Operation:
        with self._storage.read() as reader:
            folds = reader.segmentation("").fold_variants
        return header(store_id, self.timezone, fold_variants=folds)

    def _check_folding(self) -> None:
        """:raises ConfigError: when the settings contradict the store, or OpenCC is missing where it folds."""
        with self._storage.read() as reader:
            folds = reader.segmentation("").fold_variants
        if folds:
            variant_table()
        if self.settings.fold_variants not in (None, folds):
            raise ConfigError(
                f"the store {'folds' if folds else 'does not fold'} traditional and simplified characters, the settings "
                f"say otherwise; to change it run: memstore reindex --{'no-' if folds else ''}fold-variants"
            )

    def _instant(self, value: object) -> int | None:
        return None if value is None else to_micros(parse_instant(value, self.timezone)[0])

    # --- writing -------------------------------------------------------------------------------------------

    def record(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        transcript: bool = False,
        source_kind: SourceKind | None = None,
    ) -> Receipt:
        """Keep conversation messages. No model is called. All messages of a call are kept when this returns, or none.

        A message with a client id is stored once per session; the first content is kept. One without an id is
        new, unless ``transcript`` says that the list is the client's whole history: then it is laid on what the
        session holds, only its end is new, and a contradiction starts a branch.

        ``Receipt.stored`` says where they are: normally in ``both``, the database and the daily fallback. When the
        database takes no write (locked past the timeout, disk full, damage met) they are kept in the ``fallback`` and
        come into the database before the next write that succeeds, in this process or another; reads do not see them
        until then. When the fallback takes no line they are kept in the ``database``, which appends them there later.

        :param session: ``agent:channel:chat_id``, or a bare chat id.
        :raises InvalidInput: naming what was wrong; nothing is stored then.
        :raises StoreError: when neither of the two could be written; nothing is stored then.
        """
        call = self._recorder.prepare(
            check_scope(scope), messages, session, transcript=transcript, source_kind=source_kind
        )
        outcome = self._recorder.record([call])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def buffered(self, messages: int = 100, seconds: float = 1.0) -> Buffer:
        """Record in batches: one transaction, and one sync, for up to so many messages or as many as come in so long.

        Use it as a context manager. Its ``record`` takes what :meth:`record` takes and returns a future of the
        receipt at once: what was not flushed yet is not acknowledged, and is lost with the process.
        """
        buffer = Buffer(self._recorder, messages, seconds)
        self._buffers.add(buffer)
        return buffer

    def add(
        self,
        scope: Scope,
        content: str,
        *,
        kind: Kind = "episodic",
        priority: int = 50,
        metadata: Mapping[str, Any] | None = None,
        visibility: Visibility = "private",
        valid_from: When = None,
        valid_to: When = None,
        expires_at: When = None,
        session: str | None = None,
        idempotency_key: str | None = None,
    ) -> Memory:
        """Keep one memory, as given. No model is called.

        A persona memory belongs to the user across agents; other kinds need ``scope.agent_id``. ``valid_from``
        defaults to now. With an idempotency key that was used before, the memory of that time is returned.

        :param priority: 0 to 100; -1 on an instruction: always injected.
        :raises InvalidInput: naming what was wrong.
        """
        return self._memories.add(
            check_scope(scope),
            content,
            kind=kind,
            priority=priority,
            metadata=metadata,
            visibility=visibility,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=expires_at,
            session=session,
            idempotency_key=idempotency_key,
        )

    def update(
        self,
        scope: Scope,
        id: str,  # noqa: A002 - the field's standard verb
        *,
        content: str | None = None,
        kind: Kind | None = None,
        priority: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        valid_from: When = None,
        valid_to: When = None,
        expires_at: When = None,
        expected_version: int | None = None,
    ) -> Memory:
        """Add a version to a memory; its id stays, the version before is superseded and kept.

        :param expected_version: refuse when the memory has moved on since it was read.
        :raises NotFound: for missing and foreign ids alike. :raises NotPermitted: when it may only be read.
        """
        return self._memories.update(
            check_scope(scope),
            id,
            content=content,
            kind=kind,
            priority=priority,
            metadata=metadata,
            valid_from=valid_from,
            valid_to=valid_to,
            expires_at=expires_at,
            expected_version=expected_version,
        )

    def delete(self, scope: Scope, id: str) -> None:  # noqa: A002
        """Delete a memory or a message: it leaves every index and every answer.

        It is not an erasure: the owner still reads it through :meth:`history`, and the fallback files and backups
        still hold it.

        :raises NotFound: for missing and foreign ids alike.
        """
        delete_with_room(self._reserve, lambda: self._memories.delete(check_scope(scope), id))

    def delete_all(self, scope: Scope) -> int:
        """Delete the asker's own messages and memories; returns how many. With an agent or task in the scope its
        rows alone: what belongs to the user across agents stays. An error half-way leaves what was deleted by then
        deleted; call it again for the rest."""
        return with_room(self._reserve, lambda: self._memories.delete_all(check_scope(scope)))

    # --- recall --------------------------------------------------------------------------------------------

    def recall(
        self,
        scope: Scope,
        query: str,
        limit: int = 5,
        *,
        kinds: Sequence[Kind] | None = None,
        since: When = None,
        until: When = None,
        as_of: When = None,
        known_at: When = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        include_history: bool = False,
        explain: bool = False,
        trace: bool = False,
        timeout_s: float = 5.0,
    ) -> Recall:
        """The memories that answer a query best, from text and vector search fused by reciprocal rank.

        Any text is a legal query. Filters apply before ranking. By default only current memories are asked:
        ``as_of`` asks what was true then, ``include_history`` also returns superseded versions.

        ``known_at`` asks what the store knew then: alone it gives the memories that this recall would have found at
        that time, with ``as_of`` what was true then by what was known at ``known_at``. An update or a correction
        recorded later is not known, also where it is valid from before. Rows are shown as they are now (``state``),
        ranked by the statistics of now and allowed by the rights of now; what was deleted since is in no index and
        does not come back. Knowledge goes by the stamps of recording: what was recorded while the clock was set back
        counts as known from that earlier stamp on.

        :param since: recorded at or after; ``until``: recorded before.
        :param limit: 0 gives an empty answer; more than 10,000 is cut to that.
        :param explain: say of each hit and each candidate how it stood: ``Recall.explanation``.
        :param trace: keep question and answer in the store, for :meth:`replay`; ``Recall.trace_id`` names it.
        :param timeout_s: what is not ready by then is left out, and ``Recall.degraded`` says so.
        """
        return self._ask(
            check_scope(scope),
            Question(
                query=query,
                layer="memories",
                limit=limit,
                kinds=kinds,
                since=since,
                until=until,
                as_of=as_of,
                known_at=known_at,
                session=self._session_filter(scope, session),
                metadata=metadata,
                include_history=include_history,
                explain=explain,
                trace=trace,
                timeout_s=timeout_s,
            ),
        )

    search = recall

    def search_messages(
        self,
        scope: Scope,
        query: str,
        limit: int = 5,
        *,
        session: str | None = None,
        since: When = None,
        until: When = None,
        known_at: When = None,
        roles: Sequence[Role] | None = None,
        metadata: Mapping[str, Any] | None = None,
        live_only: bool = False,
        explain: bool = False,
        trace: bool = False,
        timeout_s: float = 5.0,
    ) -> Recall:
        """Conversation search: like :meth:`recall`, over the asker's own messages.

        :param since: said at or after; ``until``: said before.
        :param known_at: only what was recorded by then, which for an import is later than when it was said. What was
            deleted since does not come back.
        """
        return self._ask(
            check_scope(scope),
            Question(
                query=query,
                layer="messages",
                limit=limit,
                roles=roles,
                since=since,
                until=until,
                known_at=known_at,
                session=self._session_filter(scope, session),
                metadata=metadata,
                live_only=live_only,
                explain=explain,
                trace=trace,
                timeout_s=timeout_s,
            ),
        )

    def _ask(self, scope: Scope, question: Question) -> Recall:
        return (self._traces if question.trace else self._recaller).recall(scope, question)

    def why_not(
        self,
        scope: Scope,
        id: str,  # noqa: A002
        query: str,
        limit: int = 5,
        *,
        kinds: Sequence[Kind] | None = None,
        roles: Sequence[Role] | None = None,
        since: When = None,
        until: When = None,
        as_of: When = None,
        known_at: When = None,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        include_history: bool = False,
        live_only: bool = False,
        timeout_s: float = 5.0,
    ) -> WhyNot:
        """Why a memory or message is not among the hits of a query (or where among them it is).

        The options are those of the :meth:`recall` or :meth:`search_messages` that it is missing from.

        :raises NotFound: for missing ids and those of rows that the asker may not see, alike.
        """
        question = Question(
            query=query,
            layer="memories",
            limit=limit,
            kinds=kinds,
            roles=roles,
            since=since,
            until=until,
            as_of=as_of,
            known_at=known_at,
            session=self._session_filter(check_scope(scope), session),
            metadata=metadata,
            include_history=include_history,
            live_only=live_only,
            timeout_s=timeout_s,
        )
        return why_not(self._recaller, scope, id, question)

    def traces(self, scope: Scope, limit: int = 50) -> list[RecallTrace]:
        """The asker's stored recalls, the newest first."""
        return self._traces.list(check_scope(scope), check_limit(limit, MAX_LIMIT))

    def replay(self, scope: Scope, trace_id: str) -> Replay:
        """Ask a stored recall again, at its own time, with its own settings and query vector: while the store is
        unchanged the answer is the same; else the differences are listed.

        :raises NotFound: when the asker has no such trace.
        """
        return self._traces.replay(check_scope(scope), trace_id)

    def delete_trace(self, scope: Scope, trace_id: str) -> None:
        """Forget a stored recall.

        :raises NotFound: when the asker has no such trace.
        """
        delete_with_room(self._reserve, lambda: self._traces.delete(check_scope(scope), trace_id))

    def floors(self) -> dict[str, float]:
        """The least score that a row needs in each leg, as stored for the model that the store's vectors are of."""
        with self._storage.read() as reader:
            return floors.stored(reader)

    def set_floors(self, values: Mapping[str, float] | None) -> None:
        """Store floors for the active model, for every recall whose settings name none. None takes them away.

        They come from a calibration (``memstore bench --calibrate``): scores of another model mean something else,
        so floors of a model count no longer once the store changes over.

        :raises InvalidInput: for what is no leg or no number.
        """
        with self._storage.write() as tx:
            floors.keep(tx, values)

    def _session_filter(self, scope: Scope, session: str | None) -> str | None:
        return None if session is None else str(parse_session_key(session, check_scope(scope).agent_id))

    # --- reading -------------------------------------------------------------------------------------------

    def get(self, scope: Scope, id: str) -> Memory | StoredMessage | None:  # noqa: A002
        """A memory or message by id, None when there is none for this asker."""
        return self._memories.get(check_scope(scope), id)

    def get_all(
        self,
        scope: Scope,
        limit: int = 50,
        cursor: str | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
        as_of: When = None,
        known_at: When = None,
        include_history: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> Page[Memory]:
        """Memories, newest first. ``Page.next_cursor`` continues the listing; None: that was all.

        :param as_of: what was true then; ``known_at``: by what the store knew then. See :meth:`recall`.
        """
        return self._memories.page(
            check_scope(scope),
            limit=check_limit(limit, MAX_LIMIT),
            cursor=cursor,
            kinds=kinds,
            as_of=as_of,
            known_at=known_at,
            include_history=include_history,
            metadata=metadata,
        )

    def changes(
        self,
        scope: Scope,
        since: When,
        until: When = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
    ) -> Page[Change]:
        """What became of the memories between two times, oldest first: of the asker's own and of those shared with it.

        An update is one change, with the version before and after it. A memory that expired counts at its
        ``expires_at``; one that ended (``valid_to``) did not change. Changes of a deleted memory are its owner's alone
        to see. The order is that of the stamps, also where a clock was set back.

        :param since: changed at or after; ``until``: changed before, None: up to now.
        :param cursor: ``Page.next_cursor`` of the page before, with the other arguments as they were.
        """
        return changes_between(
            self._storage,
            check_scope(scope),
            since=since,
            until=until,
            limit=check_limit(limit, MAX_LIMIT),
            cursor=cursor,
            kinds=kinds,
            now=to_micros(self._clock.now()),
            instant=self._instant,
        )

    def history(self, scope: Scope, id: str) -> list[Memory | StoredMessage]:  # noqa: A002
        """All versions of a memory, oldest first; of a message, the message. The owner also sees deleted ones.

        :raises NotFound: for missing and foreign ids alike.
        """
        return self._memories.history(check_scope(scope), id)

    def messages(
        self,
        scope: Scope,
        session: str,
        last: int | None = None,
        since: When = None,
        until: When = None,
        roles: Sequence[Role] | None = None,
        live_only: bool = False,
        known_at: When = None,
    ) -> list[StoredMessage]:
        """A session's messages in their order.

        :param last: only that many from the end, after the other filters.
        :param live_only: only the window that a model would be shown: not what was cleared or forked away.
        :param known_at: only what was recorded by then.
        """
        key = parse_session_key(session, check_scope(scope).agent_id)
        count = None if last is None else check_limit(last, 2**31)
        with self._storage.read() as reader:
            where = row_filter(
                principal(reader, scope),
                "list",
                "messages",
                now=to_micros(self._clock.now()),
                roles=roles,
                since=self._instant(since),
                until=self._instant(until),
                known_at=self._instant(known_at),
                live_only=live_only,
            )
            return [stored_message(row) for row in reader.session_messages(str(key), where, count)]

    def count(self, scope: Scope) -> dict[str, int]:
        """How many current memories and messages the asker may read."""
        with self._storage.read() as reader:
            asker = principal(reader, check_scope(scope))
            now = to_micros(self._clock.now())
            return {
                "memories": reader.count("memories", row_filter(asker, "count", "memories", now=now)),
                "messages": reader.count("messages", row_filter(asker, "count", "messages", now=now)),
            }

    # --- sessions ------------------------------------------------------------------------------------------

    def sessions(self, scope: Scope) -> list[SessionRecord]:
        """The asker's sessions, pinned first, then the most recently active."""
        with self._storage.read() as reader:
            if not principal(reader, check_scope(scope)).is_member:
                return []
            return reader.sessions(scope.team_id, scope.user_id, scope.agent_id)

    def set_session(
        self,
        scope: Scope,
        session: str,
        *,
        title: str | None = None,
        pinned: bool | None = None,
        created_at: When = None,
    ) -> None:
        """Change a session's record.

        :raises NotFound: when the asker has no such session.
        """
        changes: dict[str, Any] = {}
        if title is not None:
            if not isinstance(title, str) or not title.strip():
                raise InvalidInput("a session's title must not be empty")
            check_encodable(title, "title")
            changes |= {"title": title.strip(), "titled_by": "caller"}
        if pinned is not None:
            if not isinstance(pinned, bool):
                raise InvalidInput(f"pinned must be True or False, not {pinned!r:.60}")
            changes["pinned"] = int(pinned)
        if created_at is not None:
            changes["created_at"] = self._instant(created_at)
        self._change_session(scope, session, changes)

    def clear_session(self, scope: Scope, session: str) -> None:
        """End the live window: the messages stay stored and searchable, and the session begins anew.

        :raises NotFound: when the asker has no such session.
        """
        key = parse_session_key(session, check_scope(scope).agent_id)
        of = (scope.team_id, scope.user_id, str(key))

        def clear(tx: Writer, operations: list[Operation]) -> None:
            row = self._own_session(tx, scope, of)
            tx.clear_session(*of, row.last_pos)
            operations.append(live_operation(of, "clear", to_pos=row.last_pos))

        self._journal.change(clear, frees=True)

    def delete_session(self, scope: Scope, session: str) -> None:
        """Hide a session and its messages. Memories made from them stay.

        :raises NotFound: when the asker has no such session.
        """
        self._change_session(scope, session, {"hidden": 1}, frees=True)

    def _change_session(
        self, scope: Scope, session: str, changes: dict[str, Any], *, frees: bool = False
    ) -> None:
        key = parse_session_key(session, check_scope(scope).agent_id)
        of = (scope.team_id, scope.user_id, str(key))

        def change(tx: Writer, operations: list[Operation]) -> None:
            row = self._own_session(tx, scope, of)
            changed = replace(row, **changes)
            if changed == row:
                return
            if changed.hidden:
                tx.hide_session(*of, row.last_pos)
            tx.put_session(changed)
            operations.append(session_operation(changed))

        self._journal.change(change, frees=frees)

    @staticmethod
    def _own_session(tx: Writer, scope: Scope, of: tuple[str, str, str]) -> SessionRow:
        row = tx.session(*of)
        if row is None or row.hidden or not principal(tx, scope).is_member:
            raise NotFound(f"no session {of[2]!r:.60} for this asker")
        return row

    # --- the team's dictionary -----------------------------------------------------------------------------

    def add_words(
        self, scope: Scope, words: Sequence[str] | Mapping[str, int], progress: Progress | None = None
    ) -> DictionaryReport:
        """Teach segmentation Chinese words of the team, such as names and products. The texts that hold them are
        segmented anew before this returns; nothing else changes.

        :param words: or a mapping of words to frequencies. Without one, a word gets the least with which it wins over
            its own parts; words around it may still win over it, and then a higher one helps.
        :raises NotPermitted: when the asker is no admin of the team. :raises InvalidInput: for a word that would have
            no effect; none is added then.
        """
        return self._dictionaries.add(check_scope(scope), words, progress)

    def remove_words(
        self, scope: Scope, words: Sequence[str], progress: Progress | None = None
    ) -> DictionaryReport:
        """Take words out of the team's dictionary, and segment the texts that hold them anew.

        :raises NotPermitted: when the asker is no admin of the team. :raises NotFound: when one is not in it.
        """
        return self._dictionaries.remove(check_scope(scope), words, progress)

    def words(self, scope: Scope) -> list[DictionaryWord]:
        """The team's dictionary, for any of its members.

        :raises NotPermitted: when the asker is no member.
        """
        return self._dictionaries.words(check_scope(scope))

    # --- coming back ---------------------------------------------------------------------------------------

    @classmethod
    def examine(
        cls,
        path: str | PathLike[str],
        embedder: Embedder | str | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        *,
        full: bool = False,
    ) -> DoctorReport:
        """Open a store, ask its :meth:`doctor` and close it. That it cannot be opened is a finding, named ``open``;
        the file is left as it is.

        :raises StoreMissing: when there is none.
        """
        place = checked_path(path)
        try:
            log = check_log(place)
            with cls(place, embedder, clock, settings) as store:
                report = store.doctor(full=full)
                return replace(report, findings=(*log, *report.findings))
        except StoreMissing:
            raise
        except (StoreError, ConfigError) as error:
            backup = newest_file(place, (clock or SystemClock()).now())
            reserve = Reserve(place, (settings or Settings()).reserve_bytes)
            report = checks.unopened(place, error, reserve, backup)
            if isinstance(error, StoreError):
                return report
            rows = examine_rows(place, checks.way_back(place, backup))
            return replace(report, findings=(*report.findings, *rows))

    @classmethod
    def restore(
        cls,
        backup_file: str | PathLike[str],
        path: str | PathLike[str],
        *,
        settings: Settings | None = None,
        progress: Progress | None = None,
    ) -> RestoreReport:
        """Make a database from a backup, where none is. What the fallback beside ``path`` holds beyond it is adopted.

        :raises BackupUnsound: when it is damaged, cut short, or no backup; nothing is written then.
        :raises StoreTooNew: when a newer memstore made it. :raises StoreExists: when something is at ``path``, or its
            fallback is another store's.
        """
        source, target = checked_path(backup_file), checked_path(path)
        settings = settings or Settings()
        check_local(target, kind_of(target), forced=settings.network_file_system)
        restored = restore(source, target, SYSTEM_FILES, progress)
        with cls(target, settings=settings) as store:
            with store._storage.write() as tx:
                tx.put_backup(restored.row(to_micros(store._clock.now())), restored.facts.days)
            return restored.report(target, store.adopted)

    @classmethod
    def recover(
        cls,
        path: str | PathLike[str],
        out: str | PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        progress: Progress | None = None,
    ) -> RecoverReport:
        """Rebuild messages and sessions from the daily fallback of a database that is lost or damaged.

        Memories and their history come from a backup, or are extracted again. Writes to ``path`` only if nothing
        is there; else name another file by ``out``.

        :raises StoreExists: when the target is taken. :raises StoreMissing: when there is nothing to recover from.
        """
        source = checked_path(path)
        target = checked_path(out) if out is not None else source
        settings = settings or Settings()
        check_local(target, kind_of(target), forced=settings.network_file_system)
        return recover(source, target, settings, progress)

    def scoped(self, scope: Scope) -> "ScopedStore":
        """The same verbs without the scope argument."""
        return ScopedStore(self, check_scope(scope))

    def close(self) -> None:
        """Close the files; safe to call twice and from any thread.

        :raises StoreError: when the log could not be brought into the file, on a full disk for example. Everything is
            closed all the same, and nothing is lost: the log keeps it.
        """
        self._stop_worker()
        for buffer in list(self._buffers):
            buffer.close()
        if self._embedding is not None:
            self._embedding.close()
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


P = ParamSpec("P")
R = TypeVar("R")


def _bound(
    verb: Callable[Concatenate[MemoryStore, Scope, P], R],
) -> Callable[Concatenate["ScopedStore", P], R]:
    @wraps(verb)
    def call(self: "ScopedStore", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return verb(self.store, self.scope, *args, **kwargs)

    return call


class ScopedStore:
    """A store seen by one asker: :class:`MemoryStore`'s verbs without the scope."""

    def __init__(self, store: MemoryStore, scope: Scope) -> None:
        self.store = store
        self.scope = scope

    record = _bound(MemoryStore.record)
    add = _bound(MemoryStore.add)
    update = _bound(MemoryStore.update)
    delete = _bound(MemoryStore.delete)
    delete_all = _bound(MemoryStore.delete_all)
    recall = _bound(MemoryStore.recall)
    search = recall
    search_messages = _bound(MemoryStore.search_messages)
    why_not = _bound(MemoryStore.why_not)
    traces = _bound(MemoryStore.traces)
    replay = _bound(MemoryStore.replay)
    delete_trace = _bound(MemoryStore.delete_trace)
    get = _bound(MemoryStore.get)
    get_all = _bound(MemoryStore.get_all)
    changes = _bound(MemoryStore.changes)
    history = _bound(MemoryStore.history)
    messages = _bound(MemoryStore.messages)
    count = _bound(MemoryStore.count)
    sessions = _bound(MemoryStore.sessions)
    add_words = _bound(MemoryStore.add_words)
    remove_words = _bound(MemoryStore.remove_words)
    words = _bound(MemoryStore.words)
    set_session = _bound(MemoryStore.set_session)
    clear_session = _bound(MemoryStore.clear_session)
    delete_session = _bound(MemoryStore.delete_session)
    extract = _bound(MemoryStore.extract)
    pending = _bound(MemoryStore.pending)
    verdicts = _bound(MemoryStore.verdicts)
    undo = _bound(MemoryStore.undo)
    scenes = _bound(MemoryStore.scenes)
    scene_history = _bound(MemoryStore.scene_history)
    profile = _bound(MemoryStore.profile)
    profile_history = _bound(MemoryStore.profile_history)
    roll_back_profile = _bound(MemoryStore.roll_back_profile)
    read_memory = _bound(MemoryStore.read_memory)
    write_memory = _bound(MemoryStore.write_memory)
    write_profile = _bound(MemoryStore.write_profile)
    import_profile = _bound(MemoryStore.import_profile)
    agent_settings = _bound(MemoryStore.agent_settings)
    quarantine = _bound(MemoryStore.quarantine)
    release = _bound(MemoryStore.release)
