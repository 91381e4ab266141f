"""The crash harness: it finds nothing wrong with the store, and everything wrong that is put before it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reliability_support import ROOT

HARNESS = ROOT / "scripts" / "crash_harness"
WITH_THIS_TREE = {**os.environ, "PYTHONPATH": str(ROOT)}


def crash(*arguments: str) -> tuple[int, dict, str]:
    """Run the harness; its exit code, its report, and what it said beside it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HARNESS), "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        env=WITH_THIS_TREE,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_sixty_kills_lose_nothing(tmp_path):
    """N: 60 processes killed with -9 in 3 rounds, at durability disk; the full form is ``scripts/crash --kills 1000``."""
    code, report, said = crash("--kills", "60", "--keep", str(tmp_path / "kept"))
    assert (report["violations"], code) == ([], 0), f"{said[-3000:]}\n{report}"
    assert report["kills"] == 60
    assert report["rounds"] == 3
    assert report["acknowledged"] > 100
    assert report["looks"]["killed"] > 3
    assert report["looks"]["rebuilt"] == 3
    assert sum(report["killed_at"].values()) == 60 * 2, "where each of two threads was"
    assert sum(report["killed_in_call"].values()) > 20, "most kills fall into a call"


def test_without_syncs_a_kill_loses_nothing_either(tmp_path):
    """N: 6 kills of 3 processes on one file at durability process."""
    code, report, said = crash(
        "--kills", "6", "--processes", "3", "--durability", "process", "--keep", str(tmp_path / "kept")
    )
    assert (report["violations"], code) == ([], 0), f"{said[-3000:]}\n{report}"


def test_a_writer_that_acknowledges_before_it_calls_is_caught(tmp_path):
    """The same run with a lie in it: whoever acknowledges what is not committed yet is found by the first kills."""
    code, report, said = crash("--kills", "30", "--lie", "--seed", "7", "--keep", str(tmp_path / "kept"))
    assert code == 1
    assert report["lost"] > 0
    assert all(violation.startswith("LOST") for violation in report["violations"])
    assert "seed 7" in said
    assert str(tmp_path / "kept") in said
    assert (tmp_path / "kept" / "round-000" / "store.db").exists(), "what was found is kept"


# --- the oracle ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A round of 120 calls that nobody killed."""
    folder = tmp_path_factory.mktemp("round")
    code = f"import sys; sys.path.insert(0, {str(HARNESS)!r}); from worker import rehearse; rehearse(sys.argv[1], '11', 120)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(folder)], check=True, env=WITH_THIS_TREE)
    return folder


def ask(folder: Path, mode: str = "settled") -> list[str]:
    done = subprocess.run(
        [sys.executable, str(HARNESS / "oracle.py"), str(folder), mode],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["violations"]


def sql(folder: Path, *statements: str, of: str = "store.db") -> None:
    """By the standard library's SQLite, in another process."""
    script = (
        "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "assert all(c.execute(s).rowcount != 0 for s in sys.argv[2:])"
    )
    subprocess.run([sys.executable, "-c", script, str(folder / of), *statements], check=True)


def journal_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "acknowledged.jsonl").read_bytes().splitlines()]


def rewrite_journal(folder: Path, change: Callable[[list[dict]], list[dict]]) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in change(journal_of(folder)))
    (folder / "acknowledged.jsonl").write_text(lines, encoding="utf-8")


def acknowledged(folder: Path, op: str, **wanted: object) -> dict:
    """The first acknowledged call of a kind, as it began, with the ids it was given."""
    lines = journal_of(folder)
    done = {line["call"]: line for line in lines if line["e"] == "done"}
    return next(
        {**line, **{k: v for k, v in done[line["call"]].items() if k not in ("e", "call")}}
        for line in lines
        if line["e"] == "begin" and line["op"] == op and line["call"] in done
        and all(line[key] == value for key, value in wanted.items())
    )  # fmt: skip


def a_recorded(folder: Path) -> str:
    """A message that nobody deleted."""
    gone = {line["deletes"] for line in journal_of(folder) if "deletes" in line}
    assert "all" not in gone
    return next(
        one
        for line in journal_of(folder)
        if line["e"] == "done" and "ids" in line
        for one in line["ids"]
        if one not in gone
    )


def a_message_is_lost(folder: Path) -> None:
    sql(folder, f"DELETE FROM messages WHERE id = '{a_recorded(folder)}'")


def a_line_is_lost(folder: Path) -> None:
    wanted = a_recorded(folder).encode()
    for path in (folder / "store.db.fallback").iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if wanted not in line))


def a_message_is_changed(folder: Path) -> None:
    sql(
        folder,
        f"""UPDATE messages SET content = replace(content, '⟦', '!⟦') WHERE id = '{a_recorded(folder)}'""",
    )


def a_message_is_there_twice(folder: Path) -> None:
    columns = "agent_id, team_id, user_id, session, role, content, source_kind, trust, created_at, recorded_at, checksum"
    sql(
        folder,
        f"INSERT INTO messages (slot, arrival, id, pos, {columns})"
        f" SELECT slot + 90000, arrival + 90000, 'TWICE', pos + 90000, {columns} FROM messages WHERE id = '{a_recorded(folder)}'",
    )


def part_of_a_call_is_there(folder: Path) -> None:
    """Of a call that nobody acknowledged."""
    call = acknowledged(folder, "transcript")
    several = next(
        line
        for line in journal_of(folder)
        if line["e"] == "begin" and len(line.get("said", ())) > 1 and line["op"] == "record"
    )
    assert call
    rewrite_journal(
        folder, lambda lines: [x for x in lines if x["e"] != "done" or x["call"] != several["call"]]
    )
    sql(folder, f"DELETE FROM messages WHERE content LIKE '%⟦{several['call']} 1/%'")


