"""What every generator promises: its price, persons as units, few rows; bad input is a sentence."""

import json

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ostraka import BudgetExceeded
from ostraka.synth import DPGM, Evolution, PrivateKMeans, Schema, SequenceGenerator, TableGenerator, models
from ostraka.synth import fitting as _fitting

SCHEMA = Schema.from_dict(
    {
        "a": {"categories": ["x", "y"], "missing": True},
        "n": {"edges": [0, 1, 2], "missing": True},
        "y": {"categories": ["0", "1"]},
    }
)
X = np.random.default_rng(0).random((300, 5))


def alike(winners, rng):
    return winners


OF_NUMBERS = {
    "clusters": lambda epsilon: PrivateKMeans(3, epsilon=epsilon),
    "features": lambda epsilon: PrivateKMeans(3, kernel="rbf", n_components=4, epsilon=epsilon),
    "networks": lambda epsilon: DPGM(2, steps=3, epsilon=epsilon),
    "gaussians": lambda epsilon: DPGM(2, generator="gaussian", epsilon=epsilon),
    "candidates": lambda epsilon: Evolution(X[:10], vary=alike, n_rounds=2, epsilon=epsilon),
}
every_pool = pytest.mark.parametrize("method", models.METHODS)


@pytest.fixture(params=OF_NUMBERS)
def name(request):
    if request.param == "networks":
        pytest.importorskip("torch")
    return request.param


