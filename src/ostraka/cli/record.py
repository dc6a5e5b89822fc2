"""The record of ``ostraka account``, and its tables on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ostraka import console
from ostraka.core.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.cli.votes import Votes
    from ostraka.core.accounting.bounds import Bound
    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.law import BallotMechanism

_POINTS = 40  # of the figure
_ONE_DIRECTION = "* covers one direction of the comparison only: it is what others report, not a proof"
_WHERE_ALL_ANSWERED = "publishable numbers hold even if the screen lets every question through"
_EXPECTED = "papernot2018 is the expected cost over the screen's noise"
_INFINITE = (
    "infinite: what is rounded costs a little delta an answer, more the larger epsilon is, "
    "and here more than there is"
)


def record(
    ballot: BallotMechanism,
    cast: Votes,
    *,
    answers_per_query: int,
    delta: float,
    data: str,
) -> Result:
    """Return everything computed, with the public and the owner's parts separated."""
    from ostraka.core.accounting.bounds import every_bound, exact_curve, exact_rdp
    from ostraka.core.mechanisms.law import named, payments

    n = len(cast.counts)
    at = np.unique(np.rint(np.geomspace(1, n, _POINTS)).astype(int)) if n > _POINTS else np.arange(1, n + 1)
    bounds = every_bound(ballot, cast.counts, answers_per_query=answers_per_query, at=at.tolist())
    best = _publishable(bounds)
    order = (answers_per_query * exact_curve(ballot, cast.counts)).best_order(delta)
    cost = exact_rdp(ballot, cast.counts, orders=(order,))[:, 0] * answers_per_query
    price = dict(zip(best.orders, best.rdp, strict=True))[order] / n
    plain: dict[str, dict[str, Any]] = {
        bound.name: {
            "says": bound.says,
            "both_directions": bound.both_directions,
            "answers": bound.answers,
            "epsilon": bound.epsilon(delta),
        }
        for bound in bounds
    }
    screened = len(payments(ballot)) > 1
    notes = [_WHERE_ALL_ANSWERED] if screened else []
    notes += [_EXPECTED] if screened and "papernot2018" in plain else []
    notes += [_INFINITE] if any(bound["epsilon"][-1] == math.inf for bound in plain.values()) else []
    return Result(
        kind="account",
        settings={
            "data": data,
            "unit": "row",
            "relation": "replace-one",
            "n_teachers": cast.n_teachers,
            "n_classes": cast.counts.shape[1],
            "n_questions": n,
            "answers_per_question": answers_per_query,
            "n_answers": n * answers_per_query,
            **named(ballot),
        },
        upper={
            "epsilon": best.epsilon(delta),
            "delta": delta,
            "curve": best.to_dict(),
            "accountant": "smallest of the publishable bounds below",
            "noise": "none was drawn: nothing was released",
            "horizon": f"{n * answers_per_query:,} answers and nothing else",
            "simulation": False,
            "not_protected": [
                "The number of teachers, of questions and of answers, and the questions themselves."
            ],
            "bounds": {bound.name: plain[bound.name] for bound in bounds if bound.publishable},
        },
        owner={
            "epsilon_these_votes": min(
                bound.epsilon(delta)[-1]
                for bound in bounds
                if bound.both_directions and not bound.publishable
            ),
            "bounds": {bound.name: plain[bound.name] for bound in bounds if not bound.publishable},
            "consensus": cast.counts.max(axis=1) / cast.counts.sum(axis=1).clip(min=1),
            "cost": cost,
            "cost_order": order,
            "price": price,
        },
        notes=tuple(notes),
    )


def show(result: Result, queries: Sequence[str], *, costliest: int) -> None:
    """Print two tables on stdout: every bound, and the most expensive questions."""
    from ostraka.report.page import at_most

    settings, upper, owner = result.settings, result.upper, result.owner
    answers = settings["answers_per_question"]
    times = "" if answers == 1 else f", each answered {answers:,} times"
    click.echo(
        f"{settings['n_questions']:,} questions{times}; {settings['mechanism']}"
        + (f" after {settings['screen']}" if settings["screen"] else "")
        + f"; delta {upper['delta']:g}\n"
    )
    rows = [
        (
            name,
            at_most(float(bound["epsilon"][-1])) + ("" if bound["both_directions"] else " *"),
            may,
            bound["says"],
        )
        for part, may in ((upper, "yes"), (owner, "no: owner only"))
        for name, bound in part["bounds"].items()
    ]
    console.table(("bound", "epsilon", "may be published", "what it holds for"), rows)
    click.echo(
        f"\npublishable: epsilon at most {at_most(float(upper['epsilon']))}. "
        f"For these votes, owner only: at most {at_most(float(owner['epsilon_these_votes']))}."
    )
    stars = any(not bound["both_directions"] for bound in owner["bounds"].values())
    for note in (*([_ONE_DIRECTION] if stars else []), *result.notes):
        click.echo(f"note: {note}")
    if costliest:
        click.echo("\ncostliest questions (owner only)")
        _show_costliest(owner, queries, costliest)


def _show_costliest(owner: dict[str, Any], queries: Sequence[str], n: int) -> None:
    """Print the questions that cost most, with the teachers' agreement on each."""
    cost, consensus = np.array(owner["cost"]), np.array(owner["consensus"])
    rows = [
        (
            queries[place],
            f"{100 * cost[place] / max(cost.sum(), 1e-300):.1f} %",
            f"{100 * cost[place] / owner['price']:.0f} %",
            f"{100 * consensus[place]:.0f} %",
        )
        for place in np.argsort(-cost, kind="stable")[:n]
    ]
    console.table(("question", "share of the cost", "of its price", "teachers who agreed"), rows)


def _publishable(bounds: Sequence[Bound]) -> Curve:
    """Return the smallest of the bounds that hold for any votes, as one curve."""
    from ostraka.core.curve import Curve

    curves = [curve for bound in bounds for curve in bound.curves[-1:] if isinstance(curve, Curve)]
    curves = [curve for curve in curves if curve.publishable]
    best = curves[0]
    for curve in curves[1:]:
        best = best.smaller(curve)
    return best
