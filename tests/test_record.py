"""Recording: every message once, in order, in the shape it came; sessions follow from it."""

import itertools
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import FAST, contents, fresh_store, leave_team, said
from memstore import MemoryStore, Message, Scope, Settings
from memstore.errors import InvalidInput, InvalidSessionKey, InvalidText, InvalidTime, NotFound, NotPermitted
from memstore.testing import ManualClock

CHAT = "chat"
ANA = Scope("acme", "ana", "helper")


_NUMBERS = itertools.count()
_SHARED: list[MemoryStore] = []


@pytest.fixture(scope="module", autouse=True)
def _shared_store():
    """One store for the property tests; each example takes a session of its own."""
    with fresh_store() as store:
        _SHARED.append(store)
        yield
        _SHARED.clear()


def history(store: MemoryStore, scope: Scope = ANA, session: str = CHAT, **options) -> list[str]:
    return contents(store.messages(scope, session, **options))


def with_ids(*pairs: tuple[str, str]) -> list[Message]:
    return [Message("user", text, id=client_id) for client_id, text in pairs]


def placed(store: MemoryStore) -> list[tuple[str, int, bool]]:
    """(text, branch, live) in the order of the session."""
    return [(m.text, m.branch, m.live) for m in store.messages(ANA, CHAT)]


# --- receipts and rows ----------------------------------------------------------------------------------------


def test_a_receipt_names_what_is_now_held(store, ana):
    receipt = store.record(ana, said("one", "two"), CHAT)
    assert (receipt.stored, receipt.session, receipt.new, receipt.conflicts) == (
        "both",
        "helper:default:chat",
        2,
        (),
    )
    stored = store.messages(ana, CHAT)
    assert receipt.ids == tuple(m.id for m in stored)
    assert [store.get(ana, row_id) for row_id in receipt.ids] == stored
    empty = store.record(ana, [], CHAT)
    assert (empty.ids, empty.new, empty.session) == ((), 0, "helper:default:chat")
    assert len(store.messages(ana, CHAT)) == 2


def test_a_row_holds_what_the_client_said_and_who_it_was(store, clock):
    scope = Scope("acme", "ana", "helper", "launch")
    clock.set(datetime(2026, 3, 1, 12, tzinfo=UTC))
    message = Message(
        "assistant",
        "on it",
        id="m-1",
        name="Helper",
        created_at="2026-03-01T19:59:00+08:00",
        tool_calls=[{"id": "c1", "function": {"name": "look", "arguments": "{}"}}],
        tool_call_id="c0",
        usage={"output": 3},
        meta={"b": [1, {"c": None}], "a": "é"},
        complete=False,
    )
    store.record(scope, [message], CHAT)
    [row] = store.messages(scope, CHAT)
    assert (row.team_id, row.user_id, row.agent_id, row.task_id) == ("acme", "ana", "helper", "launch")
    assert (row.session, row.position, row.arrival, row.branch) == ("helper:default:chat", 1, 1, 0)
    assert (row.role, row.name, row.client_id, row.content, row.text) == (
        "assistant",
        "Helper",
        "m-1",
        "on it",
        "on it",
    )
    assert row.tool_calls == ({"id": "c1", "function": {"name": "look", "arguments": "{}"}},)
    assert (row.tool_call_id, row.usage, row.meta) == ("c0", {"output": 3}, {"b": [1, {"c": None}], "a": "é"})
    assert (row.complete, row.live, row.source_kind) == (False, True, "assistant")
    assert row.created_at == datetime(2026, 3, 1, 11, 59, tzinfo=UTC)
    assert row.recorded_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert row.zone == "+08:00"


def test_trust_follows_the_role(store, ana):
    roles = ("user", "system", "developer", "assistant", "tool")
    store.record(ana, [Message(role, role) for role in roles], CHAT)
    rows = store.messages(ana, CHAT)
    assert [(m.role, m.source_kind, m.trust) for m in rows] == [
        ("user", "user", 60),
        ("system", "system", 40),
        ("developer", "system", 40),
        ("assistant", "assistant", 30),
        ("tool", "tool", 10),
    ]
    store.record(ana, said("imported"), "other", source_kind="import")
    assert store.messages(ana, "other")[0].trust == 40


def test_messages_by_last_time_and_role(store, ana):
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    store.record(
        ana,
        [
            Message("user" if n % 2 == 0 else "assistant", f"m{n}", created_at=noon + timedelta(hours=n))
            for n in range(6)
        ],
        CHAT,
    )
    assert history(store, last=2) == ["m4", "m5"]
    assert history(store, last=0) == []
    assert history(store, last=100) == [f"m{n}" for n in range(6)]
    assert history(store, since=noon + timedelta(hours=4)) == ["m4", "m5"]
    assert history(store, until=noon + timedelta(hours=1)) == ["m0"]
    assert history(store, roles=["user"]) == ["m0", "m2", "m4"]
    assert history(store, roles=["user"], last=1) == ["m4"]  # the filter first, then the cut
    assert history(store, since="0001-01-01", until="9999-12-31") == [f"m{n}" for n in range(6)]
    for wrong in (-1, True, "2"):
        with pytest.raises(InvalidInput, match="limit"):
            store.messages(ana, CHAT, last=wrong)
    assert history(store, session="never used") == []


def test_one_message_may_stand_for_a_list(store, ana):
    assert store.record(ana, Message("user", "hello"), CHAT).new == 1
    assert store.record(ana, (m for m in said("a", "b")), CHAT).new == 2


