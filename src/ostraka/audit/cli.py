"""Output of ``ostraka audit``: text, figures and the exit code.

``ostraka audit``: compare what is seen to leak with what was promised; the exit code is for CI.

Audits of answers in files, and of this library's own mechanisms.

Audits of a training with canaries, from a file of probabilities or scores.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any, get_args
from zipfile import BadZipFile

import typer

from ostraka import console
from ostraka.console import Stages
from ostraka.voters.named import Teacher

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ostraka.audit.bound import Finding
    from ostraka.core.scores import Scores

    Score = Mapping[str, tuple[str, ...]]

EXIT = {"consistent": 0, "violated": 4, "inconclusive": 5}


def tell(
    findings: tuple[Finding, ...],
    *,
    score: Score | None = None,
    figure: Path | None = None,
    as_json: bool,
) -> None:
    """Print the findings, draw them if requested, and exit with the code of the worst verdict."""
    if figure is not None:
        _draw(findings, figure)
    verdict = _worst(findings, score)
    if as_json:
        record = {"verdict": verdict, "findings": [finding.to_dict() for finding in findings]}
        if score is not None:
            planted = [{"defect": name, "detected_by": list(by)} for name, by in score.items()]
            record = {**record, "planted": planted}
        typer.echo(json.dumps(record, indent=2))
    else:
        _print(findings, score)
    raise typer.Exit(EXIT[verdict])


def _draw(findings: tuple[Finding, ...], file: Path) -> None:
    from ostraka.audit.bound import Finding
    from ostraka.report import figures

    drawn = figures.figures(Finding.result(findings))
    if not drawn:
        raise ValueError("there is nothing to draw: a figure needs two orders, or two audits of one kind")
    file.write_text(drawn[0].svg, encoding="utf-8")


def _worst(findings: tuple[Finding, ...], score: Score | None) -> str:
    verdicts = {finding.verdict for finding in findings}
    if "violated" in verdicts:
        return "violated"
    missed = score is not None and not all(score.values())
    return "inconclusive" if "inconclusive" in verdicts or missed else "consistent"


def _print(findings: tuple[Finding, ...], score: Score | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in findings:
        console.print(f"{finding.verdict.upper()}  {finding.name}")
        once = any(m.anew_lower is not None for m in finding.measures)
        heads = ["at least (seen)", "exactly", "at most (promised)"]
        if once:
            anew = "trained anew each time: seen"
            heads = ["trained once: seen", "model", "cap of the model", anew, "model", "promised"]
        table = Table("", *heads, box=None, header_style="")
        for m in finding.measures:
            exact, anew, cap = ("" if v is None else f"{v:.4g}" for v in (m.exact, m.anew_exact, m.cap))
            cells = [_rounded(m.lower, "down"), exact, _rounded(m.upper, "up")]
            if once:
                cells[2:2] = [cap, _rounded(m.anew_lower or 0.0, "down"), anew]
            table.add_row(m.what, *cells)
        console.print(table)
        console.print(f"{finding.sentence}")
        what = "canaries" if "canaries" in finding.name else "trials a world"
        console.print(f"{finding.trials:,} {what}, {finding.method}. {finding.note}\n")
    if score is not None:
        for name, by in score.items():
            console.print(f"{'detected' if by else 'MISSED'}  {name}")
        detected = sum(map(bool, score.values()))
        console.print(f"mutation score: {detected} of {len(score)} planted defects detected")


def _rounded(value: float, direction: str) -> str:
    """Round to four decimals or two digits, lower bounds down and upper bounds up."""
    if not math.isfinite(value):
        return "inf"
    places = max(4, 1 - math.floor(math.log10(value))) if value > 0 else 4
    return f"{(math.floor if direction == 'down' else math.ceil)(value * 10**places) / 10**places:.{places}f}"


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
    same_partition: Annotated[
        bool,
        typer.Option(
            "--same-partition",
            help="Both deployments dealt all other rows to the same teachers, with the same seeds. Else "
            "the verdict is at most inconclusive.",
        ),
    ] = False,
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
    from ostraka.audit.cli_adversaries import audit_urls

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
        same_partition=same_partition,
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
    from ostraka.audit.cli_adversaries import audit_adversaries

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
    from ostraka.audit.library import audit_library, mutation_score

    findings = audit_library(trials=_whole(trials, None))
    tell(findings, score=mutation_score() if planted else None, as_json=as_json)


def _whole(trials: float, until: float | None) -> int:
    if not 1 <= trials <= 1e10 or trials != int(trials):
        raise typer.BadParameter(f"--trials must be a whole number from 1 to 1e10, got {trials:g}")
    if until is not None and not until > 0:
        raise typer.BadParameter(f"--until must be above 0, got {until:g}")
    return int(trials)


def audit_files(
    files: tuple[Path, Path],
    column: str | None,
    *,
    claimed: float,
    delta: float,
    confidence: float,
    group: int,
) -> Finding:
    """Compare two files of answers with a claim."""
    from ostraka.audit.claims import audit_answers

    seen = [_column(file, column) for file in files]
    names = sorted({*seen[0], *seen[1]})
    if len(names) < 2:
        raise ValueError(
            "both files hold one and the same answer only: there is nothing to tell worlds apart by"
        )
    place = {name: number for number, name in enumerate(names)}
    counts = [_tally(labels, place) for labels in seen]
    with console.usage("the claim"):
        return audit_answers(
            *counts, claimed_epsilon=claimed, delta=delta, confidence=confidence, group=group
        )


def _column(file: Path, column: str | None) -> list[str]:
    from ostraka.data import table as tables

    table = tables.read(file, public=True)
    if column is None:
        if len(table.names) != 1:
            raise typer.BadParameter(f"{file} has {len(table.names)} columns: say --column NAME")
        column = table.names[0]
    table.require(column, option="--column")
    return table.text(column)


def _tally(labels: list[str], place: dict[str, int]) -> np.ndarray:
    import numpy as np

    return np.bincount([place[label] for label in labels], minlength=len(place))


def make_mechanism(
    name: str,
    *,
    sigma: float | None,
    scale: float | None,
    at: float | None,
    screen: tuple[float, float] | None = None,
) -> Any:
    """Make the mechanism that the options describe."""
    from ostraka.core.mechanisms.argmax import GNMax, LNMax
    from ostraka.core.mechanisms.screen import Confident, Threshold

    if name == "confident":
        if screen is None or sigma is None:
            raise typer.BadParameter("confident also needs --screen AT SIGMA and --sigma")
        with console.usage(name):
            return Confident(screen=Threshold(at=screen[0], sigma=screen[1]), argmax=GNMax(sigma=sigma))
    needs: dict[str, tuple[Any, dict[str, float | None]]] = {
        "gnmax": (GNMax, {"sigma": sigma}),
        "lnmax": (LNMax, {"scale": scale}),
        "threshold": (Threshold, {"at": at, "sigma": sigma}),
    }
    if name not in needs:
        raise typer.BadParameter(f"the mechanism must be one of {', '.join(needs)}, confident, got {name!r}")
    kind, settings = needs[name]
    missing = [f"--{each}" for each, value in settings.items() if value is None]
    if missing:
        raise typer.BadParameter(f"{name} also needs {' and '.join(missing)}")
    with console.usage(name):
        return kind(**settings)


def audit_votes(
    mechanism: Any,
    votes: tuple[str, str],
    *,
    trials: int,
    confidence: float,
    method: Any,
    until: float | None,
    delta: float | None,
) -> Finding:
    """Audit a mechanism of this library on votes and their neighbour; ``until``: stop early."""
    from ostraka.audit.claims import audit_mechanism
    from ostraka.audit.cuts import Method

    allowed = get_args(Method)
    if method not in allowed:
        raise typer.BadParameter(f"--method must be one of {', '.join(allowed)}, got {method!r}")
    worlds = [_numbers(votes[0], "--votes"), _numbers(votes[1], "--neighbour")]
    with console.usage("--votes, --neighbour"):
        found = audit_mechanism(
            mechanism, *worlds, trials=1000 if until else trials, confidence=confidence, method=method
        )
        if until is not None:
            found = _until(mechanism, worlds, found, trials=trials, until=until, confidence=confidence)
    with console.usage("--delta"):
        return found if delta is None else _illustrated(found, delta)


def _until(
    mechanism: Any, worlds: list[list[float]], exact: Finding, *, trials: int, until: float, confidence: float
) -> Finding:
    """Sample until a share of the promise is seen to leak; ``exact`` holds the exact leakage."""
    from ostraka.audit.claims import audit_until, sample_outcomes

    with Stages({"answers": "answers in each world"}) as tell:
        found = audit_until(
            *(partial(_drawn, sample_outcomes, mechanism, world) for world in worlds),
            promise=mechanism.curve(),
            wanted=until,
            max_trials=trials,
            confidence=confidence,
            progress=lambda done, most: tell("answers", done, most),
        )
        tell("answers", found.trials, found.trials)
    known = {m.what: m.exact for m in exact.measures}
    measures = tuple(replace(m, exact=known[m.what]) for m in found.measures)
    return replace(found, name=exact.name, measures=measures)


def _drawn(sample: Any, mechanism: Any, world: list[float], n: int) -> np.ndarray:
    counts: np.ndarray = sample(mechanism, world, trials=n)
    return counts


def _illustrated(found: Finding, delta: float) -> Finding:
    """Add a line with the epsilon to which each column would convert, in one way, were it an upper bound."""
    from ostraka.audit.bound import Measure
    from ostraka.audit.claims import AUDIT_ORDERS
    from ostraka.core.curve import Curve

    def converted(values: list[float]) -> float:
        return Curve(AUDIT_ORDERS, tuple(values)).epsilon(delta)

    line = Measure(
        what=f"epsilon at delta {delta:g} (illustration, no lower bound)",
        upper=converted([m.upper for m in found.measures]),
        exact=converted([m.exact or 0.0 for m in found.measures]),
        lower=converted([m.lower for m in found.measures]),
    )
    return replace(found, measures=(*found.measures, line)) if found.measures else found


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, such as 14,12,10") from None


_LABELS, _INCLUSION = ("probabilities", "trained", "decoys"), ("members", "others")


def audit_file(
    file: Path,
    *,
    claimed: float | None,
    claimed_mu: float | None,
    delta: float,
    confidence: float,
    at: float | None,
    guesses: int | None,
) -> Finding:
    """Compare a game about the labels of canaries, or about their inclusion, with the claim."""
    from ostraka.audit.one_run import audit_canaries
    from ostraka.core.curve import Curve

    if (claimed is None) == (claimed_mu is None):
        raise typer.BadParameter("the claim must be either --claimed-epsilon or --claimed-mu")
    arrays = _read(file)
    claim: dict[str, Any] = {"claimed_epsilon": claimed, "at": at, "guesses": guesses}
    if "members" in arrays:
        from ostraka.core.scores import Scores

        scores = Scores.of(members=arrays["members"], others=arrays["others"])
        claim["game"] = "inclusion"
    else:
        scores = _label_scores(file, arrays)
        claim["game"] = "labels"
    with console.usage("the claim"):
        if claimed_mu is not None:
            claim["curve"] = Curve.gaussian(sensitivity=claimed_mu, sigma=1.0)
        return audit_canaries(scores, delta=delta, confidence=confidence, **claim)


def _label_scores(file: Path, arrays: dict[str, np.ndarray]) -> Scores:
    import numpy as np

    from ostraka.audit.attacks.canaries import Canaries

    probabilities, trained, decoys = (arrays[name] for name in _LABELS)
    if probabilities.ndim != 2:
        raise ValueError(
            f"{file}: probabilities must be of shape (n_canaries, n_classes), got {probabilities.shape}"
        )
    planted = Canaries(
        positions=np.arange(trained.size),
        labels=trained,
        decoys=decoys[:, None] if decoys.ndim == 1 else decoys,
        n_classes=probabilities.shape[1],
    )
    return planted.scores(probabilities)


def _read(file: Path) -> dict[str, np.ndarray]:
    import numpy as np

    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in (*_LABELS, *_INCLUSION) if name in saved}
    except (ValueError, BadZipFile, EOFError, AttributeError, TypeError):
        raise ValueError(
            f"{file} must hold plain numbers, written by numpy.savez(…, probabilities=…, trained=…, "
            "decoys=…) or numpy.savez(…, members=…, others=…)"
        ) from None
    wanted = _INCLUSION if "members" in arrays or "others" in arrays else _LABELS
    if missing := [name for name in wanted if name not in arrays]:
        raise ValueError(f"{file} has no array named {' and none named '.join(missing)}")
    return arrays
