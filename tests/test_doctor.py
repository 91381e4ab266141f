"""Doctor finds what is wrong and names the command; reindex mends what is derived and touches nothing else."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cli_support import Cli
from memstore.config import Settings
from memstore.errors import EmbedderUnavailable, EmbeddingError, StoreMissing
from memstore.fallback import day_files, encode, folder_of
from memstore.index import LEASE_S, MAX_ATTEMPTS
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import DoctorReport, Finding, Message, Scope
from reliability_support import (
    COMPANIONS,
    SCOPE,
    START,
    assert_sound,
    become_nobody,
    copy_database,
    dump,
    file_hashes,
    give_to_nobody,
    in_fork,
    lines_of,
    open_store,
    report_of,
    say,
    start_child,
)

OTHER = Scope("team two", "user", "agent")


@pytest.fixture
def store(tmp_path):
    """Two teams, both layers, a deleted row in each, an older version, a row without words, all embedded."""
    with MemoryStore(
        tmp_path / "store.db",
        HashEmbedder(16),
        ManualClock(START),
        Settings(timezone="UTC", durability="process"),
    ) as opened:
        for scope in (SCOPE, OTHER):
            ids = say(opened, *(f"message {n} 银行卡" for n in range(12)), "...", scope=scope)
            opened.delete(scope, ids[3])
            kept = [opened.add(scope, f"memory {n} 宠物").id for n in range(8)]
            opened.update(scope, kept[0], content="memory changed")
            opened.delete(scope, kept[5])
        opened.index()
        assert_sound(opened)
        yield opened


def canonical(store: MemoryStore) -> str:
    """Every row of every table that is not derived."""
    with store._storage.exclusive_connection() as connection:
        return json.dumps(
            {
                table: connection.execute(f"SELECT * FROM {table}").fetchall()
                for table in (
                    "messages",
                    "memories",
                    "memory_versions",
                    "sessions",
                    "teams",
                    "members",
                    "owners",
                    "sources",
                )
            }
        )


def answers(store: MemoryStore) -> list:
    return [
        [(hit.id, hit.score) for hit in ask(scope, query, 20)]
        for scope in (SCOPE, OTHER)
        for ask in (store.recall, store.search_messages)
        for query in ("memory 宠物", "message 7", "银行卡", "changed")
    ]


def table(store: MemoryStore, layer: str, team: str = "team") -> str:
    with store._storage.exclusive_connection() as connection:
        return connection.execute(
            "SELECT table_name FROM v_text_indexes WHERE team_id = ? AND layer = ?", (team, layer)
        ).fetchall()[0][0]


def run(store: MemoryStore, *statements: str) -> None:
    with store._storage.exclusive_connection() as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def said_of(report: DoctorReport) -> list[tuple[str, str, str | None]]:
    """What a report says, without the note that there is no backup yet."""
    return [(f.check, f.severity, f.repair) for f in report.findings if f.check != "backups"]


def errors(store: MemoryStore) -> list[Finding]:
    return [f for f in store.doctor().findings if f.severity == "error"]


# --- damage to what is derived: found, named, mended ------------------------------------------------------


def rows_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)} WHERE rowid % 3 = 0")


def one_row_gone(store: MemoryStore, layer: str) -> None:
    name = table(store, layer)
    run(store, f"DELETE FROM {name} WHERE rowid = (SELECT max(rowid) FROM {name})")


def all_rows_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)}")


def a_stray_row(store: MemoryStore, layer: str) -> None:
    run(store, f"INSERT INTO {table(store, layer)} (rowid, words, literal) VALUES (99, 'stray', 'stray')")


def a_deleted_row_back(store: MemoryStore, layer: str) -> None:
    rows = {"messages": "messages", "memories": "memory_versions"}[layer]
    run(
        store,
        f"INSERT INTO {table(store, layer)} (rowid, words, literal)"
        f" SELECT slot, 'secret', 'secret' FROM {rows} WHERE state = 'deleted' AND team_id = 'team'",
    )


def index_data_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)}_data WHERE id > 10")


def all_index_data_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)}_data")


def index_data_overwritten(store: MemoryStore, layer: str) -> None:
    run(store, f"UPDATE {table(store, layer)}_data SET block = zeroblob(length(block)) WHERE id > 10")


def averages_wrong(store: MemoryStore, layer: str) -> None:
    run(store, f"UPDATE {table(store, layer)}_data SET block = x'00' WHERE id = 1")


def content_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)}_content WHERE rowid % 2 = 0")


def content_changed(store: MemoryStore, layer: str) -> None:
    run(store, f"UPDATE {table(store, layer)}_content SET c0 = 'other words' WHERE id % 2 = 0")


def lengths_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM {table(store, layer)}_docsize")


def a_shadow_table_dropped(store: MemoryStore, layer: str) -> None:
    run(store, f"DROP TABLE {table(store, layer)}_data")


def the_settings_table_dropped(store: MemoryStore, layer: str) -> None:
    run(store, f"DROP TABLE {table(store, layer)}_config")


def the_table_dropped(store: MemoryStore, layer: str) -> None:
    run(store, f"DROP TABLE {table(store, layer)}")


TEXT_DAMAGE = (
    rows_gone, one_row_gone, all_rows_gone, a_stray_row, a_deleted_row_back, index_data_gone, all_index_data_gone, index_data_overwritten,
    averages_wrong, content_gone, content_changed, lengths_gone, a_shadow_table_dropped, the_table_dropped,
)  # fmt: skip


def vectors_gone(store: MemoryStore, layer: str) -> None:
    run(store, f"DELETE FROM vectors_1_{layer} WHERE slot % 2 = 0")


def bytes_flipped(store: MemoryStore, layer: str) -> None:
    with store._storage.exclusive_connection() as connection:
        slot, vector = connection.execute(f"SELECT slot, vector FROM vectors_1_{layer} LIMIT 1").fetchall()[0]
        changed = bytes([vector[0] ^ 1]) + vector[1:]
        connection.execute(
            f"UPDATE vectors_1_{layer} SET vector = ? WHERE slot = ?", (changed, slot)
        ).fetchall()


def a_vector_too_short(store: MemoryStore, layer: str) -> None:
    run(store, f"UPDATE vectors_1_{layer} SET vector = x'00000000'")


def another_rows_vector(store: MemoryStore, layer: str) -> None:
    run(
        store,
        f"UPDATE vectors_1_{layer} SET vector = (SELECT vector FROM vectors_1_{layer} ORDER BY slot LIMIT 1)"
        f" WHERE slot = (SELECT max(slot) FROM vectors_1_{layer})",
    )


def a_vector_of_nan(store: MemoryStore, layer: str) -> None:
    with store._storage.exclusive_connection() as connection:
        nan = np.full(16, np.nan, dtype=np.float32).tobytes()
        connection.execute(
            f"UPDATE vectors_1_{layer} SET vector = ? WHERE slot = (SELECT min(slot) FROM vectors_1_{layer})",
            (nan,),
        ).fetchall()


def a_stray_vector(store: MemoryStore, layer: str) -> None:
    run(store, f"INSERT INTO vectors_1_{layer} SELECT 99, vector, checksum FROM vectors_1_{layer} LIMIT 1")


def a_deleted_rows_vector(store: MemoryStore, layer: str) -> None:
    rows = {"messages": "messages", "memories": "memory_versions"}[layer]
    run(
        store,
        f"INSERT INTO vectors_1_{layer} SELECT m.slot, v.vector, v.checksum FROM {rows} m,"
        f" (SELECT * FROM vectors_1_{layer} LIMIT 1) v WHERE m.state = 'deleted'",
    )


VECTOR_DAMAGE = (
    vectors_gone, bytes_flipped, a_vector_too_short, another_rows_vector, a_vector_of_nan, a_stray_vector, a_deleted_rows_vector,
)  # fmt: skip


@pytest.mark.parametrize(("layer", "reopened"), [("messages", True), ("memories", False)])
@pytest.mark.parametrize("damage", [*TEXT_DAMAGE, *VECTOR_DAMAGE], ids=lambda d: d.__name__)
def test_damage_of_an_index_is_found_and_mended(store, damage, layer, reopened):
    wanted, rows = answers(store), canonical(store)
    damage(store, layer)
    if reopened:
        store.close()
        store = MemoryStore(store.path, HashEmbedder(16), ManualClock(START))
    found = errors(store)
    assert ("text index" if damage in TEXT_DAMAGE else "vectors") in {f.check for f in found}
    if damage in VECTOR_DAMAGE:
        assert {f.check for f in found} == {"vectors"}
    assert {f.repair for f in found} == {"memstore reindex"}
    assert any(layer in f.message for f in found)
    assert not store.doctor().ok
    assert errors(store) == found, "looking changes nothing"
    for _ in range(2):
        store.reindex()
        assert errors(store) == []
        assert canonical(store) == rows
        assert answers(store) == wanted
    store.close()
    with MemoryStore(store.path, HashEmbedder(16), ManualClock(START)) as again:
        assert_sound(again)
        assert answers(again) == wanted


def test_an_index_without_its_settings_is_found_and_mended(store):
    wanted = answers(store)
    the_settings_table_dropped(store, "messages")
    store.close()  # an open connection has read the settings before
    with MemoryStore(store.path, HashEmbedder(16), ManualClock(START)) as again:
        assert "text index" in {f.check for f in errors(again)}
        again.reindex()
        assert_sound(again)
        assert answers(again) == wanted


def test_strays_of_a_team_whose_rows_are_all_gone_are_mended(store):
    store.delete_all(OTHER)
    assert errors(store) == []
    name = table(store, "messages", "team two")
    run(store, f"INSERT INTO {name} (rowid, words, literal) VALUES (99, 'stray', 'stray')")
    assert "text index" in {f.check for f in errors(store)}
    store.reindex()
    assert errors(store) == []


def test_an_index_that_is_not_listed_is_mended(store):
    """``text_indexes`` says which table holds which team's rows; without the entry a team finds nothing."""
    wanted = answers(store)
    run(store, f"DELETE FROM text_indexes WHERE table_name = '{table(store, 'messages')}'")
    assert [(f.check, f.repair) for f in errors(store)] == [("text index", "memstore reindex")]
    store.reindex()
    assert errors(store) == []
    assert answers(store) == wanted


