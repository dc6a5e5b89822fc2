"""Mechanisms: frozen public parameters with their code and their price."""

from ostraka.mechanisms.additive import OneHotGaussian, OneHotLaplace
from ostraka.mechanisms.argmax import GNMax, LNMax
from ostraka.mechanisms.confident import Confident
from ostraka.mechanisms.counts import NoisyCounts
from ostraka.mechanisms.guesses import AgainstGuesses
from ostraka.mechanisms.marginals import NoisyMarginals, TreeMarginals
from ostraka.mechanisms.protocols import BallotMechanism, Mechanism
from ostraka.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.mechanisms.screen import Threshold
from ostraka.mechanisms.selection import Selection
from ostraka.mechanisms.skellam import SkellamMax, SkellamSum
from ostraka.mechanisms.subsampled import Subsampled
from ostraka.mechanisms.sums import GaussianSums
from ostraka.mechanisms.weighted import Weighted

__all__ = [
    "AgainstGuesses",
    "BallotMechanism",
    "Confident",
    "GNMax",
    "GaussianSums",
    "LNMax",
    "Mechanism",
    "NoisyCounts",
    "NoisyMarginals",
    "OneHotGaussian",
    "OneHotLaplace",
    "PriorResponse",
    "RandomizedResponse",
    "Selection",
    "SkellamMax",
    "SkellamSum",
    "Subsampled",
    "Threshold",
    "TreeMarginals",
    "Weighted",
]
