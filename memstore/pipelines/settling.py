"""What was decided about the proposals of a batch, checked and made into a plan of changes.

A fact is never lost because a decision could not be used: whatever is wrong with one, its proposal is stored. Items are
settled in their order, each on what the earlier ones left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from memstore.canonical import canonical_json, checksum
from memstore.pipelines.checking import Checked, allowed_kind, clamped, encodable, nearer_to_others
from memstore.pipelines.closeness import contained
from memstore.pipelines.comparing import Neighbourhood, same_text
from memstore.pipelines.holding import SAYS_ALL, SAYS_MOST, holds
from memstore.pipelines.trusted import is_own_words
from memstore.pipelines.values import (
    DEFAULT_PRIORITY,
    MAX_MEMORY_CHARS,
    Action,
    Verdict,
    Window,
)
from memstore.storage.rows import MemoryRow
from memstore.times import to_micros
from memstore.types import ABSOLUTE_PRIORITY, Kind

NOTHING_NEAR = "nothing to compare with"
_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Batch:
    """What the memories of one extraction have in common."""

    window: Window
    actor: str
    now: int
    make_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of an item.

    :param row: the memory that comes of it; None of a ``skip``. :param plain: the proposal as a memory of its own: what
        is stored where the rest cannot be done any more. :param targets: what ``row`` replaces, or what covers it, as it
        was read; some may come of earlier items. :param inherits: the content holds what the targets say.
    """

    item: Checked
    action: Action
    row: MemoryRow | None
    plain: MemoryRow
    targets: tuple[MemoryRow, ...] = ()
    reason: str = ""
    inherits: bool = False

    def stored(self, reason: str) -> "Settled":
        """The same, stored as it was proposed."""
        return replace(self, action="store", row=self.plain, targets=(), reason=reason, inherits=False)


@dataclass(slots=True)
class _Course:
    """How far a batch is settled.

    :param consumed: by the id of a memory that an item replaced, the place of that item. :param made: what the items
        made, by their places; ``current`` without those that a later one replaced.
    """

    settled: list[Settled] = field(default_factory=list)
    consumed: dict[str, int] = field(default_factory=dict)
    made: dict[int, MemoryRow] = field(default_factory=dict)

    def current(self) -> list[MemoryRow]:
        return [row for row in self.made.values() if row.id not in self.consumed]

    def add(self, settled: Settled) -> None:
        place = len(self.settled)
        self.settled.append(settled)
        if settled.row is not None:
            self.made[place] = settled.row
            self.consumed.update((target.id, place) for target in settled.targets)


def settle(
    batch: Batch, items: Sequence[Checked], near: Neighbourhood, verdicts: Sequence[Verdict] | None
) -> tuple[Settled, ...]:
    """The plan. ``verdicts`` None: nothing was asked, since there was nothing to compare with."""
    by_item: dict[int, Verdict] = {}
    for verdict in verdicts or ():
        by_item.setdefault(verdict.item, verdict)
    course = _Course()
    for place, item in enumerate(items):
        reason = NOTHING_NEAR if verdicts is None else "no usable decision about it"
        verdict = by_item.get(place, Verdict(place, "store", reason=reason))
        fresh = Settled(item, "store", plain := _plain_row(batch, item), plain, reason=_reason(verdict))
        course.add(_Settling(batch, course, fresh, near, place).settle(verdict))
    return tuple(course.settled)


