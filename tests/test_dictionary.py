"""Dictionaries of teams: what they keep whole, whose they are, and tokens that always fit them."""

# ruff: noqa: S311 - seeded chance

import os
import random

import pytest

from cli_support import Cli
from memstore import InvalidInput, MemoryStore, NotFound, NotPermitted, Scope, Settings
from memstore.dictionary import FEW_ROWS
from memstore.storage.base import Segmentation
from memstore.text import JiebaCutter, default_frequency, dictionary_digest, general_jieba
from memstore.tokenizers import Tokenizers
from reliability_support import in_fork, open_store, say

ANA = Scope("acme", "ana", "helper")
BEN = Scope("acme", "ben", "helper")
SESSION = "helper:chat:one"
NAMES = ("知识图谱", "云岫科技", "青岚计划", "量子退火机", "深海探勘")


@pytest.fixture
def store(tmp_path):
    with MemoryStore(tmp_path / "store.db", settings=Settings(durability="process", timezone="UTC")) as made:
        say(made, "我们用知识图谱做推荐", "天气很好", session=SESSION, scope=ANA)
        made.add(ANA, "云岫科技是客户")
        yield made


def held(store: MemoryStore, layer: str = "messages") -> list[str]:
    with store._storage.exclusive_connection() as connection:
        return [
            w for (w,) in connection.execute(f"SELECT words FROM text_{layer}_1 ORDER BY rowid").fetchall()
        ]


def assert_fits(store: MemoryStore) -> None:
    assert [f for f in store.doctor(full=True).findings if f.severity != "info"] == []


# --- segmentation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", NAMES)
def test_a_word_is_kept_whole_and_gives_its_parts(word):
    cutter = JiebaCutter({word: default_frequency(word)})
    tokens = list(cutter.cut(word))
    assert word in tokens
    assert set(general_jieba().cut_for_search(word)) <= set(tokens)


def test_an_own_word_inside_a_longer_one_is_given_too():
    assert "华人民共" in list(JiebaCutter({"华人民共": 3}).cut("中华人民共和国"))


def test_a_text_without_the_words_is_cut_as_before():
    """N: 3,000 random runs of words and characters of the general dictionary."""
    rng = random.Random(1)
    known = sorted(word for word, n in general_jieba().FREQ.items() if n and len(word) > 1)
    cutter = JiebaCutter(dict.fromkeys(NAMES, 100000000))
    for _ in range(3_000):
        run = "".join(rng.choice(known) for _ in range(rng.randint(1, 6))) + chr(rng.randint(0x4E00, 0x9FA5))
        if not any(word in run for word in NAMES):
            assert list(cutter.cut(run)) == list(general_jieba().cut_for_search(run)), run


def test_dictionaries_do_not_touch_each_other():
    one, plain = JiebaCutter({"知识图谱": 10_000}), JiebaCutter()
    before = list(plain.cut("知识图谱"))
    assert "知识图谱" in list(one.cut("知识图谱"))
    assert list(plain.cut("知识图谱")) == before
    assert general_jieba().FREQ.get("知识图谱", 0) == 0


def test_the_default_frequency_does_not_depend_on_other_words(tmp_path):
    found = []
    for number, order in enumerate((NAMES, NAMES[::-1])):
        with open_store(tmp_path / f"{number}.db") as store:
            for word in order:
                store.add_words(ANA, [word])
            found.append([(w.word, w.frequency) for w in store.words(ANA)])
    assert found[0] == found[1]


def test_the_digest_is_of_the_words_alone():
    assert dictionary_digest({}) == ""
    assert dictionary_digest({"甲乙": 1, "丙丁": 2}) == dictionary_digest({"丙丁": 2, "甲乙": 1})
    assert dictionary_digest({"甲乙": 1}) != dictionary_digest({"甲乙": 2})


# --- the verbs ----------------------------------------------------------------------------------------------


