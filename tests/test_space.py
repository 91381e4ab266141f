"""Space that comes back: vacuum and compact, what a store takes, and that rows stay the rows they were.

``MEMSTORE_TEST_COMPACT_KILLS=all`` dies at every moment of a compaction.
"""

# ruff: noqa: S311 - seeded chance

import os
import random
from pathlib import Path

import apsw
import pytest

from backup_support import add_megabytes, answers_of, contents_of, filled, in_moments, opened, start
from faults_support import doubles
from memstore import MemoryStore, Message, Scope
from memstore.config import sqlite_temporary_folder
from memstore.errors import StoreError, StoreFull
from memstore.testing import HashEmbedder
from reliability_support import SCOPE, assert_sound, say, texts

KILLS = (
    os.environ.get("MEMSTORE_TEST_COMPACT_KILLS") or "25"
)  # N; the long form is "all" moments of a compaction
DIM = 384
NUMBER_BYTES = 4
FRUITS = ("apple", "banana", "cherry", "damson", "elderberry", "fig", "grape", "hazelnut", "imbe", "jujube")
WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz", k=2 + n % 8)) for n in range(2_000)]


def said(rng: random.Random, chars: int = 160) -> str:
    text = ""
    while len(text) < chars:
        text += rng.choice(WORDS) + " "
    return text


def rows_of(path: Path) -> dict[str, list]:
    """What a store holds, without what its text indexes and the file look like inside."""
    return {name: rows for name, rows in contents_of(path).items() if not name.startswith("text_messages_") and not name.startswith("text_memories_")}  # fmt: skip


def test_a_deleted_half_gives_its_space_back_and_row_8_stays_row_8(tmp_path):
    path = tmp_path / "memory.db"
    with opened(path, embedder=HashEmbedder(16)) as store:
        messages = [say(store, f"{fruit} " * 400, session=f"chat {fruit}")[0] for fruit in FRUITS]
        memories = [store.add(SCOPE, f"{fruit} " * 400).id for fruit in FRUITS]
        store.index()
        for one in (*messages[:5], *memories[:5]):
            store.delete(SCOPE, one)
        for shrink in (store.vacuum, store.compact, store.vacuum):
            report = shrink()
            assert not report.pending
            assert (report.bytes_after, report.log_bytes_after) == (path.stat().st_size, 0)
            assert text_hits(store, "messages", "hazelnut") == [messages[7]]
            assert text_hits(store, "memories", "hazelnut") == [memories[7]]
            assert text_hits(store, "messages", "cherry") == text_hits(store, "memories", "cherry") == []
        assert_sound(store)
        assert store.doctor(full=True).ok
        for fruit, memory in list(zip(FRUITS, memories, strict=True))[5:]:
            (nearest,) = store.recall(SCOPE, fruit, 1, explain=True)
            assert (nearest.id, nearest.explanation.legs["vector"].rank) == (memory, 1)


def text_hits(store: MemoryStore, layer: str, word: str) -> list[str]:
    ask = store.search_messages if layer == "messages" else store.recall
    found = ask(SCOPE, word, 20, explain=True)
    return [
        hit.id
        for hit in found
        if "text" in hit.explanation.legs and hit.explanation.legs["text"].rank is not None
    ]


def test_nothing_but_the_space_changes(tmp_path):
    path = tmp_path / "memory.db"
    with filled(path, rows=40) as store:
        scope = Scope("team", "user1", "agent")
        for memory in store.get_all(scope, 8):
            store.delete(scope, memory.id)
        before = store.doctor().counts
    rows, answers = rows_of(path), answers_of(path)
    with opened(path) as store:
        report = store.compact()
        assert report.bytes_after < report.bytes_before
        assert (report.strays, report.retired) == (0, ())
        again = store.compact()
        assert again.bytes_after == again.bytes_before == report.bytes_after
        assert store.doctor().counts == before
        assert_sound(store)
    assert rows_of(path) == rows
    assert answers_of(path) == answers
    with opened(path) as store:
        say(store, "goes on")
        assert texts(store) == ["goes on"]


