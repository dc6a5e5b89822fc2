"""Figures of a saved Result, as inline SVG for light and dark pages, made from the record and nothing else.

They show what a run cost and what its answers are worth; what an audit was promised, what is exact, and what
was seen; and of an attack, true against false positive rates on logarithmic axes.
"""

from __future__ import annotations

import hashlib
import io
import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.axes import BLUE, GREY, RED
from ostraka.report.page import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ostraka.core.result import Result
    from ostraka.core.scores import Scores

__all__ = ["figures"]
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
# one look a bound, the same in every figure: told apart by dashes too, at contrast 3:1 or more
_LINES: dict[str, Any] = {
    "classic": {"color": GREY, "linestyle": "-"},
    "gaussian": {"color": GREY, "linestyle": "--"},
    "tight": {"color": BLUE, "linestyle": "-"},
    "adaptive": {"color": BLUE, "linestyle": "--"},
    "moments2017": {"color": "#b0609a", "linestyle": ":"},
    "papernot2018": {"color": "#b0609a", "linestyle": "-."},
    "exact": {"color": RED, "linestyle": "-"},
}
_QUESTIONS = "questions answered", "answer"
_PAID = {"counts": ("tables released", "table"), "rounds": ("rounds", "round")}  # by way
_WIDTH = 26  # letters of a name in one line beside its bars
_BOUNDS = ("promised", "exact", "seen")  # the three numbers of an audit
_BOUND_LINES: Any = (
    {"color": GREY, "linestyle": "--"},
    {"color": BLUE, "linestyle": "-"},
    {"color": RED, "linestyle": "-"},
)
_COLOURS = (RED, BLUE, GREY, "#3a8f5c")


def figures(result: Result) -> tuple[Figure, ...]:
    """Every figure the record has numbers for, public ones first.

    Raises
    ------
    ImportError
        matplotlib is not installed; the message is the command that installs it.

    Examples
    --------
    >>> from ostraka.core.result import Result
    >>> record = Result(kind="learn", upper={"delta": 1e-5}, series={"epsilon": [0.2, 0.3, 0.4]})
    >>> [figure.title for figure in figures(record)]
    ['Budget over time']
    """
    drawings = (
        budget_over_time,
        accuracy_against_epsilon,
        bounds_against_answers,
        bounds_of_these_votes,
        consensus,
        cost_of_answers,
        repeated_questions,
        leak_against_order,
        leaks,
    )
    return tuple(figure for draw in drawings if (figure := draw(result)) is not None)


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

    return svg(draw)


def budget_over_time(result: Result) -> Figure | None:
    """Publishable epsilon after each answer, with the budget. Public."""
    epsilon = numbers(result.series.get("epsilon"))
    if not epsilon.size:
        return None
    answers = np.array(result.series.get("answers") or range(1, len(epsilon) + 1))
    budget = result.settings.get("epsilon")
    many, unit = _PAID.get(result.settings.get("way", "argmax"), _QUESTIONS)

    def draw(axes: Any) -> None:
        # from no answer on, so that a run of one answer has a line, too
        axes.plot([0, *answers], [0.0, *epsilon], color=BLUE, linewidth=2)
        note(axes, f"{epsilon[-1]:.3g}", (answers[-1], epsilon[-1]), (-4, -14), ha="right")
        if budget is not None:
            axes.axhline(budget, color=RED, linestyle="--", linewidth=1.5)
            note(axes, f"budget {budget:g}", (0, budget), (0, 4))
        axes.set(xlabel=many, ylabel="ε, at most", xlim=(0, answers[-1]), ylim=(0, None))
        axes.locator_params(axis="x", integer=True)

    limit = f" The budget is {budget:g}." if budget is not None else ""
    return Figure(
        title="Budget over time",
        caption=f"Publishable ε (δ = {result.upper.get('delta') or 0:g}) after each {unit}.{limit}",
        alt=(
            f"Line that grows with the number of {many}, from {epsilon[0]:.3g} after the first "
            f"to {epsilon[-1]:.3g} after {answers[-1]}.{limit}"
        ),
        svg=svg(draw),
    )


