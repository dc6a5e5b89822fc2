"""Lower bounds from counts: what chooses the cut, how near the truth they come, and what is refused."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest

from ostraka import GNMax
from ostraka.audit.cuts import Sets
from ostraka.audits import epsilon_lower_bound, hold_out, renyi_lower_bound
from tests.audit.games import divergence

ORDERS = (2.0, 8.0, 32.0)
METHODS = ["2-cut", "2-cut-anytime", "k-cut"]
PAIR = np.exp(GNMax(sigma=2.0).log_outcomes([[14, 12, 10, 8, 6], [13, 13, 10, 8, 6]]))


def exact(p, q, orders=ORDERS):
    return np.array([divergence(p, q, order) for order in orders])


def ideal(n):
    """What n trials would give without chance."""
    return [np.round(n * law).astype(int) for law in PAIR]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_below_the_truth_and_near_it(method):
    lower = renyi_lower_bound(*ideal(10**7), orders=ORDERS, method=method)
    for got, want in ((lower.forward, exact(*PAIR)), (lower.reverse, exact(*PAIR[::-1]))):
        assert (np.array(got) <= want).all()
    part = np.array(lower.rdp) / np.maximum(exact(*PAIR), exact(*PAIR[::-1]))
    assert (part > (0.95 if method.startswith("2") else 0.99)).all()


def test_more_trials_certify_more_and_equal_worlds_nothing():
    sparse, many = (renyi_lower_bound(*ideal(n), orders=ORDERS) for n in (10**4, 10**6))
    assert np.all(np.array(sparse.rdp) < many.rdp)
    for method in METHODS:
        none = renyi_lower_bound([500, 300, 200], [500, 300, 200], orders=ORDERS, method=method)
        assert none.rdp == (0.0,) * 3


def test_the_best_of_all_subsets_is_found():
    lower = renyi_lower_bound(*ideal(10**9), orders=ORDERS)
    for order, cut in zip(ORDERS, lower.cuts, strict=True):
        best, value = None, 0
        for chosen in product([False, True], repeat=5):
            p, q = (law[list(chosen)].sum() for law in PAIR)
            if 0 < sum(chosen) < 5:
                for a, b in ((p, q), (q, p)):
                    d = exact(np.array([a, 1 - a]), np.array([b, 1 - b]), (order,))[0]
                    best, value = (chosen, d) if d > value else (best, value)
        mine = tuple(np.flatnonzero(best).tolist())
        assert cut in {mine, tuple(sorted(set(range(5)) - set(mine)))}


def test_splitting_the_rest_as_the_paper_does_certifies_less():
    # Chadha et al., appendix B: (1 - p_high)^a (1 - q_low)^(1 - a) for the rest of the outcomes
    from ostraka.core.numeric import clopper_pearson

    hits, n = (700, 400), 1000
    low, high = clopper_pearson(hits, n, error=0.0125)
    paper = np.array(
        [
            np.log(low[0] ** a * high[1] ** (1 - a) + (1 - high[0]) ** a * (1 - low[1]) ** (1 - a)) / (a - 1)
            for a in ORDERS
        ]
    )
    ours = renyi_lower_bound([700, 300], [400, 600], orders=ORDERS)
    assert (np.array(ours.forward) >= paper * (1 - 1e-9)).all()
    assert ours.forward[0] > 1.5 * paper[0]


@pytest.mark.parametrize("n_outcomes", [5, 40])
def test_a_pilot_chooses_and_the_rest_proves(n_outcomes):
    rng = np.random.default_rng(5)
    q = np.full(n_outcomes, 1 / n_outcomes)
    p = q * np.where(np.arange(n_outcomes) % 2, 1.5, 0.5)
    p /= p.sum()
    counts = [rng.multinomial(200_000, law) for law in (p, q)]
    pilot, proof = hold_out(*counts, rng=rng)
    lower = renyi_lower_bound(*proof, orders=(2.0,), pilot=pilot)
    odd = tuple(range(1, n_outcomes, 2))
    assert lower.cuts == (odd,) or lower.cuts == (tuple(range(0, n_outcomes, 2)),)
    assert 0.9 * exact(p, q, (2.0,))[0] < lower.forward[0] <= exact(p, q, (2.0,))[0]
    assert lower.trials == (180_000, 180_000)


def test_a_pilot_chooses_by_the_interval_that_the_bound_uses():
    """True epsilon 0.748; chosen by one standard error, 3 % of these runs certified nothing at all."""
    rng, bounds = np.random.default_rng(1), []
    for _ in range(100):
        pilot, proof = hold_out(*(rng.multinomial(100_000, law) for law in PAIR), rng=rng)
        bounds.append(epsilon_lower_bound(*proof, delta=0.0, pilot=pilot).epsilon)
    assert np.mean(bounds) > 0.725
    assert min(bounds) > 0.6


def test_a_pilot_that_saw_nothing_proves_nothing_false():
    # the pilot names a wrong set: the bound is small, not wrong
    wrong = renyi_lower_bound(
        *ideal(10**6), orders=ORDERS, pilot=([10, 10, 50, 10, 10], [10, 10, 10, 10, 10])
    )
    assert np.all(np.array(wrong.rdp) < 0.1 * exact(*PAIR[::-1]))


def test_holding_out_takes_a_tenth_at_random():
    counts = np.array([40_000, 60_000]), np.array([30_000, 70_000])
    pilot, proof = hold_out(*counts, rng=np.random.default_rng(2))
    for total, a, b in zip(counts, pilot, proof, strict=True):
        np.testing.assert_array_equal(a + b, total)
        assert a.sum() == 10_000
        # false alarm 1e-9
        assert binomtest(int(a[0]), 10_000, total[0] / 100_000).pvalue > 1e-9


def test_scores_in_order_are_cut_by_thresholds():
    members, others = np.arange(1, 51), np.arange(50, 0, -1)
    lower = renyi_lower_bound(members * 40, others * 40, orders=(2.0,), ordered=True)
    cut = lower.cuts[0]
    assert cut in {tuple(range(len(cut))), tuple(range(50 - len(cut), 50))}
    assert lower.rdp[0] > 0.2


@pytest.mark.parametrize(
    ("p", "q", "settings", "words"),
    [
        ([1, 2], [1, 2, 3], {}, "same outcomes"),
        ([-1, 2], [1, 2], {}, "integers >= 0"),
        ([0.5, 2], [1, 2], {}, "integers >= 0"),
        ([0, 0], [1, 2], {}, "integers >= 0"),
        ([np.inf, 1.0], [1, 2], {}, "integers >= 0"),
        ([1, 2], np.array([2**63, 2**63], dtype=np.uint64), {}, "integers >= 0"),
        (["9", "1"], [1, 2], {}, "integers >= 0"),
        ([3], [3], {}, "two or more outcomes"),
        ([1] * 13, [1] * 13, {}, "hold_out"),
        ([1, 2], [1, 2], {"orders": (1.0,)}, "above 1"),
        ([1, 2], [1, 2], {"orders": ()}, "above 1"),
        ([1, 2], [1, 2], {"orders": (float("nan"),)}, "above 1"),
        ([1, 2], [1, 2], {"confidence": 1.0}, "confidence"),
        ([1, 2], [1, 2], {"method": "3-cut"}, "method must be one of"),
        ([1, 2], [1, 2], {"method": "k-cut-bootstrap"}, "method must be one of"),
        ([1, 2], [1, 2], {"pilot": ([1, 2, 3], [1, 2, 3])}, "same 2 outcomes"),
    ],
)
def test_what_makes_no_sense_is_refused(p, q, settings, words):
    with pytest.raises(ValueError, match=words):
        renyi_lower_bound(p, q, **settings)
    with pytest.raises(ValueError, match="> 0 and < 1"):
        hold_out([5, 5], [5, 5], part=1.0, rng=np.random.default_rng(0))


def test_a_record_is_plain():
    record = renyi_lower_bound([900, 100], [500, 500], orders=(2.0, float("inf"))).to_dict()
    assert record["orders"] == [2.0, "inf"]
    assert record["trials"] == [1000, 1000]


def test_thresholds_are_all_there_are_or_a_thousand_where_the_weight_is():
    few = Sets.thresholds(np.arange(10), np.geomspace(1, 1e-9, 10))
    assert few.ends.tolist() == list(range(1, 10))
    weights = np.ones(20_000)
    weights[-2000:] = 1000.0
    ends = Sets.thresholds(np.arange(20_000), weights).ends
    assert len(ends) <= 1000
    assert np.diff(np.cumsum(weights / weights.sum())[ends - 1]).max() < 0.002
