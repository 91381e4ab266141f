"""The worker: carries out what waits in the queue, one job after another, in this thread or in one of its own.

Who may do a job is settled by the queue alone (leases), so that any number of workers, in any number of processes, can
work on one store.
"""

import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from memstore.config import MAX_BUSY_TIMEOUT_S, is_number
from memstore.errors import (
    AlreadyRunning,
    ConfigError,
    LLMOverBudget,
    LLMUnavailable,
    NotFound,
    StoreClosed,
    StoreError,
)
from memstore.pipelines.work import SECOND, Lease, NotDue, Pipelines, Runner
from memstore.storage.pipeline_rows import Job
from memstore.times import from_micros
from memstore.types import JobRecord, WorkReport

logger = logging.getLogger("memstore")

MAX_ATTEMPTS = 8
"""Those at which no model could be asked are not among them: such a job is tried until one can."""
RETRY_BASE_S = 30.0
RETRY_MOST_S = 3_600.0
KEPT_S = 7 * 86_400
"""So long a job that is done can be looked at."""
SWEEP_S = 60.0
"""How often a worker looks for work that nobody queued: what is recorded queues its own."""
PRUNE_S = 3_600.0
STOP_WAIT_S = 5.0
"""So long a worker that is to end may take for the job that it is at. One that waits for a model is left behind then."""
MOST_WAIT_S = 60.0
"""Between two passes that failed."""

OnJob = Callable[[JobRecord, str], None]
"""Called behind each job, with what became of it: ``done``, ``failed``, ``dead`` or ``postponed``."""
Ends = tuple[type[BaseException], ...]
CALLERS_OWN: Ends = (KeyboardInterrupt, SystemExit)
"""What ends the work of a thread that its caller lent: it is meant for the caller."""
T = TypeVar("T")


def _silent(_job: JobRecord, _outcome: str) -> None:
    pass


