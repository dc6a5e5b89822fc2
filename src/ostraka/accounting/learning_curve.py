"""The learning curve of a task: accuracy against rows, and how far teachers agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import betaincinv

from ostraka import _check
from ostraka.private import Private

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LearningCurve"]

# floor, begin and spread of a typical task, an easy one and a hard one. Close to these: a census table
# (floor 0.15, begin 2.5, spread 0.9) and scanned digits (0.02, 4). Nothing is known of yours.
_ASSUMED = ((0.10, 4.0, 1.0), (0.03, 2.0, 0.7), (0.18, 12.0, 1.5))
_FLOORS, _BEGINS = np.linspace(0.0, 0.6, 121), np.geomspace(0.1, 300.0, 81)
_MODELS, _RESAMPLED, _LEAST_ROWS = 12, 9, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurve:
    """Accuracy of a model against its number of rows. Public: it must not come from the private rows.

    A model trained on n rows errs with probability floor + (guess - floor) / sqrt(1 + n / begin), where
    guess = 1 - 1 / n_classes. Some questions are easy and some are hard: the share of teachers who are
    right about a question has a Beta law with this mean accuracy.

    Attributes
    ----------
    n_classes : int >= 2
    floor : float in [0, 1)
        Error of a model trained on any number of rows.
    begin : float > 0, in rows
        How many it takes to begin to learn.
    spread : float > 0
        Sum of the Beta law's parameters: near 0 teachers all agree, right or wrong; large, each errs alone.

    Examples
    --------
    >>> census = LearningCurve(n_classes=2, floor=0.15, begin=2.5, spread=0.9)
    >>> [round(census.accuracy(n), 2) for n in (10, 100, 10_000)]
    [0.69, 0.8, 0.84]
    """

    n_classes: int
    floor: float
    begin: float
    spread: float

    def __post_init__(self) -> None:
        _check.integer(n_classes=self.n_classes, least=2)
        _check.positive(begin=self.begin, spread=self.spread)
        if not 0 <= self.floor < 1:
            raise ValueError(f"floor must be >= 0 and < 1, got {self.floor!r}")

    @classmethod
    def assumed(cls, *, n_classes: int) -> tuple[Self, ...]:
        """Return learning curves to plan with if nothing is known: typical, easy and hard.

        Examples
        --------
        >>> typical, easy, hard = LearningCurve.assumed(n_classes=2)
        >>> easy.accuracy(100) > typical.accuracy(100) > hard.accuracy(100)
        True
        """
        return tuple(cls(n_classes=n_classes, floor=f, begin=b, spread=s) for f, b, s in _ASSUMED)

    @staticmethod
    def measured(
        estimator: Any, X: Any, y: Any, *, X_test: Any, y_test: Any, rng: np.random.Generator
    ) -> tuple[LearningCurve, ...]:
        """Fit the model to how an estimator does on small parts of a public, labelled table.

        Parameters
        ----------
        estimator : scikit-learn classifier
            The kind of teacher to plan with; a clone is trained on each part.
        X, y, X_test, y_test : arrays
            **Public** rows with labels, like the private ones: an open data set, last year's release.
        rng : numpy.random.Generator

        Returns
        -------
        tuple of LearningCurve
            The best fit, then fits to nine resamplings of the models: their range is the uncertainty of
            the fit, not of how much the public rows resemble the private ones.

        Raises
        ------
        TypeError
            Private data: planning would use them without paying.
        ValueError
            Too few rows, or one class only.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = load_iris(return_X_y=True)
        >>> rng = np.random.default_rng(0)
        >>> order = rng.permutation(150)
        >>> best, *_ = LearningCurve.measured(GaussianNB(), X[order[:100]], y[order[:100]],
        ...                                   X_test=X[order[100:]], y_test=y[order[100:]], rng=rng)
        >>> best.accuracy(100) > 0.8
        True
        """
        if any(isinstance(part, Private) for part in (X, y, X_test, y_test)):
            raise TypeError(
                "planning must not read private data: give public rows, or release what you need "
                "and pay for it"
            )
        X, y, X_test, y_test = (np.asarray(part) for part in (X, y, X_test, y_test))
        n_classes = len(np.unique(y))
        if n_classes < 2 or len(y) < 4 * _LEAST_ROWS or not len(y_test):
            raise ValueError(
                f"a proxy needs two classes and {4 * _LEAST_ROWS} rows to learn from, and some to test on; "
                f"got {n_classes} classes, {len(y)} and {len(y_test)} rows"
            )
        sizes = np.unique(np.geomspace(_LEAST_ROWS, len(y) / 2, 7).astype(int))
        right = [
            _right(estimator, X, y, X_test=X_test, y_test=y_test, size=int(size), rng=rng) for size in sizes
        ]
        scores = [part.mean(axis=1) for part in right]
        spread = float(np.median([_spread(part) for part in right]))
        fits = [_fit(sizes, [part.mean() for part in scores], n_classes, spread)]
        for _ in range(_RESAMPLED):
            again = [rng.choice(part, size=len(part)).mean() for part in scores]
            fits.append(_fit(sizes, again, n_classes, spread))
        return tuple(fits)

    def accuracy(self, n_rows: float) -> float:
        """Accuracy of a model trained on ``n_rows`` clean rows."""
        return 1 - self.floor - self.excess(n_rows)

    def excess(self, n_rows: float) -> float:
        """Error above the floor at this number of rows."""
        guess = 1 - 1 / self.n_classes
        return max(0.0, guess - self.floor) / float(np.sqrt(1 + n_rows / self.begin))

    def votes(
        self, *, n_teachers: int, n_rows: float, n_queries: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Simulated counts, shape (n_queries, n_classes), of teachers with ``n_rows`` each; 0 is right."""
        mean = min(max(self.accuracy(n_rows), 1e-3), 1 - 1e-3)
        middles = (np.arange(n_queries) + 0.5) / n_queries  # of equal parts: the law itself, without its luck
        right = betaincinv(self.spread * mean, self.spread * (1 - mean), middles)
        wrong = rng.dirichlet(np.ones(self.n_classes - 1), size=n_queries)
        shares = np.column_stack([right, (1 - right)[:, None] * wrong])
        shares /= shares.sum(axis=1, keepdims=True)
        return np.asarray(rng.multinomial(n_teachers, shares), dtype=float)


