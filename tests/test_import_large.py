"""Imports of many lines: killed and resumed, a batch a transaction, memory flat, and stores that take no more.

The full form: MEMSTORE_TEST_IMPORT_LINES=100000.
"""

# ruff: noqa: S311 - seeded chance

import gc
import json
import os
import random
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from cli_support import Cli
from memstore import ImportStopped, MemoryStore, Message, Scope, Settings, SkippedLine
from memstore.fallback import folder_of
from memstore.importers import import_agenthub, import_jsonl
from memstore.importers.intake import BATCH_LINES
from memstore.skipped import LISTED
from memstore.testing import FaultPlan, FaultVFS, FaultyFiles, HashEmbedder, ManualClock
from memstore.text import Tokenizer
from reliability_support import in_fork

LINES = int(os.environ.get("MEMSTORE_TEST_IMPORT_LINES", "2400"))
USERS, CHATS = 3, 2
SCOPES = [Scope("default", f"user {number}") for number in range(USERS)]


@pytest.fixture
def empty(tmp_path: Path) -> Cli:
    """No store yet."""
    return Cli(tmp_path / "memory.db")


def open_store(path: Path, **options: object) -> MemoryStore:
    settings = {"timezone": "UTC", "durability": "process", "busy_timeout_s": 0.05}
    settings |= {name: options.pop(name) for name in list(options) if name in settings}
    return MemoryStore(path, clock=ManualClock(), settings=Settings(**settings), **options)


def record_of(number: int) -> dict[str, object]:
    """A line of 1 KB, most of it where no words are cut. Users and sessions come in turns; every second line has no id,
    and of those many say the same."""
    rng = random.Random(number)
    said = f"行 {number}" if number % 2 else rng.choice(("好的", "yes", "no"))
    named = {"id": f"m{number}"} if number % 2 else {}
    return {
        "role": "assistant" if number % 3 else "user",
        "content": said,
        "user_id": f"user {number % USERS}",
        "session": f"chat {number % CHATS}",
        "meta": {"number": number, "pad": "x" * 800},
        **named,
    }


def write_lines(path: Path, count: int, make=record_of) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(make(number), ensure_ascii=False) + "\n")
    return path


def assert_all_there(store: MemoryStore, count: int) -> None:
    """Every line once, and each session's in the order of the file."""
    numbers = []
    for user, scope in enumerate(SCOPES):
        for session in store.sessions(scope):
            held = [m.meta["number"] for m in store.messages(scope, session.session)]
            chat = int(session.session[-1])
            assert held == [n for n in range(count) if n % USERS == user and n % CHATS == chat]
            numbers += held
    assert sorted(numbers) == list(range(count))


# --- killed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_case_50_an_import_killed_anywhere_goes_on(tmp_path: Path, seed: int) -> None:
    """N: 4 x 2 kills by SIGKILL, at half and at a statement drawn by the seed, of 2,400 lines."""
    lines, path = write_lines(tmp_path / "talk.jsonl", LINES), tmp_path / "m.db"
    with open_store(path):
        pass
    rng = random.Random(seed)
    for kill_at_half in (True, False):
        left = rng.randrange(50, 400)

        def hook(_statement: str, half: bool = kill_at_half) -> None:
            nonlocal left
            left -= 0 if half else 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def progress(done: int, total: int, half: bool = kill_at_half) -> None:
            if half and done * 2 > total:
                os.kill(os.getpid(), signal.SIGKILL)

        def work(hook=hook, progress=progress) -> None:
            with open_store(path, statement_hook=hook) as store:
                import_jsonl(store, lines, progress=progress)

        assert in_fork(work) == -signal.SIGKILL
    with open_store(path) as store:
        before = sum(store.count(scope)["messages"] for scope in SCOPES)
        assert LINES // 3 < before < LINES
        report = import_jsonl(store, lines)
        assert (report.read, report.skipped) == (LINES, ())
        assert (report.stored, report.known) == (LINES - before, before)
        assert_all_there(store, LINES)
        report = import_jsonl(store, lines)
        assert (report.stored, report.known) == (0, LINES)
        assert_all_there(store, LINES)
        assert [f for f in store.doctor().findings if f.severity != "info"] == []


