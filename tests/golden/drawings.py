"""What is drawn in each figure for fixed numbers: limits, ticks, texts, lines and bars.

``python -m tests.golden`` writes it to ``drawings.txt``, for a change that was meant.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from ostraka.collect import show
from ostraka.core import axes as plots
from ostraka.core.curve import Curve
from ostraka.core.result import Result
from ostraka.core.scores import Scores
from ostraka.report import figures
from tests.golden import samples

RECORD = Path(__file__).with_name("drawings.txt")
MANY = 12  # of more numbers the ends and the sum are enough


def shown(values: Iterable[float]) -> str:
    """Numbers to four digits; of many the first, the last, how many there are, and their sum."""
    numbers = np.ravel(np.asarray(list(values), float))
    words = [f"{value + 0:.4g}" for value in numbers]  # no -0
    if len(words) > MANY:
        return f"{words[0]} to {words[-1]}, {len(words)} in all, in sum {numbers.sum():.4g}"
    return " ".join(words)


def colour(value: object) -> str:
    from matplotlib.colors import to_hex

    return to_hex(value, keep_alpha=True).removesuffix("ff") if value is not None else "none"


def style(canvas: object) -> str:
    """The look that all drawings on such a canvas have in common."""
    width, height = canvas.get_size_inches()
    (axes,) = canvas.axes
    spines = [f"{name} {colour(s.get_edgecolor())}" for name, s in axes.spines.items() if s.get_visible()]
    lines = [f"{width:g} by {height:g} inches, {type(canvas.get_layout_engine()).__name__}"]
    lines.append(f"spines {' '.join(spines)}, below data: {axes.get_axisbelow()}")
    for axis in (axes.xaxis, axes.yaxis):
        texts = axis.label, axis.get_major_ticks()[0].label1, axis.get_offset_text()
        looks = [f"{text.get_size():g} pt {colour(text.get_color())}" for text in texts]
        lines.append(" ".join([axis.axis_name, *looks]))
    return "\n".join(lines) + "\n"


def drawing(canvas: object) -> str:
    """Everything on a canvas, a line for each thing."""
    lines = []
    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            label, ends = axis.label.get_text(), shown([low, high])
            head = f"{axis.axis_name} {axis.get_scale()} {label!r} from {ends}"
            places = axis.get_majorticklocs()
            words = axis.get_major_formatter().format_ticks(places)
            inside = [
                f"{shown([place])} {text!r}"
                for place, text in zip(places, words, strict=True)
                if min(low, high) <= place <= max(low, high) and "mathdefault" not in text
            ]
            minor = sum(min(low, high) <= place <= max(low, high) for place in axis.get_minorticklocs())
            lines.append(f"{head}: {', '.join(inside)}{f', {minor} minor' if minor else ''}")
        lines += _things(axes)
    for legend in [*filter(None, [axes.get_legend() for axes in canvas.axes]), *canvas.legends]:
        words = [text.get_text() for text in legend.get_texts()]
        place = getattr(legend, "_outside_loc", None) or f"place {legend._get_loc()}"
        lines.append(
            f"legend {words} {place}, {legend._ncols} columns, pad {legend.borderaxespad:g}, "
            f"{'framed' if legend.get_frame_on() else 'no frame'}"
        )
    return "\n".join(lines) + "\n"


def _things(axes: object) -> Iterable[str]:
    from matplotlib.collections import QuadMesh

    for line in axes.lines:
        marker = (
            "" if line.get_marker() in {"None", ""} else f" {line.get_marker()} of {line.get_markersize():g}"
        )
        name = "" if line.get_label().startswith("_") else f" {line.get_label()!r}"
        steps = line.get_drawstyle().removeprefix("default")
        dashes = f"{line.get_linestyle()} {line.get_linewidth():g}{marker} {steps}".rstrip()
        points = f"{shown(line.get_xdata())}; {shown(line.get_ydata())}"
        yield f"line{name} {colour(line.get_color())} {dashes}: {points}"
    looks = {}
    for bar in axes.patches:
        if bar.get_height() and bar.get_width():
            at = shown([bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()])
            looks.setdefault(f"{colour(bar.get_facecolor())} {colour(bar.get_edgecolor())}", []).append(at)
    yield from (f"bars {look}: {'; '.join(places)}" for look, places in looks.items())
    for several in axes.collections:
        if isinstance(several, QuadMesh):
            x, y = several.get_coordinates()[0, :, 0], several.get_coordinates()[:, 0, 1]
            cells = (
                f"{several.get_cmap().name} {shown(several.get_clim())}: {shown(several.get_array().ravel())}"
            )
            yield f"cells {cells}; between {shown(x)} and {shown(y)}"
            continue
        inks = {colour(ink) for ink in (*several.get_facecolor(), *several.get_edgecolor())}
        paths = [path.vertices for path in several.get_paths()]
        parts = ["; ".join(shown(corner) for corner in corners) for corners in paths]
        if len(parts) > MANY:
            parts = [f"{len(parts)} in all, {shown(np.concatenate(paths).ravel())}"]
        yield f"area {' '.join(sorted(inks))} {several.get_linewidth()[0]:g}: {' | '.join(parts)}"
    for text in axes.texts:
        yield (
            f"text {text.get_text()!r} {shown(text.xyann)} {text.anncoords} from {shown(text.xy)}, "
            f"{text.get_ha()} {text.get_va()}, {text.get_size():g} pt {colour(text.get_color())}"
        )


def saved(draw: Callable[[], object], of: Callable[[object], str] = drawing) -> tuple[list[str], object]:
    """What is on each canvas that is saved meanwhile, and what the function returns."""
    canvases = []

    def savefig(canvas: object, file: object, **how: object) -> None:
        canvases.append(of(canvas))
        file.write(f"<svg>{how}</svg>")

    with mock.patch("matplotlib.figure.Figure.savefig", savefig):
        value = draw()
    return canvases, value


def figure(draw: Callable[[Result], figures.Figure | None], **record: object) -> str:
    """A figure of a report: its words, and its drawing."""
    canvases, value = saved(lambda: draw(Result(kind="learn", **record)))
    if value is None:
        return "none\n"
    owner = "owner only" if value.owner_only else "public"
    return f"{value.title} ({owner})\n{value.caption}\n{value.alt}\n{''.join(canvases)}"


def answer(name: str, of: Callable[[show.Collected], show.Answer]) -> str:
    """The drawing of an answer to a collection, in its page's style."""
    told = of(samples.COLLECTED[name])
    return "".join(saved(lambda: figures.svg(told.draw))[0])


