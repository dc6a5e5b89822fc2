"""Generators of rows of numbers which learn a table of codes."""

import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.synth import Schema, TableGenerator, models

SCHEMA = Schema.from_dict(
    {"a": {"categories": ["x", "y", "z"]}, "b": {"edges": [0, 1, 2]}, "y": {"categories": ["0", "1"]}}
)
every_method = pytest.mark.parametrize("method", models.METHODS)


def rows(n=3000):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, n)
    return {
        "a": np.array(["x", "y", "z"])[a],
        "b": np.where(a == 0, 0.5, 1.5),
        "y": np.where(rng.random(n) < np.where(a == 0, 0.9, 0.1), "1", "0"),
    }


@every_method
def test_a_table_is_learned_at_the_price_and_survives_its_record(method):
    with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-5, adaptive=False)) as ledger:
        made = TableGenerator(SCHEMA, target="y", epsilon=4.0, method=method)
        made.fit(rows(), ledger=ledger, rng=np.random.default_rng(1))
        assert 3.5 < ledger.epsilon() <= 4.0
    assert made.result_.settings["method"] == method
    assert made.n_rows_ == pytest.approx(3000, abs=200)
    sample = made.sample(3000, random_state=0)
    again = TableGenerator.from_json(made.to_json())
    assert all((again.sample(3000, random_state=0)[name] == sample[name]).all() for name in SCHEMA.names)
    with pytest.raises(ValueError, match="that was counted"):
        again.marginal("a")
    if method != "evolution":  # which has few candidates
        real = SCHEMA.encode(rows())
        copy = SCHEMA.encode(sample)
        shares = [np.bincount(each[:, 0] * 2 + each[:, 2], minlength=6) / 3000 for each in (real, copy)]
        assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.12
    assert made.query("a").source == "model"


@every_method
def test_a_person_is_the_unit_when_rows_come_in_groups(method):
    made = TableGenerator(SCHEMA, target="y", epsilon=4.0, method=method)
    made.fit(rows(600), groups=np.repeat(np.arange(300), 2), rng=np.random.default_rng(1))
    assert made.result_.settings["unit"] == "person"


@every_method
def test_too_many_codes_are_refused_before_the_charge(method, uncharged):
    wide = Schema.from_dict({"a": {"categories": list(map(str, range(2100)))}, "b": {"edges": [0, 1]}})
    with uncharged("at most 2,000 codes of all columns together, got 2,101") as ledger:
        TableGenerator(wide, method=method).fit({"a": ["1"] * 9, "b": [0.5] * 9}, ledger=ledger)


def test_numbers_are_codes_and_codes_are_drawn_from_shares():
    codes = np.array([[2, 0], [1, 1]])
    table = models.numbers(codes, (3, 2))
    np.testing.assert_array_equal(table, [[0, 0, 1, 1, 0], [0, 1, 0, 0, 1]])
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(models.codes_of(table, (3, 2), rng=rng), codes)
    drawn = models.codes_of(np.tile([-0.3, 0.25, 0.75, 1, 0], (4000, 1)), (3, 2), rng=rng)
    assert np.bincount(drawn[:, 0], minlength=3) == pytest.approx([0, 1000, 3000], abs=165)  # six deviations
