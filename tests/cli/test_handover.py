"""What is handed over reads a table as the run did, and predicts the same: lines of Python, and ONNX."""

import contextlib
import io

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from ostraka import PATEClassifier
from ostraka.data import columns as _columns
from ostraka.data import task as _data
from ostraka.data.table import UNDECLARED
from ostraka.learn import handover as _handover
from ostraka.learn.handover import by_name, columns_of


def numbers(n, rng):
    return {"age": rng.integers(20, 90, n), "bmi": rng.normal(27, 4, n).round(1)}


def commas(n, rng):
    table = numbers(n, rng)
    return table | {"bmi": [str(value).replace(".", ",") for value in table["bmi"]]}


def words_of_programs(n, rng):
    """Texts that pandas takes for missing cells, for truth, or for numbers, and blanks around them."""
    return numbers(n, rng) | {
        "kind": rng.choice(["None", "NA", "null", "true", "?"], n),
        "code": rng.choice(["7", "07", "7.0"], n),
        "padded": rng.choice([" left", "right  "], n),
    }


def holes(n, rng):
    gone = rng.random((3, n)) < 0.1
    table = {name: values.astype(str) for name, values in numbers(n, rng).items()}
    table["age"] = np.where(gone[0], "?", np.where(gone[1], "nOnE", table["age"]))
    return table | {"bmi": np.where(gone[2], "-999", table["bmi"])}


def dates(n, rng):
    return {"when": [f"{day}/{month}/2020" for day, month in rng.integers(1, (29, 13), (n, 2))]}


def umlauts(n, rng):
    return {"größe": rng.integers(150, 200, n), "ort": rng.choice(["Köln", "Bonn"], n)}


def codes(n, rng):
    return {"icd": [f"{chr(65 + a)}{b:02d}.{c}" for a, b, c in rng.integers(0, (20, 30, 10), (n, 3))]}


def notes(n, rng):
    words = ["pain", "chest", "fever", "cough", "ankle", "rash", "vision", "tooth"]
    return {"note": [" ".join([*rng.choice(words, 5), f"case{k}"]) for k in range(n)]}


TABLES = {  # columns, how they are written, options
    "numbers": (numbers, {}, {}),
    "decimal commas": (commas, {"delimiter": ";"}, {}),
    "words of programs": (words_of_programs, {}, {"text": ["code"]}),
    "holes": (holes, {}, {"fill": True, "missing": ["-999"]}),
    "dates": (dates, {"delimiter": "\t"}, {}),
    "latin-1": (umlauts, {"encoding": "latin-1"}, {}),
    "codes": (codes, {}, {}),
    "sentences": (notes, {}, {}),
}


