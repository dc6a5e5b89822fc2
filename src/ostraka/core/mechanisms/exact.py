"""Noise and answers that are drawn exactly: rounding errors never change either.

Noise is whole numbers, or real numbers whose bits are drawn on demand. The discrete Gaussian has a Gaussian
shift which dominates it. A :class:`Noise` is a sign and the first bits of a uniform number p: its size is the
number that the noise exceeds with probability p, which lies between two ends that more bits bring together.
The ends are proved: docs/record/floating-point.md. Laplace and Gaussian noise on a grid has a known law and
no low-order bits.

The noise of an answer comes from 64 random bits for each count, as a float and a bound on its error. Where
the bounds of several counts overlap, about once in 2^40 answers, more bits are drawn until they do not. So
every outcome has exactly the probability that real-valued noise gives it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from decimal import ROUND_HALF_EVEN, Context, Decimal, getcontext, localcontext
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri_exp

from ostraka.core.numeric import up
from ostraka.core.randomness import further, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

End = Fraction | float  # of the place of a noise; a float only where it is infinite
GAUSSIAN, LAPLACE = 0, 1  # as in kernels.outcome, which is compiled code

# of the discrete Gaussian
_BITS = 63  # drawn at a time
# Standard deviations within which shifts are compared: from probabilities, and beyond from their logarithms.
_NEAR, _FURTHEST = 11.0, 36.0

# of real numbers whose bits are drawn on demand
_SPARE = 30  # digits beyond those of the bits
_LOST = 10  # of them, more than rounding takes
_MOST_BITS = 1024  # real generators stay below 200; one that repeats itself never ends
_HALF = Decimal("0.5")

# of whole weights, and of noise on a grid
# Logarithms of probabilities are this close to the ideal ones, a digit less: docs/record/floating-point.md.
EXACTNESS = 2.0**-40
_ALL = 2**63
_WHOLE_BITS = 62
_WHOLE_FURTHEST = 9.3  # standard deviations; beyond lies less than 2^-65 of a normal law
_CELLS = 512  # in one scale or standard deviation, at least
_WHOLE_NEAR = 2**29  # numbers of 63 bits; the edges of tables err by less than 2^23
_LEGENDRE = np.polynomial.legendre.leggauss(5)

# of answers: the largest count, and counts above a threshold
_EXTREME = 1e150  # beyond, noise or counts may leave the range of float64
_ROUNDING = 2.0**-50  # as in kernels.draws


def discrete_gaussian(
    sigma: float, shape: tuple[int, ...], *, rng: np.random.Generator, bits: int = _BITS
) -> np.ndarray:
    """Whole numbers with probability proportional to exp(-k² / 2 sigma²), exactly; int64.

    The distribution function is inverted at a uniform number. Where the first ``bits`` bits of both do
    not decide, more bits are drawn and computed. That takes tables, no rejections and no floating point.
    """
    table = _table(sigma, bits)
    first = rng.integers(0, 2**bits, size=math.prod(shape), dtype=np.int64)
    place = np.searchsorted(table, first)
    numbers = place - len(table) // 2
    for at in np.flatnonzero(table[place] == first):
        number, n_bits = int(first[at]), bits
        while True:  # more bits, until they decide the value
            number = (number << bits) + int(rng.integers(0, 2**bits, dtype=np.int64))
            n_bits += bits
            half = _lower_half(sigma, n_bits)
            longer = [*half, *((1 << n_bits) - 1 - value for value in reversed(half))]
            found = bisect_left(longer, number)
            if longer[found] != number:
                break
        numbers[at] = found - len(half)
    return np.asarray(numbers.reshape(shape), dtype=np.int64)


@lru_cache(maxsize=256)
def unit_shift(sigma: float, *, reach: int = 1) -> float:
    """A mu, rounded up, such that discrete Gaussians a apart are (a mu)-GDP for every integer a <= ``reach``.

    That is up to :func:`tail_mass`. Write P[X >= t] = P[N(0, 1) >= z(t)]. The best tests ask whether X >= t,
    so it suffices that z(t) - z(t - 1) <= mu for every t up to 36 sigma + reach: docs/noisy-counts.md.
    """
    n = math.ceil(_NEAR * sigma) + reach
    weights = np.exp(-((np.arange(n + math.ceil(5 * sigma) + 60) / sigma) ** 2) / 2)
    tails = np.cumsum(weights[::-1])[::-1]
    total = 2 * tails[0] - weights[0]
    with np.errstate(divide="ignore"):
        z = -ndtri_exp(np.log(tails[1 : n + 1] / total))
    steps = np.diff(z, prepend=-z[0])
    last = math.ceil(_FURTHEST * sigma) + reach
    log_weights = -((np.arange(n, last + math.ceil(5 * sigma) + 60) / sigma) ** 2) / 2
    log_tails = np.logaddexp.accumulate(log_weights[::-1])[::-1][: last - n + 1]
    tail_steps = np.diff(-ndtri_exp(log_tails - math.log(total)))
    # sums of n terms err by less than n 2^-53 of their size, and z by less than 1.3 times that; beyond 11
    # sigma, logarithms err by 2^-43 a term of about sigma / 11 that count, and z by an eleventh of that
    return up(float(max(steps.max(), tail_steps.max())) + 4 * len(weights) * 2.0**-53 + 1e-13)


def tail_mass(sigma: float) -> float:
    """A bound on the probability of a draw further than 36 standard deviations from 0."""
    # a sum of a decreasing function is at most its first term and its integral; the normaliser is above 1
    furthest = _FURTHEST * sigma
    return 2 * math.exp(-(_FURTHEST**2) / 2) * (1 + sigma**2 / furthest)


def log_normaliser(sigma: float) -> float:
    """Log of the sum of exp(-k² / 2 sigma²) over all integers k."""
    reach = np.arange(1, math.ceil(40 * sigma) + 2)
    return math.log1p(2 * float(np.exp(-((reach / sigma) ** 2) / 2).sum()))


@lru_cache(maxsize=32)
def _table(sigma: float, bits: int) -> np.ndarray:
    """Return the distribution function at -n, …, n - 1, as multiples of 2^-bits, rounded down."""
    half = np.array(_lower_half(sigma, bits), dtype=np.int64)
    table = np.concatenate([half, (2**bits - 1) - half[::-1]])
    table.setflags(write=False)
    return table


def _lower_half(sigma: float, bits: int) -> list[int]:
    """Return the distribution function at -n, …, -1; -n is the first place where it rounds down to 0."""
    digits, floors = math.ceil(0.302 * bits), list[int]()
    weights: list[Decimal] = []
    while not floors or len(floors) < len(weights):  # again with more digits where these do not decide all
        digits, floors, weights = digits + 30, [], []
        with localcontext() as context:
            context.prec = digits
            step = (-1 / (2 * Decimal(sigma) ** 2)).exp()
            weight, ratio, square = Decimal(1), step, step * step
            while weight > Decimal(10) ** -digits:
                weights.append(weight)
                weight, ratio = weight * ratio, ratio * square
            scale = Decimal(2**bits) / (2 * sum(weights) - 1)
            # n steps of recurrence lose n² units of the last place; n is below 10^7
            doubt, below = Decimal(10) ** (16 - digits) * 2**bits, Decimal(0)
            for weight in reversed(weights):  # floors of 2^bits P[X < -k], k from high to 0
                floor = int(below - doubt) if below > doubt else 0
                if int(below + doubt) != floor:
                    break
                floors.append(floor)
                below += weight * scale
    first = next((k for k, floor in enumerate(floors) if floor), len(floors)) - 1
    return floors[max(first, 0) :]


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
        self, kind: int, word: int, source: Callable[[], int], *, step: int = 64, sign: int = 1
    ) -> None:
        self._kind, self._more, self._step = kind, source, step
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
    with localcontext(
        Context(prec=math.ceil(0.30103 * (bits + 1)) + _SPARE, rounding=ROUND_HALF_EVEN)
    ) as context:
        unit = Decimal(2) ** -(bits + 1)
        small, large = number * unit, (number + 1) * unit
        doubt = Decimal(10) ** (_LOST - context.prec)
        if kind == GAUSSIAN:
            # a point with a tail certainly above large, and one with a tail certainly below small
            density, middle = density_and_quantile((small + large) / 2)
            width = (large - small + 4 * doubt) / density
            low, high = middle - width, middle + width
            while low > 0 and not upper_tail(low)[0] - doubt >= large:
                low -= width
                width *= 2
            while not upper_tail(high)[0] + doubt <= small:
                if small == 0:
                    high = Decimal("Infinity")
                    break
                high += width
                width *= 2
        else:  # the size of Laplace noise is -log(2 p); Decimal's logarithm is correctly rounded
            low = -(2 * large).ln()
            high = -(2 * small).ln() if small else Decimal("Infinity")
            low, high = low - doubt * (1 + low), high + doubt * (1 + high)
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


def _precision() -> int:
    return getcontext().prec


@lru_cache(maxsize=64)
def _root_of_two_pi(digits: int) -> Decimal:
    """Compute the root of 2 pi by Machin's formula in whole numbers."""
    unit: int = 10 ** (digits + 10)

    def arctan_of_inverse(x: int) -> int:
        total = term = unit // x
        k, square = 1, x * x
        while term:
            term //= -square
            total += term // (2 * k + 1)
            k += 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    with localcontext(Context(prec=digits + 5, rounding=ROUND_HALF_EVEN)):
        root: Decimal = (Decimal(2 * pi) / unit).sqrt()
        return root


