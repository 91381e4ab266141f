"""Who judges, and what it may cost: tokens of a team and day, and a breaker for a model that fails (SPEC W10).

Before a call the team's tokens of the day are held against the budget, and the model's breaker is looked at; after it
what it cost is booked. Both are small transactions of their own: none is open while a model is asked. Calls under way
at the same moment do not see each other's cost, so that a budget may be passed by as many calls as there are workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from memstore.agent_settings import AgentSettings
from memstore.clock import Clock
from memstore.config import Settings
from memstore.errors import LLMOverBudget, LLMRejected, LLMUnavailable, MemstoreError
from memstore.llm import LLM, NOT_FINISHED, LLMReply, LLMRequest, Usage, token_count
from memstore.pipelines.values import Judge
from memstore.pipelines.work import SECOND, JudgeFor, Lease
from memstore.storage.base import Reader, Storage, Writer
from memstore.storage.pipeline_rows import Breaker, Job, Owner, UsageRow
from memstore.times import from_micros, render, to_micros

FAILURES_TO_OPEN = 5
FIRST_TERM_S = 60
LONGEST_TERM_S = 15 * 60
"""A breaker that opens again stays open for twice as long, up to this."""
CHARS_A_TOKEN = 4
_DAY = 86_400 * SECOND
_FIRST_WIDE = "\u2e80"
"""From here on (Han, kana, Hangul, emoji) a character counts as a token."""


def judges(storage: Storage, llm: LLM | None, clock: Clock, zone: ZoneInfo, settings: Settings) -> JudgeFor:
    """Judges for the work of any owner: the rules where there is no model, else the model under the guard.

    Either is loaded when it is first wanted: a store that only answers questions needs none.
    """

    def judge_for(of: Owner, agent: AgentSettings, lease: Lease | None) -> Judge:
        if llm is None:
            from memstore.pipelines.rules import RulesJudge

            return RulesJudge()
        from memstore.pipelines.model import ModelJudge

        guard = Guard(storage, clock, zone, settings.daily_tokens)
        return ModelJudge(GuardedLLM(llm, guard, of.team_id, agent.model, lease))

    return judge_for


@dataclass(frozen=True, slots=True)
class Cost:
    """What a question cost. ``failed``: no whole answer came of it. Whether a whole one says what was asked for is found
    by who asked, behind this."""

    input_tokens: int
    output_tokens: int
    calls: int = 1
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides on calls and books them.

    :param daily_tokens: of each team; None: no limit.
    """

    storage: Storage
    clock: Clock
    zone: ZoneInfo
    daily_tokens: int | None

    def admit(self, team_id: str, model: str, estimate: int) -> bool:
        """Let a call of so many input tokens pass, or not; returns whether it is the one trial of an open breaker.

        :raises LLMOverBudget: with the time at which it may be tried again.
        """
        now = to_micros(self.clock.now())
        with self.storage.read() as reader:
            self._check_budget(reader, team_id, estimate, now)
            breaker = reader.breaker(model)
        if breaker.open_until is None:
            return False
        _check_closed(breaker, now)
        with self.storage.write(covered=True) as tx:
            # Of several workers one makes the trial; the others wait for its outcome.
            breaker = tx.breaker(model)
            if breaker.open_until is None:
                return False
            _check_closed(breaker, now)
            tx.set_breaker(replace(breaker, opened_at=now, open_until=now + _term(breaker.failures)))
        return True

    def _check_budget(self, reader: Reader, team_id: str, estimate: int, now: int) -> None:
        if self.daily_tokens is None:
            return
        used = reader.tokens_used(team_id, local_day(now, self.zone))
        if used < self.daily_tokens and used + estimate <= self.daily_tokens:
            return
        until = next_midnight(now, self.zone)
        way_out = f"it waits until {render(from_micros(until))}, or for a larger Settings.daily_tokens"
        if estimate > self.daily_tokens:
            way_out = "more than those of a whole day: it waits for a larger Settings.daily_tokens"
        raise LLMOverBudget(
            f"{_used_by(team_id)} {used} of {self.daily_tokens} tokens today, and this question takes about {estimate}: "
            f"{way_out}",
            until,
        )

    def book(self, usage: UsageRow, error: Exception | None, lease: Lease | None, *, trial: bool) -> None:
        """Book a call, and what it says of the model: any answer means that it works."""
        with self.storage.write(covered=True) as tx:
            tx.add_usage(usage)
            if lease is not None:
                tx.note_cost(lease.job, usage.calls, usage.input_tokens, usage.output_tokens)
            if error is None or isinstance(error, LLMRejected):
                self._works(tx, usage.model)
            elif isinstance(error, LLMUnavailable) or not isinstance(error, MemstoreError):
                self._failed(tx, usage.model, error, trial=trial)

    def _works(self, tx: Writer, model: str) -> None:
        if tx.breaker(model) != Breaker(model):
            tx.set_breaker(Breaker(model))

    def _failed(self, tx: Writer, model: str, error: Exception, *, trial: bool) -> None:
        now = to_micros(self.clock.now())
        breaker = tx.breaker(model)
        # One breaker serves all teams: what an error says of the question of one is not for the others.
        said = type(error).__name__
        if breaker.open_until is not None and not trial:  # began before it opened, and says nothing new
            tx.set_breaker(replace(breaker, last_error=said))
            return
        failures = breaker.failures + 1
        opens = failures >= FAILURES_TO_OPEN
        until = now + _term(failures) if opens else None
        tx.set_breaker(Breaker(model, failures, now if opens else None, until, said))


