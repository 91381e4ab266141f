"""Kill -9 in every stage of the pipelines: whoever goes on ends where the uninterrupted run ended (RELIABILITY R15)."""

# ruff: noqa: S311 - seeded chance

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reliability_support import ROOT
from scripts.pipeline_story import playing

KILLS = int(os.environ.get("MEMSTORE_TEST_PIPELINE_KILLS", "60"))
"""Of each stage; verdicts are asked for and given within an extraction."""
STAGES = ("extract", "scenes", "profile", "undo")
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["scripts.pipeline_story.warm"])


def in_a_process(work, *arguments) -> int:
    process = processes.Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """The uninterrupted story: the store in front of each step, and what each step is to come to."""
    copies = tmp_path_factory.mktemp("copies")
    folder = tmp_path_factory.mktemp("story")
    results = processes.SimpleQueue()
    process = processes.Process(target=playing.recorded, args=(folder, copies, results))
    process.start()
    found = {}
    while (one := results.get()) is not None:
        found[one[0]] = one[1:]
    process.join()
    assert process.exitcode == 0
    return copies, found


@pytest.mark.parametrize("stage", STAGES)
def test_whoever_goes_on_ends_where_the_uninterrupted_run_ended(recording, tmp_path, stage):
    copies, found = recording
    steps = [
        number
        for number, (asked, _, _) in found.items()
        if stage in asked or (stage == "undo" and playing.steps()[number].name == "undo")
    ]
    assert steps, stage
    chance = random.Random(stage)
    for kill in range(KILLS):
        number = chance.choice(steps)
        _, statements, wanted = found[number]
        moment = chance.randrange(1, statements + 1)
        folder = tmp_path / str(kill)
        shutil.copytree(copies / str(number), folder)
        code = in_a_process(playing.killed_in, folder, number, moment)
        assert code == -signal.SIGKILL, (number, moment)
        results = processes.SimpleQueue()
        assert in_a_process(playing.settled, folder, number, results) == 0, (number, moment)
        assert results.get() == wanted, (number, moment)
        shutil.rmtree(folder)


def test_the_story_is_the_same_after_a_kill_in_its_middle():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "scripts.pipeline_story", "--seed", "5"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 1 killed runs ended as the uninterrupted one did" in done.stdout
    assert Path(ROOT / "scripts" / "story").exists()
