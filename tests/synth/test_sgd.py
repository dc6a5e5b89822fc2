import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ostraka import Adjacency, Budget, Ledger, Private, release
from ostraka.accounting import sampled_gaussian_curve
from ostraka.synth import DPGM, PrivateSGD
from ostraka.synth import fitting as _fitting
from ostraka.synth.sgd import DCGAN, RBM, VAE, logits_of
from tests.false_alarm import FALSE_ALARM

torch = pytest.importorskip("torch")
from ostraka.nets import private as private_steps  # noqa: E402

ONE_ROW = Adjacency(moves="row", relation="add-or-remove")


@dataclass(frozen=True)
class Mean:
    """One weight vector, whose loss is the inner product with the row: the gradient of a row is the row."""

    width: int = 3

    def modules(self, n_networks, *, seed):
        torch.manual_seed(seed)
        return [torch.nn.Linear(self.width, 1, bias=False) for _ in range(n_networks)]

    def losses(self, module, rows):
        return module(rows)[:, 0]


def mechanism(**settings):
    fixed = {
        "network": Mean(),
        "n_columns": 3,
        "steps": 10,
        "sampling_rate": 0.5,
        "sigma": 1.0,
        "clip": 1.0,
        "expected_rows": (100.0,),
    }
    return PrivateSGD(**fixed | settings)


def rows(n=100, networks=1, seed=0):
    rng = np.random.default_rng(seed)
    table = np.column_stack([rng.normal(size=(n, 3)), rng.integers(0, networks, n), np.ones(n)])
    return Private(table.astype(np.float32), ONE_ROW)


def training(table, owners, *, networks=1, seed=0, **settings):
    fixed = {"sampling_rate": 1.0, "sigma": 1e-9, "sigma_norms": None, "clip": 1.0}
    return private_steps.PrivateTraining(
        modules=Mean().modules(networks, seed=0),
        losses=Mean().losses,
        rows=torch.from_numpy(np.asarray(table, dtype=np.float32)),
        owners=np.asarray(owners),
        expected=np.full(networks, 10.0),
        rng=np.random.default_rng(seed),
        **fixed | settings,
    )