def test_a_killed_import_of_a_folder_goes_on(tmp_path: Path) -> None:
    sessions = tmp_path / "hub" / "data" / "coder" / "sessions"
    sessions.mkdir(parents=True)
    for chat in range(3):
        path = sessions / f"coder_wecom_chat{chat}.jsonl"
        write_lines(path, 700, lambda n, c=chat: {"role": "user", "content": f"row {n} of {c}"})
        path.with_suffix(".meta.json").write_text(json.dumps({"title": f"title {chat}"}))

    def work() -> None:
        def kill(done: int, total: int) -> None:
            if done * 2 > total:
                os.kill(os.getpid(), signal.SIGKILL)

        with open_store(tmp_path / "m.db") as store:
            import_agenthub(store, tmp_path / "hub", user_id="u", progress=kill)

    assert in_fork(work) == -signal.SIGKILL
    with open_store(tmp_path / "m.db") as store:
        scope = Scope("default", "u")
        before = store.count(scope)["messages"]
        assert 0 < before < 2_100
        report = import_agenthub(store, tmp_path / "hub", user_id="u")
        assert (report.stored, report.known) == (2_100 - before, before)
        found = {s.title: [m.text for m in store.messages(scope, s.session)] for s in store.sessions(scope)}
    assert found == {f"title {c}": [f"row {n} of {c}" for n in range(700)] for c in range(3)}


# --- what it costs -----------------------------------------------------------------------------------------


def test_a_batch_is_one_transaction_and_one_sync_however_many_sessions(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "talk.jsonl", 3 * BATCH_LINES)
    plan, statements = FaultPlan(), []
    options = {"files": FaultyFiles(plan), "statement_hook": statements.append, "durability": "disk"}
    with open_store(tmp_path / "m.db", **options) as store:
        store.record(SCOPES[0], [Message("user", "makes today's file")], "a:b:c")
        plan.reset()
        statements.clear()
        assert import_jsonl(store, lines).stored == 3 * BATCH_LINES
        assert sum(s.startswith("BEGIN IMMEDIATE") for s in statements) == 3
        assert plan.count("sync", "*.jsonl") == 3
        assert plan.count("write", "*.jsonl") == 3
        plan.reset()
        assert import_jsonl(store, lines).known == 3 * BATCH_LINES
        assert plan.count("sync", "*.jsonl") == plan.count("write", "*.jsonl") == 0


