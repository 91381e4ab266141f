"""The words of memstore as values. Everything that crosses a wall of the house is one of these."""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar, overload

from memstore.errors import InvalidInput, InvalidScope

Role = Literal["system", "developer", "user", "assistant", "tool"]
Kind = Literal["persona", "episodic", "instruction"]
Visibility = Literal["private", "team", "restricted"]
Layer = Literal["messages", "memories"]
State = Literal["live", "superseded", "expired", "quarantined", "deleted"]
ChangeKind = Literal["added", "updated", "superseded", "expired", "deleted"]
SourceKind = Literal["user", "document", "import", "assistant", "inference", "tool", "system"]
Leg = Literal["text", "vector"]
GenerationState = Literal["building", "active", "retired"]
Stored = Literal["both", "fallback", "database"]

LAYERS: tuple[Layer, ...] = ("messages", "memories")
LEGS: tuple[Leg, ...] = ("text", "vector")
ROLES: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")
KINDS: tuple[str, ...] = ("persona", "episodic", "instruction")
VISIBILITIES: tuple[str, ...] = ("private", "team", "restricted")
TRUST: Mapping[str, int] = {
    "user": 60,
    "document": 50,
    "import": 40,
    "system": 40,
    "assistant": 30,
    "inference": 20,
    "tool": 10,
}
"""Order of trust by where a row came from; a derived row is trusted no more than its least trusted source."""

ABSOLUTE_PRIORITY = -1
"""An instruction that is always injected and never ranked; only a person sets it."""

MAX_PRIORITY = 100
MAX_ID_LENGTH = 256

Progress = Callable[[int, int], None]
"""Called with (done, total) during long work."""


def check_identifier(name: str, value: object) -> None:
    """Refuse what cannot be a team, user, agent or task id. Ids are compared byte for byte, never folded.

    :raises InvalidScope: naming the field.
    """
    if value is None or value == "":
        raise InvalidScope(f"{name} is missing; a scope is never 'everyone'")
    if not isinstance(value, str):
        raise InvalidScope(f"{name} must be text, not {type(value).__name__}")
    if value != value.strip():
        raise InvalidScope(f"{name} is blank or has blanks around it: {value[:40]!r}")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidScope(f"{name} is longer than {MAX_ID_LENGTH} characters")
    for character in value:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise InvalidScope(f"{name} holds a control character or a lone surrogate: {value[:40]!r}")


@dataclass(frozen=True, slots=True)
class Scope:
    """Who asks, and who a row belongs to.

    When asking, ``agent_id=None`` means all of the user's agents; a value means that agent's rows and the rows
    that belong to no agent. ``task_id`` likewise. When writing, everything but persona memories needs an agent.
    """

    team_id: str = ""
    user_id: str = ""
    agent_id: str | None = None
    task_id: str | None = None

    def __post_init__(self) -> None:
        check_identifier("team_id", self.team_id)
        check_identifier("user_id", self.user_id)
        if self.agent_id is not None:
            check_identifier("agent_id", self.agent_id)
        if self.task_id is not None:
            check_identifier("task_id", self.task_id)


@dataclass(frozen=True, slots=True)
class Message:
    """One raw conversation message as a client has it.

    :param content: text, a list of content blocks (kept as they are; empty text blocks are left out), or None.
    :param id: the client's id, unique within the session; a known id is stored once.
    :param name: who spoke, where a session has several people.
    :param created_at: when it was said: aware datetime, ISO 8601 text or seconds since 1970. A value without an
        offset is wall time in the store's zone; None means now.
    :param complete: False for an answer that was cut off.
    """

    role: Role
    content: str | Sequence[Mapping[str, Any]] | None
    id: str | None = None
    name: str | None = None
    created_at: datetime | str | float | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    tool_call_id: str | None = None
    usage: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the store holds it.

    ``position`` is its place in the session; ``arrival`` its number among the user's rows. ``branch`` is 0 on
    the session's current branch, else the number of the fork that set the message aside. ``live`` is whether it
    belongs to the window that a model would be shown.
    """

    id: str
    client_id: str | None
    team_id: str
    user_id: str
    agent_id: str
    task_id: str | None
    session: str
    position: int
    arrival: int
    role: Role
    name: str | None
    content: str | list[dict[str, Any]] | None
    text: str
    tool_calls: tuple[dict[str, Any], ...]
    tool_call_id: str | None
    usage: dict[str, Any] | None
    meta: dict[str, Any]
    complete: bool
    live: bool
    branch: int
    source_kind: SourceKind
    trust: int
    created_at: datetime
    recorded_at: datetime
    zone: str | None
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One version of one atomic memory. ``id`` names the memory, ``version`` the state of it that this is."""

    id: str
    version: int
    team_id: str
    user_id: str
    agent_id: str | None
    task_id: str | None
    content: str
    kind: Kind
    priority: int
    metadata: dict[str, Any]
    visibility: Visibility
    state: State
    session: str | None
    produced_by_agent: str | None
    source_kind: SourceKind
    trust: int
    valid_from: datetime | None
    valid_to: datetime | None
    expires_at: datetime | None
    created_at: datetime
    recorded_at: datetime
    superseded_at: datetime | None
    superseded_by: str | None
    actor: str
    arrival: int


