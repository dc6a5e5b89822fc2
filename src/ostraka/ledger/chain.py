"""Entries of a ledger: costs as whole numbers, and a digest that chains each entry to the one before.

A cost is an array of whole numbers, one for each order, then mu_squared, then slack, in units of
2**-50 nats (slack: 2**-62). It is rounded up once, when a mechanism's price is computed. Sums and
multiples after that are exact, on every machine and in any order. They saturate at ``INFINITE``
(4096 nats, or a slack of 1), where the guarantee is void.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ostraka._composition.law import Law, added, begins
from ostraka.curve import Curve
from ostraka.ledger.budget import UNITS_PER_NAT

__all__ = [
    "CHARGE",
    "GRANT",
    "INFINITE",
    "Entry",
    "Fields",
    "Price",
    "Row",
    "Seal",
    "alike",
    "comparable",
    "covers",
    "fold",
    "is_free",
    "price",
    "to_curve",
    "without_laws",
]

CHARGE, GRANT = "charge", "grant"
INFINITE = 2**62
_UNITS_PER_SLACK = 2.0**62
_LAWS = b"LAWS"  # the last byte of a number is at most 0x40
# fields of an entry in the order of Row; verifying millions of entries makes no Row of each
Fields = tuple[
    int, str, str, str | None, int | None, int, str, int, float,
    bytes | None, int | None, float | None, bytes | None, int | None, bytes,
]  # fmt: skip
_SEPARATOR = "\x1f"
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, as recorded. All fields are public.

    Attributes
    ----------
    seq : int
        1, 2, 3, … without gaps.
    kind : str
        ``"charge"`` or ``"grant"`` (which sets the cap of a client's account).
    account : str or None
        The client's account; None for a charge of the ledger's budget alone.
    key : str or None
        Public name of the release, unique within its account.
    mechanism : str
        Its ``repr``; empty for a grant.
    uses : int
        How many of them the ledger's budget was charged for; 0 where a client repeated a question.
    unit : str
        The protected unit: ``"row"``, ``"person"``, …
    simulation : bool
        The noise came from a reproducible generator.
    curve : Curve
        Cost of all uses together.
    epsilon_after : float, nats
        Epsilon of all entries up to this one, at the budget's delta. For charges of clients it is an
        upper bound within a hundredth of the budget.
    digest : str or None
        Digest of the question, in hexadecimal. Equal digests are the same question.
    answer : int or None
        The label stored with the charge of one question.
    cap : float or None, nats
        For a grant: the account's cap.
    at : int or None, seconds since 1970 in UTC
        When it was written, by this machine's clock; nothing is decided by it. None in entries written
        before format 3.
    head : str
        Digest over the budget and every entry up to this one, in hexadecimal.
    """

    seq: int
    kind: str
    account: str | None
    key: str | None
    mechanism: str
    uses: int
    unit: str
    simulation: bool
    curve: Curve
    epsilon_after: float
    digest: str | None
    answer: int | None
    cap: float | None
    at: int | None
    head: str


class Seal:
    """Digest function: SHA-256, or HMAC-SHA256 where there is a secret."""

    def __init__(self, secret: bytes | None) -> None:
        if secret is not None and not (isinstance(secret, bytes) and len(secret) >= _SECRET_BYTES):
            raise ValueError(f"secret must be {_SECRET_BYTES} bytes or more from the operating system")
        # prepared once: to copy it takes two thirds of a call of hmac.digest
        self._keyed = None if secret is None else hmac.new(secret, digestmod="sha256")
        self.name = "" if secret is None else self(b"ostraka ledger: name of the secret").hex()[:16]

    def __call__(self, message: bytes) -> bytes:
        """The digest of a message."""
        if self._keyed is None:
            return hashlib.sha256(message).digest()
        keyed = self._keyed.copy()
        keyed.update(message)
        return keyed.digest()

    def link(self, previous: bytes, plain: list[int | str | None], *blobs: bytes) -> bytes:
        """The digest over the previous digest, the fields and the lengths: an injective encoding."""
        head = json.dumps([*plain, [len(blob) for blob in blobs]]).encode()  # ASCII, and free of NUL
        return self(b"\0".join([previous, head, *blobs]))

    def entry(self, fields: Fields, previous: bytes, priced: bytes) -> bytes | None:
        """The digest over every field, price and previous digest; None if a field has a separator."""
        (
            seq, kind, account, key, _, uses, protects, simulation, epsilon, asked, answer, cap, state, at, _
        ) = fields  # fmt: skip
        name = "" if key is None else f"={key}"
        text = (
            f"{seq}\x1f{kind}\x1f{account}\x1f{name}\x1f{uses}\x1f{protects}\x1f{simulation}\x1f{epsilon!r}"
            f"\x1f{asked.hex() if asked is not None else ''}\x1f{answer}\x1f{cap!r}"
            f"\x1f{state.hex() if state is not None else ''}"
        )
        if text.count(_SEPARATOR) != 11:  # inside a name: only an edit of the file produces that
            return None
        if at is not None:
            text = f"{text}\x1f{at}"
        return self(previous + priced + text.encode())

    def price(self, number: int, mechanism: str, unit: str, orders: bytes, cost: bytes) -> Price:
        """A price with its digest, which every entry of this price includes."""
        digest = self.link(b"price", [mechanism, unit], orders, cost)
        return Price(number, mechanism, unit, orders, cost, digest)


@dataclass(frozen=True, slots=True, eq=False)
class Price:
    """Cost of one use of a mechanism in whole units. Entries refer to it by number."""

    id: int
    mechanism: str
    unit: str
    orders: bytes
    cost: bytes
    digest: bytes