def test_everything_is_still_there_after_reopening(open_store, ana):
    first = open_store()
    first.record(ana, with_ids(("1", "hello"), ("2", "你好")), CHAT)
    first.record(ana, [*said("x"), *said("y")], CHAT)
    expected = first.messages(ana, CHAT)
    first.close()
    again = open_store()
    assert again.messages(ana, CHAT) == expected
    assert again.adopted == 0
    assert again.record(ana, with_ids(("1", "hello")), CHAT).new == 0


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        (None, "messages"),
        (5, "messages"),
        ("hello", "Message"),
        ([{"role": "user", "content": "hello"}], "Message"),
        ([Message("robot", "x")], "role"),
        ([Message(None, "x")], "role"),
        ([Message("user", 5)], "content"),
        ([Message("user", b"x")], "content"),
        ([Message("user", {"type": "text"})], "content"),
        ([Message("user", ["text"])], "block"),
        ([Message("user", "\ud800")], "surrogate"),
        ([Message("user", [{"type": "text", "text": "\udfff"}])], "surrogate"),
        ([Message("user", [{"type": "x", "n": float("nan")}])], "JSON"),
        ([Message("user", [{"type": "x", "n": {1}}])], "JSON"),
        ([Message("user", "x", id="")], "id"),
        ([Message("user", "x", id=7)], "id"),
        ([Message("user", "x", id="i" * 257)], "id"),
        ([Message("user", "x", id="\ud800")], "surrogate"),
        ([Message("user", "x", name="")], "name"),
        ([Message("user", "x", created_at="yesterday")], "yesterday"),
        ([Message("user", "x", created_at=True)], "time"),
        ([Message("assistant", "x", tool_calls=["call"])], "tool_calls"),
        ([Message("assistant", "x", tool_calls=[{"n": float("inf")}])], "tool_calls"),
        ([Message("assistant", "x", usage="many")], "usage"),
        ([Message("assistant", "x", usage=[1])], "usage"),
        ([Message("user", "x", meta=["a"])], "meta"),
        ([Message("user", "x", meta={"a": object()})], "meta"),
        ([Message("user", "x", complete="no")], "complete"),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, str) else "",
)
def test_bad_input_is_named_and_nothing_of_the_call_is_stored(store, ana, messages, named):
    if isinstance(messages, list):
        messages = [Message("user", "a good one before it"), *messages]
    with pytest.raises(InvalidInput, match=named):
        store.record(ana, messages, CHAT)
    assert store.count(ana) == {"memories": 0, "messages": 0}
    assert store.sessions(ana) == []


def test_an_unknown_source_kind_is_refused(store, ana):
    with pytest.raises(InvalidInput, match="source_kind"):
        store.record(ana, said("x"), CHAT, source_kind="gossip")


def test_absent_optional_parts_may_be_none(store, ana):
    store.record(ana, [Message("assistant", None, tool_calls=None, meta=None, usage=None)], CHAT)
    [row] = store.messages(ana, CHAT)
    assert (row.content, row.text, row.tool_calls, row.meta, row.usage) == (None, "", (), {}, None)


# --- the same message again (case 27) -------------------------------------------------------------------------


def test_case_27_eight_posts_of_one_message_are_one_row(store, ana):
    receipts = [store.record(ana, with_ids(("m1", "hello")), CHAT) for _ in range(8)]
    assert [r.new for r in receipts] == [1] + [0] * 7
    assert len({r.ids for r in receipts}) == 1
    assert all(r.conflicts == () for r in receipts)
    assert history(store) == ["hello"]


def test_case_27_eight_posts_of_one_transcript_are_one_row_a_message(store, ana):
    talk = said("hello", "hello", "好的")
    receipts = [store.record(ana, talk, CHAT, transcript=True) for _ in range(8)]
    assert [r.new for r in receipts] == [3] + [0] * 7
    assert len({r.ids for r in receipts}) == 1
    assert history(store) == ["hello", "hello", "好的"]


def test_case_27_the_same_words_said_twice_are_two_messages(store, ana):
    for _ in range(2):
        store.record(ana, said("好的"), CHAT)
    assert history(store) == ["好的", "好的"]
    store.record(ana, said("好的", "好的"), "other")
    assert history(store, session="other") == ["好的", "好的"]
    talk = said("好的")
    store.record(ana, talk, "third", transcript=True)
    store.record(ana, [*talk, *said("好的")], "third", transcript=True)
    assert history(store, session="third") == ["好的", "好的"]


def test_case_27_a_client_id_is_unique_within_its_session_only(store, ana):
    ben = Scope("acme", "ben", "helper")
    for scope, session in ((ana, CHAT), (ana, "other"), (ben, CHAT), (Scope("rival", "ana", "helper"), CHAT)):
        assert store.record(scope, with_ids(("m1", f"{scope.user_id} {session}")), session).new == 1
    assert history(store, ana) == ["ana chat"]
    assert history(store, ben) == ["ben chat"]


def test_a_known_id_with_other_content_keeps_the_first_and_says_so(store, ana):
    store.record(ana, with_ids(("1", "first"), ("2", "second")), CHAT)
    receipt = store.record(
        ana, with_ids(("2", "SECOND"), ("3", "third"), ("1", "first"), ("2", "other")), CHAT
    )
    assert receipt.conflicts == ("2",)
    assert receipt.new == 1
    assert history(store) == ["first", "second", "third"]
    by_text = {m.text: m.id for m in store.messages(ana, CHAT)}
    assert receipt.ids == tuple(by_text[text] for text in ("second", "third", "first", "second"))


