"""False claims: how often a lower bound at confidence 0.95 is above the truth, on skewed laws."""

from __future__ import annotations

import sys
import time
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta, binom

from ostraka import Curve, GNMax
from ostraka.audit.cuts import Method
from ostraka.audit.votes import BallotPool, VoteModel, joint_bound, repeated
from ostraka.audits import (
    delta_lower_bound,
    epsilon_lower_bound,
    hold_out,
    one_run_lower_bound,
    renyi_lower_bound,
    votes_lower_bound,
)
from ostraka.scores import Scores

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = (2.0, 8.0, 32.0)
DELTA, EPSILON, CONFIDENCE = 1e-5, 0.2, 0.95
SIZES, VOTE_SIZES, CANARY_SIZES, RUNS = (200, 5000), (100, 1000), (200, 1000), 2000
QUICK = {"RUNS": 5}
_GEOMETRIC, _POWER = 0.3 ** np.arange(6), np.arange(1, 11) ** -2.5


def _law(weights: object) -> np.ndarray:
    weights = np.asarray(weights, dtype=np.float64)
    return np.asarray(weights / weights.sum())


# One outcome has nearly all of the probability, and what differs is rare.
PAIRS: dict[str, tuple[np.ndarray, np.ndarray]] = {
    "rare": (_law([0.97, 0.02, 0.008, 0.002]), _law([0.985, 0.01, 0.004, 0.001])),
    "spike": (_law([0.999, 0.0005, 0.0005]), _law([0.998, 0.0015, 0.0005])),
    "one tail": (_law([0.9, 0.0999, 0.0001]), _law([0.9, 0.0995, 0.0005])),
    "geometric": (_law(_GEOMETRIC), _law(_GEOMETRIC * [1, 1, 1.5, 0.7, 2, 0.5])),
    "power": (_law(_POWER), _law(_POWER * [2, 1, 1, 1, 1, 0.2, 0.5, 1, 1, 3])),
}

Counts = tuple[np.ndarray, np.ndarray]
Found = dict[tuple[str, str, int], int]


def coins(size: int, rng: np.random.Generator, *, epsilon: float, delta: float = 0.0) -> Scores:
    """Randomised response on the coins of ``size`` canaries; with chance ``delta`` all are told."""
    included = rng.random(size) < 0.5
    keep = 1.0 if rng.random() < delta else 1 / (1 + np.exp(-epsilon))
    guesses = np.where(rng.random(size) < keep, included, ~included).astype(float)
    return Scores.of(members=guesses[included], others=guesses[~included])


def gaussian(size: int, rng: np.random.Generator) -> Scores:
    """A Gaussian mechanism of mu 1 with one coordinate for each canary."""
    included = rng.random(size) < 0.5
    scores = included + rng.normal(size=size)
    return Scores.of(members=scores[included], others=scores[~included])


def labels(size: int, rng: np.random.Generator, *, epsilon: float, delta: float, n_decoys: int) -> Scores:
    """Randomised response on labels; each label is told with chance ``delta`` besides."""
    keep = 1 / (1 + n_decoys * np.exp(-epsilon))
    right = (rng.random(size) < keep) | (rng.random(size) < delta)
    sure = rng.uniform(0.5, 1, size)
    others = np.zeros((size, n_decoys))
    others[:, 0] = np.where(right, 0.0, sure)
    return Scores.of(members=np.where(right, sure, 0.0), others=others)


def trainings(size: int, rng: np.random.Generator) -> list[Scores]:
    """The same with one canary in each of ``size`` trainings."""
    return [labels(1, rng, epsilon=1.0, delta=1e-3, n_decoys=1) for _ in range(size)]


