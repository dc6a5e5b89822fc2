"""Ridge classifiers, Gaussian naive Bayes and nearest centroids of many shards, trained together.

Their solutions are formulas of sums over rows. Every sum is over rows of one shard, and every shard has its
own system of equations, so that no shard changes another's solution by a bit.
"""

from __future__ import annotations

import contextlib
import copy
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.voters.kinds import dense, kind_of_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST_FEATURES = 128  # of a system of equations: with more, or more than rows, scikit-learn has a better one
_NUMBERS_AT_ONCE = 2**20  # in the rows of shards that are trained at once: 8 MiB
_RESIDUAL = 1e-9  # of a system of equations, as a share of its right-hand side
_FREE = {  # settings that the formulas allow for, or that do not matter to them
    "sklearn.linear_model._ridge.RidgeClassifier": {
        "alpha",
        "copy_X",
        "fit_intercept",
        "max_iter",
        "random_state",
        "tol",
    },
    "sklearn.naive_bayes.GaussianNB": {"var_smoothing"},
    "sklearn.neighbors._nearest_centroid.NearestCentroid": set(),
}


class _Shards(NamedTuple):
    """Shards with the same classes and features: sums and means of the rows of each class, and of all."""

    rows: list[np.ndarray]  # (n_rows, n_features) of each shard, class by class
    counts: np.ndarray  # (n_shards, n_classes)
    sums: np.ndarray  # (n_shards, n_classes, n_features)
    middle: np.ndarray  # (n_shards, n_features)

    @property
    def means(self) -> np.ndarray:
        """Mean row of each class, (n_shards, n_classes, n_features)."""
        return np.asarray(self.sums / self.counts[:, :, None])

    def spread(self) -> np.ndarray:
        """Sum of squared distances to the mean of the class, (n_shards, n_classes, n_features)."""
        flat = self.counts.ravel()
        centres = np.repeat(self.means.reshape(len(flat), -1), flat, axis=0)
        return _summed((np.concatenate(self.rows) - centres) ** 2, flat).reshape(self.sums.shape)


def applies(estimator: Any) -> bool:
    """Whether it is one of scikit-learn's own estimators with a solution that these formulas give."""
    free = _FREE.get(kind_of_model(estimator))
    if free is None:
        return False
    usual, settings = type(estimator)().get_params(), estimator.get_params()
    alpha = settings.get("alpha", 1.0)
    return (
        all(repr(settings[name]) == repr(value) for name, value in usual.items() if name not in free)
        and isinstance(alpha, int | float)
        and 0 < alpha < np.inf
        and 0 <= settings.get("var_smoothing", 0.0) < np.inf
    )


def fit_together(estimator: Any, X: Sequence[Any], codes: Sequence[np.ndarray]) -> list[Any]:
    """Return scikit-learn's solutions, up to rounding errors; else as ``_logistic.fit_together``."""
    models: list[Any] = [None] * len(X)
    if not applies(estimator):
        return models
    name = type(estimator).__name__
    solve: Callable[[Any, _Shards], Iterator[dict[str, Any] | None]] = {
        "RidgeClassifier": _ridge,
        "GaussianNB": _naive_bayes,
        "NearestCentroid": _centroids,
    }[name]
    able = [
        (int(targets.max()) + 1, rows.shape[1], number)
        for number, (rows, targets) in enumerate(zip(X, codes, strict=True))
        if dense(rows)
        if name != "RidgeClassifier" or rows.shape[1] <= min(_MOST_FEATURES, len(rows))
    ]
    for (n_classes, n_features), group in groupby(sorted(able), key=lambda sizes: sizes[:2]):
        model = _made_up(estimator, n_classes, n_features)
        for part in _parts([number for *_, number in group], X):
            shards = _posed([X[k] for k in part], [codes[k] for k in part], n_classes)
            with np.errstate(all="ignore"):  # a shard that overflows has no solution here
                solutions = list(solve(estimator, shards))
            for number, attributes in zip(part, solutions, strict=True):
                if attributes is None or not all(np.isfinite(value).all() for value in attributes.values()):
                    continue
                models[number] = copy.copy(model)
                for attribute, value in attributes.items():  # in scikit-learn's shape, in no other's memory
                    shape = np.shape(getattr(model, attribute))
                    setattr(models[number], attribute, np.array(value).reshape(shape)[()])
    return models


