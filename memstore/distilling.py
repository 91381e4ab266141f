"""What a store makes of its conversations: the verbs around the pipelines."""

from memstore.asking import Instant
from memstore.clock import Clock
from memstore.config import Settings
from memstore.llm import LLM
from memstore.pipelines.work import Pipelines
from memstore.storage.sqlite import SqliteStorage
from memstore.tokenizers import Tokenizers


class Distilling:
    """The part of :class:`memstore.store.MemoryStore` that concerns memories made from conversations: the worker and its
    jobs, verdicts, scenes, profiles, settings of agents, quarantine. The store itself makes what is declared here."""

    settings: Settings
    _storage: SqliteStorage
    _clock: Clock
    _tokenizers: Tokenizers
    _llm: LLM | None
    _pipelines: Pipelines
    _instant: Instant

    # --- the worker (worker.py) --------------------------------------------------------------------------------

    # --- memories and verdicts (pipelines/extraction.py, verdicts.py) --------------------------------------------

    # --- scenes and profiles (pipelines/scenes.py, profiles.py) ----------------------------------------------------

    # --- settings of agents, cost, quarantine ------------------------------------------------------------------------
