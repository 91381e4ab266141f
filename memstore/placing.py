"""Where the messages of a record call go in their session: planned from what is held, then applied.

Planning reads and changes nothing, so that a call can also be planned when the database takes no writes; the same
plan is made again, and applied, once it does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from memstore.fallback import Operation
from memstore.operations import live_operation, message_operation, session_operation
from memstore.sessions import DEFAULT_TITLE, after_messages, new_session
from memstore.storage.base import Reader, Writer
from memstore.storage.pipeline_rows import job_key
from memstore.storage.rows import MessageRow, SessionRow
from memstore.text import IndexTokens

SYSTEM_ROLES = ("system", "developer")
Tokens = Callable[[MessageRow], IndexTokens]
OfSession = tuple[str, str, str]
"""(team, user, session)."""


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


def align(ours: Sequence[Held], theirs: Sequence[MessageRow]) -> Alignment:
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


@dataclass(slots=True)
class Standing:
    """What planning needs to know of a session: the current branch in order, and the messages of the call's client
    ids that are held whatever their branch (id, checksum). ``branch`` is read only for transcripts."""

    branch: list[Held] = field(default_factory=list)
    known: dict[str, tuple[str, str]] = field(default_factory=dict)

    def after(self, plan: "Plan") -> "Standing":
        """As it will be once a plan was applied: for calls that are planned behind others that wait."""
        branch = self.branch if plan.fork_at is None else self.branch[: plan.fork_at]
        last = self.branch[-1].pos if self.branch else 0
        new = [
            Held(last + number, row.checksum, row.client_id, row.id, row.role)
            for number, row in enumerate(plan.new, 1)
        ]
        known = {row.client_id: (row.id, row.checksum) for row in plan.new if row.client_id is not None}
        return Standing([*branch, *new], {**self.known, **known})


@dataclass(slots=True)
class Plan:
    """What a call comes to: the id of each of its messages, the rows that are new, those that come back onto the
    branch, client ids that were known with other content, and the index in the branch where a fork begins."""

    ids: list[str]
    new: list[MessageRow]
    restored: list[str]
    conflicts: list[str]
    fork_at: int | None = None


def standing(reader: Reader, of: OfSession, drafts: Sequence[MessageRow], *, transcript: bool) -> Standing:
    """Read what is held."""
    wanted = [row.client_id for row in drafts if row.client_id is not None]
    known = reader.known_client_ids(*of, wanted) if wanted else {}
    return Standing([Held(*row) for row in reader.branch(*of)] if transcript else [], dict(known))


def plan(held: Standing, drafts: Sequence[MessageRow], *, transcript: bool) -> Plan:
    """Decide what each message of a call is."""
    known = dict(held.known)
    conflicts: list[str] = []
    ids: dict[int, str] = {}
    fork_at = None
    if transcript:
        ids, fork_at = _laid_on(held, drafts, conflicts)
    new: list[MessageRow] = []
    restored: list[str] = []
    for index, row in enumerate(drafts):
        if index in ids:
            continue
        there = known.get(row.client_id) if row.client_id is not None else None
        if there is not None:
            ids[index] = there[0]
            restored.append(there[0])
            conflicts.extend(_conflict(row, there[1]))
            continue
        new.append(row)
        ids[index] = row.id
        if row.client_id is not None:  # the same client id twice in one call is one message
            known[row.client_id] = (row.id, row.checksum)
    return Plan(
        ids=[ids[index] for index in range(len(drafts))],
        new=new,
        restored=restored if transcript else [],
        conflicts=list(dict.fromkeys(conflicts)),
        fork_at=fork_at,
    )


def _conflict(row: MessageRow, held_checksum: str) -> Iterator[str]:
    if row.client_id is not None and row.checksum != held_checksum:
        yield row.client_id


def _laid_on(
    held: Standing, drafts: Sequence[MessageRow], conflicts: list[str]
) -> tuple[dict[int, str], int | None]:
    """The ids of what is held already by place in the call, and where in the branch the list contradicts it.

    Turns are laid on turns. System messages stand apart: clients put a prompt in front of a cut history, and
    another one each day. One that the branch holds in these words is known wherever it stands.
    """
    prompts = {one.checksum: one.id for one in held.branch if one.role in SYSTEM_ROLES}
    ours = [index for index, one in enumerate(held.branch) if one.role not in SYSTEM_ROLES]
    theirs = [index for index, row in enumerate(drafts) if row.role not in SYSTEM_ROLES]
    alignment = align([held.branch[i] for i in ours], [drafts[i] for i in theirs])
    ids: dict[int, str] = {}
    for place, index in zip(ours[alignment.start :], theirs[: alignment.matched], strict=False):
        one = held.branch[place]
        ids[index] = one.id
        if drafts[index].client_id in held.known:
            conflicts.extend(_conflict(drafts[index], one.checksum))
    for index, row in enumerate(drafts):
        if row.role in SYSTEM_ROLES and row.client_id is None and row.checksum in prompts:
            ids[index] = prompts[row.checksum]
    return ids, None if alignment.fork_at is None else ours[alignment.fork_at]


def place(
    tx: Writer, of: OfSession, drafts: Sequence[MessageRow], tokens: Tokens, *, transcript: bool
) -> tuple[Plan, list[Operation]]:
    """Plan a call and apply it; also the operations that say what was done."""
    held = standing(tx, of, drafts, transcript=transcript)
    planned = plan(held, drafts, transcript=transcript)
    session = tx.session(*of)
    operations: list[Operation] = []
    if planned.fork_at is not None and session is not None:  # only what is there can be contradicted
        fork, last = session.last_fork + 1, held.branch[-1].pos
        from_pos = held.branch[planned.fork_at].pos
        tx.fork_session(*of, fork, from_pos, last)
        session = replace(session, last_fork=fork)
        operations.append(live_operation(of, "fork", fork=fork, from_pos=from_pos, to_pos=last))
    if planned.restored:
        if tx.restore_messages(*of, planned.restored):  # an extraction may have passed them by meanwhile
            enqueue_extraction(tx, drafts[0])
        operations.append(live_operation(of, "restore", ids=planned.restored))
    if planned.new:
        operations += _insert(tx, of, session, planned.new, tokens)
    return planned, operations


def _insert(
    tx: Writer, of: OfSession, session: SessionRow | None, new: Sequence[MessageRow], tokens: Tokens
) -> list[Operation]:
    revived = session is not None and session.hidden
    if session is not None and revived:  # a deleted session is not brought back: it begins anew
        session = replace(
            session, title=DEFAULT_TITLE, titled_by="default", pinned=0, created_at=new[0].created_at
        )
    last_pos = session.last_pos if session else 0
    first_arrival = tx.next_arrivals(of[0], of[1], len(new))
    rows = [replace(row, pos=last_pos + i, arrival=first_arrival + i - 1) for i, row in enumerate(new, 1)]
    session = insert_rows(tx, tokens, session, rows)
    operations = [message_operation(row) for row in rows]
    if revived:
        operations.append({**session_operation(session), "hidden": 0})
    enqueue_index(tx, rows[0])
    enqueue_extraction(tx, rows[0])
    return operations


def insert_rows(
    tx: Writer, tokens: Tokens, session: SessionRow | None, rows: Sequence[MessageRow]
) -> SessionRow:
    """Insert placed rows of one session and carry its record forward: the same for recording and rebuilding."""
    tx.insert_messages([(row, tokens(row)) for row in rows])
    base = session or new_session(rows[0])
    updated = after_messages(base, rows)
    tx.put_session(updated)
    return updated


def enqueue_index(tx: Writer, row: MessageRow) -> None:
    """Queue the work of embedding an owner's new rows."""
    owner: Mapping[str, str] = {"team_id": row.team_id, "user_id": row.user_id}
    tx.enqueue("index", f"index:{row.team_id}:{row.user_id}", owner, row.recorded_at)


def enqueue_extraction(tx: Writer, row: MessageRow) -> None:
    """Queue the work of extracting memories from a session; whoever takes it looks whether enough was said."""
    of = {"team_id": row.team_id, "user_id": row.user_id, "agent_id": row.agent_id, "session": row.session}
    tx.enqueue("extract", job_key("extract", row.team_id, row.user_id, row.session), of, row.recorded_at)
