"""Masks and shares, by which values of several owners are added although nobody sees any of them.

A mask is a stream of uint32 that only the holders of a 256-bit key can compute. Shares are Shamir's, of a
256-bit secret: enough of them give it, fewer give nothing.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure.keys import KEY_BYTES, shared_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_BLOCK = 1 << 14  # numbers whose streams are added at once: they stay in the processor's cache
SHARE_BYTES = KEY_BYTES + 1
_PRIME = 2**256 + 297  # the smallest prime above every secret


def mask(key: bytes, *, size: int) -> np.ndarray:
    """The uint32 stream of a 256-bit key: AES-256 in counter mode from zero. A key hides one array, once."""
    return np.frombuffer(stream(key)(4 * size), dtype="<u4")


def add_masks(total: np.ndarray, keys: Iterable[bytes], *, minus: Iterable[bytes] = ()) -> None:
    """Add :func:`mask` of each key to uint32 numbers in place, and subtract those of other keys.

    Examples
    --------
    >>> total, key, other = np.zeros(5, dtype=np.uint32), bytes(32), bytes(range(32))
    >>> add_masks(total, [key], minus=[other])
    >>> bool((total == mask(key, size=5) - mask(other, size=5)).all())
    True
    """
    signed = [(np.add, stream(key)) for key in keys] + [(np.subtract, stream(key)) for key in minus]
    for start in range(0, len(total), _BLOCK):
        part = total[start : start + _BLOCK]
        for change, take in signed:
            change(part, np.frombuffer(take(4 * len(part)), dtype="<u4"), out=part)


def stream(key: bytes) -> Callable[[int], bytes]:
    """A function that returns the next bytes of AES-256 in counter mode from zero. A key is used once."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of a mask must have {KEY_BYTES} bytes, got {len(key)}")
    update = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update
    return lambda size: update(bytes(size))


def pair_mask(
    secret: bytes | X25519PrivateKey, peer_key: str, *, transcript: bytes, pair: tuple[str, str], size: int
) -> np.ndarray:
    """The mask that the holders of both secrets share, for this transcript and this pair of names only."""
    return mask(shared_key(secret, peer_key, transcript=transcript, pair=pair), size=size)


def split(secret: bytes, *, threshold: int, n_shares: int) -> list[bytes]:
    """The shares at the places 1, 2, …, ``n_shares``: a random polynomial of degree ``threshold - 1``."""
    if len(secret) != KEY_BYTES or not 1 <= threshold <= n_shares:
        raise ValueError(f"a secret must have {KEY_BYTES} bytes, and threshold be 1 to {n_shares}")
    coefficients = [secrets.randbelow(_PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "little")
    shares = []
    for place in range(1, n_shares + 1):
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * place % _PRIME
        shares.append(((value + constant) % _PRIME).to_bytes(SHARE_BYTES, "little"))
    return shares


def join(shares: Mapping[int, bytes], *, threshold: int) -> bytes:
    """The secret of ``threshold`` or more shares, by place; ValueError if it cannot be one."""
    if len(shares) < threshold:
        raise ValueError(f"{threshold} shares are needed, got {len(shares)}")
    places = sorted(shares)[:threshold]
    if any(len(shares[place]) != SHARE_BYTES for place in places):
        raise ValueError(f"a share must have {SHARE_BYTES} bytes")
    total = 0
    for place in places:
        above, below = 1, 1
        for peer in places:
            if peer != place:
                above *= peer  # small numbers: their product grows slowly
                below *= peer - place
        weight = above * pow(below, -1, _PRIME)
        total += int.from_bytes(shares[place], "little") * weight
    total %= _PRIME
    if total >= 2 ** (8 * KEY_BYTES):
        raise ValueError("the shares do not belong together")
    return total.to_bytes(KEY_BYTES, "little")


def corrected(shares: Mapping[int, bytes], *, threshold: int) -> bytes:
    """The secret of shares of which at most ``(n_shares - threshold) // 2`` are wrong.

    Shares are a Reed-Solomon code of the secret's polynomial. ValueError where more of them are wrong; then
    the result may also be another secret, so whoever knows a digest of it compares.
    Source: Gao 2003, "A new algorithm for decoding Reed-Solomon codes", doi:10.1007/978-1-4757-3789-9_5.

    Examples
    --------
    >>> shares = dict(enumerate(split(bytes(range(32)), threshold=3, n_shares=7), start=1))
    >>> shares[2], shares[5] = shares[5], bytes(33)
    >>> corrected(shares, threshold=3) == bytes(range(32))
    True
    """
    through, vanishing = [0], [1]  # polynomials by rising degree: through all points, and zero at all places
    for place, share in shares.items():
        gap = int.from_bytes(share, "little") - _value(through, place)
        scale = gap * pow(_value(vanishing, place), -1, _PRIME)
        through = _plus(through, vanishing, scale)
        vanishing = _plus([0, *vanishing], vanishing, -place)
    # Euclid's algorithm, half of the way: each remainder is locator * through, up to multiples of vanishing
    last, remainder, before, locator = vanishing, through, [0], [1]
    while 2 * (len(remainder) - 1) >= len(shares) + threshold:
        quotient, residue = _divided(last, remainder)
        last, remainder = remainder, residue
        turned = before
        for degree, coefficient in enumerate(quotient):
            turned = _plus(turned, [0] * degree + locator, -coefficient)
        before, locator = locator, turned
    polynomial, residue = _divided(remainder, locator)
    if any(residue) or len(polynomial) > threshold or not polynomial[0] < 2 ** (8 * KEY_BYTES):
        raise ValueError("too many shares are wrong")
    return polynomial[0].to_bytes(KEY_BYTES, "little")


def _value(polynomial: list[int], at: int) -> int:
    total = 0
    for coefficient in reversed(polynomial):
        total = (total * at + coefficient) % _PRIME
    return total


def _plus(first: list[int], second: list[int], scale: int) -> list[int]:
    """``first + scale * second``, without leading zeros."""
    size = max(len(first), len(second))
    padded = (values + [0] * (size - len(values)) for values in (first, second))
    total = [(a + scale * b) % _PRIME for a, b in zip(*padded, strict=True)]
    while len(total) > 1 and not total[-1]:
        total.pop()
    return total


def _divided(numerator: list[int], denominator: list[int]) -> tuple[list[int], list[int]]:
    """Quotient and remainder of polynomials."""
    quotient, inverse = [0] * max(1, len(numerator) - len(denominator) + 1), pow(denominator[-1], -1, _PRIME)
    while len(numerator) >= len(denominator) and any(numerator):
        degree = len(numerator) - len(denominator)
        quotient[degree] = numerator[-1] * inverse % _PRIME
        numerator = _plus(numerator, [0] * degree + denominator, -quotient[degree])
    return quotient, numerator
