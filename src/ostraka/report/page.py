"""Reports of a Result: a table, a label, and a page for a data protection officer.

Everything is made from the record alone. Bounds stand there in words, upper ones rounded up and lower ones
down, beside the advantage of an attacker over guessing, which the trade-off curve of the bound gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

from ostraka.core.curve import Curve
from ostraka.core.files import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ostraka.core.result import Result

__all__ = ["render_html"]
_BIG = 1e6
_MANY_DIGITS = 1e15  # of more, four are shown
_HAIR = Decimal("1e-9")
_RELATIONS = {
    "replace-one": "replace-one: the data of one {unit} is replaced by any other data",
    "zero-out": "zero-out: one {unit} is left out, so that it counts nothing; the number of units is public",
    "add-or-remove": "add-or-remove: one {unit} is left out; the number of units is not public",
}
FALSE_ALARM = 0.05
_STEPS = 50  # of a search; each leaves the golden section, 4e-11 in all
_GOLDEN = (math.sqrt(5) - 1) / 2
_LARGEST = 700.0  # exp of more is infinite
_UTILITY = {
    "student": "Student accuracy",
    "balanced": "Balanced accuracy (mean recall of the classes)",
    "non_private": "Non-private accuracy",
    "plurality": "Accuracy of the plurality, no noise",
    "one_teacher": "Accuracy of one teacher",
    "majority": "Majority-class accuracy",
}
_NUMBERS = {
    "r2": "R², explained share of the variance",
    "mean_absolute_error": "Mean absolute error",
    "root_mean_square_error": "Root mean square error",
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
    settings, upper = result.settings, result.upper
    # how good the model is
    utility = {**result.utility, **result.owner.get("utility", {})}
    rows = [
        Row(name=text, value=percent(utility[name]), heading=_GOOD, owner_only=name not in result.utility)
        for name, text in _UTILITY.items()
        if name in utility
    ]
    utility = result.utility
    lines = [
        (text, f"{utility[name]:,.4g}" if utility[name] is not None else "not known")
        for name, text in _NUMBERS.items()
        if name in utility
    ]
    for share, half in utility.get("half_widths", {}).items():
        interval = utility.get("intervals", {}).get(share)
        held = (
            ""
            if interval is None
            else f", which held {percent(interval['coverage'])} of the rows measured with"
        )
        width = f"the prediction ± {half:,.4g}{held}"
        lines.append((f"Interval for {percent(float(share))} of new rows, at least", width))
    recall, auc, gap = (utility.get(name) for name in ("recall", "auc", "calibration_error"))
    if recall:
        many = f" and {len(recall) - _SHOWN} more" if len(recall) > _SHOWN else ""
        values = ", ".join(f"{name} {percent(value)}" for name, value in list(recall.items())[:_SHOWN])
        lines.append(("Recall of each class", values + many))
    if auc is not None:
        lines.append(("AUC", f"{auc:.3f}"))
    if gap is not None:
        lines.append(("Calibration error", f"{percent(gap)} (mean gap between confidence and accuracy)"))
    rows += [Row(name=name, value=value, heading=_GOOD) for name, value in lines]
    # bounds
    simulated = f" ({_SIMULATION})" if upper.get("simulation") else ""
    publishable = at_most(number(upper.get("epsilon"))) + simulated
    rows += [
        Row(name="Epsilon, publishable, at most", value=publishable, heading=_UPPER),
        Row(name="Delta", value=delta_text(upper.get("delta")), heading=_UPPER),
        Row(name="Epsilon, lower bound", value=_lower(result), heading=_LOWER),
    ]
    if "epsilon_these_votes" in result.owner:
        these = at_most(number(result.owner["epsilon_these_votes"])) + simulated
        rows.append(
            Row(name="Epsilon for these votes, at most", value=these, heading=_THESE, owner_only=True)
        )
    # what is protected
    lines = []
    if "unit" in settings:
        lines.append(("Protected unit", f"one {settings['unit']}"))
    if "relation" in settings:
        lines.append(("Neighbouring relation", neighbours(settings)))
    lines += [
        (f"Questions {name}", f"{utility[name]:,}") for name in ("answered", "abstained") if name in utility
    ]
    if table := upper.get("table"):
        lines.append(("All releases from this table", of_table(table)))
    if "answers_left" in upper:
        lines.append(("Answers left in the budget", f"{upper['answers_left']:,}, of the same kind"))
    return (*rows, *(Row(name=name, value=value, heading=_SCOPE) for name, value in lines))


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
    if simulation:
        claim = f"{_SIMULATION}: the noise came from a generator that anyone with the seed can repeat"
    else:
        unit, relation = settings.get("unit", "unit"), settings.get("relation")
        claim = sentence(epsilon=number(epsilon), delta=delta or 0.0, unit=unit, relation=relation)
    return {
        "claim": claim,
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
        "table": upper.get("table"),
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
    rows, label, epsilon = summary_table(result), privacy_label(result), number(result.upper.get("epsilon"))
    detected = most_detected(result.upper)
    recall, confusion = result.utility.get("recall"), result.series.get("confusion") or []
    lower_from = "No audit was made of this run"
    if result.lower is not None:
        trials = result.lower.get("trials")
        words = "An audit" if trials is None else f"An audit: {trials:,} simulated runs in each of two worlds"
        lower_from = ". ".join([words, *(text.rstrip(".") for text in [result.lower.get("note")] if text)])
    # what to do after reading the page
    steps = []
    if result.lower is None:
        steps.append(
            "Have the run attacked: a lower bound shows that nothing is grossly wrong (ostraka audit)."
        )
    if not result.upper.get("simulation") and epsilon > _WEAK:
        steps.append(
            f"Epsilon is above {_WEAK:g}. Decide whether that protects enough: a run with a smaller budget "
            "has more noise, and 'ostraka plan' says what teachers learn then."
        )
    if result.utility.get("student") is None and result.utility.get("r2") is None:
        steps.append("Measure the model on public rows with known labels before it is used.")
    elif "r2" in result.utility:
        steps.append("Look at errors by group: the model may be further off for some groups than for others.")
    else:
        steps.append(
            "Look at the recall of each class above: the model may serve some groups worse than others."
        )
    steps.append(
        "Keep the ledger and the teachers' partition with the data; pass on only what is named public."
    )
    steps.append("Any further release from the same data adds to epsilon: charge it to the same ledger.")
    figures_shown = [figure for figure in figures if result.owner or not figure.owner_only]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            label=label,
            result=result,
            good=[(row.name, row.value) for row in rows if not row.owner_only and row.heading == _GOOD],
            scope=[(row.name, row.value) for row in rows if row.heading == _SCOPE],
            owner_rows=[(row.name, row.value) for row in rows if row.owner_only],
            figures=[figure for figure in figures_shown if not figure.owner_only],
            owner_figures=[figure for figure in figures_shown if figure.owner_only],
            relation=neighbours(result.settings),
            epsilon=at_most(epsilon),
            delta=delta_text(result.upper.get("delta")),
            lower=_lower(result),
            lower_from=lower_from,
            attack=None if detected is None else f"{math.ceil(100 * detected - 1e-9)} of 100",
            drawing=attack_drawing(result.upper, what=guess(result.settings), detected=detected),
            guess=guess(result.settings),
            confusion=(list(recall), confusion) if recall and 0 < len(confusion) <= _SHOWN else None,
            steps=steps,
            controller=controller,
            purpose=purpose,
            settings=[
                (_SETTINGS.get(name, name.replace("_", " ").capitalize()), _text(value))
                for name, value in result.settings.items()
                if value is not None
            ],
            notes=[note for note in result.notes if note not in result.upper.get("not_protected", [])],
            bounds=_side_by_side(result.upper),
            owner_bounds=_side_by_side(result.owner),
        )
    )


def of_table(table: Mapping[str, Any]) -> str:
    """What all releases from a table cost a unit, from a record."""
    others = f"; and {table['others']} more under another promise" if table["others"] else ""
    many = f"{table['releases']} release{'s' * (table['releases'] != 1)}"
    epsilon = at_most(number(table["epsilon"]))
    return f"epsilon at most {epsilon} at delta {delta_text(table['delta'])}, by {many}{others}"


def sentence(*, epsilon: float, delta: float, unit: str, relation: str | None = "replace-one") -> str:
    """The guarantee of (epsilon, delta), in one sentence about odds.

    Parameters
    ----------
    epsilon : float >= 0, nats
        Infinity: nothing is promised, and the sentence says so.
    delta : float in [0, 1)
    unit : str
        Whom the claim protects: ``"row"``, ``"person"``, …
    relation : str or None
        Neighbouring relation. All but ``"replace-one"`` say no more than whether there is any data.

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
    others = "all other rows" if unit == "row" else f"every other {unit}"
    others = "everybody else" if unit == "person" else others
    if not math.isfinite(epsilon):
        return f"Nothing is promised about one {unit}: no bound on what was released is known."
    versions = f"any two versions of that {unit}{_possessive(unit)}"
    if relation != "replace-one":
        versions = f"any version of that {unit}{_possessive(unit)} and none at all"
    factor = math.exp(min(epsilon, 700.0))
    times = rounded(factor, ROUND_CEILING, "0.01") if factor < 10 else f"{math.ceil(factor):,}"
    if factor > _BIG:
        times = "more than a million, which is no protection to speak of"
    return (
        f"Whatever anyone believed about one {unit} beforehand, and even knowing {others}, what was released "
        f"can multiply the odds between {versions} by at most "
        f"{times} (e to the power of epsilon = {at_most(epsilon)})"
        + (f", but for a chance of {_chance(delta)} (delta) in which nothing is promised." if delta else ".")
    )


