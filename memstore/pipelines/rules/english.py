"""What English sentences say about the speaker, order from the assistant, or tell of events.

Every pattern is anchored at the beginning of a clause, with the speaker as its subject. A clause that fits none says
nothing to keep.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from memstore.pipelines.rules.candidates import MAX_CLAUSE_CHARS, Candidate
from memstore.pipelines.rules.corrections import corrected
from memstore.pipelines.rules.dates import resolve
from memstore.pipelines.rules.english_events import LET_GO, OFF, event
from memstore.pipelines.rules.english_orders import begins_order, order
from memstore.pipelines.rules.english_states import BARE_NEWS
from memstore.pipelines.rules.english_traits import object_of, trait
from memstore.pipelines.rules.english_words import without_dates
from memstore.pipelines.rules.own_words import Sentence

_CLAUSES = re.compile(
    r"\s*(?:,|;|—|--|\s-\s)\s*(?:(?:and|but|so|then)\s)?(?=(?:i|i['’](?:m|ve|d|ll)|my|we|we['’](?:re|ve|ll)|our|can|could|do|does|did|is|are|what|which|how|why|"
    r"where|when|who|please|always|never|don['’]t|no|wait|sorry|actually|scratch|make|oops|correction|it['’]?s|it|that|this|the|there|any|would|will|should|you|let|from|just|so|but|he|she|they|help|give|tell|show|if|in\scase|unless)\b)"
    r"|\s+(?:but|so)\s+(?=(?:now\s)?(?:i|we|my|our)\b)|(?<!\bmy wife)(?<!husband)(?<!partner)(?<!girlfriend)(?<!boyfriend)(?<!family)(?<!sister)(?<!brother)(?<!friend)(?<!daughter)(?<!my son)(?<!my mom)(?<!my dad)(?<!my dog)\s+and\s+(?=(?:i|i['’]m|we|please|can|could)\b|(?:my|our)\s(?:[\w'’-]+\s){1,3}?(?:is|are|was|has|have|loves?|likes?|works?|lives?|needs?|wants?|uses?|hates?|goes|got|just|will|can|moved)\b)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:well|so|oh|fun fact|heads up|little update|guess what|speaking of which|correction|ok(?:ay)?|um+|uh+|hmm+|hey(?: there)?|hi(?: there)?|hello(?: there)?|also|and|but|then|btw|by the way|fyi|ps|actually|anyway|anyways|honestly|basically|just so you know|for the record|as you know|"
    r"for context|context|note|reminder|thanks?(?: you)?(?: so much)?|yes|yeah|yep|no(?=,|$)|now(?=\s(?:i|we|my)\b)|sure|great|cool|in fact|to be honest|tbh|quick (?:note|update|context)|update|good (?:morning|evening|afternoon)|"
    r"(?:please\s)?(?:remember|note|keep in mind|bear in mind|know|remind me)(?: that)?(?=[\s:,])(?!\sto\b)|i (?:should|want to|wanted to|have to) (?:mention|tell you|add|say|note)(?: that)?|"
    r"(?:you should|you ought to) know(?: that)?|let me (?:tell you|introduce myself)|since(?=\s(?:i|we|my)\b)|because(?=\s(?:i|we|my)\b)|as(?=\s(?:i|we|my)\b)|important|(?:a bit )?about me)\b[\s,:;.–-]*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:,?\s(?:btw|by the way|fyi|lol|finally|haha+|thanks?(?: you)?|though|tho|actually|too|as well|you know|ok(?:ay)?|please))+[\s!.]*$|[\s😀😊😂🎉😭:)(]+$", re.IGNORECASE)  # fmt: skip
_ASKING = re.compile(
    r"^(?:what|which|who|whom|whose|where|when(?!ever)|why|how|is|are|am|was|were|do(?!n?['’])|does|did|can(?!['’]?t)|could|would|will|should|shall|may|might|have you|has|had|any|tell me|wonder)\b|\b(?:wonder(?:ing)?|"
    r"guess what|do you know|right|isn['’]t it)$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|suppose|supposing|imagine|imagining|hypothetically|unless|in case|let['’]?s say|say i|were i|maybe|perhaps|might|(?-i:may)|possibly|probably|could(?:n['’]t)?|would(?!\s(?:like|prefer|rather))|should(?=\si\b)|wish(?:ing|es)?|hope|hopefully|"
    r"someday|some day|one day|thinking (?:about|of)|considering|not sure|unsure|undecided|wondering|dream(?:t|ed|ing)?|if only|i guess|as if|tempted|almost|nearly|apparently|feel like|i['’]d love to|would love|can['’]t decide|whether|supposed to)\b",
    re.IGNORECASE,
)
_DEPENDS = re.compile(r"\b(?:will|would|could|had|going to|gonna|shall)\b|['’](?:ll|d)\b", re.IGNORECASE)
_BEHIND = re.compile(
    r"(?:from now on|going forward|in (?:the )?future|by default|every time|always|at all times|never [\w'’-]+(?: [\w'’-]+)?)",
    re.IGNORECASE,
)
"""What an order may have behind it."""


def candidates(sentence: Sentence, at: datetime) -> Iterator[Candidate]:
    """What a sentence says, in its order."""
    clauses = corrected([c for c in map(_clean, _CLAUSES.split(sentence.text)) if c], at, object_of)
    clauses = _joined(clauses, at)
    unsure_from = _first_unsure(clauses)
    moved = False
    for number, clause in enumerate(clauses):
        if len(clause) > MAX_CLAUSE_CHARS:
            continue
        asks = sentence.asks and number == len(clauses) - 1
        found = order(clause, asks=asks)
        if found is None and not asks and not _ASKING.search(clause) and number < unsure_from:
            found = trait(clause, at, moved=moved) or event(clause, at)
        moved = moved or BARE_NEWS.match(clause) is not None
        if found is not None:
            yield found


def _first_unsure(clauses: Sequence[str]) -> int:
    """The number of the clause from which on nothing is certain: what is said before "if that matters" is still so,
    unless it depends on it ("I'd be in Rome, if …")."""
    first = next((n for n, clause in enumerate(clauses) if _HYPOTHETICAL.search(clause)), len(clauses))
    depends = first < len(clauses) and any(_DEPENDS.search(clause) for clause in clauses[:first])
    return 0 if depends else first


def _clean(clause: str) -> str:
    clause = clause.strip(" \t,;:-–—*_()")
    while found := _FILLER.match(clause):
        if found.end() == len(clause):
            return ""
        clause = clause[found.end() :]
    return _TAIL.sub("", clause).strip(" ,;:-–—")


def _joined(clauses: list[str], at: datetime) -> list[str]:
    """A clause of a date or a condition alone ("From now on, …", "Next Tuesday, …") is told together with the next."""
    joined: list[str] = []
    pending = ""
    for clause in clauses:
        alone = re.fullmatch(r"(?:from now on|going forward|in (?:the )?future|by default|(?:whenever|when(?=\si\s(?:ask|say|send|paste|share))|when(?=\syou\s(?:write|answer|reply|generate|respond|show|give|explain|suggest|review))|every time|each time|any ?time)\s[^,]{2,80})", clause, re.IGNORECASE)  # fmt: skip
        if joined and not pending and _goes_with(joined[-1], clause):
            joined[-1] += ", " + clause
        elif alone or (
            len(clause) <= MAX_CLAUSE_CHARS and resolve(clause, at) and not without_dates(clause, at)
        ):
            pending += clause + ", "
        else:
            joined.append(pending + clause)
            pending = ""
    return joined + ([pending.removesuffix(", ")] if pending else [])


def _goes_with(before: str, clause: str) -> bool:
    """Whether the clause ends what the one before said: "use kilometres", "from now on"."""
    if LET_GO.match(before) and OFF.match(clause):
        return True
    return bool(_BEHIND.fullmatch(clause) and (begins_order(before)))
