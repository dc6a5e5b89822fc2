"""The owner's page: one HTML document of bounded size, without scripts or requests.

:func:`overview` takes its numbers from a deployment, all of them public, and :func:`render` shows them.
"""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from ostraka.core.files import environment
from ostraka.core.ledger.budget import DAY
from ostraka.report.page import at_most, sentence
from ostraka.serve.answering import mechanism_of
from ostraka.serve.counts import now
from ostraka.serve.requests import ADVICE, WORDS

if TYPE_CHECKING:
    from jinja2 import Template

    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.serve.counts import AnswerView, QuestionView
    from ostraka.serve.deployment import Deployment

_POINTS = 400  # of the drawing
_ROWS = 50  # of any table
_LETTERS = 80  # of a name
_LOW = 0.1  # share of the budget left that gives a warning
_FURTHEST = 100 * 366 * DAY  # beyond that no date is told
_UNITS = ((DAY, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_SOON = 7 * DAY  # time to empty that gives one
_MANY = 100  # requests without a valid key that give one
_FEW = 5  # names in an alert
_WIDE, _HIGH = 1000, 300  # of the drawing, stretched to fit
_LABEL = {  # what is shown of a label beside its numbers
    "unit": "Protected unit",
    "relation": "Neighbouring relation",
    "mechanism": "Mechanism",
    "screen": "Screen",
    "accountant": "Accountant",
    "noise": "Noise",
}
_EXAMPLE = 55  # percent for the leader, in the example vote of the meter
_WORKING_OUT = 0.1  # seconds of a view for the answers that clients have left; the rest comes with the next


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """One client: cap, spent and left in nats at the ledger's delta, and counts of its questions.

    ``answers_left`` is None until it is worked out; ``seconds_to_empty`` is None where the client asked
    nothing in the last day.
    """

    name: str
    cap: float
    spent: float
    left: float
    answers: int
    abstained: int
    repeats: int
    valid_keys: int
    answers_left: int | None = None
    in_a_day: int = 0
    seconds_to_empty: float | None = None
    latest: tuple[AnswerView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """One kind of answer: epsilon of one alone at the ledger's delta, and their number."""

    mechanism: str
    epsilon: float
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalView:
    """Requests of one client ("" unknown) that were refused with one code, and when the last one was."""

    client: str
    code: str
    times: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """State of the ledger. ``verified``: checked at start from its anchor on, and no failure since.

    ``counted`` entries are in the history and in all counts; the next view counts more.
    """

    entries: int
    counted: int
    head: str
    verified: bool
    simulation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """All numbers of the page.

    Attributes
    ----------
    mechanism, screen : str and str or None
    ballot : GNMax, LNMax or (Threshold, GNMax)
        The mechanism for the leakage meter, which leaves out a screen before Laplace noise.
    n_teachers, n_classes : int
    unit, relation : str
        What is protected, and between which neighbours.
    epsilon, delta, spent, left : float
        The ledger's budget, which the answers of all clients are charged to.
    answers_left : int
        How many more answers the budget pays for, at least.
    in_a_day : int
        Answers charged to the budget in the last 24 hours.
    seconds_to_empty : float or None
        How long the answers last at that rate.
    at, since : int
        When these numbers were taken, and when the service started.
    problems : tuple of str
        Why the service cannot charge now, if it cannot.
    history : tuple of (entry number, epsilon spent after it, its time or None)
        At most 400 points, the last one included.
    clients, costs, repeated, latest
        By name; costliest first; most often asked first, at most 20; newest first, at most 20.
    refusals : tuple of RefusalView
        Since the service started: a refusal leaves no entry.
    ledger : LedgerView
    label : dict or None
        The privacy label of the run that trained the teachers: its cost comes on top.
    """

    mechanism: str
    screen: str | None
    ballot: BallotMechanism
    n_teachers: int
    n_classes: int
    unit: str
    relation: str
    epsilon: float
    delta: float
    spent: float
    left: float
    answers_left: int
    in_a_day: int
    seconds_to_empty: float | None
    at: int
    since: int
    problems: tuple[str, ...]
    history: tuple[tuple[int, float, int | None], ...]
    clients: tuple[ClientView, ...]
    costs: tuple[CostView, ...]
    repeated: tuple[QuestionView, ...]
    latest: tuple[AnswerView, ...]
    refusals: tuple[RefusalView, ...]
    ledger: LedgerView
    label: dict[str, Any] | None


def overview(deployment: Deployment) -> Overview:
    """Return the present numbers of the page."""
    ledger, saved, counts = deployment.ledger, deployment.saved, deployment.counts
    n_entries = ledger.count()  # counted first: later charges belong to the next view
    counts.catch_up(ledger)
    at = now()
    # the answers left are worked out for the largest spenders first, as far as the time goes
    until, keys, accounts = time.monotonic() + _WORKING_OUT, deployment.keys.kept, deployment.accounts()
    answers_left = {
        account.name: deployment.answers_left.renewed(account.name, until=until)
        for account in sorted(accounts, key=lambda account: -account.spent)
    }
    clients = []
    for account in accounts:
        name, n = account.name, answers_left[account.name]
        lasts = None if n is None else deployment.answers_left.seconds_to_empty(name)
        client = ClientView(
            name=name,
            cap=account.cap,
            spent=account.spent,
            left=account.left,
            answers=counts.answers[name],
            abstained=counts.abstained[name],
            repeats=counts.repeats[name],
            valid_keys=len(keys[name].keys) if name in keys else 0,
            answers_left=n,
            in_a_day=counts.in_a_day(at, name),
            seconds_to_empty=lasts,
            latest=counts.latest_of(name),
        )
        clients.append(client)
    return Overview(
        mechanism=repr(saved.mechanism),
        screen=None if saved.screen is None else repr(saved.screen),
        ballot=mechanism_of(saved),
        n_teachers=saved.n_ballots,
        n_classes=len(saved.classes),
        unit=deployment.unit,
        relation=saved.adjacency.relation,
        epsilon=ledger.budget.epsilon,
        delta=ledger.budget.delta,
        spent=ledger.epsilon(),
        left=ledger.left(),
        answers_left=deployment.answers_left.renewed() or 0,
        in_a_day=counts.in_a_day(at),
        seconds_to_empty=deployment.answers_left.seconds_to_empty(),
        at=at,
        since=deployment.since,
        problems=tuple(deployment.readiness.problems()),
        history=tuple(counts.history),
        clients=tuple(clients),
        costs=tuple(
            CostView(mechanism=name, epsilon=epsilon, answers=int(answers))
            for name, (epsilon, answers) in sorted(counts.costs.items(), key=lambda item: -item[1][0])
        ),
        repeated=counts.repeated(),
        latest=counts.latest(),
        refusals=tuple(
            RefusalView(client=who, code=code, times=n, at=deployment.metrics.last_refused[who, code])
            for (who, code), n in sorted(deployment.metrics.refusals.items())
        ),
        ledger=LedgerView(
            entries=max(n_entries, counts.seq),
            counted=counts.seq,
            head=ledger.head,
            verified=deployment.verified,
            simulation=ledger.simulation,
        ),
        label=deployment.label,
    )


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
    x_ticks: tuple[_Tick, ...]
    y_ticks: tuple[_Tick, ...]
    says: str


def render(view: Overview, *, every: int = 0) -> str:
    """Return the page as self-contained HTML. It is slow, so call it outside the event loop.

    ``every``: seconds after which the reply's header asks the browser to load it again; 0 for never.
    """
    total = sum(client.answers for client in view.clients)
    clients = sorted(view.clients, key=lambda client: (-client.spent, client.name))
    hidden = clients[_ROWS:]  # beyond the list: their number, what they spent, and their answers
    sums = len(hidden), sum(client.spent for client in hidden), sum(client.answers for client in hidden)
    refusals = sorted(view.refusals, key=lambda refusal: (-refusal.times, refusal.client, refusal.code))
    # afresh: with new noise for each answer; the votes are private and not on this page, so the values are
    # of an example vote. Computed where nothing was repeated, too: the page that is drawn at the start
    # compiles what they need
    points = (0, 1, *(question.times for question in view.repeated))
    before, after, *afresh = _hidden(view.ballot, view.n_teachers, view.n_classes, points)
    if not view.answers_left:
        empty = ("now", "nothing more is answered")
    elif view.seconds_to_empty is None:
        empty = ("not in sight", "nobody asked in the last 24 hours")
    else:
        lasts = lasting(view.seconds_to_empty)
        empty = date(view.at + view.seconds_to_empty), f"in {lasts}, at the present rate"
    # what needs the owner's attention: a title and a sentence each
    alerts = []
    if view.problems:
        alerts.append(("The service cannot charge now.", f"It answers 503: {'; '.join(view.problems)}."))
    if not view.answers_left:
        words = "Every question is refused. Nobody can add to this budget: what is known stays known."
        alerts.append(("The budget is spent.", words))
    elif view.left <= _LOW * view.epsilon:
        words = (
            f"ε {_rounded(view.left, direction=ROUND_FLOOR)} of {view.epsilon:g} is left. What does not "
            "fit is refused. Nobody can add to this budget: what is known of the data stays known."
        )
        alerts.append(("The budget is nearly spent.", words))
    elif view.seconds_to_empty is not None and view.seconds_to_empty < _SOON:
        words = f"At the present rate it lasts {lasting(view.seconds_to_empty)}."
        alerts.append(("The budget will be spent soon.", words))
    spent = [client.name for client in view.clients if client.answers_left == 0 and client.answers]
    if spent and view.answers_left:
        names = ", ".join(_name(name, 30) for name in spent[:_FEW])
        others = f" and {len(spent) - _FEW:,} more" if len(spent) > _FEW else ""
        alerts.append(("Clients have nothing left.", f"{names}{others}: their questions are refused."))
    guesses = sum(refusal.times for refusal in view.refusals if refusal.code == "unauthorized")
    if guesses >= _MANY:
        words = f"{guesses:,} requests came without one since the start: see the refusals."
        alerts.append(("Many requests without a valid key.", words))
    # the run's privacy claim, and its sum with the whole budget of this service
    label = view.label or {}
    epsilon = math.inf if label.get("epsilon") is None else float(label["epsilon"])
    audit, lower = label.get("lower"), "not audited yet"
    if audit is not None:
        confidence = f" (confidence {100 * audit['confidence']:g} %)" if audit.get("confidence") else ""
        lower = _rounded(float(audit["epsilon"]), direction=ROUND_FLOOR) + confidence
    label_rows = [
        ("Epsilon, at most", at_most(epsilon)),
        ("Delta", _delta(label.get("delta"))),
        ("Epsilon, at least", lower),
    ]
    # a sum of what two units or relations are promised would be of neither
    alike = label.get("unit") == view.unit and label.get("relation") == view.relation
    if alike and label.get("delta") is not None and math.isfinite(epsilon):
        both = f"{at_most(epsilon + view.epsilon)} at δ = {_delta(label['delta'] + view.delta)}"
        label_rows.append(("With this service’s whole budget", both))
    if label.get("n_units"):
        label_rows.append(("Number of units", f"{label['n_units']:,}"))
    label_rows += [(text, str(label[name])) for name, text in _LABEL.items() if label.get(name) is not None]
    return _template().render(
        view=view,
        claim=sentence(epsilon=view.epsilon, delta=view.delta, unit=view.unit, relation=view.relation),
        drawing=_drawing(view),
        answers=total,
        repeats=sum(client.repeats for client in view.clients),
        story=[  # the facts of the headline: name, value, and meaning in words
            ("Left", f"{view.answers_left:,} answers", "at least, of the costliest kind"),
            ("Used", f"{total:,} answers", f"ε {_rounded(view.spent, direction=ROUND_CEILING)} spent"),
            ("In the last 24 hours", f"{view.in_a_day:,}", "answers that the budget paid for"),
            ("Empty", *empty),
        ],
        alerts=alerts,
        every=every,
        clients=clients[:_ROWS],
        unlisted=sums if hidden else None,
        latest=view.latest[:_ROWS],
        costs=view.costs[:_ROWS],
        meter=[
            (question, before, after, votes) for question, votes in zip(view.repeated, afresh, strict=True)
        ],
        refusals=[
            (refusal, WORDS.get(refusal.code, ""), ADVICE.get(refusal.code, ""))
            for refusal in refusals[:_ROWS]
        ],
        refused=sum(refusal.times for refusal in view.refusals),
        label_rows=label_rows,
        n_rows=_ROWS,
    )


@functools.cache
def _template() -> Template:
    pages = environment()
    pages.filters |= {
        "delta": _delta,
        "empty": _empty,
        "lasting": lasting,
        "utc": utc,
        "down": functools.partial(_rounded, direction=ROUND_FLOOR),
        "name": _name,
        "part": _part,
        "up": functools.partial(_rounded, direction=ROUND_CEILING),
    }
    return pages.get_template("owner.html.j2")


def _drawing(view: Overview) -> _Drawing:
    """Draw the epsilon spent after each entry: a step at each point, flat in between."""
    # the ledger records upper bounds, and no earlier total exceeds the present one
    last = max(view.ledger.counted, 1)
    top = view.epsilon * 1.04
    points = [(0, 0.0), *((seq, min(spent, view.spent, top)) for seq, spent, _ in view.history)]
    if len(points) > _POINTS:  # the first, the last, and some between
        step = (len(points) - 1) / (_POINTS - 1)
        points = [points[round(number * step)] for number in range(_POINTS)]
    steps = "".join(f"H{_WIDE * seq / last:.1f}V{_HIGH * (1 - spent / top):.1f}" for seq, spent in points[1:])
    line = f"M0 {_HIGH}{steps}H{_WIDE}"
    half = last // 2
    entries = [0, half, last] if half else [0, last]

    def day(until: int) -> str:
        """The day of the last step up to an entry; empty where it is not known."""
        times = [at for seq, _, at in view.history if seq <= until and at is not None]
        return date(times[-1]) if times and until else ""

    # in words for screen readers: its start, its quarters and its end
    if view.history:
        quarters = []
        for quarter in (1, 2, 3):
            until = view.ledger.counted * quarter / 4
            spent = max((spent for seq, spent, _ in view.history if seq <= until), default=0.0)
            quarters.append(f"{at_most(min(spent, view.spent))} after entry {math.floor(until):,}")
        end = f"{at_most(view.spent)} of {view.epsilon:g} after all {view.ledger.entries:,} entries"
        words = f"Epsilon spent: {', '.join(quarters)}, {end}."
    else:
        words = f"Nothing is spent of epsilon {view.epsilon:g}."
    # axis values: 0, a few round numbers, and the top in place of the one nearest to it
    unit = 10.0 ** math.floor(math.log10(view.epsilon))
    unit *= next(part for part in (0.2, 0.5, 1.0, 2.0) if view.epsilon / (part * unit) <= 5)
    below = [unit * number for number in range(math.ceil(view.epsilon / unit))]
    values = [float(f"{value:.6g}") for value in below if view.epsilon - value > unit / 2] + [view.epsilon]
    return _Drawing(
        line=line,
        area=f"{line}V{_HIGH}Z",
        cap=_HIGH * (1 - view.epsilon / top),
        x_ticks=tuple(_Tick(100 * seq / last, f"{seq:,}", day(seq)) for seq in entries),
        y_ticks=tuple(_Tick(100 * value / top, f"{value:g}") for value in values),
        says=words,
    )


@functools.lru_cache(maxsize=64)
def _hidden(
    ballot: BallotMechanism, n_teachers: int, n_classes: int, points: tuple[int, ...]
) -> tuple[float, ...]:
    from ostraka.audit.attacks.votes import leakage_meter  # noqa: PLC0415  (compiled code, loaded when needed)

    leader = -(-_EXAMPLE * n_teachers // 100)
    votes = [leader, n_teachers - leader, *[0] * (n_classes - 2)]
    return tuple(leakage_meter(ballot, [votes], n_answers=list(points))[0].tolist())


def _empty(client: ClientView, at: int) -> str:
    """Say in a few words when one client's budget is spent."""
    if client.answers_left == 0:
        return "spent"
    if client.seconds_to_empty is None:
        return "not at the present rate"
    return f"{date(at + client.seconds_to_empty)} (in {lasting(client.seconds_to_empty)})"


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


def _part(value: float, total: float) -> float:
    """Return the percentage of the total, for the length of a bar."""
    return round(100 * min(1.0, max(0.0, value / total)), 1) if total > 0 else 0.0


def utc(at: int | None) -> str:
    """Format day and time to the second; a dash for an entry without a time."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def date(at: float) -> str:
    """Format the day of a time; words for a time that is far away."""
    if at > now() + _FURTHEST:
        return "after a hundred years"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def lasting(seconds: float) -> str:
    """Format a duration in its largest whole unit, rounded down.

    >>> lasting(200_000), lasting(90), lasting(0.5)
    ('2 days', '1 minute', 'less than a second')
    """
    for size, name in _UNITS:
        if seconds >= size:
            n = int(min(seconds, _FURTHEST) // size)
            return f"{n:,} {name}{'s' if n > 1 else ''}"
    return "less than a second"