def note(axes: Any, text: str, at: tuple[float, float], offset: tuple[int, int], ha: str = "left") -> None:
    axes.annotate(text, at, offset, textcoords="offset points", ha=ha)


def legend_outside(axes: Any) -> None:
    """Name the lines above the drawing, where the names take no width away."""
    axes.figure.legend(loc="outside upper left", ncols=3, borderaxespad=0.2)


def svg(draw: Callable[[Any], None]) -> str:
    """The drawing as inline SVG whose ink is the page's text colour, without a background."""
    check.require("matplotlib", extra="plots")
    import matplotlib as mpl  # noqa: PLC0415  (an extra)
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415  (an extra)

    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(4.9, 3.3), layout="constrained")
        draw(canvas.add_subplot())
        text = io.StringIO()
        canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
    # ids of several drawings meet in one page
    prefix = f"f{hashlib.sha256(drawing.encode()).hexdigest()[:8]}-"
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}", drawing)


def numbers(values: Any) -> np.ndarray:
    """A list of a record as floats: infinity is written as text there, and nothing is an empty array."""
    return np.array([float(value) for value in values or []])


def accuracy_against_epsilon(result: Result) -> Figure | None:
    """Accuracy of students trained on more and more of the answers, against what these cost. Public."""
    series = result.series.get("student") or {}
    epsilon, accuracy = numbers(series.get("epsilon")), 100 * numbers(series.get("accuracy"))
    if not accuracy.size:
        return None

    def draw(axes: Any) -> None:
        axes.plot(epsilon, accuracy, color=BLUE, linewidth=2, marker="o", markersize=5)
        # a span of ten points at the least, so that noise does not look like a trend
        middle, half = (accuracy.min() + accuracy.max()) / 2, max(5.0, 0.55 * np.ptp(accuracy))
        axes.set(xlabel="publishable ε of the answers used", ylabel="student accuracy, %", xlim=(0, None))
        axes.set_ylim(middle - half, min(101.0, middle + half))

    pairs = "; ".join(f"{a:.1f} % at {e:.3g}" for e, a in zip(epsilon, accuracy, strict=True))
    return Figure(
        title="Accuracy against ε",
        caption="Each point is a student trained on the first answers only, at what these cost.",
        alt=f"Line of student accuracy against epsilon: {pairs}.",
        svg=svg(draw),
    )


def bounds_against_answers(result: Result) -> Figure | None:
    """Every publishable bound against the number of answers. Public."""
    return _bounds(
        result,
        result.upper.get("bounds") or {},
        title="ε against the number of answers",
        caption="Each line holds whatever the votes. All are correct; the lowest is the one to use.",
    )


def bounds_of_these_votes(result: Result) -> Figure | None:
    """The same with the bounds that were read off the votes. For the owner only."""
    bounds = result.owner.get("bounds") or {}
    return _bounds(
        result,
        {**(result.upper.get("bounds") or {}), **bounds} if bounds else {},
        title="ε for these votes",
        caption="Lines that depend on the votes lie lower where the teachers agree. They are for the owner.",
        owner_only=True,
    )


def _bounds(
    result: Result, bounds: dict[str, Any], *, title: str, caption: str, owner_only: bool = False
) -> Figure | None:
    """Lines of epsilon against answers, each with its name where it ends."""
    lines = {name: (numbers(bound["answers"]), numbers(bound["epsilon"])) for name, bound in bounds.items()}
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for name, (answers, epsilon) in lines.items():
            marker = "." if len(answers) < 3 else ""
            axes.plot(answers, epsilon, label=name, linewidth=2, marker=marker, **_LINES.get(name, {}))
        axes.set(xlabel="answers, in the order of the file", ylabel="ε, at most", ylim=(0, None))
        legend_outside(axes)

    ends = "; ".join(f"{name} {epsilon[-1]:.3g}" for name, (_, epsilon) in lines.items())
    last = max(int(answers[-1]) for answers, _ in lines.values())
    return Figure(
        title=title,
        caption=f"At δ = {result.upper.get('delta')}. {caption}",
        alt=f"Lines of epsilon that grow with the number of answers. After {last:,}: {ends}.",
        svg=svg(draw),
        owner_only=owner_only,
    )


