"""Shards of made-up rows for estimators whose teachers are trained together."""

import numpy as np


def shard(n_classes, *, n_rows=20, n_features=6, seed=0, spread=1.0, middle=0.0):
    """Rows of overlapping classes, all of which occur."""
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n_rows) % n_classes)
    centres = rng.normal(size=(n_classes, n_features))
    return spread * (middle + centres[codes] + rng.normal(size=(n_rows, n_features))), codes


def together(train, estimator, shards):
    return train(estimator, [X for X, _ in shards], [codes for _, codes in shards])


def changed_by_another(fitted, equal, n_classes, *, middle=0.0):
    """The shards, and the places of those whose solution depends on what the twelfth holds."""
    shards = [shard(n_classes, n_rows=17 + k % 5, seed=k, middle=middle) for k in range(40)]
    before, changed = fitted(shards), set()
    for changed_shard in (
        shard(n_classes, n_rows=90, seed=99),
        shard(n_classes + 1, seed=98),
        shard(n_classes, seed=97, spread=1e200),  # overflows
        (np.zeros((20, 6)), np.arange(20) % n_classes),
    ):
        after = fitted([*shards[:11], changed_shard, *shards[12:]])
        changed |= {k for k in range(40) if k != 11 and not equal(after[k], before[k])}
    return shards, changed
