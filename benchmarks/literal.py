"""Is every literal substring found? Pieces of 2 to 8 characters of Chinese rows, cut anywhere, asked of the text leg.

Rows are messages of MemDaily and MemoryBank, and made-up Chinese sentences that hold an identifier glued to the
characters around it. What should be found is counted by SQLite's ``instr`` over all rows, in the form in which the
store compares (:func:`memstore.text.squeezed`). Where fewer rows than the limit hold a piece, every one of them must
be in the answer; where exactly one does, it must be the first.
"""

import random
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import legs, memdaily, memorybank, report
from benchmarks.corpus import DataMissing
from benchmarks.sets import AGENT
from memstore import MemoryStore, Message, Scope, Settings
from memstore.text import squeezed

SEED = 23
LIMIT = 20
SHORTEST, LONGEST = 2, 8
IDENTIFIERS = 400
FAILURES_KEPT = 100
MADE_UP = "identifiers"
_BATCH = 500
_HAN = re.compile("[\u4e00-\u9fff]")
_SEARCHABLE = re.compile(r"[^\W_]")
"""Of punctuation alone the text leg looks for nothing (SPEC R6); such pieces are not drawn."""
_SCOPE = Scope("literal", "everyone", AGENT)

_BEFORE = (
    "夜里跑完",
    "请把",
    "我们昨天升级了",
    "日志里一直报",
    "新买的",
    "先别动",
    "老师推荐了",
    "服务器上的",
    "他说",
)
_AFTER = (
    "后恢复上线",
    "的配置改一下",
    "之后速度快多了",
    "这个错误",
    "已经发货了",
    "等我回来再说",
    "里有一章讲缓存",
    "又崩了",
    "还没修好",
)
_STEMS = (
    "build",
    "node",
    "cache",
    "x",
    "err",
    "api",
    "gpu",
    "rtx",
    "ver",
    "user",
    "log",
    "db",
    "pkg",
    "iso",
    "wifi",
    "py",
)
_JOINTS = ("-", "_", ".", "/", "", ":", "#", "+")


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for."""

    data: Path
    draws: int = 2_000


def run(options: Options) -> dict[str, Any]:
    """Draw from every data set whose files are there, and from made-up rows.

    :raises DataMissing: when there is none at all.
    """
    sources: dict[str, list[str]] = {}
    skipped: dict[str, str] = {}
    for name, read in (("memdaily", _memdaily), ("memorybank", _memorybank)):
        try:
            sources[name] = list(
                dict.fromkeys(text for text in read(options.data / name) if _HAN.search(text))
            )
        except DataMissing as missing:
            skipped[name] = str(missing)
    if not sources:
        raise DataMissing(f"no data set was found in {options.data}: {'; '.join(skipped.values())}")
    sources[MADE_UP] = made_up_rows(IDENTIFIERS)
    return {
        "benchmark": "literal",
        **report.circumstances(None),
        "settings": {"draws": options.draws, "limit": LIMIT, "lengths": [SHORTEST, LONGEST], "seed": SEED},
        "rows": {name: len(rows) for name, rows in sources.items()},
        **measure(sources, options.draws),
        "skipped": skipped,
    }


def _memdaily(folder: Path) -> Iterator[str]:
    return iter(memdaily.texts(folder))


def _memorybank(folder: Path) -> Iterator[str]:
    return (message.text for person in memorybank.read(folder, "zh") for message in person.messages)


def made_up_rows(count: int) -> list[str]:
    """Seeded Chinese sentences, each with an identifier glued into it."""
    choice = random.Random(SEED)
    return [choice.choice(_BEFORE) + identifier(choice) + choice.choice(_AFTER) for _ in range(count)]


def identifier(choice: random.Random) -> str:
    """For example ``build-x7``, ``ERR_4012`` or ``v2.13``: words and numbers, joined or glued."""
    parts = [choice.choice(_STEMS)]
    for _ in range(choice.choice((1, 1, 2))):
        number = str(choice.randrange(10 ** choice.choice((1, 2, 4))))
        parts += [choice.choice(_JOINTS), choice.choice((number, choice.choice(_STEMS) + number))]
    found = "".join(parts)
    return choice.choice((found, found.upper(), found.capitalize()))


def measure(sources: Mapping[str, Sequence[str]], draws: int) -> dict[str, Any]:
    """Record all rows as one user's messages, and ask for pieces drawn from the sources in turn."""
    rows = [text for texts in sources.values() for text in texts]
    with (
        tempfile.TemporaryDirectory(prefix="memstore-bench-") as folder,
        MemoryStore(
            Path(folder) / "literal.db", settings=Settings(timezone="UTC", durability="process")
        ) as store,
    ):
        oracle = Oracle(_recorded(store, rows))
        results = [_asked(store, oracle, source, piece) for source, piece in drawn(sources, draws)]
        oracle.close()
    return scored(results)


