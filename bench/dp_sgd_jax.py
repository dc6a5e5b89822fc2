"""The rival DP-SGD, by jax-privacy, on Adult: rows, batches, clipping and rates of ``bench/dp_sgd.py``.

jax-privacy has an environment of its own (docs/when-not.md names the commands). Batches are Poisson samples,
the price is that of its accountant by privacy loss distributions, for neighbours that add or remove a row.
The best learning rate **on the reported rows** is printed, and the trials are not charged.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from bench.dp_sgd import BATCH, CLIP, DELTA, EPOCHS, EPSILONS, RATES, SEEDS
from bench.utility import adult_deal, said

QUICK = {"EPSILONS": (4.0,), "RATES": {"adult": (2.0,)}, "EPOCHS": {"adult": 1}, "SEEDS": {"adult": 1}}


@cache
def noise_multiplier(epsilon: float, n_rows: int, n_steps: int) -> float:
    """The least noise at which all steps fit, by bisection of the accountant."""
    from jax_privacy.accounting import (
        DpsgdTrainingAccountant,
        PldAccountantConfig,
        calibrate_noise_multiplier,
    )

    accountant = DpsgdTrainingAccountant(PldAccountantConfig())
    batch = min(BATCH["adult"], n_rows)
    settings = {"batch_sizes": batch, "num_updates": n_steps, "num_samples": n_rows, "target_delta": DELTA}
    return float(calibrate_noise_multiplier(target_epsilon=epsilon, accountant=accountant, **settings))


def private_fit(X: np.ndarray, y: np.ndarray, *, epsilon: float, rate: float, seed: int) -> Any:
    """Train a logistic regression that starts at zero, and return its weights."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax_privacy import batch_selection, clipped_grad, noise_addition

    batch, clip = min(BATCH["adult"], len(y)), CLIP["adult"]
    n_steps = EPOCHS["adult"] * max(1, round(len(y) / batch))

    def loss(weights: Any, rows: Any, labels: Any, real: Any) -> Any:
        losses = optax.softmax_cross_entropy_with_integer_labels(rows @ weights["w"] + weights["b"], labels)
        return (losses * real).sum()

    gradients = clipped_grad(loss, l2_clip_norm=clip, normalize_by=batch, batch_argnums=(1, 2, 3))
    sigma = noise_multiplier(epsilon, len(y), n_steps) * clip / batch
    noise = noise_addition.gaussian_privatizer(stddev=sigma, prng_key=jax.random.key(seed))
    step = optax.chain(noise, optax.sgd(rate, momentum=0.9))

    def update(weights: Any, state: Any, *rows: Any) -> Any:
        change, state = step.update(gradients(weights, *rows), state, weights)
        return optax.apply_updates(weights, change), state

    quick_update: Any = jax.jit(update)
    weights = {"w": jnp.zeros((X.shape[1], int(y.max()) + 1)), "b": jnp.zeros(int(y.max()) + 1)}
    state = step.init(weights)
    sampling = batch_selection.CyclicPoissonSampling(sampling_prob=batch / len(y), iterations=n_steps)
    room = batch + 8 * int(np.sqrt(batch))  # rows that are not there count nothing
    for chosen in sampling.batch_iterator(len(y), rng=seed):
        if len(chosen) > room:
            raise ValueError(f"a batch has {len(chosen)} rows, more than {room}")
        rows, labels, real = np.zeros((room, X.shape[1]), np.float32), np.zeros(room, int), np.zeros(room)
        rows[: len(chosen)], labels[: len(chosen)], real[: len(chosen)] = X[chosen], y[chosen], 1.0
        weights, state = quick_update(weights, state, rows, labels, real)
    return weights


def main() -> None:
    """At each epsilon, try every learning rate on every deal, and print the best mean accuracy."""
    deals = [adult_deal(seed) for seed in range(SEEDS["adult"])]
    for epsilon in EPSILONS:
        candidates, start = {}, time.process_time()
        for rate in RATES["adult"]:
            accuracies = []
            for seed, (X, y, X_new, y_new) in enumerate(deals):
                weights = private_fit(X, y, epsilon=epsilon, rate=rate, seed=seed)
                scores = X_new @ np.asarray(weights["w"]) + np.asarray(weights["b"])
                accuracies.append(float((scores.argmax(1) == y_new).mean()))
            candidates[rate] = accuracies
            print(f"    epsilon {epsilon:g}, learning rate {rate:g}: {np.mean(accuracies):.4f}", flush=True)
        chosen = max(candidates, key=lambda rate: float(np.mean(candidates[rate])))
        said("jax-privacy, adult", epsilon, candidates[chosen], [time.process_time() - start])


if __name__ == "__main__":
    main()
