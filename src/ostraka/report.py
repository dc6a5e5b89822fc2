"""Reports of a Result: a table, a label, and a page for a data protection officer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR
from typing import TYPE_CHECKING, Any

from ostraka._pages import environment
from ostraka._phrases import at_most, delta_text, guess, neighbours, number, percent, rounded, sentence
from ostraka._tradeoff import attack_drawing, most_detected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.result import Result

__all__ = ["render_html"]

_UTILITY = {
    "student": "Student accuracy",
    "balanced": "Balanced accuracy (mean recall of the classes)",
    "non_private": "Non-private accuracy",
    "plurality": "Accuracy of the plurality, no noise",
    "one_teacher": "Accuracy of one teacher",
    "majority": "Majority-class accuracy",
}
_GOOD = "How good the model is"
_UPPER = "Proved, for any data: it leaks at most"
_LOWER = "Attacked, on the worst votes there can be: it leaks at least"
_THESE = "For the votes of this run, not for publication: it leaks at most"
_SCOPE = "What is protected"
_SIMULATION = "simulation, no privacy"
_SETTINGS = {
    "n_rows": "Private rows",
    "n_units": "Private units",
    "unit": "Unit",
    "relation": "Neighbouring relation",
    "n_teachers": "Teachers",
    "n_classes": "Classes",
    "n_public": "Public rows",
    "n_questions": "Questions",
    "answers_per_question": "Answers to each question",
    "n_answers": "Answers, at most",
    "n_measured": "Rows to measure with",
    "epsilon": "Epsilon allowed",
    "n_cells": "Cells of the table of counts",
    "n_features": "Features of each row",
    "n_rounds": "Rounds, a table of votes in each",
    "clip": "Length of a vote, at most",
    "asks": "Rows asked about first",
    "manifest": "Hash of the partition",
    "seed": "Seed of training, not of noise",
    "date": "Date",
    "version": "Version of ostraka",
}
_WEAK = 3.0  # epsilon
_SHOWN = 12  # of a long list


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the summary: the same in the terminal and on the page.

    Attributes
    ----------
    name, value : str
        Ready to print; upper bounds are rounded up, lower bounds down.
    heading : str
        What the line stands under. A bound that holds for any votes, one that was found by an attack,
        and one for the votes at hand never share a heading.
    owner_only : bool
        Computed from the private data themselves: not to be passed on.
    """

    name: str
    value: str
    heading: str
    owner_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing for the page, made elsewhere.

    Attributes
    ----------
    title, caption, alt : str
        Heading; what to see in it; the same for those who cannot see it, with its numbers.
    svg : str
        Inline SVG without scripts or outside references.
    owner_only : bool
        It shows what was computed from the private data themselves.
    """

    title: str
    caption: str
    alt: str
    svg: str
    owner_only: bool = False


def summary_table(result: Result) -> tuple[Row, ...]:
    """The lines every summary shows, in order; ``result.public()`` has none that are owner-only.

    Examples
    --------
    >>> from ostraka import Result
    >>> result = Result(kind="learn", upper={"epsilon": 2.0004, "delta": 1e-5}, utility={"student": 0.9},
    ...                 owner={"epsilon_these_votes": 1.5})
    >>> for row in summary_table(result):
    ...     print(row.name, "|", row.value, "|", row.owner_only)
    Student accuracy | 90.0 % | False
    Epsilon, publishable, at most | 2.001 | False
    Delta | 1e-05 (1 in 100,000) | False
    Epsilon, lower bound | not audited yet | False
    Epsilon for these votes, at most | 1.5 | True
    """
    return (*_accuracies(result), *_bounds(result), *_scope(result))


def privacy_label(result: Result) -> dict[str, Any]:
    """Return the publishable facts about a run's privacy: plain JSON types, nothing from ``owner``.

    A simulation has neither epsilon nor delta: its noise can be repeated, so it hides nothing.

    Examples
    --------
    >>> from ostraka import Result
    >>> label = privacy_label(Result(kind="learn", settings={"unit": "row", "relation": "replace-one"},
    ...                              upper={"epsilon": 2.0, "delta": 1e-5, "simulation": False}))
    >>> label["unit"], label["epsilon"], label["lower"]
    ('row', 2.0, None)
    """
    upper, settings = result.upper, result.settings
    simulation = bool(upper.get("simulation"))
    epsilon, delta = (None, None) if simulation else (upper.get("epsilon"), upper.get("delta"))
    return {
        "claim": _claim(result),
        "epsilon": epsilon,
        "delta": delta,
        "unit": settings.get("unit"),
        "relation": settings.get("relation"),
        "n_units": settings.get("n_units"),
        "mechanism": settings.get("mechanism"),
        "screen": settings.get("screen"),
        "accountant": upper.get("accountant"),
        "noise": upper.get("noise"),
        "horizon": upper.get("horizon"),
        "simulation": simulation,
        "lower": result.lower,
        "not_protected": upper.get("not_protected", []),
    }


def render_html(
    result: Result, *, figures: Sequence[Figure] = (), controller: str = "", purpose: str = ""
) -> str:
    """One self-contained page: no script, no request, readable in light and dark and without figures.

    The owner's part stands apart and says so; ``render_html(result.public())`` leaves it out.
    Owner-only figures are left out too when the record has no owner's part. ``controller`` and
    ``purpose`` stand at its head; where they are empty, there is a line to write on.

    Examples
    --------
    >>> from ostraka import Result
    >>> page = render_html(Result(kind="learn", upper={"epsilon": 2.0, "delta": 1e-5}))
    >>> "not audited yet" in page
    True
    """
    rows, label = summary_table(result), privacy_label(result)
    detected = most_detected(result.upper)
    shown = [figure for figure in figures if result.owner or not figure.owner_only]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            label=label,
            result=result,
            good=[(row.name, row.value) for row in rows if not row.owner_only and row.heading == _GOOD],
            scope=[(row.name, row.value) for row in rows if row.heading == _SCOPE],
            owner_rows=[(row.name, row.value) for row in rows if row.owner_only],
            figures=[figure for figure in shown if not figure.owner_only],
            owner_figures=[figure for figure in shown if figure.owner_only],
            relation=neighbours(result.settings),
            epsilon=at_most(number(result.upper.get("epsilon"))),
            delta=delta_text(result.upper.get("delta")),
            lower=_lower(result),
            lower_from=_lower_from(result),
            attack=_attack(detected),
            drawing=attack_drawing(result.upper, what=guess(result.settings), detected=detected),
            guess=guess(result.settings),
            confusion=_confusion(result),
            steps=_next_steps(result),
            controller=controller,
            purpose=purpose,
            settings=_settings(result),
            notes=[note for note in result.notes if note not in result.upper.get("not_protected", [])],
            bounds=_side_by_side(result.upper),
            owner_bounds=_side_by_side(result.owner),
        )
    )


def _side_by_side(part: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Name, epsilon after all answers, what it holds for, and whether in both directions; smallest last."""
    return [
        (name, at_most(number(bound["epsilon"][-1])), bound["says"], bound["both_directions"])
        for name, bound in part.get("bounds", {}).items()
    ]