def plot(draw: Callable[[], object]) -> str:
    """What a ``plot`` method draws on axes of its own."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context():
        axes = draw()
        words = drawing(axes.figure)
        plt.close(axes.figure)
    return words


SCORES = Scores.of(members=[0.3, 0.9, 0.8], others=[0.1, 0.5, 0.2, 0.05])
_GROWN = {"epsilon": [0.5, 0.75, 1.0], "answers": [1, 3, 4]}
_ONE_AUDIT, _TWO_AUDITS = {"audit": samples.AUDIT[1:]}, {"audit": samples.AUDIT}
_PAID = {"consensus": np.linspace(0.34, 1, 21), "cost": samples.COST, "cost_order": 8.0}

CASES: dict[str, Callable[[], str]] = {
    "style": lambda: "".join(saved(lambda: figures.svg(lambda axes: None), of=style)[0]),
    "budget over time": partial(
        figure, figures.budget_over_time, series=_GROWN, settings={"epsilon": 1.25}, upper={"delta": 1e-5}
    ),
    "one table of counts": partial(
        figure, figures.budget_over_time, series={"epsilon": [2.0]}, settings={"way": "counts"}
    ),
    "rounds": partial(
        figure, figures.budget_over_time, series={"epsilon": [1, 2]}, settings={"way": "rounds"}
    ),
    "accuracy against epsilon": partial(
        figure, figures.accuracy_against_epsilon, series={"student": samples.STUDENTS}
    ),
    "accuracy that hardly changes": partial(
        figure,
        figures.accuracy_against_epsilon,
        series={"student": {"epsilon": [1, 2], "accuracy": [0.97, 0.98]}},
    ),
    "bounds": partial(
        figure, figures.bounds_against_answers, upper={"delta": 1e-5, "bounds": samples.BOUNDS}
    ),
    "bounds of these votes": partial(
        figure,
        figures.bounds_of_these_votes,
        upper={"delta": 1e-5, "bounds": samples.BOUNDS},
        owner={"bounds": samples.OF_THESE_VOTES},
    ),
    "no bounds of these votes": partial(
        figure, figures.bounds_of_these_votes, upper={"delta": 1e-5, "bounds": samples.BOUNDS}
    ),
    "consensus": partial(figure, figures.consensus, owner=_PAID),
    "cost of answers": partial(figure, figures.cost_of_answers, owner=_PAID | {"price": 0.625}),
    "cost without a price": partial(figure, figures.cost_of_answers, owner=_PAID),
    "repeated questions": partial(figure, figures.repeated_questions, owner={"repeats": samples.REPEATS}),
    "leak against order": partial(figure, figures.leak_against_order, owner=_ONE_AUDIT),
    "leak against order, nothing exact": partial(
        figure, figures.leak_against_order, owner={"audit": samples.AUDIT[:1]}
    ),
    "leaks": partial(figure, figures.leaks, owner=_TWO_AUDITS),
    "attacks": lambda: "".join(
        saved(lambda: figures.receiver_operating_curves({"first": SCORES, "second": SCORES}))[0]
    ),
    "ages by a tree": partial(answer, "ages by a tree", show.quantile),
    "a wide tree": partial(answer, "a wide tree", show.quantile),
    "fine cells": partial(answer, "fine cells", partial(show.quantile, q=0.9)),
    "choices": partial(answer, "choices", show.shares),
    "a number": partial(answer, "a number", show.mean),
    "vectors": partial(answer, "vectors", show.mean),
    "a map": partial(answer, "a map", show.heat_map),
    "baskets": partial(answer, "baskets", partial(show.similar, items=[0])),
    "epsilon against delta": lambda: plot(Curve.gaussian(sensitivity=1.0, sigma=2.0).plot),
    "spending": lambda: plot(partial(plots.spending, [0.5, 0.75], cap=1.0, delta=1e-5, axes=None)),
    "both bounds": lambda: plot(
        Result(kind="a", upper={"epsilon": 2.0, "delta": 1e-5}, lower={"epsilon": 1}).plot
    ),
    "a simulation": lambda: plot(Result(kind="a", upper={"epsilon": 2.0, "simulation": True}).plot),
    "scores": lambda: plot(SCORES.plot),
}
