"""Estimates: right without noise, within their intervals with it, least squares where they say so."""

import gzip
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, norm

from ostraka.collect import (
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Pairs,
    Sum,
    Task,
    Tree,
    Vector,
    estimate,
    show,
)
from ostraka.collect import estimate as _similar
from ostraka.collect import estimate as _tree
from tests.false_alarm import FALSE_ALARM


def task(encoding, sigma=5.0) -> Task:
    return Task(encoding, sigma=sigma, noise="tally", tally="ab" * 32)


def summed(encoding, values) -> np.ndarray:
    return np.sum([encoding.encode(value).astype(np.int32) for value in values], axis=0).astype(float)


def tree_sums(tree: Tree, values: np.ndarray) -> np.ndarray:
    depth = len(tree.sizes)
    parts = [
        np.bincount((values - tree.low) // tree.fanout ** (depth - 1 - level), minlength=size)
        for level, size in enumerate(tree.sizes)
    ]
    return np.concatenate(parts).astype(float)


@given(
    st.lists(st.integers(-5, 40), min_size=1, max_size=40),
    st.sampled_from([0.1, 0.5, 0.9]),
    st.integers(2, 9),
)
def test_without_noise_the_quantile_is_that_of_the_sorted_values(values, q, fanout):
    tree = Tree(-5, 41, fanout=fanout)
    quantile = estimate.quantile(summed(tree, values), task(tree), q, variance=0.0, n_clients=len(values))
    exact = sorted(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]
    assert quantile.value == exact
    assert quantile.low <= exact <= quantile.high


def test_a_quantile_of_a_histogram_is_the_middle_of_its_cell():
    histogram = Histogram(0, 10, cells=20)
    quantile = estimate.quantile(summed(histogram, [1.1, 2.2, 8.8]), task(histogram), 0.5, variance=0.0)
    assert quantile.value == 2.25


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_interval_of_a_histogram_is_every_cell_whose_rank_is_within_the_noise(known, confidence):
    """Written out: the rank of a cell has the noise of the cells up to it, or of those after it."""
    rng = np.random.default_rng(7)
    for cells in (2, 7, 40):
        histogram, counts = Histogram(-4, 4, cells=cells), rng.normal(30, 20, cells).round()
        n, z = 30 * cells, norm.ppf((1 + confidence) / 2)
        for q in (0.1, 0.5, 0.75):
            got = estimate.quantile(
                counts,
                task(histogram),
                q,
                n_clients=n if known else None,
                variance=9.0,
                confidence=confidence,
            )
            ranks = np.cumsum(counts + (n - counts.sum()) / cells if known else counts)
            up_to = np.arange(1, cells + 1)
            nodes = np.minimum(up_to, cells - up_to) if known else up_to
            ends = np.append(0, ranks), z * 3.0 * np.sqrt(np.append(0, nodes))
            sought = q * ranks[-1]
            inside = [
                k
                for k in range(cells)
                if ends[0][k] - ends[1][k] <= sought <= ends[0][k + 1] + ends[1][k + 1]
            ]
            middles = -4 + (np.arange(cells) + 0.5) * 8 / cells
            assert (got.low, got.high) == pytest.approx((middles[inside[0]], middles[inside[-1]]))
            assert got.low <= got.value <= got.high


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_sums_and_means_have_the_noise_and_the_rounding_in_their_intervals(confidence):
    z = norm.ppf((1 + confidence) / 2)
    number, vector = Sum(10, 40, bits=4), Vector(cells=3, clip=2.0, grid=16)
    for encoding, sums, step, start in ((number, [31], 2.0, 10.0), (vector, [5, -3, 0], 0.125, 0.0)):
        how = {"n_clients": 9, "variance": 16.0, "confidence": confidence}
        whole, mean = (of(sums, task(encoding, 99.0), **how) for of in (estimate.total, estimate.mean))
        margin = z * step * math.sqrt(16.0 + 9 / 4)
        values = 9 * start + step * np.array(sums)
        for part, off in zip(whole, (0, -margin, margin), strict=True):
            np.testing.assert_allclose(part, values + off, rtol=1e-12)
        for part, sum_ in zip(mean, whole, strict=True):
            np.testing.assert_allclose(part, sum_ / 9, rtol=1e-12)


@pytest.mark.parametrize("kind", [CountMin, CountSketch])
def test_counts_of_a_sketch_are_medians_of_unbiased_rows(kind):
    sketch, rng = kind(width=5, depth=3, key="33" * 32), np.random.default_rng(1)
    table, items = rng.normal(20, 9, (3, 5)), [4, 1, 9, 4]
    hitters, counts = estimate.heavy_hitters(
        table.ravel(), task(sketch), candidates=items, n=2, confidence=0.9
    )
    cells = table.ravel()[sketch.places([1, 4, 9])]
    if kind is CountMin:
        rows = (cells - table.mean(axis=1)[:, None]) / (1 - 1 / 5)
        spread = table.var(axis=1).mean()
    else:
        rows, spread = cells * sketch.signs([1, 4, 9]), (table**2).mean()
    medians = np.median(rows, axis=0)
    best = np.argsort(-medians)[:2]
    assert hitters.tolist() == np.array([1, 4, 9])[best].tolist()
    np.testing.assert_allclose(counts.value, medians[best])
    margin = norm.ppf(0.95) * math.sqrt(math.pi / 2 * spread / 3)
    np.testing.assert_allclose([counts.value - counts.low, counts.high - counts.value], margin)


@pytest.mark.statistical
@pytest.mark.parametrize(("fanout", "fixed_total"), [(2, True), (16, True), (16, False)])
def test_intervals_hold_the_quantile_as_often_as_they_say(fanout, fixed_total):
    rng, tree, n_held, width, trials = np.random.default_rng(3), Tree(0, 200, fanout=fanout), 0, [], 300
    values = np.clip(rng.normal(90, 30, 600), 0, 199).astype(int)
    clean, exact = tree_sums(tree, values), np.sort(values)[299]
    for _ in range(trials):
        noisy = clean + np.rint(rng.normal(0, 12.0, tree.cells))
        quantile = estimate.quantile(
            noisy, task(tree, 12.0), 0.5, n_clients=600 if fixed_total else None, confidence=0.8
        )
        n_held += quantile.low <= exact <= quantile.high
        width.append(quantile.high - quantile.low)
    assert binom.cdf(n_held, trials, 0.8) > FALSE_ALARM
    assert np.median(width) < 40


def test_nonnegative_counts_add_up_and_are_the_nearest_at_each_node():
    rng = np.random.default_rng(5)
    for sizes, fanout in (((2, 4, 8), 2), ((3, 8, 23), 3), ((4, 63), 16), ((5,), 5)):
        levels = _tree.consistent(rng.normal(2, 6, sum(sizes)), sizes, fanout, total=40)
        estimates = _tree.nonnegative(levels, fanout)
        assert estimates[0].sum() == pytest.approx(40)
        for counts, level in zip(estimates, levels, strict=True):
            assert counts.shape == level.shape
            assert counts.min() >= 0
        for above, below in itertools.pairwise(estimates):
            sums = np.add.reduceat(below, np.arange(0, len(below), fanout))
            np.testing.assert_allclose(sums, above, atol=1e-9)
        target, total = levels[-1][:fanout], 40.0 if len(sizes) == 1 else estimates[-2][0]
        best = minimize(
            lambda x, given=target: ((x - given) ** 2).sum(),
            np.full(len(target), total / len(target)),
            jac=lambda x, given=target: 2 * (x - given),
            bounds=[(0, None)] * len(target),
            constraints={"type": "eq", "fun": lambda x, total=total: x.sum() - total},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        np.testing.assert_allclose(estimates[-1][:fanout], best.x, atol=1e-4)


def test_a_histogram_is_one_wide_node_and_stays_as_it_is():
    counts = np.random.default_rng(0).normal(1, 14, 1000)
    (estimates,) = _tree.nonnegative([counts], 1000)
    np.testing.assert_array_equal(estimates, counts)


def test_counts_that_are_nonnegative_already_stay_as_they_are():
    tree = Tree(0, 50, fanout=4)
    sums = tree_sums(tree, np.random.default_rng(1).integers(0, 50, 300))
    levels = _tree.consistent(sums, tree.sizes, 4, total=300)
    for level, corrected in zip(levels, _tree.nonnegative(levels, 4), strict=True):
        np.testing.assert_allclose(level, corrected, atol=1e-9)
    assert not np.concatenate(_tree.nonnegative([-np.ones(2), -np.ones(8)], 4)).any()


@pytest.mark.statistical
def test_ranks_in_an_empty_range_err_less_once_counts_are_nonnegative():
    rng, tree, errors = np.random.default_rng(2), Tree(0, 256, fanout=4), np.zeros((200, 2))
    clean = tree_sums(tree, np.full(400, 200))  # nobody is below
    for trial in errors:
        levels = _tree.consistent(clean + rng.normal(0, 20, tree.cells), tree.sizes, 4, total=400)
        trial[:] = [abs(np.cumsum(level[-1])[150]) for level in (levels, _tree.nonnegative(levels, 4))]
    assert errors[:, 1].mean() < 0.6 * errors[:, 0].mean()


def test_consistent_counts_are_those_of_least_squares():
    rng = np.random.default_rng(0)
    for sizes, fanout in (((2, 4, 8), 2), ((3, 8, 23), 3), ((4, 63), 16), ((5,), 5)):
        counts = rng.normal(10, 5, sum(sizes))
        design = np.concatenate(
            [
                np.arange(size)[:, None] == (np.arange(sizes[-1]) // fanout ** (len(sizes) - 1 - level))[None]
                for level, size in enumerate(sizes)
            ]
        ).astype(float)
        leaves = np.linalg.lstsq(design, counts, rcond=None)[0]
        estimates = _tree.consistent(counts, sizes, fanout)
        np.testing.assert_allclose(np.concatenate(estimates), design @ leaves, atol=1e-9)
        total = 77
        with_total = _tree.consistent(counts, sizes, fanout, total=total)
        heavy = np.vstack([design, 1e6 * np.ones(sizes[-1])])
        leaves = np.linalg.lstsq(heavy, np.append(counts, 1e6 * total), rcond=None)[0]
        np.testing.assert_allclose(np.concatenate(with_total), design @ leaves, atol=1e-4)


@pytest.mark.parametrize("fixed_total", [True, False])
def test_a_rank_needs_no_more_nodes_than_its_margin_assumes(fixed_total):
    sizes, fanout = (2, 5, 14), 3
    n_nodes = _tree.nodes_of_ranks(sizes, fanout, known=fixed_total)
    # shortest paths between the borders of leaves, where every node is an edge
    borders, edges = sizes[-1] + 1, []
    for level, size in enumerate(sizes):
        wide = fanout ** (len(sizes) - 1 - level)
        edges += [(k * wide, min((k + 1) * wide, sizes[-1])) for k in range(size)]
    distance = np.full((borders, borders), np.inf)
    np.fill_diagonal(distance, 0)
    for a, b in edges:
        distance[a, b] = distance[b, a] = 1
    for middle in range(borders):
        distance = np.minimum(distance, distance[:, [middle]] + distance[[middle]])
    shortest = np.minimum(distance[0], distance[-1]) if fixed_total else distance[0]
    assert (n_nodes >= shortest[1:]).all()  # the margin never assumes less than there is
    assert n_nodes.mean() <= 1.3 * shortest[1:].mean() + 0.5


@pytest.mark.parametrize(
    ("tree", "edges", "nodes"),
    [
        (Tree(-20, 220), np.arange(-20, 221, 16), 1),  # 15 nodes of 16 numbers
        (Tree(0, 99, fanout=2), [*range(0, 99, 4), 99], 1),  # 25 nodes; the last has three numbers
        (Tree(0, 90, fanout=16), np.arange(0, 91, 3), 3),  # 6 nodes are too few: single numbers, joined
        (Tree(0, 30), np.arange(31), 1),
    ],
)
def test_bars_of_a_tree_are_nodes_of_one_level_with_the_noise_of_that_level(tree, edges, nodes):
    values = np.random.default_rng(5).integers(tree.low, tree.high, 500)
    record = {
        "task": json.loads(task(tree).to_json()), "sums": tree_sums(tree, values).tolist(), "variance": 4.0,
        "n_survivors": 500, "epsilon": 1.0, "delta": 1e-6,
    }  # fmt: skip
    bars = show.shares(show.Collected(record)).values
    np.testing.assert_allclose(bars["people"], np.histogram(values, edges)[0], atol=1e-9)
    assert bars["answers"][-1] == f"{edges[-2]} to {edges[-1]}"
    assert np.subtract(bars["high"], bars["people"]) == pytest.approx(1.96 * 2 * math.sqrt(nodes))


def test_a_heat_map_has_the_shape_of_its_grid_and_is_not_negative():
    grid = Grid(x=(0, 3), y=(0, 2), shape=(3, 2))
    heat = estimate.heat_map([5, -9, 0, 1, 2, 30], task(grid, sigma=2.0))
    assert heat.value.tolist() == [[5, 0], [0, 1], [2, 30]]
    assert heat.high[2, 1] - heat.value[2, 1] == pytest.approx(1.959964 * 2.0)
    assert (heat.low <= heat.value).all()


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.floats(0.01, 1.0))
def test_a_forecast_is_the_weighted_average_whose_weights_add_to_one(series, alpha):
    weights = [(1 - alpha) ** (len(series) - 1 - place) for place in range(len(series))]
    expected = sum(w * x for w, x in zip(weights, series, strict=True)) / sum(weights)
    prediction = estimate.forecast(series, alpha=alpha, variance=4.0)
    assert prediction.value == pytest.approx(expected, abs=1e-9)
    margin = norm.ppf(0.975) * 2.0 * math.sqrt(sum((w / sum(weights)) ** 2 for w in weights))
    assert prediction.high - prediction.value == pytest.approx(margin, abs=1e-9)
    assert prediction.value - prediction.low == pytest.approx(margin, abs=1e-9)
    np.testing.assert_allclose(estimate.forecast(np.array([series, series]).T, alpha=alpha).value, expected)


def test_heavy_hitters_of_sketches_are_found_within_their_intervals():
    rng = np.random.default_rng(2)
    items = rng.zipf(1.4, 8_000) % 1_000
    distinct, counts = np.unique(items, return_counts=True)
    truth = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
    for kind in (CountMin, CountSketch):
        sketch = kind(width=200, depth=9, key="33" * 32)
        sums = np.zeros(sketch.cells)
        signs = sketch.signs(distinct) if kind is CountSketch else np.ones((9, len(distinct)))
        np.add.at(sums, sketch.places(distinct), signs * counts)
        noisy = sums + rng.normal(0, 20, sketch.cells)
        hitters, value = estimate.heavy_hitters(noisy, task(sketch, 20.0), candidates=range(1_000), n=5)
        assert set(hitters.tolist()) == set(distinct[np.argsort(-counts)[:5]].tolist())
        exact = np.array([truth[item] for item in hitters.tolist()])
        assert ((value.low <= exact) & (exact <= value.high)).sum() >= 4
    with pytest.raises(ValueError, match="candidates"):
        estimate.heavy_hitters(noisy, task(sketch), n=5)


def test_heavy_hitters_of_plain_counts_are_the_largest_with_the_interval_of_their_noise():
    sums, histogram = np.array([40.0, 70.0, 10.0, 60.0]), Histogram(0, 4, cells=4)
    for candidates, items in ((None, [1, 3]), ([0, 2, 3], [3, 0])):
        hitters, value = estimate.heavy_hitters(sums, task(histogram, 5.0), candidates=candidates, n=2)
        assert hitters.tolist() == items
        assert value.value.tolist() == sums[items].tolist()
        np.testing.assert_allclose(value.high - value.value, norm.ppf(0.975) * 5.0, rtol=1e-9)
        np.testing.assert_allclose(value.value - value.low, norm.ppf(0.975) * 5.0, rtol=1e-9)


def test_with_noise_that_drowns_everything_recommendations_are_the_popular_items():
    pairs = Pairs(items=6, at_most=3)
    sums = summed(pairs, [[0, 1]] * 50 + [[2]] * 400 + [[3]] * 300 + [[4, 5]] * 100)
    clear = estimate.similar_items(sums, task(pairs), [0], n=1, n_clients=850, variance=0.01)
    drowned = estimate.similar_items(sums, task(pairs), [0], n=3, n_clients=850, variance=1e3)
    assert clear.tolist() == [1]
    assert set(drowned.tolist()[:2]) == {2, 3}


def test_recommendations_from_noisy_baskets_are_not_below_popularity(data_dir):
    path = data_dir / "groceries" / "groceries.txt.gz"
    if not path.exists():
        pytest.skip(f"the groceries are not at {path}")
    lines = gzip.decompress(path.read_bytes()).decode().strip().split("\n")
    baskets = [line.split(",") for line in lines]
    numbers = {
        name: place for place, name in enumerate(sorted({name for items in baskets for name in items}))
    }
    rng = np.random.default_rng(1)
    order = rng.permutation(len(baskets))
    coded = [[numbers[name] for name in dict.fromkeys(baskets[place])] for place in order]
    train, test = coded[:8_000], [items for items in coded[8_000:] if len(items) > 1][:600]
    pairs = Pairs(items=len(numbers), at_most=6)
    rough = task(pairs, sigma=8.25)  # epsilon of 4 at delta 1e-6
    assert rough.mechanism.curve().epsilon(delta=1e-6) < 4.0
    baskets_seen = np.zeros((len(train), len(numbers)))
    for row, basket in zip(baskets_seen, train, strict=True):
        row[basket[:6]] = 1
    rows, columns = np.triu_indices(len(numbers))
    noisy = np.rint(rng.normal(0, 8.25, pairs.cells))
    noisy[pairs.place(rows, columns)] += (baskets_seen.T @ baskets_seen)[rows, columns]
    popular = np.argsort(-np.bincount([item for items in train for item in items], minlength=len(numbers)))
    likelihood = estimate.similarity(noisy, pairs, len(train), 8.25**2)  # once, as the page has it
    recommended = estimate.similar_items(noisy, rough, test[0][1:], n_clients=len(train))
    np.testing.assert_array_equal(recommended, estimate.ranked(likelihood, test[0][1:], 10))
    hits = np.zeros(2)
    for basket in test:
        left_out = int(rng.integers(len(basket)))
        basket_rest = basket[:left_out] + basket[left_out + 1 :]
        ranking = estimate.ranked(likelihood, basket_rest, 10)
        usual = [item for item in popular.tolist() if item not in basket_rest][:10]
        hits += (basket[left_out] in ranking, basket[left_out] in usual)
    assert hits[0] >= 0.97 * hits[1]  # five splits, other baskets: 0.393 against 0.381, docs/collect.md


def test_counts_of_items_are_nearer_the_truth_with_co_counts_than_without():
    rng = np.random.default_rng(5)
    n_clients, noise = 8_000, 90.0
    share = 0.3 * np.arange(1, 41) ** -0.5
    baskets = (rng.random((n_clients, len(share))) < share).astype(float)
    exact = baskets.T @ baskets
    before, after, limit = 0.0, 0.0, 0.0
    for _ in range(20):
        upper = np.triu(rng.normal(0, noise, exact.shape))
        full = exact + upper + np.triu(upper, 1).T
        diagonal = np.maximum(np.diag(full), noise)
        pooled = _similar._pooled(full, diagonal, n_clients, noise**2)
        weights = share > 0.1  # the floor of one deviation does not touch these
        before += float(((diagonal - np.diag(exact))[weights] ** 2).sum())
        after += float(((pooled - np.diag(exact))[weights] ** 2).sum())
        limit += noise**2 * weights.sum()
    # the variance of least squares with independent items, a little more for the sampling of co-counts
    ideal = 1 / (1 + (share**2).sum())
    assert before == pytest.approx(limit, rel=0.4)
    assert 0.8 * ideal < after / before < 1.25 * ideal


def test_the_spread_of_co_counts_is_found_beneath_known_noise():
    rng = np.random.default_rng(6)
    expected = np.outer(*[rng.uniform(5, 40, 120)] * 2)
    noise = np.full(expected.shape, 400.0)
    full = expected + rng.normal(size=expected.shape) * np.sqrt(noise + 0.02 * expected**_similar._POWER)
    spread = _similar._signal(full, expected, noise) / expected**_similar._POWER
    assert spread[0, 1] == pytest.approx(0.02, rel=0.15)
    quiet = expected + rng.normal(size=expected.shape) * np.sqrt(0.5 * noise)
    assert not _similar._signal(quiet, expected, noise).any()


@pytest.mark.parametrize(
    "work",
    [
        lambda: estimate.quantile([1, 2], task(Tree(0, 8)), 0.5),
        lambda: estimate.quantile([math.nan] * 8, task(Tree(0, 8)), 0.5),
        lambda: estimate.quantile([1] * 8, task(Tree(0, 8)), 1.0),
        lambda: estimate.quantile([1] * 4, task(Grid(x=(0, 1), y=(0, 1), shape=(2, 2))), 0.5),
        lambda: estimate.quantile([1] * 8, task(Tree(0, 8)), 0.5, confidence=1.0),
        lambda: estimate.quantile([1] * 8, task(Tree(0, 8)), 0.5, variance=math.nan),
        lambda: estimate.quantile([1] * 8, Task(Tree(0, 8), sigma=9.0, tally="ab" * 32), 0.5),
        lambda: estimate.quantile([1] * 8, task(Tree(0, 8)), 0.5, n_clients=-8),
        *(
            lambda item=item: estimate.heavy_hitters(
                [1] * 4, task(Histogram(0, 4, cells=4)), candidates=[0, item]
            )
            for item in (-1, 4)
        ),
        lambda: estimate.heat_map([1] * 8, task(Tree(0, 8))),
        lambda: estimate.forecast([], alpha=0.5),
        lambda: estimate.forecast([1.0], alpha=0.0),
        lambda: estimate.similar_items([1] * 8, task(Tree(0, 8)), [1], n_clients=3),
        *(
            lambda basket=basket: estimate.similar_items(
                [1] * 3, task(Pairs(items=2, at_most=1)), basket, n_clients=3
            )
            for basket in ([2], [0, 2], [-1, 0])
        ),
    ],
)
def test_what_cannot_be_estimated_is_refused(work):
    with pytest.raises(ValueError, match=r"must|needs?|have"):
        work()
