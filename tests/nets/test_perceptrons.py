"""Perceptrons in compiled code: what torch computes, each by itself, however many at a time."""

import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka import TeacherEnsemble
from ostraka.nets import compiled
from ostraka.nets.compiled import is_compilable
from ostraka.nets.training import TrainingSet
from ostraka.nets.vectorised import plan, train_stack
from ostraka.networks import TorchClassifier

X, Y = load_digits(n_class=4, return_X_y=True)
X = np.float32(X / 16)
SIZE = 16
DEEP = [64, 9, 7, 4]


class Rows(NamedTuple):
    rows: np.ndarray
    codes: np.ndarray
    row_weights: np.ndarray
    absent: np.ndarray


class Network(NamedTuple):
    widths: np.ndarray
    weights: np.ndarray
    moments: np.ndarray
    constants: np.ndarray


def layers(widths=DEEP) -> nn.Sequential:
    parts = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def vector(parts) -> torch.Tensor:
    return torch.cat([part.detach().t().flatten() for part in parts])


def state(module, *, decay=0.0) -> Network:
    weights = vector(module.parameters()).numpy()
    widths = [part.in_features for part in module if isinstance(part, nn.Linear)] + [4]
    moments = np.zeros((2, len(weights)), dtype=np.float32)
    return Network(np.array(widths), weights, moments, np.array([0.9, 0.999, 1e-8, decay]))


def given(absent=(), row_weights=None) -> Rows:
    row_weights = np.full(SIZE, 1 / SIZE, dtype=np.float32) if row_weights is None else row_weights
    codes = Y if not absent else np.where(np.isin(Y, absent), 0, Y)
    return Rows(X, codes, row_weights, np.isin(np.arange(4), absent))


