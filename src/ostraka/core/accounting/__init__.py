"""Upper bounds on the cost of answers, for all votes or for given ones; calibration and planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.core.accounting.bounds import every_bound as every_bound
    from ostraka.core.accounting.bounds import exact_curve as exact_curve
    from ostraka.core.accounting.bounds import exact_profile as exact_profile
    from ostraka.core.accounting.bounds import moments2017_curve as moments2017_curve
    from ostraka.core.accounting.bounds import papernot2018_curve as papernot2018_curve
    from ostraka.core.accounting.calibration import calibrate as calibrate
    from ostraka.core.accounting.plan import LearningCurve as LearningCurve
    from ostraka.core.accounting.plan import propose as propose
    from ostraka.core.accounting.publish import release_epsilon as release_epsilon
    from ostraka.core.mechanisms.wrapped import sampled_gaussian_curve as sampled_gaussian_curve

__all__ = [
    "LearningCurve",
    "calibrate",
    "every_bound",
    "exact_curve",
    "exact_profile",
    "moments2017_curve",
    "papernot2018_curve",
    "propose",
    "release_epsilon",
    "sampled_gaussian_curve",
]

__getattr__, __dir__ = face(__name__, __file__)
