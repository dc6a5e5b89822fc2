"""``ostraka account``: the cost of answers to given votes by every bound, and the costliest questions."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (a verb reads the types of its options)

import click

from ostraka import console
from ostraka.console import argument, option, verb


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
    from ostraka.core.mechanisms.law import payments
    from ostraka.core.mechanisms.screen import AgainstGuesses, Confident
    from ostraka.report import folder

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
    if (typed.guesses is not None) != (typed.mechanism is Kind.INTERACTIVE):
        raise click.UsageError("--guesses FILE and --mechanism interactive need each other")
    if typed.guesses is not None:  # Interactive-GNMax asks its screen of votes less guesses
        guesses = record.read_guesses(typed.guesses, shape=cast.counts.shape)
        screen, argmax = payments(ballot)
        n_teachers = math.ceil(cast.counts.sum(axis=1).max(initial=1))
        gate = AgainstGuesses(mechanism=screen, guesses=guesses, n_teachers=n_teachers)
        ballot = Confident(screen=gate, argmax=argmax)
    result = record.record(
        ballot,
        cast,
        answers_per_query=typed.answers_per_query,
        delta=typed.delta,
        data=str(typed.votes),
    )
    if typed.out is not None:
        out = typed.out
        if (out / folder.RESULT).exists() or (out.exists() and not out.is_dir()):
            raise click.UsageError(f"{out} holds something already: type --out with another folder")
        out.mkdir(parents=True, exist_ok=True)
        page = folder.write_reports(out, result)
        folder.write(out / folder.RESULT, result.to_json())
        click.echo(
            f"written to {out}: {page.name} is for the owner; 'ostraka report {out} --public' "
            "writes a page that may be passed on",
            err=True,
        )
    if typed.as_json:
        click.echo((result if typed.owner else result.public()).to_json())
    else:
        record.show(result, cast.queries, costliest=typed.costliest)
