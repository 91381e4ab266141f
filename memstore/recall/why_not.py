"""Why a given row did not come back for a query (SPEC R5): the recall is made anew with everything else as it was,
and the row is followed through it."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from memstore.access import Principal, decide
from memstore.asking import principal, row_facts
from memstore.config import MAX_LIMIT
from memstore.errors import NotFound
from memstore.ids import is_id
from memstore.recall.explaining import shown_value
from memstore.recall.question import Question
from memstore.recall.recaller import Answer, Recaller
from memstore.storage.base import Candidate, Reader, Ref
from memstore.storage.rows import MemoryRow, MessageRow
from memstore.times import from_micros, render
from memstore.types import Layer, Leg, Reason, Scope, WhyNot, check_limit

Late = Callable[[], bool]
"""Whether it is time to stop looking."""

_NOT_IN_VIEW = frozenset(("team", "visible"))
"""Conditions that are not told of one by one: the row's state says which it was."""


def why_not(recaller: Recaller, scope: Scope, row_id: str, question: Question) -> WhyNot:
    """Follow one row of the asker's through a recall.

    :raises NotFound: for ids that are missing and those of rows that the asker may not see, alike.
    """
    question.check()
    with recaller.snapshot() as reader:
        row = _row(reader, principal(reader, scope), row_id)
        layer: Layer = "memories" if isinstance(row, MemoryRow) else "messages"
        limit = max(1, check_limit(question.limit, MAX_LIMIT))
        question = replace(question, layer=layer, limit=limit, explain=True, trace=False)
        answer = recaller.answer(reader, scope, question)
        rank = next((hit.rank for hit in answer.recall if hit.id == row_id), None)
        late = recaller.deadline(question.timeout_s)
        reasons = (Reason("returned", {"rank": rank}),) if rank else tuple(_reasons(answer, row, late))
    return WhyNot(row_id, layer, question.query, rank, reasons, answer.recall)


def _missing(row_id: str) -> NotFound:
    return NotFound(f"no memory or message {row_id!r:.60} for this asker")


def _row(reader: Reader, asker: Principal, row_id: str) -> MessageRow | MemoryRow:
    """:raises NotFound: when it is not there, or the asker may not even see that it is."""
    if is_id(row_id):
        team_id = asker.scope.team_id
        row = reader.memory(team_id, row_id) or reader.message(team_id, row_id)
        if row is not None and decide(asker, "history", row_facts(row)).allowed:
            return row
    raise _missing(row_id)


def _reasons(answer: Answer, row: MessageRow | MemoryRow, late: Late) -> Iterator[Reason]:
    if row.state == "deleted":
        yield _deleted(row)
        return
    question, reader = answer.search.question, answer.search.reader
    refs = reader.refs_of(question.layer, row.team_id, row.id)
    failed = reader.failed_filters(question.layer, refs, answer.where)
    ref = next((ref for ref in refs if not failed[ref]), None)
    if ref is None:
        yield from _kept_out(failed[refs[0]], row, answer.asker, question)
        return
    for part in answer.recall.degraded:
        yield Reason("degraded", {"leg": part.leg, "reason": part.reason})
    own = row.user_id == answer.asker.scope.user_id
    yield from _text(answer, ref, late, own=own)
    yield from _vector(answer, ref, late, own=own)
    yield from _place(answer, ref)


def _deleted(row: MessageRow | MemoryRow) -> Reason:
    at = row.superseded_at if isinstance(row, MemoryRow) else row.deleted_at
    return Reason("deleted", {"at": render(from_micros(at))} if at is not None else {})


def _kept_out(
    failed: tuple[str, ...], row: MessageRow | MemoryRow, asker: Principal, question: Question
) -> Iterator[Reason]:
    """The conditions that the row does not meet, each with what was asked for and what the row has."""
    if "visible" in failed:
        rule = decide(asker, question.operation, row_facts(row), history=question.history).rule
        yield Reason("rule", {"rule": rule})
    for name in failed:
        if name not in _NOT_IN_VIEW:
            yield Reason("filter", {"filter": name, **_asked_and_found(name, row, asker, question)})


