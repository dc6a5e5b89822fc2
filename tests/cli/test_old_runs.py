"""Runs written before 22 November 2026 open, or are refused with a sentence that says what to do.

``run_of_2026_11_21`` holds the record and the plan that commit 13201e9 wrote for
``ostraka learn private.csv --label y --public public.csv --teachers 10 --answers 5 --epsilon 8``.
Ledgers of that commit have format 2: ``tests/core/ledger/test_upgrade.py``.
"""

import json
import shutil
from pathlib import Path

import pytest

from ostraka import GNMax, Result
from ostraka.core.mechanisms.records import from_record
from ostraka.report.folder import SECRET, name_of
from tests.cli.terminal import typed

THEN = Path(__file__).parent / "run_of_2026_11_21"


@pytest.fixture
def run(tmp_path):
    shutil.copytree(THEN, tmp_path / "run")
    return tmp_path / "run"


def test_the_record_of_an_old_run_opens_with_its_bounds(run):
    result = Result.from_json((run / "result.json").read_text())
    assert result.upper["epsilon"] == pytest.approx(7.99665, abs=1e-5)
    assert result.settings["unit"] == "row"
    code, output, _ = typed("report", run, "--json")
    assert code == 0
    assert json.loads(output)["epsilon"] == pytest.approx(7.997, abs=1e-3)
    assert "7.997" in (run / "report.html").read_text()


def test_an_unfinished_run_of_old_is_not_gone_on_with_and_the_refusal_says_what_to_type(run):
    (run / "result.json").unlink()
    for name in ("private", "public"):
        (run.parent / f"{name}.csv").write_text("a,b,y\n" + "0.1,0.2,0\n0.3,0.4,1\n" * 40)
    tables = (run.parent / "private.csv", "--label", "y", "--public", run.parent / "public.csv", "--out", run)
    size = ("--teachers", 10, "--answers", 5, "--epsilon", 8)
    code, _, output = typed("learn", *tables, *size, "--allow-overlap", "--keep-teachers", "--yes")
    assert code == 2
    assert "unfinished run of another version of ostraka" in output
    assert "type --out with another folder" in output


def test_the_name_of_a_run_is_what_it_was(run):
    """Its charges in the ledger of its table bear it: under another name, a run that goes on pays twice."""
    (run / SECRET).write_bytes(bytes(32))
    # printf 'name of the run' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0000...
    assert name_of(run) == "532b284a6cffb4df"


def test_the_mechanism_of_saved_teachers_of_old_opens():
    assert from_record({"kind": "GNMax", "sigma": 1.731}) == GNMax(sigma=1.731)
