"""The owner's page: one HTML document of bounded size, without scripts or requests."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from ostraka._pages import environment
from ostraka._phrases import at_most, sentence
from ostraka.service import _clock
from ostraka.service._replies import ADVICE, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from ostraka.mechanisms.protocols import BallotMechanism
    from ostraka.service._views import ClientView, Overview, RefusalView

__all__ = ["render"]

_POINTS = 400  # of the drawing
_ROWS = 50  # of any table
_LETTERS = 80  # of a name
_LOW = 0.1  # share of the budget left that gives a warning
_SOON = 7 * _clock.DAY  # time to empty that gives one
_MANY = 100  # requests without a valid key that give one
_FEW = 5  # names in an alert
_WIDE, _HIGH = 1000, 300  # of the drawing, stretched to fit
_EXAMPLE = 55  # percent for the leader, in the example vote of the meter


@dataclass(frozen=True, slots=True)
class _Tick:
    """An axis label of the drawing, and its position in percent from the left or the bottom."""

    at: float
    text: str
    day: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """The history as SVG paths in a box of _WIDE by _HIGH."""

    line: str
    area: str
    cap: float
    below: tuple[_Tick, ...]
    beside: tuple[_Tick, ...]
    says: str


def render(seen: Overview, *, every: int = 0) -> str:
    """Return the page as self-contained HTML. It is slow, so call it outside the event loop.

    ``every``: seconds after which the reply's header asks the browser to load it again; 0 for never.
    """
    total = sum(client.answers for client in seen.clients)
    shown = sorted(seen.clients, key=lambda client: (-client.spent, client.name))
    return _template().render(
        seen=seen,
        claim=sentence(epsilon=seen.epsilon, delta=seen.delta, unit=seen.unit, relation=seen.relation),
        drawing=_drawing(seen),
        answers=total,
        repeats=sum(client.repeats for client in seen.clients),
        story=_story(seen),
        alerts=_alerts(seen),
        every=every,
        clients=shown[:_ROWS],
        unlisted=_together(shown[_ROWS:]),
        latest=seen.latest[:_ROWS],
        costs=seen.costs[:_ROWS],
        meter=_meter(seen),
        refusals=_refusals(seen),
        refused=sum(refusal.times for refusal in seen.refusals),
        label_rows=_label_rows(seen),
        n_rows=_ROWS,
    )


@functools.cache
def _template() -> Template:
    pages = environment()
    pages.filters |= {
        "delta": _delta,
        "empty": _empty,
        "lasting": _clock.lasting,
        "utc": _clock.utc,
        "down": functools.partial(_rounded, direction=ROUND_FLOOR),
        "name": _name,
        "part": _part,
        "up": functools.partial(_rounded, direction=ROUND_CEILING),
    }
    return pages.get_template("owner.html.j2")


def _drawing(seen: Overview) -> _Drawing:
    """Draw the epsilon spent after each entry: a step at each point, flat in between."""
    # the ledger records upper bounds, and no earlier total exceeds the present one
    last = max(seen.ledger.counted, 1)
    top = seen.epsilon * 1.04
    points = _thinned([(0, 0.0), *((seq, min(spent, seen.spent, top)) for seq, spent, _ in seen.history)])
    steps = "".join(f"H{_WIDE * seq / last:.1f}V{_HIGH * (1 - spent / top):.1f}" for seq, spent in points[1:])
    line = f"M0 {_HIGH}{steps}H{_WIDE}"
    half = last // 2
    entries = [0, half, last] if half else [0, last]
    return _Drawing(
        line=line,
        area=f"{line}V{_HIGH}Z",
        cap=_HIGH * (1 - seen.epsilon / top),
        below=tuple(_Tick(100 * seq / last, f"{seq:,}", _day_of(seen, seq)) for seq in entries),
        beside=tuple(_Tick(100 * value / top, f"{value:g}") for value in _round_values(seen.epsilon)),
        says=_in_words(seen),
    )


def _in_words(seen: Overview) -> str:
    """Describe the drawing in words for screen readers: its start, its quarters and its end."""
    if not seen.history:
        return f"Nothing is spent of epsilon {seen.epsilon:g}."
    told = []
    for quarter in (1, 2, 3):
        until = seen.ledger.counted * quarter / 4
        spent = max((spent for seq, spent, _ in seen.history if seq <= until), default=0.0)
        told.append(f"{at_most(min(spent, seen.spent))} after entry {math.floor(until):,}")
    end = f"{at_most(seen.spent)} of {seen.epsilon:g} after all {seen.ledger.entries:,} entries"
    return f"Epsilon spent: {', '.join(told)}, {end}."


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Return at most _POINTS points, including the first and the last."""
    if len(points) <= _POINTS:
        return points
    step = (len(points) - 1) / (_POINTS - 1)
    return [points[round(number * step)] for number in range(_POINTS)]


