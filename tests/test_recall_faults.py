"""Faults that a hostile reading of recall found, kept as their right values."""

import pytest

from conftest import contents
from memstore import ConfigError, EmbeddingError, InvalidInput, MemoryStore, Message, Scope, Settings
from memstore.testing import HashEmbedder
from memstore.wording import reason_text

ANA = Scope("acme", "ana", "helper")
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08efcafe9f86d081"


@pytest.mark.parametrize(
    "piece", ["efcafe", "cafe9f", "9f86d0", "081后", "交9f86"[1:], HASH[:8], HASH[-8:], HASH]
)
def test_any_part_of_a_long_key_glued_to_chinese_is_found(store, piece):
    store.add(ANA, f"提交{HASH}后")
    for number in range(20):
        store.add(ANA, f"普通消息{number}后")
    assert store.recall(ANA, piece)[0].content == f"提交{HASH}后"


def test_rows_that_differ_in_punctuation_do_not_hide_the_literal_one(store):
    """5,100 newer rows hold the same letters and digits: the literal one is looked for among all of them."""
    store.record(ANA, [Message("user", "比分7-8了")], "old")
    for start in range(0, 5_100, 1_020):
        store.record(
            ANA, [Message("user", f"比分7:8了{number}") for number in range(start, start + 1_020)], "new"
        )
    assert store.search_messages(ANA, "7-8", limit=3)[0].content == "比分7-8了"


def test_why_not_speaks_of_the_sentences_that_were_asked_and_of_the_floor(store):
    row = store.add(ANA, "beta and gamma and delta")
    for number in range(5):
        store.add(ANA, f"filler {number}")
    store.set_floors({"text": 8.0})
    why = store.why_not(ANA, row.id, "Is it beta theta? Is it gamma eta? Is it delta zeta?", limit=3)
    assert why.reasons[0].code == "below the floor"


def test_why_not_says_that_others_were_lifted_past_a_row(store):
    """Alone the row stands first; the turns beside the others lift those above it."""
    said = []
    for number in range(20):
        said += [
            Message("user", "the budget plan report of today", created_at=1_000_000 + 100 * number),
            Message("assistant", "a budget plan report as well", created_at=1_000_010 + 100 * number),
        ]
    store.record(ANA, said, "talk")
    alone = store.record(ANA, [Message("user", "budget plan report", created_at=1)], "alone").ids[0]
    why = store.why_not(ANA, alone, "report on the plan, budget", limit=2)
    assert [(reason.code, reason.values.get("rank")) for reason in why.reasons] == [
        ("passed by others", 1),
        ("no vector leg", None),
    ]


def test_words_are_shown_as_people_write_them(store):
    row = store.add(ANA, "rain")
    [reason] = store.why_not(ANA, row.id, "8 May 2023 😀").reasons[:1]
    assert reason.code == "no word in common"
    for language, expected in (
        ("en", "8, 2023, 😀, 2023, 05, 05-08"),
        ("zh", "8、2023、😀、2023、05、05-08"),
    ):
        assert expected in reason_text(reason, language)


def test_recovery_keeps_whether_variants_are_folded(tmp_path):
    path = tmp_path / "memory.db"
    settings = Settings(durability="process", timezone="UTC", fold_variants=True)
    with MemoryStore(path, settings=settings) as store:
        store.record(ANA, [Message("user", "臺灣電腦")], "s")
    for file in path.parent.glob("memory.db*"):
        if file.is_file():
            file.unlink()
    MemoryStore.recover(path)
    with MemoryStore(path, settings=settings) as store:
        assert contents(store.search_messages(ANA, "台湾")) == ["臺灣電腦"]
        assert store.doctor().ok


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop_words": "no"}, {"stop_words": None}, {"fold_variants": 1}, {"fold_variants": 0}, {"rrf_k": 10**400},
        {"full_coverage": 10**400}, {"neighbour_gap_s": 10**400}, {"leg_weights": {"text": 10**400}}, {"sentences": -1},
        {"recency_half_life_s": 10**400}, {"priority_weight": 10**5_000}, {"floors": {"text": 10**400}},
        {"busy_timeout_s": 1e300}, {"busy_timeout_s": 10**400}, {"pool_factor": True}, {"neighbour_weights": {"text": 1}},
        {"neighbour_weights": {"text": (1, -1)}}, {"collapse_similarity": 1.1}, {"floors": []}, {"floors": {"words": 1}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Settings(**wrong)


@pytest.mark.parametrize(
    "wrong", [[], "text", {"text": 10**400}, {"text": float("nan")}, {"words": 1}, {"text": True}]
)
def test_wrong_floors_are_refused(store, wrong):
    store.set_floors({"text": 1.0})
    with pytest.raises(InvalidInput):
        store.set_floors(wrong)
    assert store.floors() == {"text": 1.0}
    store.set_floors(None)
    assert store.floors() == {}


class Nameless:
    """Cannot say what it is."""

    @property
    def identity(self):
        raise RuntimeError("boom")

    def embed_documents(self, texts):
        return HashEmbedder(8).embed_documents(texts)

    def embed_query(self, text):
        return HashEmbedder(8).embed_query(text)


def test_a_model_that_cannot_say_what_it_is_fails_as_a_model(open_store):
    store = open_store(embedder=Nameless())
    store.add(ANA, "rain")
    for verb in (store.index, store.reindex):
        with pytest.raises(EmbeddingError, match="cannot say what it is: RuntimeError: boom"):
            verb()
    assert contents(store.recall(ANA, "rain")) == ["rain"]
