"""Curve: the cost of releases as Rényi divergences, which add, and its conversion to (epsilon, delta).

Every conversion errs upwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ostraka.core import axes as _axes
from ostraka.core import check as _check
from ostraka.core.laws.law import GAUSSIAN, Law, added, check
from ostraka.core.numeric import log_ndtr, up

if TYPE_CHECKING:
    from ostraka.core.laws.tables import Tables

__all__: list[str] = []

LEAST = 5e-324  # a chance that underflows is still a chance
# Arithmetic runs of twelve whose step doubles (4 to 12 % apart, cheap to walk along), then infinity.
ORDERS: tuple[float, ...] = (
    *(1 + k / 8 for k in range(1, 17)),
    *(2.0**run * (3 + k / 4) for run in range(9) for k in range(1, 13)),
    math.inf,
)
# What one protected unit can change: a ballot of every query, a label, a row, or a vector of bounded norms.
MOVES = ("ballot", "label", "row", "vector")
_MOVED_OF_OLD = {"record": "vector"}  # how records written before "moves" spelled it


@dataclass(frozen=True, slots=True)
class Curve:
    """A bound on what the releases so far tell about one protected unit, for every adversary.

    ``+`` composes, ``n * curve`` repeats; both also bound adaptively chosen releases.

    Attributes
    ----------
    orders : tuple of float > 1, increasing; the last may be infinity
    rdp : tuple of float >= 0, nats
        Bound on the Rényi divergence of each order between neighbours, in both directions (the
        published bounds of 2017 and 2018 in one: see :func:`ostraka.accounting.papernot2018_curve`).
        At infinity it is the epsilon of pure differential privacy.
    moves : {"ballot", "label", "row", "vector"}
        What one protected unit can change, as :attr:`ostraka.Adjacency.moves`: curves of the same
        kind add. Who the unit is (a row, a person) is recorded by ledgers, not here.
    publishable : bool
        False once a term was computed from private data: such a number is for the owner only.
    mu_squared : float >= 0 or infinity
        Where finite, a Gaussian of this squared mean shift dominates all of it (Gaussian DP).
    slack : float >= 0
        Total variation distance between what the code samples and what the bound assumes.
    laws : tuple of Law, or None
        The families of outcome laws that were used, and how often, where all are known: many of them
        compose exactly, as do Gaussians over Poisson samples. None: the other bounds have to do.

    Raises
    ------
    ValueError
        NaN, negative numbers, orders not above 1, or curves of different kind added.

    Guarantees
    ----------
    Every (epsilon, delta) it returns holds for the composition: the smallest of the conversion of
    Balle et al. 2020 (arXiv:1905.09982) and Canonne et al. 2020 (arXiv:2004.00010, Prop. 12) over
    the orders, of pure DP, of exact Gaussian-DP composition (Dong et al. 2019,
    arXiv:1905.02383, Cor. 1), and of the exact adaptive composition of its laws
    (docs/composition.md); ``slack`` s turns (epsilon, delta) into
    (epsilon, delta + (1 + e^epsilon) s). Rounded up.

    Examples
    --------
    >>> step = Curve.gaussian(sensitivity=math.sqrt(2), sigma=40.0)
    >>> round((500 * step).epsilon(delta=1e-5), 4)
    3.3414
    """

    orders: tuple[float, ...]
    rdp: tuple[float, ...]
    moves: str = "ballot"
    publishable: bool = True
    mu_squared: float = math.inf
    slack: float = 0.0
    laws: tuple[Law, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.orders) != len(self.rdp) or not self.orders:
            raise ValueError(f"a curve needs one rdp per order, got {len(self.rdp)} for {len(self.orders)}")
        if not _increasing(self.orders):
            raise ValueError("orders must be above 1 and increasing")
        if not (min(self.rdp) >= 0 and sum(self.rdp) >= 0):  # the sum is NaN if one of them is
            raise ValueError("rdp must be >= 0 and not NaN")
        _check.nonnegative(mu_squared=self.mu_squared, slack=self.slack)
        _check.one_of(moves=self.moves, allowed=MOVES)
        for law in self.laws or ():
            check(law)

    def __repr__(self) -> str:
        """Return one line with the cost by the bounds that are quick to compute."""
        cost = replace(self, laws=None).epsilon(delta=1e-5)
        return (
            f"Curve(moves={self.moves!r}, epsilon={cost:.4g} at delta=1e-05, publishable={self.publishable})"
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw epsilon against delta; returns matplotlib's axes, new ones for None."""
        return _axes.epsilon_against_delta(self, axes)

    @classmethod
    def zero(cls, *, moves: str = "ballot", orders: tuple[float, ...] = ORDERS) -> Curve:
        """The cost of nothing."""
        return cls(orders, (0.0,) * len(orders), moves, mu_squared=0.0, laws=())

    @classmethod
    def gaussian(
        cls, *, sensitivity: float, sigma: float, moves: str = "vector", orders: tuple[float, ...] = ORDERS
    ) -> Curve:
        """The Gaussian mechanism: Rényi divergence order * mu^2 / 2, mu = sensitivity / sigma."""
        _check.positive(sensitivity=sensitivity, sigma=sigma)
        shift = sensitivity / sigma
        mu_squared = up(shift * shift)  # infinite where float64 ends; a power would raise instead
        rdp = tuple(up(order * mu_squared / 2) for order in orders)
        return cls(orders, rdp, moves, mu_squared=mu_squared, laws=(Law(GAUSSIAN, mu_squared),))

    def __add__(self, other: Curve) -> Curve:
        if not isinstance(other, Curve):
            return NotImplemented
        if (self.orders, self.moves) != (other.orders, other.moves):
            raise ValueError(
                f"cannot compose curves of one {self.moves} and of one {other.moves}, or of other orders: "
                "charge them to separate ledgers, and add their epsilons and deltas"
            )
        return Curve(
            self.orders,
            tuple(up(a + b) for a, b in zip(self.rdp, other.rdp, strict=True)),
            self.moves,
            publishable=self.publishable and other.publishable,
            mu_squared=up(self.mu_squared + other.mu_squared),
            slack=up(self.slack + other.slack),
            laws=added(self.laws, other.laws),
        )

    def __mul__(self, times: int) -> Curve:
        _check.integer(times=times)
        times = int(times)  # NumPy's would wrap
        if times == 0:
            return replace(Curve.zero(moves=self.moves, orders=self.orders), publishable=self.publishable)
        return replace(
            self,
            rdp=tuple(up(times * value) for value in self.rdp),
            mu_squared=up(times * self.mu_squared),
            slack=up(times * self.slack),
            laws=None
            if self.laws is None
            else tuple(law._replace(uses=times * law.uses) for law in self.laws),
        )

    __rmul__ = __mul__

    def smaller(self, other: Curve) -> Curve:
        """Two bounds on the same release: the smaller at every order."""
        if (self.orders, self.moves) != (other.orders, other.moves):
            raise ValueError("only bounds on the same kind of change and orders can be compared")
        return replace(
            self,
            rdp=tuple(min(a, b) for a, b in zip(self.rdp, other.rdp, strict=True)),
            publishable=self.publishable and other.publishable,
            mu_squared=min(self.mu_squared, other.mu_squared),
            slack=max(self.slack, other.slack),
            laws=other.laws if self.laws is None else self.laws,
        )

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon (nats) this curve proves at ``delta``, rounded up; infinity if none.

        Examples
        --------
        >>> Curve.zero().epsilon(delta=1e-5)
        0.0
        """
        _check.delta(delta)
        epsilon = self._epsilon(delta)
        if self.slack == 0 or epsilon == math.inf:
            return epsilon
        # slack eats (1 + e^eps) slack of delta: walk up to the fixed point, then take the safe side
        for _ in range(60):
            rest_delta = delta - up(1 + math.exp(min(epsilon, 700.0))) * self.slack
            if not rest_delta > 0:
                return math.inf
            after = self._epsilon(rest_delta)
            if after <= epsilon:
                return epsilon
            epsilon = up(after, ulps=64)
        return math.inf

    def delta(self, epsilon: float) -> float:
        """Smallest delta this curve proves at ``epsilon``, rounded up, at most 1."""
        _check.nonnegative(epsilon=epsilon)
        best = self._delta(epsilon)
        if self.slack == 0:
            return best
        # slack weighs e^epsilon, so a smaller epsilon may prove more; any that is tried counts
        low, high = 0.0, min(epsilon, 700.0)
        for _ in range(60):
            third = (high - low) / 3
            at_low, at_high = self._delta(low + third), self._delta(high - third)
            best = min(best, at_low, at_high)
            low, high = (low, high - third) if at_low <= at_high else (low + third, high)
        return best

    def best_order(self, delta: float) -> float:
        """The order whose conversion gives the smallest epsilon: shows whether the grid is wide enough."""
        _check.delta(delta)
        orders, rdp = self._finite()
        return float(orders[np.argmin(rdp_epsilon(orders, rdp, delta))])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; infinity is written ``"inf"``."""
        return {
            "orders": [_plain(x) for x in self.orders],
            "rdp": [_plain(x) for x in self.rdp],
            "moves": self.moves,
            "publishable": self.publishable,
            "mu_squared": _plain(self.mu_squared),
            "slack": _plain(self.slack),
            "laws": None if self.laws is None else [list(law) for law in self.laws],
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Curve:
        """The inverse of :meth:`to_dict`; also reads records that call ``moves`` the unit.

        Raises
        ------
        ValueError
            Anything else.
        """
        _check.mapping("a curve", record)
        try:
            moved, laws = record["moves"] if "moves" in record else record["unit"], record.get("laws")
            orders, rdp = (tuple(float(x) for x in record[name]) for name in ("orders", "rdp"))
            costs = {name: float(record[name]) for name in ("mu_squared", "slack")}
            publishable, moves = bool(record["publishable"]), _MOVED_OF_OLD.get(moved, moved)
            stages = [(str(kind), float(size), uses) for kind, size, uses in laws or ()]
        except (ArithmeticError, LookupError, TypeError, ValueError):  # these may quote private costs
            raise ValueError(
                "a curve must be a dictionary as Curve.to_dict makes it: restore this one from a copy"
            ) from None
        for *_, uses in stages:
            _check.integer(least=1, uses=uses)
        parts = added((), tuple(Law(kind, size, int(uses)) for kind, size, uses in stages))
        return cls(orders, rdp, moves, publishable=publishable, laws=None if laws is None else parts, **costs)

    @property
    def _pure(self) -> float:
        return self.rdp[-1] if self.orders[-1] == math.inf else math.inf

    def _finite(self) -> tuple[np.ndarray, np.ndarray]:
        return _finite(self.orders, self.rdp)

    def _epsilon(self, delta: float) -> float:
        best = self._pure
        orders, rdp = self._finite()
        if orders.size:
            best = min(best, max(0.0, up(float(rdp_epsilon(orders, rdp, delta).min()), ulps=64)))
        if not gaussian_delta(best, up(math.sqrt(self.mu_squared))) > delta:  # else it costs more than best
            best = min(best, gaussian_epsilon(self.mu_squared, delta))
        table = self._table()
        return min(best, table.epsilon(delta)) if table is not None and best > 0 else best

    def _table(self) -> Tables | None:
        """Exact composition, where all laws are known and there is more than one use."""
        if self.laws is None:
            return None
        if sum(law.uses for law in self.laws) < 2 and not any(law.is_sampled for law in self.laws):
            return None  # nothing composes, and one Gaussian has its own formula
        from ostraka.core.laws import tables  # noqa: PLC0415  (compiled code, loaded when needed)

        return tables.of(self.laws)

    def _delta(self, epsilon: float) -> float:
        best = 0.0 if epsilon >= self._pure else 1.0
        orders, rdp = self._finite()
        if orders.size and math.isfinite(epsilon):
            best = min(best, rdp_delta(orders, rdp, epsilon))
        best = min(best, gaussian_delta(epsilon, math.sqrt(self.mu_squared)))
        table = self._table()
        if table is not None:
            best = min(best, table.delta(epsilon))
        return min(1.0, up(best + (1 + math.exp(min(epsilon, 700.0))) * self.slack))


class Priced(Protocol):
    """Anything with a price: ledgers need this method and the ``repr`` only."""

    def curve(self) -> Curve:
        """Cost of one use on any data."""
        ...


@lru_cache(maxsize=64)
def _increasing(orders: tuple[float, ...]) -> bool:
    """Whether orders are above 1 and increasing."""
    return all(low < high for low, high in zip((1.0, *orders), orders, strict=False))


@lru_cache(maxsize=64)
def _finite(orders: tuple[float, ...], rdp: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the finite orders with a finite bound, and the bounds."""
    arrays = np.array(orders), np.array(rdp)
    keep = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
    finite = arrays[0][keep], arrays[1][keep]
    for array in finite:
        array.setflags(write=False)
    return finite


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def rdp_epsilon(orders: np.ndarray, rdp: np.ndarray, delta: float) -> np.ndarray:
    """Canonne et al. 2020, Prop. 12, solved for epsilon, one value an order, rounded up."""
    tail = (math.log(delta) + np.log(orders)) / (orders - 1)
    doubt = 4e-16 * (1 + rdp + (abs(math.log(delta)) + np.log(orders)) / (orders - 1))
    return np.asarray(rdp + np.log1p(-1 / orders) - tail + doubt)


def rdp_delta(orders: np.ndarray, rdp: np.ndarray, epsilon: float) -> float:
    """The same solved for delta, best order, rounded up."""
    log_delta = (orders - 1) * (rdp - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    doubt = 4e-16 * (2 + (orders - 1) * (1 + rdp + epsilon) + np.log(orders))
    return max(LEAST, up(math.exp(min(0.0, float((log_delta + doubt).min()))), ulps=8))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Dong et al. 2019, Cor. 1: delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), rounded up."""
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if not math.isfinite(mu):
        return 1.0
    x, y = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    above, below = log_ndtr(x), epsilon + log_ndtr(y)
    # either log is right to about 1e-15 of its size and of its argument's; that is charged to the safe side
    doubt = 4e-16 * (2 + abs(above) + abs(below) + (mu - y) * (2 + max(0.0, -x) + max(0.0, -y)))
    share = -math.expm1(min(0.0, below - above))
    return min(1.0, max(LEAST, math.exp(above) * (share + doubt)))


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu_squared: float, delta: float) -> float:
    """Smallest epsilon with ``gaussian_delta <= delta``, from above, by bisection."""
    if mu_squared == 0:
        return 0.0
    if not math.isfinite(mu_squared):
        return math.inf
    mu = up(math.sqrt(mu_squared))
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) + 1e-9
    if not gaussian_delta(high, mu) <= delta:  # rounding of so large a shift leaves nothing provable
        return math.inf
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if gaussian_delta(middle, mu) <= delta else (middle, high)
    return high
