"""Answers drawn exactly: enclosures, more bits where some leave it open, and what floats may decide."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from randomgen import UserBitGenerator

from ostraka import Adjacency, GNMax, LNMax, Private, Threshold
from ostraka.core.kernels import draws as _draws
from ostraka.core.mechanisms import exact as _exact
from ostraka.core.mechanisms.exact import GAUSSIAN, LAPLACE, Noise
from ostraka.core.mechanisms.law import law as outcome_law
from ostraka.core.randomness import KeyedNoise, KeyedRows, further, words

TOP = 2**63


class Scripted(np.random.Generator):
    """A generator of the given 64-bit words; ``used`` counts them."""

    def __init__(self, *numbers):
        self._numbers, self.used = iter(numbers), 0
        super().__init__(UserBitGenerator(self._next, 64))

    def _next(self, _state):
        self.used += 1
        return next(self._numbers)


def ballots(*rows):
    return Private(np.array(rows), Adjacency.one_ballot())


def quantile(kind, tail):
    """The size that noise exceeds, on one side, with probability ``tail``: mpmath's, not ours."""
    if tail == 0:
        return mp.inf
    return -mp.log(2 * tail) if kind == LAPLACE else mp.sqrt(2) * mp.erfinv(1 - 2 * tail)


class WantedError(Exception):
    """More bits than the script has."""


def tree(decide, *, n_noises, step, depth):
    """Mass of each outcome over all bit strings of ``depth`` rounds, ``step`` bits a noise, and what is open.

    ``decide`` gets a list of noises. Bits are a tree: a draw that wants more bits branches.
    """
    chances, undecided = {}, Fraction(0)
    pending = [list(bits) for bits in itertools.product(range(2**step), repeat=n_noises)]
    while pending:
        script = pending.pop()
        remainder = iter(script[n_noises:])

        def more(bits=remainder):
            try:
                return next(bits)
            except StopIteration:
                raise WantedError from None

        share = Fraction(1, 2 ** (step * len(script)))
        try:
            outcome = decide([Noise(KIND[0], word, more, step=step) for word in script[:n_noises]])
            chances[outcome] = chances.get(outcome, Fraction(0)) + share
        except WantedError:
            if len(script) >= n_noises * depth:
                undecided += share
            else:
                pending += [[*script, bits] for bits in range(2**step)]
    assert sum(chances.values()) + undecided == 1
    return chances, undecided


KIND = [GAUSSIAN]


@pytest.mark.parametrize(
    ("mechanism", "counts"),
    [
        (GNMax(sigma=2.0), (3, 2)),
        (LNMax(scale=1.5), (3, 2)),
        pytest.param(GNMax(sigma=1.0), (1.25, 1.25), marks=pytest.mark.slow),
    ],
)
def test_every_outcome_of_an_argmax_has_its_ideal_probability_on_any_number_of_coarse_bits(mechanism, counts):
    kind, scale = outcome_law(mechanism).stages[0].noise
    KIND[0] = kind
    law = np.exp(mechanism.log_outcomes([counts]))[0]
    for depth, largest_rest in ((1, 0.3), (2, 0.02)):
        chances, undecided = tree(
            lambda noises: _exact.settled_largest(counts, scale, noises), n_noises=2, step=4, depth=depth
        )
        assert undecided < largest_rest
        for k, chance in enumerate(law):
            assert chances[k] <= chance <= chances[k] + undecided


