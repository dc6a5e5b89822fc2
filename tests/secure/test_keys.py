"""Keys: a signature holds for one key, one purpose and one body; streams are as their recipe says."""

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ostraka.voters import _keys

PURPOSES = ["call", "reply", "request", "votes"]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_signature_holds_for_its_purpose_only(purpose):
    secret = _keys.new_secret()
    sealed = _keys.seal(secret, purpose, b"body")
    assert _keys.unseal(_keys.signing_key(secret), purpose, sealed) == b"body"
    for other in {*PURPOSES, ""} - {purpose}:
        with pytest.raises(ValueError, match="signature"):
            _keys.unseal(_keys.signing_key(secret), other, sealed)


def test_what_the_key_signed_elsewhere_is_no_message():
    secret = _keys.new_secret()
    bare = Ed25519PrivateKey.from_private_bytes(secret).sign(b"body") + b"body"
    with pytest.raises(ValueError, match="signature of the call"):
        _keys.unseal(_keys.signing_key(secret), "call", bare)


def test_masks_follow_their_recipe():
    """X25519, HKDF-SHA256 as RFC 5869 writes it, AES-256-CTR from zero: written out once more."""
    one, two = _keys.new_secret(), _keys.new_secret()
    transcript = hashlib.sha256(b"round").digest()
    shared = X25519PrivateKey.from_private_bytes(one).exchange(
        X25519PrivateKey.from_private_bytes(two).public_key()
    )
    info = b"ostraka/parties/1\0mask\0ann\0bob"
    key = hmac.digest(hmac.digest(transcript, shared, "sha256"), info + b"\1", "sha256")
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(40))
    for secret, peer, pair in ((one, two, ("ann", "bob")), (two, one, ("bob", "ann"))):
        got = _keys.mask(secret, _keys.agreement_key(peer), transcript=transcript, pair=pair, size=10)
        np.testing.assert_array_equal(got, np.frombuffer(stream, dtype="<u4"))
