"""Secrets that a hardware module makes from a key that never leaves it (PKCS #11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from ostraka.core import check

SCHEME = "pkcs11:"
_PURPOSE = b"ostraka/secret/1\0"
_NAMES = {"token", "object", "module-path", "pin-source"}
_FORM = "pkcs11:token=TOKEN;object=KEY?module-path=/usr/lib/….so&pin-source=/path/of/the/pin"


def derived(uri: str, purpose: str) -> bytes:
    """A 256-bit secret for one purpose: HMAC-SHA256 of its name under a key of the module.

    Parameters
    ----------
    uri : str
        Token, label of the key, the module's library and a file with the PIN, as in RFC 7512. The key must be
        a secret one that may sign.
    purpose : str
        The name of the variable; other purposes of the same key get other secrets.

    Raises
    ------
    ValueError
        The address has another form, or the module does not do it. No message holds the PIN.
    """
    token, key, module, pin = _parts(uri)
    pkcs11: Any = check.require("pkcs11", extra="pkcs11")
    try:
        with pkcs11.lib(module).get_token(token_label=token).open(user_pin=pin) as session:
            held = session.get_key(object_class=pkcs11.ObjectClass.SECRET_KEY, label=key)
            if not held[pkcs11.Attribute.SIGN]:
                raise ValueError(f"the key {key!r} of {token!r} may not sign")
            mac = held.sign(_PURPOSE + purpose.encode(), mechanism=pkcs11.Mechanism.SHA256_HMAC)
    except (pkcs11.PKCS11Error, RuntimeError) as error:
        kind = type(error).__name__
        raise ValueError(f"the module made no secret from the key {key!r} of {token!r} ({kind})") from None
    return bytes(mac)


def _parts(uri: str) -> tuple[str, str, str, str | None]:
    """Token, key, library and PIN of an address."""
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    pairs = [part.partition("=")[::2] for part in path.split(";")] + parse_qsl(query)
    parts = {name: unquote(value) for name, value in pairs}
    if not {"token", "object", "module-path"} <= set(parts) <= _NAMES or len(parts) < len(pairs):
        raise ValueError(f"the address of a key must be {_FORM}")
    source = parts.get("pin-source", "").removeprefix("file:")
    try:
        pin = Path(source).read_text(encoding="utf-8").strip() if source else None
    except (OSError, UnicodeError) as error:
        raise ValueError(f"the file of the PIN cannot be read ({type(error).__name__})") from None
    return parts["token"], parts["object"], parts["module-path"], pin
