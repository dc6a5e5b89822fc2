"""What to ask first."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from ostraka.learn.students import distil as query_strategy
from ostraka.learn.students.distil import schedule, typical, uncertainty_sampling


@given(st.integers(1, 5000))
def test_a_schedule_asks_exactly_as_often_as_planned_and_half_of_it_at_once(n):
    steps = schedule(n_answers=n)
    assert sum(steps) == n
    assert min(steps) >= 1
    assert steps[0] == -(-n // 2)
    assert len(steps) == min(6, 1 + n // 2)
    assert max(steps[1:], default=0) - min(steps[1:], default=0) <= 1


@pytest.mark.parametrize("n", [0, -1, 2.0])
def test_no_questions_cannot_be_scheduled(n):
    with pytest.raises(ValueError, match="n_answers must be"):
        schedule(n_answers=n)


def test_the_least_sure_rows_have_the_smallest_margin_not_the_smallest_maximum():
    probabilities = [[0.5, 0.25, 0.25], [0.52, 0.47, 0.01], [1.0, 0.0, 0.0]]
    assert uncertainty_sampling(probabilities, n=1, among=range(3)).tolist() == [1]
    assert uncertainty_sampling(probabilities, n=2, among=range(3)).tolist() == [0, 1]


@given(st.data())
def test_the_rows_left_out_are_surer_than_those_chosen(data):
    n_rows = data.draw(st.integers(1, 40))
    probabilities = np.random.default_rng(data.draw(st.integers(0, 99))).dirichlet([1, 1, 1], size=n_rows)
    among = data.draw(st.sets(st.integers(0, n_rows - 1)))
    n = data.draw(st.integers(0, n_rows))
    chosen = uncertainty_sampling(probabilities, n=n, among=sorted(among)).tolist()
    margin = {row: np.sort(probabilities[row])[-1] - np.sort(probabilities[row])[-2] for row in among}
    assert chosen == sorted(set(chosen) & among)
    assert len(chosen) == min(n, len(among))
    omitted = among - set(chosen)
    assert (
        not omitted or not chosen or min(margin[row] for row in omitted) >= max(margin[row] for row in chosen)
    )


def test_ties_are_broken_by_place():
    assert uncertainty_sampling(np.full((5, 2), 0.5), n=2, among=[4, 2, 3]).tolist() == [2, 3]


def test_typical_rows_are_one_a_cluster_and_inside_it():
    X, cluster = make_blobs(n_samples=300, centers=[[0, 0], [50, 0], [0, 50], [50, 50]], random_state=0)
    rows = typical(X, n=4, random_state=0)
    np.testing.assert_array_equal(typical(X, n=4, random_state=0), rows)
    assert sorted(cluster[rows]) == [0, 1, 2, 3]
    centres = np.array([X[cluster == number].mean(axis=0) for number in cluster[rows]])
    assert (np.linalg.norm(X[rows] - centres, axis=1) < 1.0).all(), "dense: near the middle of a round blob"


@given(st.data())
def test_typical_rows_are_different_rows_as_many_as_asked_for(data):
    # few different values: k-means finds fewer clusters than asked for
    X = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=30))
    n = data.draw(st.integers(1, 40))
    rows = typical(np.array(X, dtype=float)[:, None], n=n, random_state=0).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == min(n, len(X))
    assert set(rows) <= set(range(len(X)))


def test_many_typical_rows_are_found_in_parts_and_lie_in_all_regions():
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(60, 4))
    members = np.repeat(np.arange(60), 50)
    X = centres[members] + rng.normal(size=(3000, 4))
    chosen = typical(X, n=1200, random_state=0)
    assert len(set(chosen.tolist())) == 1200
    assert np.bincount(members[chosen], minlength=60).min() > 5


def test_clusters_in_parts_are_nearly_as_tight_as_those_found_at_once(monkeypatch):
    X = np.random.default_rng(1).normal(size=(1500, 3))

    def spread(cluster):
        return sum(((X[cluster == k] - X[cluster == k].mean(axis=0)) ** 2).sum() for k in np.unique(cluster))

    at_once = query_strategy._clustered(X, 150, 0)[0]
    monkeypatch.setattr(query_strategy, "_AT_ONCE", 40)
    monkeypatch.setattr(query_strategy, "_IN_A_PART", 30)
    in_parts = query_strategy._clustered(X, 150, 0)[0]
    assert abs(len(np.unique(in_parts)) - 150) <= 5
    assert spread(in_parts) < 1.15 * spread(at_once)


@pytest.mark.parametrize("n_features", [1, 7, 40])
@pytest.mark.parametrize("digits", [0, 12], ids=["rows that repeat", "rows that differ"])
def test_clusters_are_those_of_scikit_learn_with_its_own_first_centres(n_features, digits):
    points = np.round(np.random.default_rng(n_features).normal(size=(300, n_features)), digits) + 5.0
    for seed, n in enumerate((2, 30, 120)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fewer different rows than clusters
            theirs = KMeans(n_clusters=n, n_init=1, random_state=seed).fit_predict(points)
        np.testing.assert_array_equal(query_strategy._clusters(points, n, seed), theirs)
