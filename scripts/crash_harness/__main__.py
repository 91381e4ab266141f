"""Kill writers with -9 at random moments, and look whether anything that was acknowledged is lost.

A round is one new store: workers call it from several threads and tell an independent journal before and behind each
call. The harness kills one, some or all of them somewhere inside, lets an oracle that knows nothing of memstore look
at the files, opens the store again, and goes on. At the end of a round the writers are told to stop, and the store is
made once more from its fallback and compared.

Power loss cannot be played by killing processes; its model is a test of its own:
    MEMSTORE_TEST_POWER=500 scripts/test tests/test_reliability_power.py
"""

import argparse
import json
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from board import Board
from rounds import Report, Rounds
from worker import Run, warm_up

CRASH_HARNESS = Path(__file__).resolve().parent
FIXTURES = CRASH_HARNESS.parent.parent / "tests" / "fixtures"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/crash", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60, help="processes to kill (60)")
    parser.add_argument(
        "--seed", default=None, help="repeats a run's random choices; made and printed when missing"
    )
    parser.add_argument("--durability", choices=("disk", "process"), default="disk")
    parser.add_argument("--processes", type=int, default=2, help="worker processes at a time (2)")
    parser.add_argument("--threads", type=int, default=2, help="writing threads of each (2)")
    parser.add_argument(
        "--kills-a-round", type=int, default=20, help="after so many a new store is begun (20)"
    )
    parser.add_argument("--keep", type=Path, help="work in this folder, and keep what is in it")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    parser.add_argument(
        "--lie",
        action="store_true",
        help="let writers acknowledge before they call: the harness must find that",
    )
    return parser.parse_args()


def main() -> int:
    given = arguments()
    seed = given.seed or secrets.token_hex(4)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    warm_up()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="memstore-crash-"))
    folder.mkdir(parents=True, exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="mc-"))  # short: a socket's path has some hundred bytes at most
    run = Run(
        seed=seed,
        processes=given.processes,
        threads=given.threads,
        durability=given.durability,
        lie=given.lie,
        address=sockets / "s",
        board=Board(given.processes * given.threads),
    )
    try:
        report = Rounds(run, folder, sorted(FIXTURES.glob("schema-*.tar.gz"))).kill(
            given.kills, given.kills_a_round
        )
    finally:
        shutil.rmtree(sockets)
    show(report, as_json=given.json)
    if report.violations:
        print(f"the files are kept in {folder}; again: scripts/crash --seed {seed} …", file=sys.stderr)
    elif given.keep is None:
        shutil.rmtree(folder)
    return 1 if report.violations else 0


def show(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), ensure_ascii=False, indent=1))
        return
    for line in report.as_text():
        print(line)


if __name__ == "__main__":
    sys.exit(main())
