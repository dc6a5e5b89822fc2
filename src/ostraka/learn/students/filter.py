"""Logistic and linear regression by noisy rounds: Kalman filters, whose curvature is of public rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp, softmax

from ostraka.core import check
from ostraka.voters.rows import balanced, probabilities

_SCALES = (0.05, 0.2, 0.8, 3.0)  # of the prior's variance: one filter each
_INTERCEPT = 36.0  # prior variance of the constant's coefficient, in log odds where the constant is 1
_FURTHEST = 4.0  # squared log odds by which a model is expected to be wrong about a row, at the most
_VARIANCE = 0.15  # of a label, typically: decides how well the rows themselves know the coefficients
_MOST_WORK = 3e7  # of a whole covariance; beyond, and for several classes, that of each principal axis
_MOST_ROWS = 2000  # public rows from which curvatures are computed
_LINEAR_SCALES = (0.01, 0.05, 0.2, 0.8)
_LINEAR_VARIANCE = 0.05  # of a target about what is expected of it, typically
_DRAWS = 50
_FURTHER, _BETWEEN_TABLES = 1.05, 0.15  # areas' distances from a half, of tables to what a posterior says
_WIDER = 2.0  # errors of a posterior
_LEAST_SHARE = 0.01  # of a class, as the first round is read


class _Bank:
    """Filters with priors of different scales, which read the same noisy sums."""

    def __init__(
        self,
        X: Any,
        variances: Any,
        *,
        n_columns: int,
        n_units: int,
        n_rounds: int,
        sigma: float,
        scales: tuple[float, ...],
        variance: float,
    ) -> None:
        check.integer(n_units=n_units, n_rounds=n_rounds, least=1)
        check.positive(sigma=sigma)
        self.n_units, self.n_rounds, self.sigma = n_units, n_rounds, sigma
        rows = np.asarray(X, dtype=np.float64)
        self._n_public, self._round = len(rows), 0
        self._rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)]
        n_features = rows.shape[1]
        self.coef_ = np.zeros((n_features, n_columns))
        moments = rows.T @ rows / len(rows)
        prior = np.asarray(variances, dtype=np.float64)
        self._constant = float(rows[:, -1].mean())  # the constant feature is shorter in rows that are long
        wide = [np.append(scale * prior, _INTERCEPT / self._constant**2) for scale in scales]
        self._whole = n_columns == 1 and n_features**3 <= _MOST_WORK
        if self._whole:
            information = n_units / variance * moments
            ridge = 1e-6 * np.trace(information) / n_features * np.eye(n_features)
            self._sampling = np.linalg.inv(information + ridge)
            self._priors = [np.diag(scaled) for scaled in wide]
        else:
            values, self.axes_ = np.linalg.eigh(moments)
            self._rows = self._rows @ self.axes_
            self._sampling = variance / (n_units * np.maximum(values, 1e-6 * values.mean()))
            self._priors = [np.einsum("ij,i,ij->j", self.axes_, scaled, self.axes_) for scaled in wide]
        self._means = [np.zeros(self.coef_.shape) for _ in scales]
        self._spreads = [[prior + self._sampling for _ in self.coef_.T] for prior in self._priors]
        self._evidence = np.zeros(len(scales))

    def _table(self, sums: Any) -> np.ndarray:
        """The sums of one round, checked."""
        table = np.asarray(sums, dtype=np.float64)
        if table.shape != self.coef_.shape or not np.isfinite(table).all():
            raise ValueError(
                f"sums must be finite numbers of shape {self.coef_.shape}, got shape {table.shape}"
            )
        if self._round == self.n_rounds:
            raise ValueError("all rounds were taken: start with a new one")
        return self._turned(table)

    def _mix(self) -> None:
        """End a round: weigh the filters by their evidence."""
        self._round += 1
        self.weights_ = np.exp(self._evidence - logsumexp(self._evidence))
        means = self._means
        if self._round == self.n_rounds:  # shrunk by the share of the prior that is not of the coefficients
            means = [
                prior @ np.linalg.solve(prior + self._sampling, mean)
                if self._whole
                else (prior / (prior + self._sampling))[:, None] * mean
                for prior, mean in zip(self._priors, self._means, strict=True)
            ]
        mean = np.einsum("k,kij->ij", self.weights_, np.array(means))
        self.coef_ = mean if self._whole else self.axes_ @ mean

    @property
    def covariance_(self) -> list[np.ndarray]:
        """Posterior covariance of the likeliest filter, for each column of ``coef_``."""
        return self._spreads[int(self._evidence.argmax())]

    def _turned(self, table: np.ndarray) -> np.ndarray:
        return table if self._whole else self.axes_.T @ table

    def _measure(
        self, column: int, measured: np.ndarray, coef: np.ndarray, slopes: np.ndarray, offsets: np.ndarray
    ) -> None:
        """Let filters learn from a column of sums: ``measured`` is curvature (best - ``coef``) + noise."""
        n, rows, noise = self.n_units, self._rows, self.sigma**2
        sampled = n * n / self._n_public / len(rows)
        if self._whole:
            curvature = n / len(rows) * (rows.T * slopes) @ rows
            for k, (means, spreads) in enumerate(zip(self._means, self._spreads, strict=True)):
                mean, spread = means[:, column], spreads[column]
                wrong = np.einsum("ij,ij->i", rows @ spread, rows) + (rows @ (mean - coef)) ** 2
                unsure = slopes**2 * np.minimum(wrong, _FURTHEST) + offsets**2
                change = curvature @ spread
                total = change @ curvature + sampled * (rows.T * unsure) @ rows
                total[np.diag_indices_from(total)] += noise
                surprise = measured - curvature @ (mean - coef)
                root = cho_factor(total, lower=True)
                gain = cho_solve(root, np.column_stack([surprise, change]))
                size = 2 * float(np.log(np.diag(root[0])).sum())
                self._evidence[k] -= (size + surprise @ gain[:, 0]) / 2
                means[:, column] = mean + change.T @ gain[:, 0]
                spread = spread - change.T @ gain[:, 1:]
                spreads[column] = (spread + spread.T) / 2
            return
        squares = rows**2
        curvature = n / len(rows) * slopes @ squares
        for k, (means, spreads) in enumerate(zip(self._means, self._spreads, strict=True)):
            mean, spread = means[:, column], spreads[column]
            wrong = squares @ spread + (rows @ (mean - coef)) ** 2
            unsure = slopes**2 * np.minimum(wrong, _FURTHEST) + offsets**2
            total = noise + curvature**2 * spread + sampled * unsure @ squares
            surprise = measured - curvature * (mean - coef)
            self._evidence[k] -= (np.log(total) + surprise**2 / total).sum() / 2
            means[:, column] = mean + spread * curvature * surprise / total
            spreads[column] = spread - (spread * curvature) ** 2 / total


class KalmanLogistic(_Bank):
    """Learn logistic regression from noisy sums of balanced residuals, one released table a round.

    Each round asks private rows what the model of the rounds before gets wrong
    (:meth:`ostraka.voters.RowVoter.gradient`). The answer is a noisy linear measurement of how far the
    coefficients are from the best ones: its slope is the curvature over public rows. So a Kalman filter takes
    the place of steps, rates and stopping. Several filters with priors of different scales read the same
    answers; each counts by its evidence.

    Parameters
    ----------
    X : array of shape (n_public, n_features)
        Features of public rows, of length 1 at most; the last one is the constant. Public.
    variances : array of shape (n_features - 1,)
        Prior variances of the other coefficients, relative to each other. Public.
    n_classes, n_units, n_rounds : int
        Classes, private units, and tables. Public.
    sigma : float > 0
        Standard deviation of the noise of each number, where a unit adds length 1 at most. Public.

    Attributes
    ----------
    coef_ : float64 array, shape (n_features, 1) for two classes, else (n_features, n_classes)
        Log odds for each feature, of the second class or of each: to pose the next round with.
    weights_ : float64 array, shape (4,)
        How much each filter counts: its evidence, as a share.
    covariance_ : list of arrays, for each column of ``coef_``
        Posterior covariance of the likeliest filter, whole or along ``axes_``.

    Notes
    -----
    Round 0 poses equal probabilities and is read twice: it tells the share of each class, and is then
    linearised at these shares. So a rare class bends nothing. The noise of a measurement has two parts
    beside the released one: public rows are a sample, so they know the curvature and the mean of features up
    to 1 / sqrt(n_public); and the logistic function is not linear.
    After the last round, the uncertainty that private rows leave even without noise is taken off.
    With several classes, or some hundreds of features, each principal axis of the public rows has a variance
    of its own: on tables that chose the settings, whole covariances are better for two classes alone.
    Everything here is a function of released tables.
    Source: Kalman 1960, doi:10.1115/1.3662552; a bank weighted by evidence: Magill 1965,
    doi:10.1109/TAC.1965.1098191.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=(2000, 2)) / 4, np.full(2000, 0.5)])
    >>> y = (rng.random(2000) < 1 / (1 + np.exp(-12 * X[:, 0]))).astype(int)
    >>> model = KalmanLogistic(X[:300], [1.0, 1.0], n_classes=2, n_units=1700, n_rounds=3, sigma=5.0)
    >>> for _ in range(3):
    ...     sure = probabilities(X[300:] @ model.coef_)
    ...     residuals = balanced(sure) * (y[300:, None] - sure[:, 1:])
    ...     model = model.step(X[300:].T @ residuals + 5.0 * rng.normal(size=(3, 1)))
    >>> float((chances(X @ model.coef_).argmax(axis=1) == y).mean()) > 0.8
    True
    """

    def __init__(
        self, X: Any, variances: Any, *, n_classes: int, n_units: int, n_rounds: int, sigma: float
    ) -> None:
        check.integer(n_classes=n_classes, least=2)
        self.n_classes = n_classes
        super().__init__(
            X,
            variances,
            n_columns=1 if n_classes == 2 else n_classes,
            n_units=n_units,
            n_rounds=n_rounds,
            sigma=sigma,
            scales=_SCALES,
            variance=1 / _VARIANCE,
        )

    def step(self, sums: Any) -> Self:
        """Take the noisy sums of one round, of the shape of ``coef_``, where a unit adds length 1 at most.

        Raises
        ------
        ValueError
            No round is left, or the sums have another shape or are not finite.
        """
        table, coef, rows = self._table(sums), self._turned(self.coef_), self._rows
        posed = probabilities(rows @ coef)
        weights, n_columns = balanced(posed), table.shape[1]
        if not self._round:
            # coefficients that give every row the share of each class that the first round tells
            middle = rows.mean(axis=0)
            size, weight = float(middle @ middle), float(weights[0, 0])
            shares = 1 / self.n_classes + middle @ table / (self.n_units * size * weight)
            noise = self.sigma / (self.n_units * np.sqrt(size) * weight)
            least = min(max(1.5 * noise, _LEAST_SHARE / self.n_classes * 2), 1 / self.n_classes)
            shares = np.clip(shares, least, 1 - least)
            odds = np.log(shares / (1 - shares)) if n_columns == 1 else np.log(shares / shares.sum())
            constant = np.zeros(self.coef_.shape)
            constant[-1] = (odds if n_columns == 1 else odds - odds.mean()) / self._constant
            coef = self._turned(constant)
        sure = probabilities(rows @ coef)
        offsets = (weights * (sure - posed))[:, -n_columns:]
        slopes = (weights * sure * (1 - sure))[:, -n_columns:]
        for column in range(n_columns):
            measured = table[:, column] - self.n_units * (rows * offsets[:, [column]]).mean(axis=0)
            self._measure(column, measured, coef[:, column], slopes[:, column], offsets[:, column])
        self._mix()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class index of rows by their features; int64."""
        return np.asarray(chances(np.asarray(X, dtype=np.float64) @ self.coef_).argmax(axis=1))

    def expected(self) -> dict[str, float]:
        """Accuracy and area under the curve that the posterior lets expect of new rows.

        Coefficients are drawn from the posterior as if they were true; the model is scored over public rows.
        Each figure comes with its standard deviation over the draws, as ``*_error``. Of several classes the
        area is the mean over classes, each against all others. A function of released tables and public rows.

        The posterior is that of a linear model with normal priors, which no table is. On the tables that
        chose the settings, areas were further from a half than it says by a twentieth, give or take a
        seventh. What is returned is corrected so, and its error has both.
        """
        rng, rows = np.random.default_rng(0), self._rows
        mean = self._turned(self.coef_)
        sure = chances(rows @ mean)
        labels, columns = sure.argmax(axis=1), range(self.n_classes == 2, self.n_classes)
        orders = [np.argsort(sure[:, k], kind="stable") for k in columns]
        roots = [
            np.linalg.cholesky(covariance) if self._whole else np.sqrt(covariance)
            for covariance in self.covariance_
        ]
        figures = []
        for _ in range(_DRAWS):
            apart = rng.normal(size=mean.shape)
            steps = [root @ x if self._whole else root * x for root, x in zip(roots, apart.T, strict=True)]
            true = chances(rows @ (mean + np.stack(steps, axis=1)))
            areas = []
            for k, order in zip(columns, orders, strict=True):
                yes = true[order, k]
                below = np.cumsum(1 - yes) - (1 - yes) / 2
                areas.append(float(yes @ below / (yes.sum() * (1 - yes).sum())))
            figures.append((float(true[np.arange(len(true)), labels].mean()), float(np.mean(areas))))
        names = ("accuracy", "auc")
        middles, errors = np.mean(figures, axis=0), np.std(figures, axis=0)
        excess = _FURTHER * (middles[1] - 0.5)
        middles[1] = min(0.5 + excess, 1.0)
        errors[1] = np.hypot(_WIDER * errors[1], _BETWEEN_TABLES * excess)
        sampled = 1 / (2 * np.sqrt(len(rows)))  # at most, of a share
        expected = {name: float(middle) for name, middle in zip(names, middles, strict=True)}
        return expected | {
            f"{name}_error": float(np.hypot(error, sampled))
            for name, error in zip(names, errors, strict=True)
        }


