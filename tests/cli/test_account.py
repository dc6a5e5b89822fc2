"""ostraka account: every bound on given votes, what may be published of it, and which questions are dear."""

import itertools
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


def test_of_many_questions_forty_points_of_each_line_are_kept(tmp_path):
    path = tmp_path / "votes.npz"
    for n, few in ((40, True), (200, False)):
        np.savez(path, counts=np.tile([3, 2], (n, 1)))
        result = record(path, "--sigma", 4)
        at = result["upper"]["bounds"]["tight"]["answers"]
        assert (at[0], at[-1], len(result["owner"]["cost"])) == (1, n, n)
        assert at == list(range(1, 41)) if few else 30 <= len(at) <= 40
        assert max(later / earlier for earlier, later in itertools.pairwise(at[10:])) < 1.25
        assert len(result["upper"]["bounds"]["tight"]["epsilon"]) == len(at)


def test_json_is_public_unless_the_owner_asks(file):
    account_record = json.loads(account(file, "--sigma", 4, "--json").out)
    assert account_record["owner"] == {}
    assert set(account_record["upper"]["bounds"]) == {"classic", "gaussian", "tight", "adaptive"}


def test_predictions_are_counted(tmp_path):
    path = tmp_path / "predictions.parquet"
    parquet.write_table(pa.table({f"q{k}": PREDICTIONS[:, k] for k in range(3)}), path)
    mechanism = GNMax(sigma=4.0)
    account_record = record(path, "--sigma", 4)
    assert account_record["owner"]["epsilon_these_votes"] == pytest.approx(
        exact_profile(mechanism, COUNTS).epsilon(delta=1e-5)
    )


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
