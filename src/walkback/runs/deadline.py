"""Deadlines: the time limit of a command (`--max-seconds`)."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

RERAISE_SECONDS = 1.0
"""Re-raise interval in seconds; exceptions raised in `__del__` are swallowed."""
SHORTEST_TIMER, LONGEST_TIMER = 1e-3, 1e6
"""Seconds: shortest and longest timer. The shortest is added to the remaining time, because clocks differ."""


class TimeIsUpError(BaseException):
    """Derived from BaseException, like KeyboardInterrupt, so that `except Exception` does not swallow it."""


class Deadline:
    """A point in time `seconds` from now; None or infinity: no deadline."""

    def __init__(self, seconds: float | None):
        self._at = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_past(self) -> bool:
        return self.left == 0.0

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Raise `TimeIsUpError` inside the block at the deadline; for long work that leaves nothing to save.
        Signals only reach the main thread, so in other threads the block runs to its end."""
        if self._at == math.inf or threading.current_thread() is not threading.main_thread():
            yield
            return
        if self.is_past:
            raise TimeIsUpError
        before = signal.signal(signal.SIGALRM, self._raise_if_past)
        # A timer of 0 seconds never fires, and one of years is refused.
        timer = signal.setitimer(signal.ITIMER_REAL, min(self.left + SHORTEST_TIMER, LONGEST_TIMER), RERAISE_SECONDS)
        try:
            yield
        except Exception as error:
            if self.is_past:
                # Libraries turn the interruption into other errors; a real error will occur again on the next run.
                raise TimeIsUpError from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, before)

    def _raise_if_past(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_past:
            raise TimeIsUpError


NO_DEADLINE = Deadline(None)
