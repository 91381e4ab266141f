"""Text indexes are built anew beside the ones that answer: resumable, in step with every write, switched at once."""

# ruff: noqa: S311 - seeded chance

import os
import random

import pytest

from memstore import ConfigError, MemoryStore, Scope, Settings
from memstore.errors import StoreBusy
from memstore.rebuild import BATCH_ROWS, Rebuilding, rebuild_text_indexes
from memstore.testing import ManualClock
from memstore.text import JiebaCutter
from memstore.tokenizers import Tokenizers
from reliability_support import SCOPE, START, in_fork, open_store, run_threads, say

OTHER = Scope("team two", "user", "agent")


class Cutter(JiebaCutter):
    """Another program version's way to cut: single characters."""

    identity = "single characters"

    def cut(self, run: str) -> list[str]:
        return list(run)


OLD = Tokenizers(Cutter)


def filled(path, rows: int = 12, **options) -> MemoryStore:
    store = MemoryStore(
        path, None, ManualClock(START), Settings(durability="process", timezone="UTC"), **options
    )
    for scope in (SCOPE, OTHER):
        say(store, *(f"会议{n}改到周四 build-x{n}" for n in range(rows)), scope=scope)
        for n in range(3):
            store.add(scope, f"记忆{n} about 银行卡")
    return store


def tables(store: MemoryStore) -> list[tuple]:
    """Every text index: its entry, and what it holds."""
    with store._storage.exclusive_connection() as connection:
        entries = connection.execute("SELECT * FROM text_indexes ORDER BY table_name").fetchall()
        return [
            (*entry, connection.execute(f"SELECT rowid, * FROM {entry[0]}").fetchall()) for entry in entries
        ]


def active(store: MemoryStore) -> list[tuple]:
    """What searches see of them; how far the building went is no part of it."""
    return [(*entry[:5], entry[6]) for entry in tables(store) if entry[3] == "active"]


def run(store: MemoryStore, *statements: str) -> None:
    with store._storage.exclusive_connection() as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def problems(store: MemoryStore) -> list[tuple[str, str]]:
    return [(f.check, f.severity) for f in store.doctor(full=True).findings if f.severity != "info"]


def half_built(store: MemoryStore, tokenizers: Tokenizers, rows: int = 5) -> None:
    """Leave the first team's message index where a killed rebuild would."""
    with store._storage.write() as tx:
        tokenizer = tokenizers.of(tx, "team")
        assert tx.begin_text_index("messages", "team", tokenizer.identity)
        read = tx.text_rows("messages", "team", 0, rows)
        tx.fill_text_index("messages", "team", 0, [(row.ref, tokenizer.index(row.spoken)) for row in read])


def test_another_tokenizer_is_noticed_and_mended(tmp_path):
    with filled(tmp_path / "store.db") as store:
        wanted = active(store)
        rebuild_text_indexes(store._storage, OLD)
        assert active(store) != wanted
        assert problems(store) == [("tokenizer", "error")]
        assert "single characters" in store.doctor().findings[0].message
        store.reindex()
        assert problems(store) == []
        assert active(store) == wanted
        store.reindex()
        assert active(store) == wanted


def test_a_kill_before_any_statement_is_gone_on_from(tmp_path):
    """N: every statement of a rebuild of four indexes, each in a child that ends there."""
    path = tmp_path / "store.db"
    with filled(path) as store:
        wanted = active(store)
        rebuild_text_indexes(store._storage, OLD)
    number = 0
    ended = 9
    while ended == 9:

        def work(at: int = number) -> None:
            left = [at]

            def stop(_statement: str) -> None:
                if left[0] == 0:
                    os._exit(9)
                left[0] -= counting[0]

            counting = [0]
            with MemoryStore(path, statement_hook=stop) as store:
                counting[0] = 1
                store.reindex()

        ended = in_fork(work)
        number += 7
        with open_store(path) as store:
            assert len(store.search_messages(SCOPE, "build-x7")) >= 1
            assert {check for check, _ in problems(store)} <= {"tokenizer", "text index"}
            assert not [
                f for f in store.doctor().findings if f.check == "text index" and f.severity == "error"
            ]
    assert ended == 0
    assert number > 40
    with open_store(path) as store:
        assert problems(store) == []
        assert active(store) == wanted