def _accuracies(result: Result) -> list[Row]:
    known = {**result.utility, **result.owner.get("utility", {})}
    return [
        Row(name=text, value=percent(known[name]), heading=_GOOD, owner_only=name not in result.utility)
        for name, text in _UTILITY.items()
        if name in known
    ] + _more_accuracies(result.utility)


def _more_accuracies(utility: dict[str, Any]) -> list[Row]:
    """Recall, AUC and calibration, where they were measured."""
    recall, auc, gap = (utility.get(name) for name in ("recall", "auc", "calibration_error"))
    lines = []
    if recall:
        many = f" and {len(recall) - _SHOWN} more" if len(recall) > _SHOWN else ""
        each = ", ".join(f"{name} {percent(value)}" for name, value in list(recall.items())[:_SHOWN])
        lines.append(("Recall of each class", each + many))
    if auc is not None:
        lines.append(("AUC", f"{auc:.3f}"))
    if gap is not None:
        lines.append(("Calibration error", f"{percent(gap)} (mean gap between confidence and accuracy)"))
    return [Row(name=name, value=value, heading=_GOOD) for name, value in lines]


def _bounds(result: Result) -> list[Row]:
    upper = result.upper
    note = f" ({_SIMULATION})" if upper.get("simulation") else ""
    publishable = at_most(number(upper.get("epsilon"))) + note
    rows = [
        Row(name="Epsilon, publishable, at most", value=publishable, heading=_UPPER),
        Row(name="Delta", value=delta_text(upper.get("delta")), heading=_UPPER),
        Row(name="Epsilon, lower bound", value=_lower(result), heading=_LOWER),
    ]
    if "epsilon_these_votes" in result.owner:
        these = at_most(number(result.owner["epsilon_these_votes"])) + note
        rows.append(
            Row(name="Epsilon for these votes, at most", value=these, heading=_THESE, owner_only=True)
        )
    return rows