class KalmanLinear(_Bank):
    """Learn linear regression from noisy sums of clipped residuals, one released table a round.

    Targets are between -1 and 1. The sum of a round is a linear measurement of how far the coefficients are
    from the best ones, whose slope is the second moment of the public rows. The clip shrinks from round to
    round, and the noise with it.

    Parameters
    ----------
    X, variances, n_units, n_rounds, sigma
        As of :class:`KalmanLogistic`.

    Attributes
    ----------
    coef_ : float64 array, shape (n_features, 1)
    weights_, covariance_
        As of :class:`KalmanLogistic`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=(2000, 2)) / 4, np.full(2000, 0.5)])
    >>> model = KalmanLinear(X[:300], [1.0, 1.0], n_units=1700, n_rounds=2, sigma=5.0)
    >>> for clip in (1.0, 0.5):
    ...     residuals = np.clip(X[300:, :1] - X[300:] @ model.coef_, -clip, clip)
    ...     model = model.step(X[300:].T @ residuals / clip + 5.0 * rng.normal(size=(3, 1)), clip=clip)
    >>> model.coef_[:, 0].round(1) + 0
    array([1., 0., 0.])
    """

    def __init__(self, X: Any, variances: Any, *, n_units: int, n_rounds: int, sigma: float) -> None:
        super().__init__(
            X,
            variances,
            n_columns=1,
            n_units=n_units,
            n_rounds=n_rounds,
            sigma=sigma,
            scales=_LINEAR_SCALES,
            variance=_LINEAR_VARIANCE,
        )

    def step(self, sums: Any, *, clip: float) -> Self:
        """Take the noisy sums of one round whose residuals were clipped and counted in parts of ``clip``.

        Raises
        ------
        ValueError
            No round is left, the sums have another shape or are not finite, or the clip is not positive.
        """
        check.positive(clip=clip)
        table = self._table(sums)
        slopes = np.full(len(self._rows), 1 / clip)
        self._measure(0, table[:, 0], self._turned(self.coef_)[:, 0], slopes, np.zeros(len(slopes)))
        self._mix()
        return self


def chances(odds: np.ndarray) -> np.ndarray:
    """Probability of each class, (n_rows, n_classes), for log odds of the second class or of each class."""
    if odds.shape[1] == 1:
        odds = np.hstack([np.zeros_like(odds), odds])
    return np.asarray(softmax(odds, axis=1))
