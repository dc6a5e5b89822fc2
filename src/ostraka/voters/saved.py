"""A fitted voter of any kind in a folder: its files and a list of their hashes, checked before parsing."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ostraka.core import check
from ostraka.core.mechanisms.records import from_record, to_record
from ostraka.voters.saved_files import LIST, SavedFiles, digests, write_model
from ostraka.voters.saved_kinds import KINDS, kind_of
from ostraka.voters.split import SplitTeachers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.core.private import Adjacency, Private
    from ostraka.networks import TorchClassifier

_VERSION = 1


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
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(f"{folder} exists: saved teachers are not overwritten")
        temporary = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=0o700, parents=True)
        text = json.dumps(self._written(temporary), indent=2)
        (temporary / LIST).write_text(text)
        for path in temporary.iterdir():
            path.chmod(0o600)
        temporary.replace(folder)
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
        folder = Path(folder)
        if not (folder / LIST).is_file():
            raise ValueError(
                f"{folder} holds no {LIST}: train with 'ostraka learn … --keep-teachers', "
                "and type the folder of that run"
            )
        text = (folder / LIST).read_bytes()
        listed, sha256 = json.loads(text), hashlib.sha256(text).hexdigest()
        if listed.get("version") != _VERSION:
            raise ValueError(f"{folder / LIST} must be of version {_VERSION}, got {listed.get('version')!r}")
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

    def _written(self, folder: Path) -> dict[str, Any]:
        """Write the files, and return their list."""
        kind = kind_of(self.ensemble)
        of_voter = kind.write(self.ensemble, folder)
        if self.encoder is not None:
            write_model(folder / "encoder.skops", self.encoder)
        return {
            "version": _VERSION,
            "kind": kind.name,
            **of_voter,
            "classes": self.classes,
            "columns": self.columns,
            "numeric": self.numeric,
            "grid": self.grid,
            "mechanism": to_record(self.mechanism),
            "screen": None if self.screen is None else to_record(self.screen),
            "files": digests(folder),
        }
