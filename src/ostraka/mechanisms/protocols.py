"""The protocols of mechanisms: what every mechanism has, and what one may offer beside.

A mechanism is frozen public parameters with its code and its price. A ballot mechanism also knows the
probability of each of its outcomes, and that is enough: exact costs, vote recovery, audits, planning,
learning and the service work with it, by enumerating outcomes. The protocols after these two are optional.
A mechanism which has the method or attribute is faster or can do more; nobody asks for its type.
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
    "HasExactCosts",
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
    "exact_costs",
    "gradient",
    "outcome_places",
    "parts",
    "passes_or_stops",
]

ABSTAIN = -1  # the answer where there is none
_STEP = 1e-4  # votes; of a central difference, where a mechanism offers no gradient


class Releasing(Priced, Protocol):
    """Frozen public parameters, their code and their price; releases an array, named arrays or a model."""

    def __hash__(self) -> int:
        """Equal mechanisms are the same: prices are looked up by them."""
        ...

    @property
    def promise(self) -> Adjacency:
        """The largest change of its input that :meth:`curve` pays for."""
        ...

    def uses(self, private: Private) -> int:
        """How many uses answering all of ``private`` takes."""
        ...

    def release(self, private: Private, *, rng: np.random.Generator) -> Released:
        """The noisy release. All noise comes from ``rng``."""
        ...


class Mechanism(Releasing, Protocol):
    """The same whose release is one array: frozen parameters, code and price in one object."""

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
    """Offers the derivative of its outcome map."""

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
class HasExactCosts(Protocol):
    """Offers compiled exact costs."""

    def exact_rdp(
        self, counts: np.ndarray, *, seen: np.ndarray, orders: np.ndarray, relation: str
    ) -> np.ndarray:
        """Largest Rényi divergence over all neighbours, shape (n_queries, n_orders), nats.

        ``seen``: what a screen looks at, where that is not ``counts``.
        """
        ...


@runtime_checkable
class HasArgmaxKernel(Protocol):
    """An argmax of counts with noise that compiled code knows."""

    @property
    def argmax_kernel(self) -> tuple[int, float]:
        """``GAUSSIAN`` (0) or ``LAPLACE`` (1), and the scale in votes."""
        ...


@runtime_checkable
class HasScreenKernel(Protocol):
    """A screen with Gaussian noise that compiled code knows."""

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
    """The same for an argmax, with what its smooth sensitivity needs: q on a scale in ballots."""

    @property
    def furthest(self) -> float:
        """The last point of the scale at which the bound needs looking at."""
        ...

    def points(self, behind: np.ndarray) -> np.ndarray:
        """Places on the scale, from how far each other class is behind; a ballot moves them by at most 1."""
        ...

    def at_points(self, point: np.ndarray, *, n_classes: int, order: float) -> np.ndarray:
        """The bound at these places."""
        ...


class ScreenBound(PublishedBound, Protocol):
    """The same for a screen that looks at the largest count only."""

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
        """The one with so much noise, in votes."""
        ...


@runtime_checkable
class Rescalable(Protocol):
    """Offers the same mechanism in other units of votes; then ballots may be weighted."""

    def rescaled(self, factor: float) -> Self:
        """The mechanism with noise and thresholds multiplied by ``factor``: the same law of scaled counts."""
        ...


@runtime_checkable
class Staged(Protocol):
    """Is paid for in stages, each for the entries which the answers of earlier stages let through."""

    def in_stages(self, private: Private, ask: Callable[[str, Mechanism, Private], np.ndarray]) -> np.ndarray:
        """The answers; ``ask(name, mechanism, entries)`` pays for one stage and answers it."""
        ...


@runtime_checkable
class Screened(Protocol):
    """Has a screen with the outcomes "passes" and "stops", and an argmax for what passes."""

    @property
    def screen(self) -> BallotMechanism:
        """Asked for every query."""
        ...

    @property
    def argmax(self) -> BallotMechanism:
        """Asked for the queries that passed."""
        ...


def check_ballot(mechanism: BallotMechanism, *, classes: bool = False) -> None:
    """Raise TypeError unless it knows its outcomes; with ``classes``, unless it answers with a class."""
    known = callable(getattr(mechanism, "log_outcomes", None)) and callable(getattr(mechanism, "curve", None))
    if not known or (classes and passes_or_stops(mechanism)):
        what = "a ballot mechanism that answers with a class" if classes else "a ballot mechanism"
        raise TypeError(
            f"mechanism must be {what}, such as GNMax(...) or "
            f"Confident(screen=Threshold(...), argmax=GNMax(...)), got {mechanism!r}"
        )


def passes_or_stops(mechanism: Mechanism) -> bool:
    """Whether the outcomes are "passes" and "stops", as those of a screen; else they are classes."""
    return bool(getattr(mechanism, "passes_or_stops", False))


def abstains(mechanism: Mechanism) -> bool:
    """Whether "no answer" is the last outcome."""
    return bool(getattr(mechanism, "abstains", False))


def parts(mechanism: BallotMechanism) -> tuple[BallotMechanism | None, BallotMechanism]:
    """The screen, if the mechanism has one, and what answers the queries that it lets through."""
    if isinstance(mechanism, Screened):
        return mechanism.screen, mechanism.argmax
    return None, mechanism


def gradient(mechanism: BallotMechanism, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities and their derivatives by each count: offered, or by central differences."""
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
    """The price of publishing the noisy counts themselves; None if the mechanism does not offer it."""
    return mechanism.classic_curve() if isinstance(mechanism, HasClassicCurve) else None


def exact_costs(
    mechanism: BallotMechanism, counts: np.ndarray, *, seen: np.ndarray, orders: np.ndarray, relation: str
) -> np.ndarray:
    """Largest Rényi divergence over all neighbours: offered, or by enumerating outcomes of all of them."""
    if isinstance(mechanism, HasExactCosts):
        return mechanism.exact_rdp(counts, seen=seen, orders=orders, relation=relation)
    if mechanism.promise.at_most != 1:
        raise ValueError(f"exact costs by enumeration are for ballots that weigh 1; got {mechanism!r}")
    if seen is not counts:
        raise ValueError(f"surprise is for mechanisms with a screen, got {mechanism!r}")
    from ostraka.mechanisms import _costs  # noqa: PLC0415  (compiled code, loaded when needed)

    return _costs.enumerated(mechanism, counts, orders=orders, relation=relation)


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
