"""What ranks an answer: stop words, the turns beside a message, coverage, floors, late factors, the deadline."""

import random
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import contents, fresh_store
from memstore import Message, Scope, Settings
from memstore.errors import InvalidInput
from memstore.stopwords import CHINESE, ENGLISH
from memstore.storage.sqlite.text_index import LITERAL_WEIGHT, WORDS_WEIGHT, match_expression
from memstore.testing import HashEmbedder
from memstore.text import Tokenizer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def with_settings(**options) -> Settings:
    return Settings(durability="process", timezone="UTC", **options)


ALONE = {"neighbour_weights": {}}
"""Each message for itself."""


# --- stop words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "hollow", "query", "left_out"),
    [
        ("a quarterly audit", "what is it that we have to do about the", "what have we to do about the audit", "what"),
        ("海鲜过敏的人是小李", "你们是不是知道什么时候可以去", "你们知道是谁对海鲜过敏吗", "谁"),
        ("nginx 限流", "我们是怎么把它给你的", "我们的 nginx 是怎么限流的", "怎么"),
    ],
)  # fmt: skip
def test_content_words_rank_and_stop_words_do_not(store, ana, wanted, hollow, query, left_out):
    store.add(ana, wanted)
    for number in range(5):
        store.add(ana, f"{hollow} {number}")
    answer = store.recall(ana, query, explain=True)
    assert contents(answer)[0] == wanted
    assert left_out in answer.explanation.left_out
    assert not set(answer.explanation.words) & set(answer.explanation.left_out)


@pytest.mark.parametrize(
    ("row", "query"),
    [("谁都可以来", "谁"), ("The Who played", "the who"), ("to be or not to be", "to be"), ("的", "的"),
     ("是不是", "是不是"), ("this is it", "this is it"), ("the NOT gate", "NOT"), ("没有什么", "什么没有")],
)  # fmt: skip
def test_a_query_of_stop_words_alone_is_looked_for_as_it_stands(store, ana, row, query):
    store.add(ana, row)
    store.add(ana, "zinc plating 镀锌")
    answer = store.recall(ana, query, explain=True)
    assert contents(answer) == [row]
    assert answer.explanation.left_out == ()


@given(st.lists(st.sampled_from(sorted(ENGLISH | CHINESE)), min_size=1, max_size=5))
@settings(max_examples=60)
def test_a_literal_match_of_any_stop_words_stays_certain(words):
    query = " ".join(words)
    with fresh_store() as store:
        ana = Scope("acme", "ana", "helper")
        kept = store.add(ana, f"zinc {query} plating")
        for number in range(4):
            store.add(ana, f"{' and '.join(words)} {number}")
        answer = store.recall(ana, query, explain=True)
        hit = next(hit for hit in answer if hit.id == kept.id)
        assert hit.explanation.literal


def test_a_negation_is_no_stop_word_and_the_setting_turns_all_off(open_store, ana):
    store = open_store()
    store.add(ana, "what it is")
    store.add(ana, "audit")
    answer = store.recall(ana, "what is not the audit", explain=True)
    assert "not" in answer.explanation.words
    assert contents(answer) == ["audit"]
    store.close()
    plain = open_store(settings=with_settings(stop_words=False))
    answer = plain.recall(ana, "what is not the audit", explain=True)
    assert set(contents(answer)) == {"audit", "what it is"}
    assert answer.explanation.left_out == ()


# --- neighbours ---------------------------------------------------------------------------------------------

QUESTION, ANSWER = "When shall we repaint the lighthouse?", "Yes, on Thursday"


def turn(role: str, text: str, after_s: float = 0.0, **more) -> Message:
    return Message(role, text, created_at=NOON + timedelta(seconds=after_s), **more)


def finds_the_answer(store, scope, **options) -> bool:
    """By text: vectors are near everything a little."""
    return ANSWER in contents(store.search_messages(scope, "repaint lighthouse", 10, **options))


