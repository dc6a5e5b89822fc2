"""Stacks: networks side by side are what they are alone, and none touches another."""

import itertools
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from ostraka.nets import stacks, vectorised
from ostraka.nets.stacks import Targets, TrainedNetwork, backpropagate, predict_classes, retry_with_half
from ostraka.nets.training import StackBatches, TrainingSet, _split, epoch_seed
from ostraka.nets.vectorised import CannotVectoriseError, plan, train_stack
from ostraka.networks import TorchClassifier

X, Y = load_digits(n_class=4, return_X_y=True)
X = np.float32(X / 16)


class Residual(nn.Module):
    """No sequence of layers: vmap has to do it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.outer(x + torch.tanh(self.inner(x)))


class Branching(nn.Sequential):
    """What it does depends on its rows, which vmap cannot do."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else x + 1)


class Looking(nn.Module):
    """Reads rows as places in a table: a strange row raises."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.outer = nn.Embedding(2, 3), nn.Linear(64 * 3, 4)

    def forward(self, x):
        return self.outer(self.table((x > 0.5).long() + (x > 1e20).long()).flatten(1))


class Gambling(nn.Linear):
    """Draws from numpy's global generator."""

    def forward(self, x):
        return super().forward(x) + 0 * np.random.random()  # noqa: NPY002


def layers(*between: nn.Module) -> nn.Module:
    # no bias: before a normalisation its gradient is but rounding, which Adam makes as large as any
    return nn.Sequential(nn.Linear(64, 16, bias=False), *between, nn.Linear(16, 4))


AGAIN = nn.ReLU()
MODULES = {
    "perceptron": "perceptron",
    "convolutional": "convolutional",
    "normalised": layers(nn.BatchNorm1d(16), nn.ReLU()),
    "dropping": layers(nn.ReLU(), nn.Dropout(0.3)),
    "one layer twice": layers(AGAIN, nn.Linear(16, 16), AGAIN, nn.Dropout(0.0)),
    "residual": Residual(),
    "branching": Branching(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)),
    "looking": Looking(),
    "gambling": Gambling(64, 4),
}
ALONE = {"branching", "looking", "gambling"}


def network(module="perceptron", **options) -> TorchClassifier:
    usual = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "n_threads": 1, "device": "cpu"}
    return TorchClassifier(module, **usual | options)


def planned(module="perceptron", **options) -> stacks.TrainingPlan:
    return plan(network(module, **options), n_features=64, n_classes=4)


def training_set(number: int, n_rows: int = 40) -> TrainingSet:
    rows = slice(40 * number, 40 * number + n_rows)
    return TrainingSet(rows=X[rows], codes=Y[rows], seed=number)


def training_sets(*sizes: int) -> list[TrainingSet]:
    return [training_set(number, n_rows) for number, n_rows in enumerate(sizes)]


def same(first: dict, second: dict) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def near(first: dict, second: dict) -> bool:
    return all(torch.allclose(first[name], second[name], rtol=1e-3, atol=1e-5) for name in first)


@pytest.mark.parametrize("name", MODULES)
def test_what_can_be_stacked_is_found_out_on_made_up_rows(name):
    assert planned(MODULES[name]).together == (name not in ALONE)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("perceptron", {}),
        ("perceptron", {"schedule": "cosine", "epochs": 3}),
        ("perceptron", {"optimizer": torch.optim.AdamW}),
        ("perceptron", {"optimizer": torch.optim.SGD, "schedule": "cosine"}),
        ("convolutional", {}),
        ("normalised", {}),
        ("residual", {"schedule": "cosine"}),
        ("one layer twice", {}),
        ("branching", {}),
        ("looking", {}),
    ],
    ids=str,
)
def test_a_stack_trains_as_its_networks_would_alone(name, options):
    stack_plan = planned(MODULES[name], **options)
    lessons = training_sets(40, 100, 33)
    if name != "normalised":  # shorter than a batch, with every class
        lessons.append(TrainingSet(rows=X[:7], codes=np.arange(7) % 4, seed=3))
    networks, failed, _ = (
        train_stack(stack_plan, lessons) if stack_plan.together else _one_by_one(stack_plan, lessons)
    )
    assert not failed.any()
    for lesson, weights in zip(lessons, networks, strict=True):
        alone = network(MODULES[name], **options)
        alone.seed = lambda seed=lesson.seed: seed
        alone.fit(lesson.rows, lesson.codes)
        assert near(weights, stacks.weights_of(alone.module_))


