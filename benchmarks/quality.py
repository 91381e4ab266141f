"""Retrieval quality: the text leg alone, the vector leg alone, and both fused, on the same questions."""

import importlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import legs, report
from benchmarks.cache import CachedEmbedder, default_folder
from benchmarks.corpus import PARTS, Corpus, DataMissing, DataSet, Question
from benchmarks.sets import SETS, keep, scope_of
from memstore import MemoryStore, Settings
from memstore.embedding import Embedder
from memstore.metrics import Ranks, gold_ranks, summary

LIMITS = (5, 10, 20)
"""Each question is asked so often: figures at k come from an answer of at most k rows."""
RANKED_AT = 10

CONSTANTS: Mapping[str, str] = {
    "LITERAL_WEIGHT": "memstore.storage.sqlite.text_index",
    "WORDS_WEIGHT": "memstore.storage.sqlite.text_index",
}
"""Constants that a run may change to see what they do. No store offers them as settings."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param limit: about this many questions of each set, None for all.
    :param one_team: keep all people of a set in one team. BM25's word statistics are a team's, so this measures a
        team of many users; by default each person is a team of one, as in published figures.
    """

    data: Path
    limit: int | None = None
    sets: Sequence[str] = tuple(SETS)
    one_team: bool = False
    settings: Settings = field(default_factory=lambda: Settings(timezone="UTC", durability="process"))
    constants: Mapping[str, float] = field(default_factory=dict)
    cache: Path = field(default_factory=default_folder)


def run(options: Options, embedder: Embedder) -> dict[str, Any]:
    """Measure every set whose files are there.

    :raises DataMissing: when there is none at all.
    """
    cached = CachedEmbedder(embedder, options.cache)
    skipped: dict[str, str] = {}
    try:
        with changed_constants(options.constants):
            results = {
                name: measure(SETS[name], corpora, cached, options)
                for name, corpora in read_sets(options.data, options.sets, options.limit, skipped)
            }
    finally:
        cached.close()
    return {
        "benchmark": "quality",
        **report.circumstances(embedder),
        "settings": {
            "limit": options.limit,
            "limits": list(LIMITS),
            "one_team": options.one_team,
            **report.recall_settings(options.settings),
            "constants": dict(options.constants),
        },
        "results": results,
        "languages": _languages(results),
        "skipped": skipped,
    }


def read_sets(
    data: Path, names: Sequence[str], limit: int | None, skipped: dict[str, str]
) -> Iterator[tuple[str, list[Corpus]]]:
    """The sets whose files are there, one after the other; the others are noted in ``skipped``.

    :raises DataMissing: after the last, when there was none at all.
    """
    found = False
    for name in names:
        try:
            corpora = SETS[name].read(data / SETS[name].folder, limit)
        except DataMissing as missing:
            skipped[name] = str(missing)
            report.say(f"{name}: skipped, {missing}")
            continue
        found = True
        count = sum(len(corpus.questions) for corpus in corpora)
        report.say(f"{name}: {count:,} questions")
        yield name, corpora
    if not found:
        raise DataMissing(f"no data set was found in {data}: {'; '.join(skipped.values())}")


def measure(
    spec: DataSet, corpora: Sequence[Corpus], embedder: CachedEmbedder, options: Options
) -> dict[str, Any]:
    """One data set: keep the documents, ask the questions of every leg, and score the ranks."""
    excluded = Counter(reason for corpus in corpora for reason in corpus.excluded)
    with tempfile.TemporaryDirectory(prefix="memstore-bench-") as folder:
        started = time.perf_counter()
        with MemoryStore(Path(folder) / "quality.db", embedder=embedder, settings=options.settings) as store:
            names = {
                corpus.id: keep(store, corpus, scope_of(corpus, one_team=options.one_team))
                for corpus in corpora
                if corpus.questions
            }
            kept = time.perf_counter()
            store.index(progress_of("documents embedded"))
            indexed = time.perf_counter()
            asked = list(_asked(spec, corpora, names, store, one_team=options.one_team))
        done = time.perf_counter()
    return {
        "language": spec.language,
        "documents": sum(map(len, names.values())),
        "questions": len(asked),
        "excluded": dict(excluded),
        "legs": scores(asked),
        **({"session_legs": scores(asked, "session_ranks")} if any(map(_has_sessions, asked)) else {}),
        "seconds": {
            "keep": round(kept - started, 2),
            "index": round(indexed - kept, 2),
            "ask": round(done - indexed, 2),
        },
        "raw": asked,
    }


