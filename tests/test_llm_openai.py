"""The OpenAI-compatible chat client against a real server on the loopback that errs on order (W9)."""

import gc
import json
import logging
import os
import subprocess
import sys
import threading
import traceback
from contextlib import ExitStack

import pytest

from memstore.errors import ConfigError, InvalidInput, LLMError, LLMRejected, LLMUnavailable
from memstore.llm import LLM, LLMReply, LLMRequest, Usage
from memstore.llms import resolve_llm
from memstore.llms.openai import REPLY_BYTES, TOKEN_BYTES, OpenAIChat
from memstore.model_server import MESSAGE_CHARS
from memstore.testing import ManualClock
from openai_stub import HANG, KEY, RESET, Reply, error, running
from stub_chat import TEXT, ChatStub, completion, gated, stream, text

pytest.importorskip("httpx2")

URL = "http://127.0.0.1:1/v1"
PRIVATE = "Anna keeps bees in Ulm"
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
SYSTEM = {"role": "system", "content": "You remember things. 你记事。"}
USER = {"role": "user", "content": "What do I drink?"}


def asked(schema=SCHEMA, messages=(SYSTEM, USER), **options):
    return LLMRequest("extract", tuple(messages), schema, **options)


PLAIN = asked(schema=None)


@pytest.fixture
def stub():
    with running(ChatStub()) as one:
        yield one


@pytest.fixture
def waits():
    """The sleeps that were asked for."""
    return []


@pytest.fixture
def make(stub, clock, waits):
    """Makes clients of the stub, without real waiting."""
    with ExitStack() as stack:

        def sleep(seconds):
            waits.append(seconds)
            clock.advance(seconds)

        def made(model="m", url=None, **options):
            llm = OpenAIChat(model, url or stub.url, **{"clock": clock, "sleep": sleep, **options})
            stack.callback(llm.close)
            return llm

        yield made


# ---- what is sent, what comes back


def test_a_question_and_its_answer(stub, make):
    llm = make("模型", api_key=KEY)
    assert isinstance(llm, LLM)
    assert llm.name == "模型"
    assert llm.complete(asked(max_tokens=300)) == LLMReply(TEXT, "stop", Usage(11, 7))
    assert stub.requests == [
        {
            "model": "模型",
            "stream": False,
            "max_tokens": 300,
            "temperature": 0,
            "messages": [SYSTEM, USER],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "extract", "strict": True, "schema": SCHEMA},
            },
        }
    ]
    assert stub.paths == ["/v1/chat/completions"]
    assert stub.headers[0]["authorization"] == f"Bearer {KEY}"
    assert stub.headers[0]["accept-encoding"] == "identity"


def test_without_a_schema_and_a_key_neither_is_sent(stub, make):
    stub.script.append(text("You drink tea."))
    assert make().complete(PLAIN).text == "You drink tea."
    assert "response_format" not in stub.requests[0]
    assert stub.requests[0]["messages"] == [SYSTEM, USER]
    assert "authorization" not in stub.headers[0]


def test_half_a_character_is_no_error(stub, make):
    stub.script.append(Reply(200, '{"choices": [{"message": {"content": "\\ud83d\\ude00 and \\ud83d"}}]}'))
    reply = make().complete(asked(schema=None, messages=[{"role": "user", "content": "tea \ud83d"}]))
    assert reply.text == "\U0001f600 and \ufffd"
    assert stub.requests[0]["messages"][0]["content"] == "tea ?"


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ([{"type": "text", "text": "green "}, {"type": "text", "text": "tea"}], "green tea"),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "output_text", "text": "tea"}], "tea"),
        (["green ", {"text": "tea"}, {"type": "text", "text": None}, None, 5], "green tea"),
    ],
)
def test_a_list_of_parts_is_joined(stub, make, content, read):
    stub.script.append(text(content))
    assert make().complete(PLAIN).text == read


