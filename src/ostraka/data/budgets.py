"""One table, one budget: a folder beside the data has a ledger for each table, whatever was released from it.

A table is known again by its path, or by digests of its rows or of its people under a key of the folder. The
digests and the key are private: who has both can check a guess about a row.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.core import files
from ostraka.core.ledger.budget import Budget, LedgerError
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.private import promise_words
from ostraka.data.guards import bits, mixed_in
from ostraka.data.parquet import ENDINGS
from ostraka.data.table import EXCEL, Table, of_frame, opened, sheet_rows, sheets
from ostraka.data.units import LATEST
from ostraka.data.units import named as named_people
from ostraka.report.page import of_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ostraka.core.curve import Priced
    from ostraka.core.result import Result

FOLDER = "ostraka-ledgers"  # beside the data
_SECRET, _LOCK, _FITS = "secret", "lock", "fits"
_SKETCH = 512  # smallest digests that are kept
_SAME_PEOPLE, _SAME_ROWS = 0.05, 0.5  # shares of a sketch that two versions of one table have in common
_UNBOUNDED = 1e6  # the ledger of a table counts; the ledger of a run refuses
_VERSION = 1
_DIGESTS = 2  # version of digests of cells: 1 hashed each number as a text
_AT_ONCE = 1 << 16  # rows that are read and hashed at a time
_OWNERS = {"row": ("person",), "label": ("row", "person")}  # units of which each of the others is a part
_ROWS = {"document": "row"}  # of its row only a document and its class are read


class Units(NamedTuple):
    """Digests of the rows and people of a table under a folder's key: the smallest, in order. Private."""

    rows: np.ndarray
    people: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What all releases from one table cost one unit.

    Attributes
    ----------
    epsilon, delta : float
        An upper bound by composition; 0 where nothing was released.
    releases : int
        How many runs it is of.
    others : int
        Further runs under promises that do not cover this unit, such as runs that protect rows where the
        unit is a person.
    """

    epsilon: float
    delta: float
    releases: int
    others: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Account:
    """The ledgers of one table: one for each promise (unit and neighbouring relation) and kind of curve.

    Attributes
    ----------
    folder : Path
    name : str
        Of the file.
    number : str
        Of the table in its folder.
    """

    folder: Path
    name: str
    number: str
    _open: dict[tuple[str, str], Ledger] = field(default_factory=dict)

    def charge(
        self, mechanism: Priced, *, uses: int, unit: str, simulation: bool, key: str, delta: float
    ) -> None:
        """Record the cost of a release durably. A key that was charged before costs nothing."""
        moves = mechanism.curve().moves
        unit = promise_words(*_promise(unit))
        ledger = self._open.get((unit, moves))
        if ledger is None:
            words = [part.replace(" ", "-") for part in _promise(unit) if part != "replace-one"]
            path = self.folder / f"{self.number}-{'-'.join(words)}.sqlite"
            if path.exists():  # a ledger adds curves of one kind; this one may have begun with another
                with Ledger(path, read_only=True) as first:
                    if first.unit is not None and first.spent().moves != moves:
                        path = path.with_name(f"{path.stem}-{moves}.sqlite")
            budget = None if path.exists() else Budget(epsilon=_UNBOUNDED, delta=delta, adaptive=False)
            ledger = self._open[unit, moves] = Ledger(path, budget=budget)
        ledger.charge(mechanism, uses=uses, unit=unit, simulation=simulation, key=key)

    def spent(self, unit: str, *, but: str | None = None) -> Spent:
        """What all releases cost one unit, such as ``"person"`` or ``"row (zero-out)"``.

        ``but`` is a run that does not count.

        Guarantees
        ----------
        Releases of one promise compose as one ledger adds them, those of different kinds (votes and counts)
        by basic composition. A release of another promise counts where it is known to cover this one: once
        where it is at least as strong, and as a group of two (Dwork & Roth 2014, Thm 2.2: (epsilon, delta)
        becomes (2 epsilon, (1 + e^epsilon) delta)) where both worlds are one step from the world without the
        unit. Sums over several promises are by basic composition (Thm 3.16).
        It is a reading of what was charged, for releases whose prices no earlier answer decided.
        """
        epsilon = delta = 0.0
        releases = others = 0
        for path in self._paths():
            with Ledger(path, read_only=True) as ledger:
                runs = {(entry.key or "").partition("/")[0] for entry in ledger.scan() if entry.uses}
                runs -= {but}
                steps = _steps(_promise(ledger.unit or unit), _promise(unit))
                cost, chance = ledger.epsilon(), ledger.budget.delta
            if runs and not steps:
                others += len(runs)
            elif runs:
                if steps == 2:
                    cost, chance = 2 * cost, (1 + math.exp(min(cost, 700.0))) * chance
                epsilon, delta, releases = epsilon + cost, delta + chance, releases + len(runs)
        return Spent(epsilon=epsilon, delta=min(delta, 1.0), releases=releases, others=others)

    def record(self, result: Result) -> Result:
        """The record of a release, with what all releases from its table cost one unit."""
        unit = promise_words(result.settings["unit"], result.settings["relation"])
        return replace(result, upper={**result.upper, "table": self.spent(unit).to_dict()})

    def units(self) -> list[str]:
        """The promises that were made from this table, such as ``"person"``."""
        promises = []
        for path in self._paths():
            with Ledger(path, read_only=True) as ledger:
                promises += [ledger.unit] if ledger.unit and ledger.unit not in promises else []
        return promises

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"{self.number}-*.sqlite"))

    def close(self) -> None:
        """Close its ledgers."""
        while self._open:
            self._open.popitem()[1].close()


class TableLedger(Ledger):
    """The ledger of a run, which charges the ledger of its table first.

    Parameters
    ----------
    where, budget
        As for :class:`~ostraka.Ledger`: what this run may spend.
    account : Account
        Of the table.
    run : str
        Names the run in the table's ledger: a run that is continued pays nothing twice.
    """

    def __init__(self, where: Any, *, budget: Budget | None, account: Account, run: str) -> None:
        self.account, self.run = account, run  # first: a ledger that is damaged closes both
        super().__init__(where, budget=budget)

    def charge(
        self, mechanism: Priced, *, uses: int, unit: str, simulation: bool, key: str | None = None
    ) -> int:
        """Charge the table, then this ledger; see :meth:`ostraka.Ledger.charge`."""
        if self.affords(mechanism, uses=uses):  # else this ledger refuses, or knows the key
            name = secrets.token_hex(8) if key is None else key
            delta = self.budget.delta
            self.account.charge(
                mechanism, uses=uses, unit=unit, simulation=simulation, key=f"{self.run}/{name}", delta=delta
            )
        return super().charge(mechanism, uses=uses, unit=unit, simulation=simulation, key=key)

    def close(self) -> None:
        """Close both."""
        self.account.close()
        super().close()


class Tables:
    """A folder of ledgers of tables.

    Parameters
    ----------
    folder : path
        Made when the first table is charged.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._read: dict[tuple[str, int], np.ndarray] = {}  # digests of a file, which take long

    @classmethod
    def beside(cls, table: Path, *, unless: Path | None = None) -> Tables:
        """The folder beside a table, unless another one is named."""
        return cls(table.resolve().parent / FOLDER if unless is None else unless)

    def fit(self, content: str) -> Path:
        """The private folder of one fit, which ``content`` names: a digest of its settings and rows."""
        name = hashlib.blake2b(content.encode(), key=self._key(), digest_size=8).hexdigest()
        place = self.folder / _FITS / name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return place

    def accounts(self) -> list[Account]:
        """The tables that there are, by name."""
        accounts = [Account(self.folder, record["name"], record["number"]) for record in self._records()]
        return sorted(accounts, key=lambda account: (account.name, account.number))

    def known(self, path: Path | None, people: Any = None, *, rows: Any = None) -> Account | None:
        """The account of a table that was released from before; None where there is none. Writes nothing."""
        if not (self.folder / _SECRET).exists():
            return None
        record = self._record(path, people, rows)
        return None if record is None else Account(self.folder, record["name"], record["number"])

    def story(self, path: Path, people: Any = None, *, unit: str, run: str | None) -> str:
        """A sentence on what was released from a table before, but by ``run``; empty if nothing was."""
        account = self.known(path, people)
        before = None if account is None else account.spent(unit, but=run)
        if before is None or not (before.releases or before.others):
            return ""
        cost = of_table(before.to_dict())
        return f"released before from this table, as {self.folder} has it: {cost}. This release comes on top"

    def account(self, path: Path | None, people: Any = None, *, rows: Any = None) -> Account:
        """The account of a table; a new one if neither its path nor its rows or people are known.

        Parameters
        ----------
        path : Path or None
            Of the table. None: rows in memory.
        people : array of shape (n_rows,), optional
            Private. Whom each row belongs to.
        rows : array of shape (n_rows, n_columns), optional
            Private. The rows in memory.

        Raises
        ------
        LedgerError
            The folder cannot be written.
        """
        self._key()  # makes the folder
        with (self.folder / _LOCK).open("a") as file:
            with contextlib.suppress(ImportError):  # not on Windows: one process at a time is up to its user
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            record = self._record(path, people, rows)
            if record is None:
                name = "rows in memory" if path is None else path.name
                record = {"version": _VERSION, "name": name, "number": secrets.token_hex(6), "paths": []}
            # what is known of it from now on: one path more, and the newest digests
            before = dict(record)
            record["paths"] = sorted({*record["paths"], *([] if path is None else [str(path.resolve())])})
            for name, digests in self._units(path, people, rows, version=_DIGESTS)._asdict().items():
                if len(digests):
                    record[name] = [int(digest) for digest in digests]
            record["digests"] = _DIGESTS
            if record != before or not record["paths"]:
                files.write(self.folder / f"{record['number']}.json", json.dumps(record), private=True)
        return Account(self.folder, record["name"], record["number"])

    def _record(self, path: Path | None, people: Any, rows: Any) -> dict[str, Any] | None:
        records = self._records()
        for record in records:
            if path is not None and str(path.resolve()) in record["paths"]:
                return record
        for version in sorted({record.get("digests", 1) for record in records}, reverse=True):
            units = self._units(path, people, rows, version=version)
            of_version = [record for record in records if record.get("digests", 1) == version]
            for record in of_version:
                for name, least in (("people", _SAME_PEOPLE), ("rows", _SAME_ROWS)):
                    earlier, digests = np.array(record.get(name, []), dtype=np.uint64), getattr(units, name)
                    if len(earlier) and len(digests):
                        # the smallest digests of two sketches together are a sample of both tables' units
                        union = np.union1d(earlier, digests)[:_SKETCH]
                        shared = np.isin(union, earlier) & np.isin(union, digests)
                        if shared.mean() > least:
                            return record
        return None

    def _units(self, path: Path | None, people: Any, rows: Any, *, version: int) -> Units:
        """Digests of a table's rows, and of its people. Rows of a text file are its lines, in any order."""
        key = self._key()
        named = [] if people is None else named_people(people, version=LATEST)[1]
        if rows is not None or path is None:
            digests = _smallest([_row_digests(rows, key, version=version)])
        else:
            digests = self._read.get((str(path), version), np.zeros(0, dtype=np.uint64))
            if not len(digests):
                digests = self._read[str(path), version] = _smallest(
                    _file_digests(path, key, version=version)
                )
        return Units(digests, _smallest([_digests(named, key)]))

    def _key(self) -> bytes:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            return files.create(self.folder / _SECRET, os.urandom(32))
        except OSError as error:
            raise LedgerError(
                f"the ledger of the table cannot be kept in {self.folder} ({error.strerror}): type --ledger "
                "with a folder that can be written ('ostraka write': --tables), and keep it with the data"
            ) from error

    def _records(self) -> list[dict[str, Any]]:
        records = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                record = json.loads(path.read_text())
                is_current = record["version"] == _VERSION
            except (ValueError, KeyError, TypeError):
                is_current = False
            if not is_current:
                raise LedgerError(f"{path} is damaged, or of another version: take it from a backup")
            records.append(record)
        return records


