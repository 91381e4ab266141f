"""Memories by id: versions, validity, listings, and what comes back exactly as it went in."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FAST, contents, fresh_store, said
from memstore import MemoryStore, Scope
from memstore.errors import InvalidInput, InvalidText, InvalidTime, MemstoreError, NotFound
from memstore.testing import HashEmbedder, ManualClock

ANA = Scope("acme", "ana", "helper")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def listed(store: MemoryStore, limit: int = 50, **options) -> list[list[str]]:
    """All pages of a listing, as texts."""
    pages, cursor = [], None
    while True:
        page = store.get_all(ANA, limit, cursor, **options)
        pages.append(contents(page))
        cursor = page.next_cursor
        if cursor is None:
            return pages


# --- adding ---------------------------------------------------------------------------------------------------


def test_a_memory_comes_back_as_it_was_added(store, ana, clock):
    clock.set(NOON)
    scope = Scope("acme", "ana", "helper", "launch")
    made = store.add(
        scope,
        "喜欢靠窗的座位",
        kind="instruction",
        priority=-1,
        metadata={"b": 1, "a": [True, None, {"z": "é"}]},
        visibility="team",
        valid_from="2026-01-01",
        valid_to=NOON + 9 * DAY,
        expires_at=NOON + 30 * DAY,
        session="chat",
    )
    assert store.get(ana, made.id) is None or made.task_id == "launch"
    assert store.get(scope, made.id) == made
    assert list(store.get_all(scope)) == [made]
    assert store.history(scope, made.id) == [made]
    assert (made.version, made.state, made.kind, made.priority, made.visibility) == (
        1,
        "live",
        "instruction",
        -1,
        "team",
    )
    assert (made.team_id, made.user_id, made.agent_id, made.task_id) == ("acme", "ana", "helper", "launch")
    assert (made.session, made.produced_by_agent, made.actor) == ("helper:default:chat", "helper", "ana")
    assert made.metadata == {"b": 1, "a": [True, None, {"z": "é"}]}
    assert made.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert (made.valid_to, made.expires_at) == (NOON + 9 * DAY, NOON + 30 * DAY)
    assert made.created_at == made.recorded_at == NOON
    assert (made.source_kind, made.trust, made.superseded_at, made.superseded_by) == ("user", 60, None, None)


def test_defaults(store, ana, clock):
    made = store.add(ana, "x")
    assert (made.kind, made.priority, made.visibility, made.metadata) == ("episodic", 50, "private", {})
    assert (made.valid_from, made.valid_to, made.expires_at) == (clock.now(), None, None)


@pytest.mark.parametrize("priority", [0, 1, 50, 100])
@pytest.mark.parametrize("kind", ["persona", "episodic", "instruction"])
def test_priorities(store, ana, kind, priority):
    assert store.add(ana, "x", kind=kind, priority=priority).priority == priority


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"content": ""}, "content"),
        ({"content": " \n\u3000"}, "content"),
        ({"content": None}, "content"),
        ({"content": b"x"}, "content"),
        ({"content": "\ud800"}, "surrogate"),
        ({"kind": "memo"}, "kind"),
        ({"kind": None}, "kind"),
        ({"kind": ["persona"]}, "kind"),
        ({"visibility": "public"}, "visibility"),
        ({"visibility": None}, "visibility"),
        ({"priority": -2}, "priority"),
        ({"priority": 101}, "priority"),
        ({"priority": 2.5}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": float("nan")}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"priority": -1}, "instruction"),
        ({"priority": -1, "kind": "persona"}, "instruction"),
        ({"metadata": ["a"]}, "metadata"),
        ({"metadata": {1: 2}}, "metadata"),
        ({"metadata": {"a": {1, 2}}}, "metadata"),
        ({"metadata": {"a": float("nan")}}, "metadata"),
        ({"metadata": {"a": "\udfff"}}, "metadata"),
        ({"valid_from": "soon"}, "soon"),
        ({"valid_from": NOON, "valid_to": NOON}, "valid_to"),
        ({"valid_from": NOON, "valid_to": NOON - DAY}, "valid_to"),
        ({"expires_at": "never"}, "never"),
        ({"session": "a:b"}, "session"),
        ({"session": "../x"}, "session"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": 5}, "idempotency_key"),
        ({"idempotency_key": "\ud800"}, "surrogate"),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, dict) else "",
)
def test_bad_input_is_named_and_nothing_is_stored(store, ana, options, named):
    content = options.pop("content", "x") if "content" in options else "x"
    with pytest.raises(InvalidInput, match=named):
        store.add(ana, content, **options)
    assert store.count(ana) == {"memories": 0, "messages": 0}


def test_a_very_deep_or_large_metadata_is_kept_or_refused(store, ana):
    deep: dict = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInput, match="metadata"):
        store.add(ana, "x", metadata=deep)
    large = {f"k{n}": "v" * 100 for n in range(2_000)}
    assert store.get(ana, store.add(ana, "x", metadata=large).id).metadata == large


def test_what_was_true_in_the_past_only_has_no_invented_beginning(store, ana, clock):
    clock.set(NOON)
    made = store.add(ana, "worked in Lyon", valid_to="2020-01-01")
    assert (made.valid_from, made.valid_to) == (None, datetime(2020, 1, 1, tzinfo=UTC))
    assert contents(store.recall(ana, "Lyon")) == []
    assert contents(store.recall(ana, "Lyon", as_of="2010-01-01")) == ["worked in Lyon"]
    assert contents(store.recall(ana, "Lyon", as_of="2020-01-01")) == []


def test_an_idempotency_key_names_one_memory_of_a_user(store, ana):
    first = store.add(ana, "x", idempotency_key="k")
    assert [store.add(ana, text, idempotency_key="k") for text in ("x", "other")] == [first, first]
    assert store.count(ana)["memories"] == 1
    for scope in (Scope("acme", "ben", "helper"), Scope("rival", "ana", "helper")):
        assert store.add(scope, "x", idempotency_key="k").id != first.id
    updated = store.update(ana, first.id, content="y")
    assert store.add(ana, "x", idempotency_key="k") == updated
    store.delete(ana, first.id)
    again = store.add(ana, "z", idempotency_key="k")
    assert again.id != first.id
    assert contents(store.get_all(ana)) == ["z"]
    for odd in ("K", "k ", "键", "'; --", "k\x00"):
        assert store.add(ana, odd, idempotency_key=odd).content == odd


# --- text (what goes in comes out) ------------------------------------------------------------------------------

ODD_TEXTS = [
    "nul \x00 inside", "\x00", "line\u2028sep\u2029para\x85next", "\ufeffbom", "\r\n", "😀👨‍👩‍👧", "\U0010ffff\U00020000",
    "e\u0301 é", "\u202ertl", "\x1b[0m", "a" * 1_000_000, "界" * 100_000, "\u200b\u200bx", "it's \"x\"; --", "ﷺ ﬁ ㍿",
]  # fmt: skip


@pytest.mark.parametrize("text", [t for t in ODD_TEXTS if t.strip()], ids=lambda text: repr(text)[:20])
def test_text_comes_back_unchanged(open_store, ana, text):
    store = open_store()
    made = store.add(ana, text, metadata={"text": text[:1000], text[:100]: 1})
    store.update(ana, made.id, content=text + "!")
    store.close()
    again = open_store()
    first, second = again.history(ana, made.id)
    assert (first.content, second.content) == (text, text + "!")
    assert again.get(ana, made.id).metadata == {"text": text[:1000], text[:100]: 1}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
        lambda text: text.strip()
    )
)
@settings(max_examples=60)
def test_any_text_comes_back_unchanged(text):
    made = _SHARED[0].add(ANA, text)
    assert made.content == text
    assert _SHARED[0].get(ANA, made.id) == made


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), JSON_VALUES, max_size=4)
)
@settings(max_examples=60)
def test_metadata_comes_back_with_its_types(metadata):
    made = _SHARED[0].add(ANA, "x", metadata=metadata)
    assert repr(sorted(made.metadata.items())) == repr(sorted(_SHARED[0].get(ANA, made.id).metadata.items()))
    assert made.metadata == metadata
    assert {key: type(value) for key, value in made.metadata.items()} == {
        key: type(value) for key, value in metadata.items()
    }


_SHARED: list[MemoryStore] = []


@pytest.fixture(scope="module", autouse=True)
def _shared_store():
    """One store for the property tests."""
    with fresh_store() as store:
        _SHARED.append(store)
        yield
        _SHARED.clear()


# --- updating ---------------------------------------------------------------------------------------------------


def test_an_update_keeps_the_id_and_adds_a_version(store, ana, clock):
    clock.set(NOON)
    first = store.add(
        ana, "budget 3", metadata={"a": 1}, priority=10, session="chat", expires_at=NOON + 90 * DAY
    )
    clock.advance(60)
    second = store.update(ana, first.id, content="budget 5")
    assert (second.id, second.version, second.content) == (first.id, 2, "budget 5")
    assert (second.metadata, second.priority, second.session) == ({"a": 1}, 10, "helper:default:chat")
    assert (second.created_at, second.recorded_at, second.valid_from) == (NOON, clock.now(), clock.now())
    assert second.expires_at == NOON + 90 * DAY
    clock.advance(60)
    third = store.update(ana, first.id, priority=99, metadata={"b": 2})
    assert (third.version, third.content, third.priority, third.metadata) == (3, "budget 5", 99, {"b": 2})
    assert store.get(ana, first.id) == third
    assert list(store.get_all(ana)) == [third]
    old = store.history(ana, first.id)
    assert [m.version for m in old] == [1, 2, 3]
    assert [m.state for m in old] == ["superseded", "superseded", "live"]
    assert [m.valid_to for m in old] == [NOON + timedelta(seconds=60), NOON + timedelta(seconds=120), None]
    assert [m.superseded_by for m in old] == [first.id, first.id, None]
    assert contents(store.recall(ana, "budget")) == ["budget 5"]


def test_an_update_that_changes_nothing_makes_no_version(store, ana):
    made = store.add(ana, "x", metadata={"a": 1}, expires_at="2030-01-01")
    for same in ({}, {"content": "x"}, {"priority": 50}, {"metadata": {"a": 1}}, {"kind": "episodic"},
                 {"expires_at": "2030-01-01T00:00:00Z"}, {"valid_from": made.valid_from}):  # fmt: skip
        assert store.update(ana, made.id, **same) == made, same
    assert len(store.history(ana, made.id)) == 1


def test_an_update_keeps_the_times_that_it_does_not_name(store, ana, clock):
    clock.set(NOON)
    made = store.add(ana, "x", valid_to=NOON + 10 * DAY, expires_at=NOON + 20 * DAY)
    clock.advance(60)
    later = store.update(ana, made.id, expires_at=NOON + 30 * DAY)
    assert (later.valid_to, later.expires_at) == (NOON + 10 * DAY, NOON + 30 * DAY)
    later = store.update(ana, made.id, valid_to=NOON + 5 * DAY)
    assert (later.valid_to, later.expires_at) == (NOON + 5 * DAY, NOON + 30 * DAY)
    later = store.update(ana, made.id, content="y")
    assert (later.valid_to, later.expires_at) == (NOON + 5 * DAY, NOON + 30 * DAY)
    later = store.update(ana, made.id, valid_from=NOON - DAY)
    assert (later.valid_from, later.valid_to, later.expires_at) == (
        NOON - DAY,
        NOON + 5 * DAY,
        NOON + 30 * DAY,
    )


def test_learning_that_something_is_over(store, ana, clock):
    """An end in the past: it was true from when it began until then, not from now on."""
    clock.set(NOON)
    made = store.add(ana, "works in Lyon", valid_from="2020-01-01")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, valid_to=NOON - 30 * DAY)
    assert contents(store.recall(ana, "Lyon")) == []
    for when, found in (("2019-12-31", 0), ("2021-01-01", 1), (NOON - 29 * DAY, 0), (NOON, 0)):
        assert len(store.recall(ana, "Lyon", as_of=when)) == found, when
    with pytest.raises(InvalidInput, match="valid_to"):
        store.update(ana, made.id, valid_to="2019-01-01")
    with pytest.raises(InvalidInput, match="valid_to"):
        store.update(ana, made.id, valid_from=NOON, valid_to=NOON - DAY)


def test_what_had_ended_is_current_again_once_it_is_corrected(store, ana, clock):
    clock.set(NOON)
    made = store.add(ana, "on leave", valid_to=NOON + DAY)
    clock.advance(2 * DAY.total_seconds())
    assert contents(store.recall(ana, "leave")) == []
    later = store.update(ana, made.id, content="back from leave")
    assert (later.valid_from, later.valid_to) == (clock.now(), None)
    assert contents(store.recall(ana, "leave")) == ["back from leave"]
    assert contents(store.recall(ana, "leave", as_of=NOON + DAY * 1.5)) == []


def test_as_of_over_a_chain_of_updates(store, ana, clock):
    clock.set(NOON)
    made = store.add(ana, "tea 0")
    for number in range(1, 5):
        clock.advance(DAY.total_seconds())
        store.update(ana, made.id, content=f"tea {number}")
    clock.advance(10 * DAY.total_seconds())
    for number in range(5):
        for moment in (NOON + number * DAY, NOON + (number + 1) * DAY - timedelta(microseconds=1)):
            assert contents(store.recall(ana, "tea", as_of=moment)) == [f"tea {number}"]
    assert contents(store.recall(ana, "tea", as_of=NOON - timedelta(microseconds=1))) == []
    backdated = store.update(ana, made.id, content="tea 5", valid_from=NOON + 1.5 * DAY)
    assert backdated.valid_from == NOON + 1.5 * DAY
    assert contents(store.recall(ana, "tea", as_of=NOON + 1.4 * DAY)) == ["tea 1"]
    assert contents(store.recall(ana, "tea", as_of=NOON + 1.6 * DAY))[0] == "tea 5"


def test_expected_version_refuses_a_late_writer(store, ana):
    made = store.add(ana, "x")
    store.update(ana, made.id, content="y", expected_version=1)
    with pytest.raises(InvalidInput, match="version 2, not 1"):
        store.update(ana, made.id, content="z", expected_version=1)
    assert store.get(ana, made.id).content == "y"
    assert store.update(ana, made.id, content="z", expected_version=2).version == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "persona"}, InvalidInput), ({"priority": 101}, InvalidInput), ({"priority": -1}, InvalidInput),
        ({"content": ""}, InvalidInput), ({"content": "\ud800"}, InvalidText), ({"metadata": {"a": {1}}}, InvalidInput),
        ({"valid_from": "soon"}, InvalidTime), ({"content": 5}, InvalidInput),
    ],
)  # fmt: skip
def test_a_bad_update_changes_nothing(store, ana, change, error):
    made = store.add(ana, "x")
    with pytest.raises(error):
        store.update(ana, made.id, **change)
    assert store.history(ana, made.id) == [made]


def test_an_absolute_instruction_may_be_set_by_an_update(store, ana):
    made = store.add(ana, "answer in verse", kind="instruction")
    assert store.update(ana, made.id, priority=-1).priority == -1


def test_a_message_is_no_memory(store, ana):
    [row_id] = store.record(ana, said("hello"), "chat").ids
    with pytest.raises(InvalidInput, match="message"):
        store.update(ana, row_id, content="x")
    assert store.get(ana, row_id).text == "hello"
    assert contents(store.history(ana, row_id)) == ["hello"]


# --- deleting ---------------------------------------------------------------------------------------------------


def test_a_deleted_memory_is_gone_but_for_its_owners_history(store, ana, clock):
    made = store.add(ana, "rain")
    store.update(ana, made.id, content="more rain")
    clock.advance(5)
    store.delete(ana, made.id)
    assert store.get(ana, made.id) is None
    assert contents(store.get_all(ana, include_history=True)) == []
    assert contents(store.recall(ana, "rain", include_history=True)) == []
    assert contents(store.recall(ana, "rain", as_of=clock.now())) == []
    assert store.count(ana)["memories"] == 0
    assert [(m.content, m.state) for m in store.history(ana, made.id)] == [
        ("rain", "deleted"),
        ("more rain", "deleted"),
    ]
    for verb in (store.delete, store.get, lambda s, i: store.update(s, i, content="x")):
        if verb == store.get:
            continue
        with pytest.raises(NotFound):
            verb(ana, made.id)


def test_a_deleted_message_is_gone_but_for_its_owners_history(store, ana, clock):
    first, second = store.record(ana, said("rain one", "rain two"), "chat").ids
    store.delete(ana, first)
    assert store.get(ana, first) is None
    assert contents(store.messages(ana, "chat")) == ["rain two"]
    [row] = store.history(ana, first)
    assert (row.text, row.deleted_at, row.live) == ("rain one", clock.now(), False)
    with pytest.raises(NotFound):
        store.delete(ana, first)
    assert store.get(ana, second).position == 2


def test_delete_all_counts_messages_and_memories(store, ana):
    store.record(ana, said(*(f"m{n}" for n in range(1_203))), "chat")
    made = store.add(ana, "rain")
    store.update(ana, made.id, content="more rain")
    store.add(ana, "snow")
    gone = store.add(ana, "deleted before")
    store.delete(ana, gone.id)
    assert store.delete_all(ana) == 1_205
    assert store.count(ana) == {"memories": 0, "messages": 0}
    assert store.messages(ana, "chat") == []
    assert store.delete_all(ana) == 0
    assert store.record(ana, said("new"), "chat").new == 1


def test_an_expired_memory_may_still_be_deleted(store, ana, clock):
    made = store.add(ana, "rain", expires_at=clock.now() + DAY)
    clock.advance(2 * DAY.total_seconds())
    assert store.get(ana, made.id) is None
    with pytest.raises(NotFound):
        store.update(ana, made.id, content="x")
    assert contents(store.get_all(ana)) == []
    assert contents(store.get_all(ana, include_history=True)) == ["rain"]
    store.delete(ana, made.id)
    assert contents(store.get_all(ana, include_history=True)) == []


# --- listing (case 26) --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 7, 50, 53, 54, 10_000])
def test_case_26_paging_gives_each_row_once(store, ana, clock, limit):
    ids = []
    for number in range(53):
        clock.advance(number % 2)  # many at the same instant
        kind = ("persona", "episodic", "instruction")[number % 3]
        ids.append(store.add(ana, f"row {number}", kind=kind, visibility=("private", "team")[number % 2]).id)
    seen, cursor, pages = [], None, 0
    while True:
        page = store.get_all(ana, limit, cursor)
        seen += [m.id for m in page]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page) == limit
    assert seen == ids[::-1]
    assert pages == -(-53 // limit)
    assert store.count(ana)["memories"] == 53


def test_the_default_page_says_that_there_is_more(store, ana):
    for number in range(53):
        store.add(ana, f"row {number}")
    first = store.get_all(ana)
    assert len(first) == 50
    assert len(store.get_all(ana, cursor=first.next_cursor)) == 3


def test_rows_added_or_deleted_between_pages_neither_repeat_nor_hide_others(store, ana, clock):
    ids = [store.add(ana, f"row {number}").id for number in range(10)]
    page = store.get_all(ana, 4)
    clock.advance(1)
    store.add(ana, "newer")
    store.delete(ana, ids[5])
    rest = store.get_all(ana, 50, page.next_cursor)
    assert [m.id for m in page] + [m.id for m in rest] == [i for i in ids[::-1] if i != ids[5]]


def test_listings_filter(store, ana):
    for number in range(12):
        store.add(ana, f"row {number}", kind=("persona", "episodic")[number % 2], metadata={"n": number % 3})
    assert [len(page) for page in listed(store, 4, kinds=["persona"])] == [4, 2]
    assert [len(page) for page in listed(store, 3, metadata={"n": 1})] == [3, 1]
    assert listed(store, kinds=["instruction"]) == [[]]
    assert len(store.get_all(ana, metadata={"n": 1}, kinds=["persona"])) == 2


def test_a_page_of_nothing_is_empty(store, ana):
    for number in range(3):
        store.add(ana, f"row {number}")
    assert list(store.get_all(ana, 0)) == []
    assert list(store.get_all(ana, 0, store.get_all(ana, 2).next_cursor)) == []


def test_history_in_a_listing(store, ana):
    made = store.add(ana, "one")
    store.update(ana, made.id, content="two")
    assert contents(store.get_all(ana)) == ["two"]
    assert contents(store.get_all(ana, include_history=True)) == ["two", "one"]


# --- what a deletion leaves (case 20) ---------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["memories", "messages"])
def test_case_20_a_deletion_and_compact_leave_no_vector_and_no_index_entry_and_the_rest_is_said(
    open_store, ana, layer, tmp_path
):
    """It is no erasure: the text stays for the owner's history and in the fallback, and docstring and help say so."""
    store = open_store(embedder=HashEmbedder(dim=64))
    canary, token = "kanarienvogel singt leise", b"kanarienvogel"
    if layer == "memories":
        made = store.add(ana, canary).id
    else:
        made = store.record(ana, said(canary), "chat").ids[0]
    store.add(ana, "another memory")
    store.index()
    vector = HashEmbedder(dim=64).embed_documents([canary])[0].tobytes()
    path = tmp_path / "memory.db"
    kept = {"memories": 1, "messages": 3}[layer]  # the row; the session's title, and the index that guards it

    def copies(needle: bytes) -> int:
        store.checkpoint()
        return subprocess.run(["cat", path], capture_output=True, check=True).stdout.count(needle)

    before = copies(token)
    assert copies(vector) == 1
    store.delete(ana, made)
    store.compact()
    assert copies(vector) == 0
    assert copies(token) == kept < before
    assert canary in [
        getattr(version, "content", None) or version.text for version in store.history(ana, made)
    ]
    assert "not an erasure" in MemoryStore.delete.__doc__


