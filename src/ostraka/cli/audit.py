"""``ostraka audit``: compare what is seen to leak with what was promised; the exit code is for CI."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import Annotated

import typer

from ostraka.cli._audit_output import tell
from ostraka.cli._models import Teacher

__all__ = ["app"]

app = typer.Typer(
    help="Compare what is seen to leak with what was promised. Exit code 0: consistent, 4: violated, "
    "5: inconclusive."
)

_EPSILON = typer.Option("--claimed-epsilon", help="The claim.", metavar="NATS", show_default=False)
_DELTA = typer.Option("--delta", help="The delta of the claim.", metavar="P", show_default=False)
_SHOWN_DELTA = typer.Option(
    "--delta",
    help="Also show each number converted to epsilon at this delta, as an illustration.",
    metavar="P",
)
_CONFIDENCE = typer.Option("--confidence", help="Probability that the lower bound holds.", metavar="P")
_TRIALS = typer.Option("--trials", help="Answers to draw in each world, such as 1e6.", metavar="N")
_SIGMA = typer.Option("--sigma", help="Gaussian noise, in votes.", metavar="VOTES")
_SCALE = typer.Option("--scale", help="Laplace noise of lnmax, in votes.", metavar="VOTES")
_AT = typer.Option("--at", help="Where the threshold lies, in votes.", metavar="VOTES")
_SCREEN = typer.Option(
    "--screen", help="For confident: answer where a noisy plurality reaches AT votes.", metavar="AT SIGMA"
)
_UNTIL = typer.Option(
    "--until", help="Stop as soon as this share of the promise is seen to leak, such as 0.9.", metavar="SHARE"
)
_FIGURE = typer.Option("--figure", help="SVG file to draw the promise, the exact value and the bound.")
_JSON = typer.Option("--json", help="Print JSON on stdout.")


@app.command()
def mechanism(
    name: Annotated[str, typer.Argument(metavar="NAME", help="gnmax, lnmax, threshold or confident.")],
    *,
    votes: Annotated[
        str, typer.Option(help="Votes of each class, such as 14,12,10.", metavar="COUNTS", show_default=False)
    ],
    neighbour: Annotated[
        str,
        typer.Option(
            help="The same with one ballot moved, such as 13,13,10.", metavar="COUNTS", show_default=False
        ),
    ],
    sigma: Annotated[float | None, _SIGMA] = None,
    scale: Annotated[float | None, _SCALE] = None,
    at: Annotated[float | None, _AT] = None,
    screen: Annotated[tuple[float, float] | None, _SCREEN] = None,
    trials: Annotated[float, _TRIALS] = 1e6,
    method: Annotated[str, typer.Option(help="k-cut, 2-cut or 2-cut-anytime.", metavar="NAME")] = "k-cut",
    until: Annotated[float | None, _UNTIL] = None,
    delta: Annotated[float | None, _SHOWN_DELTA] = None,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    figure: Annotated[Path | None, _FIGURE] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Sample a mechanism of this library in two neighbouring worlds."""
    from ostraka.cli._audit_local import audit_votes, make_mechanism

    n_trials = _whole(trials, until)
    made = make_mechanism(name, sigma=sigma, scale=scale, at=at, screen=screen)
    finding = audit_votes(
        made,
        (votes, neighbour),
        trials=n_trials,
        confidence=confidence,
        method=method,
        until=until,
        delta=delta,
    )
    tell((finding,), figure=figure, as_json=as_json)


