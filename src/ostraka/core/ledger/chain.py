"""Entries of a ledger: what is asked and shown, the digests that chain them, and costs as whole numbers.

A cost is an array of whole numbers, one for each order, then mu_squared, then slack, in units of
2**-50 nats (slack: 2**-62). It is rounded up once, when a mechanism's price is computed. Sums and
multiples after that are exact, on every machine and in any order. They saturate at ``INFINITE``
(4096 nats, or a slack of 1), where the guarantee is void.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka.core.curve import Curve
from ostraka.core.laws.law import Law, added, begins
from ostraka.core.ledger.budget import UNITS_PER_NAT
from ostraka.core.randomness import Keyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.curve import Priced

CHARGE, GRANT, NOTE = "charge", "grant", "note"
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
_RELATION = " (add-or-remove)"
# of mechanisms, by their ``repr``, whose promise is for one unit added or removed
_ADDED_OR_REMOVED = (
    "relation='add-or-remove'",
    "Subsampled(",
    "GaussianSums(",
    "Marginals(",
    "NoisyLloyd(",
    "NearestVotes(",
    "PrivateSGD(",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRequest:
    """One charge that a client's question needs. The answer is drawn, and has not left the process.

    Attributes
    ----------
    account : str
        The client's account. It must have a grant.
    key : str
        Idempotency key, unique within the account.
    digest : str
        Keyed digest of the question's canonical form, in hexadecimal. Requests with equal digests
        are the same question, for all clients.
    cost : Priced
        Cost of this answer. Publishable.
    reserve : Priced
        What must fit into the budget for the request to be granted: at least ``cost`` at every order.
        It depends on nothing private, so refusals depend on nothing private.
    answer : int
        The label, which is stored with the charge; -1 where the teachers abstain.
    times : int
        How many uses of ``reserve`` must fit. The first request of a group names the group's size.
    follows : bool
        This request shares the outcome of the one before it in the same call, if that was refused.
        So a group of requests is granted as a whole or refused as a whole.
    """

    account: str
    key: str
    digest: str
    cost: Priced
    reserve: Priced
    answer: int
    times: int = 1
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Proof that an answer is charged. All fields are public.

    Attributes
    ----------
    seq : int
        Number of the entry.
    head : str
        Digest over the budget and every entry up to this one, in hexadecimal.
    answer : int
        The label stored with the charge: the only one that may leave.
    left : float, nats
        Epsilon left in the client's account after everything charged in the same transaction. A lower
        bound within a hundredth of the cap; :meth:`Ledger.accounts` computes the exact value.
    """

    seq: int
    head: str
    answer: int
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A client's cap, and the total it has spent. All fields are public.

    Attributes
    ----------
    name : str
    cap : float, nats
        Epsilon granted, at the ledger's delta; no more than the ledger's own.
    spent, left : float, nats
        Epsilon spent, and epsilon left, which is never negative.
    """

    name: str
    cap: float
    spent: float
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, as recorded. All fields are public.

    Attributes
    ----------
    seq : int
        1, 2, 3, … without gaps.
    kind : str
        ``"charge"``, ``"grant"`` (which sets the cap of a client's account), or ``"note"``: what an owner
        did.
    account : str or None
        The client's account; None for a charge of the ledger's budget alone.
    key : str or None
        Public name of the release, or of the decision of a grant, unique within its account; of a note, its
        text.
    mechanism : str
        Its ``repr``; empty for a grant and for a note.
    uses : int
        How many of them the ledger's budget was charged for; 0 where a client repeated a question.
    unit : str
        The protected unit: ``"row"``, ``"person"``, …
    simulation : bool
        The noise came from a reproducible generator.
    curve : Curve
        Cost of all uses together.
    epsilon_after : float, nats
        Epsilon of all entries up to this one, at the budget's delta. For charges of clients, and where one
        price is charged often in a row, it is an upper bound within a hundredth of the budget.
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


class Brief(NamedTuple):
    """One entry without its curve and its head: enough to count many of them quickly. All fields are public.

    Attributes
    ----------
    seq, account, mechanism, uses, answer, epsilon_after, at
        As in :class:`Entry`.
    digest : bytes or None
        As in :class:`Entry`, not in hexadecimal.
    """

    seq: int
    account: str
    mechanism: str
    uses: int
    answer: int | None
    digest: bytes | None
    epsilon_after: float
    at: int | None


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

    def sealed(self, seal: Seal, previous: bytes, priced: bytes, *, at: int | None) -> Row:
        """The entry with its time and its digest, as it is written at the end of the chain."""
        fields = self[:-2]
        digest = seal.entry((*fields, at, b""), previous, priced)
        if digest is None:
            raise ValueError("names must not contain the byte 1F")
        return Row(*fields, at, digest)

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


class Seal:
    """Digest function: SHA-256, or HMAC-SHA256 where there is a secret."""

    def __init__(self, secret: bytes | None) -> None:
        if secret is not None and not (isinstance(secret, bytes) and len(secret) >= _SECRET_BYTES):
            raise ValueError(f"secret must be {_SECRET_BYTES} bytes or more from the operating system")
        self._digest = _plain if secret is None else Keyed(secret)
        self.name = "" if secret is None else self(b"ostraka ledger: name of the secret").hex()[:16]

    def __call__(self, message: bytes) -> bytes:
        """The digest of a message."""
        return self._digest(message)

    def link(self, previous: bytes, plain: list[int | str | None], *blobs: bytes) -> bytes:
        """The digest over the previous digest, the fields and the lengths: an injective encoding."""
        head = json.dumps([*plain, [len(blob) for blob in blobs]]).encode()  # ASCII, and free of NUL
        return self(b"\0".join([previous, head, *blobs]))

    def entry(self, fields: Fields, previous: bytes, priced: bytes) -> bytes | None:
        """The digest over every field, price and previous digest; None if a field has a separator."""
        (
            seq, kind, account, key, _, uses, protects, simulation, epsilon,
            asked, answer, cap, state, at, _,
        ) = fields  # fmt: skip
        name = "" if key is None else f"={key}"
        text = (
            f"{seq}\x1f{kind}\x1f{account}\x1f{name}\x1f{uses}\x1f{protects}\x1f{simulation}"
            f"\x1f{epsilon!r}\x1f{asked.hex() if asked is not None else ''}\x1f{answer}\x1f{cap!r}"
            f"\x1f{state.hex() if state is not None else ''}"
        )
        if text.count(_SEPARATOR) != 11:  # inside a name: only an edit of the file produces that
            return None
        if at is not None:
            text = f"{text}\x1f{at}"
        return self._digest(previous + priced + text.encode())

    def entries(
        self, rows: Sequence[Fields], previous: Sequence[bytes], priced: Sequence[bytes]
    ) -> list[bytes | None]:
        """The same of many entries: the digests before them, and those of their prices, beside them."""
        return [self.entry(*each) for each in zip(rows, previous, priced, strict=True)]

    def price(self, number: int, mechanism: str, unit: str, orders: bytes, cost: bytes) -> Price:
        """A price with its digest, which every entry of this price includes."""
        digest = self.link(b"price", [mechanism, unit], orders, cost)
        return Price(number, mechanism, unit, orders, cost, digest)


def _plain(message: bytes) -> bytes:
    return hashlib.sha256(message).digest()


@lru_cache(maxsize=1024)  # asked twice for each charge
def protection(protects: str, mechanism: str) -> str:
    """Whom a charge protects, and under which relation: ``"row (add-or-remove)"``; replace-one goes unsaid.

    Entries from before ledgers knew relations name the unit alone. What they paid for says the relation.
    """
    if protects.endswith(")") or not any(name in mechanism for name in _ADDED_OR_REMOVED):
        return protects
    return protects + _RELATION


def plain_unit(protects: str) -> str:
    """The unit of what :func:`protection` returns."""
    return protects.removesuffix(_RELATION)


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
    unit_cost = np.frombuffer(numbers, dtype="<u8")
    after = np.where(unit_cost > INFINITE // max(uses, 1), INFINITE, unit_cost * min(uses, INFINITE))
    if laws is not None:
        laws = tuple(law._replace(uses=law.uses * uses) for law in laws if uses)
    if total is not None:
        before, laws_before = _parted(total)
        after = np.minimum(after + np.frombuffer(before, dtype="<u8"), INFINITE)
        laws = added(laws_before, laws)
    return _joined(after.astype("<u8").tobytes(), laws)


def beyond(later: bytes, earlier: bytes | None) -> bytes:
    """The exact cost that a later total of one ledger has and an earlier one lacks.

    Raises
    ------
    ValueError
        The first is not a total of the same ledger at a later time.
    """
    if earlier is None:
        return later
    (numbers, laws), (before, laws_before) = _parted(later), _parted(earlier)
    high, low = (np.frombuffer(part, dtype="<u8") for part in (numbers, before))
    if low.shape != high.shape or (low > high).any():
        raise ValueError("the totals are not of one ledger")
    # what is at its limit stays there: its true value is not known
    cost = np.where(high == INFINITE, high, high - low).astype("<u8").tobytes()
    if laws is None or laws_before is None:
        return cost
    less = added(laws, tuple(law._replace(uses=-law.uses) for law in laws_before))
    return _joined(cost, None if any(law.uses < 0 for law in less or ()) else less)


def to_curve(cost: bytes, unit: str, orders: bytes) -> Curve:
    """The curve of a cost, rounded up to floats; ``INFINITE`` becomes infinity (slack: 1)."""
    numbers, laws = _parted(cost)
    integers = np.frombuffer(numbers, dtype="<u8")
    near = integers.astype(np.float64)
    units = _units(integers.size)
    values = np.where(near.astype(np.uint64) < integers, np.nextafter(near, math.inf), near) / units
    values[:-1][integers[:-1] == INFINITE] = math.inf
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
    low, high = (np.frombuffer(_parted(encoded)[0], dtype="<u8") for encoded in (cost, reserve))
    return bool((low <= high).all())


def comparable(reserve: bytes, cost: bytes) -> bytes:
    """Return the reserve; drop its laws unless they contain the cost's laws, as its bound could be lower."""
    numbers, reserved = _parted(reserve)
    laws = _parted(cost)[1]
    if reserved is None:
        return reserve
    uses = {(law.kind, law.size): law.uses for law in reserved}
    contained = laws is not None and all(law.uses <= uses.get((law.kind, law.size), 0) for law in laws)
    return reserve if contained else numbers


def is_free(cost: bytes) -> bool:
    """Return whether a cost is zero at every order."""
    return not any(_parted(cost)[0])


def without_laws(priced: Price) -> Price:
    """Return the price by its bounds alone."""
    return replace(priced, cost=_parted(priced.cost)[0])


def alike(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Return two costs of which an adaptive budget follows both or neither, without laws if need be."""
    (numbers, laws), (others, theirs) = _parted(first), _parted(second)
    return (first, second) if is_free(first) or begins(laws) == begins(theirs) else (numbers, others)


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
