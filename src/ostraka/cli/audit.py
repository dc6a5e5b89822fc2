"""``ostraka audit``: whether a promise is kept, with an exit code for CI."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli._models import Teacher

if TYPE_CHECKING:
    from ostraka.audits import Finding

__all__ = ["audit"]

_ONE_OF = (
    "type one of --mechanism gnmax --sigma 40 --votes … --neighbour …, "
    "--with a.csv --without b.csv --claimed-epsilon 3 --delta 1e-5, "
    "--url https://… --neighbour-url https://… --question row.json, "
    "--adversaries private.csv --label COLUMN --sigma 40, "
    "--canaries model.npz --claimed-epsilon 3, or --library"
)

EXIT = {"consistent": 0, "violated": 4, "inconclusive": 5}

_WITH = typer.Option("--with", help="Answers seen with the target: a CSV or Parquet file, one a row.")
_WITHOUT = typer.Option("--without", help="Answers seen without it.")
_COLUMN = typer.Option("--column", help="Column of the answers, where the files have several.")
_CLAIMED = typer.Option("--claimed-epsilon", help="The epsilon that was claimed for the answers.")
_DELTA = typer.Option(
    "--delta", help="The delta of the claim; with --mechanism, of an illustration in epsilon."
)
_MECHANISM = typer.Option("--mechanism", help="gnmax, lnmax or threshold, sampled by this library.")
_SIGMA = typer.Option("--sigma", help="Noise of gnmax and threshold, in votes.")
_SCALE = typer.Option("--scale", help="Noise of lnmax, in votes.")
_AT = typer.Option(
    "--at",
    help="Where the threshold lies, in votes; with --canaries, the confidence below which none is guessed.",
)
_VOTES = typer.Option("--votes", help="Votes of each class, such as 14,12,10.")
_NEIGHBOUR = typer.Option("--neighbour", help="The same with one ballot moved, such as 13,13,10.")
_TRIALS = typer.Option("--trials", help="Answers to draw in each world, such as 1e6.")
_CONFIDENCE = typer.Option("--confidence", help="Probability that the lower bound holds.")
_METHOD = typer.Option("--method", help="How the lower bound is found: k-cut, 2-cut, ...")
_ADVERSARIES = typer.Option(
    "--adversaries", help="Rows to learn from: play every adversary against teachers."
)
_CANARIES = typer.Option(
    "--canaries", help="What a model says of its canaries: an .npz file of probabilities, trained and decoys."
)
_LABEL = typer.Option("--label", help="The column to learn, with --adversaries.")
_DROP = typer.Option("--drop", help="A column to leave out; may be repeated.")
_TEACHER = typer.Option("--teacher", help="What is trained on each shard.")
_TEACHERS = typer.Option("--teachers", help="Number of shards.")
_TRAININGS = typer.Option("--trainings", help="Trainings to learn from how teachers vote.")
_QUESTIONS = typer.Option("--questions", help="Held-out rows to ask about.")
_SEED = typer.Option("--seed", help="Of the trainings and the trials.")
_FIGURE = typer.Option("--figure", help="SVG file to draw what was promised, is exact and was seen.")
_LIBRARY = typer.Option("--library", help="Audit this installation: noise, price, shards, door, ledger.")
_GROUP = typer.Option("--group", help="Units in which the two files differ; the bound is for one of them.")
_UNTIL = typer.Option(
    "--until", help="Stop as soon as this share of the promise is seen to leak, such as 0.9."
)
_URL = typer.Option("--url", help="A deployment whose data hold the target: it labels rows over HTTP.")
_NEIGHBOUR_URL = typer.Option("--neighbour-url", help="The same, without the target.")
_QUESTION = typer.Option("--question", help="The row to ask, again and again: a JSON list or a CSV file.")
_KEY = typer.Option("--key-variable", help="Environment variable that holds the key, sent as a bearer token.")
_RECORD = typer.Option("--record", help="CSV file that keeps every answer; the same command goes on from it.")
_BATCH = typer.Option("--batch", help="Rows in a request.")
_RATE = typer.Option("--rate", help="Requests a second at most, to each deployment.")
_PLANTED = typer.Option("--planted", help="Audit broken builds, too, and count how many are detected.")


def audit(
    *,
    with_file: Annotated[Path | None, _WITH] = None,
    without_file: Annotated[Path | None, _WITHOUT] = None,
    column: Annotated[str | None, _COLUMN] = None,
    claimed_epsilon: Annotated[float | None, _CLAIMED] = None,
    delta: Annotated[float | None, _DELTA] = None,
    mechanism: Annotated[str | None, _MECHANISM] = None,
    sigma: Annotated[float | None, _SIGMA] = None,
    scale: Annotated[float | None, _SCALE] = None,
    at: Annotated[float | None, _AT] = None,
    votes: Annotated[str | None, _VOTES] = None,
    neighbour: Annotated[str | None, _NEIGHBOUR] = None,
    trials: Annotated[float | None, _TRIALS] = None,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    method: Annotated[str, _METHOD] = "k-cut",
    group: Annotated[int, _GROUP] = 1,
    until: Annotated[float | None, _UNTIL] = None,
    url: Annotated[str | None, _URL] = None,
    neighbour_url: Annotated[str | None, _NEIGHBOUR_URL] = None,
    question: Annotated[Path | None, _QUESTION] = None,
    key_variable: Annotated[str, _KEY] = "OSTRAKA_AUDIT_KEY",
    record: Annotated[Path | None, _RECORD] = None,
    batch: Annotated[int, _BATCH] = 100,
    rate: Annotated[float | None, _RATE] = None,
    adversaries: Annotated[Path | None, _ADVERSARIES] = None,
    canaries: Annotated[Path | None, _CANARIES] = None,
    label: Annotated[str | None, _LABEL] = None,
    drop: Annotated[list[str] | None, _DROP] = None,
    teacher: Annotated[Teacher, _TEACHER] = Teacher.AUTO,
    teachers: Annotated[int, _TEACHERS] = 50,
    trainings: Annotated[int, _TRAININGS] = 10,
    questions: Annotated[int, _QUESTIONS] = 10,
    seed: Annotated[int, _SEED] = 0,
    figure: Annotated[Path | None, _FIGURE] = None,
    library: Annotated[bool, _LIBRARY] = False,
    planted: Annotated[bool, _PLANTED] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Hold a promise against what is seen. Exit code 0: consistent, 4: violated, 5: inconclusive."""
    from ostraka.cli._audit_adversaries import audit_adversaries
    from ostraka.cli._audit_canaries import audit_file
    from ostraka.cli._audit_local import audit_files, audit_votes, make_mechanism
    from ostraka.cli._audit_url import audit_urls

    remote = url is not None or neighbour_url is not None
    usual = 10_000 if remote else 1e6 if adversaries is None else 1e8
    n_trials = _whole(usual if trials is None else trials, until)
    files = (with_file, without_file)
    if [
        mechanism is not None or adversaries is not None,
        files != (None, None),
        library or planted,
        remote,
        canaries is not None,
    ].count(True) != 1:
        raise typer.BadParameter(_ONE_OF)
    score: list[dict[str, Any]] | None = None
    how: dict[str, Any]
    who: dict[str, Any]
    trained: dict[str, Any]
    claim: dict[str, Any] = {"claimed": claimed_epsilon, "delta": delta, "confidence": confidence}
    if library or planted:
        from ostraka.audits import audit_library, mutation_score

        findings = audit_library(trials=n_trials)
        if planted:
            score = [{"defect": name, "detected_by": list(by)} for name, by in mutation_score().items()]
    elif remote:
        how = {"key_variable": key_variable, "record": record, "batch": batch, "rate": rate}
        urls = (url, neighbour_url)
        findings = (audit_urls(urls, question, trials=n_trials, wanted=until or 1.0, **claim, **how),)
    elif canaries is not None:
        findings = (audit_file(canaries, at=at, **claim),)
    elif adversaries is not None:
        made = make_mechanism(mechanism or "gnmax", sigma=sigma, scale=scale, at=at)
        how = {"n_teachers": teachers, "n_trainings": trainings, "n_questions": questions, "seed": seed}
        who = {"label": label, "drop": drop or [], "teacher": teacher, "mechanism": made}
        trained = {"trials": n_trials, "confidence": confidence, "delta": delta}
        findings = audit_adversaries(adversaries, **who, **how, **trained)
    elif mechanism is None:
        findings = (audit_files(files, column, group=group, **claim),)
    else:
        made = make_mechanism(mechanism, sigma=sigma, scale=scale, at=at)
        worlds = (votes, neighbour)
        how = {"confidence": confidence, "method": method, "until": until, "delta": delta}
        findings = (audit_votes(made, worlds, trials=n_trials, **how),)
    if figure is not None:
        _draw(findings, figure)
    _tell(findings, score, as_json=as_json)


