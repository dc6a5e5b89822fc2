"""What a row adds is a function of that row and of public values, whatever stands beside it.

Neighbouring tables are made of hostile rows, and the aggregate **before noise** is compared with what its
adjacency promises. The long form: ``python -m rigs rows --pairs 100000``.
"""

import pytest

from rigs import rows


@pytest.mark.parametrize("name", rows.SUBJECTS)
def test_no_pair_of_hostile_neighbours_moves_more_than_is_promised(name):
    report = rows.run([name], pairs=12, seed=0)
    assert report.pairs >= 12
    assert not report.violations


def test_a_subject_whose_rows_move_others_is_found():
    """Planted: scaled by the largest row of all."""
    assert rows.run(["planted"], pairs=60, seed=0).violations
