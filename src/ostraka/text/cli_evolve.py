"""``ostraka evolve``: public texts that private documents vote for."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import click

from ostraka import console
from ostraka.console import argument, option, verb

TEXTS, RECORD, LEDGER = "texts.csv", "result.json", "ledger.sqlite"


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
    delta: float = option(1e-5, "At this delta.", "P"),
    seed: int = option(0, "Of the texts, which are public.", "N", min=0),
    threads: int = option(1, "Of the model.", "N", min=1),
    as_json: bool = option(False, "Print the record on stdout.", name="--json"),
) -> None:
    """Let private documents vote for texts of a model that reads none of them, round by round.

    The texts are public, each with its noisy votes of the last round. The price is for one document (or one
    person, of whom one document votes) added or removed.

    Example: ostraka evolve notes.csv --text note --model smollm2 --ask "A note:" --out texts
    """
    from ostraka.core import files
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.data.columns import people
    from ostraka.data.table import Format, read
    from ostraka.report.page import at_most
    from ostraka.text.evolution import evolution, features
    from ostraka.text.models import open_model

    if not private.is_file():
        raise click.UsageError(f"{private} is not a file")
    if out.exists() and any(out.iterdir()):
        raise click.UsageError(f"{out} is not empty: type --out with another folder")
    table = read(private, public=False, form=Format(None, None, None).checked())
    for typed, column in (("--text", text), ("--person", person)):
        if column is not None:
            table.require(column, option=typed)
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
    documents = ["" if each is None else str(each) for each in table.text(text)]
    out.mkdir(parents=True, exist_ok=True)
    with Ledger(out / LEDGER, budget=Budget(epsilon=epsilon, delta=delta, adaptive=False)) as ledger:
        made.fit(features(documents), groups=people(table, person), ledger=ledger)
    votes = sorted(zip(made.votes_.tolist(), made.candidates_.tolist(), strict=True), reverse=True)
    lines = io.StringIO()
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerows([("text", "votes"), *((line, n_votes) for n_votes, line in votes)])
    files.write(out / TEXTS, lines.getvalue())
    files.write(out / RECORD, made.result_.to_json())
    upper, unit = made.result_.upper, "document" if person is None else "person"
    if as_json:
        price = {"epsilon": upper["epsilon"], "delta": upper["delta"], "unit": unit}
        click.echo(json.dumps({"texts": str(out / TEXTS), "n_texts": len(votes)} | price))
        return
    click.echo(f"{len(votes)} texts with their noisy votes: {out / TEXTS}")
    click.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
