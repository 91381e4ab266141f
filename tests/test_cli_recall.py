"""The command line's recall --explain, why-not and trace: sentences in two languages, JSON, exit codes."""

import json
from pathlib import Path

import pytest

from cli_support import Cli
from memstore import MemoryStore, Message, Scope
from memstore.testing import HashEmbedder

LIN = Scope("default", "lin", "default")
STEERING = "\x1b[31mred\x1b[0m\x07 \u202ereversed\u202c \x9b2J\rover"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path / "memory.db")
    cli.answer("init", "--timezone", "Asia/Shanghai")
    return cli


@pytest.fixture
def ids(cli: Cli) -> list[str]:
    return [cli.answer("add", text)["id"] for text in ("rain rain rain", "some rain fell", "tea with lemon")]


# --- explain --------------------------------------------------------------------------------------------------


def test_explain_in_english_and_chinese(cli: Cli, ids: list[str]) -> None:
    english = cli.shown("recall", "what is the rain", "--limit", "1", "--explain")
    for part in (
        "1. 0.0164", ids[0], "rain rain rain", "text: rank 1, score", "adds 0.0164", "matched: rain",
        "visible: the asker owns it", "looked for: rain", "left out, without meaning of their own: what, is, the",
        "within: team=default, user=lin, layer=memories, limit=1", "text leg: brought 2, asked for 3, weight 1.00",
        "also looked at:", f"2. 0.0161  {ids[1]}  [text 2]  cut by the limit: some rain fell",
    ):  # fmt: skip
        assert part in english, part
    chinese = cli.shown("recall", "what is the rain", "--limit", "1", "--explain", "--language", "zh")
    for part in (
        "文本：第 1 位，得分", "贡献 0.0164", "匹配的词：rain", "可见：属于提问者本人", "检索的词：rain", "忽略的虚词：what、is、the",
        "范围：team=default", "文本路：取回 2 条（上限 3），权重 1.00", "其他候选：", "超出上限: some rain fell",
    ):  # fmt: skip
        assert part in chinese, part
    assert "rank" not in chinese


def test_the_language_comes_from_the_environment_unless_it_is_said(cli: Cli, ids: list[str]) -> None:
    assert "匹配的词" in cli.shown("recall", "rain", "--explain", MEMSTORE_LANGUAGE="zh")
    assert "matched" in cli.shown("recall", "rain", "--explain", "--language", "en", MEMSTORE_LANGUAGE="zh")
    assert "matched" in cli.shown("recall", "rain", "--explain", MEMSTORE_LANGUAGE="")
    assert "没有结果" in cli.shown("recall", "snow", MEMSTORE_LANGUAGE="zh")
    for words in (["recall", "rain"], ["search-messages", "rain"], ["why-not", ids[0], "rain"], ["trace"]):
        result = cli(*words, "--language", "de")
        assert (result.exit_code, result.stdout) == (2, "")
        result = cli(*words, MEMSTORE_LANGUAGE="de")
        assert (result.exit_code, result.stdout) == (2, "")


def test_json_has_the_same_fields_in_every_language(cli: Cli, ids: list[str]) -> None:
    answer = cli.answer("recall", "rain", "--limit", "1", "--explain")
    assert set(answer) == {"hits", "degraded", "took_ms", "explanation", "trace_id"}
    whole = answer["explanation"]
    assert set(whole) >= {"query", "words", "left_out", "filters", "legs", "coverage", "candidates"}
    assert [(c["id"], c["place"], c["outcome"]) for c in whole["candidates"]] == [
        (ids[0], 1, "returned"),
        (ids[1], 2, "limit"),
    ]
    assert set(whole["candidates"][0]) == {
        "id", "place", "score", "outcome", "explanation", "excerpt", "duplicate_of",
    }  # fmt: skip
    assert whole["legs"]["text"] == {"asked": 3, "brought": 2, "weight": 1.0, "floor": None, "model": None}
    assert answer["hits"][0]["explanation"] == whole["candidates"][0]["explanation"]
    chinese = cli.answer("recall", "rain", "--limit", "1", "--explain", "--language", "zh")
    assert chinese["explanation"] == whole
    assert cli.answer("recall", "rain")["explanation"] is None


