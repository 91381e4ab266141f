"""The storage contract. A backend keeps rows, searches them and applies changes; it never embeds, ranks across
legs, fuses or prompts. Keys that cross it are (team_id, id); a ``Ref`` is the backend's own handle of a row.

A backend offers two units of work: ``read()`` gives a :class:`Reader` on one consistent snapshot, ``write()`` a
:class:`Writer` inside one transaction that commits when the block ends and rolls back when it raises.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NewType, Protocol

from memstore.access import TRUE, Condition
from memstore.embedding import EmbedderIdentity
from memstore.storage.pipeline_rows import PipelineReader, PipelineWriter
from memstore.storage.rows import MemoryRow, MessageRow, SessionRow, TraceRow
from memstore.text import IndexTokens, QueryTokens, Spoken
from memstore.types import ChangeKind, GenerationRecord, GenerationState, Layer, SessionRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Ref = NewType("Ref", int)
"""A backend's handle of a recallable row; larger is not newer, and it may change when a row is shared."""


NO_GENERATION = 0
"""Rows wait under this number until the store has its first embedding generation."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What the store knows of a user in a team now."""

    is_member: bool
    is_admin: bool


@dataclass(frozen=True, slots=True)
class Segmentation:
    """What a team's texts are segmented by beside the program itself.

    :param dictionary: the digest of the team's own words, empty without any.
    :param fold_variants: whether the store folds traditional and simplified characters.
    """

    dictionary: str = ""
    fold_variants: bool = False


@dataclass(frozen=True, slots=True)
class RowFilter:
    """What a read may return: permission and narrowing, then what the caller asked for. Applied before top-k.

    :param team_id: the team whose rows are read; ``user_id`` the asker, whose own rows are one range.
    :param shared: whether rows that others own are to be read too.
    :param as_of: rows that held at that instant, by what is known of their validity.
    :param known_at: only what was recorded by then; ends of validity count as they were known then.
    :param searched: leave out messages under quarantine, which their owner may still list. (Of memories the state says it.)
    :param current_at: drop rows that ended or expired by this instant (microseconds), and with ``known_at`` those
        that a version known then had superseded; None with ``as_of``.
    """

    team_id: str
    user_id: str
    visible: Condition
    narrowed: Condition = TRUE
    shared: bool = False
    kinds: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    session: str | None = None
    since: int | None = None
    until: int | None = None
    as_of: int | None = None
    known_at: int | None = None
    current_at: int | None = None
    live_only: bool = False
    searched: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


ChangeKey = tuple[int, int, str, int]
"""Where a change stands among all: its time, the arrival of its version, the memory's id, its step."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Instants from ``since`` on and before ``until`` (None: no end); what falls due later than ``now`` has not."""

    since: int
    until: int | None
    now: int


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change of a memory: ``row`` is the version that came or went, ``before`` the one that it replaced."""

    at: int
    what: ChangeKind
    row: MemoryRow
    before: MemoryRow | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row found by one leg. ``score`` is the leg's own, larger is better. The last three order ties."""

    ref: Ref
    score: float
    recorded_at: int
    arrival: int
    id: str

    @property
    def tie(self) -> tuple[int, int, str]:
        """Sorts the newer row first, then the smaller id."""
        return (-self.recorded_at, -self.arrival, self.id)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as its neighbours see it; ``candidate`` has no score."""

    candidate: Candidate
    session: str
    pos: int
    branch: int
    role: str
    name: str | None
    said_at: int

    @property
    def ref(self) -> Ref:
        return self.candidate.ref


@dataclass(frozen=True, slots=True)
class Generation:
    """One embedding generation."""

    number: int
    identity: EmbedderIdentity
    state: GenerationState
    was_active: bool = False


@dataclass(frozen=True, slots=True)
class BackupRow:
    """A backup that was read back and found sound, as it is kept; a backend numbers backups by itself."""

    path: str
    taken_at: int
    bytes: int
    sha256: str
    verified_at: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class TextRow:
    """What indexing needs of a row."""

    ref: Ref
    spoken: Spoken


@dataclass(frozen=True, slots=True)
class TextIndex:
    """A team's text index of one layer. One being built answers nothing; rows up to ``filled_to`` are in it and are
    kept in step by every write."""

    tokenizer: str
    filled_to: Ref


@dataclass(frozen=True, slots=True)
class WordRow:
    """A word of a team's dictionary as it is kept."""

    word: str
    frequency: int
    added_by: str
    added_at: int


