"""The base of students that learn from private labels: checks, the single release, and the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ostraka._torch.checkpoints import digest
from ostraka._torch.devices import device
from ostraka.door import release
from ostraka.ledger import Budget, Ledger
from ostraka.networks import TorchClassifier
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from ostraka.curve import Curve
    from ostraka.mechanisms.protocols import Mechanism

__all__ = ["LabelStudent"]

_DELTA = 1e-5  # of the budget of a ledger in memory
_MARGIN = 1 + 1e-9  # because the ledger rounds prices up


class LabelStudent(ClassifierMixin, BaseEstimator):
    """The common part of students of private labels: a network, a ledger, and one release of the labels."""

    network: TorchClassifier | None
    ledger: Ledger | None
    key: str
    classes_: np.ndarray
    curve_: Curve
    network_: TorchClassifier

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 of shape (n_rows, n_classes)."""
        check_is_fitted(self, "network_")
        return self.network_.predict_proba(validate_data(self, X, reset=False, dtype=np.float32))

    def _checked(self, X: Any, y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray]:
        """The rows and the class indices of their private labels. Everything that can fail is tried here."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        X = validate_data(self, X, dtype=np.float32)
        self.classes_, codes = _coded(y, classes, n_rows=len(X))
        if len(self.classes_) < 2:  # scikit-learn's tests expect this sentence
            raise ValueError(f"{name} cannot learn from one class: there must be two or more")
        network = self._new_network()
        if self.ledger is None and network.checkpoint is not None:
            raise ValueError(
                "checkpoint needs a ledger: another process would continue from the file but ask the labels "
                "again, and the second cost would not be counted. Type ledger=Ledger(path, budget=…)"
            )
        where = device(network.device)
        network.module_ = network.new_module(n_features=X.shape[1], n_classes=len(self.classes_), seed=0).to(
            where
        )
        network.require_logits(torch.as_tensor(X[:2], device=where))
        return X, codes

    def _new_network(self) -> TorchClassifier:
        """An untrained network for the rows and classes of this fit."""
        network = TorchClassifier() if self.network is None else clone(self.network)
        network.classes_, network.n_features_in_ = self.classes_, self.n_features_in_
        return network

    def _released(self, mechanism: Mechanism, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The noisy labels, charged once."""
        labels = Private(codes, Adjacency.one_label())
        mechanism.uses(labels)
        self.curve_ = mechanism.curve()
        ledger = self._in_memory(digest(X, codes, repr(mechanism))) if self.ledger is None else self.ledger
        answers = release(mechanism, labels, ledger=ledger, key=self.key)
        if len(answers) != len(codes):
            raise ValueError(
                f"key {self.key!r} names {len(answers)} labels in this ledger, but there are "
                f"{len(codes)} here: type another key"
            )
        return answers

    def _in_memory(self, content: str) -> Ledger:
        """A ledger for exactly one release, reused if this estimator is fitted again to the same data."""
        if getattr(self, "_session", ("",))[0] != content:
            pure = self.curve_.rdp[-1]
            epsilon = _MARGIN * (pure if math.isfinite(pure) else self.curve_.epsilon(delta=_DELTA))
            self._session = content, Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=_DELTA))
        return self._session[1]

    def __getstate__(self) -> dict[str, Any]:
        """The state without the ledger in memory, whose key is a hash of the labels."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_session", None)
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the noise has no seed
        tags.classifier_tags.poor_score = True  # the noise hides the few labels of scikit-learn's checks
        return tags


def _coded(y: Any, classes: Any, *, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes and each private label's index. No message shows a label."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] != 1:
        raise ValueError(
            f"y must hold the class of each row, got shape {y.shape}: the price does not cover soft labels, "
            "votes or one-hot rows"
        )
    y = column_or_1d(y, warn=True, dtype=None)
    if len(y) != n_rows:
        raise ValueError(f"y must have one label for each of {n_rows} rows, got {len(y)}")
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    if classes is None:
        names, codes = np.unique(y, return_inverse=True)
        return names, codes.astype(np.int64)
    names = np.unique(np.asarray(classes))
    number = {name: place for place, name in enumerate(names.tolist())}
    codes = np.array([number.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (codes < 0).any():
        raise ValueError(
            f"y must hold only the {len(names)} classes in classes=: some of {len(y)} labels are others"
        )
    return names, codes
