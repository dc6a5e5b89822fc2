"""Sessions: a fit that is repeated is the same experiment, with the same answers, for the price of one.

Two fits of the same rows under two ledgers in memory would spend twice and report once. So while
an estimator that has made a fit lives, the same fit in the same process gets its partition and
its ledger, finds every answer there, and pays nothing.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ostraka.ledger import Budget, Ledger
from ostraka.voters import partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.pate._data import Data
    from ostraka.pate.classifier import PATEClassifier
    from ostraka.pate.pate_fm import PATEFM
    from ostraka.pate.plan import LabelPlan, Plan
    from ostraka.voters import Manifest

__all__ = ["Session", "begin", "content", "name_of", "session"]

_NO_MATTER = ("engine", "n_jobs", "progress")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Session:
    """Where a fit is charged, and who trains on what."""

    ledger: Ledger
    manifest: Manifest


def begin(
    data: Data, plan: Plan | LabelPlan, *, ledger: Any, manifest: Manifest | None, epsilon: float
) -> Session:
    """A ledger to charge (in memory, if none is given) and a deal, both fit for this plan."""
    manifest = manifest or partition(data.units, n_teachers=plan.n_teachers)
    manifest.check(data.units)
    if not isinstance(ledger, Ledger):
        where = ":memory:" if ledger is None else ledger
        return Session(Ledger(where, budget=Budget(epsilon=epsilon, delta=plan.delta)), manifest)
    if ledger.budget.delta != plan.delta:
        raise ValueError(
            f"delta must be the ledger's, {ledger.budget.delta:g}, got {plan.delta:g}: leave it out"
        )
    return Session(ledger, manifest)


_OPEN: WeakValueDictionary[bytes, Session] = WeakValueDictionary()
_KEY = os.urandom(32)  # the names of open sessions tell nothing about the rows


def session(name: str | None, begin: Callable[[], Session]) -> Session:
    """The open session of that content, or a new one; None is a content of its own."""
    if name is None:
        return begin()
    keyed = hashlib.blake2b(name.encode(), key=_KEY).digest()
    found = _OPEN.get(keyed)
    return found if found is not None else _OPEN.setdefault(keyed, begin())


def name_of(model: PATEClassifier | PATEFM, data: Data) -> str | None:
    """What makes another fit the same one; None if nothing does."""
    if model.ledger is not None or model.manifest is not None or not isinstance(model.random_state, int):
        return None
    settings = {name: value for name, value in model.get_params(deep=False).items() if name not in _NO_MATTER}
    return content(settings, *(None if part is None else np.asarray(part) for part in data))


def content(*parts: Any) -> str:
    """A hash of settings and data: equal content, equal hash, in every process.

    What cannot be pickled (a class defined inside a function) is equal to nothing, itself included:
    its answers are paid for each time.
    """
    import joblib  # noqa: PLC0415  (its own room is the voters')

    try:
        return str(joblib.hash(parts, hash_name="sha1"))
    except (pickle.PicklingError, TypeError):
        return os.urandom(20).hex()
