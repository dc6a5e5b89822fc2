"""What ``ostraka account`` reads and prints: votes from files, the record, and its tables on the terminal.

Votes are counts, or every teacher's predictions. Messages never quote a vote.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ostraka import console
from ostraka.core.curve import Curve
from ostraka.core.result import Result
from ostraka.data import table as tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ostraka.core.mechanisms.law import BallotMechanism


_SUFFIX = ".npz"
_COUNTS, _PREDICTIONS, _GUESSES = "counts", ("predictions", "votes"), "guesses"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Votes:
    """The number of teachers that chose each class in each query. Private: the repr does not show it.

    Attributes
    ----------
    counts : float array of shape (n_queries, n_classes), in votes
    queries : tuple of str
        What each query is called: its number, or its column.
    """

    counts: np.ndarray
    queries: tuple[str, ...]

    @property
    def n_teachers(self) -> int | None:
        """The number of ballots in each query, or None if it differs or is not whole."""
        cast = self.counts.sum(axis=1)
        return int(cast[0]) if (cast == cast[0]).all() and cast[0] == round(cast[0]) else None

    def first(self, n_queries: int | None) -> Votes:
        """Return the first ``n_queries`` queries."""
        return Votes(counts=self.counts[:n_queries], queries=self.queries[:n_queries])


def read(path: Path, *, array: str | None, n_classes: int | None) -> Votes:
    """Read counts or predictions from ``.npz``; predictions also from CSV or Parquet, one row per teacher.

    Raises
    ------
    ValueError
        The file does not hold votes: the message says what, where, and what to type.
    """
    if path.suffix.lower() == _SUFFIX:
        name, values = _array(path, array)
        if name.endswith(_COUNTS):
            where = f"{path}: array {name!r}"
            if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind not in "iuf" or not len(values):
                raise ValueError(
                    f"{where} must be numbers of shape (n_queries, n_classes), got shape {values.shape}"
                )
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{where} must hold finite counts, none below 0")
            if not (values == np.rint(values)).all():
                raise ValueError(f"{where} must hold whole numbers of votes; shares are no counts")
            if n_classes is not None and n_classes != values.shape[1]:
                raise ValueError(
                    f"{where} has {values.shape[1]} classes, and --classes says {n_classes}: leave it out"
                )
            return _named(values)
        return _named(_counted(values, n_classes, f"{path}: array {name!r}"))
    if array is not None:
        raise ValueError(f"--array is for .npz files, and {path} is a table")
    table = tables.read(path, public=False)
    columns = [table.text(name) for name in table.names]
    kinds = {text for column in columns for text in column}
    if "" in kinds:
        raise ValueError(f"{path} has empty cells: every teacher (row) must answer every query (column)")
    place = {kind: number for number, kind in enumerate(sorted(kinds))}
    if all(kind.isdecimal() for kind in kinds):
        place = {kind: int(kind) for kind in kinds}
    predictions = np.array([[place[text] for text in column] for column in columns]).T
    return Votes(counts=_counted(predictions, n_classes, str(path)).astype(float), queries=tuple(table.names))


def read_guesses(path: Path, *, shape: tuple[int, ...]) -> np.ndarray:
    """Read the student's class probabilities, in the shape of the counts, from ``.npz`` or a table."""
    if path.suffix.lower() == _SUFFIX:
        guesses = np.asarray(_array(path, None, wanted=_GUESSES)[1], dtype=float)
    else:
        table = tables.read(path, public=False)
        guesses = np.stack([table.numbers(name)[0] for name in table.names], axis=1)
    if guesses.shape != shape or not np.isfinite(guesses).all():
        raise ValueError(
            f"{path} (--guesses) must hold one finite probability a query and class, shape {shape}, "
            f"got shape {guesses.shape}"
        )
    return guesses


def _array(path: Path, name: str | None, *, wanted: str = _COUNTS) -> tuple[str, Any]:
    """Return the array of this name, else the one with a known name, else the only one."""
    arrays = tables.read_arrays(path, how=f"numpy.savez(…, {wanted}=…)")
    wanted_names = (wanted,) if wanted == _GUESSES else (wanted, *_PREDICTIONS)
    if name is None:
        name = next((key for key in wanted_names if key in arrays), None)
        name = next(iter(arrays)) if name is None and len(arrays) == 1 else name
    if name is None or name not in arrays:
        names = ", ".join(sorted(arrays)) or "nothing"
        how = "rename one" if wanted == _GUESSES else "type --array NAME"
        raise ValueError(f"{path} holds {names}, and none of it is called {' or '.join(wanted_names)}: {how}")
    return name, arrays[name]


def _counted(predictions: Any, n_classes: int | None, where: str) -> np.ndarray:
    from ostraka.voters.voting import count_votes

    if predictions.ndim != 2 or not predictions.size or predictions.dtype.kind not in "iu":
        raise ValueError(
            f"{where} must be class numbers of shape (n_teachers, n_queries), got shape {predictions.shape}"
        )
    n_seen = int(predictions.max()) + 1
    if predictions.min() < 0 or (n_classes is not None and n_seen > n_classes):
        last = (n_classes or n_seen) - 1
        raise ValueError(f"{where} must hold class numbers from 0 to {last}: a teacher may not abstain")
    return count_votes(predictions, n_classes=max(2, n_classes or n_seen))


def _named(counts: np.ndarray) -> Votes:
    return Votes(
        counts=counts.astype(float), queries=tuple(str(number) for number in range(1, len(counts) + 1))
    )


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
    # the smallest of the bounds that hold for any votes, as one curve
    curves = [curve for bound in bounds for curve in bound.curves[-1:] if isinstance(curve, Curve)]
    best = functools.reduce(Curve.smaller, (curve for curve in curves if curve.publishable))
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
        cost, consensus = np.array(owner["cost"]), np.array(owner["consensus"])
        rows = [
            (
                queries[place],
                f"{100 * cost[place] / max(cost.sum(), 1e-300):.1f} %",
                f"{100 * cost[place] / owner['price']:.0f} %",
                f"{100 * consensus[place]:.0f} %",
            )
            for place in np.argsort(-cost, kind="stable")[:costliest]
        ]
        console.table(("question", "share of the cost", "of its price", "teachers who agreed"), rows)
