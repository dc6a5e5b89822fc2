"""Gaussians about noisy centres: what one row moves, the noise, the price, and what they learn."""

import math
import sys

import numpy as np
import pytest
from scipy.stats import chi2

from ostraka.core.mechanisms import sums
from ostraka.synth import DPGM
from ostraka.synth import fitting as _fitting
from ostraka.synth.clusters import NoisyLloyd
from ostraka.synth.dpgm import Spread
from tests.false_alarm import FALSE_ALARM


def spread(*, sigma=5.0, n_features=6, n_classes=2, clusters_sigma=5.0):
    clusters = NoisyLloyd(
        n_features=n_features, n_classes=n_classes, n_clusters=1, n_iterations=1, sigma=clusters_sigma
    )
    return Spread(clusters=clusters, sigma=sigma, sigma_norms=50.0)


def alike(n=4000, seed=0):
    """Two classes, in which columns 4 and 5 are alike, and column 3 is their opposite."""
    rng = np.random.default_rng(seed)
    y, common = rng.integers(0, 2, n), rng.normal(0, 0.15, n)
    X = np.where(y[:, None] == 0, 0.4, 0.6) + rng.normal(0, 0.03, (n, 6))
    X[:, 4:] += common[:, None]
    X[:, 3] -= common
    return np.clip(X, 0, 1), y


def moved(mechanism, rows):
    """How far the first row moves the table of products, where each product of two columns counts twice."""
    return np.linalg.norm(mechanism.products(rows) - mechanism.products(rows[1:]))


class TestThePrice:
    @pytest.mark.parametrize("sigma", [1e-3, 0.3, 5.0, 900.0, 1e6])
    @pytest.mark.parametrize("d", [1, 2, 50])
    def test_no_row_moves_the_products_by_more_than_its_price(self, sigma, d):
        mechanism = spread(sigma=sigma, n_features=d)
        rng = np.random.default_rng(0)
        worst = rng.normal(size=(40, d))
        worst /= np.linalg.norm(worst, axis=1, keepdims=True)
        worst = np.concatenate([worst, np.full((1, d), d**-0.5), np.full((1, d), 1e9), np.zeros((1, d))])
        largest = max(moved(mechanism, worst[k:]) for k in range(len(worst)))
        price = mechanism.curve().mu_squared
        others = mechanism.clusters.curve() + sums.sums_curve(mechanism.sigma_norms)
        priced = math.sqrt(price - others.mu_squared) * 65536
        assert largest <= priced * (1 + 1e-6)
        assert priced <= max(1.0, 65536 / sigma) * (1 + 1e-6)

    def test_every_release_of_noise_is_paid_for(self, monkeypatch):
        """All noise of one class: clusters, histogram, squares and products, in what one row moves."""
        released, plain = [], sums.with_noise

        def counted(totals, *, sigma, rng, cells=65536.0):
            if cells == 65536.0 and sigma != 65536.0:  # no table of products
                released.append(1 / sigma**2)
            return plain(totals, sigma=sigma, rng=rng, cells=cells)

        monkeypatch.setattr(sums, "with_noise", counted)
        X, y = alike(300)
        mechanism = spread(sigma=7.0)
        private = _fitting.private_rows(X.astype(np.float32), y, None, rng=None)
        mechanism.release(private, rng=np.random.default_rng(0))
        assert mechanism.curve().mu_squared == pytest.approx(sum(released) + 1 / 7.0**2, rel=0.01)

    def test_more_rows_than_sum_exactly_are_refused(self):
        X, y = alike(20)
        private = _fitting.private_rows(X.astype(np.float32), y, None, rng=None)
        monstrous = spread(sigma=1e-3)
        assert monstrous.uses(private) == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ostraka.core.mechanisms.sums.EXACT", 2**28)
            with pytest.raises(ValueError, match="take more noise"):
                monstrous.release(private, rng=np.random.default_rng(0))

    def test_rows_that_share_a_weight_are_refused(self):
        X, y = alike(300)
        shared = _fitting.private_rows(X.astype(np.float32), y, np.repeat(np.arange(100), 3), rng=None)
        for use in (spread().uses, lambda rows: spread().release(rows, rng=np.random.default_rng(0))):
            with pytest.raises(ValueError, match="share of 1"):
                use(shared)


