"""Features of each row's own: lines of bounded length whatever a row holds, tables that move as stated."""

import itertools

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from ostraka import Budget, Ledger, release
from ostraka.accounting import calibrate
from ostraka.mechanisms import NoisyCounts
from ostraka.students import SmoothedCounts
from ostraka.voters import RowVoter
from ostraka.voters.cells import GraphCells
from ostraka.voters.rows import FeatureCells

IMAGES, DIGITS = load_digits(return_X_y=True)
PUBLIC, PRIVATE, LABELS = IMAGES[:350], IMAGES[500:], DIGITS[500:]
AS_IT_IS = FunctionTransformer()
PLANE = np.random.default_rng(0).normal(size=(300, 2))


@pytest.fixture(scope="module")
def cells():
    return FeatureCells(PCA(50, random_state=0).fit(PUBLIC), n_features=40).fit(PUBLIC)


def counted(cells, X, y, groups=None, **settings):
    return RowVoter(cells=cells, **settings).fit(X, y, groups, classes=range(10)).vote()


class TestLines:
    def test_are_half_whitened_rows_of_one_length(self, cells):
        lines = cells.lines(PRIVATE)
        assert lines.dtype == np.int64
        public_lines, hidden = (cells.transform.transform(rows) for rows in (PUBLIC, PRIVATE))
        by_hand = PCA(40, svd_solver="full").fit(public_lines)
        half = by_hand.explained_variance_**-0.25
        signs = np.sign((cells.features_[:, :-1] * by_hand.transform(public_lines)).sum(axis=0))
        for scale, is_it in ((half, True), (half**2, False), (np.ones(40), False)):
            scaled = signs * scale * by_hand.transform(hidden)
            unit = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
            long = 1024 * np.sqrt(1 - 0.2**2)
            assert ((unit * lines[:, :-1] / long).sum(axis=1).min() > 0.99) == is_it
        assert (lines[:, -1] == 205).all()
        np.testing.assert_array_equal(cells.features_ * 1024, cells.lines(PUBLIC))

    def test_a_row_beyond_all_measure_counts_as_one_a_million_times_as_far_as_public_rows(self, cells):
        outliers, furthest = PRIVATE[:4].copy(), PRIVATE[:4].copy()
        outliers[:, 20], furthest[:, 20] = 1e300, 1e6 * PUBLIC.max()
        np.testing.assert_array_equal(cells.lines(outliers), cells.lines(furthest))

    def test_a_subclass_may_whiten_them_wholly(self, cells):
        class Whitened(FeatureCells):
            whitening_power = 0.5

        white = Whitened(cells.transform, n_features=40).fit(PUBLIC)
        rows = (cells.transform.transform(PUBLIC) - white.middle_) @ white.whitening_
        np.testing.assert_allclose(rows.T @ rows / len(rows), np.eye(40), atol=1e-9)

    def test_are_never_longer_than_the_resolution(self, cells):
        rng = np.random.default_rng(0)
        large, small = (size * rng.normal(size=(20, 64)) for size in (1e200, 1e-200))
        single = np.stack([np.zeros(64), PUBLIC.mean(axis=0), np.full(64, 1e250)])
        odd = np.concatenate([PRIVATE, single, large, small])
        assert ((cells.lines(odd) ** 2).sum(axis=1) <= 1024**2).all()

    @pytest.mark.parametrize(
        ("made", "rows", "says"),
        [
            (FeatureCells(AS_IT_IS, n_features=0), PUBLIC, "n_features must be an integer >= 1"),
            (FeatureCells(AS_IT_IS, resolution=1), PUBLIC, "resolution must be an integer >= 2"),
            (FeatureCells(AS_IT_IS, resolution=2**21), PUBLIC, "resolution must be at most 1,048,576"),
            (GraphCells(resolution=2**21), PUBLIC, "resolution must be at most 1,048,576"),
            (FeatureCells(AS_IT_IS), np.ones((20, 3)), "rows that differ"),
            (FeatureCells(AS_IT_IS), np.full((20, 3), np.nan), "must be finite"),
            (FeatureCells(), np.ones((20, 3)), "rows that differ"),
            (FeatureCells(), PUBLIC[:1], "rows that differ, got 1"),
            (FeatureCells(AS_IT_IS), PUBLIC[:1], "rows that differ, got 1"),
            (FeatureCells(), 1e300 * PUBLIC, "X must hold numbers up to 1e"),
            (FeatureCells(AS_IT_IS), 1e160 * PUBLIC, "what transform returns must hold numbers up to"),
            (FeatureCells(), PUBLIC[:0], "X must be numbers"),
            (FeatureCells(), [[1.0, 2.0], [3.0]], "X must be numbers"),
        ],
    )
    def test_refuses(self, made, rows, says):
        with pytest.raises(ValueError, match=says):
            made.fit(rows)


