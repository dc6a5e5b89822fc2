"""Membership inference: whether a row was in a model's training data, and whether its label is memorised.

Reference models, trained with and without each row, say how sure a model is of it in either case. Six
statistics compare the target with them. None reads which rows were in the target, and designs that give that
away are refused. Canaries are rows with a wrong label: a model that is sure of it has memorised it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import scipy.special
import scipy.stats

from ostraka.core import check, files
from ostraka.core.check import TrainingDiverged
from ostraka.core.scores import Scores

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ostraka.networks import TorchClassifier

_WITHOUT_ROWS = ("lira", "lira-fixed", "rmia")  # which have a form for rows that no model has
_FALSE_ALARM = 1e-9  # probability that coins are taken for a design
_NEAREST = 1e-12  # confidences are at least so far from 0 and 1
_OFFLINE_SLOPE = 0.3  # Zarifzadeh et al. 2024, section 3.3: P(in) from P(out) where no model has the row
_PER_BIN, _MOST_BINS = 50, 20  # rows of similar difficulty
_BIN_PRIOR = 10.0  # rows' worth of the overall figure in the figure of each bin
RATIO_WEIGHT, RATIO_MODELS = 4.0, 8.0  # of RMIA's ratio; chosen by "bench membership_weights"
_SHARES = tuple(1 / (1 + 2.0 ** np.arange(-5, 6)))  # of the variance of models which have the row
_FREEDOMS = (3.0, 4.0, 6.0, 10.0, 30.0, 1e3)  # of t densities, where no row has two models on a side
_FLOOR = 1e-6  # smallest variance, as a share of the pooled one
_AT_ONCE = 1024  # rows
_SAVED_TOGETHER = 8  # networks: what an interrupted run loses at most
_SUMS_TO_ONE = 1e-2  # half precision over a hundred classes


class ReferenceModels:
    """Reference models on random halves of the rows: a model's confidence in a row with and without it.

    Parameters
    ----------
    estimator : scikit-learn classifier with ``predict_proba``
        Copied for each model and trained as the target was. A ``random_state`` is drawn for each copy.
        A :class:`~ostraka.networks.TorchClassifier` is trained in stacks.
    n_models : int >= 2
        How many references.
    random_state : int, numpy.random.Generator or None
        Draws which rows are in which reference, and seeds training.
    checkpoint : path, optional
        A folder of finished references, from which an interrupted ``fit`` continues; it needs an integer
        ``random_state``. As private as the rows.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"references"``.

    Attributes
    ----------
    included : bool array, shape (n_models, n_rows)
        Each row is in each reference by an independent fair coin. The coins of a row which came out all
        alike are tossed again, so that each row is in one reference and out of one. No coin knows the target.
    confidences_ : float64 array, shape (n_models, n_rows)
        Probability of each row's true label by each reference. Private, as are the scores.
    seeds_ : int64 array, shape (n_models,)
        The ``random_state`` that each copy got.

    Raises
    ------
    ValueError
        Fewer than two references, a classifier without ``predict_proba``, a class missing from a reference.

    Guarantees
    ----------
    None: a weak attack proves nothing. Where memberships of the target are independent coins that change
    nothing, members score above others as often as not, with every method and any number of references.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 5)), rng.integers(0, 2, size=400)  # nothing to learn but by heart
    >>> forest = RandomForestClassifier(10, max_depth=6, random_state=0)
    >>> references = ReferenceModels(forest, n_models=8, random_state=0).fit(X, y)
    >>> included = rng.random(400) < 0.5
    >>> target = ReferenceModels.true_label_confidences(forest.fit(X[included], y[included]), X, y)
    >>> references.scores(target, included).auc() > 0.6
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        n_models: int = 32,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_models = n_models
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Draw the coins and train the references.

        Parameters
        ----------
        X : array or data frame of n_rows rows
            Private. All rows that the target may have seen.
        y : array, shape (n_rows,)
            Private. Their labels.

        Returns
        -------
        ReferenceModels
            This one, with ``included`` and ``confidences_``. The models are not kept.
        """
        labels = np.asarray(y)
        rows = np.asarray(X)
        if labels.ndim != 1 or rows.ndim < 2 or len(rows) != len(labels):
            raise ValueError(f"X must have a row for each label in y, got {rows.shape} and {labels.shape}")
        check.integer(n_models=self.n_models, least=2)
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                f"checkpoint needs an integer random_state, got {self.random_state!r}: other coins would be "
                "tossed the next time"
            )
        rng = np.random.default_rng(self.random_state)
        included = draw_coins(rng, self.n_models, len(labels))
        check_classes(labels, included)
        self.seeds_ = seeds = rng.integers(2**31, size=self.n_models)
        parts = rows, labels, included, seeds, self.estimator
        saved = None if self.checkpoint is None else SavedReferences(self.checkpoint, *parts)
        design: dict[str, Any] = {"included": included, "seeds": seeds}
        confidences = train_references(
            self.estimator, X, labels, **design, saved=saved, progress=self.progress
        )
        self.confidences_, self.included = confidences, included
        self._copies: np.ndarray | None = number_copies(rows, labels)
        return self

    @classmethod
    def from_confidences(cls, confidences: Any, included: Any) -> Self:
        """Take references which were trained elsewhere.

        Parameters
        ----------
        confidences : array, shape (n_models, n_rows), in [0, 1]
            Private. Probability of each row's true label by each model.
        included : bool array, shape (n_models, n_rows)
            Which rows were in which reference. Duplicated rows cannot be seen here: :meth:`fit` sees them.

        Returns
        -------
        ReferenceModels

        Raises
        ------
        ValueError
            Other shapes, fewer than two models, confidences that are no numbers from 0 to 1.

        Examples
        --------
        >>> saved = ReferenceModels.from_confidences([[0.9, 0.2], [0.4, 0.7]], [[True, False], [False, True]])
        >>> saved.scores([0.8, 0.3], [True, False], method="rmia").tpr(fpr=0.0)
        1.0
        """
        design = np.asarray(included)
        values = read_confidences(confidences, name="confidences", shape=design.shape)
        if design.dtype != bool or design.ndim != 2 or len(design) < 2:
            raise ValueError(
                "included must be bool of shape (n_models, n_rows) with two models or more, "
                f"got {design.dtype} of {design.shape}"
            )
        references = cls(None, n_models=len(design))
        references.confidences_, references.included, references._copies = values, design.copy(), None
        return references

    @staticmethod
    def true_label_confidences(model: Any, X: Any, y: Any) -> np.ndarray:
        """The probability that a fitted classifier gives each row's true label.

        Parameters
        ----------
        model : classifier with ``predict_proba`` and ``classes_``
        X : array or data frame of n_rows rows
            Private.
        y : array, shape (n_rows,)
            Private. Labels, all among ``model.classes_``.

        Returns
        -------
        float64 array, shape (n_rows,)

        Raises
        ------
        ValueError
            A classifier without ``predict_proba``, a label that it never saw.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> model = DummyClassifier(strategy="prior").fit(np.zeros((4, 1)), ["a", "b", "b", "b"])
        >>> ReferenceModels.true_label_confidences(model, np.zeros((2, 1)), ["a", "b"])
        array([0.25, 0.75])
        """
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"estimator must have predict_proba, which {type(model).__name__} has not")
        labels, classes = np.asarray(y), np.asarray(model.classes_)
        column = np.searchsorted(classes, labels).clip(0, len(classes) - 1)
        unknown = int((classes[column] != labels).sum())
        if unknown:
            raise ValueError(f"{unknown} rows of y have a label that the model never saw")
        chances = np.asarray(model.predict_proba(X), dtype=np.float64)[np.arange(len(labels)), column]
        return read_confidences(chances, name="confidences", shape=labels.shape)

    def scores(
        self, target_confidences: Any, target_included: Any, *, method: str = "hierarchical"
    ) -> Scores:
        """Score the rows of one target, for an audit or for its rates.

        Parameters
        ----------
        target_confidences : array, shape (n_rows,), in [0, 1]
            Private. What the target says of each row's true label.
        target_included : bool array, shape (n_rows,)
            Private. Which rows were in the target, by coins that are independent of the references.
        method : {"hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss"}
            Choose it before the rates were seen. See :meth:`statistics`.

        Returns
        -------
        Scores
            Larger: more like a member.

        Raises
        ------
        ValueError
            As :meth:`statistics`; no row in the target or none out of it; memberships that depend on those of
            the references (a balanced design); rows that are in the target and out of it at once.
        """
        self._check_fitted()
        member = read_members(target_included, name="target_included", n_rows=self.included.shape[1])
        check_independent(self.included, member)
        check_duplicates(self._copies, member)
        statistics = self.statistics(target_confidences, method=method)
        return Scores.of(members=statistics[member], others=statistics[~member])

    def statistics(self, target_confidences: Any, *, method: str = "hierarchical") -> np.ndarray:
        """Compute one number for each row, larger for rows which seem to be in the target.

        Parameters
        ----------
        target_confidences : array, shape (n_rows,), in [0, 1]
            Private. What the target says of each row's true label.
        method : {"hierarchical", "lira", "lira-fixed", "rmia", "student-t", "loss"}

        Returns
        -------
        float64 array, shape (n_rows,)
            A log ratio of densities, for "hierarchical" with another log ratio added; for "rmia" a share of
            rows; for "loss" the logit of the confidence.

        Raises
        ------
        ValueError
            A row that all references have; for "hierarchical" and "student-t" also one that none has. A
            target that is one of the references, confidences that are no numbers from 0 to 1.

        Guarantees
        ----------
        Which rows were in the target is not read.
        Source: "lira" Carlini et al. 2022, arXiv:2112.03570, Algorithms 1 and 2; "rmia" Zarifzadeh et al.
        2024, arXiv:2312.03262, with all rows as its population; "student-t" the posterior predictive law of a
        normal-inverse-gamma prior, as in arXiv:2603.11799; "hierarchical" docs/membership.md.
        """
        check.one_of(method=method, allowed=_METHODS)
        self._check_fitted()
        target = read_confidences(
            target_confidences, name="target_confidences", shape=self.included.shape[1:]
        )
        if np.ptp(target):
            copies = (self.confidences_ == target).all(axis=1)
            if copies.any():
                raise ValueError(
                    f"the target is reference {int(copies.argmax())}: leave it out of the references"
                )
        if method == "loss":
            return logit(target)
        check_sides(self.included, method=method)
        if method == "rmia":
            values = clip(self.confidences_)
            return rmia(target, Side.of(values, self.included), Side.of(values, ~self.included))
        if method == "hierarchical":
            return hierarchical(target, self.confidences_, self.included)
        values = logit(self.confidences_)
        sides = (Side.of(values, self.included), Side.of(values, ~self.included))
        return STATISTICS[method](logit(target), sides)

    def _check_fitted(self) -> None:
        if not hasattr(self, "included"):
            raise ValueError("ReferenceModels must be fitted first: call fit(X, y)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Canaries:
    """Rows whose label was replaced by a wrong one, and wrong ones that might as well have been chosen.

    Make them with :meth:`draw`: only then is the game fair. The decoys tell what the true labels
    are, so these arrays are the owner's, and do not print.

    Attributes
    ----------
    positions : int64 array, shape (n_canaries,)
        The canaries' places among all rows.
    labels : int64 array, shape (n_canaries,)
        The wrong label that each is trained with.
    decoys : int64 array, shape (n_canaries, n_decoys)
        Classes that were as likely to be that label.
    n_classes : int

    Raises
    ------
    ValueError
        Arrays of other shapes, a row twice, something that is no class, a class twice for one row.

    Examples
    --------
    >>> saved = Canaries(positions=[7, 2], labels=[0, 1], decoys=[[2], [0]], n_classes=3)
    >>> told = saved.scores([[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]])
    >>> told.values, told.members, told.others
    (array([0. , 0.9]), array([1, 1]), array([2, 0]))
    """

    positions: np.ndarray
    labels: np.ndarray
    decoys: np.ndarray
    n_classes: int

    def __post_init__(self) -> None:
        check.integer(n_classes=self.n_classes, least=3)
        for name, dimensions in (("positions", 1), ("labels", 1), ("decoys", 2)):
            array = _integers(getattr(self, name), name=name, dimensions=dimensions)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        n = self.positions.size
        if not n or self.labels.size != n or self.decoys.shape[0] != n or not self.decoys.shape[1]:
            raise ValueError(
                "positions, labels and decoys must have one row a canary, got shapes "
                f"{self.positions.shape}, {self.labels.shape} and {self.decoys.shape}"
            )
        if np.unique(self.positions).size != n or self.positions.min() < 0:
            raise ValueError(f"positions must be {n} different rows, counted from 0")
        candidates = np.sort(self._candidates(), axis=1)
        if candidates.min() < 0 or candidates.max() >= self.n_classes:
            raise ValueError(f"labels and decoys must be classes from 0 to {self.n_classes - 1}")
        if (np.diff(candidates, axis=1) == 0).any():
            raise ValueError("the label and the decoys of a canary must be different classes")

    @classmethod
    def draw(
        cls, labels: Any, *, n_classes: int, n: int, rng: np.random.Generator, n_decoys: int | None = None
    ) -> Self:
        """Choose rows and wrong labels for them, all at random, and decoys for each.

        Train with ``Canaries.draw(labels, …).plant(labels)``, ask the model for its probabilities on those
        rows, and hand :meth:`Canaries.scores` to :func:`ostraka.audit.one_run_lower_bound`.

        Parameters
        ----------
        labels : integer array, shape (n_rows,)
            The true labels. An audit's own, so not private.
        n_classes : int >= 3
            With two classes there is one wrong label, and nothing to guess.
        n : int
            How many canaries.
        rng : numpy.random.Generator
            May be public once the model is trained; the training must not use it.
        n_decoys : int, optional
            1 is the game as the paper tells it: the label y′ against one other, y″. None: all classes but
            the label and the true one, which shows more, and is what the authors' code counts.

        Returns
        -------
        Canaries

        Raises
        ------
        ValueError
            Labels that are no classes, more canaries than rows, more decoys than there are wrong classes.

        Guarantees
        ----------
        A canary's label is uniform among the wrong classes, and its decoys are a uniform choice of the
        others. So label and decoys are exchangeable: to somebody who knows all features, all true labels,
        which rows are canaries, the *set* of candidates of each, and even the labels of all other canaries,
        each candidate is as likely as another to be the label, but for what the training gives away.
        Source: Malek et al. 2021, arXiv:2106.03408, section 7 and appendix B; docs/record/memorisation.md.

        Examples
        --------
        >>> labels = np.arange(1000) % 10
        >>> planted = Canaries.draw(labels, n_classes=10, n=50, rng=np.random.default_rng(0))
        >>> planted
        <Canaries: 50, of 10 classes, 8 decoys each>
        >>> int((planted.plant(labels) != labels).sum())
        50
        >>> learned = np.eye(10)[planted.labels]  # a model that knows its training labels by heart
        >>> planted.scores(learned).tpr(fpr=0.0)
        1.0
        """
        check.integer(n_classes=n_classes, least=3)
        check.integer(n=n, least=1)
        true = _integers(labels, name="labels", dimensions=1)
        if true.size and (true.min() < 0 or true.max() >= n_classes):
            raise ValueError(f"labels must be from 0 to {n_classes - 1}: some of {true.size} are not")
        if n > true.size:
            raise ValueError(f"n must be at most the number of rows, {true.size}, got {n!r}")
        n_decoys = n_classes - 2 if n_decoys is None else n_decoys
        check.integer(n_decoys=n_decoys, least=1)
        if n_decoys > n_classes - 2:
            raise ValueError(f"n_decoys must be at most {n_classes - 2}, n_classes - 2, got {n_decoys!r}")
        positions = rng.choice(true.size, size=n, replace=False)
        steps = rng.permuted(np.tile(np.arange(1, n_classes), (n, 1)), axis=1)  # from the true class on
        wrong = (true[positions, None] + steps) % n_classes
        return cls(
            positions=positions,
            labels=wrong[:, 0],
            decoys=wrong[:, 1 : n_decoys + 1],
            n_classes=int(n_classes),
        )

    def plant(self, labels: Any) -> np.ndarray:
        """A copy of all rows' ``labels`` in which the canaries have theirs: what to train with.

        Raises
        ------
        ValueError
            Labels that are no integers of shape (n_rows,), or too few.
        """
        planted = _integers(labels, name="labels", dimensions=1)
        if self.positions.max() >= planted.size:
            raise ValueError(
                f"labels must be those of all rows, got {planted.size}: a canary is further down"
            )
        planted[self.positions] = self.labels
        return planted

    def scores(self, probabilities: Any) -> Scores:
        """Scores of each canary's own label and of its decoys, from the trained model's probabilities.

        For each canary the adversary points at the candidate that the model holds likeliest, with its
        probability as the score. Every other candidate scores 0, and all do where the likeliest are tied.

        Parameters
        ----------
        probabilities : array of shape (n_canaries, n_classes)
            Of each class, for the features of the rows at ``positions``, by the trained model, or
            posteriors of whatever else was released.

        Returns
        -------
        Scores
            One member a canary, its label; and ``n_decoys`` others.

        Raises
        ------
        ValueError
            Another shape, or rows that are no probabilities, such as logits.
        """
        shape = (self.positions.size, self.n_classes)
        array = np.asarray(probabilities)
        if array.shape != shape or array.dtype.kind not in "fiu":
            raise ValueError(f"probabilities must be numbers of shape {shape}, got {array.shape}")
        array = array.astype(np.float64)
        inside = np.isfinite(array).all() and (array >= 0).all()
        if not inside or (np.abs(array.sum(axis=1) - 1) > _SUMS_TO_ONE).any():
            raise ValueError(
                "probabilities must be >= 0 and sum to 1 in each row: logits need a softmax first"
            )
        chances = np.take_along_axis(array, self._candidates(), axis=1)
        top = chances.max(axis=1, keepdims=True)
        pointed = (chances == top) & ((chances == top).sum(axis=1, keepdims=True) == 1)
        scored = np.where(pointed, chances, 0.0)
        return Scores.of(members=scored[:, 0], others=scored[:, 1:])

    def _candidates(self) -> np.ndarray:
        """The label first, then the decoys."""
        return np.column_stack([self.labels, self.decoys])

    def __repr__(self) -> str:
        n, n_decoys = self.decoys.shape
        return f"<Canaries: {n}, of {self.n_classes} classes, {n_decoys} decoys each>"


@dataclass(frozen=True, slots=True)
class Side:
    """Logits of the models which have a row, or of those which have not: a number for each row."""

    n: np.ndarray
    mean: np.ndarray  # 0 where n is 0
    squares: np.ndarray  # around the mean

    @classmethod
    def of(cls, values: np.ndarray, chosen: np.ndarray) -> Side:
        """Moments over axis 0 where ``chosen``."""
        n = chosen.sum(axis=0).astype(np.float64)
        mean = np.where(chosen, values, 0.0).sum(axis=0) / np.maximum(n, 1)
        squares = (np.where(chosen, values - mean, 0.0) ** 2).sum(axis=0)
        return cls(n, mean, squares)

    @property
    def spare(self) -> np.ndarray:
        """Degrees of freedom of each row's variance."""
        return np.asarray(np.maximum(self.n - 1, 0))