# quick for codes and sentences: what becomes of them is tested in test_data.py
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in {"codes", "sentences"} else [])
        for name in TABLES
    ],
)
def test_the_printed_lines_and_onnx_predict_what_the_run_predicts_or_the_reason_is_said(
    name, tmp_path, monkeypatch
):
    """A linear student of the public rows, as it is inside a run and as it is handed over."""
    monkeypatch.chdir(tmp_path)
    make, written, options = TABLES[name]
    sign, encoding = written.get("delimiter", ","), written.get("encoding", "utf8")
    for file, n, seed in (("private", 500, 0), ("rows", 1500, 1)):
        rng = np.random.default_rng(seed)
        columns = make(n, rng) | {"ill": rng.choice(["yes", "no", "both"], n)}
        rows = [columns, *zip(*columns.values(), strict=True)]
        text = "\n".join(sign.join(map(str, row)) for row in rows)
        (tmp_path / f"{file}.csv").write_text(text, encoding=encoding)
    of = _data.Columns(label="ill", **options)
    task = _data.tables(tmp_path / "private.csv", tmp_path / "rows.csv", columns=of, holdout=None, seed=0)
    y = np.random.default_rng(2).permutation(task.y_private.repeat(4))[: len(task.X_public)]
    model = LogisticRegression().fit(task.X_public, y)
    student = by_name(model, task.X_public, columns=task.columns, encoder=task.encoder)
    lines, names = _handover.write_student(student, tmp_path, shown=task.shown), {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(lines, names)
    expected = model.predict_proba(task.X_public)
    got = names["student"].predict_proba(names["rows"].iloc[task.public_rows])
    np.testing.assert_array_equal(got, expected)

    onnx = pytest.importorskip("onnx", reason="pip install '.[onnx]'")
    why = _handover.write_onnx(student, tmp_path, original=model, shown=task.shown, rows=task.X_public)
    if name == "sentences":
        assert why == "student.onnx is not written: column 'note' holds sentences, and ONNX cannot hash words"
        return
    assert why == ""
    from onnx.reference import ReferenceEvaluator

    inputs = columns_of(task.shown.cells, student)
    output, chances = ReferenceEvaluator(onnx.load(tmp_path / "student.onnx")).run(None, inputs)
    np.testing.assert_array_equal(output, model.predict(task.X_public))
    np.testing.assert_allclose(chances, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_on_the_edges_of_bins_stay_in_their_bins_as_onnx(classes, tmp_path):
    """In 32 bits about one row in eight falls into another bin."""
    pytest.importorskip("onnx", reason="pip install '.[onnx]'")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 40, (3000, 3)) / 7.0
    y = np.digitize(X.sum(axis=1) + rng.normal(0, 1, 3000), [8.0, 10.0][: classes - 1])
    model = PATEClassifier(way="counts", epsilon=2.0, delta=1e-5, random_state=0)
    model.fit(X[:2000], y[:2000], X[2000:])
    columns = ("a", "b", "c")
    columns_shown = _columns.Shown(UNDECLARED, columns, (), (), X[2000:].astype(object))
    student = model.to_sklearn(columns=columns)
    output = {"original": model.student_, "shown": columns_shown, "rows": X[2000:]}
    assert _handover.write_onnx(student, tmp_path, **output) == ""
    assert (tmp_path / "student.onnx").stat().st_size < 10_000


def test_a_model_that_predicts_something_else_or_cannot_be_converted_is_not_written(tmp_path, monkeypatch):
    pytest.importorskip("onnx", reason="pip install '.[onnx]'")
    X = np.random.default_rng(0).normal(size=(100, 2))
    model, second_model = (LogisticRegression().fit(X, X[:, 0] > least) for least in (0, 0.5))
    columns_shown = _columns.Shown(UNDECLARED, ("a", "b"), (), (), X.astype(object))
    student = by_name(model, X, columns=("a", "b"))
    why = _handover.write_onnx(student, tmp_path, original=second_model, shown=columns_shown, rows=X)
    assert "public rows differently" in why

    def fails(*_: object) -> None:
        raise RuntimeError("no such step\nmore words")

    monkeypatch.setattr("ostraka.learn.handover.array_model", fails)
    why = _handover.write_onnx(None, tmp_path, original=None, shown=None, rows=np.zeros((1, 2)))
    assert why == "student.onnx is not written: RuntimeError: no such step"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_perceptron_of_a_table_says_the_same_as_onnx(n_classes):
    reference = pytest.importorskip("onnx.reference", reason="pip install onnx")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.array(["a", "b", "c"])[(X @ rng.normal(size=(3, n_classes))).argmax(axis=1)]
    with pytest.warns(ConvergenceWarning):
        network = MLPClassifier((5, 4), max_iter=8, random_state=0).fit(X, y)
    model = by_name(network, X, columns=["u", "v", "w"])
    inputs = {name: X[:, [place]] for place, name in enumerate("uvw")}
    outputs = reference.ReferenceEvaluator(_handover.table_model(model)).run(None, inputs)
    assert (outputs[0].astype(str) == network.predict(X)).all()
    assert outputs[1] == pytest.approx(network.predict_proba(X))
