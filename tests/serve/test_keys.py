"""Keys: random, shown once, kept as an HMAC, compared in constant time, rotated and revoked while it runs."""

import base64
import contextlib
import hmac
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from ostraka.ledger import LedgerError
from ostraka.serve.keys import CHECK, CLIENT, OWNER, Holder, Keyring, bearer, pepper, secret_in
from tests.serve.conftest import PATIENCE, PEPPER, deploy, serving


@pytest.fixture
def ring(tmp_path) -> Keyring:
    return Keyring(tmp_path / "keys.json", PEPPER)


def test_a_key_has_256_random_bits_and_the_file_holds_none_and_is_the_owners_alone(ring, tmp_path):
    keys = [ring.add(f"client-{k}", role=CLIENT, epsilon=1.0) for k in range(20)]
    assert len(set(keys)) == 20
    assert all(re.fullmatch(r"ostraka_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", key) for key in keys)
    assert ring.holder(keys[3].encode()) == Holder("client-3", CLIENT)
    written = (tmp_path / "keys.json").read_text()
    assert keys[3].split("_", 2)[2] not in written  # which may hold underscores, too
    assert hmac.digest(PEPPER, b"ostraka/key/1\x00" + keys[3].encode(), "sha256").hex() in written
    assert stat.S_IMODE((tmp_path / "keys.json").stat().st_mode) == 0o600


def test_another_pepper_is_refused_before_it_locks_anybody_out_and_opens_nothing(ring, tmp_path):
    written = (tmp_path / CHECK).read_text().strip()
    assert written == hmac.digest(PEPPER, b"ostraka/pepper/1\x00", "sha256").hex()
    assert stat.S_IMODE((tmp_path / CHECK).stat().st_mode) == 0o600
    key = ring.add("alice", role=CLIENT).encode()
    with pytest.raises(ValueError, match=r"OSTRAKA_PEPPER is not the one .* remove pepper\.check and keys"):
        Keyring(tmp_path / "keys.json", b"q" * 32)
    assert Keyring(tmp_path / "keys.json", PEPPER).holder(key)
    (tmp_path / CHECK).unlink()  # of a copy without its check value
    assert Keyring(tmp_path / "keys.json", b"q" * 32).holder(key) is None
    (tmp_path / "keys.json").unlink()
    assert Keyring(tmp_path / "keys.json", b"q" * 32).add("alice", role=CLIENT)


def test_what_root_types_can_be_read_by_the_user_of_the_service(ring, tmp_path, monkeypatch):
    changed = {}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, *owner: changed.setdefault(path.name, owner))
    ring.add("alice", role=CLIENT)
    folder = tmp_path.stat()
    assert changed == dict.fromkeys((CHECK, "keys.json", "keys.lock"), (folder.st_uid, folder.st_gid))


def test_a_changed_key_is_none_and_every_key_is_compared_in_constant_time_known_or_not(ring, monkeypatch):
    compared, compare = [], hmac.compare_digest
    key = ring.add("alice", role=CLIENT)
    changed = [key[:place] + ("B" if key[place] != "B" else "C") + key[place + 1 :] for place in (9, 25, 60)]
    odd = [
        b"",
        b"x",
        key.encode() + b"x",
        key.encode()[:-1],
        b"\xff" * 64,
        b"ostraka_000000000000_" + b"A" * 43,
    ]

    def noted(left_bytes, right_bytes):
        compared.append((len(left_bytes), len(right_bytes)))
        return compare(left_bytes, right_bytes)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    holders = [
        ring.holder(credential)
        for credential in (key.encode(), *(variant.encode() for variant in changed), *odd)
    ]
    assert holders == [Holder("alice", CLIENT)] + [None] * 9
    assert compared == [(32, 32)] * 10


