"""Membership inference: formulas against plain ones, a fitted family, what is refused."""

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from ostraka.attacks import ReferenceModels
from ostraka.audit.attacks.membership import (
    Side,
    normal_inverse_gamma,
    normal_posterior,
    number_copies,
    shrunk_log_ratio,
)
from ostraka.audits import one_run_lower_bound
from ostraka.scores import Scores
from tests.audit.attacks.membership_worlds import METHODS, references, world


def logit(p):
    return np.log(p / (1 - p))


# Formulas, written out for one row at a time.


@pytest.fixture
def arrays():
    return world(np.random.default_rng(1), 9, 60, effect=1.0)


def test_lira_is_the_log_ratio_of_two_normal_densities(arrays):
    confidences, included = arrays
    statistics = references(*arrays).statistics(confidences[0], method="lira")
    rows = [
        row for row in range(60) if included[1:, row].sum() > 1 and (~included[1:, row]).sum() > 1
    ]  # with two models on each side
    assert len(rows) > 50
    for row in rows:
        logits, have = logit(confidences[:, row]), included[1:, row]
        inside, outside = logits[1:][have], logits[1:][~have]
        expected = stats.norm(inside.mean(), inside.std()).logpdf(logits[0]) - stats.norm(
            outside.mean(), outside.std()
        ).logpdf(logits[0])
        assert statistics[row] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_lira_with_a_fixed_variance_pools_the_deviations_from_each_rows_mean(arrays):
    confidences, included = arrays
    statistics = references(*arrays).statistics(confidences[0], method="lira-fixed")
    z = logit(confidences)
    density = []
    for side in (included, ~included):
        parts = [z[1:, row][side[1:, row]] for row in range(60)]
        squares = sum(((part - part.mean()) ** 2).sum() for part in parts)
        sigma = np.sqrt(squares / sum(len(part) - 1 for part in parts))
        density.append(
            [stats.norm(part.mean(), sigma).logpdf(x) for part, x in zip(parts, z[0], strict=True)]
        )
    assert statistics == pytest.approx(np.subtract(*density), rel=1e-9, abs=1e-9)


def test_lira_is_offline_where_no_model_has_the_row():
    confidences, _ = world(np.random.default_rng(2), 8, 20, effect=1.0)
    statistics = ReferenceModels.from_confidences(confidences[1:], np.zeros((8, 20), dtype=bool)).statistics(
        confidences[0], method="lira"
    )
    z = logit(confidences)
    below = stats.norm(z[1:].mean(axis=0), z[1:].std(axis=0)).cdf(z[0])
    assert statistics == pytest.approx(logit(below), rel=1e-6)


def test_rmia_counts_the_rows_with_a_smaller_ratio(arrays):
    confidences, included = arrays
    ratio = []
    for row in range(60):
        have = included[1:, row]
        typical = (confidences[1:, row][have].mean() + confidences[1:, row][~have].mean()) / 2
        ratio.append(confidences[0, row] / typical)
    expected = [np.mean([theirs <= mine for theirs in ratio]) for mine in ratio]
    assert references(*arrays).statistics(confidences[0], method="rmia") == pytest.approx(expected)


def test_rmia_guesses_what_models_with_the_row_would_say_where_there_is_none():
    confidences, _ = world(np.random.default_rng(4), 8, 40, effect=1.0)
    models = ReferenceModels.from_confidences(confidences[1:], np.zeros((8, 40), dtype=bool))
    outside = confidences[1:].mean(axis=0)
    ratio = confidences[0] / (((1 + 0.3) * outside + (1 - 0.3)) / 2)  # Zarifzadeh et al. 2024, with a = 0.3
    expected = (ratio[:, None] >= ratio).mean(axis=1)
    assert models.statistics(confidences[0], method="rmia") == pytest.approx(expected)


def test_student_t_is_the_predictive_law_of_updating_one_logit_at_a_time():
    logits, target = np.array([0.3, 1.9, -0.4]), 2.2
    centre, weight, shape, rate = 0.5, 0.7, 2.0, 1.3
    side = Side.of(logits[:, None], np.ones((3, 1), dtype=bool))
    statistics = normal_inverse_gamma(
        np.array([target]), side, centre=centre, weight=weight, shape=shape, rate=rate
    )
    for x in logits:
        rate += weight * (x - centre) ** 2 / (2 * (weight + 1))
        centre, weight, shape = (weight * centre + x) / (weight + 1), weight + 1, shape + 0.5

    def joint(variance):
        normal = stats.norm(centre, np.sqrt(variance * (1 + 1 / weight))).pdf(target)
        return normal * stats.invgamma(shape, scale=rate).pdf(variance)

    assert np.exp(statistics[0]) == pytest.approx(integrate.quad(joint, 0, np.inf)[0], rel=1e-6)


