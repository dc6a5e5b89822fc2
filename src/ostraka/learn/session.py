"""Sessions: the rows of a fit, its ledger and partition, and the key by which it finds what it has paid for.

:class:`Data` holds the private and the public rows, :class:`Seeds` the seeds of the training.

Two fits of the same rows under two ledgers in memory would spend twice and report once. So while
an estimator that has made a fit lives, the same fit in the same process gets its partition and
its ledger, finds every answer there, and pays nothing.

An interrupted fit finds what it has paid for by its key, a name in the ledger. A key is written by version 2:
a digest of public names and parameters, wherever a class of this library lives. Version 1 pickled each class
by the module in which it was then, so it is computed with those names (:data:`HOMES_OF_VERSION_1`), for
ledgers of before.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import hashlib
import hmac
import json
import math
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing

from ostraka.core import check, files
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.randomness import seed_of
from ostraka.data.budgets import TableLedger, Tables
from ostraka.data.guards import warn_of_refits
from ostraka.data.labels import Coded, Labels, one_type
from ostraka.data.parquet import ParquetRows
from ostraka.data.units import Manifest, count, numbered, partition

if TYPE_CHECKING:
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.ways.labels import PATEFM
    from ostraka.learn.ways.plan import Planned

_NO_MATTER = ("engine", "n_jobs", "progress")
_PROCESS_SECRET = os.urandom(32)  # for ledgers in memory, which end with the process
_OPEN: WeakValueDictionary[bytes, Session] = WeakValueDictionary()
_KEY = os.urandom(32)  # so that the names of open sessions tell nothing about the rows
_MOST_GIGABYTES = 2.0
_ROWS = 1 << 16  # texts that are written at a time
_BLOCK = 1 << 24  # bytes that are copied at a time where an array is not contiguous
_CANNOT = (pickle.PicklingError, TypeError, ValueError, AttributeError, RecursionError)
# Where classes and functions that settings of a fit may hold were when version 1 was written. Never changed.
HOMES_OF_VERSION_1 = {
    name: f"ostraka.{module}"
    for module, names in {
        "_torch.augment": "ImageAugment TableAugment",
        "_torch.architectures": "convolutional perceptron strided wide_resnet",
        "consistent": "Consistent",
        "mechanisms.additive": "OneHotLaplace OneHotGaussian",
        "mechanisms.argmax": "GNMax LNMax",
        "mechanisms.confident": "Confident",
        "mechanisms.counts": "NoisyCounts",
        "mechanisms.response": "RandomizedResponse PriorResponse",
        "mechanisms.screen": "Threshold",
        "mechanisms.skellam": "SkellamMax",
        "mechanisms.subsampled": "Subsampled",
        "mechanisms.weighted": "Weighted",
        "networks": "TorchClassifier",
        "pate._counts_student": "BinnedStudent",
        "pate._data": "Seeds",
        "pate.classifier": "PATEClassifier",
        "pate.pate_fm": "PATEFM _Shared",
        "students.alibi": "ALIBI",
        "students.distil": "Distilled",
        "students.fixmatch": "FixMatch",
        "students.gan": "FeatureMatchingGAN",
        "students.gradients": "GradientLogistic",
        "students.moments": "MomentLogistic",
        "students.multistage": "MultiStage",
        "students.smoothing": "SmoothedCounts AugmentedSVM",
        "students.spreading": "Spreading",
        "voters.bins": "QuantileCells",
        "voters.cells": "GraphCells FromPublicRows",
        "voters.features": "FeatureCells",
        "voters.neighbours": "NeighbourVoter",
        "voters.rows": "RowVoter",
        "voters.teachers": "TeacherEnsemble",
    }.items()
    for name in names.split()
}


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Session:
    """The ledger that a fit charges, the partition of its rows, and the secret beside the ledger.

    ``digests`` are those of the private rows, as :func:`ostraka.data.guards.row_digests` makes them.
    """

    ledger: Ledger
    manifest: Manifest
    secret: bytes
    digests: np.ndarray

    def key(self, data: Data, *settings: Any) -> str:
        """A name for these questions to these teachers. Other private rows or labels get another one."""
        parts = (*settings, self.manifest.sha256, *map(_content, data))
        return key_of(*parts, secret=self.secret, ledger=self.ledger)


def begin(model: PATEClassifier | PATEFM, data: Data, plan: Planned, *, digests: np.ndarray) -> Session:
    """The session of the same fit if one is open, else a new one: a ledger, and the units dealt to teachers.

    Raises
    ------
    ValueError
        The ledger has another delta, or the manifest belongs to other data.
    """
    name = b""  # of a fit that no other is the same as
    if model.ledger is None and model.manifest is None and isinstance(model.random_state, int):
        settings = {
            key: value for key, value in model.get_params(deep=False).items() if key not in _NO_MATTER
        }
        content = digest(settings, *map(_content, data)).encode()
        name = hashlib.blake2b(content, key=_KEY).digest()
        if (session := _OPEN.get(name)) is not None:
            return session
    # no other place of this package or the command line deals units to teachers
    manifest: Any = model.manifest
    if manifest is None:
        manifest = partition(data.units, n_teachers=plan.n_teachers)
    else:
        if not isinstance(manifest, Manifest):
            path = Path(manifest)
            # of several processes that deal at once, one deals for all: answers are found by the partition
            if path.exists():
                text = path.read_bytes()
            else:
                new = partition(data.units, n_teachers=plan.n_teachers)
                text = files.create(path, new.to_json())
            manifest = Manifest.from_json(text)
            del text  # which is long where people have many rows
        manifest.check(data.units)
    ledger, secret = model.ledger, _PROCESS_SECRET
    if not isinstance(ledger, Ledger):
        if ledger is None:
            warn_of_refits(digests)
        where = ":memory:" if ledger is None else os.fspath(ledger)
        of_tables = ledger is not None and Path(where).is_dir()
        # a ledger that is there keeps its own budget
        old = where != ":memory:" and not of_tables and Path(where).exists()
        budget = None if old else Budget(epsilon=model.epsilon or 0.0, delta=plan.delta, adaptive=False)
        if of_tables:  # this table's is found by its rows, and charged by one in memory
            if isinstance(data.X, ParquetRows):
                raise ValueError("rows stay in their files: pass ledger= with the path of one file")
            account = Tables(where).account(None, data.groups, rows=data.X)
            ledger = TableLedger(":memory:", budget=budget, account=account, run=os.urandom(8).hex())
        else:
            ledger = Ledger(where, budget=budget)
    if ledger.budget.delta != plan.delta:
        raise ValueError(
            f"delta must be the ledger's, {ledger.budget.delta:g}, got {plan.delta:g}: leave it out"
        )
    if ledger.path != ":memory:" and "://" not in ledger.path:
        secret = files.create(f"{ledger.path}.secret", os.urandom(32))
    session = Session(ledger, manifest, secret, digests)
    return _OPEN.setdefault(name, session) if name else session


class Data(NamedTuple):
    """Private rows, labels and units; public rows, and which rows of the private table these are, if any."""

    X: Any
    y: np.ndarray | Coded
    groups: np.ndarray | Coded | None
    public: Any
    held_out: np.ndarray | None

    def classes(self, declared: Any) -> np.ndarray:
        """The declared classes, else those of the private labels."""
        return Labels.of(self.y, declared).classes

    @property
    def n_units(self) -> int:
        """Number of units to deal to teachers."""
        return count(self.units)

    @property
    def public_numbers(self) -> str:
        """The words of a record for what is public. The number of rows of a person is not."""
        return f"The numbers of {'rows, ' if self.groups is None else ''}units and features"

    @property
    def units(self) -> Any:
        """Units in the form that :func:`ostraka.voters.partition` takes."""
        return len(self.y) if self.groups is None else self.groups


class Seeds(NamedTuple):
    """One seed for each part of the training; no mechanism uses any of them."""

    holdout: int
    teachers: int
    student: int
    asking: int

    @classmethod
    def of(cls, random_state: int | np.random.RandomState | None) -> Seeds:
        """Seeds drawn from scikit-learn's ``random_state``."""
        return cls(*(np.random.SeedSequence(seed_of(random_state)).generate_state(4) >> 1).tolist())