def _steps(promised: tuple[str, str], wanted: tuple[str, str]) -> int:
    """How many steps between neighbours of a kept promise make one of a wanted promise; 0: not known."""
    (unit, relation), (wanted_unit, wanted_relation) = promised, wanted
    within = unit in _OWNERS.get(wanted_unit, ())
    if promised == wanted or (within and relation == wanted_relation == "replace-one"):
        return 1
    leaves_out = relation in {"zero-out", "add-or-remove"}
    if leaves_out and within:
        return 2  # both worlds are one step from the world without the owner
    if leaves_out and unit == wanted_unit:
        return {"replace-one": 2, "zero-out": 1}.get(wanted_relation, 0)
    return 0


def _promise(unit: str) -> tuple[str, str]:
    """Unit and relation of what a ledger records, such as ``"row (zero-out)"``."""
    name, _, relation = unit.partition(" (")
    return _ROWS.get(name, name), relation.rstrip(")") or "replace-one"


def _smallest(parts: Iterable[np.ndarray]) -> np.ndarray:
    """The smallest of all digests, which come part by part."""
    smallest = np.zeros(0, dtype=np.uint64)
    for part in parts:
        some = part if len(smallest) < _SKETCH else part[part < smallest[-1]]
        smallest = np.unique(np.concatenate([smallest, some]))[:_SKETCH]
    return smallest