def _right(
    estimator: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    X_test: Any,
    y_test: Any,
    size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Whether each of a few models of ``size`` rows is right about each row, bool (models, rows)."""
    from sklearn.base import clone  # noqa: PLC0415  (only planning with a proxy trains)

    found = []
    for _ in range(_MODELS):
        rows = rng.choice(len(y), size=size, replace=False)
        if len(np.unique(y[rows])) == 1:
            found.append(y_test == y[rows][0])
        else:
            found.append(clone(estimator).fit(X[rows], y[rows]).predict(X_test) == y_test)
    return np.array(found)


def _spread(right: np.ndarray) -> float:
    """Estimate the spread by moments: variance over questions, minus the part due to few models."""
    share, models = right.mean(axis=0), len(right)
    mean = share.mean()
    whole = mean * (1 - mean)
    between = (share.var() - whole / models) * models / (models - 1)
    return float(np.clip(whole / max(between, 1e-9) - 1, 0.05, 50.0)) if whole > 0 else 1.0


def _fit(sizes: np.ndarray, scores: Sequence[float], n_classes: int, spread: float) -> LearningCurve:
    """Fit floor and start of the curve to the scores by least squares over a grid."""
    guess = 1 - 1 / n_classes
    falls = 1 / np.sqrt(1 + sizes / _BEGINS[:, None])
    error = _FLOORS[:, None, None] + np.maximum(guess - _FLOORS, 0)[:, None, None] * falls
    distance = ((1 - error - np.asarray(scores)) ** 2).sum(axis=-1)
    floor, begin = np.unravel_index(np.argmin(distance), distance.shape)
    return LearningCurve(
        n_classes=n_classes, floor=float(_FLOORS[floor]), begin=float(_BEGINS[begin]), spread=spread
    )
