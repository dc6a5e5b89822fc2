"""Responses against multi-precision, all pairs of labels, linear programming, dp-accounting and OpenDP."""

import itertools
import math

import mpmath as mp
import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import linprog

from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms.exact import _cells, grain
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, PriorResponse, RandomizedResponse

SOME = [ORDERS[0], ORDERS[3], 2.0, 3.0, ORDERS[30], ORDERS[60], ORDERS[-2]]
EPSILONS = [1e-9, 1e-3, 0.3, 1.0, 4.0, 12.0, 40.0]


def renyi(p, q, order):
    """Between two discrete laws, as mpf, as the definition has it."""
    if order == math.inf:
        return mp.log(max(a / b for a, b in zip(p, q, strict=True)))
    total = mp.fsum(mp.mpf(a) ** order * mp.mpf(b) ** (1 - order) for a, b in zip(p, q, strict=True))
    return mp.log(total) / (order - 1)


def response_law(epsilon, k):
    """Chances of the true class and of another one."""
    return mp.exp(epsilon) / (mp.exp(epsilon) + k - 1), 1 / (mp.exp(epsilon) + k - 1)


def rows(mechanism, n_classes):
    """Law of the answer to every label, in row 0: an axis of labels, then one of answers."""
    laws = [[mp.mpf(0)] * n_classes for _ in range(n_classes)]
    with mp.workdps(40):
        for answer in range(n_classes):
            try:
                [column] = mechanism.log_likelihood([answer])
            except ValueError:  # an answer this row never gives
                continue
            for label in range(n_classes):
                laws[label][answer] = mp.exp(mp.mpf(column[label]))
    return laws


def likely(law):
    return [chance for chance in law if chance > 0]


@pytest.mark.parametrize("k", [2, 3, 10, 1000])
def test_the_curve_of_randomised_response_is_its_renyi_divergence_at_every_order(k):
    with mp.workdps(60):
        for epsilon in EPSILONS:
            true, false = response_law(mp.mpf(epsilon), k)
            curve = RandomizedResponse(n_classes=k, epsilon=epsilon).curve()
            for order, rdp in zip(curve.orders, curve.rdp, strict=True):
                if order == math.inf:
                    assert rdp == epsilon
                    continue
                a = mp.mpf(order)
                terms = true**a * false ** (1 - a) + false**a * true ** (1 - a) + (k - 2) * false
                exact = mp.log(terms) / (a - 1)
                assert exact <= rdp <= min(exact * (1 + mp.mpf("3e-12")), epsilon)


@pytest.mark.parametrize("epsilon", [0.2, 1.5, 6.0])
def test_every_pair_of_labels_is_within_the_curve_and_every_pair_of_a_plain_response_reaches_it(epsilon):
    mechanism = RandomizedResponse(n_classes=4, epsilon=epsilon)
    curve, laws = mechanism.curve(), rows(mechanism, 4)
    rdp = dict(zip(curve.orders, curve.rdp, strict=True))
    for order, (p, q) in itertools.product([*SOME, math.inf], itertools.permutations(laws, 2)):
        assert float(renyi(p, q, order)) == pytest.approx(rdp[order], rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.2, 1.5, 6.0])
