"""What it costs that a row is computed as if it were alone: whole fits and votes, by processor time.

The kernels of before, one product of all rows and its largest entries, take their places in the same run.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from sklearn.decomposition import PCA

from ostraka.synth import PrivateKMeans, clusters
from ostraka.voters import NeighbourVoter, RowVoter, neighbours, spectrum
from ostraka.voters.rows import FeatureCells

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, COLUMNS, WIDE, TURNS = 60_000, 60, 784, 4
QUICK = {"ROWS": 700, "TURNS": 1}
_BLOCK = 4096


def by_product(rows: np.ndarray, versions: list[np.ndarray], _k: int = 1, **_: Any) -> np.ndarray:
    """Nearest points by one product in single precision, near ties as it rounds."""
    points = versions[0].astype(rows.dtype)
    squares = np.square(points).sum(axis=1)
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    return np.concatenate([(squares - 2 * (block @ points.T)).argmin(axis=1) for block in blocks])[:, None]


def in_floats(X: np.ndarray, *, n_components: int, gamma: float, seed: int) -> np.ndarray:
    """Random features by one product in single precision."""
    n_pairs = n_components // 2
    directions = np.random.default_rng(seed).normal(0.0, np.sqrt(2 * gamma), (X.shape[1], n_pairs))
    angles = X.astype(np.float32) @ directions.astype(np.float32)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.float32(np.sqrt(n_pairs))


def at_once(transform: Callable[[Any], Any], rows: Any) -> Any:
    """All rows in one batch."""
    return transform(rows)


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one turn."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the ratio of the least times, in turn."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    rows, wide = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32), rng.normal(size=(ROWS // 3, WIDE))
    labels = rng.integers(0, 10, ROWS // 3)
    public = wide[: ROWS // 30]
    components, cells = PCA(min(COLUMNS, len(public) - 1)).fit(public), FeatureCells().fit(public)

    def grouped(kernel: str) -> Callable[[], object]:
        return lambda: PrivateKMeans(n_clusters=10, epsilon=2.0, delta=1e-6, kernel=kernel).fit(rows)

    def asked() -> None:
        voter = NeighbourVoter(transformer=components).fit(wide, labels, classes=range(10))
        voter.vote(public[:1000]).open()

    def counted() -> None:
        RowVoter(cells=cells).fit(wide[len(public) :], labels[len(public) :], classes=range(10)).vote()

    every: dict[str, tuple[Callable[[], object], Any, str, Any]] = {
        "PrivateKMeans": (grouped("plain"), clusters, "nearest", by_product),
        "PrivateKMeans, rbf": (grouped("rbf"), clusters, "nearest", by_product),
        "PrivateKMeans, rbf, random features": (grouped("rbf"), clusters, "random_features", in_floats),
        "NeighbourVoter, components": (asked, neighbours, "row_by_row", at_once),
        "RowVoter, FeatureCells": (counted, spectrum, "row_by_row", at_once),
    }
    for name, (work, module, kernel, former) in every.items():
        now, before = [], []
        for _ in range(TURNS):
            now.append(seconds(work))
            with mock.patch.object(module, kernel, former):
                before.append(seconds(work))
        print(f"{name}: {min(now):.2f} s, {min(now) / min(before):.2f} times as before", flush=True)


if __name__ == "__main__":
    main()
