"""Private-kNN under audit, held against the algorithm in a few plain lines."""

import numpy as np
import pytest
from scipy.stats import binom

from ostraka import GNMax
from ostraka.audits import NeighbourWorlds, votes_lower_bound

RATE, K = 0.3, 5
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
Y = rng.integers(3, size=80)
QUERY, TARGET, LABEL = np.array([0.1, 0.2]), np.array([0.5, 0.2]), 2


def system(n_neighbours=K, rows=80):
    return NeighbourWorlds(X[:rows], Y[:rows], n_classes=3, n_neighbours=n_neighbours, sampling_rate=RATE)


def plain(rng, rows, labels, query, n):
    """Draw rows, sort by distance, count the labels of the nearest."""
    distances = np.linalg.norm(rows - query, axis=1)
    votes = []
    for _ in range(n):
        sample = np.flatnonzero(rng.random(len(rows)) < RATE)
        near = sample[np.argsort(distances[sample])][:K]
        votes.append(np.bincount(labels[near], minlength=3))
    return np.array(votes)


def test_mean_votes_are_those_of_the_algorithm():
    votes = plain(np.random.default_rng(1), X, Y, QUERY, 20_000)
    error = 7 * votes.std(axis=0) / np.sqrt(20_000)
    np.testing.assert_array_less(np.abs(votes.mean(axis=0) - system().expected(QUERY[None])[0]), error)


@pytest.mark.parametrize("rows", [80, 8], ids=["plenty", "fewer than are asked for"])
def test_pairs_are_those_of_the_algorithm(rows):
    present, absent = (
        world.open()
        for world in system(rows=rows).pairs(
            QUERY, TARGET, label=LABEL, n_draws=20_000, rng=np.random.default_rng(2)
        )
    )
    with_target = np.vstack([X[:rows], TARGET]), np.append(Y[:rows], LABEL)
    for world, (features, labels) in ((absent, (X[:rows], Y[:rows])), (present, with_target)):
        votes = plain(np.random.default_rng(3), features, labels, QUERY, 20_000)
        error = 7 * np.sqrt(2) * np.maximum(votes.std(axis=0), 0.01) / np.sqrt(20_000)
        np.testing.assert_array_less(np.abs(votes.mean(axis=0) - world.mean(axis=0)), error)
        squares = votes.astype(float) ** 2
        error = 7 * np.sqrt(2) * np.maximum(squares.std(axis=0), 0.01) / np.sqrt(20_000)
        np.testing.assert_array_less(np.abs(squares.mean(axis=0) - (world**2.0).mean(axis=0)), error)


def test_the_model_has_the_chance_that_the_target_is_reached():
    model = system().models(QUERY[None], TARGET[None], np.array([LABEL]))[0]
    nearer = int((np.linalg.norm(X - QUERY, axis=1) < np.linalg.norm(TARGET - QUERY)).sum())
    votes = np.random.default_rng(4).binomial(nearer, RATE, size=400_000)
    assert nearer > K
    assert 1 - model.present[0] == pytest.approx(RATE * (votes < K).mean(), abs=7 * RATE * 0.5 / 632)


def test_the_vote_that_the_target_displaces_is_that_of_the_last_neighbour():
    """Rings of rows around the query are classes, each of which is last as often as in plain draws."""
    order = np.argsort(np.linalg.norm(X - QUERY, axis=1))
    rings = np.empty(len(X), dtype=int)
    rings[order] = np.searchsorted([12, 18], np.arange(len(X)), side="right")
    knn = NeighbourWorlds(X, rings, n_classes=3, n_neighbours=K, sampling_rate=RATE)
    [near] = knn._near(QUERY[None])
    last = [binom.cdf(K - 1, n, RATE) for n in (0, 12, 18, len(X))]  # fewer than K of the first n take part
    assert near.last / near.last.sum() == pytest.approx(-np.diff(last) / (last[0] - last[-1]), abs=1e-9)


def test_a_near_target_is_seen_and_a_far_one_is_not():
    mechanism = GNMax(sigma=1.0)
    for target, reachable in ((QUERY, True), (QUERY + 100, False)):
        worlds = system().pairs(QUERY, target, label=LABEL, n_draws=5000, rng=np.random.default_rng(5))
        assert (votes_lower_bound(mechanism, *worlds, paired=True, orders=(2.0,)).rdp[0] > 0) is reachable


def test_the_nearest_target_votes_whenever_it_takes_part():
    nearest = NeighbourWorlds(X, Y, n_classes=3, n_neighbours=1, sampling_rate=0.5)
    label = (Y[np.linalg.norm(X - QUERY, axis=1).argmin()] + 1) % 3
    present, _ = nearest.pairs(QUERY, QUERY, label=label, n_draws=4000, rng=np.random.default_rng(6))
    others = np.flatnonzero(label == Y)
    nearer = np.linalg.norm(X - QUERY, axis=1)[:, None] < np.linalg.norm(X[others] - QUERY, axis=1)
    by_chance = (0.5 ** (nearer.sum(axis=0) + 1)).sum()  # the nearest row that takes part has this label
    want = 0.5 + 0.5 * by_chance
    assert abs(present.open()[:, label].mean() - want) < 7 * 0.5 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *(({"sampling_rate": rate}, "sampling_rate must") for rate in (0.0, 1.5, np.nan)),
        ({"n_neighbours": 81}, "at most the 80 rows"),
        ({"X": X * np.nan}, "X must be finite numbers"),
        ({"X": X[0]}, "X must be finite numbers"),
        ({"X": X.astype(str)}, "X must be finite numbers"),
        ({"y": Y + 1}, "y must be a class from 0 to 2 for each of 80 rows"),
        ({"y": Y - 1}, "y must be a class from 0 to 2"),
        ({"y": Y[1:]}, "y must be a class from 0 to 2"),
        ({"y": Y / 2}, "y must be a class from 0 to 2"),
    ],
)
def test_what_is_no_system_is_refused(settings, words):
    arguments = {"X": X, "y": Y, "n_classes": 3, "n_neighbours": K, "sampling_rate": RATE} | settings
    with pytest.raises(ValueError, match=words):
        NeighbourWorlds(arguments.pop("X"), arguments.pop("y"), **arguments)
