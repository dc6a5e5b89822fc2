"""Membership inference: reference models with and without each row, and six statistics of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka import _check
from ostraka.attacks._membership_checks import (
    check_classes,
    check_duplicates,
    check_independent,
    check_sides,
    draw_coins,
    number_copies,
    read_confidences,
    read_members,
    true_label_column,
)
from ostraka.attacks._membership_statistics import STATISTICS, Side, clip, hierarchical, logit, rmia
from ostraka.attacks._references import SavedReferences, train_references
from ostraka.scores import Scores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["ReferenceModels"]

_METHODS = ("hierarchical", *STATISTICS, "rmia", "loss")


class ReferenceModels:
    """Reference models on random halves of the rows: a model's confidence in a row with and without it.

    Parameters
    ----------
    estimator : scikit-learn classifier with ``predict_proba``
        Copied for each model and trained as the target was. A ``random_state`` is drawn for each copy.
        A :class:`~ostraka.networks.TorchClassifier` is trained in stacks.
    n_models : int >= 2
        How many references.
    random_state : int, numpy.random.Generator or None
        Draws who is in which reference, and seeds training.
    checkpoint : path, optional
        A folder of finished references, from which an interrupted ``fit`` continues; it needs an integer
        ``random_state``. As private as the rows.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"references"``.

    Attributes
    ----------
    included : bool array, shape (n_models, n_rows)
        Each row is in each reference by an independent fair coin. The coins of a row which came out all
        alike are tossed again, so that each row is in one reference and out of one. No coin knows the target.
    confidences_ : float64 array, shape (n_models, n_rows)
        Probability of each row's true label by each reference. Private, as are the scores.
    seeds_ : int64 array, shape (n_models,)
        The ``random_state`` that each copy got.

    Raises
    ------
    ValueError
        Fewer than two references, a classifier without ``predict_proba``, a class missing from a reference.

    Guarantees
    ----------
    None: a weak attack proves nothing. Where memberships of the target are independent coins that change
    nothing, members score above others as often as not, with every method and any number of references.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 5)), rng.integers(0, 2, size=400)  # nothing to learn but by heart
    >>> forest = RandomForestClassifier(10, max_depth=6, random_state=0)
    >>> references = ReferenceModels(forest, n_models=8, random_state=0).fit(X, y)
    >>> included = rng.random(400) < 0.5
    >>> target = ReferenceModels.true_label_confidences(forest.fit(X[included], y[included]), X, y)
    >>> references.scores(target, included).auc() > 0.6
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_models: int = 32,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_models = n_models
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Draw the coins and train the references.

        Parameters
        ----------
        X : array or data frame of n_rows rows
            Private. All rows that the target may have seen.
        y : array, shape (n_rows,)
            Private. Their labels.

        Returns
        -------
        ReferenceModels
            This one, with ``included`` and ``confidences_``. The models are not kept.
        """
        labels = np.asarray(y)
        rows = np.asarray(X)
        if labels.ndim != 1 or rows.ndim < 2 or len(rows) != len(labels):
            raise ValueError(f"X must have a row for each label in y, got {rows.shape} and {labels.shape}")
        _check.integer(n_models=self.n_models, least=2)
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                f"checkpoint needs an integer random_state, got {self.random_state!r}: other coins would be "
                "tossed the next time"
            )
        rng = np.random.default_rng(self.random_state)
        included = draw_coins(rng, self.n_models, len(labels))
        check_classes(labels, included)
        self.seeds_ = seeds = rng.integers(2**31, size=self.n_models)
        saved = None
        if self.checkpoint is not None:
            parts = (rows, labels, included, seeds, self.estimator)
            saved = SavedReferences(self.checkpoint, *parts)
        confidences = train_references(
            self.estimator, X, labels, included=included, seeds=seeds, saved=saved, progress=self.progress
        )
        self._keep(confidences, included, copies=number_copies(rows, labels))
        return self

    @classmethod
    def from_confidences(cls, confidences: Any, included: Any) -> Self:
        """Take references which were trained elsewhere.

        Parameters
        ----------
        confidences : array, shape (n_models, n_rows), in [0, 1]
            Private. Probability of each row's true label by each model.
        included : bool array, shape (n_models, n_rows)
            Who was in which. Duplicated rows cannot be seen here: :meth:`fit` sees them.

        Returns
        -------
        ReferenceModels

        Raises
        ------
        ValueError
            Other shapes, fewer than two models, confidences that are no numbers from 0 to 1.

        Examples
        --------
        >>> saved = ReferenceModels.from_confidences([[0.9, 0.2], [0.4, 0.7]], [[True, False], [False, True]])
        >>> saved.scores([0.8, 0.3], [True, False], method="rmia").tpr(fpr=0.0)
        1.0
        """
        design = np.asarray(included)
        values = read_confidences(confidences, name="confidences", shape=design.shape)
        if design.dtype != bool or design.ndim != 2 or len(design) < 2:
            raise ValueError(
                "included must be bool of shape (n_models, n_rows) with two models or more, "
                f"got {design.dtype} of {design.shape}"
            )
        references = cls(None, n_models=len(design))
        references._keep(values, design.copy(), copies=None)
        return references

    @staticmethod
    def true_label_confidences(model: Any, X: Any, y: Any) -> np.ndarray:
        """The probability that a fitted classifier gives each row's true label.

        Parameters
        ----------
        model : classifier with ``predict_proba`` and ``classes_``
        X : array or data frame of n_rows rows
            Private.
        y : array, shape (n_rows,)
            Private. Labels, all among ``model.classes_``.

        Returns
        -------
        float64 array, shape (n_rows,)

        Raises
        ------
        ValueError
            A classifier without ``predict_proba``, a label that it never saw.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> model = DummyClassifier(strategy="prior").fit(np.zeros((4, 1)), ["a", "b", "b", "b"])
        >>> ReferenceModels.true_label_confidences(model, np.zeros((2, 1)), ["a", "b"])
        array([0.25, 0.75])
        """
        return true_label_column(model, X, np.asarray(y))

    def scores(
        self, target_confidences: Any, target_included: Any, *, method: str = "hierarchical"
    ) -> Scores:
        """Score the rows of one target, for an audit or for its rates.

        Parameters
        ----------
        target_confidences : array, shape (n_rows,), in [0, 1]
            Private. What the target says of each row's true label.
        target_included : bool array, shape (n_rows,)
            Private. Who was in the target, by coins that are independent of the references.
        method : {"hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss"}
            Choose it before the rates were seen. See :meth:`statistics`.

        Returns
        -------
        Scores
            Larger: more like a member.

        Raises
        ------
        ValueError
            As :meth:`statistics`; nobody in or nobody out; memberships that depend on those of the references
            (a balanced design); rows that are in the target and out of it at once.
        """
        self._check_fitted()
        member = read_members(target_included, name="target_included", n_rows=self.included.shape[1])
        check_independent(self.included, member)
        check_duplicates(self._copies, member)
        found = self.statistics(target_confidences, method=method)
        return Scores.of(members=found[member], others=found[~member])

    def statistics(self, target_confidences: Any, *, method: str = "hierarchical") -> np.ndarray:
        """Compute one number for each row, larger for rows which seem to be in the target.

        Parameters
        ----------
        target_confidences : array, shape (n_rows,), in [0, 1]
            Private. What the target says of each row's true label.
        method : {"hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss"}

        Returns
        -------
        float64 array, shape (n_rows,)
            A log ratio of densities, for "hierarchical" with another log ratio added; for "rmia" a share of
            rows; for "loss" the logit of the confidence.

        Raises
        ------
        ValueError
            A row that all references have; for "hierarchical" and "student-t" also one that none has. A
            target that is one of the references, confidences that are no numbers from 0 to 1.

        Guarantees
        ----------
        Who was in the target is not read.
        Source: "lira" Carlini et al. 2022, arXiv:2112.03570, Algorithms 1 and 2; "rmia" Zarifzadeh et al.
        2024, arXiv:2312.03262, with all rows as its population; "student-t" the posterior predictive law of a
        normal-inverse-gamma prior, as in arXiv:2603.11799; "hierarchical" docs/membership.md.
        """
        _check.one_of(method=method, allowed=_METHODS)
        self._check_fitted()
        target = read_confidences(
            target_confidences, name="target_confidences", shape=self.included.shape[1:]
        )
        if np.ptp(target):
            same = (self.confidences_ == target).all(axis=1)
            if same.any():
                raise ValueError(
                    f"the target is reference {int(same.argmax())}: leave it out of the references"
                )
        if method == "loss":
            return logit(target)
        check_sides(self.included, method=method)
        if method == "rmia":
            values = clip(self.confidences_)
            return rmia(target, Side.of(values, self.included), Side.of(values, ~self.included))
        if method == "hierarchical":
            return hierarchical(target, self.confidences_, self.included)
        values = logit(self.confidences_)
        sides = (Side.of(values, self.included), Side.of(values, ~self.included))
        return STATISTICS[method](logit(target), sides)

    def _keep(self, confidences: np.ndarray, included: np.ndarray, *, copies: np.ndarray | None) -> None:
        self.confidences_ = confidences
        self.included = included
        self._copies = copies

    def _check_fitted(self) -> None:
        if not hasattr(self, "included"):
            raise ValueError("ReferenceModels must be fitted first: call fit(X, y)")
