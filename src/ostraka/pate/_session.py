"""Sessions: the ledger and the partition of a fit, shared by repetitions of the same fit.

Two fits of the same rows under two ledgers in memory would spend twice and report once. So while
an estimator that has made a fit lives, the same fit in the same process gets its partition and
its ledger, finds every answer there, and pays nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ostraka import _files
from ostraka.ledger import Budget, Ledger
from ostraka.pate._guards import warn_of_refits
from ostraka.voters import partition
from ostraka.voters._parquet import ParquetRows
from ostraka.voters.shards import Manifest

if TYPE_CHECKING:
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate._data import Data
    from ostraka.pate.classifier import PATEClassifier
    from ostraka.pate.pate_fm import PATEFM
    from ostraka.pate.plan import LabelPlan, Plan

__all__ = ["Session", "begin", "content"]

_NO_MATTER = ("engine", "n_jobs", "progress")
_PROCESS_SECRET = os.urandom(32)  # for ledgers in memory, which end with the process


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Session:
    """The ledger that a fit charges, the partition of its rows, and the secret beside the ledger.

    ``digests`` are those of the private rows, as :func:`ostraka.pate._guards.row_digests` makes them.
    """

    ledger: Ledger
    manifest: Manifest
    secret: bytes
    digests: np.ndarray

    def key(self, data: Data, *settings: Any) -> str:
        """A name for these questions to these teachers. Other private rows or labels get another one.

        Keys stand in the ledger, so the digest of private data is keyed by the secret.
        """
        described = content(*settings, self.manifest.sha256, *map(_array, data))
        return hmac.digest(self.secret, f"ostraka/fit/1\0{described}".encode(), "sha256").hex()[:40]


_OPEN: WeakValueDictionary[bytes, Session] = WeakValueDictionary()
_KEY = os.urandom(32)  # so that the names of open sessions tell nothing about the rows


def begin(
    model: PATEClassifier | PATEFM, data: Data, plan: Plan | LabelPlan | CountsPlan, *, digests: np.ndarray
) -> Session:
    """The session of the same fit if one is open, else a new one: a ledger, and the units dealt to teachers.

    Raises
    ------
    ValueError
        The ledger has another delta, or the manifest belongs to other data.
    """
    name = _name(model, data)
    if name is None:
        return _new(model, data, plan, digests)
    keyed = hashlib.blake2b(name.encode(), key=_KEY).digest()
    found = _OPEN.get(keyed)
    return found if found is not None else _OPEN.setdefault(keyed, _new(model, data, plan, digests))


def _new(
    model: PATEClassifier | PATEFM, data: Data, plan: Plan | LabelPlan | CountsPlan, digests: np.ndarray
) -> Session:
    manifest = _dealt(model.manifest, data.units, n_teachers=plan.n_teachers)
    ledger = model.ledger
    if not isinstance(ledger, Ledger):
        if ledger is None:
            warn_of_refits(digests)
        where = ":memory:" if ledger is None else os.fspath(ledger)
        known = where != ":memory:" and Path(where).exists()  # a ledger that is there keeps its own budget
        budget = None if known else Budget(epsilon=model.epsilon, delta=plan.delta)
        ledger = Ledger(where, budget=budget)
    if ledger.budget.delta != plan.delta:
        raise ValueError(
            f"delta must be the ledger's, {ledger.budget.delta:g}, got {plan.delta:g}: leave it out"
        )
    return Session(ledger, manifest, _secret(ledger.path), digests)


def _secret(path: str) -> bytes:
    """The secret in the file beside a ledger, made if there is none; of this process for other ledgers."""
    if path == ":memory:" or "://" in path:
        return _PROCESS_SECRET
    return _files.create(f"{path}.secret", os.urandom(32))


def _dealt(manifest: Any, units: Any, *, n_teachers: int) -> Manifest:
    """The manifest given or read, else a new one. No other place of this package or the CLI deals."""
    if isinstance(manifest, Manifest):
        manifest.check(units)
        return manifest
    if manifest is None:
        return partition(units, n_teachers=n_teachers)
    path = Path(manifest)
    # of several processes that deal at once, one deals for all: answers are found by the partition
    text = (
        path.read_bytes()
        if path.exists()
        else _files.create(path, partition(units, n_teachers=n_teachers).to_json())
    )
    known = Manifest.from_json(text.decode())
    known.check(units)
    return known


def _name(model: PATEClassifier | PATEFM, data: Data) -> str | None:
    """A hash that is equal for equal fits; None where a fit is never the same as another."""
    if model.ledger is not None or model.manifest is not None or not isinstance(model.random_state, int):
        return None
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in _NO_MATTER}
    return content(settings, *map(_array, data))


def _array(part: Any) -> Any:
    """The part of the data that is hashed; of rows in files, their hash."""
    if isinstance(part, ParquetRows):
        return part.sha256
    return None if part is None else np.asarray(part)


def content(*parts: Any) -> str:
    """A hash of settings and data: equal content, equal hash, in every process.

    Settings that cannot be pickled (a class defined inside a function) get a random hash each time, so
    their answers are paid for each time.
    """
    import joblib  # noqa: PLC0415  (its own room is the voters')

    try:
        return str(joblib.hash(parts, hash_name="sha1"))
    except (pickle.PicklingError, TypeError):
        return os.urandom(20).hex()
