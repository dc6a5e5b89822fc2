"""A network as a scikit-learn classifier: the contract, the errors, the same weights for the same seed."""

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from ostraka.core.check import TrainingDiverged
from ostraka.nets.generative import convolutional, strided
from ostraka.nets.training import device, threads
from ostraka.networks import TorchClassifier
from tests.learn.students.conftest import checks_of_scikit_learn

DIGITS = load_digits()
X, X_TEST, Y, Y_TEST = train_test_split(DIGITS.data / 16, DIGITS.target, random_state=0)
QUICK = {"epochs": 12, "batch_size": 32, "learning_rate": 0.01, "random_state": 0}


@checks_of_scikit_learn(TorchClassifier(epochs=10, learning_rate=0.04, batch_size=16, random_state=0))
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("module", "least"),
    [("perceptron", 0.94), pytest.param("convolutional", 0.95, marks=pytest.mark.slow), ("wide-resnet", 0.9)],
)
def test_the_named_networks_learn_digits(module, least):
    epochs = 2 if module == "wide-resnet" else 12
    network = TorchClassifier(module, **QUICK | {"epochs": epochs}).fit(X, Y)
    assert network.score(X_TEST, Y_TEST) > least
    assert network.losses_[-1] < network.losses_[0]


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 13, 18)])
def test_convolutions_give_one_logit_a_class_whatever_the_sides_are(shape):
    images = torch.zeros(2, math.prod(shape))
    for make in (convolutional, strided):
        assert make(images.shape[1], 5, shape=shape).eval()(images).shape == (2, 5)


def test_probabilities_are_the_softmax_of_the_logits():
    network = TorchClassifier(**QUICK | {"epochs": 2}).fit(X, Y)
    logits = network.logits(X_TEST)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(network.predict_proba(X_TEST), expected, rtol=1e-12)
    assert (network.predict(X_TEST) == logits.argmax(axis=1)).all()


def layers():
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.mark.parametrize("module", ["perceptron", layers(), lambda _rows, _classes: layers()])
def test_the_seed_decides_the_weights_whatever_the_module_is(module):
    first, second = (TorchClassifier(module, **QUICK | {"epochs": 1}).fit(X, Y) for _ in "ab")
    reseeded = TorchClassifier(module, **QUICK | {"epochs": 1, "random_state": 1}).fit(X, Y)
    assert (first.logits(X) == second.logits(X)).all()
    assert (first.logits(X) != reseeded.logits(X)).any()


def test_a_module_is_copied_not_changed():
    module = layers()
    before = [p.clone() for p in module.parameters()]
    network = TorchClassifier(module, **QUICK | {"epochs": 1})
    network.fit(X, Y)
    clone(network).fit(X, Y)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_interrupted_training_is_the_same_as_whole_and_a_checkpoint_of_other_rows_is_refused(tmp_path):
    uninterrupted = TorchClassifier(**QUICK | {"epochs": 4}).fit(X, Y)

    def stop(_stage, done, _total):
        if done == 2:
            raise KeyboardInterrupt

    half = TorchClassifier(**QUICK | {"epochs": 4}, checkpoint=tmp_path / "net.pt", progress=stop)
    with pytest.raises(KeyboardInterrupt):
        half.fit(X, Y)
    network = clone(half).set_params(progress=None).fit(X, Y)
    assert (network.logits(X_TEST) == uninterrupted.logits(X_TEST)).all()
    with pytest.raises(ValueError, match="belongs to another training"):
        clone(network).fit(X, Y[::-1])


def test_augmentation_sees_training_batches_only():
    batches = []

    def shift(rows):
        batches.append(rows.shape)
        return rows + 0.01 * torch.randn_like(rows)

    network = TorchClassifier(**QUICK | {"epochs": 1, "batch_size": 100}, augment=shift).fit(X, Y)
    assert batches == [(100, 64)] * 13  # 1,347 rows
    network.predict(X_TEST)
    assert len(batches) == 13


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(64, 10), nn.Softmax(dim=1)), "ends in a softmax"),
        (nn.Sequential(nn.Linear(64, 10), nn.LogSoftmax(dim=1)), "ends in a softmax"),
        (nn.Linear(64, 9), r"logits of shape \(n, 10\).*got \(2, 9\)"),
        (nn.Sequential(nn.Linear(64, 10), nn.Flatten(0)), "logits of shape"),
        (3, "module must be a name"),
        ("transformer", "module must be one of perceptron"),
    ],
)
def test_a_module_without_logits_is_refused(module, message):
    with pytest.raises(ValueError, match=message):
        TorchClassifier(module, **QUICK).fit(X, Y)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"learning_rate": 0}, "learning_rate must be"),
        ({"schedule": "steps"}, "schedule must be one of"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available"),
        ({"device": "abacus"}, "device 'abacus' is not available"),
        ({"n_threads": 0}, "n_threads must be"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        TorchClassifier(**QUICK | wrong).fit(X, Y)


def test_a_loss_that_is_not_finite_stops_at_the_last_good_epoch():
    network = TorchClassifier(**QUICK | {"learning_rate": 1e30, "optimizer": torch.optim.SGD})
    with pytest.raises(TrainingDiverged, match="Try a smaller learning_rate"):
        network.fit(X, Y)
    assert np.isfinite(network.logits(X)).all()


def test_threads_are_given_back(monkeypatch):
    before = torch.get_num_threads()
    with threads(3) as inside:
        assert (inside, torch.get_num_threads()) == (3, 3)
        monkeypatch.setattr("os.sched_getaffinity", lambda _: {5}, raising=False)
        with threads(None) as allowed:  # at most the processors that this process may use
            assert (allowed, torch.get_num_threads()) == (1, 1)
    assert torch.get_num_threads() == before


def test_auto_is_the_gpu_if_there_is_one():
    assert device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
