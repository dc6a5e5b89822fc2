"""CaPC of Chadha et al. 2024 (arXiv:2402.09403, figure 3), with questions that no party can see.

``python -m reproduce capc_secret`` trains the parties with and without one row, asks that row in secret, and
prints the Rényi divergence of 1,000 answers between both worlds: exact, beside what is promised.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
from sklearn.linear_model import RidgeClassifier

from ostraka import GNMax
from ostraka.core.mechanisms.skellam import SkellamMax
from ostraka.parties.models import fixed_model
from ostraka.secure.agreement import Agreement, SecretQuestions, fixed_rows, sizes_of
from ostraka.secure.dealer import deal_model
from ostraka.secure.keys import Identity
from ostraka.secure.masks import stream
from ostraka.secure.two_party import AskerSide, FixedModel, OwnerSide, words
from ostraka.voters.voting import Shard, train
from reproduce.chadha2024 import images

__all__ = ["main"]

N_PARTIES, N_ROWS, N_TARGETS, N_ANSWERS, SIGMA = 250, 240, 25, 1000, 40.0
ORDERS = (2.0, 8.0, 32.0)
QUICK = {"N_PARTIES": 5, "N_ROWS": 40, "N_TARGETS": 2}
QUICK_ARGUMENTS: list[str] = []


def agreed() -> Agreement:
    return Agreement(
        members={name: Identity.fresh().public_key for name in "abc"},
        aggregator=Identity.fresh().public_key,
        classes=range(10),
        n_features=784,
        sigma=SIGMA,
        noise="parties",
        secret=SecretQuestions(dealer=Identity.fresh().public_key, input_range=(0, 1)),
    )


def model_of(X: np.ndarray, y: np.ndarray, agreement: Agreement) -> FixedModel:
    shard = Shard(X.astype(np.float64), y, np.random.SeedSequence(0), 0)
    return fixed_model(train(RidgeClassifier(), [shard])[0], agreement)


def secret_votes(model: FixedModel, rows: np.ndarray, agreement: Agreement) -> np.ndarray:
    """One party's votes on rows it cannot see, both halves added: (n_rows, n_classes)."""
    sizes, fixed = sizes_of(agreement, len(rows)), fixed_rows(rows.astype(np.float64), agreement.secret)
    key, asker, holder = os.urandom(16), os.urandom(32), os.urandom(32)
    pad = words(stream(os.urandom(32)), *fixed.shape)
    material = deal_model(key, sizes, question=pad, asker=asker, owner_key=holder)
    owner = OwnerSide(model, holder, sizes)
    side = AskerSide(key, asker, sizes, question=pad, words=material.words, corrections=material.corrections)
    weights = owner.weights()
    owner.take(key, material.words)
    return owner.votes(side.wins(owner.first(fixed - pad, side.first(weights)))) + side.votes()


def divergences(mechanism: GNMax, first: np.ndarray, second: np.ndarray) -> list[float]:
    """Rényi divergence of one answer at each order, the larger of both directions."""
    logs = mechanism.log_outcomes(np.stack([first, second]))

    def divergence(p: np.ndarray, q: np.ndarray, order: float) -> float:
        terms = order * p + (1 - order) * q
        return float(np.logaddexp.reduce(terms) / (order - 1))

    return [max(divergence(logs[0], logs[1], a), divergence(logs[1], logs[0], a)) for a in ORDERS]


def main(arguments: list[str] | None = None) -> None:
    argparse.ArgumentParser(prog="reproduce capc_secret").parse_args(arguments or [])
    X, y, *_rest = images("mnist")
    rng, agreement = np.random.default_rng(0), agreed()
    order = rng.permutation(len(X))
    targets, others = order[:N_TARGETS], order[N_TARGETS:]
    questions = X[targets]
    shards = [others[k * N_ROWS : (k + 1) * N_ROWS] for k in range(N_PARTIES)]
    votes = [secret_votes(model_of(X[rows], y[rows], agreement), questions, agreement) for rows in shards]
    counts = np.stack(votes).astype(np.int64).sum(axis=0)
    mechanism = GNMax(sigma=SIGMA)  # beside Skellam noise, whose price is within 0.2 % of it
    histogram, argmax = (
        SkellamMax(sigma=SIGMA, reveals=revelation).curve() for revelation in ("counts", "argmax")
    )
    places = [argmax.orders.index(order) for order in ORDERS]
    print(f"{N_PARTIES} parties, {N_ANSWERS:,} answers to one row; Rényi divergence at orders {ORDERS}")
    print("promised, noisy counts:", *(f"{N_ANSWERS * histogram.rdp[place]:9.4f}" for place in places))
    print("promised, their argmax:", *(f"{N_ANSWERS * argmax.rdp[place]:9.4f}" for place in places))
    for name, shift in (("Nat-AdvQ", 0), ("Pois-AdvQ", 1)):
        worst, turned = [0.0] * len(ORDERS), 0
        for number, target in enumerate(targets):
            rows = np.append(shards[0], target)
            labels = np.append(y[shards[0]], (y[target] + shift) % 10)
            now = secret_votes(
                model_of(X[rows], labels, agreement), questions[number : number + 1], agreement
            )[0]
            moved = counts[number] - votes[0][number] + now
            turned += int((moved != counts[number]).any())
            costs = divergences(mechanism, counts[number].astype(float), moved.astype(float))
            worst = [max(pair) for pair in zip(worst, costs, strict=True)]
        print(f"{name}, exact argmax:  ", *(f"{N_ANSWERS * value:9.4f}" for value in worst), end="")
        print(f"   the ballot turned for {turned} of {len(targets)} rows")


if __name__ == "__main__":
    main()
