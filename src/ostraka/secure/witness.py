"""Kinds of witnesses of a ledger: a process, a row in a second PostgreSQL, objects in a store, a folder.

Each keeps what it was told under the owner's secret, so that neither a witness's operator nor the network can
make up an entry. Whoever operates one can put it back to an older state; that is why there is more than one.
:func:`witness_at` makes one of its address. :class:`Bucket` speaks to stores of objects, as S3 does.
"""

from __future__ import annotations

import base64
import datetime as dt
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from ostraka.core import check, files
from ostraka.core.ledger import sqlite
from ostraka.core.ledger.budget import LedgerError
from ostraka.core.ledger.postgres import CONNECTING, require_tls, shown
from ostraka.core.ledger.witness import Head, successor
from ostraka.secure.rounds import PartyError
from ostraka.secure.wire import Late, Line, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ostraka.core.ledger.witness import Witness

APPLICATION = 0x6F737477  # "ostw" in SQLite's header
PATH = "/v1/head"
_TABLE = "CREATE TABLE head (ledger TEXT PRIMARY KEY, kept BLOB NOT NULL) STRICT"
_REMOTE_TABLE = "CREATE TABLE IF NOT EXISTS ostraka_witness (ledger text PRIMARY KEY, kept bytea NOT NULL)"
_MAC, _MOST = 32, 2**20  # bytes
_PURPOSE = b"ostraka/witness/1\0"
_NEWEST_FIRST = 10**15 - 1
_Record = dict[str, Any]
_FORM = "s3://BUCKET/PREFIX?region=REGION&endpoint=https://…&days=N"
_PLACE = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?")
_KEY = re.compile(rb"<Key>([^<>&]+)</Key>")  # names that this class has made need no entities
_MOST_ANSWER = 2**16  # bytes of an answer
_EXISTS, _ABSENT = {409, 412}, {404}  # another writer is at it, or was first; there is no such object
_LOCK = "x-amz-object-lock-mode"


def witness_at(where: str, secret: bytes) -> Witness:
    """A witness by its address: ``https://…`` (a process), ``postgresql://…``, ``s3://…``, or a folder."""
    if not where:
        raise ValueError("a witness needs an address")
    if len(secret) < 32:
        raise ValueError("the secret of witnesses must have 32 bytes or more from the operating system")
    if where.startswith(("http://", "https://")):
        return RemoteWitness(where, secret)
    if where.startswith(("postgresql://", "postgres://")):
        return PostgresWitness(where, secret)
    if where.startswith("s3://"):
        return ObjectWitness(Bucket(where, os.environ), secret)
    return FolderWitness(where, secret)


class Register:
    """The heads that a witness process keeps, in an SQLite file; it answers messages as a party does.

    Parameters
    ----------
    path : path
        Created if it is missing. It has one process.
    secret : bytes, 32 or more
        Of the owner of the ledgers.

    Guarantees
    ----------
    A head is on stable storage before it is confirmed. After a failed write nothing is confirmed until the
    process is started again. Messages that are not under the secret are refused.
    """

    name, most_bytes = "the witness", _MOST

    def __init__(self, path: str | os.PathLike[str], secret: bytes) -> None:
        self.path, self._secret = os.fspath(path), secret
        self._mutex, self._trouble = threading.Lock(), ""
        with sqlite.explained(self.path), sqlite.OPENING:
            self._db, self._lock = sqlite.open_table(
                self.path, _TABLE, APPLICATION, "file of a witness", alone=True
            )
            self._db.execute("PRAGMA wal_autocheckpoint = 1000")  # one connection: see sqlite.py

    @property
    def answers(self) -> dict[str, Callable[[bytes], bytes]]:
        """Where messages are answered."""
        return {PATH: self.answer}

    def answer(self, sealed: bytes) -> bytes:
        """Remember the head of a sealed message, and return the sealed heads known before and after."""
        try:
            message = _opened(self._secret, sealed)
            head, ledger, instead = Head(*message["head"]), str(message["ledger"]), list(message["instead"])
        except (LookupError, TypeError, ValueError):
            raise PartyError(
                "the message is not under this witness's secret", code="wrong_identity", parties=(self.name,)
            ) from None
        heads = self.tell(ledger, head, instead=instead)
        return _sealed(self._secret, {"heads": heads}, sealed[:_MAC])

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), **_: float) -> list[Head]:
        """As a witness in the process of the ledger, which is for tests and evidence."""
        with self._mutex:
            if self._trouble:
                raise LedgerError(f"{self.path} {self._trouble}")
            self._trouble = "failed while it wrote: start the witness again"
            with sqlite.explained(self.path):
                self._db.execute("BEGIN IMMEDIATE")
                row = self._db.execute("SELECT kept FROM head WHERE ledger = ?", (ledger,)).fetchone()
                record, heads = _updated(self._secret, ledger, row and row[0], head, instead)
                if record is not None:
                    self._db.execute("INSERT OR REPLACE INTO head VALUES (?, ?)", (ledger, record))
                self._db.execute("COMMIT")
            self._trouble = ""
        return heads

    def close(self) -> None:
        """Close the file."""
        with sqlite.OPENING:
            self._trouble = "is closed"
            self._db.close()
            self._lock.close()


