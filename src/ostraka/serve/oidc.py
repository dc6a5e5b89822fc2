"""Tokens of an OpenID Connect provider, by which owners of a service prove who they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ostraka.core import check
from ostraka.secure.wire import Late, Line, is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger("ostraka.serve")
# Signatures by public keys only: with a symmetric one, whoever checks a token could also make it.
ALGORITHMS = ("ES256", "ES384", "EdDSA", "PS256", "RS256")
LEEWAY = 30.0  # seconds that the provider's clock may differ from this one
_LOOK = 1.0  # seconds between two looks at whether the keys must be read
_FRESH = 300.0  # seconds after which the keys are read again
_AGAIN = 10.0  # seconds between two readings, however many tokens name an unknown key
_LONGEST = 86_400.0  # seconds for which keys count though the provider does not answer
_SECONDS, _MOST = 5.0, 2**20  # to fetch a document, and its bytes
_CLAIMS = ("aud", "exp", "iat", "iss", "sub")


class Tokens:
    """Check tokens against the public keys of one provider.

    Parameters
    ----------
    issuer : str
        The provider's address, exactly as in its tokens.
    audience : str
        The name under which the provider knows this service.
    keys : str
        The file or address of the provider's key set (JWKS). Empty: as its discovery document says.
    algorithms : sequence of str
        Of signatures; a subset of ``ALGORITHMS``.

    Raises
    ------
    ValueError
        An address that is neither https nor of this machine; an unknown algorithm; no usable key.
    OSError
        The provider does not answer, or the file cannot be read.

    Guarantees
    ----------
    :meth:`subject` returns a name only for a token that a key of the set signed with an algorithm of the
    list, for this issuer and audience, and that has not expired (OpenID Connect Core 1.0, Sec. 3.1.3.7;
    RFC 7519). No message quotes a token.
    """

    def __init__(
        self, *, issuer: str, audience: str, keys: str = "", algorithms: Sequence[str] = ALGORITHMS
    ) -> None:
        self._jwt: Any = check.require("jwt", extra="oidc")
        if not audience:
            raise ValueError("the audience must be the name under which the provider knows this service")
        for name in algorithms:
            check.one_of(algorithms=name, allowed=ALGORITHMS)
        self.issuer, self._audience, self._where = issuer, audience, keys
        self._algorithms = tuple(algorithms)
        self._keys: dict[str, Any] = {}
        self._read, self._tried, self._unknown = 0.0, 0.0, False
        self.refresh()

    def refresh(self) -> None:
        """Read the key set. After an error the old keys stay, for a day at most."""
        self._tried = time.monotonic()
        where = self._where
        if not where:
            address = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
            discovery = _document(_fetched(address), address)
            if discovery.get("issuer") != self.issuer:
                raise ValueError(
                    f"the provider at {self.issuer} names another issuer: type it as in its tokens"
                )
            where = str(discovery.get("jwks_uri", ""))
        content = _document(_fetched(where) if "://" in where else Path(where).read_bytes(), where)
        try:
            listed = self._jwt.PyJWKSet.from_dict(content).keys
            keys = {key.key_id or "": key for key in listed if key.algorithm_name in self._algorithms}
        except (AttributeError, TypeError, self._jwt.PyJWTError):
            keys = {}
        if not keys:
            raise ValueError(f"the key set at {where} holds no public key for {', '.join(self._algorithms)}")
        self._keys, self._read, self._unknown = keys, time.monotonic(), False

    def subject(self, token: bytes) -> str | None:
        """The subject of a valid token; None for anything else."""
        if time.monotonic() - self._read > _LONGEST:
            return None
        try:
            head = self._jwt.get_unverified_header(token)
            key = self._keys.get(head.get("kid", ""))
            if key is None:
                self._unknown = True
                return None
            content = self._jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": list(_CLAIMS)},
            )
        except (self._jwt.PyJWTError, TypeError, ValueError):
            return None
        return content["sub"] or None

    async def keep_up(self) -> None:
        """Read the keys again at intervals, and soon after a token that names an unknown one."""
        while True:
            await asyncio.sleep(_LOOK)
            age, pause = time.monotonic() - self._read, time.monotonic() - self._tried
            if pause < _AGAIN or (age < _FRESH and not self._unknown):
                continue
            try:
                await asyncio.to_thread(self.refresh)
            except (OSError, ValueError) as error:
                _LOG.warning(
                    "the keys of the provider of owners' tokens cannot be read (%s): the old ones stay",
                    type(error).__name__,
                    extra={"event": "provider.unavailable"},
                )


def _fetched(url: str) -> bytes:
    """What lies at an address of a server that proves its name, or that is on this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ValueError(f"the provider's keys must come from an https:// address, got {url!r}")
    line = Line(f"{parts.scheme}://{parts.netloc}", direct=False)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    answer = line.ask("GET", path, seconds=_SECONDS, most=_MOST, fresh=True, tries=2)
    if answer.status != 200:
        raise Late(f"status {answer.status} from {parts.netloc}", sent=False)
    return answer.body


def _document(text: bytes, where: str) -> dict[str, Any]:
    """A JSON object, which a file or an address holds."""
    content = None
    with contextlib.suppress(RecursionError, ValueError):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"{where} holds no JSON object")  # noqa: TRY004  (a document, not an argument)
    return content
