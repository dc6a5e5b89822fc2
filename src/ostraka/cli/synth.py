"""``ostraka synth``: private generation of synthetic rows from a table."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli import _errors

if TYPE_CHECKING:
    import numpy as np

    from ostraka.result import Result
    from ostraka.synth import Schema, TableGenerator

__all__ = ["synth"]

ROWS, GENERATOR, RECORD, LEDGER = "rows.csv", "generator.json", "result.json", "ledger.sqlite"
REPORT = "report.html"  # for the owner


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
    rows: Annotated[
        int | None,
        typer.Option(help="How many to write. Default: about as many as there are.", metavar="N", min=0),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record on stdout.")] = False,
) -> None:
    """Write synthetic rows and the generator of more, at one price for one row (or one person) in all."""
    from ostraka import Budget, Ledger
    from ostraka.cli import _encoding, _table
    from ostraka.synth import Schema, TableGenerator

    if not private.is_file():
        raise typer.BadParameter(f"{private} is not a file")
    if out.exists() and any(out.iterdir()):
        raise typer.BadParameter(f"{out} is not empty: type --out with another folder")
    with _errors.usage("--schema"):
        columns = Schema.from_toml(schema)
    if target is not None:
        with _errors.usage("--target"):
            columns.place(target)
    table = _table.read(private)
    for name in columns.names:
        table.require(name, option=str(schema))
    frame = {name: table.text(name) for name in columns.names}
    if person is not None:
        table.require(person, option="--person")
    groups = _encoding.people(table, person)
    generator = TableGenerator(columns, target=target, epsilon=epsilon, delta=delta)
    # what the schema or the price refuses is refused before there is a folder
    generator.mechanism(persons=groups is not None)
    codes = columns.encode(frame)
    out.mkdir(parents=True, exist_ok=True)
    with Ledger(out / LEDGER, budget=Budget(epsilon=epsilon, delta=delta)) as ledger:
        generator.fit(frame, groups=groups, ledger=ledger)
    sample = generator.sample(rows)
    _write(out, generator, sample)
    _report(out, generator, codes, sample, name=private.name)
    _print(generator.result_, out, n_rows=len(sample[columns.names[0]]), as_json=as_json)


def _write(out: Path, generator: TableGenerator, sample: dict[str, np.ndarray]) -> None:
    """Rows, generator and record; all of it is public."""
    from ostraka import _files

    _files.write(out / ROWS, _csv(generator.schema, sample))
    _files.write(out / GENERATOR, generator.to_json())
    _files.write(out / RECORD, generator.result_.to_json())


def _report(
    out: Path,
    generator: TableGenerator,
    codes: np.ndarray,
    sample: dict[str, np.ndarray],
    *,
    name: str,
) -> None:
    """The page, which only the owner may read."""
    from ostraka import _files
    from ostraka.cli import _synth_report
    from ostraka.synth._compare import compared

    copy = generator.schema.encode(sample)
    found = compared(generator.schema, codes, copy, target=generator.target)
    _files.write(out / REPORT, _synth_report.page(generator.result_, found, name=name), private=True)


def _csv(schema: Schema, sample: dict[str, np.ndarray]) -> str:
    import csv
    import io

    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(schema.names)
    lines.writerows(zip(*(sample[name].tolist() for name in schema.names), strict=True))
    return written.getvalue()


def _print(result: Result, out: Path, *, n_rows: int, as_json: bool) -> None:
    from ostraka._phrases import at_most

    if as_json:
        typer.echo(json.dumps(_summary(result, out, n_rows)))
        return
    upper, unit = result.upper, result.settings["unit"]
    typer.echo(f"{n_rows:,} rows of {result.settings['n_columns']} columns: {out / ROWS}")
    typer.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
    typer.echo(f"the copy beside the private rows, for the owner only: {out / REPORT}")
    typer.echo(f"the generator of more, at no further price: {out / GENERATOR}")


def _summary(result: Result, out: Path, n_rows: int) -> dict[str, Any]:
    return {
        "rows": str(out / ROWS),
        "report": str(out / REPORT),
        "n_rows": n_rows,
        "epsilon": result.upper["epsilon"],
        "delta": result.upper["delta"],
        "unit": result.settings["unit"],
    }