class TestOneStep:
    def test_divides_the_clipped_sum_by_the_expected_size_whatever_the_sample_holds(self):
        table = np.array([[3.0, 4.0, 0.0], [0.3, 0.4, 0.0]])
        for n_copies in (1, 4):
            run = training(np.repeat(table, n_copies, axis=0), np.zeros(2 * n_copies, dtype=int))
            run.step(np.arange(2 * n_copies))
            expected = n_copies * np.array([0.6 + 0.3, 0.8 + 0.4, 0.0]) / 10
            np.testing.assert_allclose(run.modules[0].weight.grad[0], expected, atol=1e-4)

    @pytest.mark.parametrize("sigma_norms", [None, 20.0])
    def test_is_the_noisy_sum_of_clipped_gradients_over_the_expected_rows(self, sigma_norms):
        """Each row's gradient by torch, in double precision; the draws of the generator in their order."""
        torch.manual_seed(0)
        modules = [
            torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)) for _ in "ab"
        ]
        modules[1][0].bias.requires_grad_(False)  # no row moves it
        table, owners = torch.randn(300, 3), np.arange(300) % 2
        sample = np.arange(290)
        public = {"2.bias": torch.tensor([0.25])}
        run = replace(
            training(table, owners, networks=2, seed=4, sigma=1.3, sigma_norms=sigma_norms, clip=2.0),
            modules=modules,
            losses=lambda module, rows: module(rows)[:, 0] ** 2,
            expected=np.array([40.0, 0.5]),
            public_gradient=lambda _: public,
        )
        assert float(run.step(sample)) == 0.0
        alone = [{}, {}]
        for k, module in enumerate(modules):
            exact = copy.deepcopy(module).double()
            trained = {name: p for name, p in exact.named_parameters() if p.requires_grad}
            for row in table[sample[owners[sample] == k]].double():
                parts = torch.autograd.grad(exact(row[None])[0, 0] ** 2, list(trained.values()))
                for name, part in zip(trained, parts, strict=True):
                    alone[k].setdefault(name, []).append(part.numpy())
            alone[k] = {name: np.array(parts) for name, parts in alone[k].items()}
        norms = [np.sqrt(sum((p**2).reshape(len(p), -1).sum(axis=1) for p in own.values())) for own in alone]
        rng, clip = np.random.default_rng(4), 2.0
        rng.integers(2**63)
        if sigma_norms is not None:  # the first of 100 bins up to which half of the noisy counts lie
            counts, _ = np.histogram(np.minimum(np.concatenate(norms), 1.999), bins=100, range=(0, 2))
            below = np.cumsum(counts + sigma_norms * rng.standard_normal(100))
            clip = 0.02 * (1 + np.flatnonzero(below >= below[-1] / 2)[0])
            assert clip < 2.0
        for k, (own, module) in enumerate(zip(alone, modules, strict=True)):
            for name, parameter in module.named_parameters():
                expected = np.zeros(parameter.shape)
                if name in own:
                    factors = np.minimum(clip / norms[k], 1) * (1 - 1e-5)
                    noise = 1.3 * clip * rng.standard_normal(parameter.shape)
                    expected = (noise + np.tensordot(factors, own[name], axes=1)) / [40.0, 1.0][k]
                expected = expected + public.get(name, torch.zeros(())).numpy()
                np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-4, atol=1e-5)

    def test_an_empty_sample_is_noise_for_every_network(self):
        run = training(np.ones((4, 3)), np.zeros(4, dtype=int), networks=3, sigma=1.0)
        run.step(np.zeros(0, dtype=int))
        assert all(bool((module.weight.grad != 0).all()) for module in run.modules)

    def test_every_network_gets_the_whole_noise_and_not_a_kth_of_it(self):
        """Planted: noise divided by the number of clusters."""
        noises = []
        run = training(np.zeros((1, 3)), [0], networks=5, sigma=2.0, clip=3.0)
        for _ in range(80):
            run.step(np.zeros(1, dtype=int))
            noises += [module.weight.grad.numpy().ravel() * 10 for module in run.modules]
        square, tolerance = np.mean(np.square(noises)) / 36, 9 * math.sqrt(2 / 1200)
        assert abs(square - 1) < tolerance < 1 - 1 / 5**2
        assert FALSE_ALARM < 1e-8  # nine standard deviations

    def test_a_row_that_is_not_finite_is_left_out(self):
        table = np.array([[math.inf, 0.0, 0.0], [0.0, 1.0, 0.0]])
        run = training(table, [0, 0])
        run.step(np.arange(2))
        np.testing.assert_allclose(run.modules[0].weight.grad[0], [0.0, 0.1, 0.0], atol=1e-4)

    def test_noise_that_a_loss_draws_is_secret(self):
        """Planted: noise under a public seed by place, which one row more deals anew to all others."""
        noises = []
        for seed in (0, 0, 1):
            run = training(np.ones((200, 3)), np.zeros(200, dtype=int), seed=seed, clip=1e3)
            drawing = lambda module, rows: module(rows)[:, 0] * torch.randn(len(rows))  # noqa: E731
            run = replace(run, losses=drawing)
            run.step(np.arange(200))
            noises.append(float(run.modules[0].weight.grad[0, 0]))
        assert noises[0] == noises[1]
        assert abs(noises[2] - noises[0]) > 1e-3

    def test_each_row_takes_part_by_a_coin_of_its_own(self):
        """Planted: shuffled batches, whose sizes are all the same."""
        run = training(np.zeros((1000, 3)), np.zeros(1000, dtype=int), sampling_rate=0.1)
        samples = [run.sample() for _ in range(200)]
        sizes = np.array([len(sample) for sample in samples])
        assert abs(sizes.mean() - 100) < 7 * math.sqrt(90 / 200)
        assert 60 < sizes.var() < 130
        times = np.bincount(np.concatenate(samples), minlength=1000)
        assert times.max() < 60

    def test_the_clip_is_the_noisy_median_of_the_norms(self):
        run = training(np.zeros((1, 3)), [0], sigma_norms=1e-6, clip=10.0)
        assert run.noisy_clip(np.linspace(1.0, 3.0, 1000)) == pytest.approx(2.0, abs=0.15)
        clips = {
            training(np.zeros((1, 3)), [0], sigma_norms=50.0, seed=s).noisy_clip(np.ones(9)) for s in range(9)
        }
        assert len(clips) > 3


