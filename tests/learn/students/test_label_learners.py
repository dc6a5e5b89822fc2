"""Those who learn from private labels: one charge whatever happens, and errors before it."""

import pickle

import numpy as np
import pytest
import torch

from ostraka.core.check import TrainingDiverged
from ostraka.students import ALIBI, MultiStage
from tests.learn.students.conftest import checks_of_scikit_learn
from tests.learn.students.label_learners import MOST, X, Y, book, network

pytestmark = pytest.mark.usefixtures("same_draws")  # what is learned from noisy labels is a matter of luck

LABEL = 918273645  # as a class, nobody would meet it by accident in a message
every_learner = pytest.mark.parametrize("learner", [ALIBI, MultiStage])


@checks_of_scikit_learn(
    *(kind(network(batch_size=8, learning_rate=0.01), epsilon=MOST) for kind in (ALIBI, MultiStage))
)
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


@every_learner
def test_the_same_key_in_the_same_ledger_is_one_release_in_another_process_too(learner, tmp_path):
    how = {"mechanism": "laplace"} if learner is ALIBI else {}
    with book(where=tmp_path / "ledger") as ledger:
        first = learner(network(), epsilon=3.0, ledger=ledger, **how).fit(X, Y)
    with book(where=tmp_path / "ledger") as ledger:
        again = learner(network(), epsilon=3.0, ledger=ledger, **how).fit(X, Y)
        assert (ledger.count(), ledger.unit) == (1, "label")
        np.testing.assert_array_equal(first.answers_, again.answers_)
        np.testing.assert_allclose(first.predict_proba(X), again.predict_proba(X), rtol=1e-6)
        second = learner(network(epochs=1), epsilon=0.5, ledger=ledger, key="another", **how).fit(X, Y)
        assert ledger.count() == 2
        assert (second.answers_ != first.answers_).any()
        assert not ledger.simulation


@every_learner
def test_divergence_keeps_the_last_good_state_and_costs_nothing_again(learner):
    settings = {} if learner is ALIBI else {"shares": [1.0]}
    with book() as ledger:
        fast = network(epochs=6, learning_rate=1e30, optimizer=torch.optim.SGD)
        model = learner(fast, epsilon=4.0, ledger=ledger, **settings)
        with pytest.raises(TrainingDiverged, match="learning_rate"):
            model.fit(X, Y)
        answers = model.answers_
        assert np.isfinite(model.predict_proba(X)).all()
        model.set_params(network__learning_rate=0.1).fit(X, Y)
        assert ledger.count() == 1
        np.testing.assert_array_equal(model.answers_, answers)


@every_learner
def test_it_travels_without_what_knows_the_labels(learner):
    model = learner(network(), epsilon=2.0).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert not hasattr(again, "_session")
    with book() as ledger, pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(learner(network(), epsilon=2.0, ledger=ledger))


@every_learner
@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"epsilon": 0.0}, {}, "epsilon must be finite and > 0"),
        ({"epsilon": -1.0}, {}, "epsilon must be finite and > 0"),
        ({"epsilon": float("nan")}, {}, "epsilon must be finite and > 0"),
        ({"temperature": 0.0}, {}, "temperature must be finite and > 0"),
        ({"network": network(device="nowhere")}, {}, "device 'nowhere' is not available"),
        ({"network": network(learning_rate=0.0)}, {}, "learning_rate must be finite and > 0"),
        ({}, {"y": np.eye(10)[Y]}, r"got shape \(1797, 10\): no soft labels"),
        ({}, {"y": Y + 0.5}, "Unknown label type"),
        ({}, {"y": Y[:5]}, "y must have one label for each of 1797 rows, got 5"),
        ({}, {"y": None}, "requires y to be passed"),
        ({}, {"y": np.zeros(len(X), dtype=int)}, "cannot learn from one class"),
        (
            {},
            {"y": np.where(np.arange(1797) == 3, LABEL, Y), "classes": range(10)},
            "the 10 declared classes",
        ),
        ({}, {"y": Y.astype(str), "classes": range(10)}, "the 10 declared classes"),
        ({}, {"X": np.full_like(X, np.nan)}, "NaN"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_charged(learner, settings, data, message):
    with book(100.0) as ledger:
        model = learner(**{"network": network(), "epsilon": 1.0, "ledger": ledger} | settings)
        with pytest.raises(ValueError, match=message) as caught:
            model.fit(**{"X": X, "y": Y} | data)
        assert ledger.count() == 0
        assert str(LABEL) not in str(caught.value)