def test_a_waiting_list_with_entries_of_no_row_is_mended(store):
    run(store, "INSERT INTO pending_vectors (generation, layer, slot) VALUES (1, 'messages', 99)")
    store.reindex()
    assert store.index().pending == 0
    assert [f for f in store.doctor().findings if f.check == "vectors"] == []


def test_several_damages_at_once(store):
    wanted, rows = answers(store), canonical(store)
    for layer in ("messages", "memories"):
        rows_gone(store, layer)
        a_stray_row(store, layer)
        bytes_flipped(store, layer)
        a_stray_vector(store, layer)
    assert {f.check for f in errors(store)} == {"text index", "vectors"}
    assert len(errors(store)) == 4
    store.reindex()
    assert errors(store) == []
    assert (canonical(store), answers(store)) == (rows, wanted)


# --- what else doctor sees --------------------------------------------------------------------------------


def test_a_sound_store_is_ok(store):
    report = store.doctor()
    assert report.ok
    assert [(f.check, f.severity, f.repair) for f in report.findings] == [
        ("backups", "info", "memstore backup")
    ]
    assert report.counts == {
        "teams": 2, "users": 2, "sessions": 2, "messages": 24, "memories": 14, "pending_vectors": 0, "refused_vectors": 0,
        "queued_jobs": 2, "vectors": 2 * (11 + 8),
    }  # fmt: skip
    assert set(report.versions) == {"memstore", "python", "apsw", "sqlite", "sqlite-vec", "schema"}
    assert report.place["path"] == str(store.path)
    assert report.place["database_bytes"] == store.path.stat().st_size
    assert report.place["log_bytes"] == Path(f"{store.path}-wal").stat().st_size
    assert report.place["free_bytes"] > 0


