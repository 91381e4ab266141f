"""Settings, and the only place where the environment is read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal
from zoneinfo import available_timezones

from memstore.errors import ConfigError

Durability = Literal["disk", "process"]

BUSY_TIMEOUT_S = 5.0
MAINTENANCE_BUSY_TIMEOUT_S = 30.0
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
    }
)
"""What the command line reads from the environment where an option is not given."""


def from_environment(option: str) -> str | None:
    """The value of a command-line option's environment variable, None where unset or empty."""
    return os.environ.get(ENVIRONMENT[option]) or None


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
    :param durability: ``disk``: an acknowledged call survives power loss. ``process``: it survives the death of
        the process only.
    :param candidate_factor: each leg of a recall brings ``candidate_factor × limit`` candidates.
    :param rrf_k: the constant of reciprocal rank fusion.
    :param leg_weights: factor of each leg's fusion terms.
    :param busy_timeout_s: how long to wait for another process' write lock.
    """

    timezone: str | None = None
    durability: Durability = "disk"
    candidate_factor: int = 3
    rrf_k: int = 60
    leg_weights: Mapping[str, float] = field(default_factory=lambda: {"text": 1.0, "vector": 1.0})
    busy_timeout_s: float = BUSY_TIMEOUT_S

    def __post_init__(self) -> None:
        if self.durability not in ("disk", "process"):
            raise ConfigError(f"durability must be 'disk' or 'process', not {self.durability!r}")
        if not isinstance(self.candidate_factor, int) or self.candidate_factor < 1:
            raise ConfigError(
                f"candidate_factor must be a whole number from 1, not {self.candidate_factor!r}"
            )
        if not isinstance(self.rrf_k, int) or self.rrf_k < 0:
            raise ConfigError(f"rrf_k must be a whole number from 0, not {self.rrf_k!r}")
        unknown = set(self.leg_weights) - {"text", "vector"}
        if unknown:
            raise ConfigError(
                f"leg_weights names unknown legs {sorted(unknown)}; the legs are 'text' and 'vector'"
            )
        if any(not isinstance(w, int | float) or w < 0 for w in self.leg_weights.values()):
            raise ConfigError("leg_weights must not be negative")
        if not self.busy_timeout_s > 0:
            raise ConfigError("busy_timeout_s must be positive")

    def leg_weight(self, leg: str) -> float:
        """The weight of a leg; 1.0 where the mapping does not name it."""
        return float(self.leg_weights.get(leg, 1.0))