@pytest.mark.parametrize("steps", [1, 53, 120])  # an epoch has 1, 1 and 40 of them
def test_a_training_has_the_steps_that_were_asked_for(steps, monkeypatch):
    run, samples = training(np.zeros((1, 3)), [0]), []
    monkeypatch.setattr(
        private_steps.PrivateTraining, "step", lambda _, sample: (samples.append(sample), torch.zeros(()))[1]
    )
    run.run(steps=steps, learning_rate=0.1, seed=0)
    assert len(samples) == steps


class TestThePrice:
    def test_is_that_of_steps_of_one_sampled_gaussian(self):
        curve = mechanism(steps=300, sampling_rate=0.01, sigma=1.2).curve()
        truth = sampled_gaussian_curve(sigma=1.2, sampling_rate=0.01, steps=300)
        assert curve.epsilon(1e-5) == truth.epsilon(1e-5)

    def test_histogram_and_gradient_are_one_gaussian_sampled_once(self):
        """Planted: a clip without its price. Theorem 4 of the thesis says 1.76, one Gaussian 1.34 by RDP."""
        joint = mechanism(steps=11_764, sampling_rate=0.0017, sigma=1.0, sigma_norms=4.0).curve()
        alone = mechanism(steps=11_764, sampling_rate=0.0017, sigma=1.0).curve()
        single = sampled_gaussian_curve(sigma=(1 + 1 / 16) ** -0.5, sampling_rate=0.0017, steps=11_764)
        assert alone.epsilon(1e-5) < joint.epsilon(1e-5) == single.epsilon(1e-5)
        assert joint.epsilon(1e-5) < 1.76

    def test_all_networks_together_cost_as_much_as_one(self):
        single, ten = mechanism(), mechanism(expected_rows=(10.0,) * 10)
        assert single.curve() == ten.curve()

    def test_is_charged_before_training(self):
        with Ledger(":memory:", budget=Budget(epsilon=100.0, delta=1e-5, adaptive=False)) as ledger:
            outcome = release(mechanism(), rows(), ledger=ledger)
            assert sorted(outcome) == ["0/weight"]
            assert ledger.epsilon() == pytest.approx(mechanism().curve().epsilon(1e-5), rel=1e-9)

    def test_one_row_moves_the_sum_of_all_networks_by_no_more_than_the_clip(self):
        table = np.random.default_rng(0).normal(size=(40, 3)) * 5
        owners = np.arange(40) % 4

        def gradients(keep):
            run = training(table[keep], owners[keep], networks=4)
            run.step(np.arange(len(keep)))
            return np.concatenate([module.weight.grad.numpy().ravel() * 10 for module in run.modules])

        total = gradients(np.arange(40))
        for row in range(40):
            moved = total - gradients(np.delete(np.arange(40), row))
            assert np.linalg.norm(moved) <= 1.0


