"""Whether other texts say what a text does, as far as words can tell: what nobody else says must not be lost."""

import re
from collections.abc import Iterator, Sequence

from memstore.pipelines.closeness import contained, features, is_chinese
from memstore.text import normalise

SAYS_ALL = 0.8
"""A text that holds so much of another's words is taken to say what it says."""
SAYS_MOST = 0.6
"""So much of its words a text that is said to be covered has in common with what covers it: a judge may see through
other words, but not through all of them."""

_NUMBER = re.compile(r"\d+(?:[.:]\d+)*", re.ASCII)
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_MONTHS = {
    name: str(number)
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul"),
            *("august aug", "september sep sept", "october oct", "november nov", "december dec"),
        ),
        1,
    )
    for name in names.split()
}
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?。！？:：;；\n]\s*)[\"'“‘(]*$")


def holds(text: str, told: Sequence[str], least: float) -> bool:
    """Whether others together say what a text does: every number, date and name in it, and so much of its words. Of the
    words of another language nothing can be told."""
    if missing_detail(text, told) is not None:
        return False
    return is_chinese(text) != is_chinese("\n".join(told)) or contained(text, told) >= least


def missing_detail(text: str, told: Sequence[str]) -> str | None:
    """A number, a part of a date or a name that none of the others has."""
    held = {feature for one in told for feature in features(one)}
    numbers = {number for one in told for number in _numbers(one)}
    for number in _numbers(text):
        if number not in numbers:
            return number
    for name in _names(text):
        if not held.issuperset(features(name)):
            return name
    return None


def _numbers(text: str) -> Iterator[str]:
    """The numbers in a text, those that stand for months in words among them: 2026-03-05 is 5 March 2026."""
    plain = _GROUPED.sub("", normalise(text))
    for found in _NUMBER.finditer(plain):
        yield found[0].lstrip("0") or "0"
    for word in _WORD.findall(text):
        if word[0].isupper() and word.casefold() in _MONTHS:
            yield _MONTHS[word.casefold()]


def _names(text: str) -> Iterator[str]:
    """Words that are written as names are: with a capital where no sentence begins, or with several."""
    for found in _WORD.finditer(text):
        word = found[0]
        capitals = sum(letter.isupper() for letter in word)
        begins = _SENTENCE_BEGINS.search(text, 0, found.start()) is not None
        if (capitals > 1 or (capitals and not begins)) and word.casefold() not in _MONTHS:
            yield word