@pytest.mark.parametrize(
    "other",
    [
        Message("assistant", "first", id="1"),
        Message("user", "first", id="1", name="Ben"),
        Message("user", [{"type": "text", "text": "first"}], id="1"),
        Message("user", "first", id="1", tool_call_id="c"),
    ],
)
def test_role_name_and_shape_are_content_too(store, ana, other):
    store.record(ana, with_ids(("1", "first")), CHAT)
    assert store.record(ana, [other], CHAT).conflicts == ("1",)


def test_time_usage_and_meta_are_not_content(store, ana):
    store.record(ana, with_ids(("1", "first")), CHAT)
    again = Message("user", "first", id="1", created_at=5, usage={"n": 1}, meta={"retry": 2})
    assert store.record(ana, [again], CHAT).conflicts == ()


@pytest.mark.parametrize("transcript", [False, True])
def test_one_id_twice_in_a_call_is_one_message(store, ana, transcript):
    receipt = store.record(
        ana,
        with_ids(("1", "first"), ("2", "second"), ("1", "first"), ("2", "2nd")),
        CHAT,
        transcript=transcript,
    )
    assert history(store) == ["first", "second"]
    assert receipt.new == 2
    assert receipt.ids[0] == receipt.ids[2]
    assert receipt.ids[1] == receipt.ids[3]
    assert receipt.conflicts == ("2",)


def test_a_deleted_message_is_not_brought_back_by_a_retry(store, ana):
    talk = with_ids(("1", "first"), ("2", "second"))
    ids = store.record(ana, talk, CHAT).ids
    store.delete(ana, ids[0])
    for transcript in (False, True):
        again = store.record(ana, talk, CHAT, transcript=transcript)
        assert (again.ids, again.new) == (ids, 0)
        assert history(store) == ["second"]
    plain = store.record(ana, said("first", "second", "third"), CHAT, transcript=True)
    assert plain.new == 1
    assert history(store) == ["second", "third"]


# --- a client's whole history (W1) ----------------------------------------------------------------------------


def test_a_growing_transcript_adds_its_end(store, ana):
    talk = [f"m{n}" for n in range(8)]
    for end in (1, 3, 3, 4, 8):
        receipt = store.record(ana, said(*talk[:end]), CHAT, transcript=True)
        assert history(store) == talk[:end]
        assert receipt.ids == tuple(m.id for m in store.messages(ana, CHAT))
    assert all(m.branch == 0 and m.live for m in store.messages(ana, CHAT))


def test_a_shorter_transcript_is_a_late_retry_and_forks_nothing(store, ana):
    talk = [f"m{n}" for n in range(5)]
    store.record(ana, said(*talk), CHAT, transcript=True)
    for part in (talk[:3], talk[1:3], talk[2:], talk[:1], []):
        assert store.record(ana, said(*part), CHAT, transcript=True).new == 0
    assert placed(store) == [(text, 0, True) for text in talk]


def test_a_transcript_whose_head_was_cut_is_laid_on_the_end(store, ana):
    talk = [f"m{n}" for n in range(6)]
    store.record(ana, said(*talk), CHAT, transcript=True)
    receipt = store.record(ana, said("m4", "m5", "m6", "m7"), CHAT, transcript=True)
    assert receipt.new == 2
    store.record(ana, said("m7", "m8"), CHAT, transcript=True)
    assert placed(store) == [(f"m{n}", 0, True) for n in range(9)]


def test_a_transcript_with_nothing_in_common_is_all_new(store, ana):
    store.record(ana, said("a", "b"), CHAT, transcript=True)
    assert store.record(ana, said("c", "d"), CHAT, transcript=True).new == 2
    assert placed(store) == [(text, 0, True) for text in "abcd"]


def test_a_contradiction_starts_a_branch(store, ana):
    store.record(ana, said("a", "b", "c", "d"), CHAT, transcript=True)
    receipt = store.record(ana, said("a", "b", "X"), CHAT, transcript=True)
    assert receipt.new == 1
    assert placed(store) == [("a", 0, True), ("b", 0, True), ("c", 1, False), ("d", 1, False), ("X", 0, True)]
    assert history(store, live_only=True) == ["a", "b", "X"]
    store.record(ana, said("a", "b", "X", "e"), CHAT, transcript=True)
    assert history(store, live_only=True) == ["a", "b", "X", "e"]
    store.record(ana, said("a", "Y"), CHAT, transcript=True)
    assert placed(store) == [
        ("a", 0, True), ("b", 2, False), ("c", 1, False), ("d", 1, False), ("X", 2, False), ("e", 2, False),
        ("Y", 0, True),
    ]  # fmt: skip
    assert [m.position for m in store.messages(ana, CHAT)] == [1, 2, 3, 4, 5, 6, 7]


def test_an_edited_first_message_contradicts_by_its_id(store, ana):
    store.record(ana, with_ids(("1", "a"), ("2", "b")), CHAT, transcript=True)
    receipt = store.record(ana, with_ids(("1", "a"), ("3", "B")), CHAT, transcript=True)
    assert receipt.conflicts == ()
    assert placed(store) == [("a", 0, True), ("b", 1, False), ("B", 0, True)]


