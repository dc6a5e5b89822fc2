"""Checks of options that run before heavy imports and before any file is read.

``ostraka learn``: learn a private model from a table of private rows, and state its price.

Output of ``ostraka learn``: the plan before the run, the results after it.
"""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
import sys
import textwrap
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

import ostraka
from ostraka import console
from ostraka.console import verb
from ostraka.core import imports
from ostraka.learn.options import LearnOptions
from ostraka.report import folder
from ostraka.voters.named import Relation, Teacher, Way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ostraka.core.result import Result
    from ostraka.data.budgets import Tables
    from ostraka.data.findings import Finding
    from ostraka.data.task import Shape, Task
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.cli_labels import LabelsOptions
    from ostraka.learn.regressor import PATERegressor
    from ostraka.learn.ways.argmax import Prompts
    from ostraka.learn.ways.plan import Planned
    from ostraka.learn.ways.response import LabelEstimator

    Estimator = PATEClassifier | PATERegressor | LabelEstimator


def require_sensible(given: LearnOptions) -> None:
    """Check the combination of ``learn``'s options and that the files exist; print the files that are read.

    Raises
    ------
    click.UsageError
        Options that contradict each other, rows of a folder that not only teachers would learn from, or a
        folder to write that holds a finished run.
    OSError
        A file cannot be opened.
    """
    private, public = given.private, given.public
    given.require_in_range(epsilon=given.epsilon, delta=given.delta)
    if given.auto and any(choice is not None for choice in given.of_teachers):
        raise click.UsageError("--auto chooses --teachers, --answers, --sigma and --screen: leave them out")
    if (given.out / folder.RESULT).exists():
        raise folder.finished(given.out)
    given.require_one_label()
    if given.target is not None:
        given.chosen_way()  # refuses what is for classes alone
    if private is None:
        if given.label or given.target or public or given.person or given.holdout is not None:
            raise click.UsageError("type the file of private rows first: ostraka learn FILE --label COLUMN …")
        click.echo(
            "reading scikit-learn's digits, which are public: nothing of yours is spent, so nothing is asked",
            err=True,
        )
        return
    if given.label is None and given.target is None:
        raise click.UsageError(
            f"type --label and the column of {private} to learn; of numbers, --target and --bounds"
        )
    for path in (private, public):
        if path is not None and not (path is private and path.is_dir()):
            path.open("rb").close()
    click.echo(f"reading {private}" + (f" and {public}" if public is not None else ""), err=True)
    if private.is_dir() and given.holdout is not None:
        raise click.UsageError(
            f"the rows of {private} stay in their files: type --public FILE instead of --holdout"
        )
    if private.is_dir() and given.target is not None:
        raise click.UsageError(f"the rows of {private} stay in their files: --target is for one file")
    if private.is_dir() and given.chosen_way() is Way.AUTO:
        raise click.UsageError(
            f"the rows of {private} stay in their files, which are read part by part: type --way filter, "
            "counts, rounds or argmax"
        )


_LAST = {"student": "student trained", "audit": "adversary simulated", "record": "cost and accuracy"}
_FORMAT = 2  # of plan.json: 1 had digests of the tables without a key
_NOT_SETTINGS = ("private", "public", "out", "as_json", "owner", "yes", "ledger")
# options that runs of before have not in their settings
_LATER = {
    *(
        "encoding",
        "delimiter",
        "decimal",
        "skip_lines",
        "sheet",
        "same",
        "rows_are_people",
        "drop_unlabelled",
    ),
    *("target", "bounds", "model", "key_env", "shots", "dictionary"),
}
_UNREAD = (
    "for the owner: {0:,} cells of column {1!r} could not be read, and count as missing (as the first "
    "class where that is the label)"
)
_SHOTS = 3  # private rows in a prompt
_READS = "whoever runs the language model {0} reads private rows; epsilon says nothing about that"
_HANDED_OVER = (
    "\nwritten to {0}: {1} may be passed on; {2} are for the owner of the data. "
    "'ostraka report {0} --public' writes a page that may be passed on."
)
_NOTHING_LEARNED = (
    "\nostraka: the model learned nothing: {0}. What was spent stays spent. {1}; type --out with another "
    "folder for the next run"
)