@pytest.mark.parametrize("leg", ["text", "vector"])
def test_an_answer_is_found_by_the_question_before_it(open_store, ana, leg):
    weights = {"text": 1.0, "vector": 0.0} if leg == "text" else {"text": 0.0, "vector": 1.0}
    options = {"leg_weights": weights, "candidate_factor": 1}
    store = open_store(embedder=HashEmbedder(dim=256), settings=with_settings(**options))
    for number in range(20):
        store.record(
            ana, [turn("user", f"tea number {number}"), turn("assistant", f"noted {number}")], "chat"
        )
    store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER)], "chat")
    store.index()
    answer = store.search_messages(ana, "repaint the lighthouse", 2, explain=True)
    assert contents(answer) == [QUESTION, ANSWER]
    report = answer[1].explanation.legs[leg]
    assert report.with_neighbours > report.score
    if leg == "text":
        assert report.note == "found by the turns beside it"
        assert report.score == 0.0
        assert report.with_neighbours == pytest.approx(
            0.6 * answer[0].explanation.legs["text"].score, abs=1e-8
        )


def test_a_question_is_found_by_the_answer_after_it(store, ana):
    store.record(ana, [turn("user", "and?"), turn("assistant", "the lighthouse is repainted")], "chat")
    assert contents(store.search_messages(ana, "lighthouse")) == ["the lighthouse is repainted", "and?"]


SPEAKERS = [
    ({"role": "user"}, {"role": "user"}, False),
    ({"role": "user"}, {"role": "assistant"}, True),
    ({"role": "user", "name": "Ana"}, {"role": "user", "name": "Ben"}, True),
    ({"role": "user", "name": "Ana"}, {"role": "user", "name": "Ana"}, False),
    ({"role": "user", "name": "Ana"}, {"role": "user"}, True),
    ({"role": "user", "name": "Ana"}, {"role": "assistant", "name": "Ana"}, True),
]


@pytest.mark.parametrize(("asks", "answers", "lends"), SPEAKERS)
def test_only_another_speakers_turn_lends(store, ana, asks, answers, lends):
    store.record(ana, [turn(text=QUESTION, **asks), turn(text=ANSWER, **answers)], "chat")
    assert finds_the_answer(store, ana) == lends


@pytest.mark.parametrize(
    ("gap", "lends"), [(0, True), (600, True), (600.000001, False), (86_400, False), (-0.000001, False)]
)
def test_only_a_turn_within_the_gap_lends(store, ana, gap, lends):
    store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER, gap)], "chat")
    assert finds_the_answer(store, ana) == lends


def test_the_gap_is_a_setting(open_store, ana):
    store = open_store(settings=with_settings(neighbour_gap_s=5))
    store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER, 6)], "chat")
    assert not finds_the_answer(store, ana)


def test_turns_of_other_sessions_agents_and_users_lend_nothing(store, ana):
    store.record(ana, [turn("user", QUESTION)], "one")
    store.record(ana, [turn("assistant", ANSWER)], "two")
    store.record(Scope("acme", "ben", "helper"), [turn("user", QUESTION)], "two")
    store.record(Scope("rival", "ana", "helper"), [turn("user", QUESTION)], "two")
    store.record(Scope("acme", "ana", "critic"), [turn("user", QUESTION)], "two")
    assert not finds_the_answer(store, ana)
    assert not finds_the_answer(store, Scope("acme", "ana"))


def test_turns_of_other_branches_lend_nothing(store, ana):
    """The last turn before a fork and the first one after it have neighbouring positions."""
    start = [Message("user", "hello"), Message("assistant", "how may I help?")]
    store.record(ana, [*start, Message("user", QUESTION)], "chat", transcript=True)
    store.record(ana, [start[0], Message("assistant", ANSWER)], "chat", transcript=True)
    messages = store.messages(ana, "helper:default:chat")
    positions = {message.text: message.position for message in messages}
    assert positions[ANSWER] == positions[QUESTION] + 1
    assert contents(store.search_messages(ana, "repaint lighthouse")) == [QUESTION, "how may I help?"]


FILTERED = {
    "role": {"roles": ["assistant"]},
    "since": {"since": NOON + timedelta(seconds=1)},
    "metadata": {"metadata": {"k": 1}},
}


@pytest.mark.parametrize("name", FILTERED)
def test_what_a_filter_keeps_out_lends_nothing(store, ana, name):
    store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER, 2, meta={"k": 1})], "chat")
    assert finds_the_answer(store, ana)
    assert not finds_the_answer(store, ana, **FILTERED[name])