def _digests(texts: Iterable[str | bytes], key: bytes) -> np.ndarray:
    """A keyed digest of each text, unsigned, 64 bits."""
    start, joined = hashlib.blake2b(key=key, digest_size=8), bytearray()
    for text in texts:
        digest = start.copy()
        digest.update(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        joined += digest.digest()
    return np.frombuffer(joined, dtype=">u8").astype(np.uint64)


def _row_digests(rows: Any, key: bytes, *, version: int) -> np.ndarray:
    """Digests of rows in memory."""
    if hasattr(rows, "columns"):
        table = of_frame(rows, name="rows in memory", public=False)
        return _cell_digests(table, key, version=version)
    array = np.ascontiguousarray(np.zeros((0, 1)) if rows is None else rows)
    return _digests((row.tobytes() for row in array), key)


def _file_digests(path: Path, key: bytes, *, version: int) -> Iterator[np.ndarray]:
    """Digests of the rows of a file, or of the lines of a text, in parts; a folder is known by its path."""
    ending = path.suffix.lower()
    if path.is_dir():
        return
    if ending in ENDINGS:
        import pyarrow as pa
        from pyarrow import parquet

        for batch in parquet.ParquetFile(path).iter_batches(_AT_ONCE):
            table = Table(path, pa.Table.from_batches([batch]), np.arange(batch.num_rows))
            yield _cell_digests(table, key, version=version)
    elif ending == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            table_of_numbers = next((arrays[name] for name in arrays.files if arrays[name].ndim > 1), None)
        yield _row_digests(table_of_numbers, key, version=version)
    elif ending in EXCEL:
        lines = (row for name in sheets(path) for row in sheet_rows(path, name))
        yield _digests(("\0".join(cell or "" for cell in line) for line in lines), key)
    else:
        with opened(path) as file:
            while len(digests := _digests((line.strip() for line in itertools.islice(file, _AT_ONCE)), key)):
                yield digests


def _cell_digests(table: Table, key: bytes, *, version: int) -> np.ndarray:
    """Digests of rows by their cells: numbers as they are, of texts the different ones hashed once."""
    import pyarrow as pa

    mixed = np.full(len(table), int.from_bytes(key[:8]), dtype=np.uint64)
    for name in sorted(table.names):
        kind = table.frame.schema.field(name).type
        if version > 1 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            mixed ^= _digests([name], key)
            mixed_in(mixed, bits(table.frame[name].cast(pa.float64(), safe=False).to_numpy()))
            continue
        codes, texts = table.kinds(name)
        mixed ^= _digests((f"{name}\0{text}" for text in texts), key)[codes]
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
