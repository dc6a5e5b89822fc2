"""Audits of private prediction by adversaries who choose the target and the questions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka import _check
from ostraka.audits._divergence import of_laws
from ostraka.audits._sets import MOST_OUTCOMES
from ostraka.audits.adversarial_queries import (
    AdversarialQueries,
    Adversary,
    Worlds,
    adversarial_queries,
    mean_leak,
)
from ostraka.audits.bounds import RenyiBound
from ostraka.audits.claims import AUDIT_ORDERS
from ostraka.audits.cuts import check_confidence, check_orders, renyi_lower_bound
from ostraka.audits.finding import Finding, Measure, Verdict
from ostraka.curve import Curve

if TYPE_CHECKING:
    from ostraka.audits.models import VoteModel
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["Leak", "audit_adversary", "measure_leak"]

_NOTHING = 1e-6  # of natural questions, those that the target moves less often are not even asked
_PAIRS = 20_000
_WORST = 5  # queries whose leak is computed exactly before the worst is chosen
_MODELLED = "Holds for the modelled training phase: it says of the real one what the model fits of it."
_REPEATED = "Adds up the same question's answers as if the teachers were trained anew for each."
_NATURAL = "Adds up the questions as if the teachers were trained anew for each."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leak:
    """How much an adversary's answers leak.

    Attributes
    ----------
    bound : RenyiBound
        Of all answers together.
    exact : array of shape (n_orders,), or None
        The same by the model, without sampling; None where no exact law is known.
    queries : tuple of int
        Which queries were asked.
    n_answers : int
    trials : int
        Answers to each question in each world, or pairs of votes.
    """

    bound: RenyiBound
    exact: np.ndarray | None
    queries: tuple[int, ...]
    n_answers: int
    trials: int


def measure_leak(
    system: Worlds,
    adversarial: AdversarialQueries,
    mechanism: BallotMechanism,
    *,
    n_answers: int | None = None,
    trials: int = 10**8,
    orders: tuple[float, ...] = AUDIT_ORDERS,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Leak:
    """Measure how much the answers leak, by sampling the modelled system.

    Parameters
    ----------
    system, adversarial, mechanism
        As for :func:`adversarial_queries`.
    n_answers : int, optional
        How often the worst query is asked; None: as many times as there are queries.
    trials : int
        Answers to each question in each world, drawn from the exact law of the model. Where there is none
        (parties with random ballots, other mechanisms than GNMax), pairs of votes, 20,000 at most.
    orders : tuple of float > 1
    confidence : float in (0, 1)
    rng : numpy.random.Generator

    Returns
    -------
    Leak

    Guarantees
    ----------
    The bound holds for the model, with ``confidence``, and if the answers are independent in each world:
    the worst query is chosen before any trial, by the model. The method is ``"2-cut"`` for trials and
    ``"paired"`` for pairs. Source: Chadha et al. 2024, arXiv:2402.09403, sections 4 and 5.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.audits import NeighbourWorlds
    >>> X, mechanism = np.arange(20.0)[:, None], GNMax(sigma=2.0)
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> rng = np.random.default_rng(0)
    >>> adversarial = adversarial_queries("Pois-AdvQ", system, X[:3] + 0.1, np.arange(3) % 2,
    ...                                   mechanism=mechanism, rng=rng)
    >>> leak = measure_leak(system, adversarial, mechanism, n_answers=1, orders=(2.0,), rng=rng)
    >>> bool(0.9 * leak.exact[0] < leak.bound.rdp[0] < leak.exact[0])
    True
    """
    check_confidence(confidence)
    _check.integer(trials=trials, least=10)
    models = system.models(adversarial.queries, adversarial.rows, adversarial.labels)
    order = check_orders(orders)
    if adversarial.repeated:
        place = _worst(models, mechanism, rng)
        chosen, times = [place], len(models) if n_answers is None else n_answers
        _check.integer(n_answers=times, least=1)
    else:
        chosen, times = list(range(len(models))), 1
    each = 1 - (1 - confidence) / len(chosen)
    bounds, skipped, exact = [], [], np.zeros(order.size)
    known = all(models[j].has_outcome_laws(mechanism) for j in chosen)
    for j in chosen:
        if not adversarial.repeated and np.abs(models[j].present - models[j].absent).sum() < _NOTHING:
            skipped.append(_nothing(orders, each))
        elif known:
            p, q = models[j].outcome_laws(mechanism)
            exact += np.maximum(of_laws(p, q, order), of_laws(q, p, order))
            seen = [rng.multinomial(trials, law) for law in _few(p, q)]
            bounds.append(renyi_lower_bound(*seen, orders=orders, confidence=each))
        else:
            draws = min(trials, _PAIRS)
            found = models[j].lower_bound(mechanism, n_draws=draws, orders=orders, confidence=each, rng=rng)
            bounds.append(found)
    bound = _times(RenyiBound.compose([*bounds, *skipped]) if len(chosen) > 1 else bounds[0], times)
    return Leak(
        bound=bound,
        exact=exact * times if known else None,
        queries=tuple(chosen),
        n_answers=times * len(chosen),
        trials=trials if known else min(trials, _PAIRS),
    )


def audit_adversary(
    adversary: Adversary,
    system: Worlds,
    mechanism: BallotMechanism,
    queries: np.ndarray,
    labels: np.ndarray,
    *,
    name: str = "system",
    price: Curve | None = None,
    delta: float | None = None,
    n_answers: int | None = None,
    trials: int = 10**8,
    orders: tuple[float, ...] = AUDIT_ORDERS,
    confidence: float = 0.95,
    rng: np.random.Generator,
) -> Finding:
    """Compare what one adversary sees of one system with what was promised.

    Parameters
    ----------
    adversary, system, queries, labels
        As for :func:`adversarial_queries`.
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        Answers from the votes.
    name : str
        Of the system, for the finding.
    price : Curve, optional
        The promise for one answer; None: ``mechanism.curve()``. Give it where rows are sub-sampled.
    delta : float, optional
        Also show each number converted to an epsilon at this delta, as an illustration.
    n_answers, trials, orders, confidence, rng
        As for :func:`measure_leak`.

    Returns
    -------
    Finding
        *Violated*: more leaks than was promised. *Inconclusive*: nothing was certified; take more trials.
        Else *consistent*, which is no proof.

    Guarantees
    ----------
    As for :func:`measure_leak`.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.audits import NeighbourWorlds
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> audit_adversary("Nat-AdvQ", system, GNMax(sigma=2.0), X[:3] + 0.1, np.arange(3) % 2,
    ...                 rng=np.random.default_rng(0)).verdict
    'consistent'
    """
    adversarial = adversarial_queries(adversary, system, queries, labels, mechanism=mechanism, rng=rng)
    leak = measure_leak(
        system,
        adversarial,
        mechanism,
        n_answers=n_answers,
        trials=trials,
        orders=orders,
        confidence=confidence,
        rng=rng,
    )
    price = leak.n_answers * (mechanism.curve() if price is None else price)
    promised = _at(price, orders)
    exact = [None] * len(orders) if leak.exact is None else leak.exact.tolist()
    rows = zip(orders, promised.tolist(), exact, leak.bound.rdp, strict=True)
    measures = [Measure(what=f"order {o:g}", upper=high, exact=mid, lower=low) for o, high, mid, low in rows]
    verdict, sentence = _judged(measures, leak, adversarial.repeated)
    if delta is not None:
        measures.append(_illustration(price, leak, delta=delta))
    return Finding(
        name=f"{name} × {adversary}",
        verdict=verdict,
        sentence=sentence,
        measures=tuple(measures),
        confidence=confidence,
        trials=leak.trials,
        method=leak.bound.method,
        note=f"{leak.bound.note} {_MODELLED} {_REPEATED if adversarial.repeated else _NATURAL}",
    )


def _judged(measures: list[Measure], leak: Leak, repeated: bool) -> tuple[Verdict, str]:  # noqa: FBT001
    broken = next((m for m in measures if m.lower > m.upper), None)
    asked = (
        f"One question asked {leak.n_answers:,} times"
        if repeated
        else f"{leak.n_answers:,} natural questions"
    )
    if broken:
        return "violated", (
            f"The promise is broken: {asked[0].lower() + asked[1:]} leak at {broken.what} at least "
            f"{broken.lower:.4g} nats, and at most {broken.upper:.4g} was promised."
        )
    best = max(measures, key=lambda m: m.lower / m.upper)
    if best.lower == 0:
        return "inconclusive", f"{asked}: nothing was seen to leak in so few trials."
    return "consistent", (
        f"{asked}: this adversary was seen to use up {best.lower / best.upper:.2%} of what was promised at "
        f"{best.what}. Others may do better."
    )


def _illustration(price: Curve, leak: Leak, *, delta: float) -> Measure:
    orders = leak.bound.orders
    exact = None if leak.exact is None else Curve(orders, tuple(leak.exact.tolist())).epsilon(delta)
    return Measure(
        what=f"epsilon at delta {delta:g} (illustration, no lower bound)",
        upper=price.epsilon(delta),
        exact=exact,
        lower=leak.bound.illustrated_epsilon(delta=delta),
    )


def _few(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Laws of twelve outcomes at most. The rarest outcomes are merged before any trial."""
    if p.size <= MOST_OUTCOMES:
        return p, q
    rank = np.argsort(-(p + q))
    kept, rest = rank[: MOST_OUTCOMES - 1], rank[MOST_OUTCOMES - 1 :]
    return np.append(p[kept], p[rest].sum()), np.append(q[kept], q[rest].sum())


