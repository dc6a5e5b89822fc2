import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from ostraka import Adjacency, Private
from ostraka.core.mechanisms import adaptive, exact
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
from ostraka.core.mechanisms.counts import NoisyMarginals
from ostraka.core.mechanisms.particles import Particles, tallied
from ostraka.core.mechanisms.selection import Selection

SIZES = (3, 2, 4, 2, 3)
ONE_ROW = Adjacency(moves="row", relation="add-or-remove")
MODEL = {"rows", "weights", "theta"}


def made(**changes):
    settings = {"sizes": SIZES, "target": None, "sigma_first": 6.0, "sigma": 5.0, "select_epsilon": 0.4}
    return AdaptiveMarginals(**settings | {"n_pick": 4, "batch": 2} | changes)


def table(n=300, seed=0, grain=1):
    """Each column follows the one before it in half of the rows."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, SIZES[0], n)]
    for size in SIZES[1:]:
        columns.append(np.where(rng.random(n) < 0.5, columns[-1] % size, rng.integers(0, size, n)))
    return np.column_stack([*columns, np.full(n, grain)])


def released(rows=None, seed=0, **changes):
    mechanism = made(**changes)
    private = Private(table() if rows is None else rows, mechanism.promise)
    return mechanism.release(private, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("target", [None, 1])
def test_the_price_is_that_of_all_counts_and_all_choices(target):
    """Planted: one choice, or the chosen tables, for nothing."""
    mechanism = made(target=target)
    n_first = 5 if target is None else 4
    first, last = (
        NoisyMarginals(sizes=SIZES, columns=((0,),) * n, sigma=sigma).curve()
        for n, sigma in ((n_first, 6.0), (4, 5.0))
    )
    parts = first + last + 4 * replace(Selection(epsilon=0.4).curve(), moves="row")
    np.testing.assert_allclose(mechanism.curve().rdp, parts.rdp, rtol=1e-12)
    assert mechanism.curve().epsilon(delta=1e-5) == pytest.approx(parts.epsilon(delta=1e-5), rel=1e-12)


@pytest.mark.parametrize("target", [None, 3])
@pytest.mark.parametrize("grain", [1, 3])
def test_one_unit_moves_no_score_by_more_than_its_weight(target, grain):
    mechanism = made(target=target, grain=grain)
    rows = table(60, grain=grain)
    first = released(rows, target=target, grain=grain)
    candidates = mechanism.candidates()
    model = mechanism._begun(first)
    model.start()
    before = mechanism._scores(candidates, tallied(rows.T, SIZES, candidates), model)
    moved = [
        np.abs(
            mechanism._scores(candidates, tallied(np.delete(rows, k, axis=0).T, SIZES, candidates), model)
            - before
        ).max()
        for k in range(60)
    ]
    assert max(moved) == grain


@pytest.mark.parametrize("weight", [1, 7])
def test_cells_are_counted_exactly(weight):
    rows = table(20_000, grain=weight)  # more than one block
    chosen = [columns for k in (1, 2, 3) for columns in combinations(range(5), k)]
    for columns, cells in zip(chosen, tallied(rows.T, SIZES, chosen), strict=True):
        expected = np.zeros([SIZES[j] for j in columns], dtype=np.int64)
        np.add.at(expected, tuple(rows[:, j] for j in columns), weight)
        np.testing.assert_array_equal(cells, expected.ravel())


def test_every_table_carries_its_noise(monkeypatch):
    """Planted: a chosen table without noise."""
    draws = []

    def none(sigma, shape, *, rng):
        draws.append((sigma, shape))
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(exact, "discrete_gaussian", none)
    release = released()
    tables = {name: cells for name, cells in release.items() if name not in MODEL}
    assert draws == [
        (6.0 if "," not in name else 5.0, tuple(SIZES[j] for j in adaptive.columns_of(name)))
        for name in tables
    ]
    for name, cells in tables.items():
        expected = tallied(table().T, SIZES, [adaptive.columns_of(name)])[0]
        np.testing.assert_array_equal(cells.ravel(), expected)


def test_no_two_tables_of_a_batch_have_two_columns_in_common_and_none_is_counted_twice():
    for seed in range(10):
        names = [name for name in released(seed=seed, n_pick=8, batch=3) if name not in MODEL]
        chosen = [set(adaptive.columns_of(name)) for name in names[5:]]
        assert len(names) == len(set(names)) == 13
        assert len(chosen[0] & chosen[1]) < 2  # the first two are of one batch in any case


def test_choices_look_for_what_the_model_lacks():
    """Two columns that are alike, among independent ones, are counted first."""
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.integers(0, SIZES, (4000, 5)), np.ones(4000, dtype=np.int64)])
    rows[:, 4] = rows[:, 0]
    names = [name for name in released(rows, n_pick=1, select_epsilon=2.0) if name not in MODEL]
    assert {0, 4} <= set(adaptive.columns_of(names[5]))


def test_many_columns_have_pairs_only_as_candidates():
    assert {len(columns) for columns in made(sizes=(2,) * 60, n_pick=0).candidates()} == {2}
    assert {len(columns) for columns in made(sizes=(2,) * 50, n_pick=0).candidates()} == {2, 3}
    assert all(300 not in columns for columns in made(sizes=(300, 300, 2), n_pick=0).candidates())


# --- the model ---


def fitted_proportionally(tables, sizes, sweeps=200):
    """Iterative proportional fitting: the distribution of maximal entropy with these margins."""
    cells = np.full(sizes, 1 / math.prod(sizes))
    for _ in range(sweeps):
        for columns, wanted in tables.items():
            other_columns = tuple(j for j in range(len(sizes)) if j not in columns)
            now = cells.sum(axis=other_columns, keepdims=True)
            cells = cells * wanted.reshape(now.shape) / now
    return cells


def test_the_model_is_of_maximal_entropy():
    rng = np.random.default_rng(0)
    sizes = (3, 2, 4)
    joint = rng.dirichlet(np.ones(24)).reshape(sizes)
    tables = {pair: joint.sum(axis=3 - sum(pair)) for pair in ((0, 1), (1, 2), (0, 2))}
    model = Particles(sizes, n_rows=1e5, n_particles=60_000, rng=np.random.default_rng(1))
    for j in range(3):
        model.add((j,), 1e5 * joint.sum(axis=tuple(k for k in range(3) if k != j)), sigma=0.1, pull=0.01)
    model.start()
    for columns, wanted in tables.items():
        model.add(columns, 1e5 * wanted, sigma=0.1, pull=0.01)
    model.fit(rounds=4, steps=40)
    expected = fitted_proportionally(tables, sizes)
    assert np.abs(expected - joint).sum() / 2 > 0.02  # the tables do not say all
    model.solve(60)
    place = np.ravel_multi_index(tuple(model.codes.T.astype(np.int64)), sizes)
    shares = np.bincount(place, weights=model.weights, minlength=24).reshape(sizes)
    assert np.abs(shares - expected).sum() / 2 < 0.01
    for columns, wanted in tables.items():  # which the weights fit without an error of sampling
        assert np.abs(shares.sum(axis=3 - sum(columns)) - wanted).max() < 1e-4


def test_a_step_that_leads_away_from_the_counts_is_taken_back(monkeypatch):
    """Planted: it is kept. Steps at random stand in for a search that went astray."""
    rng = np.random.default_rng(0)
    model = Particles((3, 4), n_rows=1e4, n_particles=4000, rng=np.random.default_rng(1))
    joint = 1e4 * rng.dirichlet(np.full(12, 2.0)).reshape(3, 4)
    for columns, counts in (((0,), joint.sum(axis=1)), ((1,), joint.sum(axis=0)), ((0, 1), joint)):
        model.add(columns, counts, sigma=5.0, pull=0.01)
    model.start()
    model.fit(rounds=3, steps=40)
    near = model.misfit()
    assert near < 0.1 * 3e4  # three tables of 10,000 rows

    def astray(model, steps):
        step = 8.0 * rng.normal(size=model.theta.size)
        model.theta, model.weights = model.theta + step, model._weighted(step)
        return True, 1.0

    monkeypatch.setattr(Particles, "solve", astray)
    model.fit(rounds=8, steps=1)
    assert model.misfit() < 0.1 * 3e4


def test_a_sweep_draws_each_column_from_its_law_given_the_others():
    model = Particles((2, 3), n_rows=1e4, n_particles=60_000, rng=np.random.default_rng(2))
    model.add((0,), np.array([5e3, 5e3]), sigma=1.0, pull=1.0)
    model.add((1,), np.array([1e4, 0, 0]), sigma=1.0, pull=1.0)
    model.add((0, 1), np.zeros((2, 3)), sigma=1.0, pull=1.0)
    model.theta = np.log(np.array([1, 3, 2, 1, 1, 1, 1, 4, 1, 2, 1.0]))
    model.codes[:] = 0
    model.refresh(8)
    law = np.array([[1], [3]]) * np.array([[2, 1, 1]]) * np.array([[1, 1, 4], [1, 2, 1]])
    counts = np.bincount(3 * model.codes[:, 0].astype(np.int64) + model.codes[:, 1], minlength=6)
    assert np.abs(counts / 60_000 - (law / law.sum()).ravel()).max() < 0.012  # six standard deviations
