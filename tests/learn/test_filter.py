"""The filter: closed forms of one round, rare classes, people, many classes, controls, and the front door."""

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import hadamard
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from ostraka import Budget, BudgetExceeded, Ledger, PATEClassifier
from ostraka.learn.students import filter as students_filter
from ostraka.learn.students.filter import KalmanLinear, KalmanLogistic, chances
from ostraka.learn.ways.filter import Filter
from ostraka.learn.ways.plan import Facts
from ostraka.mechanisms import NoisyCounts
from ostraka.voters import QuantileCells
from ostraka.voters.rows import balanced_residuals, probabilities, summed


def table(n_rows, *, share=0.5, strength=1.5, seed=0, n_columns=8):
    """Rows whose second class has this share; two columns say something about it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, n_columns))
    odds = strength * (rows[:, 0] - rows[:, 1]) / np.sqrt(2)
    threshold = np.quantile(odds + rng.logistic(size=100_000)[rng.integers(0, 100_000, n_rows)], 1 - share)
    return rows, (odds + rng.logistic(size=n_rows) > threshold).astype(int)


def planned(rows, *, n_units, n_classes=2, epsilon=1.0, relation="zero-out"):
    facts = Facts(
        n_units=n_units, n_classes=n_classes, grouped=False, epsilon=epsilon, delta=1e-6, relation=relation
    )
    return Filter.planned(None, rows, facts)


def learned(plan_of_filter, rows, y, rng, n_classes=2):
    """The coefficients after all rounds with seeded noise: a simulation."""
    plan, lines = plan_of_filter.plan, plan_of_filter.cells.lines(rows)

    def sums(coef, _):
        def residuals(odds, batch):
            return balanced_residuals(odds, y[batch], plan.ballot)

        sums_of_rows = summed(lines, coef, residuals, resolution=plan.resolution)
        return sums_of_rows + plan.mechanism.sigma * rng.normal(size=sums_of_rows.shape)

    return plan_of_filter.learned(n_classes, sums).coef_


class TestTheFilter:
    def test_without_noise_it_reaches_logistic_regression(self):
        rows, y = table(9000)
        plan = planned(rows[:1000], n_units=5000, epsilon=20.0)
        coef = learned(plan, rows[1000:6000], y[1000:6000], np.random.default_rng(0))
        ours = roc_auc_score(y[6000:], chances(plan.cells.features(rows[6000:]) @ coef)[:, 1])
        alone = LogisticRegression().fit(rows[1000:6000], y[1000:6000])
        assert ours > roc_auc_score(y[6000:], alone.predict_proba(rows[6000:])[:, 1]) - 0.015

    def test_the_share_of_a_rare_class_is_told_by_the_first_round(self):
        share = 0.04
        rows, y = table(9000, share=share, strength=1.0, n_columns=4)
        plan = planned(rows[:1000], n_units=5000)
        new, sure, order = plan.cells.features(rows[6000:]), [], []
        for seed in range(4):
            coef = learned(plan, rows[1000:6000], y[1000:6000], np.random.default_rng(seed))
            sure.append(chances(new @ coef)[:, 1])
            order.append(roc_auc_score(y[6000:], sure[-1]))
        # ten times four seeds: 0.043 to 0.047, and 0.704 to 0.717; 0.743 without privacy
        assert abs(np.mean(sure) - share) < 0.4 * share
        assert np.mean(order) > 0.68

    def test_shuffled_labels_give_an_area_of_a_half_over_many_shuffles(self):
        rows, y = table(3000)
        plan = planned(rows[:500], n_units=1500)
        areas = []
        for seed in range(30):
            rng = np.random.default_rng(seed)
            coef = learned(plan, rows[500:2000], rng.permutation(y[500:2000]), rng)
            areas.append(roc_auc_score(y[2000:], chances(plan.cells.features(rows[2000:]) @ coef)[:, 1]))
        # a false alarm in 1e-6 of all runs: 4.9 standard errors
        assert abs(np.mean(areas) - 0.5) < 4.9 * np.std(areas) / np.sqrt(30)
        assert np.std(areas) < 0.2

    def test_a_hundred_classes(self):
        rng = np.random.default_rng(0)
        middles = rng.normal(size=(100, 20))
        y = rng.integers(0, 100, size=14_000)
        rows = middles[y] + 0.4 * rng.normal(size=(14_000, 20))
        plan = planned(rows[:1500], n_units=12_000, n_classes=100, epsilon=8.0)
        coef = learned(plan, rows[1500:13_500], y[1500:13_500], rng, 100)
        right = chances(plan.cells.features(rows[13_500:]) @ coef).argmax(axis=1) == y[13_500:]
        assert right.mean() > 0.3  # chance is 0.01


class TestTheFrontDoor:
    rows, y = table(2600)
    public, private, new = rows[:500], rows[500:2000], rows[2000:]

    def model(self, **settings):
        usual = {"way": "filter", "epsilon": 2.0, "delta": 1e-5, "classes": [0, 1]}
        return PATEClassifier(**usual | settings)

    def fit(self, groups=None, **settings):
        return self.model(**settings).fit(self.private, self.y[500:2000], self.public, groups)

    def test_people_with_several_rows_are_protected_whole(self):
        people = np.arange(1500) // 3
        model = self.fit(people)
        assert {entry.unit for entry in model.ledger_.entries()} == {"person"}
        assert model.plan_.n_units == 500
        assert roc_auc_score(self.y[2000:], model.predict_proba(self.new)[:, 1]) > 0.6  # about 0.8

    def test_a_frame_of_kinds_and_missing_numbers_has_probabilities(self):
        def frame(rows):
            made = pd.DataFrame(rows[:, :3], columns=["a", "b", "c"])
            made["kind"] = np.where(rows[:, 3] > 0, "x", "y")
            made.loc[::7, "c"] = None
            return made

        model = self.model(epsilon=4.0, relation="zero-out")
        model.fit(frame(self.private), self.y[500:2000], X_public=frame(self.public))
        sure = model.predict_proba(frame(self.new))
        np.testing.assert_allclose(sure.sum(axis=1), 1)
        assert roc_auc_score(self.y[2000:], sure[:, 1]) > 0.7  # about 0.83

    def test_it_is_what_auto_takes_where_nothing_else_is_named_and_says_what_to_expect(self):
        model = self.fit(way="auto", relation="zero-out", epsilon=4.0)
        assert (model.way_, model.result_.settings["way"]) == ("filter", "filter")
        utility = model.evaluate(self.new, self.y[2000:]).utility
        assert model.expected_ == utility["expected"]
        # errs low, by up to three errors: the mean of many tables is in docs/record/tables-compared.md
        assert -4 < (utility["expected"]["auc"] - utility["auc"]) / utility["expected"]["auc_error"] < 2.5
        assert 0.01 < utility["expected"]["auc_error"] < 0.1

    def test_settings_that_other_ways_have_and_a_ledger_that_cannot_pay(self):
        with pytest.raises(ValueError, match="a Spectrum"):
            self.fit(cells=QuantileCells())
        with pytest.raises(ValueError, match="must be None"):
            self.fit(student="logistic")
        with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=False)) as ledger:
            ledger.charge(NoisyCounts(sigma=4000.0), uses=1, unit="row", simulation=False)
            with pytest.raises(BudgetExceeded, match="5 ×"):
                self.fit(ledger=ledger, epsilon=3.0)
            assert len(ledger.entries()) == 1


def test_axes_with_variances_of_their_own_are_the_whole_covariance_where_features_are_orthogonal(monkeypatch):
    """Rows of a balanced design, in the first round: then every covariance is diagonal."""
    design = hadamard(8)[:, [1, 2, 4, 0]] / 2
    sums = np.array([[90.0], [-40.0], [10.0], [60.0]])
    of = {"n_classes": 2, "n_units": 4000, "n_rounds": 3, "sigma": 20.0}
    whole = KalmanLogistic(design, [1.0, 0.5, 2.0], **of).step(sums)
    monkeypatch.setattr(students_filter, "_MOST_WORK", 0)
    axes = KalmanLogistic(design, [1.0, 0.5, 2.0], **of).step(sums)
    assert not axes._whole
    assert whole.weights_.max() < 0.99
    np.testing.assert_allclose(axes.weights_, whole.weights_, rtol=1e-6)
    np.testing.assert_allclose(axes.coef_, whole.coef_, rtol=1e-6, atol=1e-9)


def by_bayes(rows, variances, tables, *, n_classes, n_units, sigma, whole, clips=()):
    """What filters know after all tables, by Bayes' rule in its plain form with the densities of scipy.

    Of numbers instead of classes where there are clips. Returns the coefficients, the weights of the filters,
    and the covariances of the likeliest one in the directions of the given axes.
    """
    some = rows[np.linspace(0, len(rows) - 1, min(2000, len(rows))).astype(int)]
    n_features, n_columns, middle = rows.shape[1], 1 if n_classes == 2 else n_classes, rows[:, -1].mean()
    moments = rows.T @ rows / len(rows)
    axes = np.eye(n_features) if whole else np.linalg.eigh(moments)[1]
    only = np.asarray if whole else lambda matrix: np.diag(np.diag(matrix))
    seen, doubt = some @ axes, 0.05 if clips else 1 / 0.15
    ridge = 1e-6 * np.trace(moments) / n_features * np.eye(n_features) * whole
    sampling = only(axes.T @ np.linalg.inv(moments + ridge) @ axes) * doubt / n_units
    priors = [
        only(axes.T @ np.diag([*scale * np.asarray(variances), 36 / middle**2]) @ axes)
        for scale in ((0.01, 0.05, 0.2, 0.8) if clips else (0.05, 0.2, 0.8, 3.0))
    ]
    means = np.zeros((4, n_columns, n_features))
    spreads = np.array([[prior + sampling] * n_columns for prior in priors])
    evidence, coef = np.zeros(4), np.zeros((n_features, n_columns))
    for turn, table in enumerate(tables):
        at = coef
        if clips:
            slopes, offsets = np.full((len(some), 1), 1 / clips[turn]), np.zeros((len(some), 1))
        else:
            posed = probabilities(some @ coef)
            if n_columns == 1:
                weights = 1 / posed.max(axis=1)
            else:  # the longest way from the probabilities to a class
                weights = 1 / np.linalg.norm(np.eye(n_classes) - posed[:, None], axis=2).max(axis=1)
            if turn == 0:
                mean = seen.mean(axis=0) @ axes.T
                length = n_units * mean @ mean * weights[0]
                shares = 1 / n_classes + mean @ table / length
                least = max(1.5 * sigma * np.linalg.norm(mean) / length, 0.02 / n_classes)
                shares = np.clip(shares, min(least, 1 / n_classes), 1 - min(least, 1 / n_classes))
                odds = np.log(shares) - (np.log(1 - shares) if n_columns == 1 else np.log(shares).mean())
                at = np.vstack([np.zeros((n_features - 1, n_columns)), odds / middle])
            sure = probabilities(some @ at)[:, -n_columns:]
            slopes = weights[:, None] * sure * (1 - sure)
            offsets = weights[:, None] * (sure - posed[:, -n_columns:])
        for column in range(n_columns):
            there, slope = axes.T @ at[:, column], slopes[:, column]
            bend = only(n_units * (seen.T * slope) @ seen / len(seen))
            measured = axes.T @ table[:, column] - n_units * seen.T @ offsets[:, column] / len(seen)
            for k in range(4):
                mean, spread = means[k, column], spreads[k, column]
                wrong = np.einsum("ij,jk,ik->i", seen, spread, seen) + (seen @ (mean - there)) ** 2
                unsure = slope**2 * np.minimum(wrong, 4.0) + offsets[:, column] ** 2
                sampled = n_units**2 / len(rows) * only((seen.T * unsure) @ seen / len(seen))
                noise = sigma**2 * np.eye(n_features) + sampled
                law = multivariate_normal(bend @ (mean - there), bend @ spread @ bend + noise)
                evidence[k] += law.logpdf(measured)
                precision = np.linalg.inv(spread) + bend @ np.linalg.inv(noise) @ bend
                score = np.linalg.inv(noise) @ (measured + bend @ there)
                means[k, column] = np.linalg.solve(precision, np.linalg.solve(spread, mean) + bend @ score)
                spreads[k, column] = np.linalg.inv(precision)
        weights = np.exp(evidence - evidence.max()) / np.exp(evidence - evidence.max()).sum()
        ends = means
        if turn == len(tables) - 1:  # less what private rows would leave unsure without noise
            ends = [
                m @ np.linalg.inv(prior + sampling) @ prior for m, prior in zip(means, priors, strict=True)
            ]
        coef = axes @ np.einsum("k,kcf->fc", weights, np.array(ends))
    return coef, weights, spreads[evidence.argmax()]


def posed_rows(n_rows, n_features=3, seed=0):
    """Rows of length 1 at most with a constant."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n_rows, n_features - 1)) * np.linspace(0.2, 0.4, n_features - 1)
    rows = np.column_stack([numbers, np.full(n_rows, 0.5)])
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)


