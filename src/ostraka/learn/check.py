"""Check: look at a private table before anything is spent. Nothing is released, charged or written.

What is found in private rows is for their owner. It decides nothing by itself: the command that a check ends
with is typed, or not, by the owner, and what is typed counts as public.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ostraka.core.files import environment
from ostraka.core.ledger.budget import BudgetExceeded
from ostraka.data import columns as encoding
from ostraka.data import task as tasks
from ostraka.data.findings import DOUBT, NOTE, REFUSED, Cells, Finding, findings, form_findings, gravity
from ostraka.data.guards import WAY_OUT, require_apart, row_digests
from ostraka.data.parquet import ENDINGS
from ostraka.data.table import Table, look, of_frame, read
from ostraka.data.units import numbered
from ostraka.learn.classifier import PATEClassifier
from ostraka.learn.regressor import PATERegressor
from ostraka.learn.ways.choose import cells_of, way_of
from ostraka.report.page import at_most
from ostraka.voters.named import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ostraka.data.task import Columns, Task
    from ostraka.learn.ways.plan import Planned

_HOLDOUT = 0.2
_TRIES = 6  # to read the tables as the findings say
_MOST_BARS = 12
_FEW_KINDS = 20  # of a column that may be a label
OWNER = (
    "For the owner's eyes: this was read from private rows, and no epsilon covers it. "
    "Nothing was spent or written."
)
_NO_PUBLIC = (
    "no public rows were named: this command gives up the privacy of a fifth of the private ones to have "
    "some; rows that may be known to anybody are better: --public FILE"
)


def check(
    frame: Any,
    *,
    label: str | None = None,
    public: Any = None,
    person: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    holdout: float | None = None,
    columns: Columns | None = None,
) -> Check:
    """Look at a private table, and say at once what is wrong or doubtful. Spends nothing, writes nothing.

    Parameters
    ----------
    frame : path, data frame of any library, or dict of columns
        Private. A CSV, Excel or Parquet file.
    label : str, optional
        The column to learn.
    public : path, data frame or dict of columns, optional
        Public rows with the same columns.
    person : str, optional
        The column that says whom a row belongs to.
    epsilon, delta : float, optional
        What a release may spend. None: as ``ostraka learn`` has it.
    holdout : float, optional
        Instead of ``public``: the share of rows whose privacy would be given up. None: a fifth.
    columns : Columns, optional
        Everything else that is declared about the columns, instead of ``label`` and ``person``.

    Returns
    -------
    Check
        For the owner of the table alone.

    Raises
    ------
    ValueError
        There is no such column, or no table in the file.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import ostraka
    >>> ages = {"age": list(range(20, 80)) * 20, "ill": ["no"] * 600 + ["yes"] * 600}
    >>> found = ostraka.check(ages, label="ill")
    >>> found.n_rows, found.unit, found.settled
    (1200, 'row', True)
    """
    declared = columns or tasks.Columns(label=label or "", person=person)
    source, public_source = (
        Path(table) if isinstance(table, str) or hasattr(table, "__fspath__") else table
        for table in (frame, public)
    )
    questions, missing = None, declared.missing
    if isinstance(public_source, Path):
        form = tasks.public_form(public_source, declared.form)
        questions = read(public_source, public=True, form=form, missing=missing)
    elif public is not None:
        questions = of_frame(public_source, name="the public data frame", public=True, missing=missing)
    # the private table, read as it looks, and what must be typed to have it read so
    remarks: list[Finding] = []
    if not isinstance(source, Path):
        table = of_frame(source, name="the data frame", public=False, missing=missing)
    elif source.is_dir() or source.suffix.lower() == ".npz":
        raise ValueError(
            f"{source} is no single table: check reads one CSV, Excel or Parquet file; 'ostraka learn' shows "
            "what it found in others before it asks"
        )
    elif source.suffix.lower() in ENDINGS:
        table = read(source, public=False, missing=missing)
    else:
        source.open("rb").close()
        shape = look(source, declared.form, like=None if questions is None else questions.form)
        table = read(source, public=False, form=shape.form, missing=missing)
        remarks += form_findings(shape, shape.usual)
    for name in {declared.label, declared.person} - {None, ""}:
        table.require(str(name), option=declared.option if name == declared.label else "--person")
    remarks += findings(table, declared, public=questions)
    settled = declarations(declared, remarks)
    task: Task | None = None
    later: list[Finding] = []
    if declared.label:
        task, settled, later = _task(table, questions, settled, holdout or _HOLDOUT)
    remarks += [finding for finding in later if not _known(finding, remarks)]
    plan: tuple[tuple[str, str], ...] = ()
    if task is not None:
        plan, why_not = _plan(task, epsilon=epsilon, delta=delta)
        remarks += why_not
    if public is None and holdout is None and declared.label:
        remarks.append(Finding(kind="public rows", weight=NOTE, text=_NO_PUBLIC, private=False))
    open_questions = [finding for finding in remarks if finding.weight == REFUSED and not finding.options]
    paths = isinstance(source, Path) and (public is None or isinstance(public_source, Path))
    command = ""
    if paths and not open_questions:
        share = None if public is not None else holdout or _HOLDOUT
        command = typed(source, settled, public=public_source, holdout=share, epsilon=epsilon, delta=delta)
    elif not open_questions:  # the lines of Python for a data frame
        aside = [*filter(None, (settled.label, settled.person)), *settled.drop]
        typed_settings = {
            "bounds": settled.bounds,
            "epsilon": epsilon,
            "delta": delta,
            "holdout": (holdout or _HOLDOUT) if public is None else None,
        }
        settings = ", ".join(f"{k}={value!r}" for k, value in typed_settings.items() if value is not None)
        rows = "" if public is None else ", X_public=public"
        groups = "" if settled.person is None else f", groups=frame[{settled.person!r}]"
        command = (
            f"{'PATEClassifier' if settled.bounds is None else 'PATERegressor'}({settings})"
            f".fit(frame.drop(columns={aside!r}), frame[{settled.label!r}]{rows}{groups})"
        )
    cells = {name: Cells.of(table, name) for name in table.names}
    unit, n_units = "row", len(table)
    if settled.person in cells:
        texts = cells[settled.person].texts
        unit, n_units = "person", n_units if "" in texts else numbered(texts)[1]
    classes: dict[str, int] = {}  # the labels that there are, joined as declared, and the rows of each
    if settled.label in cells and settled.bounds is None:
        labels = cells[settled.label]
        words = encoding.joined(labels.texts, same=dict(settled.same), missing=settled.missing)
        for word, count in zip(words, labels.counts.tolist(), strict=True):
            classes[word or "(none)"] = classes.get(word or "(none)", 0) + count
    roles = {settled.label: "label", settled.person: "person"} | dict.fromkeys(settled.drop, "left out")
    return Check(
        name=source.name if isinstance(source, Path) else "the data frame",
        n_rows=len(table),
        n_columns=len(table.names),
        unit=unit,
        n_units=n_units,
        findings=tuple(sorted(remarks, key=gravity)),
        plan=plan,
        command=command,
        classes=tuple(classes.items()) if len(classes) <= encoding.MOST_CLASSES else (),
        columns=tuple(
            ColumnFacts(
                name=name,
                kind=roles.get(name) or table.type_of(name)[0],
                n_values=len(values.texts),
                missing=values.share([text.lower() in table.missing for text in values.texts]),
            )
            for name, values in cells.items()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Check:
    """What was found in a table, and the command to type. For the owner of the table alone.

    Attributes
    ----------
    name : str
        Of the file, or of a data frame.
    n_rows, n_columns : int
    unit : str
        Whom a release with this command protects, ``"row"`` or ``"person"``.
    n_units : int
    findings : tuple of Finding
        Gravest first.
    plan : tuple of (str, str)
        What the command would ask and cost; empty where that cannot be said yet.
    command : str
        What to type; empty where something must be mended in the file.
    classes : tuple of (str, int)
        Labels and their rows.
    columns : tuple of ColumnFacts

    Examples
    --------
    >>> import ostraka
    >>> rows = {"patient": ["p1", "p1", "p2"] * 40, "age": [40, 41, 60] * 40, "ill": ["yes", "no", "NO"] * 40}
    >>> [finding.kind for finding in ostraka.check(rows, label="ill", person="patient").findings][:1]
    ['label spellings']
    """

    name: str
    n_rows: int
    n_columns: int
    unit: str
    n_units: int
    findings: tuple[Finding, ...]
    plan: tuple[tuple[str, str], ...]
    command: str
    classes: tuple[tuple[str, int], ...]
    columns: tuple[ColumnFacts, ...]

    @property
    def settled(self) -> bool:
        """Whether nothing is refused."""
        return all(finding.weight != REFUSED for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "name": self.name,
            "n_rows": self.n_rows,
            "n_columns": self.n_columns,
            "unit": self.unit,
            "n_units": self.n_units,
            "settled": self.settled,
            "findings": [finding.to_dict() for finding in self.findings],
            "plan": dict(self.plan),
            "command": self.command,
            "classes": dict(self.classes),
            "columns": {
                column.name: {"kind": column.kind, "n_values": column.n_values, "missing": column.missing}
                for column in self.columns
            },
            "owner_only": True,
        }

    def to_html(self) -> str:
        """One page without scripts, with pictures of classes and columns. For the owner alone."""
        largest = max([count for _, count in self.classes], default=1)
        shown = sorted(self.classes, key=lambda pair: -pair[1])[:_MOST_BARS]
        return (
            environment()
            .get_template("check.html.j2")
            .render(
                check=self,
                owner=OWNER,
                groups=self.groups(),
                bars=[(name, f"{count:,}", f"{100 * count / largest:.1f}") for name, count in shown],
                more=len(self.classes) - len(shown),
                label=next((column.name for column in self.columns if column.kind == "label"), None),
            )
        )

    def groups(self) -> list[tuple[str, list[Finding]]]:
        """The findings under their headings."""
        headings = {REFUSED: "To settle before anything is spent", DOUBT: "To look at", NOTE: "Good to know"}
        groups = [
            (heading, [finding for finding in self.findings if finding.weight == weight])
            for weight, heading in headings.items()
        ]
        return [group for group in groups if group[1]]

    def __repr__(self) -> str:
        return f"Check({self.name!r}, {len(self.findings)} findings)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """A column as its owner sees it: its kind, its number of different values, and the share without one."""

    name: str
    kind: str
    n_values: int
    missing: float


def declarations(columns: Columns, remarks: Iterable[Finding]) -> Columns:
    """The declarations, and what the findings say to type."""
    for finding in remarks:
        words = iter(finding.options)
        for word in words:
            option, _, value = word.partition("=")
            name = option.removeprefix("--").replace("-", "_")
            changes: dict[str, Any] = {name: True}
            flag = name in {"fill", "drop_unlabelled", "rows_are_people"}
            value = "" if flag else value or next(words)
            if name == "same":
                first, _, others = value.partition("=")
                changes = {"same": [*columns.same, *((spelling, first) for spelling in others.split(","))]}
            elif name == "person":
                changes = {"person": columns.person or value}
            elif name in {"drop", "missing"}:
                changes = {name: list(dict.fromkeys([*getattr(columns, name), value]))}
            elif not flag:
                entry: dict[str, Any] = {"skip": int(value)} if name == "skip_lines" else {name: value}
                changes = {"form": columns.form._replace(**entry)}
            columns = replace(columns, **changes)
    return columns


def typed(
    private: Path,
    columns: Columns,
    *,
    public: Path | None,
    holdout: float | None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> str:
    """The whole command, quoted for a shell."""
    form = columns.form
    spellings: dict[str, list[str]] = {}
    for other, name in columns.same:
        spellings.setdefault(name, []).append(other)
    parts: list[tuple[str, Any]] = [
        (columns.option, columns.label or "COLUMN"),
        ("--bounds", None if columns.bounds is None else "{:g}:{:g}".format(*columns.bounds)),
        ("--public", public),
        ("--holdout", None if holdout is None else f"{holdout:g}"),
        ("--person", columns.person),
        *(("--drop", name) for name in columns.drop),
        *(("--text", name) for name in columns.text),
        ("--classes", ",".join(columns.classes) or None),
        *(("--same", f"{name}={','.join(others)}") for name, others in spellings.items()),
        *(("--missing", text) for text in columns.missing),
        ("--dictionary", columns.dictionary),
        ("--encoding", form.encoding),
        ("--delimiter", form.delimiter),
        ("--decimal", form.decimal),
        ("--skip-lines", form.skip),
        ("--sheet", form.sheet),
        ("--epsilon", None if epsilon is None else f"{epsilon:g}"),
        ("--delta", None if delta is None else f"{delta:g}"),
    ]
    flags = [
        ("--rows-are-people", columns.rows_are_people),
        ("--drop-unlabelled", columns.drop_unlabelled),
        ("--fill", columns.fill),
    ]
    words = ["ostraka", "learn", shlex.quote(str(private))]
    for option, value in parts:
        if value is not None:
            text = str(value)
            quoted = shlex.quote(text)
            words += [f"{option}={quoted}"] if text.startswith("-") else [option, quoted]
    words += [flag for flag, is_set in flags if is_set]
    return " ".join(words)


def candidates(overview: Check) -> Sequence[str]:
    """Columns that may be meant as a label: those with few kinds, the last ones first."""
    columns = [column.name for column in overview.columns if 1 < column.n_values <= _FEW_KINDS]
    return columns[::-1][:_MOST_BARS]


def _task(
    table: Table, questions: Table | None, columns: Columns, holdout: float
) -> tuple[Task | None, Columns, list[Finding]]:
    """The tables as arrays, read as the findings say; and what is found only then."""
    remarks: list[Finding] = []
    for _ in range(_TRIES):
        table = _as_declared(table, columns)
        questions = None if questions is None else _as_declared(questions, columns)
        try:
            task = tasks.of_tables(table, questions, columns=columns, holdout=holdout, seed=0)
        except ValueError as error:
            hints = [
                finding
                for finding in findings(table, columns, public=questions)
                if finding.weight != NOTE and finding.options and not _known(finding, remarks)
            ]
            if not hints:
                refusal = Finding(kind="refused", weight=REFUSED, text=str(error))
                return None, columns, [*remarks, refusal]
            remarks += hints
            columns = declarations(columns, hints)
        else:
            return task, columns, [*remarks, *task.findings]
    return None, columns, remarks


def _as_declared(table: Table, columns: Columns) -> Table:
    """The same cells, with what stands for no number, and the decimal sign, as they are now declared."""
    none = (*table.missing, *(text.strip().lower() for text in columns.missing))
    form = table.form._replace(decimal=columns.form.decimal or table.form.decimal)
    return replace(table, missing=tuple(dict.fromkeys(none)), form=form)


def _plan(
    task: Task, *, epsilon: float | None, delta: float | None
) -> tuple[tuple[tuple[str, str], ...], list[Finding]]:
    """What the default way would ask, and why there is no hope."""
    remarks = []
    try:
        digests = row_digests(task.X_private), row_digests(task.X_public)
        require_apart(*digests, what="public rows", way_out=WAY_OUT)
    except ValueError as error:
        remarks.append(Finding(kind="copies", weight=REFUSED, text=str(error)))
    epsilon = TABLES.epsilon if epsilon is None else epsilon
    settings: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    rows: dict[str, Any] = {"X_public": task.X_public, "grouped": task.groups is not None}
    unit = task.shape.unit
    plan: Planned
    try:
        if task.bounds is not None:
            plan = PATERegressor(bounds=task.bounds, **settings).plan(n_units=task.n_units, **rows)
        else:
            cells = cells_of(task.image_shape)
            plan = PATEClassifier(cells=cells, **settings).plan(**task.sizes, **rows)
        way = way_of(plan)
        way.require_hope(**task.sizes, unit=unit, epsilon=epsilon)
    except (ValueError, BudgetExceeded) as error:
        return (), [*remarks, Finding(kind="too few rows", weight=REFUSED, text=str(error))]
    lines = way.words(n_units=task.n_units, n_public=len(task.X_public), unit=unit, teacher="")
    expected = f"epsilon at most {at_most(plan.epsilon)} at delta {plan.delta:g}"
    protected = f"one {unit}, of {task.n_units:,}"
    return (("protected", protected), *lines.items(), ("expected", expected)), remarks


def _known(finding: Finding, remarks: Iterable[Finding]) -> bool:
    return any((remark.kind, remark.column) == (finding.kind, finding.column) for remark in remarks)
