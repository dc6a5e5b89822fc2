"""What a saved model may not hold although its types are known: bombs, and indices out of bounds."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

__all__ = ["require_sound", "require_stored"]

_SPARE = 1 << 20  # bytes by which a file may grow when it is read


def require_stored(content: bytes, *, where: str) -> None:
    """Refuse a file that grows when it is read: skops stores, and does not compress."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        size = None
    if size is None or size > 2 * len(content) + _SPARE:
        raise ValueError(
            f"{where} is not a file as skops writes it: it must be a plain, uncompressed archive"
        )


def require_sound(model: Any, *, n_features: int, where: str) -> None:
    """Refuse trees whose compiled code would follow an index out of its arrays, or round in a circle."""
    waiting, seen = [model], set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if not _is_sound(found, n_features):
            raise ValueError(f"{where} holds a tree that leads out of bounds: it is not one that was trained")
        if isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list | tuple | set):
            waiting += found
        elif isinstance(found, np.ndarray):
            waiting += found.tolist() if found.dtype == object else []
        elif hasattr(found, "__dict__"):
            waiting += vars(found).values()


def _is_sound(model: Any, n_features: int) -> bool:
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if kind == "sklearn.tree._tree.Tree":
        return _is_tree(model, n_features)
    if kind in {"sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"}:
        return _is_index(model)
    return True


def _is_tree(tree: Any, n_features: int) -> bool:
    """Children come after their parents, within the nodes; features within the columns."""
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
    """Every row is there once, every node is a range of them, and the last level is one of leaves."""
    data, order, nodes, bounds = (np.asarray(part) for part in tree.get_arrays())
    start, end = nodes["idx_start"], nodes["idx_end"]
    return bool(
        np.array_equal(np.sort(order), np.arange(len(data)))
        and bounds.shape[1:] == (len(nodes), data.shape[1])
        and nodes["is_leaf"][2 * np.arange(len(nodes)) + 2 >= len(nodes)].all()
        and ((start >= 0) & (start <= end) & (end <= len(data))).all()
    )
