"""Questions of one's own: reading them, measuring a store by them, and floors drawn from them."""

import json
from dataclasses import replace

import pytest

from cli_support import Cli
from conftest import FAST, OpenStore, said
from memstore import MemoryStore, MemstoreError, Scope, golden
from memstore.testing import HashEmbedder

LIN = Scope("default", "lin", "default")
TOPICS = (
    "quince harvest", "kayak repair", "organ concert", "beehive frost", "violin lesson", "tram strike",
    "bread recipe", "glacier hike", "chess final", "paint order", "roof leak", "ferry ticket",
    "pottery class", "comet night", "cheese market", "dentist visit", "garden fence", "choir tour",
    "harbour lights", "museum pass", "walnut cake", "desert film", "sailing knot", "radio play",
)  # fmt: skip


def question(line=1, query="q", **more):
    return golden.GoldenQuestion(line, query, **more)


def jsonl(*values):
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


@pytest.fixture
def filled(open_store: OpenStore) -> MemoryStore:
    """A memory a topic, and two messages."""
    store = open_store(embedder=HashEmbedder())
    for topic in TOPICS:
        store.add(LIN, f"notes about the {topic}")
    store.record(LIN, said("上线改到周五", "the launch moved to Friday"), "chat")
    store.index()
    return store


def ask(store, questions, limits=(5, 10)):
    return golden.ask(store, LIN, questions, limits, file="golden.jsonl", timeout_s=30)


# --- the file ------------------------------------------------------------------------------------------------


def test_the_three_forms_of_a_question():
    lines = jsonl(
        {"query": "when?", "ids": ["a", "b", "a"], "kinds": ["persona"]},
        {"query": "什么时候", "contains": ["周五"], "layer": "messages", "user": "ben"},
        {"query": "how tall?", "none": True},
    )
    assert golden.read(b"\xef\xbb\xbf" + lines.replace(b"\n", b"\n\n"), "g.jsonl") == [
        question(1, "when?", ids=("a", "b"), kinds=("persona",)),
        question(3, "什么时候", contains=("周五",), layer="messages", user="ben"),
        question(5, "how tall?", none=True),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "line 1: Expecting"),
        ('["when?"]', "line 1: a question is a JSON object like"),
        ('{"query": " ", "ids": ["a"]}', "'query' must be text"),
        ('{"query": "q"}', 'give one of "ids"'),
        ('{"query": "q", "ids": ["a"], "none": true}', 'give one of "ids"'),
        ('{"query": "q", "none": false}', "'none' is true, or is left out"),
        ('{"query": "q", "ids": []}', "'ids' must be a list of texts"),
        ('{"query": "q", "contains": "text"}', "'contains' must be a list of texts"),
        ('{"query": "q", "contains": [" "]}', "'contains' must be a list of texts"),
        ('{"query": "q", "ids": ["a"], "layer": "scenes"}', "'layer' must be 'memories' or 'messages'"),
        ('{"query": "q", "ids": ["a"], "user": 7}', "'user' must be"),
        ('{"query": "q", "ids": ["a"], "kinds": ["fact"]}', "'kinds' must be a list of persona"),
        ('{"query": "q", "ids": ["a"], "kinds": ["persona"], "layer": "messages"}', "leave them out"),
        ('{"qery": "q", "ids": ["a"]}', "unknown field 'qery'; known are query"),
        ("[" * 100_000, "line 1:"),
    ],
)
def test_bad_lines_are_named(line, fault):
    with pytest.raises(golden.UnusableQuestions, match="cannot be used; correct or remove") as raised:
        golden.read(line.encode(), "g.jsonl")
    assert fault in str(raised.value)


def test_every_bad_line_is_named_at_once():
    with pytest.raises(golden.UnusableQuestions) as raised:
        golden.read(b'{"query": "q", "ids": ["a"]}\n' + b"x\n" * 30 + b"\xff\n", "g.jsonl")
    text = str(raised.value)
    assert "line 1:" not in text
    assert "line 2:" in text
    assert "and 11 more" in text


