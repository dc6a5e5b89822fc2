"""LP-MST: labels released in stages, with a prior from a model trained on the stages before."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from ostraka import _check
from ostraka._diverged import TrainingDiverged
from ostraka._torch.checkpoints import digest
from ostraka._torch.devices import device
from ostraka.mechanisms import PriorResponse
from ostraka.mechanisms.staged import NOT_YET, StagedResponse
from ostraka.students._labels import LabelStudent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka.ledger import Ledger
    from ostraka.networks import TorchClassifier

__all__ = ["MultiStage"]

_SUMS_TO_ONE = 1e-6


class MultiStage(LabelStudent):
    """A classifier from public rows with private labels, released in stages (LP-MST).

    Each row belongs to one stage. The labels of the first stage are released by randomised response. A
    network learns from these answers; its predictions decide, for every row of the next stage, among how many
    classes the label's answer is drawn. The last network learns from the answers of all stages.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimiser, epochs, batch size, device and seed of every stage. None: a small perceptron.
    epsilon : float in (0, 40], nats
        The price of all labels together, with delta 0. Each label is released in one stage.
    shares : sequence of float, default (0.6, 0.4)
        The size of each stage; they sum to 1. Two stages are LP-2ST, one is randomised response.
    temperature : float, default 1
        Logits are divided by this for the prior. Below 1, the prior is sharper.
    filtered : bool, default False
        In the last training, leave out answers of earlier stages that are not among the k likeliest
        classes of the model that gave the last stage's prior, with the mean k of that stage.
    ledger : Ledger, optional
        The ledger to charge. None: one in memory with the budget of this fit; fitting the estimator again
        to the same data then releases nothing new. An estimator with a ledger cannot be pickled.
    key : str, default "labels"
        Public name of the release in the ledger. The same key in any process gives the same answers without
        a charge, so it must stand for the same labels in the same order.

    Attributes
    ----------
    answers_ : int64 array of shape (n_rows,)
        Public. The noisy label of each row, as an index into ``classes_``.
    stage_ : int64 array of shape (n_rows,)
        Public. The stage of each label, a function of the rows and the key.
    curve_ : Curve
        The cost of the answers, and so of all public attributes.
    classes_ : array of shape (n_classes,)
    network_ : TorchClassifier
        The trained network, which contains nothing private.

    Raises
    ------
    ValueError
        Labels that are not in ``classes``, soft labels, a parameter out of range, a module without
        logits, or a missing device. Raised before any charge; the message shows no label.
    BudgetExceeded
        The budget is too small; nothing was charged.
    TrainingDiverged
        A loss of the last training was not finite. ``network_`` is as after the last good epoch. The
        answers are in the ledger, so that the next fit has no cost.

    Warns
    -----
    RuntimeWarning
        An earlier training diverged, and its last good model gave the prior.

    Guarantees
    ----------
    All public attributes are ``epsilon``-DP for one label: they are functions of the answers, the rows and
    the settings (:class:`~ostraka.mechanisms.staged.StagedResponse`). This also holds after a crash between
    stages, which draws all stages again: the earlier networks are in memory only, write no checkpoint, and
    report nothing before the answers are stored.
    Source: Ghazi et al. 2021, arXiv:2102.06062, Algorithm 3.

    Notes
    -----
    The authors' experiments also mix rows (mixup), start each training from the previous weights, sharpen the
    prior (``temperature`` 0.5) and leave out answers (``filtered``). This class has the last two; each
    training starts from new weights, as in their Algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka.networks import TorchClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> network = TorchClassifier(epochs=30, learning_rate=3e-3, random_state=0)
    >>> model = MultiStage(network, epsilon=4.0).fit(X[:1500] / 16, y[:1500], classes=range(10))
    >>> model.score(X[1500:] / 16, y[1500:]) > 0.6
    True
    >>> model.curve_.rdp[-1]  # the last order is infinity
    4.0
    """

    def __init__(
        self,
        network: TorchClassifier | None = None,
        *,
        epsilon: float = 2.0,
        shares: Sequence[float] = (0.6, 0.4),
        temperature: float = 1.0,
        filtered: bool = False,
        ledger: Ledger | None = None,
        key: str = "labels",
    ) -> None:
        self.network = network
        self.epsilon = epsilon
        self.shares = shares
        self.temperature = temperature
        self.filtered = filtered
        self.ledger = ledger
        self.key = key

    def fit(self, X: Any, y: Any, *, classes: Any = None) -> Self:
        """Release the labels stage by stage, and learn from the answers.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Private: the class of each row.
        classes : array, optional
            All possible classes. None: those of the labels, which are then not protected.
        """
        X, codes = self._checked(X, y, classes)
        _check.positive(temperature=self.temperature)
        shares = np.asarray(self.shares, dtype=np.float64)
        if shares.ndim != 1 or not ((shares > 0).all() and abs(shares.sum() - 1) < _SUMS_TO_ONE):
            raise ValueError(f"shares must be > 0 and sum to 1, got {self.shares!r}")
        self.stage_ = _stages(shares, n_rows=len(X), seed=int(digest(X, self.key), 16))
        if not np.bincount(self.stage_, minlength=len(shares)).all():
            raise ValueError(f"shares {self.shares!r} leave a stage empty for n_samples={len(X)} rows")
        priors = _Priors(self._new_network, X, self.stage_, self.temperature)
        mechanism = StagedResponse(
            stage=self.stage_, n_classes=len(self.classes_), epsilon=self.epsilon, advise=priors
        )
        self.answers_ = self._released(mechanism, X, codes)
        answers = self._filtered(priors) if self.filtered else self.answers_
        for stage in sorted(priors.diverged):
            warnings.warn(
                f"the training before stage {stage} diverged, and its last good model gave the prior: "
                "try a smaller learning_rate",
                RuntimeWarning,
                stacklevel=2,
            )
        self.network_ = self._new_network()
        _learn(self.network_, X, answers)
        return self

    def _filtered(self, priors: _Priors) -> np.ndarray:
        """The answers; NOT_YET for those of earlier stages that the last prior's model finds unlikely."""
        last = self.stage_.max()
        earlier = np.where(self.stage_ < last, self.answers_, NOT_YET)
        if last == 0:
            return self.answers_
        prior = priors(last, earlier)
        k = int(PriorResponse(prior=prior, epsilon=self.epsilon).kept.mean())
        ranks = np.argsort(np.argsort(-priors.models[last].logits(priors.X), axis=1), axis=1)
        unlikely = np.take_along_axis(ranks, self.answers_[:, None], axis=1)[:, 0] >= k
        return np.where((self.stage_ < last) & unlikely, NOT_YET, self.answers_)


