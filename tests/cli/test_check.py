"""``ostraka check``: every mess is found before anything is spent, and the command that it prints works."""

import io
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import ostraka
from tests.cli.messy import MESSES, plain, visits, write
from tests.cli.terminal import typed
from tests.golden import blocks

pytestmark = pytest.mark.usefixtures("same_draws")
RECORD = Path(blocks.__file__).with_name("findings.txt")
TABLES = ("private.csv", "--label", "ill", "--public", "public.csv")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def checked(it, folder) -> dict:
    if it.ending == "xlsx":
        pytest.importorskip("openpyxl")
    write(folder, it)
    before = sorted(folder.iterdir())
    tables = (f"private.{it.ending}", "--label", "ill", "--public", f"public.{it.ending}")
    code, out, err = typed("check", *tables, "--json")
    assert code == 0, err
    assert sorted(folder.iterdir()) == before  # nothing is written
    return json.loads(out)


# they take a second and more to look through; what is found in them is found in smaller ones, too
LARGE = {"200 columns", "300 classes", "a cover sheet", "an identifier that repeats", "spellings of holes"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in MESSES]
)
def test_a_messy_export_is_understood_by_one_look(name, tmp_path):
    it = MESSES[name]
    report = checked(it, tmp_path)
    if name not in LARGE:
        blocks.hold(RECORD, name, blocks.members(report))
    assert it.kinds <= {finding["kind"] for finding in report["findings"]}
    assert bool(report["command"]) is it.usable
    if not it.usable:
        assert any(finding["weight"] == "refused" for finding in report["findings"])
        return
    assert [option for option in it.options if option not in report["command"]] == []
    assert report["plan"]["expected"].startswith("epsilon at most 1 at delta ")
    quiet = {"semicolons and decimal commas", "signs of thousands", "tabs in UTF-16"}
    assert name not in quiet or report["findings"] == []


def test_holes_of_rows_that_are_held_out_are_in_the_command_too(tmp_path):
    write(tmp_path, MESSES["spellings of holes"])
    code, out, _ = typed("check", "private.csv", "--label", "ill", "--json")
    command = json.loads(out)["command"]
    assert code == 0
    assert "--missing k.A." in command
    assert "--fill" in command


TWO_COMMANDS = [name for name, it in MESSES.items() if it.usable]
QUICK = {"rows without a label"}


@pytest.mark.filterwarnings("ignore:most private rows occur several times:UserWarning")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TWO_COMMANDS]
)
def test_the_printed_command_is_the_second_and_last_one(name, tmp_path):
    it = MESSES[name]
    command = shlex.split(checked(it, tmp_path)["command"])
    assert command[:2] == ["ostraka", "learn"]
    code, out, err = typed(*command[1:], "--yes", "--json")
    assert code in {0, 4} if not it.balanced else code == 0, err
    record = json.loads(out)
    assert record["utility"]["balanced"] > it.balanced
    assert record["upper"]["epsilon"] <= 1
    assert record["settings"]["unit"] == ("person" if "--person" in command else "row")


@pytest.mark.parametrize(
    "name",
    [name for name, it in MESSES.items() if it.kinds & {"unit", "label spellings", "title lines", "copies"}],
)
def test_without_the_options_nothing_is_spent(name, tmp_path):
    """Not even by a script that says yes to everything."""
    it = MESSES[name]
    write(tmp_path, it)
    drops = [word for column in it.public_drops if column == "Fallnr" for word in ("--drop", column)]
    tables = (f"private.{it.ending}", "--label", "ill", "--public", f"public.{it.ending}")
    code, out, err = typed("learn", *tables, *drops, "--yes")
    assert (code, out) == (1, "")
    assert not (tmp_path / "run" / "ledger.sqlite").exists(), err


def test_an_identifier_that_public_rows_have_too_never_becomes_a_feature_in_silence(tmp_path):
    write(tmp_path, MESSES["an identifier that repeats"]._replace(public_drops=()))
    words = ("learn", *TABLES, "--yes")
    code, out, err = typed(*words)
    assert (code, out) == (1, "")
    assert "looks like an identifier that repeats" in err
    assert not (tmp_path / "run").exists()
    code, _, err = typed(*words, "--person", "PatientenNr")
    assert code == 0, err


