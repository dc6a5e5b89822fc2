"""API keys: 256 random bits, shown once, stored as an HMAC under a pepper that is not on disk.

Secrets come from the environment, from a command, or from a hardware module (PKCS #11), which makes them from
a key that never leaves it.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hmac
import json
import os
import re
import secrets
import shlex
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ostraka.core import check, files
from ostraka.core.randomness import Keyed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ostraka.core.ledger.ledger import Ledger

PEPPER = "OSTRAKA_PEPPER"
CHECK = "pepper.check"  # beside the keys
CLIENT, OWNER = "client", "owner"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUBJECT = re.compile(r"[!-~]{0,255}")  # one word, as it stands in the ledger's notes
_KEY = re.compile(rb"ostraka_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NUMBER, _MAC = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9a-f]{64}")  # of a key, in the file
_NOBODY = bytes(32)
_COMMAND_SECONDS = 30.0
ITSELF = "service"  # the account of the service's own entries, which no holder may have
SCHEME = "pkcs11:"
_PURPOSE = b"ostraka/secret/1\0"
_NAMES = {"token", "object", "module-path", "pin-source"}
_FORM = "pkcs11:token=TOKEN;object=KEY?module-path=/usr/lib/….so&pin-source=/path/of/the/pin"


@dataclass(frozen=True, slots=True)
class Holder:
    """The person or program a key belongs to. A request's account is this name, never part of its body.

    ``subject``: as a provider's token named an owner; empty for a key.
    """

    name: str
    role: str
    subject: str = ""

    @property
    def actor(self) -> str:
        """The holder in the ledger's notes: one word, with the subject in brackets."""
        return f"{self.name}[{self.subject}]" if self.subject else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """A holder's entry in the file: the HMAC of each valid key, and the cap that the ledger grants.

    ``by`` stands in the ledger beside what was changed. ``epsilon`` is None for owners, and for clients whose
    cap was set by ``ostraka ledger grant``. ``subject`` is an owner's, in the tokens of a provider.
    """

    role: str
    epsilon: float | None
    keys: dict[str, str]
    by: str = ""  # who changed it last
    subject: str = ""

    def __post_init__(self) -> None:
        check.one_of(role=self.role, allowed=(CLIENT, OWNER))
        if self.epsilon is not None:
            check.positive(epsilon=self.epsilon)
            if self.role == OWNER:
                raise ValueError("epsilon must not be given for an owner, who cannot ask for labels")
        for number, mac in self.keys.items():
            if not (_NUMBER.fullmatch(number) and _MAC.fullmatch(mac)):
                raise ValueError("keys must have numbers of 12 hexadecimal digits, and an HMAC each")
        if not self.by.isprintable():
            raise ValueError(f"by must be a printable name, got {self.by!r}")
        if self.subject and self.role != OWNER:
            raise ValueError("subject must be an owner's: clients have keys")
        if not _SUBJECT.fullmatch(self.subject):
            raise ValueError("subject must be at most 255 letters, digits and signs of ASCII, without spaces")


