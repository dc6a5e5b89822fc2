"""The limit beside each figure: what hot paths take, what the machine or arithmetic asks at least, and peers.

Both are measured by turns in one process, in processor time, the fastest of some; the distance is their
ratio. Whatever is more than three times its limit says why. Writes ``docs/record/limits.md``. Peers'
figures were recorded beside ours on the day that is said; ``docs/record/peers.md`` says how.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from scipy.special import log_ndtr, ndtr

from bench.collect import all_pairs
from ostraka import Adjacency, Budget, GNMax, Ledger, Private, count_votes
from ostraka.audit.one_run import Guesses, _lower_ends
from ostraka.core.randomness import os_keyed
from ostraka.data.parquet import ParquetRows
from ostraka.voters import QuantileCells, RowVoter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

PAGE: Path | None = Path(__file__).resolve().parents[1] / "docs" / "record" / "limits.md"
ROUNDS, ROWS, ENTRIES, CHARGES = 7, 200_000, 20_000, 100
QUICK = {"PAGE": None, "ROUNDS": 1, "ROWS": 400, "ENTRIES": 50, "CHARGES": 2}
FAR = 3.0  # times the limit, beyond which a path says why
_FEATURES, _CLASSES, _TEACHERS, _NEIGHBOURS, _VALUES = 20, 10, 250, 6, 100_000


class HotPath(NamedTuple):
    """What is done, the least that it must do, and what is known of both."""

    name: str
    ours: Callable[[], object]
    limit: Callable[[], object]
    least: str  # what the limit is
    peer: str = "none that does this"
    why: str = ""  # it is so far from the limit


def release() -> HotPath:
    counts = np.random.default_rng(0).multinomial(_TEACHERS, np.full(_CLASSES, 0.1), size=ROWS // 10)
    votes, mechanism = Private(counts, Adjacency.one_ballot()), GNMax(sigma=40.0)
    return HotPath(
        f"release {len(counts):,} argmaxes of {_CLASSES} classes",
        lambda: mechanism.release(votes, rng=os_keyed()),
        lambda: os_keyed().standard_normal(counts.shape),
        "as many normals of the same cryptographic generator",
        "OpenDP's noisy max, 89 to 112 µs an answer, in November 2026",
        "answers are exact: a normal counts as an interval, which is compared, and drawn on where it decides",
    )


def ballots() -> HotPath:
    cast = np.random.default_rng(0).integers(0, _CLASSES, size=(_TEACHERS, ROWS // 2), dtype=np.uint8)
    copy = np.empty_like(cast)
    return HotPath(
        f"count {cast.size:,} ballots",
        lambda: count_votes(cast, n_classes=_CLASSES),
        lambda: np.copyto(copy, cast),
        "a copy of the ballots in memory",
        why="each ballot is compared with each class, and its range is checked before",
    )


def charge(folder: Path) -> HotPath:
    ledger = Ledger(folder / "charges.sqlite", budget=Budget(epsilon=50.0, delta=1e-6))
    bare = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    bare.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE entry (digest BLOB)"
    )
    mechanism = GNMax(sigma=4e4)

    def ours() -> None:
        for _ in range(CHARGES):
            ledger.charge(mechanism, uses=1, unit="row", simulation=False)

    def limit() -> None:
        for _ in range(CHARGES):
            bare.execute("INSERT INTO entry VALUES (?)", (bytes(32),))

    return HotPath(f"{CHARGES} durable charges, one by one", ours, limit, "durable inserts into bare SQLite")


def verify(folder: Path) -> HotPath:
    from bench.long_ledger import fill

    path = folder / "long.sqlite"
    fill(path, ENTRIES)
    ledger = Ledger(path, read_only=True, verify=False)

    def limit() -> None:
        with closing(sqlite3.connect(path)) as db:
            for row in db.execute("SELECT * FROM entry"):
                sha256(row[-2] or bytes(220)).digest()

    return HotPath(
        f"verify {ENTRIES:,} entries of a ledger",
        ledger.verify,
        limit,
        "reading them, and SHA-256 of each",
        why="each entry becomes its canonical text, and pages, indexes and totals are checked as well",
    )


def masks() -> HotPath:
    def limit() -> None:
        private_key = X25519PrivateKey.generate()
        for _ in range(_NEIGHBOURS):
            private_key.exchange(X25519PrivateKey.generate().public_key())
            Cipher(ChaCha20(bytes(32), bytes(16)), None).encryptor().update(bytes(4 * _VALUES))

    return HotPath(
        f"masks of a client, {_NEIGHBOURS} neighbours, {_VALUES:,} values",
        lambda: all_pairs(_NEIGHBOURS + 1, _VALUES),
        limit,
        "the key exchanges, and as many bytes of ChaCha20",
        "Flower's SecAgg+, 21.4 ms (1.41, 2026-11-23)",
    )


def parquet(folder: Path) -> HotPath:
    import pyarrow as pa
    from pyarrow import parquet as pq

    path, rng = folder / "rows.parquet", np.random.default_rng(0)
    table = pa.table({f"x{k}": rng.normal(size=ROWS) for k in range(_FEATURES)})
    pq.write_table(table, path, row_group_size=50_000)
    rows = ParquetRows.numbers(path, aside=())
    return HotPath(
        f"features of {ROWS:,} Parquet rows of {_FEATURES} columns, by row group",
        lambda: [block.shape for _, block in rows.blocks(rows.pieces)],
        lambda: pq.read_table(path),
        "pyarrow reads the same file",
    )


def rows() -> HotPath:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(ROWS, _FEATURES)), rng.integers(0, 2, ROWS)
    cells = QuantileCells().fit(rng.normal(size=(2_000, _FEATURES)))
    copy = np.empty_like(X)
    return HotPath(
        f"a table of counts from {ROWS:,} rows of {_FEATURES} columns",
        lambda: RowVoter(cells=cells).fit(X, y).vote(),
        lambda: np.copyto(copy, X),
        "a copy of the rows in memory",
        why="each number is looked up among the public bins, and each row dealt by a keyed hash",
    )


def noise() -> HotPath:
    fresh = iter(range(1, 10_000))
    heights = np.linspace(-8.0, 8.0, 529)

    def ours() -> float:
        return (100 * GNMax(sigma=40.0 + 1e-6 * next(fresh)).curve(bound="exact")).epsilon(1e-5)

    return HotPath(
        "exact ε of 100 argmaxes with a new noise",
        ours,
        lambda: ndtr(heights) - np.exp(log_ndtr(heights)),
        "the normal chances of one Gaussian at as many heights",
        "dp-accounting's PLD of a Gaussian, 25 ms (0.6.0, 2026-11-23): 1.356 where ours is 1.072",
        "Rényi and Gaussian bounds of the same answers are computed beside, and curves are made and checked",
    )


def audit() -> HotPath:
    guesses = Guesses.fixed_in_advance([7_400], [10_000], n_canaries=10_000)

    def limit() -> None:
        from scipy.special import bdtrc

        bdtrc(np.arange(7_400), 10_000, 0.71)

    return HotPath(
        "one-run bound, 7,400 of 10,000 guesses right",
        lambda: _lower_ends(guesses, "steinke", delta=1e-3, error=0.05),
        limit,
        "the binomial tails, once",
        "jax-privacy 2.0.0, 23 ms where ours took 9.6 (2026-11-27, load 18)",
        "the end of an interval is searched for: about ten evaluations of two bounds",
    )


def figures(path: HotPath) -> tuple[float, float]:
    """Seconds of the processor of ours and of the limit: the fastest of some, by turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    path.ours()  # what is loaded once
    for _ in range(ROUNDS):
        for work, times in zip((path.ours, path.limit), spent, strict=True):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return max(min(spent[0]), 1e-9), max(min(spent[1]), 1e-9)


