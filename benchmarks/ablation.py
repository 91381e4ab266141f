"""What each default of recall is worth: one setting changed at a time, all else as it is.

A set's store is built once for each form of its rows (*index* variants), and asked under many settings (*query*
variants), of which each is the same file opened anew. Every question is asked once, with a limit of ten. What cannot
change anything for a set is left out: names where nobody is named, neighbours where one speaker alone is heard.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import legs, quality, report
from benchmarks.cache import CachedEmbedder, default_folder
from benchmarks.corpus import PARTS, Corpus, DataSet, Part
from benchmarks.sets import SETS, Form, differs, has_neighbours, keep, scope_of
from memstore import MemoryStore, Scope, Settings
from memstore.embedding import Embedder, embeddable
from memstore.metrics import gold_ranks, mean, recall_at
from memstore.storage.sqlite import text_index
from memstore.types import Layer

BASE = "defaults"
LIMIT = 10
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One change of the defaults. ``about_neighbours``: without neighbours it changes nothing. ``about_query``: it has
    the model embed texts of its own.

    :param form: of the rows. A store of another form is built for the variant.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)
    form: Form = "as read"

    @property
    def about_neighbours(self) -> bool:
        return any(name in ("neighbour_weights", "neighbour_gap_s", "pool_factor") for name in self.settings)

    @property
    def about_query(self) -> bool:
        other_parts = bool(self.settings.get("sentences"))
        return self.name == BASE or "stop_words" in self.settings or other_parts


def _values(name: str, *values: float) -> list[Variant]:
    """A variant for each value of a setting that is not its default: that one is the first row."""
    default = getattr(Settings(), name)
    return [Variant(f"{name} {value:.4g}", {name: value}) for value in values if value != default]


def _literal_weights(*values: float) -> list[Variant]:
    name, default = "LITERAL_WEIGHT", text_index.LITERAL_WEIGHT
    return [Variant(f"{name} {value:.4g}", constants={name: value}) for value in values if value != default]


def _neighbours(name: str, weights: Mapping[str, tuple[float, float]]) -> Variant:
    return Variant(name, {"neighbour_weights": weights})


_LEGS = ("text", "vector")
_WEIGHTS = Settings().neighbour_weights

VARIANTS: tuple[Variant, ...] = (
    Variant(BASE),
    Variant("no names in the rows", form="without names"),
    Variant("neighbours of the same speaker too", form="turn about"),
    Variant("no stop words", {"stop_words": False}),
    Variant("no sentences", {"sentences": 0}),
    *_values("sentences", 3),
    *_values("full_coverage", 0.0, 1 / 3, 0.5, 1.0),
    _neighbours("no neighbours", {}),
    *(_neighbours(f"neighbours in {leg} only", {leg: _WEIGHTS[leg]}) for leg in _LEGS),
    *(
        _neighbours(f"neighbours {weights[0]}, {weights[1]}", dict.fromkeys(_LEGS, weights))
        for weights in ((0.4, 0.2), (0.5, 0.5))
    ),
    *_values("neighbour_gap_s", 60.0, 3600.0),
    *_values("pool_factor", 2, 8),
    *_values("candidate_factor", 2, 5, 10),
    *(
        Variant(f"text weight {weight}", {"leg_weights": {"text": weight, "vector": 1.0}})
        for weight in (0.5, 2.0)
    ),
    *_values("rrf_k", 10, 100),
    *_literal_weights(0.0, 0.03, 0.1, 0.25, 0.5, 1.0),
    Variant("recency, half-life 30 days", {"recency_half_life_s": 30 * DAY_S}),
    Variant("collapse_similarity 0.9", {"collapse_similarity": 0.9}),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for; see :class:`benchmarks.quality.Options`.

    :param jobs: so many processes ask at once, each under another variant.
    """

    data: Path
    limit: int | None = None
    sets: Sequence[str] = tuple(SETS)
    cache: Path = field(default_factory=default_folder)
    variants: Sequence[Variant] = VARIANTS
    settings: Settings = field(default_factory=lambda: Settings(timezone="UTC", durability="process"))
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """A question as a store is asked it; ``gold`` are the store's own ids."""

    scope: Scope
    layer: Layer
    part: Part
    query: str
    gold: frozenset[str]