def test_thoughts_are_left_out(stub, make):
    stub.script.append(text("tea", reasoning_content="they said tea " * 1_000, tool_calls=[]))
    assert make().complete(PLAIN).text == "tea"


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, Usage()),
        ([], Usage()),
        ({}, Usage()),
        ({"prompt_tokens": 3.0, "completion_tokens": None}, Usage(3, None)),
        ({"prompt_tokens": -1, "completion_tokens": True}, Usage()),
        ({"prompt_tokens": "3", "completion_tokens": 10**30}, Usage()),
        ({"prompt_tokens": float("nan"), "completion_tokens": float("inf")}, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 2}, Usage(0, 2)),
    ],
)
def test_usage_is_what_the_server_says_or_unknown(stub, make, usage, read):
    stub.script.append(text("tea", usage=usage))
    assert make().complete(PLAIN).usage == read


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("stop", "stop"), (None, "stop"), ("", "stop"), (5, "stop"), ("STOP", "stop"), ("end_turn", "end_turn"),
        ("length", "length"), ("max_tokens", "length"), ("MAX_TOKENS", "length"),
    ],
)  # fmt: skip
def test_why_a_reply_ended(stub, make, said, read):
    stub.script.append(text("tea", said))
    assert make().complete(PLAIN).finish_reason == read


def test_connections_are_kept_and_given_back(stub, make):
    llm = make()
    for _ in range(3):
        llm.complete(PLAIN)
    assert len(stub.peers) == 1
    llm.close()
    llm.close()
    llm.complete(PLAIN)
    assert len(stub.peers) == 2


def test_a_client_that_is_let_go_leaves_no_connection_behind(stub):
    # An unclosed socket would be a ResourceWarning, which fails the test.
    llm = OpenAIChat("m", stub.url)
    llm.complete(PLAIN)
    del llm
    gc.collect()
    assert len(stub.requests) == 1


def test_threads_do_not_wait_for_each_other(stub, make):
    gate = threading.Event()
    stub.then = lambda request: (
        gated(gate, text("slow"))(request) if request["messages"][-1]["content"] == "slow" else text("quick")
    )
    llm, answers = make(), []
    slow = asked(schema=None, messages=[{"role": "user", "content": "slow"}])
    thread = threading.Thread(target=lambda: answers.append(llm.complete(slow).text))
    thread.start()
    answers.append(llm.complete(PLAIN).text)
    gate.set()
    thread.join()
    assert answers == ["quick", "slow"]


# ---- structured output


def needs(*forms):
    """A judge that refuses every other form of structured output, as DeepSeek words it."""

    def judge(request):
        form = request.get("response_format", {}).get("type")
        return None if form in forms else error(400, "This response_format type is unavailable now")

    return judge


