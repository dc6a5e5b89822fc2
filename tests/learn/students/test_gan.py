"""The feature-matching GAN: its losses, who learns from which, and that unanswered rows teach it."""

from functools import partial

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="pip install '.[torch]'")
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_digits, load_iris  # noqa: E402
from torch import nn  # noqa: E402

from ostraka import ABSTAIN, PATEClassifier  # noqa: E402
from ostraka.nets.generative import (  # noqa: E402
    AdversarialLosses,
    NoisyPerceptron,
    features,
    generated_loss,
    generator,
    mismatch,
    real_loss,
)
from ostraka.nets.training import cosine, epoch_seed  # noqa: E402
from ostraka.networks import TorchClassifier  # noqa: E402
from ostraka.students import Distilled, FeatureMatchingGAN  # noqa: E402
from tests.learn.students.conftest import checks_of_scikit_learn  # noqa: E402

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
ANSWERS = np.where(np.arange(150) % 5 == 0, Y, ABSTAIN)
ADAM = partial(torch.optim.Adam, betas=(0.5, 0.999))


def network(**settings) -> TorchClassifier:
    """Small and quick."""
    network_settings = {name: settings.pop(name) for name in ("hidden", "noise") if name in settings}
    module = partial(NoisyPerceptron, **{"hidden": (32,), **network_settings})
    chosen = {"epochs": 60, "batch_size": 50, "learning_rate": 0.01, "optimizer": ADAM, "n_threads": 1}
    return TorchClassifier(module, **{**chosen, **settings})


def student(**settings) -> FeatureMatchingGAN:
    network_settings = {
        name: settings.pop(name) for name in ("values", "unanswered_weight", "n_noise") if name in settings
    }
    return FeatureMatchingGAN(network(**settings), generator=(16,), random_state=0, **network_settings)


def test_its_generator_of_images_has_the_layers_of_a_dcgan_and_refuses_other_rows():
    images = np.random.default_rng(0).random((40, 64)).astype(np.float32)
    answers = np.where(np.arange(40) < 20, np.arange(40) % 2, ABSTAIN)
    convolutional = FeatureMatchingGAN(network(epochs=1), generator="dcgan", n_noise=8, random_state=0)
    convolutional.fit(images, answers)
    kinds = [type(part).__name__ for part in convolutional.generator_]
    assert kinds[1:4] == ["ConvTranspose2d", "BatchNorm2d", "ReLU"]
    assert convolutional.predict(images).shape == (40,)
    with pytest.raises(ValueError, match="divide pixels by 255"):
        convolutional.fit(images * 255, answers)
    with pytest.raises(ValueError, match="generator must be one of"):
        clone(convolutional).set_params(generator="flow").fit(images, answers)


@checks_of_scikit_learn(
    FeatureMatchingGAN(network(epochs=2, batch_size=64, hidden=(8,)), generator=(4,)),
    expected_failed_checks=lambda _: {"check_classifiers_classes": "-1 means unanswered"},
)
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
def test_it_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


class TestLosses:
    LOGITS = ((0.3, -1.2, 2.5), (-4.0, 0.0, -3.0), (60.0, -50.0, 3.0), (-700.0, -800.0, -750.0))

    def probabilities(self, row) -> list:
        """Softmax of K logits and a last one of 0, with fifty digits; the last is p(forged)."""
        mpmath.mp.dps = 400  # exp(-700) beside 1
        powers = [mpmath.exp(mpmath.mpf(logit)) for logit in (*row, 0.0)]
        return [power / sum(powers) for power in powers]

    def test_real_and_forged_rows_cost_what_k_plus_one_classes_say(self):
        chances = [self.probabilities(row)[-1] for row in self.LOGITS]
        for loss, exact in (
            (real_loss, [float(-mpmath.log(1 - p)) for p in chances]),
            (generated_loss, [float(-mpmath.log(p)) for p in chances]),
        ):
            got = [float(loss(torch.tensor([row], dtype=torch.float64))) for row in self.LOGITS]
            np.testing.assert_allclose(got, exact, rtol=1e-12, atol=1e-300)

    def test_a_step_of_the_classifier_costs_the_sum(self):
        torch.manual_seed(0)
        classifier, forge = nn.Linear(4, 3).double(), Constant([0.5, -1.0, 2.0, 0.0])
        losses = AdversarialLosses(classifier=classifier, generator=forge, n_noise=2, weight=0.7)
        real, answered = torch.randn(6, 4).double(), torch.randn(2, 4).double()
        classes = torch.tensor([2, 0])
        chances = {
            name: [self.probabilities(row) for row in classifier(rows).tolist()]
            for name, rows in (("real", real), ("answered", answered), ("forged", forge(real)))
        }
        named = [-mpmath.log(p[k] / (1 - p[-1])) for p, k in zip(chances["answered"], (2, 0), strict=True)]
        apart = np.mean([-mpmath.log(1 - p[-1]) for p in chances["real"]])
        apart += np.mean([-mpmath.log(p[-1]) for p in chances["forged"]])
        want = float(np.mean(named) + 0.7 * apart / 2)
        assert losses.classifier_loss((real, answered, classes)).item() == pytest.approx(want, rel=1e-12)

    def test_the_generator_is_charged_the_distance_of_mean_features(self):
        real, forged = np.random.default_rng(0).normal(size=(2, 5, 3))
        want = ((real.mean(axis=0) - forged.mean(axis=0)) ** 2).mean()
        assert float(mismatch(torch.tensor(real), torch.tensor(forged))) == pytest.approx(want, rel=1e-12)
        assert float(mismatch(torch.tensor(real), torch.tensor(real[::-1].copy()))) == pytest.approx(0)

    def test_features_are_what_the_last_linear_layer_reads(self):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
        rows = torch.randn(7, 4)
        torch.testing.assert_close(features(module, rows), module[:4](rows))
        torch.testing.assert_close(module[4](features(module, rows)), module(rows))


