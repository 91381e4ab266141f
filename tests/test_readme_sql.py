"""The SQL of both READMEs, on a store that a worker was at: every statement runs, and finds something."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memstore import MemoryStore, Message, Scope, Settings
from memstore.llm import LLMRequest
from memstore.testing import ManualClock, ScriptedLLM
from memstore.worker import MAX_ATTEMPTS
from pipeline_support import cited_ids, extraction, proposed

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh-CN.md")
UNREADABLE = "不好读"
_BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def statements(readme: str) -> Iterator[str]:
    for block in _BLOCK.findall((ROOT / readme).read_text(encoding="utf-8")):
        statement = ""
        for line in block.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                yield statement.strip()
                statement = ""
        assert not statement.strip(), f"{readme}: without a semicolon at its end: {statement}"


ALL = [(readme, statement) for readme in READMES for statement in statements(readme)]


def reply(request: LLMRequest) -> str:
    """A memory of what was said last; nothing that can be used where the text says so."""
    if UNREADABLE in request.messages[-1]["content"]:
        return "Sorry, no."
    if request.task == "extract":
        return extraction(proposed("用户住在上海", cited_ids(request)[-1]))
    return "# 用户\n- 住在上海" if request.task == "profile" else "[]"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with memories, a job that gave up, tokens that were used and messages that wait."""
    path = tmp_path_factory.mktemp("readme") / "memory.db"
    clock = ManualClock()
    settings = Settings(timezone="Asia/Shanghai", nightly_backup_hour=None, reserve_bytes=0)
    zhang, li = Scope("acme", "zhang", "helper"), Scope("acme", "li", "helper")
    with MemoryStore(path, llm=ScriptedLLM(reply), clock=clock, settings=settings) as store:
        store.record(zhang, [Message("user", "我住在上海，会议改到周四下午")], session="one")
        store.record(li, [Message("user", UNREADABLE)], session="two")
        for _ in range(MAX_ATTEMPTS):
            store.work()
            clock.advance(3_600)
        store.record(zhang, [Message("user", "谢谢")], session="one")
        assert [job.kind for job in store.jobs("dead")] == ["extract"]
    return path


@pytest.mark.parametrize("readme", READMES)
def test_each_readme_lists_what_operators_ask_for(readme: str) -> None:
    found = " ".join(statement for name, statement in ALL if name == readme)
    for view in ("v_messages", "v_model_usage", "v_pending", "v_jobs", "v_dead_letters", "v_verdicts"):
        assert view in found


@pytest.mark.parametrize(("readme", "statement"), ALL, ids=[f"{name}-{n}" for n, (name, _) in enumerate(ALL)])
def test_every_statement_finds_something(database: Path, readme: str, statement: str) -> None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:  # stock SQLite
        rows = connection.execute(statement).fetchall()
    assert rows
    assert all(any(value is not None for value in row) for row in rows)


def test_the_tokens_and_the_verdict_are_the_ones_that_were_used(database: Path) -> None:
    shown = [statement for name, statement in ALL if name == "README.md"]
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        (usage,) = (connection.execute(one).fetchall() for one in shown if "v_model_usage" in one)
        (decided,) = (connection.execute(one).fetchall() for one in shown if "v_verdicts" in one)
        (dead,) = (connection.execute(one).fetchall() for one in shown if "v_dead_letters" in one)
    assert {row[0] for row in usage} == {"acme"}
    assert all(row[2] > 0 and row[4] > 0 for row in usage)
    assert [(row[1], row[2], row[-1]) for row in decided] == [
        ("store", "用户住在上海", "我住在上海，会议改到周四下午")
    ]
    assert [(row[1], row[3], row[4]) for row in dead] == [("extract", "li", MAX_ATTEMPTS)]
