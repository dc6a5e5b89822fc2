"""Students: from public rows and some answers to a classifier, whatever is missing."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.semi_supervised import LabelPropagation, LabelSpreading
from sklearn.tree import DecisionTreeClassifier

from ostraka import ABSTAIN
from ostraka.students import Distilled
from tests.learn.students.conftest import checks_of_scikit_learn

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 4 == 0, Y, ABSTAIN)


@checks_of_scikit_learn(
    Distilled("spreading"),
    Distilled(DecisionTreeClassifier()),
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 means unanswered"},
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


@pytest.mark.parametrize("unanswered", [None, ABSTAIN, str(ABSTAIN)])
def test_every_spelling_of_no_answer_is_understood(unanswered):
    labels = NAMES[Y].astype(object)
    labels[ANSWERS == ABSTAIN] = unanswered
    labels = labels if unanswered in {None, ABSTAIN} else labels.astype(str)
    student = Distilled().fit(X, labels)
    assert (student.classes_.tolist(), student.name_) == (NAMES.tolist(), "spreading")  # of so few answers
    assert student.score(X, NAMES[Y]) > 0.85


@pytest.mark.parametrize(
    "kind", [LabelSpreading(kernel="knn"), LabelPropagation(kernel="knn"), "spreading"], ids=str
)
def test_a_graph_in_parts_leaves_no_row_without_an_answer(kind):
    rows, cluster = make_blobs(n_samples=90, centers=[[0, 0], [30, 0], [0, 90]], random_state=0)
    answers = np.full(90, ABSTAIN)
    answers[np.flatnonzero(cluster == 0)[:3]], answers[np.flatnonzero(cluster == 1)[:3]] = 0, 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        student = Distilled(kind).fit(rows, answers, classes=["left", "right", "top"])
        sure = student.predict_proba(rows)
    assert np.isfinite(sure).all()
    np.testing.assert_allclose(sure.sum(axis=1), 1)
    # what lies alone is nearest to the left cluster, though "right" is the later class
    assert student.predict(rows)[cluster == 2].tolist() == ["left"] * 30
    assert student.predict(rows)[cluster == 1].tolist() == ["right"] * 30


def test_auto_takes_the_student_that_predicts_held_out_answers_better():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 40))
    table[:, 1:] *= 50  # distances say nothing; one column says all
    steps = (table[:, 0] > 0).astype(int)
    answers = np.where(np.arange(400) < 100, steps, ABSTAIN)
    assert Distilled(random_state=0).fit(table, answers, classes=[0, 1]).name_ == "boosting"
    rows, cluster = make_blobs(n_samples=400, centers=6, n_features=30, cluster_std=6, random_state=0)
    answers = np.where(np.arange(400) < 60, cluster, ABSTAIN)
    assert Distilled(random_state=0).fit(rows, answers, classes=range(6)).name_ == "spreading"


def test_forty_answers_are_enough_to_choose_by_folds_and_fewer_are_spread():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(200, 30))
    table[:, 1:] *= 50  # boosting is better
    steps = (table[:, 0] > 0).astype(int)
    for n_answers, name in ((39, "spreading"), (40, "boosting")):
        answers = np.where(np.arange(200) < n_answers, steps, ABSTAIN)
        assert Distilled(random_state=0).fit(table, answers, classes=[0, 1]).name_ == name


@pytest.mark.parametrize(("n_classes", "rounds"), [(2, 60), (5, 24), (6, 20), (9, 20)])
def test_boosting_grows_trees_of_depth_two_fewer_a_class_for_many(n_classes, rounds):
    rows, labels = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % n_classes
    trees = Distilled("boosting", random_state=4).fit(rows, labels).model_.get_params()
    assert [trees[name] for name in ("n_estimators", "max_depth", "random_state")] == [rounds, 2, 4]
    taught = Distilled("self-training", random_state=4).fit(rows, labels).model_.get_params()
    assert [taught[f"estimator__{name}"] for name in ("n_estimators", "max_depth")] == [rounds, 2]
    assert taught["threshold"] == 0.95


@pytest.mark.parametrize(
    ("answers", "classes", "words"),
    [
        ([0, 1, 3], ["a", "b", "c"], "y must hold indices of 3 classes, or -1 where unanswered"),
        ([0, 1, -2], ["a", "b", "c"], "y must hold indices of 3 classes"),
        ([0.0, 1.0, 2.0], ["a", "b", "c"], "y must hold indices of 3 classes"),
        ([0, 1], ["a", "b", "c"], "y must have one label for each of 3 rows, got 2"),
        ([-1, -1, -1], ["a", "b", "c"], "all 3 are unanswered: ask more, or lower the threshold"),
        ([None, "-1", None], None, "all 3 are unanswered"),
    ],
)
def test_answers_that_do_not_fit_are_refused(answers, classes, words):
    with pytest.raises(ValueError, match=words):
        Distilled().fit(np.eye(3), answers, classes=classes)


def test_only_semi_supervised_classifiers_see_unanswered_rows():
    alone, semi_supervised = (
        Distilled(kind).fit(X, ANSWERS, classes=NAMES) for kind in (GaussianNB(), LabelSpreading())
    )
    assert alone.model_.class_count_.sum() == (ANSWERS >= 0).sum()
    assert len(semi_supervised.model_.transduction_) == 150


def test_the_seed_reaches_the_classifier_unless_it_has_one():
    for classifier_seed, seed in ((None, 7), (3, 3)):
        forest = RandomForestClassifier(2, random_state=classifier_seed)
        assert Distilled(forest, random_state=7).fit(X, Y).model_.random_state == seed
    assert Distilled("boosting", random_state=np.random.RandomState(0)).fit(X, Y).score(X, Y) > 0.9


def test_missing_values_pass_only_to_those_who_take_them():
    holes = X.copy()
    holes[0, 0] = np.nan
    assert Distilled(HistGradientBoostingClassifier(max_iter=2)).fit(holes, Y).predict(holes).shape == (150,)
    with pytest.raises(ValueError, match="NaN"):
        Distilled().fit(holes, Y)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of auto, boosting, self-training, spreading, got 'gan'"):
        Distilled("gan").fit(X, Y)
