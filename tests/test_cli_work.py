"""The commands ``work`` and ``jobs``."""

import json
import signal
import subprocess
import sys

import pytest

from cli_support import Cli
from memstore import MemoryStore, Message, Scope
from memstore.errors import StoreClosed
from memstore.storage.pipeline_rows import job_key
from memstore.worker import MAX_ATTEMPTS
from openai_stub import running
from stub_chat import USAGE, ChatStub, text

LIN = Scope("default", "lin", "default")


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path / "memory.db")


@pytest.fixture
def recorded(cli) -> Cli:
    """A store in which a round was said, so that an extraction is due."""
    with MemoryStore(cli.db) as store:
        store.record(LIN, [Message("user", "我对花生过敏。"), Message("assistant", "好的")], "chat")
    return cli


def break_a_job(cli: Cli) -> int:
    """A job with one attempt left, of which nothing can be made."""
    with MemoryStore(cli.db) as store, store._storage.write() as tx:
        tx.enqueue("extract", job_key("extract", "broken"), {"team_id": "default", "user_id": "lin"}, 0)
        [row] = tx._rows("SELECT max(job_no) FROM jobs")
        tx._run("UPDATE jobs SET attempts = ? WHERE job_no = ?", (MAX_ATTEMPTS - 1, row[0]))
        return row[0]


def kinds(cli: Cli, *args: str) -> list[str]:
    return [job["kind"] for job in cli.answer("jobs", *args)["jobs"]]


# --- work -------------------------------------------------------------------------------------------------------


def test_work_once_does_what_is_due_and_reports(recorded):
    result = recorded("work", "--once")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["done"] >= 1
    assert (report["failed"], report["dead"]) == (0, 0)
    assert "extract (default:default:chat): done" in result.stderr
    assert recorded.answer("work", "--once") == {"done": 0, "failed": 0, "dead": 0, "postponed": 0}
    assert "done: 0" in recorded.shown("work", "--once")


def test_now_does_what_is_not_due(recorded):
    recorded.answer("work", "--once")
    waiting = kinds(recorded, "--state", "queued")
    assert "scenes" in waiting
    assert recorded.answer("work", "--once", "--now")["done"] >= 1
    assert "scenes" not in kinds(recorded, "--state", "queued")


