"""The owner's page: one HTML document of bounded size, without scripts or requests.

Its numbers are values, all of them public. The ledger's entries are counted as they come, and the counts are
kept in a file across restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import math
import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from ostraka.core import files
from ostraka.core.files import environment
from ostraka.core.ledger.budget import LedgerError, Pace
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.report.page import at_most, sentence
from ostraka.serve import clock
from ostraka.serve.answering import mechanism_of
from ostraka.serve.requests import ADVICE, WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from jinja2 import Template

    from ostraka.core.ledger.chain import Brief
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.serve.deployment import Deployment

_POINTS = 400  # of the drawing
_ROWS = 50  # of any table
_LETTERS = 80  # of a name
_LOW = 0.1  # share of the budget left that gives a warning
_SOON = 7 * clock.DAY  # time to empty that gives one
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
    before, now, *afresh = _hidden(view.ballot, view.n_teachers, view.n_classes, points)
    if not view.answers_left:
        empty = ("now", "nothing more is answered")
    elif view.seconds_to_empty is None:
        empty = ("not in sight", "nobody asked in the last 24 hours")
    else:
        lasts = clock.lasting(view.seconds_to_empty)
        empty = clock.date(view.at + view.seconds_to_empty), f"in {lasts}, at the present rate"
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
        words = f"At the present rate it lasts {clock.lasting(view.seconds_to_empty)}."
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
        meter=[(question, before, now, votes) for question, votes in zip(view.repeated, afresh, strict=True)],
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
        "lasting": clock.lasting,
        "utc": clock.utc,
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
        return clock.date(times[-1]) if times and until else ""

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
    return f"{clock.date(at + client.seconds_to_empty)} (in {clock.lasting(client.seconds_to_empty)})"


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
class QuestionView:
    """A question asked more than once. Its noise was drawn once: see docs/service.md.

    ``repeaters`` is the number of clients that asked it after its first time.
    """

    digest: str
    times: int
    repeaters: int
    abstained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """One answer. ``epsilon`` is that of one alone; ``repeated`` means that the data paid nothing."""

    seq: int
    client: str
    digest: str
    mechanism: str
    epsilon: float
    epsilon_after: float
    abstained: bool
    repeated: bool
    at: int | None = None


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


_WORKING_OUT = 0.1  # seconds of a view for the answers that clients have left; the rest comes with the next


def overview(deployment: Deployment) -> Overview:
    """Return the present numbers of the page."""
    ledger, saved, counts = deployment.ledger, deployment.saved, deployment.counts
    n_entries = ledger.count()  # counted first: later charges belong to the next view
    counts.catch_up(ledger)
    now = clock.now()
    # the answers left are worked out for the largest spenders first, as far as the time goes
    until, keys, accounts = time.monotonic() + _WORKING_OUT, deployment.keys.kept, deployment.accounts()
    answers_left = {
        account.name: deployment.answers_left.renewed(account.name, until=until)
        for account in sorted(accounts, key=lambda account: -account.spent)
    }
    clients = []
    for account in accounts:
        name, n = account.name, answers_left[account.name]
        rate = counts.per_second(now, name)
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
            in_a_day=counts.in_a_day(now, name),
            seconds_to_empty=None if n is None else 0.0 if not n else n / rate if rate > 0 else None,
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
        in_a_day=counts.in_a_day(now),
        seconds_to_empty=deployment.answers_left.seconds_to_empty(),
        at=now,
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


_READING_TIME = 0.05  # seconds of reading per view; the rest is counted in the background
_SLICE = 0.005  # seconds of reading in the background at a time, during which nothing is charged
_PAUSE = 0.02
_PAGE = 200  # entries read at a time; nothing is charged during a read
_COUNTS_POINTS = 400  # of the history
_REPEATED = 20  # questions listed
_KEPT = 10_000  # repeated questions counted at a time
_WRITTEN = 1_000  # of them that are kept in the file
_LATEST = 10  # answers listed
_LATEST_OF_ONE = 5  # and of each client
_EVERY = 10_000  # entries between two checkpoints
_VERSION = 1


class RunningCounts:
    """Counts of the entries so far. Each view reads the entries since the last one. Bounded in size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq = 0
        self.history: list[tuple[int, float, int | None]] = []
        self.answers: Counter[str] = Counter()
        self.abstained: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.costs: dict[str, list[float]] = {}
        self.pace = Pace()
        self.paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._latest: deque[Brief] = deque(maxlen=_LATEST)
        self._latest_of: defaultdict[str, deque[Brief]] = defaultdict(lambda: deque(maxlen=_LATEST_OF_ONE))
        self._again: dict[str, Counter[str]] = {}
        self._stopped: set[str] = set()

    def catch_up(self, ledger: Ledger, *, seconds: float = _READING_TIME) -> bool:
        """Read new entries for a limited time; return whether all of them are counted."""
        until = time.monotonic() + seconds
        with self._lock:
            while time.monotonic() < until:
                entries = ledger.briefly(after=self.seq, limit=_PAGE)
                if not entries:
                    return True
                for entry in entries:
                    if not self.history or entry.epsilon_after > self.history[-1][1]:
                        self.history.append((entry.seq, entry.epsilon_after, entry.at))
                    if entry.answer is None or not entry.account or entry.digest is None:
                        continue
                    if entry.mechanism.startswith("Reserved("):
                        continue  # free: it binds a key to a batch, or the ledger
                    self._latest.append(entry)
                    self._latest_of[entry.account].append(entry)
                    if entry.at is not None:
                        self.pace.add(entry.at, entry.uses)
                        self.paces[entry.account].add(entry.at, 1)
                    self.answers[entry.account] += 1
                    self.abstained[entry.account] += entry.answer == ABSTAIN
                    if entry.mechanism not in self.costs:  # the first entry of its kind is no repeat
                        (first,) = ledger.entries(after=entry.seq - 1, limit=1)
                        self.costs[entry.mechanism] = [first.curve.epsilon(ledger.budget.delta), 0]
                    self.costs[entry.mechanism][1] += 1
                    if not entry.uses:
                        self.repeats[entry.account] += 1
                        name = entry.digest.hex()
                        self._again.setdefault(name, Counter())[entry.account] += 1
                        if entry.answer == ABSTAIN:
                            self._stopped.add(name)
                self.seq = entries[-1].seq
                if len(self.history) > 2 * _COUNTS_POINTS:
                    self.history = self.history[:-1:2] + self.history[-1:]
                if len(self._again) > 2 * _KEPT:
                    self._again = dict(self._often(_KEPT))
                    self._stopped &= self._again.keys()
        return False

    async def keep_up(self, ledger: Ledger, checkpoint: Checkpoint | None = None) -> None:
        """Count in the background in small steps, and write checkpoints at intervals."""
        while True:
            done = True
            with contextlib.suppress(LedgerError):  # the next charge deals with it
                done = await asyncio.to_thread(self.catch_up, ledger, seconds=_SLICE)
                if checkpoint and self.seq >= checkpoint.seq + _EVERY:
                    await asyncio.to_thread(checkpoint.write, self, ledger)
            await asyncio.sleep(1.0 if done else _PAUSE)

    def repeated(self) -> tuple[QuestionView, ...]:
        """The questions asked most often, of those asked more than once."""
        with self._lock:
            return tuple(
                QuestionView(
                    digest=name, times=1 + by.total(), repeaters=len(by), abstained=name in self._stopped
                )
                for name, by in self._often(_REPEATED)
            )

    def latest(self) -> tuple[AnswerView, ...]:
        """The latest answers, newest first."""
        with self._lock:
            return tuple(self._view(entry) for entry in reversed(self._latest))

    def latest_of(self, client: str) -> tuple[AnswerView, ...]:
        """The latest answers of one client, newest first."""
        with self._lock:
            return tuple(self._view(entry) for entry in reversed(self._latest_of.get(client, ())))

    def per_second(self, now: int, client: str = "") -> float:
        """Answers a second over the last day: of the data's budget, or of one client's."""
        with self._lock:
            pace = self.paces.get(client) if client else self.pace
            return pace.per_second(now) if pace else 0.0

    def in_a_day(self, now: int, client: str = "") -> int:
        """Answers in the last day: of the data's budget, or of one client's."""
        with self._lock:
            pace = self.paces.get(client) if client else self.pace
            return pace.in_a_day(now) if pace else 0

    def _view(self, entry: Brief) -> AnswerView:
        return AnswerView(
            seq=entry.seq,
            client=entry.account,
            digest=(entry.digest or b"").hex(),
            mechanism=entry.mechanism,
            epsilon=self.costs[entry.mechanism][0],
            epsilon_after=entry.epsilon_after,
            abstained=entry.answer == ABSTAIN,
            repeated=not entry.uses,
            at=entry.at,
        )

    def plain(self) -> dict[str, Any]:
        """Return the counts as JSON values, without the latest answers, which the ledger holds."""
        with self._lock:
            often = self._often(_WRITTEN)
            return {
                "seq": self.seq,
                "history": self.history,
                "answers": self.answers,
                "abstained": self.abstained,
                "repeats": self.repeats,
                "costs": self.costs,
                "pace": self.pace.plain(),
                "paces": {name: pace.plain() for name, pace in self.paces.items()},
                "again": [(name, by, name in self._stopped) for name, by in often],
            }

    def resume(self, plain: Mapping[str, Any], ledger: Ledger) -> None:
        """Continue from the value of :meth:`plain`."""
        self.seq = int(plain["seq"])
        self.history = [(seq, epsilon, at) for seq, epsilon, at in plain["history"]]
        self.answers, self.abstained = Counter(plain["answers"]), Counter(plain["abstained"])
        self.repeats, self.costs = Counter(plain["repeats"]), dict(plain["costs"])
        self.pace = Pace.of(plain["pace"])
        self.paces.update({name: Pace.of(pace) for name, pace in plain["paces"].items()})
        self._again = {name: Counter(by) for name, by, _ in plain["again"]}
        self._stopped = {name for name, _, stopped in plain["again"] if stopped}
        for entry in ledger.briefly(after=max(0, self.seq - _PAGE), limit=min(_PAGE, self.seq)):
            if entry.mechanism in self.costs and entry.answer is not None and entry.account:
                self._latest.append(entry)
                self._latest_of[entry.account].append(entry)

    def _often(self, limit: int) -> list[tuple[str, Counter[str]]]:
        return sorted(self._again.items(), key=lambda item: -item[1].total())[:limit]


