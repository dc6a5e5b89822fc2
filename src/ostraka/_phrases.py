"""Numbers and bounds in words: upper bounds are rounded up, lower bounds down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["at_most", "delta_text", "guess", "neighbours", "number", "percent", "rounded", "sentence"]

_BIG = 1e6
_HAIR = Decimal("1e-9")
_RELATIONS = {
    "replace-one": "replace-one: the data of one {unit} is replaced by any other data",
    "zero-out": "zero-out: one {unit} is left out, so that it counts nothing; the number of units is public",
    "add-or-remove": "add-or-remove: one {unit} is left out; the number of units is not public",
}


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
    rest = "all other rows" if unit == "row" else f"every other {unit}"
    rest = "everybody else" if unit == "person" else rest
    if not math.isfinite(epsilon):
        return f"Nothing is promised about one {unit}: no bound on what was released is known."
    versions = f"any two versions of that {unit}{_possessive(unit)}"
    if relation != "replace-one":
        versions = f"any version of that {unit}{_possessive(unit)} and none at all"
    return (
        f"Whatever anyone believed about one {unit} beforehand, and even knowing {rest}, what was released "
        f"can multiply the odds between {versions} by at most "
        f"{_factor(epsilon)} (e to the power of epsilon = {at_most(epsilon)})"
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
    return f"{Decimal(repr(value)).quantize(Decimal(to), rounding=direction).normalize():f}"


def percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.1f} %"


def delta_text(value: float | None) -> str:
    return "not stated" if value is None else f"{value:g} ({_chance(value)})"


def _chance(delta: float) -> str:
    # a tenth of 1 / 10**6 is a little more than 1e-7 in floating point, and 1 in 9,999,999 helps nobody
    return f"1 in {math.floor(1 / Decimal(repr(delta)) * (1 + _HAIR)):,}" if delta else "0"


def _factor(epsilon: float) -> str:
    factor = math.exp(min(epsilon, 700.0))
    if factor > _BIG:
        return "more than a million, which is no protection to speak of"
    return rounded(factor, ROUND_CEILING, "0.01") if factor < 10 else f"{math.ceil(factor):,}"


def _possessive(unit: str) -> str:
    return "" if unit == "row" else "'s data"
