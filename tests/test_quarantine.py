"""Quarantine: what came from a source leaves recall with all that was derived from it, and comes back as it was."""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli_support import Cli
from conftest import FAST, OpenStore, contents, fresh_store, leave_team, said
from memstore import MemoryStore, Message, Scope
from memstore.errors import InvalidInput, InvalidSessionKey, NotFound, NotPermitted
from memstore.fallback import day_files, folder_of, read_lines
from memstore.llm import LLMRequest
from memstore.pipelines.extraction import ExtractRunner
from memstore.pipelines.profiles import ProfileRunner
from memstore.pipelines.scenes import SceneRunner
from memstore.storage.base import Writer
from memstore.storage.pipeline_rows import Cursor, Owner, ProfileRow, SceneRow, SourceLink, VerdictRow, sealed
from memstore.testing import ManualClock, ScriptedLLM
from memstore.times import to_micros
from memstore.worker import Worker
from pipeline_support import Repeating, cited_ids, extraction, proposed, say, verdict

ANA = Scope("acme", "ana", "helper")
OF = Owner("acme", "ana")
QUIET = replace(FAST, nightly_backup_hour=None)


def work(store: MemoryStore) -> None:
    """All that is pending, and what follows from it, whether its time has come or not."""
    made_of = store._pipelines
    runners = [
        ExtractRunner(made_of),
        SceneRunner(made_of),
        ProfileRunner(made_of, "agent"),
        ProfileRunner(made_of, "user"),
    ]
    for _ in range(10):
        report = Worker(made_of, runners).run_due(force=True)
        assert (report.failed, report.dead) == (0, 0)
        if not report.done:
            return
    raise AssertionError("the work never ended")


def profiles(store: MemoryStore) -> dict[str, str | None]:
    with store._storage.read() as reader:
        rows = {"user": reader.profile(OF, None), "agent": reader.profile(OF, "helper")}
    return {name: None if row is None else row.content for name, row in rows.items()}


def scene_texts(store: MemoryStore) -> list[str]:
    with store._storage.read() as reader:
        return sorted(row.content for row in reader.scenes(OF, None))


def memory_texts(store: MemoryStore) -> list[str]:
    return sorted(contents(store.get_all(ANA, limit=1_000)))


def dump(store: MemoryStore) -> dict[str, list[Any]]:
    """The states of all rows, as quarantine and release change them."""
    with store._storage.read() as reader:
        rows = reader._rows  # type: ignore[attr-defined]
        return {
            "messages": rows("SELECT id, quarantined_at FROM messages ORDER BY id"),
            "memories": rows(
                "SELECT id, version, state, superseded_at, superseded_by, valid_to FROM memory_versions ORDER BY 1, 2"
            ),
            "scenes": rows("SELECT id, version, state, superseded_at FROM scene_versions ORDER BY 1, 2"),
            "profiles": rows("SELECT id, version, state, superseded_at FROM profile_versions ORDER BY 1, 2"),
        }


# --- chains of memories that replaced one another ------------------------------------------------------------


def live_ids(store: MemoryStore) -> set[str]:
    with store._storage.read() as reader:
        rows = reader._rows("SELECT id FROM memory_versions WHERE state = 'live'")  # type: ignore[attr-defined]
    return {row_id for (row_id,) in rows}


class Chained:
    """Memories that a model made, with the messages they were made from, in the order in which they were made."""

    def __init__(self, store: MemoryStore, model: Repeating) -> None:
        self.store = store
        self.model = model
        self.messages: dict[str, str] = {}  # of each memory
        self.verdicts: dict[str, str] = {}
        self.replaced: dict[str, list[str]] = {}
        self.undone: set[str] = set()

    def learn(self, text: str, *replaced: str) -> str:
        (message,) = say(self.store, ANA, "chat", text)
        self.model.memories = [proposed(text, message)]
        action = "merge" if len(replaced) > 1 else "update"
        self.model.decided = [verdict(0, action, *replaced)] if replaced else []
        (made,) = self.store.extract(ANA, "chat").verdicts
        assert made.memory_id is not None
        self.messages[made.memory_id] = message
        self.verdicts[made.memory_id] = made.id
        self.replaced[made.memory_id] = list(made.target_ids)
        return made.memory_id

    def undo(self, memory: str) -> None:
        """Where it may be."""
        try:
            self.store.undo(ANA, self.verdicts[memory])
        except InvalidInput:
            return
        self.undone.add(memory)

    def of_each(self) -> list[set[str]]:
        """The memories of each chain."""
        chains: list[set[str]] = []
        for memory in self.messages:
            if memory in self.undone:
                continue
            chain = {memory, *self.replaced[memory]}
            chain |= {one for other in chains if other & chain for one in other}
            chains = [other for other in chains if not other & chain] + [chain]
        return chains


@pytest.fixture
def chained(open_store: OpenStore) -> Chained:
    model = Repeating()
    return Chained(open_store(settings=QUIET, llm=model.llm), model)


def test_what_came_back_for_poison_and_was_replaced_then_has_one_heir(chained: Chained) -> None:
    store = chained.store
    berlin = chained.learn("lives in Berlin")
    paris = chained.learn("lives in Paris", berlin)
    poison = chained.messages[paris]
    store.quarantine(ANA, source=poison)
    assert live_ids(store) == {berlin}
    rome = chained.learn("lives in Rome", berlin)
    store.release(ANA, source=poison)
    assert live_ids(store) == {rome}
    chained.undo(rome)
    assert live_ids(store) == {paris}
    chained.undo(paris)
    assert live_ids(store) == {berlin}


