"""Estimators that run the whole pipeline, and the plans they follow.

:class:`PATEFM` needs torch, so it is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostraka.pate.classifier import PATEClassifier as PATEClassifier

if TYPE_CHECKING:
    from ostraka.pate.pate_fm import PATEFM

__all__ = ["PATEFM"]


def __getattr__(name: str) -> Any:
    """Import PATEFM, which needs torch, when it is first used."""
    if name == "PATEFM":
        return importlib.import_module("ostraka.pate.pate_fm").PATEFM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