def _one_by_one(stack_plan, lessons):
    parts = [train_stack(stack_plan, [lesson]) for lesson in lessons]
    return [part[0][0] for part in parts], np.array([part[1][0] for part in parts]), []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("perceptron", {"schedule": "cosine"}),
        ("perceptron", {"patience": 1, "epochs": 5}),
        ("perceptron", {"optimizer": torch.optim.SGD}),
        ("normalised", {}),
        ("dropping", {}),
        ("residual", {"schedule": "cosine"}),
    ],
    ids=str,
)
def test_whatever_one_lesson_is_the_others_learn_the_same_to_the_last_bit(name, options):
    stack_plan = planned(MODULES[name], **options)
    before = train_stack(stack_plan, training_sets(40, 40, 33, 7))[0]
    for companion in (
        training_set(9),
        training_set(1, 100),
        training_set(1, 5),
        TrainingSet(rows=X[:1], codes=Y[:1], seed=1),
        TrainingSet(rows=np.full((40, 64), np.nan, dtype=np.float32), codes=Y[:40], seed=1),
        TrainingSet(rows=np.full((40, 64), 1e38, dtype=np.float32), codes=Y[:40], seed=1),
    ):
        after = train_stack(
            stack_plan, [training_set(0), companion, training_set(2, 33), training_set(3, 7)]
        )[0]
        assert all(same(before[number], after[number]) for number in (0, 2, 3))
        assert not same(before[1], after[1])


def test_a_generator_shared_by_all_would_be_noticed(monkeypatch):
    # the defect that the test above is there for: masks that go on where the longest epoch ended
    stack_plan = planned(MODULES["dropping"], epochs=3)  # first: a plan is tried out with seeds, too
    assert stack_plan.together
    monkeypatch.setattr(vectorised, "reseed", lambda seed: None)
    first, second = (train_stack(stack_plan, training_sets(40, size))[0] for size in (40, 100))
    assert not same(first[0], second[0])


def test_every_step_has_chance_of_its_own(monkeypatch):
    seeds: list[int] = []
    stack_plan = planned(MODULES["dropping"], epochs=3)
    monkeypatch.setattr(vectorised, "reseed", seeds.append)
    train_stack(stack_plan, training_sets(40, 100))
    assert len(set(seeds)) == len(seeds) == 3 * 6


@pytest.mark.parametrize("leaks", [True, False], ids=["leaks", "computes something else"])
def test_a_stack_that_leaks_or_computes_something_else_is_not_used(monkeypatch, leaks):
    through = stacks._through

    def spoilt(module, weights, prefix, rows):
        out = through(module, weights, prefix, rows)
        return out + 1e-6 * rows.mean() if leaks else 1.1 * out

    assert planned().together
    monkeypatch.setattr(stacks, "_through", spoilt)
    assert not planned().together


