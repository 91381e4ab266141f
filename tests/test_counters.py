"""Cost by counting: statements, plans and virtual-machine steps do not grow with rows that are not asked for, and what
is acknowledged costs the syncs that it must."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw
import pytest

from conftest import said
from memstore import MemoryStore, NotPermitted, Scope, Settings
from memstore.testing import FaultPlan, FaultVFS, FaultyFiles, HashEmbedder, ManualClock
from reliability_support import run_threads

ANA = Scope("acme", "ana", "helper")
SMALL, LARGE = 50, 3_000
WORDS = ("rain", "snow", "周四下午", "数据库", "berlin", "coffee")


class Seen:
    """A statement hook that remembers what ran while it was on."""

    def __init__(self) -> None:
        self.on = False
        self.statements: list[str] = []

    def __call__(self, statement: str) -> None:
        if self.on:
            self.statements.append(statement)

    def during(self, work: Callable[[], object]) -> list[str]:
        self.on, self.statements = True, []
        try:
            work()
        finally:
            self.on = False
        return self.statements


def text(number: int) -> str:
    return f"{WORDS[number % 6]} and {WORDS[number // 6 % 6]}, entry {number % 40}"


def fill(store: MemoryStore, scope: Scope, rows: int, *, session: str = "filling") -> None:
    store.record(scope, said(*(text(number) for number in range(rows))), session)
    for number in range(rows // 10):
        store.add(scope, text(number))


WORK: dict[str, Callable[[MemoryStore], object]] = {
    "record one message": lambda store: store.record(ANA, said("one more message"), "chat"),
    "record fifty messages": lambda store: store.record(ANA, said(*(text(n) for n in range(50))), "chat"),
    "record a transcript": lambda store: store.record(
        ANA, said("start", "next"), "transcript", transcript=True
    ),
    "recall": lambda store: store.recall(ANA, "rain 周四下午"),
    "recall for a longer answer": lambda store: store.recall(ANA, "rain 周四下午", 20),
    "search_messages": lambda store: store.search_messages(ANA, "rain 周四下午"),
    "get_all": lambda store: store.get_all(ANA),
    "add": lambda store: store.add(ANA, "one more memory"),
    "messages": lambda store: store.messages(ANA, "chat", last=5),
    "count": lambda store: store.count(ANA),
}


@contextmanager
def grown(folder, name: str, by: str, rows: int) -> Iterator[tuple[MemoryStore, Seen]]:
    """A store in which ana has 60 messages and 6 memories, beside ``rows`` others."""
    seen = Seen()
    with MemoryStore(folder / f"{name}.db", HashEmbedder(dim=8), statement_hook=seen) as store:
        fill(store, ANA, 60)
        if by == "the same user":
            fill(store, ANA, rows)
        else:
            for number in range(5):
                team = "acme" if by == "users of the team" else f"team {number}"
                fill(store, Scope(team, f"user {number}", "helper"), rows // 5)
        store.index()
        store.record(ANA, said("start"), "chat")
        yield store, seen


@pytest.mark.parametrize("by", ["the same user", "users of the team", "users of other teams"])
def test_the_number_of_statements_does_not_grow_with_the_store(tmp_path, by):
    counted = []
    for rows in (SMALL, LARGE):
        with grown(tmp_path, f"{rows}", by, rows) as (store, seen):
            for work in WORK.values():  # connections, caches and tables as in the middle of a life
                work(store)
            counted.append({name: len(seen.during(lambda w=work: w(store))) for name, work in WORK.items()})
    for name in WORK:
        assert counted[0][name] == counted[1][name], name
    assert counted[1]["record one message"] <= 21  # one of them queues the extraction of the session
    assert counted[1]["recall"] <= 25
    assert counted[1]["search_messages"] <= 20
    assert counted[1]["record fifty messages"] - counted[1]["record one message"] <= 4 * 49


# --- plans ----------------------------------------------------------------------------------------------------

BIG_TABLES = (
    "messages", "memories", "memory_versions", "members", "sessions", "owners", "pending_vectors", "jobs", "sources",
    "vectors_1_messages", "vectors_1_memories", "teams",
)  # fmt: skip


def scans(connection: apsw.Connection, statement: str) -> list[str]:
    """The lines of a statement's plan that walk a whole table of ours (by a covering index too)."""
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (None,) * statement.count("?")).fetchall()
    aliases = {
        match[2]: match[1]
        for match in re.finditer(
            r"\b(?:FROM|JOIN)\s+(\w+)\s+(?!WHERE|ON|ORDER|JOIN|USING|LEFT|CROSS)(\w+)", statement
        )
    }
    found = []
    for *_, line in plan:
        match = re.match(r"SCAN (\w+)", line)
        if match and aliases.get(match[1], match[1]) in BIG_TABLES:
            found.append(line)
    return found


