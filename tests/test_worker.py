"""The worker: what it does with a job, with many of them, beside others, and when it dies."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import FAST, said
from memstore import ConfigError, MemoryStore, NotFound, Scope, Settings
from memstore.errors import (
    AlreadyRunning,
    InvalidInput,
    LLMOverBudget,
    LLMRejected,
    LLMUnavailable,
    StoreBusy,
    StoreClosed,
)
from memstore.pipelines.work import SECOND, Lease, NotDue
from memstore.storage.pipeline_rows import UNDER_WAY, Cursor, Owner, job_key
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import JobRecord, WorkReport
from memstore.worker import MAX_ATTEMPTS, RETRY_MOST_S, Worker, WorkerThread, attempted, back_off_s
from reliability_support import ROOT, TESTS, in_fork, run_threads

ANA = Scope("acme", "ana", "helper")
OF = Owner("acme", "ana")
PATIENCE_S = 60.0
"""For events that come at once unless something is broken."""


class Told:
    """A runner that does with a job what it is told: ``{name: what}``, for each try in turn where that is a list."""

    def __init__(self, store: MemoryStore, kind: str = "work", does: dict | None = None) -> None:
        self.store, self.kind = store, kind
        self.does = does or {}
        self.ran: list[str] = []
        self.forced: list[bool] = []
        self.sweeps = 0
        self.sweeping = lambda: None

    def sweep(self) -> None:
        self.sweeps += 1
        self.sweeping()

    def run(self, lease: Lease, *, force: bool = False) -> NotDue | None:
        name = lease.job.payload["name"]
        self.ran.append(name)
        self.forced.append(force)
        what = self.does.get(name)
        if isinstance(what, list):
            what = what.pop(0) if what else None
        if callable(what) and not isinstance(what, type):
            what = what(lease)
        if isinstance(what, Exception):
            raise what
        if isinstance(what, NotDue):
            return what
        with self.store._storage.write() as tx:
            lease.finish(tx)
            done = tx.cursor(OF, "scenes", name)
            tx.set_cursor(OF, Cursor("scenes", name, runs=done.runs + 1))
        return None


def put(store: MemoryStore, name: str, not_before: int = 0, kind: str = "work", **options) -> None:
    with store._storage.write() as tx:
        payload = {"team_id": "acme", "user_id": "ana", "name": name}
        tx.enqueue(kind, job_key(kind, name), payload, store._pipelines.now(), not_before, **options)


def results(store: MemoryStore, name: str) -> int:
    with store._storage.read() as reader:
        return reader.cursor(OF, "scenes", name).runs


def job_of(store: MemoryStore, name: str, kind: str = "work") -> JobRecord:
    with store._storage.read() as reader:
        found = reader.job_named(job_key(kind, name))
    return store.job(found.job_no)


def worker_of(store: MemoryStore, *runners: Told, **options) -> Worker:
    return Worker(store._pipelines, runners, **options)


# --- a pass -----------------------------------------------------------------------------------------------------


def test_a_pass_does_what_is_due_and_leaves_the_rest(store, clock):
    runner = Told(store)
    put(store, "a")
    put(store, "b")
    put(store, "later", store._pipelines.now() + 60 * SECOND)
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport(done=2)
    assert (runner.ran, runner.sweeps) == (["a", "b"], 1)
    assert worker.run_due() == WorkReport()
    clock.advance(60)
    assert worker.run_due() == WorkReport(done=1)
    assert [job_of(store, name).state for name in ("a", "b", "later")] == ["done"] * 3


def test_what_the_work_made_due_is_done_in_the_same_pass(store):
    first, second = Told(store, "first"), Told(store, "second")
    first.does = {"a": lambda lease: put(store, "b", kind="second")}
    second.does = {"b": lambda lease: put(store, "c", kind="first")}
    put(store, "a", kind="first")
    assert worker_of(store, first, second).run_due() == WorkReport(done=3)
    assert (first.ran, second.ran) == (["a", "c"], ["b"])


def three_kinds(store, order: list[str], jobs: str = "ab") -> list[Told]:
    """Runners that note whose turn it was, with so many jobs each."""
    runners = [Told(store, kind) for kind in ("extract", "scenes", "index")]
    for runner in runners:
        runner.does = {name: lambda lease, r=runner: order.append(r.kind) for name in jobs}
        for name in jobs:
            put(store, name, kind=runner.kind)
    return runners


def test_kinds_take_turns_and_what_asks_no_model_does_not_wait_for_the_others(store):
    order = []
    worker_of(store, *three_kinds(store, order, "abc"), first=["index"]).run_due()
    assert order == ["index", "extract", "index", "scenes", "index", "extract", "scenes", "extract", "scenes"]


def test_what_is_forced_is_done_in_the_order_in_which_it_builds_on_each_other(store):
    order = []
    worker_of(store, *three_kinds(store, order)).run_due(force=True)
    assert order == ["extract", "extract", "scenes", "scenes", "index", "index"]


def test_a_long_pass_looks_for_work_that_nobody_queued_and_comes_back_to_what_failed(store, clock):
    runner = Told(store, does={"fails": [LLMRejected("no")]})
    for number in range(5):
        runner.does[str(number)] = lambda lease: clock.advance(20)
    for name in runner.does:
        put(store, name)
    runner.sweeping = lambda: put(store, "swept", unless=UNDER_WAY) if runner.sweeps == 2 else None
    assert worker_of(store, runner).run_due() == WorkReport(done=7, failed=1)
    assert runner.ran == ["fails", "0", "1", "2", "3", "4", "swept", "fails"]
    assert runner.sweeps == 2


def test_the_nightly_backup_does_not_wait_for_a_long_backlog(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock)
    for number in range(6):
        store.record(ANA, said("x"), f"chat {number}")
    at(clock, "2026-03-02T02:58")
    order = []

    def on_job(job, outcome):
        order.append(job.kind)
        clock.advance(30)

    store.work(on_job=on_job)
    assert order.index("backup") <= 7
    assert order.count("extract") == 6
    assert order[order.index("backup") :].count("extract") >= 1


def test_what_a_sweep_queues_is_done_at_once(store):
    runner = Told(store)
    runner.sweeping = lambda: put(store, "swept", unless=UNDER_WAY)
    assert worker_of(store, runner).run_due() == WorkReport(done=1)


def test_a_worker_that_goes_on_sweeps_now_and_then(store, clock):
    runner = Told(store)
    worker = worker_of(store, runner)
    for _ in range(3):
        worker.run_due(sweep_every_s=60)
    assert runner.sweeps == 1
    clock.advance(60)
    worker.run_due(sweep_every_s=60)
    assert runner.sweeps == 2


def test_two_runners_of_a_kind_are_a_mistake(store):
    with pytest.raises(ValueError, match="two runners of one kind"):
        worker_of(store, Told(store), Told(store))


def test_a_runner_that_had_nothing_to_apply_need_not_end_its_job(store):
    class Idle(Told):
        def run(self, lease, *, force=False):
            return None

    put(store, "a")
    assert worker_of(store, Idle(store)).run_due() == WorkReport(done=1)
    assert job_of(store, "a").state == "done"


def test_it_can_be_stopped_between_two_jobs(store):
    runner = Told(store)
    for name in "abc":
        put(store, name)
    report = worker_of(store, runner).run_due(stopped=lambda: len(runner.ran) == 2)
    assert (report.done, runner.ran) == (2, ["a", "b"])


def test_a_pass_on_a_closed_store_says_so_and_one_that_is_cut_off_ends_quietly(store):
    runner = Told(store, does={"a": lambda lease: store.close()})
    put(store, "a")
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport()
    with pytest.raises(StoreClosed):
        worker.run_due()


# --- force ------------------------------------------------------------------------------------------------------


def test_force_does_everything_whether_its_time_has_come_or_not(store):
    runner = Told(store)
    put(store, "a", store._pipelines.now() + 3_600 * SECOND)
    assert worker_of(store, runner).run_due(force=True) == WorkReport(done=1)
    assert runner.forced == [True]


def test_force_does_what_follows_too_and_comes_to_an_end(store):
    """Scenes queue themselves again for an hour later; a session with a long backlog queues its next part for now."""
    later = store._pipelines.now() + 3_600 * SECOND
    runner = Told(store)
    parts = ["due", "due", None]

    def backlog(lease):
        if parts.pop(0):
            put(store, "backlog")
        put(store, "scenes", later)

    def again(lease):
        put(store, "scenes", later)

    runner.does = {"backlog": backlog, "scenes": again}
    put(store, "backlog")
    worker_of(store, runner).run_due(force=True)
    assert runner.ran.count("backlog") == 3
    assert runner.ran.count("scenes") == 1
    assert job_of(store, "scenes").state == "queued"


def test_no_job_is_tried_twice_in_a_pass(store):
    now = store._pipelines.now()
    runner = Told(store, does={
        "fails": LLMRejected("no"), "not due": NotDue(now - 1), "over": LLMOverBudget("no", now), "taken": AlreadyRunning("x"),
    })  # fmt: skip
    for name in runner.does:
        put(store, name)
    assert worker_of(store, runner).run_due(force=True) == WorkReport(failed=1, postponed=2)
    assert sorted(runner.ran) == sorted(runner.does)


# --- attempts ---------------------------------------------------------------------------------------------------


def test_failures_back_off_and_end_as_a_dead_letter_that_can_be_replayed(store, clock, caplog):
    runner = Told(store, does={"a": [LLMRejected(f"cut off {n}") for n in range(MAX_ATTEMPTS)]})
    worker = worker_of(store, runner)
    put(store, "a")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        report = worker.run_due()
        found = job_of(store, "a")
        assert found.last_error == f"LLMRejected: cut off {attempt - 1}"
        assert found.attempts == attempt
        if attempt < MAX_ATTEMPTS:
            assert report == WorkReport(failed=1)
            assert found.not_before == clock.now() + timedelta(seconds=back_off_s(attempt))
            clock.advance(back_off_s(attempt) - 1)
            assert worker.run_due() == WorkReport()
            clock.advance(1)
    assert report == WorkReport(dead=1)
    assert (found.state, found.finished_at) == ("dead", clock.now())
    clock.advance(86_400 * 365)
    assert worker.run_due(force=True) == WorkReport()
    assert "gave up after 8 attempts" in caplog.text
    assert store.retry_job(found.job_no).attempts == 0
    assert worker.run_due() == WorkReport(done=1)
    assert (job_of(store, "a").state, results(store, "a")) == ("done", 1)


def test_an_outage_of_the_model_ends_no_job(store, clock):
    """Whatever it lasts: the job is tried again about once an hour, by itself. What is the job's own fault still counts."""
    runner = Told(store, does={"a": [LLMUnavailable("refused") for _ in range(30)]})
    worker = worker_of(store, runner)
    put(store, "a")
    for attempt in range(1, 31):
        assert worker.run_due() == WorkReport(failed=1)
        found = job_of(store, "a")
        assert (found.state, found.attempts) == ("queued", attempt)
        assert found.last_error == "LLMUnavailable: refused"
        assert found.not_before - clock.now() == timedelta(seconds=back_off_s(attempt)) <= timedelta(hours=1)
        clock.advance(back_off_s(attempt))
    runner.does["a"] = [LLMRejected("cut off") for _ in range(MAX_ATTEMPTS)]
    for _ in range(MAX_ATTEMPTS - 1):
        assert worker.run_due() == WorkReport(failed=1)
        clock.advance(RETRY_MOST_S)
    assert worker.run_due() == WorkReport(dead=1)
    assert job_of(store, "a").attempts == 30 + MAX_ATTEMPTS


