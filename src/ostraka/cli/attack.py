"""``ostraka attack``: measure what a log of answers reveals."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli import _errors

if TYPE_CHECKING:
    from ostraka.attacks.attributes import ConsensusTest
    from ostraka.attacks.histogram import RecoveredVotes
    from ostraka.audits.finding import Finding
    from ostraka.cli._answers import AnswerLog
    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.scores import Scores

__all__ = ["app"]

app = typer.Typer(
    help="Attack a log of answers, a model, a generator or a collaboration. With a claim, exit code 0: "
    "consistent, 4: violated, 5: inconclusive."
)


class Kind(enum.StrEnum):
    """The mechanism that gave the answers."""

    GNMAX = "gnmax"
    LNMAX = "lnmax"


class Method(enum.StrEnum):
    """The method that recovers votes."""

    POSTERIOR = "posterior"
    LIKELIHOOD = "maximum-likelihood"
    WANG2022 = "wang2022"


_FILE = typer.Argument(metavar="FILE", help="The log, CSV or Parquet: one row an answer.", show_default=False)
_TEACHERS = typer.Option(help="How many there are. Default: unknown, votes are relative.", metavar="N", min=1)
_MECHANISM = typer.Option(help="The mechanism that gave the answers.")
_SIGMA = typer.Option(help="Gaussian noise, in votes. Needed for gnmax.", metavar="VOTES")
_SCALE = typer.Option(help="Laplace scale, in votes. Needed for lnmax.", metavar="VOTES")
_SCREEN = typer.Option(
    help="Questions were answered where a noisy plurality reached AT votes (gnmax).", metavar="AT SIGMA"
)
_CLASSES = typer.Option(help="How many there are, or A,B,… Default: those in the log.", metavar="N|A,B")
_QUERY = typer.Option(help="Column that says which question it was.", metavar="COLUMN")
_LABEL = typer.Option(help="Column with the answer; -1 where there was none.", metavar="COLUMN")
_METHOD = typer.Option(help="The method that recovers votes.")
_JSON = typer.Option("--json", help="Print JSON on stdout.")
_SAVED = typer.Argument(metavar="FILE", help="An .npz file of plain arrays.", show_default=False)
_DEFENDED = typer.Option(
    "--defended", help="The same of a defended model; may be repeated.", metavar="NAME=FILE"
)
_REPORT = typer.Option(
    "--report", help="HTML page with the curves and the most suspected rows.", metavar="FILE"
)
_ROWS = typer.Option("--rows", help="How many suspected rows are on the page.", metavar="N", min=0)
_CLAIM = typer.Option("--claimed-epsilon", help="The claim to compare with.", metavar="NATS")
_DELTA = typer.Option("--delta", help="The delta of the claim.", metavar="P")


class Statistic(enum.StrEnum):
    """The statistic by which rows are scored."""

    HIERARCHICAL = "hierarchical"
    LIRA = "lira"
    LIRA_FIXED = "lira-fixed"
    RMIA = "rmia"
    STUDENT_T = "student-t"
    LOSS = "loss"


@app.command()
def votes(
    answers: Annotated[Path, _FILE],
    *,
    teachers: Annotated[int | None, _TEACHERS] = None,
    mechanism: Annotated[Kind, _MECHANISM] = Kind.GNMAX,
    sigma: Annotated[float | None, _SIGMA] = None,
    scale: Annotated[float | None, _SCALE] = None,
    screen: Annotated[tuple[float, float] | None, _SCREEN] = None,
    classes: Annotated[str | None, _CLASSES] = None,
    query: Annotated[str, _QUERY] = "query",
    label: Annotated[str, _LABEL] = "label",
    method: Annotated[Method, _METHOD] = Method.POSTERIOR,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Recover the teachers' votes on each question from how often it got each label."""
    ballot = _ballot(mechanism, sigma=sigma, scale=scale, screen=screen)
    from ostraka.cli import _answers

    log = _answers.read(answers, query=query, label=label, classes=classes, screened=screen is not None)
    found = _recovered(log, ballot, teachers, method)
    if as_json:
        typer.echo(json.dumps(_plain(log, found, ballot, teachers), indent=2))
    else:
        _print_votes(log, found)


