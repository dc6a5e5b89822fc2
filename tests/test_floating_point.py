"""How far the noise that is drawn is from the noise that is priced: the figures of docs/floating-point.md.

The tables of numpy's ziggurat are read out of the numpy that is installed, by feeding it chosen random words,
and compared with the normal law in multi-precision arithmetic.
"""

import functools
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from randomgen import ChaCha, UserBitGenerator

from ostraka import GNMax, LNMax, Threshold
from ostraka.randomness import os_keyed

U = 2.0**-53
CELLS = 2**52  # a ziggurat word holds a layer (8 bits), a sign and a position (52 bits)
R = mp.mpf("3.6541528853610087963519472518")  # where the tail begins
RHO, ATOM = 2.0**-43, 2.0**-53  # |implemented cdf - normal cdf| <= RHO * tail + ATOM, everywhere
N_CLASSES = 1_000


class Scripted:
    """numpy's Generator on words of our choice; ``used`` says how many the last draw took."""

    def __init__(self):
        self.words, self.used = iter(()), 0
        self.generator = np.random.Generator(UserBitGenerator(self._next, 64))

    def _next(self, _state):
        self.used += 1
        return next(self.words, 1 << 63)

    def normal(self, *words):
        self.words, self.used = iter(words), 0
        return float(self.generator.standard_normal())

    def laplace(self, *words):
        self.words, self.used = iter(words), 0
        return float(self.generator.laplace())


def word(layer, cell, *, negative=False):
    return layer | negative << 8 | cell << 9


def unit(value):
    """The word from which numpy makes the double ``value * 2**-53``."""
    return value << 11


def first_false(holds, low, high):
    """Smallest integer in [low, high] where a condition, true at first, no longer holds."""
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if holds(middle) else (low, middle)
    return low


@functools.cache
def ziggurat():
    """Of each layer: width of a cell, cells returned at once, acceptance at both ends of the wedge."""
    source = Scripted()

    def at_once(layer, cell):
        source.normal(word(layer, cell))
        return source.used == 1

    def accepted(layer, cell, u):
        source.normal(word(layer, cell), unit(u))
        return source.used == 2

    widths = [source.normal(word(layer, 1), 0) for layer in range(256)]
    cores = [first_false(lambda cell, n=layer: at_once(n, cell), 0, CELLS) for layer in range(256)]
    wedges = [(0.0, 0.0)] + [
        tuple(
            first_false(lambda u, n=layer, c=cell: accepted(n, c, u), 0, 2**53) * U
            for cell in (cores[layer], CELLS - 1)
        )
        for layer in range(1, 256)
    ]
    return widths, cores, wedges


def tail(t):
    """1 - Phi(t)."""
    return mp.erfc(t / mp.sqrt(2)) / 2


def height(x):
    return mp.exp(-x * x / 2)


def deviation(widths, cores, wedges):
    """Bound on the distance between the laws of |x| above t, relative to P(|x| > t): worst t in [0, R).

    One attempt of the ideal ziggurat returns |x| near x with density height(x) / (256 V). Between two
    breakpoints the difference of densities is A + B height(x): monotone, so below its larger end.
    The grid, the rounding of acceptances and the chance to enter the tail come on top. All times 256.
    """
    area = R * height(R) + mp.sqrt(2 * mp.pi) * tail(R)
    ends = [mp.mpf(width) * CELLS for width in widths]
    cuts = [mp.mpf(width) * core for width, core in zip(widths, cores, strict=True)]
    lines = [(mp.mpf(0), mp.mpf(0))] + [wedge_line(cuts[i], ends[i], wedges[i]) for i in range(1, 256)]

    spread = [rounding_of(i, cores[i], ends) for i in range(1, 256)]

    def difference(x, body, inside, wedge):
        shares = [(lines[i][0] + lines[i][1] * height(x), 1 / ends[i]) for i in wedge]
        density = inside + sum(share * each for share, each in shares)
        clipped = sum(max(0, share - 1, -share) * each for share, each in shares)
        return abs(density - body * height(x) / area) + clipped

    above = abs((1 - mp.mpf(cores[0]) / CELLS) - mp.sqrt(2 * mp.pi) * tail(R) / area)
    worst = mp.mpf(0)
    for left, right in reversed(list(pairwise(sorted({mp.mpf(0), R, *ends[1:], *cuts})))):
        inside = sum(1 / end for cut, end in zip(cuts, ends, strict=True) if cut > left)
        wedge = [i for i in range(1, 256) if cuts[i] <= left < ends[i]]
        above += (right - left) * max(difference(x, left < R, inside, wedge) for x in (left, right))
        rounding = sum((each for each, end in zip(spread, ends[1:], strict=True) if end > left), 6 * U)
        mass = mp.sqrt(2 * mp.pi) * tail(min(right, R)) / area
        worst = max(worst, (above + rounding) / mass)
    return float(worst)


def wedge_line(cut, end, chances):
    """Acceptance in a wedge as intercept and slope in height(x), through its chances at both ends."""
    high, low = height(cut), height(end * (1 - mp.mpf(2) ** -52))
    slope = (chances[0] - chances[1]) / (high - low)
    return chances[0] - slope * high, slope


