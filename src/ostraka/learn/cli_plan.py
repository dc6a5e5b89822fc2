"""``ostraka plan``: what each way would ask and is expected to give, from public numbers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ostraka import console
from ostraka.console import option, verb
from ostraka.voters.named import TABLES, Teacher, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.core.accounting.plan import LearningCurve, Proposal
    from ostraka.learn.ways.choose import Forecast
    from ostraka.learn.ways.plan import Facts, World

_TESTED = 0.5  # share of the proxy that models are tested on
_EPSILONS = (0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
_TRIED = (Way.COUNTS, Way.FILTER, Way.ROUNDS, Way.ARGMAX)
_ASSUMED = (
    "nothing is known about the task: each way was tried on three made-up tables of {0} columns of numbers, "
    "a typical one, an easy one and a hard one. Type --proxy FILE --label COLUMN with similar public rows to "
    "try them there"
)
_ROWS_ONLY = "rounds protect rows, not people"
_BY_CHANCE = "answers of {0:,} teachers would be right by chance only, because noise drowns them"
_CLEARLY = 0.05  # share of answers that must be right beyond those that are by chance
_MEASURED = "each way was tried on three samples of {0}; the private rows may be harder or easier"


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
    people: bool = option(False, "Several rows may be one person's, and --rows counts people.")
    columns: int = option(10, "Without --proxy: columns of the made-up tables.", "N", min=1)
    proxy: Path | None = option(None, "Public, labelled rows like the private ones, CSV or Parquet.", "FILE")
    label: str | None = option(None, "Column of --proxy to learn.", "COLUMN")
    drop: list[str] | None = option(None, "Column of --proxy to leave out; may be repeated.", "COLUMN")
    teacher: Teacher = option(Teacher.AUTO, "What to train on --proxy.")
    seed: int = option(0, "Of the simulation.", min=0)
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


class _Choice(NamedTuple):
    """A way, what to type for it, and its forecast; by teachers, what they are and are asked."""

    options: str
    forecast: Forecast
    teachers: Proposal | None = None


@verb()
def plan(given: PlanOptions) -> None:
    """Plan every way to learn, and recommend the best, from public numbers. Reads nothing private.

    Example: ostraka plan --rows 30000 --classes 2 --epsilon 2
    """
    import numpy as np

    from ostraka.core.accounting.plan import LearningCurve
    from ostraka.core.check import release_delta
    from ostraka.data import task as tasks
    from ostraka.learn.ways.choose import assumed_worlds, proxy_worlds, recommended
    from ostraka.learn.ways.plan import Facts

    if (given.proxy is None) != (given.label is None):
        raise click.UsageError("--proxy FILE and --label COLUMN need each other")
    if (given.epsilon is None) == (given.target_accuracy is None):
        raise click.UsageError("type --epsilon or --target-accuracy, one of them")
    if given.target_accuracy is not None and not 0 < given.target_accuracy < 1:
        raise click.UsageError(
            f"--target-accuracy must be above 0 and below 1, got {given.target_accuracy:g}"
        )
    with console.usage():
        facts = Facts(
            n_units=given.rows,
            n_classes=given.classes,
            n_public=given.public_rows,
            grouped=given.people,
            epsilon=_EPSILONS[-1] if given.epsilon is None else given.epsilon,
            delta=float(f"{release_delta(given.delta, n_units=given.rows):g}"),
        )
    # where ways are tried, and how accurate teachers of few rows are, if public rows say so
    curves, basis = None, _ASSUMED.format(given.columns)
    worlds_of: Callable[[Facts], tuple[World, ...]] = partial(
        assumed_worlds, n_features=given.columns, seed=given.seed
    )
    if given.proxy is not None:
        basis = _MEASURED.format(given.proxy)
        columns = tasks.Columns(label=str(given.label), drop=given.drop or [], rows_are_people=True)
        task = tasks.tables(given.proxy, None, columns=columns, holdout=_TESTED, seed=given.seed)
        names, y = np.unique(task.y_private, return_inverse=True)
        if len(names) != given.classes:
            raise ValueError(
                f"{given.proxy}: column {given.label!r} (--label) holds {len(names)} classes, and --classes "
                f"says {given.classes}"
            )
        curves = LearningCurve.measured(
            given.teacher.estimator(default=Teacher.LOGISTIC),
            task.X_private,
            task.y_private,
            X_test=task.X_test,
            y_test=task.y_test,
            rng=np.random.default_rng(given.seed),
        )
        worlds_of = partial(proxy_worlds, task.X_private, y, seed=given.seed)
    choices = _choices(given, facts, worlds_of(facts), curves=curves)
    epsilon = facts.epsilon
    if (target := given.target_accuracy) is not None:
        # the smallest of several budgets at which some way is expected to reach the target
        if (best_of_all := max(choice.forecast.best for choice in choices.values())) < target:
            raise click.UsageError(
                f"no epsilon up to {_EPSILONS[-1]:g} is expected to reach an accuracy of {target:g}: the "
                f"best way reaches {max(best_of_all, 0):.3f}; aim lower, or bring more rows, public rows or "
                "better features"
            )
        low, high = 0, len(_EPSILONS) - 1
        while low < high:
            middle = (low + high) // 2
            budget = replace(facts, epsilon=_EPSILONS[middle])
            candidates = _choices(given, budget, worlds_of(budget), curves=curves)
            if max(choice.forecast.best for choice in candidates.values()) >= target:
                high, choices = middle, candidates
            else:
                low = middle + 1
        epsilon = _EPSILONS[high]
    with console.usage():
        best = recommended({name: choice.forecast for name, choice in choices.items()}, default=Way.FILTER)
    if given.as_json:
        ways = []
        for name, (typed, tried, teachers) in choices.items():
            way: dict[str, Any] = {
                "way": name,
                "epsilon": None if tried.plan is None else tried.plan.epsilon,
                "accuracy": None if tried.accuracy is None else tried.accuracy._asdict(),
                "why_not": tried.why_not or None,
                "learn": typed,
            }
            if teachers is not None:
                way |= {
                    "n_teachers": teachers.n_teachers,
                    "mechanism": repr(teachers.mechanism),
                    "screen": None if teachers.screen is None else repr(teachers.screen),
                    "n_questions": teachers.n_questions,
                    "answers_left": _left(teachers),
                    "answered": teachers.answered._asdict(),
                    "answers": teachers.answers._asdict(),
                }
            ways.append(way)
        plain = {
            "recommended": best,
            "learn": choices[best].options,
            "epsilon": epsilon,
            "delta": facts.delta,
            "basis": basis,
            "ways": ways,
        }
        click.echo(json.dumps(plain, indent=2))
    else:
        _print(choices, best, given, basis)


def _print(choices: dict[str, _Choice], best: str, given: PlanOptions, basis: str) -> None:
    from ostraka.report.page import at_most

    rows = []
    for name, (_, tried, teachers) in choices.items():
        if tried.plan is None or tried.accuracy is None:
            rows.append((name, "none", "", ""))
            continue
        asks = f"{tried.plan.n_answers:,} tables, one a round" if tried.plan.n_answers > 1 else "one table"
        if teachers is not None:
            asks = f"{teachers.n_questions:,} questions, of {teachers.n_teachers:,} teachers"
        rows.append((name, _share(tried.accuracy), at_most(tried.plan.epsilon), asks))
    console.table(("way", "accuracy expected", "epsilon, at most", "what is asked"), rows)
    reasons: dict[str, list[str]] = {}
    for name, choice in choices.items():
        reasons.setdefault(choice.forecast.why_not, []).append(name)
    for reason in filter(None, reasons):
        click.echo(f"{', '.join(reasons[reason])}: {reason}")
    if (teachers := choices[best].teachers) is not None:
        # what teachers are asked, and how often they are expected to be right
        left = f"{_left(teachers):,} more of the same kind within epsilon {_upwards(teachers.epsilon)}"
        lines = [
            ("mechanism", repr(teachers.mechanism)),
            ("screen", "none" if teachers.screen is None else repr(teachers.screen)),
            ("questions", f"{teachers.n_questions:,}"),
            ("answers left", left),
            ("questions answered", _share(teachers.answered)),
            ("answers right", _share(teachers.answers)),
        ]
        n_rows = given.rows // teachers.n_teachers
        click.echo()
        console.table(("teachers", f"{teachers.n_teachers:,}, of about {n_rows:,} rows each"), lines)
    click.echo(f"\nepsilon is proved; accuracies are forecasts, with their range. Note: {basis}.")
    click.echo(f"\nRecommended: {best}.")
    person = "--person COLUMN " if given.people else ""
    click.echo(f"ostraka learn FILE --label COLUMN --public FILE {person}{choices[best].options}")


def _choices(
    given: PlanOptions, facts: Facts, worlds: Sequence[World], *, curves: Sequence[LearningCurve] | None
) -> dict[str, _Choice]:
    """Each way with its forecast. Teachers, noise, screen and questions are those that learn most."""
    from ostraka.core.accounting.plan import propose
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.ways.choose import Forecast, forecast

    choices = {}
    with console.Stages({way: f"{way} tried" for way in _TRIED}) as stages:
        for way in _TRIED:
            settings: dict[str, Any] = {"way": way.value, "epsilon": facts.epsilon, "delta": facts.delta}
            typed, teachers = f"--way {way} --epsilon {facts.epsilon:g} --delta {facts.delta:g}", None
            if way is Way.ARGMAX:
                teachers = propose(
                    n_rows=facts.n_units,
                    n_classes=facts.n_classes,
                    delta=facts.delta,
                    epsilon=facts.epsilon,
                    n_public=facts.n_public,
                    learning_curves=curves,
                    seed=given.seed,
                )
                settings |= {
                    "estimator": given.teacher.estimator(default=TABLES.teacher),
                    "n_teachers": teachers.n_teachers,
                    "mechanism": teachers.mechanism,
                    "screen": teachers.screen,
                    "n_answers": teachers.n_questions,
                    "epsilon": float(_upwards(teachers.epsilon)),
                }
                screen = teachers.screen
                threshold = "" if screen is None else f" --screen {screen.at:g} {screen.sigma:g}"
                typed = (
                    f"--teachers {teachers.n_teachers} --answers {teachers.n_questions} "
                    f"--sigma {teachers.mechanism.sigma:g}{threshold} "
                    f"--epsilon {_upwards(teachers.epsilon)} --delta {teachers.delta:g}"
                )
            if way is Way.ROUNDS and given.people:
                tried = Forecast(plan=None, accuracy=None, why_not=_ROWS_ONLY)
            elif teachers is not None and teachers.answers.best < 1 / facts.n_classes + _CLEARLY:
                tried = Forecast(plan=None, accuracy=None, why_not=_BY_CHANCE.format(teachers.n_teachers))
            else:
                unit = "person" if given.people else "row"
                tried = forecast(PATEClassifier(**settings), worlds, unit=unit, seed=given.seed)
            choices[way.value] = _Choice(typed, tried, teachers)
            stages(way, 1, 1)
    return choices


def _share(estimate: Any) -> str:
    return f"about {100 * estimate.best:.0f} %  ({100 * estimate.low:.0f} to {100 * estimate.high:.0f} %)"


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
    return f"{math.ceil(epsilon * 1e4 * (1 + 1e-9)) / 1e4:g}"
