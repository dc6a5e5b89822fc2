"""Protected units, and their partition into shards, which is made once by a keyed hash and stored.

A unit is a row, or all rows of one person, however the person's identifier is written.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import math
import os
import re
import unicodedata
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.data.labels import Coded, looked_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LATEST = 4  # version of the spelling of identifiers, which is that of 3, and of how a manifest is written
_STATED = 4  # version from which rows are stated by a seed, and people by their places alone
_DIGITS = 400  # of an identifier that is written out; a larger number is written with an exponent
_LARGEST = 2.0**53  # of floats: above, whole numbers that differ are one float
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?([+-]\d\d:?\d\d|Z)?)?", re.ASCII)
_VERSIONS = range(1, LATEST + 1)  # of the order in partition, of the spelling of identifiers and of JSON
_SEED_BYTES = 32
# rows that are hashed, checked and written at a time; their bytes in base 64 have no padding
_BLOCK = 3 << 18
_UNITS, _END = ', "units": "', '"}'  # around the units of people, which end the JSON
_KEY_BYTES = (16, 64)  # a shorter key can be guessed from its commitment; BLAKE2b takes no longer one


def numbered(units: Any) -> tuple[np.ndarray, int, str]:
    """The number of each row's unit, how many units there are, and what a unit is. Private."""
    if are_rows(units):
        return np.arange(units), int(units), "row"
    codes, names = named(units, version=LATEST)
    return codes, len(names), "person"


def count(units: Any) -> int:
    """How many units there are."""
    return int(units) if are_rows(units) else len(named(units, version=LATEST)[1])


def are_rows(units: Any) -> bool:
    """Whether each row is a unit, and ``units`` their number."""
    if not isinstance(units, int | np.integer) or isinstance(units, bool):
        return False
    check.integer(n_rows=int(units), least=1)
    return True


def named(units: Any, *, version: int) -> tuple[np.ndarray, list[str]]:
    """The number of each row's person, and the names of the persons in this order.

    Raises
    ------
    ValueError
        A row names nobody; or it names a person by a truth value or by a float above 2**53, in which several
        people would be one, and one person two.
    """
    if isinstance(units, People) and version == LATEST:
        return units.named
    if isinstance(units, list | tuple) and not any(isinstance(cell, list | tuple) for cell in units):
        # each cell keeps its type, where an array would make all of them text
        array = np.fromiter(units, dtype=object, count=len(units))
    else:
        array = np.asarray(units)
        array = np.where(np.isnat(array), "", array.astype(np.str_)) if array.dtype.kind == "M" else array
    if array.ndim != 1 or not len(array):
        raise ValueError(f"units must name the person of each row, in one dimension, got shape {array.shape}")
    # two spellings of one person must not be two units: joining two people is safe, splitting one is not
    spelled: Callable[[Any], str] = _spelled if version == 1 else _canonical if version == 2 else _one_form
    spelled = str if array.dtype.kind in "iu" else spelled
    if array.dtype.kind in "iufSU":
        values, places = np.unique(array, return_inverse=True)
    else:
        values, places = array, np.arange(len(array))
    names, codes = np.unique([spelled(value) for value in values.tolist()], return_inverse=True)
    if (names == "").any():
        raise ValueError("every row must name its person, but some do not: drop these rows or fill them in")
    return codes[places], names.tolist()


class People(Coded):
    """Whom each of many rows belongs to, as places of the different identifiers. Private.

    Examples
    --------
    >>> people = People(np.array(["7", "007", "ann"]), np.array([2, 0, 1, 0], dtype=np.uint8))
    >>> codes, names = people.named
    >>> codes.tolist(), names
    ([1, 0, 0, 0], ['7', 'ann'])
    """

    @cached_property
    def named(self) -> tuple[np.ndarray, list[str]]:
        """The number of each row's person in few bytes, and the persons' names; worked out once."""
        places, names = named(self.values, version=LATEST)
        same = np.array_equal(places, np.arange(len(places)))
        return self.codes if same else looked_up(places, self.codes), names


