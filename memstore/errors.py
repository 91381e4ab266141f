"""Every error that memstore raises on purpose.

    MemstoreError
    ├── InvalidInput (ValueError)      what the caller passed
    │   ├── InvalidScope               team or user missing, or an id that cannot be one
    │   ├── InvalidSessionKey
    │   ├── InvalidText                lone surrogates, content that JSON cannot hold
    │   └── InvalidTime
    ├── NotFound (LookupError)         missing and foreign ids alike
    ├── NotPermitted                   a row the asker may read, but not change
    ├── StoreError                     the database file
    │   ├── StoreMissing               no file, but fallback lines: run ``memstore recover``
    │   ├── StoreExists                recover and init never write over a file
    │   ├── StoreUnsound               not a database, or damaged
    │   ├── StoreTooNew                made by a newer memstore
    │   ├── StoreBusy                  locked by another process past the timeout
    │   ├── StoreFull                  the disk or a quota is full
    │   ├── BackupUnsound              a backup that is damaged, cut short or none of a store
    │   ├── StoreReadOnly
    │   ├── StoreIO                    the operating system refused a read or write
    │   ├── StoreClosed                used after close(), or in a forked child
    │   ├── StoreLimit                 an owner, team or slot number ran out
    │   └── EngineTooOld               SQLite or sqlite-vec below the floor, or not loadable
    ├── FallbackError                  the daily JSONL files could not be written
    │   └── LinesLeft                  … nor cut back: what was said may come in later
    ├── ImportStopped                  the store takes no more; what was read is kept, and a second run goes on
    ├── EmbeddingError
    │   ├── EmbedderUnavailable        the model cannot be loaded or called
    │   ├── EmbeddingRejected          wrong width, NaN, zero: refused at the border
    │   └── EmbedderMismatch           the store's vectors are another model's
    ├── LLMError                       the chat model; what it was asked for is tried again later
    │   ├── LLMUnavailable             it cannot be called, or did not answer in time
    │   ├── LLMRejected                its answer was cut off, unreadable or not what was asked for
    │   └── LLMOverBudget              the team's tokens of the day are used up, or the breaker is open
    ├── AlreadyRunning                 another worker does the same at this moment
    └── ConfigError                    a setting contradicts the store or makes no sense

Each message names what was wrong and what to do about it.
"""

from typing import Any


class MemstoreError(Exception):
    """Base of everything memstore raises on purpose."""


class InvalidInput(MemstoreError, ValueError):
    """The caller passed something that cannot be accepted; nothing was stored."""


class InvalidScope(InvalidInput):
    """A scope without team or user, or with an id that cannot be one."""


class InvalidSessionKey(InvalidInput):
    """A session key that is not ``agent:channel:chat_id`` or a bare chat id."""


class InvalidText(InvalidInput):
    """Text or content that cannot be stored and given back unchanged."""


class InvalidTime(InvalidInput):
    """A value that names no instant."""


class NotFound(MemstoreError, LookupError):
    """No such row for this asker. Missing and foreign ids read the same, so that ids leak nothing."""


class NotPermitted(MemstoreError):
    """The asker may read the row but not do this to it."""


class StoreError(MemstoreError):
    """Something about the database file."""


class StoreMissing(StoreError):
    """The database file is missing while its fallback folder holds messages."""


class StoreExists(StoreError):
    """A file is in the way; it is never written over."""


class StoreUnsound(StoreError):
    """The file is not a memstore database, or it is damaged. It is left untouched."""


class StoreTooNew(StoreError):
    """The file was written by a newer memstore. It is left untouched."""


class StoreBusy(StoreError):
    """Another process held the write lock past the timeout. Retrying later is safe."""


class StoreFull(StoreError):
    """The disk or a quota is full. Free some space, then retry."""


class BackupUnsound(StoreError):
    """A backup is damaged, cut short, or none of a memstore store; or a fresh one did not read back as it was."""


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written by this user."""


class StoreIO(StoreError):
    """The operating system refused a read or a write."""


class StoreClosed(StoreError):
    """The store was closed, or belongs to the parent of this forked process."""


class StoreLimit(StoreError):
    """A number that keys rows ran out (teams, users of a team, rows of a user)."""


class EngineTooOld(StoreError):
    """SQLite or sqlite-vec is below the floor, or cannot be loaded."""


class FallbackError(MemstoreError):
    """The daily JSONL fallback could not be written."""


class ImportStopped(MemstoreError):
    """The store could not take the rest of an import. What was read before is kept; the same import, run again, goes
    on from there.

    :param report: the :class:`memstore.types.ImportReport` of what was done until then.
    """

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report


class LinesLeft(FallbackError):
    """A write of the fallback failed and could not be taken back: its lines may be taken up later all the same."""


class EmbeddingError(MemstoreError):
    """Something about the embedder."""


class EmbedderUnavailable(EmbeddingError):
    """The model cannot be loaded or called here. Text search goes on without it."""


class EmbeddingRejected(EmbeddingError):
    """The embedder returned something that is no set of vectors of its declared width."""


class EmbedderMismatch(EmbeddingError):
    """The store's vectors were made by another model than the embedder passed."""


class LLMError(MemstoreError):
    """Something about the chat model. What it was asked for stays pending and is tried again.

    :param usage: the :class:`memstore.llm.Usage` that was paid for all the same, as the server reports it; None where
        nothing came back.
    :param calls: of the model that it took.
    """

    def __init__(self, message: str, *, usage: Any = None, calls: int = 1) -> None:
        super().__init__(message)
        self.usage = usage
        self.calls = calls


class LLMUnavailable(LLMError):
    """The model cannot be called, or did not answer in time."""


class LLMRejected(LLMError):
    """The model's answer was cut off, unreadable, or not what it was asked for. Nothing was changed by it."""


class LLMOverBudget(LLMError):
    """The model was not asked: the team's tokens of the day are used up, or it failed too often lately.

    :param until: when it may be asked again, in microseconds since 1970.
    """

    def __init__(self, message: str, until: int) -> None:
        super().__init__(message)
        self.until = until


class AlreadyRunning(MemstoreError):
    """Another worker does the same work at this moment; its result counts."""


class ConfigError(MemstoreError, ValueError):
    """A setting that contradicts the store or makes no sense."""
