"""Copies of private rows among public ones: the decision against a plain count of both tables."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom

from ostraka.data.guards import require_apart, row_digests


def are_copies(private, others):
    """By the rows themselves: whether both tables share more than two samples of one population would.

    First rows that occur twice in all, then all of them; a table that is repeated as a whole counts once.
    """
    counts = [Counter(map(tuple, table.tolist())) for table in (private, others)]
    counts = [{row: n // math.gcd(*count.values()) for row, n in count.items()} for count in counts]
    mine, theirs = counts
    n, m = sum(mine.values()), sum(theirs.values())
    kinds = {row: mine.get(row, 0) + theirs.get(row, 0) for row in mine | theirs}
    twice = [row for row, times in kinds.items() if times == 2]
    apart = sum(mine.get(row) == theirs.get(row) == 1 for row in twice)
    if binom.sf(apart - 1, len(twice), 2 * n * m / (n + m) ** 2) < 1e-4:
        return True
    mean = variance = 0.0
    for times, n_rows in Counter(kinds.values()).items():
        law = binom.pmf(range(times + 1), times, n / (n + m)).tolist()
        smaller = [min(k, times - k) for k in range(times + 1)]
        first = np.dot(law, smaller)
        mean += n_rows * first
        variance += n_rows * (np.dot(law, np.square(smaller)) - first**2)
    shared = sum(min(mine.get(row, 0), theirs.get(row, 0)) for row in kinds)
    return bool(shared - mean > 4.5 * math.sqrt(variance) > 0)


@pytest.mark.parametrize("seed", range(25))
def test_copies_are_told_from_rows_that_are_equal_by_chance(seed):
    rng = np.random.default_rng(seed)
    n, m, n_kinds = rng.integers(20, 120), rng.integers(10, 60), int(rng.choice([3, 12, 60, 2000]))
    private = rng.integers(0, n_kinds, (n, 1)).astype(float)
    for n_copies in (0, 1, 3, 5, 8, 15, m):
        others = rng.integers(0, n_kinds, (m, 1)).astype(float)
        others[: min(n_copies, n)] = private[:n_copies][:m]
        tables = [
            np.repeat(private, rng.choice([1, 2]), axis=0),
            np.repeat(others, rng.choice([1, 3]), axis=0),
        ]
        digests = [row_digests(table) for table in tables]
        if not are_copies(*tables):
            require_apart(*digests, what="rows", way_out="leave them out")
            continue
        rows = set(map(tuple, tables[0].tolist()))
        n_shared = sum(tuple(row) in rows for row in tables[1].tolist())
        said = f"^{n_shared:,} of the {len(tables[1]):,} rows are private rows, too: leave them out$"
        with pytest.raises(ValueError, match=said):
            require_apart(*digests, what="rows", way_out="leave them out")


def test_chance_ends_where_it_is_stated():
    """Rows that are once in both tables: of 13, 2^-13 is above 1e-4; twice in both: 1.134 sqrt(n) is 4.5."""
    apart = np.array([[-1.0]]), np.array([[-2.0]])
    for times, most in ((1, 13), (2, 15)):
        for n in (most, most + 1):
            rows = np.repeat(np.arange(float(n))[:, None], times, axis=0)
            tables = (rows, rows) if times == 1 else [np.concatenate([rows, row]) for row in apart]
            digests = [row_digests(table) for table in tables]
            if n == most:
                require_apart(*digests, what="rows", way_out="-")
                continue
            with pytest.raises(
                ValueError, match=f"^{n * times} of the {len(tables[1])} rows are private rows"
            ):
                require_apart(*digests, what="rows", way_out="-")
