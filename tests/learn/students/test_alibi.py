"""ALIBI: Bayes' rule against an independent one, one charge whatever happens, and errors before it."""

from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from ostraka.learn.students.labels import posterior
from ostraka.ledger import LedgerError
from ostraka.mechanisms import OneHotGaussian, OneHotLaplace, PriorResponse, RandomizedResponse
from ostraka.networks import TorchClassifier
from ostraka.students import ALIBI
from tests.learn.students.label_learners import MOST, X, Y, book, network

pytestmark = pytest.mark.usefixtures("same_draws")  # what is learned from noisy labels is a matter of luck


def failing(*_, **__):
    raise KeyboardInterrupt


def test_targets_are_those_of_equation_3():
    """f(o_c) = -sum_k |o_k - [c = k]|, softmax of f / lambda + log prior, in 50 digits."""
    rng = np.random.default_rng(0)
    scale, answers, logits = 0.4, rng.laplace(0.1, 0.4, (6, 4)), rng.normal(0, 2, (6, 4))
    log_likelihood = torch.as_tensor(OneHotLaplace(n_classes=4, scale=scale).log_likelihood(answers))
    ours = posterior(log_likelihood, torch.as_tensor(logits)).numpy()
    with mpmath.workdps(50):
        for row in range(6):
            o = [mpmath.mpf(value) for value in answers[row].tolist()]
            prior = [mpmath.e ** mpmath.mpf(value) for value in logits[row].tolist()]
            apart = [mpmath.fsum(abs(o[k] - (c == k)) for k in range(4)) for c in range(4)]
            weight = [mpmath.e ** (-apart[c] / scale) * prior[c] for c in range(4)]
            exact = [float(entry / mpmath.fsum(weight)) for entry in weight]
            np.testing.assert_allclose(ours[row], exact, rtol=1e-12)


