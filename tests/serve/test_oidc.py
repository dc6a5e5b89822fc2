"""Owners who show tokens of an OpenID Connect provider: what counts, what does not, and what is recorded."""

import asyncio
import base64
import datetime as dt
import hmac
import json
import time
import types

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ostraka.secure.wire import Late
from ostraka.serve import oidc
from ostraka.serve.keys import Keyring
from ostraka.serve.oidc import ALGORITHMS, LEEWAY, Tokens
from tests.serve.conftest import PEPPER, client, deploy, serving
from tests.threads import Handler, http_server

jwt = pytest.importorskip("jwt", reason="pyjwt is not installed: pip install '.[oidc]'")

ISSUER, AUDIENCE = "https://login.example.org/realm", "ostraka"
SUBJECTS = {"olga": "auth0|248289761001", "petra": "petra@example.org"}


class Provider:
    """Signs tokens with one key of each kind, and writes the key set of their public halves."""

    def __init__(self, folder):
        self.file = folder / "jwks.json"
        self.keys = {
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
            "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        }
        self.write(*self.keys)

    def write(self, *names):
        listed = []
        for name in names:
            public = jwt.get_algorithm_by_name(name).to_jwk(self.keys[name].public_key())
            listed.append({**json.loads(public), "kid": name, "alg": name, "use": "sig"})
        self.file.write_text(json.dumps({"keys": listed}))

    def token(self, subject="olga", name="ES256", *, key=None, head=types.MappingProxyType({}), **claims):
        now = int(time.time())
        content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECTS.get(subject), "iat": now}
        content = {**content, "exp": now + 300, **claims}
        content = {claim: value for claim, value in content.items() if value is not None}
        head = {word: value for word, value in {"kid": name, **head}.items() if value is not None}
        body = json.dumps(content).encode()  # signed as it is: what makes whole tokens refuses some of these
        return jwt.PyJWS().encode(body, key or self.keys[name], algorithm=name, headers=head)


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    return Provider(tmp_path_factory.mktemp("provider"))


@pytest.fixture(scope="module")
def tokens(provider):
    return Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(provider.file))


def test_a_valid_token_names_its_subject(provider, tokens):
    for name in provider.keys:
        for audience in (AUDIENCE, ["account", AUDIENCE]):
            assert tokens.subject(provider.token(name=name, aud=audience).encode()) == SUBJECTS["olga"], name


LONG_AGO = time.time() - 10 * LEEWAY
WRONG = {
    "another issuer": {"iss": ISSUER + "/"},
    "another audience": {"aud": "another"},
    "no audience": {"aud": None},
    "expired": {"iat": LONG_AGO - 60, "exp": LONG_AGO},
    "without an end": {"exp": None},
    "without a beginning": {"iat": None},
    "not valid yet": {"nbf": time.time() + 86_400},
    "issued later": {"iat": time.time() + 86_400},
    "without a subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a number as a subject": {"sub": 7},
    "an unknown key": {"head": {"kid": "another"}},
    "no key": {"head": {"kid": None}},
    "a critical extension": {"head": {"crit": ["exotic"], "exotic": 1}},
    "another's signature": {"key": ec.generate_private_key(ec.SECP256R1())},
}


def test_whatever_is_wrong_with_a_token_it_names_nobody(provider, tokens):
    for what, claims in WRONG.items():
        assert tokens.subject(provider.token(**claims).encode()) is None, what
    for token in (b"", b"..", b"a.b.c", b"\xff.\xff.\xff", b"e30.e30.e30", b"." * 9):
        assert tokens.subject(token) is None, token


