"""Membership in generators: who memorises is found, who does not is not, and what is refused."""

import numpy as np
import pytest
from scipy import spatial, stats
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from ostraka.attacks import generator_scores
from ostraka.audit.attacks.generators import (
    TargetGenerator,
    closeness,
    generator_statistics,
    nearest,
    residual,
)
from ostraka.core.check import TrainingDiverged
from tests.false_alarm import FALSE_ALARM


class Copies:
    """A generator that gives out the rows it saw, with noise."""

    def __init__(self, rows, noise=0.01):
        self.rows, self.noise = rows, noise

    def sample(self, n_rows, *, random_state=None):
        rng = np.random.default_rng(random_state)
        chosen = self.rows[rng.integers(len(self.rows), size=n_rows)]
        return np.clip(chosen + rng.normal(0, self.noise, chosen.shape), self.rows.min(), self.rows.max())

    def realness(self, rows):
        return -nearest(rows, self.rows)


@pytest.fixture
def world():
    rng = np.random.default_rng(0)
    return rng.random((400, 8)).astype(np.float32), rng.random(400) < 0.5, rng.random((200, 8))


NEAREST_FIVE = KNeighborsClassifier(5, weights="distance")
OTHERS = np.random.default_rng(3).random((200, 8))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"access": "black-box", "attacker": "distance"},
        {"access": "black-box", "attacker": "count"},
        {"access": "black-box", "attacker": NEAREST_FIVE, "auxiliary": OTHERS},
        {"access": "black-box", "attacker": NEAREST_FIVE, "reference": Copies(OTHERS)},
    ],
)
def test_what_gives_out_copies_is_found(world, how):
    rows, included, _ = world
    scores = generator_scores(Copies(rows[included]), rows, included, n_samples=800, random_state=0, **how)
    assert scores.auc() > 0.7


def test_a_reference_takes_off_what_all_generators_find():
    rng = np.random.default_rng(1)
    difficulty, included = rng.normal(0, 5, 1000), rng.random(1000) < 0.5
    target = difficulty + included + rng.normal(0, 0.3, 1000)
    residuals = residual(target, difficulty + rng.normal(0, 0.3, 1000))
    before, after = (stats.mannwhitneyu(x[included], x[~included])[0] for x in (target, residuals))
    assert after > before * 1.4
    assert abs(np.corrcoef(residuals, difficulty)[0, 1]) < 0.1
    assert residual(target, np.ones(1000)) == pytest.approx(target - target.mean())
    assert np.corrcoef(residual(target, -difficulty), target)[0, 1] == pytest.approx(1.0)  # its sign stays


def test_the_nearest_distance_is_that_of_a_tree():
    rng = np.random.default_rng(2)
    rows, samples = rng.normal(size=(700, 3)), rng.normal(size=(90, 3))
    assert nearest(rows, samples) == pytest.approx(spatial.KDTree(samples).query(rows)[0], abs=1e-7)


def test_the_count_of_near_samples_is_that_of_a_tree():
    rng = np.random.default_rng(2)
    rows, samples = rng.normal(size=(701, 3)), rng.normal(size=(300, 3))
    tree = spatial.KDTree(samples)
    radius = np.median(tree.query(rows)[0])
    counts = tree.query_ball_point(rows, radius * (1 + 1e-9), return_length=True)
    found = closeness(rows, samples, attacker="count")
    assert np.array_equal(found, counts)
    assert (found > 0).mean() == pytest.approx(0.5, abs=0.001)  # by the median


class Line:
    """A generator whose rows are those of a plane: the nearest one is a projection."""

    n_noise_ = 2

    def __init__(self, rng):
        self.axes = rng.normal(size=(2, 6))

    def decode(self, noise):
        return noise @ self.axes

    def sample(self, n_rows, *, random_state=None):
        return self.decode(np.random.default_rng(random_state).normal(size=(n_rows, 2)))


