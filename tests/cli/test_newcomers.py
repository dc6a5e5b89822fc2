"""Tables that are no messy export: a useful model, or a sentence with the way out and no charge."""

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from ostraka import GNMax
from ostraka.learn.ways.choose import way_of
from ostraka.learn.ways.plan import Plan
from tests.cli.learning import csv
from tests.cli.messy import people, plain
from tests.cli.terminal import Said, typed

pytestmark = pytest.mark.usefixtures("same_draws")

INNER, OUTER = ["pain", "chest", "fever", "cough", "nausea"], ["ankle", "rash", "fracture", "vision", "tooth"]


def codes(n, seed):
    rng = np.random.default_rng(seed)
    chapter = rng.integers(0, 20, n)
    icd = [f"{chr(65 + c)}{rng.integers(0, 30):02d}.{rng.integers(0, 10)}" for c in chapter]
    ill = np.where((chapter % 4 == 0) | (rng.random(n) < 0.05), "yes", "no")
    return {"icd": icd, "age": rng.normal(50, 20, n).round(1), "ill": ill}


def text(n, seed):
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    notes = [
        " ".join([*rng.choice(INNER if label else OUTER, 4), "reported", "by", f"patient{k}"])
        for k, label in enumerate(ill)
    ]
    return {"note": notes, "ill": np.where(ill, "inner", "outer")}


def rare(n, seed):
    _, columns, risk = people(n, seed)
    return columns | {"ill": np.where(risk > np.quantile(risk, 0.99), "yes", "no")}


def letters(n, seed):
    centres = np.random.default_rng(7).normal(0, 2.5, (26, 10))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 26, n)
    points = (centres[y] + rng.normal(0, 1, (n, 10))).round(3)
    return {f"x{k}": points[:, k] for k in range(10)} | {"ill": [chr(65 + label) for label in y]}


def images(n, seed):
    X, y = load_digits(return_X_y=True)
    rows = slice(0, n) if seed else slice(500, 500 + n)
    return {"X": X[rows].reshape(-1, 8, 8).astype(np.uint8), "ill": y[rows]}


def bags(n, seed):
    """A sparse matrix as scipy writes it, and labels beside it."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.5).astype(int)
    X = np.zeros((n, 400))
    for row, label in zip(X, y, strict=True):
        row[rng.integers(0, 400, 8)] = 1
        row[rng.integers(0, 40, 6) + 40 * label] = 1
    matrix = sparse.csr_array(X)
    parts = {name: getattr(matrix, name) for name in ("data", "indices", "indptr", "shape")}
    return {**parts, "format": np.array(b"csr"), "ill": y}


def learn(folder, private, public, *options: str) -> Said:
    """Learn from two tables, as CSV if they have no arrays."""
    kind = "csv" if {"X", "data"}.isdisjoint(private) else "npz"
    for name, table in (("private", private), ("public", public)):
        if kind == "npz":
            np.savez(folder / f"{name}.npz", **table)
        else:
            (folder / f"{name}.csv").write_text(csv(table) + "\n")
    words = ("learn", f"private.{kind}", "--label", "ill", "--public", f"public.{kind}", "--yes")
    return typed(*words, *options)


USEFUL = {  # the table, its private and public rows, options, what is said, least balanced accuracy (or AUC)
    "ICD codes": (codes, 2000, 1200, (), "read as codes, by their first characters", 0.8),
    "text": (text, 2000, 500, (), "holds sentences", 0.85),
    "one in a hundred": (rare, 20_000, 4000, (), "", 0.85),
    "26 classes": (letters, 4000, 700, (), "", 0.6),
    "images": (images, 1200, 400, ("--delta", "1e-4"), "60 cells", 0.7),
    "sparse": (bags, 2000, 500, (), "33 features", 0.9),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != "sparse" else []) for name in USEFUL]
)
def test_a_table_as_people_bring_it_gives_a_useful_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, n_private, n_public, options, sentence, least = USEFUL[name]
    code, out, err = learn(tmp_path, make(n_private, 0), make(n_public, 1), "--json", *options)
    assert code == 0, err
    assert sentence in err
    record = json.loads(out)
    assert record["utility"]["auc" if name == "one in a hundred" else "balanced"] > least
    assert record["upper"]["epsilon"] <= 1


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("counts", ("40 rows are too few for 2 classes", "Nothing was spent. Bring ")),
        ("rounds", ("40 rows are too few for 2 classes", "or --way counts")),
        ("argmax", ("answers of 5 teachers, too few for 2 classes", "spent. Type a larger --eps")),
    ],
)
def test_forty_rows_are_refused_before_anything_is_spent(method, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = learn(tmp_path, plain(40, 0), plain(60, 1), "--way", method)
    assert (code, out) == (1, "")
    assert [part for part in says if part not in err] == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_units", [40, 9_001, 10**6])
def test_an_argmax_with_too_few_answers_asks_for_what_decides_and_not_for_one_row_more(n_units):
    """At most 250 teachers are planned, so that more rows than 3,250 buy no answer."""

    def refused(n_public):
        plan = Plan(n_teachers=min(250, n_units), n_answers=3, mechanism=GNMax(sigma=60.0), delta=1e-7)
        facts = {"n_units": n_units, "n_classes": 10, "n_public": n_public, "unit": "row", "epsilon": 0.1}
        with pytest.raises(ValueError, match="Nothing was spent") as refusal:
            way_of(plan).require_hope(**facts)
        return str(refusal.value)

    assert "epsilon=0.1 pays for 3 answers" in refused(500)
    assert "which need 20" in refused(500)
    assert " rows" not in refused(500)
    assert "Bring 20 public rows" in refused(3)


@pytest.mark.parametrize(
    ("table", "way_out"),
    [
        (plain(300, 0) | {"age": ["?", *plain(300, 0)["age"][1:]]}, "type --fill to put the public median"),
        ({"X": np.zeros((9, 2)), "Z": np.zeros((9, 2)), "ill": np.arange(9)}, "or write it by np.savez"),
        ({"X": np.zeros((9, 2))}, "has no array 'ill' (--label)"),
        ({"X": np.full((9, 2), np.nan), "ill": np.arange(9)}, "put public numbers there"),
        ({"X": np.array([["a"]] * 9), "ill": np.arange(9)}, "must hold numbers"),
        ({"X": np.zeros((9, 2)), "ill": np.arange(8)}, "one value for each of 9 rows"),
        ({"X": np.zeros((9, 2)), "ill": np.zeros(9)}, "holds one class only"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(table, way_out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = learn(tmp_path, table, table)
    assert code == 1
    assert way_out in err
    assert not list(tmp_path.rglob("ledger.sqlite"))