def _recorded(store: MemoryStore, rows: Sequence[str]) -> dict[str, str]:
    """Ids of the rows, with their texts."""
    ids: dict[str, str] = {}
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        receipt = store.record(_SCOPE, [Message("user", text) for text in part], f"{AGENT}:literal:{start}")
        ids.update(zip(receipt.ids, part, strict=True))
        if start % (10 * _BATCH) == 0:
            report.say(f"  rows recorded: {start + len(part):,} of {len(rows):,}")
    return ids


class Oracle:
    """Which rows hold a piece, found by looking at every one of them."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._rows = sqlite3.connect(":memory:")
        self._rows.execute("CREATE TABLE rows (id TEXT, text TEXT)")
        self._rows.executemany(
            "INSERT INTO rows VALUES (?, ?)", [(id_, squeezed(text)) for id_, text in texts.items()]
        )

    def holders(self, piece: str) -> set[str]:
        found = self._rows.execute("SELECT id FROM rows WHERE instr(text, ?) > 0", (squeezed(piece),))
        return {id_ for (id_,) in found}

    def close(self) -> None:
        self._rows.close()


def drawn(sources: Mapping[str, Sequence[str]], draws: int) -> Iterator[tuple[str, str]]:
    """Pieces of the sources in turn, each with its source's name; seeded."""
    choice = random.Random(SEED)
    names = [name for name, texts in sources.items() if any(len(text) >= SHORTEST for text in texts)]
    for number in range(draws):
        name = names[number % len(names)]
        while True:
            text = choice.choice(sources[name])
            length = choice.randint(SHORTEST, LONGEST)
            start = choice.randint(0, max(0, len(text) - length))
            piece = text[start : start + length].strip()
            # Cutting between a letter and what combines with it makes another text of it.
            if len(piece) >= SHORTEST and _SEARCHABLE.search(piece) and squeezed(piece) in squeezed(text):
                yield name, piece
                break


def _asked(store: MemoryStore, oracle: Oracle, source: str, piece: str) -> dict[str, Any]:
    returned = legs.ids(store, _SCOPE, "messages", piece, LIMIT)
    holders = oracle.holders(piece)
    return {
        "source": source,
        "piece": piece,
        "holders": len(holders),
        "found": len(holders.intersection(returned)),
        "first": bool(returned) and returned[0] in holders,
    }


def scored(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over all pieces and by source, and the failures."""
    sources = dict.fromkeys(result["source"] for result in results)
    failures = [result for result in results if not _complete(result) or not _on_top(result)]
    return {
        "all": _counts(results),
        "by_source": {
            source: _counts([result for result in results if result["source"] == source])
            for source in sources
        },
        "failures": failures[:FAILURES_KEPT],
        "failed": len(failures),
    }


def _complete(result: Mapping[str, Any]) -> bool:
    return bool(result["holders"] >= LIMIT or result["found"] == result["holders"])


def _on_top(result: Mapping[str, Any]) -> bool:
    return bool(result["holders"] != 1 or result["first"])


def _counts(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    certain = [result for result in results if result["holders"] < LIMIT]
    single = [result for result in results if result["holders"] == 1]
    lengths = Counter(len(result["piece"]) for result in results)
    return {
        "drawn": len(results),
        "fewer_holders_than_limit": len(certain),
        "of_these_found_completely": sum(map(_complete, certain)),
        "one_holder": len(single),
        "of_these_first": sum(map(_on_top, single)),
        "by_length": {str(length): lengths[length] for length in sorted(lengths)},
    }


def table(figures: Mapping[str, Any]) -> str:
    """Counts by source, and the failures."""
    columns = (
        "drawn", "fewer_holders_than_limit", "of_these_found_completely", "one_holder", "of_these_first",
    )  # fmt: skip
    rows = [
        [name, *(counts[column] for column in columns)]
        for name, counts in (*figures["by_source"].items(), ("all", figures["all"]))
    ]
    shown = report.table(["source", *(column.replace("_", " ") for column in columns)], rows)
    for failure in figures["failures"]:
        shown += f"\nnot as it must be: {failure['piece']!r} of {failure['source']}: "
        shown += f"{failure['found']} of {failure['holders']} holders found, first {failure['first']}"
    return shown
