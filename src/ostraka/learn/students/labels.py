"""Students of private labels, which are released once: ALIBI and LP-MST.

ALIBI corrects noisy labels in every step by Bayes' rule, with the model's prediction as prior. LP-MST
releases them in stages, with a prior from a model trained on the stages before. :class:`LabelStudent` is
what both share: checks, the single release, and the network.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from ostraka.core import check
from ostraka.core.check import TrainingDiverged
from ostraka.core.door import release
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.response import PriorResponse, RandomizedResponse
from ostraka.core.mechanisms.sums import OneHotGaussian, OneHotLaplace
from ostraka.core.mechanisms.wrapped import NOT_YET, StagedResponse
from ostraka.core.private import Adjacency, Private
from ostraka.data.labels import Labels
from ostraka.nets.training import device, digest
from ostraka.networks import TorchClassifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sklearn.utils import Tags

    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.law import Mechanism

    Response = OneHotGaussian | OneHotLaplace | PriorResponse | RandomizedResponse

_DELTA = 1e-5  # of the budget of a ledger in memory
_MARGIN = 1 + 1e-9  # because the ledger rounds prices up
_NAMED = ("auto", "laplace", "response")
_TRIED = 4096  # simulated labels, to compare the information of two mechanisms
_PRIORS = ("model", "uniform")
_SUMS_TO_ONE = 1e-6


class LabelStudent(ClassifierMixin, BaseEstimator):
    """The common part of students of private labels: a network, a ledger, and one release of the labels."""

    network: TorchClassifier | None
    ledger: Ledger | None
    key: str
    classes_: np.ndarray
    curve_: Curve
    network_: TorchClassifier

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 of shape (n_rows, n_classes)."""
        check_is_fitted(self, "network_")
        return self.network_.predict_proba(validate_data(self, X, reset=False, dtype=np.float32))

    def _checked(self, X: Any, y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray]:
        """The rows and the class indices of their private labels. Everything that can fail is tried here."""
        name = type(self).__name__
        X = validate_data(self, X, dtype=np.float32)
        labels = Labels.of(y, classes, n_rows=len(X))
        self.classes_, codes = labels.classes, labels.encode(y)
        if len(self.classes_) < 2:  # scikit-learn's tests expect this sentence
            raise ValueError(f"{name} cannot learn from one class: there must be two or more")
        network = self._new_network()
        if self.ledger is None and network.checkpoint is not None:
            raise ValueError(
                "checkpoint needs a ledger: another process would continue from the file but ask the labels "
                "again, and the second cost would not be counted. Type ledger=Ledger(path, budget=…)"
            )
        network.opened(torch.as_tensor(X[:2], device=device(network.device)), seed=0)
        return X, codes

    def _new_network(self) -> TorchClassifier:
        """An untrained network for the rows and classes of this fit."""
        network = TorchClassifier() if self.network is None else clone(self.network)
        network.classes_, network.n_features_in_ = self.classes_, self.n_features_in_
        return network

    def _released(self, mechanism: Mechanism, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The noisy labels, charged once."""
        labels = Private(codes, Adjacency.one_label())
        mechanism.uses(labels)
        self.curve_ = mechanism.curve()
        ledger = self.ledger
        if ledger is None:  # one for exactly one release, reused if this is fitted again to the same data
            content = digest(X, codes, repr(mechanism))
            if getattr(self, "_session", ("",))[0] != content:
                pure = self.curve_.rdp[-1]
                epsilon = _MARGIN * (pure if math.isfinite(pure) else self.curve_.epsilon(delta=_DELTA))
                budget = Budget(epsilon=epsilon, delta=_DELTA, adaptive=False)
                self._session = (content, Ledger(":memory:", budget=budget))
            ledger = self._session[1]
        answers = release(mechanism, labels, ledger=ledger, key=self.key)
        if len(answers) != len(codes):
            raise ValueError(
                f"key {self.key!r} names {len(answers)} labels in this ledger, but there are "
                f"{len(codes)} here: type another key"
            )
        return answers

    def __getstate__(self) -> dict[str, Any]:
        """The state without the ledger in memory, whose key is a hash of the labels."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_session", None)
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the noise has no seed
        tags.classifier_tags.poor_score = True  # the noise hides the few labels of scikit-learn's checks
        return tags


