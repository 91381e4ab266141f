"""What is asked: a caller's words and options, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memstore.access import Operation
from memstore.errors import InvalidInput
from memstore.types import Layer

MAX_TIMEOUT_S = 86_400


@dataclass(frozen=True, slots=True)
class Question:
    """What a caller asked for, as it was passed. See :meth:`memstore.store.MemoryStore.recall`."""

    query: str
    layer: Layer
    limit: int = 5
    kinds: Sequence[str] | None = None
    roles: Sequence[str] | None = None
    since: object = None
    until: object = None
    as_of: object = None
    known_at: object = None
    session: str | None = None
    metadata: Mapping[str, Any] | None = None
    include_history: bool = False
    live_only: bool = False
    explain: bool = False
    trace: bool = False
    timeout_s: float = 5.0
    own_only: bool = False
    """Only the asker's private rows, none that others shared: for what a pipeline may replace."""

    @property
    def operation(self) -> Operation:
        """What the access rules know it as."""
        return "search" if self.layer == "messages" else "recall"

    @property
    def history(self) -> bool:
        """Whether rows that are no longer current may come back."""
        return self.include_history or (self.as_of, self.known_at) != (None, None)

    def check(self) -> None:
        """:raises InvalidInput: naming what was wrong."""
        if not isinstance(self.query, str):
            raise InvalidInput(f"a query is text, not {type(self.query).__name__}")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float):
            raise InvalidInput(f"timeout_s must be a number of seconds, not {self.timeout_s!r}")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise InvalidInput(f"timeout_s must be more than 0 and at most {MAX_TIMEOUT_S} seconds")
