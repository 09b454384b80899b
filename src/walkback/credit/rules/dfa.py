"""Direct feedback alignment: the output error projected to every layer by fixed random matrices.

Citation: Nøkland, 2016
Feedback: block-level: a_l = B_l^T e, B_l of size classes x d from N(0, 1) times b_scale
Tokens: credit_tokens=broadcast puts B_l^T e at every token divided by their number, cls at the cls token alone
Maps: B_l is of size classes x (channels * height * width)
State: B_0..B_L
Exact: no layer
Cost: bp's forward pass and weight gradients without the input pullback; one projection of classes x d a layer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from walkback.credit.direct_rule import DirectRule
from walkback.credit.feedback import scale_factor, scaled
from walkback.credit.rule import dynamic
from walkback.credit.trace import Trace


@dataclass(frozen=True)
class DirectFeedbackAlignment(DirectRule):
    scale: Literal["raw", "unit_error"] = dynamic("raw")
    """`raw` projects e; `unit_error` projects e/|e|, so the size of a sample's credit does not depend on its error."""
    error: Literal["probabilities", "logits"] = dynamic("probabilities")
    """`probabilities`: e = softmax(logits) - onehot(y), the loss gradient in the logits; `logits`: logits - onehot(y),
    the gradient of half the squared distance instead."""

    def signal(self, trace: Trace) -> Tensor:
        of_logits = torch.as_tensor(self.error) > 0
        return scaled(torch.where(of_logits, trace.logits - trace.target, trace.error), torch.as_tensor(self.scale))

    @property
    def normalises_error(self) -> bool:
        return self.scale == "unit_error"

    def error_scale(self, trace: Trace) -> Tensor:
        return scale_factor(trace.error, torch.as_tensor(self.scale))


RULE = DirectFeedbackAlignment
