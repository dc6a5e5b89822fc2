"""Encodings: what one client's vector is, how far two lie apart, and what is refused without quoting it."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka.collect import (
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Histograms,
    Pairs,
    Sum,
    Task,
    Tree,
    Vector,
    Visits,
    plan,
)
from ostraka.collect import encodings as sketches
from ostraka.collect import task as _form
from ostraka.core.curve import Curve
from ostraka.secure.masks import mask

KEY = "5a" * 32
SMALL = [
    (Histogram(-1.0, 2.0, cells=4), [-9, -1, 0, 0.5, 1.99, 2, 1e300, math.inf]),
    (Tree(0, 9, fanout=2), [*range(9), -5, 3.7, 100]),
    (Tree(-3, 14, fanout=4), range(-3, 14)),
    (Tree(0, 40), [0, 1, 17, 39]),
    (
        Grid(x=(0, 1), y=(0, 2), shape=(2, 3), at_most=2),
        [(0.1, 0.1), [(0.9, 0.1), (0.1, 1.9), (0.5, 1.0)], []],
    ),
    (Visits(x=(0, 1), y=(0, 2), shape=(2, 3), at_most=3), [[(0.1, 0.1)] * 5, [(0.9, 0.1)] * 2, []]),
    (Histograms(((0, 4, 4), (-1.0, 2.0, 3))), [[0, -1], [3, 2], [1, 0.5]]),
    (Sum(0, 15, bits=4), [*range(16), -3, 99]),
    (Vector(cells=2, clip=1.0, grid=16), [[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8], [-30.0, -40.0], [1e200, 0.0]]),
    (Pairs(items=4, at_most=2), [*itertools.permutations(range(4), 3), [], [2]]),
    (CountMin(width=3, depth=4, key=KEY), [[k] for k in range(12)]),
    (CountMin(width=2, depth=3, key=KEY, at_most=2), [[j, k] for j in range(6) for k in range(6)]),
    (CountSketch(width=3, depth=4, key=KEY), [[k] for k in range(12)]),
    (CountSketch(width=2, depth=3, key=KEY, at_most=2), [[j, k] for j in range(6) for k in range(6)]),
]
every_encoding = pytest.mark.parametrize(("encoding", "values"), SMALL, ids=lambda value: str(value)[:40])


def signed(vector: np.ndarray) -> np.ndarray:
    return vector.astype(np.int32).astype(np.int64)


@every_encoding
def test_two_encodings_lie_within_the_stated_norms_and_some_reach_them(encoding, values):
    vectors = [signed(encoding.encode(value)) for value in values] + [
        np.zeros(encoding.cells, dtype=np.int64)
    ]
    apart = [left_vector - two for left_vector, two in itertools.combinations(vectors, 2)]
    l1 = max(np.abs(move).sum() for move in apart)
    l2 = max(math.sqrt((move**2).sum()) for move in apart)
    assert l1 <= encoding.l1
    assert l2 <= encoding.l2 * (1 + 1e-12)
    assert max(np.abs(vector).max() for vector in vectors) <= encoding.largest
    assert l1 >= 0.6 * encoding.l1
    assert l2 >= 0.6 * encoding.l2


@every_encoding
def test_an_encoding_comes_back_from_its_json_and_is_a_value(encoding, values):
    again = _form.read(_form.written(encoding))
    assert again == encoding
    assert hash(again) == hash(encoding)
    for value in list(values)[:3]:
        vector = encoding.encode(value)
        assert vector.dtype == np.uint32
        assert vector.shape == (encoding.cells,)
        if not isinstance(encoding, Sum | Vector):  # these round at random
            np.testing.assert_array_equal(again.encode(value), vector)


@given(st.floats(allow_nan=False) | st.integers())
def test_numbers_out_of_range_are_clipped_and_every_number_has_one_cell(value):
    for encoding in (Histogram(-3, 5, cells=7), Tree(-3, 5)):
        vector = encoding.encode(value)
        assert vector.sum() in (1, len(getattr(encoding, "sizes", [0])))
    place = int(np.argmax(Histogram(-3, 5, cells=7).encode(value)))
    inside = min(max(value, -3), 5)
    assert place == min(6, math.floor((inside + 3) * 7 / 8))


def test_a_tree_counts_a_number_once_at_every_level():
    tree = Tree(0, 1000, fanout=16)
    assert tree.sizes == (4, 63, 1000)
    for leaf in (0, 15, 16, 255, 256, 999):
        places = np.flatnonzero(tree.encode(leaf)).tolist()
        assert places == [leaf // 256, 4 + leaf // 16, 67 + leaf]


def test_pairs_have_one_cell_each():
    pairs = Pairs(items=7, at_most=3)
    places = {int(pairs.place(a, b)) for a in range(7) for b in range(a, 7)}
    assert places == set(range(pairs.cells))
    assert pairs.place(5, 2) == pairs.place(2, 5)


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        (Histogram(0, 1, cells=2), math.nan),
        (Histogram(0, 1, cells=2), np.float64("nan")),
        (Histogram(0, 1, cells=2), "0.77123"),
        (Histogram(0, 1, cells=2), None),
        (Histogram(0, 1, cells=2), True),
        (Tree(0, 10), [3]),
        (Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), (0.77123, math.nan)),
        (Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), 0.77123),
        (Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), "0.77123"),
        (Grid(x=(0, 1), y=(0, 1), shape=(2, 2)), [(1, 2, 3)]),
        (Visits(x=(0, 1), y=(0, 1), shape=(2, 2)), "0.77123"),
        (Histograms(((0, 1, 2), (0, 1, 2))), [0.77123]),
        (Histograms(((0, 1, 2), (0, 1, 2))), 0.77123),
        (Sum(0, 1), "0.77123"),
        (Sum(0, 1), math.nan),
        (Vector(cells=2, clip=1.0, grid=16), [0.77123]),
        (Vector(cells=2, clip=1.0, grid=16), [0.77123, math.inf]),
        (Vector(cells=2, clip=1.0, grid=16), ["0.77123x", 1]),
        (Pairs(items=5, at_most=2), [77123]),
        (Pairs(items=5, at_most=2), [-1]),
        (Pairs(items=5, at_most=2), [0.77123]),
        (Pairs(items=5, at_most=2), 3),
        (CountMin(width=3, depth=2, key=KEY), [2**31 - 1]),
        (CountSketch(width=3, depth=2, key=KEY), ["77123"]),
    ],
)
def test_other_values_are_refused_and_not_quoted(encoding, value):
    with pytest.raises(ValueError, match="must") as caught:
        encoding.encode(value)
    assert "77123" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (lambda n: Histogram(0, 1, cells=n), 2, 2**22),
        (lambda n: Histogram(0, n, cells=2), 5e-324, 2.0**53),
        (lambda n: Histogram(-n, 0, cells=2), 5e-324, 2.0**53),
        (lambda n: Histograms([(0, 1, n), (0, 1, 2)]), 2, 2**22 - 2),
        (lambda n: Tree(5, 5 + n), 2, 2**21),
        (lambda n: Tree(0, 8, fanout=n), 2, None),
        (lambda n: Grid(x=(0, 1), y=(0, 1), shape=(n, 1)), 1, 2**22),
        (lambda n: Grid(x=(0, 1), y=(0, 1), shape=(1, n)), 1, 2**22),
        (lambda n: Grid(x=(0, 1), y=(0, 1), shape=(3, 3), at_most=n), 1, None),
        (lambda n: Sum(0, 1, bits=n), 1, 14),
        (lambda n: Vector(cells=n, clip=1.0, grid=16), 1, 2**22),
        (lambda n: Vector(cells=2, clip=n, grid=16), 5e-324, None),
        (lambda n: Vector(cells=2, clip=1.0, grid=n), 16, 7000),
        (lambda n: Pairs(items=n, at_most=1), 2, 2895),  # 2895 * 2896 / 2 cells
        (lambda n: Pairs(items=3, at_most=n), 1, None),
        (lambda n: CountMin(width=n, depth=2, key=KEY), 2, 2**21),
        (lambda n: CountMin(width=2, depth=n, key=KEY), 1, 2**21),
        (lambda n: CountSketch(width=3, depth=2, key=KEY, at_most=n), 1, None),
    ],
)
def test_encodings_have_a_least_and_a_largest_form(make, least, most):
    wide = isinstance(least, float)
    beyond = [0.0, math.nan] if wide else [least - 1, True, least + 0.5]
    if most is not None:
        beyond.append(math.nextafter(most, math.inf) if wide else most + 1)
    for number in (least, most or 10**6):
        make(number)
    for number in beyond:
        with pytest.raises(ValueError, match="must"):
            make(number)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Histogram(1, 1, cells=4),
        lambda: Histogram(0, math.inf, cells=4),
        lambda: Histograms([]),
        lambda: Histograms([(0, 1)]),
        lambda: Histograms("abc"),
        lambda: Tree(0.0, 8),
        lambda: Tree(0, 8.0),
        lambda: Tree(False, 8),
        lambda: Grid(x=(0, 1, 2), y=(0, 1), shape=(3, 3)),
        lambda: Grid(x=(1, 1), y=(0, 1), shape=(3, 3)),
        lambda: Grid(x=(0, 1), y=(1, 0), shape=(3, 3)),
        lambda: Grid(x=(0, 1), y=(0, 1), shape=(3,)),
        lambda: Sum(1, 1),
        lambda: CountMin(width=3, depth=2, key=KEY.upper()),
        lambda: CountMin(width=3, depth=2, key=KEY[:-1]),
    ],
)
def test_encodings_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_the_first_of_too_many_items_and_points_count_each_once():
    points = [(0.1, 0.1), (0.2, 0.1), (0.9, 0.1), (0.9, 1.9)]
    grid = {"x": (0, 1), "y": (0, 2), "shape": (2, 2), "at_most": 2}
    assert Grid(**grid).encode(points).tolist() == [1, 0, 1, 0]
    assert Visits(**grid).encode(points).tolist() == [2, 0, 0, 0]
    assert Grid(**grid).encode((0.9, 1.9)).tolist() == [0, 0, 0, 1]
    assert Grid(**grid).places(points) == [0, 0, 2, 3]
    assert (
        Pairs(items=4, at_most=2).encode([3, 3, 1, 0]).tolist()
        == Pairs(items=4, at_most=2).encode([1, 3]).tolist()
    )
    sketch = CountMin(width=50, depth=3, key=KEY, at_most=2)
    np.testing.assert_array_equal(sketch.encode([7, 7, 9, 11]), sketch.encode([9, 7]))
    assert sketch.encode([]).sum() == 0


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "Forest"},
        {"kind": ["Tree"]},
        {"kind": "Tree", "low": 0},
        {"kind": "Tree", "low": 0, "high": 8, "fanout": 2, "more": 1},
        {"kind": "Tree", "low": 0, "high": "8", "fanout": 2},
        {"kind": "Grid", "x": 7, "y": [0, 1], "shape": [2, 2], "at_most": 1},
    ],
)
def test_other_json_is_no_encoding(document):
    with pytest.raises(ValueError, match=r"must|has the fields|wrong kind"):
        _form.read(document)


# sketches


def test_hash_functions_are_those_of_the_key_written_out_once_more():
    sketch = CountMin(width=100, depth=5, key=KEY)
    for row in range(5):
        a, b = sketches.coefficients(KEY, "place", row)
        for x in (0, 1, 2**31 - 2):
            assert sketch.places([x])[row, 0] == 100 * row + (a * x + b) % (2**31 - 1) % 100
    assert CountMin(width=100, depth=5, key="00" * 32).places([5]).tolist() != sketch.places([5]).tolist()


@given(st.lists(st.integers(0, 2**31 - 2), max_size=60))
def test_count_min_is_never_too_low_and_merging_is_counting_together(items):
    sketch = CountMin(width=16, depth=3, key=KEY)
    halves = [
        sum((signed(sketch.encode([x])) for x in half), np.zeros(48)) for half in (items[::2], items[1::2])
    ]
    merged = sketch.merge(*halves, encoding=CountMin(width=16, depth=3, key=KEY))
    distinct = sorted(set(items))
    counts = np.array([items.count(x) for x in distinct])
    assert (sketch.estimate(merged, distinct) >= counts).all()
    assert merged.sum() == 3 * len(items)
    with pytest.raises(ValueError, match="same kind, shape and key"):
        sketch.merge(*halves, encoding=CountMin(width=16, depth=3, key="00" * 32))


def test_count_min_is_as_close_as_its_definition_says():
    rng = np.random.default_rng(5)
    items = rng.zipf(1.3, 20_000) % 5_000
    sketch = CountMin.sized(error=0.01, failure=0.01, items=5_000, key=KEY)
    assert (sketch.width, sketch.depth) == (272, 14)
    distinct, counts = np.unique(items, return_counts=True)
    sums = np.zeros(sketch.cells)
    np.add.at(sums, sketch.places(distinct), np.broadcast_to(counts, (sketch.depth, len(distinct))))
    excess = sketch.estimate(sums, distinct) - counts
    assert (excess >= 0).all()
    assert excess.max() <= 0.01 * len(items)


def test_a_count_sketch_is_right_on_average_over_keys():
    errors = []
    for number in range(30):
        sketch = CountSketch(width=8, depth=5, key=f"{number:064x}")
        sums = sum(signed(sketch.encode([x])) for x in range(10, 70)) + 40 * signed(sketch.encode([3]))
        errors.append(sketch.estimate(sums, [3])[0] - 40)
    assert abs(np.mean(errors)) < 1.5
    assert np.std(errors) > 0.5


ROUNDS = 1_000


@pytest.mark.statistical
def test_random_rounding_is_right_on_average_and_towards_zero_is_not():
    """A mean of 1,000 draws lies within six of its deviations, but for a chance of 2e-9."""
    entries = np.array([0.30, -0.72, 0.11])
    vector, number = Vector(cells=3, clip=1.0, grid=16), Sum(0, 15, bits=4)
    draws = np.array([signed(vector.encode(entries)) for _ in range(ROUNDS)])
    tolerance = 6 * 0.5 / math.sqrt(ROUNDS)
    assert np.abs(draws.mean(axis=0) - 16 * entries).max() < tolerance
    assert np.abs(np.trunc(16 * entries) - 16 * entries).max() > tolerance
    assert abs(np.mean([number.encode(6.3)[0] for _ in range(ROUNDS)]) - 6.3) < tolerance


def norms(vector: Vector, entries: np.ndarray, n: int) -> np.ndarray:
    return np.array([(signed(vector.encode(entries)) ** 2).sum() for _ in range(n)])


def test_no_vector_is_longer_than_the_bound_and_rounding_is_what_lengthens():
    # entries of half a step round worst: on this grid nearly every draw is too long, and so towards zero
    cramped = Vector(cells=2_000, clip=1.0, grid=16)
    entries = np.full(2_000, 1.0)
    assert norms(cramped, entries, 20).max() <= cramped.bound**2
    scaled = entries * 16 / math.sqrt(2_000)
    lengths = [(sketches._rounded(scaled, sketches.stream(bytes([k]) * 32)) ** 2).sum() for k in range(20)]
    assert min(lengths) > cramped.bound**2
    roomy = sketches.read({"kind": "Vector", **sketches.SPELLINGS["vector"][1]("2000", "1.0")})
    assert roomy.grid == 64
    assert 0 < norms(roomy, entries, 20).max() <= roomy.bound**2


@pytest.mark.parametrize("length", [0.5, 3.0])
def test_a_long_vector_is_encoded_as_one(length):
    """Shortened by the norm of all entries, and rounded by one stream: written out without blocks."""
    vector, key = Vector(cells=20_001, clip=1.0, grid=256), bytes(range(32))
    entries = np.random.default_rng(0).normal(size=20_001)
    entries *= length / np.linalg.norm(entries)
    scaled = entries * (256 / max(1.0, np.linalg.norm(entries)))
    words = mask(key, size=20_004)[:20_001]  # whole blocks of a cipher
    up = words < (scaled - np.floor(scaled)) * 2.0**32
    np.testing.assert_array_equal(signed(vector.encode(entries, key=key)), np.floor(scaled) + up)


def test_the_price_of_a_vector_is_within_a_hundredth_of_a_gaussian():
    vector = sketches.read({"kind": "Vector", **sketches.SPELLINGS["vector"][1]("100000", "1.0")})
    assert (vector.grid, vector.bound) == (512, 544)
    task = Task(vector, sigma=4_600.0, tally="ab" * 32, noise="tally")
    gaussian = Curve.gaussian(sensitivity=vector.l2, sigma=4_600.0).epsilon(delta=1e-6)
    assert gaussian <= task.mechanism.curve().epsilon(delta=1e-6) <= 1.01 * gaussian


def test_an_encoding_of_another_package_is_registered_once_and_is_named_by_tasks():
    @sketches.registered("coin:HEADS", lambda heads: {"heads": int(heads)})
    @dataclasses.dataclass(frozen=True)
    class Coin(Histogram):
        low: float = 0
        high: float = 2
        cells: int = 2
        heads: int = 1

    try:
        task = Task(Coin(heads=0), sigma=4.0, tally="ab" * 32, noise="tally")
        assert Task.from_json(task.to_json()) == task
        with pytest.raises(ValueError, match="there is an encoding"):
            sketches.registered("histogram:N", dict)(Coin)
    finally:
        del sketches.KINDS["Coin"], sketches.SPELLINGS["coin"]


@every_encoding
def test_invented_people_give_answers_that_an_encoding_takes(encoding, values):
    people = plan.invented(encoding, 20, np.random.default_rng(3))
    assert len(people) == 20
    np.testing.assert_array_equal(plan.invented(encoding, 20, np.random.default_rng(3)), people)
    vectors = [signed(encoding.encode(answer)) for answer in people]
    assert np.abs(vectors).sum() > 0


def test_invented_people_are_spread_as_people_are():
    """20,000 from one seed; each tolerance is five deviations of the mean or more."""
    n, rng = 20_000, np.random.default_rng(11)
    numbers = np.array(plan.invented(Sum(10, 30), n, rng))
    assert np.log((numbers - 10) / 20).mean() == pytest.approx(-1.2, abs=0.03)
    assert np.log((numbers - 10) / 20).std() == pytest.approx(0.6, abs=0.02)
    assert (numbers > 30).any()
    for encoding in (Tree(10, 30), Histogram(0, 20, cells=20)):
        whole = plan.invented(encoding, n, rng)
        assert {type(answer) for answer in whole} == {int}
        low = getattr(encoding, "low", 0)
        assert np.mean(whole) == pytest.approx(low + 20 * math.exp(-1.2 + 0.18) - 0.5, abs=0.3)
        assert (max(whole) > 30) if isinstance(encoding, Tree) else (max(whole) == 19)
    wide = plan.invented(Histogram(0, 40, cells=20), n, rng)  # these are no choices
    assert not all(float(answer).is_integer() for answer in wide)
    places = np.array(plan.invented(Grid(x=(0, 1), y=(-10, 10), shape=(2, 2)), n, rng))
    left = places[:, 0] < 0.5
    for side, x in ((left, 0.3), (~left, 0.7)):
        assert side.mean() == pytest.approx(0.5, abs=0.02)
        assert places[side].mean(axis=0) == pytest.approx([x, -10 + 20 * (1 - x)], abs=0.2)
        assert places[side].std(axis=0) == pytest.approx([0.08, 1.6], rel=0.1)
    baskets = plan.invented(Pairs(items=4, at_most=9), 50, rng)
    assert all(sorted(basket) == [0, 1, 2, 3] for basket in baskets)
    items = np.array(plan.invented(Pairs(items=3, at_most=1), n, rng)).ravel()
    assert np.bincount(items) / n == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.02)
    sketched = np.array(plan.invented(CountMin(width=9, depth=2, key=KEY, at_most=2), 500, rng))
    assert (sketched.shape, sketched.max() > 500, sketched.max() < 1000) == ((500, 2), True, True)
    arrows = np.array(plan.invented(Vector(cells=4, clip=2.5, grid=16), 500, rng))
    np.testing.assert_allclose(np.linalg.norm(arrows, axis=1), 2.5)
    assert (arrows.mean(axis=0) > 0.5).all()
    people = plan.invented(Histograms(((0, 4, 4), (10.0, 30.0, 3))), n, rng)
    assert np.array(people)[:, 1].mean() == pytest.approx(10 + 20 * math.exp(-1.2 + 0.18), abs=0.5)
    assert {float(first).is_integer() for first, _ in people} == {True}
    with pytest.raises(ValueError, match="nobody is invented for a _Odd: name a file of answers"):
        plan.invented(_Odd(), 3, rng)


class _Odd:
    """No encoding that people are invented for."""
