"""Output of ``ostraka audit``: text, figures and the exit code."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ostraka.audits.finding import Finding

    Score = Mapping[str, tuple[str, ...]]

__all__ = ["EXIT", "tell"]

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
    from ostraka import plots
    from ostraka.audits.finding import Finding

    drawn = plots.figures(Finding.result(findings))
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
        for name, by in score.items():
            console.print(f"{'detected' if by else 'MISSED'}  {name}")
        detected = sum(map(bool, score.values()))
        console.print(f"mutation score: {detected} of {len(score)} planted defects detected")


def _rounded(value: float, direction: str) -> str:
    """Round to four decimals, lower bounds down and upper bounds up."""
    if not math.isfinite(value):
        return "inf"
    return f"{(math.floor if direction == 'down' else math.ceil)(value * 1e4) / 1e4:.4f}"