@verb()
def learn(given: LearnOptions) -> None:
    """Learn from private rows by secret ballot; write a model, its price and a report to a folder.

    Example: ostraka learn private.csv --label ill --public public.csv --person patient
    """
    require_sensible(given)
    with imports.uncollected():
        from ostraka.learn.ways.choose import cells_of, way_of, way_of_rows

    task = _task(given)
    for name, n_cells in task.unread.items():
        wrapped(_UNREAD.format(n_cells, name), on_stderr=True)
    with console.usage():
        model: Estimator
        plan: Planned
        rows: dict[str, Any] = {"X_public": task.X_public, "grouped": task.groups is not None}
        if task.bounds is not None:
            model = _regressor(given, task)
            plan = model.plan(n_units=task.n_units, **rows)
        else:
            cells = cells_of(task.image_shape)
            way = given.chosen_way() or Way(way_of_rows(task.X_public, cells))
            model = _model(given, task, way)
            if given.auto:
                _choose(model, task)
            n_public = len(task.X_public)
            plan = model.plan(n_units=task.n_units, n_classes=task.n_classes, n_public=n_public, **rows)
    if given.answers is None:
        way_of(plan).require_hope(
            n_units=task.n_units,
            n_classes=task.n_classes,
            n_public=len(task.X_public),
            unit=task.shape.unit,
            epsilon=model.epsilon or 0.0,
        )
    spend(
        given,
        task,
        model,
        plan,
        relation=given.relation,
        teacher=type(getattr(model, "estimator", None)).__name__,
        reader=given.model,
    )


def spend(
    given: LearnOptions | LabelsOptions,
    task: Task,
    model: Estimator,
    plan: Planned,
    *,
    relation: Relation = Relation.REPLACE_ONE,
    teacher: str = "",
    reader: str | None = None,
) -> None:
    """Show the plan and ask; then learn, write the folder, and print what came out.

    ``reader`` names a language model that sees private rows.

    Raises
    ------
    click.UsageError
        The folder holds another run, or nobody can be asked.
    click.exceptions.Exit
        The answer was no, or the model learned nothing.
    """
    from ostraka.learn.run import learned_nothing
    from ostraka.learn.ways.choose import way_of
    from ostraka.report.page import at_most

    budgets = None if given.private is None else _tables_of(given.private, given.ledger)
    show_plan(task.shape, plan, teacher=teacher, out=given.out, reader=reader)
    if budgets is not None:
        _show_spent(budgets, given, task, unit=_protected(task, relation))
    show_doubts(task.findings)
    if given.private is not None:
        what = f"Spend epsilon {at_most(plan.epsilon)} of {given.private}?"
        console.require_consent(what, yes=given.yes)
    options = {field.name: getattr(given, field.name) for field in fields(given)}
    begun = {k: v for k, v in options.items() if k not in _NOT_SETTINGS and not (k in _LATER and not v)}
    begun |= {"version": ostraka.__version__, "format": _FORMAT}
    tables = {"private": given.private, "public": given.public}
    result = _learn(task, model, plan, given.out, begun, tables=tables, budgets=budgets)
    if given.as_json:
        click.echo((result if given.owner else result.public()).to_json())
    else:
        show_result(result)
        show_choice(result)
    wrapped(_HANDED_OVER.format(given.out, *folder.contents(given.out)), on_stderr=True)
    if why := learned_nothing(result):
        wrapped(_NOTHING_LEARNED.format(why, way_of(plan).advice), on_stderr=True)
        raise click.exceptions.Exit(console.NOTHING_LEARNED)


