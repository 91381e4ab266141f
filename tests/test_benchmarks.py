import json
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    ablation,
    gate,
    legs,
    literal,
    locomo,
    longmemeval,
    madial,
    memdaily,
    memorybank,
    quality,
    report,
    sets,
    speed,
)
from benchmarks.__main__ import main
from benchmarks.cache import CachedEmbedder
from benchmarks.corpus import Corpus, DataMissing, Document, Question, part_by_id, shortened, spread
from memstore import MemoryStore, Message, Scope, Settings
from memstore.storage.sqlite import text_index
from memstore.testing import HashEmbedder


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_lines(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_text(lines, encoding="utf-8")


def turn(dia_id, speaker, text, **more):
    return {"dia_id": dia_id, "speaker": speaker, "text": text, **more}


def trajectory(tid, messages, question, gold):
    return {
        "tid": tid,
        "message_list": [
            {"mid": mid, "message": text, "time": f"2025年03月0{mid + 1}日 周一 10:0{tid}", "place": "x"}
            for mid, text in enumerate(messages)
        ],
        "question_list": [{"qid": 0, "question": question, "answer": "x", "target_step_id": gold}],
    }


def haystack(name, *, marked=True):
    """A question of LongMemEval with a history of two sessions."""
    turn = {"role": "user", "content": "I adopted a tortoise named Pebble."}
    return {
        "question_id": name,
        "question_type": "single-session-user",
        "question": "What is my tortoise called?",
        "answer": "Pebble",
        "question_date": "2023/06/01 (Thu) 10:00",
        "haystack_session_ids": ["s-1", "answer_s-2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 18:05"],
        "haystack_sessions": [
            [{"role": "user", "content": "Suggest a soup."}, {"role": "assistant", "content": "Leek soup."}],
            [turn | ({"has_answer": True} if marked else {}), {"role": "assistant", "content": "Lovely!"}],
        ],
        "answer_session_ids": ["answer_s-2"],
    }


@pytest.fixture
def data(tmp_path):
    """The formats of the five data sets, with rows of our own."""
    folder = tmp_path / "data"
    conversation = {
        "speaker_a": "Ada",
        "speaker_b": "Ben",
        "session_10_date_time": "12:05 am on 2 March, 2024",
        "session_10": [turn("D10:1", "Ada", "The beehives survived the frost.")],
        "session_2_date_time": "3:30 pm on 1 March, 2024",
        "session_2": [
            turn("D2:1", "Ada", "I planted two quince trees behind the shed."),
            turn("D2:2", "Ben", "Look at my kayak!", blip_caption="a green kayak on a lake"),
            turn("D2:3", "Ben", "My sister tunes church organs in Bergen."),
        ],
    }
    questions = [
        {"question": "What did Ada plant?", "answer": "quince", "evidence": ["D2:1"], "category": 4},
        {"question": "Which things do they own?", "evidence": ["D2:2; D10:1 D99:9"], "category": 1},
        {"question": "Which turn is missing?", "evidence": ["D7:7"], "category": 2},
        {"question": 2024, "evidence": ["D10:1", "D10:1"], "category": 2},
    ]
    write_json(
        folder / "locomo" / "locomo_x.json",
        [{"sample_id": "conv-1", "conversation": conversation, "qa": questions}],
    )
    write_json(
        folder / "longmemeval" / "longmemeval_s.json",
        [haystack("e47becba"), haystack("gpt4_12_abs"), haystack("51a45a95"), haystack("aa", marked=False)],
    )
    write_json(
        folder / "memdaily" / "01_simple_roles.json",
        [
            trajectory(0, ["我舅妈喜欢养蜂。", "我舅妈住在青岛。"], "我舅妈住在哪里？", [1]),
            trajectory(1, ["我舅妈会弹琵琶。", "秋收摄影大会的地点是敦煌。"], "摄影大会在哪里？", [1]),
        ],
    )
    write_json(
        folder / "memdaily" / "02_conditional_items.json",
        [
            trajectory(0, ["我的堂哥修理钟表。", "今天下雨了。"], "谁修理钟表？", [0, 9]),
            trajectory(1, ["阳台上的茉莉开花了。"], "没有答案的问题？", [9]),
        ],
    )
    write_lines(
        folder / "madial" / madial.MEMORY_FILE,
        [
            {str(n): {"time": "2024-05-01", "event": event, "user-id": user, "id": str(n)}}
            for n, user, event in (
                (1, 1, "小满在河边放风筝，很开心。"),
                (2, 1, "小满第一次学会骑车。"),
                (3, 2, "阿木的金鱼生病了，他很难过。"),
            )
        ],
    )
    write_lines(
        folder / "madial" / madial.DIALOGUE_FILE,
        [
            {
                "dialogue": [
                    "<BOD>\n",
                    '<小满>:"周末真好！"\n',
                    '<Assistant>:"打算做什么呢？"\n',
                    '<小满>:"今天风很大，想去河边。"\n',
                    '<Assistant>:"可以放风筝。"\n',
                    "<EOD>\n",
                ],
                "test-turn": [4],
                "relevant-id": [1, 77],
                "user-id": 1,
                "id": 0,
            }
        ],
    )
    write_json(
        folder / "memorybank" / "memory_bank_cn.json",
        {
            " 罗安 ": {
                "name": "罗安",
                "history": {
                    "2024-06-02": [{"query": "我养了一只龟。", "response": "它叫什么？"}],
                    "2024-06-01": [{"query": "你好。", "response": ""}],
                },
            }
        },
    )
    write_lines(folder / "memorybank" / "probing_questions_cn.jsonl", [{"罗安": ["我养了什么？"]}])
    return folder


# --- readers -------------------------------------------------------------------------------------------------


def test_locomo(data):
    (corpus,) = locomo.read(data / "locomo")
    assert [document.id for document in corpus.documents] == ["D2:1", "D2:2", "D2:3", "D10:1"]
    assert corpus.documents[1] == Document(
        "D2:2", "Look at my kayak! [shared image: a green kayak on a lake]", "2024-03-01T15:30:20", "Ben"
    )
    assert corpus.documents[3].at == "2024-03-02T00:05:00"
    assert [(q.query, q.gold, q.group) for q in corpus.questions] == [
        ("What did Ada plant?", {"D2:1"}, "4"),
        ("Which things do they own?", {"D2:2", "D10:1"}, "1"),
        ("2024", {"D10:1"}, "2"),
    ]


def test_locomo_evidence_that_holds_several_ids():
    assert locomo.evidence_ids(["D1:1; D2:2", "D3:3  D4:4", "", "D5:5"]) == [
        "D1:1", "D2:2", "D3:3", "D4:4", "D5:5",
    ]  # fmt: skip


def test_longmemeval(data):
    corpora = longmemeval.read(data / "longmemeval")
    assert [corpus.id for corpus in corpora] == ["e47becba", "gpt4_12_abs", "51a45a95", "aa"]
    corpus = corpora[0]
    assert [(document.id, document.role, document.session) for document in corpus.documents] == [
        ("s-1/0", "user", "s-1"),
        ("s-1/1", "assistant", "s-1"),
        ("answer_s-2/0", "user", "answer_s-2"),
        ("answer_s-2/1", "assistant", "answer_s-2"),
    ]
    assert [document.at for document in corpus.documents[1:3]] == [
        "2023-05-20T02:21:20", "2023-05-21T18:05:00",
    ]  # fmt: skip
    (question,) = corpus.questions
    assert (question.gold, question.sessions) == ({"answer_s-2/0"}, {"answer_s-2"})
    assert question.group == "single-session-user"
    assert [(c.questions, c.documents, c.excluded) for c in corpora[1::2]] == [
        ((), (), (longmemeval.ABSTENTION,)),
        ((), (), (longmemeval.UNMARKED,)),
    ]
    assert [corpus.id for corpus in longmemeval.read(data / "longmemeval", 2)] == ["e47becba", "51a45a95"]


def test_longmemeval_takes_a_session_named_twice_once_and_no_blank_turn(tmp_path):
    sample = haystack("q1")
    for member in ("haystack_session_ids", "haystack_dates", "haystack_sessions"):
        sample[member].append(sample[member][0])
    sample["haystack_sessions"][1].append({"role": "user", "content": " "})
    write_json(tmp_path / "longmemeval_oracle.json", [sample])
    (corpus,) = longmemeval.read(tmp_path)
    assert len(corpus.documents) == 4


def test_memdaily_mixes_in_messages_that_name_no_entity_of_the_trajectory(data):
    corpora = {corpus.id: corpus for corpus in memdaily.read(data / "memdaily")}
    assert set(corpora) == {"01_simple_roles/0", "01_simple_roles/1", "02_conditional_items/0"}
    corpus = corpora["01_simple_roles/0"]
    assert {document.text for document in corpus.documents} == {
        "我舅妈喜欢养蜂。", "我舅妈住在青岛。",
        "秋收摄影大会的地点是敦煌。", "我的堂哥修理钟表。", "今天下雨了。",
    }  # fmt: skip
    assert corpus.questions == (Question("01_simple_roles/0", "我舅妈住在哪里？", frozenset({"1"}), "01"),)
    assert [document.at for document in corpus.documents] == sorted(d.at for d in corpus.documents)
    assert corpora["02_conditional_items/0"].questions[0].gold == {"0"}


def test_memdaily_is_the_same_every_time_and_limits_evenly(data):
    assert memdaily.read(data / "memdaily") == memdaily.read(data / "memdaily")
    assert [corpus.questions[0].group for corpus in memdaily.read(data / "memdaily", 2)] == ["01", "02"]


def test_memdaily_takes_no_more_than_the_wanted_distractors(data, monkeypatch):
    monkeypatch.setattr(memdaily, "DISTRACTORS", 3)
    sizes = sorted(len(corpus.documents) for corpus in memdaily.read(data / "memdaily"))
    assert sizes == [4, 5, 5]


def test_memdaily_entities():
    found = memdaily.entities(
        ["赵小舟是我的叔叔，其年龄是40岁。", "我将要参加春季陶艺展览。", "我的手机是青瓷X9。", "路上堵车。"]
    )
    assert found == {"赵小舟", "叔叔", "春季陶艺展览", "青瓷X9"}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("three_turns", "周末真好！\n打算做什么呢？\n今天风很大，想去河边。"),
        ("last_utterance", "今天风很大，想去河边。"),
    ],
)
def test_madial(data, query, text):
    one, two = madial.read(data / "madial", query)
    assert [document.id for document in one.documents] == ["1", "2"]
    assert [document.id for document in two.documents] == ["3"]
    assert one.layer == "memories"
    assert one.questions == (Question("0", text, frozenset({"1"}), "user 1"),)
    assert two.questions == ()


