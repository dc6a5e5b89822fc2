"""Exact adaptive composition: never below what strategies reach, and close to the best of them."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln, ndtr, ndtri

from ostraka import Curve, GNMax, Threshold
from ostraka._composition import (
    cover,
    curvature,
    envelope,
    families,
    kernels,
    recursion,
    smooth,
    stored,
    tables,
)
from ostraka._composition.gaussian import gaussian_delta, mirrored
from ostraka._composition.law import ARGMAX, GAUSSIAN, PURE, SCREEN, Law
from ostraka._numeric import up

DELTA = 1e-5


def gnmax(sigma):
    return replace(GNMax(sigma=sigma).curve(), laws=(Law(ARGMAX, up(1 / sigma)),))


def threshold(sigma):
    return replace(Threshold(at=100, sigma=sigma).curve(), laws=(Law(SCREEN, up(1 / sigma)),))


def alone(curve):
    """By the other bounds."""
    return replace(curve, laws=None)


def pairs_of(sigma, counts):
    """Exact laws of GNMax for all neighbours of the given votes, as (P, Q)."""
    found = []
    for votes in counts:
        for giver, taker in itertools.permutations(range(len(votes)), 2):
            if votes[giver] > 0:
                near = np.array(votes, dtype=float)
                near[giver] -= 1
                near[taker] += 1
                logs = GNMax(sigma=sigma).log_outcomes([votes, near])
                found.append(np.exp(logs))
    return np.array(found)


def played(pairs, v, answers):
    """The best adaptive strategy over these pairs, by enumerating every transcript."""
    v = np.asarray(v)
    if answers == 0:
        return np.maximum(0.0, 1 - v)
    p, q = pairs[:, 0], pairs[:, 1]
    inner = played(pairs, v[..., None, None] * (q / p), answers - 1)
    return (p * inner).sum(axis=-1).max(axis=-1)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_adaptive_strategy_over_all_small_histograms_exceeds_delta(n):
    counts = [[i, j, 5 - i - j] for i in range(6) for j in range(6 - i)]
    pairs = pairs_of(4.0, counts if n < 3 else counts[::3])
    total = n * gnmax(4.0)
    epsilons = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    reached = played(pairs, np.exp(epsilons), n)
    promised = np.array([total.delta(epsilon=epsilon) for epsilon in epsilons])
    assert (reached <= promised).all()


@pytest.mark.parametrize(("n", "points"), [(2, 81), (3, 25)])
def test_the_best_strategy_comes_within_one_percent_of_epsilon(n, points):
    t, shift = np.linspace(-3.5, 3.5, points), math.sqrt(2) / 8.0
    laws = [np.stack([ndtr(x), ndtr(-x)], axis=-1) for x in (t, t - shift)]
    epsilon = (n * gnmax(8.0)).epsilon(delta=1e-3)
    assert played(np.stack(laws, axis=1), np.exp(0.99 * epsilon), n) > 1e-3


@pytest.mark.parametrize(
    ("n", "least", "most"),
    [(30, 0.5, 0.5645), (100, 1.0665, 1.072), (250, 1.76, 1.768), (500, 2.59, 2.602), (1000, 3.84, 3.87)],
)
def test_figures_of_the_prototype(n, least, most):
    assert least <= (n * GNMax(sigma=40.0).curve(bound="exact")).epsilon(delta=DELTA) <= most


def test_a_screen_costs_less_than_its_gaussian_and_its_renyi_price():
    total = 60 * threshold(30.0)
    assert (
        0.85 * alone(total).epsilon(delta=DELTA)
        < total.epsilon(delta=DELTA)
        < 0.97 * alone(total).epsilon(delta=DELTA)
    )


def test_delta_grows_with_answers_and_falls_with_epsilon():
    deltas = [[(n * gnmax(20.0)).delta(epsilon=e) for e in (0.2, 0.5, 0.9)] for n in (3, 5, 9)]
    assert (np.diff(deltas, axis=0) > 0).all()
    assert (np.diff(deltas, axis=1) < 0).all()


def test_epsilon_and_delta_are_inverse():
    table = tables.of((Law(ARGMAX, 0.05, 20),))
    for delta in (1e-3, 1e-6):
        assert table.delta(table.epsilon(delta)) == pytest.approx(delta, rel=1e-6)


# The laws ------------------------------------------------------------------------------------------------


def precise_wins(t, u):
    a, b = (u + t) / mpmath.sqrt(2), (u - t) / mpmath.sqrt(2)
    return mpmath.quad(lambda x: mpmath.npdf(x - a) * mpmath.ncdf(x - b), [0, max(1, a), max(2, a) + 12])


@pytest.mark.parametrize(("t", "u"), [(0.3, 1.1), (-2.0, 0.5), (1.5, -1.0), (-4.0, 2.0)])
def test_outcomes_agree_with_multi_precision(t, u):
    mpmath.mp.dps = 25
    point = np.array(t), np.array(u)
    assert float(curvature.wins(*point)) == pytest.approx(float(precise_wins(t, u)), rel=2e-14)
    gained = precise_wins(t, u) - precise_wins(t - 0.05, u)
    assert float(curvature.rise(*point, 0.05)) == pytest.approx(float(gained), rel=5e-14)


def test_bounds_of_derivatives_hold_in_random_rectangles():
    rng = np.random.default_rng(5)
    low_t, low_u = rng.uniform(-5, 5, (2, 300))
    wide_t, wide_u = rng.uniform(0.01, 1, (2, 300))
    bounds = curvature.curvature(curvature.Box(low_t, low_t + wide_t, low_u, low_u + wide_u))
    h = 2e-3

    def slope(t, u):
        return curvature.rise(t + 1e-6, u, 2e-6) / 2e-6

    for _ in range(20):
        t, u = low_t + wide_t * rng.random(300), low_u + wide_u * rng.random(300)
        found = (
            (slope(t + h, u) - slope(t - h, u)) / (2 * h),
            (curvature.wins(t, u + h) - 2 * curvature.wins(t, u) + curvature.wins(t, u - h)) / h**2,
            (slope(t + h, u) - 2 * slope(t, u) + slope(t - h, u)) / h**2,
            (slope(t, u + h) - 2 * slope(t, u) + slope(t, u - h)) / h**2,
        )
        for value, bound in zip(found, bounds, strict=True):
            assert (np.abs(value) <= bound * (1 + 1e-3) + 1e-5).all()


def excess(p, q, odds):
    """Hockey-stick divergences, towards the side on which they are small."""
    odds = odds[:, None]
    return np.where(odds < 1, np.maximum(odds * p - q, 0), np.maximum(q - odds * p, 0)).sum(axis=1)


@pytest.mark.parametrize("shift", [0.003, math.sqrt(2) / 40, 0.3])
@pytest.mark.parametrize("knots", [(np.linspace(-1, 1, 9), np.linspace(0, 2, 7)), families._COARSE[:2]])
def test_the_corners_of_a_rectangle_dominate_every_law_inside(shift, knots):
    t, u = knots
    rng = np.random.default_rng(11)
    pairs = cover.plane_pairs(shift, cover.Grid(t, u))
    at = np.arange(t.size * u.size).reshape(t.size, u.size)
    odds = np.exp(np.linspace(-10, 10, 161) * shift)
    for _ in range(300):
        i, j = rng.integers(t.size - 1), rng.integers(u.size - 1)
        x, y = rng.random(2)
        where = np.array(t[i] + (t[i + 1] - t[i]) * x), np.array(u[j] + (u[j + 1] - u[j]) * y)
        if min(where[1] + where[0], where[1] - where[0]) < -math.sqrt(2) * cover.EDGE:
            continue
        gained, lost = curvature.rise(*where, shift), curvature.rise(shift - where[0], where[1], shift)
        p = np.array(
            [curvature.wins(*where), curvature.wins(-where[0], where[1]), curvature.none_wins(*where)]
        )
        inside = excess(p, p + np.array([-gained, lost, gained - lost]), odds)
        shares = {
            at[i, j]: (1 - x) * (1 - y),
            at[i, j + 1]: (1 - x) * y,
            at[i + 1, j]: x * (1 - y),
            at[i + 1, j + 1]: x * y,
        }
        mixed = sum(
            share * excess(pairs.mass[k], pairs.mass[k] + pairs.difference[k], odds)
            for k, share in shares.items()
        )
        assert (inside <= mixed + 1e-14).all()


# The first answers ---------------------------------------------------------------------------------------


def test_a_pair_that_is_largest_only_between_the_places_where_it_is_tried_counts():
    """Beside the kink of a hinge, a pair of little steps exceeds one of wide ones, and nowhere else."""
    step, reach, points = 0.1, 10, 30
    little, wide = (math.exp(steps * step) for steps in (1, 8))
    changes = (1.0 * (little - 1) / (little + 1), 0.01 * (wide - 1) / (wide + 1))
    masses = [
        (share / (1 + ratio), share * ratio / (1 + ratio)) for share, ratio in ((1.0, little), (0.01, wide))
    ]
    pairs = cover.Pairs(np.array(masses), np.array([[change, -change] for change in changes]), np.zeros(2))
    for kink in range(recursion.APART):
        x = np.arange(-reach - kink, points + reach + recursion.APART) * step
        every = np.maximum(0.0, 1 - np.exp(x))
        few = every.copy()
        following = recursion.Recursion(pairs, step=step, reach=reach)
        following._few = np.array([1])
        following.advance(few, reach + points)
        way, used = following._way, following._used
        recursion.advance(every, reach, reach + points, way.offsets, way.weights, used, way.constants)
        np.testing.assert_allclose(few, every, rtol=1e-14)


@pytest.mark.parametrize("kind", [ARGMAX, SCREEN])
def test_the_first_answers_are_those_of_all_pairs_at_every_point(kind):
    family = families.argmax_family if kind == ARGMAX else families.screen_family
    shift, reach, points, step = 0.05, 520, 240, 0.05 * 0.05
    following = recursion.Recursion(family(shift), step=step, reach=reach)
    way, used = following._way, following._used
    values = gaussian_delta(np.arange(points + reach + recursion.APART) * step, shift)
    for _ in range(3):
        few = mirrored(values, step, reach)
        every = few.copy()
        following.advance(few, reach + points)
        recursion.advance(every, reach, reach + points, way.offsets, way.weights, used, way.constants)
        np.testing.assert_allclose(few, every, rtol=1e-12)
        values = every[reach:]


# Many answers --------------------------------------------------------------------------------------------


def law_at(t, u, shift):
    """P and Q of three outcomes, by the closed forms that multi-precision confirms above."""
    gained, lost = (float(curvature.rise(np.array(x), np.array(u), shift)) for x in (t, shift - t))
    p = np.array([curvature.wins(np.array(x), np.array(u)) for x in (t, -t)])
    p = np.append(p, 1 - p.sum())
    return p, p + np.array([-gained, lost, gained - lost])


def told_by_repeats(p, q, n, epsilon):
    """Exact delta of n answers to one question: every number of times that each outcome was seen."""
    first = np.arange(n + 1)[:, None]
    second = np.arange(n + 1)[None, :]
    third = n - first - second
    ways = gammaln(n + 1) - gammaln(first + 1) - gammaln(second + 1) - gammaln(np.maximum(third, 0) + 1)
    logs = [
        np.where(
            third < 0, -np.inf, ways + first * np.log(x[0]) + second * np.log(x[1]) + third * np.log(x[2])
        )
        for x in (p, q)
    ]
    return float(np.maximum(0.0, np.exp(logs[0]) - math.exp(epsilon) * np.exp(logs[1])).sum())


@pytest.mark.parametrize("n", [24, 25, 150])
@pytest.mark.parametrize(("t", "u"), [(0.0, 1.1), (-0.4, 1.1), (0.3, 0.8)])
def test_no_repeated_question_exceeds_delta_and_the_best_comes_near(n, t, u):
    shift = math.sqrt(2) / 25.0
    table = tables.of((Law(ARGMAX, up(1 / 25.0), n),))
    p, q = law_at(t, u, shift)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        assert told_by_repeats(p, q, n, epsilon) <= table.delta(epsilon)
    if t == 0 and n == 150:  # of few repeats, losses are few numbers with gaps between them
        assert told_by_repeats(p, q, n, 0.95 * table.epsilon(1e-4)) > 1e-4


def test_the_envelope_exceeds_what_random_laws_add_to_exponential_kinks():
    rng = np.random.default_rng(3)
    shift, step = 0.05, 0.05 * 0.05
    bound = envelope.Envelope(families.argmax_family(shift, finest=True), shift=shift, step=step)
    j = np.arange(-400, 401)
    odds = np.exp(j * step)
    for curve, steepest in ((0.05, 2.0), (0.01, 0.8)):
        polynomial = bound.polynomial(curve, steepest)
        for slope in (-steepest, -steepest * rng.random(), 0.0):
            kinks = np.exp((slope / shift + 0.5) * j * step - curve / shift**2 * (j * step) ** 2 / 2)
            most = math.exp(np.polynomial.polynomial.polyval((slope / steepest) ** 2, polynomial))
            added = []
            for _ in range(60):
                p, q = law_at(rng.uniform(-2, 2), rng.uniform(-0.5, 3), shift)
                side = np.where(j > 0, 1, -1)[:, None] * (q - odds[:, None] * p)
                added.append(float((kinks / odds * np.maximum(0.0, side).sum(axis=1)).sum()))
            assert max(added) <= most
            assert max(added) > 0.9 * most


def test_a_guess_is_raised_to_all_that_one_answer_may_add(monkeypatch):
    guessed, needed, taken = [], [], []
    guess, take, fit = smooth.Smooth._guess, smooth.Smooth._take, smooth.scaled
    monkeypatch.setattr(smooth.Smooth, "_guess", lambda *given: kept(guessed, guess(*given)))
    monkeypatch.setattr(smooth.Smooth, "_take", lambda self, added: take(self, kept(taken, added)))
    monkeypatch.setattr(
        smooth, "scaled", lambda polynomial, logs, scale: fit(polynomial, kept(needed, logs), scale)
    )
    tables.of((Law(ARGMAX, 1 / 25.0, 34),))
    assert len(guessed) == len(needed) == len(taken) >= 5
    for before, logs, after in zip(guessed, needed, taken, strict=True):
        assert (np.log(after / before) >= logs).all()


def kept(seen, array):
    seen.append(array.copy())
    return array


def test_a_state_that_is_not_log_concave_is_refused(monkeypatch):
    seen = []
    whole = kernels.shape

    def dented(logs, step):
        seen.append(len(logs))
        return (1.0, *whole(logs, step)[1:])

    monkeypatch.setattr(smooth, "shape", dented)
    total = 30 * gnmax(40.0)
    assert total.epsilon(delta=DELTA) < 0.57  # one by one instead
    assert seen


def test_noise_on_every_count_moves_a_stop_no_further_than_one_noise():
    rng = np.random.default_rng(8)
    for _ in range(2000):
        x, y, others = rng.uniform(-5, 8, 3)
        s = rng.uniform(0.001, 0.5)
        before, after = (ndtr(x + r) * ndtr(y - r) * ndtr(others) for r in (0.0, s))
        assert abs(ndtri(after) - ndtri(before)) <= s * (1 + 1e-9)


def test_a_screen_with_noise_on_every_count_composes_exactly_and_holds_for_small_votes():
    each = Threshold(at=3, sigma=5.0, noise="every")
    assert each.curve(bound="exact").laws == (Law(SCREEN, up(1 / 5.0)),)
    votes = [np.array([i, j, 4 - i - j]) for i in range(5) for j in range(5 - i)]
    pairs = []
    for counts in votes:
        for giver, taker in itertools.permutations(range(3), 2):
            if counts[giver] > 0:
                near = counts.copy()
                near[giver] -= 1
                near[taker] += 1
                pairs.append(np.exp(each.log_outcomes([counts, near])))
    epsilons = np.array([0.0, 0.2, 0.5])
    total = 2 * each.curve(bound="exact")
    assert (played(np.array(pairs), np.exp(epsilons), 2) <= [total.delta(epsilon=e) for e in epsilons]).all()


# Mixtures ------------------------------------------------------------------------------------------------


def test_a_gaussian_beside_answers_costs_more_than_either_and_less_than_two_gaussians():
    answers = 40 * gnmax(30.0)
    release = Curve.gaussian(sensitivity=1.0, sigma=8.0, moves="ballot")
    both = (answers + release).epsilon(delta=DELTA)
    assert max(answers.epsilon(delta=DELTA), release.epsilon(delta=DELTA)) < both
    assert both < alone(answers + release).epsilon(delta=DELTA)


def test_gaussian_and_pure_parts_agree_with_dp_accounting():
    from dp_accounting.pld import privacy_loss_distribution as pld

    # the argmaxes are faint: two Gaussians of mu^2 = 2 / 50^2 dominate them
    laws = (Law(ARGMAX, 0.02, 2), Law(GAUSSIAN, 0.25), Law(PURE, 0.3, 2))
    ours = tables.of(tuple(sorted(laws)))
    pure = pld.from_privacy_parameters(_parameters(0.3), value_discretization_interval=1e-4).self_compose(2)
    least, most = (
        pld.from_gaussian_mechanism(mu_squared**-0.5, value_discretization_interval=1e-4).compose(pure)
        for mu_squared in (0.25, 0.25 + 4 * 0.02**2)
    )
    for epsilon in (0.5, 1.0, 2.0):
        assert least.get_delta_for_epsilon(epsilon) * (1 - 1e-3) <= ours.delta(epsilon)
        assert ours.delta(epsilon) <= most.get_delta_for_epsilon(epsilon) * 1.002


def _parameters(epsilon):
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return DifferentialPrivacyParameters(epsilon, 0.0)


def test_where_a_law_is_not_known_the_other_bounds_count():
    known, unknown = 20 * gnmax(20.0), alone(gnmax(20.0))
    assert (known + unknown).laws is None
    assert (known + unknown).epsilon(delta=DELTA) == alone(known + unknown).epsilon(delta=DELTA)


def test_a_curve_remembers_its_laws_in_json_and_old_records_open():
    total = 3 * gnmax(20.0) + 2 * threshold(10.0)
    assert Curve.from_dict(total.to_dict()) == total
    assert total.laws == (Law(ARGMAX, up(0.05), 3), Law(SCREEN, up(0.1), 2))
    old = total.to_dict()
    del old["laws"]
    assert Curve.from_dict(old) == alone(total)


def test_beyond_the_answers_that_are_followed_epsilon_has_no_cliff(monkeypatch):
    monkeypatch.setattr(tables, "_MOST", 100)
    epsilons = [tables.of((Law(ARGMAX, 0.05, n),)).epsilon(DELTA) for n in (99, 100, 101, 102)]
    assert (np.diff(epsilons) > 0.01).all()
    assert (np.diff(epsilons) < 0.04).all()


# Files ---------------------------------------------------------------------------------------------------


def test_a_table_comes_back_from_disk_and_only_its_owner_may_read_it(tmp_path):
    stored.save("name", np.arange(5.0))
    (path,) = (tmp_path / "ostraka" / "composition").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (stored.load("name") == np.arange(5.0)).all()
    assert stored.load("another name") is None


@pytest.mark.parametrize("harm", ["flip", "cut", "open", "name"])
def test_a_file_that_is_not_as_written_is_not_used(tmp_path, harm):
    stored.save("name", np.arange(5.0))
    (path,) = (tmp_path / "ostraka" / "composition").iterdir()
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[40] ^= 1
        path.write_bytes(content)
    elif harm == "cut":
        path.write_bytes(content[:-8])
    elif harm == "open":
        path.chmod(0o666)
    else:
        stored.save("other", np.ones(5))
        (other,) = set(path.parent.iterdir()) - {path}
        other.replace(path)
    assert stored.load("name") is None


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    stored.save("name", np.ones(3))
    assert stored.load("name") is None
