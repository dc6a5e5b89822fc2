"""Keys: a signature holds for one key, one purpose and one body; streams are as their recipe says."""

import ast
import hashlib
import hmac
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import ostraka
from ostraka.secure import keys, masks

PURPOSES = ["call", "reply", "request", "votes"]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_signature_holds_for_its_purpose_only(purpose):
    secret = keys.new_secret()
    sealed = keys.seal(secret, purpose, b"body")
    assert keys.unseal(keys.signing_key(secret), purpose, sealed) == b"body"
    for stranger in {*PURPOSES, ""} - {purpose}:
        with pytest.raises(ValueError, match="signature"):
            keys.unseal(keys.signing_key(secret), stranger, sealed)


def test_what_the_key_signed_elsewhere_is_no_message():
    secret = keys.new_secret()
    bare = Ed25519PrivateKey.from_private_bytes(secret).sign(b"body") + b"body"
    with pytest.raises(ValueError, match="signature of the call"):
        keys.unseal(keys.signing_key(secret), "call", bare)


def test_masks_follow_their_recipe():
    """X25519, HKDF-SHA256 as RFC 5869 writes it, AES-256-CTR from zero: written out once more."""
    first, second = keys.new_secret(), keys.new_secret()
    transcript = hashlib.sha256(b"round").digest()
    shared = X25519PrivateKey.from_private_bytes(first).exchange(
        X25519PrivateKey.from_private_bytes(second).public_key()
    )
    info = b"ostraka/parties/1\0mask\0ann\0bob"
    key = hmac.digest(hmac.digest(transcript, shared, "sha256"), info + b"\1", "sha256")
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(40))
    for secret, peer, pair in ((first, second, ("ann", "bob")), (second, first, ("bob", "ann"))):
        got = masks.pair_mask(secret, keys.exchange_key(peer), transcript=transcript, pair=pair, size=10)
        np.testing.assert_array_equal(got, np.frombuffer(stream, dtype="<u4"))


def test_one_function_makes_masks():
    """Stream ciphers, but for that of noise, are in secure/masks.py, and one function makes every mask."""
    root = Path(ostraka.__file__).parent
    words = ("modes.CTR", "ChaCha20(")  # stream ciphers; voters permute rows by blocks, which hides no number
    makers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in words)
    }
    assert makers == {
        "core/randomness.py",
        "secure/masks.py",
    }  # the former draws noise, and nothing of secure/ uses it
    users = [path.name for path in (root / "secure").rglob("*.py") if "randomness" in path.read_text("utf-8")]
    assert users == []
    tree = ast.parse((root / "secure" / "masks.py").read_text(encoding="utf-8"))
    makers = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(word in ast.unparse(node) for word in words)
    ]
    assert makers == ["stream"]


def test_masks_of_long_arrays_are_added_whole():
    rows = np.random.default_rng(0).integers(0, 2**32, size=40_001, dtype=np.uint32)
    total, keyed = rows.copy(), [bytes([number]) * 32 for number in range(3)]
    masks.add_masks(total, keyed[:2], minus=keyed[2:])
    streams = [
        Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * len(rows)))
        for key in keyed
    ]
    added, masked, subtracted = (np.frombuffer(stream, dtype="<u4") for stream in streams)
    np.testing.assert_array_equal(total, rows + added + masked - subtracted)


@pytest.mark.parametrize("size", [0, 4, 16, 31, 33])
def test_a_short_key_masks_nothing(size):
    with pytest.raises(ValueError, match="32 bytes"):
        masks.mask(bytes(size), size=4)


def test_secrets_are_random_in_all_their_bytes():
    # planted: masks from 32 bits of a secret, as a widely used library had them
    octets = np.array([list(keys.new_secret()) for _ in range(64)])
    assert octets.shape == (64, 32)
    assert all(len(set(column.tolist())) > 40 for column in octets.T)  # fails by chance below 1e-20


def test_low_order_and_second_spellings_of_keys_are_recognised():
    field = 2**255 - 19
    assert keys.strict_key(bytes.fromhex(keys.exchange_key(keys.new_secret())))
    for number in (*keys._LOW_ORDER, field, field + 1, field + 9, 2**255 - 1):
        assert not keys.strict_key(number.to_bytes(32, "little"))
    secret = keys.new_secret()
    for number in keys._LOW_ORDER:
        with pytest.raises(ValueError, match="shared key"):
            keys.shared_key(
                secret, number.to_bytes(32, "little").hex(), transcript=bytes(32), pair=("a", "b")
            )
    assert not keys.strict_key(bytes(31))


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_an_identity_is_kept_in_a_file_for_its_owner_only(tmp_path):
    path = tmp_path / "the key"
    identity = keys.Identity.kept_at(path)
    assert keys.Identity.kept_at(path).public_key == identity.public_key
    assert identity.secret.hex() not in repr(identity)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(ValueError, match=r"others may read the secret in .*: type chmod 600 '.*the key'"):
        keys.Identity.kept_at(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match=r"the key holds no identity.* 32 bytes"):
        keys.Identity.kept_at(path)