def test_flipping_back_to_an_earlier_branch_by_client_ids(store, ana):
    first = with_ids(("1", "a"), ("2", "b"), ("3", "c"))
    second = with_ids(("1", "a"), ("4", "X"))
    ids = store.record(ana, first, CHAT, transcript=True).ids
    other = store.record(ana, second, CHAT, transcript=True).ids
    for _ in range(2):
        back = store.record(ana, first, CHAT, transcript=True)
        assert (back.ids, back.new) == (ids, 0)
        assert history(store, live_only=True) == ["a", "b", "c"]
        forth = store.record(ana, second, CHAT, transcript=True)
        assert (forth.ids, forth.new) == (other, 0)
        assert history(store, live_only=True) == ["a", "X"]
    store.record(ana, [*first, *with_ids(("5", "d"))], CHAT, transcript=True)
    assert history(store, live_only=True) == ["a", "b", "c", "d"]
    assert store.record(ana, [*first, *with_ids(("5", "d"))], CHAT, transcript=True).new == 0
    assert len(store.messages(ana, CHAT)) == 5
    assert {m.text for m in store.messages(ana, CHAT) if m.branch == 0} == {"a", "b", "c", "d"}


def test_forked_messages_stay_searchable(store, ana):
    store.record(ana, said("rain one", "rain two"), CHAT, transcript=True)
    store.record(ana, said("rain one", "rain three"), CHAT, transcript=True)
    assert len(store.search_messages(ana, "rain")) == 3
    assert len(store.search_messages(ana, "rain", live_only=True)) == 2


def test_the_archived_part_of_a_session_still_counts_as_known(store, ana):
    talk = [f"m{n}" for n in range(4)]
    store.record(ana, said(*talk), CHAT, transcript=True)
    store.clear_session(ana, CHAT)
    receipt = store.record(ana, said(*talk, "m4"), CHAT, transcript=True)
    assert receipt.new == 1
    assert placed(store) == [*((text, 0, False) for text in talk), ("m4", 0, True)]
    store.record(ana, said("m3", "m4", "m5"), CHAT, transcript=True)
    assert history(store) == [*talk, "m4", "m5"]
    assert history(store, live_only=True) == ["m4", "m5"]


def test_repeated_identical_messages_are_laid_one_by_one(store, ana):
    talk = ["hi", "ok", "hi", "ok", "ok"]
    for end in range(1, 6):
        store.record(ana, said(*talk[:end]), CHAT, transcript=True)
        assert history(store) == talk[:end]
    store.record(ana, said("hi", "ok", "ok", "new"), CHAT, transcript=True)  # the head was cut
    assert history(store) == [*talk, "new"]


def test_an_unchanged_system_message_belongs_to_the_transcript(store, ana):
    prompt = said("be kind", role="system")
    for count in (1, 2, 4):
        store.record(ana, [*prompt, *said(*(f"m{n}" for n in range(count)))], CHAT, transcript=True)
    assert history(store) == ["be kind", "m0", "m1", "m2", "m3"]


def test_a_head_cut_behind_the_system_message_doubles_nothing(store, ana):
    prompt = said("be kind", role="system")
    store.record(ana, [*prompt, *said("m0", "m1", "m2", "m3")], CHAT, transcript=True)
    store.record(ana, [*prompt, *said("m2", "m3", "m4")], CHAT, transcript=True)
    assert history(store) == ["be kind", "m0", "m1", "m2", "m3", "m4"]
    assert {m.branch for m in store.messages(ana, CHAT)} == {0}


def test_a_changed_system_message_doubles_nothing_else(store, ana):
    talk = said("m0", "m1", "m2")
    store.record(ana, [*said("it is monday", role="system"), *talk], CHAT, transcript=True)
    store.record(ana, [*said("it is tuesday", role="system"), *talk, *said("m3")], CHAT, transcript=True)
    assert [m.text for m in store.messages(ana, CHAT) if m.role == "user"] == ["m0", "m1", "m2", "m3"]


def test_mixed_roles_align_by_role_and_text(store, ana):
    store.record(ana, [Message("user", "x"), Message("assistant", "x")], CHAT, transcript=True)
    again = [Message("user", "x"), Message("assistant", "x"), Message("user", "y")]
    assert store.record(ana, again, CHAT, transcript=True).new == 1
    swapped = [Message("assistant", "x"), Message("user", "x")]
    store.record(ana, swapped, "other", transcript=True)
    store.record(ana, [Message("assistant", "x"), Message("assistant", "x")], "other", transcript=True)
    assert history(store, session="other", live_only=True) == ["x", "x"]
    assert [m.role for m in store.messages(ana, "other")] == ["assistant", "user", "assistant"]


def test_a_transcript_of_tool_turns(store, ana):
    call = Message("assistant", None, tool_calls=[{"id": "c1", "function": {"name": "f", "arguments": "{}"}}])
    result = Message("tool", "42", tool_call_id="c1")
    talk = [Message("user", "compute"), call, result]
    store.record(ana, talk, CHAT, transcript=True)
    assert store.record(ana, [*talk, Message("assistant", "it is 42")], CHAT, transcript=True).new == 1
    assert len(store.messages(ana, CHAT)) == 4
    other = Message("tool", "42", tool_call_id="c2")  # the same text for another call is another message
    assert store.record(ana, [talk[0], call, other], CHAT, transcript=True).new == 1


STEPS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["hi", "ok", "好的", "go on"]), max_size=3),  # what is said next
        st.integers(0, 6),  # how many of the messages before it the client still holds
        st.booleans(),  # whether the request is sent twice
        st.booleans(),  # whether the session is cleared afterwards
    ),
    min_size=1,
    max_size=8,
)