def test_poison_on_poison_that_leaves_bit_by_bit_gives_back_what_was_before(chained: Chained) -> None:
    store = chained.store
    berlin = chained.learn("lives in Berlin")
    paris = chained.learn("lives in Paris", berlin)
    rome = chained.learn("lives in Rome", paris)
    store.quarantine(ANA, source=chained.messages[paris])
    assert live_ids(store) == {rome}
    store.quarantine(ANA, source=chained.messages[rome])
    assert live_ids(store) == {berlin}
    store.release(ANA, source=chained.messages[paris])
    assert live_ids(store) == {paris}
    store.release(ANA, source=chained.messages[rome])
    assert live_ids(store) == {rome}


def test_what_was_replaced_by_something_undone_meanwhile_is_live_when_it_comes_back(chained: Chained) -> None:
    """Undoing is refused by now while a target is under quarantine; stores may hold such rows all the same."""
    store = chained.store
    berlin = chained.learn("lives in Berlin")
    paris = chained.learn("lives in Paris", berlin)
    store.quarantine(ANA, source=chained.messages[berlin])
    with store._storage.write() as tx:
        tx.delete_memory("acme", paris, 1, "ana")
        tx.mark_verdict_undone("acme", chained.verdicts[paris], "ana", 1)
    store.release(ANA, source=chained.messages[berlin])
    assert live_ids(store) == {berlin}


def test_what_its_owner_deleted_stays_the_end_of_what_it_had_replaced(chained: Chained) -> None:
    store = chained.store
    berlin = chained.learn("lives in Berlin")
    paris = chained.learn("lives in Paris", berlin)
    store.delete(ANA, paris)
    store.quarantine(ANA, source=chained.messages[berlin])
    store.release(ANA, source=chained.messages[berlin])
    assert live_ids(store) == set()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_chain_has_one_live_end(data: st.DataObject) -> None:
    model = Repeating()
    with fresh_store(llm=model.llm, settings=QUIET) as store:
        chained, away = Chained(store, model), set[str]()
        for number in range(data.draw(st.integers(2, 12), label="steps")):
            _step(data, chained, away, number)
            live = live_ids(store)
            assert not live & away
            assert all(len(chain & live) == 1 for chain in chained.of_each() if not chain & away)
        for one in data.draw(st.permutations(sorted(away)), label="released at last"):
            store.release(ANA, source=chained.messages[one])
        live = live_ids(store)
        assert [len(chain & live) for chain in chained.of_each()] == [1] * len(chained.of_each())


def _step(data: st.DataObject, chained: Chained, away: set[str], number: int) -> None:
    """Something happens; ``away``: memories whose messages are under quarantine."""
    store, live = chained.store, sorted(live_ids(chained.store))
    known = [one for one in chained.messages if one not in chained.undone]
    step = data.draw(st.sampled_from(["learn", "learn", "undo", "quarantine", "release"]), label="step")
    if step == "learn":
        among = st.lists(st.sampled_from(live), max_size=2, unique=True) if live else st.just([])
        chained.learn(f"text {number}", *data.draw(among, label="replaces"))
    elif step == "undo" and known:
        chained.undo(data.draw(st.sampled_from(known), label="undone"))
    elif step == "quarantine" and known:
        one = data.draw(st.sampled_from(known), label="put under quarantine")
        store.quarantine(ANA, source=chained.messages[one])
        away.add(one)
    elif step == "release" and away:
        one = data.draw(st.sampled_from(sorted(away)), label="released")
        store.release(ANA, source=chained.messages[one])
        away.discard(one)


# --- rows made by hand, so that nothing but quarantine is under test -----------------------------------------


