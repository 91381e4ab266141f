"""The queue in the database: who gets which job when, and what becomes of it."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from conftest import FAST, said
from memstore import Scope
from memstore.pipelines.work import SECOND
from memstore.storage.pipeline_rows import UNDER_WAY, Job, job_key
from memstore.storage.sqlite import SqliteStorage
from memstore.storage.sqlite.jobs import CLOCK_SLACK_US, MAX_ERROR_CHARS
from reliability_support import ROOT, TESTS

ANA = Scope("acme", "ana", "helper")
T = 1_767_225_600 * SECOND
"""When it all begins."""
TERM = 300 * SECOND
YEAR = 366 * 86_400 * SECOND


FIRST = "t1"


class Queue:
    """The queue of one store, one transaction a call."""

    def __init__(self, storage) -> None:
        self.storage = storage

    def __getattr__(self, verb):
        def call(*args, **options):
            with self.storage.write() as tx:
                return getattr(tx, verb)(*args, **options)

        return call

    def put(self, name: str, at: int = T, not_before: int = 0, kind: str = "work", **options) -> None:
        self.enqueue(kind, job_key(kind, name), {"name": name}, at, not_before, **options)

    def take(self, token=FIRST, at: int = T, kind: str = "work", **options) -> Job | None:
        return self.claim(kind, token, at, at + TERM, **options)

    def name(self, token=FIRST, at: int = T, **options) -> str | None:
        job = self.take(token, at, **options)
        return None if job is None else job.payload["name"]

    def states(self, name: str | None = None) -> list[str]:
        return [j.state for j in self.all() if name is None or j.payload.get("name") == name]

    def all(self) -> list[Job]:
        with self.storage.read() as reader:
            return list(reversed(reader.jobs(None, None, None, 1_000)))

    def only(self) -> Job:
        [job] = self.all()
        return job


@pytest.fixture
def queue(store) -> Queue:
    return Queue(store._storage)


# --- queueing ---------------------------------------------------------------------------------------------------


def test_the_same_work_is_queued_once_and_becomes_due_at_the_earlier_time(queue):
    queue.put("a", T, T + 50)
    queue.put("a", T + 1, T + 90)
    assert (queue.only().not_before, queue.only().created_at) == (T + 50, T)
    queue.put("a", T + 2, T + 10)
    assert queue.only().not_before == T + 10
    queue.put("a", T + 3, T + 70, latest=True)
    assert queue.only().not_before == T + 70


def test_news_do_not_cut_a_back_off_short(queue):
    queue.put("a")
    queue.fail(queue.take(), "broken", T + 60, dead=False, now=T)
    queue.put("a", T + 1)
    assert (queue.only().not_before, queue.only().attempts) == (T + 60, 1)
    assert queue.take("t2", T + 59) is None
    assert queue.take("t2", T + 60).attempts == 2


def test_a_sweep_leaves_alone_what_is_under_way(queue):
    queue.put("waits", T, T + 100)
    queue.put("runs")
    queue.put("gave up")
    assert queue.name() == "runs"
    queue.fail(queue.take(), "broken", T, dead=True, now=T)
    for name in ("waits", "runs", "gave up"):
        queue.put(name, T + 1, unless=UNDER_WAY)
    assert [queue.states(name) for name in ("waits", "runs", "gave up")] == [
        ["queued"],
        ["running"],
        ["dead"],
    ]
    assert queue.all()[0].not_before == T + 100
    queue.put("gave up", T + 1)  # what somebody said anew does queue it
    assert queue.states("gave up") == ["dead", "queued"]
    queue.put("new", unless=UNDER_WAY)
    assert queue.states("new") == ["queued"]
    queue.put("new", unless=("done",))
    assert queue.states("new") == ["queued"]


def test_the_owner_is_in_columns_of_its_own(queue):
    queue.enqueue("x", "k", {"team_id": "acme", "user_id": "ana", "agent_id": "helper"}, T)
    job = queue.only()
    assert (job.team_id, job.user_id, job.agent_id) == ("acme", "ana", "helper")


def test_keys_of_different_work_differ():
    assert job_key("extract", "a", "b,c") != job_key("extract", "a,b", "c")
    assert job_key("a", '"b"') != job_key('a"', "b")


# --- claiming -----------------------------------------------------------------------------------------------------


def test_a_claim_counts_an_attempt_and_holds_the_job(queue):
    queue.put("a")
    job = queue.take()
    assert (job.attempts, job.state, job.lease_token, job.lease_until) == (1, "running", "t1", T + TERM)
    assert queue.holds_lease(job)
    assert queue.take("t2") is None
    assert queue.only() == job


def test_jobs_come_in_the_order_in_which_they_were_due_and_queued(queue):
    for name, due in (("third", 7), ("first", 0), ("second", 0), ("fourth", 9), ("not yet", T + 1)):
        queue.put(name, T, due)
    assert [queue.name(str(n)) for n in range(5)] == ["first", "second", "third", "fourth", None]


def test_kinds_are_apart(queue):
    queue.put("a", kind="one")
    assert queue.take(kind="two") is None
    assert queue.take(kind="one").kind == "one"


def test_work_whose_like_is_running_waits(queue):
    queue.put("a")
    queue.put("b")
    first = queue.take()
    queue.put("a", T + 1)  # news, while it is being worked on
    assert queue.states("a") == ["running", "queued"]
    assert queue.name("t2") == "b"
    assert queue.take("t3", early=True) is None
    queue.finish(first, T + 2)
    assert queue.name("t4", T + 2) == "a"


def test_a_lease_that_ran_out_is_taken_over_and_the_old_holder_is_fenced(queue):
    queue.put("a")
    old = queue.take()
    assert queue.take("t2", T + TERM - 1) is None
    new = queue.take("t2", T + TERM)
    assert (new.job_no, new.attempts) == (old.job_no, 2)
    assert not queue.holds_lease(old)
    assert not queue.renew(old, T, T + YEAR)
    queue.finish(old, T)
    queue.postpone(old, T, T)
    queue.fail(old, "late", T, dead=True, now=T)
    queue.note_progress(old, 1, 2)
    queue.note_cost(old, 1, 1, 1)
    assert queue.only() == new
    assert queue.renew(new, T + TERM, T + 3 * TERM)
    assert queue.take("t3", T + 2 * TERM) is None


def test_what_was_left_behind_comes_before_its_like_that_waits(queue):
    """The other way round its old holder, slow and not dead, would still hold a lease beside the new one."""
    queue.put("a")
    old = queue.take()
    queue.put("a", T + 1)
    again = queue.take("t2", T + TERM)
    assert again.job_no == old.job_no
    assert not queue.holds_lease(old)
    assert queue.take("t3", T + TERM) is None


def test_one_pass_gets_each_job_once(queue):
    queue.put("a")
    for back in (
        lambda job: queue.postpone(job, T, 0),
        lambda job: queue.fail(job, "broken", 0, dead=False, now=T),
    ):
        token = f"pass {back}"
        back(queue.take(token))
        assert queue.take(token) is None
        assert queue.take(token, early=True) is None
    assert queue.take("another pass") is not None


def test_early_takes_what_is_not_due_but_nothing_that_queued_itself_again(queue):
    queue.put("a", T, T + YEAR)
    assert queue.take() is None
    job = queue.take(early=True)
    queue.finish(job, T)
    queue.put("a", T, T + YEAR)
    assert queue.take(early=True) is None
    assert queue.take("t2", early=True) is not None


def test_early_takes_what_queued_itself_again_and_is_due(queue):
    """A session with more messages than one run takes."""
    queue.put("a")
    queue.finish(queue.take(early=True), T)
    queue.put("a")
    assert queue.take(early=True) is not None


def test_a_job_can_be_claimed_by_its_key(queue):
    queue.put("a")
    queue.put("b", T, T + YEAR)
    key = job_key("work", "b")
    assert queue.take(dedupe_key=key) is None
    assert queue.name(dedupe_key=key, early=True) == "b"
    assert queue.take("t2", dedupe_key=key, early=True) is None
    assert queue.job_named(key).state == "running"
    assert queue.job_named(job_key("work", "c")) is None
    assert queue.take("t3", T + TERM, dedupe_key=key).attempts == 2


# --- a clock that was set back -----------------------------------------------------------------------------------


def test_a_clock_set_back_makes_waiting_jobs_due(queue):
    queue.put("a", T, T + 3_600 * SECOND)
    queue.put("b", T)
    queue.fail(queue.take(), "broken", T + 3_600 * SECOND, dead=False, now=T)
    assert queue.take("t2", T) is None
    early = T - YEAR
    assert {queue.name("t3", early), queue.name("t3", early)} == {"a", "b"}


def test_a_clock_set_back_ends_leases_of_the_future(queue):
    queue.put("a")
    held = queue.take()
    assert queue.take("t2", T - CLOCK_SLACK_US) is None, "clocks of two processes may differ a little"
    assert queue.take("t2", T - CLOCK_SLACK_US - 1).job_no == held.job_no
    assert not queue.holds_lease(held)


def test_what_is_queued_anew_after_the_clock_was_set_back_keeps_its_time(queue):
    queue.put("a", T - YEAR, T - YEAR + 60 * SECOND)
    assert queue.take("t1", T - YEAR) is None
    assert queue.take("t2", T - YEAR + 60 * SECOND) is not None


# --- the end of an attempt ---------------------------------------------------------------------------------------


def test_done_work_stays_to_be_looked_at_and_takes_its_dead_letters_along(queue):
    queue.put("a")
    queue.fail(queue.take(), "broken", T, dead=True, now=T)
    queue.put("a", T + 1)
    job = queue.take("t2", T + 1)
    queue.note_cost(job, 1, 20, 3)
    queue.note_cost(job, 1, 5, 2)
    queue.note_progress(job, 4, 9)
    queue.finish(job, T + 5)
    done = queue.only()
    assert (done.state, done.finished_at, done.last_error, done.lease_until) == ("done", T + 5, None, None)
    assert done.cost == {"calls": 2, "input_tokens": 25, "output_tokens": 5}
    assert (done.done, done.total) == (4, 9)
    queue.finish(job, T + 6)
    assert queue.only() == done
    assert queue.take("t3", T + YEAR) is None


def test_work_that_is_not_to_be_looked_at_goes(queue):
    queue.put("a")
    queue.finish(queue.take())
    assert queue.all() == []


def test_old_work_is_forgotten(queue):
    for number, name in enumerate("abc"):
        queue.put(name)
        queue.finish(queue.take(name), T + number)
    queue.put("waits")
    assert queue.prune_jobs(T + 2) == 2
    assert [job.payload["name"] for job in queue.all()] == ["c", "waits"]


def test_what_is_put_off_did_not_fail(queue):
    queue.put("a")
    queue.postpone(queue.take(), T, T + 9)
    assert (queue.only().attempts, queue.only().not_before, queue.only().last_error) == (0, T + 9, None)
    queue.postpone(queue.take("t2", T + 9), T + 9, T + 20, "over budget")
    assert queue.only().last_error == "over budget"


def test_news_that_came_while_a_job_was_put_off_keep_their_time(queue):
    queue.put("a")
    job = queue.take()
    queue.note_cost(job, 1, 2, 3)
    queue.put("a", T + 1)
    queue.postpone(job, T + 1, T + YEAR)
    merged = queue.only()
    assert (merged.job_no, merged.not_before, merged.state) == (job.job_no, 0, "queued")
    assert merged.cost == {"calls": 1, "input_tokens": 2, "output_tokens": 3}
    assert queue.take("t1", T + 1) is not None, "in the same pass: they are news"


def test_news_that_came_while_a_job_failed_wait_with_it(queue):
    queue.put("a")
    job = queue.take()
    queue.put("a", T + 1)
    queue.fail(job, "broken", T + YEAR, dead=False, now=T + 1)
    merged = queue.only()
    assert (merged.attempts, merged.not_before, merged.last_error) == (1, T + YEAR, "broken")


def test_outages_are_told_from_attempts_that_speak_against_the_job(queue):
    queue.put("a")
    queue.fail(queue.take("t1"), "no model", T, dead=False, now=T, outage=True)
    job = queue.take("t2")
    assert (job.attempts, job.outages, job.counted) == (2, 1, 1)
    queue.put("a", T + 1)
    queue.postpone(job, T + 1, T)
    assert (queue.only().attempts, queue.only().outages, queue.only().counted) == (1, 1, 0)
    queue.put("a", T + 1)
    queue.fail(queue.take("t3", T + 1), "cut off", T, dead=True, now=T)
    assert (queue.only().attempts, queue.only().outages) == (2, 1)
    queue.retry_job(queue.only().job_no, T)
    assert (queue.only().attempts, queue.only().outages) == (0, 0)


def test_an_error_is_kept_within_bounds(queue):
    queue.put("a")
    queue.fail(queue.take(), "x" * 10_000, T, dead=False, now=T)
    assert len(queue.only().last_error) == MAX_ERROR_CHARS


def test_a_dead_letter_waits_for_a_person(queue):
    queue.put("a")
    queue.fail(queue.take(), "broken", T, dead=True, now=T + 3)
    dead = queue.only()
    assert (dead.state, dead.attempts, dead.last_error, dead.finished_at) == ("dead", 1, "broken", T + 3)
    assert queue.take("t2", T + YEAR, early=True) is None
    assert queue.prune_jobs(T + YEAR) == 0
    assert queue.retry_job(dead.job_no, T + 9)
    again = queue.only()
    assert (again.job_no, again.state, again.attempts, again.not_before) == (dead.job_no, "queued", 0, 0)
    assert not queue.retry_job(dead.job_no, T + 9), "it waits already"
    assert not queue.retry_job(dead.job_no + 1, T)
    assert queue.take("t3", T + 9).attempts == 1


def test_of_the_same_work_one_dead_letter_is_enough(queue):
    for number in range(3):
        queue.put("a")
        queue.fail(queue.take(str(number)), f"broken {number}", T, dead=True, now=T)
    assert (queue.only().last_error, queue.only().state) == ("broken 2", "dead")


def test_all_dead_letters_are_queued_anew_or_those_of_a_kind(queue):
    for name, kind in (("a", "x"), ("b", "x"), ("c", "y")):
        queue.put(name, kind=kind)
        queue.fail(queue.take(name, kind=kind), "broken", T, dead=True, now=T)
    queue.put("b", T + 1, T + YEAR, kind="x")
    queue.put("waits", T, T + YEAR, kind="x")
    assert queue.retry_jobs("x", T + 2) == 2
    assert (queue.states("a"), queue.states("b"), queue.states("c")) == (["queued"], ["queued"], ["dead"])
    assert queue.retry_jobs(None, T + 2) == 1
    assert queue.retry_jobs(None, T + 2) == 0
    assert [job.not_before for job in queue.all()] == [0, 0, 0, T + YEAR]


def test_a_dead_letter_whose_like_waits_gives_way_to_it(queue):
    queue.put("a")
    queue.fail(queue.take(), "broken", T, dead=True, now=T)
    dead = queue.only()
    queue.put("a", T, T + YEAR)
    assert queue.retry_job(dead.job_no, T + 1)
    assert (queue.only().job_no > dead.job_no, queue.only().not_before) == (True, 0)


def test_jobs_are_listed_with_filters(queue):
    queue.enqueue("x", "1", {"team_id": "acme", "user_id": "ana"}, T)
    queue.enqueue("y", "2", {"team_id": "acme", "user_id": "bo"}, T)
    queue.take("t", kind="x")
    with queue.storage.read() as reader:
        assert [job.kind for job in reader.jobs(None, None, None, 10)] == ["y", "x"]
        assert [job.kind for job in reader.jobs("running", None, None, 10)] == ["x"]
        assert [job.kind for job in reader.jobs(None, "y", None, 10)] == ["y"]
        assert reader.jobs(None, None, None, 1)[0].kind == "y"
        assert reader.next_due(["y"]) == 0
        assert reader.next_due(["x"]) == T + TERM
        assert reader.next_due(["z"]) is None


# --- many at once -------------------------------------------------------------------------------------------------

CLAIMANT = """
import json, sys
from pathlib import Path
from memstore.storage.sqlite import SqliteStorage
path, token, now = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
storage = SqliteStorage(path, busy_timeout_s=60, durability="process")
print("ready", flush=True)
sys.stdin.readline()
got = []
while True:
    with storage.write() as tx:
        job = tx.claim("work", token, now, now + 300_000_000)
    if job is None:
        break
    got.append(job.payload["name"])
    with storage.write() as tx:
        tx.finish(job, now)
