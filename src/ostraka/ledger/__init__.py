"""Ledger: durable, append-only charges against a budget, and against the caps of clients."""

from ostraka.ledger.budget import (
    Budget,
    BudgetExceeded,
    KeyConflict,
    LedgerError,
    LedgerMoved,
    LedgerUnavailable,
    OstrakaError,
)
from ostraka.ledger.chain import Entry
from ostraka.ledger.filter import RenyiFilter
from ostraka.ledger.ledger import Ledger
from ostraka.ledger.records import Account, ChargeRequest, Receipt

__all__ = [
    "Account",
    "Budget",
    "BudgetExceeded",
    "ChargeRequest",
    "Entry",
    "KeyConflict",
    "Ledger",
    "LedgerError",
    "LedgerMoved",
    "LedgerUnavailable",
    "OstrakaError",
    "Receipt",
    "RenyiFilter",
]
