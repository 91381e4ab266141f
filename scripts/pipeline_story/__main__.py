"""``scripts/story``: a conversation from its first word to profiles, with a model that fails for a while; and the same
again, killed at a random moment and gone on with. Both must end the same."""

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.pipeline_story.playing import (
    Acknowledged,
    gone_on,
    killed,
    outcome,
    played,
    shown,
    steps,
)

_processes = multiprocessing.get_context("spawn")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/story", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the moment of the kill (default: a new one)"
    )
    parser.add_argument("--kills", type=int, default=1, help="so many runs that are killed (default: 1)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    with tempfile.TemporaryDirectory(prefix="memstore-story-") as scratch:
        whole = Path(scratch) / "whole"
        whole.mkdir()
        count = _processes.Value("q", 0)
        _in_a_process(played, whole, count)
        wanted = outcome(whole)
        print(f"--- uninterrupted: {len(steps())} steps, {count.value} statements\n{shown(wanted)}")
        same = 0
        for number in range(options.kills):
            moment = random.Random(f"{seed}/{number}").randrange(1, count.value)  # noqa: S311 - seeded chance
            folder = Path(scratch) / f"killed{number}"
            folder.mkdir()
            code = _in_a_process(killed, folder, moment)
            at = steps()[Acknowledged(folder / "acknowledged").count()]
            print(
                f"\n--- kill -9 in front of statement {moment} (seed {seed}/{number}): exit {code},"
                f" in step {at.number}, {at.name}{'' if at.round is None else f' of round {at.round + 1}'}"
            )
            _in_a_process(gone_on, folder)
            found = outcome(folder)
            print(shown(found))
            if code != -signal.SIGKILL or found != wanted:
                print("DIFFERENT from the uninterrupted run:", _difference(wanted, found), file=sys.stderr)
                return 1
            same += 1
    print(f"\n{same} of {options.kills} killed runs ended as the uninterrupted one did")
    return 0


def _in_a_process(work: Callable[..., None], *arguments: Any) -> int:
    process = _processes.Process(target=work, args=arguments)
    process.start()
    process.join()
    return process.exitcode or 0


def _difference(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [f"{part}: {wanted[part]} != {found[part]}" for part in wanted if wanted[part] != found[part]]


if __name__ == "__main__":
    sys.exit(main())
