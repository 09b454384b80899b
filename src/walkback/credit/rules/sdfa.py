"""Direct feedback alignment with the signs of the output error only.

Citation: Frenkel, Lefebvre and Bol, 2021 (as sDFA); after Nøkland, 2016
Feedback: block-level: a_l = B_l^T sign(e), B_l of size classes x d from N(0, 1) times b_scale
Tokens: credit_tokens=broadcast puts B_l^T sign(e) at every token divided by their number, cls at the cls token alone
Maps: B_l is of size classes x (channels * height * width)
State: B_0..B_L
Exact: no layer
Cost: bp's forward pass and weight gradients without the input pullback; one projection of classes x d a layer

With softmax and cross-entropy, e = p - y is negative at the label and positive elsewhere, so sign(e) = 1 - 2 onehot(y)
however well a sample is fitted (until e underflows to 0): the credit depends on the label alone and does not shrink.
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
class SignedDirectFeedback(DirectRule):
    scale: Literal["raw", "unit_error"] = dynamic("raw")
    """`raw` projects sign(e); `unit_error` projects sign(e) scaled to length 1, that is, divided by sqrt(classes)."""

    def signal(self, trace: Trace) -> Tensor:
        return scaled(trace.error.sign(), torch.as_tensor(self.scale))

    @property
    def normalises_error(self) -> bool:
        return self.scale == "unit_error"

    def error_scale(self, trace: Trace) -> Tensor:
        return scale_factor(trace.error, torch.as_tensor(self.scale))


RULE = SignedDirectFeedback
