"""What each block does for the predictions: the network with one block skipped or reset, or cut off after a block.

Only forward passes. The result is 1 where the prediction is right, for each block (or state) and sample.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from walkback.core.measurements import Array
from walkback.measure.inputs import Groups
from walkback.measure.subject import Subject


def measure_lesions(subject: Subject, groups: Groups, initial: Mapping[str, Tensor] | None) -> dict[str, Array]:
    """Correctness under each lesion, as arrays named in `core.measurements.AXES`; empty where there are no logits.

    `initial` are the parameters before training, by name; without them no block is reset. A lesion that the shapes of
    the states do not allow is NaN.
    """
    parts: dict[str, list[Tensor]] = {}
    for x, y in groups:
        with torch.no_grad():
            for name, rows in subject.lesioned_logits(x, initial).items():
                assert y is not None
                parts.setdefault(name, []).append(torch.stack([_right(logits, y) for logits in rows]))
    return {name: torch.cat(values, dim=1).cpu().numpy() for name, values in parts.items()}


def _right(logits: Tensor | None, y: Tensor) -> Tensor:
    if logits is None:
        return torch.full((len(y),), torch.nan, dtype=torch.float64)
    right = (logits.argmax(-1) == y.to(logits.device)).double()
    return right.flatten(1).mean(1) if right.ndim > 1 else right
