"""Dictionaries of teams: words that segmentation keeps whole in the team's texts and queries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memstore.asking import principal
from memstore.canonical import check_encodable
from memstore.clock import Clock
from memstore.errors import InvalidInput, NotFound, NotPermitted
from memstore.rebuild import Rebuilding
from memstore.storage.base import Reader, Ref, Segmentation, Storage, TextRow, Writer
from memstore.text import Tokenizer, can_be_a_word, default_frequency, dictionary_digest, normalise
from memstore.times import from_micros, to_micros
from memstore.tokenizers import Tokenizers
from memstore.types import LAYERS, DictionaryReport, DictionaryWord, Layer, Progress, Scope

MIN_LENGTH, MAX_LENGTH = 2, 32
MAX_FREQUENCY = 10**9
MAX_WORDS = 50_000
FEW_ROWS = 500
"""So many rows are segmented anew in the transaction that changes the words; for more, an index is built before it."""
LISTED = 20

Words = dict[str, int]
Edit = Callable[[Words], Words]


@dataclass(frozen=True, slots=True)
class _Change:
    """A dictionary as it is and as it shall be, with the tokenizers of both."""

    old: Words
    new: Words
    before: Tokenizer
    after: Tokenizer

    @property
    def differing(self) -> list[str]:
        """Words whose texts are to be segmented anew."""
        return sorted(
            word for word in self.old.keys() | self.new.keys() if self.old.get(word) != self.new.get(word)
        )


class Dictionaries:
    """Changes and lists the dictionaries of teams."""

    def __init__(self, storage: Storage, tokenizers: Tokenizers, clock: Clock) -> None:
        self._storage = storage
        self._tokenizers = tokenizers
        self._clock = clock

    def words(self, scope: Scope) -> list[DictionaryWord]:
        """See :meth:`memstore.store.MemoryStore.words`."""
        with self._storage.read() as reader:
            if not principal(reader, scope).is_member:
                raise NotPermitted(f"user {scope.user_id!r} is not a member of team {scope.team_id!r}")
            return [
                DictionaryWord(row.word, row.frequency, row.added_by, from_micros(row.added_at))
                for row in reader.words(scope.team_id)
            ]

    def add(
        self, scope: Scope, words: Sequence[str] | Mapping[str, int], progress: Progress | None
    ) -> DictionaryReport:
        """See :meth:`memstore.store.MemoryStore.add_words`."""
        added = _checked_words(words)

        def edit(held: Words) -> Words:
            if len(held | added) > MAX_WORDS:
                raise InvalidInput(f"a dictionary has room for {MAX_WORDS} words; remove some first")
            return held | added

        return self._change(scope, edit, progress)

    def remove(self, scope: Scope, words: Sequence[str], progress: Progress | None) -> DictionaryReport:
        """See :meth:`memstore.store.MemoryStore.remove_words`."""
        gone = {normalise(word).strip() for word in _listed(words)}

        def edit(held: Words) -> Words:
            unknown = sorted(gone - held.keys())
            if unknown:
                raise NotFound(f"not in the dictionary: {', '.join(unknown[:LISTED])}; nothing was removed")
            return {word: frequency for word, frequency in held.items() if word not in gone}

        return self._change(scope, edit, progress)

    def _change(self, scope: Scope, edit: Edit, progress: Progress | None) -> DictionaryReport:
        """Words, digest and tokens change in one transaction. Where that would take long, the indexes are built
        beforehand: one who is killed meanwhile has changed nothing, and the same call again goes on from there."""
        team_id = scope.team_id
        rebuilding = Rebuilding(self._storage, progress)
        with self._storage.read() as reader:
            change = self._planned(reader, team_id, edit)
            rows = sum(len(_touched(reader, layer, team_id, change)) for layer in LAYERS)
            allowed = principal(reader, scope).is_admin
        if rows > FEW_ROWS and allowed:
            for layer in LAYERS:
                rebuilding.prepare(layer, team_id, change.after)
        now = to_micros(self._clock.now())
        with self._storage.write(maintenance=True) as tx:
            if not tx.join(team_id, scope.user_id, now).is_admin:
                raise NotPermitted(
                    f"user {scope.user_id!r} is no admin of team {team_id!r}, whose dictionary it is"
                )
            change = self._planned(tx, team_id, edit)  # again: another process may have changed it
            if change.differing:
                rows = sum(_apply(tx, rebuilding, layer, team_id, change) for layer in LAYERS)
                tx.set_words(team_id, change.new, scope.user_id, now)
        return DictionaryReport(tuple(change.differing), rows, len(change.new))

    def _planned(self, reader: Reader, team_id: str, edit: Edit) -> _Change:
        old = reader.dictionary(team_id)
        new = edit(old)
        folding = reader.segmentation(team_id).fold_variants
        before, after = (
            self._tokenizers.made_of(Segmentation(dictionary_digest(words), folding), words)
            for words in (old, new)
        )
        return _Change(old, new, before, after)


def _apply(tx: Writer, rebuilding: Rebuilding, layer: Layer, team_id: str, change: _Change) -> int:
    """Give the rows that hold one of the words their new tokens; returns how many rows that were."""
    rows = _touched(tx, layer, team_id, change)
    prepared = tx.text_index(layer, team_id, "building")
    if prepared is not None and prepared.tokenizer == change.after.identity:
        rebuilding.complete(tx, layer, team_id, change.after)
    else:
        tx.put_text(layer, team_id, [(row.ref, change.after.index(row.spoken)) for row in rows])
        tx.relabel_text_index(layer, team_id, change.before.identity, change.after.identity)
    return len(rows)


def _touched(reader: Reader, layer: Layer, team_id: str, change: _Change) -> list[TextRow]:
    """The rows that hold one of the words that differ. Texts without them are segmented as before."""
    found: dict[Ref, TextRow] = {}
    for word in change.differing:
        sought = change.after.normal(word)
        for row in reader.rows_with_phrase(layer, team_id, change.after.query(sought)):
            if row.ref not in found and sought in change.after.normal(row.spoken.with_name):
                found[row.ref] = row
    return [found[ref] for ref in sorted(found)]


def _listed(words: object) -> list[str]:
    if isinstance(words, str) or not isinstance(words, Sequence | Mapping) or not words:
        raise InvalidInput("words must be a list that is not empty, or a mapping of words to frequencies")
    for word in words:
        if not isinstance(word, str):
            raise InvalidInput(f"a word is text, not {type(word).__name__}")
        check_encodable(word, "word")
    return list(words)


def _checked_words(words: Sequence[str] | Mapping[str, int]) -> Words:
    """The words in normal form with their frequencies.

    :raises InvalidInput: for what would have no effect.
    """
    checked: Words = {}
    for word in _listed(words):
        normal = normalise(word).strip()
        if not MIN_LENGTH <= len(normal) <= MAX_LENGTH:
            raise InvalidInput(
                f"a word has {MIN_LENGTH} to {MAX_LENGTH} characters, not {len(normal)}: {word!r:.60}"
            )
        if not can_be_a_word(normal):
            raise InvalidInput(
                f"{word!r:.60} would have no effect: only words of Chinese characters are segmented by a dictionary. "
                "Latin words, numbers and identifiers are kept whole, and found by any part, without one; of a word "
                "of both, add the Chinese part"
            )
        frequency = words[word] if isinstance(words, Mapping) else None
        checked[normal] = (
            default_frequency(normal) if frequency is None else _checked_frequency(word, frequency)
        )
    return checked


def _checked_frequency(word: str, frequency: object) -> int:
    if isinstance(frequency, bool) or not isinstance(frequency, int) or not 1 <= frequency <= MAX_FREQUENCY:
        raise InvalidInput(
            f"the frequency of {word!r:.60} must be a whole number from 1 to {MAX_FREQUENCY}, not {frequency!r:.40}"
        )
    return frequency
