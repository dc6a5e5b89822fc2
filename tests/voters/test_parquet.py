"""Teachers learn from Parquet files where they lie as they do from the same rows in memory."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from ostraka import PATEClassifier, TeacherEnsemble
from ostraka.data.fits import digest
from ostraka.data.labels import Coded
from ostraka.data.parquet import ParquetRows, column_of, opened
from ostraka.data.units import numbered
from ostraka.voters import QuantileCells, RowVoter, partition, voting
from ostraka.voters import rows as rows_module
from ostraka.voters.rows import FeatureCells
from ostraka.voters.spectrum import Spectrum

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
    monkeypatch.setattr(voting, "_CELLS_A_PART", at_once)  # one shard at a time; some; all
    monkeypatch.setattr(voting, "_NUMBERS_AT_ONCE", max(1, at_once // 3))
    X, y, people = in_memory(table)
    manifest = partition(people, n_teachers=20, key=KEY)
    from_memory = ensemble(estimator).fit(X, y, people, classes=["ill", "well"], manifest=manifest)
    from_files = ensemble(estimator).fit(folder, "ill", "person", classes=["ill", "well"], manifest=manifest)
    assert from_files.manifest_.sha256 == from_memory.manifest_.sha256
    assert from_files.n_features_in_ == 3
    assert from_files.unit_ == "person"
    np.testing.assert_array_equal(from_files.predictions(X), from_memory.predictions(X))
    np.testing.assert_array_equal(from_files.vote(X[:50]).open(), from_memory.vote(X[:50]).open())


def test_weights_of_teachers_are_the_same_to_the_bit(table, folder):
    manifest = partition(len(table), n_teachers=20, key=KEY)
    X, y, _ = in_memory(table)
    numbers = str(folder.parent / "numbers")
    parquet.write_table(table.drop_columns(["person"]), numbers + ".parquet", row_group_size=100)
    from_memory = ensemble(LogisticRegression()).fit(X, y, manifest=manifest)
    from_files = ensemble(LogisticRegression()).fit(numbers + ".parquet", "ill", manifest=manifest)
    for mine, others in zip(from_memory.teachers_, from_files.teachers_, strict=True):
        assert mine.model.coef_.tobytes() == others.model.coef_.tobytes()


@pytest.mark.parametrize(
    ("n_jobs", "at_once", "sizes"),
    [(1, 2**28, [20]), (3, 2**28, [7, 7, 6]), (1, 600, [7, 7, 6]), (1, 500, [7, 7, 6]), (1, 499, [5] * 4)],
)
def test_no_rows_travel_to_workers_each_of_which_has_a_part(n_jobs, at_once, sizes, folder, monkeypatch):
    """Or more of them, where the 1,500 numbers of all rows are too many for one."""
    monkeypatch.setattr(voting, "_CELLS_A_PART", at_once)
    sent = []

    def spread(work, items, **_options):
        sent.extend(items)
        return work(items)

    monkeypatch.setattr(voting, "spread", spread)
    ensemble(GaussianNB(), engine="threading", n_jobs=n_jobs).fit(folder, "ill", "person")
    assert [len(part) for part in sent] == sizes
    arrays = [array for part in sent for shard in part for array in (shard.X, shard.codes)]
    assert sorted(np.concatenate(arrays[::2])) == list(range(500))
    assert {(array.dtype, array.ndim) for array in arrays} == {
        (np.dtype(t), 1) for t in (np.uint16, np.uint8)
    }


def test_a_worker_trains_as_soon_as_it_holds_rows_enough(folder, monkeypatch):
    trained = []

    def train(estimator, shards):
        trained.append([shard.X.size for shard in shards])
        return plain(estimator, shards)

    plain = voting.train
    monkeypatch.setattr(voting, "train", train)
    monkeypatch.setattr(voting, "_NUMBERS_AT_ONCE", 200)
    teachers = ensemble(GaussianNB()).fit(folder, "ill", "person").teachers_
    assert len(teachers) == sum(map(len, trained)) == 20
    assert all(sum(sizes[:-1]) < 200 for sizes in trained)
    assert all(sum(sizes) >= 200 for sizes in trained[:-1])


def test_missing_numbers_are_refused_where_teachers_do_not_take_them(table, tmp_path):
    age = table["age"].to_pylist()
    age[321] = None
    path = tmp_path / "rows.parquet"
    rows = table.set_column(0, "age", pa.array(age, pa.float64()))
    parquet.write_table(rows, path, row_group_size=50)
    with pytest.raises(ValueError, match=r"some rows of .*rows\.parquet have missing or infinite numbers"):
        ensemble(GaussianNB()).fit(path, "ill", "person")
    ensemble(HistGradientBoostingClassifier(max_iter=1)).fit(path, "ill", "person")
    (tmp_path / "several").mkdir()
    for name, part in (("a", rows[:100]), ("b", rows[100:])):
        parquet.write_table(part, tmp_path / "several" / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet or another file have missing"):
        ensemble(GaussianNB()).fit(tmp_path / "several", "ill", "person")


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
    train = voting.train_where_they_lie

    def later(*arguments, **options):
        (folder / "b.parquet").unlink()
        return train(*arguments, **options)

    monkeypatch.setattr("ostraka.voters.teachers.train_where_they_lie", later)
    with pytest.raises(ValueError, match=r"b\.parquet"):
        ensemble(GaussianNB()).fit(folder, "ill", "person")


@pytest.mark.cluster
def test_workers_of_a_cluster_read_the_files_themselves(engine, table, folder):
    X, y, people = in_memory(table)
    manifest = partition(people, n_teachers=20, key=KEY)
    from_memory = ensemble(LogisticRegression()).fit(X, y, people, manifest=manifest)
    from_files = ensemble(LogisticRegression(), engine=engine, n_jobs=2)
    from_files.fit(folder, "ill", "person", manifest=manifest)
    assert from_files.manifest_.sha256 == from_memory.manifest_.sha256
    for mine, others in zip(from_memory.teachers_, from_files.teachers_, strict=True):
        assert mine.model.coef_.tobytes() == others.model.coef_.tobytes()


@pytest.mark.parametrize(
    "spelled", [np.asarray, np.int32, np.int64, pa.array], ids=["text", "int32", "int64", "codes"]
)
def test_people_in_files_are_codes_of_what_the_column_holds(spelled, folder, tmp_path):
    numbers = np.random.default_rng(3).integers(0, 40, 500)
    who = spelled(numbers) if isinstance(spelled, type) else spelled(numbers.astype(str))
    column = who.dictionary_encode() if isinstance(who, pa.Array) else pa.array(who)
    table = pa.table({"x": numbers / 7, "ill": numbers % 2, "who": column})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=90)
    _, _, people = opened(tmp_path / "rows.parquet", "ill", "who")
    before = column_of(tmp_path / "rows.parquet", "who")  # as arrays, by which fits of before were named
    assert people.codes.dtype == np.uint8
    assert digest(people) == digest(before)
    np.testing.assert_array_equal(numbered(people)[0], numbered(before)[0])


def stored(folder, n_rows=9_000):
    """Rows in one file, the same in memory, and labels of both."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, 4))
    X[::3500, 1], X[3, 2], X[4, 2] = np.nan, 1e300, np.inf
    X[:, 3] = rng.integers(0, 2, n_rows)
    path = folder / "rows.parquet"
    parquet.write_table(pa.table({f"x{k}": X[:, k] for k in range(4)}), path, row_group_size=3001)
    return ParquetRows.numbers(path, aside=()), X, rng.integers(0, 3, n_rows)


