"""What the tests share: stores in temporary folders, with a clock that stands still."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from memstore import MemoryStore, Message, Scope, Settings
from memstore.testing import ManualClock

settings.register_profile(
    "memstore",
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="MEMSTORE_TEST_RANDOM" not in os.environ,
)
settings.load_profile("memstore")

FAST = Settings(durability="process", timezone="UTC", reserve_bytes=0)
"""Survives the death of the process: enough where durability is not the subject."""

OpenStore = Callable[..., MemoryStore]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(tmp_path: Path, clock: ManualClock) -> Iterator[OpenStore]:
    """Opens stores in the test's folder, and closes them at its end."""
    with ExitStack() as stack:

        def opened(name: str = "memory.db", **options: Any) -> MemoryStore:
            options = {"clock": clock, "settings": FAST, **options}
            return stack.enter_context(MemoryStore(tmp_path / name, **options))

        yield opened


@pytest.fixture
def store(open_store: OpenStore) -> MemoryStore:
    """A store without an embedder."""
    return open_store()


@pytest.fixture
def ana() -> Scope:
    """The first writer of most tests, hence the admin of team ``acme``."""
    return Scope("acme", "ana", "helper")


@contextmanager
def fresh_store(**options: Any) -> Iterator[MemoryStore]:
    """A store for one example of a property test."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"clock": ManualClock(), "settings": FAST, **options}
        with MemoryStore(Path(folder) / "memory.db", **options) as made:
            yield made


def said(*texts: str, role: str = "user") -> list[Message]:
    """Messages without ids."""
    return [Message(role, text) for text in texts]


def contents(answer: Any) -> list[str]:
    """The texts of hits, memories or messages, in their order."""
    return [item.text if hasattr(item, "text") else item.content for item in answer]


def leave_team(store: MemoryStore, scope: Scope) -> None:
    """End a membership; there is no verb for it yet."""
    with store._storage.write() as tx:
        tx._run(
            "UPDATE members SET left_at = 1 WHERE team_id = ? AND user_id = ?", (scope.team_id, scope.user_id)
        )
        assert tx._connection.changes() == 1
