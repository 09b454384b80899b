"""CIFAR-100: as CIFAR-10, in 100 (fine) classes.

Citation: Krizhevsky, 2009
"""

from __future__ import annotations

from dataclasses import dataclass

from walkback.data.cifar_spec import CIFAR100
from walkback.data.images import Cifar


@dataclass(frozen=True)
class _Cifar100(Cifar):
    spec = CIFAR100
    mean = (0.5071, 0.4865, 0.4409)
    std = (0.2673, 0.2564, 0.2762)


DATA_SET = _Cifar100
