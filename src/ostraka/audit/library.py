"""The audit of this library: its noise, price, shards, teachers, door and ledger; and of broken builds of it.

The broken builds have planted defects, most of them seen in published code: an audit must detect them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka.audit.bound import Measure
from ostraka.audit.claims import audit_mechanism, outcome_counts, released
from ostraka.audit.cuts import epsilon_lower_bound, renyi_lower_bound
from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.door import release
from ostraka.core.ledger.budget import Budget, BudgetExceeded
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.argmax import GNMax
from ostraka.core.private import Adjacency, Private
from ostraka.data.units import partition
from ostraka.voters.teachers import TeacherEnsemble
from ostraka.voters.voting import count_votes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.audit.bound import Finding
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.data.units import Manifest

    Rows = list[np.ndarray]
    Noise = Callable[[np.random.Generator, float, tuple[int, ...]], np.ndarray]
    Deal = Callable[[Rows, Rows | None], Rows]

_CONFIDENCE = 1 - 1e-4  # of each finding: a run in CI must not fail by chance
_RELEASE = 100_000
_N_TEACHERS, _ROUNDS = 8, 4
_BALLOT = Adjacency.one_ballot()


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The parts of the library that an audit calls. Replace one to audit another build.

    Attributes
    ----------
    mechanism : callable, keyword sigma -> Mechanism
    answer : callable, (mechanism, private, keyword ledger) -> answers
        The door.
    ledger : callable, (path, keyword budget) -> Ledger
    teachers : callable, (estimator, keyword n_teachers) -> TeacherEnsemble
    """

    mechanism: Callable[..., BallotMechanism] = GNMax
    answer: Callable[..., np.ndarray] = release
    ledger: Callable[..., Any] = Ledger
    teachers: Callable[..., Any] = TeacherEnsemble


class _Free:
    """A ledger without a budget, for an audit which asks its own votes very often."""

    def charge(self, *_: object, **__: object) -> int:
        """Charge nothing: the votes are the audit's own."""
        return 1

    def answer(self, _: int) -> None:
        """No answer is stored."""

    def record(self, _: int, answer: np.ndarray) -> np.ndarray:
        """Return the answer."""
        return answer


