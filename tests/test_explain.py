"""explain: every candidate's way through a recall, and sentences of it in both languages."""

import itertools
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memstore.recall
from conftest import contents
from memstore import Message, Scope, Settings, wording
from memstore.errors import InvalidInput
from memstore.storage.pipeline_rows import SourceLink
from memstore.storage.sqlite import filters
from memstore.testing import HashEmbedder
from memstore.types import (
    CandidateReport,
    Degraded,
    Difference,
    Explanation,
    LegReport,
    LegSummary,
    Reason,
    Recall,
    RecallExplanation,
    WhyNot,
)
from memstore.wording import (
    LANGUAGES,
    check_language,
    degraded_text,
    hit_lines,
    reason_text,
    recall_lines,
    why_not_text,
)

BEN = Scope("acme", "ben", "helper")
HAN = re.compile("[\u4e00-\u9fff]")


def with_settings(**options) -> Settings:
    return Settings(durability="process", timezone="UTC", **options)


@pytest.fixture
def hybrid(open_store):
    return open_store(embedder=HashEmbedder(dim=32))


# --- the recall as a whole ----------------------------------------------------------------------------------


def test_without_explain_there_is_no_explanation(hybrid, ana):
    hybrid.add(ana, "rain")
    hybrid.index()
    answer = hybrid.recall(ana, "rain")
    assert (answer.explanation, answer[0].explanation) == (None, None)


def test_every_candidate_of_each_leg_is_there_with_its_way_and_outcome(hybrid, ana):
    for number in range(20):
        hybrid.add(ana, f"rain {'and rain ' * (number % 4)}{number}")
    hybrid.add(ana, "tea")
    hybrid.index()
    answer = hybrid.recall(ana, "rain 7", 3, explain=True)
    whole = answer.explanation
    assert [c.outcome for c in whole.candidates][:3] == ["returned"] * 3
    assert {c.outcome for c in whole.candidates[3:]} == {"limit"}
    assert [c.id for c in whole.candidates[:3]] == [hit.id for hit in answer]
    for leg, summary in whole.legs.items():
        ranks = sorted(c.explanation.legs[leg].rank for c in whole.candidates if leg in c.explanation.legs)
        assert ranks == list(range(1, 10))  # three times the limit
        assert (summary.brought, summary.asked, summary.floor) == (9, 9, None)
    assert whole.legs["vector"].model == "hash"
    assert whole.legs["text"].model is None
    assert all(c.explanation.legs and c.excerpt for c in whole.candidates)
    assert whole.query == "rain 7"


def test_outcomes_of_duplicates(open_store, ana):
    store = open_store(settings=with_settings(collapse_similarity=0.5))
    store.add(ana, "umbrella stand by the door now")
    store.add(ana, "umbrella stand by the door")
    whole = store.recall(ana, "umbrella blue stand", explain=True).explanation
    assert [c.outcome for c in whole.candidates] == ["returned", "duplicate"]
    assert whole.candidates[1].duplicate_of == whole.candidates[0].id


def test_filters_are_shown_with_what_was_asked(store, ana):
    store.add(ana, "rain", kind="persona", session="chat", metadata={"k": 1})
    whole = store.recall(
        ana, "rain", 3, kinds=["persona"], session="chat", metadata={"k": 1}, since="2020-01-01", include_history=True,
        explain=True,
    ).explanation  # fmt: skip
    assert dict(whole.filters) == {
        "team": "acme", "user": "ana", "agent": "helper", "layer": "memories", "limit": "3", "kinds": '["persona"]',
        "session": "helper:default:chat", "since": "2020-01-01", "metadata": '{"k":1}', "include_history": "true",
    }  # fmt: skip
    plain = dict(store.recall(Scope("acme", "ana"), "rain", explain=True).explanation.filters)
    assert set(plain) == {"team", "user", "layer", "limit"}


def test_the_messages_that_a_memory_was_made_from_are_its_sources(store, ana):
    memory = store.add(ana, "likes rain")
    ids = store.record(ana, [Message("user", "I like rain"), Message("user", "a lot")], "chat").ids
    with store._storage.write() as tx:
        tx.add_sources("acme", [SourceLink("memory", memory.id, 1, "message", source) for source in ids])
    [hit] = store.recall(ana, "rain", explain=True)
    assert hit.explanation.sources == tuple(sorted(ids))
    assert any(ids[0] in line for line in hit_lines(hit.explanation))


