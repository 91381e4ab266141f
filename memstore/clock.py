"""The one source of time. Tests pass :class:`memstore.testing.ManualClock`."""

import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations and deadlines."""

    def now(self) -> datetime:
        """The current instant, timezone-aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
