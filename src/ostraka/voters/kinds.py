"""Teachers with scores that are linear in terms of a row: trained together, and asked together.

Logistic regressions of many small shards are trained by Newton's method. Every shard has its own system of
equations, so that no shard changes another's solution by a bit: shapes depend on a shard's own size and
classes, and a shard whose solution has converged is not changed any more. Votes of all teachers are one
matrix product of scores; the ballots equal those of separate predictions.

Ridge classifiers, Gaussian naive Bayes and nearest centroids have solutions in closed form.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.voters.voting import Teacher

_MOST_PARAMETERS = 128  # of one teacher: with more, scikit-learn is as fast
_MOST_ROWS = 2000  # of one teacher: with more, scikit-learn is as fast
_NUMBERS_AT_ONCE = 2**18  # in the systems of equations that are solved at once: 2 MiB
_PADDING = 8  # numbers of rows are rounded up to a multiple, so that shards share shapes
_STEPS, _HALVINGS = 50, 30
_TOLERANCE = 1e-3  # share of scikit-learn's own tolerance
_FREE = ("C", "fit_intercept", "max_iter", "n_jobs", "random_state", "tol", "verbose", "warm_start")
_MOST_FEATURES = 128  # of a system of equations: with more, or more than rows, scikit-learn has a better one
_NUMBERS_OF_SHARDS = 2**20  # in the rows of shards that are trained at once: 8 MiB
_RESIDUAL = 1e-9  # of a system of equations, as a share of its right-hand side
_FREE_IN_CLOSED_FORM = {  # settings that the formulas allow for, or that do not matter to them
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
LINEAR = {  # predict the class of the largest score; of two classes the second, where its score is above 0
    "sklearn.discriminant_analysis.LinearDiscriminantAnalysis",
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.linear_model._ridge.RidgeClassifier",
    "sklearn.linear_model._stochastic_gradient.SGDClassifier",
    "sklearn.svm._classes.LinearSVC",
}
# Two ways to add up d products differ by less than this times (d + 2) machine epsilons of their size.
_ROUNDING = 8.0
_CELLS = 2**18  # scores held at a time: 2 MiB, which fit a cache
_COARSE_MOST, _COARSE_LEAST = 1e37, 2.0**-126  # numbers of 32 bits are normal between them


def fit_together(estimator: Any, X: Sequence[Any], codes: Sequence[np.ndarray]) -> list[Any]:
    """Return a fitted copy of the estimator for each shard; None where it must be fitted on its own.

    Parameters
    ----------
    estimator : scikit-learn classifier
    X : sequence of arrays, shape (n_rows, n_features)
        Private. Rows of each shard.
    codes : sequence of integer arrays
        Private. Their classes, numbered from 0 without gaps; each shard has two classes or more.

    Returns
    -------
    list of estimators or None
        Of :class:`LogisticRegression`, solutions with a gradient below a thousandth of ``tol``.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (late: not every ensemble is linear)

    if _is_solved(estimator):
        return _in_closed_form(estimator, X, codes)
    models: list[Any] = [None] * len(X)
    if type(estimator) is not LogisticRegression:
        return models
    # with the default solver and penalty
    usual, settings = LogisticRegression().get_params(), estimator.get_params()
    if (
        any(settings[name] != value for name, value in usual.items() if name not in _FREE)
        or not (0 < settings["C"] < np.inf and settings["max_iter"] >= 1 and settings["tol"] > 0)
        or settings["warm_start"]
    ):
        return models
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, (rows, targets) in enumerate(zip(X, codes, strict=True)):
        if dense(rows):
            n_classes, n_rows = int(targets.max()) + 1, -(-len(rows) // _PADDING) * _PADDING
            shape = (n_classes, n_rows, rows.shape[1])
            if n_rows <= _MOST_ROWS and _n_outputs(n_classes) * (rows.shape[1] + 1) <= _MOST_PARAMETERS:
                groups.setdefault(shape, []).append(number)
    intercept = estimator.fit_intercept
    for (n_classes, n_rows, n_features), numbers in groups.items():
        n_outputs, n_columns = _n_outputs(n_classes), n_features + 1
        classes = np.array([1]) if n_outputs == 1 else np.arange(n_classes)
        penalty = np.full((n_outputs, n_columns), 1 / estimator.C)
        if intercept:
            penalty[:, -1] = 0.0  # otherwise the last column is 0, and so is its weight
        at_once = max(1, _NUMBERS_AT_ONCE // ((n_outputs * n_columns) ** 2 + n_rows * n_columns))
        for start in range(0, len(numbers), at_once):
            part = numbers[start : start + at_once]
            rows = np.zeros((len(part), n_rows, n_columns))
            targets = np.zeros((len(part), n_rows, n_outputs))
            weights = np.zeros((len(part), n_rows))
            for place, number in enumerate(part):
                size = len(X[number])
                rows[place, :size, :-1] = X[number]
                rows[place, :size, -1] = intercept
                targets[place, :size] = codes[number][:, None] == classes
                weights[place, :size] = 1.0
            problem = _Problem(rows, targets, weights, penalty.ravel())
            tolerance = _TOLERANCE * estimator.tol
            solutions, converged, steps = _solved(problem, tolerance, min(_STEPS, estimator.max_iter))
            for number, solution, good, n_iter in zip(part, solutions, converged, steps, strict=True):
                if good:
                    model = models[number] = copy.copy(estimator)
                    model.classes_ = np.arange(n_classes)
                    model.coef_ = solution[:, :-1].copy()
                    model.intercept_ = solution[:, -1].copy() if intercept else np.zeros(n_outputs)
                    model.n_features_in_ = n_features
                    model.n_iter_ = np.array([n_iter], dtype=np.int32)
    return models


def _in_closed_form(estimator: Any, X: Sequence[Any], codes: Sequence[np.ndarray]) -> list[Any]:
    """As :func:`fit_together`, by formulas: scikit-learn's solutions up to rounding."""
    models: list[Any] = [None] * len(X)
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
        # fitted to made-up rows, it has all of scikit-learn's attributes, none private
        numbers, made_up = [number for *_, number in group], np.arange(3 * n_classes) % n_classes
        rows = np.random.default_rng(0).normal(size=(len(made_up), n_features))
        model = copy.copy(estimator).fit(rows, made_up)
        # so many shards at once as have so many numbers in their rows
        ends = np.cumsum([X[number].size for number in numbers])
        while numbers:
            size = max(1, int(np.searchsorted(ends, _NUMBERS_OF_SHARDS, side="right")))
            part, numbers, ends = numbers[:size], numbers[size:], ends[size:] - ends[size - 1]
            tables = [X[k].take(np.argsort(codes[k], kind="stable"), axis=0).astype(np.float64) for k in part]
            counts = np.array([np.bincount(codes[k], minlength=n_classes) for k in part])
            with np.errstate(all="ignore"):  # a shard that overflows has no solution here
                sums = _summed(np.concatenate(tables), counts.ravel()).reshape(*counts.shape, -1)
                middle = np.array([table.mean(axis=0) for table in tables])
                solutions = list(solve(estimator, _Shards(tables, counts, sums, middle)))
            for number, attributes in zip(part, solutions, strict=True):
                if attributes is None or not all(np.isfinite(value).all() for value in attributes.values()):
                    continue
                models[number] = copy.copy(model)
                for attribute, value in attributes.items():  # in scikit-learn's shape, in no other's memory
                    shape = np.shape(getattr(model, attribute))
                    setattr(models[number], attribute, np.array(value).reshape(shape)[()])
    return models


def _is_solved(estimator: Any) -> bool:
    """Whether it is one of scikit-learn's own estimators with a solution that these formulas give."""
    free = _FREE_IN_CLOSED_FORM.get(kind_of_model(estimator))
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


class _Problem(NamedTuple):
    """Shards of one shape: rows with a last column of ones, class of each row, weight (0 for padding)."""

    rows: np.ndarray  # (n_shards, n_rows, n_columns)
    targets: np.ndarray  # (n_shards, n_rows, n_outputs), 0 or 1
    weights: np.ndarray  # (n_shards, n_rows)
    penalty: np.ndarray  # (n_outputs * n_columns,)


def dense(rows: Any) -> bool:
    """Whether they are a plain array whose numbers doubles hold: others are fitted by scikit-learn."""
    return isinstance(rows, np.ndarray) and (rows.dtype.kind in "iu" or rows.dtype == np.float64)


def _n_outputs(n_classes: int) -> int:
    """One logit for two classes, as in scikit-learn, otherwise one for each class."""
    return 1 if n_classes == 2 else n_classes


def _solved(problem: _Problem, tolerance: float, n_steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parameters (n_shards, n_outputs, n_columns), whether they converged, and the number of steps."""
    n_shards, _, n_columns = problem.rows.shape
    n_outputs = problem.targets.shape[2]
    theta = np.zeros((n_shards, n_outputs * n_columns))
    steps = np.zeros(n_shards, dtype=np.int64)
    running = np.ones(n_shards, dtype=bool)
    limit = tolerance * problem.weights.sum(axis=1)
    with np.errstate(all="ignore"):  # a shard that overflows does not converge
        for _ in range(n_steps + 1):
            chosen = np.flatnonzero(running)
            mine = problem._replace(
                rows=problem.rows[chosen], targets=problem.targets[chosen], weights=problem.weights[chosen]
            )
            now = theta[chosen]
            loss, gradient, curvature = _derivatives(mine, now)
            going = ~(np.abs(gradient).max(axis=1) <= limit[chosen])
            running[chosen] = going
            if not going.any() or steps.max() == n_steps:
                break
            # one Newton step for each shard, halved until the loss falls; NaN where no step lowers it
            try:
                direction = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
            except np.linalg.LinAlgError:  # of some shard: find out which
                direction = np.full_like(gradient, np.nan)
                for place, (system, side) in enumerate(zip(curvature, gradient, strict=True)):
                    with contextlib.suppress(np.linalg.LinAlgError):
                        direction[place] = np.linalg.solve(system, side)
            slope = (direction * gradient).sum(axis=1)
            size = np.ones(len(now))
            for _ in range(_HALVINGS):
                trial = now - size[:, None] * direction
                losses = _loss(mine, _logits(mine, trial), trial)
                worse = ~(losses <= loss - 1e-4 * size * slope + 1e-12 * np.abs(loss))
                if not worse.any():
                    break
                size = np.where(worse, size / 2, size)
            trial[worse] = np.nan
            theta[chosen[going]] = trial[going]
            steps[chosen[going]] += 1
    return (theta.reshape(n_shards, n_outputs, n_columns), ~running & np.isfinite(theta).all(axis=1), steps)


def _derivatives(problem: _Problem, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return loss, gradient and Hessian of each shard: cross-entropy of rows plus squared weights / 2 C."""
    (n_shards, _, n_columns), n_outputs = problem.rows.shape, problem.targets.shape[2]
    logits = _logits(problem, theta)
    if n_outputs == 1:
        probabilities = np.asarray(1 / (1 + np.exp(-logits)))
    else:
        probabilities = np.exp(logits - logits.max(axis=2, keepdims=True))
        probabilities /= probabilities.sum(axis=2, keepdims=True)
    loss = _loss(problem, logits, theta)
    residual = (probabilities - problem.targets) * problem.weights[:, :, None]
    gradient = (residual.transpose(0, 2, 1) @ problem.rows).reshape(n_shards, -1) + problem.penalty * theta
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


def _logits(problem: _Problem, theta: np.ndarray) -> np.ndarray:
    weights = theta.reshape(len(theta), problem.targets.shape[2], -1)
    return np.asarray(problem.rows @ weights.transpose(0, 2, 1))


def _loss(problem: _Problem, logits: np.ndarray, theta: np.ndarray) -> np.ndarray:
    if logits.shape[2] == 1:
        normaliser = np.logaddexp(0.0, logits[:, :, 0])
    else:
        top = logits.max(axis=2)
        normaliser = top + np.log(np.exp(logits - top[:, :, None]).sum(axis=2))
    losses = normaliser - (logits * problem.targets).sum(axis=2)
    return np.asarray((losses * problem.weights).sum(axis=1) + (problem.penalty * theta**2).sum(axis=1) / 2)


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


class Scores(NamedTuple):
    """One model's weights, (n_present, n_terms), and offsets, (n_present,).

    ``size`` bounds what adds up to an offset, in absolute values. Rounding errors are a share of it.
    """

    weights: np.ndarray
    offsets: np.ndarray
    size: float


class Terms(NamedTuple):
    """What to multiply, the same for all models: terms of rows, (n_rows, n_terms); and a model's scores."""

    of_rows: Callable[[np.ndarray], np.ndarray]
    of_model: Callable[[Any], Scores | None]


def terms_of(models: Sequence[Any]) -> Terms | None:
    """Return the terms for models of one kind; None for another kind.

    Which terms, and whether there are any, depends on settings of the estimator and on types of numbers: both
    are public. ``of_model`` returns None for a model whose scores are not finite, which moves no other's.
    """
    if not models:
        return Terms(lambda X: X, _linear)
    kind = kind_of_model(models[0])
    if kind in LINEAR:
        terms = Terms(lambda X: X, _linear) if _plain(models[0].coef_) else None
    else:
        terms = _MADE[kind](models) if kind in _MADE else None
    if terms is None:
        return None
    return terms._replace(
        of_model=lambda model: terms.of_model(model) if kind_of_model(model) == kind else None
    )


def linear_scores(model: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Weights (n_present, n_features) and offsets (n_present,) whose largest score is the prediction."""
    if kind_of_model(model) not in LINEAR or not _plain(model.coef_):
        return None
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        return None
    coef = np.atleast_2d(model.coef_)
    intercept = np.broadcast_to(model.intercept_, len(coef))  # some have a 0 where none was fitted
    if len(coef) > 1:
        return coef, intercept
    ahead = coef[0]  # of two classes: how far the second is ahead of the first
    return np.stack([np.zeros_like(ahead), ahead]), np.array([0.0, intercept[0]])


def _linear(model: Any) -> Scores | None:
    scores = linear_scores(model)
    return None if scores is None else Scores(*scores, float(np.abs(scores[1]).max()))


def _normal(models: Sequence[Any]) -> Terms | None:
    """Gaussian naive Bayes: log likelihoods are quadratic; rows and means are moved by one middle."""
    first = models[0]
    even = first.priors is None or (np.asarray(first.priors) > 0).all()
    if not (_plain(first.theta_) and first.var_smoothing > 0 and even):
        return None
    middle = np.median([model.theta_.mean(axis=0) for model in models], axis=0)  # a bad model moves it little

    def of_model(model: Any) -> Scores | None:
        means, precisions, spread = model.theta_ - middle, 1 / model.var_, np.log(2 * np.pi * model.var_)
        prior, away = np.log(model.class_prior_), (means**2 * precisions).sum(axis=1) / 2
        size = np.abs(prior) + np.abs(spread).sum(axis=1) / 2 + away
        weights = np.concatenate([means * precisions, -precisions / 2], axis=1)
        return _finite(weights, prior - spread.sum(axis=1) / 2 - away, size)

    return Terms(lambda X: _squared(X - middle), of_model)


def _nearest(models: Sequence[Any]) -> Terms | None:
    """Nearest centroids: minus half of squared distances, whose terms scikit-learn adds up, too."""
    first = models[0]
    uniform = isinstance(first.priors, str) and first.priors == "uniform"
    if not (_plain(first.centroids_) and first.metric == "euclidean" and uniform):
        return None

    def of_model(model: Any) -> Scores | None:
        away = (model.centroids_**2).sum(axis=1) / 2
        halves = np.full_like(model.centroids_, -0.5)
        return _finite(np.concatenate([model.centroids_, halves], axis=1), -away, away)

    return Terms(_squared, of_model)


def _counted(models: Sequence[Any]) -> Terms | None:
    """Multinomial naive Bayes: log probabilities are weights."""
    first = models[0]
    usual = _plain(first.feature_log_prob_) and (np.asarray(first.alpha) > 0).all()

    def of_model(model: Any) -> Scores | None:
        return _finite(model.feature_log_prob_, model.class_log_prior_, np.abs(model.class_log_prior_))

    return Terms(lambda X: X, of_model) if usual else None


def _binary(models: Sequence[Any]) -> Terms | None:
    """Bernoulli naive Bayes: each feature is 1 above a threshold, which is a setting, else 0."""
    first = models[0]
    threshold = first.binarize
    if not (_plain(first.feature_log_prob_) and (np.asarray(first.alpha) > 0).all()):
        return None

    def of_model(model: Any) -> Scores | None:
        if model.binarize != threshold:
            return None
        absent = np.log(1 - np.exp(model.feature_log_prob_))  # rounded as by scikit-learn
        size = np.abs(model.class_log_prior_) + np.abs(absent).sum(axis=1)
        weights = model.feature_log_prob_ - absent
        return _finite(weights, model.class_log_prior_ + absent.sum(axis=1), size)

    return Terms(lambda X: X if threshold is None else (threshold < X).astype(np.float64), of_model)


def _squared(X: np.ndarray) -> np.ndarray:
    return np.concatenate([X, X**2], axis=1)


def _finite(weights: np.ndarray, offsets: np.ndarray, size: np.ndarray) -> Scores | None:
    finite = np.isfinite(weights).all() and np.isfinite(offsets).all() and np.isfinite(size).all()
    return Scores(weights, offsets, float(size.max())) if finite else None


def _plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float64


def kind_of_model(model: Any) -> str:
    """Module and name of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


_MADE: dict[str, Callable[[Sequence[Any]], Terms | None]] = {
    "sklearn.naive_bayes.BernoulliNB": _binary,
    "sklearn.naive_bayes.GaussianNB": _normal,
    "sklearn.naive_bayes.MultinomialNB": _counted,
    "sklearn.neighbors._nearest_centroid.NearestCentroid": _nearest,
}


class LinearTeachers:
    """Every teacher's scores for every class, weights of shape (n_classes, n_terms, n_teachers).

    A teacher's ballot on a row is what it predicts for that row alone: if its two best classes are closer
    than rounding errors, or its scores are not finite, it is asked alone. So a ballot depends neither on the
    rest of the batch nor on other teachers. Rounding errors are bounded in two ways, the second by a
    teacher's own weights, so that a teacher of huge weights slows down no other.

    A product of numbers of 32 bits, which takes half as long, comes first. Where its rounding errors leave
    several classes, numbers of 64 bits decide.
    """

    def __init__(
        self,
        teachers: Sequence[Teacher],
        terms: Terms,
        weights: np.ndarray,
        offsets: np.ndarray,
        sizes: np.ndarray,
    ) -> None:
        self._teachers, self._terms = teachers, terms
        self._weights, self._offsets = weights, offsets[:, None, :]
        self._counter = np.uint16 if offsets.shape[1] < 1 << 16 else np.int64  # the smaller, the faster
        self._largest = np.abs(weights).max(axis=(0, 2)), sizes.max(initial=0.0)
        with np.errstate(over="ignore"):
            self._lengths = np.sqrt(np.square(weights).max(axis=0).sum(axis=0)), sizes
            self._coarse = weights.astype(np.float32), self._offsets.astype(np.float32)
        self._ulp, self._coarse_ulp = (
            _ROUNDING * (weights.shape[1] + 2) * float(np.finfo(kind).eps)
            for kind in (np.float64, np.float32)
        )
        finite = np.abs(offsets[np.isfinite(offsets)]).max(initial=0.0)
        self._heaviest = float(np.abs(weights).max(initial=0.0)), float(finite)

    @classmethod
    def of(cls, teachers: Sequence[Teacher], *, n_classes: int, n_features: int) -> Self | None:
        """Stack these teachers, or return None if their predictions are no largest scores."""
        with np.errstate(all="ignore"):  # scores that are not finite are refused
            terms = terms_of([teacher.model for teacher in teachers if teacher.model is not None])
            if terms is None:
                return None
            n_terms = terms.of_rows(np.zeros((1, n_features))).shape[1]
            weights = np.zeros((n_classes, n_terms, len(teachers)))
            offsets, sizes = np.full((n_classes, len(teachers)), -np.inf), np.zeros(len(teachers))
            for number, teacher in enumerate(teachers):
                scores = None if teacher.model is None else terms.of_model(teacher.model)
                if scores is not None:
                    weights[teacher.present, :, number], offsets[teacher.present, number] = scores[:2]
                    sizes[number] = scores.size
                elif teacher.model is None:
                    offsets[teacher.codes(np.empty((1, 0)))[0], number] = 0.0
                else:
                    offsets[:, number] = 0.0  # a tie everywhere: it is asked alone
        return cls(teachers, terms, weights, offsets, sizes)

    def counts(self, X: np.ndarray) -> np.ndarray:
        """Votes on finite rows: int64 (n_rows, n_classes). Private."""
        counts = np.empty((len(X), len(self._weights)), dtype=np.int64)
        for rows, near in self._near(X):
            part = np.add.reduce(near, axis=2, dtype=self._counter).T.astype(np.int64)
            for row in np.flatnonzero(part.sum(axis=1) > near.shape[2]):
                for number in np.flatnonzero(near[:, row].sum(axis=0) > 1):
                    part[row] -= near[:, row, number]
                    part[row, self._asked(X, rows.start + row, int(number))] += 1
            counts[rows] = part
        return counts

    def predictions(self, X: np.ndarray) -> np.ndarray:
        """Each teacher's class index for finite rows: int64 (n_teachers, n_rows). Private."""
        codes = np.empty((self._weights.shape[2], len(X)), dtype=np.int64)
        for rows, near in self._near(X):
            codes[:, rows] = near.argmax(axis=0).T
            for row, number in zip(*np.nonzero(near.sum(axis=0) > 1), strict=True):
                codes[number, rows.start + row] = self._asked(X, rows.start + row, number)
        return codes

    def _near(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of rows, and which classes may be the best, (n_classes, n_rows, n_teachers)."""
        (weights, offset), (lengths, sizes) = self._largest, self._lengths
        heaviest, farthest = self._heaviest
        n_classes, n_terms, n_teachers = self._weights.shape
        at_once = max(1, _CELLS // (n_classes * n_teachers))
        for start in range(0, len(X), at_once):
            part = X[start : start + at_once]
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                terms = self._terms.of_rows(part)
                spread = np.abs(terms) @ weights + offset
                spread = np.fmin(spread[:, None], np.linalg.norm(terms, axis=1)[:, None] * lengths + sizes)
                # pairs of a row and a teacher that are worth to be looked at one by one, and fit in 16 MiB
                near, most = None, min(spread.size // 8, 8 * _CELLS // (n_classes * n_terms))
                largest = float(np.abs(terms).max(initial=0.0))
                # whether no number and no sum overflows in 32 bits
                if max(largest, heaviest, n_terms * largest * heaviest + farthest) <= _COARSE_MOST:
                    # what underflows errs by less than the smallest normal number, each time
                    lost = _COARSE_LEAST * _ROUNDING * n_terms * (largest + heaviest + 1)
                    scores = terms.astype(np.float32) @ self._coarse[0]
                    scores += self._coarse[1]
                    bar = scores.max(axis=0) - (self._coarse_ulp * spread + lost)
                    near = ~(scores < bar.astype(np.float32))
                    row, number = np.nonzero(np.add.reduce(near, axis=0, dtype=self._counter) > 1)
                    if 0 < len(row) <= most:
                        fine = np.einsum("kt,ctk->ck", terms[row], self._weights[:, :, number])
                        fine += self._offsets[:, 0, number]
                        near[:, row, number] = ~(fine < fine.max(axis=0) - self._ulp * spread[row, number])
                if near is None or len(row) > most:
                    fine = terms @ self._weights
                    fine += self._offsets
                    near = ~(fine < fine.max(axis=0) - self._ulp * spread)  # true where scores overflow
            yield slice(start, start + len(part)), near

    def _asked(self, X: np.ndarray, row: int, number: int) -> int:
        """Return the ballot of one teacher, predicted on its own; its fallback where it fails."""
        with contextlib.suppress(Exception), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return int(self._teachers[number].codes(X[row : row + 1])[0])
        return self._teachers[number].fallback
