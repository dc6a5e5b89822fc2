"""Mixture: noisy clusters, and a network on the rows of each, as one mechanism.

Spread: noisy clusters, and a Gaussian of low rank about the centres of each class, as one mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ostraka.core.curve import Curve
from ostraka.core.mechanisms import sums
from ostraka.synth import clusters as _clusters
from ostraka.synth import clusters as _lloyd
from ostraka.synth import fitting
from ostraka.synth.networks import logits_of

if TYPE_CHECKING:
    from ostraka.core.private import Adjacency, Private
    from ostraka.synth.clusters import NoisyLloyd
    from ostraka.synth.sgd import PrivateSGD


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Clusters, then training: rows of a class share a network; without classes, those of a cluster do.

    Parameters
    ----------
    clusters : NoisyLloyd
        Gives centres and sizes.
    training : PrivateSGD
        ``expected_rows`` is replaced by the noisy sizes.

    Guarantees
    ----------
    The price is the sum of both: the training may depend on the clusters (adaptive composition). Which
    network a row belongs to follows from the row and from public centres.
    """

    clusters: NoisyLloyd
    training: PrivateSGD

    @property
    def promise(self) -> Adjacency:
        """One row, which is there or not."""
        return self.clusters.promise

    def curve(self) -> Curve:
        """Cost of clusters and training."""
        return self.clusters.curve() + self.training.curve()

    def uses(self, private: Private) -> int:
        """One use for all of it. The training needs rows with a whole share: of a person, one."""
        fitting.check_whole(private)
        return self.clusters.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The release of :class:`NoisyLloyd`, and the weights of every network."""
        fitting.check_whole(private)
        released, rows, member = self.clusters.release_and_assign(private, rng=rng)
        owners = self.clusters.owners()
        expected = np.zeros(owners.max() + 1)
        np.add.at(expected, owners, np.maximum(released["sizes"], 0.0))
        centres = np.clip(released["rows"], 0.0, 1.0)
        training = replace(self.training, expected_rows=tuple(np.maximum(expected, 1.0).tolist()))
        table = np.concatenate([np.clip(rows, 0.0, 1.0), logits_of(centres)[member]], axis=1)

        def start(module: object, number: int) -> None:
            weights = np.maximum(released["sizes"][owners == number], 1.0)
            middle = np.average(centres[owners == number], axis=0, weights=weights)
            self.training.network.start(module, middle)

        return released | training.trained(table, owners[member], rng=rng, start=start)

    def sampled(
        self,
        weights: dict[str, np.ndarray],
        centres: np.ndarray,
        owners: np.ndarray,
        *,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Means of new rows, each by the network that its centre belongs to."""
        import torch  # noqa: PLC0415  (an extra, slow to import)

        network, rows = self.training.network, np.empty_like(centres)
        for number, module in enumerate(network.modules(self.clusters.owners().max() + 1, seed=0)):
            prefix = f"{number}/"
            module.load_state_dict(
                {
                    name.removeprefix(prefix): torch.from_numpy(table)
                    for name, table in weights.items()
                    if name.startswith(prefix)
                }
            )
            places = np.flatnonzero(owners == number)
            if places.size:
                rows[places] = network.sampled(module, centres[places], seed=int(rng.integers(2**31)))
        return rows