def play(steps, *, ids: bool, distinct: bool, cut: bool) -> None:
    """A client that always sends its whole history, cut at the head or not: nothing is lost, nothing doubled."""
    store, session = _SHARED[0], f"play {next(_NUMBERS)}"
    talk: list[Message] = []
    for number, (texts, kept, twice, clear) in enumerate(steps):
        fresh = [
            Message(
                "user" if offset % 2 == 0 else "assistant",
                f"{text} {number}.{offset}" if distinct else text,
                id=f"{number}.{offset}" if ids else None,
            )
            for offset, text in enumerate(texts)
        ]
        window = talk[max(0, len(talk) - kept) :] if cut else talk
        talk = [*talk, *fresh]
        for _ in range(1 + twice):
            receipt = store.record(ANA, [*window, *fresh], session, transcript=True)
            assert len(receipt.ids) == len(window) + len(fresh)
        rows = store.messages(ANA, session)
        assert [(m.role, m.text) for m in rows] == [(m.role, m.content) for m in talk]
        assert receipt.ids == tuple(m.id for m in rows)[len(rows) - len(receipt.ids) :]
        assert {m.branch for m in rows} <= {0}
        if clear and rows:
            store.clear_session(ANA, session)
            assert history(store, session=session, live_only=True) == []


@given(STEPS)
@settings(max_examples=60)
def test_whole_histories_with_repeated_words_never_double_or_lose(steps):
    play(steps, ids=False, distinct=False, cut=False)


@given(STEPS)
@settings(max_examples=60)
def test_cut_histories_never_double_or_lose(steps):
    play(steps, ids=False, distinct=True, cut=True)


@given(STEPS)
@settings(max_examples=60)
def test_cut_histories_with_ids_and_repeated_words_never_double_or_lose(steps):
    play(steps, ids=True, distinct=False, cut=True)


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=6))
@settings(max_examples=100)
def test_whatever_a_client_sends_is_on_the_current_branch_and_nothing_is_removed(transcripts):
    store, session = _SHARED[0], f"any {next(_NUMBERS)}"
    held: set[str] = set()
    for texts in transcripts:
        receipt = store.record(ANA, said(*texts), session, transcript=True)
        rows = {m.id: m for m in store.messages(ANA, session)}
        assert held <= set(rows)
        held = set(rows)
        assert [rows[row_id].text for row_id in receipt.ids] == texts
        assert all(rows[row_id].branch == 0 for row_id in receipt.ids)
        positions = [rows[row_id].position for row_id in receipt.ids]
        assert positions == sorted(positions)


# --- clocks and times -----------------------------------------------------------------------------------------


def test_case_35_order_is_by_position_when_the_clock_goes_back(store, ana, clock):
    clock.set(datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    store.record(ana, said("A"), CHAT)
    fact = store.add(ana, "drinks coffee")
    clock.set(datetime(2026, 3, 1, 11, 0, tzinfo=UTC))
    store.record(ana, said("B"), CHAT)
    clock.set(datetime(2026, 3, 1, 11, 1, tzinfo=UTC))
    store.record(ana, said("C"), CHAT)
    assert history(store) == ["A", "B", "C"]
    assert history(store, last=2) == ["B", "C"]
    rows = store.messages(ana, CHAT)
    assert [m.position for m in rows] == [1, 2, 3]
    assert [m.arrival for m in rows] == [1, 3, 4]  # the memory came second
    store.update(ana, fact.id, content="drinks tea")
    assert contents(store.recall(ana, "drinks")) == ["drinks tea"]
    assert contents(store.get_all(ana)) == ["drinks tea"]
    assert [m.content for m in store.history(ana, fact.id)] == ["drinks coffee", "drinks tea"]
    [session] = store.sessions(ana)
    assert session.updated_at >= session.created_at
    store.record(ana, said("A", "B", "C", "D"), CHAT, transcript=True)
    assert history(store) == ["A", "B", "C", "D"]


INSTANT = datetime(2026, 1, 15, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("2026-01-15T08:00:00Z", "+00:00"),
        ("2026-01-15T16:00:00+08:00", "+08:00"),
        ("2026-01-15 16:00:00", "Asia/Shanghai"),
        ("2026-01-15T16:00", "Asia/Shanghai"),
        (1768464000, "Asia/Shanghai"),
        (1768464000.0, "Asia/Shanghai"),
        (1768464000000, "Asia/Shanghai"),
        (1768464000000000, "Asia/Shanghai"),
        ("1768464000", "Asia/Shanghai"),
        ("1768464000000", "Asia/Shanghai"),
        (INSTANT, "+00:00"),
        (INSTANT.astimezone(timezone(timedelta(hours=-5, minutes=-30))), "-05:30"),
        (datetime(2026, 1, 15, 16), "Asia/Shanghai"),  # noqa: DTZ001 - a naive time is the subject
    ],
    ids=repr,
)
def test_case_52_forms_of_one_instant(open_store, ana, value, zone):
    store = open_store(settings=Settings(durability="process", timezone="Asia/Shanghai"))
    store.record(ana, [Message("user", "x", created_at=value)], CHAT)
    [row] = store.messages(ana, CHAT)
    assert row.created_at == INSTANT
    assert row.created_at.tzinfo is UTC
    assert row.zone == zone
    assert len(store.messages(ana, CHAT, since=value)) == 1
    assert store.messages(ana, CHAT, until=value) == []