@pytest.fixture(params=[*OF_NUMBERS, "particles", "forest", *models.METHODS, "sequences"])
def fitted(request):
    """A generator that is fitted to so many rows at a price, however it is called."""
    name = request.param
    if name in ("networks", "dpgm"):
        pytest.importorskip("torch")

    def fitting(epsilon, n=300, **how):
        if name in OF_NUMBERS:
            return OF_NUMBERS[name](epsilon).fit(np.resize(X, (n, 5)), **how)
        if name == "sequences":
            generator = SequenceGenerator(SCHEMA, longest=3, epsilon=epsilon)
            return generator.fit(table(n), **{"groups": np.arange(n) // 2} | how)
        return TableGenerator(SCHEMA, target="y", method=name, epsilon=epsilon).fit(table(n), **how)

    return fitting


def table(n=200):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    return {
        "a": np.array(["x", "y"])[a],
        "n": rng.random(n) * 2,
        "y": np.where(rng.random(n) < np.where(a == 0, 0.9, 0.1), "1", "0"),
    }


@pytest.fixture(scope="module")
def saved():
    return TableGenerator(SCHEMA, target="y", epsilon=4.0).fit(table()).to_json()


def released(made):
    """What a fit released, as it is kept."""
    if hasattr(made, "to_json"):
        return made.to_json()
    kept = ["cluster_centers_", "cluster_sizes_", "weights_", "candidates_", "votes_"]
    return str([getattr(made, name, None) for name in kept])


def test_the_price_is_the_one_asked_for_and_is_charged_once(fitted, book):
    ledger = book(28.3)  # where the ledger rounds up most
    generator = fitted(28.3, ledger=ledger)
    assert 0.97 * 28.3 < ledger.epsilon() <= 28.3
    # each charge is rounded up, of rounds each round
    assert 0.98 * ledger.epsilon() < generator.result_.upper["epsilon"] < (1 + 1e-9) * ledger.epsilon()
    n = ledger.count()
    assert released(fitted(28.3, ledger=ledger)) == released(generator)
    with pytest.raises(BudgetExceeded):  # other rows are another fit, and so is another price
        fitted(28.3, 301, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        fitted(28.2, ledger=ledger)
    assert ledger.count() == n


def test_a_person_with_many_rows_counts_as_one(fitted):
    generator = fitted(8.0, 10_003, groups=np.r_[np.zeros(10_000, dtype=int), 1, 2, 3])
    assert generator.result_.settings["unit"] == "person"
    for name in ("votes_", "cluster_sizes_", "n_people_"):
        assert np.sum(getattr(generator, name, 0)) < 1_000


def test_one_row_gives_a_generator_of_noise(fitted):
    generator = fitted(0.5, 1)
    assert 0.97 * 0.5 < generator.result_.upper["epsilon"] <= 0.5
    sample = generator.sample(50, random_state=0)
    if isinstance(sample, dict):
        assert min(len(column) for column in sample.values()) >= 50
    else:
        rows = sample[0] if isinstance(sample, tuple) else sample
        assert rows.shape == (50, 5)
        assert np.isfinite(rows).all()


@every_pool
def test_a_generator_of_numbers_learns_a_table_of_codes_and_survives_its_record(method):
    rows = table(3000)
    generator = TableGenerator(SCHEMA, target="y", epsilon=4.0, method=method)
    generator.fit(rows, rng=np.random.default_rng(1))
    assert generator.result_.settings["method"] == method
    assert generator.n_rows_ == pytest.approx(3000, abs=200)
    sample = generator.sample(3000, random_state=0)
    again = TableGenerator.from_json(generator.to_json())
    assert all((again.sample(3000, random_state=0)[name] == sample[name]).all() for name in SCHEMA.names)
    with pytest.raises(ValueError, match="that was counted"):
        again.marginal("a")
    if method != "evolution":  # which has few candidates
        codes = (SCHEMA.encode(codes_of_table)[:, [0, 2]] for codes_of_table in (rows, sample))
        real, copy = (np.bincount(codes_of_table @ [2, 1], minlength=6) / 3000 for codes_of_table in codes)
        assert np.abs(real - copy).sum() / 2 < 0.12
    assert generator.query("a").source == "model"


@pytest.mark.parametrize(
    ("generator", "question"),
    [
        (OF_NUMBERS["clusters"](1.0), "sample predict"),
        (OF_NUMBERS["networks"](1.0), "sample"),
        (OF_NUMBERS["candidates"](1.0), "sample"),
        (TableGenerator(SCHEMA), "sample to_json query marginal"),
        (SequenceGenerator(SCHEMA), "sample to_json query"),
    ],
)
def test_what_was_not_fitted_says_so(generator, question):
    words = {"predict": [X], "query": ["a"], "marginal": ["a"]}
    for name in question.split():
        with pytest.raises(NotFittedError, match="Call 'fit'"):
            getattr(generator, name)(*words.get(name, []))


def test_rows_of_another_width_have_no_cluster():
    with pytest.raises(ValueError, match="X must have 5 columns, as in fit, got 2"):
        OF_NUMBERS["clusters"](1.0).fit(X).predict(X[:, :2])


@every_pool
def test_too_many_codes_are_refused_before_the_charge(method, uncharged):
    wide = Schema.from_dict({"a": {"categories": list(map(str, range(2100)))}, "b": {"edges": [0, 1]}})
    with uncharged("at most 2,000 codes of all columns together, got 2,101") as ledger:
        TableGenerator(wide, method=method).fit({"a": ["1"] * 9, "b": [0.5] * 9}, ledger=ledger)


def test_numbers_are_codes_and_codes_are_drawn_from_shares():
    codes = np.array([[2, 0], [1, 1]])
    numbers = models.numbers(codes, (3, 2))
    np.testing.assert_array_equal(numbers, [[0, 0, 1, 1, 0], [0, 1, 0, 0, 1]])
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(models.codes_of(numbers, (3, 2), rng=rng), codes)
    drawn = models.codes_of(np.tile([-0.3, 0.25, 0.75, 1, 0], (4000, 1)), (3, 2), rng=rng)
    assert np.bincount(drawn[:, 0], minlength=3) == pytest.approx([0, 1000, 3000], abs=165)  # six deviations


@pytest.mark.parametrize("schema", [None, {"a": {"categories": ["x", "y"]}}])
def test_a_table_without_a_schema_is_refused(schema):
    with pytest.raises(TypeError, match="schema must be a Schema"):
        TableGenerator(schema, target="a").fit(table())


@pytest.mark.parametrize(
    "cells",
    [{"a": np.array([None] * 200, dtype=object)}, {"n": np.full(200, np.nan)}, {"n": np.full(200, 0.5)}],
)
def test_columns_of_one_value_or_of_none_are_learned(cells):
    generator = TableGenerator(SCHEMA, target="y", epsilon=4.0).fit(table() | cells)
    sample = generator.sample(500, random_state=0)
    (name,) = cells
    codes = SCHEMA.columns[SCHEMA.place(name)].encode(sample[name])
    expected = SCHEMA.columns[SCHEMA.place(name)].encode(cells[name])[0]
    assert np.mean(codes == expected) > 0.8


def test_an_epsilon_too_small_for_one_marginal_is_refused_before_the_charge(uncharged):
    with uncharged("epsilon must be larger, got 1e-06") as ledger:
        TableGenerator(SCHEMA, target="y", epsilon=1e-6).fit(table(), ledger=ledger)


def test_an_epsilon_too_small_for_any_noise_is_refused_before_the_charge(name, uncharged):
    with uncharged("epsilon must be larger") as ledger:
        OF_NUMBERS[name](1e-9).fit(X, ledger=ledger)


@pytest.mark.parametrize("epsilon", [None, "3", np.inf, 0])
def test_an_epsilon_that_is_no_price_is_refused_in_a_sentence(fitted, epsilon):
    with pytest.raises(ValueError, match="epsilon must be finite and > 0"):
        fitted(epsilon)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "secretly"])
def test_what_is_no_finite_number_is_refused_and_not_shown(name, bad):
    rows = X.astype(object)
    rows[7, 2] = bad
    with pytest.raises(ValueError, match=r"X .*must be") as error:
        OF_NUMBERS[name](1.0).fit(rows)
    assert "secretly" not in str(error.value)


def test_an_absurd_row_moves_no_sum_further_than_any_other(name):
    """Its length and its angles overflow single precision: no number of the release may become NaN."""
    rows = X.copy()
    rows[0], rows[1] = 3e38, -3e38
    generator = OF_NUMBERS[name](1.0).fit(rows, rng=np.random.default_rng(0))
    if name == "candidates":
        assert abs(generator.votes_.sum() - 300) < 9 * generator.mechanism_.sigma * np.sqrt(10)
    else:
        assert np.isfinite(generator.cluster_centers_).all()
        assert np.abs(generator.cluster_centers_).max() < 1e4
        assert np.isfinite(generator.cluster_sizes_).all()


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
