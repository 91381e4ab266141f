"""Rounds of killing: what is killed when, and what is looked at afterwards."""

# ruff: noqa: S311 - seeded chance

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from pathlib import Path
from typing import Any

from acknowledgements import Client
from evidence import Acknowledgements
from known import Place
from worker import Run, forked, look, prepare, rebuild, work

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120
SHOWN = 20


@dataclass
class Report:
    """What a run did and found."""

    seed: str
    durability: str
    kills: int = 0
    rounds: int = 0
    looks: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    killed_in: Counter[str] = field(default_factory=Counter)
    killed_at: Counter[str] = field(default_factory=Counter)
    adopted: int = 0
    torn: int = 0
    messages: int = 0
    versions: int = 0
    opening_ms: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        openings = sorted(self.opening_ms) or [0.0]
        return {
            **{
                name: getattr(self, name)
                for name in (
                    "seed",
                    "durability",
                    "kills",
                    "rounds",
                    "messages",
                    "versions",
                    "adopted",
                    "torn",
                )
            },
            "acknowledged": sum(self.acknowledged.values()),
            "acknowledged_by_call": dict(self.acknowledged.most_common()),
            "refused_by_call": dict(self.refused.most_common()),
            "killed_in_call": dict(self.killed_in.most_common()),
            "killed_at": dict(self.killed_at.most_common()),
            "looks": dict(self.looks),
            "opening_ms": {"median": statistics.median(openings), "largest": openings[-1]},
            "lost": sum(violation.startswith("LOST") for violation in self.violations),
            "violations": self.violations,
        }

    def as_text(self) -> Iterator[str]:
        told = self.as_json()
        yield (
            f"{self.kills} kills in {self.rounds} rounds ({self.durability}, seed {self.seed}): "
            f"{told['lost']} lost, {len(self.violations)} violations"
        )
        yield f"{told['acknowledged']} calls acknowledged; {self.messages} messages, {self.versions} versions of memories"
        yield f"opened after a crash {len(self.opening_ms)} times: {told['opening_ms']} ms; {self.adopted} messages adopted, {self.torn} torn lines"
        for title, counts in (
            ("acknowledged", self.acknowledged), ("refused", self.refused), ("killed during", self.killed_in),
            ("where threads were", self.killed_at), ("looks", self.looks),
        ):  # fmt: skip
            yield f"{title}: " + ", ".join(f"{what} {n}" for what, n in counts.most_common())
        yield from (f"VIOLATION {violation}" for violation in self.violations[:SHOWN])
        if len(self.violations) > SHOWN:
            yield f"… and {len(self.violations) - SHOWN} more"


class Failed(Exception):
    """The run cannot go on; what was found is in the report."""


