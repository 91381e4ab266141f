"""How well a store answers questions whose right rows are known, and the floors that follow from that.

A file of such questions holds JSON lines. Each has a ``query`` and one of: ``ids`` of the right rows, ``contains``
(texts of which each is held by a right row), or ``none: true`` (nothing in the store answers it).
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from memstore.errors import InvalidInput, MemstoreError
from memstore.metrics import Ranks, recall_at, reciprocal_rank_at, summary, unit_ranks
from memstore.text import squeezed
from memstore.types import (
    KINDS,
    LEGS,
    CandidateReport,
    Kind,
    Layer,
    Leg,
    Memory,
    Progress,
    Recall,
    Scope,
    StoredMessage,
)

if TYPE_CHECKING:
    from memstore.store import MemoryStore

FEWEST_TO_CALIBRATE = 20
"""Of fewer right rows, two in a hundred is less than half a row: a floor would follow one single question."""
WORST_SHOWN = 10
FAULTS_SHOWN = 20
FLOOR_STEPS = 1_000_000
PAGE_ROWS = 1_000

_FIELDS = ("query", "ids", "contains", "none", "layer", "user", "kinds")
_EXAMPLE = '{"query": "when is the launch?", "contains": ["moved to Thursday"]}'


class UnusableQuestions(MemstoreError):
    """Lines of a question file that cannot be used; the message names each."""


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """One line of a question file. ``user``: who asks, None for the asker of the run."""

    line: int
    query: str
    ids: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    none: bool = False
    layer: Layer = "memories"
    user: str | None = None
    kinds: tuple[Kind, ...] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answers: for each limit the ids of each leg and of both fused."""

    question: GoldenQuestion
    units: tuple[frozenset[str], ...]
    returned: Mapping[int, Mapping[str, list[str]]]
    longest: Recall

    def ranks(self, leg: str, limit: int) -> Ranks:
        return unit_ranks(self.returned[limit][leg], self.units)


# --- the file ------------------------------------------------------------------------------------------------


def read(data: bytes, file: str) -> list[GoldenQuestion]:
    """The questions of JSON lines; blank lines are skipped.

    :raises UnusableQuestions: naming every line that is at fault, and what to do about it.
    """
    questions: list[GoldenQuestion] = []
    faults: list[str] = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if raw.strip():
            try:
                questions.append(_question(number, json.loads(raw.decode("utf-8"))))
            except (ValueError, RecursionError) as error:
                faults.append(f"line {number}: {error}")
    _refuse(faults, file)
    if not questions:
        raise UnusableQuestions(f"{file} holds no question; write lines like {_EXAMPLE}")
    return questions


def _refuse(faults: Sequence[str], file: str) -> None:
    if faults:
        more = f"\n  and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        listed = "\n  ".join(faults[:FAULTS_SHOWN])
        raise UnusableQuestions(f"{file} cannot be used; correct or remove these lines:\n  {listed}{more}")


def _question(number: int, value: object) -> GoldenQuestion:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a question is a JSON object like {_EXAMPLE}")
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise InvalidInput(f"unknown field {unknown[0]!r:.40}; known are {', '.join(_FIELDS)}")
    query = value.get("query")
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput("'query' must be text that is not blank")
    given = [name for name in ("ids", "contains", "none") if value.get(name) is not None]
    if len(given) != 1:
        raise InvalidInput('give one of "ids": […], "contains": […] and "none": true')
    if value.get("none") not in (None, True):
        raise InvalidInput("'none' is true, or is left out where something answers the query")
    layer = value.get("layer", "memories")
    if layer not in ("memories", "messages"):
        raise InvalidInput(f"'layer' must be 'memories' or 'messages', not {layer!r:.40}")
    user = value.get("user")
    if user is not None and not isinstance(user, str):
        raise InvalidInput("'user' must be the text of a user id")
    return GoldenQuestion(
        line=number,
        query=query,
        ids=_texts(value, "ids"),
        contains=_texts(value, "contains"),
        none=bool(value.get("none")),
        layer=layer,
        user=user,
        kinds=_kinds(value.get("kinds"), layer),
    )