class GuardedLLM:
    """A model as one team's work may use it.

    :param model: another model than the object's own.
    :param lease: the job that what it costs is noted with.
    """

    def __init__(self, llm: LLM, guard: Guard, team_id: str, model: str | None, lease: Lease | None) -> None:
        self._llm = llm
        self._guard = guard
        self._team_id = team_id
        self._model = model
        self._lease = lease

    @property
    def name(self) -> str:
        return self._model or str(getattr(self._llm, "name", None) or type(self._llm).__name__)

    def complete(self, request: LLMRequest) -> LLMReply:
        """See :class:`memstore.llm.LLM`.

        :raises LLMOverBudget: when the model may not be asked now; it was not.
        """
        if self._model is not None:
            request = replace(request, model=self._model)
        asked = asked_tokens(request)
        trial = self._guard.admit(self._team_id, self.name, asked)
        day = local_day(to_micros(self._guard.clock.now()), self._guard.zone)
        try:
            reply = self._llm.complete(request)
        except Exception as error:
            self._book(day, request, _cost_of(error, asked), error, trial=trial)
            raise
        self._book(day, request, _cost(reply, asked), None, trial=trial)
        return reply

    def _book(
        self, day: str, request: LLMRequest, cost: Cost, error: Exception | None, *, trial: bool
    ) -> None:
        usage = UsageRow(
            team_id=self._team_id,
            day=day,
            model=self.name,
            task=request.task,
            calls=cost.calls,
            failures=int(cost.failed),
            input_tokens=cost.input_tokens,
            output_tokens=cost.output_tokens,
        )
        self._guard.book(usage, error, self._lease, trial=trial)


# --- tokens ---------------------------------------------------------------------------------------------------


