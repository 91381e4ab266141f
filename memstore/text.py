"""Text as it is indexed: one tokenizer for writing and for asking (SPEC S3).

What is stored stays byte for byte; only the index copy is normalised. A row is indexed in two columns:

``words``
    what ranks: jieba search-mode words of the Han runs, English stems, digits, emoji. Scripts that write
    without spaces and have no dictionary here (kana, Hangul, Thai, …) come as bigrams.
``literal``
    what finds substrings that word segmentation cuts apart: overlapping bigrams of every Han run, each run's
    last character once more alone, and letters and digits as they stand, parted from each other. A literal
    substring is a phrase there, so ``x7`` is found inside ``完build-x7后`` and ``银`` inside ``银行卡``.

Every token consists of letters and digits only, so that FTS5's ``unicode61`` leaves it whole and any other
engine can be given the same tokens: emoji and marks are spelled ``u`` + hexadecimal code point.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add
from pathlib import Path
from typing import Any, Protocol

MAX_NESTED_RESULTS = 8
"""Tool results inside tool results are searched so deep; real ones nest once."""
MAX_QUERY_TERMS = 64
"""Terms of one query in one column; more cost the engine time and add nothing (20,000 take it 1.4 s)."""
QUERY_HEAD_CHARS = 1_000
QUERY_TAIL_CHARS = 2_000
"""A longer query is read at its head and its tail: the question stands at one of them."""
RUNS_REMEMBERED = 10_000
NORMALISED_AT_ONCE = 2_000
MAX_HAN_RUN = 400
"""Longer runs are cut before jieba, whose handling of unknown words is quadratic in the run."""
MAX_TOKEN_LENGTH = 64
"""A longer run of letters (base64, hashes) is cut: no one asks for it whole, and terms stay small."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af\u3005\u3007"
_UNSPACED = (
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"  # Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
)
_EMOJI = (
    "\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\u3030\u303d"
    "\U0001f000-\U0001faff"  # pictographs, symbols, regional indicators
)
_RUNS = re.compile(
    f"(?P<han>[{_HAN}]+)|(?P<unspaced>[{_UNSPACED}]+)|(?P<emoji>[{_EMOJI}])"
    f"|(?P<word>[^\\W_{_HAN}{_UNSPACED}{_EMOJI}]+(?:['’][^\\W\\d_{_HAN}{_UNSPACED}{_EMOJI}]+)*)"
    r"|(?P<mark>[^\w\s])",
)
_LETTERS_OR_DIGITS = re.compile(r"\d+|[^\W\d]+")
_MARKS_TO_FTS5 = frozenset(map(chr, (*range(0x19B0, 0x19CA), 0x1CF2, 0x1CF3)))
"""Letters to Unicode since version 8, and marks in the older tables of FTS5 (New Tai Lue, Vedic)."""
_ASCII_WORD = re.compile(r"[a-z]+\Z")
_TRANSLATE_IGNORED = dict.fromkeys([*range(0xFE00, 0xFE10), 0x00AD, 0x034F, *range(0xE0100, 0xE01F0)])


def searchable_text(content: object) -> str:
    """The text parts of a message's content: what is searched, shown and embedded, never image bytes or JSON."""
    if isinstance(content, str):
        return content
    return "\n".join(text for text in _block_texts(content, MAX_NESTED_RESULTS) if text)


def _block_texts(content: object, depth: int) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Sequence) and depth:
        for block in content:
            kind = block.get("type") if isinstance(block, Mapping) else None
            if kind in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
                yield block["text"]
            elif kind == "tool_result":
                yield from _block_texts(block.get("content"), depth - 1)