class Rounds:
    """A run: one journal, and a new store for each round."""

    def __init__(self, run: Run, folder: Path, fixtures: list[Path]) -> None:
        self._run = run
        self._folder = folder
        self._fixtures = tuple(fixtures)
        self._rng = random.Random(f"{run.seed}/kills")
        self._workers: dict[int, int] = {}  # number → process id
        self._incarnations: Counter[int] = Counter()
        self._killing = 0
        self.report = Report(run.seed, run.durability)

    def kill(self, kills: int, kills_a_round: int) -> Report:
        """Kill that many workers; stops at the first round with a violation."""
        while self.report.kills < kills and not self.report.violations:
            place = Place(self._folder / f"round-{self.report.rounds:03}", {}, self._fixtures)
            place.folder.mkdir()
            with self._journal(place):
                try:
                    self._round(place, min(kills, self.report.kills + kills_a_round))
                except Failed as failure:
                    self.report.violations.append(str(failure))
                finally:
                    for pid in self._workers.values():
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
                    self._workers.clear()
            self._count(place)
            self.report.rounds += 1
            if not self.report.violations:
                shutil.rmtree(place.folder)
        return self.report

    @contextmanager
    def _journal(self, place: Place) -> Iterator[None]:
        server = subprocess.Popen(
            [sys.executable, str(HERE / "acknowledgements.py"), str(self._run.address), str(place.journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            server.stdout.readline()
            self._told = Client(self._run.address)
            yield
        finally:
            self._told.close()
            server.stdin.close()
            server.stdout.close()
            server.wait()
            self._run.address.unlink()

    # --- a round --------------------------------------------------------------------------------------------

    def _round(self, place: Place, kills: int) -> None:
        self._incarnations.clear()
        run = dataclass_replace(self._run, seed=f"{self._run.seed}/{self.report.rounds}")
        shared = self._answer(lambda: prepare(run, place.folder), place)
        place = dataclass_replace(place, shared=shared)
        everyone = range(run.processes)
        for worker in everyone:
            self._start(run, place, worker)
        while self.report.kills < kills and not self.report.violations:
            self._wait_for_a_moment()
            victims = self._victims(everyone, kills - self.report.kills)
            self._kill(victims)
            self._look(run, place, everyone_is_dead=not self._workers)
            for worker in victims:
                self._start(run, place, worker)
        if not self.report.violations:
            self._wait(10 * run.processes)
            self._stop()
            self._oracle(place, "settled")
            self._answer(lambda: rebuild(place), place)
            self._oracle(place, "rebuilt")

    def _wait_for_a_moment(self) -> None:
        """Until some more lines were said, and a while after: sometimes while workers are opening the store."""
        lines = self._rng.choice((0, 1, 2, 4, 8, 16, 40))
        self._wait(lines)
        time.sleep(self._rng.random() ** 2 * 0.02)

    def _wait(self, lines: int) -> None:
        try:
            self._told.wait(lines, PATIENCE_S, self._check_workers)
        except TimeoutError as error:
            raise Failed(f"the workers hang: {error}") from error

    def _victims(self, everyone: range, left: int) -> list[int]:
        how_many = self._rng.choice((1, len(everyone), self._rng.randint(1, len(everyone))))
        return self._rng.sample(list(everyone), min(how_many, left))

    def _start(self, run: Run, place: Place, worker: int) -> None:
        self._incarnations[worker] += 1
        number = self._incarnations[worker]
        self._workers[worker] = forked(lambda: work(run, place, worker, number))

    def _kill(self, victims: list[int]) -> None:
        """Several at once: the signals go out before any end is waited for."""
        self._check_workers()
        pids = {worker: self._workers.pop(worker) for worker in victims}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        for worker, pid in pids.items():
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code != -signal.SIGKILL:
                raise Failed(f"worker {worker} ended by itself with {code}: its error is above")
            for thread in range(self._run.threads):
                line = worker * self._run.threads + thread
                self.report.killed_at[self._run.board.read(line) or "not begun"] += 1
                self._run.board.wipe(line)
        self.report.kills += len(victims)

    def _check_workers(self) -> None:
        for worker, pid in list(self._workers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._workers[worker]
                code = os.waitstatus_to_exitcode(status)
                raise Failed(f"worker {worker} ended by itself with {code}: its error is above")

    def _stop(self) -> None:
        """A clean end under load: each thread ends its call, the store is closed."""
        self._check_workers()
        for pid in self._workers.values():
            os.kill(pid, signal.SIGTERM)
        for worker in list(self._workers):
            code = os.waitstatus_to_exitcode(os.waitpid(self._workers.pop(worker), 0)[1])
            if code != 0:
                raise Failed(f"worker {worker} was told to stop and ended with {code}")

    # --- looking --------------------------------------------------------------------------------------------

    def _look(self, run: Run, place: Place, *, everyone_is_dead: bool) -> None:
        self._wait(0)  # what the dead had sent is in the journal now
        if not everyone_is_dead:
            with self._held(hold=self._rng.random() < 0.7):
                looked = self._oracle(place, "live")
            while not looked:  # who stood still did so with the file locked against readers, too
                looked = self._oracle(place, "live")
            return
        self._oracle(place, "killed")
        seen = self._answer(lambda: look(run, place), place)
        self.report.adopted += seen["adopted"]
        self.report.opening_ms.append(seen["opening_ms"])
        self.report.violations += [f"doctor: {finding}" for finding in seen["findings"]]
        self._oracle(place, "settled")

    @contextmanager
    def _held(self, *, hold: bool) -> Iterator[None]:
        """Let those who are alive stand still meanwhile, wherever they are; else they go on writing."""
        for pid in self._workers.values() if hold else ():
            os.kill(pid, signal.SIGSTOP)
        yield
        for pid in self._workers.values() if hold else ():
            os.kill(pid, signal.SIGCONT)

    def _oracle(self, place: Place, mode: str) -> bool:
        """Ask for a look; False when others kept it from reading for as long as it waits."""
        asked = subprocess.run(
            [sys.executable, str(HERE / "oracle.py"), str(place.folder), mode],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if asked.returncode != 0:
            if mode == "live" and "database is locked" in asked.stderr:
                return False
            raise Failed(f"the oracle could not look ({mode}): {asked.stderr}")
        told = json.loads(asked.stdout)
        self.report.looks[mode] += 1
        self.report.violations += [f"{one} [{place.folder.name}, {mode}]" for one in told["violations"]]
        self._last = told if mode != "rebuilt" else self._last
        return True

    def _answer(self, work: Any, place: Place) -> Any:
        """What a function gives back in a forked child: this process itself never opens the store."""
        answer = place.folder / "answer.json"

        def told() -> None:
            answer.write_text(json.dumps(work()), encoding="utf-8")

        code = os.waitstatus_to_exitcode(os.waitpid(forked(told), 0)[1])
        if code != 0:
            raise Failed(f"a look at the store failed with {code}: its error is above")
        return json.loads(answer.read_text(encoding="utf-8"))

    def _count(self, place: Place) -> None:
        for call in Acknowledgements(place.journal).calls.values():
            if call.done is not None:
                self.report.acknowledged[call["op"]] += 1
            elif call.refused is not None:
                self.report.refused[call["op"]] += 1
            else:
                self.report.killed_in[call["op"]] += 1
        self.report.torn += self._last["torn"]
        self.report.messages += self._last["messages"]
        self.report.versions += self._last["versions"]
