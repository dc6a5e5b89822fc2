"""A torch network as a scikit-learn classifier. Torch itself is imported when a network is first trained."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ostraka.core import check as _check
from ostraka.core.check import TrainingDiverged
from ostraka.core.randomness import seed_of
from ostraka.data.labels import Labels

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from torch import nn

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

__all__ = ["TorchClassifier"]

_ARCHITECTURES = ("perceptron", "convolutional", "wide-resnet")
_SCHEDULES = ("constant", "cosine")
_AT_ONCE = 1024  # rows in a batch of predictions
_SUMS_TO_ONE = 1e-4  # of float32 probabilities


@dataclass(eq=False, repr=False)
class TorchClassifier(ClassifierMixin, BaseEstimator):
    """A torch network as a scikit-learn classifier.

    Parameters
    ----------
    module : str, torch.nn.Module or callable, default "perceptron"
        The module takes float32 rows of shape (n, n_features) and returns logits (n, n_classes).
        ``"perceptron"``, ``"convolutional"`` and ``"wide-resnet"`` name small networks. A callable makes
        a module from ``(n_features, n_classes)``. A module is copied, and its weights are drawn anew.
        For images, begin with ``nn.Unflatten(1, (channels, height, width))``.
    epochs : int, default 20
    batch_size : int, default 128
    learning_rate : float, default 1e-3
    optimizer : callable(parameters, lr=...), optional
        None: ``torch.optim.Adam``.
    schedule : str, default "constant"
        Or ``"cosine"``: the learning rate falls to 0 along half a cosine wave.
    augment : callable(tensor) -> tensor, optional
        Changes the rows of a training batch. It draws from torch's generator.
    device : str, default "auto"
        The GPU if there is one.
    n_threads : int, optional
        None: as many as torch uses, the cores or ``OMP_NUM_THREADS``.
    patience : int, optional
        Stop after this many epochs without a lower cross-entropy on a held-out fifth of the rows, and
        keep the best weights. None: train on all rows, for all epochs.
    checkpoint : path, optional
        A file from which an interrupted training continues. It is as private as the rows. In a
        :class:`~ostraka.TeacherEnsemble`, a folder of such files.
    random_state : int, numpy.random.RandomState or None
        Seeds weights, order and augmentation. No privacy depends on it.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"epochs"``.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    module_ : torch.nn.Module
        The trained module, in evaluation mode.
    losses_ : list of float
        Mean loss of each epoch.

    Raises
    ------
    ValueError
        Shapes do not match, the module does not return logits, or the device is not available.
    TrainingDiverged
        The loss was not finite. ``module_`` is as after the last good epoch.
    ModuleNotFoundError
        Torch is not installed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> network = TorchClassifier(epochs=60, batch_size=16, learning_rate=0.01, random_state=0)
    >>> bool(network.fit(X, y).score(X, y) > 0.9)
    True
    """

    module: Any = "perceptron"
    _: KW_ONLY
    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 1e-3
    optimizer: Callable[..., torch.optim.Optimizer] | None = None
    schedule: str = "constant"
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None
    device: str = "auto"
    n_threads: int | None = None
    patience: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    random_state: int | np.random.RandomState | None = None
    progress: Callable[[str, int, int], object] | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Train from new weights.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        y : array of shape (n_rows,)
            Classes; soft labels are refused.
        """
        _require_torch()
        X = validate_data(self, X, dtype=np.float32)
        labels = Labels.of(y, n_rows=len(X))
        self.classes_, codes = labels.classes, labels.encode(y)
        if len(self.classes_) < 2:  # scikit-learn's tests expect this sentence
            raise ValueError("TorchClassifier cannot learn from one class: y must hold two or more")
        from ostraka.nets import training

        if self.patience is not None:
            # a stack of one network can hold rows out
            from ostraka.nets import vectorised

            plan = vectorised.plan(self, n_features=X.shape[1], n_classes=len(self.classes_))
            [weights], [failed], self.losses_ = vectorised.train_stack(
                plan.alone(),
                [training.TrainingSet(rows=X, codes=codes, seed=self.seed())],
                checkpoint=self.checkpoint,
                on_progress=training.epoch_callback(self.progress),
            )
            self.module_ = plan.module
            self.module_.load_state_dict(weights, strict=False)  # tied weights have one name only
            self.module_.eval()
            if failed:
                raise TrainingDiverged(
                    "a loss was not finite, or the module raised: try a smaller learning_rate"
                )
            return self
        import torch

        targets = torch.as_tensor(codes, device=training.device(self.device))
        return self.minimise(
            X,
            lambda logits, rows: torch.nn.functional.cross_entropy(logits, targets[rows]),
            name=training.digest(X, codes),
        )

    def minimise(self, X: np.ndarray, loss: Loss, *, name: str) -> Self:
        """Train on any loss of logits and row numbers. ``classes_`` must be set before.

        Parameters
        ----------
        X : float32 array of shape (n_rows, n_features)
        loss : callable(logits, rows) -> scalar tensor
            ``rows`` are the numbers of the batch's rows in ``X``, an int64 tensor.
        name : str
            Identifies this training in the checkpoint.
        """
        if self.patience is not None:
            raise ValueError("patience must be None here: only fit can hold rows out")
        import torch

        from ostraka.nets.training import Objective, device, n_steps

        where, seed = device(self.device), self.seed()
        rows = torch.as_tensor(X, device=where)
        module, augment = self.opened(rows, seed=seed), self.augment or (lambda part: part)
        objective = Objective(
            optimizer=self.new_optimizer(module.parameters()),
            loss=lambda batch: loss(module(augment(rows[batch])), batch),
        )
        try:
            self.train_on(
                [objective],
                partial(_batches, len(rows), self.batch_size, where),
                steps=n_steps(len(rows), self.batch_size),
                seed=seed,
                state={"module": module},
                fingerprint=f"{name}, {module}",
            )
        finally:
            module.eval()
        return self

    def opened(self, rows: torch.Tensor, *, seed: int) -> nn.Module:
        """A new ``module_`` for ``classes_`` on the device of these rows, which returns logits of them."""
        n_classes = len(self.classes_)
        self.module_ = self.new_module(n_features=rows.shape[1], n_classes=n_classes, seed=seed).to(
            rows.device
        )
        self.require_logits(rows[:2])
        return self.module_.train()

    def train_on(self, objectives: Sequence[Any], batches: Callable[..., Any], **settings: Any) -> None:
        """Train so many epochs with this network's schedule, checkpoint, threads and progress.

        ``settings`` are the others of :func:`ostraka.nets.training.train`.
        """
        from ostraka.nets.training import epoch_callback, threads, train

        with threads(self.n_threads):
            self.losses_ = train(
                objectives,
                batches,
                epochs=self.epochs,
                schedule=self.rate_schedule(),
                checkpoint=self.checkpoint,
                on_epoch=epoch_callback(self.progress),
                **settings,
            )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 of shape (n_rows, n_classes)."""
        from scipy.special import softmax

        return np.asarray(softmax(self.logits(X), axis=1), dtype=np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        best = self.logits(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def logits(self, X: Any) -> np.ndarray:
        """The network's output before softmax, float64 of shape (n_rows, n_classes)."""
        check_is_fitted(self, "module_")
        import torch

        from ostraka.nets.training import threads

        X = validate_data(self, X, reset=False, dtype=np.float32)
        where = next(self.module_.parameters()).device
        with torch.inference_mode(), threads(self.n_threads):
            parts = [
                self.module_(torch.as_tensor(X[start : start + _AT_ONCE], device=where)).double().cpu()
                for start in range(0, len(X), _AT_ONCE)
            ]
        return torch.cat(parts).numpy()

    def new_module(self, *, n_features: int, n_classes: int, seed: int) -> nn.Module:
        """A new network with weights drawn from ``seed``."""
        self._check()
        _require_torch()
        import torch

        from ostraka.nets.generative import NAMED
        from ostraka.nets.training import reseed

        with torch.random.fork_rng():
            reseed(seed)
            if isinstance(self.module, torch.nn.Module):
                redrawn = copy.deepcopy(self.module)
                for part in redrawn.modules():  # so that the weights depend on the seed only
                    if hasattr(part, "reset_parameters"):
                        part.reset_parameters()  # type: ignore[operator]
                return redrawn
            make = NAMED[self.module] if isinstance(self.module, str) else self.module
            module: nn.Module = make(n_features, n_classes)
            return module

    def new_optimizer(self, parameters: Any, *, fused: bool = False) -> torch.optim.Optimizer:
        """The optimizer of these parameters; with ``fused``, in one pass over them where torch has that."""
        import torch

        make = torch.optim.Adam if self.optimizer is None else self.optimizer
        fusible = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad
        options: dict[str, Any] = {"fused": True} if fused and make in fusible else {}
        return make(parameters, lr=self.learning_rate, **options)

    def seed(self) -> int:
        """The seed of all random numbers in a training."""
        return int(np.random.SeedSequence(seed_of(self.random_state)).generate_state(1)[0])

    def rate_schedule(self) -> Callable[[float], float] | None:
        """The share of the learning rate as a function of progress in [0, 1); None: constant."""
        if self.schedule == "constant":
            return None
        from ostraka.nets.training import cosine

        return cosine

    def require_logits(self, rows: torch.Tensor) -> None:
        """Raise unless ``module_`` returns logits of these rows, one for each of ``classes_``."""
        import torch

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

    def _check(self) -> None:
        _check.integer(epochs=self.epochs, batch_size=self.batch_size, least=1)
        if self.patience is not None:
            _check.integer(patience=self.patience, least=1)
        _check.positive(learning_rate=self.learning_rate)
        _check.one_of(allowed=_SCHEDULES, schedule=self.schedule)
        if isinstance(self.module, str):
            _check.one_of(allowed=_ARCHITECTURES, module=self.module)
        elif not callable(self.module):
            raise ValueError(  # noqa: TRY004  (as every other wrong parameter)
                f"module must be a name, a torch module or a callable, got {self.module!r}"
            )


def _require_torch() -> None:
    """Raise with the install command unless torch is installed."""
    _check.require("torch", extra="torch")


def _batches(
    n_rows: int, batch_size: int, where: torch.device, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    import torch

    from ostraka.nets.training import n_steps

    order = torch.randperm(n_rows, generator=generator).to(where)
    for step in range(n_steps(n_rows, batch_size)):
        yield order[step * batch_size : (step + 1) * batch_size]
