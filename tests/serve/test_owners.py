"""What owners may do only together, and only with certificates in their own names."""

import datetime as dt
import ipaddress
import logging
import ssl

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from ostraka.core.ledger.budget import LedgerUnavailable
from ostraka.serve.keys import Keyring
from tests.serve.conftest import ONE, PATIENCE, PEPPER, deploy, serving


@pytest.fixture
def owners(tmp_path, saved):
    """A service with the owners olga, petra and quinn, whose caps two of them decide."""
    service = deploy(tmp_path, saved, clients={"alice": 20.0}, two_owners=True)
    ring = Keyring(tmp_path / "service" / "keys.json", PEPPER)
    service.keys |= {name: ring.add(name, role="owner") for name in ("petra", "quinn")}
    service.there.keys.refresh()
    with serving(service) as running_service:
        yield running_service


def post(service, who, path, content):
    with service.http(who) as http:
        return http.post(path, json=content)


def cap(service, name="alice"):
    caps = {account.name: account.cap for account in service.there.ledger.accounts()}
    return caps.get(name)


def test_two_owners_grant_and_one_does_not(owners):
    assert cap(owners) is None  # the file of keys says 20
    assert owners.label(key="before").status_code == 402
    with owners.http() as http:
        nothing = http.get("/v1/budget").json()
    assert [nothing[name] for name in ("epsilon", "spent", "left", "answers_left")] == [0] * 4
    proposal = post(owners, "olga", "/v1/grants", {"client": "alice", "epsilon": 3})
    assert (proposal.status_code, cap(owners)) == (202, None)
    path = f"/v1/grants/{proposal.json()['proposal']}"
    assert post(owners, "olga", path, {}).json()["code"] == "same_owner"
    assert post(owners, "alice", path, {}).json()["code"] == "forbidden"
    assert cap(owners) is None
    granted = post(owners, "petra", path, {})
    assert (granted.status_code, granted.json()["by"], cap(owners)) == (200, ["olga", "petra"], 3.0)
    assert owners.label(key="after").status_code == 200
    notes = [entry.key for entry in owners.there.ledger.entries() if entry.kind == "note"]
    assert any(note.endswith("epsilon 3.0 for alice proposed by olga") for note in notes)
    assert any(note.endswith("grant by olga and petra") for note in notes)
    owners.there.ledger.verify()


def test_an_approval_counts_once_whoever_repeats_it_and_wherever(owners, saved, tmp_path):
    proposal = post(owners, "olga", "/v1/grants", {"client": "alice", "epsilon": 3}).json()["proposal"]
    path = f"/v1/grants/{proposal}"
    first = post(owners, "petra", path, {})
    assert first.status_code == 200
    owners.there.ledger.grant("alice", budget_epsilon=1.0, by="both")
    head = owners.there.ledger.head
    for spelling in (path, f"/v1/grants/0{proposal}"):
        assert post(owners, "petra", spelling, {}).json() == first.json()
    second = post(owners, "quinn", path, {})
    assert (second.status_code, second.json()["code"]) == (409, "proposal_ended")
    assert (owners.there.ledger.head, cap(owners)) == (head, 1.0)
    owners.there.ledger.verify()


def test_an_approval_of_unknown_outcome_is_finished_by_sending_it_again(owners, monkeypatch):
    proposal = post(owners, "olga", "/v1/grants", {"client": "alice", "epsilon": 3}).json()["proposal"]
    path, ledger = f"/v1/grants/{proposal}", owners.there.ledger
    with monkeypatch.context() as away:  # the approval is written, and the cap is not

        def fails(*_, **__):
            raise LedgerUnavailable("away")

        away.setattr(ledger, "grant", fails)
        assert post(owners, "petra", path, {}).status_code == 503
    assert cap(owners) is None
    assert post(owners, "quinn", path, {}).status_code == 409
    assert (post(owners, "petra", path, {}).status_code, cap(owners)) == (200, 3.0)