def _whole(trials: float, until: float | None) -> int:
    if not 1 <= trials <= 1e10 or trials != int(trials):
        raise typer.BadParameter(f"--trials must be a whole number from 1 to 1e10, got {trials:g}")
    if until is not None and not until > 0:
        raise typer.BadParameter(f"--until must be above 0, got {until:g}")
    return int(trials)


def _draw(findings: tuple[Finding, ...], file: Path) -> None:
    from ostraka import plots
    from ostraka.audits import Finding

    drawn = plots.figures(Finding.result(findings))
    if not drawn:
        raise ValueError("there is nothing to draw: a figure needs two orders, or two audits of one kind")
    file.write_text(drawn[0].svg, encoding="utf-8")


def _tell(findings: tuple[Finding, ...], score: list[dict[str, Any]] | None, *, as_json: bool) -> None:
    verdict = _worst(findings, score)
    if as_json:
        told = {"verdict": verdict, "findings": [finding.to_dict() for finding in findings]}
        typer.echo(json.dumps(told if score is None else {**told, "planted": score}, indent=2))
    else:
        _print(findings, score)
    raise typer.Exit(EXIT[verdict])


def _worst(findings: tuple[Finding, ...], score: list[dict[str, Any]] | None) -> str:
    verdicts = {finding.verdict for finding in findings}
    if "violated" in verdicts:
        return "violated"
    missed = score is not None and not all(each["detected_by"] for each in score)
    return "inconclusive" if "inconclusive" in verdicts or missed else "consistent"


def _print(findings: tuple[Finding, ...], score: list[dict[str, Any]] | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    for finding in findings:
        table = Table("", "at least (seen)", "exactly", "at most (promised)", box=None, header_style="")
        for m in finding.measures:
            exact = "" if m.exact is None else f"{m.exact:.4g}"
            table.add_row(m.what, _rounded(m.lower, "down"), exact, _rounded(m.upper, "up"))
        console.print(f"{finding.verdict.upper()}  {finding.name}")
        console.print(table)
        console.print(f"{finding.sentence}")
        what = "canaries" if "canaries" in finding.name else "trials a world"
        console.print(f"{finding.trials:,} {what}, {finding.method}. {finding.note}\n")
    if score is not None:
        detected = sum(bool(each["detected_by"]) for each in score)
        for each in score:
            console.print(f"{'detected' if each['detected_by'] else 'MISSED'}  {each['defect']}")
        console.print(f"mutation score: {detected} of {len(score)} planted defects detected")


def _rounded(value: float, direction: str) -> str:
    """Four decimals, lower bounds down and upper bounds up."""
    import math

    if not math.isfinite(value):
        return "inf"
    return f"{(math.floor if direction == 'down' else math.ceil)(value * 1e4) / 1e4:.4f}"