@dataclass(frozen=True, slots=True)
class _Settling:
    """The settling of one item."""

    batch: Batch
    course: _Course
    fresh: Settled
    near: Neighbourhood
    place: int

    @property
    def item(self) -> Checked:
        return self.fresh.item

    def settle(self, verdict: Verdict) -> Settled:
        same = self._said_already()
        settled = self.fresh
        if verdict.action == "skip" and same is None:
            settled = self._skipped(verdict)
        elif verdict.action in ("update", "merge"):
            settled = self._replacing(verdict, same)
        return settled if same is None or settled.action != "store" else self._said_again(same, settled)

    def _said_already(self) -> MemoryRow | None:
        """A current memory of this kind and scope in the same words, earlier ones of this batch among them."""
        equal = self.near.equals[self.place]
        if equal is not None and equal.id not in self.course.consumed:
            return equal
        plain = self.fresh.plain
        text = same_text(plain.content)
        for row in self.course.current():
            if row.kind == plain.kind and _scope(row) == _scope(plain) and same_text(row.content) == text:
                return row
        return None

    def _said_again(self, same: MemoryRow, settled: Settled) -> Settled:
        """What would be stored stands there in the same words: it takes the place of what is trusted less."""
        if same.trust >= self.fresh.plain.trust:
            return replace(settled, action="skip", row=None, targets=(same,), reason="the same words")
        if not self._may_replace(same):
            return settled
        reason = "the same words, from a source that is trusted more"
        return replace(settled, action="update", row=self.fresh.plain, targets=(same,), reason=reason)

    # --- skip --------------------------------------------------------------------------------------------------

    def _skipped(self, verdict: Verdict) -> Settled:
        """What covers it must be there, be as good as it for all who would see it, and say what it says."""
        named = [*self._candidates(verdict), *self._earlier(verdict)]
        covering = [row for row in named if row.id not in self.course.consumed]
        why = "no current memory was named that covers it"
        for covers, otherwise in self._demands():
            if not covering:
                break
            covering, why = [row for row in covering if covers(row)], f"what was named {otherwise}"
        if covering and not holds(self.item.proposal.content, [row.content for row in covering], SAYS_MOST):
            covering, why = [], "what was named does not say all of it"
        if not covering:
            return self._as_proposed(verdict, f"to be skipped, but {why}")
        return replace(self.fresh, action="skip", row=None, targets=tuple(covering))

    def _demands(self) -> tuple[tuple[Callable[[MemoryRow], bool], str], ...]:
        """What a memory must be to stand for the proposal, and what one is that cannot. A rule or a trait is followed for
        what it is, which an event that tells of it is not."""
        plain = self.fresh.plain
        negated = _is_negated(plain.content)
        return (
            (lambda row: _as_wide(row, plain), "is seen by fewer agents"),
            (lambda row: plain.kind in ("episodic", row.kind), "is of another kind"),
            (lambda row: row.trust >= plain.trust, "is trusted less"),
            (lambda row: _is_negated(row.content) == negated, "says the opposite"),
        )

    # --- update, merge -----------------------------------------------------------------------------------------

    def _replacing(self, verdict: Verdict, same: MemoryRow | None) -> Settled:
        """:param same: a current memory in the words of the proposal: what replaces others takes its place as well."""
        found, note = self._targets(verdict)
        if same is not None and found and same.id not in {row.id for row in found}:
            found.append(same)
        found = [row for row in found if self._may_replace(row)]
        kind = self._kind(verdict, found)
        targets = tuple(row for row in found if self._takes_its_place(kind, row))
        if not targets:
            why = note or "no memory was named that it may replace"
            return self._as_proposed(verdict, f"to {verdict.action}, but {why}")
        content, inherits = self._content(verdict, kind, targets)
        if content is None:
            return self._as_proposed(verdict, "to merge, but the text cannot hold what the others say")
        row = self._row(verdict, kind, content, targets, inherits=inherits)
        reason = "; ".join(part for part in (_reason(verdict), note) if part)
        return replace(
            self.fresh, action=verdict.action, row=row, targets=targets, reason=reason, inherits=inherits
        )

    def _targets(self, verdict: Verdict) -> tuple[list[MemoryRow], str]:
        """The memories named, each once. Where an earlier item replaced one already, what came of that takes its
        place, so that the later item wins; not where the earlier one replaced more than this one speaks of."""
        named = self._candidates(verdict)
        ids = {row.id for row in named}
        targets = {row.id: row for row in named if row.id not in self.course.consumed}
        note = ""
        for row in named:
            if row.id not in self.course.consumed:
                continue
            heir, replaced = self._heir(row.id)
            alike = contained(heir.content, [self.item.proposal.content]) > 0  # else two facts of one memory
            if replaced <= ids and heir.id not in self.course.consumed and alike:
                targets[heir.id] = heir
                note = (
                    f"an earlier item of the batch had replaced {row.id}; this one replaces what came of it"
                )
            else:
                note = f"an earlier item of the batch had replaced {row.id}, and others with it"
        for row in self._earlier(verdict):
            if row.id not in self.course.consumed:
                targets[row.id] = row
        return list(targets.values()), note

    def _heir(self, memory_id: str) -> tuple[MemoryRow, set[str]]:
        """What stands now in the place of a memory that this batch replaced, and all that it stands in place of."""
        replaced: set[str] = set()
        on_the_way: set[str] = set()
        while memory_id in self.course.consumed:
            place = self.course.consumed[memory_id]
            replaced |= {target.id for target in self.course.settled[place].targets}
            row = self.course.made[place]
            memory_id = row.id
            on_the_way.add(memory_id)
        return row, replaced - on_the_way

    def _may_replace(self, row: MemoryRow) -> bool:
        """Absolute instructions are a person's. What others said puts out of force nothing that the user said, no rule and
        no trait, nor what is trusted more."""
        if row.priority == ABSOLUTE_PRIORITY:
            return False
        if self.item.own:
            return True
        return row.kind == "episodic" and row.trust <= self.fresh.plain.trust and not self._is_the_users(row)

    def _is_the_users(self, row: MemoryRow) -> bool:
        """Whether a memory rests on the user's own words, if only in part."""
        if row.id in self.near.own or is_own_words(row.source_kind, row.trust):
            return True
        made = (one for one in self.course.settled if one.row is not None and one.row.id == row.id)
        return any(source.by_principal for one in made for source in one.item.sources)

    def _kind(self, verdict: Verdict, targets: Sequence[MemoryRow]) -> Kind:
        """The kind of the memory that comes of it: one that may take the place of a target."""
        proposed = self.item.proposal.kind
        wanted = [proposed]
        if verdict.kind is not None and self._may_become(verdict.kind):
            wanted.insert(0, verdict.kind)
        for row in targets:
            kind: Kind = row.kind  # type: ignore[assignment] # a CHECK constraint holds it
            if _is_event(kind) == _is_event(proposed) and self._may_become(kind):
                wanted.append(kind)
        fitting = (kind for kind in wanted if any(self._takes_its_place(kind, row) for row in targets))
        return next(fitting, proposed)

    def _may_become(self, kind: Kind) -> bool:
        """An event is a trait, or the other way round, where the judge says so; a rule is one from the beginning."""
        proposed = self.item.proposal.kind
        as_told = _is_event(kind) == _is_event(proposed) or "instruction" not in (kind, proposed)
        return as_told and allowed_kind(kind, self.item)

    def _takes_its_place(self, kind: Kind, row: MemoryRow) -> bool:
        """Whether a memory of that kind may replace the row: none is widened, and what happened puts no rule and no trait
        out of force, nor they what happened."""
        return _scope(row) == _scope_of(kind, self.batch.window) and _is_event(row.kind) == _is_event(kind)

    def _content(self, verdict: Verdict, kind: Kind, targets: Sequence[MemoryRow]) -> tuple[str | None, bool]:
        """The text, and whether it holds what the targets say. None: there is none that would lose nothing."""
        proposed = self.item.proposal.content
        written = encodable(verdict.content).strip()[:MAX_MEMORY_CHARS].strip()
        if written and not self._may_be_written(written, kind, targets):
            written = ""
        if verdict.action == "update":
            kept = bool(written) and holds(proposed, [written], SAYS_MOST)
            return (written, written != proposed) if kept else (proposed, False)
        if not written and not self._may_be_joined(kind, targets):
            return None, False
        texts = dict.fromkeys([*(row.content for row in targets), proposed])
        told = [text for text in texts if not written or not holds(text, [written], SAYS_ALL)]
        told += [written] if written else []
        mark = "；" if self.batch.window.language == "zh" else "; "
        joined = mark.join([*(text.rstrip("。.;； ") for text in told[:-1]), told[-1]])
        return (joined, True) if len(joined) <= MAX_MEMORY_CHARS else (None, False)

    def _may_be_joined(self, kind: Kind, targets: Sequence[MemoryRow]) -> bool:
        """A rule or a trait takes up nothing that the user did not say."""
        return kind == "episodic" or all(is_own_words(row.source_kind, row.trust) for row in targets)

    def _may_be_written(self, written: str, kind: Kind, targets: Sequence[MemoryRow]) -> bool:
        """Of a rule or a trait: made of the user's own words, and no nearer to anybody else's."""
        if kind == "episodic":
            return True
        if not self._may_be_joined(kind, targets):
            return False
        told = replace(
            self.item.sources[0],
            text="\n".join([self.item.proposal.content, *(row.content for row in targets)]),
        )
        own = [*self.item.sources, told]
        if nearer_to_others(kind, written, own, self.batch.window) is not None:
            return False
        strange = [
            row.content
            for row in self.near.rows[self.place]
            if not is_own_words(row.source_kind, row.trust) and row not in targets
        ]
        mine = contained(written, (one.text for one in own))
        return not any(contained(written, [text]) > mine for text in strange)

    def _row(
        self, verdict: Verdict, kind: Kind, content: str, targets: Sequence[MemoryRow], *, inherits: bool
    ) -> MemoryRow:
        plain = self.fresh.plain
        highest = max(row.priority for row in targets)
        most = highest if verdict.action == "merge" else max(highest, DEFAULT_PRIORITY)
        wanted = plain.priority if verdict.priority is None else clamped(verdict.priority)
        agent_id, task_id = _scope_of(kind, self.batch.window)
        least = min([plain, *(targets if inherits else ())], key=lambda row: row.trust)
        return replace(
            plain,
            kind=kind,
            content=content,
            checksum=checksum(kind, content),
            priority=min(wanted, most),
            agent_id=agent_id,
            task_id=task_id,
            source_kind=least.source_kind,
            trust=least.trust,
        )

    # --- what was named ----------------------------------------------------------------------------------------

    def _candidates(self, verdict: Verdict) -> list[MemoryRow]:
        """The item's own candidates that the verdict names, each once; anything else is not touched."""
        rows: Mapping[str, MemoryRow] = {row.id: row for row in self.near.rows[self.place]}
        return [rows[one] for one in dict.fromkeys(verdict.target_ids) if one in rows]

    def _earlier(self, verdict: Verdict) -> list[MemoryRow]:
        """What came of the earlier items that the verdict names."""
        made = self.course.made
        return [made[one] for one in dict.fromkeys(verdict.target_items) if one in made]

    def _as_proposed(self, verdict: Verdict, why: str) -> Settled:
        reason = "; ".join(part for part in (_reason(verdict), why) if part)
        return self.fresh.stored(reason)