class Reader(PipelineReader, Protocol):
    """Reads on one consistent snapshot."""

    def meta(self, key: str) -> str | None:
        """A value of the store's own settings."""
        ...

    def team_ids(self) -> list[str]: ...

    def membership(self, team_id: str, user_id: str) -> Membership:
        """A user without a row counts as member while the team's ``auto_join`` is on; one who left does not."""
        ...

    def segmentation(self, team_id: str) -> Segmentation:
        """Costs no statement of its own where the team's membership was asked for before."""
        ...

    def dictionary(self, team_id: str) -> dict[str, int]:
        """The team's own words with their frequencies."""
        ...

    def words(self, team_id: str) -> list[WordRow]:
        """The same with who added them, in the order of the words."""
        ...

    def interruptible(self, interrupt: Callable[[], bool]) -> AbstractContextManager[None]:
        """Within the block, a statement ends with TimeoutError soon after ``interrupt()`` is true."""
        ...

    def text_search(self, layer: Layer, tokens: QueryTokens, where: RowFilter, k: int) -> list[Candidate]:
        """The k rows with the best BM25 of the team's own statistics, ties (9 digits) by :attr:`Candidate.tie`."""
        ...

    def phrase_rows(self, layer: Layer, tokens: QueryTokens, where: RowFilter) -> Iterator[tuple[Ref, str]]:
        """Rows whose literal tokens hold the query's phrase, with their text, newest first within an owner."""
        ...

    def vector_search(
        self,
        layer: Layer,
        generation: int,
        query: "NDArray[np.float32]",
        where: RowFilter,
        k: int,
    ) -> list[Candidate]:
        """The k nearest rows, exactly; score is the cosine. Ties by :attr:`Candidate.tie`.

        :param query: one vector; or several as rows, the query as a whole and then its sentences: the score is then
            the mean of the cosine to the whole and the best cosine to a sentence.
        """
        ...

    def without_vector(self, layer: Layer, generation: int, refs: Sequence[Ref]) -> set[Ref]:
        """Which of the rows have no vector in that generation."""
        ...

    def vectors(self, layer: Layer, generation: int, refs: Sequence[Ref]) -> "dict[Ref, NDArray[np.float32]]":
        """The unit vectors of those rows that have one."""
        ...

    def turns_around(self, refs: Sequence[Ref], where: RowFilter) -> list[Turn]:
        """Messages up to two positions away from these, themselves included, as far as the filter lets them pass;
        by session and position."""
        ...

    def held_tokens(
        self, layer: Layer, team_id: str, refs: Sequence[Ref], tokens: QueryTokens
    ) -> dict[Ref, tuple[str, ...]]:
        """Which of the query's words each row holds; of a row without any, which of its literal tokens."""
        ...

    def failed_filters(
        self, layer: Layer, refs: Sequence[Ref], where: RowFilter
    ) -> dict[Ref, tuple[str, ...]]:
        """For each row the names of the conditions that it does not meet, of those that a read of the layer has."""
        ...

    def refs_of(self, layer: Layer, team_id: str, row_id: str) -> list[Ref]:
        """A message's handle; those of all versions of a memory, the newest first."""
        ...

    def vector_state(self, layer: Layer, generation: int, ref: Ref) -> str | None:
        """Why a row has no vector in that generation: a reason of refusal, or ``pending``; None when it has one."""
        ...

    def source_ids(self, team_id: str, derived_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The messages that memories were made from, whatever their version."""
        ...

    def trace(self, team_id: str, user_id: str, trace_id: str) -> TraceRow | None: ...

    def traces(
        self, team_id: str, user_id: str, agent_id: str | None, task_id: str | None, limit: int
    ) -> list[TraceRow]:
        """The newest first; with an agent or task, those that asked for its rows alone."""
        ...

    def message_rows(self, refs: Sequence[Ref]) -> dict[Ref, MessageRow]: ...

    def memory_rows(self, refs: Sequence[Ref]) -> dict[Ref, MemoryRow]: ...

    def message(self, team_id: str, message_id: str) -> MessageRow | None: ...

    def memory(self, team_id: str, memory_id: str) -> MemoryRow | None:
        """The current version."""
        ...

    def memory_by_idempotency_key(self, team_id: str, user_id: str, key: str) -> MemoryRow | None: ...

    def memory_history(self, team_id: str, memory_id: str) -> list[MemoryRow]:
        """All versions, oldest first."""
        ...

    def session(self, team_id: str, user_id: str, session: str) -> SessionRow | None: ...

    def sessions(self, team_id: str, user_id: str, agent_id: str | None) -> list[SessionRecord]:
        """Visible sessions, pinned first, then the most recently active."""
        ...

    def session_messages(self, session: str, where: RowFilter, last: int | None) -> list[MessageRow]:
        """In the order of the session; ``last``: only that many from its end."""
        ...

    def branch(self, team_id: str, user_id: str, session: str) -> list[tuple[int, str, str | None, str, str]]:
        """(pos, checksum, client_id, id, role) of the current branch, in order."""
        ...

    def known_client_ids(
        self, team_id: str, user_id: str, session: str, client_ids: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        """client id → (id, checksum) of those already stored."""
        ...

    def memory_page(
        self, where: RowFilter, limit: int, after: tuple[int, int] | None
    ) -> tuple[list[MemoryRow], tuple[int, int] | None]:
        """Newest first: the asker's own by arrival, whatever the clock did, merged with what others share by the
        time of recording. Also where the next page begins, None after the last."""
        ...

    def memory_changes(
        self, where: RowFilter, interval: Interval, limit: int, after: ChangeKey | None
    ) -> tuple[list[ChangeRow], ChangeKey | None]:
        """What became of the memories in the interval, oldest first; also the last one's place, None after the last
        page. An expiry counts only where the version was current when it came."""
        ...

    def owned_ids(
        self, team_id: str, user_id: str, agent_id: str | None, task_id: str | None
    ) -> tuple[list[str], list[str]]:
        """Ids of the user's (messages, memories) that are not deleted; an agent or task means its rows alone."""
        ...

    def count(self, layer: Layer, where: RowFilter) -> int: ...

    def generation(self, state: Literal["active", "building"]) -> Generation | None: ...

    def numbered_generation(self, number: int) -> Generation | None:
        """Whatever its state; None also for one that was dropped."""
        ...

    def generation_of(self, identity: EmbedderIdentity) -> Generation | None:
        """The generation of exactly that identity: the active one, else the building, else the newest."""
        ...

    def generation_before(self) -> Generation | None:
        """The one that answered searches before the active one."""
        ...

    def generation_records(self) -> list[GenerationRecord]:
        """All of them, by number."""
        ...

    def without_vectors(self, generation: int, layer: Layer, limit: int) -> list[TextRow]:
        """The first indexed rows that have no vector of the generation, whether they are queued or not."""
        ...

    def pending(self, generation: int, layer: Layer, after: Ref, limit: int) -> list[TextRow]:
        """Rows that wait for a vector, by ref, with the text to embed."""
        ...

    def pending_count(self, generation: int) -> int: ...

    def fallback_mark(self, day: str) -> int:
        """How many bytes of that day's file this database contains."""
        ...

    def fallback_marks(self) -> dict[str, int]:
        """The same of every day that has one."""
        ...

    def backups(self) -> list[BackupRow]:
        """The recorded ones, in the order in which they were made."""
        ...

    def backup_days(self, number: int) -> dict[str, int]:
        """How many bytes of each day's file a backup contains."""
        ...

    def fallback_tail(self, day: str) -> int | None:
        """The CRC-32 of the bytes before the mark, as they were when it was set; None where it is not known."""
        ...

    def unwritten_lines(self, limit: int | None) -> list[tuple[int, dict[str, Any]]]:
        """Operations that the fallback is owed with their numbers, by number."""
        ...

    def dump_messages(self) -> Iterator[MessageRow]:
        """Every message of the store, by team, user, session and position."""
        ...

    def text_index(
        self, layer: Layer, team_id: str, state: Literal["active", "building"]
    ) -> TextIndex | None: ...

    def text_rows(self, layer: Layer, team_id: str, after: Ref, limit: int) -> list[TextRow]:
        """Rows that belong into the text index, by ref."""
        ...

    def rows_with_phrase(self, layer: Layer, team_id: str, tokens: QueryTokens) -> list[TextRow]:
        """Every row of the team, whoever owns it, that may hold what was tokenised literally: for upkeep."""
        ...

    def dump_sessions(self) -> Iterator[SessionRow]: ...


class Writer(Reader, PipelineWriter, Protocol):
    """Changes inside one transaction. Every method needs the transaction that ``write()`` opened."""

    def part(self) -> AbstractContextManager[None]:
        """Within the block, an error takes back what the block did and leaves the rest of the transaction."""
        ...

    def set_meta(self, key: str, value: str) -> None: ...

    def join(self, team_id: str, user_id: str, now: int) -> Membership:
        """Make team, member and key range where missing; the first writer of a team is its admin."""
        ...

    def use_arrival(self, team_id: str, user_id: str, arrival: int) -> None:
        """Never give out arrival numbers up to this one again."""
        ...

    def next_arrivals(self, team_id: str, user_id: str, count: int) -> int:
        """Reserve arrival numbers; returns the first."""
        ...

    def put_session(self, row: SessionRow) -> None:
        """Insert or replace the session's record."""
        ...

    def insert_messages(self, rows: Sequence[tuple[MessageRow, IndexTokens]]) -> None:
        """Rows of one owner; indexed and queued for embedding unless they are deleted or without tokens."""
        ...

    def fork_session(
        self, team_id: str, user_id: str, session: str, fork: int, from_pos: int, to_pos: int
    ) -> None:
        """Set aside what of the current branch stands between the two positions, both included."""
        ...

    def restore_messages(self, team_id: str, user_id: str, session: str, ids: Sequence[str]) -> int:
        """Bring messages that a fork had set aside back onto the current branch; returns how many they were."""
        ...

    def clear_session(self, team_id: str, user_id: str, session: str, up_to_pos: int) -> None:
        """End the live window: rows up to there stay searchable and are no longer live."""
        ...

    def hide_session(self, team_id: str, user_id: str, session: str, up_to_pos: int) -> None:
        """Hide the rows of a deleted session, up to there."""
        ...

    def delete_messages(self, team_id: str, ids: Sequence[str], now: int) -> int:
        """Mark deleted and take out of every index; returns how many were not deleted before."""
        ...

    def insert_memory(
        self, row: MemoryRow, tokens: IndexTokens, idempotency_key: str | None = None
    ) -> MemoryRow:
        """A new memory, or a new version: then the version before it is superseded. Returns it with its arrival."""
        ...

    def delete_memory(self, team_id: str, memory_id: str, now: int, actor: str) -> None:
        """Mark every version deleted, take them out of every index."""
        ...

    def new_generation(
        self, identity: EmbedderIdentity, state: Literal["active", "building"], now: int
    ) -> Generation:
        """Make a generation; every indexed row is queued for it."""
        ...

    def activate(self, generation: int, now: int) -> None:
        """Switch; the generation before is retired and kept."""
        ...

    def take_up(self, generation: int) -> None:
        """Build a retired generation on."""
        ...

    def retire(self, generation: int) -> None:
        """Give a generation up; its vectors are kept."""
        ...

    def requeue(self, generation: int) -> None:
        """Queue every indexed row that has no sound vector of the generation, refused ones too; drop strays."""
        ...

    def queue_missing(self, generation: int) -> None:
        """Queue every indexed row that has no vector of the generation and is not queued."""
        ...

    def shrink_generation(self, generation: int, rows: int) -> int:
        """Delete up to that many vectors; returns how many it was."""
        ...

    def drop_generation(self, generation: int) -> None:
        """Forget a generation with its tables. Its number is not given out again."""
        ...

    def put_vectors(
        self, generation: int, layer: Layer, refs: Sequence[Ref], vectors: "NDArray[np.float32]"
    ) -> int:
        """Store unit vectors of rows that are still indexed; returns how many were stored."""
        ...

    def refuse_vectors(self, generation: int, layer: Layer, reasons: Mapping[Ref, str]) -> None: ...

    def put_trace(self, row: TraceRow) -> None: ...

    def drop_trace(self, team_id: str, user_id: str, trace_id: str) -> bool:
        """Whether there was one."""
        ...

    def set_fallback_mark(self, day: str, applied_bytes: int, tail: int | None) -> None: ...

    def forget_day(self, day: str) -> None:
        """A day's file is gone: a new one of that name has nothing to do with its mark, nor with what backups hold."""
        ...

    def put_backup(self, row: BackupRow, days: Mapping[str, int]) -> int:
        """Record a backup and how much of each day's file it contains; returns its number. One of the same path is
        replaced."""
        ...

    def drop_backup(self, number: int) -> None: ...

    def keep_unwritten_lines(self, lines: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Keep operations that the fallback could not take."""
        ...

    def forget_unwritten_lines(self, numbers: Sequence[int]) -> None: ...

    def put_text(self, layer: Layer, team_id: str, rows: Sequence[tuple[Ref, IndexTokens]]) -> None:
        """Index rows anew that are indexed already."""
        ...

    def begin_text_index(self, layer: Layer, team_id: str, tokenizer: str) -> bool:
        """Build an index of this tokenizer beside the active one, or go on with one begun before; one of another
        tokenizer, or damaged, is begun anew. False: the layer has no rows, and no index any more."""
        ...

    def fill_text_index(
        self, layer: Layer, team_id: str, after: Ref, rows: Sequence[tuple[Ref, IndexTokens]]
    ) -> None:
        """Go on with the index being built: these are the rows that :meth:`text_rows` gave behind ``after``. What
        was deleted since is left out; where it was filled otherwise meanwhile, nothing happens."""
        ...

    def switch_text_index(self, layer: Layer, team_id: str) -> None:
        """Put the index that was built, and is filled, in the active one's place."""
        ...

    def relabel_text_index(self, layer: Layer, team_id: str, old: str, new: str) -> None:
        """Say that the active index, if it was of the old tokenizer, is now of the new one."""
        ...

    def set_words(self, team_id: str, words: Mapping[str, int], actor: str, now: int) -> None:
        """Make these the team's dictionary; words that stay as they were keep who added them."""
        ...


class Storage(Protocol):
    """A backend."""

    def read(self) -> AbstractContextManager[Reader]: ...

    def write(
        self,
        *,
        covered: bool = False,
        maintenance: bool = False,
        stands: Callable[[Reader], bool] | None = None,
    ) -> AbstractContextManager[Writer]:
        """:param covered: every change is also in the synced fallback, which may then be the only sync.
        :param stands: says, on a fresh snapshot, whether the transaction is there. It settles a commit that failed in
            a way that leaves open whether it holds; without it such a commit counts as failed.
        """
        ...

    def check_open(self) -> None:
        """:raises StoreClosed: when it was closed, or belongs to the parent of this forked process."""
        ...

    def close(self) -> None: ...