def _round_values(top: float) -> list[float]:
    """Return axis values: 0, a few round numbers, and the top in place of the one nearest to it."""
    step = 10.0 ** math.floor(math.log10(top))
    step *= next(part for part in (0.2, 0.5, 1.0, 2.0) if top / (part * step) <= 5)
    below = [step * number for number in range(math.ceil(top / step))]
    return [float(f"{value:.6g}") for value in below if top - value > step / 2] + [top]


def _together(clients: Sequence[ClientView]) -> tuple[int, float, int] | None:
    """Sum up the clients beyond the list: their number, what they spent, and their answers."""
    if not clients:
        return None
    return len(clients), sum(each.spent for each in clients), sum(each.answers for each in clients)


def _meter(seen: Overview) -> list[tuple[Any, float, float, float]]:
    """Return the votes hidden from the best attacker by each repeated question: before, now, and afresh."""
    # afresh: with new noise for each answer; the votes are private and not on this page, so the values are
    # of an example vote. Computed where nothing was repeated, too: the page that is drawn at the start
    # compiles what they need
    points = (0, 1, *(question.times for question in seen.repeated))
    before, now, *new = _hidden(seen.ballot, seen.n_teachers, seen.n_classes, points)
    return [(question, before, now, each) for question, each in zip(seen.repeated, new, strict=True)]


