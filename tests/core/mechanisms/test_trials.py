"""The best of several trials: its number of trials, its law, and a price that no score can exceed."""

import math
from dataclasses import dataclass, replace
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from ostraka import Adjacency, Confident, GNMax, Private, Threshold
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms import trials
from ostraka.core.released import Model
from ostraka.mechanisms import BestTrial, GaussianSums, RandomizedResponse
from tests.false_alarm import FALSE_ALARM

NUMBERS = [(3.0, None), (10.0, None), (3.0, 1.0), (10.0, 0.0), (3.0, -0.5), (5.0, 2.5)]
every_number = pytest.mark.parametrize(("mean", "eta"), NUMBERS)
ONE = GaussianSums(n_columns=1, sigma=4.0)


def chances(mean, eta, n_terms=400):
    """Chances of 0, 1, … trials, by the definitions in multi-precision; gamma by its own root finding."""
    with mpmath.workdps(40):
        if eta is None:
            return [mpmath.exp(-mean) * mpmath.mpf(mean) ** k / mpmath.factorial(k) for k in range(n_terms)]

        def average(gamma):
            if eta == 0:
                return (1 / gamma - 1) / mpmath.log(1 / gamma)
            return eta * (1 - gamma) / (gamma * (1 - gamma**eta))

        gamma = mpmath.findroot(lambda g: average(g) - mean, (1e-6, 0.9), solver="anderson")
        terms = [mpmath.mpf(0)]
        for k in range(1, n_terms):
            if eta == 0:
                terms.append((1 - gamma) ** k / (k * mpmath.log(1 / gamma)))
            else:
                rising = mpmath.rf(eta, k) / mpmath.factorial(k)
                terms.append((1 - gamma) ** k * rising / (gamma**-eta - 1))
        return terms


@pytest.mark.parametrize(("mean", "eta"), NUMBERS[:-1])
@pytest.mark.statistical
def test_the_number_of_trials_has_its_law_and_not_one_of_another_mean(mean, eta):
    rng = np.random.default_rng(5)
    numbers = np.array([trials.n_trials(mean, eta, rng=rng) for _ in range(2000)])

    def plausible(candidate):
        law = np.array([float(chance) for chance in chances(candidate, eta, n_terms=40)])
        hits = np.bincount(np.minimum(numbers, 40), minlength=41)
        wanted = np.append(law, max(0.0, 1 - law.sum())) * len(numbers)
        large = wanted > 5
        tallies = [np.append(row[large], row[~large].sum()) for row in (hits, wanted)]
        if tallies[1][-1] < 1:
            assert tallies[0][-1] < 12
            tallies = [row[:-1] for row in tallies]
            tallies[1] *= tallies[0].sum() / tallies[1].sum()
        return stats.chisquare(*tallies).pvalue > FALSE_ALARM

    assert plausible(mean)
    assert not plausible(4 * mean)


@every_number
def test_the_law_of_the_best_is_that_of_the_largest_of_a_random_number(mean, eta):
    p = np.array([0.5, 0.3, 0.15, 0.05])  # in rising order of the score
    mechanism = BestTrial(settings=(ONE,), n_trials=mean, eta=eta)
    law = np.exp(mechanism.log_best(np.log(p)))
    number = chances(mean, eta)
    up_to = [0.0, *np.cumsum(p[:-1]).tolist()]
    below = [float(sum(chance * share**k for k, chance in enumerate(number) if k)) for share in up_to]
    wanted = [*np.diff([*below, 1 - float(number[0])]), float(number[0])]
    np.testing.assert_allclose(law, wanted, rtol=1e-9)
    assert law.sum() == pytest.approx(1)