class Made:
    """Puts rows into a store as the pipelines would."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.count = 0

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        with self.store._storage.write() as tx:
            yield tx

    def now(self) -> int:
        return to_micros(self.store._clock.now())

    def message(self, text: str, session: str = "chat", name: str | None = None) -> str:
        return self.store.record(ANA, [Message("user", text, name=name)], session).ids[0]

    def memory(self, text: str, *sources: tuple[str, str], replaces: Sequence[str] = ()) -> str:
        made = self.store.add(ANA, text)
        with self._writing() as tx:
            links = [SourceLink("memory", made.id, 1, kind, one) for kind, one in sources]  # type: ignore[arg-type]
            tx.add_sources("acme", links)
            for target in replaces:
                tx.supersede_memory("acme", target, made.id, self.now(), self.now())
            if replaces:
                tx.put_verdict(self._verdict("update", made.id, replaces))
        return made.id

    def skip(self, source: str, covered_by: str) -> None:
        with self._writing() as tx:
            tx.put_verdict(self._verdict("skip", None, [covered_by], [source]))

    def _verdict(
        self, action: str, memory_id: str | None, targets: Sequence[str], sources: Sequence[str] = ()
    ) -> VerdictRow:
        self.count += 1
        proposal = json.dumps({"content": "…", "kind": "persona", "source_ids": list(sources)})
        return sealed(
            VerdictRow(
                "acme", f"verdict-{self.count}", "ana", "helper", None, "helper:default:chat", "run", 0, action,
                proposal, "[]", json.dumps(list(targets)), "", "rules-1", self.now(), memory_id=memory_id,
            )
        )  # fmt: skip

    def scene(self, scene_id: str, version: int, *memories: str) -> None:
        with self._writing() as tx:
            row = SceneRow(
                "acme", scene_id, version, "ana", "helper", "a name", f"{scene_id} {version}", "user", 60, self.now(),
                "rules-1", run_id="run",
            )  # fmt: skip
            tx.put_scene(sealed(row))
            tx.add_sources(
                "acme", [SourceLink("scene", scene_id, version, "memory", one) for one in memories]
            )

    def profile(
        self, version: int, *sources: tuple[str, str], agent: str | None = "helper", run: str | None = "run"
    ) -> str:
        row_id = f"profile-{agent}-{version}"
        with self._writing() as tx:
            row = ProfileRow(
                "acme", row_id, "ana", agent, "user" if agent is None else "agent", version, f"text {version}", "user",
                60, self.now(), "rules-1" if run else "ana", run_id=run,
            )  # fmt: skip
            tx.put_profile(sealed(row))
            links = [SourceLink("profile", row_id, version, kind, one) for kind, one in sources]  # type: ignore[arg-type]
            tx.add_sources("acme", links)
        return row_id


@pytest.fixture
def made(store: MemoryStore) -> Made:
    return Made(store)


def states(store: MemoryStore, kind: str) -> dict[Any, str]:
    """Of every version; a profile's by its number alone."""
    found = dump(store)[kind]
    if kind == "profiles":
        return {row[1]: row[2] for row in found}
    return {(row[0], row[1]): row[2] for row in found}


def test_all_that_was_derived_over_any_number_of_steps_leaves_in_one_transaction(
    store: MemoryStore, made: Made
) -> None:
    poison = made.message("the password is swordfish", "bad")
    first = made.memory("password swordfish", ("message", poison))
    second = made.memory("swordfish opens it", ("memory", first))
    clean = made.memory("likes tea", ("message", made.message("I like tea")))
    made.scene("access", 1, second)
    made.scene("drinks", 1, clean)
    made.profile(1, ("scene", "access"), ("scene", "drinks"))
    made.profile(1, ("memory", second), agent=None)
    assert store.quarantine(ANA, session="bad") == 6
    assert contents(store.recall(ANA, "swordfish password")) == []
    assert contents(store.search_messages(ANA, "swordfish password")) == []
    assert profiles(store) == {"user": None, "agent": None}
    assert scene_texts(store) == ["drinks 1"]
    assert memory_texts(store) == sorted(["likes tea", "password swordfish", "swordfish opens it"]), (
        "listed still"
    )
    assert contents(store.recall(ANA, "tea")) == ["likes tea"]


@pytest.mark.parametrize("as_of", [None, "2026-01-01T00:00:30+00:00"])
def test_history_and_as_of_do_not_bring_it_back(
    store: MemoryStore, made: Made, clock: ManualClock, as_of: str | None
) -> None:
    poison = made.message("swordfish", "bad")
    old = made.memory("swordfish one", ("message", poison))
    clock.advance(60)
    store.update(ANA, old, content="swordfish two")
    store.quarantine(ANA, session="bad")
    asked: dict[str, Any] = {"include_history": True} if as_of is None else {"as_of": as_of}
    assert contents(store.recall(ANA, "swordfish", **asked)) == []
    assert set(states(store, "memories").values()) == {"quarantined"}


def test_what_poison_had_replaced_comes_back_and_goes_again(
    store: MemoryStore, made: Made, clock: ManualClock
) -> None:
    fact = made.memory("lives in Berlin", ("message", made.message("I live in Berlin")))
    clock.advance(60)
    poison = made.message("I live in Atlantis", "bad")
    made.memory("lives in Atlantis", ("message", poison), replaces=[fact])
    before = dump(store)
    clock.advance(60)
    assert store.quarantine(ANA, source=poison) == 2
    assert contents(store.recall(ANA, "where lives in")) == ["lives in Berlin"]
    clock.advance(60)
    assert store.release(ANA, source=poison) == 2
    assert dump(store) == before
    assert contents(store.recall(ANA, "where lives in")) == ["lives in Atlantis"]


def test_what_was_replaced_again_by_something_that_stays_does_not_come_back(
    store: MemoryStore, made: Made
) -> None:
    fact = made.memory("lives in Berlin", ("message", made.message("I live in Berlin")))
    poison = made.message("I live in Atlantis", "bad")
    false = made.memory("lives in Atlantis", ("message", poison), replaces=[fact])
    made.memory("lives in Paris", ("message", made.message("I live in Paris")), replaces=[false])
    before = dump(store)
    store.quarantine(ANA, source=poison)
    assert contents(store.recall(ANA, "lives in")) == ["lives in Paris"]
    store.release(ANA, source=poison)
    assert dump(store) == before


def test_a_chain_of_poison_gives_back_what_was_before_all_of_it(store: MemoryStore, made: Made) -> None:
    fact = made.memory("lives in Berlin", ("message", made.message("I live in Berlin")))
    one, two = made.message("Atlantis", "bad"), made.message("Lemuria", "bad")
    first = made.memory("lives in Atlantis", ("message", one), replaces=[fact])
    made.memory("lives in Lemuria", ("message", two), replaces=[first])
    before = dump(store)
    store.quarantine(ANA, session="bad")
    assert contents(store.recall(ANA, "lives in")) == ["lives in Berlin"]
    store.release(ANA, session="bad")
    assert dump(store) == before


