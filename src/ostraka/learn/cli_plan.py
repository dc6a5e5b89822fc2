"""``ostraka plan``: how many questions to ask and with how much noise, from public numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ostraka import console as _errors
from ostraka.console import option, options
from ostraka.voters.named import Teacher

if TYPE_CHECKING:
    from ostraka.core.accounting.plan import LearningCurve, Proposal

_TESTED = 0.5  # share of the proxy that is not trained on
_ASSUMED = (
    "nothing is known about how hard the task is: the ranges span easy to hard tasks. "
    "Type --proxy FILE --label COLUMN with similar public rows to narrow them"
)
_OTHER_PLAN = (
    "This plan is what 'ostraka learn --auto' uses, too: the same questions for the same budget. Without "
    "--auto or the options above, learn answers a table by counts, one ballot a row in all, or in rounds if "
    "--way rounds is typed; with options of teachers it asks 100 questions or ten a class, whichever is "
    "more, with no screen and the least noise that pays for them, since it is not told how hard the task is."
)
_MEASURED = "ranges are over resamplings of models trained on {0}; the private rows may be harder or easier"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of ``ostraka plan``."""

    rows: int = option(..., "Private rows, or people if these are protected.", "N", min=16)
    classes: int = option(..., "How many there are.", "N", min=2)
    epsilon: float | None = option(None, "Budget to spend.", "NATS")
    target_accuracy: float | None = option(
        None, "Instead of --epsilon: find the smallest budget for it.", "SHARE"
    )
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / rows, the smaller.", "P")
    public_rows: int = option(3200, "Unlabelled public rows there are to ask about.", "N", min=1)
    proxy: Path | None = option(None, "Public, labelled rows like the private ones, CSV or Parquet.", "FILE")
    label: str | None = option(None, "Column of --proxy to learn.", "COLUMN")
    drop: list[str] | None = option(None, "Column of --proxy to leave out; may be repeated.", "COLUMN")
    teacher: Teacher = option(Teacher.AUTO, "What to train on --proxy.")
    seed: int = option(0, "Of the simulation.", min=0)
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


@options(PlanOptions)
def plan(given: PlanOptions) -> None:
    """Propose teachers, noise, screen and number of questions from public numbers. Reads nothing private."""
    from ostraka.core.accounting.plan import propose

    if (given.proxy is None) != (given.label is None):
        raise typer.BadParameter("--proxy FILE and --label COLUMN need each other")
    curves = None if given.proxy is None else _measured(given)
    with _errors.usage():
        proposal = propose(
            n_rows=given.rows,
            n_classes=given.classes,
            delta=min(1e-5, 0.1 / given.rows) if given.delta is None else given.delta,
            epsilon=given.epsilon,
            target_accuracy=given.target_accuracy,
            n_public=given.public_rows,
            learning_curves=curves,
            seed=given.seed,
        )
    basis = _ASSUMED if given.proxy is None else _MEASURED.format(given.proxy)
    if given.as_json:
        _print_json(proposal, basis)
    else:
        _print(proposal, basis, rows=given.rows)


def _measured(given: PlanOptions) -> tuple[LearningCurve, ...]:
    """Fit the learning curve on public rows: models train on some of them and are tested on others."""
    import numpy as np

    from ostraka.core.accounting.plan import LearningCurve
    from ostraka.data import task as _data

    columns = _data.Columns(label=str(given.label), drop=given.drop or [], rows_are_people=True)
    task = _data.tables(Path(given.proxy or ""), None, columns=columns, holdout=_TESTED, seed=given.seed)
    n_classes = len(np.unique(task.y_private))
    if n_classes != given.classes:
        raise ValueError(
            f"{given.proxy}: column {given.label!r} (--label) holds {n_classes} classes, and --classes says "
            f"{given.classes}"
        )
    return LearningCurve.measured(
        given.teacher.estimator(default=Teacher.LOGISTIC),
        task.X_private,
        task.y_private,
        X_test=task.X_test,
        y_test=task.y_test,
        rng=np.random.default_rng(given.seed),
    )


def _print(proposal: Proposal, basis: str, *, rows: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from ostraka.report.page import at_most

    each = rows // proposal.n_teachers
    lines = [
        ("teachers", f"{proposal.n_teachers:,}, of about {each:,} rows each"),
        ("mechanism", repr(proposal.mechanism)),
        ("screen", "none" if proposal.screen is None else repr(proposal.screen)),
        ("questions", f"{proposal.n_questions:,}"),
        ("epsilon, at most", f"{at_most(proposal.epsilon)} at delta {proposal.delta:g}, if all are answered"),
        (
            "answers left",
            f"{_left(proposal):,} more of the same kind within epsilon {_upwards(proposal.epsilon)}",
        ),
        ("questions answered", _share(proposal.answered)),
        ("answers right", _share(proposal.answers)),
        ("student accuracy", _share(proposal.student)),
    ]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for line in lines:
        table.add_row(*line)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    typer.echo(f"\nepsilon is proved; shares are forecasts, with their range. Note: {basis}.")
    typer.echo(f"\nostraka learn FILE --label COLUMN --public FILE {_options(proposal)}")
    typer.echo(f"\n{_OTHER_PLAN}")


def _share(estimate: Any) -> str:
    return f"about {100 * estimate.best:.0f} %  ({100 * estimate.low:.0f} to {100 * estimate.high:.0f} %)"


def _options(proposal: Proposal) -> str:
    """Return the options to type after ``ostraka learn``."""
    screen = "" if proposal.screen is None else f" --screen {proposal.screen.at:g} {proposal.screen.sigma:g}"
    return (
        f"--teachers {proposal.n_teachers} --answers {proposal.n_questions} "
        f"--sigma {proposal.mechanism.sigma:g}{screen} "
        f"--epsilon {_upwards(proposal.epsilon)} --delta {proposal.delta:g}"
    )


def _left(proposal: Proposal) -> int:
    """Return how many more answers the ledger of ``ostraka learn`` would allow after the planned ones."""
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.learn.ways.plan import asked

    mechanism = asked(proposal.mechanism, proposal.screen)
    budget = Budget(epsilon=float(_upwards(proposal.epsilon)), delta=proposal.delta, adaptive=False)
    with Ledger(":memory:", budget=budget) as ledger:
        ledger.charge(mechanism, uses=proposal.n_questions, unit="row", simulation=True)
        return ledger.uses_left(mechanism)


def _upwards(epsilon: float) -> str:
    """Round up to four decimals, because the ledger rounds prices up, too."""
    import math

    return f"{math.ceil(epsilon * 1e4 * (1 + 1e-9)) / 1e4:g}"


def _print_json(proposal: Proposal, basis: str) -> None:
    import json

    plain = {
        "n_teachers": proposal.n_teachers,
        "mechanism": repr(proposal.mechanism),
        "screen": None if proposal.screen is None else repr(proposal.screen),
        "n_questions": proposal.n_questions,
        "answers_left": _left(proposal),
        "epsilon": proposal.epsilon,
        "delta": proposal.delta,
        "answered": proposal.answered._asdict(),
        "answers": proposal.answers._asdict(),
        "student": proposal.student._asdict(),
        "basis": basis,
        "learn": _options(proposal),
    }
    typer.echo(json.dumps(plain, indent=2))
