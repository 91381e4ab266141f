"""The OpenAI-compatible embedder against a real server on the loopback that errs on order (R13, P8)."""

import gc
import logging
import os
import sys
import threading
import traceback
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from conftest import contents, said
from memstore.embedders import openai
from memstore.embedders.openai import OpenAIEmbedder
from memstore.embedding import Embedder, check_documents, resolve
from memstore.errors import ConfigError, EmbedderUnavailable, EmbeddingError, EmbeddingRejected, InvalidInput
from memstore.model_server import MESSAGE_CHARS
from memstore.testing import HashEmbedder, ManualClock
from openai_stub import DIM, HANG, KEY, RESET, Reply, Stub, answer, error, in_base64, items, running

pytest.importorskip("httpx2")

URL = "http://127.0.0.1:1/v1"


@pytest.fixture
def stub():
    with running(Stub()) as one:
        yield one


class Waits(list):
    """The sleeps that were asked for; each lets the clock go on."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def __call__(self, seconds: float) -> None:
        self.append(seconds)
        self.clock.advance(seconds)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def waits(clock):
    return Waits(clock)


@pytest.fixture
def make(stub, clock, waits):
    """Makes embedders for the stub: width given, no real waiting."""
    with ExitStack() as stack:

        def made(model="m", url=None, **options):
            options = {"dimensions": DIM, "clock": clock, "sleep": waits, **options}
            embedder = OpenAIEmbedder(model, url or stub.url, **options)
            stack.callback(embedder.close)
            return embedder

        yield made


def together(*works):
    """Run all at once; the results in their order."""
    results = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(i):
        start.wait()
        results[i] = works[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# ---- what is sent, what comes back


def test_documents_and_queries(stub, make):
    embedder = make(api_key=KEY, query_prefix="query: ", document_prefix="passage: ")
    assert isinstance(embedder, Embedder)
    rows = embedder.embed_documents(["green tea", "", "ｆｕｌｌ\0width \n text"])
    assert rows.shape == (3, DIM)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], stub.rows(["passage: green tea"])[0], atol=1e-6)
    assert check_documents(rows, 3, DIM)[1] == [None, "zero vector", None]
    query = embedder.embed_query("green tea")
    assert query.shape == (DIM,)
    assert query.dtype == np.float32
    np.testing.assert_allclose(query, stub.rows(["query: green tea"])[0], atol=1e-6)
    assert stub.requests[0] == {
        "model": "m",
        "input": ["passage: green tea", "passage: full width text"],
        "encoding_format": "float",
        "dimensions": DIM,
    }
    assert stub.inputs[1:] == [["query: green tea"]]
    assert stub.paths == ["/v1/embeddings"] * 2
    assert {headers["authorization"] for headers in stub.headers} == {f"Bearer {KEY}"}


def test_no_texts_and_blank_texts_ask_nothing(stub, make):
    embedder = make()
    assert embedder.embed_documents([]).shape == (0, DIM)
    assert not embedder.embed_documents([" ", "\u200b"]).any()
    with pytest.raises(EmbeddingRejected, match="blank"):
        embedder.embed_query(" \0")
    assert stub.requests == []


def test_without_a_key_none_is_sent(stub, make):
    make(dimensions=None).embed_query("tea")
    assert "authorization" not in stub.headers[0]
    assert "dimensions" not in stub.requests[0]


def test_the_identity_names_the_server_and_learns_the_width_once(stub, make):
    embedder = make("e5 模型", dimensions=None, query_prefix="q ", document_prefix="d ")
    works = [lambda: embedder.identity, lambda: embedder.embed_documents(["tea"]).shape] * 4
    results = together(*works)
    assert set(results[1::2]) == {(1, DIM)}
    (identity,) = set(results[::2])
    place = stub.url.removeprefix("http://")
    assert (identity.model, identity.revision, identity.dim) == ("e5 模型", place, DIM)
    assert (identity.query_prefix, identity.document_prefix) == ("q ", "d ")
    assert stub.inputs.count(["width"]) == 1
    assert embedder.identity == identity
    assert len(stub.requests) == 5


def test_the_identity_with_given_dimensions_asks_nobody():
    one = OpenAIEmbedder("m", "https://API.example.com:443/v1/", dimensions=8)
    assert (one.identity.revision, one.identity.dim) == ("api.example.com/v1", 8)
    spaces = {
        OpenAIEmbedder(model, url, dimensions=8).identity
        for model, url in [
            ("m", "https://api.example.com/v1"),
            ("n", "https://api.example.com/v1"),
            ("m", "https://api.example.com/v2"),
            ("m", "https://api.example.com:8443/v1"),
            ("m", "https://other.example.com/v1"),
            ("m", "http://[::1]:8080"),
        ]
    }
    assert len(spaces) == 6
    assert one.identity in spaces
    assert "[::1]:8080" in {space.revision for space in spaces}


def test_order_is_restored_by_index(stub, make):
    texts = [f"text {number}" for number in range(5)]

    def shuffled(request):
        data = items(stub.rows(request["input"]))
        return Reply(body={"data": [data[i] for i in (3, 0, 4, 2, 1)]})

    stub.script.append(shuffled)
    np.testing.assert_allclose(make().embed_documents(texts), stub.rows(texts), atol=1e-6)


def test_base64_is_read(stub, make):
    stub.then = lambda request: answer(in_base64(stub.rows(request["input"])))
    texts = ["one", "two"]
    np.testing.assert_allclose(make().embed_documents(texts), stub.rows(texts), atol=1e-6)


def test_batches_are_cut_by_count_and_by_characters(stub, make, monkeypatch):
    texts = [f"text {number}" for number in range(10)]
    rows = make(batch_size=4).embed_documents(texts)
    assert [len(batch) for batch in stub.inputs] == [4, 4, 2]
    np.testing.assert_allclose(rows, stub.rows(texts), atol=1e-6)
    monkeypatch.setattr(openai, "BATCH_CHARS", 100)
    stub.requests.clear()
    make().embed_documents(["a" * 60, "b" * 40, "c", "d" * 300, "e"])
    assert [[text[0] for text in batch] for batch in stub.inputs] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_connections_are_kept_and_given_back(stub, make):
    embedder = make()
    for _ in range(3):
        embedder.embed_query("tea")
    assert len(stub.peers) == 1
    embedder.close()
    embedder.close()
    assert embedder.embed_query("tea").any()
    assert len(stub.peers) == 2


def test_an_embedder_that_is_let_go_leaves_no_connection_behind(stub):
    # An unclosed socket would be a ResourceWarning, which fails the test.
    embedder = OpenAIEmbedder("m", stub.url, dimensions=DIM)
    embedder.embed_query("tea")
    del embedder
    gc.collect()
    assert len(stub.requests) == 1


def test_threads_at_once_get_their_own_rows(stub, make):
    embedder = make(batch_size=3)
    asked = [[f"thread {t} text {n}" for n in range(7)] for t in range(8)]
    results = together(*(lambda texts=texts: embedder.embed_documents(texts) for texts in asked))
    for texts, rows in zip(asked, results, strict=True):
        np.testing.assert_allclose(rows, stub.rows(texts), atol=1e-6)
    assert len(stub.requests) == 8 * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_opens_connections_of_its_own(stub, make):
    embedder = make(dimensions=None)
    embedder.embed_query("tea")
    with embedder._probing.setdefault(os.getpid(), threading.Lock()):  # as a thread of the parent might
        child = os.fork()
        if child == 0:
            os._exit(0 if embedder.identity.dim == DIM and embedder.embed_query("milk").any() else 1)
        assert os.waitpid(child, 0)[1] == 0
    embedder.embed_query("tea")
    assert len(stub.peers) == 2


# ---- what another try mends


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_passing_faults_are_tried_again_with_growing_waits(stub, make, waits, status):
    stub.script.extend([error(status, "later")] * 3)
    assert make().embed_documents(["tea"]).any()
    assert waits == [0.5, 1.0, 2.0]
    assert len(stub.requests) == 4


@pytest.mark.parametrize("fault", [RESET, Reply(body={"data": []}, cut=5), Reply(body={"data": []}, cut=0)])
def test_a_lost_connection_is_tried_again(stub, make, waits, fault):
    stub.script.append(fault)
    assert make().embed_documents(["tea"]).any()
    assert waits == [0.5]


def test_tries_end_with_the_servers_message(stub, make, waits):
    stub.then = error(503, "model is loading")
    with pytest.raises(
        EmbedderUnavailable, match="answered 503 Service Unavailable: model is loading"
    ) as caught:
        make(max_retries=2).embed_documents(["tea"])
    assert "tried 3 times" in str(caught.value)
    assert stub.url.removeprefix("http://") in str(caught.value)
    assert waits == [0.5, 1.0]


def test_waits_are_bounded(stub, make, waits):
    stub.then = error(500, "no")
    with pytest.raises(EmbedderUnavailable):
        make(max_retries=7).embed_documents(["tea"])
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_nobody_listening():
    with running(Stub()) as gone:
        url = gone.url
    clock = ManualClock()
    embedder = OpenAIEmbedder("m", url, dimensions=DIM, clock=clock, sleep=clock.advance)
    for _ in range(2):
        with pytest.raises(
            EmbedderUnavailable, match=r"cannot be reached .*tried 5 times.*look at the server"
        ):
            embedder.embed_documents(["tea"])


def test_a_server_that_never_answers(stub, make, waits):
    stub.then = HANG
    with pytest.raises(EmbedderUnavailable, match=r"did not answer in time \(\w+Timeout\) \(tried 2 times\)"):
        make(timeout_s=0.05, max_retries=1).embed_documents(["tea"])
    assert waits == [0.5]


def test_the_budget_cuts_the_timeout_short(stub, make, waits):
    stub.then = HANG
    with pytest.raises(
        EmbedderUnavailable, match="past the time allowed; look at the server, or try a smaller"
    ):
        make(timeout_s=60, budget_s=0.05).embed_documents(["tea"])
    assert waits == []


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.5),  # never sooner than the own back-off
        ("3600", 60.0),
        (format_datetime(datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC), usegmt=True), 20.0),
        ("Thu, 01 Jan 2026 00:00:09 -0000", 9.0),
        (format_datetime(datetime(2025, 1, 1, tzinfo=UTC), usegmt=True), 0.5),
        ("Wed, 01 Jan 9999 00:00:00 GMT", 60.0),
        ("-5", 0.5),
        ("1e9", 0.5),
        ("nan", 0.5),
        ("9" * 400, 0.5),
        ("soon", 0.5),
        ("", 0.5),
    ],
)
def test_retry_after_is_honoured_within_bounds(stub, make, waits, header, wait):
    stub.script.append(error(429, "slow down", **{"Retry-After": header}))
    assert make().embed_documents(["tea"]).any()
    assert waits == [wait]


def test_a_wait_past_the_budget_ends_the_call_at_once(stub, make, waits):
    stub.then = error(429, "slow down", **{"Retry-After": "50"})
    with pytest.raises(EmbedderUnavailable, match=r"50 s later, would be past the time allowed.*rate limit"):
        make(budget_s=120).embed_documents(["tea"])
    assert waits == [50.0, 50.0]
    assert len(stub.requests) == 3


def test_a_query_is_waited_for_and_tried_twice_at_most(stub, make, waits):
    stub.then = error(500, "no")
    embedder = make(dimensions=None, max_retries=6)
    with pytest.raises(EmbedderUnavailable, match="tried 2 times"):
        embedder.embed_query("tea")
    with pytest.raises(EmbedderUnavailable, match="tried 2 times"):
        _ = embedder.identity
    stub.then = error(429, "no", **{"Retry-After": "30"})
    with pytest.raises(EmbedderUnavailable, match="30 s later"):
        embedder.embed_query("tea")
    assert waits == [0.5, 0.5]
    stub.then = None
    assert embedder.identity.dim == DIM


def test_the_budget_ends_a_reply_that_trickles(stub, make, monkeypatch):
    class Running(ManualClock):
        """Every look costs 40 s."""

        def monotonic(self):
            self.advance(40)
            return super().monotonic()

    with pytest.raises(EmbedderUnavailable, match="still sending when the time was up"):
        make(clock=Running(), budget_s=60).embed_documents(["tea"])


# ---- what no other try mends


@pytest.mark.parametrize(
    ("reply", "shown", "hint"),
    [
        (error(400, "Unknown parameter: 'dimensions'", "bad"), "400 Bad Request: Unknown parameter", "dimensions"),
        (error(401, f"Incorrect API key provided: {KEY}."), r"provided: \[key\]\.", "MEMSTORE_EMBEDDINGS_KEY"),
        (error(403, "no access"), "403 Forbidden: no access", "check the API key"),
        (error(404, "The model `m` does not exist"), "does not exist", "MEMSTORE_EMBEDDINGS_URL"),
        (Reply(404, "<html>\n<h1>Not\x1b[31m Found\u202e</h1>"), r"<html> <h1>Not \[31m Found </h1>", "base URL"),
        (Reply(422, {"detail": [{"loc": ["body", "model"], "msg": "missing"}]}), '"msg": "missing"', "model's name"),
        (Reply(424, {"error": "Inference failed"}), "Inference failed", "look at the server"),
        (Reply(405, {"message": "Method not allowed"}), "Method not allowed", "look at the server"),
        (Reply(418, '"short"'), "short", "look"),
        (Reply(418, '{"error": null}'), "error", "look"),
        (Reply(499, b"\xff\x00" * 50_000), "answered 499: ", "look"),
        (Reply(401), "answered 401 Unauthorized; check the API key", ""),
        (Reply(307, headers={"Location": "http://u:p@evil.example/v1?key=s"}), "redirects to evil.example/v1,", "base URL"),
        (Reply(302), "redirects to nowhere", ""),
    ],
)  # fmt: skip
def test_final_answers_are_told_at_once_with_what_to_do(stub, make, waits, reply, shown, hint):
    stub.script.append(reply)
    with pytest.raises(EmbedderUnavailable, match=shown) as caught:
        make(api_key=KEY).embed_documents(["tea", "milk"])
    text = str(caught.value)
    assert hint in text
    assert text.isprintable()
    assert len(text) < 600
    assert KEY not in text
    assert ":p@" not in text
    assert len(stub.requests) == 1
    assert waits == []


def test_the_key_is_in_no_error_repr_or_log(stub, make, caplog):
    caplog.set_level(logging.DEBUG)
    embedder = make(api_key=KEY)
    assert KEY not in repr(embedder)
    assert KEY not in repr(vars(embedder))
    assert KEY not in repr(vars(embedder._server))
    long = "x" * (MESSAGE_CHARS - len(KEY) // 2)
    replies = [
        error(401, f"{long}{KEY}"),  # cut in the middle of the key
        error(500, KEY),
        Reply(200, f'{{"error": {{"message": "{KEY}"}}}}'),
        Reply(200, KEY),
    ]
    for reply in replies:
        stub.then = reply
        with pytest.raises(EmbeddingError) as caught:
            embedder.embed_documents(["tea"])
        told = "".join(traceback.format_exception(caught.value))
        assert KEY not in told
        assert KEY[:8] not in str(caught.value)
    embedder._server._clients[os.getpid()].headers["authorization"] = f"Bearer {KEY}"
    assert KEY not in repr(embedder._server._clients[os.getpid()].headers)
    assert KEY not in caplog.text


def test_a_proxy_of_the_environment_is_not_used(stub, make, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert make().embed_query("tea").any()


# ---- answers that are no answers


def data(*rows):
    return Reply(body={"data": list(rows)})


def item(index, embedding):
    return {"index": index, "embedding": embedding}


SOUND = [0.5] * DIM
TWISTED = {
    "half a JSON": (Reply(200, '{"data": [{"index": 0, "emb'), "no complete JSON"),
    "nothing": (Reply(200), "no complete JSON"),
    "a page": (Reply(200, "<html>log in</html>"), "no complete JSON.*log in.*base URL"),
    "not UTF-8": (Reply(200, b"\xff\xfe\x00"), "no complete JSON"),
    "deep nesting": (Reply(200, "[" * 100_000), "no complete JSON"),
    "a list": (Reply(200, []), "without a list 'data'"),
    "no data": (Reply(200, {"object": "list"}), "without a list 'data'"),
    "data no list": (Reply(200, {"data": {"0": SOUND}}), "without a list 'data'"),
    "an error as 200": (Reply(200, {"error": {"message": "out of memory"}}), "with an error: out of memory"),
    "too few": (data(item(0, SOUND)), "1 vectors for 2 texts"),
    "too many": (data(*(item(i, SOUND) for i in range(3))), "3 vectors for 2 texts"),
    "none": (data(), "0 vectors for 2 texts"),
    "duplicate index": (data(item(1, SOUND), item(1, SOUND)), "two vectors with the index 1"),
    "missing index": (data(item(0, SOUND), {"embedding": SOUND}), "index None"),
    "index out of range": (data(item(0, SOUND), item(2, SOUND)), r"index 2\.0"),
    "negative index": (data(item(-1, SOUND), item(0, SOUND)), "index -1"),
    "half an index": (data(item(0.5, SOUND), item(1, SOUND)), r"index 0\.5"),
    "endless index": (Reply(200, '{"data": [{"index": 1e999}, {"index": NaN}]}'), "index inf"),
    "a bool as index": (data(item(0, SOUND), item(True, SOUND)), "index True"),
    "text as index": (data(item(0, SOUND), item("1", SOUND)), "index '1'"),
    "item no object": (data(item(0, SOUND), SOUND), "is a list, not an object"),
    "ragged": (data(item(0, SOUND), item(1, SOUND[1:])), "different widths: 15, 16"),
    "no embedding": (data(item(0, SOUND), {"index": 1}), "is a NoneType, not a list"),
    "words": (data(item(0, SOUND), item(1, ["a"] * DIM)), "a str among its numbers"),
    "bools": (data(item(0, SOUND), item(1, [True] * DIM)), "a bool among its numbers"),
    "nested": (data(item(0, SOUND), item(1, [SOUND])), "a list among its numbers"),
    "wrong width": (data(item(0, SOUND * 2), item(1, SOUND * 2)), "width 32, not 16.*another model"),
    "empty rows": (data(item(0, []), item(1, [])), "width 0, not 16"),
    "base64 of odd length": (data(item(0, "AAA="), item(1, "AAA=")), "no base64"),
    "no base64": (data(item(0, "not base 64!"), item(1, "é")), "no base64"),
    "10 MB": (Reply(200, b" " * 10_000_000), "more than the .* bytes"),
    "10 MB of vector": (data(item(0, [0.1] * 2_000_000), item(1, SOUND)), "more than the .* bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", TWISTED)
def test_a_twisted_answer_is_refused_and_named(stub, make, waits, name):
    reply, shown = TWISTED[name]
    stub.script.append(reply)
    embedder = make()
    with pytest.raises(EmbeddingRejected, match=shown) as caught:
        embedder.embed_documents(["tea", "milk"])
    assert str(caught.value).startswith("the embedding server at 127.0.0.1:")
    assert str(caught.value).isprintable()
    assert len(stub.requests) == 1
    assert embedder.embed_documents(["tea", "milk"]).any(axis=1).all()  # and the next call is a new one


def test_a_width_that_cannot_be_stored(stub, make):
    stub.then = answer([[]])
    with pytest.raises(EmbeddingRejected, match="width is from 1 to 8192"):
        _ = make(dimensions=None).identity


def test_a_compressed_answer_is_refused(stub, make):
    stub.script.append(Reply(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}))
    with pytest.raises(EmbedderUnavailable, match="compressed"):
        make().embed_documents(["tea"])
    assert stub.headers[0]["accept-encoding"] == "identity"


def test_poisoned_rows_are_left_to_the_border(stub, make):
    head = [0.5] * (DIM - 1)
    rows = [
        [float("nan"), *head],
        [float("inf"), *head],
        [float("-inf"), *head],
        [None, *head],
        [0.0] * DIM,
        [1e-38] * DIM,
        [1e300] * DIM,
        [10**400, *head],
        SOUND,
    ]
    stub.script.append(answer(rows))
    got = make().embed_documents([f"text {i}" for i in range(len(rows))])
    assert got.dtype == np.float32
    checked, reasons = check_documents(got, len(rows), DIM)
    bad = "not finite"
    assert reasons == [bad, bad, bad, bad, "zero vector", "zero vector", bad, bad, None]
    np.testing.assert_allclose(checked[-1], 0.25, atol=1e-6)


def test_a_server_that_changes_its_model_is_noticed_by_the_width(stub, make):
    embedder = make(dimensions=None)
    assert embedder.identity.dim == DIM
    stub.model = HashEmbedder(dim=DIM * 2)
    for _ in range(2):
        with pytest.raises(EmbeddingRejected, match="width 32, not 16"):
            embedder.embed_documents(["tea"])
    assert embedder.identity.dim == DIM
    assert make(dimensions=None).identity.dim == DIM * 2


# ---- texts that a server refuses


def too_many(limit, reply):
    return lambda request: reply if len(request["input"]) > limit else None


@pytest.mark.parametrize(
    "reply",
    [
        Reply(413, "<h1>Request Entity Too Large</h1>"),
        error(413, "batch size 8 > maximum allowed batch size 3", "Validation"),
        error(400, "batch size is invalid, it should not be larger than 3."),
        error(400, "Invalid 'input': array too long. Expected an array with maximum length 3"),
        error(400, "Requested 400000 tokens, max 300000 tokens per request: too many tokens", "max_tokens"),
        Reply(422, {"error": "`inputs` must have at most 3 items"}),
    ],
)
def test_a_batch_that_is_too_large_is_halved(stub, make, waits, caplog, reply):
    stub.judge = too_many(3, reply)
    texts = [f"text {number}" for number in range(8)]
    np.testing.assert_allclose(make().embed_documents(texts), stub.rows(texts), atol=1e-6)
    assert [len(batch) for batch in stub.inputs] == [8, 4, 2, 2, 4, 2, 2]
    assert waits == []
    assert caplog.records == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(413),
        error(400, "This model's maximum context length is 512 tokens. However, you requested 900 tokens."),
        error(422, "Inputs must have less than 512 tokens. Given: 900"),
        error(400, "the input length exceeds the context length"),
        error(400, "Input data may contain inappropriate content.", "data_inspection_failed"),
        error(500, "input is too large to process. increase the physical batch size"),
        error(500, "the input length exceeds maximum context length"),
    ],
)
def test_one_refused_text_gets_zeros_and_cannot_hold_up_the_others(stub, make, waits, caplog, reply):
    stub.judge = lambda request: reply if any("poison" in text for text in request["input"]) else None
    texts = ["tea", "milk", "poison", "water", "juice"]
    rows = make().embed_documents(texts)
    assert rows.any(axis=1).tolist() == [True, True, False, True, True]
    assert check_documents(rows, 5, DIM)[1][2] == "zero vector"
    assert stub.inputs.count(["width"]) == 1
    (record,) = caplog.records
    assert "refused 1 of 5 texts" in record.getMessage()
    assert "poison" not in record.getMessage()
    with pytest.raises(EmbeddingRejected, match="refused the query"):
        make().embed_query("poison")
    assert waits == []


def test_a_server_that_refuses_everything_is_no_store_of_zeros(stub, make):
    stub.then = error(400, "You have exceeded your monthly tokens")
    with pytest.raises(EmbedderUnavailable, match="refuses every text, the word 'width' too: 400 You have"):
        make().embed_documents([f"text {number}" for number in range(32)])
    assert len(stub.requests) == 7  # 32, 16, 8, 4, 2, 1, and the word
    with pytest.raises(EmbedderUnavailable, match="refuses every text"):
        _ = make(dimensions=None).identity


@pytest.mark.parametrize(
    "reply",
    [
        error(401, "too many inputs"),
        error(403, "your input exceeds the plan"),
        error(404, "batch too large"),
        error(400, "invalid model"),
        error(400, "text-embedding-3-small: dimensions must be less than 1536"),
    ],
)
def test_other_errors_never_become_zero_rows(stub, make, reply):
    stub.then = reply
    with pytest.raises(EmbedderUnavailable):
        make().embed_documents(["tea", "milk"])
    assert len(stub.requests) == 1


# ---- making one


@pytest.mark.parametrize(
    "url",
    [
        "", "api.example.com/v1", "ftp://example.com/v1", "file:///etc/passwd", "http://", "http:///v1",
        "http://h:port/v1", "http://h:99999/v1", "http://[::1/v1", "http://a b/v1", "http://h/v1\n", None,
        "https://user:secret@h/v1", "https://secret@h/v1", "https://h/v1?api-version=secret", "https://h/v1#secret",
        "http://a..b/v1", "http://" + "a" * 64 + "/v1", "https://h/v1?", "https://h/v1/embeddings", "https://h/v1/embeddings/",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_one_is_refused_without_repeating_it(url):
    with pytest.raises(InvalidInput, match="MEMSTORE_EMBEDDINGS_URL") as caught:
        OpenAIEmbedder("m", url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " ", "sk-secret\n", "sk-sécret", "sk secret", b"secret", 5])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key):
    with pytest.raises(InvalidInput, match="MEMSTORE_EMBEDDINGS_KEY") as caught:
        OpenAIEmbedder("m", URL, key)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"model": ""}, {"model": " "}, {"model": None}, {"model": "\ud800"}, {"query_prefix": None},
        {"document_prefix": "\udcff"}, {"dimensions": 0}, {"dimensions": 8193}, {"dimensions": "8"},
        {"dimensions": True}, {"timeout_s": 0}, {"timeout_s": float("nan")}, {"timeout_s": "5"},
        {"budget_s": float("inf")}, {"budget_s": -1}, {"batch_size": 0}, {"batch_size": 2.5}, {"batch_size": True},
        {"max_retries": -1}, {"max_retries": None},
    ],
)  # fmt: skip
def test_an_argument_that_makes_no_sense_is_named(options):
    (name,) = options
    with pytest.raises(InvalidInput, match="dim" if name == "dimensions" else name):
        OpenAIEmbedder(**{"model": "m", "base_url": URL, **options})


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    embedder = OpenAIEmbedder("m", URL)
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match=r"pip install 'memstore\[openai\]'"):
            embedder.embed_query("tea")


# ---- by name


@pytest.fixture
def server_set(monkeypatch):
    def put(**values):
        for name in ("URL", "KEY", "DIMENSIONS", "QUERY_PREFIX", "DOCUMENT_PREFIX"):
            monkeypatch.delenv(f"MEMSTORE_EMBEDDINGS_{name}", raising=False)
        for name, value in values.items():
            monkeypatch.setenv(f"MEMSTORE_EMBEDDINGS_{name}", value)

    put()
    return put


def test_the_environment_names_the_server(stub, server_set):
    server_set(
        URL=stub.url, KEY=KEY, DIMENSIONS=str(DIM), QUERY_PREFIX="query: ", DOCUMENT_PREFIX="passage: "
    )
    embedder = resolve("openai:org/model:v1")
    assert isinstance(embedder, OpenAIEmbedder)
    identity = embedder.identity
    assert (identity.model, identity.dim) == ("org/model:v1", DIM)
    assert (identity.query_prefix, identity.document_prefix) == ("query: ", "passage: ")
    assert embedder.embed_query("tea").any()
    embedder.close()
    assert stub.inputs == [["query: tea"]]
    assert stub.headers[0]["authorization"] == f"Bearer {KEY}"
    server_set(URL=stub.url, KEY="")
    plain = resolve("openai: m ")
    assert plain.identity.model == "m"
    plain.close()
    assert "authorization" not in stub.headers[1]


def test_what_is_missing_or_wrong_in_the_environment_is_named(server_set):
    with pytest.raises(ConfigError, match="MEMSTORE_EMBEDDINGS_URL"):
        resolve("openai:m")
    for wrong in ("many", "-1", "1.5", "²"):
        server_set(URL=URL, DIMENSIONS=wrong)
        with pytest.raises(ConfigError, match="MEMSTORE_EMBEDDINGS_DIMENSIONS"):
            resolve("openai:m")
    server_set(URL="localhost:8080")
    with pytest.raises(InvalidInput, match="MEMSTORE_EMBEDDINGS_URL"):
        resolve("openai:m")


# ---- with a store (R13, P8)

FAULTS = {
    "429": error(429, "slow down", **{"Retry-After": "1"}),
    "500": error(500, "no"),
    "timeout": HANG,
    "reset": RESET,
    "hang up": Reply(body={"data": []}, cut=4),
    "half JSON": Reply(200, '{"data": [{"ind'),
    "wrong width": answer([[0.5] * (DIM + 1)]),
    "10 MB": Reply(200, b" " * 10_000_000),
    "extra rows": answer([SOUND] * 90),
    "401": error(401, "no such key"),
}


def queue(store):
    with store._storage.read() as reader:
        return reader._rows(
            "SELECT state, attempts, not_before, last_error FROM jobs WHERE kind = 'index' ORDER BY job_no"
        )


def stored_vectors(store):
    """All vectors, decoded."""
    with store._storage.read() as reader:
        names = [name for (name,) in reader._rows(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'vectors_[0-9]*'")]  # fmt: skip
        raw = [blob for name in names for (blob,) in reader._rows(f"SELECT vector FROM {name}")]
    return [np.frombuffer(blob, dtype=np.float32).astype(np.float64) for blob in raw]


def assert_sound(vectors, count):
    assert len(vectors) == count
    for vector in vectors:
        assert np.isfinite(vector).all()
        assert np.linalg.norm(vector) > 1e-6


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_server_costs_no_message_and_is_caught_up_with(stub, make, open_store, ana, clock, name):
    store = open_store(embedder=make(api_key=KEY, max_retries=1, timeout_s=0.05 if name == "timeout" else 30))
    stub.then = FAULTS[name]
    receipt = store.record(ana, said("green tea at nine", "milk at ten"), "chat")
    assert len(receipt.ids) == 2
    assert stub.requests == []  # so no fault of the server can delay the acknowledgement
    with pytest.raises(EmbeddingError) as caught:
        store.index()
    assert KEY not in str(caught.value)
    found = store.search_messages(ana, "tea")
    assert contents(found) == ["green tea at nine"]
    assert [leg.leg for leg in found.degraded] == ["vector"]
    ((state, attempts, _, last_error),) = queue(store)
    assert (state, attempts) == ("queued", 1)
    assert "the embedding server at" in last_error
    assert_sound(stored_vectors(store), 0)
    store.close()
    stub.then = None
    clock.advance(3600)
    store = open_store(embedder=make())
    assert store.index().embedded == 2
    assert queue(store) == []
    assert_sound(stored_vectors(store), 2)
    answered = store.search_messages(ana, "green tea", explain=True)
    assert answered.degraded == ()
    assert set(answered[0].explanation.legs) == {"text", "vector"}


def test_a_job_is_tried_with_growing_waits_and_then_lies_dead_in_sight(stub, make, open_store, ana, clock):
    store = open_store(embedder=make(max_retries=0))
    stub.then = error(500, "no")
    store.record(ana, said("green tea"), "chat")
    delays = []
    for attempt in range(1, 9):
        with pytest.raises(EmbedderUnavailable):
            store.index()
        ((state, attempts, not_before, _),) = queue(store)
        assert attempts == attempt
        delays.append(datetime.fromtimestamp(not_before / 1e6, tz=UTC) - clock.now())
        if state == "dead":
            break
        with pytest.raises(EmbedderUnavailable):
            store.index()  # too early: not an attempt of the job
        assert queue(store)[0][1] == attempt
        clock.advance(delays[-1].total_seconds())
    assert state == "dead"
    assert delays[:3] == [timedelta(seconds=s) for s in (30, 60, 120)]
    (finding,) = [finding for finding in store.doctor().findings if finding.check == "queue"]
    assert "gave up after its last attempt" in finding.message
    assert "500" in finding.message
    assert contents(store.search_messages(ana, "tea")) == ["green tea"]
    stub.then = None
    assert store.index().embedded == 1
    assert queue(store) == []
    assert not [finding for finding in store.doctor().findings if finding.check == "queue"]


def test_poisoned_rows_reach_no_index_and_are_mended_by_a_reindex(stub, make, open_store, ana):
    store = open_store(embedder=make())
    poison = [[float("nan")] * DIM, [float("inf")] * DIM, [0.0] * DIM, [1e-38] * DIM, [1e300] * DIM]
    stub.then = lambda request: answer([*poison, *stub.rows(request["input"][len(poison) :])])
    store.record(ana, said(*(f"tea number {number}" for number in range(8))), "chat")
    report = store.index()
    assert (report.embedded, report.refused, report.pending) == (3, 5, 0)
    assert_sound(stored_vectors(store), 3)
    assert any("no usable vector" in finding.message for finding in store.doctor().findings)
    assert len(store.search_messages(ana, "tea", limit=20)) == 8
    stub.then = None
    assert store.reindex().embedded == 5
    assert_sound(stored_vectors(store), 8)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (error(500, "out of memory"), "out of memory"),
        (error(401, f"wrong key {KEY}"), r"wrong key [key]"),
        (answer([[float("nan")] * DIM]), "not finite"),
        (answer([[0.0] * DIM]), "zero vector"),
        (answer([[0.5] * 8]), "width 8, not 16"),
        (Reply(200, '{"data"'), "no complete JSON"),
    ],
)
def test_a_recall_with_a_failing_server_answers_by_text_and_says_so(
    stub, make, open_store, ana, fault, reason
):
    store = open_store(embedder=make(api_key=KEY))
    store.add(ana, "rain in may")
    store.index()
    stub.then = fault
    found = store.recall(ana, "rain")
    assert contents(found) == ["rain in may"]
    ((leg, why),) = [(degraded.leg, degraded.reason) for degraded in found.degraded]
    assert leg == "vector"
    assert reason in why
    assert KEY not in why
    stub.then = None
    assert store.recall(ana, "rain").degraded == ()


def test_a_recall_does_not_wait_for_a_server_that_hangs(stub, make, open_store, ana):
    store = open_store(embedder=make(max_retries=0, timeout_s=20))
    store.add(ana, "rain in may")
    store.index()
    stub.then = HANG
    found = store.recall(ana, "rain", timeout_s=0.2)
    assert contents(found) == ["rain in may"]
    assert "deadline" in found.degraded[0].reason
    stub.ended.set()


def test_another_model_after_a_change_of_the_configuration(stub, make, open_store, ana):
    store = open_store(embedder=make(dimensions=None))
    store.add(ana, "rain in may")
    store.index()
    store.close()
    stub.model = HashEmbedder(dim=DIM * 2)
    store = open_store(embedder=make(dimensions=None))
    with pytest.raises(EmbeddingError, match="reindex"):
        store.index()
    found = store.recall(ana, "rain")
    assert contents(found) == ["rain in may"]
    assert "reindex" in found.degraded[0].reason
    assert store.reindex().embedded == 1
    assert store.recall(ana, "rain").degraded == ()
    assert {len(vector) for vector in stored_vectors(store)} >= {DIM * 2}
