"""Figures of a run: what it cost and what its answers are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka._axes import BLUE, GREY, RED
from ostraka.plots import _canvas as canvas
from ostraka.report import Figure

if TYPE_CHECKING:
    from ostraka.result import Result

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


def budget_over_time(result: Result) -> Figure | None:
    """Publishable epsilon after each answer, with the budget. Public."""
    epsilon = canvas.numbers(result.series.get("epsilon"))
    if not epsilon.size:
        return None
    answers = np.array(result.series.get("answers") or range(1, len(epsilon) + 1))
    budget = result.settings.get("epsilon")
    many, each = _PAID.get(result.settings.get("way", "argmax"), _QUESTIONS)

    def draw(axes: Any) -> None:
        # from no answer on, so that a run of one answer has a line, too
        axes.plot([0, *answers], [0.0, *epsilon], color=BLUE, linewidth=2)
        canvas.note(axes, f"{epsilon[-1]:.3g}", (answers[-1], epsilon[-1]), (-4, -14), ha="right")
        if budget is not None:
            axes.axhline(budget, color=RED, linestyle="--", linewidth=1.5)
            canvas.note(axes, f"budget {budget:g}", (0, budget), (0, 4))
        axes.set(xlabel=many, ylabel="ε, at most", xlim=(0, answers[-1]), ylim=(0, None))
        axes.locator_params(axis="x", integer=True)

    limit = f" The budget is {budget:g}." if budget is not None else ""
    return Figure(
        title="Budget over time",
        caption=f"Publishable ε (δ = {result.upper.get('delta') or 0:g}) after each {each}.{limit}",
        alt=(
            f"Line that grows with the number of {many}, from {epsilon[0]:.3g} after the first "
            f"to {epsilon[-1]:.3g} after {answers[-1]}.{limit}"
        ),
        svg=canvas.svg(draw),
    )


def accuracy_against_epsilon(result: Result) -> Figure | None:
    """Accuracy of students trained on more and more of the answers, against what these cost. Public."""
    series = result.series.get("student") or {}
    epsilon, accuracy = canvas.numbers(series.get("epsilon")), 100 * canvas.numbers(series.get("accuracy"))
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
        svg=canvas.svg(draw),
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
    known = result.owner.get("bounds") or {}
    return _bounds(
        result,
        {**(result.upper.get("bounds") or {}), **known} if known else {},
        title="ε for these votes",
        caption="Lines that depend on the votes lie lower where the teachers agree. They are for the owner.",
        owner_only=True,
    )


def _bounds(
    result: Result, bounds: dict[str, Any], *, title: str, caption: str, owner_only: bool = False
) -> Figure | None:
    """Lines of epsilon against answers, each with its name where it ends."""
    lines = {
        name: (canvas.numbers(bound["answers"]), canvas.numbers(bound["epsilon"]))
        for name, bound in bounds.items()
    }
    if not lines:
        return None

    def draw(axes: Any) -> None:
        for name, (answers, epsilon) in lines.items():
            marker = "." if len(answers) < 3 else ""
            axes.plot(answers, epsilon, label=name, linewidth=2, marker=marker, **_LINES.get(name, {}))
        axes.set(xlabel="answers, in the order of the file", ylabel="ε, at most", ylim=(0, None))
        canvas.legend_outside(axes)

    ends = "; ".join(f"{name} {epsilon[-1]:.3g}" for name, (_, epsilon) in lines.items())
    most = max(int(answers[-1]) for answers, _ in lines.values())
    return Figure(
        title=title,
        caption=f"At δ = {result.upper.get('delta')}. {caption}",
        alt=f"Lines of epsilon that grow with the number of answers. After {most:,}: {ends}.",
        svg=canvas.svg(draw),
        owner_only=owner_only,
    )


def consensus(result: Result) -> Figure | None:
    """Share of teachers that chose the commonest class, over the questions. For the owner only."""
    share = 100 * canvas.numbers(result.owner.get("consensus"))
    if not share.size:
        return None
    middle = float(np.median(share))

    def draw(axes: Any) -> None:
        axes.hist(share, bins=np.linspace(0, 100, 41), color=BLUE, edgecolor="none", rwidth=0.92)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.axvline(middle, color=RED, linestyle="--", linewidth=1.5)
        canvas.note(axes, f"median {middle:.0f} %", (middle, axes.get_ylim()[1]), (0, 3), ha="center")
        axes.set(xlabel="teachers who chose the commonest class, %", ylabel="questions", xlim=(0, 100))

    low, high = np.percentile(share, [10, 90])
    return Figure(
        title="Consensus of the teachers",
        caption="Where the teachers agree, an answer is more often right and tells less about each.",
        alt=(
            f"Histogram over {len(share)} questions of the share of teachers who chose the commonest class: "
            f"a tenth below {low:.0f} %, half below {middle:.0f} %, a tenth above {high:.0f} %."
        ),
        svg=canvas.svg(draw),
        owner_only=True,
    )


def cost_of_answers(result: Result) -> Figure | None:
    """Cost of each answer for the actual votes, beside its price for all votes. For the owner only."""
    cost = np.sort(canvas.numbers(result.owner.get("cost")))[::-1]
    if not cost.size:
        return None
    order, price = result.owner["cost_order"], result.owner.get("price")

    def draw(axes: Any) -> None:
        axes.fill_between(np.arange(1, len(cost) + 1), cost, step="mid", color=BLUE, linewidth=0)
        if price is not None:
            axes.axhline(price, color=RED, linestyle="--", linewidth=1.5)
            canvas.note(axes, "price whatever the votes", (len(cost), price), (0, 4), ha="right")
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
        svg=canvas.svg(draw),
        owner_only=True,
    )


def repeated_questions(result: Result) -> Figure | None:
    """What an attacker who repeats one question learns about its votes. For the owner only."""
    panel = result.owner.get("repeats") or {}
    if not panel.get("repeats"):
        return None
    repeats = canvas.numbers(panel["repeats"])
    wrong, easiest = (
        100 * canvas.numbers(panel["share_wrong"]),
        100 * canvas.numbers(panel["share_wrong_least"]),
    )

    def draw(axes: Any) -> None:
        axes.plot(repeats, wrong, color=BLUE, marker="o", linewidth=2)
        axes.plot(repeats, easiest, color=RED, marker="o", linestyle="--", linewidth=1.5)
        canvas.note(axes, "mean question", (repeats[0], wrong[0]), (6, 6))
        canvas.note(axes, "easiest question", (repeats[0], easiest[0]), (6, 6))
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
        svg=canvas.svg(draw),
        owner_only=True,
    )
