"""Budgets of generators: how a price is divided among tables, choices, clusters and training, by numbers.

The records of releases hold these values in this form.
"""

import re

import pytest

from ostraka.synth import DPGM, Schema, SequenceGenerator
from ostraka.synth.tables import adaptive, calibrated

SCHEMA = Schema.from_dict({"a": {"categories": ["x", "y"]}, "b": {"edges": [0, 1, 2, 3]}})
MANY = (2,) * 13


def spelled(mechanism):
    """Its repr, with five digits of each number, and sizes that are alike by their number."""
    text = re.sub(r"\d+\.\d+(e-?\d+)?", lambda match: f"{float(match[0]):.5g}", repr(mechanism))
    return re.sub(r"\(2(, 2){9,}\)", lambda match: f"{match[0].count('2')} × 2", text)


RULES = {
    "two columns": (
        lambda: adaptive((3, 4), None, 1.0, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=(3, 4), target=None, sigma_first=16.841, sigma=4.2102, "
            "select_epsilon=0.16795, n_pick=1, batch=5, pull=0.029969, steps=15, grain=1)"
        ),
    ),
    "a target at a small price": (
        lambda: adaptive((3, 4), 1, 0.3, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=(3, 4), target=1, sigma_first=11.242, sigma=35.55, "
            "select_epsilon=0.056259, n_pick=0, batch=5, pull=0.0099487, steps=15, grain=1)"
        ),
    ),
    "thirteen columns": (
        lambda: adaptive(MANY, None, 1.0, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=13 × 2, target=None, sigma_first=42.585, sigma=22.872, "
            "select_epsilon=0.030916, n_pick=30, batch=5, pull=0.029969, steps=15, grain=1)"
        ),
    ),
    "persons at a small price": (
        lambda: adaptive(MANY, 0, 0.1, 1e-5, 120),
        (
            "AdaptiveMarginals(sizes=13 × 2, target=0, sigma_first=18135, sigma=16555, "
            "select_epsilon=0.0072486, n_pick=8, batch=5, pull=0.0036359, steps=15, grain=120)"
        ),
    ),
    "forty columns at a high price": (
        lambda: adaptive((2,) * 40, 3, 8.0, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=40 × 2, target=None, sigma_first=12.014, sigma=8.4151, "
            "select_epsilon=0.084028, n_pick=157, batch=20, pull=0.03, steps=25, grain=1)"
        ),
    ),
    "one column": (
        lambda: adaptive((5,), None, 1.0, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=(5,), target=None, sigma_first=3.7418, sigma=11.833, "
            "select_epsilon=0.16902, n_pick=0, batch=5, pull=0.029969, steps=15, grain=1)"
        ),
    ),
    "little above the usual": (
        lambda: adaptive(MANY, 0, 1.8, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=13 × 2, target=None, sigma_first=25.01, sigma=15.704, "
            "select_epsilon=0.045028, n_pick=41, batch=6, pull=0.03, steps=25, grain=1)"
        ),
    ),
    "much": (
        lambda: adaptive(MANY, 0, 2.5, 1e-5, 1),
        (
            "AdaptiveMarginals(sizes=13 × 2, target=None, sigma_first=18.648, sigma=12.8, "
            "select_epsilon=0.055243, n_pick=49, batch=7, pull=0.03, steps=25, grain=1)"
        ),
    ),
    "a forest": (
        lambda: calibrated((3, 4), None, 1.0, 1e-5, 1),
        (
            "TreeMarginals(sizes=(3, 4), target=None, sigma_pairs=7.5234, sigma_triples=5.9478, "
            "select_epsilon=0.16813, grain=1)"
        ),
    ),
    "a forest with a target": (
        lambda: calibrated((3, 4, 2), 1, 0.3, 1e-5, 1),
        (
            "TreeMarginals(sizes=(3, 4, 2), target=1, sigma_pairs=22.679, sigma_triples=17.929, "
            "select_epsilon=0.055775, grain=1)"
        ),
    ),
    "a forest at a high price": (
        lambda: calibrated(MANY, 0, 100.0, 1e-5, 120),
        (
            "TreeMarginals(sizes=13 × 2, target=0, sigma_pairs=126.37, sigma_triples=135.27, "
            "select_epsilon=0.88713, grain=120)"
        ),
    ),
    "rows in order": (
        lambda: SequenceGenerator(SCHEMA, longest=5, constant=("b",), epsilon=2.0).mechanism(),
        (
            "SequenceMarginals(first=AdaptiveMarginals(sizes=(2, 3, 5), target=None, sigma_first=17.495, "
            "sigma=7.1423, select_epsilon=0.099002, n_pick=4, batch=5, pull=0.03, steps=15, grain=1), "
            "following=AdaptiveMarginals(sizes=(2, 3, 2, 4), target=None, sigma_first=1979.3, "
            "sigma=1106.5, select_epsilon=0.076687, n_pick=10, batch=5, pull=0.03, steps=15, grain=120), "
            "constant=(1,))"
        ),
    ),
    "Gaussians": (
        lambda: DPGM(3, generator="gaussian", epsilon=2.0).mechanism(n_features=4, n_classes=2),
        (
            "Spread(clusters=NoisyLloyd(n_features=4, n_clusters=3, n_iterations=4, sigma=7.422, "
            "sigma_start=10.819, sigma_norms=21.639, sigma_rows=3.4214, longest=2, n_classes=2, "
            "kernel='plain', n_components=200, gamma=1, seed=0, start='split'), sigma=2.5174, "
            "sigma_norms=10.973)"
        ),
    ),
    "networks": (
        lambda: DPGM(3, steps=10, clip_noise=7.0, epsilon=2.0).mechanism(n_features=4, n_classes=1),
        (
            "Mixture(clusters=NoisyLloyd(n_features=4, n_clusters=3, n_iterations=4, sigma=5.0053, "
            "sigma_start=7.2964, sigma_norms=14.593, sigma_rows=2.3073, longest=2, n_classes=1, "
            "kernel='plain', n_components=200, gamma=1, seed=0, start='split'), "
            "training=PrivateSGD(network=VAE(n_features=4, hidden=(50,), latent=4), n_columns=8, steps=10, "
            "sampling_rate=0.01, sigma=0.69923, clip=5, expected_rows=(1, 1, 1), sigma_norms=7, "
            "learning_rate=0.001, seed=0))"
        ),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_budget_is_divided_as_ever(name):
    made, text = RULES[name]
    assert spelled(made()) == text