def test_what_until_keeps_out_lends_nothing(store, ana):
    store.record(ana, [turn("user", "and?"), turn("assistant", "the lighthouse is repainted", 2)], "chat")
    until = NOON + timedelta(seconds=1)
    assert contents(store.search_messages(ana, "lighthouse", until=until)) == []


@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_deleted_question_takes_its_lift_along_at_once(open_store, ana, with_vectors):
    store = open_store(embedder=HashEmbedder(dim=64) if with_vectors else None)
    question, _ = store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER)], "chat").ids
    store.index()
    assert finds_the_answer(store, ana)
    store.delete(ana, question)
    answer = store.search_messages(ana, "repaint lighthouse", 10, explain=True)
    for hit in answer:  # near by chance, but by itself alone
        assert set(hit.explanation.legs) == {"vector"}
        assert hit.explanation.legs["vector"].with_neighbours == pytest.approx(
            hit.explanation.legs["vector"].score, abs=1e-6
        )
    assert bool(answer) == with_vectors


def test_a_deleted_turn_in_between_brings_nobody_together(store, ana):
    ids = store.record(
        ana, [turn("user", QUESTION), turn("tool", "x", tool_call_id="1"), turn("assistant", ANSWER)], "chat"
    ).ids
    store.delete(ana, ids[1])
    assert not finds_the_answer(store, ana)


def test_a_deleted_session_lends_nothing(store, ana):
    store.record(ana, [turn("user", QUESTION)], "chat")
    store.delete_session(ana, "chat")
    store.record(ana, [turn("assistant", ANSWER)], "chat")
    assert not finds_the_answer(store, ana)


def test_memories_stand_alone(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=32))
    store.add(ana, QUESTION, session="chat")
    store.add(ana, ANSWER, session="chat")
    store.index()
    answer = store.recall(ana, "repaint lighthouse", 10, explain=True)
    reports = [report for hit in answer for report in hit.explanation.legs.values()]
    assert {report.with_neighbours for report in reports} == {None}
    by_text = [hit.content for hit in answer if "text" in hit.explanation.legs]
    assert by_text == [QUESTION]


# --- neighbours, against independent sums -------------------------------------------------------------------

WORDS = "rain snow berlin coffee harbour ticket 会议 周四 数据库 银行卡 invoice garden".split()  # noqa: SIM905


def conversation(seed: int, turns: int) -> list[tuple[str, Message]]:
    """(session, message): two sessions, changing speakers and gaps."""
    drawn = random.Random(seed)  # noqa: S311
    found, at = [], 0.0
    for number in range(turns):
        at += drawn.choice([0, 10, 600, 601, 5_000])
        words = " ".join(drawn.choices(WORDS, k=drawn.randint(1, 6)))
        role = drawn.choice(["user", "assistant"])
        name = drawn.choice([None, "Ana", "Ben"]) if role == "user" else None
        found.append((drawn.choice("ab"), turn(role, f"{words} {number}", at, name=name)))
    return found


def fill(store, scope, talk) -> None:
    for session, message in talk:
        store.record(scope, [message], session)
    store.index()


def expected(talk, own, weights) -> list:
    """``own`` of each message, and what its neighbours lend."""
    last: dict[str, int] = {}
    sums = [np.array(value, dtype=np.float64) for value in own]
    for here, (session, message) in enumerate(talk):
        before = last.get(session)
        last[session] = here
        if before is None:
            continue
        earlier = talk[before][1]
        gap = (message.created_at - earlier.created_at).total_seconds()
        if (earlier.role, earlier.name) != (message.role, message.name) and 0 <= gap <= 600:
            sums[here] = sums[here] + weights[0] * np.asarray(own[before], dtype=np.float64)
            sums[before] = sums[before] + weights[1] * np.asarray(own[here], dtype=np.float64)
    return sums


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [None, (0.5, 0.2), (1.0, 0.0), (0.0, 3.0)])
def test_the_vector_leg_is_what_numpy_makes_of_the_whole_conversation(open_store, ana, seed, weights):
    embedder = HashEmbedder(dim=24)
    neighbour_weights = {} if weights is None else {"vector": weights}
    store = open_store(embedder=embedder, settings=with_settings(neighbour_weights=neighbour_weights))
    talk = conversation(seed, 40)
    fill(store, ana, talk)
    query = "rain in berlin 周四"
    vectors = embedder.embed_documents(
        [f"{said.name}: {said.content}" if said.name else said.content for _, said in talk]
    )
    mixed = expected(talk, vectors, weights or (0, 0))
    wanted = [float(m @ embedder.embed_query(query) / np.linalg.norm(m)) for m in mixed]
    by_text = dict(zip((message.content for _, message in talk), wanted, strict=True))
    answer = store.search_messages(ana, query, 50, explain=True)
    assert len(answer) == len(talk)
    legs = {hit.content: hit.explanation.legs["vector"] for hit in answer}
    for text, report in legs.items():
        found = report.score if weights is None else report.with_neighbours
        assert found == pytest.approx(by_text[text], abs=3e-6)
    in_order = [by_text[text] for text in sorted(legs, key=lambda text: legs[text].rank)]
    assert all(one >= two - 6e-6 for one, two in pairwise(in_order))
    assert sorted(report.rank for report in legs.values()) == list(range(1, 41))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [None, (0.6, 0.2), (0.0, 1.0)])
