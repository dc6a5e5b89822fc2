"""Row voting: one ballot in all, whoever's rows change; public cells only; second ballots are seen."""

import contextlib
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError

from ostraka import Budget, Ledger, release
from ostraka.mechanisms import NoisyCounts
from ostraka.voters import GraphCells, QuantileCells, RowVoter, rows
from ostraka.voters.rows import ValueVoter

IMAGES, DIGITS = load_digits(return_X_y=True)
PUBLIC, PRIVATE, LABELS = IMAGES[:200], IMAGES[200:500], DIGITS[200:500]


@pytest.fixture(scope="module")
def spread():
    return GraphCells(image_shape=(8, 8), n_features=20).fit(PUBLIC)


@pytest.fixture(scope="module")
def clusters():
    return GraphCells(image_shape=(8, 8), n_cells=12).fit(PUBLIC)


def counted(cells, X, y, groups=None, **settings):
    return RowVoter(cells=cells, **settings).fit(X, y, groups, classes=range(10)).vote()


def moves(cells, rows, labels, groups=None, *, spare=(), **settings):
    """How far the table moves where a unit is left out, or its rows are replaced, and how far it says."""
    base = counted(cells, rows, labels, groups, **settings)
    assert base.adjacency.relation == settings.get("relation", "replace-one")
    owners = np.arange(len(rows)) if groups is None else groups
    for owner in np.unique(owners)[: 4 if spare else None]:
        mask = owners == owner
        others = [(rows[~mask], labels[~mask], None if groups is None else groups[~mask])]
        for row, label in spare:
            X, y = rows.copy(), labels.copy()
            X[mask], y[mask] = row, label
            others.append((X, y, groups))
        for replacement in others:
            table = counted(cells, *replacement, **settings)
            assert table.adjacency == base.adjacency
            yield np.linalg.norm(table.open() - base.open()), base.adjacency.l2


class TestTheTable:
    def test_of_clusters_is_the_plain_count(self, clusters):
        table = counted(clusters, PRIVATE, LABELS).open()
        cell = clusters.codebooks_[0].argmax(axis=1)[clusters.codes(PRIVATE)[:, 0]]
        expected = np.zeros((12, 10), dtype=int)
        np.add.at(expected, (cell, LABELS), 1)
        np.testing.assert_array_equal(table, expected)
        assert table.dtype == np.int64

    def test_of_features_is_the_sum_of_lines(self, spread):
        lines = spread.codebooks_[0][spread.codes(PRIVATE)[:, 0]]
        np.testing.assert_array_equal(
            counted(spread, PRIVATE, LABELS).open(), lines.T @ np.eye(10, dtype=int)[LABELS]
        )

    def test_of_columns_has_every_row_once_a_column(self):
        X, y = load_iris(return_X_y=True)
        cells = QuantileCells(n_bins=3).fit(X[::3])
        table = RowVoter(cells=cells).fit(X[1::3], y[1::3], classes=range(3)).vote()
        cuts = np.cumsum([len(book) for book in cells.codebooks_])[:-1]
        for part in np.split(table.open(), cuts):
            np.testing.assert_array_equal(part.sum(axis=0), np.bincount(y[1::3]))
        assert table.adjacency.l2 == math.sqrt(8)