class Clipped(torch.optim.SGD):
    """Looks at all gradients at once."""


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.NAdam]
)
def test_only_optimizers_that_move_each_weight_by_itself_are_stacked(optimizer):
    stack_plan = planned(optimizer=optimizer, learning_rate=1e-3)
    assert stack_plan.together
    assert not planned(optimizer=Clipped).together
    together, _, _ = train_stack(stack_plan, training_sets(40, 40))
    for number, weights in enumerate(together):
        assert near(weights, train_stack(stack_plan, [training_set(number)])[0][0])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"optimizer": torch.optim.LBFGS}, "cannot be trained; .*closure"),
        ({"module": nn.Linear(5, 4)}, "cannot be trained; on made-up rows of 64 features"),
        ({"module": nn.Linear(64, 3)}, "one for each class"),
        ({"module": nn.Sequential(nn.Linear(64, 4), nn.Softmax(dim=1))}, "ends in a softmax"),
        ({"module": layers(nn.BatchNorm1d(16)), "batch_size": 1}, "more than 1 value"),
        ({"device": "cuda:9"}, "device 'cuda:9' is not available"),
        ({"patience": 0}, "patience must be an integer >= 1"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_is_trained(options, match):
    with pytest.raises(ValueError, match=match):
        planned(**options)


def test_on_the_cpu_stacks_fit_the_cache_and_on_a_gpu_all_go_at_once(monkeypatch):
    stacked = plan(network(optimizer=torch.optim.SGD), n_features=784, n_classes=10)
    assert (stacked.size, stacked.compiled) == (25, False)  # 784-64-10: 50,890 weights
    compiled = plan(network(), n_features=784, n_classes=10)
    assert (compiled.size, compiled.compiled) == (64, True)
    assert planned().size > 200
    assert planned("convolutional").size < planned().size
    assert planned().compiled
    monkeypatch.setattr(vectorised, "_IN_CACHE", 1)
    assert (planned().size, planned().compiled) == (1, False)
    assert vectorised._size(planned(), torch.empty(1, device="meta")) == sys.maxsize


def held_out_loss(lesson: TrainingSet, weights: dict) -> float:
    module = network().new_module(n_features=64, n_classes=4, seed=0)
    module.load_state_dict(weights)
    _, held_rows = _split(lesson, hold_out=True)
    with torch.no_grad():
        logits = module(torch.as_tensor(lesson.rows[held_rows]))
    return float(nn.functional.cross_entropy(logits, torch.as_tensor(lesson.codes[held_rows])))


def test_a_network_keeps_its_best_weights_and_stops_when_it_has_waited():
    # labels by chance: what is learned soon makes others' labels worse
    noise = np.random.default_rng(3).integers(4, size=len(Y))
    lessons = [
        TrainingSet(rows=lesson.rows, codes=noise[: len(lesson.codes)], seed=lesson.seed)
        for lesson in training_sets(40, 60)
    ]
    options = {"learning_rate": 0.02, "patience": 3}
    networks, failed, losses = train_stack(planned(epochs=60, **options), lessons)
    assert not failed.any()
    assert losses[-1] == 0.0, "somebody went on to the end"
    for epochs in (1, 2, 4, 8, 16):
        until, _, _ = train_stack(planned(epochs=epochs, **options | {"patience": 100}), lessons)
        for each, best, last in zip(lessons, networks, until, strict=True):
            assert held_out_loss(each, best) <= held_out_loss(each, last) + 1e-6


@pytest.mark.parametrize("name", ["perceptron", "dropping"])
@pytest.mark.parametrize("patience", [1, 3])
def test_a_network_that_never_gets_better_takes_its_first_epoch_and_waits_as_long_as_said(
    monkeypatch, name, patience
):
    lessons = training_sets(40, 40)
    one_epoch = planned(MODULES[name], epochs=1, patience=patience)
    first = train_stack(one_epoch, lessons)[0]
    size, where = one_epoch.network.batch_size, torch.device("cpu")
    batches = StackBatches(
        lessons, n_classes=one_epoch.n_classes, batch_size=size, hold_out=True, where=where
    )
    course = vectorised._StackTrainer(one_epoch, batches)
    with torch.no_grad():  # what is held out is judged without dropout
        one, two = (course._held_out_loss(*course.batches.held_batches[0]) for _ in range(2))
    assert torch.equal(one, two)
    worse = lambda course, *_: torch.full((2,), float(course.steps_done))  # noqa: E731
    monkeypatch.setattr(vectorised._StackTrainer, "_held_out_loss", worse)
    held_out = itertools.count().__next__
    monkeypatch.setattr(vectorised.compiled, "held_out_loss", lambda *_: float(held_out()))
    networks, _, losses = train_stack(planned(MODULES[name], epochs=20, patience=patience), lessons)
    assert [loss > 0 for loss in losses] == [True] * (1 + patience) + [False] * (19 - patience)
    assert all(same(one, last) for one, last in zip(networks, first, strict=True))


def test_outputs_for_classes_that_a_lesson_lacks_are_never_moved():
    codes = Y[:40].clip(max=1)
    stack_plan = planned()
    (weights,), _, _ = train_stack(stack_plan, [TrainingSet(rows=X[:40], codes=codes, seed=3)])
    new = stack_plan.new_stack([3]).one(0)
    assert torch.equal(weights["2.weight"][2:], new["2.weight"][2:])
    assert torch.equal(weights["2.bias"][2:], new["2.bias"][2:])
    assert not torch.equal(weights["2.weight"][:2], new["2.weight"][:2])


def test_the_classifier_itself_has_the_same_patience():
    networks, _, _ = train_stack(planned(epochs=30, patience=2), training_sets(40, 60))
    for number, size in enumerate((40, 60)):
        alone = network(epochs=30, patience=2)
        alone.seed = lambda number=number: number
        alone.fit(training_set(number, size).rows, training_set(number, size).codes)
        assert near(networks[number], stacks.weights_of(alone.module_))
        assert len(alone.losses_) == 30
    with pytest.raises(ValueError, match="patience must be None here"):
        alone.minimise(X, lambda logits, rows: logits.sum(), name="")


def test_a_loss_that_is_not_finite_once_is_a_failure_of_its_network_only(monkeypatch):
    spoilt = iter([False, True] + [False] * 100)
    real = vectorised.backpropagate

    def backpropagate(*arguments):
        losses = real(*arguments)
        losses[1] = torch.nan if next(spoilt) else losses[1]
        return losses

    stack_plan = planned(MODULES["dropping"])
    monkeypatch.setattr(vectorised, "backpropagate", backpropagate)
    assert train_stack(stack_plan, training_sets(40, 40, 40))[1].tolist() == [False, True, False]


def test_weights_lie_as_their_gradients_come():
    for name in ("perceptron", "dropping"):
        stack_plan = planned(MODULES[name])
        assert stack_plan.orders["0.weight"] == (0, 2, 1)
        assert stack_plan.new_stack([1, 2]).trained[0].shape[:2] == (2, 64)


def test_memory_that_is_short_halves_the_work():
    sizes = []

    def work(size):
        sizes.append(size)
        if size > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size

    assert retry_with_half(work, 10) == 3
    assert sizes == [10, 5, 3]
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        retry_with_half(lambda size: torch.empty(2**58), 2)
    with pytest.raises(RuntimeError, match="shapes"):
        retry_with_half(lambda size: torch.ones(2, 3) @ torch.ones(2, 3), 2)


def test_answers_do_not_depend_on_how_much_is_asked_at_once(monkeypatch):
    stack_plan = planned()
    lessons = training_sets(40, 40, 40, 40, 40)
    trained = [
        TrainedNetwork(plan=stack_plan, weights=weights, present=np.unique(number.codes))
        for weights, number in zip(train_stack(stack_plan, lessons)[0], lessons, strict=True)
    ]
    classes = predict_classes(stack_plan, [*trained, None], X)
    assert classes.shape == (6, len(X))
    assert (classes[5] == -1).all()
    np.testing.assert_array_equal(classes[2], trained[2].present[trained[2].predict(X)])
    real = stacks.NetworkStack.logits

    def short(self, rows, *, training):
        if rows.shape[-2] > 50:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, rows, training=training)

    monkeypatch.setattr(stacks.NetworkStack, "logits", short)
    np.testing.assert_array_equal(predict_classes(stack_plan, [*trained, None], X), classes)