class RemoteWitness:
    """A witness process elsewhere (``ostraka ledger witness``), on one kept connection.

    Messages are sealed both ways and bound to each other, so the way there needs no TLS to be believed.
    """

    def __init__(self, url: str, secret: bytes) -> None:
        self._line, self._secret, self.name = Line(url), secret, urlsplit(url).netloc.rpartition("@")[2]

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), seconds: float) -> list[Head]:
        """Ask over HTTP; see :class:`~ostraka.core.ledger.witness.Witness`."""
        nonce = secrets.token_hex(16)
        message = {"ledger": ledger, "head": head, "instead": sorted(instead), "nonce": nonce}
        sealed = _sealed(self._secret, message)
        kind = {"Content-Type": "application/octet-stream"}
        answer = self._line.ask("POST", PATH, sealed, kind, seconds=seconds, most=2 * _MOST, tries=2)
        if answer.status != 200:
            raise Late(f"status {answer.status}", sent=True)
        try:
            heads = _opened(self._secret, answer.body, sealed[:_MAC])["heads"]
            return [Head(int(seq), str(digest), str(total)) for seq, digest, total in heads]
        except (LookupError, TypeError, ValueError):
            raise Late("an answer that is not under the secret", sent=True) from None

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


class PostgresWitness:
    """A row in a PostgreSQL server, which must be another one than the ledger's, and none of its standbys."""

    def __init__(self, where: str, secret: bytes) -> None:
        self._pg: Any = check.require("psycopg", extra="service")
        self._where, self._secret, self.name = where, secret, shown(self._pg, where)
        self._db: Any = None

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), seconds: float) -> list[Head]:
        """Upsert the row; see :class:`~ostraka.core.ledger.witness.Witness`."""
        try:
            if self._db is None:
                require_tls(self._pg, self._where)
                self._notices: list[str] = []
                db = self._pg.connect(self._where, autocommit=True, **CONNECTING)
                db.execute(f"SET lock_timeout = '{seconds}s'")
                db.execute(f"SET statement_timeout = '{seconds}s'")
                db.execute("SET synchronous_commit = on")
                db.execute(_REMOTE_TABLE)
                db.add_notice_handler(lambda notice: self._notices.append(notice.message_primary or ""))
                self._db = db
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (ledger,))
                query = "SELECT kept FROM ostraka_witness WHERE ledger = %s"
                row = self._db.execute(query, (ledger,), binary=True).fetchone()
                record, heads = _updated(self._secret, ledger, row and row[0], head, instead)
                if record is not None:
                    self._db.execute(
                        "INSERT INTO ostraka_witness VALUES (%s, %s) ON CONFLICT (ledger) DO UPDATE "
                        "SET kept = excluded.kept",
                        (ledger, record),
                    )
        except (self._pg.Error, ValueError) as error:
            self.close()
            raise LedgerError(f"the witness {self.name} cannot be used ({type(error).__name__})") from error
        if self._notices:  # such as: committed here, and perhaps on no standby
            self.close()
            raise LedgerError(f"the witness {self.name} did not confirm a commit")
        return heads

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()
        self._db = None


class ObjectWitness:
    """Objects of a store that locks them: each head is one, numbered, and nobody can take it back.

    The first writer of a number wins, so that two programs never both continue from the same head. The store
    keeps all heads that it was told, as evidence, until their lock ends.
    """

    def __init__(self, bucket: Bucket, secret: bytes) -> None:
        self._bucket, self._secret, self.name = bucket, secret, bucket.name
        self._newest: dict[str, tuple[int, Head | None]] = {}  # by ledger: number of the object, and its head
        self._conditional = False  # the store was seen to keep the first of two objects

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), seconds: float) -> list[Head]:
        """Write the next object; see :class:`~ostraka.core.ledger.witness.Witness`."""
        until = time.monotonic() + seconds
        try:
            while True:
                if ledger not in self._newest:
                    self._newest[ledger] = self._read(ledger, until)
                number, before = self._newest.pop(ledger)  # again only after an answer
                after = successor(before, head, instead)
                if after is None or after == before:
                    known = self._bucket.get(_object(ledger, number + 1), seconds=_until(until)) is not None
                else:
                    number += 1
                    name = _object(ledger, number)
                    content = _sealed(self._secret, {"ledger": ledger, "number": number, **after._asdict()})
                    known = not self._bucket.put(name, content, seconds=_until(until))
                    if not known:
                        self._prove(name, content, until)
                if not known:
                    self._newest[ledger] = number, after
                    return _both(before, after)
        except (LookupError, TypeError, ValueError) as error:
            raise LedgerError(f"the witness {self.name} cannot be used ({error})") from None

    def _read(self, ledger: str, until: float) -> tuple[int, Head | None]:
        """The newest object: its number and head."""
        name = self._bucket.first(f"{ledger}/", seconds=_until(until))
        if name is None:
            return 0, None
        content = self._bucket.get(name, seconds=_until(until))
        if content is None:
            raise ValueError(f"{name} has gone")
        record = _opened(self._secret, content)
        if name != _object(ledger, int(record["number"])):
            raise ValueError(f"{name} holds another object's content")
        self._prove(name, content, until)
        return int(record["number"]), _head_of(ledger, record)

    def _prove(self, name: str, content: bytes, until: float) -> None:
        """Once: write an object again, which must be refused, and read it, which shows its lock."""
        if not self._conditional:
            if self._bucket.put(name, content, seconds=_until(until)):
                raise ValueError("it takes a second object of one name, for it ignores If-None-Match")
            self._bucket.get(name, seconds=_until(until))
            self._conditional = True

    def close(self) -> None:
        """Close the connections."""
        self._bucket.close()


