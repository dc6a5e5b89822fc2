"""Distributed comparison functions: two holders share the bit "below the secret point", modulo 16.

Boyle et al. 2021, "Function Secret Sharing for Mixed-Mode and Fixed-Point Secure Computation" (Eurocrypt),
Fig. 3; the last five levels are one block of 32 leaves of four bits. Each holder has a seed of its own. The
correction words are the same for both and, to whoever lacks one of the seeds, look random.
The generator is AES-128 with a public key for each computation, used as AES(x) xor x (Guo et al. 2020,
"Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers"); seeds have 120 bits, and the
eight bits beside them say which child is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BITS", "MODULUS", "WORD_BYTES", "deal", "evaluate", "seeds"]

BITS = 31  # of the points that are compared
MODULUS = 16  # of the shared bits, which are added before they are looked at
_LEVELS = BITS - 5
WORD_BYTES = 16 * (_LEVELS + 1)  # of the correction words of one comparison
_AT_ONCE = 4096  # instances whose blocks stay in the processor's cache
_LEAF = np.uint64(2)


def seeds(stream: np.ndarray) -> np.ndarray:
    """Seeds, uint64 of shape (n, 2), of random blocks: the lowest byte is left free."""
    found = stream.reshape(-1, 2).copy()
    found[:, 0] &= np.uint64(0xFFFFFFFFFFFFFF00)
    return found


def deal(key: bytes, roots: np.ndarray, alphas: np.ndarray, betas: np.ndarray) -> np.ndarray:
    """Correction words, uint64 of shape (levels + 1, n, 2), for the seeds (2, n, 2) of both holders.

    The holders' shares of point x add up, modulo 16, to ``betas`` where x < ``alphas``, and to 0 elsewhere.
    """
    n = len(alphas)
    words = np.empty((_LEVELS + 1, n, 2), dtype=np.uint64)
    for start in range(0, n, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        _deal(key, roots[:, part], alphas[part], betas[part], words[:, part])
    return words


def _deal(key: bytes, roots: np.ndarray, alphas: np.ndarray, betas: np.ndarray, words: np.ndarray) -> None:
    from ostraka.secure import _kernels  # noqa: PLC0415  (compiled code, loaded when needed)

    n, encrypt = len(alphas), _cipher(key)
    asked = np.repeat(roots[:, None], 2, axis=1)
    asked[:, 1, :, 0] |= np.uint64(1)
    hashed, path = _room(asked), np.zeros(n, dtype=np.uint64)
    bits = np.stack([np.zeros(n, dtype=np.uint64), np.ones(n, dtype=np.uint64)])
    for level in range(_LEVELS):
        encrypted = encrypt(asked, hashed)
        shift = np.uint64(BITS - 1 - level)
        _kernels.deal_level(asked, encrypted, bits, path, words[level], alphas, betas, shift)
    last = np.ascontiguousarray(asked[:, 0])
    last[:, :, 0] |= _LEAF
    _kernels.leaves(last, encrypt(last, hashed), bits, path, words[_LEVELS], alphas, betas)


def evaluate(
    key: bytes, roots: np.ndarray, words: np.ndarray, points: np.ndarray, *, second: bool
) -> np.ndarray:
    """One holder's shares at each point, uint8 below 16; ``second``: the seeds are the second holder's."""
    shares = np.empty(len(points), dtype=np.uint8)
    for start in range(0, len(points), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        shares[part] = _evaluate(key, roots[part], words[:, part], points[part], second=second)
    return shares


def _evaluate(
    key: bytes, roots: np.ndarray, words: np.ndarray, points: np.ndarray, *, second: bool
) -> np.ndarray:
    from ostraka.secure import _kernels  # noqa: PLC0415

    n, encrypt = len(points), _cipher(key)
    asked, sums = roots.copy(), np.zeros(n, dtype=np.uint64)
    asked[:, 0] |= (points >> np.uint64(BITS - 1)) & np.uint64(1)
    hashed, bits = _room(asked), np.full(n, second, dtype=np.uint64)
    sign = np.uint64(2**64 - 1 if second else 1)
    for level in range(_LEVELS):
        encrypted = encrypt(asked, hashed)
        shift = np.uint64(BITS - 2 - level)
        _kernels.advance(asked, encrypted, bits, sums, words[level], points, shift, sign)
    asked[:, 0] = (asked[:, 0] & ~np.uint64(1)) | _LEAF
    _kernels.opened_leaf(asked, encrypt(asked, hashed), bits, sums, words[_LEVELS], points, sign)
    return sums.astype(np.uint8)


def _room(blocks: np.ndarray) -> np.ndarray:
    """Memory for as many encrypted blocks; the library wants one to spare."""
    return np.empty(blocks.size + 2, dtype=np.uint64)


def _cipher(key: bytes) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Encrypts the blocks of one array into another's memory."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    update = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update_into  # noqa: S305  (a permutation)

    def encrypt(asked: np.ndarray, room: np.ndarray) -> np.ndarray:
        update(asked.view(np.uint8).data, room.view(np.uint8).data)
        return room[: asked.size].reshape(asked.shape)

    return encrypt