def test_memorybank(data):
    (person,) = memorybank.read(data / "memorybank", "zh")
    assert (person.name, person.language, person.questions) == ("罗安", "zh", ("我养了什么？",))
    assert [(m.role, m.text, m.at) for m in person.messages] == [
        ("user", "你好。", "2024-06-01T09:00:00"),
        ("user", "我养了一只龟。", "2024-06-02T09:00:00"),
        ("assistant", "它叫什么？", "2024-06-02T09:01:00"),
    ]


@pytest.mark.parametrize(
    "read",
    [
        locomo.read,
        longmemeval.read,
        memdaily.read,
        memdaily.texts,
        madial.read,
        lambda folder: memorybank.read(folder, "en"),
    ],
)
def test_missing_files_are_named(tmp_path, read):
    with pytest.raises(DataMissing, match=tmp_path.name) as missing:
        read(tmp_path)
    assert str(tmp_path) not in str(missing.value), "a report names no path of one machine"


def test_short_runs_take_few_corpora_and_every_group():
    questions = [Question(str(n), "q", frozenset("a"), "x" if n < 4 else "y") for n in range(6)]
    assert [q.id for q in spread(questions, 4)] == ["0", "4", "1", "5"]
    corpora = [Corpus(name, (), tuple(questions)) for name in "abc"]
    assert [(c.id, len(c.questions)) for c in shortened(corpora, 8)] == [("a", 6), ("b", 2)]
    assert shortened(corpora, None) == corpora


