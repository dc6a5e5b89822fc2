import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from ostraka import Adjacency, Budget, Curve, Ledger, Private, release
from ostraka.core.mechanisms import sums
from ostraka.mechanisms import GaussianSums
from tests.false_alarm import FALSE_ALARM

ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


def rows(n, d, seed=0):
    matrix = np.random.default_rng(seed).normal(size=(n, d))
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


class TestTheNoise:
    def test_is_normal_and_not_one_hundredth_wider(self):
        n = 400_000
        noise = sums.with_noise(np.zeros(n), sigma=3.0, rng=np.random.default_rng(0))
        assert kstest(noise, norm(scale=3.0).cdf).pvalue > FALSE_ALARM
        assert kstest(noise, norm(scale=3.03).cdf).pvalue < kstest(noise, norm(scale=3.0).cdf).pvalue
        # the variance of n normal numbers: chi square, by its normal limit
        tolerance = norm.isf(FALSE_ALARM / 2) * math.sqrt(2 / n)
        assert abs(np.mean(noise**2) / 9 - 1) < tolerance
        assert abs(np.mean(noise**2) / 3.03**2 - 1) > tolerance

    def test_lies_in_the_middles_of_cells_of_one_grid_whatever_the_sum(self):
        for totals in (0.0, 12_345.0):
            noise = sums.with_noise(np.full(1000, totals), sigma=3.0, rng=np.random.default_rng(0))
            cells = noise / (3.0 / 65536) - 0.5
            np.testing.assert_allclose(cells, np.rint(cells), atol=1e-6)

    def test_is_hardly_there_where_sigma_is_small(self):
        table = rows(500, 6)
        found = GaussianSums(n_columns=6, sigma=1e-3).release(
            Private(table, ONE_ROW), rng=np.random.default_rng(0)
        )
        np.testing.assert_allclose(found, table.sum(axis=0), atol=0.01)


class TestTheSensitivity:
    @pytest.mark.parametrize("sigma", [1e-3, 0.5, 40.0, 5_000.0, 1e6])
    @pytest.mark.parametrize("d", [1, 2, 200])
    def test_no_row_on_the_grid_is_longer_than_its_price(self, sigma, d):
        worst = rows(300, d)
        worst[0] = d**-0.5
        worst[1] = 1e6  # longer than 1
        worst[2] = 0.0
        moved = np.linalg.norm(sums.on_grid(worst, sigma=sigma), axis=1)
        assert moved.max() <= sums.longest(sigma)
        priced = math.sqrt(sums.sums_curve(sigma).mu_squared) * 65536
        assert moved.max() <= priced
        assert priced <= (1 + 2 * sigma / 65536) * 65536 / sigma * (1 + 1e-9)

    def test_rows_of_one_person_together_are_no_longer_than_one(self):
        shares = np.array([0.5, 0.25, 0.25])
        for seed in range(50):
            table = np.repeat(rows(1, 30, seed), 3, axis=0) * shares[:, None]
            moved = sums.on_grid(table, sigma=900.0, shares=shares)
            assert np.linalg.norm(moved.sum(axis=0)) <= sums.longest(900.0)

    def test_sums_are_exact_so_that_their_order_tells_nothing(self):
        grid = sums.on_grid(rows(2000, 20), sigma=7.0)
        assert (grid == np.rint(grid)).all()
        shuffled = np.random.default_rng(1).permutation(grid)
        np.testing.assert_array_equal(grid.sum(axis=0), shuffled.sum(axis=0))

    def test_rounding_moves_no_sum_by_much(self):
        table, sigma = rows(5000, 50), 100.0
        off = sums.on_grid(table, sigma=sigma).sum(axis=0) * (sigma / 65536) - table.sum(axis=0)
        assert np.abs(off).max() < 0.02 * sigma


class TestThePrice:
    @pytest.mark.parametrize("sigma", [1.0, 4.0, 100.0])
    def test_is_that_of_the_gaussian_and_never_less(self, sigma):
        exact = Curve.gaussian(sensitivity=1.0, sigma=sigma)
        for delta in (1e-7, 1e-5):
            cost = GaussianSums(n_columns=100, sigma=sigma).curve().epsilon(delta)
            assert exact.epsilon(delta) <= cost <= 1.01 * exact.epsilon(delta)

    def test_is_that_of_any_number_of_columns_since_draws_are_exact(self):
        narrow, many = (GaussianSums(n_columns=n, sigma=4.0).curve() for n in (1, 10_000))
        assert narrow == many
        assert narrow.slack == 0


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([[1.0, math.nan]], "must be finite"),
        ([[1.0, math.inf]], "must be finite"),
        ([[1.0]], "2 columns"),
        ([["a", "b"]], "numbers in 2 columns"),
    ],
)
def test_rows_that_cannot_be_summed_are_refused_before_the_charge(table, words):
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        with pytest.raises(ValueError, match=words):
            release(GaussianSums(n_columns=2, sigma=4.0), Private(table, ONE_ROW), ledger=ledger)
        assert ledger.epsilon() == 0
