"""``ostraka audit``: whether a promise is kept, with an exit code for CI."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003  (Typer reads it)
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ostraka.cli import _errors

if TYPE_CHECKING:
    import numpy as np

    from ostraka.audits import Finding

__all__ = ["audit"]

EXIT = {"consistent": 0, "violated": 4, "inconclusive": 5}

_WITH = typer.Option("--with", help="Answers seen with the target: a CSV or Parquet file, one a row.")
_WITHOUT = typer.Option("--without", help="Answers seen without it.")
_COLUMN = typer.Option("--column", help="Column of the answers, where the files have several.")
_CLAIMED = typer.Option("--claimed-epsilon", help="The epsilon that was claimed for the answers.")
_DELTA = typer.Option("--delta", help="The delta of the claim.")
_MECHANISM = typer.Option("--mechanism", help="gnmax, lnmax or threshold, sampled by this library.")
_SIGMA = typer.Option("--sigma", help="Noise of gnmax and threshold, in votes.")
_SCALE = typer.Option("--scale", help="Noise of lnmax, in votes.")
_AT = typer.Option("--at", help="Where the threshold lies, in votes.")
_VOTES = typer.Option("--votes", help="Votes of each class, such as 14,12,10.")
_NEIGHBOUR = typer.Option("--neighbour", help="The same with one ballot moved, such as 13,13,10.")
_TRIALS = typer.Option("--trials", help="Answers to draw in each world, such as 1e6.")
_CONFIDENCE = typer.Option("--confidence", help="Probability that the lower bound holds.")
_METHOD = typer.Option("--method", help="How the lower bound is found: k-cut, 2-cut, ...")
_LIBRARY = typer.Option("--library", help="Audit this installation: noise, price, shards, door, ledger.")
_PLANTED = typer.Option("--planted", help="Audit broken builds, too, and count how many are caught.")


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
    trials: Annotated[float, _TRIALS] = 1e6,
    confidence: Annotated[float, _CONFIDENCE] = 0.95,
    method: Annotated[str, _METHOD] = "k-cut",
    library: Annotated[bool, _LIBRARY] = False,
    planted: Annotated[bool, _PLANTED] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Hold a promise against what is seen. Exit code 0: consistent, 4: violated, 5: inconclusive."""
    if not 1 <= trials <= 1e10 or trials != int(trials):
        raise typer.BadParameter(f"--trials must be a whole number from 1 to 1e10, got {trials:g}")
    modes = [mechanism is not None, with_file is not None or without_file is not None, library or planted]
    if sum(modes) != 1:
        raise typer.BadParameter(
            "type one of --mechanism gnmax --sigma 40 --votes … --neighbour …, "
            "--with a.csv --without b.csv --claimed-epsilon 3 --delta 1e-5, or --library"
        )
    score: list[dict[str, Any]] | None = None
    if modes[2]:
        from ostraka.audits import audit_library, mutation_score

        findings = audit_library(trials=int(trials))
        if planted:
            score = [{"defect": each.defect, "caught_by": list(each.by)} for each in mutation_score()]
    elif modes[1]:
        files = (with_file, without_file)
        found = _answers(files, column, claimed=claimed_epsilon, delta=delta, confidence=confidence)
        findings = (found,)
    else:
        made = _made(str(mechanism), sigma=sigma, scale=scale, at=at)
        settings: dict[str, Any] = {"trials": int(trials), "confidence": confidence, "method": method}
        findings = (_sampled(made, votes, neighbour, **settings),)
    verdict = _worst(findings, score)
    if as_json:
        record = {"verdict": verdict, "findings": [finding.to_dict() for finding in findings]}
        typer.echo(json.dumps(record if score is None else {**record, "planted": score}, indent=2))
    else:
        _print(findings, score)
    raise typer.Exit(EXIT[verdict])


