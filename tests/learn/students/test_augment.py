"""Augmentations: what a row may turn into, held against scipy, and by how much at the most."""

import math

import numpy as np
import pytest
import scipy.ndimage
from scipy.stats import binomtest

from tests.false_alarm import FALSE_ALARM

torch = pytest.importorskip("torch", exc_type=ImportError)

from ostraka.learn.students.fixmatch import OPERATIONS  # noqa: E402  (needs torch)
from ostraka.students import ImageAugment, TableAugment  # noqa: E402

SHAPES = [(1, 8, 8), (3, 9, 12), (2, 16, 7)]
IMAGES = {
    shape: torch.rand(40, math.prod(shape), generator=torch.Generator().manual_seed(1)) for shape in SHAPES
}
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


def under(seed, change, rows):
    torch.manual_seed(seed)
    return change(rows)


def photo(shape, **choices):
    return ImageAugment(shape=shape, operations=OPERATIONS, **choices)


@every_shape
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_images_keep_their_shape_and_the_range_of_their_values(shape, padding):
    wide = 8 * IMAGES[shape] - 3
    augment = photo(shape, padding=padding, span=(-3.0, 5.0), fill=-1.0, n_operations=7, flip=True)
    for change in (augment.weak, augment.strong):
        out = under(0, change, wide)
        assert out.shape == wide.shape
        assert out.dtype == torch.float32
        assert out.min() >= -3
        assert out.max() <= 5


@every_shape
def test_at_strength_zero_strong_changes_nothing(shape):
    rows = IMAGES[shape]
    strong = under(0, photo(shape, strength=0.0, n_operations=7).strong, rows)
    torch.testing.assert_close(strong, rows, atol=2e-6, rtol=0)
    torch.testing.assert_close(under(0, photo(shape, shift=0.0).weak, rows), rows, atol=0, rtol=0)


@every_shape
def test_a_seed_repeats_what_another_does_not(shape):
    augment = photo(shape, shift=0.2)
    for change in (augment.weak, augment.strong, TableAugment().weak, TableAugment().strong):
        first, again, reseeded = (under(seed, change, IMAGES[shape]) for seed in (3, 3, 4))
        assert torch.equal(first, again)
        assert not torch.equal(first, reseeded)


@every_shape
def test_every_row_of_a_batch_is_changed_by_itself(shape):
    alike = IMAGES[shape][:1].repeat(200, 1)
    for change in (photo(shape, shift=0.3).weak, photo(shape).strong):
        assert len(torch.unique(under(0, change, alike), dim=0)) > 5


@every_shape
def test_weak_moves_by_whole_pixels_in_every_way_there_is(shape):
    _, height, width = shape
    image = IMAGES[shape][0].numpy().reshape(shape)
    reach = math.floor(0.2 * height), math.floor(0.2 * width)
    ways = {
        scipy.ndimage.shift(image, (0, down, right), order=0, mode="constant", cval=0.25).tobytes()
        for down in range(-reach[0], reach[0] + 1)
        for right in range(-reach[1], reach[1] + 1)
    }
    # the rarest of at most 25 ways is missing from 2,000 with probability below 25 · 0.96^2000 < 1e-30
    out = under(0, ImageAugment(shape=shape, shift=0.2, fill=0.25).weak, IMAGES[shape][:1].repeat(2000, 1))
    rounded = {np.round(np.frombuffer(way, np.float32), 6).tobytes() for way in ways}
    assert {np.round(row, 6).tobytes() for row in out.numpy()} == rounded


