"""The bound on the error of noise in float64, and where its bits come from: docs/record/floating-point.md.

Every piece of the tables is compared with the quantiles in multi-precision arithmetic: the remainder of
Taylor's series by its derivative at the end where it is largest, each coefficient by itself.
"""

import functools
from itertools import pairwise
from statistics import NormalDist

import mpmath as mp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from randomgen import ChaCha

from ostraka.core.kernels import draws as _draws
from ostraka.core.mechanisms import exact as _exact
from ostraka.core.mechanisms.exact import GAUSSIAN, LAPLACE
from ostraka.core.randomness import os_keyed, words

U = mp.mpf(2) ** -53


@functools.cache
def quantile(kind, tail):
    """The size that noise exceeds, on one side, with probability ``tail``."""
    if kind == LAPLACE:
        return -mp.log(2 * tail)
    z = mp.mpf(-NormalDist().inv_cdf(float(tail)))
    for _ in range(2):  # Newton's method: 16, 32, 64 digits
        z += (mp.erfc(z / mp.sqrt(2)) / 2 - tail) * mp.sqrt(2 * mp.pi) * mp.exp(z * z / 2)
    return z


def derivative(kind, tail, n):
    """Size of the n-th derivative of the quantile by the tail; it falls as the tail grows."""
    if kind == LAPLACE:
        return mp.factorial(n - 1) / tail**n
    z = quantile(kind, tail)
    power = [mp.mpf(1)]
    for m in range(1, n):  # P_(m+1) = P_m' + m z P_m, all coefficients >= 0
        rises = [mp.mpf(0)] + [m * c for c in power]
        falls = [(i + 1) * c for i, c in enumerate(power[1:])] + [mp.mpf(0)] * 2
        power = [a + b for a, b in zip(rises, falls, strict=True)]
    return mp.polyval(power[::-1], z) * (mp.sqrt(2 * mp.pi) * mp.exp(z * z / 2)) ** n


def error(kind, row, lower, right):
    """Bound on |noise - Q(p)| over one piece, for every word and every p of its cell."""
    unit, middle, half = mp.mpf(2) ** -64, mp.mpf(row[0]), mp.mpf(right - lower) / 2
    remainder = derivative(kind, lower * unit, 7) * (half * unit) ** 7 / mp.factorial(7)
    sizes = [abs(mp.mpf(c)) * half**n for n, c in enumerate(row[1:])]
    exact = [quantile(kind, middle * unit)]
    exact += [(-1) ** n * derivative(kind, middle * unit, n) * unit**n / mp.factorial(n) for n in range(1, 7)]
    wrong = mp.fsum(abs(mp.mpf(c) - e) * half**n for n, (c, e) in enumerate(zip(row[1:], exact, strict=True)))
    # v is below 2^63 and rounded to float64 once; p lies up to one unit above v
    moved = derivative(kind, lower * unit, 1) * (unit + right * unit * U)
    horner = 16 * U * mp.fsum(sizes)  # thirteen roundings
    return remainder + wrong + moved + horner


def worst(kind, table):
    edges = _draws.EDGES.tolist()
    with mp.workprec(150):
        return max(
            error(kind, row, lower, right)
            for row, (lower, right) in zip(table.tolist(), pairwise(edges), strict=True)
        )


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_noise_errs_by_less_than_the_page_says(kind):
    assert _draws.DOUBT / 16 < worst(kind, _draws.table(kind)) < _draws.DOUBT
    # what answers are decided by is twice that, and 2^-47 of rounding for noise of at most 17 scales
    assert _exact._doubt(3.0) == 3 * 2 * _draws.DOUBT > 3 * (_draws.DOUBT + 53 * float(U))


