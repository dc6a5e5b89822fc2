"""Asymptotic methods: near the truth for many trials, and outside every finding."""

import numpy as np
import pytest

from ostraka import GNMax
from ostraka.audit.cuts import renyi_estimate
from ostraka.audits import audit_mechanism
from tests.audit.games import larger

ORDERS = (2.0, 8.0, 32.0)
METHODS = ["k-cut-goodman", "k-cut-sison-glaz", "2-cut-bootstrap", "k-cut-bootstrap"]
VOTES = [14, 12, 10, 8, 6], [13, 13, 10, 8, 6]
PAIR = np.exp(GNMax(sigma=2.0).log_outcomes(VOTES))


@pytest.mark.parametrize("method", METHODS)
def test_an_estimate_from_many_trials_is_near_the_truth(method):
    truth = [larger(*PAIR, order) for order in ORDERS]
    counts = [np.round(1e7 * law).astype(int) for law in PAIR]
    estimate = renyi_estimate(*counts, orders=ORDERS, method=method, rng=np.random.default_rng(3))
    np.testing.assert_allclose(estimate, truth, rtol=0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"method": "k-cut-bootstrap"}, "rng"), ({"method": "k-cut"}, "method"), ({"level": 1.0}, "level")],
)
def test_what_makes_no_sense_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        renyi_estimate([5, 5], [5, 5], **{"method": "k-cut-goodman", **settings})
    for method in METHODS:  # no finding can be made from an estimate
        with pytest.raises(ValueError, match="method must be one of"):
            audit_mechanism(GNMax(sigma=2.0), *VOTES, trials=1000, method=method)
