"""Report: what a Result says, in words, in one table, as a label and as a page an ethics board can read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from ostraka.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Figure", "Result", "Row", "at_most", "privacy_label", "render_html", "sentence", "summary_table"]

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
_RELATIONS = {
    "replace-one": "replace-one: the data of one {unit} is replaced by any other data",
}
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
    "asks": "Asks first",
    "manifest": "Hash of the partition",
    "seed": "Seed of training, not of noise",
}
_FALSE_ALARM = 0.05
_SHOWN = 12  # of a long list
_BIG = 1e6


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


def sentence(*, epsilon: float, delta: float, unit: str) -> str:
    """What (epsilon, delta) promises, in one sentence about odds.

    Parameters
    ----------
    epsilon : float >= 0, nats
        Infinity: nothing is promised, and the sentence says so.
    delta : float in [0, 1)
    unit : str
        Whom the claim protects: ``"row"``, ``"person"``, …

    Guarantees
    ----------
    True for every prior and every attacker: an (epsilon, delta)-private pair of output
    distributions is a mixture, with weight 1 - delta, of an (epsilon, 0)-private pair, whose
    likelihood ratio is at most e^epsilon (Kairouz, Oh & Viswanath 2015, arXiv:1311.0776, proof of Thm 3.3).

    Examples
    --------
    >>> print(sentence(epsilon=1.0, delta=1e-5, unit="person"))
    Whatever anyone believed about one person beforehand, and even knowing everybody else, what was
    released can multiply the odds between any two versions of that person's data by at most 2.72
    (e to the power of epsilon = 1), but for a chance of 1 in 100,000 (delta) in which nothing is promised.
    """
    rest = "all other rows" if unit == "row" else f"every other {unit}"
    rest = "everybody else" if unit == "person" else rest
    if not math.isfinite(epsilon):
        return f"Nothing is promised about one {unit}: no bound on what was released is known."
    return (
        f"Whatever anyone believed about one {unit} beforehand, and even knowing {rest}, what was released "
        f"can multiply the odds between any two versions of that {unit}{_possessive(unit)} by at most "
        f"{_factor(epsilon)} (e to the power of epsilon = {at_most(epsilon)})"
        + (f", but for a chance of {_chance(delta)} (delta) in which nothing is promised." if delta else ".")
    )


def at_most(value: float) -> str:
    """An upper bound as text: three decimals, never less than the value.

    Examples
    --------
    >>> at_most(2.00001), at_most(0.5), at_most(math.inf)
    ('2.001', '0.5', 'infinite')
    """
    return _rounded(value, ROUND_CEILING) if math.isfinite(value) else "infinite"


def summary_table(result: Result) -> tuple[Row, ...]:
    """The lines every summary shows, in order; ``result.public()`` has none that are owner-only.

    Examples
    --------
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
    """What may be said in public about the privacy of a run: plain JSON types, nothing from ``owner``.

    A simulation has neither epsilon nor delta: its noise can be repeated, so it hides nothing.

    Examples
    --------
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


def render_html(result: Result, *, figures: Sequence[Figure] = ()) -> str:
    """One self-contained page: no script, no request, readable in light and dark and without figures.

    The owner's part stands apart and says so; ``render_html(result.public())`` leaves it out.
    Owner-only figures are left out too when the record has no owner's part.

    Examples
    --------
    >>> page = render_html(Result(kind="learn", upper={"epsilon": 2.0, "delta": 1e-5}))
    >>> "not audited yet" in page
    True
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only pages need it)

    environment = Environment(
        loader=PackageLoader("ostraka"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = summary_table(result)
    shown = [figure for figure in figures if result.owner or not figure.owner_only]
    return environment.get_template("report.html.j2").render(
        label=privacy_label(result),
        result=result,
        rows=[(row.name, row.value) for row in rows if not row.owner_only],
        owner_rows=[(row.name, row.value) for row in rows if row.owner_only],
        figures=[figure for figure in shown if not figure.owner_only],
        owner_figures=[figure for figure in shown if figure.owner_only],
        relation=_relation(result),
        epsilon=at_most(_number(result.upper.get("epsilon"))),
        delta=_delta(result.upper.get("delta")),
        lower=_lower(result),
        lower_from=_lower_from(result),
        attack=_attack(result),
        settings=_settings(result),
        notes=[note for note in result.notes if note not in result.upper.get("not_protected", [])],
        bounds=_side_by_side(result.upper),
        owner_bounds=_side_by_side(result.owner),
    )


def _side_by_side(part: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Name, epsilon after all answers, what it holds for, and whether in both directions; smallest last."""
    return [
        (name, at_most(_number(bound["epsilon"][-1])), bound["says"], bound["both_directions"])
        for name, bound in part.get("bounds", {}).items()
    ]


def _accuracies(result: Result) -> list[Row]:
    known = {**result.utility, **result.owner.get("utility", {})}
    return [
        Row(name=text, value=_percent(known[name]), heading=_GOOD, owner_only=name not in result.utility)
        for name, text in _UTILITY.items()
        if name in known
    ] + _more_accuracies(result.utility)


def _more_accuracies(utility: dict[str, Any]) -> list[Row]:
    """Recall, AUC and calibration, where they were measured."""
    recall, auc, gap = (utility.get(name) for name in ("recall", "auc", "calibration_error"))
    lines = []
    if recall:
        many = f" and {len(recall) - _SHOWN} more" if len(recall) > _SHOWN else ""
        each = ", ".join(f"{name} {_percent(value)}" for name, value in list(recall.items())[:_SHOWN])
        lines.append(("Recall of each class", each + many))
    if auc is not None:
        lines.append(("AUC", f"{auc:.3f}"))
    if gap is not None:
        lines.append(("Calibration error", f"{_percent(gap)} (mean gap between confidence and accuracy)"))
    return [Row(name=name, value=value, heading=_GOOD) for name, value in lines]


def _bounds(result: Result) -> list[Row]:
    upper = result.upper
    note = f" ({_SIMULATION})" if upper.get("simulation") else ""
    publishable = at_most(_number(upper.get("epsilon"))) + note
    rows = [
        Row(name="Epsilon, publishable, at most", value=publishable, heading=_UPPER),
        Row(name="Delta", value=_delta(upper.get("delta")), heading=_UPPER),
        Row(name="Epsilon, lower bound", value=_lower(result), heading=_LOWER),
    ]
    if "epsilon_these_votes" in result.owner:
        these = at_most(_number(result.owner["epsilon_these_votes"])) + note
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
        lines.append(("Neighbouring relation", _relation(result)))
    lines += [
        (f"Questions {name}", f"{utility[name]:,}") for name in ("answered", "abstained") if name in utility
    ]
    return [Row(name=name, value=value, heading=_SCOPE) for name, value in lines]


def _claim(result: Result) -> str:
    if result.upper.get("simulation"):
        return f"{_SIMULATION}: the noise came from a generator that anyone with the seed can repeat"
    unit = result.settings.get("unit", "unit")
    delta = result.upper.get("delta") or 0.0
    return sentence(epsilon=_number(result.upper.get("epsilon")), delta=delta, unit=unit)


def _relation(result: Result) -> str:
    name = str(result.settings.get("relation", "not stated"))
    return _RELATIONS.get(name, name).format(unit=result.settings.get("unit", "unit"))


def _lower(result: Result) -> str:
    if result.lower is None:
        return "not audited yet"
    epsilon, confidence = _number(result.lower.get("epsilon", 0.0)), result.lower.get("confidence")
    return _rounded(epsilon, ROUND_FLOOR) + (f" (confidence {_percent(confidence)})" if confidence else "")


def _lower_from(result: Result) -> str:
    if result.lower is None:
        return "No audit was made of this run"
    trials = result.lower.get("trials")
    seen = "An audit" if trials is None else f"An audit: {trials:,} simulated runs in each of two worlds"
    return ". ".join([seen, *(text.rstrip(".") for text in [result.lower.get("note")] if text)])


def _attack(result: Result) -> str | None:
    """What a test with 5 % false alarms can catch at most, by the trade-off curve of (epsilon, delta)."""
    epsilon = _number(result.upper.get("epsilon"))
    if result.upper.get("simulation") or not math.isfinite(epsilon):
        return None
    delta, alarm = result.upper.get("delta") or 0.0, _FALSE_ALARM
    grown = math.exp(min(epsilon, 700.0))
    caught = min(1.0, grown * alarm + delta, 1 - (1 - delta - alarm) / grown)
    return f"{math.ceil(caught * 100)} of 100"


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


def _number(value: Any) -> float:
    """Epsilon as a record holds it: a number, "inf", or None for not known, which is infinite."""
    return math.inf if value is None else float(value)


def _rounded(value: float, direction: str, to: str = "0.001") -> str:
    return f"{Decimal(repr(value)).quantize(Decimal(to), rounding=direction).normalize():f}"


def _percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.1f} %"


def _delta(value: float | None) -> str:
    return "not stated" if value is None else f"{value:g} ({_chance(value)})"


def _chance(delta: float) -> str:
    return f"1 in {math.floor(1 / Decimal(repr(delta))):,}" if delta else "0"


def _factor(epsilon: float) -> str:
    factor = math.exp(min(epsilon, 700.0))
    if factor > _BIG:
        return "more than a million, which is no protection to speak of"
    return _rounded(factor, ROUND_CEILING, "0.01") if factor < 10 else f"{math.ceil(factor):,}"


def _possessive(unit: str) -> str:
    return "" if unit == "row" else "'s data"
