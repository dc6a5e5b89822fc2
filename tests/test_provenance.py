"""The provenance of a release: an in-toto statement of its files, and a signature that covers all of it."""

import importlib.util
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rigs.finding import REPOSITORY

SOURCE = "https://forge.example/ostraka"
_spec = importlib.util.spec_from_file_location("provenance", REPOSITORY / "packaging" / "provenance.py")
provenance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(provenance)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


@pytest.fixture
def release(tmp_path, monkeypatch):
    """A folder of two files with a signed statement, built from a commit of this test's own."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    checkout, folder = tmp_path / "checkout", tmp_path / "dist"
    folder.mkdir()
    checkout.mkdir()
    (checkout / "constraints.txt").write_text("numpy==2\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    monkeypatch.setattr(provenance, "REPOSITORY", checkout)
    (folder / "ostraka.whl").write_bytes(b"wheel")
    (folder / "sbom.json").write_bytes(b"{}")
    payload = json.dumps(provenance.statement(folder, source=SOURCE)).encode()
    (folder / provenance.SIGNED).write_text(json.dumps(provenance.envelope(payload, KEY)))
    return checkout, folder, json.loads(payload)


def test_a_statement_names_files_commit_and_pins(release):
    checkout, folder, statement = release
    assert (statement["_type"], statement["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    listed = subprocess.run(
        ["sha256sum", "ostraka.whl", "sbom.json"], cwd=folder, check=True, capture_output=True, text=True
    )
    sums = [line.split() for line in listed.stdout.splitlines()]
    assert statement["subject"] == [{"name": name, "digest": {"sha256": sum_}} for sum_, name in sums]
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    )
    source, pins = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source == {"uri": f"git+{SOURCE}", "digest": {"gitCommit": commit.stdout.strip()}}
    assert pins["uri"] == "file:constraints.txt"


def test_what_is_signed_is_what_dsse_says():
    """The example of the protocol: github.com/secure-systems-lab/dsse, protocol.md."""
    assert provenance.encoded("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_changes_of_files_statement_and_key_are_found(release):
    _, folder, _ = release
    assert provenance.faults(folder, KEY.public_key()) == []
    assert provenance.faults(folder, Ed25519PrivateKey.generate().public_key()) == [
        "the signature is not of this key"
    ]
    (folder / "ostraka.whl").write_bytes(b"wheeL")
    (folder / "sbom.json").unlink()
    (folder / "more.whl").write_bytes(b"")
    assert provenance.faults(folder, KEY.public_key()) == [
        "ostraka.whl was changed",
        "sbom.json is missing",
        "more.whl is not in the statement",
    ]
    written = json.loads((folder / provenance.SIGNED).read_text())
    for name in ("payload", "payloadType"):
        changed = written[name].replace("i", "j", 1)
        (folder / provenance.SIGNED).write_text(json.dumps(written | {name: changed}))
        assert provenance.faults(folder, KEY.public_key()) == ["the signature is not of this key"]


def test_a_checkout_with_changes_has_no_provenance(release):
    checkout, folder, _ = release
    (checkout / "constraints.txt").write_text("numpy==3\n")
    with pytest.raises(SystemExit, match="the checkout has changes"):
        provenance.statement(folder, source=SOURCE)