def test_an_empty_store_is_ok(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        report = store.doctor()
        assert (report.ok, report.findings) == (True, ())
        assert set(report.counts.values()) == {0}
        store.reindex()
        assert store.doctor().findings == ()


def test_looking_writes_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        say(store, "x")

    def work() -> None:
        with open_store(path) as store:
            store.doctor()

    before = file_hashes(tmp_path)
    assert in_fork(work) == 0
    assert file_hashes(tmp_path) == before


def test_a_tokenizer_that_changed_is_named(store):
    run(store, """UPDATE text_indexes SET tokenizer = '{"cutter": "jieba 0.1"}' WHERE layer = 'messages'""")
    found = errors(store)
    assert [(f.check, f.repair) for f in found] == [("tokenizer", "memstore reindex")]
    assert "jieba 0.1" in found[0].message
    store.reindex()
    assert_sound(store)


def test_another_embedder_is_named_and_changed_over_to(store):
    path = store.path
    store.close()
    with MemoryStore(path, HashEmbedder(24, model="other"), ManualClock(START)) as changed:
        report = changed.doctor()
        assert report.ok
        assert said_of(report) == [("embedder", "warning", "memstore reindex")]
        assert "other" in report.findings[0].message
        changed.reindex()
        assert_sound(changed)
        assert changed.doctor().counts["vectors"] == 2 * (11 + 8)


def test_a_model_that_cannot_be_loaded_is_named(store):
    path = store.path
    store.close()

    class Missing:
        @property
        def identity(self):
            raise EmbedderUnavailable("no such model")

        def embed_documents(self, given):
            raise EmbedderUnavailable("no such model")

        embed_query = embed_documents

    with MemoryStore(path, Missing(), ManualClock(START)) as without:
        found = without.doctor()
        assert found.ok
        assert said_of(found) == [("embedder", "warning", None)]
        assert "no such model" in found.findings[0].message


def test_rows_that_wait_and_rows_that_were_refused(tmp_path):
    class Spoiled(HashEmbedder):
        def embed_documents(self, given):
            rows = super().embed_documents(given).copy()
            rows[[n for n, text in enumerate(given) if "spoil" in text]] = np.nan
            return rows

    with MemoryStore(tmp_path / "store.db", Spoiled(8)) as store:
        say(store, "one", "spoil me")
        report = store.doctor()
        assert report.ok
        assert said_of(report) == [("vectors", "info", "memstore index")]
        assert report.counts["pending_vectors"] == 2
        store.index()
        report = store.doctor()
        assert report.ok
        assert said_of(report) == [("vectors", "info", "memstore reindex")]
        assert (report.counts["pending_vectors"], report.counts["refused_vectors"]) == (0, 1)


def test_a_job_that_gave_up_is_shown(tmp_path):
    clock = ManualClock(START)

    class Down(HashEmbedder):
        def embed_documents(self, given):
            raise EmbedderUnavailable("the model server is down")

    with MemoryStore(tmp_path / "store.db", Down(8), clock) as store:
        say(store, "x")
        for _ in range(MAX_ATTEMPTS):
            assert not [f for f in store.doctor().findings if f.check == "queue"]
            with pytest.raises(EmbeddingError):
                store.index()
            clock.advance(LEASE_S * 100)
        found = [f for f in store.doctor().findings if f.check == "queue"]
        assert [(f.severity, f.repair) for f in found] == [("warning", "memstore index")]
        assert "the model server is down" in found[0].message


def test_a_job_that_gave_up_is_gone_once_its_work_is_done(tmp_path):
    clock = ManualClock(START)
    with MemoryStore(tmp_path / "store.db", HashEmbedder(8), clock) as store:
        say(store, "x")
        run(
            store,
            "UPDATE jobs SET state = 'dead', last_error = 'the model server was down' WHERE kind = 'index'",
        )
    with MemoryStore(tmp_path / "store.db", HashEmbedder(8), clock) as store:
        say(store, "y")
        assert store.index().pending == 0
        assert [f for f in store.doctor().findings if f.check == "queue"] == [], "the work was done"


@pytest.mark.parametrize(
    "name", ["store.db", "store.db-wal", "store.db-shm", "store.db.fallback", "2026-03-01.jsonl"]
)
def test_files_that_others_may_read_are_named(store, name):
    say(store, "x")
    path = store.path
    known = [*(Path(f"{path}{c}") for c in COMPANIONS), folder_of(path), *day_files(folder_of(path))]
    file = next(p for p in known if p.name == name)
    file.chmod(0o755 if file.is_dir() else 0o644)
    report = store.doctor()
    assert report.ok
    found = [f for f in report.findings if f.severity != "info"]
    assert [(f.check, f.severity) for f in found] == [("file modes", "warning")]
    assert name in found[0].message
    assert found[0].repair is not None
    assert found[0].repair.startswith("chmod")
    file.chmod(0o700 if file.is_dir() else 0o600)
    assert_sound(store)


def test_broken_lines_of_the_fallback_are_named_by_file_and_number(store):
    file = day_files(folder_of(store.path))[0]
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"message", b"massage", 2)
    file.write_bytes(b"".join(lines))
    report = store.doctor()
    assert report.ok, "the database holds the row"
    found = [f for f in report.findings if f.check == "fallback"]
    assert any("2026-03-01.jsonl line 3" in f.message and "checksum" in f.message for f in found)
    assert any("1 messages have no line" in f.message for f in found)