def dense(X: Any) -> Any:
    """A sparse matrix as an array, or a refusal where that is too large; anything else as it came.

    An empty data frame is refused here: scikit-learn looks into arrays only.
    """
    if hasattr(X, "iloc") and not len(X):
        raise ValueError(f"X must have one row or more, got a data frame of shape {X.shape}")
    if not issparse(X):
        return X
    gigabytes = 8 * math.prod(X.shape) / 1e9
    if gigabytes > _MOST_GIGABYTES:
        raise ValueError(
            f"X is a sparse matrix of shape {X.shape}, which takes {gigabytes:.0f} GB as an array: make it "
            "narrow first by a step that was fitted to public rows, such as TruncatedSVD(32).fit(X_public) "
            "(docs/tables.md)"
        )
    return X.toarray()


def split(
    X: Any, y: np.ndarray | Coded, groups: Any, *, X_public: Any, holdout: float | None, seed: int
) -> Data:
    """Take the public rows given, or hold out the rows of a share of the units."""
    if groups is not None:
        groups = groups if isinstance(groups, Coded) else np.asarray(groups)
        if groups.shape != (len(y),):
            raise ValueError(
                f"groups must name one person for each of {len(y)} rows, got shape {groups.shape}"
            )
    if X_public is not None:
        return Data(X, y, groups, X_public, None)
    if holdout is None:
        raise ValueError(
            "X_public must be given: unprotected rows to ask the teachers about. If there are "
            "none, holdout=0.2 gives up the privacy of a fifth of the private units instead"
        )
    check.share(holdout=holdout)
    unit_of, n_units, _ = numbered(len(y) if groups is None else groups)
    n_held = max(1, round(holdout * n_units))
    if n_held >= n_units:
        raise ValueError(
            f"n_samples={len(y)} from {n_units} units are too few to hold {n_held} out: pass X_public="
        )
    mask = np.isin(unit_of, np.random.default_rng(seed).permutation(n_units)[:n_held])
    rows = np.flatnonzero(~mask)
    return Data(
        _safe_indexing(X, rows),
        y[rows],
        None if groups is None else groups[rows],
        _safe_indexing(X, np.flatnonzero(mask)),
        np.flatnonzero(mask),
    )


