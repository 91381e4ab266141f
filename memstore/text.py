"""Text as it is indexed: one tokenizer for writing and for asking (SPEC S3).

What is stored stays byte for byte; only the index copy is normalised. A row is indexed in two columns:

``words``
    what ranks: jieba search-mode words of the Han runs, English stems, digits, emoji. Scripts that write
    without spaces and have no dictionary here (kana, Hangul, Thai, …) come as bigrams.
``literal``
    what finds substrings that word segmentation cuts apart: overlapping bigrams of every run of Han, and each run's
    last character once more alone. A literal substring is a phrase there, so ``银`` is found inside ``银行卡``.
    In a text with Han or other unspaced script, letters and digits come the same way, since identifiers are glued
    to it and cut anywhere: ``ild-x7`` is found inside ``跑完build-x7后``. In other texts they come as they stand,
    parted from each other, and a substring is found from the beginning of such a piece.

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
from datetime import UTC, tzinfo
from functools import lru_cache
from operator import add
from pathlib import Path
from typing import Any, Protocol

from memstore.date_words import date_words, dates_named

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
MIN_RANKED_PIECE = 3
"""Shorter pieces of letters and digits do not rank by ``literal``, where they would equal bigrams of other words."""
MAX_PAIRED_RUN = 4_096
"""Of letters and digits glued to Chinese: keys, tokens and hashes are found by any part; embedded files are not."""
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
    f"|(?P<word>[^\\W_{_HAN}{_UNSPACED}{_EMOJI}]+(?:['’](?!\\d)[^\\W_{_HAN}{_UNSPACED}{_EMOJI}]+)*)"
    r"|(?P<mark>[^\w\s])",
)
_GLUING = re.compile(f"[{_HAN}{_UNSPACED}]")
"""A text with one of these holds its letters and digits as bigrams."""
_APOSTROPHE = re.compile("['’]")
_JIEBA_WORD = re.compile("[\u4e00-\u9fd5]+")
"""What jieba takes for Han; it parts everything else into single characters."""
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
class Spoken:
    """What a row gives to the indexes: its text; of a message also who said it, and when (microseconds)."""

    text: str
    name: str | None = None
    said_at: int | None = None

    @property
    def with_name(self) -> str:
        """As a transcript has it; this is what a model embeds."""
        return self.text if self.name is None else f"{self.name}: {self.text}"


@dataclass(frozen=True, slots=True)
class IndexTokens:
    """A row's tokens, ready for the two columns of its text index, and the identity of who made them."""

    words: str
    literal: str
    tokenizer: str = ""

    def __bool__(self) -> bool:
        return bool(self.words or self.literal)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Tokens in sequence. ``prefix``: the last of them may be the beginning of a longer one."""

    tokens: tuple[str, ...]
    prefix: bool


@dataclass(frozen=True, slots=True)
class QueryTokens:
    """A query's tokens. ``words`` and ``literal`` rank. ``phrases`` find, any one of them, the rows that may hold the
    whole query literally; none: no such check.

    ``prefixes`` are those of ``literal`` that may be the beginning of a longer token: a character that stands alone
    here begins a bigram inside a longer run.
    """

    words: tuple[str, ...]
    literal: tuple[str, ...]
    phrases: tuple[Phrase, ...] = ()
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
    """jieba in search mode, with words of one's own beside its dictionary. Loaded on first use, then only read.

    An own word that is cut out whole is followed by its parts, so that it is found by them too.
    """

    def __init__(self, words: Mapping[str, int] | None = None) -> None:
        self._words = dict(words or {})
        self._lock = threading.Lock()
        self._tokenizer: Any = None

    @property
    def identity(self) -> str:
        own = f" with {dictionary_digest(self._words)}" if self._words else ""
        return f"jieba {importlib.metadata.version('jieba')} {_jieba_dictionary_digest()}{own}"

    def cut(self, run: str) -> Iterable[str]:
        tokenizer = self._loaded()
        words: Iterable[str] = tokenizer.cut_for_search(run) if not self._words else self._cut(tokenizer, run)
        return words

    def _cut(self, tokenizer: Any, run: str) -> Iterator[str]:
        for word in tokenizer.cut(run):
            if word in self._words:
                yield from (part for part in general_jieba().cut_for_search(word) if part != word)
            else:
                yield from _grams(word, tokenizer.FREQ)
            yield from self._contained(word)
            yield word

    def _contained(self, word: str) -> Iterator[str]:
        """Own words inside a longer one that jieba's grams of two and three do not give."""
        for length in range(4, len(word)):
            for start in range(len(word) - length + 1):
                if word[start : start + length] in self._words:
                    yield word[start : start + length]

    def _loaded(self) -> Any:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _with_words(self._words) if self._words else general_jieba()
            return self._tokenizer


