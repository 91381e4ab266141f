"""One source must not take every place of an answer: near-duplicates collapse, and a share is the most that one gets."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import FAST, OpenStore, contents, said
from memstore import MemoryStore, Message, Scope, Settings
from memstore.errors import ConfigError
from memstore.recall.late import beyond_share, first_of_each
from memstore.testing import HashEmbedder
from memstore.wording import recall_lines, why_not_text

CAPPED = replace(FAST, source_share=0.5)
GUARDED = replace(FAST, source_share=0.5, collapse_similarity=0.8)
BO = Scope("acme", "bo", "helper")
QUERY = "which harbour does the ferry leave from"


def flood(store: MemoryStore, count: int) -> None:
    """One author's rows, all nearer to the question than anything else."""
    for number in range(count):
        store.add(
            BO,
            f"the ferry does leave from harbour number {number} which harbour",
            visibility="team",
            session="spam",
        )


@pytest.mark.parametrize("embedder", [None, HashEmbedder(dim=16)], ids=["text", "both"])
@pytest.mark.parametrize("settings", [CAPPED, GUARDED], ids=["cap", "cap and collapse"])
def test_a_thousand_near_duplicates_of_one_author_leave_the_older_fact_in_the_answer(
    open_store: OpenStore, ana: Scope, settings: Settings, embedder: HashEmbedder | None
) -> None:
    store = open_store(settings=settings, embedder=embedder)
    fact = store.add(ana, "the ferry to the island goes from the north harbour")
    for number in range(4):
        store.add(ana, f"a harbour note of no use, {number}", session=f"s{number}")
    flood(store, 1_000)
    if embedder is not None:
        store.index()
    answer = store.recall(ana, QUERY, 6)
    flooded = [hit for hit in answer if hit.user_id == "bo"]
    assert fact.id in [hit.id for hit in answer]
    assert 1 <= len(flooded) <= 3
    if settings.collapse_similarity is not None:
        assert len(flooded) == 1


def test_without_the_cap_the_flood_takes_all(open_store: OpenStore, ana: Scope) -> None:
    store = open_store()
    store.add(ana, "the ferry to the island goes from the north harbour")
    flood(store, 40)
    assert {hit.user_id for hit in store.recall(ana, QUERY, 6)} == {"bo"}


def test_a_single_source_is_not_cut(open_store: OpenStore) -> None:
    store = open_store(settings=CAPPED)
    flood(store, 10)
    assert len(store.recall(BO, QUERY, 6)) == 6


def test_speakers_share_an_answer_of_messages(open_store: OpenStore, ana: Scope) -> None:
    store = open_store(settings=replace(CAPPED, neighbour_weights={}))
    loud = [Message("user", f"harbour ferry harbour {number}", name="mallory") for number in range(30)]
    store.record(ana, [*said("the ferry and the harbour, long ago, and other things"), *loud], "chat")
    answer = store.search_messages(ana, "harbour ferry", 4)
    assert sorted(hit.name or hit.role for hit in answer) == ["mallory", "mallory", "user"]


def test_explanations_and_why_not_name_the_cap_in_both_languages(open_store: OpenStore, ana: Scope) -> None:
    store = open_store(settings=CAPPED)
    store.add(ana, "the ferry to the island goes from the north harbour")
    mine = [store.add(ana, f"ferry harbour {number}", session="mine") for number in range(3)]
    answer = store.recall(ana, "ferry harbour", 4, explain=True)
    assert answer.explanation is not None
    outcomes = {candidate.id: candidate.outcome for candidate in answer.explanation.candidates}
    (capped,) = [memory.id for memory in mine if outcomes[memory.id] == "source cap"]
    assert any("its source has its share" in line for line in recall_lines(answer))
    assert any("同一来源份额已满" in line for line in recall_lines(answer, "zh"))
    why = store.why_not(ana, capped, "ferry harbour", 4)
    assert [reason.code for reason in why.reasons][-1] == "source cap"
    assert "0.5 of the limit 4" in why_not_text(why)
    assert "份额已满" in why_not_text(why, "zh")


def test_a_row_of_a_flood_that_was_not_even_looked_at_is_explained_too(
    open_store: OpenStore, ana: Scope
) -> None:
    store = open_store(settings=CAPPED)
    store.add(ana, "the ferry to the island goes from the north harbour")
    flood(store, 200)
    last = store.recall(BO, QUERY, 200)[-1]
    assert [reason.code for reason in store.why_not(ana, last.id, QUERY, 4).reasons][-1] in (
        "source cap",
        "passed by others",
        "too far down",
    )


def test_what_is_certain_is_the_last_of_its_source_to_go(open_store: OpenStore, ana: Scope) -> None:
    store = open_store(settings=replace(CAPPED, priority_weight=100.0))
    literal = store.add(ana, "the code is x-y", priority=0, session="one")
    for number in range(5):
        store.add(ana, f"x y {number}", priority=100, session="one")
    store.add(ana, "x marks the spot", session="two")
    assert literal.id in [hit.id for hit in store.recall(ana, "x-y", 2)]


def test_a_stored_recall_is_asked_again_with_its_share(open_store: OpenStore, ana: Scope) -> None:
    store = open_store(settings=CAPPED)
    store.add(ana, "the ferry to the island goes from the north harbour")
    flood(store, 20)
    then = contents(store.recall(ana, QUERY, 4, trace=True))
    store.close()
    again = open_store()
    (trace,) = again.traces(ana)
    replay = again.replay(ana, trace.id)
    assert replay.same
    assert contents(replay.recall) == then


@pytest.mark.parametrize("value", [0, -0.5, 1.01, True, "half", float("nan")])
def test_a_share_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="source_share"):
        Settings(source_share=value)  # type: ignore[arg-type]


@given(
    st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 12), st.floats(0.01, 1.0, allow_nan=False)
)
def test_no_source_has_more_than_its_share_and_others_lose_nothing(
    rows: list[str], limit: int, share: float
) -> None:
    ordered, sources = list(range(len(rows))), dict(enumerate(rows))
    beyond = beyond_share(ordered, sources, limit, share)
    kept = [item for item in ordered if item not in beyond]
    if len(set(rows)) < 2:
        assert not beyond
    else:
        most = max(1, int(share * limit))
        for source in set(rows):
            of_source = [item for item in ordered if sources[item] == source]
            assert [item for item in kept if sources[item] == source] == of_source[:most]


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 5), st.integers(1, 20))
def test_the_first_of_each_source_stay_in_order(rows: list[str], each: int, most: int) -> None:
    kept = first_of_each(list(range(len(rows))), dict(enumerate(rows)), each, most)
    assert kept == sorted(kept)
    assert len(kept) <= most
    assert all(sum(rows[item] == source for item in kept) <= each for source in set(rows))
