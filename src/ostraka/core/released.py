"""The kinds of releases: an array, named arrays, or a trained model; and their format in a ledger."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

__all__: list[str] = []

_MODEL = b"ostraka model 1\n"


@dataclass(frozen=True, slots=True, repr=False)
class Model:
    """A trained model as bytes, which may leave because training it was paid for.

    Attributes
    ----------
    data : bytes
        In whatever format the mechanism states.

    Examples
    --------
    >>> Model(b"weights")
    Model(7 bytes, sha256 9a129038)
    """

    data: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()

    def __repr__(self) -> str:
        return f"Model({len(self.data)} bytes, sha256 {self.digest[:8]})"


Released = np.ndarray | dict[str, np.ndarray] | Model
AnyRelease = TypeVar("AnyRelease", bound=Released)


def to_bytes(released: Released) -> bytes:
    """Return a release in the format of ledgers.

    Raises
    ------
    TypeError
        Something that is no release.
    ValueError
        An array of objects.

    Examples
    --------
    >>> from_bytes(to_bytes({"sums": np.array([1, 2])}))
    {'sums': array([1, 2])}
    """
    if isinstance(released, Model):
        return _MODEL + released.data
    written = io.BytesIO()
    if isinstance(released, dict):
        if not all(isinstance(name, str) and _plain(values) for name, values in released.items()):
            raise ValueError("a release of named arrays must have names that are text, and no objects")
        with zipfile.ZipFile(written, "w") as archive:  # as np.savez does, which takes not every name
            for name, values in released.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(values), allow_pickle=False)
    elif _plain(released):
        np.save(written, released, allow_pickle=False)
    elif isinstance(released, np.ndarray):
        raise ValueError("a release must be an array of numbers or text, not of objects: no pickle is kept")
    else:
        raise TypeError(f"a release must be an array, named arrays or a Model, got {type(released).__name__}")
    return written.getvalue()


def from_bytes(stored: bytes) -> Released:
    """The inverse of :func:`to_bytes`; arrays of ledgers written before read the same.

    Examples
    --------
    >>> from_bytes(to_bytes(Model(b"weights"))).data
    b'weights'
    """
    if stored.startswith(_MODEL):
        return Model(stored[len(_MODEL) :])
    if stored.startswith(np.lib.format.MAGIC_PREFIX):
        return np.lib.format.read_array(io.BytesIO(stored), allow_pickle=False)
    with zipfile.ZipFile(io.BytesIO(stored)) as archive:
        return {
            name.removesuffix(".npy"): np.lib.format.read_array(archive.open(name), allow_pickle=False)
            for name in archive.namelist()
        }


def _plain(array: object) -> bool:
    return isinstance(array, np.ndarray | np.generic) and not array.dtype.hasobject