def test_neighbours_are_told_of(cli: Cli) -> None:
    with MemoryStore(cli.db) as store:
        store.record(
            LIN, [Message("user", "the lighthouse?"), Message("assistant", "Yes, on Thursday")], "chat"
        )
        store.record(LIN, [Message("user", f"tea {number}") for number in range(9)], "chat")
    english = cli.shown("search-messages", "lighthouse", "--explain")
    assert "with the turns beside it), adds 0.0161; found by the turns beside it" in english
    chinese = cli.shown("search-messages", "lighthouse", "--explain", "--language", "zh")
    assert "连同相邻发言" in chinese
    assert "靠相邻发言找到" in chinese


def test_a_missing_leg_is_told_of_in_both_languages(cli: Cli, ids: list[str]) -> None:
    with MemoryStore(cli.db, embedder=HashEmbedder(dim=8)) as store:
        store.index()
    for language, said in (("en", "without the vector leg"), ("zh", "缺少向量路")):
        shown = cli.shown("recall", "rain", "--embedder", "st:/nowhere/at/all", "--language", language)
        assert said in shown
        assert "rain rain rain" in shown


def test_stored_text_cannot_steer_the_terminal(cli: Cli) -> None:
    with MemoryStore(cli.db) as store:
        first = store.add(LIN, "rain " + STEERING, metadata={"k": STEERING})
        store.add(LIN, "rain " + STEERING + " again")
        store.record(LIN, [Message("user", "rain " + STEERING, name="x\x1b]0;title\x07")], "chat")
        trace = store.recall(LIN, "rain " + STEERING, trace=True).trace_id
    query = "rain " + STEERING
    for words in (
        ["recall", query, "--limit", "1", "--explain", "--trace"],
        ["recall", query, "--explain", "--metadata", "k=" + STEERING],
        ["search-messages", query, "--explain"],
        ["why-not", first.id, query],
        ["why-not", first.id, "snow" + STEERING, "--metadata", "k=" + STEERING + "other"],
        ["trace"],
        ["trace", "replay", trace],
    ):
        for language in ("en", "zh"):
            shown = cli.shown(*words, "--language", language)
            assert not set("\x1b\x07\x9b\r\u202e\u202c") & set(shown), words
            json.dumps(cli.answer(*words, "--language", language))


# --- why-not --------------------------------------------------------------------------------------------------


def test_why_not_says_it_in_both_languages(cli: Cli, ids: list[str]) -> None:
    english = cli.shown("why-not", ids[2], "rain")
    assert english.splitlines()[0] == f"{ids[2]} for “rain”:"
    assert "It holds none of the words that the text leg looked for: rain." in english
    assert "它不含文本路检索的任何词：rain。" in cli.shown("why-not", ids[2], "rain", "--language", "zh")
    assert "它被返回了，排在第 1 位。" in cli.shown("why-not", ids[0], "rain", MEMSTORE_LANGUAGE="zh")
    assert "the limit is 1" in cli.shown("why-not", ids[1], "rain", "--limit", "1")


def test_why_not_as_json(cli: Cli, ids: list[str]) -> None:
    why = cli.answer("why-not", ids[2], "rain", "--kind", "persona")
    assert set(why) == {"id", "layer", "query", "rank", "reasons", "recall"}
    assert (why["id"], why["layer"], why["query"], why["rank"]) == (ids[2], "memories", "rain", None)
    assert why["reasons"] == [
        {"code": "filter", "values": {"filter": "kinds", "asked": '["persona"]', "found": "episodic"}}
    ]
    assert cli.answer("why-not", ids[0], "rain")["rank"] == 1


def test_why_not_takes_the_options_of_both_searches(cli: Cli, ids: list[str]) -> None:
    [message] = cli.answer("record", "rain today", "--session", "chat")["ids"]
    for options, name in (
        (["--role", "assistant"], "roles"), (["--session", "other"], "session"), (["--metadata", "k=1"], "metadata"),
        (["--since", "2999-01-01"], "since"), (["--until", "2000-01-01"], "until"), (["--known-at", "2000-01-01"], "known_at"),
    ):  # fmt: skip
        [reason] = cli.answer("why-not", message, "rain", *options)["reasons"]
        assert (reason["code"], reason["values"]["filter"]) == ("filter", name)
    [reason] = cli.answer("why-not", ids[0], "rain", "--as-of", "2000-01-01")["reasons"]
    assert reason["values"]["filter"] == "as_of"
    assert cli.answer("why-not", ids[0], "rain", "--last", "7d")["rank"] == 1
    assert cli.answer("why-not", ids[0], "-rain", "--include-history")["rank"] == 1