class Constant(nn.Module):
    """A generator that always makes the same row."""

    def __init__(self, row) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.tensor(row, dtype=torch.float64))

    def forward(self, noise):
        return self.row.expand(len(noise), -1)


class TestTurns:
    @pytest.fixture
    def losses(self):
        torch.manual_seed(0)
        return AdversarialLosses(
            classifier=NoisyPerceptron(4, 3, hidden=(8, 8)),
            generator=generator(5, 4, hidden=(8,), unit=False),
            n_noise=5,
            weight=1.0,
        )

    @pytest.fixture
    def batch(self):
        return torch.randn(20, 4), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])

    @staticmethod
    def learns(module) -> set[bool]:
        return {
            parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
            for parameter in module.parameters()
        }

    @pytest.mark.parametrize("turn", ["classifier", "generator"])
    def test_a_turn_reaches_its_own_network_only(self, losses, batch, turn):
        others = {"classifier": losses.generator_loss, "generator": losses.classifier_loss}
        others[turn](batch)  # whoever was first
        getattr(losses, f"{turn}_loss")(batch).backward()
        assert self.learns(losses.classifier) == {turn == "classifier"}
        assert self.learns(losses.generator) == {turn == "generator"}

    def test_the_generator_moves_towards_the_real_rows(self):
        torch.manual_seed(0)
        forge = generator(3, 2, hidden=(8,), unit=False)
        losses = AdversarialLosses(classifier=Identity(), generator=forge, n_noise=3, weight=1.0)
        real = torch.randn(200, 2) + torch.tensor([5.0, -3.0])
        optimizer = torch.optim.Adam(forge.parameters(), lr=0.05)
        for _ in range(150):
            optimizer.zero_grad()
            losses.generator_loss((real, real, real)).backward()
            optimizer.step()
        forged_rows = forge.eval()(torch.randn(500, 3)).mean(dim=0)
        torch.testing.assert_close(forged_rows, torch.tensor([5.0, -3.0]), atol=0.5, rtol=0)


class Identity(nn.Linear):
    """A linear layer whose features are the rows."""

    def __init__(self) -> None:
        super().__init__(2, 2)


class TestNetworks:
    def test_the_first_batch_gives_every_layer_mean_0_and_variance_1(self):
        torch.manual_seed(0)
        module = NoisyPerceptron(6, 4, hidden=(16, 8), noise=0.0, inner_noise=0.0)
        rows, batches = 9 + 5 * torch.randn(400, 6), []
        for layer in module.layers:
            layer.register_forward_hook(lambda _layer, _given, out: batches.append(out))
        module(rows)
        for out in batches[1::2]:  # each layer was asked once before it was scaled
            torch.testing.assert_close(out.mean(dim=0), torch.zeros(out.shape[1]), atol=1e-4, rtol=0)
            torch.testing.assert_close(out.std(dim=0), torch.ones(out.shape[1]), atol=1e-4, rtol=0)
        before = module.layers[0].bias.clone()
        module(rows + 1)
        torch.testing.assert_close(module.layers[0].bias, before)

    def test_noise_is_for_training_only(self):
        torch.manual_seed(0)
        module, rows = NoisyPerceptron(6, 4, hidden=(8,)), torch.randn(5, 6)
        assert not torch.equal(module(rows), module(rows))
        module.eval()
        assert torch.equal(module(rows), module(rows))

    @pytest.mark.parametrize("unit", [True, False])
    def test_forged_rows_lie_where_real_ones_do(self, unit):
        torch.manual_seed(0)
        forged_rows = generator(5, 7, hidden=(8, 8), unit=unit)(3 * torch.randn(1000, 5))
        assert forged_rows.shape == (1000, 7)
        assert bool(((forged_rows >= 0) & (forged_rows <= 1)).all()) == unit


