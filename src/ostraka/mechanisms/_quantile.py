"""Noise as a real number whose bits are drawn on demand, with intervals in decimal arithmetic.

A :class:`Noise` is a sign and the first bits of a uniform number p: its size is the number that the noise
exceeds with probability p, which lies between two ends that more bits bring together. The ends are proved:
docs/floating-point.md.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GAUSSIAN", "LAPLACE", "Noise", "density_and_quantile", "enclosure", "upper_tail"]

GAUSSIAN, LAPLACE = 0, 1  # as in mechanisms.outcome, which loads compiled code

_SPARE = 30  # digits beyond those of the bits
_LOST = 10  # of them, more than rounding takes
_MOST_BITS = 1024  # real generators stay below 200; one that repeats itself never ends
_HALF = Decimal("0.5")

End = Fraction | float  # a float only where it is infinite


class Noise:
    """A draw of N(0, 1) or of the Laplace law of scale 1, to as many bits as were asked for.

    Parameters
    ----------
    kind : GAUSSIAN or LAPLACE
    word : int
        The first ``step`` bits: the sign, and the first bits of p.
    more : callable() -> int
        The next ``step`` bits.
    step : int
        Bits at a time.
    sign : {1, 0}
        Whether the first bit is the sign; 0: the size alone is drawn.
    """

    def __init__(
        self, kind: int, word: int, more: Callable[[], int], *, step: int = 64, sign: int = 1
    ) -> None:
        self._kind, self._more, self._step = kind, more, step
        self._bits = step - sign
        self._negative = bool(word >> self._bits)
        self._number = word & ((1 << self._bits) - 1)

    def refine(self) -> None:
        """Draw more bits."""
        if self._bits > _MOST_BITS:
            raise RuntimeError("noise is undecided after 1,024 bits: the generator repeats itself")
        self._number = (self._number << self._step) | self._more()
        self._bits += self._step

    def ends(self) -> tuple[End, End]:
        """Two numbers between which the draw lies."""
        low, high = enclosure(self._kind, self._number, self._bits)
        return (-high, -low) if self._negative else (low, high)


@lru_cache(maxsize=4096)
def enclosure(kind: int, number: int, bits: int) -> tuple[End, End]:
    """Return an interval for noise whose tail probability is between ``number`` and ``number + 1`` units.

    p is the probability of more, on one side; a unit is 2^-(bits + 1).
    """
    with localcontext(_context(bits)) as context:
        unit = Decimal(2) ** -(bits + 1)
        small, large = number * unit, (number + 1) * unit
        doubt = Decimal(10) ** (_LOST - context.prec)
        find = _normal_ends if kind == GAUSSIAN else _laplace_ends
        low, high = find(small, large, doubt)
    return Fraction(max(low, Decimal(0))), Fraction(high) if high.is_finite() else math.inf


def upper_tail(z: Decimal) -> tuple[Decimal, Decimal]:
    """P[N(0, 1) > z] and the density at z >= 0, within 10^(_LOST - precision) of the current context.

    1/2 - density(z) (z + z^3/3 + z^5/15 + ...): every term is positive, so nothing cancels before the end.
    """
    digits = _precision()
    square, term, total, k = z * z, z, z, 1
    least, fewest = z.scaleb(-digits), int(square)  # from there on, terms halve at least
    while term > least or k <= fewest:
        term = term * square / (2 * k + 1)
        total += term
        k += 1
    density = (-square / 2).exp() / _root_of_two_pi(digits)
    return _HALF - density * total, density


def density_and_quantile(tail: Decimal) -> tuple[Decimal, Decimal]:
    """Return z and its density, where P[N(0, 1) > z] is about ``tail``; callers check the error."""
    start = float(tail)
    z = Decimal(-NormalDist().inv_cdf(start)) if start > 1e-300 else (-2 * tail.ln()).sqrt()
    near = Decimal(10) ** (_LOST - _precision())
    while True:
        z = max(z, Decimal(0))
        reached, density = upper_tail(z)
        step = (reached - tail) / density
        z += step
        # Newton's method doubles the digits; the tail is convex, so that it cannot run away
        if abs(step) <= near / density or abs(step) ** 2 * (1 + z) <= near:
            return density, z


def _normal_ends(small: Decimal, large: Decimal, doubt: Decimal) -> tuple[Decimal, Decimal]:
    """Return a point with a tail certainly above ``large``, and one with a tail certainly below ``small``."""
    density, middle = density_and_quantile((small + large) / 2)
    width = (large - small + 4 * doubt) / density
    low, high = middle - width, middle + width
    while low > 0 and not upper_tail(low)[0] - doubt >= large:
        low -= width
        width *= 2
    while not upper_tail(high)[0] + doubt <= small:
        if small == 0:
            return low, Decimal("Infinity")
        high += width
        width *= 2
    return low, high


def _laplace_ends(small: Decimal, large: Decimal, doubt: Decimal) -> tuple[Decimal, Decimal]:
    """The size of Laplace noise is -log(2 p); Decimal's logarithm is correctly rounded."""
    low = -(2 * large).ln()
    high = -(2 * small).ln() if small else Decimal("Infinity")
    return low - doubt * (1 + low), high + doubt * (1 + high)


def _context(bits: int) -> Context:
    return Context(prec=math.ceil(0.30103 * (bits + 1)) + _SPARE, rounding=ROUND_HALF_EVEN)


def _precision() -> int:
    return getcontext().prec


@lru_cache(maxsize=64)
def _root_of_two_pi(digits: int) -> Decimal:
    """Compute the root of 2 pi by Machin's formula in whole numbers."""
    one: int = 10 ** (digits + 10)

    def arctan_of_inverse(x: int) -> int:
        total = term = one // x
        k, square = 1, x * x
        while term:
            term //= -square
            total += term // (2 * k + 1)
            k += 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    with localcontext(Context(prec=digits + 5, rounding=ROUND_HALF_EVEN)):
        root: Decimal = (Decimal(2 * pi) / one).sqrt()
        return root
