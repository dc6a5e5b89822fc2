"""A small object store on this machine, with conditional writes and object lock, as S3 has them."""

import contextlib
import datetime as dt
import hashlib
from base64 import b64encode
from urllib.parse import parse_qsl, urlsplit

from ostraka.secure.witness import signed
from tests.threads import Handler, http_server

WHO = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": WHO[0], "AWS_SECRET_ACCESS_KEY": WHO[1]}
REGION = "eu-central-1"
LOCK = ("x-amz-object-lock-mode", "x-amz-object-lock-retain-until-date")


class Store:
    """Objects by path, with their lock. ``ignores``: what the store does not know."""

    def __init__(self, ignores=()):
        self.objects, self.ignores, self.statuses, self.port = {}, set(ignores), [], 0
        self.taken = 412  # what is said of a name that is taken; 409 while another writes it

    @property
    def address(self):
        return f"s3://evidence/heads?region={REGION}&days=30&endpoint=http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def running(*ignores):
    """A store that is served from another thread."""
    store = Store(ignores)

    class Objects(Handler):
        protocol_version = "HTTP/1.1"

        def reply(self):
            self.read() if self.command == "GET" else self.write()

        def read(self):
            parts, query = self.asked()
            content = store.objects.get(parts.path)
            if parts.path == "/evidence":
                names = sorted(name.removeprefix("/evidence/") for name in store.objects)
                names = [name for name in names if name.startswith(query["prefix"])]
                listed = "".join(
                    f"<Contents><Key>{name}</Key></Contents>" for name in names[: int(query["max-keys"])]
                )
                self.answer(200, f"<ListBucketResult>{listed}</ListBucketResult>".encode())
            elif content is None:
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                self.answer(200, *content)

        def write(self):
            parts, _ = self.asked()
            first = parts.path not in store.objects or "if-none-match" in store.ignores
            if not first and self.headers["if-none-match"] == "*":
                self.answer(store.taken, b"")
                return
            lock = {} if "lock" in store.ignores else {name: self.headers[name] for name in LOCK}
            store.objects[parts.path] = self.body, lock
            self.answer(200, b"")

        def asked(self):
            """The parts of the request; it is signed over what arrived, and its digests hold."""
            parts = urlsplit(self.path)
            query = parse_qsl(parts.query)
            self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
            names = self.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
            signed_headers = {"x-amz-content-sha256", "x-amz-date"}
            headers = {name: self.headers[name] for name in names if name not in signed_headers}
            now = dt.datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=dt.UTC)
            again = signed(
                self.command, parts.path, query, headers, self.body, who=WHO, region=REGION, now=now
            )
            assert {name: self.headers[name] for name in again} == again
            assert self.headers["host"] == f"127.0.0.1:{store.port}"
            if self.command == "PUT":
                md5 = hashlib.md5(self.body, usedforsecurity=False).digest()
                assert self.headers["content-md5"] == b64encode(md5).decode()
            return parts, dict(query)

        def answer(self, status, content, headers=()):
            super().answer(store.statuses.pop() if store.statuses else status, content, headers)

    with http_server(Objects) as store.port:
        yield store
