"""Taking verdicts back: recall is as it was, history tells both, and nobody's later work is run over."""

import pytest

from memstore import Message, Scope
from memstore.errors import InvalidInput, NotFound
from memstore.testing import HashEmbedder
from tests.conftest import contents, leave_team
from tests.pipeline_support import Repeating, learn, proposed, say, verdict


@pytest.fixture
def model():
    return Repeating()


@pytest.fixture
def store(open_store, model):
    return open_store(embedder=HashEmbedder(), llm=model.llm)


def current(store, scope):
    return sorted(contents(store.get_all(scope)))


def last(store, scope):
    return store.verdicts(scope)[0].id


def test_a_stored_memory_leaves_every_answer(store, model, ana):
    made = learn(store, model, ana, "likes tea")
    store.index()
    undone = store.undo(ana, last(store, ana))
    assert (undone.undone_by, undone.memory_id) == ("ana", made)
    assert undone.undone_at is not None
    assert current(store, ana) == []
    assert contents(store.recall(ana, "likes tea")) == []
    assert store.get(ana, made) is None
    assert [row.state for row in store.history(ana, made)] == ["deleted"]
    assert store.verdicts(ana)[0].undone_by == "ana"
    assert store.pending(ana) == 0  # and is not made once more
    assert store.doctor(full=True).ok


@pytest.mark.parametrize("action", ["update", "merge"])
def test_what_was_replaced_comes_back(store, model, ana, action):
    first, second = (learn(store, model, ana, text) for text in ("likes tea", "likes milk"))
    made = learn(
        store, model, ana, "likes cake", verdict(0, action, first, second, content="likes cake, tea, milk")
    )
    store.index()
    store.undo(ana, last(store, ana))
    store.index()
    assert current(store, ana) == ["likes milk", "likes tea"]
    assert contents(store.recall(ana, "likes tea"))[0] == "likes tea"
    assert [row.state for row in store.history(ana, made)] == ["deleted"]
    (row,) = store.history(ana, first)
    assert (row.state, row.superseded_at, row.superseded_by, row.valid_to) == ("live", None, None, None)
    assert store.doctor(full=True).ok


def test_the_end_of_validity_that_was_stated_comes_back(store, model, ana):
    old = store.add(ana, "the ticket is valid", kind="episodic", valid_to="2027-01-01").id
    learn(store, model, ana, "the ticket is void", verdict(0, "update", old), kind="episodic")
    assert store.history(ana, old)[0].valid_to.year == 2026
    store.undo(ana, last(store, ana))
    assert store.history(ana, old)[0].valid_to.year == 2027


def test_what_was_skipped_is_stored_after_all(store, model, ana):
    known = learn(store, model, ana, "likes tea")
    ids = say(store, ana, "chat", "I do like tea")
    model.memories = [proposed("likes tea a lot", *ids)]
    model.decided = [verdict(0, "skip", known)]
    store.extract(ana, "chat")
    undone = store.undo(ana, last(store, ana))
    assert current(store, ana) == ["likes tea", "likes tea a lot"]
    memory = store.get(ana, undone.memory_id)
    assert (memory.source_kind, memory.trust, memory.actor) == ("user", 60, "scripted")
    hit = store.recall(ana, "likes tea a lot", explain=True)[0]
    assert hit.explanation.sources == tuple(ids)
    assert store.doctor(full=True).ok


def test_a_verdict_is_undone_once(store, model, ana):
    learn(store, model, ana, "likes tea")
    store.undo(ana, last(store, ana))
    with pytest.raises(InvalidInput, match="was undone already"):
        store.undo(ana, last(store, ana))


def test_later_verdicts_are_undone_first(store, model, ana):
    first = learn(store, model, ana, "lives in Lyon")
    below = last(store, ana)
    learn(store, model, ana, "lives in Nice", verdict(0, "update", first))
    above = last(store, ana)
    with pytest.raises(InvalidInput, match=above):
        store.undo(ana, below)
    store.undo(ana, above)
    store.undo(ana, below)
    assert current(store, ana) == []