# noise of the product of two columns, in whole numbers; that of a square has sums.CELLS of them
_CELLS_OF_PAIRS = math.ceil(sums.CELLS / math.sqrt(2))  # a product counts twice
_BLOCK = 4096  # rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Clusters, then products of columns about the centres: one table for each class, or for each cluster.

    Parameters
    ----------
    clusters : NoisyLloyd
        Gives centres and sizes.
    sigma : float
        Noise of the sum of squares of a column, in squared clips; that of products has 1/√2 of it. Public.
    sigma_norms : float
        Noise of the histogram of lengths that the clip is read from. Public.

    Guarantees
    ----------
    The price is the sum of those of the clusters, of the histogram, and of one Gaussian for all products.
    A row r about its centre is clipped and rounded to whole numbers, so that sums of r rᵀ are exact. It moves
    the table of its class only, whose Frobenius norm counts each product of two columns twice, by |r|².
    Which class or cluster a row belongs to follows from the row and from public centres. The noise is drawn
    exactly (docs/floating-point.md).
    Source: Dwork, Talwar, Thakurta and Zhang 2014, doi:10.1145/2591796.2591883 (Algorithm 1).
    """

    clusters: NoisyLloyd
    sigma: float
    sigma_norms: float

    def __post_init__(self) -> None:
        sums.check_sigma(sigma=self.sigma, sigma_norms=self.sigma_norms)

    @property
    def promise(self) -> Adjacency:
        """One row, which is there or not."""
        return self.clusters.promise

    def curve(self) -> Curve:
        """Cost of clusters, histogram and products."""
        products = Curve.gaussian(sensitivity=float(self._longest), sigma=float(sums.CELLS), moves="row")
        return self.clusters.curve() + sums.sums_curve(self.sigma_norms) + products

    def uses(self, private: Private) -> int:
        """One use for all of it. Rows have a whole share: of a person, one."""
        fitting.check_whole(private)
        if private.open().shape[0] * self._longest > sums.EXACT:
            raise ValueError(
                f"products of so many rows at sigma {self.sigma:g} are not exact: take more noise"
            )
        return self.clusters.uses(private)

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The release of :class:`NoisyLloyd`, and ``"0/factors"``: times its transpose, a covariance."""
        self.uses(private)
        released, rows, member = self.clusters.release_and_assign(private, rng=rng)
        about = np.clip(rows, 0.0, 1.0) - np.clip(released["rows"], 0.0, 1.0).astype(rows.dtype)[member]
        clip = _lloyd.noisy_clip(
            about, np.ones(len(about)), longest=self.clusters.longest, sigma=self.sigma_norms, rng=rng
        )
        owners = self.clusters.owners()
        for k in range(owners.max() + 1):
            noisy = self.noisy(self.products(about[owners[member] == k] / clip), rng=rng)
            n_rows = np.maximum(released["sizes"][owners == k], 0.0).sum()
            released[f"{k}/factors"] = self.factors(noisy, n_rows) * clip
        return released

    def sampled(
        self,
        weights: dict[str, np.ndarray],
        centres: np.ndarray,
        owners: np.ndarray,
        *,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """New rows from 0 to 1 about the given centres, which belong to these classes."""
        rows: np.ndarray = centres.copy()
        for k in np.unique(owners):
            factors, members = weights[f"{k}/factors"], owners == k
            rows[members] += rng.normal(size=(int(members.sum()), factors.shape[1])) @ factors.T
        return np.asarray(np.clip(rows, 0.0, 1.0))

    @property
    def _longest(self) -> int:
        """The largest squared length of a row of whole numbers."""
        return max(1, math.floor(sums.CELLS / self.sigma))

    def products(self, rows: np.ndarray) -> np.ndarray:
        """The sum of r rᵀ over rows of whole numbers; ``rows`` in clips."""
        total = np.zeros((rows.shape[1], rows.shape[1]))
        for begin in range(0, len(rows), _BLOCK):
            steps = self.whole(rows[begin : begin + _BLOCK])
            total += steps.T @ steps
        return total

    def whole(self, rows: np.ndarray) -> np.ndarray:
        """Rows of length 1 at most, longer ones shortened, as whole numbers whose length the price allows."""
        rows = rows.astype(np.float64)
        square = np.einsum("ij,ij->i", rows, rows)
        scale = math.sqrt(self._longest) * (1 - 1e-9) / np.sqrt(np.maximum(square, 1.0))
        exact = rows * scale[:, None]
        steps = np.rint(exact)
        longer = np.einsum("ij,ij->i", steps, steps) > self._longest
        steps[longer] = np.trunc(exact[longer])
        return np.asarray(steps)

    def noisy(self, products: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
        """The symmetric table of sums of products with noise."""
        above = np.triu_indices(len(products), 1)
        upper = np.zeros_like(products)
        pairs = float(_CELLS_OF_PAIRS)
        upper[above] = sums.with_noise(products[above], sigma=pairs, cells=pairs, rng=rng)
        squares = sums.with_noise(
            products.diagonal(), sigma=float(sums.CELLS), cells=float(sums.CELLS), rng=rng
        )
        return np.asarray(upper + upper.T + np.diag(squares))

    def factors(self, noisy: np.ndarray, n_rows: float) -> np.ndarray:
        """Directions of a noisy table that stand out of its noise, as long as rows vary along them, in clips.

        Of an eigenvalue y the part sqrt(y² - 4 d s²) is signal, where s is the noise of a product and d the
        number of columns: Benaych-Georges and Nadakuditi 2011, arXiv:0910.2120, section 3.1.
        """
        values, vectors = np.linalg.eigh(noisy)
        edge = 2 * _CELLS_OF_PAIRS * math.sqrt(len(noisy))
        clear = values > edge
        if n_rows < _clusters.SEVERAL * _clusters.size_noise(self.clusters.sigma, self.clusters.n_features):
            clear[:] = False
        signal = np.sqrt(values[clear] ** 2 - edge**2) / (max(n_rows, 1.0) * self._longest)
        signal *= min(1.0, 1 / max(float(signal.sum()), 1e-12))  # no row is longer than its clip
        return np.asarray(vectors[:, clear] * np.sqrt(signal))
