"""Whose words a text is made of: how much of it stands in what was said. Words and pairs of Han characters count, meaning
does not; a judge that obeyed a planted sentence and named somebody else as its source is found out by it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from memstore.pipelines.written_text import language_of
from memstore.text import normalise

EXAMINED_CHARS = 20_000
"""Of each end of a text; no judge is shown more of it."""
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Chinese characters, as a range of a pattern."""
_RUNS = re.compile(rf"(?P<han>[{HAN}]+)|(?P<word>[^\W_{HAN}]+(?:[._@+#/-]+[^\W_{HAN}]+)*)")
_ENDINGS = ("ing", "ies", "ed", "es", "s", "e", "y")
_LEAST_STEM = 3
_FRAME = frozenset(
    """
    a an the and or of to in on at by for with from as is are was were be been it its this that these those user users
    want wants wanted ask asks asked agent assistant should shall must will would he she his her him they them their i
    my me you your please
    用户 要求 希望 助手 智能 能体
    """.split()  # noqa: SIM905 - a column of strings would not be read
)
"""Words that a memory is written around with, whoever said it."""


def features(text: str) -> list[str]:
    """Words without their endings and pairs of Han characters, in order; of a single Han character itself."""
    if len(text) > 2 * EXAMINED_CHARS:
        text = f"{text[:EXAMINED_CHARS]}\n{text[-EXAMINED_CHARS:]}"
    return [feature for feature in _features(normalise(text)) if feature not in _FRAME]


def _features(text: str) -> Iterator[str]:
    for run in _RUNS.finditer(text):
        han = run["han"]
        if han is None:
            yield _stem(run["word"])
        elif len(han) == 1:
            yield han
        else:
            yield from (han[i : i + 2] for i in range(len(han) - 1))


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.isascii() and word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word[: -len(ending)]
    return word


def is_chinese(text: str) -> bool:
    """Whether more of it is Chinese than is not; a Han character stands for about a word. Texts that differ in this have
    no words in common, whatever they mean."""
    return language_of([text[:EXAMINED_CHARS]]) == "zh"


def contained(text: str, told: Iterable[str]) -> float:
    """The part of a text that the others hold together, from 0 to 1; 0 of a text without words."""
    wanted = frozenset(features(text))
    if not wanted:
        return 0.0
    held: set[str] = set()
    for one in told:
        held.update(_kept(one))
    return len(wanted & held) / len(wanted)


def contained_closely(text: str, told: str) -> float:
    """The part of a text that one passage of another holds, some times as long as it: a long page has every common word
    somewhere. Linear in the length of ``told``."""
    wanted = frozenset(features(text))
    if not wanted:
        return 0.0
    sequence = _kept(told)
    width = 3 * len(wanted) + 12
    inside: Counter[str] = Counter()
    best = distinct = 0
    for place, feature in enumerate(sequence):
        if feature in wanted:
            inside[feature] += 1
            distinct += inside[feature] == 1
        leaving = sequence[place - width] if place >= width else None
        if leaving in wanted:
            inside[leaving] -= 1
            distinct -= inside[leaving] == 0
        best = max(best, distinct)
    return best / len(wanted)


@lru_cache(maxsize=256)
def _kept(text: str) -> Sequence[str]:
    """Features of a message, which is compared with every proposal of its window."""
    return tuple(features(text))