@every_number
def test_no_score_of_any_outcomes_makes_the_best_dearer_than_the_price(mean, eta):
    """Random pairs of laws of one trial with a pure cost, in every order of their ratios."""
    rng, epsilon = np.random.default_rng(1), 0.8
    base = RandomizedResponse(n_classes=2, epsilon=epsilon)
    mechanism = BestTrial(settings=(base,), n_trials=mean, eta=eta)
    price, worst = mechanism.curve(), 0.0
    for size in (2, 3, 5):
        for _ in range(20):
            one = rng.dirichlet(np.ones(size))
            tilt = rng.choice([0.0, 1.0], size=size)
            odds = one * np.exp(epsilon * tilt)
            other = odds / odds.sum()
            p, q = (mechanism.log_best(np.log(law)) for law in (one, other))
            finite = np.isfinite(p)
            p, q = p[finite], q[finite]
            base_costs = np.array([base.curve().rdp[place] for place in (20, 60)])
            one_cost = [
                logsumexp(order * np.log(one) + (1 - order) * np.log(other)) / (order - 1)
                for order in (ORDERS[20], ORDERS[60])
            ]
            assert (np.array(one_cost) <= base_costs * (1 + 1e-9)).all()
            for place in (20, 60):
                order = ORDERS[place]
                cost = max(logsumexp(order * a + (1 - order) * b) / (order - 1) for a, b in ((p, q), (q, p)))
                assert cost <= price.rdp[place]
                worst = max(worst, cost / price.rdp[place])
    assert worst > 0.3  # the price is not far away


@pytest.mark.parametrize(("mean", "eta"), [(10.0, None), (10.0, 1.0), (30.0, 0.0)])
@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_the_best_of_gaussian_scores_costs_less_than_the_price_and_not_much_less(mean, eta, mu):
    """By quadrature: the released number is its own score, and moves up or down by mu."""
    price = trials._curve((Curve.gaussian(sensitivity=mu, sigma=1.0),), mean, eta)
    x = np.linspace(-12, 12, 20_001)
    number = np.array([float(chance) for chance in chances(mean, eta, n_terms=300)])

    def log_density(shift):
        inside = stats.norm.cdf(x - shift)
        slope = np.polynomial.polynomial.polyval(inside, np.arange(1, 300) * number[1:])
        return stats.norm.logpdf(x, shift) + np.log(slope)

    apart = []
    for order in (8.0, 16.0):
        bound = price.rdp[price.orders.index(order)]
        for shift in (mu, -mu):
            p, q = log_density(shift), log_density(0.0)
            for a, b in ((p, q), (q, p)):
                inner = logsumexp(order * a + (1 - order) * b) + math.log(x[1] - x[0])
                cost = np.logaddexp(inner, math.log(max(number[0], 1e-300))) / (order - 1)
                assert cost <= bound
                apart.append(cost / bound)
    assert max(apart) > 0.3


def test_chances_that_one_trial_allows_are_those_of_its_own_law_and_hardly_more():
    grid = np.linspace(0.001, 0.999, 200)
    law = trials._furthest((RandomizedResponse(n_classes=2, epsilon=0.8).curve(),), grid)
    exact = np.minimum(math.exp(0.8) * grid, 1 - math.exp(-0.8) * (1 - grid))
    assert (law >= exact).all()
    np.testing.assert_allclose(law, exact, rtol=1e-6)
    shift = trials._furthest((Curve.gaussian(sensitivity=0.7, sigma=1.0),), grid)
    exact = stats.norm.cdf(stats.norm.ppf(grid) + 0.7)
    assert (shift >= exact).all()
    np.testing.assert_allclose(shift, exact, rtol=1e-6)


@pytest.mark.parametrize("eta", [1.0, 0.0, -0.5])
def test_it_is_never_dearer_than_the_theorem_for_negative_binomial_numbers(eta):
    """Theorem 2 of Papernot and Steinke 2022, written out."""
    curve = 3 * GNMax(sigma=10.0).curve()
    gamma = 0.1
    mean = (1 / gamma - 1) / math.log(1 / gamma) if eta == 0 else eta * 0.9 / (0.1 * (1 - 0.1**eta))
    price = trials._curve((curve,), mean, eta)
    for place, order in enumerate(ORDERS[:-1]):
        theorem = min(
            curve.rdp[place]
            + (1 + eta) * ((1 - 1 / other) * rdp + math.log(1 / gamma) / other)
            + math.log(mean) / (order - 1)
            for other, rdp in zip(ORDERS, curve.rdp, strict=True)
        )
        assert price.rdp[place] <= theorem * (1 + 1e-9)
    pure = BestTrial(settings=(RandomizedResponse(n_classes=4, epsilon=0.5),), n_trials=mean, eta=eta)
    assert pure.curve().rdp[-1] <= (2 + eta) * 0.5 * (1 + 1e-9)