@pytest.mark.parametrize("n_rows", [40, 2300])  # of many rows, 2,000 tell the curvature
@pytest.mark.parametrize(("n_classes", "whole"), [(2, True), (2, False), (3, False)])
def test_three_rounds_are_bayes_rule(n_classes, whole, n_rows, monkeypatch):
    if not whole:
        monkeypatch.setattr(students_filter, "_MOST_WORK", 0)
    rows, n_columns = posed_rows(n_rows), 1 if n_classes == 2 else n_classes
    signs = np.array([[1.0, -0.5, -0.8], [-0.6, 0.9, 0.1], [0.7, -1.2, 0.3]])[:, :n_columns]
    tables = [60.0 * signs, -25.0 * signs, 9.0 * signs]
    of = {"n_classes": n_classes, "n_units": 700, "sigma": 12.0}
    model = KalmanLogistic(rows, [1.0, 0.4], n_rounds=3, **of)
    for table in tables:
        model.step(table)
    coef, weights, spreads = by_bayes(rows, [1.0, 0.4], tables, whole=whole, **of)
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-9)
    covariances = [spread if whole else np.diag(spread) for spread in model.covariance_]
    np.testing.assert_allclose(covariances, spreads, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="all rounds were taken"):
        model.step(tables[0])


def test_a_rare_class_is_read_as_one_of_the_least_share():
    """A first table that nobody could have summed: no class is taken for rarer than the noise tells."""
    rows, of = posed_rows(40), {"n_classes": 3, "n_units": 700}
    table = np.outer(rows.mean(axis=0), [900.0, -700.0, -200.0])
    for sigma in (0.5, 30.0, 300.0):  # the least share is 2/3 of a percent, told by the noise, or a third
        model = KalmanLogistic(rows, [1.0, 0.4], n_rounds=2, sigma=sigma, **of).step(table)
        after = [table, np.zeros((3, 3))]
        coef, _, _ = by_bayes(rows, [1.0, 0.4], after, whole=False, sigma=sigma, **of)
        np.testing.assert_allclose(model.step(after[1]).coef_, coef, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("n_rows", [40, 2300])
def test_rounds_of_numbers_are_bayes_rule(n_rows):
    rows, clips = posed_rows(n_rows), (1.0, 0.5, 0.25)
    tables = [size * np.array([[1.0], [-0.5], [0.8]]) for size in (90.0, 40.0, -20.0)]
    model = KalmanLinear(rows, [1.0, 0.4], n_units=700, n_rounds=3, sigma=12.0)
    for table, clip in zip(tables, clips, strict=True):
        model.step(table, clip=clip)
    of = {"n_classes": 2, "n_units": 700, "sigma": 12.0, "whole": True, "clips": clips}
    coef, weights, (spread,) = by_bayes(rows, [1.0, 0.4], tables, **of)
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.covariance_[0], spread, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("n_classes", "whole"), [(2, True), (2, False), (3, False)])
def test_what_to_expect_is_the_accuracy_and_the_area_in_worlds_of_the_posterior(
    n_classes, whole, monkeypatch
):
    if not whole:
        monkeypatch.setattr(students_filter, "_MOST_WORK", 0)
    rows, n_columns = posed_rows(60), 1 if n_classes == 2 else n_classes
    model = KalmanLogistic(rows, [1.0, 0.4], n_classes=n_classes, n_units=700, n_rounds=2, sigma=12.0)
    model.step(60.0 * np.array([[1.0, -0.5, -0.8], [-0.6, 0.9, 0.1], [0.7, -1.2, 0.3]])[:, :n_columns])
    axes, rng, figures = np.eye(3) if whole else model.axes_, np.random.default_rng(0), []
    sure = chances(rows @ model.coef_)
    for _ in range(50):
        apart = rng.normal(size=(3, n_columns))
        roots = [np.linalg.cholesky(c if whole else np.diag(c)) for c in model.covariance_]
        moved = np.stack([root @ x for root, x in zip(roots, apart.T, strict=True)], axis=1)
        true = chances(rows @ (model.coef_ + axes @ moved))
        areas = []
        for k in range(n_classes == 2, n_classes):
            yes, no = true[:, k, None], 1 - true[:, k]
            above = (sure[:, k, None] > sure[:, k]) + 0.5 * np.eye(60)
            areas.append((yes * no * above).sum() / (yes.sum() * no.sum()))
        figures.append((true[np.arange(60), sure.argmax(axis=1)].mean(), np.mean(areas)))
    (accuracy, area), (accuracy_error, area_error) = np.mean(figures, axis=0), np.std(figures, axis=0)
    sampling = 1 / (4 * 60)  # variance of a share of 60 rows, at most
    assert model.expected() == pytest.approx(
        {
            "accuracy": accuracy,
            "auc": 0.5 + 1.05 * (area - 0.5),
            "accuracy_error": np.sqrt(accuracy_error**2 + sampling),
            "auc_error": np.sqrt((2 * area_error) ** 2 + (0.15 * 1.05 * (area - 0.5)) ** 2 + sampling),
        },
        rel=1e-6,
    )
