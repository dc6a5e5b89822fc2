"""Lower bounds of many runs of each generator, by canaries of its own, beside the price; and null worlds.

Each canary is in the private rows or not by a fair coin. White box: the noisy counts of a table, the noisy
votes of an evolution. Black box: the distance to the nearest generated row of k-means and of mixtures of
networks and of Gaussians. In the null worlds the same scores meet coins that decided nothing. Noise is
seeded: a simulation.
"""

from __future__ import annotations

import math
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np
from scipy.special import ndtr

from ostraka import Curve
from ostraka.audit.attacks.generators import marginal_scores, nearest_scores, sum_scores
from ostraka.audits import one_run_lower_bound
from ostraka.core.mechanisms.adaptive import columns_of, name_of
from ostraka.core.mechanisms.particles import Particles
from ostraka.core.mechanisms.sequences import FIRST, NEXT
from ostraka.synth import DPGM, Evolution, PrivateKMeans, Schema, SequenceGenerator, TableGenerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.scores import Scores

DELTA, EPSILON = 1e-5, 1.0
RUNS, TOGETHER = 1_000, 50  # so many runs together have 5,000 canaries
CANARIES = 100
STRICT = 0.999  # confidence at which about one bound of 1,000 runs may be above a price that is exact
QUICK = {"RUNS": 2, "TOGETHER": 2, "CANARIES": 60}


class Audited(NamedTuple):
    """Scores of one run, the same scores for other coins, and the Gaussian curve that is claimed, if any."""

    scores: Scores
    null: Scores
    claim: Curve | None


def coins(rng: np.random.Generator) -> np.ndarray:
    """Fair coins, which are not all alike."""
    while True:
        drawn = rng.random(CANARIES) < 0.5
        if drawn.any() and not drawn.all():
            return np.asarray(drawn)


def tables(rng: np.random.Generator, *, method: str) -> Audited:
    """Counts of a table in which every canary has a value of its own."""
    included, other, n = coins(rng), coins(rng), CANARIES
    names = [str(k) for k in range(n)]
    columns: dict[str, Any] = {name: {"categories": names} for name in ("a", "b", "c")}
    codes = np.array([[k, k, k] for k in range(n)])
    if method == "forest":
        columns["y"] = {"categories": ["0", "1"]}
        codes = np.column_stack([codes, np.arange(n) % 2])
    schema = Schema.from_dict(columns)
    frame = {name: np.array(names)[codes[included, j]] for j, name in enumerate("abc")}
    if method == "forest":
        frame["y"] = (codes[included, 3]).astype(str)
    made = TableGenerator(
        schema, target="y" if method == "forest" else None, epsilon=EPSILON, delta=DELTA, method=method
    )
    # all three pairs are of one batch, so no count depends on the fitted model, which takes most of the time
    with patch.multiple(Particles, fit=lambda *_, **__: None, solve=lambda *_: None):
        made.fit(frame, rng=rng)
    m = made.mechanism_
    claim = Curve.gaussian(
        sensitivity=1.0, sigma=sum(m.sigma_of(columns) ** -2 for columns in made.tables_) ** -0.5
    )
    scores, null = (marginal_scores(made.counts_, m, codes, each) for each in (included, other))
    return Audited(scores, null, claim)


def linked(rng: np.random.Generator) -> Audited:
    """Counts of first rows and of steps of persons, each of whom has two rows with a value of their own."""
    included, other = coins(rng), coins(rng)
    names = [str(k) for k in range(CANARIES)]
    schema = Schema.from_dict({"a": {"categories": names}})
    who, order = np.repeat(np.arange(CANARIES)[included], 2), np.tile([0, 1], int(included.sum()))
    made = SequenceGenerator(schema, longest=2, epsilon=EPSILON, delta=DELTA)
    with patch.multiple(Particles, fit=lambda *_, **__: None, solve=lambda *_: None):
        made.fit({"a": np.array(names)[who]}, groups=who, order=order, rng=rng)
    first, following = made.mechanism_.first, made.mechanism_.following
    width = len(first.sizes)  # columns of both parts, one after the other
    tables, noise = {}, {}
    for name, table in made.counts_.items():
        part, begin = (first, 0) if name.startswith(FIRST) else (following, width)
        columns = columns_of(name.removeprefix(FIRST).removeprefix(NEXT))
        if columns != (len(part.sizes) - 1,):  # numbers of rows alone are common to all canaries
            place = tuple(begin + j for j in columns)
            tables[name_of(place)] = table
            noise[place] = part.sigma_of(columns) / part.grain
    both = SimpleNamespace(sizes=first.sizes + following.sizes, grain=1, sigma_of=noise.__getitem__)
    one, zero = np.arange(CANARIES), np.zeros(CANARIES, dtype=np.int64)
    codes = np.column_stack([one, zero + 1, one, one, zero])
    claim = Curve.gaussian(sensitivity=1.0, sigma=sum(sigma**-2 for sigma in noise.values()) ** -0.5)
    scores, null = (marginal_scores(tables, cast("Any", both), codes, each) for each in (included, other))
    return Audited(scores, null, claim)


