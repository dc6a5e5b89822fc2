"""Upper bounds: what answers cost, for every possible votes or for these."""

from ostraka.accounting.dependent import moments2017_curve, papernot2018_curve
from ostraka.accounting.exact import exact_curve, exact_rdp

__all__ = ["exact_curve", "exact_rdp", "moments2017_curve", "papernot2018_curve"]
