"""Teachers learn from Parquet files where they lie as they do from the same rows in memory."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from ostraka import TeacherEnsemble
from ostraka.voters import partition
from ostraka.voters import voting as _voting

KEY = b"a key of thirty-two bytes, or so"
NAMES = ("age", "income", "visits")


@pytest.fixture
def table():
    """Rows of three columns with whole and other numbers, a label and a person."""
    rng = np.random.default_rng(0)
    n = 500
    y = rng.choice(["ill", "well"], n)
    X = rng.normal(size=(n, 3)) + (y == "ill")[:, None]
    X[:, 2] = np.round(4 * X[:, 2])
    columns = {"age": X[:, 0], "ill": y, "income": X[:, 1], "visits": X[:, 2].astype(np.int32)}
    return pa.table(columns | {"person": [f"p{k}" for k in rng.integers(0, 200, n)]})


@pytest.fixture
def folder(table, tmp_path):
    """The rows in three files, in row groups of different sizes."""
    place = tmp_path / "rows"
    place.mkdir()
    for name, start, stop, size in (("a", 0, 170, 60), ("b", 170, 171, 5), ("c", 171, 500, 37)):
        parquet.write_table(table.slice(start, stop - start), place / f"{name}.parquet", row_group_size=size)
    (place / "readme.txt").write_text("not rows")
    return place


def in_memory(table):
    X = np.column_stack([np.asarray(table[name], dtype=np.float64) for name in NAMES])
    return X, np.asarray(table["ill"]), np.asarray(table["person"])


def ensemble(estimator, **options):
    return TeacherEnsemble(estimator, n_teachers=20, random_state=7, **{"n_jobs": 1} | options)


ESTIMATORS = [LogisticRegression(), GaussianNB(), DecisionTreeClassifier(), KNeighborsClassifier(1)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
@pytest.mark.parametrize(
    "at_once", [pytest.param(1, marks=pytest.mark.slow), 600, pytest.param(10**9, marks=pytest.mark.slow)]
)
def test_votes_and_manifest_are_those_of_the_rows_in_memory(estimator, at_once, table, folder, monkeypatch):
    monkeypatch.setattr(_voting, "_NUMBERS_A_PART", at_once)  # one shard at a time; some; all
    monkeypatch.setattr(_voting, "_NUMBERS_AT_ONCE", max(1, at_once // 3))
    X, y, people = in_memory(table)
    manifest = partition(people, n_teachers=20, key=KEY)
    one = ensemble(estimator).fit(X, y, people, classes=["ill", "well"], manifest=manifest)
    other = ensemble(estimator).fit(folder, "ill", "person", classes=["ill", "well"], manifest=manifest)
    assert other.manifest_.sha256 == one.manifest_.sha256
    assert other.n_features_in_ == 3
    assert other.unit_ == "person"
    np.testing.assert_array_equal(other.predictions(X), one.predictions(X))
    np.testing.assert_array_equal(other.vote(X[:50]).open(), one.vote(X[:50]).open())


def test_weights_of_teachers_are_the_same_to_the_bit(table, folder):
    manifest = partition(len(table), n_teachers=20, key=KEY)
    X, y, _ = in_memory(table)
    numbers = str(folder.parent / "numbers")
    parquet.write_table(table.drop_columns(["person"]), numbers + ".parquet", row_group_size=100)
    one = ensemble(LogisticRegression()).fit(X, y, manifest=manifest)
    other = ensemble(LogisticRegression()).fit(numbers + ".parquet", "ill", manifest=manifest)
    for mine, others in zip(one.teachers_, other.teachers_, strict=True):
        assert mine.model.coef_.tobytes() == others.model.coef_.tobytes()


def test_the_deal_of_rows_is_made_by_the_same_key(folder):
    fitted = ensemble(GaussianNB()).fit(folder, "ill", "person")
    assert fitted.manifest_.n_rows == 500
    assert fitted.manifest_.n_units == 185


def test_no_rows_travel_to_workers(folder, monkeypatch):
    sent = []

    def spread(work, items, **_options):
        sent.extend(shard.X for part in items for shard in part)
        return work(items)

    monkeypatch.setattr(_voting, "spread", spread)
    ensemble(GaussianNB()).fit(folder, "ill", "person")
    assert sorted(np.concatenate(sent)) == list(range(500))
    assert all(each.dtype == np.uint16 and each.ndim == 1 for each in sent)


def test_missing_numbers_are_refused_where_teachers_do_not_take_them(table, tmp_path):
    age = table["age"].to_pylist()
    age[321] = None
    path = tmp_path / "rows.parquet"
    rows = table.set_column(0, "age", pa.array(age, pa.float64()))
    parquet.write_table(rows, path, row_group_size=50)
    with pytest.raises(ValueError, match=r"row group 6 of .*rows\.parquet has missing or infinite numbers"):
        ensemble(GaussianNB()).fit(path, "ill", "person")
    ensemble(HistGradientBoostingClassifier(max_iter=1)).fit(path, "ill", "person")


def test_files_that_do_not_fit_are_refused_with_a_sentence(table, folder, tmp_path):
    teachers = ensemble(GaussianNB())
    with pytest.raises(ValueError, match=r"column 'person' of .*rows must hold numbers, got string"):
        teachers.fit(folder, "ill")
    with pytest.raises(ValueError, match="has no column 'sick'; its columns are: age, ill"):
        teachers.fit(folder, "sick", "person")
    with pytest.raises(ValueError, match="y must name a column of"):
        teachers.fit(folder, np.zeros(500), "person")
    with pytest.raises(ValueError, match="must be a Parquet file or a folder of Parquet files"):
        teachers.fit(tmp_path / "rows.csv", "ill")
    parquet.write_table(table.drop_columns(["visits"]), folder / "d.parquet")
    with pytest.raises(ValueError, match=r"d\.parquet must have the columns of .*a\.parquet"):
        teachers.fit(folder, "ill", "person")
    (folder / "2026").mkdir()
    with pytest.raises(ValueError, match="rows has a folder in it, 2026: put all Parquet files into one"):
        teachers.fit(folder, "ill", "person")
    (folder / "2026").rmdir()
    (folder / "d.parquet").write_text("no table")
    with pytest.raises(ValueError, match=r"d\.parquet cannot be read as Parquet"):
        teachers.fit(folder, "ill", "person")


def test_a_file_that_is_gone_when_a_worker_reads_it_is_named(folder, monkeypatch):
    whole = _voting.train_where_they_lie

    def later(*given, **options):
        (folder / "b.parquet").unlink()
        return whole(*given, **options)

    monkeypatch.setattr("ostraka.voters.teachers.train_where_they_lie", later)
    with pytest.raises(ValueError, match=r"b\.parquet"):
        ensemble(GaussianNB()).fit(folder, "ill", "person")


def on_cluster(engine, table, folder):
    X, y, people = in_memory(table)
    manifest = partition(people, n_teachers=20, key=KEY)
    one = ensemble(LogisticRegression()).fit(X, y, people, manifest=manifest)
    other = ensemble(LogisticRegression(), engine=engine, n_jobs=2)
    other.fit(folder, "ill", "person", manifest=manifest)
    assert other.manifest_.sha256 == one.manifest_.sha256
    for mine, others in zip(one.teachers_, other.teachers_, strict=True):
        assert mine.model.coef_.tobytes() == others.model.coef_.tobytes()


@pytest.mark.cluster
def test_workers_of_a_cluster_read_the_files_themselves(engine, table, folder):
    on_cluster(engine, table, folder)
