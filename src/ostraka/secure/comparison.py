"""Distributed comparison functions: two holders share the bit "below the secret point", modulo 16.

Boyle et al. 2021, "Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation" (Eurocrypt),
Fig. 3; the last five levels are one block of 32 leaves of four bits. Each holder has a seed of its own. The
correction words are the same for both and, to whoever lacks one of the seeds, look random.
The generator is AES-128 with a public key for each computation, used as AES(x) xor x (Guo et al. 2020,
"Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers"); seeds have 120 bits, and the
eight bits beside them say which child is asked.

A block is two uint64. Its lowest byte holds the bits that go with a seed, the other 15 bytes the seed. The
compiled loops pass over the instances once for each level of the tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

BITS = 31  # of the points that are compared
MODULUS = 16  # of the shared bits, which are added before they are looked at
_LEVELS = BITS - 5
WORD_BYTES = 16 * (_LEVELS + 1)  # of the correction words of one comparison
_AT_ONCE = 4096  # instances whose blocks stay in the processor's cache
_LEAF = np.uint64(2)
_SEED = np.uint64(0xFFFFFFFFFFFFFF00)
_ONE, _LOW, _FOUR = np.uint64(1), np.uint64(15), np.uint64(4)


def seeds(stream: np.ndarray) -> np.ndarray:
    """Seeds, uint64 of shape (n, 2), of random blocks: the lowest byte is left free."""
    blocks = stream.reshape(-1, 2).copy()
    blocks[:, 0] &= np.uint64(0xFFFFFFFFFFFFFF00)
    return blocks


def deal(key: bytes, roots: np.ndarray, alphas: np.ndarray, betas: np.ndarray) -> np.ndarray:
    """Correction words, uint64 of shape (levels + 1, n, 2), for the seeds (2, n, 2) of both holders.

    The holders' shares of point x add up, modulo 16, to ``betas`` where x < ``alphas``, and to 0 elsewhere.
    """
    n, encrypt = len(alphas), _cipher(key)
    words = np.empty((_LEVELS + 1, n, 2), dtype=np.uint64)
    for start in range(0, n, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        points, payloads, corrections = alphas[part], betas[part], words[:, part]
        blocks = np.repeat(roots[:, None, part], 2, axis=1)
        blocks[:, 1, :, 0] |= np.uint64(1)
        size = len(points)
        hashed, path = _room(blocks), np.zeros(size, dtype=np.uint64)
        bits = np.stack([np.zeros(size, dtype=np.uint64), np.ones(size, dtype=np.uint64)])
        for level in range(_LEVELS):
            encrypted = encrypt(blocks, hashed)
            shift = np.uint64(BITS - 1 - level)
            deal_level(blocks, encrypted, bits, path, corrections[level], points, payloads, shift)
        last = np.ascontiguousarray(blocks[:, 0])
        last[:, :, 0] |= _LEAF
        leaves(last, encrypt(last, hashed), bits, path, corrections[_LEVELS], points, payloads)
    return words


def evaluate(
    key: bytes, roots: np.ndarray, words: np.ndarray, points: np.ndarray, *, second: bool
) -> np.ndarray:
    """One holder's shares at each point, uint8 below 16; ``second``: the seeds are the second holder's."""
    shares, encrypt = np.empty(len(points), dtype=np.uint8), _cipher(key)
    sign = np.uint64(2**64 - 1 if second else 1)
    for start in range(0, len(points), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        some, corrections = points[part], words[:, part]
        blocks, sums = roots[part].copy(), np.zeros(len(some), dtype=np.uint64)
        blocks[:, 0] |= (some >> np.uint64(BITS - 1)) & np.uint64(1)
        hashed, bits = _room(blocks), np.full(len(some), second, dtype=np.uint64)
        for level in range(_LEVELS):
            encrypted = encrypt(blocks, hashed)
            shift = np.uint64(BITS - 2 - level)
            advance(blocks, encrypted, bits, sums, corrections[level], some, shift, sign)
        blocks[:, 0] = (blocks[:, 0] & ~np.uint64(1)) | _LEAF
        opened_leaf(blocks, encrypt(blocks, hashed), bits, sums, corrections[_LEVELS], some, sign)
        shares[part] = sums
    return shares


def _room(blocks: np.ndarray) -> np.ndarray:
    """Memory for as many encrypted blocks; the library wants one to spare."""
    return np.empty(blocks.size + 2, dtype=np.uint64)


def _cipher(key: bytes) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Encrypts the blocks of one array into another's memory."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    update = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update_into  # noqa: S305  (a permutation)

    def encrypt(blocks: np.ndarray, room: np.ndarray) -> np.ndarray:
        update(blocks.view(np.uint8).data, room.view(np.uint8).data)
        return room[: blocks.size].reshape(blocks.shape)

    return encrypt


@kernel("u8[:,::1], u8[:,::1], u8[::1], u8[::1], u8[:,::1], u8[::1], u8, u8")
def advance(blocks, hashed, bits, sums, words, points, shift, sign):
    """One level of an evaluation: follow each point's bit, and prepare the blocks of the next level.

    ``hashed`` is what the blocks became when they were encrypted; ``blocks`` are overwritten.
    """
    for i in range(len(bits)):
        low = hashed[i, 0] ^ blocks[i, 0]
        high = hashed[i, 1] ^ blocks[i, 1]
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
        blocks[i, 0] = (low & _SEED) | ((points[i] >> shift) & _ONE)
        blocks[i, 1] = high


@kernel("u8[:,::1], u8[:,::1], u8[::1], u8[::1], u8[:,::1], u8[::1], u8")
def opened_leaf(blocks, hashed, bits, sums, words, points, sign):
    """The last step of an evaluation: the four bits of the leaf, of 32 in a block."""
    for i in range(len(bits)):
        leaf = points[i] & np.uint64(31)
        half = leaf >> _FOUR
        place = (leaf & _LOW) << np.uint64(2)
        block = hashed[i, half] ^ blocks[i, half]
        value = (block >> place) & _LOW
        if bits[i]:
            value += (words[i, half] >> place) & _LOW
        sums[i] = (sums[i] + value * sign) & _LOW


@kernel("u8[:,:,:,::1], u8[:,:,:,::1], u8[:,::1], u8[::1], u8[:,::1], u8[::1], u8[::1], u8")
def deal_level(blocks, hashed, bits, path, words, alphas, betas, shift):
    """One level of a deal: the correction word of each instance, and both holders' next blocks.

    ``blocks`` has shape (2 holders, 2 sides, n, 2) and ``bits`` (2 holders, n); ``path`` is what the
    holders' sums differ by along the secret path so far.
    """
    for i in range(len(path)):
        keep = np.int64((alphas[i] >> shift) & _ONE)
        lose = 1 - keep
        low0 = hashed[0, lose, i, 0] ^ blocks[0, lose, i, 0]
        low1 = hashed[1, lose, i, 0] ^ blocks[1, lose, i, 0]
        word_low = (low0 ^ low1) & _SEED
        word_high = (
            hashed[0, lose, i, 1] ^ blocks[0, lose, i, 1] ^ hashed[1, lose, i, 1] ^ blocks[1, lose, i, 1]
        )
        kept0 = hashed[0, keep, i, 0] ^ blocks[0, keep, i, 0]
        kept1 = hashed[1, keep, i, 0] ^ blocks[1, keep, i, 0]
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
            low = hashed[holder, keep, i, 0] ^ blocks[holder, keep, i, 0]
            high = hashed[holder, keep, i, 1] ^ blocks[holder, keep, i, 1]
            bit = low & _ONE
            if bits[holder, i]:
                low ^= word_low
                high ^= word_high
                bit ^= kept_bit
            bits[holder, i] = bit
            low &= _SEED
            blocks[holder, 0, i, 0], blocks[holder, 0, i, 1] = low, high
            blocks[holder, 1, i, 0], blocks[holder, 1, i, 1] = low | _ONE, high


@kernel("u8[:,:,::1], u8[:,:,::1], u8[:,::1], u8[::1], u8[:,::1], u8[::1], u8[::1]")
def leaves(blocks, hashed, bits, path, words, alphas, betas):
    """The last correction: 32 leaves of four bits, which differ by the payload below the secret point."""
    for i in range(len(path)):
        below = alphas[i] & np.uint64(31)
        for half in range(2):
            first = hashed[0, i, half] ^ blocks[0, i, half]
            second = hashed[1, i, half] ^ blocks[1, i, half]
            word = np.uint64(0)
            for leaf in range(16):
                place = np.uint64(4 * leaf)
                value = (second >> place) - (first >> place) - path[i]
                if np.uint64(16 * half + leaf) < below:
                    value += betas[i]
                if bits[1, i]:
                    value = -value
                word |= (value & _LOW) << place
            words[i, half] = word


@kernel("u8[:,::1], u8[:,::1]")
def multiply(rows, columns):
    """The product of two matrices modulo 2^64."""
    out = np.zeros((rows.shape[0], columns.shape[1]), dtype=np.uint64)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            factor = rows[i, j]
            for k in range(columns.shape[1]):
                out[i, k] += factor * columns[j, k]
    return out