def test_many_broken_lines_are_not_all_shown(store):
    file = day_files(folder_of(store.path))[0]
    with file.open("ab") as out:
        out.write(b"garbage\n" * 500)
    assert 1 <= len(store.doctor().findings) <= 15


def test_a_lost_day_file_is_a_warning(store):
    day_files(folder_of(store.path))[0].unlink()
    report = store.doctor()
    assert report.ok
    assert any("26 messages have no line" in f.message for f in report.findings)


def test_lines_that_are_not_in_the_database_yet(store):
    line = {k: v for k, v in lines_of(store.path)[1].operation.items() if k != "unit"}
    with day_files(folder_of(store.path))[0].open("ab") as out:
        out.write(encode({**line, "id": "01KJMNW3XXXXXXXXXXXXXXXXXX", "client_id": None, "n": 99, "pos": 40}))
    report = store.doctor()
    assert report.ok
    assert said_of(report) == [("fallback", "warning", "memstore doctor")]
    assert "not in the database yet" in report.findings[0].message
    path = store.path
    store.close()
    with open_store(path, ManualClock(START)) as again:
        assert again.adopted == 1
        assert_sound(again)


def test_a_row_that_vanished_from_the_database_is_an_error(store):
    run(store, "DELETE FROM messages WHERE slot = (SELECT min(slot) FROM messages)")
    found = errors(store)
    assert {f.check for f in found} >= {"fallback", "text index"}
    assert any(
        "1 lines of the fallback have no row" in f.message and "recover" in (f.repair or "") for f in found
    )


def test_a_broken_reference_is_an_error(store):
    run(store, "PRAGMA foreign_keys = OFF", "DELETE FROM memories WHERE id = (SELECT min(id) FROM memories)")
    assert errors(store)[0].check == "constraints"


def test_a_damaged_table_is_an_error_and_never_mended_by_itself(tmp_path):
    """A page of ``messages`` overwritten, from another process while no one has the file open."""
    path = tmp_path / "store.db"
    with open_store(path, durability="process") as store:
        say(store, *(f"message {n} " * 30 for n in range(200)))
        with store._storage.exclusive_connection() as connection:
            root = connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_arrival'"
            ).fetchall()[0][0]
    with path.open("r+b") as file:
        file.seek((root - 1) * 8192 + 200)
        file.write(b"\xff" * 2_000)
    before = file_hashes(tmp_path)
    with open_store(path) as store:
        report = store.doctor()
        assert not report.ok
        assert {f.check for f in report.findings} == {"tables"}
        assert all("recover" in (f.repair or "") for f in report.findings)
    assert file_hashes(tmp_path) == before


