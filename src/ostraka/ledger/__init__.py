"""Ledger: durable, append-only charges against a budget, and against the caps of clients."""

from ostraka.ledger.budget import Budget as Budget
from ostraka.ledger.budget import BudgetExceeded as BudgetExceeded
from ostraka.ledger.budget import LedgerError
from ostraka.ledger.ledger import Ledger as Ledger
from ostraka.ledger.records import ChargeRequest

__all__ = [
    "ChargeRequest",
    "LedgerError",
]