def _grams(word: str, known: Mapping[str, int]) -> Iterator[str]:
    """What jieba's search mode gives beside a word: the words of two and three characters in it."""
    for length in (2, 3):
        if len(word) > length:
            grams = (word[start : start + length] for start in range(len(word) - length + 1))
            yield from (gram for gram in grams if known.get(gram))


def _with_words(words: Mapping[str, int]) -> Any:
    """jieba's dictionary and these words, in an instance of its own.

    Not by jieba's ``add_word`` and ``del_word``: the first raises the total, by which every probability is divided,
    so that texts without the word are cut otherwise too, and the second leaks into every instance. With the total
    left as it is, and with prefixes of frequency 0 as jieba has them, a text without these words is cut as before.
    """
    import jieba

    general = general_jieba()
    made = jieba.Tokenizer()
    made.FREQ, made.total = dict(general.FREQ), general.total
    for word, frequency in words.items():
        for end in range(1, len(word)):
            made.FREQ.setdefault(word[:end], 0)
        made.FREQ[word] = frequency
    made.initialized = True
    return made


_loading = threading.Lock()


def general_jieba() -> Any:
    """jieba with its packaged dictionary: one a process, however many stores it opens. It takes half a second.

    jieba's cache file in the shared temporary folder is neither read nor written: it is unmarshalled without
    any check of who wrote it.
    """
    with _loading:
        return _load_jieba()


@lru_cache(maxsize=1)
def _load_jieba() -> Any:
    with _jieba_dictionary().open("rb") as file:
        import jieba

        jieba.setLogLevel(60)
        tokenizer = jieba.Tokenizer()
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(file)
    tokenizer.initialized = True
    return tokenizer


def default_frequency(word: str) -> int:
    """The frequency at which a word wins over its own best segmentation by the general dictionary alone: the same
    whatever other words were added before it."""
    frequency: int = general_jieba().suggest_freq(word)
    return frequency


def can_be_a_word(text: str) -> bool:
    """Whether segmentation can keep this text as one word: jieba cuts runs of Han only."""
    return _JIEBA_WORD.fullmatch(text) is not None


def dictionary_digest(words: Mapping[str, int]) -> str:
    """Stands in for a dictionary; empty for an empty one."""
    if not words:
        return ""
    return hashlib.sha256(json.dumps(sorted(words.items()), ensure_ascii=True).encode()).hexdigest()[:16]


def _jieba_dictionary() -> Path:
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.submodule_search_locations:
        from memstore.errors import ConfigError

        raise ConfigError("jieba, which segments Chinese, is not installed; run: pip install jieba==0.42.1")
    return Path(next(iter(spec.submodule_search_locations))) / "dict.txt"


@lru_cache(maxsize=1)
def _jieba_dictionary_digest() -> str:
    return hashlib.sha256(_jieba_dictionary().read_bytes()).hexdigest()[:12]