def audit_library(system: System | None = None, *, trials: int = 1_000_000) -> tuple[Finding, ...]:
    """Audit the library's own mechanisms through its door, as a developer does before a release.

    Parameters
    ----------
    system : System, optional
        None: this library as it is installed.
    trials : int
        Answers in each world, where one release can give many.

    Returns
    -------
    tuple of Finding
        Of the noise and the price (two pairs of votes, through the door); of noise used twice, within
        a release and between releases; of one row and the ballots it moves, for every row of a small
        ensemble; and of the budget, with all answers the ledger grants taken together.

    Guarantees
    ----------
    Each finding calls a sound build violated with probability at most 1.1e-4. What the audit of a
    broken build misses is counted by :func:`mutation_score`.

    Examples
    --------
    >>> for finding in audit_library(trials=1_000):  # a million for a verdict
    ...     print(finding.name)
    five classes: GNMax(sigma=2.0)
    two classes: GNMax(sigma=2.0)
    noise within a release
    noise between releases
    one row, one ballot
    budget
    """
    system = System() if system is None else system
    return (
        _argmax(system, "five classes", [14, 12, 10, 8, 6], [13, 13, 10, 8, 6], trials=trials),
        _argmax(system, "two classes", [5, 4], [4, 5], trials=trials),
        _noise_twice(system, "noise within a release", together=True),
        _noise_twice(system, "noise between releases", together=False),
        _one_row_one_ballot(system, trials=max(1, trials // 20)),
        _budget(system, trials=max(1, trials // 20)),
    )


def _argmax(system: System, name: str, votes: list[int], neighbour: list[int], *, trials: int) -> Finding:
    """Audit the noisy argmax through the door against its price and its outcome map."""
    mechanism = system.mechanism(sigma=2.0)
    sample = partial(_through_the_door, system, mechanism, trials=trials)
    finding = audit_mechanism(
        mechanism, votes, neighbour, trials=trials, confidence=_CONFIDENCE, sample=sample
    )
    return replace(finding, name=f"{name}: {finding.name}")


def _through_the_door(system: System, mechanism: BallotMechanism, votes: Any, *, trials: int) -> np.ndarray:
    release = partial(system.answer, mechanism, ledger=_Free())
    world = np.asarray(votes, dtype=np.float64)
    chunks = released(release, world, trials=trials, n_outcomes=world.size, chunk=_RELEASE)
    return outcome_counts(chunks, world.size)


def _noise_twice(system: System, name: str, *, together: bool, trials: int = 300) -> Finding:
    """Ask the same questions twice; the target's ballot is in the second batch only."""
    # with fresh noise the first batch tells nothing about the second; with the same noise an answer changes
    # only where the ballot decided it, and there are questions enough for some to change
    sigma, reach = 40.0, 170
    mechanism = system.mechanism(sigma=sigma)
    lead = np.concatenate([np.arange(-reach, reach + 1, 2), np.ones(1000)])
    before = np.stack([200 + lead, np.full(lead.size, 200.0)], axis=1)
    after = before + np.array([-1.0, 1.0])
    tallies = []
    ask = partial(system.answer, mechanism, ledger=_Free())
    for second in (before, after):
        batches = [Private(votes, _BALLOT) for votes in (before, second, np.concatenate([before, second]))]
        repeats = 0
        for _ in range(trials):
            questions = batches[2:] if together else batches[:2]
            answers = np.concatenate([ask(batch) for batch in questions])
            repeats += bool(np.array_equal(answers[: lead.size], answers[lead.size :]))
        tallies.append([repeats, trials - repeats])
    return _held_to(name, lead.size * mechanism.curve(), tallies, what=f"{lead.size} answers asked again")


def _one_row_one_ballot(system: System, *, trials: int) -> Finding:
    """Replace the label of each row in turn, and ask the teachers about that row, several times."""
    # the answer counts that is drawn after several rounds of questions: a teacher who has learned rows of
    # other shards by then votes by them
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    X, y = np.arange(_N_TEACHERS, dtype=np.float64)[:, None], np.arange(_N_TEACHERS) % 2
    mechanism, manifest, worst = system.mechanism(sigma=2.0), None, None
    for row in range(_N_TEACHERS):
        ensemble = system.teachers(DecisionTreeClassifier(random_state=0), n_teachers=_N_TEACHERS)
        tallies = []
        for labels in (y, np.where(np.arange(_N_TEACHERS) == row, 1 - y, y)):
            ensemble.fit(X, labels, classes=[0, 1], manifest=manifest)
            manifest = ensemble.manifest_  # one deal for all, so that every shard has its turn
            for _ in range(_ROUNDS):
                votes = ensemble.vote(X[row : row + 1])
            tallies.append(_through_the_door(system, mechanism, votes.open()[0], trials=trials))
        finding = _held_to(
            f"row {row + 1} of {_N_TEACHERS}", mechanism.curve(), tallies, what="one answer", runs=_N_TEACHERS
        )
        if worst is None or finding.verdict == "violated":
            worst = finding
    assert worst is not None  # noqa: S101  (there are rows)
    return replace(worst, name="one row, one ballot" if worst.verdict == "consistent" else worst.name)


def _budget(system: System, *, trials: int, cap: int = 400) -> Finding:
    """Lower bound for all answers that a ledger grants, against its budget."""
    budget, mechanism = Budget(epsilon=1.0, delta=1e-5, adaptive=False), system.mechanism(sigma=20.0)
    batch = Private([[5, 4]] * 16, _BALLOT)
    granted = 0
    with system.ledger(":memory:", budget=budget) as ledger:
        while granted < cap:
            try:
                granted += len(system.answer(mechanism, batch, ledger=ledger))
            except BudgetExceeded:
                break
    tallies = []
    for world in ([5.0, 4.0], [4.0, 5.0]):
        private = Private(np.tile(world, (granted * trials, 1)), _BALLOT)
        wins = system.answer(mechanism, private, ledger=_Free()).reshape(trials, granted).sum(axis=1)
        tallies.append(np.bincount(wins, minlength=granted + 1))
    bound = epsilon_lower_bound(*tallies, delta=budget.delta, confidence=_CONFIDENCE, ordered=True)
    return bound.finding(
        name="budget",
        verdict="consistent" if bound.epsilon <= budget.epsilon else "violated",
        sentence=f"The ledger granted {granted} answers of a budget of epsilon {budget.epsilon:g}; together "
        f"they leak an epsilon of at least {bound.epsilon:.3g} (confidence {_CONFIDENCE:g}).",
        measures=[Measure(what="epsilon", upper=budget.epsilon, exact=None, lower=bound.epsilon)],
    )


def _held_to(name: str, curve: Curve, tallies: list[Any], *, what: str, runs: int = 1) -> Finding:
    """The finding from counts of two worlds and a price, at the order with the largest excess."""
    confidence = 1 - (1 - _CONFIDENCE) / runs
    bound = renyi_lower_bound(*tallies, orders=curve.orders, confidence=confidence)
    pairs = [
        (order, high, low)
        for order, high, low in zip(curve.orders, curve.rdp, bound.rdp, strict=True)
        if math.isfinite(high)
    ]
    order, high, low = max(pairs, key=lambda pair: pair[2] - pair[1])
    return bound.finding(
        name=name,
        verdict="violated" if low > high else "consistent",
        sentence=f"{what}: at order {order:g} one ballot leaks at least {low:.3g} nats (confidence "
        f"{confidence:g}); at most {high:.3g} was promised.",
        measures=[Measure(what=f"order {order:g}", upper=high, exact=None, lower=low)],
    )


def mutation_score(*, trials: int = 200_000, only: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Audit one broken build for each planted defect, and list the findings which detect it.

    Parameters
    ----------
    trials : int
        As for :func:`audit_library`; below 100,000 the ledger's defects may be missed.
    only : sequence of str, optional
        Names of the defects to plant; None: all.

    Returns
    -------
    dict of str to tuple of str
        For each defect the names of the findings that call it violated; empty where it was missed.

    Examples
    --------
    >>> mutation_score(trials=2_000, only=["fixed seed"])
    {'fixed seed': ('noise between releases',)}
    """
    return {
        name: tuple(
            finding.name for finding in audit_library(system, trials=trials) if finding.verdict == "violated"
        )
        for name, system in DEFECTS.items()
        if only is None or name in only
    }


class _Altered:
    """A sound mechanism with its noise or its price replaced. Its outcome map stays as promised."""

    def __init__(
        self,
        *,
        sigma: float,
        noise: Noise | None = None,
        price: Callable[[float], Curve] | None = None,
    ) -> None:
        self._sound = GNMax(sigma=sigma)
        self._sigma, self._noise, self._price = sigma, noise, price
        self.promise = self._sound.promise

    def __repr__(self) -> str:
        return f"altered {self._sound!r}"

    def curve(self) -> Curve:
        return self._sound.curve() if self._price is None else self._price(self._sigma)

    def uses(self, private: Private) -> int:
        return len(private)

    def log_outcomes(self, counts: Any) -> np.ndarray:
        return self._sound.log_outcomes(counts)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        if self._noise is None:
            return self._sound.release(private, rng=rng)
        counts = check.counts(private.open())
        return np.asarray((counts + self._noise(rng, self._sigma, counts.shape)).argmax(axis=1))


class _Stale:
    """A ledger that checks each charge against the total it once read, and never reads again."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._path, self._settings = path, settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def charge(self, mechanism: Any, **settings: Any) -> int:
        with Ledger(self._path, **self._settings) as fresh:
            return fresh.charge(mechanism, **settings)

    def answer(self, _: int) -> None:
        """No answer is stored."""

    def record(self, _: int, answer: np.ndarray) -> np.ndarray:
        return answer


class _OneUse(_Altered):
    """A mechanism that is charged once for a release of many answers."""

    def uses(self, private: Private) -> int:  # noqa: ARG002  (part of the protocol)
        return 1


class _Teachers:
    """A minimal ensemble of teachers. ``deal`` chooses the rows of each, ``staff`` the teachers which vote.

    ``deal`` gets the shards, and the rows each teacher knows so far (None before the first question).
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_teachers: int,
        deal: Deal | None = None,
        staff: Callable[[list[Any]], list[Any]] | None = None,
    ) -> None:
        self._estimator, self._n_teachers, self._deal, self._staff = estimator, n_teachers, deal, staff

    def fit(self, X: np.ndarray, y: np.ndarray, *, classes: list[int], manifest: Manifest | None) -> Self:
        self._X, self._y, self._n_classes = X, y, len(classes)
        self.manifest_ = manifest or partition(len(y), n_teachers=self._n_teachers)
        self._learned: list[np.ndarray] | None = None
        return self

    def vote(self, X: np.ndarray) -> Private:
        from sklearn.base import clone  # noqa: PLC0415  (only planted defects train here)

        shards = self.manifest_.rows()
        self._learned = shards if self._deal is None else self._deal(shards, self._learned)
        teachers = [clone(self._estimator).fit(self._X[rows], self._y[rows]) for rows in self._learned]
        teachers = teachers if self._staff is None else self._staff(teachers)
        votes = count_votes([teacher.predict(X) for teacher in teachers], n_classes=self._n_classes)
        return Private(votes, Adjacency.one_ballot())


def _dealt_again(shards: Rows, earlier: Rows | None) -> Rows:
    """A new partition for each question; teachers keep the rows they had."""
    again = partition(sum(map(len, shards)), n_teachers=len(shards)).rows()
    return (
        again if earlier is None else [np.union1d(old, new) for old, new in zip(earlier, again, strict=True)]
    )


def _noisy(noise: Noise) -> System:
    return System(mechanism=partial(_Altered, noise=noise))


def _priced(price: Callable[[float], Curve]) -> System:
    return System(mechanism=partial(_Altered, price=price))


def _dealt(deal: Deal) -> System:
    return System(teachers=partial(_Teachers, deal=deal))


# A build without a defect, in the same few lines: findings below detect the defect and not the stand-in.
SOUND = System(mechanism=_Altered, teachers=_Teachers)

DEFECTS: dict[str, System] = {
    "half the noise": _noisy(lambda rng, sigma, shape: rng.normal(scale=sigma / 2, size=shape)),
    "five per cent less noise": _noisy(lambda rng, sigma, shape: rng.normal(scale=0.95 * sigma, size=shape)),
    "noise scale and its inverse swapped": _noisy(
        lambda rng, sigma, shape: rng.normal(scale=1 / sigma, size=shape)
    ),
    "noise reused between answers": _noisy(
        lambda rng, sigma, shape: np.broadcast_to(rng.normal(scale=sigma, size=shape[1:]), shape)
    ),
    "noise shared between classes": _noisy(
        lambda rng, sigma, shape: np.broadcast_to(rng.normal(scale=sigma, size=(shape[0], 1)), shape)
    ),
    "noise truncated to integers": _noisy(
        lambda rng, sigma, shape: np.trunc(rng.normal(scale=sigma, size=shape))
    ),
    "fixed seed": System(
        answer=lambda mechanism, private, *, ledger: release(
            mechanism, private, ledger=ledger, rng=np.random.default_rng(31)
        )
    ),
    # a ballot changes two counts, so the sensitivity is the root of 2
    "sensitivity 1 for √2": _priced(
        lambda sigma: Curve.gaussian(sensitivity=1.0, sigma=sigma, moves="ballot")
    ),
    "half the price": _priced(lambda sigma: GNMax(sigma=sigma * 2**0.5).curve()),  # of twice the variance
    "a release priced as one answer": System(mechanism=_OneUse),
    "stale ledger": System(ledger=_Stale),
    "one shard given to two teachers": _dealt(lambda shards, _: [shards[0], shards[0], *shards[2:]]),
    "every teacher gets the last shard": _dealt(lambda shards, _: [shards[-1]] * len(shards)),
    "teachers draw from all the data": _dealt(lambda shards, _: [np.concatenate(shards)] * len(shards)),
    "re-partition for each query": _dealt(_dealt_again),
    "one teacher shared": System(
        teachers=partial(_Teachers, staff=lambda teachers: [teachers[0], teachers[0], *teachers[2:]])
    ),
}
