"""The same call gives the same answer, to the last bit, in every process (SPEC R1)."""

import os
import subprocess
import sys

import pytest

from memstore import MemoryStore, Message, Scope, Settings
from memstore.testing import ManualClock

PROCESSES = int(os.environ.get("MEMSTORE_TEST_PROCESSES") or 4)
"""Fresh processes that are compared. The full run takes 50."""

ANA = Scope("acme", "ana", "helper")
TALK = [
    "When shall we repaint the lighthouse?", "周四下午可以吗？", "Yes, on Thursday", "会议改到周四下午了",
    "夜里跑完build-x7后恢复，版本v1.2.3", "那就周五上线吧", "peanut allergy: Li may not eat the cake", "小李对花生过敏",
    "where did we put the deploy key again?", "The deploy key lives in the blue vault", "好的", "好的",
]  # fmt: skip
QUESTIONS = [
    "会议改到什么时候",
    "who is allergic to peanuts?",
    "build-x7",
    "deploy key",
    "什么时候重新粉刷灯塔",
    "好的",
]

ASK = f"""
import sys
from memstore import MemoryStore, Scope
from memstore.testing import ManualClock

questions = {QUESTIONS!r}
with MemoryStore(sys.argv[1], embedder="local", clock=ManualClock()) as store:
    scope = Scope("acme", "ana", "helper")
    for verb in (store.recall, store.search_messages):
        for question in questions if int(sys.argv[2]) % 2 else reversed(questions):
            answer = verb(scope, question, 6, explain=True, timeout_s=600)
            print(question, verb.__name__, answer.degraded, flush=False)
            print([(hit.id, hit.rank, hit.score.hex(), hit.explanation) for hit in answer])
            print(answer.explanation)
"""


def answers(path, number: int) -> list[str]:
    """One process' answers. Hashes are seeded otherwise in each, and the order of the questions changes."""
    environment = {**os.environ, "PYTHONHASHSEED": str(number)}
    for threads in (
        "OPENBLAS_NUM_THREADS",
        "OMP_NUM_THREADS",
    ):  # as many as a program has, where tests get by with one
        environment.pop(threads, None)
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(path), str(number)], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    blocks = ["\n".join(lines[start : start + 3]) for start in range(0, len(lines), 3)]
    return sorted(blocks)


@pytest.mark.local
def test_fresh_processes_agree_on_ids_ranks_scores_and_explanations_bit_by_bit(tmp_path):
    path = tmp_path / "memory.db"
    options = Settings(durability="process", timezone="UTC")
    with MemoryStore(path, embedder="local", settings=options, clock=ManualClock()) as store:
        for number, text in enumerate(TALK * 3):
            store.record(ANA, [Message("assistant" if number % 2 else "user", text)], f"chat {number // 12}")
            store.add(ANA, f"{text} {number // 4}")
        store.index()
        store.record(ANA, [Message("user", "the deploy key waits for its vector")], "chat 0")
    first = answers(path, 0)
    assert len(first) == 2 * len(QUESTIONS)
    assert all("()" in block.splitlines()[0] for block in first)  # both legs took part
    assert sum("'vector': LegReport" in block for block in first) == len(first)
    for number in range(1, PROCESSES):
        assert answers(path, number) == first