@lru_cache(maxsize=1)
def variant_table() -> Mapping[int, str]:
    """Each traditional character that has one simplified form, and that form.

    Character by character: OpenCC's phrases would make a substring of a text fold otherwise than the text.

    :raises ConfigError: when OpenCC is not installed.
    """
    try:
        import opencc
    except ImportError as error:
        from memstore.errors import ConfigError

        raise ConfigError(
            "this store folds traditional and simplified characters, which needs OpenCC; "
            "run: pip install 'memstore[zh]' (or: pip install 'opencc>=1.4.2,<2')"
        ) from error
    han = re.compile(f"[{_HAN}]")
    characters = [c for c in map(chr, range(0x3000, 0x33000)) if han.match(c)]
    simplified = opencc.OpenCC("t2s").convert("\n".join(characters)).split("\n")
    return {
        ord(old): new for old, new in zip(characters, simplified, strict=True) if old != new and len(new) == 1
    }


@lru_cache(maxsize=1)
def _variant_identity() -> str:
    table = json.dumps(sorted(variant_table().items()))
    digest = hashlib.sha256(table.encode()).hexdigest()[:12]
    return f"opencc t2s {importlib.metadata.version('opencc')} {digest}"


class Tokenizer:
    """Turns text into index and query tokens. Deterministic, safe with threads, loads nothing until it must.

    :param fold_variants: index and ask for traditional characters as their simplified forms.
    :param zone: in which a message's date is read.
    """

    VERSION = 2

    def __init__(
        self, cutter: Cutter | None = None, *, fold_variants: bool = False, zone: tzinfo = UTC
    ) -> None:
        self._cutter = cutter or JiebaCutter()
        self._variants = variant_table() if fold_variants else None
        self._zone = zone
        self._identity: str | None = None
        self._local = threading.local()
        self._latin_memo: dict[str, _Latin] = {}

    @property
    def identity(self) -> str:
        """What tokens depend on, as JSON. It is stored with them; another identity needs a reindex."""
        if self._identity is None:
            parts = {
                "tokenizer": f"memstore {self.VERSION}",
                "cutter": self._cutter.identity,
                "stemmer": f"snowball english, PyStemmer {importlib.metadata.version('PyStemmer')}",
                "unicode": unicodedata.unidata_version,
                "zone": str(self._zone),
            }
            if self._variants is not None:
                parts["variants"] = _variant_identity()
            self._identity = json.dumps(parts, sort_keys=True)
        return self._identity

    def warm_up(self, text: str) -> bool:
        """Load the word dictionary if this text needs it; returns whether it did."""
        match = re.search(f"[{_HAN}]", text)
        return match is not None and bool(list(self._cutter.cut(match.group())))

    def normal(self, text: str) -> str:
        """The text as it is indexed: normalised, and folded where that was asked for."""
        normal = normalise(text)
        return normal if self._variants is None else normal.translate(self._variants)

    def squeezed(self, text: str) -> str:
        """The normal form with runs of white space as one blank: literal matches are checked in it."""
        return " ".join(self.normal(text).split())

    def index(self, of: str | Spoken) -> IndexTokens:
        """The tokens under which a row is indexed. A message is also found by its speaker's name and by its date; one
        whose text holds nothing to index is in no index."""
        spoken = Spoken(of) if isinstance(of, str) else of
        normal = self.normal(spoken.text)
        words, literal = self._scan(normal, pairs=_GLUING.search(normal) is not None)
        if (words or literal) and spoken.name is not None:
            name = self._scan(self.normal(spoken.name), pairs=False)
            words, literal = name[0] + words, name[1] + literal
        if words and spoken.said_at is not None:
            words += date_words(spoken.said_at, self._zone)
        return IndexTokens(" ".join(words), " ".join(literal), self.identity)

    def renewed(self, tokens: IndexTokens | None, of: str | Spoken) -> IndexTokens:
        """These tokens if this tokenizer made them, else the row's by this one."""
        return tokens if tokens is not None and tokens.tokenizer == self.identity else self.index(of)

    def query(self, text: str) -> QueryTokens:
        """The tokens to look for. Any text is legal; blank or punctuation alone gives none."""
        if len(text) > QUERY_HEAD_CHARS + QUERY_TAIL_CHARS:
            text, whole = f"{text[:QUERY_HEAD_CHARS]} {text[-QUERY_TAIL_CHARS:]}", False
        else:
            whole = True
        normal = self.normal(text)
        words, pairs = self._scan(normal, pairs=True)
        words += dates_named(normal)
        phrases = [_phrase(normal, pairs)] if whole and pairs else []
        runs = [m.group() for m in _RUNS.finditer(normal) if m.lastgroup in ("han", "unspaced")]
        if runs:
            ranked = [pair for run in runs for pair in _bigrams(run)]
        else:  # rows without Han hold letters and digits as they stand
            pieces = self._scan(normal, pairs=False)[1]
            phrases += [_cut_short(pieces, prefix=True)] if whole and pieces else []
            ranked = [piece for piece in pieces if len(piece) >= MIN_RANKED_PIECE]
        alone = frozenset(_spelled(run) for run in runs if len(run) == 1)
        return QueryTokens(
            _ends(dict.fromkeys(words)), _ends(dict.fromkeys(ranked)), tuple(dict.fromkeys(phrases)), alone
        )

    def _scan(self, normal: str, *, pairs: bool) -> tuple[list[str], list[str]]:
        """The tokens of both columns, in one pass over the runs of one script."""
        words: list[str] = []
        literal: list[str] = []
        for match in _RUNS.finditer(normal):
            run, kind = match.group(), match.lastgroup
            if kind == "word":
                latin = self._latin_memo.get(run) or self._latin(run)
                words += latin.words
                literal += latin.pairs if pairs else latin.pieces
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

    def _latin(self, run: str) -> "_Latin":
        pieces = [piece for part in _LETTERS_OR_DIGITS.findall(run) for piece in _pieces(_spelled(part))]
        pairs = [pair for part in _APOSTROPHE.split(run) for pair in _latin_pairs(part)]
        latin = _Latin(tuple(self._latin_words(run)), tuple(pieces), tuple(pairs))
        if (
            len(self._latin_memo) < RUNS_REMEMBERED
            and _ASCII_WORD.match(run)
            and len(run) <= MAX_TOKEN_LENGTH
        ):
            self._latin_memo[run] = latin
        return latin

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