def partition(units: Any, *, n_teachers: int, key: bytes | None = None, version: int = LATEST) -> Manifest:
    """Assign the units to the teachers in the order of a keyed hash, in equal numbers.

    Parameters
    ----------
    units : int, or array of shape (n_rows,)
        The number of rows, if each row is a unit. Otherwise the person of each row: numbers or text,
        private. Identifiers are the same person if they are the same number ("7", 7.0, "007") or the
        same text after Unicode normalisation (NFC) and without invisible characters, or the same time
        (a date is its midnight). Truth values, and floats of 2**53 or more, are refused.
    n_teachers : int
        Number of shards. Public.
    key : bytes, 16 to 64, optional
        Its holder can compute a unit's shard from its name. None: 32 bytes from the operating system,
        which are not stored.
    version : int, default 4
        1, 2 or 3 repeat manifests of these versions, to verify one with its key.

    Returns
    -------
    Manifest
        Checked. Its docstring states the neighbouring relation.

    Raises
    ------
    ValueError
        Fewer units than teachers, a row without a person, or a key that is too short or too long.

    Examples
    --------
    >>> partition(1297, n_teachers=100).rows()[0].shape
    (13,)
    """
    check.integer(n_teachers=n_teachers, least=1)
    key = os.urandom(32) if key is None else key
    if not isinstance(key, bytes) or not _KEY_BYTES[0] <= len(key) <= _KEY_BYTES[1]:
        raise ValueError(f"key must be {_KEY_BYTES[0]} to {_KEY_BYTES[1]} bytes, or None for a new one")
    rows = are_rows(units)
    if rows:
        unit, n_units = "row", int(units)
    else:
        codes, names = named(units, version=version)
        unit, n_units = "person", len(names)
    if n_units < n_teachers:
        many = {"row": "rows", "person": "people"}[unit]
        raise ValueError(
            f"{n_teachers} teachers need at least {n_teachers} {many}, but there are {n_units}: "
            f"use n_teachers={n_units} or fewer"
        )
    facts: dict[str, Any] = {
        "n_teachers": int(n_teachers),
        "unit": unit,
        "commitment": hashlib.sha256(b"ostraka manifest key\0" + key).hexdigest(),
        "version": version,
    }
    seed = hashlib.blake2b(b"ostraka rows of a manifest", digest_size=_SEED_BYTES, key=key).digest()
    if rows and version >= _STATED:
        return Manifest(**facts, n_rows=n_units, seed=seed)
    if rows and version > 1:
        places = _ranks(n_units, seed)
    else:
        rank = np.empty(n_units, dtype=np.int32)
        named_units = map(str, range(n_units)) if rows else names
        rank[_order(_name_hashes(named_units, unit, key))] = np.arange(n_units, dtype=np.int32)
        places = rank
        if not rows:
            places = np.empty(len(codes), dtype=np.int32)
            for some in blocks(len(codes)):
                places[some] = rank[codes[some]]
    places.setflags(write=False)
    return Manifest(**facts, shards=places if n_teachers == n_units else places % n_teachers, units=places)


def deal(
    units: Any, *, n_rows: int, n_teachers: int, manifest: Manifest | None = None, key: bytes | None = None
) -> Manifest:
    """A new manifest, or the given one after checking that it fits. ``units`` as for :func:`partition`."""
    if not isinstance(units, int) and len(units) != n_rows:
        raise ValueError(f"groups must name one person for each row: got {len(units)} for {n_rows} rows")
    if manifest is None:
        return partition(units, n_teachers=n_teachers, key=key)
    manifest.check(units)
    if manifest.n_teachers != n_teachers:
        raise ValueError(f"the manifest is for {manifest.n_teachers} teachers, but n_teachers={n_teachers}")
    return manifest


