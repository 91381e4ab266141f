"""Pipelines under a clock that jumps: a day on or back, over the change to summer time, to 2038 and to 1970
(RELIABILITY R17)."""

# ruff: noqa: S311 - seeded chance

import random
from datetime import UTC, datetime, timedelta

import pytest

from memstore import MemoryStore
from memstore.testing import ManualClock
from scripts.pipeline_story import playing
from scripts.pipeline_story.plot import Model

JUMPS = (timedelta(days=1), timedelta(days=-1), timedelta(hours=1), timedelta(hours=-1))
PLACES = (
    datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 59, tzinfo=UTC),
    datetime(1971, 1, 1, tzinfo=UTC),
)


def told(folder, jump) -> dict:
    """The story told with a clock that ``jump`` moves in front of each piece of work, and worked until nothing is left."""
    clock, model = ManualClock(playing.START), Model()
    folder.mkdir()
    with MemoryStore(folder / "memory.db", clock=clock, settings=playing.SETTINGS, llm=model) as store:
        for step in playing.steps():
            model.reachable = step.round not in playing.OUTAGE
            jump(clock, step)
            playing.take(store, step)
        for _ in range(6):
            clock.advance(4 * 3_600)
            store.work(once=True)
    found = playing.outcome(folder)
    # how scenes and profiles were cut into versions depends on when they were written; what they say does not
    found["scenes"] = [[name, sorted(content.splitlines())] for name, content, _ in found["scenes"]]
    found["profiles"] = [content for content, _ in found["profiles"]]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_doubled_or_held_up_by_a_clock_that_jumps(tmp_path, seed):
    chance = random.Random(seed)

    def jump(clock: ManualClock, _step: playing.Step) -> None:
        if chance.random() < 0.1:
            clock.set(chance.choice(PLACES))
        elif chance.random() < 0.5:
            clock.set(clock.now() + chance.choice(JUMPS))
        else:
            clock.advance(900)

    wanted = told(tmp_path / "steady", lambda clock, step: clock.set(step.at))
    found = told(tmp_path / "jumping", jump)
    assert found["pending"] == 0
    assert found["jobs"] == wanted["jobs"]
    assert found["verdicts"] == wanted["verdicts"]
    assert found["memories"] == wanted["memories"]
    assert found["profiles"] == wanted["profiles"]
    assert [name for name, _ in found["scenes"]] == [name for name, _ in wanted["scenes"]]
