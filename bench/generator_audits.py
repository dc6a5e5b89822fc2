"""Lower bounds of many runs of each generator, by canaries of its own, beside the price; and null worlds.

Each canary is in the private rows or not by a fair coin. White box: the noisy counts of a table, the noisy
votes of an evolution, the noisy sums of k-means and of products, the noisy gradients of a network. Black box:
the distance to the nearest generated row of k-means and of mixtures of networks and of Gaussians. In the null
worlds the same scores meet coins that decided nothing. Noise is seeded: a simulation.

``python -m bench.generator_audits FILE [NAME ...]`` keeps the scores of each run in FILE, so that a command
which was stopped goes on; names are those printed.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np
from scipy.special import ndtr

from bench._kept import Kept
from ostraka import Curve
from ostraka.audit.attacks.generators import marginal_scores, nearest_scores, sum_scores
from ostraka.audits import one_run_lower_bound
from ostraka.core.mechanisms import sums
from ostraka.core.mechanisms.adaptive import FIRST, NEXT, columns_of, name_of
from ostraka.core.mechanisms.particles import Particles
from ostraka.scores import Scores
from ostraka.synth import (
    DPGM,
    Evolution,
    PrivateKMeans,
    Schema,
    SequenceGenerator,
    TableGenerator,
    clusters,
)
from ostraka.synth.clusters import NoisyLloyd, size_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from ostraka.synth.dpgm import Mixture, Spread

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
        included = rng.random(CANARIES) < 0.5
        if included.any() and not included.all():
            return np.asarray(included)


def tables(rng: np.random.Generator, *, method: str) -> Audited:
    """Counts of a table in which every canary has a value of its own."""
    included, blanks, n = coins(rng), coins(rng), CANARIES
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
    generator = TableGenerator(
        schema, target="y" if method == "forest" else None, epsilon=EPSILON, delta=DELTA, method=method
    )
    # all three pairs are of one batch, so no count depends on the fitted model, which takes most of the time
    with patch.multiple(Particles, fit=lambda *_, **__: None, solve=lambda *_: None):
        generator.fit(frame, rng=rng)
    m = generator.mechanism_
    claim = Curve.gaussian(
        sensitivity=1.0, sigma=sum(m.sigma_of(columns) ** -2 for columns in generator.tables_) ** -0.5
    )
    scores, null = (
        marginal_scores(generator.counts_, m, codes, inclusion) for inclusion in (included, blanks)
    )
    return Audited(scores, null, claim)


def linked(rng: np.random.Generator) -> Audited:
    """Counts of first rows and of steps of persons, each of whom has two rows with a value of their own."""
    included, blanks = coins(rng), coins(rng)
    names = [str(k) for k in range(CANARIES)]
    schema = Schema.from_dict({"a": {"categories": names}})
    who, order = np.repeat(np.arange(CANARIES)[included], 2), np.tile([0, 1], int(included.sum()))
    generator = SequenceGenerator(schema, longest=2, epsilon=EPSILON, delta=DELTA)
    with patch.multiple(Particles, fit=lambda *_, **__: None, solve=lambda *_: None):
        generator.fit({"a": np.array(names)[who]}, groups=who, order=order, rng=rng)
    first, following = generator.mechanism_.first, generator.mechanism_.following
    width = len(first.sizes)  # columns of both parts, one after the other
    tables, noise = {}, {}
    for name, table in generator.counts_.items():
        part, begin = (first, 0) if name.startswith(FIRST) else (following, width)
        columns = columns_of(name.removeprefix(FIRST).removeprefix(NEXT))
        if columns != (len(part.sizes) - 1,):  # numbers of rows alone are common to all canaries
            place = tuple(begin + j for j in columns)
            tables[name_of(place)] = table
            noise[place] = part.sigma_of(columns) / part.grain
    joint = SimpleNamespace(sizes=first.sizes + following.sizes, grain=1, sigma_of=noise.__getitem__)
    first_codes, zero = np.arange(CANARIES), np.zeros(CANARIES, dtype=np.int64)
    codes = np.column_stack([first_codes, zero + 1, first_codes, first_codes, zero])
    claim = Curve.gaussian(sensitivity=1.0, sigma=sum(sigma**-2 for sigma in noise.values()) ** -0.5)
    scores, null = (
        marginal_scores(tables, cast("Any", joint), codes, inclusion) for inclusion in (included, blanks)
    )
    return Audited(scores, null, claim)


def votes(rng: np.random.Generator) -> Audited:
    """Votes for candidates, of which each canary is nearest to one of its own."""
    included, blanks, candidates = coins(rng), coins(rng), 10 * np.eye(CANARIES)
    model = Evolution(candidates, vary=lambda winners, _: winners, n_rounds=1, epsilon=EPSILON, delta=DELTA)
    model.fit(candidates[included], rng=rng)
    scores, null = (sum_scores(model.votes_, np.eye(CANARIES), inclusion) for inclusion in (included, blanks))
    return Audited(scores, null, Curve.gaussian(sensitivity=1.0, sigma=model.mechanism_.sigma))


def noisy_sums(fit: Callable[[], Any]) -> list[np.ndarray]:
    """All tables of sums that a fit drew noise for, with it, in their order."""
    draws, with_noise = [], sums.with_noise

    def kept(*arguments: Any, **how: Any) -> np.ndarray:
        draws.append(with_noise(*arguments, **how))
        return draws[-1]

    with patch.object(sums, "with_noise", kept):
        fit()
    return draws


def orthogonal(noisy: np.ndarray, claim: Curve, rng: np.random.Generator, included: np.ndarray) -> Audited:
    """Scores of canaries, each of which adds 1 to a noisy number of its own."""
    scores, null = (sum_scores(noisy, np.eye(CANARIES), inclusion) for inclusion in (included, coins(rng)))
    return Audited(scores, null, claim)


def centres(rng: np.random.Generator) -> Audited:
    """Noisy sums of one cluster, of which each canary has a column of its own."""
    included, n = coins(rng), CANARIES
    model = PrivateKMeans(
        1, n_iterations=1, start=np.zeros((1, n)), longest=1.0, epsilon=EPSILON, delta=DELTA
    )
    noisy = noisy_sums(lambda: model.fit(np.eye(n)[included], rng=rng))[-1]
    stretch = math.hypot(1.0, size_weight(n))  # of a row beside its size
    claim = Curve.gaussian(sensitivity=1 / stretch, sigma=model.mechanism_.sigma)
    return orthogonal(noisy[0, :n] * stretch, claim, rng, included)


def products(rng: np.random.Generator) -> Audited:
    """Noisy sums of products of columns about a public centre; each canary has a column of its own."""
    included, n = coins(rng), CANARIES
    rows = np.eye(n, dtype=np.float32)[included]
    at_zero = {"rows": np.zeros((1, n)), "sizes": np.array([n / 2]), "classes": np.zeros(1, dtype=np.int64)}
    model = DPGM(n_clusters=1, generator="gaussian", epsilon=EPSILON, delta=DELTA)
    around = (at_zero, rows, np.zeros(len(rows), dtype=np.int64))
    with (
        patch.object(NoisyLloyd, "release_and_assign", lambda *_, **__: around),
        patch.object(clusters, "noisy_clip", lambda *_, **__: 1.0),  # the canaries' length, the worst case
    ):
        squares = noisy_sums(lambda: model.fit(rows, rng=rng))[-1]
    product = float(cast("Spread", model.mechanism_).products(np.eye(n)[:1])[0, 0])
    claim = Curve.gaussian(sensitivity=product, sigma=float(sums.CELLS))
    return orthogonal(squares / product, claim, rng, included)


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """A network whose gradient at a row is the row, so that orthogonal canaries have orthogonal gradients."""

    n_features: int

    def modules(self, n_networks: int, *, seed: int) -> list[torch.nn.Module]:  # noqa: ARG002  (all alike)
        """One weight for each column."""
        import torch

        return [torch.nn.Linear(self.n_features, 1, bias=False) for _ in range(n_networks)]

    def losses(self, module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        """Sums of weighted columns; what stands beside a row of its centre is left out."""
        return module(rows[:, : self.n_features]).squeeze(1)

    def start(self, module: torch.nn.Module, middle: np.ndarray) -> None:
        """First weights are as they are."""


@lru_cache(maxsize=1)
def mixture() -> Mixture:
    """The mechanism of one network on all rows of four steps; to price it takes longer than to run it."""
    settings = {"steps": 4, "sampling_rate": 1.0, "clip": 1.0, "epsilon": EPSILON, "delta": DELTA}
    model = DPGM(n_clusters=1, generator=Directions(n_features=CANARIES), **settings)
    return cast("Mixture", model.mechanism(n_features=CANARIES, n_classes=1))


def gradients(rng: np.random.Generator) -> Audited:
    """Noisy gradients of all steps of a mixture's network; each canary has a weight of its own."""
    from ostraka.nets.private import PrivateTraining

    included, draws, step = coins(rng), [], PrivateTraining.step

    def kept(training: PrivateTraining, sample: Any) -> torch.Tensor:
        loss = step(training, sample)
        (weights,) = training.modules[0].parameters()
        draws.append(cast("torch.Tensor", weights.grad).numpy()[0] * max(float(training.expected[0]), 1.0))
        return loss

    mechanism, model = mixture(), DPGM()
    with (
        patch.object(DPGM, "mechanism", lambda *_, **__: mechanism),
        patch.object(PrivateTraining, "step", kept),
    ):
        model.fit(np.eye(CANARIES)[included], rng=rng)
    claim = Curve.gaussian(sensitivity=1.0, sigma=mechanism.training.sigma / math.sqrt(len(draws)))
    return orthogonal(np.mean(draws, axis=0), claim, rng, included)


