"""A hundred fits of particles a price on UCI Adult: how far the farthest copy is, so that a stray one shows.

A prototype whose search went astray had pairs of columns .5 apart where others had .06. Noise is seeded: a
simulation.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import numpy as np

from bench.synth import DELTA, TARGET, adult, distance
from ostraka.synth import TableGenerator

FITS, EPSILONS = 100, (0.1, 1.0)
QUICK = {"FITS": 2, "EPSILONS": (1.0,)}
ASTRAY = 1.5  # times the usual distance


def main() -> None:
    """Two prices, one hundred fits each."""
    data = adult()
    for epsilon in EPSILONS:
        start, gaps = time.process_time(), []
        for seed in range(FITS):
            rng = np.random.default_rng(seed)
            generator = TableGenerator(
                data.schema, target=TARGET, epsilon=epsilon, delta=DELTA, method="particles"
            )
            copy = generator.fit(data.train, rng=rng).sample_codes(len(data.codes), rng=rng)
            gaps.append(distance(data.codes, copy, data.schema.sizes))
        usual = float(np.median(gaps))
        stray = sum(gap > ASTRAY * usual for gap in gaps)
        print(
            f"  epsilon {epsilon:g}: pairs of columns {usual:.4f} apart, {min(gaps):.4f} to {max(gaps):.4f}; "
            f"{stray} of {FITS} fits above {ASTRAY:g} times that ({time.process_time() - start:.0f} s; "
            f"{datetime.now(UTC):%Y-%m-%d}, load {os.getloadavg()[1]:.1f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
