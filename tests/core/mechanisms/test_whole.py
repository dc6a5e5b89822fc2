"""Noise in whole numbers: every draw there could be, counted; and the laws of digits and cells."""

import math

import mpmath as mp
import numpy as np
import pytest

from ostraka.core.mechanisms import exact as _whole


class Listed:
    """A generator whose whole numbers come from a list; its last call is kept."""

    def __init__(self, numbers):
        self.numbers = list(numbers)

    def integers(self, low, high=None, size=None, dtype=np.int64):
        del low, high, dtype
        count = math.prod(size)
        batch, self.numbers = self.numbers[:count], self.numbers[count:]
        return np.array(batch, dtype=np.int64).reshape(size)


@pytest.mark.parametrize("k", [1, 2, 10, 1000, 10**6])
def test_weights_are_in_a_ratio_just_below_e_to_the_epsilon_and_fit_into_63_bits(k):
    with mp.workdps(60):
        for epsilon in (1e-300, 1e-17, 1e-15, 1e-9, 0.1, 1.0, 7.3, 20.0, 39.999, 40.0):
            keep, change = _whole.weights(epsilon, k)
            ratio = mp.log(mp.mpf(keep) / change)
            assert 0 <= ratio <= epsilon
            assert epsilon - ratio < mp.mpf("1e-14") + mp.mpf(2) / keep
            assert change >= 1
            assert keep + (k - 1) * change < 2**63


@pytest.mark.parametrize("spread", [0.05, 0.7, 1.0, 511.9, 512.0, 513.0, 1e4])
def test_a_grain_divides_one_and_is_small(spread):
    grain = _whole.grain(spread)
    assert (1 / grain).is_integer()
    assert grain <= max(spread / 512, 2.0**-20)
    assert grain > spread / 1024 or grain == 1


@pytest.mark.parametrize("rate", [1 / 1024, 0.0017, 0.3, 1.0, 5.0])
def test_digits_make_every_whole_number_as_likely_as_the_geometric_law_has_it(rate, monkeypatch):
    """Thresholds as they are compared with, multiplied out: each number below 4,096, in logarithms."""
    chances = []
    monkeypatch.setattr(_whole, "_threshold", lambda chance: chances.append(round(chance * 2**63)) or 0)
    _whole.geometric(rate, (1,), rng=Listed([0] * 64))
    *digits, again = chances
    with mp.workdps(40):
        share = [mp.mpf(t) / 2**63 for t in digits]
        top = mp.mpf(again) / 2**63
        for n in [*range(200), *range(3900, 4096)]:
            law = (1 - top) * top ** (n >> len(digits))
            for at, chance in enumerate(share):
                law *= chance if n >> at & 1 else 1 - chance
            exact = -mp.mpf(rate) * n + mp.log(-mp.expm1(-mp.mpf(rate)))
            assert abs(mp.log(law) - exact) < (1 + rate * n) * mp.mpf(2) ** -46


def test_a_number_just_below_a_threshold_counts_and_the_threshold_does_not():
    again = round(math.exp(-5.0) * 2**63)
    for first, bit in ((again - 1, 1), (again, 0)):
        assert _whole.geometric(5.0, (1,), rng=Listed([first, 2**63 - 1])).tolist() == [bit]


def test_the_ends_of_the_uniform_numbers_fall_into_the_first_cell_and_beyond_the_table():
    sigma = 512.0
    cells = _whole._cells(sigma)
    with mp.workdps(40):
        edge = int(mp.floor(mp.erf(1 / (mp.mpf(sigma) * mp.sqrt(2))) * 2**63))
    numbers = [0, edge - 2, edge + 2, 2**63 - 1]
    draws = _whole.half_normal(sigma, (4,), rng=Listed([*numbers, 2**40]))
    assert draws.tolist()[:3] == [0, 0, 1]
    with mp.workdps(60):  # the last number has a tail of 2^-64 or less: 63 more bits decide where it is
        assert draws[3] == mp.floor(sigma * mp.sqrt(2) * mp.erfinv(1 - (mp.mpf(2**40) + 0.5) / 2**126))
    assert draws[3] > len(cells)
    assert cells.min() >= 0


def test_digits_of_geometric_numbers_are_independent():
    """Cross moments of any two digits are within seven standard errors of the product of their means."""
    draws = _whole.geometric(1 / 900, (200_000,), rng=np.random.default_rng(4))
    digits = (draws[:, None] >> np.arange(10)) & 1
    correlation = np.corrcoef(digits.T) - np.eye(10)
    assert abs(correlation).max() < 7 / math.sqrt(200_000)