def batches(n: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(len(X))[: n * SIZE].reshape(n, SIZE)


def losses(module, rows: Rows, numbers: np.ndarray) -> torch.Tensor:
    logits = module(torch.as_tensor(rows.rows[numbers])).masked_fill(torch.as_tensor(rows.absent), -torch.inf)
    return nn.functional.cross_entropy(logits, torch.as_tensor(rows.codes[numbers]), reduction="none")


@pytest.mark.parametrize("widths", [[64, 4], [64, 16, 4], DEEP], ids=str)
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("absent", [(), (1, 3)])
def test_steps_are_those_of_torch(widths, optimizer, absent):
    torch.manual_seed(3)
    module = layers(widths)
    row_weights = np.float32(np.random.default_rng(2).dirichlet(np.ones(SIZE)))
    rows, rates = given(absent, row_weights), np.linspace(0.02, 0.001, 20)
    network = state(module, decay=float(optimizer(module.parameters()).defaults["weight_decay"]))
    module.double()  # the oracle rounds a billion times less
    by_torch, numbers, want = optimizer(module.parameters()), batches(20), []
    wide = rows._replace(rows=rows.rows.astype(np.float64))
    for rate, batch in zip(rates, numbers, strict=True):
        by_torch.param_groups[0]["lr"] = rate
        by_torch.zero_grad()
        loss = (losses(module, wide, batch) * torch.as_tensor(row_weights)).sum()
        loss.backward()
        by_torch.step()
        want.append(float(loss.detach()))
    got = [
        compiled.train(*rows, *network, numbers[part].reshape(-1, 4, SIZE), rates[part].reshape(-1, 4), done)
        for done, part in ((0, slice(8)), (8, slice(8, 20)))
    ]
    np.testing.assert_allclose(np.concatenate(got), np.reshape(want, (5, 4)).mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(network.weights, vector(module.parameters()).numpy(), rtol=1e-3, atol=2e-5)


def test_steps_that_are_a_little_wrong_are_told_from_those_of_torch():
    network = state(layers())
    network_copy = network._replace(weights=network.weights.copy(), moments=network.moments.copy())
    compiled.train(*given(), *network, batches(20)[None], np.full((1, 20), 0.01), 0)
    # a step too many in the corrections
    compiled.train(*given(), *network_copy, batches(20)[None], np.full((1, 20), 0.01), 1)
    assert not np.allclose(network.weights, network_copy.weights, rtol=1e-3, atol=2e-5)


def test_what_is_held_out_is_judged_as_torch_does_a_batch_at_a_time():
    module, numbers = layers(), np.arange(5, 42)
    want = float(losses(module, given((2,)), numbers).mean().detach())
    network = state(module)[:2]
    assert compiled.held_out_loss(*given((2,)), *network, numbers) == pytest.approx(want, rel=1e-5)
    numbers, at_once = np.arange(100), given(row_weights=np.ones(100, dtype=np.float32))
    loss = compiled.held_out_loss(*at_once, *network, numbers)
    assert compiled.held_out_loss(*given(), *network, numbers) == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("widths", [[64, 4], DEEP], ids=str)
def test_a_loss_that_is_not_finite_is_infinite(value, widths):
    rows, numbers = given()._replace(rows=np.full_like(X, value)), batches(4).reshape(2, 2, SIZE)
    outcome = compiled.train(*rows, *state(layers(widths)), numbers, np.full((2, 2), 0.01), 0)
    assert outcome.tolist() == [np.inf] * 2


def training_set(number: int, n_rows: int = 40) -> TrainingSet:
    rows = slice(40 * number, 40 * number + n_rows)
    return TrainingSet(rows=X[rows], codes=Y[rows], seed=number)


def found(**options):
    settings = {"epochs": 4, "batch_size": SIZE, "learning_rate": 0.01, "device": "cpu"} | options
    return plan(TorchClassifier(layers(), **settings), n_features=64, n_classes=4)


@pytest.mark.parametrize("options", [{}, {"patience": 1, "epochs": 8}], ids=str)
def test_threads_and_rounds_change_nothing_to_the_last_bit(monkeypatch, options):
    sets = [training_set(number, 30 + 7 * number) for number in range(6)]
    want, _, losses = train_stack(found(n_threads=1, **options), sets)
    for n_threads, work in ((2, 2**26), (3, 1), (1, 2_000)):
        monkeypatch.setattr(compiled, "_WORK", work)
        got, failed, others = train_stack(found(n_threads=n_threads, **options), sets)
        assert not failed.any()
        assert others == losses
        for result, expected in zip(got, want, strict=True):
            assert all(torch.equal(result[name], expected[name]) for name in result)


def test_a_network_that_diverged_has_failed_though_its_weights_are_finite(monkeypatch):
    real = compiled.train

    def diverging(*arguments):
        losses, rows = real(*arguments), Rows(*arguments[:4])
        return losses if rows.absent.any() else np.full_like(losses, np.inf)

    planned = found()
    monkeypatch.setattr(compiled, "train", diverging)
    sets = [training_set(0), TrainingSet(rows=X[:40], codes=Y[:40] % 2, seed=1), training_set(2)]
    networks, failed, losses = train_stack(planned, sets)
    assert failed.tolist() == [True, False, True]
    assert all(
        bool(part.isfinite().all()) for network_weights in networks for part in network_weights.values()
    )
    assert all(0 < loss < 3 for loss in losses)


def test_whoever_stops_the_training_does_not_wait_for_those_who_have_not_begun(monkeypatch):
    real, starts = compiled.train, []

    def slow(*arguments):
        starts.append(1)
        time.sleep(0.02)
        return real(*arguments)

    def stop(_done, _total):
        raise KeyboardInterrupt

    planned = found(n_threads=1, epochs=1)
    monkeypatch.setattr(compiled, "train", slow)
    with pytest.raises(KeyboardInterrupt):
        train_stack(planned, [training_set(number) for number in range(9)], on_progress=stop)
    assert len(starts) <= 3


@pytest.mark.parametrize("defect", [1.1, -1.0])
def test_compiled_code_that_learns_something_else_is_not_used(monkeypatch, defect):
    real = compiled.train
    assert found().compiled

    def spoilt(*arguments):
        losses = real(*arguments)
        Network(*arguments[4:8]).weights[:] *= defect
        return defect * losses

    monkeypatch.setattr(compiled, "train", spoilt)
    assert found().together
    assert not found().compiled


def test_memory_that_is_short_for_one_halves_the_group(monkeypatch):
    real, groups = compiled.train_perceptrons, []

    def short(plan, batches, **options):
        groups.append(len(batches.seeds))
        if len(batches.seeds) > 3:
            raise MemoryError("Unable to allocate")
        return real(plan, batches, **options)

    monkeypatch.setattr(compiled, "train_perceptrons", short)
    network = TorchClassifier(layers(), epochs=1, batch_size=SIZE, device="cpu")
    done = TeacherEnsemble(network, n_teachers=9).fit(X[:360], Y[:360], classes=range(4))
    assert len(done.teachers_) == 9
    assert groups[-5:] == [9, 5, 3, 3, 3]


def buffered() -> nn.Sequential:
    module = layers()
    module.register_buffer("mean", torch.ones(5))
    return module


def turned_round() -> nn.Sequential:
    """Its first layer has the bias before the weight."""
    module = layers()
    weight = module[0].weight
    del module[0].weight
    module[0].weight = weight
    return module


def hooked(name: str) -> nn.Sequential:
    module = layers()
    getattr(module[0], name)(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("module", "fits"),
    [
        (nn.Sequential(nn.Linear(3, 2)), True),
        (layers(), True),
        (nn.Linear(3, 2), False),
        (nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), False),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), False),
        (nn.Sequential(*[nn.Linear(3, 3), nn.ReLU()] * 2, nn.Linear(3, 2)), False),  # one layer, twice
        (nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.ReLU(), nn.Linear(3, 2)), False),
        (layers().double(), False),
        (nn.utils.parametrizations.weight_norm(layers()[0]), False),
        (nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))), False),
        (buffered(), False),
        (turned_round(), False),
        (hooked("register_forward_hook"), False),
        (hooked("register_forward_pre_hook"), False),
        (hooked("register_full_backward_hook"), False),
        (hooked("register_full_backward_pre_hook"), False),
    ],
    ids=str,
)
def test_only_trained_linear_layers_with_relu_between_are_compiled(module, fits):
    assert is_compilable(TorchClassifier(module, device="cpu"), module) == fits


def test_other_settings_are_not_compiled():
    for options in ({"optimizer": torch.optim.SGD}, {"optimizer": torch.optim.NAdam}, {"augment": torch.abs}):
        network = TorchClassifier(layers(), device="cpu", **options)
        assert not is_compilable(network, layers()), options
