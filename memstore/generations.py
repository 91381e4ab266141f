"""Embedding generations as a whole: listing them, going back to an earlier one, freeing what one takes."""

from memstore.clock import Clock
from memstore.errors import InvalidInput, NotFound, StoreUnsound
from memstore.storage.base import Generation, Reader, Storage
from memstore.times import to_micros
from memstore.types import Finding, GenerationRecord

DROP_ROWS = 2_000
"""Vectors deleted in one transaction: other writers wait a few milliseconds for it."""


def records(storage: Storage) -> list[GenerationRecord]:
    """Every generation, by number."""
    with storage.read() as reader:
        return reader.generation_records()


def roll_back(storage: Storage, clock: Clock, number: int | None) -> GenerationRecord:
    """Switch to a generation that was active before; no model is called.

    :raises NotFound: when there is no such generation. :raises InvalidInput: when it cannot be gone back to.
    """
    with storage.write(maintenance=True) as tx:
        target = _earlier(tx) if number is None else _numbered(tx, number)
        if target.state == "active":
            raise InvalidInput(f"generation {target.number} is the active one already; nothing was changed")
        if not target.was_active:
            raise InvalidInput(
                f"generation {target.number} ({target.identity.model}) was never complete; nothing was changed. "
                "Open the store with that model and run reindex() (memstore reindex) to complete it"
            )
        tx.queue_missing(target.number)
        tx.activate(target.number, to_micros(clock.now()))
        return _record(tx, target.number)


def drop(storage: Storage, number: int) -> GenerationRecord:
    """Delete a generation and give its space back to the file; returns what it was.

    Many short transactions: killed half-way it is a retired generation with fewer vectors, and dropping it again
    goes on.

    :raises NotFound: when there is no such generation. :raises InvalidInput: when it is the active one.
    """
    with storage.write() as tx:
        generation = _numbered(tx, number)
        if generation.state == "active":
            raise InvalidInput(
                f"generation {number} ({generation.identity.model}) is active and answers searches; nothing was "
                "changed. Change over to another model by reindex() or roll back first"
            )
        was = _record(tx, number)
        if generation.state == "building":
            tx.retire(number)
    while True:
        with storage.write() as tx:
            found = tx.numbered_generation(number)
            if found is None:  # somebody else has finished it
                return was
            if found.state != "retired":
                raise InvalidInput(
                    f"generation {number} was taken into use again while it was being dropped; "
                    "the vectors that it lost are computed anew by index()"
                )
            if not tx.shrink_generation(number, DROP_ROWS):
                tx.drop_generation(number)
                return was


def check(storage: Storage) -> list[Finding]:
    """Retired generations and what they take; there is nothing wrong with them."""
    try:
        found = records(storage)
    except StoreUnsound:
        return []  # the checks of the file have named it
    return [
        Finding(
            "generations",
            "info",
            f"generation {g.number} ({g.model}) is retired and takes {g.bytes / 1e6:.1f} MB; a change back to its "
            "model would use it again",
            f"memstore generations drop {g.number}",
        )
        for g in found
        if g.state == "retired"
    ]


def _numbered(reader: Reader, number: int) -> Generation:
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidInput(f"the number of a generation is a whole number, not {number!r:.60}")
    numbers = [record.number for record in reader.generation_records()]
    generation = reader.numbered_generation(number) if number in numbers else None
    if generation is None:
        known = f"there are {', '.join(map(str, numbers))}" if numbers else "the store has none yet"
        raise NotFound(f"no embedding generation {number}; {known}")
    return generation


def _earlier(reader: Reader) -> Generation:
    generation = reader.generation_before()
    if generation is None:
        raise NotFound("no embedding generation was active before this one; nothing was changed")
    return generation


def _record(reader: Reader, number: int) -> GenerationRecord:
    return next(record for record in reader.generation_records() if record.number == number)
