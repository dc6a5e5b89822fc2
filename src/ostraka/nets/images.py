"""Augmentations: random changes of rows that keep their class.

Every call draws from torch's generator, separately for each row of the batch; the training loop seeds it.
Rows are flat, of shape (n, n_features), before and after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from ostraka.core import check

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
