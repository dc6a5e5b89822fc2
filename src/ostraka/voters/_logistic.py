"""Logistic regressions of many small shards, trained together by Newton's method.

Every shard has its own system of equations, so that no shard changes another's solution by a bit: shapes
depend on a shard's own size and classes, and a shard whose solution has converged is not changed any more.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dense", "fit_together"]

_MOST_PARAMETERS = 128  # of one teacher: with more, scikit-learn is as fast
_MOST_ROWS = 2000  # of one teacher: with more, scikit-learn is as fast
_NUMBERS_AT_ONCE = 2**18  # in the systems of equations that are solved at once: 2 MiB
_PADDING = 8  # numbers of rows are rounded up to a multiple, so that shards share shapes
_STEPS, _HALVINGS = 50, 30
_TOLERANCE = 1e-3  # share of scikit-learn's own tolerance
_FREE = ("C", "fit_intercept", "max_iter", "n_jobs", "random_state", "tol", "verbose", "warm_start")


class _Problem(NamedTuple):
    """Shards of one shape: rows with a last column of ones, class of each row, weight (0 for padding)."""

    rows: np.ndarray  # (n_shards, n_rows, n_columns)
    targets: np.ndarray  # (n_shards, n_rows, n_outputs), 0 or 1
    weights: np.ndarray  # (n_shards, n_rows)
    penalty: np.ndarray  # (n_outputs * n_columns,)


def fit_together(estimator: Any, X: Sequence[Any], codes: Sequence[np.ndarray]) -> list[Any]:
    """Return a fitted copy of the estimator per shard; None for a shard which must be fitted separately.

    Parameters
    ----------
    estimator : scikit-learn classifier
    X : sequence of arrays, shape (n_rows, n_features)
        Private. Rows of each shard.
    codes : sequence of integer arrays
        Private. Their classes, numbered from 0 without gaps; each shard has two classes or more.

    Returns
    -------
    list of LogisticRegression or None
        Its solution has a gradient below a thousandth of ``tol``.
    """
    models: list[Any] = [None] * len(X)
    if not _applies(estimator):
        return models
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, (rows, own) in enumerate(zip(X, codes, strict=True)):
        if dense(rows):
            n_classes, n_rows = int(own.max()) + 1, -(-len(rows) // _PADDING) * _PADDING
            size = (n_classes, n_rows, rows.shape[1])
            if n_rows <= _MOST_ROWS and _n_outputs(n_classes) * (rows.shape[1] + 1) <= _MOST_PARAMETERS:
                groups.setdefault(size, []).append(number)
    for (n_classes, n_rows, n_features), numbers in groups.items():
        cells = (_n_outputs(n_classes) * (n_features + 1)) ** 2 + n_rows * (n_features + 1)
        at_once = max(1, _NUMBERS_AT_ONCE // cells)
        for start in range(0, len(numbers), at_once):
            part = numbers[start : start + at_once]
            problem = _posed(estimator, [X[k] for k in part], [codes[k] for k in part], n_classes, n_rows)
            tolerance = _TOLERANCE * estimator.tol
            solutions, converged, steps = _solved(problem, tolerance, min(_STEPS, estimator.max_iter))
            for number, solution, good, n_iter in zip(part, solutions, converged, steps, strict=True):
                if good:
                    models[number] = _fitted(estimator, solution, n_classes, n_iter)
    return models


def dense(rows: Any) -> bool:
    """Whether they are a plain array whose numbers doubles hold: others are fitted by scikit-learn."""
    return isinstance(rows, np.ndarray) and (rows.dtype.kind in "iu" or rows.dtype == np.float64)


def _applies(estimator: Any) -> bool:
    """Whether it is scikit-learn's own logistic regression with the default solver and penalty."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (late: not every ensemble is linear)

    if type(estimator) is not LogisticRegression:
        return False
    usual, own = LogisticRegression().get_params(), estimator.get_params()
    return all(own[name] == value for name, value in usual.items() if name not in _FREE) and bool(
        0 < own["C"] < np.inf and own["max_iter"] >= 1 and own["tol"] > 0 and not own["warm_start"]
    )


def _n_outputs(n_classes: int) -> int:
    """One logit for two classes, as in scikit-learn, otherwise one for each class."""
    return 1 if n_classes == 2 else n_classes


def _posed(
    estimator: Any, X: Sequence[np.ndarray], codes: Sequence[np.ndarray], n_classes: int, n_rows: int
) -> _Problem:
    """Return the training problem of shards of one shape."""
    n_outputs, n_columns = _n_outputs(n_classes), X[0].shape[1] + 1
    rows = np.zeros((len(X), n_rows, n_columns))
    targets = np.zeros((len(X), n_rows, n_outputs))
    weights = np.zeros((len(X), n_rows))
    classes = np.array([1]) if n_outputs == 1 else np.arange(n_classes)
    for number, (own, own_codes) in enumerate(zip(X, codes, strict=True)):
        rows[number, : len(own), :-1] = own
        rows[number, : len(own), -1] = estimator.fit_intercept
        targets[number, : len(own)] = own_codes[:, None] == classes
        weights[number, : len(own)] = 1.0
    penalty = np.full((n_outputs, n_columns), 1 / estimator.C)
    if estimator.fit_intercept:
        penalty[:, -1] = 0.0  # otherwise the last column is 0, and so is its weight
    return _Problem(rows, targets, weights, penalty.ravel())