class Row(NamedTuple):
    """One entry as it is stored, in the order of the columns."""

    seq: int
    kind: str
    account: str
    key: str | None
    price: int | None
    uses: int
    protects: str
    simulation: int
    epsilon: float
    asked: bytes | None = None
    answer: int | None = None
    cap: float | None = None
    state: bytes | None = None
    at: int | None = None
    digest: bytes = b""

    def seal(self, seal: Seal, previous: bytes, priced: bytes) -> bytes | None:
        """The digest over every field, the price and the previous digest."""
        return seal.entry(self, previous, priced)

    def sealed(self, seal: Seal, previous: bytes, priced: bytes, *, at: int | None) -> Row:
        """The entry with its time and its digest, as it is written at the end of the chain."""
        digest = seal.entry((*self[:-2], at, b""), previous, priced)
        if digest is None:
            raise ValueError("names must not contain the byte 1F")
        return Row._make((*self[:-2], at, digest))

    def entry(self, priced: Price | None) -> Entry:
        """The entry as it is shown."""
        return Entry(
            seq=self.seq,
            kind=self.kind,
            account=self.account or None,
            key=self.key,
            mechanism=priced.mechanism if priced else "",
            uses=self.uses,
            unit=self.protects,
            simulation=bool(self.simulation),
            curve=to_curve(fold(None, priced.cost, uses=self.uses), priced.unit, priced.orders)
            if priced
            else Curve.zero(),
            epsilon_after=self.epsilon,
            digest=self.asked.hex() if self.asked is not None else None,
            answer=self.answer,
            cap=self.cap,
            at=self.at,
            head=self.digest.hex(),
        )


def price(curve: Curve) -> tuple[bytes, bytes]:
    """The orders, and the cost of one use in whole units, rounded up."""
    values = np.array([*curve.rdp, curve.mu_squared, curve.slack])
    if not (values >= 0).all():
        raise ValueError("a cost must be >= 0 and not NaN")
    units = _units(values.size)
    cost = np.ceil(np.minimum(values, INFINITE / units) * units)  # powers of two: only ceil rounds
    numbers = cost.astype("<u8").tobytes()
    return np.array(curve.orders, dtype="<f8").tobytes(), _joined(numbers, curve.laws)


def fold(total: bytes | None, cost: bytes, *, uses: int) -> bytes:
    """The exact total after ``uses`` more uses, saturating at ``INFINITE``. A total of None is zero."""
    numbers, laws = _parted(cost)
    one = np.frombuffer(numbers, dtype="<u8")
    after = np.where(one > INFINITE // max(uses, 1), INFINITE, one * min(uses, INFINITE))
    if laws is not None:
        laws = tuple(law._replace(uses=law.uses * uses) for law in laws if uses)
    if total is not None:
        before, known = _parted(total)
        after = np.minimum(after + np.frombuffer(before, dtype="<u8"), INFINITE)
        laws = added(known, laws)
    return _joined(after.astype("<u8").tobytes(), laws)


def to_curve(cost: bytes, unit: str, orders: bytes) -> Curve:
    """The curve of a cost, rounded up to floats; ``INFINITE`` becomes infinity (slack: 1)."""
    numbers, laws = _parted(cost)
    whole = np.frombuffer(numbers, dtype="<u8")
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
        laws=laws,
    )


def covers(reserve: bytes, cost: bytes) -> bool:
    """Return whether a cost is at most a reserve at every order."""
    low, high = (np.frombuffer(_parted(each)[0], dtype="<u8") for each in (cost, reserve))
    return bool((low <= high).all())


def comparable(reserve: bytes, cost: bytes) -> bytes:
    """Return the reserve; drop its laws unless they contain the cost's laws, as its bound could be lower."""
    numbers, most = _parted(reserve)
    laws = _parted(cost)[1]
    if most is None:
        return reserve
    uses = {(law.kind, law.size): law.uses for law in most}
    contained = laws is not None and all(law.uses <= uses.get((law.kind, law.size), 0) for law in laws)
    return reserve if contained else numbers


def is_free(cost: bytes) -> bool:
    """Return whether a cost is zero at every order."""
    return not any(_parted(cost)[0])


def without_laws(priced: Price) -> Price:
    """Return the price by its bounds alone."""
    return replace(priced, cost=_parted(priced.cost)[0])


def alike(one: bytes, two: bytes) -> tuple[bytes, bytes]:
    """Return two costs of which an adaptive budget follows both or neither, without laws if need be."""
    (numbers, laws), (others, theirs) = _parted(one), _parted(two)
    return (one, two) if is_free(one) or begins(laws) == begins(theirs) else (numbers, others)


def _joined(numbers: bytes, laws: tuple[Law, ...] | None) -> bytes:
    if laws is None:
        return numbers
    text = json.dumps([[law.kind, law.size.hex(), law.uses] for law in laws]).encode()
    return numbers + text + len(text).to_bytes(4, "little") + _LAWS


def _parted(cost: bytes) -> tuple[bytes, tuple[Law, ...] | None]:
    if not cost.endswith(_LAWS):
        return cost, None
    size = int.from_bytes(cost[-8:-4], "little")
    text = cost[-8 - size : -8]
    laws = tuple(Law(str(kind), float.fromhex(size), int(uses)) for kind, size, uses in json.loads(text))
    return cost[: -8 - len(text)], laws


def _units(size: int) -> np.ndarray:
    units = np.full(size, UNITS_PER_NAT)
    units[-1] = _UNITS_PER_SLACK
    return units