def clip(confidences: np.ndarray) -> np.ndarray:
    """Confidences away from 0 and 1, so that their logits are finite."""
    return np.asarray(np.clip(confidences, _NEAREST, 1 - _NEAREST))


def logit(confidences: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)), finite."""
    clipped = clip(confidences)
    return np.asarray(np.log(clipped) - np.log1p(-clipped))


def hierarchical(target: np.ndarray, confidences: np.ndarray, included: np.ndarray) -> np.ndarray:
    """Log ratio of the hierarchical t densities, plus the log of RMIA's ratio, less of it with more models.

    Of few models the row's own densities are poorly known, above all their tails. The ratio rises with the
    target's confidence, and confidences near 1 hardly move it.
    """
    values, likely = logit(confidences), clip(confidences)
    log_ratio = shrunk_log_ratio(logit(target), (Side.of(values, included), Side.of(values, ~included)))
    ratio = _ratio(target, Side.of(likely, included), Side.of(likely, ~included))
    weight = RATIO_WEIGHT * RATIO_MODELS / (RATIO_MODELS + len(included))
    return np.asarray(log_ratio + weight * np.log(ratio))


def shrunk_log_ratio(target: np.ndarray, sides: tuple[Side, Side]) -> np.ndarray:
    """Log ratio of predictive t densities; shift and variances shrunk to those of similar rows."""
    pooled = (_pooled(sides[0], sides[1]), _pooled(sides[1], sides[0]))
    weights = [side.n / variance for side, variance in zip(sides, pooled, strict=True)]
    gap = sides[0].mean - sides[1].mean
    # With these weights the error of the level is uncorrelated with that of the gap.
    level = (weights[0] * (sides[0].mean - gap.mean()) + weights[1] * sides[1].mean) / sum(weights)
    smooth = _by_difficulty(level)
    shift = smooth(gap, np.ones_like(gap))
    scatter, least = (gap - shift) ** 2, 1e-3 * sum(pooled)

    def densities(
        variances: tuple[np.ndarray, np.ndarray], freedom: tuple[Any, Any], spread: np.ndarray | float
    ) -> list[np.ndarray]:
        means, errors = normal_posterior(
            sides, variances, level=(level.mean(), level.var()), shift=(shift, spread)
        )
        return [
            scipy.stats.t.logpdf(target, free, mean, np.sqrt(variance + error))
            for free, mean, variance, error in zip(freedom, means, variances, errors, strict=True)
        ]

    if sides[0].spare.any() or sides[1].spare.any():
        # Variances of each side, between the row's own and that of similar rows; their degrees of freedom
        variances, freedom = [], []
        for side, variance in zip(sides, pooled, strict=True):
            near = smooth(side.squares, side.spare, variance)
            prior = _prior_freedom(side, near)
            variances.append((prior * near + side.squares) / (prior + side.spare))
            freedom.append(prior + side.spare)
        inside, outside = variances
        noise = inside / sides[0].n + outside / sides[1].n
        logs = densities(
            (inside, outside),
            (freedom[0], freedom[1]),
            np.maximum(smooth(scatter - noise, np.ones_like(gap)), least),
        )
    else:
        # One model a side: its gap says what both variances add up to, and the target's logits what share
        # each has and how heavy the tails are, whichever side each logit belongs to.
        total = smooth(scatter, np.ones_like(gap))
        fits = (
            densities((share * total, (1 - share) * total), (freedom, freedom), least)
            for share in _SHARES
            for freedom in _FREEDOMS
        )
        logs = max(fits, key=lambda pair: float(np.logaddexp(*pair).sum()))
    return np.asarray(logs[0] - logs[1])


def _by_difficulty(level: np.ndarray) -> Callable[..., np.ndarray]:
    """A function that averages figures over rows of like level, between bins by straight lines."""
    n_bins = int(np.clip(len(level) // _PER_BIN, 1, _MOST_BINS))
    rank = np.empty(len(level), dtype=np.int64)
    rank[np.argsort(level, kind="stable")] = np.arange(len(level))
    place = rank * n_bins // len(level)
    centres = np.bincount(place, weights=level) / np.bincount(place)

    def smooth(sums: np.ndarray, counts: np.ndarray, overall: float | None = None) -> np.ndarray:
        typical = sums.sum() / counts.sum() if overall is None else overall
        above = np.bincount(place, weights=sums) + _BIN_PRIOR * typical
        return np.asarray(
            np.interp(level, centres, above / (np.bincount(place, weights=counts) + _BIN_PRIOR))
        )

    return smooth


def _prior_freedom(side: Side, near: np.ndarray) -> float:
    """Degrees of freedom of the variance of similar rows, as a prior (Smyth 2004, section 6.2)."""
    estimable = side.spare > 0
    if estimable.sum() < 2:
        return 1e3
    free = side.spare[estimable]
    ratio = np.maximum(side.squares[estimable] / free / near[estimable], 1e-4)
    residual = np.log(ratio) - scipy.special.digamma(free / 2) + np.log(free / 2)
    excess = residual.var(ddof=1) - scipy.special.polygamma(1, free / 2).mean()
    grid = np.geomspace(1.0, 1e3, 400)  # trigamma falls
    return float(grid[(scipy.special.polygamma(1, grid / 2) > excess).sum().clip(1, len(grid)) - 1])


def normal_posterior(
    sides: tuple[Side, Side],
    variances: tuple[np.ndarray, np.ndarray],
    *,
    level: tuple[float, float],
    shift: tuple[np.ndarray, np.ndarray | float],
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Means with and without the row, and their variances, given normal priors of the level and the shift."""
    inside, outside = sides
    has, lacks = inside.n / variances[0], outside.n / variances[1]
    level_precision = 1 / max(level[1], 1e-9)
    a = level_precision + has + lacks
    c = 1 / shift[1] + has
    from_level = level[0] * level_precision + lacks * outside.mean + has * inside.mean
    from_shift = shift[0] / shift[1] + has * inside.mean
    determinant = a * c - has**2
    low = (c * from_level - has * from_shift) / determinant
    moved = (a * from_shift - has * from_level) / determinant
    return (low + moved, low), ((a + c - 2 * has) / determinant, c / determinant)


