"""Ledger: durable, append-only charges against a budget, and against the caps of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.core.ledger.budget import Budget as Budget
    from ostraka.core.ledger.budget import BudgetExceeded as BudgetExceeded
    from ostraka.core.ledger.budget import LedgerError as LedgerError
    from ostraka.core.ledger.chain import ChargeRequest as ChargeRequest
    from ostraka.core.ledger.ledger import Ledger as Ledger

__all__ = ["ChargeRequest", "LedgerError"]

__getattr__, __dir__ = face(__name__, __file__)
