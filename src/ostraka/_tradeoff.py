"""The advantage of an attacker over guessing, by the trade-off curve of a bound, and a drawing of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ostraka.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FALSE_ALARM", "attack_drawing", "fair_guess", "most_detected"]

FALSE_ALARM = 0.05
_STEPS = 50  # of a search; each leaves the golden section, 4e-11 in all
_GOLDEN = (math.sqrt(5) - 1) / 2
_LARGEST = 700.0  # exp of more is infinite


def most_detected(upper: Mapping[str, Any], *, false_alarm: float = FALSE_ALARM) -> float | None:
    """The largest chance with which any test notices one unit, at this chance of a false alarm.

    Parameters
    ----------
    upper : mapping
        Of a :class:`~ostraka.result.Result`: ``curve`` if it is there, else ``epsilon`` and ``delta``.
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
        return _detected(float(upper["epsilon"]), float(upper.get("delta") or 0.0), false_alarm)
    furthest = min(4 * float(upper["epsilon"]) + 4, _LARGEST)
    return _least(lambda odds: _by_odds(odds, delta, false_alarm), -furthest, furthest)


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


def _detected(epsilon: float, delta: float, alarm: float) -> float:
    """Bound the chance of a true alarm by one (epsilon, delta)."""
    odds = math.exp(min(epsilon, _LARGEST))
    return min(1.0, odds * alarm + delta, 1 - (1 - delta - alarm) / odds)


def _by_odds(log_odds: float, delta: Callable[[float], float], alarm: float) -> float:
    """The same for one of the two directions: convex in the odds, which are below 1 for the other one."""
    odds, at = math.exp(log_odds), delta(abs(log_odds))
    return min(1.0, odds * alarm + (at if log_odds >= 0 else 1 - odds + odds * at))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the smallest value seen in a golden-section search; the function falls, then rises."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    best = min(1.0, at_left, at_right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
        best = min(best, at_left, at_right)
    return best