def without_empty_text(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Content blocks without empty text blocks, which the model APIs refuse."""
    return [
        block for block in content if not (block.get("type") == "text" and block.get("text") in ("", None))
    ]


def normalise(text: str) -> str:
    """The index copy: NFKC, lower case, without zero-width and other format characters and Latin accents."""
    if text.isascii():
        return text.lower()
    folded = "".join(unicodedata.normalize("NFKC", part) for part in _parts(text))
    folded = folded.lower().translate(_TRANSLATE_IGNORED)
    folded = "".join(c for c in folded if unicodedata.category(c) != "Cf")
    return _without_latin_accents(folded)


def _parts(text: str) -> Iterator[str]:
    """The text in parts that normalise apart: NFKC is quadratic in a run of combining marks (100,000 took 10 s),
    so parts are bounded, and cut in front of a character that does not combine where there is one."""
    start = 0
    while start < len(text):
        end = start + NORMALISED_AT_ONCE
        while end < min(len(text), start + 2 * NORMALISED_AT_ONCE) and unicodedata.combining(text[end]):
            end += 1
        yield text[start:end]
        start = end


def _without_latin_accents(text: str) -> str:
    if not any("\u00c0" <= c <= "\u024f" or "\u1e00" <= c <= "\u1eff" for c in text):
        return text
    return "".join(
        unicodedata.normalize("NFD", c)[0] if "\u00c0" <= c <= "\u024f" or "\u1e00" <= c <= "\u1eff" else c
        for c in text
    )


def squeezed(text: str) -> str:
    """Normalised text with runs of white space as one blank: the form in which literal matches are checked."""
    return " ".join(normalise(text).split())


@dataclass(frozen=True, slots=True)
class IndexTokens:
    """A row's tokens, ready for the two columns of its text index."""

    words: str
    literal: str


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """A query's tokens. ``phrase`` finds rows that may hold the whole query literally; empty: no such check.

    ``phrase_prefix`` says that the phrase's last token may be the beginning of a longer one. ``prefixes`` are those
    of ``literal`` that always may: a character that stands alone here begins a bigram inside a longer run.
    """

    words: tuple[str, ...]
    literal: tuple[str, ...]
    phrase: tuple[str, ...]
    phrase_prefix: bool
    prefixes: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.words or self.literal)


class Cutter(Protocol):
    """What segments Han text into words."""

    @property
    def identity(self) -> str:
        """Library, version and dictionary."""
        ...

    def cut(self, run: str) -> Iterable[str]:
        """Search-mode words of a run of Han characters."""
        ...


