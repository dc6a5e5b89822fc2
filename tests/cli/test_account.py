"""ostraka account: every bound on given votes, what may be published of it, and which questions are dear."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import ostraka.cli
from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.accounting import exact_profile, papernot2018_curve
from ostraka.core.mechanisms.screen import AgainstGuesses
from tests.cli.terminal import typed

PREDICTIONS = np.array([[0, 2, 1], [0, 2, 1], [0, 1, 1], [0, 0, 1], [0, 0, 2]])  # teachers by queries
COUNTS = np.array([[5, 0, 0], [2, 1, 2], [0, 4, 1]])
CANARY = "31337"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "votes.npz"
    np.savez(path, counts=COUNTS)
    return path


account = partial(typed, "account")


def record(*arguments) -> dict:
    code, out, err = account(*arguments, "--json", "--owner")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_the_table_names_every_bound_and_who_may_see_it(file):
    code, out, _ = account(file, "--sigma", 4)
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name in ("classic", "gaussian", "tight", "adaptive"):
        assert " yes " in rows[name]
    for name in ("papernot2018", "exact"):
        assert "owner only" in rows[name]
    assert "*" in rows["papernot2018"]
    assert "*" not in rows["exact"]


def test_the_costliest_question_comes_first(tmp_path):
    path = tmp_path / "votes.npz"
    np.savez(path, counts=np.repeat([[240, 10], [130, 120], [200, 50]], 40, axis=0))
    _, out, _ = account(path, "--sigma", 40, "--costliest", 41)
    listed = [
        line.split()[0] for line in out.split("costliest questions")[1].splitlines()[2:] if line.strip()
    ]
    assert listed == [str(number) for number in range(41, 82)]


def test_numbers_are_those_of_the_library(file):
    account_record = record(file, "--sigma", 4, "--answers-per-query", 3, "--delta", 1e-4)
    mechanism = GNMax(sigma=4.0)
    assert account_record["upper"]["epsilon"] == pytest.approx((9 * mechanism.curve()).epsilon(delta=1e-4))
    assert account_record["owner"]["epsilon_these_votes"] == pytest.approx(
        exact_profile(mechanism, np.repeat(COUNTS, 3, axis=0)).epsilon(delta=1e-4)
    )
    assert account_record["owner"]["bounds"]["papernot2018"]["epsilon"][-1] == pytest.approx(
        (3 * papernot2018_curve(mechanism, COUNTS)).epsilon(delta=1e-4)
    )
    assert account_record["settings"]["n_answers"] == 9
    assert account_record["upper"]["horizon"] == "9 answers and nothing else"
    assert account_record["settings"]["n_teachers"] == 5
    assert len(account_record["owner"]["cost"]) == 3
    assert max(account_record["owner"]["cost"]) <= account_record["owner"]["price"] * 3


def test_json_is_public_unless_the_owner_asks(file):
    account_record = json.loads(account(file, "--sigma", 4, "--json").out)
    assert account_record["owner"] == {}
    assert set(account_record["upper"]["bounds"]) == {"classic", "gaussian", "tight", "adaptive"}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_predictions_are_counted(suffix, tmp_path):
    path = tmp_path / f"predictions.{suffix}"
    if suffix == "npz":
        np.savez(path, predictions=PREDICTIONS)
    elif suffix == "csv":
        lines = [",".join(map(str, row)) for row in PREDICTIONS]
        path.write_text("\n".join(["first,second,third", *lines]))
    else:
        parquet.write_table(pa.table({f"q{k}": PREDICTIONS[:, k] for k in range(3)}), path)
    mechanism = GNMax(sigma=4.0)
    account_record = record(path, "--sigma", 4)
    assert account_record["owner"]["epsilon_these_votes"] == pytest.approx(
        exact_profile(mechanism, COUNTS).epsilon(delta=1e-5)
    )


def test_classes_may_be_words_and_questions_have_their_columns_names(tmp_path):
    path = tmp_path / "said.csv"
    path.write_text("easy,hard\n" + "yes,no\nyes,yes\n" * 20)
    _, out, _ = account(path, "--sigma", 2)
    assert out.split("costliest questions")[1].splitlines()[2].split()[0] == "hard"


def test_every_mechanism_is_accounted_for(file, tmp_path):
    guesses = tmp_path / "guesses.npz"
    np.savez(guesses, guesses=np.eye(3))
    screen = Threshold(at=4.0, sigma=3.0)
    pair = Confident(screen=screen, argmax=GNMax(sigma=4.0))
    gate = AgainstGuesses(mechanism=screen, guesses=np.eye(3), n_teachers=5)
    cases = {
        ("lnmax", "--scale", 5): exact_profile(LNMax(scale=5.0), COUNTS),
        ("confident", "--sigma", 4, "--screen", 4, 3): exact_profile(pair, COUNTS),
        ("interactive", "--sigma", 4, "--screen", 4, 3, "--guesses", guesses): exact_profile(
            Confident(screen=gate, argmax=GNMax(sigma=4.0)), COUNTS
        ),
    }
    for options, curve in cases.items():
        account_record = record(file, "--mechanism", *options)
        assert account_record["owner"]["epsilon_these_votes"] == pytest.approx(curve.epsilon(delta=1e-5))
        screened = options[0] != "lnmax"
        notes = " ".join(account_record["notes"])
        assert ("even if the screen lets every question through" in notes) is screened
        head, *lines = account(file, "--mechanism", *options)[1].splitlines()
        assert (" after " in head) is screened
        assert {f"note: {note}" for note in account_record["notes"]} <= set(lines)
    assert "moments2017" in record(file, "--mechanism", "lnmax", "--scale", 5)["owner"]["bounds"]


@pytest.mark.usefixtures("drawn")
def test_a_folder_has_a_page_for_the_owner_and_ostraka_report_makes_one_for_all(file, tmp_path):
    out = tmp_path / "run"
    assert account(file, "--sigma", 4, "--out", out)[0] == 0
    page = (out / "report.html").read_text()
    assert "papernot2018" in page
    assert "Every bound that may be published" in page
    assert page.count("<svg") == 5
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main(["report", str(out), "--public"])
    assert ending.value.code == 0
    public = (out / "report-public.html").read_text()
    assert "papernot2018" not in public
    assert public.count("<svg") == 2
    assert account(file, "--sigma", 4, "--out", out)[0] == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--sigma"),
        (["--scale", "4"], "--sigma"),
        (["--sigma", "-1"], "sigma must be finite and > 0"),
        (["--sigma", "4", "--delta", "0"], "delta must be"),
        (["--sigma", "4", "--first", "0"], "--first"),
        (["--sigma", "4", "--screen", "3", "1"], "takes no --screen, which is an option of confident"),
        (["--mechanism", "confident", "--sigma", "4"], "--screen AT SIGMA"),
        (["--mechanism", "lnmax", "--sigma", "4"], "--scale"),
        (["--mechanism", "interactive", "--sigma", "4", "--screen", "3", "1"], "--guesses"),
        (["--sigma", "4", "--guesses", "g.npz"], "interactive"),
    ],
)
def test_what_is_typed_wrongly_is_said(options, says, file):
    code, out, err = account(file, *options)
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize(
    ("arrays", "options", "says"),
    [
        ({"counts": [[1.0, np.nan]]}, [], "finite"),
        ({"counts": [[1.0, -1.0]]}, [], "none below 0"),
        ({"counts": [[1, 2]]}, ["--classes", "3"], "has 2 classes, and --classes says 3"),
        ({"counts": [int(CANARY), 2]}, [], "shape"),
        ({"predictions": [[0, -1]]}, [], "abstain"),
        ({"predictions": [[0, int(CANARY)]]}, ["--classes", "2"], "from 0 to 1"),
        ({"predictions": [[0.5, 1]]}, [], "class numbers"),
        ({"a": [1], "b": [2]}, [], "--array"),
        ({"a": [1]}, ["--array", "c"], "--array"),
    ],
)
def test_files_that_hold_no_votes_are_refused_without_quoting_them(arrays, options, says, tmp_path):
    path = tmp_path / "bad.npz"
    np.savez(path, **{name: np.array(values) for name, values in arrays.items()})
    code, out, err = account(path, "--sigma", 4, *options)
    assert (code, out) == (1, "")
    assert says in err
    assert CANARY not in err


def test_a_teacher_without_an_answer_and_guesses_of_another_shape_are_refused(file, tmp_path):
    path = tmp_path / "holes.csv"
    path.write_text(f"a,b\n1,{CANARY}\n,0\n")
    code, _, err = account(path, "--sigma", 4)
    assert (code, "empty cells" in err, CANARY in err) == (1, True, False)
    path.write_text("a,b\n0.5,0.5\n")
    options = ("--mechanism", "interactive", "--sigma", 4, "--screen", 3, 1, "--guesses", path)
    code, _, err = account(file, *options)
    assert (code, "(3, 3)" in err) == (1, True)
