"""Readings of a table and split outcomes against multi-precision: never below, and close."""

import itertools

import mpmath
import numpy as np
import pytest

from ostraka.core.laws import losses
from ostraka.core.laws.cover import Pairs, stencils
from ostraka.core.laws.tables import Table

PLACES = [(-40, 0.01), (120, 0.02), (30_000, 0.02), (69_990, 0.0101), (75_000, 0.01), (900, 1.5)]


def falling(start, step):
    """A table of a function that falls as P(S) - v Q(S) does, at whichever place."""
    values = np.geomspace(0.7, 1e-9, 60)
    return Table(start, step, values)


def on_chord(table, epsilon):
    """The chord in v = e^epsilon between the grid points around epsilon, to 60 digits."""
    place = mpmath.mpf(epsilon) / mpmath.mpf(table.step) - table.start
    i = min(int(mpmath.floor(place)), len(table.values) - 2)
    low, high = (mpmath.exp(mpmath.mpf(table.step) * (table.start + k)) for k in (i, i + 1))
    share = (mpmath.exp(mpmath.mpf(epsilon)) - low) / (high - low)
    before, after = (mpmath.mpf(float(value)) for value in table.values[i : i + 2])
    return before + share * (after - before)


@pytest.mark.parametrize(("start", "step"), PLACES)
def test_delta_is_never_below_the_chord_also_where_e_to_epsilon_leaves_floats(start, step):
    table = falling(start, step)
    with mpmath.workdps(60):
        for share in (0.3, 7.5, 7.500001, 31.999999, 58.99):
            epsilon = max(1e-9, step * (start + share))
            if epsilon < step * start:
                continue
            truth, reading = on_chord(table, epsilon), table.delta(epsilon)
            assert truth <= reading <= truth * (1 + 1e-6)


@pytest.mark.parametrize(("start", "step"), PLACES)
def test_epsilon_is_never_below_the_chord_also_where_e_to_epsilon_leaves_floats(start, step):
    table = falling(start, step)
    with mpmath.workdps(60):
        for delta in (0.69, 1e-3, 3e-7, 1.01e-9):
            reading = table.epsilon(delta)
            i = int((table.values <= delta).argmax())
            before, after = (mpmath.mpf(float(value)) for value in table.values[i - 1 : i + 1])
            share = (before - mpmath.mpf(delta)) / (before - after)
            low = mpmath.mpf(step) * (start + i - 1)
            truth = max(low + mpmath.log1p(share * mpmath.expm1(mpmath.mpf(step))), 0)
            assert truth <= reading <= truth + (1 + truth) * 1e-9


def test_readings_at_the_ends_of_a_table():
    table = falling(100, 0.01)
    assert [table.delta(epsilon) for epsilon in (0.0, 0.9, 1.0)] == [1.0, 1.0, 1.0]
    assert table.delta(1.59) >= table.values[-1]
    assert [table.delta(value) for value in (1.8, 1e9, float("inf"))] == [table.values[-1]] * 3
    assert table.epsilon(1e-10) == float("inf")
    assert 1.0 <= table.epsilon(0.9) <= 1.0 + 1e-11


@pytest.mark.parametrize("x", [-30.0, -0.5, 0.4, 650.0, 800.0])
def test_below_the_grid_of_one_direction_the_bound_rises_as_fast_as_it_may(x):
    step, points, last = 0.02, 1500, 1e-4
    risen_value = losses._risen(last, x, step, points)
    with mpmath.workdps(60):
        for place in (0, 700, 1498, 1499):
            y = mpmath.mpf(x) - (points - place) * mpmath.mpf(step)
            truth = min(mpmath.mpf(1), mpmath.mpf(last) + mpmath.exp(mpmath.mpf(x)) - mpmath.exp(y))
            assert risen_value[place] >= min(truth, mpmath.mpf(1))
            assert risen_value[place] <= truth * (1 + 1e-9)


@pytest.mark.parametrize("step", [0.002, 0.03])
def test_an_outcome_between_grid_points_is_never_counted_at_the_cheaper_one(step):
    """Averages over random pairs of convex functions of v = e^x, against the sum itself."""
    rng = np.random.default_rng(4)
    mass = rng.dirichlet(np.ones(3), size=60)
    neighbour = mass * np.exp(rng.uniform(-0.4, 0.4, mass.shape))
    neighbour /= neighbour.sum(axis=1, keepdims=True)
    reach = 2000
    stencil = stencils(Pairs(mass, neighbour - mass, np.zeros(60)), step=step, reach=reach)
    for at, steep in itertools.product((-0.3, 0.0, 0.8), (1.0, 6.0)):

        def convex(x, steep=steep):
            return (1 + np.exp(x)) ** -steep

        grid = convex(at + np.arange(-reach, reach + 1) * step)
        bounds = stencil.constants + (stencil.weights * grid[stencil.offsets + reach]).sum(axis=1)
        truth = (mass * convex(at + np.log(neighbour / mass))).sum(axis=1)
        assert (bounds >= truth).all()
        assert (bounds <= truth + 10 * steep**2 * step**2).all()