def _ratio(target: np.ndarray, inside: Side, outside: Side) -> np.ndarray:
    """The target's confidence over the average of models with the row and without it, half each."""
    offline = (1 - _OFFLINE_SLOPE) + _OFFLINE_SLOPE * outside.mean
    with_row = np.where(inside.n > 0, inside.mean, offline)
    return np.asarray(clip(target) / ((with_row + outside.mean) / 2))


def rmia(target: np.ndarray, inside: Side, outside: Side) -> np.ndarray:
    """Share of rows whose ratio p / mean p is at most the row's (gamma = 1), from moments of confidences."""
    ratio = _ratio(target, inside, outside)
    return np.asarray(np.searchsorted(np.sort(ratio), ratio, side="right") / len(ratio))


def _pooled(side: Side, opposite: Side) -> float:
    """Variance within rows; where no row has two models on a side, half that of the differences."""
    for moments in (side, opposite):
        if moments.spare.sum() and moments.squares.sum():
            return float(moments.squares.sum() / moments.spare.sum())
    shared = (side.n > 0) & (opposite.n > 0)
    spread = float(np.var((side.mean - opposite.mean)[shared], ddof=1) / 2) if shared.sum() > 1 else 0.0
    if not spread:
        raise ValueError(
            f"reference models say the same of all {len(side.n)} rows, or too little to know how "
            "they differ: fit more of them"
        )
    return spread


