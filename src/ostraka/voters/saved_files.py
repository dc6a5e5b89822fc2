"""Files of saved voters: skops models, plain arrays and JSON. Each is checked before it is parsed.

Validation of saved models whose types are trusted: decompression bombs, and indices out of bounds.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core.imports import model_bytes, skops_io

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ostraka.networks import TorchClassifier

LIST = "manifest.json"
_PLAIN_NAME = re.compile(r"[a-z]+(-\d{4})?\.(skops|npz|json)")
# What the teachers of `ostraka learn` hold beside what skops trusts. Data, none of it callable.
_TRUSTED = frozenset(
    {
        "numpy.dtype",
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.neighbors._ball_tree.BallTree",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.tree._tree.Tree",
    }
)


class SavedFiles:
    """The files of a list with their SHA-256. The content of a file is returned only if its hash is right."""

    def __init__(
        self,
        folder: Path,
        listed: Mapping[str, str],
        *,
        trusted: Iterable[str] = (),
        network: TorchClassifier | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self.folder, self.network, self._part = folder, network, part
        self._listed, self._trusted = dict(listed), _TRUSTED | frozenset(trusted)
        for name in self._listed:
            if not _PLAIN_NAME.fullmatch(name):
                raise ValueError(f"{folder / LIST} names an unknown file: {name!r}")

    def named(self, start: str) -> list[str]:
        """Names in the list that begin so, in order."""
        return sorted(name for name in self._listed if name.startswith(start))

    def mine(self, start: str) -> list[str]:
        """Those of one part: every n-th file, if there are n parts."""
        number, parts = self._part
        return self.named(start)[number::parts]

    def require(self, teachers: list[Any], n_teachers: int) -> None:
        """Raise unless these are all teachers; a part has fewer."""
        if self._part == (0, 1) and len(teachers) != n_teachers:
            raise ValueError(f"teachers must be {n_teachers}, got {len(teachers)}")

    def content(self, name: str) -> bytes:
        """The bytes of a listed file."""
        path = self.folder / name
        if name not in self._listed or not path.is_file():
            raise ValueError(f"{path} is missing: the folder must be the one that was saved")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self._listed[name]:
            raise ValueError(f"{path} is not the file that was saved: its hash differs")
        return content

    def json(self, name: str) -> Any:
        """A listed file as JSON."""
        return json.loads(self.content(name))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a listed file, none of them of objects."""
        content = self.content(name)
        validate_archive(content, where=str(self.folder / name))
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}

    def model(self, name: str, *, n_features: int) -> Any:
        """A model that skops wrote, after checks of its types and of the indices that it holds."""
        content, path = self.content(name), self.folder / name
        validate_archive(content, where=str(path))
        strange = sorted(set(skops_io().get_untrusted_types(data=content)) - self._trusted)
        if strange:
            raise ValueError(
                f"{path} holds types that are not trusted: {', '.join(strange)}. If you trained these "
                f"teachers and trust the libraries they come from, name each with --trust"
            )
        model = skops_io().loads(content, trusted=sorted(self._trusted))
        validate_model(model, n_features=n_features, where=str(path))
        return model


def write_model(path: Path, model: Any) -> None:
    """Write a model with skops."""
    path.write_bytes(model_bytes(model))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, without compression."""
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a folder by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


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
    waiting, visited = [model], set()
    while waiting:
        part = waiting.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        if not _is_valid(part, n_features):
            raise ValueError(
                f"{where} holds a tree with an index out of bounds: it was changed after training"
            )
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple | set):
            waiting += part
        elif isinstance(part, np.ndarray):
            waiting += part.tolist() if part.dtype == object else []
        elif hasattr(part, "__dict__"):
            waiting += vars(part).values()


def _is_valid(model: Any, n_features: int) -> bool:
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if kind == "sklearn.tree._tree.Tree":
        return _is_tree(model, n_features)
    if kind in {"sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"}:
        return _is_index(model)
    return True


def _is_tree(tree: Any, n_features: int) -> bool:
    """Whether children come after their parents and are nodes, and features are columns."""
    lefts, rights, n = tree.children_left, tree.children_right, tree.node_count
    inner = lefts != -1
    numbers = np.arange(n)
    return bool(
        n > 0
        and len(lefts) == len(rights) == len(tree.feature) == len(tree.threshold) == len(tree.value) == n
        and (inner == (rights != -1)).all()
        and all(((child[inner] > numbers[inner]) & (child[inner] < n)).all() for child in (lefts, rights))
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
