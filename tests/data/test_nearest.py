"""Small changes of images, against scipy's; and the columns of files as they are read in parts."""

import math

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from ostraka.data.nearest import INVARIANCES, augmented, nearest, squared_distances, transforms


def warped(image, linear, move):
    """The image by scipy: for each pixel, what lies at ``linear @ (pixel - middle - move) + middle``."""
    middle = (np.array(image.shape)[:, None, None] - 1) / 2
    places = np.indices(image.shape) - middle - np.array(move)[:, None, None]
    source = np.tensordot(np.array(linear), places, axes=1) + middle
    return map_coordinates(image, source, order=1, mode="grid-constant", cval=0.0)


def changes(shape):
    down, right = 0.0875 * shape[0], 0.0875 * shape[1]
    c, s = math.cos(0.17), math.sin(0.17)
    eye = [[1, 0], [0, 1]]
    return {
        "shift": [(eye, move) for move in ((0, right), (0, -right), (down, 0), (-down, 0))],
        "rotate": [([[c, -s], [s, c]], (0, 0)), ([[c, s], [-s, c]], (0, 0))],
        "scale": [([[1 / f, 0], [0, 1 / f]], (0, 0)) for f in (1.12, 0.9)],
        "shear": [([[1, 0.15], [0, 1]], (0, 0)), ([[1, -0.15], [0, 1]], (0, 0))],
    }


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 3), (7, 7)])
@pytest.mark.parametrize("names", [(name,) for name in INVARIANCES] + [INVARIANCES, ()])
def test_small_changes_are_those_of_scipy(shape, names):
    image = np.random.default_rng(0).random(shape)
    want = [
        image,
        *(warped(image, *change) for name in INVARIANCES if name in names for change in changes(shape)[name]),
    ]
    got = augmented(image.reshape(1, -1), transforms(shape, names))
    np.testing.assert_allclose(got, [one.ravel() for one in want], atol=1e-12)
    with pytest.raises(ValueError, match="invariance must be"):
        transforms(shape, ("mirror",))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 5, 99])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    "scale", [1, 0.125, 5001]
)  # sums are exact in single precision; no whole numbers; rounded
def test_the_nearest_are_those_of_all_distances_in_their_order(monkeypatch, dtype, k, grouped, scale):
    monkeypatch.setattr("ostraka.data.nearest._CELLS", 90)
    monkeypatch.setattr("ostraka.data.nearest._LEAST_ROWS", 2)
    rng = np.random.default_rng(0)
    rows, *versions = ((scale * rng.integers(0, 3, (n, 4))).astype(dtype) for n in (23, 17, 17))
    starts = np.array([0, 3, 4, 11]) if grouped else None
    done = []
    got = nearest(rows, versions, k, starts=starts, on_progress=lambda *at: done.append(at))
    exact = rows.astype(np.float64)
    distances = np.min([((exact[:, None] - version[None]) ** 2).sum(axis=2) for version in versions], axis=0)
    for row, places in zip(distances, got, strict=True):
        order = sorted(range(17), key=lambda place: (row[place], place))
        if grouped:  # the nearest point of each group
            group = np.searchsorted(starts, range(17), side="right")
            order = [place for n, place in enumerate(order) if group[place] not in group[order[:n]]]
        assert places.tolist() == order[:k]
    assert done == [(min(n, 23), 23) for n in range(5, 28, 5)]
    pairs = rng.integers(0, 17, (2, 9))
    np.testing.assert_array_equal(
        squared_distances(rows, versions[0], *pairs),
        ((exact[pairs[0]] - versions[0][pairs[1]]) ** 2).sum(axis=1),
    )


def test_without_rows_or_columns_the_first_point_is_the_nearest():
    assert nearest(np.zeros((0, 3)), [np.ones((2, 3))]).shape == (0, 1)
    assert nearest(np.zeros((4, 0)), [np.zeros((2, 0))], 2).tolist() == [[0, 0]] * 4
