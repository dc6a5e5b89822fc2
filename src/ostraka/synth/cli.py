"""``ostraka synth``: private generation of synthetic rows from a table, and a page for the owner.

The page shows the copy beside the private rows.
"""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka import console

if TYPE_CHECKING:
    import numpy as np

    from ostraka.core.result import Result
    from ostraka.data.schema import Schema

ROWS, GENERATOR, RECORD, LEDGER = "rows.csv", "generator.json", "result.json", "ledger.sqlite"
REPORT = "report.html"  # for the owner
_UNREAD = "for the owner: {0:,} cells of column {1!r} are not in the schema, and count as other or missing"


def synth(
    private: Annotated[Path, typer.Argument(help="The private table, CSV or Parquet.", metavar="FILE")],
    *,
    schema: Annotated[
        Path,
        typer.Option(help="Public columns in TOML: [age], edges = [0, 18, 65, 120].", metavar="FILE"),
    ],
    out: Annotated[Path, typer.Option(help="Folder for rows, generator and record.", metavar="FOLDER")],
    target: Annotated[
        str | None, typer.Option(help="Column that models will predict.", metavar="COLUMN")
    ] = None,
    person: Annotated[
        str | None, typer.Option(help="Column that says whose row it is.", metavar="COLUMN")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Price of all of it.", metavar="NATS")] = 1.0,
    delta: Annotated[float, typer.Option(help="At this delta.", metavar="P")] = 1e-5,
    encoding: Annotated[
        str | None,
        typer.Option(help="Of a CSV file, such as cp1252. Default: UTF-8.", metavar="NAME"),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Between the cells of a CSV file. Default: as in the first line.", metavar="SIGN"),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(help="Decimal sign. Default: a point, or a comma where none is between cells."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="How many to write. Default: about as many as there are.", metavar="N", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record on stdout.")] = False,
) -> None:
    """Write synthetic rows and the generator of more, at one price for one row (or one person) in all."""
    from ostraka.core import files
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.data.columns import people
    from ostraka.data.schema import Schema
    from ostraka.data.table import Format, read
    from ostraka.synth.compare import compared
    from ostraka.synth.tables import TableGenerator

    if not private.is_file():
        raise typer.BadParameter(f"{private} is not a file")
    if out.exists() and any(out.iterdir()):
        raise typer.BadParameter(f"{out} is not empty: type --out with another folder")
    with console.usage("--schema"):
        columns = Schema.from_toml(schema)
    if target is not None:
        with console.usage("--target"):
            columns.place(target)
    with console.usage():
        form = Format(delimiter, encoding, decimal).checked()
    table = read(private, public=False, form=form)
    for name in columns.names:
        table.require(name, option=str(schema))
    edged = {column.name for column in columns.columns if column.edges}
    frame: dict[str, Any] = {
        name: table.numbers(name)[0] if name in edged else table.text(name) for name in columns.names
    }
    if person is not None:
        table.require(person, option="--person")
    groups = people(table, person)
    generator = TableGenerator(columns, target=target, epsilon=epsilon, delta=delta)
    # what the schema or the price refuses is refused before there is a folder
    generator.mechanism(persons=groups is not None)
    codes = columns.encode(frame)
    unread = columns.unread(frame) | {name: int(table.numbers(name)[1].sum()) for name in edged}
    for name, n_cells in unread.items():
        if n_cells:
            typer.echo(_UNREAD.format(n_cells, name), err=True)
    out.mkdir(parents=True, exist_ok=True)
    with Ledger(out / LEDGER, budget=Budget(epsilon=epsilon, delta=delta, adaptive=False)) as ledger:
        generator.fit(frame, groups=groups, ledger=ledger)
    sample = generator.sample(rows)
    files.write(out / ROWS, _csv(generator.schema, sample))
    files.write(out / GENERATOR, generator.to_json())
    files.write(out / RECORD, generator.result_.to_json())
    # the page is for the owner only; all else is public
    comparison = compared(columns, codes, columns.encode(sample), target=target)
    files.write(out / REPORT, page(generator.result_, comparison, name=private.name), private=True)
    _print(generator.result_, out, n_rows=len(sample[columns.names[0]]), as_json=as_json)


