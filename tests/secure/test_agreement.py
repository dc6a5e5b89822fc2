"""The agreement: one way to write it, and nothing in it that would weaken a round."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from ostraka import GNMax
from ostraka.mechanisms import SkellamMax
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity

KEYS = [Identity.fresh().public_key for _ in range(6)]


def agreement(**changes) -> Agreement:
    members = dict(zip(("ann", "bob", "eve", "joe"), KEYS, strict=False))
    fields = {"members": members, "aggregator": KEYS[4], "classes": [0, 1, 2], "n_features": 4, "sigma": 2.0}
    return Agreement(**{**fields, **changes})


def test_it_comes_back_from_its_json():
    original = agreement(noise="parties", colluding=1, quorum=3, max_rows=7)
    again = Agreement.from_json(original.to_json())
    assert again == original
    assert hash(again) == hash(original)
    assert again.mechanism == SkellamMax(sigma=2.0)
    assert agreement().mechanism == GNMax(sigma=2.0)


def test_the_order_of_members_and_the_types_of_numbers_make_no_difference():
    turned = dict(reversed(agreement().members.items()))
    reordered = agreement(
        members=turned, classes=np.array([2, 0, 1]), sigma=np.float32(2), n_features=np.int64(4)
    )
    assert reordered.sha256 == agreement(quorum=np.int64(4)).sha256 == agreement().sha256


def test_every_field_is_in_the_fingerprint():
    changes = [
        {}, {"aggregator": KEYS[5]}, {"classes": [0, 1]}, {"classes": ["0", "1", "2"]}, {"n_features": 5},
        {"sigma": 2.1}, {"noise": "parties"}, {"quorum": 3}, {"max_rows": 5},
        {"noise": "parties", "colluding": 1},
    ]  # fmt: skip
    assert len({agreement(**change).sha256 for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"members": dict(zip("ab", KEYS, strict=False))}, "3 to"),
        ({"members": dict(zip(["a", "b", "the aggregator"], KEYS, strict=False))}, "names of members"),
        ({"members": dict(zip(["a", "b", ""], KEYS, strict=False))}, "names of members"),
        ({"members": dict.fromkeys("abc", KEYS[0])}, "key of its own"),
        ({"aggregator": KEYS[0]}, "key of its own"),
        ({"aggregator": "xyz"}, "hexadecimal"),
        ({"aggregator": KEYS[4].upper()}, "hexadecimal"),
        ({"classes": [0]}, "2 to 1,000"),
        ({"classes": [0, 0]}, "different"),
        ({"classes": [0, "1"]}, "all whole numbers or all text"),
        ({"classes": [0.0, 1.0]}, "all whole numbers or all text"),
        ({"classes": [True, False]}, "all whole numbers or all text"),
        ({"classes": range(1001)}, "2 to 1,000"),
        ({"n_features": 0}, "n_features"),
        ({"max_rows": 0}, "max_rows"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"noise": "nobody"}, "noise"),
        ({"quorum": 2}, "quorum"),
        ({"quorum": 5}, "quorum"),
        ({"colluding": 1}, "colluding"),
        ({"noise": "parties", "colluding": 4}, "colluding"),
        ({"noise": "parties", "quorum": 3, "colluding": 3}, "colluding"),
        ({"noise": "parties", "sigma": 20_000.0}, "at most"),
        ({"noise": "parties", "sigma": 2_000.0}, "tables too long"),
    ],
)
def test_what_would_not_hold_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        agreement(**change)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: [],
        lambda fields: fields | {"ostraka_agreement": 2},
        lambda fields: fields | {"more": 1},
        lambda fields: {name: value for name, value in fields.items() if name != "sigma"},
        lambda fields: fields | {"members": 7},
        lambda fields: fields | {"sigma": None},
    ],
)
def test_other_files_are_no_agreements(change):
    text = json.dumps(change(json.loads(agreement().to_json())))
    with pytest.raises(ValueError, match=r"agreement|sigma"):
        Agreement.from_json(text)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_no_agreement(text):
    with pytest.raises(ValueError, match="not an agreement of version 1 or 2"):
        Agreement.from_json(text)


def test_each_share_of_noise_is_sized_for_the_fewest_honest_parties():
    assert agreement().share == 0
    assert agreement(noise="parties").share == 4 / 4
    assert agreement(noise="parties", quorum=3).share == 4 / 3
    assert agreement(noise="parties", quorum=3, colluding=2).share == 4  # each alone adds it all


def test_it_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        agreement().sigma = 1.0
    assert replace(agreement(), sigma=3.0).sigma == 3.0
