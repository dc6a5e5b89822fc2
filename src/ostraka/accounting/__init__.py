"""Upper bounds on the cost of answers, for all votes or for given ones; calibration and planning."""

from ostraka.accounting.bounds import Bound, every_bound
from ostraka.accounting.calibration import calibrate
from ostraka.accounting.dependent import moments2017_curve, papernot2018_curve
from ostraka.accounting.exact import exact_curve, exact_rdp
from ostraka.accounting.learning_curve import LearningCurve, assumed, measured
from ostraka.accounting.plan import Estimate, Proposal, propose
from ostraka.accounting.publish import PublishedEpsilon, release_epsilon
from ostraka.accounting.sampled import sampled_gaussian_curve

__all__ = [
    "Bound",
    "Estimate",
    "LearningCurve",
    "Proposal",
    "PublishedEpsilon",
    "assumed",
    "calibrate",
    "every_bound",
    "exact_curve",
    "exact_rdp",
    "measured",
    "moments2017_curve",
    "papernot2018_curve",
    "propose",
    "release_epsilon",
    "sampled_gaussian_curve",
]
