"""Prices, plans and bounds, and what is drawn from a seed, as they were when they were recorded.

A regression test: the numbers are our own, and other tests say that they are right. They are to stay, because
an interrupted fit is known by its noise, a ledger's total must not rise overnight, and a simulation is to be
repeated. Each line of ``numbers.txt`` is an expression and its value. ``python -m tests.golden.numbers``
evaluates all lines anew, for a change that was meant; CHANGELOG.md names it.
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction  # noqa: F401
from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons
from sklearn.neighbors import NearestCentroid  # noqa: F401

from ostraka import *  # noqa: F403  (the expressions name what users import)
from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.accounting import *  # noqa: F403
from ostraka.core.accounting import publish, smooth  # noqa: F401
from ostraka.core.accounting.bounds import exact_rdp  # noqa: F401
from ostraka.core.laws import limit  # noqa: F401
from ostraka.core.laws.cover import argmax_family, screen_family  # noqa: F401
from ostraka.core.laws.law import Law  # noqa: F401
from ostraka.core.mechanisms import exact  # noqa: F401
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals  # noqa: F401
from ostraka.core.mechanisms.counts import NoisyMarginals, TreeMarginals  # noqa: F401
from ostraka.core.mechanisms.selection import Selection, TokenDraw  # noqa: F401
from ostraka.core.mechanisms.skellam import SkellamSum  # noqa: F401
from ostraka.mechanisms import *  # noqa: F403

RECORD = Path(__file__).with_name("numbers.txt")
VOTES = np.array([[180, 40, 30], [90, 80, 80], [125, 125, 0], [250, 0, 0], [84, 83, 83]])
TWO = np.array([[240, 10], [130, 120], [125, 125], [0, 250]])
CODES = np.array([[2, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]] * 40)
MOONS = make_moons(160, noise=0.3, random_state=0)


def plain(value):
    """Numbers in lists and dictionaries; infinity has a name of its own in JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return float(f"{value:.13g}") if isinstance(value, float) and math.isfinite(value) else value


def cost(curve):
    """Epsilon at three deltas, delta at three epsilons, and the Rényi cost at orders that are far apart."""
    return [
        *(curve.epsilon(delta) for delta in (1e-2, 1e-5, 1e-10)),
        *(curve.delta(epsilon) for epsilon in (0.0, 0.5, 3.0)),
        *curve.rdp[::20],
    ]


def most(mechanism, **budget):
    """How many uses a budget allows that begins with them."""
    once, whole = mechanism.curve(), Budget(**budget)
    low, high = 0, 1
    while whole.allows(high * once, first=once):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if whole.allows(middle * once, first=once) else (low, middle)
    return low


def drawn(mechanism, values, seed=0, **changes):
    """What a mechanism answers from this seed."""
    private = Private(np.asarray(values), replace(mechanism.promise, **changes))
    with Ledger(":memory:", budget=Budget(epsilon=1e9, delta=1e-5, adaptive=False)) as ledger:
        return release(mechanism, private, ledger=ledger, rng=np.random.default_rng(seed))


def profile(whole):
    """Epsilon at three deltas, and delta at three epsilons."""
    return [*map(whole.epsilon, (1e-1, 1e-3, 1e-6)), *map(whole.delta, (0.0, 0.2, 1.5))]


def bounds(*settings, **options):
    """Every bound by its name: what it holds for, and epsilon after each number of answers."""
    return {
        bound.name: [bound.publishable, bound.both_directions, *bound.answers, *bound.epsilon(1e-5)]
        for bound in every_bound(*settings, **options)  # noqa: F405
    }


def planned(**settings):
    """The numbers of a proposal."""
    plan = propose(**settings)  # noqa: F405
    screen = () if plan.screen is None else (plan.screen.at, plan.screen.sigma)
    size = plan.n_teachers, plan.n_questions, plan.mechanism.sigma, plan.epsilon
    return [*size, *screen, *plan.answered, *plan.answers, *plan.student]


def agreed(n_classes, n_rows):
    """Votes of 250 teachers who agree more and more."""
    shares = np.linspace(0.5, 1.0, n_rows)[:, None] * np.eye(1, n_classes)
    shares = shares + (1 - shares[:, :1]) * (1 - np.eye(1, n_classes)) / (n_classes - 1)
    return np.random.default_rng(3).multinomial(250, shares)


def published(mechanism, counts, **settings):
    """The public record of a cost, from a seed, but for the words."""
    private, rng = Private(counts, Adjacency.one_ballot()), np.random.default_rng(0)
    record = release_epsilon(mechanism, private, rng=rng, **settings).to_dict()  # noqa: F405
    return [value for value in record.values() if isinstance(value, float)]


def levels(scale):
    """The costs of some levels, and what they are made of."""
    cost = scale.cost[:: max(1, len(scale.cost) // 8)] * publish.UNIT
    return [
        *cost,
        len(scale.cost),
        scale.reach,
        scale.pace,
        scale.tied,
        scale.agreed,
        *scale.levels(VOTES // 5),
    ]


def digits(arrays):
    """Arrays by name, those of many numbers as three sums of them."""
    wave = {name: np.cos(np.arange(array.size)) for name, array in arrays.items()}
    return {
        name: array if array.size < 20 else [array.shape, array.sum(), wave[name] @ array.ravel()]
        for name, array in arrays.items()
    }


def sums(pairs):
    """The sizes of what dominating pairs hold, summed, and how they are spread."""
    spread = np.linspace(0.5, 1.5, len(pairs.mass))
    return [spread @ np.abs(column) for column in pairs]


def lines():
    """The expressions and their values."""
    for line in RECORD.read_text("utf-8").splitlines():
        expression, _, value = line.rpartition(" == ")
        yield expression, json.loads(value)


def evaluated(expression):
    """The value of an expression, in plain types."""
    return plain(eval(expression, globals()))


def main():
    """Write all lines anew; expressions that are typed without a value get one."""
    expressions = [line.partition(" == ")[0] for line in RECORD.read_text("utf-8").splitlines()]
    rows = (f"{expression} == {json.dumps(evaluated(expression))}\n" for expression in expressions)
    RECORD.write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
