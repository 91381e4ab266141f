"""Recall: both legs, their fusion, filters, degradation, and what must never be lost."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FAST, contents, fresh_store, said
from memstore import MemoryStore, Message, Scope, Settings
from memstore.errors import EmbedderMismatch, EmbeddingError, InvalidInput
from memstore.testing import HashEmbedder, ManualClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def degraded_legs(answer) -> list[str]:
    return [entry.leg for entry in answer.degraded]


# --- lexical recall: the cases ------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["周四", "会议", "下午", "改到", "周四下午", "会议改到周四下午"])
def test_case_1_every_word_of_an_unspaced_sentence_is_found(store, ana, word):
    store.add(ana, "会议改到周四下午")
    assert contents(store.recall(ana, word)) == ["会议改到周四下午"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("猫", "她养了一只猫"),
        ("银", "工资发到银行卡"),
        ("卡", "工资发到银行卡"),
        ("行卡", "工资发到银行卡"),
        ("一只", "她养了一只猫"),
        ("养了", "她养了一只猫"),
    ],
)
def test_case_2_one_and_two_characters_inside_longer_words(store, ana, query, found):
    store.add(ana, "她养了一只猫")
    store.add(ana, "工资发到银行卡")
    assert contents(store.recall(ana, query))[0] == found


@pytest.mark.parametrize("query", ["银", "行卡", "狗 OR 银", "银 狗 兔", "银行"])
def test_case_2_characters_inside_words_are_ranked_however_many_rows_hold_them(store, ana, query):
    for number in range(12):
        store.add(ana, f"工资发到银行卡里面{number}")
    assert len(store.recall(ana, query, 5)) == 5
    assert len(store.recall(ana, query, 50)) == 12


def test_a_beginning_of_a_word_is_found_however_many_rows_hold_it(store, ana):
    for number in range(12):
        store.add(ana, f"the databases {number}")
    for limit in (5, 12, 50):
        assert len(store.recall(ana, "databa", limit)) == min(limit, 12)


def test_case_2_a_missing_short_word_does_not_blank_the_others(store, ana):
    store.add(ana, "她养了一只猫")
    assert contents(store.recall(ana, "狗 OR 猫")) == ["她养了一只猫"]
    assert contents(store.recall(ana, "狗 猫 兔")) == ["她养了一只猫"]
    assert contents(store.recall(ana, "狗")) == []


@pytest.mark.parametrize(
    ("stored", "question"),
    [
        ("会议改到周四下午", "请问这周的会议是什么时候？"),
        ("数据库口令每季度轮换一次", "我想知道数据库的口令多久换"),
        ("The deploy key lives in the blue vault", "where did we put the deploy key again?"),
        ("Grandma's lasagna needs nutmeg", "what goes into lasagna, grandma style"),
        ("供应商的 API 限额是每分钟 600 次", "which API 限额 does that vendor have?"),
    ],
)
def test_case_3_a_whole_question_finds_the_row_that_shares_some_words(store, ana, stored, question):
    for filler in (
        "买了两张去青岛的车票",
        "The printer on floor two is out of paper",
        "阳台上的薄荷该浇水了",
    ):
        store.add(ana, filler)
    store.add(ana, stored)
    assert contents(store.recall(ana, question))[0] == stored


@pytest.mark.parametrize("query", ["nginx", "nginx 证书", "帮我看看 nginx 怎么配证书", "限流", "nginx限流"])
def test_case_4_a_further_word_never_empties_the_answer(store, ana, query):
    for filler in ("证书放在保险柜", "怎么去机场最快", "帮我看看天气"):
        store.add(ana, filler)
    store.add(ana, "nginx 限流规则每周复查")
    assert "nginx 限流规则每周复查" in contents(store.recall(ana, query, 5))


GLUED = "夜里跑完build-x7后恢复，版本v1.2.3，速度5GB/s，文件src/app.py"


@pytest.mark.parametrize(
    "query",
    [
        "x7",
        "build-x7",
        "build",
        "1.2.3",
        "v1.2.3",
        "GB/s",
        "5GB/s",
        "src/app.py",
        "app.py",
        "src",
        "恢复",
        "BUILD-X7",
    ],
)
def test_case_5_identifiers_glued_to_chinese(store, ana, query):
    store.add(ana, GLUED)
    store.add(ana, "白天一切正常")
    assert contents(store.recall(ana, query)) == [GLUED]


def test_case_7_traditional_text_is_found_in_its_own_script(store, ana):
    store.add(ana, "小貓叫豆豆")
    store.add(ana, "她在医院工作")
    assert contents(store.recall(ana, "貓")) == ["小貓叫豆豆"]
    for query in ("小猫", "醫院"):
        store.recall(ana, query)


BLANK = ["", "   ", "\n\t", "。，！？", "...", "()", "**", '"', "''", "-", "\u200b", "\x00", "——", "¿?"]


def test_case_8_blank_and_punctuation_match_nothing_by_text(store, ana):
    for text in ("one 😂 row", "second row", "第三行"):
        store.add(ana, text)
    for query in BLANK:
        answer = store.recall(ana, query)
        assert contents(answer) == [], query
        assert answer.degraded == ()


def test_case_8_an_emoji_is_a_word(store, ana):
    for text in ("one 😂 row", "second row", "family 👨‍👩‍👧 row"):
        store.add(ana, text)
    assert contents(store.recall(ana, "😂")) == ["one 😂 row"]
    assert contents(store.recall(ana, "👨‍👩‍👧")) == ["family 👨‍👩‍👧 row"]


def test_case_8_with_an_embedder_punctuation_is_left_to_the_vectors(open_store, ana):
    store = open_store(embedder=HashEmbedder())
    for text in ("one row!!", "second row", "第三行"):
        store.add(ana, text)
    store.index()
    answer = store.recall(ana, "。，！？", explain=True)
    assert len(answer) == 3
    assert answer.degraded == ()
    assert all(set(hit.explanation.legs) == {"vector"} for hit in answer)
    assert contents(store.recall(ana, "   ")) == []


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("off-site", "the off-site backup isn't encrypted"),
        ("it's", "it's raining"),
        ("core::time", "core::time drifts"),
        ("isn't", "the off-site backup isn't encrypted"),
    ],
)
def test_case_9_operators_inside_words_are_words(store, ana, query, first):
    for text in ("the off-site backup isn't encrypted", "core::time drifts", "it's raining"):
        store.add(ana, text)
    assert contents(store.recall(ana, query))[0] == first


OPERATORS = [
    "title:secret", "NEAR(", "NEAR(a b, 2)", "a AND", "OR", "NOT", '"unclosed', "x* ^y", "-hook", "words : x",
    "literal:x", "{words literal}: x", 'a" OR "b', "a + b", "(((", "x*", "^", "AND OR NOT", "; DROP TABLE messages",
    "'; --", "%", "_", "\\", "a\x00b", "user_id:ben", "rank MATCH 'bm25(0)'", "*", '""', "{", "-words:x",
]  # fmt: skip


def test_case_9_any_text_is_a_legal_query(store, ana):
    store.add(ana, "quiet evening, good tea")
    store.record(ana, said("quiet evening, good tea"), "chat")
    for query in OPERATORS:
        assert contents(store.recall(ana, query)) == [], query
        assert contents(store.search_messages(ana, query)) == [], query


def test_case_9_operators_match_as_plain_words(store, ana):
    store.add(ana, "the NOT gate")
    store.add(ana, "an AND gate")
    assert contents(store.recall(ana, "NOT")) == ["the NOT gate"]
    assert contents(store.recall(ana, "gate NOT"))[0] == "the NOT gate"
    assert len(store.recall(ana, "gate NOT")) == 2


@given(st.text(max_size=60))
@settings(max_examples=150)
def test_no_text_breaks_a_query(text):
    with shared_store() as (store, ana):
        store.recall(ana, text)
        store.search_messages(ana, text, explain=True)


_SHARED: list[tuple[MemoryStore, Scope]] = []


@pytest.fixture(scope="module", autouse=True)
def _shared_store() -> Iterator[None]:
    with fresh_store(embedder=HashEmbedder()) as store:
        ana = Scope("acme", "ana", "helper")
        for text in ("会议改到周四下午", "the off-site backup", "😂", "v1.2.3", "กินข้าว", "ひらがな"):
            store.add(ana, text)
            store.record(ana, said(text), "chat")
        store.index()
        _SHARED.append((store, ana))
        yield
        _SHARED.clear()


@contextmanager
def shared_store() -> Iterator[tuple[MemoryStore, Scope]]:
    """One store for all examples of the property tests that only read."""
    yield _SHARED[0]


def test_case_10_a_long_query_is_read_at_its_end(store, ana):
    for number in range(200):
        store.add(ana, f"第{number}条记录谈的是天气和路况")
    store.add(ana, "暗号是青石板")
    query = "今天我们聊了很多别的事情" * 4200
    assert len(query) > 50_000
    assert contents(store.recall(ana, query[:50_000] + "暗号青石板"))[0] == "暗号是青石板"
    assert contents(store.recall(ana, "暗号青石板" + query[:50_000]))[0] == "暗号是青石板"


def test_case_10_a_long_message_is_kept_whole_and_found_by_its_last_word(store, ana):
    text = "lorem ipsum dolor " * 120_000 + "zanzibar"
    store.record(ana, said(text, "short one"), "chat")
    [hit] = store.search_messages(ana, "zanzibar")
    assert hit.content == text


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (5, 5), (1000, 30), (10**9, 30)])
@pytest.mark.parametrize("embedder", [None, HashEmbedder()])
def test_case_12_limits(open_store, ana, embedder, limit, count):
    store = open_store(embedder=embedder)
    store.record(ana, said(*(f"rain {number}" for number in range(30))), "chat")
    for number in range(30):
        store.add(ana, f"rain {number}")
    store.index()
    assert len(store.recall(ana, "rain", limit)) == count
    assert len(store.search_messages(ana, "rain", limit)) == count
    assert len(store.get_all(ana, limit)) == count


@pytest.mark.parametrize("limit", [-1, -5, True, 2.5, "5", None])
def test_case_12_an_impossible_limit_is_refused_by_name(store, ana, limit):
    for verb in (store.recall, store.search_messages):
        with pytest.raises(InvalidInput, match="limit"):
            verb(ana, "rain", limit)
    with pytest.raises(InvalidInput, match="limit"):
        store.get_all(ana, limit)
    with pytest.raises(InvalidInput):
        store.recall(ana, "rain", limit=-1)


def test_case_14_more_rows_than_a_vector_engine_takes_at_once(open_store, ana):
    rows = 4_200
    store = open_store(embedder=HashEmbedder(dim=8))
    store.record(ana, said(*(f"rain {number}" for number in range(rows))), "chat")
    store.index()
    for query in ("rain", "？！"):  # both legs; the vector leg alone
        answer = store.search_messages(ana, query, 5_000)
        assert len(answer) == rows
        assert answer.degraded == ()
    few = store.search_messages(ana, "rain", 2, metadata={"absent": 1})  # the filter passes nothing of them
    assert contents(few) == []


# --- literal matches ----------------------------------------------------------------------------------------

_CHARACTERS = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
_WORDS = [
    "银行卡",
    "机器学习",
    "青石板",
    "周四下午",
    "数据库",
    "会议室",
    "供应商",
    "季度预算",
    "单元测试",
    "火车票",
]


def chinese_rows(seed: int, count: int) -> list[str]:
    drawn = random.Random(seed)  # noqa: S311 - a fixed corpus, not a secret
    rows = []
    for number in range(count):
        parts = []
        for _ in range(drawn.randint(2, 6)):
            if drawn.random() < 0.4:
                parts.append(drawn.choice(_WORDS))
            else:
                parts.append("".join(drawn.choice(_CHARACTERS) for _ in range(drawn.randint(2, 7))))
        rows.append(drawn.choice(["", "，", "。", " "]).join(parts) + f"第{number}号")
    return rows


@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_literal_substring_is_always_in_the_answer(open_store, ana, with_vectors):
    """Against plain substring search: where fewer rows than the limit hold it, all of them come back."""
    rows = chinese_rows(7, 160)
    store = open_store(embedder=HashEmbedder(dim=16) if with_vectors else None)
    for row in rows:
        store.add(ana, row)
    store.index()
    drawn = random.Random(11)  # noqa: S311
    checked = 0
    for number in range(340):
        row = drawn.choice(rows)
        length = drawn.randint(1, 2) if number % 8 == 0 else drawn.randint(2, 8)
        start = drawn.randrange(len(row) - length)
        query = row[start : start + length]
        if query != query.strip() or not any("\u4e00" <= c <= "\u9fff" for c in query):
            continue
        if not query.strip("第号0123456789").strip() or any(c.isdigit() for c in query):
            continue  # parts of numbers are found at their borders only
        holding = {other for other in rows if query in other}
        limit = 10
        answer = store.recall(ana, query, limit, explain=True)
        if len(holding) <= limit:
            checked += 1
            assert holding <= set(contents(answer)), query
            assert {hit.content for hit in answer if hit.explanation.literal} == holding, query
        else:
            assert len(answer) == limit
    assert checked >= 200


def test_a_literal_match_with_signs_is_not_crowded_out(store, ana):
    """The engine sees the words only; many newer rows share them without the signs."""
    queries = ["c++", "C#", "x-y", "-> 7", "a/b c", "f(x)", "50%"]
    for query in queries:
        store.add(ana, f"an old remark about {query}, in a sentence of some length so that it ranks low")
    for number in range(260):
        store.add(ana, f"c x y 7 a b c f x 50 no {number}")
    for query in queries:
        found = contents(store.recall(ana, query, 5))
        assert any(text.startswith(f"an old remark about {query}, in") for text in found), query


def test_a_literal_match_outlives_a_vector_leg_that_prefers_others(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=32))
    store.add(
        ana, "一段很长的话，谈了许多别的事情，最后才顺便提到密码是青石板，然后又说到别处去了，说了很久很久"
    )
    for number in range(60):
        store.add(ana, f"青石 石板 青板 {number}")
    store.index()
    answer = store.recall(ana, "青石板", 3, explain=True)
    assert any("密码是青石板" in hit.content and hit.explanation.literal for hit in answer)


def test_when_too_many_rows_hold_the_words_rank_decides(store, ana):
    for number in range(20):
        store.add(ana, f"周四开会 {number}")
    answer = store.recall(ana, "周四", 5, explain=True)
    assert len(answer) == 5
    assert not any(hit.explanation.literal for hit in answer)


def test_a_literal_match_ignores_case_width_and_blanks(store, ana):
    store.add(ana, "Order   Number ＡＢ-12 shipped")
    [hit] = store.recall(ana, "order number ab-12", explain=True)
    assert hit.explanation.literal


# --- vectors ------------------------------------------------------------------------------------------------


def test_both_legs_are_fused_by_reciprocal_rank(open_store, ana):
    store = open_store(embedder=HashEmbedder())
    for text in ("rain in april", "rain in may", "sun in june", "snow and rain"):
        store.add(ana, text)
    store.index()
    answer = store.recall(ana, "rain in may", 4, explain=True)
    assert answer[0].content == "rain in may"
    assert [hit.rank for hit in answer] == [1, 2, 3, 4]
    for hit in answer:
        terms = [leg.term for leg in hit.explanation.legs.values()]
        assert [leg.term for leg in hit.explanation.legs.values()] == [
            1 / (60 + leg.rank) for leg in hit.explanation.legs.values()
        ]
        assert hit.score == pytest.approx(sum(terms), abs=1e-15)
    assert answer[0].score == 2 / 61
    scores = [hit.score for hit in answer]
    assert scores == sorted(scores, reverse=True)


def test_settings_change_k_weights_and_depth(open_store, ana):
    settings_ = Settings(
        durability="process", timezone="UTC", rrf_k=1, leg_weights={"text": 2, "vector": 0.5}
    )
    store = open_store(embedder=HashEmbedder(), settings=settings_)
    store.add(ana, "rain in april")
    store.index()
    [hit] = store.recall(ana, "rain", explain=True)
    assert hit.score == pytest.approx(2 / 2 + 0.5 / 2)
    assert hit.explanation.legs["text"].term == 1.0
    assert hit.explanation.legs["vector"].term == 0.25


def test_a_row_without_its_vector_takes_its_text_rank(open_store, ana):
    store = open_store(embedder=HashEmbedder())
    for number in range(6):
        store.add(ana, f"rain in may, entry {number}")
    store.index()
    store.add(ana, "rain rain rain")
    answer = store.recall(ana, "rain rain rain", 5, explain=True)
    hit = next(hit for hit in answer if hit.content == "rain rain rain")
    assert hit.explanation.legs["text"].rank == 1
    assert hit.explanation.legs["vector"].rank == 1
    assert "not computed yet" in hit.explanation.legs["vector"].note
    assert answer[0] == hit
    store.index()
    again = store.recall(ana, "rain rain rain", 5, explain=True)
    assert next(h for h in again if h.content == "rain rain rain").explanation.legs["vector"].note is None


def test_before_the_first_index_run_the_answer_says_so(open_store, ana):
    store = open_store(embedder=HashEmbedder())
    store.add(ana, "rain in may")
    answer = store.recall(ana, "rain")
    assert contents(answer) == ["rain in may"]
    assert degraded_legs(answer) == ["vector"]
    assert "index()" in answer.degraded[0].reason


def test_without_an_embedder_nothing_is_degraded(store, ana):
    store.add(ana, "rain in may")
    answer = store.recall(ana, "rain", explain=True)
    assert answer.degraded == ()
    assert set(answer[0].explanation.legs) == {"text"}


class Broken:
    """An embedder whose queries go wrong; its documents are those of the hash double."""

    def __init__(self, answer) -> None:
        self._sound = HashEmbedder(dim=8)
        self.identity = self._sound.identity
        self._answer = answer

    def embed_documents(self, texts):
        return self._sound.embed_documents(texts)

    def embed_query(self, text):
        return self._answer(text)


def _raise(error: BaseException):
    def answer(_text):
        raise error

    return answer


BROKEN = {
    "exits": _raise(SystemExit(1)),
    "raises": _raise(RuntimeError("out of memory")),
    "refuses": _raise(EmbeddingError("no such model")),
    "wrong width": lambda text: np.ones(7, dtype=np.float32),
    "a matrix": lambda text: np.ones((1, 8), dtype=np.float32),
    "NaN": lambda text: np.full(8, np.nan, dtype=np.float32),
    "infinity": lambda text: np.full(8, np.inf, dtype=np.float32),
    "zeros": lambda text: np.zeros(8, dtype=np.float32),
    "None": lambda text: None,
    "words": lambda text: ["a"] * 8,
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_failing_embedder_leaves_the_text_leg_and_a_reason(open_store, ana, fault):
    store = open_store(embedder=Broken(BROKEN[fault]))
    store.add(ana, "rain in may")
    store.index()
    reasons = set()
    for _ in range(2):
        answer = store.recall(ana, "rain", explain=True)
        assert contents(answer) == ["rain in may"]
        assert degraded_legs(answer) == ["vector"]
        reasons.add(answer.degraded[0].reason)
        assert set(answer[0].explanation.legs) == {"text"}
    assert len(reasons) == 1
    assert not {"", "the embedder did not answer before the deadline"} & reasons


class Gated:
    """An embedder that answers queries only once its gate is open, and counts those it was asked."""

    def __init__(self) -> None:
        self._sound = HashEmbedder(dim=8)
        self.identity = self._sound.identity
        self.gate = threading.Event()
        self.asked = 0

    def embed_documents(self, texts):
        return self._sound.embed_documents(texts)

    def embed_query(self, text):
        self.asked += 1
        assert self.gate.wait(60)
        return self._sound.embed_query(text)


def test_a_hanging_embedder_costs_one_deadline_and_is_skipped_until_it_is_back(open_store, ana):
    embedder = Gated()
    store = open_store(embedder=embedder)
    store.add(ana, "rain in may")
    store.index()
    try:
        first = store.recall(ana, "rain", timeout_s=0.05)
        assert contents(first) == ["rain in may"]
        assert degraded_legs(first) == ["vector"]
        assert "deadline" in first.degraded[0].reason
        for _ in range(20):  # a default deadline of 5 s each, but nothing waits: the test would take 100 s
            later = store.recall(ana, "rain")
            assert contents(later) == ["rain in may"]
            assert "not come back" in later.degraded[0].reason
        assert embedder.asked == 1
    finally:
        embedder.gate.set()
    back = wait_until_answered(store, ana)
    assert back.degraded == ()


def wait_until_answered(store, scope):
    """The hanging call comes back in its own thread, some time after its gate was opened."""
    for _ in range(10_000):
        answer = store.recall(scope, "rain", timeout_s=30)
        if not answer.degraded:
            return answer
    raise AssertionError(answer.degraded)


def test_recalls_side_by_side_all_keep_their_vector_leg(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    for number in range(20):
        store.add(ana, f"rain {number}")
    store.index()
    expected = [(hit.id, hit.score) for hit in store.recall(ana, "rain 7")]
    wrong: list[object] = []
    start = threading.Barrier(6)

    def ask() -> None:
        start.wait(30)
        for _ in range(25):
            answer = store.recall(ana, "rain 7")
            if answer.degraded or [(hit.id, hit.score) for hit in answer] != expected:
                wrong.append(answer)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == []


def test_another_model_than_the_stores_is_named_and_text_still_answers(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    store.add(ana, "rain in may")
    store.index()
    store.close()
    other = open_store(embedder=HashEmbedder(dim=16, model="other"))
    answer = other.recall(ana, "rain")
    assert contents(answer) == ["rain in may"]
    assert degraded_legs(answer) == ["vector"]
    assert "reindex" in answer.degraded[0].reason
    other.reindex()
    assert other.recall(ana, "rain").degraded == ()


def test_case_17_one_vector_a_row_whatever_is_repeated(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    memory = store.add(ana, "rain in may")
    store.index()
    store.reindex()
    store.reindex()
    for text in ("rain in june", "rain in july"):
        store.update(ana, memory.id, content=text)
        store.index()
    store.record(ana, [Message("user", "hello", id="1")], "chat")
    store.index()
    store.record(ana, [Message("user", "hello", id="1")], "chat")
    store.index()
    counts = store.doctor().counts
    with store._storage.read() as reader:
        slots = reader._rows("SELECT slot FROM vectors_1_memories")
        assert len(slots) == len(set(slots)) == 3  # one for each version that answers somewhere
        assert len(reader._rows("SELECT slot FROM vectors_1_messages")) == 1
        assert reader.pending_count(1) == 0
    assert store.doctor().ok, store.doctor().findings
    assert counts


def test_an_updated_text_never_answers_with_its_old_vector(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=64))
    memory = store.add(ana, "elephants sleep standing")
    for number in range(3):
        store.add(ana, f"the train to oslo leaves at {number}")
    store.index()
    store.update(ana, memory.id, content="一句完全不同的中文")
    before = store.recall(ana, "elephants sleep standing", 10, explain=True)
    assert memory.id not in [hit.id for hit in before]
    store.index()
    after = store.recall(ana, "elephants sleep standing", 10, explain=True)
    hit = next(hit for hit in after if hit.id == memory.id)  # near by chance at most, and as what it is now
    assert hit.content == "一句完全不同的中文"
    assert set(hit.explanation.legs) == {"vector"}
    assert hit.explanation.legs["vector"].score < 0.5
    assert store.recall(ana, "一句完全不同的中文")[0].id == memory.id


def test_a_deleted_row_is_in_no_index(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    memory = store.add(ana, "rain in may")
    store.update(ana, memory.id, content="rain in june")
    kept = store.add(ana, "sun in june")
    [message_id] = store.record(ana, said("rain today"), "chat").ids
    store.index()
    waiting = store.add(ana, "rain that waits for its vector")
    for row_id in (memory.id, message_id, waiting.id):
        store.delete(ana, row_id)
    only_vectors = store.recall(ana, "rain", include_history=True)
    assert contents(only_vectors) == [kept.content]
    assert contents(store.search_messages(ana, "rain")) == []
    with store._storage.read() as reader:
        assert reader._rows("SELECT rowid FROM text_messages_1") == []
        assert len(reader._rows("SELECT rowid FROM text_memories_1")) == 1
        assert reader._rows("SELECT slot FROM vectors_1_messages") == []
        assert len(reader._rows("SELECT slot FROM vectors_1_memories")) == 1
        assert reader._rows("SELECT slot FROM pending_vectors") == []
    store.reindex()
    assert contents(store.recall(ana, "rain", include_history=True)) == [kept.content]
    assert contents(store.search_messages(ana, "rain")) == []


def test_a_row_deleted_while_it_is_embedded_gets_no_vector(open_store, ana):
    class Meanwhile(HashEmbedder):
        """Somebody deletes rows while the model is at work."""

        def embed_documents(self, texts):
            for row_id in doomed:
                store.delete(ana, row_id)
            doomed.clear()
            return super().embed_documents(texts)

    store = open_store(embedder=Meanwhile(dim=8))
    kept = store.add(ana, "rain that stays")
    doomed = [store.add(ana, "rain that goes").id, *store.record(ana, said("rain that goes"), "chat").ids]
    store.index()
    assert [hit.id for hit in store.recall(ana, "rain", 5)] == [kept.id]
    with store._storage.read() as reader:
        assert reader._rows("SELECT slot FROM vectors_1_messages") == []
        assert len(reader._rows("SELECT slot FROM vectors_1_memories")) == 1
    assert store.doctor().ok, store.doctor().findings


# --- order --------------------------------------------------------------------------------------------------


def test_the_same_call_gives_the_same_answer_fifty_times(open_store, ana):
    store = open_store(embedder=HashEmbedder(dim=8))
    for number in range(40):
        store.add(ana, f"rain {number % 4}")
    store.index()
    for query in ("rain 2", "雨", "snow", "rain"):
        first = [(hit.id, hit.score, hit.rank) for hit in store.recall(ana, query, 7)]
        for _ in range(49):
            assert [(hit.id, hit.score, hit.rank) for hit in store.recall(ana, query, 7)] == first


@pytest.mark.parametrize("with_vectors", [False, True])
def test_equal_rows_come_newest_first(open_store, ana, clock, with_vectors):
    store = open_store(embedder=HashEmbedder(dim=8) if with_vectors else None)
    ids = []
    for number in range(8):
        clock.advance(number % 3)  # some at the same instant: then the later arrival
        ids.append(store.add(ana, "rain in may").id)
    store.index()
    assert [hit.id for hit in store.recall(ana, "rain", 20)] == ids[::-1]
    assert [hit.id for hit in store.recall(ana, "rain", 3)] == ids[::-1][:3]


def test_on_equal_scores_the_better_text_rank_wins(open_store, ana):
    """Two rows that swap places between the legs fuse to the same score."""

    class Swapped(HashEmbedder):
        def embed_documents(self, texts):
            return np.array([[1.0, 0.0] if "far" in text else [0.6, 0.8] for text in texts], dtype=np.float32)

        def embed_query(self, text):
            return np.array([1.0, 0.0], dtype=np.float32)

    store = open_store(embedder=Swapped(dim=2))
    store.add(ana, "rain rain rain")
    store.add(ana, "a far longer text in which rain comes up once")
    store.index()
    answer = store.recall(ana, "rain", explain=True)
    ranks = [{leg: report.rank for leg, report in hit.explanation.legs.items()} for hit in answer]
    assert ranks == [{"text": 1, "vector": 2}, {"text": 2, "vector": 1}]
    assert answer[0].score == answer[1].score


# --- filters ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["text", "both"])
def hybrid(request, open_store) -> MemoryStore:
    """Filters hold in each leg."""
    return open_store(embedder=HashEmbedder(dim=8) if request.param == "both" else None)


def test_kinds(hybrid, ana):
    hybrid.add(ana, "rain: likes it", kind="persona")
    hybrid.add(ana, "rain: met it", kind="episodic")
    hybrid.add(ana, "rain: mind it", kind="instruction")
    hybrid.index()
    assert set(contents(hybrid.recall(ana, "rain", kinds=["persona"]))) == {"rain: likes it"}
    assert set(contents(hybrid.recall(ana, "rain", kinds=["persona", "instruction", "persona"]))) == {
        "rain: likes it",
        "rain: mind it",
    }
    assert set(contents(hybrid.recall(ana, "rain", kinds="episodic"))) == {"rain: met it"}
    assert contents(hybrid.recall(ana, "rain", kinds=[])) == []
    for wrong in (["persona", "memo"], 5, [None], "memo"):
        with pytest.raises(InvalidInput, match="kind"):
            hybrid.recall(ana, "rain", kinds=wrong)


def test_since_and_until_are_when_it_was_recorded_half_open(hybrid, ana, clock):
    clock.set(NOON)
    for hour in range(3):
        hybrid.add(ana, f"rain {hour}")
        clock.advance(3600)
    hybrid.index()
    after = [NOON + timedelta(hours=h) for h in range(4)]
    assert set(contents(hybrid.recall(ana, "rain", since=after[1]))) == {"rain 1", "rain 2"}
    assert set(contents(hybrid.recall(ana, "rain", until=after[1]))) == {"rain 0"}
    assert set(contents(hybrid.recall(ana, "rain", since=after[1], until=after[2]))) == {"rain 1"}
    assert contents(hybrid.recall(ana, "rain", since=after[3])) == []
    assert contents(hybrid.recall(ana, "rain", since=after[2], until=after[1])) == []
    for same in (
        "2026-03-01T13:00:00Z",
        "2026-03-01T21:00:00+08:00",
        "2026-03-01T13:00:00",
        after[1].timestamp(),
    ):
        assert set(contents(hybrid.recall(ana, "rain", since=same))) == {"rain 1", "rain 2"}, same
    with pytest.raises(InvalidInput):
        hybrid.recall(ana, "rain", since="yesterday")


def test_messages_since_and_until_are_when_it_was_said(hybrid, ana):
    hybrid.record(
        ana,
        [Message("user", f"rain {hour}", created_at=NOON + timedelta(hours=hour)) for hour in range(3)],
        "chat",
    )
    hybrid.index()
    found = hybrid.search_messages(
        ana, "rain", since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=2)
    )
    assert contents(found) == ["rain 1"]


def test_as_of_asks_what_was_true_then(hybrid, ana, clock):
    clock.set(NOON)
    memory = hybrid.add(ana, "lives in Chengdu, rain", valid_from="2020-01-01")
    clock.advance(86_400)
    hybrid.update(ana, memory.id, content="lives in Hangzhou, rain")
    hybrid.add(ana, "rented a flat, rain", valid_from="2021-01-01", valid_to="2022-01-01")
    hybrid.index()
    ask = lambda when: set(contents(hybrid.recall(ana, "rain", as_of=when)))
    assert ask("2019-12-31") == set()
    assert ask("2020-01-01") == {"lives in Chengdu, rain"}
    assert ask("2021-01-01") == {"lives in Chengdu, rain", "rented a flat, rain"}
    assert ask("2021-12-31T23:59:59") == {"lives in Chengdu, rain", "rented a flat, rain"}
    assert ask("2022-01-01") == {"lives in Chengdu, rain"}
    assert ask(NOON + timedelta(days=1, seconds=-1)) == {"lives in Chengdu, rain"}
    assert ask(NOON + timedelta(days=1)) == {"lives in Hangzhou, rain"}
    assert set(contents(hybrid.recall(ana, "rain"))) == {"lives in Hangzhou, rain"}


def test_what_ended_or_expired_is_not_current(hybrid, ana, clock):
    clock.set(NOON)
    hybrid.add(ana, "rain until two", valid_to=NOON + timedelta(hours=2))
    hybrid.add(ana, "rain expires at three", expires_at=NOON + timedelta(hours=3))
    hybrid.add(ana, "rain for ever")
    hybrid.index()
    ask = lambda **options: {
        text.removeprefix("rain ") for text in contents(hybrid.recall(ana, "rain", **options))
    }
    assert ask() == {"until two", "expires at three", "for ever"}
    clock.advance(2 * 3600)
    assert ask() == {"expires at three", "for ever"}
    clock.advance(3600)
    assert ask() == {"for ever"}
    assert ask(include_history=True) == {"until two", "expires at three", "for ever"}
    assert ask(as_of=NOON) == {"until two", "expires at three", "for ever"}


def test_include_history_returns_superseded_versions_as_such(hybrid, ana):
    memory = hybrid.add(ana, "rain in may")
    hybrid.update(ana, memory.id, content="rain in june")
    hybrid.index()
    assert set(contents(hybrid.recall(ana, "rain"))) == {"rain in june"}
    both = hybrid.recall(ana, "rain", include_history=True)
    assert {(hit.content, hit.state, hit.version) for hit in both} == {
        ("rain in may", "superseded", 1),
        ("rain in june", "live", 2),
    }
    assert {hit.id for hit in both} == {memory.id}


def test_session(hybrid, ana):
    hybrid.add(ana, "rain one", session="one")
    hybrid.add(ana, "rain two", session="helper:wecom:two")
    hybrid.add(ana, "rain none")
    hybrid.record(ana, said("rain one"), "one")
    hybrid.record(ana, said("rain two"), "helper:wecom:two")
    hybrid.index()
    assert set(contents(hybrid.recall(ana, "rain", session="one"))) == {"rain one"}
    assert set(contents(hybrid.recall(ana, "rain", session="helper:default:one"))) == {"rain one"}
    assert set(contents(hybrid.search_messages(ana, "rain", session="helper:wecom:two"))) == {"rain two"}
    assert contents(hybrid.search_messages(ana, "rain", session="three")) == []


def test_roles_and_the_live_window_of_messages(hybrid, ana):
    hybrid.record(ana, [Message("user", "rain asked"), Message("assistant", "rain answered")], "chat")
    hybrid.clear_session(ana, "chat")
    hybrid.record(ana, [Message("tool", "rain measured", tool_call_id="1")], "chat")
    hybrid.index()
    assert len(hybrid.search_messages(ana, "rain")) == 3
    assert set(contents(hybrid.search_messages(ana, "rain", roles=["assistant", "tool"]))) == {
        "rain answered",
        "rain measured",
    }
    assert contents(hybrid.search_messages(ana, "rain", live_only=True)) == ["rain measured"]
    with pytest.raises(InvalidInput, match="role"):
        hybrid.search_messages(ana, "rain", roles=["robot"])


METADATA_VALUES = [
    1, 1.5, -7, 0, True, False, None, "x", "", "1", [1, 2], [], {"k": 1}, {}, {"b": 1, "a": [None]},
]  # fmt: skip


def equal_json(left: object, right: object) -> bool:
    """JSON equality: true is not 1, but 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return type(left) is type(right) and left == right


