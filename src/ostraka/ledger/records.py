"""Values that callers exchange with a ledger: charge requests, receipts and accounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ostraka.curve import Priced

__all__ = ["Account", "Brief", "ChargeRequest", "Receipt"]


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