def test_the_newest_clean_version_of_scenes_and_profiles_is_live_again(
    store: MemoryStore, made: Made, clock: ManualClock
) -> None:
    clean = made.memory("likes tea", ("message", made.message("I like tea")))
    poison = made.message("swordfish", "bad")
    bad = made.memory("swordfish", ("message", poison))
    made.scene("s", 1, clean)
    made.profile(1, ("memory", clean))
    clock.advance(60)
    made.scene("s", 2, clean, bad)
    made.profile(2, ("memory", bad))
    clock.advance(60)
    made.scene("s", 3, clean)  # written on from 2
    made.profile(3, ("memory", clean))
    before = dump(store)
    clock.advance(60)
    assert store.quarantine(ANA, source=bad) == 5
    assert states(store, "scenes") == {("s", 1): "live", ("s", 2): "quarantined", ("s", 3): "quarantined"}
    assert states(store, "profiles") == {1: "live", 2: "quarantined", 3: "quarantined"}
    assert store.release(ANA, source=bad) == 5
    assert dump(store) == before


def test_a_profile_that_a_person_wrote_stays(store: MemoryStore, made: Made) -> None:
    bad = made.memory("swordfish", ("message", made.message("swordfish", "bad")))
    made.profile(1, ("memory", bad))
    made.profile(2, run=None)
    store.quarantine(ANA, source=bad)
    assert states(store, "profiles") == {1: "quarantined", 2: "live"}


def test_what_was_written_since_stays_when_the_quarantine_ends(store: MemoryStore, made: Made) -> None:
    bad = made.memory("swordfish", ("message", made.message("swordfish", "bad")))
    made.profile(1, ("memory", bad))
    made.scene("s", 1, bad)
    store.quarantine(ANA, source=bad)
    clean = made.memory("likes tea", ("message", made.message("I like tea")))
    made.profile(2, ("memory", clean))
    store.release(ANA, source=bad)
    assert states(store, "profiles") == {1: "superseded", 2: "live"}
    assert states(store, "scenes") == {("s", 1): "live"}


