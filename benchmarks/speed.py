"""Speed on made-up rows: writing, indexing, recall of one user in stores of different size, and bytes on disk.

Rows are Chinese and English sentences of Zipf-distributed words. Vectors are random unit vectors that are looked up,
not computed, so every figure leaves the model's time out. One asker owns the same number of rows in every store of
10,000 rows or more, so that its recall times can be compared between stores.
"""

import contextlib
import importlib.util
import random
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import legs, report
from memstore import EmbedderIdentity, MemoryStore, Message, Scope, Settings
from memstore.asking import principal, row_filter
from memstore.embedding import check_query
from memstore.fallback import folder_of
from memstore.times import to_micros

SEED = 11
DIM = 384
TEAMS = 4
USERS = 100
ASKER_ROWS = 1_000
BATCH = 500
SINGLES = 300
QUERY_WORDS = 8
LIMIT = 5
WARM_UP = 20
YARDSTICK_ROWS = 50_000
_CHINESE_WORDS = 30_000
_ENGLISH_WORDS = 20_000
_AGENT = "bench"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param rows: sizes of the stores, measured one after the other.
    :param queries: timed questions of each leg, after the warm-up.
    :param folder: where the stores are built; a fast local disk. None: a temporary folder.
    """

    rows: Sequence[int] = (10_000, 100_000)
    queries: int = 200
    folder: Path | None = None


class LookUpEmbedder:
    """Random unit vectors, one of 32,768 by the CRC-32 of the text: as near to no model time as can be."""

    identity = EmbedderIdentity("random-unit-vectors", f"seed-{SEED}", DIM)

    def __init__(self, size: int = 32_768) -> None:
        drawn = np.random.default_rng(SEED).standard_normal((size, DIM), dtype=np.float32)
        self._vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows of shape ``(len(texts), 384)``."""
        rows: NDArray[np.float32] = self._vectors[[self._place(text) for text in texts]]
        return rows

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """A unit vector of shape ``(384,)``."""
        vector: NDArray[np.float32] = self._vectors[self._place(text)]
        return vector

    def _place(self, text: str) -> int:
        return zlib.crc32(text.encode()) % len(self._vectors)


class Sentences:
    """Seeded sentences of 10 to 30 words, three in five Chinese with some English words, the others the reverse.

    Chinese words are the most frequent two- and three-character words of jieba's dictionary, English ones are made
    of syllables. A word of rank r is drawn with a frequency of 1 / (r + 2.7).
    """

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._chinese = _chinese_words()
        self._english = self._made_up_words()
        self._weights = {
            len(words): list(accumulate(1 / (rank + 2.7) for rank in range(len(words))))
            for words in (self._chinese, self._english)
        }

    def one(self, words: int | None = None) -> str:
        """A sentence, or that many words."""
        count = words or self._random.randint(10, 30)
        chinese = self._random.random() < 0.6
        foreign = sum(self._random.random() < 0.1 for _ in range(count))
        main, other = (self._chinese, self._english) if chinese else (self._english, self._chinese)
        drawn = self._drawn(main, count - foreign) + self._drawn(other, foreign)
        self._random.shuffle(drawn)
        text = ""
        for place, word in enumerate(drawn):
            if place and place % 8 == 0:
                text += "，" if chinese else ","
            if text and word.isascii():
                text += " "
            text += word
        return text + ("。" if chinese else ".")

    def _drawn(self, words: Sequence[str], count: int) -> list[str]:
        return self._random.choices(words, cum_weights=self._weights[len(words)], k=count)

    def _made_up_words(self) -> list[str]:
        starts = [
            "b",
            "br",
            "c",
            "ch",
            "d",
            "f",
            "fl",
            "g",
            "h",
            "j",
            "k",
            "l",
            "m",
            "n",
            "p",
            "pr",
            "qu",
            "r",
            "s",
            "sh",
            "st",
            "t",
            "tr",
            "v",
            "w",
            "z",
        ]
        vowels = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "oo", "ou"]
        ends = ["", "", "", "n", "r", "s", "t", "l", "ck", "nd", "rm", "st"]
        words: dict[str, None] = {}
        while len(words) < _ENGLISH_WORDS:
            syllables = self._random.choice((1, 2, 2, 3))
            pick = self._random.choice
            words["".join(pick(starts) + pick(vowels) + pick(ends) for _ in range(syllables))] = None
        return list(words)


def _chinese_words() -> list[str]:
    spec = importlib.util.find_spec("jieba")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("jieba")
    found: list[tuple[int, str]] = []
    with Path(spec.origin).with_name("dict.txt").open(encoding="utf-8") as file:
        for line in file:
            word, frequency, *_ = line.split(" ")
            if 2 <= len(word) <= 3 and all("\u4e00" <= character <= "\u9fff" for character in word):
                found.append((-int(frequency), word))
    return [word for _, word in sorted(found)[:_CHINESE_WORDS]]


@dataclass(frozen=True, slots=True)
class _Share:
    """One user and how many rows are theirs."""

    scope: Scope
    rows: int