@functools.lru_cache(maxsize=64)
def _hidden(
    ballot: BallotMechanism, n_teachers: int, n_classes: int, points: tuple[int, ...]
) -> tuple[float, ...]:
    from ostraka.attacks import leakage_meter  # noqa: PLC0415  (compiled code, loaded when needed)

    leader = -(-_EXAMPLE * n_teachers // 100)
    votes = [leader, n_teachers - leader, *[0] * (n_classes - 2)]
    return tuple(leakage_meter(ballot, [votes], n_answers=list(points))[0].tolist())


def _refusals(seen: Overview) -> list[tuple[RefusalView, str, str]]:
    """Return refusals, most frequent first, with the message to the client and advice to the owner."""
    most = sorted(seen.refusals, key=lambda each: (-each.times, each.client, each.code))[:_ROWS]
    return [(each, WORDS.get(each.code, ""), ADVICE.get(each.code, "")) for each in most]


def _story(seen: Overview) -> list[tuple[str, str, str]]:
    """Return the headline's facts: name, value, and meaning in words."""
    total = sum(client.answers for client in seen.clients)
    rate = f"{seen.in_a_day:,}"
    return [
        ("Left", f"{seen.answers_left:,} answers", "at least, of the costliest kind"),
        ("Used", f"{total:,} answers", f"ε {_rounded(seen.spent, direction=ROUND_CEILING)} spent"),
        ("In the last 24 hours", rate, "answers that the budget paid for"),
        ("Empty", *_when_empty(seen)),
    ]


def _when_empty(seen: Overview) -> tuple[str, str]:
    """Return the day on which the budget is spent at the present rate, and the time until then."""
    if not seen.answers_left:
        return "now", "nothing more is answered"
    if seen.seconds_to_empty is None:
        return "not in sight", "nobody asked in the last 24 hours"
    lasts = _clock.lasting(seen.seconds_to_empty)
    return _clock.date(seen.at + seen.seconds_to_empty), f"in {lasts}, at the present rate"


def _empty(client: ClientView, at: int) -> str:
    """Say in a few words when one client's budget is spent."""
    if client.answers_left == 0:
        return "spent"
    if client.seconds_to_empty is None:
        return "not at the present rate"
    return f"{_clock.date(at + client.seconds_to_empty)} (in {_clock.lasting(client.seconds_to_empty)})"


def _alerts(seen: Overview) -> list[tuple[str, str]]:
    """Return what needs the owner's attention: a title and a sentence each."""
    found = [("The service cannot charge now.", f"It answers 503: {'; '.join(seen.problems)}.")]
    found = found if seen.problems else []
    if not seen.answers_left:
        words = "Every question is refused. Nobody can add to this budget: what is known stays known."
        found.append(("The budget is spent.", words))
    elif seen.left <= _LOW * seen.epsilon:
        words = (
            f"ε {_rounded(seen.left, direction=ROUND_FLOOR)} of {seen.epsilon:g} is left. What does not "
            "fit is refused. Nobody can add to this budget: what is known of the data stays known."
        )
        found.append(("The budget is nearly spent.", words))
    elif seen.seconds_to_empty is not None and seen.seconds_to_empty < _SOON:
        words = f"At the present rate it lasts {_clock.lasting(seen.seconds_to_empty)}."
        found.append(("The budget will be spent soon.", words))
    spent = [client.name for client in seen.clients if client.answers_left == 0 and client.answers]
    if spent and seen.answers_left:
        names = ", ".join(_name(name, 30) for name in spent[:_FEW])
        more = f" and {len(spent) - _FEW:,} more" if len(spent) > _FEW else ""
        found.append(("Clients have nothing left.", f"{names}{more}: their questions are refused."))
    guessed = sum(each.times for each in seen.refusals if each.code == "unauthorized")
    if guessed >= _MANY:
        words = f"{guessed:,} requests came without one since the start: see the refusals."
        found.append(("Many requests without a valid key.", words))
    return found


def _day_of(seen: Overview, seq: int) -> str:
    """The day of the last step of the history up to an entry; empty where it is not known."""
    found = [at for number, _, at in seen.history if number <= seq and at is not None]
    return _clock.date(found[-1]) if found and seq else ""


def _label_rows(seen: Overview) -> list[tuple[str, str]]:
    """Return the run's privacy claim, and its sum with the whole budget of this service."""
    label = seen.label or {}
    epsilon = math.inf if label.get("epsilon") is None else float(label["epsilon"])
    rows = [
        ("Epsilon, at most", at_most(epsilon)),
        ("Delta", _delta(label.get("delta"))),
        ("Epsilon, at least", _lower(label.get("lower"))),
    ]
    alike = (
        label.get("unit") == seen.unit and label.get("relation") == seen.relation
    )  # else the sum is of neither
    if alike and label.get("delta") is not None and math.isfinite(epsilon):
        both = f"{at_most(epsilon + seen.epsilon)} at δ = {_delta(label['delta'] + seen.delta)}"
        rows.append(("With this service’s whole budget", both))
    if label.get("n_units"):
        rows.append(("Number of units", f"{label['n_units']:,}"))
    names = {"unit": "Protected unit", "relation": "Neighbouring relation"}
    names |= {"mechanism": "Mechanism", "screen": "Screen", "accountant": "Accountant", "noise": "Noise"}
    return rows + [(text, str(label[name])) for name, text in names.items() if label.get(name) is not None]


def _lower(audit: dict[str, Any] | None) -> str:
    if audit is None:
        return "not audited yet"
    confidence = f" (confidence {100 * audit['confidence']:g} %)" if audit.get("confidence") else ""
    return _rounded(float(audit["epsilon"]), direction=ROUND_FLOOR) + confidence


def _rounded(value: float, *, direction: str) -> str:
    """Round to three decimals: up for what is spent, down for what is left."""
    if not math.isfinite(value):
        return "infinite"
    return f"{Decimal(repr(value)).quantize(Decimal('0.001'), rounding=direction):f}"


def _delta(value: float | None) -> str:
    if value is None:
        return "not stated"
    return f"{value:g} (1 in {math.floor(1 / Decimal(repr(value))):,})" if value else "0"


def _name(text: str, letters: int = _LETTERS) -> str:
    """Return a name with unprintable characters escaped, cut to one line."""
    plain = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return plain if len(plain) <= letters else f"{plain[: letters - 1]}…"


def _part(value: float, whole: float) -> float:
    """Return the percentage of the whole, for the length of a bar."""
    return round(100 * min(1.0, max(0.0, value / whole)), 1) if whole > 0 else 0.0
