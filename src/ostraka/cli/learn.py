"""``ostraka learn``: a table of private rows in, a private model with its price tag out."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ostraka
from ostraka.cli import _errors, _preflight
from ostraka.cli._models import DIGITS, TABLES, Engine, Student, Teacher, Way, chosen_way

if TYPE_CHECKING:
    from ostraka.cli._data import Task
    from ostraka.pate import PATEClassifier
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import Plan
    from ostraka.result import Result

__all__ = ["learn"]


_FORMAT = 2  # of plan.json: 1 had digests of the tables without a key
_NOT_SETTINGS = ("private", "public", "out", "as_json", "owner")
_HANDED_OVER = (
    "\nwritten to {0}: student.skops, model-card.md, labels.parquet, ledger.sqlite and privacy-label.json "
    "may be passed on; result.json, report.html, manifest.json and teachers/ are for the owner of the data. "
    "'ostraka report {0} --public' writes a page that may be passed on."
)
_NOTHING_LEARNED = (
    "\nostraka: the model learned nothing: {0}. What was spent stays spent. 'ostraka plan' proposes a budget "
    "and a number of teachers and answers to try; type --out with another folder for the next run"
)


def learn(
    context: typer.Context,
    private: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Private rows: CSV, Parquet, Excel or .npz. Default: scikit-learn's digits."
        ),
    ] = None,
    *,
    label: Annotated[str | None, typer.Option(help="Column to learn.", metavar="COLUMN")] = None,
    public: Annotated[
        Path | None,
        typer.Option(help="Public rows, unlabelled, for the teachers to vote on.", metavar="FILE"),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Instead of --public: give up the privacy of this share of the rows.", metavar="SHARE"
        ),
    ] = None,
    allow_overlap: Annotated[
        bool,
        typer.Option(
            "--allow-overlap", help="Accept public rows that are private rows, too; the label says so."
        ),
    ] = False,
    person: Annotated[
        str | None,
        typer.Option(help="Column that says whom a row belongs to; protects people.", metavar="COLUMN"),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.", metavar="COLUMN")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Column of kinds that are written as numbers; may be repeated.", metavar="COLUMN"),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="All classes there may be. Default: those of the label.", metavar="A,B,…"),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="Put the public median where a number is missing.")
    ] = False,
    missing: Annotated[
        list[str] | None,
        typer.Option(help="What stands for a missing number, such as -999; may be repeated.", metavar="TEXT"),
    ] = None,
    teachers: Annotated[
        int | None,
        typer.Option(
            help="How many. Default: one for 13 units, at most 250; 100 for the digits.", metavar="N"
        ),
    ] = None,
    teacher: Annotated[Teacher, typer.Option(help="What is trained on each shard.")] = Teacher.AUTO,
    student: Annotated[Student, typer.Option(help="What learns from the answers.")] = Student.AUTO,
    way: Annotated[
        Way | None,
        typer.Option(
            help="argmax: teachers answer questions. counts: every row casts one ballot in all. auto: what "
            "does better on public rows with made-up labels. Default: counts, or argmax where options of "
            "teachers are given."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Budget. Default: 1; with argmax 2, or 3.5 for the digits.", metavar="NATS"),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5 or 0.1 / units, the smaller.", metavar="P")
    ] = None,
    answers: Annotated[
        int | None, typer.Option(help="Questions to ask. Default: 100, or ten a class.", metavar="N")
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise, in votes. Default: what the budget pays for.", metavar="VOTES"),
    ] = None,
    screen: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Answer only where a noisy plurality reaches AT votes.", metavar="AT SIGMA"),
    ] = None,
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Choose teachers, noise, screen and questions as 'ostraka plan' does."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder to write.", metavar="FOLDER")] = Path("run"),
    seed: Annotated[
        int, typer.Option(help="Of training and splitting; never of noise.", min=0, metavar="N")
    ] = 0,
    keep_teachers: Annotated[
        bool,
        typer.Option(
            "--keep-teachers", help="Also write the teachers, for 'ostraka serve'; they are private."
        ),
    ] = False,
    engine: Annotated[Engine, typer.Option(help="Where the teachers train.")] = Engine.JOBLIB,
    jobs: Annotated[int | None, typer.Option(help="Processes. Default: all cores.", metavar="N")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the public record as JSON.")] = False,
    owner: Annotated[bool, typer.Option("--owner", help="With --json: the owner's part too.")] = False,
) -> None:
    """Learn from private rows by secret ballot; write a model, its price and a report to a folder."""
    if auto and any(choice is not None for choice in (teachers, answers, sigma, screen)):
        raise typer.BadParameter("--auto chooses --teachers, --answers, --sigma and --screen: leave them out")
    _preflight.require_sensible(private, public, label=label, person=person, holdout=holdout, out=out)
    from ostraka import GNMax, PATEClassifier, Threshold
    from ostraka.cli import _data, _show
    from ostraka.pate._metrics import learned_nothing

    defaults = DIGITS if private is None else TABLES
    if private is None or label is None:
        task = _data.digits(seed=seed)
    else:
        columns = _data.Columns(
            label=label,
            person=person,
            drop=drop or (),
            text=text or (),
            classes=[name.strip() for name in (classes or "").split(",") if name.strip()],
            fill=fill,
            missing=missing or (),
        )
        task = _data.tables(private, public, columns=columns, holdout=holdout, seed=seed)
    way = chosen_way(
        way,
        named=(teachers, answers, sigma, screen, auto or None, keep_teachers or None),
        models=(teacher is not Teacher.AUTO, student is not Student.AUTO),
        default=defaults.way,
    )
    with _errors.usage():
        model = PATEClassifier(
            teacher.estimator(default=defaults.teacher),
            n_teachers=defaults.n_teachers if teachers is None else teachers,
            mechanism=None if sigma is None else GNMax(sigma=sigma),
            screen=None if screen is None else Threshold(at=screen[0], sigma=screen[1]),
            epsilon=defaults.budget(way) if epsilon is None else epsilon,
            delta=defaults.delta if delta is None else delta,
            n_answers=answers,
            student=student.estimator(default=defaults.student),
            way=way.value,
            cells=task.cells(),
            classes=task.classes,
            allow_overlap=allow_overlap,
            engine=engine.value,
            n_jobs=jobs,
            random_state=seed,
        )
        if auto:
            _choose(model, task)
        plan = model.plan(
            n_units=task.n_units,
            n_classes=task.n_classes,
            n_public=len(task.X_public),
            X_public=task.X_public,
            grouped=task.groups is not None,
        )
    if answers is None:
        _preflight.require_hope(
            plan, n_units=task.n_units, n_classes=task.n_classes, unit=task.shape.unit, epsilon=model.epsilon
        )
    _show.show_plan(task.shape, plan, teacher=type(model.estimator).__name__, out=out)
    begun = {name: value for name, value in context.params.items() if name not in _NOT_SETTINGS}
    begun |= {"version": ostraka.__version__, "format": _FORMAT}
    result = _learn(task, model, plan, out, begun, tables={"private": private, "public": public})
    if as_json:
        typer.echo((result if owner else result.public()).to_json())
    else:
        _show.show_result(result)
    _show.wrapped(_HANDED_OVER.format(out), on_stderr=True)
    if why := learned_nothing(result):
        _show.wrapped(_NOTHING_LEARNED.format(why), on_stderr=True)
        raise typer.Exit(_errors.NOTHING_LEARNED)


def _choose(model: PATEClassifier, task: Task) -> None:
    """What ``ostraka plan`` would propose for these public numbers; nothing private is looked at."""
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

    if _folder.open_run(out, begun, tables=tables):
        typer.echo(f"going on with {out}: what was paid for is used again", err=True)
    budget = Budget(epsilon=model.epsilon, delta=plan.delta)
    with Ledger(out / _folder.LEDGER, budget=budget) as ledger, _progress.Stages(_progress.LEARN) as stages:
        model.set_params(ledger=ledger, manifest=out / _folder.MANIFEST, progress=stages)
        model.fit(task.X_private, task.y_private, task.X_public, task.groups)
        model.audit()
        stages("audit", 1, 1)
        result = _record(task, model, begun)
        stages("record", 1, 1)
    _write(task, model, result, out, keep_teachers=begun["keep_teachers"])
    return result


def _record(task: Task, model: PATEClassifier, begun: dict[str, Any]) -> Result:
    """The record with accuracies, where labels are known, and with what only the command knows."""
    if task.X_test is None:
        result = replace(model.result_, utility={"student": None, "majority": None, **model.result_.utility})
    else:
        result = model.evaluate(task.X_test, task.y_test, X_private=task.X_private, y_private=task.y_private)
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
    """Everything but the record first: where that is, the run is finished."""
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
    lines = _handover.write_student(
        student, out, columns=task.columns, encoder=task.encoder, dates=task.dates, array=task.array
    )
    _folder.write(out / _folder.LABELS, lambda path: parquet.write_table(table, path))
    _handover.write_card(result, lines, out)
    _folder.write_reports(out, result)
    _folder.write(out / _folder.RESULT, result.to_json())
    typer.echo(f"\nto use the student (model-card.md says what it needs):\n\n{lines}", err=True)


def _plain_student(task: Task, model: PATEClassifier) -> Any:
    """The student as plain scikit-learn; one of another library stays what it is."""
    from sklearn.pipeline import make_pipeline

    try:
        if task.array:
            made = model.to_sklearn()
            return made if task.encoder is None else make_pipeline(task.encoder, made)
        return model.to_sklearn(columns=task.columns, encoder=task.encoder)
    except ValueError:
        return model.student_ if task.encoder is None else make_pipeline(task.encoder, model.student_)


def _keep_teachers(task: Task, model: PATEClassifier, folder: Path) -> None:
    """The ensemble, with how rows of the table are read and how its answers were noised."""
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
