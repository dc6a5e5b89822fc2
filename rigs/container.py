"""The Containerfile: built from the checkout, run as its user without rights, asked, and stopped.

It needs buildah and the base image, from a registry or made on this machine under the same name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from bench.service import free_port
from ostraka import Result
from rigs import serving
from rigs.disk import UnavailableError
from rigs.finding import REPOSITORY, Finding, apart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find"]

TAG, USER, INSIDE, PATIENCE = "ostraka-rig", 10001, "/run-folder", 120.0
NOTED = 'echo $$ > /run-folder/service/pid; exec "$@"'  # the process whose end an operator asks for


def find() -> Finding:
    """A write outside of the run's folder, another user, no answer, or an unclean end is wrong."""
    facts = apart("container")
    wrong = Counter[str]()
    wrong["another user"] += facts["user"] != USER
    wrong["it can write outside of its folder"] += facts["wrote"]
    wrong["no answer that is charged"] += not facts["charged"]
    wrong["the ledger is not closed in the end"] += facts["left"]
    return Finding(
        tried=f"built in {facts['built']:.0f} s; user {facts['user']}; ready after {facts['ready']:.1f} s; "
        f"{facts['charged']} question answered and charged",
        wrong=+wrong,
        control="a folder of another user is refused",
        blind=not facts["refused"],
    )


def buildah(*words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of buildah."""
    command = ["buildah", *map(str, words)]
    return subprocess.run(command, check=check, capture_output=True, text=True)


@contextmanager
def built() -> Iterator[tuple[str, float]]:
    """A container of the image, and how many seconds its building took."""
    if shutil.which("buildah") is None:
        raise UnavailableError("building an image needs buildah (apt-get install buildah)")
    start = time.perf_counter()
    build = buildah("bud", "--isolation", "chroot", "--tag", TAG, REPOSITORY, check=False)
    if build.returncode:
        raise UnavailableError(f"the image cannot be built: {build.stderr.strip().splitlines()[-1]}")
    took = time.perf_counter() - start
    container = buildah("from", "--pull-never", f"localhost/{TAG}").stdout.strip()
    try:
        yield container, took
    finally:
        buildah("rm", container)
        buildah("rmi", TAG)


def entry(container: str) -> list[str]:
    """Return the words of the image's entry point."""
    inspected = json.loads(buildah("inspect", container).stdout)
    return list(inspected["OCIv1"]["config"]["Entrypoint"])


def run() -> dict[str, object]:
    """Build, refuse, serve, ask and stop."""
    with built() as (container, took), tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        folder.mkdir()
        serving.prepare(folder, sigma=30.0)
        shutil.rmtree(folder / "service")
        (folder / "result.json").write_text(Result(kind="learn", settings={"n_units": 600}).to_json())
        within = ("run", "--isolation", "chroot", "--volume", f"{folder}:{INSIDE}")
        within = (*within, "--env", f"OSTRAKA_PEPPER={'ab' * 32}", container, "--")
        budget = ("--epsilon", 5, "--delta", 1e-6, "--sigma", 30)
        command = (*entry(container), *budget)
        refused = buildah(*within, *command, "--check", check=False).returncode
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER, USER)
        (folder / "service").mkdir(mode=0o700)
        os.chown(folder / "service", USER, USER)
        wrote = not buildah(*within, "touch", "/usr/local/written", check=False).returncode
        user = int(buildah(*within, "id", "-u").stdout)
        key = buildah(*within, "ostraka", "keys", "add", INSIDE, "alice", "--epsilon", 2).stdout.split()[-1]
        outcome = served(folder, [*within, "sh", "-c", NOTED, "sh", *command], key)
    return {"built": took, "refused": refused, "wrote": wrote, "user": user, **outcome}


def served(folder: Path, command: list[object], key: str) -> dict[str, object]:
    """Serve, ask one question, and end the service as an operator would."""
    port, start = free_port(), time.perf_counter()
    process = subprocess.Popen(["buildah", *map(str, command), "--port", str(port)])
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
            while not works(http):
                if process.poll() is not None or time.perf_counter() - start > PATIENCE:
                    raise TimeoutError("the container does not serve")
                time.sleep(0.1)
            ready = time.perf_counter() - start
            head = {"authorization": f"Bearer {key}", "idempotency-key": "a"}
            reply = http.post("/v1/label", json={"row": [1.0, 2.0, 3.0]}, headers=head)
            charged = int(reply.status_code == httpx.codes.OK and "receipt" in reply.json())
    finally:
        os.kill(int((folder / "service" / "pid").read_text()), signal.SIGTERM)
        process.wait(60)
    crashed = (folder / "service" / "ledger.sqlite-wal").exists()  # a ledger that is closed leaves no log
    return {"ready": ready, "charged": charged, "left": crashed}


def works(http: httpx.Client) -> bool:
    """Whether the service says that it is ready."""
    try:
        return http.get("/ready").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def main(arguments: list[str]) -> None:
    argparse.ArgumentParser(prog="python -m rigs.container").parse_args(arguments)
    print(json.dumps(run()))


if __name__ == "__main__":
    main(sys.argv[1:])