@pytest.mark.parametrize(("counts", "at"), [((3.0,), 4.5), ((3.0, 2.0), 4.5)])
def test_every_outcome_of_a_screen_has_its_ideal_probability_on_any_number_of_coarse_bits(counts, at):
    KIND[0] = GAUSSIAN
    law = np.exp(Threshold(at=at, sigma=2.0, noise="every").log_outcomes([[*counts, -1e9]]))[0]
    chances, undecided = tree(
        lambda noises: _exact.settled_reaches(counts, at, 2.0, noises), n_noises=len(counts), step=3, depth=3
    )
    assert undecided < 0.05
    assert chances[True] <= law[0] <= chances[True] + undecided
    assert chances[False] <= law[1] <= chances[False] + undecided


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("bits", [2, 63, 127, 300])
def test_enclosures_hold_the_quantiles_of_both_ends_and_are_at_most_a_few_times_as_wide(kind, bits):
    rng = np.random.default_rng(bits)
    numbers = {0, 1, 2**bits - 1, 2**bits // 3}
    numbers |= {
        int.from_bytes(rng.bytes(40), "big") >> (320 - bits + int(cut)) for cut in rng.integers(0, bits, 9)
    }
    with mp.workprec(3 * bits + 200):
        for number in numbers:
            low, high = _exact.enclosure(kind, number, bits)
            near = quantile(kind, mp.mpf(number + 1) / 2 ** (bits + 1))
            quantile_end = quantile(kind, mp.mpf(number) / 2 ** (bits + 1))
            # mpmath's own rounding at 1/2 is all that may be below zero
            assert mp.mpf(low.numerator) / low.denominator <= near + mp.mpf(2) ** (-2 * bits - 100)
            assert number == 0 or mp.mpf(high.numerator) / high.denominator >= quantile_end
            assert (high == math.inf) == (number == 0)
            if number > 1:
                assert float(high - low) <= 5 * float(quantile_end - near)


def test_noise_that_repeats_itself_for_ever_is_refused_and_no_answer_is_made_up():
    twins = [Noise(GAUSSIAN, 5, lambda: 5), Noise(GAUSSIAN, 5, lambda: 5)]
    with pytest.raises(RuntimeError, match="repeats itself"):
        _exact.settled_largest((1.0, 1.0), 1.0, twins)


def spread_words(rng, shape):
    """Words whose tails are of all sizes, and some at the very ends."""
    draws = rng.integers(0, 2**64, size=shape, dtype=np.uint64)
    signs, sizes = draws & np.uint64(TOP), draws & np.uint64(TOP - 1)
    draws = signs | (sizes >> rng.integers(0, 30, size=shape).astype(np.uint64))
    flat = draws.reshape(-1)
    flat[::97], flat[1::97] = 0, TOP
    flat[2::97], flat[3::97] = TOP - 1, 2**64 - 1
    return draws


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("scale", [1e-200, 0.3, 40.0, 1e12])
def test_the_fast_path_gives_the_answers_of_the_slow_one(kind, scale, monkeypatch):
    rng = np.random.default_rng(5)
    draws = spread_words(rng, (150, 3))
    counts = rng.integers(0, 4, size=(150, 3)) * min(scale, 1e9)
    monkeypatch.setattr(_exact, "words", lambda rng, shape: draws.reshape(shape).copy())

    def more():  # further bits of one kind for every draw, however many it wants
        return 0x9E3779B97F4A7C15

    monkeypatch.setattr(_exact, "further", lambda rng, row: more)
    fast = _exact.largest(counts, kind=kind, scale=scale, rng=rng)
    slow = [
        _exact.settled_largest(row_counts, scale, [Noise(kind, word, more) for word in row])
        for row_counts, row in zip(counts.tolist(), draws.tolist(), strict=True)
    ]
    assert fast.tolist() == slow
    passes = _exact.reaches(counts, scale, scale=scale, rng=rng)
    expected = [
        _exact.settled_reaches(row_counts, scale, scale, [Noise(GAUSSIAN, word, more) for word in row])
        for row_counts, row in zip(counts.tolist(), draws.tolist(), strict=True)
    ]
    assert passes.tolist() == expected


@pytest.mark.parametrize("mechanism", [GNMax(sigma=4.0), LNMax(scale=4.0)])
@pytest.mark.parametrize(("first", "second", "winner"), [(1, 9, 0), (9, 1, 1), (2**63, 2**63 + 9, 0)])
def test_where_64_bits_tie_the_next_ones_decide(mechanism, first, second, winner):
    word = 2**61 + 12345
    # the smaller the tail, the larger the noise
    rng = Scripted(word, word, first, second)
    assert mechanism.release(ballots([7, 7]), rng=rng).tolist() == [winner]
    assert rng.used == 4
    rng = Scripted(word | TOP, word | TOP, 9, 9, first, second)
    assert mechanism.release(ballots([7, 7]), rng=rng).tolist() == [1 - winner]
    assert rng.used == 6


@pytest.mark.parametrize("mechanism", [GNMax(sigma=1.0), Threshold(at=0.0, sigma=1.0, noise="every")])
@pytest.mark.parametrize("word", [0, 1, _draws.LEAST - 1])
def test_the_far_tail_is_settled_by_more_bits(mechanism, word):
    """Noise of a tail below 2^-20 may be of any size; the other class's noise is -0.3, the bar is 0."""
    plain = TOP + int(0.38 * 2**64)
    votes = ballots([-3, 0])
    with mp.workprec(200):
        in_tail = quantile(GAUSSIAN, mp.mpf(word + 1) / 2**64) > 3
    assert in_tail
    answer = mechanism.release(votes, rng=Scripted(word, plain, *[TOP] * 10))[0]
    assert answer == (0 if isinstance(mechanism, GNMax) else True)


def test_every_bit_of_a_word_counts():
    """The same 48 first bits, other last ones: the answer changes, so noise has no pores of that size."""
    word = 2**60
    for shift in range(16):
        for low, high, winner in ((0, 1, 0), (1, 0, 1)):
            rng = Scripted(word + (low << shift), word + (high << shift), *[7] * 4)
            assert GNMax(sigma=4.0).release(ballots([7, 7]), rng=rng).tolist() == [winner]


MASK = np.uint64(0xE000_0000_0000_0000)  # the sign and two bits: eight values
REST = np.uint64(0x0AAA_AAAA_AAAA_AAAA)


def coarse(rng, shape):
    """Words of which only the first three bits are random."""
    return (words(rng, shape) & MASK) | REST


def test_keyed_rows_replay_single_keys_down_to_the_further_bits(monkeypatch):
    monkeypatch.setattr(_exact, "words", coarse)  # so that many rows need further bits
    keys = [bytes([k]) * 32 for k in range(60)]
    votes = ballots(*[[5, 5, 5]] * 60)
    for mechanism in (GNMax(sigma=3.0), LNMax(scale=3.0)):
        at_once = mechanism.release(votes, rng=KeyedRows(keys))
        answers = [mechanism.release(votes[k : k + 1], rng=KeyedNoise(key))[0] for k, key in enumerate(keys)]
        assert at_once.tolist() == answers
        assert len(set(answers)) == 3


def test_further_words_of_a_key_are_those_after_the_drawn_ones():
    rows, key = KeyedRows([b"a" * 32, b"b" * 32]), KeyedNoise(b"b" * 32)
    with pytest.raises(ValueError, match="words must be drawn before"):
        rows.further(1)
    draws, alone = words(rows, (2, 3)), words(key, (5,))
    assert draws[1].tolist() == alone[:3].tolist()
    extension = further(rows, 1)
    assert [extension(), extension()] == alone[3:].tolist()


@pytest.mark.parametrize("make", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_words_have_64_random_bits_from_every_generator(make):
    draws = words(np.random.Generator(make(3)), (400,))
    ones = [
        (int(bit) & draws).astype(bool).mean() for bit in (np.uint64(1) << np.arange(64, dtype=np.uint64))
    ]
    assert 0.3 < min(ones) <= max(ones) < 0.7  # ten standard errors and more


@pytest.mark.parametrize("sign", [0, 1])
def test_a_number_on_a_grid_is_rounded_exactly_and_more_bits_decide_at_its_border(sign):
    word = 2**61 + 999 + sign * TOP
    low, high = Noise(GAUSSIAN, word, lambda: 0).ends()
    scale, grid = Fraction(3, 2), Fraction(1, 8)
    inside = -scale * (low + high) / 2  # the border of a cell lies inside what 64 bits leave open
    outcomes = {
        bits: _exact.noisy_floor(inside, scale=scale, grid=grid, rng=Scripted(word, bits, *[TOP] * 9))
        for bits in (1, 2**64 - 2)
    }
    # small tails are large sizes
    assert outcomes == ({1: -1, 2**64 - 2: 0} if sign else {1: 0, 2**64 - 2: -1})
    clear = _exact.noisy_floor(inside + grid / 2, scale=scale, grid=grid, rng=Scripted(word))
    assert clear == 0


@pytest.mark.parametrize("sigma", [512.0, 700.3, 5_000.0, 65_536.0])
def test_the_table_of_normal_cells_is_near_enough_and_numbers_near_an_edge_are_settled(sigma):
    edges = _exact._edges(sigma)
    places_tested = np.unique(np.linspace(1, 7.5 * sigma, 300).astype(int))
    with mp.workdps(40):
        true = {n: mp.erf(n / (mp.mpf(sigma) * mp.sqrt(2))) * 2**63 for n in places_tested.tolist()}
        assert max(abs(true[n] - int(edges[n])) for n in true) < 2**23
        exact = {n: int(mp.floor(value)) for n, value in true.items()}
    places = [exact[n] + shift for n in exact for shift in (-2, 2)]

    class Fixed:
        """The given numbers, then zeros."""

        def integers(self, low, high, size, dtype):
            return np.array(places if size == (len(places),) else [0], dtype=dtype)

    cells = _exact.half_normal(sigma, (len(places),), rng=Fixed())
    assert cells.tolist() == [n + shift for n in exact for shift in (-1, 0)]