# --- keys and maintenance (case 21, 22) ---------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["memories", "messages"])
def test_case_21_ids_hold_through_deletion_and_vacuum(open_store, ana, layer):
    store = open_store(embedder=HashEmbedder(dim=16))
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    if layer == "memories":
        ids = [store.add(ana, f"the word {word}").id for word in words]
        ask = lambda word: [(hit.id, hit.content) for hit in store.recall(ana, f"the word {word}", 20)]
    else:
        ids = store.record(ana, said(*(f"the word {word}" for word in words)), "chat").ids
        ask = lambda word: [
            (hit.id, hit.content) for hit in store.search_messages(ana, f"the word {word}", 20)
        ]
    store.index()
    for number in range(5):
        store.delete(ana, ids[number])
    before = ask("eight")
    with store._storage.exclusive_connection() as connection:
        connection.execute("VACUUM").fetchall()
    assert before[0] == ask("eight")[0] == (ids[8], "the word eight")
    assert ask("eight") == before
    assert {row_id for row_id, _ in before} == set(ids[5:])
    for number in range(5):  # new rows take no deleted row's place
        store.add(ana, f"fresh {number}") if layer == "memories" else store.record(
            ana, said(f"fresh {number}"), "chat"
        )
    assert (ids[1], "the word one") not in ask("one")
    assert store.get(ana, ids[1]) is None
    store.index()
    assert [text for _, text in ask("one") if text == "the word one"] == []
    assert store.doctor().ok, store.doctor().findings


