import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from ostraka.synth import Schema
from ostraka.synth.compare import _learned, _near, _scored, _tables, compared

SCHEMA = Schema.from_dict(
    {
        "a": {"categories": ["x", "y", "z"]},
        "b": {"edges": [0, 1, 2], "missing": True},
        "c": {"categories": ["0", "1"]},
    }
)


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, n), rng.integers(0, 3, n)
    return np.column_stack([a, b, (a > 0) & (b > 0)]).astype(np.int64)


def test_a_copy_of_the_rows_is_like_them_in_everything():
    comparison = compared(SCHEMA, rows(), rows(), target="c")
    assert [column["apart"] for column in comparison["columns"]] == [0.0, 0.0, 0.0]
    assert [row["copy"] for row in comparison["tables"]] == [0, 0]  # of pairs and of the triple
    assert comparison["learned"]["copy"]["accuracy"] == comparison["learned"]["original"]["accuracy"] == 1.0
    assert comparison["columns"][1]["values"] == ["0 to 1", "1 to 2", "missing"]


def test_columns_that_are_independent_in_the_copy_are_seen_in_pairs_and_in_what_is_learned():
    real, copy = rows(4000), rows(4000, seed=1)
    copy[:, 2] = np.random.default_rng(2).permutation(copy[:, 2])
    comparison = compared(SCHEMA, real, copy, target="c")
    assert comparison["tables"][0]["copy"] > 0.05 > max(column["apart"] for column in comparison["columns"])
    assert comparison["learned"]["copy"]["auc"] < 0.8 < comparison["learned"]["original"]["auc"]


def test_total_variations_are_those_of_whole_tables():
    real, copy = rows(), rows(60, seed=3)
    tables = []
    for a, b in ((0, 1), (0, 2), (1, 2)):
        shares = [
            np.histogram2d(part[:, a], part[:, b], bins=3, range=((0, 3), (0, 3)))[0] / len(part)
            for part in (real, copy)
        ]
        tables.append(np.abs(shares[0] - shares[1]).sum() / 2)
    pairs = compared(SCHEMA, real, copy, target=None)["tables"][0]
    assert pairs["copy"] == pytest.approx(np.mean(tables))


@pytest.mark.parametrize("n_columns", [2, 3, 4])
def test_the_floor_is_what_chance_does_in_a_copy_of_that_size(n_columns):
    """For n rows a cell of share p is off by sqrt(2 p (1 - p) / (pi n)) on average."""
    rng, sizes, n_copy = np.random.default_rng(0), (4,) * 6, 5_000
    real, copy = (rng.integers(0, 4, (n, 6)) for n in (50_000, n_copy))
    distances = _tables(sizes, real, copy, n_columns, rng)
    share = 4.0**-n_columns
    expected = np.sqrt(2 / np.pi * share * (1 - share) / n_copy) / share / 2
    assert distances["floor"] == pytest.approx(expected, rel=0.15)
    assert distances["copy"] == pytest.approx(distances["floor"], rel=0.15)  # the copy is such a sample
    assert (distances["n_tables"], distances["of"]) == ({2: 15, 3: 20, 4: 15}[n_columns],) * 2


def test_nearest_rows_are_those_of_all_distances():
    rng = np.random.default_rng(0)
    real, copy = rng.integers(0, 4, (80, 6)), rng.integers(0, 4, (40, 6))
    nearest = _near(real, copy, np.random.default_rng(1))
    order = np.random.default_rng(1).permutation(80)
    queries, among = real[order[:40]], real[order[40:]]
    distances = np.rint(cdist(queries, among, "hamming").min(axis=1) * 6).astype(int)
    assert nearest["original"] == (np.bincount(distances, minlength=7) / 40).tolist()
    assert _near(real, real, np.random.default_rng(1))["copy"][0] > 0.4


