"""The public spectrum and gradients of it: whole numbers of bounded length, whatever a row holds."""

import contextlib
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from ostraka import PATEClassifier
from ostraka.voters import GraphCells, RowVoter
from ostraka.voters.rows import DISTANCES, ValueVoter, balanced_residuals, probabilities
from ostraka.voters.spectrum import (
    Dictionary,
    FeatureCells,
    Interactions,
    Spectrum,
    filled,
    kernel_features,
)

RNG = np.random.default_rng(0)
PUBLIC, ROWS = RNG.normal(size=(80, 3)), RNG.normal(size=(30, 3))
LABELS, PARTS = RNG.integers(0, 3, size=30), 9
CELLS = Spectrum(noise=0.02).fit(PUBLIC)
HOSTILE = (-1e300, -0.4, 0.0, np.nan, np.inf, 1.3)
MODELS = {"posed first": 0.0, "later": 3.0, "sure": 1e6}


def voter(n_classes=3, rows=ROWS, labels=LABELS, people=None, **settings):
    cells = RowVoter(cells=CELLS, person="mean", **settings)
    return cells.fit(rows, labels % n_classes, people, classes=range(n_classes))


def coefficients(n_classes, size):
    shape = len(CELLS.variances_) + 1, 1 if n_classes == 2 else n_classes
    return size * np.random.default_rng(1).normal(size=shape)


class TestWaterFilling:
    @pytest.mark.parametrize("noise", [0.001, 0.05, 2.0])
    def test_leaves_the_least_posterior_variance_of_all_shares(self, noise):
        variances = np.array([0.4, 0.3, 0.2, 0.09, 0.01])

        def left(shares):
            return float((variances * noise / (noise + shares * variances)).sum())

        start = np.full(5, 0.2)
        best = minimize(
            left,
            start,
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda b: b.sum() - 1},
            tol=1e-12,
        )
        found = filled(variances, noise)
        assert found.sum() == pytest.approx(1.0)
        assert left(found) <= left(best.x) + 1e-9


class TestTheDictionary:
    def test_a_frame_with_kinds_missing_cells_and_strangers_is_finite_and_of_each_row_alone(self):
        public = pd.DataFrame({"n": [*range(38), None, 2], "kind": ["a", "b"] * 20, "flag": [0, 1] * 20})
        dictionary = Dictionary().fit(public)
        strange = pd.DataFrame({"n": [1e308, None, 5], "kind": ["zz", None, "a"], "flag": [0, 7, None]})
        together = dictionary.transform(strange)
        assert np.isfinite(together).all()
        alone = np.vstack([dictionary.transform(strange.iloc[[k]]) for k in range(3)])
        np.testing.assert_array_equal(together, alone)

    def test_a_number_becomes_itself_within_its_public_range_and_waves_of_its_rank(self):
        """Of numbers that repeat, each has a bin: then the functions are exact."""
        values, times = np.array([-50.0, 0.0, 1.0, 3.0, 4.0, 90.0]), np.array([1, 50, 60, 40, 48, 1])
        numbers = np.repeat(values, times)
        rng = np.random.default_rng(0)
        numbers = rng.permutation(np.concatenate([numbers, np.full(20, np.nan)]))
        functions = Dictionary().fit(pd.DataFrame({"n": numbers})).transform(pd.DataFrame({"n": numbers}))
        clipped = np.clip(np.repeat(values, times), *np.quantile(np.repeat(values, times), [0.01, 0.99]))
        start = np.cumsum(times) - times
        for value, n_times, first in zip(values, times, start, strict=True):
            got = functions[numbers == value]
            assert (got == got[0]).all()
            line = (clipped[first] - clipped.mean()) / clipped.std()
            rank = (first + n_times / 2) / 200
            waves = [np.sqrt(0.5) / order * np.cos(np.pi * rank * order) for order in range(1, 6)]
            np.testing.assert_allclose(got[0], [line, *waves, 0.0], atol=1e-12)
        waves = np.average(functions[~np.isnan(numbers), 1:6], axis=0)  # of those that are known
        np.testing.assert_allclose(functions[np.isnan(numbers)][0], [0.0, *waves, 1.0], atol=1e-12)

    def test_two_numbers_one_number_and_kinds_become_shares(self):
        flags = [2.0] * 30 + [6.0] * 10
        table = pd.DataFrame({"two": flags, "one": [7.0] * 40, "kind": ["a", "b"] * 20})
        table.loc[0, ["two", "one"]] = np.nan
        functions = Dictionary().fit(table).transform(table)
        assert functions.shape == (40, 2 + 1 + 3)
        assert functions[1].tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        assert functions[39].tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        np.testing.assert_allclose(functions[0], [10 / 39, 1.0, 1.0, 1.0, 0.0, 0.0])

    def test_a_number_that_nearly_all_rows_share_reaches_from_the_least_to_the_largest(self):
        numbers = np.array([5.0] * 300 + [1.0, 9.0, 4.0])
        functions = Dictionary().fit(numbers[:, None]).transform(numbers[:, None])
        line = (numbers - numbers.mean()) / numbers.std()
        assert functions[0, 0] == pytest.approx(line[0])  # its own bin
        assert functions[301, 0] > 0 > functions[300, 0]


