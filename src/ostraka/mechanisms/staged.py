"""Label responses in stages: earlier answers give the priors of later stages, for the price of one stage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.mechanisms import _labels
from ostraka.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.private import Adjacency

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.curve import Curve
    from ostraka.private import Private

__all__ = ["NOT_YET", "StagedResponse"]

NOT_YET = -1  # in the answers that advice is made of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StagedResponse:
    """Labels are asked in stages, each label in one: by randomised response, then with priors.

    Stage 0 answers by :class:`RandomizedResponse`. Before every later stage, ``advise`` makes a prior of
    the answers there are, and the stage answers by :class:`PriorResponse` under it.

    Parameters
    ----------
    stage : int array of shape (n,)
        In which stage each label is asked, from 0 on. Public: it must not depend on any label.
    n_classes : int >= 2
        Labels are 0 to ``n_classes - 1``. Public.
    epsilon : float in (0, 40], nats
        Public. Of each stage, and so of all together.
    advise : callable(stage, answers) -> array
        Class probabilities of the rows of that stage, shape (rows of the stage, n_classes).
        ``answers`` are those of all n rows so far, -1 where a label has not been asked. See Notes.

    Raises
    ------
    ValueError
        A parameter out of range; when asked, labels that are no classes or not one a row, before
        anything is charged; advice that is no probabilities.

    Guarantees
    ----------
    ``epsilon``-DP for one label, whatever ``advise`` does: of two neighbouring sets of labels, the answers
    before the differing label have one law, its own answer costs at most ``curve()`` under every prior,
    and what follows depends on the labels through answers only. So it is parallel composition, with the
    stages chosen by answers. ``curve()`` is that of :class:`PriorResponse`.
    Source: Ghazi et al. 2021, arXiv:2102.06062, Algorithm 3 and Sec. 4.

    Notes
    -----
    The door writes a charge before :meth:`release` and stores the answers after it; if the process ends
    between the two, the same key draws all stages afresh for the same charge. That is right if nothing
    of the first draw was seen. ``advise`` sees some of it, and so must keep it to itself until the
    answers are stored: no checkpoint, no log, and no exception, whose text or mere existence tells
    something of the answers. Afterwards all of it is public.

    Examples
    --------
    >>> from ostraka import Adjacency, Private
    >>> labels = Private([2] * 6, Adjacency.one_label())
    >>> def advise(stage, answers):
    ...     seen = np.bincount(answers[answers >= 0], minlength=3) + 1
    ...     return np.tile(seen / seen.sum(), (3, 1))
    >>> mechanism = StagedResponse(stage=[0, 0, 0, 1, 1, 1], n_classes=3, epsilon=30.0, advise=advise)
    >>> mechanism.release(labels, rng=np.random.default_rng(0))
    array([2, 2, 2, 2, 2, 2])
    >>> mechanism.curve().rdp[-1]  # the last order is infinity
    30.0
    """

    stage: Any
    n_classes: int
    epsilon: float
    advise: Callable[[int, np.ndarray], Any]
    n_stages: int = field(init=False)
    promise = Adjacency.one_label()

    def __post_init__(self) -> None:
        RandomizedResponse(n_classes=self.n_classes, epsilon=self.epsilon)  # knows what is out of range
        stage = np.array(self.stage)
        if stage.ndim != 1 or not (np.issubdtype(stage.dtype, np.integer) and (stage >= 0).all()):
            raise ValueError(f"stage must be whole numbers from 0 on, one a label, got shape {stage.shape}")
        stage = stage.astype(np.int64)
        stage.setflags(write=False)
        object.__setattr__(self, "stage", stage)
        object.__setattr__(self, "n_stages", int(stage.max(initial=-1)) + 1)

    def curve(self) -> Curve:
        """Cost of one release of all labels."""
        return self._advised(np.empty((0, self.n_classes))).curve()

    def delta(self, epsilon: float) -> float:
        """The smallest delta at which one release is (epsilon, delta)-DP, rounded up."""
        return self._advised(np.empty((0, self.n_classes))).delta(epsilon)

    def uses(self, private: Private) -> int:
        """One use for all rows of all stages, since one unit owns one label."""
        return _labels.charged(self._matched(private), self.n_classes)

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """One class a row, int64 of shape (n,)."""
        answers = np.full(len(self._matched(private)), NOT_YET, dtype=np.int64)
        for number in range(self.n_stages):
            rows = np.flatnonzero(self.stage == number)
            answers[rows] = self._of(number, answers, len(rows)).release(private[rows], rng=rng)
        return answers

    def _of(self, number: int, answers: np.ndarray, n_rows: int) -> RandomizedResponse | PriorResponse:
        """Return the mechanism of one stage."""
        if number == 0:
            return RandomizedResponse(n_classes=self.n_classes, epsilon=self.epsilon)
        prior = np.asarray(self.advise(number, answers.copy()))
        if prior.shape != (n_rows, self.n_classes):
            raise ValueError(
                f"advise must return shape ({n_rows}, {self.n_classes}) in stage {number}, got {prior.shape}"
            )
        return self._advised(prior)

    def _advised(self, prior: np.ndarray) -> PriorResponse:
        return PriorResponse(prior=prior, epsilon=self.epsilon)

    def _matched(self, private: Private) -> Private:
        if private.shape[:1] != self.stage.shape:
            raise ValueError(f"labels must be one for each of {len(self.stage)} rows, got {private.shape}")
        return private

    def __repr__(self) -> str:
        return (
            f"StagedResponse(epsilon={self.epsilon!r}, n_classes={self.n_classes}, "
            f"stage=<{len(self.stage)} in {self.n_stages} stages, sha256 {self._digest()}>)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StagedResponse):
            return NotImplemented
        return repr(self) == repr(other) and self.advise == other.advise

    def __hash__(self) -> int:
        return hash(repr(self))

    def _digest(self) -> str:
        return hashlib.sha256(self.stage.astype("<i8").tobytes()).hexdigest()
