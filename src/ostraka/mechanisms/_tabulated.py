"""Certified tight prices from a table. They are convex in the shift, so chords bound them (docs/proof.md).

``python -m ostraka.mechanisms._tabulated`` writes both tables anew, which takes about a quarter of an hour.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np

from ostraka.curve import ORDERS

__all__ = ["FURTHEST", "argmax", "node", "screen", "tabulate"]

FURTHEST = 6.0  # order * shift; beyond, the general bound counts
_PER_OCTAVE = 12
_LOWEST = -280  # the first shift is 2 to the power of this / 12, one vote at sigma of about 10,000,000
_COLUMNS = {"argmax": 281, "screen": 311}  # up to shifts of 1 and of 5.66
_DIGESTS = {
    "argmax": "f83c8fdafe8f65997479703f1784362302724736e531abec2ef30de58e8929ba",
    "screen": "0520c361cad813cb7bcd47218123a213ae3764a35fd751ab1e1154614a7dfe67",
}
_FULL = 65_535  # a share of 1 of the general bound
_ROUNDING = 1 + 1e-12
_ORDERS = np.array(ORDERS[:-1])


def node(column: int) -> float:
    """The shift of a column of the tables."""
    return float(2.0 ** ((_LOWEST + column) / _PER_OCTAVE))


def argmax(shift: float, orders: tuple[float, ...]) -> np.ndarray | None:
    """Upper bound of the price of a Gaussian argmax at each order, or None outside the table."""
    return _chord("argmax", shift, orders, 1.0)


def screen(shift: float, orders: tuple[float, ...]) -> np.ndarray | None:
    """Upper bound of the price of a Gaussian screen at each order, or None outside the table."""
    return _chord("screen", shift, orders, 0.5)


def _chord(kind: str, shift: float, orders: tuple[float, ...], count: float) -> np.ndarray | None:
    if orders != ORDERS or not node(0) <= shift <= node(_COLUMNS[kind] - 1):
        return None
    shares = _shares(kind)
    if shares is None:
        return None
    shifts = _shifts(kind)
    right = min(int(np.searchsorted(shifts, shift, side="right")), shifts.size - 1)
    low, high = shifts[right - 1], shifts[right]
    part = (shift - low) / (high - low)
    each = (1 - part) * low**2 * shares[right - 1] + part * high**2 * shares[right]
    price = np.append(_ORDERS * (count * _ROUNDING) * each, np.inf)
    price[np.array(ORDERS) * shift > FURTHEST] = np.inf
    return np.asarray(price)


@lru_cache(maxsize=2)
def _shifts(kind: str) -> np.ndarray:
    return np.array([node(column) for column in range(_COLUMNS[kind])])


@lru_cache(maxsize=2)
def _shares(kind: str) -> np.ndarray | None:
    """Shares of the general bound, shape (shifts, orders); None if the file is not as it was written."""
    path = _path(kind)
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != _DIGESTS[kind]:
        return None
    return np.frombuffer(content, dtype="<u2").reshape(_COLUMNS[kind], _ORDERS.size) / _FULL


def _path(kind: str) -> Path:
    return Path(__file__).with_name(f"_{kind}_prices.bin")


def tabulate(kind: str, column: int) -> np.ndarray:
    """One column of a table: certified shares of the general bound, rounded up, at every finite order."""
    from ostraka.mechanisms import _suprema  # noqa: PLC0415  (only whoever writes the table needs it)

    shift = node(column)
    supremum, count = {"argmax": (_suprema.argmax_supremum, 1.0), "screen": (_suprema.screen_supremum, 0.5)}[
        kind
    ]
    near = shift * 2 ** (-1 / _PER_OCTAVE) * _ORDERS <= FURTHEST  # the column before must not need more
    share = np.ones(_ORDERS.size)
    if near.any():
        share[near] = supremum(shift, _ORDERS[near]) / (count * _ORDERS[near] * shift**2)
    return np.minimum(np.ceil(share * (_FULL * _ROUNDING)), _FULL).astype("<u2")


def _main() -> None:
    for kind, columns in _COLUMNS.items():
        table = np.stack([tabulate(kind, column) for column in range(columns)])
        _path(kind).write_bytes(table.tobytes())
        sys.stdout.write(f"{kind}: {hashlib.sha256(table.tobytes()).hexdigest()}\n")


if __name__ == "__main__":
    _main()