def _task(given: LearnOptions) -> Task:
    """Return the tables as arrays, or the digits if no table is given."""
    from ostraka.data import task as data

    if given.private is None:
        return data.digits(seed=given.seed)
    with console.usage():
        data.require_public(given.private, given.public, given.holdout)
        _require_delta(given, given.private)
    return data.tables(
        given.private,
        given.public,
        columns=given.columns(),
        holdout=given.holdout,
        seed=given.seed,
        texts=given.teacher is Teacher.PROMPTS,
    )


def _require_delta(given: LearnOptions, private: Path) -> None:
    """Refuse a delta that no table of this size allows, before a row of a Parquet file is read."""
    if given.delta is None or given.person is not None or given.drop_unlabelled:
        return  # units are counted when they are read
    from ostraka.data import parquet
    from ostraka.learn.ways.plan import require_delta

    if not (private.is_dir() or private.suffix.lower() in parquet.ENDINGS):
        return
    try:
        last = parquet.pieces_of(parquet.files_of(private))[-1]
    except (ValueError, OSError):
        return  # who reads the table says what is wrong with it
    n_rows = last.first + last.n_rows
    require_delta(given.delta, n_units=n_rows - round((given.holdout or 0.0) * n_rows))


def _model(given: LearnOptions, task: Task, way: Way) -> PATEClassifier:
    """Make the estimator that the options describe."""
    from ostraka.core.mechanisms.argmax import GNMax
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.ways.choose import cells_of

    defaults, screen = given.defaults, given.screen
    prompts = given.teacher is Teacher.PROMPTS
    return PATEClassifier(
        _prompts(given, task) if prompts else given.teacher.estimator(default=defaults.teacher),
        n_teachers=defaults.n_teachers if given.teachers is None else given.teachers,
        mechanism=None if given.sigma is None else GNMax(sigma=given.sigma),
        screen=None if screen is None else Threshold(at=screen[0], sigma=screen[1]),
        epsilon=defaults.budget(way) if given.epsilon is None else given.epsilon,
        delta=defaults.delta if given.delta is None else given.delta,
        n_answers=given.answers,
        student=given.student_for(way),
        way=way.value,
        cells=None if way in {Way.ROUNDS, Way.FILTER} else cells_of(task.image_shape),
        relation=given.relation.value,
        classes=task.classes,
        allow_overlap=given.allow_overlap,
        engine=given.engine.value,
        n_jobs=given.jobs,
        random_state=given.seed,
    )


def _prompts(given: LearnOptions, task: Task) -> Prompts:
    """The prompts that the options describe; their answers are kept in the folder of the run."""
    from ostraka.learn.ways.argmax import Prompts
    from ostraka.text.models import greedy, open_model
    from ostraka.voters.endpoint import Endpoint
    from ostraka.voters.prompts import PromptEnsemble

    url, _, name = (given.model or "").partition("#")
    endpoint: Any
    if url.startswith(("http://", "https://")):
        endpoint = Endpoint(url, key_env=given.key_env)
    else:
        name, endpoint = url, greedy(open_model(url))
    ensemble = PromptEnsemble(
        endpoint,
        model=name or "default",
        classes=(),  # the plan's
        n_shots=given.shots or _SHOTS,
        response_cache=given.out / folder.ANSWERS,
    )
    return Prompts(ensemble, *(task.texts or ([], [])))


def _regressor(given: LearnOptions, task: Task) -> PATERegressor:
    """Make the regressor that the options describe."""
    from ostraka.learn.regressor import PATERegressor

    return PATERegressor(
        bounds=task.bounds or (0.0, 1.0),
        epsilon=given.defaults.epsilon if given.epsilon is None else given.epsilon,
        delta=given.delta,
        relation=given.relation.value,
        allow_overlap=given.allow_overlap,
        random_state=given.seed,
    )


