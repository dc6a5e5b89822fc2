"""Saved voters: a fitted voter of any kind in a folder, read back into one process or several.

A folder holds skops models, plain arrays and JSON, and a list of their hashes: each file is checked before it
is parsed. A kind says what each voter is written as. Saved teachers may vote in several processes of this
machine, whose partial votes are summed (:class:`SplitTeachers`): ``python -m ostraka.voters.saved FD`` is
such a process, with a part of the teachers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import warnings
import zipfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from ostraka.core import check, files
from ostraka.core.imports import model_bytes, skops_io
from ostraka.core.mechanisms.records import from_record, to_record
from ostraka.core.private import Adjacency, Private
from ostraka.data.units import Manifest
from ostraka.parties.parties import PartyEnsemble
from ostraka.secure.agreement import Agreement
from ostraka.secure.keys import Identity
from ostraka.voters.endpoint import Endpoint, ResponseCache
from ostraka.voters.kinds import LinearTeachers, kind_of_model
from ostraka.voters.neighbours import Nearest, NeighbourVoter
from ostraka.voters.prompts import PromptEnsemble, Reader, Template
from ostraka.voters.teachers import TeacherEnsemble, as_network
from ostraka.voters.voting import Teacher, count_votes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.networks import TorchClassifier

_VERSION = 1
_A_FILE = 25  # teachers
_CLASSES = 1 << 16  # of rows that vote with their labels, which are stored as uint16
_OF_PROMPTS = "model", "n_shots", "max_calls", "max_cost", "prices"
_OF_TEACHER = "present", "fallback", "trained"
LIST = "manifest.json"
_LISTED = {"classes", "columns", "numeric", "grid", "mechanism", "screen", "files"}
_PLAIN_NAME = re.compile(r"[a-z]+(-\d{4})?\.(skops|npz|json)")
# What the teachers of `ostraka learn` hold beside what skops trusts. Data, none of it callable.
_TREE = "sklearn.tree._tree.Tree"
_INDICES = frozenset({"sklearn.neighbors._ball_tree.BallTree", "sklearn.neighbors._kd_tree.KDTree"})
_TRUSTED = _INDICES | {"numpy.dtype", "sklearn.metrics._dist_metrics.EuclideanDistance64", _TREE}
_SPARE = 1 << 20  # bytes by which a file may grow when it is read
READY = b"ready"
_PROGRAM = "ostraka.voters.saved"
_ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each process is one of several
_STARTING, _VOTING = 600.0, 60.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class SavedTeachers:
    """A fitted voter with the settings for further answers: columns of the rows, and mechanisms.

    Attributes
    ----------
    ensemble : TeacherEnsemble, NeighbourVoter, PartyEnsemble or PromptEnsemble
        Private: it holds private rows, or models that were trained on them without noise.
    mechanism : GNMax, LNMax or any other registered ballot mechanism
        Public. See :func:`ostraka.core.mechanisms.records.register`.
    screen : Threshold or None
        Public.
    columns : tuple of str
        Public. Names of a row's values, in order. For prompts one, which is the text.
    numeric : tuple of bool
        Public. Which values are numbers; the others are text.
    grid : dict of str to float
        Public. The grid step of each feature ("0", "1", …): rows in one cell are the same query. Empty for
        prompts, where the same text is the same query.
    encoder : fitted transformer or None
        Public. Computes features from a row's values; None if the values are the features.
    sha256 : str
        Hash of the list of files that the voter was read from; empty before it is saved.

    Raises
    ------
    ValueError
        ``columns``, ``numeric`` and ``grid`` do not fit the voter, or the mechanism does not hide what one
        unit can do to its votes.
    TypeError
        ``ensemble`` is of another type.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from ostraka import GNMax, TeacherEnsemble
    >>> from ostraka.core.consistent import Consistent
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

    ensemble: Any
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
        width = kind_of(self.ensemble).width(self.ensemble)
        n_features = len(self.grid) if width is None else width
        if width == 0:
            if self.numeric != (False,) or self.encoder is not None or self.grid:
                raise ValueError("prompts take one column of text, without encoder and grid")
        elif self.encoder is None and not (all(self.numeric) and len(self.columns) == n_features):
            raise ValueError(f"columns must be {n_features} numbers, as the teachers know, without encoder")
        elif set(self.grid) != {str(j) for j in range(n_features)}:
            raise ValueError(f"grid must name a step for each of {n_features} features")
        check.positive(**{f"grid[{name}]": step for name, step in self.grid.items()})
        for name, mechanism in (("mechanism", self.mechanism), ("screen", self.screen)):
            if mechanism is not None and not self.adjacency.within(mechanism.promise):
                raise ValueError(
                    f"{name} must hide {self.adjacency}, which is what one unit can do to these votes, got "
                    f"{mechanism!r}, which promises {mechanism.promise}"
                )

    @property
    def kind(self) -> str:
        """Public: ``"teachers"``, ``"networks"``, ``"neighbours"``, ``"parties"`` or ``"prompts"``."""
        return kind_of(self.ensemble).name

    @property
    def classes(self) -> list[Any]:
        """Public: every class there may be, in the order of the votes' columns."""
        names: list[Any] = self.ensemble.classes_.tolist()
        return names

    @property
    def adjacency(self) -> Adjacency:
        """Public: what one unit can do to the votes."""
        return kind_of(self.ensemble).adjacency(self.ensemble)

    @property
    def n_ballots(self) -> int:
        """Public: the largest number of ballots in a query."""
        return kind_of(self.ensemble).ballots(self.ensemble)

    def vote(self, rows: Any) -> Private:
        """Votes on rows of features, or on texts of shape (n_queries, 1).

        Parameters
        ----------
        rows : array, shape (n_queries, n_features)
            Public.

        Returns
        -------
        Private of shape (n_queries, n_classes), in votes
        """
        votes: Private = self.ensemble.vote(rows if self.grid else [text for (text,) in rows])
        return votes

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
            The voter cannot be written (parties in this process, prompts of a function), or the mechanism is
            of a type that is not registered.
        """
        kind = kind_of(self.ensemble)
        kind.check(self.ensemble)
        for mechanism in (self.mechanism, self.screen):  # refused before anything is written
            if mechanism is not None:
                to_record(mechanism)
        try:
            with files.new_folder(folder) as draft:
                of_voter = kind.write(self.ensemble, draft)
                if self.encoder is not None:
                    write_model(draft / "encoder.skops", self.encoder)
                listed = {
                    "version": _VERSION,
                    "kind": kind.name,
                    **of_voter,
                    "classes": self.classes,
                    "columns": self.columns,
                    "numeric": self.numeric,
                    "grid": self.grid,
                    "mechanism": to_record(self.mechanism),
                    "screen": None if self.screen is None else to_record(self.screen),
                    "files": digests(draft),
                }
                text = json.dumps(listed, indent=2)
                (draft / LIST).write_text(text)
        except FileExistsError:
            raise FileExistsError(f"{folder} exists: saved teachers are not overwritten") from None
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str] | Path,
        *,
        trusted: Iterable[str] = (),
        network: TorchClassifier | None = None,
        processes: int | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> Self:
        """Read a folder back: every hash is checked before its file is parsed. Nothing is unpickled.

        Parameters
        ----------
        folder : path
        trusted : iterable of str
            Types to accept in addition to those that skops and this library trust.
        network : TorchClassifier, optional
            The network that was trained, if its module is not one of ostraka's names.
        processes : int, optional
            Read the teachers in so many other processes of this machine, which vote at the same time and
            send the counts of their ballots. At most one for 25 teachers.
        part : (int, int)
            Number of this process's part, and how many parts there are: what such a process reads.

        Raises
        ------
        ValueError
            A file is missing or changed, or holds a type that is not trusted.
        """
        folder = check.path(folder=folder)
        if not (folder / LIST).is_file():
            raise ValueError(
                f"{folder} holds no {LIST}: train with 'ostraka learn … --keep-teachers', "
                "and type the folder of that run"
            )
        text = (folder / LIST).read_bytes()
        listed, sha256 = check.parsed(text), hashlib.sha256(text).hexdigest()
        if not isinstance(listed, dict):
            raise ValueError(  # noqa: TRY004  (of a file, not of an argument)
                f"{folder / LIST} is damaged: take the folder from a backup, or train again"
            )
        if listed.get("version") != _VERSION:
            raise ValueError(f"{folder / LIST} must be of version {_VERSION}, got {listed.get('version')!r}")
        if missing := sorted(_LISTED - listed.keys()):
            raise ValueError(
                f"{folder / LIST} is damaged, without {', '.join(missing)}: take the folder from a backup, "
                "or train again"
            )
        kind = KINDS.get(listed.get("kind", "teachers"))
        if kind is None:
            raise ValueError(f"{folder / LIST} must name one of {', '.join(KINDS)}, got {listed['kind']!r}")
        files = SavedFiles(folder, listed["files"], trusted=trusted, network=network, part=part)
        if processes is not None:
            if kind.name not in {"teachers", "networks"} or network is not None:
                raise ValueError("processes are for teachers, and for networks that ostraka has a name for")
            voter: Any = SplitTeachers(folder, listed, sha256=sha256, processes=processes, trusted=trusted)
        else:
            voter = kind.read(listed, files)
        encoder = None
        if files.named("encoder.skops"):
            encoder = files.model("encoder.skops", n_features=len(listed["grid"]))
        return cls(
            ensemble=voter,
            mechanism=from_record(listed["mechanism"]),
            screen=None if listed["screen"] is None else from_record(listed["screen"]),
            columns=tuple(listed["columns"]),
            numeric=tuple(listed["numeric"]),
            grid=listed["grid"],
            encoder=encoder,
            sha256=sha256,
        )

    @staticmethod
    def name(folder: str | os.PathLike[str] | Path) -> str:
        """The ``sha256`` of saved teachers, without parsing them: to compare before :meth:`load`."""
        path = Path(folder) / LIST
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


class _Teachers:
    """Scikit-learn teachers, as skops files. Every kind says the same of its voters."""

    name = "teachers"

    def width(self, voter: TeacherEnsemble) -> int:
        """Numbers in a question; 0: a question is one text; None: not known."""
        return int(voter.n_features_in_)

    def adjacency(self, voter: TeacherEnsemble) -> Adjacency:
        """What one unit can do to the votes."""
        return Adjacency.one_ballot(unit=voter.unit_)

    def ballots(self, voter: TeacherEnsemble) -> int:
        """The largest number of ballots in a query."""
        return len(voter.teachers_)

    def check(self, voter: TeacherEnsemble) -> None:
        """Raise ValueError unless the voter can be saved: here any can."""

    def write(self, voter: TeacherEnsemble, folder: Path) -> dict[str, Any]:
        """Write the files of a voter, and return what the list says about it."""
        teachers = [
            {  # types that skops can store; large numbers become text
                "model": teacher.model,
                "present": teacher.present,
                "fallback": int(teacher.fallback),
                "entropy": str(teacher.seed.entropy),
                "spawn_key": [int(part) for part in teacher.seed.spawn_key],
            }
            for teacher in voter.teachers_
        ]
        write_model(folder / "estimator.skops", voter.estimator)
        for start in range(0, len(teachers), _A_FILE):
            write_model(folder / f"teachers-{start // _A_FILE:04}.skops", teachers[start : start + _A_FILE])
        return {"unit": voter.unit_, "n_teachers": len(teachers), "n_features": self.width(voter)}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> TeacherEnsemble:
        """The voter of a list and its files."""
        n_features = listed["n_features"]
        estimator = files.model("estimator.skops", n_features=n_features)
        teachers = []
        for name in files.mine("teachers-"):
            for plain in files.model(name, n_features=n_features):
                seed = np.random.SeedSequence(int(plain["entropy"]), spawn_key=tuple(plain["spawn_key"]))
                present = np.asarray(plain["present"])
                teachers.append(Teacher(plain["model"], present, seed, plain["fallback"]))
        files.require(teachers, listed["n_teachers"])
        return restored(estimator, teachers, listed)


class _Networks(_Teachers):
    """Teachers that are torch networks, as plain arrays."""

    name = "networks"

    def check(self, voter: TeacherEnsemble) -> None:
        try:
            _weights(voter.teachers_)
        except TypeError:
            raise ValueError(
                "weights must be of types that NumPy has: convert the networks to float32"
            ) from None

    def write(self, voter: TeacherEnsemble, folder: Path) -> dict[str, Any]:
        for start in range(0, len(voter.teachers_), _A_FILE):
            part = voter.teachers_[start : start + _A_FILE]
            write_arrays(folder / f"networks-{start // _A_FILE:04}.npz", _weights(part))
        network = as_network(voter.estimator)
        assert network is not None  # noqa: S101  (the kind says so)
        settings = {
            "module": network.module if isinstance(network.module, str) else None,  # else it is given again
            "batch_size": int(network.batch_size),
            "n_threads": network.n_threads,
        }
        sizes = {"n_teachers": len(voter.teachers_), "n_features": self.width(voter)}
        return {"unit": voter.unit_, **sizes, "network": settings}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> TeacherEnsemble:
        torch = check.require("torch", extra="torch")
        from ostraka.nets.stacks import TrainedNetwork, weights_of  # noqa: PLC0415
        from ostraka.nets.vectorised import plan  # noqa: PLC0415
        from ostraka.networks import TorchClassifier  # noqa: PLC0415

        # the architecture that the weights belong to
        how, network = listed["network"], files.network
        if how["module"] is None and network is None:
            raise ValueError(
                "these networks are of a module of yours, which no file holds: type "
                "SavedTeachers.load(folder, network=TorchClassifier(module))"
            )
        if network is None:
            network = TorchClassifier(how["module"], batch_size=how["batch_size"], n_threads=how["n_threads"])
        training = plan(network, n_features=listed["n_features"], n_classes=len(listed["classes"]))
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in weights_of(training.module).items()}
        teachers = []
        for arrays in map(files.arrays, files.mine("networks-")):
            for number in sorted({int(name.partition("/")[0]) for name in arrays}):
                present, fallback, trained = (arrays[f"{number}/{name}"] for name in _OF_TEACHER)
                start = f"{number}/weights/"
                weights = {
                    name.removeprefix(start): torch.from_numpy(array.copy())
                    for name, array in arrays.items()
                    if name.startswith(start)
                }
                shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()}
                if trained and shapes != wanted:
                    raise ValueError("the weights do not fit the network: type the module that was trained")
                codes = np.append(present, fallback)
                if not ((codes >= 0) & (codes < training.n_classes)).all():
                    raise ValueError("a teacher names a class that does not exist: the file was changed")
                model = TrainedNetwork(plan=training, weights=weights, present=present) if trained else None
                teachers.append(Teacher(model, present, np.random.SeedSequence(0), int(fallback)))
        files.require(teachers, listed["n_teachers"])
        return restored(training.network, teachers, listed)


class _Neighbours:
    """Private rows that vote with their labels, as plain arrays, and their public transformer."""

    name = "neighbours"

    def width(self, voter: NeighbourVoter) -> int | None:
        return int(voter.n_features_in_) if voter.transformer is None else None

    def adjacency(self, voter: NeighbourVoter) -> Adjacency:
        rate = voter.sampling_rate if voter.relation == "add-or-remove" else 1.0
        return Adjacency(unit=voter.unit_, relation=voter.relation, sampling_rate=rate)

    def ballots(self, voter: NeighbourVoter) -> int:
        return int(voter.k)

    def check(self, voter: NeighbourVoter) -> None:
        """Any can be saved."""

    def write(self, voter: NeighbourVoter, folder: Path) -> dict[str, Any]:
        crowd = voter._crowd  # noqa: SLF001  (the same package)
        arrays = {"features": crowd.features, "codes": crowd.codes}
        write_arrays(
            folder / "rows.npz", arrays if crowd.starts is None else arrays | {"starts": crowd.starts}
        )
        if voter.transformer is not None:
            write_model(folder / "transformer.skops", voter.transformer)
        how = {name: getattr(voter, name) for name in ("k", "sampling_rate", "metric", "relation")}
        return {"unit": voter.unit_, "neighbours": how}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> NeighbourVoter:
        arrays = files.arrays("rows.npz")
        features, codes, starts = arrays["features"], arrays["codes"], arrays.get("starts")
        n_classes = len(listed["classes"])
        right = (
            (features.ndim, features.dtype.name, codes.dtype.name) == (2, "float32", "uint16")
            and codes.shape == (len(features),)
            and len(codes) > 0
            and int(codes.max()) < n_classes <= _CLASSES
            and np.isfinite(features).all()
        )
        if right and starts is not None:  # the first row of each unit
            right = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) > 0 and starts[0] == 0
            right = right and (np.diff(starts) > 0).all() and starts[-1] < len(codes)
        if not right:
            raise ValueError(f"{files.folder / 'rows.npz'} must hold rows, a class of each, and units")
        transformer = None
        if files.named("transformer.skops"):
            transformer = files.model("transformer.skops", n_features=len(listed["grid"]))
        voter = NeighbourVoter(**listed["neighbours"], transformer=transformer)
        crowd = Nearest(features, codes, starts, cosine=voter.metric == "cosine")
        return voter.restore(crowd, classes=np.array(listed["classes"]), unit=listed["unit"])


class _Split(_Teachers):
    """Teachers of a folder that are in several processes."""

    name = "teachers in processes"

    def ballots(self, voter: Any) -> int:
        return int(voter.n_teachers)

    def check(self, voter: Any) -> None:
        raise ValueError(f"these {voter.n_teachers} teachers are saved already: copy their folder")


class _Parties:
    """Parties by their addresses, the agreement, and the aggregator's identity."""

    name = "parties"

    def width(self, voter: PartyEnsemble) -> int:
        return voter.agreement.n_features

    def adjacency(self, voter: PartyEnsemble) -> Adjacency:
        return dataclasses.replace(voter.agreement.mechanism.promise, unit="party")

    def ballots(self, voter: PartyEnsemble) -> int:
        return len(voter.parties)

    def check(self, voter: PartyEnsemble) -> None:
        if not all(isinstance(party, str) for party in voter.parties.values()):
            raise ValueError("parties must be addresses to be saved: run each with PartyServer")
        if voter.agreement.secret is not None:
            raise ValueError(
                "parties with secret questions cannot be saved or served, since their rounds spend before a "
                "service could charge: ask the PartyEnsemble itself, or agree on clear questions"
            )

    def write(self, voter: PartyEnsemble, folder: Path) -> dict[str, Any]:
        (folder / "agreement.json").write_text(voter.agreement.to_json())
        secret = voter._identity.secret.hex()  # noqa: SLF001  (the same package)
        (folder / "identity.json").write_text(json.dumps({"secret": secret}))
        return {"unit": "party", "parties": voter.parties}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> PartyEnsemble:
        secret = bytes.fromhex(files.json("identity.json")["secret"])
        agreement = Agreement.from_json(files.content("agreement.json").decode())
        return PartyEnsemble(listed["parties"], agreement=agreement, identity=Identity(secret))