def test_rotation_overlaps_until_the_old_key_is_revoked_and_other_processes_see_it(ring, tmp_path):
    second_ring = Keyring(tmp_path / "keys.json", PEPPER)
    old = ring.add("alice", role=CLIENT, epsilon=2.0).encode()
    new = ring.rotate("alice").encode()
    assert ring.holder(old) == ring.holder(new) == Holder("alice", CLIENT)
    ring.revoke("alice", number=old.split(b"_")[1].decode())
    assert (ring.holder(old), ring.holder(new)) == (None, Holder("alice", CLIENT))
    assert second_ring.holder(new) is None
    assert [second_ring.refresh(), second_ring.refresh()] == [True, False]
    assert second_ring.holder(new) == Holder("alice", CLIENT)
    ring.revoke("alice")
    assert ring.holder(new) is None
    assert ring.kept["alice"].epsilon == 2.0, "its account stays"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda ring: ring.add("alice", role=CLIENT), "already"),
        (lambda ring: ring.add("a b", role=CLIENT), "name must be 1 to 64 letters"),
        (lambda ring: ring.add("service", role=CLIENT), "and not 'service'"),
        (lambda ring: ring.add("eve", role="root"), "role must be one of client, owner"),
        (lambda ring: ring.add("eve", role=CLIENT, epsilon=-1.0), "epsilon must be finite and > 0"),
        (lambda ring: ring.add("eve", role=OWNER, epsilon=1.0), "must not be given for an owner"),
        (lambda ring: ring.rotate("eve"), "there is no holder 'eve'"),
        (lambda ring: ring.grant("eve", epsilon=1.0), "there is no holder 'eve'"),
        (lambda ring: ring.grant("olga", epsilon=1.0), "has no budget of its own"),
        (lambda ring: ring.grant("alice", epsilon=float("nan")), "epsilon must be finite"),
        (lambda ring: ring.revoke("alice", number="000000000000"), "has no key"),
    ],
)
def test_a_wrong_change_is_refused_and_changes_nothing(ring, tmp_path, act, words):
    ring.add("alice", role=CLIENT, epsilon=1.0)
    ring.add("olga", role=OWNER)
    before = (tmp_path / "keys.json").read_bytes()
    with pytest.raises(ValueError, match=words):
        act(ring)
    assert (tmp_path / "keys.json").read_bytes() == before


ALICE = {"role": CLIENT, "epsilon": 1.0, "keys": {"0" * 12: "0" * 64}}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[" * 100_000,
        '{"alice": 7}',
        *(
            json.dumps({"alice": {**ALICE, **change}})
            for change in (
                {"role": "king"},
                {"epsilon": float("nan")},
                {"epsilon": "1"},
                {"role": OWNER},
                {"keys": {"0" * 12: "zz" * 32}},
                {"keys": []},
                {"keys": {"0" * 11: "0" * 64}},
                {"by": 7},
                {"by": "a\nb"},
                {"subject": "s"},
                {"role": OWNER, "epsilon": None, "subject": "two words"},
                {"more": 1},
            )
        ),
    ],
)
def test_a_file_of_keys_that_was_not_written_so_is_refused_and_no_key_of_it_counts(ring, tmp_path, content):
    key = ring.add("alice", role=CLIENT).encode()
    (tmp_path / "keys.json").write_text(content)
    for act in (ring.refresh, lambda: ring.rotate("alice"), lambda: Keyring(tmp_path / "keys.json", PEPPER)):
        with pytest.raises(ValueError, match=r"keys\.json is not as 'ostraka keys' writes it .* a copy"):
            act()
    assert (ring.holder(key), ring.readable) == (None, False)
    (tmp_path / "keys.json").unlink()  # as before the first key
    assert (ring.refresh(), ring.readable, ring.refresh()) == (True, True, False)


def test_keys_change_while_the_service_runs_and_none_is_valid_while_their_file_cannot_be_read(
    tmp_path, saved, caplog, monkeypatch
):
    monkeypatch.setattr("ostraka.serve.deployment._LOOK", 0.1)
    with serving(deploy(tmp_path, saved)) as service:
        path = tmp_path / "service" / "keys.json"
        second_ring = Keyring(path, PEPPER)
        service.keys["carol"] = second_ring.add("carol", role=CLIENT, epsilon=20.0)
        second_ring.revoke("bob")
        assert eventually(lambda: service.label(key="k", who="carol"), 200).status_code == 200
        assert eventually(lambda: service.label(key="k", who="bob"), 401).status_code == 401
        before = path.read_text()
        path.write_text('["not", "an", "object"]')
        reply = eventually(lambda: service.label(key="k"), 503)
        assert (reply.json()["code"], reply.headers["retry-after"]) == ("keys_unreadable", "5")
        assert "no key is valid until it can" in caplog.text
        path.write_text(before)
        assert eventually(lambda: service.label(key="k"), 200).status_code == 200


def eventually(ask, status):
    """The reply, once it has this status."""
    until = time.monotonic() + PATIENCE
    while (reply := ask()).status_code != status and time.monotonic() < until:
        time.sleep(0.1)
    return reply