@dataclass(frozen=True, slots=True)
class Change:
    """Something that became of a memory.

    ``added`` has only ``after``, ``updated`` both, and ``deleted``, ``expired`` and ``superseded`` (by another memory:
    ``before.superseded_by``) only ``before``. ``version`` is the one that came or went. Both are shown as they are
    stored now. A version that the asker may not read is None.
    """

    at: datetime
    what: ChangeKind
    id: str
    version: int
    before: Memory | None
    after: Memory | None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session of a user. ``messages`` counts its visible messages."""

    session: str
    agent_id: str
    title: str
    pinned: bool
    hidden: bool
    created_at: datetime
    updated_at: datetime
    messages: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a ``record`` call.

    :param ids: memstore's ids of the messages now held for the call, in its order: new ones and known ones.
    :param stored: where they are now. ``both``: in the database and in the daily fallback. ``fallback``: in that alone,
        and in the database before its next write that succeeds. ``database``: in that alone, until the fallback can be
        written again.
    :param new: how many of them this call stored.
    :param conflicts: client ids that were known with other content; the first content was kept.
    """

    ids: tuple[str, ...]
    stored: Stored
    session: str
    new: int
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LegReport:
    """How a row stood in one leg.

    :param score: the row's own, never comparable with another leg's; None for a row that another user shared.
    :param term: what the leg adds to the fused score.
    :param with_neighbours: the score that ranked it, where the turns beside a message took part.
    """

    rank: int
    score: float | None
    term: float
    note: str | None = None
    with_neighbours: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a hit came back: its place in each leg, the tokens that matched, the rule that made it visible, the
    messages that it was made from, and the late factors that its fused score was multiplied by."""

    legs: dict[str, LegReport]
    tokens: tuple[str, ...]
    visible_by: str
    literal: bool
    sources: tuple[str, ...] = ()
    factors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """The way of one row through a recall. ``place`` counts all candidates by their final score, from 1.

    ``outcome``: ``returned``, ``limit`` (cut off), ``duplicate`` (of the candidate ``duplicate_of``), ``source cap``
    (its source has its share of the answer), or ``rules`` (a leg brought it and the access rules dropped it: a fault,
    which is also logged).
    """

    id: str
    place: int
    score: float
    outcome: Literal["returned", "limit", "duplicate", "source cap", "rules"]
    explanation: Explanation
    excerpt: str
    duplicate_of: str | None = None


@dataclass(frozen=True, slots=True)
class LegSummary:
    """One leg of a recall: how many rows it looked for and brought, what it counts in fusion, and the least score
    that a row needs."""

    asked: int
    brought: int
    weight: float
    floor: float | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class RecallExplanation:
    """A recall as a whole.

    :param sentences: those of the query that were also asked one by one.
    :param words: what the text leg looked for; ``left_out``: words of the query without meaning of their own.
    :param filters: what was asked for beside the query, as (name, value).
    :param coverage: the part of the words that the best text row holds; None where only one leg answered.
    :param candidates: every row that a leg brought, best first.
    """

    query: str
    words: tuple[str, ...]
    left_out: tuple[str, ...]
    filters: tuple[tuple[str, str], ...]
    legs: dict[str, LegSummary]
    coverage: float | None
    candidates: tuple[CandidateReport, ...]
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One recall result. ``score`` is the fused score; larger is better; ``rank`` counts from 1."""

    id: str
    content: str
    kind: str
    score: float
    rank: int
    layer: Layer
    user_id: str
    agent_id: str | None
    task_id: str | None
    session: str | None
    created_at: datetime
    visibility: Visibility = "private"
    state: State = "live"
    version: int = 1
    priority: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    role: str | None = None
    name: str | None = None
    position: int | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class Degraded:
    """A leg that did not take part in a recall, and why."""

    leg: Leg
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """The answer of a recall, best hit first. Iterating and indexing it reads ``hits``.

    ``explanation`` where one was asked for; ``trace_id`` where the recall was stored.
    """

    hits: tuple[Hit, ...]
    degraded: tuple[Degraded, ...] = ()
    took_ms: float = 0.0
    explanation: RecallExplanation | None = None
    trace_id: str | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def __bool__(self) -> bool:
        return bool(self.hits)


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that kept a row out of an answer. ``code`` is stable, ``values`` are what its sentence names; see
    :func:`memstore.wording.reason_text`."""

    code: str
    values: dict[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a row did or did not come back for a query. ``rank`` is its place in the answer, None when it is not there.

    ``reasons`` are in the order in which they decide: the first alone would have kept it out.
    """

    id: str
    layer: Layer
    query: str
    rank: int | None
    reasons: tuple[Reason, ...]
    recall: Recall


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """A stored recall: what was asked when, and the ids that came back, best first."""

    id: str
    layer: Layer
    query: str
    asked_at: datetime
    hit_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not as it was when the trace was stored. Ranks count from 1; None: not in that answer."""

    id: str | None
    rank_then: int | None
    rank_now: int | None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """A stored recall, asked again on the store as it is now."""

    trace: RecallTrace
    recall: Recall
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Whether the answer is the one of then: ids, ranks and scores."""
        return not self.differences


