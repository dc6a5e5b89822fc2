"""Students: classifiers that learn from public rows with released or private labels, and query strategies.

Students that need torch are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ostraka.students.distil import Distilled
from ostraka.students.moments import MomentLogistic
from ostraka.students.smoothing import AugmentedSVM, SmoothedCounts

if TYPE_CHECKING:
    from ostraka._torch.augment import ImageAugment, TableAugment
    from ostraka.students.alibi import ALIBI
    from ostraka.students.fixmatch import FixMatch
    from ostraka.students.gan import FeatureMatchingGAN
    from ostraka.students.multistage import MultiStage

_HOME = {  # these need torch
    "ALIBI": "ostraka.students.alibi",
    "FeatureMatchingGAN": "ostraka.students.gan",
    "FixMatch": "ostraka.students.fixmatch",
    "ImageAugment": "ostraka._torch.augment",
    "MultiStage": "ostraka.students.multistage",
    "TableAugment": "ostraka._torch.augment",
}

__all__ = [
    "ALIBI",
    "AugmentedSVM",
    "Distilled",
    "FeatureMatchingGAN",
    "FixMatch",
    "ImageAugment",
    "MomentLogistic",
    "MultiStage",
    "SmoothedCounts",
    "TableAugment",
]


def __getattr__(name: str) -> Any:
    """Load a student that needs torch when it is first used."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
