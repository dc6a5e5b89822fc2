"""Public cells: exact places, invariances that are stated, and how far a line can move a table."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.ndimage import affine_transform
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from ostraka.data.nearest import INVARIANCES, transforms
from ostraka.voters import GraphCells, QuantileCells
from ostraka.voters import cells as voters_cells
from ostraka.voters.cells import affinity
from ostraka.voters.rows import reach

IMAGES, DIGITS = load_digits(return_X_y=True)
PUBLIC, PRIVATE = IMAGES[:250], IMAGES[250:]


@pytest.fixture(scope="module")
def cells():
    return GraphCells(image_shape=(8, 8)).fit(PUBLIC)


def test_images_are_changed_as_scipy_changes_them():
    """Linear interpolation about the middle; what lies outside is 0."""
    turn = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in (0.17, -0.17)]
    down, right = 0.0875 * 6, 0.0875 * 9
    changes = [(np.eye(2), move) for move in ((0, 0), (0, right), (0, -right), (down, 0), (-down, 0))]
    others = [*turn, np.eye(2) / 1.12, np.eye(2) / 0.9, [[1, 0.15], [0, 1]], [[1, -0.15], [0, 1]]]
    changes += [(np.array(linear), (0, 0)) for linear in others]
    images, middle = np.random.default_rng(0).random((3, 6, 9)), np.array([2.5, 4.0])
    for (linear, move), matrix in zip(changes, transforms((6, 9), INVARIANCES), strict=True):
        offset = middle - linear @ (middle + move)
        expected = [affine_transform(x, linear, offset, order=1, mode="grid-constant") for x in images]
        np.testing.assert_allclose((images.reshape(3, -1) @ matrix).reshape(3, 6, 9), expected, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-200, 1e-6, 1.0, 1e9])
def test_numbers_are_mapped_to_integers_whatever_their_unit(unit):
    rows = np.random.default_rng(2).integers(-64, 65, (40, 3)) * 1.0
    known = voters_cells.FixedPoint.of(rows)
    scaled = voters_cells.FixedPoint.of(rows * unit)
    np.testing.assert_array_equal(scaled.integers(rows * unit), known.integers(rows))
    assert np.abs(known.integers(rows)).max() == 127


@pytest.mark.parametrize("n_columns", [346, 347])
def test_rows_of_more_columns_than_sums_in_32_bits_hold_become_principal_components(n_columns):
    """Squared distances are sums of whole numbers, which 32 bits hold up to 2^24: 3 * 127² a column."""
    rows = np.random.default_rng(2).normal(size=(90, n_columns)) * np.linspace(1, 3, n_columns)
    fixed = voters_cells.FixedPoint.of(rows)
    apart = rows - rows.mean(axis=0)
    steps = np.rint(apart * 127 / np.abs(apart).max())
    if n_columns == 346:
        np.testing.assert_array_equal(fixed.integers(rows), steps)
        return
    scores = steps @ np.linalg.svd(steps)[2][:64].T
    found, expected = fixed.integers(rows), scores * 127 / np.abs(scores).max()
    assert found.shape == (90, 64)
    np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, atol=0.6)
    assert np.abs(found).max() == np.abs(fixed.integers(9 * rows)).max() == 127


def test_the_scale_of_an_affinity_is_the_distance_of_the_furthest_neighbour():
    """Zelnik-Manor and Perona 2004, section 2.1: exp(-d² / s_i s_j); an edge is its heavier way."""
    rng = np.random.default_rng(0)
    places = np.array([rng.choice(np.delete(np.arange(7), i), 3, replace=False) for i in range(7)])
    squares = np.sort(rng.random((7, 3)), axis=1)
    expected = np.zeros((7, 7))
    for i, j, square in zip(np.repeat(np.arange(7), 3), places.ravel(), squares.ravel(), strict=True):
        expected[i, j] = math.exp(-square / math.sqrt(squares[i, 2] * squares[j, 2]))
    similarity = affinity(places, squares).toarray()
    np.testing.assert_allclose(similarity, np.maximum(expected, expected.T), atol=1e-8)


def plain_graph(rows, *, n_neighbors, n_features, time):
    """Smooth features of a graph of rows, by definition: all distances and all eigenvectors."""
    apart = ((rows[:, None] - rows) ** 2).sum(axis=2)
    near = np.argsort(apart + np.diag(np.full(len(rows), -1.0)), axis=1, kind="stable")[
        :, 1 : n_neighbors + 1
    ]
    spread = np.sqrt(np.take_along_axis(apart, near, axis=1)[:, -1])
    weights = np.zeros_like(apart)
    for row, others in enumerate(near):
        weights[row, others] = np.exp(-apart[row, others] / (spread[row] * spread[others])) + 1e-9
    weights = np.maximum(weights, weights.T)
    degree = weights.sum(axis=1)
    values, vectors = np.linalg.eigh(weights / np.sqrt(np.outer(degree, degree)))
    smooth = vectors[:, ::-1][:, :n_features] * np.exp(time * (values[::-1][:n_features] - 1) / 2)
    return smooth / np.linalg.norm(smooth, axis=1, keepdims=True)


def whole_rows(n, rng):
    """Rows of whole numbers about 0 from -127 to 127, which fixed point keeps as they are."""
    rows = rng.integers(-100, 101, size=(n // 2, 3))
    rows[0] = [127, 5, -9]
    return np.concatenate([rows, -rows]).astype(np.float64)


class TestGraphCells:
    @pytest.mark.parametrize("dense", [1000, 10])  # of more rows, some eigenvectors alone are computed
    def test_features_are_smooth_on_the_graph_of_nearest_rows(self, dense, monkeypatch):
        monkeypatch.setattr(voters_cells, "_DENSE", dense)
        rows = whole_rows(60, np.random.default_rng(3))
        cells = GraphCells(n_features=4, n_neighbors=5, time=3.0, resolution=512).fit(rows)
        expected = plain_graph(rows, n_neighbors=5, n_features=4, time=3.0)
        np.testing.assert_allclose(
            np.abs(cells.features_), np.abs(expected), atol=1e-5 if dense > 60 else 1e-3
        )
        np.testing.assert_array_equal(cells.codebooks_[0], np.rint(cells.features_ * 512))
        assert cells.codebooks_[0].dtype == np.int64
        asked = np.array(
            [[126.0, 5, -9], [1e9, 0, 0], [np.nan, 5, -9]]
        )  # beyond is the end, no number the middle
        ends = np.array([[126.0, 5, -9], [127, 0, 0], [0, 5, -9]])
        nearest = ((ends[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)
        assert cells.codes(asked)[:, 0].tolist() == nearest.tolist()

    def test_cells_are_ward_clusters_and_prototypes_their_middles(self):
        near = np.random.default_rng(4).integers(-27, 28, size=(5, 8, 3))
        near[0, 0] = [37, 3, -5]
        # clusters whose middles add up to 0: ties would be broken by the last bits of eigenvectors
        middles = np.array([[90, 0, 0], [-60, 80, 0], [-30, -80, 40], [0, 0, 60], [0, 0, -100]])
        rows = (middles[:, None] + np.concatenate([near, -near], axis=1)).reshape(-1, 3).astype(np.float64)
        cells = GraphCells(n_features=6, n_cells=5, n_neighbors=20).fit(rows)
        points = plain_graph(rows, n_neighbors=20, n_features=5, time=0.0)
        labels = AgglomerativeClustering(5).fit_predict(points)
        assert adjusted_rand_score(cells.codebooks_[0].argmax(axis=1), labels) == 1.0
        assert cells.codebooks_[0].sum(axis=1).tolist() == [1] * 80
        assert cells.codebooks_[0].shape == (80, 5)
        assert reach(cells.codebooks_) == math.sqrt(2)
        middles = [
            np.flatnonzero(labels == k)[
                ((points[labels == k] - points[labels == k].mean(axis=0)) ** 2).sum(axis=1).argmin()
            ]
            for k in range(5)
        ]
        assert sorted(cells.prototypes(5)) == sorted(middles)

    @pytest.mark.parametrize("n_cells", [1, 2, 3, 12, 13, 40])
    def test_clusters_are_those_of_as_many_features_from_2_to_12(self, n_cells):
        rows = np.random.default_rng(7).normal(size=(90, 3))
        cells = GraphCells(n_features=20, n_neighbors=10).fit(rows)
        whole = voters_cells.FixedPoint.of(rows).integers(rows).astype(np.float64)
        points = plain_graph(whole, n_neighbors=10, n_features=max(2, min(12, n_cells)), time=0.0)
        labels = AgglomerativeClustering(n_cells).fit_predict(points)
        assert adjusted_rand_score(cells.clusters(n_cells), labels) == 1.0
        middles = [points[labels == label].mean(axis=0) for label in range(n_cells)]
        apart = ((points - np.array(middles)[labels]) ** 2).sum(axis=1)
        nearest = [min(np.flatnonzero(labels == k), key=apart.__getitem__) for k in range(n_cells)]
        assert sorted(apart[cells.prototypes(n_cells)]) == pytest.approx(sorted(apart[nearest]), abs=1e-9)

    def test_a_graph_has_more_rows_than_neighbours_and_fewer_features_than_rows(self):
        rows = np.random.default_rng(7).normal(size=(9, 3))
        assert GraphCells(n_features=9).fit(rows).features_.shape == (9, 8)
        three = GraphCells(n_features=2, n_neighbors=2).fit(rows[:3])
        assert sorted(three.clusters(9)) == [0, 1, 2]
        assert GraphCells().fit(rows[:8]).features_.shape == (8, 7)
        assert GraphCells(n_cells=1, resolution=1).fit(rows).codebooks_[0].tolist() == [[1]] * 9
        with pytest.raises(ValueError, match="more than n_neighbors=7 rows, got 7"):
            GraphCells().fit(rows[:7])
        for wrong in ({"n_features": 1}, {"n_neighbors": 1}, {"resolution": 0}):
            with pytest.raises(ValueError, match="must be an integer >="):
                GraphCells(**wrong).fit(rows)

    def test_many_columns_are_projected_and_still_exact(self):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(60, 500))
        wide = GraphCells(n_features=5).fit(rows)
        fresh = rng.normal(size=(40, 500))
        alone = np.concatenate([wide.codes(row[None]) for row in fresh])
        np.testing.assert_array_equal(wide.codes(fresh), alone)
        np.testing.assert_array_equal(wide.codes(rows)[:, 0], np.arange(60))

    def test_a_shifted_image_stays_near_its_original(self):
        shift = transforms((8, 8), ["shift"])[1]
        shifted = np.asarray(PUBLIC @ shift)
        shares = {
            names: (
                GraphCells(image_shape=(8, 8), invariances=names).fit(PUBLIC).codes(shifted)[:, 0]
                == np.arange(len(PUBLIC))
            ).mean()
            for names in ((), INVARIANCES)
        }
        assert shares[INVARIANCES] > 0.9 > shares[()]

    def test_clusters_are_purer_than_chance_without_labels_and_have_a_prototype_each(self, cells):
        cluster_of_row = cells.clusters(15)
        purity = sum(np.bincount(DIGITS[:250][cluster_of_row == c]).max() for c in range(15)) / 250
        assert purity > 0.8
        assert sorted(cluster_of_row[cells.prototypes(15)]) == list(range(15))

    def test_repeats_itself(self, cells):
        assert GraphCells(image_shape=(8, 8)).fit(PUBLIC).sha256_ == cells.sha256_

    def test_equal_rows_do_no_harm(self):
        rows = np.repeat(load_iris().data[:20], 3, axis=0)
        again = GraphCells(n_features=4).fit(rows)
        assert np.isfinite(again.features_).all()

    @pytest.mark.parametrize(
        ("settings", "rows", "words"),
        [
            ({}, [[math.nan, 1.0]] * 20, "finite"),
            ({}, [["a", "b"]] * 20, "numbers"),
            ({}, [[10**400, 1]] * 20, "X must be numbers of shape"),
            ({}, np.arange(20.0), "X must be numbers of shape"),
            ({}, np.ones((5, 3)), "more than"),
            ({"image_shape": (8, 8)}, np.ones((20, 63)), "images"),
            ({"image_shape": (8, 8), "invariances": ["mirror"]}, PUBLIC, "invariance"),
            ({"n_cells": 0}, PUBLIC, "n_cells"),
            ({"time": -1.0}, PUBLIC, "time"),
            ({"time": math.inf}, PUBLIC, "time"),
        ],
    )
    def test_refuses(self, settings, rows, words):
        with pytest.raises(ValueError, match=words):
            GraphCells(**settings).fit(rows)

    def test_refuses_before_it_is_fitted_and_other_columns(self, cells):
        with pytest.raises(NotFittedError):
            GraphCells().codes(PUBLIC)
        with pytest.raises(ValueError, match="columns"):
            GraphCells().fit(PUBLIC).codes(PUBLIC[:, :60])


class TestReach:
    def moves(self, book, n_classes):
        """All tables that one row can add, nothing included."""
        tables = [np.zeros((book.shape[1], n_classes))]
        for line, c in itertools.product(book, range(n_classes)):
            table = np.zeros((book.shape[1], n_classes))
            table[:, c] = line
            tables.append(table)
        return tables

    @pytest.mark.parametrize("seed", range(5))
    def test_is_the_largest_move_of_a_table_by_enumeration(self, seed):
        book = np.random.default_rng(seed).integers(-9, 10, size=(12, 4))
        tables = self.moves(book, 3)
        largest = max(np.linalg.norm(a - b) for a, b in itertools.combinations(tables, 2))
        assert reach([book]) == pytest.approx(largest, rel=1e-14)
        alone = max(np.linalg.norm(table) for table in tables)
        assert reach([book], "zero-out") == pytest.approx(alone, rel=1e-14)

    def test_opposite_lines_of_one_class_move_further_than_two_classes(self):
        assert reach([np.array([[3, 0], [-3, 0]])]) == 6.0

    def test_columns_add_up_as_squares(self):
        assert reach([np.eye(3, dtype=int)] * 5) == math.sqrt(10)
        assert reach([np.eye(3, dtype=int)] * 5, "zero-out") == math.sqrt(5)

    @pytest.mark.parametrize("relation", ["add-or-remove", "", None])
    def test_of_another_relation_is_refused(self, relation):
        with pytest.raises(ValueError, match="relation must be one of replace-one, zero-out"):
            reach([np.eye(3, dtype=int)], relation)


class TestQuantileCells:
    def test_every_row_has_one_bin_a_column_whatever_it_holds(self):
        public = pa.table({"age": [None, *range(40)], "job": ["a", "b"] * 20 + [None]})
        cells = QuantileCells(n_bins=4, least=5).fit(public)
        odd = pa.table({"age": [-1e300, 1e300, None, 7.0], "job": ["a", "z", None, ""]})
        codes = cells.codes(odd)
        sizes = [len(book) for book in cells.codebooks_]
        assert codes.shape == (4, 2)
        assert ((codes >= 0) & (codes < sizes)).all()
        assert codes[2, 0] == sizes[0] - 1
        assert (codes[1:, 1] == sizes[1] - 1).all()

    def test_bins_are_quantiles_that_hold_their_upper_end(self):
        numbers = np.random.default_rng(0).permutation(100.0 + np.arange(100))
        cells = QuantileCells(n_bins=4).fit(numbers[:, None])
        edges = np.quantile(numbers, [0.25, 0.5, 0.75])
        beyond = np.nextafter(edges, np.inf)
        asked = np.array([-1e300, *edges, *beyond, 1e300, np.nan, np.inf])[:, None]
        assert cells.codes(asked)[:, 0].tolist() == [0, 0, 1, 2, 1, 2, 3, 3, 4, 4]
        assert cells.codebooks_[0].tolist() == np.eye(5).tolist()

    @pytest.mark.parametrize(("times", "bins"), [(25, [0, 0, 0]), (26, [0, 1, 2])])
    def test_a_value_of_more_than_its_share_of_rows_is_alone_and_others_share_what_is_left(self, times, bins):
        numbers = np.r_[np.full(times, 50.0), np.arange(100 - times) / 100]  # all others are below
        codes = QuantileCells(n_bins=4).fit(numbers[:, None]).codes(np.array([[40.0], [50.0], [60.0]]))[:, 0]
        assert [sorted(set(codes.tolist())).index(code) for code in codes] == bins
        few = QuantileCells(n_bins=4).fit(
            np.array([[1.0], [1.0], [2.0], [3.0], [4.0]])
        )  # fewer than bins left
        assert few.codes(np.array([[0.9], [1.0], [1.1], [9.0]]))[:, 0].tolist() == [0, 1, 2, 2]

    def test_a_category_of_the_least_number_of_rows_has_a_bin(self):
        kinds = pa.table({"kind": ["b"] * 10 + ["a"] * 9 + ["c"] * 11 + [""] * 20})
        cells = QuantileCells().fit(kinds)
        asked = pa.table({"kind": ["b", "c", "a", "", None, "z"]})
        assert cells.codes(asked)[:, 0].tolist() == [0, 1, 2, 2, 2, 2]

    def test_text_where_numbers_were_goes_to_the_last_bin(self):
        cells = QuantileCells(n_bins=3).fit(np.arange(30.0)[:, None])
        codes = cells.codes(np.array([["5"], ["much"], ["nan"]], dtype=object))[:, 0]
        assert codes[0] == cells.codes(np.array([[5.0]]))[0, 0]
        assert (codes[1:] == len(cells.codebooks_[0]) - 1).all()

    def test_the_bin_of_a_cell_follows_from_that_cell_alone(self):
        """Also where Python calls two cells equal: 1, 1.0 and True, or numbers of an array's own types."""
        cells = [
            1,
            1.0,
            True,
            "1",
            "True",
            " 1 ",
            0,
            False,
            -0.0,
            "a",
            "",
            None,
            math.nan,
            math.inf,
            2**53 + 1,
        ]
        cells += [float(2**53), 10**400, np.float64(1.0), np.int64(1), np.True_, "a\udcff", b"a", "TRUE", 7.5]
        rng = np.random.default_rng(0)
        for public in ([[float(n)] for n in range(30)], [["1"], ["True"], ["a"], ["7.5"]] * 10):
            bins = QuantileCells(n_bins=4).fit(public)
            alone = [bins.codes([[cell]])[0, 0] for cell in cells]
            assert len({*alone}) > 2
            for rows in (rng.integers(0, len(cells), 200), np.array([0, 1, 0, 1]), np.array([0, 2, 3, 0, 2])):
                several = bins.codes([[cells[place]] for place in rows])[:, 0]
                assert several.tolist() == [alone[place] for place in rows]

    def test_columns_are_chosen_by_name(self):
        frame = pa.table({"a": list(range(20)), "b": list(range(20))})
        cells = QuantileCells(columns=["b"], n_bins=2).fit(frame)
        assert cells.columns_ == ["b"]
        with pytest.raises(ValueError, match="no column 'c'"):
            QuantileCells(columns=["c"]).fit(frame)

    @pytest.mark.parametrize("wrong", [{"n_bins": 1}, {"least": 0}, {"least": math.nan}])
    def test_refuses(self, wrong):
        with pytest.raises(ValueError, match="integer"):
            QuantileCells(**wrong).fit(load_iris().data)

    def test_one_hot_columns_of_an_array_are_one_column_again(self):
        rng = np.random.default_rng(0)
        kinds, second_kinds = rng.integers(0, 3, size=200), rng.integers(0, 4, size=200)
        array = np.column_stack(
            [rng.normal(size=200), np.eye(3)[kinds], np.eye(4)[second_kinds], rng.normal(size=200)]
        )
        cells = QuantileCells(n_bins=4, least=1).fit(array)
        assert [len(book) for book in cells.codebooks_] == [5, 4, 5, 5]
        codes = cells.codes(array)
        np.testing.assert_array_equal(codes[:, 1], kinds)
        np.testing.assert_array_equal(codes[:, 2], second_kinds)
        odd = array[:3].copy()
        odd[0, 1:4], odd[1, 1:4], odd[2, 1:4] = 0.0, 1.0, np.nan
        assert (cells.codes(odd)[:, 1] == 3).all()

    @pytest.mark.parametrize("seed", range(30))
    def test_one_hot_columns_are_the_fewest_neighbours_that_sum_to_one(self, seed):
        rng = np.random.default_rng(seed)
        parts = [np.eye(2)[rng.integers(0, 2, 9)], np.eye(3)[rng.integers(0, 3, 9)], np.ones((9, 1))]
        parts += [rng.integers(0, 2, (9, 1)), rng.choice([0.5, 0, 1], (9, 1)), np.zeros((9, 1))]
        array = np.hstack([parts[k] for k in rng.integers(0, len(parts), 5)])
        expected, place, width = [], 0, array.shape[1]
        while place < width:
            ends = [
                end
                for end in range(place + 2, width + 1)
                if np.isin(some := array[:, place:end], (0, 1)).all() and (some.sum(axis=1) == 1).all()
            ]
            end = min(ends, default=place + 1)
            expected.append(list(range(place, end)))
            place = end
        cells = QuantileCells(n_bins=2).fit(array)
        assert cells.columns_ == [first for first, *_ in expected]
        widths = [len(book) for book in cells.codebooks_]
        assert all(
            len(group) == 1 or size <= len(group) + 1 for group, size in zip(expected, widths, strict=True)
        )
        assert voters_cells._one_hot(array) == expected

    def test_private_rows_of_lists_may_differ_in_length_and_kind(self):
        rows = [[20, "a", 7], [30, "b", None], [40, "a", 7], [50, "b", 7]]
        cells = QuantileCells(n_bins=2, least=1).fit(rows)
        assert cells.columns_ == [0, 1, 2]
        assert cells.codes(rows).tolist() == [[0, 0, 1], [0, 1, 3], [1, 0, 1], [1, 1, 1]]
        assert cells.codes([[55], [None, "b", 8], [9, 9, 9, 9]]).tolist() == [[1, 2, 3], [2, 1, 2], [0, 2, 2]]
        assert QuantileCells(columns=[1], least=2).fit(rows).codes(rows)[:, 0].tolist() == [0, 1, 0, 1]
        for wrong in (np.arange(3.0), np.zeros((0, 2)), [], [1, 2]):
            with pytest.raises(ValueError, match=r"X must have shape \(n_rows, n_columns\)"):
                QuantileCells().fit(wrong)

    def test_lines_are_the_codebooks_lines_side_by_side(self):
        X = load_iris().data
        cells = QuantileCells(n_bins=3).fit(X)
        assert (cells.lines(X).sum(axis=1) == 4).all()
        np.testing.assert_array_equal(cells.lines(X)[:, :5].argmax(axis=1), cells.codes(X)[:, 0])

    def test_one_missing_number_turns_no_other_whole_number_into_another_category(self):
        pd = pytest.importorskip("pandas")
        cells = QuantileCells(least=2).fit(pd.DataFrame({"kind": ["1", "2", "x", "x"] * 5}))
        complete, gap = pd.DataFrame({"kind": [1, 2, 1]}), pd.DataFrame({"kind": [None, 2, 1]})
        assert gap["kind"].dtype != complete["kind"].dtype
        np.testing.assert_array_equal(cells.codes(gap)[1:], cells.codes(complete)[1:])
