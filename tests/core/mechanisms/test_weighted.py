"""Ballots of any weight: a change of units, and nothing else."""

import numpy as np
import pytest

from ostraka import GNMax, LNMax, Threshold
from ostraka.core.curve import ORDERS
from ostraka.core.mechanisms.wrapped import Weighted

MECHANISMS = [GNMax(sigma=6.0), LNMax(scale=5.0), Threshold(at=30, sigma=8.0, noise="every")]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)


@every_mechanism
@pytest.mark.parametrize("weight", [0.25, 1.0, 3.0])
def test_a_moved_weight_costs_at_most_the_curve(mechanism, weight):
    bound = np.array(Weighted(mechanism=mechanism, weight=weight).curve().rdp)
    orders = np.array(ORDERS[:-1])
    for votes in ([30, 29, 0], [33.5, 33, 20], [12, 11, 11]):
        here = mechanism.log_outcomes([votes])[0]
        there = mechanism.log_outcomes([np.add(votes, [-weight, weight, 0])])[0]
        for p, q in ((here, there), (there, here)):
            moments = np.logaddexp.reduce(orders[:, None] * p + (1 - orders[:, None]) * q, axis=1)
            assert (moments / (orders - 1) <= bound[:-1] * (1 + 1e-8)).all()


@every_mechanism
def test_a_change_of_units_changes_no_outcome(mechanism):
    heavy = Weighted(mechanism=mechanism, weight=4.0)
    votes = np.array([[40.0, 24.0, 8.0], [28.0, 28.0, 16.0]])
    np.testing.assert_allclose(
        heavy.per_ballot.log_outcomes(heavy.scaled(votes)), mechanism.log_outcomes(votes), rtol=0, atol=1e-9
    )