def consensus(result: Result) -> Figure | None:
    """Share of teachers that chose the commonest class, over the questions. For the owner only."""
    share = 100 * numbers(result.owner.get("consensus"))
    if not share.size:
        return None
    middle = float(np.median(share))

    def draw(axes: Any) -> None:
        axes.hist(share, bins=np.linspace(0, 100, 41), color=BLUE, edgecolor="none", rwidth=0.92)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.axvline(middle, color=RED, linestyle="--", linewidth=1.5)
        note(axes, f"median {middle:.0f} %", (middle, axes.get_ylim()[1]), (0, 3), ha="center")
        axes.set(xlabel="teachers who chose the commonest class, %", ylabel="questions", xlim=(0, 100))

    low, high = np.percentile(share, [10, 90])
    return Figure(
        title="Consensus of the teachers",
        caption="Where the teachers agree, an answer is more often right and tells less about each.",
        alt=(
            f"Histogram over {len(share)} questions of the share of teachers who chose the commonest class: "
            f"a tenth below {low:.0f} %, half below {middle:.0f} %, a tenth above {high:.0f} %."
        ),
        svg=svg(draw),
        owner_only=True,
    )


def cost_of_answers(result: Result) -> Figure | None:
    """Cost of each answer for the actual votes, beside its price for all votes. For the owner only."""
    cost = np.sort(numbers(result.owner.get("cost")))[::-1]
    if not cost.size:
        return None
    order, price = result.owner["cost_order"], result.owner.get("price")

    def draw(axes: Any) -> None:
        axes.fill_between(np.arange(1, len(cost) + 1), cost, step="mid", color=BLUE, linewidth=0)
        if price is not None:
            axes.axhline(price, color=RED, linestyle="--", linewidth=1.5)
            note(axes, "price whatever the votes", (len(cost), price), (0, 4), ha="right")
        axes.set(
            xlabel="questions answered, costliest first",
            ylabel="Rényi divergence, nats",
            xlim=(0.5, len(cost) + 0.5),
        )
        axes.set_ylim(0, None)

    half = int(np.searchsorted(np.cumsum(cost), cost.sum() / 2)) + 1
    return Figure(
        title="What each answer cost",
        caption=(
            f"Exact Rényi divergence of order {order:g} for these votes, costliest answer first. "
            f"The costliest {half} of {len(cost)} answers make up half of the total."
        ),
        alt=(
            f"Area that falls from {cost[0]:.2g} nats for the costliest answer to {cost[-1]:.2g}; "
            f"the costliest {half} of {len(cost)} answers make up half of the total."
        ),
        svg=svg(draw),
        owner_only=True,
    )


def repeated_questions(result: Result) -> Figure | None:
    """What an attacker who repeats one question learns about its votes. For the owner only."""
    panel = result.owner.get("repeats") or {}
    if not panel.get("repeats"):
        return None
    repeats = numbers(panel["repeats"])
    wrong, easiest = 100 * numbers(panel["share_wrong"]), 100 * numbers(panel["share_wrong_least"])

    def draw(axes: Any) -> None:
        axes.plot(repeats, wrong, color=BLUE, marker="o", linewidth=2)
        axes.plot(repeats, easiest, color=RED, marker="o", linestyle="--", linewidth=1.5)
        note(axes, "mean question", (repeats[0], wrong[0]), (6, 6))
        note(axes, "easiest question", (repeats[0], easiest[0]), (6, 6))
        axes.set(
            xlabel="answers to one question", ylabel="votes the best attacker has wrong, %", xscale="log"
        )
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")  # powers of ten take .1 s to typeset
        axes.minorticks_off()
        axes.set_ylim(0, None)

    once, often = f"{wrong[0]:.0f} %", f"{wrong[-1]:.0f} %"
    return Figure(
        title="What repeated questions would reveal",
        caption=(
            f"After one answer the best attacker has {once} of a question's votes wrong; after "
            f"{repeats[-1]:,.0f} answers, {often}. One answer a question (consistent=True) stops at one."
        ),
        alt=(
            f"Two falling lines: the mean question from {once} after one answer to {often} after "
            f"{repeats[-1]:,.0f}; the easiest from {easiest[0]:.0f} % to {easiest[-1]:.0f} %."
        ),
        svg=svg(draw),
        owner_only=True,
    )