def test_a_search_for_noise_comes_to_the_nearest_row_that_there_is():
    rng = np.random.default_rng(3)
    plane = Line(rng)
    rows = np.concatenate([plane.sample(40, random_state=1), rng.normal(size=(40, 6))])
    noise = np.linalg.lstsq(plane.axes.T, rows.T, rcond=None)[0]
    least = np.linalg.norm(rows - (plane.axes.T @ noise).T, axis=1)
    statistics = generator_statistics(plane, rows, access="partial-black-box", n_samples=20, random_state=0)
    assert (-statistics >= least - 1e-9).all()
    near = (np.abs(noise) < 2).all(axis=0)  # farther out the normal law of the noise holds the search back
    assert -statistics[near] == pytest.approx(least[near], abs=0.02)
    assert statistics[:40].min() > statistics[40:].max()
    blind = np.linalg.norm(rows[:, None] - plane.sample(20, random_state=2), axis=2).min(axis=1)
    assert np.median(-statistics[:40]) < 0.05 * np.median(blind[:40])


# Networks.


@pytest.fixture(scope="module")
def memorised():
    pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    rows, included = rng.random((60, 64)).astype(np.float32), np.arange(60) < 16
    settings = {"epochs": 200, "batch_size": 16, "learning_rate": 1e-3, "width": 64, "n_noise": 8}
    return rows, included, settings


@pytest.mark.parametrize("kind", [pytest.param("gan", marks=pytest.mark.slow), "vae"])
def test_a_small_generator_remembers_its_rows_and_gives_samples(memorised, kind):
    rows, included, settings = memorised
    target = TargetGenerator(kind, random_state=0, **settings).fit(rows[included])
    assert generator_scores(target, rows, included).auc() > 0.9
    if kind == "vae":
        assert generator_scores(target, rows, included, attacker="reconstruction").auc() > 0.75
        assert target.reconstruct(rows).shape == rows.shape
    samples = target.sample(50, random_state=1)
    assert samples.shape == (50, 64)
    assert samples.min() >= 0
    assert samples.max() <= 1
    assert (samples == target.sample(50, random_state=1)).all()


@pytest.mark.parametrize("kind", ["dcgan", "dcgan-vae", "began"])
@pytest.mark.parametrize("numbers", [8 * 8, 3 * 11 * 11])
def test_generators_of_images_train_on_grey_and_colour_and_repeat(kind, numbers):
    pytest.importorskip("torch")
    rows = np.random.default_rng(4).random((8, numbers)).astype(np.float32)
    course = []
    target = TargetGenerator(kind, epochs=2, batch_size=4, width=4, random_state=0)
    target.progress = lambda *done: course.append((*done, target.realness(rows)))
    target.fit(rows)
    assert [done[:3] for done in course] == [("epochs", 1, 2), ("epochs", 2, 2)]
    assert np.array_equal(course[-1][-1], target.realness(rows))  # what is asked on the way changes nothing
    again = TargetGenerator(kind, epochs=2, batch_size=4, width=4, random_state=0).fit(rows)
    assert np.array_equal(again.realness(rows), target.realness(rows))
    assert not np.array_equal(course[0][-1], course[-1][-1])
    samples = again.sample(5, random_state=1)
    assert samples.shape == (5, numbers)
    assert samples.min() >= 0
    assert samples.max() <= 1


def test_the_layers_of_images_are_those_of_the_papers():
    """Radford et al. 2016 and Berthelot et al. 2017: sides, channels, and what is normalised."""
    torch = pytest.importorskip("torch")
    from ostraka.nets.generative import (
        Shrunk,
        Stretched,
        convolutions,
        deconvolutions,
        downsampling,
        upsampling,
    )

    shares, about = torch.tensor([0.0, 0.25, 1.0]), torch.tensor([-1.0, -0.5, 1.0])  # what Tanh gives
    assert torch.equal(Stretched()(shares), about)
    assert torch.equal(Shrunk()(about), shares)

    def channels(module):
        kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
        return [part.out_channels for part in module if isinstance(part, kinds)]

    shape, noise = (3, 32, 32), torch.randn(2, 100)
    inward, outward = convolutions(shape, 1, width=32), deconvolutions(100, shape, width=32)
    assert channels(inward) == [32, 64, 128, 1]
    assert channels(outward) == [128, 64, 32, 3]
    assert outward(noise).shape == (2, 3 * 32 * 32)
    assert inward(outward(noise)).shape == (2, 1)
    normed = [part.num_features for part in inward if isinstance(part, torch.nn.BatchNorm2d)]
    assert normed == [64, 128]  # not the first layer
    copier = [downsampling(shape, 64, width=16), upsampling(64, shape, width=16)]
    assert channels(copier[0]) == [16, 16, 32, 32, 48, 48, 48]  # linear growth
    assert channels(copier[1]) == [16] * 6 + [3]
    assert copier[1](copier[0](outward(noise))).shape == (2, 3 * 32 * 32)