def test_a_chain_within_one_batch_is_undone_from_its_end(store, model, ana):
    old = learn(store, model, ana, "预算两万", kind="episodic")
    ids = say(store, ana, "chat", "预算三万，不，预算五万")
    model.memories = [
        proposed("预算三万", *ids, kind="episodic"),
        proposed("预算五万", *ids, kind="episodic"),
    ]
    model.decided = [verdict(0, "update", old), verdict(1, "update", old)]
    earlier, later = store.extract(ana, "chat").verdicts
    with pytest.raises(InvalidInput, match=later.id):
        store.undo(ana, earlier.id)
    store.undo(ana, later.id)
    assert current(store, ana) == ["预算三万"]
    store.undo(ana, earlier.id)
    assert current(store, ana) == ["预算两万"]


def test_what_a_person_did_since_is_not_run_over(store, model, ana):
    changed = learn(store, model, ana, "likes tea")
    first = last(store, ana)
    store.update(ana, changed, content="likes green tea")
    with pytest.raises(InvalidInput, match="version 2"):
        store.undo(ana, first)
    deleted = learn(store, model, ana, "likes cake", kind="episodic")
    second = last(store, ana)
    store.delete(ana, deleted)
    with pytest.raises(InvalidInput, match="was deleted since"):
        store.undo(ana, second)
    assert current(store, ana) == ["likes green tea"]
    assert all(record.undone_at is None for record in store.verdicts(ana))


def test_what_a_person_deleted_stays_deleted(store, model, ana):
    first, second = (learn(store, model, ana, text) for text in ("likes tea", "likes milk"))
    learn(store, model, ana, "likes both", verdict(0, "merge", first, second, content="likes tea, milk"))
    store.delete(ana, first)
    store.undo(ana, last(store, ana))
    assert current(store, ana) == ["likes milk"]


