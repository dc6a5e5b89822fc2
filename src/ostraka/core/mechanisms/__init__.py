"""Mechanisms: frozen values that hold public parameters, draw noisy answers and state the cost of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.core.imports import face

if TYPE_CHECKING:
    from ostraka.core.mechanisms.argmax import GNMax as GNMax
    from ostraka.core.mechanisms.argmax import LNMax as LNMax
    from ostraka.core.mechanisms.counts import NoisyCounts as NoisyCounts
    from ostraka.core.mechanisms.response import PriorResponse as PriorResponse
    from ostraka.core.mechanisms.response import RandomizedResponse as RandomizedResponse
    from ostraka.core.mechanisms.screen import Confident as Confident
    from ostraka.core.mechanisms.screen import Threshold as Threshold
    from ostraka.core.mechanisms.skellam import SkellamMax as SkellamMax
    from ostraka.core.mechanisms.sums import GaussianSums as GaussianSums
    from ostraka.core.mechanisms.sums import OneHotGaussian as OneHotGaussian
    from ostraka.core.mechanisms.sums import OneHotLaplace as OneHotLaplace
    from ostraka.core.mechanisms.trials import BestTrial as BestTrial
    from ostraka.core.mechanisms.wrapped import Subsampled as Subsampled
    from ostraka.core.mechanisms.wrapped import Weighted as Weighted

__all__ = [
    "BestTrial",
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

__getattr__, __dir__ = face(__name__, __file__)
