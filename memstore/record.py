"""Recording messages: the hot path. No model call, no network (SPEC W1)."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from memstore.canonical import canonical_json, check_encodable, checksum, ordered_json
from memstore.clock import Clock
from memstore.errors import FallbackError, InvalidInput, LinesLeft, NotPermitted, StoreError
from memstore.fallback import Operation
from memstore.ids import new_id
from memstore.journal import CANNOT_WRITE, Journal, JournalCall
from memstore.operations import pending_operation, pending_rows, session_of
from memstore.placing import OfSession, Plan, Standing, place, plan, standing
from memstore.session_key import SessionKey, parse_session_key
from memstore.sessions import spoken
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.rows import MessageRow
from memstore.text import IndexTokens, searchable_text, without_empty_text
from memstore.times import parse_instant, to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import MAX_ID_LENGTH, ROLES, TRUST, Message, Receipt, Scope, SourceKind, Stored

logger = logging.getLogger("memstore")

_SOURCE_OF_ROLE: Mapping[str, SourceKind] = {
    "user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "developer": "system",
}  # fmt: skip

LOOK_FIRST = 8
"""From so many client ids in a call on it is looked up which are known before words are cut."""


def draft(
    message: Message,
    scope: Scope,
    key: SessionKey,
    clock: Clock,
    zone: ZoneInfo,
    source_kind: SourceKind | None = None,
) -> MessageRow:
    """Check a message and bring it into the form that is kept.

    :raises InvalidInput: naming what was wrong; nothing is stored then.
    """
    if not isinstance(message, Message):
        raise InvalidInput(f"messages are memstore.Message values, not {type(message).__name__}")
    if message.role not in ROLES:
        raise InvalidInput(f"role {message.role!r} is none of {', '.join(ROLES)}")
    _check_optional_text("Message.id", message.id)
    _check_optional_text("Message.name", message.name)
    _check_optional_text("Message.tool_call_id", message.tool_call_id)
    content = _checked_content(message.content)
    now = clock.now()
    created_at, spoken_zone = (
        parse_instant(message.created_at, zone) if message.created_at is not None else (now, None)
    )
    if spoken_zone is None:
        spoken_zone = zone.key
    if not isinstance(message.tool_calls or (), Sequence) or isinstance(message.tool_calls, str):
        raise InvalidInput(f"Message.tool_calls must be a list, not {type(message.tool_calls).__name__}")
    tool_calls = [_checked_mapping("Message.tool_calls", call) for call in message.tool_calls or ()]
    usage = None if message.usage is None else _checked_mapping("Message.usage", message.usage)
    meta = _checked_mapping("Message.meta", message.meta or {})
    if not isinstance(message.complete, bool):
        raise InvalidInput(f"Message.complete must be True or False, not {message.complete!r:.60}")
    if source_kind is not None and source_kind not in TRUST:
        raise InvalidInput(f"source_kind {source_kind!r:.60} is none of {', '.join(TRUST)}")
    text = searchable_text(content)
    source = source_kind or _SOURCE_OF_ROLE[message.role]
    return MessageRow(
        id=new_id(now),
        client_id=message.id,
        team_id=scope.team_id,
        user_id=scope.user_id,
        agent_id=key.agent,
        task_id=scope.task_id,
        session=str(key),
        pos=0,
        arrival=0,
        role=message.role,
        name=message.name,
        content=ordered_json(content, "Message.content"),
        search_text=None if isinstance(content, str) else text,
        tool_calls=ordered_json(tool_calls, "Message.tool_calls") if tool_calls else None,
        tool_call_id=message.tool_call_id,
        usage=ordered_json(usage, "Message.usage") if usage is not None else None,
        meta=canonical_json(meta, "Message.meta") if meta else None,
        complete=int(message.complete),
        source_kind=source,
        trust=TRUST[source],
        created_at=to_micros(created_at),
        recorded_at=to_micros(now),
        zone=spoken_zone,
        checksum=checksum(message.role, message.name, content, tool_calls, message.tool_call_id),
    )


def _check_optional_text(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be text that is not empty, or None; got {value!r:.60}")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidInput(f"{name} is longer than {MAX_ID_LENGTH} characters")
    check_encodable(value, name)


def _checked_mapping(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must hold mappings, not {type(value).__name__}")
    return dict(value)


def _checked_content(content: object) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        if content:
            check_encodable(content, "Message.content")
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        blocks = []
        for block in content:
            if not isinstance(block, Mapping):
                raise InvalidInput(f"content blocks are mappings, not {type(block).__name__}")
            blocks.append(dict(block))
        return without_empty_text(blocks)
    raise InvalidInput(
        f"Message.content must be text, a list of blocks or None, not {type(content).__name__}"
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked record call that waits for a transaction. ``cut`` holds the words of its messages by id, as far as
    they were cut beforehand."""

    scope: Scope
    session: str
    rows: list[MessageRow]
    transcript: bool
    cut: dict[str, IndexTokens]

    @property
    def of_session(self) -> OfSession:
        return self.scope.team_id, self.scope.user_id, self.session