def _made_up(estimator: Any, n_classes: int, n_features: int) -> Any:
    """Return the estimator fitted to made-up rows: it has all of scikit-learn's attributes, none private."""
    codes = np.arange(3 * n_classes) % n_classes
    rows = np.random.default_rng(0).normal(size=(len(codes), n_features))
    return copy.copy(estimator).fit(rows, codes)


def _parts(numbers: list[int], X: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """Split shards into parts with so many numbers in their rows."""
    part: list[int] = []
    size = 0
    for number in numbers:
        if part and size + X[number].size > _NUMBERS_AT_ONCE:
            yield part
            part, size = [], 0
        part.append(number)
        size += X[number].size
    if part:
        yield part


def _posed(X: Sequence[np.ndarray], codes: Sequence[np.ndarray], n_classes: int) -> _Shards:
    """Return rows of shards class by class, and their sums."""
    rows = [
        table.take(np.argsort(labels, kind="stable"), axis=0).astype(np.float64)
        for table, labels in zip(X, codes, strict=True)
    ]
    counts = np.array([np.bincount(labels, minlength=n_classes) for labels in codes])
    with np.errstate(all="ignore"):
        sums = _summed(np.concatenate(rows), counts.ravel()).reshape(*counts.shape, -1)
        middle = np.array([table.mean(axis=0) for table in rows])
    return _Shards(rows, counts, sums, middle)


def _summed(rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum of the first so many rows, of the next, and so on; no count may be 0."""
    return np.asarray(np.add.reduceat(rows, np.cumsum(counts) - counts, axis=0))


def _naive_bayes(estimator: Any, shards: _Shards) -> Iterator[dict[str, Any]]:
    variances = shards.spread() / shards.counts[:, :, None]
    for rows, counts, means, variance in zip(
        shards.rows, shards.counts, shards.means, variances, strict=True
    ):
        epsilon = estimator.var_smoothing * rows.var(axis=0).max()
        yield {
            "class_count_": counts.astype(np.float64),
            "class_prior_": counts / counts.sum(),
            "epsilon_": epsilon,
            "theta_": means,
            "var_": variance + epsilon,
        }


def _centroids(_estimator: Any, shards: _Shards) -> Iterator[dict[str, Any] | None]:
    n_rows = shards.counts.sum(axis=1)
    within = np.sqrt(shards.spread().sum(axis=1) / (n_rows - shards.counts.shape[1])[:, None])
    share = np.sqrt(1 / shards.counts - 1 / n_rows[:, None])
    scale = share[:, :, None] * (within + np.median(within, axis=1, keepdims=True))[:, None, :]
    means = shards.means
    deviations = (means - shards.middle[:, None, :]) / scale
    for deviation, mean, spread in zip(deviations, means, within, strict=True):
        # scikit-learn warns or raises where rows of a class are equal
        alike = not (spread > 0).all()
        yield (
            None if alike else {"centroids_": mean, "deviations_": deviation, "within_class_std_dev_": spread}
        )


def _ridge(estimator: Any, shards: _Shards) -> Iterator[dict[str, Any] | None]:
    """Solve for weights; targets are 1 for a class and -1 for the others. Two classes have one output."""
    counts, n_rows = shards.counts, shards.counts.sum(axis=1)
    middle = shards.middle if estimator.fit_intercept else np.zeros_like(shards.middle)
    centred = (rows - mean for rows, mean in zip(shards.rows, middle, strict=True))
    systems = np.array([table.T @ table for table in centred])
    diagonal = np.arange(systems.shape[1])
    systems[:, diagonal, diagonal] += estimator.alpha
    sums = shards.sums - counts[:, :, None] * middle[:, None, :]
    sides, levels = 2 * sums - sums.sum(axis=1, keepdims=True), 2 * counts / n_rows[:, None] - 1
    if counts.shape[1] == 2:
        sides, levels = sides[:, 1:], levels[:, 1:]
    for system, side, level, mean in zip(systems, sides, levels, middle, strict=True):
        solution = None
        with contextlib.suppress(np.linalg.LinAlgError):
            solution = np.linalg.solve(system, side.T)
        if solution is None or not np.abs(system @ solution - side.T).max() <= _RESIDUAL * np.abs(side).max():
            yield None
            continue
        weights = np.ascontiguousarray(solution.T)
        intercept = level - weights @ mean if estimator.fit_intercept else 0.0
        yield {"coef_": weights, "intercept_": intercept}
