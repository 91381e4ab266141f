"""why_not: every way in which a row stays out of an answer has its reason, and nobody learns of others' rows."""

import re
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from conftest import contents, leave_team, said
from memstore import Message, Scope, Settings
from memstore.errors import InvalidInput, NotFound
from memstore.ids import new_id
from memstore.testing import HashEmbedder
from memstore.wording import LANGUAGES, why_not_text

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BEN = Scope("acme", "ben", "helper")
REX = Scope("rival", "rex", "helper")


def with_settings(**options) -> Settings:
    return Settings(durability="process", timezone="UTC", **options)


def codes(why) -> list[str]:
    """The codes, a filter with its name; and each reason can be said in every language."""
    for language in LANGUAGES:
        text = why_not_text(why, language)
        assert text.count("\n  - ") == len(why.reasons)
        assert not re.search(r"\{[a-z_]+\}", text.partition("\n")[2]), text
    return [
        f"filter {reason.values['filter']}" if reason.code == "filter" else reason.code
        for reason in why.reasons
    ]


# --- the row's own state ------------------------------------------------------------------------------------


def test_a_hit_is_said_to_have_come_back_with_its_rank(store, ana):
    store.add(ana, "rain rain rain")
    second = store.add(ana, "a longer text in which rain comes up")
    why = store.why_not(ana, second.id, "rain")
    assert (why.rank, why.layer, why.query, why.id) == (2, "memories", "rain", second.id)
    assert [(r.code, r.values) for r in why.reasons] == [("returned", {"rank": 2})]
    assert [hit.id for hit in why.recall] == [hit.id for hit in store.recall(ana, "rain")]


def test_deleted_rows_of_both_layers(store, ana, clock):
    clock.set(NOON)
    memory = store.add(ana, "rain")
    [message] = store.record(ana, said("rain"), "chat").ids
    for row_id in (memory.id, message):
        store.delete(ana, row_id)
        why = store.why_not(ana, row_id, "rain")
        assert codes(why) == ["deleted"]
        assert why.reasons[0].values == {"at": "2026-03-01T12:00:00Z"}
        assert why.rank is None


def test_a_memory_whose_new_version_does_not_match_any_more(store, ana):
    memory = store.add(ana, "rain in may")
    store.update(ana, memory.id, content="snow in june")
    assert codes(store.why_not(ana, memory.id, "rain")) == ["no word in common", "no vector leg"]
    assert codes(store.why_not(ana, memory.id, "rain", include_history=True)) == ["returned"]


def test_what_ended_expired_or_is_not_known_yet(store, ana, clock):
    clock.set(NOON)
    ended = store.add(ana, "rain", valid_from=NOON - timedelta(hours=2), valid_to=NOON + timedelta(hours=1))
    expired = store.add(ana, "rain", expires_at=NOON + timedelta(hours=1))
    clock.advance(3600)
    later = store.add(ana, "rain")
    assert codes(store.why_not(ana, ended.id, "rain")) == ["filter valid_to"]
    assert codes(store.why_not(ana, expired.id, "rain")) == ["filter expires_at"]
    why = store.why_not(ana, expired.id, "rain")
    assert why.reasons[0].values["found"] == "2026-03-01T13:00:00Z"
    assert codes(store.why_not(ana, later.id, "rain", known_at=NOON)) == ["filter known_at"]
    assert codes(store.why_not(ana, later.id, "rain", as_of=NOON)) == ["filter as_of"]
    assert codes(store.why_not(ana, ended.id, "rain", as_of=NOON - timedelta(hours=3))) == ["filter as_of"]


def test_a_version_that_was_the_past_at_known_at(store, ana, clock):
    clock.set(NOON)
    memory = store.add(ana, "rain")
    clock.advance(60)
    store.update(ana, memory.id, content="snow")
    clock.advance(60)
    why = store.why_not(ana, memory.id, "rain", known_at=NOON + timedelta(seconds=90))
    assert "no word in common" in codes(why)
    assert codes(store.why_not(ana, memory.id, "rain", known_at=NOON)) == ["returned"]