class TestSensitivity:
    @pytest.mark.parametrize("kind", ["spread", pytest.param("clusters", marks=pytest.mark.slow)])
    def test_one_row_moves_the_table_no_further_than_stated(self, kind, request):
        cells = request.getfixturevalue(kind)
        spare = list(zip(IMAGES[500:540], DIGITS[500:540], strict=True))
        distances = list(moves(cells, PRIVATE[:40], LABELS[:40], spare=spare))
        assert all(moved <= stated for moved, stated in distances)
        assert max(moved for moved, _ in distances) > 0.95 * distances[0][1]

    def test_a_person_with_several_rows_shares_one_ballot(self, spread):
        groups = np.repeat(np.arange(10), 4)
        spare = list(zip(IMAGES[500:520], DIGITS[500:520], strict=True))
        distances = list(moves(spread, PRIVATE[:40], LABELS[:40], groups, spare=spare, units=12))
        assert all(moved <= stated for moved, stated in distances)
        assert distances[0][1] == pytest.approx(12 * math.sqrt(2) * 256, rel=0.05)

    @pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 2), (13, 40, 3)])
    def test_shared_parts_sum_to_the_ballot_for_everybody(self, clusters, sizes):
        groups = np.repeat([30, 10, 20], sizes)
        X, y = PRIVATE[: len(groups)], LABELS[: len(groups)]
        table = counted(clusters, X, y, groups, units=12)
        assert table.open().sum() == 36
        assert table.adjacency.unit == "person"

    def test_a_persons_parts_do_not_depend_on_other_people(self, clusters):
        groups = np.array([1] * 5 + [2] * 3 + [3] * 14)
        X, y = PRIVATE[:22], LABELS[:22]
        voter = RowVoter(cells=clusters).fit(X, y, groups, classes=range(10))
        fewer = RowVoter(cells=clusters).fit(X[:8], y[:8], groups[:8], classes=range(10))
        shares = voter._weights()
        parts = [shares(slice(start, start + 4)) for start in (0, 4, 8)]  # as blocks of rows come, in order
        np.testing.assert_array_equal(np.concatenate(parts[:2]), fewer._weights()(slice(0, 8)))
        np.testing.assert_array_equal(np.concatenate(parts), voter._weights()(slice(0, 12)))

    def test_a_sampled_person_casts_one_whole_ballot(self, clusters):
        groups = np.repeat(np.arange(30), 10)
        voter = RowVoter(cells=clusters, person="sampled").fit(PRIVATE, LABELS, groups, classes=range(10))
        weights = [voter._weights()(slice(0, 300)).reshape(30, 10) for _ in range(3)]
        assert all((weight.sum(axis=1) == 1).all() for weight in weights)
        assert voter.adjacency_.l2 == math.sqrt(2)
        # three equal draws of 30 rows out of 10 each have a chance of 10^-60
        assert any((weight != weights[0]).any() for weight in weights[1:])


class TestLeftOut:
    """Under zero-out a unit counts nothing: the table is then that of all others."""

    @pytest.mark.parametrize(("kind", "reached"), [("spread", 0.98), ("clusters", 1.0)])
    def test_one_row_moves_the_table_no_further_than_stated(self, kind, reached, request):
        distances = list(moves(request.getfixturevalue(kind), PRIVATE[:40], LABELS[:40], relation="zero-out"))
        assert all(reached * stated <= moved <= stated for moved, stated in distances)

    def test_one_row_moves_bins_by_the_root_of_the_columns(self):
        X, y = load_iris(return_X_y=True)
        cells = QuantileCells(n_bins=3).fit(X[::3])
        distances = list(moves(cells, X[1::3], y[1::3], relation="zero-out"))
        assert {float(norm) for pair in distances for norm in pair} == {2.0}

    def test_a_person_with_several_rows_shares_one_ballot(self, spread):
        groups = np.repeat(np.arange(10), 4)
        distances = list(moves(spread, PRIVATE[:40], LABELS[:40], groups, relation="zero-out", units=12))
        assert all(moved <= stated for moved, stated in distances)
        assert distances[0][1] == pytest.approx(12 * 256, rel=0.02)

    def test_tables_of_the_two_relations_are_not_taken_for_each_other(self, clusters):
        with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-4)) as ledger:
            for table, promised in itertools.permutations(["replace-one", "zero-out"]):
                votes = counted(clusters, PRIVATE, LABELS, relation=table)
                with pytest.raises(ValueError, match="hides"):
                    release(NoisyCounts(sigma=3.0, relation=promised), votes, ledger=ledger)
            assert not ledger.entries()

    def test_other_relations_are_refused(self, clusters):
        with pytest.raises(ValueError, match="relation must be one of"):
            counted(clusters, PRIVATE, LABELS, relation="add-or-remove")


class TestTheDoor:
    def test_released_counts_are_charged_once(self, clusters):
        votes = counted(clusters, PRIVATE, LABELS)
        mechanism = NoisyCounts(sigma=3.0)
        with Ledger(":memory:", budget=Budget(epsilon=3.0, delta=1e-4)) as ledger:
            assert release(mechanism, votes, ledger=ledger).shape == (12, 10)
            assert ledger.spent().epsilon(1e-4) == pytest.approx(mechanism.curve().epsilon(1e-4))

    def test_noise_for_clusters_is_too_little_for_columns(self):
        X, y = load_iris(return_X_y=True)
        cells = QuantileCells(n_bins=3).fit(X[::3])
        votes = RowVoter(cells=cells).fit(X[1::3], y[1::3], classes=range(3)).vote()
        with Ledger(":memory:", budget=Budget(epsilon=9.0, delta=1e-4)) as ledger:
            with pytest.raises(ValueError, match="hides"):
                release(NoisyCounts(sigma=3.0), votes, ledger=ledger)
            assert not ledger.entries()


