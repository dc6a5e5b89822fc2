"""Whole runs of ostraka learn, as a person would use it."""

import contextlib
import hashlib
import hmac
import json
import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from ostraka.accounting import propose
from ostraka.core.imports import skops_io
from ostraka.core.result import Result
from ostraka.learn import cli as _show
from ostraka.voters import SavedTeachers
from tests.cli.learning import CANARY, COMMON, FILES, HAS_ONNX, charges, learn, person, rows, tables
from tests.cli.terminal import typed
from tests.golden import blocks

RECORD = Path(blocks.__file__).with_name("runs.txt")
pytestmark = pytest.mark.usefixtures("same_draws")  # noise may spoil a student, though seldom


@pytest.fixture(scope="module")
def finished(tmp_path_factory, with_same_draws):
    """One run, its folder and what it printed."""
    folder = tables(tmp_path_factory.mktemp("finished"))
    with contextlib.chdir(folder), with_same_draws():
        code, out, err = person("--json", "--owner", "--delta", "1e-5", "--student", "boosting")
    assert code == 0, err
    return folder / "run", json.loads(out), err


@pytest.mark.usefixtures("drawn")
def test_digits_need_no_arguments_and_end_at_epsilon_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = learn()
    assert code == 0, err
    onnx = {"student.onnx"} if HAS_ONNX else set()
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES | onnx
    assert "one table of counts: 60 cells" in err
    public, owners = " ".join(err.split()).split("written to run: ")[1].split(" may be passed on; ")
    assert "student.skops" in public
    assert not set(re.split(r"[ ,;]+", public)) & {"result.json", "report.html", "ledger.sqlite.secret"}
    assert owners.startswith(
        "ledger.sqlite.secret, manifest.json, plan.json, report.html and result.json are"
    )
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    blocks.hold(RECORD, "of digits: said", blocks.normal_form(err + out), models=True)
    assert 0.98 < record["lower"]["epsilon"] <= record["upper"]["epsilon"] <= 1.0
    assert record["utility"]["student"] > 0.85  # 0.97 on average, with a deviation of about 0.01
    assert "multiply the odds" in out
    assert len(charges(tmp_path)) == 1


def test_a_row_that_is_left_out_has_a_label_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tables(tmp_path))
    table = ("private.csv", "--label", "ill", "--drop", "who", "--public", "labelled.parquet")
    code, out, err = learn(*table, "--way", "counts", "--relation", "zero-out", "--delta", "1e-5")
    assert code == 0, err
    assert "zero-out: one row is left out" in err
    assert "between any version of that row and none at all" in " ".join(out.split())
    for name in ("result.json", "privacy-label.json"):
        record = json.loads((tmp_path / "run" / name).read_text())
        assert record.get("settings", record)["relation"] == "zero-out"
    assert "two versions" not in (tmp_path / "run" / "model-card.md").read_text()


@pytest.mark.parametrize(
    "options",
    [
        "--way rounds --student boosting",
        "--way rounds --teachers 5",
        "--way counts --teachers 5",
        "--way counts --answers 5",
        "--way counts --sigma 5",
        "--student fixmatch --way argmax",
        "--student fixmatch --teachers 5",
    ],
)
def test_settings_of_teachers_are_for_teachers(options, tmp_path):
    code, _, err = learn(*options.split(), "--out", tmp_path / "run")
    assert (code, "leave out" in err) == (2, True)


def test_rounds_protect_rows_and_not_people_and_auto_leaves_nothing_else_to_choose(folder):
    code, _, err = person("--way", "rounds", "--auto")
    assert (code, "leave them out" in err) == (2, True)
    options = ("--label", "ill", "--public", "labelled.parquet", "--person", "who", "--way", "rounds")
    code, _, err = learn("private.csv", *options)
    assert code == 2
    assert "protects rows, not people: type --way counts" in err
    assert not (folder / "run" / "ledger.sqlite").exists()


def test_fixmatch_by_counts_leaves_plain_scikit_learn(tmp_path, monkeypatch):
    fixmatch = pytest.importorskip("ostraka.learn.students.fixmatch", exc_type=ImportError).FixMatch
    settings = fixmatch.of_images

    def quickly(*arguments, **_):
        return settings(*arguments, n_steps=10).set_params(network__n_threads=1)

    monkeypatch.setattr(fixmatch, "of_images", quickly)
    code, _, err = learn("--student", "fixmatch", "--epsilon", "3", "--out", tmp_path / "run")
    assert code == 0, err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (record["settings"]["way"], record["settings"]["student"]) == ("counts", "FixMatch")
    types = skops_io().get_untrusted_types(file=tmp_path / "run" / "student.skops")
    assert all(name.startswith("sklearn.") for name in types)


