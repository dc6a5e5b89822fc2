"""The protocols of mechanisms: the methods that each mechanism has, and the optional ones.

A mechanism is frozen public parameters with its code and its price. A ballot mechanism also knows the
probability of each of its outcomes, and that is enough: exact costs, vote recovery, audits, planning,
learning and the service work with it, by enumerating outcomes. The protocols after these two are optional.
A mechanism which has the method or attribute is faster or can do more. Its type is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np

from ostraka import _check
from ostraka.curve import Priced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.curve import Curve
    from ostraka.private import Adjacency, Private
    from ostraka.released import Released

__all__ = [
    "ABSTAIN",
    "ArgmaxBound",
    "BallotMechanism",
    "HasArgmaxKernel",
    "HasClassicCurve",
    "HasGradient",
    "HasInformation",
    "HasMomentsBound",
    "HasNoise",
    "HasPublishedBound",
    "HasScreenBound",
    "HasScreenKernel",
    "Mechanism",
    "PublishedBound",
    "Releasing",
    "Rescalable",
    "ScreenBound",
    "Screened",
    "Staged",
    "abstains",
    "check_ballot",
    "classic_curve",
    "gradient",
    "outcome_places",
    "parts",
    "passes_or_stops",
    "rescaled",
]

ABSTAIN = -1  # the answer where there is none
_STEP = 1e-4  # votes; of a central difference, where a mechanism offers no gradient


class Releasing(Priced, Protocol):
    """Frozen public parameters with code and price; releases an array, named arrays or a model."""

    def __hash__(self) -> int:
        """Equal mechanisms have equal hashes: they are the keys of price lists."""
        ...

    @property
    def promise(self) -> Adjacency:
        """The largest change of its input that :meth:`curve` pays for."""
        ...

    def uses(self, private: Private) -> int:
        """Return how many uses are charged for answering all of ``private``."""
        ...

    def release(self, private: Private, *, rng: np.random.Generator) -> Released:
        """The noisy release. All noise comes from ``rng``."""
        ...


class Mechanism(Releasing, Protocol):
    """A mechanism which releases one array: frozen parameters, code and price in one object."""

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The noisy answers. All noise comes from ``rng``."""
        ...


class BallotMechanism(Mechanism, Protocol):
    """A mechanism which answers a table of votes, one outcome for each row, and knows their probabilities."""

    def log_outcomes(self, counts: Any) -> np.ndarray:
        """Log probability of each outcome, shape (n_queries, n_outcomes), nats.

        :func:`outcome_places` says which column an answer belongs to. A mechanism whose outcomes are
        "passes" and "stops" instead of classes has ``passes_or_stops = True``; one whose last outcome is
        "no answer" has ``abstains = True``.
        """
        ...


@runtime_checkable
class HasGradient(Protocol):
    """A ballot mechanism which offers the derivative of its outcome map."""

    def log_outcomes_gradient(self, counts: Any) -> tuple[np.ndarray, np.ndarray]:
        """Log probabilities, and their derivatives by each count (last axis), per vote."""
        ...


@runtime_checkable
class HasInformation(Protocol):
    """Answers with numbers rather than outcomes, and knows how much one answer tells about the counts."""

    def information(self, counts: Any) -> np.ndarray:
        """Fisher information of one answer, shape (n_rows, n_classes, n_classes), per count squared."""
        ...


@runtime_checkable
class HasArgmaxKernel(Protocol):
    """An argmax of counts whose noise the compiled code supports."""

    @property
    def argmax_kernel(self) -> tuple[int, float]:
        """``GAUSSIAN`` (0) or ``LAPLACE`` (1), and the scale in votes."""
        ...


@runtime_checkable
class HasScreenKernel(Protocol):
    """A screen with Gaussian noise which the compiled code supports."""

    @property
    def screen_kernel(self) -> tuple[int, float, float]:
        """Noise on the largest count (1) or on every count (2), the threshold, and sigma, in votes."""
        ...


@runtime_checkable
class HasClassicCurve(Protocol):
    """Offers the price of publishing the noisy counts themselves, which its own price never exceeds."""

    def classic_curve(self) -> Curve | None:
        """Cost of one use; None where a part of the mechanism does not offer it."""
        ...


class PublishedBound(Protocol):
    """A published data-dependent bound on one query, from the log of a probability q."""

    def log_q(self, counts: np.ndarray) -> np.ndarray:
        """Log of (a bound on) the probability of the less likely outcome, one a query."""
        ...

    def rdp(self, log_q: np.ndarray, orders: tuple[float, ...]) -> np.ndarray:
        """The bound, shape (n_queries, n_orders), nats, from these votes to a neighbour's only."""
        ...


class ArgmaxBound(PublishedBound, Protocol):
    """A published bound for an argmax which also maps q to a scale in ballots, for smooth sensitivity."""

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound has to be evaluated."""
        ...

    def points(self, behind: np.ndarray) -> np.ndarray:
        """Points on the scale, from the gap of each other class; one ballot moves a point by at most 1."""
        ...

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these points."""
        ...


class ScreenBound(PublishedBound, Protocol):
    """A published bound for a screen that looks at the largest count only."""

    def log_q_of_largest(self, largest: np.ndarray) -> np.ndarray:
        """``log_q`` from the largest counts."""
        ...


@runtime_checkable
class HasPublishedBound(Protocol):
    """An argmax which offers the bound of Papernot et al. 2018 for it."""

    def published_bound(self) -> ArgmaxBound:
        """The bound."""
        ...