class Lines(BaseEstimator):
    """Cells that give these lines, and state this reach."""

    features_ = np.zeros((1, 2))

    def __init__(self, lines, reach):
        self.lines, self.reach_ = lines, reach

    def fit(self, X):
        return self

    def is_of(self, X):
        return False


class TestLimits:
    """Sums of whole numbers are exact up to these, and a refusal is the least that is beyond them."""

    @pytest.mark.parametrize(("relation", "share"), [("replace-one", 1.0), ("zero-out", 0.5)])
    def test_parts_and_rows_whose_sums_floats_hold(self, relation, share):
        def move(parts, n_rows, reach=2.0):
            cells = SimpleNamespace(reach_=reach)
            voter = SimpleNamespace(cells=cells, relation=relation, unit_="person")
            adjacency = rows.adjacency_of(voter, parts=parts, n_rows=n_rows)
            assert (adjacency.unit, adjacency.relation) == ("person", relation)
            return adjacency.l2

        assert move(1, 1) == 2.0 * share
        assert move(2**20, 2**31 - 1) == 2.0**21 * share
        assert move(1, 2**51 - 1) == 2.0 * share
        for parts, n_rows in ((2**20, 2**31), (2**20 + 1, 1), (1, 2**51)):
            with pytest.raises(
                ValueError, match=rf"parts must be so few .* {n_rows:,} rows .* at most 1,048,576"
            ):
                move(parts, n_rows)

    @pytest.mark.parametrize(("n_rows", "is_taken"), [(2**11 - 1, True), (2**11, False)])
    def test_rows_whose_counts_fit_into_64_bits(self, n_rows, is_taken):
        cells = Lines(lambda X: np.zeros((len(X), 2), dtype=np.int64), 2.0**51)
        voter, X = RowVoter(cells=cells), np.zeros((n_rows, 1))
        with contextlib.nullcontext() if is_taken else pytest.raises(ValueError, match="fit into 64 bits"):
            voter.fit(X, np.arange(n_rows) % 3, classes=range(3))

    @pytest.mark.parametrize("length", [127, 128, 2**15 - 1, 2**15, 2**31])
    def test_lines_are_as_long_as_half_of_the_reach_and_no_longer(self, length):
        for sign in (1, -1):
            lines = np.array([[sign * length, 0], [0, 0]])
            kept = rows.lines_of(Lines(lambda _X, lines=lines: lines, 2.0 * length), None)
            np.testing.assert_array_equal(kept, lines)
            assert kept.itemsize == next(n for n in (1, 2, 4, 8) if length < 2 ** (8 * n - 1))
            with pytest.raises(ValueError, match="longer than half of their reach"):
                rows.lines_of(Lines(lambda _X, lines=lines: lines, np.nextafter(2.0 * length, 0)), None)
        for wrong in (lines[0], lines.astype(float), lines.astype(np.int32)):
            with pytest.raises(ValueError, match="cells must give lines of int64, got"):
                rows.lines_of(Lines(lambda _X, wrong=wrong: wrong, 2.0 * length), None)

    @pytest.mark.parametrize(("relation", "most"), [("replace-one", math.sqrt(2)), ("zero-out", 2)])
    @pytest.mark.parametrize("reach", [3.0, 128.0, 2048.0])
    def test_a_distance_weighs_as_much_as_the_stated_move_allows(self, relation, most, reach):
        voter = ValueVoter(cells=SimpleNamespace(reach_=reach), bounds=(0.0, 1.0), relation=relation)
        for parts in (1, 7, 1000):
            weight = voter.weight(parts=parts)
            assert weight * most <= parts * reach < (weight + 1) * most

    @pytest.mark.parametrize("n_rows", [0, 1, 8191, 8192, 8193])
    def test_blocks_hold_8192_rows(self, n_rows):
        lines = np.arange(n_rows)[:, None]
        blocks = list(rows.blocks_of(lines))
        assert [(some.start, some.stop) for some, _ in blocks] == [
            (start, start + 8192) for start in range(0, n_rows, 8192)
        ]
        assert all(np.array_equal(block, lines[some]) for some, block in blocks)

    def test_distances_are_in_the_bin_between_their_edges(self):
        apart = np.concatenate([rows.DISTANCES, np.nextafter(rows.DISTANCES, 9), rows.DISTANCES / 1.2])
        apart = apart[apart <= 2]
        found = rows.distance_bins(np.zeros((len(apart), 1)), apart)
        below = [max(0, int((value > rows.DISTANCES).sum()) - 1) for value in apart]
        assert found.tolist() == below
        assert len(rows.DISTANCES) == 18
        assert rows.DISTANCES[-1] == 2
        np.testing.assert_allclose(rows.DISTANCES[2:] / rows.DISTANCES[1:-1], math.sqrt(2))

    @pytest.mark.parametrize(
        "bounds",
        [(1.0, 1.0), (2.0, 1.0), (-1e308, 1e308), (0.0, math.inf), (math.nan, 1.0), (1,), "ab", None],
    )
    def test_bounds_are_in_order_and_a_finite_distance_apart(self, bounds):
        with pytest.raises(
            ValueError, match="bounds must be numbers a finite distance apart, the low one first"
        ):
            rows.scaled([0.5], bounds)
        values = rows.scaled([-1.0, 2.0, 3.0, 4.0, 9.0, np.nan], (2.0, 4.0))
        assert values[:-1].tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]
        assert np.isnan(values[-1])
        for wrong in (["a"], [[1.0]], 1.0):
            with pytest.raises(ValueError, match="y must be numbers in one dimension"):
                rows.scaled(wrong, (2.0, 4.0))