PUBLIC = np.random.default_rng(2).normal(size=(300, 4)) * [1, 1, 1, 0] + [0, 0, 0, 1]
TABLES = {
    "counts": (QuantileCells(), lambda voter: voter.vote()),
    "sums": (FeatureCells(PCA(3).fit(PUBLIC)), lambda voter: voter.vote()),
    "rounds": (
        FeatureCells(PCA(3).fit(PUBLIC), resolution=64),
        lambda voter: voter.residuals(COEF[voter], clip=0.5, parts=8),
    ),
    "filter": (Spectrum(noise=0.01), lambda voter: voter.gradient(COEF[voter], parts=8)),
}


class COEF:
    """Coefficients of as many features as a voter has."""

    def __class_getitem__(cls, voter):
        return np.random.default_rng(3).normal(size=(voter._codes.shape[1], 3))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_rows_in_memory_to_the_bit(name, grouped, tmp_path, monkeypatch):
    X, lines, y = stored(tmp_path)
    cells, table = TABLES[name]
    groups = np.arange(len(y)) // 3 if grouped else None
    person = "shared" if name == "counts" or not grouped else "mean"
    cells = cells.fit(PUBLIC)
    votes = []
    for rows, places, labels in (
        (lines, 0, y),
        (X, 10**9, y),
        (X, 0, Coded(np.arange(3), y.astype(np.uint8))),
    ):
        monkeypatch.setattr(rows_module, "_KEPT", places)
        voter = RowVoter(cells=cells, person=person).fit(rows, labels, groups, classes=[0, 1, 2])
        assert isinstance(voter._codes, rows_module.StoredLines) == (places == 0 and rows is X)
        if grouped and name == "sums":
            with pytest.raises(ValueError, match="votes need"):
                table(voter)
            return
        votes.append(table(voter))
    for one in votes[1:]:
        np.testing.assert_array_equal(one.open(), votes[0].open())
        assert one.adjacency == votes[0].adjacency


