"""``ostraka synth``: synthetic rows of a private table, more of them, questions to their generator, schemas.

Beside the rows is a page for the owner, which shows the copy beside the private rows.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import ostraka
from ostraka import console
from ostraka.console import Group, argument, option, verb

if TYPE_CHECKING:
    import numpy as np

    from ostraka.core.result import Result
    from ostraka.data.budgets import Tables
    from ostraka.data.findings import Finding
    from ostraka.data.schema import Schema
    from ostraka.data.table import Table
    from ostraka.synth.sequences import SequenceGenerator
    from ostraka.synth.tables import TableGenerator

    Generator = TableGenerator | SequenceGenerator

ROWS, GENERATOR, RECORD, LEDGER = "rows.csv", "generator.json", "result.json", "ledger.sqlite"
REPORT = "report.html"  # for the owner
_SOURCES = {
    "counts": "from the noisy counts of these columns, with intervals for their noise",
    "model": "from the model, since these columns were not counted together, with intervals for the noise of "
    "what was counted, and not for what the model does not know",
}
_UNREAD = "for the owner: {0:,} cells of column {1!r} are not in the schema, and count as other or missing"
app = Group("Synthetic rows from a private table, and questions to their generator.", default="table")
_SHOWN = 10  # values of a column
_SIDES = {1: "columns", 2: "pairs of columns", 3: "triples of columns"}


@verb(app)
def table(
    private: Path = argument(..., "The private table, CSV or Parquet.", "FILE"),
    *,
    schema: Path = option(..., "Public columns in TOML: [age], edges = [0, 18, 65, 120].", "FILE"),
    out: Path = option(..., "Folder for rows, generator and record.", "FOLDER"),
    target: str | None = option(None, "Column that models will predict.", "COLUMN"),
    person: str | None = option(None, "Column that says whose row it is.", "COLUMN"),
    order: str | None = option(
        None,
        "Column that puts the rows of a person in order, such as the day of a visit: the copy has "
        "persons with their rows in order.",
        "COLUMN",
    ),
    longest: int | None = option(
        None, "With --order: most rows of a person; of more the first count. Default: 20.", "N", min=2
    ),
    constant: list[str] | None = option(
        None, "With --order: a column in which all rows of a person are alike. Once for each.", "COLUMN"
    ),
    method: str = option("auto", "auto, particles, forest, kmeans, dpgm or evolution.", "NAME"),
    epsilon: float = option(1.0, "Price of all of it.", "NATS"),
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P"),
    encoding: str | None = option(None, "Of a CSV file, such as cp1252. Default: UTF-8.", "NAME"),
    delimiter: str | None = option(
        None, "Between the cells of a CSV file. Default: as in the first line.", "SIGN"
    ),
    decimal: str | None = option(
        None, "Decimal sign. Default: a point, or a comma where none is between cells."
    ),
    rows: int | None = option(
        None, "Rows to write; with --order, persons. Default: about as many as there are.", "N", min=0
    ),
    skip_lines: int | None = option(None, "Lines above the header of the private file.", "N", min=0),
    sheet: str | None = option(None, "Sheet of a workbook. Default: the first.", "NAME"),
    rows_are_people: bool = option(False, "Each row is another person's, whatever a column says."),
    budgets: Path | None = option(
        None,
        "Folder of the ledgers of tables. Default: ostraka-ledgers, beside FILE.",
        "FOLDER",
        name="--ledger",
    ),
    yes: bool = option(False, "Spend without being asked, as scripts do."),
    as_json: bool = option(False, "Print the record on stdout.", name="--json"),
) -> None:
    """Write synthetic rows and the generator of more, at one price for one row (or one person) in all.

    Example: ostraka synth table private.csv --schema schema.toml --person patient --epsilon 1 --out copy
    """
    from ostraka.core import check, files
    from ostraka.core.ledger.budget import Budget
    from ostraka.data.budgets import TableLedger, Tables
    from ostraka.data.columns import people
    from ostraka.data.findings import require_settled
    from ostraka.data.schema import Schema
    from ostraka.data.table import Format, read
    from ostraka.data.units import count
    from ostraka.report import folder

    if not private.is_file():
        raise click.UsageError(f"{private} is not a file")
    folder.require_place(out)
    with console.usage("--schema"):
        columns = Schema.from_toml(schema)
    request = _Request(target, method, person, order, longest, tuple(constant or ()))
    generator = request.generator(columns, epsilon=epsilon, delta=1e-5 if delta is None else delta)
    with console.usage():
        form = Format(delimiter, encoding, decimal, skip_lines, sheet).checked()
    table = read(private, public=False, form=form)
    own = ((name, str(schema)) for name in columns.names)
    for place, typed in (*own, (person, "--person"), (order, "--order")):
        if place is not None:
            table.require(place, option=typed)
    edged = {column.name for column in columns.columns if column.edges and not column.date}
    frame: dict[str, Any] = {
        name: table.numbers(name)[0] if name in edged else table.text(name) for name in columns.names
    }
    groups = people(table, person)
    with console.usage("--delta"):
        delta = check.release_delta(delta, n_units=count(len(table) if groups is None else groups))
    generator.set_params(delta=delta)
    doubts = _doubts(table, columns, person=person, rows_are_people=rows_are_people)
    require_settled(doubts)
    request.check_price(generator)  # what the schema or the price refuses is refused before there is a folder
    tables = Tables.beside(private, unless=budgets)
    _plan(table, columns, generator, groups=groups, doubts=doubts, tables=tables, out=out)
    console.require_consent(f"Spend epsilon {epsilon:g} of {private}?", yes=yes)
    codes = columns.encode(frame)
    unread = columns.unread(frame) | {name: int(table.numbers(name)[1].sum()) for name in edged}
    for name, n_cells in unread.items():
        if n_cells:
            click.echo(_UNREAD.format(n_cells, name), err=True)
    account = tables.account(private, groups)
    settings = request._asdict() | form._asdict() | {"schema": columns.to_dict()}
    settings |= {"epsilon": epsilon, "delta": delta, "version": ostraka.__version__}
    going_on = folder.open_run(out, settings, tables={"private": private})
    budget = Budget(epsilon=epsilon, delta=delta, adaptive=False)
    stages = {"read": "rows read", "fit": "generator fitted", "draw": "rows drawn"}
    with (
        console.Stages(stages) as tell,
        TableLedger(out / LEDGER, budget=budget, account=account, run=folder.name_of(out)) as ledger,
    ):
        tell("read", 1, 1)
        with folder.unless_refused(out, ledger, going_on=going_on):
            generator.fit(frame, groups=groups, ledger=ledger, **request.order_of(table))
        generator.result_ = account.record(generator.result_)
        # what is paid for is kept before anything else can fail
        files.write(out / GENERATOR, generator.to_json())
        tell("fit", 1, 1)
        sample = generator.sample(rows)
        tell("draw", 1, 1)
    _write(generator, sample, out, codes=codes, name=private.name, as_json=as_json)


class _Request(NamedTuple):
    """Which generator the command line asks for."""

    target: str | None
    method: str
    person: str | None
    order: str | None
    longest: int | None
    constant: tuple[str, ...]

    def generator(self, schema: Schema, *, epsilon: float, delta: float) -> Any:
        """The generator, unless options do not fit each other or the schema."""
        from ostraka.synth.sequences import LONGEST, SequenceGenerator
        from ostraka.synth.tables import METHODS, TableGenerator

        price: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        if self.method not in METHODS:
            raise click.UsageError(f"--method must be one of {', '.join(METHODS)}, got {self.method!r}")
        if self.order is None:
            if self.longest is not None or self.constant:
                raise click.UsageError("--longest and --constant are for --order COLUMN, which is missing")
            with console.usage("--target"):
                if self.target is not None:
                    schema.place(self.target)
            return TableGenerator(schema, target=self.target, method=self.method, **price)
        if self.person is None or self.target is not None or self.method not in {"auto", "particles"}:
            raise click.UsageError(
                "--order is for rows of persons: type --person COLUMN with it, without --target or --method"
            )
        with console.usage("--constant"):
            for name in self.constant:
                schema.place(name)
        return SequenceGenerator(
            schema,
            longest=self.longest or LONGEST,
            constant=self.constant,
            person=self.person,
            order=self.order if self.order not in schema.names else "place",
            **price,
        )

    def check_price(self, generator: Any) -> None:
        """Raise unless there is noise for this price."""
        how = {"persons": self.person is not None} if self.order is None else {}
        generator.mechanism(**how)

    def order_of(self, table: Table) -> dict[str, Any]:
        """What ``fit`` takes beside the columns of the schema."""
        return {} if self.order is None else {"order": table.text(self.order)}


def _doubts(table: Table, columns: Schema, *, person: str | None, rows_are_people: bool) -> list[Finding]:
    """Doubts about whose rows these are and how the file is read; a schema says all about its columns."""
    from ostraka.data.findings import findings, form_findings
    from ostraka.data.table import UNDECLARED, look
    from ostraka.data.task import Columns

    declared = Columns(label="", person=person, rows_are_people=rows_are_people, text=columns.names)
    doubts = [
        doubt for doubt in findings(table, declared, public=None) if doubt.kind in {"unit", "identifier"}
    ]
    if table.path.suffix.lower() not in {".parquet", ".pq"}:
        form = table.form if table.form.sheet else table.form._replace(sheet=None)
        usual = look(table.path, UNDECLARED._replace(skip=form.skip, sheet=form.sheet))
        doubts += form_findings(usual, form)
    return doubts


def _plan(
    table: Table,
    schema: Schema,
    generator: Generator,
    *,
    groups: Any,
    doubts: list[Finding],
    tables: Tables,
    out: Path,
) -> None:
    """Print what will be asked and what it costs, before anything is spent."""
    from ostraka.core.private import promise_words
    from ostraka.data.units import count
    from ostraka.report import folder

    unit = "row" if groups is None else "person"
    n_units = count(len(table) if groups is None else groups)
    left_out = [name for name in table.names if name not in schema.names]
    lines = [
        ("private", f"{table.path.name}: {len(table):,} rows"),
        ("protected", f"one {unit}, of {n_units:,}, added or removed"),
        ("columns", f"{len(schema.names)} of the schema"),
        *([("left out", ", ".join(left_out))] if left_out else []),
        ("expected", f"epsilon at most {generator.epsilon:g} at delta {generator.delta:g}"),
    ]
    click.echo("Plan", err=True)
    for name, text in lines:
        click.echo(f"{name:<11}{text}", err=True)
    protected = promise_words(unit, "add-or-remove")
    if story := tables.story(table.path, groups, unit=protected, run=folder.begun(out)):
        click.echo(story, err=True)
    for doubt in doubts:
        click.echo(f"for the owner: {doubt.sentence(cells=False)}", err=True)


def _write(
    generator: Generator,
    sample: dict[str, np.ndarray],
    out: Path,
    *,
    codes: np.ndarray,
    name: str,
    as_json: bool,
) -> None:
    """Write rows, page and record, and say what there is. ``codes`` are of the private rows."""
    from ostraka.core import files
    from ostraka.report.page import at_most, of_table
    from ostraka.synth.compare import compared

    result, schema = generator.result_, generator.schema
    files.write(out / ROWS, _csv(sample))
    # the page is for the owner only; all else is public
    comparison = compared(schema, codes, schema.encode(sample), target=result.settings.get("target"))
    files.write(out / REPORT, page(result, comparison, name=name), private=True)
    files.write(out / RECORD, result.to_json())  # last: it marks the run as finished
    upper, unit = result.upper, result.settings["unit"]
    n_rows = len(sample[schema.names[0]])
    if as_json:
        facts = {"rows": str(out / ROWS), "report": str(out / REPORT), "n_rows": n_rows}
        price = {
            "epsilon": upper["epsilon"],
            "delta": upper["delta"],
            "unit": unit,
            "table": upper.get("table"),
        }
        click.echo(json.dumps(facts | price))
        return
    click.echo(f"{n_rows:,} rows of {result.settings['n_columns']} columns: {out / ROWS}")
    if "n_people" in result.settings:
        people, private_rows = (f"{result.settings[name]:,}" for name in ("n_people", "n_rows"))
        click.echo(f"private, with noise: {private_rows} rows of {people} people")
    if "tables" in result.settings:
        click.echo(f"counted, with noise: {sizes_of_tables(result.settings['tables'])} ({RECORD} names them)")
    click.echo(f"epsilon at most {at_most(upper['epsilon'])} at delta {upper['delta']:g}, for one {unit}")
    if "table" in upper:
        click.echo(f"all releases from this table: {of_table(upper['table'])}")
    click.echo(f"the copy beside the private rows, for the owner only: {out / REPORT}")
    click.echo(f"the generator of more, at no further price: {out / GENERATOR}")


def _csv(sample: dict[str, np.ndarray]) -> str:
    import csv
    import io

    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(sample)
    lines.writerows(zip(*(column.tolist() for column in sample.values()), strict=True))
    return written.getvalue()


@verb(app, name="sample")
def more(
    generator: Path = argument(..., "generator.json of a run, or its folder.", "FILE"),
    *,
    out: Path = option(..., "CSV file to write.", "FILE"),
    rows: int | None = option(
        None,
        "How many; of rows in order, how many persons. Default: about as many as were private.",
        "N",
        min=0,
    ),
    seed: int | None = option(None, "Of the rows, to repeat them.", "N", min=0),
    as_json: bool = option(False, "Print JSON.", name="--json"),
) -> None:
    """Write more rows of a generator, at no further price.

    Example: ostraka synth sample copy --rows 1000 --out more.csv
    """
    from ostraka.core import files

    if out.exists():
        raise click.UsageError(f"{out} exists: type --out with another file")
    made = _opened(generator)
    sample = made.sample(rows, random_state=seed)
    files.write(out, _csv(sample))
    n_rows = len(sample[made.schema.names[0]])
    console.say({"rows": str(out), "n_rows": n_rows}, f"{n_rows:,} rows: {out}", as_json=as_json)


@verb(app)
def query(
    generator: Path = argument(..., "generator.json of a run, or its folder.", "FILE"),
    question: str = argument(..., 'Conditions and columns to group by: "age>=65, sex".', "QUESTION"),
    *,
    confidence: float = option(0.95, "Of each interval.", "P"),
    as_json: bool = option(False, "Print JSON.", name="--json"),
) -> None:
    """Count the rows that satisfy conditions, by group, with intervals, at no further price.

    Example: ostraka synth query copy 'age>=65, sex'
    """
    made = _opened(generator)
    with console.usage():
        answers = made.query(question, confidence=confidence)
    if as_json:
        click.echo(json.dumps(answers.to_dict()))
        return
    rows = []
    for row in answers.rows:
        ends = ["?" if math.isnan(end) else f"{end:,.0f}" for end in (row.low, row.high)]
        rows.append((*row.group, f"{row.estimate:,.0f}", *ends))
    console.table((*answers.columns, "count", "low", "high"), rows, numbers=3)
    unit = made.result_.settings["unit"]
    click.echo(f"{_SOURCES[answers.source]}; {confidence:.0%} of intervals hold. In {unit}s.", err=True)


@verb(app, name="schema")
def describe(
    public: Path = argument(..., "A PUBLIC table, CSV or Parquet.", "FILE"),
    *,
    out: Path = option(..., "TOML file to write.", "FILE"),
    bins: int = option(16, "Most bins of a column of numbers.", "N", min=2),
    dictionary: Path | None = option(
        None,
        "What is documented of columns: Frictionless, CSVW, DDI, SDMX, or TOML: [age], range = [0, 120].",
        "FILE",
    ),
    as_json: bool = option(False, "Print JSON.", name="--json"),
) -> None:
    """Write the schema of a public table, to look over and to edit.

    Example: ostraka synth schema public.csv --out schema.toml
    """
    from ostraka.core import files
    from ostraka.data.schema import Schema, read_dictionary
    from ostraka.data.table import read

    if out.exists():
        raise click.UsageError(f"{out} exists: type --out with another file")
    rows = read(public, public=True)
    with console.usage("--dictionary"):
        known = {} if dictionary is None else read_dictionary(dictionary).columns
    made = Schema.from_public({name: rows.text(name) for name in rows.names}, n_bins=bins, dictionary=known)
    files.write(out, made.to_toml())
    words = f"{len(made.columns)} columns: {out}. It must hold public facts only: look it over"
    console.say({"schema": str(out), "n_columns": len(made.columns)}, words, as_json=as_json)


def _opened(path: Path) -> Generator:
    """The generator of a file, or of the folder of a run."""
    from ostraka.synth.sequences import KIND, SequenceGenerator
    from ostraka.synth.tables import TableGenerator

    path = path / GENERATOR if path.is_dir() else path
    if not path.is_file():
        raise click.UsageError(f"{path} is not a file")
    with console.usage(str(path)):
        text = path.read_text(encoding="utf-8")
        try:
            record = json.loads(text)
        except ValueError:
            record = None  # which is said below
        linked = isinstance(record, dict) and record.get("kind") == KIND
        return SequenceGenerator.from_json(text) if linked else TableGenerator.from_json(text)


def page(result: Result, comparison: dict[str, Any], *, name: str) -> str:
    """The HTML page of a run, from its record and from :func:`ostraka.synth.compare.compared`."""
    from ostraka.core.files import environment
    from ostraka.report.page import at_most, delta_text, of_table, privacy_label

    target = result.settings.get("target")
    upper, settings, near = result.upper, result.settings, comparison["near"]
    near_rows = []  # shares of rows by their number of differences; what is rare in both is left out
    for number, pair in enumerate(zip(near["copy"], near["original"], strict=True) if near else ()):
        if any(pair) or not number:
            label = "no column: identical" if not number else f"{number} column{'s' * (number > 1)}"
            near_rows.append((label, *(f"{share:.1%}" for share in pair)))
    columns = []  # bars of the values which are most frequent in the copy
    for column in comparison["columns"]:
        order = sorted(range(len(column["values"])), key=lambda k: -column["copy"][k])
        places, sides = sorted(order[:_SHOWN]), ("real", "copy")
        longest = max([column[side][k] for side in sides for k in places] + [1e-9])
        bars = [
            {
                "value": column["values"][k],
                **{side: f"{column[side][k]:.1%}" for side in sides},
                **{f"{side}_width": f"{100 * column[side][k] / longest:.1f}" for side in sides},
            }
            for k in places
        ]
        more = len(order) - len(places)
        columns.append({"name": column["name"], "apart": column["apart"], "bars": bars, "more": more})
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
                *[
                    (f"Private {many}, with noise", f"{settings[name]:,}")
                    for name, many in (("n_people", "people"), ("n_rows", "rows"))
                    if name in settings
                ],
                *([("All releases from this table", of_table(upper["table"]))] if "table" in upper else []),
                ("Columns", f"{settings['n_columns']}"),
                *(
                    [("Counted, with noise", sizes_of_tables(settings["tables"]))]
                    if "tables" in settings
                    else []
                ),
            ],
            learned=comparison["learned"],
            not_learned=(
                "No --target was named, so no model was trained."
                if target is None
                else "There are too few rows, or one class only, to compare models."
            ),
            target=target,
            near=near,
            near_rows=near_rows,
            tables=comparison["tables"],
            columns=columns,
        )
    )


def sizes_of_tables(tables: list[list[str]]) -> str:
    """How many tables of how many columns were counted, such as ``"13 columns and 9 pairs of columns"``."""
    sizes = [len(names) for names in tables]
    said = [f"{sizes.count(k):,} {many}" for k, many in _SIDES.items() if k in sizes]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "no table of columns"
