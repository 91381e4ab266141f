"""Calls that come at the same time, carried out together: the first one through takes along all that wait."""

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """One caller's piece of work and what became of it."""

    work: Callable[..., T]
    value: T | None = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def fail(self, error: Exception) -> None:
        """End with an error of its own: one exception raised in several threads would mix their tracebacks."""
        self.error = copy.copy(error)
        self.error.__cause__ = error
        self.done.set()


class Grouping:
    """Leads one group at a time.

    :param carry_out: is called by one thread with all calls that wait then, and ends each of them.
    """

    def __init__(self, carry_out: Callable[[list[Call[Any]]], None]) -> None:
        self._carry_out = carry_out
        self._waiting: list[Call[Any]] = []
        self._waiting_lock = threading.Lock()
        self.leading = threading.Lock()

    def submit(self, calls: Sequence[Call[Any]]) -> None:
        """Returns once each call has ended."""
        with self._waiting_lock:
            self._waiting.extend(calls)
        with self.leading:
            if all(call.done.is_set() for call in calls):
                return
            with self._waiting_lock:
                group, self._waiting = self._waiting, []
            try:
                self._carry_out(group)
            except BaseException:  # this thread is told to end; what others wait for is not its to fail
                with self._waiting_lock:
                    left = [call for call in group if not call.done.is_set() and call not in calls]
                    self._waiting = [*left, *self._waiting]
                raise