def test_a_public_key_is_no_shared_secret_and_none_is_no_signature(provider, tokens):
    now = int(time.time())
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECTS["olga"], "iat": now, "exp": now + 300}
    head = {"kid": "RS256"}
    assert tokens.subject(jwt.encode(content, None, algorithm="none", headers=head).encode()) is None
    (listed,) = (key for key in json.loads(provider.file.read_text())["keys"] if key["kid"] == "RS256")
    pem = provider.keys["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for public_bytes in (
        pem,
        json.dumps(listed).encode(),
        listed["n"].encode(),
    ):  # the library signs none of these
        parts = [{"alg": "HS256", **head}, content]
        signed = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
        mac = base64.urlsafe_b64encode(hmac.digest(public_bytes, signed, "sha256")).rstrip(b"=")
        assert tokens.subject(signed + b"." + mac) is None
    crossed = provider.token(name="ES256", head={"kid": "RS256"})  # one key's signature under another's name
    assert tokens.subject(crossed.encode()) is None


def test_an_algorithm_outside_the_list_does_not_count(provider):
    narrow = Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(provider.file), algorithms=("ES256",))
    assert narrow.subject(provider.token(name="ES256").encode()) == SUBJECTS["olga"]
    assert narrow.subject(provider.token(name="RS256").encode()) is None
    assert not any(name.startswith("HS") or name == "none" for name in ALGORITHMS)
    with pytest.raises(ValueError, match="algorithms must be one of"):
        Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(provider.file), algorithms=("HS256",))


def test_a_provider_that_cannot_be_believed_is_refused_at_the_start(tmp_path, provider):
    with pytest.raises(ValueError, match="https://"):
        Tokens(issuer="http://login.example.org", audience=AUDIENCE)
    with pytest.raises(ValueError, match="audience"):
        Tokens(issuer=ISSUER, audience="", keys=str(provider.file))
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "a", "alg": "HS256"}
    odd = {**json.loads(provider.file.read_text())["keys"][0], "kid": ["no", "name"]}
    for keys in ([], 7, [secret], [odd]):
        (tmp_path / "jwks.json").write_text(json.dumps({"keys": keys}))
        with pytest.raises(ValueError, match="holds no public key"):
            Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(tmp_path / "jwks.json"))
    for content in ("{", "[]", "[" * 100_000):
        (tmp_path / "jwks.json").write_text(content)
        with pytest.raises(ValueError, match="holds no JSON object"):
            Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(tmp_path / "jwks.json"))


class Clock:
    """Stands for the modules time and asyncio: a pause takes no time, and may have a consequence."""

    def __init__(self, then):
        self.now, self.then = 1000.0, then

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        self.then(self.now - 1000.0)

    async def to_thread(self, function):
        function()


def test_keys_are_read_each_five_minutes_or_soon_and_after_a_day_without_a_provider_none_counts(
    tmp_path, monkeypatch, caplog
):
    provider = Provider(tmp_path)
    provider.write("ES256")
    old, fresh = provider.token(name="ES256").encode(), provider.token(name="EdDSA").encode()
    reads = []

    def then(seconds):
        if seconds == 304:
            assert tokens.subject(old) == SUBJECTS["olga"]
            provider.write("EdDSA")
            assert (
                tokens.subject(fresh) is None
            )  # so that the keys are read as soon as ten seconds have passed
        elif seconds == 311:
            assert tokens.subject(fresh) == SUBJECTS["olga"]
            provider.file.unlink()
        elif seconds == 640:
            raise asyncio.CancelledError

    clock = Clock(then)
    for module in ("time", "asyncio"):
        monkeypatch.setattr(f"ostraka.serve.oidc.{module}", clock)
    tokens = Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(provider.file))
    refresh = tokens.refresh
    monkeypatch.setattr(tokens, "refresh", lambda: (reads.append(clock.now - 1000.0), refresh()))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(tokens.keep_up())
    assert reads == [300, 310, 610, 620, 630]
    warning = (
        "the keys of the provider of owners' tokens cannot be read (FileNotFoundError): the old ones stay"
    )
    assert [(record.getMessage(), record.event) for record in caplog.records] == [
        (warning, "provider.unavailable")
    ] * 3
    assert tokens.subject(old) is None, "its key has ended"
    clock.now = 1310.0 + 86_400.0
    assert tokens.subject(fresh) == SUBJECTS["olga"]
    clock.now += 0.5
    assert tokens.subject(fresh) is None