MORE_WORK: dict[str, Callable[[MemoryStore], object]] = {
    **WORK,
    "filters": lambda store: store.recall(
        ANA, "rain", kinds=["episodic"], since=0, until=2**40, session="chat", metadata={"a": 1}
    ),
    "as of": lambda store: store.recall(ANA, "rain", as_of=0, explain=True),
    "message filters": lambda store: store.search_messages(
        ANA, "rain", roles=["user"], since=0, session="chat", live_only=True, explain=True
    ),
    "update": lambda store: store.update(ANA, store.add(ANA, "x").id, content="y"),
    "delete a memory": lambda store: store.delete(ANA, store.add(ANA, "x").id),
    "delete a message": lambda store: store.delete(ANA, store.record(ANA, said("x"), "chat").ids[0]),
    "history": lambda store: store.history(ANA, store.add(ANA, "x").id),
    "idempotency": lambda store: [store.add(ANA, "x", idempotency_key="k") for _ in range(2)],
    "get": lambda store: store.get(ANA, store.record(ANA, said("x"), "chat").ids[0]),
    "sessions": lambda store: store.sessions(ANA),
    "a session's record": lambda store: store.set_session(ANA, "chat", title="x"),
    "clear": lambda store: store.clear_session(ANA, "chat"),
    "fork": lambda store: store.record(ANA, said("start", "other"), "transcript", transcript=True),
    "delete a session": lambda store: store.delete_session(ANA, "chat"),
    "delete all of a task": lambda store: store.delete_all(Scope("acme", "ana", "helper", "none")),
    "index": lambda store: store.index(),
    "a page further on": lambda store: store.get_all(ANA, 2, store.get_all(ANA, 2).next_cursor),
}


def test_no_statement_walks_a_whole_table(tmp_path):
    with grown(tmp_path, "plans", "users of the team", 200) as (store, seen):
        statements: dict[str, str] = {}
        for name, work in MORE_WORK.items():
            for statement in seen.during(lambda w=work: w(store)):
                statements.setdefault(statement, name)
        with store._storage.exclusive_connection() as connection:
            walked = {
                (statements[statement], statement[:160]): found
                for statement in statements
                if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "INSERT")
                if (found := scans(connection, statement))
            }
    assert walked == {}
    assert len(statements) > 40


def test_a_scan_would_be_seen(store):
    """The test above can fail."""
    with store._storage.exclusive_connection() as connection:
        assert scans(connection, "SELECT m.id FROM messages m WHERE m.name = ?")
        assert scans(connection, "SELECT count(*) FROM messages WHERE state = 'live'")
        assert scans(connection, "DELETE FROM jobs WHERE last_error = ?")
        assert not scans(connection, "SELECT m.id FROM messages m WHERE m.slot BETWEEN ? AND ?")


# --- virtual-machine steps --------------------------------------------------------------------------------------


class Steps:
    """Steps of the statements on a store's connections: ours, and those that FTS5 runs on its own tables."""

    def __init__(self, store: MemoryStore) -> None:
        self.ours = self.inside = 0
        self._last: dict[tuple[int, str], int] = {}
        with store._storage.exclusive_connection() as writer, store._storage.read() as reader:
            self._connections = [writer, reader._connection]

    def _ended(self, event: dict) -> None:
        steps = event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]
        if "'main'.'text_" not in event["sql"]:
            self.ours += steps
            return
        key = (id(event["connection"]), event["sql"])  # counters of statements inside are never reset
        before = self._last.get(key, 0)
        self._last[key] = steps
        self.inside += steps - before if steps >= before else steps

    def of(self, work: Callable[[], object]) -> tuple[int, int]:
        """(ours, inside) of the second of two runs; the first one is for caches."""
        for connection in self._connections:
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._ended)
        try:
            work()
            self.ours = self.inside = 0
            work()
        finally:
            for connection in self._connections:
                connection.trace_v2(0, None)
        return self.ours, self.inside


