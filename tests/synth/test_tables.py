import numpy as np
import pytest

from ostraka import Budget, BudgetExceeded, Ledger
from ostraka.synth import Schema, TableGenerator, tables
from ostraka.synth import fitting as _fitting

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


def fitted(n=4000, *, epsilon=4.0, target="ill", seed=1, **how):
    return TableGenerator(SCHEMA, target=target, epsilon=epsilon, delta=1e-5).fit(
        people(n), rng=np.random.default_rng(seed), **how
    )


def table(codes, columns):
    sizes = [SCHEMA.sizes[j] for j in columns]
    cells = np.ravel_multi_index(tuple(codes[:, j] for j in columns), sizes)
    return np.bincount(cells, minlength=int(np.prod(sizes))) / len(codes)


@pytest.mark.parametrize("target", ["ill", None])
def test_pairs_of_columns_look_alike_in_the_copy(target):
    real = SCHEMA.encode(people(4000))
    copy = SCHEMA.encode(fitted(target=target).sample(20_000, random_state=2))
    for a in range(4):
        for b in range(a):
            assert np.abs(table(real, (a, b)) - table(copy, (a, b))).sum() / 2 < 0.06, (a, b)


def test_the_price_is_the_one_asked_for_and_is_charged_once():
    with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-5, adaptive=False)) as ledger:
        generator = fitted(ledger=ledger)
        assert 3.9 < ledger.epsilon() <= 4.0
        assert generator.result_.upper["epsilon"] == pytest.approx(ledger.epsilon(), rel=1e-9)
        with pytest.raises(BudgetExceeded):
            fitted(ledger=ledger)


def test_the_number_of_rows_is_noisy_and_near():
    """Planted: the exact number, which one row moves."""
    found = [fitted(seed=seed).n_rows_ for seed in range(5)]
    assert len(set(found)) > 2
    assert found == pytest.approx([4000] * 5, abs=100)


@pytest.mark.statistical
@pytest.mark.parametrize("target", ["ill", None])
def test_noisy_counts_are_off_by_their_standard_error(target):
    real, away = SCHEMA.encode(people(300)), []
    for seed in range(20):
        generator = fitted(300, target=target, seed=seed)
        pairs = [[SCHEMA.names[j] for j in pair] for pair in generator.triples_]
        for names in (["age"], ["town", "smokes"], *pairs):
            try:
                counts, error = generator.marginal(*names)
            except ValueError:
                assert sorted(names) == ["smokes", "town"]
                continue
            columns = sorted(SCHEMA.place(name) for name in names)
            columns += [] if target is None else [SCHEMA.place(target)]
            exact = np.zeros(counts.shape)
            np.add.at(exact, tuple(real[:, columns].T), 1)
            away += ((counts - exact) / error).ravel().tolist()
    assert len(away) > 300
    far = 7 / np.sqrt(len(away))  # standard deviations of the mean
    assert abs(np.mean(away)) < far
    assert abs(np.std(away) - 1) < far


@pytest.mark.parametrize("names", [("ill",), ("age", "ill"), (), ("age", "age"), ("age", "smokes", "town")])
def test_marginals_that_were_not_counted_are_refused_with_those_that_were(names):
    with pytest.raises(ValueError, match=r"names must be .* pair that was counted \(.*age"):
        fitted(300).marginal(*names)


def test_samples_repeat_under_their_seed_and_have_the_asked_size():
    generator = fitted()
    one, two, other = (generator.sample(50, random_state=seed) for seed in (3, 3, 4))
    assert all((one[name] == two[name]).all() for name in SCHEMA.names)
    assert any((one[name] != other[name]).any() for name in SCHEMA.names)
    assert len(one["age"]) == 50
    assert generator.sample(0)["age"].shape == (0,)


def test_rows_of_one_person_share_one_weight_whatever_their_number():
    groups = np.repeat(np.arange(4), [1, 3, 8, 10_000])
    private = tables.coded(SCHEMA, people(len(groups)), groups, rng=None)
    weights = private.open()[:, -1]
    used = _fitting.rows_of_persons(groups, len(groups), rng=None)
    assert sorted(weights) == sorted(tables.GRAIN // used[used > 0])
    totals = np.bincount(groups[used > 0], tables.GRAIN // used[used > 0])
    assert totals.max() <= tables.GRAIN
    assert totals.min() >= tables.GRAIN - 8


def test_a_person_is_the_unit_when_rows_come_in_groups():
    generator = fitted(groups=np.repeat(np.arange(2000), 2))
    assert generator.result_.settings["unit"] == "person"
    assert generator.n_rows_ == pytest.approx(2000, abs=100)


@pytest.mark.parametrize("n", [1, 3])
def test_few_rows_still_give_a_generator_or_nothing_of_them(n):
    sample = TableGenerator(SCHEMA, target="ill", epsilon=0.5).fit(people(n)).sample(100, random_state=0)
    assert len(sample["age"]) == 100


def test_one_class_and_a_constant_column_are_learned():
    schema = Schema.from_dict(
        {"a": {"categories": ["x"]}, "b": {"edges": [0, 1, 2]}, "y": {"categories": ["0", "1"]}}
    )
    rows = {"a": ["x"] * 500, "b": [0.5] * 500, "y": ["1"] * 500}
    sample = TableGenerator(schema, target="y", epsilon=8.0).fit(rows).sample(500, random_state=0)
    assert (sample["y"] == "1").mean() > 0.9


@pytest.mark.parametrize(
    ("settings", "rows", "words"),
    [
        ({"target": "income"}, {}, "must have a column 'income'"),
        ({"epsilon": 0.0}, {}, "epsilon must"),
        ({"epsilon": 1e-9}, {}, "epsilon must be larger"),
        ({"delta": 0.0}, {}, "delta must"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(settings, rows, words):
    with Ledger(":memory:", budget=Budget(epsilon=4.0, delta=1e-5, adaptive=False)) as ledger:
        generator = TableGenerator(SCHEMA, **{"target": "ill", **settings})
        with pytest.raises(ValueError, match=words):
            generator.fit(people(10) | rows, ledger=ledger)
        assert ledger.epsilon() == 0


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"groups must be one a row, shape \(4000,\)"):
        fitted(groups=np.arange(3))
