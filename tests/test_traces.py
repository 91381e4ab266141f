"""Stored recalls: asked again they give the same answer while the store is the same, else what is different."""

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import contents, fresh_store, leave_team, said
from memstore import Message, Scope, Settings
from memstore.errors import InvalidInput, InvalidText, NotFound
from memstore.ids import new_id
from memstore.testing import HashEmbedder, ManualClock
from memstore.wording import LANGUAGES, replay_lines

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEN = Scope("acme", "ben", "helper")


def with_settings(**options) -> Settings:
    return Settings(durability="process", timezone="UTC", **options)


def figures(answer) -> list[tuple]:
    return [(hit.id, hit.rank, hit.score, hit.version) for hit in answer]


def changes(replay) -> list[tuple]:
    """(then, now, codes) of each difference, which can be said in every language."""
    for language in LANGUAGES:
        assert list(replay_lines(replay, language))
    return [(d.rank_then, d.rank_now, [reason.code for reason in d.reasons]) for d in replay.differences]


@pytest.fixture
def hybrid(open_store):
    return open_store(embedder=HashEmbedder(dim=32))


# --- unchanged ----------------------------------------------------------------------------------------------


def test_a_trace_keeps_the_question_and_the_ids_and_the_answer_is_the_plain_one(hybrid, ana, clock):
    clock.set(NOON)
    for number in range(4):
        hybrid.add(ana, f"rain {number}")
    hybrid.index()
    plain = hybrid.recall(ana, "rain 2", 3)
    traced = hybrid.recall(ana, "rain 2", 3, trace=True)
    assert plain.trace_id is None
    assert traced.hits == plain.hits
    assert traced.explanation is None
    clock.advance(1)
    explained = hybrid.recall(ana, "rain 2", 3, trace=True, explain=True)
    assert explained.hits == hybrid.recall(ana, "rain 2", 3, explain=True).hits
    assert explained.explanation is not None
    newest, older = hybrid.traces(ana)
    assert (newest.id, older.id) == (explained.trace_id, traced.trace_id)
    assert (older.query, older.layer, older.asked_at) == ("rain 2", "memories", NOON)
    assert older.hit_ids == tuple(hit.id for hit in plain)
    assert len(hybrid.traces(ana, 1)) == 1
    assert hybrid.traces(ana, 0) == []