def test_poisson_numbers_have_the_price_of_theorem_6():
    """Papernot and Steinke 2022, Theorem 6, beside the empty answer."""
    curve = Curve.gaussian(sensitivity=1.0, sigma=4.0)
    price = trials._curve((curve,), 20.0, None)
    for order in (16.0, 64.0):
        theorem = (
            curve.rdp[curve.orders.index(order)]
            + 20.0 * curve.delta(math.log(order / (order - 1)))
            + math.log(20.0) / (order - 1)
        )
        assert price.rdp[price.orders.index(order)] == pytest.approx(theorem, rel=1e-6)


@dataclass(frozen=True, eq=False)
class Constant:
    """A setting that always says the same, for tests of what is chosen."""

    says: object
    promise = Adjacency.one_row()

    def curve(self):
        return Curve.gaussian(sensitivity=1.0, sigma=4.0, moves="row")

    def uses(self, private):
        return 1

    def release(self, private, *, rng):
        return self.says


ROWS = Private([[0.0]] * 3, Adjacency.one_row())


def test_the_best_trial_is_released_with_its_setting_under_its_own_names():
    says = [{"score": np.array(s), "weights": np.arange(2) + s} for s in (0.25, 0.75, 0.5)]
    choice = BestTrial(settings=tuple(map(Constant, says)), n_trials=50.0)
    best = choice.release(ROWS, rng=np.random.default_rng(0))
    assert (int(best["setting"]), float(best["score"]), best["weights"].tolist()) == (1, 0.75, [0.75, 1.75])


def test_a_score_that_fails_or_is_no_number_loses_and_says_nothing():
    def score(model):
        if model.data == b"bad":
            raise RuntimeError("private")
        return math.nan if model.data == b"nan" else 3.0

    settings = tuple(Constant(Model(data)) for data in (b"bad", b"nan", b"good"))
    best = BestTrial(settings=settings, n_trials=60.0, score=score).release(
        ROWS, rng=np.random.default_rng(0)
    )
    assert (int(best["setting"]), float(best["score"]), best["model"].tobytes()) == (2, 3.0, b"good")
    lost = BestTrial(settings=settings[:2], n_trials=60.0, score=score)
    assert float(lost.release(ROWS, rng=np.random.default_rng(0))["score"]) == -math.inf


def test_without_a_trial_there_is_no_answer():
    best = BestTrial(settings=(ONE,), n_trials=1e-9, eta=None).release(
        Private([[0.5]], ONE.promise), rng=np.random.default_rng(0)
    )
    assert {name: float(value) for name, value in best.items()} == {"setting": -1.0, "score": -math.inf}


def test_trials_that_make_more_uses_than_are_paid_for_are_refused():
    votes = Private([[60, 40], [10, 90]], Adjacency.one_ballot())
    best = BestTrial(settings=(GNMax(sigma=10.0),), n_trials=3.0)
    with pytest.raises(ValueError, match="type n_answers=2"):
        best.uses(votes)
    two = replace(best, n_answers=2)
    assert two.uses(votes) == 1
    assert two.curve().rdp[5] > best.curve().rdp[5]


def test_the_dearest_setting_decides_the_price():
    quiet, loud = (replace(ONE, sigma=sigma) for sigma in (4.0, 40.0))
    combined = BestTrial(settings=(loud, quiet), n_trials=8.0, eta=0.0).curve()
    assert combined.rdp == BestTrial(settings=(quiet,), n_trials=8.0, eta=0.0).curve().rdp


def test_another_score_is_another_question():
    plain = BestTrial(settings=(ONE,), n_trials=3.0)
    scored = replace(plain, score=np.sum)
    assert plain != scored
    assert "numpy.sum" in repr(scored)
    assert "functools.partial" in repr(replace(plain, score=partial(np.sum, axis=0)))
    screened = Confident(screen=Threshold(at=70.0, sigma=25.0), argmax=GNMax(sigma=20.0))
    assert BestTrial(settings=(screened,), n_trials=3.0).curve().epsilon(1e-5) > screened.curve().epsilon(
        1e-5
    )
