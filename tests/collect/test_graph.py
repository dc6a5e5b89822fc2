"""The graph: k is the smallest number of neighbours that keeps both promises, by counting every case."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from ostraka.collect.messages import degree, neighbours


def chance_of(n: int, marked: int, k: int, at_least: int) -> Fraction:
    """That k of n - 1 others include so many of the marked, counted."""
    ways = sum(comb(marked, j) * comb(n - 1 - marked, k - j) for j in range(at_least, k + 1))
    return Fraction(ways, comb(n - 1, k))


def keeps(n: int, colluding: int, missing: int, k: int, t: int, *, lying: bool) -> bool:
    secret = n * chance_of(n, colluding, k, t) <= Fraction(1, 2**40)
    live = n * (1 - chance_of(n, n - 1 - missing, k, t)) <= Fraction(1, 2**20)
    bad = colluding + missing
    apart = Fraction(n * n, 2) * Fraction(comb(n - k, bad - k) if bad >= k else 0, comb(n, bad) or 1)
    safe = True
    if lying:  # a run that the tally empties has t - k / 2 colluders, else the client before it refuses
        apart = Fraction(n * n, 2) * chance_of(n + 1, colluding, k // 2, max(0, t - k // 2)) ** 2
        # no client has so many colluding neighbours that 2 t <= k + them
        safe = n * chance_of(n, colluding, k, max(0, 2 * t - k)) <= Fraction(1, 2**40)
    return secret and live and safe and apart <= Fraction(1, 2**40)


@pytest.mark.parametrize(
    ("n", "colluding", "missing", "lying"),
    [
        (60, 6, 6, False),
        (100, 10, 10, False),
        (100, 20, 20, False),
        (100, 5, 5, True),
        (185, 18, 18, False),  # with one client less to draw from, it would be more
        (400, 40, 40, False),
    ],
)
def test_k_is_the_smallest_even_number_that_keeps_the_promises(n, colluding, missing, lying):
    k, t = degree(n, colluding, missing, lying=lying)
    assert keeps(n, colluding, missing, k, t, lying=lying)
    for fewer in range(2, k, 2):
        assert not any(keeps(n, colluding, missing, fewer, t, lying=lying) for t in range(1, fewer + 1))


@pytest.mark.parametrize(
    ("n", "share", "missing", "lying", "expected"),
    [
        (1_000, 0.1, 0.1, False, (46, 26)),
        (10_000, 0.1, 0.1, False, (54, 30)),
        (1_000, 0.1, 0.1, True, (102, 72)),
        (10_000, 0.05, 0.05, True, (68, 49)),
        (1_000, 0.2, 0.33, False, (158, 72)),  # a third missing costs more neighbours
    ],
)
def test_known_sizes(n, share, missing, lying, expected):
    assert degree(n, round(share * n), round(missing * n), lying=lying) == expected


def test_small_groups_mask_with_everybody_or_are_refused():
    assert degree(4, 0, 1)[0] in (2, 3)
    with pytest.raises(ValueError, match="no number of neighbours"):
        degree(3, 1, 1)
    with pytest.raises(ValueError, match="no number of neighbours"):
        degree(10, 4, 5, lying=True)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (9, 4), (40, 12), (6, 5)])
def test_neighbours_are_mutual_different_and_as_many_as_said(n, k):
    graph = neighbours(n, k, b"seed")
    assert graph.shape == (n, k)
    pairs = {(place, peer) for place in range(n) for peer in graph[place].tolist()}
    assert len(pairs) == n * k
    assert all((peer, place) in pairs and peer != place for place, peer in pairs)
    if k < n - 1:
        assert (neighbours(n, k, b"other") != graph).any()
    np.testing.assert_array_equal(neighbours(n, k, b"seed"), graph)