def neighbours(settings: Mapping[str, Any]) -> str:
    """The neighbouring relation of a record in words; its name where there are none."""
    name = str(settings.get("relation", "not stated"))
    return _RELATIONS.get(name, name).format(unit=settings.get("unit", "unit"))


def guess(settings: Mapping[str, Any]) -> str:
    """What an attacker guesses under the neighbouring relation of a record."""
    unit = settings.get("unit") or "unit"
    if settings.get("relation") != "replace-one":
        return f"whether one {unit} was left out"
    return f"which of two versions of one {unit} was used"


def most_detected(upper: Mapping[str, Any], *, false_alarm: float = FALSE_ALARM) -> float | None:
    """The largest chance with which any test notices one unit, at this chance of a false alarm.

    Parameters
    ----------
    upper : mapping
        Of a :class:`~ostraka.core.result.Result`: ``curve`` if it is there, else ``epsilon`` and ``delta``.
    false_alarm : float in (0, 1)

    Returns
    -------
    float or None
        None where nothing is promised.

    Guarantees
    ----------
    Every (epsilon, delta) that holds gives two bounds: ``e^epsilon * false_alarm + delta``, and, with the
    two worlds exchanged, ``1 - (1 - delta - false_alarm) / e^epsilon``. With a curve, the smallest over all
    epsilon is found, which is the exact trade-off curve where the curve's delta is exact. Nearly so is that
    of many answers of one ``GNMax`` (docs/composition.md). Any epsilon that is tried gives a valid bound.
    Source: Wasserman and Zhou 2010, arXiv:0811.2501; Dong, Roth and Su 2022, arXiv:1905.02383, Prop. 6.
    """
    if not _promised(upper):
        return None
    delta = _deltas(upper)
    if delta is None:
        log_odds, point = min(float(upper["epsilon"]), _LARGEST), float(upper.get("delta") or 0.0)
        return min(_detected(sign * log_odds, point, false_alarm) for sign in (1, -1))
    furthest = min(4 * float(upper["epsilon"]) + 4, _LARGEST)
    return _least(lambda odds: _detected(odds, delta(abs(odds)), false_alarm), -furthest, furthest)