class TestSensitivity:
    def moves(self, n_classes):
        """A table, how far it moves where one row is replaced, and its voter."""
        cells = FeatureCells(AS_IT_IS).fit(PLANE)
        rows, labels, classes = PLANE[:20] + 0.1, np.arange(20) % n_classes, range(n_classes)
        voter = RowVoter(cells=cells).fit(rows, labels, classes=classes)
        table, moved = voter.vote().open(), []
        for angle, label in itertools.product(np.linspace(0, 2 * np.pi, 31), (0, 1)):
            X, y = rows.copy(), labels.copy()
            X[0], y[0] = 5 * np.array([np.cos(angle), np.sin(angle)]), label
            votes = RowVoter(cells=cells).fit(X, y, classes=classes).vote()
            moved.append(np.linalg.norm(votes.open() - table))
        return table, max(moved), voter

    def test_a_replaced_row_moves_the_table_as_far_as_stated_and_no_further(self):
        _, moved, voter = self.moves(10)
        assert voter.adjacency_.l2 == 2048
        assert 0.97 * 2048 < moved <= 2048  # constants are the same

    def test_two_classes_release_their_difference_and_move_as_far_as_stated(self):
        table, moved, voter = self.moves(2)
        lines, labels = voter.cells.lines(PLANE[:20] + 0.1), np.arange(20) % 2
        np.testing.assert_array_equal(table[:, 1], lines.T @ (2 * labels - 1))
        np.testing.assert_array_equal(table[:, 0], -table[:, 1])
        assert voter.ballot_ == 2
        assert voter.adjacency_.l2 == 2048 * np.sqrt(2)
        assert 0.98 * voter.adjacency_.l2 < moved <= voter.adjacency_.l2

    @pytest.mark.parametrize("n_classes", [2, 10])
    def test_a_row_that_is_left_out_moves_the_table_by_its_own_line(self, n_classes):
        cells = FeatureCells(AS_IT_IS).fit(PLANE)
        rows, labels, classes = PLANE[:20] + 0.1, np.arange(20) % n_classes, range(n_classes)
        voter = RowVoter(cells=cells, relation="zero-out").fit(rows, labels, classes=classes)
        table, moved = voter.vote().open(), []
        for row in range(20):  # others stay in their places
            voter._weights = lambda row=row: np.where(np.arange(20) == row, 0, 1).__getitem__
            moved.append(np.linalg.norm(voter.vote().open() - table))
        assert voter.adjacency_.relation == "zero-out"
        assert voter.adjacency_.l2 == (1024 * np.sqrt(2) if n_classes == 2 else 1024)
        assert 0.99 * voter.adjacency_.l2 < max(moved) <= voter.adjacency_.l2

    def test_persons_with_several_rows_are_refused(self, cells):
        with pytest.raises(ValueError, match="groups must be None"):
            counted(cells, PRIVATE[:40], LABELS[:40], np.repeat(np.arange(10), 4))

    def test_a_line_that_is_too_long_is_refused(self, cells, monkeypatch):
        plain = FeatureCells.lines
        monkeypatch.setattr(FeatureCells, "lines", lambda self, X: 2 * plain(self, X))
        with pytest.raises(ValueError, match="longer than half of their reach"):
            counted(cells, PRIVATE[:20], LABELS[:20])

    @pytest.mark.parametrize("reach", [float("nan"), 1.0])
    def test_a_reach_that_does_not_hold_is_refused(self, reach):
        class Own(BaseEstimator):
            reach_ = reach

            def fit(self, _):
                return self

            def is_of(self, _):
                return False

            def lines(self, X):
                return np.full((len(X), 2), 2**40)

        with pytest.raises(ValueError, match="longer than half of their reach"):
            counted(Own(), PRIVATE[:20], LABELS[:20])

    def test_a_reach_beside_codebooks_is_not_believed(self):
        cells = GraphCells(n_cells=5).fit(PUBLIC)
        cells.reach_ = 0.01
        assert counted(cells, PRIVATE, LABELS).adjacency.l2 == pytest.approx(np.sqrt(2))

    def test_a_table_that_would_leave_64_bits_is_refused(self):
        cells = GraphCells(n_cells=5).fit(PUBLIC)
        cells.codebooks_ = [cells.codebooks_[0] * 2**58]
        with pytest.raises(ValueError, match="fit into 64 bits"):
            counted(cells, PRIVATE, LABELS)

    def test_cells_of_the_private_rows_are_refused(self):
        cells = FeatureCells(AS_IT_IS).fit(PRIVATE)
        for rows in (PRIVATE, PRIVATE.copy()):
            with pytest.raises(ValueError, match="cells must come from public rows"):
                counted(cells, rows, LABELS)
        assert len(counted(cells, PRIVATE[::-1].copy(), LABELS)), "as many rows, but others"


