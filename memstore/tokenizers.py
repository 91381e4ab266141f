"""Which tokenizer the texts of a team go through at this moment: its own dictionary, the store's folding.

A dictionary may be changed by another process at any time. So tokens that are written or asked for inside a unit of
work come from :meth:`Tokenizers.of` that unit of work; what was cut before it is renewed where it no longer fits.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo

from memstore.storage.base import Reader, Segmentation
from memstore.text import Cutter, JiebaCutter, Tokenizer

FOLD_VARIANTS = "fold_variants"
"""The store's own setting that says whether it folds traditional and simplified characters."""
KEPT = 8
"""Tokenizers that a process keeps; one with a dictionary of its own takes some tens of megabytes."""

MakeCutter = Callable[[Mapping[str, int]], Cutter]
"""Makes what cuts Han text, given the words of a dictionary."""

_kept: dict[tuple[MakeCutter, Segmentation, tzinfo], Tokenizer] = {}
_lock = threading.Lock()


class Tokenizers:
    """The tokenizers of a store's teams.

    :param cutter: what cuts Han text; jieba unless another one is given.
    :param zone: the store's, in which the dates of messages are read.
    """

    def __init__(self, cutter: MakeCutter = JiebaCutter, zone: tzinfo = UTC) -> None:
        self._cutter = cutter
        self.zone = zone
        self._last: dict[str, Segmentation] = {}
        self._folding = False

    def of(self, reader: Reader, team_id: str) -> Tokenizer:
        """The team's tokenizer in this unit of work."""
        segmentation = reader.segmentation(team_id)
        self._last[team_id] = segmentation
        self._folding = segmentation.fold_variants
        return self._known(segmentation) or self.made_of(
            segmentation, reader.dictionary(team_id) if segmentation.dictionary else {}
        )

    def likely(self, team_id: str) -> Tokenizer:
        """The one that the team had when it was last asked for: for cutting words before a transaction begins."""
        segmentation = self._last.get(team_id) or Segmentation(fold_variants=self._folding)
        return self._known(segmentation) or self.made_of(
            Segmentation(fold_variants=segmentation.fold_variants), {}
        )

    def made_of(self, segmentation: Segmentation, words: Mapping[str, int]) -> Tokenizer:
        """A tokenizer with these words, of which the digest stands in the segmentation.

        :raises ConfigError: when variants are to be folded and OpenCC is missing.
        """
        tokenizer = self._known(segmentation)
        if tokenizer is None:
            folding = segmentation.fold_variants
            plain = Tokenizer(self._cutter({}), fold_variants=folding, zone=self.zone)
            folded = {plain.normal(word): words[word] for word in sorted(words, reverse=True)}
            cutter = self._cutter(folded) if words else None
            tokenizer = Tokenizer(cutter, fold_variants=folding, zone=self.zone) if cutter else plain
            with _lock:
                _kept[self._cutter, segmentation, self.zone] = tokenizer
                for oldest in list(_kept)[:-KEPT]:
                    del _kept[oldest]
        return tokenizer

    def _known(self, segmentation: Segmentation) -> Tokenizer | None:
        key = self._cutter, segmentation, self.zone
        with _lock:
            tokenizer = _kept.pop(key, None)
            if tokenizer is not None:
                _kept[key] = tokenizer  # the latest used stands last
        return tokenizer
