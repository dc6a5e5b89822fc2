"""Mechanisms: frozen values that hold public parameters, draw noisy answers and state the cost of each."""

from ostraka.mechanisms.additive import OneHotGaussian, OneHotLaplace
from ostraka.mechanisms.argmax import GNMax as GNMax
from ostraka.mechanisms.argmax import LNMax as LNMax
from ostraka.mechanisms.confident import Confident as Confident
from ostraka.mechanisms.counts import NoisyCounts
from ostraka.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.mechanisms.screen import Threshold as Threshold
from ostraka.mechanisms.skellam import SkellamMax
from ostraka.mechanisms.subsampled import Subsampled
from ostraka.mechanisms.sums import GaussianSums
from ostraka.mechanisms.weighted import Weighted

__all__ = [
    "GaussianSums",
    "NoisyCounts",
    "OneHotGaussian",
    "OneHotLaplace",
    "PriorResponse",
    "RandomizedResponse",
    "SkellamMax",
    "Subsampled",
    "Weighted",
]
