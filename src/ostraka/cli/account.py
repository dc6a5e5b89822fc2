"""``ostraka account``: the cost of answers to given votes by every bound, and the costliest questions."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)
from typing import TYPE_CHECKING, Any

import click

from ostraka import console
from ostraka.console import argument, option, verb

if TYPE_CHECKING:
    from ostraka.cli.record import Votes
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.core.result import Result


class Kind(enum.StrEnum):
    """The mechanism that answers."""

    GNMAX = "gnmax"
    LNMAX = "lnmax"
    CONFIDENT = "confident"
    INTERACTIVE = "interactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """Options of ``ostraka account``."""

    votes: Path = argument(
        ...,
        "Votes: .npz with counts or predictions, or CSV or Parquet with one row a teacher.",
        "FILE",
    )
    mechanism: Kind = option(Kind.GNMAX, "The mechanism that answers.")
    sigma: float | None = option(None, "Gaussian noise, in votes. Needed but for lnmax.", "VOTES")
    scale: float | None = option(None, "Laplace scale, in votes. Needed for lnmax.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "For confident and interactive: answer where a noisy plurality reaches AT votes.", "AT SIGMA"
    )
    guesses: Path | None = option(
        None, "For interactive: the student's class probabilities, one row a query.", "FILE"
    )
    delta: float = option(1e-05, "Probability in which nothing is promised.", "P")
    answers_per_query: int = option(1, "How often each query is answered.", "N")
    first: int | None = option(None, "Only the first queries.", "N")
    classes: int | None = option(None, "How many there are. Default: those that got a vote.", "N")
    array: str | None = option(None, "Which array of an .npz file.", "NAME")
    costliest: int = option(10, "How many questions to list, costliest first.", "N", min=0)
    out: Path | None = option(None, "Folder to write: a report with figures, and all numbers.", "FOLDER")
    as_json: bool = option(False, "Print the public record as JSON.", name="--json")
    owner: bool = option(False, "With --json: the owner's part too.")


@verb()
def account(typed: AccountOptions) -> None:
    """Compare every bound on what answers to these votes cost. Nothing is released. Mostly for the owner.

    Example: ostraka account votes.npz --sigma 40 --delta 1e-5
    """
    from ostraka.audit.cli import make_mechanism
    from ostraka.cli import record
    from ostraka.core import check

    name: str = Kind.CONFIDENT if typed.mechanism is Kind.INTERACTIVE else typed.mechanism
    ballot = make_mechanism(name, sigma=typed.sigma, scale=typed.scale, screen=typed.screen)
    with console.usage("--delta"):
        check.delta(typed.delta)
    for name, value in (
        ("--answers-per-query", typed.answers_per_query),
        ("--first", typed.first),
        ("--classes", typed.classes),
    ):
        if value is not None and value < 1:
            raise click.UsageError(f"{name} must be an integer >= 1, got {value}")
    cast = record.read(typed.votes, array=typed.array, n_classes=typed.classes).first(typed.first)
    ballot = _against_guesses(ballot, typed.mechanism, typed.guesses, cast)
    result = record.record(
        ballot,
        cast,
        answers_per_query=typed.answers_per_query,
        delta=typed.delta,
        data=str(typed.votes),
    )
    if typed.out is not None:
        _write(typed.out, result)
    if typed.as_json:
        click.echo((result if typed.owner else result.public()).to_json())
    else:
        record.show(result, cast.queries, costliest=typed.costliest)


def _against_guesses(
    ballot: BallotMechanism, kind: Kind, guesses: Path | None, cast: Votes
) -> BallotMechanism:
    """Return the mechanism with its screen asked of votes less guesses, for Interactive-GNMax."""
    from ostraka.cli import record
    from ostraka.core.mechanisms.guesses import AgainstGuesses
    from ostraka.core.mechanisms.law import payments
    from ostraka.core.mechanisms.screen import Confident

    if (guesses is not None) != (kind is Kind.INTERACTIVE):
        raise click.UsageError("--guesses FILE and --mechanism interactive need each other")
    if guesses is None:
        return ballot
    guess = record.read_guesses(guesses, shape=cast.counts.shape)
    screen, argmax = payments(ballot)
    n_teachers = math.ceil(cast.counts.sum(axis=1).max(initial=1))
    gate = AgainstGuesses(mechanism=screen, guesses=guess, n_teachers=n_teachers)
    return Confident(screen=gate, argmax=argmax)


def _write(folder: Path, result: Result) -> None:
    from ostraka.report import folder as _folder

    if (folder / _folder.RESULT).exists() or (folder.exists() and not folder.is_dir()):
        raise click.UsageError(f"{folder} holds something already: type --out with another folder")
    folder.mkdir(parents=True, exist_ok=True)
    page: Any = _folder.write_reports(folder, result)
    _folder.write(folder / _folder.RESULT, result.to_json())
    click.echo(
        f"written to {folder}: {page.name} is for the owner; 'ostraka report {folder} --public' "
        "writes a page that may be passed on",
        err=True,
    )
