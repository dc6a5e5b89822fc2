"""Shamir's secret sharing of 256-bit secrets: enough shares give the secret, fewer give nothing."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ostraka.secure.keys import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHARE_BYTES", "join", "split"]

SHARE_BYTES = KEY_BYTES + 1
_PRIME = 2**256 + 297  # the smallest prime above every secret


def split(secret: bytes, *, threshold: int, n_shares: int) -> list[bytes]:
    """The shares at the places 1, 2, …, ``n_shares``: a random polynomial of degree ``threshold - 1``."""
    if len(secret) != KEY_BYTES or not 1 <= threshold <= n_shares:
        raise ValueError(f"a secret must have {KEY_BYTES} bytes, and threshold be 1 to {n_shares}")
    rest = [secrets.randbelow(_PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "little")
    found = []
    for place in range(1, n_shares + 1):
        value = 0
        for coefficient in rest:
            value = (value + coefficient) * place % _PRIME
        found.append((value + constant) % _PRIME)
    return [value.to_bytes(SHARE_BYTES, "little") for value in found]


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
        for other in places:
            if other != place:
                above *= other  # small numbers: their product grows slowly
                below *= other - place
        weight = above * pow(below, -1, _PRIME)
        total += int.from_bytes(shares[place], "little") * weight
    total %= _PRIME
    if total >= 2 ** (8 * KEY_BYTES):
        raise ValueError("the shares do not belong together")
    return total.to_bytes(KEY_BYTES, "little")
