"""Copies of UCI Adult by defaults alone: what boosted trees learn from them, scored on the real test rows.

As a newcomer would: the schema is what ``Schema.from_public`` makes of the test rows, and nothing is set but
the price and the target. Five seeds a price. The noise is seeded: a simulation, to be repeated.
"""

from __future__ import annotations

import numpy as np

from bench.synth import DELTA, TARGET, read, scored
from ostraka.synth import Schema, TableGenerator

SEEDS, SCORED, EPSILONS = 5, True, (0.1, 1.0)
QUICK = {"SEEDS": 1, "SCORED": False, "EPSILONS": (1.0,)}


def main() -> None:
    """Two prices, five seeds each."""
    private, public = read("adult.data.gz"), read("adult.test.gz")
    schema = Schema.from_public(public)
    codes, real = schema.encode(private), schema.encode(public)
    if SCORED:
        print("  the real rows: accuracy {:.4f}, AUC {:.4f}".format(*scored(codes, real)), flush=True)
    for epsilon in EPSILONS:
        distances = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            generator = TableGenerator(schema, target=TARGET, epsilon=epsilon, delta=DELTA).fit(
                private, rng=rng
            )
            distances.append(scored(generator.sample_codes(len(codes), rng=rng), real))
        means = "accuracy {:.4f}, AUC {:.4f}".format(*np.mean(distances, axis=0))
        spreads = "± {:.4f}, ± {:.4f}".format(*np.std(distances, axis=0))
        print(f"  epsilon {epsilon:g}: {means} ({spreads})", flush=True)


if __name__ == "__main__":
    main()
