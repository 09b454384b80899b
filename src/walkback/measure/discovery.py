"""Any nn.Module as a subject, with its blocks found or named."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from walkback.measure.module_subject import ModuleSubject
from walkback.measure.preconditions import require_measurable
from walkback.nets.block_calls import StepFn
from walkback.nets.find_blocks import Blocks, find_blocks, unwrap


def subject_of(model: nn.Module, blocks: Blocks, x: Any, y: Tensor | None, step_fn: StepFn | None) -> ModuleSubject:
    """The model as a subject, with its blocks found automatically or as named by `blocks`.

    `x`, `y` are a few samples for the forward pass that decides what the blocks return. The subject's `found` says
    which blocks were used; if none fit, the error lists what was tried.
    """
    model, notes = unwrap(model)
    require_measurable(model)
    found = find_blocks(model, blocks, x, y, step_fn)
    return ModuleSubject(model, found.names, found.kind, step_fn, [*notes, found.what], found.tried)