def plain_features(table, noise, most=200):
    """Principal directions with the shares of water-filling, one after the other: features and variances."""
    middle = table.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(table.T, bias=True))
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    kept = values > 1e-9 * values.max()
    values, vectors = values[kept], vectors[:, kept]
    relative = values / values.sum()
    shares = filled(relative, (2.8 * noise) ** 2)
    kept = shares > 1e-3 * shares.max()
    shares = shares[kept] / shares[kept].sum()
    scores = (table - middle) @ vectors[:, kept] / np.sqrt(values[kept])
    whole = np.column_stack([scores * np.sqrt(shares), np.full(len(table), 0.5)])
    return whole / np.linalg.norm(whole, axis=1, keepdims=True), relative[kept] / shares


class TestFeatures:
    @pytest.mark.parametrize("noise", [0.0, 0.02, 0.15])
    def test_are_principal_directions_with_shares_by_the_noise(self, noise):
        rng = np.random.default_rng(4)
        public = rng.normal(size=(120, 4)) @ np.diag([5.0, 2.0, 1.0, 0.01]) + 3.0
        for cells, table in (
            (Spectrum(FunctionTransformer(), noise=noise), public),
            (Spectrum(noise=noise), Dictionary().fit(public).transform(public)),
        ):
            cells.fit(public)
            expected, variances = plain_features(table, noise)
            found = cells.features(public)
            signs = np.sign((found * expected).sum(axis=0))
            np.testing.assert_allclose(cells.variances_, variances, rtol=1e-6)
            np.testing.assert_allclose(found * signs, expected, atol=1e-6)
            np.testing.assert_array_equal(cells.lines(public), cells.features_ * 64)
            assert np.abs(cells.lines(public) - 63 * found).max() < 1  # rounded, or towards zero
            assert cells.reach_ == 128.0

    def test_of_cells_are_half_whitened_beside_a_constant(self):
        public = np.random.default_rng(4).normal(size=(120, 4)) @ np.diag([5.0, 2.0, 1.0, 1e-6]) + 3.0
        cells = FeatureCells(FunctionTransformer(), n_features=3, resolution=4096).fit(public)
        apart = public - public.mean(axis=0)
        values, vectors = np.linalg.eigh(apart.T @ apart / 120)
        white = (apart @ vectors / values**0.25)[:, :0:-1]  # of the largest variances first; the last is lost
        unit = white / np.linalg.norm(white, axis=1, keepdims=True)
        expected = np.column_stack([np.sqrt(1 - 0.2**2) * unit, np.full(120, 0.2)])
        found = cells.features(public)
        np.testing.assert_allclose(found * np.sign((found * expected).sum(axis=0)), expected, atol=1e-9)
        np.testing.assert_allclose(cells.features_, 4095 / 4096 * found, atol=1 / 4096)
        for unit in (1e-9, 1e9):  # the unit of the columns does not matter
            scaled = (
                FeatureCells(FunctionTransformer(), n_features=3).fit(unit * public).features(unit * public)
            )
            np.testing.assert_allclose(np.abs(scaled), np.abs(found), atol=1e-9)
        for n_features, n_public, n_columns in ((None, 9, 1), (None, 120, 12), (None, 9999, 500), (7, 5, 5)):
            assert FeatureCells(n_features=n_features).n_columns(n_public) == n_columns

    def test_without_a_transformer_are_kernels_of_principal_components(self):
        rows = np.random.default_rng(4).normal(size=(60, 6)) * np.arange(1, 7)
        parts, kernel = kernel_features(rows)
        points = PCA(6).fit_transform(rows)
        apart = [((a - b) ** 2).sum() for a in points[:30] for b in points[30:]]
        assert kernel.gamma == pytest.approx(1 / np.median(apart))
        np.testing.assert_allclose(np.abs(parts.transform(rows)), np.abs(points), atol=1e-9)
        theirs = Nystroem(gamma=kernel.gamma, n_components=60, random_state=0)
        expected = theirs.fit_transform(parts.transform(rows))
        np.testing.assert_allclose(kernel.transform(parts.transform(rows)), expected, atol=1e-9)
        many = np.random.default_rng(4).normal(size=(1003, 151))
        parts, kernel = kernel_features(many)
        assert [len(part.components_) for part in (parts, kernel)] == [150, 1000]
        points = parts.transform(many)
        assert kernel.gamma == pytest.approx(
            1 / np.median(cdist(points[:500], points[500:1000], "sqeuclidean"))
        )

    @pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
    def test_so_many_of_the_largest_variances_are_computed_and_no_more(self, shape):
        apart = np.random.default_rng(4).normal(size=shape)
        apart[:, 3] = 0.0
        apart -= apart.mean(axis=0)
        expected = np.linalg.svd(apart)[1] ** 2 / len(apart)
        rank = min(shape) - 1  # of equal columns, or of centred rows
        for most in (1, 5, rank, 99):
            values, vectors = Spectrum()._largest(apart, most)
            np.testing.assert_allclose(values[::-1], expected[: min(most, rank)], rtol=1e-9)
            np.testing.assert_allclose(apart.T @ apart @ vectors / len(apart), vectors * values, atol=1e-9)
            np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-9)
            assert not vectors[3].any()
        values, vectors = Spectrum()._largest(np.zeros(shape), 5)
        assert (values.shape, vectors.shape) == ((0,), (shape[1], 0))

    def test_are_no_more_than_public_rows_and_than_200_of_columns_or_500_of_a_transformer(self):
        for cells, n_public, n_columns in (
            *((Spectrum(), n_public, n_columns) for n_public, n_columns in ((9, 9), (999, 500))),
            *((CELLS, n_public, n_columns) for n_public, n_columns in ((9, 9), (999, 200))),
            *((Spectrum(n_features=n), 30, n_columns) for n, n_columns in ((7, 7), (999, 30))),
        ):
            assert cells.n_columns(n_public) == n_columns

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            (np.ones((20, 3)), "rows that differ, got 20"),
            (np.full((20, 3), 1.1e100), "numbers up to 1e\\+100"),
        ],
    )
    def test_rows_that_say_nothing_or_too_much_are_refused(self, rows, words):
        for cells in (FeatureCells(), FeatureCells(FunctionTransformer()), Spectrum(FunctionTransformer())):
            with pytest.raises(ValueError, match=words):
                cells.fit(rows)

    def test_a_transformer_that_looks_at_the_rows_beside_is_refused(self):
        beside = FunctionTransformer(lambda rows: rows - rows.mean(axis=0))
        with pytest.raises(ValueError, match="map each row by itself"):
            FeatureCells(beside).fit(PUBLIC)
        with pytest.raises(TypeError, match="fitted transformer, got int"):
            FeatureCells(3).fit(PUBLIC)
        with pytest.raises(ValueError, match="transform must give 3 numbers a row, got 2"):
            FeatureCells(FunctionTransformer()).fit(PUBLIC).lines(ROWS[:, :2])

    @pytest.mark.parametrize(("share", "is_taken"), [(0.9e-3, True), (1.1e-3, False)])
    def test_a_thousandth_of_the_largest_number_may_be_rounding(self, share, is_taken):
        size = np.abs(PUBLIC).max(axis=0)
        beside = FunctionTransformer(lambda rows: rows + share * size * (5 < len(rows) < 81))
        with contextlib.nullcontext() if is_taken else pytest.raises(ValueError, match="each row by itself"):
            FeatureCells(beside).fit(PUBLIC)

    def test_functions_of_columns_are_those_of_frames_and_of_150_columns_at_most(self):
        wide = np.random.default_rng(2).normal(size=(12, 151))
        assert isinstance(Spectrum().fit(wide[:, :150]).transform_, Dictionary)
        assert isinstance(Spectrum().fit(pd.DataFrame(wide)).transform_, Dictionary)
        assert isinstance(Spectrum().fit(wide).transform_, Pipeline)