def leak_against_order(result: Result) -> Figure | None:
    """Promised, exact and seen Rényi divergence of one audit, at each order. For the owner only."""
    findings = result.owner.get("audit") or []
    measures = findings[0]["measures"] if len(findings) == 1 else []
    lines = [(m["what"].partition(" "), m["upper"], _known(m["exact"]), m["lower"]) for m in measures]
    table = np.array([numbers([order, *line]) for (word, _, order), *line in lines if word == "order"])
    if len(table) < 2:
        return None

    def draw(axes: Any) -> None:
        for column, name, style in zip((1, 2, 3), _BOUNDS, _BOUND_LINES, strict=True):
            axes.plot(table[:, 0], table[:, column], label=name, marker=".", linewidth=2, **style)
        axes.set(xlabel="Rényi order", ylabel="nats", xscale="log")
        axes.set_xticks(table[:, 0], [f"{order:g}" for order in table[:, 0]])
        axes.set_xticks([], minor=True)  # whose labels would lie on each other
        axes.set_ylim(0, None)
        legend_outside(axes)

    low, high = table[0], table[-1]
    return Figure(
        title="What leaks, at each order",
        caption=f"{findings[0]['name']}. Seen: at least that, with confidence {findings[0]['confidence']:g}.",
        alt=(
            f"Lines over Rényi orders. At order {low[0]:g} at least {low[3]:.3g} nats were seen of "
            f"{low[1]:.3g} promised; at order {high[0]:g}, {high[3]:.3g} of {high[1]:.3g}."
        ),
        svg=svg(draw),
        owner_only=True,
    )


def leaks(result: Result) -> Figure | None:
    """The last line of several audits side by side, such as of several adversaries. For the owner only."""
    findings = [finding for finding in result.owner.get("audit") or [] if finding["measures"]]
    last = [finding["measures"][-1] for finding in findings]
    if len(findings) < 2 or len({measure["what"] for measure in last}) > 1:
        return None
    names = [finding["name"] for finding in findings]
    table = np.array([numbers([m["upper"], _known(m["exact"]), m["lower"]]) for m in last])

    def draw(axes: Any) -> None:
        for column, (name, style) in enumerate(zip(_BOUNDS, _BOUND_LINES, strict=True)):
            place = np.arange(len(names)) + 0.27 * (1 - column)
            heights = np.nan_to_num(table[:, column], nan=0.0, posinf=0.0)  # the words have what is infinite
            axes.barh(place, heights, 0.25, label=name, color=style["color"])
        axes.set_yticks(np.arange(len(names)), [textwrap.fill(name, _WIDTH) for name in names])
        axes.set(xlabel=last[0]["what"])
        legend_outside(axes)

    pairs = "; ".join(f"{name} {row[2]:.3g} of {row[0]:.3g}" for name, row in zip(names, table, strict=True))
    return Figure(
        title="What was seen to leak",
        caption=f"{last[0]['what']}: promised, exact where it is known, and seen.",
        alt=f"Bars, three for each audit. Seen of what was promised: {pairs}.",
        svg=svg(draw),
        owner_only=True,
    )


def _known(value: Any) -> Any:
    return float("nan") if value is None else value