def test_deleted_words_are_not_found_in_rows_that_come_after(store, ana):
    made = store.add(ana, "canary")
    store.delete(ana, made.id)
    for number in range(20):
        store.add(ana, f"row {number}")
    assert contents(store.recall(ana, "canary")) == []


def test_a_store_under_another_clock_reads_the_same(open_store, ana):
    first = open_store(clock=ManualClock(NOON))
    made = first.add(ana, "rain")
    first.close()
    again = open_store(clock=ManualClock(NOON - 400 * DAY))
    assert again.get(ana, made.id) == made
    assert contents(again.recall(ana, "rain")) == ["rain"]


# --- many at once -------------------------------------------------------------------------------------------------


def in_threads(work) -> list[object]:
    """What eight threads that start together returned or raised."""
    start = threading.Barrier(8)

    def run(number: int) -> object:
        start.wait(30)
        try:
            return work(number)
        except MemstoreError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(run, range(8)))


def test_of_eight_updates_of_one_version_one_wins(store, ana):
    made = store.add(ana, "x")
    outcomes = in_threads(
        lambda number: store.update(ana, made.id, content=f"y {number}", expected_version=1)
    )
    won = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert len(won) == 1
    assert all(isinstance(outcome, InvalidInput) for outcome in outcomes if outcome not in won)
    assert store.history(ana, made.id)[1:] == won


