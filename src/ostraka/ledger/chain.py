"""What an entry says: costs as whole numbers, and a digest that chains each entry to the one before.

A cost is an array of whole numbers, one for each order, then mu_squared, then slack, in units of
2**-50 nats (slack: 2**-62). It is rounded up once, when a mechanism's price is taken; from there
on sums and multiples are exact, on every machine, in any order. At ``INFINITE`` (4096 nats, or a
slack of 1, where nothing is promised any more) they stop.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ostraka.curve import Curve

__all__ = ["INFINITE", "Entry", "Row", "fold", "link", "price", "to_curve"]

INFINITE = 2**62
_UNITS_PER_NAT, _UNITS_PER_SLACK = 2.0**50, 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One charge, as recorded. All of it is public.

    Attributes
    ----------
    seq : int
        1, 2, 3, … without gaps.
    key : str or None
        Public name of the release.
    mechanism : str
        Its ``repr``.
    uses : int
    protects : str
        The protected unit: ``"row"``, ``"person"``, …
    simulation : bool
        The noise came from a generator that somebody could repeat.
    curve : Curve
        Cost of all uses together.
    epsilon_after : float, nats
        Epsilon of everything up to here, at the budget's delta, as it stood when charged.
    """

    seq: int
    key: str | None
    mechanism: str
    uses: int
    protects: str
    simulation: bool
    curve: Curve
    epsilon_after: float


class Row(NamedTuple):
    """One entry with its price, in the order in which they are read."""

    seq: int
    key: str | None
    mechanism: str
    unit: str
    orders: bytes
    cost: bytes
    uses: int
    protects: str
    simulation: int
    total: bytes
    epsilon: float = math.nan
    digest: bytes = b""

    def breaks(self, previous: Row | None, genesis: bytes) -> str | None:
        """Why this entry cannot come after ``previous``; None if it can."""
        if self.seq != (previous.seq + 1 if previous else 1):
            return "it is missing"
        if self.digest != self.link(previous.digest if previous else genesis):
            return "its fields do not match its digest, or it does not follow the entry before"
        if previous and self.bound_to != previous.bound_to:
            return "it counts for something else than the entries before"
        if self.total != fold(previous.total if previous else None, self.cost, uses=self.uses):
            return "its total is not the total before plus its cost"
        return None

    @property
    def bound_to(self) -> tuple[str, str, bytes]:
        """What every entry of one ledger shares."""
        return self.protects, self.unit, self.orders

    def link(self, previous: bytes) -> bytes:
        """The digest over every field and the digest before."""
        epsilon = float(self.epsilon).hex()
        plain = [
            self.seq,
            self.key,
            self.mechanism,
            self.unit,
            self.uses,
            self.protects,
            self.simulation,
            epsilon,
        ]
        return link(previous, plain, self.orders, self.cost, self.total)

    def sealed(self, previous: bytes, epsilon: float) -> Row:
        """The entry as it is written, at the end of the chain."""
        row = self._replace(epsilon=epsilon)
        return row._replace(digest=row.link(previous))

    def entry(self) -> Entry:
        """The entry as it is shown."""
        return Entry(
            seq=self.seq,
            key=self.key,
            mechanism=self.mechanism,
            uses=self.uses,
            protects=self.protects,
            simulation=bool(self.simulation),
            curve=to_curve(fold(None, self.cost, uses=self.uses), self.unit, self.orders),
            epsilon_after=self.epsilon,
        )

    def spent(self) -> Curve:
        """Cost of everything up to here."""
        return to_curve(self.total, self.unit, self.orders)


def link(previous: bytes, plain: list[int | str | None], *blobs: bytes) -> bytes:
    """SHA-256 of the digest before and the fields, with lengths, so that no two records are written alike."""
    head = json.dumps([*plain, [len(blob) for blob in blobs]]).encode()  # ASCII, and free of NUL
    return hashlib.sha256(b"\0".join([previous, head, *blobs])).digest()


def price(curve: Curve) -> tuple[bytes, bytes]:
    """The orders, and the cost of one use in whole units, rounded up."""
    values = np.array([*curve.rdp, curve.mu_squared, curve.slack])
    if not (values >= 0).all():
        raise ValueError("a cost must be >= 0 and not NaN")
    units = _units(values.size)
    cost = np.ceil(np.minimum(values, INFINITE / units) * units)  # powers of two: only ceil rounds
    return np.array(curve.orders, dtype="<f8").tobytes(), cost.astype("<u8").tobytes()


def fold(total: bytes | None, cost: bytes, *, uses: int) -> bytes:
    """The total after ``uses`` more uses (None: of nothing before), exactly, up to ``INFINITE``."""
    one = np.frombuffer(cost, dtype="<u8")
    after = np.where(one > INFINITE // max(uses, 1), INFINITE, one * min(uses, INFINITE))
    if total is not None:
        after = np.minimum(after + np.frombuffer(total, dtype="<u8"), INFINITE)
    return after.astype("<u8").tobytes()


def to_curve(cost: bytes, unit: str, orders: bytes) -> Curve:
    """The curve of a cost, rounded up to floats; ``INFINITE`` becomes infinity (slack: 1)."""
    whole = np.frombuffer(cost, dtype="<u8")
    near = whole.astype(np.float64)
    units = _units(whole.size)
    values = np.where(near.astype(np.uint64) < whole, np.nextafter(near, math.inf), near) / units
    values[:-1][whole[:-1] == INFINITE] = math.inf
    *rdp, mu_squared, slack = values.tolist()
    return Curve(
        tuple(np.frombuffer(orders, dtype="<f8").tolist()),
        tuple(rdp),
        unit,
        mu_squared=mu_squared,
        slack=slack,
    )


def _units(size: int) -> np.ndarray:
    units = np.full(size, _UNITS_PER_NAT)
    units[-1] = _UNITS_PER_SLACK
    return units
