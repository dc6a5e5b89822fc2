"""Training of reference models: torch networks in stacks, other classifiers one after another; resumable."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.audit.attacks.members import true_label_column
from ostraka.core import files
from ostraka.core.diverged import TrainingDiverged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ostraka.nets.stacks import TrainingPlan
    from ostraka.networks import TorchClassifier

_AT_ONCE = 1024  # rows
_SAVED_TOGETHER = 8  # networks: what an interrupted run loses at most


class SavedReferences:
    """Confidences of finished references, in a folder that only its owner can read."""

    def __init__(self, folder: Any, *parts: Any) -> None:
        self.folder = Path(folder)
        digest = hashlib.sha256()
        for part in parts:
            digest.update(_content(part) + b"\0")
        self.name = digest.hexdigest()

    def read(self, first: int, shape: tuple[int, int]) -> np.ndarray | None:
        """The confidences of the references from ``first`` on; None if they are not finished."""
        path = self._path(first, shape[0])
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                name, confidences = str(file["name"]), np.asarray(file["confidences"])
        except Exception as error:
            raise ValueError(
                f"{path} does not hold reference models: remove it to train them again"
            ) from error
        if name != self.name or confidences.shape != shape:
            raise ValueError(
                f"{path} belongs to other references (rows, labels, classifier, settings or seed): "
                "type another checkpoint, or remove the folder to begin again"
            )
        return confidences

    def write(self, first: int, confidences: np.ndarray) -> None:
        """Keep the confidences of these references, durably."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, name=np.array(self.name), confidences=confidences)

        files.write(self._path(first, len(confidences)), save, private=True)

    def _path(self, first: int, many: int) -> Path:
        return self.folder / f"references-{first:05}-{first + many - 1:05}.npz"


def train_references(
    estimator: Any,
    X: Any,
    labels: np.ndarray,
    *,
    included: np.ndarray,
    seeds: np.ndarray,
    saved: SavedReferences | None,
    progress: Callable[[str, int, int], object] | None,
) -> np.ndarray:
    """Each reference's confidence in each row's true label, (n_models, n_rows)."""
    network = _network(estimator)
    step = 1
    if network is not None:
        from ostraka.nets import vectorised  # noqa: PLC0415  (needs torch)

        X = np.asarray(X, dtype=np.float32)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise ValueError(f"X must be finite numbers of shape (n_rows, n_features), got shape {X.shape}")
        plan = vectorised.plan(network, n_features=X.shape[1], n_classes=len(np.unique(labels)))
        largest = min(plan.size, _SAVED_TOGETHER if saved else plan.size, len(included))
        step = -(-len(included) // -(-len(included) // largest))  # parts as equal as possible
    confidences = np.empty(included.shape)
    for first in range(0, len(included), step):
        part = slice(first, min(first + step, len(included)))
        block = None if saved is None else saved.read(first, included[part].shape)
        if block is None:
            if network is None:
                block = _of_classifier(estimator, X, labels, included[first], int(seeds[first]))[None]
            else:
                block = np.concatenate(list(_of_stack(plan, X, labels, included[part], seeds[part])))
            if saved is not None:
                saved.write(first, block)
        confidences[part] = block
        if progress is not None:
            progress("references", part.stop, len(included))
    return confidences


def _of_classifier(estimator: Any, X: Any, labels: np.ndarray, chosen: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.base import clone  # noqa: PLC0415

    model = clone(estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    rows = X.iloc[chosen] if hasattr(X, "iloc") else np.asarray(X)[chosen]
    return true_label_column(model.fit(rows, labels[chosen]), X, labels)


def _network(estimator: Any) -> TorchClassifier | None:
    """The estimator if it is a plain network, which can be trained in stacks."""
    if type(estimator).__module__ != "ostraka.networks" or type(estimator).__name__ != "TorchClassifier":
        return None
    if estimator.checkpoint is not None:
        raise ValueError("estimator must have checkpoint=None: give the checkpoint to ReferenceModels")
    network: TorchClassifier = estimator
    return network


def _of_stack(
    plan: TrainingPlan, X: np.ndarray, labels: np.ndarray, included: np.ndarray, seeds: np.ndarray
) -> Iterator[np.ndarray]:
    """Train networks together, or one after another if the module cannot be trained in stacks."""
    from ostraka.nets import vectorised  # noqa: PLC0415
    from ostraka.nets.training import TrainingSet  # noqa: PLC0415

    codes = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    training_sets = [
        # the seed that a network with this random_state draws from if it is trained alone
        TrainingSet(
            rows=X[chosen],
            codes=codes[chosen],
            seed=int(np.random.SeedSequence(int(seed)).generate_state(1)[0]),
        )
        for chosen, seed in zip(included, seeds, strict=True)
    ]
    try:
        networks, failed, _ = vectorised.train_stack(plan, training_sets)
    except vectorised.CannotVectoriseError:
        for chosen, seed in zip(included, seeds, strict=True):
            yield from _of_stack(plan.alone(), X, labels, chosen[None], np.array([seed]))
        return
    if failed.any():
        raise TrainingDiverged(
            f"{int(failed.sum())} of {len(failed)} references diverged: try a smaller learning_rate"
        )
    for weights in networks:
        yield _confidences(plan.alone(), weights, X, codes)[None]


def _confidences(plan: TrainingPlan, weights: Any, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The softmax of the true label's logit, for each row."""
    import torch  # noqa: PLC0415

    from ostraka.nets.devices import device, threads  # noqa: PLC0415

    stack, where, chances = plan.stack_of([weights]), device(plan.network.device), []
    with torch.inference_mode(), threads(plan.network.n_threads):
        for start in range(0, len(X), _AT_ONCE):
            rows = torch.as_tensor(X[start : start + _AT_ONCE], device=where)
            logits = stack.logits(rows, training=False)[0].double().cpu()
            true_codes = torch.as_tensor(codes[start : start + _AT_ONCE])
            chances.append(logits.softmax(dim=1)[torch.arange(len(true_codes)), true_codes])
    return np.asarray(torch.cat(chances).numpy())


def _content(part: Any) -> bytes:
    """The inputs of a training as bytes. Functions count by name, since their repr has an address."""
    if isinstance(part, np.ndarray):
        plain = part.dtype.kind != "O"
        return part.tobytes() if plain else repr(part.tolist()).encode()
    settings = part.get_params() if hasattr(part, "get_params") else part
    if isinstance(settings, dict):
        named = {name: getattr(value, "__qualname__", value) for name, value in settings.items()}
        return f"{type(part).__qualname__}{named}".encode()
    return repr(settings).encode()