# --- parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "part"),
    [
        ("01_simple_roles/32", "report"),
        ("01_simple_roles/7", "choose"),
        ("0", "report"),
        ("119", "choose"),
        ("gpt4_2655b836", "report"),  # 836
        ("51a45a95", "choose"),  # 95
    ],
)
def test_the_digits_at_the_end_of_an_id_say_its_part(id_, part):
    assert part_by_id(0, id_) == part
    assert part_by_id(9, id_) == part


@pytest.mark.parametrize("id_", ["e47becba", "aa", "question", "题"])
def test_an_id_without_digits_at_its_end_has_the_part_of_its_checksum(id_):
    assert part_by_id(0, id_) == ("choose" if zlib.crc32(id_.encode()) % 2 else "report")


def test_the_first_three_conversations_of_locomo_choose():
    parts = [locomo.part(place, "conv-1/1") for place in range(5)]
    assert parts == ["choose", "choose", "choose", "report", "report"]


# --- cache ---------------------------------------------------------------------------------------------------


def test_cached_embeddings_are_the_models_and_computed_once(tmp_path):
    plain = HashEmbedder()
    model = HashEmbedder()
    cached = CachedEmbedder(model, tmp_path / "cache")
    texts = ["one apple", "two pears", "one apple"]
    assert cached.identity == plain.identity
    np.testing.assert_array_equal(cached.embed_documents(texts), plain.embed_documents(texts))
    np.testing.assert_array_equal(cached.embed_query("one apple"), plain.embed_query("one apple"))
    assert (model.document_texts, model.query_calls, cached.computed) == (2, 1, 3)
    assert cached.embed_documents([]).shape == (0, 64)
    cached.close()

    again = CachedEmbedder(model, tmp_path / "cache")
    np.testing.assert_array_equal(again.embed_query("one apple"), plain.embed_query("one apple"))
    np.testing.assert_array_equal(again.embed_documents(texts), plain.embed_documents(texts))
    assert (model.document_texts, model.query_calls, again.computed) == (2, 1, 0)
    again.close()