REFUSALS = [
    error(400, "'response_format.type' must be 'text'"),
    error(400, "response_format: response_format.type `json_schema` is unavailable now"),
    error(400, "Invalid schema for response_format 'extract': 'required' is required to be supplied"),
    error(400, "Invalid parameter", "unsupported_response_format"),
    Reply(400, {"error": "The response_format parameter is unsupported at the moment. Leave it unset."}),
    Reply(400, {"error": {"message": "Invalid JSON payload: Unknown name at 'generation_config.response_schema'"}}),
    Reply(422, {"detail": [{"loc": ["body", "response_format"], "msg": "Extra inputs are not permitted"}]}),
    error(500, 'response_format type must be one of "text", but got: json_schema'),
    error(501, "structured outputs are not implemented"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_server_without_structured_output_is_given_the_schema_in_words(stub, make, waits, refusal):
    stub.judge = lambda request: refusal if "response_format" in request else None
    llm = make()
    assert llm.complete(asked()).text == TEXT
    assert stub.formats == ["json_schema", "json_object", None]
    system, user = stub.requests[2]["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith(SYSTEM["content"])
    assert json.dumps(SCHEMA) in system["content"]
    assert user == USER
    llm.complete(asked())
    assert stub.formats[3:] == [None]  # remembered
    assert make().complete(asked()).text == TEXT
    assert stub.formats[4:] == ["json_schema", "json_object", None]  # by the object
    assert waits == []


def test_json_object_comes_with_the_schema_and_the_word_json(stub, make):
    stub.judge = needs("json_object")
    llm = make()
    assert llm.complete(asked(messages=[USER])).text == TEXT
    assert stub.formats == ["json_schema", "json_object"]
    system, user = stub.requests[1]["messages"]  # DashScope refuses json_object where no message says JSON
    assert system["role"] == "system"
    assert "JSON" in system["content"]
    assert json.dumps(SCHEMA) in system["content"]
    assert user == USER
    llm.complete(asked())
    stub.judge = None
    assert llm.complete(PLAIN).text == TEXT
    assert stub.formats[2:] == ["json_object", None]
    assert stub.requests[-1]["messages"] == [SYSTEM, USER]


@pytest.mark.parametrize("form", ["json_schema", "json_object", "plain"])
def test_a_form_that_is_asked_for_is_kept_to(stub, make, form):
    sent = None if form == "plain" else form
    llm = make(structured=form)
    assert llm.complete(asked()).text == TEXT
    stub.then = error(400, "This response_format type is unavailable now")
    with pytest.raises(LLMUnavailable, match=r"400 Bad Request: This response_format type.*structured"):
        llm.complete(asked())
    assert stub.formats == [sent, sent]


def test_a_refusal_that_no_form_helps_against_is_told_and_nothing_is_learnt(stub, make):
    llm = make()
    stub.then = Reply(400, {"message": "response_format and the rest are wrong"})
    with pytest.raises(LLMUnavailable, match="400 Bad Request: response_format and the rest are wrong"):
        llm.complete(asked())
    assert stub.formats == ["json_schema", "json_object", None]
    stub.then = None
    llm.complete(asked())
    assert stub.formats[-1] == "json_schema"


def test_what_a_server_refuses_is_left_out_and_remembered(stub, make, caplog):
    caplog.set_level(logging.INFO, "memstore")

    def judge(request):
        if "max_tokens" in request:
            return error(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "unsupported_parameter",
            )
        if "temperature" in request:
            return error(400, "Unsupported value: 'temperature' does not support 0 with this model.")
        return needs("json_object")(request)

    stub.judge = judge
    llm = make()
    assert llm.complete(asked(max_tokens=77)).text == TEXT
    assert len(stub.requests) == 4
    assert llm.complete(asked(max_tokens=78)).text == TEXT
    assert len(stub.requests) == 5
    last = stub.requests[-1]
    assert last["max_completion_tokens"] == 78
    assert last["response_format"] == {"type": "json_object"}
    assert not {"max_tokens", "temperature"} & set(last)
    (record,) = caplog.records
    assert "json_object, max_completion_tokens and no temperature" in record.getMessage()


def test_a_request_may_name_another_model_which_may_take_other_things(stub, make):
    stub.judge = lambda request: None if request["model"] == "m" else needs("json_object")(request)
    llm = make("m")
    for model in ("other", None, "other"):
        assert llm.complete(asked(model=model)).text == TEXT
    assert llm.name == "m"
    assert [(request["model"], form) for request, form in zip(stub.requests, stub.formats, strict=True)] == [
        ("other", "json_schema"),
        ("other", "json_object"),
        ("m", "json_schema"),
        ("other", "json_object"),
    ]


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "max_tokens: Extra inputs are not permitted"),
        Reply(422, {"detail": [{"loc": ["body", "max_tokens"], "msg": "Extra inputs are not permitted"}]}),
        error(400, "Unknown parameter: max_tokens"),
    ],
)
def test_other_words_for_another_name_of_the_length(stub, make, refusal):
    stub.judge = lambda request: refusal if "max_tokens" in request else None
    assert make().complete(PLAIN).text == TEXT
    assert stub.requests[-1]["max_completion_tokens"] == 2_000


# ---- the repair round

CHATTY = "Sure! The answer is tea."
UNREADABLE = [CHATTY, '{"answer": "te', "[1, 2]", '{"other": 1}', "{'answer': 'tea'}", "[" * 10_000]