class TestTheNoise:
    def test_of_products_has_half_the_variance_of_that_of_squares(self):
        d = 300
        table = spread(n_features=d).noisy(np.zeros((d, d)), rng=np.random.default_rng(0))
        np.testing.assert_array_equal(table, table.T)
        for noise, sigma in (
            (table.diagonal(), 65536.0),
            (table[np.triu_indices(d, 1)], 65536 / math.sqrt(2)),
        ):
            low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(noise)) * sigma**2
            assert low < (noise**2).sum() < high
        pairs = table[np.triu_indices(d, 1)]
        assert not low < (pairs**2 / 1.05**2).sum() < high

    def test_lies_in_the_middles_of_cells(self):
        table = spread().noisy(np.full((6, 6), 17.0), rng=np.random.default_rng(0))
        np.testing.assert_array_equal(table - 0.5, np.rint(table - 0.5))

    def test_alone_shows_no_direction(self):
        mechanism = spread(n_features=100)
        noisy = mechanism.noisy(np.zeros((100, 100)), rng=np.random.default_rng(0))
        assert (mechanism.factors(noisy, 1e6) ** 2).sum() < 0.01

    def test_of_a_direction_is_taken_off(self):
        """A planted direction: what is kept of it is its own length along the noisy direction."""
        mechanism, d, n = spread(n_features=400), 400, 50_000.0
        planted = np.random.default_rng(1).normal(size=d)
        planted /= np.linalg.norm(planted)
        size = 1.5 * 46341 * math.sqrt(d)
        noisy = mechanism.noisy(size * np.outer(planted, planted), rng=np.random.default_rng(0))
        factors = mechanism.factors(noisy, n)
        assert factors.shape[1] == 1
        direction = factors[:, 0] / np.linalg.norm(factors)
        along = size * (direction @ planted) ** 2 / (n * 13107)
        assert (factors**2).sum() == pytest.approx(along, rel=0.1)
        raw = np.linalg.eigvalsh(noisy)[-1] / (n * 13107)
        assert raw > 1.5 * along


