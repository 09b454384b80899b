"""Growth of a network's block weights and block outputs since initialisation.

Blocks are averaged geometrically, since these are factors; the papers do not say how they average.
"""

from __future__ import annotations

import numpy as np

from walkback.core.measurements import Array, Measurements
from walkback.judge.number import Number

MATRICES = ("w1", "w2")
"""The two matrices of a block of a residual MLP."""


def branch_growth(first: Measurements, last: Measurements) -> Number:
    """Mean norm of the block outputs f_l(h_l), divided by that at initialisation, on the same samples."""
    above, below = last.get("branch_norm"), first.get("branch_norm")
    if above is None or below is None:
        return Number.missing("block outputs were not measured")
    return _mean(above.mean(axis=1), below.mean(axis=1))


def block_move(m: Measurements) -> Number:
    """|θ - θ_0| / |θ_0| of a block, all its parameters as one vector."""
    names = _leaves(m)
    if isinstance(names, Number):
        return names
    rows = [[index for index, name in enumerate(names) if name.startswith(f"blocks.{b}.")] for b in range(m.depth)]

    def sizes(key: str) -> Array:
        return np.array([np.linalg.norm(m.arrays[key][row]) for row in rows])

    return _mean(sizes("weight_moved"), sizes("weight_first"))


def matrix_move(m: Measurements) -> Number:
    """|W - W_0| / |W_0| of every w1 and w2."""
    found = _matrices(m)
    if isinstance(found, Number):
        return found
    every = [index for pair in found for index in pair]
    return _mean(m.arrays["weight_moved"][every], m.arrays["weight_first"][every])


def matrix_product(m: Measurements) -> Number:
    """|w1| |w2| of a block."""
    found = _matrices(m)
    if isinstance(found, Number):
        return found
    products = np.array([m.arrays["weight_last"][pair].prod() for pair in found])
    return _mean(products, np.ones_like(products))


def _leaves(m: Measurements) -> list[str] | Number:
    names = m.facts.get("leaves")
    if names is None or m.get("weight_moved") is None:
        return Number.missing("the size of its weights was not measured")
    return list(names)


def _matrices(m: Measurements) -> list[list[int]] | Number:
    """The indices of each block's w1 and w2 among the leaves."""
    names = _leaves(m)
    if isinstance(names, Number):
        return names
    wanted = [[f"blocks.{block}.{matrix}.weight" for matrix in MATRICES] for block in range(m.depth)]
    if not all(name in names for pair in wanted for name in pair):
        return Number.missing("its blocks are not made of w1 and w2")
    return [[names.index(name) for name in pair] for pair in wanted]


def _mean(above: Array, below: Array) -> Number:
    """The geometric mean of the ratios; zero if one of them is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return Number.of(float(np.exp(np.log(above / below).mean())))