def test_a_changed_file_of_keys_is_on_stable_storage_with_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("ostraka.core.files.sync_folder", synced.append)
    ring = Keyring(tmp_path / "keys.json", PEPPER)
    ring.add("alice", role=CLIENT, epsilon=1.0)
    ring.revoke("alice")
    assert synced == [tmp_path] * 3  # the pepper's check value, and the keys twice
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_grant_of_unknown_outcome_stops_the_service(tmp_path, saved, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise LedgerError("the outcome of a commit is not known")

    stopped = threading.Event()
    with serving(deploy(tmp_path, saved, stop=lambda _: stopped.set())) as service:
        monkeypatch.setattr(service.there.ledger, "grant", fail)
        Keyring(tmp_path / "service" / "keys.json", PEPPER).grant("alice", epsilon=3.0)
        assert stopped.wait(PATIENCE)


def test_a_secret_may_come_from_a_command_which_sees_no_other_secret(tmp_path):
    log_file = tmp_path / "seen"
    program = f"import os; open({str(log_file)!r}, 'w').write(repr(sorted(os.environ))); print('cd' * 32)"
    environment = {"OSTRAKA_PEPPER": "ab" * 32, "PATH": "/bin", "HOME": "/nowhere"}
    environment["OSTRAKA_LEDGER_SECRET"] = f"exec:{sys.executable} -c {shlex.quote(program)}"
    assert secret_in(environment, "OSTRAKA_LEDGER_SECRET") == b"\xcd" * 32
    assert "HOME" in log_file.read_text()
    assert "OSTRAKA" not in log_file.read_text()
    assert secret_in(environment, "OSTRAKA_ANSWERS_SECRET") is None


COMMANDS = ["exec:", "exec:/no/such/program", "exec:false", "exec:echo ab", "exec:'"]


@pytest.mark.parametrize("written", [None, "", "secret", "ab" * 31, "zz" * 32, *COMMANDS])
def test_what_is_no_secret_is_said_with_how_to_make_one_and_not_quoted(written):
    environment = {"PATH": "/bin:/usr/bin", "OSTRAKA_PEPPER": written}
    with pytest.raises(ValueError, match=r"OSTRAKA_PEPPER (must be .* openssl rand -hex 32|failed)") as error:
        pepper({name: value for name, value in environment.items() if value is not None})
    assert not re.search("echo|secret$|zz", str(error.value))
    assert pepper({"OSTRAKA_PEPPER": "ab" * 32}) == b"\xab" * 32


def test_a_change_to_the_file_of_keys_is_made_under_a_lock_of_its_owner_alone_and_can_be_read(ring, tmp_path):
    before = os.umask(0)
    try:
        ring.add("alice", role=CLIENT, epsilon=1.0, by="olga")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys.lock").stat().st_mode) == 0o600
    written = (tmp_path / "keys.json").read_text()
    assert written == json.dumps(json.loads(written), indent=2)


def test_caps_that_a_ledger_does_not_have_are_granted_by_whoever_decided_them(ring):
    ring.add("alice", role=CLIENT, epsilon=1.0, by="olga")
    ring.add("bob", role=CLIENT, epsilon=2.0)
    ring.add("carol", role=CLIENT)  # whose cap 'ostraka ledger grant' sets
    ring.add("olga", role=OWNER)
    accounts = [SimpleNamespace(name="bob", cap=2.0), SimpleNamespace(name="carol", cap=9.0)]
    ledger = SimpleNamespace(accounts=lambda: accounts)
    assert ring.grants(ledger) == [("alice", 1.0, "olga")]
    accounts[0].cap = 2.5
    assert ring.grants(ledger) == [("alice", 1.0, "olga"), ("bob", 2.0, "")]


@pytest.mark.parametrize(
    ("authorization", "key"),
    [
        (b"Bearer  ostraka_x ", b"ostraka_x"),
        (b"bEARER ostraka_x", b"ostraka_x"),
        (b"BASIC " + base64.b64encode(b"olga:ostraka_x"), b"ostraka_x"),
        (b"Basic " + base64.b64encode(b"olga:a:b"), b"a:b"),
        (b"Basic *" + base64.b64encode(b"olga:ostraka_x"), b""),  # not in base64
        (b"Basic " + base64.b64encode(b"olga"), b""),
        (b"Digest ostraka_x", b""),
        (b"", b""),
    ],
)
def test_a_key_is_a_bearer_token_or_the_password_of_a_browser(authorization, key):
    assert bearer({b"authorization": authorization}) == key
    assert bearer({}) == b""


def test_a_command_that_makes_a_secret_has_half_a_minute(monkeypatch):
    limits = []

    def late(words, *, timeout, **_):
        limits.append((words, timeout))
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(ValueError, match=r"^the command of OSTRAKA_PEPPER failed \(TimeoutExpired\)$"):
        pepper({"OSTRAKA_PEPPER": "exec:vault 'of mine'"})
    assert limits == [(["vault", "of mine"], 30.0)]


class Module:
    """Stands for the library of hardware modules and for a module with one token and its keys."""

    class PKCS11Error(Exception):
        """Of the library."""

    class ObjectClass:
        SECRET_KEY = "secret"

    class Attribute:
        SIGN = "sign"

    class Mechanism:
        SHA256_HMAC = "hmac"

    def __init__(self):
        self.opened, self.signs, self.fails = [], True, None

    def lib(self, path):
        return SimpleNamespace(get_token=lambda *, token_label: self._token(path, token_label))

    def _token(self, path, label):
        @contextlib.contextmanager
        def opened(*, user_pin):
            self.opened.append((path, label, user_pin))
            if self.fails:
                raise self.fails
            yield SimpleNamespace(get_key=self._key)

        return SimpleNamespace(open=opened)

    def _key(self, *, object_class, label):
        assert object_class == "secret"
        return self if label == "a key" else None

    def __getitem__(self, name):
        assert name == "sign"
        return self.signs

    def sign(self, message, *, mechanism):
        assert mechanism == "hmac"
        return bytearray(hmac.digest(b"k" * 32, message, "sha256"))


ADDRESS = "pkcs11:token=vault;object=a%20key?module-path=/lib/m.so"


@pytest.fixture
def module(monkeypatch):
    module = Module()
    monkeypatch.setattr("ostraka.core.check.require", lambda name, *, extra: {"pkcs11": module}[extra])
    return module


def test_a_module_is_asked_for_the_mac_of_the_purpose_under_the_key_of_the_address(module, tmp_path):
    (tmp_path / "pin").write_text(" 2718\n")
    for ending, pin in (
        ("", None),
        (f"&pin-source={tmp_path}/pin", "2718"),
        (f"&pin-source=file:{tmp_path}/pin", "2718"),
    ):
        secret = secret_in({"OSTRAKA_PEPPER": ADDRESS + ending}, "OSTRAKA_PEPPER")
        assert secret == hmac.digest(b"k" * 32, b"ostraka/secret/1\0OSTRAKA_PEPPER", "sha256")
        assert module.opened.pop() == ("/lib/m.so", "vault", pin)
    in_path = "pkcs11:module-path=/lib/m.so;object=a%20key;token=vault"
    assert secret_in({"OSTRAKA_PEPPER": in_path}, "OSTRAKA_PEPPER") == secret


@pytest.mark.parametrize(
    "address",
    [
        "pkcs11:",
        "pkcs11:token=vault;object=a%20key",
        ADDRESS.replace("token=vault;", ""),
        ADDRESS.replace("object=a%20key", "token=vault"),
        ADDRESS + "&module-path=/lib/m.so",
        ADDRESS + "&pin-value=2718",
        ADDRESS + "&",
    ],
)
def test_an_address_of_another_form_is_refused_before_a_module_is_opened(module, address):
    says = (
        r"^OSTRAKA_PEPPER: the address of a key must be pkcs11:token=TOKEN;object=KEY"
        r"\?module-path=/usr/lib/…\.so&pin-source=/path/of/the/pin$"
    )
    with pytest.raises(ValueError, match=says):
        pepper({"OSTRAKA_PEPPER": address})
    assert module.opened == []


def test_what_a_module_does_not_do_is_said_without_the_pin(module, tmp_path):
    (tmp_path / "pin").write_text("2718")
    (tmp_path / "odd").write_bytes(b"\xff")
    whole = f"{ADDRESS}&pin-source={tmp_path}/pin"
    failure = "the module made no secret from the key 'a key' of 'vault'"
    for address, error, words in (
        (whole, module.PKCS11Error("2718"), rf"{failure} \(PKCS11Error\)"),
        (whole, RuntimeError("2718"), rf"{failure} \(RuntimeError\)"),
        (whole + "s", None, r"the file of the PIN cannot be read \(FileNotFoundError\)"),
        (
            f"{ADDRESS}&pin-source={tmp_path}/odd",
            None,
            r"the file of the PIN cannot be read \(UnicodeDecodeError\)",
        ),
    ):
        module.fails = error
        with pytest.raises(ValueError, match=f"^OSTRAKA_PEPPER: {words}$"):
            pepper({"OSTRAKA_PEPPER": address})
    module.fails, module.signs = None, False
    with pytest.raises(ValueError, match=r"^OSTRAKA_PEPPER: the key 'a key' of 'vault' may not sign$"):
        pepper({"OSTRAKA_PEPPER": whole})
