"""Objects that are written once: a bucket of an S3-compatible store, with conditions and object lock."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import re
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

from ostraka.secure.wire import Late, Line, is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FORM = "s3://BUCKET/PREFIX?region=REGION&endpoint=https://…&days=N"
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?")
_KEY = re.compile(rb"<Key>([^<>&]+)</Key>")  # names that this class has made need no entities
_MOST = 2**16  # bytes of an answer
_EXISTS = {409, 412}  # another writer is at it, or was first
_LOCK = "x-amz-object-lock-mode"


class Bucket:
    """Objects under a prefix, each written once and kept for a number of days.

    Parameters
    ----------
    address : str
        ``s3://BUCKET/PREFIX``, with ``region``, ``days`` (default 365) and, unless it is that of AWS,
        ``endpoint``.
    environment : mapping of str to str
        Holds ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY`` and, for roles, ``AWS_SESSION_TOKEN``.

    Raises
    ------
    ValueError
        Another form of address, an endpoint in the clear that is not on this machine, or no credentials.

    Guarantees
    ----------
    :meth:`put` writes with ``If-None-Match: *``: the first writer of a name wins, on a store that knows that
    condition. Objects are locked in compliance mode until their day: on a bucket with object lock nobody can
    delete or replace them before, the account's owner included.
    """

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        place, _, query = address.removeprefix("s3://").partition("?")
        options = dict(parse_qsl(query))
        days = options.get("days", "365")
        plain = _PLACE.fullmatch(place) and "region" in options and days.isdecimal() and int(days) > 0
        if not plain or not set(options) <= {"region", "endpoint", "days"}:
            raise ValueError(f"the address of an object store must be {_FORM}")
        region = options["region"]
        parts = urlsplit(options.get("endpoint", f"https://s3.{region}.amazonaws.com"))
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ValueError("the endpoint of an object store must be an https:// address")
        bucket, _, prefix = place.partition("/")
        self.name, self._root, self._prefix = f"s3://{place}", f"/{bucket}", prefix.rstrip("/")
        self._host, self._region, self._days = parts.netloc, region, int(days)
        self._line = Line(f"{parts.scheme}://{parts.netloc}", direct=False)
        try:
            self._who = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
        except KeyError as missing:
            raise ValueError(f"{self.name} needs {missing.args[0]} in the environment") from None
        self._session = environment.get("AWS_SESSION_TOKEN", "")

    def put(self, name: str, content: bytes, *, seconds: float) -> bool:
        """Write an object; return whether its name was free. Late: it is not known whether it was written."""
        until = dt.datetime.now(dt.UTC) + dt.timedelta(days=self._days)
        lock = {
            "content-md5": base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
            "if-none-match": "*",
            _LOCK: "COMPLIANCE",
            "x-amz-object-lock-retain-until-date": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status, *_ = self._asked("PUT", self._path(name), seconds, headers=lock, content=content)
        if status not in {200, *_EXISTS}:
            raise Late(f"status {status}", sent=True)
        return status == 200

    def get(self, name: str, *, seconds: float) -> bytes | None:
        """An object, or None. ValueError: it is not locked."""
        status, headers, content = self._asked("GET", self._path(name), seconds)
        if status == 404:
            return None
        if status != 200:
            raise Late(f"status {status}", sent=False)
        if headers.get(_LOCK) != "COMPLIANCE":
            raise ValueError(f"{self.name} does not lock what is written: make a bucket with object lock")
        return content

    def first(self, folder: str, *, seconds: float) -> str | None:
        """The name that comes first of those that begin with ``folder``, or None."""
        start = f"{self._prefix}/" if self._prefix else ""
        query = [("list-type", "2"), ("max-keys", "1"), ("prefix", start + folder)]
        status, _, content = self._asked("GET", self._root, seconds, query=query)
        if status != 200:
            raise Late(f"status {status}", sent=False)
        key = _KEY.search(content)
        return key[1].decode("ascii").removeprefix(start) if key else None

    def close(self) -> None:
        """Close the connections."""
        self._line.close()

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._root, self._prefix, name) if part)

    def _asked(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        content: bytes = b"",
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a signed request; status, headers and content of the answer."""
        session = {"x-amz-security-token": self._session} if self._session else {}
        complete = signed(
            method,
            path,
            query,
            {"host": self._host, **headers, **session},
            content,
            who=self._who,
            region=self._region,
            now=dt.datetime.now(dt.UTC),
        )
        target = f"{path}?{_encoded(query)}" if query else path
        body = content if method == "PUT" else None
        answer = self._line.insist(method, target, body, complete, seconds=seconds, most=_MOST, tries=2)
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.body


def signed(
    method: str,
    path: str,
    query: Sequence[tuple[str, str]],
    headers: Mapping[str, str],
    content: bytes,
    *,
    who: tuple[str, str],
    region: str,
    now: dt.datetime,
) -> dict[str, str]:
    """The headers of a request and its signature: AWS Signature Version 4, for the service s3.

    ``headers`` have names in small letters; all of them are signed. ``path`` is encoded already.
    """
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(content).hexdigest()
    complete = {**headers, "x-amz-content-sha256": digest, "x-amz-date": moment}
    names = ";".join(sorted(complete))
    lines = [f"{name}:{complete[name].strip()}" for name in sorted(complete)]
    canonical = "\n".join([method, path, _encoded(query), *lines, "", names, digest])
    scope = f"{day}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + who[1].encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"Credential={who[0]}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**complete, "authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _encoded(query: Sequence[tuple[str, str]]) -> str:
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query)
    )