class JiebaCutter:
    """jieba in search mode: an own instance, loaded on first use from the packaged dictionary.

    jieba's cache file in the shared temporary folder is neither read nor written: it is unmarshalled without
    any check of who wrote it. Dictionaries are never edited by ``del_word``, which leaks into every instance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Any = None

    @property
    def identity(self) -> str:
        return f"jieba {importlib.metadata.version('jieba')} {_jieba_dictionary_digest()}"

    def cut(self, run: str) -> Iterable[str]:
        tokenizer: Iterable[str] = self._loaded().cut_for_search(run)
        return tokenizer

    def _loaded(self) -> Any:
        with self._lock:
            if self._tokenizer is None:
                import jieba

                jieba.setLogLevel(60)
                tokenizer = jieba.Tokenizer()
                with _jieba_dictionary().open("rb") as file:
                    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(file)
                tokenizer.initialized = True
                self._tokenizer = tokenizer
            return self._tokenizer


@lru_cache(maxsize=1)
def _default_cutter() -> Cutter:
    """One a process, however many stores it opens: the dictionary takes a second and is only read."""
    return JiebaCutter()


def _jieba_dictionary() -> Path:
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.submodule_search_locations:
        from memstore.errors import ConfigError

        raise ConfigError("jieba, which segments Chinese, is not installed; run: pip install jieba==0.42.1")
    return Path(next(iter(spec.submodule_search_locations))) / "dict.txt"


@lru_cache(maxsize=1)
def _jieba_dictionary_digest() -> str:
    return hashlib.sha256(_jieba_dictionary().read_bytes()).hexdigest()[:12]


class Tokenizer:
    """Turns text into index and query tokens. Deterministic, safe with threads, loads nothing until it must."""

    VERSION = 1

    def __init__(self, cutter: Cutter | None = None) -> None:
        self._cutter = cutter or _default_cutter()
        self._local = threading.local()
        self._latin_memo: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    @property
    def identity(self) -> str:
        """What tokens depend on, as JSON. It is stored; another identity needs a reindex."""
        return json.dumps(
            {
                "tokenizer": f"memstore {self.VERSION}",
                "cutter": self._cutter.identity,
                "stemmer": f"snowball english, PyStemmer {importlib.metadata.version('PyStemmer')}",
                "unicode": unicodedata.unidata_version,
            },
            sort_keys=True,
        )

    def warm_up(self, text: str) -> bool:
        """Load the word dictionary if this text needs it; returns whether it did."""
        match = re.search(f"[{_HAN}]", text)
        return match is not None and bool(list(self._cutter.cut(match.group())))

    def index(self, text: str) -> IndexTokens:
        """The tokens under which a row is indexed."""
        words, literal = self._scan(normalise(text))
        return IndexTokens(" ".join(words), " ".join(literal))

    def query(self, text: str) -> QueryTokens:
        """The tokens to look for. Any text is legal; blank or punctuation alone gives none."""
        if len(text) > QUERY_HEAD_CHARS + QUERY_TAIL_CHARS:
            text, whole = f"{text[:QUERY_HEAD_CHARS]} {text[-QUERY_TAIL_CHARS:]}", False
        else:
            whole = True
        normal = normalise(text)
        words, literal = self._scan(normal)
        phrase, prefix = _phrase(normal, literal) if whole else ((), False)
        alone = frozenset(_spelled(m.group()) for m in _RUNS.finditer(normal) if _stands_alone(m))
        return QueryTokens(_ends(dict.fromkeys(words)), _ends(dict.fromkeys(literal)), phrase, prefix, alone)

    def _scan(self, normal: str) -> tuple[list[str], list[str]]:
        """The tokens of both columns, in one pass over the runs of one script."""
        words: list[str] = []
        literal: list[str] = []
        for match in _RUNS.finditer(normal):
            run, kind = match.group(), match.lastgroup
            if kind == "word":
                of_words, of_literal = self._latin_memo.get(run) or self._latin(run)
                words += of_words
                literal += of_literal
            elif kind == "han":
                words += self._han_words(run)
                literal += _bigrams(run)
            elif kind == "unspaced":
                bigrams = _bigrams(run)
                words += bigrams[:-1] or bigrams
                literal += bigrams
            elif kind == "emoji" or unicodedata.category(run) == "So":
                words.append(_spelled(run))
        return words, literal

    def _han_words(self, run: str) -> Iterator[str]:
        if len(run) == 1:
            yield _spelled(run)
            return
        for start in range(0, len(run), MAX_HAN_RUN):
            yield from map(_spelled, self._cutter.cut(run[start : start + MAX_HAN_RUN]))

    def _latin(self, run: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        literal = [piece for part in _LETTERS_OR_DIGITS.findall(run) for piece in _pieces(_spelled(part))]
        tokens = tuple(self._latin_words(run)), tuple(literal)
        if (
            len(self._latin_memo) < RUNS_REMEMBERED
            and _ASCII_WORD.match(run)
            and len(run) <= MAX_TOKEN_LENGTH
        ):
            self._latin_memo[run] = tokens
        return tokens

    def _latin_words(self, run: str) -> Iterator[str]:
        joined = run.replace("'", "").replace("’", "")
        plain = run.replace("’", "'")
        if _ASCII_WORD.match(plain.replace("'", "")):
            yield self._stem(plain)[:MAX_TOKEN_LENGTH]
            return
        yield from _pieces(_spelled(joined))
        parts = _LETTERS_OR_DIGITS.findall(joined)
        if len(parts) > 1:
            for part in parts:
                yield from [self._stem(part)] if _ASCII_WORD.match(part) else _pieces(_spelled(part))

    def _stem(self, word: str) -> str:
        stemmer = getattr(self._local, "stemmer", None)
        if stemmer is None:
            import Stemmer

            stemmer = self._local.stemmer = Stemmer.Stemmer("english")
        stem: str = stemmer.stemWord(word[:MAX_TOKEN_LENGTH])
        return stem.replace("'", "")


def _bigrams(run: str) -> list[str]:
    """Overlapping pairs, and the last character once more alone."""
    pairs = [*map(add, run, run[1:]), run[-1]]
    return pairs if _is_spelled(run) else [_spelled(pair) for pair in pairs]


def _stands_alone(run: re.Match[str]) -> bool:
    return run.lastgroup in ("han", "unspaced") and len(run.group()) == 1


def _phrase(normal: str, literal: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The phrase whose matches include every row that holds the text literally (borders of letters apart)."""
    if not literal or len(literal) > MAX_QUERY_TERMS:
        return (), False
    last = ""
    for match in _RUNS.finditer(normal):
        if match.lastgroup in ("han", "unspaced", "word"):
            last = match.group() if match.lastgroup != "word" else ""
    if len(last) > 1:  # inside a longer run the last character has no token of its own
        return tuple(literal[:-1]), False
    return tuple(literal), True


def _ends(terms: Iterable[str]) -> tuple[str, ...]:
    listed = list(terms)
    if len(listed) <= MAX_QUERY_TERMS:
        return tuple(listed)
    head = MAX_QUERY_TERMS // 3
    return tuple(listed[:head] + listed[head - MAX_QUERY_TERMS :])


def _pieces(token: str) -> Iterator[str]:
    for start in range(0, len(token), MAX_TOKEN_LENGTH):
        yield token[start : start + MAX_TOKEN_LENGTH]


def _spelled(token: str) -> str:
    """The token in letters and digits only, and in none that ``unicode61`` takes for marks."""
    if _is_spelled(token):
        return token
    return "".join(c if c.isalnum() and c not in _MARKS_TO_FTS5 else f"u{ord(c):x}" for c in token)


def _is_spelled(token: str) -> bool:
    return token.isalnum() and _MARKS_TO_FTS5.isdisjoint(token)