@pytest.mark.parametrize("form", ["json_object", "plain"])
@pytest.mark.parametrize("bad", UNREADABLE)
def test_an_unreadable_reply_is_sent_back_once(stub, make, form, bad):
    stub.script.extend([text(bad), text(TEXT, usage={"prompt_tokens": 100, "completion_tokens": 1})])
    assert make(structured=form).complete(asked()) == LLMReply(TEXT, "stop", Usage(111, 8), calls=2)
    assert len(stub.requests) == 2
    before, after = (request["messages"] for request in stub.requests)
    assert after[: len(before)] == before
    assert after[len(before)] == {"role": "assistant", "content": bad}
    assert after[-1]["role"] == "user"
    assert "JSON" in after[-1]["content"]
    assert len(after) == len(before) + 2
    assert len(after[-1]["content"]) < 200


@pytest.mark.parametrize(
    "good",
    [TEXT, f"```json\n{TEXT}\n```", f"Here it is: {TEXT} Enjoy!", f"<think>[{{</think>{TEXT}", "[]", "[" + TEXT + "]"],
)  # fmt: skip
def test_what_can_be_read_is_not_repaired_and_comes_as_it_is(stub, make, good):
    stub.script.append(text(good))
    assert make(structured="plain").complete(asked()).text == good
    assert len(stub.requests) == 1


def test_a_second_unreadable_reply_is_for_its_reader_to_refuse(stub, make):
    stub.then = text(CHATTY)
    assert make(structured="plain").complete(asked()) == LLMReply(CHATTY, "stop", Usage(22, 14), calls=2)
    assert len(stub.requests) == 2


def test_usage_of_two_calls_is_unknown_where_one_does_not_say(stub, make):
    stub.script.extend([text(CHATTY, usage=None), text(TEXT)])
    assert make(structured="plain").complete(asked()).usage == Usage()


def test_without_a_schema_nothing_is_repaired(stub, make):
    stub.script.append(text(CHATTY))
    assert make(structured="plain").complete(PLAIN).text == CHATTY
    assert len(stub.requests) == 1


@pytest.mark.parametrize("form", ["json_schema", "json_object", "plain"])
@pytest.mark.parametrize("cut", ['{"answer": "te', "", None])
def test_a_reply_that_was_cut_off_is_given_back_as_such(stub, make, form, cut):
    stub.script.append(text(cut, "length", reasoning_content="hm"))
    assert make(structured=form).complete(asked()) == LLMReply(cut or "", "length", Usage(11, 7))
    assert len(stub.requests) == 1


def test_a_repair_that_is_cut_off_is_given_back_as_such(stub, make):
    stub.script.extend([text(CHATTY), text('{"answer": ', "length")])
    assert make(structured="plain").complete(asked()).finish_reason == "length"
    assert len(stub.requests) == 2


def test_a_server_that_does_not_keep_to_the_schema_is_shown_it(stub, make):
    stub.script.append(text(CHATTY))
    llm = make()
    assert llm.complete(asked()).text == TEXT
    assert stub.formats == ["json_schema", "json_object"]
    assert json.dumps(SCHEMA) in stub.requests[1]["messages"][0]["content"]
    assert stub.requests[1]["messages"][2]["content"] == CHATTY
    llm.complete(asked())
    assert stub.formats[2:] == ["json_object"]


def test_no_repair_begins_when_the_time_is_up(stub, make, clock):
    def late(request):
        clock.advance(60)
        return text(CHATTY)

    stub.then = late
    assert make(structured="plain").complete(asked(timeout_s=60)).text == CHATTY
    assert len(stub.requests) == 1


def test_a_failing_repair_is_told(stub, make):
    stub.script.append(text(CHATTY))
    stub.then = error(503, "overloaded")
    with pytest.raises(LLMUnavailable, match="503 Service Unavailable: overloaded") as failed:
        make(structured="plain", max_retries=1).complete(asked())
    assert len(stub.requests) == 3
    assert (failed.value.usage, failed.value.calls) == (Usage(11, 7), 2)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (text("", reasoning_content="hm"), LLMRejected),
        (text("", refusal="no"), LLMRejected),
        (text("tea", "content_filter"), LLMRejected),
        (text("tea", "network_error"), LLMUnavailable),
        (completion(None), LLMRejected),
    ],
)
def test_an_answer_that_cannot_be_used_is_paid_for_too(stub, make, reply, error):
    stub.script.append(reply)
    with pytest.raises(error) as failed:
        make().complete(asked())
    assert (failed.value.usage, failed.value.calls) == (Usage(11, 7), 1)
    stub.script.extend([text(CHATTY), reply])
    with pytest.raises(error) as failed:
        make().complete(asked())
    assert (failed.value.usage, failed.value.calls) == (Usage(22, 14), 2)


