"""The one mask function: a stream of uint32 that only the holders of a 256-bit key can compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ostraka.secure.keys import KEY_BYTES, shared_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

__all__ = ["mask", "pair_mask", "stream"]


def mask(key: bytes, *, size: int) -> np.ndarray:
    """The uint32 stream of a 256-bit key: AES-256 in counter mode from zero. A key hides one array, once."""
    return np.frombuffer(stream(key)(4 * size), dtype="<u4")


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