@pytest.mark.parametrize(
    "mechanism",
    [
        RandomizedResponse(n_classes=3, epsilon=1.5),
        PriorResponse(prior=[[0.6, 0.3, 0.1]] * 20, epsilon=1.5),
        OneHotLaplace(n_classes=3, scale=1.1),
        OneHotGaussian(n_classes=3, sigma=1.4),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_any_mechanism_on_labels_serves_with_its_own_rule(mechanism):
    rows, labels = X[:20], np.arange(20) % 3
    model = ALIBI(network(), mechanism=mechanism).fit(rows, labels)
    assert model.mechanism_ is mechanism
    assert model.curve_ == mechanism.curve()
    assert model.answers_.shape[0] == 20
    prior = model.predict_proba(rows)
    log_likelihood = torch.as_tensor(mechanism.log_likelihood(model.answers_))
    ours = posterior(log_likelihood, torch.as_tensor(np.log(prior)))
    np.testing.assert_allclose(ours, mechanism.posterior(model.answers_, prior), rtol=1e-10)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_step_goes_from_the_prediction_to_the_posterior_and_not_through_the_prior(temperature):
    log_likelihood = torch.tensor([[0.0, 2.0, -1.0]])
    logits = torch.tensor([[1.0, -0.5, 0.3]], requires_grad=True)
    model = ALIBI(epsilon=1.0, temperature=temperature)
    model._loss(log_likelihood)(logits, torch.tensor([0])).backward()
    before = np.exp([1.0, -0.5, 0.3]) / np.exp([1.0, -0.5, 0.3]).sum()
    after = np.exp([0.0, 2.0, -1.0]) * np.exp(np.array([1.0, -0.5, 0.3]) / temperature)
    np.testing.assert_allclose(logits.grad[0], before - after / after.sum(), rtol=1e-5)


def test_at_temperature_1_it_maximises_the_likelihood_of_the_answers():
    """The gradient is that of -log sum_c prior(c) P(answer | c): training cannot be led astray by itself."""
    log_likelihood, rows = (
        torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double(),
        torch.arange(5),
    )
    first, second = (torch.linspace(-1, 1, 20).double().reshape(5, 4).requires_grad_() for _ in range(2))
    ALIBI(epsilon=1.0)._loss(log_likelihood)(first, rows).backward()
    (-torch.logsumexp(torch.log_softmax(second, dim=1) + log_likelihood, dim=1).mean()).backward()
    np.testing.assert_allclose(first.grad, second.grad, rtol=1e-12)


def test_training_is_algorithm_3_written_out():
    """Every step of a fit: targets from the density of the answers, eq. 2, and that step's prediction."""
    model = ALIBI(network(epochs=1, learning_rate=0.01), epsilon=2.5, mechanism="laplace").fit(X, Y)
    apart = np.stack([np.abs(model.answers_ - corner).sum(axis=1) for corner in np.eye(10)], axis=1)
    density = torch.as_tensor(-apart * 2.5 / 2, dtype=torch.float32)

    def step(logits, rows):
        with torch.no_grad():
            prior = torch.softmax(logits, dim=1)
            target = torch.exp(density[rows]) * prior
            target = target / target.sum(dim=1, keepdim=True)
        return -(target * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()

    written = network(epochs=1, learning_rate=0.01)
    written.classes_, written.n_features_in_ = np.arange(10), 64
    written.minimise(X.astype(np.float32), step, name="Algorithm 3")
    np.testing.assert_allclose(model.predict_proba(X), written.predict_proba(X), atol=1e-4)


def test_with_a_uniform_prior_targets_stay():
    log_likelihood, rows = torch.tensor([[0.0, 1.0], [3.0, 0.0]]), torch.tensor([1])
    logits = torch.tensor([[5.0, -5.0]], requires_grad=True)
    ALIBI(epsilon=1.0, prior="uniform")._loss(log_likelihood)(logits, rows).backward()
    fixed = np.exp([3.0, 0.0]) / np.exp([3.0, 0.0]).sum()
    now = np.exp([5.0, -5.0]) / np.exp([5.0, -5.0]).sum()
    np.testing.assert_allclose(logits.grad[0], now - fixed, rtol=1e-4)


@pytest.mark.parametrize("mechanism", ["laplace", "response"])
def test_without_noise_it_is_ordinary_training(mechanism):
    model = ALIBI(network(epochs=4), epsilon=MOST, mechanism=mechanism).fit(X, Y)
    plain = network(epochs=4).fit(X.astype(np.float32), Y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(model.network_.losses_, plain.losses_, rtol=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "n_classes", "kind"),
    [
        (0.5, 10, OneHotLaplace),
        (1.0, 10, OneHotLaplace),
        (2.0, 10, RandomizedResponse),
        (6.0, 10, RandomizedResponse),
        (1.0, 2, RandomizedResponse),
    ],
)
def test_the_mechanism_that_tells_more_is_taken(epsilon, n_classes, kind):
    """docs/label-privacy.md has what both leave unknown. Of two classes, a response always tells more."""
    model = ALIBI(network(epochs=1), epsilon=epsilon).fit(X[:200], Y[:200] % n_classes)
    assert isinstance(model.mechanism_, kind)
    assert model.curve_.rdp[-1] == epsilon


@pytest.mark.statistical
def test_it_learns_where_single_answers_are_mostly_wrong():
    """At epsilon 2 the noisy row's largest entry is the label in about one of four."""
    model = ALIBI(network(epochs=20, learning_rate=3e-3), epsilon=2.0, mechanism="laplace").fit(X, Y)
    assert (model.answers_.argmax(axis=1) == Y).mean() < 0.4
    assert model.score(X, Y) > 0.6  # 0.8 on most days; 0.1 by chance


def test_the_price_is_the_mechanisms_and_pure():
    with book() as ledger:
        model = ALIBI(network(), epsilon=1.0, mechanism="laplace", ledger=ledger).fit(X, Y)
        assert model.curve_ == OneHotLaplace(n_classes=10, scale=2.0).curve()
        assert model.curve_.rdp[-1] == 1.0
        assert ledger.epsilon() == pytest.approx(model.curve_.epsilon(delta=1e-6), rel=1e-9)
        assert (ledger.count(), ledger.unit) == (1, "label")
        assert not ledger.simulation


@pytest.mark.parametrize(
    ("home", "name"),
    [(OneHotLaplace, "release"), (TorchClassifier, "minimise")],
    ids=["between charge and answer", "in training"],
)
def test_a_crash_is_not_paid_twice(tmp_path, monkeypatch, home, name):
    with book(where=tmp_path / "ledger") as ledger, monkeypatch.context() as patched:
        patched.setattr(home, name, failing)
        with pytest.raises(KeyboardInterrupt):
            ALIBI(network(), epsilon=3.0, mechanism="laplace", ledger=ledger).fit(X, Y)
        assert ledger.count() == 1
        stored = ledger.answer(1)
    with book(where=tmp_path / "ledger") as ledger:
        model = ALIBI(network(), epsilon=3.0, mechanism="laplace", ledger=ledger).fit(X, Y)
        assert ledger.count() == 1
        np.testing.assert_array_equal(ledger.answer(1), model.answers_)
        assert (stored is None) == (name == "release")
        if stored is not None:
            np.testing.assert_array_equal(stored, model.answers_)


def test_without_a_ledger_the_same_labels_are_asked_once_by_one_estimator():
    model = ALIBI(network(), epsilon=1.3)
    first = model.fit(X, Y).answers_
    again = model.set_params(network__learning_rate=1e-4).fit(X, Y).answers_
    np.testing.assert_array_equal(first, again)
    assert (model.fit(X, (Y + 1) % 10).answers_ != first).any()
    assert (clone(model).fit(X, Y).answers_ != first).any()


def test_a_key_of_another_release_is_refused():
    with book() as ledger:
        ALIBI(network(), epsilon=1.0, ledger=ledger).fit(X, Y)
        with pytest.raises(ValueError, match=r"key 'labels' names 1797 labels"):
            ALIBI(network(), epsilon=1.0, ledger=ledger).fit(X[:90], Y[:90], classes=range(10))
        with pytest.raises(LedgerError, match="another question"):
            ALIBI(network(), epsilon=2.0, ledger=ledger).fit(X, Y)
        assert ledger.count() == 1


class Probabilities(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 50.0}, "scale must be from 0.05"),
        ({"epsilon": 50.0, "mechanism": "laplace"}, "scale must be from 0.05"),
        ({"epsilon": None}, "epsilon must be given"),
        ({"mechanism": "gaussian"}, "mechanism must be one of auto, laplace, response"),
        (
            {"mechanism": OneHotLaplace(n_classes=10, scale=2.0)},
            "must be None if mechanism has its own price",
        ),
        ({"epsilon": None, "mechanism": OneHotLaplace(n_classes=9, scale=2)}, "for 10 classes, got 9"),
        ({"epsilon": None, "mechanism": PriorResponse(prior=[[0.1] * 10], epsilon=1.0)}, "one for each"),
        ({"prior": "mine"}, "prior must be one of model, uniform"),
        ({"network": network(module=lambda *_: Probabilities())}, "ends in a softmax"),
        ({"network": network(module=lambda *_: nn.Linear(64, 3))}, "must return logits"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_charged(settings, message):
    with book(100.0) as ledger:
        model = ALIBI(**{"network": network(), "epsilon": 1.0, "ledger": ledger} | settings)
        with pytest.raises(ValueError, match=message):
            model.fit(X, Y)
        assert ledger.count() == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_charged():
    with book() as ledger:
        with pytest.raises(ValueError, match="Type device='cpu'"):
            ALIBI(network(device="cuda"), epsilon=1.0, ledger=ledger).fit(X, Y)
        assert ledger.count() == 0


def test_a_checkpoint_without_a_ledger_is_refused(tmp_path):
    with pytest.raises(ValueError, match="checkpoint needs a ledger"):
        ALIBI(network(checkpoint=tmp_path / "weights"), epsilon=1.0).fit(X, Y)
    with book() as ledger:
        model = ALIBI(network(checkpoint=tmp_path / "weights"), epsilon=1.0, ledger=ledger).fit(X, Y)
        again = ALIBI(network(checkpoint=tmp_path / "weights"), epsilon=1.0, ledger=ledger).fit(X, Y)
        np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


def test_classes_that_are_named_are_no_secret_of_the_labels():
    model = ALIBI(network(), epsilon=2.0).fit(X[:200], Y[:200] % 3, classes=[0, 1, 2, 7])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 7])
    assert model.predict_proba(X).shape == (len(X), 4)
    words = ALIBI(network(), epsilon=2.0).fit(X[:200], np.where(Y[:200] > 4, "high", "low"))
    assert set(words.predict(X)) <= {"high", "low"}


def test_any_optimiser_and_module_will_do():
    sgd = partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=1e-4)
    student = network(module=nn.Sequential(nn.Linear(64, 20), nn.Tanh(), nn.Linear(20, 10)), optimizer=sgd)
    model = ALIBI(student, epsilon=MOST).fit(X, Y)
    assert isinstance(model.network_.module_[1], nn.Tanh)
    assert student is not model.network_
