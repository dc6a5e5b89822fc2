"""Tables and arrays as tasks: which rows are asked about, which measure accuracy, and what is refused."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from pyarrow import parquet
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ostraka.data import task as tasks
from ostraka.data.table import Format, read
from ostraka.data.task import HELD_OUT, LABELS_HELD_OUT, UNLABELLED, Columns, labelled, n_rows_of, tables

RNG = np.random.default_rng(0)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


def of_arrays(folder, private, public=None, *, holdout=None, seed=0, made=tables, **columns):
    files = [saved(folder / "private.npz", **private), public and saved(folder / "public.npz", **public)]
    return made(*files, columns=Columns(**{"label": "y"} | columns), holdout=holdout, seed=seed)


X, Y = RNG.normal(size=(60, 3)), np.arange(60) % 3
ASKED = RNG.normal(size=(20, 3))


def test_digits_are_a_permutation_of_scikit_learns():
    pixels, numbers = load_digits(return_X_y=True)
    task = tasks.digits(seed=3)
    order = np.random.default_rng(3).permutation(1797)
    for X, y, rows in (
        (task.X_test, task.y_test, order[:197]),
        (task.X_public, None, order[197:647]),
        (task.X_private, task.y_private, order[647:]),
    ):
        np.testing.assert_array_equal(X, pixels[rows])
        if y is not None:
            np.testing.assert_array_equal(y, numbers[rows])
    np.testing.assert_array_equal(task.public_rows, order[197:647])
    assert (task.image_shape, task.columns[0], task.columns[9]) == ((8, 8), "pixel_0_0", "pixel_1_1")
    assert (task.classes.tolist(), task.groups, task.encoder) == (list(range(10)), None, None)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5])
def test_units_are_held_out_by_share_and_seed(tmp_path, share):
    people = np.repeat([f"p{k:02d}" for k in range(30)], 2)
    task = of_arrays(
        tmp_path, {"X": X, "y": Y, "who": people}, holdout=max(share, 0.04), person="who", seed=5
    )
    n_held = round(max(share, 0.04) * 30)
    held = np.random.default_rng(5).permutation(30)[:n_held]
    inside = np.isin(np.arange(60) // 2, held)
    np.testing.assert_array_equal(task.X_private, X[~inside])
    np.testing.assert_array_equal(task.groups, people[~inside])
    n_test = round(0.2 * 2 * n_held)
    test = np.random.default_rng(5).permutation(2 * n_held)[:n_test]
    rest = np.setdiff1d(np.arange(2 * n_held), test)
    np.testing.assert_array_equal(task.X_public, X[inside][rest])
    np.testing.assert_array_equal(task.public_rows, np.flatnonzero(inside)[rest])
    if n_test:
        np.testing.assert_array_equal(task.X_test, X[inside][np.sort(test)])
        np.testing.assert_array_equal(task.y_test, Y[inside][np.sort(test)])
    assert task.not_protected == (HELD_OUT,)
    for wrong in (0.01, 0.99):
        with pytest.raises(ValueError, match=f"--holdout {wrong} leaves one side empty: there are 30 units"):
            of_arrays(tmp_path, {"X": X, "y": Y, "who": people}, holdout=wrong, person="who")


def test_arrays_of_two_files_are_a_task_with_its_facts(tmp_path):
    task = of_arrays(tmp_path, {"X": X, "y": Y}, {"X": ASKED})
    np.testing.assert_array_equal(task.X_private, X)
    np.testing.assert_array_equal(task.X_public, ASKED)
    assert (task.X_test, task.y_test, task.array) == (None, None, "X")
    assert (task.not_protected, task.said, task.unread) == ((), (), {})
    assert task.columns == ("X_0", "X_1", "X_2")
    assert task.sizes == {"n_units": 60, "n_classes": 3, "n_public": 20}
    assert task.shape == tasks.Shape("private.npz", 60, 3, 20, "row", 60, False, None, (), ())
    assert of_arrays(tmp_path, {"X": X, "y": Y}, {"X": ASKED}, classes=("0", "1", "2", "3")).n_classes == 4
    numbers = of_arrays(tmp_path, {"X": X, "y": Y / 2}, {"X": ASKED, "y": np.ones(20)}, bounds=(0.0, 1.0))
    assert (numbers.n_classes, numbers.shape.classes_declared, numbers.bounds) == (1, True, (0.0, 1.0))
    assert (len(numbers.X_test), numbers.y_test.tolist()) == (4, [1.0] * 4)
    assert "private.npz" in repr(tasks._arrays(tmp_path / "private.npz", Columns(label="y"), private=True))
    with_labels = of_arrays(tmp_path, {"X": X, "y": Y}, {"X": ASKED, "y": Y[:20]}, drop=("y2",))
    test = np.sort(np.random.default_rng(0).permutation(20)[:4])
    np.testing.assert_array_equal(with_labels.X_test, ASKED[test])
    np.testing.assert_array_equal(with_labels.y_test, Y[:20][test])


def test_private_numbers_that_are_not_finite_count_as_the_public_mean_or_zero(tmp_path):
    holes = X.copy()
    holes[0, 0], holes[1, 1], holes[2, 2] = np.nan, np.inf, -np.inf
    task = of_arrays(tmp_path, {"X": holes, "y": Y}, {"X": ASKED})
    want = np.where(np.isfinite(holes), holes, ASKED.mean(axis=0))
    np.testing.assert_allclose(task.X_private, want)
    for public in ({"X": ASKED}, sparse(ASKED)):
        task = of_arrays(tmp_path, sparse(holes) | {"y": Y}, public)
        np.testing.assert_array_equal(task.X_private, np.where(np.isfinite(holes), holes, 0.0))
        np.testing.assert_array_equal(task.X_public, ASKED)
    for table in (holes, sparse(holes)["data"]):
        public = {"X": holes} if table is holes else sparse(holes)
        with pytest.raises(ValueError, match="has cells that are missing or infinite: put public numbers"):
            of_arrays(tmp_path, {"X": X, "y": Y}, public)


def sparse(rows, kind="csr"):
    """As scipy.sparse.save_npz writes it."""
    matrix = getattr(scipy.sparse, f"{kind}_array")(rows)
    names = ("data", "indices", "indptr", "shape")
    return {name: np.array(getattr(matrix, name)) for name in names} | {"format": np.array(kind.encode())}


@pytest.mark.parametrize("width", [200, 201])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_wide_sparse_rows_become_few_columns_as_public_rows_have_it(tmp_path, width, kind):
    rows, asked = ((RNG.random((n, width)) < 0.05) * RNG.random((n, width)) for n in (60, 20))
    task = of_arrays(tmp_path, sparse(rows, kind) | {"y": Y}, sparse(asked, kind))
    if width == 200:
        np.testing.assert_array_equal(task.X_private, rows)
        assert task.encoder is None
        return
    step = make_pipeline(TruncatedSVD(n_components=19, random_state=0), StandardScaler())
    step.fit(scipy.sparse.csr_array(asked))
    assert task.X_public.shape == (20, 19)
    np.testing.assert_allclose(task.X_public, step.transform(scipy.sparse.csr_array(asked)), atol=1e-9)
    np.testing.assert_allclose(task.X_private, step.transform(scipy.sparse.csr_array(rows)), atol=1e-9)


@pytest.mark.parametrize(
    ("private", "public", "words"),
    [
        ({"X": X}, {"X": ASKED}, r"has no array 'y' \(--label\); it has X: write one file by np.savez"),
        ({"y": Y}, {"X": ASKED}, "must have one array of rows beside the labels, has none"),
        ({"X": X, "Z": X, "y": Y}, {"X": ASKED}, "has X, Z: leave others out by --drop"),
        (
            {"X": X, "y": Y[:-1]},
            {"X": ASKED},
            r"--label must have one value for each of 60 rows, has shape \(59,\)",
        ),
        ({"X": X, "y": Y}, {"X": ASKED[:, :2]}, "has 3 numbers a row and .* 2: both must have the same"),
        ({"X": X[:0], "y": Y[:0]}, {"X": ASKED}, "has no rows"),
        ({"X": X.astype(str), "y": Y}, {"X": ASKED}, "array 'X' must hold numbers, has dtype <U"),
        ({"X": X, "y": Y + 0j}, {"X": ASKED}, "must hold classes: whole numbers or texts"),
        (sparse(X) | {"format": np.array(b"coo"), "y": Y}, {"X": ASKED}, "another kind than CSR or CSC"),
        ({"X": X, "y": np.zeros(60)}, {"X": ASKED}, "holds one class only"),
    ],
)
def test_arrays_that_cannot_be_learned_from_are_refused(tmp_path, private, public, words):
    with pytest.raises(ValueError, match=words):
        of_arrays(tmp_path, private, public)


def test_a_target_of_arrays_must_be_numbers(tmp_path):
    with pytest.raises(ValueError, match=r"array 'y' \(--target\) must hold numbers"):
        of_arrays(tmp_path, {"X": X, "y": Y.astype(str)}, {"X": ASKED}, bounds=(0, 1))
    targets = Y.astype(float)
    targets[3] = np.inf
    assert of_arrays(tmp_path, {"X": X, "y": targets}, {"X": ASKED}, bounds=(0, 1)).unread == {"y": 1}


def test_features_that_are_public_have_private_labels(tmp_path):
    known = {"X": ASKED, "y": Y[:20]}
    task = of_arrays(tmp_path, {"X": X, "y": Y}, known, made=labelled)
    np.testing.assert_array_equal(task.X_private, X)
    assert task.X_public is task.X_private
    np.testing.assert_array_equal(task.X_test, ASKED)
    np.testing.assert_array_equal(task.y_test, Y[:20])
    np.testing.assert_array_equal(task.public_rows, np.arange(60))
    assert (task.shape.unit, task.shape.not_protected, task.of_labels) == ("label", (), True)
    held = np.random.default_rng(2).permutation(60)[:12]
    inside = np.isin(np.arange(60), held)
    task = of_arrays(tmp_path, {"X": X, "y": Y}, holdout=0.2, seed=2, made=labelled)
    np.testing.assert_array_equal(task.X_private, X[~inside])
    np.testing.assert_array_equal(task.y_test, Y[inside])
    np.testing.assert_array_equal(task.X_test, X[inside])
    assert task.not_protected == (LABELS_HELD_OUT,)
    assert of_arrays(tmp_path, {"X": X, "y": Y}, made=labelled).X_test is None
    with pytest.raises(ValueError, match="has no array 'y': no accuracy can be measured"):
        of_arrays(tmp_path, {"X": X, "y": Y}, {"X": ASKED}, made=labelled)
    holes = np.where(np.arange(20) == 3, "", Y[:20].astype(str))
    with pytest.raises(ValueError, match="some rows have no label in array 'y', and so no accuracy"):
        of_arrays(tmp_path, {"X": X, "y": Y.astype(str)}, {"X": ASKED, "y": holes}, made=labelled)


def written(folder, name, rows):
    (folder / name).write_text("\n".join(rows) + "\n")
    return folder / name


def test_a_table_of_public_features_has_private_labels(tmp_path):
    rows = [f"{k % 7},{'xyz'[k % 3]},{['no', 'yes', ''][k % 5 % 3]}" for k in range(60)]
    private = written(tmp_path, "private.csv", ["n,kind,ill", *rows])
    known = written(tmp_path, "known.csv", ["n,kind,ill", *rows[:2] * 9, "3,x,maybe"])
    columns = Columns(label="ill", drop_unlabelled=True, rows_are_people=True)
    task = labelled(private, known, columns=columns, holdout=None, seed=0)
    with_label = [k for k in range(60) if k % 5 % 3 < 2]
    assert task.public_rows.tolist() == with_label
    assert task.y_private.tolist() == [["no", "yes"][k % 5 % 3] for k in with_label]
    assert (len(task.y_test), task.not_protected, task.columns) == (19, (UNLABELLED,), ("n", "kind"))
    assert task.said == (
        (
            f"{known}: 1 of 19 public rows have a label in column 'ill' that is none of the 2 classes, such "
            "as 'maybe'; these rows count as wrong"
        ),
    )
    numbers = np.array([k % 7 for k in with_label])
    np.testing.assert_allclose(task.X_private[:, 0], (numbers - numbers.mean()) / numbers.std())
    assert task.X_public is task.X_private
    task = labelled(private, None, columns=columns, holdout=0.25, seed=1)
    held = np.random.default_rng(1).permutation(48)[:12]
    assert task.public_rows.tolist() == [k for n, k in enumerate(with_label) if n not in held]
    assert task.not_protected == (LABELS_HELD_OUT, UNLABELLED)
    with pytest.raises(ValueError, match=f"{tmp_path} is a folder: type one file"):
        labelled(tmp_path, None, columns=columns, holdout=None, seed=0)
    people = written(
        tmp_path, "p.csv", ["who,ill", *(f"P{k // 2:05d},{'no' if k % 3 else 'yes'}" for k in range(60))]
    )
    with pytest.raises(
        ValueError, match="epsilon is for one label, and whoever owns several pays it for each"
    ):
        labelled(people, None, columns=Columns(label="ill"), holdout=None, seed=0)


def test_rows_are_texts_for_prompts_and_unlabelled_ones_are_left_out(tmp_path):
    private = written(tmp_path, "private.csv", ["a,b,ill", "1,x,no", "2,y,yes", "3,z,", "4,x,no"])
    public = written(tmp_path, "public.csv", ["a,b", "5,x", "6,y"])
    columns = Columns(label="ill", drop_unlabelled=True)
    task = tables(private, public, columns=columns, holdout=None, seed=0, texts=True)
    assert task.texts == (["a: 1; b: x", "a: 2; b: y", "a: 4; b: x"], ["a: 5; b: x", "a: 6; b: y"])
    assert task.not_protected == (UNLABELLED,)
    declared = Columns(label="ill", drop=("b",), classes=("no", "yes"))
    one = tables(private, public, columns=declared, holdout=None, seed=0, texts=True)
    assert one.texts == (["1", "2", "3", "4"], ["5", "6"])
    assert one.unread == {"ill": 1}
    empty = written(tmp_path, "e.csv", ["a,ill", "1,", "2,"])
    with pytest.raises(ValueError, match=r"no row has a label in column 'ill' \(--label\)"):
        tables(empty, public, columns=Columns(label="ill", drop_unlabelled=True), holdout=None, seed=0)
    arrays = saved(tmp_path / "rows.npz", X=X, y=Y)
    for path in (tmp_path, arrays):
        with pytest.raises(ValueError, match="prompts show cells of one table"):
            tables(path, public, columns=columns, holdout=None, seed=0, texts=True)


def test_rows_of_a_file_are_counted_before_they_are_read(tmp_path):
    text = "title\n\na,b\n1,2\n\n \n3,4\n5,6"
    path = tmp_path / "t.csv"
    path.write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("t.csv", "t.csv.gz"):
        assert n_rows_of(tmp_path / name, Format(skip=1)) == 3
        assert n_rows_of(tmp_path / name, Format()) == 4
    path.write_text("a,b\n")
    assert n_rows_of(path, Format()) == 0
    path.write_text("")
    assert n_rows_of(path, Format()) == 0
    path.write_text(text, encoding="utf-16")
    assert n_rows_of(path, Format()) is None
    path.write_bytes(text.encode("utf-16-le"))
    for name in ("utf-16-le", "UTF_16_LE", "utf16"):
        assert n_rows_of(path, Format(encoding=name)) is None
    for name in ("t.xlsx", "t.npz"):
        assert n_rows_of(tmp_path / name, Format()) is None
    folder = tmp_path / "parts"
    folder.mkdir()
    assert n_rows_of(folder, Format()) is None
    for n in (3, 5):
        parquet.write_table(pa.table({"a": range(n)}), folder / f"{n}.parquet", row_group_size=2)
    assert n_rows_of(folder, Format()) == 8
    assert n_rows_of(folder / "5.parquet", Format()) == 5


def test_a_public_file_is_read_as_declared_but_for_its_titles_and_encoding(tmp_path):
    path = tmp_path / "t.csv"
    declared = Format(";", "cp1252", ",", 3, "sheet")
    path.write_text("Of 2024\na;b\n1,5;x\n2,5;y\n")
    assert tasks.public_form(path, declared) == Format(";", None, ",", 1, None)
    path.write_bytes("a;b\n1,5;ü\n2,5;y\n".encode("cp1252"))
    assert tasks.public_form(path, declared) == Format(";", "cp1252", ",", 0, None)
    assert tasks.public_form(tmp_path / "t.parquet", declared) == declared
    assert read(path, public=True, form=tasks.public_form(path, declared)).text("b") == ["ü", "y"]


def test_large_files_stay_where_they_are(tmp_path, monkeypatch):
    text, table = tmp_path / "t.csv", tmp_path / "t.parquet"
    text.write_text("a,b\n1,2\n")  # eight bytes
    parquet.write_table(pa.table({"a": [1, 2, 3], "b": [1, 2, 3]}), table)
    for n, is_large in ((5, True), (6, False)):
        monkeypatch.setattr(tasks, "_MOST_CELLS", n)
        assert tasks._is_large(table, Columns(label="y")) == is_large
    for n, is_large in ((7, True), (8, False)):
        monkeypatch.setattr(tasks, "_MOST_BYTES", n)
        assert tasks._is_large(text, Columns(label="y")) == is_large
    monkeypatch.setattr(tasks, "_MOST_BYTES", 0)
    monkeypatch.setattr(tasks, "_MOST_CELLS", 0)
    for path in (text, table):
        assert not tasks._is_large(path, Columns(label="y", bounds=(0, 1)))
        assert not tasks._is_large(path, Columns(label="y", drop_unlabelled=True))
    assert not tasks._is_large(text, Columns(label="y", form=Format(encoding="utf-16")))
    for name in ("t.gz", "t.xlsx", "broken.parquet"):
        (tmp_path / name).write_text("PK")
        assert not tasks._is_large(tmp_path / name, Columns(label="y"))