class TestLength:
    def test_the_model_sees_the_rows_that_are_summed(self):
        features = CELLS.features(ROWS)
        assert (np.linalg.norm(features, axis=1) <= 1 + 1e-12).all()
        np.testing.assert_allclose(CELLS.lines(ROWS) / 64, features, atol=1.6 / 64)

    def test_a_transformer_and_a_wide_table_have_lines_too(self):
        wide = np.random.default_rng(2).normal(size=(60, 160))
        for cells in (Spectrum(FunctionTransformer(), noise=0.01), Spectrum(noise=0.01)):
            lines = cells.fit(wide).lines(1e6 * wide)
            assert (np.linalg.norm(lines, axis=1) <= 64).all()
            assert lines.any()


class TestInteractions:
    def test_a_kernel_of_functions_as_wide_as_they_vary(self):
        rows = np.random.default_rng(5).normal(size=(900, 2))
        both = Interactions().fit(rows)
        table = Dictionary().fit(rows).transform(rows)
        centres = table[np.random.default_rng(0).permutation(900)[:800]]
        apart = ((table[:9, None] - centres) ** 2).sum(axis=2)
        expected = np.hstack([table[:9], np.exp(-apart / (2 * table.var(axis=0).sum()))])
        np.testing.assert_allclose(both.transform(rows[:9]), expected, atol=1e-12)

    def test_what_a_kernel_adds_is_at_right_angles_to_all_sums_of_functions(self):
        rows = np.random.default_rng(5).normal(size=(400, 3))
        cells = Spectrum(interactions=True, noise=1e-5).fit(rows)
        alone = Spectrum(noise=1e-5).fit(rows)
        white = (cells.transform_.transform(rows) - cells.middle_) @ cells.whitening_
        correlations = np.corrcoef(white.T) - np.eye(white.shape[1])
        assert np.abs(correlations).max() < 1e-4
        assert len(cells.variances_) > len(alone.variances_) + 50
        assert (np.linalg.norm(cells.lines(1e9 * rows), axis=1) <= 64).all()

    @pytest.mark.parametrize("shape", [(120, 2), (420, 6)])
    def test_together_they_have_a_fifth_of_the_variance_of_all_sums(self, shape):
        rows = np.random.default_rng(5).normal(size=shape)
        cells = Spectrum(interactions=True)
        cells.transform_ = Interactions().fit(rows)
        table = cells.transform_.transform(rows)
        apart = table - table.mean(axis=0)
        values, vectors = cells._principal(apart)
        sums = apart[:, : 7 * shape[1]]
        if len(rows) > 400:  # more than are computed; of 7 functions one says that a number is missing
            assert len(values) == 6 * shape[1] + 300
        assert values.sum() == pytest.approx(1.2 * sums.var(axis=0).sum())
        assert (np.diff(values) >= 0).all()
        scores = apart @ vectors
        scale = np.sqrt(np.outer(values, values))
        np.testing.assert_allclose(scores.T @ scores / len(rows) / scale, np.eye(len(values)), atol=1e-4)

    def test_a_product_of_two_columns_is_learned_and_leaves_as_plain_scikit_learn(self):
        rng = np.random.default_rng(6)
        rows = rng.normal(size=(4000, 3))
        y = (rows[:, 0] * rows[:, 1] + 0.3 * rng.normal(size=4000) > 0).astype(int)
        areas = []
        for interactions in (True, False):
            model = PATEClassifier(
                way="filter", cells=Spectrum(interactions=interactions), epsilon=8.0, delta=1e-6
            )
            model.fit(rows[600:3500], y[600:3500], X_public=rows[:600])
            areas.append(roc_auc_score(y[3500:], model.predict_proba(rows[3500:])[:, 1]))
            plain = model.to_sklearn()
            np.testing.assert_allclose(
                plain.predict_proba(rows[3500:]), model.predict_proba(rows[3500:]), atol=1e-8
            )
        assert areas[0] > 0.8
        assert areas[1] < 0.6


