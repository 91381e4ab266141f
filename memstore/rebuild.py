"""Text indexes made anew, beside the ones that answer."""

from dataclasses import replace

from memstore.errors import StoreBusy
from memstore.storage.base import Reader, Storage, Writer
from memstore.text import Tokenizer
from memstore.tokenizers import FOLD_VARIANTS, Tokenizers
from memstore.types import LAYERS, Layer, Progress

BATCH_ROWS = 500


class Rebuilding:
    """Builds text indexes anew beside the ones that answer, in small transactions, and switches at the end.

    Whoever is killed at any moment leaves an index half-built, which the next one goes on with if it is of the
    tokenizer that is wanted; two at once fill the same one in turn. Every write keeps it in step.
    """

    def __init__(self, storage: Storage, progress: Progress | None = None) -> None:
        self._storage = storage
        self._progress = progress
        self.done = 0

    def prepare(self, layer: Layer, team_id: str, tokenizer: Tokenizer) -> None:
        """Fill an index of this tokenizer with every row; others may read and write meanwhile."""
        with self._storage.write(maintenance=True) as tx:
            if not tx.begin_text_index(layer, team_id, tokenizer.identity):
                return
        while True:
            with self._storage.read() as reader:
                building = reader.text_index(layer, team_id, "building")
                if building is None:  # another process was as far, and has switched
                    return
                if building.tokenizer != tokenizer.identity:
                    raise StoreBusy(
                        f"another process builds the text index of team {team_id!r} otherwise; wait for it to end "
                        "and run this again"
                    )
                rows = reader.text_rows(layer, team_id, building.filled_to, BATCH_ROWS)
            if not rows:
                return
            cut = [(row.ref, tokenizer.index(row.spoken)) for row in rows]
            with self._storage.write(maintenance=True) as tx:
                tx.fill_text_index(layer, team_id, building.filled_to, cut)
            self._report(len(rows))
            if (
                len(rows) < BATCH_ROWS
            ):  # what others write from now on is put in by the transaction that switches
                return

    def complete(self, tx: Writer, layer: Layer, team_id: str, tokenizer: Tokenizer) -> None:
        """Put what came in since into the prepared index, and switch to it, inside a transaction."""
        active = tx.text_index(layer, team_id, "active")
        prepared = tx.text_index(layer, team_id, "building")
        if prepared is None and active is not None and active.tokenizer == tokenizer.identity:
            return  # another process did it
        if not tx.begin_text_index(layer, team_id, tokenizer.identity):
            return
        while building := tx.text_index(layer, team_id, "building"):
            rows = tx.text_rows(layer, team_id, building.filled_to, BATCH_ROWS)
            if not rows:
                break
            cut = [(row.ref, tokenizer.index(row.spoken)) for row in rows]
            tx.fill_text_index(layer, team_id, building.filled_to, cut)
        tx.switch_text_index(layer, team_id)

    def _report(self, rows: int) -> None:
        self.done += rows
        if self._progress is not None:
            self._progress(self.done, self.done)


def rebuild_text_indexes(
    storage: Storage,
    tokenizers: Tokenizers,
    progress: Progress | None = None,
    *,
    fold_variants: bool | None = None,
) -> int:
    """Index every row anew with its team's tokenizer; returns the number of rows. Searches go on by the indexes that
    are there. Another folding of variants holds from one transaction on, for all teams at once."""
    rebuilding = Rebuilding(storage, progress)
    with storage.read() as reader:
        teams = reader.team_ids()
        changing = fold_variants is not None and fold_variants != reader.segmentation("").fold_variants
    for team_id in teams * (2 if changing else 1):  # once more: what was written while all were prepared
        for layer in LAYERS:
            switched = False
            while not switched:
                with storage.read() as reader:
                    tokenizer = _wanted(reader, tokenizers, team_id, fold_variants)
                rebuilding.prepare(layer, team_id, tokenizer)
                if changing:
                    break
                with storage.write(
                    maintenance=True
                ) as tx:  # the team's dictionary may have changed meanwhile
                    switched = _wanted(tx, tokenizers, team_id, fold_variants).identity == tokenizer.identity
                    if switched:
                        rebuilding.complete(tx, layer, team_id, tokenizer)
    if changing:
        with storage.write(maintenance=True) as tx:
            tx.set_meta(FOLD_VARIANTS, str(int(bool(fold_variants))))
            for team_id in tx.team_ids():
                for layer in LAYERS:
                    rebuilding.complete(tx, layer, team_id, tokenizers.of(tx, team_id))
    return rebuilding.done


def _wanted(reader: Reader, tokenizers: Tokenizers, team_id: str, fold_variants: bool | None) -> Tokenizer:
    segmentation = reader.segmentation(team_id)
    if fold_variants is not None:
        segmentation = replace(segmentation, fold_variants=fold_variants)
    return tokenizers.made_of(segmentation, reader.dictionary(team_id))
