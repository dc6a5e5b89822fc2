"""Secrets from a hardware module: SoftHSM, which keeps its keys as a module does."""

import hmac
import os
import shutil
import subprocess

import pytest

from ostraka.serve.keys import pepper, secret_in

LIBRARIES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so", "/usr/lib/libsofthsm2.so")
PIN = "2718"
KEY = bytes(range(32))


@pytest.fixture(scope="session")  # a library is opened once in a process, and keeps its first folder
def module(tmp_path_factory):
    """The address of a key in a token of this test's own. The key is known, so that others can compute."""
    pkcs11 = pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed: pip install '.[pkcs11]'")
    library = next(filter(os.path.exists, LIBRARIES), None)
    if library is None or shutil.which("softhsm2-util") is None:
        pytest.skip("SoftHSM is not installed: apt-get install softhsm2")
    folder = tmp_path_factory.mktemp("module")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
    (folder / "pin").write_text(PIN + "\n")
    before, attribute = os.environ.get("SOFTHSM2_CONF"), pkcs11.Attribute
    os.environ["SOFTHSM2_CONF"] = str(folder / "softhsm2.conf")
    try:
        command = f"softhsm2-util --init-token --free --label vault --pin {PIN} --so-pin 31415"
        subprocess.run(command.split(), check=True, capture_output=True)
        with pkcs11.lib(library).get_token(token_label="vault").open(user_pin=PIN, rw=True) as session:
            for label, signs in (("ostraka", True), ("another use", False)):
                session.create_object(
                    {
                        attribute.CLASS: pkcs11.ObjectClass.SECRET_KEY,
                        attribute.KEY_TYPE: pkcs11.KeyType.GENERIC_SECRET,
                        attribute.TOKEN: True,
                        attribute.PRIVATE: True,
                        attribute.SENSITIVE: True,
                        attribute.EXTRACTABLE: False,
                        attribute.SIGN: signs,
                        attribute.LABEL: label,
                        attribute.VALUE: KEY,
                    }
                )
        yield f"pkcs11:token=vault;object=ostraka?module-path={library}&pin-source=file:{folder / 'pin'}"
    finally:
        if before is None:
            del os.environ["SOFTHSM2_CONF"]
        else:
            os.environ["SOFTHSM2_CONF"] = before


def test_the_module_makes_what_anybody_with_its_key_would(module):
    for variable in ("OSTRAKA_PEPPER", "OSTRAKA_LEDGER_SECRET"):
        expected = hmac.digest(KEY, b"ostraka/secret/1\0" + variable.encode(), "sha256")
        assert secret_in({variable: module}, variable) == expected
    assert pepper({"OSTRAKA_PEPPER": module}) != secret_in({"X": module}, "X")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("token=vault", "token=other", "NoSuchToken"),
        ("object=ostraka", "object=other", "NoSuchKey"),
        ("object=ostraka", "object=another%20use", "may not sign"),
        ("module-path=/", "module-path=/nowhere/", "RuntimeError|PKCS11Error"),
        ("pin-source=file:", "pin-source=file:/nowhere", "FileNotFoundError"),
        ("pin-source=", "pin-value=", "must be pkcs11:token="),
        ("object=ostraka", "object=ostraka;object=ostraka", "must be pkcs11:token="),
        ("module-path", "module-name", "must be pkcs11:token="),
    ],
)
def test_a_module_that_makes_none_is_told_without_the_pin(module, old, new, words):
    with pytest.raises(ValueError, match=f"OSTRAKA_PEPPER: .*({words})") as refusal:
        pepper({"OSTRAKA_PEPPER": module.replace(old, new)})
    assert PIN not in str(refusal.value)


def test_a_wrong_pin_is_told_without_it(module, tmp_path):
    wrong = tmp_path / "a+pin"  # a plus is no space in such an address (RFC 7512)
    wrong.write_text("31337")
    address = module.partition("&")[0] + f"&pin-source={wrong}"
    with pytest.raises(ValueError, match="PinIncorrect") as refusal:
        pepper({"OSTRAKA_PEPPER": address})
    assert "31337" not in str(refusal.value)
