"""``ostraka evolve``: public texts that private documents vote for."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from ostraka import console

TEXTS, RECORD, LEDGER = "texts.csv", "result.json", "ledger.sqlite"


def evolve(
    private: Annotated[Path, typer.Argument(help="The private table, CSV or Parquet.", metavar="FILE")],
    *,
    text: Annotated[str, typer.Option(help="Column of the documents.", metavar="COLUMN")],
    model: Annotated[
        str, typer.Option(help="smollm2, a GGUF file, or the URL of an endpoint. It reads no document.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for texts, record and ledger.", metavar="FOLDER")],
    ask: Annotated[
        str, typer.Option(help="What the model writes its texts after. Public.", metavar="TEXT")
    ] = "A text:",
    person: Annotated[
        str | None, typer.Option(help="Column that says whose document it is.", metavar="COLUMN")
    ] = None,
    texts: Annotated[int, typer.Option(help="Texts of each round.", metavar="N", min=1)] = 40,
    rounds: Annotated[int, typer.Option(help="Rounds of votes.", metavar="N", min=1)] = 5,
    tokens: Annotated[int, typer.Option(help="Most tokens of a text.", metavar="N", min=1)] = 32,
    temperature: Annotated[float, typer.Option(help="Of the model's draws.")] = 1.0,
    epsilon: Annotated[float, typer.Option(help="Price of all rounds.", metavar="NATS")] = 1.0,
    delta: Annotated[float, typer.Option(help="At this delta.", metavar="P")] = 1e-5,
    seed: Annotated[int, typer.Option(help="Of the texts, which are public.", metavar="N", min=0)] = 0,
    threads: Annotated[int, typer.Option(help="Of the model.", metavar="N", min=1)] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record on stdout.")] = False,
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
        raise typer.BadParameter(f"{private} is not a file")
    if out.exists() and any(out.iterdir()):
        raise typer.BadParameter(f"{out} is not empty: type --out with another folder")
    table = read(private, public=False, form=Format(None, None, None).checked())
    for option, column in (("--text", text), ("--person", person)):
        if column is not None:
            table.require(column, option=option)
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
        typer.echo(json.dumps({"texts": str(out / TEXTS), "n_texts": len(votes)} | price))
        return
    typer.echo(f"{len(votes)} texts with their noisy votes: {out / TEXTS}")
    typer.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
