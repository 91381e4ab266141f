"""What models may cost: tokens of a team and day, the breaker, and what is booked with a job."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_support import Cli
from conftest import FAST, OpenStore, said
from memstore import MemoryStore, Scope, Settings, UsageRecord
from memstore.agent_settings import AgentSettings
from memstore.errors import ConfigError, LLMOverBudget, LLMRejected, LLMUnavailable
from memstore.llm import LLMReply, LLMRequest, Usage
from memstore.pipelines.cost import (
    FIRST_TERM_S,
    LONGEST_TERM_S,
    Guard,
    GuardedLLM,
    estimated_tokens,
    judges,
    local_day,
    next_midnight,
)
from memstore.pipelines.work import SECOND, Lease
from memstore.storage.pipeline_rows import Breaker, Owner
from memstore.testing import ManualClock, ScriptedLLM
from memstore.times import from_micros, to_micros

ASK = LLMRequest("extract", ({"role": "user", "content": "x" * 40},))
DAY = 86_400 * SECOND


def guarded(
    store: MemoryStore,
    llm: Any,
    *,
    team: str = "acme",
    model: str | None = None,
    lease: Lease | None = None,
    daily_tokens: int | None = None,
) -> GuardedLLM:
    guard = Guard(store._storage, store._clock, store.timezone, daily_tokens)
    return GuardedLLM(llm, guard, team, model, lease)


def now(store: MemoryStore) -> int:
    return to_micros(store._clock.now())


def breaker(store: MemoryStore, model: str = "scripted") -> Breaker:
    with store._storage.read() as reader:
        return reader.breaker(model)


def fails(_request: LLMRequest) -> Exception:
    return LLMUnavailable("the server is gone")


def fail(model: GuardedLLM, times: int) -> None:
    for _ in range(times):
        with pytest.raises(LLMUnavailable):
            model.complete(ASK)


# --- what is booked -------------------------------------------------------------------------------------------


def test_what_a_model_reports_is_booked_by_team_day_model_and_task(store: MemoryStore) -> None:
    model = guarded(store, ScriptedLLM(["a" * 8, "b" * 4]))
    model.complete(ASK)
    model.complete(ASK)
    other = LLMRequest("profile", ({"role": "user", "content": "y" * 4},))
    guarded(store, ScriptedLLM(["c"]), team="beta").complete(other)
    day = local_day(now(store), store.timezone)
    assert store.usage() == [
        UsageRecord("acme", day, "scripted", "extract", 2, 0, 20, 3),
        UsageRecord("beta", day, "scripted", "profile", 1, 0, 1, 1),
    ]
    assert [row.team_id for row in store.usage("beta")] == ["beta"]


@pytest.mark.parametrize("usage", [Usage(), Usage(-1, True), Usage(1.5, "7")])  # type: ignore[arg-type]
def test_what_it_does_not_report_or_cannot_mean_is_estimated(store: MemoryStore, usage: Usage) -> None:
    guarded(store, ScriptedLLM([LLMReply("记住了四个字 ok", usage=usage)])).complete(ASK)
    (row,) = store.usage()
    assert (row.input_tokens, row.output_tokens) == (10, 7)


def test_estimates_count_han_by_the_character_and_other_text_by_fours() -> None:
    assert [estimated_tokens(text) for text in ("", "a", "abcd", "abcde", "记忆", "记忆ab")] == [
        0,
        1,
        1,
        2,
        2,
        3,
    ]


@given(st.text(), st.text())
def test_an_estimate_never_shrinks_with_more_text(one: str, more: str) -> None:
    assert 0 <= estimated_tokens(one) <= estimated_tokens(one + more) <= estimated_tokens(one) + len(more)


def test_a_refused_answer_costs_what_was_asked_and_an_unreachable_model_nothing(store: MemoryStore) -> None:
    model = guarded(store, ScriptedLLM([LLMRejected("cut off"), LLMUnavailable("gone")]))
    with pytest.raises(LLMRejected):
        model.complete(ASK)
    with pytest.raises(LLMUnavailable):
        model.complete(ASK)
    (row,) = store.usage()
    assert (row.calls, row.failures, row.input_tokens, row.output_tokens) == (2, 2, 10, 0)


@pytest.mark.parametrize(
    ("answer", "booked"),
    [
        (LLMRejected("thoughts alone", usage=Usage(3_000, 4_000)), (1, 1, 3_000, 4_000)),
        (LLMRejected("and again", usage=Usage(6_000, 8_000), calls=2), (2, 1, 6_000, 8_000)),
        (LLMRejected("who knows", calls=2), (2, 1, 20, 0)),
        (LLMRejected("odd", usage="many", calls="two"), (1, 1, 10, 0)),  # type: ignore[arg-type]
        (LLMUnavailable("broken off", usage=Usage(7, 2)), (1, 1, 7, 2)),
        (LLMUnavailable("at the repair", usage=Usage(), calls=2), (2, 1, 20, 0)),
        (LLMReply("aaaa", "length", Usage(5, 6)), (1, 1, 5, 6)),
        (LLMReply("aaaa", calls=2), (2, 0, 20, 1)),
        (LLMReply("aaaa", usage=Usage(1 << 70, 2), calls=0), (1, 0, 10, 2)),
    ],
)
def test_what_failed_or_was_repaired_costs_what_is_reported(
    store: MemoryStore, answer: LLMReply | Exception, booked: tuple[int, ...]
) -> None:
    model = guarded(store, ScriptedLLM([answer]))
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            model.complete(ASK)
    else:
        assert model.complete(ASK) == answer
    (row,) = store.usage()
    assert (row.calls, row.failures, row.input_tokens, row.output_tokens) == booked


def test_an_agents_own_model_is_asked_and_booked_by_its_name(store: MemoryStore) -> None:
    llm = ScriptedLLM(["a", "b"])
    guarded(store, llm, model="small").complete(ASK)
    judge = judges(store._storage, llm, store._clock, store.timezone, FAST)(
        Owner("acme", "ana"), AgentSettings(model="tiny"), None
    )
    assert judge.name == "tiny"
    assert llm.requests[0].model == "small"
    assert [row.model for row in store.usage()] == ["small"]


def test_the_cost_is_noted_with_the_job(store: MemoryStore) -> None:
    with store._storage.write() as tx:
        tx.enqueue("extract", "k", {"team_id": "acme", "user_id": "ana"}, now(store))
        job = tx.claim("extract", "token", now(store), now(store) + 60 * SECOND)
    assert job is not None
    lease = Lease(job, store._storage, store._clock, 60.0)
    model = guarded(store, ScriptedLLM(["a" * 8, LLMUnavailable("gone")]), lease=lease)
    model.complete(ASK)
    fail(model, 1)
    with store._storage.read() as reader:
        noted = reader.job(job.job_no)
    assert noted is not None
    assert noted.cost == {"calls": 2, "input_tokens": 10, "output_tokens": 2}


def test_no_transaction_is_open_while_the_model_is_asked(store: MemoryStore, open_store: OpenStore) -> None:
    other = open_store()

    def answer(_request: LLMRequest) -> str:
        with other._storage.write() as tx:  # would wait for the lock, and fail
            tx.set_meta("written_meanwhile", "1")
        return "fine"

    guarded(store, ScriptedLLM(answer), daily_tokens=1_000).complete(ASK)
    assert store.usage()[0].calls == 1


def test_usage_since_a_day_is_by_the_stores_zone(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(
        "zoned.db", settings=Settings(durability="process", timezone="Asia/Shanghai", reserve_bytes=0)
    )
    clock.set(datetime(2026, 3, 1, 15, 59, tzinfo=UTC))
    guarded(store, ScriptedLLM(["a"])).complete(ASK)
    clock.set(datetime(2026, 3, 1, 16, 0, tzinfo=UTC))
    guarded(store, ScriptedLLM(["a"])).complete(ASK)
    assert [row.day for row in store.usage()] == ["2026-03-01", "2026-03-02"]
    assert [row.day for row in store.usage(since="2026-03-02")] == ["2026-03-02"]


# --- the budget -----------------------------------------------------------------------------------------------


def test_a_used_up_budget_waits_for_the_next_midnight_without_a_call(
    store: MemoryStore, clock: ManualClock
) -> None:
    llm = ScriptedLLM(lambda _: "a" * 40)
    model = guarded(store, llm, daily_tokens=20)
    model.complete(ASK)
    with pytest.raises(LLMOverBudget, match="20 of 20 tokens") as refused:
        model.complete(ASK)
    assert len(llm.requests) == 1
    assert refused.value.until == next_midnight(now(store), store.timezone)
    guarded(store, llm, team="beta", daily_tokens=20).complete(ASK)  # each team has its own
    clock.set(from_micros(refused.value.until))
    model.complete(ASK)


def test_a_question_that_alone_would_pass_the_budget_is_not_asked(store: MemoryStore) -> None:
    llm = ScriptedLLM(["a"])
    with pytest.raises(LLMOverBudget, match="daily_tokens"):
        guarded(store, llm, daily_tokens=9).complete(ASK)
    assert not llm.requests
    assert store.usage() == []


def test_a_budget_of_nothing_lets_nothing_pass(store: MemoryStore) -> None:
    with pytest.raises(LLMOverBudget):
        guarded(store, ScriptedLLM(["a"]), daily_tokens=0).complete(LLMRequest("title", ()))


@pytest.mark.parametrize("value", [-1, 1.5, True, "many"])
def test_a_budget_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="daily_tokens"):
        Settings(daily_tokens=value)  # type: ignore[arg-type]


ZONES = sorted(available_timezones() & {
    "UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/St_Johns",
    "Asia/Beirut", "Pacific/Apia", "Africa/Cairo", "America/Havana", "Asia/Kathmandu", "Pacific/Kiritimati",
    "Atlantic/Azores", "America/Santiago", "Asia/Tehran",
})  # fmt: skip


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(1985, 1, 1), datetime(2037, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),  # noqa: DTZ001
)
def test_the_next_midnight_begins_another_day_wherever_clocks_are_changed(name: str, at: datetime) -> None:
    zone, instant = ZoneInfo(name), to_micros(at)
    until = next_midnight(instant, zone)
    assert instant < until <= instant + 2 * DAY
    assert local_day(until, zone) > local_day(instant, zone)


@pytest.mark.parametrize(("name", "at", "until"), [
    ("Europe/Berlin", "2026-03-28T23:30+00:00", "2026-03-29T22:00+00:00"),  # a day of 23 hours
    ("Europe/Berlin", "2026-10-24T22:30+00:00", "2026-10-25T23:00+00:00"),  # of 25
    ("America/Sao_Paulo", "2018-11-03T12:00+00:00", "2018-11-04T03:00+00:00"),  # there is no midnight
    ("Pacific/Apia", "2011-12-29T12:00-10:00", "2011-12-30T10:00+00:00"),  # there is no next day
])  # fmt: skip
def test_midnight_is_that_of_the_zone(name: str, at: str, until: str) -> None:
    found = next_midnight(to_micros(datetime.fromisoformat(at)), ZoneInfo(name))
    assert from_micros(found) == datetime.fromisoformat(until)


def test_the_ends_of_the_calendar_have_days_too() -> None:
    last = to_micros(datetime(9999, 12, 31, 23, tzinfo=UTC))
    assert local_day(last, ZoneInfo("Asia/Shanghai")) == "9999-12-31"
    assert next_midnight(last, ZoneInfo("UTC")) == last + DAY


# --- the breaker ----------------------------------------------------------------------------------------------


def test_five_failures_in_a_row_open_it_and_nothing_is_asked(store: MemoryStore) -> None:
    llm = ScriptedLLM(fails)
    model = guarded(store, llm)
    fail(model, 5)
    with pytest.raises(LLMOverBudget, match="failed 5 times in a row") as refused:
        model.complete(ASK)
    assert len(llm.requests) == 5
    assert refused.value.until == now(store) + FIRST_TERM_S * SECOND


def test_any_exception_of_a_users_model_counts(store: MemoryStore) -> None:
    model = guarded(store, ScriptedLLM(lambda _: RuntimeError("boom")))
    for _ in range(5):
        with pytest.raises(RuntimeError):
            model.complete(ASK)
    assert breaker(store).last_error == "RuntimeError"
    with pytest.raises(LLMOverBudget):
        model.complete(ASK)


def test_what_one_team_said_reaches_no_other_through_the_breaker(open_store: OpenStore) -> None:
    def repeats(request: LLMRequest) -> Exception:
        return ValueError(f"headers={{'Authorization': 'Bearer sk-1'}} body={request.messages}")

    store = open_store(llm=ScriptedLLM(repeats), settings=FAST)
    for number in range(5):
        store.record(Scope("acme", "ana", "helper"), said("my SALARY is 9000"), f"s{number}")
    assert store.work().failed == 5
    other = Scope("beta", "bob", "helper")
    store.record(other, said("hello"), "s")
    assert store.work().postponed == 1
    with pytest.raises(LLMOverBudget) as refused:
        store.extract(other, "s")
    told = [str(refused.value), *warnings(store), *(job.last_error or "" for job in store.jobs())]
    assert sum("ValueError" in one for one in told) == 6  # the five jobs, and doctor
    assert not [one for one in told if "SALARY" in one or "sk-1" in one]


@pytest.mark.parametrize("answer", ["fine", LLMRejected("unreadable")])
def test_an_answer_ends_the_row_of_failures(store: MemoryStore, answer: str | Exception) -> None:
    gone = LLMUnavailable("gone")
    llm = ScriptedLLM([gone, gone, gone, gone, answer, gone])
    model = guarded(store, llm)
    fail(model, 4)
    if isinstance(answer, Exception):
        with pytest.raises(LLMRejected):
            model.complete(ASK)
    else:
        model.complete(ASK)
    assert breaker(store) == Breaker("scripted")
    fail(model, 1)
    assert breaker(store).failures == 1


def test_one_trial_after_its_term_closes_it_or_doubles_the_term(
    store: MemoryStore, clock: ManualClock
) -> None:
    works = False
    llm = ScriptedLLM(lambda _: "fine" if works else LLMUnavailable("gone"))
    model = guarded(store, llm)
    fail(model, 5)
    for term in (60, 120, 240, 480, 900, LONGEST_TERM_S):
        opened = breaker(store)
        assert opened.open_until == now(store) + term * SECOND
        clock.advance(term - 1)
        with pytest.raises(LLMOverBudget):
            model.complete(ASK)
        clock.advance(1)
        fail(model, 1)
    works = True
    clock.advance(LONGEST_TERM_S)
    model.complete(ASK)
    assert breaker(store) == Breaker("scripted")


def test_while_the_trial_is_under_way_others_are_refused(store: MemoryStore, clock: ManualClock) -> None:
    fail(guarded(store, ScriptedLLM(fails)), 5)
    clock.advance(FIRST_TERM_S)

    def answer(_request: LLMRequest) -> str:
        with pytest.raises(LLMOverBudget):
            guarded(store, ScriptedLLM(["never asked"])).complete(ASK)
        return "fine"

    guarded(store, ScriptedLLM(answer)).complete(ASK)
    guarded(store, ScriptedLLM(["fine"])).complete(ASK)


def test_a_call_that_began_before_it_opened_does_not_prolong_it(store: MemoryStore) -> None:
    def last_to_fail(_request: LLMRequest) -> Exception:
        fail(guarded(store, ScriptedLLM(fails)), 5)
        return TimeoutError("me too")

    with pytest.raises(TimeoutError):
        guarded(store, ScriptedLLM(last_to_fail)).complete(ASK)
    assert breaker(store).failures == 5
    assert breaker(store).open_until == now(store) + FIRST_TERM_S * SECOND
    assert breaker(store).last_error == "TimeoutError"


@pytest.mark.parametrize("back", [timedelta(seconds=1), timedelta(days=400)])
def test_a_clock_set_back_does_not_keep_it_open(
    store: MemoryStore, clock: ManualClock, back: timedelta
) -> None:
    fail(guarded(store, ScriptedLLM(fails)), 5)
    clock.set(clock.now() - back)
    guarded(store, ScriptedLLM(["fine"])).complete(ASK)
    assert breaker(store) == Breaker("scripted")


def test_models_have_a_breaker_each(store: MemoryStore) -> None:
    llm = ScriptedLLM(lambda request: "fine" if request.model == "other" else LLMUnavailable("gone"))
    fail(guarded(store, llm), 5)
    guarded(store, llm, model="other").complete(ASK)
    with pytest.raises(LLMOverBudget):
        guarded(store, llm).complete(ASK)


def test_a_model_that_answers_no_reply_costs_what_was_asked(store: MemoryStore) -> None:
    class Odd:
        def complete(self, _request: LLMRequest) -> Any:
            return "text"

    assert guarded(store, Odd()).complete(ASK) == "text"  # type: ignore[comparison-overlap]
    assert store.usage() == [
        UsageRecord("acme", local_day(now(store), store.timezone), "Odd", "extract", 1, 1, 10, 0)
    ]


# --- for people -----------------------------------------------------------------------------------------------


def warnings(store: MemoryStore) -> list[str]:
    return [found.message for found in store.doctor().findings if found.check == "models"]


def test_doctor_tells_of_a_used_up_budget_and_an_open_breaker(
    open_store: OpenStore, clock: ManualClock, ana: Scope
) -> None:
    settings = Settings(durability="process", timezone="UTC", reserve_bytes=0, daily_tokens=20)
    store = open_store(settings=settings)
    store.add(ana, "the team is there")
    assert warnings(store) == []
    guarded(store, ScriptedLLM(["a" * 40]), daily_tokens=20).complete(ASK)
    fail(guarded(store, ScriptedLLM(fails), team="beta", daily_tokens=20), 5)
    budget, opened = warnings(store)
    assert "team acme has used 20 of 20 tokens today" in budget
    assert "scripted failed 5 times in a row" in opened
    assert "LLMUnavailable" in opened
    assert "the server is gone" not in opened
    clock.advance(86_400)
    assert warnings(store) == []


def test_doctor_names_work_that_the_rest_of_the_budget_does_not_cover(
    open_store: OpenStore, clock: ManualClock, ana: Scope
) -> None:
    settings = Settings(durability="process", timezone="UTC", reserve_bytes=0, daily_tokens=500)
    store = open_store(settings=settings, llm=ScriptedLLM(lambda _: '{"memories": []}'))
    store.record(ana, said("I live in Berlin."), "s")
    assert warnings(store) == []
    for _ in range(2):  # it is no better tomorrow
        assert store.work().postponed
        (job,) = store.jobs("queued", "extract")
        (found,) = warnings(store)
        assert (
            f"job {job.job_no} (extract) of team acme waits for tokens, of which 0 of 500 are used" in found
        )
        assert "more than those of a whole day" in found
        clock.advance(86_400)
    assert warnings(store) == []  # its time has come, and nobody has looked yet


def test_the_command_shows_the_teams_cost(store: MemoryStore) -> None:
    guarded(store, ScriptedLLM(["a" * 8]), team="default").complete(ASK)
    guarded(store, ScriptedLLM(["a" * 8]), team="beta").complete(ASK)
    run = Cli(store.path)
    (row,) = run.answer("usage")["usage"]
    assert (row["team_id"], row["calls"], row["input_tokens"]) == ("default", 1, 10)
    assert len(run.answer("usage", "--all-teams")["usage"]) == 2
    assert run.answer("usage", "--since", "2200-01-01")["usage"] == []
    assert "scripted" in run.shown("usage")
    assert "no model was asked" in run.shown("usage", "--since", "2200-01-01")
