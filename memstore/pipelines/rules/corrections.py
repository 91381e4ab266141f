"""What a speaker takes back while he speaks: "on Thursday, no wait, Friday", 周四开会，不对，是周五. The later word counts."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from memstore.pipelines.rules.date_pieces import Piece
from memstore.pipelines.rules.dates import raw_pieces, resolve
from memstore.pipelines.rules.own_words import Sentence

Object = Callable[[str], "re.Match[str] | None"]

_TAKEN_BACK = re.compile(
    r"(?:哦|啊|额|呃|诶|哎呀?|等等|等一?下|稍等|抱歉|不好意思)*(?:不对|哦不|错了|我?(?:说|记|写|打)错了|口误|更正(?:一下)?|纠正一下|不是不是)[：: ]*"
    r"|(?:oh\s|oops,?\s?|sorry,?\s|um,?\s)*(?:no,?\s?wait|wait,?\s?no|wait|scratch\sthat|correction:?|i\smeant?|sorry,?\si\smeant?|actually,?\sno|make\sthat|oops|my\smistake|nope)\b[,:\s]*",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"(?:应该|其实|是|改成|改到|在|要)+|(?:it['’]?s|it\sis|that['’]?s|it\swas|on|to|not\s\w+\sbut|actually)\s",
    re.IGNORECASE,
)
_PART = re.compile("凌晨|早上|上午|中午|下午|傍晚|晚上")
MAX_WORD_CHARS = 24
"""A longer correction is a statement of its own."""


def takes_back(text: str) -> bool:
    return _TAKEN_BACK.match(text) is not None


def with_corrections(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Sentences, each with the correction that follows it."""
    joined: list[Sentence] = []
    for sentence in sentences:
        if joined and takes_back(sentence.text):
            joined[-1] = Sentence(f"{joined[-1].text}, {sentence.text}", sentence.asks)
        else:
            joined.append(sentence)
    return joined


def corrected(clauses: Sequence[str], at: datetime, object_of: Object) -> list[str]:
    """The clauses of a sentence as they stand after what was taken back."""
    kept: list[str] = []
    pending = False
    for clause in clauses:
        mark = _TAKEN_BACK.match(clause)
        rest = clause[mark.end() :] if mark else clause
        if kept and (mark or pending):
            pending = not rest
            if rest:
                _replace(kept, rest, at, object_of)
        elif rest:
            kept.append(rest)
    return kept


def _replace(kept: list[str], rest: str, at: datetime, object_of: Object) -> None:
    lead = _LEAD.match(rest)
    word = rest[lead.end() :] if lead else rest
    pieces = raw_pieces(word, at)
    if pieces and (dated := _last_dated(kept, at)) is not None and len(word) <= MAX_WORD_CHARS:
        kept[dated] = _with_date(kept[dated], word, pieces, at)
        return
    known = object_of(kept[-1])
    if known and len(word) <= MAX_WORD_CHARS and object_of(rest) is None:
        kept[-1] = kept[-1][: known.start("o")] + word.strip() + kept[-1][known.end("o") :]
    else:
        kept[-1] = rest


def _last_dated(kept: Sequence[str], at: datetime) -> int | None:
    return next((n for n in range(len(kept) - 1, -1, -1) if resolve(kept[n], at)), None)


def _with_date(clause: str, word: str, pieces: Sequence[Piece], at: datetime) -> str:
    """The clause with its day, its time, or both replaced by those of the correction."""
    has_day, has_clock = any(p.days for p in pieces), any(p.clock for p in pieces)
    new = word[pieces[0].start : pieces[-1].end]
    old = [p for p in raw_pieces(clause, at) if p.days or p.clock or p.instant]
    if has_day and not has_clock:
        old = [p for p in old if p.days] or old
    elif has_clock and not has_day:
        old = [p for p in old if p.clock and not p.days] or old[-1:]
    if not old:
        return clause
    end = old[-1].end if has_day and has_clock else old[0].end
    return clause[: old[0].start] + _fitting(clause, old[0], new) + clause[end:]


def _fitting(clause: str, old: Piece, new: str) -> str:
    """With the preposition (on Friday) or the part of the day (下午三点) that the old date had."""
    part = _PART.match(clause, old.start, old.end)
    if part and re.match("[0-9一二三四五六七八九十两]{1,3}点", new):
        return part[0] + new
    had = re.match(r"(?:on|by|at|from|until)\s", clause[old.start :], re.IGNORECASE)
    if had is None or re.match(r"(?:on|by|at|next|this|last|tomorrow|today)\b", new, re.IGNORECASE):
        return new
    return had[0] + new
