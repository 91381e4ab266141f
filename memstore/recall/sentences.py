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


def sentences(query: str, tokenizer: Tokenizer, most: int, *, stop_words: bool) -> tuple[Sentence, ...]:
    """The last ``most`` sentences that say something; none where that is only one, which the whole query stands for.

    Of a long query only the head and the tail are read, as for its words.
    """
    if len(query) > QUERY_HEAD_CHARS + QUERY_TAIL_CHARS:
        query = f"{query[:QUERY_HEAD_CHARS]}\n{query[-QUERY_TAIL_CHARS:]}"
    found: list[Sentence] = []
    for part in reversed(_ENDS.split(query)):
        if len(found) >= most:
            break
        tokens = tokenizer.query(part.strip())
        if any(word not in STOP_WORDS for word in tokens.words):
            looked_for = without_stop_words(tokens)[0] if stop_words else tokens
            found.append(Sentence(part.strip(), looked_for))
    return tuple(reversed(found)) if len(found) > 1 else ()
