"""What of a generator is kept: noisy counts, the arrays of its model, and its mechanism, as JSON."""

from __future__ import annotations

import base64
import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.mechanisms.adaptive import ROWS, THETA, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

_FINENESS = 2**16 - 1  # of the weights of rows, as they are kept

Arrays = dict[str, np.ndarray]


def counts_and_model(released: Mapping[str, np.ndarray], grain: int) -> tuple[Arrays, Arrays]:
    """Noisy counts in rows, and the arrays of a model, if one was released, as they are kept in a file."""
    tables = {name: cells / grain for name, cells in released.items() if name not in {ROWS, WEIGHTS, THETA}}
    if WEIGHTS not in released:
        return tables, {}
    model = {
        ROWS: released[ROWS],
        WEIGHTS: fine(released[WEIGHTS]),
        THETA: released[THETA].astype(np.float32),
    }
    return tables, model


def fine(weights: np.ndarray) -> np.ndarray:
    """Weights of rows in two bytes each."""
    return np.asarray(np.rint(weights / weights.max() * _FINENESS).astype(np.uint16))


def counts_to_dict(counts: Arrays) -> dict[str, Any]:
    """Counts as lists."""
    return {name: table.ravel().tolist() for name, table in counts.items()}


def counts_of(record: Mapping[str, Any]) -> Arrays:
    """The inverse of :func:`counts_to_dict`, without shapes."""
    return {name: np.array(cells) for name, cells in record.items()}


def settings(mechanism: Any) -> dict[str, Any]:
    """Public fields of a mechanism but for the sizes and the target, which the schema has."""
    return {
        field.name: getattr(mechanism, field.name)
        for field in fields(mechanism)
        if field.name not in {"sizes", "target"}
    }


def packed(arrays: Arrays) -> dict[str, Any]:
    """Arrays as plain JSON types."""
    return {
        name: {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "data": base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), level=6)).decode(),
        }
        for name, array in arrays.items()
    }


def unpacked(record: Mapping[str, Any]) -> Arrays:
    """The inverse of :func:`packed`."""
    return {
        name: np.frombuffer(zlib.decompress(base64.b85decode(each["data"])), dtype=np.dtype(each["dtype"]))
        .reshape(each["shape"])
        .copy()
        for name, each in record.items()
    }