def _lira(target: np.ndarray, sides: tuple[Side, Side], *, per_row: bool) -> np.ndarray:
    """Carlini et al. 2022, Algorithm 1; where no model has the row, Algorithm 2 on the scale of log odds."""
    logs, deviations = [], []
    for side, opposite in (sides, sides[::-1]):
        pooled = _pooled(side, opposite)
        variance = np.full(len(target), pooled)
        if per_row:
            enough = side.n > 1
            variance[enough] = np.maximum((side.squares / np.maximum(side.n, 1))[enough], _FLOOR * pooled)
        deviations.append((target - side.mean) / np.sqrt(variance))
        logs.append(scipy.stats.norm.logpdf(target, side.mean, np.sqrt(variance)))
    offline = scipy.special.log_ndtr(deviations[1]) - scipy.special.log_ndtr(-deviations[1])
    return np.asarray(np.where(sides[0].n > 0, logs[0] - logs[1], offline))


def _student_t(target: np.ndarray, sides: tuple[Side, Side]) -> np.ndarray:
    """Predictive densities under one normal-inverse-gamma prior a side, from the moments of all rows."""
    logs = []
    for side, opposite in (sides, sides[::-1]):
        variance = _pooled(side, opposite)
        centre = side.mean.mean()
        between = max(side.mean.var() - variance * (1 / side.n).mean(), _FLOOR * variance)
        prior = {"centre": centre, "weight": variance / between, "shape": 2.0, "rate": variance}
        logs.append(normal_inverse_gamma(target, side, **prior))
    return np.asarray(logs[0] - logs[1])