def test_clocks_may_differ_by_thirty_seconds(provider, tokens, monkeypatch):
    now = int(time.time())

    class Stopped(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", Stopped)
    for claim, seconds in (("exp", -29), ("nbf", 30), ("iat", 30)):
        assert tokens.subject(provider.token(**{claim: now + seconds}).encode()) == SUBJECTS["olga"]
        beyond = now + seconds + (1 if seconds > 0 else -1)
        assert tokens.subject(provider.token(**{claim: beyond}).encode()) is None


# A service


@pytest.fixture(scope="module")
def owners(tmp_path_factory, saved, tokens):
    """A service whose owners olga-maria and petra show tokens; olga has a key alone."""
    folder = tmp_path_factory.mktemp("owners")
    service = deploy(folder, saved, two_owners=True)
    ring = Keyring(folder / "service" / "keys.json", PEPPER)
    for name in ("olga-maria", "petra"):
        assert ring.add(name, role="owner", subject=SUBJECTS[name.partition("-")[0]], by="olga") == ""
    service.there.keys.refresh()
    with serving(service, tokens=tokens) as running_service:
        yield running_service


def asked(service, credential, path="/v1/budget", *, content=None):
    with client(service.url, {"authorization": f"Bearer {credential}"}) as http:
        return http.get(path) if content is None else http.post(path, json=content)


@pytest.mark.parametrize("path", ["/", "/v1/budget", "/metrics"])
def test_an_owner_comes_with_a_token_and_not_with_a_key(owners, provider, path):
    assert asked(owners, provider.token(), path).status_code == 200
    refused = asked(owners, owners.keys["olga"], path)
    assert (refused.status_code, refused.json()["code"]) == (403, "no_token")
    for stranger in (provider.token(sub="mallory"), provider.token(aud="another")):
        assert asked(owners, stranger, path).status_code == 401


def test_clients_have_keys_as_before_and_a_token_asks_for_no_label(owners, provider):
    assert asked(owners, owners.keys["alice"]).json()["client"] == "alice"
    assert asked(owners, provider.token(), "/v1/label", content={"row": [1, 2, 3]}).status_code == 403


def test_the_ledger_names_the_subjects_of_both_owners(owners, provider):
    grant = {"client": "alice", "epsilon": 3}
    proposal = asked(owners, provider.token(), "/v1/grants", content=grant).json()
    path = f"/v1/grants/{proposal['proposal']}"
    assert asked(owners, provider.token(), path, content={}).json()["code"] == "same_owner"
    granted = asked(owners, provider.token("petra"), path, content={})
    pair = ["olga-maria[auth0|248289761001]", "petra[petra@example.org]"]
    assert granted.json()["by"] == pair
    notes = [entry.key for entry in owners.there.ledger.entries() if entry.kind == "note"]
    assert any(note.endswith("grant by " + " and ".join(pair)) for note in notes)
    owners.there.ledger.verify()


def test_one_person_is_one_owner_and_a_subject_ends_with_the_keys(tmp_path):
    ring = Keyring(tmp_path / "keys.json", PEPPER)
    ring.add("olga", role="owner", subject="s-1")
    assert ring.owner("s-1").actor == "olga[s-1]"
    assert (ring.owner(""), ring.owner(None)) == (None, None)
    for how in ({"subject": "s-1"}, {"subject": "two words"}, {"subject": "x" * 256}):
        with pytest.raises(ValueError, match="subject"):
            ring.add("petra", role="owner", **how)
    with pytest.raises(ValueError, match="clients have keys"):
        ring.add("alice", role="client", subject="s-2")
    assert set(ring.kept) == {"olga"}
    ring.add("o" * 64, role="owner", subject="x" * 255)  # the longest of both
    assert ring.owner("x" * 255).actor == f"{'o' * 64}[{'x' * 255}]"
    ring.revoke("olga")
    assert ring.owner("s-1") is None


# A provider on the network


@pytest.fixture
def network():
    """Documents by path, served at an address of this machine."""
    documents = {}

    class Provider(Handler):
        def reply(self):
            self.answer(*documents.get(self.path, (404, b"")))

    with http_server(Provider) as port:
        documents[""] = f"http://127.0.0.1:{port}"
        yield documents


DISCOVERY = "/realm/.well-known/openid-configuration"


def test_a_provider_says_where_its_keys_are(network, provider):
    issuer = f"{network['']}/realm"
    network[DISCOVERY] = (200, json.dumps({"issuer": issuer, "jwks_uri": f"{network['']}/keys?p=1"}).encode())
    network["/keys?p=1"] = (200, provider.file.read_bytes())
    tokens = Tokens(issuer=issuer, audience=AUDIENCE)
    assert tokens.subject(provider.token(iss=issuer).encode()) == SUBJECTS["olga"]
    assert tokens.subject(provider.token().encode()) is None


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (200, b'{"issuer": "https://evil.example", "jwks_uri": "https://evil.example/keys"}', ValueError),
        (200, b"[]", ValueError),
        (200, b"no JSON", ValueError),
        (200, b" " * (2**20 + 1), OSError),
        (404, b"", OSError),
    ],
)
def test_a_provider_that_says_something_else_is_refused(network, status, content, error):
    network[DISCOVERY] = (status, content)
    with pytest.raises(error):
        Tokens(issuer=f"{network['']}/realm", audience=AUDIENCE)


