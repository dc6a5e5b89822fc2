"""The kinds of voters that can be saved: what each is written as, and how it is read back.

Weights of torch networks are plain arrays. Nothing is unpickled: files hold numbers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ostraka.core.private import Adjacency
from ostraka.parties import saved as remote
from ostraka.parties.parties import PartyEnsemble
from ostraka.voters.neighbours import Nearest, NeighbourVoter
from ostraka.voters.networks import as_network
from ostraka.voters.prompts import PromptEnsemble
from ostraka.voters.saved_files import write_arrays, write_model
from ostraka.voters.split import SplitTeachers
from ostraka.voters.teachers import TeacherEnsemble
from ostraka.voters.voting import Teacher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ostraka.nets.stacks import TrainingPlan
    from ostraka.networks import TorchClassifier
    from ostraka.voters.saved_files import SavedFiles

_A_FILE = 25  # teachers
_CLASSES = 1 << 16  # of rows that vote with their labels, which are stored as uint16


class Kind(Protocol):
    """One kind of voter: what is public about it, and its files."""

    name: str

    def width(self, voter: Any) -> int | None:
        """Numbers in a question; 0: a question is one text; None: not known."""
        ...

    def adjacency(self, voter: Any) -> Adjacency:
        """What one unit can do to the votes."""
        ...

    def ballots(self, voter: Any) -> int:
        """The largest number of ballots in a query."""
        ...

    def check(self, voter: Any) -> None:
        """Raise ValueError unless the voter can be saved."""
        ...

    def write(self, voter: Any, folder: Path) -> dict[str, Any]:
        """Write the files of a voter, and return what the list says about it."""
        ...

    def read(self, listed: dict[str, Any], files: SavedFiles) -> Any:
        """The voter of a list and its files."""
        ...


class _Teachers:
    """Scikit-learn teachers, as skops files."""

    name = "teachers"

    def width(self, voter: TeacherEnsemble) -> int:
        return int(voter.n_features_in_)

    def adjacency(self, voter: TeacherEnsemble) -> Adjacency:
        return Adjacency.one_ballot(unit=voter.unit_)

    def ballots(self, voter: TeacherEnsemble) -> int:
        return len(voter.teachers_)

    def check(self, voter: TeacherEnsemble) -> None:
        """Any can be saved."""

    def write(self, voter: TeacherEnsemble, folder: Path) -> dict[str, Any]:
        teachers = [_plain(teacher) for teacher in voter.teachers_]
        write_model(folder / "estimator.skops", voter.estimator)
        for start in range(0, len(teachers), _A_FILE):
            write_model(folder / f"teachers-{start // _A_FILE:04}.skops", teachers[start : start + _A_FILE])
        return {"unit": voter.unit_, "n_teachers": len(teachers), "n_features": self.width(voter)}

    def read(self, listed: dict[str, Any], files: SavedFiles) -> TeacherEnsemble:
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
        plan = _plan_of(listed, files.network)
        teachers = []
        for arrays in map(files.arrays, files.mine("networks-")):
            numbers = sorted({int(name.partition("/")[0]) for name in arrays})
            teachers += [_network(arrays, number, plan) for number in numbers]
        files.require(teachers, listed["n_teachers"])
        return restored(plan.network, teachers, listed)


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
            and (starts is None or _are_starts(starts, len(codes)))
        )
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


def _are_starts(starts: np.ndarray, n_rows: int) -> bool:
    valid = starts.ndim == 1 and starts.dtype.kind in "iu" and len(starts) > 0 and starts[0] == 0
    return bool(valid and (np.diff(starts) > 0).all() and starts[-1] < n_rows)


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (_Teachers(), _Networks(), _Neighbours(), remote.Parties(), remote.Prompts())
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


def _plain(teacher: Teacher) -> dict[str, Any]:
    """Convert a teacher to types that skops can store; large numbers become text."""
    return {
        "model": teacher.model,
        "present": teacher.present,
        "fallback": int(teacher.fallback),
        "entropy": str(teacher.seed.entropy),
        "spawn_key": [int(part) for part in teacher.seed.spawn_key],
    }


_OF_TEACHER = "present", "fallback", "trained"


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


def _plan_of(listed: dict[str, Any], network: TorchClassifier | None) -> TrainingPlan:
    """The architecture that the weights belong to."""
    from ostraka.core import check as _check  # noqa: PLC0415

    _check.require("torch", extra="torch")
    from ostraka.nets.vectorised import plan  # noqa: PLC0415
    from ostraka.networks import TorchClassifier  # noqa: PLC0415

    how = listed["network"]
    if how["module"] is None and network is None:
        raise ValueError(
            "these networks are of a module of yours, which no file holds: type "
            "SavedTeachers.load(folder, network=TorchClassifier(module))"
        )
    if network is None:
        network = TorchClassifier(how["module"], batch_size=how["batch_size"], n_threads=how["n_threads"])
    return plan(network, n_features=listed["n_features"], n_classes=len(listed["classes"]))


def _network(arrays: Mapping[str, np.ndarray], number: int, plan: TrainingPlan) -> Teacher:
    import torch  # noqa: PLC0415

    from ostraka.nets.predictions import TrainedNetwork  # noqa: PLC0415
    from ostraka.nets.stacks import weights_of  # noqa: PLC0415

    present, fallback, trained = (arrays[f"{number}/{name}"] for name in _OF_TEACHER)
    start = f"{number}/weights/"
    weights = {
        name.removeprefix(start): torch.from_numpy(array.copy())
        for name, array in arrays.items()
        if name.startswith(start)
    }
    wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in weights_of(plan.module).items()}
    if trained and {name: (tensor.shape, tensor.dtype) for name, tensor in weights.items()} != wanted:
        raise ValueError("the weights do not fit the network: type the module that was trained")
    if not ((present >= 0) & (present < plan.n_classes)).all() or not 0 <= fallback < plan.n_classes:
        raise ValueError("a teacher names a class that does not exist: the file was changed")
    model = TrainedNetwork(plan=plan, weights=weights, present=present) if trained else None
    return Teacher(model, present, np.random.SeedSequence(0), int(fallback))
