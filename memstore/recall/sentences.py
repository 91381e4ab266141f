"""A query of several sentences is asked as a whole and sentence by sentence.

"What phone do I use? And where is the team event?" are two questions: their words, or their vectors, mixed into one
find rows that are a little about both. So a row may also be found by the one sentence that it answers best
(measured: the row "no sentences" of the ablation in ``benchmarks/results/README.md``).
"""

import re
from dataclasses import dataclass

from memstore.stopwords import STOP_WORDS, without_stop_words
from memstore.text import QUERY_HEAD_CHARS, QUERY_TAIL_CHARS, QueryTokens, Tokenizer

_ENDS = re.compile(r"(?<=[。！？!?；;\n])|(?<=[.!?])\s+")
"""A full stop ends a sentence only before white space: 1.2.3 and src/app.py are whole."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A part of a query, and what the text leg looks for."""

    text: str
    looked_for: QueryTokens


def sentences(
    query: str, tokenizer: Tokenizer, most: int, *, stop_words: bool
) -> tuple[tuple[Sentence, ...], bool]:
    """The last ``most`` sentences that say something, and whether there are more; none where there is only one, which
    the whole query stands for.

    Of a long query only the head and the tail are read, as for its words.
    """
    if len(query) > QUERY_HEAD_CHARS + QUERY_TAIL_CHARS:
        query = f"{query[:QUERY_HEAD_CHARS]}\n{query[-QUERY_TAIL_CHARS:]}"
    parts = [part.strip() for part in _ENDS.split(query) if part.strip()]
    speaking = [part for part in parts if _says_something(part, tokenizer)] if most > 0 else []
    if len(speaking) < len(("one", "another")):
        return (), False
    kept = (Sentence(part, _looked_for(part, tokenizer, stop_words=stop_words)) for part in speaking[-most:])
    return tuple(kept), len(speaking) > most


def _says_something(part: str, tokenizer: Tokenizer) -> bool:
    return any(word not in STOP_WORDS for word in tokenizer.query(part).words)


def _looked_for(part: str, tokenizer: Tokenizer, *, stop_words: bool) -> QueryTokens:
    tokens = tokenizer.query(part)
    return without_stop_words(tokens)[0] if stop_words else tokens
