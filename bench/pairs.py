"""Pairs against prices: all neighbours of all small histograms, and of large random ones. No violation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from ostraka import Confident, GNMax, LNMax, Threshold
from ostraka.core.laws import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ostraka.core.laws.law import Law
    from ostraka.core.mechanisms.law import BallotMechanism

SIZES = ((10, 9), (5, 24), (3, 120))  # classes, ballots
MECHANISMS: tuple[BallotMechanism, ...] = (
    GNMax(sigma=3.0),
    GNMax(sigma=20.0),
    LNMax(scale=4.0),
    Threshold(at=6, sigma=4.0),
    Threshold(at=6, sigma=4.0, noise="every"),
)
# Random histograms: classes, ballots, how many. Votes follow laws from nearly unanimous to nearly flat.
RANDOM = ((10, 250, 16_000), (20, 1_000, 2_000), (50, 2_000, 150))
LARGE: tuple[BallotMechanism, ...] = (
    GNMax(sigma=20.0),
    GNMax(sigma=40.0),
    LNMax(scale=20.0),
    Threshold(at=150, sigma=40.0),
    Threshold(at=150, sigma=40.0, noise="every"),
    Confident(screen=Threshold(at=150, sigma=60.0), argmax=GNMax(sigma=20.0)),
)
SEED = 12
ANSWERS = (8, 24, 60)  # of GNMax(sigma=20): one more answer must stay below the next table
QUICK = {"SIZES": ((3, 6),), "ANSWERS": (8,), "RANDOM": ((10, 250, 20),)}
_ORDERS = (1.25, 2.0, 4.0, 8.0, 16.0)
_ROUNDING = 1e-9
_AT_ONCE = 200_000


def histograms(n_classes: int, n_ballots: int) -> np.ndarray:
    """Every histogram of so many ballots, in the order of their keys."""
    bars = np.array(list(itertools.combinations(range(n_ballots + n_classes - 1), n_classes - 1)))
    ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=-1)
    ends[:, -1] = n_ballots + n_classes - 1
    return np.diff(ends, axis=1) - 1


def neighbours(counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of histograms, and of those with one ballot moved from one class to another."""
    n_classes = counts.shape[1]
    radix = (int(counts.max()) + 1) ** np.arange(n_classes - 1, -1, -1)
    keys = counts @ radix
    for giver, taker in itertools.permutations(range(n_classes), 2):
        has = np.flatnonzero(counts[:, giver] > 0)
        yield has, np.searchsorted(keys, keys[has] - radix[giver] + radix[taker])


def random_histograms(n_classes: int, n_ballots: int, n: int, *, rng: np.random.Generator) -> np.ndarray:
    """Histograms of multinomial ballots, whose laws are Dirichlet of every spread; some have a tie on top."""
    spread = 10 ** rng.uniform(-2, 2, n)
    laws = np.array([rng.dirichlet(np.full(n_classes, concentration)) for concentration in spread])
    counts = rng.multinomial(n_ballots, laws)
    top = np.argsort(counts, axis=1)[:, -2:]
    rows, ties = np.arange(n)[:, None], rng.random(n) < 0.5
    pair = counts[rows, top]
    level = np.stack([pair.sum(axis=1) // 2, pair.sum(axis=1) - pair.sum(axis=1) // 2], axis=1)
    counts[rows, top] = np.where(ties[:, None], level, pair)
    return counts


def random_neighbours(counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Histograms, and the same with one ballot moved from one class to another, for every two classes."""
    identity = np.eye(counts.shape[1], dtype=counts.dtype)
    for giver, taker in itertools.permutations(range(counts.shape[1]), 2):
        has = counts[counts[:, giver] > 0]
        if len(has):
            yield has, has - identity[giver] + identity[taker]


def too_expensive(mechanism: BallotMechanism, log_p: np.ndarray, log_q: np.ndarray) -> int:
    """How many pairs have a Rényi divergence above the price at some order."""
    curve, wrong = mechanism.curve(), np.zeros(len(log_p), dtype=bool)
    for order in _ORDERS:
        exact = np.log(np.exp(order * log_p + (1 - order) * log_q).sum(axis=1)) / (order - 1)
        wrong |= exact > np.interp(order, curve.orders[:-1], curve.rdp[:-1]) * (1 + _ROUNDING) + _ROUNDING
    return int(wrong.sum())


def not_carried(law: Law, answers: int, log_p: np.ndarray, log_q: np.ndarray) -> int:
    """How many pairs tell more, followed by so many answers, than the table of one answer more says."""
    curves = [tables.followed_table(law._replace(uses=n)) for n in (answers, answers + 1)]
    before, after = (table for table in curves if table is not None)
    odds = [np.exp(grid.step * (grid.start + np.arange(len(grid.values)))) for grid in (before, after)]
    wrong = np.zeros(len(log_p), dtype=bool)
    for epsilon in (0.0, 0.3, 0.8):
        delta = np.exp(log_p) * np.interp(np.exp(epsilon + log_q - log_p), odds[0], before.values)
        most_delta = np.interp(np.exp(epsilon), odds[1], after.values)
        wrong |= delta.sum(axis=1) > most_delta * (1 + _ROUNDING)
    return int(wrong.sum())


def small() -> Iterator[tuple[str, int, int]]:
    """Every mechanism and size of the small histograms: what, pairs, violations."""
    for (n_classes, n_ballots), mechanism in itertools.product(SIZES, MECHANISMS):
        counts = histograms(n_classes, n_ballots)
        logs = mechanism.log_outcomes(counts)
        pairs = wrong = 0
        for first, second in neighbours(counts):
            for start in range(0, len(first), _AT_ONCE):
                p, q = (logs[places[start : start + _AT_ONCE]] for places in (first, second))
                pairs, wrong = pairs + len(p), wrong + too_expensive(mechanism, p, q)
        yield f"{mechanism}: {n_ballots} ballots, {n_classes} classes", pairs, wrong


def large() -> Iterator[tuple[str, int, int]]:
    """Every mechanism and size of the random histograms."""
    for (n_classes, n_ballots, n), mechanism in itertools.product(RANDOM, LARGE):
        counts = random_histograms(n_classes, n_ballots, n, rng=np.random.default_rng(SEED))
        pairs = wrong = 0
        for first, second in random_neighbours(counts):
            p, q = (mechanism.log_outcomes(places) for places in (first, second))
            pairs, wrong = pairs + len(p), wrong + too_expensive(mechanism, p, q)
        yield f"{mechanism}: {n:,} random histograms, {n_ballots} ballots, {n_classes} classes", pairs, wrong


def followed() -> Iterator[tuple[str, int, int]]:
    """One pair followed by answers of the best strategy, for every neighbour of the last small size."""
    mechanism = MECHANISMS[1]
    (law,) = GNMax(sigma=20.0).curve(bound="exact").laws or ()
    counts = histograms(*SIZES[-1])
    logs = mechanism.log_outcomes(counts)
    for answers in ANSWERS:
        pairs = wrong = 0
        for first, second in neighbours(counts):
            pairs, wrong = pairs + len(first), wrong + not_carried(law, answers, logs[first], logs[second])
        yield f"{mechanism}, then {answers} answers by strategy", pairs, wrong


def main() -> None:
    """Print pairs and violations for each mechanism and size."""
    total = bad = 0
    for what, pairs, wrong in itertools.chain(small(), large(), followed()):
        print(f"{what}: {pairs:,} pairs, {wrong} above", flush=True)
        total, bad = total + pairs, bad + wrong
    print(f"{total:,} pairs, {bad} violations")
    if bad:
        raise SystemExit("a price was exceeded")