def test_eight_updates_make_eight_versions(store, ana):
    made = store.add(ana, "x")
    in_threads(lambda number: store.update(ana, made.id, content=f"y {number}"))
    versions = store.history(ana, made.id)
    assert [m.version for m in versions] == list(range(1, 10))
    assert [m.state for m in versions] == ["superseded"] * 8 + ["live"]
    assert contents(store.recall(ana, "x y")) == [versions[-1].content]


def test_one_idempotency_key_from_eight_threads_is_one_memory(store, ana):
    made = in_threads(lambda number: store.add(ana, f"x {number}", idempotency_key="k"))
    assert len({memory.id for memory in made}) == 1
    assert store.count(ana)["memories"] == 1


def test_newest_first_follows_arrival_when_the_clock_is_set_back(tmp_path):
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    mate = Scope("acme", "ben", "helper")
    with MemoryStore(tmp_path / "m.db", clock=clock, settings=FAST) as store:
        ana = Scope("acme", "ana", "helper")
        for hour, text in ((12, "first"), (11, "second"), (13, "third"), (10, "fourth")):
            clock.set(datetime(2026, 3, 1, hour, tzinfo=UTC))
            store.add(ana, text)
        store.add(mate, "shared by a mate", visibility="team")
        listed, cursor = [], None
        while True:
            page = store.get_all(ana, 2, cursor)
            listed += [memory.content for memory in page]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert [text for text in listed if "mate" not in text] == ["fourth", "third", "second", "first"]
    assert sorted(listed) == sorted(["first", "second", "third", "fourth", "shared by a mate"])