@dataclass(eq=False, repr=False)
class ALIBI(LabelStudent):
    """A classifier from public rows with private labels: additive Laplace with iterative Bayesian inference.

    The labels are released once, with noise. In every training step, a row's target is the posterior of its
    label given the noisy answer, with the network's own prediction as the prior. That is post-processing and
    has no privacy cost.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimiser, epochs, batch size, device and seed. None: a small perceptron.
    epsilon : float, nats, optional
        The price of all labels together, with delta 0. None: ``mechanism`` has its own price.
    mechanism : str or mechanism, default "auto"
        ``"laplace"``: :class:`~ostraka.core.mechanisms.OneHotLaplace`, as in the paper. ``"response"``:
        :class:`~ostraka.core.mechanisms.RandomizedResponse`, and so randomised response with the model as
        the prior. ``"auto"``: the one with more information about a label, which depends on ``epsilon``
        and the number of classes; with ten classes, Laplace up to an epsilon of about 1.5. Or one of the
        four mechanisms on labels, without ``epsilon``.
    prior : str, default "model"
        Or ``"uniform"``: the targets then do not change, and a large network learns the noise.
    temperature : float, default 1
        The network's logits are divided by this for the prior. The paper has 1; a larger value gives the
        answers more weight.
    ledger : Ledger, optional
        The ledger to charge. None: one in memory with the budget of this fit; fitting the estimator again
        to the same data then releases nothing new. An estimator with a ledger cannot be pickled.
    key : str, default "labels"
        Public name of the release in the ledger. The same key in any process gives the same answers without
        a charge, so it must stand for the same labels in the same order.

    Attributes
    ----------
    answers_ : array, shape (n_rows,) or (n_rows, n_classes)
        Public. The noisy labels.
    mechanism_ : mechanism
        Public. The mechanism that released them.
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
        A loss was not finite. ``network_`` is as after the last good epoch. The answers are in the
        ledger, so that the next fit has no cost.

    Guarantees
    ----------
    All public attributes are differentially private for one label with cost ``curve_``: they are functions
    of the answers, the rows and the settings. The rows, their number and the classes are public; without
    ``classes``, the classes are read from the labels and are not protected.
    Source: Malek et al. 2021, arXiv:2106.03408, Algorithm 3 and eq. 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka.networks import TorchClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> network = TorchClassifier(epochs=30, learning_rate=3e-3, random_state=0)
    >>> model = ALIBI(network, epsilon=4.0).fit(X[:1500] / 16, y[:1500], classes=range(10))
    >>> model.score(X[1500:] / 16, y[1500:]) > 0.6
    True
    >>> model.curve_.epsilon(delta=1e-12) <= 4.0
    True
    """

    network: TorchClassifier | None = None
    _: KW_ONLY
    epsilon: float | None = None
    mechanism: str | Response = "auto"
    prior: str = "model"
    temperature: float = 1.0
    ledger: Ledger | None = None
    key: str = "labels"

    def fit(self, X: Any, y: Any, *, classes: Any = None) -> Self:
        """Release the labels once, and learn from the answers.

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
        check.one_of(allowed=_PRIORS, prior=self.prior)
        check.positive(temperature=self.temperature)
        mechanism, n_classes = self.mechanism, len(self.classes_)
        if isinstance(mechanism, str):
            check.one_of(allowed=_NAMED, mechanism=mechanism)
            if self.epsilon is None:
                raise ValueError("epsilon must be given, or a mechanism with its own price")
            mechanism = response_of(mechanism, epsilon=self.epsilon, n_classes=n_classes)
        elif self.epsilon is not None:
            raise ValueError(f"epsilon must be None if mechanism has its own price, got {self.epsilon!r}")
        elif mechanism.n_classes != n_classes:
            raise ValueError(
                f"mechanism must be for {n_classes} classes, got {mechanism.n_classes}: "
                "name all with classes="
            )
        self.answers_ = self._released(mechanism, X, codes)
        self.mechanism_ = mechanism
        self.network_ = self._new_network()
        likelihoods = torch.as_tensor(
            mechanism.log_likelihood(self.answers_), dtype=torch.float32, device=device(self.network_.device)
        )
        settings = repr((mechanism, self.prior, self.temperature))
        self.network_.minimise(X, self._loss(likelihoods), name=f"ALIBI {digest(X, self.answers_, settings)}")
        return self

    def _loss(self, log_likelihoods: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Cross entropy of the posteriors, as a function of logits and row numbers."""
        entropy = nn.functional.cross_entropy
        if self.prior == "uniform":
            fixed = torch.softmax(log_likelihoods, dim=1)
            return lambda logits, rows: entropy(logits, fixed[rows])
        return lambda logits, rows: entropy(
            logits, posterior(log_likelihoods[rows], logits, temperature=self.temperature)
        )