def test_rows_that_were_changed_since_are_left_and_named_in_the_log(
    store: MemoryStore, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    poison = made.message("swordfish", "bad")
    bad = made.memory("swordfish", ("message", poison))
    store.quarantine(ANA, session="bad")
    store.delete(ANA, bad)
    with caplog.at_level(logging.WARNING, "memstore"):
        assert store.release(ANA, session="bad") == 1
    assert f"memory {bad} was changed since" in caplog.text
    assert contents(store.recall(ANA, "swordfish")) == []


def test_what_was_asked_for_is_reversed_whole_though_a_message_of_it_was_deleted(
    store: MemoryStore, made: Made
) -> None:
    one, two = made.message("swordfish one", "bad"), made.message("swordfish two", "bad")
    derived = made.memory("swordfish", ("message", one))
    store.quarantine(ANA, session="bad")
    store.delete(ANA, one)
    assert store.release(ANA, session="bad") == 2
    assert contents(store.recall(ANA, "swordfish")) == ["swordfish"]
    store.quarantine(ANA, source=[two, derived])
    store.delete(ANA, two)
    assert store.release(ANA, source=[two, derived]) == 1
    with pytest.raises(NotFound):
        store.release(ANA, source=[two, derived])


# --- which rows, whose -----------------------------------------------------------------------------------------


def test_each_criterion_and_all_of_them_together(store: MemoryStore, made: Made, clock: ManualClock) -> None:
    made.message("one", "a", name="mallory")
    clock.advance(3_600)
    made.message("two", "a")
    made.message("three", "b", name="mallory")
    own = store.add(ANA, "four")
    for criteria, count in [
        ({"session": "a"}, 2),
        ({"session": "helper:default:b"}, 1),
        ({"author": "mallory"}, 2),
        ({"author": "ana"}, 2),
        ({"author": "mallory", "session": "b"}, 1),
        ({"since": clock.now()}, 3),
        ({"until": clock.now()}, 1),
        ({"since": clock.now() - timedelta(hours=2), "until": clock.now(), "author": "mallory"}, 1),
        ({"source": own.id}, 1),
        ({"author": "nobody"}, 0),
    ]:
        assert store.quarantine(ANA, **criteria) == count, criteria
        assert store.release(ANA, **criteria) == count, criteria


@pytest.mark.parametrize(("criteria", "error"), [
    ({}, InvalidInput), ({"source": []}, InvalidInput), ({"source": [""]}, InvalidInput), ({"source": 5}, InvalidInput),
    ({"source": [None]}, InvalidInput), ({"author": " "}, InvalidInput), ({"author": 5}, InvalidInput),
    ({"author": "\ud800"}, InvalidInput), ({"session": "a:b"}, InvalidSessionKey), ({"since": "soon"}, InvalidInput),
    ({"source": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, NotFound), ({"source": "nothing"}, NotFound),
])  # fmt: skip
def test_what_names_no_rows_is_refused(
    store: MemoryStore, criteria: dict[str, Any], error: type[Exception]
) -> None:
    store.add(ANA, "something")
    for verb in (store.quarantine, store.release):
        with pytest.raises(error):
            verb(ANA, **criteria)


def test_others_rows_are_neither_found_nor_touched(store: MemoryStore, made: Made) -> None:
    mine = store.add(ANA, "shared with all", visibility="team")
    poison = made.message("swordfish", "bad")
    bo = Scope("acme", "bo", "helper")
    store.record(bo, said("swordfish"), "bad")
    with pytest.raises(NotFound):
        store.quarantine(bo, source=mine.id)
    with pytest.raises(NotFound):
        store.quarantine(Scope("beta", "ana", "helper"), source=poison) if store.add(
            Scope("beta", "ana", "helper"), "x"
        ) else None
    assert store.quarantine(bo, session="bad") == 1
    assert contents(store.search_messages(ANA, "swordfish")) == ["swordfish"]


def test_who_left_the_team_may_not(store: MemoryStore, made: Made) -> None:
    made.message("swordfish", "bad")
    leave_team(store, ANA)
    with pytest.raises(NotPermitted):
        store.quarantine(ANA, session="helper:default:bad")


def test_an_agents_scope_reaches_its_rows_and_those_of_none(store: MemoryStore, made: Made) -> None:
    other = Scope("acme", "ana", "other")
    store.add(other, "of the other agent")
    store.add(other, "of no agent", kind="persona")
    store.add(ANA, "of the helper")
    assert store.quarantine(ANA, author="ana") == 2
    assert store.quarantine(Scope("acme", "ana"), author="ana") == 1


# --- several quarantines -------------------------------------------------------------------------------------


def test_a_row_that_two_hold_comes_back_when_both_let_go(store: MemoryStore, made: Made) -> None:
    poison = made.message("swordfish", "bad", name="mallory")
    made.memory("swordfish", ("message", poison))
    before = dump(store)
    assert store.quarantine(ANA, session="bad") == 2
    assert store.quarantine(ANA, author="mallory") == 0
    assert store.release(ANA, author="mallory") == 2, "both, since both are of what was named"
    assert dump(store) == before


def test_what_other_roots_hold_stays(store: MemoryStore, made: Made) -> None:
    one, two = made.message("one", "bad"), made.message("two", "bad")
    made.memory("of one", ("message", one))
    both = made.memory("of both", ("message", one), ("message", two))
    before = dump(store)
    assert store.quarantine(ANA, session="bad") == 4
    assert store.release(ANA, source=one) == 2
    assert states(store, "memories")[both, 1] == "quarantined"
    assert contents(store.search_messages(ANA, "one two")) == ["one"]
    assert store.release(ANA, source=one) == 0
    assert store.release(ANA, session="bad") == 2
    assert dump(store) == before


def test_twice_the_same_is_once(store: MemoryStore, made: Made) -> None:
    made.memory("swordfish", ("message", made.message("swordfish", "bad")))
    before = dump(store)
    assert [store.quarantine(ANA, session="bad") for _ in range(2)] == [2, 0]
    assert [store.release(ANA, session="bad") for _ in range(2)] == [2, 0]
    assert dump(store) == before


@settings(max_examples=40)
@given(st.data())
def test_releasing_in_any_order_gives_back_what_was(data: st.DataObject) -> None:
    with fresh_store() as store:
        made = Made(store)
        sessions = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
        messages = [made.message(f"said {n}", session) for n, session in enumerate(sessions)]
        rows = [("message", one) for one in messages]
        for number in range(data.draw(st.integers(0, 6))):
            sources = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=3, unique=True))
            rows.append(("memory", made.memory(f"memory {number}", *sources)))
        memories = [one for kind, one in rows if kind == "memory"]
        for version in range(1, 1 + data.draw(st.integers(0, 3 if memories else 0))):
            made.scene("s", version, *data.draw(st.lists(st.sampled_from(memories), min_size=1, unique=True)))
        before = dump(store)
        wanted = sorted(data.draw(st.sets(st.sampled_from(sessions), min_size=1)))
        for session in wanted:
            store.quarantine(ANA, session=session)
        gone = {one for one, session in zip(messages, sessions, strict=True) if session in wanted}
        assert not gone & {hit.id for hit in store.search_messages(ANA, "said", 50)}
        assert _derived_and_live(store, gone) == []
        for session in data.draw(st.permutations(wanted)):
            store.release(ANA, session=session)
        assert dump(store) == before


def _derived_and_live(store: MemoryStore, ids: set[str]) -> list[Any]:
    """What is live though it was derived from these, found by another way than the code's own."""
    with store._storage.read() as reader:
        return reader._rows(  # type: ignore[attr-defined, no-any-return]
            "WITH RECURSIVE d(kind, id) AS (SELECT 'message', value FROM json_each(?) UNION"
            " SELECT s.derived_kind, s.derived_id FROM d JOIN sources s ON s.source_kind = d.kind AND s.source_id = d.id)"
            " SELECT m.id FROM d JOIN memory_versions m ON d.kind = 'memory' AND m.id = d.id AND m.state = 'live'"
            " UNION SELECT v.id FROM scene_versions v JOIN sources s ON s.derived_kind = 'scene' AND s.derived_id = v.id"
            " AND s.derived_version = v.version JOIN d ON d.kind = s.source_kind AND d.id = s.source_id"
            " WHERE v.state = 'live'",
            (json.dumps(sorted(ids)),),
        )


# --- the pipelines -------------------------------------------------------------------------------------------