# --- filters ------------------------------------------------------------------------------------------------

MEMORY_FILTERS = [
    ({"kinds": ["persona"]}, ["filter kinds"]),
    ({"session": "other"}, ["filter session"]),
    ({"since": NOON + timedelta(seconds=1)}, ["filter since"]),
    ({"until": NOON}, ["filter until"]),
    ({"as_of": NOON - timedelta(days=1)}, ["filter as_of"]),
    ({"known_at": NOON - timedelta(days=1)}, ["filter known_at"]),
    ({"metadata": {"k": 2}}, ["filter metadata"]),
    ({"metadata": {"k": 1, "l": 0}}, ["filter metadata"]),
    ({"kinds": ["persona"], "metadata": {"k": 2}}, ["filter kinds", "filter metadata"]),
]


@pytest.mark.parametrize(("options", "reasons"), MEMORY_FILTERS, ids=str)
def test_each_filter_of_a_recall_is_named_with_what_was_asked_and_found(store, ana, clock, options, reasons):
    clock.set(NOON)
    memory = store.add(ana, "rain", kind="episodic", session="chat", metadata={"k": 1}, valid_from=NOON)
    assert contents(store.recall(ana, "rain", **options)) == []
    why = store.why_not(ana, memory.id, "rain", **options)
    assert codes(why) == reasons
    for reason in why.reasons:
        assert {"asked", "found"} <= set(reason.values), reason
    assert store.why_not(ana, memory.id, "rain").rank == 1


MESSAGE_FILTERS = [
    ({"roles": ["assistant"]}, ["filter roles"]),
    ({"session": "other"}, ["filter session"]),
    ({"since": NOON + timedelta(seconds=1)}, ["filter since"]),
    ({"until": NOON}, ["filter until"]),
    ({"known_at": NOON - timedelta(days=1)}, ["filter known_at"]),
    ({"metadata": {"k": 2}}, ["filter metadata"]),
]


@pytest.mark.parametrize(("options", "reasons"), MESSAGE_FILTERS, ids=str)
def test_each_filter_of_a_message_search_is_named(store, ana, clock, options, reasons):
    clock.set(NOON)
    [row_id] = store.record(ana, [Message("user", "rain", created_at=NOON, meta={"k": 1})], "chat").ids
    assert contents(store.search_messages(ana, "rain", **options)) == []
    why = store.why_not(ana, row_id, "rain", **options)
    assert (codes(why), why.layer) == (reasons, "messages")
    assert store.why_not(ana, row_id, "rain").rank == 1


def test_the_live_window_and_a_deleted_session(store, ana):
    [row_id] = store.record(ana, said("rain"), "chat").ids
    store.clear_session(ana, "chat")
    assert codes(store.why_not(ana, row_id, "rain", live_only=True)) == ["filter live_only"]
    assert codes(store.why_not(ana, row_id, "rain")) == ["returned"]
    store.delete_session(ana, "chat")
    assert codes(store.why_not(ana, row_id, "rain")) in (["filter hidden"], ["deleted"])


def test_another_agent_or_task(store):
    owner = Scope("acme", "ana", "helper", "launch")
    memory = store.add(owner, "rain")
    for asker in (Scope("acme", "ana", "critic"), Scope("acme", "ana", "helper", "retreat")):
        why = store.why_not(asker, memory.id, "rain")
        assert codes(why) == ["filter agent or task"]
        assert why.reasons[0].values["found"] == "helper/launch"


# --- the legs -----------------------------------------------------------------------------------------------


def test_no_words_in_the_query_and_no_word_in_common(store, ana):
    memory = store.add(ana, "rain")
    assert codes(store.why_not(ana, memory.id, "。！？")) == ["no words in the query", "no vector leg"]
    why = store.why_not(ana, memory.id, "what is the snow")
    assert codes(why) == ["no word in common", "no vector leg"]
    assert why.reasons[0].values == {"words": "snow"}  # without the stop words