def test_a_file_without_questions_says_what_to_write():
    with pytest.raises(golden.UnusableQuestions, match="holds no question; write lines like"):
        golden.read(b"\n", "g.jsonl")


# --- asking --------------------------------------------------------------------------------------------------


def test_scores_of_each_leg_and_of_both_fused(filled):
    ids = {memory.content: memory.id for memory in filled.get_all(LIN, 100)}
    questions = [
        question(1, "kayak repair", ids=(ids["notes about the kayak repair"],)),
        question(2, "violin", contains=("violin LESSON",)),
        question(3, "什么时候上线", contains=("改到周五",), layer="messages"),
        question(4, "kayak", contains=("kayak", "quince")),
        question(5, "zzz", none=True),
    ]
    report = golden.report(ask(filled, questions, (1, 10)), (1, 10))
    assert report["questions"] == 4
    assert set(report["legs"]) == {"text", "vector", "fused"}
    assert report["legs"]["text"]["recall@1"] == 0.875  # the fourth has two right rows, and room for one
    assert report["legs"]["text"]["any@1"] == 1.0
    assert report["legs"]["text"]["all@1"] == 0.75
    assert report["legs"]["fused"]["mrr@10"] == 1.0
    assert report["none"] == {"questions": 1, "empty_answers": 0}  # without floors the nearest vector comes
    assert report["latency_ms"]["p95"] >= report["latency_ms"]["p50"] >= 0
    assert report["degraded"] == {}
    assert report["worst"] == [] or report["worst"][0]["line"] == 4


def test_without_an_embedder_there_is_no_vector_leg(store):
    store.add(LIN, "the ferry leaves at nine")
    report = golden.report(ask(store, [question(1, "ferry", contains=("ferry",))]), (5, 10))
    assert report["legs"]["vector"] is None
    assert report["legs"]["text"] == report["legs"]["fused"]
    assert report["legs"]["text"]["recall@5"] == 1.0


def test_a_leg_that_did_not_answer_has_no_scores(open_store):
    store = open_store(embedder=HashEmbedder())  # nothing is indexed
    store.add(LIN, "the ferry leaves at nine")
    report = golden.report(ask(store, [question(1, "ferry", contains=("ferry",))]), (5, 10))
    assert report["legs"]["vector"] is None
    assert "run index()" in report["degraded"]["vector"]


def test_the_worst_come_first_with_their_ranks(store):
    for topic in TOPICS:
        store.add(LIN, f"notes about the {topic}")
    questions = [
        question(1, "kayak", contains=("kayak",)),
        question(2, "tram", contains=("roof leak",)),
        question(3, "tram", contains=("tram", "roof leak")),
    ]
    worst = golden.report(ask(store, questions), (5, 10))["worst"]
    assert [(entry["line"], entry["recall"]) for entry in worst] == [(2, 0.0), (3, 0.5)]
    assert worst[1]["ranks"]["fused"] == [1, None]


def test_right_rows_that_are_not_there_are_named_by_line(filled):
    questions = [
        question(1, "q", ids=("01NONE",)),
        question(2, "q", contains=("submarine",)),
        question(3, "q", contains=("kayak",), user="ben"),
        question(4, "q", ids=(filled.messages(LIN, "chat")[0].id,)),
    ]
    with pytest.raises(golden.UnusableQuestions) as raised:
        ask(filled, questions)
    text = str(raised.value)
    assert "line 1: user 'lin' can read no row '01NONE'" in text
    assert "line 2: none of the memories of user 'lin' holds 'submarine'" in text
    assert "line 3: none of the memories of user 'ben' holds 'kayak'" in text
    assert "is one of the messages; set 'layer' to 'messages'" in text


def test_another_user_asks_in_his_own_name(filled):
    ben = Scope("default", "ben", "default")
    filled.add(ben, "ben's own kayak")
    filled.index()
    report = golden.report(ask(filled, [question(1, "kayak", contains=("own kayak",), user="ben")]), (5, 10))
    assert report["legs"]["fused"]["recall@5"] == 1.0


