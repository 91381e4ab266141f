"""Power loss at a random moment, by the model of :mod:`memstore.power_loss`: R2 of the reliability goals.

A random history runs on a simulated disk, with checkpoints in it, and loses power inside its calls. At durability
``disk`` what is left holds exactly what was acknowledged, the call under way wholly or not at all; at ``process`` it may
have lost the end, and is never damaged. ``MEMSTORE_TEST_POWER=500`` runs so many seeds.
"""

# ruff: noqa: S311 - seeded chance

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults_support import Doubles, doubles, errors_in
from memstore.config import Settings
from memstore.store import MemoryStore
from memstore.testing import ManualClock
from memstore.types import Message
from reliability_support import DAY, SCOPE, SCOPES, START, History, dump

SEEDS = int(os.environ.get("MEMSTORE_TEST_POWER", "100"))  # N; the long form is 500
SHARDS = 10
STEPS = 10
LOSSES = 2  # a seed
CHECKPOINT_PAGES = 40
"""Small, so that checkpoints come inside calls."""


class Life(History):
    """Messages, sessions and memories on doubles; closed and opened now and then."""

    def __init__(self, opened: Callable[[], MemoryStore], clock: ManualClock, seed: int) -> None:
        super().__init__(opened(), clock, seed)
        self._opened = opened
        self._memories: list[tuple] = []

    def any_step(self) -> None:
        kind = self.rng.choice(("message",) * 6 + ("memory",) * 5 + ("day", "reopen"))
        if kind == "message":
            self.step()
        elif kind == "memory":
            self._memory()
        elif kind == "day":
            self.clock.advance(DAY)
        else:
            self.store.close()
            self.store = self._opened()

    def _memory(self) -> None:
        how = self.rng.choice(("add", "add", "update", "delete"))
        if how == "add" or not self._memories:
            scope = self.rng.choice(SCOPES)
            self._memories.append((scope, self.store.add(scope, f"memory {self.rng.random()}").id))
            return
        scope, memory_id = self._memories[self.rng.randrange(len(self._memories))]
        if how == "update":
            self.store.update(scope, memory_id, content=f"better {self.rng.random()}")
        else:
            self._memories.remove((scope, memory_id))
            self.store.delete(scope, memory_id)


def content(store: MemoryStore) -> dict[str, list]:
    """Every message, session and version of a memory."""
    with store._storage.read() as reader:
        memories = list(
            reader._connection.execute("SELECT * FROM v_memory_history ORDER BY team_id, id, version")
        )
    return {**dump(store), "memories": memories}


def opened_on(
    made: Doubles,
    path: Path,
    durability: str,
    clock: ManualClock | None = None,
    pages: int = CHECKPOINT_PAGES,
) -> MemoryStore:
    settings = Settings(
        timezone="UTC", durability=durability, busy_timeout_s=0.05, idle_checkpoint_s=None, reserve_bytes=0
    )
    store = MemoryStore(path, clock=clock or ManualClock(START), settings=settings, **made.options)
    with store._storage.exclusive_connection() as connection:
        connection.wal_autocheckpoint(pages)
    return store


@dataclass(frozen=True)
class Loss:
    """What was left on the disk, and how many steps were acknowledged when the power went."""

    folder: Path
    acknowledged: int
    seed: int


def live(
    folder: Path, template: Path, seed: int, durability: str
) -> tuple[list[dict[str, list]], list[Loss]]:
    """Play a history; its content after every step, and the losses on the way."""
    shutil.copytree(template, folder)
    rng = random.Random(f"{seed} {durability}")
    contents: list[dict[str, list]] = []
    losses: list[Loss] = []
    with doubles(folder) as made:
        clock = ManualClock(START)
        life = Life(lambda: opened_on(made, folder / "store.db", durability, clock), clock, seed)
        contents.append(content(life.store))
        due = [made.plan.total + rng.randrange(1, 150)]

        def lose(number: int) -> None:
            if number >= due[0] and len(losses) < LOSSES:
                due[0] = number + rng.randrange(1, 250)
                target = folder.with_name(f"{folder.name}-lost-{len(losses)}")
                made.disk.lose(rng.randrange(2**32), target)
                losses.append(Loss(target, len(contents) - 1, seed))

        for _ in range(STEPS):
            made.plan.before_each = lose
            life.any_step()
            made.plan.before_each = None
            contents.append(content(life.store))
        life.store.close()
    return contents, losses