storage.close()
print(json.dumps(got))
"""


def test_two_processes_get_each_job_once(open_store):
    store = open_store()
    queue = Queue(store._storage)
    with store._storage.write() as tx:
        for number in range(300):
            tx.enqueue("work", job_key("work", str(number)), {"name": str(number)}, T)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMANT, str(store.path), f"p{n}", str(T)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": f"{ROOT}:{TESTS}"},
        )
        for n in range(2)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    got = [json.loads(child.communicate()[0]) for child in children]
    assert sorted(map(int, got[0] + got[1])) == list(range(300))
    assert set(queue.states()) == {"done"}
    assert {job.attempts for job in queue.all()} == {1}


# --- cost ---------------------------------------------------------------------------------------------------------


def plans(storage: SqliteStorage, statements: list[str]) -> list[str]:
    with storage.exclusive_connection() as connection:
        return [
            line
            for statement in statements
            for *_, line in connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", (None,) * statement.count("?")
            ).fetchall()
        ]


def test_no_step_of_a_job_walks_the_queue(open_store):
    seen: list[str] = []
    store = open_store(statement_hook=seen.append)
    queue = Queue(store._storage)
    queue.put("a")
    queue.put("b")
    seen.clear()
    queue.put("c", unless=UNDER_WAY)
    queue.put("c", latest=True)
    job = queue.take(early=True)
    queue.take("t2", dedupe_key=job_key("work", "b"), early=True)
    queue.renew(job, T, T + TERM)
    queue.note_cost(job, 1, 1, 1)
    queue.note_progress(job, 1, 1)
    queue.put("a")
    queue.postpone(job, T, T)
    job = queue.take("t3")
    queue.fail(job, "x", T, dead=False, now=T)
    job = queue.take("t4")
    queue.fail(job, "x", T, dead=True, now=T)
    queue.retry_job(job.job_no, T)
    queue.finish(queue.take("t5"), T)
    queue.prune_jobs(T)
    queue.job_named("a")
    ours = [
        s
        for s in dict.fromkeys(seen)
        if "jobs" in s and s.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT")
    ]
    assert len(ours) > 12
    lines = plans(store._storage, ours)
    assert [line for line in lines if re.match(r"SCAN (j|r|d|jobs)\b", line)] == []
    claims = [s for s in ours if s.startswith("SELECT coalesce(")]
    assert len(claims) == 3
    sorts = [line for line in plans(store._storage, claims) if "TEMP B-TREE" in line]
    assert len(sorts) == 2, "only what runs is sorted, and never what waits"
    by_key = [
        line for claim in claims if "dedupe_key = ?" in claim for line in plans(store._storage, [claim])
    ]
    assert not [line for line in by_key if "jobs_due" in line or "jobs_set_ahead" in line]


def test_a_claim_costs_the_same_in_a_queue_of_100_000(open_store):
    """Counted in steps of SQLite's machine: done ones, waiting ones and ones of other kinds play no part."""
    store = open_store()
    queue = Queue(store._storage)

    def steps() -> int:
        taken = 0

        def ended(event) -> None:
            nonlocal taken
            taken += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

        import apsw

        with store._storage.exclusive_connection() as connection:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, ended)
        queue.put("mine", T, T)
        with store._storage.write() as tx:
            assert tx.claimable("work", "t", T) is not None
            assert tx.claimable("other kind", "t", T) is None
        queue.finish(queue.take(), T)
        with store._storage.exclusive_connection() as connection:
            connection.trace_v2(0, None)
        return taken

    before = steps()
    with store._storage.write() as tx:
        for number in range(25_000):
            row = (f"k{number}", T + YEAR, T)
            for state, kind in (("queued", "work"), ("done", "work"), ("dead", "work"), ("done", "index")):
                tx._run(
                    "INSERT INTO jobs (kind, dedupe_key, state, not_before, queued_at, created_at, finished_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (kind, row[0], state, row[1], row[2], T, T + YEAR),
                )
    assert steps() <= before + 20


def test_recording_queues_the_extraction_of_the_session_once(store, clock):
    store.record(ANA, said("one", "two"), "chat")
    store.record(ANA, said("three"), "chat")
    store.record(replace(ANA, user_id="bo"), said("four"), "chat")
    with store._storage.read() as reader:
        found = reader.jobs(None, "extract", None, 10)
    assert [(job.user_id, job.payload["session"]) for job in found] == [
        ("bo", "helper:default:chat"),
        ("ana", "helper:default:chat"),
    ]
    assert FAST.lease_s == 300