MECHANISM = GNMax(sigma=3.0)
CLAIM = Curve.gaussian(sensitivity=1.0, sigma=1.0)
GAMES: dict[str, tuple[Callable[[int, np.random.Generator], Any], dict[str, Any], float]] = {
    "coins, epsilon 1": (partial(coins, epsilon=1.0), {"delta": 0.0}, 1.0),
    "coins, epsilon 3": (partial(coins, epsilon=3.0, delta=1e-3), {"delta": 1e-3}, 3.0),
    "coins, all told": (partial(coins, epsilon=0.0, delta=1e-2), {"delta": 1e-2}, 0.0),
    "gaussian": (gaussian, {"delta": DELTA}, CLAIM.epsilon(DELTA)),
    "gaussian, claimed": (gaussian, {"delta": DELTA, "curve": CLAIM}, CLAIM.epsilon(DELTA)),
    "labels, two candidates": (
        partial(labels, epsilon=1.0, delta=1e-3, n_decoys=1),
        {"delta": 1e-3, "game": "labels"},
        1.0,
    ),
    "labels, nine candidates": (
        partial(labels, epsilon=2.0, delta=1e-4, n_decoys=8),
        {"delta": 1e-4, "game": "labels"},
        2.0,
    ),
    "labels, many trainings": (trainings, {"delta": 1e-3, "game": "labels"}, 1.0),
}