class Manifest:
    """The partition of the private rows into one shard for each teacher, written once.

    It holds neither identifiers nor the key. But it tells which rows belong together and which teacher
    saw them, so it is private. Its :attr:`sha256` may be published.

    Where each row is a unit, a seed that is derived from the key states all of it, for any number of rows.

    Parameters
    ----------
    n_teachers : int
    unit : str
        ``"row"``, or ``"person"`` when rows were grouped. What the privacy claim protects.
    commitment : str
        SHA-256 of the key. The key proves that the partition was not chosen by hand:
        ``partition(units, n_teachers=…, key=key).sha256`` is the same again.
    version : int
        Which order :func:`partition` used, and how the manifest is written: less than 4 if an earlier version
        of this library made it.
    shards, units : integer arrays, shape (n_rows,), optional
        As the attributes.
    n_rows : int, optional
        Number of rows that ``seed`` states instead.
    seed : bytes, optional
        Private.

    Attributes
    ----------
    n_teachers, unit, commitment, version
        As given.
    shards : int32 array, shape (n_rows,)
        The teacher that sees each row.
    units : int32 array, shape (n_rows,)
        Place of each row's unit in the keyed order. Two rows have the same place if and only if they
        have the same unit.

    Raises
    ------
    ValueError
        The shards are not disjoint, complete, non-empty and whole: see :meth:`check`.

    Guarantees
    ----------
    The neighbouring relation is *replace-one*: the data of one unit (one row, or all rows of one
    person) is replaced by any other data, while every other unit stays in the
    shard this manifest names. Then at most one shard differs, so at most one teacher, so at most
    one ballot in each query. The number of units, of rows and the manifest itself are the same
    on both sides and treated as public. It is *not* add-or-remove with the deal repeated: that
    would move other units between shards.

    Examples
    --------
    >>> manifest = partition(["ann", "bob", "ann", "eve", "joe"], n_teachers=2, key=b"sixteen bytes ok")
    >>> manifest
    Manifest(n_teachers=2, n_rows=5, n_units=4, unit='person')
    >>> Manifest.from_json(manifest.to_json()).sha256 == manifest.sha256
    True
    >>> len(partition(10**8, n_teachers=250).to_json())
    327
    """

    def __init__(
        self,
        *,
        n_teachers: int,
        unit: str,
        commitment: str,
        version: int = LATEST,
        shards: Any = None,
        units: Any = None,
        n_rows: int = 0,
        seed: bytes | None = None,
    ) -> None:
        check.integer(n_teachers=n_teachers, least=1)
        if version not in _VERSIONS:
            raise ValueError(f"version must be one of {[*_VERSIONS]}, got {version!r}")
        if unit not in {"row", "person"}:
            raise ValueError(f"unit must be 'row' or 'person', got {unit!r}")
        self.n_teachers, self.unit, self.commitment, self.version = n_teachers, unit, commitment, version
        self._seed, self._arrays = seed, None
        if seed is None:
            self._arrays = _fixed(shards), _fixed(units)
            self.n_rows = len(self._arrays[0])
        elif unit != "row" or len(seed) != _SEED_BYTES or not are_rows(n_rows) or n_rows < n_teachers:
            raise ValueError(
                f"a seed of {_SEED_BYTES} bytes states how rows are dealt, one or more a teacher"
            )
        else:
            self.n_rows = n_rows
        self.check()

    @property
    def units(self) -> np.ndarray:
        """Place of each row's unit in the keyed order."""
        return _fixed(_ranks(self.n_rows, self._seed)) if self._arrays is None else self._arrays[1]

    @property
    def shards(self) -> np.ndarray:
        """The teacher that sees each row."""
        return _fixed(self.units % self.n_teachers) if self._arrays is None else self._arrays[0]

    @property
    def n_units(self) -> int:
        """Number of protected units."""
        return self.n_rows if self._arrays is None else int(self.units.max()) + 1

    @property
    def sha256(self) -> str:
        """Hash of the whole manifest, in hex. Public."""
        digest = hashlib.sha256(json.dumps(self._header(), sort_keys=True).encode())
        if self._seed is not None:
            digest.update(self._seed)
        else:
            digest.update(self.shards.astype("<i4", copy=False).data)
            digest.update(self.units.astype("<i4", copy=False).data)
        return digest.hexdigest()

    def rows(self) -> list[np.ndarray]:
        """The rows of each teacher, in the order of the data: ``n_teachers`` integer arrays."""
        narrow = self.shards.astype(np.min_scalar_type(self.n_teachers))  # 16 bits are sorted by counting
        order = np.argsort(narrow, kind="stable")
        return np.split(order, np.cumsum(np.bincount(narrow, minlength=self.n_teachers))[:-1])

    def check(self, units: Any = None) -> None:
        """Check that this is a partition, and that it is one of these rows.

        Parameters
        ----------
        units : int or array of shape (n_rows,), optional
            As for :func:`partition`. None: only the manifest itself is checked.

        Raises
        ------
        ValueError
            A row without a shard, an empty shard, shards whose numbers of units differ by more
            than one, a unit in two shards; or ``units`` are other rows or other people.
        """
        if self._arrays is not None:
            self._check_arrays()
        if units is None:
            return
        if are_rows(units):
            n_rows, unit = int(units), "row"
        else:
            codes, _, unit = numbered(units)
            n_rows = len(codes)
        if n_rows != self.n_rows or unit != self.unit:
            raise ValueError(
                f"the manifest is for {self.n_rows} rows by {self.unit}, not for {n_rows} by {unit}: "
                "it belongs to other data; start in a new folder, or without a manifest"
            )
        if unit == "row":
            return
        places = self.units
        first = np.full(int(codes.max()) + 1, -1, dtype=np.int32)
        for some in blocks(len(codes)):
            first[codes[some]] = places[some]
        same = len(first) == self.n_units
        if not same or any((first[codes[some]] != places[some]).any() for some in blocks(len(codes))):
            raise ValueError(
                "the manifest groups the rows into other people than the data does: it belongs to other data"
            )

    def _check_arrays(self) -> None:
        if self.shards.ndim != 1 or self.shards.shape != self.units.shape or not len(self.shards):
            raise ValueError(f"a manifest must hold one shard and one unit a row, got {self.shards.shape}")
        if self.shards.min() < 0 or self.shards.max() >= self.n_teachers:
            raise ValueError(f"every row must belong to one of {self.n_teachers} shards")
        n_rows, gaps = self.n_rows, self.units.min() < 0 or self.n_units > self.n_rows
        shard_of = np.full(0 if gaps else self.n_units, -1, dtype=np.int32)
        for some in () if gaps else blocks(n_rows):
            shard_of[self.units[some]] = self.shards[some]
        if gaps or (shard_of < 0).any():
            raise ValueError("the units of a manifest must be numbered from 0 without gaps")
        if any((shard_of[self.units[some]] != self.shards[some]).any() for some in blocks(n_rows)):
            raise ValueError(f"a {self.unit} must lie in one shard, but one lies in two")
        sizes = np.bincount(shard_of, minlength=self.n_teachers)
        if sizes.min() == 0 or sizes.max() - sizes.min() > 1:
            raise ValueError(f"{self.n_teachers} shards must share the units equally, and none may be empty")

    def to_json(self) -> str:
        """The manifest with its hash, as JSON."""
        stated: dict[str, Any] = {}
        if self._seed is not None:
            stated = {"seed": self._seed.hex()}
        elif self.version < _STATED:
            stated = {"shards": self.shards.tolist(), "units": self.units.tolist()}
        record = json.dumps({**self._header(), "sha256": self.sha256, **stated})
        if stated:
            return record
        units = self.units.astype("<i4", copy=False)  # part by part: they may be many
        written = (base64.b64encode(units[some].data).decode() for some in blocks(self.n_rows))
        return "".join([record[:-1], _UNITS, *written, _END])

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """The inverse of :meth:`to_json`, checked; also of what earlier versions wrote.

        Raises
        ------
        ValueError
            ``text`` is not a manifest, or was changed since it was written.
        """
        try:
            content = text.encode() if isinstance(text, str) else text
            begun = content.find(_UNITS.encode())
            written = begun > 0 and content.endswith(_END.encode())  # so that units are read part by part
            record = json.loads(content[:begun] + b"}" if written else content)
            stated: dict[str, Any] = {}
            if "seed" in record:
                stated = {"seed": bytes.fromhex(record["seed"]), "n_rows": record["n_rows"]}
            elif record["version"] < _STATED:
                stated = {"shards": record["shards"], "units": record["units"]}
            else:
                coded = memoryview(content if written else str(record["units"]).encode())
                coded = coded[begun + len(_UNITS) : -len(_END)] if written else coded
                units = np.empty(3 * len(coded) // 16, dtype="<i4")
                for some in blocks(len(units)):
                    part = coded[16 * some.start // 3 : -(-16 * some.stop // 12) * 4]
                    units[some] = np.frombuffer(base64.b64decode(part, validate=True), dtype="<i4")
                units.setflags(write=False)
                alone = record["n_teachers"] == record["n_units"]  # each unit in a shard of its own
                stated = {"shards": units if alone else units % record["n_teachers"], "units": units}
            names = ("n_teachers", "unit", "commitment", "version")
            manifest = cls(**{name: record[name] for name in names}, **stated)
            facts = {**manifest._header(), "sha256": manifest.sha256}
            intact = all(record[name] == value for name, value in facts.items())
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            intact = False
        if not intact:
            raise ValueError(
                "the manifest is damaged or was changed: take it from a backup, or start in a new folder"
            )
        return manifest

    def _header(self) -> dict[str, Any]:
        return {
            "version": int(self.version),
            "n_teachers": int(self.n_teachers),
            "n_rows": self.n_rows,
            "n_units": self.n_units,
            "unit": self.unit,
            "commitment": self.commitment,
        }

    def __repr__(self) -> str:
        sizes = f"n_teachers={self.n_teachers}, n_rows={self.n_rows}, n_units={self.n_units}"
        return f"Manifest({sizes}, unit={self.unit!r})"


def blocks(n_rows: int) -> Iterator[slice]:
    """Rows in order, some at a time: what is computed of them takes little room."""
    for start in range(0, n_rows, _BLOCK):
        yield slice(start, min(n_rows, start + _BLOCK))


def _one_form(value: Any) -> str:
    """The one spelling since version 3: no invisible characters, and a date is the same as its midnight."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, float) and abs(value) >= _LARGEST):
        raise ValueError(
            "identifiers of people must be text or whole numbers, but some are truth values, or floats of "
            "2**53 or more, which are one number for several people: write them as text"
        )
    text = _canonical(value)
    if not (text.isascii() and text.isprintable()):
        text = _canonical("".join(c for c in text if unicodedata.category(c) not in {"Cf", "Cc"}))
    if not _TIME.fullmatch(text):
        return text
    try:  # a date in ISO 8601; with the time of day in UTC, unless that is midnight
        moment = dt.datetime.fromisoformat(text)
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        return text
    return moment.isoformat() if moment.time() != dt.time() else moment.date().isoformat()


def _canonical(value: Any) -> str:
    """Return the spelling of version 2: text in Unicode form NFC, numbers in their shortest form."""
    text = unicodedata.normalize("NFC", _spelled(value))
    if text[:1].isalpha():  # not a number; "nan" and "inf" in text are names
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return text
    shortest = number.normalize(Context(prec=max(28, len(text)), Emax=MAX_EMAX, Emin=MIN_EMIN))
    plain = abs(shortest.adjusted()) < _DIGITS
    return f"{shortest or abs(shortest):f}" if plain else str(shortest)


def _spelled(value: Any) -> str:
    """Return an identifier as text without surrounding blanks; empty for None, NaN and blanks."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, np.datetime64) and np.isnat(value))
    ):
        return ""
    return (value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)).strip()