class Checkpoint:
    """A file beside the ledger with the counts of its entries so far.

    It is sealed under the ledger's secret and names the head after its last entry. A file that does not fit
    is not used: everything is then counted again.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._path, self._secret, self.seq = path, secret, 0

    def read(self, ledger: Ledger) -> RunningCounts:
        """Return the counts of the file, or new ones."""
        counts = RunningCounts()
        with contextlib.suppress(FileNotFoundError, KeyError, TypeError, ValueError):
            seal, text = self._path.read_text(encoding="utf-8").split("\n", 1)
            plain = json.loads(text)
            last = ledger.entries(after=int(plain["seq"]) - 1, limit=1)
            on_record = last and last[0].seq == plain["seq"] and last[0].head == plain["head"]
            if hmac.compare_digest(seal, self._seal(text)) and plain["version"] == _VERSION and on_record:
                counts.resume(plain, ledger)
                self.seq = counts.seq
        return counts

    def write(self, counts: RunningCounts, ledger: Ledger) -> None:
        """Replace the file, if anything is counted."""
        plain = counts.plain()
        last = ledger.entries(after=plain["seq"] - 1, limit=1) if plain["seq"] else ()
        if not last:
            return
        text = json.dumps({"version": _VERSION, "head": last[0].head, **plain})
        with contextlib.suppress(OSError):  # a full disk: the counts are made again
            files.write(self._path, f"{self._seal(text)}\n{text}".encode(), private=True)
            self.seq = plain["seq"]

    def _seal(self, text: str) -> str:
        return hmac.digest(self._secret, b"ostraka counts\0" + text.encode(), "sha256").hex()