def _plain_row(batch: Batch, item: Checked) -> MemoryRow:
    """A proposal as a memory of its own: private, as trusted as its least trusted source."""
    window, proposal, least = batch.window, item.proposal, item.least_trusted
    agent_id, task_id = _scope_of(proposal.kind, window)
    start, end = _instant(proposal.time_start), _instant(proposal.time_end)
    told = to_micros(item.told_at.at)
    times = {"time_start": proposal.time_start, "time_end": proposal.time_end}
    metadata = {
        name: value.isoformat()
        for name, value in times.items()
        if value is not None and value.tzinfo is not None
    }
    if start is not None and end is not None and end < start:
        metadata.pop("time_end")
    return MemoryRow(
        id=batch.make_id(),
        version=1,
        team_id=window.scope.team_id,
        user_id=window.scope.user_id,
        kind=proposal.kind,
        priority=proposal.priority,
        content=proposal.content,
        checksum=checksum(proposal.kind, proposal.content),
        source_kind=least.source_kind,
        trust=least.trust,
        recorded_at=batch.now,
        actor=batch.actor,
        created_at=batch.now,
        agent_id=agent_id,
        task_id=task_id,
        metadata=canonical_json(metadata),
        session=window.session,
        produced_by_agent=window.scope.agent_id,
        # What is still to come holds from when it was told: it is known by then, and must not wait to be found.
        valid_from=told if start is None else min(start, told),
    )


def _instant(moment: datetime | None) -> int | None:
    return None if moment is None or moment.tzinfo is None else to_micros(moment)


def _scope_of(kind: Kind, window: Window) -> tuple[str | None, str | None]:
    """A persona memory is the user's, whoever heard it."""
    return (None, None) if kind == "persona" else (window.scope.agent_id, window.scope.task_id)


def _scope(row: MemoryRow) -> tuple[str | None, str | None]:
    return row.agent_id, row.task_id


def _is_event(kind: str) -> bool:
    return kind == "episodic"


def _as_wide(row: MemoryRow, other: MemoryRow) -> bool:
    """Whether all who would see the other see the row."""
    return row.agent_id in (None, other.agent_id) and row.task_id in (None, other.task_id)


def _is_negated(text: str) -> bool:
    """Whether a text says that something is not so."""
    from memstore.pipelines.rules.statement import read  # the rules are loaded when they are first wanted

    return read(text).negations % 2 == 1


def _reason(verdict: Verdict) -> str:
    return encodable(verdict.reason).strip()[:_REASON_CHARS]