def said(seconds: float) -> str:
    """Milliseconds, with three digits."""
    return f"{1e3 * seconds:.3g} ms"


def main() -> None:
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # tables of before do not help
        place = Path(folder)
        in_files = (make(place) for make in (charge, verify, parquet))
        paths = (release(), ballots(), *in_files, masks(), rows(), noise(), audit())
        for path in paths:
            ours, limit = figures(path)
            ratio = ours / limit
            if ratio > FAR and PAGE is not None and not path.why:
                raise ValueError(f"{path.name} is {ratio:.1f} times its limit: mend it, or say why")
            why = path.why if ratio > FAR else ""
            print(f"{path.name}: {said(ours)}, limit {said(limit)} ({path.least}), {ratio:.1f} x", flush=True)
            cells = (path.name, said(ours), said(limit), f"{ratio:.1f} ×", path.least, path.peer, why)
            lines.append(f"| {' | '.join(cells)} |")
    if PAGE is not None:
        PAGE.write_text(
            _TEXT.format(
                date=f"{datetime.now(UTC):%Y-%m-%d}", load=os.getloadavg()[0], table="\n".join(lines)
            )
        )


_TEXT = """# The limit beside each figure

What the hot paths take, and what they cannot take less than: bytes that must be moved, numbers that must be
drawn, curve operations, hashes, products. Both are measured by turns in one process, in processor time, the
fastest of some. `python -m bench limits` measures and writes this page; this one is of {date}, at a load of
{load:.1f}. The [record of peers](peers.md) says how they were run. Whatever takes more than three
times its limit says why.

| path | ours | limit | distance | what the limit is | best peer | why it is further than 3 × |
|---|---|---|---|---|---|---|
{table}

How time and memory grow with size is another question: `python -m bench slopes` answers it for every verb,
and `python -m bench long_ledger` for a ledger of ten million entries.

![Time and memory of twenty verbs by size: lines beside one of slope 1.](slopes.svg)

Of twenty verbs from 10⁴ to 10⁶ (2026-11-27, load 3), three have a slope of time above 1.05: counting rows
that are a table in memory 1.19 (.84 s at 10⁶, past the processor's cache), verifying a ledger and drawing
synthetic rows 1.07. Slopes of memory are at most 1.02.

Two things were asked to be faster than they are:

- **32 reference networks trained together** are 2.4 times as fast as one by one
  ([membership](../membership.md)); 8 times was asked. Products of the first layer take 2.4 of the 4.0
  seconds, and must be computed by any way that trains the same networks, so that even a stack without any
  other work would be 4 times as fast. What the rest is spent on was not settled on a quiet machine. The
  code stays, as ensembles of teachers train by it, too.
- **A new noise of 65 answers and more at σ from 8.8 to 10.6** takes about .02 s the first time (.07 at a
  load of 12), and then stands in the user's folder. So many answers are not followed there, and the table of
  what one adds beside a Gaussian would need eight times as many columns.
"""


if __name__ == "__main__":
    main()