def test_another_model_has_another_cache(tmp_path):
    first = CachedEmbedder(HashEmbedder(revision="1"), tmp_path)
    second = CachedEmbedder(HashEmbedder(revision="2"), tmp_path)
    assert first.path != second.path
    first.close()
    second.close()


# --- quality -------------------------------------------------------------------------------------------------


def test_each_leg_alone(tmp_path):
    embedder = HashEmbedder()
    scope = Scope("t", "u", "bench")
    texts = ["green kayak on the lake", "quince trees", "a kayak"]
    where = (scope, "memories", "kayak", 3)
    settings = Settings(timezone="UTC")
    with (
        MemoryStore(tmp_path / "s.db", embedder=embedder, settings=settings) as store,
        MemoryStore(tmp_path / "s.db", settings=settings) as text_store,
    ):
        ids = {store.add(scope, text).id: text for text in texts}
        store.index()
        found = legs.ids_by_leg(store, *where)
        assert found["text"] == legs.ids(text_store, *where)
        assert found["fused"] == legs.ids(store, *where)
    cosines = embedder.embed_documents(texts) @ embedder.embed_query("kayak")
    assert [ids[id_] for id_ in found["vector"]] == [texts[i] for i in np.argsort(-cosines)]


def test_the_vector_index_alone_is_timed_below_the_facade(tmp_path):
    embedder = speed.LookUpEmbedder(64)
    scope = Scope("t", "u", "bench")
    with MemoryStore(tmp_path / "s.db", embedder=embedder) as store:
        store.record(scope, [Message("user", "a kayak")], "chat")
        with pytest.raises(RuntimeError, match="no vectors"):
            speed.vector_ids(store, embedder, scope, "kayak", 3)
        store.index()
        assert len(speed.vector_ids(store, embedder, scope, "kayak", 3)) == 1


def test_a_leg_that_did_not_answer_is_no_result(tmp_path):
    store = MemoryStore(tmp_path / "s.db", embedder=HashEmbedder())
    with store, pytest.raises(RuntimeError, match="vector leg did not answer"):
        legs.ids(store, Scope("t", "u", "bench"), "messages", "kayak", 3)


def test_quality_end_to_end(data, tmp_path, capsys):
    out = tmp_path / "results" / "quality.json"
    arguments = ["--data", str(data), "--embedder", "hash", "--cache", str(tmp_path / "cache")]
    assert main(["quality", "--out", str(out), *arguments, "--no-plot"]) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert figures["benchmark"] == "quality"
    assert set(figures["results"]) == set(sets.SETS)
    assert {"python", "sqlite", "apsw", "sqlite-vec", "jieba", "numpy", "memstore", "embedder"} <= set(
        figures["versions"]
    )
    assert {"cpu", "cores"} <= set(figures["machine"])
    assert figures["settings"]["candidate_factor"] == 3
    result = figures["results"]["locomo"]
    assert (result["documents"], result["questions"]) == (4, 3)
    assert set(result["legs"]) == {"text", "vector", "fused"}
    assert result["legs"]["text"]["by_group"]["4"]["all"]["recall@5"] == 1.0
    assert result["raw"][0]["ranks"]["text"] == {"5": [1], "10": [1], "20": [1]}
    assert result["legs"]["vector"]["all"]["recall@10"] == 1.0  # four documents, all of them returned
    assert result["legs"]["fused"]["choose"]["questions"] == 3
    nothing = dict(result["legs"]["fused"]["report"])
    assert nothing.pop("questions") == 0
    assert set(nothing.values()) == {None}
    assert figures["results"]["madial-zh-3-turns"]["legs"]["fused"]["all"]["hit@10"] == 1.0
    zh = figures["languages"]["zh"]["fused"]
    assert zh["all"]["questions"] == zh["choose"]["questions"] + zh["report"]["questions"] == 5
    shown = capsys.readouterr().out
    assert "locomo: 3 questions, 4 documents" in shown
    assert "all sets in zh" in shown