def test_every_pair_of_labels_under_every_kind_of_prior_is_within_the_curve_and_some_reach_it(epsilon):
    rng = np.random.default_rng(1)
    priors = [*rng.dirichlet([0.5] * 4, size=12), [0.25] * 4, [0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    worst = dict.fromkeys([*SOME, math.inf], 0.0)
    kept_sizes = set()
    for prior in priors:
        mechanism = PriorResponse(prior=[prior], epsilon=epsilon)
        kept_sizes |= set(mechanism.kept.tolist())
        laws = [likely(law) for law in rows(mechanism, 4)]
        assert all(math.isclose(mp.fsum(law), 1, rel_tol=1e-12) for law in laws)
        for order, (p, q) in itertools.product(worst, itertools.permutations(laws, 2)):
            worst[order] = max(worst[order], float(renyi(p, q, order)))
    assert {1, 2, 4} <= kept_sizes
    curve = mechanism.curve()
    for order, rdp in zip(curve.orders, curve.rdp, strict=True):
        if order in worst:
            assert worst[order] == pytest.approx(rdp, rel=1e-9)


def chance_of_truth(prior, laws):
    return sum(p * float(laws[label][label]) for label, p in enumerate(prior))


def best_private_answer(prior, epsilon):
    """The largest chance of the truth of any epsilon-DP answer: a linear program over all channels."""
    n = len(prior)
    at = np.arange(n * n).reshape(n, n)  # label, answer
    bounds = []
    for answer, (first, second) in itertools.product(range(n), itertools.permutations(range(n), 2)):
        row = np.zeros(n * n)
        row[at[first, answer]], row[at[second, answer]] = 1.0, -math.exp(epsilon)
        bounds.append(row)
    sums = np.array([np.isin(np.arange(n * n), at[label]) for label in range(n)], dtype=float)
    gain = np.zeros(n * n)
    gain[at.diagonal()] = prior
    solved = linprog(-gain, A_ub=bounds, b_ub=np.zeros(len(bounds)), A_eq=sums, b_eq=np.ones(n))
    assert solved.success
    return -solved.fun


def test_no_private_answer_is_right_more_often_than_the_prior_response():
    rng = np.random.default_rng(2)
    for n, epsilon in itertools.product((2, 3, 5), (0.3, 1.0, 3.0)):
        for prior in rng.dirichlet([0.6] * n, size=4):
            mechanism = PriorResponse(prior=[prior], epsilon=epsilon)
            right = chance_of_truth(prior, rows(mechanism, n))
            assert right == pytest.approx(best_private_answer(prior, epsilon), abs=1e-9)


def test_the_k_that_is_kept_beats_every_other_k():
    rng = np.random.default_rng(3)
    priors = rng.dirichlet([0.4] * 7, size=200)
    mechanism = PriorResponse(prior=priors, epsilon=1.2)
    for prior, kept_sizes in zip(priors, mechanism.kept.tolist(), strict=True):
        likeliest = sorted(prior, reverse=True)
        right = [sum(likeliest[:k]) * float(response_law(1.2, k)[0]) for k in range(1, 8)]
        assert right[kept_sizes - 1] == pytest.approx(max(right), abs=1e-12)
    assert len(set(mechanism.kept.tolist())) >= 4


def laplace_renyi(scale, order):
    """One entry, centred at 1 against 0, by quadrature of the definition."""
    a, b = mp.mpf(order), mp.mpf(scale)

    def integrand(x):
        return mp.exp(-(a * abs(x - 1) + (1 - a) * abs(x)) / b) / (2 * b)

    tails = mp.exp((a - 1) / b) / 2 + mp.exp(-a / b) / 2  # beyond 1, below 0
    return mp.log(tails + mp.quad(integrand, [0, mp.mpf(1) / 2, 1])) / (a - 1)


@pytest.mark.parametrize(
    "scale",
    [0.05, pytest.param(0.4, marks=pytest.mark.slow), 1.0, pytest.param(7.0, marks=pytest.mark.slow), 1e4],
)
def test_the_curve_of_laplace_rows_is_the_divergence_of_two_entries(scale):
    curve = OneHotLaplace(n_classes=5, scale=scale).curve()
    rdp = dict(zip(curve.orders, curve.rdp, strict=True))
    assert rdp[math.inf] == 2 / scale
    with mp.workdps(60):
        for order in SOME:
            exact = 2 * laplace_renyi(scale, order)
            spare = mp.mpf(order) / (order - 1) * mp.mpf(2) ** -38
            assert exact <= rdp[order] * (1 + mp.mpf("1e-15")) <= exact * (1 + mp.mpf("1e-11")) + spare


@pytest.mark.parametrize("scale", [0.25, 0.9, 2.0])
def test_the_cells_that_are_drawn_are_within_the_laplace_curve(scale):
    """The law of one entry on its grid: every cell between the two centres, the rest summed."""
    curve = OneHotLaplace(n_classes=2, scale=scale).curve()
    cell = grain(scale)
    per_unit = round(1 / cell)
    ratio = mp.exp(-mp.mpf(cell) / mp.mpf(scale))

    def mass(n):  # the cell from n to n + 1
        return (1 - ratio) / 2 * ratio ** (n if n >= 0 else -1 - n)

    inner = range(per_unit)
    p = [mp.mpf(1) / 2, *(mass(n - per_unit) for n in inner), ratio**per_unit / 2]
    q = [ratio**per_unit / 2, *(mass(n) for n in inner), mp.mpf(1) / 2]
    assert abs(mp.fsum(p) - 1) < 1e-13
    rdp = dict(zip(curve.orders, curve.rdp, strict=True))
    for order in SOME:
        divergence = 2 * renyi(p, q, order)
        assert rdp[order] * (1 - 1e-4) < divergence <= rdp[order]


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_laplace_delta_is_the_hockey_stick_of_two_entries(scale):
    """By dp-accounting, and by quadrature over the losses of both; a hundredth less noise is noticed."""
    composed = pld.from_laplace_mechanism(scale, value_discretization_interval=1e-4).self_compose(2)
    mechanism = OneHotLaplace(n_classes=3, scale=scale)
    for share in (0.0, 0.3, 0.9, 0.99):
        epsilon = share * 2 / scale
        bound = composed.get_delta_for_epsilon(epsilon)
        assert mechanism.delta(epsilon) <= bound * (1 + 1e-9) + 1e-9
        assert mechanism.delta(epsilon) == pytest.approx(bound, rel=2e-3, abs=2e-4)
        exact = two_entries(scale, epsilon)
        assert exact - 1e-14 <= mechanism.delta(epsilon) <= exact + 1e-11
        assert mechanism.delta(epsilon) < two_entries(0.99 * scale, epsilon) or share > 0.98


def over(start, end):
    """Nodes and weights of an integral over a smooth piece."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    return start + (end - start) * (nodes + 1) / 2, weights * (end - start) / 2


def two_entries(scale, epsilon):
    """E of (1 - e^(epsilon - loss))+ over two independent losses: atoms at each end, a density between."""
    s = 1 / scale

    def given(first):
        inside, weights = over(min(s, max(-s, epsilon - first)), s)
        law = [
            *zip(inside, weights * np.exp((inside - s) / 2) / 4, strict=True),
            (s, 0.5),
            (-s, math.exp(-s) / 2),
        ]
        return sum(mass * max(0.0, -math.expm1(epsilon - first - loss)) for loss, mass in law)

    total = given(s) / 2 + given(-s) * math.exp(-s) / 2
    for start, end in itertools.pairwise(sorted({-s, max(-s, epsilon - s), min(s, epsilon + s), s})):
        outside, weights = over(start, end)
        masses = weights * np.exp((outside - s) / 2) / 4
        total += sum(mass * given(loss) for loss, mass in zip(outside, masses, strict=True))
    return total


@pytest.mark.parametrize("k", [2, 10])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_costs_what_dp_accounting_and_opendp_say(k, epsilon):
    mechanism = RandomizedResponse(n_classes=k, epsilon=epsilon)
    true = math.exp(mechanism.log_likelihood([0])[0, 0])
    theirs = pld.from_randomized_response((1 - true) * k / (k - 1), k, value_discretization_interval=1e-4)
    for share in (0.0, 0.3, 0.9):
        bound = theirs.get_delta_for_epsilon(share * epsilon)
        assert mechanism.delta(share * epsilon) <= bound + 1e-9
        assert mechanism.delta(share * epsilon) == pytest.approx(bound, abs=2e-4)
        exact = max(0.0, true - math.exp(share * epsilon) * (1 - true) / (k - 1))
        assert mechanism.delta(share * epsilon) == pytest.approx(exact, rel=1e-12, abs=1e-15)
    dp.enable_features("contrib")
    measurement = dp.m.make_randomized_response(list(range(k)), true)
    assert measurement.map(1) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.6, 3.0])
def test_gaussian_rows_cost_what_two_moved_entries_cost(sigma):
    """The exact delta of Balle and Wang 2018, Theorem 8, at sensitivity sqrt 2, and its slack."""
    mechanism, mu = OneHotGaussian(n_classes=4, sigma=sigma), mp.sqrt(2) / mp.mpf(sigma)
    for epsilon in (0.0, 0.5, 2.0):
        with mp.workdps(40):
            exact = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
            slack = (1 + mp.exp(epsilon)) * mp.mpf(2) ** -40
            assert exact <= mechanism.delta(epsilon) <= (exact + slack) * (1 + mp.mpf("1e-12"))


@pytest.mark.parametrize("sigma", [512.0, 700.3])
def test_the_table_of_normal_cells_is_within_the_charged_slack(sigma):
    """Total variation distance from the normal law, cell by cell, twice: two entries move."""
    cells = _cells(sigma)
    assert sum(cells.tolist()) == 2**63
    with mp.workdps(30):
        root = mp.mpf(sigma) * mp.sqrt(2)
        tails = [mp.erfc(n / root) for n in range(len(cells) + 1)]
        apart = mp.fsum(
            abs(mp.mpf(int(cell)) / 2**63 - (near - outer))
            for cell, near, outer in zip(cells, tails, tails[1:], strict=False)
        )
        assert 2 * (apart + tails[-1]) / 2 < mp.mpf(2) ** -44
