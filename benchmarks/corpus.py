"""What every data set is read into: documents of one person, and questions with the documents that answer them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Layer = Literal["messages", "memories"]


class DataMissing(Exception):
    """A data set's files are not in the data folder."""


@dataclass(frozen=True, slots=True)
class Document:
    """One turn, message or memory. ``at`` is ISO 8601 wall time, None where the data set has none."""

    id: str
    text: str
    at: str | None = None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the ids of the documents that answer it, never none. ``group`` is its category or type."""

    id: str
    query: str
    gold: frozenset[str]
    group: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of one person, which are searched alone, and the questions about them."""

    id: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    layer: Layer = "messages"


def existing(folder: Path, *names: str) -> list[Path]:
    """The files of a data set.

    :raises DataMissing: naming the first one that is not there.
    """
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise DataMissing(f"{path} is not there")
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