def test_longmemeval_is_scored_by_turns_and_by_sessions(data, tmp_path):
    options = quality.Options(data=data, sets=("longmemeval",), cache=tmp_path / "cache")
    result = quality.run(options, HashEmbedder())["results"]["longmemeval"]
    assert (result["questions"], result["documents"]) == (2, 8)
    assert result["excluded"] == {longmemeval.ABSTENTION: 1, longmemeval.UNMARKED: 1}
    assert result["legs"]["text"]["all"]["mrr@10"] == 1.0
    assert result["session_legs"]["text"]["all"]["recall@5"] == 1.0
    (rank,) = result["raw"][0]["session_ranks"]["vector"]["20"]
    assert rank in (1, 2)  # of four turns in two sessions
    shown = report.quality_table({"results": {"longmemeval": result}, "languages": {}})
    assert "1 left out (abstention" in shown
    assert "longmemeval, sessions instead of turns" in shown


# --- gate ----------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(data, tmp_path):
    """A baseline file, and how to run against it."""
    out = tmp_path / "baseline.json"
    common = [
        "quality", "--data", str(data), "--sets", "locomo,memdaily", "--embedder", "hash",
        "--cache", str(tmp_path / "cache"), "--no-plot",
    ]  # fmt: skip
    assert main([*common, "--out", str(out)]) == 0
    gated = [*common, "--out", str(tmp_path / "now.json"), "--gate", str(out)]
    return out, lambda *more: main([*gated, *more])


def changed(path, change):
    figures = json.loads(path.read_text(encoding="utf-8"))
    change(figures)
    write_json(path, figures)


def test_the_gate_opens_for_the_same_figures(measured, capsys):
    _, run = measured
    assert run() == 0
    assert "gate: none of" in capsys.readouterr().out


def test_the_gate_names_what_fell(measured, capsys):
    path, run = measured
    now = json.loads(path.read_text(encoding="utf-8"))["results"]["locomo"]["legs"]["text"]["all"][
        "recall@10"
    ]
    before = {"recall@10": now + 0.03}
    changed(path, lambda figures: figures["results"]["locomo"]["legs"]["text"]["all"].update(before))
    assert run() == 1
    shown = capsys.readouterr().out
    assert f"fell: locomo, all, text: {now + 0.03:.4f} → {now:.4f} (-0.0300)" in shown
    assert "gate: 1 of" in shown
    assert run("--tolerance", "0.03") == 0


def test_the_gate_looks_at_each_language_and_part(measured):
    path, _ = measured
    figures = json.loads(path.read_text(encoding="utf-8"))
    seen = {(d.where, d.part, d.leg) for d in gate.compare(figures, figures)}
    assert {("locomo", "all", "fused"), ("memdaily", "report", "vector"), ("all zh", "all", "text")} <= seen
    assert ("locomo", "report", "fused") not in seen  # no question


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda figures: figures["versions"]["embedder"].update(digest="0"), "another embedder"),
        (lambda figures: figures["results"].pop("memdaily"), "other sets: the baseline has locomo, this run"),
        (lambda figures: figures["results"]["locomo"].update(questions=997), "3 questions here, 997 in the"),
        (lambda figures: figures["settings"].update(one_team=True), "another setting one_team"),
        (lambda figures: figures.pop("languages"), "older form"),
        (lambda figures: figures.update(benchmark="speed"), "no result of 'quality'"),
    ],
)
def test_what_is_not_comparable_says_why(measured, capsys, change, reason):
    path, run = measured
    changed(path, change)
    assert run() == 2
    assert reason in capsys.readouterr().err


def test_a_missing_baseline_is_told_before_the_run(measured, capsys):
    path, run = measured
    path.unlink()
    assert run() == 2
    assert "cannot be read" in capsys.readouterr().err
    path.write_text("{", encoding="utf-8")
    assert run() == 2
    assert "is no JSON" in capsys.readouterr().err


# --- ablation ------------------------------------------------------------------------------------------------