def test_what_a_server_did_not_report_is_not_known_of_an_error_either(stub, make):
    stub.script.extend([text(""), text("", usage=None), error(401, "who are you?")])
    found = []
    for _ in range(3):
        with pytest.raises(LLMError) as failed:
            make().complete(asked())
        found.append(failed.value.usage)
    assert found == [Usage(11, 7), None, None]


# ---- what another try mends


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_passing_faults_are_tried_again_with_growing_waits(stub, make, waits, status):
    stub.script.extend([error(status, "later")] * 3)
    assert make().complete(asked()).text == TEXT
    assert waits == [0.5, 1.0, 2.0]
    assert stub.formats == ["json_schema"] * 4


@pytest.mark.parametrize(
    "fault", [RESET, Reply(body=text(TEXT).body, cut=30), stream('{"choices": []}', cut=20)]
)
def test_a_lost_connection_is_tried_again(stub, make, waits, fault):
    stub.script.append(fault)
    assert make().complete(asked()).text == TEXT
    assert waits == [0.5]
    assert len(stub.requests) == 2


def test_tries_end_with_the_servers_message(stub, make, waits):
    stub.then = error(503, "model is loading")
    with pytest.raises(LLMUnavailable, match=r"503 Service Unavailable: model is loading \(tried 4 times\)"):
        make().complete(asked())
    assert waits == [0.5, 1.0, 2.0]
    assert len(stub.requests) == 4


def test_nobody_listening(clock):
    with running(ChatStub()) as gone:
        url = gone.url
    llm = OpenAIChat("m", url, clock=clock, sleep=clock.advance)
    with pytest.raises(
        LLMUnavailable, match=r"the chat server at 127.*cannot be reached .*tried 4 times.*look at"
    ):
        llm.complete(asked())


def test_a_server_that_never_answers(stub, make, waits):
    stub.then = HANG
    with pytest.raises(LLMUnavailable, match=r"did not answer in time \(\w+Timeout\) \(tried 2 times\)"):
        make(timeout_s=0.05, max_retries=1).complete(asked())
    assert waits == [0.5]


def test_the_requests_time_cuts_the_timeout_short(stub, make, waits):
    stub.then = HANG
    with pytest.raises(LLMUnavailable, match="past the time allowed; look at the server, or try a smaller"):
        make(timeout_s=60).complete(asked(timeout_s=0.05))
    assert waits == []


def test_retry_after_is_honoured(stub, make, waits):
    stub.script.append(error(429, "slow down", **{"Retry-After": "7"}))
    assert make().complete(asked()).text == TEXT
    assert waits == [7.0]


def test_waits_stay_within_the_requests_time(stub, make, waits):
    stub.then = error(429, "slow down", **{"Retry-After": "25"})
    with pytest.raises(LLMUnavailable, match=r"25 s later, would be past the time allowed.*rate limit"):
        make().complete(asked(timeout_s=60))
    assert waits == [25.0, 25.0]
    assert len(stub.requests) == 3


def test_the_time_is_one_for_all_rounds(stub, make, waits):
    """The first answer and its repair share it."""
    slow = error(429, "slow down", **{"Retry-After": "40"})
    stub.script.extend([slow, text(CHATTY), slow])
    with pytest.raises(LLMUnavailable, match="past the time allowed"):
        make(structured="plain").complete(asked(timeout_s=60))
    assert waits == [40.0]


def test_the_time_ends_a_reply_that_trickles(stub, make):
    class Running(ManualClock):
        """Every look costs 40 s."""

        def monotonic(self):
            self.advance(40)
            return super().monotonic()

    with pytest.raises(LLMUnavailable, match="still sending when the time was up"):
        make(clock=Running()).complete(asked())


# ---- what no other try mends


