"""``ostraka learn``, ``labels`` and ``check``: learn a private model, and look at a table before that.

Options are checked before heavy imports and before any file is read; the plan is shown before the run, the
results after it.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shutil
import sys
import textwrap
from dataclasses import fields, replace
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)
from typing import TYPE_CHECKING, Any

import click

import ostraka
from ostraka import console
from ostraka.console import require_new, verb
from ostraka.core import imports
from ostraka.learn.options import CheckOptions, LabelsOptions, LearnOptions, Method
from ostraka.report import folder
from ostraka.voters.named import Relation, Teacher, Way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.result import Result
    from ostraka.data.findings import Finding
    from ostraka.data.task import Shape, Task
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.regressor import PATERegressor
    from ostraka.learn.ways.plan import Planned
    from ostraka.learn.ways.response import LabelEstimator

    Estimator = PATEClassifier | PATERegressor | LabelEstimator

_LAST = {"student": "student trained", "audit": "adversary simulated", "record": "cost and accuracy"}
_STREAMS = '{"version": 4'  # of a manifest: fits of before had all rows of a file in memory
_FORMAT = 2  # of plan.json: 1 had digests of the tables without a key
_NOT_SETTINGS = ("private", "public", "out", "as_json", "owner", "yes", "ledger")
# options that runs of before have not in their settings
_LATER = {
    *("encoding", "delimiter", "decimal", "skip_lines", "sheet", "same", "rows_are_people"),
    *("drop_unlabelled", "target", "bounds", "model", "key_env", "shots", "dictionary"),
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
_MOST_EPSILON = 40.0  # nats that an answer to a label may cost
_BOUNDS = "numbers from {:,g} to {:,g}; what is beyond counts as the nearest"
_NARROWEST = 20
_MARKS = {"refused": "!", "doubt": "?", "note": "-"}  # of findings


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
            from ostraka.learn.regressor import PATERegressor

            model = PATERegressor(
                bounds=task.bounds,
                epsilon=given.defaults.epsilon if given.epsilon is None else given.epsilon,
                delta=given.delta,
                relation=given.relation.value,
                allow_overlap=given.allow_overlap,
                random_state=given.seed,
            )
            plan = model.plan(n_units=task.n_units, **rows)
        else:
            cells = cells_of(task.image_shape)
            way = given.chosen_way() or Way(way_of_rows(task.X_public, cells))
            model = _model(given, task, way)
            plan = model.plan(**task.sizes, **rows)
    if given.answers is None:
        way_of(plan).require_hope(**task.sizes, unit=task.shape.unit, epsilon=model.epsilon or 0.0)
    spend(
        given,
        task,
        model,
        plan,
        relation=given.relation,
        teacher=type(getattr(model, "estimator", None)).__name__,
        reader=given.model,
    )


@verb()
def labels(given: LabelsOptions) -> None:
    """Learn from rows of which only the labels are private; write a model, its price and a report.

    Example: ostraka labels private.csv --label ill --epsilon 2
    """
    given.require_in_range(epsilon=given.epsilon, delta=given.delta)
    if given.label is None:
        raise click.UsageError(f"type --label and the column of {given.private} to learn")
    folder.require_place(given.out)
    if given.public is not None and given.holdout is not None:
        raise click.UsageError("--public and --holdout exclude each other: known labels come from one place")
    if given.method is not Method.PATE_FM and (typed := given.of_teachers):
        raise click.UsageError(f"{', '.join(typed)} is for --method pate-fm: type that, or leave it out")
    if given.method is not Method.PATE_FM and given.epsilon > _MOST_EPSILON:
        raise click.UsageError(
            f"--epsilon must be at most {_MOST_EPSILON:g} for answers to labels, got {given.epsilon:g}"
        )
    given.require_files(given.private)
    click.echo(f"reading {given.private}" + (f" and {given.public}" if given.public else ""), err=True)
    with imports.uncollected():
        from ostraka.core.check import release_delta, require
        from ostraka.data import task as data

        require("torch", extra="torch")
        from ostraka.learn.ways.response import LabelClassifier, network_for
    columns = given.columns()
    task = data.labelled(given.private, given.public, columns=columns, holdout=given.holdout, seed=given.seed)
    with console.usage():
        network = network_for(task.n_units, image_shape=task.image_shape, seed=given.seed)
        if given.epochs is not None:
            network.set_params(epochs=given.epochs)
        settings: dict[str, Any] = {
            "epsilon": given.epsilon,
            "delta": release_delta(given.delta, n_units=task.n_units),
            "classes": task.classes,
            "random_state": given.seed,
        }
        model: LabelEstimator
        if given.method is Method.PATE_FM:
            from ostraka.core.mechanisms.argmax import GNMax
            from ostraka.core.mechanisms.screen import Threshold
            from ostraka.learn.students.fixmatch import FixMatch
            from ostraka.learn.ways.labels import PATEFM

            screen = given.screen
            model = PATEFM(
                FixMatch(network, threshold=0.8),
                n_teachers=20 if given.teachers is None else given.teachers,
                mechanism=None if given.sigma is None else GNMax(sigma=given.sigma),
                screen=None if screen is None else Threshold(at=screen[0], sigma=screen[1], noise="every"),
                n_answers=given.answers,
                n_jobs=given.jobs,
                **settings,
            )
        else:
            model = LabelClassifier(method=given.method.value, network=network, **settings)
        plan = model.plan(n_rows=task.n_units, n_classes=task.n_classes)
    spend(given, task, model, plan, teacher="FixMatch")


@verb()
def check(given: CheckOptions) -> None:
    """Show all that is wrong or doubtful in a table, and the command to type. Spends nothing.

    Example: ostraka check private.csv --label ill
    """
    given.require_in_range(epsilon=given.epsilon, delta=given.delta)
    given.require_files(given.private)
    require_new(given.report, option="--report")
    if given.public is not None and given.holdout is not None:
        raise click.UsageError("--public and --holdout exclude each other: public rows come from one place")
    columns = given.columns()
    with imports.uncollected():
        from ostraka.core import files
        from ostraka.learn.check import OWNER, candidates
        from ostraka.learn.check import check as look
    overview = look(
        given.private,
        public=given.public,
        epsilon=given.epsilon,
        delta=given.delta,
        holdout=given.holdout,
        columns=columns,
    )
    if given.report is not None:
        files.write(given.report, overview.to_html(), private=True)
        click.echo(f"the same with pictures, for the owner only: {given.report}", err=True)
    if given.as_json:
        click.echo(json.dumps(overview.to_dict(), indent=2, ensure_ascii=False))
        return
    wrapped(f"{given.private}: {overview.n_rows:,} rows, {overview.n_columns:,} columns")
    wrapped(OWNER)
    for heading, some in overview.groups():
        click.echo(f"\n{heading}")
        show_findings(some, cells=True)
    if overview.plan:
        click.echo("\nWhat the command below would do")
        margin = 4 + max(len(name) for name, _ in overview.plan)
        for name, value in overview.plan:
            wrapped(f"  {name:<{margin - 2}}{value}", indent=margin)
    if not overview.command:
        wrapped("\nMend the file as said above, then check it again.")
        return
    if "--label COLUMN" in overview.command and (few := candidates(overview)):
        wrapped(f"\nColumns that may be meant to be learned: {', '.join(few)}. Type --label with one.")
    click.echo(f"\nType, if you agree:\n{overview.command}")


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
    folder.require_place(given.out)
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
    given.require_files(private)
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
        here=given.chosen_way() is Way.AUTO
        or given.teacher is Teacher.NETWORK
        or _begun_in_memory(given.out),
    )


def _begun_in_memory(out: Path) -> bool:
    """Whether a run to go on with was begun by a version that read all rows of one file into memory."""
    manifest = out / folder.MANIFEST
    if not manifest.exists():
        return False
    with manifest.open() as file:  # which begins with its version, and may be long
        return not file.read(len(_STREAMS)).startswith(_STREAMS)


def _require_delta(given: LearnOptions, private: Path) -> None:
    """Refuse a delta that no table of this size allows, before its rows are read."""
    if given.delta is None or given.person is not None or given.drop_unlabelled:
        return  # units are counted when they are read
    from ostraka.core.check import delta
    from ostraka.data import task as data

    if n_rows := data.n_rows_of(private, given.columns().form):
        delta(given.delta, n_units=n_rows - round((given.holdout or 0.0) * n_rows))


def _model(given: LearnOptions, task: Task, way: Way) -> PATEClassifier:
    """Make the estimator that the options describe."""
    from ostraka.core.accounting.plan import propose
    from ostraka.core.check import release_delta
    from ostraka.core.mechanisms.argmax import GNMax
    from ostraka.core.mechanisms.screen import Threshold
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.ways.choose import cells_of

    defaults, screen = given.defaults, given.screen
    estimator: Any = None
    if given.teacher is not Teacher.PROMPTS:
        estimator = given.teacher.estimator(default=defaults.teacher)
    else:  # answers of prompts are kept in the folder of the run
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
        estimator = Prompts(ensemble, *(task.texts or ([], [])))
    model = PATEClassifier(
        estimator,
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
    if given.auto:  # what ``ostraka plan`` proposes for these public numbers
        delta = release_delta(model.delta, n_units=task.n_units)
        proposal = propose(
            n_rows=task.n_units,
            n_classes=task.n_classes,
            delta=delta,
            epsilon=model.epsilon,
            n_public=len(task.X_public),
        )
        model.set_params(
            n_teachers=proposal.n_teachers,
            mechanism=proposal.mechanism,
            screen=proposal.screen,
            n_answers=proposal.n_questions,
            delta=delta,
        )
    return model


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

    After an interruption, the same command goes on from here. ``reader`` names a language model that sees
    private rows.

    Raises
    ------
    click.UsageError
        The folder holds another run, or nobody can be asked.
    click.exceptions.Exit
        The answer was no, or the model learned nothing.
    """
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.private import promise_words
    from ostraka.data.budgets import TableLedger, Tables
    from ostraka.learn.run import learned_nothing
    from ostraka.learn.ways.choose import way_of
    from ostraka.report.page import at_most

    out, private, way = given.out, given.private, way_of(plan)
    show_plan(task.shape, plan, teacher=teacher, out=out, reader=reader)
    budgets = None
    if private is not None:
        budgets = Tables.beside(private, unless=given.ledger)
        unit = promise_words(task.shape.unit, relation)
        if story := budgets.story(private, task.groups, unit=unit, run=folder.begun(out)):
            wrapped(story, on_stderr=True)
    if task.findings:  # spellings of cells on a terminal only
        wrapped("Found, for the owner's eyes", on_stderr=True)
        show_findings(task.findings, cells=sys.stderr.isatty(), on_stderr=True)
    if private is not None:
        what = f"Spend epsilon {at_most(plan.epsilon)} of {private}?"
        console.require_consent(what, yes=given.yes)
    options = {field.name: getattr(given, field.name) for field in fields(given)}
    begun = {k: v for k, v in options.items() if k not in _NOT_SETTINGS and not (k in _LATER and not v)}
    begun |= {"version": ostraka.__version__, "format": _FORMAT}
    account = None if budgets is None else budgets.account(private, task.groups)
    going_on = folder.open_run(out, begun, tables={"private": private, "public": given.public})
    budget = Budget(epsilon=model.epsilon or 0.0, delta=plan.delta, adaptive=False)
    with (
        Ledger(out / folder.LEDGER, budget=budget)
        if account is None
        else TableLedger(
            out / folder.LEDGER, budget=budget, account=account, run=folder.name_of(out)
        ) as ledger,
        console.Stages(way.stages | _LAST) as stages,
    ):
        model.set_params(ledger=ledger, manifest=out / folder.MANIFEST, progress=stages)
        others = () if task.of_labels else (task.X_public, task.groups)
        with folder.unless_refused(out, ledger, going_on=going_on):
            model.fit(task.X_private, task.y_private, *others)
        model.audit()
        stages("audit", 1, 1)
        result = _record(task, model, begun)
        stages("record", 1, 1)
    _write(task, model, result, out, keep_teachers=begun.get("keep_teachers", False))
    if given.as_json:
        click.echo((result if given.owner else result.public()).to_json())
    else:
        show_result(result)
        show_choice(result)
    wrapped(_HANDED_OVER.format(out, *folder.contents(out)), on_stderr=True)
    if why := learned_nothing(result):
        wrapped(_NOTHING_LEARNED.format(why, way.advice), on_stderr=True)
        raise click.exceptions.Exit(console.NOTHING_LEARNED)


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
    from sklearn.pipeline import make_pipeline

    from ostraka.core.mechanisms.law import ABSTAIN, payments
    from ostraka.learn import handover
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.regressor import PATERegressor

    if isinstance(model, PATERegressor):
        table = pa.table({"row": task.public_rows, "number": model.predict(task.X_public)})
    else:
        answers = model.labels_[model.asked_]
        labels = [None if answer == ABSTAIN else model.classes_[answer].item() for answer in answers]
        table = pa.table({"row": task.public_rows[model.asked_], "label": labels})
    if keep_teachers and isinstance(model, PATEClassifier):
        from ostraka.core.consistent import Consistent
        from ostraka.voters.saved import SavedTeachers

        # the ensemble with the reader of its rows and the mechanism of its answers
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
        shutil.rmtree(out / folder.TEACHERS, ignore_errors=True)  # of a run that was interrupted after this
        saved.save(out / folder.TEACHERS)
    student: Any
    try:  # as a plain scikit-learn model, or unchanged if it cannot be converted
        student = (
            model.to_sklearn() if task.array else model.to_sklearn(columns=task.columns, encoder=task.encoder)
        )
        encoder = task.encoder if task.array else None
    except ValueError:
        student, encoder = model.student_, task.encoder
    student = student if encoder is None else make_pipeline(encoder, student)
    lines = handover.write_student(student, out, shown=task.shown, array=task.array)
    why_not = handover.write_onnx(student, out, original=model.student_, shown=task.shown, rows=task.X_public)
    folder.write(out / folder.LABELS, lambda path: parquet.write_table(table, path))
    handover.write_card(result, lines, out, onnx=(out / folder.ONNX).exists())
    folder.write_reports(out, result)
    folder.write(out / folder.RESULT, result.to_json())
    click.echo(f"\nto use the student (model-card.md says what it needs):\n\n{lines}", err=True)
    if why_not:
        click.echo(f"\n{why_not}", err=True)


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


def show_findings(findings: Sequence[Finding], *, cells: bool, on_stderr: bool = False) -> None:
    """Print findings, one a line, with what to type. ``cells``: the spellings in the table, too."""
    for finding in findings:
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
