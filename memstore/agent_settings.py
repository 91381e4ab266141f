"""Settings of an agent: they live in the store, one set a team, user and agent (SPEC W12)."""

import math
from dataclasses import dataclass, fields
from typing import Any

from memstore.errors import ConfigError

MAX_WHOLE = 1_000_000
MAX_SECONDS = 366 * 86_400.0
MAX_SCENES = 15


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How an agent's conversations are worked on; the defaults are SPEC's.

    :param rounds: conversation rounds after which memories are extracted. :param warm_up: the same for the first runs
        of a session. :param idle_s: quiet seconds after which they are extracted anyway.
    :param background_messages: earlier messages that an extraction reads without extracting from them.
    :param window_messages: new messages that one extraction takes; ``window_chars`` likewise.
    :param neighbours: memories that each new one is compared with.
    :param scene_delay_s: from an extraction to the scenes; ``scene_min_interval_s`` and ``scene_max_interval_s`` between
        two runs for a session; ``scene_active_s``: sessions quiet for longer are left alone.
    :param scenes: how many there may be, 15 at most; ``scene_chars`` of each.
    :param profile_memories: new memories after which profiles are written; ``profile_interval_s``: the same after so
        long with activity. :param profile_chars: of a profile.
    :param lock_timeout_s: how long a turn may hold its session.
    :param model: another model than the store's, at the same server.
    :param window_tokens: of the model's context.
    """

    rounds: int = 5
    warm_up: tuple[int, ...] = (1, 2, 4)
    idle_s: float = 600.0
    background_messages: int = 6
    window_messages: int = 40
    window_chars: int = 24_000
    neighbours: int = 5
    scene_delay_s: float = 10.0
    scene_min_interval_s: float = 900.0
    scene_max_interval_s: float = 3_600.0
    scene_active_s: float = 86_400.0
    scenes: int = MAX_SCENES
    scene_chars: int = 2_000
    profile_memories: int = 50
    profile_interval_s: float = 7_200.0
    profile_chars: int = 4_000
    lock_timeout_s: float = 120.0
    model: str | None = None
    window_tokens: int = 200_000

    def __post_init__(self) -> None:
        """:raises ConfigError: naming the setting that makes no sense."""
        if isinstance(self.warm_up, list):  # as JSON gives it
            object.__setattr__(self, "warm_up", tuple(self.warm_up))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "model":
                if value is not None and (not isinstance(value, str) or not value.strip()):
                    raise ConfigError(f"model must be a model's name or None, not {value!r:.60}")
            elif field.name == "warm_up":
                self._check_warm_up(value)
            elif field.name.endswith("_s"):
                _check_seconds(field.name, value)
            else:
                least = 0 if field.name == "background_messages" else 1
                _check_whole(field.name, value, least, MAX_SCENES if field.name == "scenes" else MAX_WHOLE)
        if self.scene_max_interval_s < self.scene_min_interval_s:
            raise ConfigError("scene_max_interval_s must not be less than scene_min_interval_s")

    @staticmethod
    def _check_warm_up(value: Any) -> None:
        if not isinstance(value, tuple):
            raise ConfigError(f"warm_up must be a list of whole numbers, not {value!r:.60}")
        for rounds in value:
            _check_whole("warm_up", rounds, 1)

    def rounds_for(self, runs: int) -> int:
        """How many rounds the next extraction of a session waits for, after so many."""
        return self.warm_up[runs] if runs < len(self.warm_up) else self.rounds


NAMES = tuple(field.name for field in fields(AgentSettings))


def _check_whole(name: str, value: Any, least: int, most: int = MAX_WHOLE) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} must be a whole number from {least} to {most}, not {value!r:.60}")


def _check_seconds(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or not 0 <= value <= MAX_SECONDS:
        raise ConfigError(f"{name} must be seconds from 0 to {MAX_SECONDS:.0f}, not {value!r:.60}")
