# For type checkers: ``ostraka.students`` is ``ostraka.learn.students``.

from ostraka.learn.students import ALIBI as ALIBI
from ostraka.learn.students import AugmentedSVM as AugmentedSVM
from ostraka.learn.students import Distilled as Distilled
from ostraka.learn.students import FeatureMatchingGAN as FeatureMatchingGAN
from ostraka.learn.students import FixMatch as FixMatch
from ostraka.learn.students import ImageAugment as ImageAugment
from ostraka.learn.students import MomentLogistic as MomentLogistic
from ostraka.learn.students import MultiStage as MultiStage
from ostraka.learn.students import SmoothedCounts as SmoothedCounts
from ostraka.learn.students import TableAugment as TableAugment
