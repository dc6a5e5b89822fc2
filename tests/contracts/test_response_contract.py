"""What every mechanism on labels owes: one price for all rows, noise from ``rng`` alone, and Bayes' rule.

A new mechanism is one more line in RESPONSES.
"""

import itertools
import math
from dataclasses import fields, replace

import numpy as np
import pytest

from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.ledger import LedgerError
from ostraka.mechanisms import GNMax, OneHotLaplace, PriorResponse
from tests.contracts.test_mechanism_contract import LABELS, RESPONSES

SPREAD = [0.4, 0.35, 0.25]
N = len(LABELS)

every_response = pytest.mark.parametrize("mechanism", RESPONSES, ids=lambda m: type(m).__name__)


def private(labels=LABELS, **changes):
    return Private(labels, replace(Adjacency.one_label(), **changes))


def rng(seed=0):
    return np.random.default_rng(seed)


@every_response
class TestEveryResponse:
    def test_all_rows_are_one_use_and_no_rows_are_none(self, mechanism):
        assert mechanism.uses(private()) == 1
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            release(mechanism, private(), ledger=ledger)
            once = mechanism.curve()
            assert ledger.spent().rdp == pytest.approx(once.rdp, rel=1e-9, abs=1e-15)
            assert ledger.unit == "label"
        empty = (
            replace(mechanism, prior=np.empty((0, 3))) if isinstance(mechanism, PriorResponse) else mechanism
        )
        nothing = private(np.empty(0, dtype=np.int64))
        assert empty.uses(nothing) == 0
        answers = empty.release(nothing, rng=rng())
        assert len(answers) == 0
        assert empty.posterior(answers, SPREAD).shape == (0, 3)

    def test_what_is_drawn_does_not_depend_on_the_labels(self, mechanism):
        """Whatever the labels, the generator is left in the same state: nothing shows in what comes next."""
        after = []
        for labels in (LABELS, (LABELS + 1) % 3, np.zeros(N, dtype=int)):
            source = rng(5)
            mechanism.release(private(labels), rng=source)
            after.append(source.integers(2**60))
        assert len(set(after)) == 1

    def test_every_row_has_noise_of_its_own(self, mechanism):
        answers = mechanism.release(private(np.zeros(N, dtype=int)), rng=rng(9))
        assert len(np.unique(answers, axis=0)) > 1

    @pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint64])
    def test_labels_of_any_whole_type_are_labels_and_are_not_touched(self, mechanism, dtype):
        labels = private(LABELS.astype(dtype))
        np.testing.assert_array_equal(
            mechanism.release(labels, rng=rng(3)), mechanism.release(private(), rng=rng(3))
        )
        np.testing.assert_array_equal(labels.open(), LABELS)

    def test_ballots_and_labels_do_not_share_a_ledger(self, mechanism):
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            release(GNMax(sigma=9.0), Private([[9, 1]], Adjacency.one_ballot(unit="label")), ledger=ledger)
            with pytest.raises(LedgerError):
                release(mechanism, private(), ledger=ledger)

    def test_what_is_no_class_is_refused_unseen_and_before_anything_is_charged(self, mechanism):
        wrong = [[2] * (N - 1) + [last] for last in (7319, -7319)]
        wrong += [[label] * N for label in (0.5, 1.0, True, "7319", SPREAD, [0, 1, 0])]
        with Ledger(":memory:", budget=Budget(epsilon=1e3, delta=1e-5, adaptive=False)) as ledger:
            for labels in wrong:
                with pytest.raises(ValueError, match="labels must be") as caught:
                    release(mechanism, private(labels), ledger=ledger)
                assert "7319" not in str(caught.value)
            assert ledger.count() == 0

    def test_posteriors_are_probabilities_by_bayes_rule(self, mechanism):
        answers = mechanism.release(private(), rng=rng(2))
        prior = rng(4).dirichlet([1.0] * 3, size=N)
        after = mechanism.posterior(answers, prior)
        joint = prior * np.exp(mechanism.log_likelihood(answers))
        np.testing.assert_allclose(after, joint / joint.sum(axis=1, keepdims=True), rtol=1e-12)
        np.testing.assert_allclose(after.sum(axis=1), 1, rtol=1e-12)
        shared, per_row = (mechanism.posterior(answers, p) for p in (SPREAD, [SPREAD] * N))
        np.testing.assert_array_equal(shared, per_row)

    def test_a_class_the_prior_rules_out_stays_out_and_a_sure_prior_stays_sure(self, mechanism):
        answers = mechanism.release(private(), rng=rng(2))
        assert (mechanism.posterior(answers, [0.5, 0.5, 0.0])[:, 2] == 0).all()
        np.testing.assert_array_equal(mechanism.posterior(answers, [0.0, 1.0, 0.0]), [[0.0, 1.0, 0.0]] * N)
        tiny = mechanism.posterior(answers, [1e-300, 1.0, 1e-300])
        assert np.isfinite(tiny).all()

    @pytest.mark.statistical
    def test_posteriors_are_right_as_often_as_they_say(self, mechanism):
        """Labels are drawn from the prior: calibration within eight standard errors (chance below 1e-14)."""
        n = 60_000
        truth = rng(11).choice(3, size=n, p=SPREAD)
        many = replace(mechanism, prior=[SPREAD] * n) if isinstance(mechanism, PriorResponse) else mechanism
        after = many.posterior(many.release(private(truth), rng=rng(12)), SPREAD)
        for label in range(3):
            sure = after[:, label] > np.median(after[:, label]) - 1e-12
            error = (truth[sure] == label).mean() - after[sure, label].mean()
            assert abs(error) < 8 * 0.5 / math.sqrt(sure.sum())
        assert after[np.arange(n), truth].mean() > np.square(SPREAD).sum() + 0.01

    @pytest.mark.parametrize(
        "prior",
        [[0.5, 0.5], [[0.2, 0.3, 0.5]] * 2, [0.2, 0.2, 0.2], [-0.5, 0.5, 1.0], [math.nan, 0.5, 0.5], 1.0],
        ids=str,
    )
    def test_what_is_no_prior_is_refused(self, mechanism, prior):
        answers = mechanism.release(private(), rng=rng(2))
        with pytest.raises(ValueError, match="prior must"):
            mechanism.posterior(answers, prior)

    def test_what_is_no_answer_is_refused(self, mechanism):
        for wrong in ([[[0.0]]], [0.5] * N, [[0.5, 0.5]] * N, [3] * N, [-1] * N, [[math.nan] * 3] * N):
            with pytest.raises(ValueError, match="answers must"):
                mechanism.log_likelihood(wrong)

    @pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, "1", True, None, 1e5], ids=repr)
    def test_noise_that_is_no_noise_is_refused_by_name(self, mechanism, wrong):
        [name] = {field.name for field in fields(mechanism)} & {"epsilon", "scale", "sigma"}
        with pytest.raises(ValueError, match=f"{name} must be"):
            replace(mechanism, **{name: wrong})

    def test_less_noise_never_costs_less(self, mechanism):
        [name] = {field.name for field in fields(mechanism)} & {"epsilon", "scale", "sigma"}
        factor = 0.99 if name == "epsilon" else 1.01
        less = replace(mechanism, **{name: factor * getattr(mechanism, name)})
        for small, large in zip(less.curve().rdp, mechanism.curve().rdp, strict=True):
            assert small < large or small == large == math.inf
        assert less.delta(0.1) < mechanism.delta(0.1)

    def test_delta_falls_from_total_variation_to_nothing_and_is_within_the_curve(self, mechanism):
        grid = [0.0, 0.05, 0.2, 0.5]
        deltas = [mechanism.delta(epsilon) for epsilon in grid]
        assert all(a > b > 0 for a, b in itertools.pairwise(deltas))
        assert all(
            d <= mechanism.curve().delta(e) * (1 + 1e-12) + 1e-11 for d, e in zip(deltas, grid, strict=True)
        )
        with pytest.raises(ValueError, match="epsilon must"):
            mechanism.delta(-0.1)


@pytest.mark.parametrize("mechanism", RESPONSES[:3], ids=lambda m: type(m).__name__)
def test_pure_privacy_stays_pure_and_fits_a_budget_of_just_this_epsilon(mechanism):
    assert mechanism.curve().slack == 0
    epsilon = 2 / 3 if isinstance(mechanism, OneHotLaplace) else 0.7
    assert mechanism.curve().rdp[-1] == epsilon
    assert mechanism.delta(epsilon) == 0
    for round_epsilon in (0.5, 1.0, 2.0, 8.0):
        name, value = ("scale", 2 / round_epsilon) if epsilon != 0.7 else ("epsilon", round_epsilon)
        with Ledger(":memory:", budget=Budget(epsilon=round_epsilon, delta=1e-12, adaptive=False)) as ledger:
            release(replace(mechanism, **{name: value}), private(), ledger=ledger)