@dataclass(slots=True)
class _Priors:
    """The prior of each stage: predictions of a network that is trained on the answers so far.

    The answers are not stored yet at this time, so nothing is reported or written: see StagedResponse.
    """

    new_network: Callable[[], TorchClassifier]
    X: np.ndarray
    stage: np.ndarray
    temperature: float
    models: dict[int, TorchClassifier] = field(default_factory=dict)
    diverged: set[int] = field(default_factory=set)

    def __call__(self, stage: int, answers: np.ndarray) -> np.ndarray:
        """Class probabilities of the rows of ``stage``."""
        if stage not in self.models:
            model = self.models[stage] = self.new_network().set_params(checkpoint=None)
            try:
                _learn(model, self.X, answers)
            except TrainingDiverged:
                self.diverged.add(stage)  # reported after the answers are stored
        logits = self.models[stage].logits(self.X[self.stage == stage]) / self.temperature
        known = np.isfinite(logits).all(axis=1, keepdims=True)
        return np.asarray(softmax(np.where(known, logits, 0.0), axis=1))


def _learn(network: TorchClassifier, X: np.ndarray, answers: np.ndarray) -> None:
    """Train on the rows with an answer, which serves as the label."""
    rows = np.flatnonzero(answers != NOT_YET)
    targets = torch.as_tensor(answers[rows], device=device(network.device))
    network.minimise(
        X[rows],
        lambda logits, batch: nn.functional.cross_entropy(logits, targets[batch]),
        name=f"MultiStage {digest(X, answers)}",
    )


def _stages(shares: np.ndarray, *, n_rows: int, seed: int) -> np.ndarray:
    """The stage of each row, by a permutation that depends on the rows, so that a restart repeats it."""
    ends = np.rint(np.cumsum(shares) * n_rows).astype(np.int64)
    place = np.random.default_rng(seed).permutation(n_rows)
    return np.asarray(np.searchsorted(ends, place, side="right"))
