"""When the time that a command was given is up."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = 1.0
"""Seconds after which it is said once more: raised inside of a destructor, the first time was ignored."""


class TimeIsUpError(BaseException):
    """Like Ctrl-C's: no handler of errors may swallow it."""


class Deadline:
    """So many seconds from now; None: never."""

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
        before = signal.signal(signal.SIGALRM, _say)
        timer = signal.setitimer(signal.ITIMER_REAL, self.left, AGAIN)
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


def _say(_number: int, _frame: FrameType | None) -> None:
    raise TimeIsUpError
