"""Digits, small networks and ledgers for the tests of those who learn from private labels."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from ostraka import Budget, Ledger
from ostraka.core.check import TrainingDiverged
from ostraka.networks import TorchClassifier

X, Y = load_digits(return_X_y=True)
X = X / 16
QUICK = {"epochs": 2, "n_threads": 1, "random_state": 0}
MOST = 40.0  # nats; the answers are then the labels, but for one chance in 10^16


def network(**changes):
    return TorchClassifier(**(QUICK | changes))


def book(epsilon=4.0, where=":memory:"):
    return Ledger(where, budget=Budget(epsilon=epsilon, delta=1e-6, adaptive=False))


def check_divergence(learner, **settings):
    """A last training that diverges keeps the last good state, and what was paid for is used again."""
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
