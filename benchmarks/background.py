"""What a worker costs those who record: one ``record`` call after the other, with no worker, with one in another process
and with one in a thread of the same, in turns on one store.

The worker never runs out of work: conversations of other users wait to be extracted. The rules take a core and, in a
thread, the interpreter's lock from those who record; a model is waited for. Here it is one that answers after 50 ms.
"""

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks import report
from benchmarks.speed import Sentences
from memstore import LLMReply, LLMRequest, MemoryStore, Message, Scope, Settings

ARRANGEMENTS = ("none", "process, rules", "thread, model", "thread, rules")
MODEL_S = 0.05
SESSION = "helper:bench:talk"
WARM_UP = 20
_processes = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for.

    :param calls: timed calls of each block. :param blocks: of each arrangement, in turns.
    :param backlog: messages that wait for each block with a worker.
    """

    calls: int = 500
    blocks: int = 4
    backlog: int = 8_000
    folder: Path | None = None


def run(options: Options) -> dict[str, Any]:
    """Measure the arrangements in turns."""
    sentences = Sentences()
    times: dict[str, list[float]] = {name: [] for name in ARRANGEMENTS}
    worked = dict.fromkeys(ARRANGEMENTS, 0)
    with tempfile.TemporaryDirectory(prefix="memstore-bench-", dir=options.folder) as folder:
        path = Path(folder) / "memory.db"
        with MemoryStore(path, settings=_settings()) as store:
            for block in range(options.blocks):
                for name in ARRANGEMENTS:
                    report.say(f"block {block + 1} of {options.blocks}, worker: {name}")
                    _fill(store, sentences, options.backlog, f"{block}-{name}")
                    with _worker(name, path):
                        before = _waiting(store)
                        times[name] += _timed(store, sentences, options.calls)
                        worked[name] += before - _waiting(store)
                    store.work(once=True, force=True)
    return {
        "benchmark": "background",
        **report.circumstances(None),
        "settings": {"durability": "disk", "calls": options.calls, "blocks": options.blocks},
        "results": {name: _figures(times[name], times["none"], worked[name]) for name in ARRANGEMENTS},
    }


def _settings() -> Settings:
    return Settings(timezone="UTC", nightly_backup_hour=None)


def _fill(store: MemoryStore, sentences: Sentences, messages: int, name: str) -> None:
    """Conversations of 20 messages each, of users of their own."""
    for talk in range(messages // 20):
        scope = Scope("backlog", f"{name}-{talk}", "helper")
        said = [Message("user" if n % 2 == 0 else "assistant", sentences.one()) for n in range(20)]
        store.record(scope, said, SESSION)


def _waiting(store: MemoryStore) -> int:
    """Sessions of the backlog that nobody took up yet."""
    jobs = store.jobs(state="queued", kind="extract", limit=10_000)
    return sum(job.team_id == "backlog" for job in jobs)


def _timed(store: MemoryStore, sentences: Sentences, calls: int) -> list[float]:
    scope = Scope("acme", "ana", "helper")
    taken = []
    for number in range(calls + WARM_UP):
        said = [Message("user", sentences.one()), Message("assistant", sentences.one())]
        began = time.perf_counter()
        store.record(scope, said, SESSION)
        if number >= WARM_UP:
            taken.append(time.perf_counter() - began)
    return taken


class _Waiting:
    """A model that takes its time and finds nothing."""

    name = "waiting"

    def complete(self, _request: LLMRequest) -> LLMReply:
        time.sleep(MODEL_S)
        return LLMReply('{"scene": "", "scene_changed": false, "memories": []}')


@contextmanager
def _worker(name: str, path: Path) -> Iterator[None]:
    """A worker that is at work already: what it loads first, it has."""
    if name == "none":
        yield
    elif name.startswith("thread"):
        llm = _Waiting() if name.endswith("model") else None
        with MemoryStore(path, settings=_settings(), llm=llm) as store:
            begun = threading.Event()
            worker = store.start_worker(on_job=lambda *_: begun.set())
            begun.wait()
            yield
            worker.stop()
    else:
        begun_there, stop = _processes.Event(), _processes.Event()
        process = _processes.Process(target=_work, args=(path, begun_there, stop))
        process.start()
        begun_there.wait()
        try:
            yield
        finally:
            stop.set()
            process.join()


def _work(path: Path, begun: Event, stop: Event) -> None:
    with MemoryStore(path, settings=_settings()) as store:
        worker = store.start_worker(on_job=lambda *_: begun.set())
        stop.wait()
        worker.stop()


def _figures(times: list[float], base: list[float], worked: int) -> dict[str, Any]:
    cuts = quantiles(times, n=100)
    return {
        "calls": len(times),
        "p50_ms": round(median(times) * 1000, 3),
        "p95_ms": round(cuts[94] * 1000, 3),
        "p99_ms": round(cuts[98] * 1000, 3),
        "p50_ratio": round(median(times) / median(base), 3),
        "p95_ratio": round(cuts[94] / quantiles(base, n=100)[94], 3),
        "sessions_extracted_meanwhile": worked,
    }


def table(figures: dict[str, Any]) -> str:
    """For people."""
    lines = [
        f"{'worker':16}{'calls':>8}{'p50 ms':>10}{'p95 ms':>10}{'p50 x':>8}{'p95 x':>8}{'extracted':>11}"
    ]
    for name, one in figures["results"].items():
        lines.append(
            f"{name:16}{one['calls']:>8}{one['p50_ms']:>10}{one['p95_ms']:>10}{one['p50_ratio']:>8}"
            f"{one['p95_ratio']:>8}{one['sessions_extracted_meanwhile']:>11}"
        )
    return "\n".join(lines)
