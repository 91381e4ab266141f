"""Retrieval quality: the text leg alone, the vector leg alone, and both fused, on the same questions."""

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import legs, locomo, madial, memdaily, report
from benchmarks.cache import CachedEmbedder, default_folder
from benchmarks.corpus import Corpus, DataMissing
from benchmarks.metrics import gold_ranks, summary
from memstore import MemoryStore, Message, Scope, Settings
from memstore.embedding import Embedder

Reader = Callable[[Path, int | None], list[Corpus]]


def _madial(query: madial.Query) -> Reader:
    return lambda folder, limit: madial.read(folder, query, limit)


SETS: Mapping[str, tuple[str, Reader]] = {
    "locomo": (locomo.NAME, locomo.read),
    "memdaily": (memdaily.NAME, memdaily.read),
    "madial-zh-3-turns": (madial.NAME, _madial("three_turns")),
    "madial-zh-1-turn": (madial.NAME, _madial("last_utterance")),
}
"""Name of a result, the folder of its files inside the data folder, and its reader."""

ABLATIONS: Mapping[str, str] = {
    "LITERAL_WEIGHT": "memstore.storage.sqlite.text_index",
    "WORDS_WEIGHT": "memstore.storage.sqlite.text_index",
}
"""Constants that a run may change to see what they do. No store offers them as settings."""

_AGENT = "bench"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param limit: about this many questions of each set, None for all.
    :param top: how many results each question asks for; the legs bring ``candidate_factor`` times as many.
    :param one_team: keep all people of a set in one team. BM25's word statistics are a team's, so this measures a
        team of many users; by default each person is a team of one, as in published figures.
    """

    data: Path
    limit: int | None = None
    sets: Sequence[str] = tuple(SETS)
    top: int = 20
    one_team: bool = False
    settings: Settings = field(default_factory=lambda: Settings(timezone="UTC", durability="process"))
    ablations: Mapping[str, float] = field(default_factory=dict)
    cache: Path = field(default_factory=default_folder)


def run(options: Options, embedder: Embedder) -> dict[str, Any]:
    """Measure every set whose files are there.

    :raises DataMissing: when there is none at all.
    """
    cached = CachedEmbedder(embedder, options.cache)
    results: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    try:
        with changed_constants(options.ablations):
            for name in options.sets:
                folder, read = SETS[name]
                try:
                    corpora = read(options.data / folder, options.limit)
                except DataMissing as missing:
                    skipped[name] = str(missing)
                    print(f"{name}: skipped, {missing}", file=sys.stderr)
                    continue
                print(
                    f"{name}: {sum(len(c.questions) for c in corpora):,} questions",
                    file=sys.stderr,
                    flush=True,
                )
                results[name] = measure(corpora, cached, options)
    finally:
        cached.close()
    if not results:
        raise DataMissing(f"no data set was found in {options.data}: {'; '.join(skipped.values())}")
    return {
        "benchmark": "quality",
        **report.circumstances(embedder),
        "settings": {
            "limit": options.limit,
            "top": options.top,
            "one_team": options.one_team,
            "candidate_factor": options.settings.candidate_factor,
            "rrf_k": options.settings.rrf_k,
            "leg_weights": {leg: options.settings.leg_weight(leg) for leg in ("text", "vector")},
            "ablations": dict(options.ablations),
        },
        "results": results,
        "skipped": skipped,
    }


def measure(corpora: Sequence[Corpus], embedder: CachedEmbedder, options: Options) -> dict[str, Any]:
    """One data set: keep the documents, ask the questions of every leg, and score the ranks."""
    embedder.warm_up(
        [document.text for corpus in corpora for document in corpus.documents],
        [question.query for corpus in corpora for question in corpus.questions],
    )
    with tempfile.TemporaryDirectory(prefix="memstore-bench-") as folder:
        path = Path(folder) / "quality.db"
        started = time.perf_counter()
        with MemoryStore(path, embedder=embedder, settings=options.settings) as store:
            names = {corpus.id: keep(store, corpus, options) for corpus in corpora}
            kept = time.perf_counter()
            store.index()
            indexed = time.perf_counter()
            with MemoryStore(path, settings=options.settings) as text_store:
                asked = list(_asked(corpora, names, store, text_store, embedder, options))
        done = time.perf_counter()
    return {
        "documents": sum(len(corpus.documents) for corpus in corpora),
        "questions": len(asked),
        "legs": {leg: _scores(asked, leg) for leg in legs.LEGS},
        "seconds": {
            "keep": round(kept - started, 2),
            "index": round(indexed - kept, 2),
            "ask": round(done - indexed, 2),
        },
        "raw": asked,
    }


def scope_of(corpus: Corpus, options: Options) -> Scope:
    """Whose documents a corpus is: one user, alone in a team or together with the others."""
    return Scope("everyone" if options.one_team else f"team of {corpus.id}", f"user {corpus.id}", _AGENT)


def keep(store: MemoryStore, corpus: Corpus, options: Options) -> dict[str, str]:
    """Put a corpus into the store; returns the data set's id of each stored id."""
    scope = scope_of(corpus, options)
    if corpus.layer == "memories":
        return {
            store.add(scope, document.text, valid_from=document.at).id: document.id
            for document in corpus.documents
        }
    messages = [
        Message("user", document.text, id=document.id, name=document.speaker, created_at=document.at)
        for document in corpus.documents
    ]
    receipt = store.record(scope, messages, f"{_AGENT}:quality:{corpus.id.replace('/', '-')}")
    return dict(zip(receipt.ids, (document.id for document in corpus.documents), strict=True))


def _asked(
    corpora: Sequence[Corpus],
    names: Mapping[str, dict[str, str]],
    store: MemoryStore,
    text_store: MemoryStore,
    embedder: Embedder,
    options: Options,
) -> Iterator[dict[str, Any]]:
    """Each question with the ranks of its gold documents in each leg: the raw figures."""
    for corpus in corpora:
        scope, of = scope_of(corpus, options), names[corpus.id]
        for question in corpus.questions:
            where = (scope, corpus.layer, question.query, options.top)
            returned = {
                "text": legs.store_ids(text_store, *where),
                "vector": legs.vector_ids(store, embedder, *where),
                "fused": legs.store_ids(store, *where),
            }
            ranks = {
                leg: gold_ranks([of[id_] for id_ in ids], question.gold) for leg, ids in returned.items()
            }
            yield {"id": question.id, "group": question.group, "ranks": ranks}


def _scores(asked: Sequence[Mapping[str, Any]], leg: str) -> dict[str, Any]:
    groups: dict[str, list[list[int | None]]] = {}
    for question in asked:
        groups.setdefault(question["group"], []).append(question["ranks"][leg])
    return {
        "all": summary([question["ranks"][leg] for question in asked]),
        "by_group": {
            group: {"questions": len(ranks), **summary(ranks)} for group, ranks in sorted(groups.items())
        },
    }


@contextmanager
def changed_constants(values: Mapping[str, float]) -> Iterator[None]:
    """Give constants of the store other values for the time of a run; see :data:`ABLATIONS`."""
    before: dict[str, Any] = {}
    modules = {name: importlib.import_module(ABLATIONS[name]) for name in values}
    try:
        for name, value in values.items():
            before[name] = getattr(modules[name], name)
            setattr(modules[name], name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(modules[name], name, value)