class _Prompts:
    """Prompts with their private rows, and the address of the language model; its key stays outside."""

    name = "prompts"

    def width(self, voter: PromptEnsemble) -> int:  # noqa: ARG002  (of every prompt)
        return 0

    def adjacency(self, voter: PromptEnsemble) -> Adjacency:
        return Adjacency.one_ballot(unit=voter.manifest_.unit)

    def ballots(self, voter: PromptEnsemble) -> int:
        return int(voter.n_teachers)

    def check(self, voter: PromptEnsemble) -> None:
        if not isinstance(voter.endpoint, Endpoint | str):
            raise ValueError(  # noqa: TRY004  (as every other voter that cannot be saved)
                "endpoint must be an Endpoint or its URL to be saved: a function cannot be"
            )

    def write(self, voter: PromptEnsemble, folder: Path) -> dict[str, Any]:
        shots, words = voter._shots, voter._words  # noqa: SLF001  (the same package)
        (folder / "prompts.json").write_text(json.dumps(shots))
        endpoint = Endpoint(voter.endpoint) if isinstance(voter.endpoint, str) else voter.endpoint
        return {
            "unit": voter.manifest_.unit,
            "endpoint": dataclasses.asdict(cast("Endpoint", endpoint)),
            "template": dataclasses.asdict(voter.template or Template()),
            "prompts": {name: getattr(voter, name) for name in _OF_PROMPTS} | {"words": words},
        }

    def read(self, listed: dict[str, Any], files: SavedFiles) -> PromptEnsemble:
        shots = [[(str(text), str(word)) for text, word in prompt] for prompt in files.json("prompts.json")]
        voter = _RestoredPrompts(
            Endpoint(**listed["endpoint"]),
            classes=listed["classes"],
            n_teachers=len(shots),
            template=Template(**listed["template"]),
            **listed["prompts"],
        )
        return voter.restore(shots, unit=listed["unit"])


