"""The advantage of an attacker over guessing, by the trade-off curve of a bound, and a drawing of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ostraka.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FALSE_ALARM", "attack_drawing", "fair_guess", "most_detected"]

FALSE_ALARM = 0.05
_POINTS = 64
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
    two worlds exchanged, ``1 - (1 - delta - false_alarm) / e^epsilon``. The smallest of all of them holds.
    Source: Wasserman and Zhou 2010, arXiv:0811.2501; Dong, Roth and Su 2022, arXiv:1905.02383.
    """
    points = _points(upper)
    if not points:
        return None
    bounds = [math.exp(min(epsilon, _LARGEST)) * false_alarm + delta for epsilon, delta in points]
    bounds += [1 - (1 - delta - false_alarm) / math.exp(min(epsilon, _LARGEST)) for epsilon, delta in points]
    return min(1.0, *bounds)


def fair_guess(upper: Mapping[str, Any]) -> float | None:
    """The largest chance to be right about which of two equally likely versions of one unit was used."""
    points = _points(upper)
    if not points:
        return None
    # total variation is at most 1 - 2 (1 - delta) / (1 + e^epsilon), of (epsilon, delta)
    return min(1 - (1 - delta) / (1 + math.exp(min(epsilon, _LARGEST))) for epsilon, delta in points)


def attack_drawing(upper: Mapping[str, Any], *, unit: str) -> tuple[str, str] | None:
    """Bars as inline SVG, and the same in words: guessing, with all that was released, without privacy."""
    right, detected = fair_guess(upper), most_detected(upper)
    if right is None or detected is None:
        return None
    of_100 = [math.ceil(100 * right - 1e-9), math.ceil(100 * detected - 1e-9)]
    alarms = round(100 * FALSE_ALARM)
    groups = [
        ("Right about one of two versions, of 100 guesses", 50, of_100[0]),
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
        f"Of 100 guesses between two versions of one {unit}, 50 are right by chance, at most {of_100[0]} "
        f"with all that was released, 100 without privacy. With {alarms} false alarms in 100, {alarms} are "
        f"noticed by chance, at most {of_100[1]} with all that was released, 100 without privacy."
    )
    return f'<svg viewBox="0 0 360 {y}" class="attack" aria-hidden="true">{"".join(parts)}</svg>', words


def _points(upper: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Pairs (epsilon, delta) that hold."""
    epsilon = upper.get("epsilon")
    if upper.get("simulation") or epsilon is None or not math.isfinite(float(epsilon)):
        return []
    found = [(float(epsilon), float(upper.get("delta") or 0.0))]
    if "curve" in upper:
        curve = Curve.from_dict(upper["curve"])
        grid = [float(epsilon) * k / _POINTS for k in range(_POINTS)]
        found += [(each, curve.delta(epsilon=each)) for each in grid]
    return found