def _nothing(orders: tuple[float, ...], confidence: float) -> RenyiBound:
    """Return a bound of 0, from no trials."""
    return renyi_lower_bound([1, 1], [1, 1], orders=orders, confidence=confidence)


def _times(bound: RenyiBound, times: int) -> RenyiBound:
    """The bound for ``times`` independent answers to the same question."""
    rdp, forward, reverse = (
        tuple(times * value for value in values) for values in (bound.rdp, bound.forward, bound.reverse)
    )
    return replace(bound, rdp=rdp, forward=forward, reverse=reverse)


def _worst(models: list[VoteModel], mechanism: BallotMechanism, rng: np.random.Generator) -> int:
    """Return the query which leaks most in the model: shortlisted by mean votes, compared by exact laws."""
    rough = [mean_leak(model, mechanism) for model in models]
    best = np.argsort(rough)[::-1][:_WORST]
    leaks = []
    for j in best:
        model = models[j]
        if model.has_outcome_laws(mechanism):
            p, q = model.outcome_laws(mechanism)
        else:
            votes = model.worlds(n_draws=2_000, rng=rng)
            p, q = (np.exp(mechanism.log_outcomes(world.open())).mean(axis=0) for world in votes)
        leaks.append(float(of_laws(p, q, np.array([8.0]))[0]))
    return int(best[int(np.argmax(leaks))])


def _at(curve: Curve, orders: tuple[float, ...]) -> np.ndarray:
    missing = [order for order in orders if order not in curve.orders]
    if missing:
        raise ValueError(f"orders must be among those of the price, got {missing}")
    return np.array([curve.rdp[curve.orders.index(order)] for order in orders])