def test_the_text_leg_is_bm25_of_the_table_and_sums_of_it(open_store, ana, seed, weights):
    neighbour_weights = {} if weights is None else {"text": weights}
    store = open_store(settings=with_settings(neighbour_weights=neighbour_weights))
    talk = conversation(seed, 40)
    fill(store, ana, talk)
    query = "harbour ticket 数据库 xyzzy"
    with store._storage.read() as reader:
        table = reader._rows(
            "SELECT m.content ->> '$', -bm25(text_messages_1, ?, ?) FROM text_messages_1"
            " JOIN messages m ON m.slot = text_messages_1.rowid WHERE text_messages_1 MATCH ?",
            (WORDS_WEIGHT, LITERAL_WEIGHT, match_expression(Tokenizer().query(query))),
        )
        texts = {text for text, _ in table}
    assert texts
    bm25 = dict(table)
    own = [bm25.get(message.content, 0.0) for _, message in talk]
    wanted = {
        message.content: float(score)
        for (_, message), score in zip(talk, expected(talk, own, weights or (0, 0)), strict=True)
        if score > 0
    }
    answer = store.search_messages(ana, query, 50, explain=True)
    assert set(contents(answer)) == set(wanted)
    for hit in answer:
        report = hit.explanation.legs["text"]
        found = report.score if weights is None else report.with_neighbours
        assert found == pytest.approx(wanted[hit.content], abs=1e-8)
    scores = [wanted[text] for text in contents(answer)]
    assert all(one >= two - 1e-8 for one, two in pairwise(scores))


# --- coverage and fusion ------------------------------------------------------------------------------------

STORY = "apricot bridge castle dolphin engine forest glacier harbour island"


@pytest.mark.parametrize(
    ("row", "held"),
    [("apricot", 1), ("bridge castle", 2), ("castle apricot forest", 3), ("a " + STORY, 9)],
)
def test_a_story_that_hardly_matches_gives_the_text_leg_little_weight(open_store, ana, row, held):
    store = open_store(embedder=HashEmbedder(dim=64), settings=with_settings(full_coverage=1 / 3))
    store.add(ana, row)
    store.add(ana, "tea")
    store.index()
    answer = store.recall(ana, STORY, explain=True)
    whole = answer.explanation
    assert len(whole.words) == 9
    if held == 9:
        assert answer[0].explanation.literal
        assert whole.coverage == 1.0
    else:
        assert whole.coverage == pytest.approx(held / 9)
    weight = min(1.0, held / 9 * 3)
    assert whole.legs["text"].weight == pytest.approx(weight)
    assert whole.legs["vector"].weight == 1.0
    hit = next(hit for hit in answer if hit.content == row)
    assert hit.explanation.legs["text"].term == pytest.approx(weight / 61)


def test_full_coverage_of_zero_lets_the_text_leg_count_always(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=64), settings=with_settings(full_coverage=0))
    store.add(ana, "apricot")
    store.index()
    answer = store.recall(ana, STORY, explain=True)
    assert answer.explanation.legs["text"].weight == 1.0


def test_the_turns_beside_the_best_row_count_for_its_coverage(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=64))
    store.record(
        ana, [turn("user", "apricot bridge castle"), turn("assistant", "dolphin engine forest")], "chat"
    )
    store.index()
    assert store.search_messages(ana, STORY, explain=True).explanation.coverage == pytest.approx(6 / 9)


