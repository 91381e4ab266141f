"""What every data set is read into: documents of one person, and questions with the documents that answer them."""

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from memstore.types import Layer, Role

Language = Literal["en", "zh"]
Part = Literal["choose", "report"]
"""Settings are chosen on one part of the questions; what they are worth is told by the other."""

PARTS: tuple[Part, ...] = ("choose", "report")
_NUMBER_AT_THE_END = re.compile(r"[0-9]+\Z")


class DataMissing(Exception):
    """A data set's files are not in the data folder."""


@dataclass(frozen=True, slots=True)
class Document:
    """One turn, message or memory. ``at`` is ISO 8601 wall time, None where the data set has none.

    Messages are kept in one session for each ``session`` that the data set tells apart.
    """

    id: str
    text: str
    at: str | None = None
    speaker: str | None = None
    role: Role = "user"
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the ids of the documents that answer it, never none. ``group`` is its category or type.

    ``sessions`` are those that answer it, where the data set says so.
    """

    id: str
    query: str
    gold: frozenset[str]
    group: str
    sessions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of one person, which are searched alone, and the questions about them.

    ``excluded`` gives, for each question that recall cannot be measured on, the reason.
    """

    id: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    layer: Layer = "messages"
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set as it is measured.

    :param folder: of its files, inside the data folder.
    :param read: its reader; the number is about how many questions are wanted, None for all.
    :param part: the part of a question, by the place of its corpus and its id.
    """

    folder: str
    read: Callable[[Path, int | None], list[Corpus]]
    language: Language
    part: Callable[[int, str], Part]


def part_by_id(_place: int, question_id: str) -> Part:
    """Odd ids choose, even ones report, by the digits at the end of the id; by its CRC-32 where it ends in none."""
    found = _NUMBER_AT_THE_END.search(question_id)
    number = int(found.group()) if found else zlib.crc32(question_id.encode())
    return "choose" if number % 2 else "report"


def existing(folder: Path, *names: str) -> list[Path]:
    """The files of a data set.

    :raises DataMissing: naming the first one that is not there.
    """
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise DataMissing(f"{folder.name}/{path.name} is not there")
    return paths


def spread(questions: Sequence[Question], count: int) -> list[Question]:
    """At most ``count`` questions, in turn from each group, so that a short run sees every group."""
    queues: dict[str, list[Question]] = {}
    for question in questions:
        queues.setdefault(question.group, []).append(question)
    ordered = [queues[group] for group in sorted(queues)]
    longest = max(map(len, ordered), default=0)
    return [queue[place] for place in range(longest) for queue in ordered if place < len(queue)][:count]


def shortened(corpora: Iterable[Corpus], limit: int | None) -> list[Corpus]:
    """As few whole corpora, in their order, as hold ``limit`` questions, and of these that many."""
    if limit is None:
        return list(corpora)
    kept: list[Corpus] = []
    left = limit
    for corpus in corpora:
        if left <= 0:
            break
        questions = spread(corpus.questions, left)
        left -= len(questions)
        kept.append(replace(corpus, questions=tuple(questions)))
    return kept