def test_what_is_fetched_comes_from_a_server_that_proves_its_name_or_from_this_machine(monkeypatch):
    asked, status = [], 200

    class Line:
        def __init__(self, url, *, direct):
            self.made = url, direct

        def ask(self, *request, **limits):
            asked.append((*self.made, *request, limits))
            return types.SimpleNamespace(status=status, body=b"content")

    monkeypatch.setattr(oidc, "Line", Line)
    how = {"seconds": 5.0, "most": 1_048_576, "fresh": True, "tries": 2}
    for origin in ("https://login.example.org:8443", "http://127.0.0.1:80", "http://localhost"):
        for path in ("", "/keys", "/keys?p=1&q="):
            assert oidc._fetched(origin + path) == b"content"
            assert asked.pop() == (origin, False, "GET", path, how)
    for url in ("http://login.example.org/keys", "ftp://127.0.0.1/keys", "file:///keys", "http:///keys"):
        with pytest.raises(ValueError, match=r"^the provider's keys must come from an https:// address, got"):
            oidc._fetched(url)
    for status in (199, 201, 404):
        with pytest.raises(Late, match=rf"status {status} from login\.example\.org") as late:
            oidc._fetched("https://login.example.org/keys")
        assert not late.value.sent
    assert len(asked) == 3


def test_a_key_without_a_name_is_that_of_tokens_that_name_none(tmp_path, provider):
    (listed,) = (key for key in json.loads(provider.file.read_text())["keys"] if key["kid"] == "ES256")
    del listed["kid"]
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [listed]}))
    tokens = Tokens(issuer=ISSUER, audience=AUDIENCE, keys=str(tmp_path / "jwks.json"))
    assert tokens.subject(provider.token(head={"kid": None}).encode()) == SUBJECTS["olga"]
    assert tokens.subject(provider.token().encode()) is None


def test_an_issuer_may_end_in_a_slash_and_must_name_itself_and_its_keys(network, provider):
    issuer = f"{network['']}/realm/"
    network["/keys"] = (200, provider.file.read_bytes())
    named = {"issuer": issuer, "jwks_uri": f"{network['']}/keys"}
    network[DISCOVERY] = (200, json.dumps(named).encode())
    tokens = Tokens(issuer=issuer, audience=AUDIENCE)
    assert tokens.subject(provider.token(iss=issuer).encode()) == SUBJECTS["olga"]
    network[DISCOVERY] = (200, json.dumps(named | {"issuer": issuer[:-1]}).encode())
    with pytest.raises(ValueError, match="names another issuer: type it as in its tokens"):
        Tokens(issuer=issuer, audience=AUDIENCE)
    network[DISCOVERY] = (200, json.dumps({"issuer": issuer}).encode())
    with pytest.raises(OSError, match="directory"):  # no file has an empty name
        Tokens(issuer=issuer, audience=AUDIENCE)