@pytest.mark.parametrize("layer", ["memories", "messages"])
def test_metadata_is_compared_as_json(hybrid, ana, layer):
    for number, value in enumerate(METADATA_VALUES):
        if layer == "memories":
            hybrid.add(ana, f"rain {number}", metadata={"key": value, "n": number})
        else:
            hybrid.record(ana, [Message("user", f"rain {number}", meta={"key": value, "n": number})], "chat")
    hybrid.index()
    ask = hybrid.recall if layer == "memories" else hybrid.search_messages
    for value in METADATA_VALUES:
        expected = {f"rain {n}" for n, other in enumerate(METADATA_VALUES) if equal_json(value, other)}
        assert set(contents(ask(ana, "rain", 50, metadata={"key": value}))) == expected, value
    assert set(contents(ask(ana, "rain", metadata={"key": 1.0}))) == {"rain 0"}
    assert set(contents(ask(ana, "rain", metadata={"key": (1, 2)}))) == {"rain 10"}
    assert set(contents(ask(ana, "rain", metadata={"key": {"a": [None], "b": 1}}))) == {"rain 14"}
    assert set(contents(ask(ana, "rain", metadata={"key": "x", "n": 7}))) == {"rain 7"}
    assert contents(ask(ana, "rain", metadata={"key": "x", "n": 8})) == []
    assert contents(ask(ana, "rain", metadata={"absent": None})) == []
    assert len(ask(ana, "rain", 50, metadata={})) == len(METADATA_VALUES)