def _texts(value: Mapping[str, Any], name: str) -> tuple[str, ...]:
    texts = value.get(name)
    if texts is None:
        return ()
    fits = isinstance(texts, list) and texts and all(isinstance(text, str) and text.strip() for text in texts)
    if not fits:
        raise InvalidInput(f"'{name}' must be a list of texts, none of them blank")
    return tuple(dict.fromkeys(texts))


def _kinds(kinds: object, layer: Layer) -> tuple[Kind, ...] | None:
    if kinds is None:
        return None
    if not isinstance(kinds, list) or not kinds or not all(kind in KINDS for kind in kinds):
        raise InvalidInput(f"'kinds' must be a list of {', '.join(KINDS)}")
    if layer == "messages":
        raise InvalidInput("'kinds' are those of memories; leave them out, or ask the layer 'memories'")
    return tuple(kinds)


# --- asking --------------------------------------------------------------------------------------------------


def leg_ids(answer: Recall, leg: Leg) -> list[str]:
    """The rows that a leg brought to an explained answer, in its own order."""
    found = [
        (candidate.explanation.legs[leg].rank, candidate.id)
        for candidate in _candidates(answer)
        if leg in candidate.explanation.legs
    ]
    return [id_ for _, id_ in sorted(found)]


def _candidates(answer: Recall) -> tuple[CandidateReport, ...]:
    return () if answer.explanation is None else answer.explanation.candidates


def ask(
    store: "MemoryStore",
    scope: Scope,
    questions: Sequence[GoldenQuestion],
    limits: Sequence[int],
    *,
    file: str,
    timeout_s: float,
    progress: Progress | None = None,
) -> list[Asked]:
    """Ask every question with every limit.

    :raises UnusableQuestions: for right rows that the asker cannot read or that are not there.
    """
    units = _units(store, scope, questions, file)
    _answer(
        store, scope, questions[0], max(limits), timeout_s
    )  # loads dictionary and model, and is not timed
    asked: list[Asked] = []
    for question, wanted in zip(questions, units, strict=True):
        answers = {limit: _answer(store, scope, question, limit, timeout_s) for limit in limits}
        returned = {limit: _by_leg(answer, limit) for limit, answer in answers.items()}
        asked.append(Asked(question, wanted, returned, answers[max(limits)]))
        if progress is not None:
            progress(len(asked), len(questions))
    return asked


def _answer(
    store: "MemoryStore", scope: Scope, question: GoldenQuestion, limit: int, timeout_s: float
) -> Recall:
    who = _asker(scope, question)
    if question.layer == "messages":
        return store.search_messages(who, question.query, limit, explain=True, timeout_s=timeout_s)
    return store.recall(who, question.query, limit, kinds=question.kinds, explain=True, timeout_s=timeout_s)


def _by_leg(answer: Recall, limit: int) -> dict[str, list[str]]:
    return {**{leg: leg_ids(answer, leg)[:limit] for leg in LEGS}, "fused": [hit.id for hit in answer]}


def _asker(scope: Scope, question: GoldenQuestion) -> Scope:
    return scope if question.user is None else replace(scope, user_id=question.user)


def _units(
    store: "MemoryStore", scope: Scope, questions: Sequence[GoldenQuestion], file: str
) -> list[tuple[frozenset[str], ...]]:
    """For each question the sets of rows of which any one will do."""
    held: dict[tuple[Scope, Layer], dict[str, str]] = {}
    found: list[tuple[frozenset[str], ...]] = []
    faults: list[str] = []
    for question in questions:
        who = _asker(scope, question)
        faults += [
            f"line {question.line}: {fault}"
            for id_ in question.ids
            if (fault := _fault(store.get(who, id_), question, who, id_)) is not None
        ]
        if question.contains and (who, question.layer) not in held:
            held[who, question.layer] = dict(_texts_of(store, who, question.layer))
        units = [frozenset((id_,)) for id_ in question.ids]
        for text in question.contains:
            wanted = squeezed(text)
            holders = frozenset(id_ for id_, row in held[who, question.layer].items() if wanted in row)
            units.append(holders)
            if not holders:
                faults.append(
                    f"line {question.line}: none of the {question.layer} of user {who.user_id!r} holds {text!r:.60}"
                )
        found.append(tuple(units))
    _refuse(faults, file)
    return found


