"""Torch networks as students of released answers, on their own and behind the whole pipeline."""

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch", reason="pip install '.[torch]'")
from sklearn.datasets import load_iris  # noqa: E402
from torch import nn  # noqa: E402

from ostraka import ABSTAIN, PATEClassifier  # noqa: E402
from ostraka.networks import TorchClassifier  # noqa: E402
from ostraka.students import Distilled  # noqa: E402

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 4 == 0, Y, ABSTAIN)
QUICK = {"epochs": 60, "batch_size": 16, "learning_rate": 0.01, "n_threads": 1}


def network(module="perceptron", **settings) -> TorchClassifier:
    return TorchClassifier(module, **QUICK | settings)


def test_it_learns_from_a_table_too():
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    assert Distilled(network(), random_state=0).fit(table, ANSWERS).score(table, Y) > 0.85


@pytest.mark.parametrize("module", ["perceptron", nn.Linear])
def test_the_students_seed_reaches_the_network(module):
    first, second, three = (
        Distilled(network(module), random_state=seed).fit(X, ANSWERS).predict_proba(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, three)


def test_a_network_is_the_student_of_private_teachers_and_says_what_it_is_unsure_of(same_draws):
    plan = {"n_teachers": 10, "epsilon": 60.0, "delta": 1e-3, "n_answers": 20, "allow_overlap": True}
    model = PATEClassifier(**plan, student=network(), random_state=0).fit(X, NAMES[Y], X_public=X)
    assert model.student_.name_ == "TorchClassifier"
    assert model.score(X, NAMES[Y]) > 0.7
    assert len(model.asked_) == 20


def test_a_network_that_does_not_fit_is_found_before_anything_is_paid():
    wide = network(nn.Linear(9, 3))
    model = PATEClassifier(n_teachers=15, epsilon=60.0, delta=1e-3, student=wide, allow_overlap=True)
    with pytest.raises(ValueError, match="cannot learn; on public rows with made-up labels"):
        model.fit(X, NAMES[Y], X_public=X)
    assert not hasattr(model, "ledger_")
