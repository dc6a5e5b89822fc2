"""ostraka ledger: everything charged, and a plain word when the file no longer holds together."""

import json
import sqlite3

import numpy as np
import pytest

import ostraka.cli
from ostraka import Adjacency, Budget, GNMax, Ledger, Private, release


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ledger.sqlite"
    votes = Private(np.array([[9, 1], [2, 8]]), Adjacency.one_ballot(unit="person"))
    with Ledger(path, budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        release(GNMax(sigma=40.0), votes, ledger=ledger, key="answers/0")
    return path


def ostraka_ledger(capfd, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        ostraka.cli.main(["ledger", *map(str, arguments)])
    return left.value.code, *capfd.readouterr()


def test_show_prints_every_charge_and_what_is_left(file, capfd):
    code, out, _ = ostraka_ledger(capfd, "show", file)
    assert code == 0
    assert "answers/0" in out
    assert "GNMax(sigma=40.0" in out
    assert "of epsilon 9 at delta 1e-05, for one person" in out


def test_show_prints_json(file, capfd):
    code, out, err = ostraka_ledger(capfd, "show", file, "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert record["charges"] == len(record["entries"]) == 1
    assert record["entries"][0]["uses"] == 2
    assert record["epsilon_spent"] == record["entries"][0]["epsilon_after"] > 0
    assert record["epsilon_spent"] + record["epsilon_left"] == pytest.approx(9.0)


def test_verify_gives_the_head(file, capfd):
    with Ledger(file) as ledger:
        head = ledger.head
    assert head in ostraka_ledger(capfd, "verify", file)[1]
    assert json.loads(ostraka_ledger(capfd, "verify", file, "--json")[1]) == {
        **json.loads(ostraka_ledger(capfd, "verify", file, "--json")[1]),
        "intact": True,
        "head": head,
    }


def test_a_simulation_is_called_one(tmp_path, capfd):
    votes = Private(np.array([[9, 1]]), Adjacency.one_ballot())
    with Ledger(tmp_path / "l", budget=Budget(epsilon=9.0, delta=1e-5)) as ledger:
        release(GNMax(sigma=40.0), votes, ledger=ledger, rng=np.random.default_rng(0))
    assert "simulation, no privacy" in ostraka_ledger(capfd, "show", tmp_path / "l")[1]


def test_an_empty_ledger_says_so(tmp_path, capfd):
    Ledger(tmp_path / "l", budget=Budget(epsilon=9.0, delta=1e-5)).close()
    assert "nothing is charged yet" in ostraka_ledger(capfd, "show", tmp_path / "l")[1]


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_a_damaged_ledger_is_said_to_be(file, capfd, verb):
    with sqlite3.connect(file) as connection:
        for (trigger,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute("UPDATE entry SET uses = 1")
    connection.close()
    code, out, err = ostraka_ledger(capfd, verb, file)
    assert (code, out) == (1, "")
    assert "is damaged" in err
    assert "count its whole budget as spent" in err


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path, capfd):
    (tmp_path / "notes.txt").write_text("my notes, " * 100)
    assert ostraka_ledger(capfd, "show", tmp_path / "notes.txt")[0] == 1
    assert (tmp_path / "notes.txt").read_text() == "my notes, " * 100
    code, _, err = ostraka_ledger(capfd, "show", tmp_path / "nothing")
    assert code == 1
    assert "there is no ledger" in err
    assert not (tmp_path / "nothing").exists()