def rows_and_canaries(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows close to one another, and canaries far from them."""
    width = CANARIES
    return np.clip(rng.normal(0.2, 0.05, (300, width)), 0, 1), np.eye(width)


def nearest_centre(rng: np.random.Generator) -> Audited:
    """Centres of k-means."""
    (rows, canaries), included, blanks = rows_and_canaries(rng), coins(rng), coins(rng)
    model = PrivateKMeans(n_clusters=20, n_iterations=2, epsilon=EPSILON, delta=DELTA).fit(
        np.concatenate([rows, 5 * canaries[included]]), rng=rng
    )
    scores, null = (
        nearest_scores(model.cluster_centers_, 5 * canaries, inclusion) for inclusion in (included, blanks)
    )
    return Audited(scores, null, None)


def networks(rng: np.random.Generator) -> Audited:
    """Samples of a mixture of Boltzmann machines."""
    (rows, canaries), included, blanks = rows_and_canaries(rng), coins(rng), coins(rng)
    model = DPGM(n_clusters=2, generator="rbm", steps=10, sampling_rate=0.2, epsilon=EPSILON, delta=DELTA)
    sampled, _ = model.fit(np.concatenate([rows, canaries[included]]), rng=rng).sample(200)
    scores, null = (nearest_scores(sampled, canaries, inclusion) for inclusion in (included, blanks))
    return Audited(scores, null, None)


def gaussians(rng: np.random.Generator) -> Audited:
    """Samples of a mixture of Gaussians of low rank."""
    (rows, canaries), included, blanks = rows_and_canaries(rng), coins(rng), coins(rng)
    model = DPGM(n_clusters=2, generator="gaussian", epsilon=EPSILON, delta=DELTA)
    sampled, _ = model.fit(np.concatenate([rows, canaries[included]]), rng=rng).sample(200)
    scores, null = (nearest_scores(sampled, canaries, inclusion) for inclusion in (included, blanks))
    return Audited(scores, null, None)


KINDS: dict[str, Callable[[np.random.Generator], Audited]] = {
    "TableGenerator of particles, white box": partial(tables, method="particles"),
    "TableGenerator of a forest, white box": partial(tables, method="forest"),
    "SequenceGenerator, white box": linked,
    "Evolution, white box": votes,
    "PrivateKMeans, white box": centres,
    "DPGM of Gaussians, white box": products,
    "DPGM of networks, white box": gradients,
    "PrivateKMeans, black box": nearest_centre,
    "DPGM of networks, black box": networks,
    "DPGM of Gaussians, black box": gaussians,
}


def bound(scores: Scores | list[Scores], claim: Curve | None, confidence: float = 0.95) -> float:
    """Lower bound: white box for independent canaries, all guessed; black box however canaries depend."""
    if claim is not None:
        every = CANARIES * (len(scores) if isinstance(scores, list) else 1)
        bound_of_run = one_run_lower_bound(
            scores, delta=DELTA, curve=claim, independent=True, guesses=every, confidence=confidence
        )
    else:
        bound_of_run = one_run_lower_bound(scores, delta=DELTA, guesses=CANARIES // 3, confidence=confidence)
    return bound_of_run.epsilon / EPSILON


def run(name: str, seed: int, store: Kept) -> Audited:
    """One run, or what was kept of it."""
    line = store.get(name, seed)
    if line is None:
        generator = KINDS[name](np.random.default_rng(seed))
        mu = None if generator.claim is None else math.sqrt(generator.claim.mu_squared)
        parts = ("values", "members", "others")
        sides = [
            {part: getattr(side, part).tolist() for part in parts}
            for side in (generator.scores, generator.null)
        ]
        line = store.add(name, seed, mu=mu, scores=sides[0], null=sides[1])
    scores, null = (
        Scores(**{part: np.array(numbers) for part, numbers in line[side].items()})
        for side in ("scores", "null")
    )
    claim = None if line["mu"] is None else Curve.gaussian(sensitivity=line["mu"], sigma=1.0)
    return Audited(scores, null, claim)


def audited(name: str, runs: int, store: Kept) -> None:
    """Bounds of single runs, of runs together where canaries are independent, and of null worlds."""
    start = time.perf_counter()
    bounds = [run(name, seed, store) for seed in range(runs)]
    usual, strict = ([bound(trial.scores, trial.claim, c) for trial in bounds] for c in (0.95, STRICT))
    null = [bound(trial.null, trial.claim) for trial in bounds]
    print(
        f"  {name}: {runs} runs of {CANARIES} canaries at epsilon {EPSILON:g}: above the price in "
        f"{sum(share > 1 for share in usual)} at 95 %, in {sum(share > 1 for share in strict)} at "
        f"{STRICT:.1%}; most {max(usual):.2f} and {max(strict):.2f} of it; null worlds claim leakage in "
        f"{np.mean([share > 0 for share in null]):.1%} ({time.perf_counter() - start:.0f} s)",
        flush=True,
    )
    claim = bounds[0].claim
    if claim is None:
        return
    every = one_run_lower_bound(
        [trial.scores for trial in bounds],
        delta=DELTA,
        curve=claim,
        independent=True,
        guesses=CANARIES * runs,
    )
    expected = float(ndtr(math.sqrt(claim.mu_squared) / 2))
    print(f"    right guesses {every.right / every.guesses:.4f}, by the noise {expected:.4f}")
    parts = [bounds[k : k + TOGETHER] for k in range(0, runs - TOGETHER + 1, TOGETHER)]
    for confidence in (0.95, STRICT):
        shares = [bound([trial.scores for trial in part], claim, confidence) for part in parts]
        print(
            f"    {TOGETHER * CANARIES:,} canaries of {TOGETHER} runs, {len(parts)} times, {confidence:.1%}: "
            f"{np.mean(shares):.2f} of the price ({min(shares):.2f} to {max(shares):.2f})",
            flush=True,
        )


def main(words: list[str] | None = None) -> None:
    """All generators, or those named after the file that keeps the scores."""
    path, *names = words or [""]
    store = Kept(Path(path) if path else None, "name", "seed")
    for name in names or KINDS:
        audited(name, RUNS, store)


if __name__ == "__main__":
    main(sys.argv[1:])