def _solved(problem: _Problem, tolerance: float, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parameters (n_shards, n_outputs, n_columns), whether they converged, and the number of steps."""
    n_shards, _, n_columns = problem.rows.shape
    n_outputs = problem.targets.shape[2]
    found = np.zeros((n_shards, n_outputs * n_columns))
    steps = np.zeros(n_shards, dtype=np.int64)
    running = np.ones(n_shards, dtype=bool)
    limit = tolerance * problem.weights.sum(axis=1)
    with np.errstate(all="ignore"):  # a shard that overflows does not converge
        for _ in range(most + 1):
            chosen = np.flatnonzero(running)
            mine = problem._replace(
                rows=problem.rows[chosen], targets=problem.targets[chosen], weights=problem.weights[chosen]
            )
            now = found[chosen]
            loss, gradient, curvature = _derivatives(mine, now)
            going = ~(np.abs(gradient).max(axis=1) <= limit[chosen])
            running[chosen] = going
            if not going.any() or steps.max() == most:
                break
            found[chosen[going]] = _stepped(mine, now, loss, gradient, curvature)[going]
            steps[chosen[going]] += 1
    return found.reshape(n_shards, n_outputs, n_columns), ~running & np.isfinite(found).all(axis=1), steps


def _derivatives(problem: _Problem, found: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return loss, gradient and Hessian of each shard: cross-entropy of rows plus squared weights / 2 C."""
    (n_shards, _, n_columns), n_outputs = problem.rows.shape, problem.targets.shape[2]
    logits = _logits(problem, found)
    probabilities = _probabilities(logits)
    loss = _loss(problem, logits, found)
    residual = (probabilities - problem.targets) * problem.weights[:, :, None]
    gradient = (residual.transpose(0, 2, 1) @ problem.rows).reshape(n_shards, -1) + problem.penalty * found
    curvature = np.empty((n_shards, n_outputs, n_columns, n_outputs, n_columns))
    turned = problem.rows.transpose(0, 2, 1)
    for k in range(n_outputs):
        for m in range(k + 1):
            share = probabilities[:, :, k] * ((k == m) - probabilities[:, :, m]) * problem.weights
            block = turned @ (problem.rows * share[:, :, None])
            curvature[:, k, :, m] = block
            curvature[:, m, :, k] = block
    hessian = curvature.reshape(n_shards, n_outputs * n_columns, -1)
    diagonal = np.arange(hessian.shape[1])
    hessian[:, diagonal, diagonal] += problem.penalty
    if n_outputs > 1:  # the loss does not depend on the intercepts' sum: keep it 0, as scikit-learn does
        last = np.arange(n_outputs) * n_columns + n_columns - 1
        hessian[:, last[:, None], last] += 1.0
    return loss, gradient, hessian


def _stepped(
    problem: _Problem, now: np.ndarray, loss: np.ndarray, gradient: np.ndarray, curvature: np.ndarray
) -> np.ndarray:
    """Make one Newton step for each shard, halved until the loss falls; NaN where no step lowers it."""
    try:
        direction = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:  # of some shard: find out which
        direction = np.array([_direction(h, g) for h, g in zip(curvature, gradient, strict=True)])
    slope = (direction * gradient).sum(axis=1)
    size = np.ones(len(now))
    for _ in range(_HALVINGS):
        trial = now - size[:, None] * direction
        there = _loss(problem, _logits(problem, trial), trial)
        worse = ~(there <= loss - 1e-4 * size * slope + 1e-12 * np.abs(loss))
        if not worse.any():
            break
        size = np.where(worse, size / 2, size)
    return np.where(worse[:, None], np.nan, trial)


def _direction(curvature: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(np.linalg.solve(curvature, gradient))
    except np.linalg.LinAlgError:
        return np.full_like(gradient, np.nan)


def _logits(problem: _Problem, found: np.ndarray) -> np.ndarray:
    whole = found.reshape(len(found), problem.targets.shape[2], -1)
    return np.asarray(problem.rows @ whole.transpose(0, 2, 1))


def _probabilities(logits: np.ndarray) -> np.ndarray:
    if logits.shape[2] == 1:
        return np.asarray(1 / (1 + np.exp(-logits)))
    shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=2, keepdims=True))


def _loss(problem: _Problem, logits: np.ndarray, found: np.ndarray) -> np.ndarray:
    if logits.shape[2] == 1:
        normaliser = np.logaddexp(0.0, logits[:, :, 0])
    else:
        top = logits.max(axis=2)
        normaliser = top + np.log(np.exp(logits - top[:, :, None]).sum(axis=2))
    each = normaliser - (logits * problem.targets).sum(axis=2)
    return np.asarray((each * problem.weights).sum(axis=1) + (problem.penalty * found**2).sum(axis=1) / 2)


def _fitted(estimator: Any, solution: np.ndarray, n_classes: int, n_iter: int) -> Any:
    """A copy of the estimator with this solution."""
    model = copy.copy(estimator)
    model.classes_ = np.arange(n_classes)
    model.coef_ = solution[:, :-1].copy()
    model.intercept_ = solution[:, -1].copy() if estimator.fit_intercept else np.zeros(len(solution))
    model.n_features_in_ = solution.shape[1] - 1
    model.n_iter_ = np.array([n_iter], dtype=np.int32)
    return model
