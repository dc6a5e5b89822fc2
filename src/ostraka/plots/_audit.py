"""Figures of audits: what was promised, what is exact, what was seen."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka._axes import BLUE, GREY, RED
from ostraka.plots import _canvas as canvas
from ostraka.report import Figure

if TYPE_CHECKING:
    from ostraka.result import Result

_WIDTH = 26  # letters of a name in one line beside its bars
# three numbers of an audit
_BOUNDS = ("promised", "exact", "seen")
_BOUND_LINES: Any = (
    {"color": GREY, "linestyle": "--"},
    {"color": BLUE, "linestyle": "-"},
    {"color": RED, "linestyle": "-"},
)


def leak_against_order(result: Result) -> Figure | None:
    """Promised, exact and seen Rényi divergence of one audit, at each order. For the owner only."""
    findings = result.owner.get("audit") or []
    rows = [_order_row(m) for m in findings[0]["measures"]] if len(findings) == 1 else []
    table = np.array([row for row in rows if row is not None])
    if len(table) < 2:
        return None

    def draw(axes: Any) -> None:
        for column, name, style in zip((1, 2, 3), _BOUNDS, _BOUND_LINES, strict=True):
            axes.plot(table[:, 0], table[:, column], label=name, marker=".", linewidth=2, **style)
        axes.set(xlabel="Rényi order", ylabel="nats", xscale="log")
        axes.set_ylim(0, None)
        canvas.legend_outside(axes)

    low, high = table[0], table[-1]
    return Figure(
        title="What leaks, at each order",
        caption=f"{findings[0]['name']}. Seen: at least that, with confidence {findings[0]['confidence']:g}.",
        alt=(
            f"Lines over Rényi orders. At order {low[0]:g} at least {low[3]:.3g} nats were seen of "
            f"{low[1]:.3g} promised; at order {high[0]:g}, {high[3]:.3g} of {high[1]:.3g}."
        ),
        svg=canvas.svg(draw),
        owner_only=True,
    )


def leaks(result: Result) -> Figure | None:
    """The last line of several audits side by side, such as of several adversaries. For the owner only."""
    findings = [each for each in result.owner.get("audit") or [] if each["measures"]]
    last = [each["measures"][-1] for each in findings]
    if len(findings) < 2 or len({measure["what"] for measure in last}) > 1:
        return None
    names = [each["name"] for each in findings]
    table = np.array([canvas.numbers([m["upper"], _known(m["exact"]), m["lower"]]) for m in last])

    def draw(axes: Any) -> None:
        for column, (name, style) in enumerate(zip(_BOUNDS, _BOUND_LINES, strict=True)):
            place = np.arange(len(names)) + 0.27 * (1 - column)
            drawn = np.nan_to_num(table[:, column], nan=0.0, posinf=0.0)  # the words have what is infinite
            axes.barh(place, drawn, 0.25, label=name, color=style["color"])
        axes.set_yticks(np.arange(len(names)), [textwrap.fill(name, _WIDTH) for name in names])
        axes.set(xlabel=last[0]["what"])
        canvas.legend_outside(axes)

    pairs = "; ".join(f"{name} {row[2]:.3g} of {row[0]:.3g}" for name, row in zip(names, table, strict=True))
    return Figure(
        title="What was seen to leak",
        caption=f"{last[0]['what']}: promised, exact where it is known, and seen.",
        alt=f"Bars, three for each audit. Seen of what was promised: {pairs}.",
        svg=canvas.svg(draw),
        owner_only=True,
    )


def _order_row(measure: dict[str, Any]) -> tuple[float, ...] | None:
    """Order, promised, exact and seen, if the line of the audit is about an order."""
    word, _, order = measure["what"].partition(" ")
    if word != "order":
        return None
    return tuple(float(v) for v in (order, measure["upper"], _known(measure["exact"]), measure["lower"]))


def _known(value: Any) -> Any:
    return float("nan") if value is None else value
