"""LP-MST: labels asked in stages, each under the prior of a model trained on the stages before."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from ostraka import _check
from ostraka._torch.classifier import digest
from ostraka._torch.devices import device
from ostraka._torch.loop import TrainingDiverged
from ostraka.mechanisms import PriorResponse
from ostraka.mechanisms.staged import NOT_YET, StagedResponse
from ostraka.students._labels import LabelStudent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ostraka._torch.classifier import TorchClassifier
    from ostraka.ledger import Ledger

__all__ = ["MultiStage"]

_SUMS_TO_ONE = 1e-6


class MultiStage(LabelStudent):
    """A classifier from public rows with private labels, asked in stages (LP-MST).

    The rows are dealt to stages. The labels of the first are asked by randomised response; a network
    learns from the answers, and its predictions choose, for every row of the next stage, among how many
    classes its label answers. The last network learns from the answers of all stages.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimiser, epochs, batch size, device and seed of every stage. None: a small perceptron.
    epsilon : float in (0, 40], nats
        The price of all labels together; pure, delta is 0. Each label is asked in one stage.
    shares : sequence of float, default (0.6, 0.4)
        How large each stage is; they sum to 1. Two are LP-2ST, one is plain randomised response.
    temperature : float, default 1
        What logits are divided by before they are a prior. Below 1, the prior is sharper.
    filtered : bool, default False
        In the last training, leave out answers of earlier stages that are not among the k likeliest
        classes of the model that advised the last stage, with the mean k of that stage.
    ledger : Ledger, optional
        Where to charge. None: one in memory, for what this fit costs; fitted again to the same data,
        this estimator then asks nothing again. An estimator with a ledger does not pickle.
    key : str, default "labels"
        Public name of the release in the ledger. The same key again, in any process, gets the same
        answers and pays nothing: it stands for the same labels in the same order.

    Attributes
    ----------
    answers_ : int64 array of shape (n_rows,)
        Public. What was answered for each row, as an index into ``classes_``.
    stage_ : int64 array of shape (n_rows,)
        Public. In which stage each label was asked: decided by the rows and the key.
    curve_ : Curve
        What the answers cost, and so all that is public here.
    classes_ : array of shape (n_classes,)
    network_ : TorchClassifier
        Trained; a classifier of its own, without anything private.

    Raises
    ------
    ValueError
        Labels that are not in ``classes``, soft labels, a parameter out of range, a module without
        logits, a device that is not there. Before anything is charged, and without showing a label.
    BudgetExceeded
        The ledger does not allow it; nothing was charged.
    TrainingDiverged
        A loss of the last training was not finite. ``network_`` is as after the last good epoch; the
        answers are in the ledger, and the next fit costs nothing.

    Warns
    -----
    RuntimeWarning
        An earlier training diverged; its last good model gave the prior.

    Guarantees
    ----------
    Everything public about a fitted estimator is ``epsilon``-DP for one label: it is a function of the
    answers, the rows and the settings (:class:`~ostraka.mechanisms.staged.StagedResponse`). That holds
    after a crash in the middle as well, which draws the stages afresh: the earlier networks are in memory
    only and write no checkpoint, and their trainings tell nothing before the answers are stored.
    Source: Ghazi et al. 2021, arXiv:2102.06062, Algorithm 3.

    Notes
    -----
    The authors' experiments also mix rows (mixup), begin each training with the weights of the one
    before, sharpen the prior (``temperature`` 0.5) and leave out answers (``filtered``). Here are the
    last two; each training begins anew, as in their Algorithm 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka import TorchClassifier
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
        """Ask the labels stage by stage, and learn from the answers.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Public.
        y : array of shape (n_rows,)
            Private: the class of each row.
        classes : array, optional
            Every class there may be, which is then no secret of the labels.
        """
        X, codes = self._checked(X, y, classes)
        _check.positive(temperature=self.temperature)
        shares = np.asarray(self.shares, dtype=np.float64)
        if shares.ndim != 1 or not ((shares > 0).all() and abs(shares.sum() - 1) < _SUMS_TO_ONE):
            raise ValueError(f"shares must be > 0 and sum to 1, got {self.shares!r}")
        self.stage_ = _dealt(shares, n_rows=len(X), seed=int(digest(X, self.key), 16))
        if not np.bincount(self.stage_, minlength=len(shares)).all():
            raise ValueError(f"shares {self.shares!r} leave a stage without any of n_samples={len(X)} rows")
        advice = _Advice(self._new_network, X, self.stage_, self.temperature)
        mechanism = StagedResponse(
            stage=self.stage_, n_classes=len(self.classes_), epsilon=self.epsilon, advise=advice
        )
        self.answers_ = self._asked(mechanism, X, codes)
        answers = self._kept(advice) if self.filtered else self.answers_
        for stage in sorted(advice.diverged):
            warnings.warn(
                f"the training before stage {stage} diverged, and its last good model gave the prior: "
                "try a smaller learning_rate",
                RuntimeWarning,
                stacklevel=2,
            )
        self.network_ = self._new_network()
        _learn(self.network_, X, answers)
        return self

    def _kept(self, advice: _Advice) -> np.ndarray:
        """The answers, NOT_YET where the last adviser finds one of an earlier stage unlikely."""
        last = self.stage_.max()
        earlier = np.where(self.stage_ < last, self.answers_, NOT_YET)
        if last == 0:
            return self.answers_
        prior = advice(last, earlier)
        k = int(PriorResponse(prior=prior, epsilon=self.epsilon).kept.mean())
        ranks = np.argsort(np.argsort(-advice.models[last].logits(advice.X), axis=1), axis=1)
        unlikely = np.take_along_axis(ranks, self.answers_[:, None], axis=1)[:, 0] >= k
        return np.where((self.stage_ < last) & unlikely, NOT_YET, self.answers_)


@dataclass(slots=True)
class _Advice:
    """Before each stage: a network trained on the answers so far, and what it makes of the next rows.

    Answers are not stored yet while this runs, so it keeps everything to itself: see StagedResponse.
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
                self.diverged.add(stage)  # told when the answers are stored
        logits = self.models[stage].logits(self.X[self.stage == stage]) / self.temperature
        known = np.isfinite(logits).all(axis=1, keepdims=True)
        return np.asarray(softmax(np.where(known, logits, 0.0), axis=1))


def _learn(network: TorchClassifier, X: np.ndarray, answers: np.ndarray) -> None:
    """Train on the rows that have an answer, as if it were the label."""
    rows = np.flatnonzero(answers != NOT_YET)
    targets = torch.as_tensor(answers[rows], device=device(network.device))
    network.minimise(
        X[rows],
        lambda logits, batch: nn.functional.cross_entropy(logits, targets[batch]),
        name=f"MultiStage {digest(X, answers)}",
    )


def _dealt(shares: np.ndarray, *, n_rows: int, seed: int) -> np.ndarray:
    """The stage of each row, by a shuffle that the rows decide, so that a restart deals them alike."""
    ends = np.rint(np.cumsum(shares) * n_rows).astype(np.int64)
    place = np.random.default_rng(seed).permutation(n_rows)
    return np.asarray(np.searchsorted(ends, place, side="right"))
