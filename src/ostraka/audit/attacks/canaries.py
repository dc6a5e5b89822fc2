"""Canaries: mislabelled rows, which show whether a trained model memorised its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ostraka.core import check
from ostraka.core.scores import Scores

_SUMS_TO_ONE = 1e-2  # half precision over a hundred classes


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
