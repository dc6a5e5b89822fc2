"""The sum of parties' changes behind the masks of ``secure``: who adds sees uniform numbers, then the sum."""

from __future__ import annotations

import itertools

import numpy as np

from ostraka.secure.keys import new_secret
from ostraka.secure.masks import mask

__all__ = ["masked_sum"]

_MODULUS_BITS = 32
_SPARE_BITS = 1  # for the sign


def masked_sum(changes: np.ndarray) -> np.ndarray:
    """Each change in fixed point, plus masks that cancel in the sum. Rounding: 2**-30 of the largest sum."""
    largest = float(np.abs(changes).max()) * len(changes)
    scale = (2.0 ** (_MODULUS_BITS - _SPARE_BITS) - len(changes)) / largest if largest else 1.0
    hidden = np.rint(changes.astype(np.float64) * scale).astype(np.int64).astype(np.uint32)
    for one, other in itertools.combinations(range(len(changes)), 2):
        stream = mask(new_secret(), size=changes.shape[1])
        hidden[one] += stream
        hidden[other] -= stream
    total = hidden.sum(axis=0, dtype=np.uint32).view(np.int32)
    return np.asarray(total / scale)
