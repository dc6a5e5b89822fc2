"""Answer rows: count votes, draw the noisy answers, charge them, and only then return them."""

from __future__ import annotations

import unicodedata
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.door import release_each
from ostraka.ledger import BudgetExceeded
from ostraka.mechanisms import Confident
from ostraka.private import Private
from ostraka.service._features import CompiledEncoder
from ostraka.voters._linear import LinearTeachers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.consistent import Consistent
    from ostraka.curve import Curve
    from ostraka.door import Drawn
    from ostraka.ledger import Budget, ChargeRequest, Ledger
    from ostraka.ledger.budget import KeyConflict
    from ostraka.ledger.records import Receipt
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.voters import SavedTeachers

__all__ = ["Answerer", "Reserved", "require_servable"]

_FURTHEST = 2.0**22 - 1  # grid steps from zero, the range of `Consistent` less one


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A number of uses of one mechanism for a ledger entry; zero uses cost nothing."""

    each: BallotMechanism
    uses: int

    def curve(self) -> Curve:
        """Cost of all uses, whatever the data."""
        return self.uses * self.each.curve()


class Answerer:
    """A voter with its mechanism. A repeated question gets the same label and takes the same time.

    Rows are moved to the middle of their grid cells first. So votes, noise and label are functions
    of the question's digest, and a repeated question takes as much work as a new one. Texts are brought
    to Unicode's form NFC instead.
    """

    def __init__(self, saved: SavedTeachers, consistent: Consistent) -> None:
        self._saved = saved
        self._consistent = consistent
        self._linear = None
        if saved.kind == "teachers":
            self._linear = LinearTeachers.of(
                saved.ensemble.teachers_, n_classes=len(saved.classes), n_features=len(saved.grid)
            )
        self._encoder = (
            None if saved.encoder is None else CompiledEncoder.of(saved.encoder, len(saved.columns))
        )
        self._steps = np.array([saved.grid[str(j)] for j in range(len(saved.grid))])
        self.reserve: BallotMechanism = (
            saved.mechanism
            if saved.screen is None
            else Confident(screen=saved.screen, argmax=saved.mechanism)
        )

    def features(self, rows: Sequence[list[Any]]) -> np.ndarray:
        """Features of checked rows, shape (n_rows, n_features), or their texts, shape (n_rows, 1)."""
        if not self._saved.grid:
            return np.array([[unicodedata.normalize("NFC", text)] for (text,) in rows], dtype=object)
        if self._saved.encoder is None:
            features = np.array(rows, dtype=np.float64)
        elif self._encoder is not None:
            features = self._encoder(rows)
        else:
            cells = np.empty((len(rows), len(self._saved.columns)), dtype=object)
            cells[:] = rows
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                features = np.asarray(self._saved.encoder.transform(cells), dtype=np.float64)
        return features

    def usable(self, features: np.ndarray) -> np.ndarray:
        """Which rows are within the grid; texts always are."""
        if not self._saved.grid:
            return np.ones(len(features), dtype=bool)
        within: np.ndarray = (np.abs(features) <= _FURTHEST * self._steps).all(axis=1)
        return within

    def answer(
        self,
        features: np.ndarray,
        *,
        ledger: Ledger,
        requests: Callable[[list[Drawn]], Sequence[ChargeRequest]],
    ) -> list[Receipt | BudgetExceeded | KeyConflict]:
        """Answer usable rows, each with its own question's noise; see :func:`~ostraka.door.release_each`."""
        snapped = self._consistent.snap(features) if self._saved.grid else features
        return release_each(
            self.reserve,
            self._vote(snapped),
            self._consistent.digests(snapped),
            consistent=self._consistent,
            ledger=ledger,
            requests=requests,
        )

    def _vote(self, rows: np.ndarray) -> Private:
        if self._linear is not None:
            return Private(self._linear.counts(rows), self._saved.adjacency)
        with warnings.catch_warnings():  # the number of failing teachers is private
            warnings.simplefilter("ignore")
            return self._saved.vote(rows)


def require_servable(saved: SavedTeachers, price: BallotMechanism, budget: Budget) -> None:
    """Refuse a budget below one answer, and votes with noise in them, which are spent before the charge."""
    if saved.adjacency.noise_sigma:
        raise ValueError(
            "parties that add their own noise (noise='parties') spend with every round, but a service counts "
            "votes before it charges: serve an agreement with noise='aggregator'"
        )
    if not budget.allows(price.curve()):
        raise BudgetExceeded(
            f"epsilon {budget.epsilon:g} at delta {budget.delta:g} does not pay for one answer of "
            f"{price!r}: type a larger --sigma, or a larger --epsilon for a new service",
            asked=price.curve().epsilon(budget.delta),
            left=budget.epsilon,
        )
