"""Plan a run: the noise and the number of questions from which a student should learn most.

A learning curve says how accurate a model of n rows is, and how far teachers agree. Votes are simulated by
it; what noise does to them, and what it costs, is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.special import betaincinv

from ostraka.core import check
from ostraka.core.accounting.calibration import calibrate
from ostraka.core.mechanisms.argmax import GNMax
from ostraka.core.mechanisms.screen import Confident, Threshold
from ostraka.core.private import Private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.curve import Curve

# floor, begin and spread of a typical task, an easy one and a hard one. Close to these: a census table
# (floor 0.15, begin 2.5, spread 0.9) and scanned digits (0.02, 4). Nothing is known of yours.
_ASSUMED = ((0.10, 4.0, 1.0), (0.03, 2.0, 0.7), (0.18, 12.0, 1.5))
# Measured curves: the grid of fits; models of each size, resamplings of them, and rows of the smallest.
_FLOORS, _BEGINS = np.linspace(0.0, 0.6, 121), np.geomspace(0.1, 300.0, 81)
_MODELS, _RESAMPLED, _LEAST_ROWS = 12, 9, 8
# What is searched: teachers, answers, where a screen stands (share of the teachers), and budgets.
_TEACHERS = (10, 25, 50, 100, 150, 250, 400, 600, 1000)
_ANSWERS = (25, 50, 100, 200, 400, 800, 1600, 3200)
_BARS = (0.6, 0.75)
_EPSILONS = (0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
_SCREEN_NOISE = 3.0  # times that of the argmax: a screen then adds 3 % to the noise, whatever it lets through
_FEWEST_ROWS = 8  # of a teacher
_QUERIES = 400  # simulated
# Teachers must outnumber the noise this many times. On a census table, with 250 teachers and epsilon 2,
# students of 400 to 800 answers were the best; at twice the noise, four times as many did not make up for it.
_AUDIBLE = 3.5
_TIGHT = 0.8  # about what tight noise is of classic noise: to search with, never to claim


def propose(
    *,
    n_rows: int,
    n_classes: int,
    delta: float,
    epsilon: float | None = None,
    target_accuracy: float | None = None,
    n_public: int = 3200,
    learning_curves: Sequence[LearningCurve] | None = None,
    seed: int = 0,
) -> Proposal:
    """Teachers, noise, screen and number of questions that should learn most from a budget.

    Parameters
    ----------
    n_rows, n_classes, n_public : int
        Public numbers: protected units, classes, and unlabelled public rows to ask about.
    delta : float
        Below one over ``n_rows``.
    epsilon, target_accuracy : float
        One of them: the budget, or the accuracy for which to find the smallest budget.
    learning_curves : sequence of LearningCurve, optional
        The first is planned with; all of them give the ranges. None: :meth:`LearningCurve.assumed`. Better:
        :meth:`LearningCurve.measured` on public rows.
    seed : int
        Of the simulation. It draws no noise of any release.

    Returns
    -------
    Proposal

    Raises
    ------
    TypeError
        Private data.
    ValueError
        Numbers out of range, or a target that no epsilon up to 10 is expected to reach.

    Notes
    -----
    Votes of teachers are simulated; what noise does to them is computed exactly; the student is
    expected to err where the plurality errs, and beyond that as a model trained on so many clean rows as
    n noisy labels are worth, n (1 - C / (C - 1) share of flipped labels)^2. On a census table the
    forecast was two points too high. Noise stays below the teachers / 3.5: beyond it the model is too
    kind to noisy labels. Cost is for the case that every question is answered.

    Examples
    --------
    >>> plan = propose(n_rows=20_000, n_classes=2, delta=5e-6, target_accuracy=0.75)
    >>> plan.student.best > 0.74, plan.epsilon < 2
    (True, True)
    """
    if any(isinstance(value, Private) for value in (n_rows, n_classes, n_public, learning_curves)):
        raise TypeError("planning must not read private data: it would use them without paying")
    check.integer(n_rows=n_rows, least=2 * _FEWEST_ROWS)
    check.integer(n_classes=n_classes, least=2)
    check.integer(n_public=n_public, least=1)
    check.delta(delta, n_units=n_rows)
    if (epsilon is None) == (target_accuracy is None):
        raise ValueError("give epsilon or target_accuracy, one of them")
    tasks = tuple(learning_curves or LearningCurve.assumed(n_classes=n_classes))
    if any(task.n_classes != n_classes for task in tasks):
        raise ValueError(f"learning_curves must be of {n_classes} classes, as n_classes says")
    search = _Search(tasks, n_rows, n_public, delta, seed)
    if epsilon is not None:
        check.positive(epsilon=epsilon)
        return search.finished(search.best(epsilon)[1], epsilon)
    assert target_accuracy is not None  # noqa: S101  (one of the two was given)
    check.share(target_accuracy=target_accuracy)
    accuracy, choice = search.best(_EPSILONS[-1])
    if accuracy < target_accuracy:
        raise ValueError(
            f"no epsilon up to {_EPSILONS[-1]:g} is expected to reach an accuracy of {target_accuracy:g}: "
            f"the best plan found reaches {accuracy:.3f}; aim lower, or bring more rows, public rows or "
            "better features"
        )
    low, high = 0, len(_EPSILONS) - 1  # the smallest of several budgets that is expected to reach it
    cheapest = choice
    while low < high:
        middle = (low + high) // 2
        accuracy, choice = search.best(_EPSILONS[middle])
        if accuracy >= target_accuracy:
            high, cheapest = middle, choice
        else:
            low = middle + 1
    return search.finished(cheapest, _EPSILONS[high])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Proposed settings, their largest cost, and their expected results. All public.

    Attributes
    ----------
    n_teachers, n_questions : int
    mechanism : GNMax
    screen : Threshold or None
    epsilon : float
        At most, at ``delta``, if every question is answered. A proof, not a forecast.
    delta : float
    answered : Estimate
        Share of the questions that pass the screen.
    answers : Estimate
        Share of the answers that are right.
    student : Estimate
        Accuracy of a model that learns from the answers.

    Examples
    --------
    >>> plan = propose(n_rows=30_000, n_classes=2, epsilon=2.0, delta=1e-6)
    >>> plan.epsilon <= 2.0, plan.student.low <= plan.student.best <= plan.student.high
    (True, True)
    """

    n_teachers: int
    n_questions: int
    mechanism: GNMax
    screen: Threshold | None
    epsilon: float
    delta: float
    answered: Estimate
    answers: Estimate
    student: Estimate