def test_a_job_that_gives_up_ends_it_with_1(recorded):
    number = break_a_job(recorded)
    result = recorded("work", "--once")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["dead"] == 1
    assert f"job {number} extract: dead" in result.stderr
    assert recorded("work", "--once").exit_code == 0, "it says so once; memstore doctor goes on saying it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_goes_on_until_it_is_told_to_end(recorded, number):
    """A clean end: what it did is reported, nothing is left half-way, and the exit code is 0."""
    program = subprocess.Popen(
        [sys.executable, "-m", "memstore.cli", "work"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=recorded.environ(),
    )
    assert "extract" in program.stderr.readline()
    program.send_signal(number)
    out, _ = program.communicate(timeout=60)
    assert program.returncode == 0
    assert json.loads(out)["done"] >= 1
    assert kinds(recorded, "--state", "running") == []


def test_work_that_ends_by_itself_ends_it_with_1(recorded, monkeypatch):
    def closed(*_args, **_options):
        raise StoreClosed("the store is closed")

    monkeypatch.setattr("memstore.worker.Worker.run_due", closed)
    result = recorded("work")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["done"] == 0
    assert "the work ended by itself" in result.stderr


def test_work_needs_a_store(cli):
    result = cli("work", "--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "memstore init" in result.stderr


def test_a_model_is_named_by_an_option_or_the_environment(recorded):
    for named in (
        recorded("work", "--once", "--llm", "what?"),
        recorded("work", "--once", MEMSTORE_LLM="what?"),
    ):
        assert named.exit_code == 2
        assert "openai:<model>" in named.stderr
    assert recorded("work", "--once", "--llm", "none", MEMSTORE_LLM="what?").exit_code == 0
    assert "--llm" not in recorded("jobs", "--help").stdout
    assert "MEMSTORE_LLM" in recorded("work", "--help").stdout


# --- jobs -------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_and_shown(recorded):
    [extract, index] = recorded.answer("jobs")["jobs"]
    assert (extract["kind"], extract["state"], extract["attempts"]) == ("extract", "queued", 0)
    assert extract["subject"] == "default:default:chat"
    assert extract["created_at"].endswith("Z")
    assert recorded.answer("jobs", "show", str(extract["job_no"])) == extract
    assert kinds(recorded, "list", "--kind", "index") == [index["kind"]]
    assert kinds(recorded, "--state", "dead") == kinds(recorded, "--limit", "0") == []
    assert recorded.shown("jobs", "--state", "dead") == "no jobs\n"
    table = recorded.shown("jobs")
    assert "default:default:chat" in table
    assert table.splitlines()[0].split()[:3] == ["job", "kind", "state"]
    assert "kind: extract" in recorded.shown("jobs", "show", str(extract["job_no"]))


def test_a_job_that_gave_up_is_retried(recorded):
    number = str(break_a_job(recorded))
    assert recorded("work", "--once").exit_code == 1
    [dead] = recorded.answer("jobs", "--state", "dead")["jobs"]
    assert (dead["job_no"], dead["attempts"]) == (int(number), MAX_ATTEMPTS)
    assert "KeyError" in dead["last_error"]
    finding = next(f for f in recorded.answer("doctor")["findings"] if f["check"] == "queue")
    assert finding["repair"].startswith(f"memstore jobs retry {number} --db")
    assert recorded.answer("jobs", "retry", number)["state"] == "queued"
    assert recorded("jobs", "retry", number).exit_code == 2


def test_all_that_gave_up_is_retried(recorded):
    break_a_job(recorded)
    assert recorded("work", "--once").exit_code == 1
    assert recorded.answer("jobs", "retry", "--all", "--kind", "scenes") == {"queued": 0}
    assert recorded.answer("jobs", "retry", "--all", "--kind", "extract") == {"queued": 1}
    assert recorded.answer("jobs", "retry", "--all") == {"queued": 0}
    assert recorded.shown("jobs", "retry", "--all") == "queued: 0\n"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["show", "99"], 1, "no job 99"),
        (["retry", "99"], 1, "no job 99"),
        (["retry", "1"], 2, "only one that gave up"),
        (["retry"], 2, "which job?"),
        (["retry"], 2, "--all"),
        (["retry", "1", "--all"], 2, "--all goes with"),
        (["retry", "--all", "--state", "dead"], 2, "--all goes with"),
        (["--all"], 2, "--all goes with"),
        (["retry", "1", "--kind", "extract"], 2, "NUMBER names one job"),
        (["list", "1"], 2, "memstore jobs show 1"),
        (["show", "1", "--state", "dead"], 2, "NUMBER names one job"),
        (["show", "0"], 2, "0"),
        (["--state", "finished"], 2, "finished"),
        (["--limit", "-1"], 2, "limit"),
    ],
)
def test_wrong_use_is_refused(recorded, args, code, says):
    result = recorded("jobs", *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr


# --- a real client, a budget ---------------------------------------------------------------------------------------

NOTHING = '{"scene": "breakfast", "scene_changed": true, "memories": []}'


def test_a_model_behind_a_server_judges_until_the_budget_of_the_day_is_used_up(recorded):
    with running(ChatStub()) as server:
        server.judge = lambda _request: text(NOTHING)
        env = {"MEMSTORE_LLM": f"openai:tiny@{server.url}", "MEMSTORE_LLM_KEY": "not-to-be-seen"}
        first = recorded("work", "--once", **env)
        assert json.loads(first.stdout)["done"] >= 1, first.stderr
        asked = len(server.requests)
        assert asked >= 1
        [usage] = recorded.answer("usage")["usage"]
        assert (usage["model"], usage["task"], usage["input_tokens"], usage["output_tokens"]) == (
            "tiny", "extract", USAGE["prompt_tokens"], USAGE["completion_tokens"],
        )  # fmt: skip
        recorded("record", "我也对芒果过敏。", "--session", "chat", "--agent", "default")
        recorded("record", "别忘了。", "--session", "chat", "--agent", "default")
        second = recorded("work", "--once", MEMSTORE_DAILY_TOKENS="10", **env)
        assert json.loads(second.stdout)["postponed"] >= 1, second.stderr
        assert len(server.requests) == asked
        assert recorded.answer("pending")["pending"] == 2
        shown = recorded("doctor", MEMSTORE_DAILY_TOKENS="10")
        assert [f for f in json.loads(shown.stdout)["findings"] if f["check"] == "models"]
        assert "not-to-be-seen" not in first.stdout + first.stderr + second.stdout + second.stderr


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
def test_a_budget_that_is_no_number_is_refused(recorded, value):
    result = recorded("work", "--once", MEMSTORE_DAILY_TOKENS=value)
    assert result.exit_code != 0
    assert "MEMSTORE_DAILY_TOKENS" in result.stderr
