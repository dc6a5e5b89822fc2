"""Whole runs of ``ostraka labels``: public features, private labels."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ostraka.core.imports import skops_io
from ostraka.data.budgets import Tables
from ostraka.mechanisms import RandomizedResponse
from tests.cli.learning import charges, interrupt_at, learn, rows
from tests.golden import blocks

pytest.importorskip("torch")
RECORD = Path(blocks.__file__).with_name("labels.txt")


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, n in (("private", 400), ("known", 200)):
        frame = pd.DataFrame(rows(n, seed=len(name))).drop(columns="who")
        frame.to_csv(f"{name}.csv", index=False)
    return tmp_path


def labels(*arguments: object) -> tuple[int, str, str]:
    return learn("private.csv", "--label", "ill", *arguments, verb="labels")


@pytest.mark.parametrize("method", ["alibi", "lp-mst", "response"])
def test_each_label_is_charged_once_and_the_model_is_plain(tables, method):
    code, out, err = labels("--public", "known.csv", "--method", method, "--epsilon", "3", "--epochs", "20")
    assert code == 0, err
    blocks.hold(RECORD, method, blocks.normal_form(err + out), models=True)
    record = json.loads((tables / "run" / "result.json").read_text())
    assert record["settings"]["unit"] == "label"
    assert 2.6 < record["lower"]["epsilon"] <= record["upper"]["epsilon"] <= 3.0
    assert record["utility"]["student"] > 0.75, out
    assert [entry.uses for entry in charges(tables)] == [1]
    student = skops_io().load("run/student.skops")
    known = pd.read_csv("known.csv")
    assert (student.predict(known) == known["ill"]).mean() == pytest.approx(record["utility"]["student"])
    assert record["upper"]["table"]["releases"] == 1


def test_pate_fm_is_planned_before_anything_is_spent(tables):
    code, _, err = labels("--method", "pate-fm", "--teachers", "4", "--answers", "6", "--epsilon", "3")
    assert code == 3  # six answers of four teachers
    assert "noise would drown all 4 teachers" in err


@pytest.mark.slow  # quick: the plan above; teachers of labels, tests/learn/test_pate_fm.py
def test_pate_fm_asks_few_labels_of_teachers(tables):
    size = ("--teachers", "4", "--epochs", "2", "--answers", "6", "--epsilon", "30", "--jobs", "1")
    code, _, err = labels("--method", "pate-fm", *size, "--holdout", "0.2")
    assert code in {0, 4}, err  # so few answers may teach nothing
    assert "4 × FixMatch, about 80 labels each" in err
    record = json.loads((tables / "run" / "result.json").read_text())
    assert (record["settings"]["n_answers"], record["settings"]["unit"]) == (6, "label")
    assert any("labels of the held-out rows" in text for text in record["upper"]["not_protected"])


def test_an_interrupted_run_pays_once(tables, monkeypatch):
    fast = ("--epochs", "1")
    with monkeypatch.context() as patch:
        interrupt_at(patch, "answers", 1)
        assert labels(*fast)[0] == 130
    assert len(charges(tables)) == 1
    code, _, err = labels(*fast)
    assert "what was paid for is used again" in err
    assert code in {0, 4}
    assert len(charges(tables)) == 1


def test_images_of_an_npz_file_are_learned_by_convolutions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y = np.arange(64) % 2
    X = np.zeros((64, 8, 8)) + 9 * y[:, None, None]
    np.savez("private.npz", X=X, y=y)
    code, _, err = learn("private.npz", "--label", "y", "--epochs", "1", verb="labels")
    assert code in {0, 4}, err
    student = skops_io().load("run/student.skops", trusted=[])
    assert type(student).__module__.startswith("sklearn")
    assert student.predict_proba(X.reshape(64, 64)).shape == (64, 2)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--teachers", "5"), "--teachers is for --method pate-fm"),
        (("--epsilon", "50"), "--epsilon must be at most 40"),
        (("--public", "known.csv", "--holdout", "0.2"), "exclude each other"),
        (("--delta", "0.1"), "delta must be below 1 / 400 units"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(tables, typed, words):
    code, _, err = labels(*typed)
    assert (code, words in err, (tables / "run").exists()) == (2, True, False), err


def test_a_person_with_several_labels_is_named_before_anything_is_spent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(rows(400, seed=0)).to_csv("private.csv", index=False)
    code, _, err = labels()
    assert code == 1
    assert "whoever owns several pays it for each" in err
    assert "--person" not in err


def test_releases_of_rows_and_people_count_for_labels(tmp_path):
    account = Tables(tmp_path).account(None, rows=np.arange(20.0).reshape(10, 2))
    how = {"uses": 1, "simulation": False, "delta": 1e-5}
    mechanism = RandomizedResponse(n_classes=2, epsilon=1.0)
    for number, unit in enumerate(("label", "row", "person")):
        account.charge(mechanism, unit=unit, key=f"{number}/a", **how)
    spent = {unit: account.spent(unit) for unit in ("label", "row", "person")}
    account.close()
    assert [price.releases for price in spent.values()] == [3, 2, 1]
    assert [price.others for price in spent.values()] == [0, 1, 2]
    assert spent["label"].epsilon == pytest.approx(3 * spent["person"].epsilon)
