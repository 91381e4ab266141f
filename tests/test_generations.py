"""Embedding generations: changing models and back, under load, after a kill, and after damage."""

# ruff: noqa: S311 - seeded chance

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from cli_support import Cli
from conftest import FAST, OpenStore, contents, said
from memstore import (
    EmbedderMismatch,
    EmbedderUnavailable,
    EmbeddingError,
    InvalidInput,
    MemoryStore,
    NotFound,
    Scope,
)
from memstore.embedding import embeddable
from memstore.index import BATCH_ROWS, MAX_ATTEMPTS, PATIENT_PASSES, RETRY_BASE_S
from memstore.storage.sqlite import vector_index
from memstore.testing import HashEmbedder, ManualClock
from reliability_support import in_fork

ANA = Scope("acme", "ana", "helper")
BEN = Scope("other", "ben", "helper")
TOPICS = ("rain", "snow", "train", "银行卡", "会议", "tea")
FAR = 300
"""Seconds after which a thread that still runs is a fault."""


def old_model(dim: int = 16) -> HashEmbedder:
    return HashEmbedder(dim)


def new_model(dim: int = 16) -> HashEmbedder:
    return HashEmbedder(dim, model="other")


def third_model() -> HashEmbedder:
    return HashEmbedder(16, model="third")


def fill(store: MemoryStore, rows: int = 30, scope: Scope = ANA) -> list[str]:
    """Memories and as many messages."""
    store.record(scope, said(*(f"{TOPICS[n % 6]} message {n}" for n in range(rows))), "chat")
    return [store.add(scope, f"{TOPICS[n % 6]} memory {n}").id for n in range(rows)]


def states(store: MemoryStore) -> list[tuple[int, str, str]]:
    return [(g.number, g.model, g.state) for g in store.generations()]


def rows_of(store: MemoryStore, sql: str) -> list[tuple]:
    with store._storage.read() as reader:
        return reader._rows(sql)


def run(store: MemoryStore, sql: str, *bindings: object) -> None:
    with store._storage.write() as tx:
        tx._run(sql, bindings)


