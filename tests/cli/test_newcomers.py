"""Twelve tables as people bring them: a useful model, or a sentence with the way out and no charge."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from ostraka import GNMax, Ledger
from ostraka.learn.ways.choose import way_of
from ostraka.learn.ways.plan import Plan
from tests.cli.terminal import Said, typed

pytestmark = pytest.mark.usefixtures("same_draws")

INNER, OUTER = ["pain", "chest", "fever", "cough", "nausea"], ["ankle", "rash", "fracture", "vision", "tooth"]


def people(n: int, seed: int) -> tuple[np.random.Generator, dict, np.ndarray]:
    """Columns, and a risk that they explain but for a little chance."""
    rng = np.random.default_rng(seed)
    age, bmi, smokes = rng.integers(20, 90, n), rng.normal(27, 4, n).round(1), rng.random(n) < 0.3
    risk = (age - 55) / 15 + (bmi - 27) / 6 + 1.2 * smokes + rng.normal(0, 0.5, n)
    return rng, {"age": age, "bmi": bmi, "smokes": np.where(smokes, "yes", "no")}, risk


def plain(n, seed):
    _, columns, risk = people(n, seed)
    return columns | {"ill": np.where(risk > 0.3, "yes", "no")}


def semicolon(n, seed):
    table = plain(n, seed)
    return table | {"bmi": [str(value).replace(".", ",") for value in table["bmi"]]}


def umlauts(n, seed):
    table = plain(n, seed)
    return {"größe": table["age"], "raucht": table["smokes"], "ill": table["ill"]}


def codes(n, seed):
    rng = np.random.default_rng(seed)
    chapter = rng.integers(0, 20, n)
    icd = [f"{chr(65 + c)}{rng.integers(0, 30):02d}.{rng.integers(0, 10)}" for c in chapter]
    return {
        "icd": icd,
        "age": rng.normal(50, 20, n).round(1),
        "ill": np.where((chapter % 4 == 0) | (rng.random(n) < 0.05), "yes", "no"),
    }


def text(n, seed):
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.5
    notes = [
        " ".join([*rng.choice(INNER if each else OUTER, 4), "reported", "by", f"patient{k}"])
        for k, each in enumerate(ill)
    ]
    return {"note": notes, "ill": np.where(ill, "inner", "outer")}


def dates(n, seed):
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 1000, n)
    when = [(dt.date(2020, 1, 1) + dt.timedelta(days=int(day))).strftime("%m/%d/%Y") for day in days]
    return {"when": when, "ill": (days > 500).astype(int)}


def rare(n, seed):
    _, columns, risk = people(n, seed)
    return columns | {"ill": np.where(risk > np.quantile(risk, 0.99), "yes", "no")}


def visits(n, seed):
    return {"who": [f"p{k // 3}" for k in range(n)]} | plain(n, seed)


def letters(n, seed):
    centres = np.random.default_rng(7).normal(0, 2.5, (26, 10))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 26, n)
    points = (centres[y] + rng.normal(0, 1, (n, 10))).round(3)
    return {f"x{k}": points[:, k] for k in range(10)} | {"ill": [chr(65 + each) for each in y]}


def holes(n, seed):
    rng, columns, risk = people(n, seed)
    gone = rng.random((3, n)) < 0.05
    columns["age"] = np.where(gone[0], "?", columns["age"].astype(str))
    columns["bmi"] = np.where(gone[1], "NA", columns["bmi"].astype(str))
    return columns | {"weight": np.where(gone[2], -999, 70), "ill": np.where(risk > 0.3, "yes", "no")}


def images(n, seed):
    X, y = load_digits(return_X_y=True)
    rows = slice(0, n) if seed else slice(500, 500 + n)
    return {"X": X[rows].reshape(-1, 8, 8).astype(np.uint8), "ill": y[rows]}


def bags(n, seed):
    """A sparse matrix as scipy writes it, and labels beside it."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.5).astype(int)
    X = np.zeros((n, 400))
    for row, each in zip(X, y, strict=True):
        row[rng.integers(0, 400, 8)] = 1
        row[rng.integers(0, 40, 6) + 40 * each] = 1
    made = sparse.csr_array(X)
    parts = {name: getattr(made, name) for name in ("data", "indices", "indptr", "shape")}
    return {**parts, "format": np.array(b"csr"), "ill": y}


