"""What the reproduction of Melis 2018, chapter 4, rests on; tests/test_commands.py runs all of it."""

import itertools

import numpy as np

from bench import collect
from ostraka.collect import CountSketch
from reproduce import melis2018_statistics as melis


def test_sizes_of_table_4_1_are_the_printed_ones(capsys):
    melis.table41(quick=True)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert [int(row[1]) for row in rows] == [int(row[2]) for row in rows] == list(melis.TABLE_41)


def test_one_value_moves_a_range_of_the_sketch_by_far_more_than_its_claimed_sensitivity():
    # planted: the thesis adds noise for d = 3
    sensitivity = melis.sensitivity(3)
    assert sensitivity.min() > 15
    sketch = CountSketch(width=55, depth=3, key="11" * 32)
    assert sketch.l1 == 6  # our price is for all cells at once, not for ranges of them
    vectors = [sketch.encode([k]).astype(np.int32) for k in range(200)]
    moves = [np.abs(vector - two).sum() for vector, two in itertools.pairwise(vectors)]
    assert max(moves) <= 6


def test_an_audit_certifies_no_more_than_is_proved():
    lower, upper = collect.certified(n_draws=200_000)
    assert 0.4 * upper < lower < upper
