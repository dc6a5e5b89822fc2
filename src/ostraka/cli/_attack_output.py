"""Output of an attack: text, JSON and an HTML page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ostraka import _files
from ostraka.cli._audit_output import EXIT

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.audits.finding import Finding
    from ostraka.cli._attack_scores import Attacked

__all__ = ["tell"]

_RATES = (0.001, 0.01, 0.1)


class _Words(NamedTuple):
    """What an attack scores, which of them it looks for, and what that says."""

    question: str
    things: str = "rows"
    sought: str = "members"
    thing: str = "row"


_WORDS = {
    "membership": _Words("It looks for the rows that a model was trained on."),
    "generator": _Words("It looks for the rows that a generator was trained on."),
    "property": _Words(
        "It looks for the rounds in which another party's batch held rows with the property.",
        "rounds",
        "with the property",
        "round",
    ),
}


def tell(
    name: str,
    attacked: dict[str, Attacked],
    *,
    finding: Finding | None,
    report: Path | None,
    rows: int,
    as_json: bool,
) -> None:
    """Print the findings, write the page if requested, and exit with the code of the verdict."""
    found = {label: _figures(each) for label, each in attacked.items()}
    if report is not None:
        _files.write(report, _page(name, attacked, found, finding, rows), private=True)
    if as_json:
        record = {"attack": name, "found": found, "finding": None if finding is None else finding.to_dict()}
        typer.echo(json.dumps(record, indent=2))
    else:
        things, sought = _WORDS[name].things, _WORDS[name].sought
        for label, figures in found.items():
            typer.echo(
                f"{label}: {figures['members']} {sought} among {figures['rows']} {things}, "
                f"AUC {figures['auc']:.3f}"
            )
            if figures["left_out"]:
                typer.echo(f"  {figures['left_out']} {things} in which nothing was seen are left out")
            for rate in figures["rates"]:
                typer.echo(
                    f"  finds {rate['tpr']:.1%} ({rate['low']:.1%} to {rate['high']:.1%}) of them while it "
                    f"accuses {rate['fpr']:.1%} of the others"
                )
        if finding is not None:
            typer.echo(finding.sentence)
    if finding is not None:
        raise typer.Exit(EXIT[finding.verdict])


def _figures(attacked: Attacked) -> dict[str, Any]:
    scores = attacked.scores
    rates = [scores.rate(fpr=fpr) for fpr in _RATES]
    return {
        "rows": len(attacked.member),
        "left_out": attacked.left_out,
        "members": int(attacked.member.sum()),
        "auc": scores.auc(),
        "rates": [{"fpr": r.fpr, "tpr": r.tpr, "low": r.low, "high": r.high} for r in rates],
    }


def _page(
    name: str,
    attacked: dict[str, Attacked],
    found: dict[str, dict[str, Any]],
    finding: Finding | None,
    rows: int,
) -> str:
    import numpy as np

    from ostraka._pages import environment
    from ostraka.plots._attack import receiver_operating_curves

    first = next(iter(attacked.values()))
    order = np.argsort(-first.statistics, kind="stable")[:rows]
    return (
        environment()
        .get_template("attack.html.j2")
        .render(
            name=name,
            words=_WORDS[name],
            found=found,
            sentence=None if finding is None else finding.sentence,
            drawing=receiver_operating_curves({label: each.scores for label, each in attacked.items()}),
            suspects=[
                (
                    int(first.numbers[row]),
                    f"{first.statistics[row]:#.3g}",
                    "yes" if first.member[row] else "no",
                )
                for row in order
            ],
        )
    )
