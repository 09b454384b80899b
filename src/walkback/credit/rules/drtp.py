"""Direct random target projection: the label, not the error, projected to every layer by fixed random matrices.

Citation: Frenkel, Lefebvre and Bol, 2021
Feedback: block-level: a_l = -B_l^T onehot(y), B_l of size classes x d from N(0, 1) times b_scale
Tokens: credit_tokens=broadcast puts a_l at every token divided by their number, cls at the cls token alone
Maps: B_l is of size classes x (channels * height * width)
State: B_0..B_L
Exact: no layer
Cost: bp's forward pass and weight gradients without the input pullback; one row of B_l a sample and layer

The sign: the loss gradient in the logits is e = p - y, and the label alone determines only that the label's entry of e
is negative. So -onehot(y) takes the place of e: descending a_l moves h_l along +B_l^T onehot(y), which raises the
label's logit if B_l is aligned with the map from h_l to the logits. (Frenkel, Lefebvre and Bol write the error as y - p
and add, which is the same.) As B_l is drawn symmetrically about 0, the sign does not decide whether a network with
*random* feedback learns, since the head can use either; it decides which B_l counts as aligned.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from walkback.credit.direct_rule import DirectRule
from walkback.credit.trace import Trace


@dataclass(frozen=True)
class DirectRandomTargetProjection(DirectRule):
    def signal(self, trace: Trace) -> Tensor:
        return -trace.target


RULE = DirectRandomTargetProjection