class _RestoredPrompts(PromptEnsemble):
    """Prompts of a folder. Answers are forgotten after a vote: a repeated question takes as many requests."""

    def restore(self, shots: list[list[tuple[str, str]]], *, unit: str) -> _RestoredPrompts:
        """Take prompts that were made before, instead of fitting."""
        self.classes_, self._words = np.asarray(self.classes), tuple(map(str, self.words or ()))
        self._read, self._endpoint = Reader(self._words), cast("Endpoint", self.endpoint)
        self._responses = ResponseCache(None)
        numbers = np.arange(len(shots))
        self.manifest_ = Manifest(
            n_teachers=len(shots), unit=unit, shards=numbers, units=numbers, commitment=""
        )
        self._shots = shots
        self.notes_ = self._notes()
        return self

    def vote(self, texts: Any) -> Private:
        """As for the ensemble, from new answers."""
        try:
            counts = count_votes(self.predictions(texts), n_classes=len(self.classes_))
        finally:
            self._responses = ResponseCache(None)
        return Private(counts, Adjacency.one_ballot(unit=self.manifest_.unit))


Kind = _Teachers | _Neighbours | _Parties | _Prompts


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (_Teachers(), _Networks(), _Neighbours(), _Parties(), _Prompts())
}


def kind_of(voter: Any) -> Kind:
    """The kind of a fitted voter."""
    if isinstance(voter, TeacherEnsemble):
        return KINDS["teachers" if as_network(voter.estimator) is None else "networks"]
    if isinstance(voter, SplitTeachers):
        return _Split()
    types = {NeighbourVoter: "neighbours", PartyEnsemble: "parties", PromptEnsemble: "prompts"}
    for kind, name in types.items():
        if isinstance(voter, kind):
            return KINDS[name]
    raise TypeError(f"ensemble must be fitted teachers or another voter, got {type(voter).__name__}")