@app.command()
def attributes(
    answers: Annotated[Path, _FILE],
    *,
    members: Annotated[
        Path,
        typer.Option(help="Table that says which query is about a member of the group.", metavar="FILE"),
    ],
    teachers: Annotated[int, typer.Option(help="How many there are.", metavar="N", min=1)],
    member: Annotated[str, typer.Option(help="Column of that table: 1 or 0.", metavar="COLUMN")] = "member",
    at: Annotated[
        float, typer.Option(help="Agreement below which somebody is called a member.", metavar="SHARE")
    ] = 0.75,
    mechanism: Annotated[Kind, _MECHANISM] = Kind.GNMAX,
    sigma: Annotated[float | None, _SIGMA] = None,
    scale: Annotated[float | None, _SCALE] = None,
    screen: Annotated[tuple[float, float] | None, _SCREEN] = None,
    classes: Annotated[str | None, _CLASSES] = None,
    query: Annotated[str, _QUERY] = "query",
    label: Annotated[str, _LABEL] = "label",
    method: Annotated[Method, _METHOD] = Method.POSTERIOR,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Infer who belongs to a group from how little the teachers agree, and score the guesses."""
    ballot = _ballot(mechanism, sigma=sigma, scale=scale, screen=screen)
    if not 0 < at < 1:
        raise typer.BadParameter(f"--at must be > 0 and < 1, got {at!r}")
    import numpy as np

    from ostraka.attacks import consensus_test
    from ostraka.cli import _answers

    log = _answers.read(answers, query=query, label=label, classes=classes, screened=screen is not None)
    member_of = _answers.read_members(members, query=query, member=member, queries=log.queries)
    found = _recovered(log, ballot, teachers, method)
    recovered = np.array([one.mean for one in found]).clip(min=0)
    test = consensus_test(recovered, member_of, at=at)
    if as_json:
        low = (recovered.max(axis=1) / recovered.sum(axis=1) < at).tolist()
        called = dict(zip(log.queries, low, strict=True))
        typer.echo(json.dumps({**_rates(test), "called_member": called}, indent=2))
    else:
        _print_test(test)


@app.command()
def membership(
    file: Annotated[Path, _SAVED],
    *,
    method: Annotated[
        Statistic, typer.Option(help="Choose it before you see the rates.")
    ] = Statistic.HIERARCHICAL,
    defended: Annotated[list[str] | None, _DEFENDED] = None,
    claimed_epsilon: Annotated[float | None, _CLAIM] = None,
    delta: Annotated[float, _DELTA] = 1e-5,
    report: Annotated[Path | None, _REPORT] = None,
    rows: Annotated[int, _ROWS] = 20,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Infer who was in a model's training data, from confidences of reference models."""
    from ostraka.cli import _attack_output
    from ostraka.cli._attack_scores import attack_membership

    attacked = {
        name: attack_membership(path, method=method.value) for name, path in _files(file, defended).items()
    }
    finding = _finding(attacked["target"].scores, claimed_epsilon, delta)
    _attack_output.tell("membership", attacked, finding=finding, report=report, rows=rows, as_json=as_json)


@app.command()
def generator(
    file: Annotated[Path, _SAVED],
    *,
    defended: Annotated[list[str] | None, _DEFENDED] = None,
    claimed_epsilon: Annotated[float | None, _CLAIM] = None,
    delta: Annotated[float, _DELTA] = 1e-5,
    report: Annotated[Path | None, _REPORT] = None,
    rows: Annotated[int, _ROWS] = 20,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Infer who was in a generator's training data, from its discriminator or its samples."""
    from ostraka.cli import _attack_output
    from ostraka.cli._attack_scores import attack_generator

    attacked = {name: attack_generator(path) for name, path in _files(file, defended).items()}
    finding = _finding(attacked["target"].scores, claimed_epsilon, delta)
    _attack_output.tell("generator", attacked, finding=finding, report=report, rows=rows, as_json=as_json)


@app.command("property")
def property_(
    file: Annotated[Path, _SAVED],
    *,
    defended: Annotated[list[str] | None, _DEFENDED] = None,
    seed: Annotated[int, typer.Option(help="Of the forest.", metavar="N", min=0)] = 0,
    report: Annotated[Path | None, _REPORT] = None,
    rows: Annotated[int, _ROWS] = 20,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Infer in which rounds of a collaboration others' batches had a property, from changes."""
    from ostraka.cli import _attack_output
    from ostraka.cli._attack_scores import attack_property

    attacked = {name: attack_property(path, seed=seed) for name, path in _files(file, defended).items()}
    _attack_output.tell("property", attacked, finding=None, report=report, rows=rows, as_json=as_json)


def _files(file: Path, defended: list[str] | None) -> dict[str, Path]:
    """Return the files of the target and of the defended models, by name."""
    found = {"target": file}
    for each in defended or []:
        name, equals, path = each.partition("=")
        if not (name and equals and path) or name in found:
            raise typer.BadParameter(f"--defended must be NAME=FILE with a new name, got {each!r}")
        found[name] = Path(path)
    return found


def _finding(scores: Scores, claimed: float | None, delta: float) -> Finding | None:
    if claimed is None:
        return None
    from ostraka.audits import audit_canaries

    with _errors.usage("--claimed-epsilon"):
        return audit_canaries(scores, claimed_epsilon=claimed, delta=delta)


def _ballot(
    kind: Kind, *, sigma: float | None, scale: float | None, screen: tuple[float, float] | None
) -> BallotMechanism:
    from ostraka import Confident, GNMax, LNMax, Threshold

    wanted, other, name = (scale, sigma, "scale") if kind is Kind.LNMAX else (sigma, scale, "sigma")
    if wanted is None or other is not None:
        raise typer.BadParameter(f"--mechanism {kind} needs --{name} VOTES, and no other noise")
    if kind is Kind.LNMAX:
        if screen is not None:
            raise typer.BadParameter("--mechanism lnmax takes no --screen")
        with _errors.usage("--scale"):
            return LNMax(scale=wanted)
    with _errors.usage("--sigma"):
        argmax = GNMax(sigma=wanted)
    if screen is None:
        return argmax
    with _errors.usage("--screen"):
        return Confident(screen=Threshold(at=screen[0], sigma=screen[1]), argmax=argmax)


def _recovered(
    log: AnswerLog, ballot: BallotMechanism, teachers: int | None, method: Method
) -> list[RecoveredVotes]:
    from ostraka.attacks import recover_votes
    from ostraka.cli._progress import Stages

    found: list[RecoveredVotes] = []
    with Stages({"recover": "questions"}) as stages:
        for row in log.answers:
            found.append(recover_votes(row, n_teachers=teachers, mechanism=ballot, method=method.value))
            stages("recover", len(found), len(log.answers))
    return found


def _plain(
    log: AnswerLog, found: list[RecoveredVotes], ballot: BallotMechanism, teachers: int | None
) -> dict[str, Any]:
    import numpy as np

    def numbers(values: np.ndarray) -> list[float | None]:
        return [float(value) if np.isfinite(value) else None for value in values]

    questions = [
        {
            "query": name,
            "answers": row.tolist(),
            "mean": numbers(one.mean),
            "lower": numbers(one.lower),
            "upper": numbers(one.upper),
            "mode": one.mode.tolist(),
            "note": one.note,
        }
        for name, row, one in zip(log.queries, log.answers, found, strict=True)
    ]
    return {
        "mechanism": repr(ballot),
        "n_teachers": teachers,
        "classes": list(log.classes),
        "method": found[0].method,
        "relative": found[0].relative,
        "queries": questions,
    }


def _print_votes(log: AnswerLog, found: list[RecoveredVotes]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("query", "answers", *log.classes, box=None, header_style="")
    for name, row, one in zip(log.queries, log.answers, found, strict=True):
        cells = [
            f"{mean:.1f}" if low != low else f"{mean:.1f} ({low:.0f}–{high:.0f})"  # noqa: PLR0124  (NaN)
            for mean, low, high in zip(one.mean, one.lower, one.upper, strict=True)
        ]
        table.add_row(name, f"{row.sum():,}", *cells)
    Console(highlight=False, markup=False).print(table)
    kind = "relative to the mean count" if found[0].relative else "votes"
    typer.echo(f"{kind}: estimate and 95 % interval, by {found[0].method}")
    for note in sorted({one.note for one in found if one.note}):
        typer.echo(f"note: {note}", err=True)


def _rates(test: ConsensusTest) -> dict[str, Any]:
    return {
        "precision_balanced": test.precision,
        "recall": test.recall,
        "false_alarm": test.false_alarm,
        "at": test.at,
        "n_members": test.n_members,
        "n_others": test.n_others,
        "advantage": test.scores.advantage(),
    }


def _print_test(test: ConsensusTest) -> None:
    typer.echo(f"below {test.at:.0%} agreement: {test.recall:.1%} of {test.n_members} members")
    typer.echo(f"                     {test.false_alarm:.1%} of {test.n_others} others")
    right = "nobody was called a member" if test.precision is None else f"{test.precision:.1%}"
    typer.echo(f"called a member and is one, with as many members as others: {right}")
