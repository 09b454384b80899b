"""walkback: may you claim that your backprop alternative trains this network's depth?

Importing this package imports no torch; its functions do, when they are called.
"""

from typing import TYPE_CHECKING, Any

from walkback.api import audit, diagnose, load, study, tensors, train
from walkback.core.errors import InputError, WalkbackError
from walkback.core.version import __version__

if TYPE_CHECKING:
    from walkback.watching.watch import Watch

__all__ = [
    "InputError",
    "WalkbackError",
    "Watch",
    "__version__",
    "audit",
    "diagnose",
    "load",
    "study",
    "tensors",
    "train",
]


def __getattr__(name: str) -> Any:
    """`Watch` is a class and needs torch, so it is imported when it is asked for."""
    if name == "Watch":
        from walkback.watching.watch import Watch

        return Watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
