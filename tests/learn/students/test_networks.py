"""Torch networks as students of released answers, on their own and behind the whole pipeline."""

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch", reason="pip install '.[torch]'")
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from torch import nn  # noqa: E402

from ostraka import ABSTAIN, PATEClassifier  # noqa: E402
from ostraka.networks import TorchClassifier  # noqa: E402
from ostraka.students import Distilled, FixMatch  # noqa: E402

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 4 == 0, Y, ABSTAIN)
QUICK = {"epochs": 60, "batch_size": 16, "learning_rate": 0.01, "n_threads": 1}

STUDENTS = {
    "by name": TorchClassifier(**QUICK),
    "module": TorchClassifier(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), **QUICK),
    "callable": TorchClassifier(nn.Linear, **QUICK),
    "FixMatch": FixMatch(TorchClassifier(**{**QUICK, "epochs": 100})),
    "in a pipeline": make_pipeline(StandardScaler(), TorchClassifier(**QUICK)),
}
every_student = pytest.mark.parametrize("kind", STUDENTS.values(), ids=STUDENTS)


@every_student
def test_a_network_learns_from_released_answers(kind):
    student = Distilled(kind, random_state=0).fit(X, ANSWERS, classes=NAMES)
    assert student.score(X, NAMES[Y]) > 0.75
    np.testing.assert_allclose(student.predict_proba(X).sum(axis=1), 1)


def test_it_learns_from_a_table_too():
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    assert Distilled(STUDENTS["by name"], random_state=0).fit(table, ANSWERS).score(table, Y) > 0.85


def test_only_as_many_outputs_as_classes_were_answered():
    answers = np.where(ANSWERS == 1, ABSTAIN, ANSWERS)
    student = Distilled(STUDENTS["by name"], random_state=0).fit(X, answers, classes=NAMES)
    assert set(student.predict(X)) == {"setosa", "virginica"}
    assert (student.predict_proba(X)[:, 1] == 0).all()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=name, marks=[] if name in {"by name", "callable"} else [pytest.mark.slow])
        for name, kind in STUDENTS.items()
    ],
)
def test_the_students_seed_reaches_the_network(kind):
    one, two, three = (
        Distilled(clone(kind), random_state=seed).fit(X, ANSWERS).predict_proba(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)


@pytest.mark.parametrize(
    "kind",
    [STUDENTS["by name"], pytest.param(STUDENTS["FixMatch"], marks=pytest.mark.slow)],
    ids=["by name", "FixMatch"],
)
def test_a_network_is_the_student_of_private_teachers_and_says_what_it_is_unsure_of(kind, same_draws):
    model = PATEClassifier(
        n_teachers=10,
        epsilon=60.0,
        delta=1e-3,
        n_answers=20,
        student=kind,
        random_state=0,
        allow_overlap=True,
    ).fit(X, NAMES[Y], X_public=X)
    assert model.student_.name_ == type(kind).__name__
    assert model.score(X, NAMES[Y]) > 0.7
    assert len(model.asked_) == 20


def test_a_network_that_does_not_fit_is_found_before_anything_is_paid():
    wide = TorchClassifier(nn.Linear(9, 3), **QUICK)
    model = PATEClassifier(n_teachers=15, epsilon=60.0, delta=1e-3, student=wide, allow_overlap=True)
    with pytest.raises(ValueError, match="cannot learn; on public rows with made-up labels"):
        model.fit(X, NAMES[Y], X_public=X)
    assert not hasattr(model, "ledger_")
