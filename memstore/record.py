"""Recording messages: the hot path. No model call, no network (SPEC W1)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from memstore.canonical import canonical_json, check_encodable, checksum, ordered_json
from memstore.clock import Clock
from memstore.errors import InvalidInput, NotPermitted
from memstore.fallback import Operation
from memstore.ids import new_id
from memstore.journal import Journal, insert_rows, message_operation, session_operation
from memstore.session_key import SessionKey, parse_session_key
from memstore.sessions import DEFAULT_TITLE, spoken
from memstore.storage.base import MessageRow, SessionRow, Writer
from memstore.text import IndexTokens, searchable_text, without_empty_text
from memstore.times import parse_instant, to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import MAX_ID_LENGTH, ROLES, TRUST, Message, Receipt, Scope, SourceKind

_SOURCE_OF_ROLE: Mapping[str, SourceKind] = {
    "user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "developer": "system",
}  # fmt: skip


SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked message that has no place in its session yet."""

    row: MessageRow
    client_id: str | None

    @property
    def checksum(self) -> str:
        return self.row.checksum


def draft(
    message: Message,
    scope: Scope,
    key: SessionKey,
    clock: Clock,
    zone: ZoneInfo,
    source_kind: SourceKind | None = None,
) -> Draft:
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
    row = MessageRow(
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
    return Draft(row, message.id)


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
class Held:
    """A message of the session's current branch, as alignment sees it."""

    pos: int
    checksum: str
    client_id: str | None
    id: str
    role: str


@dataclass(frozen=True, slots=True)
class Alignment:
    """How a client's history lies on ours: ``start`` is where it begins in ours, ``matched`` how many agree,
    and ``fork_at`` the index in ours of the first message that it contradicts, None without contradiction."""

    start: int
    matched: int
    fork_at: int | None


def align(ours: Sequence[Held], theirs: Sequence[Draft]) -> Alignment:
    """Lay a client's whole history on the current branch.

    In this order: it holds all of ours and goes on; it is a part of ours; the client cut its beginning, and the
    longest end of ours begins it; it agrees for a while and then contradicts ours, which is a fork. Nothing in
    common: all of it is new.
    """

    def same(index: int, other: int) -> bool:
        held, drafted = ours[index], theirs[other]
        if held.client_id is not None and drafted.client_id is not None:
            return held.client_id == drafted.client_id
        return held.checksum == drafted.checksum

    def run(start: int) -> int:
        length = 0
        while start + length < len(ours) and length < len(theirs) and same(start + length, length):
            length += 1
        return length

    runs = [(run(start), start) for start in range(len(ours)) if theirs and same(start, 0)]
    if not runs:
        return Alignment(len(ours), 0, None)
    reaching_an_end = [
        (length, start) for length, start in runs if start + length == len(ours) or length == len(theirs)
    ]
    if reaching_an_end:
        whole = [pair for pair in reaching_an_end if pair[1] == 0]
        length, start = whole[0] if whole else max(reaching_an_end)
        return Alignment(start, length, None)
    length, start = max(runs)
    return Alignment(start, length, start + length)


class Recorder:
    """Places drafts in their session and writes them with their fallback lines."""

    def __init__(self, journal: Journal, tokenizers: Tokenizers, clock: Clock, zone: ZoneInfo) -> None:
        self._journal = journal
        self._tokenizers = tokenizers
        self._clock = clock
        self._zone = zone

    def record(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        transcript: bool = False,
        source_kind: SourceKind | None = None,
    ) -> Receipt:
        """See :meth:`memstore.store.MemoryStore.record`."""
        key = parse_session_key(session, scope.agent_id)
        if not isinstance(messages, Iterable):
            raise InvalidInput(f"messages must be a list of Message values, not {type(messages).__name__}")
        drafts = [draft(message, scope, key, self._clock, self._zone, source_kind) for message in messages]
        if not drafts:
            return Receipt((), "both", str(key), 0)
        cut = self._cut(drafts, scope.team_id, lazily=transcript)
        with self._journal.writing() as (tx, operations):
            if not tx.join(scope.team_id, scope.user_id, drafts[0].row.recorded_at).is_member:
                raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
            tokenizer = self._tokenizers.of(tx, scope.team_id)
            tokens = lambda row: tokenizer.renewed(cut.get(row.id), spoken(row))  # noqa: E731
            return _Placing(tx, operations, scope, str(key), drafts, tokens).place(transcript=transcript)

    def _cut(self, drafts: Sequence[Draft], team_id: str, *, lazily: bool) -> dict[str, IndexTokens]:
        """Cut words before the write lock is taken. Of a transcript most is known already: only the dictionary
        is loaded beforehand, and what turns out to be new is cut when it is placed."""
        cut: dict[str, IndexTokens] = {}
        tokenizer = self._tokenizers.likely(team_id)
        for drafted in drafts:
            said = spoken(drafted.row)
            if not lazily:
                cut[drafted.row.id] = tokenizer.index(said)
            elif tokenizer.warm_up(said.text):
                break
        return cut


class _Placing:
    """One record call inside its transaction."""

    def __init__(
        self,
        tx: Writer,
        operations: list[Operation],
        scope: Scope,
        session: str,
        drafts: Sequence[Draft],
        tokens: Callable[[MessageRow], IndexTokens],
    ) -> None:
        self._tokens = tokens
        self._tx = tx
        self._operations = operations
        self._of = (scope.team_id, scope.user_id, session)
        self._drafts = drafts
        self._session: SessionRow | None = tx.session(*self._of)
        self._conflicts: list[str] = []

    def place(self, *, transcript: bool) -> Receipt:
        wanted = [d.client_id for d in self._drafts if d.client_id is not None]
        known = self._tx.known_client_ids(*self._of, wanted) if wanted else {}
        ids: list[str | None] = [None] * len(self._drafts)
        if transcript:
            self._align(ids, known)
        rows: list[MessageRow] = []
        restored: list[str] = []
        for index, drafted in enumerate(self._drafts):
            if ids[index] is not None:
                continue
            held = known.get(drafted.client_id) if drafted.client_id is not None else None
            if held is not None:
                ids[index] = held[0]
                restored.append(held[0])
                self._note_conflict(drafted, held[1])
                continue
            rows.append(drafted.row)
            ids[index] = drafted.row.id
            if drafted.client_id is not None:  # the same client id twice in one call is one message
                known[drafted.client_id] = (drafted.row.id, drafted.row.checksum)
        if transcript and restored:
            self._restore(restored)
        self._insert(rows)
        return Receipt(
            tuple(i for i in ids if i is not None),
            "both",
            self._of[2],
            len(rows),
            tuple(dict.fromkeys(self._conflicts)),
        )

    def _note_conflict(self, drafted: Draft, held_checksum: str) -> None:
        if drafted.client_id is not None and drafted.checksum != held_checksum:
            self._conflicts.append(drafted.client_id)

    def _align(self, ids: list[str | None], known: Mapping[str, tuple[str, str]]) -> None:
        """Fill in the ids of what is held already, and fork where the list contradicts ours.

        Turns are laid on turns. System messages stand apart: clients put a prompt in front of a cut history, and
        another one each day. One that the branch holds in these words is known wherever it stands.
        """
        branch = [Held(*row) for row in self._tx.branch(*self._of)]
        prompts = {held.checksum: held.id for held in branch if held.role in SYSTEM_ROLES}
        ours = [held for held in branch if held.role not in SYSTEM_ROLES]
        theirs = [i for i, drafted in enumerate(self._drafts) if drafted.row.role not in SYSTEM_ROLES]
        alignment = align(ours, [self._drafts[i] for i in theirs])
        for held, index in zip(ours[alignment.start :], theirs[: alignment.matched], strict=False):
            ids[index] = held.id
            if self._drafts[index].client_id in known:
                self._note_conflict(self._drafts[index], held.checksum)
        for index, drafted in enumerate(self._drafts):
            if drafted.row.role in SYSTEM_ROLES and drafted.client_id is None:
                ids[index] = prompts.get(drafted.checksum)
        if alignment.fork_at is not None:
            self._fork(ours[alignment.fork_at].pos, branch[-1].pos)

    def _fork(self, from_pos: int, to_pos: int) -> None:
        assert self._session is not None  # noqa: S101 - only what is there can be contradicted
        fork = self._session.last_fork + 1
        self._tx.fork_session(*self._of, fork, from_pos, to_pos)
        self._session = replace(self._session, last_fork=fork)
        self._log_live("fork", fork=fork, from_pos=from_pos, to_pos=to_pos)

    def _restore(self, ids: list[str]) -> None:
        self._tx.restore_messages(*self._of, ids)
        self._log_live("restore", ids=ids)

    def _log_live(self, change: str, **values: Any) -> None:
        team_id, user_id, session = self._of
        self._operations.append(
            {
                "op": "live",
                "change": change,
                "team_id": team_id,
                "user_id": user_id,
                "session": session,
                **values,
            }
        )

    def _insert(self, rows: list[MessageRow]) -> None:
        if not rows:
            return
        revived = self._session is not None and self._session.hidden
        if self._session is not None and revived:  # a deleted session is not brought back: it begins anew
            self._session = replace(
                self._session,
                title=DEFAULT_TITLE,
                titled_by="default",
                pinned=0,
                created_at=rows[0].created_at,
            )
        last_pos = self._session.last_pos if self._session else 0
        first_arrival = self._tx.next_arrivals(self._of[0], self._of[1], len(rows))
        rows = [
            replace(row, pos=last_pos + i, arrival=first_arrival + i - 1) for i, row in enumerate(rows, 1)
        ]
        self._session = insert_rows(self._tx, self._tokens, self._session, rows)
        self._operations.extend(message_operation(row) for row in rows)
        if revived:
            self._operations.append({**session_operation(self._session), "hidden": 0})
        self._tx.enqueue(
            "index",
            f"index:{self._of[0]}:{self._of[1]}",
            {"team_id": self._of[0], "user_id": self._of[1]},
            rows[0].recorded_at,
        )