def test_a_killed_training_goes_on_from_its_checkpoint_and_is_not_charged_twice(tmp_path, monkeypatch):
    path, private = tmp_path / "training.pt", rows()
    wanted = mechanism(steps=40, checkpoint=path, learning_rate=0.1)
    plain, done = private_steps.PrivateTraining.step, []

    def dies(self, sample):
        done.append(1)
        if len(done) == 25:
            raise KeyboardInterrupt
        return plain(self, sample)

    monkeypatch.setattr(private_steps.PrivateTraining, "run", _in_epochs_of(10))
    monkeypatch.setattr(private_steps.PrivateTraining, "step", dies)
    with Ledger(":memory:", budget=Budget(epsilon=100.0, delta=1e-5, adaptive=False)) as ledger:
        with pytest.raises(KeyboardInterrupt):
            release(wanted, private, ledger=ledger, key="fit")
        spent = ledger.epsilon()
        assert spent > 0
        assert path.stat().st_mode & 0o077 == 0
        monkeypatch.setattr(
            private_steps.PrivateTraining, "step", lambda self, s: (done.append(1), plain(self, s))[1]
        )
        before = len(done)
        release(wanted, private, ledger=ledger, key="fit")
        assert ledger.epsilon() == spent
        assert len(done) - before == 20


def test_a_checkpoint_is_that_of_its_rows_and_settings(monkeypatch):
    """By a name that a training writes into it; one of another name is not gone on from."""
    names = []
    monkeypatch.setattr(
        private_steps.PrivateTraining,
        "run",
        lambda self, *, checkpoint, fingerprint, **_: names.append(fingerprint),
    )
    for private, settings in (
        (rows(), {"checkpoint": "a"}),
        (rows(), {"checkpoint": "b"}),
        (rows(seed=1), {"checkpoint": "a"}),
        (rows(), {"checkpoint": "a", "sigma": 2.0}),
        (rows(), {}),
    ):
        mechanism(**settings).release(private, rng=np.random.default_rng(0))
    assert names[0] == names[1]
    assert len(set(names)) == 4
    assert names[-1] == ""
    assert all(repr(mechanism()) in name for name in names[:3])


def _in_epochs_of(size):
    plain = private_steps.train

    def run(self, *, steps, learning_rate, seed, checkpoint=None, fingerprint=""):
        parameters = [p for module in self.modules for p in module.parameters()]
        plain(
            [
                private_steps.Objective(
                    optimizer=torch.optim.Adam(parameters, lr=learning_rate), loss=self.step
                )
            ],
            lambda _: (self.sample() for _ in range(size)),
            steps=size,
            epochs=steps // size,
            seed=seed,
            state={f"network {k}": module for k, module in enumerate(self.modules)},
            checkpoint=checkpoint,
            fingerprint=fingerprint,
        )

    return run


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sigma": 0.0}, "sigma must"),
        ({"sigma_norms": -1.0}, "sigma_norms must"),
        ({"sampling_rate": 1.5}, "sampling_rate must"),
        ({"steps": 0}, "steps must"),
        ({"clip": math.nan}, "clip must"),
        ({"expected_rows": ()}, "expected_rows must"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        mechanism(**settings)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (VAE, {"n_features": 1, "latent": 1, "hidden": (1,)}),
        (VAE, {"n_features": 2, "hidden": ()}),
        (RBM, {"n_features": 1, "hidden": 1, "chains": 1}),
        (DCGAN, {"n_features": 36, "width": 1, "n_noise": 1}),
    ],
)
def test_networks_have_one_of_each_at_least(kind, settings):
    made = kind(**settings)
    assert all(getattr(made, name) == value for name, value in settings.items())
    for name, value in settings.items():
        if value:
            with pytest.raises(ValueError, match=f"{name} must"):
                kind(**settings | {name: (0,) if isinstance(value, tuple) else 0})