def restored(estimator: Any, teachers: list[Teacher], listed: dict[str, Any]) -> TeacherEnsemble:
    """An ensemble of teachers that were trained before."""
    ensemble = TeacherEnsemble(estimator, n_teachers=len(teachers), n_jobs=1)
    classes, n_features = np.array(listed["classes"]), listed["n_features"]
    return ensemble.restore(teachers, classes=classes, n_features=n_features, unit=listed["unit"])


def _weights(saved: Sequence[Teacher]) -> dict[str, np.ndarray]:
    """The weights of some teachers by number and name."""
    arrays: dict[str, np.ndarray] = {}
    for number, teacher in enumerate(saved):
        weights = {} if teacher.model is None else teacher.model.weights
        arrays |= {
            f"{number}/weights/{name}": tensor.detach().cpu().numpy() for name, tensor in weights.items()
        }
        of_teacher = teacher.present, teacher.fallback, bool(weights)
        arrays |= {
            f"{number}/{name}": np.asarray(value) for name, value in zip(_OF_TEACHER, of_teacher, strict=True)
        }
    return arrays


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
        kind = kind_of_model(part)
        if (kind == _TREE and not _is_tree(part, n_features)) or (kind in _INDICES and not _is_index(part)):
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


class VotersAwayError(RuntimeError):
    """A process of teachers has ended or does not answer. Nothing was counted."""


