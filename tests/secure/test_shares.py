"""Shares: any of them that are enough give the secret, and fewer fit every secret."""

import itertools
import random

import pytest

from ostraka.secure import masks as shares
from ostraka.secure.keys import new_secret


def test_any_threshold_of_them_give_the_secret():
    secret = new_secret()
    pieces = dict(enumerate(shares.split(secret, threshold=3, n_shares=6), start=1))
    for chosen in itertools.combinations(pieces, 3):
        assert shares.join({place: pieces[place] for place in chosen}, threshold=3) == secret
    assert shares.join(pieces, threshold=3) == secret
    for extreme in (bytes(32), b"\xff" * 32):
        parts = dict(enumerate(shares.split(extreme, threshold=2, n_shares=2), start=1))
        assert shares.join(parts, threshold=2) == extreme


def test_one_share_fewer_gives_something_else():
    for threshold in (2, 3, 9):
        secret = new_secret()
        pieces = dict(enumerate(shares.split(secret, threshold=threshold, n_shares=12), start=1))
        for first in range(1, 6):
            subset = {place: pieces[place] for place in range(first, first + threshold - 1)}
            assert shares.join(subset, threshold=threshold - 1) != secret


def test_fewer_than_the_threshold_fit_every_other_secret_equally():
    # two of three shares: for any other secret there is a third share that gives it
    pieces = shares.split(new_secret(), threshold=3, n_shares=3)
    prime = shares._PRIME
    for wanted in (0, 1, 2**255):
        # the value at place 3 of the parabola through (0, wanted) and both shares
        first, second = (int.from_bytes(part, "little") for part in pieces[:2])
        third = (wanted - 3 * first + 3 * second) % prime
        parts = {1: pieces[0], 2: pieces[1], 3: third.to_bytes(33, "little")}
        assert shares.join(parts, threshold=3) == wanted.to_bytes(32, "little")
    with pytest.raises(ValueError, match="3 shares are needed"):
        shares.join({1: pieces[0], 2: pieces[1]}, threshold=3)


def test_shares_are_new_each_time_and_so_are_all_coefficients():
    secret = new_secret()
    assert len({part for _ in range(4) for part in shares.split(secret, threshold=2, n_shares=3)}) == 12


@pytest.mark.parametrize(
    ("secret", "threshold", "n"), [(bytes(4), 1, 2), (bytes(32), 0, 2), (bytes(32), 3, 2)]
)
def test_other_secrets_and_thresholds_are_refused(secret, threshold, n):
    with pytest.raises(ValueError, match="must"):
        shares.split(secret, threshold=threshold, n_shares=n)


def test_shares_of_another_length_or_of_nothing_are_refused():
    pieces = shares.split(new_secret(), threshold=2, n_shares=2)
    with pytest.raises(ValueError, match="33 bytes"):
        shares.join({1: pieces[0], 2: pieces[1][:-1]}, threshold=2)
    high = (2**256 + 5).to_bytes(33, "little")
    with pytest.raises(ValueError, match="belong together"):
        shares.join({1: high, 2: high}, threshold=2)


@pytest.mark.parametrize(("threshold", "n_shares"), [(1, 4), (3, 9), (26, 46), (5, 6)])
@pytest.mark.parametrize("zero", [False, True])
def test_wrong_shares_are_corrected_up_to_half_of_those_to_spare(threshold, n_shares, zero):
    secret, spare = bytes(32) if zero else new_secret(), (n_shares - threshold) // 2
    right = dict(enumerate(shares.split(secret, threshold=threshold, n_shares=n_shares), start=1))
    for number in range(spare + 1):
        wrong = right | {place: new_secret() + b"\0" for place in random.sample(list(right), number)}
        assert shares.corrected(wrong, threshold=threshold) == secret
    wrong = right | {place: new_secret() + b"\0" for place in list(right)[: spare + 1]}
    try:
        assert shares.corrected(wrong, threshold=threshold) != secret
    except ValueError as error:
        assert str(error) == "too many shares are wrong"  # noqa: PT017  (one more may be noticed or not)


def test_one_wrong_share_of_one_more_than_are_needed_is_noticed():
    """No polynomial of the degree goes through all of them, but with the chance 2**-256."""
    right = dict(enumerate(shares.split(new_secret(), threshold=3, n_shares=4), start=1))
    with pytest.raises(ValueError, match="too many shares are wrong"):
        shares.corrected(right | {2: new_secret() + b"\0"}, threshold=3)