def test_what_waited_out_an_outage_is_done_by_itself(store, clock):
    runner = Told(store, does={"a": [LLMUnavailable("refused")] * MAX_ATTEMPTS})
    worker = worker_of(store, runner)
    put(store, "a")
    for _ in range(MAX_ATTEMPTS):
        worker.run_due()
        clock.advance(RETRY_MOST_S)
    assert worker.run_due() == WorkReport(done=1)


def test_waits_double_up_to_an_hour():
    assert [back_off_s(n) for n in range(1, 9)] == [30, 60, 120, 240, 480, 960, 1_920, 3_600]
    assert back_off_s(10_000 // 10) == RETRY_MOST_S


def test_any_error_of_a_runner_costs_an_attempt_and_not_the_worker(store, caplog):
    caplog.set_level(logging.DEBUG, "memstore")
    runner = Told(store, does={"a": KeyError("bug"), "b": StoreBusy("locked"), "c": None})
    for name in "abc":
        put(store, name)
    assert worker_of(store, runner).run_due() == WorkReport(done=1, failed=2)
    assert job_of(store, "a").last_error == "KeyError: 'bug'"
    assert "job 1 (work) failed: KeyError: 'bug'" in caplog.text
    assert "Traceback" in caplog.text


def test_what_is_over_budget_waits_and_did_not_fail(store, clock):
    until = store._pipelines.now() + 7_200 * SECOND
    runner = Told(store, does={"a": [LLMOverBudget("the tokens of the day are used up", until)]})
    put(store, "a")
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport(postponed=1)
    found = job_of(store, "a")
    assert (found.attempts, found.last_error) == (0, "the tokens of the day are used up")
    clock.advance(7_199)
    assert worker.run_due() == WorkReport()
    clock.advance(1)
    assert worker.run_due() == WorkReport(done=1)


def test_what_is_not_due_waits_until_it_is(store, clock):
    runner = Told(store, does={"a": [NotDue(store._pipelines.now() + 10 * SECOND)]})
    put(store, "a")
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport(postponed=1)
    assert job_of(store, "a").attempts == 0
    clock.advance(10)
    assert worker.run_due() == WorkReport(done=1)


def test_work_that_was_done_on_another_way_is_looked_at_again_and_did_not_fail(store):
    runner = Told(store, does={"a": [AlreadyRunning("the cursor has moved")]})
    put(store, "a")
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport()
    assert (job_of(store, "a").state, job_of(store, "a").attempts) == ("queued", 0)
    assert worker.run_due() == WorkReport(done=1)


def test_a_lost_lease_is_left_to_who_has_it(store, clock):
    def overslept(lease):
        clock.advance(1_000)
        assert worker_of(store, Told(store)).run_due() == WorkReport(done=1)
        lease.renew()

    runner = Told(store, does={"a": overslept, "b": None})
    put(store, "a")
    worker = worker_of(store, runner)
    assert worker.run_due() == WorkReport()
    assert (results(store, "a"), job_of(store, "a").state, job_of(store, "a").attempts) == (1, "done", 2)


def test_a_failure_behind_a_lost_lease_is_not_the_new_holders(store, clock):
    def overslept(lease):
        clock.advance(1_000)
        with store._storage.write() as tx:
            assert tx.claim("work", "other", store._pipelines.now(), store._pipelines.now() + SECOND)
        return LLMRejected("late")

    put(store, "a")
    assert worker_of(store, Told(store, does={"a": overslept})).run_due() == WorkReport()
    assert (job_of(store, "a").state, job_of(store, "a").last_error) == ("running", None)


def test_a_job_that_workers_die_of_is_given_up(store, clock):
    """An attempt counts when it begins: nobody is there to count it behind a kill."""
    put(store, "a")
    for number in range(MAX_ATTEMPTS):
        with store._storage.write() as tx:
            now = store._pipelines.now()
            assert tx.claim("work", str(number), now, now + SECOND) is not None
        clock.advance(2)
    runner = Told(store)
    assert worker_of(store, runner).run_due() == WorkReport(dead=1)
    assert runner.ran == []
    assert "left half-way 8 times" in job_of(store, "a").last_error


def test_what_is_told_of_a_job_and_fails_changes_nothing(store, caplog):
    def on_job(job, outcome):
        raise RuntimeError("no place to tell it")

    for name in "ab":
        put(store, name)
    assert worker_of(store, Told(store), on_job=on_job).run_due() == WorkReport(done=2)
    assert "on_job failed behind job 1 (work): RuntimeError: no place to tell it" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_caller_gives_the_job_back_at_once(store, error):
    runner = Told(store, does={"a": [raising(error)]})
    put(store, "a")
    with pytest.raises(error):
        worker_of(store, runner).run_due()
    assert (job_of(store, "a").state, job_of(store, "a").attempts) == ("queued", 0)
    runner.does["a"] = [raising(error)]
    with pytest.raises(error):
        worker_of(store, runner).run_now("work", job_key("work", "a"))
    assert worker_of(store, runner).run_due() == WorkReport(done=1)


def test_a_cancelled_model_is_a_failed_attempt(store):
    put(store, "a")
    runner = Told(store, does={"a": [raising(asyncio.CancelledError)]})
    assert worker_of(store, runner).run_due() == WorkReport(failed=1)
    assert job_of(store, "a").last_error == "CancelledError: "


def raising(error: type[BaseException]):
    def run(lease):
        raise error

    return run


def test_each_job_is_told(store):
    heard = []
    runner = Told(store, does={"b": LLMRejected("no"), "c": NotDue(2**55)})
    for name in "abc":
        put(store, name)
    worker_of(store, runner, on_job=lambda job, outcome: heard.append((job.job_no, outcome))).run_due()
    assert heard == [(1, "done"), (2, "failed"), (3, "postponed")]


def test_done_work_is_forgotten_after_a_week(store, clock):
    runner = Told(store)
    put(store, "a")
    worker_of(store, runner).run_due()
    clock.advance(7 * 86_400)
    worker_of(store, runner).run_due()
    assert [job.kind for job in store.jobs(kind="work")] == ["work"]
    clock.advance(1)
    worker_of(store, runner).run_due()
    assert store.jobs(kind="work") == []


def test_no_transaction_is_open_while_a_runner_decides(store):
    def decides(lease):
        with store._storage.write() as tx:  # the writing lock is this thread's to take
            assert tx.holds_lease(lease.job)
        run_threads([lambda: store.record(ANA, said("meanwhile"), "chat")])

    put(store, "a")
    assert worker_of(store, Told(store, does={"a": decides})).run_due() == WorkReport(done=1)


# --- one job at once --------------------------------------------------------------------------------------------


def test_a_job_can_be_done_at_once(store):
    runner = Told(store)
    put(store, "a", 2**55)
    worker_of(store, runner).run_now("work", job_key("work", "a"))
    assert (runner.forced, results(store, "a")) == ([True], 1)


def test_a_job_that_is_not_there_is_queued_for_it(store):
    runner = Told(store)
    payload = {"team_id": "acme", "user_id": "ana", "name": "a"}
    worker_of(store, runner).run_now("work", job_key("work", "a"), payload)
    assert results(store, "a") == 1
    with pytest.raises(NotFound, match="no job of kind 'work'"):
        worker_of(store, runner).run_now("work", job_key("work", "a"))


def test_its_errors_come_out_and_count(store):
    runner = Told(
        store, does={"a": [LLMRejected("cut off"), LLMOverBudget("wait", 2**55), AlreadyRunning("done")]}
    )
    put(store, "a")
    worker = worker_of(store, runner)
    for error, attempts in ((LLMRejected, 1), (LLMOverBudget, 1), (AlreadyRunning, 1)):
        with pytest.raises(error):
            worker.run_now("work", job_key("work", "a"))
        assert (job_of(store, "a").state, job_of(store, "a").attempts) == ("queued", attempts)
    worker.run_now("work", job_key("work", "a"))
    assert results(store, "a") == 1


def test_a_job_that_another_worker_is_at_is_refused(store):
    put(store, "a")
    now = store._pipelines.now()
    with store._storage.write() as tx:
        tx.claim("work", "other", now, now + SECOND)
    payload = {"team_id": "acme", "user_id": "ana", "name": "a"}
    for given in (None, payload):
        with pytest.raises(AlreadyRunning, match="another worker"):
            worker_of(store, Told(store)).run_now("work", job_key("work", "a"), given)
    assert len(store.jobs(kind="work")) == 1, "and nothing is queued for it"


# --- in a thread ------------------------------------------------------------------------------------------------


@pytest.fixture
def with_runners(store, monkeypatch):
    """Makes the store's own worker one of these runners."""

    def given(*runners: Told) -> MemoryStore:
        monkeypatch.setattr(store, "_runners", lambda: list(runners))
        return store

    return given


def once_set(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)


def test_a_thread_does_what_comes_in(store, with_runners):
    done = threading.Event()
    runner = Told(store, does={"b": lambda lease: done.set()})
    with_runners(runner)
    thread = store.start_worker(poll_s=0.005)
    assert store.start_worker() is thread
    put(store, "a")
    put(store, "b")
    once_set(done)
    assert thread.stop()
    assert thread.stop()
    assert (thread.report, runner.ran) == (WorkReport(done=2), ["a", "b"])
    again = store.start_worker(poll_s=0.005)
    assert again is not thread
    store.close()
    assert not again.running


def test_errors_do_not_end_the_thread(store, with_runners, caplog):
    """Neither of a job nor of the queue itself."""
    done = threading.Event()
    runner = Told(store, does={"a": KeyError("bug"), "b": lambda lease: done.set()})
    sweeps = iter([RuntimeError("a sweep with a bug"), StoreBusy("locked")])

    def sweeping():
        error = next(sweeps, None)
        if error is not None:
            raise error

    runner.sweeping = sweeping
    with_runners(runner)
    put(store, "a")
    put(store, "b")
    thread = store.start_worker(poll_s=0.001)
    once_set(done)
    assert thread.stop()
    assert "a pass of the worker failed: RuntimeError: a sweep with a bug" in caplog.text
    assert thread.report == WorkReport(done=1, failed=1)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_no_error_of_a_model_ends_the_thread(store, with_runners, error):
    done = threading.Event()
    with_runners(Told(store, does={"a": raising(error), "b": lambda lease: done.set()}))
    put(store, "a")
    put(store, "b")
    thread = store.start_worker(poll_s=0.001)
    once_set(done)
    assert thread.running
    assert thread.stop()
    assert thread.report == WorkReport(done=1, failed=1)
    assert job_of(store, "a").last_error.startswith(error.__name__)


def test_where_one_hangs_that_was_told_to_end_another_is_started(open_store, monkeypatch):
    """And closing ends both."""
    monkeypatch.setattr("memstore.worker.STOP_WAIT_S", 0.01)
    store = open_store()
    asked, answers, done = threading.Event(), threading.Event(), threading.Event()

    def asks(lease):
        asked.set()
        once_set(answers)

    runner = Told(store, does={"a": [asks, lambda lease: done.set()]})
    monkeypatch.setattr(store, "_runners", lambda: [runner])
    put(store, "a")
    hangs = store.start_worker(poll_s=0.001)
    once_set(asked)
    assert not hangs.stop()
    assert hangs.ending
    second = store.start_worker(poll_s=0.001)
    assert second is not hangs
    assert store.start_worker() is second
    once_set(done)
    store.close()
    assert second.join(PATIENCE_S)
    answers.set()
    assert hangs.join(PATIENCE_S)
    assert results(open_store(), "a") == 1


def test_closing_the_store_ends_a_worker_that_waits_for_a_model(open_store, monkeypatch, clock):
    """Its job goes back at once, and what the model says in the end comes to nothing."""
    monkeypatch.setattr("memstore.worker.STOP_WAIT_S", 0.01)
    store = open_store()
    asked, answers = threading.Event(), threading.Event()

    def asks(lease):
        asked.set()
        once_set(answers)

    runner = Told(store, does={"a": asks})
    monkeypatch.setattr(store, "_runners", lambda: [runner])
    put(store, "a")
    thread = store.start_worker(poll_s=0.001)
    once_set(asked)
    assert not thread.stop()
    store.close()
    answers.set()
    assert thread.join(PATIENCE_S)
    again = open_store()
    assert (job_of(again, "a").state, job_of(again, "a").attempts, results(again, "a")) == ("queued", 0, 0)
    assert worker_of(again, Told(again)).run_due() == WorkReport(done=1)


def test_closing_waits_for_the_transaction_that_is_open(open_store, monkeypatch):
    monkeypatch.setattr("memstore.worker.STOP_WAIT_S", 0.01)
    store = open_store()
    inside, closing = threading.Event(), threading.Event()

    class Slow(Told):
        def run(self, lease, *, force=False):
            with store._storage.write() as tx:
                lease.finish(tx)
                tx.set_cursor(OF, Cursor("scenes", "a", runs=1))
                inside.set()
                once_set(closing)

    monkeypatch.setattr(store, "_runners", lambda: [Slow(store)])
    put(store, "a")
    store.start_worker(poll_s=0.001)
    once_set(inside)
    threading.Timer(0.05, closing.set).start()
    store.close()
    again = open_store()
    assert (results(again, "a"), job_of(again, "a").state) == (1, "done")


def test_a_child_of_a_fork_has_no_worker(store, with_runners):
    with_runners(Told(store))
    thread = store.start_worker(poll_s=0.005)

    def child() -> None:
        assert not thread.running
        assert thread.stop()
        assert thread.join()
        store.close()

    assert in_fork(child) == 0
    assert thread.running


def test_working_on_and_on_ends_when_the_store_is_closed(store, with_runners):
    done = threading.Event()
    with_runners(Told(store, does={"a": lambda lease: done.set()}))
    put(store, "a")
    reports = []

    def closes() -> None:
        once_set(done)
        store.close()

    run_threads([lambda: reports.append(store.work(once=False)), closes])
    assert reports[0].done <= 1
    with pytest.raises(StoreClosed):
        store.start_worker()
    with pytest.raises(StoreClosed):
        store.work()


def test_what_the_thread_at_work_cannot_do_is_refused(store, with_runners):
    with_runners(Told(store))
    thread = store.start_worker(poll_s=0.005)
    for options in ({"force": True}, {"on_job": lambda job, outcome: None}):
        with pytest.raises(InvalidInput, match="is at work already"):
            store.work(once=False, **options)
    assert thread.running


@pytest.mark.parametrize("poll_s", [0, -1, True, "1", float("nan")])
def test_a_poll_that_makes_no_sense_is_refused(store, poll_s):
    with pytest.raises(ConfigError, match="poll_s"):
        store.start_worker(poll_s)


def test_an_error_that_ends_the_process_is_not_caught():
    with pytest.raises(KeyboardInterrupt):
        attempted("x", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))


