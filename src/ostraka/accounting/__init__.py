"""Upper bounds on the cost of answers, for all votes or for given ones; calibration and planning."""

from ostraka.accounting.bounds import every_bound
from ostraka.accounting.calibration import calibrate
from ostraka.accounting.dependent import moments2017_curve, papernot2018_curve
from ostraka.accounting.exact import exact_curve, exact_profile
from ostraka.accounting.learning_curve import LearningCurve
from ostraka.accounting.plan import propose
from ostraka.accounting.publish import release_epsilon
from ostraka.accounting.sampled import sampled_gaussian_curve

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
