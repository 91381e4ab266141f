"""Verdicts without a model: exact and near duplicates, opposites and replaced values, in Chinese and English.

Precision first. A wrong update takes a fact out of recall and a wrong skip never stores one, while a missed verdict
leaves two memories where one would do: whatever is not certain is stored.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memstore.pipelines.rules import happenings, homes, kin, occupations, rule_slots, stances
from memstore.pipelines.rules.likeness import covers, opposite, same
from memstore.pipelines.rules.replacing import Candidate, replaced
from memstore.pipelines.rules.stances import Relation
from memstore.pipelines.rules.statement import Statement, read
from memstore.pipelines.values import Compared, Comparison, Proposal, Verdict
from memstore.types import Kind


@dataclass(frozen=True, slots=True)
class _Live:
    """What a proposal is compared with: a current memory, or an earlier proposal that will be one (``item``)."""

    kind: Kind
    content: str
    priority: int
    id: str | None = None
    item: int | None = None


def judge(comparison: Comparison) -> list[Verdict]:
    """One verdict for each item, in order. Items see the outcome of the earlier ones: what those replaced is gone,
    and they themselves count as the newest memories.

    A memory of priority -1 is absolute and a person's: it may cover a new one, and is never replaced.
    """
    verdicts: list[Verdict] = []
    kept: list[_Live] = []
    gone: set[str] = set()
    for number, compared in enumerate(comparison.items):
        live = [*_current(compared, gone), *kept]
        verdict, consumed = _verdict(number, compared.proposal, live)
        verdicts.append(verdict)
        gone.update(verdict.target_ids if verdict.action == "update" else ())
        kept = [one for one in kept if one not in consumed]
        if verdict.action != "skip":
            proposal = compared.proposal
            kept.append(_Live(proposal.kind, proposal.content, proposal.priority, item=number))
    return verdicts


def _current(compared: Compared, gone: set[str]) -> Iterator[_Live]:
    for known in compared.neighbours:
        if known.id not in gone:
            yield _Live(known.kind, known.content, known.priority, id=known.id)


def _verdict(number: int, proposal: Proposal, live: Sequence[_Live]) -> tuple[Verdict, Sequence[_Live]]:
    statement = read(proposal.content)
    covering, reason = _covering(statement, proposal.kind, live)
    if covering is not None:
        return _made(number, "skip", [covering], reason), ()
    told = {id(one): _relation(proposal, one.content) for one in live if one.kind == proposal.kind}
    repeated = [one for one in live if told.get(id(one)) == "same"]
    if repeated:
        return _made(number, "skip", repeated[:1], "says the same"), ()
    others = [one for one in live if one.kind == proposal.kind and one.priority >= 0]
    related = [one for one in others if told[id(one)] is not None]
    if related and (proposal.kind != "episodic" or len(related) == 1):
        return _made(number, "update", related, _REASONS[told[id(related[0])]]), related
    targets, reason = _outdated(proposal.content, statement, others)
    if targets:
        return _made(number, "update", targets, reason), targets
    return Verdict(number, "store", reason="new"), ()


def _relation(proposal: Proposal, old: str) -> Relation | None:
    """How a proposal relates to a memory of its kind, by what both are about."""
    comparers = _COMPARERS[proposal.kind]
    return next(
        (found for compare in comparers if (found := compare(proposal.content, old)) is not None), None
    )


_COMPARERS: dict[Kind, tuple[Callable[[str, str], Relation | None], ...]] = {
    "persona": (stances.compare, homes.compare, occupations.compare, kin.compare),
    "episodic": (happenings.compare,),
    "instruction": (rule_slots.compare,),
}
_REASONS: dict[Relation | None, str] = {
    "instead": "so no longer: the newer statement of the same",
    "more": "says the same and more",
}


def _made(number: int, action: str, targets: Sequence[_Live], reason: str) -> Verdict:
    ids = tuple(dict.fromkeys(one.id for one in targets if one.id is not None))
    items = tuple(one.item for one in targets if one.item is not None)
    return Verdict(number, "skip" if action == "skip" else "update", ids, target_items=items, reason=reason)


def _covering(statement: Statement, kind: Kind, live: Sequence[_Live]) -> tuple[_Live | None, str]:
    """What says the same already. A persona memory, which every agent of the user sees, also covers an episodic one."""
    fitting = [one for one in live if one.kind == kind or (one.kind, kind) == ("persona", "episodic")]
    for one in fitting:
        if same(read(one.content), statement):
            return one, "the same words"
    for one in fitting:
        if covers(read(one.content), statement):
            return one, "says this and more"
    return None, ""


def _outdated(text: str, statement: Statement, live: Sequence[_Live]) -> tuple[list[_Live], str]:
    opposites = [one for one in live if opposite(statement, read(one.content))]
    if opposites:
        return opposites, "the opposite of it"
    candidates = [Candidate(i, read(one.content), one.content) for i, one in enumerate(live)]
    places, reason = replaced(text, candidates)
    if places:
        return [live[place] for place in places], reason
    within = [one for one in live if covers(statement, read(one.content))]
    return within, "says the same and more"