def test_as_of_gives_one_version_when_the_clock_is_set_back(tmp_path):
    clock = ManualClock(datetime(2026, 3, 1, 11, tzinfo=UTC))
    with MemoryStore(tmp_path / "m.db", clock=clock, settings=FAST) as store:
        ana = Scope("acme", "ana", "helper")
        memory = store.add(ana, "the budget is 10")
        for minutes, text in ((12 * 60, "the budget is 20"), (11 * 60 + 30, "the budget is 30")):
            clock.set(datetime(2026, 3, 1, minutes // 60, minutes % 60, tzinfo=UTC))
            store.update(ana, memory.id, content=text)
        at = [
            [
                hit.content
                for hit in store.recall(ana, "budget", as_of=datetime(2026, 3, 1, hour, minute, tzinfo=UTC))
            ]
            for hour, minute in ((11, 15), (11, 45), (12, 30))
        ]
    assert at == [["the budget is 10"], ["the budget is 30"], ["the budget is 30"]]


def test_a_memory_that_holds_later_still_does_after_a_new_wording(tmp_path):
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    with MemoryStore(tmp_path / "m.db", clock=clock, settings=FAST) as store:
        ana = Scope("acme", "ana", "helper")
        begin = datetime(2026, 4, 1, tzinfo=UTC)
        memory = store.add(ana, "moves to Lyon", valid_from=begin)
        assert store.update(ana, memory.id, content="moves to Lyon with the cat").valid_from == begin
