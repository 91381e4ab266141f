"""Times on the command line: natural ranges in the store's zone, what was known, what changed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click
import pytest

from cli_support import Cli
from memstore import MemoryStore, Scope, Settings
from memstore.cli.inputs import times_of
from memstore.testing import ManualClock

KIRITIMATI = "Pacific/Kiritimati"  # 14 hours ahead of UTC: its days are not UTC's
NOW = datetime.now(UTC)
LIN = Scope("default", "lin", "default")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """A store far east. One memory: added ten days ago and updated five days ago."""
    clock = ManualClock(NOW - timedelta(days=10))
    settings = Settings(durability="process", timezone=KIRITIMATI)
    with MemoryStore(tmp_path / "memory.db", clock=clock, settings=settings) as store:
        made = store.add(LIN, "tea at four", kind="persona")
        clock.set(NOW - timedelta(days=5))
        store.update(LIN, made.id, content="tea at five", priority=80)
    return Cli(tmp_path / "memory.db")


def texts(document: dict, key: str = "hits") -> list[str]:
    return [item["content"] for item in document[key]]


def test_last_is_a_span_before_now(cli: Cli) -> None:
    cli.answer(
        "record", "tea two days ago", "--session", "s", "--created-at", str(int(NOW.timestamp()) - 2 * 86400)
    )
    cli.answer(
        "record", "tea last month", "--session", "s", "--created-at", str(int(NOW.timestamp()) - 30 * 86400)
    )
    search = lambda *args: texts(cli.answer("search-messages", "tea", *args))
    assert search("--last", "3d") == ["tea two days ago"]
    assert search("--last", "1周") == ["tea two days ago"]
    assert search("--last", "12h") == []
    assert sorted(search("--last", "8w")) == ["tea last month", "tea two days ago"]
    assert search("--since", "3天前") == ["tea two days ago"]
    assert search("--until", "3d ago") == ["tea last month"]
    assert search("--last", "8w", "--until", "3d ago") == ["tea last month"]
    assert search("--last", "8w", "--known-at", "yesterday") == []
    assert texts(cli.answer("recall", "tea", "--last", "6d")) == ["tea at five"]
    assert texts(cli.answer("recall", "tea", "--last", "4d")) == []


def test_what_was_true_and_known_at_a_time(cli: Cli) -> None:
    recall = lambda *args: texts(cli.answer("recall", "tea", *args))
    listed = lambda *args: texts(cli.answer("list", *args), "memories")
    assert recall() == listed() == ["tea at five"]
    for ask in (recall, listed):
        assert ask("--known-at", "now") == ["tea at five"]
        assert ask("--known-at", "7d ago") == ["tea at four"]
        assert ask("--known-at", "11d ago") == []
        assert ask("--as-of", "7天前") == ["tea at four"]
        assert ask("--as-of", "现在", "--known-at", "7d ago") == ["tea at four"]
        assert ask("--as-of", "11d ago", "--known-at", "now") == []
    assert listed("--known-at", "7d ago", "--all") == ["tea at four"]


def test_a_day_begins_at_midnight_in_the_zone_of_the_store(cli: Cli) -> None:
    zone = ZoneInfo(KIRITIMATI)
    day = (NOW - timedelta(days=5)).astimezone(zone).date()
    change = cli.answer("changes", "--since", str(day), "--until", str(day + timedelta(days=1)))["changes"]
    assert [c["what"] for c in change] == ["updated"]
    read = times_of({"since": "today", "until": None, "last": None}, zone)
    assert set(read) == {"since"}
    assert read["since"].astimezone(zone).time() == datetime.min.time()


def test_changes_as_json(cli: Cli) -> None:
    answer = cli.answer("changes", "--last", "2w")
    assert [(c["what"], c["version"]) for c in answer["changes"]] == [("added", 1), ("updated", 2)]
    assert answer["changes"][1]["before"]["content"] == "tea at four"
    assert answer["changes"][1]["after"]["content"] == "tea at five"
    assert answer["next_cursor"] is None
    first = cli.answer("changes", "--last", "2w", "--limit", "1")
    rest = cli.answer("changes", "--last", "2w", "--cursor", first["next_cursor"])
    assert first["changes"] + rest["changes"] == answer["changes"]
    assert cli.answer("changes", "--last", "2w", "--kind", "episodic")["changes"] == []
    assert cli.answer("changes", "--since", "2000-01", "--until", "2001-01")["changes"] == []


def test_changes_as_text(cli: Cli) -> None:
    long = cli.answer("add", "old " * 60, "--kind", "persona")
    cli.answer("edit", long["id"], "--content", "new\n" * 60)
    cli.answer("delete", long["id"])
    shown = cli.shown("changes", "--last", "2w")
    head, *rows = [line.rstrip() for line in shown.splitlines()]
    assert head.split() == ["changed", "what", "id", "version", "memory"]
    assert [row.split()[1] for row in rows] == ["added", "updated", "added", "updated", "deleted"]
    assert rows[1].endswith("tea at four → tea at five; priority 50 → 80")
    assert rows[0].startswith((NOW - timedelta(days=10)).strftime("%Y-%m-%dT%H:%M"))
    assert "… → new" in rows[3]
    assert all(len(row) < 300 for row in rows)
    assert "there are more: --cursor" in cli.shown("changes", "--last", "2w", "--limit", "1")
    assert cli.shown("changes", "--since", "2000-01", "--until", "2001-01") == "no changes\n"


def test_text_that_could_steer_a_terminal_is_escaped(cli: Cli) -> None:
    made = cli.answer("add", "red \x1b[31m tea")
    cli.answer("edit", made["id"], "--content", "blue \x1b[34m tea")
    assert "\x1b" not in cli.shown("changes", "--last", "1h")


@pytest.mark.parametrize(
    "call",
    [
        "recall tea --last 3y", "recall tea --last soon", "recall tea --last -7d", "recall tea --since soon",
        "recall tea --until 2026-13", "recall tea --as-of vorgestern", "recall tea --known-at 7d",
        "search-messages tea --last 7", "search-messages tea --known-at 大前天", "list --as-of 32d后", "list --known-at ?",
        "changes --since soon", "changes --last 999999999d", "changes --last 1d --until someday",
        "recall tea --last 7d --since today", "search-messages tea --last 7d --since today",
        "changes --last 7d --since today", "changes", "changes --until now",
    ],
)  # fmt: skip
def test_what_is_no_time_is_a_wrong_call_with_examples(cli: Cli, call: str) -> None:
    result = cli(*call.split(" "))
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert "--" in result.stderr
    assert any(example in result.stderr for example in ("7d", "3d ago", "leave one out", "outside the years"))


def test_the_option_that_was_wrong_is_named() -> None:
    for name in ("since", "until", "as_of", "known_at", "last"):
        with pytest.raises(click.BadParameter) as caught:
            times_of({name: "soon"}, ZoneInfo("UTC"))
        assert caught.value.param_hint == f"--{name.replace('_', '-')}"


def test_last_of_a_session_counts_messages(cli: Cli) -> None:
    for number in range(3):
        cli.answer("record", f"tea {number}", "--session", "s")
    document = cli.answer("sessions", "s", "--last", "2")
    assert [m["text"] for m in document["messages"]] == ["tea 1", "tea 2"]
    assert cli("sessions", "s", "--last", "7d").exit_code == 2


def test_the_forms_are_in_the_help(cli: Cli) -> None:
    for command in ("recall", "search-messages", "list", "changes"):
        text = " ".join(cli(command, "--help").stdout.split())
        assert "'3d ago' (今天, 昨天, 现在, 3天前)" in text