class SplitTeachers:
    """Teachers of a folder, each in one of several processes, which send the counts of their ballots.

    Counts of a part are as private as votes are, and stay on this machine. A process that ends is started
    again with the next vote, and refuses a folder whose list of files is not the one with this ``sha256``.
    """

    def __init__(
        self,
        folder: Path,
        listed: dict[str, Any],
        *,
        sha256: str,
        processes: int,
        trusted: Iterable[str] = (),
    ) -> None:
        n_files = sum(name.startswith(("teachers-", "networks-")) for name in listed["files"])
        if not 1 <= processes <= n_files:
            raise ValueError(f"processes must be 1 to {n_files}, the number of files, got {processes}")
        self.classes_, self.unit_ = np.array(listed["classes"]), str(listed["unit"])
        self.n_features_in_, self.n_teachers = int(listed["n_features"]), int(listed["n_teachers"])
        self.n_processes = processes
        self._task = {"folder": str(folder), "sha256": sha256, "trusted": list(trusted)}
        self._lock = threading.Lock()
        self._parts = [self._started(number) for number in range(processes)]
        try:
            for part in self._parts:
                part.wait()
        except BaseException:  # the other processes would wait for questions
            self.close()
            raise

    def vote(self, X: Any) -> Private:
        """Every teacher votes once on every row, in its own process.

        Raises
        ------
        VotersAwayError
            A process does not answer.
        """
        rows = np.ascontiguousarray(X, dtype="<f8")
        with self._lock:
            try:
                for number, part in enumerate(self._parts):
                    if part.process.poll() is not None:  # it has ended
                        self._parts[number] = self._started(number)
                        self._parts[number].wait()
                for part in self._parts:
                    part.ask(rows)
                counts = sum(part.counts((len(rows), len(self.classes_))) for part in self._parts)
            except BaseException:  # an answer may still come, which is not that of the next question
                self.close()
                raise
        return Private(counts, Adjacency.one_ballot(unit=self.unit_))

    def close(self) -> None:
        """End the processes."""
        for part in self._parts:
            part.process.kill()
            part.process.wait()
            part.connection.close()

    def _started(self, number: int) -> _Part:
        mine, its = socket.socketpair()
        # without secrets of a ledger, of keys or of a database
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("OSTRAKA_", "PG"))}
        with its:
            command = [sys.executable, "-m", _PROGRAM, str(its.fileno())]
            process = subprocess.Popen(command, pass_fds=[its.fileno()], env=variables | _ALONE)  # noqa: S603
        connection = Connection(mine.detach())
        connection.send_bytes(json.dumps({**self._task, "part": (number, self.n_processes)}).encode())
        return _Part(process, connection)


