"""The figure of an attack: true against false positive rate, both on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka._axes import BLUE, GREY, RED
from ostraka.plots import _canvas as canvas

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ostraka.scores import Scores

_COLOURS = (RED, BLUE, GREY, "#3a8f5c")


def receiver_operating_curves(attacked: Mapping[str, Scores]) -> str:
    """Inline SVG with a curve for each set of scores, and the diagonal of guessing."""
    lowest = 1 / max(int(scores.others.sum()) for scores in attacked.values())

    def draw(axes: Any) -> None:
        axes.plot([lowest, 1], [lowest, 1], color=GREY, linestyle=":", label="guessing")
        for number, (name, scores) in enumerate(attacked.items()):
            false, true = scores.roc()
            colour = _COLOURS[number % len(_COLOURS)]
            axes.step(np.maximum(false, lowest / 2), np.maximum(true, lowest / 2), where="post", color=colour)
            axes.plot([], [], color=colour, label=name)
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(lowest, 1),
            ylim=(lowest, 1),
            xlabel="false positive rate",
            ylabel="true positive rate",
        )
        axes.legend(loc="lower right")

    return canvas.svg(draw)