def test_every_default_of_recall_has_a_row():
    # No data set has priorities, floors come from a calibration, no data set mixes variants of characters, and in none
    # does anybody flood the others.
    without = {"priority_weight", "floors", "fold_variants", "source_share"}
    changed_ones = {name for variant in ablation.VARIANTS for name in variant.settings}
    assert set(report.recall_settings(Settings())) - without == changed_ones
    weights = {w for variant in ablation.VARIANTS for w in variant.constants.values()}
    assert len(weights) >= 5
    assert text_index.LITERAL_WEIGHT not in weights
    assert len({variant.name for variant in ablation.VARIANTS}) == len(ablation.VARIANTS)
    for variant in ablation.VARIANTS[1:]:
        assert variant.constants or variant.form != "as read" or Settings(**variant.settings) != Settings()


def test_ablation_end_to_end(data, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "ablation.json"
    arguments = ["--data", str(data), "--embedder", "hash", "--cache", str(tmp_path / "cache"), "--jobs", "1"]
    assert main(["ablation", "--sets", "locomo,memdaily", "--out", str(out), *arguments]) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    locomo_rows = [row for row in figures["rows"] if row["set"] == "locomo"]
    assert [row["variant"] for row in locomo_rows] == [variant.name for variant in ablation.VARIANTS]
    assert (locomo_rows[0]["difference"], locomo_rows[0]["report"]["fused"]) == (0.0, None)
    assert locomo_rows[0]["choose"]["vector"] == 1.0
    memdaily_variants = {row["variant"] for row in figures["rows"] if row["set"] == "memdaily"}
    assert "no neighbours" not in memdaily_variants  # one speaker alone
    assert "neighbours of the same speaker too" in memdaily_variants
    assert "no names in the rows" not in memdaily_variants
    assert "| locomo | defaults |" in capsys.readouterr().out
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_ablation_asks_in_several_processes_as_in_one(data, tmp_path):
    def rows(jobs):
        options = ablation.Options(
            data=data,
            sets=("memdaily",),
            cache=tmp_path / "cache",
            variants=ablation.VARIANTS[:4],
            jobs=jobs,
        )
        figures = ablation.run(options, HashEmbedder())
        return [{name: value for name, value in row.items() if name != "seconds"} for row in figures["rows"]]

    assert rows(2) == rows(1)


def test_forms_of_a_conversation(tmp_path):
    speakers = ["Ada", "Ada", "Ben"]
    documents = [Document(str(n), f"turn {n}", "2024-03-01", who) for n, who in enumerate(speakers)]
    corpus = Corpus("c", tuple(documents), ())
    with MemoryStore(tmp_path / "s.db", settings=Settings(timezone="UTC")) as store:

        def stored(form):
            scope = Scope(form, "u", sets.AGENT)
            assert list(sets.keep(store, corpus, scope, form).values()) == ["0", "1", "2"]
            return [(m.role, m.name) for m in store.messages(scope, f"{sets.AGENT}:c:0")]

        assert stored("as read") == [("user", "Ada"), ("user", "Ada"), ("user", "Ben")]
        assert stored("without names") == [("user", None), ("user", None), ("assistant", None)]
        assert stored("turn about") == [("user", "Ada"), ("assistant", "Ada"), ("user", "Ben")]
    assert sets.differs([corpus], "without names")
    assert sets.differs([corpus], "turn about")
    assert sets.has_neighbours([corpus])
    alone = Corpus("c", (Document("0", "a"), Document("1", "b"), Document("2", "c", session="x")), ())
    assert not sets.has_neighbours([alone])
    assert not sets.differs([alone], "without names")
    assert not sets.differs([Corpus("c", alone.documents, (), "memories")], "turn about")


def test_query_vectors_go_to_another_process_without_their_model():
    model, plain = HashEmbedder(), HashEmbedder()
    known = ablation.QueryVectors(model)
    np.testing.assert_array_equal(known.embed_query("a  kayak"), plain.embed_query("a kayak"))
    np.testing.assert_array_equal(known.embed_documents(["tea"]), plain.embed_documents(["tea"]))
    there = pickle.loads(pickle.dumps(known))  # noqa: S301
    np.testing.assert_array_equal(there.embed_query("a kayak"), plain.embed_query("a kayak"))
    assert model.query_calls == 1
    assert there.identity == model.identity
    with pytest.raises(LookupError, match="no variant of this process asked for 'tram'"):
        there.embed_query("tram")
    with pytest.raises(LookupError, match="1 documents"):
        there.embed_documents(["tea"])


# --- literal -------------------------------------------------------------------------------------------------


ROWS = (
    "银行卡丢了怎么办？",
    "他在银座买了一张卡。",
    "夜里跑完Build-X7后恢复，上线改到周五",
    "明天ＡＰＩ要升级，别忘了备份😀",
    "周五下午三点开会，地点在二楼会议室。",
    "我舅妈住在青岛，喜欢养蜂。",
)


def test_every_literal_piece_is_found():
    sources = {"rows": ROWS, literal.MADE_UP: literal.made_up_rows(30)}
    found = literal.measure(sources, 120)
    assert (found["failed"], found["failures"]) == (0, [])
    counts = found["all"]
    assert counts["drawn"] == 120
    assert counts["of_these_found_completely"] == counts["fewer_holders_than_limit"] > 60
    assert counts["of_these_first"] == counts["one_holder"] > 30
    assert set(found["by_source"]) == {"rows", literal.MADE_UP}
    assert set(counts["by_length"]) <= {str(n) for n in range(2, 9)}


def test_pieces_are_drawn_by_a_seed_and_hold_something_to_look_for():
    drawn_from = {"rows": ROWS, "marks": ["……？！，好吗"]}
    pieces = list(literal.drawn(drawn_from, 60))
    assert pieces == list(literal.drawn(drawn_from, 60))
    assert all(any(character.isalnum() for character in piece) for _, piece in pieces)
    assert literal.made_up_rows(5) == literal.made_up_rows(5)


def test_the_oracle_looks_at_every_row_as_the_store_compares():
    oracle = literal.Oracle({"a": "跑完Build-X7后", "b": "ｂｕｉｌｄ　x7", "c": "银行"})
    assert oracle.holders("BUILD") == {"a", "b"}
    assert oracle.holders("d x") == {"b"}
    assert oracle.holders("%") == set()
    oracle.close()


def test_what_was_not_found_is_a_failure():
    def result(holders, found, first):
        return {"source": "x", "piece": "银行", "holders": holders, "found": found, "first": first}

    given = [result(2, 2, False), result(2, 1, True), result(1, 1, False), result(50, 20, True)]
    found = literal.scored(given)
    assert found["failed"] == 2
    assert [entry["holders"] for entry in found["failures"]] == [2, 1]
    assert found["all"]["of_these_found_completely"] == 2
    assert "'银行' of x: 1 of 2 holders found" in literal.table(found)


def test_literal_end_to_end(data, tmp_path, capsys):
    out = tmp_path / "literal.json"
    assert main(["literal", "--data", str(data), "--draws", "30", "--out", str(out)]) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert set(figures["rows"]) == {"memdaily", "memorybank", "identifiers"}
    assert figures["all"]["drawn"] == 30
    assert "found completely" in capsys.readouterr().out
    assert main(["literal", "--data", str(tmp_path / "nothing"), "--out", str(out)]) == 2


def test_a_run_whose_pieces_are_not_found_fails(data, tmp_path, monkeypatch):
    monkeypatch.setattr(literal.legs, "ids", lambda *_: [])
    arguments = ["literal", "--data", str(data), "--draws", "30", "--out", str(tmp_path / "l.json")]
    assert main(arguments) == 1


# --- runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one_team", [False, True])
def test_users_do_not_see_each_other(data, tmp_path, one_team):
    options = quality.Options(data=data, sets=("memdaily",), one_team=one_team, cache=tmp_path / "cache")
    result = quality.run(options, HashEmbedder())["results"]["memdaily"]
    assert result["questions"] == 3  # an id of another user's document would be a KeyError


def test_a_run_changes_a_constant_for_itself_alone():
    before = text_index.LITERAL_WEIGHT
    with quality.changed_constants({"LITERAL_WEIGHT": 9.0}):
        assert text_index.LITERAL_WEIGHT == 9.0
    assert before == text_index.LITERAL_WEIGHT


def test_missing_sets_are_skipped_and_none_at_all_is_an_error(data, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("MEMSTORE_BENCH_DATA", raising=False)
    common = ["--embedder", "hash", "--cache", str(tmp_path / "cache"), "--no-plot"]
    out = tmp_path / "q.json"
    for file in (data / "locomo").iterdir():
        file.unlink()
    assert (
        main(["quality", "--out", str(out), "--data", str(data), "--sets", "locomo,memdaily", *common]) == 0
    )
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert set(figures["results"]) == {"memdaily"}
    assert set(figures["skipped"]) == {"locomo"}
    assert main(["quality", "--out", str(out), "--data", str(tmp_path / "nothing"), *common]) == 2
    assert main(["quality", "--out", str(out), *common]) == 2
    assert "MEMSTORE_BENCH_DATA" in capsys.readouterr().err
    monkeypatch.setenv("MEMSTORE_BENCH_DATA", str(data))
    assert main(["quality", "--out", str(out), "--sets", "memdaily", "--limit", "1", *common]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "HOME=1"],
        ["--sets", "squad"],
        ["--limit", "0"],
        ["--tolerance", "-1"],
    ],
)
def test_wrong_options_are_refused(arguments, tmp_path):
    with pytest.raises(SystemExit):
        main(["quality", "--out", str(tmp_path / "q.json"), *arguments])