def test_alone_the_text_leg_counts_fully(store, ana):
    store.add(ana, "apricot")
    [hit] = store.recall(ana, STORY, explain=True)
    assert hit.score == 1 / 61


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    st.integers(0, 100),
    st.tuples(st.floats(0, 3), st.floats(0, 3)),
    st.integers(1, 6),
)
@settings(max_examples=60)
def test_every_score_is_the_sum_of_its_terms_and_every_place_follows_from_it(rows, query, k, weights, limit):
    options = {"rrf_k": k, "leg_weights": dict(zip(("text", "vector"), weights, strict=True))}
    with fresh_store(embedder=HashEmbedder(dim=8), settings=with_settings(**options)) as store:
        ana = Scope("acme", "ana", "helper")
        ids = [store.add(ana, " ".join(row)).id for row in rows]
        store.index()
        answer = store.recall(ana, " ".join(query), limit, explain=True)
    whole = answer.explanation
    for candidate in whole.candidates:
        legs = candidate.explanation.legs
        for leg, report in legs.items():
            assert report.term == pytest.approx(whole.legs[leg].weight / (k + report.rank))
        assert candidate.score == pytest.approx(sum(report.term for report in legs.values()))
    far = len(rows) + 1
    by_hand = sorted(
        whole.candidates,
        key=lambda c: (
            -round(c.score, 12),
            *(
                c.explanation.legs[leg].rank if leg in c.explanation.legs else far
                for leg in ("text", "vector")
            ),
            -ids.index(c.id),
        ),
    )
    assert [c.id for c in whole.candidates] == [c.id for c in by_hand]
    assert [c.place for c in whole.candidates] == list(range(1, len(by_hand) + 1))
    assert [hit.id for hit in answer] == [c.id for c in whole.candidates if c.outcome == "returned"]
    assert len(answer) == min(limit, len(whole.candidates))
    for hit in answer:
        assert hit.explanation == next(c.explanation for c in whole.candidates if c.id == hit.id)


# --- floors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["settings", "stored"])
def test_floors_let_a_recall_abstain(open_store, ana, way):
    values = {"text": 1e9, "vector": 0.99}
    store = open_store(
        embedder=HashEmbedder(dim=64), settings=with_settings(floors=values if way == "settings" else None)
    )
    store.add(ana, "rain in may")
    store.add(ana, "tea with lemon")
    store.index()
    if way == "stored":
        assert len(store.recall(ana, "much rain")) == 2
        store.set_floors(values)
        assert store.floors() == values
    answer = store.recall(ana, "much rain", explain=True)
    assert contents(answer) == []
    assert answer.degraded == ()
    assert {leg: summary.floor for leg, summary in answer.explanation.legs.items()} == values
    assert answer.explanation.candidates == ()


def test_a_floor_keeps_what_reaches_it(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=64), settings=with_settings(full_coverage=0))
    for text in ("rain in may", "some rain, much tea, no lemon", "tea with lemon"):
        store.add(ana, text)
    store.index()
    whole = store.recall(ana, "rain may", 10, explain=True).explanation
    scores = sorted(c.explanation.legs["vector"].score for c in whole.candidates)
    assert len(scores) == 3
    store.set_floors({"vector": scores[1]})
    kept = store.recall(ana, "rain may", 10, explain=True).explanation
    in_leg = [c for c in kept.candidates if "vector" in c.explanation.legs]
    assert sorted(c.explanation.legs["vector"].score for c in in_leg) == scores[1:]


def test_floors_belong_to_their_model(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=16))
    store.add(ana, "rain in may")
    store.index()
    store.set_floors({"vector": 0.99})
    store.close()
    other = open_store(embedder=HashEmbedder(dim=16, model="other"))
    other.reindex()
    assert other.floors() == {}
    assert len(other.recall(ana, "tea")) == 1
    other.roll_back_generation()
    assert other.floors() == {"vector": 0.99}
    other.close()
    back = open_store(embedder=HashEmbedder(dim=16))
    assert contents(back.recall(ana, "tea")) == []
    back.set_floors(None)
    assert back.floors() == {}
    assert len(back.recall(ana, "tea")) == 1