class TestSensitivity:
    @pytest.mark.parametrize("size", MODELS.values(), ids=MODELS)
    @pytest.mark.parametrize("n_classes", [2, 3])
    @pytest.mark.parametrize(("relation", "times"), [("replace-one", 2), ("zero-out", 1)])
    def test_no_row_moves_the_table_further_by_enumeration(self, n_classes, relation, times, size):
        coef = coefficients(n_classes, size)
        stated = voter(n_classes, relation=relation).gradient(coef, parts=PARTS).adjacency
        assert stated.relation == relation
        assert stated.l2 == times * PARTS * 64
        hostile = np.array(list(itertools.product(HOSTILE, repeat=3)))
        lines = CELLS.lines(hostile)
        odds = lines / 64 @ coef
        residuals = [balanced_residuals(odds, np.full(len(lines), k), PARTS) for k in range(n_classes)]
        products = np.concatenate([lines[:, :, None] * residual[:, None] for residual in residuals])
        added = products.reshape(len(products), -1)
        added = np.unique(added, axis=0)
        square = (added**2).sum(axis=1)
        furthest = square.max()
        if relation == "replace-one":
            furthest = (square[:, None] + square - 2 * added @ added.T).max()
        assert furthest <= stated.l2**2
        assert furthest >= (0.6 * stated.l2) ** 2  # noise is not wasted

    @pytest.mark.parametrize("n_rows", [1, 2, 29])
    def test_a_person_with_many_rows_adds_no_more_than_one_row(self, n_rows):
        coef = coefficients(3, 3.0)
        copies, labels = np.repeat(ROWS[:1], 30, axis=0), np.zeros(30, dtype=int)
        people = np.r_[np.zeros(n_rows, dtype=int), np.arange(1, 31 - n_rows)]
        table = voter(rows=copies, labels=labels, people=people).gradient(coef, parts=PARTS)
        assert table.adjacency.unit == "person"
        single = voter(rows=copies[:1], labels=labels[:1]).gradient(coef, parts=PARTS).open()
        np.testing.assert_array_equal(table.open(), (31 - n_rows) * single)

    def test_a_person_adds_the_mean_of_its_rows_towards_zero(self):
        coef, people = coefficients(2, 1.0), np.zeros(30, dtype=int)
        rows_alone = np.stack(
            [
                voter(2, rows=ROWS[[k]], labels=LABELS[[k]]).gradient(coef, parts=PARTS).open()
                for k in range(30)
            ]
        )
        table = voter(2, people=people).gradient(coef, parts=PARTS).open()
        np.testing.assert_array_equal(table, np.trunc(rows_alone.sum(axis=0) / 30).astype(int))


