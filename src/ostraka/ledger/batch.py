"""Grant or refuse many charge requests in order, and write the granted ones in one transaction."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, NamedTuple

from ostraka import _check
from ostraka.ledger.budget import BudgetExceeded, KeyConflict, LedgerError
from ostraka.ledger.chain import CHARGE, Row, alike, comparable, covers, price
from ostraka.ledger.records import ChargeRequest, Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.curve import Priced
    from ostraka.ledger.backend import Store
    from ostraka.ledger.balance import Balance
    from ostraka.ledger.history import History

__all__ = ["Outcome", "PriceList", "PricedRequest", "Quote", "check_text", "decide", "serve", "unlike"]

Outcome = Receipt | BudgetExceeded | KeyConflict
Quote = tuple[str, str, bytes, bytes]  # mechanism, unit, orders, cost of one use in whole units
_REMEMBERED = 1024


class PricedRequest(NamedTuple):
    """A charge request after its checks, with its prices looked up."""

    account: str
    key: str
    asked: bytes
    cost: Quote
    reserve: Quote
    answer: int
    times: int
    follows: bool
    protects: str
    simulation: int


class PriceList:
    """Cache of mechanism prices. ``adaptive``: answers decide which of a request's two prices is paid."""

    def __init__(self, *, adaptive: bool = False) -> None:
        self._adaptive = adaptive
        self._new = threading.Lock()
        self._pairs: dict[tuple[Priced, Priced], tuple[Quote, Quote]] = {}

    def quote(self, mechanism: Priced) -> Quote:
        """Return name, unit, orders and cost of a mechanism whose curve is publishable."""
        curve = mechanism.curve()
        if not curve.publishable:
            raise ValueError(
                f"{mechanism!r} has a cost computed from private data: only publishable curves are charged"
            )
        orders, cost = price(curve)
        return repr(mechanism), curve.moves, orders, cost

    def priced(self, asked: ChargeRequest, *, unit: str, simulation: bool) -> PricedRequest:
        """Check a request and look its prices up; raise ValueError for a wrong argument."""
        check_text(account=asked.account, key=asked.key)
        _check.integer(least=-(2**31), answer=asked.answer)
        _check.integer(least=1, times=asked.times)
        cost, reserve = self._pair(asked.cost, asked.reserve)
        return PricedRequest(
            asked.account,
            asked.key,
            _from_hex(asked.digest),
            cost,
            reserve,
            int(asked.answer),
            int(asked.times),
            bool(asked.follows),
            unit,
            int(simulation),
        )

    def _pair(self, cost: Priced, reserve: Priced) -> tuple[Quote, Quote]:
        try:
            return self._pairs[cost, reserve]
        except (KeyError, TypeError):  # new, or not hashable
            with self._new:  # else every thread of a service would compute the first price
                return self._fresh(cost, reserve)

    def _fresh(self, cost: Priced, reserve: Priced) -> tuple[Quote, Quote]:
        with contextlib.suppress(KeyError, TypeError):
            return self._pairs[cost, reserve]
        pair = self.quote(cost), self.quote(reserve)
        (_, *kind, low), (_, *other, high) = pair
        if kind != other or not covers(high, low):
            raise ValueError(f"reserve must cost at least {cost!r} at every order, got {reserve!r}")
        high = comparable(high, low)
        if self._adaptive:  # what is paid first decides the budget's rule, and answers must not
            low, high = alike(low, high)
        pair = (*pair[0][:-1], low), (*pair[1][:-1], high)
        if len(self._pairs) >= _REMEMBERED:
            self._pairs.clear()
        with contextlib.suppress(TypeError):
            self._pairs[cost, reserve] = pair
        return pair


def serve(
    history: History, store: Store, callers: Sequence[Sequence[PricedRequest]], *, some: Row | None
) -> list[list[Outcome] | LedgerError]:
    """Decide the requests of several callers in order. A caller with another unit gets its own error.

    ``some`` is any entry on record; it is checked where a repeated question's entry would be.
    """
    bound, fitting, errors = history.bound, list[PricedRequest](), {}
    for n, questions in enumerate(callers):
        for question in questions:
            _, unit, orders, _ = question.cost
            bound = bound or (question.protects, unit, orders)
            if bound != (question.protects, unit, orders):
                errors[n] = unlike(history.path, bound, question.protects, unit)
        fitting += () if n in errors else questions
    outcomes = iter(decide(history, store, fitting, some=some))
    return [errors[n] if n in errors else [next(outcomes) for _ in q] for n, q in enumerate(callers)]


