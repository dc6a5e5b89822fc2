"""What one row adds to an aggregate, and how a public function sees each row by itself.

:class:`Contribution` states the first once, for voters, cells, generators and clients; :func:`row_by_row`
makes the second true bit for bit.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.core.numeric import one_thread
from ostraka.core.private import Adjacency

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCHES = (192, 24)  # rows that are transformed at once: multiples of the tiles of usual kernels
_PROBES = 3  # public batches of equal rows, by which it is seen whether places matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one row adds: a function of that row and of public values, bit for bit, within these norms.

    Public values are public rows, the schema, the settings, and what was released before. No encoding, type,
    range, category list, shape of a batch, kernel, refusal or warning that one private row decides for others
    is among them.

    Parameters
    ----------
    l0, l1, l2, linf : float > 0
        Bounds on what a row adds: entries other than zero, sum of sizes, Euclidean length, and the largest
        size. Infinity: not bounded in this norm. One at least is.

    Examples
    --------
    >>> vote = Contribution(l0=1, l1=1.0, l2=1.0, linf=1.0)
    >>> vote.holds([[2, 3], [4, 0]], [[2, 3], [4, 1]], relation="add-or-remove")
    True
    >>> vote.holds([[2, 3]], [[3, 2]], relation="add-or-remove")  # two rows moved
    False
    >>> vote.adjacency(relation="replace-one").l1
    2.0
    """

    l0: float = math.inf
    l1: float = math.inf
    l2: float = math.inf
    linf: float = math.inf

    def __post_init__(self) -> None:
        norms = {"l0": self.l0, "l1": self.l1, "l2": self.l2, "linf": self.linf}
        check.nonnegative(**{name: norm for name, norm in norms.items() if not math.isinf(norm)})
        if not 0 < min(norms.values()) < math.inf:
            raise ValueError(f"a row's part must be bounded in one norm at least, and above 0, got {norms}")

    def adjacency(self, *, unit: str = "row", relation: str = "replace-one") -> Adjacency:
        """What one unit moves: its part comes or goes; under replace-one, one goes and another comes."""
        times = 2.0 if relation == "replace-one" else 1.0
        return Adjacency.vector(
            unit=unit,
            l0=times * self.l0,
            l1=times * self.l1,
            l2=times * self.l2,
            linf=times * self.linf,
            relation=relation,
        )

    def holds(self, before: Any, after: Any, *, relation: str) -> bool:
        """Whether two aggregates of neighbours, before any noise, are as near as this promises."""
        change = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
        size, bounds = np.abs(change), self.adjacency(relation=relation)
        return bool(
            np.count_nonzero(change) <= bounds.l0
            and size.sum() <= bounds.l1
            and math.hypot(*change.ravel().tolist()) <= bounds.l2
            and size.max(initial=0.0) <= bounds.linf
        )


def row_by_row(transform: Callable[[Any], Any], rows: Any) -> np.ndarray:
    """What a public function of tables makes of each row: a function of that row alone, bit for bit.

    Parameters
    ----------
    transform : callable, from n rows to an array of shape (n, n_columns)
        Public. It maps each row by itself, up to rounding.
    rows : array, data frame or list of n_rows rows
        Private.

    Returns
    -------
    array of shape (n_rows, n_columns)
        NaN where ``transform`` raises on that row alone.

    Raises
    ------
    ValueError
        It raises on every row, or gives no table of numbers.

    Guarantees
    ----------
    A product of floats rounds a row by the shape of its batch, and in some libraries by its place there. So
    all batches of an array have one shape, filled up with copies of a row, if equal rows come out equal in
    all places of public batches. Otherwise, and for rows that are no array of numbers, each row is a batch of
    its own: text is often padded to the longest of its batch. No warning or error tells of a private row.
    """
    rows = np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows
    n_rows = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    features: np.ndarray | None = None
    with one_thread():
        size = 1
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiu":
            # many rows at once, where public ones show that places do not matter
            rng = np.random.default_rng(0)
            scale = 1.0 if rows.dtype.kind == "f" else 50.0
            probes = np.abs(rng.normal(scale=scale, size=(_PROBES, 1, *rows.shape[1:]))).astype(rows.dtype)
            for many in _BATCHES:
                batches = (_made(transform, probe, np.zeros(many, dtype=np.int64)) for probe in probes)
                if all(batch is not None and bool((batch == batch[0]).all()) for batch in batches):
                    size = many
                    break
        for begin in range(0, n_rows, size):
            places = np.minimum(np.arange(begin, begin + size), n_rows - 1)
            block = _made(transform, rows, places)
            if block is None and size > 1:
                # each of the rows which fail together, in a batch of its copies: NaN where it fails
                alone = [_made(transform, rows, np.full(size, place)) for place in places]
                like = next((row for row in alone if row is not None), None)
                if like is not None:
                    # of the type that all rows have: no row that fails decides it
                    nothing = np.full(like.shape[1:], np.nan, dtype=np.result_type(like, np.float32))
                    block = np.array([nothing if row is None else row[0] for row in alone])
            if block is None:
                continue
            if features is None:
                features = np.full((n_rows, block.shape[1]), np.nan, dtype=np.result_type(block, np.float32))
            features[begin : begin + size] = block[: n_rows - begin]
    if features is None:
        raise ValueError(
            "transformer cannot read the private rows: call its transform on public rows of the same kind"
        )
    return features


def _made(transform: Callable[[Any], Any], rows: Any, places: np.ndarray) -> np.ndarray | None:
    """Rows at these places, transformed; None where that fails."""
    from scipy.sparse import issparse
    from sklearn.utils import _safe_indexing

    with warnings.catch_warnings(), np.errstate(all="ignore"):  # which would tell of a private row
        warnings.simplefilter("ignore")
        # the text of an exception may hold private values, so it is not chained either
        try:
            batch = (
                rows.take(places, axis=0) if isinstance(rows, np.ndarray) else _safe_indexing(rows, places)
            )
            features = transform(batch)
            features = features if issparse(features) else np.ascontiguousarray(features)
        except Exception:  # noqa: BLE001
            return None
    if issparse(features):
        raise ValueError(
            "transformer must have dense features, got a sparse matrix: end it with TruncatedSVD, fitted on "
            "public rows, or call toarray()"
        )
    return (
        features
        if features.ndim == 2 and len(features) == len(places) and features.dtype.kind in "fiub"
        else None
    )