class QueryVectors:
    """An embedder that keeps what it was asked for queries, and takes that along, without its model, into another
    process."""

    def __init__(self, embedder: Embedder) -> None:
        self.identity = embedder.identity
        self._embedder: Embedder | None = embedder
        self._vectors: dict[str | None, NDArray[np.float32]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_embedder": None}

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As the embedder gave it.

        :raises LookupError: in another process, for what it was never asked here.
        """
        key = embeddable(text)
        if key not in self._vectors:
            if self._embedder is None:
                raise LookupError(f"no variant of this process asked for {text!r:.60}")
            self._vectors[key] = self._embedder.embed_query(text)
        return self._vectors[key]

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the embedder gives them.

        :raises LookupError: in another process.
        """
        if self._embedder is None:
            raise LookupError(f"{len(texts)} documents are to be embedded without a model")
        return self._embedder.embed_documents(texts)


def run(options: Options, embedder: Embedder) -> dict[str, Any]:
    """Measure every variant on every set whose files are there.

    :raises DataMissing: when there is none at all.
    """
    cached = CachedEmbedder(embedder, options.cache)
    skipped: dict[str, str] = {}
    results: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    try:
        for name, corpora in quality.read_sets(options.data, options.sets, options.limit, skipped):
            found = list(_set_rows(name, corpora, cached, options))
            results[name] = {"questions": found[0]["questions"]}
            rows += found
    finally:
        cached.close()
    return {
        "benchmark": "ablation",
        **report.circumstances(embedder),
        "settings": {
            "limit": options.limit,
            "asked_with_limit": LIMIT,
            **report.recall_settings(options.settings),
        },
        "seconds": round(time.perf_counter() - started, 1),
        "results": results,
        "rows": rows,
        "skipped": skipped,
    }


def _set_rows(
    name: str, corpora: Sequence[Corpus], embedder: Embedder, options: Options
) -> Iterator[dict[str, Any]]:
    """A row a variant, in their order. The first one is what the others are compared with."""
    found: dict[str, dict[str, Any]] = {}
    vectors = QueryVectors(embedder)
    neighbours = has_neighbours(corpora)
    variants = [variant for variant in options.variants if neighbours or not variant.about_neighbours]
    for form in dict.fromkeys(variant.form for variant in variants):
        if differs(corpora, form):
            of_form = [variant for variant in variants if variant.form == form]
            found |= _of_form(SETS[name], corpora, vectors, options, form, of_form)
    ordered = [{"set": name, "variant": v.name, **found[v.name]} for v in variants if v.name in found]
    for row in ordered:
        yield {**row, "difference": _difference(ordered[0], row)}


def _of_form(
    spec: DataSet,
    corpora: Sequence[Corpus],
    vectors: QueryVectors,
    options: Options,
    form: Form,
    variants: Sequence[Variant],
) -> dict[str, dict[str, Any]]:
    """Build the store of a form, and measure its variants: first, in this process, those that may hand the model
    other texts than the variants before them."""
    with tempfile.TemporaryDirectory(prefix="memstore-bench-") as folder:
        path = Path(folder) / "ablation.db"
        asks = _built(path, spec, corpora, vectors, options.settings, form)
        found: dict[str, dict[str, Any]] = {}
        here = [variant for variant in variants if variant.about_query]
        there = [variant for variant in variants if not variant.about_query]
        for part, jobs in ((here, 1), (there, options.jobs)):
            settings = [replace(options.settings, **variant.settings) for variant in part]
            constants = [variant.constants for variant in part]
            with _pool(jobs) as mapped:
                rows = mapped(partial(measured, path, asks, vectors), settings, constants)
                for variant, row in zip(part, rows, strict=True):
                    report.say(
                        f"  {variant.name}: fused {row['choose']['fused']} (choose), {row['seconds']} s"
                    )
                    found[variant.name] = row
        return found


@contextmanager
def _pool(jobs: int) -> Iterator[Callable[..., Iterator[dict[str, Any]]]]:
    """A ``map`` over processes; with one job in this process."""
    if jobs == 1:
        yield map
        return
    # A forked child must not use what its parent opened, so each one starts afresh.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield pool.map


def _built(
    path: Path,
    spec: DataSet,
    corpora: Sequence[Corpus],
    embedder: Embedder,
    settings: Settings,
    form: Form,
) -> list[Ask]:
    asks: list[Ask] = []
    with MemoryStore(path, embedder=embedder, settings=settings) as store:
        for place, corpus in enumerate(corpora):
            if not corpus.questions:
                continue
            scope = scope_of(corpus)
            of = {document: id_ for id_, document in keep(store, corpus, scope, form).items()}
            for question in corpus.questions:
                gold = frozenset(of[document] for document in question.gold)
                part = spec.part(place, question.id)
                asks.append(Ask(scope, corpus.layer, part, question.query, gold))
        store.index(quality.progress_of("documents embedded"))
    return asks


def measured(
    path: Path,
    asks: Sequence[Ask],
    vectors: QueryVectors,
    settings: Settings,
    constants: Mapping[str, float],
) -> dict[str, Any]:
    """recall@10 of each leg on both parts, by a store under these settings."""
    started = time.perf_counter()
    recalls: dict[str, dict[str, list[float]]] = {part: {leg: [] for leg in legs.LEGS} for part in PARTS}
    with (
        quality.changed_constants(constants),
        MemoryStore(path, embedder=vectors, settings=settings) as store,
    ):
        for ask in asks:
            found = legs.ids_by_leg(store, ask.scope, ask.layer, ask.query, LIMIT)
            for leg, ids in found.items():
                recalls[ask.part][leg].append(recall_at(gold_ranks(ids, ask.gold), LIMIT))
    return {
        "questions": {part: len(recalls[part]["fused"]) for part in PARTS},
        **{part: {leg: mean(values) for leg, values in recalls[part].items()} for part in PARTS},
        "seconds": round(time.perf_counter() - started, 1),
    }


def _difference(base: Mapping[str, Any], row: Mapping[str, Any]) -> float | None:
    then, now = base["choose"]["fused"], row["choose"]["fused"]
    return None if then is None or now is None else round(now - then, 4)


def table(figures: Mapping[str, Any]) -> str:
    """Markdown: a row a variant and set, recall@10 of each leg on both parts, and what fused gains on ``choose``."""
    columns = [(part, leg) for part in PARTS for leg in legs.LEGS]
    head = ["set", "variant", *(f"{part}: {leg}" for part, leg in columns), "fused, choose: difference"]
    return report.markdown(
        head,
        [
            [
                row["set"],
                row["variant"],
                *(row[part][leg] for part, leg in columns),
                None if row["difference"] is None else f"{row['difference']:+.3f}",
            ]
            for row in figures["rows"]
        ],
    )
