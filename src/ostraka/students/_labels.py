"""Private labels, as students that learn from them see them: checked, paid for once, answered with noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ostraka._torch.classifier import TorchClassifier, digest
from ostraka._torch.devices import device
from ostraka.door import release
from ostraka.ledger import Budget, Ledger
from ostraka.private import Adjacency, Private

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from ostraka.curve import Curve
    from ostraka.door import Mechanism

__all__ = ["LabelStudent"]

_DELTA = 1e-5  # of a budget in memory
_ROOM = 1 + 1e-9  # for a price that the ledger rounds up


class LabelStudent(ClassifierMixin, BaseEstimator):
    """What students of private labels share: a network, a ledger, and the one release of the labels."""

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
        """The rows, and the numbers of their private labels; raises what can be known before a charge."""
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        X = validate_data(self, X, dtype=np.float32)
        self.classes_, codes = _coded(y, classes, n_rows=len(X))
        if len(self.classes_) < 2:  # scikit-learn's tests know this sentence
            raise ValueError(f"{name} cannot learn from one class: there must be two or more")
        network = self._new_network()
        if self.ledger is None and network.checkpoint is not None:
            raise ValueError(
                "checkpoint needs a ledger: another process would go on from the file, but ask the labels "
                "again, and nothing would count both. Type ledger=Ledger(path, budget=…)"
            )
        where = device(network.device)
        network.module_ = network.built(n_features=X.shape[1], n_classes=len(self.classes_), seed=0).to(where)
        network.require_logits(torch.as_tensor(X[:2], device=where))
        return X, codes

    def _new_network(self) -> TorchClassifier:
        """Untrained, for the rows and classes of this fit."""
        network = TorchClassifier() if self.network is None else clone(self.network)
        network.classes_, network.n_features_in_ = self.classes_, self.n_features_in_
        return network

    def _asked(self, mechanism: Mechanism, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The noisy answers, charged once."""
        labels = Private(codes, Adjacency.one_label())
        mechanism.uses(labels)
        self.curve_ = mechanism.curve()
        ledger = self._in_memory(digest(X, codes, repr(mechanism))) if self.ledger is None else self.ledger
        answers = release(mechanism, labels, ledger=ledger, key=self.key)
        if len(answers) != len(codes):
            raise ValueError(
                f"key {self.key!r} stands for {len(answers)} labels in this ledger, and these are "
                f"{len(codes)}: type another key"
            )
        return answers

    def _in_memory(self, content: str) -> Ledger:
        """A ledger for exactly one release; the same if this estimator is fitted again to the same data."""
        if getattr(self, "_session", ("",))[0] != content:
            pure = self.curve_.rdp[-1]
            epsilon = _ROOM * (pure if math.isfinite(pure) else self.curve_.epsilon(delta=_DELTA))
            self._session = content, Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=_DELTA))
        return self._session[1]

    def __getstate__(self) -> dict[str, Any]:
        """Without the ledger in memory, whose name knows the labels. One that was given does not travel."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_session", None)
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # noise has no seed
        tags.classifier_tags.poor_score = True  # so few rows as scikit-learn's checks have drown in it
        return tags


def _coded(y: Any, classes: Any, *, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, and the number of each private label among them. No message shows a label."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] != 1:
        raise ValueError(
            f"y must hold the class of each row, got shape {y.shape}: soft labels, votes and one-hot rows "
            "are not what the price is for"
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
            f"y must hold none but the {len(names)} classes that were named: some of {len(y)} are not"
        )
    return names, codes
