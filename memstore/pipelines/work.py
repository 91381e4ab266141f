"""How work is done in the background: a job, the lease under which it is carried out, and what carries it out.

A runner decides outside of any transaction (models are asked there), and applies what was decided in one transaction of
its own, which also ends the job. The lease fences that transaction: a worker that was too slow, and whose job another
one took over, applies nothing.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from memstore.agent_settings import AgentSettings
from memstore.clock import Clock
from memstore.config import Settings
from memstore.errors import AlreadyRunning
from memstore.pipelines.values import Judge
from memstore.recall import Recaller
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.pipeline_rows import Job, Owner
from memstore.times import to_micros
from memstore.tokenizers import Tokenizers

SECOND = 1_000_000
"""In microseconds, as times are kept."""


@dataclass(slots=True)
class Lease:
    """A job while it is carried out.

    :param awaited: whether a caller is told of the result, and so relies on it.
    """

    job: Job
    storage: Storage
    clock: Clock
    lease_s: float
    awaited: bool = False

    def now(self) -> int:
        return to_micros(self.clock.now())

    def write(self) -> AbstractContextManager[Writer]:
        """A transaction of the job's. Without a caller who relies on it, it is not synced by itself: a loss of power may
        take back the last ones whole, and what they did is done again. Those who record do not wait for the disk then."""
        return self.storage.write(covered=not self.awaited)

    def renew(self) -> None:
        """Hold the job for another term: before each call of a model.

        :raises AlreadyRunning: when the lease ran out and another worker took the job over.
        """
        with self.write() as tx:
            now = self.now()
            if not tx.renew(self.job, now, now + round(self.lease_s * SECOND)):
                raise AlreadyRunning(
                    f"job {self.job.job_no} ({self.job.kind}) was taken over by another worker"
                )

    def finish(self, tx: Writer) -> None:
        """End the job in the transaction that applies its result.

        :raises AlreadyRunning: when another worker took the job over; the transaction comes to nothing then.
        """
        if not tx.holds_lease(self.job):
            raise AlreadyRunning(f"job {self.job.job_no} ({self.job.kind}) was taken over by another worker")
        tx.finish(self.job, self.now())


@dataclass(frozen=True, slots=True)
class NotDue:
    """A job whose time has not come: it goes back into the queue until then (microseconds)."""

    until: int


class Runner(Protocol):
    """Carries out the jobs of one kind."""

    @property
    def kind(self) -> str: ...

    def sweep(self) -> None:
        """Queue what the data say is pending, whatever became of the jobs for it."""
        ...

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:
        """Carry a job out. None: it is done, and ended by :meth:`Lease.finish`.

        :param force: whether its time has come or not.
        :raises AlreadyRunning: when another worker took it over; nothing was applied then.
        :raises memstore.errors.LLMOverBudget: the model may not be asked now; it is tried again at that time.
            Any other error counts as a failed attempt.
        """
        ...


JudgeFor = Callable[[Owner, AgentSettings, Lease | None], Judge]
"""The judge of an owner's work: the rules, or a model under the cost guard of the team, booked to the job."""


@dataclass(frozen=True, slots=True)
class Pipelines:
    """What the runners are made of."""

    storage: Storage
    tokenizers: Tokenizers
    clock: Clock
    zone: ZoneInfo
    settings: Settings
    recaller: Recaller
    judge_for: JudgeFor

    def now(self) -> int:
        return to_micros(self.clock.now())

    def agent_settings(self, reader: Reader, of: Owner, agent_id: str) -> AgentSettings:
        """The agent's, else the defaults."""
        return AgentSettings(**reader.agent_settings(of, agent_id))


def owner_of(job: Job) -> Owner:
    """Whose work a job is."""
    return Owner(job.payload["team_id"], job.payload["user_id"])


def as_json(value: Any) -> str:
    """For rows that people read: keys in the order given, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