def test_blocks_begin_at_the_same_rows_wherever_row_groups_end(tmp_path):
    X, *_ = stored(tmp_path, 20_000)
    lines = rows_module.StoredLines(X, lambda block: block[:, :1], 1)
    starts = [(part.start, len(block)) for part, block in rows_module.blocks_of(lines)]
    assert starts == [(0, 8192), (8192, 8192), (16384, 3616)]


def test_a_file_that_grew_while_it_was_read_is_refused(tmp_path):
    X, lines, _ = stored(tmp_path, 6000)
    parquet.write_table(
        pa.table({f"x{k}": lines[:, k] for k in range(4)}), X.pieces[0].path, row_group_size=3500
    )
    with pytest.raises(ValueError, match="was changed while it was read"):
        list(X.blocks(X.pieces))


def test_a_classifier_reads_a_file_part_by_part_as_it_learns_from_arrays(tmp_path, with_same_draws):
    _, X, _ = stored(tmp_path, 3000)
    names = np.array(["ill", "well"])
    labels = names[(np.nan_to_num(X[:, 0]) > 0).astype(int)]
    X = np.nan_to_num(np.clip(X, -9, 9))
    table = {f"x{k}": X[:, k] for k in range(4)} | {"label": labels}
    parquet.write_table(pa.table(table), tmp_path / "labelled.parquet", row_group_size=700)
    students = []
    for private in ((X, labels), (tmp_path / "labelled.parquet", "label")):
        with with_same_draws():
            model = PATEClassifier(way="counts", epsilon=2.0, random_state=0)
            students.append(model.fit(*private, X_public=PUBLIC).predict_proba(PUBLIC))
    np.testing.assert_array_equal(students[1], students[0])
    with pytest.raises(ValueError, match="pass X_public="):
        PATEClassifier(way="counts", holdout=0.2).fit(str(tmp_path / "labelled.parquet"), "label")
    with pytest.raises(ValueError, match="y must name a column of"):
        PATEClassifier(way="counts").fit(tmp_path / "labelled.parquet", labels, X_public=PUBLIC)
