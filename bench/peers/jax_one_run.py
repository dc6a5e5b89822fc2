"""One-run bounds by jax-privacy: epsilon and milliseconds of the cases of docs/record/memorisation.md.

::

    python -m venv /tmp/jax && /tmp/jax/bin/pip install jax-privacy==2.0.0
    /tmp/jax/bin/python bench/peers/jax_one_run.py

In an environment of ostraka's the same command has ours: it takes what is installed.
"""

import importlib.util
import json
import time
from importlib.metadata import version

# canaries, guesses, right, delta
CASES = ((1_000, 100, 100, 1e-4), (1_000, 1_000, 650, 1e-3), (10_000, 10_000, 7_400, 1e-3))
REPEATS = 5


def theirs(canaries: int, guesses: int, right: int, delta: float) -> float:
    """The lower bound at confidence 95 %."""
    from jax_privacy import auditing

    return auditing._epsilon_one_run(0.0, canaries, guesses, right, 0.05, delta)  # noqa: SLF001  (of counts, not scores)


def ours(canaries: int, guesses: int, right: int, delta: float) -> float:
    """The same for fair coins, and guesses fixed in advance."""
    from ostraka.audit.one_run import Guesses, _lower_ends

    fixed = Guesses.fixed_in_advance([right], [guesses], n_canaries=canaries)
    return float(_lower_ends(fixed, "steinke", delta=delta, error=0.05)[0])


def main() -> None:
    """Print each case."""
    name = "jax_privacy" if importlib.util.find_spec("jax_privacy") else "ostraka"
    bound = theirs if name == "jax_privacy" else ours
    for case in CASES:
        epsilon, start = bound(*case), time.process_time()
        for _ in range(REPEATS):
            bound(*case)
        milliseconds = 1e3 * (time.process_time() - start) / REPEATS
        facts = {"case": case, "epsilon": round(epsilon, 3), "milliseconds": round(milliseconds, 2)}
        print(json.dumps({name: version(name)} | facts))


if __name__ == "__main__":
    main()