class Recorder:
    """Checks record calls and brings them into the database with their fallback lines, or into one of the two."""

    def __init__(
        self, storage: Storage, journal: Journal, tokenizers: Tokenizers, clock: Clock, zone: ZoneInfo
    ) -> None:
        self._storage = storage
        self._journal = journal
        self._tokenizers = tokenizers
        self._clock = clock
        self._zone = zone

    def check_open(self) -> None:
        """:raises StoreClosed: when the store was closed, or belongs to the parent of this forked process."""
        self._storage.check_open()

    def prepare(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        transcript: bool = False,
        source_kind: SourceKind | None = None,
    ) -> Prepared:
        """Check a call and cut its words, before any lock is taken.

        :raises InvalidInput: naming what was wrong.
        """
        key = parse_session_key(session, scope.agent_id)
        if isinstance(messages, Message):
            messages = [messages]
        if not isinstance(messages, Iterable):
            raise InvalidInput(f"messages must be a list of Message values, not {type(messages).__name__}")
        rows = [draft(message, scope, key, self._clock, self._zone, source_kind) for message in messages]
        return Prepared(scope, str(key), rows, transcript, self._cut(rows, scope.team_id, lazily=transcript))

    def record(self, calls: Sequence[Prepared]) -> list[Receipt | Exception]:
        """Several calls in one transaction; each ends with a receipt or an error of its own."""
        asked = [call for call in calls if call.rows]
        made = iter(self._journal.write([self._work(call) for call in asked]) if asked else [])
        return [
            self._outcome(call, next(made)) if call.rows else Receipt((), "both", call.session, 0)
            for call in calls
        ]

    def _outcome(self, call: Prepared, made: JournalCall[Plan]) -> Receipt | Exception:
        if made.error is None:
            return _receipt(call, made.value, made.stored)  # type: ignore[arg-type] # it has a value then
        if not isinstance(made.error, CANNOT_WRITE):
            return made.error
        try:
            return self._accept(call, made.error)
        except (StoreError, NotPermitted) as error:
            return error

    def _work(self, call: Prepared) -> Callable[[Writer, list[Operation]], Plan]:
        tried = False

        def work(tx: Writer, operations: list[Operation]) -> Plan:
            nonlocal tried
            scope = call.scope
            if tried and all(tx.message(row.team_id, row.id) is not None for row in call.rows):
                # A transaction that ended with an interrupt took place all the same, or its lines were taken up since.
                return Plan([row.id for row in call.rows], call.rows, restored=[], conflicts=[])
            tried = True
            if not tx.join(scope.team_id, scope.user_id, call.rows[0].recorded_at).is_member:
                raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
            tokenizer = self._tokenizers.of(tx, scope.team_id)
            planned, told = place(
                tx,
                call.of_session,
                call.rows,
                lambda row: tokenizer.renewed(call.cut.get(row.id), spoken(row)),
                transcript=call.transcript,
            )
            operations += told
            return planned

        return work

    def _accept(self, call: Prepared, error: StoreError) -> Receipt:
        """Keep a call in the fallback that the database could not take.

        :raises StoreError: when the fallback could not take it either; then nothing of it is stored.
        """
        try:
            planned = self._planned_ahead(call)
            if planned.new or planned.restored or planned.fork_at is not None:
                rows = call.rows if call.transcript else planned.new
                now = self._clock.now()
                self._journal.accept(
                    pending_operation(new_id(now), rows, to_micros(now), transcript=call.transcript)
                )
                logger.warning("%s; %d messages wait in the fallback", error, len(planned.new))
        except FallbackError as second:
            what = "It is not sure" if isinstance(second, LinesLeft) else "The message was not stored"
            raise type(error)(f"{error}. {what}: {second}") from error
        return _receipt(call, planned, "fallback")

    def _planned_ahead(self, call: Prepared) -> Plan:
        """What the call will come to once it is taken up, behind those that wait already. A database that cannot be
        read has no say in it.

        :raises NotPermitted: when the asker is no member.
        """
        try:
            with self._storage.read() as reader:
                if not self._may_write(reader, call.scope):
                    scope = call.scope
                    raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
                held = standing(reader, call.of_session, call.rows, transcript=call.transcript)
                waiting = list(self._journal.unsettled(reader))
        except StoreError:
            held, waiting = Standing(), list(self._journal.unsettled(None))
        for pending in waiting:
            if session_of(pending) == call.of_session:
                before = plan(held, pending_rows(pending), transcript=bool(pending["transcript"]))
                held = held.after(before)
        return plan(held, call.rows, transcript=call.transcript)

    @staticmethod
    def _may_write(reader: Reader, scope: Scope) -> bool:
        """A team that is not there yet is made by its first writer."""
        known = scope.team_id in reader.team_ids()
        return not known or reader.membership(scope.team_id, scope.user_id).is_member

    def _cut(self, rows: Sequence[MessageRow], team_id: str, *, lazily: bool) -> dict[str, IndexTokens]:
        """Cut words before the write lock is taken. Of a transcript most is known already: only the dictionary
        is loaded beforehand, and what turns out to be new is cut when it is placed."""
        cut: dict[str, IndexTokens] = {}
        tokenizer = self._tokenizers.likely(team_id)
        known = () if lazily else self._known(rows)
        for row in rows:
            if row.client_id in known:
                continue
            said = spoken(row)
            if not lazily:
                cut[row.id] = tokenizer.index(said)
            elif tokenizer.warm_up(said.text):
                break
        return cut

    def _known(self, rows: Sequence[MessageRow]) -> Collection[str | None]:
        """Client ids that are held already: of an import that goes on, most. A look costs less than cutting the words
        of a few messages."""
        wanted = [row.client_id for row in rows if row.client_id is not None]
        if len(wanted) < LOOK_FIRST:
            return ()
        first = rows[0]
        try:
            with self._storage.read() as reader:
                return reader.known_client_ids(first.team_id, first.user_id, first.session, wanted)
        except StoreError:
            return ()  # what is wrong with it the write will tell


def _receipt(call: Prepared, planned: Plan, stored: Stored) -> Receipt:
    return Receipt(tuple(planned.ids), stored, call.session, len(planned.new), tuple(planned.conflicts))
