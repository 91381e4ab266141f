"""Recording in batches, for callers who would rather wait for many messages at once than for each."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Self

from memstore.asking import check_scope
from memstore.config import MAX_WHOLE_SETTING, is_number
from memstore.errors import ConfigError, StoreClosed
from memstore.record import Prepared, Recorder
from memstore.types import Message, Receipt, Scope, SourceKind


class Buffer:
    """Collects ``record`` calls and carries them out together. Safe to share between threads.

    :param messages: so many waiting messages are written at once, in the thread that brings the last one.
    :param seconds: no call waits longer than that; a thread of the buffer sees to it.
    """

    def __init__(self, recorder: Recorder, messages: int, seconds: float) -> None:
        if (
            not isinstance(messages, int)
            or isinstance(messages, bool)
            or not 1 <= messages <= MAX_WHOLE_SETTING
        ):
            raise ConfigError(f"messages must be a whole number from 1 on, not {messages!r:.60}")
        if not is_number(seconds, least=1e-3, most=threading.TIMEOUT_MAX):
            raise ConfigError(f"seconds must be a number from 0.001 on, not {seconds!r:.60}")
        self._recorder = recorder
        self._messages = messages
        self._seconds = seconds
        self._waiting: list[tuple[Prepared, Future[Receipt]]] = []
        self._count = 0
        self._since = 0.0  # when the oldest that waits came
        self._closed = False
        self._changed = threading.Condition()
        self._flushing = threading.Lock()  # batches go in the order in which they were filled
        self._thread = threading.Thread(target=self._watch, name="memstore-buffer", daemon=True)
        self._thread.start()

    def record(
        self,
        scope: Scope,
        messages: Sequence[Message],
        session: str,
        *,
        transcript: bool = False,
        source_kind: SourceKind | None = None,
    ) -> "Future[Receipt]":
        """See :meth:`memstore.MemoryStore.record`; the future ends with its receipt or its error.

        :raises InvalidInput: at once, naming what was wrong. :raises StoreClosed: after :meth:`close`.
        """
        self._recorder.check_open()  # before any lock, and because no thread of ours is in a forked child
        call = self._recorder.prepare(
            check_scope(scope), messages, session, transcript=transcript, source_kind=source_kind
        )
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()  # what was handed in cannot be called back
        with self._changed:
            if self._closed:
                raise StoreClosed("the buffer was closed; nothing was stored")
            self._waiting.append((call, future))
            self._count += len(call.rows)
            full = self._count >= self._messages
            if len(self._waiting) == 1:
                self._since = time.monotonic()
                self._changed.notify()
        if full:
            self.flush()
        return future

    def flush(self) -> None:
        """Write what waits now. Errors are the futures' to tell."""
        with self._flushing:
            with self._changed:
                waiting, self._waiting, self._count = self._waiting, [], 0
            if not waiting:
                return
            try:
                outcomes = self._recorder.record([call for call, _ in waiting])
            except BaseException as error:
                for _, future in waiting:
                    future.set_exception(error)
                raise
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def close(self) -> None:
        """Write what waits, and take no more. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self.flush()

    def _watch(self) -> None:
        while self._waited_long_enough():
            self.flush()

    def _waited_long_enough(self) -> bool:
        """True once the oldest call that waits did so for ``seconds``; False when the buffer is closed."""
        with self._changed:
            while not self._closed:
                left = self._since + self._seconds - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return True
                self._changed.wait(left)
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