@dataclass(frozen=True, slots=True)
class _Latin:
    """The tokens of a run of letters and digits: what ranks, and both literal forms."""

    words: tuple[str, ...]
    pieces: tuple[str, ...]
    pairs: tuple[str, ...]


def _latin_pairs(run: str) -> Iterable[str]:
    """Bigrams of letters and digits, not parted; a longer run (an embedded file) stays in pieces."""
    if len(run) <= MAX_PAIRED_RUN:
        return _bigrams(run)
    return (piece for part in _LETTERS_OR_DIGITS.findall(run) for piece in _pieces(_spelled(part)))


def _bigrams(run: str) -> list[str]:
    """Overlapping pairs, and the last character once more alone."""
    pairs = [*map(add, run, run[1:]), run[-1]]
    return pairs if _is_spelled(run) else [_spelled(pair) for pair in pairs]


def _phrase(normal: str, pairs: Sequence[str]) -> Phrase:
    """The phrase whose matches include every row in bigram form that holds the text literally."""
    last = next(
        m for m in reversed(list(_RUNS.finditer(normal))) if m.lastgroup in ("han", "unspaced", "word")
    )
    run = last.group() if last.lastgroup != "word" else _APOSTROPHE.split(last.group())[-1]
    if len(run) == 1 or (last.lastgroup == "word" and len(run) > MAX_PAIRED_RUN):
        return _cut_short(pairs, prefix=True)
    # inside a longer run the last character has no token of its own
    return _cut_short(pairs[:-1], prefix=False)


def _cut_short(tokens: Sequence[str], *, prefix: bool) -> Phrase:
    """The beginning of a long phrase: it finds no fewer rows, and each is looked at anyway."""
    if len(tokens) > MAX_QUERY_TERMS:
        return Phrase(tuple(tokens[:MAX_QUERY_TERMS]), prefix=False)
    return Phrase(tuple(tokens), prefix)


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