def _choose(model: PATEClassifier, task: Task) -> None:
    """Set the parameters that ``ostraka plan`` proposes for these public numbers."""
    from ostraka.core.accounting.plan import propose

    delta = min(1e-5, 0.1 / task.n_units) if model.delta is None else model.delta
    n_public = len(task.X_public)
    proposal = propose(
        n_rows=task.n_units, n_classes=task.n_classes, delta=delta, epsilon=model.epsilon, n_public=n_public
    )
    model.set_params(
        n_teachers=proposal.n_teachers,
        mechanism=proposal.mechanism,
        screen=proposal.screen,
        n_answers=proposal.n_questions,
        delta=delta,
    )


def _learn(
    task: Task,
    model: Estimator,
    plan: Planned,
    out: Path,
    begun: dict[str, Any],
    *,
    tables: dict[str, Path | None],
    budgets: Tables | None,
) -> Result:
    """Fit and write. After an interruption, the same command goes on from here."""
    from ostraka import console as _progress
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.data.budgets import TableLedger
    from ostraka.learn.ways.choose import way_of
    from ostraka.report import folder as _folder

    account = None if budgets is None else budgets.account(tables["private"], task.groups)
    going_on = _folder.open_run(out, begun, tables=tables)
    if going_on:
        click.echo(f"going on with {out}: what was paid for is used again", err=True)
    budget = Budget(epsilon=model.epsilon or 0.0, delta=plan.delta, adaptive=False)
    with (
        Ledger(out / _folder.LEDGER, budget=budget)
        if account is None
        else TableLedger(
            out / _folder.LEDGER, budget=budget, account=account, run=_folder.name_of(out)
        ) as ledger,
        _progress.Stages(way_of(plan).stages | _LAST) as stages,
    ):
        model.set_params(ledger=ledger, manifest=out / _folder.MANIFEST, progress=stages)
        try:
            others = () if task.of_labels else (task.X_public, task.groups)
            model.fit(task.X_private, task.y_private, *others)
        except ValueError:
            if not (going_on or ledger.count()):
                _folder.forget(out)
            raise
        model.audit()
        stages("audit", 1, 1)
        result = _record(task, model, begun)
        stages("record", 1, 1)
    _write(task, model, result, out, keep_teachers=begun.get("keep_teachers", False))
    return result


def _tables_of(private: Path, folder: Path | None) -> Tables:
    """The ledgers of tables: in the folder that was typed, else beside the private file."""
    from ostraka.data.budgets import Tables

    return Tables.beside(private) if folder is None else Tables(folder)


def _protected(task: Task, relation: Relation) -> str:
    """Whom the release protects, as a ledger names it."""
    unit = task.shape.unit
    return unit if relation is Relation.REPLACE_ONE else f"{unit} ({relation.value})"


def _show_spent(budgets: Tables, given: LearnOptions | LabelsOptions, task: Task, *, unit: str) -> None:
    """Say before anything is spent what was released from this table before."""
    from ostraka.report import folder as _folder
    from ostraka.report.page import of_table

    account = budgets.known(given.private, task.groups)
    if account is None:
        return
    run = _folder.name_of(given.out) if (given.out / _folder.SECRET).exists() else None
    before = account.spent(unit, but=run)
    if before.releases or before.others:
        said = f"released before from this table, as {account.folder} has it: {of_table(before.to_dict())}"
        wrapped(f"{said}. This release comes on top", on_stderr=True)