def test_the_thread_has_a_report_of_its_own_worker_only(store):
    runner = Told(store)
    put(store, "a")
    thread = WorkerThread(worker_of(store, runner), 60.0, force=True)
    thread.stop()
    assert runner.forced in ([], [True])
    assert thread.report.done == len(runner.ran)


# --- several processes ------------------------------------------------------------------------------------------


def child_worker(path: str, ahead_s: float) -> None:
    """A process with a slow model: it says when it is asked, and answers when it is told to."""

    def asks(lease: Lease) -> None:
        print("asked", flush=True)  # noqa: T201
        sys.stdin.readline()

    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=ahead_s))
    with MemoryStore(path, clock=clock, settings=FAST) as store:
        report = worker_of(store, Told(store, does={"a": asks})).run_due()
        print(json.dumps({"done": report.done, "failed": report.failed}), flush=True)  # noqa: T201


def child_recorder(path: str, number: int) -> None:
    with MemoryStore(path, clock=ManualClock(), settings=Settings(
        durability="process", timezone="UTC", reserve_bytes=0, busy_timeout_s=60
    )) as store:  # fmt: skip
        for n in range(50):
            store.record(ANA, said(f"{number}:{n}"), f"chat {number}")


def start(function: str, *args: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", f"import json, sys, test_worker as m; m.{function}(*json.loads(sys.argv[1]))",
         json.dumps([str(a) if isinstance(a, Path) else a for a in args])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}"},
    )  # fmt: skip