@every_shape
@pytest.mark.parametrize("degrees", [-30, 0, 11, 90])
def test_a_rotation_is_that_of_scipy(shape, degrees):
    image = IMAGES[shape][:1].reshape(1, *shape)
    angle = math.radians(degrees)
    turn = torch.tensor([[[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]])
    ours = ImageAugment(shape=shape)._resampled(image, turn, torch.zeros(1, 2), mode="bilinear")[0]
    theirs = scipy.ndimage.rotate(
        image[0].numpy(), degrees, axes=(1, 2), reshape=False, order=1, mode="grid-constant"
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


@every_shape
def test_any_map_and_move_is_that_of_scipy(shape):
    image = IMAGES[shape][:1].reshape(1, *shape)
    matrix, moves = np.array([[0.9, 0.2], [-0.3, 1.1]]), np.array([1.5, -0.7])  # x, y
    ours = ImageAugment(shape=shape, fill=0.5)._resampled(
        image,
        torch.tensor(matrix, dtype=torch.float32)[None],
        torch.tensor(moves, dtype=torch.float32)[None],
        mode="bilinear",
    )[0]
    middle = (np.array(shape[:0:-1]) - 1) / 2  # x, y
    offset = middle - matrix @ (middle + moves)
    for channel in range(shape[0]):
        theirs = scipy.ndimage.affine_transform(
            image[0, channel].numpy(),
            matrix[::-1, ::-1],  # scipy reads rows, columns
            offset=offset[::-1],
            order=1,
            mode="grid-constant",
            cval=0.5,
        )
        np.testing.assert_allclose(ours[channel], theirs, atol=2e-5)


def test_a_flip_mirrors_about_half_of_the_images():
    rows = IMAGES[1, 8, 8][:1].repeat(4000, 1)
    out = under(0, ImageAugment(shape=(1, 8, 8), shift=0.0, flip=True).weak, rows)
    mirrored = rows.reshape(-1, 8, 8).flip(2).flatten(1)
    flipped = (out - mirrored).abs().amax(dim=1) < 1e-6
    unflipped = (out - rows).abs().amax(dim=1) < 1e-6
    assert (flipped ^ unflipped).all()
    assert binomtest(int(flipped.sum()), 4000, 0.5).pvalue > FALSE_ALARM
    assert binomtest(int(flipped.sum()), 4000, 0.6).pvalue < FALSE_ALARM


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_rotations_go_as_far_as_thirty_degrees_times_the_strength(strength):
    dot = torch.zeros(1, 41, 41)
    dot[0, 20, 38] = 1.0
    augment = ImageAugment(shape=(1, 41, 41), operations=("rotate",), n_operations=1, strength=strength)
    on = {"rotate": torch.ones(2000, dtype=torch.bool)}
    torch.manual_seed(0)
    out = augment._moved(dot.repeat(2000, 1, 1, 1), on)[:, 0].numpy()
    y, x = np.mgrid[:41, :41] - 20
    degrees = np.degrees(np.arctan2((out * y).sum((1, 2)), (out * x).sum((1, 2))))
    assert np.abs(degrees).max() < 30 * strength + 1
    assert degrees.max() > 28 * strength  # of 2,000 uniform draws: fails with (29/30)^2000 < 1e-29
    assert degrees.min() < -28 * strength


@every_operation
def test_an_operation_by_itself_changes_images_only_where_it_was_drawn(operation):
    shape = (1, 8, 8)
    augment = ImageAugment(shape=shape, operations=(operation,), n_operations=1)
    images = IMAGES[shape].reshape(-1, *shape)
    on = torch.arange(len(images)) % 2 == 0
    torch.manual_seed(0)
    out = augment._shaded(augment._moved(images, {operation: on}), {operation: on})
    changed = ((out - images).abs().amax(dim=(1, 2, 3)) > 1e-4).numpy()
    assert not changed[~on].any()
    assert changed[on].mean() > 0.9


@pytest.mark.parametrize("strength", [1.0, 0.4])
def test_strong_shades_are_these_formulas_and_a_square_hole(strength):
    """Sohn et al. 2020, table 12, with the draws in their order; values go from -2 to 6."""
    shape, n = (2, 6, 9), 40
    names = ("contrast", "brightness", "posterize", "solarize")
    augment = ImageAugment(
        shape=shape, span=(-2.0, 6.0), fill=1.0, operations=names, n_operations=3, strength=strength
    )
    rows = torch.rand(n, 108, generator=torch.Generator().manual_seed(2)) * 8 - 2
    got = under(5, augment.strong, rows)
    torch.manual_seed(5)
    order = torch.rand(n, 4).argsort(dim=1)
    amount = {
        name: (order[:, place] < 3) * (2 * torch.rand(n, 1) - 1).abs()[:, 0] * strength
        for place, name in enumerate(names)
    }
    centre = torch.rand(3, n, 1)[:, :, 0]
    for k, row in enumerate(rows):
        unit = (row.reshape(shape) + 2) / 8
        mean = unit.mean()
        unit = mean + (unit - mean) * (1 - 0.95 * amount["contrast"][k])
        unit = unit * (1 - 0.95 * amount["brightness"][k])
        if order[k, 2] < 3:
            levels = torch.round(2 ** (8 - 4 * amount["posterize"][k])) - 1
            unit = torch.round(unit * levels) / levels
        unit = torch.where(unit > 1 - amount["solarize"][k], 1 - unit, unit)
        image = unit * 8 - 2
        half, down, right = centre[0, k] * 0.5 * strength * 6 / 2, centre[1, k] * 6, centre[2, k] * 9
        for y in range(6):
            for x in range(9):
                if abs(y + 0.5 - down) < half and abs(x + 0.5 - right) < half:
                    image[:, y, x] = 1.0
        torch.testing.assert_close(got[k], image.flatten(), atol=2e-5, rtol=0)


def test_each_image_gets_as_many_operations_as_were_asked_for():
    shape = (1, 8, 8)
    operations = []

    class Watched(ImageAugment):
        def _moved(self, images, on):
            operations.append(torch.stack(list(on.values())).sum(dim=0))
            return images

    Watched(shape=shape, n_operations=3).strong(IMAGES[shape])
    assert (operations[0] == 3).all()


def test_holes_are_square_and_at_most_half_a_side_wide():
    augment = ImageAugment(shape=(1, 20, 20), operations=(), n_operations=0, fill=0.0)
    holes = under(0, augment.strong, torch.ones(3000, 400)).reshape(-1, 20, 20).numpy() == 0
    down, right = holes.any(axis=2).sum(axis=1), holes.any(axis=1).sum(axis=1)
    assert (holes.sum(axis=(1, 2)) == down * right).all()
    assert down.max() == right.max() == 10
    inside = (~holes[:, [0, -1]].any(axis=(1, 2))) & (~holes[:, :, [0, -1]].any(axis=(1, 2)))
    assert np.abs(down - right)[inside].max() <= 1  # by where the middle lies between pixels


def test_cells_are_swapped_at_the_rate_asked_for_and_within_their_column():
    rows = torch.arange(6000.0).reshape(1000, 6)
    out = under(0, TableAugment(jitter=0.0, swapped=0.3).strong, rows)
    assert (out % 6 == rows % 6).all()
    moved = int((out != rows).sum())
    expected = 0.3 * 999 / 1000  # a cell may be swapped for itself
    assert binomtest(moved, 6000, expected).pvalue > FALSE_ALARM
    assert binomtest(moved, 6000, 0.35).pvalue < FALSE_ALARM
    assert binomtest(moved, 6000, 0.25).pvalue < FALSE_ALARM
    per_row = (out != rows).sum(dim=1)
    assert per_row.min() == 0  # cells are drawn one by one, not whole rows: 0.7^6 of 1,000
    assert per_row.max() < 6


def test_jitter_is_in_units_of_each_column_s_spread():
    rows = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 100.0])
    noise = (under(0, TableAugment(jitter=0.1).weak, rows) - rows).std(dim=0)
    # a standard deviation of 4,000 draws is right to 1.1 %: six sigma
    np.testing.assert_allclose(noise, 0.1 * rows.std(dim=0), rtol=0.07)
    assert torch.equal(TableAugment(jitter=0.0).weak(rows), rows)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (torch.zeros(3, 63), "64 features"),
        (torch.full((3, 64), 255.0), r"within span=\(0.0, 1.0\)"),
        (torch.full((3, 64), math.nan), r"within span"),
    ],
)
def test_rows_that_are_no_such_images_are_refused(rows, says):
    for change in (ImageAugment(shape=(1, 8, 8)).weak, ImageAugment(shape=(1, 8, 8)).strong):
        with pytest.raises(ValueError, match=says):
            change(rows)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"shape": (8, 8)}, "channels, height, width"),
        ({"shape": (1, 0, 8)}, "shape must be an integer >= 1"),
        ({"span": (1.0, 0.0)}, "span must go from low to high"),
        ({"span": (0.0, math.inf)}, "high must be finite"),
        ({"fill": 2.0}, "span must go from low to high"),
        ({"shift": 1.5}, "shift must be >= 0 and <= 1"),
        ({"strength": -0.1}, "strength must be >= 0 and <= 1"),
        ({"strength": math.nan}, "strength must be >= 0 and <= 1"),
        ({"operations": ("twirl",)}, "operations must be one of shift"),
        ({"n_operations": 6}, "at most the 5 operations"),
        ({"padding": "wrap"}, "padding must be one of zeros"),
    ],
)
def test_fields_out_of_range_are_refused(choices, says):
    with pytest.raises(ValueError, match=says):
        ImageAugment(**{"shape": (1, 8, 8), **choices})


def test_fields_of_tables_out_of_range_are_refused():
    for choices in ({"jitter": -1.0}, {"jitter": math.inf}, {"swapped": 1.1}):
        with pytest.raises(ValueError, match=next(iter(choices))):
            TableAugment(**choices)


def test_that_of_photographs_flips_mirrors_the_edges_and_has_every_operation():
    augment = ImageAugment.photos((3, 8, 8), strength=0.5)
    assert augment.flip
    assert augment.padding == "reflection"
    assert augment.operations == OPERATIONS
    assert augment.strength == 0.5