def test_case_52_edges_of_time(open_store, ana, clock):
    store = open_store(settings=Settings(durability="process", timezone="Asia/Shanghai"))
    values = {
        "2026-01-15": datetime(2026, 1, 14, 16, tzinfo=UTC),  # a date is its midnight in the store's zone
        0: datetime(1970, 1, 1, tzinfo=UTC),
        -1: datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        1768464000.123456: INSTANT + timedelta(microseconds=123456),
        "9999-12-31T23:59:59Z": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        "0001-01-02T00:00:00Z": datetime(1, 1, 2, tzinfo=UTC),
        None: clock.now(),
    }
    store.record(ana, [Message("user", "x", created_at=value) for value in values], CHAT)
    assert [m.created_at for m in store.messages(ana, CHAT)] == list(values.values())
    for edge in ("0001-01-02", "9999-12-30", 0, -1, 2**40):
        store.search_messages(ana, "x", since=edge)
        store.recall(ana, "x", until=edge, as_of=edge)


@pytest.mark.parametrize(
    "value",
    ["yesterday", "", " ", "2026-13-01", "2026-02-30", "25:00", "9999-12-31T23:59:59-08:00", "0001-01-01T00:00:00+08:00",
     float("nan"), float("inf"), 10**30, -(10**30), 1e300, True, [], {}, b"2026-01-15", "9" * 5000, "１７６８"],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_case_52_what_is_no_time_is_refused(store, ana, value):
    with pytest.raises(InvalidTime):
        store.record(ana, [Message("user", "x", created_at=value)], CHAT)
    with pytest.raises(InvalidTime):
        store.search_messages(ana, "x", since=value)
    assert store.messages(ana, CHAT) == []


# --- content shapes (case 44) ---------------------------------------------------------------------------------

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2VieXRlcw=="}}
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aW1hZ2VieXRlcw=="}}
TEXT = {"type": "text", "text": "a walk"}
TOOL_USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo", "n": 1.5}}
THINKING = {"type": "thinking", "thinking": "hidden thoughts", "signature": "c2ln"}
SHAPES = {
    "text": ("a walk", "a walk"),
    "text blocks": ([TEXT, {"type": "text", "text": "in the park"}], "a walk\nin the park"),
    "image and text": ([IMAGE, TEXT], "a walk"),
    "image by address": ([IMAGE_URL, TEXT], "a walk"),
    "an image alone": ([IMAGE], ""),
    "a tool call alone": ([TOOL_USE], ""),
    "a tool result with an image": (
        [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}, IMAGE]}],
        "sunny",
    ),
    "a plain tool result": ([{"type": "tool_result", "tool_use_id": "t1", "content": "rainy"}], "rainy"),
    "thinking": ([THINKING, TEXT], "a walk"),
    "newer text blocks": ([{"type": "input_text", "text": "in"}, {"type": "output_text", "text": "out"}], "in\nout"),
    "empty text": ("", ""),
    "no blocks": ([], ""),
    "null": (None, ""),
    "blanks": (" \n\t", " \n\t"),
    "an unknown block": ([{"type": "hologram", "payload": [1, {"text": "no"}], "text": "not shown"}], ""),
    "a block without a type": ([{"text": "odd"}], ""),
    "a text block without text": ([{"type": "text", "text": 5}, TEXT], "a walk"),
    "key order": ([{"zebra": 1, "type": "x", "apple": {"b": 1, "a": 2}}], ""),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_case_44_content_is_replayed_block_for_block(open_store, ana, shape):
    content, text = SHAPES[shape]
    store = open_store()
    [row_id] = store.record(ana, [Message("user", content)], CHAT).ids
    [row] = store.messages(ana, CHAT)
    assert row.content == content
    assert repr(row.content) == repr(content)  # the order of keys too
    assert row.text == text
    assert store.get(ana, row_id) == row
    assert store.record(ana, [Message("user", content), *said("next")], CHAT, transcript=True).new == 1
    for noise in ["aW1hZ2VieXRlcw==", "object", "base64", "thoughts", "weather", "Oslo", "image", "hologram"]:
        assert contents(store.search_messages(ana, noise)) == [], noise
    for word in text.split():
        assert contents(store.search_messages(ana, word)) == [text]


def test_case_44_empty_text_blocks_are_left_out(store, ana):
    empty = [{"type": "text", "text": ""}, IMAGE, {"type": "text", "text": None}, TEXT, {"type": "text"}]
    store.record(ana, [Message("user", empty)], CHAT)
    assert store.messages(ana, CHAT)[0].content == [IMAGE, TEXT]
    assert store.record(ana, [Message("user", [IMAGE, TEXT])], CHAT, transcript=True).new == 0


ODD_TEXTS = [
    "nul \x00 inside", "line\u2028and\u2029paragraph\x85next", "\ufeffbom", "tab\tand\r\nreturn", "😀👨‍👩‍👧", "\U0010ffff",
    "e\u0301 and é", "\u202eright to left", "\x1b[31mred", "\\n \\u0000", '"quoted"', "a" * 100_000, "\x7f", "ＡＢ",
    "zero\u200bwidth", "{'not': 'json'}", "[1, 2",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text)[:20])
def test_text_comes_back_unchanged(open_store, ana, text):
    store = open_store()
    blocks = [{"type": "text", "text": text}, {"type": "x", text[:50]: text}]
    store.record(ana, [Message("user", text, name=text[:50].strip("\x00")), Message("user", blocks)], CHAT)
    store.close()
    plain, rich = open_store().messages(ana, CHAT)
    assert (plain.content, plain.text) == (text, text)
    assert (rich.content, rich.text) == (blocks, text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=60)
def test_any_text_comes_back_unchanged(text):
    [row_id] = _SHARED[0].record(ANA, said(text), CHAT).ids
    assert _SHARED[0].get(ANA, row_id).content == text


