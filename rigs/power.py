"""Power cuts: a charging run is recorded, and the disk it could have left is opened, at many moments.

Every image must open, hold every charge acknowledged before the cut, and hold nothing else than a
beginning of the chain that the run wrote. The control, a run that commits with ``synchronous=NORMAL``,
must lose.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ostraka.ledger import LedgerError
from rigs import charging, disk
from rigs.finding import Finding, apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Cuts", "Recording", "cut", "find", "lay_out", "quick_folder", "record", "written"]
SESSIONS = (("--name=a", "--crash"), ("--name=b",), ("--name=c", "--crash"))


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: these files need not survive, they are only looked at."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="ostraka-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class Recording:
    """What several processes, one after the other, did to a ledger, and what they left in the end."""

    mode: str
    events: list[disk.Event]
    heads: dict[str, int]  # head of the chain: how many entries it has
    paid: dict[str, charging.Paid]


@dataclass(slots=True)
class Cuts:
    """What the images showed."""

    images: int = 0
    distinct: set[bytes] = field(default_factory=set)
    wrong: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0  # charges acknowledged before the cut, summed over the images


def record(
    mode: str,
    *,
    charges: int = 15,
    threads: int = 4,
    sessions: Sequence[tuple[str, ...]] = SESSIONS,
) -> Recording:
    """Record processes that charge one ledger, one after the other."""
    with quick_folder() as folder:
        log = folder.with_suffix(".log")
        try:
            sizes = [f"--mode={mode}", f"--charges={charges}", f"--threads={threads}"]
            words = [word for session in sessions for word in (folder, *sizes, *session, "--then")]
            apart("charging", *words, environment=disk.preload(folder, log=log))
            events = list(disk.recorded(log))
        finally:
            log.unlink(missing_ok=True)
        heads, paid = written(charging.MODES[mode], folder)
    return Recording(mode, events, heads, paid)


def find(mode: str, *, images: int, seed: int = 1) -> Finding:
    """Images of healthy runs, of runs whose disk failed in between, and of the control."""
    wrong: Counter[str] = Counter()
    runs, distinct = 0, 0
    for n in range(
        max(2, images // 5000)
    ):  # a new recording now and then; every other one with a failed sync
        failing = ("--name=a", f"--fail-sync={3 + n // 2}", "--crash")
        recording = record(mode, sessions=SESSIONS if n % 2 == 0 else (failing, *SESSIONS[1:]))
        cuts = cut(recording, images=images // max(2, images // 5000), seed=seed + n)
        wrong.update(cuts.wrong)
        runs, distinct = runs + cuts.images, distinct + len(cuts.distinct)
    careless = [(*session, "--careless") for session in SESSIONS]
    least = max(40, images // 100)  # two of three lose
    control = cut(record(mode, sessions=careless), images=least, seed=seed)
    lost = control.wrong.total()  # with an anchor, such a ledger is refused
    return Finding(
        tried=f"{runs:,} images, {distinct:,} of them distinct",
        wrong=wrong,
        control=f"`synchronous=NORMAL` loses in {lost:,} of {least:,}",
        blind=not lost,
    )


def written(mode: charging.ChargingMode, folder: Path) -> tuple[dict[str, int], dict[str, charging.Paid]]:
    """Every head that the chain has had, with its number of entries, and what is on record for every key."""
    with mode.open(folder) as ledger:
        ledger.verify()
        rows = mode.rows(folder)
        if rows and rows[-1][2].hex() != ledger.head:
            raise AssertionError("the last row is not the head of the chain")
    heads = {digest.hex(): seq for seq, _, digest, _ in rows}
    return heads, {key: charging.Paid(seq, answer or 0) for seq, key, _, answer in rows if key is not None}


def cut(recording: Recording, *, images: int, seed: int) -> Cuts:
    """Cut the power ``images`` times, at random moments, most of them with something unsettled."""
    rng, cuts, state, marks = random.Random(seed), Cuts(), disk.Disk(), b""
    moments = _moments(recording.events, images, rng)
    mode = charging.MODES[recording.mode]
    with quick_folder() as folder:
        for n, event in enumerate(recording.events):
            if event.what == "A":
                marks += event.data
            state.take(event)
            for _ in range(moments[n]):
                image = state.image(rng)
                cuts.images += 1
                cuts.acknowledged += len(done := charging.acknowledged(marks))
                cuts.distinct.add(_digest(image, len(done)))
                lay_out(folder, image)
                if wrong := judged(mode, folder, recording, done, charge=rng.random() < 0.05):
                    cuts.wrong[wrong] += 1
    return cuts


def judged(
    mode: charging.ChargingMode,
    folder: Path,
    recording: Recording,
    done: dict[str, charging.Paid],
    *,
    charge: bool,
) -> str | None:
    """What is wrong with an image; None if nothing is. ``charge``: charge it once more, and look again."""
    try:
        with mode.open(folder) as ledger:
            entries = recording.heads.get(ledger.head, -1)
            rows = mode.rows(folder)
            if entries < 0 and all(key is None for _, key, _, _ in rows):
                entries = len(rows)  # nothing was settled: a new chain, which begins now, with its grants
            first = mode.pay(ledger, "afterwards") if charge else None
        if charge:
            with mode.open(folder) as ledger:
                again = mode.pay(ledger, "afterwards")
    except LedgerError as error:
        return charging.refusal(error)
    wrong = {
        "a chain that nobody wrote": entries < 0,
        "acknowledged charges lost": entries < max((paid.seq for paid in done.values()), default=0),
        "an acknowledged charge is another": any(recording.paid[key] != paid for key, paid in done.items()),
        "the next charge was lost": first is not None and not (first == again and first.seq == entries + 1),
    }
    return next((what for what, so in wrong.items() if so), None)


def _moments(events: list[disk.Event], images: int, rng: random.Random) -> Counter[int]:
    """How many images to make after which event: half anywhere, half where most could still be undone."""
    state, unsettled = disk.Disk(), []
    for event in events:
        state.take(event)
        unsettled.append(state.unsettled)
    anywhere = rng.choices(range(len(events)), k=images - images // 2)
    open_ones = rng.choices(range(len(events)), weights=unsettled, k=images // 2)
    return Counter(anywhere + open_ones)


def _digest(image: dict[str, bytes], acknowledged: int) -> bytes:
    digest = hashlib.sha256(str(acknowledged).encode())
    for name in sorted(image):
        digest.update(f"/{name}/{len(image[name])}/".encode())
        digest.update(image[name])
    return digest.digest()


def lay_out(folder: Path, image: dict[str, bytes]) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, content in image.items():
        (folder / name).write_bytes(content)
