"""CIFAR-10: 50,000 training and 10,000 test images of 32x32 pixels in 10 classes.

Citation: Krizhevsky, 2009
"""

from __future__ import annotations

from dataclasses import dataclass

from walkback.data.cifar_spec import CIFAR10
from walkback.data.images import Cifar


@dataclass(frozen=True)
class Cifar10(Cifar):
    spec = CIFAR10
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2470, 0.2435, 0.2616)


DATA_SET = Cifar10