def test_adding_segments_the_rows_that_hold_the_word_anew(store):
    before = held(store)
    report = store.add_words(ANA, ["知识图谱", "云岫科技"])
    assert (report.changed, report.rows, report.words) == (("云岫科技", "知识图谱"), 2, 2)
    assert "知识图谱" in held(store)[0].split()
    assert "云岫科技" in held(store, "memories")[0].split()
    assert held(store)[1] == before[1]
    assert_fits(store)
    explained = store.search_messages(ANA, "知识图谱", explain=True)[0]
    assert "知识图谱" in explained.explanation.tokens
    say(store, "知识图谱又来了", session=SESSION, scope=BEN)
    store.add(BEN, "知识图谱")
    assert_fits(store)


def test_removing_brings_back_what_was(store):
    before = held(store), held(store, "memories")
    store.add_words(ANA, NAMES)
    assert store.remove_words(ANA, list(NAMES)).rows == 2
    assert (held(store), held(store, "memories")) == before
    assert store.words(ANA) == []
    assert_fits(store)


def test_adding_twice_changes_nothing(store):
    store.add_words(ANA, {"知识图谱": 50})
    listed = store.words(ANA)
    report = store.add_words(ANA, {"知识图谱": 50})
    assert (report.changed, report.rows) == ((), 0)
    assert store.words(ANA) == listed
    assert [(w.word, w.frequency, w.added_by) for w in listed] == [("知识图谱", 50, "ana")]


def test_only_an_admin_changes_and_only_members_see(store):
    say(store, "hello", session=SESSION, scope=BEN)
    store.add_words(ANA, ["知识图谱"])
    for attempt in (
        lambda: store.add_words(BEN, ["云岫科技"]),
        lambda: store.remove_words(BEN, ["知识图谱"]),
    ):
        with pytest.raises(NotPermitted, match="no admin"):
            attempt()
    assert [w.word for w in store.words(BEN)] == ["知识图谱"]
    with pytest.raises(NotPermitted):
        store.words(Scope("unknown", "ana"))
    assert_fits(store)


def test_a_team_has_its_own(store):
    other = Scope("other", "ana", "helper")
    say(store, "知识图谱", session=SESSION, scope=other)
    store.add_words(ANA, ["知识图谱"])
    assert store.words(other) == []
    assert_fits(store)


@pytest.mark.parametrize(("words", "said"), [
    (["K8s集群"], "add the Chinese part"), (["docker"], "no effect"), (["知 识"], "no effect"), (["の本"], "no effect"),
    (["知"], "2 to 32"), (["知" * 33], "2 to 32"), ([""], "2 to 32"), ([], "not empty"), ("知识图谱", "list"), ([5], "not int"),
    ({"知识图谱": 0}, "whole number"), ({"知识图谱": True}, "whole number"), ({"知识图谱": "5"}, "whole number"),
])  # fmt: skip
def test_what_would_have_no_effect_is_refused(store, words, said):
    with pytest.raises(InvalidInput, match=said):
        store.add_words(ANA, words)
    assert store.words(ANA) == []


def test_removing_an_unknown_word_removes_none(store):
    store.add_words(ANA, ["知识图谱"])
    with pytest.raises(NotFound, match="云岫科技"):
        store.remove_words(ANA, ["知识图谱", "云岫科技"])
    assert len(store.words(ANA)) == 1


# --- others at the same time --------------------------------------------------------------------------------


def test_another_store_on_the_file_writes_and_asks_by_the_new_words_at_once(tmp_path, store):
    with open_store(store.path) as other:
        say(other, "青岚计划一期", session=SESSION, scope=BEN)
        store.add_words(ANA, ["青岚计划"])
        say(other, "青岚计划二期", session=SESSION, scope=BEN)
        other.add(BEN, "青岚计划三期")
        assert "青岚计划" in other.search_messages(BEN, "青岚计划", explain=True)[0].explanation.tokens
        assert_fits(other)
        store.remove_words(ANA, ["青岚计划"])
        say(other, "青岚计划四期", session=SESSION, scope=BEN)
        assert_fits(store)


def test_words_that_change_between_cutting_and_the_transaction(store):
    """What was cut by the old dictionary is cut again inside the transaction."""
    recorder = store._recorder
    cut = recorder._cut

    def cut_and_change(*args, **kwargs):
        tokens = cut(*args, **kwargs)
        with open_store(store.path) as other:
            other.add_words(ANA, ["深海探勘"])
        return tokens

    recorder._cut = cut_and_change
    say(store, "深海探勘开始了", session=SESSION, scope=ANA)
    assert "深海探勘" in held(store)[-1].split()
    assert_fits(store)


