"""Feedback alignment at block boundaries: credit sent down block by block through fixed random matrices.

Citation: Lillicrap, Cownden, Tweed and Akerman, 2016
Feedback: block-level, the skip is not used: a_l = B_l a_{l+1}, B_l of size d x d from N(0, 1/d) times b_scale
Tokens: B_l acts at each token, so with a cls head patches and their stem get no credit; broadcast spreads it
Maps: B_l mixes the channels at each position; where a block shrinks the map, positions share the credit above them
State: B_0..B_{L-1}
Exact: top layer
Cost: bp's forward pass and weight gradients without the input pullback; one d x d product a layer

This is the FA of the audited papers; the field's, with feedback in every Linear and convolution, is `fa_layers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Generator

from walkback.core.settings import omitted_at_default
from walkback.credit.feedback import RandomFeedback, refuses_tokens, send_down
from walkback.credit.rule import EXACT, UNRELATED, Credits, Label, Logs
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network, features_of


@dataclass(frozen=True)
class FeedbackAlignment(RandomFeedback):
    per_token = True

    credit_tokens: Literal["own", "broadcast"] = omitted_at_default("own")
    """`own`: below the top each token gets its own credit; `broadcast`: an equal share of the sum over all tokens."""

    def refuses(self, net: Network) -> str | None:
        return refuses_tokens(net, self.credit_tokens, usual="own")

    def init(self, net: Network, generator: Generator) -> Leaves:
        widths = [features_of(shape) for shape in net.state_shapes]
        pairs = enumerate(pairwise(widths))
        return {f"B.{layer}": self.matrix((below, above), above**-0.5, generator) for layer, (below, above) in pairs}

    def untrained(self, net: Network) -> tuple[str, ...]:
        return net.patch_leaves if self.credit_tokens == "own" and net.head_reads_cls else ()

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, EXACT)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        sent = trace.top
        if self.credit_tokens == "broadcast":
            sent = sent.mean(1, keepdim=True).expand_as(sent)
        credits = [trace.top]
        for layer in reversed(range(net.depth)):
            sent = send_down(state[f"B.{layer}"], sent, net.state_shapes[layer + 1], net.state_shapes[layer])
            credits.append(sent)
        return tuple(reversed(credits)), {}


RULE = FeedbackAlignment
