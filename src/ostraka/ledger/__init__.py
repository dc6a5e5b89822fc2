"""Ledger: durable, append-only charges against a budget."""

from ostraka.ledger.book import Ledger
from ostraka.ledger.budget import Budget, BudgetExceeded, LedgerError, OstrakaError
from ostraka.ledger.chain import Entry

__all__ = ["Budget", "BudgetExceeded", "Entry", "Ledger", "LedgerError", "OstrakaError"]