@pytest.mark.parametrize(
    "floors",
    [{"both": 1}, {"text": float("nan")}, {"vector": float("inf")}, {"text": "1"}, {"text": None}, {"text": True},
     {1: 1}, [("text", 1)], "text", 5],
    ids=repr,
)  # fmt: skip
def test_odd_floors_are_refused_and_the_old_ones_stay(open_store, ana, floors):
    store = open_store(embedder=HashEmbedder(dim=8))
    store.add(ana, "rain")
    store.index()
    store.set_floors({"text": 0.5})
    with pytest.raises(InvalidInput, match="floor"):
        store.set_floors(floors)
    assert store.floors() == {"text": 0.5}


def test_no_floor_hides_what_is_certain(open_store, ana):
    store = open_store(settings=with_settings(floors={"text": 1e9}))
    store.add(ana, "rain in may")
    store.add(ana, "may it rain")
    assert contents(store.recall(ana, "rain in may")) == ["rain in may"]


def test_a_row_below_the_floor_lends_nothing(open_store, ana):
    store = open_store(settings=with_settings(floors={"text": 1e9}))
    store.record(ana, [turn("user", QUESTION), turn("assistant", ANSWER)], "chat")
    assert contents(store.search_messages(ana, "lighthouse repaint")) == []


# --- late factors -------------------------------------------------------------------------------------------


def test_late_factors_are_off_by_default(store, ana):
    store.add(ana, "rain", priority=100)
    [hit] = store.recall(ana, "rain", explain=True)
    assert hit.explanation.factors == {}
    assert hit.score == 1 / 61


def test_recency_halves_with_each_half_life(open_store, ana, clock):
    store = open_store(settings=with_settings(recency_half_life_s=3600))
    old = store.add(ana, "rain rain rain")
    clock.advance(7200)
    new = store.add(ana, "rain came up once in a longer text")
    clock.advance(3600)
    answer = store.recall(ana, "rain", explain=True)
    assert [hit.id for hit in answer] == [new.id, old.id]
    assert [hit.explanation.factors for hit in answer] == [{"recency": 0.5}, {"recency": 0.125}]
    assert [hit.score for hit in answer] == pytest.approx([0.5 / 62, 0.125 / 61])


def test_recency_tells_very_old_rows_apart(open_store, ana, clock):
    store = open_store(settings=with_settings(recency_half_life_s=60))
    store.add(ana, "rain rain rain")
    clock.advance(3600)
    new = store.add(ana, "rain came up once in a longer text")
    clock.advance(3600)
    assert store.recall(ana, "rain")[0].id == new.id


def test_a_row_from_the_future_is_as_fresh_as_can_be(open_store, ana, clock):
    store = open_store(settings=with_settings(recency_half_life_s=60))
    clock.set(NOON)
    store.add(ana, "rain")
    clock.set(NOON - timedelta(days=1))
    [hit] = store.recall(ana, "rain", explain=True)
    assert hit.explanation.factors == {"recency": 1.0}


def test_messages_age_from_when_they_were_said(open_store, ana, clock):
    store = open_store(settings=with_settings(recency_half_life_s=3600, priority_weight=1))
    clock.set(NOON)
    store.record(ana, [turn("user", "rain", -7200)], "chat")
    [hit] = store.search_messages(ana, "rain", explain=True)
    assert hit.explanation.factors == {"recency": 0.25}


def test_priority_counts_by_its_weight(open_store, ana):
    store = open_store(settings=with_settings(priority_weight=0.5))
    texts = {100: "rain came up once in a longer text", 0: "rain rain rain", -1: "rain, rain"}
    for priority, text in texts.items():
        store.add(ana, text, kind="instruction", priority=priority)
    answer = store.recall(ana, "rain", explain=True)
    assert answer[0].content == texts[100]
    assert {h.priority: h.explanation.factors["priority"] for h in answer} == {100: 1.5, 0: 1.0, -1: 1.0}
    for hit in answer:
        term = sum(report.term for report in hit.explanation.legs.values())
        assert hit.score == pytest.approx(term * hit.explanation.factors["priority"])


def test_near_duplicates_collapse_to_the_best(open_store, ana):
    store = open_store(settings=with_settings(collapse_similarity=0.7))
    kept = store.add(ana, "umbrella stand by the old door")
    twin = store.add(ana, "umbrella stand by the old door now")
    other = store.add(ana, "umbrella sale on friday")
    answer = store.recall(ana, "umbrella stand door blue", 2, explain=True)
    assert [hit.id for hit in answer] == [kept.id, other.id]
    outcomes = {c.id: (c.outcome, c.duplicate_of) for c in answer.explanation.candidates}
    assert outcomes[twin.id] == ("duplicate", kept.id)


