"""A service under test: a real process on a local port, with a ledger and linear teachers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import resource
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ostraka import Budget, GNMax, Ledger, TeacherEnsemble
from ostraka.consistent import Consistent
from ostraka.serve import server as _server
from ostraka.serve.app import Application
from ostraka.serve.deployment import Deployment, Settings, secret_of
from ostraka.serve.keys import CLIENT, OWNER, Keyring
from ostraka.voters import SavedTeachers
from rigs.finding import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["COLUMNS", "DATABASE", "DESCRIPTORS", "Service", "certify", "running"]

PEPPER = b"p" * 32
DESCRIPTORS, DATABASE = "OSTRAKA_RIG_DESCRIPTORS", "OSTRAKA_RIG_DATABASE"
COLUMNS = ("age", "hours", "weight")
BUDGET = Budget(epsilon=50.0, delta=1e-5)


def prepare(folder: Path, *, sigma: float) -> dict[str, str]:
    """Save teachers and keys; the keys by name."""
    from sklearn.linear_model import LogisticRegression  # the service's own process needs none

    X = np.random.default_rng(0).normal(size=(600, len(COLUMNS))) * 3
    y = np.array(["green", "red", "blue"])[X.argmax(axis=1)]
    ensemble = TeacherEnsemble(LogisticRegression(), n_teachers=20, n_jobs=1, random_state=0)
    numeric = (True,) * len(COLUMNS)
    taught = ensemble.fit(X, y, classes=["green", "red", "blue"])
    SavedTeachers(
        ensemble=taught,
        mechanism=GNMax(sigma=sigma),
        columns=COLUMNS,
        numeric=numeric,
        grid=Consistent.grid_of(X),
    ).save(folder / "teachers")
    (folder / "service").mkdir(mode=0o700)
    ring = Keyring(folder / "service" / "keys.json", PEPPER)
    clients = {name: ring.add(name, role=CLIENT, epsilon=40.0) for name in ("alice", "bob")}
    return clients | {"olga": ring.add("olga", role=OWNER)}


def serve(folder: Path, port: int) -> None:
    """Serve until killed: with TLS where there is a certificate, as few descriptors as DESCRIPTORS, and the
    ledger at DATABASE, which others may write to.
    """
    if limit := int(os.environ.get(DESCRIPTORS, "0")):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    deployment = Deployment(
        saved=SavedTeachers.load(folder / "teachers"),
        folder=folder / "service",
        db=os.environ.get(DATABASE, f"sqlite:///{folder / 'service' / 'ledger.sqlite'}"),
        budget=BUDGET,
        settings=Settings(rate=1e9, burst=10**9),
        environment={},
        pepper=PEPPER,
        shared=DATABASE in os.environ,
    )
    pair = [folder / name if (folder / name).exists() else None for name in ("cert.pem", "key.pem")]
    _server.run(Application(deployment), host="127.0.0.1", port=port, certificate=pair[0], key=pair[1])


def certify(folder: Path) -> ssl.SSLContext:
    """Make a certificate of this machine in a folder; what a client of it trusts."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rigs")])
    where = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(
        now + dt.timedelta(days=1)
    )
    certificate = builder.add_extension(where, critical=False).sign(key, hashes.SHA256())
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))


@dataclass(slots=True)
class Service:
    """The process, and how to reach it."""

    folder: Path
    keys: dict[str, str]
    port: int
    process: subprocess.Popen[bytes] | None = None
    tls: ssl.SSLContext | None = None  # what a client trusts

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "rigs.serving", str(self.folder), str(self.port)]
        setting = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, cwd=REPOSITORY, env=setting, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 300
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5, context=self.tls):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        raise TimeoutError("the service did not start")

    def kill(self) -> None:
        """Kill the process at once, as a power cut would, except for the disk."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Stop the process as an operator would."""
        if self.process:
            self.process.terminate()
            self.process.wait()

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger that the service owns, to look at."""
        secret = secret_of("ledger", self.folder / "service", {})
        with Ledger(self.folder / "service" / "ledger.sqlite", secret=secret, read_only=True) as ledger:
            yield ledger

    def charged(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Entry and answer of every question that was paid for, by client and key."""
        with self.ledger() as ledger:
            charges: dict[tuple[str, str], tuple[int, int]] = {}
            for entry in ledger.entries():
                if (
                    entry.account not in self.keys
                    or entry.answer is None
                    or entry.mechanism.startswith("Reserved")
                ):
                    continue
                assert entry.key is not None, "questions have keys"
                if (entry.account, entry.key) in charges:
                    raise AssertionError(f"{entry.key} was charged twice")
                charges[entry.account, entry.key] = (entry.seq, entry.answer)
            return charges


@contextmanager
def running(folder: Path, *, sigma: float = 4_000.0, tls: bool = False) -> Iterator[Service]:
    """A service in ``folder``, killed at the end."""
    keys = prepare(folder, sigma=sigma)
    trust = certify(folder) if tls else None
    with (
        socket.socket() as listener
    ):  # for as long as it runs: nobody else is given the port between two starts
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        service = Service(folder, keys, listener.getsockname()[1], tls=trust)
        try:
            service.start()
            yield service
        finally:
            service.kill()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