def unlike(path: str, bound: tuple[str, str, bytes], protects: str, unit: str) -> LedgerError:
    """Return the error for a charge whose unit or orders differ from the ledger's."""
    return LedgerError(
        f"{path} counts {bound[1]} curves that protect a {bound[0]}; this is a {unit} curve "
        f"that protects a {protects}, or has other orders: use a separate ledger"
    )


def decide(
    history: History, store: Store, questions: Sequence[PricedRequest], *, some: Row | None
) -> list[Outcome]:
    """Grant or refuse each request and write the granted ones. Refusals depend on publishable totals only."""
    known = store.with_keys([(q.account, q.key) for q in questions])
    first = store.with_asked([q.asked for q in questions])
    # the same work for new and repeated questions, so that response times do not tell them apart
    looked = (*known.values(), *(first.get(question.asked, some) for question in questions))
    history.check_each([row for row in looked if row is not None], store)
    drafts: list[Row] = []
    found: list[Row | BudgetExceeded | KeyConflict] = []
    for question in questions:
        same_key = known.get((question.account, question.key))
        if question.follows and found and not isinstance(found[-1], Row):
            found.append(found[-1])
        elif same_key is None:
            granted = _granted(history, question, first.get(question.asked), history.seq + 1 + len(drafts))
            if isinstance(granted, Row):
                drafts.append(granted)
                known[question.account, question.key] = granted
                first.setdefault(question.asked, granted)
            found.append(granted)
        elif same_key.asked == question.asked:
            found.append(same_key)
        else:
            found.append(
                KeyConflict(
                    f"key {question.key!r} stands for another question: use a new key; nothing was charged"
                )
            )
    written = {}
    if drafts:
        written = {row.seq: row for row in history.write(drafts, store)}
    return [_outcome(history, written.get(row.seq, row)) if isinstance(row, Row) else row for row in found]


def _granted(history: History, question: PricedRequest, first: Row | None, seq: int) -> Row | BudgetExceeded:
    """Return the new entry, charged to the ledger's budget and the client's account if both suffice."""
    balance = history.accounts.get(question.account)
    reserve = history.reserve(*question.reserve)
    if balance is None or not (
        history.dataset.fits(reserve, uses=question.times) and balance.fits(reserve, uses=question.times)
    ):
        return _refusal(history, question, balance)
    cost = history.price(*question.cost)
    if first is None:
        history.take(history.dataset, cost, under=reserve)
    history.take(balance, cost, under=reserve)
    return Row(
        seq=seq,
        kind=CHARGE,
        account=question.account,
        key=question.key,
        price=cost.id,
        uses=0 if first else 1,
        protects=question.protects,
        simulation=question.simulation,
        epsilon=history.dataset.at_most,
        asked=question.asked,
        answer=first.answer if first else question.answer,
    )


def _refusal(history: History, question: PricedRequest, balance: Balance | None) -> BudgetExceeded:
    """Return the refusal, with the same words for a spent ledger, a spent client and an unknown client."""
    return BudgetExceeded(
        f"account {question.account!r} has too little left for one more question; nothing was charged",
        asked=history.alone(*question.reserve),
        left=balance.left if balance else 0.0,
    )


def _outcome(history: History, row: Row) -> Receipt:
    balance = history.accounts[row.account]
    left = max(0.0, balance.budget.epsilon - balance.at_most)
    return Receipt(seq=row.seq, head=row.digest.hex(), answer=row.answer or 0, left=left)


def check_text(**named: str) -> None:
    """Raise unless every value is printable text."""
    for name, value in named.items():
        if not (isinstance(value, str) and value and value.isprintable()):
            raise ValueError(f"{name} must be printable text and not empty, got {value!r}")


def _from_hex(digest: str) -> bytes:
    try:
        asked = bytes.fromhex(digest)
    except (TypeError, ValueError):
        asked = b""
    if not asked:
        raise ValueError(f"digest must be hexadecimal and not empty, got {digest!r}")
    return asked