def answered(child: subprocess.Popen) -> dict:
    out, _ = child.communicate("go\n", timeout=PATIENCE_S)
    assert child.returncode == 0
    return json.loads(out.splitlines()[-1])


def test_of_two_processes_at_once_one_does_the_work(store):
    """Case 69: one set of results; the other finds it under way, and later done."""
    put(store, "a")
    slow = start("child_worker", store.path, 0)
    assert slow.stdout.readline() == "asked\n"
    assert answered(start("child_worker", store.path, 0)) == {"done": 0, "failed": 0}
    put(store, "a", unless=UNDER_WAY)
    assert answered(slow) == {"done": 1, "failed": 0}
    assert answered(start("child_worker", store.path, 0)) == {"done": 0, "failed": 0}
    assert (results(store, "a"), job_of(store, "a").attempts) == (1, 1)


def test_the_job_of_a_killed_worker_is_taken_over_when_its_lease_runs_out(store):
    put(store, "a")
    victim = start("child_worker", store.path, 0)
    assert victim.stdout.readline() == "asked\n"
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert answered(start("child_worker", store.path, 299)) == {"done": 0, "failed": 0}
    assert answered(start("child_worker", store.path, 300)) == {"done": 1, "failed": 0}
    assert (results(store, "a"), job_of(store, "a").attempts) == (1, 2)