def votes(rng: np.random.Generator) -> Audited:
    """Votes for candidates, of which each canary is nearest to one of its own."""
    included, other, candidates = coins(rng), coins(rng), 10 * np.eye(CANARIES)
    model = Evolution(candidates, vary=lambda winners, _: winners, n_rounds=1, epsilon=EPSILON, delta=DELTA)
    model.fit(candidates[included], rng=rng)
    scores, null = (sum_scores(model.votes_, np.eye(CANARIES), each) for each in (included, other))
    return Audited(scores, null, Curve.gaussian(sensitivity=1.0, sigma=model.mechanism_.sigma))


def rows_and_canaries(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows close to one another, and canaries far from them."""
    width = CANARIES
    return np.clip(rng.normal(0.2, 0.05, (300, width)), 0, 1), np.eye(width)


def clusters(rng: np.random.Generator) -> Audited:
    """Centres of k-means."""
    (rows, canaries), included, other = rows_and_canaries(rng), coins(rng), coins(rng)
    model = PrivateKMeans(n_clusters=20, n_iterations=2, epsilon=EPSILON, delta=DELTA).fit(
        np.concatenate([rows, 5 * canaries[included]]), rng=rng
    )
    scores, null = (nearest_scores(model.cluster_centers_, 5 * canaries, each) for each in (included, other))
    return Audited(scores, null, None)


def networks(rng: np.random.Generator) -> Audited:
    """Samples of a mixture of Boltzmann machines."""
    (rows, canaries), included, other = rows_and_canaries(rng), coins(rng), coins(rng)
    model = DPGM(n_clusters=2, generator="rbm", steps=10, sampling_rate=0.2, epsilon=EPSILON, delta=DELTA)
    sampled, _ = model.fit(np.concatenate([rows, canaries[included]]), rng=rng).sample(200)
    scores, null = (nearest_scores(sampled, canaries, each) for each in (included, other))
    return Audited(scores, null, None)


def gaussians(rng: np.random.Generator) -> Audited:
    """Samples of a mixture of Gaussians of low rank."""
    (rows, canaries), included, other = rows_and_canaries(rng), coins(rng), coins(rng)
    model = DPGM(n_clusters=2, generator="gaussian", epsilon=EPSILON, delta=DELTA)
    sampled, _ = model.fit(np.concatenate([rows, canaries[included]]), rng=rng).sample(200)
    scores, null = (nearest_scores(sampled, canaries, each) for each in (included, other))
    return Audited(scores, null, None)


KINDS: dict[str, Callable[[np.random.Generator], Audited]] = {
    "TableGenerator of particles, white box": partial(tables, method="particles"),
    "TableGenerator of a forest, white box": partial(tables, method="forest"),
    "SequenceGenerator, white box": linked,
    "Evolution, white box": votes,
    "PrivateKMeans, black box": clusters,
    "DPGM of networks, black box": networks,
    "DPGM of Gaussians, black box": gaussians,
}


def bound(scores: Scores | list[Scores], claim: Curve | None, confidence: float = 0.95) -> float:
    """Lower bound: white box for independent canaries, all guessed; black box however canaries depend."""
    if claim is not None:
        every = CANARIES * (len(scores) if isinstance(scores, list) else 1)
        found = one_run_lower_bound(
            scores, delta=DELTA, curve=claim, independent=True, guesses=every, confidence=confidence
        )
    else:
        found = one_run_lower_bound(scores, delta=DELTA, guesses=CANARIES // 3, confidence=confidence)
    return found.epsilon / EPSILON


def audited(name: str, runs: int) -> None:
    """Bounds of single runs, of runs together where canaries are independent, and of null worlds."""
    start = time.perf_counter()
    found = [KINDS[name](np.random.default_rng(seed)) for seed in range(runs)]
    usual, strict = ([bound(each.scores, each.claim, c) for each in found] for c in (0.95, STRICT))
    null = [bound(each.null, each.claim) for each in found]
    print(
        f"  {name}: {runs} runs of {CANARIES} canaries at epsilon {EPSILON:g}: above the price in "
        f"{sum(share > 1 for share in usual)} at 95 %, in {sum(share > 1 for share in strict)} at "
        f"{STRICT:.1%}; most {max(usual):.2f} and {max(strict):.2f} of it; null worlds claim leakage in "
        f"{np.mean([share > 0 for share in null]):.1%} ({time.perf_counter() - start:.0f} s)",
        flush=True,
    )
    claim = found[0].claim
    if claim is None:
        return
    every = one_run_lower_bound(
        [each.scores for each in found],
        delta=DELTA,
        curve=claim,
        independent=True,
        guesses=CANARIES * runs,
    )
    expected = float(ndtr(math.sqrt(claim.mu_squared) / 2))
    print(f"    right guesses {every.right / every.guesses:.4f}, by the noise {expected:.4f}")
    parts = [found[k : k + TOGETHER] for k in range(0, runs - TOGETHER + 1, TOGETHER)]
    for confidence in (0.95, STRICT):
        shares = [bound([each.scores for each in part], claim, confidence) for part in parts]
        print(
            f"    {TOGETHER * CANARIES:,} canaries of {TOGETHER} runs, {len(parts)} times, {confidence:.1%}: "
            f"{np.mean(shares):.2f} of the price ({min(shares):.2f} to {max(shares):.2f})",
            flush=True,
        )


def main() -> None:
    """All generators."""
    for name in KINDS:
        audited(name, RUNS)


if __name__ == "__main__":
    main()