def test_doctor_while_others_write_says_nothing_wrong(tmp_path):
    """N: 40 looks while two processes write."""
    path = tmp_path / "store.db"
    open_store(path).close()
    children = [start_child("child_write", path, number, tmp_path) for number in range(2)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    with open_store(path) as store:
        for _ in range(40):
            wrong = [f for f in store.doctor().findings if f.severity == "error" or "no line" in f.message]
            assert wrong == []
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    with open_store(path) as store:
        assert_sound(store)
        assert store.count(Scope("team", "u0", "agent"))["messages"] > 0


def test_vacuum_and_reindex_keep_rows_and_index_together(tmp_path):
    """Add ten, delete five, VACUUM; a word of the eighth finds the eighth alone."""
    path = tmp_path / "store.db"
    with MemoryStore(path, HashEmbedder(16)) as store:
        messages = say(store, *(f"word{'abcdefghij'[n]} said" for n in range(10)))
        memories = [store.add(SCOPE, f"word{'abcdefghij'[n]} known").id for n in range(10)]
        store.index()
        for one in (*messages[:5], *memories[:5]):
            store.delete(SCOPE, one)
        for step in (lambda: run(store, "VACUUM"), store.reindex, lambda: run(store, "VACUUM")):
            step()
            assert [
                h.id for h in store.search_messages(SCOPE, "wordh", explain=True) if h.explanation.tokens
            ] == [messages[7]]
            assert [h.id for h in store.recall(SCOPE, "wordh", explain=True) if h.explanation.tokens] == [
                memories[7]
            ]
            assert_sound(store)


def test_a_copy_of_the_database_without_its_fallback_is_warned_of(store, tmp_path):
    copy_database(store.path, tmp_path / "copy.db")
    with open_store(tmp_path / "copy.db", ManualClock(START)) as copy:
        assert dump(copy) == dump(store)
        report = copy.doctor()
        assert report.ok
        assert any("have no line" in f.message for f in report.findings)
        copy.record(SCOPE, [Message("user", "goes on")], "one")
        assert copy.doctor().ok


# --- each finding names a command, and the command mends it -------------------------------------------------

FIND = Settings(timezone="UTC", durability="process", reserve_bytes=65_536)


def carry_out(command: str, path: Path) -> None:
    """Run the command that a finding names, as a person would who has the store at ``path`` as MEMSTORE_DB."""
    cli = Cli(path, user=None)
    for part in command.split(" && "):
        words = shlex.split(part)
        if words[0] == "memstore":
            done = cli(*words[1:])
            assert done.exit_code == 0, (command, done.stderr)
        else:
            assert words[0] in ("chmod", "mv"), command
            subprocess.run(words, check=True)


def found_in(path: Path, check: str, clock: ManualClock | None = None) -> list[Finding]:
    report = MemoryStore.examine(path, None, clock or ManualClock(START), FIND, full=True)
    return [f for f in report.findings if f.check == check]


def mended_by_its_command(path: Path, check: str) -> Finding:
    """The first finding of a check: its command is run twice; afterwards all are gone, and no row has changed."""
    rows = rows_of(path)
    found, *_ = found_in(path, check)  # a log is made with the modes of its database
    assert found.repair is not None
    for _ in range(2):
        carry_out(found.repair, path)
        assert found_in(path, check) == []
        assert rows_of(path) == rows
    return found


def rows_of(path: Path) -> list:
    with MemoryStore(path, None, ManualClock(START), FIND) as store:
        return [dump(store), canonical(store)]


@pytest.fixture
def closed(tmp_path) -> Path:
    """A store that nobody has open."""
    path = tmp_path / "a store.db"
    with MemoryStore(path, None, ManualClock(START), FIND) as store:
        say(store, *(f"message {n} 银行卡" for n in range(12)))
        store.add(SCOPE, "a memory")
        store.backup()
    return path


@pytest.mark.parametrize(
    "name",
    [
        "a store.db",
        "a store.db.reserve",
        "a store.db.fallback",
        "2026-03-01.jsonl",
        "a store.db.backups",
        "*.gz",
    ],
)
def test_open_modes_are_closed_by_the_command(closed, name):
    [file] = [closed.parent / name] if name.startswith("a store") else closed.parent.rglob(name)
    file.chmod(0o755 if file.is_dir() else 0o644)
    mended_by_its_command(closed, "file modes")
    assert file.stat().st_mode & 0o077 == 0


def test_lost_lines_are_made_up_for_by_a_backup(closed):
    for folder in closed.parent.glob("*.backups"):
        shutil.rmtree(folder)
    [day] = day_files(folder_of(closed))
    day.unlink()
    found = found_in(closed, "fallback")
    assert {(f.severity, f.repair) for f in found} == {("warning", "memstore backup")}
    rows = rows_of(closed)
    carry_out("memstore backup", closed)
    later = ManualClock(START.replace(year=2100))  # the command has the machine's clock
    assert [(f.severity, f.repair) for f in found_in(closed, "fallback", later)] == [("info", None)]
    assert "a backup holds them" in found_in(closed, "fallback", later)[0].message
    assert rows_of(closed) == rows


def test_a_backup_that_a_wrong_clock_put_into_the_future_covers_nothing(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START.replace(year=2099))
    with MemoryStore(path, None, clock, FIND) as store:
        say(store, "before the backup")
        store.backup()
        clock.set(START)
        say(store, "after it")
        found = [(f.check, f.severity) for f in store.doctor().findings]
        assert ("backups", "warning") in found
    for day in day_files(folder_of(path)):
        day.unlink()
    assert {(f.severity, f.repair) for f in found_in(path, "fallback", clock)} == {
        ("warning", "memstore backup")
    }
    with MemoryStore(path, None, clock, FIND) as store:
        made = store.backup()
        assert "backups" not in {f.check for f in store.doctor(full=True).findings}
    path.unlink()
    with pytest.raises(StoreMissing, match=re.escape(Path(made.path).name)):
        MemoryStore(path, None, clock, FIND)


def test_a_backup_that_was_changed_is_named_by_a_full_look(tmp_path):
    path = tmp_path / "store.db"
    with MemoryStore(path, None, ManualClock(START), FIND) as store:
        say(store, "one")
        made = Path(store.backup().path)
        content = bytearray(made.read_bytes())
        content[len(content) // 2] ^= 1
        made.write_bytes(content)
        assert [f.severity for f in store.doctor(full=True).findings if f.check == "backups"] == ["error"]


def test_messages_of_pruned_days_that_a_backup_holds_are_no_warning(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with MemoryStore(path, None, clock, FIND) as store:
        say(store, "an old message")
        clock.advance(40 * 86_400)
        say(store, "a new message")
        store.backup()
        assert store.prune_fallback(7).removed
        assert [(f.check, f.severity) for f in store.doctor().findings if f.check == "fallback"] == [
            ("fallback", "info")
        ]
        assert store.doctor().ok
    shutil.rmtree(f"{path}.backups")
    assert [(f.severity, f.repair) for f in found_in(path, "fallback", clock)] == [
        ("warning", "memstore backup")
    ]


def test_a_store_without_a_backup_and_one_with_an_old_one(tmp_path):
    path = tmp_path / "store.db"
    clock = ManualClock(START)
    with MemoryStore(path, None, clock, FIND) as store:
        assert [f for f in store.doctor().findings if f.check == "backups"] == [], "nothing to lose yet"
        store.add(SCOPE, "a memory")
        [found] = [f for f in store.doctor().findings if f.check == "backups"]
        assert (found.severity, found.repair) == ("info", "memstore backup")
        store.backup()
        assert [f for f in store.doctor().findings if f.check == "backups"] == []
        clock.advance(9 * 86_400)
        [found] = [f for f in store.doctor().findings if f.check == "backups"]
        assert (found.severity, found.repair) == ("warning", "memstore backup")
        assert "9 days old" in found.message
        store.backup()
        assert [f for f in store.doctor().findings if f.check == "backups"] == []


def test_changes_that_the_fallback_is_owed_are_named_and_appended_by_reopening(closed):
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        owed = {"op": "session", "n": 999, "team_id": "team", "user_id": "user", "session": "agent:chat:one",
                "title": "t", "titled_by": "caller", "pinned": 0, "hidden": 0, "created_at": 1, "to_pos": 12}  # fmt: skip
        with store._storage.write() as tx:
            tx.keep_unwritten_lines([(999, owed)])
        [found] = [f for f in store.doctor().findings if f.check == "fallback"]
        assert (found.severity, found.repair) == ("warning", "memstore doctor")
        assert "1 changes are committed and have no line" in found.message
    carry_out("memstore doctor", closed)
    assert found_in(closed, "fallback") == []


def test_a_broken_line_says_what_to_do(closed):
    with day_files(folder_of(closed))[0].open("ab") as out:
        out.write(b"garbage\n")
    found = found_in(closed, "fallback")
    assert any("keep the file, and take a backup" in f.message and f.repair is None for f in found)


def test_another_stores_day_file_is_named(closed):
    file = folder_of(closed) / "2025-01-01.jsonl"
    file.write_bytes(encode({"op": "store", "store_id": "another", "timezone": "UTC"}))
    file.chmod(0o600)
    assert any("another store's" in f.message for f in found_in(closed, "fallback"))


def test_a_job_that_a_dead_worker_left_is_taken_over(tmp_path):
    clock = ManualClock(START)
    with MemoryStore(tmp_path / "store.db", HashEmbedder(8), clock, FIND) as store:
        say(store, "x")
        with store._storage.write() as tx:
            now = int(START.timestamp() * 1_000_000)
            assert tx.claim("index", "dead", now, now + LEASE_S * 1_000_000) is not None
        assert [f for f in store.doctor().findings if f.check == "queue"] == [], "it may still be at work"
        clock.advance(LEASE_S + 1)
        [found] = [f for f in store.doctor().findings if f.check == "queue"]
        assert (found.severity, found.repair) == ("warning", "memstore index")
        assert store.index().embedded == 1
        assert [f for f in store.doctor().findings if f.check == "queue"] == []


def test_a_long_log_names_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("memstore.doctor.LOG_BYTES", 20_000)
    path = tmp_path / "store.db"
    with MemoryStore(path, None, ManualClock(START), replace(FIND, idle_checkpoint_s=None)) as store:
        with store._storage.read() as reader:
            reader.team_ids()
            say(store, *(f"message {n}" for n in range(50)))
            [found] = [f for f in store.doctor().findings if f.check == "log"]
            assert (found.severity, found.repair) == ("warning", "memstore checkpoint")
            assert "store.db-wal" in found.message
        assert store.checkpoint().emptied
        assert [f for f in store.doctor().findings if f.check == "log"] == []


def test_a_disk_that_fills_up_is_named_before_writes_fail(store, monkeypatch):
    bound = 16 * 2**20 + store.doctor().place["log_bytes"] + store.path.stat().st_size // 10
    for free, warned in ((bound - 1, True), (bound, False), (None, False)):
        monkeypatch.setattr("memstore.file_system.free_bytes", lambda _path, free=free: free)
        found = [f for f in store.doctor().findings if f.check == "free space"]
        assert [f.severity for f in found] == ["warning"] * warned
        assert all("free some before writes fail" in f.message for f in found)
        assert store.doctor().ok


def test_an_edited_migration_says_what_to_do(store):
    run(store, "UPDATE schema_migrations SET checksum = 'other' WHERE version = 1")
    [found] = [f for f in store.doctor().findings if f.check == "migrations"]
    assert (found.severity, found.repair) == ("warning", None)
    assert "use the memstore release that made the store, or report this" in found.message


BROKEN_RULES = {
    "sessions that end before their last message": "UPDATE sessions SET last_pos = 1",
    "sessions with messages of a later fork than their last": "UPDATE messages SET branch = 7 WHERE pos = 1",
    "sessions with messages and without a record": "DELETE FROM sessions",
    "memories whose current version is not their last one, or is not there": "UPDATE memories SET version = 9",
    "versions of memories under another user than the memory's": "UPDATE memories SET user_id = 'somebody'",
    "members without a range of keys": "DELETE FROM owners WHERE user_id = 'user'",
    "rows of messages under a key of somebody else's range": "UPDATE messages SET user_id = 'zoe' WHERE pos = 2",
    "owners whose last key number is smaller than one of messages": "UPDATE owners SET last_number = 1",
    "owners whose last key number is smaller than one of memory_versions": "UPDATE owners SET last_number = 12",
    "owners whose last arrival number is smaller than one of messages": "UPDATE owners SET last_arrival = 1",
    "owners whose last arrival number is smaller than one of memory_versions": "UPDATE owners SET last_arrival = 12",
    "the words of team 'team'": "UPDATE teams SET dictionary_digest = 'other'",
    "points to a row of memories": "DELETE FROM memories",
    "rows of messages are not what their checksums": "UPDATE messages SET content = '\"other\"' WHERE pos = 3",
    "rows of memory_versions are not what their checksums": "UPDATE memory_versions SET content = 'other'",
    "1 rows of messages are not": "UPDATE messages SET search_text = 'other' WHERE pos = 3",
}


@pytest.mark.parametrize("said", BROKEN_RULES)
def test_rows_that_contradict_each_other_are_restored_from_a_backup(closed, said):
    rows = rows_of(closed)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        run(store, "PRAGMA foreign_keys = OFF", BROKEN_RULES[said])
    broken = closed.read_bytes()
    report = MemoryStore.examine(closed, None, ManualClock(START), FIND, full=True)
    assert not report.ok
    assert any(said in f.message for f in report.findings), report.findings
    commands = {f.repair for f in report.findings if f.check in ("tables", "constraints")}
    assert len(commands) == 1
    assert closed.read_bytes() == broken
    carry_out(commands.pop(), closed)
    assert (closed.parent / "a store.db.damaged").read_bytes() == broken, "the damaged file is kept"
    assert [
        f
        for f in MemoryStore.examine(closed, None, ManualClock(START), FIND, full=True).findings
        if f.severity == "error"
    ] == []
    assert rows_of(closed) == rows


def test_without_a_backup_the_messages_come_from_the_fallback(closed):
    for folder in closed.parent.glob("*.backups"):
        shutil.rmtree(folder)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        rows = dump(store)
        run(store, "UPDATE messages SET content = '\"other\"' WHERE pos = 3")
    [found] = found_in(closed, "tables")
    assert found.repair.endswith(f"memstore recover --db '{closed}'")
    carry_out(found.repair, closed)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        assert dump(store) == rows
        assert store.doctor(full=True).ok


def test_checksums_of_a_large_table_are_sampled_unless_all_are_asked_for(closed, monkeypatch):
    monkeypatch.setattr("memstore.storage.sqlite.checks.ROWS_COMPARED", 5)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        told = [f.message for f in store.doctor().findings if f.check == "tables"]
        assert told == ["the checksums of 8 rows of messages were not compared; memstore doctor --full does"]
        run(store, "UPDATE messages SET role = 'assistant' WHERE pos = 1")
        assert store.doctor().ok
        assert not store.doctor(full=True).ok


# --- a store that cannot be opened --------------------------------------------------------------------------


def unsound_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(100))


def a_text(path: Path) -> None:
    path.write_text("dear diary\n" * 200)


def zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8192)


def a_wrecked_schema(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)


@pytest.mark.parametrize(
    "damage", [unsound_header, a_text, zero_bytes, cut_short, a_wrecked_schema], ids=lambda d: d.__name__
)
@pytest.mark.parametrize("backed_up", [True, False])
def test_a_file_that_does_not_open_is_a_finding_with_a_way_back(closed, damage, backed_up):
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        rows = dump(store)
    if not backed_up:
        for folder in closed.parent.glob("*.backups"):
            shutil.rmtree(folder)
    damage(closed)
    before = file_hashes(closed.parent)
    report = MemoryStore.examine(closed, None, ManualClock(START), FIND, full=True)
    assert not report.ok
    found = report.findings[0]
    assert (found.check in ("open", "tables"), found.severity) == (True, "error")
    assert report.place["path"] == str(closed)
    assert {"memstore", "python"} <= set(report.versions)
    shown = Cli(closed)("doctor", "--json")
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["findings"][0]["check"] == found.check
    assert "not sound" in Cli(closed)("doctor", "--format", "text").stdout
    assert file_hashes(closed.parent) == before
    assert ("memstore restore" if backed_up else "memstore recover") in found.repair
    carry_out(found.repair, closed)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        assert dump(store) == rows
        assert store.doctor(full=True).ok


def test_a_setting_of_the_store_that_was_damaged_is_restored(closed):
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        rows = dump(store)
    where = closed.read_bytes()
    assert where.count(b"timezoneUTC") == 1  # the table; its index has the value first
    closed.write_bytes(where.replace(b"timezoneUTC", b"timezoneUTS"))
    report = MemoryStore.examine(closed, None, ManualClock(START), Settings(reserve_bytes=65_536))
    assert [(f.check, f.severity) for f in report.findings] == [("open", "error"), ("tables", "error")]
    carry_out(report.findings[1].repair, closed)
    with MemoryStore(closed, None, ManualClock(START), FIND) as store:
        assert dump(store) == rows
        assert store.doctor(full=True).ok


def test_a_newer_store_names_the_upgrade(closed):
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 9999')",
            closed,
        ],
        check=True,
    )
    report = MemoryStore.examine(closed, None, ManualClock(START), FIND)
    assert (report.ok, report.findings[0].check, report.findings[0].repair) == (
        False,
        "open",
        "pip install --upgrade memstore",
    )