class Worker:
    """Carries out the jobs of some kinds. One thread at a time; another thread has its own.

    :param runners: one a kind, in the order in which their work builds on each other.
    :param on_job: what it raises is logged and changes nothing.
    :param first: kinds that never wait for a chat model: what is due of them does not wait for the others.
    :raises ValueError: for two of one kind.
    """

    def __init__(
        self,
        pipelines: Pipelines,
        runners: Sequence[Runner],
        on_job: OnJob = _silent,
        *,
        first: Collection[str] = (),
    ) -> None:
        self._pipelines = pipelines
        self._storage = pipelines.storage
        self._clock = pipelines.clock
        self._lease_s = pipelines.settings.lease_s
        self._runners = {runner.kind: runner for runner in runners}
        if len(self._runners) < len(runners):
            raise ValueError(f"two runners of one kind: {[runner.kind for runner in runners]}")
        self._on_job = on_job
        self._first = [kind for kind in self._runners if kind in first]
        self._in_turn = [kind for kind in self._runners if kind not in first]
        self._swept_at: float | None = None
        self._pruned_at: float | None = None
        self._held: Job | None = None

    # --- a pass ------------------------------------------------------------------------------------------------

    def run_due(
        self,
        *,
        force: bool = False,
        sweep_every_s: float = SWEEP_S,
        stopped: Callable[[], bool] = lambda: False,
        ends: Ends = CALLERS_OWN,
    ) -> WorkReport:
        """Carry out what is due until nothing is, what that work made due included. The kinds take turns, so that a long
        backlog of one holds up no other. Between two sweeps no job is tried twice.

        :param force: whatever is queued, whether its time has come or not. What others build on is done first then, and
            no job is tried twice at all.
        :param sweep_every_s: look for work that nobody queued, unless that was done so lately.
        :param stopped: asked between two jobs.
        :param ends: errors that end the pass, with its job given back, though a job raised them. All others are kept
            with the job.
        :raises StoreError: when the queue cannot be read or written.
        """
        self._storage.check_open()
        counts: Counter[str] = Counter()
        token = secrets.token_hex(8)
        last: str | None = None
        turns = list(self._in_turn)
        try:
            while not stopped():
                if self._swept(sweep_every_s) and not force:
                    token = secrets.token_hex(8)  # in a pass of hours, back-offs come to their end
                self._prune()
                job = self._claimed(token, self._order(turns, last), early=force)
                if job is None:
                    break
                last = job.kind
                if last in turns and not force:
                    turns = turns[turns.index(last) + 1 :] + turns[: turns.index(last) + 1]
                outcome = self._carried_out(job, force=force, ends=ends)
                if outcome is not None:
                    counts[outcome] += 1
        except StoreClosed:
            logger.debug("the store was closed while a worker was at work; its job is taken over later")
        return WorkReport(**counts)

    def _order(self, turns: Sequence[str], last: str | None) -> list[str]:
        """Kinds by whose turn it is. One that comes first does so once only: then another has its turn."""
        again = [kind for kind in self._first if kind == last]
        return [*(kind for kind in self._first if kind != last), *turns, *again]

    def _swept(self, every_s: float) -> bool:
        """Whether it was time to."""
        if self._swept_at is not None and self._clock.monotonic() - self._swept_at < every_s:
            return False
        for runner in self._runners.values():
            runner.sweep()
        self._swept_at = self._clock.monotonic()  # behind it: one that takes long is not all that is done
        return True

    def _prune(self) -> None:
        now = self._clock.monotonic()
        if self._pruned_at is None or now - self._pruned_at >= PRUNE_S:
            with self._storage.write(covered=True) as tx:
                tx.prune_jobs(self._pipelines.now() - KEPT_S * SECOND)
            self._pruned_at = now

    def _claimed(self, token: str, kinds: Sequence[str], *, early: bool) -> Job | None:
        while True:
            now = self._pipelines.now()
            with self._storage.read() as reader:  # an idle worker asks often, and takes no lock for it
                found = (kind for kind in kinds if reader.claimable(kind, token, now, early=early))
                kind = next(found, None)
            if kind is None:
                return None
            # Need not outlive a loss of power, so it is not synced: the job would be claimed once more.
            with self._storage.write(covered=True) as tx:
                job = tx.claim(kind, token, now, self._lease_end(now), early=early)
            if job is not None:  # else another worker was faster
                return job

    def _lease_end(self, now: int) -> int:
        return now + round(self._lease_s * SECOND)

    # --- one job -----------------------------------------------------------------------------------------------

    def run_now(self, kind: str, key: str, payload: Mapping[str, Any] | None = None) -> None:
        """Carry out one job at once, whether its time has come or not, and let its errors out; they count as a failed
        attempt all the same.

        :param payload: queue it, where it is not.
        :raises AlreadyRunning: when another worker is at it. :raises NotFound: when there is no such job.
        """
        now = self._pipelines.now()
        with self._storage.write() as tx:
            if payload is not None:
                tx.enqueue(kind, key, payload, now)
            job = tx.claim(kind, secrets.token_hex(8), now, self._lease_end(now), dedupe_key=key, early=True)
            if job is None:
                found = tx.job_named(key)
                if found is None or found.state != "running":
                    raise NotFound(f"no job of kind {kind!r:.40} waits for {key:.80}")
                raise AlreadyRunning(f"job {found.job_no} ({kind}) is being carried out by another worker")
        error, _ = self._run(job, force=True, awaited=True, ends=CALLERS_OWN)
        if error is not None:
            raise error

    def _carried_out(self, job: Job, *, force: bool, ends: Ends) -> str | None:
        if job.counted > MAX_ATTEMPTS:  # counted at claim: it may be the job that the workers die of
            error = f"was left half-way {job.counted - 1} times by workers that ended; {job.last_error or 'no error is known'}"
            return self._told(job, self._failed(job, error))
        return self._run(job, force=force, ends=ends)[1]

    def _run(
        self, job: Job, *, force: bool, ends: Ends, awaited: bool = False
    ) -> tuple[BaseException | None, str | None]:
        """The error that it ended with, and what became of the job."""
        runner = self._runners[job.kind]
        lease = Lease(job, self._storage, self._clock, self._lease_s, awaited)
        self._held = job
        try:
            found = attempted(
                f"job {job.job_no} ({job.kind})", lambda: runner.run(lease, force=force), ends=ends
            )
            error = found if isinstance(found, BaseException) else None
            return error, self._told(job, self._settled(job, found))
        except ends:
            self.let_go()
            raise
        finally:
            self._held = None

    def _settled(self, job: Job, found: NotDue | BaseException | None) -> str | None:
        """Put the job where it belongs after the attempt."""
        now = self._pipelines.now()
        if found is None:
            self._ended(job, now)
            return "done"
        if isinstance(found, NotDue):
            self._postponed(job, now, found.until)
            return "postponed"
        if isinstance(found, LLMOverBudget):
            self._postponed(job, now, found.until, str(found))
            return "postponed"
        if isinstance(found, AlreadyRunning):  # the lease is another's, or the work was done on another way
            self._postponed(job, now, now)
            return None
        return self._failed(job, f"{type(found).__name__}: {found}", outage=isinstance(found, LLMUnavailable))

    def _ended(self, job: Job, now: int) -> None:
        """A runner that had nothing to apply may have left the job as it was."""
        with self._storage.read() as reader:
            held = reader.holds_lease(job)
        if held:
            with self._storage.write(covered=True) as tx:
                tx.finish(job, now)

    def _postponed(self, job: Job, now: int, until: int, why: str | None = None) -> None:
        with self._storage.write(covered=True) as tx:
            tx.postpone(job, now, until, why)

    def _failed(self, job: Job, error: str, *, outage: bool = False) -> str | None:
        """Count the failure; None where another worker has the job by now, so that it is that one's to count.

        :param outage: there was no model to ask, which is not the job's fault and passes.
        """
        now = self._pipelines.now()
        dead = job.counted >= MAX_ATTEMPTS and not outage
        with self._storage.write(covered=True) as tx:
            if not tx.holds_lease(job):
                return None
            until = now + round(back_off_s(job.attempts) * SECOND)
            tx.fail(job, error, until, dead=dead, now=now, outage=outage)
        if dead:
            logger.warning(
                "job %d (%s) gave up after %d attempts: %s", job.job_no, job.kind, job.attempts, error
            )
        return "dead" if dead else "failed"

    def _told(self, job: Job, outcome: str | None) -> str | None:
        if outcome is not None:
            try:
                self._on_job(job_record(job), outcome)
            except Exception as error:  # noqa: BLE001 - a caller's code, behind a job that is settled
                said = f"{type(error).__name__}: {error}"
                logger.warning("on_job failed behind job %d (%s): %s", job.job_no, job.kind, said)
        return outcome

    def let_go(self) -> None:
        """Put the job back that a thread is at, so that another worker need not wait for the lease to run out: what that
        thread still decides comes to nothing. For a worker that ends half-way, or is to end and does not."""
        job = self._held
        if job is None:
            return
        try:
            self._postponed(job, self._pipelines.now(), self._pipelines.now())
        except StoreError as error:
            logger.debug("job %d stays leased until its lease runs out: %s", job.job_no, error)