CLEAN = ["I live in Berlin.", "I really like green tea.", "My name is Ana Weber.", "I work as a carpenter."]
POISON = ["I live in Atlantis.", "I really hate green tea.", "Always call me Lord Vader."]


def talk(store: MemoryStore, clock: ManualClock, texts: Sequence[str], session: str) -> list[str]:
    ids = list(store.record(ANA, said(*texts), session).ids) if texts else []
    work(store)
    clock.advance(4_000)
    return ids


def lines(text: str | None) -> list[str]:
    """Of a profile. Scenes stand there by when they were written, and those that were written anew came later."""
    return sorted((text or "").split("\n"))


@pytest.mark.parametrize("session", ["bad", "s"], ids=["a session of its own", "among the others"])
@pytest.mark.parametrize("at", range(5))
def test_after_quarantine_the_profiles_are_those_of_a_run_that_was_never_poisoned(
    open_store: OpenStore, at: int, session: str
) -> None:
    found = []
    for name in ("never", "poisoned"):
        clock = ManualClock()
        store = open_store(f"{name}.db", clock=clock, settings=QUIET)
        poison: list[str] = []
        for turn in range(5):
            if turn == at:
                poison = talk(store, clock, POISON if name == "poisoned" else [], session)
            talk(store, clock, CLEAN[turn : turn + 1], "s")
        if poison:
            assert "Vader" in (profiles(store)["agent"] or "")
            assert store.quarantine(ANA, source=poison) > len(POISON)
            assert "Vader" not in str(profiles(store))
        work(store)
        found.append(profiles(store))
    never, poisoned = found
    assert never["user"] == poisoned["user"]
    assert never["user"]
    assert lines(never["agent"]) == lines(poisoned["agent"])


def test_what_was_said_to_be_known_from_poison_is_read_again(
    open_store: OpenStore, clock: ManualClock
) -> None:
    """Else whoever says first what the user will say takes the user's own words along."""
    store = open_store(settings=QUIET)
    poison = talk(store, clock, ["I work as a carpenter."], "bad")
    talk(store, clock, ["I work as a carpenter."], "good")
    assert memory_texts(store) == ["I work as a carpenter"]
    store.quarantine(ANA, source=poison)
    assert contents(store.recall(ANA, "carpenter")) == []
    work(store)
    assert contents(store.recall(ANA, "carpenter")) == ["I work as a carpenter"]
    with store._storage.read() as reader:
        (memory,) = [hit.id for hit in store.recall(ANA, "carpenter")]
        (kind, source) = reader.sources_of("acme", "memory", memory, 1)[0]
    assert kind == "message"
    assert source not in poison