class _Part:
    """One process and the connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: Connection) -> None:
        self.process, self.connection = process, connection

    def wait(self) -> None:
        """Wait until it has read its teachers."""
        if self._received(_STARTING) != READY:
            raise ValueError("a process could not read its teachers: its message is above")

    def ask(self, rows: np.ndarray) -> None:
        """Send rows."""
        try:
            self.connection.send_bytes(rows.tobytes())
        except OSError:
            raise VotersAwayError("a process of teachers has ended") from None

    def counts(self, shape: tuple[int, int]) -> np.ndarray:
        """The votes of its teachers."""
        numbers = np.frombuffer(self._received(_VOTING), dtype="<i8")
        if numbers.size != shape[0] * shape[1]:
            raise VotersAwayError("a process of teachers could not vote")
        return numbers.reshape(shape).astype(np.int64)

    def _received(self, seconds: float) -> bytes:
        try:
            if self.connection.poll(seconds):
                return self.connection.recv_bytes()
        except (EOFError, OSError):
            pass
        raise VotersAwayError("a process of teachers has ended or does not answer")


def serve(connection: Connection) -> None:
    """Read a part of the teachers, and count their ballots until the other side is gone."""
    warnings.simplefilter("ignore")  # the number of failing teachers is private
    task = json.loads(connection.recv_bytes())
    saved = SavedTeachers.load(task["folder"], trusted=task["trusted"], part=tuple(task["part"]))
    if saved.sha256 != task["sha256"]:  # beside the other parts' teachers, a unit could have two ballots
        raise ValueError(
            f"{task['folder']} was changed since these teachers began to vote: put the files back, "
            "or start again"
        )
    width, n_classes = len(saved.grid), len(saved.classes)
    linear = None  # one matrix product, where teachers have such scores
    if saved.kind == "teachers":
        linear = LinearTeachers.of(saved.ensemble.teachers_, n_classes=n_classes, n_features=width)
    connection.send_bytes(READY)
    while True:
        try:
            rows = np.frombuffer(connection.recv_bytes(), dtype="<f8").reshape(-1, width)
        except (EOFError, OSError):
            return
        try:
            if linear is None:
                counts = count_votes(saved.ensemble.predictions(rows), n_classes=n_classes)
            else:
                counts = linear.counts(rows)
            answer = counts.astype("<i8").tobytes()
        except Exception:  # noqa: BLE001  (its message may quote private values)
            answer = b""
        connection.send_bytes(answer)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
