"""What a measurement of a model covers besides its states and their reference gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from walkback.measure.module_subject import UpdateFunction
from walkback.measure.subject import CreditFunction
from walkback.measure.vectors import NullSpace

Pool = Literal["auto", "cls", "mean", "all"]
CreditSource = CreditFunction | Literal["auto", "backward"] | None
FreshCredit = Callable[[torch.Generator], CreditFunction]
"""Draws the feedback of a user's method anew, and returns the credit function that uses it."""


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured besides the states and their reference gradients."""

    credit: CreditSource = "auto"
    """Returns the credits of a pass. `auto`: those of the subject's own rule, or of the model's own backward pass where
    it differs from the derivative; `backward`: those of the model's own backward pass in any case; None: no credit."""
    reference: CreditFunction | None = None
    """Returns the reference gradients of a pass, in place of the derivative of the forward pass."""
    fresh: FreshCredit | None = None
    update: UpdateFunction | None = None
    """Leaves the parameter gradients of a user's training step in `.grad`, or returns them by name."""
    null_space: NullSpace | None = None
    """What a random rotation of the credit mixes; None: what the rule's feedback mixes, or the features."""
    initial: Mapping[str, Tensor] | None = None
    """The parameters before training, by name: blocks are reset to them, and probes compared with them."""
    check: bool = True
    """Whether the reference is checked by finite differences."""
    updates: bool = True
    """Whether parameter gradients are measured."""
    lesions: bool = True
    """Whether blocks are skipped, reset and cut off."""
    train: tuple[Any, Tensor] | None = None
    """Training samples that probes are fitted on."""
    pool: Pool = "auto"
    labels: Sequence[str] | None = None
    """How each layer's credit relates to the gradient by construction: exact, asymptotic, fitted, signs or none."""
    exact: tuple[int, ...] = ()
    """Layers whose credit is the gradient by construction, where `labels` are not given."""
    site: str | None = None
    replay: bool = True
    """Without it nothing runs in float64 and validity is not measured: for frequent, cheap measurements."""
