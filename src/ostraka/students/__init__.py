"""Students: classifiers from public rows and released labels, what they ask first, and from private labels.

Those of torch are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostraka.students.asking import least_sure, schedule, typical
from ostraka.students.distil import Distilled

if TYPE_CHECKING:
    from ostraka._torch.augment import ImageAugment, TableAugment
    from ostraka.students.fixmatch import FixMatch

_HOME = {  # need torch
    "FixMatch": "ostraka.students.fixmatch",
    "ImageAugment": "ostraka._torch.augment",
    "TableAugment": "ostraka._torch.augment",
}

__all__ = ["Distilled", "FixMatch", "ImageAugment", "TableAugment", "least_sure", "schedule", "typical"]


def __getattr__(name: str) -> Any:
    """Load a student of torch when it is first used."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
