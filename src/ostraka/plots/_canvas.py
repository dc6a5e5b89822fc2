"""One style for all figures, and the drawing as inline SVG."""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka import _check

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = (4.9, 3.3)  # inches
_MARGIN = 0.05  # inches
_FAR = 0.1  # of the width
_INK = "#010203"  # stands for the page's own text colour
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it scales, can be searched and read aloud
    "svg.hashsalt": "ostraka",  # the same record gives the same bytes
    "font.size": 10.5,  # of a phone, whose page is about as wide as the drawing
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.axisbelow": True,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def note(axes: Any, text: str, at: tuple[float, float], offset: tuple[int, int], ha: str = "left") -> None:
    axes.annotate(text, at, offset, textcoords="offset points", ha=ha)


def legend_outside(axes: Any) -> None:
    """Name the lines above the drawing, where the names take no width away."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)


def svg(draw: Callable[[Any], None]) -> str:
    """The drawing as inline SVG whose ink is the page's text colour, without a background."""
    _check.require("matplotlib", extra="plots")
    import matplotlib as mpl  # noqa: PLC0415  (an extra)
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415  (an extra)

    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=_SIZE)
        axes = canvas.add_axes((0.13, 0.16, 0.84, 0.76))
        draw(axes)
        _fit(axes)
        text = io.StringIO()
        canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    prefix = f"f{hashlib.sha256(drawn.encode()).hexdigest()[:8]}-"  # ids of several drawings meet in one page
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}", drawn)


def _fit(axes: Any) -> None:
    """Move the axes so that all names and numbers lie inside: a layout engine draws twice as often."""
    wide, high = (_MARGIN / inches for inches in _SIZE)
    for _ in range(2):
        inner = axes.get_position()
        outer = axes.get_tightbbox().transformed(axes.figure.transFigure.inverted())
        left, bottom = wide + inner.x0 - outer.x0, high + inner.y0 - outer.y0
        right, top = 1 - wide - outer.x1 + inner.x1, 1 - high - outer.y1 + inner.y1
        axes.set_position((left, bottom, max(right - left, wide), max(top - bottom, high)))
        if abs(left - inner.x0) < _FAR:
            break  # so little that a legend above needs no other place


def numbers(values: Any) -> np.ndarray:
    """A list of a record as floats: infinity is written as text there, and nothing is an empty array."""
    return np.array([float(value) for value in values or []])
