"""Checks against mistakes that would silently weaken privacy or distort a figure.

Rows are compared by digests under a key of this process; nothing of them is kept on disk.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ostraka.data.parquet import ParquetRows
from ostraka.data.table import written

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEATED = (
    "most private rows occur several times. If equal rows are one person's, only one of them is protected: "
    "pass groups= (--person COLUMN) to protect people"
)
WAY_OUT = (
    "they would be neither private nor a test; take rows of other units, or allow_overlap=True "
    "(--allow-overlap), which the record states"
)
KEY = os.urandom(16)
_FALSE_ALARM = 1e-4  # that equal rows of two independent samples of one population are taken for copies
_Z = 4.5  # standard deviations, for the same reason: a chance of 3e-6
_SKETCH = 512  # smallest digests of a table: two tables that share a few per cent of their rows share some
_BLOCK = 1 << 14  # rows whose digests are made at a time
_AT_ONCE = 1 << 20  # digests that are compared at a time
_REFIT = (
    "these private rows were learned from before in this process, under another ledger: each result states "
    "its own epsilon only, and together they cost about the sum. Pass one ledger=PATH to all of them"
)
_seen: list[np.ndarray] = []
_warned: list[bool] = []


def row_digests(X: Any, *, columns: Any = None) -> np.ndarray:
    """Return a 64-bit digest of each row, in rising order; different rows collide with a chance of 2⁻⁶⁴.

    Parameters
    ----------
    X : array or data frame, shape (n_rows, n_columns)
    columns : sequence of str, optional
        Names in the order to read them in. None: as they come.
    """
    digests = _digests(_columns(X, names=columns))
    digests.sort()
    return digests


def require_apart(private: np.ndarray, others: np.ndarray, *, what: str, way_out: str) -> None:
    """Refuse public rows that seem to be copies of private ones, by digests in rising order.

    Rows of coarse tables are often equal by chance. If both tables were samples of one population, then of
    all rows of one value, each would stand in either table by chance. Copies balance the tables more.

    Raises
    ------
    ValueError
        Some are copies; the message says how many, and ``way_out``.
    """
    from scipy.stats import binom

    pooled = _Pooled.of(private, others)
    n, m = pooled.n_private, int(pooled.others.sum())
    # more of the rows that occur twice are in both tables than chance explains
    apart = int(((pooled.private == 1) & (pooled.others == 1)).sum())
    beyond_chance = binom.sf(apart - 1, pooled.times.get(2, 0), 2 * n * m / (n + m) ** 2) < _FALSE_ALARM
    if not beyond_chance:
        # the tables share more rows, each counted as in the table with fewer, than by chance
        mean = variance = 0.0
        for kind, times in pooled.times.items():
            counts = np.arange(kind + 1)
            chance, shared = binom.pmf(counts, kind, n / (n + m)), np.minimum(counts, kind - counts)
            expected = float(chance @ shared)
            mean += times * expected
            variance += times * (float(chance @ shared**2) - expected**2)
        excess = float(np.minimum(pooled.private, pooled.others).sum()) - mean
        beyond_chance = excess > _Z * np.sqrt(variance) > 0
    if not beyond_chance:
        return
    copies = int(np.count_nonzero(_occurrences(private, others)))
    raise ValueError(f"{copies:,} of the {len(others):,} {what} are private rows, too: {way_out}")


def seems_repeated(X: Any, digests: np.ndarray) -> bool:
    """Whether most rows occur twice, by sorted digests, although few would if columns were independent."""
    if _twins(digests) <= len(digests) / 2:
        return False
    shuffle = np.random.default_rng(0)  # decides about a warning only
    if isinstance(X, ParquetRows):  # rows of one group are enough to see it
        X = next(block for _, block in X.blocks(X.pieces))
    shuffled = np.sort(_digests([shuffle.permutation(column) for column in _columns(X)]))
    return _twins(shuffled) < len(shuffled) / 10


def require_safe_pipeline(model: Any, *, public_given: bool) -> None:
    """Refuse a scikit-learn Pipeline that fits its other steps to the private rows before this estimator.

    Raises
    ------
    ValueError
        Such a step, or public rows that do not pass through the steps.
    """
    # the Pipeline that is fitting this estimator as its last step, if there is one, stands up the stack
    frame = inspect.currentframe()
    pipeline: Any = None
    while frame is not None and pipeline is None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps[-1][1] is model:
            pipeline = caller
        frame = frame.f_back
    if pipeline is None:
        return
    before = [step for _, step in pipeline.steps[:-1] if step is not None and step != "passthrough"]
    for step in before:
        if not isinstance(step, FrozenEstimator) and get_tags(step).requires_fit:
            raise ValueError(
                f"{type(step).__name__} stands before {type(model).__name__} in a Pipeline and was fitted to "
                "private rows, so their privacy is lost. Put it inside the teachers and the student, "
                f"estimator=make_pipeline({type(step).__name__}(), …), or fit it to public rows and freeze "
                "it with sklearn.frozen.FrozenEstimator"
            )
    if before and public_given and "X_public" not in (getattr(pipeline, "transform_input", None) or ()):
        raise ValueError(
            "X_public does not pass through the steps of the Pipeline that X passes through: use "
            "Pipeline(…, transform_input=['X_public']) with metadata routing, as docs/quickstart.md has it"
        )


def warn_of_refits(digests: np.ndarray) -> None:
    """Warn once in a process that the same rows were learned from under two ledgers in memory."""
    size = _SKETCH
    sketch = np.unique(digests[:size])
    while len(sketch) < _SKETCH and size < len(digests):
        size *= 2
        sketch = np.unique(digests[:size])[:_SKETCH].copy()
    if not _warned and any(np.isin(sketch, earlier).any() for earlier in _seen):
        _warned.append(True)
        warnings.warn(_REFIT, stacklevel=2)
    _seen.append(sketch)


class _Pooled(NamedTuple):
    """Rows of two tables together.

    ``times`` says how many different rows occur how often; ``private`` and ``others``, how often each
    different row of the other table occurs in either. A table that is repeated as a whole counts once.
    """

    times: dict[int, int]
    private: np.ndarray
    others: np.ndarray
    n_private: int

    @classmethod
    def of(cls, private: np.ndarray, others: np.ndarray) -> Self:
        """Count the rows of two tables, whose digests are in rising order."""
        lengths = Counter[int]()
        for some in _run_lengths(private):
            kinds, numbers = np.unique(some, return_counts=True)
            lengths.update(dict(zip(kinds.tolist(), numbers.tolist(), strict=True)))
        repeats = math.gcd(*lengths)
        values, counts = np.unique(others, return_counts=True)
        counts = counts // np.gcd.reduce(counts)
        mine = _occurrences(private, values) // repeats
        times = Counter({kind // repeats: number for kind, number in lengths.items()})
        times.subtract(Counter(mine[mine > 0].tolist()))
        times.update((mine + counts).tolist())
        return cls(times, mine, counts, len(private) // repeats)


def _occurrences(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """How often each of some numbers occurs in a sorted array."""
    ends = [np.searchsorted(ordered, values, side=side) for side in ("left", "right")]
    return np.asarray(ends[1] - ends[0])


def block_digests(key: bytes, block: np.ndarray) -> np.ndarray:
    """Digests of numbers under the key of another process."""
    return _digests(list(block.T), key=key)


def _digests(columns: list[np.ndarray], *, key: bytes = KEY) -> np.ndarray:
    """Return a digest of each row, made block by block: a block fits a processor's cache."""
    digests = np.full(len(columns[0]), int.from_bytes(key[:8]), dtype=np.uint64)
    keyed = []
    for column in columns:
        if column.dtype.kind in "biuf":
            keyed.append(column)
            continue
        texts, codes = np.unique([written(value) for value in column.tolist()], return_inverse=True)
        encoded = [text.encode(errors="surrogatepass") for text in texts.tolist()]
        keys = [hashlib.blake2b(text, key=key, digest_size=8).digest() for text in encoded]
        keyed.append(np.frombuffer(b"".join(keys), dtype=np.uint64)[codes])
    for start in range(0, len(digests), _BLOCK):
        digest = digests[start : start + _BLOCK]
        for column, words in zip(columns, keyed, strict=True):
            part = words[start : start + _BLOCK]
            mixed_in(digest, part if words is not column else bits(part))
    return digests


