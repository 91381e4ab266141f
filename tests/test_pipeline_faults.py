"""A chat server that errs in every way, behind the real client: the pipelines end where they would have ended without
(RELIABILITY R14)."""

# ruff: noqa: S311 - seeded chance

import json
import random

import pytest

from memstore import MemoryStore
from memstore.llm import LLMRequest
from memstore.llms.openai import OpenAIChat
from memstore.testing import ManualClock
from openai_stub import Reply, running
from scripts.pipeline_story import playing
from scripts.pipeline_story.plot import Model
from stub_chat import ChatStub, completion, stream, text

CALL = {"id": "c1", "type": "function", "function": {"name": "forget", "arguments": "{}"}}
TWICE = '{"content": "made up", "kind": "persona", "priority": 5, "source_ids": []}'
FAULTS = (
    lambda sound: text(sound, "length"),
    lambda sound: text(sound[: len(sound) // 2]),
    lambda sound: Reply(200, json.dumps({"choices": [{"message": {"content": sound}}]}), cut=40),
    lambda _sound: stream('{"choices": [{"delta": {"content": "["}}]}', cut=30),
    lambda _sound: completion({"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls"),
    lambda _sound: completion({"role": "assistant", "content": None, "refusal": "I cannot help with that."}),
    lambda _sound: text("I'm sorry, but I cannot do this."),
    lambda _sound: text("Here is what I found: nothing much."),
    lambda _sound: text(""),
    lambda _sound: text("[" * 10_000),
    lambda _sound: text('{"memories": [' + ",".join([TWICE] * 20_000)),
    lambda _sound: Reply(200, "<html>busy</html>", {"Content-Type": "text/html"}),
    lambda _sound: Reply(500, {"error": {"message": "overloaded"}}),
    lambda _sound: Reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"}),
)


def told(folder, seed: int | None) -> tuple[dict, int]:
    """The story, told through a server that errs with this seed; and how often it erred."""
    clock, model, chance, erred = ManualClock(playing.START), Model(), random.Random(seed), 0

    def judge(request: dict) -> Reply:
        nonlocal erred
        task = request["response_format"]["json_schema"]["name"]
        messages = tuple(request["messages"])
        sound = model.complete(LLMRequest(task, messages)).text
        if seed is None or chance.random() > 0.35:
            return text(sound)
        erred += 1
        return chance.choice(FAULTS)(sound)

    folder.mkdir()
    with running(ChatStub()) as server:
        server.judge = judge
        llm = OpenAIChat(
            "story", server.url, clock=clock, sleep=clock.advance, structured="json_schema", max_retries=1
        )
        with MemoryStore(folder / "memory.db", clock=clock, settings=playing.SETTINGS, llm=llm) as store:
            for step in playing.steps():
                clock.set(max(step.at, clock.now()))
                playing.take(store, step)
            for _ in range(12):
                clock.advance(3 * 3_600)
                store.work(once=True)
        llm.close()
    found = playing.outcome(folder)
    found["scenes"] = [[name, sorted(content.splitlines())] for name, content, _ in found["scenes"]]
    found["profiles"] = [content for content, _ in found["profiles"]]
    return found, erred


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    return told(tmp_path_factory.mktemp("faults") / "sound", None)[0]


@pytest.mark.parametrize("seed", range(4))
def test_a_server_that_errs_changes_nothing_in_the_end(tmp_path, wanted, seed):
    found, erred = told(tmp_path / "erring", seed)
    assert erred >= 5
    assert found == wanted