def _scope(result: Result) -> list[Row]:
    settings, utility = result.settings, result.utility
    lines = []
    if "unit" in settings:
        lines.append(("Protected unit", f"one {settings['unit']}"))
    if "relation" in settings:
        lines.append(("Neighbouring relation", neighbours(settings)))
    lines += [
        (f"Questions {name}", f"{utility[name]:,}") for name in ("answered", "abstained") if name in utility
    ]
    if "answers_left" in result.upper:
        lines.append(("Answers left in the budget", f"{result.upper['answers_left']:,}, of the same kind"))
    return [Row(name=name, value=value, heading=_SCOPE) for name, value in lines]


def _claim(result: Result) -> str:
    if result.upper.get("simulation"):
        return f"{_SIMULATION}: the noise came from a generator that anyone with the seed can repeat"
    unit, relation = result.settings.get("unit", "unit"), result.settings.get("relation")
    delta = result.upper.get("delta") or 0.0
    return sentence(epsilon=number(result.upper.get("epsilon")), delta=delta, unit=unit, relation=relation)


def _lower(result: Result) -> str:
    if result.lower is None:
        return "not audited yet"
    epsilon, confidence = number(result.lower.get("epsilon", 0.0)), result.lower.get("confidence")
    return rounded(epsilon, ROUND_FLOOR) + (f" (confidence {percent(confidence)})" if confidence else "")


def _lower_from(result: Result) -> str:
    if result.lower is None:
        return "No audit was made of this run"
    trials = result.lower.get("trials")
    seen = "An audit" if trials is None else f"An audit: {trials:,} simulated runs in each of two worlds"
    return ". ".join([seen, *(text.rstrip(".") for text in [result.lower.get("note")] if text)])


def _attack(detected: float | None) -> str | None:
    """Return the largest power of a test with 5 % false alarms, by the trade-off curve of the bound."""
    return None if detected is None else f"{math.ceil(100 * detected - 1e-9)} of 100"


def _confusion(result: Result) -> tuple[list[str], list[list[int]]] | None:
    """Names of the classes and counts, a row for each true class; None where unknown or too large to read."""
    confusion, recall = result.series.get("confusion"), result.utility.get("recall")
    if not confusion or not recall or len(confusion) > _SHOWN:
        return None
    return list(recall), confusion


def _next_steps(result: Result) -> list[str]:
    """Return advice on what to do after reading the page."""
    steps = []
    epsilon = number(result.upper.get("epsilon"))
    if result.lower is None:
        steps.append(
            "Have the run attacked: a lower bound shows that nothing is grossly wrong (ostraka audit)."
        )
    if not result.upper.get("simulation") and epsilon > _WEAK:
        steps.append(
            f"Epsilon is above {_WEAK:g}. Decide whether that protects enough: a run with a smaller budget "
            "has more noise, and 'ostraka plan' says what teachers learn then."
        )
    if result.utility.get("student") is None:
        steps.append("Measure the model on public rows with known labels before it is used.")
    else:
        steps.append(
            "Look at the recall of each class above: the model may serve some groups worse than others."
        )
    steps.append(
        "Keep the ledger and the teachers' partition with the data; pass on only what is named public."
    )
    steps.append("Any further release from the same data adds to epsilon: charge it to the same ledger.")
    return steps


def _settings(result: Result) -> list[tuple[str, str]]:
    plain = {name: value for name, value in result.settings.items() if value is not None}
    return [
        (_SETTINGS.get(name, name.replace("_", " ").capitalize()), _text(value))
        for name, value in plain.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return ", ".join(_text(item) for item in value[:_SHOWN]) + more
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
