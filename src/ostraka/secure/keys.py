"""Keys: who signed a message, and streams that two know. All of the parties' cryptography is here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "KEY_BYTES",
    "SIGNATURE_BYTES",
    "agreement_key",
    "mask",
    "new_secret",
    "seal",
    "signing_key",
    "unseal",
]

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_PROTOCOL = b"ostraka/parties/1"


def new_secret() -> bytes:
    """A secret from the operating system: for signing (Ed25519) or for one key agreement (X25519)."""
    return os.urandom(KEY_BYTES)


def signing_key(secret: bytes) -> str:
    """The public Ed25519 key of a secret, hexadecimal."""
    return _signer(secret).public_key().public_bytes_raw().hex()


def agreement_key(secret: bytes) -> str:
    """The public X25519 key of a secret, hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()


def seal(secret: bytes, purpose: str, body: bytes) -> bytes:
    """The body behind a signature that holds for this purpose only."""
    return _signer(secret).sign(_signed(purpose, body)) + body


def unseal(public_key: str, purpose: str, sealed: bytes) -> bytes:
    """The body, if this key signed it for this purpose; ValueError otherwise."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    signature, body = sealed[:SIGNATURE_BYTES], sealed[SIGNATURE_BYTES:]
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(
            signature, _signed(purpose, body)
        )
    except InvalidSignature:
        raise ValueError(f"the signature of the {purpose} is not that of the agreed key") from None
    return body


def mask(secret: bytes, peer_key: str, *, transcript: bytes, pair: tuple[str, str], size: int) -> np.ndarray:
    """The uint32 stream that the holders of both secrets know, for this transcript and pair only.

    X25519, then HKDF-SHA256 salted with the transcript, then AES-256 in counter mode. The key is
    used for this one stream, so the counter may start from zero. The names keep streams apart that
    a dishonest party made share a secret: one key has two spellings.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import (  # noqa: PLC0415
        X25519PrivateKey,
        X25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    # a point of low order makes the library raise ValueError: no secret would be shared
    peer = X25519PublicKey.from_public_bytes(bytes.fromhex(peer_key))
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(peer)
    info = b"\0".join([_PROTOCOL, b"mask", *(name.encode() for name in sorted(pair))])
    key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=transcript, info=info).derive(shared)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * size))
    return np.frombuffer(stream, dtype="<u4")


def _signer(secret: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(secret)


def _signed(purpose: str, body: bytes) -> bytes:
    return b"\0".join([_PROTOCOL, purpose.encode(), body])
