"""Vote recovery: time, coverage of intervals, distance from the information bound, and the meter.

The errors on the paper's histograms are ``reproduce.wang2022``'s. Times are processor time on one core.
"""

from __future__ import annotations

import time

import numpy as np

from bench._data import ask, histograms
from ostraka import GNMax
from ostraka.attacks import leakage_meter, recover_votes
from ostraka.audit.attacks.votes import cramer_rao

COVERED = 1_000
TRIES = 300
METERED = (10, 100, 1_000, 10_000, 100_000)
QUICK = {"COVERED": 1, "TRIES": 2, "METERED": (), "INSIDE": ()}
SIGMA = 40.0
INSIDE = (
    ([45, 60, 50, 35, 60], 40.0, 10_000),
    ([30, 45, 25, 20, 30], 10.0, 3_000),
    ([90, 70, 90], 60.0, 20_000),
)


def main() -> None:
    speed()
    bound()
    meter()
    coverage()


def recovered(votes: np.ndarray, n_answers: int, seed: int, *, sigma: float, method: str) -> np.ndarray:
    """Return the votes that an attacker recovers from these answers."""
    mechanism = GNMax(sigma=sigma)
    answers = ask(mechanism, votes, n_answers, seed)
    return recover_votes(answers, n_teachers=int(votes.sum()), mechanism=mechanism, method=method).mean


def speed() -> None:
    """Milliseconds a histogram, for 10,000 answers."""
    for method in ("posterior", "maximum-likelihood", "wang2022"):
        spent = []
        for votes in (*histograms("mnist"), *histograms("svhn")):
            start = time.process_time()
            recovered(votes, 10_000, 0, sigma=SIGMA, method=method)
            spent.append(1e3 * (time.process_time() - start))
        slowest = np.max(spent[1:])  # the first one loads compiled code
        print(
            f"  {method}: {np.median(spent):.1f} ms a histogram, at most {slowest:.1f} (the paper 2.5 hours)"
        )


def bound() -> None:
    """Root mean squared error over the information bound, where no count is near zero."""
    for votes, sigma, n_answers in INSIDE:
        h = np.array(votes, dtype=float)
        smallest = cramer_rao(GNMax(sigma=sigma), h[None], n_answers=n_answers)[0]
        print(f"  {votes}, sigma {sigma:g}, {n_answers:,} answers; error over the bound:", end="")
        for method in ("maximum-likelihood", "posterior"):
            errors = [recovered(h, n_answers, seed, sigma=sigma, method=method) for seed in range(TRIES)]
            ratio = np.sqrt(np.square(errors - h).mean(axis=0).sum() / (smallest**2).sum())
            print(f" {method} {ratio:.3f}", end="")
        print(flush=True)


def meter() -> None:
    """The leakage meter beside what the posterior mean reaches, in votes wrong of 250."""
    for name in ("mnist", "svhn"):
        for n_answers in METERED:
            leak = leakage_meter(GNMax(sigma=SIGMA), histograms(name), n_answers=n_answers)
            reached = []
            for h in histograms(name):
                errors = [recovered(h, n_answers, seed, sigma=SIGMA, method="posterior") for seed in range(3)]
                reached.append(np.abs(errors - h).sum(axis=1).mean() / 2)
            ratio = leak / reached
            print(
                f"  {name}, {n_answers:>7,} answers: meter {leak.mean():5.1f}, "
                f"posterior {np.mean(reached):5.1f} votes; ratio {np.exp(np.log(ratio).mean()):.2f}, "
                f"from {ratio.min():.2f} to {ratio.max():.2f}",
                flush=True,
            )


def coverage() -> None:
    """How often the 95 % intervals hold a count: histograms from the prior, and others."""
    mechanism = GNMax(sigma=SIGMA)
    for title, draw in DRAWN.items():
        for n_answers in (300, 10_000):
            rng = np.random.default_rng(0)
            hits, width, wald = [], [], []
            for _ in range(COVERED):
                votes = draw(rng)
                q = np.exp(mechanism.log_outcomes(votes[None].astype(float))[0])
                answers = rng.multinomial(n_answers, q / q.sum())
                first, second = (
                    recover_votes(answers, n_teachers=250, mechanism=mechanism, method=method)
                    for method in ("posterior", "maximum-likelihood")
                )
                hits.append((first.lower <= votes) & (votes <= first.upper))
                width.append(first.upper - first.lower)
                wald.append((np.floor(second.lower) <= votes) & (votes <= np.ceil(second.upper)))
            print(
                f"  {title}, {n_answers:,} answers: {np.mean(hits):.1%} of counts held, "
                f"{np.mean(width):.1f} votes wide; Wald intervals of the likelihood {np.mean(wald):.1%}",
                flush=True,
            )


def from_the_prior(rng: np.random.Generator) -> np.ndarray:
    """A draw of prior="leader": 250 teachers, ten classes."""
    remainder = rng.binomial(250, rng.beta(rng.choice([0.1, 1.0]), 1))
    shares = rng.dirichlet(np.full(9, rng.choice(np.geomspace(0.03, 30.0, 13))))
    return rng.permutation(np.append(250 - remainder, rng.multinomial(remainder, shares / shares.sum())))


def flat(rng: np.random.Generator) -> np.ndarray:
    """Every histogram as likely as any other."""
    shares = rng.dirichlet(np.ones(10))
    return rng.multinomial(250, shares / shares.sum())


def two_leaders(rng: np.random.Generator) -> np.ndarray:
    """Two classes share most of the votes, the others a few."""
    shares = rng.dirichlet([10.0, 8.0, *[0.3] * 8])
    return rng.permutation(rng.multinomial(250, shares / shares.sum()))


DRAWN = {"the prior": from_the_prior, "flat Dirichlet": flat, "two leaders": two_leaders}


if __name__ == "__main__":
    main()