def test_a_worker_that_was_too_slow_applies_nothing(store):
    put(store, "a")
    slow = start("child_worker", store.path, 0)
    assert slow.stdout.readline() == "asked\n"
    assert answered(start("child_worker", store.path, 301)) == {"done": 1, "failed": 0}
    assert answered(slow) == {"done": 0, "failed": 0}
    assert (results(store, "a"), job_of(store, "a").state) == (1, "done")


class Counting:
    """Covers the messages of a session as an extraction does: what lies behind its cursor, in one transaction."""

    kind = "extract"

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.covered: list[str] = []

    def sweep(self) -> None:
        pass

    def run(self, lease, *, force=False):
        session = lease.job.payload["session"]
        with self.store._storage.read() as reader:
            cursor = reader.cursor(OF, "extract", session)
            rows = reader.messages_after(OF, session, cursor.pos, 1_000)
        lease.renew()
        with self.store._storage.write() as tx:
            lease.finish(tx)
            if tx.cursor(OF, "extract", session) != cursor:
                raise AlreadyRunning("the cursor has moved")
            if rows:
                tx.set_cursor(OF, Cursor("extract", session, pos=rows[-1].pos, runs=cursor.runs + 1))
        self.covered += [row.id for row in rows]


def test_four_processes_record_while_workers_work(open_store, monkeypatch):
    """Case 61: nothing is lost, nothing is covered twice, and the order of each session is kept."""
    stores = [open_store(settings=Settings(
        durability="process", timezone="UTC", reserve_bytes=0, busy_timeout_s=60
    )) for _ in range(2)]  # fmt: skip
    store = stores[0]
    runners = [Counting(each) for each in stores]
    for each, runner in zip(stores, runners, strict=True):
        monkeypatch.setattr(each, "_runners", lambda r=runner: [r])
        each.start_worker(poll_s=0.001)
    children = [start("child_recorder", store.path, number) for number in range(4)]
    for child in children:
        child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0
    for each in stores:
        assert each.start_worker().stop(PATIENCE_S)
    store.work()
    recorded = []
    for number in range(4):
        said_there = store.messages(ANA, f"chat {number}")
        recorded += [message.id for message in said_there]
        assert [message.text for message in said_there] == [f"{number}:{n}" for n in range(50)]
        with store._storage.read() as reader:
            assert reader.backlog(OF, f"helper:default:chat {number}").messages == 0
    assert sorted(runners[0].covered + runners[1].covered) == sorted(recorded)
    assert [job for job in store.jobs(kind="extract") if job.state != "done"] == []