def test_a_choice_is_printed_with_what_each_way_was_expected_to_give(capsys):
    _show.show_choice(Result(kind="learn", settings={"expected": {"counts": 0.9012, "argmax": 0.5}}))
    assert "Chosen: counts. Expected accuracy" in (output := capsys.readouterr().out)
    assert "counts 0.901, argmax 0.500" in output
    _show.show_choice(Result(kind="learn", settings={}))
    assert not capsys.readouterr().out


@pytest.fixture(scope="module")
def teachers_run(tmp_path_factory, with_same_draws):
    """A run that keeps its teachers: what it printed, and the folder of its tables."""
    folder = tables(tmp_path_factory.mktemp("kept"))
    with contextlib.chdir(folder), with_same_draws():
        return *person("--keep-teachers", "--json"), folder


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory, with_same_draws):
    """A run on public rows without labels, with a class of which there is no row."""
    folder = tables(tmp_path_factory.mktemp("unlabelled"))
    with contextlib.chdir(folder), with_same_draws():
        return *person("--classes", "sick,well,dead", public="public.parquet"), folder


def test_what_a_run_prints_and_writes_is_on_record(finished, teachers_run, unlabelled):
    """Whom it protects, what it costs, what is not protected, and who may read what."""
    run, record, err = finished
    blocks.hold(RECORD, "of people: said", blocks.normal_form(err), models=True)
    blocks.hold(RECORD, "of people: result", blocks.members(record), models=True)
    for name in ("privacy-label.json", "model-card.md"):
        blocks.hold(RECORD, f"of people: {name}", blocks.normal_form((run / name).read_text()), models=True)
    blocks.hold(RECORD, "with teachers that are kept: said", blocks.normal_form(teachers_run[2]), models=True)
    blocks.hold(
        RECORD,
        "of a class without a row: said",
        blocks.normal_form(unlabelled[1] + unlabelled[2]),
        models=True,
    )
    assert (
        record["settings"]["unit"] == json.loads((run / "privacy-label.json").read_text())["unit"] == "person"
    )
    assert record["upper"]["epsilon"] <= 3


def test_the_owner_part_is_printed_on_request_only(finished, teachers_run):
    _, record, _ = finished
    assert record["owner"]["epsilon_these_votes"] <= record["upper"]["epsilon"]
    assert len(record["owner"]["consensus"]) == 20
    code, out, _, _ = teachers_run
    assert code == 0
    assert json.loads(out)["owner"] == {}


def test_no_file_holds_a_private_cell_and_the_owners_can_be_read_by_the_owner_alone(finished):
    run, _, err = finished
    why = "student.onnx is not written: GradientBoostingClassifier is neither linear nor a perceptron"
    assert {path.name for path in run.iterdir()} == FILES
    assert (why in err) == HAS_ONNX
    assert [name for name in FILES if CANARY.encode() in (run / name).read_bytes()] == []
    owners = {path.name for path in run.iterdir() if path.stat().st_mode & 0o077 == 0}
    assert FILES - owners == {"student.skops", "model-card.md", "labels.parquet", "privacy-label.json"}


def test_a_guess_of_the_private_table_cannot_be_checked_against_the_plan(finished):
    run, _, _ = finished
    content = (run.parent / "private.csv").read_bytes()
    plan = (run / "plan.json").read_text()
    assert not any(hashlib.new(name, content).hexdigest() in plan for name in ("sha256", "sha1", "blake2b"))
    keyed = hmac.digest((run / "ledger.sqlite.secret").read_bytes(), content, "sha256").hex()
    assert json.loads(plan)["private"] == keyed


def test_the_student_predicts_rows_by_name_with_the_lines_that_stand_beside_it(finished, without_the_library):
    run, _, err = finished
    (lines,) = re.findall(r"```python\n(.*?)```", (run / "model-card.md").read_text(), flags=re.DOTALL)
    assert lines.strip() in err
    (run / "rows.csv").write_text("smokes,who,age\nno,x,21\nyes,x,79\n")
    output = without_the_library(lines, run)
    (run / "rows.csv").unlink()
    assert output.split() == ["['well'", "'sick']"]