class FolderWitness:
    """A file for each ledger, in a folder on another machine's disk, such as a mounted store."""

    def __init__(self, folder: str | os.PathLike[str], secret: bytes) -> None:
        self._folder, self._secret, self.name = Path(folder), secret, os.fspath(folder)

    def tell(self, ledger: str, head: Head, *, instead: Collection[str] = (), **_: float) -> list[Head]:
        """Replace the file durably; see :class:`~ostraka.core.ledger.witness.Witness`."""
        path = self._folder / f"{ledger}.head"
        handle = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                record, heads = _updated(
                    self._secret, ledger, path.read_bytes() if path.exists() else None, head, instead
                )
            except (LookupError, TypeError, ValueError) as error:
                raise LedgerError(f"the witness {path} is damaged ({error})") from None
            if record is not None:
                files.write(path, record, private=True)
        finally:
            os.close(handle)
        return heads

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _sealed(secret: bytes, message: Mapping[str, Any], before: bytes = b"") -> bytes:
    """A message behind its MAC, which also covers the MAC of the message ``before``."""
    body = json.dumps(message, sort_keys=True).encode()
    return hmac.digest(secret, _PURPOSE + before + body, "sha256") + body


def _opened(secret: bytes, sealed: bytes, before: bytes = b"") -> _Record:
    """The message of :func:`_sealed`; ValueError if it is not one of this secret's."""
    mac, body = sealed[:_MAC], sealed[_MAC:]
    if not hmac.compare_digest(mac, hmac.digest(secret, _PURPOSE + before + body, "sha256")):
        raise ValueError("it is not sealed with this secret")
    message: _Record = json.loads(body)
    return message


def _updated(
    secret: bytes, ledger: str, stored: bytes | None, head: Head, instead: Collection[str]
) -> tuple[bytes | None, list[Head]]:
    """What a witness keeps from now on (None: as it is), and the heads known before and after."""
    before = None if stored is None else _head_of(ledger, _opened(secret, stored))
    after = successor(before, head, instead)
    if after is None or after == before:
        return None, _both(before, after)
    return _sealed(secret, {"ledger": ledger, **after._asdict()}), _both(before, after)


def _both(before: Head | None, after: Head | None) -> list[Head]:
    """The heads that a witness knew and knows."""
    return [head for head in dict.fromkeys((before, after)) if head is not None]


def _head_of(ledger: str, record: _Record) -> Head:
    if record["ledger"] != ledger:
        raise ValueError("it is of another ledger")
    return Head(int(record["seq"]), str(record["digest"]), str(record["total"]))


def _object(ledger: str, number: int) -> str:
    """The name of an object, so that the newest is the first in the order of names."""
    return f"{ledger}/{_NEWEST_FIRST - number:015d}"


def _until(moment: float) -> float:
    return max(1e-3, moment - time.monotonic())


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
        status, *_ = self._asked("PUT", self._path(name), seconds, _EXISTS, headers=lock, content=content)
        return status == 200

    def get(self, name: str, *, seconds: float) -> bytes | None:
        """An object, or None. ValueError: it is not locked."""
        status, headers, content = self._asked("GET", self._path(name), seconds, _ABSENT)
        if status in _ABSENT:
            return None
        if headers.get(_LOCK) != "COMPLIANCE":
            raise ValueError(f"{self.name} does not lock what is written: make a bucket with object lock")
        return content

    def first(self, folder: str, *, seconds: float) -> str | None:
        """The name that comes first of those that begin with ``folder``, or None."""
        start = f"{self._prefix}/" if self._prefix else ""
        query = [("list-type", "2"), ("max-keys", "1"), ("prefix", start + folder)]
        *_, content = self._asked("GET", self._root, seconds, query=query)
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
        expected: Collection[int] = (),
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a signed request; status (200, or an expected one), headers and content of the answer."""
        lines = {"host": self._host, **(headers or {})}
        if self._session:
            lines["x-amz-security-token"] = self._session
        who: dict[str, Any] = {"who": self._who, "region": self._region, "now": dt.datetime.now(dt.UTC)}
        complete = signed(method, path, query, lines, content, **who)
        target = f"{path}?{_encoded(query)}" if query else path
        body = content if method == "PUT" else None
        answer = self._line.ask(method, target, body, complete, seconds=seconds, most=_MOST_ANSWER, tries=2)
        if answer.status not in {200, *expected}:
            raise Late(f"status {answer.status}", sent=method == "PUT")
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