def test_only_ones_own_verdicts_are_undone(store, model, ana):
    learn(store, model, ana, "likes tea")
    of = last(store, ana)
    for scope in (
        Scope("acme", "bob", "helper"),
        Scope("globex", "ana", "helper"),
        Scope("acme", "ana", "other"),
    ):
        with pytest.raises(NotFound):
            store.undo(scope, of)
    for missing in ("", "x", "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        with pytest.raises(NotFound):
            store.undo(ana, missing)
    assert store.undo(Scope("acme", "ana"), of).undone_by == "ana"
    learn(store, model, ana, "likes milk")
    of = last(store, ana)
    leave_team(store, ana)
    with pytest.raises(NotFound):
        store.undo(ana, of)


def test_an_undone_verdict_queues_what_follows_from_it(store, model, ana):
    learn(store, model, ana, "likes tea")
    with store._storage.write() as tx:
        tx._run("DELETE FROM jobs")
    store.undo(ana, last(store, ana))
    assert {job.kind for job in store.jobs("queued")} == {"index", "scenes", "agent_profile", "user_profile"}


def withhold(store, scope, how, message_id, session):
    if how == "deleted":
        store.delete(scope, message_id)
    elif how == "hidden":
        store.delete_session(scope, session)
    else:
        store.quarantine(scope, source=message_id)


def refused(store, scope, verdict_id, match):
    """Nothing is changed by an undo that is refused."""
    before = [store.history(scope, one.id) for one in store.get_all(scope, include_history=True)]
    with pytest.raises(InvalidInput, match=match):
        store.undo(scope, verdict_id)
    assert [store.history(scope, one.id) for one in store.get_all(scope, include_history=True)] == before
    assert all(record.undone_at is None for record in store.verdicts(scope))


WITHHELD = pytest.mark.parametrize(
    ("how", "match"),
    [("deleted", "was deleted"), ("hidden", "was deleted"), ("quarantined", "release it first")],
)


@WITHHELD
def test_what_was_skipped_is_not_stored_from_a_message_that_is_withheld(store, model, ana, how, match):
    known = learn(store, model, ana, "the PIN of the door is known", session="one")
    ids = say(store, ana, "two", "the PIN of the door, yes")
    model.memories, model.decided = [proposed("the PIN of the door", *ids)], [verdict(0, "skip", known)]
    (skipped,) = store.extract(ana, "two").verdicts
    assert skipped.action == "skip"
    withhold(store, ana, how, ids[0], "two")
    refused(store, ana, skipped.id, match)
    assert contents(store.recall(ana, "PIN of the door")) == ["the PIN of the door is known"]
    if how == "quarantined":
        store.release(ana, source=ids[0])
        store.undo(ana, skipped.id)
        assert "the PIN of the door" in current(store, ana)


@WITHHELD
def test_what_was_replaced_does_not_come_back_from_a_message_that_is_withheld(store, model, ana, how, match):
    ids = say(store, ana, "one", "lives in Berlin")
    model.memories = [proposed("lives in Berlin", *ids)]
    old = store.extract(ana, "one").verdicts[0].memory_id
    learn(store, model, ana, "lives in Paris", verdict(0, "update", old), session="two")
    withhold(store, ana, how, ids[0], "one")
    refused(store, ana, last(store, ana), match)
    assert current(store, ana) == ["lives in Paris"]
    if how == "quarantined":
        store.release(ana, source=ids[0])
        store.undo(ana, last(store, ana))
        assert current(store, ana) == ["lives in Berlin"]


def test_a_link_of_a_chain_under_quarantine_is_in_the_way(store, model, ana):
    berlin = learn(store, model, ana, "lives in Berlin")
    ids = say(store, ana, "chat", "lives in Paris")
    model.memories, model.decided = [proposed("lives in Paris", *ids)], [verdict(0, "update", berlin)]
    paris = store.extract(ana, "chat").verdicts[0].memory_id
    learn(store, model, ana, "lives in Rome", verdict(0, "update", paris))
    store.quarantine(ana, source=ids[0])
    refused(store, ana, last(store, ana), f"{paris}.*is under quarantine; release it first")
    store.release(ana, source=ids[0])
    store.undo(ana, last(store, ana))
    assert current(store, ana) == ["lives in Paris"]


def test_only_verdicts_of_ones_task_or_of_none_are_undone(store, model, ana):
    trip, work = (Scope("acme", "ana", "helper", task) for task in ("trip", "work"))
    learn(store, model, trip, "packed the bags", kind="episodic")
    with pytest.raises(NotFound):
        store.undo(work, last(store, trip))
    assert current(store, trip) == ["packed the bags"]
    store.undo(trip, last(store, trip))
    learn(store, model, ana, "bought a ticket", kind="episodic", session="other")
    store.undo(work, last(store, work))
    assert current(store, ana) == []


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", ["UPDATE memory_versions SET state = 'live'", "UPDATE verdicts"])
def test_killed_while_it_is_undone(open_store, store, model, ana, at):
    first = learn(store, model, ana, "lives in Lyon")
    learn(store, model, ana, "lives in Nice", verdict(0, "update", first))

    def hook(statement):
        if statement.startswith(at):
            raise Killed

    with pytest.raises(Killed):
        open_store(statement_hook=hook, llm=model.llm).undo(ana, last(store, ana))
    assert current(store, ana) == ["lives in Nice"]
    store.undo(ana, last(store, ana))
    assert current(store, ana) == ["lives in Lyon"]


def test_what_comes_back_gets_its_scene_again(open_store, ana):
    """By rules: the scene of the old home went with it."""
    store = open_store()
    for text in ("我住在成都。", "我搬到杭州了。"):
        store.record(ana, [Message("user", text), Message("assistant", "好的")], "chat")
        store.work(once=True, force=True)
    assert not any("成都" in scene.content for scene in store.scenes(ana))
    [moved] = [verdict for verdict in store.verdicts(ana) if verdict.action == "update"]
    store.undo(ana, moved.id)
    store.work(once=True, force=True)
    assert [memory.content for memory in store.get_all(ana)] == ["我住在成都"]
    scenes = [scene.content for scene in store.scenes(ana)]
    assert any("成都" in content for content in scenes)
    assert not any("杭州" in content for content in scenes)