def fair_guess(upper: Mapping[str, Any]) -> float | None:
    """The largest chance to be right about which of two equally likely versions of one unit was used."""
    if not _promised(upper):
        return None
    epsilon, delta = float(upper["epsilon"]), float(upper.get("delta") or 0.0)
    # total variation is at most 1 - 2 (1 - delta) / (1 + e^epsilon), and delta at epsilon 0
    right = 1 - (1 - delta) / (1 + math.exp(min(epsilon, _LARGEST)))
    deltas = _deltas(upper)
    return right if deltas is None else min(right, (1 + deltas(0.0)) / 2)


def attack_drawing(upper: Mapping[str, Any], *, what: str, detected: float | None) -> tuple[str, str] | None:
    """Bars as inline SVG, and the same in words: guessing, with all that was released, without privacy.

    ``what`` is guessed, in words; ``detected`` is what :func:`most_detected` says.
    """
    right = fair_guess(upper)
    if right is None or detected is None:
        return None
    of_100 = [math.ceil(100 * right - 1e-9), math.ceil(100 * detected - 1e-9)]
    alarms = round(100 * FALSE_ALARM)
    groups = [
        ("Right, of 100 guesses", 50, of_100[0]),
        (f"Noticed of 100, with {alarms} false alarms in 100", alarms, of_100[1]),
    ]
    parts, y = [], 0
    for title, guess, released in groups:
        parts.append(f'<text x="0" y="{y + 14}" class="name">{title}</text>')
        for k, (label, value) in enumerate(
            (
                ("by guessing", guess),
                ("with all that was released, at most", released),
                ("without privacy", 100),
            )
        ):
            top = y + 24 + 40 * k
            parts.append(
                f'<text x="0" y="{top + 12}">{label}</text>'
                f'<rect x="0" y="{top + 17}" width="{3.2 * value:.1f}" height="13" class="bar{k}"/>'
                f'<text x="{3.2 * value + 6:.1f}" y="{top + 28}" class="value">{value}</text>'
            )
        y += 160
    words = (
        f"Of 100 guesses {what}, 50 are right by chance, at most {of_100[0]} "
        f"with all that was released, 100 without privacy. With {alarms} false alarms in 100, {alarms} are "
        f"noticed by chance, at most {of_100[1]} with all that was released, 100 without privacy."
    )
    return f'<svg viewBox="0 0 360 {y}" class="attack" aria-hidden="true">{"".join(parts)}</svg>', words