def test_why_not_of_what_is_not_there_fails_alike(cli: Cli, ids: list[str]) -> None:
    missing = "01KDVDNA006WRP19W84FBAXQ8T"
    told = set()
    for row_id, user in ((missing, "lin"), (ids[0], "ben"), (missing, "ben")):
        result = cli("why-not", row_id, "rain", "--user", user)
        assert (result.exit_code, result.stdout) == (1, "")
        told.add(result.stderr.replace(row_id, "ID"))
    assert len(told) == 1
    assert cli("why-not", ids[0]).exit_code == 2
    assert cli("why-not", ids[0], "rain", "--limit", "-1").exit_code in (1, 2)


# --- trace ----------------------------------------------------------------------------------------------------


def test_a_trace_is_kept_listed_replayed_and_deleted(cli: Cli, ids: list[str]) -> None:
    assert cli.answer("trace") == {"traces": []}
    assert "no stored recalls" in cli.shown("trace")
    trace = cli.answer("recall", "rain", "--trace")["trace_id"]
    shown = cli.shown("recall", "rain", "--trace")
    assert "trace: " in shown
    listed = cli.answer("trace", "list")["traces"]
    assert len(listed) == 2
    mine = next(entry for entry in listed if entry["id"] == trace)
    assert set(mine) == {"id", "layer", "query", "asked_at", "hit_ids"}
    assert (mine["query"], mine["hit_ids"]) == ("rain", ids[:2])
    assert mine["asked_at"].endswith("Z")
    assert trace in cli.shown("trace")
    assert len(cli.answer("trace", "--limit", "1")["traces"]) == 1

    found = cli.answer("trace", "replay", trace)
    assert set(found) == {"trace", "recall", "differences"}
    assert found["differences"] == []
    assert "the answer is the same" in cli.shown("trace", "replay", trace)
    assert "结果与当时相同" in cli.shown("trace", "replay", trace, "--language", "zh")

    assert cli.answer("trace", "delete", trace) == {"deleted": trace}
    for action in ("replay", "delete"):
        result = cli("trace", action, trace)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "memstore trace lists them" in result.stderr


def test_a_replay_that_differs_says_how_and_exits_with_1(cli: Cli, ids: list[str]) -> None:
    trace = cli.answer("recall", "rain", "--trace")["trace_id"]
    cli.answer("delete", ids[0])
    result = cli("trace", "replay", trace)
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(d["id"], d["rank_then"], d["rank_now"]) for d in found["differences"]] == [
        (ids[0], 1, None),
        (ids[1], 2, 1),
    ]
    for language, parts in (
        ("en", ["2 differences:", f"{ids[0]} 1 → –  It was deleted at", f"{ids[1]} 2 → 1  It moved."]),
        ("zh", ["2 处不同：", "删除", "名次变了"]),
    ):
        result = cli("trace", "replay", trace, "--format", "text", "--language", language)
        assert result.exit_code == 1
        assert all(part in result.stdout for part in parts), result.stdout


def test_relative_times_of_a_trace_stay_what_they_were(cli: Cli, ids: list[str]) -> None:
    trace = cli.answer("recall", "rain", "--last", "7d", "--trace")["trace_id"]
    [row] = cli.answer("sql", "SELECT question ->> '$.since' AS since FROM recall_traces")["rows"]
    assert row["since"].endswith("+00:00")
    assert cli.answer("trace", "replay", trace)["differences"] == []


@pytest.mark.parametrize(
    "words", [["replay"], ["delete"], ["list", "01KDVDNA006WRP19W84FBAXQ8T"], ["forget", "x"]]
)
def test_a_wrong_call_of_trace_exits_with_2(cli: Cli, words: list[str]) -> None:
    result = cli("trace", *words)
    assert (result.exit_code, result.stdout) == (2, "")


def test_traces_of_others_are_not_listed_nor_replayed(cli: Cli, ids: list[str]) -> None:
    trace = cli.answer("recall", "rain", "--trace")["trace_id"]
    assert cli.answer("trace", "--user", "ben") == {"traces": []}
    assert cli("trace", "replay", trace, "--user", "ben").exit_code == 1
    assert cli.answer("trace", "replay", trace)["differences"] == []
