"""memstore: a SQLite-backed hybrid-retrieval memory store for AI agents.

Names are loaded at first use, so that ``import memstore`` and the command line's help stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstore.agent_settings import AgentSettings
    from memstore.clock import Clock, SystemClock
    from memstore.config import Settings
    from memstore.embedding import Embedder, EmbedderIdentity
    from memstore.errors import (
        AlreadyRunning,
        ConfigError,
        EmbedderMismatch,
        EmbedderUnavailable,
        EmbeddingError,
        EmbeddingRejected,
        FallbackError,
        ImportStopped,
        InvalidInput,
        InvalidScope,
        InvalidSessionKey,
        InvalidText,
        InvalidTime,
        LLMError,
        LLMOverBudget,
        LLMRejected,
        LLMUnavailable,
        MemstoreError,
        NotFound,
        NotPermitted,
        StoreError,
    )
    from memstore.llm import LLM, LLMReply, LLMRequest, Usage
    from memstore.llms.openai import OpenAIChat
    from memstore.store import MemoryStore, ScopedStore
    from memstore.types import (
        BackupRecord,
        BackupReport,
        CandidateReport,
        Change,
        Checkpoint,
        Degraded,
        DictionaryReport,
        DictionaryWord,
        Difference,
        DoctorReport,
        Explanation,
        ExtractReport,
        FallbackDay,
        Finding,
        GenerationRecord,
        Hit,
        ImportReport,
        IndexReport,
        JobRecord,
        KeptDay,
        LegReport,
        LegSummary,
        Memory,
        Message,
        Page,
        ProfileRecord,
        PruneReport,
        Reason,
        Recall,
        RecallExplanation,
        RecallTrace,
        Receipt,
        RecoverReport,
        Replay,
        RestoreReport,
        SceneRecord,
        Scope,
        SessionRecord,
        SkippedLine,
        SpaceReport,
        StoredMessage,
        UsageRecord,
        VerdictRecord,
        WhyNot,
        WorkReport,
    )

__version__ = "0.1.0"

_HOMES = {
    "memstore.agent_settings": (
        "AgentSettings",
    ),
    "memstore.clock": (
        "Clock", "SystemClock",
    ),
    "memstore.config": (
        "Settings",
    ),
    "memstore.embedding": (
        "Embedder", "EmbedderIdentity",
    ),
    "memstore.errors": (
        "AlreadyRunning", "ConfigError", "EmbedderMismatch", "EmbedderUnavailable", "EmbeddingError",
        "EmbeddingRejected", "FallbackError", "ImportStopped", "InvalidInput", "InvalidScope",
        "InvalidSessionKey", "InvalidText", "InvalidTime", "LLMError", "LLMOverBudget", "LLMRejected",
        "LLMUnavailable", "MemstoreError", "NotFound", "NotPermitted", "StoreError",
    ),
    "memstore.llm": (
        "LLM", "LLMReply", "LLMRequest", "Usage",
    ),
    "memstore.llms.openai": (
        "OpenAIChat",
    ),
    "memstore.store": (
        "MemoryStore", "ScopedStore",
    ),
    "memstore.types": (
        "BackupRecord", "BackupReport", "CandidateReport", "Change", "Checkpoint", "Degraded",
        "DictionaryReport", "DictionaryWord", "Difference", "DoctorReport", "Explanation", "ExtractReport",
        "FallbackDay", "Finding", "GenerationRecord", "Hit", "ImportReport", "IndexReport", "JobRecord",
        "KeptDay", "LegReport", "LegSummary", "Memory", "Message", "Page", "ProfileRecord", "PruneReport",
        "Reason", "Recall", "RecallExplanation", "RecallTrace", "Receipt", "RecoverReport", "Replay",
        "RestoreReport", "SceneRecord", "Scope", "SessionRecord", "SkippedLine", "SpaceReport",
        "StoredMessage", "UsageRecord", "VerdictRecord", "WhyNot", "WorkReport",
    ),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LLM",
    "AgentSettings",
    "AlreadyRunning",
    "BackupRecord",
    "BackupReport",
    "CandidateReport",
    "Change",
    "Checkpoint",
    "Clock",
    "ConfigError",
    "Degraded",
    "DictionaryReport",
    "DictionaryWord",
    "Difference",
    "DoctorReport",
    "Embedder",
    "EmbedderIdentity",
    "EmbedderMismatch",
    "EmbedderUnavailable",
    "EmbeddingError",
    "EmbeddingRejected",
    "Explanation",
    "ExtractReport",
    "FallbackDay",
    "FallbackError",
    "Finding",
    "GenerationRecord",
    "Hit",
    "ImportReport",
    "ImportStopped",
    "IndexReport",
    "InvalidInput",
    "InvalidScope",
    "InvalidSessionKey",
    "InvalidText",
    "InvalidTime",
    "JobRecord",
    "KeptDay",
    "LLMError",
    "LLMOverBudget",
    "LLMRejected",
    "LLMReply",
    "LLMRequest",
    "LLMUnavailable",
    "LegReport",
    "LegSummary",
    "Memory",
    "MemoryStore",
    "MemstoreError",
    "Message",
    "NotFound",
    "NotPermitted",
    "OpenAIChat",
    "Page",
    "ProfileRecord",
    "PruneReport",
    "Reason",
    "Recall",
    "RecallExplanation",
    "RecallTrace",
    "Receipt",
    "RecoverReport",
    "Replay",
    "RestoreReport",
    "SceneRecord",
    "Scope",
    "ScopedStore",
    "SessionRecord",
    "Settings",
    "SkippedLine",
    "SpaceReport",
    "StoreError",
    "StoredMessage",
    "SystemClock",
    "Usage",
    "UsageRecord",
    "VerdictRecord",
    "WhyNot",
    "WorkReport",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'memstore' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