def test_reads_and_writes_go_on_between_batches(tmp_path):
    """N: an index of several batches; after each, a row is recorded, one deleted, and all is found."""
    with filled(tmp_path / "store.db", rows=3 * BATCH_ROWS + 10) as store:
        rebuild_text_indexes(store._storage, OLD)
        ids = [m.id for m in store.messages(SCOPE, "agent:chat:one")]
        seen = []

        def between(done: int, _total: int) -> None:
            place = len(seen)
            for scope in (SCOPE, OTHER):
                say(store, f"夹在中间{place}号", scope=scope)
            store.delete(SCOPE, ids[place * 40])
            store.delete(SCOPE, ids[-1 - place])
            store.add(SCOPE, f"新的记忆{place}号")
            assert [h.content for h in store.search_messages(SCOPE, f"夹在中间{place}号", 1)] == [
                f"夹在中间{place}号"
            ]
            assert "会议7改" in store.search_messages(SCOPE, "会议7改到", 1)[0].content
            seen.append(done)

        store.reindex(between)
        assert len(seen) >= 8
        assert problems(store) == []
        for place in range(len(seen)):
            assert store.search_messages(SCOPE, f"夹在中间{place}号", 1)[0].content == f"夹在中间{place}号"


def test_what_is_deleted_or_added_during_a_build_is_kept_in_step(tmp_path):
    with filled(tmp_path / "store.db") as store:
        rebuild_text_indexes(store._storage, OLD)
        half_built(store, store._tokenizers, rows=12)
        assert ("text index", "warning") in problems(store)
        store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[0].id)
        say(store, "后来的一条", scope=Scope("team", "user", "agent"))
        say(store, "别人的一条", scope=Scope("team", "zoe", "agent"))
        store.reindex()
        assert problems(store) == []


def test_rows_of_an_older_program_make_the_build_come_by_again(tmp_path):
    """Whoever still writes another tokenizer's tokens leaves none of them in the index that is being built."""
    with filled(tmp_path / "store.db") as store:
        rebuild_text_indexes(store._storage, OLD)
        half_built(store, store._tokenizers, rows=12)
        with store._storage.write() as tx:
            tokenizer = OLD.of(tx, "team")
            rows = tx.text_rows("messages", "team", 0, 3)
            tx.put_text("messages", "team", [(row.ref, tokenizer.index(row.spoken)) for row in rows])
            assert tx.text_index("messages", "team", "building").filled_to < rows[0].ref
        store.reindex()
        assert problems(store) == []


def test_a_build_of_yet_another_tokenizer_is_begun_anew(tmp_path):
    with filled(tmp_path / "store.db") as store:
        wanted = active(store)
        half_built(store, OLD)
        store.reindex()
        assert (problems(store), active(store)) == ([], wanted)


def test_a_damaged_build_is_begun_anew(tmp_path):
    with filled(tmp_path / "store.db") as store:
        wanted = active(store)
        half_built(store, store._tokenizers)
        run(store, "DROP TABLE text_messages_1_new_data")
    with open_store(tmp_path / "store.db") as store:
        store.reindex()
        assert (problems(store), active(store)) == ([], wanted)


def test_two_at_once(tmp_path):
    with filled(tmp_path / "store.db", rows=2 * BATCH_ROWS) as store:
        wanted = active(store)
        rebuild_text_indexes(store._storage, OLD)
    stores = [open_store(tmp_path / "store.db", durability="process", busy_timeout_s=60) for _ in range(2)]
    run_threads([store.reindex for store in stores])
    assert problems(stores[0]) == []
    assert active(stores[1]) == wanted
    for store in stores:
        store.close()


def test_two_that_want_different_indexes_do_not_fight(tmp_path):
    with filled(tmp_path / "store.db", rows=BATCH_ROWS + 10) as store:
        calls = []

        def between(_done: int, _total: int) -> None:
            if not calls:
                calls.append(1)
                with store._storage.write() as tx:
                    tx.begin_text_index("messages", "team", OLD.of(tx, "team").identity)

        rebuilding = Rebuilding(store._storage, between)
        with store._storage.read() as reader:
            tokenizer = store._tokenizers.of(reader, "team")
        with pytest.raises(StoreBusy, match="run this again"):
            rebuilding.prepare("messages", "team", tokenizer)


# --- R20: drift is found and mended -------------------------------------------------------------------------


def drop_rows(rng: random.Random, name: str, held: list[int]) -> list[str]:
    return [f"DELETE FROM {name} WHERE rowid = {slot}" for slot in rng.sample(held, 2)]


def add_orphans(rng: random.Random, name: str, held: list[int]) -> list[str]:
    return [f"INSERT INTO {name} (rowid, words, literal) VALUES ({max(held) + rng.randint(1, 99)}, 'a', 'b')"]