@app.command()
def answers(
    with_target: Annotated[
        Path, typer.Argument(metavar="WITH", help="Answers seen with the target: CSV or Parquet, one a row.")
    ],
    without_target: Annotated[Path, typer.Argument(metavar="WITHOUT", help="Answers seen without it.")],
    *,
    claimed_epsilon: Annotated[float, _EPSILON],
    delta: Annotated[float, _DELTA],
    column: Annotated[
        str | None, typer.Option(help="Column of the answers, where the files have several.", metavar="NAME")
    ] = None,
    group: Annotated[
        int, typer.Option(help="Units in which the two files differ; the bound is for one.", metavar="N")
    ] = 1,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Compare two files of answers of a black box with a claim."""
    from ostraka.cli._audit_local import audit_files

    finding = audit_files(
        (with_target, without_target),
        column,
        claimed=claimed_epsilon,
        delta=delta,
        confidence=confidence,
        group=group,
    )
    tell((finding,), as_json=as_json)


@app.command()
def deployment(
    url: Annotated[str, typer.Argument(metavar="URL", help="A deployment whose data hold the target.")],
    neighbour_url: Annotated[str, typer.Argument(metavar="NEIGHBOUR", help="The same, without the target.")],
    *,
    question: Annotated[
        Path,
        typer.Option(
            help="The row to ask repeatedly: a JSON list or a CSV file.", metavar="FILE", show_default=False
        ),
    ],
    claimed_epsilon: Annotated[float, _EPSILON],
    delta: Annotated[float, _DELTA],
    trials: Annotated[float, _TRIALS] = 10_000,
    until: Annotated[float, _UNTIL] = 1.0,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    key_variable: Annotated[
        str,
        typer.Option(help="Environment variable that holds the key, sent as a bearer token.", metavar="NAME"),
    ] = "OSTRAKA_AUDIT_KEY",
    record: Annotated[
        Path | None,
        typer.Option(
            help="CSV file that keeps every answer; the same command goes on from it.", metavar="FILE"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows in a request.", metavar="N")] = 100,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second at most, to each deployment.", metavar="N")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Ask two deployments over HTTP the same question."""
    from ostraka.cli._audit_url import audit_urls

    finding = audit_urls(
        (url, neighbour_url),
        question,
        claimed=claimed_epsilon,
        delta=delta,
        trials=_whole(trials, until),
        wanted=until,
        confidence=confidence,
        key_variable=key_variable,
        record=record,
        batch=batch,
        rate=rate,
    )
    tell((finding,), as_json=as_json)


@app.command()
def adversaries(
    private: Annotated[Path, typer.Argument(metavar="FILE", help="Rows to learn from: CSV or Parquet.")],
    *,
    label: Annotated[str, typer.Option(help="The column to learn.", metavar="COLUMN", show_default=False)],
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.", metavar="COLUMN")
    ] = None,
    mechanism_name: Annotated[
        str, typer.Option("--mechanism", help="gnmax, lnmax or confident.", metavar="NAME")
    ] = "gnmax",
    sigma: Annotated[float | None, _SIGMA] = None,
    scale: Annotated[float | None, _SCALE] = None,
    screen: Annotated[tuple[float, float] | None, _SCREEN] = None,
    teacher: Annotated[Teacher, typer.Option(help="What is trained on each shard.")] = Teacher.AUTO,
    teachers: Annotated[int, typer.Option(help="Number of shards.", metavar="N")] = 50,
    trainings: Annotated[
        int, typer.Option(help="Trainings from which the laws of the ballots are estimated.", metavar="N")
    ] = 10,
    questions: Annotated[int, typer.Option(help="Held-out rows to ask about.", metavar="N")] = 10,
    trials: Annotated[float, _TRIALS] = 1e8,
    delta: Annotated[float | None, _SHOWN_DELTA] = None,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the trainings and the trials.")] = 0,
    figure: Annotated[Path | None, _FIGURE] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Play every adversary against teachers of your own data."""
    from ostraka.cli._audit_adversaries import audit_adversaries
    from ostraka.cli._audit_local import make_mechanism

    findings = audit_adversaries(
        private,
        label=label,
        drop=drop or [],
        teacher=teacher,
        mechanism=make_mechanism(mechanism_name, sigma=sigma, scale=scale, at=None, screen=screen),
        n_teachers=teachers,
        n_trainings=trainings,
        n_questions=questions,
        trials=_whole(trials, None),
        confidence=confidence,
        delta=delta,
        seed=seed,
    )
    tell(findings, figure=figure, as_json=as_json)


@app.command()
def canaries(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An .npz file: probabilities, trained and decoys; or scores of members and others.",
        ),
    ],
    *,
    claimed_epsilon: Annotated[float | None, _EPSILON] = None,
    claimed_mu: Annotated[
        float | None, typer.Option(help="The claim is Gaussian differential privacy.", metavar="MU")
    ] = None,
    delta: Annotated[float, _DELTA] = 0.0,
    at: Annotated[
        float | None, typer.Option(help="Labels: confidence below which nothing is guessed.", metavar="P")
    ] = None,
    guesses: Annotated[
        int | None, typer.Option(help="How many to guess, fixed before they were seen.", metavar="N")
    ] = None,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Compare canaries in a training, with other labels or in or out, with the claim."""
    from ostraka.cli._audit_canaries import audit_file

    finding = audit_file(
        file,
        claimed=claimed_epsilon,
        claimed_mu=claimed_mu,
        delta=delta,
        confidence=confidence,
        at=at,
        guesses=guesses,
    )
    tell((finding,), as_json=as_json)


@app.command()
def library(
    *,
    trials: Annotated[float, _TRIALS] = 1e6,
    planted: Annotated[
        bool, typer.Option("--planted", help="Audit broken builds, too, and count how many are detected.")
    ] = False,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Audit this installation: noise, price, shards, door and ledger."""
    from ostraka.audits import audit_library
    from ostraka.audits.planted import mutation_score

    findings = audit_library(trials=_whole(trials, None))
    tell(findings, score=mutation_score() if planted else None, as_json=as_json)


def _whole(trials: float, until: float | None) -> int:
    if not 1 <= trials <= 1e10 or trials != int(trials):
        raise typer.BadParameter(f"--trials must be a whole number from 1 to 1e10, got {trials:g}")
    if until is not None and not until > 0:
        raise typer.BadParameter(f"--until must be above 0, got {until:g}")
    return int(trials)