@pytest.mark.parametrize("kind", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.slow)])
def test_one_wrong_number_of_a_table_is_noticed(kind):
    table = _draws.table(kind)
    for place, share in (((100, 1), 1e-11), ((400, 2), 1e-9), ((3, 7), 8)):
        wrong = table.copy()
        wrong[place] *= 1 + share
        assert worst(kind, wrong) > _draws.DOUBT


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_noise_of_words_is_as_near_as_that_at_the_ends_of_pieces_and_anywhere(kind):
    rng = np.random.default_rng(kind)
    ends = [int(edge) + shift for edge in _draws.EDGES[::9] for shift in (-1, 0, 1)]
    middles = [
        int(v) >> int(cut)
        for v, cut in zip(rng.integers(0, 2**63, 400), rng.integers(0, 20, 400), strict=True)
    ]
    v = [min(max(word, _draws.LEAST), 2**63 - 1) for word in (*ends, *middles, 2**63 - 1)]
    words_drawn = np.array([word + (k % 2 << 63) for k, word in enumerate(v)], dtype=np.uint64)
    noise = np.empty(len(words_drawn))
    _draws.sizes(words_drawn, _draws.table(kind), noise)
    with mp.workprec(150):
        for k, (value, number) in enumerate(zip(v, noise.tolist(), strict=True)):
            for end in (value, value + 1):
                size = quantile(kind, mp.mpf(end) / 2**64)
                assert abs(number - (-size if k % 2 else size)) < _draws.DOUBT


def test_words_of_the_far_tail_have_no_noise_in_float64():
    noise = np.empty(4)
    deep = np.array([0, _draws.LEAST - 1, 2**63, 2**63 + _draws.LEAST - 1], dtype=np.uint64)
    _draws.sizes(deep, _draws.table(GAUSSIAN), noise)
    assert np.isnan(noise).all()


def test_release_noise_is_chacha20_of_the_key():
    key = bytes(range(32))
    words_drawn = ChaCha(key=int.from_bytes(key, "little"), rounds=20).random_raw(512).astype("<u8").tobytes()
    stream = (
        Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(len(words_drawn)))
    )
    assert words_drawn == stream


def test_many_words_at_once_are_the_stream_wherever_it_stands_and_it_goes_on_behind_them():
    unbroken, mixed = (np.random.Generator(ChaCha(key=3, rounds=20)) for _ in range(2))
    for n in (1023, 5, 1024, 3, 1025, 1, 4096, 20_000, 2):  # from all places of a block of 8, over several
        words_drawn = words(mixed, (n,))
        np.testing.assert_array_equal(words_drawn, unbroken.bit_generator.random_raw(n))
        assert words_drawn.flags.writeable
        assert words_drawn.flags.aligned
        assert mixed.normal(size=n % 4).tolist() == unbroken.normal(size=n % 4).tolist()
    for rng in (unbroken, mixed):
        rng.bit_generator.random_raw(1, output=False)
        state = rng.bit_generator.state
        state["state"]["ctr"][0] += 1  # half a word was used
        rng.bit_generator.state = state
    np.testing.assert_array_equal(words(mixed, (2000,)), unbroken.bit_generator.random_raw(2000))


def test_words_beyond_the_counter_of_openssl_are_the_stream_too():
    unbroken, mixed = (np.random.Generator(ChaCha(key=3, rounds=20)) for _ in range(2))
    for rng in (unbroken, mixed):
        state = rng.bit_generator.state
        state["state"]["ctr"][0] = 16 * 2**32 - 1600  # the last hundred blocks of 32 bits
        rng.bit_generator.state = state
    for n in (400, 1024, 1024):
        np.testing.assert_array_equal(words(mixed, (n,)), unbroken.bit_generator.random_raw(n))


def test_every_release_has_its_own_key_of_256_bits():
    keys = {tuple(os_keyed().bit_generator.state["state"]["keysetup"].tolist()) for _ in range(20)}
    assert len(keys) == 20
    assert all(len(key) == 8 for key in keys)
    assert os_keyed().bit_generator.state["state"]["rounds"] == 20