@pytest.mark.parametrize(
    ("reply", "shown", "hint"),
    [
        (error(400, "Unknown model"), "400 Bad Request: Unknown model", "model's name"),
        (error(401, f"Incorrect API key provided: {KEY}."), r"provided: \[key\]\.", "MEMSTORE_LLM_KEY"),
        (error(403, "no access"), "403 Forbidden: no access", "check the API key"),
        (error(404, "The model `m` does not exist"), "does not exist", "MEMSTORE_LLM_URL"),
        (Reply(404, "<html>\n<h1>Not\x1b[31m Found</h1>"), r"<html> <h1>Not \[31m Found</h1>", "base URL"),
        (Reply(422, {"detail": [{"loc": ["body"], "msg": "missing", "input": PRIVATE}]}), '"msg": "missing"', "model"),
        (Reply(405), "405 Method Not Allowed", "look at the server"),
        (Reply(307, headers={"Location": "http://u:p@evil.example/v1?key=s"}), "redirects to evil.example/v1,", "URL"),
    ],
)  # fmt: skip
def test_final_answers_are_told_at_once_with_what_to_do(stub, make, waits, reply, shown, hint):
    stub.script.append(reply)
    with pytest.raises(LLMUnavailable, match=shown) as caught:
        make(api_key=KEY).complete(asked())
    told = str(caught.value)
    assert told.startswith("the chat server at 127.0.0.1:")
    assert hint in told
    assert told.isprintable()
    assert len(told) < 600
    assert KEY not in told
    assert PRIVATE not in told
    assert ":p@" not in told
    assert len(stub.requests) == 1
    assert waits == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(413, "<h1>Request Entity Too Large</h1>"),
        error(400, "This model's maximum context length is 4096 tokens. However, you requested 6000 tokens."),
        error(400, "max_tokens is too large: 2000. This model supports at most 1024 completion tokens."),
        error(400, "Input data may contain inappropriate content.", "data_inspection_failed"),
        error(400, "The response was filtered due to Azure's content management policy.", "content_filter"),
        error(500, "the input length exceeds maximum context length"),
    ],
)
def test_a_text_that_is_not_taken_is_rejected_at_once(stub, make, waits, reply):
    stub.then = reply
    with pytest.raises(LLMRejected, match="does not take this text: make it shorter"):
        make().complete(asked())
    assert len(stub.requests) == 1
    assert waits == []