def _fixed(values: Any) -> np.ndarray:
    """An array of int32 that cannot be written to."""
    if isinstance(values, np.ndarray) and values.dtype == np.int32 and not values.flags.writeable:
        return values
    array = np.array(values, dtype=np.int32)
    array.setflags(write=False)
    return array


def _ranks(n_rows: int, seed: bytes | None) -> np.ndarray:
    """The place of each row in the order of AES-256 of their numbers under the seed, int32."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    encryptor = Cipher(algorithms.AES(seed or b""), modes.ECB()).encryptor()  # noqa: S305  (a permutation of blocks)

    def hashes(start: int) -> np.ndarray:
        blocks = np.zeros((min(_BLOCK, n_rows - start), 2), dtype="<u8")
        blocks[:, 0] = np.arange(start, start + len(blocks))
        return np.frombuffer(encryptor.update(blocks.tobytes()), dtype=">u8").reshape(-1, 2)

    first = np.empty(n_rows, dtype=np.uint64)  # the other half decides between equal ones, which are rare
    for start in range(0, n_rows, _BLOCK):
        first[start : start + _BLOCK] = hashes(start)[:, 0]
    order = np.argsort(first)
    blocks = (first[order[start : start + _BLOCK + 1]] for start in range(0, n_rows, _BLOCK))
    if any((block[1:] == block[:-1]).any() for block in blocks):
        order = _order(np.concatenate([hashes(start) for start in range(0, n_rows, _BLOCK)]))
    del first
    rank = np.empty(n_rows, dtype=np.int32)
    rank[order] = np.arange(n_rows, dtype=np.int32)
    return rank


def _name_hashes(names: Iterable[str], unit: str, key: bytes) -> np.ndarray:
    """A keyed hash of each name, shape (n_names, 2)."""
    start = hashlib.blake2b(f"{unit}:".encode(), digest_size=16, key=key)
    digests = bytearray()
    for name in names:
        digest = start.copy()
        digest.update(name.encode(errors="surrogatepass"))
        digests += digest.digest()
    return np.frombuffer(digests, dtype=">u8").reshape(-1, 2)


def _order(hashes: np.ndarray) -> np.ndarray:
    """The order of hashes as big-endian numbers of 128 bits."""
    first = hashes[:, 0].astype(np.uint64)  # in the order of this processor's bytes
    order = np.argsort(first)
    ordered = first[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    return order