def test_the_auc_of_two_classes_is_the_usual_one():
    train, test = rows(), rows(seed=5)
    test[::5, 2] = 1 - test[::5, 2]
    model = HistGradientBoostingClassifier(random_state=0, max_iter=50, early_stopping=False)
    chance = model.fit(train[:, :2], train[:, 2]).predict_proba(test[:, :2])[:, 1]
    assert _scored(train, test, 2)["auc"] == pytest.approx(roc_auc_score(test[:, 2], chance))


@pytest.mark.parametrize("n", [79, 80, 81, 400])
def test_models_of_half_of_the_rows_and_of_the_copy_are_measured_on_the_other_half(n):
    real, copy = rows(n), rows(n, seed=1)
    learned = _learned(real, copy, 2, np.random.default_rng(3))
    if n < 80:
        assert learned is None
        return
    order = np.random.default_rng(3).permutation(n)
    first, test = real[order[: n // 2]], real[order[n // 2 :]]
    assert learned["original"] == _scored(first, test, 2)
    assert learned["copy"] == _scored(copy[: n // 2], test, 2)
    majority = np.bincount(first[:, 2]).argmax()
    assert learned["majority"] == np.mean(test[:, 2] == majority)
    assert learned["n_test"] == n - n // 2
    model = HistGradientBoostingClassifier(random_state=0, max_iter=50, early_stopping=False)
    fitted = model.fit(first[:, :2], first[:, 2])
    assert learned["original"]["accuracy"] == fitted.score(test[:, :2], test[:, 2])
    one_class = np.column_stack([real[:, :2], np.zeros(n, dtype=int)])
    assert _learned(one_class, copy, 2, np.random.default_rng(3)) is None
    assert _learned(real, one_class, 2, np.random.default_rng(3)) is None


def test_of_many_classes_the_area_is_the_mean_of_each_by_its_size():
    train, test = rows(300), rows(300, seed=5)
    test = test[test[:, 0] != 2]  # a class that no row of the test has
    model = HistGradientBoostingClassifier(random_state=0, max_iter=50, early_stopping=False)
    chances = model.fit(train[:, 1:], train[:, 0]).predict_proba(test[:, 1:])
    sizes = [(test[:, 0] == k).sum() for k in (0, 1)]
    areas = [roc_auc_score(test[:, 0] == k, chances[:, k]) for k in (0, 1)]
    assert _scored(train, test, 0)["auc"] == pytest.approx(np.average(areas, weights=sizes))
    assert _scored(train, test[test[:, 0] == 1], 0)["auc"] == 0.5


def test_the_record_of_a_comparison_has_shares_of_both():
    real, copy = rows(200), rows(100, seed=1)
    record = compared(SCHEMA, real, copy, target=None)
    assert (record["n_real"], record["n_copy"], record["learned"]) == (200, 100, None)
    for j, (name, size) in enumerate((("a", 3), ("b", 3), ("c", 2))):
        shares = [np.bincount(part[:, j], minlength=size) / len(part) for part in (real, copy)]
        column = record["columns"][j]
        assert (column["name"], column["real"], column["copy"]) == (
            name,
            *(share.tolist() for share in shares),
        )
        assert column["apart"] == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)
    assert [far["n_columns"] for far in record["tables"]] == [2, 3]
    assert (record["near"]["n_asked"], record["near"]["n_among"]) == (100, 100)
    many = np.random.default_rng(0).integers(0, 2, (50, 16))
    drawn = _tables((2,) * 16, many, many, 2, np.random.default_rng(0))
    assert (drawn["n_tables"], drawn["of"], drawn["copy"]) == (100, 120, 0.0)
    for few in (many[:0], many):
        assert _tables((2,) * 16, few, many[:0], 2, np.random.default_rng(0)) is None
    assert _tables((2,), many, many, 2, np.random.default_rng(0)) is None


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_are_compared_as_far_as_they_go(n):
    comparison = compared(SCHEMA, rows()[:n], rows()[:5], target="c")
    assert comparison["learned"] is None
    assert (comparison["near"] is None) == (n < 2)