def test_the_terminal_shows_all_of_it_at_once(tmp_path):
    write(tmp_path, MESSES["the hospital's export"])
    code, out, _ = typed("check", *TABLES, "--report", "look.html")
    assert code == 0
    blocks.hold(RECORD, "the hospital's export, printed", blocks.normal_form(out))
    assert out.splitlines()[-1].startswith("ostraka learn private.csv --label ill --public public.csv ")
    page = (tmp_path / "look.html").read_text()
    assert "Owner only." in page
    assert "--person PatientenNr" in page
    assert (tmp_path / "look.html").stat().st_mode & 0o077 == 0
    code, _, err = typed("check", "private.csv", "--label", "ill", "--report", "look.html")
    assert code == 2
    assert "is not overwritten" in err


def test_a_declared_unit_is_believed_and_the_identifier_is_still_named(tmp_path):
    write(tmp_path, MESSES["an identifier that repeats"])
    code, out, _ = typed("check", *TABLES, "--rows-are-people", "--json")
    assert code == 0
    report = json.loads(out)
    assert "unit" not in {finding["kind"] for finding in report["findings"]}
    assert "--rows-are-people" in report["command"]
    assert "--drop PatientenNr" in report["command"]


def test_data_frames_are_checked_alike():
    table = visits(1500, 0)
    report = ostraka.check(table, label="ill", public=plain(300, 1))
    assert ("unit", "PatientenNr") in {(finding.kind, finding.column) for finding in report.findings}
    assert not report.settled
    assert "groups=frame['PatientenNr']" in report.command
    settled = ostraka.check(table, label="ill", person="PatientenNr")
    assert (settled.unit, settled.n_units) == ("person", 500)
    assert settled.to_dict()["owner_only"]
    assert sum(count for _, count in settled.classes) == 1500
    assert "P00000" not in repr(settled)


@pytest.mark.parametrize(
    ("name", "cells", "doubted"),
    [
        ("patient_id", [f"p{k // 2}" for k in range(200)], True),
        ("PATIENTID", [k // 2 for k in range(200)], True),
        ("id", [k // 2 for k in range(200)], True),
        ("token", [f"{k // 2:032x}" for k in range(200)], True),
        ("id", list(range(200)), False),  # each row is another's
        ("age", [k % 70 for k in range(200)], False),
        ("income", [20_000 + 100 * (k // 2) for k in range(200)], False),
        ("postcode", [f"{50_000 + k % 90}" for k in range(200)], False),
        ("user_age", [k % 70 for k in range(200)], False),
        ("icd", [f"{'ABCDE'[k % 5]}{k % 90:02d}.{k % 7}" for k in range(200)], False),
        ("ward", ["A 1"] * 200, False),
    ],
)
def test_what_is_taken_for_an_identifier(name, cells, doubted):
    rng = np.random.default_rng(0)
    table = {name: cells, "x": rng.normal(size=200).tolist(), "y": rng.choice(["a", "b"], 200).tolist()}
    kinds = {finding.kind for finding in ostraka.check(table, label="y").findings}
    assert ("unit" in kinds, "constant column" in kinds) == (doubted, name == "ward")
    assert "repeated rows" not in kinds  # no two have the same x


def test_without_a_terminal_and_without_yes_nothing_is_spent(tmp_path):
    write(tmp_path, MESSES["dates"])
    code, out, err = typed("learn", *TABLES)
    assert (code, out) == (2, "")
    assert "5 tables, one a round" in err  # the plan comes first
    assert "add --yes to the same command" in err
    assert not Path("run").exists()


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_on_a_terminal_one_is_asked_and_no_means_no(answer, tmp_path, monkeypatch):
    write(tmp_path, MESSES["dates"])
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("ostraka.console._is_terminal", lambda: True)
    got, _, err = typed("learn", *TABLES)
    assert got == 1
    assert "Spend epsilon 1 of private.csv?" in err
    assert "nothing was spent" in err
    assert "What was paid for is kept" not in err
    assert not Path("run").exists()
