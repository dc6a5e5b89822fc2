"""The numbers of the owner's page as values. All of them are public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["AnswerView", "ClientView", "CostView", "LedgerView", "Overview", "QuestionView", "RefusalView"]


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
