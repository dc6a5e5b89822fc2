"""Ledger: durable, append-only charges against a budget."""

from ostraka.ledger.book import Ledger
from ostraka.ledger.budget import Budget, BudgetExceeded, LedgerError, OstrakaError
from ostraka.ledger.chain import Entry
from ostraka.ledger.filter import RenyiFilter

__all__ = ["Budget", "BudgetExceeded", "Entry", "Ledger", "LedgerError", "OstrakaError", "RenyiFilter"]