class TestLearning:
    def taught(self, cells, labels, epsilon):
        votes = counted(cells, PRIVATE, labels)
        sensitivity = votes.adjacency.l2
        sigma = calibrate(
            lambda s: NoisyCounts(sigma=s, l2=sensitivity), n_answers=1, epsilon=epsilon, delta=1e-4
        )
        with Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-4, adaptive=False)) as ledger:
            counts = release(
                NoisyCounts(sigma=sigma, l2=sensitivity), votes, ledger=ledger, rng=np.random.default_rng(0)
            )
        student = SmoothedCounts().fit(
            cells.features_, counts / 1024, sigma=sigma / 1024, n_units=len(labels), features=cells.features_
        )
        np.testing.assert_array_equal(student.predict(cells.features_), student.labels_)
        return (student.predict(cells.lines(IMAGES[350:500]) / 1024) == DIGITS[350:500]).mean()

    def test_new_rows_are_told_apart_and_shuffled_labels_teach_nothing(self, cells):
        assert self.taught(cells, LABELS, 8.0) > 0.8  # chance is 0.1
        shuffled = np.random.default_rng(1).permutation(LABELS)
        assert self.taught(cells, shuffled, 8.0) < 0.3

    def test_the_default_features_are_a_kernel_with_public_rows(self):
        default = FeatureCells(n_features=40).fit(PUBLIC)
        assert self.taught(default, LABELS, 10.0) > 0.6  # chance is 0.1
        np.testing.assert_array_equal(default.lines(PRIVATE.reshape(-1, 8, 8)), default.lines(PRIVATE))
        wild = np.concatenate([PRIVATE[:2], np.full((1, 64), np.nan), np.full((1, 64), 1.7e308)])
        np.testing.assert_array_equal(default.lines(wild)[:2], default.lines(PRIVATE[:2]))


def test_a_row_in_the_middle_of_the_public_rows_has_no_direction():
    public = np.array([[1.0, 2.0], [3.0, -2.0], [-4.0, 1.0], [0.0, -1.0]])
    cells = FeatureCells(AS_IT_IS, n_features=2).fit(public)
    assert cells.features([[0.0, 0.0]]).tolist() == [[0.0, 0.0, cells.constant]]
