"""Two sides compute a model's votes: those of the clear model, and always one for each row."""

import os

import numpy as np
import pytest

from ostraka.secure.dealer import deal_model
from ostraka.secure.masks import stream
from ostraka.secure.two_party import AskerSide, FixedModel, OwnerSide, Sizes, words


def signed(values) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)


def model_of(rng, sizes, *, layers=None):
    """A random model within its bounds, and its scores in whole numbers without bounds."""
    d, h, k = sizes.n_features, sizes.hidden, sizes.n_classes
    if layers is None:
        layers = [
            (rng.integers(-(2**41) // d, 2**41 // d, (d, h or k)), rng.integers(-(2**60), 2**60, h or k))
        ]
        if h:
            layers.append((rng.integers(-(2**30) // h, 2**30 // h, (h, k)), rng.integers(-(2**60), 2**60, k)))

    def scores(rows):
        values = rows.astype(object) @ layers[0][0].astype(object) + layers[0][1].astype(object)
        if h:
            values = np.maximum(values, 0) // 2**32
            values = values @ layers[1][0].astype(object) + layers[1][1].astype(object)
        return values.astype(float)

    return FixedModel(tuple((signed(w), signed(b)) for w, b in layers)), scores


def computed(model, sizes, rows):
    """The votes of both sides together."""
    key, asker, holder, hidden = os.urandom(16), os.urandom(32), os.urandom(32), os.urandom(32)
    pad = words(stream(hidden), sizes.n_rows, sizes.n_features)
    dealt_material = deal_model(key, sizes, question=pad, asker=asker, owner_key=holder)
    owner = OwnerSide(model, holder, sizes)
    side = AskerSide(
        key, asker, sizes, question=pad, words=dealt_material.words, corrections=dealt_material.corrections
    )
    weights = owner.weights()
    owner.take(key, dealt_material.words)
    answer = owner.first(signed(rows) - pad, side.first(weights))
    if sizes.hidden:
        answer = owner.layer(side.layer(answer))
    return owner.votes(side.wins(answer)) + side.votes()


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(300, 7, 0, 2),
        Sizes(100, 64, 0, 10),
        Sizes(100, 3, 0, 16),
        Sizes(100, 20, 8, 3),
        Sizes(40, 64, 64, 10),
    ],
)
def test_votes_are_those_of_the_clear_model(sizes):
    rng = np.random.default_rng(0)
    model, scores = model_of(rng, sizes)
    rows = rng.integers(-(2**20), 2**20 + 1, (sizes.n_rows, sizes.n_features))
    votes = computed(model, sizes, rows)
    np.testing.assert_array_equal(votes.sum(axis=1), 1)
    np.testing.assert_array_equal(votes.argmax(axis=1), scores(rows).argmax(axis=1))


@pytest.mark.parametrize("ahead", [0, 1, 2**31, 2**32 - 1, 2**33])
def test_near_ties_are_still_one_vote(ahead):
    """Three classes within the rounding of each other: a comparison of pairs could go round in a circle."""
    sizes = Sizes(2000, 1, 0, 3)
    layer = np.zeros((1, 3)), np.array([2 * ahead, ahead, 0], dtype=np.int64)[[2, 1, 0]]
    votes = computed(model_of(None, sizes, layers=[layer])[0], sizes, np.zeros((2000, 1)))
    np.testing.assert_array_equal(votes.sum(axis=1), 1)
    assert votes.max() == 1
    if ahead > 2**32:
        assert (votes.argmax(axis=1) == 2).all()
    if ahead == 0:
        assert (votes.argmax(axis=1) == 0).all()


@pytest.mark.parametrize("hidden", [0, 4])
def test_messages_of_another_length_are_refused(hidden):
    sizes = Sizes(2, 3, hidden, 3)
    model, _ = model_of(np.random.default_rng(0), sizes)
    side = OwnerSide(model, bytes(32), sizes)
    with pytest.raises(ValueError, match="correction words"):
        side.take(bytes(16), b"")
    with pytest.raises(ValueError, match="too short"):
        side.first(np.zeros((2, 3), dtype=np.uint64), b"123")
    with pytest.raises(ValueError, match="too long"):
        side.first(np.zeros((2, 3), dtype=np.uint64), bytes(8 * 2 * sizes.first + 1))
    if not hidden:
        with pytest.raises(ValueError, match="no second layer"):
            side.layer(b"")
    assert repr(model) == "FixedModel(private)"