def _record(task: Task, model: Estimator, begun: dict[str, Any]) -> Result:
    """Return the record with accuracies, if labels are known, and with facts that only the command knows."""
    import numpy as np

    from ostraka.learn.classifier import PATEClassifier

    if task.X_test is None:
        unknown = ("r2",) if task.bounds is not None else ("student", "majority")
        result = replace(model.result_, utility={**dict.fromkeys(unknown), **model.result_.utility})
    elif isinstance(model, PATEClassifier):
        here = isinstance(task.X_private, np.ndarray)  # not in files, too many to train one model on all
        X, y = (task.X_private, task.y_private) if here else (None, None)
        result = model.evaluate(task.X_test, task.y_test, X_private=X, y_private=y)
    else:
        result = model.evaluate(task.X_test, task.y_test)
    n_test = 0 if task.y_test is None else len(task.y_test)
    settings = {
        "data": task.name,
        "label": begun["label"],
        "target": begun.get("target"),
        "person": begun.get("person"),
        "columns": task.columns,
        "n_measured": n_test,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "version": begun["version"],
        "seed": begun["seed"],
    }
    protected = {**result.upper, "not_protected": [*task.not_protected, *result.upper["not_protected"]]}
    owner = {**result.owner, **({"unread": task.unread} if task.unread else {})}
    return replace(result, settings={**result.settings, **settings}, upper=protected, owner=owner)


def _write(task: Task, model: Estimator, result: Result, out: Path, *, keep_teachers: bool) -> None:
    """Write all files, the record last: it marks the run as finished."""
    import pyarrow as pa
    from pyarrow import parquet

    from ostraka.core.mechanisms.law import ABSTAIN
    from ostraka.learn import handover
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.regressor import PATERegressor
    from ostraka.report import folder as _folder

    if isinstance(model, PATERegressor):
        table = pa.table({"row": task.public_rows, "number": model.predict(task.X_public)})
    else:
        answers = model.labels_[model.asked_]
        labels = [None if answer == ABSTAIN else model.classes_[answer].item() for answer in answers]
        table = pa.table({"row": task.public_rows[model.asked_], "label": labels})
    if keep_teachers and isinstance(model, PATEClassifier):
        _keep_teachers(task, model, out / _folder.TEACHERS)
    student = _plain_student(task, model)
    lines = handover.write_student(student, out, shown=task.shown, array=task.array)
    why_not = handover.write_onnx(student, out, original=model.student_, shown=task.shown, rows=task.X_public)
    _folder.write(out / _folder.LABELS, lambda path: parquet.write_table(table, path))
    handover.write_card(result, lines, out, onnx=(out / _folder.ONNX).exists())
    _folder.write_reports(out, result)
    _folder.write(out / _folder.RESULT, result.to_json())
    click.echo(f"\nto use the student (model-card.md says what it needs):\n\n{lines}", err=True)
    if why_not:
        click.echo(f"\n{why_not}", err=True)


def _plain_student(task: Task, model: Estimator) -> Any:
    """Return the student as a plain scikit-learn model, or unchanged if it cannot be converted."""
    from sklearn.pipeline import make_pipeline

    try:
        if task.array:
            made = model.to_sklearn()
            return made if task.encoder is None else make_pipeline(task.encoder, made)
        return model.to_sklearn(columns=task.columns, encoder=task.encoder)
    except ValueError:
        return model.student_ if task.encoder is None else make_pipeline(task.encoder, model.student_)


def _keep_teachers(task: Task, model: PATEClassifier, folder: Path) -> None:
    """Save the ensemble with the reader of its rows and the mechanism of its answers."""
    import shutil

    from ostraka.core.consistent import Consistent
    from ostraka.core.mechanisms.law import payments
    from ostraka.voters.saved import SavedTeachers

    *screens, argmax = payments(model.plan_.mechanism)
    numbers = range(len(task.columns))
    if hasattr(task.encoder, "transformers_"):
        numbers = {name: places for name, _, places in task.encoder.transformers_}["numbers"]
    saved = SavedTeachers(
        ensemble=model.ensemble_,
        mechanism=argmax,
        screen=screens[0] if screens else None,
        columns=task.columns,
        numeric=tuple(place in numbers for place in range(len(task.columns))),
        grid=Consistent.grid_of(task.X_public),
        encoder=task.encoder,
    )
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted after this
    saved.save(folder)


_BOUNDS = "numbers from {:,g} to {:,g}; what is beyond counts as the nearest"
_NARROWEST = 20
_MARKS = {"refused": "!", "doubt": "?", "note": "-"}  # of findings