def test_excerpts_are_short_and_on_one_line(store, ana):
    store.add(ana, "rain\n\n  and\tmore " + "long " * 100)
    [candidate] = store.recall(ana, "rain", explain=True).explanation.candidates
    assert candidate.excerpt.startswith("rain and more long")
    assert len(candidate.excerpt) <= 80
    assert "\n" not in candidate.excerpt


def test_raw_scores_of_rows_that_others_shared_are_hidden_everywhere(hybrid, ana):
    """They carry statistics of rows that the asker may not see."""
    for number in range(12):
        hybrid.add(ana, f"rain {number}", visibility="team")
    hybrid.add(BEN, "my own rain")
    hybrid.index()
    answer = hybrid.recall(BEN, "rain in may", 2, explain=True)
    mine = {row.id for row in hybrid.get_all(BEN) if row.user_id == "ben"}
    candidates = answer.explanation.candidates
    assert len(candidates) > 4
    for candidate in candidates:
        for report in candidate.explanation.legs.values():
            assert (report.score is not None) == (candidate.id in mine)
            assert report.with_neighbours is None
            assert report.rank
            assert report.term
        expected = "the asker owns it" if candidate.id in mine else "shared with the team"
        assert candidate.explanation.visible_by == expected
    why = hybrid.why_not(BEN, candidates[-1].id, "rain in may", 2)
    assert why.recall.explanation.candidates == candidates
    assert not any(
        "score" in str(key) for r in why.reasons if r.code == "below the floor" for key in r.values
    )


def test_private_rows_of_others_are_in_no_explanation(hybrid, ana):
    secret = hybrid.add(ana, "rain zanzibar")
    hybrid.record(ana, [Message("user", "rain zanzibar")], "chat")
    hybrid.add(BEN, "rain")
    hybrid.index()
    for verb in (hybrid.recall, hybrid.search_messages):
        answer = verb(BEN, "rain", 50, explain=True)
        assert "zanzibar" not in repr(answer)
        assert secret.id not in repr(answer)


@given(st.text(max_size=50))
@settings(max_examples=40)
def test_any_query_can_be_explained_in_every_language(query):
    from conftest import fresh_store

    with fresh_store(embedder=HashEmbedder(dim=8)) as store:
        ana = Scope("acme", "ana", "helper")
        for text in ("rain", "会议改到周四", "a NOT gate 😂"):
            store.add(ana, text)
        store.index()
        answer = store.recall(ana, query, 1, explain=True)
        for language in LANGUAGES:
            list(recall_lines(answer, language))
            for hit in answer:
                assert list(hit_lines(hit.explanation, language))


# --- wording ------------------------------------------------------------------------------------------------

SOURCES = Path(memstore.recall.__file__).parent
CODES = sorted(
    {code for path in SOURCES.glob("*.py") for code in re.findall(r'Reason\(\s*"([^"]+)"', path.read_text("utf-8"))}
    | {"recorded since", "came up"}  # chosen by an expression
)  # fmt: skip
NAMED = re.compile(r'(?:yield|_each\(|append\(\(|extend\(\() ?"([a-z_ ]+)", ')
FILTERS = sorted(set(NAMED.findall(Path(filters.__file__).read_text("utf-8"))))
VALUES = {
    "returned": {"rank": 1},
    "deleted": {"at": "2026-03-01T12:00:00Z"},
    "rule": {"rule": "no longer current"},
    "degraded": {"leg": "vector", "reason": "out of {memory} %s"},
    "no word in common": {"words": "rain, {snow}"},
    "no vector": {"state": "pending"},
    "below the floor": {"leg": "text", "floor": 0.5, "score": 0.25},
    "too far down": {"leg": "vector", "rank": 9, "of": 10, "depth": 3},
    "passed by others": {"leg": "text", "rank": 2, "of": 10, "depth": 3},
    "near-duplicate": {"of": "01J"},
    "source cap": {"share": 0.5, "limit": 5},
    "cut by the limit": {"place": 9, "limit": 5, "score": 0.1, "text_rank": 3},
    "filter": {"filter": "kinds"},
}