def labels_of(y: Any, *, n_rows: int, declared: Any = None) -> np.ndarray | Coded:
    """The private labels, checked: one for each row, and two classes or more unless classes are declared."""
    labels: np.ndarray | Coded = one_type(y, n_rows=n_rows)
    Labels.of(labels, declared, least=2)
    return labels


def _content(part: Any) -> Any:
    """The part of the data that is hashed; of rows in files, their hash."""
    if isinstance(part, ParquetRows):
        return part.sha256
    return part if part is None or isinstance(part, Coded) else np.asarray(part)


def key_of(*parts: Any, secret: bytes, ledger: Ledger) -> str:
    """The name of these questions to these teachers: that of version 1 if the ledger has it, else version 2.

    Keys stand in the ledger, so the digest of private data is keyed by the secret.
    """
    key = _keyed(digest(*parts), secret, version=2)
    if ledger.path == ":memory:":  # which no process of before has left
        return key
    names = {(entry.key or "").partition("/")[0] for entry in ledger.scan() if not entry.account}
    if key in names or names <= {""}:
        return key
    before = _keyed(_digest_of_version_1(*parts), secret, version=1)
    return before if before in names else key


def _keyed(content: str, secret: bytes, *, version: int) -> str:
    return hmac.digest(secret, f"ostraka/fit/{version}\0{content}".encode(), "sha256").hex()[:40]


def digest(*parts: Any) -> str:
    """A hash of settings and data: equal content, equal hash, in every process.

    Settings that cannot be described (a class defined inside a function) get a random hash each time, so
    their answers are paid for each time.
    """
    mark, coded = os.urandom(32).hex(), list[Coded]()

    def later(values: Coded) -> str:
        """Stands for a list of as many texts as there are rows, which is written part by part below."""
        coded.append(values)
        return mark

    try:
        text = json.dumps(_described(parts), separators=(",", ":"), default=later)
    except _CANNOT:
        return os.urandom(32).hex()
    first, *others = text.split(json.dumps(mark))
    content = hashlib.sha256(first.encode())
    for values, rest in zip(coded, others, strict=True):
        words = [json.dumps(_described(value), separators=(",", ":")) for value in values.values.tolist()]
        for start in range(0, len(values), _ROWS):
            some = map(words.__getitem__, values.codes[start : start + _ROWS].tolist())
            content.update(("," if start else "[").encode() + ",".join(some).encode())
        content.update(b"]" + rest.encode())
    return content.hexdigest()