def test_a_lone_surrogate_is_refused_not_replaced(store, ana):
    with pytest.raises(InvalidText, match="D83D"):
        store.record(ana, said("half an emoji \ud83d"), CHAT)


# --- session keys (case 70) -----------------------------------------------------------------------------------

GOOD_KEYS = [
    "a b",
    "x" * 200,
    *["a/b", "a_b", "会话一", "CON", "nul", "-", "%2e%2e", "a'b", "😀", "a.b", "...", "*", "~"],
]
BAD_KEYS = [
    "../../etc/x", "/etc/x", "a:b", "C:\\x", "c:/x", ".", "..", "", " ", "x" * 300, "a\0b", "a/../b", "a/./b", "\\\\x",
    "a\\b", "a\nb", " a", "a ", ":", "::", "helper:", "helper::x", "helper:c:", "other:c:x", "helper:c:/etc", "a\u2028",
    "helper:../x:y", "helper:c:..", "helper:c:C:\\x", None, 5, b"a", ["a"], "\ud800",
]  # fmt: skip


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_case_70_accepted_keys_hold_their_own_messages_and_no_file_is_named_by_one(open_store, ana, tmp_path):
    (tmp_path / "data").mkdir()
    store = open_store("data/memory.db")
    store.record(ana, said("first"), "first")
    before = tree(tmp_path)
    for key in GOOD_KEYS:
        store.record(ana, said(f"in {key}"), key)
        store.record(ana, said(f"via channel {key}"), f"helper:wecom:{key}")
    assert tree(tmp_path) == before
    for key in GOOD_KEYS:
        assert history(store, session=key) == [f"in {key}"]
        assert history(store, session=f"helper:default:{key}") == [f"in {key}"]
        assert history(store, session=f"helper:wecom:{key}") == [f"via channel {key}"]
    assert len(store.sessions(ana)) == 1 + 2 * len(GOOD_KEYS)


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: repr(key)[:20])
def test_case_70_other_keys_are_refused(store, ana, tmp_path, key):
    before = tree(tmp_path)
    for verb in (
        lambda: store.record(ana, said("x"), key),
        lambda: store.messages(ana, key),
        lambda: store.clear_session(ana, key),
    ):
        with pytest.raises(InvalidSessionKey):
            verb()
    assert tree(tmp_path) == before
    assert store.sessions(ana) == []


def test_a_chat_id_may_hold_colons_when_the_key_is_whole(store, ana):
    store.record(ana, said("x"), "helper:wecom:room:7:b")
    [session] = store.sessions(ana)
    assert session.session == "helper:wecom:room:7:b"
    assert history(store, session="helper:wecom:room:7:b") == ["x"]


# --- session records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "title"),
    [
        (["[channel: wecom] 明天的会议改到几点？"], "明天的会议改到几点？"),
        (["[channel: wecom][user: ana]  hello"], "hello"),
        ([" [Channel_ID: 7] \n hello\n  there "], "hello there"),
        (["会" * 60], "会" * 40),
        (["a" * 39 + " bcd"], "a" * 39),
        (["[not a prefix] hello"], "[not a prefix] hello"),
        (["see [channel: x] there"], "see [channel: x] there"),
        (["", "   ", "real words"], "real words"),
        (["[channel: wecom]"], "新会话"),
        ([""], "新会话"),
    ],
)
def test_a_session_is_titled_by_its_first_user_message(store, ana, texts, title):
    store.record(ana, [Message("system", "be kind"), Message("assistant", "welcome")], CHAT)
    assert store.sessions(ana)[0].title == "新会话"
    store.record(ana, said(*texts), CHAT)
    assert store.sessions(ana)[0].title == title
    store.record(ana, said("later words"), CHAT)
    assert store.sessions(ana)[0].title in (title, "later words" if title == "新会话" else title)


def test_sessions_are_listed_pinned_first_then_newest(store, ana, clock):
    for name in ("one", "two", "three", "four"):
        clock.advance(60)
        store.record(ana, said(name), name)
    store.set_session(ana, "one", pinned=True)
    clock.advance(60)
    store.record(ana, said("again"), "two")
    names = lambda: [s.title for s in store.sessions(ana)]
    assert names() == ["one", "two", "four", "three"]
    store.set_session(ana, "four", pinned=True, title="  Quarterly plan ")
    assert names() == ["Quarterly plan", "one", "two", "three"]
    store.set_session(ana, "one", pinned=False)
    assert names() == ["Quarterly plan", "two", "three", "one"]
    store.record(ana, said("a first message does not rename it"), "four")
    assert names()[0] == "Quarterly plan"
    store.set_session(ana, "three", created_at="2020-01-01")
    assert next(s for s in store.sessions(ana) if s.title == "three").created_at == datetime(
        2020, 1, 1, tzinfo=UTC
    )


def test_a_sessions_record_counts_and_dates(store, ana, clock):
    start = clock.now()
    store.record(ana, said("a", "b"), CHAT)
    clock.advance(60)
    ids = store.record(ana, said("c"), CHAT).ids
    [session] = store.sessions(ana)
    assert (session.messages, session.created_at, session.updated_at) == (3, start, clock.now())
    assert (session.agent_id, session.pinned, session.hidden) == ("helper", False, False)
    store.delete(ana, ids[0])
    assert store.sessions(ana)[0].messages == 2


