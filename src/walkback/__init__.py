"""walkback: may you claim that your backprop alternative trains this network's depth?

Importing this package imports no torch; its functions do, when they are called.
"""

from walkback.api import audit, diagnose, load, tensors, train
from walkback.core.errors import InputError, WalkbackError
from walkback.core.version import __version__

__all__ = ["InputError", "WalkbackError", "__version__", "audit", "diagnose", "load", "tensors", "train"]
