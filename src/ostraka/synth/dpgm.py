"""DPGM: a mixture of networks, one for each class or cluster, which generate rows.

Its mechanism releases noisy clusters, and then a network, or a table of products, for the rows of each.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.curve import Curve
from ostraka.core.mechanisms import sums
from ostraka.synth import clusters as lloyd
from ostraka.synth import fitting
from ostraka.synth.clusters import PrivateKMeans
from ostraka.synth.sgd import DCGAN, RBM, VAE, PrivateSGD, logits_of

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.private import Adjacency, Private
    from ostraka.synth.clusters import NoisyLloyd

_NETWORKS: dict[str, Any] = {"vae": VAE, "rbm": RBM, "dcgan": DCGAN}
# noise of the product of two columns, in whole numbers; that of a square has sums.CELLS of them
_CELLS_OF_PAIRS = math.ceil(sums.CELLS / math.sqrt(2))  # a product counts twice
_BLOCK = 4096  # rows


@dataclass(eq=False, repr=False)
class DPGM(BaseEstimator):
    """A differentially private mixture of generative models, for rows of numbers from 0 to 1.

    Rows are clustered by noisy k-means. Then models learn what the noisy centres leave out: Gaussians from
    a noisy table of products of columns, or networks, all of them in one training in which each takes its
    part of every sample.

    Parameters
    ----------
    n_clusters : int
        Clusters; of each class, if ``fit`` is given labels. Public.
    generator : "vae", "rbm", "dcgan", "gaussian", or a value such as ``VAE(n_features=784, hidden=(200,))``
        What is learned, for each class, or without labels for each cluster: a network, or a Gaussian of low
        rank about the centres, which needs no torch and has no other settings than ``share``.
    kernel : {"plain", "rbf"}
        Of the clusters.
    binary : bool
        Rows hold 0 and 1 only, and are sampled so.
    steps, sampling_rate : int, float
        Of the training.
    clip : float
        Length of a row's gradient.
    clip_noise : float, optional
        Noise of a histogram of the lengths of gradients in every step, in rows; the clip of that step is read
        from it, ``clip`` is its end, and its price is part of the training's. None: the clip is fixed.
    learning_rate : float
    share : float in (0, 1), optional
        Of epsilon, which the clusters alone would cost. None: 0.85; for Gaussians 0.55.
    epsilon, delta : float
        Public. The price, for one row or one person added or removed.
    random_state : int
        Of first weights and splits, which are public.

    Attributes
    ----------
    mechanism_ : the mechanism that was charged
    cluster_centers_, cluster_sizes_, cluster_classes_ : arrays
        As those of :class:`PrivateKMeans`. Public.
    weights_ : dict of arrays
        Of every network or Gaussian. Public.
    result_ : Result
        Settings and upper bound.

    Guarantees
    ----------
    (epsilon, delta)-DP for one row (with ``groups``: one person) added or removed, by the sum of the prices
    of the clusters and of :class:`PrivateSGD`, or of the tables of products. The network that a step trains
    is visible, so no step trains one network alone: docs/synthetic.md says what the published price of that
    was.
    Source: Acs, Melis, Castelluccia and De Cristofaro 2017, arXiv:1709.04514 (Melis 2018, Algorithm 3), with
    the corrections of docs/synthetic.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = (rng.random((3000, 6)) < [0.1, 0.9, 0.1, 0.9, 0.1, 0.9]).astype(float)
    >>> model = DPGM(n_clusters=2, generator="rbm", binary=True, epsilon=2.0, steps=20).fit(rows, rng=rng)
    >>> model.sample(500, random_state=0)[0].mean(axis=0).round(0)
    array([0., 1., 0., 1., 0., 1.])
    """

    n_clusters: int = 10
    _: KW_ONLY
    generator: Any = "vae"
    kernel: str = "plain"
    binary: bool = False
    steps: int = 300
    sampling_rate: float = 0.01
    clip: float = 5.0
    clip_noise: float | None = None
    learning_rate: float = 1e-3
    share: float | None = None
    epsilon: float = 1.0
    delta: float = 1e-5
    random_state: int = 0

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        classes: Any = None,
        groups: Any = None,
        ledger: Ledger | None = None,
        checkpoint: Any = None,
        rng: np.random.Generator | None = None,
    ) -> DPGM:
        """Charge, and release centres, sizes and networks.

        Parameters
        ----------
        X : array, shape (n_rows, n_features)
            Private. Numbers from 0 to 1; others are clipped.
        y, classes
            As for :meth:`PrivateKMeans.fit`.
        groups : array, shape (n_rows,), optional
            Private. Whose row it is: the unit is then a person, of whom one row, chosen at random, is used.
        ledger, rng
            As for :meth:`TableGenerator.fit`.
        checkpoint : path, optional
            Of the training. For the owner only.

        Raises
        ------
        ValueError
            Before anything is charged: something out of range, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        TrainingDiverged
            After the charge: a weight is not finite.
        """
        if self.generator != "gaussian":
            check.require("torch", extra="torch")
        rows, codes, n_classes = fitting.labelled(X, y, classes)
        mechanism = self.mechanism(n_features=rows.shape[1], n_classes=n_classes, checkpoint=checkpoint)
        private = fitting.private_rows(rows, codes, groups, most=1, rng=rng)
        released = fitting.charged(
            self, mechanism, private, of=(rows, codes), groups=groups, ledger=ledger, rng=rng
        )
        self.cluster_centers_, self.cluster_sizes_ = released["rows"], released["sizes"]
        self.cluster_classes_ = None if y is None else np.asarray(classes)[released["classes"]]
        self.weights_ = {name: table for name, table in released.items() if "/" in name}
        self.result_ = fitting.record(self, private, rng=rng, generator=str(self.generator))
        return self

    def sample(self, n_rows: int = 1000, *, random_state: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and the class (without labels: the cluster) of each. Public, at no further price.

        Parameters
        ----------
        n_rows : int
        random_state : int

        Returns
        -------
        rows : array, shape (n_rows, n_features)
        labels : array, shape (n_rows,)
        """
        check_is_fitted(self, "result_")
        check.integer(n_rows=n_rows)
        rng = np.random.default_rng(random_state)
        sizes = np.maximum(self.cluster_sizes_, 0.0)
        sizes = np.where(sizes > 0.02 * sizes.mean(), sizes, 0.0) if sizes.any() else np.ones_like(sizes)
        members = rng.choice(len(sizes), size=n_rows, p=sizes / sizes.sum())
        owners = self.mechanism_.clusters.owners()[members]
        rows = self.mechanism_.sampled(self.weights_, self.cluster_centers_[members], owners, rng=rng)
        if self.binary:
            rows = (rng.random(rows.shape) < rows).astype(np.float64)
        return rows, members if self.cluster_classes_ is None else self.cluster_classes_[members]

    def mechanism(self, *, n_features: int, n_classes: int, checkpoint: Any = None) -> Mixture | Spread:
        """The mechanism that :meth:`fit` releases.

        Clusters have their share of epsilon; what is learned has the least noise that keeps the rest.
        """
        gaussian = self.generator == "gaussian"
        share = self.share if self.share is not None else 0.55 if gaussian else 0.85
        check.share(share=share)
        check.positive(epsilon=self.epsilon)
        kmeans = PrivateKMeans(
            self.n_clusters,
            kernel=self.kernel,
            epsilon=share * self.epsilon,
            delta=self.delta,
            random_state=self.random_state,
        )
        clusters = kmeans.mechanism(n_features=n_features, n_classes=n_classes)
        if gaussian:

            def spread(noise: float) -> Spread:  # a twentieth of the squared noise for the lengths
                sigmas = noise / math.sqrt(0.95), noise / math.sqrt(0.05)
                return Spread(clusters=clusters, sigma=sigmas[0], sigma_norms=sigmas[1])

            return spread(fitting.least_noise(spread, epsilon=self.epsilon, delta=self.delta))
        network: Any = self.generator
        if isinstance(network, str) and network in _NETWORKS:
            network = _NETWORKS[network](n_features=n_features)
        if getattr(network, "n_features", None) != n_features:
            raise ValueError(
                f"generator must be 'vae', 'rbm', 'dcgan', 'gaussian', or a network for {n_features} "
                f"columns, such as VAE(n_features={n_features}), got {network!r}"
            )
        training = partial(
            PrivateSGD,
            network=network,
            n_columns=2 * n_features,
            steps=self.steps,
            sampling_rate=self.sampling_rate,
            clip=self.clip,
            sigma_norms=self.clip_noise,
            expected_rows=(1.0,) * (int(clusters.owners().max()) + 1),
            learning_rate=self.learning_rate,
            seed=self.random_state,
            checkpoint=checkpoint,
        )

        def made(noise: float) -> Mixture:
            return Mixture(clusters=clusters, training=training(sigma=noise))

        noise = fitting.least_noise(made, epsilon=self.epsilon, delta=self.delta, precision=1e-3)
        return made(noise)


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
    exactly (docs/record/floating-point.md).
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
        clip = lloyd.noisy_clip(
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
        if n_rows < lloyd.SEVERAL * lloyd.size_noise(self.clusters.sigma, self.clusters.n_features):
            clear[:] = False
        signal = np.sqrt(values[clear] ** 2 - edge**2) / (max(n_rows, 1.0) * self._longest)
        signal *= min(1.0, 1 / max(float(signal.sum()), 1e-12))  # no row is longer than its clip
        return np.asarray(vectors[:, clear] * np.sqrt(signal))
