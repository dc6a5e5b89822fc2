"""Two who hold shares of whole numbers learn which is the largest of each row, and nothing rounds."""

import os

import numpy as np
import pytest

from ostraka.secure.dealer import deal_argmax
from ostraka.secure.masks import stream
from ostraka.secure.two_party import (
    AskerLargest,
    OwnerLargest,
    Sent,
    argmax_pads,
    comparisons,
    levels,
    scaled,
)


def sides(n_rows, n_classes):
    key, asker, holder = os.urandom(16), os.urandom(32), os.urandom(32)
    dealt_material, pads = deal_argmax(key, n_rows, n_classes, asker=asker, owner_key=holder), stream(holder)
    words = levels(dealt_material.words, comparisons(n_rows, n_classes))
    return (
        AskerLargest(
            argmax_pads(stream(asker), Sent(dealt_material.corrections), n_rows, n_classes), key, words
        ),
        OwnerLargest(argmax_pads(pads, pads, n_rows, n_classes), key, words),
    )


def computed(counts, *, last=lambda message: message):
    """Ones at the largest counts, from shares modulo 2^32; ``last`` changes the asker's last message."""
    asker, owner = sides(*counts.shape)
    half = np.frombuffer(os.urandom(4 * counts.size), dtype=np.uint32).reshape(counts.shape)
    theirs = counts.astype(np.int64).astype(np.uint32) - half
    opening = np.frombuffer(asker.opening(scaled(half)), dtype=np.uint64).reshape(counts.shape)
    message = last(asker.wins(owner.compared(scaled(theirs), opening)))
    return asker, owner.ones(message)


@pytest.mark.parametrize("n_classes", [2, 3, 10, 16])
@pytest.mark.parametrize("reach", [1, 40, 2**23])
def test_the_largest_has_the_only_one_and_of_equal_counts_the_first(n_classes, reach):
    counts = np.random.default_rng(0).integers(-reach, reach + 1, (200, n_classes))
    counts[:2] = [[-reach], [reach]]  # all are equal
    counts[2, -1], counts[3, 0] = reach + 1, -reach - 1
    asker, half = computed(counts)
    np.testing.assert_array_equal(half + asker.ones(), np.eye(n_classes)[counts.argmax(axis=1)])


def test_counts_a_number_of_31_bits_apart_are_compared_right():
    counts = np.array([[0, 2**31 - 1], [2**31 - 1, 0], [-(2**30), 2**30 - 1]])
    asker, half = computed(counts)
    assert (half + asker.ones()).argmax(axis=1).tolist() == [1, 0, 1]


def test_a_tampering_asker_gets_ones_and_zeros_only():
    counts = np.random.default_rng(0).integers(-9, 10, (500, 4))
    for shift in range(16):

        def other(message, shift=shift):
            return ((np.frombuffer(message, dtype=np.uint8) + shift) % 16).astype(np.uint8).tobytes()

        asker, half = computed(counts, last=other)
        asker._places = (asker._places + shift) % 16  # it knows what it sent
        assert set(np.unique(half + asker.ones())) <= {0, 1}


def test_messages_of_another_length_are_refused():
    with pytest.raises(ValueError, match="correction words"):
        levels(b"1", 1)
    asker, owner = sides(2, 3)
    asker.opening(np.zeros((2, 3), dtype=np.uint64))
    with pytest.raises(ValueError, match="too short"):
        asker.wins(b"1")
    owner.compared(np.zeros((2, 3), dtype=np.uint64), np.zeros((2, 3), dtype=np.uint64))
    with pytest.raises(ValueError, match="too long"):
        owner.ones(bytes(7))
