"""``ostraka account``: the cost of answers to given votes by every bound, and the costliest questions."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli import _errors
from ostraka.cli._options import options

if TYPE_CHECKING:
    from ostraka.cli._votes import Votes
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.result import Result

__all__ = ["account"]


class Kind(enum.StrEnum):
    """The mechanism that answers."""

    GNMAX = "gnmax"
    LNMAX = "lnmax"
    CONFIDENT = "confident"
    INTERACTIVE = "interactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOptions:
    """Options of ``ostraka account``."""

    votes: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Votes: .npz with counts or predictions, or CSV or Parquet with one row a teacher.",
            show_default=False,
        ),
    ]
    mechanism: Annotated[Kind, typer.Option(help="The mechanism that answers.")] = Kind.GNMAX
    sigma: Annotated[
        float | None, typer.Option(help="Gaussian noise, in votes. Needed but for lnmax.", metavar="VOTES")
    ] = None
    scale: Annotated[
        float | None, typer.Option(help="Laplace scale, in votes. Needed for lnmax.", metavar="VOTES")
    ] = None
    screen: Annotated[
        tuple[float, float] | None,
        typer.Option(
            help="For confident and interactive: answer where a noisy plurality reaches AT votes.",
            metavar="AT SIGMA",
        ),
    ] = None
    guesses: Annotated[
        Path | None,
        typer.Option(
            help="For interactive: the student's class probabilities, one row a query.", metavar="FILE"
        ),
    ] = None
    delta: Annotated[float, typer.Option(help="Probability in which nothing is promised.", metavar="P")] = (
        1e-5
    )
    answers_per_query: Annotated[int, typer.Option(help="How often each query is answered.", metavar="N")] = 1
    first: Annotated[int | None, typer.Option(help="Only the first queries.", metavar="N")] = None
    classes: Annotated[
        int | None, typer.Option(help="How many there are. Default: those that got a vote.", metavar="N")
    ] = None
    array: Annotated[str | None, typer.Option(help="Which array of an .npz file.", metavar="NAME")] = None
    costliest: Annotated[
        int, typer.Option(help="How many questions to list, costliest first.", metavar="N", min=0)
    ] = 10
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write: a report with figures, and all numbers.", metavar="FOLDER"),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the public record as JSON.")] = False
    owner: Annotated[bool, typer.Option("--owner", help="With --json: the owner's part too.")] = False


@options(AccountOptions)
def account(given: AccountOptions) -> None:
    """Compare every bound on what answers to these votes cost. Nothing is released. Mostly for the owner."""
    from ostraka.cli import _accounted, _votes

    ballot = _mechanism(given.mechanism, sigma=given.sigma, scale=given.scale, screen=given.screen)
    with _errors.usage("--delta"):
        _check_delta(given.delta)
    for name, value in (
        ("--answers-per-query", given.answers_per_query),
        ("--first", given.first),
        ("--classes", given.classes),
    ):
        if value is not None and value < 1:
            raise typer.BadParameter(f"{name} must be an integer >= 1, got {value}")
    cast = _votes.read(given.votes, array=given.array, n_classes=given.classes).first(given.first)
    ballot = _against_guesses(ballot, given.mechanism, given.guesses, cast)
    result = _accounted.record(
        ballot,
        cast,
        answers_per_query=given.answers_per_query,
        delta=given.delta,
        data=str(given.votes),
    )
    if given.out is not None:
        _write(given.out, result)
    if given.as_json:
        typer.echo((result if given.owner else result.public()).to_json())
    else:
        _accounted.show(result, cast.queries, costliest=given.costliest)


def _mechanism(
    kind: Kind, *, sigma: float | None, scale: float | None, screen: tuple[float, float] | None
) -> BallotMechanism:
    from ostraka import Confident, GNMax, LNMax, Threshold

    screened = kind in {Kind.CONFIDENT, Kind.INTERACTIVE}
    if (screen is not None) != screened:
        needs = "needs --screen AT SIGMA" if screened else "takes no --screen: type --mechanism confident"
        raise typer.BadParameter(f"--mechanism {kind} {needs}")
    noise, other = ("scale", sigma) if kind is Kind.LNMAX else ("sigma", scale)
    value = scale if kind is Kind.LNMAX else sigma
    if value is None or other is not None:
        raise typer.BadParameter(f"--mechanism {kind} needs --{noise} VOTES, and no other noise")
    with _errors.usage(f"--{noise}"):
        argmax = LNMax(scale=value) if kind is Kind.LNMAX else GNMax(sigma=value)
    if screen is None:
        return argmax
    with _errors.usage("--screen"):
        return Confident(screen=Threshold(at=screen[0], sigma=screen[1]), argmax=argmax)


def _against_guesses(
    ballot: BallotMechanism, kind: Kind, guesses: Path | None, cast: Votes
) -> BallotMechanism:
    """Return the mechanism with its screen asked of votes less guesses, for Interactive-GNMax."""
    from ostraka import Confident
    from ostraka.cli import _votes
    from ostraka.mechanisms.guesses import AgainstGuesses
    from ostraka.mechanisms.protocols import parts

    if (guesses is not None) != (kind is Kind.INTERACTIVE):
        raise typer.BadParameter("--guesses FILE and --mechanism interactive need each other")
    if guesses is None:
        return ballot
    guess = _votes.read_guesses(guesses, shape=cast.counts.shape)
    screen, argmax = parts(ballot)
    if screen is None:
        raise typer.BadParameter("--mechanism interactive needs --screen AT SIGMA")
    n_teachers = math.ceil(cast.counts.sum(axis=1).max(initial=1))
    gate = AgainstGuesses(mechanism=screen, guesses=guess, n_teachers=n_teachers)
    return Confident(screen=gate, argmax=argmax)


def _check_delta(delta: float) -> None:
    from ostraka import _check

    _check.delta(delta)


def _write(folder: Path, result: Result) -> None:
    from ostraka.cli import _folder

    if (folder / _folder.RESULT).exists() or (folder.exists() and not folder.is_dir()):
        raise typer.BadParameter(f"{folder} holds something already: type --out with another folder")
    folder.mkdir(parents=True, exist_ok=True)
    page: Any = _folder.write_reports(folder, result)
    _folder.write(folder / _folder.RESULT, result.to_json())
    typer.echo(
        f"written to {folder}: {page.name} is for the owner; 'ostraka report {folder} --public' "
        "writes a page that may be passed on",
        err=True,
    )