def back_off_s(attempts: int) -> float:
    """How long a job waits after so many attempts in vain."""
    return min(RETRY_BASE_S * 2.0 ** max(0, attempts - 1), RETRY_MOST_S)


def attempted(what: str, work: Callable[[], T], *, ends: Ends = CALLERS_OWN) -> T | BaseException:
    """What the work gives, or the error that it raised. Behind this stand runners, and through them models and backups:
    whatever goes wrong there must cost an attempt and not the worker.

    :param ends: errors that come out all the same.
    :raises StoreClosed: nothing more can be done then.
    """
    try:
        return work()
    except StoreClosed:
        raise
    except ends:
        raise
    except (AlreadyRunning, LLMOverBudget) as error:  # no failures
        logger.debug("%s: %s", what, error)
        return error
    except BaseException as error:  # the boundary of a job: the error is kept with it
        logger.warning("%s failed: %s: %s", what, type(error).__name__, error)
        logger.debug("%s failed", what, exc_info=error)
        return error


# --- in a thread ----------------------------------------------------------------------------------------------------


class WorkerThread:
    """A worker in a thread of its own, which looks into the queue again and again until it is stopped. No errors end it,
    SystemExit and the like included: it waits a little longer after each. A forked child has none.

    :param poll_s: between two looks. :param force: of the first pass, see :meth:`Worker.run_due`.
    :raises ConfigError: for a ``poll_s`` that is no positive number.
    """

    def __init__(self, worker: Worker, poll_s: float = 1.0, *, force: bool = False) -> None:
        if not is_number(poll_s, least=1e-3, most=MAX_BUSY_TIMEOUT_S):
            raise ConfigError(f"poll_s must be a number of seconds from 0.001 on, not {poll_s!r:.60}")
        self._worker = worker
        self._poll_s = poll_s
        self._force = force
        self._pid = os.getpid()
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._left_behind = False
        self._counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._work, name="memstore-worker", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """False once it has ended."""
        # Not Thread.is_alive: it says no of a thread that goes on once Ctrl-C has ended a join.
        return os.getpid() == self._pid and not self._ended.is_set()

    @property
    def ending(self) -> bool:
        """Whether it was told to end, which one that waits for a model does late."""
        return self._ending.is_set()

    @property
    def report(self) -> WorkReport:
        """What it did so far."""
        return WorkReport(**self._counts)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; whether it has."""
        if self.running and self._thread is not threading.current_thread():
            self._ended.wait(timeout_s)
        return not self.running

    def stop(self, wait_s: float | None = None) -> bool:
        """End it behind the job that it is at; whether it has ended. One that takes longer, waiting for a model, gives
        its job back and ends when the model answers, without applying anything. Safe to call twice and from any thread."""
        if (
            os.getpid() != self._pid
        ):  # no thread of ours is here, and maybe one held the event's lock at the fork
            return True
        if self._left_behind:
            return not self.running
        self._ending.set()
        ended = self.join(STOP_WAIT_S if wait_s is None else wait_s)
        if not ended and self._thread is not threading.current_thread():
            self._left_behind = True  # whoever asks again need not wait once more
            self._worker.let_go()
        return ended

    def _work(self) -> None:
        try:
            self._passes()
        finally:
            self._ended.set()

    def _passes(self) -> None:
        failures = 0
        while not self._ending.is_set():
            try:
                found = attempted("a pass of the worker", self._pass, ends=())
            except StoreClosed:
                return
            failures = failures + 1 if isinstance(found, BaseException) else 0
            self._ending.wait(min(self._poll_s * 2.0 ** min(failures, 16), max(MOST_WAIT_S, self._poll_s)))

    def _pass(self) -> None:
        done = self._worker.run_due(force=self._force, stopped=self._ending.is_set, ends=())
        self._force = False
        for field in fields(done):
            self._counts[field.name] += getattr(done, field.name)


# --- for people -----------------------------------------------------------------------------------------------------


_SUBJECTS = ("session", "date", "agent_id")
"""Fields of a payload that say what a job is about, the most telling first."""


def job_record(job: Job) -> JobRecord:
    """A job as callers see it; ``not_before`` of those that wait."""
    waits = job.state == "queued" and job.not_before > 0
    return JobRecord(
        job_no=job.job_no,
        kind=job.kind,
        state=job.state,
        team_id=job.team_id,
        user_id=job.user_id,
        agent_id=job.agent_id,
        subject=next((job.payload[name] for name in _SUBJECTS if job.payload.get(name)), None),
        attempts=job.attempts,
        done=job.done,
        total=job.total,
        calls=job.cost.get("calls", 0),
        input_tokens=job.cost.get("input_tokens", 0),
        output_tokens=job.cost.get("output_tokens", 0),
        last_error=job.last_error,
        not_before=from_micros(job.not_before) if waits else None,
        lease_until=None if job.lease_until is None else from_micros(job.lease_until),
        created_at=from_micros(job.created_at),
        finished_at=None if job.finished_at is None else from_micros(job.finished_at),
    )