def test_kept_teachers_can_be_asked_about_rows_of_the_table(teachers_run):
    code, _, err, folder = teachers_run
    assert code == 0
    assert "teachers/ are for the owner" in err
    saved = SavedTeachers.load(folder / "run" / "teachers")
    assert (saved.columns, saved.numeric) == (("age", "smokes"), (True, False))
    assert set(saved.ensemble.classes_.tolist()) == {"sick", "well"}
    features = saved.encoder.transform(np.array([[21, "no"], [79, "yes"]], dtype=object))
    votes = saved.ensemble.vote(features)
    assert votes.adjacency.unit == "person"
    assert [saved.ensemble.classes_[row.argmax()] for row in votes.open()] == ["well", "sick"]


def test_released_labels_name_their_public_rows(finished):
    released = parquet.read_table(finished[0] / "labels.parquet").to_pydict()
    truth = rows(200, seed=1)["ill"]
    assert len(set(released["row"])) == len(released["label"]) == 20
    right = sum(truth[row] == label for row, label in zip(released["row"], released["label"], strict=True))
    assert right >= 16


def test_a_screen_abstains(folder):
    record = json.loads(person("--json", "--sigma", "12", "--screen", "38", "4", "--epsilon", "9")[1])
    assert record["utility"]["abstained"] > 0
    blocks.hold(RECORD, "with a screen: result", blocks.members(record), models=True)


def test_auto_runs_what_plan_proposes(folder):
    table = ["private.csv", "--label", "ill", "--public", "labelled.parquet", "--person", "who"]
    code, out, err = learn(*table, "--epsilon", "3", "--delta", "1e-5", "--auto", "--json")
    assert code == 0, err
    settings = json.loads(out)["settings"]
    proposal = propose(n_rows=300, n_classes=2, epsilon=3.0, delta=1e-5, n_public=settings["n_public"])
    assert settings["n_teachers"] == proposal.n_teachers
    assert settings["mechanism"] == repr(proposal.mechanism)
    assert settings["n_answers"] == proposal.n_questions


def test_learn_asks_what_plan_printed_and_says_the_same_answers_left(folder):
    numbers = ("--rows", 300, "--classes", 2, "--epsilon", 3, "--public-rows", 60, "--columns", 4)
    ways = json.loads(typed("plan", *numbers, "--json").out)["ways"]
    planned = next(plan for plan in ways if plan["way"] == "argmax")
    table = ("private.csv", "--label", "ill", "--public", "labelled.parquet", "--person", "who")
    code, out, err = learn(*table, *planned["learn"].split(), "--json")
    assert code == 0, err
    record = json.loads(out)
    assert record["settings"]["n_answers"] == planned["n_questions"]
    assert record["upper"]["answers_left"] == planned["answers_left"]


def test_rows_are_held_out_only_on_request(folder):
    code, _, err = learn("private.csv", *COMMON)
    assert code == 2
    assert "--public FILE" in err
    assert "--holdout 0.2" in err
    code, out, err = learn("private.csv", *COMMON, "--drop", "who", "--holdout", "0.25", "--json")
    assert code == 0, err
    assert "held-out rows" in err
    record = json.loads(out)
    assert record["settings"]["n_rows"] == 450
    assert any("held-out rows" in text for text in record["upper"]["not_protected"])


def test_the_private_table_is_no_public_table_unless_said_and_then_stated(folder):
    code, _, err = person(public="private.csv")
    assert code == 1
    assert "rows of --public are private rows, too" in err
    assert "--allow-overlap" in err
    assert not (folder / "run").exists()  # so that the same command with the option is no other run
    code, out, err = person("--allow-overlap", "--json", public="private.csv")
    assert code == 0, err
    assert any("may be copies of private rows" in text for text in json.loads(out)["upper"]["not_protected"])


def test_a_model_that_learned_nothing_has_an_exit_code_of_its_own(folder):
    code, out, err = person("--sigma", "4000", "--answers", "2", "--json")
    assert code == 4
    assert "the model learned nothing" in err
    assert json.loads(out)["utility"]["answered"] == 2
    assert any("learned from 2 answers" in note for note in json.loads(out)["notes"])
