"""Sessions: the rows of a fit, its ledger and partition, and the key by which it finds what it has paid for.

:class:`Data` holds the private and the public rows, :class:`Seeds` the seeds of the training.

Two fits of the same rows under two ledgers in memory would spend twice and report once. So while
an estimator that has made a fit lives, the same fit in the same process gets its partition and
its ledger, finds every answer there, and pays nothing.

An interrupted fit finds what it has paid for by its key, a name in the ledger (:mod:`ostraka.data.fits`).
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
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
from ostraka.data.fits import digest, key_of
from ostraka.data.guards import warn_of_refits
from ostraka.data.labels import Coded, Labels, one_type
from ostraka.data.parquet import ParquetRows
from ostraka.data.units import Manifest, count, numbered, partition

if TYPE_CHECKING:
    from ostraka.learn.classifier import PATEClassifier
    from ostraka.learn.ways.labels import PATEFM
    from ostraka.learn.ways.plan import Planned

_NO_MATTER = ("engine", "n_jobs", "progress", "ledger")
_OPEN: WeakValueDictionary[bytes, Session] = WeakValueDictionary()
_KEY = os.urandom(32)  # so that the names of open sessions tell nothing about the rows
_MOST_GIGABYTES = 2.0


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Session:
    """The ledger that a fit charges, the partition of its rows, and the secret of the ledger's fits.

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
    check.function(progress=model.progress)
    ledger, manifest = model.ledger, model.manifest
    ledger = ledger if isinstance(ledger, Ledger | None) else check.path(ledger=ledger)
    manifest = manifest if isinstance(manifest, Manifest | None) else check.path(manifest=manifest)
    tables, place = None, None  # ledgers of tables, and this fit's folder there
    if isinstance(ledger, Path) and ledger.is_dir():
        if isinstance(data.X, ParquetRows):
            raise ValueError("rows stay in their files: pass ledger= with the path of one file")
        tables = Tables(ledger)
    name = b""  # of a fit that no other is the same as
    known = tables is not None or (ledger is None and manifest is None)
    if known and isinstance(model.random_state, int):
        settings = {
            key: value for key, value in model.get_params(deep=False).items() if key not in _NO_MATTER
        }
        content = digest(settings, *map(_content, data))
        if tables is None:
            name = hashlib.blake2b(content.encode(), key=_KEY).digest()
            if (session := _OPEN.get(name)) is not None:
                return session
        else:
            place = tables.fit(content)
            manifest = place / "manifest.json" if manifest is None else manifest
    # no other place of this package or the command line deals units to teachers
    if manifest is None:
        manifest = partition(data.units, n_teachers=plan.n_teachers)
    else:
        if not isinstance(manifest, Manifest):
            # of several processes that deal at once, one deals for all: answers are found by the partition
            if manifest.exists():
                text = manifest.read_bytes()
            else:
                new = partition(data.units, n_teachers=plan.n_teachers)
                text = files.create(manifest, new.to_json())
            manifest = Manifest.from_json(text)
            del text  # which is long where people have many rows
        manifest.check(data.units)
    if not isinstance(ledger, Ledger):
        if ledger is None:
            warn_of_refits(digests)
        where = ":memory:" if ledger is None or tables is not None else os.fspath(ledger)
        # a ledger that is there keeps its own budget
        old = where != ":memory:" and Path(where).exists()
        budget = None if old else Budget(epsilon=model.epsilon or 0.0, delta=plan.delta, adaptive=False)
        if tables is not None:  # this table's is found by its rows, and charged by that of the fit
            account = tables.account(None, data.groups, rows=data.X)
            where = where if place is None else os.fspath(place / "ledger.sqlite")
            run = os.urandom(8).hex() if place is None else place.name
            ledger = TableLedger(where, budget=budget, account=account, run=run)
        else:
            ledger = Ledger(where, budget=budget)
    if ledger.budget.delta != plan.delta:
        raise ValueError(
            f"delta must be the ledger's, {ledger.budget.delta:g}, got {plan.delta:g}: leave it out"
        )
    session = Session(ledger, manifest, ledger.secret_of_fits(), digests)
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
