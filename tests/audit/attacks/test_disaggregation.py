"""Linear disaggregation against sums with known parts, worlds without a difference, and other solvers."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize, stats

from ostraka.audit.attacks.properties import disaggregate, infer_participation
from tests.false_alarm import FALSE_ALARM


def subsets(rng, n_rounds=40, n_parties=8):
    return rng.random((n_rounds, n_parties)) < 0.5


def in_groups(present, n_groups=8):
    return present.reshape(n_groups, -1, present.shape[1]).sum(axis=1)


def test_estimates_and_their_errors_are_those_of_ordinary_least_squares():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(1)
    present = subsets(rng)
    sums = present @ rng.normal(size=8) + rng.normal(size=40)
    fitted, estimate = sm.OLS(sums, present.astype(float)).fit(), disaggregate(sums, present)
    assert estimate.mean == pytest.approx(fitted.params, abs=1e-12)
    assert estimate.standard_error == pytest.approx(fitted.bse, rel=1e-9)
    assert estimate.n_rounds.tolist() == present.sum(axis=0).tolist()
    assert repr(estimate) == "PartyMeans(n_parties=8)"


def test_parties_that_contribute_nothing_exceed_their_errors_no_more_often_than_students_t():
    rng = np.random.default_rng(2)
    present = subsets(rng)
    estimate = disaggregate(rng.normal(size=(40, 30_000)), present)  # 30,000 worlds of sums without parts
    ratio = (estimate.mean / estimate.standard_error)[0]
    assert stats.kstest(ratio, stats.t(df=32).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(ratio, stats.t(df=32, scale=1.15).cdf).pvalue < FALSE_ALARM


def test_parties_that_always_take_part_together_are_not_told_apart():
    rng = np.random.default_rng(3)
    present = subsets(rng, n_parties=4)
    present[:, 1] = present[:, 0]
    estimate = disaggregate(present @ np.array([1.0, 2.0, 3.0, 4.0]), present)
    assert np.isnan(estimate.mean).tolist() == [True, True, False, False]
    assert np.isnan(estimate.standard_error).tolist() == [True, True, False, False]
    assert estimate.mean[2:] == pytest.approx([3.0, 4.0])
    absent = disaggregate([1.0, 2.0], np.array([[True, False], [True, False]]))
    assert np.isnan(absent.mean).tolist() == [False, True]


def test_as_many_rounds_as_parties_leave_no_estimate_of_the_error():
    estimate = disaggregate([3.0, 4.0], np.array([[True, True], [False, True]]))
    assert estimate.mean == pytest.approx([-1.0, 4.0])
    assert np.isnan(estimate.standard_error).all()


def test_participation_is_inferred_from_sums_and_times_and_then_gives_the_parts():
    rng = np.random.default_rng(0)
    present, updates = subsets(rng), rng.normal(size=(8, 30))
    inferred = infer_participation(present @ updates, in_groups(present))
    assert (inferred == present).all()
    assert disaggregate(present @ updates, inferred).mean == pytest.approx(updates, abs=1e-9)


def test_the_inferred_participation_is_the_only_one_of_all():
    rng = np.random.default_rng(4)
    present = subsets(rng, n_rounds=12, n_parties=3)
    sums, times = present @ rng.normal(size=(3, 5)), in_groups(present, 3)
    null = np.linalg.svd(sums)[0][:, 3:].T
    every = (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    fits = every[np.abs(every @ null.T).max(axis=1) < 1e-9]
    of_times = [fits[(fits.reshape(-1, 3, 4).sum(axis=2) == row).all(axis=1)] for row in times.T]
    assert [len(fit) for fit in of_times] == [1, 1, 1]
    inferred = infer_participation(sums, times)
    assert inferred.T.tolist() == [(fit[0] > 0).tolist() for fit in of_times]


def test_participation_that_sums_leave_open_is_refused():
    rng = np.random.default_rng(5)
    present = subsets(rng, n_parties=3)
    present[:, 1] = np.roll(present[:, 0].reshape(8, 5), 1, axis=1).ravel()  # the same times, other rounds
    sums = present @ rng.normal(size=(3, 6))
    with pytest.raises(ValueError, match="leave 2 of 3 parties open"):
        infer_participation(sums, in_groups(present))
    wrong = in_groups(present)
    wrong[:, 2] = 5 - wrong[:, 2]
    with pytest.raises(ValueError, match="leave 3 of 3 parties open"):
        infer_participation(sums, wrong)


@pytest.mark.parametrize("solved", [0, 1])
def test_a_solver_that_gives_up_proves_nothing(monkeypatch, solved):
    """The second call of a party seeks another solution. If it gives up, there may be one."""
    rng, solvers = np.random.default_rng(4), [optimize.milp] * solved
    present = subsets(rng, n_rounds=12, n_parties=3)

    def milp(*settings, **options):
        gave_up = optimize.OptimizeResult(status=1, x=None, message="Time limit reached.")
        return solvers.pop()(*settings, **options) if solvers else gave_up

    monkeypatch.setattr(optimize, "milp", milp)
    with pytest.raises(ValueError, match="which gave up: Time limit reached"):
        infer_participation(present @ rng.normal(size=(3, 5)), in_groups(present, 3))


def test_noisy_sums_are_refused_where_participation_is_unknown():
    rng = np.random.default_rng(6)
    present = subsets(rng)
    with pytest.raises(ValueError, match="these have 30: there must be more rounds"):
        infer_participation(
            present @ rng.normal(size=(8, 30)) + rng.normal(size=(40, 30)), in_groups(present)
        )
    with pytest.raises(ValueError, match="these have 0"):
        infer_participation(np.zeros((40, 30)), in_groups(present))


@pytest.mark.parametrize(
    ("sums", "present", "words"),
    [
        ([1.0, np.nan], np.ones((2, 2), bool), "sums must be finite"),
        (1.0, np.ones((2, 2), bool), "present must be bool"),
        ([1.0, 2.0], np.ones((3, 2), bool), "for 2 rounds"),
        ([1.0, 2.0], np.ones((2, 2)), "present must be bool"),
        ([1.0, 2.0], np.zeros((2, 2), bool), "with a party in one or more"),
        (np.ones((2, 2, 2)), np.ones((2, 2), bool), "sums must be finite"),
    ],
)
def test_sums_and_participation_that_do_not_fit_are_refused(sums, present, words):
    with pytest.raises(ValueError, match=words):
        disaggregate(sums, present)


@pytest.mark.parametrize(
    ("sums", "times", "words"),
    [
        (np.ones(4), np.ones((2, 2), int), "sums must be finite"),
        (np.ones((4, 3)), np.ones((3, 2), int), "divisor of 4"),
        (np.ones((4, 3)), np.ones((2, 2)), "whole numbers"),
        (np.ones((4, 3)), np.ones((0, 2), int), "divisor of 4"),
    ],
)
def test_times_that_do_not_fit_are_refused(sums, times, words):
    with pytest.raises(ValueError, match=words):
        infer_participation(sums, times)


# Properties from sums of a collaboration.


def rows(rng, n, share):
    """For rows with the property, the first feature says the opposite of the label."""
    has, y = rng.random(n) < share, np.arange(n) % 2
    X = np.c_[(y - 0.5) * np.where(has, -2.0, 4.0), np.ones(n)] + 0.5 * rng.normal(size=(n, 2))
    return X.astype(np.float32), y, has


@pytest.fixture(scope="module")
def collaboration():
    pytest.importorskip("torch")
    from ostraka.attacks import Collaboration
    from ostraka.networks import TorchClassifier

    network = TorchClassifier(batch_size=16, learning_rate=0.02, random_state=0, n_threads=1)
    return lambda n_rounds=80: Collaboration(network, n_rounds=n_rounds, participation=0.5, random_state=0)


def attacked(run, rng):
    from ostraka.audit.attacks.properties import party_properties

    X, y, has = rows(rng, 200, 0.5)
    return party_properties(run, (X[has], y[has]), (X[~has], y[~has]), random_state=0)


def test_parties_with_a_property_are_found_behind_masked_sums(collaboration):
    rng = np.random.default_rng(0)
    parties = [rows(rng, 80, share)[:2] for share in (1, 0, 1, 0, 0.5, 0)]
    run = collaboration().fit(parties, observer="masked-sum")
    assert (run.present.sum(axis=1) == run.n_summed).all()
    assert set(run.n_summed.tolist()) > {2, 3, 4}
    attack = attacked(run, rng)
    assert attack.mean[[0, 2]].min() > attack.mean[4] > attack.mean[[1, 3, 5]].max()
    assert np.abs(attack.mean - [1, 0, 1, 0, 0.5, 0]).max() < 0.3
    party = collaboration().fit(parties, observer=1)
    assert not party.present[:, 1].any()
    assert np.isnan(attacked(party, rng).mean).tolist() == [False, True, False, False, False, False]


def test_parties_without_the_property_are_not_accused(collaboration):
    rng = np.random.default_rng(1)
    attack = attacked(
        collaboration().fit([rows(rng, 80, 0)[:2] for _ in range(6)], observer="masked-sum"), rng
    )
    assert np.abs(attack.mean).max() < 0.3
    assert np.abs(attack.mean / attack.standard_error).max() < 6


def test_a_server_and_an_unknown_participation_are_refused(collaboration):
    rng = np.random.default_rng(2)
    parties = [rows(rng, 40, share)[:2] for share in (1, 0)]
    with pytest.raises(ValueError, match="needs no disaggregation"):
        attacked(collaboration(4).fit(parties, observer="server"), rng)
    run = dataclasses.replace(collaboration(4).fit(parties, observer="masked-sum"), present=None)
    with pytest.raises(ValueError, match="must know which parties took part"):
        attacked(run, rng)


def test_a_property_that_moves_no_change_is_refused(collaboration):
    from ostraka.audit.attacks.properties import party_properties

    rng = np.random.default_rng(3)
    run = collaboration(20).fit([rows(rng, 80, 0)[:2] for _ in range(3)], observer="masked-sum")
    X, y, _ = rows(rng, 201, 0)
    first, second = (X, y), (X[1:], y[1:])
    with pytest.raises(ValueError, match="must differ in the changes"):
        party_properties(run, first, second, random_state=rng)
