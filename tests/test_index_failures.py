"""Models that fail while rows are indexed: what is tried again, what is given up, and who learns of it."""

import pytest

from memstore import EmbeddingError, Message, Scope
from memstore.index import MAX_ATTEMPTS
from memstore.testing import HashEmbedder, ManualClock

ANA = Scope("acme", "ana", "helper")


class Choosy(HashEmbedder):
    """Raises on every call that holds a text with this word."""

    def __init__(self, word: str) -> None:
        super().__init__(16)
        self.word = word
        self.calls = 0

    def embed_documents(self, texts):
        self.calls += 1
        if any(self.word in text for text in texts):
            raise ValueError(f"cannot read {self.word}")
        return super().embed_documents(texts)


class Unreachable:
    """Cannot even say what it is, until it is up."""

    def __init__(self) -> None:
        self.up = False
        self.model = HashEmbedder(16)

    @property
    def identity(self):
        if not self.up:
            raise EmbeddingError("the server is down")
        return self.model.identity

    def embed_documents(self, texts):
        return self.model.embed_documents(texts)

    def embed_query(self, text):
        return self.model.embed_query(text)


def jobs(store) -> list[tuple]:
    with store._storage.exclusive_connection() as connection:
        return connection.execute("SELECT state, attempts, last_error FROM jobs ORDER BY job_no").fetchall()


def test_one_text_that_the_model_cannot_take_holds_up_no_other(open_store):
    model = Choosy("poison")
    store = open_store(embedder=model)
    for number in range(20):
        store.add(ANA, f"memory {number}")
    bad = store.add(ANA, "poison")
    report = store.index()
    assert (report.embedded, report.refused, report.pending) == (20, 1, 0)
    assert store.recall(ANA, "poison")[0].id == bad.id
    [reason] = [finding for finding in store.doctor().findings if "no usable vector" in finding.message]
    assert reason.repair == "memstore reindex"
    calls = model.calls
    assert store.index().embedded == 0
    assert model.calls == calls, "a refused row is not tried again by index"
    model.word = "nothing like it"
    assert store.reindex().embedded == 1


def test_a_model_that_takes_nothing_refuses_no_row(open_store):
    store = open_store(embedder=Choosy("memory"))
    for number in range(20):
        store.add(ANA, f"memory {number}")
    with pytest.raises(EmbeddingError, match="cannot read memory"):
        store.index()
    report = open_store(embedder=HashEmbedder(16)).index()
    assert (report.embedded, report.refused) == (20, 0)


def test_a_server_that_is_down_is_a_failed_attempt_that_backs_off_and_is_given_up(
    open_store, clock: ManualClock
):
    model = Unreachable()
    store = open_store(embedder=model)
    store.add(ANA, "rain")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        with pytest.raises(EmbeddingError, match="the server is down"):
            store.index()
        [(state, attempts, error)] = jobs(store)
        assert (attempts, error) == (attempt, "the server is down")
        assert state == ("dead" if attempt == MAX_ATTEMPTS else "queued")
        clock.advance(86_400)
    assert any("gave up" in finding.message for finding in store.doctor().findings)
    model.up = True
    assert store.index().embedded == 1
    assert jobs(store) == []


def test_steady_writing_does_not_make_a_broken_model_look_new(open_store, clock: ManualClock):
    """While a job fails, a new message queues a twin of it: the twin carries on what was tried in vain."""

    class Busy(Choosy):
        def embed_documents(self, texts):
            writer.record(ANA, [Message("user", f"memory {self.calls}")], "s")
            return super().embed_documents(texts)

    writer = open_store()
    model = Busy("memory")
    store = open_store(embedder=model)
    writer.record(ANA, [Message("user", "memory")], "s")
    seen = []
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(EmbeddingError):
            store.index()
        seen.append(max(attempts for _, attempts, _ in jobs(store)))
        clock.advance(86_400 * 365)
    assert seen == list(range(1, MAX_ATTEMPTS + 1))
    assert "dead" in [state for state, _, _ in jobs(store)]
