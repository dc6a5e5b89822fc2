"""What a release was built from, in a form that others can check: an in-toto statement.

``python packaging/provenance.py dist --source URL`` writes ``dist/provenance.json``: the SHA-256 of each file
of the folder, the commit and the pins they were built from (in-toto Statement 1 with SLSA Provenance 1). With
``--key FILE``, an Ed25519 key in PEM, it is wrapped and signed (DSSE 1) as ``dist/provenance.dsse.json``.
``python packaging/provenance.py dist --verify PUBLIC`` checks signature and files; exit code 1 says that they
do not hold.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import hashlib
import json
import platform
import subprocess
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

REPOSITORY = Path(__file__).resolve().parents[1]
PLAIN, SIGNED = "provenance.json", "provenance.dsse.json"
KIND = "application/vnd.in-toto+json"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def statement(folder: Path, *, source: str) -> dict[str, object]:
    """The statement of the files in a folder, built now from the commit that is checked out."""
    files = [path for path in sorted(folder.iterdir()) if path.name not in {PLAIN, SIGNED}]
    if not files:
        raise SystemExit(f"there is no file in {folder}: type make release")
    if git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("the checkout has changes: commit them, or the statement names what was not built")
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{source}/blob/main/Makefile#release",
                "externalParameters": {"source": source, "target": "release"},
                "internalParameters": {"python": platform.python_version(), "platform": platform.platform()},
                "resolvedDependencies": [
                    {"uri": f"git+{source}", "digest": {"gitCommit": git("rev-parse", "HEAD")}},
                    {
                        "uri": "file:constraints.txt",
                        "digest": {"sha256": digest(REPOSITORY / "constraints.txt")},
                    },
                ],
            },
            "runDetails": {
                "builder": {"id": f"{source}/blob/main/packaging/provenance.py"},
                "metadata": {"finishedOn": now},
            },
        },
    }


def encoded(kind: str, payload: bytes) -> bytes:
    """What a signature is over: the pre-authentication encoding of DSSE 1."""
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(payload)).encode(), payload])


def envelope(payload: bytes, key: Ed25519PrivateKey) -> dict[str, object]:
    """The signed payload."""
    name = hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()
    signature = {"keyid": name, "sig": base64.b64encode(key.sign(encoded(KIND, payload))).decode()}
    return {
        "payloadType": KIND,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [signature],
    }


def faults(folder: Path, key: Ed25519PublicKey) -> list[str]:
    """What does not hold: the signature, a file that was changed, is missing, or is not in the statement."""
    written = json.loads((folder / SIGNED).read_text(encoding="utf-8"))
    payload = base64.b64decode(written["payload"])
    try:
        key.verify(
            base64.b64decode(written["signatures"][0]["sig"]), encoded(written["payloadType"], payload)
        )
    except InvalidSignature:
        return ["the signature is not of this key"]
    stated = {entry["name"]: entry["digest"]["sha256"] for entry in json.loads(payload)["subject"]}
    there = {path.name: path for path in folder.iterdir() if path.name not in {PLAIN, SIGNED}}
    changed = [name for name in stated.keys() & there.keys() if digest(there[name]) != stated[name]]
    return [
        *(f"{name} was changed" for name in sorted(changed)),
        *(f"{name} is missing" for name in sorted(stated.keys() - there.keys())),
        *(f"{name} is not in the statement" for name in sorted(there.keys() - stated.keys())),
    ]


def main() -> int:
    options = argparse.ArgumentParser(prog="python packaging/provenance.py")
    options.add_argument("folder", type=Path)
    options.add_argument("--source", default="", help="address of the repository")
    options.add_argument("--key", type=Path, help="sign with this Ed25519 key, PEM")
    options.add_argument(
        "--verify", type=Path, metavar="PUBLIC", help="check instead, with this public key, PEM"
    )
    chosen = options.parse_args()
    if chosen.verify is not None:
        public = load_pem_public_key(chosen.verify.read_bytes())
        if not isinstance(public, Ed25519PublicKey):
            raise SystemExit(f"{chosen.verify} holds no Ed25519 key")
        found = faults(chosen.folder, public)
        print("\n".join(found) or "signature and files hold")
        return bool(found)
    if not chosen.source:
        options.error("type --source https://…, the address of the repository")
    payload = json.dumps(statement(chosen.folder, source=chosen.source), indent=2).encode()
    (chosen.folder / PLAIN).write_bytes(payload)
    if chosen.key is not None:
        private = load_pem_private_key(chosen.key.read_bytes(), None)
        if not isinstance(private, Ed25519PrivateKey):
            raise SystemExit(f"{chosen.key} holds no Ed25519 key")
        (chosen.folder / SIGNED).write_text(
            json.dumps(envelope(payload, private), indent=2), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
