from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from ostraka import Adjacency, Curve, Private
from ostraka.audit.attacks.generators import marginal_scores, nearest_scores, sum_scores
from ostraka.audits import one_run_lower_bound
from ostraka.core.mechanisms.counts import TreeMarginals
from ostraka.mechanisms import GaussianSums
from ostraka.synth import PrivateKMeans

ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


def coins(n, seed):
    return np.random.default_rng(seed).random(n) < 0.5


def bound(noise_of_release, *, claimed=2.0, n=2000, seed=0):
    included = coins(n, seed)
    rows = np.eye(n, dtype=np.float32)[included]
    released = GaussianSums(n_columns=n, sigma=noise_of_release).release(
        Private(rows, ONE_ROW), rng=np.random.default_rng(100 + seed)
    )
    scores = sum_scores(released, np.eye(n), included)
    claim = Curve.gaussian(sensitivity=1.0, sigma=claimed)
    lower = one_run_lower_bound(scores, delta=1e-5, guesses=n // 8, curve=claim, rng=np.random.default_rng(1))
    return lower.epsilon, claim.epsilon(1e-5)


def test_the_white_box_finds_a_part_of_the_price_and_never_more_than_it():
    for seed in range(5):
        lower, price = bound(2.0, seed=seed)
        assert 0.2 * price < lower <= price


def test_the_white_box_catches_a_third_of_the_noise():
    lower, price = bound(2.0 / 3)
    assert lower > price


def test_a_null_world_shows_nothing():
    included, others = coins(2000, 0), coins(2000, 1)
    released = GaussianSums(n_columns=2000, sigma=2.0).release(
        Private(np.eye(2000)[others], ONE_ROW), rng=np.random.default_rng(2)
    )
    scores = sum_scores(released, np.eye(2000), included)
    assert one_run_lower_bound(scores, delta=1e-5, rng=np.random.default_rng(0)).epsilon == 0


def test_the_black_box_finds_rows_that_a_copy_repeats_and_not_those_of_noisy_clusters():
    rng = np.random.default_rng(0)
    canaries, included = rng.random((400, 5)), coins(400, 0)
    copied = nearest_scores(canaries[included], canaries, included)
    assert copied.auc() == 1.0
    assert one_run_lower_bound(copied, delta=1e-5, rng=rng).epsilon > 2
    model = PrivateKMeans(n_clusters=10, epsilon=1.0).fit(canaries[included], rng=rng)
    scores = nearest_scores(
        model.sample(400, random_state=0)[0], canaries, included, reference=rng.random((400, 5))
    )
    assert one_run_lower_bound(scores, delta=1e-5, rng=rng).epsilon <= 1.0


def test_nearest_distances_are_those_computed_one_by_one():
    rng = np.random.default_rng(0)
    rows, samples, included = rng.normal(size=(30, 4)), rng.normal(size=(50, 4)), coins(30, 0)
    distances = np.linalg.norm(rows[:, None] - samples, axis=2).min(axis=1)
    scores = nearest_scores(samples, rows, included)
    np.testing.assert_allclose(scores.values, np.sort(-distances), atol=1e-9)


@pytest.mark.parametrize(
    ("released", "canaries", "included", "words"),
    [
        ([1.0, 2.0], np.eye(3), [True, False, True], "finite sums of 3 columns"),
        (np.ones(3), np.full((3, 3), np.nan), [True, False, True], "canaries must be finite"),
        (np.ones(3), np.eye(3), [1, 0, 1], "included must be bool of shape"),
        (np.ones(3), np.eye(3), [True] * 3, "rows which are not"),
    ],
)
def test_other_shapes_are_refused(released, canaries, included, words):
    with pytest.raises(ValueError, match=words):
        sum_scores(released, canaries, np.array(included))
    assert words


def test_generated_rows_must_be_finite_rows_of_the_same_width():
    with pytest.raises(ValueError, match="generated must be finite rows of 3 columns"):
        nearest_scores(np.ones((2, 4)), np.eye(3), np.array([True, False, True]))


# --- tables ---


def tables(sigma, *, n=200, seed=0, real=True):
    """Noisy counts of a table in which each canary has a cell of its own, among 50 rows that are known."""
    mechanism = TreeMarginals(
        sizes=(n, n, n, 2), target=3, sigma_pairs=sigma, sigma_triples=sigma, select_epsilon=1.0
    )
    rng = np.random.default_rng(seed)
    canaries, included = np.array([[k, k, k, k % 2] for k in range(n)]), coins(n, seed)
    other_rows = np.column_stack([rng.integers(0, n, (50, 3)), rng.integers(0, 2, 50)])
    inside = canaries[included if real else coins(n, 77 + seed)]
    rows = np.concatenate([other_rows, inside])
    released = mechanism.release(
        Private(np.column_stack([rows, np.ones(len(rows), dtype=np.int64)]), ONE_ROW), rng=rng
    )
    return mechanism, released, canaries, included, other_rows


def test_the_scores_of_tables_are_those_of_one_gaussian_with_all_counts():
    """Three pairs and two triples with the noise of one: mu = sqrt(5) / sigma, so AUC = Phi(mu / sqrt(2))."""
    auc = []
    for seed in range(20):
        mechanism, released, canaries, included, other_rows = tables(4.0, seed=seed)
        assert len(released) == 5
        auc.append(marginal_scores(released, mechanism, canaries, included, rest=other_rows).auc())
    expected = float(norm.cdf(np.sqrt(5) / 4 / np.sqrt(2)))
    assert abs(np.mean(auc) - expected) < 6 * 0.3 / np.sqrt(20 * 200 / 4)


def test_the_audit_of_tables_keeps_the_price_of_the_counts_and_catches_a_third_of_the_noise():
    claim = Curve.gaussian(sensitivity=np.sqrt(5), sigma=4.0)
    for sigma, caught in ((4.0, False), (4.0 / 3, True)):
        pooled = [tables(sigma, seed=seed) for seed in range(5)]
        scores = [marginal_scores(b, a, *remainder[:2], rest=remainder[2]) for a, b, *remainder in pooled]
        lower = one_run_lower_bound(scores, delta=1e-5, curve=claim, independent=True, confidence=1 - 1e-9)
        assert (lower.epsilon > claim.epsilon(1e-5)) == caught
        assert lower.epsilon > 0


def test_a_null_world_of_tables_shows_nothing():
    scores = [marginal_scores(b, a, c, d, rest=e) for a, b, c, d, e in [tables(1.0, real=False)]]
    assert one_run_lower_bound(scores, delta=1e-5, independent=True, confidence=1 - 1e-9).epsilon == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"canaries": np.zeros((200, 4), dtype=int)}, "no cell of a released table in common"),
        ({"canaries": np.zeros((200, 3), dtype=int)}, "codes of 4 columns"),
        ({"canaries": np.full((200, 4), 900)}, "one less than the size"),
        ({"rest": np.full((2, 4), 0.5)}, "rest must be codes"),
    ],
)
def test_canaries_that_are_not_codes_are_refused(change, words):
    mechanism, released, canaries, included, other_rows = tables(1.0)
    arguments = {"canaries": canaries, "rest": other_rows} | change
    with pytest.raises(ValueError, match=words):
        marginal_scores(released, mechanism, arguments["canaries"], included, rest=arguments["rest"])


def test_tables_of_other_columns_are_refused():
    mechanism, released, canaries, included, _ = tables(1.0)
    for wrong in ({"0,3": released["0,3"].T}, {"0,3": released["0,3"][:-1]}):
        with pytest.raises(ValueError, match=r"a table of shape \(200, 2\) for columns 0,3"):
            marginal_scores(released | wrong, mechanism, canaries, included)


def test_a_person_with_one_row_is_scored_as_a_row_is():
    """Counts of persons are in rows, and so is their noise."""
    mechanism, released, canaries, included, other_rows = tables(1.0)
    noise = {name: 120 * getattr(mechanism, name) for name in ("sigma_pairs", "sigma_triples")}
    persons = replace(mechanism, grain=120, **noise)
    of_rows, of_persons = (
        marginal_scores(released, release_of, canaries, included, rest=other_rows)
        for release_of in (mechanism, persons)
    )
    np.testing.assert_allclose(of_persons.members, of_rows.members)
    np.testing.assert_allclose(of_persons.others, of_rows.others)
