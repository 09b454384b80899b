"""When the time that a command was given is up."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RERAISE_SECONDS = 1.0
"""Seconds after which it is said once more: raised inside of a destructor, the first time was ignored."""
SHORTEST_TIMER, LONGEST_TIMER = 1e-3, 1e6
"""Seconds for which a timer is set at the least (and later than the deadline, for clocks differ) and at the most."""


class TimeIsUpError(BaseException):
    """Like Ctrl-C's: no handler of errors may swallow it."""


class Deadline:
    """So many seconds from now; None, or infinitely many: never."""

    def __init__(self, seconds: float | None):
        self._at = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, at the least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_past(self) -> bool:
        return self.left == 0.0

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """End what is done inside with `TimeIsUpError` when the time comes: for what is long and leaves nothing to
        save. Signals reach the main thread alone; elsewhere it is waited for."""
        if self._at == math.inf or threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.is_past:
            raise TimeIsUpError
        before = signal.signal(signal.SIGALRM, self._say)
        # A timer of 0 seconds never rings, and one of years is refused.
        timer = signal.setitimer(signal.ITIMER_REAL, min(self.left + SHORTEST_TIMER, LONGEST_TIMER), RERAISE_SECONDS)
        try:
            yield
        except Exception as error:
            if self.is_past:
                # What a library makes of being interrupted; whatever else it is will be met again.
                raise TimeIsUpError from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, before)

    def _say(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_past:
            raise TimeIsUpError


NO_DEADLINE = Deadline(None)