def normal_inverse_gamma(
    target: np.ndarray, side: Side, *, centre: float, weight: float, shape: float, rate: float
) -> np.ndarray:
    """Log predictive density of one more logit (Murphy 2007, equations 86 to 90 and 100)."""
    total = weight + side.n
    mean = (weight * centre + side.n * side.mean) / total
    after = shape + side.n / 2
    rate_after = rate + side.squares / 2 + weight * side.n * (side.mean - centre) ** 2 / (2 * total)
    scale = np.sqrt(rate_after * (total + 1) / (after * total))
    return np.asarray(scipy.stats.t.logpdf(target, 2 * after, mean, scale))


STATISTICS: dict[str, Callable[[np.ndarray, tuple[Side, Side]], np.ndarray]] = {  # of logits
    "lira": partial(_lira, per_row=True),
    "lira-fixed": partial(_lira, per_row=False),
    "student-t": _student_t,
}
_METHODS = ("hierarchical", *STATISTICS, "rmia", "loss")


def read_members(values: Any, *, name: str, n_rows: int) -> np.ndarray:
    """Return memberships after checks: one bool a row, with members and others."""
    member = np.asarray(values)
    if member.dtype != bool or member.shape != (n_rows,):
        raise ValueError(f"{name} must be bool of shape ({n_rows},), got {member.dtype} of {member.shape}")
    if member.all() or not member.any():
        raise ValueError(f"{name} must hold rows which are members and rows which are not")
    return member