class TestStudent:
    def test_unanswered_digits_teach_it_what_two_answers_a_class_do_not(self):
        rows, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        rows, labels = rows[order] / 16, labels[order]
        places = np.concatenate([np.flatnonzero(labels[:1200] == k)[:2] for k in range(10)])
        answers = np.full(1200, ABSTAIN)
        answers[places] = labels[places]
        settings = {"hidden": (64, 64), "schedule": "cosine", "random_state": 0}
        gan = FeatureMatchingGAN(network(epochs=16, batch_size=100, **settings), generator=(64,))
        alone = network(epochs=192, batch_size=20, **settings)  # as many steps
        with_others = gan.fit(rows[:1200], answers).score(rows[1200:], labels[1200:])
        assert with_others > alone.fit(rows[places], labels[places]).score(rows[1200:], labels[1200:]) + 0.03

    def test_the_scale_of_a_column_does_not_matter(self):
        scaled = X * [1, 1e-3, 1e4, 1] + [0, 0, 5e4, 0]
        first, second = (student(epochs=15).fit(rows, ANSWERS).predict_proba(rows) for rows in (X, scaled))
        np.testing.assert_allclose(first, second, atol=0.05)

    def test_a_seed_of_the_network_goes_first(self):
        first, second = (
            FeatureMatchingGAN(network(epochs=2, random_state=5), generator=(8,), random_state=seed)
            for seed in (0, 1)
        )
        np.testing.assert_array_equal(
            first.fit(X, ANSWERS).predict_proba(X), second.fit(X, ANSWERS).predict_proba(X)
        )

    def test_what_predicts_is_the_moving_average(self, tmp_path):
        fitted = student(epochs=4, checkpoint=tmp_path / "gan.pt").fit(X, ANSWERS)
        assert fitted.losses_[-1] < fitted.losses_[0]
        state = torch.load(tmp_path / "gan.pt", weights_only=True)["state"]
        weights = fitted.network_.module_.state_dict()
        for name in ("layers.0.weight", "layers.1.bias"):
            torch.testing.assert_close(weights[name], state["average"][f"module.{name}"], rtol=0, atol=0)
            assert not torch.equal(weights[name], state["classifier"][name])

    def test_a_training_is_this_loop(self):
        net = network(epochs=3, batch_size=40, schedule="cosine", random_state=3)
        fitted = FeatureMatchingGAN(net, generator=(8,), n_noise=4, unanswered_weight=0.5).fit(X, ANSWERS)
        rows = X.astype(np.float32)
        rows = torch.tensor((rows - rows.mean(axis=0)) / rows.std(axis=0))
        answered, labels, seed = rows[ANSWERS >= 0], torch.tensor(ANSWERS[ANSWERS >= 0]), net.seed()
        net.classes_ = np.arange(3)
        module = net.opened(rows, seed=seed)
        torch.manual_seed(seed)
        losses = AdversarialLosses(
            classifier=module, generator=generator(4, 4, hidden=(8,), unit=False), n_noise=4, weight=0.5
        )
        players = {module: losses.classifier_loss, losses.generator: losses.generator_loss}
        adams = {player: ADAM(player.parameters()) for player in players}
        mean, done, by_epoch = None, 0, []
        for epoch in range(3):
            torch.manual_seed(epoch_seed(seed, epoch))
            draws, values = torch.Generator().manual_seed(epoch_seed(seed, epoch)), []
            order = torch.randperm(150, generator=draws)
            for step in range(3):  # 30 of 150 rows are left out of an epoch
                places = torch.randint(30, (40,), generator=draws)
                batch = rows[order[40 * step :][:40]], answered[places], labels[places]
                for player, loss in players.items():
                    adams[player].param_groups[0]["lr"] = 0.01 * cosine((epoch + step / 3) / 3)
                    adams[player].zero_grad()
                    value = loss(batch)
                    value.backward()
                    adams[player].step()
                    values += [value.item()] * (player is module)
                share = 1.0 if mean is None else 9 / (9 + done)
                now = {name: weight.detach().clone() for name, weight in module.named_parameters()}
                mean = {name: (mean or now)[name] * (1 - share) + now[name] * share for name in now}
                done += 1
            by_epoch.append(np.mean(values))
        assert fitted.losses_ == pytest.approx(by_epoch, rel=1e-5)
        for name, weight in fitted.network_.module_.named_parameters():
            torch.testing.assert_close(weight.detach(), mean[name])
        assert not fitted.generator_.training

    def test_what_is_not_named_is_stated(self, monkeypatch):
        def stop(*_arguments, **_settings):
            raise InterruptedError

        monkeypatch.setattr(TorchClassifier, "train_on", stop)
        images = np.random.default_rng(0).random((40, 64)).astype(np.float32)
        plain, images_of = (
            FeatureMatchingGAN(random_state=4),
            FeatureMatchingGAN(generator="dcgan", n_noise=8),
        )
        for model in (plain, images_of):
            with pytest.raises(InterruptedError):
                model.fit(images, np.arange(40) % 2)
        chosen = plain.network_.get_params()
        assert chosen.pop("optimizer").keywords == {"betas": (0.5, 0.999)}
        assert {name: chosen[name] for name in ("epochs", "batch_size", "learning_rate", "schedule")} == {
            "epochs": 100, "batch_size": 100, "learning_rate": 3e-3, "schedule": "cosine"
        }  # fmt: skip
        assert chosen["random_state"] == 4
        shapes = [tuple(weight.shape) for weight in plain.network_.module_.parameters() if weight.ndim == 2]
        assert shapes == [(500, 64), (250, 500), (250, 250), (2, 250)]
        shapes = [tuple(weight.shape) for weight in plain.generator_.parameters() if weight.ndim == 2]
        assert shapes == [(250, 100), (250, 250), (64, 250)]
        assert isinstance(plain.generator_[-1], nn.Sigmoid)  # all values are in [0, 1]
        shapes = [tuple(weight.shape) for weight in images_of.generator_.parameters() if weight.ndim == 4]
        assert shapes == [(8, 32, 4, 4), (32, 1, 4, 4)]

    @pytest.mark.parametrize(
        ("values", "rows", "unit"),
        [
            ("auto", [0.0, 1.0], True),
            ("auto", [-1e-6, 1.0], False),
            ("auto", [0.0, 1.001], False),
            ("any", [0.0, 1.0], False),
            ("unit", [0.0, 1.0], True),
        ],
    )
    def test_rows_in_the_unit_interval_stay_as_they_are(self, values, rows, unit):
        table = np.column_stack([np.resize(rows, 20), np.full(20, 0.5)]).astype(np.float32)  # one is constant
        model = student(epochs=1, values=values).fit(table, np.arange(20) % 2)
        middle, half = (0, 1) if unit else (np.mean(rows), (rows[1] - rows[0]) / 2)
        expected = np.column_stack([(table[:, 0] - middle) / half, 0 * table[:, 0] + 0.5 * unit])
        np.testing.assert_allclose(model._scaled(table), expected, atol=1e-6)

    def test_real_rows_are_augmented_forged_ones_are_not(self):
        batches = []

        def moved(rows):
            batches.append(len(rows))
            return rows + 100

        fitted = student(epochs=1, batch_size=150, augment=moved, noise=0.0).fit(X, ANSWERS)
        assert batches == [150, 150]  # one step: all rows, and as many answered ones
        assert float(fitted.network_.module_.layers[0].bias.detach().abs().min()) > 10  # centred at 100

    def test_it_distils_and_is_the_student_of_private_teachers(self):
        distilled = Distilled(student(epochs=40), random_state=3).fit(X, ANSWERS, classes=NAMES)
        assert distilled.model_.random_state == 0
        assert distilled.score(X, NAMES[Y]) > 0.85
        plan = {"n_teachers": 20, "epsilon": 50.0, "delta": 1e-3, "n_answers": 20, "allow_overlap": True}
        model = PATEClassifier(**plan, student=student(epochs=3), asks="random")
        model.fit(X, NAMES[Y], X_public=X)
        assert type(model.student_.model_) is FeatureMatchingGAN
        assert model.predict_proba(X).shape == (150, 3)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"values": "unit"}, r"needs rows in \[0, 1\]"),
        ({"values": "grey"}, "one of auto, unit, any"),
        ({"unanswered_weight": 0.0}, "unanswered_weight must be finite and > 0"),
        ({"n_noise": 0}, "n_noise must be an integer >= 1"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available"),
        ({"epochs": 0}, "epochs must be an integer >= 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        student(**settings).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (TorchClassifier(lambda n, k: nn.Linear(n, k + 1)), r"logits of shape \(n, 3\)"),
        (
            TorchClassifier(lambda n, k: nn.Sequential(nn.Linear(n, k), nn.Softmax(dim=1))),
            "remove that layer",
        ),
        (
            TorchClassifier(
                lambda *_: nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Conv1d(4, 3, 1), nn.Flatten())
            ),
            "network must end in a linear layer",
        ),
        ("perceptron", "network must be a TorchClassifier, got str"),
    ],
)
def test_networks_without_logits_or_features_are_refused(settings, match):
    with pytest.raises((ValueError, TypeError), match=match):
        FeatureMatchingGAN(settings).fit(X, ANSWERS)
