"""ostraka learn, as a person would use it: whole runs, interruptions, and every kind of bad input."""

import ast
import contextlib
import hashlib
import hmac
import io
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import skops.io
from pyarrow import parquet

import ostraka.cli
from ostraka import Ledger
from ostraka.accounting import propose
from ostraka.cli._progress import Stages
from ostraka.voters import SavedTeachers

CANARY = "canary7391"
FILES = {
    *("student.skops", "model-card.md", "result.json", "privacy-label.json", "labels.parquet"),
    *("ledger.sqlite", "ledger.sqlite.secret", "report.html", "manifest.json", "plan.json"),
}
HAS_ONNX = find_spec("onnx") is not None
COMMON = ("--label", "ill", "--teachers", "40", "--epsilon", "3", "--answers", "20")

pytestmark = pytest.mark.usefixtures("same_draws")  # noise may spoil a student, though seldom


def rows(n: int, *, seed: int) -> dict[str, list]:
    """Whoever is old or smokes is mostly ill; two rows a person."""
    rng = np.random.default_rng(seed)
    age, smokes = rng.integers(20, 80, n), rng.random(n) < 0.4
    ill = age + 30 * smokes + rng.normal(0, 8, n) > 60
    return {
        "who": [f"{CANARY}-{k // 2}" for k in range(n)],
        "age": age.tolist(),
        "smokes": np.where(smokes, "yes", "no").tolist(),
        "ill": np.where(ill, "sick", "well").tolist(),
    }


