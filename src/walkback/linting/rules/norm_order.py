"""`x.norm(-1)` is the L(-1) "norm" of the whole tensor, not a norm over the last axis.

Why: the first argument of a norm is its order p. With p = -1 the result is one number, 1 / sum(1 / |x|), dominated by
the smallest entry; it broadcasts without an error and every gradient norm or cosine computed from it is wrong.
Instead: name the axis: `x.norm(dim=-1)`, `torch.linalg.vector_norm(x, dim=-1)`, `np.linalg.norm(x, axis=-1)`. Where
the order -1 is intended, name it: `p=-1`, `ord=-1`.
Pitfall: 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import NORM_CALLS, resolve_number
from walkback.linting.identifier_words import name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_ORDER_WORDS = {"p", "ord", "order"}


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        if source.called_name(call) in NORM_CALLS:
            order = call.args[1:2]
        elif name_of(call) == "norm" and isinstance(call.func, ast.Attribute) and not source.called_name(call):
            order = call.args[:1]
        else:
            continue
        value = resolve_number(source, order[0]) if order else None
        # A name such as `p` or `order` says that the order is meant.
        if value in (-1.0, -2.0) and not words_of_name(order[0]) & _ORDER_WORDS:
            yield call, f"{value:.0f} is the order of this norm, not the axis: write dim={value:.0f}"


RULE = Rule.of("WB001", __doc__, find)