class Estimate(NamedTuple):
    """Forecast of a run; it is no guarantee.

    Attributes
    ----------
    low, best, high : float
        Best guess, and the range over the learning curves planned with.

    Examples
    --------
    >>> Estimate(low=0.7, best=0.8, high=0.85).best
    0.8
    """

    low: float
    best: float
    high: float


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
        check.integer(n_classes=self.n_classes, least=2)
        check.positive(begin=self.begin, spread=self.spread)
        check.share(zero=True, floor=self.floor)

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
        from sklearn.base import clone  # noqa: PLC0415  (only planning with a proxy trains)

        scores, spreads = [], []
        for size in sizes.tolist():
            # whether each of a few models of this many rows is right about each row, (models, rows)
            right = np.empty((_MODELS, len(y_test)), dtype=bool)
            for model in range(_MODELS):
                rows = rng.choice(len(y), size=size, replace=False)
                if len(np.unique(y[rows])) == 1:
                    right[model] = y_test == y[rows][0]
                else:
                    right[model] = clone(estimator).fit(X[rows], y[rows]).predict(X_test) == y_test
            scores.append(right.mean(axis=1))
            # the spread by moments: variance over questions, minus the part due to few models
            share = right.mean(axis=0)
            mean = share.mean()
            variance = mean * (1 - mean)
            between = (share.var() - variance / _MODELS) * _MODELS / (_MODELS - 1)
            spreads.append(np.clip(variance / max(between, 1e-9) - 1, 0.05, 50.0) if variance > 0 else 1.0)
        spread = float(np.median(spreads))
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