def progress_of(what: str) -> Callable[[int, int], None]:
    """Says on stderr, now and then, how far it is."""
    said = 0

    def say(done: int, total: int) -> None:
        nonlocal said
        if done - said >= 5_000 or (done == total and said):
            said = done
            report.say(f"  {what}: {done:,} of {total:,}")

    return say


def _asked(
    spec: DataSet,
    corpora: Sequence[Corpus],
    names: Mapping[str, dict[str, str]],
    store: MemoryStore,
    *,
    one_team: bool,
) -> Iterator[dict[str, Any]]:
    """Each question with the ranks of its gold documents by leg and limit: the raw figures."""
    for place, corpus in enumerate(corpora):
        scope = scope_of(corpus, one_team=one_team)
        session_of = {document.id: document.session for document in corpus.documents}
        for question in corpus.questions:
            returned = {
                str(limit): legs.ids_by_leg(store, scope, corpus.layer, question.query, limit)
                for limit in LIMITS
            }
            found = {
                leg: {
                    limit: [names[corpus.id][id_] for id_ in by_leg[leg]]
                    for limit, by_leg in returned.items()
                }
                for leg in legs.LEGS
            }
            entry = {
                "id": question.id,
                "group": question.group,
                "part": spec.part(place, question.id),
                "ranks": _ranked(found, partial(gold_ranks, gold=question.gold)),
            }
            if question.sessions:
                entry["session_ranks"] = _ranked(found, _session_ranks(question, session_of))
            yield entry


def _ranked(
    found: Mapping[str, Mapping[str, list[str]]], ranks_of: Callable[[list[str]], list[int | None]]
) -> dict[str, dict[str, list[int | None]]]:
    return {leg: {limit: ranks_of(ids) for limit, ids in by_limit.items()} for leg, by_limit in found.items()}


def _session_ranks(
    question: Question, session_of: Mapping[str, str | None]
) -> Callable[[list[str]], list[int | None]]:
    """Ranks of sessions: by their best document among those returned."""
    return lambda ids: gold_ranks(list(dict.fromkeys(session_of[id_] for id_ in ids)), question.sessions)


def _has_sessions(entry: Mapping[str, Any]) -> bool:
    return "session_ranks" in entry


# --- scores --------------------------------------------------------------------------------------------------


def scores(asked: Sequence[Mapping[str, Any]], ranks: str = "ranks") -> dict[str, Any]:
    """The scores of each leg: of all questions and of either part, and the same for each group."""
    asked = [entry for entry in asked if ranks in entry]
    groups = sorted({entry["group"] for entry in asked})
    return {
        leg: {
            **_parts(asked, leg, ranks),
            "by_group": {
                group: _parts([entry for entry in asked if entry["group"] == group], leg, ranks)
                for group in groups
            },
        }
        for leg in legs.LEGS
    }


def _parts(asked: Sequence[Mapping[str, Any]], leg: str, ranks: str) -> dict[str, Any]:
    def scored(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        by_limit: dict[int, list[Ranks]] = {
            limit: [entry[ranks][leg][str(limit)] for entry in entries] for limit in LIMITS
        }
        return {"questions": len(entries), **summary(by_limit, RANKED_AT)}

    return {
        "all": scored(asked),
        **{part: scored([entry for entry in asked if entry["part"] == part]) for part in PARTS},
    }


def _languages(results: Mapping[str, Any]) -> dict[str, Any]:
    """The same over all sets of a language, each question counting once a set."""
    raw: dict[str, list[Mapping[str, Any]]] = {}
    for result in results.values():
        raw.setdefault(result["language"], []).extend(result["raw"])
    return {
        language: {leg: _parts(asked, leg, "ranks") for leg in legs.LEGS}
        for language, asked in sorted(raw.items())
    }


@contextmanager
def changed_constants(values: Mapping[str, float]) -> Iterator[None]:
    """Give constants of the store other values for the time of a run; see :data:`CONSTANTS`."""
    before: dict[str, Any] = {}
    modules = {name: importlib.import_module(CONSTANTS[name]) for name in values}
    try:
        for name, value in values.items():
            before[name] = getattr(modules[name], name)
            setattr(modules[name], name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(modules[name], name, value)
