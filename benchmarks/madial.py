"""MADial-Bench, Chinese part (He et al., NAACL 2025; MIT): which memories should come to mind in a conversation.

A document is one memory (its ``event``), kept through ``MemoryStore.add``; a query is what was said before the
assistant's turn under test: the last three turns, or the user's last one alone. Nobody asks for the memory, so
this is association, not question answering.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal

from benchmarks.corpus import Corpus, Document, Question, existing, shortened

NAME = "madial"
MEMORY_FILE = "MADial-Bench-zh-memory.json"
DIALOGUE_FILE = "MADial-Bench-zh-dialogue.json"
_TAG = re.compile(r"^<([^>]*)>\s*[:：]?\s*")

Query = Literal["three_turns", "last_utterance"]
QUERIES: tuple[Query, ...] = ("three_turns", "last_utterance")


def read(folder: Path, query: Query = "three_turns", limit: int | None = None) -> list[Corpus]:
    """One corpus for each of the two users.

    :raises DataMissing: when a file is not there.
    """
    memory_file, dialogue_file = existing(folder, MEMORY_FILE, DIALOGUE_FILE)
    memories = [memory for line in _lines(memory_file) for memory in line.values()]
    users = sorted({memory["user-id"] for memory in memories})
    documents = {
        user: tuple(Document(str(m["id"]), m["event"], m["time"]) for m in memories if m["user-id"] == user)
        for user in users
    }
    questions: dict[Any, list[Question]] = {user: [] for user in users}
    for dialogue in _lines(dialogue_file):
        user = dialogue["user-id"]
        known = {document.id for document in documents.get(user, ())}
        gold = frozenset(map(str, dialogue["relevant-id"])) & known
        if gold:
            text = query_text(dialogue["dialogue"], dialogue["test-turn"][0], query)
            questions[user].append(Question(str(dialogue["id"]), text, gold, f"user {user}"))
    corpora = [Corpus(str(user), documents[user], tuple(questions[user]), "memories") for user in users]
    return shortened(corpora, limit)


def query_text(turns: list[str], test_turn: int, query: Query) -> str:
    """What was said before the turn under test, without names and quotation marks."""
    before = [turn.strip() for turn in turns[:test_turn]]
    if query == "three_turns":
        return "\n".join(filter(None, map(_spoken, before[-3:])))
    said = [turn for turn in before if not turn.startswith(("<Assistant>", "<BOD>"))]
    return _spoken(said[-1]) if said else ""


def _spoken(turn: str) -> str:
    return _TAG.sub("", turn.strip()).strip().strip('"“”')


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