@pytest.mark.parametrize(
    "metadata",
    [{"k": float("nan")}, {"k": float("inf")}, {"k": 10**400}, {"k": {1, 2}}, {"k": b"x"}, {"k": [{1}]}, {1: 2},
     {"k": "\ud800"}, {"\ud800": 1}, {"k": ["\udfff"]}, [("k", 1)], "k", {f"k{n}": 1 for n in range(2000)}],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_a_metadata_filter_that_cannot_be_compared_is_refused(store, ana, metadata):
    store.add(ana, "rain", metadata={"k": 1})
    for ask in (
        lambda: store.recall(ana, "rain", metadata=metadata),
        lambda: store.get_all(ana, metadata=metadata),
    ):
        with pytest.raises(InvalidInput, match=r"metadata|value"):
            ask()


def test_filters_apply_before_the_cut(hybrid, ana):
    """300 better rows that the filter drops leave the others in their place."""
    for number in range(300):
        hybrid.record(ana, [Message("assistant", f"rain rain rain {number}")], "chat")
    for number in range(4):
        hybrid.record(ana, [Message("user", f"much later some rain came after all, number {number}")], "chat")
    hybrid.index()
    assert len(hybrid.search_messages(ana, "rain", 4, roles=["user"])) == 4


def test_a_query_that_is_no_text_and_odd_deadlines_are_refused(store, ana):
    for query in (None, 5, b"rain", ["rain"]):
        with pytest.raises(InvalidInput, match="query"):
            store.recall(ana, query)
    for seconds in (0, -1, float("nan"), float("inf"), 1e300, True, "5", None):
        with pytest.raises(InvalidInput, match="timeout_s"):
            store.recall(ana, "rain", timeout_s=seconds)


def test_a_long_deadline_waits_for_the_embedder(open_store, ana):
    embedder = Gated()
    store = open_store(embedder=embedder)
    store.add(ana, "rain in may")
    store.index()
    opener = threading.Timer(0.05, embedder.gate.set)
    opener.start()
    try:
        answer = store.recall(ana, "rain", timeout_s=86_400)
    finally:
        opener.join()
    assert answer.degraded == ()


# --- the deadline -------------------------------------------------------------------------------------------


class LateAt:
    """A statement hook that lets the time of a recall run out when a certain statement begins."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.armed: str | None = None

    def __call__(self, statement: str) -> None:
        if self.armed is not None and self.armed in statement:
            self.armed = None
            self.clock.advance(100)


CUT_SHORT = [
    ("rank MATCH", ["text", "vector"], False),
    ("rowid DESC LIMIT", ["text", "vector"], True),  # the literal check: what was ranked before it stands
    ("vec_distance_cosine", ["vector"], True),
]


def test_what_is_not_ready_by_the_deadline_is_left_out_with_its_reason(open_store, ana, clock):
    hook = LateAt(clock)
    store = open_store(embedder=HashEmbedder(dim=8), statement_hook=hook)
    store.record(ana, said(*(f"rain and much else, {number}" for number in range(2000))), "chat")
    store.index()
    ask = lambda: store.search_messages(ana, "rain +", 5)  # the sign makes the literal check read on
    whole = ask()
    assert len(whole) == 5
    assert whole.degraded == ()
    for statement, missing, answered in CUT_SHORT:
        hook.armed = statement
        cut = ask()
        assert degraded_legs(cut) == missing, statement
        assert all("deadline" in entry.reason for entry in cut.degraded)
        assert bool(cut) == answered
        assert contents(ask()) == contents(whole)
        assert ask().degraded == ()


def test_the_time_taken_is_the_clocks(open_store, ana, clock):
    hook = LateAt(clock)
    store = open_store(statement_hook=hook)
    store.add(ana, "rain")
    hook.armed = "rank MATCH"
    assert store.recall(ana, "rain", timeout_s=1000).took_ms == 100_000


# --- explain ------------------------------------------------------------------------------------------------


def test_explain_names_legs_tokens_rule_and_literal(open_store, ana):
    store = open_store(embedder=HashEmbedder())
    store.add(ana, "数据库口令每季度轮换")
    store.add(ana, "rotating tires", visibility="team")
    store.index()
    answer = store.recall(ana, "数据库 口令", explain=True)
    best = answer[0].explanation
    assert set(best.tokens) >= {"数据库", "口令"}
    assert best.visible_by == "the asker owns it"
    assert not best.literal  # the blank is not in the row
    assert best.legs["text"].rank == 1
    assert best.legs["text"].score > 0
    assert -1 <= best.legs["vector"].score <= 1
    member = Scope("acme", "ben", "helper")
    [hit] = store.recall(member, "rotate", explain=True)
    assert hit.explanation.visible_by == "shared with the team"
    assert store.recall(ana, "数据库")[0].explanation is None


def test_a_hit_says_where_it_comes_from(store, ana):
    made = store.add(ana, "rain", kind="instruction", priority=70, metadata={"a": 1}, session="chat")
    [hit] = store.recall(ana, "rain")
    assert (hit.id, hit.kind, hit.priority, hit.metadata) == (made.id, "instruction", 70, {"a": 1})
    assert (hit.layer, hit.session, hit.user_id, hit.agent_id) == (
        "memories",
        "helper:default:chat",
        "ana",
        "helper",
    )
    store.record(ana, [Message("user", "snow", name="Ben", meta={"b": 2})], "chat")
    [hit] = store.search_messages(ana, "snow")
    assert (hit.layer, hit.role, hit.name, hit.position, hit.metadata) == (
        "messages",
        "user",
        "Ben",
        1,
        {"b": 2},
    )


def test_an_answer_reads_like_a_sequence(store, ana):
    store.add(ana, "rain")
    answer = store.recall(ana, "rain")
    assert answer
    assert len(answer) == 1
    assert list(answer) == list(answer.hits)
    assert answer[0] is answer.hits[0]
    assert not store.recall(ana, "snow")
    assert store.search(ana, "rain").hits == answer.hits


def test_text_search_follows_stems_and_widths(store, ana):
    store.add(ana, "The crews were running the ＡＢＣ tests")
    for query in ("run", "runs", "crew", "abc test", "ＲＵＮ"):
        assert len(store.recall(ana, query)) == 1, query


def test_case_11_the_better_match_comes_first(store, ana):
    """BM25 is smaller for better matches in SQLite; an answer is not upside down."""
    store.add(ana, "a long text about many things of which only one is an apricot, and the others are not")
    store.add(ana, "apricot jam recipe")
    store.add(ana, "apricot")
    store.add(ana, "jam recipe")
    answer = store.recall(ana, "apricot jam recipe", 4)
    assert contents(answer)[0] == "apricot jam recipe"
    assert contents(answer)[-1].startswith("a long text")
    assert contents(store.recall(ana, "apricot", 4))[0] == "apricot"


def test_rare_words_weigh_more_than_common_ones(store, ana):
    for number in range(30):
        store.add(ana, f"weekly report {number}")
    store.add(ana, "report on turbines")
    assert contents(store.recall(ana, "weekly turbines", 3))[0] == "report on turbines"


def test_a_store_of_the_same_file_answers_the_same(open_store, ana):
    one = open_store(embedder=HashEmbedder(dim=8))
    for number in range(30):
        one.add(ana, f"rain {number % 5}")
    one.index()
    two = open_store(embedder=HashEmbedder(dim=8), settings=FAST)
    assert [(h.id, h.score) for h in one.recall(ana, "rain 3", 9)] == [
        (h.id, h.score) for h in two.recall(ana, "rain 3", 9)
    ]


class Wordless(HashEmbedder):
    """Cannot embed documents."""

    def embed_documents(self, texts):
        raise RuntimeError("out of memory")


def test_a_model_that_cannot_embed_leaves_no_generation_behind(tmp_path, ana):
    with MemoryStore(tmp_path / "m.db", Wordless(), settings=FAST) as store:
        store.add(ana, "rain tomorrow")
        with pytest.raises(EmbeddingError, match="out of memory"):
            store.index()
        answer = store.recall(ana, "rain")
    assert contents(answer) == ["rain tomorrow"]
    assert [(part.leg, "no vectors yet" in part.reason) for part in answer.degraded] == [("vector", True)]
    with MemoryStore(tmp_path / "m.db", HashEmbedder(8), settings=FAST) as store:  # another model may begin
        assert store.index().embedded == 1


class Listening(HashEmbedder):
    """Keeps the queries it is asked to embed."""

    def __init__(self):
        super().__init__()
        self.queries = []

    def embed_query(self, text):
        self.queries.append(text)
        return super().embed_query(text)


def test_case_10_a_model_is_never_handed_a_book(tmp_path, ana):
    embedder = Listening()
    with MemoryStore(tmp_path / "m.db", embedder, settings=FAST) as store:
        store.add(ana, "暗号是青石板")
        store.index()
        assert contents(store.recall(ana, "今天天气不错。" * 7_000 + "暗号青石板")) == ["暗号是青石板"]
        store.recall(ana, " \n ")
        sentences = store.settings.sentences
    assert all(len(query) < 2_100 for query in embedder.queries)
    assert len(embedder.queries) <= 1 + sentences, "the blank query is handed to no model"
    assert embedder.queries[0].endswith("暗号青石板")


def test_a_model_that_comes_second_never_adds_to_the_others_space(tmp_path, ana):
    class Overtaken(HashEmbedder):
        """While it embeds its first batch, another process indexes the store with another model."""

        def embed_documents(self, texts):
            if not self.document_calls:
                with MemoryStore(tmp_path / "m.db", HashEmbedder(64, model="first"), settings=FAST) as other:
                    other.index()
                    other.add(ana, "added meanwhile")
            return super().embed_documents(texts)

    with MemoryStore(tmp_path / "m.db", Overtaken(64, model="second"), settings=FAST) as store:
        store.add(ana, "rain tomorrow")
        with pytest.raises(EmbedderMismatch, match=r"first.*second"):
            store.index()
        assert (store.doctor().counts["vectors"], store.doctor().counts["pending_vectors"]) == (1, 1)
