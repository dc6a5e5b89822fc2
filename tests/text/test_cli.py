"""``ostraka write``: a plan first, then texts, record, ledger and a store that is private."""

import csv
import json
import stat

import pytest

from ostraka.ledger import Ledger
from ostraka.report.page import at_most, of_table
from ostraka.result import Result
from ostraka.text import Prompt, Writer, models
from ostraka.text.writer import SavedDocuments
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
    plan = json.loads(run(folder, *CLASSES, "--plan", "--texts", "90", "--json"))
    assert run(folder, *CLASSES, "--plan", "--texts", "90").splitlines() == [
        "epsilon 30 at delta 1e-05, for one document left out",
        "45 texts of 'good' from 2 batches of documents",
        "45 texts of 'bad' from 2 batches of documents",
        "one document takes part in at most 115 draws",
        f"clip {plan['clip']:.3g} nats, range of a draw {plan['range']:.3g} nats",
        "the model computes at most 5,850 prompts",
    ]
    assert [path.name for path in folder.iterdir()] == ["notes.csv"]


def test_what_is_typed_is_what_documents_are_written_and_kept_with(folder, monkeypatch):
    made, opened = [], []
    plain = Writer.__init__
    monkeypatch.setattr(
        Writer,
        "__init__",
        lambda self, model, **settings: made.append(settings) or plain(self, model, **settings),
    )
    monkeypatch.setattr(
        models, "open_model", lambda name, n_threads: opened.append((name, n_threads)) or Asked()
    )
    how = ["--temperature", "1.5", "--threads", "3", "--relation", "replace-one", "--delta", "1e-7"]
    for options in (how, [*how, "--ask", "{label}:"]):
        run(folder, *CLASSES, *options, "--out", folder / f"run {len(options)}")
    settings = {"classes": ["good", "bad"], "n_documents": 12, "n_tokens": 5, "epsilon": 30, "paid": None}
    settings |= {"delta": 1e-7, "temperature": 1.5, "relation": "replace-one"}
    prompts = [None, Prompt(ask="{label}:", document="{label}: {document}\n")]
    for got, prompt, n in zip(made, prompts, (8, 10), strict=True):
        assert got == settings | {"prompt": prompt, "store": folder / f"run {n}" / "private.sqlite"}
    assert opened == [("tiny", 3)] * 2
    (folder / "tiny.gguf").touch()
    monkeypatch.chdir(folder)
    words = ["--text", "body", "--model", "tiny.gguf", "--near", "0.3", "--retrieve", "7", "--tokens", "5"]
    for n, options in enumerate(([*how, "--epsilon", "30"], ["--model", "tiny", "--person", "who"])):
        typed("write", "notes.csv", *words, *options, "--keep-documents", "--out", f"kept {n}")
    texts, _ = documents()
    kept, of_people = (SavedDocuments.load(folder / f"kept {n}" / "documents") for n in range(2))
    assert kept == SavedDocuments(
        documents=tuple(texts),
        unit="document",
        model=str((folder / "tiny.gguf").resolve()),
        threads=3,
        retrieve=7,
        near=0.3,
        epsilon=30.0,
        delta=1e-7,
        n_tokens=5,
        temperature=1.5,
        relation="replace-one",
    )
    assert (of_people.unit, of_people.model, of_people.delta) == ("person", "tiny", 1e-5)
    assert of_people.documents == tuple(map("\n".join, zip(texts[::2], texts[1::2], strict=True)))


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


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--person", "who"), "person left out"), (("--relation", "replace-one"), "document replaced")],
)
def test_it_is_said_for_whom_a_price_is_and_what_was_written(folder, options, words):
    out = folder / "run"
    output = run(folder, *options, "--epsilon", "30", "--out", out)
    upper = json.loads((out / "result.json").read_text())["upper"]
    assert output.splitlines() == [
        f"4 texts: {out / 'texts.csv'}",
        f"epsilon at most {at_most(upper['epsilon'])} at delta 1e-05, for one {words}",
        f"all releases from this table: {of_table(upper['table'])}",
    ]
    assert upper["table"]["releases"] == 1
    assert upper["table"]["epsilon"] == pytest.approx(upper["epsilon"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--label", "class", "--out", "x"), "--classes go together"),
        (("--classes", "a,b", "--out", "x"), "--classes go together"),
        ((), "--out must name"),
        (("--answer", "a"), "one of --texts, --answer"),
        (("--keep-documents",), "one of --texts, --answer"),
        (("--out", "x", "--ask", "{word}"), "must have the fields"),
        (("--out", "x", "--relation", "other"), "relation must"),
        (("--out", "x", "--delta", "0.03"), "--delta: delta must be below 1 / 48 units"),
    ],
)
def test_what_cannot_be_is_refused(folder, options, message, monkeypatch):
    monkeypatch.chdir(folder)
    assert message in run(folder, *options, code=2).replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nowhere.csv", "--texts", "1"], 2, "nowhere.csv is not a file"),
        ([".", "--texts", "1"], 2, ". is not a file"),
        (["notes.csv"], 2, "type one of --texts, --answer and --keep-documents"),
        (["notes.csv", "--answer", "a", "--plan"], 2, "--plan is for --texts: an answer costs --epsilon"),
        (["notes.csv", "--texts", "1", "--text", "x", "--plan"], 1, "no column 'x' (--text)"),
        (["notes.csv", "--texts", "1", "--person", "x", "--plan"], 1, "no column 'x' (--person)"),
        (
            ["notes.csv", "--texts", "1", "--label", "x", "--classes", "a,b", "--plan"],
            1,
            "no column 'x' (--label)",
        ),
    ],
)
def test_what_is_missing_is_named(folder, words, code, message, monkeypatch):
    monkeypatch.chdir(folder)
    got, _, err = typed("write", words[0], "--text", "body", "--model", "tiny", *words[1:])
    assert (got, message in " ".join(err.replace("│", " ").split())) == (code, True), err


def test_a_budget_that_is_spent_refuses(folder):
    run(folder, *CLASSES, "--out", folder / "one")
    options = ("--out", folder / "two", "--ledger", folder / "one" / "ledger.sqlite")
    run(folder, *CLASSES, *options, code=3)


def test_a_question_is_answered_at_its_price_and_the_same_one_again_for_nothing(folder):
    words = ["write", folder / "notes.csv", "--text", "body", "--model", "tiny", "--answer", "the plot"]
    words += ["--near", "0.1", "--tokens", "4", "--epsilon", "9", "--out", folder / "run", "--json"]
    answers = [json.loads(typed(*words).out) for _ in range(2)]
    assert answers[0] == answers[1]
    assert typed(*words[:-1]).out == answers[0]["text"] + "\n"
    assert 8.9 < answers[0]["epsilon"] <= 9
    with Ledger(folder / "run" / "ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1
