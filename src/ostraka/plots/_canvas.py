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
    axes.figure.legend(loc="outside upper left", ncols=3, borderaxespad=0.2)


def svg(draw: Callable[[Any], None]) -> str:
    """The drawing as inline SVG whose ink is the page's text colour, without a background."""
    _check.require("matplotlib", extra="plots")
    import matplotlib as mpl  # noqa: PLC0415  (an extra)
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415  (an extra)

    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(4.9, 3.3), layout="constrained")
        draw(canvas.add_subplot())
        text = io.StringIO()
        canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    prefix = f"f{hashlib.sha256(drawn.encode()).hexdigest()[:8]}-"  # ids of several drawings meet in one page
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}", drawn)


def numbers(values: Any) -> np.ndarray:
    """A list of a record as floats: infinity is written as text there, and nothing is an empty array."""
    return np.array([float(value) for value in values or []])
