"""``ostraka write``: a plan first, then texts, record, ledger and a store that is private."""

import csv
import json
import stat

import pytest

from ostraka.ledger import Ledger
from ostraka.report.page import of_table
from ostraka.result import Result
from ostraka.text import Writer, models
from tests.cli.terminal import typed
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


def run(folder, *options, code=0):
    settings = ["--text", "body", "--model", "tiny", "--texts", "4", "--documents", "12", "--tokens", "5"]
    got, out, err = typed("write", folder / "notes.csv", *settings, *options)
    assert got == code, err
    return out or err


CLASSES = ("--label", "class", "--classes", "good,bad", "--epsilon", "30")


def test_a_plan_costs_nothing_and_writes_nothing(folder):
    plan = json.loads(run(folder, *CLASSES, "--plan", "--json"))
    assert 29.9 < plan["epsilon"] <= 30
    assert plan["texts"] == {"good": 2, "bad": 2}
    assert "left out" in run(folder, *CLASSES, "--plan", "--paid", "2")
    assert [path.name for path in folder.iterdir()] == ["notes.csv"]


def test_a_document_whose_class_is_not_declared_is_of_the_first(folder, monkeypatch):
    dealt = []
    fit = Writer.fit
    monkeypatch.setattr(
        Writer,
        "fit",
        lambda self, rows, labels, **rest: dealt.append(labels) or fit(self, rows, labels, **rest),
    )
    text = (folder / "notes.csv").read_text()
    (folder / "notes.csv").write_text(text.replace(",bad,", ",strange,", 3))
    run(folder, *CLASSES, "--plan")
    assert "strange" in (folder / "notes.csv").read_text()
    assert dealt[0].count("bad") == text.count(",bad,") - 3
    assert dealt[0].count("good") == text.count(",good,") + 3


def test_texts_record_and_ledger_are_written_and_a_second_run_pays_nothing(folder):
    out = folder / "of today" / "run"
    for _ in range(2):
        summary = json.loads(run(folder, *CLASSES, "--out", out, "--json"))
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


def test_the_table_is_charged_for_texts_answers_and_evolved_texts_alike(folder):
    table, kept, own = folder / "notes.csv", folder / "kept", folder / "own.sqlite"
    run(folder, *CLASSES, "--out", folder / "texts", "--ledger", own, "--tables", kept)
    plain = [table, "--text", "body", "--model", "tiny", "--tokens", "4"]
    asked = ["write", *plain, "--answer", "the plot", "--near", "0.1", "--epsilon", "9", "--tables", kept]
    voted = ["evolve", *plain, "--texts", "8", "--rounds", "2", "--epsilon", "4", "--ledger", kept]
    for words in (asked, asked, voted):  # an answer that is given again costs nothing
        code, out, err = typed(*words, "--out", folder / f"of {words[0]}")
        assert (code, "released before from this table" in err) == (0, True), err
    of_units = {entry["unit"]: entry for entry in json.loads(typed("ledger", "tables", kept, "--json").out)}
    left_out, added = of_units["row (zero-out)"], of_units["row (add-or-remove)"]
    # what hides whether a row is there also covers one left out, and not the other way round
    assert [(left_out[name], added[name]) for name in ("releases", "others")] == [(3, 1), (0, 2)]
    with Ledger(own) as first, Ledger(folder / "of write" / "ledger.sqlite") as second:
        both = first.spent() + second.spent()
    assert left_out["epsilon"] == pytest.approx(both.epsilon(added["delta"]) + added["epsilon"])
    record = Result.from_json((folder / "of evolve" / "result.json").read_text())
    assert record.upper["table"] == {name: added[name] for name in record.upper["table"]}
    assert f"all releases from this table: {of_table(added)}" in out


def test_a_person_is_protected_where_a_column_says_whose_document_it_is(folder):
    output = run(folder, "--person", "who", "--epsilon", "30", "--out", folder / "run")
    assert "for one person left out" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "class", "--out", "x"), "--classes go together"),
        ((), "--out must name"),
        (("--answer", "a"), "one of --texts, --answer"),
        (("--out", "x", "--ask", "{word}"), "must have the fields"),
        (("--out", "x", "--relation", "other"), "relation must"),
        (("--out", "x", "--delta", "0.03"), "--delta: delta must be below 1 / 48 units"),
    ],
)
def test_what_cannot_be_is_refused(folder, options, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in run(folder, *options, code=2).replace("\n", " ")


def test_a_budget_that_is_spent_refuses(folder):
    run(folder, *CLASSES, "--out", folder / "one")
    options = ("--out", folder / "two", "--ledger", folder / "one" / "ledger.sqlite")
    run(folder, *CLASSES, *options, code=3)


def test_a_question_is_answered_at_its_price_and_the_same_one_again_for_nothing(folder):
    words = ["write", folder / "notes.csv", "--text", "body", "--model", "tiny", "--answer", "the plot"]
    words += ["--near", "0.1", "--tokens", "4", "--epsilon", "9", "--out", folder / "run", "--json"]
    answers = [json.loads(typed(*words).out) for _ in range(2)]
    assert answers[0] == answers[1]
    assert 8.9 < answers[0]["epsilon"] <= 9
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1
