"""Smooth sensitivity of the 2018 bound against every histogram of a few ballots, and its two conditions."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from ostraka.core.accounting.smooth import check_conditions, local_sensitivities, smooth_sensitivity
from ostraka.core.mechanisms.argmax import theorem6
from ostraka.core.mechanisms.law import law
from ostraka.mechanisms import GNMax, LNMax, Threshold


def bounds(mechanism, rows, order):
    """The 2018 bound of every row."""
    if not isinstance(mechanism, Threshold):
        published = law(mechanism).stages[0].bound
        return published.rdp(published.log_q(rows), (order,))[:, 0]
    with mp.workdps(30):
        above = [(mp.mpf(float(row.max())) - mechanism.at) / mechanism.sigma for row in rows]
        log_q = np.array([float(mp.log(mp.ncdf(-abs(x)))) for x in above])
    return theorem6(log_q, 2**0.5 * mechanism.sigma, (order,))[:, 0]


def all_histograms(n_teachers, n_classes):
    rows = itertools.product(range(n_teachers + 1), repeat=n_classes)
    return np.array([row for row in rows if sum(row) == n_teachers], dtype=float)


def largest_steps(values, rows):
    """Exact local sensitivity: per histogram, the largest difference to any one ballot away."""
    apart = np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2) / 2
    return np.where(apart <= 1, np.abs(values[:, None] - values[None, :]), 0).max(axis=1), apart


CASES = [
    (GNMax(sigma=3.0), 2.0, 30, 3),
    (GNMax(sigma=3.0), 2.0, 40, 2),
    (LNMax(scale=1.5), 3.0, 24, 3),
    (LNMax(scale=4.0), 8.0, 40, 2),
    (Threshold(at=14, sigma=2.0), 4.0, 24, 3),
]


@pytest.mark.parametrize(("mechanism", "order", "n_teachers", "n_classes"), CASES)
def test_no_histogram_within_d_ballots_is_more_sensitive(mechanism, order, n_teachers, n_classes):
    rows = all_histograms(n_teachers, n_classes)
    exact, apart = largest_steps(bounds(mechanism, rows, order), rows)
    assert exact.max() > 0
    for start in range(0, len(rows), 5):
        got = local_sensitivities(mechanism, rows[start : start + 1], n_teachers=n_teachers, order=order)
        truth = [exact[apart[start] <= d].max() for d in range(n_teachers + 1)]
        assert (got >= np.array(truth) - 1e-15).all()


@pytest.mark.parametrize(("mechanism", "order", "n_teachers", "n_classes"), CASES)
def test_smooth_sensitivity_is_smooth_and_covers_the_local_one(mechanism, order, n_teachers, n_classes):
    rows, beta = all_histograms(n_teachers, n_classes), 0.1
    exact, _ = largest_steps(bounds(mechanism, rows, order), rows)
    exact, rows = exact[::3], rows[::3]
    smooth = np.array(
        [
            smooth_sensitivity(
                local_sensitivities(mechanism, [row], n_teachers=n_teachers, order=order), beta=beta
            )
            for row in rows
        ]
    )
    assert (smooth >= exact - 1e-15).all()
    apart = np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2) / 2
    ratio = np.log(smooth[:, None] / smooth[None, :]) / np.maximum(apart, 1)
    assert ratio.max() <= beta * (1 + 1e-9)
    assert ratio.max() > beta / 2 or smooth.std() < 1e-12


def test_sensitivities_of_queries_add_up_at_every_distance():
    rng = np.random.default_rng(3)
    rows = rng.multinomial(60, [0.7, 0.2, 0.1], size=30).astype(float)
    rows = np.concatenate([rows, [[60.0, 0.0, 0.0], [20.0, 20.0, 20.0], [31.0, 29.0, 0.0]]])
    for mechanism in (GNMax(sigma=8.0), LNMax(scale=8.0), Threshold(at=40, sigma=5.0)):
        together = local_sensitivities(mechanism, rows, n_teachers=60, order=4.0)
        alone = [local_sensitivities(mechanism, [row], n_teachers=60, order=4.0) for row in rows]
        np.testing.assert_allclose(together, np.sum(alone, axis=0), rtol=1e-9)
        assert (np.diff(together) >= -1e-15).all()


def test_beta_discounts_what_is_far_away():
    assert smooth_sensitivity(np.array([1.0, 2.0, 5.0]), beta=1e-9) == pytest.approx(5.0)
    assert smooth_sensitivity(np.array([1.0, 2.0, 5.0]), beta=0.5) == pytest.approx(5 * np.exp(-1))
    assert smooth_sensitivity(np.array([1.0, 2.0, 5.0]), beta=5.0) == 1.0


@pytest.mark.parametrize(
    ("sigma", "order", "holds"),
    [(40.0, 20.0, True), (40.0, 35.0, True), (20.0, 8.0, True), (20.0, 20.0, False), (20.0, 35.0, False)],
)
def test_condition_c6_fails_where_the_authors_code_found_it_to(sigma, order, holds):
    assert check_conditions(GNMax(sigma=sigma), n_classes=10, order=order) == (True, holds)


def test_without_the_conditions_nothing_is_computed():
    with pytest.raises(ValueError, match=r"condition C6 .* method='certificate'"):
        local_sensitivities(GNMax(sigma=20.0), [[30, 20]], n_teachers=50, order=20.0)


def test_other_mechanisms_are_refused():
    with pytest.raises(TypeError, match="3 offers no bound"):
        local_sensitivities(3, [[30, 20]], n_teachers=50, order=4.0)
    with pytest.raises(ValueError, match="largest count"):
        local_sensitivities(Threshold(at=3, sigma=1.0, noise="every"), [[3, 2]], n_teachers=5, order=4.0)
    with pytest.raises(ValueError, match="never falls below"):
        local_sensitivities(GNMax(sigma=0.01), [[3, 2]], n_teachers=5, order=60.0)