class Refused(HashEmbedder):
    """Has no vector for some texts."""

    def embed_documents(self, texts):
        found = super().embed_documents(texts)
        for row, text in zip(found, texts, strict=True):
            if "unspeakable" in text:
                row[:] = np.nan
        return found


def test_a_vector_that_is_pending_or_was_refused(open_store, ana):
    store = open_store(embedder=Refused(dim=8))
    store.add(ana, "rain")
    refused = store.add(ana, "unspeakable")
    assert codes(store.why_not(ana, refused.id, "rain")) == [
        "degraded",
        "no word in common",
    ]  # no index run yet
    store.index()
    pending = store.add(ana, "tea")
    for row_id, state in ((pending.id, "pending"), (refused.id, None)):
        why = store.why_not(ana, row_id, "rain")
        assert codes(why) == ["no word in common", "no vector"]
        found = why.reasons[1].values["state"]
        assert found == state if state else found != "pending"
        assert found


def test_below_the_floor_of_each_leg(open_store, ana):
    store = open_store(
        embedder=HashEmbedder(dim=64), settings=with_settings(floors={"text": 1e9, "vector": 0.999})
    )
    memory = store.add(ana, "some rain")
    store.index()
    why = store.why_not(ana, memory.id, "rain now")
    assert codes(why) == ["below the floor", "below the floor"]
    assert [reason.values["leg"] for reason in why.reasons] == ["text", "vector"]
    for reason in why.reasons:
        assert reason.values["score"] < reason.values["floor"]


def test_too_far_down_in_a_leg_and_cut_by_the_limit(open_store, ana):
    store = open_store(settings=with_settings(candidate_factor=2))
    last = store.add(ana, "a long text about many other things in which rain comes up only once")
    for number in range(5):
        store.add(ana, f"rain rain {number}")
    why = store.why_not(ana, last.id, "rain", 2)
    assert codes(why) == ["too far down", "no vector leg"]
    assert why.reasons[0].values == {"leg": "text", "rank": 6, "of": 6, "depth": 4}
    why = store.why_not(ana, last.id, "rain", 3)
    assert codes(why) == ["no vector leg", "cut by the limit"]
    assert why.reasons[1].values["place"] == 6
    assert why.reasons[1].values["text_rank"] == 6
    assert codes(store.why_not(ana, last.id, "rain", 6)) == ["returned"]


def test_a_near_duplicate_names_the_row_that_came_in_its_place(open_store, ana):
    store = open_store(settings=with_settings(collapse_similarity=0.7))
    twin = store.add(ana, "umbrella stand by the old door now")
    kept = store.add(ana, "umbrella stand by the old door")
    why = store.why_not(ana, twin.id, "umbrella stand door blue")
    assert "near-duplicate" in codes(why)
    assert why.reasons[-1].values == {"of": kept.id}


def test_a_message_far_from_the_query_but_beside_a_match_came_back(store, ana):
    ids = store.record(ana, [Message("user", "the lighthouse?"), Message("assistant", "Yes")], "chat").ids
    assert store.why_not(ana, ids[1], "lighthouse").rank == 2


class Hung(HashEmbedder):
    def __init__(self) -> None:
        super().__init__(dim=8)
        self.gate = threading.Event()

    def embed_query(self, text):
        assert self.gate.wait(60)
        return super().embed_query(text)


def test_a_hung_model_is_a_reason(open_store, ana):
    embedder = Hung()
    store = open_store(embedder=embedder)
    memory = store.add(ana, "rain")
    store.index()
    try:
        why = store.why_not(ana, memory.id, "snow", timeout_s=0.02)
        again = store.why_not(ana, memory.id, "rain")
    finally:
        embedder.gate.set()
    assert codes(why) == ["degraded", "no word in common"]
    assert why.reasons[0].values["leg"] == "vector"
    assert codes(again) == ["returned"]


# --- nobody learns of others' rows (A8) -----------------------------------------------------------------------