def test_what_is_there_already_costs_no_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on with an import that is nine tenths done costs a tenth of its words."""
    first = write_lines(tmp_path / "first.jsonl", 900)
    whole = write_lines(tmp_path / "whole.jsonl", 1_000)
    cut, index = [], Tokenizer.index
    monkeypatch.setattr(Tokenizer, "index", lambda self, of: cut.append(of) or index(self, of))
    statements: list[str] = []
    with open_store(tmp_path / "m.db", statement_hook=statements.append) as store:
        import_jsonl(store, first)
        assert len(cut) == 900
        new = len(statements)
        cut.clear()
        statements.clear()
        report = import_jsonl(store, whole)
        assert (report.stored, report.known) == (100, 900)
        assert len(cut) == 100
        cut.clear()
        statements.clear()
        assert import_jsonl(store, whole).known == 1_000
        assert cut == []
        assert len(statements) < new


@pytest.mark.parametrize("kind", ["without ids", "unusable"])
def test_memory_does_not_grow_with_the_lines(tmp_path: Path, kind: str) -> None:
    """Python's own; SQLite's caches have limits. N: 1,500 and 4,000 short lines."""

    def make(number: int) -> dict[str, object]:
        if kind == "unusable":
            return {"type": "control", "n": number}
        return {"role": "user", "content": f"{number % 7}", "session": "chat"}

    def peak(count: int) -> int:
        lines = write_lines(tmp_path / "l.jsonl", count, make)
        tracemalloc.start()
        try:
            report = import_jsonl(store, lines, user_id=f"u{count}", progress=lambda *_: gc.collect())
            assert report.read == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    with open_store(tmp_path / "m.db") as store:
        peak(1_100)  # what is loaded once
        small, large = peak(1_500), peak(4_000)
    assert large - small < 100_000  # of 2,500 lines more: 40 bytes a line


def test_of_very_many_unusable_lines_all_are_counted_and_told(tmp_path: Path) -> None:
    """In the order of the file, those that the store refused among those that could not be read."""
    count = 3 * LISTED + 7
    bad = [b"{", b'{"role":"user","content":17,"session":"chat"}', b'{"type":"summary"}']
    good = b'{"role":"user","content":"x","session":"chat"}'
    lines = tmp_path / "l.jsonl"
    lines.write_bytes(b"\n".join([good, *(bad[n % 3] for n in range(count)), good]))
    told: list[SkippedLine] = []
    with open_store(tmp_path / "m.db") as store:
        report = import_jsonl(store, lines, user_id="u", skipped=told.append)
    assert (report.stored, report.skipped_lines, report.read) == (2, count, count + 2)
    assert [s.line for s in told] == list(range(2, count + 2))
    assert list(report.skipped) == told[:LISTED]


def test_case_50_embedding_in_batches_and_deleting_all_of_it(tmp_path: Path) -> None:
    """N: 2,400 lines of 1 KB."""
    embedder = HashEmbedder()
    lines = write_lines(tmp_path / "talk.jsonl", LINES)
    with open_store(tmp_path / "m.db", embedder=embedder) as store:
        import_jsonl(store, lines)
        assert embedder.document_calls == 0
        store.index()
        assert embedder.document_texts == LINES
        assert embedder.document_calls <= LINES / 32 + 5
        for user, scope in enumerate(SCOPES):
            assert store.delete_all(scope) == len(range(user, LINES, USERS))
            assert store.count(scope)["messages"] == 0
        assert not store.search_messages(SCOPES[0], "好的")


# --- a store that takes no more ----------------------------------------------------------------------------


@contextmanager
def faults(path: Path, **options: object) -> Iterator[tuple[MemoryStore, FaultPlan]]:
    plan = FaultPlan()
    vfs = FaultVFS(plan)
    try:
        with open_store(path, vfs=vfs.name, files=FaultyFiles(plan), **options) as store:
            yield store, plan
    finally:
        vfs.close()


TROUBLES = {
    "database full": lambda plan: plan.fail("full", operations=["write"], file="*-wal", sticky=True),
    "database unwritable": lambda plan: plan.fail("error", operations=["write"], file="*-wal", sticky=True),
    "fallback full": lambda plan: plan.fail("full", operations=["write"], file="*.jsonl", sticky=True),
    "both full": lambda plan: plan.fail("full", operations=["write"], sticky=True),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_store_that_takes_no_more_stops_the_import_and_the_next_run_goes_on(
    tmp_path: Path, trouble: str
) -> None:
    """At the first batch: an import is not poured into one of the two places message by message."""
    lines = write_lines(tmp_path / "talk.jsonl", 5 * BATCH_LINES)
    with faults(tmp_path / "m.db") as (store, plan):
        batches = []

        def progress(done: int, _total: int) -> None:
            batches.append(done)
            if len(batches) == 2:
                TROUBLES[trouble](plan)

        with pytest.raises(ImportStopped, match="goes on from there") as caught:
            import_jsonl(store, lines, progress=progress)
        assert plan.met
        report = caught.value.report
        assert str(report.stored) in str(caught.value)
        kept = 0 if trouble == "both full" else BATCH_LINES  # the batch that met it stands in the other place
        assert (report.stored, report.known, report.skipped) == (2 * BATCH_LINES + kept, 0, ())
        plan.lift()
        again = import_jsonl(store, lines)
        assert (again.stored, again.known) == (5 * BATCH_LINES - report.stored, report.stored)
        assert_all_there(store, 5 * BATCH_LINES)
        assert [f for f in store.doctor().findings if f.severity == "error"] == []


def test_a_locked_database_stops_the_import_after_one_wait(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "talk.jsonl", 4 * BATCH_LINES)
    with open_store(tmp_path / "m.db") as store, open_store(tmp_path / "m.db") as other:
        with other._storage.write(), pytest.raises(ImportStopped, match="goes on from there") as caught:
            import_jsonl(store, lines)
        assert caught.value.report.stored == BATCH_LINES
        report = import_jsonl(store, lines)
        assert (report.stored, report.known) == (3 * BATCH_LINES, BATCH_LINES)
        assert_all_there(store, 4 * BATCH_LINES)


def test_a_store_that_is_closed_meanwhile_stops_the_import(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "talk.jsonl", 3 * BATCH_LINES)
    with open_store(tmp_path / "m.db") as store:
        closing = lambda _done, _total: store.close()
        with pytest.raises(ImportStopped, match="closed") as caught:
            import_jsonl(store, lines, progress=closing)
    assert caught.value.report.stored == BATCH_LINES


def test_titles_that_cannot_be_written_stop_an_import_of_a_folder(tmp_path: Path) -> None:
    sessions = tmp_path / "data" / "coder" / "sessions"
    sessions.mkdir(parents=True)
    for chat in range(3):
        path = write_lines(
            sessions / f"coder_wecom_chat{chat}.jsonl", 2, lambda n: {"role": "user", "content": f"{n}"}
        )
        path.with_suffix(".meta.json").write_text(json.dumps({"title": f"title {chat}"}))
    with faults(tmp_path / "m.db") as (store, plan):
        told = []

        def progress(done: int, _total: int) -> None:
            told.append(done)
            if len(told) == 2:
                TROUBLES["both full"](plan)

        with pytest.raises(ImportStopped) as caught:
            import_agenthub(store, tmp_path, user_id="u", progress=progress)
        assert caught.value.report.stored >= 2
        plan.lift()
        import_agenthub(store, tmp_path, user_id="u")
        assert sorted(s.title for s in store.sessions(Scope("default", "u"))) == [
            "title 0",
            "title 1",
            "title 2",
        ]
        assert store.count(Scope("default", "u"))["messages"] == 6


# --- on the command line -----------------------------------------------------------------------------------


def test_the_report_file_holds_every_skipped_line(empty: Cli, tmp_path: Path) -> None:
    lines, out = tmp_path / "l.jsonl", tmp_path / "skipped.jsonl"
    lines.write_bytes(b'{"role":"user","content":"x","session":"default:web:s"}\n' + b"{\n" * (LISTED + 5))
    report = empty.answer("import", "jsonl", str(lines), "--report", str(out))
    assert (report["stored"], report["skipped_lines"], len(report["skipped"])) == (1, LISTED + 5, LISTED)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [one["line"] for one in written] == list(range(2, LISTED + 7))
    assert written[:LISTED] == report["skipped"]
    assert out.stat().st_mode & 0o777 == 0o600
    before = out.read_bytes(), lines.read_bytes()
    for taken in (out, lines):
        result = empty("import", "jsonl", str(lines), "--report", str(taken))
        assert result.exit_code == 1
        assert "not written over" in result.stderr
    assert (out.read_bytes(), lines.read_bytes()) == before


def test_an_import_that_stopped_fails_with_its_report(empty: Cli, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "l.jsonl", 2 * BATCH_LINES)
    empty("record", "first", "--session", "default:web:s")
    folder = folder_of(Path(empty.db))
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")  # which the fallback refuses
    result = empty("import", "jsonl", str(lines), MEMSTORE_USER=None)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["stored"] == BATCH_LINES
    assert "goes on from there" in result.stderr
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    report = empty.answer("import", "jsonl", str(lines), MEMSTORE_USER=None)
    assert (report["stored"], report["known"]) == (BATCH_LINES, BATCH_LINES)


# --- measured ----------------------------------------------------------------------------------------------


def test_the_benchmark_of_upkeep_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "upkeep.json"
    assert main(["upkeep", "--rows", "150", "--folder", str(tmp_path), "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))["results"]["150"]
    assert result["line_bytes"] == 1_000
    for step in ("import", "import_again", "recover"):
        assert result[step]["rows_per_s"] > 0
        assert result[step]["peak_memory_mb"] > 10
    assert "import again, peak memory, MB" in capsys.readouterr().out