Item = TypeVar("Item")


class Page(Sequence[Item]):
    """A part of a listing. ``next_cursor`` is None on the last page; pass it back to go on."""

    __slots__ = ("_items", "next_cursor")

    def __init__(self, items: Sequence[Item], next_cursor: str | None) -> None:
        self._items = tuple(items)
        self.next_cursor = next_cursor

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Page({list(self._items)!r}, next_cursor={self.next_cursor!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Page):
            return self._items == other._items and self.next_cursor == other.next_cursor
        return list(self._items) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that ``doctor`` noticed. ``repair`` is the command that mends it, where there is one."""

    check: str
    severity: Literal["error", "warning", "info"]
    message: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """``ok`` is False as soon as one finding is an error. ``place`` says where the store is: its path, the kind of the
    file system, free bytes there, and what database, log and reserve take."""

    ok: bool
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    versions: dict[str, str]
    place: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What became of the write-ahead log. ``emptied`` is False while a reader, or another process, still needs it."""

    wal_bytes_before: int
    wal_bytes: int
    emptied: bool


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an indexing run did. ``refused`` rows have no usable vector and stay findable by text."""

    embedded: int
    refused: int
    pending: int
    generation: int | None


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One embedding generation: the vectors of one model, and what they take.

    ``digest`` covers the whole identity, prefixes included: equal digests are one space. ``pending`` rows wait for
    a vector, ``refused`` ones got none that is usable; of a retired generation neither is kept. ``bytes`` counts
    the numbers of the vectors alone.
    """

    number: int
    model: str
    revision: str
    dim: int
    digest: str
    state: GenerationState
    vectors: int
    pending: int
    refused: int
    bytes: int
    created_at: datetime
    activated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DictionaryWord:
    """A word that segmentation keeps whole in a team's texts."""

    word: str
    frequency: int
    added_by: str
    added_at: datetime


@dataclass(frozen=True, slots=True)
class DictionaryReport:
    """What a change of a team's dictionary did: which words differ now, how many messages and memories hold one of
    them, and how many words there are."""

    changed: tuple[str, ...]
    rows: int
    words: int


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A line of a file that could not be used."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. Running it again stores nothing new.

    ``skipped_lines`` counts what could not be used; of a great many ``skipped`` names the first 1,000. ``profiles``
    were written, ``profiles_known`` were imported before.
    """

    files: int
    read: int
    stored: int
    known: int
    skipped: tuple[SkippedLine, ...] = ()
    empty_files: tuple[str, ...] = ()
    skipped_lines: int = 0
    profiles: int = 0
    profiles_known: int = 0


@dataclass(frozen=True, slots=True)
class RecoverReport:
    """What a rebuild from the fallback found.

    ``skipped_lines`` counts what could not be used; of a great many ``skipped`` names the first 1,000.
    """

    path: str
    files: int
    lines: int
    messages: int
    sessions: int
    duplicates: int
    skipped: tuple[SkippedLine, ...] = ()
    skipped_lines: int = 0


@dataclass(frozen=True, slots=True)
class BackupReport:
    """A backup that was made and read back. ``database_bytes`` is what it takes once restored; ``removed`` are the
    older ones that went for it."""

    path: str
    taken_at: datetime
    bytes: int
    database_bytes: int
    sha256: str
    messages: int
    memories: int
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """A backup that the store knows of. ``present``: the file is still there, with its size."""

    path: str
    taken_at: datetime
    bytes: int
    sha256: str
    verified_at: datetime
    present: bool


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What came back: ``messages`` and ``memories`` (all their versions) of the backup, deleted ones included, and
    ``adopted`` messages that the fallback holds beyond it.

    ``lost_lines``: so many lines of the fallback are in neither, because day files are gone that a later backup held.
    """

    path: str
    backup: str
    schema_version: int
    messages: int
    memories: int
    adopted: int
    lost_lines: int


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """Bytes of the database and of its write-ahead log, before and after. What was in the log alone counts as the
    database's before.

    ``pending``: another process was reading, so that the log could not be emptied, nor the file cut: that happens
    when it is through. ``strays`` are index entries without a row, which were removed. ``retired`` generations keep
    their vectors; ``memstore generations drop NUMBER`` frees them.
    """

    bytes_before: int
    bytes_after: int
    log_bytes_before: int
    log_bytes_after: int
    pending: bool
    strays: int = 0
    retired: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FallbackDay:
    """A day file of the fallback. ``contained``: every line is in the database. ``backup`` is the newest recorded one
    that is there and contains the file whole."""

    day: str
    bytes: int
    lines: int
    contained: bool
    backup: str | None


@dataclass(frozen=True, slots=True)
class KeptDay:
    """A day file that stayed, and why."""

    day: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Day files that were removed, and those that stayed although they were old enough."""

    removed: tuple[str, ...]
    freed_bytes: int
    kept: tuple[KeptDay, ...]


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What a worker did: jobs that were done, that failed and are tried again, and that gave up; ``postponed`` ones wait
    for their time, or for the model to be available again."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    postponed: int = 0


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A unit of background work. ``subject`` is what it is about (a session, an agent), where it is about one.

    ``calls`` and tokens are what it cost so far, ``done`` of ``total`` its progress where it has one.
    """

    job_no: int
    kind: str
    state: Literal["queued", "running", "done", "dead"]
    team_id: str | None
    user_id: str | None
    agent_id: str | None
    subject: str | None
    attempts: int
    done: int
    total: int
    calls: int
    input_tokens: int
    output_tokens: int
    last_error: str | None
    not_before: datetime | None
    lease_until: datetime | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """What was decided about a proposed memory, by whom, and from which messages.

    :param source_ids: the messages that the proposal was made from.
    :param candidates: (id, content) of the memories that it was compared with, as they read then.
    :param target_ids: the memories that it replaced, or, of a ``skip``, that cover it.
    :param memory_id: the memory that came of it; None of a ``skip``.
    :param decided_by: ``rules-<version>``, or the model; ``prompt`` the version of its prompt.
    :param reply: what the model answered, whole.
    """

    id: str
    action: Literal["store", "skip", "update", "merge"]
    content: str
    kind: Kind
    priority: int
    agent_id: str | None
    session: str
    source_ids: tuple[str, ...]
    candidates: tuple[tuple[str, str], ...]
    target_ids: tuple[str, ...]
    memory_id: str | None
    reason: str
    decided_by: str
    decided_at: datetime
    run_id: str
    prompt: str | None = None
    reply: str | None = None
    undone_at: datetime | None = None
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractReport:
    """What one extraction made of a session's pending messages.

    :param messages: so many were covered. :param refused: what was proposed and dropped, and why, a sentence each.
    """

    session: str
    messages: int
    scene: str
    verdicts: tuple[VerdictRecord, ...]
    refused: tuple[str, ...]
    decided_by: str


@dataclass(frozen=True, slots=True)
class SceneRecord:
    """A version of a scene. ``sources`` are ids of the memories that it was written from."""

    id: str
    version: int
    name: str
    content: str
    agent_id: str
    state: State
    updated_at: datetime
    actor: str
    run_id: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """A version of a profile; as text, its content. ``sources`` are ids of memories, scenes and messages."""

    id: str
    profile: Literal["agent", "user"]
    version: int
    content: str
    agent_id: str | None
    state: State
    updated_at: datetime
    actor: str
    run_id: str | None
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What a model cost a team on a day of the store's zone, by task.

    :param calls: of the model; a reply that had to be repaired took two. :param failures: questions that no whole answer
        came of, because the model was not reached, refused or was cut off. An answer that was whole and could not be
        used, so that it is asked for again, is no failure here.
    """

    team_id: str
    day: str
    model: str
    task: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int


def check_limit(limit: object, largest: int) -> int:
    """A limit as used: 0 is legal and means nothing, too large is cut.

    :raises InvalidInput: for negative numbers and what is no whole number.
    """
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidInput(f"limit must be a whole number, not {limit!r}")
    if limit < 0:
        raise InvalidInput(f"limit must not be negative, but is {limit}")
    return min(limit, largest)
