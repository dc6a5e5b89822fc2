"""What a private row adds in generators depends on no other row, whatever kernel a product is computed by."""

import numpy as np
import pytest

from ostraka.data.nearest import nearest, squared_distances
from ostraka.synth import clusters as _clusters

SIZES = [1, 2, 3, 63, 64, 65, 299, 300, 301, 1023, 1024, 1025]


def tied(n_columns, dtype, seed=0):
    """Rows, and points between which products cannot decide."""
    point = np.random.default_rng(seed).normal(size=n_columns).astype(dtype)
    points = np.stack([point, point[::-1]])  # of one length, so that only products decide
    return np.tile(points.mean(axis=0), (max(SIZES), 1)), np.concatenate([points, points, 3 * points])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_columns", [3, 17, 64, 101])
def test_equal_rows_have_one_nearest_point_however_many_they_are(n_columns, dtype):
    rows, points = tied(n_columns, dtype)
    for k in (1, 3):
        alone = nearest(rows[:1], [points], k)
        for n_rows in SIZES:
            assert (nearest(rows[:n_rows], [points], k) == alone).all()


def test_one_row_more_adds_one_vote_and_moves_no_other():
    # 299 and 300 equal rows between two public candidates: the kernel of a product used to move them all
    for seed in range(30):
        rows, points = tied(64, np.float32, seed)
        for n_rows in (1, 299):
            fewer, larger = (
                np.bincount(nearest(rows[:size], [points[:2]])[:, 0], minlength=2)
                for size in (n_rows, n_rows + 1)
            )
            assert np.abs(larger - fewer).sum() == 1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e14, 1e25])
def test_the_nearest_point_is_that_of_distances_pair_by_pair(scale):
    rng = np.random.default_rng(1)
    rows = ((rng.integers(-3, 4, (200, 5)) + 1000) * scale).astype(np.float32)
    points = [((rng.integers(-3, 4, (30, 5)) + 1000) * scale).astype(np.float32) for _ in range(2)]
    pairs = np.repeat(np.arange(200), 30), np.tile(np.arange(30), 200)
    least = np.minimum(*(squared_distances(rows, version, *pairs) for version in points)).reshape(200, 30)
    order = np.argsort(least, axis=1, kind="stable")
    for k in (1, 4, 30):
        np.testing.assert_array_equal(nearest(rows, points, k), order[:, :k])


@pytest.mark.parametrize("n_columns", [1, 17, 300])
def test_random_features_of_a_row_are_its_own(n_columns):
    rows = np.random.default_rng(2).normal(size=(1025, n_columns)).astype(np.float32)
    rows[::7] *= 1e15
    rows[::11] *= 1e-30
    rows[::13] = 0

    def features(table):
        return _clusters.random_features(table, n_components=50, gamma=0.5, seed=1)

    together = features(rows)
    for n_rows in SIZES:
        np.testing.assert_array_equal(features(rows[:n_rows]), together[:n_rows])
        np.testing.assert_array_equal(features(rows[-n_rows:]), together[-n_rows:])
