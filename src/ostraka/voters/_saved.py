"""Fitted teachers in a folder: skops files and a list of their hashes. Files are checked before parsing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ostraka import _check
from ostraka.mechanisms.records import from_record, to_record
from ostraka.voters._network_teachers import as_network
from ostraka.voters._voting import Teacher
from ostraka.voters.teachers import TeacherEnsemble

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["SavedTeachers"]

_VERSION = 1
_LIST = "manifest.json"
_A_FILE = 25  # teachers
_PLAIN_NAME = re.compile(r"[a-z]+(-\d{4})?\.skops")
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SavedTeachers:
    """A fitted ensemble with the settings for further answers: columns of the rows, and mechanisms.

    Attributes
    ----------
    ensemble : TeacherEnsemble
        Private: trained on private rows, without noise.
    mechanism : GNMax, LNMax or any other registered ballot mechanism
        Public. See :func:`ostraka.mechanisms.records.register`.
    screen : Threshold or None
        Public.
    columns : tuple of str
        Public. Names of a row's values, in order.
    numeric : tuple of bool
        Public. Which values are numbers; the others are text.
    grid : dict of str to float
        Public. The grid step of each feature ("0", "1", …): rows in one cell are the same query.
    encoder : fitted transformer or None
        Public. Computes features from a row's values; None if the values are the features.
    sha256 : str
        Hash of the list of files that the teachers were read from; empty before they are saved.

    Raises
    ------
    ValueError
        ``columns``, ``numeric`` and ``grid`` do not fit the ensemble.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from ostraka import GNMax, TeacherEnsemble
    >>> from ostraka.consistent import Consistent
    >>> X, y = load_iris(return_X_y=True)
    >>> ensemble = TeacherEnsemble(GaussianNB(), n_teachers=10).fit(X[::2], y[::2], classes=[0, 1, 2])
    >>> saved = SavedTeachers(
    ...     ensemble=ensemble,
    ...     mechanism=GNMax(sigma=3.0),
    ...     columns=("sepal length", "sepal width", "petal length", "petal width"),
    ...     numeric=(True,) * 4,
    ...     grid=Consistent.grid_of(X[1::2]),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = saved.save(f"{folder}/teachers")
    ...     again = SavedTeachers.load(f"{folder}/teachers")
    >>> again.ensemble.vote(X[1::2]), again.mechanism
    (Private(shape=(75, 3), unit='row'), GNMax(sigma=3.0))
    """

    ensemble: TeacherEnsemble
    mechanism: BallotMechanism
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    grid: dict[str, float]
    screen: BallotMechanism | None = None
    encoder: Any = None
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.columns or len(self.columns) != len(self.numeric):
            raise ValueError("columns must name every cell, and numeric say of each whether it is a number")
        if self.encoder is None and not (all(self.numeric) and len(self.columns) == self._n_features):
            raise ValueError(
                f"columns must be {self._n_features} numbers, as the teachers know, without encoder"
            )
        if set(self.grid) != {str(j) for j in range(self._n_features)}:
            raise ValueError(f"grid must name a step for each of {self._n_features} features")
        _check.positive(**{f"grid[{name}]": step for name, step in self.grid.items()})

    @property
    def _n_features(self) -> int:
        return int(self.ensemble.n_features_in_)

    def save(self, folder: str | os.PathLike[str] | Path) -> str:
        """Write a new folder that only its owner can read, in one step.

        Returns
        -------
        str
            ``sha256`` of the list of files, which identifies these teachers.

        Raises
        ------
        FileExistsError
            The folder exists.
        ValueError
            The teachers are torch networks, or the mechanism is of a type that is not registered.
        """
        if as_network(self.ensemble.estimator) is not None:
            raise ValueError(
                "teachers that are torch networks cannot be saved here. Give the network checkpoint=FOLDER, "
                "the ensemble an integer random_state, and fit a manifest: fitting again then reads the "
                "weights and trains nothing"
            )
        to_record(self.mechanism)  # refused before anything is written
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(f"{folder} exists: saved teachers are not overwritten")
        beside = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(mode=0o700, parents=True)
        listed = self._written(beside)
        text = json.dumps(listed, indent=2)
        (beside / _LIST).write_text(text)
        for path in beside.iterdir():
            path.chmod(0o600)
        beside.replace(folder)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | Path, *, trusted: Iterable[str] = ()) -> Self:
        """Read a folder back: every hash is checked before its file is parsed.

        Parameters
        ----------
        folder : path
        trusted : iterable of str
            Types to accept in addition to those that skops and this library trust.

        Raises
        ------
        ValueError
            A file is missing or changed, or holds a type that is not trusted.
        """
        folder = Path(folder)
        if not (folder / _LIST).is_file():
            raise ValueError(
                f"{folder} holds no {_LIST}: train with 'ostraka learn … --keep-teachers', "
                "and type the folder of that run"
            )
        text = (folder / _LIST).read_bytes()
        listed = json.loads(text)
        if listed.get("version") != _VERSION:
            raise ValueError(f"{folder / _LIST} must be of version {_VERSION}, got {listed.get('version')!r}")
        found = {
            name: _parsed(folder, name, sha256, n_features=listed["n_features"], trusted=frozenset(trusted))
            for name, sha256 in listed["files"].items()
        }
        teachers = [
            _teacher(plain) for name in sorted(found) if name.startswith("teachers-") for plain in found[name]
        ]
        ensemble = TeacherEnsemble(found["estimator.skops"], n_teachers=listed["n_teachers"], n_jobs=1)
        ensemble.restore(
            teachers,
            classes=np.array(listed["classes"]),
            n_features=listed["n_features"],
            unit=listed["unit"],
        )
        return cls(
            ensemble=ensemble,
            mechanism=from_record(listed["mechanism"]),
            screen=None if listed["screen"] is None else from_record(listed["screen"]),
            columns=tuple(listed["columns"]),
            numeric=tuple(listed["numeric"]),
            grid=listed["grid"],
            encoder=found.get("encoder.skops"),
            sha256=hashlib.sha256(text).hexdigest(),
        )

    @staticmethod
    def name(folder: str | os.PathLike[str] | Path) -> str:
        """The ``sha256`` of saved teachers, without parsing them: to compare before :meth:`load`."""
        path = Path(folder) / _LIST
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def _written(self, folder: Path) -> dict[str, Any]:
        """Write the models, and return the list of files."""
        teachers = [_plain(teacher) for teacher in self.ensemble.teachers_]
        models: dict[str, Any] = {"estimator.skops": self.ensemble.estimator}
        if self.encoder is not None:
            models["encoder.skops"] = self.encoder
        for start in range(0, len(teachers), _A_FILE):
            models[f"teachers-{start // _A_FILE:04}.skops"] = teachers[start : start + _A_FILE]
        return {
            "version": _VERSION,
            "unit": self.ensemble.unit_,
            "classes": self.ensemble.classes_.tolist(),
            "n_teachers": len(teachers),
            "n_features": self._n_features,
            "columns": self.columns,
            "numeric": self.numeric,
            "grid": self.grid,
            "mechanism": to_record(self.mechanism),
            "screen": None if self.screen is None else to_record(self.screen),
            "files": {name: _dumped(model, folder / name) for name, model in models.items()},
        }


def _dumped(model: Any, path: Path) -> str:
    import skops.io  # noqa: PLC0415  (only needed for saving and serving)

    skops.io.dump(model, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _parsed(folder: Path, name: str, sha256: str, *, n_features: int, trusted: frozenset[str]) -> Any:
    """Parse a model of the list after checks of its hash and its types."""
    import skops.io  # noqa: PLC0415

    from ostraka.voters._model_validation import validate_archive, validate_model  # noqa: PLC0415

    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"{folder / _LIST} names an unknown file: {name!r}")
    if not (folder / name).is_file():
        raise ValueError(f"{folder / name} is missing: the folder must be the one that 'ostraka learn' wrote")
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{folder / name} is not the file that was saved: its hash differs")
    validate_archive(content, where=str(folder / name))
    strange = sorted(set(skops.io.get_untrusted_types(data=content)) - _TRUSTED - trusted)
    if strange:
        raise ValueError(
            f"{folder / name} holds types that are not trusted: {', '.join(strange)}. If you trained these "
            f"teachers and trust the libraries they come from, name each with --trust"
        )
    model = skops.io.loads(content, trusted=sorted(_TRUSTED | trusted))
    validate_model(model, n_features=n_features, where=str(folder / name))
    return model


def _plain(teacher: Teacher) -> dict[str, Any]:
    """Convert a teacher to types that skops can store; large numbers become text."""
    return {
        "model": teacher.model,
        "present": teacher.present,
        "fallback": int(teacher.fallback),
        "entropy": str(teacher.seed.entropy),
        "spawn_key": [int(part) for part in teacher.seed.spawn_key],
    }


def _teacher(plain: dict[str, Any]) -> Teacher:
    seed = np.random.SeedSequence(int(plain["entropy"]), spawn_key=tuple(plain["spawn_key"]))
    return Teacher(plain["model"], np.asarray(plain["present"]), seed, plain["fallback"])