def read_confidences(values: Any, *, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Floats from 0 to 1; a little above 1 is rounding."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    wrong = int((~((array >= 0) & (array <= 1 + 1e-6))).sum())
    if wrong:
        raise ValueError(f"{name} must be numbers from 0 to 1, which {wrong} of {array.size} are not")
    return np.minimum(array, 1.0)


def check_independent(included: np.ndarray, member: np.ndarray) -> None:
    """Refuse memberships which depend on the references' memberships (Hoeffding 1963, Theorem 2)."""
    designs = np.vstack([included, included.sum(axis=0)]).astype(np.float64)
    centred = designs - designs.mean(axis=1, keepdims=True)
    size = (centred**2).sum(axis=1)
    moved = (centred @ member) ** 2
    limit = np.log(2 * len(designs) / _FALSE_ALARM) / 2
    if (moved > limit * size).any():
        raise ValueError(
            "memberships of the target depend on those of the references, as where each row is in exactly "
            "half of the models: draw each by a coin of its own"
        )


def check_sides(included: np.ndarray, *, method: str) -> None:
    """Refuse rows that all references have, or none."""
    always, never = included.all(axis=0), ~included.any(axis=0)
    if always.any():
        raise ValueError(f"{int(always.sum())} rows are in every reference: fit more of them")
    if never.any() and method not in _WITHOUT_ROWS:
        raise ValueError(
            f"{int(never.sum())} rows are in no reference, which {method!r} needs: fit more of them, or "
            f"use one of {', '.join(_WITHOUT_ROWS)}"
        )


def check_duplicates(copies: np.ndarray | None, member: np.ndarray) -> None:
    """Refuse rows whose copies are on both sides."""
    if copies is None:
        return
    inside = np.bincount(copies, weights=member)
    torn = ((inside > 0) & (inside < np.bincount(copies)))[copies]
    if torn.any():
        raise ValueError(
            f"{int(torn.sum())} rows of {len(member)} have a copy on the other side, in the target and out "
            "of it at once: drop duplicates before the coins are tossed"
        )


def check_classes(labels: np.ndarray, included: np.ndarray) -> None:
    """Refuse references without a row of some class."""
    codes = np.unique(labels, return_inverse=True)[1]
    for number, chosen in enumerate(included):
        if not np.bincount(codes[chosen], minlength=codes.max() + 1).all():
            raise ValueError(f"reference {number} was dealt no row of some class: drop classes of few rows")


def number_copies(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A number for each row, the same for rows with the same features and label."""
    flat = rows.reshape(len(rows), -1)
    features: list[object]
    if flat.dtype.kind != "O":
        flat = flat + 0 if flat.dtype.kind in "iuf" else flat  # -0.0 is 0.0
        features = [row.tobytes() for row in flat]
    else:
        features = [tuple(row) for row in flat.tolist()]
    numbers: dict[object, int] = {}
    keys = zip(features, labels.tolist(), strict=True)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def draw_coins(rng: np.random.Generator, n_models: int, n_rows: int) -> np.ndarray:
    """Fair coins, tossed again for rows that are in all models or in none."""
    coins = rng.random((n_models, n_rows)) < 0.5
    while (alike := coins.all(axis=0) | ~coins.any(axis=0)).any():
        coins[:, alike] = rng.random((n_models, int(alike.sum()))) < 0.5
    return coins


class SavedReferences:
    """Confidences of finished references, in a folder that only its owner can read."""

    def __init__(self, folder: Any, *parts: Any) -> None:
        self.folder = Path(folder)
        digest = hashlib.sha256()
        for part in parts:  # functions count by name, since their repr has an address
            if isinstance(part, np.ndarray):
                content = part.tobytes() if part.dtype.kind != "O" else repr(part.tolist()).encode()
            else:
                settings = part.get_params() if hasattr(part, "get_params") else part
                content = repr(settings).encode()
                if isinstance(settings, dict):
                    named = {name: getattr(value, "__qualname__", value) for name, value in settings.items()}
                    content = f"{type(part).__qualname__}{named}".encode()
            digest.update(content + b"\0")
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
    kind, network, step = type(estimator), None, 1
    if (kind.__module__, kind.__name__) == ("ostraka.networks", "TorchClassifier"):  # trained in stacks
        if estimator.checkpoint is not None:
            raise ValueError("estimator must have checkpoint=None: give the checkpoint to ReferenceModels")
        network = cast("TorchClassifier", estimator)
        import torch  # noqa: PLC0415

        from ostraka.nets import vectorised  # noqa: PLC0415  (needs torch)
        from ostraka.nets.training import TrainingSet, device, threads  # noqa: PLC0415

        X = np.asarray(X, dtype=np.float32)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise ValueError(f"X must be finite numbers of shape (n_rows, n_features), got shape {X.shape}")
        classes, codes = np.unique(labels, return_inverse=True)
        plan = vectorised.plan(network, n_features=X.shape[1], n_classes=len(classes))
        alone, where = plan.alone(), device(network.device)
        largest = min(plan.size, _SAVED_TOGETHER if saved else plan.size, len(included))
        step = -(-len(included) // -(-len(included) // largest))  # parts as equal as possible
    confidences = np.empty(included.shape)
    for first in range(0, len(included), step):
        part = slice(first, min(first + step, len(included)))
        block = None if saved is None else saved.read(first, included[part].shape)
        if block is None:
            if network is None:
                from sklearn.base import clone  # noqa: PLC0415

                model, chosen = clone(estimator), included[first]
                if "random_state" in model.get_params():
                    model.set_params(random_state=int(seeds[first]))
                rows = X.iloc[chosen] if hasattr(X, "iloc") else np.asarray(X)[chosen]
                model.fit(rows, labels[chosen])
                block = ReferenceModels.true_label_confidences(model, X, labels)[None]
            else:
                training_sets = [
                    TrainingSet.of(X[chosen], codes[chosen], random_state=int(seed))
                    for chosen, seed in zip(included[part], seeds[part], strict=True)
                ]
                networks = vectorised.train_networks(plan, training_sets)
                block = np.empty((len(networks), len(X)))
                for chances, trained in zip(block, networks, strict=True):
                    if trained is None:
                        raise TrainingDiverged(
                            f"{networks.count(None)} of {len(networks)} references diverged: try a smaller "
                            "learning_rate"
                        )
                    # the softmax of the true label's logit, for each row
                    stack = alone.stack_of([trained.weights])
                    with torch.inference_mode(), threads(network.n_threads):
                        for start in range(0, len(X), _AT_ONCE):
                            rows = torch.as_tensor(X[start : start + _AT_ONCE], device=where)
                            logits = stack.logits(rows, training=False)[0].double().cpu()
                            true_codes = torch.as_tensor(codes[start : start + _AT_ONCE])
                            own = logits.softmax(dim=1)[torch.arange(len(true_codes)), true_codes]
                            chances[start : start + _AT_ONCE] = own.numpy()
            if saved is not None:
                saved.write(first, block)
        confidences[part] = block
        if progress is not None:
            progress("references", part.stop, len(included))
    return confidences


def _integers(values: Any, *, name: str, dimensions: int) -> np.ndarray:
    """A copy as int64; no message shows a label."""
    array = np.asarray(values)
    if array.ndim != dimensions or array.dtype.kind not in "iu":
        kind = array.dtype.type.__name__
        raise ValueError(
            f"{name} must be integers in {dimensions} dimension{'s' * (dimensions > 1)}, got {kind} of "
            f"shape {array.shape}"
        )
    return array.astype(np.int64)