# --- the index ---------------------------------------------------------------------------------------------------


class Broken(HashEmbedder):
    def __init__(self) -> None:
        super().__init__(16)
        self.down = True

    def embed_documents(self, texts):
        if self.down:
            raise ValueError("the model is down")
        return super().embed_documents(texts)


def test_a_worker_embeds_what_was_recorded(open_store):
    store = open_store(embedder=HashEmbedder(16))
    for user in ("ana", "bo"):
        store.record(Scope("acme", user, "helper"), said("green tea"), "chat")
    assert store.work().done >= 1
    assert store.doctor().counts["pending_vectors"] == 0
    assert store.jobs(kind="index") == []
    assert store.recall(ANA, "tea").degraded == ()


def test_a_broken_model_is_tried_again_later(open_store, clock):
    model = Broken()
    store = open_store(embedder=model)
    store.record(ANA, said("green tea"), "chat")
    assert store.work().failed == 1
    [job] = store.jobs(kind="index")
    assert (job.state, job.attempts) == ("queued", 1)
    assert "the model is down" in job.last_error
    model.down = False
    clock.advance(30)
    store.work()
    assert store.jobs(kind="index") == []
    assert store.index().embedded == 0


def test_without_an_embedder_the_index_waits(store):
    store.record(ANA, said("green tea"), "chat")
    store.work()
    assert [(job.state, job.attempts) for job in store.jobs(kind="index")] == [("queued", 0)]