def test_the_codes_and_filters_were_found_in_the_source():
    assert {"returned", "filter", "below the floor", "near-duplicate", "moved", "not found"} <= set(CODES)
    assert set(VALUES) <= set(CODES)
    assert {"agent or task", "metadata"} | set(FILTERS) <= set(wording._FILTERS)
    assert {"hidden", "live_only", "kinds", "roles", "as_of", "valid_to", "superseded", "session"} <= set(
        FILTERS
    )


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", CODES)
def test_every_reason_has_a_sentence_in_every_language(code, language):
    values = VALUES.get(code, {})
    text = reason_text(Reason(code, values), language)
    assert text.endswith("." if language == "en" else "。")
    assert bool(HAN.search(text)) == (language == "zh")
    for key, value in values.items():
        if key in ("words", "reason", "of", "at"):
            assert str(value) in text.replace("、", ", ")
    assert text.count("{") == sum(str(value).count("{") for value in values.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_values_that_may_be_missing_are_missed_by_no_sentence(language):
    assert reason_text(Reason("deleted"), language)
    assert reason_text(Reason("below the floor", {"leg": "text", "floor": 0.5}), language)
    for name, parts in itertools.product(
        FILTERS, ({}, {"asked": "x"}, {"found": "y"}, {"asked": "x", "found": "y"})
    ):
        text = reason_text(Reason("filter", {"filter": name, **parts}), language)
        assert bool(HAN.search(text)) == (language == "zh")
        assert all(value in text for value in parts.values())


def report(**options) -> LegReport:
    return LegReport(**{"rank": 1, "score": 0.5, "term": 0.016, **options})


REPORTS = [
    report(), report(score=None), report(with_neighbours=0.7), report(score=None, with_neighbours=None),
    report(note="holds the query literally"), report(note="found by the turns beside it", with_neighbours=0.3),
    report(note="a note of a later version"),
]  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_combination_of_an_explanation_can_be_said(language):
    outcomes = ("returned", "limit", "duplicate", "rules")
    for one, sources, factors, rule in itertools.product(
        REPORTS,
        ((), ("01J",)),
        ({}, {"recency": 0.5, "priority": 1.5}),
        ("the asker owns it", "a later rule"),
    ):
        explanation = Explanation({"text": one, "vector": one}, ("rain",), rule, False, sources, factors)
        lines = list(hit_lines(explanation, language))
        assert len(lines) == 4 + len(sources) + len(factors)
        candidates = tuple(
            CandidateReport(
                "01J", place, 0.1, outcome, explanation, "{rain}", "01K" if outcome == "duplicate" else None
            )
            for place, outcome in enumerate(outcomes, 1)
        )
        for left_out, coverage, floor, model in itertools.product(
            ((), ("the",)), (None, 0.5), (None, 0.2), (None, "m")
        ):
            whole = RecallExplanation(
                "q", ("rain",), left_out, (("team", "acme"),),
                {"text": LegSummary(9, 3, 1.0, floor), "vector": LegSummary(9, 3, 1.0, floor, model)},
                coverage, candidates,
            )  # fmt: skip
            said = list(recall_lines(Recall((), explanation=whole), language))
            assert sum("{rain}" in line for line in said) == 3  # all but what was returned
            assert any("01K" in line for line in said)
            assert ("the" in "\n".join(said)) or not left_out


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_rest_can_be_said(language):
    part = Degraded("vector", "no model")
    assert "no model" in degraded_text(part, language)
    why = WhyNot("01J", "memories", "雨 rain", None, (Reason("no vector leg"), Reason("moved")), Recall(()))
    assert why_not_text(why, language).count("\n") == 2
    assert list(recall_lines(Recall(()), language)) == []
    assert [f.name for f in fields(Difference)] == ["id", "rank_then", "rank_now", "reasons"]


def test_languages_are_checked():
    assert [check_language(language) for language in LANGUAGES] == ["en", "zh"]
    for wrong in ("de", "", "EN", "zh-CN"):
        with pytest.raises(InvalidInput, match="en, zh"):
            check_language(wrong)


def test_left_out_words_are_said(store, ana):
    store.add(ana, "quarterly audit")
    answer = store.recall(ana, "what is the audit", explain=True)
    assert contents(answer) == ["quarterly audit"]
    english = "\n".join(recall_lines(answer, "en"))
    assert "looked for: audit" in english
    assert "left out, without meaning of their own: what, is, the" in english
    assert "忽略的虚词：what、is、the" in "\n".join(recall_lines(answer, "zh"))