def test_a_module_that_raises_in_a_stack_says_nothing_of_whose_rows_it_was(monkeypatch):
    stack_plan = planned(MODULES["dropping"])

    def raising(*_):
        raise RuntimeError("the private value 123.456")

    monkeypatch.setattr(vectorised, "backpropagate", raising)
    with pytest.raises(CannotVectoriseError) as caught:
        train_stack(stack_plan, training_sets(40, 40))
    assert str(caught.value) == ""
    assert caught.value.__suppress_context__


def test_a_stack_descends_as_torch_says():
    module = nn.Sequential(nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 4))
    stack_plan = planned(module)
    assert stack_plan.together
    assert not stack_plan.compiled
    rows, own = torch.as_tensor(X[:48]).view(3, 16, 64), torch.as_tensor(Y[:48]).view(3, 16)
    absent = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.bool)
    row_weights = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    targets = Targets(codes=own.clamp(max=2), absent=absent[:, None], row_weights=row_weights)
    stack = stack_plan.new_stack([1, 2, 3])
    losses = backpropagate(stack, rows, targets)
    logits = stack.logits(rows, training=True).masked_fill(absent[:, None], -torch.inf)
    by_torch = nn.functional.cross_entropy(logits.flatten(0, 1), targets.codes.flatten(), reduction="none")
    by_torch = (by_torch.view(3, 16) * row_weights).sum(dim=1)
    torch.testing.assert_close(losses, by_torch.detach())
    slopes = torch.autograd.grad(by_torch.sum(), list(stack.trained))
    for leaf, slope in zip(stack.trained, slopes, strict=True):
        torch.testing.assert_close(leaf.grad, slope)