def embedding_tables(store: MemoryStore) -> dict[str, list[tuple]]:
    """Every row of every table that has to do with vectors."""
    names = rows_of(
        store,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND (name LIKE 'vectors!_%' ESCAPE '!'"
        " OR name IN ('embedding_generations', 'pending_vectors'))",
    )
    return {name: rows_of(store, f"SELECT * FROM {name} ORDER BY 1, 2, 3") for (name,) in names}


def problems(store: MemoryStore) -> list[tuple[str, str, str]]:
    return [(f.check, f.severity, f.message) for f in store.doctor().findings if f.severity != "info"]


def assert_complete(store: MemoryStore, embedder: HashEmbedder) -> None:
    """Each indexed row has the vector that this model gives its text, and there are no others."""
    with store._storage.read() as reader:
        active = reader.generation("active")
        assert active.identity == embedder.identity
        assert reader.pending_count(active.number) == 0
        for layer, table, text in (
            ("messages", "messages", "content"),
            ("memories", "memory_versions", "content"),
        ):
            wanted = dict(reader._rows(f"SELECT slot, {text} FROM {table} WHERE state <> 'deleted'"))
            name = vector_index.table_name(active.number, layer)
            found = dict(reader._rows(f"SELECT slot, vector FROM {name}"))
            assert found.keys() == wanted.keys()
            for slot, blob in found.items():
                expected = embedder.embed_documents([wanted[slot]])[0]
                assert np.allclose(np.frombuffer(blob, dtype=np.float32), expected, atol=1e-6)
    assert [found for found in problems(store) if found[0] != "embedder"] == []


class Failing(HashEmbedder):
    """Fails after so many texts."""

    def __init__(self, texts: int, error: type[Exception] = OSError, **options: object) -> None:
        super().__init__(16, **{"model": "other", **options})
        self.left = texts
        self.error = error

    def embed_documents(self, texts):
        if self.left < len(texts):
            raise self.error("the model broke down")
        self.left -= len(texts)
        return super().embed_documents(texts)


class Meanwhile(HashEmbedder):
    """Does something during its calls, before it answers."""

    def __init__(self, *deeds: Callable[[], object], model: str = "other", dim: int = 16) -> None:
        super().__init__(dim, model=model)
        self.deeds = list(deeds)

    def embed_documents(self, texts):
        if self.deeds:
            self.deeds.pop(0)()
        return super().embed_documents(texts)


@pytest.fixture
def changed(open_store: OpenStore) -> tuple[MemoryStore, MemoryStore]:
    """One file, opened with the old and with the new model; indexed by the old."""
    old = open_store(embedder=old_model())
    fill(old)
    old.index()
    return old, open_store(embedder=new_model())


# --- back to a retired generation ----------------------------------------------------------------------------


def test_a_change_back_embeds_only_what_is_missing(open_store):
    first = old_model()
    old = open_store(embedder=first)
    gone, changed_one = fill(old)[:2]
    old.index()
    new = open_store(embedder=new_model())
    new.reindex()
    assert states(new) == [(1, "hash", "retired"), (2, "other", "active")]
    late = new.add(ANA, "rain that came late")
    new.delete(ANA, gone)
    new.update(ANA, changed_one, content="snow instead")
    before = first.document_texts
    report = old.reindex()
    assert (report.embedded, report.refused, report.pending, report.generation) == (2, 0, 0, 1)
    assert first.document_texts - before == 2
    assert states(old) == [(1, "hash", "active"), (2, "other", "retired")]
    assert_complete(old, old_model())
    assert late.id in [hit.id for hit in old.recall(ANA, "rain that came late")]


def test_a_change_back_without_news_calls_no_model(changed):
    old, new = changed
    new.reindex()
    for store in (old, new, old, new):
        calls = store._embedder.document_calls
        assert store.reindex().embedded == 0
        assert store._embedder.document_calls == calls
    assert_complete(new, new_model())


@pytest.mark.parametrize(
    "other",
    [
        HashEmbedder(16, revision="2"),
        HashEmbedder(8),
        HashEmbedder(16, query_prefix="query: "),
        HashEmbedder(16, document_prefix="passage: "),
    ],
    ids=["revision", "width", "query prefix", "document prefix"],
)
def test_generations_are_told_apart_by_the_whole_identity(open_store, other):
    old = open_store(embedder=old_model())
    fill(old, 3)
    old.index()
    changed = open_store(embedder=other)
    with pytest.raises(EmbedderMismatch):
        changed.index()
    assert changed.reindex().embedded == 6
    one, two = changed.generations()
    assert one.digest != two.digest == other.identity.digest()
    old.reindex()
    assert old.reindex().generation == 1
    assert len(old.generations()) == 2


def test_damage_of_a_retired_generation_is_mended_by_the_change_back(changed):
    old, new = changed
    new.reindex()
    run(
        new,
        "UPDATE vectors_1_messages SET vector = zeroblob(64) WHERE slot IN (SELECT slot FROM vectors_1_messages LIMIT 2)",
    )
    run(new, "DELETE FROM vectors_1_memories WHERE slot IN (SELECT slot FROM vectors_1_memories LIMIT 3)")
    assert old.reindex().embedded == 5
    assert_complete(old, old_model())


def test_a_record_tells_what_a_generation_is_and_takes(changed, clock):
    old, new = changed
    [one] = old.generations()
    assert (one.number, one.model, one.revision, one.dim, one.state) == (1, "hash", "1", 16, "active")
    assert (one.vectors, one.pending, one.refused, one.bytes) == (60, 0, 0, 60 * 16 * 4)
    assert one.digest == old_model().identity.digest()
    assert one.created_at == clock.now()
    assert one.activated_at is not None
    old.add(ANA, "one more")
    assert old.generations()[0].pending == 1
    new.reindex()
    assert [(g.state, g.vectors, g.pending) for g in new.generations()] == [
        ("retired", 60, 0),
        ("active", 61, 0),
    ]


def test_a_store_without_vectors_has_no_generations(store):
    fill(store, 2)
    assert store.generations() == []
    with pytest.raises(NotFound, match="none yet"):
        store.drop_generation(1)
    with pytest.raises(NotFound, match="active before"):
        store.roll_back_generation()


# --- going back without a model ------------------------------------------------------------------------------


def test_rolling_back_switches_without_any_model(open_store, changed):
    old, new = changed
    new.reindex()
    late = new.add(ANA, "rain of the last day")
    new.index()
    plain = open_store()
    record = plain.roll_back_generation()
    assert (record.number, record.state, record.vectors, record.pending) == (1, "active", 60, 1)
    assert states(plain) == [(1, "hash", "active"), (2, "other", "retired")]
    answer = new.recall(ANA, "rain of the last day", explain=True)
    assert answer[0].id == late.id
    assert [part.leg for part in answer.degraded] == ["vector"]
    assert "reindex" in answer.degraded[0].reason
    answer = old.recall(ANA, "rain of the last day", explain=True)
    assert (answer.degraded, answer[0].id) == ((), late.id)
    assert answer[0].explanation.legs["vector"].note
    assert old.index().embedded == 1
    assert_complete(old, old_model())
    assert plain.roll_back_generation().number == 2
    assert plain.roll_back_generation().number == 1


def test_rolling_back_goes_to_the_one_before_whatever_the_clock_says(open_store, clock):
    for embedder in (old_model(), new_model(), third_model()):
        store = open_store(embedder=embedder)
        if not store.generations():
            fill(store, 2)
        store.reindex()
        clock.set(clock.now().replace(year=clock.now().year - 1))
    assert [store.roll_back_generation().number for _ in range(3)] == [2, 3, 2]
    assert store.roll_back_generation(1).number == 1
    assert store.roll_back_generation().number == 2


def test_what_cannot_be_gone_back_to_is_named(open_store, changed):
    old, _ = changed
    with pytest.raises(InvalidInput, match="generation 1 is the active one"):
        old.roll_back_generation(1)
    with pytest.raises(NotFound, match=r"no embedding generation 7; there are 1"):
        old.roll_back_generation(7)
    for number in ("1", 1.0, True):
        with pytest.raises(InvalidInput, match="whole number"):
            old.roll_back_generation(number)
    with pytest.raises(NotFound):
        old.roll_back_generation(2**70)
    failing = open_store(embedder=Failing(10))
    with pytest.raises(EmbeddingError):
        failing.reindex()
    halfway = open_store(embedder=Failing(64))
    fill(halfway, 60)
    with pytest.raises(EmbeddingError):
        halfway.reindex()
    assert states(old)[-1] == (2, "other", "building")
    before = embedding_tables(old)
    with pytest.raises(InvalidInput, match="never complete"):
        old.roll_back_generation(2)
    assert embedding_tables(old) == before


# --- dropping ------------------------------------------------------------------------------------------------


def test_dropping_frees_a_retired_generation(changed):
    old, new = changed
    new.reindex()
    [finding] = [f for f in new.doctor().findings if f.check == "generations"]
    assert (finding.severity, finding.repair) == ("info", "memstore generations drop 1")
    dropped = new.drop_generation(1)
    assert (dropped.number, dropped.vectors) == (1, 60)
    assert states(new) == [(2, "other", "active")]
    assert not [name for name in embedding_tables(new) if name.startswith("vectors_1_")]
    assert [f for f in new.doctor().findings if f.check != "backups"] == []
    assert new.recall(ANA, "rain").degraded == ()
    assert old.reindex().embedded == 60
    assert states(old) == [(2, "other", "retired"), (3, "hash", "active")]
    assert_complete(old, old_model())


def test_what_cannot_be_dropped_is_named(changed):
    old, _ = changed
    before = embedding_tables(old)
    with pytest.raises(InvalidInput, match=r"generation 1 .* is active"):
        old.drop_generation(1)
    for number in (0, -1, 2):
        with pytest.raises(NotFound, match="there are 1"):
            old.drop_generation(number)
    assert embedding_tables(old) == before


def test_a_drop_that_is_killed_goes_on(open_store, changed, monkeypatch):
    old, new = changed
    new.reindex()
    monkeypatch.setattr("memstore.generations.DROP_ROWS", 7)
    deletions = 0

    def stop(statement: str) -> None:
        nonlocal deletions
        deletions += statement.startswith("DELETE FROM vectors_1_")
        if deletions == 5:
            deletions += 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(statement_hook=stop).drop_generation(1)
    left = new.generations()[0]
    assert (left.state, 0 < left.vectors < 60) == ("retired", True)
    record = new.roll_back_generation(1)  # what is left serves, the rest waits
    assert record.vectors + record.pending == 60
    new.roll_back_generation()
    new.drop_generation(1)
    assert states(old) == [(2, "other", "active")]


def test_a_number_is_not_given_out_twice(open_store, changed):
    old, new = changed
    new.reindex()
    old.roll_back_generation()
    old.drop_generation(2)
    assert open_store(embedder=third_model()).reindex().generation == 3


def test_a_generation_dropped_while_it_is_built_ends_the_build(open_store):
    old = open_store(embedder=old_model())
    fill(old, 100)
    old.index()
    before = old.recall(ANA, "rain memory 6", explain=True)
    model = Meanwhile(lambda: None, lambda: old.drop_generation(2))
    building = open_store(embedder=model)
    with pytest.raises(EmbedderMismatch, match=r"generation 2 .* was dropped"):
        building.reindex()
    assert states(old) == [(1, "hash", "active")]
    assert old.recall(ANA, "rain memory 6", explain=True).hits == before.hits
    assert problems(old) == []
    building.reindex()
    assert_complete(building, new_model())


# --- reindex: progress, kills, company -----------------------------------------------------------------------


def test_progress_only_rises_and_ends_complete(open_store, changed):
    _, new = changed
    fill(new, 200)
    told: list[tuple[int, int]] = []
    from memstore.index import Indexer

    report = Indexer(new._storage, new._embedder, new._clock).change_over(lambda *at: told.append(at))
    assert report.embedded == 460
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert all(done <= total for done, total in told)
    assert told[-1] == (460, 460)


def test_a_killed_build_goes_on_and_embeds_nothing_twice(tmp_path):
    path = tmp_path / "memory.db"
    with MemoryStore(path, old_model(), settings=FAST) as store:
        fill(store, 160)
        store.index()

    def killed_after(calls: int) -> None:
        import os
        import signal

        model = Meanwhile(*[lambda: None] * calls, lambda: os.kill(os.getpid(), signal.SIGKILL))
        with MemoryStore(path, model, settings=FAST) as store:
            store.reindex()

    embedded = 0
    for _ in range(2):
        assert in_fork(lambda: killed_after(2)) == -9
        with MemoryStore(path, old_model(), settings=FAST) as store:
            one, two = store.generations()
            assert (one.state, two.state) == ("active", "building")
            assert two.vectors + two.pending == 320
            assert two.vectors > embedded + BATCH_ROWS
            embedded = two.vectors
            assert [f.check for f in store.doctor().findings if f.severity == "warning"] == ["embedder"]
            assert store.recall(ANA, "rain").degraded == ()
    model = new_model()
    with MemoryStore(path, model, settings=FAST) as store:
        assert store.reindex().embedded == 320 - embedded == model.document_texts
        assert_complete(store, new_model())


def test_changes_during_the_build_are_right_after_it(open_store):
    old = open_store(embedder=old_model())
    ids = fill(old, 100)
    old.index()
    rng = random.Random(7)

    def change() -> None:
        n = rng.randrange(10**6)
        fill(old, 2)
        old.update(ANA, ids.pop(), content=f"snow update {n}")
        old.delete(ANA, ids.pop(0))
        old.index()

    model = Meanwhile(*[change] * 5)
    new = open_store(embedder=model)
    new.reindex()
    assert model.deeds == []
    assert_complete(new, new_model())
    assert {g.state for g in new.generations()} == {"active", "retired"}


def test_a_writer_without_a_pause_does_not_put_the_switch_off_for_ever(open_store):
    old = open_store(embedder=old_model())
    fill(old, 5)
    old.index()

    class Watched(HashEmbedder):
        """Somebody records during every call, until the switch."""

        def embed_documents(self, texts):
            if old.generations()[-1].state != "active" or len(old.generations()) == 1:
                old.add(ANA, "rain once more")
            return super().embed_documents(texts)

    model = Watched(16, model="other")
    report = open_store(embedder=model).reindex()
    assert report.pending == 0
    assert PATIENT_PASSES <= model.document_calls < 4 * PATIENT_PASSES
    assert_complete(old, new_model())


def test_two_to_the_same_model_end_in_one_generation(open_store):
    old = open_store(embedder=old_model())
    fill(old, 150)
    old.index()
    twin = open_store(embedder=new_model())
    first = open_store(embedder=Meanwhile(lambda: None, twin.reindex))
    assert first.reindex().pending == 0
    assert states(old) == [(1, "hash", "retired"), (2, "other", "active")]
    assert_complete(first, new_model())


def test_of_two_to_different_models_the_earlier_loses_with_a_clear_error(open_store):
    old = open_store(embedder=old_model())
    fill(old, 150)
    old.index()
    rival = open_store(embedder=third_model())
    first = open_store(embedder=Meanwhile(lambda: None, rival.reindex))
    with pytest.raises(EmbedderMismatch, match=r"generation 2 .* was retired by another process"):
        first.reindex()
    assert states(old) == [(1, "hash", "retired"), (2, "other", "retired"), (3, "third", "active")]
    assert_complete(rival, third_model())
    kept = old.generations()[1].vectors
    assert kept == BATCH_ROWS
    assert first.reindex().embedded == 300 - kept
    assert_complete(first, new_model())


def test_two_at_once_in_threads_never_mix(open_store):
    for seed in range(4):
        name = f"store{seed}.db"
        old = open_store(name, embedder=old_model())
        fill(old, 100)
        old.index()
        start = threading.Barrier(2)
        outcomes: list[object] = []

        def change(model: HashEmbedder, name: str = name, start=start, outcomes=outcomes) -> None:
            store = open_store(name, embedder=model)
            start.wait(FAR)
            try:
                outcomes.append(store.reindex().pending)
            except EmbedderMismatch as error:
                outcomes.append(error)

        models = (new_model(), third_model() if seed % 2 else new_model())
        threads = [threading.Thread(target=change, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(FAR)
        assert len(outcomes) == 2
        assert 0 in outcomes  # at least one got through
        active = next(g for g in old.generations() if g.state == "active")
        assert_complete(old, next(m for m in models if m.identity.digest() == active.digest))


def test_an_index_run_of_the_old_model_ends_at_the_switch(open_store):
    new = open_store(embedder=new_model())
    old = open_store(embedder=Meanwhile(lambda: None, new.reindex, model="hash"))
    fill(old, 80)
    with pytest.raises(EmbedderMismatch):
        old.index()
    assert_complete(new, new_model())
    with pytest.raises(EmbedderMismatch, match="reindex"):
        old.index()


# --- models that fail ----------------------------------------------------------------------------------------


def test_case_16_another_width_is_noticed_everywhere(open_store, ana):
    old = open_store(embedder=HashEmbedder(4))
    for number in range(20):
        old.add(ana, f"rain {number}")
    old.index()
    for model in (HashEmbedder(8), HashEmbedder(4, model="same width")):
        other = open_store(embedder=model)
        before = embedding_tables(other)
        answer = other.recall(ana, "rain 7")
        assert contents(answer)[0] == "rain 7"
        assert [part.leg for part in answer.degraded] == ["vector"]
        with pytest.raises(EmbedderMismatch):
            other.index()
        assert embedding_tables(other) == before
        added = other.add(ana, "snow in june")
        assert contents(other.recall(ana, "snow")) == ["snow in june"]
        other.reindex()
        assert other.recall(ana, "rain 7").degraded == ()
        assert_complete(other, model)
        other.delete(ana, added.id)


class Unavailable:
    """A model that cannot even say what it is."""

    @property
    def identity(self):
        raise EmbedderUnavailable("no such model")

    def embed_documents(self, texts):
        raise EmbedderUnavailable("no such model")

    embed_query = embed_documents


class Narrow(HashEmbedder):
    """Promises more dimensions than it gives."""

    def embed_documents(self, texts):
        return super().embed_documents(texts)[:, :-1]


@pytest.mark.parametrize(
    "model", [Unavailable(), Failing(0), Narrow(16, model="narrow")], ids=["unavailable", "failing", "narrow"]
)
@pytest.mark.parametrize("indexed", [True, False])
def test_a_failed_probe_changes_no_vectors(open_store, model, indexed):
    old = open_store(embedder=old_model())
    fill(old, 3)
    if indexed:
        old.index()
    before = embedding_tables(old)
    other = open_store(embedder=model)
    for verb in (other.index, other.reindex):
        with pytest.raises(EmbeddingError):
            verb()
    assert embedding_tables(old) == before
    assert len(other.recall(ANA, "rain memory 0")) > 0
    assert len(old.recall(ANA, "rain memory 0")) > 0


class Poisoned(HashEmbedder):
    """Gives no usable vector for some texts, until it is healed."""

    def __init__(self, **options: object) -> None:
        super().__init__(16, **options)
        self.healed = False

    def embed_documents(self, texts):
        out = super().embed_documents(texts)
        for row, text in zip(out, texts, strict=True):
            for number, word in enumerate(("nan", "zero", "inf", "tiny")):
                if not self.healed and f"poison {word}" in text:
                    row[:] = (np.nan, 0.0, np.inf, 1e-38)[number]
        return out


@pytest.mark.parametrize("over", [False, True], ids=["own", "change over"])
def test_refused_rows_are_found_by_text_and_tried_again_by_reindex_only(open_store, over):
    store = open_store(embedder=old_model())
    fill(store, 5)
    if over:
        store.index()
    model = Poisoned(model="other") if over else Poisoned()
    bad = [store.add(ANA, f"poison {word}").id for word in ("nan", "zero", "inf", "tiny")]
    store = open_store(embedder=model)
    report = store.reindex() if over else store.index()
    assert (report.embedded, report.refused, report.pending) == (10, 4, 0)
    assert store.generations()[-1].refused == 4
    for word, row_id in zip(("nan", "zero", "inf", "tiny"), bad, strict=True):
        assert store.recall(ANA, f"poison {word}")[0].id == row_id
    texts = model.document_texts
    assert store.index().refused == 0
    assert model.document_texts == texts
    assert store.reindex().refused == 4
    assert model.document_texts == texts + 4
    model.healed = True
    assert store.index().embedded == 0
    assert store.reindex().embedded == 4
    assert_complete(store, model)


def test_a_model_that_fails_half_way_leaves_what_was_done(open_store):
    old = open_store(embedder=old_model())
    fill(old, 100)
    old.index()
    before = old.recall(ANA, "rain memory 6", explain=True).hits
    failing = Failing(2 * BATCH_ROWS)
    store = open_store(embedder=failing)
    done = 100  # the messages in two batches; the next one is too large for what is left
    with pytest.raises(EmbeddingError, match="broke down"):
        store.reindex()
    assert [(g.state, g.vectors) for g in store.generations()] == [
        ("active", 200),
        ("building", done),
    ]
    assert old.recall(ANA, "rain memory 6", explain=True).hits == before
    failing.left = 10**6
    assert store.reindex().embedded == 200 - done
    assert_complete(store, new_model())


def test_failures_back_off_and_end_as_a_dead_letter(open_store, clock: ManualClock):
    failing = Failing(0, model="hash")
    store = open_store(embedder=failing)
    store.add(ANA, "rain")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        with pytest.raises(EmbeddingError):
            store.index()
        [(state, attempts, error, due)] = rows_of(
            store, "SELECT state, attempts, last_error, not_before FROM jobs WHERE kind = 'index'"
        )
        assert (attempts, "broke down" in error) == (attempt, True)
        assert state == ("dead" if attempt == MAX_ATTEMPTS else "queued")
        wait = RETRY_BASE_S * 2 ** (attempt - 1)
        assert due == int(clock.now().timestamp() + wait) * 1_000_000
        with pytest.raises(EmbeddingError):
            store.index()  # by hand it is tried at once, and that is no attempt of the job
        assert rows_of(store, "SELECT attempts FROM jobs WHERE kind = 'index'") == [(attempt,)]
        clock.advance(wait)
    [dead] = [f for f in store.doctor().findings if f.check == "queue"]
    assert (dead.severity, dead.repair) == ("warning", "memstore index")
    assert "broke down" in dead.message
    assert contents(store.recall(ANA, "rain")) == ["rain"]
    failing.left = 100
    assert store.index().embedded == 1
    assert [f for f in store.doctor().findings if f.check == "queue"] == []


# --- damage --------------------------------------------------------------------------------------------------


def lost(store: MemoryStore, rng: random.Random, layer: str) -> int:
    slots = some_slots(store, rng, layer)
    for slot in slots:
        run(store, f"DELETE FROM vectors_1_{layer} WHERE slot = ?", slot)
    return len(slots)


def flipped(store: MemoryStore, rng: random.Random, layer: str) -> int:
    slots = some_slots(store, rng, layer)
    for slot in slots:
        [(vector,)] = rows_of(store, f"SELECT vector FROM vectors_1_{layer} WHERE slot = {slot}")
        changed = bytearray(vector)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        run(store, f"UPDATE vectors_1_{layer} SET vector = ? WHERE slot = ?", bytes(changed), slot)
    return len(slots)


def stale(store: MemoryStore, rng: random.Random, layer: str) -> int:
    """Another row's vector with the checksum that it has there."""
    slots = some_slots(store, rng, layer)
    rest = (slot for (slot,) in rows_of(store, f"SELECT slot FROM vectors_1_{layer}") if slot not in slots)
    source = next(rest)
    for slot in slots:
        run(
            store,
            f"UPDATE vectors_1_{layer} SET (vector, checksum) ="
            f" (SELECT vector, checksum FROM vectors_1_{layer} WHERE slot = ?) WHERE slot = ?",
            source,
            slot,
        )
    return len(slots)


def of_another_model(store: MemoryStore, rng: random.Random, layer: str) -> int:
    """The same row's vector of a retired generation of equal width."""
    slots = some_slots(store, rng, layer)
    for slot in slots:
        run(
            store,
            f"UPDATE vectors_1_{layer} SET (vector, checksum) ="
            f" (SELECT vector, checksum FROM vectors_2_{layer} WHERE slot = ?) WHERE slot = ?",
            slot,
            slot,
        )
    return len(slots)


def orphans(store: MemoryStore, rng: random.Random, layer: str) -> int:
    count = rng.randint(1, 5)
    for slot in rng.sample(range(1, 10**6), count):
        run(
            store,
            f"INSERT INTO vectors_1_{layer} SELECT ?, vector, checksum FROM vectors_1_{layer} LIMIT 1",
            slot,
        )
    return count


def unqueued(store: MemoryStore, rng: random.Random, layer: str) -> int:
    """Rows that wait, struck off the waiting list."""
    count = rng.randint(1, 4)
    if layer == "memories":
        for n in range(count):
            store.add(ANA, f"rain unqueued {n}")
    else:
        store.record(ANA, said(*(f"rain unqueued {n}" for n in range(count))), "chat")
    run(store, "DELETE FROM pending_vectors WHERE layer = ?", layer)
    return count


def some_slots(store: MemoryStore, rng: random.Random, layer: str) -> list[int]:
    slots = [slot for (slot,) in rows_of(store, f"SELECT slot FROM vectors_1_{layer} ORDER BY slot")]
    return rng.sample(slots, rng.randint(1, 5))


DAMAGE = (lost, flipped, stale, of_another_model, orphans, unqueued)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layer", ["messages", "memories"])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda d: d.__name__)
def test_damage_is_counted_and_mended_once(changed, damage, layer, seed):
    old, new = changed
    new.reindex()
    old.reindex()
    assert problems(old) == []
    count = damage(old, random.Random(seed), layer)
    [(check, severity, message)] = problems(old)
    assert (check, severity) == ("vectors", "error")
    kind = {lost: "lost", unqueued: "lost", orphans: "without a row"}.get(damage, "damaged")
    assert f"vectors_1_{layer}: " in message
    assert f"{count} {kind}" in message
    report = old.reindex()
    assert report.embedded == (0 if damage is orphans else count)
    assert_complete(old, old_model())
    mended = embedding_tables(old)
    assert old.reindex().embedded == 0
    assert embedding_tables(old) == mended


@pytest.mark.parametrize("damage", [lost, flipped, stale, orphans])
def test_without_a_model_the_damaged_leave_and_wait(open_store, changed, damage):
    old, _ = changed
    count = damage(old, random.Random(5), "memories")
    plain = open_store()
    report = plain.reindex()
    assert problems(plain) == []
    assert report.pending == (0 if damage is orphans else count)
    assert old.index().embedded == report.pending
    assert_complete(old, old_model())


def test_a_lost_vector_table_is_made_anew(changed):
    old, _ = changed
    run(old, "DROP TABLE vectors_1_memories")
    assert [severity for _, severity, _ in problems(old)] == ["error"]
    assert old.reindex().embedded == 30
    assert_complete(old, old_model())


def test_a_store_without_vectors_that_lost_its_waiting_list(open_store):
    store = open_store()
    fill(store, 5)
    run(store, "DELETE FROM pending_vectors")
    assert [(check, severity) for check, severity, _ in problems(store)] == [("vectors", "warning")]
    indexed = open_store(embedder=old_model())
    store.reindex()
    assert problems(store) == []
    run(store, "DELETE FROM pending_vectors")
    assert indexed.index().embedded == 10
    assert_complete(indexed, old_model())


def test_a_checksum_of_before_the_seal_is_sound(changed):
    import zlib

    old, _ = changed
    for slot, vector in rows_of(old, "SELECT slot, vector FROM vectors_1_memories"):
        run(old, "UPDATE vectors_1_memories SET checksum = ? WHERE slot = ?", zlib.crc32(vector), slot)
    assert problems(old) == []
    assert old.reindex().embedded == 0


@pytest.mark.parametrize("layer", ["messages", "memories"])
def test_a_deleted_rows_vector_in_a_retired_generation_is_named(changed, layer):
    _, new = changed
    new.reindex()
    run(new, f"INSERT INTO vectors_1_{layer} SELECT 99, vector, checksum FROM vectors_1_{layer} LIMIT 1")
    [finding] = [f for f in new.doctor().findings if f.severity == "warning"]
    assert finding.repair == "memstore generations drop 1"
    new.drop_generation(1)
    assert [f for f in new.doctor().findings if f.check != "backups"] == []


def test_a_deleted_row_leaves_every_generation(changed):
    old, new = changed
    new.reindex()
    old.delete_all(ANA)
    assert {
        name: rows for name, rows in embedding_tables(old).items() if rows and name != "embedding_generations"
    } == {}


# --- switching under readers ---------------------------------------------------------------------------------


def cosine(model: HashEmbedder, query: str, text: str) -> float:
    return float(model.embed_query(embeddable(query)) @ model.embed_documents([text])[0])


class Readers:
    """Threads that recall without a pause through one store each, and check what they get."""

    def __init__(self, stores: list[MemoryStore], texts: dict[str, str]) -> None:
        self.stop = threading.Event()
        self.texts = texts
        self.faults: list[object] = []
        self.answers = {id(store): {"whole": 0, "degraded": 0} for store in stores}
        self.first = threading.Barrier(len(stores) + 1)
        self.threads = [threading.Thread(target=self._guarded, args=(store,)) for store in stores]

    def _guarded(self, store: MemoryStore) -> None:
        try:
            self._loop(store)
        except BaseException as error:  # noqa: BLE001 - every fault is to be seen
            self.faults.append(error)
            self.first.abort()

    def _loop(self, store: MemoryStore) -> None:
        count = 0
        while not self.stop.is_set():
            self._ask(store, TOPICS[count % len(TOPICS)])
            if count == 0:
                self.first.wait(FAR)
            count += 1
        self._ask(store, TOPICS[0])

    def _ask(self, store: MemoryStore, topic: str) -> None:
        answer = store.recall(ANA, topic, 10, explain=True, timeout_s=FAR)
        degraded = [part.leg for part in answer.degraded]
        self.answers[id(store)]["degraded" if degraded else "whole"] += 1
        if len(answer) < 10 or degraded not in ([], ["vector"]):
            self.faults.append((topic, contents(answer), answer.degraded))
        if not any(topic in hit.content for hit in answer):
            self.faults.append((topic, contents(answer), "no text match"))
        for hit in answer:
            leg = hit.explanation.legs.get("vector")
            if leg is None or leg.note:
                continue
            if degraded or abs(leg.score - cosine(store._embedder, topic, self.texts[hit.id])) > 1e-5:
                self.faults.append((topic, hit.content, leg.score, answer.degraded))

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        self.first.wait(FAR)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(FAR)


def test_switching_models_under_four_reading_threads(open_store):
    first = open_store(embedder=old_model())
    texts = {row_id: first.get(ANA, row_id).content for row_id in fill(first, 120)}
    first.index()
    stores = [open_store(embedder=make()) for make in (old_model, old_model, new_model, new_model)]
    changing, back = open_store(embedder=new_model()), open_store(embedder=old_model())
    with Readers(stores, texts) as readers:
        for _ in range(2):
            assert changing.reindex().pending == 0
            back.reindex()
        assert changing.reindex().pending == 0
    assert readers.faults == []
    old_counts = [readers.answers[id(store)] for store in stores[:2]]
    new_counts = [readers.answers[id(store)] for store in stores[2:]]
    # each began before the first switch and asked once more after the last
    assert all(counts["whole"] >= 1 and counts["degraded"] >= 1 for counts in old_counts + new_counts)
    assert_complete(changing, new_model())


# --- the command line ----------------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """On a store that has changed models once."""
    for model in (old_model(), new_model()):
        with MemoryStore(tmp_path / "memory.db", model, settings=FAST) as store:
            if not store.generations():
                fill(store, 3)
            store.reindex()
    return Cli(tmp_path / "memory.db", user=None)


def test_the_command_lists_goes_back_and_drops(cli):
    listed = cli.answer("generations")["generations"]
    assert [(g["number"], g["model"], g["state"], g["vectors"]) for g in listed] == [
        (1, "hash", "retired", 6),
        (2, "other", "active", 6),
    ]
    assert cli.answer("generations", "list")["generations"] == listed
    assert cli.answer("generations", "roll-back")["number"] == 1
    assert cli.answer("generations", "roll-back", "2")["state"] == "active"
    shown = cli.shown("generations")
    assert "retired" in shown
    assert shown.startswith("number")
    assert cli.answer("generations", "drop", "1")["vectors"] == 6
    assert [g["number"] for g in cli.answer("generations")["generations"]] == [2]
    cli.answer("doctor")


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ("drop", 2, "which generation"),
        ("drop 2", 2, "is active"),
        ("drop 7", 1, "there are 1, 2"),
        ("drop x", 2, "x"),
        ("roll-back 2", 2, "active one already"),
        ("roll-back 7", 1, "there are 1, 2"),
        ("list 1", 2, "takes no NUMBER"),
        ("burn 1", 2, "burn"),
    ],
)
def test_wrong_calls_are_named_and_change_nothing(cli, words, code, named):
    before = cli.answer("generations")
    result = cli("generations", *words.split())
    assert (result.exit_code, result.stdout) == (code, "")
    assert named in result.stderr
    assert cli.answer("generations") == before


def test_a_store_without_vectors_says_so(tmp_path):
    cli = Cli(tmp_path / "memory.db", user=None)
    cli.answer("init", "--timezone", "UTC")
    assert cli.answer("generations") == {"generations": []}
    assert "memstore index" in cli.shown("generations")
    assert cli("generations", "roll-back").exit_code == 1
