"""A ledger of up to ten million entries: time and memory of what is asked of it.

Each verb runs in a process of its own, so that its memory is its own. ``OSTRAKA_BENCHMARK_ENTRIES`` sets the
largest ledger. Entries are written in the ledger's own code, but without its triggers and with two indexes
made at the end: filling is not what is measured.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from bench._apart import apart
from ostraka import Budget, GNMax, Ledger
from ostraka.core.ledger.chain import CHARGE, Row, Seal
from ostraka.core.ledger.witness import Anchor
from ostraka.mechanisms import Subsampled

__all__ = ["main"]

MOST = int(os.environ.get("OSTRAKA_BENCHMARK_ENTRIES", "1000000"))
SIZES = [size for size in (10**4, 10**5, 10**6, 10**7) if size <= MOST]
NAMES: tuple[str, ...] = ()  # of verbs; none: all
QUICK = {"SIZES": [500], "NAMES": ("show",)}
LOT = 10_000
UNIT = "row (add-or-remove)"
PRICE = Subsampled(mechanism=GNMax(sigma=1e6), sampling_rate=0.1)
LATER = ("entry_key", "entry_asked")  # indexes of random values, made when all entries are there

SETUP = """
import sys
import numpy as np
from ostraka import Adjacency, GNMax, Ledger, Private, release
from ostraka.mechanisms import Subsampled
path = sys.argv[1]
sample = Private(np.array([[90, 10], [5, 95]]), Adjacency(relation="add-or-remove", sampling_rate=0.1))
votes = Subsampled(mechanism=GNMax(sigma=40.0), sampling_rate=0.1)
"""
OPEN = "ledger = Ledger(path, read_only=True, verify=False)"
OWNED = "ledger = Ledger(path, anchor=path + '.anchor')"
CHARGE_ONE = "ledger.charge(votes, uses=1, unit='row (add-or-remove)', simulation=False)"
VERBS = {
    "open, from the newest totals": ("", OPEN),
    "show": (
        "import contextlib, io; from ostraka.cli.ledger import show; show = show.callback",
        "with contextlib.redirect_stdout(io.StringIO()): show(path, last=100, secret=None, as_json=True)",
    ),
    "left, first of a process": (OPEN, "ledger.left()"),
    "left, after another charge": (f"{OWNED}; ledger.left(); {CHARGE_ONE}", "ledger.left()"),
    "charge": (OWNED, CHARGE_ONE),
    "release of a sample under a key, again": (
        f"{OWNED}; release(votes, sample, ledger=ledger, key='sample')",
        "release(votes, sample, ledger=ledger, key='sample')",
    ),
    "verify": (OPEN, "ledger.verify()"),
}


def fill(path: Path, entries: int) -> None:
    """Write a grant and so many questions of one client, less one, in lots as a service does."""
    with Ledger(path, budget=Budget(epsilon=50.0, delta=1e-6)) as ledger:
        ledger.grant("ann", budget_epsilon=50.0)
        store, quote = ledger._store, ledger._prices.quote(PRICE)  # noqa: SLF001  (past the keys it looks up)
        db = store._db  # type: ignore[attr-defined]  # noqa: SLF001
        parts = db.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE type = 'trigger' OR name IN (?, ?)", LATER
        ).fetchall()
        for kind, name, _ in parts:
            db.execute(f"DROP {kind} {name}")
        for first in range(2, entries + 1, LOT):
            numbers = range(first, min(entries + 1, first + LOT))
            with ledger._writing() as history:  # noqa: SLF001
                priced = history.price(*quote)
                for balance in (history.dataset, history.accounts["ann"]):
                    history.take(balance, priced, uses=len(numbers))
                history.write([question(n, priced.id) for n in numbers], store)
        for _, _, sql in parts:
            db.execute(sql)
    with Ledger(path, read_only=True, verify=False) as ledger:
        assert ledger.count() == entries
        anchor = Anchor(f"{path}.anchor", Seal(None))
        anchor.write(entries, bytes.fromhex(ledger.head))
        anchor.close()


def question(seq: int, price: int) -> Row:
    """One answered question, under a key and a digest of its own."""
    digest = hashlib.sha256(b"%d" % seq).digest()
    key, answer = digest[:16].hex(), seq % 10
    return Row(seq, CHARGE, "ann", key, price, 1, UNIT, 0, 0.0, asked=digest, answer=answer)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.sqlite"
            fill(path, size)
            for verb in NAMES or VERBS:
                before, work = VERBS[verb]
                spent = apart(SETUP + before, work, path)
                figures = f"{spent.seconds:.4f} s, {spent.processor:.4f} s of processor, {spent.peak:.0f} MiB"
                print(f"{size:,} entries, {verb}: {figures}", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
