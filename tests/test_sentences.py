"""Queries of several sentences: asked as a whole, and by each sentence that says something."""

import numpy as np
import pytest

from conftest import FAST, contents
from memstore import Settings
from memstore.embedding import check_query
from memstore.recall.sentences import sentences
from memstore.testing import HashEmbedder
from memstore.text import Tokenizer

TOKENIZER = Tokenizer()


def cut(query: str, most: int = 6) -> list[str]:
    return [part.text for part in sentences(query, TOKENIZER, most, stop_words=True)[0]]


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("我用的手机是什么？另外，团建在哪里？", ["我用的手机是什么？", "另外，团建在哪里？"]),
        ("Where is the launch? And who pays?", ["Where is the launch?", "And who pays?"]),
        ("first line\nsecond line", ["first line", "second line"]),
        ("one sentence", []),
        ("你好！我用的手机是什么？", ["你好！", "我用的手机是什么？"]),
        ("是吗？我用的手机是什么？", []),
        ("version 1.2.3 of src/app.py", []),
        ("。。。！？", []),
        ("", []),
        ("   \n\n  ", []),
    ],
)
def test_a_query_is_cut_where_its_sentences_end(query, parts):
    assert cut(query) == parts


def test_the_last_sentences_are_asked_alone():
    assert cut("red. green. blue. yellow.", 2) == ["blue.", "yellow."]
    assert cut("red. green. blue. yellow.", 1) == ["yellow."]
    assert cut("red. green. blue. yellow.", 4) == ["red.", "green.", "blue.", "yellow."]
    assert cut("red. green. blue.", 0) == []


def test_a_book_is_read_at_its_head_and_tail():
    parts = cut("开头的问题在哪里？" + "天气不错。" * 20_000 + "暗号是什么石板？", 3)
    assert parts[-1] == "暗号是什么石板？"
    assert len(parts) == 3


def counted(embedder: HashEmbedder) -> list[str]:
    asked: list[str] = []
    embed = embedder.embed_query
    embedder.embed_query = lambda text: (asked.append(text), embed(text))[1]  # type: ignore[method-assign]
    return asked


def test_a_word_of_any_of_many_sentences_finds_its_row(store, ana):
    store.add(ana, "nginx 限流规则每周复查")
    for number in range(30):
        store.add(ana, f"sentence number {number}")
    others = [f"something else {number}?" for number in range(50, 62)]
    for place in (0, 3, 11):
        query = " ".join([*others[:place], "nginx 证书?", *others[place:]])
        assert "nginx 限流规则每周复查" in contents(store.recall(ana, query, limit=5)), place


def test_each_sentence_costs_one_call_of_the_model_and_a_single_one_none(open_store, ana):
    embedder = HashEmbedder(32)
    asked = counted(embedder)
    store = open_store(embedder=embedder)
    store.add(ana, "the launch is on Thursday")
    store.index()
    store.recall(ana, "when is the launch")
    assert len(asked) == 1
    store.recall(ana, "when is the launch? who pays for lunch?")
    assert len(asked) == 1 + 3
    asked.clear()
    plain = open_store(
        embedder=embedder, settings=Settings(durability="process", timezone="UTC", sentences=0)
    )
    plain.recall(ana, "when is the launch? who pays for lunch?")
    assert len(asked) == 1


def test_a_row_is_found_by_the_one_sentence_that_it_answers(open_store, ana):
    """The other sentence's words, and rows that hold a few of many, do not push it out."""
    store = open_store()
    store.add(ana, "lunch is paid by accounting")
    store.add(ana, "plan and checklist of the rocket launch")
    for number in range(30):
        store.add(ana, f"the rocket launch has paid number {number}")
    query = "what about plan and checklist of the rocket launch? who paid lunch?"
    assert "lunch is paid by accounting" in contents(store.recall(ana, query, limit=2))


def test_the_vector_score_is_the_mean_of_the_whole_and_the_best_sentence(open_store, ana):
    embedder = HashEmbedder(32)
    store = open_store(embedder=embedder, settings=FAST)
    texts = [
        f"{one} {other}" for one in ("rain", "launch", "coffee") for other in ("berlin", "invoice", "ticket")
    ]
    for text in texts:
        store.add(ana, text)
    store.index()
    query = "rain in berlin? the coffee invoice!"
    answer = store.recall(ana, query, limit=9, explain=True)
    assert answer.explanation.sentences == ("rain in berlin?", "the coffee invoice!")
    documents = embedder.embed_documents(texts)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    whole, *parts = (
        documents @ check_query(embedder.embed_query(text), 32)
        for text in (query, *answer.explanation.sentences)
    )
    expected = dict(zip(texts, (whole + np.max(parts, axis=0)) / 2, strict=True))
    for hit in answer:
        assert hit.explanation.legs["vector"].score == pytest.approx(expected[hit.content], abs=1e-6)


def test_a_trace_of_several_sentences_is_replayed_the_same(open_store, ana):
    store = open_store(embedder=HashEmbedder(32))
    for text in ("rain in berlin", "the coffee invoice", "launch"):
        store.add(ana, text)
    store.index()
    asked = store.recall(ana, "rain in berlin? the coffee invoice!", trace=True)
    assert open_store().replay(ana, asked.trace_id).same
