# For type checkers: ``ostraka.mechanisms`` is ``ostraka.core.mechanisms``.

from ostraka.core.mechanisms import BestTrial as BestTrial
from ostraka.core.mechanisms import Confident as Confident
from ostraka.core.mechanisms import GaussianSums as GaussianSums
from ostraka.core.mechanisms import GNMax as GNMax
from ostraka.core.mechanisms import LNMax as LNMax
from ostraka.core.mechanisms import NoisyCounts as NoisyCounts
from ostraka.core.mechanisms import OneHotGaussian as OneHotGaussian
from ostraka.core.mechanisms import OneHotLaplace as OneHotLaplace
from ostraka.core.mechanisms import PriorResponse as PriorResponse
from ostraka.core.mechanisms import RandomizedResponse as RandomizedResponse
from ostraka.core.mechanisms import SkellamMax as SkellamMax
from ostraka.core.mechanisms import Subsampled as Subsampled
from ostraka.core.mechanisms import Threshold as Threshold
from ostraka.core.mechanisms import Weighted as Weighted
