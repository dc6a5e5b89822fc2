"""Runs of ostraka learn that are interrupted go on, and nothing else is mixed into them."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.learning import COMMON, charges, csv, interrupt_at, learn, person, rows
from tests.core.ledger.conftest import tamper

pytestmark = pytest.mark.usefixtures("same_draws")  # noise may spoil a student, though seldom


@pytest.mark.parametrize(
    ("stage", "at"),
    [
        pytest.param("teachers", 3, marks=pytest.mark.slow),
        ("answers", 12),
        pytest.param("student", 1, marks=pytest.mark.slow),
    ],
)
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


def test_interrupted_rounds_go_on_and_none_is_paid_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        interrupt_at(patched, "answers", 5)
        code, _, err = learn("--way", "rounds", "--epsilon", "8")
    assert code == 130, err
    before = charges(tmp_path)
    assert len(before) == 5
    code, _, err = learn("--way", "rounds", "--epsilon", "8")
    assert code == 0, err
    after = charges(tmp_path)
    assert (len(after), after[:5]) == (12, before)


WAITS_AFTER_PAYING = """
import pathlib, signal
import ostraka.cli
from ostraka.console import Stages

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
    words = ["learn", "private.csv", *COMMON, "--yes"]
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
    code, _, err = learn(*(word for word in words[1:] if word != "--yes"))
    assert code == 0, err
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
    tamper(folder / "run" / "ledger.sqlite", "UPDATE entry SET uses = uses - 1")
    code, out, err = person()
    assert (code, out) == (1, "")
    assert "is damaged" in err


def test_a_damaged_manifest_stops_the_run(folder, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, "answers", 1)
        person()
    manifest = folder / "run" / "manifest.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(whole | {"sha256": whole["sha256"][::-1]}))
    code, _, err = person()
    assert code == 1
    assert "manifest is damaged" in err
