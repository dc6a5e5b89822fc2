"""Runs of ostraka learn that are interrupted go on, and nothing else is mixed into them."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.learning import COMMON, charges, csv, interrupt_at, learn, person, rows
from tests.core.ledger.conftest import tamper

STAGES = [("teachers", 3), ("student", 1)]
pytestmark = pytest.mark.usefixtures("same_draws")  # noise may spoil a student, though seldom


@pytest.mark.parametrize(
    ("stage", "at"), [("answers", 12), *(pytest.param(*stage, marks=pytest.mark.slow) for stage in STAGES)]
)
def test_an_interrupted_run_goes_on_and_pays_nothing_twice(folder, monkeypatch, stage, at):
    with monkeypatch.context() as patched:
        interrupt_at(patched, stage, at)
        code, out, err = person()
    assert (code, out) == (130, "")
    assert "type the same command again" in err
    before = charges(folder)
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"plan.json", "manifest.json", "ledger.sqlite"} <= names
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


def test_nothing_else_is_mixed_into_a_run_and_a_damaged_one_stops(folder, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, "answers", 1)
        person()
    private, manifest = folder / "private.csv", folder / "run" / "manifest.json"
    table, record = private.read_text(), manifest.read_text()

    def refused(words, code, *options):
        got, out, err = person(*options)
        assert (got, out, words in err) == (code, "", True), err

    refused("other seed", 2, "--seed", "1")
    private.write_text(csv(rows(602, seed=0)) + "\n")
    refused("other private", 2)
    private.write_text(table)
    listed = json.loads(record)
    manifest.write_text(json.dumps(listed | {"sha256": listed["sha256"][::-1]}))
    refused("manifest is damaged", 1)
    manifest.write_text(record)
    tamper(folder / "run" / "ledger.sqlite", "UPDATE entry SET uses = uses - 1")
    refused("is damaged", 1)
