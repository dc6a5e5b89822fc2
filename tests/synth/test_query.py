"""Questions to a generator: counts of the noisy tables, or of the model, with intervals."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from ostraka.core.mechanisms.particles import Particles
from ostraka.synth import Column, Schema, TableGenerator, tables
from ostraka.synth.models import _share, asked

SCHEMA = Schema.from_dict(
    {
        "age": {"edges": [0, 20, 30, 100], "whole": True, "missing": True},
        "rate": {"edges": [0.0, 1.0, 3.0]},
        "sex": {"categories": ["f", "m"]},
        "ill": {"categories": ["no", "yes"]},
    }
)
AGE = SCHEMA.columns[0]


@pytest.mark.parametrize(
    ("column", "operator", "value", "share"),
    [
        (AGE, ">=", "25", [0, 0.5, 1, 0]),
        (AGE, ">", "25", [0, 0.4, 1, 0]),
        (AGE, "<", "20", [1, 0, 0, 0]),
        (AGE, "<=", "20", [1, 0.1, 0, 0]),
        (AGE, "=", "20", [0, 0.1, 0, 0]),
        (AGE, "!=", "20", [1, 0.9, 1, 0]),
        (AGE, ">=", "200", [0, 0, 0, 0]),
        (SCHEMA.columns[1], ">", "2", [0, 0.5]),
        (SCHEMA.columns[1], "<=", "0.25", [0.25, 0]),
        (SCHEMA.columns[2], "=", "m", [0, 1]),
        (SCHEMA.columns[2], "!=", "m", [1, 0]),
        (Column(name="day", edges=(0, 31, 59), date=True), ">=", "1970-02-01", [0, 1]),
    ],
)
def test_a_condition_takes_the_part_of_each_bin_that_satisfies_it(column, operator, value, share):
    np.testing.assert_allclose(_share(column, operator, value), share, atol=1e-12)


def test_a_question_has_groups_and_conditions_which_multiply():
    question = asked(SCHEMA, " ill, age >= 20, age<30 , sex")
    assert question.groups == (3, 2)
    np.testing.assert_allclose(question.shares[0], [0, 1, 0, 0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must name a column"),
        ("income", "must have a column 'income'"),
        ("sex>=f", "has categories"),
        ("sex=x", "no category 'x'; it has f, m"),
        ("age>=old", "numbers or dates"),
    ],
)
def test_a_question_that_cannot_be_read_is_refused_in_a_sentence(text, words):
    with pytest.raises(ValueError, match=words):
        asked(SCHEMA, text)


def rows(n=800):
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, n)
    return {
        "age": age,
        "rate": 3 * rng.random(n),
        "sex": np.array(["f", "m"])[rng.integers(0, 2, n)],
        "ill": np.where(rng.random(n) < age / 200, "yes", "no"),
    }


@pytest.fixture
def generator():
    return TableGenerator(SCHEMA, target="ill", epsilon=0.3).fit(rows(), rng=np.random.default_rng(0))


def test_counts_are_the_mean_of_the_noisy_tables_that_have_the_columns(generator):
    """The standard error is that of a sum of independent noises; 1.96 of them lie on each side."""
    generator.counts_ = {"0,3": generator.counts_["0,3"]}
    answer = generator.query("age>=25, ill")
    cells, error = generator.marginal("age", "ill")
    share = np.array([0, 0.5, 1, 0])
    assert (answer.source, answer.columns) == ("counts", ("ill",))
    for k, row in enumerate(answer.rows):
        assert row.group == (("no", "yes")[k],)
        assert row.estimate == pytest.approx(share @ cells[:, k])
        assert row.high - row.estimate == pytest.approx(1.959964 * error * math.sqrt(1.25), rel=1e-6)
        assert row.estimate - row.low == pytest.approx(row.high - row.estimate)
    swapped = generator.query("ill, age")
    np.testing.assert_allclose([row.estimate for row in swapped.rows], cells.T.ravel())


def test_what_was_not_counted_together_comes_from_the_model_with_an_interval(generator):
    answer = generator.query("rate>1, sex, ill, age>=30", confidence=0.5)
    assert answer.source == "model"
    assert all(row.low < row.estimate < row.high for row in answer.rows)
    again = TableGenerator.from_json(generator.to_json()).query("rate>1, sex, ill, age>=30", confidence=0.5)
    assert again == answer
    n_rows = generator.query("rate>1, sex, ill, age<20").rows
    assert any(math.isnan(row.low) for row in n_rows)  # none of the particles is in these groups
    assert json.dumps(answer.to_dict())
    with pytest.raises(ValueError, match="confidence must"):
        generator.query("sex", confidence=1.0)


def test_a_forest_has_no_interval_for_its_model():
    forest = TableGenerator(SCHEMA, target="ill", method="forest").fit(rows(), rng=np.random.default_rng(0))
    assert forest.query("age, ill").source == "counts"
    answer = forest.query("rate, age, sex, ill").to_dict()
    assert {row["low"] for row in answer["rows"]} == {None}


def test_the_influence_of_a_noisy_count_is_the_derivative_of_the_answer():
    """By our own differences: one count is moved, and the model fitted again to the end."""
    rng = np.random.default_rng(0)
    model = Particles((3, 2, 2), n_rows=1000.0, n_particles=4000, rng=rng)
    for columns in ((0,), (1,), (2,), (0, 1), (1, 2)):
        shape = [(3, 2, 2)[j] for j in columns]
        model.add(
            columns, 1000 * rng.dirichlet(np.full(math.prod(shape), 8.0)).reshape(shape), sigma=9.0, pull=0.1
        )
    model.start()
    model.fit(rounds=4, steps=100)
    for _ in range(3):
        model.solve(300)
    values = (model.codes[:, 0] == 1) * (model.codes[:, 2] == 0) * 1.0
    moved = model.influence(values, steps=300, within=1e-9)
    wanted = model.wanted.copy()
    for cell in (0, 4, 8, 12):
        answers = []
        for step in (-3.0, 3.0):
            model.wanted = wanted.copy()
            model.wanted[cell] += step
            weights, codes = model.weights, model.codes
            begin = model.theta
            model.theta = begin.copy()
            solved(model)
            answers.append(1000 * float(model.weights @ values))
            model.theta, model.weights, model.codes = begin, weights, codes
        assert (answers[1] - answers[0]) / 6 == pytest.approx(moved[cell], abs=0.01)


def solved(model):
    """Solve with the particles' weights as they are: as if they were equal rows of theta."""
    weights = model.weights
    cells = model._cells()
    start, size = model.theta.copy(), model.theta.size
    for _ in range(60):  # Newton's method
        shares = weights * np.exp((model.theta - start)[cells].sum(axis=1))
        shares /= shares.sum()
        which = np.zeros((len(cells), size))
        which[np.arange(len(cells))[:, None], cells] = 1
        mean = shares @ which
        slope = 1000 * mean - model.wanted + model.penalty * model.theta
        curve = 1000 * (which.T @ (shares[:, None] * which) - np.outer(mean, mean)) + np.diag(model.penalty)
        step = np.linalg.solve(curve, slope)
        model.theta = model.theta - step
        if np.abs(step).max() < 1e-10:
            break
    model.weights = shares


FALSE_ALARM = 1e-6
RUNS = 150


@pytest.mark.statistical
def test_intervals_hold_the_count_of_the_rows_as_often_as_they_say():
    """Planted: half as wide, which holds 59 % of the counts. One answer a run: runs are independent."""
    private = rows(200)
    truth = np.sum((private["age"] >= 20) & (private["ill"] == "yes"))
    fitted_generator = TableGenerator(SCHEMA, target="ill", method="forest", epsilon=0.3).fit(private)
    coded, rng, n_held = tables.coded(SCHEMA, private, None, rng=None), np.random.default_rng(0), 0
    for _ in range(RUNS):
        fitted_generator.counts_ = fitted_generator.mechanism_.release(coded, rng=rng)
        answers = fitted_generator.query("age>=20, ill", confidence=0.9)
        row = answers.rows[1]
        assert (answers.source, row.group) == ("counts", ("yes",))
        n_held += row.low <= truth <= row.high
    low, high = binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], RUNS, 0.9)
    assert low <= n_held <= high
    assert binom.cdf(low - 1, RUNS, 0.59) > 0.999