def test_the_key_is_in_no_error_repr_or_log(stub, make, caplog):
    caplog.set_level(logging.DEBUG)
    llm = make(api_key=KEY)
    assert KEY not in repr(llm)
    assert KEY not in repr(vars(llm))
    assert KEY not in repr(vars(llm._server))
    long = "x" * (MESSAGE_CHARS - len(KEY) // 2)
    for reply in [
        error(401, f"{long}{KEY}"),  # cut in the middle of the key
        error(400, f"response_format {KEY}"),
        error(413, KEY),
        error(500, KEY),
        Reply(200, {"error": {"message": KEY}}),
        Reply(200, KEY),
        Reply(200, f'{{"choices": [{{"finish_reason": "{KEY}", "message": {{"content": ""}}}}]}}'),
    ]:
        stub.then = reply
        with pytest.raises(LLMError) as caught:
            llm.complete(asked())
        assert KEY not in "".join(traceback.format_exception(caught.value))
        assert KEY[:8] not in str(caught.value)
    assert KEY not in repr(llm._server._clients[os.getpid()].headers)
    assert KEY not in caplog.text


def test_a_proxy_of_the_environment_is_not_used(stub, make, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert make().complete(asked()).text == TEXT


# ---- answers that are no answers

REJECTED = {
    "half a JSON": (Reply(200, f'{{"choices": [{{"message": {{"content": "{PRIVATE}'), "no complete JSON in .* bytes"),
    "nothing": (Reply(200), "no complete JSON in 0 bytes"),
    "a page": (Reply(200, "\n<!DOCTYPE html><html>log in</html>"), "sent a page instead of JSON; check the base URL"),
    "a stream": (stream(f'{{"choices": [{{"delta": {{"content": "{PRIVATE}"}}}}]}}', "[DONE]"), "sent a stream though"),
    "not UTF-8": (Reply(200, b"\xff\xfe\x00"), "no complete JSON"),
    "deep nesting": (Reply(200, "[" * 10_000), "no complete JSON"),
    "deep nesting that ends": (Reply(200, "[" * 10_000 + "]" * 10_000), "no complete JSON"),
    "a number of thousands of digits": (Reply(200, "9" * 10_000), "no complete JSON"),
    "NaN": (Reply(200, "NaN"), "no object"),
    "a list": (Reply(200, []), "no object"),
    "NaN as choices": (Reply(200, '{"choices": NaN}'), "no list of objects 'choices'"),
    "no choices": (Reply(200, {"object": "chat.completion"}), "no list of objects 'choices'; check the base URL"),
    "empty choices": (Reply(200, {"choices": []}), "an empty list 'choices'"),
    "choices of text": (Reply(200, {"choices": [PRIVATE]}), "no list of objects 'choices'"),
    "no message": (Reply(200, {"choices": [{"text": PRIVATE}]}), "a choice without a message"),
    "a message of text": (completion(PRIVATE), "a choice without a message"),
    "no content": (completion({"role": "assistant"}), "an answer without text"),
    "null": (text(None), "an answer without text"),
    "blank": (text(" \n"), "an answer without text"),
    "a number as content": (text(5), "an answer without text"),
    "thoughts alone": (text(None, reasoning_content=PRIVATE), "thoughts and no text; turn thinking off"),
    "a call of a tool": (
        text(None, "tool_calls", tool_calls=[{"function": {"name": "f", "arguments": PRIVATE}}]), "a call of a tool"),
    "a call of a function": (text("", "function_call", function_call={"name": "f"}), "a call of a tool"),
    "a refusal": (text(None, refusal=PRIVATE), "the model refused to answer"),
    "a part that refuses": (text([{"type": "refusal", "refusal": PRIVATE}]), "the model refused to answer"),
    "filtered": (text(PRIVATE, "content_filter"), r"withheld its answer \(content_filter\)"),
    "1 MB": (text("x" * 1_000_000), "more than the [0-9,]+ bytes that a reply of the tokens asked for can take"),
    "1 MB of usage": (text("tea", usage={str(i): i for i in range(100_000)}), "more than the .* bytes"),
}  # fmt: skip

UNAVAILABLE = {
    "an error as 200": (Reply(200, {"error": {"message": "out of memory"}}), "answered with an error: out of memory"),
    "an error in a choice": (
        Reply(200, {"choices": [{"error": {"message": "provider is down", "code": 502}}]}), "provider is down"),
    "broken off": (text(PRIVATE, "insufficient_system_resource"), "broke off its answer"),
    "compressed": (Reply(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}), "compressed its answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*REJECTED, *UNAVAILABLE])
def test_a_twisted_answer_is_refused_and_named(stub, make, waits, name):
    reply, shown = {**REJECTED, **UNAVAILABLE}[name]
    stub.script.append(reply)
    llm = make()
    with pytest.raises(LLMRejected if name in REJECTED else LLMUnavailable, match=shown) as caught:
        llm.complete(asked())
    told = "".join(traceback.format_exception(caught.value))
    assert str(caught.value).startswith("the chat server at 127.0.0.1:")
    assert str(caught.value).isprintable()
    assert PRIVATE not in told  # errors are kept beyond the deletion of what a user said
    assert len(stub.requests) == 1
    assert waits == []
    assert llm.complete(asked()).text == TEXT  # and the next request is a new one


def test_a_long_reply_fits(stub, make):
    long = "\u8336" * 2_000
    stub.script.append(text(long, reasoning_content="x" * (REPLY_BYTES - 10_000)))
    assert make().complete(asked(schema=None, max_tokens=2_000)).text == long
    assert len(json.dumps(long)) < 2_000 * TOKEN_BYTES


# ---- making one


@pytest.mark.parametrize(
    "url",
    [
        "", "api.example.com/v1", "ftp://example.com/v1", "http://", "http://h:port/v1", "http://a b/v1", None,
        "https://user:secret@h/v1", "https://h/v1?key=secret", "https://h/v1#secret", "https://h/v1/chat/completions/",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_one_is_refused_without_repeating_it(url):
    with pytest.raises(InvalidInput, match="MEMSTORE_LLM_URL") as caught:
        OpenAIChat("m", url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "sk-secret\n", "sk-sécret", b"secret", 5])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key):
    with pytest.raises(InvalidInput, match="MEMSTORE_LLM_KEY") as caught:
        OpenAIChat("m", URL, key)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""}, {"model": " "}, {"model": None}, {"model": "\ud800"}, {"timeout_s": 0}, {"timeout_s": "5"},
        {"timeout_s": float("nan")}, {"max_retries": -1}, {"max_retries": True}, {"structured": "yaml"},
        {"structured": None},
    ],
)  # fmt: skip
def test_an_argument_that_makes_no_sense_is_named(options):
    (name,) = options
    with pytest.raises(InvalidInput, match=name):
        OpenAIChat(**{"model": "m", "base_url": URL, **options})


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    llm = OpenAIChat("m", URL)
    for _ in range(2):
        with pytest.raises(LLMUnavailable, match=r"pip install 'memstore\[openai\]'"):
            llm.complete(PLAIN)


