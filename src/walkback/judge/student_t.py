"""Student's t without scipy: its distribution, its quantiles, and the power of the t test; quantiles of the normal and
the beta distribution.

scipy is no dependency (importing its statistics takes seconds), and these few functions are short: the incomplete beta
function by its continued fraction, quantiles by bisection, and power by integrating the normal tail over the spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np


def cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with `df` degrees of freedom."""
    tail = 0.5 * _incomplete_beta(df / (df + t * t), df / 2, 0.5)
    return tail if t < 0 else 1 - tail


def two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|); accurate in the far tail, where 1 - cdf would lose all digits."""
    return _incomplete_beta(df / (df + t * t), df / 2, 0.5)


def upper(t: float, df: float) -> float:
    """P(T >= t), accurate in the far tail."""
    return two_sided(t, df) / 2 if t >= 0 else 1 - two_sided(t, df) / 2


@cache
def quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p."""
    assert 0 < p < 1
    assert df > 0
    if p < 0.5:
        return -quantile(1 - p, df)
    low, high = 0.0, 1.0
    while cdf(high, df) < p:
        low, high = high, 2 * high
    return smallest_where(lambda t: cdf(t, df) >= p, low, high)


def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p."""
    return smallest_where(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)) >= p, -40.0, 40.0)


def normal_two_sided(z: float) -> float:
    """P(|Z| >= |z|)."""
    return math.erfc(abs(z) / math.sqrt(2))


def normal_upper(z: float) -> float:
    """P(Z >= z), accurate in the far tail."""
    return math.erfc(z / math.sqrt(2)) / 2


def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with P(X <= x) = p for the beta distribution."""
    return smallest_where(lambda x: _incomplete_beta(x, a, b) >= p, 0.0, 1.0)


@cache
def detectable_effect(n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest true mean, in standard deviations, that a two-sided t test of n values detects with this power."""
    assert n >= 2
    df = n - 1
    critical = quantile(1 - alpha / 2, df)
    high = 1.0
    while _power(high, df, critical) < power:
        high *= 2
    return smallest_where(lambda shift: _power(shift, df, critical) >= power, 0.0, high) / math.sqrt(n)


def smallest_where(reached: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest value for which the monotone condition `reached` holds, to the precision of a float."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _power(shift: float, df: int, critical: float) -> float:
    """P(|T| > critical) for the noncentral t with this shift: the normal tail, averaged over the estimated spread.

    The spread s = sqrt(chi2 / df) has the density 2 (df/2)^(df/2) / Gamma(df/2) s^(df-1) exp(-df s^2 / 2).
    """
    reach = 12 / math.sqrt(2 * df)
    low, high = max(0.0, 1 - reach), 1 + reach
    nodes, weights = _gauss(200)
    total = 0.0
    constant = math.log(2) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    for node, weight in zip(nodes, weights, strict=True):
        s = low + (high - low) * (node + 1) / 2
        density = math.exp(constant + (df - 1) * math.log(s) - df * s * s / 2)
        upper = 0.5 * math.erfc((critical * s - shift) / math.sqrt(2))
        lower = 0.5 * math.erfc((critical * s + shift) / math.sqrt(2))
        total += weight * density * (upper + lower)
    return total * (high - low) / 2


@cache
def _gauss(points: int) -> tuple[list[float], list[float]]:
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return nodes.tolist(), weights.tolist()


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    # The fraction converges fast on one side only; the other side is computed by symmetry.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated from the front (Lentz's method)."""
    tiny = 1e-300
    c = 1.0
    d = 1 / _nonzero(1 - (a + b) * x / (a + 1), tiny)
    result = d
    # It converges within a few times sqrt(max(a, b)) terms.
    for m in range(1, 500 + 10 * math.isqrt(int(max(a, b)))):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d, tiny)
            c = _nonzero(1 + term / c, tiny)
            step = c * d
            result *= step
        if abs(step - 1) < 1e-15:
            break
    return result


def _nonzero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