class TestBalance:
    @pytest.mark.parametrize("columns", [1, 3])
    def test_residuals_of_a_true_model_have_mean_zero_and_reach_the_stated_length(self, columns):
        odds, parts = np.random.default_rng(3).normal(size=(200, columns)) * 3, 10**5
        sure = probabilities(odds)
        rows_alone = np.stack(
            [balanced_residuals(odds, np.full(200, k), parts) for k in range(sure.shape[1])], axis=1
        )
        mean = np.einsum("ik,ikj->ij", sure, rows_alone) / parts
        np.testing.assert_allclose(mean, 0, atol=2e-5)
        longest = np.linalg.norm(rows_alone, axis=2).max(axis=1) / parts
        np.testing.assert_allclose(longest, 1, atol=2e-5)

    def test_no_row_is_surer_than_log_odds_of_4(self):
        for odds in ([[4.0], [-4.0], [1.0]], [[4.0, 0.0, -4.0], [4.0, 4.0, 1.0]]):
            near, width = np.array(odds), len(odds[0])
            whole = np.hstack([np.zeros((len(near), 1)), near]) if width == 1 else near
            expected = softmax(whole, axis=1)
            far = np.where(np.abs(near) == 4, 100 * near, near)
            for some in (near, far):
                np.testing.assert_allclose(probabilities(some), expected, rtol=1e-12)


