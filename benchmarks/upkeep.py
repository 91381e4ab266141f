"""Importing and recovering many rows: rows a second, and whether memory stays the same however many there are.

Each step runs in a process of its own, so that its peak memory is its own. Rows are the sentences of ``speed``, of 100
users in turns.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.speed import Sentences
from memstore import MemoryStore, Settings
from memstore.fallback import day_files, folder_of
from memstore.importers import import_jsonl

USERS = 100
TEAMS = 4
LINE_BYTES = 1_000
"""Of an imported line, of which a sentence is the smaller part."""
STEPS = ("import", "import_again", "recover")


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param rows: sizes, measured one after the other.
    :param folder: where the stores are built; a fast local disk. None: a temporary folder.
    """

    rows: Sequence[int] = (10_000, 100_000)
    folder: Path | None = None


def run(options: Options) -> dict[str, Any]:
    """Measure every size, smallest first, each on a fresh store."""
    results: dict[str, Any] = {}
    for rows in sorted(options.rows):
        report.say(f"{rows:,} rows")
        with tempfile.TemporaryDirectory(prefix="memstore-bench-", dir=options.folder) as folder:
            results[str(rows)] = measure(rows, Path(folder))
    return {
        "benchmark": "upkeep",
        **report.circumstances(None),
        "settings": {"users": USERS, "teams": TEAMS, "line_bytes": LINE_BYTES, "durability": "disk"},
        "results": results,
    }


def measure(rows: int, folder: Path) -> dict[str, Any]:
    """All figures of one size."""
    source, database = folder / "talk.jsonl", folder / "upkeep.db"
    write_lines(source, rows)
    figures: dict[str, Any] = {"rows": rows, "line_bytes": source.stat().st_size // rows}
    for step in STEPS:
        report.say(f"  {step}")
        if step == "recover":
            for companion in ("", "-wal", "-shm"):
                Path(f"{database}{companion}").unlink(missing_ok=True)
            figures["fallback_bytes"] = sum(file.stat().st_size for file in day_files(folder_of(database)))
        figures[step] = _in_a_process(step, source, database, rows)
    return figures


def write_lines(path: Path, rows: int) -> None:
    """A JSONL file of messages without ids; each line of about 1 KB."""
    sentences = Sentences()
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            user = number % USERS
            record = {
                "role": "assistant" if number % 2 else "user",
                "content": sentences.one(),
                "created_at": 1_767_225_600 + number,
                "team_id": f"team {user % TEAMS}",
                "user_id": f"user {user}",
                "session": f"bench:upkeep:{number // USERS % 5}",
                "meta": {"number": number, "pad": ""},
            }
            short = LINE_BYTES - len(json.dumps(record, ensure_ascii=False).encode()) - 1
            record["meta"] = {"number": number, "pad": "x" * max(0, short)}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def _in_a_process(step: str, source: Path, database: Path, rows: int) -> dict[str, Any]:
    code = "import json, sys; from benchmarks import upkeep; print(json.dumps(upkeep.one(*sys.argv[1:])))"
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(  # noqa: S603 - this program itself
        [sys.executable, "-c", code, step, str(source), str(database)],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    if figures.pop("rows") != rows:
        raise RuntimeError(f"{step}: not all of the {rows} rows are there")
    return figures


def one(step: str, source: str, database: str) -> dict[str, Any]:
    """One step, in this process: what it did, how long it took, and the most memory it held."""
    work = _recover if step == "recover" else _import
    started, cpu = time.perf_counter(), time.process_time()
    rows = work(Path(source), Path(database))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "rows_per_s": round(rows / seconds, 1),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_memory_mb": round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1),
    }


def _import(source: Path, database: Path) -> int:
    with MemoryStore(database, settings=Settings(timezone="UTC")) as store:
        done = import_jsonl(store, source)
        return done.stored + done.known


def _recover(_source: Path, database: Path) -> int:
    return MemoryStore.recover(database).messages


def table(figures: dict[str, Any]) -> str:
    """A column a size."""
    results = list(figures["results"].values())
    rows: list[list[Any]] = []
    for step in STEPS:
        name = step.replace("_", " ")
        rows += [
            [f"{name}, rows/s", *(result[step]["rows_per_s"] for result in results)],
            [f"{name}, seconds", *(result[step]["seconds"] for result in results)],
            [f"{name}, peak memory, MB", *(result[step]["peak_memory_mb"] for result in results)],
        ]
    return report.table(["", *(f"{result['rows']:,} rows" for result in results)], rows)