def test_compact_leaves_one_segment_without_words_of_deleted_rows(tmp_path):
    path = tmp_path / "memory.db"
    with opened(path) as store:
        for n in range(60):
            say(store, f"common canary{n}q")
        for message in store.messages(SCOPE, "agent:chat:one")[:50]:
            store.delete(SCOPE, message.id)
        store.compact()
        assert len(list(store.search_messages(SCOPE, "common", 100))) == 10
    connection = apsw.Connection(str(path))
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.v USING fts5vocab(main, text_messages_1, row)")
        words = {word for (word,) in connection.execute("SELECT term FROM v").fetchall()}
        segments = connection.execute("SELECT count(DISTINCT segid) FROM text_messages_1_idx").fetchall()
    finally:
        connection.close()
    assert segments == [(1,)]
    assert "canary59q" in words
    assert not words & {f"canary{n}q" for n in range(50)}


def test_strays_go_and_rows_stay(tmp_path):
    path = tmp_path / "memory.db"
    filled(path, rows=9).close()
    rows = rows_of(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO text_memories_1 (rowid, words, literal) VALUES (77, 'stray', 'stray')")
    connection.execute(
        "INSERT INTO vectors_1_messages SELECT 78, vector, checksum FROM vectors_1_messages LIMIT 1"
    )
    connection.execute("INSERT INTO pending_vectors (generation, layer, slot) VALUES (1, 'memories', 79)")
    connection.close()
    with opened(path) as store:
        assert not store.doctor().ok
        assert store.compact().strays == 3
        assert_sound(store)
        assert store.compact().strays == 0
    assert rows_of(path) == rows


def test_retired_generations_are_named_and_not_dropped(tmp_path):
    path = tmp_path / "memory.db"
    filled(path, rows=6).close()
    with opened(path, embedder=HashEmbedder(16, model="second")) as store:
        store.reindex()
        assert store.compact().retired == (1,)
        assert store.vacuum().retired == (1,)
        assert store.roll_back_generation(1).vectors > 0
        assert store.compact().retired == (2,)


# --- how much a store takes -----------------------------------------------------------------------------------


def test_what_a_store_takes(tmp_path):
    """200 users with 10 messages of 160 characters each and vectors of 384 numbers; 90 % deleted; five new models.

    The payload is the text that is kept (a deleted message is, for its owner's history) and the float32 numbers of the
    vectors that answer. What an empty store takes is left out on both sides: with 200 users it is no longer seen.
    """
    path = tmp_path / "memory.db"
    opened(path).close()
    empty = path.stat().st_size
    rng = random.Random(22)
    text_bytes = 0
    ids: dict[Scope, tuple[str, ...]] = {}
    with opened(path, embedder=HashEmbedder(DIM, model="first")) as store:
        for number in range(200):
            scope = Scope("team", f"user{number}", "agent")
            told = [said(rng) for _ in range(10)]
            text_bytes += sum(len(text) for text in told)
            ids[scope] = store.record(scope, [Message("user", text) for text in told], "chat").ids
        store.index()
        store.checkpoint()
        assert path.stat().st_size - empty <= 2 * (text_bytes + 2_000 * DIM * NUMBER_BYTES)
        for scope, of_user in ids.items():
            for one in of_user[1:]:
                store.delete(scope, one)
    for model in range(5):
        with opened(path, embedder=HashEmbedder(DIM, model=f"next{model}")) as store:
            assert store.reindex().embedded == 200
            (retired,) = [g.number for g in store.generations() if g.state == "retired"]
            store.drop_generation(retired)
    with opened(path) as store:
        report = store.compact()
        assert not report.pending
        vectors = 200 * DIM * NUMBER_BYTES
        assert report.bytes_after - empty <= 3 * (text_bytes + vectors)
        assert report.bytes_after < report.bytes_before / 2
        assert_sound(store)
    connection = apsw.Connection(str(path))
    try:
        taken = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'vectors_%'").fetchall()[
            0
        ][0]
    finally:
        connection.close()
    assert taken <= 1.25 * vectors


# --- faults -----------------------------------------------------------------------------------------------------


def test_with_a_reader_the_cut_is_pending_and_said_to_be(tmp_path):
    path = tmp_path / "memory.db"
    with opened(path) as store:
        ids = say(store, *(f"message {n} " * 500 for n in range(20)))
        for one in ids[1:]:
            store.delete(SCOPE, one)
        reader = start("child_hold_snapshot", path)
        try:
            assert reader.stdout.readline() == "20\n"
            report = store.vacuum()
            assert report.pending
            assert report.log_bytes_after > 0
            assert report.log_bytes_after == Path(f"{path}-wal").stat().st_size
            say(store, "writes go on")
        finally:
            reader.communicate(timeout=60)
        report = store.vacuum()
        assert not report.pending
        assert (report.log_bytes_after, report.bytes_after) == (0, path.stat().st_size)
        assert_sound(store)


