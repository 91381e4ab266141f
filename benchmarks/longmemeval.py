"""LongMemEval (Wu et al., ICLR 2025; MIT): questions to an assistant over a long history of chat sessions.

Every question has a history of its own: about 50 sessions in ``longmemeval_s``, 500 in ``longmemeval_m``, only those
that hold the answer in ``longmemeval_oracle``. A document is one turn. The turns marked ``has_answer`` answer a
question, and so do the sessions of ``answer_session_ids``. Questions whose id ends in ``_abs`` have no answer: a
good system abstains. Recall cannot be measured on them; they are counted.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, DataMissing, Document, Question

NAME = "longmemeval"
FILES = ("longmemeval_s.json", "longmemeval_m.json", "longmemeval_oracle.json")
"""The first that is there is read."""

ABSTENTION = "abstention: nothing in the history answers it"
UNMARKED = "no turn of the history is marked has_answer"
_TURN_SECONDS = 20
"""The data gives a time for a session only; its turns are laid this far apart, to keep their order."""


def read(folder: Path, limit: int | None = None) -> list[Corpus]:
    """A corpus for each question; with a limit that many, spread evenly over the file, which is sorted by type.

    :raises DataMissing: when the folder holds none of the data set's files.
    """
    file = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if file is None:
        raise DataMissing(f"there is none of {', '.join(FILES)} in {folder.name}")
    samples = json.loads(file.read_text(encoding="utf-8"))
    if limit is not None and limit < len(samples):
        samples = [samples[place * len(samples) // limit] for place in range(limit)]
    return [_corpus(sample) for sample in samples]


def _corpus(sample: dict[str, Any]) -> Corpus:
    name = sample["question_id"]
    if name.endswith("_abs"):
        return Corpus(name, (), (), excluded=(ABSTENTION,))
    turns = list(_turns(sample))
    gold = frozenset(document.id for document, answers in turns if answers)
    if not gold:
        return Corpus(name, (), (), excluded=(UNMARKED,))
    sessions = frozenset(sample["answer_session_ids"]) & frozenset(sample["haystack_session_ids"])
    question = Question(name, str(sample["question"]), gold, sample["question_type"], sessions)
    return Corpus(name, tuple(document for document, _ in turns), (question,))


def _turns(sample: dict[str, Any]) -> Iterator[tuple[Document, bool]]:
    """Each turn, and whether it is marked. A session that the history names twice is taken once."""
    seen: set[str] = set()
    members = ("haystack_session_ids", "haystack_dates", "haystack_sessions")
    for session, date, turns in zip(*(sample[member] for member in members), strict=True):
        if session in seen:
            continue
        seen.add(session)
        start = _session_time(date)
        for place, turn in enumerate(turns):
            if turn["content"].strip():
                at = (start + timedelta(seconds=_TURN_SECONDS * place)).isoformat()
                document = Document(
                    f"{session}/{place}", turn["content"], at, role=turn["role"], session=session
                )
                yield document, bool(turn.get("has_answer"))


def _session_time(text: str) -> datetime:
    """For example ``2023/05/20 (Sat) 02:21``; the data names no zone."""
    day, _, clock = text.split()
    return datetime.strptime(f"{day} {clock}", "%Y/%m/%d %H:%M")  # noqa: DTZ007