STEPPED = {
    "record": lambda store: store.record(ANA, said("one more message"), "chat"),
    "recall": lambda store: store.recall(ANA, "rain 周四下午"),
    "search_messages": lambda store: store.search_messages(ANA, "rain 周四下午"),
    "get_all": lambda store: store.get_all(ANA),
    "messages": lambda store: store.messages(ANA, "filling", last=10),
    "sessions": lambda store: store.sessions(ANA),
    "count": lambda store: store.count(ANA),
    "delete_all": lambda store: store.delete_all(Scope("acme", "ana", "helper", "none")),
}


def steps_between(folder, by: str) -> tuple[dict[str, tuple[int, int]], dict[str, tuple[int, int]]]:
    """Steps of each verb in a small store, and in one with twenty times more rows of others."""
    totals = []
    for rows in (100, 2_000):
        with grown(folder, f"{rows}", by, rows) as (store, _):
            totals.append({name: Steps(store).of(lambda w=work: w(store)) for name, work in STEPPED.items()})
    return totals[0], totals[1]


def test_steps_do_not_grow_with_other_teams(tmp_path):
    small, large = steps_between(tmp_path, "users of other teams")
    for name in STEPPED:
        assert small[name][0] > 20
        for before, after in zip(small[name], large[name], strict=True):
            assert abs(after - before) <= 0.1 * before, (name, small[name], large[name])
    assert small["recall"][1] > 100  # FTS5 was seen at work
    assert small["record"][1] > 10


def test_steps_grow_with_other_users_of_the_team_inside_fts5_only(tmp_path):
    small, large = steps_between(tmp_path, "users of the team")
    for name in STEPPED:
        assert abs(large[name][0] - small[name][0]) <= 0.1 * small[name][0], (name, small[name], large[name])


def test_the_steps_of_indexing_a_batch_do_not_grow_with_what_waits(tmp_path):
    """Twice the rows, twice the steps: no batch walks the queue."""
    used = []
    for rows in (500, 2_000):
        seen = Seen()
        with MemoryStore(tmp_path / f"{rows}.db", HashEmbedder(dim=8), statement_hook=seen) as store:
            store.record(ANA, said("first"), "chat")
            store.index()
            store.record(ANA, said(*(text(n) for n in range(rows))), "chat")
            steps = Steps(store)
            for connection in steps._connections:
                connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, steps._ended)
            assert store.index().embedded == rows
            used.append(steps.ours)
    assert used[1] <= 4.4 * used[0], used


# --- syncs ----------------------------------------------------------------------------------------------------


@contextmanager
def counted(folder, durability: str) -> Iterator[tuple[MemoryStore, FaultPlan]]:
    """A store in the middle of a day, whose file operations are counted: the day file is there, nothing waits."""
    plan = FaultPlan()
    settings = Settings(durability=durability, timezone="UTC", idle_checkpoint_s=None)
    with (
        FaultVFS(plan) as layer,
        MemoryStore(
            folder / "memory.db",
            clock=ManualClock(),
            settings=settings,
            vfs=layer.name,
            files=FaultyFiles(plan),
        ) as store,
    ):
        store.record(ANA, said("start"), "chat")
        store.record(ANA, said("start"), "other", transcript=True)
        store.add(ANA, "start")
        plan.reset()
        yield store, plan


def syncs(plan: FaultPlan) -> tuple[int, int]:
    """(of day files, of the database and its log); nothing else is synced."""
    of_days, of_database = (
        plan.count("sync", "*.jsonl"),
        plan.count("sync", "memory.db*") - plan.count("sync", "memory.db.fallback*"),
    )
    assert of_days + of_database == plan.count("sync")
    return of_days, of_database


