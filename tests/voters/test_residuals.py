"""Residuals of rows: whole numbers of bounded length; one row moves the table no further than stated."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.preprocessing import FunctionTransformer

from ostraka.voters import GraphCells, RowVoter
from ostraka.voters.rows import FeatureCells, residual_sums, shortened

RNG = np.random.default_rng(0)
PUBLIC = RNG.normal(size=(40, 3))
ROWS = RNG.normal(size=(30, 3))
LABELS = RNG.integers(0, 3, size=30)


def voter(rows=ROWS, labels=LABELS, **settings):
    cells = FeatureCells(FunctionTransformer(), n_features=2, resolution=20).fit(PUBLIC)
    return RowVoter(cells=cells, **settings).fit(rows, labels, classes=range(3))


def table(coef, *, clip=0.5, parts=4, **settings):
    return voter(**settings).residuals(coef, clip=clip, parts=parts).open()


class TestShortened:
    @given(
        st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=6), st.integers(1, 1000)
    )
    def test_a_row_is_never_longer_than_stated_whatever_it_holds(self, row, longest):
        with np.errstate(over="ignore", invalid="ignore"):
            row_shortened = shortened(np.array([row]), longest)
        assert all(value == int(value) for value in row_shortened[0])
        assert sum(int(value) ** 2 for value in row_shortened[0]) <= longest**2

    def test_rounds_to_the_nearest_and_towards_zero_where_that_is_too_long(self):
        np.testing.assert_array_equal(
            shortened(np.array([[2.6, 0.4], [2.6, 1.6], [5.0, 0.0]]), 3), [[3, 0], [2, 1], [0, 0]]
        )


class TestResiduals:
    def test_is_the_gradient_of_logistic_regression_up_to_rounding(self):
        coef = RNG.normal(size=(3, 3))
        rows = voter()
        lines = rows.cells.lines(ROWS) / 20
        exact = lines.T @ (np.eye(3)[LABELS] - softmax(lines @ coef, axis=1))
        sums = rows.residuals(coef, clip=2.0, parts=10**6).open() * 2.0 / 10**6 / 20
        np.testing.assert_allclose(sums, exact, atol=30 * 1e-6)

    def test_long_residuals_are_shortened_to_the_clip(self):
        coef = np.zeros((3, 3))
        lines = voter().cells.lines(ROWS) / 20
        apart = np.eye(3)[LABELS] - 1 / 3
        exact = lines.T @ (apart * 0.1 / np.linalg.norm(apart, axis=1, keepdims=True))
        sums = voter().residuals(coef, clip=0.1, parts=10**6).open() * 0.1 / 10**6 / 20
        np.testing.assert_allclose(sums, exact, atol=30 * 1e-6)

    @pytest.mark.parametrize(("relation", "times"), [("replace-one", 2), ("zero-out", 1)])
    def test_states_how_far_one_row_moves_the_table(self, relation, times):
        sums = voter(relation=relation).residuals(np.zeros((3, 3)), clip=0.5, parts=4)
        assert sums.adjacency.l2 == times * 4 * 20
        assert sums.adjacency.relation == relation
        assert sums.adjacency.unit == "row"

    def test_a_person_with_many_rows_adds_no_more_than_one_row(self):
        copies, labels = np.repeat(ROWS[:1], 15, axis=0), np.zeros(15, dtype=int)
        cells = voter().cells
        people = RowVoter(cells=cells, person="mean").fit(
            copies, labels, [0] * 10 + [1] * 5, classes=range(3)
        )
        votes = people.residuals(np.zeros((3, 3)), clip=0.5, parts=4)
        assert votes.adjacency.unit == "person"
        single = table(np.zeros((3, 3)), rows=copies[:1], labels=labels[:1])
        np.testing.assert_array_equal(votes.open(), 2 * single)

    @pytest.mark.parametrize("seed", range(5))
    def test_no_row_moves_it_further_by_enumeration(self, seed):
        rng = np.random.default_rng(seed)
        coef = rng.normal(size=(3, 3)) * 10
        rows = np.array(list(itertools.product((-1e9, -0.3, 0.0, 2.0), repeat=3)))
        parts = np.array(
            [
                residual_sums(line[None], np.array([label]), coef, resolution=20, clip=0.5, parts=4).ravel()
                for line in voter().cells.lines(rows)
                for label in range(3)
            ]
        )
        longest = np.linalg.norm(parts, axis=1).max()
        furthest = np.linalg.norm(parts[:, None] - parts, axis=2).max()
        assert 0.6 * 4 * 20 < longest <= 4 * 20
        assert longest < furthest <= 2 * 4 * 20

    def test_a_row_moves_its_own_part_alone(self):
        coef = RNG.normal(size=(3, 3))
        rows, labels = ROWS.copy(), LABELS.copy()
        rows[7], labels[7] = (9.0, -1.0, 4.0), 2
        moved = table(coef, rows=rows, labels=labels) - table(coef)
        part_sums = [
            residual_sums(voter().cells.lines(r[7:8]), y[7:8], coef, resolution=20, clip=0.5, parts=4)
            for r, y in ((rows, labels), (ROWS, LABELS))
        ]
        np.testing.assert_array_equal(moved, part_sums[0] - part_sums[1])

    def test_a_row_counts_the_same_in_another_batch(self, monkeypatch):
        coef = RNG.normal(size=(3, 3))
        total = table(coef)
        monkeypatch.setattr("ostraka.voters.rows.ROWS", 7)
        np.testing.assert_array_equal(table(coef), total)

    @pytest.mark.parametrize("coef", [1e300, 1.7e308, -1.7e308])
    @pytest.mark.parametrize("clip", [0.5, 5e-324])
    def test_rows_that_overflow_count_nothing_and_no_warning_tells_of_them(self, coef, clip):
        # warnings are errors in these tests
        large_coef = np.array([[coef, -coef, 0.0]] * 3)
        sums = table(large_coef, clip=clip)
        assert np.linalg.norm(sums.astype(float)) <= len(ROWS) * 4 * 20

    def test_a_model_that_is_sure_and_right_leaves_nothing(self):
        cells = FeatureCells(FunctionTransformer(), n_features=2, resolution=64).fit(RNG.normal(size=(50, 2)))
        rows = RNG.normal(size=(200, 2))
        lines = cells.lines(rows)
        coef = np.array([[1e4, -1e4], [0.0, 0.0], [0.0, 0.0]])
        labels = (lines[:, 0] < 0).astype(int)
        sure = lines[:, 0] != 0
        table_voter = RowVoter(cells=cells).fit(rows[sure], labels[sure], classes=[0, 1])
        assert not table_voter.residuals(coef, clip=0.5, parts=8).open().any()


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"clip": 0.0}, "clip"),
            ({"clip": math.nan}, "clip"),
            ({"parts": 0}, "parts"),
            ({"parts": 2.5}, "parts"),
            ({"parts": 2**20 + 1}, "parts must be so few"),
            ({"parts": 2**48}, "parts must be so few"),
            ({"coef": np.zeros((2, 3))}, "shape"),
            ({"coef": np.full((3, 3), np.nan)}, "finite"),
        ],
    )
    def test_bad_settings(self, settings, named):
        settings = {"coef": np.zeros((3, 3)), "clip": 0.5, "parts": 4} | settings
        with pytest.raises((ValueError, TypeError), match=named):
            voter().residuals(settings.pop("coef"), **settings)

    def test_cells_without_features_of_their_own(self):
        cells = GraphCells(n_cells=4).fit(PUBLIC)
        rows = RowVoter(cells=cells).fit(ROWS, LABELS, classes=range(3))
        with pytest.raises(ValueError, match="for residuals FeatureCells"):
            rows.residuals(np.zeros((4, 3)), clip=0.5, parts=4)