# batches: one shape for all networks, each with its own rows, as often as alone


def stacked(*sizes: int, hold_out: bool) -> StackBatches:
    lessons = [
        TrainingSet(rows=np.zeros((size, 2), dtype=np.float32), codes=np.arange(size) % 4, seed=number)
        for number, size in enumerate(sizes)
    ]
    return StackBatches(lessons, n_classes=4, batch_size=16, hold_out=hold_out, where=torch.device("cpu"))


def test_rows_of_a_short_lesson_come_again_at_no_weight_and_none_is_lost():
    batches_of = stacked(40, 5, 33, hold_out=False)
    assert batches_of.steps.tolist() == [2, 1, 2]
    assert batches_of.row_weights.sum(dim=1).tolist() == pytest.approx([1, 1, 1])
    batches = batches_of.numbers(0, 4, epochs=2)
    assert set(batches[:, 0].flatten().tolist()) <= set(range(40))
    assert batches[:2, 0].flatten().unique().numel() == 32  # an epoch: no row twice
    short = batches[:2, 1][:, batches_of.row_weights[1] > 0]
    assert sorted(short[0].tolist()) == sorted(short[1].tolist()) == [40, 41, 42, 43, 44]
    everything = batches_of.numbers(0, 40, epochs=20)[:, 2]
    assert sorted(everything.unique().tolist()) == list(range(45, 78))


def test_what_is_held_out_is_not_learned_from():
    batches_of = stacked(40, 4, 100, hold_out=True)
    held_rows = [
        torch.cat([numbers[number][shares[number] > 0] for numbers, shares in batches_of.held_batches])
        for number in range(3)
    ]
    assert [len(rows) for rows in held_rows] == [8, 0, 20]
    assert batches_of.none_held.tolist() == [False, True, False]
    learned = batches_of.numbers(0, 100, epochs=100)
    assert all(
        not set(held_rows[number].tolist()) & set(learned[:, number].unique().tolist()) for number in range(3)
    )
    shares = sum(shares.sum(dim=1) for _, shares in batches_of.held_batches)
    assert shares.tolist() == pytest.approx([1, 0, 1])


def test_batches_and_weights_are_these_and_seeds_those_of_earlier_versions():
    """An interrupted training goes on with the same rows in the same order."""
    assert (epoch_seed(0, 0), epoch_seed(7, 3)) == (7896617691693857887, 2530781778362038830)
    assert TrainingSet.of(np.zeros((2, 1)), np.zeros(2), random_state=5).seed == 16823399
    batches = stacked(40, 7, 100, hold_out=True)
    first = [0, 40, 47]
    for number, size in enumerate((40, 7, 100)):
        order = np.random.default_rng([number, 0, 1]).permutation(size)
        held, learned = order[: size // 5], np.sort(order[size // 5 :])
        assert batches.held_rows[number].tolist() == (first[number] + held).tolist()
        n_steps, n_rows = max(1, len(learned) // 16), min(16, len(learned))
        assert batches.steps[number] == n_steps
        weights = [1 / n_rows] * n_rows + [0.0] * (16 - n_rows)
        assert batches.row_weights[number].tolist() == pytest.approx(weights)
        for epoch in range(3):
            generator = torch.Generator().manual_seed(epoch_seed(number, epoch))
            places = first[number] + learned[torch.randperm(len(learned), generator=generator).numpy()]
            expected = np.resize(places, (n_steps, 16))
            assert batches.order(number, epoch).tolist() == expected.tolist()
            start = epoch * n_steps
            numbers = batches.numbers(start, start + n_steps, epochs=3)[:, number]
            assert numbers.tolist() == expected.tolist()
        beyond = batches.numbers(3 * n_steps, 3 * n_steps + 2, epochs=3)[:, number]
        assert set(beyond.flatten().tolist()) == {first[number] + learned[0]}  # it has finished
    for place, (numbers, weights) in enumerate(batches.held_batches):
        for number, size in enumerate((40, 7, 100)):
            mine = batches.held_rows[number][16 * place :][:16]
            assert numbers[number, : len(mine)].tolist() == mine.tolist()
            share = [1 / (size // 5)] * len(mine) + [0.0] * (16 - len(mine))
            assert weights[number].tolist() == pytest.approx(share)
    assert len(batches.held_batches) == 2
    assert batches.absent.tolist() == [[False] * 4] * 3
