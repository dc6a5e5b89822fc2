"""Names of fits: what is asked of which rows. A fit that was interrupted finds by it what it has paid for.

A name is a key in the ledger. It is written by version 2: a digest of public names and parameters, wherever
a class of this library lives. Version 1 pickled each class by the module in which it was then, so it is
computed with those names (:data:`HOMES_OF_VERSION_1`), for ledgers of before.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import hashlib
import hmac
import json
import os
import pickle
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.data.labels import Coded

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger

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
    from joblib.hashing import NumpyHasher

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
