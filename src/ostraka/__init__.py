"""Learn from private data by secret ballot, know exactly what it cost, and measure what leaks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostraka.curve import Curve
    from ostraka.door import ABSTAIN, confident, interactive, release
    from ostraka.ledger import Budget, BudgetExceeded, Ledger
    from ostraka.mechanisms import Confident, GNMax, LNMax, Threshold
    from ostraka.pate import PATEClassifier
    from ostraka.private import Adjacency, Private
    from ostraka.result import Result
    from ostraka.voters import TeacherEnsemble, count_votes

__version__ = "0.1.0"

# Loaded on first use: `import ostraka` and `ostraka --help` stay quick.
_HOME = {
    "ABSTAIN": "door",
    "Adjacency": "private",
    "Budget": "ledger",
    "BudgetExceeded": "ledger",
    "Confident": "mechanisms",
    "Curve": "curve",
    "GNMax": "mechanisms",
    "LNMax": "mechanisms",
    "Ledger": "ledger",
    "PATEClassifier": "pate",
    "Private": "private",
    "Result": "result",
    "TeacherEnsemble": "voters",
    "Threshold": "mechanisms",
    "confident": "door",
    "count_votes": "voters",
    "interactive": "door",
    "release": "door",
}

__all__ = [
    "ABSTAIN",
    "Adjacency",
    "Budget",
    "BudgetExceeded",
    "Confident",
    "Curve",
    "GNMax",
    "LNMax",
    "Ledger",
    "PATEClassifier",
    "Private",
    "Result",
    "TeacherEnsemble",
    "Threshold",
    "confident",
    "count_votes",
    "interactive",
    "release",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ostraka' has no attribute {name!r}")
    if _HOME[name] in {"pate", "voters"}:
        importlib.import_module("ostraka._imports").without_pandas()
    value = getattr(importlib.import_module(f"ostraka.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