class TestRefusals:
    def test_of_cells_that_were_never_fitted(self):
        with pytest.raises(NotFittedError):
            RowVoter(cells=GraphCells()).fit(PRIVATE, LABELS)

    @pytest.mark.parametrize("shares_rows", [lambda X: X, lambda X: X[:100], lambda X: X.copy()])
    def test_of_cells_fitted_on_the_private_rows(self, shares_rows):
        cells = GraphCells(image_shape=(8, 8), n_cells=5).fit(shares_rows(PRIVATE))
        with pytest.raises(ValueError, match="public rows"):
            RowVoter(cells=cells).fit(PRIVATE, LABELS)

    def test_of_cells_that_say_more_than_their_codebooks(self, clusters):
        class Wrong(BaseEstimator):
            codebooks_ = clusters.codebooks_
            answer = np.array([[0], [200]])

            def fit(self, X):
                return self

            def codes(self, X):
                return self.answer

            def is_of(self, X):
                return False

        for answer in ([[0], [200]], [[0], [-1]], [[0, 0], [0, 0]], [[0.5], [0.0]]):
            wrong = Wrong()
            wrong.answer = np.array(answer)
            with pytest.raises(ValueError, match="cells"):
                RowVoter(cells=wrong).fit(PRIVATE[:2], LABELS[:2], classes=range(10))

    def test_of_other_lengths_settings_and_manifests(self, clusters):
        with pytest.raises(ValueError, match="one label"):
            RowVoter(cells=clusters).fit(PRIVATE, LABELS[:-1])
        with pytest.raises(ValueError, match="one person"):
            RowVoter(cells=clusters).fit(PRIVATE, LABELS, [1, 2])
        with pytest.raises(ValueError, match="person must be"):
            RowVoter(cells=clusters, person="all").fit(PRIVATE, LABELS)
        with pytest.raises(ValueError, match="units must be an integer >= 1"):
            RowVoter(cells=clusters, units=0).fit(PRIVATE, LABELS)
        manifest = RowVoter(cells=clusters, units=1).fit(PRIVATE[:50], LABELS[:50]).manifest_
        with pytest.raises(ValueError, match="manifest"):
            RowVoter(cells=clusters, manifest=manifest).fit(PRIVATE, LABELS)

    def test_classes_from_private_labels_are_noted(self, clusters):
        assert RowVoter(cells=clusters).fit(PRIVATE, LABELS).notes_
        assert not RowVoter(cells=clusters).fit(PRIVATE, LABELS, classes=range(10)).notes_