# --- floors --------------------------------------------------------------------------------------------------


def topic_questions():
    return [
        question(n, topic, contains=(f"about the {topic}",)) if n % 2 else question(n, f"what of {topic}?", contains=(topic,))
        for n, topic in enumerate(TOPICS, 1)
    ]  # fmt: skip


def test_the_largest_floor_that_loses_no_more_than_was_said():
    scores = [float(n) for n in range(1, 101)]
    assert golden._floor(scores, 0.02) == 3.0  # 1 and 2 are lost
    assert golden._floor(scores, 0.0) == 1.0
    assert golden._floor(scores[:20], 0.02) == 1.0  # two in a hundred of twenty is less than one
    assert golden._floor([0.12345678], 0.5) == 0.123456  # never above the score that it is drawn from


def test_floors_of_both_legs(filled):
    found = golden.calibrate(ask(filled, topic_questions()), 0.0)
    assert set(found["legs"]) == {"text", "vector"}
    assert found["legs"]["vector"]["right_rows"] >= 20
    assert found["legs"]["vector"]["lost"] == 0
    assert 0 < found["floors"]["vector"] <= 1
    more = golden.calibrate(ask(filled, topic_questions()), 0.2)
    assert more["floors"]["vector"] >= found["floors"]["vector"]
    assert 1 <= more["legs"]["vector"]["lost"] <= 0.2 * more["legs"]["vector"]["right_rows"]


def test_with_the_floors_nothing_is_found_where_nothing_answers(filled, open_store):
    nothing = question(99, "zzz xxx", none=True)
    floors = golden.calibrate(ask(filled, [*topic_questions(), nothing]), 0.02)["floors"]
    assert golden.report(ask(filled, [nothing]), (5, 10))["none"] == {"questions": 1, "empty_answers": 0}
    strict = open_store(embedder=HashEmbedder(), settings=replace(FAST, floors=floors))
    report = golden.report(ask(strict, [*topic_questions(), nothing]), (5, 10))
    assert report["none"] == {"questions": 1, "empty_answers": 1}
    assert report["legs"]["fused"]["recall@5"] == 1.0


def test_how_far_it_is(store):
    store.add(LIN, "kayak")
    said_so = []
    questions = [question(1, "kayak", contains=("kayak",)), question(2, "tram", none=True)]
    golden.ask(
        store, LIN, questions, (5,), file="g", timeout_s=30, progress=lambda *done: said_so.append(done)
    )
    assert said_so == [(1, 2), (2, 2)]


def test_rows_that_come_whatever_they_score_set_no_floor(store):
    for topic in TOPICS:
        store.add(LIN, f"notes about the {topic}")
    literal = [question(n, topic, contains=(topic,)) for n, topic in enumerate(TOPICS, 1)]
    found = golden.calibrate(ask(store, literal), 0.02)
    assert found["legs"]["text"] == {"floor": None, "right_rows": 0, "lost": 0}
    assert found["floors"] == {}


def test_queries_of_several_sentences_say_nothing_about_the_text_floor(filled):
    asked = [
        question(n, f"Tell me of the {topic}! Or was there a walnut?", contains=(topic,))
        for n, topic in enumerate(TOPICS, 1)
    ]
    legs = golden.calibrate(ask(filled, asked), 0.02)["legs"]
    assert legs["text"] == {"floor": None, "right_rows": 0, "lost": 0}
    assert legs["vector"]["right_rows"] >= 20


def test_too_few_questions_are_refused(filled):
    with pytest.raises(MemstoreError, match="needs 20 questions with right rows, the file has 19"):
        golden.calibrate(ask(filled, [*topic_questions()[:19], question(30, "x", none=True)]), 0.02)