class Keyring:
    """The file of keys. Without the pepper its content does not let anyone use a key.

    Beside it lies a check value of the pepper, which does not tell the pepper.

    Raises
    ------
    ValueError
        The pepper is not the one that these keys were made with, or the file is not as it was written.
    """

    def __init__(self, path: Path, pepper: bytes) -> None:
        self._path, self._keyed = path, Keyed(pepper)
        self._check = path.with_name(CHECK)
        if self._check.exists() or not path.exists():
            value = self._keyed(b"ostraka/pepper/1\x00").hex().encode()
            if not hmac.compare_digest(files.create(self._check, value), value):
                raise ValueError(
                    f"{PEPPER} is not the one that the keys beside {self._check} were made with, so no key "
                    "would be valid: load it from where it was kept when the service was set up. To begin "
                    f"with another, remove {self._check.name} and {self._path.name}, and hand out new keys"
                )
        self._stamp: tuple[int, int] | None = None
        self._holders: dict[bytes, tuple[bytes, Holder]] = {}
        self._owners: dict[str, Holder] = {}  # by subject
        self.kept: dict[str, KeyRecord] = {}
        self.readable = True
        self.refresh()

    def refresh(self) -> bool:
        """Read the file if it changed; return whether it did."""
        stamp = None
        with contextlib.suppress(FileNotFoundError):
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns)
        if stamp == self._stamp and self.readable:
            return False
        try:
            records = _read(self._path)
            holders = {
                number.encode(): (bytes.fromhex(mac), Holder(name, record.role))
                for name, record in records.items()
                for number, mac in record.keys.items()
            }
            owners = {
                record.subject: Holder(name, OWNER, record.subject)
                for name, record in records.items()
                if record.subject
            }
        except (OSError, ValueError):
            # the file may end a key: none is valid until it can be read
            self._holders, self._owners, self._stamp, self.readable = {}, {}, None, False
            raise
        self.kept, self._holders, self._owners = records, holders, owners
        self._stamp, self.readable = stamp, True
        return True

    def holder(self, key: bytes) -> Holder | None:
        """The holder of a key, or None. An unknown key takes as long as a wrong one."""
        form = _KEY.fullmatch(key)
        stored, holder = self._holders.get(form[1], (_NOBODY, None)) if form else (_NOBODY, None)
        return holder if hmac.compare_digest(self._mac(key), stored) else None

    def owner(self, subject: str | None) -> Holder | None:
        """The owner whom a provider's tokens call so, or None."""
        return self._owners.get(subject or "")

    def grants(self, ledger: Ledger) -> list[tuple[str, float, str]]:
        """The caps of clients that a ledger does not have: name, epsilon, and who decided it."""
        caps = {account.name: account.cap for account in ledger.accounts()}
        return [
            (name, record.epsilon, record.by)
            for name, record in self.kept.items()
            if record.epsilon is not None and record.epsilon != caps.get(name)
        ]

    def add(
        self, name: str, *, role: str, epsilon: float | None = None, by: str = "", subject: str = ""
    ) -> str:
        """Add a holder; return its first key, which is stored nowhere. An owner with a subject has none."""
        if not _NAME.fullmatch(name) or name == ITSELF:
            raise ValueError(
                f"name must be 1 to 64 letters, digits, '.', '_' or '-', and not {ITSELF!r}, got {name!r}"
            )
        with self._changing() as records:
            if name in records:
                raise ValueError(
                    f"there is a {records[name].role} {name!r} already: type 'keys rotate {name}'"
                )
            records[name] = KeyRecord(role=role, epsilon=epsilon, keys={}, by=by, subject=subject)
            if not subject:
                return self._new(records, name, by)
            for other, record in records.items():
                if other != name and record.subject == subject:
                    raise ValueError(f"the subject {subject!r} is {other!r} already: one person is one owner")
            return ""

    def rotate(self, name: str, *, by: str = "") -> str:
        """Add a key for a holder. Its old keys stay valid until they are revoked."""
        with self._changing() as records:
            _require(records, name)
            return self._new(records, name, by)

    def grant(self, name: str, *, epsilon: float, by: str = "") -> None:
        """Change the cap that the ledger grants a client."""
        with self._changing() as records:
            _require(records, name)
            if records[name].role != CLIENT:
                raise ValueError(f"{name!r} is an {records[name].role}, who has no budget of its own")
            records[name] = replace(records[name], epsilon=epsilon, by=by)

    def revoke(self, name: str, *, number: str | None = None, by: str = "") -> None:
        """Revoke one key of a holder by its number, or all of them and the subject.

        The account stays in the ledger.
        """
        with self._changing() as records:
            _require(records, name)
            ended = set(records[name].keys) if number is None else {number}
            if not ended <= set(records[name].keys):
                raise ValueError(f"{name!r} has no key {number!r}: type 'keys list'")
            valid = {key: mac for key, mac in records[name].keys.items() if key not in ended}
            subject = "" if number is None else records[name].subject
            records[name] = replace(records[name], keys=valid, by=by, subject=subject)

    def _new(self, records: dict[str, KeyRecord], name: str, by: str) -> str:
        number = secrets.token_hex(6)
        key = f"ostraka_{number}_{secrets.token_urlsafe(32)}"
        keys = {**records[name].keys, number: self._mac(key.encode()).hex()}
        records[name] = replace(records[name], keys=keys, by=by)
        return key

    def _mac(self, key: bytes) -> bytes:
        return self._keyed(b"ostraka/key/1\x00" + key)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, KeyRecord]]:
        """Give the file's content for changes and write it back, under a lock."""
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = _read(self._path)
            yield records
            listed = {name: asdict(record) for name, record in records.items()}
            files.write(self._path, json.dumps(listed, indent=2), private=True)
            if os.geteuid() == 0:  # what root writes belongs to the folder's owner, who runs the service
                owner = self._path.parent.stat()
                for path in (self._path, self._check, self._path.with_suffix(".lock")):
                    with contextlib.suppress(FileNotFoundError):
                        os.chown(path, owner.st_uid, owner.st_gid)
        finally:
            os.close(lock)
        self.refresh()