QUESTIONS = {
    "plain": {},
    "all options": {"kinds": ["episodic"], "since": "2020-01-01", "until": NOON + timedelta(days=9), "session": "chat",
                    "metadata": {"k": [1, {"雨": None}]}, "known_at": NOON, "as_of": NOON, "explain": True},
    "history": {"include_history": True},
    "nothing": {"limit": 0},
    "much": {"limit": 10_000},
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_unchanged_store_answers_the_same_whenever_and_however_it_is_opened(open_store, ana, clock, name):
    clock.set(NOON)
    store = open_store(embedder=HashEmbedder(dim=32))
    options = {"session": "chat", "metadata": {"k": [1, {"雨": None}]}, "valid_from": "2020-01-01"}
    memory = store.add(ana, "rain in 周四", **options)
    store.update(ana, memory.id, content="rain on 周四")
    store.add(ana, "rain that expires", expires_at=NOON + timedelta(hours=1))
    store.index()
    answer = store.recall(ana, "when was the rain 周四", trace=True, **QUESTIONS[name])
    assert bool(answer) == (name != "nothing")
    assert store.replay(ana, answer.trace_id).same
    clock.advance(90_000)  # what expired since is asked for at the recall's own time
    found = store.replay(ana, answer.trace_id)
    assert found.same
    assert figures(found.recall) == figures(answer)
    assert found.recall.trace_id == answer.trace_id
    store.close()
    odd = with_settings(
        rrf_k=1, stop_words=False, neighbour_weights={}, candidate_factor=1, recency_half_life_s=1.0,
        floors={"text": 1e9, "vector": 1.0}, leg_weights={"text": 9.0}, full_coverage=0, pool_factor=1,
    )  # fmt: skip
    for embedder in (None, HashEmbedder(dim=8, model="other")):
        other = open_store(embedder=embedder, settings=odd)
        again = other.replay(ana, answer.trace_id)
        assert again.same, again.differences
        assert figures(again.recall) == figures(answer)
        other.close()


def test_a_conversation_is_replayed_with_its_neighbours(hybrid, ana, clock):
    turns = [Message("user" if n % 2 else "assistant", f"rain {n}") for n in range(30)]
    hybrid.record(ana, turns, "chat")
    hybrid.index()
    answer = hybrid.search_messages(ana, "rain 7", 9, trace=True, explain=True, roles=["user", "assistant"])
    [trace] = hybrid.traces(ana)
    assert trace.layer == "messages"
    found = hybrid.replay(ana, answer.trace_id)
    assert found.same
    assert found.recall.hits == answer.hits
    assert found.recall.explanation.candidates == answer.explanation.candidates


REPLAY = """
import sys
from memstore import MemoryStore, Scope
with MemoryStore(sys.argv[1]) as store:
    found = store.replay(Scope("acme", "ana", "helper"), sys.argv[2])
    print(found.same, [(h.id, h.rank, h.score, h.version) for h in found.recall])
"""


def test_another_process_gives_the_same_figures(hybrid, ana, tmp_path):
    for number in range(12):
        hybrid.add(ana, f"rain {number}")
    hybrid.index()
    answer = hybrid.recall(ana, "rain 3", trace=True)
    ran = subprocess.run(
        [sys.executable, "-c", REPLAY, str(tmp_path / "memory.db"), answer.trace_id],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == f"True {figures(answer)}"


@given(st.text(max_size=40), st.integers(0, 6))
@settings(max_examples=50)
def test_any_question_can_be_kept_and_asked_again(query, limit):
    with fresh_store(embedder=HashEmbedder(dim=8)) as store:
        ana = Scope("acme", "ana", "helper")
        for text in ("rain", "会议改到周四", "a NOT gate 😂"):
            store.add(ana, text)
        store.index()
        answer = store.recall(ana, query, limit, trace=True)
        found = store.replay(ana, answer.trace_id)
        assert found.same
        assert found.trace.query == query


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_a_question_of_several_sentences_is_asked_again_as_it_was(hybrid, ana, limit):
    for text in ("my phone is a Nokia", "the team event is in Berlin", "a rainy day", "周五在柏林开会"):
        hybrid.add(ana, text)
    hybrid.index()
    query = "What phone do I use? And where is the team event! 会议在哪里开？"
    answer = hybrid.recall(ana, query, limit, trace=True)
    found = hybrid.replay(ana, answer.trace_id)
    assert found.same, found.differences
    assert figures(found.recall) == figures(answer)


def test_what_was_degraded_then_is_no_difference(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    store.add(ana, "rain")
    answer = store.recall(ana, "rain", trace=True)
    assert [part.leg for part in answer.degraded] == ["vector"]
    store.index()
    assert store.replay(ana, answer.trace_id).same


def test_relative_times_are_kept_as_they_were_understood(hybrid, ana, clock):
    clock.set(NOON)
    hybrid.add(ana, "rain")
    clock.advance(86_400)
    answer = hybrid.recall(ana, "rain", trace=True, since="2026-03-01", until=clock.now())
    with sqlite3.connect(hybrid.path) as plain:
        [(since, until)] = plain.execute(
            "SELECT question ->> '$.since', question ->> '$.until' FROM recall_traces"
        )
    plain.close()
    assert since == "2026-03-01T00:00:00+00:00"
    assert until == "2026-03-02T12:00:00+00:00"
    assert hybrid.replay(ana, answer.trace_id).same


# --- changed ------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(hybrid, ana, clock):
    """A store, its memories by text, and a recall of both that was kept."""
    clock.set(NOON)
    made = {text: hybrid.add(ana, text) for text in ("rain rain rain", "some rain fell")}
    hybrid.index()
    answer = hybrid.recall(ana, "rain", trace=True)
    assert contents(answer) == list(made)
    clock.advance(60)
    return hybrid, made, answer.trace_id


def test_an_unrelated_row_changes_nothing(open_store, ana, clock):
    store = open_store()
    store.add(ana, "rain rain rain")
    store.add(ana, "some rain fell")
    answer = store.recall(ana, "rain", trace=True)
    clock.advance(60)
    store.add(ana, "tea")
    assert store.replay(ana, answer.trace_id).same


def test_a_row_that_was_recorded_since(traced, ana):
    store, _, trace_id = traced
    new = store.add(ana, "rain")
    found = store.replay(ana, trace_id)
    assert (None, 2, ["recorded since"]) in changes(found)
    assert not found.same
    assert next(d for d in found.differences if d.rank_then is None).id == new.id


def test_a_deleted_row(traced, ana):
    store, made, trace_id = traced
    gone = made["rain rain rain"]
    store.delete(ana, gone.id)
    found = store.replay(ana, trace_id)
    assert changes(found) == [(1, None, ["deleted"]), (2, 1, ["moved"])]
    assert contents(found.recall) == ["some rain fell"]


def test_an_updated_row_has_another_version(traced, ana):
    store, made, trace_id = traced
    store.update(ana, made["rain rain rain"].id, priority=80)
    store.index()
    assert changes(store.replay(ana, trace_id)) == [(1, 1, ["another version"])]


def test_a_row_that_another_superseded_and_one_that_does_not_match_any_more(traced, ana):
    store, made, trace_id = traced
    store.update(ana, made["rain rain rain"].id, content="snow")
    store.index()
    found = store.replay(ana, trace_id)
    assert any("another version" in codes or rank_now is None for _, rank_now, codes in changes(found))
    assert not found.same


def test_versions_of_the_history_are_told_apart(hybrid, ana, clock):
    memory = hybrid.add(ana, "rain in may")
    hybrid.update(ana, memory.id, content="rain in june")
    hybrid.index()
    answer = hybrid.recall(ana, "rain", include_history=True, trace=True)
    assert len(answer) == 2
    assert hybrid.replay(ana, answer.trace_id).same
    clock.advance(1)
    hybrid.update(ana, memory.id, content="rain in july")
    hybrid.index()
    found = hybrid.replay(ana, answer.trace_id)
    assert [d.rank_now is not None for d in found.differences if d.rank_then is None] == [True]


def test_changing_over_to_another_model_and_back(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=32))
    for text in ("rain", "tea"):
        store.add(ana, text)
    store.index()
    answer = store.recall(ana, "rain", trace=True)
    assert len(answer) == 2
    store.close()
    other = open_store(embedder=HashEmbedder(dim=8, model="other"))
    other.reindex()
    found = other.replay(ana, answer.trace_id)
    assert ["degraded"] in [codes for _, _, codes in changes(found)]
    [why] = [d.reasons[0] for d in found.differences if d.id is None]
    assert "other" in str(why.values["reason"])
    assert not any(reason.code == "returned" for d in found.differences for reason in d.reasons)
    other.roll_back_generation()
    assert other.replay(ana, answer.trace_id).same


def test_who_lost_membership_gets_nothing_back(open_store, ana):
    store = open_store()
    store.add(ana, "x")
    store.add(BEN, "rain")
    shared = store.add(ana, "rain for all", visibility="team")
    answer = store.recall(BEN, "rain", trace=True)
    assert len(answer) == 2
    leave_team(store, BEN)
    found = store.replay(BEN, answer.trace_id)
    assert contents(found.recall) == []
    assert changes(found) == [(1, None, ["not found"]), (2, None, ["not found"])]
    assert store.get(ana, shared.id) is not None


def test_a_memory_that_is_shared_no_more(open_store, ana):
    store = open_store()
    store.add(BEN, "x")
    shared = store.add(ana, "rain for all", visibility="team")
    answer = store.recall(BEN, "rain", trace=True)
    store.delete(ana, shared.id)
    assert changes(store.replay(BEN, answer.trace_id)) == [(1, None, ["not found"])]


# --- whose they are, and what they hold -----------------------------------------------------------------------


def test_a_trace_is_its_askers_alone(hybrid, ana, clock):
    hybrid.add(ana, "rain")
    hybrid.add(BEN, "rain")
    answer = hybrid.recall(ana, "rain", trace=True)
    missing = new_id(clock.now())
    for other in (BEN, Scope("rival", "ana", "helper"), Scope("acme", "ana", "critic"),
                  Scope("acme", "ana", "helper", "launch")):  # fmt: skip
        assert hybrid.traces(other) == []
        for verb in (hybrid.replay, hybrid.delete_trace):
            told = set()
            for trace_id in (answer.trace_id, missing):
                with pytest.raises(NotFound) as caught:
                    verb(other, trace_id)
                told.add(str(caught.value).replace(trace_id, "ID"))
            assert len(told) == 1
    for asker in (ana, Scope("acme", "ana")):
        assert [trace.id for trace in hybrid.traces(asker)] == [answer.trace_id]
        assert hybrid.replay(asker, answer.trace_id).same


def test_an_agent_does_not_see_others_through_a_recall_of_all_agents(hybrid):
    hybrid.add(Scope("acme", "ana", "critic"), "rain, says the critic")
    everyone = Scope("acme", "ana")
    answer = hybrid.recall(everyone, "rain", trace=True)
    assert len(answer) == 1
    with pytest.raises(NotFound):
        hybrid.replay(Scope("acme", "ana", "helper"), answer.trace_id)
    assert hybrid.replay(everyone, answer.trace_id).same


def test_narrow_scopes_are_given_as_many_as_they_ask_for(hybrid, ana):
    hybrid.add(ana, "rain")
    mine = [hybrid.recall(ana, f"rain {n}", trace=True).trace_id for n in range(3)]
    for number in range(5):
        hybrid.recall(Scope("acme", "ana", "critic"), f"rain {number}", trace=True)
    assert {trace.id for trace in hybrid.traces(ana, 3)} == set(mine)
    assert len(hybrid.traces(Scope("acme", "ana"), 50)) == 8


@pytest.mark.parametrize("trace_id", ["", "x", "'; --", "%" * 26, "\ud800", "0" * 26])
def test_what_is_no_id_is_missing(hybrid, ana, trace_id):
    for verb in (hybrid.replay, hybrid.delete_trace):
        with pytest.raises(NotFound):
            verb(ana, trace_id)


@pytest.mark.parametrize("limit", [-1, True, "5", None])
def test_an_impossible_limit_is_refused(hybrid, ana, limit):
    with pytest.raises(InvalidInput, match="limit"):
        hybrid.traces(ana, limit)


def test_a_deleted_trace_is_gone(hybrid, ana):
    hybrid.add(ana, "rain")
    first, second = (hybrid.recall(ana, "rain", trace=True).trace_id for _ in range(2))
    hybrid.delete_trace(ana, first)
    assert [trace.id for trace in hybrid.traces(ana)] == [second]
    for verb in (hybrid.replay, hybrid.delete_trace):
        with pytest.raises(NotFound):
            verb(ana, first)


def test_a_trace_holds_nothing_of_what_rows_say(open_store, ana):
    """So that it does not outlive the deletion of a row."""
    store = open_store(embedder=HashEmbedder(dim=8), settings=with_settings(collapse_similarity=0.5))
    store.add(ana, "rain zanzibar 青石板")
    store.add(ana, "rain zanzibar 青石板 too")
    store.record(ana, [Message("user", "rain?"), Message("assistant", "zanzibar 青石板")], "chat")
    store.index()
    for verb in (store.recall, store.search_messages):
        answer = verb(ana, "rain", trace=True, explain=True)
        assert any("zanzibar" in hit.content for hit in answer)
    with sqlite3.connect(store.path) as plain:
        rows = plain.execute("SELECT question, settings, answer FROM recall_traces").fetchall()
    plain.close()
    assert len(rows) == 2
    for text in (column for row in rows for column in row):
        assert "rain" in text or "rrf_k" in text
        assert "zanzibar" not in text
        assert "青石" not in text
        assert "\\u9752" not in text


def test_a_refused_question_leaves_no_trace(hybrid, ana):
    hybrid.add(ana, "rain")
    for options in ({"kinds": ["memo"]}, {"timeout_s": 0}, {"limit": -1}, {"metadata": {"k": float("nan")}}):
        with pytest.raises(InvalidInput):
            hybrid.recall(ana, "rain", trace=True, **options)
    assert hybrid.traces(ana) == []


def test_a_query_that_is_no_unicode_text_cannot_be_kept_and_the_error_names_it(hybrid, ana):
    hybrid.add(ana, "rain")
    with pytest.raises(InvalidText, match="query"):
        hybrid.recall(ana, "rain \ud800", trace=True)
    assert hybrid.traces(ana) == []


def test_many_traces_of_one_instant_have_ids_of_their_own(open_store, ana):
    store = open_store(clock=ManualClock(NOON))
    store.record(ana, said("rain"), "chat")
    ids = {store.search_messages(ana, "rain", trace=True).trace_id for _ in range(30)}
    assert len(ids) == 30
    assert {trace.id for trace in store.traces(ana)} == ids