def _fault(row: Memory | StoredMessage | None, question: GoldenQuestion, who: Scope, id_: str) -> str | None:
    """What is wrong with a right row."""
    if row is None:
        return f"user {who.user_id!r} can read no row {id_!r:.60}"
    layer = "messages" if isinstance(row, StoredMessage) else "memories"
    if layer != question.layer:
        return f"row {id_!r:.60} is one of the {layer}; set 'layer' to {layer!r}"
    return None


def _texts_of(store: "MemoryStore", scope: Scope, layer: Layer) -> Iterator[tuple[str, str]]:
    """Id and text, as literal matches are checked, of every row that the asker may read."""
    if layer == "messages":
        for session in store.sessions(scope):
            for message in store.messages(scope, session.session):
                yield message.id, squeezed(message.text)
        return
    cursor: str | None = None
    while True:
        page = store.get_all(scope, PAGE_ROWS, cursor)
        yield from ((memory.id, squeezed(memory.content)) for memory in page)
        cursor = page.next_cursor
        if cursor is None:
            return


# --- a run ---------------------------------------------------------------------------------------------------

OpenStore = Callable[[Mapping[str, float] | None], "MemoryStore"]
"""Opens the store with these floors; None: with those that it has."""


class Run:
    """Questions put to a store, under the floors that each step needs. See :func:`ask` for the options."""

    def __init__(
        self,
        opened: OpenStore,
        scope: Scope,
        questions: Sequence[GoldenQuestion],
        limits: Sequence[int],
        *,
        file: str,
        timeout_s: float,
        progress: Progress | None = None,
    ) -> None:
        self._opened = opened
        self._limits = limits
        self._ask = partial(
            ask,
            scope=scope,
            questions=questions,
            limits=limits,
            file=file,
            timeout_s=timeout_s,
            progress=progress,
        )

    def measured(self) -> dict[str, Any]:
        """The store as it is, with the floors that it has."""
        with self._opened(None) as store:
            return report(self._ask(store), self._limits)

    def calibrated(self, loss: float, *, apply: bool) -> dict[str, Any]:
        """Without floors, for the scores of right rows; then with those that follow from them.

        :param apply: store the floors that were found.
        :raises MemstoreError: when there are too few right rows, or no floor to store.
        """
        with self._opened({}) as store:
            found = calibrate(self._ask(store), loss)
        if apply and not found["floors"]:
            raise MemstoreError(
                f"no leg scored {FEWEST_TO_CALIBRATE} right rows, so there is no floor to store; those that the "
                "store has stay. Without --apply the report says what was found"
            )
        with self._opened(found["floors"]) as store:
            document = report(self._ask(store), self._limits)
            if apply:
                store.set_floors(found["floors"])
        return {**document, "calibration": {**found, "applied": apply}}


# --- the report ----------------------------------------------------------------------------------------------


def report(asked: Sequence[Asked], limits: Sequence[int]) -> dict[str, Any]:
    """Scores of each leg and of both fused, the questions answered worst, and times as information."""
    answered = [entry for entry in asked if not entry.question.none]
    times = sorted(entry.longest.took_ms for entry in asked)
    degraded = {part.leg: part.reason for entry in asked for part in entry.longest.degraded}
    nothing = [entry for entry in asked if entry.question.none]
    ranked_at = max(limits)
    return {
        "questions": len(answered),
        "legs": {
            leg: None
            if leg in degraded or (leg == "vector" and not _took_part(asked, leg))
            else summary({k: [entry.ranks(leg, k) for entry in answered] for k in limits}, ranked_at)
            for leg in (*LEGS, "fused")
        },
        "none": {"questions": len(nothing), "empty_answers": sum(not entry.longest for entry in nothing)},
        "latency_ms": {"p50": _quantile(times, 50), "p95": _quantile(times, 95)},
        "degraded": degraded,
        "worst": _worst(answered, ranked_at),
    }