def check_loss(loss: Loss, contents: list[dict[str, list]], durability: str) -> None:
    path = loss.folder / "store.db"
    with doubles() as made:
        with opened_on(made, path, durability) as store:
            found = content(store)
            (check_whole if durability == "disk" else check_undamaged)(found, contents, loss.acknowledged)
            assert errors_in(store) == []
            store.record(SCOPE, [Message("user", "after the loss")], "agent:chat:after")
            found = content(store)
        with opened_on(made, path, durability) as store:
            assert content(store) == found


def check_whole(found: dict[str, list], contents: list[dict[str, list]], acknowledged: int) -> None:
    """All that was acknowledged, and the call under way wholly or not at all."""
    before, after = contents[acknowledged], contents[min(acknowledged + 1, len(contents) - 1)]
    if found not in (before, after):
        raise AssertionError(f"not what was acknowledged:\n{differences(found, before)}")


def check_undamaged(found: dict[str, list], contents: list[dict[str, list]], acknowledged: int) -> None:
    """Nothing that was never there: every row is as it was at some time of the history."""
    for kind in ("messages", "memories"):
        ever = [row for one in contents for row in one[kind]]
        for row in found[kind]:
            assert row in ever, f"a row that never was: {row}"


def differences(found: dict[str, list], wanted: dict[str, list]) -> str:
    lines = []
    for kind, rows in wanted.items():
        lines += [f"lacks of {kind}: {row}" for row in rows if row not in found[kind]]
        lines += [f"has of {kind}: {row}" for row in found[kind] if row not in rows]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A new store with a first message, all on the disk."""
    folder = tmp_path_factory.mktemp("power") / "template"
    folder.mkdir()
    settings = Settings(timezone="UTC", durability="process")
    with MemoryStore(folder / "store.db", clock=ManualClock(START), settings=settings) as store:
        store.record(SCOPE, [Message("user", "before the losses")], "agent:chat:before")
    return folder


@pytest.mark.parametrize("durability", ["disk", "process"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_power_loss_in_a_random_history(tmp_path, template, shard, durability):
    checked, wrong = 0, []
    for seed in range(shard, SEEDS, SHARDS):
        contents, losses = live(tmp_path / str(seed), template, seed, durability)
        assert losses, f"seed {seed}: no loss"
        for loss in losses:
            checked += 1
            try:
                check_loss(loss, contents, durability)
            except Exception as error:  # noqa: BLE001 - collected, and raised together
                wrong.append(f"seed {seed}, {loss.folder.name}: {type(error).__name__}: {str(error)[:600]}")
        for folder in tmp_path.iterdir():
            if not wrong:
                shutil.rmtree(folder)
    assert not wrong, f"{len(wrong)} of {checked} losses:\n" + "\n".join(wrong)


# --- twice, and at the edges --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_power_loss_while_the_store_opens_after_a_power_loss(tmp_path, template, seed):
    """Healing is a write like others: interrupted at any of its operations it begins again."""
    contents, losses = live(tmp_path / "life", template, seed, "disk")
    for loss in losses:
        again = []
        with doubles(loss.folder) as made:

            def lose(number: int, loss: Loss = loss, made: Doubles = made, again: list = again) -> None:
                if number % 15 == seed:
                    target = loss.folder.with_name(f"{loss.folder.name}-{number}")
                    made.disk.lose(number, target)
                    again.append(Loss(target, loss.acknowledged, seed))

            made.plan.before_each = lose
            opened_on(made, loss.folder / "store.db", "disk").close()
            made.plan.before_each = None
        assert again
        for one in again:
            check_loss(one, contents, "disk")


@pytest.mark.parametrize("seed", range(10))
def test_a_day_file_that_was_begun_without_syncs_keeps_what_is_acknowledged_at_disk(tmp_path, template, seed):
    shutil.copytree(template, tmp_path / "life")
    path = tmp_path / "life" / "store.db"
    clock = ManualClock(START)
    clock.advance(DAY)
    with doubles(tmp_path / "life") as made:
        with opened_on(made, path, "process", clock) as store:
            store.record(SCOPE, [Message("user", "at process")], "s")
        with opened_on(made, path, "disk", clock) as store:
            ids = store.record(SCOPE, [Message("user", "at disk")], "s").ids
            made.disk.lose(seed, tmp_path / "lost")
    with doubles() as made, opened_on(made, tmp_path / "lost" / "store.db", "disk") as store:
        assert store.get(SCOPE, ids[0]) is not None


@pytest.mark.parametrize("seed", range(10))
def test_a_new_store_is_on_the_disk_with_its_first_acknowledged_call(tmp_path, seed):
    """Its name, its fallback folder and its first day file were never there before."""
    root = tmp_path / "life"
    root.mkdir()
    with doubles(root) as made, opened_on(made, root / "store.db", "disk") as store:
        message = store.record(SCOPE, [Message("user", "first")], "s").ids[0]
        made.disk.lose(seed, tmp_path / "after a message")
        memory = store.add(SCOPE, "first memory").id
        made.disk.lose(seed, tmp_path / "after a memory")
    for folder, wanted in (("after a message", [message]), ("after a memory", [message, memory])):
        with doubles() as made, opened_on(made, tmp_path / folder / "store.db", "disk") as store:
            assert [one for one in wanted if store.get(SCOPE, one) is None] == []
            assert errors_in(store) == []


@pytest.mark.parametrize("durability", ["disk", "process"])
def test_a_recovery_holds_what_was_acknowledged_at_a_power_loss(tmp_path, template, durability):
    """The database is lost with it; at ``disk`` the fallback alone holds every acknowledged message."""
    for seed in range(6):
        contents, losses = live(tmp_path / str(seed), template, seed, durability)
        for loss in losses:
            out = loss.folder / "out.db"
            MemoryStore.recover(loss.folder / "store.db", out=out, settings=Settings(timezone="UTC"))
            with MemoryStore(out, settings=Settings(timezone="UTC")) as store:
                found = dump(store)["messages"]
            before = contents[loss.acknowledged]["messages"]
            after = contents[min(loss.acknowledged + 1, len(contents) - 1)]["messages"]
            if durability == "disk":
                assert found in (before, after), f"seed {seed}"
            assert len({row["id"] for row in found}) == len(found)


@pytest.mark.parametrize("stored", ["fallback", "database"])
@pytest.mark.parametrize("seed", range(6))
def test_what_only_one_of_the_two_could_take_survives_power_loss_too(tmp_path, template, seed, stored):
    """A message that was accepted while the database, or the fallback, could not be written."""
    root, path = tmp_path / "life", tmp_path / "life" / "store.db"
    shutil.copytree(template, root)
    failing = ("store.db", "store.db-*") if stored == "fallback" else ("*.jsonl", "*.fallback", "pending")
    accepted: dict[str, str] = {}
    losses = []
    with doubles(root) as made, opened_on(made, path, "disk", pages=10_000) as store:
        made.plan.fail(("full", "error")[seed % 2], operations=["write"], file=failing, sticky=True)
        for number in range(3):
            receipt = store.record(SCOPE, [Message("user", f"said {number}")], "agent:chat:s")
            assert receipt.stored == stored
            accepted[receipt.ids[0]] = f"said {number}"
            made.disk.lose(seed, tmp_path / str(number))
            losses.append(dict(accepted))
        made.plan.lift()
    for number, wanted in enumerate(losses):
        with doubles() as made, opened_on(made, tmp_path / str(number) / "store.db", "disk") as store:
            store.record(SCOPE, [Message("user", "after the loss")], "agent:chat:s")
            found = {message.id: message.text for message in store.messages(SCOPE, "agent:chat:s")}
            assert list(found.values()) == [*wanted.values(), "after the loss"]
            assert wanted.items() <= found.items()
            assert errors_in(store) == []
