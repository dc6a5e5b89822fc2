"""Scores: what an adversary saw with and without its target, and the rates that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.special

from ostraka.core import axes as _axes
from ostraka.core import check
from ostraka.core.numeric import clopper_pearson

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Scores"]

_FEWEST_TARGETS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A true positive rate at a false positive rate, with both ends of an interval.

    Attributes
    ----------
    fpr : float
        The false positive rate that was asked for.
    tpr : float
        As observed.
    low, high : float
        The true rate is between them with probability ``confidence``.
    confidence : float
    n_members, n_others : int
        How many scores it is from.
    """

    fpr: float
    tpr: float
    low: float
    high: float
    confidence: float
    n_members: int
    n_others: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """Counts of the values that an adversary saw in a world with its target and in one without.

    A value is a real score (larger: more like the world with the target), or the number of an
    outcome, such as a released class. Real scores are counted too: each distinct one is a value.

    Attributes
    ----------
    values : float64 array, shape (n_values,), increasing
    members : int64 array, shape (n_values,)
        How often each value was seen with the target.
    others : int64 array, shape (n_values,)
        How often without it.

    Raises
    ------
    ValueError
        Values not increasing and finite, counts negative, of other shapes, or none in a world.

    Examples
    --------
    >>> scores = Scores.of(members=[0.9, 0.8, 0.8, 0.1], others=[0.8, 0.2, 0.1, 0.0])
    >>> scores.tpr(fpr=0.25), scores.advantage()
    (0.75, 0.5)
    """

    values: np.ndarray
    members: np.ndarray
    others: np.ndarray

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
            raise ValueError(
                f"values must be finite and increasing, in one dimension, got shape {values.shape}"
            )
        object.__setattr__(self, "values", values)
        for name in ("members", "others"):
            counts = np.array(getattr(self, name))
            whole = counts.dtype.kind in "iu" and counts.ndim == 1
            if not whole or (counts < 0).any() or not counts.sum():
                raise ValueError(
                    f"{name} must be integers >= 0 in one dimension, not all 0, got shape {counts.shape}"
                )
            object.__setattr__(self, name, counts.astype(np.int64))
            if counts.shape != values.shape:
                raise ValueError(f"{name} must have one count for each of {values.size} values")
        for array in (self.values, self.members, self.others):
            array.setflags(write=False)

    @classmethod
    def of(cls, *, members: Any, others: Any) -> Self:
        """Count real scores, or outcomes: one number a trial, in each world."""
        worlds = [np.asarray(world, dtype=np.float64).ravel() for world in (members, others)]
        if not all(np.isfinite(world).all() for world in worlds):
            raise ValueError(
                f"scores must be finite, got {worlds[0].size} members and {worlds[1].size} others"
            )
        values, place = np.unique(np.concatenate(worlds), return_inverse=True)
        cut = worlds[0].size
        tally = [np.bincount(part, minlength=values.size) for part in (place[:cut], place[cut:])]
        return cls(values=values, members=tally[0], others=tally[1])

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """False and true positive rates of "the score is at least t", for every t, from (0, 0) to (1, 1)."""
        rates = [
            np.concatenate([[0], counts[::-1].cumsum()]) / counts.sum()
            for counts in (self.others, self.members)
        ]
        return rates[0], rates[1]

    def tpr(self, *, fpr: float) -> float:
        """Largest true positive rate of a threshold whose false positive rate is at most ``fpr``.

        Both rates are those that were observed. For an interval see :meth:`rate`.
        """
        check.nonnegative(fpr=fpr)
        false, true = self.roc()
        return float(true[false <= fpr].max())

    def rate(self, *, fpr: float, confidence: float = 0.95) -> Rate:
        """True positive rate at a false positive rate, with an interval that is valid for few scores, too.

        The threshold with false positive rate ``fpr`` is itself uncertain. One order statistic of the others
        has a false positive rate of at most ``fpr`` and another of at least ``fpr``, each with high
        probability; the ends are those of Clopper and Pearson for the members beyond them. With fewer than
        about log(4 / (1 - confidence)) / ``fpr`` others no threshold is known to be strict enough, and the
        lower end is 0: at 0.1 % that takes 4,400 others.

        Scores must be independent of one another. For several targets see :meth:`rate_over_targets`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> scores = Scores.of(members=rng.normal(2, 1, 10_000), others=rng.normal(size=10_000))
        >>> found = scores.rate(fpr=0.001)  # the truth is 0.138
        >>> round(found.low, 3), round(found.tpr, 3), round(found.high, 3)
        (0.068, 0.132, 0.188)
        """
        check.share(fpr=fpr, confidence=confidence)
        error, n, trials = (1 - confidence) / 4, int(self.others.sum()), int(self.members.sum())
        others, members = self.others[::-1].cumsum(), np.append(0, self.members[::-1].cumsum())
        low, high = 0.0, 1.0
        # above an order statistic of the others whose rate is at most fpr: P(fewer of n) <= error
        rank = int(np.searchsorted(scipy.special.bdtr(np.arange(n), n, fpr), error))
        if rank:
            hits = int(members[np.searchsorted(others, rank)])
            low = float(clopper_pearson(hits, trials, error=error)[0])
        # from an order statistic of the others on whose rate is at least fpr: P(so many of n) <= error
        rank = int((scipy.special.bdtrc(np.arange(n + 1), n, fpr) > error).sum()) + 1
        if rank <= n:
            hits = int(members[np.searchsorted(others, rank) + 1])
            high = float(clopper_pearson(hits, trials, error=error)[1])
        return Rate(
            fpr=float(fpr),
            tpr=self.tpr(fpr=fpr),
            low=low,
            high=high,
            confidence=confidence,
            n_members=trials,
            n_others=n,
        )

    @staticmethod
    def rate_over_targets(
        targets: Sequence[Scores],
        *,
        fpr: float,
        confidence: float = 0.95,
        n_resamples: int = 1000,
        rng: np.random.Generator,
    ) -> Rate:
        """True positive rate of one threshold for many targets, whose scores may depend on one another.

        Parameters
        ----------
        targets : sequence of Scores
            One for each target, such as a row or a model. Scores of one target may depend on one another.
        fpr : float in (0, 1)
            False positive rate over all targets.
        confidence : float in (0, 1)
        n_resamples : int
            How often targets are drawn again, with replacement.
        rng : numpy.random.Generator

        Returns
        -------
        Rate
            Of all scores together. It is no :class:`Scores`: scores of different targets are never pooled
            into a lower bound on epsilon.

        Raises
        ------
        ValueError
            Fewer than 10 targets, ``fpr`` or ``confidence`` not in (0, 1).

        Guarantees
        ----------
        None for few targets: the cluster bootstrap is right for many independent targets only. Its interval
        is widened to contain that of :meth:`Scores.rate`, which is exact if all scores are independent.
        Source: Field and Welsh 2007, doi:10.1111/j.1467-9868.2007.00593.x.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> effects = rng.normal(1, 1, size=50)  # some targets are more exposed than others
        >>> targets = [Scores.of(members=rng.normal(e, 1, 40), others=rng.normal(size=40)) for e in effects]
        >>> found = Scores.rate_over_targets(targets, fpr=0.01, rng=rng)
        >>> found.low < found.tpr < found.high
        True
        """
        check.share(fpr=fpr, confidence=confidence)
        check.integer(n_resamples=n_resamples, least=100)
        if len(targets) < _FEWEST_TARGETS:
            raise ValueError(
                f"targets must be {_FEWEST_TARGETS} or more to draw them again, got {len(targets)}: use "
                "Scores.rate for each"
            )
        values = np.unique(np.concatenate([target.values for target in targets]))
        place = np.concatenate([np.searchsorted(values, target.values) for target in targets])
        owner = np.repeat(np.arange(len(targets)), [target.values.size for target in targets])
        tallies = [
            np.concatenate([getattr(target, name) for target in targets]) for name in ("others", "members")
        ]

        def drawn(weights: np.ndarray) -> float:
            """The rate if target i counts ``weights[i]`` times."""
            false, true = (
                np.bincount(place, weights=tally * weights[owner], minlength=values.size)[::-1].cumsum()
                for tally in tallies
            )
            allowed = false <= fpr * false[-1]
            return float(true[allowed][-1] / true[-1]) if allowed.any() else 0.0

        even = np.full(len(targets), 1 / len(targets))
        rates = [drawn(rng.multinomial(len(targets), even)) for _ in range(n_resamples)]
        low, high = np.quantile(rates, [(1 - confidence) / 2, (1 + confidence) / 2])
        others, members = (
            np.bincount(place, weights=tally, minlength=values.size).astype(np.int64) for tally in tallies
        )
        alone = Scores(values=values, members=members, others=others).rate(fpr=fpr, confidence=confidence)
        return replace(alone, low=min(alone.low, float(low)), high=max(alone.high, float(high)))

    def plot(self, axes: Any = None) -> Any:
        """Draw true against false positive rates, both logarithmic; returns matplotlib's axes.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw. None: on new ones.

        Examples
        --------
        >>> Scores.of(members=[0.2, 0.9], others=[0.1, 0.3]).plot().get_xlabel()
        'false positive rate'
        """
        return _axes.receiver_operating_curve(self, axes)

    def auc(self) -> float:
        """Area under the curve of :meth:`roc`: how often a member scores above another; ties count half."""
        false, true = self.roc()
        return float(np.trapezoid(true, false))

    def advantage(self) -> float:
        """Largest difference between true and false positive rate of a threshold."""
        false, true = self.roc()
        return float((true - false).max())
