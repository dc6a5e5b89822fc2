"""Learn from private data by secret ballot, know exactly what it cost, and measure what leaks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostraka._paths import OLD
from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.core.curve import Curve as Curve
    from ostraka.core.door import confident as confident
    from ostraka.core.door import interactive as interactive
    from ostraka.core.door import release as release
    from ostraka.core.ledger.budget import Budget as Budget
    from ostraka.core.ledger.budget import BudgetExceeded as BudgetExceeded
    from ostraka.core.ledger.ledger import Ledger as Ledger
    from ostraka.core.mechanisms.argmax import GNMax as GNMax
    from ostraka.core.mechanisms.argmax import LNMax as LNMax
    from ostraka.core.mechanisms.law import ABSTAIN as ABSTAIN
    from ostraka.core.mechanisms.screen import Confident as Confident
    from ostraka.core.mechanisms.screen import Threshold as Threshold
    from ostraka.core.private import Adjacency as Adjacency
    from ostraka.core.private import Private as Private
    from ostraka.core.result import Result as Result
    from ostraka.learn.check import check as check
    from ostraka.learn.classifier import PATEClassifier as PATEClassifier
    from ostraka.voters.teachers import TeacherEnsemble as TeacherEnsemble
    from ostraka.voters.voting import count_votes as count_votes

__version__ = "0.1.0"

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
    "check",
    "confident",
    "count_votes",
    "interactive",
    "release",
]

# loaded on first use: `import ostraka` and `ostraka --help` stay quick
_load, __dir__ = face(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a name of the library, or a module that had this name before it moved."""
    old = f"ostraka.{name}"
    return importlib.import_module(old) if old in OLD else _load(name)