def write(path: Path, table: dict, *, delimiter: str = ",", encoding: str = "utf8") -> None:
    if path.suffix == ".npz":
        np.savez(path, **table)
        return
    lines = [
        delimiter.join(table),
        *(delimiter.join(map(str, row)) for row in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding=encoding)


def learn(kind: str, *options: str) -> Said:
    return typed(
        "learn", f"private.{kind}", "--label", "ill", "--public", f"public.{kind}", "--yes", *options
    )


USEFUL = {  # the table, how it is written, options, what is said, least balanced accuracy (or AUC)
    "semicolon": (semicolon, {"delimiter": ";"}, (), "with ';' between cells", 0.75),
    "latin-1": (umlauts, {"encoding": "latin-1"}, (), "as cp1252 text", 0.7),
    "ICD codes": (codes, {}, (), "read as codes, by their first characters", 0.8),
    "text": (text, {}, (), "holds sentences", 0.85),
    "dates": (dates, {}, (), "holds dates, the month first", 0.85),
    "one in a hundred": (rare, {}, (), "", 0.85),
    "a person's rows": (visits, {}, ("--person", "who"), "every person adds", 0.7),
    "26 classes": (letters, {}, (), "", 0.6),
    "missing": (holes, {}, ("--fill", "--missing=-999"), "'?' is read as no number", 0.7),
    "images": (images, {}, ("--delta", "1e-4"), "60 cells", 0.7),
    "sparse": (bags, {}, (), "33 features", 0.9),
}
ROWS = {
    "26 classes": (4000, 700),
    "one in a hundred": (20_000, 4000),
    "images": (1200, 400),
    "ICD codes": (2000, 1200),
}


QUICK = {"semicolon", "sparse"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in USEFUL]
)
def test_a_table_as_people_bring_it_gives_a_useful_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, written, options, said, least = USEFUL[name]
    kind = "npz" if make in {images, bags} else "csv"
    for file, n, seed in zip(("private", "public"), ROWS.get(name, (2000, 500)), (0, 1), strict=True):
        table = make(n, seed)
        if file == "public":
            table.pop("who", None)
        write(tmp_path / f"{file}.{kind}", table, **written)
    code, out, err = learn(kind, "--json", *options)
    assert code == 0, err
    assert said in err
    record = json.loads(out)
    good = record["utility"]["auc"] if name == "one in a hundred" else record["utility"]["balanced"]
    assert good > least
    assert record["upper"]["epsilon"] <= 1


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("counts", ("40 rows are too few for 2 classes", "Nothing was spent. Bring ")),
        ("rounds", ("40 rows are too few for 2 classes", "or --way counts")),
        (
            "argmax",
            ("answers of 5 teachers, too few for 2 classes", "Nothing was spent. Type a larger --eps"),
        ),
    ],
)
def test_forty_rows_are_refused_before_anything_is_spent(way, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "private.csv", plain(40, 0))
    write(tmp_path / "public.csv", plain(60, 1))
    code, out, err = learn("csv", "--way", way)
    assert (code, out) == (1, "")
    assert all(part in err for part in says)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_units", [40, 9_001, 10**6])
def test_an_argmax_with_too_few_answers_asks_for_what_decides_and_not_for_one_row_more(n_units):
    """At most 250 teachers are planned, so that more rows than 3,250 buy no answer."""

    def refused(n_public):
        plan = Plan(n_teachers=min(250, n_units), n_answers=3, mechanism=GNMax(sigma=60.0), delta=1e-7)
        with pytest.raises(ValueError, match="Nothing was spent") as refusal:
            way_of(plan).require_hope(
                n_units=n_units, n_classes=10, n_public=n_public, unit="row", epsilon=0.1
            )
        return str(refusal.value)

    assert "epsilon=0.1 pays for 3 answers" in refused(500)
    assert "which need 20" in refused(500)
    assert " rows" not in refused(500)
    assert "Bring 20 public rows" in refused(3)


@pytest.mark.parametrize(
    ("table", "options", "way_out"),
    [
        (holes(300, 0), (), "type --fill to put the public median there"),
        ({"X": np.zeros((9, 2)), "Z": np.zeros((9, 2)), "ill": np.arange(9)}, (), "or write it by np.savez"),
        ({"X": np.zeros((9, 2))}, (), "has no array 'ill' (--label)"),
        ({"X": np.full((9, 2), np.nan), "ill": np.arange(9)}, (), "put public numbers there"),
        ({"X": np.array([["a"]] * 9), "ill": np.arange(9)}, (), "must hold numbers"),
        ({"X": np.zeros((9, 2)), "ill": np.arange(8)}, (), "one value for each of 9 rows"),
        ({"X": np.zeros((9, 2)), "ill": np.zeros(9)}, (), "holds one class only"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_with_the_way_out(table, options, way_out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = "npz" if "X" in table else "csv"
    if kind == "csv":
        table["age"][0] = "?"
    write(tmp_path / f"private.{kind}", table)
    write(tmp_path / f"public.{kind}", table)
    code, _, err = learn(kind, *options)
    assert code == 1
    assert way_out in err
    assert not list(tmp_path.rglob("ledger.sqlite"))


def test_nothing_is_charged_for_a_table_that_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "private.csv", plain(900, 0))
    write(tmp_path / "public.csv", plain(300, 1))
    code, _, err = learn("csv", "--drop", "smokes")
    assert code == 0, err
    with Ledger(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert len(list(ledger.entries())) == 5
