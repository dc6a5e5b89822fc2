"""Budgets, and the exceptions that a ledger raises.

::

    OstrakaError          base of all errors that a caller can act on
    ├── BudgetExceeded    the charge does not fit: ``asked``, ``left``; nothing was recorded
    └── LedgerError       the ledger is damaged, foreign or bound to something else: ``seq``
        ├── KeyConflict         a key was used again for another question
        ├── LedgerMoved         the ledger was removed, replaced or rolled back while it was open
        └── LedgerUnavailable   the ledger cannot be reached now: try again with the same key

BudgetExceeded is not a LedgerError, so code that handles damage does not hide a spent budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ostraka import _check
from ostraka.ledger.filter import allows_adaptively

if TYPE_CHECKING:
    from ostraka.curve import Curve

__all__ = [
    "DAMAGED",
    "UNITS_PER_NAT",
    "Budget",
    "BudgetExceeded",
    "KeyConflict",
    "LedgerError",
    "LedgerMoved",
    "LedgerUnavailable",
    "OstrakaError",
]

UNITS_PER_NAT = 2.0**50
DAMAGED = (
    "is damaged, so what was charged is not known: keep the file, count its whole budget as spent, "
    "and answer no more from this data"
)


class OstrakaError(Exception):
    """Base of the errors that a caller can act on. Other exceptions are wrong arguments or defects."""


class BudgetExceeded(OstrakaError):  # noqa: N818  (a refusal, not an error)
    """The charge does not fit into the budget. Nothing was recorded, nothing may be answered.

    Attributes
    ----------
    asked, left : float, nats
        Epsilon the charge would have added, and the epsilon that is left, at the budget's delta.
    """

    def __init__(self, message: str, *, asked: float = math.inf, left: float = 0.0) -> None:
        super().__init__(message)
        self.asked = asked
        self.left = left


class LedgerError(OstrakaError):
    """The ledger cannot be used, or not for this. Nothing may be answered.

    Attributes
    ----------
    seq : int or None
        The first bad entry, where the entries do not hold together.
    """

    def __init__(self, message: str, *, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class LedgerUnavailable(LedgerError):  # noqa: N818  (a condition that passes)
    """The ledger is locked, out of disk space or out of reach. Nothing was answered; it stays usable.

    The same call can be tried again. With the same key it is charged once, even where a database
    lost the connection during the commit of the first try.
    """


class LedgerMoved(LedgerError):  # noqa: N818  (the state of the file)
    """The ledger or its anchor was removed, replaced or rolled back while it was open.

    What was charged is not on record there. Nothing more may be answered by this process.
    """


class KeyConflict(LedgerError):  # noqa: N818  (a refusal, not an error)
    """A key of one question was used for another question. Nothing was charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Upper limit of all spending: (epsilon, delta)-differential privacy.

    Attributes
    ----------
    epsilon : float > 0, nats
    delta : float in (0, 1)
    adaptive : bool
        False: the mechanisms are fixed in advance, or earlier answers decide only how often one of
        them is used; the total at the best order counts. True: earlier answers may decide anything
        about what is asked next, at about 1 % of the answers of one mechanism and 6 % of those of
        several (docs/composition.md); other costs than argmaxes, screens and Gaussians fit if
        :class:`RenyiFilter` says so.

    Raises
    ------
    ValueError
        epsilon or delta is out of range or not a number.

    Examples
    --------
    >>> Budget(epsilon=2.0, delta=1e-5)
    Budget(epsilon=2.0, delta=1e-05, adaptive=False)
    """

    epsilon: float
    delta: float
    adaptive: bool = False

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        _check.delta(self.delta)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        if not isinstance(self.adaptive, bool):
            raise ValueError(f"adaptive must be True or False, got {self.adaptive!r}")  # noqa: TRY004

    def allows(self, total: Curve, *, first: Curve | None = None) -> bool:
        """Whether a total cost is within the budget. NaN is not.

        Parameters
        ----------
        total : Curve
        first : Curve, optional
            What was charged first. It decides by which rule an adaptive budget allows totals, from then on.
            None: something like ``total``.

        Examples
        --------
        >>> from ostraka import GNMax
        >>> total = 260 * GNMax(sigma=40.0).curve()
        >>> [Budget(epsilon=2.0, delta=1e-5, adaptive=adaptive).allows(total) for adaptive in (False, True)]
        [True, True]
        """
        if self.adaptive:
            return allows_adaptively(total, total if first is None else first, self.epsilon, self.delta)
        # the cap is rounded up to whole units, as totals are: a cost of exactly epsilon fits
        most = math.ceil(self.epsilon * UNITS_PER_NAT) / UNITS_PER_NAT
        if total.laws is not None and replace(total, laws=None).epsilon(self.delta) <= most:
            return True  # by the bounds that need no table, which often suffice
        return total.epsilon(self.delta) <= most
