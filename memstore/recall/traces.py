"""Recalls kept as they were asked and answered, and asked again (SPEC: a recall can be replayed)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memstore.canonical import canonical_json, check_encodable
from memstore.config import Settings
from memstore.errors import EmbedderMismatch, NotFound, NotPermitted
from memstore.ids import is_id, new_id
from memstore.recall.question import Question
from memstore.recall.recaller import Answer, Recaller
from memstore.recall.why_not import why_not
from memstore.storage.base import Generation, Storage
from memstore.storage.rows import TraceRow
from memstore.times import from_micros
from memstore.types import LEGS, Difference, Hit, Reason, Recall, RecallTrace, Replay, Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANKING = (
    "candidate_factor", "rrf_k", "leg_weights", "stop_words", "sentences", "full_coverage", "neighbour_weights",
    "neighbour_gap_s", "pool_factor", "recency_half_life_s", "priority_weight", "collapse_similarity",
    "source_share", "floors",
)  # fmt: skip
"""The settings that an answer depends on."""
SCORE_DIGITS = 9
REPLAY_TIMEOUT_S = 60.0
"""Whatever the deadline was then: a slower machine is no difference."""


class Traces:
    """Stored recalls. Each belongs to the one who asked."""

    def __init__(self, storage: Storage, recaller: Recaller) -> None:
        self._storage = storage
        self._recaller = recaller

    def recall(self, scope: Scope, question: Question) -> Recall:
        """Answer, and keep question and answer."""
        question.check()
        check_encodable(question.query, "a query that is to be kept")
        with self._recaller.snapshot() as reader:
            answer = self._recaller.answer(reader, scope, replace(question, explain=True))
        if not answer.asker.is_member:
            raise NotPermitted(
                f"user {scope.user_id!r} is not a member of team {scope.team_id!r}: nothing is kept of this recall"
            )
        row = self._row(scope, question, answer)
        with self._storage.write() as tx:
            tx.put_trace(row)
        found = replace(answer.recall, trace_id=row.id)
        return found if question.explain else _unexplained(found)

    def _row(self, scope: Scope, question: Question, answer: Answer) -> TraceRow:
        legs = answer.search.legs
        where = answer.where
        asked: dict[str, Any] = {
            **asdict(question),
            # instants as they were understood: "yesterday" and bare dates mean something else later
            "since": _rendered(where.since),
            "until": _rendered(where.until),
            "as_of": _rendered(where.as_of),
            "known_at": _rendered(where.known_at),
        }
        settings = {name: getattr(answer.search.settings, name) for name in RANKING}
        settings["floors"] = dict(answer.search.floors)
        vector = legs.query_vector
        return TraceRow(
            team_id=scope.team_id,
            user_id=scope.user_id,
            id=new_id(from_micros(answer.now)),
            agent_id=scope.agent_id,
            task_id=scope.task_id,
            layer=question.layer,
            asked_at=answer.now,
            question=canonical_json(_plain(asked)),
            settings=canonical_json(_plain(settings)),
            generation=legs.generation.number if vector is not None and legs.generation is not None else None,
            query_vector=vector.tobytes() if vector is not None else None,
            answer=canonical_json(_plain(_answer(answer.recall))),
        )

    def list(self, scope: Scope, limit: int) -> list[RecallTrace]:
        """The asker's, the newest first."""
        with self._storage.read() as reader:
            rows = reader.traces(scope.team_id, scope.user_id, scope.agent_id, scope.task_id, limit)
        return [_trace(row) for row in rows]

    def delete(self, scope: Scope, trace_id: str) -> None:
        """:raises NotFound: when the asker has none of that id."""
        with self._storage.write() as tx:
            row = tx.trace(scope.team_id, scope.user_id, trace_id) if is_id(trace_id) else None
            if row is None or not _within(scope, row):
                raise _missing(trace_id)
            tx.drop_trace(scope.team_id, scope.user_id, trace_id)

    def replay(self, scope: Scope, trace_id: str) -> Replay:
        """Ask a stored question again, at its own instant and with its own settings and query vector, so that only
        what changed in the store makes a difference.

        :raises NotFound: when the asker has no trace of that id.
        """
        with self._recaller.snapshot() as reader:
            row = reader.trace(scope.team_id, scope.user_id, trace_id) if is_id(trace_id) else None
            if row is None or not _within(scope, row):
                raise _missing(trace_id)
            asker = Scope(row.team_id, row.user_id, row.agent_id, row.task_id)
            kept = {"explain": True, "trace": False, "timeout_s": REPLAY_TIMEOUT_S}
            question = Question(**{**json.loads(row.question), **kept})
            answer = self._recaller.answer(
                reader,
                asker,
                question,
                now=row.asked_at,
                settings=_ranking(self._recaller.settings, row),
                legs=LEGS if row.query_vector is not None else ("text",),
                embed=partial(_kept_vector, row),
            )
            recorded_at = {
                hit.id: found.recorded_at
                for hit in answer.recall
                if (found := reader.memory(row.team_id, hit.id) or reader.message(row.team_id, hit.id))
            }
        then = json.loads(row.answer)
        since = {row_id for row_id, at in recorded_at.items() if at > row.asked_at}
        differences = list(self._differences(asker, question, since, then, answer.recall))
        return Replay(_trace(row), replace(answer.recall, trace_id=row.id), tuple(differences))

    def _differences(
        self, asker: Scope, question: Question, since: set[str], then: Mapping[str, Any], now: Recall
    ) -> Iterator[Difference]:
        """``since``: the ids of hits that were recorded after the trace."""
        # of the history several versions of one memory may be hits
        before = {(hit["id"], question.history and hit["version"]): hit for hit in then["hits"]}
        after = {(hit.id, question.history and hit.version): hit for hit in now}
        for key, hit in before.items():
            found = after.get(key)
            if found is None:
                yield Difference(hit["id"], hit["rank"], None, self._why_gone(asker, hit["id"], question))
            elif reasons := tuple(_changed(hit, found)):
                yield Difference(found.id, hit["rank"], found.rank, reasons)
        for key, new in after.items():
            if key not in before:
                reason = Reason("recorded since") if new.id in since else Reason("came up")
                yield Difference(new.id, None, new.rank, (reason,))
        missing_then = {part["leg"] for part in then["degraded"]}
        for part in now.degraded:
            if part.leg not in missing_then:
                reason = Reason("degraded", {"leg": part.leg, "reason": part.reason})
                yield Difference(None, None, None, (reason,))

    def _why_gone(self, asker: Scope, row_id: str, question: Question) -> tuple[Reason, ...]:
        try:
            found = why_not(self._recaller, asker, row_id, question)
        except NotFound:
            return (Reason("not found"),)
        # asked by the embedder of now it may be a hit: what is missing in the replay is told of by itself
        return found.reasons if found.rank is None else ()


