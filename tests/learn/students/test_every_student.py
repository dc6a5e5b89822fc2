"""Every student learns from public rows and some answers alike, and refuses what is no answer."""

from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC

from ostraka import ABSTAIN
from ostraka.core.check import TrainingDiverged
from ostraka.students import Distilled

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 4 == 0, Y, ABSTAIN)
KINDS = [
    *("auto", "boosting", "self-training", "spreading", LogisticRegression(max_iter=1000), LinearSVC()),
    *(RandomForestClassifier(10), LabelSpreading(kernel="knn"), LabelPropagation(kernel="rbf")),
    SelfTrainingClassifier(GaussianNB()),
]
STUDENTS = {str(kind): Distilled(kind, random_state=0) for kind in KINDS}
LEARNERS, TRAINED = [Distilled()], {}
if find_spec("torch"):
    from torch import nn

    from ostraka.students import FixMatch
    from tests.learn.students.test_fixmatch import network as few_epochs
    from tests.learn.students.test_gan import student as gan
    from tests.learn.students.test_networks import network

    STUDENTS |= {
        "network": Distilled(network(), random_state=0),
        "callable": Distilled(network(nn.Linear), random_state=0),
        "pipeline of a network": Distilled(make_pipeline(StandardScaler(), network()), random_state=0),
        "FixMatch": Distilled(FixMatch(network(epochs=100)), random_state=0),
        "GAN": gan(),
    }
    LEARNERS += [gan(), FixMatch(few_epochs())]
    TRAINED = {  # learners by settings of their network
        "GAN": lambda **settings: gan(**{"epochs": 6} | settings),
        "FixMatch": lambda **settings: FixMatch(few_epochs(**{"epochs": 6} | settings), threshold=0.4),
    }
every_student = pytest.mark.parametrize("student", STUDENTS.values(), ids=STUDENTS)


@every_student
def test_it_learns_from_answers_with_names_of_classes(student):
    model = clone(student).fit(X, ANSWERS, classes=NAMES)
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.score(X, NAMES[Y]) > 0.75
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@every_student
def test_a_class_that_nobody_answered_has_a_column_and_no_chance(student):
    model = clone(student).fit(X, np.where(ANSWERS == 1, ABSTAIN, ANSWERS), classes=NAMES)
    assert set(model.predict(X)) == {"setosa", "virginica"}
    if hasattr(model, "predict_proba"):
        sure = model.predict_proba(X)
        assert (sure[:, 1] == 0).all()
        np.testing.assert_allclose(sure.sum(axis=1), 1)
        assert (model.classes_[sure.argmax(axis=1)] == model.predict(X)).all()


@every_student
def test_one_answer_for_all_makes_a_student_that_always_says_that(student):
    model = clone(student).fit(X, np.where(ANSWERS == 2, 2, ABSTAIN), classes=NAMES)
    assert set(model.predict(X)) == {"virginica"}
    if hasattr(model, "predict_proba"):
        assert model.predict_proba(X[:1]).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("y", "classes", "match"),
    [
        (np.full(150, 3), NAMES, "indices of 3 classes"),
        (np.full(150, -2), NAMES, "indices of 3 classes"),
        (np.full(150, ABSTAIN), NAMES, "all 150 are unanswered: ask more, or lower the threshold"),
        (np.full(150, None), None, "all 150 are unanswered"),
        (Y[:-1], None, "one label for each of 150 rows, got 149"),
        (np.eye(3)[Y], NAMES, "1d array"),
        (np.linspace(0, 1, 150), None, "continuous"),
        (Y / 2, NAMES, "continuous"),
        (None, None, "requires y"),
    ],
)
def test_what_are_no_answers_is_refused(y, classes, match):
    for student in LEARNERS:
        with pytest.raises(ValueError, match=match):
            clone(student).fit(X, y, classes=classes)
        with pytest.raises(NotFittedError):
            clone(student).predict(X)


every_trained = pytest.mark.parametrize("name", TRAINED)


@every_trained
def test_a_seed_repeats_the_training_and_leaves_the_callers_chance_alone(name):
    import torch

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first = TRAINED[name](random_state=5).fit(X, ANSWERS)
    assert torch.equal(torch.rand(3), expected)
    second, three = (TRAINED[name](random_state=seed).fit(X, ANSWERS) for seed in (5, 6))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), three.predict_proba(X))


@every_trained
def test_an_interrupted_training_goes_on_from_its_checkpoint_and_no_other_from_it(name, tmp_path):
    events, file = [], tmp_path / "student.pt"

    def stop(_stage, done, _total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TRAINED[name](checkpoint=file, progress=stop).fit(X, ANSWERS)
    again = TRAINED[name](checkpoint=file, progress=lambda *stage: events.append(stage)).fit(X, ANSWERS)
    uninterrupted = TRAINED[name]().fit(X, ANSWERS)
    assert events == [("epochs", 4, 6), ("epochs", 5, 6), ("epochs", 6, 6)]
    np.testing.assert_array_equal(again.predict_proba(X), uninterrupted.predict_proba(X))
    assert again.losses_ == uninterrupted.losses_
    assert len(uninterrupted.losses_) == 6
    changed = clone(again).set_params(**{"unanswered_weight": 2.0} if name == "GAN" else {"threshold": 0.5})
    with pytest.raises(ValueError, match="belongs to another training"):
        changed.fit(X, ANSWERS)


@every_trained
def test_a_loss_that_is_no_number_leaves_the_last_good_networks(name):
    model = TRAINED[name](learning_rate=1e30)
    with pytest.raises(TrainingDiverged, match=r"epoch \d of 6, step \d"):
        model.fit(X, ANSWERS)
    assert np.isfinite(model.predict_proba(X)).all()