def test_logits_are_kept_away_from_the_ends():
    means = np.array([-1.0, 0.0, 0.02, 0.5, 0.9, 0.98, 2.0])
    ends = math.log(0.98 / 0.02)
    np.testing.assert_allclose(logits_of(means), [-ends, -ends, -ends, 0, math.log(9), ends, ends])
    np.testing.assert_allclose(VAE(n_features=7).starts(means), logits_of(means))
    np.testing.assert_allclose(RBM(n_features=7).starts(means), np.clip(means, 0, 1))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.array([[0, 0, 0, 0, 1.0], [0, 0, 0, 1, 1]]), "network from 0 to 0, and 1"),
        (np.array([[0, 0, 0, -1, 1.0]]), "network from 0 to 0, and 1"),
        (np.array([[0, 0, 0, 0, 0.5]]), "network from 0 to 0, and 1"),
        (np.zeros((4, 4)), "3 numbers, a network and 1"),
        (np.full((4, 5), math.nan), "must be finite"),
        (np.full((4, 5), 7.0), "network from 0 to 0"),
    ],
)
def test_rows_that_cannot_be_learned_from_are_refused(table, words):
    with pytest.raises(ValueError, match=words):
        mechanism().uses(Private(table, ONE_ROW))


def binary(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 2, n)
    means = np.array([[0.1, 0.9, 0.1, 0.9, 0.5, 0.5], [0.9, 0.1, 0.9, 0.1, 0.5, 0.5]])
    X = (rng.random((n, 6)) < means[which]).astype(float)
    X[:, 5] = X[:, 4]  # what no centre knows
    return X, which


def mixture(X, y=None, **settings):
    fixed = {"n_clusters": 2, "binary": True, "epsilon": 3.0, "steps": 20, "sampling_rate": 0.05}
    fit = {} if y is None else {"classes": [0, 1]}
    return DPGM(**fixed | settings).fit(X, y, rng=np.random.default_rng(1), **fit)


