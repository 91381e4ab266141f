"""Time: what was true then, what was known then, and every form in which a time is written."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import contents, fresh_store, said
from memstore import InvalidTime, Message, Scope, Settings
from memstore.testing import HashEmbedder
from memstore.times import parse_instant, parse_typed, span_before
from time_support import ANA, BEN, DAY, HOUR, MOMENT, START, STEP, History, supersede_by_another

SHANGHAI, BERLIN = ZoneInfo("Asia/Shanghai"), ZoneInfo("Europe/Berlin")


# --- what the store knew ---------------------------------------------------------------------------------------


def test_known_at_gives_what_a_recall_of_that_time_gave(store, ana, clock):
    clock.set(START)
    made = store.add(ana, "lives in Lyon")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="lives in Paris")
    clock.advance(DAY.total_seconds())
    ask = lambda when: contents(store.recall(ana, "lives", known_at=when))
    assert ask(START - MOMENT) == []
    assert ask(START) == ask(START + DAY - MOMENT) == ["lives in Lyon"]
    assert ask(START + DAY) == ask(clock.now()) == ["lives in Paris"]
    assert ask("0001-01-01") == []
    assert ask("9999-12-31") == ["lives in Paris"]
    assert contents(store.get_all(ana, known_at=START)) == ["lives in Lyon"]
    [hit] = store.recall(ana, "lives", known_at=START, explain=True)
    assert (hit.state, hit.version, hit.explanation.visible_by) == ("superseded", 1, "the asker owns it")


def test_the_whole_bitemporal_square(store, ana, clock):
    """Moved to Lyon in 2020. On day 0 that is noted; on day 1 that it was Nice until 2022; on day 2 a new wording."""
    clock.set(START)
    made = store.add(ana, "lives in Lyon", valid_from="2020-01-01")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="lives in Nice", valid_from="2022-01-01")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="lives in Nice, by the sea")
    clock.advance(DAY.total_seconds())
    days = {"before": START - DAY, "day 0": START, "day 1": START + DAY, "day 2": START + 2 * DAY}
    truths = {"2019": "2019-06-01", "2021": "2021-06-01", "2023": "2023-06-01", "now": START + 2.5 * DAY}
    square = {
        known: [contents(store.recall(ana, "lives", as_of=truth, known_at=when)) for truth in truths.values()]
        for known, when in days.items()
    }
    lyon, nice, sea = ["lives in Lyon"], ["lives in Nice"], ["lives in Nice, by the sea"]
    assert square == {
        "before": [[], [], [], []],
        "day 0": [[], lyon, lyon, lyon],
        "day 1": [[], lyon, nice, nice],
        "day 2": [[], lyon, nice, sea],
    }
    assert [contents(store.recall(ana, "lives", as_of=truth)) for truth in truths.values()] == square["day 2"]
    listed = [contents(store.get_all(ana, as_of=truth, known_at=START + DAY)) for truth in truths.values()]
    assert listed == square["day 1"]


def test_an_end_that_was_stated_is_not_the_end_that_a_later_version_made(store, ana, clock):
    clock.set(START)
    made = store.add(ana, "on leave", valid_to=START + 5 * DAY)
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="back from leave", valid_to=START + 9 * DAY)
    clock.advance(20 * DAY.total_seconds())
    ask = lambda truth, known: contents(store.recall(ana, "leave", as_of=truth, known_at=known))
    assert ask(START + 3 * DAY, START) == ["on leave"]
    assert ask(START + 3 * DAY, START + DAY) == ["back from leave"]
    assert ask(START + 6 * DAY, START) == []
    assert ask(START + 6 * DAY, START + DAY) == ["back from leave"]
    assert contents(store.recall(ana, "leave", known_at=START + 4 * DAY)) == ["back from leave"]
    assert contents(store.recall(ana, "leave", known_at=START + 9 * DAY)) == []


def test_expiry_and_end_count_at_that_time_and_not_now(store, ana, clock):
    clock.set(START)
    store.add(ana, "tea expires", expires_at=START + DAY)
    store.add(ana, "tea ends", valid_to=START + DAY)
    clock.advance(2 * DAY.total_seconds())
    assert contents(store.recall(ana, "tea")) == []
    assert set(contents(store.recall(ana, "tea", known_at=START + DAY - MOMENT))) == {
        "tea expires",
        "tea ends",
    }
    assert contents(store.recall(ana, "tea", known_at=START + DAY)) == []
    everything = store.get_all(ana, known_at=START + DAY, include_history=True)
    assert set(contents(everything)) == {"tea expires", "tea ends"}


def test_the_history_known_at_a_time(store, ana, clock):
    clock.set(START)
    made = store.add(ana, "tea 1")
    for number in (2, 3):
        clock.advance(DAY.total_seconds())
        store.update(ana, made.id, content=f"tea {number}")
    seen = store.recall(ana, "tea", known_at=START + DAY, include_history=True)
    assert {hit.version for hit in seen} == {1, 2}


def test_what_was_deleted_does_not_come_back(store, ana, clock):
    clock.set(START)
    made, message = store.add(ana, "tea"), store.record(ana, said("tea"), "chat").ids[0]
    clock.advance(DAY.total_seconds())
    for row_id in (made.id, message):
        store.delete(ana, row_id)
    assert contents(store.recall(ana, "tea", known_at=START)) == []
    assert contents(store.get_all(ana, known_at=START)) == []
    assert contents(store.search_messages(ana, "tea", known_at=START)) == []
    assert contents(store.messages(ana, "chat", known_at=START)) == []


def test_messages_are_known_from_when_they_were_recorded(store, ana, clock):
    clock.set(START)
    store.record(ana, [Message("user", "tea in May", created_at="2025-05-01")], "chat")
    clock.advance(DAY.total_seconds())
    store.record(ana, [Message("user", "tea in April", created_at="2025-04-01")], "chat")
    assert contents(store.search_messages(ana, "tea", known_at=START - MOMENT)) == []
    assert contents(store.search_messages(ana, "tea", known_at=START)) == ["tea in May"]
    assert contents(store.messages(ana, "chat", known_at=START)) == ["tea in May"]
    assert contents(store.messages(ana, "chat", known_at=START + DAY)) == ["tea in May", "tea in April"]
    both = store.search_messages(ana, "tea", known_at=START + DAY, until="2025-04-15")
    assert contents(both) == ["tea in April"]


def test_the_vector_leg_knows_no_more_than_the_text_leg(open_store, ana, clock):
    store = open_store(embedder=HashEmbedder(dim=16))
    clock.set(START)
    made = store.add(ana, "银行卡 green tea")
    clock.advance(DAY.total_seconds())
    store.update(ana, made.id, content="银行卡 black tea")
    store.index()
    [hit] = store.recall(ana, "tea", known_at=START, explain=True)
    assert (hit.content, set(hit.explanation.legs)) == ("银行卡 green tea", {"text", "vector"})
    assert contents(store.recall(ana, "银", known_at=START)) == ["银行卡 green tea"]


def test_after_a_clock_was_set_back_one_version_is_known_at_a_time(store, ana, clock):
    """Case 35: the stamps of recording are 11:00, 12:00 and, later by number, 11:30."""
    noon = START
    clock.set(noon - HOUR)
    made = store.add(ana, "budget 1")
    for moment, text in ((noon, "budget 2"), (noon - HOUR / 2, "budget 3")):
        clock.set(moment)
        store.update(ana, made.id, content=text)
    clock.set(noon + DAY)
    ask = lambda when: contents(store.recall(ana, "budget", known_at=when))
    assert ask(noon - HOUR * 0.75) == ["budget 1"]
    assert ask(noon - HOUR * 0.25) == ["budget 3"]
    assert ask(noon + HOUR) == ["budget 3"]
    for truth in (noon - HOUR * 0.75, noon - HOUR * 0.25, noon + HOUR):
        assert len(store.recall(ana, "budget", as_of=truth, known_at=noon + HOUR)) == 1


def test_a_version_that_another_memory_replaced_was_known_until_then(store, ana, clock):
    clock.set(START)
    old = store.add(ana, "tea at four")
    clock.advance(DAY.total_seconds())
    new = store.add(ana, "tea at five")
    supersede_by_another(store, old, new)
    assert contents(store.recall(ana, "tea")) == ["tea at five"]
    assert contents(store.recall(ana, "tea", known_at=START)) == ["tea at four"]
    assert contents(store.recall(ana, "tea", known_at=START + DAY)) == ["tea at five"]


def test_rights_are_those_of_now(store, clock):
    clock.set(START)
    private, shared = (store.add(ANA, "tea", visibility=seen) for seen in ("private", "team"))
    clock.advance(DAY.total_seconds())
    store.update(ANA, shared.id, content="tea again")
    store.update(ANA, private.id, content="tea again")
    for when in (START, clock.now()):
        assert {hit.id for hit in store.recall(BEN, "tea", known_at=when)} == {shared.id}
        assert {row.id for row in store.get_all(BEN, known_at=when)} == {shared.id}
    assert list(store.recall(Scope("other", "ana", "helper"), "tea", known_at=START)) == []


def test_pages_of_what_was_known(store, ana, clock):
    clock.set(START)
    made = [store.add(ana, f"tea {number}") for number in range(5)]
    clock.advance(DAY.total_seconds())
    for memory in made:
        store.update(ana, memory.id, content="coffee")
    listed, cursor = [], None
    while True:
        page = store.get_all(ana, 2, cursor, known_at=START)
        listed += contents(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == [f"tea {number}" for number in (4, 3, 2, 1, 0)]


# --- against a model -------------------------------------------------------------------------------------------


PAIRS = [(truth, known) for truth in (None, *range(-2, 9, 2)) for known in (None, *range(-1, 9), 1000)]


@settings(max_examples=25)
@given(st.lists(STEP, min_size=3, max_size=14))
def test_all_pairs_of_times_agree_with_the_model(steps):
    with fresh_store() as store:
        history = History(store)
        for step in steps:
            history.apply(step)
        for truth, known in PAIRS:
            wanted = history.model.ask(truth, known)
            assert history.answers(as_of=truth, known_at=known) == [wanted] * 2, (truth, known)


@settings(max_examples=15)
@given(st.lists(STEP | st.tuples(st.just("pass"), st.integers(-3, -1)), min_size=3, max_size=14))
def test_the_model_holds_with_a_clock_that_is_set_back(steps):
    with fresh_store() as store:
        history = History(store)
        for step in steps:
            history.apply(step)
        for truth, known in PAIRS[::2]:
            wanted = history.model.ask(truth, known)
            assert history.answers(as_of=truth, known_at=known) == [wanted] * 2, (truth, known)


@settings(max_examples=25)
@given(st.lists(STEP.filter(lambda step: step[0] != "delete"), min_size=3, max_size=14))
def test_known_at_gives_the_answers_of_that_time(steps):
    """Recalls made then, of what was current and of what was true at other times, are the same answers now."""
    with fresh_store() as store:
        history = History(store)
        then: dict[tuple[float, float | None], list[set[tuple[str, int]]]] = {}
        for step in [*steps, ("pass", 2)]:
            if step[0] == "pass":
                for truth in (None, -1, 1, 3, 6):
                    then[history.model.now, truth] = history.answers(as_of=truth)
            history.apply(step)
        for (known, truth), answers in then.items():
            assert history.answers(as_of=truth, known_at=known) == answers, (known, truth)


# --- case 52: every form of a time -----------------------------------------------------------------------------

EIGHT = datetime(2026, 1, 15, 8, tzinfo=UTC)
SECONDS = int(EIGHT.timestamp())
SAME = (
    "2026-01-15T08:00:00Z", "2026-01-15T16:00:00+08:00", "2026-01-15T08:00Z", " 2026-01-15T08:00:00Z ",
    "20260115T080000Z", "2026-01-15T16:00:00", "2026-01-15 16:00", datetime(2026, 1, 15, 16),  # noqa: DTZ001
    EIGHT, EIGHT.astimezone(BERLIN), EIGHT.astimezone(timezone(-5 * HOUR)), SECONDS, float(SECONDS), SECONDS * 10**3,
    SECONDS * 10**6, SECONDS * 10**9, str(SECONDS), f"{SECONDS}.0", str(SECONDS * 10**3), str(SECONDS * 10**6),
    str(SECONDS * 10**9),
)  # fmt: skip
MIDNIGHT = ("2026-01-15", "20260115", date(2026, 1, 15))
EDGES = (
    0, -1, -1.5, "0", "-1", 0.0, -0.0, 1e11, -1e17, "1970-01-01", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z",
    "9999-01-01", datetime(9999, 12, 31, tzinfo=UTC), date(9999, 12, 31), None,
)  # fmt: skip
WRONG = (
    "yesterday", "today", "now", "昨天", "3d ago", "2026-03", "", " ", "null", "nan", "2026-13-01", "2026-02-30",
    "2026-01-15T25:00Z", "15.01.2026", "٢٠٢٦-٠١-١٥", "\x00", "\ud800", "9" * 5000, 10**30, -(10**30), 1e300, float("nan"),
    float("inf"), float("-inf"), True, False, b"2026-01-15", [], {}, (2026, 1, 15), object(), 1j, EIGHT.time(),
    timedelta(1), "9999-12-31T23:59:59-08:00", "0001-01-01T00:00+08:00", date(1, 1, 1), "0001-01-01",
)  # fmt: skip


@pytest.fixture
def chinese(open_store, clock):
    """A store in Shanghai with a memory and a message of that instant."""
    store = open_store("zone.db", settings=Settings(durability="process", timezone="Asia/Shanghai"))
    clock.set(EIGHT)
    store.add(ANA, "tea")
    store.record(ANA, [Message("user", "tea", created_at=EIGHT)], "chat")
    clock.set(EIGHT + DAY)
    return store


def reads(store, **times: object) -> list[Any]:
    """Every read that takes the times."""
    both = {name: time for name, time in times.items() if name != "as_of"}
    known = {name: time for name, time in times.items() if name in ("as_of", "known_at")}
    out = [store.recall(ANA, "tea", **times), store.search_messages(ANA, "tea", **both)]
    out += [store.messages(ANA, "chat", **both), store.get_all(ANA, **known)]
    if "as_of" not in times and "known_at" not in times:
        out.append(store.changes(ANA, times.get("since", 0), times.get("until")))
    return out


@pytest.mark.parametrize("form", SAME, ids=repr)
def test_all_forms_of_an_instant_are_one(chinese, form):
    assert parse_instant(form, SHANGHAI)[0] == EIGHT
    assert [len(answer) for answer in reads(chinese, since=form)] == [1] * 5
    assert [len(answer) for answer in reads(chinese, until=form)] == [0, 0, 0, 1, 0]
    assert [len(answer) for answer in reads(chinese, known_at=form)] == [1] * 4
    assert len(chinese.recall(ANA, "tea", as_of=form)) == 1


@pytest.mark.parametrize("form", MIDNIGHT, ids=repr)
def test_a_date_is_its_midnight_in_the_zone_of_the_store(chinese, form):
    assert parse_instant(form, SHANGHAI)[0] == datetime(2026, 1, 14, 16, tzinfo=UTC)
    assert [len(answer) for answer in reads(chinese, since=form)] == [1] * 5
    assert [len(answer) for answer in reads(chinese, known_at=form)] == [0] * 4


@pytest.mark.parametrize("option", ["since", "until", "as_of", "known_at"])
def test_no_time_raises_anything_else_than_invalid_time(chinese, option):
    for form in EDGES:
        if option == "since" and form is None:
            continue  # the one thing that changes() must be told
        reads(chinese, **{option: form})
    for form in WRONG:
        with pytest.raises(InvalidTime) as caught:
            parse_instant(form, SHANGHAI)
        assert len(str(caught.value)) < 200
        with pytest.raises(InvalidTime):
            reads(chinese, **{option: form})


@given(
    st.one_of(
        st.text(max_size=30), st.integers(), st.floats(), st.datetimes(), st.dates(), st.binary(max_size=4),
        st.datetimes(timezones=st.timezones()), st.from_regex(r"-?[0-9T:.+Z -]{1,25}"),
    ),
    st.sampled_from([SHANGHAI, BERLIN, ZoneInfo("America/Los_Angeles")]),
)  # fmt: skip
def test_any_value_is_a_time_or_an_invalid_one(value, zone):
    for read in (
        parse_instant,
        lambda *a: parse_typed(str(a[0]), zone, EIGHT),
        lambda *a: span_before(str(a[0]), zone, EIGHT),
    ):
        with suppress(InvalidTime):
            assert read(value, zone)


# --- times as people type them ---------------------------------------------------------------------------------

NOW = datetime(2026, 3, 31, 6, 30, tzinfo=UTC)  # 08:30 in Berlin, two days after the clocks went forward


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", "2026-03-31T08:30+02:00"),
        ("现在", "2026-03-31T08:30+02:00"),
        ("today", "2026-03-31T00:00+02:00"),
        (" Today ", "2026-03-31T00:00+02:00"),
        ("今天", "2026-03-31T00:00+02:00"),
        ("yesterday", "2026-03-30T00:00+02:00"),
        ("昨天", "2026-03-30T00:00+02:00"),
        ("2026-03", "2026-03-01T00:00+01:00"),
        ("2026-03-29", "2026-03-29T00:00+01:00"),
        ("2026-03-30T09:00", "2026-03-30T09:00+02:00"),
        ("2026-03-30T09:00Z", "2026-03-30T09:00+00:00"),
        ("3", "1970-01-01T00:00:03+00:00"),
        ("3d ago", "2026-03-28T08:30+01:00"),
        ("3 days ago", "2026-03-28T08:30+01:00"),
        ("3天前", "2026-03-28T08:30+01:00"),
        ("3 天 前", "2026-03-28T08:30+01:00"),
        ("1W AGO", "2026-03-24T08:30+01:00"),
        ("72h ago", "2026-03-28T07:30+01:00"),
        ("3个小时前", "2026-03-31T05:30+02:00"),
        ("30分钟前", "2026-03-31T08:00+02:00"),
        ("90s ago", "2026-03-31T08:28:30+02:00"),
    ],
)
def test_times_as_people_type_them(text, wanted):
    assert parse_typed(text, BERLIN, NOW) == datetime.fromisoformat(wanted)
    assert parse_typed(text, BERLIN, NOW).tzinfo is UTC


@pytest.mark.parametrize("text", ["", "ago", "3d", "d ago", "-3d ago", "3.5d ago", "3y ago", "in 3d", "2026-00",
                                  "2026-13", "0000-05", "99999999999d ago", "9" * 5000 + "d ago", "３天前x", "前天 x"])  # fmt: skip
def test_what_is_no_typed_time_is_told_with_examples(text):
    with pytest.raises(InvalidTime, match=r"yesterday.*3d ago.*昨天.*3天前") as caught:
        parse_typed(text, BERLIN, NOW)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("now", "text", "wanted"),
    [
        ("2026-03-29T12:00+02:00", "1d", "2026-03-28T12:00+01:00"),  # 23 hours
        ("2026-03-29T12:00+02:00", "24h", "2026-03-28T11:00+01:00"),
        ("2026-10-25T12:00+01:00", "1d", "2026-10-24T12:00+02:00"),  # 25 hours
        ("2026-10-25T12:00+01:00", "1w", "2026-10-18T12:00+02:00"),
        ("2026-10-25T12:00+01:00", "1周", "2026-10-18T12:00+02:00"),
        ("2026-03-30T02:30+02:00", "1d", "2026-03-29T03:30+02:00"),  # 02:30 was left out that night
        ("2026-10-26T02:30+01:00", "1d", "2026-10-25T02:30+02:00"),  # came twice: the first
        ("2026-03-29T12:00+02:00", "0d", "2026-03-29T12:00+02:00"),
    ],
)
def test_days_and_weeks_keep_the_wall_time(now, text, wanted):
    assert span_before(text, BERLIN, datetime.fromisoformat(now)) == datetime.fromisoformat(wanted)


@pytest.mark.parametrize("text", ["", "7", "d", "7y", "-7d", "7d ago", "1d12h", "999999999d", "一天", "7月"])
def test_what_is_no_span_is_told_with_examples(text):
    with pytest.raises(InvalidTime, match=r"7d|outside the years"):
        span_before(text, BERLIN, NOW)


def test_the_python_verbs_take_instants_and_not_words(store):
    for words in ("yesterday", "3d ago", "2026-03"):
        with pytest.raises(InvalidTime, match="ISO 8601"):
            store.recall(ANA, "tea", since=words)