def divergences(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The larger direction at each order."""
    with np.errstate(divide="ignore", invalid="ignore"):
        directions = [
            [
                np.logaddexp.reduce(np.where(a > 0, o * np.log(a) + (1 - o) * np.log(b), -np.inf))
                for o in ORDERS
            ]
            for a, b in ((p, q), (q, p))
        ]
    return np.asarray(np.max(directions, axis=0) / (np.array(ORDERS) - 1))


def delta_at(epsilon: float, p: np.ndarray, q: np.ndarray) -> float:
    """Hockey-stick divergence, the larger direction."""
    return max(float(np.maximum(0, a - np.exp(epsilon) * b).sum()) for a, b in ((p, q), (q, p)))


def claims(p: np.ndarray, q: np.ndarray) -> dict[str, Callable[[Counts, np.random.Generator], bool]]:
    """For each method whether a bound from these counts is above the truth."""
    exact = divergences(p, q) * (1 + 1e-9)

    def renyi(counts: Counts, _: np.random.Generator, *, method: Method) -> bool:
        bound = renyi_lower_bound(*counts, orders=ORDERS, confidence=CONFIDENCE, method=method)
        return bool((np.array(bound.rdp) > exact).any())

    def renyi_pilot(counts: Counts, rng: np.random.Generator) -> bool:
        pilot, proof = hold_out(*counts, rng=rng)
        bound = renyi_lower_bound(*proof, orders=ORDERS, confidence=CONFIDENCE, pilot=pilot)
        return bool((np.array(bound.rdp) > exact).any())

    def epsilon(counts: Counts, _: np.random.Generator, *, method: str) -> bool:
        bound = epsilon_lower_bound(*counts, delta=DELTA, confidence=CONFIDENCE, method=method)
        return delta_at(bound.epsilon - 1e-9, p, q) < DELTA  # a smaller epsilon than the bound holds

    def delta(counts: Counts, _: np.random.Generator) -> bool:
        bound = delta_lower_bound(*counts, epsilon=EPSILON, confidence=CONFIDENCE)
        return bound.delta > delta_at(EPSILON, p, q) + 1e-12

    return {
        **{f"Rényi, {method}": partial(renyi, method=method) for method in get_args(Method)},
        "Rényi, 2-cut with a pilot": renyi_pilot,
        **{f"epsilon, {method}": partial(epsilon, method=method) for method in ("2-cut", "2-cut-anytime")},
        "delta, 2-cut": delta,
    }


def done(part: str, name: str, size: int, start: float) -> None:
    """Print on stderr that one law at one size is finished."""
    print(f"{part}, {name}, {size:,}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def wrong_outcomes(runs: int) -> Found:
    """Bounds from counts of two worlds, for each method, pair of laws and number of trials."""
    figures: Found = {}
    for place, (name, (p, q)) in enumerate(PAIRS.items()):
        for size in SIZES:
            start, rng = time.perf_counter(), np.random.default_rng([place, size])
            tests = claims(p, q)
            for _ in range(runs):
                counts = rng.multinomial(size, p), rng.multinomial(size, q)
                for method, wrong in tests.items():
                    figures[method, name, size] = figures.get((method, name, size), 0) + wrong(counts, rng)
            done("counts of outcomes", name, size, start)
    return figures


def wrong_votes(runs: int) -> Found:
    """Bounds from random votes: most teachers agree, and the target's teacher does not."""
    counts: Found = {}
    for place, (name, (law, target_law)) in enumerate(PAIRS.items()):
        model = VoteModel.random_shards(law, target_law[::-1], n_teachers=20)
        exact = divergences(*model.outcome_laws(MECHANISM)) * (1 + 1e-9)
        for size in VOTE_SIZES:
            start, rng = time.perf_counter(), np.random.default_rng([10 + place, size])
            for paired in (False, True):
                key = f"votes, {'paired' if paired else 'separate'}", name, size
                counts[key] = 0
                for _ in range(runs):
                    votes = model.worlds(n_draws=size, rng=rng)
                    if not paired:
                        votes = votes[0], model.worlds(n_draws=size, rng=rng)[1]
                    bound = votes_lower_bound(
                        MECHANISM, *votes, paired=paired, orders=ORDERS, confidence=CONFIDENCE
                    )
                    counts[key] += bool((np.array(bound.rdp) > exact).any())
            done("random votes", name, size, start)
    return counts


# Teachers who are trained once: ballots on two questions, of a teacher and of the target's, as (share, pair).
# The target moves the first question only, and seldom: what tells the worlds apart is rare.
TEACHERS, JOINT_SIZES = 9, (200, 2000)
POOLS: dict[str, tuple[list[tuple[int, tuple[int, int]]], list[tuple[int, tuple[int, int]]]]] = {
    "divided": ([(10, (0, 0)), (10, (1, 1))], [(19, (0, 0)), (1, (1, 1))]),
    "rare": ([(97, (0, 0)), (3, (1, 1))], [(90, (0, 0)), (7, (1, 0)), (3, (1, 1))]),
    "near copy": ([(49, (0, 0)), (49, (1, 1)), (2, (0, 1))], [(66, (1, 0)), (32, (1, 1)), (2, (0, 1))]),
    "the same": ([(6, (0, 0)), (3, (1, 0)), (1, (1, 1))], [(6, (0, 0)), (3, (1, 0)), (1, (1, 1))]),
}
ASKED = {"each once": (1, 1), "each often": (30, 20)}


def _ballots(shares: list[tuple[int, tuple[int, int]]]) -> np.ndarray:
    return np.repeat([pair for _, pair in shares], [share for share, _ in shares], axis=0)


def _counts_of_votes(laws: list[np.ndarray]) -> np.ndarray:
    """The law of how many ballots of independent teachers are 1, on both questions: a sum of pairs."""
    table = np.ones((1, 1))
    for law in laws:
        longer = np.zeros((len(table) + 1, len(table) + 1))
        for first, second in product(range(2), repeat=2):
            longer[first : first + len(table), second : second + len(table)] += law[first, second] * table
        table = longer
    return table


def answers_together(name: str, n_answers: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The exact laws of how often each question was answered 1, with the target and without."""
    one, other = (
        np.array([[np.mean((ballots == pair).all(axis=1)) for pair in ((i, 0), (i, 1))] for i in range(2)])
        for ballots in map(_ballots, POOLS[name])
    )
    votes = np.arange(TEACHERS + 1)
    answered = ndtr((2 * votes - TEACHERS) / (np.sqrt(2) * MECHANISM.sigma))
    first, second = (binom.pmf(np.arange(n + 1), n, answered[:, None]) for n in n_answers)
    with_target, without = (
        first.T @ _counts_of_votes([one] * (TEACHERS - 1) + [last]) @ second for last in (other, one)
    )
    return with_target.ravel(), without.ravel()


def wrong_joint(runs: int) -> Found:
    """Bounds on all answers of teachers that are trained once: to one question, and to two together."""
    counts: Found = {}
    settings: dict[str, Any] = {"orders": ORDERS, "confidence": CONFIDENCE}
    for place, (name, (law, target_law)) in enumerate(PAIRS.items()):
        model = VoteModel.random_shards(
            law[:2] / law[:2].sum(), target_law[1::-1] / target_law[:2].sum(), n_teachers=20
        )
        votes = repeated(model, MECHANISM, n_answers=40)
        if votes is None:
            raise RuntimeError("the law of so few answers must have few cells")
        truth = divergences(votes.chances @ votes.present, votes.chances @ votes.absent) * (1 + 1e-9)
        for size in JOINT_SIZES:
            start, rng = time.perf_counter(), np.random.default_rng([40 + place, size])
            key = "joint, one question", name, size
            bounds = (votes.bound(trials=size, rng=rng, **settings) for _ in range(runs))
            counts[key] = sum(bool((np.array(bound.rdp) > truth).any()) for bound in bounds)
            done("joint", name, size, start)
    for place, (name, (others, target)) in enumerate(POOLS.items()):
        ballots, changed = _ballots(others), _ballots(target)
        pool = BallotPool(
            others=ballots[None], each=TEACHERS - 1, present=changed, absent=ballots, n_classes=2
        )
        for (times, n_answers), size in product(ASKED.items(), JOINT_SIZES):
            start, rng = time.perf_counter(), np.random.default_rng([50 + place, size, sum(n_answers)])
            truth = divergences(*answers_together(name, n_answers)) * (1 + 1e-9) + 1e-13
            key = f"joint, two questions {times}", name, size
            counts[key] = 0
            for _ in range(runs):
                bound = joint_bound(pool.sampler(), MECHANISM, n_answers, n_draws=size, rng=rng, **settings)
                counts[key] += bool((np.array(bound.rdp) > truth).any())
            done(f"joint, {times}", name, size, start)
    return counts


def wrong_canaries(runs: int) -> Found:
    """Bounds from one training with canaries, for mechanisms whose epsilon at delta is known."""
    counts: Found = {}
    for place, (name, (game, settings, epsilon)) in enumerate(GAMES.items()):
        for size in CANARY_SIZES:
            start, rng = time.perf_counter(), np.random.default_rng([20 + place, size])
            for _ in range(runs):
                bound = one_run_lower_bound(game(size, rng), confidence=CONFIDENCE, rng=rng, **settings)
                key = f"canaries, {bound.method}", name, size
                counts[key] = counts.get(key, 0) + (bound.epsilon > epsilon)
            done("canaries", name, size, start)
    return counts


def main() -> None:
    """Print the largest share of false claims of each method, as soon as its part is finished."""
    runs = RUNS
    start = time.perf_counter()
    print(
        f"{runs:,} runs each at confidence {CONFIDENCE:g}, for each of several laws and two sizes", flush=True
    )
    for part in (wrong_outcomes, wrong_votes, wrong_joint, wrong_canaries):
        figures = part(runs)
        for method in dict.fromkeys(key[0] for key in figures):
            worst = max((count, *key[1:]) for key, count in figures.items() if key[0] == method)
            high = beta.ppf(0.975, worst[0] + 1, runs - worst[0]) if worst[0] < runs else 1.0
            place = f"{worst[1]}, {worst[2]:,}"
            sentence = (
                f"{method:28s} at most {worst[0] / runs:7.2%} (95 % interval up to {high:.2%}): {place}"
            )
            print(sentence, flush=True)
    print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
