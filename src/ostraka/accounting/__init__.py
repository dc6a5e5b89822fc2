"""Upper bounds: what answers cost, for every possible votes or for these; and what to ask for a budget."""

from ostraka.accounting.bounds import Bound, every_bound
from ostraka.accounting.calibration import calibrate
from ostraka.accounting.dependent import moments2017_curve, papernot2018_curve
from ostraka.accounting.difficulty import Difficulty, assumed, measured
from ostraka.accounting.exact import exact_curve, exact_rdp
from ostraka.accounting.plan import Estimate, Proposal, propose
from ostraka.accounting.smooth import PublishedEpsilon, release_epsilon

__all__ = [
    "Bound",
    "Difficulty",
    "Estimate",
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
]