def _asked_and_found(
    name: str, row: MessageRow | MemoryRow, asker: Principal, question: Question
) -> dict[str, str]:
    asked: object = getattr(question, name, None)
    if name == "agent or task":
        asked = "/".join(filter(None, (asker.scope.agent_id, asker.scope.task_id)))
    found: object = None
    if isinstance(row, MemoryRow):
        instants = {
            "since": row.recorded_at, "until": row.recorded_at, "known_at": row.recorded_at, "as_of": row.valid_from,
            "valid_to": row.valid_to, "expires_at": row.expires_at, "superseded": row.superseded_at,
        }  # fmt: skip
        texts = {"kinds": row.kind, "metadata": row.metadata}
    else:
        instants = {"since": row.created_at, "until": row.created_at, "known_at": row.recorded_at}
        texts = {"roles": row.role, "metadata": row.meta or "{}"}
    texts |= {
        "session": row.session or "",
        "agent or task": "/".join(filter(None, (row.agent_id, row.task_id))),
    }
    if name in instants:
        at = instants[name]
        found = render(from_micros(at)) if at is not None else None
    else:
        found = texts.get(name)
    return {
        key: shown_value(value) for key, value in (("asked", asked), ("found", found)) if value is not None
    }


def _text(answer: Answer, ref: Ref, late: Late, *, own: bool) -> Iterator[Reason]:
    """What the text leg made of it, if the leg did not bring it."""
    search = answer.search
    if ref in search.legs.ranks.get("text", {}) or _is_degraded(answer, "text"):
        return
    if not search.tokens:
        yield Reason("no words in the query")
        return
    standings: list[Reason] = []
    try:
        with search.reader.interruptible(late):
            for part in search.parts:
                found = search.reader.text_search(search.question.layer, part, answer.where, MAX_LIMIT)
                standings += _in_leg("text", answer, ref, found, own=own)
    except TimeoutError as error:
        yield Reason("degraded", {"leg": "text", "reason": str(error)})
        return
    looked_for = ", ".join(search.looked_for.words or search.looked_for.literal)
    standings.sort(key=lambda reason: (reason.code == "below the floor", reason.values.get("rank", 0)))
    yield standings[0] if standings else Reason("no word in common", {"words": looked_for})


def _vector(answer: Answer, ref: Ref, late: Late, *, own: bool) -> Iterator[Reason]:
    """The same of the vector leg."""
    search = answer.search
    legs = search.legs
    if ref in legs.ranks.get("vector", {}) or _is_degraded(answer, "vector"):
        return
    generation, query = legs.generation, legs.query_vector
    if generation is None or query is None:
        yield Reason("no vector leg")
        return
    state = search.reader.vector_state(search.question.layer, generation.number, ref)
    if state is not None:
        yield Reason("no vector", {"state": state})
        return
    try:
        with search.reader.interruptible(late):
            found = search.reader.vector_search(
                search.question.layer, generation.number, query, answer.where, MAX_LIMIT
            )
    except TimeoutError as error:
        yield Reason("degraded", {"leg": "vector", "reason": str(error)})
        return
    yield from _in_leg("vector", answer, ref, found, own=own)


def _is_degraded(answer: Answer, leg: Leg) -> bool:
    return any(part.leg == leg for part in answer.recall.degraded)


def _in_leg(leg: Leg, answer: Answer, ref: Ref, found: list[Candidate], *, own: bool) -> list[Reason]:
    """Where the row stands in the whole of a leg, none where it is not in it."""
    search = answer.search
    place = next((place for place, candidate in enumerate(found, 1) if candidate.ref == ref), None)
    if place is None:
        return []
    floor = search.floors.get(leg)
    if floor is not None and found[place - 1].score < floor:
        values: dict[str, str | int | float] = {"leg": leg, "floor": floor}
        if own:  # raw scores are their owner's alone to see
            values["score"] = found[place - 1].score
        return [Reason("below the floor", values)]
    values = {"leg": leg, "rank": place, "of": len(found), "depth": search.depth}
    return [Reason("too far down", values) if place > search.depth else Reason("passed by others", values)]


def _place(answer: Answer, ref: Ref) -> Iterator[Reason]:
    """Where it stood after fusion, if a leg brought it."""
    order = answer.order
    if ref not in order.scores:
        return
    # Not in the order: one of so many of its source that it was not looked at.
    if ref in order.capped or ref not in order.refs:
        share = answer.search.settings.source_share or 0.0
        yield Reason("source cap", {"share": share, "limit": answer.search.limit})
        return
    reports = answer.recall.explanation
    assert reports is not None  # noqa: S101 - asked for
    report = reports.candidates[order.refs.index(ref)]
    if report.outcome == "duplicate":
        yield Reason("near-duplicate", {"of": report.duplicate_of or ""})
        return
    standing = {f"{leg}_rank": of.rank for leg, of in report.explanation.legs.items()}
    yield Reason(
        "cut by the limit",
        {"place": report.place, "limit": answer.search.limit, "score": round(report.score, 6), **standing},
    )
