"""Audits of private prediction by adversaries who choose the target row and the questions.

What comes in: a system under audit (:mod:`ostraka.audit.worlds`), the mechanism that answers, and rows that
an adversary may ask about. What goes out: how much its answers leak, beside what was promised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ostraka.audit.bound import Bound, Finding, Measure, Verdict
from ostraka.audit.claims import AUDIT_ORDERS, at_orders, order_measures
from ostraka.audit.cuts import MOST_OUTCOMES, of_laws, renyi_lower_bound
from ostraka.audit.votes import joint_bound, leading_direction, repeated, vote_cap
from ostraka.core import check
from ostraka.core.curve import Curve

if TYPE_CHECKING:
    from ostraka.audit.votes import BallotPool, Draw, VoteModel
    from ostraka.audit.worlds import Worlds
    from ostraka.core.mechanisms.law import BallotMechanism

Adversary = Literal["Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ", "Pois-PairQ"]
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)  # of a copy, on the way to another question
_DRAWS = 2_000  # trainings by which copies are compared
_NOTHING = 1e-6  # of natural questions, those that the target moves less often are not even asked
_PAIRS = 20_000
_TRAININGS = 200_000  # drawn where the law of all answers together has too many cells
_MOST = 60  # questions that are audited together: those which leak most
_WORST = 5  # queries whose leak is computed exactly before the worst is chosen
_MODELLED = "Holds for the modelled training phase: it says of the real one what the model fits of it."
_ONCE = "Trained once: all answers come from one training. Trained anew: from one for each, as in the paper."
_FRESH = "Adds up the answers, which are independent in each world."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AdversarialQueries:
    """The rows an adversary adds to the data, and the questions it asks.

    Attributes
    ----------
    queries : array of shape (n_queries, n_features)
    rows, labels : arrays, one target for each query
        Where ``repeated``, each query has its own target, and only the worst is asked, again and again.
        Else all queries are asked, and the one target is the same in every row.
    repeated : bool
    n_answers : int, optional
        To all queries together; None: one to each, or as many to the worst.
    """

    queries: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    repeated: bool
    n_answers: int | None = None


def adversarial_queries(
    adversary: Adversary,
    system: Worlds,
    queries: np.ndarray,
    labels: np.ndarray,
    *,
    mechanism: BallotMechanism,
    pool: np.ndarray | None = None,
    n_candidates: int = 20,
    n_rounds: int = 2,
    rng: np.random.Generator,
) -> AdversarialQueries:
    """Choose the target rows and the questions of an adversary.

    Parameters
    ----------
    adversary : {"Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ", "Pois-PairQ"}
        A query with its own label, asked again and again; the same with the second most common vote for a
        label; one mislabelled row, and every query asked once; a query with the second most common vote, and
        a near copy that the poison does not reach, each asked half of the times.
    system : Worlds
    queries : array of shape (n_queries, n_features)
    labels : integer array of shape (n_queries,)
        Class indices.
    mechanism : ballot mechanism, such as GNMax, LNMax or Threshold
        The candidates of Pois-NatQ are compared by its outcome map.
    pool : array of shape (n_rows, n_features), optional
        Where Pois-NatQ looks for its row, and Pois-PairQ for its copy; None: the queries.
    n_candidates, n_rounds : int
        Rows tried as directions of a copy, or in a round of Pois-NatQ. Its first round takes rows of the
        pool, further rounds blend the best few, so that no gradient is needed. One round is the published
        adversary with a choice.
    rng : numpy.random.Generator

    Returns
    -------
    AdversarialQueries

    Raises
    ------
    ValueError
        Another adversary, queries and labels that do not match, or Pois-PairQ against a system without a
        ``pool`` of ballots.

    Guarantees
    ----------
    None is needed: a bad choice makes a smaller lower bound. Source: Chadha et al. 2024,
    arXiv:2402.09403, section 4.1 and appendix D.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.audit import NeighbourWorlds
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> adversarial_queries("Pois-AdvQ", system, X[:3] + 0.1, np.arange(3) % 2, mechanism=GNMax(sigma=2.0),
    ...       rng=np.random.default_rng(0)).labels
    array([1, 1, 1])
    """
    check.one_of(adversary=adversary, allowed=get_args(Adversary))
    queries, labels = np.asarray(queries), np.asarray(labels)
    if labels.shape != (len(queries),):
        raise ValueError(f"labels must be one for each of {len(queries)} queries, got shape {labels.shape}")
    if adversary in ("Nat-AdvQ", "Pois-AdvQ"):
        labels = labels if adversary == "Nat-AdvQ" else _second(system.expected(queries))
        return AdversarialQueries(queries=queries, rows=queries, labels=labels, repeated=True)
    if adversary == "Pois-PairQ":
        # The poisoned query that leaks most, and the copy which cancels most of what the votes on both share:
        # other teachers say the same of a good copy, and the target says nothing new. Where all is normal,
        # the two mean answers tell the worlds apart best.
        ballots = getattr(system, "pool", None)
        if ballots is None:
            raise ValueError(
                "Pois-PairQ must be played against a system with a pool of ballots, such as TeacherWorlds"
            )
        poison = _second(system.expected(queries))
        worst = int(np.argmax([mean_leak(m, mechanism) for m in system.models(queries, queries, poison)]))
        query, rows = queries[worst], queries if pool is None else np.asarray(pool)
        distances = np.square(rows - query).reshape(len(rows), -1).sum(axis=1)
        others = np.flatnonzero(distances > 0)
        near = rows[others[np.argsort(distances[others], kind="stable")[:n_candidates]]]
        copies = [query + step * (row - query) for row in near for step in _STEPS] or [query]
        candidates = np.stack([query, *copies])
        target = np.broadcast_to(query, candidates.shape), np.full(len(candidates), poison[worst])
        votes = ballots(candidates, *target).sampler()(_DRAWS, rng)
        times = np.full(2, max(1, len(queries) // 2))
        apart = [
            leading_direction(mechanism, votes[0][:, [0, copy]], votes[1][:, [0, copy]], times)[1]
            for copy in range(1, len(candidates))
        ]
        pair = [0, 1 + int(np.argmax(apart))]
        return AdversarialQueries(
            queries=candidates[pair],
            rows=target[0][pair],
            labels=target[1][pair],
            repeated=False,
            n_answers=max(2, len(queries)),
        )
    # the mislabelled row with the largest mean leak: first rows of the pool, then blends of the best few
    check.integer(n_candidates=n_candidates, n_rounds=n_rounds, least=1)
    rows = queries if pool is None else np.asarray(pool)
    rows = rows[rng.choice(len(rows), size=min(n_candidates, len(rows)), replace=False)]
    labels = _second(system.expected(rows))
    leaks: list[tuple[float, np.ndarray, int]] = []
    for _ in range(n_rounds):
        for row, label in zip(rows, labels, strict=True):
            poisoned = _natural(queries, row, int(label))
            models = system.models(poisoned.queries, poisoned.rows, poisoned.labels)
            leaks.append((sum(mean_leak(model, mechanism) for model in models), row, int(label)))
        leaks.sort(key=lambda leak: -leak[0])
        best = leaks[:4]
        first = rng.integers(len(best), size=n_candidates)
        second = rng.integers(len(best), size=n_candidates)
        part = rng.uniform(0.0, 1.5, size=n_candidates)  # also beyond the better of the two
        rows = np.stack(
            [best[b][1] + t * (best[a][1] - best[b][1]) for a, b, t in zip(first, second, part, strict=True)]
        )
        labels = np.array([best[a][2] for a in first])
    _, row, label = leaks[0]
    return _natural(queries, row, label)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leak:
    """How much an adversary's answers leak.

    Attributes
    ----------
    bound : Bound
        Of all answers together, from teachers that are trained once, unless answers are independent.
    exact : array of shape (n_orders,), or None
        The same by the model, without sampling; None where no exact law is known.
    cap : array of shape (n_orders,), or None
        What any number of answers to the same question can show at most, in the model; None where answers
        are independent, or to several questions: another question cancels what the votes share.
    anew : Bound
        Were teachers trained anew for each answer: the sum over single answers.
    anew_exact : array of shape (n_orders,), or None
    independent : bool
        Whether answers are independent in each world, so that both are the same.
    queries : tuple of int
        Which queries were asked.
    n_answers : int
    trials : int
        Trainings of the model in each world.
    """

    bound: Bound
    exact: np.ndarray | None
    cap: np.ndarray | None
    anew: Bound
    anew_exact: np.ndarray | None
    independent: bool
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
        How often the worst query is asked, or a pair of queries together; None: as many times as there are
        queries. Natural queries are asked once.
    trials : int
        Trainings, or answers to a question, in each world, drawn from the exact law of the model. Where there
        is none (parties with random ballots, other mechanisms than GNMax), pairs of votes, 20,000 at most;
        where all answers together have too many outcomes, 200,000 trainings at most.
    orders : tuple of float > 1
    confidence : float in (0, 1)
    rng : numpy.random.Generator

    Returns
    -------
    Leak

    Guarantees
    ----------
    Both bounds hold for the model, together with probability ``confidence``. The worst query is chosen
    before any trial, by the model. Teachers are trained once, and all their answers audited as one outcome,
    unless the system says ``fresh = True`` or all votes are certain. Several questions to a system without
    a ``pool`` of ballots count as the one that shows most.
    Source: Chadha et al. 2024, arXiv:2402.09403, sections 4 and 5; for one training, docs/auditing.md.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> from ostraka.audit import NeighbourWorlds
    >>> X, mechanism = np.arange(20.0)[:, None], GNMax(sigma=2.0)
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> rng = np.random.default_rng(0)
    >>> adversarial = adversarial_queries("Pois-AdvQ", system, X[:3] + 0.1, np.arange(3) % 2,
    ...                                   mechanism=mechanism, rng=rng)
    >>> leak = measure_leak(system, adversarial, mechanism, n_answers=1, orders=(2.0,), rng=rng)
    >>> bool(0.9 * leak.exact[0] < leak.bound.rdp[0] < leak.exact[0])
    True
    """
    check.share(confidence=confidence)
    check.integer(trials=trials, least=10)
    models = system.models(adversarial.queries, adversarial.rows, adversarial.labels)
    total_answers = len(models) if n_answers is None else n_answers
    check.integer(n_answers=total_answers, least=1)
    if adversarial.repeated:
        # the query which leaks most in the model: shortlisted by mean votes, compared by exact laws
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
        chosen, times = [int(best[int(np.argmax(leaks))])], [total_answers]
    elif adversarial.n_answers is None:
        chosen, times = list(range(len(models))), [1] * len(models)
    else:
        total = max(len(models), adversarial.n_answers if n_answers is None else n_answers)
        chosen = list(range(len(models)))
        times = [total // len(models) + (j < total % len(models)) for j in chosen]
    models = [models[j] for j in chosen]
    independent = getattr(system, "fresh", False) or all(model.certain for model in models)
    ask = _Ask(mechanism, trials, orders, confidence if independent else (1 + confidence) / 2, rng)
    anew, anew_exact, n_trials = ask.anew(models, times)
    bound, exact, cap = anew, anew_exact, None
    if not independent and len(models) == 1:
        bound, exact = ask.repeated(models[0], times[0])
        cap = vote_cap(models[0], orders)
    elif not independent:
        ballots = getattr(system, "pool", None)
        targets = adversarial.queries, adversarial.rows, adversarial.labels
        bound, exact = ask.together(ballots and ballots(*targets), models, times), None
    return Leak(
        bound=bound,
        exact=exact,
        cap=cap,
        anew=anew,
        anew_exact=anew_exact,
        independent=independent,
        queries=tuple(chosen),
        n_answers=sum(times),
        trials=n_trials if independent else bound.trials[0],
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
    >>> from ostraka.audit import NeighbourWorlds
    >>> X = np.arange(20.0)[:, None]
    >>> system = NeighbourWorlds(X, np.arange(20) % 2, n_classes=2, n_neighbours=4, sampling_rate=0.5)
    >>> audit_adversary("Nat-AdvQ", system, GNMax(sigma=2.0), X[:3] + 0.1, np.arange(3) % 2,
    ...                 rng=np.random.default_rng(0)).verdict
    'consistent'
    """
    adversarial = adversarial_queries(adversary, system, queries, labels, mechanism=mechanism, rng=rng)
    settings: dict[str, Any] = {"trials": trials, "orders": orders, "confidence": confidence, "rng": rng}
    leak = measure_leak(system, adversarial, mechanism, n_answers=n_answers, **settings)
    price = mechanism.curve() if price is None else price
    promised = leak.n_answers * np.array(at_orders(price, orders, name="price"))
    columns: dict[str, Any] = {"upper": promised, "exact": leak.exact, "lower": leak.bound.rdp}
    if not leak.independent:
        columns |= {"cap": leak.cap, "anew_exact": leak.anew_exact, "anew_lower": leak.anew.rdp}
    measures = list(order_measures(orders, **columns))
    verdict, sentence = _judged(measures, leak, adversarial)
    if delta is not None:
        # every column by one conversion: that of Rényi bounds at these orders
        epsilons: dict[str, Any] = {
            name: None if v is None else Curve(orders, tuple(map(float, v))).epsilon(delta)
            for name, v in columns.items()
        }
        what = f"epsilon at delta {delta:g} (illustration, no lower bound)"
        measures.append(Measure(what=what, **epsilons))
    note = f"{leak.bound.note} {_MODELLED} {_FRESH if leak.independent else _ONCE}"
    finding = leak.bound.finding(
        name=f"{name} × {adversary}", verdict=verdict, sentence=sentence, measures=measures
    )
    return replace(finding, confidence=confidence, trials=leak.trials, note=note)


def mean_leak(model: VoteModel, mechanism: BallotMechanism) -> float:
    """Divergence of order 2 between the answers to the mean votes of both worlds: a quick approximation."""
    shared = model.n * model.law + model.fixed + model.parties.sum(axis=0)
    laws = np.exp(mechanism.log_outcomes([shared + w @ model.moves for w in (model.present, model.absent)]))
    return float(of_laws(laws[0], laws[1], np.array([2.0]))[0])


def _natural(queries: np.ndarray, row: np.ndarray, label: int) -> AdversarialQueries:
    n = len(queries)
    return AdversarialQueries(
        queries=queries, rows=np.broadcast_to(row, (n, *row.shape)), labels=np.full(n, label), repeated=False
    )


def _second(votes: np.ndarray) -> np.ndarray:
    """The second most common class of each row."""
    return np.argsort(-votes, axis=1, kind="stable")[:, 1]


class _Ask(NamedTuple):
    """Bounds on what a mechanism's answers leak, by so many trials, at these orders and this confidence."""

    mechanism: BallotMechanism
    trials: int
    orders: tuple[float, ...]
    confidence: float
    rng: np.random.Generator

    def anew(self, models: list[VoteModel], times: list[int]) -> tuple[Bound, np.ndarray | None, int]:
        """The sum over answers that are independent in each world, that of the model, and their trials."""
        order, bounds = np.array(self.orders), []
        settings: dict[str, Any] = {
            "orders": self.orders,
            "confidence": 1 - (1 - self.confidence) / len(models),
        }
        has_laws = all(model.has_outcome_laws(self.mechanism) for model in models)
        trials = self.trials if has_laws else min(self.trials, _PAIRS)
        exact = np.zeros(order.size)
        for model, n in zip(models, times, strict=True):
            if len(models) > 1 and np.abs(model.present - model.absent).sum() < _NOTHING:
                bound = renyi_lower_bound([1, 1], [1, 1], **settings)
            elif has_laws:
                p, q = model.outcome_laws(self.mechanism)
                exact += n * np.maximum(of_laws(p, q, order), of_laws(q, p, order))
                if p.size > MOST_OUTCOMES:  # the rarest outcomes are merged before any trial
                    rank = np.argsort(-(p + q))
                    common, rare = rank[: MOST_OUTCOMES - 1], rank[MOST_OUTCOMES - 1 :]
                    p, q = (np.append(law[common], law[rare].sum()) for law in (p, q))
                counts = (self.rng.multinomial(trials, law) for law in (p, q))
                bound = renyi_lower_bound(*counts, **settings)
            else:
                bound = model.lower_bound(self.mechanism, n_draws=trials, rng=self.rng, **settings)
            bounds.append(bound)
        return Bound.compose(bounds, times=times), exact if has_laws else None, trials

    def repeated(self, model: VoteModel, n_answers: int) -> tuple[Bound, np.ndarray | None]:
        """All answers to one question, by their exact law, or by draws of votes if it has too many cells."""
        law = repeated(model, self.mechanism, n_answers=n_answers)
        if law is not None:
            settings: dict[str, Any] = {"orders": self.orders, "confidence": self.confidence, "rng": self.rng}
            return law.bound(trials=self.trials, **settings), law.divergences(self.orders)

        def draw(n_draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            present, absent = model.worlds(n_draws=n_draws, rng=rng)
            return present.open()[:, None], absent.open()[:, None]

        return self._sampled(draw, [n_answers]), None

    def together(self, pool: BallotPool | None, models: list[VoteModel], times: list[int]) -> Bound:
        """All answers to the questions that leak most, or, without a pool, to the one that does."""
        leaks = [n * mean_leak(model, self.mechanism) for model, n in zip(models, times, strict=True)]
        if pool is None:
            best = int(np.argmax(leaks))
            return self.repeated(models[best], times[best])[0]
        worst = np.sort(np.argsort(leaks)[::-1][:_MOST])
        return self._sampled(pool.take(worst.tolist()).sampler(), [times[j] for j in worst])

    def _sampled(self, draw: Draw, times: list[int]) -> Bound:
        settings: dict[str, Any] = {"orders": self.orders, "confidence": self.confidence, "rng": self.rng}
        n_draws = min(self.trials, _TRAININGS)
        return joint_bound(draw, self.mechanism, times, n_draws=n_draws, **settings)


def _judged(measures: list[Measure], leak: Leak, adversarial: AdversarialQueries) -> tuple[Verdict, str]:
    questions = f"{leak.n_answers:,} natural questions"
    if adversarial.repeated:
        questions = f"One question asked {leak.n_answers:,} times"
    elif adversarial.n_answers is not None:
        questions = f"A poisoned question and a near copy of it asked {leak.n_answers:,} times together"
    # an answer alone which leaks more than its price breaks the promise, however teachers are trained
    highest = [max(m.lower, m.anew_lower or 0.0) for m in measures]
    broken = next((place for place, m in enumerate(measures) if highest[place] > m.upper), None)
    if broken is not None:
        m = measures[broken]
        anew = "" if m.lower > m.upper else ", trained anew for each answer"
        return "violated", (
            f"The promise is broken: {questions[0].lower() + questions[1:]}{anew} leak at {m.what} at least "
            f"{highest[broken]:.4g} nats, and at most {m.upper:.4g} was promised."
        )
    best = max(measures, key=lambda m: m.lower / m.upper)
    if best.lower == 0:
        return "inconclusive", f"{questions}: nothing was seen to leak in so few trials."
    share = f"was seen to use up {best.lower / best.upper:.2%} of what was promised at {best.what}"
    if leak.independent:
        return "consistent", f"{questions}: this system {share}. Others may do better."
    words = [f"{questions}. Trained once, this system {share}"]
    if best.cap is not None and best.cap < best.upper:
        most_of_all = f"{best.cap / best.upper:.2%}"
        words.append(
            f"; in this model, answers to this question alone can never show more than {most_of_all}"
        )
    words.append(
        f". Were teachers trained anew for each answer, as in Chadha et al. 2024, it would be "
        f"{(best.anew_lower or 0.0) / best.upper:.2%}. Other questions may do better."
    )
    return "consistent", "".join(words)