def _promised(upper: Mapping[str, Any]) -> bool:
    """Return whether there is an epsilon that holds."""
    epsilon = upper.get("epsilon")
    return not upper.get("simulation") and epsilon is not None and math.isfinite(float(epsilon))


def _deltas(upper: Mapping[str, Any]) -> Callable[[float], float] | None:
    """Return delta as a function of epsilon, if there is a curve."""
    return Curve.from_dict(upper["curve"]).delta if "curve" in upper else None


def _detected(log_odds: float, delta: float, alarm: float) -> float:
    """Bound the chance of a true alarm by the delta of one epsilon, the size of ``log_odds``.

    The sign is that of the direction of the comparison; the bound is convex in the odds.
    """
    odds = math.exp(log_odds)
    return min(1.0, odds * alarm + (delta if log_odds >= 0 else 1 - odds + odds * delta))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the smallest value seen in a golden-section search; the function falls, then rises."""
    low_point, high_point = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(low_point), function(high_point)
    best = min(1.0, at_left, at_right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, high_point, at_right = high_point, low_point, at_left
            low_point = high - _GOLDEN * (high - low)
            at_left = function(low_point)
        else:
            low, low_point, at_left = low_point, high_point, at_right
            high_point = low + _GOLDEN * (high - low)
            at_right = function(high_point)
        best = min(best, at_left, at_right)
    return best


def at_most(value: float) -> str:
    """An upper bound as text: three decimals, never less than the value.

    Examples
    --------
    >>> at_most(2.00001), at_most(0.5), at_most(math.inf)
    ('2.001', '0.5', 'infinite')
    """
    return rounded(value, ROUND_CEILING) if math.isfinite(value) else "infinite"


def number(value: Any) -> float:
    """Epsilon as a record holds it: a number, "inf", or None for not known, which is infinite."""
    return math.inf if value is None else float(value)


def rounded(value: float, direction: str, to: str = "0.001") -> str:
    if abs(value) >= _MANY_DIGITS:
        return f"{Context(prec=4, rounding=direction).create_decimal(repr(value)).normalize()}".lower()
    return f"{Decimal(repr(value)).quantize(Decimal(to), rounding=direction).normalize():f}"


def percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.1f} %"


def delta_text(value: float | None) -> str:
    return "not stated" if value is None else f"{value:g} ({_chance(value)})"


def _chance(delta: float) -> str:
    # a tenth of 1 / 10**6 is a little more than 1e-7 in floating point, and 1 in 9,999,999 helps nobody
    return f"1 in {math.floor(1 / Decimal(repr(delta)) * (1 + _HAIR)):,}" if delta else "0"


def _possessive(unit: str) -> str:
    return "" if unit == "row" else "'s data"


def _side_by_side(part: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Name, epsilon after all answers, what it holds for, and whether in both directions; smallest last."""
    return [
        (name, at_most(number(bound["epsilon"][-1])), bound["says"], bound["both_directions"])
        for name, bound in part.get("bounds", {}).items()
    ]


def _lower(result: Result) -> str:
    if result.lower is None:
        return "not audited yet"
    epsilon, confidence = number(result.lower.get("epsilon", 0.0)), result.lower.get("confidence")
    return rounded(epsilon, ROUND_FLOOR) + (f" (confidence {percent(confidence)})" if confidence else "")


def _text(value: Any) -> str:
    if isinstance(value, list):
        others = f" and {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return ", ".join(_text(item) for item in value[:_SHOWN]) + others
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
