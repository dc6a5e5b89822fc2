"""Randomised response: each label is replaced at random, and stays true with a known probability.

What every mechanism for labels needs is here, too: Bayes' rule, and the checks of labels, answers and priors.
No message shows a label.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from ostraka.core import check
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.laws.law import MOST_CLASSES, Law
from ostraka.core.mechanisms import exact
from ostraka.core.numeric import up
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from ostraka.core.private import Private

_SUMS_TO_ONE = 1e-6
_LARGEST = 40.0  # nats; up to here whole weights of 63 bits do
_ROUNDING = 1 + 1e-12  # of the closed form
_DEAREST = 2  # classes: the divergence of two responses falls as there are more


class Labels:
    """The common part of mechanisms for labels: one unit owns one label, and Bayes' rule reads answers."""

    __slots__ = ()
    promise = Adjacency.one_label()
    n_classes: int

    def uses(self, private: Private) -> int:
        """One use for all rows, since one unit owns one label."""
        return charged(private, self.n_classes)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log chance of each answer under each label, shape (n, n_classes), nats."""
        raise NotImplementedError

    def posterior(self, answers: Any, prior: Any) -> np.ndarray:
        """Probability of each label after the answers, given a public ``prior`` of shape (n, n_classes)."""
        log_likelihood, before = self.log_likelihood(answers), priors(prior)
        shape = log_likelihood.shape
        if before.shape[-1] != shape[1] or before.shape[:-1] not in ((), shape[:1]):
            raise ValueError(f"prior must have shape {shape}, or of one row, got {before.shape}")
        with np.errstate(divide="ignore"):  # a class that the prior rules out stays ruled out
            joint = log_likelihood + np.log(before)
        return np.asarray(np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponse(Labels):
    """The true class with probability e^ε / (e^ε + n_classes - 1), else one of the others, all alike.

    Parameters
    ----------
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    epsilon : float in (0, 40], nats
        Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes, before anything is charged.

    Guarantees
    ----------
    The release of all labels is ``epsilon``-DP for one label, exactly: chances are ratios of whole
    numbers, no larger than e^ε, and there is no slack. ``curve()`` is the Rényi divergence of any two
    labels, in both directions. Source: Warner 1965, doi:10.1080/01621459.1965.10480775; Kairouz,
    Bonawitz and Ramage 2016, arXiv:1602.07387, Sec. 3 (k classes); docs/label-privacy.md (the curve).

    Examples
    --------
    >>> from ostraka import Adjacency, Budget, Ledger, Private, release
    >>> labels = Private([3, 1, 4, 1, 5], Adjacency.one_label())
    >>> mechanism = RandomizedResponse(n_classes=10, epsilon=2.0)
    >>> with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5)) as ledger:
    ...     answers = release(mechanism, labels, ledger=ledger)
    ...     answers.shape, ledger.left()
    ((5,), 0.0)
    >>> mechanism.posterior([7], [0.1] * 10).round(3)
    array([[0.061, 0.061, 0.061, 0.061, 0.061, 0.061, 0.061, 0.451, 0.061,
            0.061]])
    """

    n_classes: int
    epsilon: float

    def __post_init__(self) -> None:
        check.integer(n_classes=self.n_classes, least=2)
        check.at_most(MOST_CLASSES, n_classes=self.n_classes)
        _check_epsilon(self.epsilon)

    def curve(self) -> Curve:
        """Cost of one release of all labels: the Rényi divergence between any two labels."""
        return _curve(self.epsilon, self.n_classes)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return _delta(epsilon, self.epsilon, self.n_classes)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, int64 of shape (n,)."""
        labels = hard(private, self.n_classes)
        keep, others = exact.weights(self.epsilon, self.n_classes)
        numbers = rng.integers(0, keep + others * (self.n_classes - 1), size=labels.shape)
        return np.asarray((labels + _step(numbers, keep, others)) % self.n_classes)

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log chance of each answer under each label, shape (n, n_classes), nats."""
        array = responses(answers, self.n_classes)
        log_true = -math.log1p((self.n_classes - 1) * math.exp(-self.epsilon))
        return np.where(np.arange(self.n_classes) == array[:, None], log_true, log_true - self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PriorResponse(Labels):
    """Randomised response among the k likeliest classes of each row, with the k that is right most often.

    A row whose true class is among its k likeliest answers by randomised response over those; any other
    row answers with one of the k, all alike. Where the prior is sharp, k is 1: the answer reveals nothing.

    Parameters
    ----------
    prior : array of shape (n, n_classes)
        Class probabilities of each row. Public: from public data, or from what was released of other
        labels. One row for each label that will be asked.
    epsilon : float in (0, 40], nats
        Public.

    Attributes
    ----------
    kept : int64 array, shape (n,)
        The k of each row. Public.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes or not one a row, before
        anything is charged.

    Guarantees
    ----------
    ``epsilon``-DP for one label, exactly, as :class:`RandomizedResponse`; no ``epsilon``-DP answer is
    right more often under this prior. ``curve()`` is that of two classes, which bounds every row under
    every prior. Source: Ghazi et al. 2021, arXiv:2102.06062, Algorithms 2 and 3, Theorem 3;
    docs/label-privacy.md (the curve).

    Examples
    --------
    >>> sure, torn, lost = [0.98, 0.01, 0.01], [0.5, 0.5, 0.0], [0.34, 0.33, 0.33]
    >>> mechanism = PriorResponse(prior=[sure, torn, lost], epsilon=1.0)
    >>> mechanism.kept
    array([1, 2, 3])
    >>> mechanism.posterior([0, 1, 2], [sure, torn, lost]).round(3)
    array([[0.98 , 0.01 , 0.01 ],
           [0.269, 0.731, 0.   ],
           [0.217, 0.211, 0.572]])
    """

    prior: Any
    epsilon: float
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        _check_epsilon(self.epsilon)
        prior = priors(self.prior)
        if prior.ndim != 2:
            raise ValueError(f"prior must have one row a label, shape (n, n_classes), got {prior.shape}")
        likeliest = np.sort(prior, axis=1)[:, ::-1].cumsum(axis=1)
        right = likeliest / (1 + np.arange(prior.shape[1]) * math.exp(-self.epsilon))
        n_kept = right.argmax(axis=1).astype(np.int64) + 1
        for name, array in (("prior", prior), ("kept", n_kept)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        """Labels are 0 to ``n_classes - 1``."""
        return int(self.prior.shape[1])

    def curve(self) -> Curve:
        """Cost of one release of all labels, whatever the prior: earlier answers may decide the prior."""
        return _curve(self.epsilon, _DEAREST)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return _delta(epsilon, self.epsilon, _DEAREST)

    def uses(self, private: Private) -> int:
        """One use for all rows, since one unit owns one label."""
        return charged(self._matched(private), self.prior.shape[1])

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, int64 of shape (n,)."""
        labels = hard(self._matched(private), self.prior.shape[1])
        order = self._order()
        place = np.take_along_axis(order.argsort(axis=1), labels[:, None], axis=1)[:, 0]
        # for each row, whole weights of the true class and of any other class
        sizes, row = np.unique(self.kept, return_inverse=True)
        pairs = [exact.weights(self.epsilon, k) for k in sizes.tolist()]
        keep, others = np.array(pairs, dtype=np.int64).reshape(-1, 2)[row].T
        step = _step(rng.integers(0, keep + others * (self.kept - 1)), keep, others)
        anywhere = rng.integers(0, self.kept)  # drawn for every row, needed or not
        chosen = np.where(place < self.kept, (place + step) % self.kept, anywhere)
        return np.asarray(np.take_along_axis(order, chosen[:, None], axis=1)[:, 0])

    def log_likelihood(self, answers: Any) -> np.ndarray:
        """Log chance of each answer under each label, shape (n, n_classes), nats; one answer a row."""
        array = responses(answers, self.prior.shape[1])
        if array.shape != self.kept.shape:
            raise ValueError(f"answers must be one for each of {len(self.kept)} rows, got {array.shape}")
        rank, k = self._order().argsort(axis=1), self.kept[:, None]
        if (np.take_along_axis(rank, array[:, None], axis=1) >= k).any():
            raise ValueError(
                "answers must be among the kept classes of their rows: these are of another prior"
            )
        log_true = -np.log1p((k - 1) * math.exp(-self.epsilon))
        likelihood = np.where(np.arange(rank.shape[1]) == array[:, None], log_true, log_true - self.epsilon)
        return np.where(rank < k, likelihood, -np.log(k))

    def _matched(self, private: Private) -> Private:
        if private.shape[0] != len(self.prior):
            raise ValueError(f"labels must be one for each of {len(self.prior)} rows, got {private.shape}")
        return private

    def _order(self) -> np.ndarray:
        """The classes of each row, likeliest first; of equally likely ones the first class first."""
        return np.asarray((-self.prior).argsort(axis=1, kind="stable"))

    def __repr__(self) -> str:
        rows, n_classes = self.prior.shape
        return (
            f"PriorResponse(epsilon={self.epsilon!r}, prior=<{rows} x {n_classes}, sha256 {self._digest()}>)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PriorResponse):
            return NotImplemented
        return self.epsilon == other.epsilon and np.array_equal(self.prior, other.prior)

    def __hash__(self) -> int:
        return hash((self.epsilon, self._digest()))

    def _digest(self) -> str:
        return hashlib.sha256(self.prior.astype("<f8").tobytes()).hexdigest()


def charged(private: Private, n_classes: int) -> int:
    """One use for all rows: a unit owns one label. Looks at the labels first, since nothing is paid yet."""
    return min(1, hard(private, n_classes).size)


def hard(private: Private, n_classes: int) -> np.ndarray:
    """The labels, int64 of shape (n,), all of them classes."""
    labels = private.open()
    if labels.ndim != 1 or (labels.size and not np.issubdtype(labels.dtype, np.integer)):
        raise ValueError(
            f"labels must be whole numbers in one dimension, got {labels.dtype.type.__name__} of shape "
            f"{labels.shape}: the class of each row, not a vote, a score or one-hot rows"
        )
    if labels.size and not (labels.min() >= 0 and labels.max() < n_classes):
        raise ValueError(f"labels must be from 0 to {n_classes - 1}: some of {labels.size} are not")
    return labels.astype(np.int64)


def soft(answers: Any, n_classes: int) -> np.ndarray:
    """Released noisy one-hot rows, float64 of shape (n, n_classes)."""
    array = np.asarray(answers, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_classes or not np.isfinite(array).all():
        raise ValueError(f"answers must be finite, of shape (n, {n_classes}), got shape {array.shape}")
    return array


def responses(answers: Any, n_classes: int) -> np.ndarray:
    """Released classes, int64 of shape (n,)."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"answers must be released classes, shape (n,), got shape {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() < n_classes):
        raise ValueError(f"answers must be from 0 to {n_classes - 1}")
    return array.astype(np.int64)


def priors(values: Any) -> np.ndarray:
    """Class probabilities, float64 of shape (n_classes,) or (n, n_classes), scaled to sum to 1."""
    array = np.array(values, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] < 2:
        raise ValueError(f"prior must have shape (n, n_classes), two classes or more, got {array.shape}")
    total = array.sum(axis=-1, keepdims=True)
    if not (np.isfinite(array).all() and (array >= 0).all() and (abs(total - 1) < _SUMS_TO_ONE).all()):
        raise ValueError("prior must be probabilities: finite, >= 0, and each row must sum to 1")
    return np.asarray(array / total)


def _check_epsilon(epsilon: float) -> None:
    check.positive(epsilon=epsilon)
    if epsilon > _LARGEST:
        raise ValueError(f"epsilon must be at most {_LARGEST:g}, got {epsilon!r}: beyond, nothing is hidden")


def _step(numbers: np.ndarray, keep: Any, others: Any) -> np.ndarray:
    """Map random numbers to class offsets: ``keep`` of them to 0, ``other`` of them to each other offset."""
    return np.where(numbers < keep, 0, 1 + (numbers - keep) // others)


def _curve(epsilon: float, k: int) -> Curve:
    """Log of q (e^(aε) + e^((1-a)ε) + k - 2) over a - 1, q = 1 / (e^ε + k - 1), without cancellation."""
    order = np.array(ORDERS[:-1])
    further = (order - 1) * epsilon
    log_true = -math.log1p((k - 1) * math.exp(-epsilon))
    log_grown = further + np.log(-np.expm1(-further))  # of e^further - 1
    excess = log_true + log_grown + np.log(-np.expm1(-order * epsilon))
    rdp = np.minimum(np.logaddexp(0.0, excess) / (order - 1) * _ROUNDING, epsilon)
    return Curve(ORDERS, (*rdp.tolist(), float(epsilon)), "label", laws=(Law.response(k, float(epsilon)),))


def _delta(epsilon: float, share: float, k: int) -> float:
    """P(true) - e^epsilon P(any other), where positive."""
    check.nonnegative(epsilon=epsilon)
    if epsilon >= share:
        return 0.0
    return up(-math.expm1(epsilon - share) / (1 + (k - 1) * math.exp(-share)), ulps=16)