def _within(scope: Scope, row: TraceRow) -> bool:
    """Whether all that the recall asked for lies within the scope: an agent or task sees no other's through it."""
    return scope.agent_id in (None, row.agent_id) and scope.task_id in (None, row.task_id)


def _changed(then: Mapping[str, Any], now: Hit) -> Iterator[Reason]:
    """How a hit is not as it was."""
    if now.version != then["version"]:
        yield Reason("another version")
    if now.rank != then["rank"]:
        yield Reason("moved")
    elif round(now.score - then["score"], SCORE_DIGITS):
        yield Reason("another score")


def _kept_vector(row: TraceRow, generation: Generation) -> "NDArray[np.float32]":
    """The query's vectors of then.

    :raises EmbedderMismatch: when the store's vectors are now of another space.
    """
    import numpy as np

    if row.generation != generation.number:
        raise EmbedderMismatch(
            f"the store's vectors are of {generation.identity.model} now (generation {generation.number}), the trace "
            f"was stored with generation {row.generation}"
        )
    return np.frombuffer(row.query_vector or b"", dtype=np.float32).reshape(-1, generation.identity.dim)


def _ranking(settings: Settings, row: TraceRow) -> Settings:
    """The settings of then."""
    kept: dict[str, Any] = json.loads(row.settings)
    kept["neighbour_weights"] = {leg: tuple(pair) for leg, pair in kept["neighbour_weights"].items()}
    kept.setdefault("source_share", None)  # stored before there was one
    known = {field.name for field in fields(Settings)}
    return replace(settings, **{name: value for name, value in kept.items() if name in known})


def _missing(trace_id: str) -> NotFound:
    return NotFound(f"no stored recall {trace_id!r:.60} of this asker; memstore trace lists them")


def _rendered(micros: int | None) -> str | None:
    return None if micros is None else from_micros(micros).isoformat()


def _answer(recall: Recall) -> dict[str, Any]:
    """Ids and figures. What rows say is not kept twice: a trace must not outlive the deletion of a row."""
    explanation = recall.explanation
    if explanation is not None:
        candidates = tuple(replace(candidate, excerpt="") for candidate in explanation.candidates)
        explanation = replace(explanation, candidates=candidates)
    return {
        "hits": [{"id": h.id, "rank": h.rank, "score": h.score, "version": h.version} for h in recall],
        "degraded": [asdict(part) for part in recall.degraded],
        "explanation": asdict(explanation) if explanation is not None else None,
    }


def _plain(value: Any) -> Any:
    """Dataclass contents as JSON knows them: mappings, lists and plain values."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _unexplained(recall: Recall) -> Recall:
    hits = tuple(replace(hit, explanation=None) for hit in recall)
    return replace(recall, hits=hits, explanation=None)


def _trace(row: TraceRow) -> RecallTrace:
    hits = json.loads(row.answer)["hits"]
    query = str(json.loads(row.question)["query"])
    return RecallTrace(row.id, row.layer, query, from_micros(row.asked_at), tuple(hit["id"] for hit in hits))