# ---- by name


@pytest.fixture
def server_set(monkeypatch):
    def put(**values):
        for name in ("URL", "KEY"):
            monkeypatch.delenv(f"MEMSTORE_LLM_{name}", raising=False)
        for name, value in values.items():
            monkeypatch.setenv(f"MEMSTORE_LLM_{name}", value)

    put()
    return put


def test_the_environment_names_the_server(stub, server_set):
    server_set(URL=stub.url, KEY=KEY)
    llm = resolve_llm("openai: org/model:v1 ")
    assert isinstance(llm, OpenAIChat)
    assert llm.name == "org/model:v1"
    assert llm.complete(asked()).text == TEXT
    llm.close()
    assert stub.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("model", ["m", "@cf/meta/llama", "claude@2024", "a:b@c"])
def test_the_name_may_name_the_server(stub, server_set, model):
    server_set(URL="http://127.0.0.1:1/elsewhere")
    llm = resolve_llm(f"openai:{model}@{stub.url}")
    assert llm.name == model
    assert llm.complete(asked()).text == TEXT
    llm.close()
    assert "authorization" not in stub.headers[0]


def test_what_is_missing_or_wrong_in_the_name_is_told_without_repeating_it(server_set):
    with pytest.raises(ConfigError, match=r"MEMSTORE_LLM_URL.*openai:<model>@<base url>"):
        resolve_llm("openai:m")
    with pytest.raises(ConfigError, match="MEMSTORE_LLM_URL"):
        resolve_llm("openai:m@localhost:8080")
    for spec in ("", "gpt", "openai", "openai:", "openai: ", "local:m", "sk-secret", "http://u:secret@h/v1"):
        with pytest.raises(InvalidInput, match="'openai:<model>@<base url>'") as caught:
            resolve_llm(spec)
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInput, match="MEMSTORE_LLM_URL") as caught:
        resolve_llm("openai:m@https://user:secret@h/v1")
    assert "secret" not in str(caught.value)


class Whole:
    def complete(self, request):
        return LLMReply("")


class Waiting:
    async def complete(self, request):
        return LLMReply("")


def test_an_object_is_checked_and_given_back():
    whole = Whole()
    assert resolve_llm(whole) is whole
    assert resolve_llm(None) is None
    for wrong, shown in [
        (Whole, "not the class Whole"),
        (object(), "no method complete"),
        (5, "no method complete"),
        (b"openai:m", "no method complete"),
        (Waiting(), "must not be async"),
    ]:
        with pytest.raises(InvalidInput, match=shown):
            resolve_llm(wrong)


def test_naming_a_model_loads_no_client():
    code = (
        "import sys; from memstore.llms import resolve_llm; assert 'memstore.llms.openai' not in sys.modules\n"
        f"resolve_llm('openai:m@{URL}'); sys.exit('httpx2' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
