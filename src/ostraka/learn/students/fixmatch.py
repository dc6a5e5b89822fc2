"""FixMatch: semi-supervised training with pseudo-labels and augmentation.

Augmentations are random changes of rows that keep their class. Every call draws from torch's generator,
separately for each row of the batch; the training loop seeds it. Rows are flat, of shape (n, n_features),
before and after.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ostraka.core import check
from ostraka.core.mechanisms.law import ABSTAIN
from ostraka.learn.students.distil import coded
from ostraka.nets.generative import square, strided
from ostraka.nets.training import Objective, device, digest
from ostraka.networks import TorchClassifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sklearn.utils import Tags

OPERATIONS = ("shift", "rotate", "shear", "contrast", "brightness", "posterize", "solarize")
_GEOMETRIC = ("shift", "rotate", "shear")
_PADDING = ("zeros", "border", "reflection")
# The largest amount of an operation at strength 1: those of Sohn et al. 2020, table 12.
_SHIFT = 0.3  # of the side
_ROTATE = math.radians(30)
_SHEAR = 0.3
_DIM = 0.95  # of contrast or brightness, which is lost
_FINEST, _COARSEST = 8, 4  # bits that posterizing leaves
_CUT = 0.5  # of the side
_IMAGES, _UNLABELLED = 64, 3  # labelled images in a step, and unlabelled ones for each
_OF_IMAGES = ("convolutional", "wide-resnet")


class Augmentation(Protocol):
    """A weak and a strong augmentation. FixMatch labels the strong form with the weak form's prediction."""

    def weak(self, rows: torch.Tensor) -> torch.Tensor:
        """A small change."""
        ...

    def strong(self, rows: torch.Tensor) -> torch.Tensor:
        """The largest change that keeps the class."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAugment:
    """Weak and strong augmentation of images, in the manner of RandAugment and FixMatch.

    ``weak``: a shift by whole pixels, and a flip if that is sensible. ``strong``: two operations
    drawn from the list for each image, how far each goes drawn too, and a square cut out. The
    fields fit digits and other drawings on a plain ground; :meth:`photos` fits photographs.

    Parameters
    ----------
    shape : tuple of int
        (channels, height, width) of a flat row.
    span : tuple of float, default (0.0, 1.0)
        The darkest and the brightest value there may be.
    flip : bool, default False
        Mirror every other image. Not for digits: a mirrored 2 is not a 2.
    shift : float in [0, 1], default 0.1
        The largest move of ``weak``, as a share of the image's side.
    operations : tuple of str
        The operations that ``strong`` draws from: of "shift", "rotate", "shear", "contrast", "brightness",
        "posterize" and "solarize".
    n_operations : int, default 2
    strength : float in [0, 1], default 1.0
        Scales the operations and the hole; 0 turns them off.
    padding : {"zeros", "border", "reflection"}, default "zeros"
        What fills the area outside: ``fill``, the outermost pixels, or the mirrored image.
    fill : float, default 0.0
        Value of the holes and of the area outside.

    Raises
    ------
    ValueError
        A field out of range; in a call, rows of another width, or values outside ``span``.

    Notes
    -----
    Source: Sohn et al. 2020, arXiv:2001.07685, section 2.2 and appendix D; Cubuk et al. 2020,
    arXiv:1909.13719; DeVries and Taylor 2017, arXiv:1708.04552 (the hole). Their operations on
    colours (equalise, autocontrast, colour, sharpness) are left out. All geometry of an image is
    one resampling, and comes before what changes its values.

    Examples
    --------
    >>> augment = ImageAugment(shape=(1, 28, 28))
    >>> augment.strong(torch.rand(5, 784)).shape
    torch.Size([5, 784])
    """

    shape: tuple[int, int, int]
    span: tuple[float, float] = (0.0, 1.0)
    flip: bool = False
    shift: float = 0.1
    operations: tuple[str, ...] = OPERATIONS[:-2]
    n_operations: int = 2
    strength: float = 1.0
    padding: str = "zeros"
    fill: float = 0.0

    def __post_init__(self) -> None:
        if len(self.shape) != 3:
            raise ValueError(f"shape must be (channels, height, width), got {self.shape!r}")
        for side in self.shape:
            check.integer(shape=side, least=1)
        low, high = self.span
        check.finite(low=low, high=high, fill=self.fill)
        if not low <= self.fill <= high or low == high:
            raise ValueError(f"span must go from low to high with fill={self.fill} in it, got {self.span}")
        check.share(zero=True, one=True, shift=self.shift, strength=self.strength)
        for operation in self.operations:
            check.one_of(allowed=OPERATIONS, operations=operation)
        check.integer(n_operations=self.n_operations)
        if self.n_operations > len(self.operations):
            raise ValueError(
                f"n_operations must be at most the {len(self.operations)} operations there are, "
                f"got {self.n_operations}"
            )
        check.one_of(allowed=_PADDING, padding=self.padding)

    @classmethod
    def photos(cls, shape: tuple[int, int, int], *, strength: float = 1.0) -> ImageAugment:
        """Settings for photographs with values from 0 to 1: flips, mirrored edges, all operations."""
        return cls(
            shape=shape,
            flip=True,
            shift=0.125,
            operations=OPERATIONS,
            strength=strength,
            padding="reflection",
            fill=0.5,
        )

    def weak(self, rows: torch.Tensor) -> torch.Tensor:
        """Move each image by whole pixels, up to ``shift`` of its side, and flip it if ``flip`` is set."""
        images = self._images(rows)
        limits = [math.floor(self.shift * side) for side in (self.shape[2], self.shape[1])]
        moves = torch.stack(
            [torch.randint(-limit, limit + 1, (len(rows),), device=rows.device) for limit in limits], dim=1
        )
        return self._resampled(images, self._mirrored(images), moves.float(), mode="nearest").flatten(1)

    def strong(self, rows: torch.Tensor) -> torch.Tensor:
        """Apply operations drawn for each image, and cut a hole drawn for each image."""
        images = self._images(rows)
        order = torch.rand(len(images), len(self.operations), device=rows.device).argsort(dim=1)
        on = {name: order[:, place] < self.n_operations for place, name in enumerate(self.operations)}
        images = self._moved(images, on)
        images = self._shaded(images, on)
        # a square hole, at most half the side wide, at any place; part of it may lie outside
        _, height, width = self.shape
        uniform = torch.rand(3, len(images), 1, device=images.device)
        half = uniform[0] * (_CUT * self.strength * min(height, width) / 2)
        down = (torch.arange(height, device=images.device) + 0.5 - uniform[1] * height).abs() < half
        right = (torch.arange(width, device=images.device) + 0.5 - uniform[2] * width).abs() < half
        hole = (down[:, :, None] & right[:, None, :])[:, None]
        return torch.where(hole, self.fill, images).flatten(1)

    def _images(self, rows: torch.Tensor) -> torch.Tensor:
        wide = math.prod(self.shape)
        if rows.ndim != 2 or rows.shape[1] != wide:
            raise ValueError(
                f"rows must have {wide} features, for images of shape {self.shape}, got {tuple(rows.shape)}"
            )
        if not (rows.min() >= self.span[0] and rows.max() <= self.span[1]):
            raise ValueError(f"rows must have values within span={self.span}: give the span of the pixels")
        return rows.reshape(len(rows), *self.shape)

    def _mirrored(self, images: torch.Tensor) -> torch.Tensor:
        """A 2 × 2 matrix for each image: the identity, or a flip of the horizontal axis."""
        matrix = torch.eye(2, device=images.device, dtype=images.dtype).repeat(len(images), 1, 1)
        if self.flip:
            matrix[:, 0, 0] = torch.where(torch.rand(len(images), device=images.device) < 0.5, -1.0, 1.0)
        return matrix

    def _moved(self, images: torch.Tensor, on: dict[str, torch.Tensor]) -> torch.Tensor:
        if not self.flip and not set(self.operations) & set(_GEOMETRIC):
            return images
        sides = torch.tensor([self.shape[2], self.shape[1]], device=images.device)
        moves = self._amount(images, on, "shift", _SHIFT, 2) * sides
        angle = self._amount(images, on, "rotate", _ROTATE)[:, 0]
        slant = self._amount(images, on, "shear", _SHEAR, 2)
        turn = torch.stack(
            [torch.cos(angle), -torch.sin(angle), torch.sin(angle), torch.cos(angle)], dim=1
        ).reshape(-1, 2, 2)
        shear = torch.eye(2, device=images.device).repeat(len(images), 1, 1)
        shear[:, 0, 1], shear[:, 1, 0] = slant[:, 0], slant[:, 1]
        return self._resampled(images, self._mirrored(images) @ turn @ shear, moves, mode="bilinear")

    def _resampled(
        self, images: torch.Tensor, matrix: torch.Tensor, moves: torch.Tensor, *, mode: str
    ) -> torch.Tensor:
        """Apply ``matrix`` around the centre, then move by ``moves`` (right, down; in pixels)."""
        _, height, width = self.shape
        scale = torch.tensor([width / 2, height / 2], device=images.device)
        # torch reads a pixel at theta · (x, y, 1), in half sides from the middle
        offset = -(matrix @ moves.unsqueeze(2)) / scale[:, None]
        linear = matrix * scale[None, :] / scale[:, None]
        grid = nn.functional.affine_grid(
            torch.cat([linear, offset], dim=2), list(images.shape), align_corners=False
        )
        moved = nn.functional.grid_sample(
            images - self.fill, grid, mode=mode, padding_mode=self.padding, align_corners=False
        )
        return (moved + self.fill).clamp(*self.span)

    def _shaded(self, images: torch.Tensor, on: dict[str, torch.Tensor]) -> torch.Tensor:
        low, high = self.span
        unit = (images - low) / (high - low)
        mean = unit.mean(dim=(1, 2, 3), keepdim=True)
        unit = mean + (unit - mean) * (1 - self._shade(images, on, "contrast", _DIM))
        unit = unit * (1 - self._shade(images, on, "brightness", _DIM))
        if "posterize" in on and self.strength:
            bits = _FINEST - self._shade(images, on, "posterize", _FINEST - _COARSEST)
            levels = torch.round(2**bits) - 1
            coarse = torch.round(unit * levels) / levels
            unit = torch.where(on["posterize"][:, None, None, None], coarse, unit)
        unit = torch.where(unit > 1 - self._shade(images, on, "solarize", 1.0), 1 - unit, unit)
        return unit * (high - low) + low

    def _shade(
        self, images: torch.Tensor, on: dict[str, torch.Tensor], name: str, largest: float
    ) -> torch.Tensor:
        return self._amount(images, on, name, largest)[:, :, None, None].abs()

    def _amount(
        self, images: torch.Tensor, on: dict[str, torch.Tensor], name: str, largest: float, n: int = 1
    ) -> torch.Tensor:
        """The amount of an operation in each image, shape (n_images, n); 0 where it was not drawn."""
        if name not in on:
            return torch.zeros(len(images), n, device=images.device)
        uniform = 2 * torch.rand((len(images), n), device=images.device) - 1
        return on[name][:, None] * (uniform * (largest * self.strength))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAugment:
    """Weak and strong augmentation of rows of a table, or of embeddings.

    ``weak`` adds a little Gaussian noise. ``strong`` also replaces some cells of a row by what
    other rows of the batch hold in the same column, so that every column keeps its distribution.

    Parameters
    ----------
    jitter : float >= 0, default 0.05
        Standard deviation of the noise, in units of the column's standard deviation in the batch.
    swapped : float in [0, 1], default 0.3
        Share of cells replaced.

    Raises
    ------
    ValueError
        A field out of range.

    Notes
    -----
    Source: Yoon et al. 2020 (VIME), section 4, and Bahri et al. 2022 (SCARF), arXiv:2106.15147:
    corruption by values drawn from each column's own distribution.

    Examples
    --------
    >>> rows = torch.arange(8.0).reshape(4, 2)
    >>> strong = TableAugment(jitter=0.0, swapped=1.0).strong(rows)
    >>> set(strong[:, 1].tolist()) <= set(rows[:, 1].tolist())
    True
    """

    jitter: float = 0.05
    swapped: float = 0.3

    def __post_init__(self) -> None:
        check.finite(jitter=self.jitter)
        check.nonnegative(jitter=self.jitter)
        check.share(zero=True, one=True, swapped=self.swapped)

    def weak(self, rows: torch.Tensor) -> torch.Tensor:
        """Add independent noise to each cell."""
        spread = rows.std(dim=0, correction=0)
        return rows + self.jitter * spread * torch.randn_like(rows)

    def strong(self, rows: torch.Tensor) -> torch.Tensor:
        """As ``weak``, with some cells replaced by those of other rows."""
        rows = self.weak(rows)
        others = torch.randint(len(rows), rows.shape, device=rows.device)
        swap = torch.rand(rows.shape, device=rows.device) < self.swapped
        return torch.where(swap, rows.gather(0, others), rows)


@dataclass(eq=False, repr=False)
class FixMatch(ClassifierMixin, BaseEstimator):
    """A torch network from a few labelled rows and many without a label.

    A step takes ``batch_size`` labelled rows and ``ratio`` times as many unlabelled ones. Labelled rows are
    trained on in their weakly augmented form. A confident prediction for the weak form of an unlabelled row
    becomes the label of the row's strong form.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimizer, schedule, device and seed of the training. ``batch_size`` counts labelled rows.
        An epoch is one pass over the unlabelled rows, in whole batches. The network's ``augment`` is not
        used. None: a perceptron, Adam at 1e-3, 20 epochs of batches of 64 with a cosine schedule.
    augment : ImageAugment or TableAugment, optional
        Any object with methods ``weak`` and ``strong``. None: that of square drawings with values from 0
        to 1 if the network's module is named "convolutional" or "wide-resnet", otherwise that of tables.
    ratio : int, default 7
        Unlabelled rows for each labelled one in a batch.
    threshold : float in (0, 1), default 0.95
        Rows whose largest class probability is lower are not used.
    weight : float >= 0, default 1.0
        Weight of the unlabelled rows' loss.
    average : float in [0, 1), default 0.999
        Decay of the moving average of the weights in a step; in step t at most (1 + t) / (10 + t), so that
        the first weights are forgotten soon. The averaged network predicts.
    unlabelled : array of shape (n_unlabelled, n_features), optional
        More public rows. None: all rows given to ``fit`` serve as unlabelled rows; otherwise these rows and
        the unanswered ones do.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    model_ : TorchClassifier
        The fitted network, with the averaged weights.
    losses_ : list of float
        Mean loss of each epoch.

    Raises
    ------
    ValueError
        No answer, labels out of range or soft, a parameter out of range, unlabelled rows of another width,
        or a missing device. Raised before the training.
    TrainingDiverged
        The loss was not finite; ``model_`` is as after the last good epoch.

    Notes
    -----
    Source: Sohn et al. 2020, arXiv:2001.07685, equations 3 and 4. Differences: pseudo-labels come from a
    separate forward pass without gradients, and rows below the threshold make no second pass.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 10 == 0, y, ABSTAIN)
    >>> network = TorchClassifier(epochs=50, batch_size=8, learning_rate=0.01, n_threads=1, random_state=0)
    >>> bool(FixMatch(network).fit(X, some).score(X, y) > 0.9)
    True
    """

    learns_from_unanswered = True  # so that Distilled hands it every row

    network: TorchClassifier | None = None
    _: KW_ONLY
    augment: Augmentation | None = None
    ratio: int = 7
    threshold: float = 0.95
    weight: float = 1.0
    average: float = 0.999
    unlabelled: Any = None

    @classmethod
    def of_images(
        cls,
        X: Any,
        image_shape: tuple[int, int],
        *,
        n_steps: int = 1500,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Settings for many labels and grey drawings on a plain ground, such as digits, of any range.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            The rows to learn from. Their range and number are used.
        image_shape : (height, width)
        n_steps : int
            Steps of the training, of 64 labelled and 192 unlabelled images: about a minute on one core for
            MNIST.
        random_state : int, numpy.random.RandomState or None
        """
        check.integer(n_steps=n_steps, least=1)
        low, high = float(np.min(X)), float(np.max(X))
        shape = (1, *image_shape)
        network = TorchClassifier(
            partial(strided, shape=shape),
            epochs=-(-n_steps // max(1, len(X) // (_IMAGES * _UNLABELLED))),
            batch_size=_IMAGES,
            learning_rate=6e-3,
            schedule="cosine",
            random_state=random_state,
        )
        augment = ImageAugment(shape=shape, span=(low, high), fill=low, strength=0.5)
        return cls(network, augment=augment, ratio=_UNLABELLED, threshold=0.9)

    def fit(self, X: Any, y: Any, *, classes: Any = None) -> Self:
        """Train from new weights.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        y : array of shape (n_rows,)
            With ``classes``: indices into it, as mechanisms return them. Without: the labels.
            ``ABSTAIN`` (-1) where there is no answer.
        classes : array of shape (n_classes,), optional
            Names of all classes, including those without an answer.
        """
        if not isinstance(self.network, TorchClassifier | None):
            raise TypeError(f"network must be a TorchClassifier, got {type(self.network).__name__}")
        for name in ("weak", "strong"):
            if self.augment is not None and not callable(getattr(self.augment, name, None)):
                raise ValueError(f"augment must have the methods weak and strong, got {self.augment!r}")
        check.integer(ratio=self.ratio, least=1)
        check.finite(threshold=self.threshold, weight=self.weight, average=self.average)
        check.nonnegative(weight=self.weight)
        check.share(threshold=self.threshold)
        check.share(zero=True, average=self.average)
        if y is None:
            raise ValueError("FixMatch requires y to be passed, but the target y is None")
        X = validate_data(self, X, dtype=np.float32)
        self.classes_, codes = coded(y, classes, n_rows=len(X))
        if len(self.classes_) < 2:  # scikit-learn's tests expect this sentence
            raise ValueError("FixMatch cannot learn from one class: y must hold two or more")
        answered, others = codes != ABSTAIN, X
        if self.unlabelled is not None:
            others = check_array(self.unlabelled, dtype=np.float32, input_name="unlabelled")
            if others.shape[1] != X.shape[1]:
                raise ValueError(
                    f"unlabelled must have {X.shape[1]} features as X has, got {others.shape[1]}"
                )
            others = others if answered.all() else np.concatenate([others, X[~answered]])
        X, codes = X[answered], codes[answered]
        model = default_network() if self.network is None else clone(self.network)
        where, seed = device(model.device), model.seed()
        rows = torch.as_tensor(X, device=where)
        model.classes_, model.n_features_in_ = self.classes_, X.shape[1]
        module = model.opened(rows, seed=seed)
        augment = self.augment
        if augment is None:
            image = isinstance(model.module, str) and model.module in _OF_IMAGES
            augment = ImageAugment(shape=square(X.shape[1])) if image else TableAugment()
        match = _Match(
            rows=rows,
            targets=torch.as_tensor(codes, device=where),
            others=torch.as_tensor(others, device=where),
            augment=augment,
            batch_size=model.batch_size,
            ratio=self.ratio,
            threshold=self.threshold,
            weight=self.weight,
        )
        match.require_fitting()
        averaged = AveragedModel(module, multi_avg_fn=partial(_averaged, self.average))
        self.model_, optimizer = model, model.new_optimizer(module.parameters())
        try:
            model.train_on(
                [Objective(optimizer=optimizer, loss=partial(match.loss, module))],
                match.batches,
                steps=match.steps,
                seed=seed,
                state={"module": module, "average": averaged},
                after_step=lambda: averaged.update_parameters(module),
                fingerprint=f"{digest(X, codes, others)}, {match}, average={self.average}, {module}",
            )
            self.losses_ = model.losses_
        finally:
            model.module_ = averaged.module.eval()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 of shape (n_rows, n_classes)."""
        probabilities: np.ndarray = self._fitted(X).predict_proba(X)
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        return np.asarray(self._fitted(X).predict(X))

    def logits(self, X: Any) -> np.ndarray:
        """The averaged network's output before softmax, float64 of shape (n_rows, n_classes)."""
        return self._fitted(X).logits(X)

    def _fitted(self, X: Any) -> TorchClassifier:
        check_is_fitted(self, "model_")
        validate_data(self, X, reset=False, dtype=np.float32)
        return self.model_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # twenty epochs are few for the small data of its checks
        return tags


def default_network() -> TorchClassifier:
    """The default network of FixMatch."""
    return TorchClassifier(batch_size=64, schedule="cosine")


def _averaged(
    average: float, mean: list[torch.Tensor], now: list[torch.Tensor], done: torch.Tensor | int
) -> None:
    """One step of the moving average."""
    decay = min(average, (1 + int(done)) / (10 + int(done)))
    for weight, update in zip(mean, now, strict=True):
        weight.lerp_(update, 1 - decay)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """The data, the batches and the loss of a training."""

    rows: torch.Tensor = field(repr=False)
    targets: torch.Tensor = field(repr=False)
    others: torch.Tensor = field(repr=False)
    augment: Augmentation
    batch_size: int
    ratio: int
    threshold: float
    weight: float

    @property
    def steps(self) -> int:
        """Batches in an epoch. A short last batch is left out, unless it is the only one."""
        return max(1, len(self.others) // (self.ratio * self.batch_size))

    def require_fitting(self) -> None:
        """Try the augmentation on the smallest and the largest values, and pass on its errors."""
        for rows in (self.rows, self.others):
            extremes = torch.stack([rows.amin(dim=0), rows.amax(dim=0)])
            with torch.random.fork_rng():
                shapes = {self.augment.weak(extremes).shape, self.augment.strong(extremes).shape}
            if shapes != {extremes.shape}:
                raise ValueError("augment must return rows of the shape that it was given")

    def batches(self, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Numbers of labelled and unlabelled rows: each unlabelled row once, labelled rows repeatedly."""
        n_labelled, n_others = self.batch_size, self.ratio * self.batch_size  # of a step
        rounds = -(-self.steps * n_labelled // len(self.rows))
        labelled = torch.cat([torch.randperm(len(self.rows), generator=generator) for _ in range(rounds)])
        others = torch.randperm(len(self.others), generator=generator)
        for step in range(self.steps):
            yield (
                labelled[step * n_labelled : (step + 1) * n_labelled],
                others[step * n_others : (step + 1) * n_others],
            )

    def loss(self, module: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Equation 3, plus ``weight`` times equation 4."""
        labelled, others = (numbers.to(self.rows.device) for numbers in batch)
        public = self.others[others]
        with torch.no_grad():
            sure, guess = torch.softmax(module(self.augment.weak(public)), dim=1).max(dim=1)
        learned = sure >= self.threshold
        strong = self.augment.strong(public)[learned]
        logits = module(torch.cat([self.augment.weak(self.rows[labelled]), strong]))
        supervised = nn.functional.cross_entropy(logits[: len(labelled)], self.targets[labelled])
        unsupervised = nn.functional.cross_entropy(logits[len(labelled) :], guess[learned], reduction="sum")
        return supervised + self.weight * unsupervised / len(others)