def test_killed_at_any_moment_the_store_is_whole(tmp_path):
    path = tmp_path / "memory.db"
    with filled(path, rows=30) as store:
        for number in range(3):
            scope = Scope("team", f"user{number}", "agent")
            for memory in store.get_all(scope, 5):
                store.delete(scope, memory.id)
    rows, answers = rows_of(path), answers_of(path)

    def work(store, moments) -> None:
        store.compact(progress=moments.pass_one)

    total = in_moments(path, 0, work)
    assert total > 100
    every = range(1, total + 1)
    chosen = every if KILLS == "all" else sorted(random.Random(22).sample(every, min(int(KILLS), total)))
    died = 0
    for moment in chosen:
        with opened(path) as store:  # something to do for the next one
            say(store, f"moment {moment}")
            store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[-1].id)
        before = rows_of(path)
        died += in_moments(path, moment, work) == 0
        assert rows_of(path) == before
        with opened(path) as store:
            assert_sound(store)
    assert died > len(chosen) // 2
    with opened(path) as store:
        store.compact()
        assert_sound(store)
    assert answers_of(path) == answers
    assert {name: len(found) for name, found in rows_of(path).items() if name.startswith("vectors")} == {
        name: len(found) for name, found in rows.items() if name.startswith("vectors")
    }


def test_each_failing_operation_leaves_the_store_whole(tmp_path):
    """Every 7th operation of a compaction fails once, in all as many as there are."""
    path = tmp_path / "memory.db"
    with filled(path, rows=12) as store:
        store.delete_all(Scope("team", "user1", "agent"))
    rows = rows_of(path)
    failed = 0
    with doubles() as made:
        for nth in range(1, 5_000, 7):
            with opened(path, **made.options) as store:
                made.plan.reset()
                made.plan.fail("error", nth)
                try:
                    store.compact()
                except StoreError:
                    failed += 1
                met = len(made.plan.met)
                made.plan.reset()
                say(store, "the next call works")
                store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[-1].id)
                assert_sound(store)
            if not met:
                break
    assert not met
    assert failed > 3
    found = rows_of(path)
    for name in (
        "memories",
        "memory_versions",
        "vectors_1_memories",
        "vectors_1_messages",
        "dictionary_words",
    ):
        assert found[name] == rows[name]


def test_a_vacuum_does_not_build_its_copy_in_memory(tmp_path):
    """Two caches of pages are all that it takes: 48 MB, whatever the size of the database. A copy in memory adds that."""
    path = tmp_path / "memory.db"
    with filled(path, rows=3) as store:
        add_megabytes(store, 30)
    with opened(path) as store:
        apsw.memory_high_water(True)
        store.vacuum()
        assert path.stat().st_size > 30 * 2**20
        assert apsw.memory_high_water(True) - apsw.memory_used() < 56 * 2**20
        with store._storage.exclusive_connection() as connection:
            assert connection.pragma("temp_store") == 2  # sorts of private rows stay in memory again


def test_room_is_looked_for_first(tmp_path, monkeypatch):
    path = tmp_path / "memory.db"
    filled(path, rows=3).close()
    real, full = os.statvfs, []

    def nearly_full(place):
        found = list(real(place))
        if Path(place) in full:
            found[4] = 3  # f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    before = path.read_bytes()
    for folder in (tmp_path, sqlite_temporary_folder()):
        full[:] = [folder]
        if folder.stat().st_dev == tmp_path.stat().st_dev and folder != tmp_path:
            continue  # one file system: looked at by the database's folder
        with opened(path) as store, pytest.raises(StoreFull, match=r"takes up to [\d,]+ bytes.*are free"):
            store.vacuum()
    assert path.read_bytes() == before


def test_sqlite_is_asked_for_its_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.delenv("SQLITE_TMPDIR", raising=False)
    assert sqlite_temporary_folder() in map(Path, ("/var/tmp", "/usr/tmp", "/tmp"))  # noqa: S108 - SQLite's own
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path / "here"))
    assert sqlite_temporary_folder() == tmp_path / "here"
