"""What the tests of time share: a model of what was true and known when, and random histories for it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from memstore import Memory, NotFound, Scope
from memstore.errors import InvalidInput
from memstore.times import to_micros

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MOMENT = timedelta(microseconds=1)
START = datetime(2026, 1, 10, 12, tzinfo=UTC)
ANA, BEN = Scope("acme", "ana", "helper"), Scope("acme", "ben", "helper")


def found(answer) -> set[tuple[str, int]]:
    return {(row.id, row.version) for row in answer}


def supersede_by_another(store, old: Memory, new: Memory) -> None:
    """What verdicts will do; there is no verb for it yet."""
    with store._storage.write() as tx:
        tx._run(
            "UPDATE memory_versions SET state = 'superseded', superseded_at = ?, superseded_by = ? WHERE id = ?",
            (to_micros(new.recorded_at), new.id, old.id),
        )


@dataclass
class Version:
    """A version as it was stated, in hours since the start (None: open)."""

    id: str
    number: int
    recorded: float
    begin: float | None
    end: float | None
    expires: float | None


def hours(instant: datetime | None) -> float | None:
    return None if instant is None else (instant - START) / HOUR


def stated(row: Memory) -> Version:
    times = (row.recorded_at, row.valid_from, row.valid_to, row.expires_at)
    return Version(row.id, row.version, *(hours(time) for time in times))


@dataclass
class Model:
    """What the answers must be, from what was stated alone."""

    versions: list[Version]
    now: float

    def ask(self, truth: float | None, known: float | None) -> set[tuple[str, int]]:
        seen = [v for v in self.versions if known is None or v.recorded <= known]
        answer = set()
        for v in seen:
            later = [n for n in seen if n.id == v.id and n.number > v.number]
            if truth is None and later:
                continue
            instant = truth if truth is not None else (self.now if known is None else known)
            ends = [v.end, v.expires, *(n.recorded if n.begin is None else n.begin for n in later)]
            begun = truth is None or v.begin is None or v.begin <= truth
            if begun and all(end is None or end > instant for end in ends):
                answer.add((v.id, v.number))
        return answer


GRID = st.one_of(st.none(), st.integers(-2, 7))
TIMES = st.fixed_dictionaries({}, optional={"valid_from": GRID, "valid_to": GRID, "expires_at": GRID})
STEP = st.one_of(
    st.tuples(st.just("add"), TIMES),
    st.tuples(st.just("update"), st.integers(0, 3), TIMES),
    st.tuples(st.just("update"), st.integers(0, 3), st.just({})),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.integers(1, 3)),
    st.tuples(st.just("pass"), st.integers(1, 3)),
)


class History:
    """Applies random steps to a store and to the model."""

    def __init__(self, store) -> None:
        self.store = store
        self.clock = store._clock
        self.clock.set(START)
        self.model = Model([], 0)
        self.ids: list[str] = []
        self.words = 0

    def apply(self, step: tuple[Any, ...]) -> None:
        what, *more = step
        if what == "pass":
            self.clock.set(self.clock.now() + more[0] * HOUR)
            self.model.now = hours(self.clock.now())
            return
        times = (
            {name: at if at is None else START + at * HOUR for name, at in more[-1].items()}
            if what != "delete"
            else {}
        )
        self.words += 1
        text = f"tea {self.words}"
        try:
            if what == "add":
                made = self.store.add(ANA, text, **times)
                self.ids.append(made.id)
                self.model.versions.append(stated(made))
            elif self.ids:
                row_id = self.ids[more[0] % len(self.ids)]
                if what == "update":
                    self.model.versions.append(stated(self.store.update(ANA, row_id, content=text, **times)))
                else:
                    self.store.delete(ANA, row_id)
                    self.model.versions = [v for v in self.model.versions if v.id != row_id]
        except (InvalidInput, NotFound):  # an end before its beginning; expired or deleted already
            return

    def answers(self, **times: float | None) -> list[set[tuple[str, int]]]:
        at = {name: None if t is None else START + t * HOUR for name, t in times.items()}
        return [
            found(self.store.recall(ANA, "tea", 1000, **at)),
            found(self.store.get_all(ANA, 1000, **at)),
        ]
