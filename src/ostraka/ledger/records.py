"""What clients ask of a ledger, and what they get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ostraka.curve import Curve

__all__ = ["Account", "Asked", "Priced", "Receipt"]


class Priced(Protocol):
    """All that a ledger needs to know of a mechanism, beside its ``repr``."""

    def curve(self) -> Curve:
        """Cost of one use on any data."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question of one client, already answered in memory; nothing has left yet.

    Attributes
    ----------
    account : str
        The client's account, which must have a grant.
    key : str
        Idempotency key, unique within the account.
    digest : str
        What was asked, in hexadecimal: a keyed digest of its canonical form. The same digest is
        the same question, whoever asks.
    cost : Priced
        What this answer costs. Publishable.
    reserve : Priced
        What must fit for it to be granted: at least the cost at every order. It depends on nothing
        private, so that refusals do not either.
    answer : int
        The label, stored with the charge; -1 where the teachers abstain.
    times : int
        How many uses of ``reserve`` must fit: of a first question, as many as follow it.
    follows : bool
        Granted only where the question before it in the same call was, and else refused as that was.
        So several questions are granted whole or not at all.
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
    """Proof that an answer is paid for. All of it is public.

    Attributes
    ----------
    seq : int
        Number of the entry.
    head : str
        Digest over the budget and every entry up to this one, in hexadecimal.
    answer : int
        The label that was stored with the charge. This one may leave, and no other.
    left : float, nats
        Epsilon that the client's account has left, once everything charged at the same time is. A
        lower bound, a hundredth of the cap away at most; :meth:`Ledger.accounts` works it out.
    """

    seq: int
    head: str
    answer: int
    left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one client may spend and has spent. All of it is public.

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