def test_the_hierarchical_means_are_those_of_the_joint_normal_law():
    inside, outside = np.array([2.5, 3.5]), np.array([0.5, 1.0, -0.2])
    sides = tuple(Side.of(x[:, None], np.ones((len(x), 1), dtype=bool)) for x in (inside, outside))
    variances = (np.array([0.8]), np.array([1.7]))
    means, errors = normal_posterior(
        sides, variances, level=(0.4, 2.0), shift=(np.array([1.1]), np.array([0.6]))
    )
    # Rows: mean with, mean without, then what was seen; columns: level, shift, five errors.
    reads = np.array([[1, 1], [0, 1], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1]])[:, ::-1]
    prior = np.diag([2.0, 0.6])
    joint = reads @ prior @ reads.T + np.diag([0, 0, 0.8, 0.8, 1.7, 1.7, 1.7])
    start = reads @ [0.4, 1.1]
    gain = joint[:2, 2:] @ np.linalg.inv(joint[2:, 2:])
    assert np.ravel(means) == pytest.approx(
        start[:2] + gain @ (np.concatenate([inside, outside]) - start[2:])
    )
    assert np.ravel(errors) == pytest.approx(np.diag(joint[:2, :2] - gain @ joint[2:, :2]))


def test_with_many_references_the_hierarchical_statistic_is_that_of_lira():
    confidences, included = world(np.random.default_rng(3), 400, 300, effect=1.0)
    models = references(confidences, included)
    statistics, lira = (
        models.statistics(confidences[0], method=method) for method in ("hierarchical", "lira")
    )
    assert stats.spearmanr(statistics, lira).statistic > 0.995


@pytest.mark.parametrize("swapped", [False, True])
def test_two_references_split_their_variance_as_the_targets_logits_say(swapped):
    """The likelihood ratio of the law that the logits are drawn from is found, but for estimated figures."""
    rng, n = np.random.default_rng(21), 6_000
    deviations = (2.0, 0.7) if swapped else (0.7, 2.0)  # with the row, without it
    level = rng.normal(1, 3, n)
    member = rng.random(n) < 0.5
    target = rng.normal(level + 1.5 * member, np.where(member, *deviations))
    logits = [
        rng.normal(level + shift, deviation) for shift, deviation in zip((1.5, 0), deviations, strict=True)
    ]
    sides = tuple(Side.of(side_logits[None], np.ones((1, n), dtype=bool)) for side_logits in logits)

    def ratio(first, theirs):
        variances = (np.full(n, first), np.full(n, theirs))
        shift = (np.full(n, 1.5), np.full(n, 1e-6))
        means, errors = normal_posterior(sides, variances, level=(1.0, 9.0), shift=shift)
        logs = [
            stats.norm.logpdf(target, m, np.sqrt(v + e))
            for m, v, e in zip(means, variances, errors, strict=True)
        ]
        return logs[0] - logs[1]

    def auc(ratios):
        return Scores.of(members=ratios[member], others=ratios[~member]).auc()

    best, equal = (auc(ratio(*weights)) for weights in (np.square(deviations), (2.245, 2.245)))
    assert auc(shrunk_log_ratio(target, sides)) > best - 0.01 > equal


@pytest.mark.parametrize("n_models", [2, 4, 31])
def test_the_hierarchical_statistic_adds_rmias_ratio_and_less_of_it_with_more_models(n_models):
    confidences, included = world(np.random.default_rng(8), n_models, 300, effect=1.0)
    statistics = references(confidences, included).statistics(confidences[0])
    likelihoods = shrunk_log_ratio(
        logit(confidences[0]),
        tuple(Side.of(logit(confidences[1:]), side) for side in (included[1:], ~included[1:])),
    )
    means = [
        np.array([confidences[1:, row][side[1:, row]].mean() for row in range(300)])
        for side in (included, ~included)
    ]
    weight = 32 / (8 + n_models)
    assert statistics - likelihoods == pytest.approx(
        weight * np.log(2 * confidences[0] / sum(means)), abs=1e-9
    )


def test_loss_is_the_logit_and_stays_finite_at_the_ends():
    models = ReferenceModels.from_confidences(
        [[0.0, 0.5, 1.0], [1.0, 0.4, 0.3]], [[True, False, True], [False, True, False]]
    )
    for method in METHODS:
        assert np.isfinite(models.statistics([1.0, 0.5, 0.0], method=method)).all()
    statistics = models.statistics([1.0, 0.5, 0.0], method="loss")
    assert statistics[1] == 0
    assert statistics[0] > 20 > -20 > statistics[2]


# A fitted family.


@pytest.fixture(scope="module")
def by_heart():
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 2, size=600)
    return X, y, RandomForestClassifier(10, max_depth=6)


def test_what_a_forest_learned_by_heart_is_found_and_proves_a_bound(by_heart):
    X, y, forest = by_heart
    models = ReferenceModels(forest, n_models=6, random_state=0).fit(X, y)
    assert models.included.shape == models.confidences_.shape == (6, 600)
    assert 0.45 < models.included.mean() < 0.55
    member = np.random.default_rng(9).random(600) < 0.5
    fitted = forest.set_params(random_state=1).fit(X[member], y[member])
    target = ReferenceModels.true_label_confidences(fitted, X, y)
    scores = models.scores(target, member)
    assert scores.auc() > 0.65
    assert one_run_lower_bound(scores, delta=1e-5).epsilon > 0