@pytest.mark.parametrize("people", [None, np.arange(30) // 3])
def test_rows_weigh_in_the_bins_of_their_distances_and_people_by_the_mean_of_theirs(people):
    y = np.concatenate([np.zeros(5), np.linspace(-0.9, 0.9, 23), [np.nan, np.inf]])
    voter = ValueVoter(cells=CELLS, bounds=(-1.0, 1.0)).fit(ROWS, y, people)
    found = voter.distances(np.zeros((len(CELLS.variances_) + 1, 1)), parts=PARTS)
    weight, added = voter.weight(parts=PARTS), np.zeros((30, 17), dtype=int)
    for row, value in enumerate(np.minimum(y, 1.0)):
        if not np.isnan(value):
            added[row, max(0, int((abs(value) > DISTANCES).sum()) - 1)] = weight
    sums = added if people is None else added.reshape(10, 3, 17).sum(axis=1) // 3
    assert found.open()[:, 0].tolist() == sums.sum(axis=0).tolist()
    assert found.adjacency.unit == ("row" if people is None else "person")


class TestRefusals:
    @pytest.mark.parametrize(
        ("coef", "parts", "named"),
        [
            (coefficients(3, 0.0), 0, "parts"),
            (coefficients(3, 0.0), 2**21, "parts must be so few"),
            (coefficients(2, 0.0), PARTS, "shape"),
            (np.full_like(coefficients(3, 0.0), np.nan), PARTS, "finite"),
        ],
    )
    def test_bad_settings(self, coef, parts, named):
        with pytest.raises((ValueError, TypeError), match=named):
            voter().gradient(coef, parts=parts)

    def test_cells_without_features_and_votes_of_people(self):
        cells = GraphCells(n_cells=4).fit(PUBLIC)
        rows = RowVoter(cells=cells).fit(ROWS, LABELS, classes=range(3))
        with pytest.raises(ValueError, match="take Spectrum"):
            rows.gradient(np.zeros((4, 3)), parts=PARTS)
        with pytest.raises(ValueError, match='votes need "shared"'):
            voter(people=np.arange(30) // 2).vote()

    def test_the_spectrum_of_private_rows(self):
        with pytest.raises(ValueError, match="must come from public rows"):
            voter(rows=PUBLIC, labels=np.zeros(80, dtype=int))