def rounding_of(i, core, ends):
    """What the grid and rounding add in one layer, each of them at its worst.

    Three cells for the grid of x (its threshold, the rounding of cell * width, acceptance within a
    cell); and in ``(f[i-1] - f[i]) * u + f[i] < exp(-x * x / 2)``, with exp good to one ulp, the
    rounding of both sides, once where it is used and once where it was measured, and the grid of u.
    """
    above, below = height(ends[i - 1] if i > 1 else mp.mpf(0)), height(ends[i])
    sides = (2 * (above - below) + 3 * above + mp.mpf("0.37")) * U
    return 6 * U + (1 - mp.mpf(core) / CELLS) * (2 * sides / (above - below) + 3 * U)


def slack_of_argmax(n_classes, *, relative, absolute, rounding):
    """Distance of the outcome laws of an argmax: docs/floating-point.md, 'From noise to answers'."""
    once = relative + rounding
    return (once + n_classes * absolute) / (1 - n_classes * once)


def test_numpys_normal_law_is_as_close_as_the_page_says():
    with mp.workprec(120):
        assert deviation(*ziggurat()) + 2.0**-48 <= RHO  # 2^-48 covers the division by the mass of an attempt


def test_one_wrong_table_entry_is_noticed():
    widths, cores, wedges = ziggurat()
    with mp.workprec(120):
        assert deviation([*widths[:100], widths[100] * (1 + 2.0**-30), *widths[101:]], cores, wedges) > RHO
        assert deviation(widths, [*cores[:100], cores[100] - 2**22, *cores[101:]], wedges) > RHO
        assert deviation(widths, cores, [*wedges[:100], (1.0, 2.0**-10), *wedges[101:]]) > RHO


def test_the_sign_of_the_tail_is_even_enough():
    # the sign of a tail draw is a bit of the cell; over the cells that lead there it is not quite even
    low = ziggurat()[1][0] % 512
    uneven = min(low, 512 - low)
    assert uneven > 0
    with mp.workprec(120):
        mass = mp.sqrt(mp.pi / 2) / (R * height(R) + mp.sqrt(2 * mp.pi) * tail(R))
        # half the difference between plus and minus; 2^-60 is the tail's own rounding
        assert uneven * 2.0**-52 / mass / 2 + 2.0**-60 <= ATOM


@pytest.mark.parametrize("u", [0, 1, 2**30, 2**51, 2**53 - 2**40])
def test_the_tail_is_an_exponential_beyond_r(u):
    enter = word(0, CELLS - 1 - 256)  # a cell whose sign bit is 0
    got = Scripted().normal(enter, unit(u), unit(2**53 - 1))  # the second number accepts whatever it can
    want = R - mp.log1p(-mp.mpf(u) * U) / R
    assert got == pytest.approx(float(want), rel=8 * U)


def test_a_tail_draw_that_is_not_accepted_starts_again():
    source = Scripted()
    enter = word(0, CELLS - 1 - 256)
    assert source.normal(enter, unit(2**52), unit(0), unit(0), unit(2**52)) == pytest.approx(
        float(R), rel=8 * U
    )
    assert source.used == 5


@pytest.mark.parametrize("u", [1, 2, 3, 2**51, 2**52 - 1, 2**52, 2**52 + 1, 2**53 - 3, 2**53 - 2, 2**53 - 1])
def test_laplace_noise_is_the_logarithm_of_a_uniform_to_the_last_bits(u):
    got = Scripted().laplace(unit(u))
    w = 2 * min(u, 2**53 - u) * mp.mpf(2) ** -53
    doubt = U if u >= 2**52 else 0  # 2 - u rounds once in the upper half
    low, high = mp.log(w - doubt if w > doubt else w / 2), mp.log(min(mp.mpf(1), w + doubt))
    magnitude = abs(mp.mpf(got))
    assert (1 - 4 * U) * -high <= magnitude <= (1 + 4 * U) * -low
    assert got == 0 or (got > 0) == (u > 2**52)


def test_laplace_noise_draws_again_on_zero():
    source = Scripted()
    assert source.laplace(unit(0), unit(2**51)) == pytest.approx(float(mp.log(0.5)))
    assert source.used == 2


def test_slack_covers_a_thousand_classes():
    # rounding: 15 * 42 * 1.03 U for normal noise within 14 sigma, 184 U for Laplace noise within 37 scales
    normal = slack_of_argmax(N_CLASSES, relative=RHO, absolute=ATOM, rounding=650 * U)
    laplace = slack_of_argmax(N_CLASSES, relative=0.0, absolute=2 * U, rounding=190 * U)
    for mechanism, distance in [
        (GNMax(sigma=40.0), normal),
        (LNMax(scale=20.0), laplace),
        (Threshold(at=200.0, sigma=150.0), normal),
    ]:
        assert distance < mechanism.curve().slack <= 4 * distance


def test_release_noise_is_chacha20_of_the_key():
    key = bytes(range(32))
    drawn = ChaCha(key=int.from_bytes(key, "little"), rounds=20).random_raw(512).astype("<u8").tobytes()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(len(drawn)))
    assert drawn == stream


def test_every_release_has_its_own_key_of_256_bits():
    keys = {tuple(os_keyed().bit_generator.state["state"]["keysetup"].tolist()) for _ in range(20)}
    assert len(keys) == 20
    assert all(len(key) == 8 for key in keys)
    assert os_keyed().bit_generator.state["state"]["rounds"] == 20


def test_doubles_carry_53_bits_of_the_stream():
    raw = ChaCha(key=1, rounds=20).random_raw(100)
    np.testing.assert_array_equal(np.random.Generator(ChaCha(key=1, rounds=20)).random(100), (raw >> 11) * U)