def test_proposals_are_for_clients_and_notes_of_others_are_none(owners):
    for content in (
        *({"client": "alice", "epsilon": epsilon} for epsilon in (0, True, "3")),
        *({"client": "alice"}, {"client": ["alice"], "epsilon": 3}),
        *({"client": "alice", "epsilon": 3, "more": 1}, []),
    ):
        assert post(owners, "olga", "/v1/grants", content).json()["code"] == "bad_schema", content
    for name in ("olga", "nobody", "alice proposed by petra"):
        refused = post(owners, "olga", "/v1/grants", {"client": name, "epsilon": 3})
        assert refused.status_code == 404
    note = owners.there.ledger.note("epsilon 9.0 for alice proposed by eve and", by="mallory")
    grant = owners.there.ledger.grant("alice", budget_epsilon=1.0, by="olga")
    for number in (note, grant, grant + 1, 10**18, "x"):
        assert post(owners, "petra", f"/v1/grants/{number}", {}).status_code == 404


def test_a_cap_in_the_file_of_keys_is_said_not_to_count(tmp_path, saved, caplog):
    with caplog.at_level(logging.WARNING, logger="ostraka.serve"):
        service = deploy(tmp_path, saved, clients={"alice": 20.0}, two_owners=True)
    assert [record.event for record in caplog.records if hasattr(record, "event")] == ["grant.refused"]
    assert cap(service) is None
    service.there.ledger.close()


# Certificates


class Authority:
    """Issues certificates; its own and theirs as PEM files of a folder."""

    def __init__(self, folder, name):
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        signs = x509.KeyUsage(*[place == 5 for place in range(9)])  # certificates
        builder = builder.add_extension(signs, True)
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def _builder(self, subject, key):
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(1))
        # Python 3.13 refuses certificates that do not say which key signed them
        public_key, signer = key.public_key(), self._key.public_key()
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), False)
        return builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), False)

    def issue(self, *names):
        """Certificate and key for these common names, valid for this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signed = self._builder(subject, key).add_extension(address, False).sign(self._key, hashes.SHA256())
        files = [self.folder / f"{self.file.stem}-{'-'.join(names)}.{end}" for end in ("pem", "key")]
        files[0].write_bytes(signed.public_bytes(Encoding.PEM))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


@pytest.fixture(scope="module")
def certified(tmp_path_factory, saved):
    """A service with TLS whose owners show certificates, and two authorities."""
    folder = tmp_path_factory.mktemp("certified")
    bank, stranger = Authority(folder, "bank"), Authority(folder, "other")
    cert, key = bank.issue("localhost")
    with serving(
        deploy(folder, saved), tls={"certificate": cert, "key": key, "authority": bank.file}
    ) as service:
        yield service, bank, stranger


def asked(certified, who, path, files=()):
    """The status of a request with somebody's key, on a connection with a certificate or without."""
    service, bank, _ = certified
    context = ssl.create_default_context(cafile=str(bank.file))
    if files:
        context.load_cert_chain(*files)
    headers = {"authorization": f"Bearer {service.keys[who]}", "idempotency-key": "certified"}
    with httpx.Client(base_url=service.url, verify=context, headers=headers, timeout=PATIENCE) as http:
        reply = http.post(path, json={"row": ONE}) if path == "/v1/label" else http.get(path)
    return reply.status_code


@pytest.mark.parametrize("path", ["/", "/v1/budget", "/metrics"])
def test_an_owner_needs_a_key_and_a_certificate_in_the_same_name(certified, path):
    _, bank, _ = certified
    assert asked(certified, "olga", path) == 403
    assert asked(certified, "olga", path, bank.issue("petra")) == 403
    assert asked(certified, "olga", path, bank.issue("petra", "olga")) == 403  # two names are none
    assert asked(certified, "olga", path, bank.issue("olga")) == 200


def test_clients_need_no_certificate_and_another_authority_ends_the_handshake(certified):
    _, _, stranger = certified
    assert asked(certified, "alice", "/v1/label") == 200
    assert asked(certified, "alice", "/v1/budget") == 200
    with pytest.raises(httpx.TransportError):
        asked(certified, "olga", "/v1/budget", stranger.issue("olga"))