def test_a_dcgan_with_an_encoder_minimises_what_its_paper_says():
    """Larsen et al. 2016, algorithm 1, equations 4 to 9, with torch's own laws."""
    torch = pytest.importorskip("torch")
    from torch.distributions import Normal, kl_divergence
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    from ostraka.nets import adversarial

    settings = adversarial.Settings(1, 4, 1e-3, 5, 4, 0.0, normed=False, device="cpu")
    model = adversarial.new_generator("dcgan-vae", 3 * 64, settings, seed=0)
    real = torch.rand(4, 3 * 64)
    batch, features = adversarial.Batch(real, None), model.discriminator[:-2]

    def copied():
        mean, log_variance = model.encoder(real).chunk(2, dim=1)
        law = Normal(mean, (log_variance / 2).exp())
        return law, model.generator(mean + law.scale * torch.randn_like(mean))

    def unlike(copies):  # Gaussian with identity covariance, without its constant
        law = Normal(features(copies), 1.0)
        log_density = Normal(features(real), 1.0).log_prob(features(real))
        return (log_density - law.log_prob(features(real))).flatten(1).sum(dim=1).mean()

    torch.manual_seed(0)
    loss = model.encoded(batch)
    torch.manual_seed(0)
    law, copies = copied()
    prior = kl_divergence(law, Normal(0.0, 1.0)).sum(dim=1).mean()
    assert loss.item() == pytest.approx((prior + unlike(copies)).item(), rel=1e-4)
    torch.manual_seed(0)
    loss = model.fooling(batch)
    torch.manual_seed(0)
    batches = torch.cat([model.generator(torch.randn(4, 5)), copied()[1]])
    logits = model.discriminator(batches)[:, 0]
    wanted = entropy(logits, torch.ones(8)) + 1e-3 * unlike(copied()[1])
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert model.copied(real).shape == real.shape


def test_a_began_minimises_and_balances_what_its_paper_says():
    """Berthelot et al. 2017, section 3.4: L(v) is the mean absolute error, gamma 0.5, lambda 0.001."""
    torch = pytest.importorskip("torch")
    from ostraka.nets import adversarial

    settings = adversarial.Settings(1, 4, 1e-3, 5, 4, 0.0, normed=False, device="cpu")
    model = adversarial.new_generator("began", 64, settings, seed=0)
    real = torch.rand(4, 64)
    model.balance.fill_(0.25)

    def error(rows):
        return (rows - model.discriminator(rows)).abs().mean()

    torch.manual_seed(0)
    loss = model.judged(adversarial.Batch(real, None))
    torch.manual_seed(0)
    assert loss.item() == pytest.approx((error(real) - 0.25 * error(model.made(4))).item(), rel=1e-5)
    torch.manual_seed(1)
    loss = model.fooling(adversarial.Batch(real, None))
    torch.manual_seed(1)
    wanted = error(model.made(4)).item()
    assert loss.item() == pytest.approx(wanted, rel=1e-5)
    assert model.balance.item() == pytest.approx(0.25 + 1e-3 * (0.5 * error(real).item() - wanted), abs=1e-7)