def _columns(X: Any, *, names: Any = None) -> list[np.ndarray]:
    """Return the columns of an array or a data frame, of which in this order."""
    if not hasattr(X, "columns"):
        return list(np.asarray(X).T)
    return [np.asarray(X[name]) for name in (X.columns if names is None else names)]


def _twins(ordered: np.ndarray) -> int:
    """Return the number of rows that are equal to another one."""
    return sum(int(lengths[lengths > 1].sum()) for lengths in _run_lengths(ordered))


def _run_lengths(ordered: np.ndarray) -> Iterator[np.ndarray]:
    """How often each different number of a sorted array occurs, block by block."""
    begun = 0
    for start in range(1, len(ordered), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(ordered))
        starts = start + np.flatnonzero(ordered[start:stop] != ordered[start - 1 : stop - 1])
        yield np.diff(starts, prepend=begun)
        begun = int(starts[-1]) if len(starts) else begun
    yield np.array([len(ordered) - begun])


def bits(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as 64-bit words, equal ones as equal words."""
    floats = numbers.astype(np.float64) + 0.0  # -0.0 is 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def mixed_in(digests: np.ndarray, words: np.ndarray) -> None:
    """Mix 64 bits of each row into its digest, in place."""
    digests ^= words
    # the finaliser of SplitMix64: every bit depends on every bit
    digests ^= digests >> np.uint64(30)
    digests *= np.uint64(0xBF58476D1CE4E5B9)
    digests ^= digests >> np.uint64(27)
    digests *= np.uint64(0x94D049BB133111EB)
    digests ^= digests >> np.uint64(31)