def _answers(
    files: tuple[Path | None, Path | None],
    column: str | None,
    *,
    claimed: float | None,
    delta: float | None,
    confidence: float,
) -> Finding:
    from ostraka.audits import audit_answers

    given = [file for file in files if file is not None]
    if len(given) < 2 or claimed is None or delta is None:
        raise typer.BadParameter("two files take all of --with, --without, --claimed-epsilon and --delta")
    seen = [_column(file, column) for file in given]
    names = sorted({*seen[0], *seen[1]})
    if len(names) < 2:
        raise ValueError(
            "both files hold one and the same answer only: there is nothing to tell worlds apart by"
        )
    place = {name: number for number, name in enumerate(names)}
    counts = [_tally(labels, place) for labels in seen]
    with _errors.usage("the claim"):
        return audit_answers(*counts, claimed_epsilon=claimed, delta=delta, confidence=confidence)


def _column(file: Path, column: str | None) -> list[str]:
    from ostraka.cli import _table

    table = _table.read(file)
    if column is None:
        if len(table.names) != 1:
            raise typer.BadParameter(f"{file} has {len(table.names)} columns: say --column NAME")
        column = table.names[0]
    table.require(column, option="--column")
    return table.text(column)


def _tally(labels: list[str], place: dict[str, int]) -> np.ndarray:
    import numpy as np

    return np.bincount([place[label] for label in labels], minlength=len(place))


def _made(name: str, *, sigma: float | None, scale: float | None, at: float | None) -> Any:
    from ostraka import GNMax, LNMax, Threshold

    needs: dict[str, tuple[Any, dict[str, float | None]]] = {
        "gnmax": (GNMax, {"sigma": sigma}),
        "lnmax": (LNMax, {"scale": scale}),
        "threshold": (Threshold, {"at": at, "sigma": sigma}),
    }
    if name not in needs:
        raise typer.BadParameter(f"--mechanism must be one of {', '.join(needs)}, got {name!r}")
    kind, settings = needs[name]
    missing = [f"--{each}" for each, value in settings.items() if value is None]
    if missing:
        raise typer.BadParameter(f"--mechanism {name} also needs {' and '.join(missing)}")
    with _errors.usage(f"--mechanism {name}"):
        return kind(**settings)


def _sampled(
    mechanism: Any,
    votes: str | None,
    neighbour: str | None,
    *,
    trials: int,
    confidence: float,
    method: Any,
) -> Finding:
    from typing import get_args

    from ostraka.audits import audit_mechanism
    from ostraka.audits.cuts import Method

    allowed = [each for each in get_args(Method) if not each.endswith("bootstrap")]
    if method not in allowed:
        raise typer.BadParameter(f"--method must be one of {', '.join(allowed)}, got {method!r}")
    if votes is None or neighbour is None:
        raise typer.BadParameter("--mechanism also needs --votes and --neighbour")
    worlds = [_numbers(text, option) for text, option in ((votes, "--votes"), (neighbour, "--neighbour"))]
    with _errors.usage("--votes, --neighbour"):
        return audit_mechanism(mechanism, *worlds, trials=trials, confidence=confidence, method=method)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} must be numbers with commas between, such as 14,12,10") from None


def _worst(findings: tuple[Finding, ...], score: list[dict[str, Any]] | None) -> str:
    verdicts = {finding.verdict for finding in findings}
    if "violated" in verdicts:
        return "violated"
    missed = score is not None and not all(each["caught_by"] for each in score)
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
        console.print(f"{finding.trials:,} trials a world, {finding.method}. {finding.note}\n")
    if score is not None:
        caught = sum(bool(each["caught_by"]) for each in score)
        for each in score:
            console.print(f"{'caught' if each['caught_by'] else 'MISSED'}  {each['defect']}")
        console.print(f"mutation score: {caught} of {len(score)} planted defects caught")


def _rounded(value: float, direction: str) -> str:
    """Four decimals, lower bounds down and upper bounds up."""
    import math

    if not math.isfinite(value):
        return "inf"
    return f"{(math.floor if direction == 'down' else math.ceil)(value * 1e4) / 1e4:.4f}"