class _Search(NamedTuple):
    tasks: tuple[LearningCurve, ...]
    n_rows: int
    n_public: int
    delta: float
    seed: int

    def best(self, epsilon: float) -> tuple[float, _Choice]:
        """Highest expected accuracy of the student, by classic noise scaled to about the tight one."""
        numbers = sorted({min(n, self.n_public) for n in _ANSWERS})
        teachers = [n for n in _TEACHERS if self.n_rows >= _FEWEST_ROWS * n] or [2]

        def classic(sigma: float) -> Any:
            return _Priced(GNMax(sigma=sigma).curve(bound="classic"))

        noise = {
            n: _TIGHT * calibrate(classic, n_answers=n, epsilon=epsilon, delta=self.delta, precision=1e-3)
            for n in numbers
        }
        candidates = []
        for n_teachers in teachers:
            votes = self._votes(self.tasks[0], n_teachers)
            audible = [n for n in numbers if noise[n] * _AUDIBLE <= n_teachers] or numbers[:1]
            for choice in (_Choice(n_teachers, n, bar) for n in audible for bar in (0.0, *_BARS)):
                parts = _noises(choice, noise[choice.n_questions])
                candidates.append((self._forecast(self.tasks[0], votes, choice, *parts)[2], choice))
        return max(candidates)

    def finished(self, choice: _Choice, epsilon: float) -> Proposal:
        """Return the proposal with calibrated noise and ranges of the forecast."""

        def asked(sigma: float) -> GNMax | Confident:
            argmax, screen = _noises(choice, sigma)
            return argmax if screen is None else Confident(screen=screen, argmax=argmax)

        noise = calibrate(
            asked,
            n_answers=choice.n_questions,
            epsilon=epsilon * (1 - 1e-9),
            delta=self.delta,
            precision=1e-4,
        )
        step = 10.0 ** (math.floor(math.log10(noise)) - 3)  # four digits, rounded up: people type them
        sigma = float(f"{math.ceil(noise / step - 1e-9) * step:.4g}")
        mechanism, screen = _noises(choice, sigma)
        forecasts = [
            self._forecast(task, self._votes(task, choice.n_teachers), choice, mechanism, screen)
            for task in self.tasks
        ]
        answered, answers, student = (
            Estimate(min(values), values[0], max(values)) for values in zip(*forecasts, strict=True)
        )
        return Proposal(
            n_teachers=choice.n_teachers,
            n_questions=choice.n_questions,
            mechanism=mechanism,
            screen=screen,
            epsilon=(choice.n_questions * asked(sigma).curve()).epsilon(self.delta),
            delta=self.delta,
            answered=answered,
            answers=answers,
            student=student,
        )

    def _votes(self, task: LearningCurve, n_teachers: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, n_teachers])
        return task.votes(n_teachers=n_teachers, n_rows=self.n_rows / n_teachers, n_queries=_QUERIES, rng=rng)

    def _forecast(
        self, task: LearningCurve, votes: np.ndarray, choice: _Choice, argmax: GNMax, screen: Threshold | None
    ) -> tuple[float, float, float]:
        """Forecast the share of questions answered, the share right, and the student's accuracy."""
        outcome = np.exp(argmax.log_outcomes(votes))
        passes = np.ones(len(votes)) if screen is None else np.exp(screen.log_outcomes(votes)[:, 0])
        answered = float(passes.mean())
        plurality = votes.argmax(axis=1)
        weights = passes / passes.sum()
        unchanged = float(weights @ outcome[np.arange(len(votes)), plurality])
        flipped = (1 - unchanged) * task.n_classes / (task.n_classes - 1)
        worth = choice.n_questions * answered * max(0.0, 1 - flipped) ** 2
        error = float((plurality != 0).mean()) + task.excess(worth)
        return answered, float(weights @ outcome[:, 0]), 1 - min(error, 1 - 1 / task.n_classes)


class _Choice(NamedTuple):
    """A candidate; ``bar`` is the share of the teachers at which the screen stands, 0 for none."""

    n_teachers: int
    n_questions: int
    bar: float


class _Priced(NamedTuple):
    """A price that stands for a mechanism in the search."""

    cost: Curve

    def curve(self) -> Curve:
        return self.cost


def _noises(choice: _Choice, sigma: float) -> tuple[GNMax, Threshold | None]:
    if not choice.bar:
        return GNMax(sigma=sigma), None
    at = float(round(choice.bar * choice.n_teachers))
    return GNMax(sigma=sigma), Threshold(at=at, sigma=_SCREEN_NOISE * sigma)


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