def test_what_its_owner_deleted_is_not_read_again(
    open_store: OpenStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(settings=QUIET)
    poison = talk(store, clock, ["I work as a carpenter."], "bad")
    talk(store, clock, ["I work as a carpenter.", "I live in Berlin."], "good")
    (deleted,) = [hit.id for hit in store.recall(ANA, "Berlin")]
    store.delete(ANA, deleted)
    with caplog.at_level(logging.WARNING, "memstore"):
        store.quarantine(ANA, source=poison)
    work(store)
    assert contents(store.recall(ANA, "carpenter")) == ["I work as a carpenter"], (
        "from the message that stays"
    )
    assert "I live in Berlin" not in memory_texts(store), "its message was covered, and is not read twice"
    assert "is not read again" not in caplog.text


def test_a_message_whose_other_memory_its_owner_deleted_is_not_read_again(
    store: MemoryStore, made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    poison, shared = made.message("swordfish", "bad"), made.message("swordfish, and Berlin", "good")
    with made._writing() as tx:
        for session in ("bad", "good"):
            tx.cover(OF, Cursor("extract", f"helper:default:{session}", pos=1, runs=1), [1])
    made.memory("swordfish", ("message", poison), ("message", shared))
    store.delete(ANA, made.memory("Berlin", ("message", shared)))
    with caplog.at_level(logging.WARNING, "memstore"):
        store.quarantine(ANA, source=poison)
    assert store.pending(ANA) == 0
    assert f"message {shared} is not read again" in caplog.text


def test_messages_under_quarantine_are_not_extracted_and_are_read_when_they_come_back(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store(settings=QUIET)
    first, _ = store.record(ANA, said("I work as a carpenter.", "I live in Berlin."), "chat").ids
    store.quarantine(ANA, source=first)
    work(store)
    assert memory_texts(store) == ["I live in Berlin"]
    assert store.release(ANA, source=first) == 1
    work(store)
    assert memory_texts(store) == ["I live in Berlin", "I work as a carpenter"]


def pending(store: MemoryStore) -> int:
    """As the store says, which the view for people must agree with."""
    with store._storage.read() as reader:
        (viewed,) = reader._rows("SELECT coalesce(sum(messages), 0) FROM v_pending")  # type: ignore[attr-defined]
    found = store.pending(ANA)
    assert viewed == (found,)
    return found


def test_what_was_never_read_is_pending_once_released_though_its_session_was_read_on(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store(settings=QUIET)
    first = talk_unread(store, "I work as a carpenter.")
    store.quarantine(ANA, source=first)
    talk(store, clock, ["I live in Berlin."], "chat")
    (deleted,) = [hit.id for hit in store.recall(ANA, "Berlin")]
    store.delete(ANA, deleted)
    assert pending(store) == 0
    store.release(ANA, source=first)
    assert pending(store) == 1
    work(store)
    assert memory_texts(store) == ["I work as a carpenter"]
    assert pending(store) == 0


def test_what_was_read_already_is_not_read_again_with_what_is_released(
    open_store: OpenStore, clock: ManualClock
) -> None:
    seen: list[list[str]] = []

    def reply(request: LLMRequest) -> str:
        if request.task == "extract":
            seen.append(cited_ids(request))
        return extraction() if request.task == "extract" else "[]"

    store = open_store(settings=QUIET, llm=ScriptedLLM(reply))
    first = talk_unread(store, "one")
    store.quarantine(ANA, source=first)
    for text in ("two", "three"):
        store.record(ANA, said(text), "chat")
        store.extract(ANA, "chat")
    seen.clear()
    store.release(ANA, source=first)
    assert pending(store) == 1
    store.extract(ANA, "chat")
    assert seen == [[first]]
    store.quarantine(ANA, source=first)
    store.release(ANA, source=first)
    assert pending(store) == 0, "by now it was read"


def talk_unread(store: MemoryStore, text: str) -> str:
    return store.record(ANA, said(text), "chat").ids[0]


def test_a_worker_that_read_poison_before_stores_nothing_of_it_afterwards(
    open_store: OpenStore, clock: ManualClock
) -> None:
    def slow(request: LLMRequest) -> str:
        if request.task == "extract" and len(llm.requests) == 1:
            open_store(settings=QUIET).quarantine(ANA, session="helper:default:bad")
        return told(request)

    llm = ScriptedLLM(slow)
    store = open_store(settings=QUIET, llm=llm)
    store.record(ANA, said("FACT swordfish"), "bad")
    runners = [ExtractRunner(store._pipelines)]
    Worker(store._pipelines, runners).run_due(force=True)
    assert memory_texts(store) == []
    assert profiles(store) == {"user": None, "agent": None}


@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_same_with_a_model(open_store: OpenStore, at: int) -> None:
    results = []
    for name in ("never", "poisoned"):
        clock = ManualClock()
        store = open_store(f"model-{name}.db", clock=clock, settings=QUIET, llm=ScriptedLLM(told))
        for turn in range(3):
            if turn == at:
                talk(store, clock, ["FACT swordfish"] if name == "poisoned" else [], "bad")
            talk(store, clock, [f"FACT clean{turn}"], f"s{turn}")
        if name == "poisoned":
            assert "swordfish" in str(profiles(store))
            store.quarantine(ANA, session="bad")
            assert "swordfish" not in str(profiles(store))
        work(store)
        results.append((profiles(store), scene_texts(store)))
    assert results[0] == results[1]
    assert "clean2" in (results[0][0]["user"] or "")


@pytest.mark.parametrize("most", [15, 4])
def test_released_scenes_take_no_more_places_than_there_are(
    open_store: OpenStore, clock: ManualClock, caplog: pytest.LogCaptureFixture, most: int
) -> None:
    store = open_store(clock=clock, settings=QUIET, llm=ScriptedLLM(told))
    store.agent_settings(ANA, "helper", scenes=most)
    early, late = most - 1, 3
    talk(store, clock, [f"FACT early{one}" for one in range(early)], "early")
    assert len(scene_texts(store)) == early
    left = store.quarantine(ANA, session="early")
    talk(store, clock, [f"FACT late{one}" for one in range(late)], "late")
    assert len(scene_texts(store)) == late
    assert store.release(ANA, session="early") == left
    assert len(scene_texts(store)) == most
    assert {f"FACT late{one}" for one in range(late)} <= set(scene_texts(store))
    with store._storage.read() as reader:
        held = {row.id for row in reader.scenes(OF, "helper")}
    kept_out = {record.args[0] for record in caplog.records if "stays superseded" in record.message}  # type: ignore[index]
    assert len(kept_out) == early + late - most
    assert not kept_out & held
    assert len(store.get_all(ANA, 100)) == early + late  # they are all recalled
    clock.advance(4_000)
    work(store)
    assert len(scene_texts(store)) == most
    assert [one for one in store.doctor().findings if one.severity == "error"] == []


FACT = re.compile(r"FACT \w+")
ENTRY = re.compile(r'"id": "(\w+)".*"(FACT \w+)"')


def told(request: LLMRequest) -> str:
    """A model that repeats the facts that it is shown, those that it wrote before included."""
    text = request.messages[-1]["content"]
    if request.task == "verdict":
        return json.dumps({"verdicts": []})
    if request.task == "profile":
        return json.dumps({"profile": "\n".join(sorted(set(FACT.findall(text)))) or "nothing"})
    section = "new_messages" if request.task == "extract" else "memories"
    shown = ENTRY.findall(text.partition(f"<{section}>")[2].partition(f"</{section}>")[0])
    if request.task == "extract":
        return json.dumps(
            {"scene": "facts", "scene_changed": False, "memories": [_proposed(*one) for one in shown]}
        )
    changes = [
        {"scene_id": None, "name": fact, "content": fact, "memory_ids": [one], "merged_ids": []}
        for one, fact in shown
    ]
    return json.dumps({"changes": changes})


def _proposed(source: str, fact: str) -> dict[str, Any]:
    return {
        "content": fact, "kind": "persona", "priority": 50, "source_ids": [source], "time_start": None,
        "time_end": None,
    }  # fmt: skip


# --- the fallback, the command line ----------------------------------------------------------------------------


def quarantine_lines(store: MemoryStore) -> list[dict[str, Any]]:
    found = (line.operation for path in day_files(folder_of(store.path)) for line in read_lines(path))
    return [one for one in found if one is not None and one["op"] == "quarantine"]


def quarantined(store: MemoryStore) -> list[Any]:
    return dump(store)["messages"]


def test_a_recovered_store_knows_what_is_under_quarantine(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(settings=QUIET)
    made = Made(store)
    bad, released = made.message("I live in Atlantis.", "bad"), made.message("I work as a carpenter.", "fine")
    clock.advance(60)
    store.quarantine(ANA, session="bad")
    store.quarantine(ANA, session="fine")
    store.release(ANA, session="fine")
    before = quarantined(store)
    assert [row[0] for row in before if row[1] is not None] == [bad]
    store.close()
    rebuilt = store.path.with_name("rebuilt.db")
    MemoryStore.recover(store.path, rebuilt, settings=QUIET)
    again = open_store("rebuilt.db", settings=QUIET)
    assert quarantined(again) == before
    work(again)
    assert memory_texts(again) == ["I work as a carpenter"]
    assert again.release(ANA, source=bad) == 1
    assert again.release(ANA, source=[bad, released]) == 0
    work(again)
    assert memory_texts(again) == ["I live in Atlantis", "I work as a carpenter"]


def test_lines_that_no_transaction_took_up_are_adopted(open_store: OpenStore) -> None:
    store = open_store(settings=QUIET)
    one = Made(store).message("swordfish", "bad")
    store.quarantine(ANA, session="bad")
    with store._storage.write() as tx:
        tx.set_messages_quarantined("acme", [one], None)
        mark = tx.fallback_marks()
        for day in mark:
            tx.forget_day(day)
        tx.set_meta("fallback_lines", "1")  # as if only the message's own line had been taken up
    store.close()
    again = open_store(settings=QUIET)
    assert [row[1] is not None for row in quarantined(again)] == [True]


@pytest.mark.parametrize("verb", ["quarantine", "release"])
def test_a_process_that_dies_before_the_commit_leaves_all_of_it_or_nothing(
    open_store: OpenStore, verb: str
) -> None:
    """The line of a message stands by then, and what was derived from it goes and comes with it."""
    store = open_store(settings=QUIET)
    made = Made(store)
    poison = made.message("swordfish", "bad")
    before = made.memory("fish", ("message", made.message("fish")))
    derived = made.memory("swordfish", ("message", poison), replaces=[before])
    meant = made.memory("meant itself")
    asked = [poison, meant]
    if verb == "release":
        store.quarantine(ANA, source=asked)
    store.close()

    def dying(statement: str) -> None:
        if statement == "COMMIT" and dying.on:  # type: ignore[attr-defined]
            os._exit(9)

    dying.on = False  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        doomed = MemoryStore(store.path, clock=ManualClock(), settings=QUIET, statement_hook=dying)
        dying.on = True  # type: ignore[attr-defined]
        getattr(doomed, verb)(ANA, source=asked)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    again = open_store(settings=QUIET)
    came = live_ids(again)
    assert came == ({before} if verb == "quarantine" else {derived, meant})
    assert [row[0] for row in quarantined(again) if row[1] is not None] == (
        [poison] if verb == "quarantine" else []
    )
    if verb == "quarantine":
        again.release(ANA, source=asked)
        assert live_ids(again) == {derived, meant}
    assert again.doctor().ok


def test_many_messages_take_lines_of_five_hundred_that_belong_together(open_store: OpenStore) -> None:
    store = open_store(settings=QUIET)
    store.record(ANA, said(*(f"number {number}" for number in range(1_100))), "bad")
    assert store.quarantine(ANA, session="bad") == 1_100
    lines_of = quarantine_lines(store)
    assert [len(line["ids"]) for line in lines_of] == [500, 500, 100]
    assert len({tuple(line["unit"]) for line in lines_of}) == 1
    before = quarantined(store)
    store.close()
    MemoryStore.recover(store.path, store.path.with_name("rebuilt.db"), settings=QUIET)
    assert quarantined(open_store("rebuilt.db", settings=QUIET)) == before


def test_doctor_finds_nothing_wrong(store: MemoryStore, made: Made) -> None:
    made.memory("swordfish", ("message", made.message("swordfish", "bad")))
    store.quarantine(ANA, session="bad")
    assert [found for found in store.doctor(full=True).findings if found.severity == "error"] == []
    store.release(ANA, session="bad")
    assert [found for found in store.doctor(full=True).findings if found.severity == "error"] == []


def test_the_commands(open_store: OpenStore) -> None:
    store = open_store("cli.db", settings=QUIET)
    lin = Scope("default", "lin", "default")
    poison = store.record(lin, said("swordfish"), "bad").ids[0]
    run = Cli(store.path)
    assert run.answer("quarantine", "--session", "bad") == {"quarantined": 1}
    assert run.answer("quarantine", "--source", poison, "--author", "lin") == {"quarantined": 0}
    assert run.answer("release", "--source", poison, "--last", "7d") == {"released": 0}
    assert run.answer("release", "--session", "bad") == {"released": 1}
    assert "say what is meant" in run("quarantine").stderr
    assert run("release", "--last", "7d", "--since", "today").exit_code == 2
    assert "quarantined: 1" in run.shown("quarantine", "--until", "2100-01-01")
