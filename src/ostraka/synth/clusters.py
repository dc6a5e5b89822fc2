"""PrivateKMeans: clusters of private rows by noisy sums, on rows or on random features, which generate rows.

:class:`NoisyLloyd` is all of its iterations as one mechanism.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from ostraka.core import check
from ostraka.core.mechanisms import sums
from ostraka.core.private import Adjacency
from ostraka.data.nearest import nearest
from ostraka.synth import fitting
from ostraka.synth.fitting import bounded

if TYPE_CHECKING:
    from ostraka.core.curve import Curve
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.private import Private

_BLOCK = 4096  # rows
_BITS = 22  # of a number of a row, in units of the row's largest
SEVERAL = 3.0  # standard deviations of the noise of a size; smaller clusters count as empty
_FLOAT32 = 2**24  # whole numbers up to here are exact in single precision, and so are their sums
BINS = 100  # of the histogram of lengths
_KEPT = 0.75  # share of rows that the clip leaves as they are
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
        released = fitting.charged(
            self, mechanism, private, of=(rows, codes), groups=groups, ledger=ledger, rng=rng
        )
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
        check_is_fitted(self, "result_")
        rows, mechanism = fitting.numbers(X), self.mechanism_
        if rows.shape[1] != mechanism.n_features:
            raise ValueError(f"X must have {mechanism.n_features} columns, as in fit, got {rows.shape[1]}")
        if mechanism.kernel == "rbf":
            rows = random_features(
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
        check_is_fitted(self, "result_")
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
        noise = size_noise(sigma, mechanism.n_features)
        filled = np.flatnonzero(sizes > max(1.0, SEVERAL * noise))
        return filled if filled.size else np.array([int(np.argmax(sizes))])

    def mechanism(self, *, n_features: int, n_classes: int) -> NoisyLloyd:
        """The mechanism that :meth:`fit` releases, with the least noise that keeps (epsilon, delta)."""
        at = None if isinstance(self.start, str) else np.asarray(self.start, dtype=np.float64)
        check.integer(n_iterations=self.n_iterations, least=1)
        check.integer(random_state=self.random_state)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyLloyd:
    """k-means on private rows: noisy sums and sizes of clusters, over several iterations.

    Parameters
    ----------
    n_features, n_classes, n_clusters, n_iterations : int >= 1
        Columns of a row; classes of its label; clusters of each class; iterations. Public.
    sigma : float
        Noise of the sums of one iteration, in lengths of a row. Public.
    sigma_start : float
        Noise of the means that the start is made from. Public; without effect where the start is public.
    sigma_norms : float
        Noise of the histograms of lengths that the clip is read from. Public.
    sigma_rows : float
        Noise of the sums of rows of the final clusters of ``"rbf"``. Public.
    longest : float > 0
        End of the histogram of lengths. Public.
    kernel : {"plain", "rbf"}
    n_components : int, even
        Of ``"rbf"``: number of random features. Public.
    gamma : float > 0
        Of ``"rbf"``: exp(-gamma distance²). Public.
    seed : int
        Of the random features and of the splits. Public.
    start : {"split", "classes", "public"}
        ``"split"``: the noisy mean (of each class) is split at random. ``"classes"``: clusters are over all
        rows, one for each class, and start at its noisy mean. ``"public"``: at ``centres``.
    centres : tuple of tuples of float
        Public rows to start from, ``n_classes * n_clusters`` of them.

    Guarantees
    ----------
    ``curve()`` is the sum of the curves of all sums; their noise is fixed in advance, so that adaptive
    composition holds. One row is in one class and in one cluster, and so moves one line of each table of
    sums and sizes, by a vector whose length is at most 1 after the clip. Clips, starts and clusters are
    computed from what was released before.
    """

    n_features: int
    n_clusters: int
    n_iterations: int
    sigma: float
    sigma_start: float = 100.0
    sigma_norms: float = 100.0
    sigma_rows: float = 100.0
    longest: float = 1.0
    n_classes: int = 1
    kernel: str = "plain"
    n_components: int = 200
    gamma: float = 1.0
    seed: int = 0
    start: str = "split"
    centres: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("n_features", "n_clusters", "n_iterations", "n_classes"):
            check.integer(least=1, **{name: getattr(self, name)})
        check.integer(seed=self.seed)
        check.integer(n_components=self.n_components, least=2)
        width = {"columns": self.n_features}
        if self.kernel == "rbf":
            check.room(n_components=self.n_components, **width)
            width = {"n_components": self.n_components}
        check.room(n_clusters=self.n_clusters, classes=self.n_classes, **width)
        sums.check_sigma(sigma=self.sigma, sigma_start=self.sigma_start, sigma_rows=self.sigma_rows)
        sums.check_sigma(sigma_norms=self.sigma_norms)
        check.positive(longest=self.longest, gamma=self.gamma)
        check.one_of(kernel=self.kernel, allowed=("plain", "rbf"))
        check.one_of(start=self.start, allowed=("split", "classes", "public"))
        if self.n_components % 2:
            raise ValueError(f"n_components must be even, two or more, got {self.n_components!r}")
        if self.start == "classes" and self.n_clusters != 1:
            raise ValueError(f"n_clusters must be 1 a class with start='classes', got {self.n_clusters}")
        shape = np.shape(self.centres)
        if self.start == "public" and shape != (self.n_classes * self.n_clusters, self.n_features):
            wanted = f"{self.n_classes * self.n_clusters} public rows of {self.n_features} columns"
            raise ValueError(f"centres must be {wanted}, got shape {shape}")

    @property
    def promise(self) -> Adjacency:
        """One row, or the rows of one person, whose shares add up to 1 at most."""
        return Adjacency(moves="row", relation="add-or-remove")

    def curve(self) -> Curve:
        """Cost of all of it."""
        total = self.n_iterations * sums.sums_curve(self.sigma)
        if self.start != "public":
            total += sums.sums_curve(self.sigma_start)
        if self.kernel == "rbf":
            return total + sums.sums_curve(self.sigma_rows) + sums.sums_curve(self.sigma_norms)
        return total + (1 if self.start == "public" else 2) * sums.sums_curve(self.sigma_norms)

    def uses(self, private: Private) -> int:
        """One use for all of it."""
        self._opened(private)
        return 1

    def release(self, private: Private, *, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Named arrays: ``centres`` where rows are assigned, ``rows`` of clusters, ``sizes``, ``classes``.

        ``centres`` are in the space of ``kernel``; ``rows`` are the means of clusters as rows.
        """
        X, labels, shares = self._opened(private)
        of_class = self._classes()
        if self.kernel == "rbf":
            # random features have length 1: nothing is clipped; rows are summed at the end
            features = self._features(X)
            if self.start == "public":
                start = self._features(np.array(self.centres))
            else:
                means = Summed(features, shares, sigma=self.sigma_start)
                start = self._start(means.release(labels, self.n_classes, rng=rng).means())
            summed = Summed(features, shares, sigma=self.sigma)
            centres = self._iterated(summed, start.astype(np.float64), labels, rng).means()
            clip = self._clip(X, shares, rng)
            member = self._assigned(features, centres, labels)
            last = Summed(X / clip, shares, sigma=self.sigma_rows).release(member, len(centres), rng=rng)
            return {
                "centres": centres,
                "rows": last.means() * clip,
                "sizes": last.sizes,
                "classes": of_class,
            }
        # rows about the mean of their class, clipped; the clip is read from a noisy histogram
        middle = np.zeros((self.n_classes, self.n_features))
        if self.start != "public":
            clip = self._clip(X, shares, rng)
            means = Summed(X / clip, shares, sigma=self.sigma_start)
            middle = means.release(labels, self.n_classes, rng=rng).means() * clip
        joint = self.start == "classes"
        offset = np.zeros_like(middle) if joint else middle
        about = X - offset[labels]
        clip = self._clip(about, shares, rng)
        start = self._start((middle if joint else np.zeros_like(middle)) / clip)
        if self.start == "public":
            start = np.array(self.centres) / clip
        final = self._iterated(Summed(about / clip, shares, sigma=self.sigma), start, labels, rng)
        out = final.means() * clip + (0 if joint else offset[of_class])
        return {"centres": out, "rows": out, "sizes": final.sizes, "classes": of_class}

    def release_and_assign(
        self, private: Private, *, rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """The release, and the private rows with the cluster of each, for a mechanism that goes on."""
        released, table = self.release(private, rng=rng), private.open()
        rows = bounded(table[:, :-2])
        return released, rows, self.assigned(rows, released["centres"], table[:, -2].astype(np.int64))

    def assigned(self, X: np.ndarray, centres: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The cluster of each row, from released ``centres``."""
        if self.kernel == "rbf":
            X = self._features(X)
        order = np.argsort(labels, kind="stable")
        clusters = np.empty(len(X), dtype=np.int64)
        clusters[order] = self._assigned(X[order], centres, labels[order])
        return clusters

    def _features(self, X: np.ndarray) -> np.ndarray:
        return random_features(X, n_components=self.n_components, gamma=self.gamma, seed=self.seed)

    def _opened(self, private: Private) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, labels and shares, in the order of labels."""
        rows = sums.rows_of(private, self.n_features + 2, sigma=min(self.sigma, self.sigma_start, 1.0))
        labels, shares = rows[:, -2].astype(np.int64), rows[:, -1]
        if not ((labels >= 0) & (labels < self.n_classes) & (shares >= 0) & (shares <= 1)).all():
            raise ValueError(f"rows must end with a class from 0 to {self.n_classes - 1} and a share of 1")
        order = np.argsort(labels, kind="stable") if self.n_classes > 1 else slice(None)
        return bounded(rows[order, :-2]), labels[order], shares[order]

    def _clip(self, rows: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> float:
        return noisy_clip(rows, shares, longest=self.longest, sigma=self.sigma_norms, rng=rng)

    def owners(self) -> np.ndarray:
        """The class of each cluster; without labels, or where clusters are over all rows, its own number."""
        if self.n_classes > 1 and self.start != "classes":
            return np.repeat(np.arange(self.n_classes), self.n_clusters)
        return np.arange(self.n_classes * self.n_clusters)

    def _classes(self) -> np.ndarray:
        """The class of each cluster; 0 where clusters are over all rows."""
        if self.start == "classes":
            return np.zeros(self.n_classes, dtype=np.int64)
        return np.repeat(np.arange(self.n_classes), self.n_clusters)

    def _start(self, means: np.ndarray) -> np.ndarray:
        """Centres to begin with, from the means of classes: the same, or split by random directions."""
        if self.start == "classes":
            return means
        shape = self.n_classes * self.n_clusters, means.shape[1]
        directions = np.random.default_rng(self.seed).normal(size=shape)
        steps = 0.1 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return np.asarray(np.repeat(means, self.n_clusters, axis=0) + steps)

    def _assigned(self, rows: np.ndarray, centres: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The nearest centre of each row, among those of its class."""
        if self.start == "classes":
            return nearest(rows, [centres])[:, 0]
        ends = np.searchsorted(labels, np.arange(self.n_classes + 1))
        clusters = np.empty(len(rows), dtype=np.int64)
        for k, (begin, end) in enumerate(pairwise(ends)):
            part = slice(k * self.n_clusters, (k + 1) * self.n_clusters)
            clusters[begin:end] = part.start + nearest(rows[begin:end], [centres[part]])[:, 0]
        return clusters

    def _iterated(
        self, rows: Summed, centres: np.ndarray, labels: np.ndarray, rng: np.random.Generator
    ) -> Found:
        """Lloyd's iteration; clusters without rows start anew beside the largest of their class."""
        of_class, places = self._classes(), rows.places()
        for turn in range(self.n_iterations):
            member = self._assigned(places, rows.scaled(centres), labels)
            noisy = rows.release(member, len(centres), rng=rng)
            last = turn == self.n_iterations - 1
            centres = noisy.means(former=centres)
            if not last:
                centres = refilled(centres, noisy, of_class, seed=self.seed + turn)
        return noisy._replace(former=centres)


class Summed:
    """Private rows on the grid of their sums, each with its share of a size beside it."""

    def __init__(self, rows: np.ndarray, shares: np.ndarray, *, sigma: float) -> None:
        self.weight = size_weight(rows.shape[1])
        self.stretch = math.hypot(1.0, self.weight)
        self.sigma = sigma
        longest = sums.longest(sigma)
        narrow = longest * _BLOCK < _FLOAT32
        self.grid = np.empty((len(rows), rows.shape[1] + 1), dtype=np.float32 if narrow else np.float64)
        self._shares = np.where(shares > 0, shares, 1.0).astype(self.grid.dtype)
        for begin in range(0, len(rows), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            table = np.empty((len(shares[block]), self.grid.shape[1]))
            table[:, :-1], share = rows[block], shares[block] / self.stretch
            lengths = np.sqrt(np.einsum("ij,ij->i", table[:, :-1], table[:, :-1]))
            table[:, :-1] *= (share / np.maximum(1.0, lengths))[:, None]
            table[:, -1] = self.weight * share
            self.grid[block] = sums.on_grid(table, sigma=sigma, shares=shares[block])

    def places(self) -> np.ndarray:
        """Where each row lies, whatever its share is, in the units of the grid."""
        rows = self.grid[:, :-1]
        return rows if (self._shares == 1).all() else rows / self._shares[:, None]

    def scaled(self, centres: np.ndarray) -> np.ndarray:
        """Centres in the units of the grid."""
        return np.asarray(centres * (sums.units(self.sigma) / self.stretch))

    def release(self, member: np.ndarray, n_clusters: int, *, rng: np.random.Generator) -> Found:
        """Noisy sums and sizes of the clusters that rows are members of."""
        totals = np.zeros((n_clusters, self.grid.shape[1]))
        for begin in range(0, len(self.grid), _BLOCK):  # sums of a block are exact whole numbers
            block = slice(begin, begin + _BLOCK)
            one_hot = member[block] == np.arange(n_clusters)[:, None]
            totals += one_hot.astype(self.grid.dtype) @ self.grid[block]
        noisy = sums.with_noise(totals, sigma=self.sigma, rng=rng) * self.stretch
        return Found(
            noisy[:, :-1],
            noisy[:, -1] / self.weight,
            self.sigma * self.stretch,
            size_noise(self.sigma, self.grid.shape[1] - 1),
        )


class Found(NamedTuple):
    """Noisy sums and sizes of clusters. Public."""

    sums: np.ndarray  # (n_clusters, width)
    sizes: np.ndarray  # (n_clusters,)
    sigma: float  # noise of a number of sums
    doubt: float  # noise of a size
    former: np.ndarray | None = None  # centres to keep for clusters that seem empty

    @property
    def empty(self) -> np.ndarray:
        """Whether each cluster is no larger than noise."""
        return self.sizes < max(SEVERAL * self.doubt, 1.0)

    def means(self, former: np.ndarray | None = None) -> np.ndarray:
        """Means of clusters; those that seem empty keep their former centre, or get 0."""
        former = self.former if former is None else former
        means = denoised(self.sums, self.sigma) / np.maximum(self.sizes, 1.0)[:, None]
        means[self.empty] = 0.0 if former is None else former[self.empty]
        return np.asarray(means)


def random_features(X: np.ndarray, *, n_components: int, gamma: float, seed: int) -> np.ndarray:
    """[cos, sin] of random projections, of length exactly 1; float32 of shape (n_rows, n_components).

    Inner products estimate exp(-gamma distance²): Rahimi and Recht 2007, with pairs of one phase each. Rows
    are whole numbers of 22 bits in units of their own, and so are directions: sums of their products are
    exact in every order, so that the features of a row do not depend on other rows.
    """
    n_pairs = n_components // 2
    directions = np.random.default_rng(seed).normal(0.0, math.sqrt(2 * gamma), (X.shape[1], n_pairs))
    bits = 53 - _BITS - math.ceil(math.log2(max(2, X.shape[1])))
    unit = np.ldexp(1.0, np.frexp(np.abs(directions).max())[1] - bits)
    directions = np.rint(directions / unit)
    features = np.empty((len(X), n_components), dtype=np.float32)
    for begin in range(0, len(X), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        rows = X[block].astype(np.float32, copy=False)
        largest = np.maximum(rows.max(axis=1, keepdims=True), -rows.min(axis=1, keepdims=True))
        scale = np.ldexp(np.float32(1.0), np.maximum(np.frexp(largest)[1] - _BITS, -100))
        steps = np.rint(rows / scale).astype(np.float64)  # powers of two: exact in single precision
        angles = ((steps @ directions) * (scale * unit)).astype(np.float32)
        np.cos(angles, out=features[block, :n_pairs])
        np.sin(angles, out=features[block, n_pairs:])
    features /= np.float32(math.sqrt(n_pairs))
    return features


def noisy_clip(
    rows: np.ndarray, shares: np.ndarray, *, longest: float, sigma: float, rng: np.random.Generator
) -> float:
    """A length that about three quarters of the rows keep, from a noisy histogram (Algorithm 6)."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    place = np.minimum(lengths * (BINS / longest), BINS - 1).astype(np.int64)
    units = sums.on_grid(shares[:, None], sigma=sigma, shares=shares)[:, 0]
    totals = np.bincount(place, weights=units, minlength=BINS)
    noisy = sums.with_noise(totals, sigma=sigma, rng=rng)
    below = np.cumsum(noisy)
    wanted = _KEPT * max(float(noisy.sum()), 0.0)
    return float((int(np.argmax(below >= wanted)) + 1) * longest / BINS)


def refilled(centres: np.ndarray, noisy: Found, of_class: np.ndarray, *, seed: int) -> np.ndarray:
    """Each cluster that seems empty starts anew, close to the largest of its class."""
    rng = np.random.default_rng(seed)
    centres, sizes = centres.copy(), noisy.sizes.copy()
    for j in np.flatnonzero(noisy.empty):
        members = np.flatnonzero(of_class == of_class[j])
        largest = members[sizes[members].argmax()]
        step = rng.normal(size=centres.shape[1])
        centres[j] = centres[largest] + 0.05 * step / np.linalg.norm(step)
        sizes[largest] /= 2
    return centres


def denoised(table: np.ndarray, sigma: float) -> np.ndarray:
    """The table with its singular values shrunk by the rule for noise of this size.

    Source: Gavish and Donoho 2017, arXiv:1405.7511, equation 7 (Frobenius loss).
    """
    short, long = sorted(table.shape)
    if short < 3:
        return table
    left_vectors, size, right_vectors = np.linalg.svd(table, full_matrices=False)
    scaled, ratio = size / (sigma * math.sqrt(long)), short / long
    inside = np.maximum((scaled**2 - ratio - 1) ** 2 - 4 * ratio, 0.0)
    shrunk = np.where(scaled > 1 + math.sqrt(ratio), np.sqrt(inside) / np.maximum(scaled, 1e-12), 0.0)
    return np.asarray((left_vectors * (shrunk * sigma * math.sqrt(long))) @ right_vectors)


def size_weight(width: int) -> float:
    """Weight of a row's size beside its columns in a noisy sum; the best where all columns are alike."""
    return float(width**-0.25)


def size_noise(sigma: float, width: int) -> float:
    """Standard deviation of a noisy size."""
    return sigma * math.hypot(1.0, size_weight(width)) / size_weight(width)
