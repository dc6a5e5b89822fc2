"""Files of saved voters: skops models, plain arrays and JSON. Each is checked before it is parsed."""

from __future__ import annotations

import hashlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka._imports import skops_io

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ostraka.networks import TorchClassifier

__all__ = ["LIST", "SavedFiles", "digests", "write_arrays", "write_model"]

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
        from ostraka.voters._model_validation import validate_archive  # noqa: PLC0415

        content = self.content(name)
        validate_archive(content, where=str(self.folder / name))
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            return {each: found[each] for each in found.files}

    def model(self, name: str, *, n_features: int) -> Any:
        """A model that skops wrote, after checks of its types and of the indices that it holds."""
        from ostraka.voters._model_validation import validate_archive, validate_model  # noqa: PLC0415

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
    skops_io().dump(model, path)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, without compression."""
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a folder by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
