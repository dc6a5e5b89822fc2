"""A torch network as a scikit-learn classifier; what its students and teachers have in common."""

from __future__ import annotations

import copy
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from ostraka import _check
from ostraka._torch import networks
from ostraka._torch.devices import device, reseed, threads
from ostraka._torch.loop import TrainingDiverged, Turn, cosine, train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of logits, and of the rows' numbers

__all__ = ["TorchClassifier", "digest"]

_NAMED: dict[str, Callable[[int, int], nn.Module]] = {
    "perceptron": networks.perceptron,
    "convolutional": networks.convolutional,
    "wide-resnet": networks.wide_resnet,
}
_SCHEDULES = {"constant": None, "cosine": cosine}
_AT_ONCE = 1024  # rows in a batch of predictions
_SUMS_TO_ONE = 1e-4  # of float32 probabilities


class TorchClassifier(ClassifierMixin, BaseEstimator):
    """A torch network as a scikit-learn classifier.

    Parameters
    ----------
    module : str, torch.nn.Module or callable, default "perceptron"
        Takes float32 rows of shape (n, n_features), returns logits (n, n_classes).
        ``"perceptron"``, ``"convolutional"`` and ``"wide-resnet"`` are small ones; a callable makes
        one from ``(n_features, n_classes)``. A module is copied, and its layers drawn anew.
        For images, begin with ``nn.Unflatten(1, (channels, height, width))``.
    epochs : int, default 20
    batch_size : int, default 128
    learning_rate : float, default 1e-3
    optimizer : callable(parameters, lr=...), default torch.optim.Adam
    schedule : str, default "constant"
        Or ``"cosine"``: the learning rate falls to a fifth.
    augment : callable(tensor) -> tensor, optional
        What happens to the rows of a training batch; draws from torch's generator.
    device : str, default "auto"
        The GPU if there is one.
    n_threads : int, optional
        None: as many as torch uses, the cores or ``OMP_NUM_THREADS``.
    patience : int, optional
        Stop after so many epochs in which a held-out fifth of the rows was not classified better
        (by cross-entropy), and take the weights of the best. None: learn from all rows, to the end.
    checkpoint : path, optional
        A file that an interrupted training goes on from. As private as the rows. In a
        :class:`~ostraka.TeacherEnsemble`, a folder of such files.
    random_state : int, numpy.random.RandomState or None
        Seeds weights, order and augmentation. Not noise: no privacy depends on it.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"epochs"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    module_ : torch.nn.Module
        Trained, in evaluation mode.
    losses_ : list of float
        Mean loss of each epoch.

    Raises
    ------
    ValueError
        Shapes that do not fit, a module that does not return logits, a device that is not there.
    TrainingDiverged
        The loss was not finite; ``module_`` is as after the last good epoch.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> network = TorchClassifier(epochs=60, batch_size=16, learning_rate=0.01, random_state=0)
    >>> bool(network.fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        module: Any = "perceptron",
        *,
        epochs: int = 20,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        schedule: str = "constant",
        augment: Callable[[torch.Tensor], torch.Tensor] | None = None,
        device: str = "auto",
        n_threads: int | None = None,
        patience: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.module = module
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.schedule = schedule
        self.augment = augment
        self.device = device
        self.n_threads = n_threads
        self.patience = patience
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train from new weights.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        y : array of shape (n_rows,)
            Classes; soft labels are refused.
        """
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:  # scikit-learn's tests know this sentence
            raise ValueError("TorchClassifier cannot learn from one class: y must hold two or more")
        if self.patience is not None:
            return self._stopping_early(X, codes)
        targets = torch.as_tensor(codes, device=device(self.device))
        return self.minimise(
            X,
            lambda logits, rows: nn.functional.cross_entropy(logits, targets[rows]),
            name=digest(X, codes),
        )

    def minimise(self, X: np.ndarray, loss: Loss, *, name: str) -> Self:
        """Train on any loss of logits and row numbers; ``classes_`` must be there already.

        Parameters
        ----------
        X : float32 array of shape (n_rows, n_features)
        loss : callable(logits, rows) -> scalar tensor
            ``rows`` are the numbers of the batch's rows in ``X``, an int64 tensor.
        name : str
            Tells this training from others, for the checkpoint.
        """
        if self.patience is not None:
            raise ValueError("patience must be None here: only fit knows what to hold out")
        where, seed = device(self.device), self.seed()
        self.module_ = self.built(n_features=X.shape[1], n_classes=len(self.classes_), seed=seed).to(where)
        rows = torch.as_tensor(X, device=where)
        self.require_logits(rows[:2])
        turn = Turn(
            optimizer=self.optimizer(self.module_.parameters(), lr=self.learning_rate),
            loss=lambda batch: loss(self.module_(self._augmented(rows[batch])), batch),
        )
        self.module_.train()
        try:
            with threads(self.n_threads):
                self.losses_ = train(
                    [turn],
                    partial(_batches, len(rows), self.batch_size, where),
                    steps=n_steps(len(rows), self.batch_size),
                    epochs=self.epochs,
                    seed=seed,
                    state={"module": self.module_},
                    schedule=self.scheduled(),
                    checkpoint=self.checkpoint,
                    fingerprint=f"{name}, {self.module_}",
                    told=self.told,
                )
        finally:
            self.module_.eval()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 of shape (n_rows, n_classes)."""
        return np.asarray(torch.softmax(torch.as_tensor(self.logits(X)), dim=1), dtype=np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        best = self.logits(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def logits(self, X: Any) -> np.ndarray:
        """What the network says before softmax, float64 of shape (n_rows, n_classes)."""
        check_is_fitted(self, "module_")
        X = validate_data(self, X, reset=False, dtype=np.float32)
        where = next(self.module_.parameters()).device
        with torch.inference_mode(), threads(self.n_threads):
            parts = [
                self.module_(torch.as_tensor(X[start : start + _AT_ONCE], device=where)).double().cpu()
                for start in range(0, len(X), _AT_ONCE)
            ]
        return torch.cat(parts).numpy()

    def built(self, *, n_features: int, n_classes: int, seed: int) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        self._check()
        with torch.random.fork_rng():
            reseed(seed)
            if isinstance(self.module, nn.Module):
                return _redrawn(copy.deepcopy(self.module))
            make = _NAMED[self.module] if isinstance(self.module, str) else self.module
            made: nn.Module = make(n_features, n_classes)
            return made

    def seed(self) -> int:
        """One number for all the chance in a training."""
        state = self.random_state
        entropy = state if state is None or isinstance(state, int | np.integer) else state.randint(2**31 - 1)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def scheduled(self) -> Callable[[float], float] | None:
        """The learning rate's course."""
        return _SCHEDULES[self.schedule]

    def told(self, done: int, total: int) -> None:
        """Say how many epochs are done."""
        if self.progress is not None:
            self.progress("epochs", done, total)

    def _stopping_early(self, X: np.ndarray, codes: np.ndarray) -> Self:
        """As a stack of one."""
        from ostraka._torch import lessons, lockstep, planning  # noqa: PLC0415  (they build on this module)

        seed = self.seed()
        plan = planning.plan(self, n_features=X.shape[1], n_classes=len(self.classes_))
        [weights], [failed], self.losses_ = lockstep.taught(
            plan.alone(),
            [lessons.Lesson(rows=X, codes=codes, seed=seed)],
            checkpoint=self.checkpoint,
            told=self.told,
        )
        self.module_ = plan.module
        self.module_.load_state_dict(weights, strict=False)  # tied weights are named once
        self.module_.eval()
        if failed:
            raise TrainingDiverged("a loss was not finite, or the module raised: try a smaller learning_rate")
        return self

    def _check(self) -> None:
        _check.integer(epochs=self.epochs, batch_size=self.batch_size, least=1)
        if self.patience is not None:
            _check.integer(patience=self.patience, least=1)
        _check.positive(learning_rate=self.learning_rate)
        _check.one_of(allowed=tuple(_SCHEDULES), schedule=self.schedule)
        if isinstance(self.module, str):
            _check.one_of(allowed=tuple(_NAMED), module=self.module)
        elif not callable(self.module):
            raise ValueError(  # noqa: TRY004  (as every other wrong parameter)
                f"module must be a name, a torch module or a callable, got {self.module!r}"
            )

    def _augmented(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self.augment is None else self.augment(rows)

    def require_logits(self, rows: torch.Tensor) -> None:
        """Raise unless ``module_`` returns logits of these rows, one for each of ``classes_``."""
        self.module_.eval()
        with torch.inference_mode():
            out = self.module_(rows)
        shape = (len(rows), len(self.classes_))
        if not isinstance(out, torch.Tensor) or tuple(out.shape) != shape or not out.is_floating_point():
            raise ValueError(
                f"module must return logits of shape (n, {len(self.classes_)}), one for each class, got "
                f"{tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__}"
            )
        if ((out >= 0).all() and (abs(out.sum(dim=1) - 1) < _SUMS_TO_ONE).all()) or (
            (out <= 0).all() and (abs(out.exp().sum(dim=1) - 1) < _SUMS_TO_ONE).all()
        ):
            raise ValueError("module must return logits, but it ends in a softmax: remove that layer")


def _redrawn(module: nn.Module) -> nn.Module:
    """Draw every layer's weights anew, so that a seed decides them."""
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()  # type: ignore[operator]
    return module


def n_steps(n_rows: int, batch_size: int) -> int:
    """Batches in an epoch; a last one that is short is left out, unless it is the only one."""
    return max(1, n_rows // batch_size)


def _batches(
    n_rows: int, batch_size: int, where: torch.device, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    order = torch.randperm(n_rows, generator=generator).to(where)
    for step in range(n_steps(n_rows, batch_size)):
        yield order[step * batch_size : (step + 1) * batch_size]


def digest(*parts: np.ndarray | str) -> str:
    """A short hash of what arrays and texts hold, such as what is trained on."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()[:16]
