"""The page of ``ostraka synth``: the copy beside the private rows. For the owner only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostraka.result import Result

__all__ = ["page"]

_SHOWN = 10  # values of a column


def page(result: Result, found: dict[str, Any], *, name: str) -> str:
    """The HTML page of a run, from its record and from :func:`ostraka.synth._compare.compared`."""
    from ostraka._pages import environment
    from ostraka.report import privacy_label

    target = result.settings.get("target")
    return (
        environment()
        .get_template("synth.html.j2")
        .render(
            name=name,
            claim=privacy_label(result)["claim"],
            facts=_facts(result, found),
            learned=found["learned"],
            not_learned=(
                "No --target was named, so no model was trained."
                if target is None
                else "There are too few rows, or one class only, to compare models."
            ),
            target=target,
            near=found["near"],
            near_rows=_near_rows(found["near"]),
            pairs=found["pairs"],
            columns=[_column(column) for column in found["columns"]],
        )
    )


def _facts(result: Result, found: dict[str, Any]) -> list[tuple[str, str]]:
    from ostraka._phrases import at_most, delta_text

    upper, settings = result.upper, result.settings
    return [
        ("Epsilon, at most", at_most(upper["epsilon"])),
        ("Delta", delta_text(upper["delta"])),
        ("Protected unit", f"one {settings['unit']}, added or removed"),
        ("Not protected", "; ".join(upper["not_protected"])),
        ("Rows of the copy", f"{found['n_copy']:,}"),
        ("Private rows, with noise", f"{settings['n_rows']:,}"),
        ("Columns", f"{settings['n_columns']}"),
    ]


def _near_rows(near: dict[str, Any] | None) -> list[tuple[str, str, str]]:
    """Shares of rows by their number of differences; what is rare in both is left out."""
    if near is None:
        return []
    rows = []
    for number, (copy, real) in enumerate(zip(near["copy"], near["original"], strict=True)):
        if copy or real or not number:
            label = "no column: identical" if not number else f"{number} column{'s' * (number > 1)}"
            rows.append((label, f"{copy:.1%}", f"{real:.1%}"))
    return rows


def _column(column: dict[str, Any]) -> dict[str, Any]:
    """Bars of the values which are most frequent in the copy."""
    order = sorted(range(len(column["values"])), key=lambda k: -column["copy"][k])
    kept = sorted(order[:_SHOWN])
    longest = max([column[side][k] for side in ("real", "copy") for k in kept] + [1e-9])
    bars = [
        {
            "value": column["values"][k],
            **{side: f"{column[side][k]:.1%}" for side in ("real", "copy")},
            **{f"{side}_width": f"{100 * column[side][k] / longest:.1f}" for side in ("real", "copy")},
        }
        for k in kept
    ]
    return {
        "name": column["name"],
        "apart": column["apart"],
        "bars": bars,
        "more": len(order) - len(kept),
    }