def test_an_extension_that_cannot_be_loaded_is_a_finding_with_the_remedy(closed, monkeypatch):
    broken = closed.parent / "vec0.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr("memstore.storage.sqlite.connection.vector_extension", lambda: str(broken))
    report = MemoryStore.examine(closed, None, ManualClock(START), FIND)
    assert (report.ok, report.findings[0].check) == (False, "open")
    assert "sqlite-vec cannot be loaded" in report.findings[0].message
    assert report.findings[0].repair == "pip install --upgrade apsw sqlite-vec"


def test_a_missing_store_is_no_finding(tmp_path):
    missing = Cli(tmp_path / "store.db")("doctor")
    assert missing.exit_code == 1
    assert "there is no store" in missing.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_only_be_read_is_named_and_stays_as_it_is():
    """Case 65, as another user than root, whom a read-only folder does not stop."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        path = folder / "store.db"
        with MemoryStore(path, None, ManualClock(START), FIND) as store:
            say(store, "readable")
        give_to_nobody(folder, read_only=path)

        def work(report) -> None:
            become_nobody()
            before = sorted(p.name for p in folder.iterdir())
            looked = MemoryStore.examine(path, None, ManualClock(START), FIND)
            report([looked.ok, looked.findings[0].check, looked.findings[0].message])
            cli = Cli(path)
            for call in (
                ("add", "rain"),
                ("recall", "rain"),
                ("search-messages", "readable"),
                ("reserve",),
                ("doctor",),
            ):
                done = cli(*call)
                report([call[0], done.exit_code, done.stderr, done.stdout])
            report(before == sorted(p.name for p in folder.iterdir()))

        code, (looked, *calls, unchanged) = report_of(work)
        assert code == 0
        assert looked[:2] == [False, "open"]
        assert "folder" in looked[2]
        for name, exit_code, stderr, stdout in calls:
            assert exit_code == 1, name
            assert "folder" in stderr + stdout, name
        assert unchanged is True
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


# --- on the command line ------------------------------------------------------------------------------------


def test_the_report_on_the_command_line(closed):
    cli = Cli(closed)
    for flags in ((), ("--json",), ("--full", "--json", "--format", "text")):
        report = cli.answer("doctor", *flags)
        assert report["ok"] is True
        assert set(report) == {"ok", "findings", "counts", "versions", "place"}
        assert set(report["versions"]) == {"memstore", "python", "apsw", "sqlite", "sqlite-vec", "schema"}
        assert set(report["place"]) == {
            "path", "file_system", "free_bytes", "database_bytes", "log_bytes", "reserve_bytes",
        }  # fmt: skip
    shown = cli.shown("doctor")
    assert "sound\n" in shown
    for word in ("messages 12", "memories 1", "sqlite-vec ", "file_system ", "free_bytes ", "schema "):
        assert word in shown
    closed.chmod(0o644)
    assert "to mend it: chmod 600 '" in cli.shown("doctor")
