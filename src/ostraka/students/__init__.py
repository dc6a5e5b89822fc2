"""Students: classifiers from public rows and released labels, what they ask first, and learning from private labels.

Those of torch are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

from ostraka.students.asking import least_sure, schedule, typical
from ostraka.students.distil import Distilled

_HOME: dict[str, str] = {}  # need torch

__all__ = ["Distilled", "least_sure", "schedule", "typical"]


def __getattr__(name: str) -> Any:
    """Load a student of torch when it is first used."""
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
