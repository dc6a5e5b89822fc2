"""Comparison functions: right everywhere, and one holder's half alone looks random."""

import itertools
import os

import numpy as np
import pytest

from ostraka.secure import comparison

EDGES = [0, 1, 30, 31, 32, 33, 2**30 - 1, 2**30, 2**31 - 32, 2**31 - 2, 2**31 - 1]


def shared(alphas, betas, points):
    """Both holders' shares of each point, and the correction words."""
    arrays = [np.array(column, dtype=np.uint64) for column in (alphas, betas, points)]
    random = np.frombuffer(os.urandom(32 * len(arrays[0])), dtype=np.uint64).reshape(2, -1, 2)
    roots, key = np.stack([comparison.seeds(column) for column in random]), os.urandom(16)
    words = comparison.deal(key, roots, arrays[0], arrays[1])
    shares = [
        comparison.evaluate(key, roots[holder], words, arrays[2], second=bool(holder)) for holder in (0, 1)
    ]
    return shares[0], shares[1], words


@pytest.mark.parametrize("bits", [5, 6, 8])
def test_every_point_of_a_small_domain_is_compared_rightly(monkeypatch, bits):
    monkeypatch.setattr(comparison, "BITS", bits)
    monkeypatch.setattr(comparison, "_LEVELS", bits - 5)
    alphas, points = (column.ravel() for column in np.meshgrid(range(2**bits), range(2**bits)))
    for beta in (1, 15) if bits == 8 else range(16):
        first, second, _ = shared(alphas, np.full(len(alphas), beta), points)
        np.testing.assert_array_equal((first + second) % 16, np.where(points < alphas, beta, 0))


@pytest.mark.parametrize("at_once", [comparison._AT_ONCE, 7])
def test_edges_of_the_whole_domain_however_many_are_computed_at_once(at_once, monkeypatch):
    monkeypatch.setattr(comparison, "_AT_ONCE", at_once)
    alphas, points = np.array(list(itertools.product(EDGES, EDGES))).T
    for beta in (1, 15):
        first, second, _ = shared(alphas, np.full(len(alphas), beta), points)
        np.testing.assert_array_equal((first + second) % 16, np.where(points < alphas, beta, 0))


def test_a_changed_word_spoils_the_answer(monkeypatch):
    # planted: the sum of both shares is right only if every level is
    alphas, points = np.full(64, 2**30 + 12345), np.full(64, 2**30)
    deal = comparison.deal

    def spoilt(*arguments):
        words = deal(*arguments)
        words[5, :, 1] ^= np.uint64(1)
        return words

    monkeypatch.setattr(comparison, "deal", spoilt)
    first, second, _ = shared(alphas, np.ones(64), points)
    assert ((first + second) % 16 != 1).any()
