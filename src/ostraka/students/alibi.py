"""ALIBI: noisy labels once, and Bayes' rule in every step, with the model's own prediction as the prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from ostraka import _check
from ostraka._torch.classifier import digest
from ostraka._torch.devices import device
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, PriorResponse, RandomizedResponse
from ostraka.private import Private
from ostraka.students._labels import LabelStudent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka._torch.classifier import TorchClassifier
    from ostraka.ledger import Ledger

    Response = OneHotGaussian | OneHotLaplace | PriorResponse | RandomizedResponse

__all__ = ["ALIBI"]

_NAMED = ("auto", "laplace", "response")
_TRIED = 4096  # labels, to see which mechanism tells more
_PRIORS = ("model", "uniform")


class ALIBI(LabelStudent):
    """A classifier from public rows with private labels: additive Laplace with iterative Bayesian inference.

    The labels are asked once, and answered with noise. Training then corrects the answers again in
    every step: a row's target is the posterior of its label, given the answer, with the network's own
    prediction for the row as the prior. That is post-processing, and costs nothing.

    Parameters
    ----------
    network : TorchClassifier, optional
        Module, optimiser, epochs, batch size, device and seed. None: a small perceptron.
    epsilon : float, nats, optional
        The price of all labels together; pure, delta is 0. Or give a ``mechanism`` of its own price.
    mechanism : str or mechanism, default "auto"
        ``"laplace"``: :class:`~ostraka.mechanisms.OneHotLaplace`, as in the paper. ``"response"``:
        :class:`~ostraka.mechanisms.RandomizedResponse`, and so randomised response with the model as
        the prior. ``"auto"``: whichever tells more about a label, which ``epsilon`` and the number of
        classes decide; with ten classes, Laplace up to an epsilon of about 1.5. Or one of the four
        mechanisms on labels, without ``epsilon``.
    prior : str, default "model"
        Or ``"uniform"``: then targets stay as they are, and a large network learns the noise.
    temperature : float, default 1
        What the network's logits are divided by before they are a prior. 1 is the paper's; above, the
        answers count more than the network.
    ledger : Ledger, optional
        Where to charge. None: one in memory, for what this fit costs; fitted again to the same data,
        this estimator then asks nothing again. An estimator with a ledger does not pickle.
    key : str, default "labels"
        Public name of the release in the ledger. The same key again, in any process, gets the same
        answers and pays nothing: it stands for the same labels in the same order.

    Attributes
    ----------
    answers_ : array, shape (n_rows,) or (n_rows, n_classes)
        Public. What the mechanism answered.
    mechanism_ : mechanism
        What answered.
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
        A loss was not finite. ``network_`` is as after the last good epoch; the answers are in the
        ledger, and the next fit costs nothing.

    Guarantees
    ----------
    Everything public about a fitted estimator is differentially private for one label by ``curve_``: it
    is a function of the answers, the rows and the settings. Given: the rows, their number, and the
    classes. Without ``classes``, those are read from the labels, and are then known.
    Source: Malek et al. 2021, arXiv:2106.03408, Algorithm 3 and eq. 3.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ostraka import TorchClassifier
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
        """Ask the labels once, and learn from the answers.

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
        _check.one_of(allowed=_PRIORS, prior=self.prior)
        _check.positive(temperature=self.temperature)
        mechanism = self._response()
        self.answers_ = self._asked(mechanism, X, codes)
        self.mechanism_ = mechanism
        self.network_ = self._new_network()
        told = torch.as_tensor(
            mechanism.log_likelihood(self.answers_), dtype=torch.float32, device=device(self.network_.device)
        )
        settings = repr((mechanism, self.prior, self.temperature))
        self.network_.minimise(X, self._loss(told), name=f"ALIBI {digest(X, self.answers_, settings)}")
        return self

    def _response(self) -> Response:
        """What will be asked, checked against the classes."""
        n_classes = len(self.classes_)
        if isinstance(self.mechanism, str):
            _check.one_of(allowed=_NAMED, mechanism=self.mechanism)
            if self.epsilon is None:
                raise ValueError("epsilon must be given, or a mechanism that has a price of its own")
            _check.positive(epsilon=self.epsilon)
            made: dict[str, OneHotLaplace | RandomizedResponse] = {
                "laplace": OneHotLaplace(n_classes=n_classes, scale=2 / self.epsilon),
                "response": RandomizedResponse(n_classes=n_classes, epsilon=self.epsilon),
            }
            return made[self.mechanism] if self.mechanism in made else min(made.values(), key=_unknown)
        if self.epsilon is not None:
            raise ValueError(f"epsilon is the mechanism's own: leave it out, got {self.epsilon!r}")
        known = (
            self.mechanism.prior.shape[1]
            if isinstance(self.mechanism, PriorResponse)
            else self.mechanism.n_classes
        )
        if known != n_classes:
            raise ValueError(
                f"mechanism must be for {n_classes} classes, got {known}: name all with classes="
            )
        return self.mechanism

    def _loss(self, told: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Cross entropy to the posteriors, of logits and row numbers."""
        entropy = nn.functional.cross_entropy
        if self.prior == "uniform":
            fixed = torch.softmax(told, dim=1)
            return lambda logits, rows: entropy(logits, fixed[rows])
        return lambda logits, rows: entropy(
            logits, posterior(told[rows], logits, temperature=self.temperature)
        )


def _unknown(mechanism: OneHotLaplace | RandomizedResponse) -> float:
    """What an answer leaves unknown of its label, in nats, where all classes are alike; nothing private."""
    n_classes = mechanism.n_classes
    labels = np.arange(_TRIED) % n_classes
    answers = mechanism.release(Private(labels, mechanism.promise), rng=np.random.default_rng(0))
    known = mechanism.posterior(answers, np.full(n_classes, 1 / n_classes))
    return float(-np.log(known[np.arange(_TRIED), labels]).mean())


def posterior(told: torch.Tensor, logits: torch.Tensor, *, temperature: float = 1.0) -> torch.Tensor:
    """Equation 3: softmax of log likelihood plus log prior, which is a constant for the gradient.

    The prior is the softmax of the logits. What normalises it all classes of a row share.
    """
    return torch.softmax(told + logits.detach() / temperature, dim=1)