def test_many_rows_are_built_beforehand_and_a_kill_changes_nothing(tmp_path):
    """N: an index of over 500 rows with the word, killed before every ninth statement."""
    path = tmp_path / "store.db"
    with open_store(path, durability="process") as store:
        say(store, *(f"量子退火机第{n}号" for n in range(FEW_ROWS + 20)), session=SESSION, scope=ANA)
        before = held(store)
    number, ended = 0, 9
    while ended == 9:

        def work(at: int = number) -> None:
            left, counting = [at], [0]

            def stop(_statement: str) -> None:
                if counting[0] and left[0] == 0:
                    os._exit(9)
                left[0] -= counting[0]

            settings = Settings(durability="process")  # as the disk is not what fails here
            with MemoryStore(path, settings=settings, statement_hook=stop) as store:
                counting[0] = 1
                store.add_words(ANA, ["量子退火机"])

        ended = in_fork(work)
        number += 9
        with open_store(path) as store:
            if ended == 9:
                assert store.words(ANA) == []
                assert held(store) == before
                assert [f for f in store.doctor().findings if f.severity == "error"] == []
    assert ended == 0
    with open_store(path) as store:
        assert all("量子退火机" in words.split() for words in held(store))
        assert_fits(store)


def test_words_are_folded_where_the_store_folds(tmp_path):
    settings = Settings(timezone="UTC", fold_variants=True)
    with MemoryStore(tmp_path / "store.db", settings=settings) as store:
        say(store, "我們用雲岫科技的產品", session=SESSION, scope=ANA)
        store.add_words(ANA, ["雲岫科技"])
        assert "云岫科技" in held(store)[0].split()
        assert_fits(store)
        store.reindex(fold_variants=False)
        assert "雲岫科技" in held(store)[0].split()
        assert_fits(store)


def test_a_process_keeps_a_few_tokenizers_only():
    from memstore import tokenizers as module

    made = Tokenizers()
    for number in range(module.KEPT + 3):
        words = {"知识图谱": number + 1}
        made.made_of(Segmentation(dictionary_digest(words)), words)
    assert len(module._kept) == module.KEPT


# --- on the command line ------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path):
    made = Cli(tmp_path / "memory.db")
    made.answer("record", "我们用知识图谱做推荐", "--session", "chat")
    return made


def test_the_commands(cli):
    assert cli.answer("dict", "add", "知识图谱", "青岚计划") == {
        "changed": ["知识图谱", "青岚计划"],
        "rows": 1,
        "words": 2,
    }
    assert cli.answer("dict", "add", "云岫科技", "--frequency", "70")["words"] == 3
    listed = cli.answer("dict", "list")["words"]
    assert {(w["word"], w["added_by"]) for w in listed} == {
        (w, "lin") for w in ("知识图谱", "青岚计划", "云岫科技")
    }
    assert "70" in cli.shown("dict", "list")
    assert cli.answer("dict", "remove", "青岚计划")["words"] == 2
    assert cli.answer("doctor", "--full")["ok"]
    assert cli("dict", "remove", "青岚计划").exit_code == 1
    wrong = cli("dict", "add", "docker")
    assert (wrong.exit_code, "no effect" in wrong.stderr) == (2, True)
    assert cli("dict", "add").exit_code == 2
    for command in ("add", "list", "remove"):
        assert "Example" in cli("dict", command, "--help").stdout


def test_folding_on_the_command_line(tmp_path):
    cli = Cli(tmp_path / "memory.db")
    assert cli.answer("init", "--fold-variants")["fold_variants"] is True
    cli.answer("record", "圖書館", "--session", "chat")
    assert len(cli.answer("search-messages", "图书馆")["hits"]) == 1
    cli.answer("reindex", "--no-fold-variants")
    assert cli.answer("search-messages", "图书馆")["hits"] == []
    cli.answer("reindex", "--fold-variants")
    assert len(cli.answer("search-messages", "图书馆")["hits"]) == 1
    assert cli.answer("doctor")["ok"]
