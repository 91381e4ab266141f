"""Settings, and the only place where the environment is read."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zoneinfo import available_timezones

from memstore.errors import ConfigError

Durability = Literal["disk", "process"]

BUSY_TIMEOUT_S = 5.0
MAINTENANCE_BUSY_TIMEOUT_S = 30.0
MAX_BUSY_TIMEOUT_S = 86_400
MAX_WHOLE_SETTING = 1_000_000
RESERVE_BYTES = 4 * 2**20
MAX_RESERVE_BYTES = 2**40
MAX_DAILY_TOKENS = 2**52
MAX_LIMIT = 10_000
"""No page or recall is larger; a larger ``limit`` is cut to this."""

ENVIRONMENT = MappingProxyType(
    {
        "db": "MEMSTORE_DB",
        "team": "MEMSTORE_TEAM",
        "user": "MEMSTORE_USER",
        "agent": "MEMSTORE_AGENT",
        "task": "MEMSTORE_TASK",
        "embedder": "MEMSTORE_EMBEDDER",
        "language": "MEMSTORE_LANGUAGE",
        "network_file_system": "MEMSTORE_NETWORK_FILE_SYSTEM",
        "embeddings_url": "MEMSTORE_EMBEDDINGS_URL",
        "embeddings_key": "MEMSTORE_EMBEDDINGS_KEY",
        "embeddings_dimensions": "MEMSTORE_EMBEDDINGS_DIMENSIONS",
        "embeddings_query_prefix": "MEMSTORE_EMBEDDINGS_QUERY_PREFIX",
        "embeddings_document_prefix": "MEMSTORE_EMBEDDINGS_DOCUMENT_PREFIX",
        "llm": "MEMSTORE_LLM",
        "llm_url": "MEMSTORE_LLM_URL",
        "llm_key": "MEMSTORE_LLM_KEY",
        "daily_tokens": "MEMSTORE_DAILY_TOKENS",
    }
)
"""What is read from the environment: by the command line where an option is not given, and the ``embeddings_``
and ``llm_`` ones wherever an embedder or a chat model is named ``openai:<model>``."""


def from_environment(option: str) -> str | None:
    """The value of a command-line option's environment variable, None where unset or empty."""
    return os.environ.get(ENVIRONMENT[option]) or None


def network_file_system_allowed() -> bool:
    """Whether the environment allows stores on network file systems.

    :raises ConfigError: when it says neither yes nor no.
    """
    value = (from_environment("network_file_system") or "0").lower()
    if value in ("1", "true", "yes"):
        return True
    if value in ("0", "false", "no"):
        return False
    raise ConfigError(f"{ENVIRONMENT['network_file_system']} must be 1 or 0, not {value!r:.40}")


def daily_tokens_allowed() -> int | None:
    """The environment's budget of chat models' tokens for a team and day; None where it names none.

    :raises ConfigError: when it is no whole number.
    """
    value = from_environment("daily_tokens")
    if value is None:
        return None
    if not value.isdecimal():
        raise ConfigError(
            f"{ENVIRONMENT['daily_tokens']} must be a whole number of tokens, not {value!r:.40}"
        )
    return int(value)


def embeddings_server() -> dict[str, Any]:
    """The arguments of an ``openai:`` embedder, besides the model: ``base_url``, ``api_key``, ``dimensions`` and the
    prefixes.

    :raises ConfigError: without a URL, or when the dimensions are no number.
    """
    url = from_environment("embeddings_url")
    if url is None:
        raise ConfigError(
            f"an embedder 'openai:<model>' needs to know its server: set {ENVIRONMENT['embeddings_url']}, "
            "such as https://api.openai.com/v1"
        )
    dimensions = from_environment("embeddings_dimensions")
    if dimensions is not None and not (dimensions.isascii() and dimensions.isdigit()):
        raise ConfigError(
            f"{ENVIRONMENT['embeddings_dimensions']} must be a whole number, not {dimensions!r:.40}"
        )
    return {
        "base_url": url,
        "api_key": from_environment("embeddings_key"),
        "dimensions": None if dimensions is None else int(dimensions),
        "query_prefix": from_environment("embeddings_query_prefix") or "",
        "document_prefix": from_environment("embeddings_document_prefix") or "",
    }


def chat_server(base_url: str | None = None) -> dict[str, Any]:
    """The arguments of an ``openai:`` chat model, besides the model: ``base_url``, unless it is given, and ``api_key``.

    :raises ConfigError: without a URL.
    """
    url = base_url or from_environment("llm_url")
    if url is None:
        raise ConfigError(
            f"a chat model 'openai:<model>' needs to know its server: set {ENVIRONMENT['llm_url']}, such as "
            "https://api.openai.com/v1, or name it as 'openai:<model>@<base url>'"
        )
    return {"base_url": url, "api_key": from_environment("llm_key")}