def _took_part(asked: Sequence[Asked], leg: Leg) -> bool:
    return any(by_leg[leg] for entry in asked for by_leg in entry.returned.values())


def _quantile(values: Sequence[float], percent: int) -> float:
    if len(values) == 1:
        return round(values[0], 3)
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 3)


def _worst(answered: Sequence[Asked], limit: int) -> list[dict[str, Any]]:
    """Questions of which a right row is missing, or stands below the first place; the worst first."""

    def goodness(entry: Asked) -> tuple[float, float]:
        ranks = entry.ranks("fused", limit)
        return recall_at(ranks, limit), reciprocal_rank_at(ranks, limit)

    lacking = [entry for entry in sorted(answered, key=goodness) if goodness(entry) != (1.0, 1.0)]
    return [
        {
            "line": entry.question.line,
            "query": entry.question.query,
            "recall": round(goodness(entry)[0], 4),
            "ranks": {leg: list(entry.ranks(leg, limit)) for leg in (*LEGS, "fused")},
        }
        for entry in lacking[:WORST_SHOWN]
    ]


# --- floors --------------------------------------------------------------------------------------------------


def calibrate(asked: Sequence[Asked], loss: float) -> dict[str, Any]:
    """For each leg the largest floor that loses at most a part of the scores that right rows got.

    The questions must have been asked without floors.

    :param loss: the part of the right rows' scores that may fall below the floor, 0 to 1.
    :raises MemstoreError: when the questions are too few to say anything.
    """
    answered = [entry for entry in asked if not entry.question.none]
    if len(answered) < FEWEST_TO_CALIBRATE:
        raise MemstoreError(
            f"calibration needs {FEWEST_TO_CALIBRATE} questions with right rows, the file has {len(answered)}: "
            "a floor drawn from so few would follow single questions. Add questions and run it again"
        )
    legs: dict[str, Any] = {}
    for leg in LEGS:
        scores = sorted(score for entry in answered for score in _right_scores(entry, leg))
        floor = _floor(scores, loss) if len(scores) >= FEWEST_TO_CALIBRATE else None
        lost = 0 if floor is None else sum(score < floor for score in scores)
        legs[leg] = {"floor": floor, "right_rows": len(scores), "lost": lost}
    floors: dict[str, float] = {
        leg: found["floor"] for leg, found in legs.items() if found["floor"] is not None
    }
    return {"loss": loss, "legs": legs, "floors": floors}


def _floor(scores: Sequence[float], loss: float) -> float:
    """Rounded down, so that the score it is drawn from stays."""
    kept = scores[min(math.floor(loss * len(scores)), len(scores) - 1)]
    return math.floor(kept * FLOOR_STEPS) / FLOOR_STEPS


def _right_scores(entry: Asked, leg: Leg) -> Iterator[float]:
    """The scores of right rows that a floor decides on. A row with a note has none: it holds the query literally and
    comes whatever it scores, or the turns beside it brought it, or its vector is still to come. Nor has one of 0: it
    fills up an answer because it holds the query literally, as more rows do than fit in."""
    whole = entry.longest.explanation
    if leg == "text" and whole is not None and whole.sentences:
        return  # ranked by parts of the best score of each sentence, which no floor is compared with
    right = frozenset[str]().union(*entry.units)
    for candidate in _candidates(entry.longest):
        found = candidate.explanation.legs.get(leg)
        if candidate.id in right and found is not None and found.note is None and found.score:
            yield found.score
