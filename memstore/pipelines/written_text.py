"""Texts that a judge wrote, as they are kept: without characters that no document needs, and not too long."""

import re
import unicodedata
from collections.abc import Iterable

from memstore.pipelines.values import Language

DELETED = "[DELETED]"
"""The whole text of a scene that is to go."""
_SENTENCE_END = re.compile(r"[。！？；!?;…](?=.)|\.(?=\s)", re.DOTALL)
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LETTERS = re.compile("[A-Za-z]{2,}")
_BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers: by their category letters and signs, and nothing to see."""


def clean_text(text: str) -> str:
    """The text with its lines, without control characters, lone surrogates and blanks around it; empty where nothing is
    left to see."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _seen("".join(one for one in lines if one in "\n\t" or _is_kept(one)).strip())


def clean_line(text: str, most: int) -> str:
    """The same as one line of at most so many characters."""
    words = " ".join("".join(one if _is_kept(one) else " " for one in text).split())
    return _seen(words[:most].strip())


def _seen(text: str) -> str:
    """The text; empty where all of it is blanks, zero-width characters and marks that stand on nothing."""
    return (
        text
        if any(unicodedata.category(one)[0] not in "CMZ" and one not in _BLANK_LETTERS for one in text)
        else ""
    )


def _is_kept(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")


def cut_text(text: str, most: int) -> str:
    """At most so many characters: up to the end of a line, else of a sentence, where one lies in the second half; empty
    where nothing among them is to see."""
    if len(text) <= most:
        return text
    line_end = text.rfind("\n", most // 2, most + 1)
    if line_end > 0:
        return _seen(text[:line_end].rstrip())
    ends = [found.end() for found in _SENTENCE_END.finditer(text, most // 2) if found.end() <= most]
    return _seen(text[: ends[-1] if ends else most].rstrip())


def language_of(texts: Iterable[str]) -> Language:
    """The language that most of it is in. A Han character says about as much as an English word."""
    han = words = 0
    for text in texts:
        han += len(_HAN.findall(text))
        words += len(_LETTERS.findall(text))
    return "zh" if han and han >= words else "en"
