"""Students of noisy counts: right without noise, calibrated with it, and chance where labels are noise."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from ostraka import ABSTAIN
from ostraka.learn.students.counts import sharpness
from ostraka.students import AugmentedSVM, MomentLogistic, SmoothedCounts


def table(n, rng):
    """Five columns of four bins whose labels follow a logistic law, as lines and labels."""
    codes = rng.integers(0, 4, size=(n, 5))
    lines = np.concatenate([np.eye(4)[column] for column in codes.T], axis=1)
    weights = np.linspace(-1.2, 1.2, 20)
    return lines, (rng.random(n) < expit(lines @ weights - 0.3)).astype(int)


def counted(lines, y, sigma, rng, n_classes=2):
    exact = np.stack([lines[y == c].sum(axis=0) for c in range(n_classes)], axis=1)
    return exact + np.rint(sigma * rng.normal(size=exact.shape))


class TestMomentLogistic:
    def test_without_noise_predicts_as_ordinary_logistic_regression(self):
        rng = np.random.default_rng(0)
        private, y = table(20_000, rng)
        public, _ = table(2_000, rng)
        fresh, _ = table(2_000, rng)
        moments = MomentLogistic().fit(public, counted(private, y, 0.0, rng), sigma=0.0, n_units=20_000)
        ordinary = LogisticRegression(C=1.0, max_iter=500).fit(private, y)
        agree = (moments.predict(fresh) == ordinary.predict(fresh)).mean()
        assert agree > 0.96
        apart = moments.predict_proba(fresh)[:, 1] - ordinary.predict_proba(fresh)[:, 1]
        assert np.abs(apart).mean() < 0.02

    def test_standard_errors_are_those_of_repeated_noise(self):
        rng = np.random.default_rng(1)
        private, y = table(20_000, rng)
        public, _ = table(2_000, rng)
        sigma, exact = 200.0, counted(private, y, 0.0, rng)
        coefficients = []
        for _ in range(40):
            noisy = exact + np.rint(sigma * rng.normal(size=exact.shape))
            model = MomentLogistic().fit(public, noisy, sigma=sigma, n_units=20_000)
            coefficients.append(model.coef_[:, 1] - model.coef_[:, 0])
        ratio = np.std(coefficients, axis=0) / model.standard_errors_[:, 1]
        assert 0.75 < np.median(ratio) < 1.3
        assert 0.5 < ratio.min() < ratio.max() < 2

    def test_labels_at_random_give_the_largest_class(self):
        rng = np.random.default_rng(2)
        private, y = table(20_000, rng)
        public, _ = table(1_000, rng)
        shuffled = rng.permutation((rng.random(len(y)) < 0.2).astype(int))
        counts = counted(private, shuffled, 60.0, rng)
        model = MomentLogistic().fit(public, counts, sigma=60.0, n_units=20_000)
        assert (model.predict(public) == 0).mean() > 0.99

    def test_several_classes_and_names(self):
        rng = np.random.default_rng(3)
        codes, names = rng.integers(0, 3, size=6_000), np.array(["x", "y", "z"])
        labels = np.where(rng.random(6_000) < 0.8, codes, rng.integers(0, 3, size=6_000))
        lines = np.eye(3)[codes]
        counts = counted(lines, labels, 10.0, rng, n_classes=3)
        model = MomentLogistic().fit(lines[:300], counts, sigma=10.0, n_units=6_000, classes=names)
        assert model.predict(np.eye(3)).tolist() == ["x", "y", "z"]
        np.testing.assert_allclose(model.predict_proba(np.eye(3)).sum(axis=1), 1.0)

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_it_is_the_mode_of_the_stated_posterior_with_errors_by_the_noise_alone(self, n_classes):
        rng = np.random.default_rng(5)
        lines = np.hstack([np.eye(3)[rng.integers(0, 3, 60)], np.eye(2)[rng.integers(0, 2, 60)]])
        counts = rng.uniform(-4, 300, size=(5, n_classes)).round()  # noise took one below zero
        counts[1] = -4.0
        sigma, n_units, penalty = 9.0, 800, 2.0
        model = MomentLogistic(penalty=penalty).fit(lines, counts, sigma=sigma, n_units=n_units)
        priors = counts.sum(axis=0) / counts.sum()
        sizes, moments, variances, noises = [], [], [], []
        for cell, row in zip(lines.T, counts, strict=True):
            rows, expected = cell.sum(), cell.sum() * n_units / 60
            # the total of noisy counts, and the private rows that so many public ones let expect
            by_noise, by_chance = n_classes * sigma**2, expected * n_units / 60
            sizes.append((expected / by_chance + row.sum() / by_noise) / (1 / by_chance + 1 / by_noise))
            moments.append(row * rows / sizes[-1])
            noises.append((sigma * rows / sizes[-1]) ** 2)
            variances.append(noises[-1] + rows * max(priors * (1 - priors)))

        def posterior(coef, intercept):
            sure = softmax(lines @ coef + intercept, axis=1)
            apart = lines.T @ sure - moments
            return (apart**2 / np.array(variances)[:, None]).sum() / 2 + penalty / 2 * (coef**2).sum()

        best = posterior(model.coef_, model.intercept_)
        steps = 1e-3 * rng.normal(size=(200, 6, n_classes))
        assert min(posterior(model.coef_ + x[:5], model.intercept_ + x[5]) - best for x in steps) > -1e-5
        assert posterior(model.coef_ * 1.05, model.intercept_) > best + 1e-4
        assert posterior(model.coef_ * 0.95, model.intercept_) > best + 1e-4
        sure = model.predict_proba(lines)
        for k in range(n_classes):
            slope = lines.T @ np.diag(sure[:, k] * (1 - sure[:, k])) @ lines
            weighted = slope / np.array(variances)
            reaction = np.linalg.inv(2 * weighted @ slope + penalty / 2 * np.eye(5)) @ weighted
            errors = np.sqrt(np.diag(reaction @ np.diag(2 * np.array(noises)) @ reaction.T))
            np.testing.assert_allclose(model.standard_errors_[:, k], errors, rtol=1e-3)

    def test_refuses(self):
        for lines, counts, settings, words in (
            (np.ones((5, 3)), np.ones((2, 2)), {}, "a row for each cell, got \\(5, 3\\), \\(2, 2\\)"),
            (np.ones(5), np.ones((2, 2)), {}, "a row for each cell"),
            (np.ones((5, 2)), np.ones(2), {}, "a row for each cell"),
            (np.ones((5, 2)), [[1, np.nan], [1, 2]], {}, "finite"),
            (np.full((5, 2), np.inf), np.ones((2, 2)), {}, "finite"),
            (np.ones((5, 2)), np.ones((2, 2)), {"classes": [0, 1, 2]}, "a column for each of 3 classes"),
            (np.ones((5, 2)), np.ones((2, 2)), {"sigma": -1.0}, "sigma must be"),
            (np.ones((5, 2)), np.ones((2, 2)), {"n_units": 0}, "n_units must be"),
        ):
            with pytest.raises(ValueError, match=words):
                MomentLogistic().fit(lines, counts, **{"sigma": 1.0, "n_units": 10} | settings)
        with pytest.raises(ValueError, match="penalty must be"):
            MomentLogistic(penalty=0.0).fit(np.ones((5, 2)), np.ones((2, 2)), sigma=1.0, n_units=10)


class TestSmoothedCounts:
    def smooth_world(self, rng, n=300):
        """Rows on a line, smooth features, and true shares."""
        at = np.linspace(0, 1, n)
        features = np.stack([np.cos(np.pi * k * at) for k in range(8)], axis=1)
        shares = np.stack([expit(8 * (at - 0.5)), expit(8 * (0.5 - at))], axis=1)
        return features, shares - 0.5

    def test_gives_the_closed_form_posterior(self):
        rng = np.random.default_rng(0)
        features, _ = self.smooth_world(rng)
        counts, sigma, scale = rng.normal(size=(8, 2)) * 50, 7.0, 0.5
        student = SmoothedCounts(scale=scale).fit(
            features, counts, sigma=sigma, n_units=900, features=features
        )
        reached = 3 * features.T @ features
        centred = counts - counts.mean(axis=1, keepdims=True)
        precision = reached.T @ reached / sigma**2 + np.eye(8) / scale**2
        mean = np.linalg.solve(precision, reached.T @ centred / sigma**2)
        np.testing.assert_allclose(student.shares_, features @ mean, rtol=1e-7, atol=1e-10)
        covariance = features @ np.linalg.inv(precision) @ features.T
        np.testing.assert_allclose(student.deviation_, np.sqrt(np.diag(covariance)), rtol=1e-5)

    def test_the_scale_is_that_under_which_the_counts_are_likeliest(self):
        rng = np.random.default_rng(4)
        features, shares = self.smooth_world(rng)
        counts = features.T @ shares + 20 * rng.normal(size=(8, 2))
        centred = counts - counts.mean(axis=1, keepdims=True)
        reached = features.T @ features  # of 300 units
        likelihoods = {
            scale: multivariate_normal(cov=scale**2 * reached @ reached.T + 400 * np.eye(8))
            .logpdf(centred.T)
            .sum()
            for scale in 2.0 ** np.arange(-8.0, 4.5, 0.5)
        }
        student = SmoothedCounts().fit(features, counts, sigma=20.0, n_units=300, features=features)
        assert student.scale_ == max(likelihoods, key=likelihoods.__getitem__)

    def test_the_scale_adapts_to_signal_and_noise(self):
        rng = np.random.default_rng(1)
        features, shares = self.smooth_world(rng)
        exact = 10 * features.T @ shares
        settings = {"sigma": 30, "n_units": 3e3, "features": features}
        noisy = [size * exact + 30 * rng.normal(size=exact.shape) for size in (0.0, 1.0)]
        scales = [SmoothedCounts().fit(features, counts, **settings).scale_ for counts in noisy]
        assert scales[0] < scales[1]

    def test_confidence_is_how_often_it_is_right(self):
        rng = np.random.default_rng(2)
        features, _ = self.smooth_world(rng)
        sure, right = [], []
        for _ in range(60):  # worlds drawn from the prior
            shares = features @ (0.3 * rng.normal(size=(8, 2)))
            exact = features.T @ (shares - shares.mean(axis=1, keepdims=True))
            noisy = exact + 40 * rng.normal(size=exact.shape)
            student = SmoothedCounts(scale=0.3).fit(
                features, noisy, sigma=40.0, n_units=300, features=features
            )
            sure.append(student.confidence_)
            right.append(student.labels_ == shares.argmax(axis=1))
        assert np.mean(sure) == pytest.approx(np.mean(right), abs=0.06)

    def test_probability_is_how_likely_the_label_is(self):
        rng = np.random.default_rng(3)
        features, _ = self.smooth_world(rng)
        stated_chances, true = [], []
        for _ in range(60):  # worlds drawn from the prior, whose shares stay between 0 and 1
            shares = features @ (0.07 * rng.normal(size=(8, 2)))
            shares -= shares.mean(axis=1, keepdims=True)
            noisy = features.T @ shares + 4 * rng.normal(size=(8, 2))
            student = SmoothedCounts(scale=0.07).fit(
                features, noisy, sigma=4.0, n_units=300, features=features
            )
            stated_chances.append(student.probability_.mean())
            true.append(0.5 + shares[np.arange(300), student.labels_].mean())
        assert np.mean(stated_chances) == pytest.approx(np.mean(true), abs=0.015)
        assert np.mean(true) > 0.55

    def sure(self, sigma=30.0):
        rng = np.random.default_rng(4)
        features, shares = self.smooth_world(rng)
        noisy = 10 * features.T @ shares + sigma * rng.normal(size=(8, 2))
        return SmoothedCounts().fit(features, noisy, sigma=sigma, n_units=3e3, features=features), shares

    def test_sure_labels_are_as_many_as_are_expected_to_be_right(self):
        posterior, shares = self.sure()
        sizes = []
        for right in (0.99, 0.9, 0.8):
            sure = posterior.sure_labels(right=right)
            accepted = sure != ABSTAIN
            sizes.append(accepted.sum())
            assert (sure[accepted] == posterior.labels_[accepted]).all()
            assert posterior.probability_[accepted].mean() >= right - 0.02
            assert (sure[accepted] == shares.argmax(axis=1)[accepted]).mean() >= right
        assert 30 <= sizes[0] < sizes[1] < sizes[2]

    def test_no_class_is_lost_even_where_noise_drowns_all(self):
        posterior, _ = self.sure(sigma=1e6)
        sure = posterior.sure_labels()
        for label in np.unique(posterior.labels_):
            assert (sure == label).sum() >= 0.1 * (posterior.labels_ == label).sum()

    def test_refuses_a_share_out_of_range_and_other_shapes(self):
        with pytest.raises(ValueError, match="right must be"):
            self.sure()[0].sure_labels(right=0.0)
        wide, counts = np.ones((5, 2)), np.ones((3, 2))
        for settings, table, words in (
            ({}, counts, "shape"),
            ({}, counts[:2] * np.nan, "finite"),
            ({"scale": -1.0}, counts[:2], "scale must be"),
        ):
            with pytest.raises(ValueError, match=words):
                SmoothedCounts(**settings).fit(wide, table, sigma=1.0, n_units=9, features=wide)


class TestAugmentedSVM:
    def test_it_is_the_machine_of_scikit_learn_with_a_width_of_the_rows(self):
        X, y = load_digits(n_class=3, return_X_y=True)
        weight = np.linspace(0.2, 2, 60)
        distances = ((X[:60, None] - X[:60]) ** 2).sum(axis=2)
        plain = SVC(C=0.7, gamma=4 / distances.mean(), break_ties=True)
        plain.fit(X[:60], y[:60], sample_weight=weight)
        model = AugmentedSVM(penalty=0.7).fit(X[:60], y[:60], weight)
        scores = model.decision_function(X)
        np.testing.assert_allclose(scores, plain.decision_function(X), atol=1e-9)
        np.testing.assert_array_equal(model.predict(X), plain.predict(X))
        np.testing.assert_allclose(model.predict_proba(X), softmax(scores, axis=1), atol=1e-12)
        two = y < 2  # then scores are one column, of the second class
        halves = AugmentedSVM().fit(X[two], y[two])
        expected = expit(halves.decision_function(X))
        np.testing.assert_allclose(halves.predict_proba(X)[:, 1], expected, atol=1e-12)

    def test_a_sharpness_makes_scores_as_sure_as_asked(self):
        scores = np.random.default_rng(0).normal(size=(400, 3))
        for factor in (2.0**-6, 2.0**-5.75, 1.0, 2.0**0.25, 2.0**10):
            confidence = softmax(factor * scores, axis=1).max(axis=1).mean()
            assert sharpness(scores, confidence=float(confidence)) == factor
        assert sharpness(scores, confidence=1.0) == 2.0**10
        assert sharpness(scores, confidence=1 / 3) == 2.0**-6
        with pytest.raises(ValueError, match="confidence must be"):
            sharpness(scores, confidence=1.1)

    def test_small_changes_help_with_few_images(self):
        X, y = load_digits(return_X_y=True)
        plain, moved = (AugmentedSVM(image_shape=shape).fit(X[:150], y[:150]) for shape in (None, (8, 8)))
        assert moved.score(X[600:1200], y[600:1200]) > plain.score(X[600:1200], y[600:1200]) + 0.03

    def test_one_class_is_said_always(self):
        model = AugmentedSVM().fit(np.eye(4), ["a"] * 4, classes=["b", "a"])
        assert model.predict(np.eye(4)).tolist() == ["a"] * 4
        assert model.predict_proba(np.eye(4)).tolist() == [[0.0, 1.0]] * 4

    def test_it_says_how_sure_it_is_of_every_class(self):
        X, y = load_digits(return_X_y=True)
        majority = y[:200] != 3
        classes = np.arange(9, -1, -1)  # in any order, and one of them without a row
        model = AugmentedSVM().fit(X[:200][majority], y[:200][majority], classes=classes)
        model.sharpness_ = sharpness(model.decision_function(X[200:400]), confidence=0.9)
        sure = model.predict_proba(X[200:400])
        np.testing.assert_allclose(sure.sum(axis=1), 1.0)
        assert (sure[:, 6] == 0).all()
        np.testing.assert_array_equal(classes[sure.argmax(axis=1)], model.predict(X[200:400]))
        assert sure.max(axis=1).mean() == pytest.approx(0.9, abs=0.02)
        with pytest.raises(ValueError, match="every label"):
            AugmentedSVM().fit(X[:50], y[:50], classes=[0, 1])

    def test_weights_count(self):
        X = np.array([[0.0], [0.1], [1.0], [1.1]] * 5)
        y = np.array([0, 0, 1, 1] * 5)
        wrong = np.where(np.arange(20) == 2, 0, y)
        weight = np.where(np.arange(20) == 2, 1e-6, 1.0)
        assert AugmentedSVM().fit(X, wrong, weight).score(X, y) == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_bins_and_weights_are_the_same_classifier_in_plain_scikit_learn(n_classes, tmp_path):
    from ostraka import PATEClassifier
    from ostraka.core.imports import skops_io

    rng = np.random.default_rng(0)
    numbers, kinds = rng.normal(size=(3000, 3)).round(1), np.eye(5)[rng.integers(0, 5, 3000)]
    kinds[:2500, 0] = 0  # rows without a kind, and a kind too rare for a bin of its own
    X = np.hstack([numbers[:, :2], kinds, numbers[:, 2:]])
    y = np.array(["b", "a", "c"])[np.digitize(numbers[:, 0] + kinds[:, 2], [0, 1][: n_classes - 1])]
    model = PATEClassifier(way="counts", epsilon=4.0, delta=1e-5)
    model.fit(X[:2400], y[:2400], X_public=X[2500:][kinds[2500:].sum(axis=1) == 1])
    plain = model.to_sklearn(columns=[f"x{k}" for k in range(8)])
    without = rng.normal(size=(500, 8)).round(0) * [1, 1, 0, 0, 0, 0, 0, 1]
    fresh = np.vstack([X, without])
    np.testing.assert_array_equal(plain.predict(fresh), model.predict(fresh))
    np.testing.assert_allclose(plain.predict_proba(fresh), model.predict_proba(fresh), atol=1e-12)
    skops_io().dump(plain, tmp_path / "student.skops")
    loaded = skops_io().load(tmp_path / "student.skops")
    np.testing.assert_array_equal(loaded.predict_proba(fresh), plain.predict_proba(fresh))