def estimated_tokens(text: str) -> int:
    """About how many tokens a text is, where no model says: a Han character is one, four others are one."""
    wide = sum(character >= _FIRST_WIDE for character in text)
    return wide + -(-(len(text) - wide) // CHARS_A_TOKEN)


def asked_tokens(request: LLMRequest) -> int:
    """The same of a question; its schema is left out."""
    return sum(estimated_tokens(_content(message)) for message in request.messages)


def _content(message: Mapping[str, str]) -> str:
    return str(message.get("content") or "")


def _cost(reply: object, asked: int) -> Cost:
    """As the model reports it, else as it is estimated. What is no reply, or none that is whole, is refused by whoever
    asked."""
    if not isinstance(reply, LLMReply):
        return Cost(asked, 0, failed=True)
    text = reply.text if isinstance(reply.text, str) else None
    failed = text is None or reply.finish_reason in NOT_FINISHED
    return _reckoned(reply.usage, reply.calls, asked, estimated_tokens(text or ""), failed=failed)


def _cost_of(error: Exception, asked: int) -> Cost:
    """A question that was answered, if badly, was read; what could not be reached read nothing."""
    usage = getattr(error, "usage", None) if isinstance(error, MemstoreError) else None
    calls = getattr(error, "calls", 1) if isinstance(error, MemstoreError) else 1
    was_read = isinstance(error, LLMRejected) or isinstance(usage, Usage)
    return _reckoned(usage, calls, asked if was_read else 0, 0, failed=True)


def _reckoned(usage: object, calls: object, asked: int, answered: int, *, failed: bool) -> Cost:
    """:param asked: an estimate for each call, where the model does not say; ``answered`` one for the last."""
    given = Usage.of(usage)
    made = max(1, token_count(calls) or 1)
    read = asked * made if given.input_tokens is None else given.input_tokens
    written = answered if given.output_tokens is None else given.output_tokens
    return Cost(read, written, calls=made, failed=failed)


# --- days and terms -------------------------------------------------------------------------------------------


def local_day(now: int, zone: ZoneInfo) -> str:
    """The day of an instant (microseconds) in the store's zone."""
    return f"{_local(now, zone):%Y-%m-%d}"


def _local(now: int, zone: ZoneInfo) -> datetime:
    instant = from_micros(now)
    try:
        return instant.astimezone(zone)
    except OverflowError:  # the last hours of year 9999, or the first of year 1, are no date there
        return instant.astimezone(UTC)


def next_midnight(now: int, zone: ZoneInfo) -> int:
    """When the next day begins in the zone (microseconds). Where clocks are set forward over midnight that is the
    moment of the change; where midnight comes twice, the one to come."""
    try:
        tomorrow = _local(now, zone).date() + timedelta(days=1)
        begins = datetime.combine(tomorrow, time(), zone)
        both = (to_micros(begins.replace(fold=fold).astimezone(UTC)) for fold in (0, 1))
        return next((instant for instant in both if instant > now), now + _DAY)
    except OverflowError:  # the calendar ends
        return now + _DAY


def _used_by(team_id: str) -> str:
    """How the reason begins that is kept with a job which waits for its team's budget."""
    return f"team {team_id!r} has used"


def waits_for_budget(job: Job, now: int) -> bool:
    """Whether a job was put off because its question is more than what was left of the team's tokens."""
    if job.team_id is None or job.last_error is None or job.not_before <= now:
        return False
    return job.state == "queued" and job.last_error.startswith(_used_by(job.team_id))


def _term(failures: int) -> int:
    doublings = min(failures - FAILURES_TO_OPEN, 10)  # more would only make the number large
    return min(FIRST_TERM_S << max(0, doublings), LONGEST_TERM_S) * SECOND


def is_open(breaker: Breaker, now: int) -> bool:
    """Whether a model is left alone now. A clock that was set back behind the opening does not make that longer."""
    if breaker.open_until is None or breaker.opened_at is None:
        return False
    return breaker.opened_at <= now < breaker.open_until


def _check_closed(breaker: Breaker, now: int) -> None:
    """:raises LLMOverBudget: while it is open."""
    if is_open(breaker, now) and breaker.open_until is not None:
        raise LLMOverBudget(
            f"the model {breaker.model} failed {breaker.failures} times in a row and is left alone until "
            f"{render(from_micros(breaker.open_until))}; the jobs that failed say why",
            breaker.open_until,
        )
