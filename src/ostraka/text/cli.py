"""``ostraka write`` and ``ostraka evolve``: texts from a table of private documents.

The first writes texts, or answers questions, with a model that reads the documents. For the second, documents
vote for texts of a model that reads none of them.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ostraka
from ostraka import console
from ostraka.console import argument, option, verb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ostraka.core.ledger.budget import Budget
    from ostraka.data.budgets import TableLedger
    from ostraka.text.writer import Writer, Written

TEXTS, RECORD, LEDGER, STORE = "texts.csv", "result.json", "ledger.sqlite", "private.sqlite"


@verb()
def write(
    private: Path = argument(..., "The private table, CSV or Parquet.", "FILE"),
    *,
    text: str = option(..., "Column of the documents.", "COLUMN"),
    model: str = option(..., "smollm2, a GGUF file, or the URL of an endpoint. It reads the documents."),
    texts: int | None = option(None, "How many to write.", "N", min=1),
    answer: str | None = option(None, "Answer this instead. Public.", "QUESTION"),
    keep_documents: bool = option(False, "Keep them for 'ostraka serve'; they are private."),
    retrieve: int = option(32, "Of answers: about so many documents are near.", "N", min=1),
    near: float = option(0.4, "Of answers: a document this close to the question is.", "COSINE"),
    out: Path | None = option(None, "Folder for texts, record and private store.", "FOLDER"),
    label: str | None = option(None, "Column of the classes. Default: one class.", "COLUMN"),
    classes: str | None = option(None, "All classes, with commas between. Public.", "A,B"),
    person: str | None = option(None, "Column that says whose document it is.", "COLUMN"),
    epsilon: float = option(1.0, "Price of all texts.", "NATS"),
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P"),
    documents: int = option(32, "Documents for each text.", "N", min=1),
    tokens: int = option(32, "Most tokens of a text.", "N", min=1),
    paid: int | None = option(None, "Meter each document: it pays for so many draws.", "N", min=1),
    temperature: float = option(1.0, "Of the draws."),
    relation: str = option("zero-out", "zero-out or replace-one."),
    ask: str | None = option(None, "What the model is asked; {label} is the class.", "TEXT"),
    ledger: Path | None = option(None, "Ledger that pays. Default: one in the folder.", "FILE"),
    budgets: Path | None = option(
        None,
        "Folder of the ledgers of tables, which are charged, too. Default: ostraka-ledgers, beside FILE.",
        "FOLDER",
        name="--tables",
    ),
    threads: int = option(1, "Of the model.", "N", min=1),
    plan: bool = option(False, "Print what it would cost, and stop."),
    as_json: bool = option(False, "Print the record on stdout.", name="--json"),
) -> None:
    """Write texts that many private documents agree on, at one price for one document left out.

    With --answer it answers a question from documents near it; after --keep-documents 'ostraka serve' does.

    Example: ostraka write notes.csv --text note --model smollm2 --texts 100 --plan
    """
    from ostraka.core import check
    from ostraka.core.ledger.budget import Budget
    from ostraka.data.columns import people
    from ostraka.data.table import Format, read
    from ostraka.data.units import count
    from ostraka.report import folder
    from ostraka.text.models import open_model
    from ostraka.text.writer import Prompt, SavedDocuments, Writer

    if not private.is_file():
        raise click.UsageError(f"{private} is not a file")
    if (label is None) != (classes is None):
        raise click.UsageError("--label and --classes go together: the classes are public, so type them")
    if [texts is not None, answer is not None, keep_documents].count(True) != 1:
        raise click.UsageError("type one of --texts, --answer and --keep-documents")
    if plan and texts is None:
        raise click.UsageError("--plan is for --texts: an answer costs --epsilon")
    if plan:
        out = None
    elif out is None:
        raise click.UsageError("--out must name a folder")
    names = ["text"] if classes is None else [name.strip() for name in classes.split(",")]
    with console.usage():
        prompt = None if ask is None else Prompt(ask=ask, document=ask + " {document}\n")
        opened = open_model(model, n_threads=threads)
    table = read(private, public=False, form=Format(None, None, None).checked())
    for typed, column in (("--text", text), ("--label", label), ("--person", person)):
        if column is not None:
            table.require(column, option=typed)
    rows, owners = table.text(text), people(table, person)
    with console.usage("--delta"):
        delta = check.release_delta(delta, n_units=count(len(rows) if owners is None else owners))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with console.usage():
        writer = Writer(
            opened,
            classes=names,
            n_documents=documents,
            n_tokens=tokens,
            epsilon=epsilon,
            delta=delta,
            temperature=temperature,
            relation=relation,
            paid=paid,
            prompt=prompt,
            store=None if out is None else out / STORE,
        )
        labels = names * len(rows)
        if label is not None:  # what is not declared is of the first class, and nobody is told
            labels = [cell if cell in names else names[0] for cell in table.text(label)]
        writer.fit(rows, labels, groups=owners)
        plans = {} if texts is None else writer.estimate(texts)
        saved = SavedDocuments(
            documents=tuple(writer.documents_),
            unit=writer.unit_,
            model=str(Path(model).resolve()) if Path(model).is_file() else model,
            threads=threads,
            retrieve=retrieve,
            near=near,
            epsilon=epsilon,
            delta=delta,
            n_tokens=tokens,
            temperature=temperature,
            relation=relation,
        )
    if out is None:
        _print_plan(plans, as_json=as_json)
        return
    if keep_documents:
        saved.save(out / folder.DOCUMENTS)
        words = f"for the owner alone: {out / folder.DOCUMENTS}; next: ostraka serve {out}"
        console.say({"documents": str(out / folder.DOCUMENTS)}, words, as_json=as_json)
        return
    where = out / LEDGER if ledger is None else ledger
    budget = Budget(epsilon=epsilon, delta=delta, adaptive=False) if not where.exists() else None
    try:
        with _ledger(
            private, owners, budgets, relation=relation, out=out, where=where, budget=budget
        ) as paying:
            if texts is None:
                reply = writer.answer(str(answer), retrieve=retrieve, at=near, ledger=paying)
                console.say(reply._asdict(), reply.text, as_json=as_json)
                return
            written = writer.write(texts, ledger=paying)
            writer.result_ = paying.account.record(writer.result_)
    finally:
        writer.close()
    _write(out, writer, written, as_json=as_json)


def _ledger(
    private: Path,
    owners: Any,
    budgets: Path | None,
    *,
    relation: str,
    out: Path,
    where: Path,
    budget: Budget | None,
) -> TableLedger:
    """The ledger of a run, which charges that of its table first; what was released before is said."""
    from ostraka.core.private import promise_words
    from ostraka.data.budgets import TableLedger, Tables
    from ostraka.report import folder

    tables = Tables.beside(private, unless=budgets)
    unit = promise_words("row" if owners is None else "person", relation)
    if story := tables.story(private, owners, unit=unit, run=folder.begun(out)):
        click.echo(story, err=True)
    account = tables.account(private, owners)
    return TableLedger(where, budget=budget, account=account, run=folder.name_of(out))


def _print_plan(estimate: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(estimate))
        return
    click.echo(f"epsilon {estimate['epsilon']:.4g} at delta {estimate['delta']:g}, for one document left out")
    for name, count in estimate["texts"].items():
        click.echo(f"{count} texts of {name!r} from {estimate['batches'][name]} batches of documents")
    click.echo(f"one document takes part in at most {estimate['draws_of_one_document']} draws")
    click.echo(f"clip {estimate['clip']:.3g} nats, range of a draw {estimate['range']:.3g} nats")
    click.echo(f"the model computes at most {estimate['prompts']:,} prompts")


def _write(out: Path, writer: Writer, written: list[Written], *, as_json: bool) -> None:
    """Write texts and record, and say what they cost."""
    from ostraka.core import files
    from ostraka.report.page import at_most, of_table

    files.write(out / TEXTS, _csv([("label", "text"), *written]))
    files.write(out / RECORD, writer.result_.to_json())
    upper = writer.result_.upper
    if as_json:
        summary = {"texts": str(out / TEXTS), "n_texts": len(written), "unit": writer.unit_}
        click.echo(json.dumps(summary | {name: upper[name] for name in ("epsilon", "delta", "table")}))
        return
    click.echo(f"{len(written)} texts: {out / TEXTS}")
    click.echo(
        f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {writer.unit_} "
        + ("left out" if writer.relation == "zero-out" else "replaced")
    )
    click.echo(f"all releases from this table: {of_table(upper['table'])}")


@verb()
def evolve(
    private: Path = argument(..., "The private table, CSV or Parquet.", "FILE"),
    *,
    text: str = option(..., "Column of the documents.", "COLUMN"),
    model: str = option(..., "smollm2, a GGUF file, or the URL of an endpoint. It reads no document."),
    out: Path = option(..., "Folder for texts, record and ledger.", "FOLDER"),
    ask: str = option("A text:", "What the model writes its texts after. Public.", "TEXT"),
    person: str | None = option(None, "Column that says whose document it is.", "COLUMN"),
    texts: int = option(40, "Texts of each round.", "N", min=1),
    rounds: int = option(5, "Rounds of votes.", "N", min=1),
    tokens: int = option(32, "Most tokens of a text.", "N", min=1),
    temperature: float = option(1.0, "Of the model's draws."),
    epsilon: float = option(1.0, "Price of all rounds.", "NATS"),
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P"),
    seed: int = option(0, "Of the texts, which are public.", "N", min=0),
    budgets: Path | None = option(
        None,
        "Folder of the ledgers of tables. Default: ostraka-ledgers, beside FILE.",
        "FOLDER",
        name="--ledger",
    ),
    threads: int = option(1, "Of the model.", "N", min=1),
    as_json: bool = option(False, "Print the record on stdout.", name="--json"),
) -> None:
    """Let private documents vote for texts of a model that reads none of them, round by round.

    The texts are public, each with its noisy votes of the last round. The price is for one document (or one
    person, of whom one document votes) added or removed.

    Example: ostraka evolve notes.csv --text note --model smollm2 --ask "A note:" --out texts
    """
    from ostraka.core import check, files
    from ostraka.core.ledger.budget import Budget
    from ostraka.data.columns import people
    from ostraka.data.table import Format, read
    from ostraka.data.units import count
    from ostraka.report import folder
    from ostraka.report.page import at_most, of_table
    from ostraka.text.evolution import evolution, features
    from ostraka.text.models import open_model

    if not private.is_file():
        raise click.UsageError(f"{private} is not a file")
    folder.require_place(out)
    table = read(private, public=False, form=Format(None, None, None).checked())
    for typed, column in (("--text", text), ("--person", person)):
        if column is not None:
            table.require(column, option=typed)
    rows, owners = table.text(text), people(table, person)
    with console.usage("--delta"):
        delta = check.release_delta(delta, n_units=count(len(rows) if owners is None else owners))
    with console.usage():
        made = evolution(
            open_model(model, n_threads=threads),
            prompt=ask,
            n_texts=texts,
            n_rounds=rounds,
            n_tokens=tokens,
            temperature=temperature,
            epsilon=epsilon,
            delta=delta,
            random_state=seed,
        )
        made.mechanism()
    documents = features(rows)
    settings: dict[str, Any] = {"text": text, "model": model, "ask": ask, "person": person, "texts": texts}
    settings |= {"rounds": rounds, "tokens": tokens, "temperature": temperature, "seed": seed}
    settings |= {"epsilon": epsilon, "delta": delta, "version": ostraka.__version__}
    going_on = folder.open_run(out, settings, tables={"private": private})
    budget = Budget(epsilon=epsilon, delta=delta, adaptive=False)
    with (
        _ledger(
            private,
            owners,
            budgets,
            relation="add-or-remove",
            out=out,
            where=out / LEDGER,
            budget=budget,
        ) as ledger,
        folder.unless_refused(out, ledger, going_on=going_on),
    ):
        made.fit(documents, groups=owners, ledger=ledger)
        made.result_ = ledger.account.record(made.result_)
    votes = sorted(zip(made.votes_.tolist(), made.candidates_.tolist(), strict=True), reverse=True)
    files.write(out / TEXTS, _csv([("text", "votes"), *((line, n_votes) for n_votes, line in votes)]))
    files.write(out / RECORD, made.result_.to_json())
    upper, unit = made.result_.upper, "document" if person is None else "person"
    if as_json:
        price = {"epsilon": upper["epsilon"], "delta": upper["delta"], "unit": unit, "table": upper["table"]}
        click.echo(json.dumps({"texts": str(out / TEXTS), "n_texts": len(votes)} | price))
        return
    click.echo(f"{len(votes)} texts with their noisy votes: {out / TEXTS}")
    click.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
    click.echo(f"all releases from this table: {of_table(upper['table'])}")


def _csv(rows: Iterable[Iterable[object]]) -> str:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()
