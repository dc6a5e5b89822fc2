"""``ostraka learn``: learn a private model from a table of private rows, and state its price."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

import ostraka
from ostraka import _imports
from ostraka.cli import _errors, _preflight
from ostraka.cli._learn_options import LearnOptions
from ostraka.cli._models import Way
from ostraka.cli._options import options

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.cli._data import Task
    from ostraka.pate import PATEClassifier
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import Plan
    from ostraka.result import Result

__all__ = ["learn"]


_FORMAT = 2  # of plan.json: 1 had digests of the tables without a key
_NOT_SETTINGS = ("private", "public", "out", "as_json", "owner")
_HANDED_OVER = (
    "\nwritten to {0}: {1} may be passed on; {2} are for the owner of the data. "
    "'ostraka report {0} --public' writes a page that may be passed on."
)
_NOTHING_LEARNED = (
    "\nostraka: the model learned nothing: {0}. What was spent stays spent. {1}; type --out with another "
    "folder for the next run"
)
_NEXT = {  # by way
    "argmax": "'ostraka plan' proposes a budget and a number of teachers and answers to try",
    "counts": "All columns share one ballot: --drop those that say little about the label, or type a larger "
    "--epsilon",
    "rounds": "Twelve rounds need many rows: type --way counts, or a larger --epsilon",
}


@options(LearnOptions)
def learn(given: LearnOptions) -> None:
    """Learn from private rows by secret ballot; write a model, its price and a report to a folder."""
    if given.auto and any(each is not None for each in given.of_teachers):
        raise typer.BadParameter("--auto chooses --teachers, --answers, --sigma and --screen: leave them out")
    _preflight.require_sensible(
        given.private,
        given.public,
        label=given.label,
        person=given.person,
        holdout=given.holdout,
        out=given.out,
    )
    if given.private is not None and given.private.is_dir():
        _preflight.require_teachers(given.private, way=given.chosen_way(), holdout=given.holdout)
    with _imports.uncollected():
        from ostraka.cli import _folder, _show
        from ostraka.pate._metrics import learned_nothing

    task = _task(given)
    with _errors.usage():
        model = _model(given, task, given.chosen_way())
        if given.auto:
            _choose(model, task)
        plan = model.plan(
            n_units=task.n_units,
            n_classes=task.n_classes,
            n_public=len(task.X_public),
            X_public=task.X_public,
            grouped=task.groups is not None,
        )
    if given.answers is None:
        _preflight.require_hope(
            plan,
            n_units=task.n_units,
            n_classes=task.n_classes,
            n_public=len(task.X_public),
            unit=task.shape.unit,
            epsilon=model.epsilon,
        )
    _show.show_plan(task.shape, plan, teacher=type(model.estimator).__name__, out=given.out)
    begun = {k: value for k, value in given.context.params.items() if k not in _NOT_SETTINGS}
    begun |= {"version": ostraka.__version__, "format": _FORMAT}
    tables = {"private": given.private, "public": given.public}
    result = _learn(task, model, plan, given.out, begun, tables=tables)
    if given.as_json:
        typer.echo((result if given.owner else result.public()).to_json())
    else:
        _show.show_result(result)
        _show.show_choice(result)
    _show.wrapped(_HANDED_OVER.format(given.out, *_folder.contents(given.out)), on_stderr=True)
    if why := learned_nothing(result):
        _show.wrapped(_NOTHING_LEARNED.format(why, _NEXT[result.settings["way"]]), on_stderr=True)
        raise typer.Exit(_errors.NOTHING_LEARNED)


def _task(given: LearnOptions) -> Task:
    """Return the tables as arrays, or the digits if no table is given."""
    from ostraka.cli import _data

    if given.private is None or given.label is None:
        return _data.digits(seed=given.seed)
    columns = _data.Columns(
        label=given.label,
        person=given.person,
        drop=given.drop or (),
        text=given.text or (),
        classes=[name.strip() for name in (given.classes or "").split(",") if name.strip()],
        fill=given.fill,
        missing=given.missing or (),
    )
    return _data.tables(given.private, given.public, columns=columns, holdout=given.holdout, seed=given.seed)


def _model(given: LearnOptions, task: Task, way: Way) -> PATEClassifier:
    """Make the estimator that the options describe."""
    from ostraka import GNMax, PATEClassifier, Threshold

    defaults, screen = given.defaults, given.screen
    return PATEClassifier(
        given.teacher.estimator(default=defaults.teacher),
        n_teachers=defaults.n_teachers if given.teachers is None else given.teachers,
        mechanism=None if given.sigma is None else GNMax(sigma=given.sigma),
        screen=None if screen is None else Threshold(at=screen[0], sigma=screen[1]),
        epsilon=defaults.budget(way) if given.epsilon is None else given.epsilon,
        delta=defaults.delta if given.delta is None else given.delta,
        n_answers=given.answers,
        student=given.student_for(way),
        way=way.value,
        cells=None if way is Way.ROUNDS else task.cells(),
        relation=given.relation.value,
        classes=task.classes,
        allow_overlap=given.allow_overlap,
        engine=given.engine.value,
        n_jobs=given.jobs,
        random_state=given.seed,
    )


def _choose(model: PATEClassifier, task: Task) -> None:
    """Set the parameters that ``ostraka plan`` proposes for these public numbers."""
    from ostraka.accounting.plan import propose

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
    model: PATEClassifier,
    plan: Plan | CountsPlan,
    out: Path,
    begun: dict[str, Any],
    *,
    tables: dict[str, Path | None],
) -> Result:
    """Fit and write. After an interruption, the same command goes on from here."""
    from ostraka import Budget, Ledger
    from ostraka.cli import _folder, _progress

    going_on = _folder.open_run(out, begun, tables=tables)
    if going_on:
        typer.echo(f"going on with {out}: what was paid for is used again", err=True)
    budget = Budget(epsilon=model.epsilon, delta=plan.delta)
    with (
        Ledger(out / _folder.LEDGER, budget=budget) as ledger,
        _progress.Stages(_progress.STAGES[plan.way]) as stages,
    ):
        model.set_params(ledger=ledger, manifest=out / _folder.MANIFEST, progress=stages)
        try:
            model.fit(task.X_private, task.y_private, task.X_public, task.groups)
        except ValueError:
            if not (going_on or any(True for _ in ledger.entries())):
                _folder.forget(out)
            raise
        model.audit()
        stages("audit", 1, 1)
        result = _record(task, model, begun)
        stages("record", 1, 1)
    _write(task, model, result, out, keep_teachers=begun["keep_teachers"])
    return result


def _record(task: Task, model: PATEClassifier, begun: dict[str, Any]) -> Result:
    """Return the record with accuracies, if labels are known, and with facts that only the command knows."""
    import numpy as np

    if task.X_test is None:
        result = replace(model.result_, utility={"student": None, "majority": None, **model.result_.utility})
    else:
        here = isinstance(task.X_private, np.ndarray)  # not in files, too many to train one model on all
        X, y = (task.X_private, task.y_private) if here else (None, None)
        result = model.evaluate(task.X_test, task.y_test, X_private=X, y_private=y)
    n_test = 0 if task.y_test is None else len(task.y_test)
    settings = {
        "data": task.name,
        "label": begun["label"],
        "person": begun["person"],
        "columns": task.columns,
        "n_measured": n_test,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "version": begun["version"],
        "seed": begun["seed"],
    }
    protected = {**result.upper, "not_protected": [*task.not_protected, *result.upper["not_protected"]]}
    return replace(result, settings={**result.settings, **settings}, upper=protected)


def _write(task: Task, model: PATEClassifier, result: Result, out: Path, *, keep_teachers: bool) -> None:
    """Write all files, the record last: it marks the run as finished."""
    import pyarrow as pa
    from pyarrow import parquet

    from ostraka import ABSTAIN
    from ostraka.cli import _folder, _handover

    answers = model.labels_[model.asked_]
    labels = [None if answer == ABSTAIN else model.classes_[answer].item() for answer in answers]
    table = pa.table({"row": task.public_rows[model.asked_], "label": labels})
    if keep_teachers:
        _keep_teachers(task, model, out / _folder.TEACHERS)
    student = _plain_student(task, model)
    lines = _handover.write_student(student, out, shown=task.shown, array=task.array)
    why_not = _handover.write_onnx(
        student, out, original=model.student_, shown=task.shown, rows=task.X_public
    )
    _folder.write(out / _folder.LABELS, lambda path: parquet.write_table(table, path))
    _handover.write_card(result, lines, out, onnx=(out / _folder.ONNX).exists())
    _folder.write_reports(out, result)
    _folder.write(out / _folder.RESULT, result.to_json())
    typer.echo(f"\nto use the student (model-card.md says what it needs):\n\n{lines}", err=True)
    if why_not:
        typer.echo(f"\n{why_not}", err=True)


def _plain_student(task: Task, model: PATEClassifier) -> Any:
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

    from ostraka.consistent import Consistent
    from ostraka.mechanisms.protocols import parts
    from ostraka.voters import SavedTeachers

    asked: tuple[Any, Any] = parts(model.plan_.mechanism)
    numbers = range(len(task.columns))
    if hasattr(task.encoder, "transformers_"):
        numbers = {name: places for name, _, places in task.encoder.transformers_}["numbers"]
    saved = SavedTeachers(
        ensemble=model.ensemble_,
        mechanism=asked[1],
        screen=asked[0],
        columns=task.columns,
        numeric=tuple(place in numbers for place in range(len(task.columns))),
        grid=Consistent.grid_of(task.X_public),
        encoder=task.encoder,
    )
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted after this
    saved.save(folder)
