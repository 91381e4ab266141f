"""LoCoMo (Maharana et al., ACL 2024; CC BY-NC 4.0): long English conversations of two people, with questions.

A document is one turn, with its speaker as the message's name; a question is asked over its own conversation, and
answered by the turns its ``evidence`` names. Categories: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop,
5 adversarial (the question names the wrong person, the evidence is still the turn it was made from).
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, DataMissing, Document, Part, Question, shortened

NAME = "locomo"
GROUPS = {
    "1": "multi-hop",
    "2": "temporal",
    "3": "open-domain",
    "4": "single-hop",
    "5": "adversarial",
}
CHOOSING_CONVERSATIONS = 3
"""Settings are chosen on the first three conversations; people and topics of the others are not seen."""

_SESSION = re.compile(r"session_(\d+)\Z")
_TURN_SECONDS = 20
"""The data gives a time for a session only; its turns are laid this far apart, to keep their order."""


def read(folder: Path, limit: int | None = None) -> list[Corpus]:
    """The conversations of every ``locomo*.json`` in a folder.

    :raises DataMissing: when there is none.
    """
    files = sorted(folder.glob("locomo*.json"))
    if not files:
        raise DataMissing(f"there is no locomo*.json in {folder.name}")
    samples = [sample for file in files for sample in json.loads(file.read_text(encoding="utf-8"))]
    return shortened((_corpus(sample) for sample in samples), limit)


def part(place: int, _question_id: str) -> Part:
    """The part of a question, by the place of its conversation."""
    return "choose" if place < CHOOSING_CONVERSATIONS else "report"


def _corpus(sample: dict[str, Any]) -> Corpus:
    documents = tuple(_documents(sample["conversation"]))
    known = {document.id for document in documents}
    questions = []
    for number, qa in enumerate(sample["qa"]):
        gold = frozenset(evidence_ids(qa.get("evidence") or [])) & known
        if gold:
            questions.append(
                Question(f"{sample['sample_id']}/{number}", str(qa["question"]), gold, str(qa["category"]))
            )
    return Corpus(sample["sample_id"], documents, tuple(questions))


def _documents(conversation: dict[str, Any]) -> Iterator[Document]:
    numbers = sorted(int(found[1]) for key in conversation if (found := _SESSION.match(key)))
    for number in numbers:
        start = _session_time(conversation[f"session_{number}_date_time"])
        for place, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            shared = f" [shared image: {caption}]" if caption else ""
            yield Document(
                turn["dia_id"],
                f"{turn['text']}{shared}",
                (start + timedelta(seconds=_TURN_SECONDS * place)).isoformat(),
                turn["speaker"],
            )


def _session_time(text: str) -> datetime:
    """For example ``1:56 pm on 8 May, 2023``; the data names no zone."""
    return datetime.strptime(text.upper().replace(" ON ", " "), "%I:%M %p %d %B, %Y")  # noqa: DTZ007


def evidence_ids(evidence: list[str]) -> list[str]:
    """The turn ids of a question; some entries hold several, parted by ``;`` or blanks."""
    return [part for entry in evidence for part in re.split(r"[;\s]+", entry) if part]
