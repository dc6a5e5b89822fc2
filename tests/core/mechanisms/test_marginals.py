import math
from dataclasses import replace

import numpy as np
import pytest

from ostraka import Adjacency, Private
from ostraka.core.mechanisms import counts
from ostraka.core.mechanisms.adaptive import AdaptiveMarginals
from ostraka.core.mechanisms.counts import NoisyMarginals, TreeMarginals
from ostraka.mechanisms import NoisyCounts

SIZES = (3, 2, 2)
ROWS = np.array([[0, 0, 0, 1], [2, 1, 1, 1], [2, 0, 1, 1], [1, 1, 0, 1]])
ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


def tree(**changes):
    settings = {"sizes": SIZES, "target": 2, "sigma_pairs": 2.0, "sigma_triples": 3.0, "select_epsilon": 0.5}
    return TreeMarginals(**settings | changes)


def test_without_noise_to_speak_of_marginals_are_the_counts():
    mechanism = NoisyMarginals(sizes=SIZES, columns=((0,), (0, 2)), sigma=0.05)
    release = mechanism.release(Private(ROWS, ONE_ROW), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(release["0"], [1, 1, 2])
    np.testing.assert_array_equal(release["0,2"], [[1, 0], [1, 0], [0, 2]])


@pytest.mark.parametrize("grain", [1, 6])
def test_one_unit_moves_all_marginals_by_no_more_than_their_price_says(grain):
    """Every unit whose rows weigh at most ``grain``: the norm of what it adds."""
    columns = ((0,), (1,), (0, 2), (0, 1, 2))
    worst = 0.0
    rng = np.random.default_rng(1)
    for n_rows in range(1, grain + 1):
        for _ in range(30):
            rows = np.column_stack([rng.integers(0, SIZES, (n_rows, 3)), np.full(n_rows, grain // n_rows)])
            if grain > 1 and rng.random() < 0.3:
                rows[:, :3] = rows[0, :3]  # all rows alike: the worst case
            moved = [counts.count(rows, SIZES, chosen).ravel() for chosen in columns]
            worst = max(worst, float(np.linalg.norm(np.concatenate(moved))))
    assert worst == pytest.approx(grain * math.sqrt(len(columns)))
    price = NoisyMarginals(sizes=SIZES, columns=columns, sigma=5.0, grain=grain).curve()
    noise = NoisyCounts(sigma=5.0, l2=grain * math.sqrt(len(columns)), relation="add-or-remove").curve()
    assert price.epsilon(delta=1e-5) == pytest.approx(noise.epsilon(delta=1e-5), rel=1e-12)
    assert price.moves == "row"


def test_the_price_of_a_tree_is_that_of_its_three_steps():
    mechanism = tree()
    parts = mechanism._first().curve()
    parts += replace(mechanism._choice().curve(), moves="row") + mechanism._last([(0, 1)]).curve()
    np.testing.assert_allclose(mechanism.curve().rdp, parts.rdp, rtol=1e-12)


def test_one_unit_moves_no_score_by_more_than_its_weight():
    rng = np.random.default_rng(2)
    sizes, grain = (4, 3, 3, 2), 3
    mechanism = TreeMarginals(
        sizes=sizes, target=3, sigma_pairs=1.0, sigma_triples=1.0, select_epsilon=1.0, grain=grain
    )
    rows = np.column_stack([rng.integers(0, sizes, (50, 4)), np.full(50, grain)])
    release = mechanism._first().release(
        Private(rows, replace(ONE_ROW, at_most=float(grain))), rng=np.random.default_rng(0)
    )
    before = mechanism._scores(rows, release)
    moved = []
    for row in range(50):
        after = mechanism._scores(np.delete(rows, row, axis=0), release)
        moved += [abs(after[pair] - before[pair]) for pair in before]
    assert max(moved) == grain


@pytest.mark.parametrize("cell", [(0, 1234), (1, -1234), (3, 2), (3, -1), (3, 65_537)])
def test_codes_and_weights_out_of_range_are_refused_without_a_value(cell):
    """A row that weighs more than the grain costs more than the price; in two bytes 65,537 would be 1."""
    rows = ROWS.copy()
    rows[2, cell[0]] = cell[1]
    adaptive = AdaptiveMarginals(
        sizes=SIZES, target=None, sigma_first=1.0, sigma=1.0, select_epsilon=1.0, n_pick=1
    )
    for mechanism in (tree(), NoisyMarginals(sizes=SIZES, columns=((0,),), sigma=1.0), adaptive):
        with pytest.raises(ValueError, match="from 0 to grain=1") as caught:
            mechanism.uses(Private(rows, ONE_ROW))
        assert "1234" not in str(caught.value)


def test_without_a_target_columns_are_counted_alone_and_in_pairs():
    release = tree(target=None).release(Private(ROWS, ONE_ROW), rng=np.random.default_rng(0))
    assert [len(name.split(",")) for name in release] == [1, 1, 1, 2, 2]


def test_a_forest_closes_no_circle():
    sizes = (2,) * 6
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.integers(0, 2, (200, 6)), np.ones(200, dtype=int)])
    mechanism = tree(sizes=sizes, target=5, select_epsilon=0.01)
    release = mechanism.release(Private(rows, ONE_ROW), rng=rng)
    pairs = [tuple(map(int, name.split(",")))[:2] for name in release if name.count(",") == 2]
    part = {j: j for j in range(5)}
    for a, b in pairs:
        assert part[a] != part[b]
        part = {j: part[a] if root == part[b] else root for j, root in part.items()}
    assert len(pairs) == 4


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS[:, :3], "codes of 3 columns and a weight"),
        (ROWS.astype(float), "integer codes"),
    ],
)
def test_rows_that_are_no_codes_are_refused(rows, words):
    with pytest.raises(ValueError, match=words):
        tree().uses(Private(rows, ONE_ROW))