def a_refused_call_is_stored(folder: Path) -> None:
    call = acknowledged(folder, "record")["call"]
    rewrite_journal(
        folder,
        lambda lines: [{**x, **({"must_fail": True} if x["e"] == "begin" else {})} if x["call"] == call else x for x in lines],
    )  # fmt: skip


def a_deletion_is_undone(folder: Path) -> None:
    sql(
        folder,
        f"UPDATE messages SET state = 'live' WHERE id = '{acknowledged(folder, 'delete message')['deletes']}'",
    )


def a_message_is_deleted_by_nobody(folder: Path) -> None:
    sql(folder, f"UPDATE messages SET state = 'deleted', live = 0 WHERE id = '{a_recorded(folder)}'")


def a_cleared_window_is_back(folder: Path) -> None:
    call = acknowledged(folder, "clear session")
    sql(folder, f"UPDATE messages SET live = 1 WHERE session = '{call['clears']}'")


def a_deleted_session_is_back(folder: Path) -> None:
    sql(
        folder,
        f"UPDATE messages SET hidden = 0 WHERE session = '{acknowledged(folder, 'delete session')['hides']}'",
    )


def a_title_is_lost(folder: Path) -> None:
    hidden = {line["hides"] for line in journal_of(folder) if "hides" in line}
    call = next(
        line
        for line in journal_of(folder)
        if line["e"] == "begin" and line.get("titles") and line["titles"] not in hidden
    )
    sql(folder, f"UPDATE sessions SET title = 'an older one' WHERE session = '{call['titles']}'")


def a_branch_is_another(folder: Path) -> None:
    call = acknowledged(folder, "transcript")
    sql(
        folder, f"UPDATE messages SET live = 0, branch = 9 WHERE session = '{call['session']}' AND branch = 0"
    )


def an_update_is_lost(folder: Path) -> None:
    call = acknowledged(folder, "update memory")
    sql(
        folder,
        f"UPDATE memory_versions SET content = 'older' WHERE id = '{call['id']}' AND version = {call['version']}",
    )


def a_superseded_version_is_live(folder: Path) -> None:
    call = acknowledged(folder, "update memory")
    sql(
        folder,
        f"UPDATE memory_versions SET state = 'live' WHERE id = '{call['id']}' AND version = {call['version'] - 1}",
    )


def words_are_not_indexed(folder: Path) -> None:
    sql(folder, "DELETE FROM text_messages_1 WHERE rowid = (SELECT max(rowid) FROM text_messages_1)")


def a_vector_has_no_row(folder: Path) -> None:
    sql(folder, "INSERT INTO vectors_1_messages SELECT 5, vector, checksum FROM vectors_1_messages LIMIT 1")


def a_vector_is_damaged(folder: Path) -> None:
    sql(folder, "UPDATE vectors_1_messages SET vector = zeroblob(64)")


def a_vector_is_lost(folder: Path) -> None:
    sql(folder, "DELETE FROM vectors_1_messages")


def a_line_was_never_adopted(folder: Path) -> None:
    call = acknowledged(folder, "record")["call"]
    rewrite_journal(folder, lambda lines: [x for x in lines if x["e"] != "done" or x["call"] != call])
    sql(folder, f"DELETE FROM messages WHERE content LIKE '%⟦{call} %'")


FOUND = {
    a_message_is_lost: "acknowledged messages are not in the database",
    a_line_is_lost: "have no line",
    a_message_is_changed: "is not what was said",
    a_message_is_there_twice: "is stored twice",
    part_of_a_call_is_there: "of one call are stored",
    a_refused_call_is_stored: "was refused and stored all the same",
    a_deletion_is_undone: "and it is back",
    a_message_is_deleted_by_nobody: "nobody deleted it",
    a_cleared_window_is_back: "is in the live window again",
    a_deleted_session_is_back: "is not hidden any more",
    a_title_is_lost: "the title of",
    a_branch_is_another: "other than its client's last list",
    an_update_is_lost: "the acknowledged version is not in the database",
    a_superseded_version_is_live: "is live beside a later one",
    words_are_not_indexed: "1 rows are missing",
    a_vector_has_no_row: "vectors without a row",
    a_vector_is_damaged: "is damaged",
    a_vector_is_lost: "do not wait for one",
    a_line_was_never_adopted: "was never adopted",
}


def test_the_oracle_finds_nothing_where_nothing_is_wrong(sound):
    assert ask(sound) == []


@pytest.mark.parametrize("spoil", FOUND, ids=lambda spoil: spoil.__name__)
def test_the_oracle_finds_what_is_wrong(sound, tmp_path, spoil):
    folder = tmp_path / "round"
    shutil.copytree(sound, folder)
    spoil(folder)
    violations = ask(folder)
    assert any(FOUND[spoil] in violation for violation in violations), violations


def test_a_store_that_differs_from_its_fallback_is_found(sound, tmp_path):
    folder = tmp_path / "round"
    shutil.copytree(sound, folder)
    shutil.copy(folder / "store.db", folder / "rebuilt.db")
    assert ask(folder, "rebuilt") == []
    sql(folder, "UPDATE sessions SET pinned = 1 - pinned", of="rebuilt.db")
    (violation,) = ask(folder, "rebuilt")
    assert "sessions are missing or differ" in violation