def _shares(rows: int) -> list[_Share]:
    """The asker first: 1,000 rows, or a tenth of a small store; the other users share the rest evenly."""
    asker = min(ASKER_ROWS, max(1, rows // 10))
    others = USERS - 1
    counts = [asker, *((rows - asker + n) // others for n in range(others))]
    return [
        _Share(Scope(f"team {number % TEAMS}", f"user {number}", _AGENT), count)
        for number, count in enumerate(counts)
        if count
    ]


def run(options: Options) -> dict[str, Any]:
    """Measure every size, smallest first, each on a fresh store."""
    embedder = LookUpEmbedder()
    n50 = yardstick_ms()
    results: dict[str, Any] = {}
    for rows in sorted(options.rows):
        print(f"{rows:,} rows", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="memstore-bench-", dir=options.folder) as folder:
            results[str(rows)] = measure(rows, Path(folder) / "speed.db", embedder, options, n50)
    smallest, largest = (results[str(pick(options.rows))] for pick in (min, max))
    return {
        "benchmark": "speed",
        **report.circumstances(embedder),
        "settings": {
            "dim": DIM,
            "teams": TEAMS,
            "users": USERS,
            "batch": BATCH,
            "queries": options.queries,
            "query_words": QUERY_WORDS,
            "limit": LIMIT,
            "candidate_factor": Settings().candidate_factor,
            "seed": SEED,
        },
        "n50_ms": n50,
        "results": results,
        "largest_to_smallest": _growth(smallest, largest),
    }


def _growth(smallest: dict[str, Any], largest: dict[str, Any]) -> dict[str, float] | None:
    """How recall grows with the rows of others; None where the asker's own rows differ as well."""
    if smallest["asker_rows"] != largest["asker_rows"]:
        return None
    return {
        leg: _ratio(largest["recall"][leg]["p50_ms"], smallest["recall"][leg]["p50_ms"]) for leg in legs.LEGS
    }


def yardstick_ms() -> float:
    """N50: the median of numpy's exact product of 50,000 x 384 float32 with one vector, in this process, in ms."""
    rows = np.random.default_rng(SEED).standard_normal((YARDSTICK_ROWS, DIM), dtype=np.float32)
    vector = rows[0].copy()
    return _spread(list(_timed(lambda _: rows @ vector, range(50))))["p50_ms"]


def measure(rows: int, path: Path, embedder: LookUpEmbedder, options: Options, n50: float) -> dict[str, Any]:
    """All figures of one store size."""
    sentences = Sentences()
    shares = _shares(rows)
    texts = {share.scope: [sentences.one() for _ in range(share.rows)] for share in shares}
    text_bytes = sum(len(text.encode()) for own in texts.values() for text in own)
    durable = Settings(timezone="UTC")
    with MemoryStore(path, settings=durable, embedder=embedder) as store:
        _say("record in batches")
        bulk_s = _record_all(store, texts)
        _say("index")
        started = time.perf_counter()
        indexed = store.index()
        index_s = time.perf_counter() - started
        assert indexed.embedded == rows + 1  # noqa: S101 - all, and the warm-up's row
    size = _sizes(path, rows, text_bytes)
    figures: dict[str, Any] = {
        "rows": rows,
        "asker_rows": shares[0].rows,
        "bulk_record": {"rows_per_s": round(rows / bulk_s, 1), "seconds": round(bulk_s, 3)},
        "index": {"rows_per_s": round(rows / index_s, 1), "seconds": round(index_s, 3)},
        "size": size,
    }
    _say("recall")
    figures["recall"] = _recall_times(path, embedder, shares[0].scope, sentences, options.queries)
    for leg in legs.LEGS:
        figures["recall"][leg]["per_n50"] = _ratio(figures["recall"][leg]["p50_ms"], n50)
    _say("record one by one")
    figures["single_record"] = {
        durability: _single_times(path, Settings(timezone="UTC", durability=durability), shares, sentences)
        for durability in ("disk", "process")
    }
    _say("recall again")
    figures["recall_after_single_records"] = {
        "text": _recall_times(path, embedder, shares[0].scope, sentences, options.queries, ("text",))["text"]
    }
    figures["statements"] = _statements(path, embedder, shares[0].scope, sentences)
    figures["peak_memory_mb"] = round(_peak_memory_mb(), 1)
    return figures


def _record_all(store: MemoryStore, texts: dict[Scope, list[str]]) -> float:
    """Seconds for all rows, in calls of one user's 500 messages, the users in turn."""
    calls = [
        [(scope, own[start : start + BATCH]) for start in range(0, len(own), BATCH)]
        for scope, own in texts.items()
    ]
    rounds = [
        user_calls[turn]
        for turn in range(max(map(len, calls)))
        for user_calls in calls
        if turn < len(user_calls)
    ]
    # The first Chinese text loads the dictionary.
    store.record(
        Scope("warm-up", "nobody", _AGENT), [Message("user", "词典 dictionary")], "bench:speed:warm-up"
    )
    started = time.perf_counter()
    for scope, chunk in rounds:
        store.record(scope, [Message("user", text) for text in chunk], "bench:speed:bulk")
    return time.perf_counter() - started


def _recall_times(
    path: Path,
    embedder: LookUpEmbedder,
    scope: Scope,
    sentences: Sentences,
    queries: int,
    which: Sequence[str] = legs.LEGS,
) -> dict[str, Any]:
    asked = [sentences.one(QUERY_WORDS) for _ in range(WARM_UP + queries)]
    with (
        MemoryStore(path, settings=Settings(timezone="UTC"), embedder=embedder) as store,
        MemoryStore(path, settings=Settings(timezone="UTC")) as text_store,
    ):
        ways: dict[str, Callable[[str], object]] = {
            "text": lambda query: legs.ids(text_store, scope, "messages", query, LIMIT),
            "vector": lambda query: vector_ids(store, embedder, scope, query, LIMIT),
            "fused": lambda query: legs.ids(store, scope, "messages", query, LIMIT),
        }
        return {leg: _spread(list(_timed(ways[leg], asked))[WARM_UP:], raw=True) for leg in which}


def vector_ids(
    store: MemoryStore, embedder: LookUpEmbedder, scope: Scope, query: str, limit: int
) -> list[str]:
    """Messages by the vector index alone, read below the facade: no answer leaves the text leg out, and this is about
    time.

    :raises RuntimeError: when the store has no vectors.
    """
    vector = check_query(embedder.embed_query(query), embedder.identity.dim)
    now = to_micros(store._clock.now())  # noqa: SLF001
    with store._storage.read() as reader:  # noqa: SLF001
        generation = reader.generation("active")
        if generation is None:
            raise RuntimeError("the store has no vectors yet")
        where = row_filter(principal(reader, scope), "search", "messages", now=now)
        found = reader.vector_search("messages", generation.number, vector, where, limit)
        rows = reader.message_rows([candidate.ref for candidate in found])
        return [rows[candidate.ref].id for candidate in found]


def _single_times(
    path: Path, settings: Settings, shares: Sequence[_Share], sentences: Sentences
) -> dict[str, Any]:
    work = [(shares[n % len(shares)].scope, sentences.one()) for n in range(WARM_UP + SINGLES)]
    with MemoryStore(path, settings=settings) as store:

        def record(item: tuple[Scope, str]) -> object:
            scope, text = item
            return store.record(scope, [Message("user", text)], "bench:speed:single")

        return _spread(list(_timed(record, work))[WARM_UP:], raw=True)


def _statements(
    path: Path, embedder: LookUpEmbedder, scope: Scope, sentences: Sentences
) -> dict[str, list[str] | int]:
    """SQL statements of one record and of one fused recall, once connections are open."""
    seen: list[str] = []
    with MemoryStore(
        path, settings=Settings(timezone="UTC"), embedder=embedder, statement_hook=seen.append
    ) as store:
        counts: dict[str, list[str] | int] = {}
        for name, call in (
            (
                "record",
                lambda: store.record(scope, [Message("user", sentences.one())], "bench:speed:single"),
            ),
            ("recall", lambda: store.search_messages(scope, sentences.one(QUERY_WORDS), LIMIT)),
        ):
            call()
            seen.clear()
            call()
            counts[name] = len(seen)
            counts[f"{name}_statements"] = [" ".join(statement.split())[:100] for statement in seen]
        return counts


def _sizes(path: Path, rows: int, text_bytes: int) -> dict[str, Any]:
    """Of the closed store, whose WAL is empty. ``raw`` is UTF-8 text and float32 vectors."""
    database = path.stat().st_size
    fallback = sum(file.stat().st_size for file in folder_of(path).iterdir())
    raw = text_bytes + rows * DIM * 4
    return {
        "database_bytes": database,
        "fallback_bytes": fallback,
        "database_bytes_per_row": round(database / rows, 1),
        "fallback_bytes_per_row": round(fallback / rows, 1),
        "text_bytes_per_row": round(text_bytes / rows, 1),
        "database_to_raw": _ratio(database, raw),
    }


def _timed(way: Callable[[Any], object], items: Sequence[Any]) -> Iterator[float]:
    """Milliseconds of each call."""
    for item in items:
        started = time.perf_counter()
        way(item)
        yield (time.perf_counter() - started) * 1000


def _spread(times_ms: Sequence[float], *, raw: bool = False) -> dict[str, Any]:
    cuts = quantiles(times_ms, n=20, method="inclusive")
    figures: dict[str, Any] = {
        "p50_ms": round(cuts[9], 4),
        "p95_ms": round(cuts[18], 4),
        "mean_ms": round(sum(times_ms) / len(times_ms), 4),
        "calls": len(times_ms),
    }
    if raw:
        figures["raw_ms"] = [round(time_ms, 4) for time_ms in times_ms]
    return figures


def _ratio(a: float, b: float) -> float:
    return round(a / b, 3)


def _peak_memory_mb() -> float:
    """The process's largest resident set so far, the stores before this one included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _say(what: str) -> None:
    with contextlib.suppress(OSError):
        print(f"  {what}", file=sys.stderr, flush=True)