def _described(value: Any) -> Any:  # noqa: PLR0911  (some lines for each kind)
    """The value as JSON, one text for one content; whatever is no plain scalar is an object with its kind."""
    kind = type(value)
    if value is None or kind in {bool, int, float, str}:
        return value
    if isinstance(value, np.generic | np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return {"array": _array(np.asarray(value))}
    if isinstance(value, Coded):
        return {"array": _array(value)}
    if kind in {list, tuple}:
        return {kind.__name__: [_described(item) for item in value]}
    if kind in {set, frozenset}:
        return {kind.__name__: sorted(map(_described, value), key=json.dumps)}
    if kind is dict:
        return {"dict": _items(value)}
    if kind in {bytes, bytearray}:
        return {"bytes": bytes(value).hex()}
    if isinstance(value, type | FunctionType):
        return {"name": _public_name(value)}
    if isinstance(value, enum.Enum):
        return {"object": [_public_name(kind), value.name]}
    if callable(getattr(value, "get_params", None)):  # an estimator, with what it was fitted to
        fields = {**getattr(value, "__dict__", {}), **value.get_params(deep=False)}
        return {"object": [_public_name(kind), _items(fields)]}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"object": [_public_name(kind), _items(fields)]}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {"object": [_public_name(kind), _items(value._asdict())]}
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor, whose pickle holds an address
        return {"tensor": _array(value.detach().cpu().numpy())}
    # any other object by what rebuilds it
    reducer = copyreg.dispatch_table.get(kind)
    reduced: Any = reducer(value) if reducer else value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return {"name": f"{getattr(value, '__module__', None)}.{reduced}"}
    return {"reduced": [_described(list(part) if hasattr(part, "__next__") else part) for part in reduced]}


def _items(items: dict[Any, Any]) -> list[Any]:
    described = [[_described(name), _described(value)] for name, value in items.items()]
    return sorted(described, key=lambda item: json.dumps(item[0]))


def _array(values: np.ndarray | Coded) -> list[Any]:
    """Type, shape and a hash of the bytes in the order of rows, however they lie in memory."""
    dtype = values.dtype
    if isinstance(values, np.ndarray) and (dtype.hasobject or dtype.kind == "T"):
        return [dtype.kind, list(values.shape), [_described(item) for item in values.ravel().tolist()]]
    if isinstance(values, Coded) and dtype.hasobject:
        return [dtype.kind, list(values.shape), values]  # written where the whole is
    name = str(dtype.descr) if dtype.names else dtype.str
    rows: Any = values if isinstance(values, Coded) or values.ndim else values.reshape(1)
    content = hashlib.sha256()
    step = max(1, _BLOCK // max(1, rows[:1].nbytes))
    for start in range(0, len(rows), step):
        content.update(np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8).data)
    return [name, list(values.shape), content.hexdigest()]


def _public_name(thing: Any) -> str:
    """``ostraka.Name`` wherever it lives in this library; module and name of all else."""
    module, name = str(thing.__module__), thing.__qualname__
    if "<" in name:
        raise pickle.PicklingError(f"{name} is defined inside a function, so that its name says little")
    return f"ostraka.{name}" if _is_ours(module) else f"{module}.{name}"


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "ostraka"


def _digest_of_version_1(*parts: Any) -> str:
    """The hash by joblib of a pickle, in which each class of this library is where it was."""
    from joblib.hashing import NumpyHasher  # noqa: PLC0415  (its own room is the voters')

    class Hasher(NumpyHasher):
        def save(self, obj: Any) -> None:
            name = getattr(obj, "__qualname__", "") if isinstance(obj, type | FunctionType) else ""
            home = HOMES_OF_VERSION_1.get(name)
            if home is None or not _is_ours(obj.__module__) or id(obj) in self.memo:
                super().save(obj)
            else:
                self.write(pickle.GLOBAL + f"{home}\n{name}\n".encode())
                self.memoize(obj)

    try:
        return str(Hasher(hash_name="sha1").hash(parts))
    except _CANNOT:
        return os.urandom(20).hex()