def _read(path: Path) -> dict[str, KeyRecord]:
    try:
        listed: dict[str, Any] = json.loads(path.read_bytes())
        return {name: KeyRecord(**fields) for name, fields in listed.items()}
    except FileNotFoundError:
        return {}
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not as 'ostraka keys' writes it ({error}): put a copy of {path.name} back"
        ) from None


def _require(records: dict[str, KeyRecord], name: str) -> None:
    if name not in records:
        raise ValueError(f"there is no holder {name!r}: type 'keys list', or 'keys add {name}'")


def bearer(headers: dict[bytes, bytes]) -> bytes:
    """The key of a request: a bearer token, or the password of basic authentication (a browser's)."""
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return credentials.strip()
    if scheme.lower() == b"basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(credentials, validate=True).partition(b":")[2]
    return b""


def secret_in(environment: Mapping[str, str], variable: str) -> bytes | None:
    """The secret of a variable: 64 or more hexadecimal digits, or ``exec:COMMAND`` that prints them.

    The command is run without a shell and without secrets of ostraka in its environment. It may ask a key
    management service: any that has a command line. ``pkcs11:…`` makes the secret in a hardware module, see
    :func:`secret_of_module`.

    Returns
    -------
    bytes, 32 or more, or None
        None: there is no such variable.

    Raises
    ------
    ValueError
        The command fails or takes longer than half a minute, the module has no such key, or it is no
        such secret.
    """
    written = environment.get(variable)
    if written is None:
        return None
    if written.startswith(SCHEME):
        try:
            return secret_of_module(written, variable)
        except ValueError as error:
            raise ValueError(f"{variable}: {error}") from None
    command = written.removeprefix("exec:")
    if command != written:
        plain = {name: value for name, value in environment.items() if not name.startswith("OSTRAKA_")}
        try:
            done = subprocess.run(  # noqa: S603  (the owner's own command)
                shlex.split(command), env=plain, capture_output=True, check=True, timeout=_COMMAND_SECONDS
            )
        except (IndexError, OSError, subprocess.SubprocessError, ValueError) as error:
            raise ValueError(f"the command of {variable} failed ({type(error).__name__})") from None
        written = done.stdout.decode("ascii", "replace").strip()
    try:
        secret = bytes.fromhex(written)
    except ValueError:
        secret = b""
    if len(secret) < 32:
        raise ValueError(
            f"{variable} must be 64 or more hexadecimal digits, as openssl rand -hex 32 prints them, "
            "exec: and a command that prints them, or pkcs11: and the address of a key"
        )
    return secret


def pepper(environment: Mapping[str, str]) -> bytes:
    """The pepper of the environment, see :func:`secret_in`."""
    secret = secret_in(environment, PEPPER)
    if secret is None:
        raise ValueError(
            f"{PEPPER} must be 64 or more hexadecimal digits in the environment: make it once with "
            "openssl rand -hex 32, keep it in a file, and load it wherever keys are made and where the "
            "service starts (docs/operations.md)"
        )
    return secret


def secret_of_module(uri: str, purpose: str) -> bytes:
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
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    written = [*path.split(";"), *query.split("&")] if query else path.split(";")
    pairs = [part.partition("=")[::2] for part in written]
    parts = {name: unquote(value) for name, value in pairs}
    if not {"token", "object", "module-path"} <= set(parts) <= _NAMES or len(parts) < len(pairs):
        raise ValueError(f"the address of a key must be {_FORM}")
    token, key, source = parts["token"], parts["object"], parts.get("pin-source", "").removeprefix("file:")
    try:
        pin = Path(source).read_text(encoding="utf-8").strip() if source else None
    except (OSError, UnicodeError) as error:
        raise ValueError(f"the file of the PIN cannot be read ({type(error).__name__})") from None
    pkcs11: Any = check.require("pkcs11", extra="pkcs11")
    try:
        with pkcs11.lib(parts["module-path"]).get_token(token_label=token).open(user_pin=pin) as session:
            held = session.get_key(object_class=pkcs11.ObjectClass.SECRET_KEY, label=key)
            if not held[pkcs11.Attribute.SIGN]:
                raise ValueError(f"the key {key!r} of {token!r} may not sign")
            mac = held.sign(_PURPOSE + purpose.encode(), mechanism=pkcs11.Mechanism.SHA256_HMAC)
    except (pkcs11.PKCS11Error, RuntimeError) as error:
        kind = type(error).__name__
        raise ValueError(f"the module made no secret from the key {key!r} of {token!r} ({kind})") from None
    return bytes(mac)
