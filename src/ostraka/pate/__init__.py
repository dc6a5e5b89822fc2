"""The whole pipeline as one scikit-learn estimator, and the plan it follows.

That of public features and private labels needs torch, and is loaded when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostraka.pate.classifier import PATEClassifier
from ostraka.pate.plan import LabelPlan, Plan

if TYPE_CHECKING:
    from ostraka.pate.pate_fm import PATEFM

__all__ = ["PATEFM", "LabelPlan", "PATEClassifier", "Plan"]


def __getattr__(name: str) -> Any:
    """Load what needs torch when it is first used."""
    if name == "PATEFM":
        return importlib.import_module("ostraka.pate.pate_fm").PATEFM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
