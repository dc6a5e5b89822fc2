"""``ostraka write``: a plan first, then texts, record, ledger and a store that is private."""

import csv
import json
import stat

import pytest

from ostraka.cli import main
from ostraka.ledger import Ledger
from ostraka.result import Result
from ostraka.text import models
from tests.text.conftest import Asked, documents


@pytest.fixture
def folder(tmp_path, monkeypatch):
    texts, labels = documents()
    with (tmp_path / "notes.csv").open("w") as file:
        lines = csv.writer(file)
        lines.writerow(["body", "class", "who"])
        lines.writerows(
            [text, label, row // 2] for row, (text, label) in enumerate(zip(texts, labels, strict=True))
        )
    monkeypatch.setattr(models, "open_model", lambda name, n_threads: Asked())
    return tmp_path


def run(folder, *more, code=0):
    settings = ["--text", "body", "--model", "tiny", "--texts", "4", "--documents", "12", "--tokens", "5"]
    with pytest.raises(SystemExit) as left:
        main(["write", str(folder / "notes.csv"), *settings, *more])
    assert left.value.code == code


CLASSES = ("--label", "class", "--classes", "good,bad", "--epsilon", "30")


def test_a_plan_costs_nothing_and_writes_nothing(folder, capsys):
    run(folder, *CLASSES, "--plan", "--json")
    plan = json.loads(capsys.readouterr().out)
    assert 29.9 < plan["epsilon"] <= 30
    assert plan["texts"] == {"good": 2, "bad": 2}
    run(folder, *CLASSES, "--plan", "--paid", "2")
    assert "left out" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["notes.csv"]


def test_texts_record_and_ledger_are_written_and_a_second_run_pays_nothing(folder, capsys):
    out = folder / "of today" / "run"
    for _ in range(2):
        run(folder, *CLASSES, "--out", str(out), "--json")
        summary = json.loads(capsys.readouterr().out)
        assert (summary["n_texts"], summary["unit"]) == (4, "document")
        rows = list(csv.DictReader((out / "texts.csv").read_text().splitlines()))
        assert [row["label"] for row in rows] == ["good", "good", "bad", "bad"]
    record = Result.from_json((out / "result.json").read_text())
    assert record.upper["epsilon"] == summary["epsilon"] <= 30
    assert record.upper["simulation"] is False
    assert stat.S_IMODE((out / "private.sqlite").stat().st_mode) == 0o600
    with Ledger(out / "ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1
        assert ledger.epsilon() == pytest.approx(summary["epsilon"])


def test_a_person_is_protected_where_a_column_says_whose_document_it_is(folder, capsys):
    run(folder, "--person", "who", "--epsilon", "30", "--out", str(folder / "run"))
    assert "for one person left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--label", "class", "--out", "x"), "--classes go together"),
        ((), "--out must name"),
        (("--answer", "a"), "one of --texts, --answer"),
        (("--out", "x", "--ask", "{word}"), "must have the fields"),
        (("--out", "x", "--relation", "other"), "relation must"),
        (("--out", "x", "--delta", "0.03"), "--delta: delta must be below 1 / 48 units"),
    ],
)
def test_what_cannot_be_is_refused(folder, capsys, more, message, monkeypatch):
    monkeypatch.chdir(folder)
    run(folder, *more, code=2)
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_a_budget_that_is_spent_refuses(folder, capsys):
    run(folder, *CLASSES, "--out", str(folder / "one"))
    more = ("--out", str(folder / "two"), "--ledger", str(folder / "one" / "ledger.sqlite"))
    run(folder, *CLASSES, *more, code=3)


def test_a_question_is_answered_at_its_price_and_the_same_one_again_for_nothing(folder, capsys):
    typed = ["write", str(folder / "notes.csv"), "--text", "body", "--model", "tiny", "--answer", "the plot"]
    typed += ["--near", "0.1", "--tokens", "4", "--epsilon", "9", "--out", str(folder / "run"), "--json"]
    answers = []
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            main(typed)
        assert left.value.code == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert 8.9 < answers[0]["epsilon"] <= 9
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1
