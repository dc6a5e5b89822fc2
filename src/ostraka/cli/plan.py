"""``ostraka plan``: how many questions to ask and with how much noise, from public numbers."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli import _errors
from ostraka.cli._models import Teacher

if TYPE_CHECKING:
    from ostraka.accounting.learning_curve import LearningCurve
    from ostraka.accounting.plan import Proposal

__all__ = ["plan"]

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


def plan(
    *,
    rows: Annotated[int, typer.Option(help="Private rows, or people if these are protected.", metavar="N")],
    classes: Annotated[int, typer.Option(help="How many there are.", metavar="N")],
    epsilon: Annotated[float | None, typer.Option(help="Budget to spend.", metavar="NATS")] = None,
    target_accuracy: Annotated[
        float | None,
        typer.Option(help="Instead of --epsilon: find the smallest budget for it.", metavar="SHARE"),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5 or 0.1 / rows, the smaller.", metavar="P")
    ] = None,
    public_rows: Annotated[
        int, typer.Option(help="Unlabelled public rows there are to ask about.", metavar="N")
    ] = 3200,
    proxy: Annotated[
        Path | None,
        typer.Option(help="Public, labelled rows like the private ones, CSV or Parquet.", metavar="FILE"),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of --proxy to learn.", metavar="COLUMN")] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column of --proxy to leave out; may be repeated.", metavar="COLUMN"),
    ] = None,
    teacher: Annotated[Teacher, typer.Option(help="What to train on --proxy.")] = Teacher.AUTO,
    seed: Annotated[int, typer.Option(help="Of the simulation.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Propose teachers, noise, screen and number of questions from public numbers. Reads nothing private."""
    from ostraka.accounting.plan import propose

    if (proxy is None) != (label is None):
        raise typer.BadParameter("--proxy FILE and --label COLUMN need each other")
    if rows < 1:
        raise typer.BadParameter(f"--rows must be an integer >= 1, got {rows}")
    curves = None
    if proxy is not None and label is not None:
        curves = _measured(proxy, label=label, drop=drop or [], teacher=teacher, classes=classes, seed=seed)
    with _errors.usage():
        proposal = propose(
            n_rows=rows,
            n_classes=classes,
            delta=min(1e-5, 0.1 / rows) if delta is None else delta,
            epsilon=epsilon,
            target_accuracy=target_accuracy,
            n_public=public_rows,
            learning_curves=curves,
            seed=seed,
        )
    basis = _ASSUMED if proxy is None else _MEASURED.format(proxy)
    if as_json:
        _print_json(proposal, basis)
    else:
        _print(proposal, basis, rows=rows)


def _measured(
    proxy: Path, *, label: str, drop: list[str], teacher: Teacher, classes: int, seed: int
) -> tuple[LearningCurve, ...]:
    """Fit the learning curve on public rows: models train on some of them and are tested on others."""
    import numpy as np

    from ostraka.accounting.learning_curve import LearningCurve
    from ostraka.cli import _data

    task = _data.tables(
        proxy, None, columns=_data.Columns(label=label, drop=drop), holdout=_TESTED, seed=seed
    )
    found = len(np.unique(task.y_private))
    if found != classes:
        raise ValueError(
            f"{proxy}: column {label!r} (--label) holds {found} classes, and --classes says {classes}"
        )
    return LearningCurve.measured(
        teacher.estimator(default=Teacher.LOGISTIC),
        task.X_private,
        task.y_private,
        X_test=task.X_test,
        y_test=task.y_test,
        rng=np.random.default_rng(seed),
    )


def _print(proposal: Proposal, basis: str, *, rows: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from ostraka._phrases import at_most

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
    from ostraka import Budget, Ledger
    from ostraka.pate.plan import asked

    mechanism = asked(proposal.mechanism, proposal.screen)
    budget = Budget(epsilon=float(_upwards(proposal.epsilon)), delta=proposal.delta)
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