def test_the_noise_of_a_began_is_uniform():
    """Berthelot et al. 2017, section 3: from -1 to 1, and the normal law is rejected."""
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(4).random((8, 64)).astype(np.float32)
    target = TargetGenerator("began", epochs=1, width=4, random_state=0).fit(rows)
    noises = []
    target.model_.generator.register_forward_pre_hook(lambda _, inputs: noises.append(inputs[0]))
    target.sample(100, random_state=0)
    noise = torch.cat(noises).numpy().ravel()
    assert len(noise) == 6400
    assert stats.kstest(noise, stats.uniform(-1, 2).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(np.random.default_rng(0).normal(size=6400), stats.uniform(-1, 2).cdf).pvalue < 1e-9


def test_an_attackers_own_generator_learns_from_samples_and_from_what_it_knows(memorised):
    rows, included, settings = memorised
    attacker = TargetGenerator(**settings | {"epochs": 20}, dropout=0.1, weight_normalised=True)
    how = {"access": "black-box", "attacker": attacker, "auxiliary": rows[40:], "n_samples": 200}
    statistics = generator_statistics(Copies(rows[included]), rows, random_state=0, **how)
    assert statistics[:16].min() > statistics[40:].max()  # rows that it knows are called generated


@pytest.mark.parametrize("known", ["fakes", "members"])
def test_a_training_is_this_loop_and_what_is_known_joins_at_its_step(known):
    """Hayes et al. 2019, section 4: soft labels, and half of the generated or of the real rows."""
    torch = pytest.importorskip("torch")
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    from ostraka.nets import adversarial
    from ostraka.nets.training import epoch_seed

    settings = adversarial.Settings(3, 5, 1e-2, 4, 6, 0.25, normed=True, device="cpu")
    rng, events = np.random.default_rng(0), []
    rows, beside = rng.random((13, 8)).astype(np.float32), rng.random((9, 8)).astype(np.float32)
    model, plain = (adversarial.new_generator("gan", 8, settings, seed=2) for _ in "ab")
    adversarial.train_generator(
        model, rows, settings, seed=3, delay=4, progress=lambda *what: events.append(what), **{known: beside}
    )
    assert events == [("epochs", 1, 3), ("epochs", 2, 3), ("epochs", 3, 3)]
    assert not model.training
    players = (plain.discriminator, plain.generator)
    judge, forger = (torch.optim.Adam(x.parameters(), lr=1e-2, betas=(0.5, 0.999)) for x in players)
    for epoch in range(3):  # each of two steps
        torch.manual_seed(epoch_seed(3, epoch))
        draws = torch.Generator().manual_seed(epoch_seed(3, epoch))
        order = torch.randperm(13, generator=draws)
        for step in range(2):
            real, made = torch.tensor(rows)[order[5 * step :][:5]], None
            if 2 * epoch + step >= 4:
                half = torch.tensor(beside)[torch.randint(9, (2,), generator=draws)]
                made, real = (half, real) if known == "fakes" else (None, torch.cat([real[2:], half]))
            generated = plain.generator(torch.randn(5, 4)).detach()
            generated = generated if made is None else torch.cat([generated[2:], made])
            logits = plain.discriminator(real)[:, 0]
            loss = entropy(logits, 0.7 + 0.5 * torch.rand(5))
            logits = plain.discriminator(generated)[:, 0]
            judge.zero_grad()
            (loss + entropy(logits, 0.3 * torch.rand(5))).backward()
            judge.step()
            forger.zero_grad()
            logits = plain.discriminator(plain.generator(torch.randn(5, 4)))[:, 0]
            entropy(logits, torch.ones(5)).backward()
            forger.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_answers_and_samples_of_many_rows_are_those_of_a_few_at_a_time():
    torch = pytest.importorskip("torch")
    from ostraka.nets import adversarial

    settings = adversarial.Settings(1, 4, 1e-3, 3, 6, 0.5, normed=False, device="cpu")
    model = adversarial.new_generator("vae", 8, settings, seed=0)
    model.decoder[-1].bias.data += torch.linspace(-9, 9, 8)
    rows = np.random.default_rng(0).random((2100, 8)).astype(np.float32)
    noise = np.random.default_rng(1).normal(size=(2100, 3)).astype(np.float32)
    model.eval()
    with torch.no_grad():
        realness = -model.losses(torch.tensor(np.hstack([rows, 0 * rows])))
        copies = torch.sigmoid(model.decoder(model.encoder(torch.tensor(rows))[:, :3]))
        decoded = torch.sigmoid(model.decoder(torch.tensor(noise)))
    for training in (False, True):  # which answers leave as it is
        model.train(training)
        np.testing.assert_allclose(adversarial.realness_of(model, rows), realness, rtol=1e-5)
        np.testing.assert_allclose(adversarial.copies_of(model, rows), copies, atol=1e-6)
        np.testing.assert_allclose(adversarial.decoded_by(model, noise), decoded, atol=1e-6)
        torch.manual_seed(5)
        expected = torch.cat([torch.sigmoid(model.decoder(torch.randn(n, 3))) for n in (1024, 1024, 52)])
        np.testing.assert_allclose(adversarial.sample_of(model, 2100, seed=5), expected.detach(), atol=1e-6)
        assert model.training is training


# What is refused.


def test_wrong_candidates_are_refused(world):
    rows, included, _ = world
    target = Copies(rows[included])
    for member, words in ((included[1:], "must be bool"), (np.ones(400, bool), "rows which are not")):
        with pytest.raises(ValueError, match=words):
            generator_scores(target, rows, member)
    doubled = np.concatenate([rows, rows[:1]])
    with pytest.raises(ValueError, match="2 rows of 401 have a copy on the other side"):
        generator_scores(target, doubled, np.append(included, ~included[0]))
    with pytest.raises(ValueError, match="candidates must be finite"):
        generator_statistics(target, rows * np.nan)
    with pytest.raises(ValueError, match="access must be one of"):
        generator_statistics(target, rows, access="grey")


def test_generators_that_lack_what_the_attack_needs_are_refused(world):
    rows, included, others = world
    with pytest.raises(ValueError, match=r"generator must have realness"):
        generator_statistics(object(), rows)
    with pytest.raises(ValueError, match=r"must have sample"):
        generator_statistics(object(), rows, access="black-box")
    target = Copies(rows[included])
    with pytest.raises(ValueError, match="for access='black-box'"):
        generator_statistics(target, rows, auxiliary=others)
    with pytest.raises(ValueError, match=r"must have decode\(noise\) and n_noise_"):
        generator_statistics(target, rows, access="partial-black-box")
    with pytest.raises(ValueError, match=r"must have reconstruct\(rows\)"):
        generator_statistics(target, rows, attacker="reconstruction")
    with pytest.raises(ValueError, match="needs auxiliary rows or a reference"):
        generator_statistics(target, rows, access="black-box", attacker=LogisticRegression())
    with pytest.raises(ValueError, match="sample must return finite numbers of shape"):
        generator_statistics(Copies(rows[included] * np.nan), rows, access="black-box")
    target.realness = lambda rows: np.full(len(rows), np.nan)
    with pytest.raises(ValueError, match="realness must return finite numbers of shape"):
        generator_statistics(target, rows)


def test_wrong_settings_of_a_small_generator_are_refused(world):
    pytest.importorskip("torch")
    rows = world[0]
    for wrong, words in (
        ({"kind": "flow"}, "kind must be one of"),
        ({"kind": "dcgan"}, "flat images, grey or RGB, .* got 8 numbers a row: .*, or type kind='gan'"),
        ({"kind": "began", "batch_size": 1}, "batch_size must be"),
        ({"device": "cuda:7"}, "device 'cuda:7' is not available"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"epochs": 0}, "epochs must be"),
    ):
        with pytest.raises(ValueError, match=words):
            TargetGenerator(**wrong).fit(rows)
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        TargetGenerator().fit(rows + 1)
    for kind in ("vae", "began"):
        with pytest.raises(ValueError, match="which has no discriminator for them"):
            TargetGenerator(kind).fit(rows, fakes=rows)
        with pytest.raises(ValueError, match="members must be None"):
            TargetGenerator(kind).fit(rows, members=rows)
    with pytest.raises(TrainingDiverged, match="Try a smaller learning_rate"):
        TargetGenerator("vae", epochs=20, learning_rate=1e30).fit(rows)


def test_known_rows_that_would_be_in_no_batch_are_refused(world):
    pytest.importorskip("torch")
    rows = world[0][:64]
    attacker = TargetGenerator(epochs=3, width=4, random_state=0)  # 6 steps
    for name in ("fakes", "members"):
        for wrong, words in (
            ({"delay": 6}, f"delay must be < 6, the number of steps, or {name} would be in no batch, got 6"),
            ({"delay": -1}, "delay must be an integer >= 0"),
            ({"delay": True}, "delay must be an integer >= 0"),
            ({"delay": 1.5}, "delay must be an integer >= 0"),
            ({name: rows[:, 1:]}, f"{name} must have two rows or more of 8 numbers"),
            ({name: rows[:0]}, f"{name} must have two rows or more"),
            ({name: rows * np.nan}, f"{name} must hold numbers from 0 to 1"),
            ({name: [["secret"] * 8] * 2}, f"{name} must be numbers from 0 to 1, .* got a list$"),
        ):
            with pytest.raises(ValueError, match=words):
                attacker.fit(rows, **{name: rows, **wrong})
        with pytest.raises(ValueError, match=f"batch_size must be >= 2 for {name}"):
            TargetGenerator(epochs=1, batch_size=1, width=4).fit(rows, **{name: rows})
