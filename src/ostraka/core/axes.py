"""Drawings behind the ``plot`` methods: each draws on matplotlib's axes and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.core.curve import Curve
    from ostraka.core.result import Result
    from ostraka.core.scores import Scores

# Okabe and Ito's colour-blind safe blue and vermilion, at contrast 3:1 or more with white and near-black
BLUE, RED, GREY = "#2b87c8", "#d8611a", "#868c95"
_DELTAS = np.logspace(-12, -2, 21)


def epsilon_against_delta(curve: Curve, axes: Any) -> Any:
    """A line over delta; where nothing finite can be claimed, there is none."""
    axes = _given_or_new(axes)
    axes.plot(_DELTAS, [curve.epsilon(delta=float(delta)) for delta in _DELTAS], color=BLUE)
    axes.set(xscale="log", xlabel="δ", ylabel="ε, at most", ylim=(0, None))
    return axes


def spending(spent: Sequence[float], *, cap: float, delta: float, axes: Any) -> Any:
    """Steps of epsilon after each entry of a ledger, and the budget."""
    axes = _given_or_new(axes)
    axes.step(range(len(spent) + 1), [0.0, *spent], where="post", color=BLUE)
    axes.axhline(cap, color=RED, linestyle="--", label="budget")
    axes.set(xlabel="entries", ylabel=f"ε spent at δ = {delta:g}", ylim=(0, None))
    axes.legend()
    return axes


def bounds(result: Result, axes: Any) -> Any:
    """Two bars: what is proved to leak at most, and what was seen to leak at least, if anybody looked."""
    axes = _given_or_new(axes)
    upper, lower = (float((part or {}).get("epsilon") or 0.0) for part in (result.upper, result.lower))
    if not result.upper.get("simulation") and np.isfinite(upper):
        axes.barh(["proved: at most"], [upper], color=BLUE)
    finding = "not audited yet" if result.lower is None else "attacked: at least"
    axes.barh([finding], [lower if np.isfinite(lower) else 0.0], color=RED)
    axes.set(xlabel=f"ε at δ = {result.upper.get('delta')}", xlim=(0, None))
    return axes


def receiver_operating_curve(scores: Scores, axes: Any) -> Any:
    """True against false positive rate, both logarithmic, and the line of guessing."""
    axes = _given_or_new(axes)
    false, true = scores.roc()
    least = 1 / max(2, int(scores.others.sum()))
    axes.plot([least, 1], [least, 1], color=GREY, linestyle=":", label="guessing")
    axes.step(np.maximum(false, least / 2), np.maximum(true, least / 2), where="post", color=BLUE)
    axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    axes.legend()
    return axes


def _given_or_new(axes: Any) -> Any:
    """The axes given, or new ones in a figure of their own."""
    if axes is not None:
        return axes
    check.require("matplotlib", extra="plots")
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an extra)

    return plt.subplots(figsize=(5.0, 3.3), layout="constrained")[1]
