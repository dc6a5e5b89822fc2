"""A student that also learns from unanswered rows, by feature matching with a generator (PATE-G)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.optim.swa_utils import AveragedModel

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.learn.students.distil import coded
from ostraka.nets import generative
from ostraka.nets.training import Objective, device, digest
from ostraka.networks import TorchClassifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sklearn.utils import Tags

_RANGES = ("auto", "unit", "any")
_MEMORY = 1000  # steps in the moving average of weights, or a ninth of all steps if that is less
_CHANNELS = 32  # of a DCGAN's outermost layer
_WIDEST = 512  # units of the layer after the noise, about
_MOMENTUM = 0.5  # of Adam: with more, alternating training of two networks overshoots


@dataclass(eq=False, repr=False)
class FeatureMatchingGAN(ClassifierMixin, BaseEstimator):
    """A classifier that also distinguishes real from generated rows, and so learns from unanswered rows.

    The network has a logit for each class, and one fixed at 0 for "generated". It learns the classes of
    answered rows, and to distinguish real from generated rows. The generator learns to match the mean
    features of real rows. The boundaries between classes then move to regions with few rows.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimizer, epochs, batch size, device, checkpoint and progress of the training. The features
        are the input of the module's last linear layer. None: 100 epochs of Adam on weight-normalised
        layers of 500, 250 and 250 units with noise before each.
    generator : sequence of int or "dcgan", default (250, 250)
        Widths of the generator's hidden layers; or the transposed convolutions of a DCGAN, for square images,
        grey or RGB, with values in [0, 1].
    n_noise : int, default 100
        Number of random inputs of the generator.
    values : {"auto", "unit", "any"}
        ``"unit"``: all values are in [0, 1], as in images, and so are generated ones. ``"any"``: columns are
        standardised with the public rows. ``"auto"``: ``"unit"`` if all values are in [0, 1].
    unanswered_weight : float, default 1.0
        Weight of the loss of distinguishing real from generated rows.
    random_state : int, numpy.random.RandomState or None
        Seeds a ``network`` without its own seed. No privacy depends on it.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    network_ : TorchClassifier
        The fitted network, with averaged weights. It has the classes with an answer.
    generator_ : torch.nn.Module
    losses_ : list of float
        The network's mean loss in each epoch.

    Raises
    ------
    ValueError
        No row has an answer, shapes do not match, a module without logits, or a missing device.
    TrainingDiverged
        A loss was not finite. The networks are as after the last good epoch.

    Notes
    -----
    All inputs are public or already released, and so is the fitted model.

    Source: Salimans et al. 2016, arXiv:1606.03498, sections 3.1 and 5; as the student of private
    teachers Papernot et al. 2017, arXiv:1610.05755, section 2.2. Here both networks use the same batch of
    rows, and the default networks are smaller.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 10 == 0, y, ABSTAIN)
    >>> network = TorchClassifier(epochs=40, batch_size=50, learning_rate=0.01)
    >>> student = FeatureMatchingGAN(network, generator=(16,), random_state=0)
    >>> bool(student.fit(X, some).score(X, y) > 0.8)
    True
    """

    learns_from_unanswered = True

    network: TorchClassifier | None = None
    _: KW_ONLY
    generator: Sequence[int] | str = (250, 250)
    n_noise: int = 100
    values: str = "auto"
    unanswered_weight: float = 1.0
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: Any, y: Any, *, classes: Any = None) -> Self:
        """Learn from the answered rows, and from the difference of real and generated rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Public, already released. With ``classes``: indices into it, as mechanisms return them.
            Without: the labels. ``ABSTAIN`` (-1; for text also None) where there is no answer.
        classes : array of shape (n_classes,), optional
            Names of all classes, including those without an answer.
        """
        if y is None:
            raise ValueError("FeatureMatchingGAN requires y to be passed, but the target y is None")
        X = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
        self.classes_, codes = coded(y, classes, n_rows=len(X))
        answered = np.flatnonzero(codes != ABSTAIN)
        self._seen = np.unique(codes[answered])
        check.one_of(allowed=_RANGES, values=self.values)
        unit = bool(X.min() >= 0 and X.max() <= 1)
        if self.values == "unit" and not unit:
            raise ValueError("values='unit' needs rows in [0, 1]: scale them, or type values='any'")
        unit = unit and self.values != "any"
        spread = X.std(axis=0)
        self._centre: np.ndarray = X.mean(axis=0) * (not unit)
        self._spread: np.ndarray = np.where(unit | (spread == 0), 1.0, spread)
        check.integer(n_noise=self.n_noise, least=1)
        check.room(n_noise=self.n_noise, **{"hidden units": _WIDEST})
        check.positive(unanswered_weight=self.unanswered_weight)
        if self.network is not None and not isinstance(self.network, TorchClassifier):
            raise ValueError(f"network must be a TorchClassifier, got {type(self.network).__name__}")
        default = TorchClassifier(
            generative.NoisyPerceptron,
            epochs=100,
            batch_size=100,
            learning_rate=3e-3,
            optimizer=partial(torch.optim.Adam, betas=(_MOMENTUM, 0.999)),
            schedule="cosine",
        )
        network: TorchClassifier = clone(self.network or default)
        if network.random_state is None:
            network.set_params(random_state=self.random_state)
        self.network_ = network
        network.classes_, network.n_features_in_ = np.arange(len(self._seen)), X.shape[1]
        rows = torch.as_tensor(self._scaled(X), device=device(network.device))
        named = torch.as_tensor(np.searchsorted(self._seen, codes[answered]), device=rows.device)
        data, seed = (rows, rows[answered], named), network.seed()
        module = network.opened(rows, seed=seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if not isinstance(self.generator, str):
                made = generative.generator(self.n_noise, X.shape[1], hidden=self.generator, unit=unit)
            else:
                check.one_of(allowed=("dcgan",), generator=self.generator)
                if not unit:
                    raise ValueError(
                        "generator='dcgan' is for images with values in [0, 1]: divide pixels by 255"
                    )
                shape = generative.square(X.shape[1])
                made = generative.deconvolutions(self.n_noise, shape, width=_CHANNELS)
            self.generator_ = made.to(rows.device)
        losses = generative.AdversarialLosses(
            classifier=module, generator=self.generator_, n_noise=self.n_noise, weight=self.unanswered_weight
        )
        # both train alternately; the averaged weights of the classifier are kept
        average = AveragedModel(module, avg_fn=_averaged)
        turns = [
            Objective(optimizer=network.new_optimizer(player.parameters()), loss=loss)
            for player, loss in ((module, losses.classifier_loss), (self.generator_, losses.generator_loss))
        ]
        try:
            network.train_on(
                turns,
                partial(_batches, *data, network),
                steps=max(1, len(rows) // network.batch_size),
                seed=seed,
                state={"classifier": module, "generator": self.generator_, "average": average},
                after_step=lambda: average.update_parameters(module),
                fingerprint=f"{digest(*(tensor.cpu().numpy() for tensor in data))}, {losses!r}",
            )
            self.losses_ = network.losses_
        finally:
            network.module_ = average.module.eval()
            self.generator_.eval()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row, of any rows."""
        best = self._logits(X).argmax(axis=1)
        return np.asarray(self.classes_[self._seen[best]])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, shape (n_rows, n_classes); 0 for classes without an answer."""
        logits = torch.as_tensor(self._logits(X))
        probabilities = np.zeros((len(logits), len(self.classes_)))
        probabilities[:, self._seen] = torch.softmax(logits, dim=1).numpy()
        return probabilities

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype=np.float32)
        return self.network_.logits(self._scaled(X))

    def _scaled(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self._centre) / self._spread, dtype=np.float32)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # few epochs on the small data of its checks
        return tags


def _averaged(mean: torch.Tensor, update: torch.Tensor, n_averaged: torch.Tensor | int) -> torch.Tensor:
    return torch.lerp(mean, update, max(1 / _MEMORY, 9 / (9 + float(n_averaged))))


def _batches(
    rows: torch.Tensor,
    answered: torch.Tensor,
    classes: torch.Tensor,
    network: TorchClassifier,
    generator: torch.Generator,
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches of all rows, each with as many answered rows, drawn with replacement."""
    size = min(network.batch_size, len(rows))
    augment = network.augment or (lambda batch: batch)
    order = torch.randperm(len(rows), generator=generator).to(rows.device)
    for start in range(0, len(rows) - size + 1, size):
        places = torch.randint(len(answered), (size,), generator=generator).to(rows.device)
        yield augment(rows[order[start : start + size]]), augment(answered[places]), classes[places]