def response_of(name: str, *, epsilon: float, n_classes: int) -> OneHotLaplace | RandomizedResponse:
    """The mechanism of this name; of ``"auto"``, the one with more information about a label.

    >>> response_of("auto", epsilon=4.0, n_classes=10)
    RandomizedResponse(n_classes=10, epsilon=4.0)
    """
    check.positive(epsilon=epsilon)
    by_name: dict[str, OneHotLaplace | RandomizedResponse] = {
        "laplace": OneHotLaplace(n_classes=n_classes, scale=2 / epsilon),
        "response": RandomizedResponse(n_classes=n_classes, epsilon=epsilon),
    }
    return by_name.get(name) or min(by_name.values(), key=_entropy_after)


def _entropy_after(mechanism: OneHotLaplace | RandomizedResponse) -> float:
    """The entropy of a label given its answer, in nats, for equal classes. It uses no private data."""
    n_classes = mechanism.n_classes
    labels = np.arange(_TRIED) % n_classes
    answers = mechanism.release(Private(labels, mechanism.promise), rng=np.random.default_rng(0))
    beliefs = mechanism.posterior(answers, np.full(n_classes, 1 / n_classes))
    return float(-np.log(beliefs[np.arange(_TRIED), labels]).mean())


def posterior(
    log_likelihoods: torch.Tensor, logits: torch.Tensor, *, temperature: float = 1.0
) -> torch.Tensor:
    """Equation 3: the softmax of log likelihood plus log prior, without a gradient through the prior.

    The prior is the softmax of the logits. Its normalisation is the same for all classes and cancels.
    """
    return torch.softmax(log_likelihoods + logits.detach() / temperature, dim=1)


@dataclass(eq=False, repr=False)
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
    the settings (``StagedResponse``). This also holds after a crash between
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

    network: TorchClassifier | None = None
    _: KW_ONLY
    epsilon: float = 2.0
    shares: Sequence[float] = (0.6, 0.4)
    temperature: float = 1.0
    filtered: bool = False
    ledger: Ledger | None = None
    key: str = "labels"

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
        check.positive(temperature=self.temperature)
        shares = np.asarray(self.shares, dtype=np.float64)
        if shares.ndim != 1 or not ((shares > 0).all() and abs(shares.sum() - 1) < _SUMS_TO_ONE):
            raise ValueError(f"shares must be > 0 and sum to 1, got {self.shares!r}")
        # The stage of each row, by a permutation that depends on the rows, so that a restart repeats it.
        ends = np.rint(np.cumsum(shares) * len(X)).astype(np.int64)
        place = np.random.default_rng(int(digest(X, self.key), 16)).permutation(len(X))
        self.stage_ = np.asarray(np.searchsorted(ends, place, side="right"))
        if not np.bincount(self.stage_, minlength=len(shares)).all():
            raise ValueError(f"shares {self.shares!r} leave a stage empty for n_samples={len(X)} rows")
        priors = _Priors(self._new_network, X, self.stage_, self.temperature)
        mechanism = StagedResponse(
            stage=self.stage_, n_classes=len(self.classes_), epsilon=self.epsilon, advise=priors
        )
        self.answers_ = self._released(mechanism, X, codes)
        answers, last = self.answers_, int(self.stage_.max())
        if self.filtered and last:
            # without those of earlier stages that the last prior's model finds unlikely
            prior = priors(last, np.where(self.stage_ < last, answers, NOT_YET))
            k = int(PriorResponse(prior=prior, epsilon=self.epsilon).kept.mean())
            ranks = np.argsort(np.argsort(-priors.models[last].logits(X), axis=1), axis=1)
            unlikely = np.take_along_axis(ranks, answers[:, None], axis=1)[:, 0] >= k
            answers = np.where((self.stage_ < last) & unlikely, NOT_YET, answers)
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


@dataclass(slots=True, eq=False)
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
        finite = np.isfinite(logits).all(axis=1, keepdims=True)
        return np.asarray(softmax(np.where(finite, logits, 0.0), axis=1))


def _learn(network: TorchClassifier, X: np.ndarray, answers: np.ndarray) -> None:
    """Train on the rows with an answer, which serves as the label."""
    rows = np.flatnonzero(answers != NOT_YET)
    targets = torch.as_tensor(answers[rows], device=device(network.device))
    network.minimise(
        X[rows],
        lambda logits, batch: nn.functional.cross_entropy(logits, targets[batch]),
        name=f"MultiStage {digest(X, answers)}",
    )