# --- speed ---------------------------------------------------------------------------------------------------


def test_sentences_are_seeded_and_mixed():
    one, two = speed.Sentences(), speed.Sentences()
    drawn = [one.one() for _ in range(200)]
    assert drawn == [two.one() for _ in range(200)]
    chinese = sum(text.endswith("。") for text in drawn)
    assert 80 < chinese < 160
    assert one.one(8) != two.one(9)


def test_vectors_to_look_up_are_unit_vectors():
    embedder = speed.LookUpEmbedder(64)
    vectors = embedder.embed_documents(["a", "b", "a"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    np.testing.assert_array_equal(vectors[1], embedder.embed_query("b"))


@pytest.mark.parametrize("rows", [1, 300, 2_000, 100_000])
def test_rows_are_shared_out_completely(rows):
    shares = speed._shares(rows)
    assert sum(share.rows for share in shares) == rows
    assert shares[0].rows == min(1_000, max(1, rows // 10))


def test_growth_is_given_only_for_the_same_number_of_own_rows():
    times = {leg: {"p50_ms": 2.0} for leg in legs.LEGS}
    small, other = {"asker_rows": 30, "recall": times}, {"asker_rows": 40, "recall": times}
    assert speed._growth(small, small) == {"text": 1.0, "vector": 1.0, "fused": 1.0}
    assert speed._growth(small, other) is None


def test_speed_end_to_end(tmp_path, capsys):
    out = tmp_path / "speed.json"
    assert main(["speed", "--rows", "300", "--queries", "5", "--out", str(out)]) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert figures["n50_ms"] > 0
    assert set(figures["largest_to_smallest"]) == {"text", "vector", "fused"}
    result = figures["results"]["300"]
    assert (result["rows"], result["asker_rows"]) == (300, 30)
    assert set(result["single_record"]) == {"disk", "process"}
    for leg in ("text", "vector", "fused"):
        assert {"p50_ms", "p95_ms", "raw_ms", "per_n50"} <= set(result["recall"][leg])
        assert len(result["recall"][leg]["raw_ms"]) == 5
    assert result["recall_after_single_records"]["text"]["calls"] == 5
    assert result["size"]["database_bytes"] > 300 * 384 * 4
    assert result["size"]["fallback_bytes"] > 0
    assert result["statements"]["record"] == len(result["statements"]["record_statements"]) > 0
    assert result["statements"]["recall"] > 0
    assert "300 rows" in capsys.readouterr().out


# --- report --------------------------------------------------------------------------------------------------


def test_json_is_read_back_as_written(tmp_path):
    figures = {"a": {"b": 1.5, "空": None}, "raw": [{"x": [1, None]}, {"x": []}], "none": {}, "list": [1, 2]}
    report.write(figures, tmp_path / "f.json")
    text = (tmp_path / "f.json").read_text(encoding="utf-8")
    assert json.loads(text) == figures
    assert '  {"x": [1, null]},\n' in text


def test_table():
    text = report.table(["leg", "n"], [["text", 0.5], ["fused", 12_345], ["none", None]])
    assert text.splitlines() == [
        "leg         n",
        "-------------",
        "text    0.500",
        "fused  12,345",
        "none        –",
    ]


def test_plot_lies_beside_the_json(data, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "q.json"
    options = quality.Options(data=data, sets=("locomo",), cache=tmp_path / "cache")
    drawn = report.plot(quality.run(options, HashEmbedder()), out)
    assert drawn == tmp_path / "q.png"
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_a_note_and_no_plot(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert report.plot({"benchmark": "quality", "results": {}}, tmp_path / "q.json") is None
    assert "matplotlib is not installed" in capsys.readouterr().err


def test_help_runs_as_a_module():
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "quality" in done.stdout
