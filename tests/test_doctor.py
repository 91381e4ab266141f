"""Doctor finds what is wrong and names the command; reindex mends what is derived and touches nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest

from memstore.config import Settings
from memstore.errors import EmbedderUnavailable, EmbeddingError
from memstore.fallback import day_files, encode, folder_of
from memstore.index import LEASE_S, MAX_ATTEMPTS
from memstore.store import MemoryStore
from memstore.testing import HashEmbedder, ManualClock
from memstore.types import Finding, Message, Scope
from reliability_support import (
    COMPANIONS,
    SCOPE,
    START,
    assert_sound,
    copy_database,
    dump,
    file_hashes,
    in_fork,
    lines_of,
    open_store,
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
    assert report.findings == ()
    assert report.counts == {
        "teams": 2, "users": 2, "sessions": 2, "messages": 24, "memories": 14, "pending_vectors": 0, "refused_vectors": 0,
        "queued_jobs": 0, "vectors": 2 * (11 + 8),
    }  # fmt: skip
    assert set(report.versions) == {"sqlite", "sqlite-vec", "schema"}


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
        assert [(f.check, f.severity, f.repair) for f in report.findings] == [
            ("embedder", "warning", "memstore reindex")
        ]
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
        assert [(f.check, f.severity) for f in found.findings] == [("embedder", "warning")]
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
        assert [(f.check, f.severity, f.repair) for f in report.findings] == [
            ("vectors", "info", "memstore index")
        ]
        assert report.counts["pending_vectors"] == 2
        store.index()
        report = store.doctor()
        assert report.ok
        assert [(f.check, f.severity) for f in report.findings] == [("vectors", "info")]
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
        run(store, "UPDATE jobs SET state = 'dead', last_error = 'the model server was down'")
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
    line = lines_of(store.path)[1].operation
    with day_files(folder_of(store.path))[0].open("ab") as out:
        out.write(encode({**line, "id": "01KJMNW3XXXXXXXXXXXXXXXXXX", "client_id": None, "n": 99, "pos": 40}))
    report = store.doctor()
    assert report.ok
    assert [(f.check, f.severity) for f in report.findings] == [("fallback", "warning")]
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
