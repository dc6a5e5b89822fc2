"""PrivateKMeans: clusters of private rows, and rows drawn from their noisy centres."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from ostraka.core import check
from ostraka.data.nearest import nearest
from ostraka.synth import clusters, fitting
from ostraka.synth.clusters import NoisyLloyd

if TYPE_CHECKING:
    from ostraka.core.ledger.ledger import Ledger

# of the budget, in terms of squared noise
_OF_START, _OF_NORMS, _OF_ROWS = 0.1, 0.05, 0.2


@dataclass(eq=False, repr=False)
class PrivateKMeans(ClusterMixin, BaseEstimator):
    """k-means with noisy sums and sizes; its noisy centres are a generator of rows.

    Parameters
    ----------
    n_clusters : int
        Clusters; of each class, if ``fit`` is given labels. Public.
    kernel : {"plain", "rbf"}
        ``"rbf"``: clusters of random features, paired [cos, sin], whose length is 1 without any clip.
    n_components : int, even
        Number of random features.
    gamma : float, optional
        exp(-gamma distance²). None: 4 / longest².
    n_iterations : int
    start : "split", "classes", or array of public rows
        ``"split"``: noisy means, split at random. ``"classes"``: one cluster for each class, over all rows,
        which starts at the noisy mean of the class. Public rows: (n_clusters, n_features) of them, or for
        each class in turn.
    longest : float, optional
        What the length of a row is expected to be at most; longer rows are shortened. Public. None: the
        square root of the number of columns, which is right for columns from 0 to 1.
    binary : bool
        Rows hold 0 and 1 only: :meth:`sample` draws each entry by its mean.
    epsilon, delta : float
        Public. The price, for one row or one person added or removed.
    random_state : int
        Of random features and splits, which are public.

    Attributes
    ----------
    cluster_centers_ : array, shape (n_clusters in all, n_features)
        Noisy means of the rows of each cluster. Public.
    cluster_sizes_ : array
        Noisy sizes; those of clusters without rows are near 0, or below it. Public.
    cluster_classes_ : array
        The class of each cluster, where there were labels.
    mechanism_ : the mechanism that was charged
    result_ : Result
        Settings and upper bound.

    Guarantees
    ----------
    (epsilon, delta)-DP for one row (with ``groups``: one person) added or removed: sums of bounded rows with
    Gaussian noise drawn on a grid (:class:`~ostraka.mechanisms.GaussianSums`); all else is post-processing.
    Sizes are noisy, and priced.
    Source: Acs, Melis, Castelluccia and De Cristofaro 2017, arXiv:1709.04514 (Melis 2018, Algorithm 4), with
    the corrections of docs/synthetic.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = np.concatenate([rng.normal(0.2, 0.05, (2000, 2)), rng.normal(0.8, 0.05, (2000, 2))])
    >>> model = PrivateKMeans(n_clusters=2, epsilon=1.0, delta=1e-5).fit(rows, rng=rng)
    >>> np.sort(model.cluster_centers_[:, 0]).round(1)
    array([0.2, 0.8])
    """

    n_clusters: int = 10
    _: KW_ONLY
    kernel: str = "plain"
    n_components: int = 200
    gamma: float | None = None
    n_iterations: int = 4
    start: Any = "split"
    longest: float | None = None
    binary: bool = False
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
        rng: np.random.Generator | None = None,
    ) -> PrivateKMeans:
        """Charge, and release centres and sizes.

        Parameters
        ----------
        X : array, shape (n_rows, n_features)
            Private.
        y : array, shape (n_rows,), optional
            Private labels: each class then has clusters of its own.
        classes : list, with y
            All classes. Public.
        groups : array, shape (n_rows,), optional
            Private. Whose row it is: the unit is then a person, of whose rows at most eight share one weight.
        ledger, rng
            As for :meth:`TableGenerator.fit`.

        Raises
        ------
        ValueError
            Before anything is charged: something out of range, or no noise keeps so small an epsilon.
        BudgetExceeded
            The charge does not fit; nothing was released.
        """
        rows, codes, n_classes = fitting.labelled(X, y, classes)
        mechanism = self.mechanism(n_features=rows.shape[1], n_classes=n_classes)
        private = fitting.private_rows(rows, codes, groups, rng=rng)
        released = fitting.charged(self, mechanism, private, ledger=ledger, rng=rng)
        self.n_features_in_ = mechanism.n_features
        self.cluster_centers_, self.cluster_sizes_ = released["rows"], released["sizes"]
        self.cluster_classes_ = None
        if y is not None and mechanism.start != "classes":
            self.cluster_classes_ = np.asarray(classes)[released["classes"]]
        self._centres = released["centres"]
        self.result_ = fitting.record(self, private, rng=rng, generator="centres")
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The nearest cluster of each row, int64; no row is in a cluster that seems empty."""
        rows, mechanism = fitting.numbers(X), self.mechanism_
        if mechanism.kernel == "rbf":
            rows = clusters.random_features(
                rows, n_components=mechanism.n_components, gamma=mechanism.gamma, seed=mechanism.seed
            )
        filled = self._filled()
        return np.asarray(filled[nearest(rows.astype(np.float64), [self._centres[filled]])[:, 0]])

    def sample(self, n_rows: int = 1000, *, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows, and the class (without labels: the cluster) of each. Public, at no further price.

        Parameters
        ----------
        n_rows : int
        random_state : int or numpy.random.Generator, optional

        Returns
        -------
        rows : array, shape (n_rows, n_features)
            Centres of clusters, drawn by their noisy sizes; with ``binary``, each entry is drawn by its mean.
        labels : array, shape (n_rows,)
        """
        check.integer(n_rows=n_rows)
        rng = np.random.default_rng(random_state)
        filled = self._filled()
        sizes = np.maximum(self.cluster_sizes_[filled], 1.0)
        members = filled[rng.choice(len(filled), size=n_rows, p=sizes / sizes.sum())]
        rows = self.cluster_centers_[members]
        if self.binary:
            rows = (rng.random(rows.shape) < rows).astype(np.float64)
        return rows, members if self.cluster_classes_ is None else self.cluster_classes_[members]

    def _filled(self) -> np.ndarray:
        """Places of clusters that are larger than noise; the largest, if none is."""
        sizes, mechanism = self.cluster_sizes_, self.mechanism_
        sigma = mechanism.sigma_rows if mechanism.kernel == "rbf" else mechanism.sigma
        noise = clusters.size_noise(sigma, mechanism.n_features)
        filled = np.flatnonzero(sizes > max(1.0, clusters.SEVERAL * noise))
        return filled if filled.size else np.array([int(np.argmax(sizes))])

    def mechanism(self, *, n_features: int, n_classes: int) -> NoisyLloyd:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        at = None if isinstance(self.start, str) else np.asarray(self.start, dtype=np.float64)
        check.integer(n_iterations=self.n_iterations, least=1)
        longest = math.sqrt(n_features) if self.longest is None else self.longest
        check.positive(longest=longest)
        fixed = partial(
            NoisyLloyd,
            n_features=n_features,
            n_classes=n_classes,
            n_clusters=1 if at is None and self.start == "classes" else self.n_clusters,
            n_iterations=self.n_iterations,
            longest=longest,
            kernel=self.kernel,
            n_components=self.n_components,
            gamma=4 / longest**2 if self.gamma is None else self.gamma,
            seed=self.random_state,
            start=self.start if at is None else "public",
            centres=() if at is None else tuple(map(tuple, at.reshape(len(at), -1).tolist())),
        )
        start, rows = _OF_START * (at is None), _OF_ROWS * (self.kernel == "rbf")
        iterations = (1 - start - rows - _OF_NORMS) / self.n_iterations
        norms = _OF_NORMS / (1 if at is not None or self.kernel == "rbf" else 2)

        def made(noise: float) -> NoisyLloyd:
            return fixed(
                sigma=noise / math.sqrt(iterations),
                sigma_start=noise / math.sqrt(start or 1.0),
                sigma_norms=noise / math.sqrt(norms),
                sigma_rows=noise / math.sqrt(rows or 1.0),
            )

        return made(fitting.least_noise(made, epsilon=self.epsilon, delta=self.delta))