def show_plan(task: Shape, plan: Planned, *, teacher: str, out: Path, reader: str | None = None) -> None:
    """Print the plan and its largest possible cost on stderr; ``reader`` is a model that sees rows."""
    from ostraka.learn.ways.choose import way_of
    from ostraka.report.page import at_most

    rows = [
        ("private", f"{task.name}: {task.n_rows:,} rows, {task.n_features:,} features"),
        ("protected", f"one {task.unit}, of {task.n_units:,}"),
        *([] if task.bounds is None else [("bounds", _BOUNDS.format(*task.bounds))]),
        *way_of(plan)
        .words(n_units=task.n_units, n_public=task.n_public, unit=task.unit, teacher=teacher)
        .items(),
        ("expected", f"epsilon at most {at_most(plan.epsilon)} at delta {plan.delta:g}"),
        ("folder", str(out)),
    ]
    if not task.classes_declared:
        rows.append(("note", "the list of classes is taken from the private labels and counts as public"))
    rows += [("read", text) for text in task.said]
    rows += [("not protected", text) for text in task.not_protected]
    rows += [] if reader is None else [("not protected", _READS.format(reader))]
    margin = 2 + max(len(name) for name, _ in rows)
    wrapped("Plan", on_stderr=True)
    for name, value in rows:
        wrapped(f"{name:<{margin}}{value}", indent=margin, on_stderr=True)


def show_doubts(found: Sequence[Finding]) -> None:
    """Print what is doubtful about the tables on stderr; spellings of cells on a terminal only."""
    if not found:
        return
    wrapped("Found, for the owner's eyes", on_stderr=True)
    show_findings(found, cells=sys.stderr.isatty(), on_stderr=True)


def show_findings(found: Sequence[Finding], *, cells: bool, on_stderr: bool = False) -> None:
    """Print findings, one a line, with what to type. ``cells``: the spellings in the table, too."""
    for finding in found:
        hint = f"  [{finding.hint}]" if finding.options and (cells or not finding.values) else ""
        line = f"  {_MARKS[finding.weight]} {finding.sentence(cells=cells)}{hint}"
        wrapped(line, indent=4, on_stderr=on_stderr)


def show_result(result: Result) -> None:
    """Print the summary on stdout, with owner-only lines marked, and what epsilon means."""
    from ostraka.report.page import privacy_label, summary_table

    table = summary_table(result)
    margin = 2 + max(len(row.name) for row in table)
    for heading, rows in itertools.groupby(table, key=lambda row: row.heading):
        wrapped(f"\n{heading}")
        for row in rows:
            mark = "   [owner only]" if row.owner_only else ""
            wrapped(f"  {row.name:<{margin}}{row.value}{mark}", indent=margin + 2)
    wrapped("\n" + privacy_label(result)["claim"])
    if any(row.owner_only for row in table):
        wrapped("\nLines marked [owner only] come from the private data without noise: do not pass them on.")


def show_choice(result: Result) -> None:
    """Print which way was chosen and what each was expected to give, where there was a choice."""
    expected: dict[str, float] = result.settings.get("expected", {})
    if expected:
        said = ", ".join(f"{name} {value:.3f}" for name, value in expected.items())
        best = max(expected, key=lambda name: expected[name])
        wrapped(f"\nChosen: {best}. Expected accuracy on public rows with made-up labels: {said}.")


def wrapped(text: str, *, indent: int = 0, on_stderr: bool = False) -> None:
    """Print a line, folded to the width of a terminal; in a pipe or a file it stays one line."""
    stream = sys.stderr if on_stderr else sys.stdout
    if stream.isatty():
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        hang = " " * min(indent, width - _NARROWEST // 2)
        text = textwrap.fill(text, width, subsequent_indent=hang, replace_whitespace=False)
    click.echo(text, err=on_stderr)
