"""Tampering: every byte, row and column of a ledger is changed; rows vanish, double and change places.

Each change must be refused, or change nothing that the ledger says: budget, entries, answers, accounts, head.
What is a ledger in itself (a shorter one, an older copy, one made by somebody else) is tried where an anchor
or a secret is there to tell. As a control, SQLite without the chain takes most of the edits.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ostraka import Ledger
from ostraka.ledger import LedgerError
from rigs import charging, power
from rigs.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Files = dict[str, bytes]

__all__ = ["find"]


def files_of(folder: Path) -> Files:
    unwanted = (f"{charging.NAME}-shm", f"{charging.NAME}-owner")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in unwanted}


@dataclass(slots=True)
class Bench:
    """A ledger to tamper with, and what was noticed."""

    mode: charging.ChargingMode
    folder: Path
    whole: Files = field(default_factory=dict)  # closed properly
    crashed: Files = field(default_factory=dict)  # the same, its last charges in the log
    older: Files = field(default_factory=dict)
    truth: object = None
    tried: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    fooled: int = 0

    def fill(self, charges: int) -> None:
        with self.mode.open(self.folder) as ledger:
            for n in range(charges):
                self.mode.pay(ledger, f"k{n}")
                if n == charges // 2:
                    self.older = files_of(self.folder)
            self.truth = self.mode.said(ledger)
            self.crashed = files_of(self.folder)
        self.whole = files_of(self.folder)

    def judge(self, kind: str, files: Files) -> None:
        power.lay_out(self.folder, files)
        self.tried[kind] += 1
        try:
            with self.mode.open(self.folder) as ledger:
                ledger.verify()
                if self.mode.said(ledger) != self.truth:
                    self.wrong[f"{kind} not noticed"] += 1
        except LedgerError:
            return
        except Exception as error:  # noqa: BLE001  (refused, but not as damage)
            self.wrong[f"{kind} raised {type(error).__name__}"] += 1

    def edit(self, kind: str, *changes: tuple[str, tuple[object, ...]] | str) -> None:
        """Change rows behind the triggers' back, where SQLite itself allows it."""
        power.lay_out(self.folder, self.whole)
        if charging.behind_the_triggers(self.folder, *changes):
            self.fooled += 1
            self.judge(kind, files_of(self.folder))


def another(value: Any) -> Any:
    """A value of the same type, only just different."""
    match value:
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:] if value else b"\0"
        case _:
            return 1


def columns(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        for _, column, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
            yield table, column


def edits(bench: Bench) -> None:
    """Every cell changed; every row gone; every entry in the place of its neighbour."""
    power.lay_out(bench.folder, bench.whole)
    with closing(sqlite3.connect(bench.folder / charging.NAME)) as db:
        places: dict[str, list[str]] = {}
        for table, column in columns(db):
            places.setdefault(table, []).append(column)
        rows = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in places}
    for table, named in places.items():
        this = " AND ".join(f"{column} IS ?" for column in named)
        for row in rows[table]:
            for column, value in zip(named, row, strict=True):
                changed = f"UPDATE {table} SET {column} = ? WHERE {this}"
                bench.edit("cell changed", (changed, (another(value), *row)))
            if (table, row) == ("entry", rows["entry"][-1]):
                continue  # a ledger in itself: only an anchor tells
            bench.edit("row removed", (f"DELETE FROM {table} WHERE {this}", row))
    for place in range(1, len(rows["entry"])):
        steps = ((place, -7), (place + 1, place), (-7, place + 1))
        swap = [f"UPDATE entry SET seq = {to} WHERE seq = {now}" for now, to in steps]
        bench.edit("entries swapped", *swap)


def flips(bench: Bench, files: Files, kind: str, *, limit: int, rng: random.Random) -> None:
    """A bit of every byte, or of so many bytes."""
    everywhere = [(name, at) for name, content in files.items() for at in range(len(content))]
    for name, at in everywhere if len(everywhere) <= limit else rng.sample(everywhere, limit):
        content = bytearray(files[name])
        content[at] ^= 1 << rng.randrange(8)
        bench.judge(kind, files | {name: bytes(content)})


def cuts(bench: Bench, *, step: int) -> None:
    for name, content in bench.whole.items():
        for size in range(0, len(content), step):
            bench.judge("file cut short", bench.whole | {name: content[:size]})


def forged(bench: Bench) -> None:
    """A ledger of somebody who does not know the secret."""
    with power.quick_folder() as elsewhere:
        budget = bench.mode.budget
        with Ledger(
            elsewhere / charging.NAME, budget=budget, secret=b"somebody else's secret, as long!"
        ) as forged:
            forged.grant(charging.CLIENT, budget_epsilon=1000.0)
        files = files_of(elsewhere)
    bench.judge("made with another secret", bench.whole | files)


def replaced(bench: Bench) -> None:
    """Return ledgers that are consistent, but are not this one."""
    if anchors := [name for name in bench.whole if name != charging.NAME]:
        anchor_files = {name: bench.whole[name] for name in anchors}
        bench.judge("older copy put back", bench.older | anchor_files)
        last = "SELECT max(seq) FROM entry"
        for count in (1, 2, 5):
            bench.edit("newest entries removed", f"DELETE FROM entry WHERE seq > ({last}) - {count}")
        without = {name: content for name, content in bench.crashed.items() if not name.endswith("-wal")}
        bench.judge("log removed", without)
        flips(
            bench,
            {name: c for name, c in bench.crashed.items() if name.endswith("-wal")} | anchor_files,
            "flip in the log",
            limit=200,
            rng=random.Random(2),
        )


def find(mode: str, *, charges: int = 20, flipped: int = 10**9, step: int = 512, seed: int = 7) -> Finding:
    """Run all of it on one small ledger."""
    with power.quick_folder() as folder:
        bench = Bench(charging.MODES[mode], folder)
        bench.fill(charges)
        flips(bench, bench.whole, "byte", limit=flipped, rng=random.Random(seed))
        edits(bench)
        fooled = bench.fooled
        cuts(bench, step=step)
        if mode == "owned":
            forged(bench)
        if mode != "shared":
            replaced(bench)
    what = ", ".join(f"{count:,} × {kind}" for kind, count in bench.tried.items())
    return Finding(
        tried=what,
        wrong=bench.wrong,
        control=f"SQLite itself took {fooled:,} of the row edits",
        blind=not fooled,
    )
