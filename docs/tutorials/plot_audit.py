"""
Auditing a system that you did not build
========================================

Somebody claims that each answer of their service is (1, 1e-5)-differentially private. You may run it twice:
once with a target in the data, once without. An audit needs nothing else.
"""

import matplotlib.pyplot as plt
import numpy as np

from ostraka.audits import epsilon_lower_bound


def service(votes: list[int], *, noise: float, times: int, rng: np.random.Generator) -> np.ndarray:
    """Somebody's system: which class has the most votes, with noise. We look at answers only."""
    noisy = np.asarray(votes) + rng.normal(0, noise, (times, len(votes)))
    return noisy.argmax(axis=1)


# %%
# Ask the same question many times in both worlds. The target votes for class 0 in one of them.

CLAIMED, DELTA = 1.0, 1e-5
rng = np.random.default_rng(0)
with_target, without = [6, 5, 4], [5, 6, 4]


def audited(noise: float, times: int) -> float:
    """What leaks at least, at a confidence of 95 %."""
    seen = [
        np.bincount(service(votes, noise=noise, times=times, rng=rng), minlength=3)
        for votes in (with_target, without)
    ]
    return epsilon_lower_bound(*seen, delta=DELTA).epsilon


# %%
# A build with enough noise is consistent with the claim. In another one the noise was divided by five.

times = [300, 1_000, 10_000, 100_000, 1_000_000]
honest = [audited(5.0, n) for n in times]
broken = [audited(1.0, n) for n in times]
print("honest", np.round(honest, 2))
print("broken", np.round(broken, 2), "violated" if max(broken) > CLAIMED else "consistent")

# %%
# The bound grows with the number of answers, and never passes what truly leaks (but for 5 % of audits).
# Where it passes the claim, the claim is refuted.

figure, axes = plt.subplots(figsize=(6, 3.5))
axes.plot(times, honest, marker="o", label="as promised")
axes.plot(times, broken, marker="s", label="with a fifth of the noise")
axes.axhline(CLAIMED, color="grey", linestyle=":", label="claimed")
axes.set(xlabel="answers in each world", ylabel="ε, lower bound", xscale="log")
axes.legend()
plt.show()