def change_tokens(rng: random.Random, name: str, held: list[int]) -> list[str]:
    column = rng.choice(("words", "literal"))
    return [f"UPDATE {name} SET {column} = {column} || ' stray' WHERE rowid = {rng.choice(held)}"]


@pytest.mark.parametrize("seed", range(12))
def test_every_drift_is_found_and_mended_once(tmp_path, seed):
    """N: 12 seeds, up to 4 damages each."""
    rng = random.Random(seed)
    with filled(tmp_path / "store.db") as store:
        wanted = active(store)
        damaged = set()
        for name, *_, held in rng.sample(tables(store), rng.randint(1, 4)):
            damaged.add(name)
            harm = rng.choice((drop_rows, add_orphans, change_tokens))
            run(store, *harm(rng, name, [row[0] for row in held]))
        found = [f for f in store.doctor().findings if f.severity == "error"]
        assert {f.check for f in found} == {"text index"}
        assert {name for name in damaged if any(f.message.startswith(f"{name}:") for f in found)} == damaged
        assert len(found) == len(damaged)
        for _ in range(2):
            store.reindex()
            assert problems(store) == []
            assert active(store) == wanted


def test_a_large_index_is_sampled_unless_all_is_asked_for(tmp_path, monkeypatch):
    from memstore.storage.sqlite import checks

    monkeypatch.setattr(checks, "ROWS_COMPARED", 5)
    with filled(tmp_path / "store.db") as store:
        assert any("--full" in f.message and f.severity == "info" for f in store.doctor().findings)
        assert not any("--full" in f.message for f in store.doctor(full=True).findings)
        run(
            store,
            "UPDATE text_messages_1 SET words = 'stray' WHERE rowid = (SELECT min(rowid) FROM text_messages_1)",
        )
        assert problems(store) == [("text index", "error")]


# --- folding of variants ------------------------------------------------------------------------------------


def hits(store: MemoryStore, query: str) -> list[str]:
    return [hit.content for hit in store.search_messages(SCOPE, query)]


def test_variants_find_each_other_in_a_store_that_folds(tmp_path):
    settings = Settings(timezone="UTC", fold_variants=True)
    with MemoryStore(tmp_path / "store.db", settings=settings) as store:
        say(store, "圖書館丟了", "图书馆找到了", "無關的話")
        for query in ("图书馆", "圖書館", "书馆", "書"):
            assert set(hits(store, query)) == {"圖書館丟了", "图书馆找到了"}, query
        assert next(m.text for m in store.messages(SCOPE, "agent:chat:one")) == "圖書館丟了"
        assert problems(store) == []
    with open_store(tmp_path / "store.db") as store:  # the store's own choice holds
        assert len(hits(store, "圖書館")) == 2
    with pytest.raises(ConfigError, match=r"memstore reindex --no-fold-variants"):
        open_store(tmp_path / "store.db", fold_variants=False)


def test_variants_stay_apart_in_a_store_that_does_not_fold(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        say(store, "圖書館丟了", "图书馆找到了")
        assert hits(store, "圖書館") == ["圖書館丟了"]
        assert hits(store, "图书馆") == ["图书馆找到了"]
    with pytest.raises(ConfigError, match=r"memstore reindex --fold-variants"):
        open_store(tmp_path / "store.db", fold_variants=True)


def test_folding_is_switched_on_and_off_for_all_who_have_the_store_open(tmp_path):
    with open_store(tmp_path / "store.db") as store, open_store(tmp_path / "store.db") as other:
        say(store, "圖書館丟了", "图书馆找到了")
        before = active(store)
        store.reindex(fold_variants=True)
        assert len(hits(store, "圖書館")) == len(hits(other, "圖書館")) == 2
        say(other, "又一張圖書館")
        assert len(hits(store, "图书馆")) == 3
        assert problems(store) == []
        store.delete(SCOPE, store.messages(SCOPE, "agent:chat:one")[-1].id)
        store.reindex(fold_variants=False)
        assert hits(other, "圖書館") == ["圖書館丟了"]
        assert active(store) == before
        assert problems(store) == []


def test_a_change_of_folding_that_was_cut_short_has_changed_nothing(tmp_path):
    with filled(tmp_path / "store.db") as store:
        say(store, "圖書館")
        wanted = active(store)

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.reindex(stop, fold_variants=True)
        assert hits(store, "图书馆") == []
        assert active(store) == wanted
        assert problems(store) == [("text index", "warning")]
        store.reindex(fold_variants=True)
        assert hits(store, "图书馆") == ["圖書館"]
        assert problems(store) == []
