import numpy as np
import pytest

from ostraka import Budget, Ledger
from ostraka.synth import Schema, TableGenerator, tables
from ostraka.synth import fitting as _fitting
from ostraka.synth.models import shrunk
from ostraka.synth.tables import METHODS

SCHEMA = Schema.from_dict(
    {
        "smokes": {"categories": ["no", "yes"]},
        "age": {"edges": [0, 30, 60, 90]},
        "town": {"categories": ["a", "b", "c"]},
        "ill": {"categories": ["0", "1"]},
    }
)


def people(n, seed=0):
    """Age moves both smoking and town; illness follows smoking and age."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 90, n)
    smokes = rng.random(n) < 0.2 + 0.5 * (age > 60)
    town = np.where(rng.random(n) < 0.7, (age // 30).astype(int), rng.integers(0, 3, n))
    ill = rng.random(n) < 0.05 + 0.5 * smokes + 0.3 * (age > 60)
    return {
        "smokes": np.where(smokes, "yes", "no"),
        "age": age,
        "town": np.array(list("abc"))[town],
        "ill": ill.astype(int).astype(str),
    }


every_method = pytest.mark.parametrize("method", ["particles", "forest"])


def fitted(n=4000, *, epsilon=4.0, target="ill", seed=1, method="auto", **how):
    return TableGenerator(SCHEMA, target=target, epsilon=epsilon, delta=1e-5, method=method).fit(
        people(n), rng=np.random.default_rng(seed), **how
    )


def table(codes, columns):
    sizes = [SCHEMA.sizes[j] for j in columns]
    cells = np.ravel_multi_index(tuple(codes[:, j] for j in columns), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))) / len(codes)


@every_method
@pytest.mark.parametrize("target", ["ill", pytest.param(None, marks=pytest.mark.slow)])
def test_pairs_of_columns_look_alike_in_the_copy(target, method):
    real = SCHEMA.encode(people(4000))
    copy = SCHEMA.encode(fitted(target=target, method=method).sample(20_000, random_state=2))
    for a in range(4):
        for b in range(a):
            assert np.abs(table(real, (a, b)) - table(copy, (a, b))).sum() / 2 < 0.06, (a, b)


def test_the_number_of_rows_is_noisy_and_near():
    """Planted: the exact number, which one row moves."""
    sizes = [fitted(seed=seed).n_rows_ for seed in range(3)]
    assert len(set(sizes)) > 1
    assert sizes == pytest.approx([4000] * 3, abs=100)


@pytest.mark.statistical
@every_method
@pytest.mark.parametrize("target", ["ill", pytest.param(None, marks=pytest.mark.slow)])
def test_noisy_counts_are_off_by_their_standard_error(target, method):
    real, away = SCHEMA.encode(people(300)), []
    for seed in range(6):
        generator = fitted(300, target=target, seed=seed, method=method)
        for columns in generator.tables_:
            counts, error = generator.marginal(*(SCHEMA.names[j] for j in columns))
            exact = np.zeros(counts.shape)
            np.add.at(exact, tuple(real[:, list(columns)].T), 1)
            away += ((counts - exact) / error).ravel().tolist()
    assert len(away) > 150
    tolerance = 7 / np.sqrt(len(away))  # standard deviations of the mean
    assert abs(np.mean(away)) < tolerance
    assert abs(np.std(away) - 1) < tolerance


@pytest.mark.parametrize("names", [("ill",), ("age", "town"), (), ("age", "age"), ("age", "smokes", "town")])
def test_marginals_that_were_not_counted_are_refused_with_those_that_were(names):
    generator = fitted(300, epsilon=0.1)
    generator.counts_ = {name: table for name, table in generator.counts_.items() if name in {"0,3", "1,3"}}
    with pytest.raises(ValueError, match=r"names must be .* counted, \(smokes, ill\), \(age, ill\)"):
        generator.marginal(*names)
    assert generator.marginal("age")[0].shape == generator.marginal("ill", "age")[0].shape == (3, 2)


@every_method
@pytest.mark.parametrize("target", ["ill", None])
def test_a_generator_survives_its_record(target, method):
    generator = fitted(600, target=target, method=method, epsilon=0.2)
    again = TableGenerator.from_json(generator.to_json())
    first, second = (model.sample(3000, random_state=0) for model in (generator, again))
    assert all((first[name] == second[name]).all() for name in SCHEMA.names)
    assert (again.mechanism_, again.result_) == (generator.mechanism_, generator.result_)
    if method == "forest":  # which draws a target by a model of its own
        assert (generator.model_.labels is None) is (again.model_.labels is None) is (target is None)


def test_samples_hardly_add_an_error_of_their_own():
    """Independent draws would be off by about 0.8 sqrt(n p (1 - p)) in each cell: here 20 rows, not 2."""
    generator = fitted(epsilon=1.0)
    model, sizes = generator.model_, SCHEMA.sizes
    for j, size in enumerate(sizes):
        share = np.bincount(model.codes[:, j], weights=model.weights, minlength=size)
        counts = np.bincount(generator.sample_codes(4000, rng=np.random.default_rng(0))[:, j], minlength=size)
        assert np.abs(counts - 4000 * share).mean() < 5, j


def test_more_rows_than_particles_are_drawn_anew():
    generator = fitted(100, epsilon=8.0)
    n_particles = len(generator.model_.codes)
    codes = generator.sample_codes(3 * n_particles, rng=np.random.default_rng(0))
    real = generator.sample_codes(n_particles, rng=np.random.default_rng(0))
    assert codes.shape == (3 * n_particles, 4)
    for a in range(4):
        assert np.abs(table(codes, (a,)) - table(real, (a,))).sum() / 2 < 0.05


def test_samples_repeat_under_their_seed_and_have_the_asked_size():
    generator = fitted()
    first, second, third = (generator.sample(50, random_state=seed) for seed in (3, 3, 4))
    assert all((first[name] == second[name]).all() for name in SCHEMA.names)
    assert any((first[name] != third[name]).any() for name in SCHEMA.names)
    assert len(first["age"]) == 50
    assert generator.sample(0)["age"].shape == (0,)


def test_rows_of_one_person_share_one_weight_whatever_their_number():
    groups = np.repeat(np.arange(4), [1, 3, 8, 10_000])
    private = tables.coded(SCHEMA, people(len(groups)), groups, rng=None)
    weights = private.open()[:, -1]
    row_counts = _fitting.rows_of_persons(groups, len(groups), rng=None)
    assert sorted(weights) == sorted(tables.GRAIN // row_counts[row_counts > 0])
    assert (private.open()[:, -2] == row_counts[row_counts > 0] - 1).all()  # how many rows the person has
    totals = np.bincount(groups[row_counts > 0], tables.GRAIN // row_counts[row_counts > 0])
    assert totals.max() <= tables.GRAIN
    assert totals.min() >= tables.GRAIN - 8


@pytest.mark.parametrize("method", ["particles", "forest", "kmeans"])
def test_a_copy_has_as_many_rows_for_a_person_as_the_table(method):
    """Planted: one row for each person. Persons with one row smoke, those with three do not.

    The share of one copy has a standard deviation of .009 (of .015 with clusters, about .28), that of eight
    .003 (.005): each of the three methods fails with a probability below .001.
    """
    who = np.concatenate([np.arange(1000), np.repeat(np.arange(1000, 2000), 3)])
    rows = people(4000) | {"smokes": np.repeat(["yes", "no"], [1000, 3000])}
    shares = []
    for seed in range(8):
        generator = TableGenerator(SCHEMA, epsilon=8.0, method=method).fit(
            rows, groups=who, rng=np.random.default_rng(seed)
        )
        assert generator.n_people_ == pytest.approx(2000, rel=0.05)
        assert generator.n_rows_ == pytest.approx(4000, rel=0.05 if method != "kmeans" else 0.1)
        sample = generator.sample(random_state=0)
        assert len(sample["smokes"]) == generator.n_rows_
        shares.append(np.mean(sample["smokes"] == "yes"))
    assert np.mean(shares) == pytest.approx(0.25, rel=0.07 if method != "kmeans" else 0.22)
    more = generator.sample(10 * generator.n_rows_, random_state=0)
    # more rows are no others: within four standard deviations of a share of 4,000 rows
    assert np.mean(more["smokes"] == "yes") == pytest.approx(shares[-1], abs=0.03)
    assert list(sample) == list(SCHEMA.names)
    again = TableGenerator.from_json(generator.to_json())
    assert (again.n_people_, again.n_rows_) == (generator.n_people_, generator.n_rows_)


@every_method
def test_numbers_of_rows_that_nobody_has_are_hardly_in_the_copy(method):
    generator = fitted(groups=np.repeat(np.arange(2000), 2), method=method)  # 2 rows each, never 1 or 3 to 8
    assert generator.n_people_ == pytest.approx(2000, abs=100)
    assert generator.n_rows_ == pytest.approx(4000, rel=0.03)


def test_one_class_and_a_constant_column_are_learned():
    schema = Schema.from_dict(
        {"a": {"categories": ["x"]}, "b": {"edges": [0, 1, 2]}, "y": {"categories": ["0", "1"]}}
    )
    rows = {"a": ["x"] * 500, "b": [0.5] * 500, "y": ["1"] * 500}
    sample = TableGenerator(schema, target="y", epsilon=8.0).fit(rows).sample(500, random_state=0)
    assert (sample["y"] == "1").mean() > 0.9


def wide(width, n):
    rng = np.random.default_rng(0)
    schema = Schema.from_dict({f"c{k}": {"edges": [0, 1, 2, 3]} for k in range(width)})
    return schema, {name: 3 * rng.random(n) for name in schema.names}


ONE = Schema.from_dict({"a": {"categories": ["x", "y"]}}), {"a": ["x", "y", "y"] * 20}
THREE = {"a": {"categories": ["x"]}, "b": {"edges": [0, 1, 2]}, "c": {"categories": ["u", "v"]}}
CONSTANT = Schema.from_dict(THREE), {"a": ["x"] * 50, "b": [0.5] * 50, "c": ["u"] * 50}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("schema", "rows", "target", "refused"),
    [
        (*ONE, None, ()),
        (*ONE, "a", ("forest", "kmeans", "dpgm")),  # which need a column beside the target
        (*CONSTANT, "c", ()),
        (*CONSTANT, None, ()),
        (*wide(8, 50), "c0", ()),
    ],
    ids=["one column", "a target alone", "constant", "constant, no target", "50 rows"],
)
def test_each_method_has_a_copy_of_an_odd_table_or_refuses_before_the_charge(
    schema, rows, target, refused, method
):
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=1e-5, adaptive=False)) as ledger:
        generator = TableGenerator(schema, target=target, epsilon=2.0, method=method)
        if method in refused:
            with pytest.raises(ValueError, match="one column or more beside the target"):
                generator.fit(rows, ledger=ledger)
            assert ledger.epsilon() == 0
            return
        sample = generator.fit(rows, ledger=ledger).sample(20, random_state=0)
        assert {len(column) for column in sample.values()} == {20}
        assert 0 < ledger.epsilon() <= 2.0


@pytest.mark.parametrize(("n_columns", "method"), [(50, "particles"), (51, "forest")])
def test_particles_are_the_default_up_to_50_columns(n_columns, method):
    schema, _ = wide(n_columns, 1)
    usual, explicit = (TableGenerator(schema, method=m).mechanism(persons=False) for m in ("auto", method))
    assert usual == explicit


@pytest.mark.parametrize("n_columns", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_a_table_of_many_columns_has_a_copy(n_columns):
    schema, rows = wide(n_columns, 50)
    generator = TableGenerator(schema, target="c0", epsilon=1.0).fit(rows)
    assert {len(column) for column in generator.sample(20, random_state=0).values()} == {20}
    assert generator.result_.upper["epsilon"] <= 1.0


def test_more_codes_than_a_table_can_have_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="at most 10,000 codes"):
        Schema.from_dict({"a": {"categories": list(map(str, range(100_000)))}})
    with pytest.raises(ValueError, match="one column or more beside the target"):
        TableGenerator(wide(1, 0)[0], target="c0", method="forest").fit({"c0": [1.0]})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target": "income"}, "must have a column 'income'"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"epsilon": 1e-9}, "epsilon must be larger"),
        ({"delta": 0.0}, "delta must"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(settings, words, uncharged):
    with uncharged(words) as ledger:
        TableGenerator(SCHEMA, **{"target": "ill", **settings}).fit(people(10), ledger=ledger)


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"groups must be one a row, shape \(4000,\)"):
        fitted(groups=np.arange(3))


def test_cells_of_three_columns_are_shrunk_as_far_as_their_noise_asks():
    """Cells lie as far from independence as noise moves them: half way has half the error of either end."""
    rng = np.random.default_rng(5)
    expected = np.full((9, 9, 4), 900.0)
    truth = expected + 30 * rng.normal(size=expected.shape)
    noisy = truth + 30 * rng.normal(size=expected.shape)
    cells = shrunk(noisy, expected, (truth.sum(axis=1), truth.sum(axis=0)), sigma=30.0)
    error = float(np.square(cells - truth).mean())
    assert error < 0.6 * min(np.square(noisy - truth).mean(), np.square(expected - truth).mean())
    np.testing.assert_allclose(cells.sum(axis=0), truth.sum(axis=0), rtol=1e-6)
