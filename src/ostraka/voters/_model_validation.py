"""Validation of saved models whose types are trusted: decompression bombs, and indices out of bounds."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

__all__ = ["validate_archive", "validate_model"]

_SPARE = 1 << 20  # bytes by which a file may grow when it is read


def validate_archive(content: bytes, *, where: str) -> None:
    """Refuse a compressed file, which nothing here writes: a small one could fill the memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        size = None
    if size is None or size > 2 * len(content) + _SPARE:
        raise ValueError(f"{where} is not a file that was saved: it must be a plain, uncompressed archive")


def validate_model(model: Any, *, n_features: int, where: str) -> None:
    """Refuse trees whose compiled code would read outside of its arrays, or loop forever."""
    waiting, seen = [model], set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if not _is_valid(found, n_features):
            raise ValueError(
                f"{where} holds a tree with an index out of bounds: it was changed after training"
            )
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list | tuple | set):
            waiting += found
        elif isinstance(found, np.ndarray):
            waiting += found.tolist() if found.dtype == object else []
        elif hasattr(found, "__dict__"):
            waiting += vars(found).values()


def _is_valid(model: Any, n_features: int) -> bool:
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if kind == "sklearn.tree._tree.Tree":
        return _is_tree(model, n_features)
    if kind in {"sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"}:
        return _is_index(model)
    return True


def _is_tree(tree: Any, n_features: int) -> bool:
    """Whether children come after their parents and are nodes, and features are columns."""
    left, right, n = tree.children_left, tree.children_right, tree.node_count
    inner = left != -1
    own = np.arange(n)
    return bool(
        n > 0
        and len(left) == len(right) == len(tree.feature) == len(tree.threshold) == len(tree.value) == n
        and (inner == (right != -1)).all()
        and all(((child[inner] > own[inner]) & (child[inner] < n)).all() for child in (left, right))
        and ((tree.feature[inner] >= 0) & (tree.feature[inner] < n_features)).all()
    )


def _is_index(tree: Any) -> bool:
    """Whether every row occurs once, every node is a range of rows, and the last level has leaves only."""
    data, order, nodes, bounds = (np.asarray(part) for part in tree.get_arrays())
    start, end = nodes["idx_start"], nodes["idx_end"]
    return bool(
        np.array_equal(np.sort(order), np.arange(len(data)))
        and bounds.shape[1:] == (len(nodes), data.shape[1])
        and nodes["is_leaf"][2 * np.arange(len(nodes)) + 2 >= len(nodes)].all()
        and ((start >= 0) & (start <= end) & (end <= len(data))).all()
    )