class TestMixture:
    @pytest.mark.parametrize("generator", ["vae", pytest.param("rbm", marks=pytest.mark.slow)])
    def test_means_of_classes_are_those_of_the_rows(self, generator):
        X, y = binary()
        sample, labels = mixture(X, y, generator=generator).sample(4000, random_state=0)
        assert set(np.unique(sample)) <= {0.0, 1.0}
        for k in (0, 1):
            np.testing.assert_allclose(sample[labels == k].mean(axis=0), X[y == k].mean(axis=0), atol=0.15)

    @pytest.mark.parametrize("steps", [100, pytest.param(300, marks=pytest.mark.slow)])
    def test_networks_learn_what_centres_leave_out(self, steps):
        X, y = binary()
        settings = {"n_clusters": 1, "epsilon": 30.0, "share": 0.3, "steps": steps, "learning_rate": 0.03}
        fitted = mixture(X, y, generator=VAE(n_features=6, hidden=(16,), latent=2), **settings)
        sample, _ = fitted.sample(4000, random_state=0)
        assert np.corrcoef(sample[:, 4], sample[:, 5])[0, 1] > 0.3

    def test_the_price_is_the_one_asked_for(self):
        X, y = binary(500)
        fitted = mixture(X, y, clip_noise=4.0)
        assert 2.98 < fitted.result_.upper["epsilon"] <= 3.0
        parts = fitted.mechanism_
        assert parts.curve().epsilon(1e-5) >= (parts.clusters.curve()).epsilon(1e-5)

    @pytest.mark.parametrize("generator", ["vae", "rbm"])
    @pytest.mark.parametrize("n", [1, 3])
    def test_few_rows_one_class_and_empty_clusters_give_a_generator_of_noise(self, generator, n):
        fitted = mixture(binary(n)[0], np.zeros(n), generator=generator, n_clusters=5)
        sample, labels = fitted.sample(50)
        assert sample.shape == (50, 6)
        assert np.isfinite(sample).all()
        assert set(labels) <= {0, 1}

    def test_without_labels_each_cluster_has_a_network(self):
        X, _ = binary(500)
        fitted = mixture(X, n_clusters=3, generator="rbm")
        assert {name.split("/")[0] for name in fitted.weights_} == {"0", "1", "2"}
        assert fitted.sample(10)[0].shape == (10, 6)

    @pytest.mark.parametrize(
        "generator",
        [pytest.param(VAE(n_features=6, hidden=(8, 4)), marks=pytest.mark.slow), RBM(n_features=6, hidden=4)],
    )
    def test_samples_repeat_under_their_seed(self, generator):
        fitted = mixture(*binary(300), generator=generator)
        first, second = (fitted.sample(20, random_state=3)[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_a_private_gan_of_images_sees_rows_by_clipped_gradients_of_its_discriminator_only(self):
        images = np.random.default_rng(0).random((40, 64))
        settings = {"generator": DCGAN(n_features=64, width=4, n_noise=8), "steps": 3, "n_clusters": 1}
        fitted = DPGM(**settings, epsilon=3.0, sampling_rate=0.5).fit(images, rng=np.random.default_rng(0))
        sample = fitted.sample(20)[0]
        assert sample.shape == (20, 64)
        assert sample.min() >= 0
        assert sample.max() <= 1
        [module] = settings["generator"].modules(1, seed=0)
        assert set(module.public_gradient()) == {name for name, _ in module.named_parameters()}
        parts = {
            name.split(".")[0]
            for name in private_steps.row_gradients(
                module, settings["generator"].losses, torch.rand(5, 128)
            ).weighted_sum(torch.ones(5))
        }
        assert parts == {"discriminator"}

    def test_rows_of_a_private_gan_do_not_move_each_others_gradients(self):
        """Planted: batch normalisation, which is refused. One row more changes no bit of the others."""
        network = DCGAN(n_features=16 * 16, width=4, n_noise=8)
        [module] = network.modules(1, seed=0)
        table = torch.rand(9, 512)
        alone = torch.cat(
            [private_steps.row_gradients(module, network.losses, row[None]).norms for row in table]
        )
        together = private_steps.row_gradients(module, network.losses, table).norms
        backward = private_steps.row_gradients(module, network.losses, table.flip(0)).norms
        assert torch.equal(alone, together)
        assert torch.equal(alone, backward.flip(0))
        module.discriminator.append(torch.nn.BatchNorm1d(1))
        with pytest.raises(ValueError, match="batch normalisation mixes rows"):
            private_steps.row_gradients(module, network.losses, table)

    def test_rows_that_share_a_weight_are_refused(self):
        X, y = binary(300)
        mechanism = mixture(X, y, generator="rbm").mechanism_
        shared = _fitting.private_rows(X.astype(np.float32), y, np.repeat(np.arange(100), 3), rng=None)
        for use in (mechanism.uses, lambda rows: mechanism.release(rows, rng=np.random.default_rng(0))):
            with pytest.raises(ValueError, match="share of 1"):
                use(shared)

    def test_a_person_gives_one_row(self):
        X, y = binary(600)
        fitted = DPGM(n_clusters=1, epsilon=3.0, steps=10, generator="rbm").fit(
            X, y, classes=[0, 1], groups=np.repeat(np.arange(6), 100), rng=np.random.default_rng(0)
        )
        assert fitted.result_.settings["unit"] == "person"

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"generator": "gan"}, "generator must be 'vae'"),
            ({"generator": VAE(n_features=9)}, "network for 6 columns"),
            ({"generator": "dcgan"}, "square images, .* got 6: resize them, or type generator='vae'"),
            ({"share": 1.0}, "share must"),
            ({"epsilon": 0.0}, "epsilon must"),
            ({"steps": 0}, "steps must"),
        ],
    )
    def test_what_cannot_be_done_is_refused_before_the_charge(self, settings, words, uncharged):
        with uncharged(words) as ledger:
            DPGM(**{"n_clusters": 2, "steps": 5} | settings).fit(binary(50)[0], ledger=ledger)
