"""L1 without a model: memories from what the speakers state themselves."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from memstore.pipelines.rules import chinese, english
from memstore.pipelines.rules.candidates import Candidate
from memstore.pipelines.rules.corrections import with_corrections
from memstore.pipelines.rules.dates import Found, resolve, with_dates
from memstore.pipelines.rules.own_words import Sentence, own_sentences
from memstore.pipelines.rules.rule_slots import joined_orders
from memstore.pipelines.rules.situations import situation
from memstore.pipelines.values import MAX_MEMORY_CHARS, Extraction, Proposal, Said, Window

MAX_PROPOSALS = 20
"""Of one window; the first ones count."""
_BEGAN = re.compile(
    "搬|改|换|戒|入职|跳槽|转|加入|升|不再|离婚|结婚|确诊|查出|开始|"
    r"\b(?:moved|relocated|switched|quit|stopped|gave up|joined|started|promoted|graduated|migrated|adopted|replaced|diagnosed)\b",
    re.IGNORECASE,
)
_MOVED_TO = re.compile(
    "(?:改|推迟|延期|延后|延|提前|挪|调整|推|换)(?:到了?|成了?|在|为)|"
    r"\b(?:moved|pushed|changed|postponed|rescheduled|delayed|brought forward|moving|pushing)\b.{0,60}?\bto\s",
    re.IGNORECASE,
)
_WORDS = re.compile(r"\W+")


def extract(window: Window) -> Extraction:
    """What the new user messages of a window state. What is unsure is left out; background is never read from."""
    scene, changed = situation(window)
    proposals: dict[tuple[str, str], Proposal] = {}
    dropped = 0
    for message in window.new:
        if message.role != "user":
            continue
        for proposal in _proposals(message):
            key = (proposal.kind, _WORDS.sub("", proposal.content).casefold())
            known = proposals.get(key)
            if known is not None:
                proposals[key] = _also_from(known, message)
            elif len(proposals) < MAX_PROPOSALS:
                proposals[key] = proposal
            else:
                dropped += 1
    refused = (f"{dropped} further proposals: one window makes at most {MAX_PROPOSALS}",) if dropped else ()
    return Extraction(scene, changed, tuple(proposals.values()), refused)


def _also_from(known: Proposal, message: Said) -> Proposal:
    ids = tuple(dict.fromkeys((*known.source_ids, message.id)))
    return Proposal(known.content, known.kind, known.priority, ids, known.time_start, known.time_end)


def _proposals(message: Said) -> Iterator[Proposal]:
    sentences = with_corrections(own_sentences(message.text))
    if len(sentences) == 1:
        sentences = [replace(sentences[0], alone=True)]
    for candidate in joined_orders(_candidates(sentences, message.at)):
        if message.by_principal or candidate.kind == "episodic":
            yield _proposal(candidate, message)


def _candidates(sentences: Sequence[Sentence], at: datetime) -> Iterator[Candidate]:
    for sentence in sentences:
        rules = chinese if chinese.is_chinese(sentence.text) else english
        yield from rules.candidates(sentence, at)


def _proposal(candidate: Candidate, message: Said) -> Proposal:
    content = candidate.text
    time: Found | None = None
    if candidate.kind == "episodic" or _tells_when(candidate, message.at):
        time = _when(content, message.at)
        content = with_dates(content, message.at)
    content = _capitalised(content)
    if not message.by_principal and message.name:
        content = (
            f"{message.name}：{content}" if chinese.is_chinese(content) else f"{message.name}: {content}"
        )
    return Proposal(
        content[:MAX_MEMORY_CHARS],
        candidate.kind,
        candidate.priority,
        (message.id,),
        time.start if time else None,
        time.end if time else None,
    )


def _when(content: str, at: datetime) -> Found | None:
    """The first date; of what was moved the one that it was moved to."""
    dates = resolve(content, at)
    moved = _MOVED_TO.search(content)
    later = [found for found in dates if moved and found.span[0] >= moved.end() - 1]
    return next(iter(later or dates), None)


def _tells_when(candidate: Candidate, at: datetime) -> bool:
    """A state that began on a day (我昨天搬到上海了) keeps it; a habit, a birthday or an age has no time of its own."""
    if candidate.kind != "persona" or not _BEGAN.search(candidate.text):
        return False
    return any(not found.full and found.start <= at for found in resolve(candidate.text, at))


def _capitalised(content: str) -> str:
    """The pronoun as it is written: I moved, not i moved."""
    return re.sub(r"\bi\b(?=['’]|\s|$)", "I", content) if content.isascii() else content
