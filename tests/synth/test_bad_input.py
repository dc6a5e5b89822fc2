"""Input that no generator can make much of: a sentence before the charge, or a copy that is mostly noise."""

import json

import numpy as np
import pytest

from ostraka.synth import DPGM, Evolution, PrivateKMeans, Schema, TableGenerator
from ostraka.synth import fitting as _fitting

SCHEMA = Schema.from_dict(
    {
        "a": {"categories": ["x", "y"], "missing": True},
        "n": {"edges": [0, 1, 2], "missing": True},
        "y": {"categories": ["0", "1"]},
    }
)
X = np.random.default_rng(0).random((300, 5))
MADE = {
    "clusters": lambda epsilon: PrivateKMeans(3, epsilon=epsilon),
    "features": lambda epsilon: PrivateKMeans(3, kernel="rbf", n_components=4, epsilon=epsilon),
    "networks": lambda epsilon: DPGM(2, steps=3, epsilon=epsilon),
    "evolution": lambda epsilon: Evolution(X[:10], vary=lambda w, _: w, n_rounds=2, epsilon=epsilon),
}


@pytest.fixture(params=MADE)
def name(request):
    if request.param == "networks":
        pytest.importorskip("torch")
    return request.param


def table(n=200):
    rng = np.random.default_rng(0)
    return {
        "a": np.array(["x", "y"])[rng.integers(0, 2, n)],
        "n": rng.random(n) * 2,
        "y": np.array(["0", "1"])[rng.integers(0, 2, n)],
    }


@pytest.fixture(scope="module")
def saved():
    return TableGenerator(SCHEMA, target="y", epsilon=4.0).fit(table()).to_json()


@pytest.mark.parametrize("schema", [None, {"a": {"categories": ["x", "y"]}}])
def test_a_table_without_a_schema_is_refused(schema):
    with pytest.raises(TypeError, match="schema must be a Schema"):
        TableGenerator(schema, target="a").fit(table())


@pytest.mark.parametrize(
    "cells",
    [{"a": np.array([None] * 200, dtype=object)}, {"n": np.full(200, np.nan)}, {"n": np.full(200, 0.5)}],
)
def test_columns_of_one_value_or_of_none_are_learned(cells):
    made = TableGenerator(SCHEMA, target="y", epsilon=4.0).fit(table() | cells)
    sample = made.sample(500, random_state=0)
    (name,) = cells
    codes = SCHEMA.columns[SCHEMA.place(name)].encode(sample[name])
    expected = SCHEMA.columns[SCHEMA.place(name)].encode(cells[name])[0]
    assert np.mean(codes == expected) > 0.8


def test_an_epsilon_too_small_for_one_marginal_is_refused_before_the_charge(uncharged):
    with uncharged("epsilon must be larger, got 1e-06") as ledger:
        TableGenerator(SCHEMA, target="y", epsilon=1e-6).fit(table(), ledger=ledger)


def test_an_epsilon_too_small_for_any_noise_is_refused_before_the_charge(name, uncharged):
    with uncharged("epsilon must be larger") as ledger:
        MADE[name](1e-9).fit(X, ledger=ledger)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "secretly"])
def test_what_is_no_finite_number_is_refused_and_not_shown(name, bad):
    rows = X.astype(object)
    rows[7, 2] = bad
    with pytest.raises(ValueError, match=r"X .*must be") as error:
        MADE[name](1.0).fit(rows)
    assert "secretly" not in str(error.value)


def test_an_absurd_row_moves_no_sum_further_than_any_other(name):
    """Its length and its angles overflow single precision: no number of the release may become NaN."""
    rows = X.copy()
    rows[0], rows[1] = 3e38, -3e38
    made = MADE[name](1.0).fit(rows, rng=np.random.default_rng(0))
    if name == "evolution":
        assert abs(made.votes_.sum() - 300) < 9 * made.mechanism_.sigma * np.sqrt(10)
    else:
        assert np.isfinite(made.cluster_centers_).all()
        assert np.abs(made.cluster_centers_).max() < 1e4
        assert np.isfinite(made.cluster_sizes_).all()


def test_a_person_with_many_rows_counts_as_one(name):
    rows = np.concatenate([np.tile([0.9, 0.1, 0.9, 0.1, 0.9], (10_000, 1)), X[:3]])
    groups = np.r_[np.zeros(10_000, dtype=int), 1, 2, 3]
    made = MADE[name](8.0).fit(rows, groups=groups, rng=np.random.default_rng(0))
    assert made.result_.settings["unit"] == "person"
    sizes = made.votes_ if name == "evolution" else made.cluster_sizes_
    assert sizes.sum() < 1_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "[",
        lambda _: "[]",
        lambda record: record | {"version": 99},
        lambda record: record | {"schema": None},
        lambda record: record | {"mechanism": {"sigma": 1.0}},
        lambda record: {name: part for name, part in record.items() if name != "target"},
        lambda record: record | {"counts": {"0,9": [1.0]}},
        lambda record: (
            record | {"model": record["model"] | {"rows": {"dtype": "<u2", "shape": [1], "data": "0"}}}
        ),
    ],
)
def test_a_damaged_record_is_refused_in_a_sentence(saved, damage):
    record = damage(json.loads(saved))
    with pytest.raises(ValueError, match="a generator must be JSON"):
        TableGenerator.from_json(record if isinstance(record, str) else json.dumps(record))


def test_numbers_beyond_float32_count_as_1e15_and_infinite_ones_are_refused():
    rows = np.array([[0.5, 1e300], [-1e300, 2.0]])
    expected = np.array([[0.5, 1e15], [-1e15, 2.0]], dtype=np.float32)
    np.testing.assert_array_equal(_fitting.numbers(rows), expected)
    np.testing.assert_array_equal(_fitting.numbers(rows.tolist()), expected)
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(ValueError, match="must be finite"):
            _fitting.numbers([[1e300, bad]])
