"""What a party's own ledger pays for its answers, and how many secret rounds it has answered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ostraka.ledger import BudgetExceeded, Ledger, LedgerError
from ostraka.secure.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.secure.agreement import Agreement

__all__ = ["Payments"]

_USED_UP = "what it may answer is used up"


class Payments:
    """Charges of one party under one agreement. Without a ledger there is no budget, only a cap on rounds."""

    def __init__(self, name: str, agreement: Agreement, ledger: Ledger | None) -> None:
        self.ledger = ledger
        self._name, self._agreement = name, agreement
        self._lock = threading.Lock()
        self._left = 0
        if agreement.secret is not None:
            self._left = agreement.secret.max_rounds - self._rounds_in(ledger)

    def afford(self, n_rows: int) -> None:
        """Refuse before the other parties pay, if this party's ledger cannot afford the round."""

        def affords(ledger: Ledger) -> None:
            if not ledger.affords(self._agreement.mechanism, uses=n_rows):
                raise refused(self._name, _USED_UP, self._name, code="budget_exceeded")

        self._on_ledger(affords)

    def pay(self, n_rows: int, transcript: bytes | None = None) -> None:
        """Charge the ledger durably, before any vote leaves; a secret round's transcript is its name.

        The transcript holds a fresh key of this party, so that no other round has the same name.
        """
        key = None if transcript is None else self._name_of(transcript)
        mechanism = self._agreement.mechanism
        self._on_ledger(
            lambda ledger: ledger.charge(mechanism, uses=n_rows, unit="party", simulation=False, key=key)
        )

    def cap(self, *, spend: int = 0) -> None:
        """Refuse secret rounds beyond the agreed number, those of this agreement in the ledger included."""
        with self._lock:
            if self._left < 1:
                raise refused(self._name, "it has answered as many rounds as were agreed", self._name)
            self._left -= spend

    def _rounds_in(self, ledger: Ledger | None) -> int:
        keys = [] if ledger is None else [entry.key or "" for entry in ledger.entries()]
        return sum(key.startswith(self._name_of(b"")) for key in keys)

    def _name_of(self, transcript: bytes) -> str:
        return f"{self._agreement.sha256} {transcript.hex()}"

    def _on_ledger(self, work: Callable[[Ledger], object]) -> None:
        """Run work on the ledger; turn its errors into refusals that do not show its file."""
        try:
            if self.ledger is not None:
                work(self.ledger)
        except BudgetExceeded:
            raise refused(self._name, _USED_UP, self._name, code="budget_exceeded") from None
        except LedgerError:
            raise refused(self._name, "its ledger is out of order", self._name, code="internal") from None
