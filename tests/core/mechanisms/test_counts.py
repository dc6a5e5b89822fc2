"""Noisy counts: the law drawn is the discrete Gaussian exactly, and the price covers every integer move."""

import dataclasses
import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from ostraka import Adjacency, Budget, GNMax, Ledger, Private, release
from ostraka.core.mechanisms import exact as _discrete
from ostraka.core.mechanisms.counts import one_table
from ostraka.ledger import LedgerError
from ostraka.mechanisms import NoisyCounts

SIGMAS = (0.3, 1.0, 4.505, 18.79)


def law(sigma, reach=None):
    """Probabilities of -reach, …, reach, to 50 digits."""
    with mpmath.workdps(50):
        reach = reach or math.ceil(16 * sigma) + 3
        s = mpmath.mpf(sigma)
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in range(-reach, reach + 1)]
        total = mpmath.fsum(weights)
        return [weight / total for weight in weights], reach


class Scripted:
    """A generator which gives the numbers it was told."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def integers(self, low, high, size=None, dtype=None):
        if size is None:
            return self.numbers.pop(0)
        batch, self.numbers = self.numbers[:size], self.numbers[size:]
        return np.array(batch, dtype=dtype)


class TestTheDraws:
    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_thresholds_are_the_distribution_function_rounded_down(self, sigma):
        table = _discrete._table(sigma, 63)
        chances, reach = law(sigma)
        half = len(table) // 2
        with mpmath.workdps(50):
            for t in range(-half, half):
                below = mpmath.fsum(chances[: t + reach + 1])
                assert int(table[t + half]) == int(mpmath.floor(below * 2**63)), t

    def test_every_first_and_second_number_gives_the_law_exactly(self):
        sigma, bits = 1.0, 5
        found = {}
        for first in range(2**bits):
            for second in range(2**bits):
                rng = Scripted(first, second, 2 ** (bits - 1) + 3, 7, 11, 13)
                draw = int(_discrete.discrete_gaussian(sigma, (1,), rng=rng, bits=bits)[0])
                found[draw] = found.get(draw, 0) + 1
        chances, reach = law(sigma)
        for k in range(-4, 5):  # all that ten bits can tell: at most one number on either side undecided
            assert abs(found.get(k, 0) - float(chances[k + reach]) * 4**bits) <= 2

    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_the_normaliser_is_that_of_the_law(self, sigma):
        chances, reach = law(sigma)
        assert -_discrete.log_normaliser(sigma) == pytest.approx(float(mpmath.log(chances[reach])), abs=1e-12)


def profile(sigma, shift, epsilon):
    """Exact delta of noise moved by an integer vector, by summing over privacy losses: 50 digits."""
    with mpmath.workdps(50):
        chances, reach = law(sigma)
        sums = {0: mpmath.mpf(1)}  # the loss depends on the sum of shift_i x_i alone
        for step in shift:
            grown = {}
            for at, mass in sums.items():
                for k in range(-reach, reach + 1):
                    chance = chances[k + reach]
                    if chance > mpmath.mpf(10) ** -40:
                        grown[at + step * k] = grown.get(at + step * k, 0) + mass * chance
            sums = grown
        size = sum(step * step for step in shift)
        scale, total = 2 * mpmath.mpf(sigma) ** 2, mpmath.mpf(0)
        for at, mass in sums.items():
            loss = (size - 2 * at) / scale  # log of p(x) over p(x - shift)
            if loss > epsilon:
                total += mass * (1 - mpmath.exp(epsilon - loss))
        return float(total)


class TestThePrice:
    @pytest.mark.parametrize(
        ("sigma", "shift"),
        [
            (0.5, (1,)),
            (1.0, (1,)),
            (1.0, (1, -1)),
            (1.0, (2,)),
            (1.482, (1, -1)),
            (1.482, (2, -1, 1)),
            (3.0, (4, -3)),
            (4.505, (1, -1)),
            pytest.param(2.5, (1, -1, 1, -1), marks=pytest.mark.slow),
        ],
    )
    def test_covers_the_exact_divergence_of_every_move_tried_and_hardly_more(self, sigma, shift):
        l2 = math.sqrt(sum(step * step for step in shift))
        curve = NoisyCounts(sigma=sigma, l2=l2).curve()
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
            exact = profile(sigma, shift, epsilon)
            assert exact <= curve.delta(epsilon)
            if sigma > 4 and exact > 1e-12:
                assert curve.delta(epsilon) <= 1.05 * exact + 1e-20

    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_the_unit_shift_is_the_largest_step_of_the_exact_quantiles(self, sigma):
        chances, reach = law(sigma, reach=math.ceil(45 * sigma) + 60)
        with mpmath.workdps(40):
            z = []
            for t in range(math.ceil((36 if sigma < 5 else 11) * sigma) + 2):
                above = mpmath.fsum(chances[t + reach :])
                guess = (
                    float(-norm.ppf(float(above)))
                    if above > 1e-300
                    else float(mpmath.sqrt(-2 * mpmath.log(above)))
                )
                z.append(
                    mpmath.findroot(lambda x, a=above: mpmath.log(mpmath.ncdf(-x)) - mpmath.log(a), guess)
                )
            steps = [z[t] - z[t - 1] for t in range(1, len(z))]
            largest = float(max(steps))
        shift = _discrete.unit_shift(sigma)
        assert largest <= shift <= largest * (1 + 1e-9) + 1e-12

    @pytest.mark.parametrize("sigma", SIGMAS)
    def test_the_renyi_divergence_of_an_integer_move_stays_under_the_theorem(self, sigma):
        chances, reach = law(sigma, reach=math.ceil(60 * sigma) + 60)
        curve = NoisyCounts(sigma=sigma, l2=1.0).curve()
        with mpmath.workdps(50):
            for order, bound in itertools.islice(zip(curve.orders, curve.rdp, strict=True), 0, 30, 6):
                total = mpmath.fsum(
                    chances[k + reach] ** order * chances[k - 1 + reach] ** (1 - order)
                    for k in range(-reach + 1, reach + 1)
                )
                assert float(mpmath.log(total)) / (order - 1) <= bound

    def test_tails_are_bounded(self):
        for sigma in SIGMAS:
            chances, reach = law(sigma, reach=math.ceil(45 * sigma) + 60)
            edge = math.floor(36 * sigma) + 1
            exact = float(2 * mpmath.fsum(chances[reach + edge :]))
            assert exact <= _discrete.tail_mass(sigma) < 1e-278

    @pytest.mark.parametrize("sigma", [0.18, 0.25, 0.4, 0.49])
    def test_little_noise_composes_finitely_and_never_above_its_parts(self, sigma):
        once = NoisyCounts(sigma=sigma).curve()
        parts = [(times * once).epsilon(delta=1e-5) for times in (1, 2, 4)]
        assert parts[0] < parts[1] < parts[2] < math.inf
        plain = [
            dataclasses.replace(times * once, mu_squared=math.inf, slack=0.0, laws=None)
            for times in (1, 2, 4)
        ]
        for epsilon, renyi in zip(parts, plain, strict=True):
            assert epsilon <= renyi.epsilon(delta=1e-5) * (1 + 1e-12)

    def test_releases_compose_as_gaussians(self):
        curve = NoisyCounts(sigma=4.505).curve()
        twice = NoisyCounts(sigma=4.505, l2=2.0).curve()
        assert (curve + curve).epsilon(delta=1e-5) == pytest.approx(twice.epsilon(delta=1e-5), rel=1e-9)

    def test_a_hopeless_shift_is_charged_by_renyi_alone(self):
        curve = NoisyCounts(sigma=0.1).curve()
        assert curve.mu_squared == math.inf
        assert curve.epsilon(delta=1e-5) > 50


class TestTheDoor:
    def test_a_table_of_one_ballot_in_all_is_one_use(self):
        table = Private(np.full((5, 3), 100), Adjacency.vector(l2=math.sqrt(2)))
        with Ledger(":memory:", budget=Budget(epsilon=1.5, delta=1e-5, adaptive=False)) as ledger:
            noisy = release(NoisyCounts(sigma=4.0), table, ledger=ledger)
            assert noisy.dtype == np.int64
            assert noisy.shape == (5, 3)
            assert ledger.spent().epsilon(1e-5) == pytest.approx(NoisyCounts(sigma=4.0).curve().epsilon(1e-5))

    def test_a_table_without_one_unit_has_a_mechanism_and_a_ledger_of_its_own(self):
        table = Private([[1, 2]], Adjacency.vector(l2=1.0, relation="zero-out"))
        left_out, replaced = (
            NoisyCounts(sigma=4.0, relation=relation) for relation in ("zero-out", "replace-one")
        )
        vector = Private([[1, 2]], Adjacency.vector(l2=1.0))
        assert left_out.curve() == replaced.curve()
        for first, then in (((left_out, table), (replaced, vector)), ((replaced, vector), (left_out, table))):
            with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
                release(first[0], first[1], ledger=ledger)
                with pytest.raises(ValueError, match="hides"):
                    release(first[0], then[1], ledger=ledger)
                with pytest.raises(LedgerError, match=r"protects a row.*use a separate ledger"):
                    release(then[0], then[1], ledger=ledger)
                assert len(ledger.entries()) == 1
                assert ledger.unit == ("row (zero-out)" if first[0] is left_out else "row")

    @pytest.mark.parametrize(
        "table", [[[0.5, 1]], [[math.nan, 1]], [[math.inf, 1]], [[2**53, 0]], [[-(2**63), 0]]]
    )
    def test_refuses_counts_that_are_not_integers_before_any_charge(self, table):
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            with pytest.raises(ValueError, match="integers"):
                release(NoisyCounts(sigma=4.0), Private(table, Adjacency.vector(l2=1.0)), ledger=ledger)
            assert not ledger.entries()

    def test_votes_of_teachers_are_one_table(self):
        votes = Private([[9, 1], [2, 8], [4, 6]], Adjacency.one_ballot(unit="person"))
        table = one_table(votes)
        assert table.adjacency == Adjacency.vector(unit="person", l1=6.0, l2=math.sqrt(6))
        with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-5, adaptive=False)) as ledger:
            assert release(NoisyCounts(sigma=3.0, l2=math.sqrt(6)), table, ledger=ledger).shape == (3, 2)

    def test_one_table_refuses_votes_by_chance(self):
        with pytest.raises(ValueError, match="sampled"):
            one_table(Private([[9, 1]], Adjacency(sampling_rate=0.5)))
        with pytest.raises(ValueError, match="votes"):
            one_table(Private([1, 2], Adjacency.one_label()))

    def test_the_whole_table_of_votes_costs_about_a_tenth_more_noise_than_argmaxes(self):
        # 50 questions: the counts tell more than the argmaxes, for little more
        counts = NoisyCounts(sigma=40.0, l2=10.0).curve().epsilon(1e-5)
        argmaxes = (50 * GNMax(sigma=40.0).curve()).epsilon(1e-5)
        assert argmaxes < counts < 1.3 * argmaxes


def test_log_likelihood_is_the_exact_law():
    chances, reach = law(2.0)
    log_likelihood = NoisyCounts(sigma=2.0).log_likelihood([[5, 3]], [[2, 3]])
    np.testing.assert_allclose(
        log_likelihood, [[float(mpmath.log(chances[reach + d])) for d in (3, 0)]], rtol=1e-12
    )
