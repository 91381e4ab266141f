import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import legs, locomo, madial, memdaily, memorybank, metrics, quality, report, speed
from benchmarks.__main__ import main
from benchmarks.cache import CachedEmbedder
from benchmarks.corpus import Corpus, DataMissing, Document, Question, shortened, spread
from memstore import MemoryStore, Scope, Settings
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


@pytest.fixture
def data(tmp_path):
    """The formats of the four data sets, with rows of our own."""
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
        "D2:2", "Ben: Look at my kayak! [shared image: a green kayak on a lake]", "2024-03-01T15:30:20", "Ben"
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
        memdaily.read,
        madial.read,
        lambda folder: memorybank.read(folder, "en"),
    ],
)
def test_missing_files_are_named(tmp_path, read):
    with pytest.raises(DataMissing, match=str(tmp_path)):
        read(tmp_path)


def test_short_runs_take_few_corpora_and_every_group():
    questions = [Question(str(n), "q", frozenset("a"), "x" if n < 4 else "y") for n in range(6)]
    assert [q.id for q in spread(questions, 4)] == ["0", "4", "1", "5"]
    corpora = [Corpus(name, (), tuple(questions)) for name in "abc"]
    assert [(c.id, len(c.questions)) for c in shortened(corpora, 8)] == [("a", 6), ("b", 2)]
    assert shortened(corpora, None) == corpora


# --- metrics -------------------------------------------------------------------------------------------------


def test_ranks_of_gold_documents():
    assert metrics.gold_ranks(["c", "a", "x", "b"], {"a", "b", "lost"}) == [2, 4, None]
    assert metrics.gold_ranks([], {"a"}) == [None]


@pytest.mark.parametrize(
    ("ranks", "recall_5", "recall_10", "hit_10", "reciprocal"),
    [
        ([1, 5, 6, None], 0.5, 0.75, 1.0, 1.0),
        ([10], 0.0, 1.0, 1.0, 0.1),
        ([11, None], 0.0, 0.0, 0.0, 0.0),
        ([4, 2], 1.0, 1.0, 1.0, 0.5),
    ],
)
def test_metrics_of_one_question(ranks, recall_5, recall_10, hit_10, reciprocal):
    assert metrics.recall_at(ranks, 5) == recall_5
    assert metrics.recall_at(ranks, 10) == recall_10
    assert metrics.hit_at(ranks, 10) == hit_10
    assert metrics.reciprocal_rank_at(ranks, 10) == pytest.approx(reciprocal)


def test_summary_is_the_mean_over_questions():
    assert metrics.summary([[1, None], [12], [4]]) == {
        "recall@5": 0.5,
        "recall@10": 0.5,
        "recall@20": 0.8333,
        "hit@10": 0.6667,
        "mrr@10": 0.4167,
    }


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
    again.warm_up(texts, ["one apple"])
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


def test_vector_leg_alone_follows_the_cosine(tmp_path):
    embedder = HashEmbedder()
    scope = Scope("t", "u", "bench")
    texts = ["green kayak on the lake", "quince trees", "a kayak"]
    with MemoryStore(tmp_path / "s.db", embedder=embedder, settings=Settings(timezone="UTC")) as store:
        with pytest.raises(RuntimeError, match="no vectors"):
            legs.vector_ids(store, embedder, scope, "memories", "kayak", 3)
        ids = {store.add(scope, text).id: text for text in texts}
        store.index()
        found = [ids[i] for i in legs.vector_ids(store, embedder, scope, "memories", "kayak", 3)]
    cosines = embedder.embed_documents(texts) @ embedder.embed_query("kayak")
    assert found == [texts[i] for i in np.argsort(-cosines)]


def test_a_leg_that_did_not_answer_is_no_result(tmp_path):
    store = MemoryStore(tmp_path / "s.db", embedder=HashEmbedder())
    with store, pytest.raises(RuntimeError, match="vector leg did not answer"):
        legs.store_ids(store, Scope("t", "u", "bench"), "messages", "kayak", 3)


def test_quality_end_to_end(data, tmp_path, capsys):
    out = tmp_path / "results" / "quality.json"
    arguments = ["--data", str(data), "--embedder", "hash", "--cache", str(tmp_path / "cache")]
    assert main(["quality", "--out", str(out), *arguments, "--no-plot"]) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert figures["benchmark"] == "quality"
    assert set(figures["results"]) == set(quality.SETS)
    assert {"python", "sqlite", "apsw", "sqlite-vec", "jieba", "numpy", "memstore", "embedder"} <= set(
        figures["versions"]
    )
    assert {"cpu", "cores"} <= set(figures["machine"])
    assert figures["settings"]["candidate_factor"] == 3
    result = figures["results"]["locomo"]
    assert (result["documents"], result["questions"]) == (4, 3)
    assert set(result["legs"]) == {"text", "vector", "fused"}
    assert result["legs"]["text"]["by_group"]["4"]["recall@5"] == 1.0
    assert result["raw"][0]["ranks"]["text"] == [1]
    assert result["legs"]["vector"]["all"]["recall@10"] == 1.0  # four documents, all of them returned
    assert figures["results"]["madial-zh-3-turns"]["legs"]["fused"]["all"]["hit@10"] == 1.0
    assert "locomo: 3 questions, 4 documents" in capsys.readouterr().out


@pytest.mark.parametrize("one_team", [False, True])
def test_users_do_not_see_each_other(data, tmp_path, one_team):
    options = quality.Options(
        data=data, sets=("memdaily",), one_team=one_team, cache=tmp_path / "cache", top=20
    )
    result = quality.run(options, HashEmbedder())["results"]["memdaily"]
    assert result["questions"] == 3  # an id of another user's document would be a KeyError


def test_ablations_change_a_constant_for_the_run_alone():
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