def weights(epsilon: float, n_kept: int) -> tuple[int, int]:
    """Return whole weights of the true class and of each other one; their ratio never exceeds e^epsilon."""
    others = int(2.0**_WHOLE_BITS / (math.exp(epsilon) + n_kept))
    keep = int(others * math.exp(epsilon) * (1 - 2.0**-49))  # four roundings, of 2^-53 to 2^-52, below it
    return max(keep, others), others


def grain(spread: float) -> float:
    """Return a power of two, at most 1, at least 512 of which fit into ``spread`` unless that is large."""
    return float(2.0 ** min(0, math.floor(math.log2(spread / _CELLS))))


def uniform(shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers from 0 to 2^63 - 1."""
    return rng.integers(0, _ALL, size=shape, dtype=np.int64)


def geometric(rate: float, shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers that reach n with probability e^(-rate n): their binary digits are independent."""
    n_digits = max(0, math.ceil(-math.log2(rate)))
    numbers = np.zeros(shape, dtype=np.int64)
    for digit in range(n_digits):
        chance = 1 / (1 + math.exp(rate * 2**digit))
        numbers |= (uniform(shape, rng=rng) < _threshold(chance)).astype(np.int64) << digit
    flat, going = numbers.reshape(-1), np.arange(numbers.size)
    again = _threshold(math.exp(-rate * 2**n_digits))
    while going.size:
        going = going[uniform(going.shape, rng=rng) < again]
        flat[going] += 2**n_digits
    return numbers


def half_normal(sigma: float, shape: tuple[int, ...], *, rng: np.random.Generator) -> np.ndarray:
    """Draw the cell of width 1 that holds the absolute value of N(0, sigma²); cells count from 0.

    Exactly: a number near an edge of the table, or beyond its last, is settled in multi-precision.
    """
    edges, numbers = _edges(sigma), uniform(shape, rng=rng)
    cells = np.searchsorted(edges[1:-1], numbers, side="right")
    near = (numbers - edges[cells] < _WHOLE_NEAR) | (edges[cells + 1] - numbers <= _WHOLE_NEAR)
    for at in zip(*np.nonzero(near), strict=True):
        first = _ALL - 1 - int(numbers[at])
        noise = Noise(GAUSSIAN, first, lambda: int(uniform((1,), rng=rng)[0]), step=_WHOLE_BITS + 1, sign=0)
        while True:
            low, high = (end * Fraction(sigma) for end in noise.ends())
            if math.isfinite(high) and math.floor(low) == math.floor(high):
                break
            noise.refine()
        cells[at] = math.floor(low)
    return np.asarray(cells)


@lru_cache(maxsize=16)
def _edges(sigma: float) -> np.ndarray:
    """Return, for each cell between two edges, about the first of 2^63 equally likely numbers beyond it."""
    inner = np.minimum(np.cumsum(_cells(sigma).astype(np.uint64)), np.uint64(_ALL - 1))[:-1]
    edges = np.concatenate([[-_WHOLE_NEAR], inner.astype(np.int64), [_ALL - 1]])
    edges.setflags(write=False)
    return edges


def _cells(sigma: float) -> np.ndarray:
    """Return how many of 2^63 equally likely numbers fall into each cell; the sum is 2^63."""
    middle = (np.arange(math.ceil(_WHOLE_FURTHEST * sigma)) + 0.5)[:, None]
    z = (middle + _LEGENDRE[0] / 2) / sigma
    mass = (np.exp(-z * z / 2) * _LEGENDRE[1]).sum(axis=1) / (math.sqrt(2 * math.pi) * sigma)
    cells: np.ndarray = np.rint(mass * _ALL).astype(np.int64)
    cells[0] += _ALL - sum(cells.tolist())
    return cells


def _threshold(chance: float) -> int:
    return round(chance * _ALL)


def largest(counts: np.ndarray, *, kind: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """The class whose count is largest after noise on every count; int64 of shape (n_queries,)."""
    from ostraka.core.kernels import draws  # noqa: PLC0415  (compiled code, loaded when needed)

    counts, bits = counts.copy(), words(rng, counts.shape)  # kernels are compiled for arrays that may change
    noise = _noise(bits, kind)
    winners, sure = np.empty(len(counts), dtype=np.int64), np.empty(len(counts), dtype=np.bool_)
    draws.largest(counts, noise, scale, _doubt(scale), winners, sure)
    if sure.all():
        return winners
    for row in np.flatnonzero(~sure).tolist():
        # the classes that may win: those with unknown noise, and those which no other certainly beats
        going = np.arange(counts.shape[1])
        if scale < _EXTREME and np.abs(counts[row]).max() < _EXTREME:
            gap = counts[row] - counts[row].max()
            y, e = gap + scale * noise[row], _doubt(scale) - _ROUNDING * gap
            going = np.flatnonzero(np.isnan(y) | (y + e >= np.fmax.reduce(y - e, initial=-math.inf)))
        noises = _noises(kind, bits[row, going].tolist(), further(rng, row))
        winners[row] = going[settled_largest(counts[row, going].tolist(), scale, noises)]
    return winners


def reaches(counts: np.ndarray, at: float, *, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Whether any count reaches ``at`` after Gaussian noise on every one; bool of shape (n_queries,)."""
    from ostraka.core.kernels import draws  # noqa: PLC0415

    counts, bits = counts.copy(), words(rng, counts.shape)
    noise = _noise(bits, GAUSSIAN)
    passes, sure = np.empty(len(counts), dtype=np.bool_), np.empty(len(counts), dtype=np.bool_)
    draws.above(counts, noise, scale, _doubt(scale), at, passes, sure)
    if sure.all():
        return passes
    for row in np.flatnonzero(~sure).tolist():
        # the counts that may reach the threshold: those which are not certainly below it
        going, gap = np.arange(counts.shape[1]), counts[row] - at
        if scale < _EXTREME and np.abs(gap).max() < _EXTREME:
            y, e = gap + scale * noise[row], _doubt(scale) + _ROUNDING * np.abs(gap)
            going = np.flatnonzero(~(y < -e))
        noises = _noises(GAUSSIAN, bits[row, going].tolist(), further(rng, row))
        passes[row] = settled_reaches(counts[row, going].tolist(), at, scale, noises)
    return passes


def noisy_floor(place: Fraction, *, scale: Fraction, grid: Fraction, rng: np.random.Generator) -> int:
    """Return the largest whole n with n grid <= place + Gaussian noise; only n is released."""
    (noise,) = _noises(GAUSSIAN, words(rng, (1,)).tolist(), further(rng, 0))
    while True:
        low, high = (
            (math.floor(end / grid) if math.isfinite(end) else None) for end in _ends(place, scale, noise)
        )
        if low == high and low is not None:
            return low
        noise.refine()


def settled_largest(counts: Sequence[float], scale: float, noises: Sequence[Noise]) -> int:
    """Return the class of the largest noisy count; draw more bits until it is decided."""
    places, exact_scale = [Fraction(count) for count in counts], Fraction(scale)
    going = list(range(len(counts)))
    while True:
        ends = {k: _ends(places[k], exact_scale, noises[k]) for k in going}
        bar = max(low for low, _ in ends.values())
        going = [k for k, (_, high) in ends.items() if high >= bar]
        if len(going) == 1:
            return going[0]
        for k in going:
            noises[k].refine()


def settled_reaches(counts: Sequence[float], at: float, scale: float, noises: Sequence[Noise]) -> bool:
    """Return whether any noisy count reaches ``at``; draw more bits until it is decided."""
    going = [(Fraction(count) - Fraction(at), noise) for count, noise in zip(counts, noises, strict=True)]
    while going:
        ends = [_ends(place, Fraction(scale), noise) for place, noise in going]
        if any(low >= 0 for low, _ in ends):
            return True
        going = [count for count, (_, high) in zip(going, ends, strict=True) if high >= 0]
        for _, noise in going:
            noise.refine()
    return False


def _noise(bits: np.ndarray, kind: int) -> np.ndarray:
    from ostraka.core.kernels import draws  # noqa: PLC0415

    noise = np.empty(bits.shape)
    draws.sizes(bits.ravel(), draws.table(kind), noise.ravel())  # views
    return noise


def _doubt(scale: float) -> float:
    """Bound the error of scale times noise: twice the proved bound, plus the loss of subnormal numbers."""
    return max(scale * 2.0**-40, 1e-290) if scale < _EXTREME else math.inf


def _noises(kind: int, bits: Sequence[int], source: Callable[[], int]) -> list[Noise]:
    return [Noise(kind, word, source) for word in bits]


def _ends(place: Fraction, scale: Fraction, noise: Noise) -> tuple[End, End]:
    low, high = noise.ends()
    return place + scale * low, place + scale * high