def test_what_is_certain_is_not_collapsed_into_what_is_not(open_store, ana):
    """The newer row has the same words and is far more important, but not the signs that were asked for."""
    options = {"collapse_similarity": 0.5, "priority_weight": 100.0}
    store = open_store(settings=with_settings(**options))
    literal = store.add(ana, "x-y plan", priority=0)
    store.add(ana, "x y plan", priority=100)
    answer = store.recall(ana, "x-y plan", 1, explain=True)
    assert [hit.id for hit in answer] == [literal.id]
    assert answer[0].explanation.literal


def test_what_is_certain_outlives_recency(open_store, ana, clock):
    store = open_store(settings=with_settings(recency_half_life_s=60))
    literal = store.add(ana, "the code is x-y")
    clock.advance(86_400)
    for number in range(10):
        store.add(ana, f"x y {number}")
    assert literal.id in [hit.id for hit in store.recall(ana, "x-y", 2)]


# --- the deadline -------------------------------------------------------------------------------------------


class Hung(HashEmbedder):
    """Hangs at one of its parts until the gate opens; counts how often it was reached."""

    def __init__(self, where: str) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.where, self.reached = where, 0
        super().__init__(dim=8)

    @property
    def identity(self):
        self._pass("identity")
        return self._identity

    @identity.setter
    def identity(self, value) -> None:
        self._identity = value

    def embed_query(self, text):
        self._pass("embed_query")
        return super().embed_query(text)

    def _pass(self, where: str) -> None:
        if where == self.where and not self.gate.is_set():
            self.reached += 1
            assert self.gate.wait(60)


@pytest.fixture(params=["embed_query", "identity"])
def hung(request, open_store, ana):
    """A store whose model hangs, while it is loaded (asked for its identity) or at work."""
    embedder = Hung(request.param)
    store = open_store(embedder=embedder)
    store.add(ana, "rain in may")
    store.index()
    embedder.gate.clear()
    yield store, embedder
    embedder.gate.set()


def test_a_hung_model_costs_one_deadline_whichever_verb_asks(hung, ana):
    store, embedder = hung
    first = store.recall(ana, "rain", timeout_s=0.02, trace=True)
    assert contents(first) == ["rain in may"]
    assert "deadline" in first.degraded[0].reason
    [memory] = store.get_all(ana)
    why = store.why_not(ana, memory.id, "snow")  # a deadline of 5 s each, which nobody waits for
    assert [reason.code for reason in why.reasons] == ["degraded", "no word in common"]
    assert "not come back" in why.reasons[0].values["reason"]
    assert contents(store.recall(ana, "snow", explain=True)) == []  # nothing is ready: empty, no error
    traced = store.recall(ana, "may", trace=True, explain=True)
    assert contents(traced) == ["rain in may"]
    assert set(traced.explanation.legs) == {"text"}
    assert "not come back" in traced.degraded[0].reason
    assert store.replay(ana, first.trace_id).same
    assert embedder.reached == 1


class LateAt:
    """A statement hook that lets the time run out when a certain statement begins."""

    def __init__(self, clock) -> None:
        self.clock, self.armed = clock, None

    def __call__(self, statement: str) -> None:
        if self.armed is not None and self.armed in statement:
            self.armed = None
            self.clock.advance(100)


@pytest.mark.parametrize("statement", ["rank MATCH", "places AS"])
def test_sql_that_comes_late_is_interrupted_with_neighbours_too(open_store, ana, clock, statement):
    hook = LateAt(clock)
    store = open_store(statement_hook=hook)
    turns = [turn("user" if n % 2 else "assistant", f"rain {n} and more", n) for n in range(3000)]
    store.record(ana, turns, "chat")
    hook.armed = statement
    cut = store.search_messages(ana, "rain more", 400, explain=True)
    assert contents(cut) == []
    assert [part.leg for part in cut.degraded] == ["text"]
    assert cut.explanation.candidates == ()
    assert len(store.search_messages(ana, "rain more", 400)) == 400