# --- the nightly backup ------------------------------------------------------------------------------------------


def nightly(open_store, clock, **settings) -> MemoryStore:
    zone = {"timezone": "Asia/Shanghai", "durability": "process", "reserve_bytes": 0}
    return open_store(settings=Settings(**{**zone, **settings}))


def at(clock: ManualClock, text: str) -> None:
    clock.set(datetime.fromisoformat(f"{text}+08:00"))


def test_one_backup_is_made_a_day_once_its_hour_has_come(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock)
    store.record(ANA, said("x"), "chat")
    store.work()
    assert store.backups() == [], "it was begun today"
    at(clock, "2026-03-02T02:59")
    store.work(force=True)
    assert store.backups() == []
    at(clock, "2026-03-02T03:00")
    store.work()
    assert [backup.taken_at for backup in store.backups()] == [clock.now()]
    assert Path(store.backups()[0].path).parent == Path(f"{store.path}.backups")
    [job] = store.jobs(kind="backup")
    assert (job.state, job.subject) == ("done", "2026-03-02")
    at(clock, "2026-03-02T23:59")
    store.work(force=True)
    assert len(store.backups()) == 1, "the second time it finds it done"
    at(clock, "2026-03-06T09:00")
    store.work()
    assert len(store.backups()) == 2, "missed days are not made up for"


def test_seven_are_kept(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock, backup_keep=2, nightly_backup_hour=0)
    store.record(ANA, said("x"), "chat")
    for day in range(2, 6):
        at(clock, f"2026-03-0{day}T00:00")
        store.work()
    kept = [backup for backup in store.backups() if backup.present]
    assert [backup.taken_at.astimezone(store.timezone).day for backup in kept] == [4, 5]
    assert Settings().backup_keep == 7


@pytest.mark.parametrize(("rows", "hour"), [(True, None), (False, 3)])
def test_no_backup_where_none_is_wanted_or_nothing_is_there(open_store, clock, rows, hour):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock, nightly_backup_hour=hour)
    if rows:
        store.record(ANA, said("x"), "chat")
    at(clock, "2026-03-05T12:00")
    store.work()
    assert store.backups() == []


def test_a_backup_whose_worker_died_before_it_could_say_so_is_not_made_again(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock)
    store.record(ANA, said("x"), "chat")
    at(clock, "2026-03-02T04:00")
    store.work()
    with store._storage.write() as tx:
        tx._run("UPDATE jobs SET state = 'running', lease_until = 0, leased_at = 0 WHERE kind = 'backup'")
    clock.advance(60)
    store.work()
    assert (len(store.backups()), store.jobs(kind="backup")[0].state) == (1, "done")