COVERED: dict[str, Callable[[MemoryStore], object]] = {
    "record": lambda store: store.record(ANA, said("one more"), "chat"),
    "record many": lambda store: store.record(ANA, said(*(text(n) for n in range(50))), "chat"),
    "a new session": lambda store: store.record(ANA, said("one more"), "new"),
    "a new user": lambda store: store.record(Scope("acme", "bo", "helper"), said("one more"), "chat"),
    "a new team": lambda store: store.record(Scope("umbrella", "cy", "helper"), said("one more"), "chat"),
    "transcript": lambda store: store.record(ANA, said("start", "next"), "other", transcript=True),
    "fork": lambda store: store.record(ANA, said("otherwise", "next"), "other", transcript=True),
    "a session's record": lambda store: store.set_session(ANA, "chat", title="x"),
    "clear": lambda store: store.clear_session(ANA, "chat"),
    "delete a session": lambda store: store.delete_session(ANA, "chat"),
    "delete a message": lambda store: store.delete(ANA, store.messages(ANA, "chat")[0].id),
}
UNCOVERED: dict[str, Callable[[MemoryStore], object]] = {
    "add": lambda store: store.add(ANA, "one more memory"),
    "update": lambda store: store.update(ANA, store.get_all(ANA)[0].id, content="another"),
    "delete a memory": lambda store: store.delete(ANA, store.get_all(ANA)[0].id),
}


@pytest.mark.parametrize("name", COVERED)
def test_what_the_fallback_covers_costs_one_sync_of_it_and_none_of_the_database(tmp_path, name):
    with counted(tmp_path, "disk") as (store, plan):
        COVERED[name](store)
        assert syncs(plan) == (1, 0)
        assert plan.count("write", "*-wal") > 0


@pytest.mark.parametrize("name", UNCOVERED)
def test_what_it_does_not_cover_costs_one_sync_of_the_log(tmp_path, name):
    with counted(tmp_path, "disk") as (store, plan):
        UNCOVERED[name](store)
        assert syncs(plan) == (0, 1)


def test_every_call_has_its_own_sync(tmp_path):
    """N: 30 calls one after another."""
    with counted(tmp_path, "disk") as (store, plan):
        for number in range(30):
            store.record(ANA, said(f"word {number}"), "chat")
            assert syncs(plan) == (number + 1, 0)


def test_nothing_is_synced_where_only_the_process_may_die(tmp_path):
    with counted(tmp_path, "process") as (store, plan):
        for work in (*COVERED.values(), *UNCOVERED.values()):
            with_its_rows(store)
            work(store)
        assert syncs(plan) == (0, 0)
        assert plan.count("write", "*.jsonl") >= len(COVERED)


def with_its_rows(store: MemoryStore) -> None:
    """What the pieces of work above look for, whichever came before."""
    store.record(ANA, said("there"), "chat")
    store.add(ANA, "there")


@pytest.mark.parametrize("callers", [2, 16])
def test_callers_that_come_at_the_same_time_share_a_sync(tmp_path, callers):
    """All wait before the first one is let through; each has its own answer."""
    with counted(tmp_path, "disk") as (store, plan):
        grouping = store._journal._grouping
        receipts = {}

        def call(number: int) -> None:
            receipts[number] = store.record(ANA, said(f"caller {number}"), f"chat {number}")

        def let_through() -> None:
            try:
                while len(grouping._waiting) < callers:
                    os.sched_yield()
            finally:
                grouping.leading.release()

        grouping.leading.acquire()
        run_threads([let_through, *(lambda n=number: call(n) for number in range(callers))])
        assert syncs(plan) == (1, 0)
        assert {receipt.stored for receipt in receipts.values()} == {"both"}
        for number, receipt in receipts.items():
            assert [m.id for m in store.messages(ANA, f"chat {number}")] == list(receipt.ids)
            assert store.get(ANA, receipt.ids[0]).content == f"caller {number}"


def test_a_fault_of_one_call_is_not_paid_by_those_that_shared_its_transaction(tmp_path):
    """A stranger to the team among them is refused; the others share one sync all the same."""
    with counted(tmp_path, "disk") as (store, plan):
        store.record(Scope("acme", "bo", "helper"), said("start"), "chat")
        with store._storage.write() as tx:
            tx._run("UPDATE teams SET auto_join = 0")
        plan.reset()
        grouping, outcomes = store._journal._grouping, {}

        def call(user: str) -> None:
            try:
                outcomes[user] = store.record(Scope("acme", user, "helper"), said("hello"), "chat").stored
            except NotPermitted as error:
                outcomes[user] = type(error).__name__

        def let_through() -> None:
            try:
                while len(grouping._waiting) < 3:
                    os.sched_yield()
            finally:
                grouping.leading.release()

        grouping.leading.acquire()
        run_threads([let_through, *(lambda u=user: call(u) for user in ("ana", "bo", "stranger"))])
        assert outcomes == {"ana": "both", "bo": "both", "stranger": "NotPermitted"}
        assert syncs(plan) == (1, 0)