def csv(table: dict[str, list]) -> str:
    return "\n".join(
        [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    )


def tables(folder: Path) -> Path:
    """A private CSV, and public rows as Parquet with and without labels."""
    (folder / "private.csv").write_text(csv(rows(600, seed=0)) + "\n")
    public = rows(200, seed=1)
    parquet.write_table(pa.table(public).drop_columns("who"), folder / "labelled.parquet")
    parquet.write_table(pa.table(public).drop_columns(["who", "ill"]), folder / "public.parquet")
    return folder


def learn(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, neither of which may hold a private cell."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        ostraka.cli.main(["learn", *map(str, arguments)])
    said = out.getvalue() + err.getvalue()
    assert CANARY not in said
    assert "Traceback" not in said
    return left.value.code, out.getvalue(), err.getvalue()


def person(*more: object, public: str = "labelled.parquet") -> tuple[int, str, str]:
    """The command of the quick start, on small tables."""
    return learn("private.csv", *COMMON, "--public", public, "--person", "who", *more)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Tables, in the directory where all commands run."""
    monkeypatch.chdir(tmp_path)
    return tables(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, with_same_draws):
    """One run, its folder and what it printed."""
    folder = tables(tmp_path_factory.mktemp("finished"))
    with contextlib.chdir(folder), with_same_draws():
        code, out, err = person("--json", "--owner", "--delta", "1e-5", "--student", "boosting")
    assert code == 0, err
    return folder / "run", json.loads(out), err


def charges(folder) -> list:
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        return list(ledger.entries())


def test_digits_need_no_arguments_and_end_at_epsilon_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = learn()
    assert code == 0, err
    onnx = {"student.onnx"} if HAS_ONNX else set()
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES | onnx
    assert "one table of counts: 60 cells" in err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["settings"]["way"] == "counts"
    assert 0.98 < record["lower"]["epsilon"] <= record["upper"]["epsilon"] <= 1.0
    assert record["utility"]["student"] > 0.85  # 0.97 on average, with a deviation of about 0.01
    assert "multiply the odds" in out
    assert len(charges(tmp_path)) == 1


@pytest.mark.parametrize("option", ["--teachers", "--answers", "--sigma"])
def test_counts_have_no_settings_of_teachers(option, tmp_path):
    code, _, err = learn("--way", "counts", option, "5", "--out", tmp_path / "run")
    assert code == 2
    assert "leave out" in err


@pytest.mark.parametrize("way", [["--way", "argmax"], ["--teachers", "5"]])
def test_fixmatch_learns_from_counts_alone(way, tmp_path):
    code, _, err = learn("--student", "fixmatch", *way, "--out", tmp_path / "run")
    assert code == 2
    assert "leave out" in err


def test_fixmatch_by_counts_leaves_plain_scikit_learn(tmp_path, monkeypatch):
    fixmatch = pytest.importorskip("ostraka.students.fixmatch", exc_type=ImportError).FixMatch
    settings = fixmatch.of_images
    monkeypatch.setattr(
        fixmatch,
        "of_images",
        lambda *given, **_: settings(*given, n_steps=40).set_params(network__n_threads=1),
    )
    code, _, err = learn("--student", "fixmatch", "--epsilon", "3", "--out", tmp_path / "run")
    assert code == 0, err
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (record["settings"]["way"], record["settings"]["student"]) == ("counts", "FixMatch")
    types = skops.io.get_untrusted_types(file=tmp_path / "run" / "student.skops")
    assert all(name.startswith("sklearn.") for name in types)


def test_digits_by_argmax_leave_a_whole_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = learn("--way", "argmax")
    assert code == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES
    for line in (
        *("Student accuracy", "Non-private accuracy", "Majority-class accuracy", "Accuracy of one teacher"),
        *("Accuracy of the plurality", "Epsilon, publishable", "Epsilon for these votes", "Delta"),
        *("Protected unit", "Neighbouring relation", "Questions answered", "Questions abstained"),
    ):
        assert line in out
    assert "[owner only]" in out
    lower, these = out.index("it leaks at least"), out.index("For the votes of this run")
    assert lower < out.index("Epsilon, lower bound") < these < out.index("Epsilon for these votes")
    assert "multiply the odds" in out
    assert err.index("Plan") < err.index("teachers trained: 100") < err.index("questions answered: 100")
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["upper"]["epsilon"] <= 3.7
    assert record["owner"]["epsilon_these_votes"] < record["upper"]["epsilon"]
    assert record["utility"]["student"] > 0.75
    page = (tmp_path / "run" / "report.html").read_text()
    for figure in (
        "Budget over time",
        "Accuracy against ε",
        "Consensus of the teachers",
        "What each answer cost",
    ):
        assert figure in page


def test_people_are_protected_and_the_label_says_so(finished):
    run, record, err = finished
    assert record["settings"]["unit"] == "person"
    assert record["settings"]["n_units"] == 300
    assert record["settings"]["columns"] == ["age", "smokes"]
    assert record["upper"]["epsilon"] <= 3
    assert record["upper"]["delta"] == 1e-5
    assert record["utility"]["student"] > 0.7
    assert "one person, of 300" in err
    label = json.loads((run / "privacy-label.json").read_text())
    assert label["unit"] == "person"
    assert any("class list" in text for text in label["not_protected"])


def test_the_owner_part_is_printed_on_request_only(finished, folder):
    _, record, _ = finished
    assert record["owner"]["epsilon_these_votes"] <= record["upper"]["epsilon"]
    assert len(record["owner"]["consensus"]) == 20
    code, out, _ = person("--json")
    assert code == 0
    assert json.loads(out)["owner"] == {}


def test_no_file_holds_a_private_cell(finished):
    run, _, err = finished
    assert {path.name for path in run.iterdir()} == FILES
    assert ("student.onnx is not written: GradientBoostingClassifier is not linear" in err) == HAS_ONNX
    for name in FILES:
        assert CANARY.encode() not in (run / name).read_bytes()


def test_files_for_the_owner_can_be_read_by_the_owner_alone(finished):
    run, _, _ = finished
    private = {path.name for path in run.iterdir() if path.stat().st_mode & 0o077 == 0}
    assert private == FILES - {
        "student.skops",
        "student.onnx",
        "model-card.md",
        "labels.parquet",
        "privacy-label.json",
    }


def test_a_guess_of_the_private_table_cannot_be_checked_against_the_plan(finished):
    run, _, _ = finished
    content = (run.parent / "private.csv").read_bytes()
    plan = (run / "plan.json").read_text()
    assert not any(hashlib.new(name, content).hexdigest() in plan for name in ("sha256", "sha1", "blake2b"))
    keyed = hmac.digest((run / "ledger.sqlite.secret").read_bytes(), content, "sha256").hex()
    assert json.loads(plan)["private"] == keyed


def test_the_student_predicts_rows_by_name_with_the_lines_that_stand_beside_it(finished):
    run, _, err = finished
    (lines,) = re.findall(r"```python\n(.*?)```", (run / "model-card.md").read_text(), flags=re.DOTALL)
    assert lines.strip() in err
    (run / "rows.csv").write_text("smokes,who,age\nno,x,21\nyes,x,79\n")
    code = "import sys\nsys.modules['ostraka'] = None\n" + lines
    told = subprocess.run([sys.executable, "-c", code], cwd=run, check=True, capture_output=True, text=True)
    (run / "rows.csv").unlink()
    assert told.stdout.split() == ["['well'", "'sick']"]


def test_the_model_card_has_both_bounds_and_nothing_of_the_owner(finished):
    run, record, _ = finished
    card = (run / "model-card.md").read_text()
    assert card.startswith("---\nlibrary_name: sklearn\n")
    for words in ("it leaks at most: Epsilon", "it leaks at least: Epsilon", "Balanced accuracy"):
        assert words in card
    assert f"{record['owner']['epsilon_these_votes']:.3f}"[:5] not in card
    assert "for these votes" not in card


def test_kept_teachers_can_be_asked_about_rows_of_the_table(folder):
    code, _, err = person("--keep-teachers")
    assert code == 0
    assert "teachers/ are for the owner" in err
    kept = SavedTeachers.load(folder / "run" / "teachers")
    assert (kept.columns, kept.numeric) == (("age", "smokes"), (True, False))
    assert set(kept.ensemble.classes_.tolist()) == {"sick", "well"}
    features = kept.encoder.transform(np.array([[21, "no"], [79, "yes"]], dtype=object))
    votes = kept.ensemble.vote(features)
    assert votes.adjacency.unit == "person"
    assert [kept.ensemble.classes_[row.argmax()] for row in votes.open()] == ["well", "sick"]


def test_released_labels_name_their_public_rows(finished):
    released = parquet.read_table(finished[0] / "labels.parquet").to_pydict()
    truth = rows(200, seed=1)["ill"]
    assert len(set(released["row"])) == len(released["label"]) == 20
    right = sum(truth[row] == label for row, label in zip(released["row"], released["label"], strict=True))
    assert right >= 16


def test_a_finished_run_is_not_overwritten(finished):
    run, _, _ = finished
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    with contextlib.chdir(run.parent):
        code, _, err = person()
    assert code == 2
    assert "type --out with another folder" in err
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_unlabelled_public_rows_leave_accuracy_unknown(folder):
    code, out, _ = person(public="public.parquet")
    assert code == 0
    assert "not known" in out


def test_a_screen_abstains(folder):
    record = json.loads(person("--json", "--sigma", "12", "--screen", "38", "4", "--epsilon", "9")[1])
    assert record["settings"]["screen"].startswith("Threshold(at=38.0, sigma=4.0")
    assert record["utility"]["abstained"] > 0


def test_auto_runs_what_plan_proposes(folder):
    table = ["private.csv", "--label", "ill", "--public", "labelled.parquet", "--person", "who"]
    code, out, err = learn(*table, "--epsilon", "3", "--delta", "1e-5", "--auto", "--json")
    assert code == 0, err
    settings = json.loads(out)["settings"]
    proposal = propose(n_rows=300, n_classes=2, epsilon=3.0, delta=1e-5, n_public=settings["n_public"])
    assert settings["n_teachers"] == proposal.n_teachers
    assert settings["mechanism"] == repr(proposal.mechanism)
    assert settings["n_answers"] == proposal.n_questions


def test_learn_asks_what_plan_printed_and_says_the_same_answers_left(folder, capfd):
    with pytest.raises(SystemExit):
        ostraka.cli.main(
            ["plan", "--rows", "300", "--classes", "2", "--epsilon", "3", "--public-rows", "60", "--json"]
        )
    planned = json.loads(capfd.readouterr().out)
    typed = planned["learn"].split()
    code, out, err = learn(
        "private.csv", "--label", "ill", "--public", "labelled.parquet", "--person", "who", *typed, "--json"
    )
    assert code == 0, err
    told = json.loads(out)
    assert told["settings"]["n_answers"] == planned["n_questions"]
    assert told["upper"]["answers_left"] == planned["answers_left"]


def test_auto_leaves_nothing_else_to_choose(folder):
    code, _, err = person("--auto")
    assert code == 2
    assert "leave them out" in err


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


def interrupt_at(monkeypatch, stage: str, at: int) -> None:
    called = Stages.__call__

    def stop(self, name, done, total):
        called(self, name, done, total)
        if name == stage and done >= at:
            raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "__call__", stop)


@pytest.mark.parametrize(("stage", "at"), [("teachers", 3), ("answers", 12), ("student", 1)])
def test_an_interrupted_run_goes_on_and_pays_nothing_twice(folder, monkeypatch, stage, at):
    with monkeypatch.context() as patched:
        interrupt_at(patched, stage, at)
        code, out, err = person()
    assert (code, out) == (130, "")
    assert "type the same command again" in err
    before = charges(folder)
    assert {path.name for path in (folder / "run").iterdir()} >= {
        "plan.json",
        "manifest.json",
        "ledger.sqlite",
    }
    code, out, err = person("--json")
    assert code == 0
    assert "going on with run" in err
    after = charges(folder)
    assert after[: len(before)] == before
    assert sum(charge.uses for charge in after) == 20
    assert json.loads(out)["upper"]["epsilon"] == pytest.approx(after[-1].epsilon_after)


WAITS_AFTER_PAYING = """
import pathlib, signal
import ostraka.cli
from ostraka.cli._progress import Stages

called = Stages.__call__

def wait(self, stage, done, total):
    called(self, stage, done, total)
    if stage == "answers" and done < total:
        pathlib.Path("paid").touch()
        signal.pause()

Stages.__call__ = wait
ostraka.cli.main()
"""


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_leaves_a_true_ledger(folder):
    words = ["learn", "private.csv", *COMMON]
    words += ["--public", "labelled.parquet", "--person", "who", "--student", "boosting"]
    command = [sys.executable, "-c", WAITS_AFTER_PAYING, *words]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not (folder / "paid").exists() and run.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert (run.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    paid = sum(charge.uses for charge in charges(folder))
    assert 0 < paid < 20
    command[2] = "import ostraka.cli; ostraka.cli.main()"
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert sum(charge.uses for charge in charges(folder)) == 20


def test_other_settings_or_data_are_not_mixed_into_a_run(folder, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, "teachers", 3)
        person()
    code, _, err = person("--seed", "1")
    assert code == 2
    assert "other seed" in err
    (folder / "private.csv").write_text(csv(rows(602, seed=0)) + "\n")
    code, _, err = person()
    assert code == 2
    assert "other private" in err


def test_a_damaged_ledger_stops_the_run(folder, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, "answers", 1)
        person()
    with sqlite3.connect(folder / "run" / "ledger.sqlite") as connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("UPDATE entry SET uses = uses - 1")
    connection.close()
    code, out, err = person()
    assert (code, out) == (1, "")
    assert "is damaged" in err


def test_a_damaged_manifest_stops_the_run(folder, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, "answers", 1)
        person()
    manifest = folder / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"shards": [', '"shards": [1, '))
    code, _, err = person()
    assert code == 1
    assert "manifest is damaged" in err


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("--epsilon", "nan"), 2, "epsilon must be finite and > 0"),
        (("--epsilon", "-1"), 2, "epsilon must be finite and > 0"),
        (("--sigma", "nan"), 2, "sigma must be finite and > 0"),
        (("--sigma", "-4"), 2, "sigma must be finite and > 0"),
        (("--screen", "20", "0"), 2, "sigma must be finite and > 0"),
        (("--delta", "0.01"), 2, "delta must be below 1 / 300 units"),
        (("--delta", "0"), 2, "delta must be > 0"),
        (("--teachers", "0"), 2, "--teachers must be an integer >= 1"),
        (("--answers", "0"), 2, "--answers must be an integer >= 1"),
        (("--answers", "201"), 2, "at most the"),
        (("--epsilon", "0.001"), 3, "use a larger epsilon"),
        (("--epsilon", "0.1", "--sigma", "5"), 3, "or a larger epsilon"),
        (("--teachers", "301"), 2, "301 teachers need at least 301 units, but there are 300"),
        (
            ("--label", "income"),
            1,
            "has no column 'income' (--label); its columns are: who, age, smokes, ill",
        ),
        (("--person", "patient"), 1, "has no column 'patient' (--person)"),
        (("--classes", "well,ill"), 1, "is not one of --classes in data row"),
        (("--public", "nowhere.csv"), 1, "nowhere.csv: No such file"),
        (("--teacher", "oracle"), 2, "'oracle' is not one of"),
        (("--engine", "pigeons"), 2, "'pigeons' is not one of"),
    ],
)
def test_wrong_options_are_told_before_anything_is_paid(folder, change, code, words):
    got, out, err = person(*change)
    assert (got, out) == (code, "")
    assert words in err
    assert not (folder / "run" / "ledger.sqlite").exists() or not charges(folder)


def changed(column: str, *cells: str) -> str:
    """The private table with other cells in a column, from data row 8 on."""
    table = rows(600, seed=0)
    table[column][7 : 7 + len(cells)] = cells
    return csv(table) + "\n"


GOOD = csv(rows(600, seed=0)) + "\n"
BROKEN = {
    "text where numbers must be": changed("age", CANARY),
    "no number": changed("age", "NaN"),
    "no label": changed("ill", ""),
    "no person": changed("who", ""),
    "one class": GOOD.replace("well", "sick"),
    "no header": GOOD.partition("\n")[2],
    "a cell too many": GOOD + f"{CANARY},1,2,3,4\n",
    "binary": b'who,age,smokes,ill\n\x00\x81"' + CANARY.encode() + b"\x81\n",
    "empty": "",
    "no rows": GOOD.partition("\n")[0] + "\n",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "text where numbers must be",
            "column 'age' must hold numbers, as it does in the public rows, but data row 8",
        ),
        ("no number", "column 'age' has no number in data row 8: type --fill"),
        ("one class", "column 'ill' (--label) holds one class only"),
        ("no label", "column 'ill' (--label) is empty in data row 8"),
        ("no person", "column 'who' (--person) is empty in data row 8"),
        ("no header", "does not look like column names"),
        ("a cell too many", "line 602 has another number of cells than the header"),
        ("binary", "line 2 has another number of cells"),
        ("empty", "private.csv is empty"),
        ("no rows", "has column names but no rows"),
    ],
)
def test_bad_tables_are_told_in_one_sentence(folder, change, words):
    content = BROKEN[change]
    (folder / "private.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = person()
    assert (code, out) == (1, "")
    assert words in err
    assert err.splitlines()[0].startswith("reading private.csv")
    assert err.count("\n") == 2
    assert not (folder / "run").exists()


def test_options_about_a_table_need_a_table(folder):
    assert learn("--label", "ill")[0] == 2
    code, _, err = learn("private.csv")
    assert code == 2
    assert "type --label" in err


def test_an_unexpected_error_shows_no_value(folder, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        float(CANARY)

    monkeypatch.setattr("ostraka.pate.PATEClassifier.fit", fail)
    code, _, err = person()
    assert code == 1
    assert "unexpected ValueError" in err


def test_a_missing_class_is_no_obstacle(folder):
    code, out, _ = person("--classes", "sick,well,dead", "--json")
    assert code == 0
    assert json.loads(out)["settings"]["n_classes"] == 3


def test_a_missing_file_is_said_before_anything_slow_is_loaded(tmp_path):
    code = """
import sys, ostraka.cli
try:
    ostraka.cli.main(["learn", "nowhere.csv", "--label", "ill", "--holdout", "0.2"])
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 1
    said, loaded = run.stderr.strip().rsplit("\n", 1)
    assert said == "ostraka: nowhere.csv: No such file or directory."
    assert not {"numpy", "scipy", "sklearn", "pyarrow", "skops", "numba"} & set(ast.literal_eval(loaded))


def test_help_loads_nothing_slow():
    # what makes it slow is what it loads; a clock would judge the machine
    code = """
import sys, ostraka.cli
try:
    ostraka.cli.main(["--help"])
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(ast.literal_eval(run.stderr))
    assert "typer" in loaded
    assert not {"numpy", "scipy", "sklearn", "rich", "jinja2", "pyarrow", "numba", "matplotlib"} & loaded