def test_a_clock_set_back_makes_no_second_backup_of_a_day(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock)
    store.record(ANA, said("x"), "chat")
    at(clock, "2026-03-03T04:00")
    store.work()
    at(clock, "2026-03-03T03:30")
    store.work()
    assert len(store.backups()) == 1


def test_a_backup_that_fails_is_tried_again(open_store, clock):
    at(clock, "2026-03-01T12:00")
    store = nightly(open_store, clock)
    store.record(ANA, said("x"), "chat")
    at(clock, "2026-03-02T04:00")
    in_the_way = Path(f"{store.path}.backups")
    in_the_way.write_text("no folder")
    store.work()
    assert "no folder" in store.jobs(kind="backup")[0].last_error
    in_the_way.unlink()
    clock.advance(30)
    store.work()
    assert len(store.backups()) == 1


def test_long_work_keeps_its_job_and_shows_how_far_it_is(store, clock):
    from memstore.pipelines.upkeep_jobs import renewing

    seen = []

    def long(lease):
        report = renewing(lease)
        for part in range(10):
            clock.advance(60)
            report(part, 10)
            seen.append((job_of(store, "a").lease_until, job_of(store, "a").done))
            assert worker_of(store, Told(store)).run_due() == WorkReport()

    put(store, "a")
    assert worker_of(store, Told(store, does={"a": long})).run_due() == WorkReport(done=1)
    assert len({until for until, _ in seen}) == 6
    assert seen[-1][1] == 9


# --- for operators ------------------------------------------------------------------------------------------------


def test_jobs_are_shown_to_operators(store, clock):
    store.record(ANA, said("x"), "chat")
    with store._storage.write() as tx:
        tx.drop_dead("none")
    [extract, _] = store.jobs()
    assert (extract.kind, extract.state, extract.subject) == ("extract", "queued", "helper:default:chat")
    assert (extract.team_id, extract.user_id, extract.agent_id) == ("acme", "ana", "helper")
    assert (extract.not_before, extract.created_at) == (None, clock.now())
    assert store.job(extract.job_no) == extract
    assert store.jobs("queued", "extract") == [extract]
    assert store.jobs("dead") == store.jobs(limit=0) == []


def test_all_that_gave_up_is_retried_at_once(store, clock):
    kinds = {"extract": "ab", "scenes": "c"}
    for kind, names in kinds.items():
        for name in names:
            put(store, name, kind=kind)
            with store._storage.write() as tx:
                now = store._pipelines.now()
                tx.fail(tx.claim(kind, name, now, now + SECOND), "no", now, dead=True, now=now)
    assert store.retry_jobs("extract") == 2
    assert [job.kind for job in store.jobs("dead")] == ["scenes"]
    assert store.retry_jobs() == 1
    assert store.retry_jobs() == 0
    runners = [Told(store, kind) for kind in kinds]
    assert worker_of(store, *runners).run_due() == WorkReport(done=3)


def test_wrong_questions_about_jobs_are_refused(store):
    store.record(ANA, said("x"), "chat")
    with pytest.raises(InvalidInput, match="state must be one of"):
        store.jobs("finished")
    for number in (0, -1, True, "1", 2**63):
        with pytest.raises(InvalidInput, match="number"):
            store.job(number)
    for verb in (store.job, store.retry_job):
        with pytest.raises(NotFound, match="no job 99"):
            verb(99)
    with pytest.raises(InvalidInput, match="job 1 is queued"):
        store.retry_job(1)


@pytest.mark.parametrize(
    "settings", [{"lease_s": 0}, {"lease_s": True}, {"nightly_backup_hour": 24}, {"nightly_backup_hour": 2.5}, {"backup_keep": 0}]
)  # fmt: skip
def test_settings_of_the_worker_are_checked(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Settings(**settings)


def test_doctor_names_what_gave_up_what_was_left_and_what_nobody_does(store, clock):
    def findings():
        of_queue = [f for f in store.doctor().findings if f.check in ("queue", "worker")]
        return [(f.check, f.severity, f.repair) for f in of_queue]

    nobody_works = ("worker", "info", "memstore work --once")
    store.record(ANA, said("x"), "chat")
    assert findings() == []
    clock.advance(86_399)
    assert findings() == []
    clock.advance(1)
    assert findings() == [nobody_works]
    assert store.doctor().ok
    runner = Told(store, does={"a": [LLMRejected("no")] * MAX_ATTEMPTS})
    put(store, "a")
    for _ in range(MAX_ATTEMPTS):
        worker_of(store, runner).run_due(force=True)
    put(store, "b")
    with store._storage.write() as tx:
        now = store._pipelines.now()
        tx.claim("work", "died", now, now + SECOND)
    clock.advance(2)
    dead = store.jobs("dead")[0].job_no
    assert findings() == [
        ("queue", "warning", f"memstore jobs retry {dead}"),
        ("queue", "info", "memstore work --once"),
        nobody_works,
    ]
    assert store.doctor().ok