@pytest.mark.parametrize(
    "rows", [[[0.0, np.nan], [-0.0, np.nan], [1.0, 2.0]], [["ab", 1], ["".join("ab"), 1], ["a", 1]]]
)
def test_copies_are_rows_of_equal_values_whatever_holds_them(rows):
    rows = np.array(rows, dtype=float if isinstance(rows[0][0], float) else object)
    assert number_copies(rows, np.zeros(3, dtype=int)).tolist() == [0, 0, 1]
    assert number_copies(rows, np.arange(3)).tolist() == [0, 1, 2]


def test_copies_in_the_target_and_out_of_it_are_refused_with_their_number(by_heart):
    X, y, _ = by_heart
    X, y = np.vstack([X, X[:3], X[:1]]), np.concatenate([y, y[:3], y[:1]])
    models = ReferenceModels(GaussianNB(), n_models=2, random_state=0).fit(X, y)
    member = np.random.default_rng(10).random(604) < 0.5
    member[:4] = [True, True, False, True]
    member[600:] = [False, True, True, True]  # rows 0, 600 and 603; row 1 is on one side; 2 and 602
    target = ReferenceModels.true_label_confidences(GaussianNB().fit(X[member], y[member]), X, y)
    with pytest.raises(ValueError, match=r"5 rows of 604 have a copy"):
        models.scores(target, member)


# What else is refused.


def test_references_are_two_or_more(by_heart, arrays):
    X, y, forest = by_heart
    with pytest.raises(ValueError, match="n_models must be an integer >= 2"):
        ReferenceModels(forest, n_models=1).fit(X, y)
    with pytest.raises(ValueError, match="two models or more"):
        ReferenceModels.from_confidences([[0.5, 0.4]], [[True, False]])
    with pytest.raises(ValueError, match="fitted first"):
        ReferenceModels(forest).scores([0.5, 0.4], np.array([True, False]))


@pytest.mark.parametrize("method", ["hierarchical", "student-t"])
def test_rows_that_every_reference_has_or_none_are_counted(arrays, method):
    confidences, included = arrays
    always, never = included.copy(), included.copy()
    always[1:, :2], never[1:, :3] = True, False
    with pytest.raises(ValueError, match="2 rows are in every reference"):
        references(confidences, always).statistics(confidences[0], method=method)
    with pytest.raises(ValueError, match="3 rows are in no reference"):
        references(confidences, never).statistics(confidences[0], method=method)
    assert np.isfinite(references(confidences, never).statistics(confidences[0], method="lira")).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1, 1.1])
def test_confidences_that_are_no_numbers_from_0_to_1_are_counted(arrays, bad):
    confidences, included = arrays
    broken = confidences.copy()
    broken[:, 4] = bad
    with pytest.raises(ValueError, match="which 9 of 540 are not"):
        references(broken, included)
    with pytest.raises(ValueError, match="which 1 of 60 are not"):
        references(confidences, included).scores(broken[0], included[0])


def test_a_target_among_its_references_is_refused(arrays):
    confidences, included = arrays
    with pytest.raises(ValueError, match="the target is reference 3"):
        references(confidences, included).statistics(confidences[4])


def test_wrong_shapes_methods_classes_and_classifiers_are_refused(by_heart, arrays):
    confidences, included = arrays
    models = references(confidences, included)
    for member in (included[0, 1:], included[0].astype(int)):
        with pytest.raises(ValueError, match="target_included must be bool"):
            models.scores(confidences[0], member)
    with pytest.raises(ValueError, match="rows which are not"):
        models.scores(confidences[0], np.ones(60, dtype=bool))
    with pytest.raises(ValueError, match="method must be one of"):
        models.statistics(confidences[0], method="best")
    with pytest.raises(ValueError, match="included must be bool"):
        ReferenceModels.from_confidences(confidences, included.astype(int))
    X, y, _ = by_heart
    with pytest.raises(ValueError, match="no row of some class"):
        ReferenceModels(GaussianNB(), n_models=8, random_state=0).fit(X, np.where(np.arange(600) == 7, 5, y))
    with pytest.raises(ValueError, match="predict_proba, which LinearSVC has not"):
        ReferenceModels(LinearSVC(), n_models=2).fit(X, y)
    with pytest.raises(ValueError, match="X must have a row for each label"):
        ReferenceModels(GaussianNB()).fit(X, y[1:])
    with pytest.raises(ValueError, match="600 rows of y have a label"):
        ReferenceModels.true_label_confidences(GaussianNB().fit(X, y), X, y + 2)


def test_references_that_say_the_same_of_every_row_are_refused():
    models = ReferenceModels.from_confidences([[0.5] * 4] * 2, [[True, False] * 2, [False, True] * 2])
    with pytest.raises(ValueError, match="the same of all 4 rows"):
        models.statistics([0.5, 0.6, 0.5, 0.5], method="lira")
