"""memstore: a SQLite-backed hybrid-retrieval memory store for AI agents.

Names are loaded at first use, so that ``import memstore`` and the command line's help stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstore.clock import Clock, SystemClock
    from memstore.config import Settings
    from memstore.embedding import Embedder, EmbedderIdentity
    from memstore.errors import (
        ConfigError,
        EmbedderMismatch,
        EmbedderUnavailable,
        EmbeddingError,
        EmbeddingRejected,
        FallbackError,
        InvalidInput,
        InvalidScope,
        InvalidSessionKey,
        InvalidText,
        InvalidTime,
        MemstoreError,
        NotFound,
        NotPermitted,
        StoreError,
    )
    from memstore.store import MemoryStore, ScopedStore
    from memstore.types import (
        Degraded,
        DoctorReport,
        Explanation,
        Finding,
        Hit,
        ImportReport,
        IndexReport,
        LegReport,
        Memory,
        Message,
        Page,
        Recall,
        Receipt,
        RecoverReport,
        Scope,
        SessionRecord,
        SkippedLine,
        StoredMessage,
    )

__version__ = "0.1.0"

_HOMES = {
    "memstore.clock": ("Clock", "SystemClock"),
    "memstore.config": ("Settings",),
    "memstore.embedding": ("Embedder", "EmbedderIdentity"),
    "memstore.errors": (
        "ConfigError", "EmbedderMismatch", "EmbedderUnavailable", "EmbeddingError", "EmbeddingRejected",
        "FallbackError", "InvalidInput", "InvalidScope", "InvalidSessionKey", "InvalidText", "InvalidTime",
        "MemstoreError", "NotFound", "NotPermitted", "StoreError",
    ),
    "memstore.store": ("MemoryStore", "ScopedStore"),
    "memstore.types": (
        "Degraded", "DoctorReport", "Explanation", "Finding", "Hit", "ImportReport", "IndexReport", "LegReport",
        "Memory", "Message", "Page", "Recall", "Receipt", "RecoverReport", "Scope", "SessionRecord", "SkippedLine",
        "StoredMessage",
    ),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Clock", "ConfigError", "Degraded", "DoctorReport", "Embedder", "EmbedderIdentity", "EmbedderMismatch",
    "EmbedderUnavailable", "EmbeddingError", "EmbeddingRejected", "Explanation", "FallbackError", "Finding", "Hit",
    "ImportReport", "IndexReport", "InvalidInput", "InvalidScope", "InvalidSessionKey", "InvalidText",
    "InvalidTime", "LegReport", "Memory", "MemoryStore", "MemstoreError", "Message", "NotFound", "NotPermitted",
    "Page", "Recall", "Receipt", "RecoverReport", "Scope", "ScopedStore", "SessionRecord", "Settings",
    "SkippedLine", "StoreError", "StoredMessage", "SystemClock",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'memstore' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