def missing(store, scope, row_id: str) -> str:
    with pytest.raises(NotFound) as caught:
        store.why_not(scope, row_id, "rain")
    return str(caught.value).replace(repr(row_id), "ID")


def test_foreign_ids_and_missing_ids_cannot_be_told_apart(store, ana, clock):
    private = store.add(ana, "rain")
    [message] = store.record(ana, said("rain"), "chat").ids
    shared = store.add(ana, "rain for all", visibility="team")
    gone = store.add(ana, "rain, soon gone", visibility="team")
    store.delete(ana, gone.id)
    store.add(BEN, "x")
    store.add(REX, "x")
    expected = missing(store, BEN, new_id(clock.now()))
    for row_id in (private.id, message, gone.id):
        assert missing(store, BEN, row_id) == expected
    for asker in (REX, Scope("rival", "ana", "helper"), Scope("nowhere", "ana", "helper")):
        for row_id in (private.id, message, gone.id, shared.id, new_id(clock.now())):
            assert missing(store, asker, row_id) == expected
    assert store.why_not(BEN, shared.id, "rain").rank == 1
    leave_team(store, BEN)
    assert missing(store, BEN, shared.id) == expected


@pytest.mark.parametrize("row_id", ["", "x", "'; --", "0" * 26, "%" * 26, "\ud800", "a" * 1000])
def test_what_is_no_id_is_missing(store, ana, row_id):
    store.add(ana, "rain")
    with pytest.raises(NotFound):
        store.why_not(ana, row_id, "rain")


def test_a_shared_rows_raw_scores_are_not_told(open_store, ana):
    """They carry statistics of rows that the asker may not see."""
    store = open_store(
        embedder=HashEmbedder(dim=64), settings=with_settings(floors={"text": 1e9, "vector": 0.999})
    )
    shared = store.add(ana, "some rain for all", visibility="team")
    store.add(BEN, "tea")
    store.index()
    why = store.why_not(BEN, shared.id, "rain now")
    assert codes(why) == ["below the floor", "below the floor"]
    assert all("score" not in reason.values for reason in why.reasons)
    assert all("score" in reason.values for reason in store.why_not(ana, shared.id, "rain now").reasons)


def test_odd_options_are_refused_like_those_of_a_recall(store, ana):
    memory = store.add(ana, "rain")
    for options in ({"timeout_s": 0}, {"kinds": ["memo"]}, {"roles": ["robot"]}, {"limit": -1}, {"limit": "5"}, {"limit": None}, {"limit": "5"}, {"limit": None},
                    {"metadata": {"k": float("nan")}}, {"since": "yesterday"}):  # fmt: skip
        with pytest.raises(InvalidInput):
            store.why_not(ana, memory.id, "rain", **options)
    with pytest.raises(InvalidInput):
        store.why_not(ana, memory.id, 5)


@pytest.mark.parametrize("query", ["", "  ", "a AND", '"', "{of} {0} %s", "x" * 5000, "😂"])
def test_any_text_is_a_legal_query(store, ana, query):
    memory = store.add(ana, "rain")
    why = store.why_not(ana, memory.id, query)
    assert why.rank is None
    assert why.reasons


def test_the_options_are_those_of_the_recall(open_store, ana):
    """Of every row why_not says what the recall with the same options says."""
    store = open_store(embedder=HashEmbedder(dim=16))
    ids = [store.add(ana, f"rain {n}", kind="persona" if n % 3 else "episodic", metadata={"m": n % 2}).id
           for n in range(18)]  # fmt: skip
    store.index()
    for options in (
        {},
        {"kinds": ["persona"]},
        {"metadata": {"m": 1}},
        {"kinds": ["persona"], "metadata": {"m": 1}},
    ):
        for limit in (1, 4, 30):
            found = {hit.id: hit.rank for hit in store.recall(ana, "rain 7", limit, **options)}
            for row_id in ids:
                why = store.why_not(ana, row_id, "rain 7", limit, **options)
                assert why.rank == found.get(row_id)
                assert (codes(why) == ["returned"]) == (row_id in found)
