"""Students: classifiers that learn from public rows with released or private labels, and query strategies.

Students that need torch are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.learn.students.counts import AugmentedSVM as AugmentedSVM
    from ostraka.learn.students.counts import MomentLogistic as MomentLogistic
    from ostraka.learn.students.counts import SmoothedCounts as SmoothedCounts
    from ostraka.learn.students.distil import Distilled as Distilled
    from ostraka.learn.students.fixmatch import FixMatch as FixMatch
    from ostraka.learn.students.fixmatch import ImageAugment as ImageAugment
    from ostraka.learn.students.fixmatch import TableAugment as TableAugment
    from ostraka.learn.students.gan import FeatureMatchingGAN as FeatureMatchingGAN
    from ostraka.learn.students.labels import ALIBI as ALIBI
    from ostraka.learn.students.labels import MultiStage as MultiStage

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

__getattr__, __dir__ = face(__name__, __file__)