def test_clearing_keeps_the_record_and_the_messages(store, ana):
    store.record(ana, said("rain one", "rain two"), CHAT)
    store.clear_session(ana, CHAT)
    store.clear_session(ana, CHAT)
    assert history(store, live_only=True) == []
    assert history(store) == ["rain one", "rain two"]
    assert len(store.search_messages(ana, "rain")) == 2
    [session] = store.sessions(ana)
    assert (session.title, session.messages) == ("rain one", 2)
    store.record(ana, said("rain three"), CHAT)
    assert history(store, live_only=True) == ["rain three"]
    assert [m.position for m in store.messages(ana, CHAT)] == [1, 2, 3]


def test_deleting_hides_the_session_and_its_messages_and_a_later_one_begins_anew(store, ana, clock):
    store.set_session(ana, CHAT, pinned=True) if store.sessions(ana) else None
    ids = store.record(ana, said("rain one", "rain two"), CHAT).ids
    memory = store.add(ana, "rain, remembered", session=CHAT)
    store.set_session(ana, CHAT, pinned=True, title="Old title")
    store.delete_session(ana, CHAT)
    assert store.sessions(ana) == []
    assert history(store) == []
    assert contents(store.search_messages(ana, "rain")) == []
    assert [store.get(ana, row_id) for row_id in ids] == [None, None]
    assert store.count(ana) == {"memories": 1, "messages": 0}
    assert store.get(ana, memory.id) is not None  # memories made from it stay
    for verb in (store.clear_session, store.delete_session):
        with pytest.raises(NotFound):
            verb(ana, CHAT)
    with pytest.raises(NotFound):
        store.set_session(ana, CHAT, title="x")
    clock.advance(60)
    store.record(ana, said("snow"), CHAT)
    [session] = store.sessions(ana)
    assert (session.title, session.pinned, session.messages) == ("snow", False, 1)
    assert session.created_at == clock.now()
    assert history(store) == ["snow"]
    assert store.messages(ana, CHAT)[0].position == 3


def test_a_retry_of_a_deleted_sessions_messages_brings_nothing_back(store, ana):
    talk = with_ids(("1", "rain one"), ("2", "rain two"))
    store.record(ana, talk, CHAT, transcript=True)
    store.delete_session(ana, CHAT)
    for transcript in (False, True):
        assert store.record(ana, talk, CHAT, transcript=transcript).new == 0
        assert history(store) == []
    store.record(ana, [*talk, *with_ids(("3", "snow"))], CHAT, transcript=True)
    assert history(store) == ["snow"]
    assert [s.title for s in store.sessions(ana)] == ["snow"]


@pytest.mark.parametrize(
    "change", [{"title": ""}, {"title": "  "}, {"title": 5}, {"title": "\ud800"}, {"pinned": "yes"}, {"pinned": 2},
               {"created_at": "soon"}], ids=repr,
)  # fmt: skip
def test_a_bad_change_of_a_session_changes_nothing(store, ana, change):
    store.record(ana, said("x"), CHAT)
    before = store.sessions(ana)
    with pytest.raises(InvalidInput, match=r"title|pinned|soon"):
        store.set_session(ana, CHAT, **{"title": "new", **change})
    assert store.sessions(ana) == before


def test_sessions_of_others_are_not_there(store, ana):
    store.record(ana, said("x"), CHAT)
    for scope in (
        Scope("acme", "ben", "helper"),
        Scope("rival", "ana", "helper"),
        Scope("acme", "ana", "critic"),
    ):
        assert store.sessions(scope) == []
        key = f"{scope.agent_id}:default:chat"
        for verb in (store.clear_session, store.delete_session):
            with pytest.raises(NotFound):
                verb(scope, key)
    leave_team(store, ana)
    assert store.sessions(ana) == []
    with pytest.raises(NotPermitted):
        store.record(ana, said("y"), CHAT)


# --- many at once ---------------------------------------------------------------------------------------------


def in_threads(count: int, work) -> None:
    """Run work(number) in threads that start together; their errors are the test's."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(30)
            work(number)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []


@pytest.mark.parametrize("stores", [1, 2])
def test_eight_threads_on_one_session_leave_no_gap_and_no_double(tmp_path, stores):
    clock = ManualClock()
    opened = [MemoryStore(tmp_path / "memory.db", clock=clock, settings=FAST) for _ in range(stores)]

    def work(number: int) -> None:
        store = opened[number % stores]
        for turn in range(25):
            receipt = store.record(ANA, with_ids((f"{number}.{turn}", f"thread {number}, turn {turn}")), CHAT)
            assert receipt.new == 1
            if turn % 5 == 0:
                store.search_messages(ANA, f"turn {turn}")

    in_threads(8, work)
    rows = opened[0].messages(ANA, CHAT)
    assert [m.position for m in rows] == list(range(1, 201))
    assert sorted(m.arrival for m in rows) == list(range(1, 201))
    assert len({m.text for m in rows}) == len({m.id for m in rows}) == 200
    for number in range(8):
        mine = [m.client_id for m in rows if m.client_id.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}" for turn in range(25)]
    assert len(opened[-1].search_messages(ANA, "thread", 1000)) == 200
    for store in opened:
        assert store.doctor().ok
        store.close()


def test_eight_threads_that_retry_the_same_turns_store_each_once(open_store, ana):
    store = open_store()
    talk = with_ids(*((str(n), f"turn {n}") for n in range(20)))

    def work(number: int) -> None:
        for end in range(1, 21):
            store.record(ana, talk[:end], CHAT, transcript=bool(number % 2))

    in_threads(8, work)
    assert history(store) == [f"turn {n}" for n in range(20)]
    assert {m.branch for m in store.messages(ana, CHAT)} == {0}