def sqlite_temporary_folder() -> Path:
    """Where SQLite puts a vacuum's copy: the first of these that is a folder it can write to."""
    named = [os.environ.get(name, "") for name in ("SQLITE_TMPDIR", "TMPDIR")]
    candidates = [*(Path(name) for name in named if name), *map(Path, ("/var/tmp", "/usr/tmp", "/tmp"))]  # noqa: S108 - SQLite's own
    usable = (path for path in candidates if path.is_dir() and os.access(path, os.W_OK | os.X_OK))
    return next(usable, Path())


def machine_zone_name() -> str:
    """The machine's IANA zone, ``UTC`` where it cannot be told (a bare offset has no daylight-saving rule)."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    link = Path("/etc/localtime")
    if link.is_symlink():
        candidates.append(str(link.resolve()).rpartition("zoneinfo/")[2])
    timezone_file = Path("/etc/timezone")
    if timezone_file.is_file():
        candidates.append(timezone_file.read_text(encoding="utf-8", errors="replace").strip())
    known = available_timezones()
    return next((name for name in candidates if name in known), "UTC")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one opened store behaves.

    :param timezone: IANA name of the store's zone. Fixed when the store is made; None takes the store's own,
        for a new store the machine's. Naming another one for an existing store is an error.
    :param fold_variants: whether traditional and simplified Chinese characters find each other (needs the extra
        ``zh``). None takes the store's own, for a new store False. An existing store is changed by
        ``MemoryStore.reindex(fold_variants=…)``; contradicting it here is an error.
    :param durability: ``disk``: an acknowledged call survives power loss. ``process``: it survives the death of
        the process only.
    :param candidate_factor: each leg of a recall brings ``candidate_factor × limit`` candidates.
    :param rrf_k: the constant of reciprocal rank fusion.
    :param leg_weights: factor of each leg's fusion terms.
    :param stop_words: leave words without meaning of their own (the, what, 的, 什么) out of what the text leg looks
        for, as long as others remain. Literal matches of the whole query are not concerned.
    :param sentences: a query of several sentences is also asked by each of them, the last so many at most. Each costs
        a call of the model and a search. 0: only as a whole.
    :param full_coverage: the part of the query's words that the best text row must hold for the text leg to count
        fully; below it the leg's weight falls in proportion. 0: it always counts fully.
    :param neighbour_weights: how much the score of a message gains from the turn before and after it, for each leg.
        Without an entry a leg looks at each message alone.
    :param neighbour_gap_s: turns further apart in time are no neighbours.
    :param pool_factor: ``pool_factor × candidates`` of a leg are looked at with their neighbours.
    :param recency_half_life_s: late factor: a hit this old counts half. None: age does not count.
    :param priority_weight: late factor: a memory of priority 100 counts ``1 + priority_weight`` times as much as
        one of priority 0.
    :param collapse_similarity: late factor: of hits whose words overlap at least this much (Jaccard, 0 to 1) only
        the best is returned. None: all are.
    :param source_share: late factor: of what is returned at most this part (above 0, to 1) comes from one source while
        there are others: of memories a session, or whoever made them where there is none; of messages a speaker. One
        always may. None: no limit.
    :param floors: for each leg the least score of a row; below it the leg does not bring it. None: those that a
        calibration stored for the model, if any. Larger is nearer: BM25 and cosine.
    :param busy_timeout_s: how long to wait for another process' write lock.
    :param reserve_bytes: size of the file beside the database that is freed when the disk is full and something is to
        be deleted. 0: none.
    :param network_file_system: open a store even on a network file system. Rows can be lost there when more than one
        process has it open.
    :param idle_checkpoint_s: after so long without a write the write-ahead log is emptied into the file. None: only
        when the store is closed, by :meth:`MemoryStore.checkpoint`, and when the log grew beyond 64 MiB.
    :param lease_s: for so long a worker holds a job before it has to say that it is still at it; the job of one that died
        is taken over after that.
    :param nightly_backup_hour: hour of the day, in the store's zone, from which on a worker makes the day's backup. None:
        it makes none. :param backup_keep: so many backups in the default folder stay then.
    :param daily_tokens: so many tokens of chat models, asked and answered, may the background work of a team use on one
        day of the store's zone; then it waits for the next. None: no limit.
    """

    timezone: str | None = None
    fold_variants: bool | None = None
    durability: Durability = "disk"
    candidate_factor: int = 3
    rrf_k: int = 60
    leg_weights: Mapping[str, float] = field(default_factory=lambda: {"text": 1.0, "vector": 1.0})
    stop_words: bool = True
    sentences: int = 6
    full_coverage: float = 0.5
    neighbour_weights: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"text": (0.6, 0.2), "vector": (0.5, 0.2)}
    )
    neighbour_gap_s: float = 600.0
    pool_factor: int = 4
    recency_half_life_s: float | None = None
    priority_weight: float = 0.0
    collapse_similarity: float | None = None
    source_share: float | None = None
    floors: Mapping[str, float] | None = None
    busy_timeout_s: float = BUSY_TIMEOUT_S
    reserve_bytes: int = RESERVE_BYTES
    network_file_system: bool = False
    idle_checkpoint_s: float | None = 5.0
    lease_s: float = 300.0
    nightly_backup_hour: int | None = 3
    backup_keep: int = 7
    daily_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.fold_variants is not None and not isinstance(self.fold_variants, bool):
            raise ConfigError(f"fold_variants must be True, False or None, not {self.fold_variants!r}")
        if self.durability not in ("disk", "process"):
            raise ConfigError(f"durability must be 'disk' or 'process', not {self.durability!r}")
        if not is_number(self.busy_timeout_s, least=1e-9, most=MAX_BUSY_TIMEOUT_S):
            raise ConfigError(f"busy_timeout_s must be positive and at most {MAX_BUSY_TIMEOUT_S}")
        if self.idle_checkpoint_s is not None and not is_number(
            self.idle_checkpoint_s, least=1e-9, most=MAX_BUSY_TIMEOUT_S
        ):
            raise ConfigError(
                f"idle_checkpoint_s must be positive and at most {MAX_BUSY_TIMEOUT_S}, or None, not {_shown(self.idle_checkpoint_s)}"
            )
        for name in ("stop_words", "network_file_system"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, not {getattr(self, name)!r:.60}")
        _check_whole("reserve_bytes", self.reserve_bytes, least=0, most=MAX_RESERVE_BYTES)
        if self.daily_tokens is not None:
            _check_whole("daily_tokens", self.daily_tokens, least=0, most=MAX_DAILY_TOKENS)
        self._check_legs()
        self._check_late_factors()
        self._check_worker()

    def _check_worker(self) -> None:
        _check_number("lease_s", self.lease_s, least=1.0, most=MAX_BUSY_TIMEOUT_S)
        if self.nightly_backup_hour is not None:
            _check_whole("nightly_backup_hour", self.nightly_backup_hour, least=0, most=23)
        _check_whole("backup_keep", self.backup_keep, least=1)

    def _check_legs(self) -> None:
        _check_whole("candidate_factor", self.candidate_factor, least=1)
        _check_whole("rrf_k", self.rrf_k, least=0)
        _check_whole("pool_factor", self.pool_factor, least=1)
        _check_whole("sentences", self.sentences, least=0)
        _check_number("full_coverage", self.full_coverage, most=1.0)
        _check_number("neighbour_gap_s", self.neighbour_gap_s)
        for weight in _by_leg("leg_weights", self.leg_weights):
            _check_number("leg_weights", weight)
        for pair in _by_leg("neighbour_weights", self.neighbour_weights):
            if not isinstance(pair, tuple | list) or len(pair) != len(("before", "after")):
                raise ConfigError(f"neighbour_weights are pairs (before, after), not {_shown(pair)}")
            for weight in pair:
                _check_number("neighbour_weights", weight)
        for floor in _by_leg("floors", {} if self.floors is None else self.floors):
            _check_number("floors", floor, least=-math.inf)

    def _check_late_factors(self) -> None:
        _check_number("priority_weight", self.priority_weight)
        if self.collapse_similarity is not None:
            _check_number("collapse_similarity", self.collapse_similarity, most=1.0)
        if self.source_share is not None and not is_number(self.source_share, least=1e-9, most=1.0):
            raise ConfigError(
                f"source_share must be above 0 and at most 1, or None, not {_shown(self.source_share)}"
            )
        half_life = self.recency_half_life_s
        if half_life is not None and not is_number(half_life, least=1e-9):
            raise ConfigError(f"recency_half_life_s must be positive or None, not {_shown(half_life)}")

    def leg_weight(self, leg: str) -> float:
        """The weight of a leg; 1.0 where the mapping does not name it."""
        return float(self.leg_weights.get(leg, 1.0))


def _check_whole(name: str, value: object, *, least: int, most: int = MAX_WHOLE_SETTING) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, not {_shown(value)}")


def is_number(value: object, *, least: float = 0.0, most: float = math.inf) -> bool:
    """Whether a value is a finite number within bounds; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and least <= value <= most
    except OverflowError:  # a whole number that no float holds
        return False


def _shown(value: object) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number of thousands of digits"


def _check_number(name: str, value: object, *, least: float = 0.0, most: float = math.inf) -> None:
    if not is_number(value, least=least, most=most):
        bounds = (
            "" if least == -math.inf else f" from {least:g}" + (f" to {most:g}" if most < math.inf else "")
        )
        raise ConfigError(f"{name} must be a number{bounds}, not {_shown(value)}")


def _by_leg(name: str, value: object) -> Iterable[object]:
    """The values of a mapping with an entry a leg."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a mapping with an entry a leg, not {type(value).__name__}")
    unknown = [leg for leg in value if leg not in ("text", "vector")]
    if unknown:
        raise ConfigError(f"{name} names unknown legs {unknown!r:.60}; the legs are 'text' and 'vector'")
    return value.values()
