"""ALIBI: noisy labels, corrected in every step by Bayes' rule with the model's prediction as prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from ostraka import _check
from ostraka._torch.checkpoints import digest
from ostraka._torch.devices import device
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, PriorResponse, RandomizedResponse
from ostraka.private import Private
from ostraka.students._labels import LabelStudent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.ledger import Ledger
    from ostraka.networks import TorchClassifier

    Response = OneHotGaussian | OneHotLaplace | PriorResponse | RandomizedResponse

__all__ = ["ALIBI"]

_NAMED = ("auto", "laplace", "response")
_TRIED = 4096  # simulated labels, to compare the information of two mechanisms
_PRIORS = ("model", "uniform")


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
        ``"laplace"``: :class:`~ostraka.mechanisms.OneHotLaplace`, as in the paper. ``"response"``:
        :class:`~ostraka.mechanisms.RandomizedResponse`, and so randomised response with the model as
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

    def __init__(
        self,
        network: TorchClassifier | None = None,
        *,
        epsilon: float | None = None,
        mechanism: str | Response = "auto",
        prior: str = "model",
        temperature: float = 1.0,
        ledger: Ledger | None = None,
        key: str = "labels",
    ) -> None:
        self.network = network
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.prior = prior
        self.temperature = temperature
        self.ledger = ledger
        self.key = key

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
        _check.one_of(allowed=_PRIORS, prior=self.prior)
        _check.positive(temperature=self.temperature)
        mechanism = self._response()
        self.answers_ = self._released(mechanism, X, codes)
        self.mechanism_ = mechanism
        self.network_ = self._new_network()
        likelihoods = torch.as_tensor(
            mechanism.log_likelihood(self.answers_), dtype=torch.float32, device=device(self.network_.device)
        )
        settings = repr((mechanism, self.prior, self.temperature))
        self.network_.minimise(X, self._loss(likelihoods), name=f"ALIBI {digest(X, self.answers_, settings)}")
        return self

    def _response(self) -> Response:
        """The mechanism, checked against the classes."""
        n_classes = len(self.classes_)
        if isinstance(self.mechanism, str):
            _check.one_of(allowed=_NAMED, mechanism=self.mechanism)
            if self.epsilon is None:
                raise ValueError("epsilon must be given, or a mechanism with its own price")
            _check.positive(epsilon=self.epsilon)
            made: dict[str, OneHotLaplace | RandomizedResponse] = {
                "laplace": OneHotLaplace(n_classes=n_classes, scale=2 / self.epsilon),
                "response": RandomizedResponse(n_classes=n_classes, epsilon=self.epsilon),
            }
            return made[self.mechanism] if self.mechanism in made else min(made.values(), key=_unknown)
        if self.epsilon is not None:
            raise ValueError(f"epsilon must be None if mechanism has its own price, got {self.epsilon!r}")
        known = self.mechanism.n_classes
        if known != n_classes:
            raise ValueError(
                f"mechanism must be for {n_classes} classes, got {known}: name all with classes="
            )
        return self.mechanism

    def _loss(self, log_likelihoods: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Cross entropy of the posteriors, as a function of logits and row numbers."""
        entropy = nn.functional.cross_entropy
        if self.prior == "uniform":
            fixed = torch.softmax(log_likelihoods, dim=1)
            return lambda logits, rows: entropy(logits, fixed[rows])
        return lambda logits, rows: entropy(
            logits, posterior(log_likelihoods[rows], logits, temperature=self.temperature)
        )


def _unknown(mechanism: OneHotLaplace | RandomizedResponse) -> float:
    """The entropy of a label given its answer, in nats, for equal classes. It uses no private data."""
    n_classes = mechanism.n_classes
    labels = np.arange(_TRIED) % n_classes
    answers = mechanism.release(Private(labels, mechanism.promise), rng=np.random.default_rng(0))
    known = mechanism.posterior(answers, np.full(n_classes, 1 / n_classes))
    return float(-np.log(known[np.arange(_TRIED), labels]).mean())


def posterior(
    log_likelihoods: torch.Tensor, logits: torch.Tensor, *, temperature: float = 1.0
) -> torch.Tensor:
    """Equation 3: the softmax of log likelihood plus log prior, without a gradient through the prior.

    The prior is the softmax of the logits. Its normalisation is the same for all classes and cancels.
    """
    return torch.softmax(log_likelihoods + logits.detach() / temperature, dim=1)
