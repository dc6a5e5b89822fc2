"""Whole runs of ``ostraka learn --target``: numbers, from the findings to a model without this library."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

import ostraka
from ostraka.core.imports import skops_io
from tests.cli.learning import FILES, HAS_ONNX, charges, interrupt_at, learn
from tests.golden import blocks

RECORD = Path(blocks.__file__).with_name("runs.txt")
BOUNDS = ("--target", "price", "--bounds", "0:20")


def homes(n: int, *, seed: int) -> pd.DataFrame:
    """Prices follow from size and place, and are between 0 and 20."""
    rng = np.random.default_rng(seed)
    size, place = rng.normal(size=n), rng.choice(["north", "south", "west"], n)
    price = 8 + 2 * size + 3 * (place == "west") + rng.normal(0, 0.7, n)
    return pd.DataFrame({"who": np.arange(n) // 2, "size": size, "place": place, "price": price}).round(4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("homes")
    homes(1600, seed=0).to_csv(path / "private.csv", index=False)
    homes(400, seed=1).drop(columns="who").to_csv(path / "public.csv", index=False)
    return path


@pytest.fixture
def tables_folder(folder, tmp_path, monkeypatch):
    for name in ("private.csv", "public.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = ("private.csv", *BOUNDS, "--public", "public.csv", "--relation", "zero-out", "--epsilon", "2")


def test_a_number_is_learned_by_command_and_handed_over(tables_folder):
    code, out, err = learn(*COMMAND, "--person", "who")
    assert code == 0, err
    blocks.hold(RECORD, "of numbers: said", blocks.normal_form(err + out), models=True)
    if HAS_ONNX:
        card = (tables_folder / "run" / "model-card.md").read_text()
        blocks.hold(RECORD, "of numbers: model-card.md", blocks.normal_form(card), models=True)
    assert {path.name for path in (tables_folder / "run").iterdir()} == FILES | (
        {"student.onnx"} if HAS_ONNX else set()
    )
    record = json.loads((tables_folder / "run" / "result.json").read_text())
    blocks.hold(RECORD, "of numbers: result", blocks.members(record), models=True)
    assert 1.9 < record["lower"]["epsilon"] <= record["upper"]["epsilon"] <= 2.0
    assert record["utility"]["r2"] > 0.7  # 0.9 without privacy
    assert record["utility"]["intervals"]["0.9"]["coverage"] > 0.75  # 80 rows: below with 1e-5
    assert "R², explained share" in (tables_folder / "run" / "report.html").read_text()
    assert len(charges(tables_folder)) == 6
    student = skops_io().load(tables_folder / "run" / "student.skops", trusted=[])
    rows = pd.read_csv("public.csv")
    labels = parquet.read_table("run/labels.parquet").to_pydict()
    np.testing.assert_allclose(student.predict(rows.iloc[labels["row"]]), labels["number"])


def test_an_interrupted_run_goes_on_and_pays_for_nothing_twice(tables_folder, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, "answers", 2)
        assert learn(*COMMAND, "--drop", "who")[0] == 130
    assert len(charges(tables_folder)) == 2
    code, _, err = learn(*COMMAND, "--drop", "who")
    assert code == 0, err
    assert len(charges(tables_folder)) == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--label", "price"), "to learn a number, type --target price --bounds LOW:HIGH"),
        (("--target", "price"), "type --bounds LOW:HIGH with --target"),
        (("--label", "place", "--bounds", "0:1"), "type --target and their column"),
        (("--label", "place", *BOUNDS), "type one of them"),
        (("--target", "price", "--bounds", "7:7"), "two numbers, the lower first"),
        ((*BOUNDS, "--way", "counts"), "leave out --way"),
        ((*BOUNDS, "--teachers", "9"), "options of teachers"),
        ((*BOUNDS, "--classes", "1,2"), "leave them out"),
        (("--target", "place", "--bounds", "0:1"), "holds no numbers"),
    ],
)
def test_what_is_refused_says_what_to_type_and_spends_nothing(options, words, tables_folder):
    code, _, err = learn("private.csv", *options, "--public", "public.csv", "--rows-are-people")
    assert code in {1, 2}
    assert words in " ".join(err.split())
    assert not (tables_folder / "run").exists()


def test_a_check_names_what_is_doubtful_about_numbers_and_the_command(tables_folder):
    table = homes(600, seed=0)
    table.loc[:5, "price"] = np.nan
    table.loc[6, "price"] = 99.0
    table["copy"] = 1 - table["price"]
    columns = ostraka.data.task.Columns(label="price", bounds=(0.0, 20.0), drop=("who",))
    findings = ostraka.check(table, public=homes(300, seed=1).assign(copy=0.5), columns=columns)
    kinds = {finding.kind for finding in findings.findings}
    assert {"rows without a label", "numbers beyond bounds", "gives the label away"} <= kinds
    assert "PATERegressor(bounds=(0.0, 20.0)" in findings.command
