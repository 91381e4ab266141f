"""The data sets that are measured, and how their documents get into a store."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Literal

from benchmarks import locomo, longmemeval, madial, memdaily
from benchmarks.corpus import Corpus, DataSet, Document, part_by_id
from memstore import MemoryStore, Message, Scope

AGENT = "bench"


def _madial(query: madial.Query) -> Callable[[Path, int | None], list[Corpus]]:
    return lambda folder, limit: madial.read(folder, query, limit)


SETS: Mapping[str, DataSet] = {
    "locomo": DataSet(locomo.NAME, locomo.read, "en", locomo.part),
    "longmemeval": DataSet(longmemeval.NAME, longmemeval.read, "en", part_by_id),
    "memdaily": DataSet(memdaily.NAME, memdaily.read, "zh", part_by_id),
    "madial-zh-3-turns": DataSet(madial.NAME, _madial("three_turns"), "zh", part_by_id),
    "madial-zh-1-turn": DataSet(madial.NAME, _madial("last_utterance"), "zh", part_by_id),
}
"""By the name of a result."""


def scope_of(corpus: Corpus, *, one_team: bool = False) -> Scope:
    """Whose documents a corpus is: one user, alone in a team or together with the others."""
    return Scope("everyone" if one_team else f"team of {corpus.id}", f"user {corpus.id}", AGENT)


Form = Literal["as read", "without names", "turn about"]
"""Of messages. ``without names``: who spoke is told by the role alone, so that only the name's text is missing.
``turn about``: user and assistant take turns, so that the turns beside a message are always another speaker's, which
alone count as its neighbours."""


def keep(store: MemoryStore, corpus: Corpus, scope: Scope, form: Form = "as read") -> dict[str, str]:
    """Put a corpus into the store; returns the data set's id of each stored id."""
    if corpus.layer == "memories":
        return {
            store.add(scope, document.text, valid_from=document.at).id: document.id
            for document in corpus.documents
        }
    kept: dict[str, str] = {}
    for place, (_, group) in enumerate(groupby(corpus.documents, key=lambda document: document.session)):
        documents = list(group)
        first = documents[0].speaker
        messages = [_message(document, turn, form, first) for turn, document in enumerate(documents)]
        receipt = store.record(scope, messages, f"{AGENT}:{corpus.id.replace('/', '-')}:{place}")
        kept.update(zip(receipt.ids, (document.id for document in documents), strict=True))
    return kept


def _message(document: Document, turn: int, form: Form, first_speaker: str | None) -> Message:
    role = document.role
    if form == "turn about":
        role = "assistant" if turn % 2 else "user"
    elif form == "without names" and document.speaker is not None:
        role = "user" if document.speaker == first_speaker else "assistant"
    return Message(
        role,
        document.text,
        id=document.id,
        name=None if form == "without names" else document.speaker,
        created_at=document.at,
    )


def differs(corpora: Iterable[Corpus], form: Form) -> bool:
    """Whether a form makes another store of these corpora."""
    if form == "without names":
        return any(document.speaker for corpus in corpora for document in corpus.documents)
    return form == "as read" or any(not another for another in _speakers_change(corpora))


def has_neighbours(corpora: Iterable[Corpus]) -> bool:
    """Whether any message stands beside another speaker's."""
    return any(_speakers_change(corpora))


def _speakers_change(corpora: Iterable[Corpus]) -> Iterator[bool]:
    """For each two turns beside each other, whether the second is another speaker's."""
    for corpus in corpora:
        if corpus.layer == "messages":
            for one, following in pairwise(corpus.documents):
                if one.session == following.session:
                    yield (one.role, one.speaker) != (following.role, following.speaker)
