"""Compiled loops of the comparison functions: one pass over the instances for each level of the tree.

A block is two uint64. Its lowest byte holds the bits that go with a seed, the other 15 bytes the seed.
"""

from __future__ import annotations

import numpy as np

from ostraka._compiled import kernel

__all__ = ["advance", "deal_level", "leaves", "multiply", "opened_leaf"]

_SEED = np.uint64(0xFFFFFFFFFFFFFF00)
_ONE, _LOW, _FOUR = np.uint64(1), np.uint64(15), np.uint64(4)


@kernel()
def advance(asked, hashed, bits, sums, words, points, shift, sign):
    """One level of an evaluation: follow each point's bit, and prepare the blocks of the next level.

    ``asked`` are the blocks that were encrypted, ``hashed`` what they became; ``asked`` is overwritten.
    """
    for i in range(len(bits)):
        low = hashed[i, 0] ^ asked[i, 0]
        high = hashed[i, 1] ^ asked[i, 1]
        side = (points[i] >> (shift + _ONE)) & _ONE
        value = (low >> _FOUR) & _LOW
        bit = low & _ONE
        if bits[i]:
            word = words[i, 0]
            low ^= word & _SEED
            high ^= words[i, 1]
            value += (word >> _FOUR) & _LOW
            bit ^= (word >> side) & _ONE
        sums[i] += value * sign
        bits[i] = bit
        asked[i, 0] = (low & _SEED) | ((points[i] >> shift) & _ONE)
        asked[i, 1] = high


@kernel()
def opened_leaf(asked, hashed, bits, sums, words, points, sign):
    """The last step of an evaluation: the four bits of the leaf, of 32 in a block."""
    for i in range(len(bits)):
        leaf = points[i] & np.uint64(31)
        half = leaf >> _FOUR
        place = (leaf & _LOW) << np.uint64(2)
        block = hashed[i, half] ^ asked[i, half]
        value = (block >> place) & _LOW
        if bits[i]:
            value += (words[i, half] >> place) & _LOW
        sums[i] = (sums[i] + value * sign) & _LOW


@kernel()
def deal_level(asked, hashed, bits, path, words, alphas, betas, shift):
    """One level of a deal: the correction word of each instance, and both holders' next blocks.

    ``asked`` is (2 holders, 2 sides, n, 2) blocks, ``bits`` (2 holders, n), ``path`` what the holders' sums
    differ by along the secret path so far.
    """
    for i in range(len(path)):
        keep = np.int64((alphas[i] >> shift) & _ONE)
        lose = 1 - keep
        low0 = hashed[0, lose, i, 0] ^ asked[0, lose, i, 0]
        low1 = hashed[1, lose, i, 0] ^ asked[1, lose, i, 0]
        word_low = (low0 ^ low1) & _SEED
        word_high = (
            hashed[0, lose, i, 1] ^ asked[0, lose, i, 1] ^ hashed[1, lose, i, 1] ^ asked[1, lose, i, 1]
        )
        kept0 = hashed[0, keep, i, 0] ^ asked[0, keep, i, 0]
        kept1 = hashed[1, keep, i, 0] ^ asked[1, keep, i, 0]
        value = (low1 >> _FOUR) - (low0 >> _FOUR) - path[i]
        if keep == 1:  # a point that turns left here is below the secret one
            value += betas[i]
        if bits[1, i]:
            value = -value
        value &= _LOW
        turn = np.uint64(keep)
        lost_bit = (low0 ^ low1) & _ONE  # both holders' bits agree where the path is left,
        kept_bit = (kept0 ^ kept1 ^ _ONE) & _ONE  # and differ along it
        word = word_low | (value << _FOUR) | (lost_bit << np.uint64(lose)) | (kept_bit << turn)
        words[i, 0], words[i, 1] = word, word_high
        path[i] += (kept0 >> _FOUR) - (kept1 >> _FOUR)
        path[i] = (path[i] - value if bits[1, i] else path[i] + value) & _LOW
        for holder in range(2):
            low = hashed[holder, keep, i, 0] ^ asked[holder, keep, i, 0]
            high = hashed[holder, keep, i, 1] ^ asked[holder, keep, i, 1]
            bit = low & _ONE
            if bits[holder, i]:
                low ^= word_low
                high ^= word_high
                bit ^= kept_bit
            bits[holder, i] = bit
            low &= _SEED
            asked[holder, 0, i, 0], asked[holder, 0, i, 1] = low, high
            asked[holder, 1, i, 0], asked[holder, 1, i, 1] = low | _ONE, high


@kernel()
def leaves(asked, hashed, bits, path, words, alphas, betas):
    """The last correction: 32 leaves of four bits, which differ by the payload below the secret point."""
    for i in range(len(path)):
        below = alphas[i] & np.uint64(31)
        for half in range(2):
            one = hashed[0, i, half] ^ asked[0, i, half]
            two = hashed[1, i, half] ^ asked[1, i, half]
            found = np.uint64(0)
            for leaf in range(16):
                place = np.uint64(4 * leaf)
                value = (two >> place) - (one >> place) - path[i]
                if np.uint64(16 * half + leaf) < below:
                    value += betas[i]
                if bits[1, i]:
                    value = -value
                found |= (value & _LOW) << place
            words[i, half] = found


@kernel()
def multiply(left, right):
    """The product of two matrices modulo 2^64."""
    out = np.zeros((left.shape[0], right.shape[1]), dtype=np.uint64)
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            factor = left[i, j]
            for k in range(right.shape[1]):
                out[i, k] += factor * right[j, k]
    return out
