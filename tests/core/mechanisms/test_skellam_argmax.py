"""The price of an argmax with Skellam noise: no histogram of a few votes costs more, and some nearly."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy import stats

from ostraka import Budget, GNMax, Ledger, Private, release
from ostraka.core.curve import ORDERS
from ostraka.mechanisms import SkellamMax

ORDER = np.array(ORDERS[:-1])


@cache
def law(counts: tuple[int, ...], sigma: float) -> np.ndarray:
    """The law of the argmax by the definition: of equal noisy counts the first wins."""
    noise = stats.skellam(sigma**2 / 2, sigma**2 / 2)
    x = np.arange(min(counts) - int(14 * sigma) - 25, max(counts) + int(14 * sigma) + 25)
    chances = []
    for k, count in enumerate(counts):
        others = [noise.cdf(x - other - (j < k)) for j, other in enumerate(counts) if j != k]
        chances.append((noise.pmf(x - count) * np.prod(others, axis=0)).sum())
    return np.array(chances)


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Rényi divergence of p from q at every finite order."""
    frequent = (p > 1e-25) & (q > 1e-25)  # what is rarer may be wrong here
    terms = ORDER[:, None] * np.log(p[frequent]) + (1 - ORDER[:, None]) * np.log(q[frequent])
    return np.logaddexp.reduce(terms, axis=1) / (ORDER - 1)


def worst(sigma: float, n_classes: int, furthest: int, step: int = 1) -> np.ndarray:
    """The largest divergence over histograms and moved ballots; one class may be moved to 0."""

    def from_zero(counts: list[int]) -> np.ndarray:  # as many votes more for every class change nothing
        return law(tuple(count - min(counts) for count in counts), sigma)

    largest = np.zeros(len(ORDER))
    for histogram in itertools.product(range(-furthest, furthest + 1, step), repeat=n_classes - 1):
        for place in range(n_classes):
            counts = [*histogram[:place], 0, *histogram[place:]]
            base = from_zero(counts)
            for i, j in itertools.permutations(range(n_classes), 2):
                moved = list(counts)
                moved[i] -= 1
                moved[j] += 1
                largest = np.maximum(largest, divergence(base, from_zero(moved)))
    return largest


@pytest.mark.parametrize(
    ("sigma", "n_classes", "furthest", "step"),
    [
        (0.5, 2, 4, 1),
        (0.7, 3, 2, 1),
        (2.0, 2, 6, 1),
        (2.0, 3, 4, 2),
        (6.0, 2, 12, 2),
        pytest.param(6.0, 3, 6, 6, marks=pytest.mark.slow),
    ],
)
def test_no_histogram_costs_more_than_the_price(sigma, n_classes, furthest, step):
    price = np.array(SkellamMax(sigma=sigma, reveals="argmax").curve().rdp[:-1])
    largest = worst(sigma, n_classes, furthest, step)
    assert (largest <= price + 1e-9).all()


@pytest.mark.parametrize(
    ("sigma", "below"), [(2.0, 0.975), (6.0, 0.99), pytest.param(40.0, 0.99, marks=pytest.mark.slow)]
)
def test_two_classes_nearly_reach_the_price_so_that_a_smaller_one_fails(sigma, below):
    price = np.array(SkellamMax(sigma=sigma, reveals="argmax").curve().rdp[:-1])
    largest = worst(sigma, 2, 4)
    low = ORDER <= 2
    assert (largest[low] >= below * price[low]).all()


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 5.0, 40.0, pytest.param(300.0, marks=pytest.mark.slow)])
def test_the_price_is_never_above_that_of_the_counts_and_nears_that_of_gaussian_noise(sigma):
    ours, counts = (
        SkellamMax(sigma=sigma, reveals=revelation).curve().rdp for revelation in ("argmax", "counts")
    )
    assert np.isfinite(ours[:-1]).all()
    assert (np.array(ours) <= counts).all()
    if sigma >= 40:
        gaussian = GNMax(sigma=sigma).curve().rdp
        at = np.array(ORDERS[:-1]) < 2 * sigma
        np.testing.assert_allclose(np.array(ours)[:-1][at], np.array(gaussian)[:-1][at], rtol=2e-3)


def test_votes_that_show_counts_are_not_charged_as_an_argmax_nor_the_other_way_round():
    of_argmax = SkellamMax(sigma=3.0, reveals="argmax")
    of_counts = SkellamMax(sigma=3.0)
    with Ledger(":memory:", budget=Budget(epsilon=99.0, delta=1e-5)) as ledger:
        answers = release(of_argmax, Private([[0, 1, 0], [1, 0, 0]], of_argmax.promise), ledger=ledger)
        assert answers.tolist() == [1, 0]
        with pytest.raises(ValueError, match="argmax_only"):
            release(of_argmax, Private([[5, 1, 0]], of_counts.promise), ledger=ledger)
        with pytest.raises(ValueError, match="argmax_only"):
            release(of_counts, Private([[0, 1, 0]], of_argmax.promise), ledger=ledger)
