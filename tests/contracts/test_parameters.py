"""What no mechanism may be made of: one line for each parameter out of range, and the words that say why."""

import math

import numpy as np
import pytest

from ostraka import GNMax, LNMax, Threshold
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
from ostraka.core.mechanisms.counts import NoisyCounts, NoisyMarginals, TreeMarginals
from ostraka.core.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.core.mechanisms.selection import Selection, TokenDraw
from ostraka.core.mechanisms.skellam import SkellamMax, SkellamSum
from ostraka.core.mechanisms.sums import GaussianSums, OneHotGaussian, OneHotLaplace
from ostraka.core.mechanisms.trials import BestTrial
from ostraka.core.mechanisms.wrapped import StagedResponse, Subsampled, Weighted


def advise(stage, answers):
    raise AssertionError("nobody asks a mechanism that was refused")


SUMS = GaussianSums(n_columns=1, sigma=4.0)
TABLE = {"sizes": (3, 2, 2), "select_epsilon": 0.5}
RIGHT = {
    GNMax: {"sigma": np.float32(1.0)},  # whose largest number is below the most noise there may be
    LNMax: {"scale": 1.0},
    Threshold: {"at": 1.0, "sigma": 1.0},
    NoisyCounts: {"sigma": 1.0},
    GaussianSums: {"n_columns": 2, "sigma": 1.0},
    SkellamMax: {"sigma": 3.0},
    RandomizedResponse: {"n_classes": 3, "epsilon": 1.0},
    OneHotLaplace: {"n_classes": 3, "scale": 1.0},
    OneHotGaussian: {"n_classes": 3, "sigma": 1.0},
    PriorResponse: {"prior": [[0.5, 0.5]], "epsilon": 1.0},
    StagedResponse: {"stage": [0, 1], "n_classes": 3, "epsilon": 1.0, "advise": advise},
    Subsampled: {"mechanism": GNMax(sigma=1.0), "sampling_rate": 0.5},
    Weighted: {"mechanism": GNMax(sigma=1.0), "weight": 2.0},
    SkellamSum: {"sigma": 1.0, "l1": 2.0, "l2": 1.5},
    Selection: {"epsilon": 1.0},
    TokenDraw: {"clip": 1.5, "n_documents": 3, "temperature": 0.8, "public": (-0.4, -1.8, -2.5, -3.0)},
    NoisyMarginals: {"sizes": (3, 2), "columns": ((0, 1),), "sigma": 1.0},
    TreeMarginals: {"target": 2, "sigma_pairs": 2.0, "sigma_triples": 3.0, **TABLE},
    AdaptiveMarginals: {"target": None, "sigma_first": 6.0, "sigma": 5.0, "n_pick": 2, **TABLE},
    BestTrial: {"settings": (SUMS,), "n_trials": 3.0},
}
REFUSED = [
    (GNMax, {"sigma": 1e200}, r"sigma must be at most 1e\+150 votes, got 1e\+200"),
    (LNMax, {"scale": 1e200}, r"scale must be at most 1e\+150 votes, got 1e\+200"),
    (Threshold, {"sigma": 1e200}, r"sigma must be at most 1e\+150 votes, got 1e\+200"),
    (Threshold, {"at": math.nan}, "at must be finite"),
    (Threshold, {"at": math.inf}, "at must be finite"),
    (Threshold, {"at": 10**400}, "at must be finite"),
    (Threshold, {"noise": "max"}, "noise must be one of largest, every, got 'max'"),
    *((NoisyCounts, {"sigma": sigma}, "sigma must") for sigma in (0.0, 2e5)),
    (NoisyCounts, {"l2": 0.5}, "l2 must be"),
    (NoisyCounts, {"relation": "other"}, "relation must be"),
    *((GaussianSums, {"sigma": sigma}, "sigma must be") for sigma in (1e-4, 1e10, math.nan)),
    (GaussianSums, {"n_columns": 0}, "n_columns must be"),
    *((SkellamMax, {"sigma": s}, "sigma must") for s in (0.0, -1.0, math.nan, math.inf, 10_001.0, "2")),
    (SkellamMax, {"reveals": "all"}, "reveals"),
    (SkellamMax, {"reveals": "argmax", "changed": 3}, "changed"),
    (SkellamMax, {"reveals": "argmax", "sigma": 1001.0}, "sigma"),
    *(
        (PriorResponse, {"prior": prior}, "prior must")
        for prior in ([0.5, 0.5], [[1.0]], [[0.5, 0.6]], [[math.inf, 0.0]], [[[0.5, 0.5]]])
    ),
    *((StagedResponse, {"stage": stage}, "stage must be whole numbers") for stage in ([0.0, 1.0], [0, -1])),
    (StagedResponse, {"stage": [[0, 1]]}, r"got shape \(1, 2\)"),
    (StagedResponse, {"epsilon": 0.0}, "epsilon must be finite and > 0"),
    (StagedResponse, {"epsilon": 41.0}, "epsilon must be at most 40"),
    *(
        (kind, {"n_classes": wrong}, "n_classes must be an integer >= 2")
        for kind in (StagedResponse, RandomizedResponse, OneHotLaplace, OneHotGaussian)
        for wrong in (1, 0, -3, 2.0, True, None)
    ),
    (RandomizedResponse, {"n_classes": 2**53 + 1}, "n_classes must be at most"),
    *((Subsampled, {"sampling_rate": rate}, "sampling_rate") for rate in (0, -0.1, 1.5, math.nan, True)),
    *((Weighted, {"weight": weight}, "weight") for weight in (0, -1, math.nan, math.inf)),
    *((SkellamSum, {"sigma": sigma}, "must be") for sigma in (0.0, 8001.0)),
    *((SkellamSum, wrong, "must be") for wrong in ({"l1": 0.5}, {"l2": math.nan}, {"adds": 1})),
    (SkellamSum, {"l1": 2e9, "l2": 16385}, "must be"),
    *((Selection, {"epsilon": epsilon}, "epsilon must") for epsilon in (0.0, 41.0)),
    (Selection, {"sensitivity": 0}, "sensitivity must"),
    (Selection, {"relation": "x"}, "relation must"),
    (TokenDraw, {"clip": 0.0}, "clip must"),
    (TokenDraw, {"temperature": -1.0}, "temperature must"),
    (TokenDraw, {"n_documents": 0}, "n_documents must"),
    (TokenDraw, {"relation": "add-or-remove"}, "relation must"),
    (TokenDraw, {"steps": 2**20 + 1}, "steps must"),
    (TokenDraw, {"clip": 48.1}, "at most 40 nats"),  # of 40.1
    (TokenDraw, {"public": (0.0, math.nan)}, "public must"),
    (TokenDraw, {"public": (0.0, -9000.0), "clip": 1e-10}, "too small"),
    (NoisyMarginals, {"sizes": (10_000, 10_000)}, "take fewer codes"),
    *(
        (kind, wrong, words)
        for kind in (TreeMarginals, AdaptiveMarginals)
        for wrong, words in (
            ({"target": 7}, "target must be a column"),
            (
                {"sizes": (2,), "target": 0, **({} if kind is TreeMarginals else {"n_pick": 0})},
                "one column or",
            ),
            ({"select_epsilon": 0.0}, "epsilon must"),
            ({"grain": 0}, "grain must"),
        )
    ),
    (TreeMarginals, {"sigma_triples": math.nan}, "sigma_triples must"),
    (AdaptiveMarginals, {"sigma": math.nan}, "sigma must"),
    (AdaptiveMarginals, {"grain": 70_000}, "at most 65,535"),
    (AdaptiveMarginals, {"n_pick": 5}, "n_pick must be at most 4"),
    (AdaptiveMarginals, {"pull": 0.0}, "pull must"),
    (AdaptiveMarginals, {"batch": 0}, "batch must"),
    (BestTrial, {"settings": ()}, "settings must be a tuple"),
    (BestTrial, {"settings": (SUMS, GNMax(sigma=4.0))}, "settings must all hide the same change"),
    (BestTrial, {"settings": (Subsampled(mechanism=GNMax(sigma=4.0), sampling_rate=0.1),)}, "must not count"),
    (BestTrial, {"n_trials": 0.0}, "n_trials must be finite and > 0"),
    (BestTrial, {"n_trials": 1.0, "eta": 1.0}, "n_trials must be above 1"),
    (BestTrial, {"n_trials": 1e5}, "n_trials must be above 1 and at most 10000"),
    *((BestTrial, {"eta": eta}, "eta must be None, or > -1 and at most 100") for eta in (-1.0, math.nan)),
    (BestTrial, {"n_trials": 100.0, "eta": -0.999}, "n_trials=100.0 is out of reach of eta=-0.999"),
    (BestTrial, {"n_answers": 0}, "n_answers must be an integer"),
]


@pytest.mark.parametrize(("kind", "wrong", "words"), REFUSED, ids=str)
def test_a_parameter_out_of_range_is_refused_by_name_when_the_mechanism_is_made(kind, wrong, words):
    kind(**RIGHT[kind])
    with pytest.raises(ValueError, match=words):
        kind(**RIGHT[kind] | wrong)


@pytest.mark.parametrize("sigma", [5e-324, 1e-300, 1e-160])
@pytest.mark.parametrize("reveals", ["counts", "argmax"])
def test_skellam_noise_too_small_for_float64_is_refused_with_the_way_out(sigma, reveals):
    with pytest.raises(ValueError, match="sigma must be at least 1e-100"):
        SkellamMax(sigma=sigma, reveals=reveals).curve()


@pytest.mark.parametrize("mechanism", [GNMax(sigma=1e150), LNMax(scale=1e150), Threshold(at=3, sigma=1e150)])
def test_the_largest_noise_is_priced(mechanism):
    assert mechanism.curve().epsilon(delta=1e-5) < 1e-9
