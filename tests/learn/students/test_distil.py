"""Students: from public rows and some answers to a classifier, whatever is missing."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris, make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from ostraka import ABSTAIN
from ostraka.students import Distilled
from tests.learn.students.conftest import checks_of_scikit_learn

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 4 == 0, Y, ABSTAIN)

STUDENTS = [
    "auto",
    "boosting",
    "self-training",
    "spreading",
    LogisticRegression(max_iter=1000),
    RandomForestClassifier(10),
    LinearSVC(),
    LabelSpreading(kernel="knn"),
    LabelPropagation(kernel="rbf"),
    SelfTrainingClassifier(GaussianNB()),
]
every_student = pytest.mark.parametrize("kind", STUDENTS, ids=str)


@checks_of_scikit_learn(
    Distilled("spreading"),
    Distilled(DecisionTreeClassifier()),
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 means unanswered"},
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


@every_student
def test_released_answers_with_names_of_classes(kind):
    student = Distilled(kind, random_state=0).fit(X, ANSWERS, classes=NAMES)
    assert student.classes_.tolist() == NAMES.tolist()
    assert student.score(X, NAMES[Y]) > 0.85


@every_student
def test_labels_that_are_text_just_work(kind):
    labels = np.where(ANSWERS == ABSTAIN, None, NAMES[Y])
    assert Distilled(kind, random_state=0).fit(X, labels).score(X, NAMES[Y]) > 0.85


@pytest.mark.parametrize("unanswered", [None, ABSTAIN, str(ABSTAIN)])
def test_every_spelling_of_no_answer_is_understood(unanswered):
    labels = NAMES[Y].astype(object)
    labels[ANSWERS == ABSTAIN] = unanswered
    labels = labels if unanswered is None or unanswered == ABSTAIN else labels.astype(str)
    assert Distilled("spreading").fit(X, labels).classes_.tolist() == NAMES.tolist()


@every_student
def test_a_class_that_nobody_answered_has_a_column_and_no_chance(kind):
    answers = np.where(ANSWERS == 1, ABSTAIN, ANSWERS)
    student = Distilled(kind, random_state=0).fit(X, answers, classes=NAMES)
    assert set(student.predict(X)) <= {"setosa", "virginica"}
    if hasattr(student, "predict_proba"):
        sure = student.predict_proba(X)
        assert sure.shape == (150, 3)
        assert (sure[:, 1] == 0).all()
        np.testing.assert_allclose(sure.sum(axis=1), 1)
        assert (student.classes_[sure.argmax(axis=1)] == student.predict(X)).all()


@every_student
def test_one_answer_for_all_makes_a_student_that_always_says_that(kind):
    answers = np.where(ANSWERS == 2, 2, ABSTAIN)
    student = Distilled(kind).fit(X, answers, classes=NAMES)
    assert set(student.predict(X)) == {"virginica"}
    if hasattr(student, "predict_proba"):
        assert student.predict_proba(X[:1]).tolist() == [[0, 0, 1]]


def test_no_answer_at_all_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"all 150 are unanswered: ask more, or lower the threshold"):
        Distilled().fit(X, np.full(150, ABSTAIN), classes=NAMES)
    with pytest.raises(ValueError, match="all 150 are unanswered"):
        Distilled().fit(X, np.full(150, None))


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


def test_auto_does_not_compare_on_a_handful_of_answers():
    answers = np.where(np.arange(150) % 5 == 0, Y, ABSTAIN)
    assert Distilled().fit(X, answers, classes=NAMES).name_ == "spreading"


def test_only_semi_supervised_classifiers_see_unanswered_rows():
    assert (
        Distilled(GaussianNB()).fit(X, ANSWERS, classes=NAMES).model_.class_count_.sum()
        == (ANSWERS >= 0).sum()
    )
    assert len(Distilled(LabelSpreading()).fit(X, ANSWERS, classes=NAMES).model_.transduction_) == 150


def test_the_seed_reaches_the_classifier_unless_it_has_one():
    assert Distilled(RandomForestClassifier(2), random_state=7).fit(X, Y).model_.random_state == 7
    assert (
        Distilled(RandomForestClassifier(2, random_state=3), random_state=7).fit(X, Y).model_.random_state
        == 3
    )
    assert Distilled("boosting", random_state=np.random.RandomState(0)).fit(X, Y).score(X, Y) > 0.9


def test_a_pipeline_on_a_table_with_text_sees_the_table():
    table = pd.DataFrame({"kind": NAMES[Y], "size": X[:, 0]})
    encode = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    student = Distilled(make_pipeline(encode, LogisticRegression())).fit(table, ANSWERS, classes=NAMES)
    assert student.score(table, NAMES[Y]) == 1.0


def test_missing_values_pass_only_to_those_who_take_them():
    holes = X.copy()
    holes[0, 0] = np.nan
    assert Distilled(HistGradientBoostingClassifier(max_iter=2)).fit(holes, Y).predict(holes).shape == (150,)
    with pytest.raises(ValueError, match="NaN"):
        Distilled().fit(holes, Y)


@pytest.mark.parametrize(
    ("y", "classes", "match"),
    [
        (np.full(150, 3), NAMES, "indices of 3 classes"),
        (np.full(150, -2), NAMES, "indices of 3 classes"),
        (np.zeros(150), NAMES, "indices of 3 classes"),
        (Y[:-1], None, "one label for each of 150 rows, got 149"),
        (np.linspace(0, 1, 150), None, "continuous"),
        (None, None, "requires y"),
    ],
)
def test_what_are_no_answers_is_refused(y, classes, match):
    with pytest.raises(ValueError, match=match):
        Distilled().fit(X, y, classes=classes)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of auto, boosting, self-training, spreading, got 'gan'"):
        Distilled("gan").fit(X, Y)


def test_before_fitting_there_is_nothing_to_predict():
    with pytest.raises(NotFittedError):
        Distilled().predict(X)