def _csv(schema: Schema, sample: dict[str, np.ndarray]) -> str:
    import csv
    import io

    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(schema.names)
    lines.writerows(zip(*(sample[name].tolist() for name in schema.names), strict=True))
    return written.getvalue()


def _print(result: Result, out: Path, *, n_rows: int, as_json: bool) -> None:
    from ostraka.report.page import at_most

    upper, unit = result.upper, result.settings["unit"]
    if as_json:
        facts = {"rows": str(out / ROWS), "report": str(out / REPORT), "n_rows": n_rows}
        price = {"epsilon": upper["epsilon"], "delta": upper["delta"], "unit": unit}
        typer.echo(json.dumps(facts | price))
        return
    typer.echo(f"{n_rows:,} rows of {result.settings['n_columns']} columns: {out / ROWS}")
    typer.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
    typer.echo(f"the copy beside the private rows, for the owner only: {out / REPORT}")
    typer.echo(f"the generator of more, at no further price: {out / GENERATOR}")


_SHOWN = 10  # values of a column


def page(result: Result, comparison: dict[str, Any], *, name: str) -> str:
    """The HTML page of a run, from its record and from :func:`ostraka.synth.compare.compared`."""
    from ostraka.core.files import environment
    from ostraka.report.page import at_most, delta_text, privacy_label

    target = result.settings.get("target")
    upper, settings = result.upper, result.settings
    return (
        environment()
        .get_template("synth.html.j2")
        .render(
            name=name,
            claim=privacy_label(result)["claim"],
            facts=[
                ("Epsilon, at most", at_most(upper["epsilon"])),
                ("Delta", delta_text(upper["delta"])),
                ("Protected unit", f"one {settings['unit']}, added or removed"),
                ("Not protected", "; ".join(upper["not_protected"])),
                ("Rows of the copy", f"{comparison['n_copy']:,}"),
                ("Private rows, with noise", f"{settings['n_rows']:,}"),
                ("Columns", f"{settings['n_columns']}"),
            ],
            learned=comparison["learned"],
            not_learned=(
                "No --target was named, so no model was trained."
                if target is None
                else "There are too few rows, or one class only, to compare models."
            ),
            target=target,
            near=comparison["near"],
            near_rows=_near_rows(comparison["near"]),
            pairs=comparison["pairs"],
            columns=[_column(column) for column in comparison["columns"]],
        )
    )


def _near_rows(near: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Shares of rows by their number of differences; what is rare in both is left out."""
    if near is None:
        return []
    rows = []
    for number, (copy, real) in enumerate(zip(near["copy"], near["original"], strict=True)):
        if copy or real or not number:
            label = "no column: identical" if not number else f"{number} column{'s' * (number > 1)}"
            rows.append((label, f"{copy:.1%}", f"{real:.1%}"))
    return rows


def _column(column: dict[str, Any]) -> dict[str, Any]:
    """Bars of the values which are most frequent in the copy."""
    order = sorted(range(len(column["values"])), key=lambda k: -column["copy"][k])
    places = sorted(order[:_SHOWN])
    longest = max([column[side][k] for side in ("real", "copy") for k in places] + [1e-9])
    bars = [
        {
            "value": column["values"][k],
            **{side: f"{column[side][k]:.1%}" for side in ("real", "copy")},
            **{f"{side}_width": f"{100 * column[side][k] / longest:.1f}" for side in ("real", "copy")},
        }
        for k in places
    ]
    return {
        "name": column["name"],
        "apart": column["apart"],
        "bars": bars,
        "more": len(order) - len(places),
    }
