"""Identities, signatures that hold for one purpose, key exchange, and encryption under a key.

Ed25519, X25519 with HKDF, and AES-256-GCM, all of the library ``cryptography``.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ostraka.core import check, files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64
_PROTOCOL = b"ostraka/parties/1"
_FIELD = 2**255 - 19
_LOW_ORDER = {  # u-coordinates of order 1, 2, 4 and 8, on the curve and its twist: RFC 7748, Sec. 7
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    _FIELD - 1,
}


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Identity:
    """The secret that a party, or the aggregator, signs with. It never travels.

    Parameters
    ----------
    secret : bytes, 32
        An Ed25519 secret from the operating system. :meth:`kept_at` makes and keeps one.

    Raises
    ------
    ValueError
        Not 32 bytes.

    Examples
    --------
    >>> Identity.fresh().public_key != Identity.fresh().public_key
    True
    """

    secret: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            raise ValueError(f"secret must be {KEY_BYTES} bytes from the operating system")

    @classmethod
    def fresh(cls) -> Identity:
        """A new one, forgotten with the process."""
        return cls(new_secret())

    @classmethod
    def kept_at(cls, path: str | os.PathLike[str] | Path) -> Identity:
        """The identity of a file that only its owner may read; one is made if there is none.

        ValueError where others may read the file, and so sign in this name; where it holds something else.
        """
        secret = files.create(path, new_secret())
        if os.name == "posix" and Path(path).stat().st_mode & 0o077:
            raise ValueError(f"others may read the secret in {path}: type chmod 600 {shlex.quote(str(path))}")
        try:
            return cls(secret)
        except ValueError as error:
            raise ValueError(f"{path} holds no identity, whose {error}: put a copy of it back") from None

    @property
    def public_key(self) -> str:
        """Hexadecimal; what the others write into the agreement."""
        return signing_key(self.secret)

    def seal(self, purpose: str, body: bytes) -> bytes:
        """The body behind a signature that holds for this purpose only."""
        return seal(self.secret, purpose, body)

    def __repr__(self) -> str:
        return f"Identity(public_key={self.public_key!r})"


class HoldsSecrets:
    """A role that holds secrets: it is not pickled, copied or sent to another process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} does not travel: its secrets stay in its own process")


def new_secret() -> bytes:
    """A secret from the operating system: for signing (Ed25519) or for one key agreement (X25519)."""
    return os.urandom(KEY_BYTES)


def signing_key(secret: bytes) -> str:
    """The public Ed25519 key of a secret, hexadecimal."""
    return _signer(secret).public_key().public_bytes_raw().hex()


def exchange_key(secret: bytes) -> str:
    """The public X25519 key of a secret, hexadecimal."""
    return exchange_secret(secret).public_key().public_bytes_raw().hex()


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


def is_signed(public_key: str, purpose: str, sealed: bytes) -> bool:
    """Whether this key signed the body for this purpose."""
    try:
        unseal(public_key, purpose, sealed)
    except ValueError:
        return False
    return True


def shared_key(
    secret: bytes | X25519PrivateKey,
    peer_key: str,
    *,
    transcript: bytes,
    pair: tuple[str, str],
    purpose: str = "mask",
) -> bytes:
    """The 256-bit key that the holders of both secrets share, for one transcript, pair and purpose.

    X25519, then HKDF-SHA256 salted with the transcript. The names are part of the derivation because one
    X25519 key has two spellings: a dishonest party could otherwise make two pairs share one key.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    # the library raises ValueError for a point of low order, with which no secret would be shared
    peer = X25519PublicKey.from_public_bytes(bytes.fromhex(peer_key))
    exchange = exchange_secret(secret) if isinstance(secret, bytes) else secret
    info = b"\0".join([_PROTOCOL, purpose.encode(), *(name.encode() for name in sorted(pair))])
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=transcript, info=info).derive(
        exchange.exchange(peer)
    )


def derived(secret: bytes, purpose: str) -> bytes:
    """Another 256-bit secret, which tells nothing about this one: HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    info = b"\0".join([_PROTOCOL, b"derived", purpose.encode()])
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def encrypt(key: bytes, body: bytes, *, nonce: bytes = bytes(12)) -> bytes:
    """The body, encrypted and authenticated by AES-256-GCM. A key serves once with each nonce."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key).encrypt(nonce, body, None)


def decrypt(key: bytes, sealed: bytes, *, nonce: bytes = bytes(12)) -> bytes:
    """The body that :func:`encrypt` was given; ValueError if it was changed, or has another key or nonce."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):
        raise ValueError("it is not encrypted with the agreed key, or was changed on the way") from None


def strict_key(key: bytes) -> bool:
    """Whether 32 bytes are an X25519 key in its one spelling (reduced) and not of low order."""
    number = int.from_bytes(key, "little")
    return len(key) == KEY_BYTES and number < _FIELD and number not in _LOW_ORDER


def is_exchange_key(key: object) -> bool:
    """Whether it is an X25519 key in hexadecimal, in its one spelling and not of low order."""
    return check.is_hexadecimal(key) and strict_key(bytes.fromhex(str(key)))


def exchange_secret(secret: bytes) -> X25519PrivateKey:
    """The same secret in the form that computes many shared keys quickly."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey  # noqa: PLC0415

    return X25519PrivateKey.from_private_bytes(secret)


def _signer(secret: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(secret)


def _signed(purpose: str, body: bytes) -> bytes:
    return b"\0".join([_PROTOCOL, purpose.encode(), body])
