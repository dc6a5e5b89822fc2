"""The checks at the public border: what passes, what does not, and that messages name the argument."""

import math

import numpy as np
import pytest

from ostraka.core import check as _check

NUMBERS = [1, 0.5, np.float32(2), np.int64(3)]
NO_NUMBERS = ["1", None, True, 1j, [1.0], np.array(1.0)]


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numbers_of_any_library_are_numbers(value):
    _check.positive(sigma=value)
    _check.nonnegative(sigma=value)
    _check.finite(sigma=value)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("check", [_check.positive, _check.nonnegative, _check.finite, _check.integer])
def test_what_is_no_number_is_refused_by_name(check, value):
    with pytest.raises(ValueError, match="sigma must be"):
        check(sigma=value)


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (_check.positive, [0.0, -1, math.nan, math.inf, -math.inf]),
        (_check.nonnegative, [-1e-300, math.nan, -math.inf]),
        (_check.finite, [math.nan, math.inf, -math.inf]),
        (_check.integer, [-1, 0.0, 1.0, math.nan]),
    ],
)
def test_nan_and_what_lies_outside_are_refused(check, bad):
    for value in bad:
        with pytest.raises(ValueError, match="sigma must be"):
            check(sigma=value)


def test_the_edges_that_belong_pass():
    _check.nonnegative(sigma=0.0, mu=math.inf)
    _check.finite(at=-3.0)
    _check.integer(least=2, n=2, m=np.int32(5))
    _check.delta(1e-300)
    _check.one_of(noise="a", allowed=("a", "b"))


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan, "0.1", None, True], ids=repr)
def test_delta_lies_strictly_between_0_and_1(value):
    with pytest.raises(ValueError, match="delta must be > 0 and < 1"):
        _check.delta(value)


@pytest.mark.parametrize(
    ("options", "inside", "outside", "ends"),
    [
        ({}, [1e-300, 0.5], [0.0, 1.0, -1, math.nan, True], "> 0 and < 1"),
        ({"zero": True}, [0, 0.0, 0.5], [-0.1, -1, 1.0, math.nan, False], ">= 0 and < 1"),
        ({"one": True}, [1, 1.0, 0.5], [0.0, 1.1, 2, math.inf, True], "> 0 and <= 1"),
        ({"zero": True, "one": True}, [0.0, 1.0], [-0.1, 1.1, "0.5", None], ">= 0 and <= 1"),
    ],
)
def test_a_share_lies_between_0_and_1(options, inside, outside, ends):
    for value in inside:
        _check.share(**options, part=value)
    for value in outside:
        with pytest.raises(ValueError, match=f"part must be {ends}, got"):
            _check.share(**options, part=value)


@pytest.mark.parametrize(
    "value", ["0f" * 31, "0F" * 32, "0f" * 32 + "\n", "0g" * 32, "٠" * 64, b"0f" * 32, None]
)
def test_a_key_is_64_lower_case_hexadecimal_digits(value):
    assert _check.is_hexadecimal("0f" * 32)
    assert _check.is_hexadecimal("0f" * 64, digits=128)
    assert not _check.is_hexadecimal(value)


def test_an_unknown_word_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="noise must be one of a, b, got 'c'"):
        _check.one_of(noise="c", allowed=("a", "b"))


def test_counts_become_float64_in_c_order():
    counts = _check.counts(np.array([[1, 2], [3, 4], [5, 6]], dtype=np.uint8).T)
    assert counts.dtype == np.float64
    assert counts.flags.c_contiguous
    np.testing.assert_array_equal(counts, [[1, 3, 5], [2, 4, 6]])


def test_counts_that_are_none_are_described_by_shape_or_kind():
    for bad, says in [
        ([[1, math.nan]], r"counts of shape \(1, 2\) must be finite"),
        ([1, 2], r"counts must have shape \(n_queries, n_classes\), got \(2,\)"),
        ([[1], [2]], "counts must have two classes or more, got 1"),
        ([[0] * 1001], "counts must have at most 1,000 classes"),
        ([["one", "two"]], "counts must be numbers, got a list"),
        (np.array([["one", "two"]]), "counts must be numbers, got an array of str_"),
        (np.array([[1j, 2]]), "counts must be numbers, got an array of complex128"),
    ]:
        with pytest.raises(ValueError, match=says):
            _check.counts(bad)


def test_a_missing_library_is_answered_with_the_command_that_brings_it():
    assert _check.require("math", extra="plots") is math
    with pytest.raises(
        ImportError,
        match=r"no_such_library is not installed: pip install 'matplotlib>=[\d.]+', or, .* '\.\[plots\]'",
    ):
        _check.require("no_such_library", extra="plots")


@pytest.mark.parametrize(("n_units", "delta"), [(0, 1e-5), (10_000, 1e-5), (100_000, 1e-6)])
def test_the_usual_delta_is_one_that_the_number_of_units_allows(n_units, delta):
    assert _check.release_delta(None, n_units=n_units) == pytest.approx(delta)
    assert _check.release_delta(delta / 2, n_units=n_units) == delta / 2