@runtime_checkable
class HasMomentsBound(Protocol):
    """An argmax which offers the moments bound of Papernot et al. 2017 for it."""

    def moments_bound(self) -> PublishedBound:
        """The bound; its divergence of order l + 1 is moment(l) / l."""
        ...


@runtime_checkable
class HasScreenBound(Protocol):
    """A screen which offers the bound of Papernot et al. 2018 for it, or None where that does not apply."""

    def screen_bound(self) -> ScreenBound | None:
        """The bound."""
        ...


class HasNoise(Protocol):
    """A class of mechanisms which differ in the amount of their noise only."""

    @classmethod
    def with_noise(cls, *, noise: float) -> Self:
        """The mechanism of this class with noise of this scale, in votes."""
        ...


@runtime_checkable
class Rescalable(Protocol):
    """Offers the same mechanism in other units of votes; then ballots may be weighted."""

    def rescaled(self, factor: float) -> Self:
        """The mechanism with noise and thresholds multiplied by ``factor``: the same law of scaled counts."""
        ...


@runtime_checkable
class Staged(Protocol):
    """Pays in stages: each stage covers only the entries which earlier stages let through."""

    def in_stages(self, private: Private, ask: Callable[[str, Mechanism, Private], np.ndarray]) -> np.ndarray:
        """Return the answers; ``ask(name, mechanism, entries)`` pays for one stage and answers it."""
        ...


@runtime_checkable
class Screened(Protocol):
    """Has a screen with the outcomes "passes" and "stops", and an argmax for what passes."""

    @property
    def screen(self) -> BallotMechanism:
        """The mechanism that is applied to every query."""
        ...

    @property
    def argmax(self) -> BallotMechanism:
        """The mechanism that is applied to the queries which passed."""
        ...


def check_ballot(mechanism: BallotMechanism, *, classes: bool = False) -> None:
    """Raise TypeError unless it is a ballot mechanism; with ``classes``, unless its answers are classes."""
    known = all(callable(getattr(mechanism, name, None)) for name in ("log_outcomes", "curve"))
    if not known or isinstance(mechanism, type) or (classes and passes_or_stops(mechanism)):
        what = "a ballot mechanism that answers with a class" if classes else "a ballot mechanism"
        raise TypeError(
            f"mechanism must be {what}, such as GNMax(...) or "
            f"Confident(screen=Threshold(...), argmax=GNMax(...)), got {mechanism!r}"
        )


def passes_or_stops(mechanism: Mechanism) -> bool:
    """Return whether the outcomes are "passes" and "stops", as those of a screen, instead of classes."""
    return bool(getattr(mechanism, "passes_or_stops", False))


def abstains(mechanism: Mechanism) -> bool:
    """Return whether the last outcome is "no answer"."""
    return bool(getattr(mechanism, "abstains", False))


def parts(mechanism: BallotMechanism) -> tuple[BallotMechanism | None, BallotMechanism]:
    """Return the screen (None without one) and the mechanism that answers the queries which pass."""
    if isinstance(mechanism, Screened):
        return mechanism.screen, mechanism.argmax
    return None, mechanism


def rescaled(mechanism: BallotMechanism, factor: float) -> BallotMechanism:
    """Return the same mechanism in other units of votes; raise ValueError if it does not offer that."""
    if isinstance(mechanism, type) or not isinstance(mechanism, Rescalable):
        raise ValueError(  # noqa: TRY004  (as every other wrong parameter of a wrapper)
            "mechanism must be a ballot mechanism whose noise is in votes, such as GNMax(...), "
            f"got {mechanism!r}"
        )
    scaled: BallotMechanism = mechanism.rescaled(factor)
    return scaled


def gradient(mechanism: BallotMechanism, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log probabilities and their derivatives by each count, if need be by central differences."""
    if isinstance(mechanism, HasGradient):
        return mechanism.log_outcomes_gradient(counts)
    table = _check.counts(counts)
    logs = mechanism.log_outcomes(table)
    slopes = np.empty((*logs.shape, table.shape[1]))
    for k in range(table.shape[1]):
        step = _STEP * (np.arange(table.shape[1]) == k)
        with np.errstate(invalid="ignore"):  # an impossible outcome stays one: its slope is none
            slope = (mechanism.log_outcomes(table + step) - mechanism.log_outcomes(table - step)) / (
                2 * _STEP
            )
        slopes[:, :, k] = np.nan_to_num(slope, nan=0.0)
    return logs, slopes


def classic_curve(mechanism: Mechanism) -> Curve | None:
    """Return the price of publishing the noisy counts themselves; None if the mechanism does not offer it."""
    return mechanism.classic_curve() if isinstance(mechanism, HasClassicCurve) else None


def outcome_places(answers: np.ndarray, n_outcomes: int) -> np.ndarray:
    """The column of ``log_outcomes`` that each answer belongs to.

    Class k is column k; "passes" (True) is column 0 and "stops" (False) is column 1; no answer
    (``ABSTAIN``) is the last column.

    Examples
    --------
    >>> outcome_places(np.array([2, ABSTAIN]), 4), outcome_places(np.array([True, False]), 2)
    (array([2, 3]), array([0, 1]))
    """
    if answers.dtype == bool:
        return np.where(answers, 0, 1)
    return np.where(answers == ABSTAIN, n_outcomes - 1, answers).astype(np.int64)