# --- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path) -> Cli:
    cli = Cli(tmp_path / "memory.db")
    cli.answer("init", "--timezone", "UTC")
    for topic in TOPICS:
        cli.answer("add", f"notes about the {topic}")
    return cli


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "golden.jsonl"
    path.write_bytes(
        jsonl(
            *({"query": f"tell me of any {topic}", "contains": [topic]} for topic in TOPICS),
            {"query": "submarine volcano", "none": True},
        )
    )
    return str(path)


def test_bench_measures(cli, file):
    answer = cli.answer("bench", "--queries", file, "--k", "1,10")
    assert (answer["k"], answer["questions"]) == ([1, 10], 24)
    assert answer["legs"]["fused"]["recall@1"] == 1.0
    assert answer["legs"]["vector"] is None
    assert answer["none"] == {"questions": 1, "empty_answers": 1}
    assert "calibration" not in answer
    shown = cli.shown("bench", "--queries", file)
    assert "24 questions with right rows" in shown
    assert "recall@5" in shown
    assert "nothing to find: 1 of 1" in shown


def test_bench_lists_the_worst_for_people(cli, tmp_path):
    path = tmp_path / "g.jsonl"
    path.write_bytes(jsonl({"query": "tram", "contains": ["roof leak"]}))
    assert "line 1: tram  [text -; vector -; fused -]" in cli.shown("bench", "--queries", str(path))


def test_bench_calibrates_and_stores_what_it_found(cli, file, open_store):
    answer = cli.answer("bench", "--queries", file, "--calibrate")["calibration"]
    assert answer["loss"] == 0.02
    assert answer["applied"] is False
    assert open_store().floors() == {}
    answer = cli.answer("bench", "--queries", file, "--calibrate", "--apply", "--loss", "0")
    assert answer["calibration"]["applied"] is True
    assert answer["legs"]["fused"]["recall@10"] == 1.0  # no right row was lost
    assert open_store().floors() == answer["calibration"]["floors"] != {}
    assert "stored for the store's model" in cli.shown("bench", "--queries", file, "--calibrate", "--apply")


def test_calibration_does_not_follow_earlier_floors(cli, file, open_store):
    first = cli.answer("bench", "--queries", file, "--calibrate")["calibration"]["floors"]
    open_store().set_floors({"text": 1e6})
    assert cli.answer("bench", "--queries", file)["legs"]["text"]["recall@5"] == 0.0
    assert cli.answer("bench", "--queries", file, "--calibrate")["calibration"]["floors"] == first


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["--apply"], 2, "give both"),
        (["--k", "0"], 2, "whole numbers from 1"),
        (["--k", "a"], 2, "whole numbers from 1"),
        (["--calibrate", "--loss", "100"], 2, "100"),
    ],
)
def test_wrong_use(cli, file, arguments, code, fault):
    result = cli("bench", "--queries", file, *arguments)
    assert result.exit_code == code
    assert fault in result.stderr


def test_a_bad_line_fails(cli, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"query": "q", "id": ["a"]}\n', encoding="utf-8")
    result = cli("bench", "--queries", str(path))
    assert result.exit_code == 1
    assert "line 1: unknown field 'id'" in result.stderr
    assert cli("bench", "--queries", str(tmp_path / "none.jsonl")).exit_code == 1


def test_too_few_questions_fail(cli, tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_bytes(jsonl({"query": "tram", "contains": ["tram"]}))
    result = cli("bench", "--queries", str(path), "--calibrate")
    assert result.exit_code == 1
    assert "needs 20 questions" in result.stderr


def test_where_no_floor_was_found_none_is_stored(cli, tmp_path, open_store):
    path = tmp_path / "literal.jsonl"
    path.write_bytes(jsonl(*({"query": topic, "contains": [topic]} for topic in TOPICS)))
    open_store().set_floors({"text": 0.5})
    result = cli("bench", "--queries", str(path), "--calibrate", "--apply")
    assert result.exit_code == 1
    assert "no floor to store" in result.stderr
    assert open_store().floors() == {"text": 0.5}
    shown = cli.shown("bench", "--queries", str(path), "--calibrate")
    assert "floor of the text leg: none (0 right rows are too few)" in shown
