"""A process that is killed between a charge and its release: the same again finishes, for nothing more."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from ostraka import Ledger
from ostraka.text import models
from tests.cli.terminal import typed

KILLED = """
import os, signal, sys
from ostraka import Budget, Ledger

name, number = sys.argv[1], int(sys.argv[2])
real, calls = getattr(Ledger, name), []

def last(*args, **named):
    result = real(*args, **named)
    calls.append(None)
    if len(calls) == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(Ledger, name, last)
"""
COMMAND = """
from ostraka.text import models

models.open_model = lambda name, n_threads: models.WordModel(["warm", "cold", "rain", "sun"])
import ostraka.cli
ostraka.cli.main(sys.argv[3:])
"""
FIT = """
import numpy as np
from ostraka import GNMax, PATEClassifier

def fitted(where, manifest):
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    settings = dict(n_teachers=20, mechanism=GNMax(sigma=6.0), n_answers=40, epsilon=40.0, delta=1e-5)
    settings |= dict(way="argmax", ledger=where, manifest=manifest, random_state=0)
    return PATEClassifier(**settings).fit(X, y, public)

"""
TABLE = "synth table private.csv --schema schema.toml --rows-are-people --yes --epsilon 2"
TEXTS = "evolve notes.csv --text note --model tiny --rounds 3 --texts 6 --tokens 2 --epsilon 8"
WRITTEN = "write notes.csv --text note --model tiny --texts 3 --documents 20 --tokens 4 --epsilon 30"
RELEASED = {"synth": "generator.json", "evolve": "texts.csv", "write": "texts.csv"}


def killed(script, *words):
    """Run a script in a process that kills itself, and see that it did."""
    command = [sys.executable, "-c", KILLED + script, *map(str, words)]
    process = subprocess.run(command, capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()


def charges(ledger):
    return [(entry.mechanism, entry.uses, entry.key) for entry in ledger.entries()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    ages = np.random.default_rng(0).integers(0, 90, 200)
    (tmp_path / "private.csv").write_text("smokes,age\n" + "".join(f"{age > 60},{age}\n" for age in ages))
    schema = '[smokes]\ncategories = ["False", "True"]\n[age]\nedges = [0, 30, 60, 90]\n'
    (tmp_path / "schema.toml").write_text(schema)
    (tmp_path / "notes.csv").write_text("note\n" + "".join(f"warm sun {row % 7}\n" for row in range(200)))
    model = models.WordModel(["warm", "cold", "rain", "sun"])
    monkeypatch.setattr(models, "open_model", lambda name, n_threads: model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "points"),
    [
        (TABLE, ["charge 1", "charge 2", "record 1"]),  # of the table, of the run, and the release
        (TEXTS, ["charge 1", "record 2", "charge 3"]),
        (WRITTEN, ["charge 1", "record 1"]),
    ],
    ids=RELEASED,
)
def test_a_command_that_is_killed_goes_on_for_nothing_more_and_releases_one_thing(folder, command, points):
    words = [*command.split(), "--out", "run"]
    for point in points:
        killed(COMMAND, *point.split(), *words)
        with Ledger("run/ledger.sqlite") as ledger:
            paid = charges(ledger)
    with Ledger("run/ledger.sqlite") as ledger:
        entry = ledger.entries()[0]
        released = ledger.answer(entry.seq)
    assert (released is None) == (points[-1] == "charge 1")
    code, _, err = typed(*words)
    assert code == 0, err
    with Ledger("run/ledger.sqlite") as ledger:
        assert charges(ledger)[: len(paid)] == paid
        assert len(charges(ledger)) == (3 if command == TEXTS else 1)
        again = ledger.answer(entry.seq)
    assert str(again) == str(released)
    assert ("going on with run" in err) == (command != WRITTEN)
    assert (folder / "run" / RELEASED[words[0]]).exists()
    if command == TABLE:
        assert json.loads((folder / "run" / "result.json").read_text())["upper"]["table"]["releases"] == 1


def test_an_unfinished_folder_takes_no_other_question(folder):
    words = [*TABLE.split(), "--out", "run"]
    killed(COMMAND, "charge", 2, *words)
    (folder / "run" / ".0123456789abcdef.new").touch()  # as a write leaves it that was killed
    assert "with other epsilon: type the command" in " ".join(typed(*words, "--epsilon", "1").err.split())
    with (folder / "private.csv").open("a") as file:
        file.write("True,50\n")
    assert "with other private: type the command" in " ".join(typed(*words).err.split())
    with Ledger("run/ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1


def test_a_folder_that_holds_a_secret_alone_is_still_to_begin(folder):
    """A large table takes a while to digest, between the secret and the plan."""
    (folder / "run").mkdir()
    (folder / "run" / "ledger.sqlite.secret").write_bytes(bytes(32))
    (folder / "run" / ".0123456789abcdef.new").touch()
    assert typed(*TABLE.split(), "--out", "run").code == 0


def test_a_fit_under_the_ledger_of_its_table_that_is_killed_goes_on(tmp_path):
    killed(FIT + f"fitted({str(tmp_path)!r}, None)", "charge", 2)  # of the table, and of the fit
    space = {}
    exec(FIT, space)
    for _ in range(2):
        model = space["fitted"](tmp_path, None)
        assert model.asked_.size == 40
        assert model.result_.upper["table"]["releases"] == 1
    (table,) = tmp_path.glob("*-row.sqlite")
    with Ledger(table) as ledger:
        assert sum(entry.uses for entry in ledger.entries()) == 40
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "fits").iterdir()] == [0]


@pytest.mark.parametrize("secret", [None, b"a secret of the owner's own, 32 B"])
def test_a_fit_under_a_ledger_in_postgresql_that_is_killed_goes_on(new_schema, tmp_path, secret):
    pytest.importorskip("psycopg")
    where, place = new_schema(), tmp_path / "manifest.json"
    begin = f"""
ledger = Ledger({where!r}, budget=Budget(epsilon=40.0, delta=1e-5, adaptive=False), secret={secret!r})
fitted(ledger, {str(place)!r})
"""
    killed(FIT + begin, "charge", 1)
    space = {}
    exec(FIT, space)
    for _ in range(2):  # the first goes on, and the second finds all there is
        with Ledger(where, secret=secret) as ledger:
            assert space["fitted"](ledger, place).asked_.size == 40
            assert sum(entry.uses for entry in ledger.entries()) == 40
