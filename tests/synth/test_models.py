"""Models of codes: forests, labels, pools and answers, each against a plain computation."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from ostraka.core.mechanisms.adaptive import ROWS, WEIGHTS
from ostraka.core.mechanisms.counts import TreeMarginals
from ostraka.synth import Schema, TableGenerator, fitting, models
from ostraka.synth.models import Answer, Answers, Forest, Labels, NumberModel, Pool, Tilted


def rng(seed=0):
    return np.random.default_rng(seed)


def test_a_pool_is_drawn_in_equal_strata_of_its_weights():
    codes, weights = np.arange(12).reshape(6, 2), np.array([5.0, 0.0, 1.0, 3.0, 0.5, 0.5])
    pool = Pool(codes, weights, n_rows=40.0)
    for n in (0, 1, 7, 20):
        got = pool.draw(n, rng=rng(3))
        same = rng(3)
        at = (np.arange(n) + same.random()) / max(n, 1)
        chosen = [next(k for k in range(6) if place <= weights[: k + 1].sum() / 10) for place in at]
        np.testing.assert_array_equal(got, same.permutation(codes[chosen]) if n else np.zeros((0, 2)))
        counts = [(got[:, 0] == code).sum() for code in codes[:, 0]]
        assert (np.abs(counts - n * weights / 10) < 1).all()
    factors = np.zeros(12)
    factors[[0, 4, 6]] = 2.0, 1.0, 3.0
    tilted = pool.tilted(0, factors)
    np.testing.assert_allclose(tilted.weights, np.array([10, 0, 1, 9, 0, 0]) / 20)
    assert tilted.n_rows == pytest.approx(40 * (10 + 1 + 9) / 10)


@pytest.mark.parametrize("seed", range(3))
def test_a_projected_table_is_the_nearest_with_these_totals(seed):
    table, totals = rng(seed).normal(3, 4, (5, 2)), np.array([7.0, 0.5])
    got = models.projected(table, totals)
    np.testing.assert_allclose(got.sum(axis=0), totals)
    assert (got >= 0).all()
    for k in range(2):
        best = minimize(
            lambda x, k=k: ((x - table[:, k]) ** 2).sum(),
            np.full(5, totals[k] / 5),
            bounds=[(0, None)] * 5,
            constraints={"type": "eq", "fun": lambda x, k=k: x.sum() - totals[k]},
            tol=1e-12,
        )
        np.testing.assert_allclose(got[:, k], best.x, atol=1e-5)
    pairs = [np.array([[3.0, -9.0], [1.0, 2.0]]), np.array([[5.0, 0.0], [1.0, 4.0]])]
    assert models.consistent_total(pairs).tolist() == [5.0, 1.0]
    a, b = np.array([[2.0, 1.0], [2.0, 1.0]]), np.array([[1.0, 0.0], [3.0, 2.0]])
    independent = models.conditional_independence(a, b, np.array([4.0, 2.0]))
    assert independent[:, :, 0].tolist() == [[0.5, 1.5], [0.5, 1.5]]
    assert independent[:, :, 1].tolist() == [[0.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize("seed", range(20))
def test_parents_come_before_their_children_along_the_edges(seed):
    n, random = 8, rng(seed)
    edges = [(k, int(random.integers(k))) for k in range(1, n) if random.random() < 0.8]
    edges = [edge[:: random.choice([1, -1])] for edge in edges]
    roots = dict.fromkeys(random.permutation(n).tolist())
    order = models.ordered(edges, roots)
    assert sorted(column for column, _ in order) == list(range(n))
    known = set()
    for column, parent in order:
        assert parent is None or (parent in known and {(parent, column), (column, parent)} & set(edges))
        known.add(column)
    assert sum(parent is not None for _, parent in order) == len(edges)
    first = [column for column, parent in order if parent is None]
    assert first == [column for column in roots if column in first]


def test_codes_are_drawn_in_equal_strata_of_their_chances():
    chances, given = np.array([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0]]), np.r_[np.zeros(41, int), np.ones(9, int)]
    codes = models.drawn(chances, rng(1).permutation(given), rng=rng(0))
    given = rng(1).permutation(given)
    counts = np.bincount(codes[given == 0], minlength=3)
    assert np.abs(counts - [41 / 4, 3 * 41 / 4, 0]).max() < 1
    assert np.bincount(codes[given == 1], minlength=3).tolist() == [3, 3, 3]  # where none is expected, any


def test_the_logistic_model_is_the_likeliest_with_the_stated_penalty():
    random, n = rng(2), 60
    codes = np.column_stack([random.integers(0, 3, n), random.integers(0, 2, n)])
    counts = [random.uniform(1, 50, (3, 4)), random.uniform(1, 50, (2, 4))]
    for sigma in (60.0, 200.0):
        penalty = 0.005 * ((sigma * n / counts[0].sum()) ** 2 + 1)

        def loss(flat, penalty=penalty):
            weights = [flat[:12].reshape(3, 4), flat[12:].reshape(2, 4)]
            logits = weights[0][codes[:, 0]] + weights[1][codes[:, 1]]
            value = np.logaddexp.reduce(logits, axis=1).sum() + penalty / 2 * (flat**2).sum()
            for j, table in enumerate(counts):
                wanted = np.bincount(codes[:, j])[:, None] * table / table.sum(axis=1, keepdims=True)
                value -= (wanted * weights[j]).sum()
            return value

        labels = models.fitted(codes, counts, sigma=sigma)
        got = np.concatenate([table.ravel() for table in labels.weights])
        best = minimize(loss, np.zeros(20), method="L-BFGS-B", options={"ftol": 1e-15, "maxfun": 10**6})
        assert loss(got) == pytest.approx(best.fun, rel=1e-6)
        np.testing.assert_allclose(got, best.x, atol=0.01)
        logits = labels.weights[0][codes[:, 0]] + labels.weights[1][codes[:, 1]]
        np.testing.assert_allclose(labels.logits(codes), logits)


def test_a_label_is_drawn_by_its_chance_and_equal_rows_in_strata():
    weights = [np.log([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])]
    codes = rng(0).permutation(np.repeat([[0], [1]], 500, axis=0))
    labels = Labels(weights).draw(codes, rng=rng(1))
    for code, chances in enumerate(np.exp(weights[0])):
        counts = np.bincount(labels[codes[:, 0] == code], minlength=3)
        assert np.abs(counts - 500 * chances).max() <= 3


def forest(target, sizes=(2, 3, 2), sigma=1e-3):
    mechanism = TreeMarginals(
        sizes=sizes, target=target, sigma_pairs=sigma, sigma_triples=sigma, select_epsilon=1.0, grain=2
    )
    joint = rng(5).integers(20, 400, sizes).astype(float)
    counts = {}
    for j in mechanism.features:
        others = tuple(k for k in range(3) if k not in {j, target})
        counts[mechanism.table_name(j)] = np.moveaxis(
            joint.sum(axis=others), 0, 0 if target is None or j < target else 1
        )
    return mechanism, joint, counts


def test_a_forest_keeps_what_was_counted():
    mechanism, joint, counts = forest(None)
    counts["0,1"] = joint.sum(axis=2)
    made = Forest(mechanism, counts)
    assert made.n_rows == pytest.approx(joint.sum())
    assert made.labels is None
    rows = made.draw(20_000, rng=rng(0))
    share = np.zeros((2, 3))
    np.add.at(share, (rows[:, 0], rows[:, 1]), 1 / 20_000)
    np.testing.assert_allclose(share, joint.sum(axis=2) / joint.sum(), atol=3e-4)
    np.testing.assert_allclose(
        np.bincount(rows[:, 2]) / 20_000, joint.sum(axis=(0, 1)) / joint.sum(), atol=1e-4
    )
    factors = np.array([1.0, 3.0])
    tilted = made.tilted(2, factors)
    assert isinstance(tilted, Tilted)
    thirds = joint.sum(axis=(0, 1)) * factors
    assert tilted.n_rows == pytest.approx(thirds.sum())
    picked = tilted.draw(2_000, rng=rng(0))
    assert len(picked) == 2_000
    np.testing.assert_allclose(np.bincount(picked[:, 2]) / 2_000, thirds / thirds.sum(), atol=0.01)


SCHEMA = Schema.from_dict({"a": {"categories": ["x", "y"]}, "b": {"edges": [0, 1, 2, 3]}})


def of_pool(codes, weights, n_rows=50.0):
    generator = TableGenerator(SCHEMA, method="kmeans")
    arrays = {ROWS: np.array(codes, dtype=np.uint16), WEIGHTS: fitting.fine(np.array(weights, dtype=float))}
    generator._set(None, {}, arrays, persons=False, n_units=n_rows)
    generator.result_ = None
    return generator


def test_what_a_model_says_of_groups_is_its_share_of_all_rows():
    generator = of_pool([[0, 0], [0, 1], [1, 2]], [2, 1, 1])
    answers = generator.query("a, b>=1.5")
    assert (answers.columns, answers.source, answers.confidence) == (("a",), "model", 0.95)
    assert [row.group for row in answers.rows] == [("x",), ("y",)]
    np.testing.assert_allclose([row.estimate for row in answers.rows], [50 / 4 / 2, 50 / 4], rtol=1e-4)
    assert all(math.isnan(row.low) and math.isnan(row.high) for row in answers.rows)
    both = generator.query("b, a", confidence=0.5)
    assert [row.group for row in both.rows][:3] == [("0 to 1", "x"), ("0 to 1", "y"), ("1 to 2", "x")]
    np.testing.assert_allclose([row.estimate for row in both.rows], [25, 0, 12.5, 0, 0, 12.5], rtol=1e-4)
    assert json.loads(json.dumps(answers.to_dict()))["rows"][1] == {
        "group": ["y"],
        "count": answers.rows[1].estimate,
        "low": None,
        "high": None,
    }
    known = Answers(("a",), [Answer(("x",), 3.0, 1.0, 5.0)], "counts", 0.9).to_dict()
    assert known == {
        "columns": ["a"],
        "source": "counts",
        "confidence": 0.9,
        "rows": [{"group": ["x"], "count": 3.0, "low": 1.0, "high": 5.0}],
    }


def test_a_number_model_takes_its_method_target_and_price():
    kmeans = NumberModel("kmeans", (2, 3, 4), 1, epsilon=2.0, delta=1e-6)
    assert (kmeans.target, kmeans.features) == (1, [0, 2])
    assert (kmeans.model.n_clusters, kmeans.model.longest) == (10, math.sqrt(2))
    mechanism = kmeans.mechanism()
    assert (mechanism.n_features, mechanism.n_classes) == (6, 3)
    dpgm = NumberModel("dpgm", (2, 3, 4), None, epsilon=2.0, delta=1e-6)
    assert (dpgm.model.n_clusters, dpgm.model.generator, dpgm.features) == (4, "gaussian", [0, 1, 2])
    evolution = NumberModel("evolution", (2, 3, 4), 1, epsilon=2.0, delta=1e-6)
    assert (evolution.target, evolution.model.n_rounds) == (None, 12)
    first = evolution.model.candidates
    assert (first.shape, first.max(axis=0).tolist(), first.min()) == ((400, 3), [1, 2, 3], 0)
    for made in (kmeans, dpgm, evolution):
        assert (made.model.epsilon, made.model.delta) == (2.0, 1e-6)
    varied = evolution.model.vary(first, rng(1))
    assert (varied.shape, varied.dtype, varied.max(axis=0).tolist()) == ((400, 3), np.uint16, [1, 2, 3])
    changed = (varied != first).mean(axis=0)
    np.testing.assert_allclose(changed, 0.25 * (1 - 1 / np.array([2, 3, 4])), atol=0.06)
    for sizes, target, words in (
        ((1001, 1000), None, "at most 2,000 codes"),
        ((2,), 0, "one column or more beside"),
    ):
        with pytest.raises(ValueError, match=words):
            NumberModel("kmeans", sizes, target, epsilon=1.0, delta=1e-5)
    NumberModel("kmeans", (1000, 1000), None, epsilon=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="method must be"):
        NumberModel("forest", (2, 2), None, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_shrunk_by_their_likeliest_spread_and_keep_the_margins(seed):
    random = rng(seed)
    joint = random.gamma(0.7, 200, (3, 4, 2)) + 1
    margins, totals = (joint.sum(axis=1), joint.sum(axis=0)), joint.sum(axis=(0, 1))
    expected = models.conditional_independence(*margins, totals)
    np.testing.assert_allclose(expected.sum(axis=1), margins[0])
    np.testing.assert_allclose(models.shrunk(joint, expected, margins, sigma=1e-6), joint, rtol=1e-4)
    np.testing.assert_allclose(models.shrunk(joint, expected, margins, sigma=1e9), expected, rtol=1e-6)
    noisy = joint + random.normal(0, 30, joint.shape)
    got, away = models.shrunk(noisy, expected, margins, sigma=30.0), noisy - expected
    np.testing.assert_allclose(got.sum(axis=1), margins[0], rtol=1e-3)
    np.testing.assert_allclose(got.sum(axis=0), margins[1], rtol=1e-9)
    laws = []  # cells vary about what is expected by c m^p, and by their noise
    for power in (1.0, 1.5, 2.0):
        shape = expected**power
        scale = max(0.0, ((away**2 - 900) * shape).sum() / (shape**2).sum())
        laws.append((norm.logpdf(away, scale=np.sqrt(scale * shape + 900)).sum(), scale * shape))
    spread = max(laws, key=lambda law: law[0])[1]
    cells = np.maximum(expected + spread / (spread + 900) * away, 1e-3)
    for _ in range(200):
        cells *= (margins[0] / cells.sum(axis=1))[:, None, :]
        cells *= (margins[1] / cells.sum(axis=0))[None]
    np.testing.assert_allclose(got, cells, rtol=5e-3, atol=0.05)
