"""Digits, small networks and ledgers for the tests of those who learn from private labels."""

from sklearn.datasets import load_digits

from ostraka import Budget, Ledger
from ostraka.networks import TorchClassifier

X, Y = load_digits(return_X_y=True)
X = X / 16
QUICK = {"epochs": 2, "n_threads": 1, "random_state": 0}
MOST = 40.0  # nats; the answers are then the labels, but for one chance in 10^16


def network(**changes):
    return TorchClassifier(**(QUICK | changes))


def book(epsilon=4.0, where=":memory:"):
    return Ledger(where, budget=Budget(epsilon=epsilon, delta=1e-6, adaptive=False))
