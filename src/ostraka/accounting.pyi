# For type checkers: ``ostraka.accounting`` is ``ostraka.core.accounting``.

from ostraka.core.accounting import LearningCurve as LearningCurve
from ostraka.core.accounting import calibrate as calibrate
from ostraka.core.accounting import every_bound as every_bound
from ostraka.core.accounting import exact_curve as exact_curve
from ostraka.core.accounting import exact_profile as exact_profile
from ostraka.core.accounting import moments2017_curve as moments2017_curve
from ostraka.core.accounting import papernot2018_curve as papernot2018_curve
from ostraka.core.accounting import propose as propose
from ostraka.core.accounting import release_epsilon as release_epsilon
from ostraka.core.accounting import sampled_gaussian_curve as sampled_gaussian_curve