class TestWhatIsLearned:
    def made(self, X, y, **settings):
        fixed = {"n_clusters": 1, "generator": "gaussian", "epsilon": 3.0}
        return DPGM(**fixed | settings).fit(X, y, classes=[0, 1], rng=np.random.default_rng(1))

    def test_columns_vary_together_as_in_the_rows(self):
        X, y = alike()
        rows, labels = self.made(X, y).sample(6000, random_state=0)
        for k in (0, 1):
            correlations = np.corrcoef(rows[labels == k, 3:].T)
            assert correlations[1, 2] > 0.8
            assert correlations[0, 1] < -0.8
            assert rows[labels == k, 4].std() == pytest.approx(X[y == k, 4].std(), rel=0.25)
            np.testing.assert_allclose(rows[labels == k].mean(axis=0), X[y == k].mean(axis=0), atol=0.03)

    def test_binary_rows_are_drawn_as_binary_rows(self):
        X, y = alike(400)
        rows, _ = self.made((X > 0.5).astype(float), y, binary=True).sample(100)
        assert set(np.unique(rows)) <= {0.0, 1.0}

    def test_few_rows_give_centres_alone(self):
        model = self.made(*alike(3), n_clusters=4)
        assert all(table.shape == (6, 0) for table in model.weights_.values())
        assert set(model.sample(50)[1]) <= {0, 1}

    def test_without_labels_each_cluster_has_a_gaussian(self):
        X, _ = alike()
        model = DPGM(3, generator="gaussian", epsilon=3.0).fit(X, rng=np.random.default_rng(0))
        assert sorted(model.weights_) == ["0/factors", "1/factors", "2/factors"]
        first, second = (model.sample(20, random_state=3)[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_needs_no_torch(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        X, y = alike(300)
        assert self.made(X, y).sample(5)[0].shape == (5, 6)


class TestWithoutNoise:
    """What is computed where hardly any noise is drawn, against numpy."""

    @pytest.mark.parametrize("by_class", [True, False])
    def test_factors_are_a_root_of_the_products_of_what_centres_leave_out(self, by_class):
        X, y = alike(3000)
        X, y = X.astype(np.float32), y if by_class else np.zeros(3000, dtype=np.int64)
        noise = dict.fromkeys(("sigma", "sigma_start", "sigma_norms", "sigma_rows"), 1e-3)
        classes = {"n_classes": 2, "n_clusters": 1} if by_class else {"n_clusters": 2}
        clusters = NoisyLloyd(n_features=6, n_iterations=2, longest=2.0, **noise, **classes)
        mechanism = Spread(clusters=clusters, sigma=1e-3, sigma_norms=1e-3)
        private = _fitting.private_rows(X, y, None, rng=None)
        released = mechanism.release(private, rng=np.random.default_rng(0))
        near = ((X[:, None] - released["rows"][None]) ** 2).sum(axis=2).argmin(axis=1)
        member = y if by_class else near
        about = X - released["rows"][member]
        lengths = np.linalg.norm(about, axis=1)
        clip = next(end for end in np.arange(1, 101) * 2 / 100 if (lengths < end).mean() >= 0.75)
        within = about * np.minimum(1, clip / lengths)[:, None]
        for k in range(2):
            factors, rows = released[f"{k}/factors"], within[member == k]
            size = released["sizes"][k]  # of clusters that of the last iteration, before centres moved
            np.testing.assert_allclose(factors @ factors.T, rows.T @ rows / size, atol=2e-5)
            assert abs(size - len(rows)) < (0.1 if by_class else 100)

    def test_new_rows_are_centres_with_normal_steps_along_the_factors(self):
        weights = {
            "0/factors": np.array([[0.1], [0.0], [-0.1], [0.0], [0.0], [0.0]]),
            "1/factors": np.zeros((6, 0)),
        }
        centres, owners = np.full((4, 6), 0.5), np.array([0, 1, 0, 1])
        centres[1, 0], centres[3, 1] = 1.5, -0.5
        got = spread().sampled(weights, centres, owners, rng=np.random.default_rng(3))
        steps = np.random.default_rng(3).normal(size=(2, 1)) * [0.1, 0, -0.1, 0, 0, 0]
        want = np.clip(centres + np.array([steps[0], 0 * steps[0], steps[1], 0 * steps[0]]), 0, 1)
        np.testing.assert_allclose(got, want)

    def test_clusters_are_sampled_by_their_sizes_but_for_those_that_are_noise(self):
        X, y = alike(300)
        model = DPGM(2, generator="gaussian", epsilon=3.0, binary=True)
        model.fit(np.round(X), y, classes=[0, 1], rng=np.random.default_rng(1))
        model.cluster_sizes_ = np.array([-5.0, 0.5, 100.0, 1.0])
        model.cluster_centers_ = np.array([[0.0] * 6, [0.0] * 6, [1.0, 0.0] * 3, [0.5] * 6])
        model.weights_ = {name: np.zeros((6, 0)) for name in model.weights_}
        rows, labels = model.sample(4000, random_state=0)
        members = np.where((rows == [1, 0] * 3).all(axis=1), 2, 3)
        assert (members == 3).mean() == pytest.approx(1 / 101, abs=0.005)
        assert set(np.unique(rows)) == {0.0, 1.0}
        np.testing.assert_array_equal(labels, model.cluster_classes_[np.full(4000, 2)])
        model.cluster_sizes_ = np.array([-5.0, -1.0, -2.0, -3.0])  # then all are as likely
        shares = model.sample(4000, random_state=0)[0].mean(axis=0)
        np.testing.assert_allclose(shares, [0.375, 0.125] * 3, atol=0.04)
        with pytest.raises(ValueError, match="n_rows must"):
            model.sample(-1)

    def test_as_few_rows_as_noise_makes_show_no_direction(self):
        noisy, weight = np.diag([1e9, 0.0, 0, 0, 0, 0]), 6**-0.25
        least = 3 * 5.0 * math.hypot(1, weight) / weight  # three standard deviations of a size
        for n_rows, n_factors in ((least * (1 - 1e-9), 0), (least * (1 + 1e-9), 1)):
            assert spread().factors(noisy, n_rows).shape == (6, n_factors)
